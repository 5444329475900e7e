/* SPDX-License-Identifier: Apache-2.0 */
/* Strict UTF-8 decoding, and character widths as exact as a caret under a source line requires. */
#include "ir/support/utf8.h"

#include <string.h>

#include "ir/support/compiler.h"

size_t utf8_check(const char *s, size_t n)
{
	size_t at = 0;
	while (at < n) {
		uint32_t cp;
		size_t len = utf8_decode(s + at, n - at, &cp);
		if (len == 0)
			return at;
		at += len;
	}
	return n;
}

size_t utf8_count(const char *s, size_t n)
{
	size_t count = 0;
	for (size_t at = 0; at < n; count++) {
		uint32_t cp;
		size_t len = utf8_decode(s + at, n - at, &cp);
		at += len == 0 ? 1 : len;
	}
	return count;
}

/* C0, DEL, C1; marks and embeddings that change the direction of text; line and paragraph separators; the byte order
 * mark. */
bool utf8_is_control(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7F && cp <= 0x9F) || (cp >= 0x200E && cp <= 0x200F) ||
	       (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xFEFF;
}

struct range {
	uint32_t lo, hi;
};

/* True if a range [lo, hi] of r[n] contains cp. */
static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
	for (size_t i = 0; i < n; i++) {
		if (cp >= r[i].lo && cp <= r[i].hi)
			return true;
	}
	return false;
}

/* The common ranges of combining marks and of the East Asian Width property; all others have 1. */
unsigned utf8_width(uint32_t cp)
{
	static const struct range combining[] = {
	        {0x0300, 0x036F}, {0x064B, 0x065F}, {0x200B, 0x200D}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F},
	};
	static const struct range wide[] = {
	        {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xAC00, 0xD7A3},
	        {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
	        {0x1F300, 0x1F64F}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD},
	};
	if (in_ranges(combining, TFMC_COUNT(combining), cp))
		return 0;
	return in_ranges(wide, TFMC_COUNT(wide), cp) ? 2 : 1;
}

size_t utf8_line(const char *text, const char *end, const char **next)
{
	const char *feed = memchr(text, '\n', (size_t)(end - text)), *stop = feed ? feed : end;
	*next = feed ? feed + 1 : end;
	return (size_t)(stop - text) - (stop > text && stop[-1] == '\r');
}
