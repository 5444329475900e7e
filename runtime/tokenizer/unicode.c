/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UTF-8, lower case, the four normalization forms (UAX 15), grapheme clusters. Normalization: decompose each
 * character by the tables, sort the marks after each starter by combining class, compose. Text that a form cannot
 * change is copied.
 *
 * Tables are generated (unicode_gen.c): a record for each character has its lower case, combining class (ccc, 0: a
 * starter), decompositions in tok_pool, and `inert`, the forms that never change it. An invalid byte is a character of
 * its own (TOK_INVALID | byte) and passes through unchanged.
 */
#include "runtime/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "ir/support/utf8.h"

#define O TOK_C
/* Indexed by utf8proc's category: none, Lu Ll Lt Lm Lo, Mn Mc Me, Nd Nl No, Pc Pd Ps Pe Pi Pf Po, Sm Sc Sk
 * So, Zs Zl Zp, Cc Cf Cs Co, then control characters that are white space. */
const uint16_t tok_class_masks[31] = {0,
                                      TOK_L | TOK_UPPER,
                                      TOK_L | TOK_LOWER,
                                      TOK_L | TOK_UPPER,
                                      TOK_L,
                                      TOK_L,
                                      TOK_M | TOK_MN,
                                      TOK_M,
                                      TOK_M,
                                      TOK_N | TOK_ND,
                                      TOK_N | TOK_NL,
                                      TOK_N,
                                      TOK_P | TOK_PC,
                                      TOK_P,
                                      TOK_P,
                                      TOK_P,
                                      TOK_P,
                                      TOK_P,
                                      TOK_P,
                                      0,
                                      0,
                                      0,
                                      0,
                                      TOK_SPACE,
                                      TOK_SPACE,
                                      TOK_SPACE,
                                      O,
                                      O,
                                      O,
                                      O,
                                      O | TOK_SPACE};

/* True for \w of the regex libraries: letters, marks, decimal and letter numbers, connectors, joiners, and circled
 * letters (Other_Alphabetic). */
bool tok_is_word(uint32_t cp)
{
	return tok_class(cp) & (TOK_L | TOK_M | TOK_ND | TOK_NL | TOK_PC) || cp == 0x200c || cp == 0x200d ||
	       (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
	       (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
}

/* ---- UTF-8 ---- */

size_t tok_decode_long(const unsigned char *s, size_t n, uint32_t *cp)
{
	size_t len = utf8_decode((const char *)s, n, cp);
	if (len)
		return len;
	*cp = TOK_INVALID | s[0];
	return 1;
}

/* Offset of the last character of s[0..n), n > 0: that of a valid character of 2 to 4 bytes, else of the last byte. */
size_t tok_last_char(const char *s, size_t n)
{
	uint32_t cp;
	for (size_t back = 2; back <= 4 && back <= n; back++)
		if (((unsigned char)s[n - back] & 0xc0) == 0xc0 &&
		    tok_decode(s + n - back, back, &cp) == back)
			return n - back;
	return n - 1;
}

/* limit 0: none. A text that would be longer fails (is_longer). */
void tok_append(struct tok_text *t, const char *bytes, size_t n)
{
	if (t->limit && n > t->limit - t->n) {
		t->failed = t->is_longer = true;
		return;
	}
	if (n > t->cap - t->n) {
		size_t cap = 2 * t->cap + n + 64;
		char *grown = cap > n ? realloc(t->data, cap) : NULL;
		if (!grown) {
			t->failed = true;
			return;
		}
		t->data = grown;
		t->cap = cap;
	}
	if (n)
		memcpy(t->data + t->n, bytes, n);
	t->n += n;
}

/* Appends a character as UTF-8; an invalid byte (TOK_INVALID) as it is. */
static void tok_put_char(struct tok_text *t, uint32_t cp)
{
	char s[4];
	if (cp & TOK_INVALID || cp < 0x80) {
		s[0] = (char)(cp & 0xff);
		tok_append(t, s, 1);
		return;
	}
	size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	for (size_t i = n; i-- > 1; cp >>= 6)
		s[i] = (char)(0x80 | (cp & 0x3f));
	s[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp);
	tok_append(t, s, n);
}

/* Lower case of characters by themselves, without context (final sigma) or language, as Rust's char::to_lowercase. */
void tok_append_lower(const char *s, size_t n, struct tok_text *out)
{
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		if (cp < 0x80) {
			char c = (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
			tok_append(out, &c, 1);
		} else {
			uint32_t lower = cp & TOK_INVALID ? 0 : tok_record(cp)->lower;
			tok_put_char(out, lower ? lower : cp);
			if (cp == 0x130) /* U+0130 becomes i and a combining dot above */
				tok_put_char(out, 0x307);
		}
		at += len;
	}
}

/* ---- normalization ---- */

#define HANGUL   0xac00u
#define HANGULS  11172u
#define LEADING  0x1100u
#define VOWEL    0x1161u
#define TRAILING 0x11a7u

/* Growing array of code points. */
struct code_points {
	uint32_t *items;
	size_t n, cap;
	bool failed;
};

/* Appends a code point; without memory it only sets `failed`, which the caller checks once at the end. */
static void push_code_point(struct code_points *c, uint32_t cp)
{
	if (c->n == c->cap) {
		size_t cap = 2 * c->cap + 64;
		uint32_t *grown = realloc(c->items, cap * sizeof(*grown));
		if (!grown) {
			c->failed = true;
			return;
		}
		c->items = grown;
		c->cap = cap;
	}
	c->items[c->n++] = cp;
}

static unsigned ccc_of(uint32_t cp)
{
	return cp & TOK_INVALID ? 0 : tok_record(cp)->ccc;
}

/* Appends the full decomposition of a character; Hangul syllables are computed: a leading consonant has 588 of them,
 * 21 vowels times 28 trailing consonants (or none). */
static void decompose(struct code_points *c, uint32_t cp, bool compat)
{
	if (cp & TOK_INVALID) {
		push_code_point(c, cp);
		return;
	}
	if (cp - HANGUL < HANGULS) {
		uint32_t i = cp - HANGUL;
		push_code_point(c, LEADING + i / 588);
		push_code_point(c, VOWEL + i % 588 / 28);
		if (i % 28)
			push_code_point(c, TRAILING + i % 28);
		return;
	}
	const struct tok_record *r = tok_record(cp);
	const uint32_t *seq = tok_pool + (compat ? r->compat : r->canon);
	unsigned n = compat ? r->n_compat : r->n_canon;
	for (unsigned i = 0; i < n; i++)
		push_code_point(c, seq[i]);
	if (!n)
		push_code_point(c, cp);
}

/* Sorts n marks by combining class, stable: insertion for short runs, counting for long ones, so that hostile text
 * costs no quadratic time. False: no memory. */
static bool sort_marks(uint32_t *code_points, size_t n)
{
	size_t starts[257] = {0};
	if (n < 32) {
		for (size_t i = 1; i < n; i++) {
			uint32_t cp = code_points[i];
			size_t k = i;
			for (; k > 0 && ccc_of(code_points[k - 1]) > ccc_of(cp); k--)
				code_points[k] = code_points[k - 1];
			code_points[k] = cp;
		}
		return true;
	}
	uint32_t *copy = malloc(n * sizeof(*copy));
	if (!copy)
		return false;
	memcpy(copy, code_points, n * sizeof(*copy));
	for (size_t i = 0; i < n; i++)
		starts[ccc_of(copy[i]) + 1]++;
	for (size_t i = 1; i < 257; i++)
		starts[i] += starts[i - 1];
	for (size_t i = 0; i < n; i++)
		code_points[starts[ccc_of(copy[i])]++] = copy[i];
	free(copy);
	return true;
}

/* Canonical ordering: sorts each run of combining marks. */
static void sort_all_marks(struct code_points *c)
{
	for (size_t at = 0; at < c->n;) {
		size_t end = at;
		while (end < c->n && ccc_of(c->items[end]))
			end++;
		if (end - at > 1 && !sort_marks(c->items + at, end - at))
			c->failed = true;
		at = end > at ? end : at + 1;
	}
}

/* Primary composite of two characters; 0: none. Hangul is computed: leading and vowel, then with a trailing consonant
 * (UAX 15); other pairs by binary search. */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
	if (a - LEADING < 19 && b - VOWEL < 21)
		return HANGUL + ((a - LEADING) * 21 + (b - VOWEL)) * 28;
	if (a - HANGUL < HANGULS && (a - HANGUL) % 28 == 0 && b - TRAILING - 1 < 27)
		return a + (b - TRAILING);
	size_t low = 0, high = tok_n_composes;
	while (low < high) {
		size_t mid = (low + high) / 2;
		const struct tok_compose *p = &tok_composes[mid];
		if (p->first < a || (p->first == a && p->second < b))
			low = mid + 1;
		else
			high = mid;
	}
	const struct tok_compose *p = &tok_composes[low];
	return low < tok_n_composes && p->first == a && p->second == b ? p->both : 0;
}

/* Canonical composition in place: a mark composes with the last starter unless a mark of the same or a higher class is
 * between; a starter only if nothing is between. inert & NFC: never the second of a pair. */
static void compose(struct code_points *c)
{
	size_t n = 0, starter = SIZE_MAX;
	unsigned last = 0; /* combining class of the last character kept after the starter */
	for (size_t i = 0; i < c->n; i++) {
		uint32_t cp = c->items[i];
		unsigned ccc = ccc_of(cp);
		bool is_next = starter != SIZE_MAX && n == starter + 1;
		bool open = starter != SIZE_MAX && (is_next || last < ccc) && (ccc || is_next);
		uint32_t composite = open && !(cp & TOK_INVALID) && !(tok_record(cp)->inert & TOK_NFC)
		                             ? compose_pair(c->items[starter], cp)
		                             : 0;
		if (composite) {
			c->items[starter] = composite;
			continue;
		}
		if (!ccc) {
			starter = n;
			last = 0;
		} else {
			last = ccc;
		}
		c->items[n++] = cp;
	}
	c->n = n;
}

/* True: the form changes no character of the text. */
static bool is_inert(enum tok_form form, const char *s, size_t n)
{
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		if (cp >= 0x80 && !(cp & TOK_INVALID) && !(tok_record(cp)->inert & (unsigned)form))
			return false;
		at += len;
	}
	return true;
}

/* All forms begin with the full decomposition and canonical order; NFC and NFKC then compose. */
void tok_append_normal_form(enum tok_form form, const char *s, size_t n, struct tok_text *out)
{
	struct code_points c = {0};
	if (is_inert(form, s, n)) {
		tok_append(out, s, n);
		return;
	}
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		at += tok_decode(s + at, n - at, &cp);
		decompose(&c, cp, form == TOK_NFKC || form == TOK_NFKD);
	}
	sort_all_marks(&c);
	if (form == TOK_NFC || form == TOK_NFKC)
		compose(&c);
	for (size_t i = 0; i < c.n; i++)
		tok_put_char(out, c.items[i]);
	out->failed = out->failed || c.failed;
	free(c.items);
}

/* ---- grapheme clusters ---- */

/*
 * Extended grapheme clusters (UAX 29), without the rule for Indic conjuncts (GB9c).
 */

/* Grapheme cluster break classes by their values in utf8proc, which the table contains. */
enum break_class {
	CR = 2,
	LF = 3,
	CONTROL = 4,
	EXTEND = 5,
	L = 6,
	V = 7,
	T = 8,
	LV = 9,
	LVT = 10,
	REGIONAL = 11,
	SPACING = 12,
	PREPEND = 13,
	ZWJ = 14,
	PICTOGRAPH = 19,
};

static unsigned break_class_of(uint32_t cp)
{
	if (cp >= 0x110000)
		return CONTROL; /* an invalid byte stands alone */
	return tok_bound_blocks[(uint32_t)tok_bound_index[cp >> 8] << 8 | (cp & 255)];
}

/* GB6 to GB8: no break inside of a Hangul syllable. */
static bool joins_hangul(unsigned a, unsigned b)
{
	if (a == L)
		return b == L || b == V || b == LV || b == LVT;
	if (a == LV || a == V)
		return b == V || b == T;
	return (a == LVT || a == T) && b == T;
}

/* Returns the length of the cluster that s begins with, by rules GB3 to GB13. */
size_t tok_grapheme(const char *s, size_t n)
{
	uint32_t cp;
	size_t at = tok_decode(s, n, &cp), len;
	unsigned before = break_class_of(cp), regionals = before == REGIONAL;
	bool pictograph = before == PICTOGRAPH; /* an emoji followed only by Extend and ZWJ: may join the
						   next emoji (GB11) */
	for (; at < n; at += len) {
		len = tok_decode(s + at, n - at, &cp);
		unsigned now = break_class_of(cp);
		bool ends = before == CR || before == LF || before == CONTROL || now == CR || now == LF ||
		            now == CONTROL;
		bool joins = now == EXTEND || now == ZWJ || now == SPACING || before == PREPEND ||
		             joins_hangul(before, now) ||
		             (before == REGIONAL && now == REGIONAL && regionals % 2) ||
		             (before == ZWJ && now == PICTOGRAPH && pictograph);
		if (before == CR && now == LF)
			return at + len;
		if (ends || !joins)
			return at;
		regionals += now == REGIONAL;
		pictograph = now == PICTOGRAPH || (pictograph && (now == EXTEND || now == ZWJ));
		before = now;
	}
	return at;
}
