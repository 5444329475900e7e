/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitters of byte-level models: regular expressions with ordered alternatives, written by hand. A call
 * reads what it returns and at most one character more, or the next calls return all that it has read:
 * scanning is linear.
 */
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* Class and length of the character at s[at]; 0 at the end. */
static unsigned class_at(const char *s, size_t n, size_t at, size_t *len)
{
	uint32_t cp;
	if (at >= n) {
		*len = 0;
		return 0;
	}
	*len = tok_decode(s + at, n - at, &cp);
	return tok_class(cp);
}

/* End of the run of characters from `at` on that have a class of `want`. */
static size_t run_of(const char *s, size_t n, size_t at, unsigned classes)
{
	size_t len;
	while (at < n && class_at(s, n, at, &len) & classes)
		at += len;
	return at;
}

/* End of the run of characters from `at` on that have no class of `avoid`. */
static size_t run_without(const char *s, size_t n, size_t at, unsigned avoid)
{
	size_t len;
	while (at < n && !(class_at(s, n, at, &len) & avoid))
		at += len;
	return at;
}

/* Byte at s[at], lower-cased if caseless; the long s folds to s. */
static char fold_ascii(const char *s, size_t n, size_t at, bool caseless, size_t *len)
{
	if (at >= n)
		return 0;
	*len = 1;
	if (caseless && n - at >= 2 && !memcmp(s + at, "\xc5\xbf", 2)) {
		*len = 2; /* U+017F, the long s: folds to s */
		return 's';
	}
	return caseless && s[at] >= 'A' && s[at] <= 'Z' ? (char)(s[at] + 32) : s[at];
}

/* Length of a contraction ('s 't 're 've 'm 'll 'd) at s; 0: none. */
static size_t scan_contraction(const char *s, size_t n, bool caseless)
{
	size_t first = 0, second = 0;
	if (n < 2 || s[0] != '\'')
		return 0;
	char a = fold_ascii(s, n, 1, caseless, &first);
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return 1 + first;
	char b = fold_ascii(s, n, 1 + first, caseless, &second);
	if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
		return 1 + first + second;
	return 0;
}

/* \s+(?!\S)|\s+ : a run of white space, without its last character if something follows. */
static size_t scan_spaces(const char *s, size_t n)
{
	size_t end = run_of(s, n, 0, TOK_SPACE);
	if (end == n)
		return end;
	size_t last = tok_last_char(s, end);
	return last ? last : end;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const char *s, size_t n)
{
	size_t len = scan_contraction(s, n, false), first;
	if (len)
		return len;
	size_t from = s[0] == ' ';
	unsigned c = class_at(s, n, from, &first);
	if (first && c & TOK_L)
		return run_of(s, n, from, TOK_L);
	if (first && c & TOK_N)
		return run_of(s, n, from, TOK_N);
	if (first && !(c & TOK_SPACE))
		return run_without(s, n, from, TOK_SPACE | TOK_L | TOK_N);
	return scan_spaces(s, n);
}

/* \s*[\r\n]+ : up to the last end of line in the run of white space; 0: none. */
static size_t scan_newlines(const char *s, size_t n)
{
	size_t end = run_of(s, n, 0, TOK_SPACE);
	while (end && s[end - 1] != '\n' && s[end - 1] != '\r')
		end--;
	return end;
}

static size_t scan_number(const char *s, size_t n, unsigned max)
{
	size_t at = 0, len;
	for (unsigned i = 0; (max == 0 || i < max) && class_at(s, n, at, &len) & TOK_N && len; i++)
		at += len;
	return at;
}

/* ` ?[^\s\p{L}\p{N}]+`, then any characters of `tail`; 0: no match. */
static size_t scan_others(const char *s, size_t n, unsigned avoid, const char *tail)
{
	size_t from = s[0] == ' ', end = run_without(s, n, from, avoid);
	if (end == from)
		return 0;
	while (end < n && s[end] && strchr(tail, s[end]))
		end++;
	return end;
}

/* True: [^\r\n\p{L}\p{N}], which may precede a word. */
static bool may_precede_word(const char *s, unsigned c)
{
	return !(c & (TOK_L | TOK_N)) && s[0] != '\r' && s[0] != '\n';
}

/* Llama 3, Qwen: contractions, [^\r\n\p{L}\p{N}]?\p{L}+, numbers, punctuation, line ends, white space. */
static size_t scan_words(const struct tfmc_tok_op *op, const char *s, size_t n)
{
	unsigned letters = TOK_L | (op->flags & TFMC_TOK_W_MARKS ? TOK_M : 0u);
	size_t first, second, len = scan_contraction(s, n, op->flags & TFMC_TOK_W_CASELESS);
	if (len)
		return len;
	unsigned c = class_at(s, n, 0, &first), next = class_at(s, n, first, &second);
	if (may_precede_word(s, c) && second && next & letters)
		return run_of(s, n, first, letters);
	if (c & letters)
		return run_of(s, n, 0, letters);
	if (c & TOK_N)
		return scan_number(s, n, op->flags & TFMC_TOK_W_DIGITS);
	len = scan_others(s, n, TOK_SPACE | TOK_N | letters, "\r\n");
	len = len ? len : scan_newlines(s, n);
	return len ? len : scan_spaces(s, n);
}

/* ---- words by case ---- */

static bool is_upper(unsigned c)
{
	return c & TOK_M || (c & TOK_L && !(c & TOK_LOWER));
}

static bool is_lower(unsigned c)
{
	return c & TOK_M || (c & TOK_L && !(c & TOK_UPPER));
}

static size_t run_of_case(const char *s, size_t n, size_t at, bool (*is)(unsigned))
{
	size_t len;
	while (at < n && is(class_at(s, n, at, &len)))
		at += len;
	return at;
}

/* Upper*Lower+ from `at`; 0: no match. Letters without case are both: backtracks to the last such letter. */
static size_t scan_capitalized(const char *s, size_t n, size_t at)
{
	size_t upper = run_of_case(s, n, at, is_upper), end = run_of_case(s, n, upper, is_lower), len;
	if (end > upper)
		return end;
	while (upper > at) {
		size_t last = at + tok_last_char(s + at, upper - at);
		if (is_lower(class_at(s, n, last, &len)))
			return upper;
		upper = last;
	}
	return 0;
}

/* Upper+Lower*, 0: no match. */
static size_t scan_uppercase(const char *s, size_t n, size_t at)
{
	size_t upper = run_of_case(s, n, at, is_upper);
	return upper > at ? run_of_case(s, n, upper, is_lower) : 0;
}

/* o200k: as scan_words, but words are split by letter case. */
static size_t scan_cased(const struct tfmc_tok_op *op, const char *s, size_t n)
{
	size_t first, len = 0;
	unsigned c = class_at(s, n, 0, &first);
	bool leads = may_precede_word(s, c);
	if (leads)
		len = scan_capitalized(s, n, first);
	len = len ? len : scan_capitalized(s, n, 0);
	if (!len && leads)
		len = scan_uppercase(s, n, first);
	len = len ? len : scan_uppercase(s, n, 0);
	if (len)
		return op->flags & TFMC_TOK_W_NO_CONTRACT ? len
		                                          : len + scan_contraction(s + len, n - len, true);
	if (c & TOK_N)
		return scan_number(s, n, op->flags & TFMC_TOK_W_DIGITS);
	len = scan_others(s, n, TOK_SPACE | TOK_L | TOK_N, "\r\n/");
	len = len ? len : scan_newlines(s, n);
	return len ? len : scan_spaces(s, n);
}

/* ---- CLIP, BLOOM ---- */

/* CLIP: contractions, letters, single digits, other characters; white space is dropped. */
static size_t scan_clip(const char *s, size_t n, bool *is_part)
{
	size_t len = scan_contraction(s, n, false), first;
	unsigned c = class_at(s, n, 0, &first);
	if (len)
		return len;
	if (c & TOK_SPACE) {
		*is_part = false;
		return run_of(s, n, 0, TOK_SPACE);
	}
	if (c & TOK_L)
		return run_of(s, n, 0, TOK_L);
	if (c & TOK_N)
		return first;
	/* An apostrophe begins a contraction only at the beginning of a match. */
	return run_without(s, n, 0, TOK_SPACE | TOK_L | TOK_N);
}

/* Characters that [^(\s|[.,!?...])] excludes. */
static bool is_bloom_separator(uint32_t cp)
{
	if (cp < 0x80 && cp && strchr("(|).,!?", (int)cp))
		return true;
	return cp == 0x2026 || cp == 0x3002 || cp == 0xff0c || cp == 0x3001 || cp == 0x964 || cp == 0x6d4 ||
	       cp == 0x60c || tok_class(cp) & TOK_SPACE;
}

static size_t bloom_run(const char *s, size_t n, size_t at)
{
	while (at < n) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		if (is_bloom_separator(cp))
			break;
		at += len;
	}
	return at;
}

/* BLOOM: ` ?[^(\s|[.,!?..])]+`; text between matches is one piece. */
static size_t scan_bloom(const char *s, size_t n)
{
	size_t from = s[0] == ' ', end = bloom_run(s, n, from);
	if (end > from)
		return end;
	for (size_t at = 0; at < n;) { /* text between matches is one part */
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		bool leads =
		        cp == ' ' && at + 1 < n && bloom_run(s, at + 5 < n ? at + 5 : n, at + 1) > at + 1;
		if (at && (!is_bloom_separator(cp) || leads))
			return at;
		at += len;
	}
	return n;
}

size_t tok_next_piece(const struct tfmc_tok_op *op, const char *s, size_t n, bool *is_part)
{
	*is_part = true;
	switch (op->kind) {
	case TFMC_TOK_SCAN_GPT2: return scan_gpt2(s, n);
	case TFMC_TOK_SCAN_WORDS: return scan_words(op, s, n);
	case TFMC_TOK_SCAN_CASED: return scan_cased(op, s, n);
	case TFMC_TOK_SCAN_CLIP: return scan_clip(s, n, is_part);
	case TFMC_TOK_SCAN_BLOOM: return scan_bloom(s, n);
	default: return n;
	}
}

/* ---- matches ---- */

static bool is_punctuation(uint32_t cp, unsigned c)
{
	return c & TOK_P || (cp > 32 && cp < 127 && !(c & (TOK_L | TOK_N)));
}

static bool matches_char(const struct tfmc_tok_op *op, uint32_t cp)
{
	unsigned c = tok_class(cp);
	switch (op->kind) {
	case TFMC_TOK_MATCH_SPACE:
	case TFMC_TOK_MATCH_SPACES: return c & TOK_SPACE;
	case TFMC_TOK_MATCH_PUNCTUATION: return is_punctuation(cp, c);
	case TFMC_TOK_MATCH_DIGIT:
	case TFMC_TOK_MATCH_NUMBERS: return c & TOK_N;
	case TFMC_TOK_MATCH_DECIMAL: return c & TOK_ND;
	case TFMC_TOK_MATCH_DIGITS3: return cp >= '0' && cp <= '9';
	case TFMC_TOK_MATCH_NEWLINE: return cp == '\r' || cp == '\n';
	default: return false;
	}
}

/* Minimum and maximum characters of a match. */
static void match_bounds(uint32_t kind, unsigned *min, unsigned *max)
{
	*min = kind == TFMC_TOK_MATCH_DIGITS3 ? 3 : 1;
	*max = kind == TFMC_TOK_MATCH_DIGITS3 || kind == TFMC_TOK_MATCH_NUMBERS ? 3
	       : kind == TFMC_TOK_MATCH_SPACES                                  ? UINT32_MAX
	                                                                        : 1;
}

uint32_t tok_byte_letter(unsigned char b)
{
	if ((b >= 33 && b <= 126) || (b >= 161 && b != 173))
		return b;
	return 256u + (b <= 32 ? b : b <= 160 ? b - 127u + 33u : 67u);
}

/* Reads the character at s, or its first byte as a GPT-2 letter. */
static size_t next_char(const struct tfmc_tok_op *op, const char *s, size_t n, uint32_t *cp)
{
	if (!(op->flags & TFMC_TOK_LETTERS))
		return tok_decode(s, n, cp);
	*cp = tok_byte_letter((unsigned char)s[0]);
	return 1;
}

/* Match of a run of characters, with the minimum and maximum of its kind. */
static size_t next_chars_match(const struct tfmc_tok_op *op, const char *s, size_t n, bool *is_match)
{
	unsigned min, max;
	size_t at = 0;
	match_bounds(op->kind, &min, &max);
	while (at < n) {
		size_t end = at, len = 0;
		unsigned count = 0;
		uint32_t cp;
		for (; end < n && count < max; end += len, count++) {
			len = next_char(op, s + end, n - end, &cp);
			if (!matches_char(op, cp))
				break;
		}
		if (count >= min) {
			*is_match = at == 0;
			return at ? at : end;
		}
		at = count ? end : end + len;
	}
	*is_match = false;
	return n;
}

/* \w+|[^\w\s]+ ; white space does not match. */
static size_t next_words_match(const char *s, size_t n, bool *is_match)
{
	uint32_t cp;
	size_t at = tok_decode(s, n, &cp), len;
	unsigned c = tok_class(cp);
	bool word = tok_is_word(cp), space = c & TOK_SPACE && !word;
	*is_match = !space;
	for (; at < n; at += len) {
		len = tok_decode(s + at, n - at, &cp);
		c = tok_class(cp);
		bool w = tok_is_word(cp);
		if (w != word || (c & TOK_SPACE && !w) != space)
			break;
	}
	return at;
}

size_t tok_next_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s, size_t n,
                      bool *is_match)
{
	if (op->kind == TFMC_TOK_SPLIT_WORDS)
		return next_words_match(s, n, is_match);
	if (op->kind != TFMC_TOK_MATCH_TEXT)
		return next_chars_match(op, s, n, is_match);
	const char *a = t->texts + op->a;
	for (size_t at = 0; n - at >= op->n_a; at++) {
		const char *hit = memchr(s + at, a[0], n - at - op->n_a + 1);
		if (!hit)
			break;
		at = (size_t)(hit - s);
		if (!memcmp(hit, a, op->n_a)) {
			*is_match = at == 0;
			return at ? at : op->n_a;
		}
	}
	*is_match = false;
	return n;
}
