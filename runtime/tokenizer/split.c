/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splitters: each passes its parts to the next one, the last one passes words to the model. The split
 * behavior says how matches and the text between them are combined.
 */
#include "runtime/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

/* ---- automata ---- */

/*
 * Matching of regular expressions by deterministic automata: one walk over the characters finds the match at
 * a position. Walks that fail far beyond their match would make repeated matching quadratic (`\s+$`). So the
 * first walk that goes FAR beyond its match computes once, from the end of the text backwards, from which
 * states a match still follows at each position; later walks stop as soon as none does.
 */

#define MAX_OVERSHOOT  32u        /* bytes that a walk may go beyond its match */
#define NOT_FIRST_BYTE UINT16_MAX /* a position inside of a character */

/* Maximum number of distinct sets of states; few occur in practice. */
#define SETS_MAX  256u
#define SET_ALL   0u /* all states: used beyond SETS_MAX, prunes nothing */
#define SET_EMPTY 1u

/* Tables of a packed automaton, see format.h. */
struct automaton {
	uint32_t states, classes, ranges;
	const uint32_t *starts;
	const unsigned char *ascii, *of;
	const uint16_t *steps;
};

/* Size in bytes of an automaton; all arguments are below 2^16. */
static uint64_t automaton_bytes(uint64_t states, uint64_t classes, uint64_t ranges)
{
	return ((12 + 4 * ranges + 128 + ranges + 3) & ~UINT64_C(3)) + 2 * states * classes;
}

/* Pointers to the tables of a packed automaton. */
static struct automaton automaton_view(const char *a)
{
	const uint32_t *head = (const void *)a;
	struct automaton v = {head[0], head[1], head[2], head + 3, NULL, NULL, NULL};
	v.ascii = (const unsigned char *)(v.starts + v.ranges);
	v.of = v.ascii + 128;
	v.steps = (const void *)(a + automaton_bytes(0, 0, v.ranges));
	return v;
}

bool tok_automaton_is_valid(const char *a, uint64_t offset, uint64_t n)
{
	uint32_t head[3];
	if (offset % 4 || n < sizeof(head))
		return false;
	memcpy(head, a, sizeof(head));
	if (head[0] < 1 || head[0] >= TFMC_TOK_A_DEAD || head[1] < 2 || head[1] > 256 || head[2] < 1 ||
	    head[2] > 1u << 16 || automaton_bytes(head[0], head[1], head[2]) != n)
		return false;
	struct automaton v = automaton_view(a);
	bool ok = v.starts[0] == 0;
	for (uint32_t i = 1; ok && i < v.ranges; i++)
		ok = v.starts[i] > v.starts[i - 1];
	for (uint32_t i = 0; ok && i < 128 + v.ranges; i++)
		ok = v.ascii[i] < v.classes;
	for (uint64_t i = 0; ok && i < (uint64_t)v.states * v.classes; i++) {
		uint32_t to = v.steps[i] & TFMC_TOK_A_DEAD;
		ok = to < v.states || to == TFMC_TOK_A_DEAD;
	}
	return ok;
}

/* Class of a character: a table for ASCII, binary search over ranges. */
static uint32_t char_class(const struct automaton *v, uint32_t cp)
{
	uint32_t low = 0, high = v->ranges;
	if (cp < 128)
		return v->ascii[cp];
	while (high - low > 1) {
		uint32_t mid = (low + high) / 2;
		if (v->starts[mid] <= cp)
			low = mid;
		else
			high = mid;
	}
	return v->of[low];
}

/* The character by which byte-level vocabularies (GPT-2) write a byte. */
static uint32_t tok_byte_letter(unsigned char b)
{
	if ((b >= 33 && b <= 126) || (b >= 161 && b != 173))
		return b;
	return 256u + (b <= 32 ? b : b <= 160 ? b - 127u + 33u : 67u);
}

/* Class of the character at s, of the end of the text for n = 0. Returns its length. */
static size_t next_class(const struct automaton *v, uint32_t flags, const char *s, size_t n, uint32_t *class)
{
	uint32_t cp;
	size_t len = 1;
	if (n == 0) {
		*class = v->classes - 1;
		return 0;
	}
	if (flags & TFMC_TOK_LETTERS)
		cp = tok_byte_letter((unsigned char)s[0]);
	else
		len = tok_decode(s, n, &cp);
	*class = char_class(v, cp & TOK_INVALID ? 0x110000u : cp);
	return len;
}

/* ---- backward analysis ---- */

static uint64_t *set_at(const struct tok_suffix_sets *a, const struct automaton *v, size_t id)
{
	return a->sets + id * ((v->states + 63) / 64);
}

static bool set_contains(const struct tok_suffix_sets *a, const struct automaton *v, size_t id,
                         uint32_t state)
{
	return set_at(a, v, id)[state / 64] >> state % 64 & 1;
}

static bool alloc_sets(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	a->sets = calloc(SETS_MAX + 1, bytes); /* one more for the candidate set */
	a->before = calloc((size_t)SETS_MAX * v->classes, sizeof(*a->before));
	if (!a->sets || !a->before)
		return false;
	memset(set_at(a, v, SET_ALL), 0xff, bytes);
	a->n_sets = SET_EMPTY + 1;
	return true;
}

/* Index of the candidate set, which is at index n_sets: an equal one, a new one, or EVERY. */
static uint16_t intern_set(struct tok_suffix_sets *a, const struct automaton *v)
{
	size_t bytes = (v->states + 63) / 64 * sizeof(*a->sets);
	const uint64_t *candidate = set_at(a, v, a->n_sets);
	for (size_t id = 0; id < a->n_sets; id++)
		if (!memcmp(set_at(a, v, id), candidate, bytes))
			return (uint16_t)id;
	return a->n_sets == SETS_MAX ? SET_ALL : (uint16_t)a->n_sets++;
}

/* Set of states from which a match follows before a character of `class`, given the set `id` after the
 * character. */
static uint16_t predecessor_set(struct tok_suffix_sets *a, const struct automaton *v, uint16_t id,
                                uint32_t class)
{
	uint16_t *known = &a->before[id * v->classes + class];
	if (*known)
		return (uint16_t)(*known - 1);
	uint64_t *candidate = set_at(a, v, a->n_sets);
	memset(candidate, 0, (v->states + 63) / 64 * sizeof(*candidate));
	for (uint32_t state = 0; state < v->states; state++) {
		uint32_t next_class = v->steps[state * v->classes + class], to = next_class & TFMC_TOK_A_DEAD;
		if (next_class & TFMC_TOK_A_MATCH || (to != TFMC_TOK_A_DEAD && set_contains(a, v, id, to)))
			candidate[state / 64] |= UINT64_C(1) << state % 64;
	}
	a->n_steps += v->states;
	uint16_t found = intern_set(a, v);
	*known = (uint16_t)(found + 1);
	return found;
}

/* Computes the sets for all positions of s[from .. n). */
static bool analyze_suffixes(struct tok_suffix_sets *a, const struct automaton *v, uint32_t flags,
                             const char *s, size_t n, size_t from)
{
	uint32_t class;
	if (n >= a->cap) {
		uint16_t *grown = n < SIZE_MAX / 4 ? realloc(a->at, (n + 1) * sizeof(*grown)) : NULL;
		if (!grown)
			return false;
		a->at = grown;
		a->cap = n + 1;
	}
	if (!a->sets && !alloc_sets(a, v))
		return false;
	for (size_t at = from, end; at < n; at = end) {
		end = at + next_class(v, flags, s + at, n - at, &class);
		for (size_t i = at; i < end; i++)
			a->at[i] = i == at ? (uint16_t) class : NOT_FIRST_BYTE;
	}
	uint16_t id = a->at[n] = predecessor_set(a, v, SET_EMPTY, v->classes - 1);
	for (size_t at = n; at-- > from;)
		if (a->at[at] != NOT_FIRST_BYTE)
			a->at[at] = id = predecessor_set(a, v, id, a->at[at]);
	a->n_steps += 2 * (n - from);
	a->is_known = true;
	a->from = from;
	return true;
}

/* ---- matches ---- */

/* Length of the match that begins at s[at]; 0: none. */
static size_t match_length(const struct automaton *v, uint32_t flags, struct tok_suffix_sets *a,
                           const char *s, size_t n, size_t at)
{
	uint32_t state = 0, class;
	size_t match = at, from = at;
	for (;;) {
		if (!a->is_known && at - match > MAX_OVERSHOOT && !analyze_suffixes(a, v, flags, s, n, at)) {
			a->failed = true;
			break;
		}
		if (a->is_known && at >= a->from && !set_contains(a, v, a->at[at], state))
			break;
		size_t len = next_class(v, flags, s + at, n - at, &class);
		uint32_t to = v->steps[state * v->classes + class];
		match = to & TFMC_TOK_A_MATCH ? at : match;
		state = to & TFMC_TOK_A_DEAD;
		a->n_steps++;
		if (state == TFMC_TOK_A_DEAD || len == 0)
			break;
		at += len;
	}
	return match - from;
}

void tok_suffix_sets_free(struct tok_suffix_sets *a)
{
	free(a->at);
	free(a->sets);
	free(a->before);
}

size_t tok_find_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op,
                      struct tok_suffix_sets *suffixes, const char *s, size_t n, size_t at, size_t *len)
{
	struct automaton v = automaton_view(t->texts + op->a);
	uint32_t flags = op->kind == TFMC_TOK_MATCH_PATTERN ? op->flags : 0, class;
	for (*len = 0; at < n && !suffixes->failed;) {
		size_t width = next_class(&v, flags, s + at, n - at, &class);
		suffixes->n_steps++;
		if ((v.steps[class] & TFMC_TOK_A_DEAD) != TFMC_TOK_A_DEAD)
			*len = match_length(&v, flags, suffixes, s, n, at);
		if (*len)
			return at;
		at += width;
	}
	return n;
}

/* ---- expressions of byte-level models ---- */

/*
 * Splitters of byte-level models: regular expressions with ordered alternatives, written by hand. A call
 * reads what it returns and at most one character more, or the next calls return all that it has read:
 * scanning is linear.
 */

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

/* Length of the next piece of scanner `op` at s, n > 0. *is_part false: the piece is dropped. */
static size_t tok_next_piece(const struct tfmc_tok_op *op, const char *s, size_t n, bool *is_part)
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
	/* Minimum and maximum characters of a match. */
	min = op->kind == TFMC_TOK_MATCH_DIGITS3 ? 3 : 1;
	max = op->kind == TFMC_TOK_MATCH_DIGITS3 || op->kind == TFMC_TOK_MATCH_NUMBERS ? 3
	      : op->kind == TFMC_TOK_MATCH_SPACES                                      ? UINT32_MAX
	                                                                               : 1;
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

/* The same for splits by matches; *is_match: the piece is a match. */
static size_t tok_next_match(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                             size_t n, bool *is_match)
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

/* ---- splitters ---- */

/* A part of the text whose end is not yet known. */
struct part {
	struct tok_run *r;
	uint32_t next;
	const char *s;
	size_t from, to;
};

/* Passes the collected part to the next splitter. */
static void flush_part(struct part *p)
{
	if (p->to > p->from)
		tok_split(p->r, p->next, p->s + p->from, p->to - p->from);
	if (p->to)
		p->r->is_start = false;
	p->from = p->to;
}

/* Adds the piece [p->to, end), a match or the text between two. */
static void add_piece(struct part *p, size_t end, bool is_match, bool was_match, uint32_t behavior)
{
	switch ((enum tfmc_tok_behavior)behavior) {
	case TFMC_TOK_REMOVED:
		flush_part(p);
		p->to = end;
		if (is_match)
			p->from = end;
		break;
	case TFMC_TOK_ISOLATED:
		flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_WITH_PREVIOUS: /* a match belongs to the text before it */
		if (!is_match || was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_WITH_NEXT: /* a match belongs to the text after it */
		if (is_match || !was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_CONTIGUOUS:
		if (is_match != was_match)
			flush_part(p);
		p->to = end;
		break;
	case TFMC_TOK_N_BEHAVIORS: break;
	}
}

/* End of the match at `at`, or of the text before the next match; *match: length of a match that was found
 * in advance, kept for the next call. */
static size_t next_match(struct tok_run *r, const struct tfmc_tok_op *op, const char *s, size_t n, size_t at,
                         size_t *match, bool *is_match)
{
	struct tok_suffix_sets *suffixes = &r->suffixes[op - r->t->split.items];
	size_t len = *match, from = len ? at : tok_find_match(r->t, op, suffixes, s, n, at, &len);
	r->failed = r->failed || suffixes->failed;
	*is_match = from == at;
	*match = *is_match ? 0 : len;
	return *is_match ? at + len : from;
}

/* Splits by matches with a behavior. */
static void split_matches(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t next, const char *s,
                          size_t n)
{
	struct part p = {r, next, s, 0, 0};
	bool is_words = op->kind == TFMC_TOK_SPLIT_WORDS, was = false;
	uint32_t behavior = is_words ? TFMC_TOK_REMOVED : op->flags & TFMC_TOK_BEHAVIOR_MASK;
	bool invert = is_words || op->flags & TFMC_TOK_INVERT;
	r->suffixes[next - 1].is_known = false;
	for (size_t at = 0, match = 0; at < n && !r->failed;) {
		bool is_match;
		if (op->kind == TFMC_TOK_MATCH_PATTERN)
			at = next_match(r, op, s, n, at, &match, &is_match);
		else
			at += tok_next_match(r->t, op, s + at, n - at, &is_match);
		is_match = is_match != invert;
		add_piece(&p, at, is_match, was, behavior);
		was = is_match;
	}
	flush_part(&p);
}

/* Splits by a scanner. */
static void split_scan(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t next, const char *s,
                       size_t n)
{
	for (size_t at = 0; at < n && !r->failed;) {
		bool is_part;
		size_t len = tok_next_piece(op, s + at, n - at, &is_part);
		if (is_part)
			tok_split(r, next, s + at, len);
		r->is_start = false;
		at += len;
	}
}

static bool begins_with(const char *s, size_t n, const char *with, size_t n_with)
{
	return n >= n_with && !memcmp(s, with, n_with);
}

/* Replaces spaces by the mark, which may also be prepended. */
static void metaspace(struct tok_run *r, const struct tfmc_tok_op *op, uint32_t level, const char *s,
                      size_t n)
{
	struct tok_text *out = &r->level[level];
	const char *mark = r->t->texts + op->a;
	bool leads = op->flags == 2 || (op->flags == 1 && r->is_start);
	tok_begin_rewrite(out, r->level_limit);
	if (leads && !begins_with(s, n, " ", 1) && !begins_with(s, n, mark, op->n_a))
		tok_append(out, mark, op->n_a);
	for (size_t at = 0; at < n;) {
		const char *space = memchr(s + at, ' ', n - at);
		size_t end = space ? (size_t)(space - s) : n;
		tok_append(out, s + at, end - at);
		if (space)
			tok_append(out, mark, op->n_a);
		at = end + (space != NULL);
	}
	tok_end_rewrite(r, out, &r->level_limit);
	if (!r->failed && out->n)
		tok_split(r, level + 1, out->data, out->n);
}

/* Prepends a space unless the part begins with one. */
static void prefix_space(struct tok_run *r, uint32_t level, const char *s, size_t n)
{
	struct tok_text *out = &r->level[level];
	if (s[0] == ' ') {
		tok_split(r, level + 1, s, n);
		return;
	}
	tok_begin_rewrite(out, r->level_limit);
	tok_append(out, " ", 1);
	tok_append(out, s, n);
	tok_end_rewrite(r, out, &r->level_limit);
	if (!r->failed)
		tok_split(r, level + 1, out->data, out->n);
}

void tok_split(struct tok_run *r, uint32_t level, const char *s, size_t n)
{
	if (n == 0 || r->failed)
		return;
	if (level == r->t->split.n) {
		tok_word(r, s, n);
		return;
	}
	const struct tfmc_tok_op *op = &r->t->split.items[level];
	if (op->kind == TFMC_TOK_METASPACE)
		metaspace(r, op, level, s, n);
	else if (op->kind == TFMC_TOK_PREFIX_SPACE)
		prefix_space(r, level, s, n);
	else if (op->kind < TFMC_TOK_MATCH_TEXT)
		split_scan(r, op, level + 1, s, n);
	else
		split_matches(r, op, level + 1, s, n);
}
