/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers, applied one after the other between two buffers. Each is linear in its text.
 *
 * A normalizer (tok_op) has a kind, up to two strings a and b in t->texts, and flags. The character map is a double
 * array (Darts clone: a unit has the label in its low byte, an offset to its children, bit 8 for a value child) and a
 * pool of replacements.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* ---- precompiled character map of SentencePiece ---- */

/* Offset of the children of a unit (Darts-clone encoding): 22 bits, shifted by 8 if bit 9 is set. */
static uint32_t charsmap_offset(uint32_t replacement)
{
	return (replacement >> 10) << ((replacement & 512) >> 6);
}

/* Length of the longest (or shortest) key that s begins with, and its value, an offset of the replacement; 0: none.
 * Units come from a file: each index and label is checked. */
static size_t find_in_charsmap(const struct tfmc_tokenizer *t, const char *s, size_t n, bool shortest,
                               uint32_t *value)
{
	uint32_t node = charsmap_offset(t->chars.units[0]);
	size_t longest = 0;
	for (size_t i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)s[i];
		node ^= byte;
		if (!byte || node >= t->chars.n || (t->chars.units[node] & 0x800000ffu) != byte)
			break;
		uint32_t replacement = t->chars.units[node];
		node ^= charsmap_offset(replacement);
		if (node >= t->chars.n)
			break;
		if (replacement >> 8 & 1) {
			longest = i + 1;
			*value = t->chars.units[node] & 0x7fffffffu;
			if (shortest)
				break;
		}
	}
	return longest;
}

/* Output of a mapping; s[0 .. copied) is already copied or replaced. */
struct charsmap_output {
	const struct tfmc_tokenizer *t;
	const char *s;
	size_t copied;
	struct tok_text *out;
};

/* Copies s[copied .. at), then writes `text` in place of n bytes. */
static void replace_range(struct charsmap_output *m, size_t at, size_t n, const char *text)
{
	tok_append(m->out, m->s + m->copied, at - m->copied);
	tok_append(m->out, text, strlen(text)); /* open.c has checked that the last string of the map is
					        terminated */
	m->copied = at + n;
}

/* Replaces s[at .. at + n) by the string of the key that it begins with; false: no key. */
static bool map_range(struct charsmap_output *m, size_t at, size_t n)
{
	uint32_t value;
	if (!find_in_charsmap(m->t, m->s + at, n, true, &value) || value >= m->t->chars.n_texts)
		return false;
	replace_range(m, at, n, m->t->chars.texts + value);
	return true;
}

/* Maps the characters of s[at .. end) one by one; invalid bytes become U+FFFD. */
static void map_each_char(struct charsmap_output *m, size_t at, size_t end)
{
	for (size_t len; at < end; at += len) {
		uint32_t cp;
		len = tok_decode(m->s + at, end - at, &cp);
		if (!map_range(m, at, len) && cp & TOK_INVALID)
			replace_range(m, at, len, "\xef\xbf\xbd");
	}
}

/* Hugging Face's way of applying the map: graphemes of less than 6 bytes are looked up as a whole (by the shortest
 * key), the characters of others, or of those that are not in the map, one by one. */
static void map_graphemes(const struct tfmc_tokenizer *t, const char *s, size_t n, struct tok_text *out)
{
	struct charsmap_output m = {t, s, 0, out};
	for (size_t at = 0; at < n;) {
		/* Printable ASCII before printable ASCII is a grapheme. */
		bool plain = n - at > 1 && s[at] >= ' ' && s[at] < 127 && s[at + 1] >= ' ' && s[at + 1] < 127;
		size_t len = plain ? 1 : tok_grapheme(s + at, n - at);
		if (!(len < 6 && map_range(&m, at, len)) && !plain)
			map_each_char(&m, at, at + len);
		at += len;
	}
	tok_append(out, s + m.copied, n - m.copied);
}

/* ---- SentencePiece ---- */

/* A piece of the input and its replacement: a preserved token, a key of the map, a character, or a run of
 * characters that nothing begins with. */
struct replacement {
	size_t len, n;
	const char *text;
};

/* Next piece at s, n > 0: a preserved (user-defined) token, the longest key of the map, or characters. Without a map
 * all up to the next space or possible token is one piece: fewer steps. */
static struct replacement next_replacement(const struct tfmc_tokenizer *t, const char *s, size_t n)
{
	uint32_t value = 0, cp;
	bool may_stay = t->norm.n && t->norm.begins[(unsigned char)s[0]];
	size_t len = may_stay ? tok_trie_longest(&t->norm, s, n, &value) : 0;
	if (len)
		return (struct replacement){len, len, s};
	len = t->chars.units ? find_in_charsmap(t, s, n, false, &value) : 0;
	if (len && value < t->chars.n_texts)
		return (struct replacement){len, strlen(t->chars.texts + value), t->chars.texts + value};
	len = tok_decode(s, n, &cp);
	if (t->chars.units && cp & TOK_INVALID)
		return (struct replacement){len, 3, "\xef\xbf\xbd"};
	while (!t->chars.units && s[0] != ' ' && len < n && s[len] != ' ' &&
	       !(t->norm.n && t->norm.begins[(unsigned char)s[len]]))
		len++;
	return (struct replacement){len, len, s};
}

/* Appends text with spaces replaced by the mark. */
static void append_marked(const char *s, size_t n, const char *mark, size_t n_mark, struct tok_text *out)
{
	for (size_t at = 0; at < n;) {
		const char *space = memchr(s + at, ' ', n - at);
		size_t end = space ? (size_t)(space - s) : n;
		tok_append(out, s + at, end - at);
		if (space)
			tok_append(out, mark, n_mark);
		at = end + (space != NULL);
	}
}

/* Operation TFMC_TOK_SENTENCEPIECE: replacements, removal of spaces (flags 1: at both ends, and runs become one), word
 * marks, and one before the text (flags 2), in one pass. With removal a leading space is not yet the text's begin. */
static void normalize_sentencepiece(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op,
                                    const char *s, size_t n, struct tok_text *out)
{
	const char *mark = t->texts + op->a;
	bool strips = op->flags & 1, is_begun = false, was_blank = strips;
	for (size_t at = 0; at < n;) {
		struct replacement u = next_replacement(t, s + at, n - at);
		at += u.len;
		if (!is_begun && op->flags & 2 && !(strips && u.n == 1 && u.text[0] == ' ')) {
			tok_append(out, mark, op->n_a);
			is_begun = true;
		}
		while (was_blank && u.n && u.text[0] == ' ') {
			u.text++;
			u.n--;
		}
		append_marked(u.text, u.n, mark, op->n_a, out);
		was_blank = strips && (u.n ? u.text[u.n - 1] == ' ' : was_blank);
	}
	while (strips && out->n >= op->n_a && !memcmp(out->data + out->n - op->n_a, mark, op->n_a))
		out->n -= op->n_a;
}

/* ---- per-character changes ---- */

static bool is_cjk(uint32_t cp)
{
	return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
	       (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) ||
	       (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
	       (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

/* Change of one character: kept, removed, replaced by a space, surrounded by spaces. */
enum char_change { CHANGE_KEEP, CHANGE_DROP, CHANGE_SPACE, CHANGE_SURROUND };

/* BERT's cleaning: removes control characters, white space becomes a space. Tab and line ends are controls by
 * category, but white space here. */
static enum char_change bert_clean_change(uint32_t cp)
{
	unsigned c = tok_class(cp);
	if (cp == 0 || cp == 0xfffd)
		return CHANGE_DROP;
	if (c & TOK_SPACE)
		return c & TOK_C && cp != '\t' && cp != '\n' && cp != '\r' ? CHANGE_DROP : CHANGE_SPACE;
	return c & TOK_C ? CHANGE_DROP : CHANGE_KEEP;
}

/* SentencePiece's nmt rules: removes controls, unusual spaces become a space. */
static enum char_change nmt_change(uint32_t cp)
{
	if ((cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f || cp == 0x8f ||
	    cp == 0x9f)
		return CHANGE_DROP;
	if (cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
	    (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 || cp == 0xfeff ||
	    cp == 0xfffd)
		return CHANGE_SPACE;
	return CHANGE_KEEP;
}

static enum char_change char_change_of(const struct tfmc_tok_op *op, uint32_t cp)
{
	if (op->kind == TFMC_TOK_STRIP_MARKS)
		return tok_class(cp) & (op->flags ? TOK_MN : TOK_M) ? CHANGE_DROP : CHANGE_KEEP;
	if (op->kind == TFMC_TOK_BERT_CJK)
		return is_cjk(cp) ? CHANGE_SURROUND : CHANGE_KEEP;
	return op->kind == TFMC_TOK_NMT ? nmt_change(cp) : bert_clean_change(cp);
}

/* Copies text with the changes that the operation makes to single characters. */
static void change_chars(const struct tfmc_tok_op *op, const char *s, size_t n, struct tok_text *out)
{
	size_t copied = 0; /* begin of the input not yet copied */
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		/* printable ASCII never changes */
		enum char_change c = cp - 0x20 < 0x5f ? CHANGE_KEEP : char_change_of(op, cp);
		if (c != CHANGE_KEEP) {
			tok_append(out, s + copied, at - copied);
			if (c == CHANGE_SURROUND)
				tok_append(out, " ", 1);
			if (c == CHANGE_SURROUND)
				tok_append(out, s + at, len);
			if (c != CHANGE_DROP)
				tok_append(out, " ", 1);
			copied = at + len;
		}
		at += len;
	}
	tok_append(out, s + copied, n - copied);
}

/* ---- strings ---- */

/* Replaces every occurrence of a string, which is not empty (open.c). */
static void replace_string(const char *s, size_t n, const char *from, size_t n_from, const char *to,
                           size_t n_to, struct tok_text *out)
{
	size_t copied = 0, at = 0;
	while (n - at >= n_from) {
		const char *hit = memchr(s + at, from[0], n - at - n_from + 1);
		if (!hit)
			break;
		at = (size_t)(hit - s);
		if (memcmp(hit, from, n_from) != 0) {
			at++;
			continue;
		}
		tok_append(out, s + copied, at - copied);
		tok_append(out, to, n_to);
		at += n_from;
		copied = at;
	}
	tok_append(out, s + copied, n - copied);
}

/* Replaces runs of at least `min` spaces; min 0: of any white space. Shorter runs, and the text between, are copied. */
static void replace_blanks(const char *s, size_t n, uint32_t min, const char *to, size_t n_to,
                           struct tok_text *out)
{
	for (size_t at = 0; at < n;) {
		size_t end = at, count = 0;
		uint32_t cp;
		while (end < n) {
			size_t len = tok_decode(s + end, n - end, &cp);
			if (min ? cp != ' ' : !(tok_class(cp) & TOK_SPACE))
				break;
			end += len;
			count++;
		}
		if (count && count >= min)
			tok_append(out, to, n_to);
		else
			tok_append(out, s + at, end - at);
		at = end;
		size_t from = at;
		while (at < n) {
			size_t len = tok_decode(s + at, n - at, &cp);
			if (min ? cp == ' ' : tok_class(cp) & TOK_SPACE)
				break;
			at += len;
		}
		tok_append(out, s + from, at - from);
	}
}

/* Replaces every match of an automaton; tok_find_match() returns none that is empty, so each moves on. The sets belong
 * to this text and are freed with it. */
static void replace_matches(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                            size_t n, struct tok_text *out)
{
	struct tok_suffix_sets suffixes = {0};
	size_t copied = 0, at = 0, len;
	while ((at = tok_find_match(t, op, &suffixes, s, n, at, &len)) < n) {
		tok_append(out, s + copied, at - copied);
		tok_append(out, t->texts + op->b, op->n_b);
		at += len;
		copied = at;
	}
	tok_append(out, s + copied, n - copied);
	out->failed = out->failed || suffixes.failed;
	tok_suffix_sets_free(&suffixes);
}

/* Copies text without the white space at its ends: sides 1 left, 2 right. */
static void trim(const char *s, size_t n, uint32_t sides, struct tok_text *out)
{
	size_t from = 0;
	uint32_t cp;
	while (sides & 1 && from < n) {
		size_t len = tok_decode(s + from, n - from, &cp);
		if (!(tok_class(cp) & TOK_SPACE))
			break;
		from += len;
	}
	while (sides & 2 && n > from) {
		size_t last = tok_last_char(s + from, n - from);
		tok_decode(s + from + last, n - from - last, &cp);
		if (!(tok_class(cp) & TOK_SPACE))
			break;
		n = from + last;
	}
	tok_append(out, s + from, n - from);
}

/* Appends to `out`, which is empty, the text after one operation. Without a map CHARS changes nothing. */
static void apply_normalizer(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                             size_t n, struct tok_text *out)
{
	const char *a = t->texts + op->a, *b = t->texts + op->b;
	switch ((enum tfmc_tok_normalize)op->kind) {
	case TFMC_TOK_NFC: tok_append_normal_form(TOK_NFC, s, n, out); break;
	case TFMC_TOK_NFD: tok_append_normal_form(TOK_NFD, s, n, out); break;
	case TFMC_TOK_NFKC: tok_append_normal_form(TOK_NFKC, s, n, out); break;
	case TFMC_TOK_NFKD: tok_append_normal_form(TOK_NFKD, s, n, out); break;
	case TFMC_TOK_LOWER: tok_append_lower(s, n, out); break;
	case TFMC_TOK_REPLACE: replace_string(s, n, a, op->n_a, b, op->n_b, out); break;
	case TFMC_TOK_REPLACE_BLANKS: replace_blanks(s, n, op->flags, a, op->n_a, out); break;
	case TFMC_TOK_PREPEND:
		if (n)
			tok_append(out, a, op->n_a);
		tok_append(out, s, n);
		break;
	case TFMC_TOK_SENTENCEPIECE: normalize_sentencepiece(t, op, s, n, out); break;
	case TFMC_TOK_REPLACE_PATTERN: replace_matches(t, op, s, n, out); break;
	case TFMC_TOK_STRIP: trim(s, n, op->flags, out); break;
	case TFMC_TOK_CHARS:
		if (t->chars.units)
			map_graphemes(t, s, n, out);
		else
			tok_append(out, s, n);
		break;
	case TFMC_TOK_STRIP_MARKS:
	case TFMC_TOK_BERT_CLEAN:
	case TFMC_TOK_BERT_CJK:
	case TFMC_TOK_NMT: change_chars(op, s, n, out); break;
	case TFMC_TOK_N_NORMALIZE: break;
	}
}

/* Two buffers alternate, as an operation reads the output of the one before. Only the last output counts against the
 * limit of the run, which all segments share. Returns the text: s itself without normalizers, else a buffer until the
 * next call. */
const char *tok_normalize(struct tok_run *r, const char *s, size_t n, size_t *out_n)
{
	for (uint32_t i = 0; i < r->t->normalize.n; i++) {
		struct tok_text *out = &r->normal[i % 2];
		size_t limit = r->normal_limit;
		tok_begin_rewrite(out, limit);
		apply_normalizer(r->t, &r->t->normalize.items[i], s, n, out);
		tok_end_rewrite(r, out, i + 1 == r->t->normalize.n ? &r->normal_limit : &limit);
		s = out->data ? out->data : "";
		n = out->n;
	}
	*out_n = n;
	return s;
}
