/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended grapheme clusters (UAX 29), without the rule for Indic conjuncts (GB9c).
 */
#include "runtime/tokenizer/unicode.h"

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
