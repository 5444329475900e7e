/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8: strict decoding (no overlong forms, surrogates, or values above U+10FFFF), terminal width, and splitting
 * into lines. */
#ifndef TFMC_IR_SUPPORT_UTF8_H
#define TFMC_IR_SUPPORT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the first code point; returns its bytes (1..4), 0 if it is invalid or n is 0. Reads no byte after one that
 * does not continue the code point, so n may be 4 for a zero-terminated string. Inline: the libraries of the runtime,
 * which do not link this module, decode with it too. */
static inline size_t utf8_decode(const char *s, size_t n, uint32_t *cp)
{
	if (n == 0)
		return 0;
	unsigned char c = (unsigned char)s[0];
	if (c < 0x80) {
		*cp = c;
		return 1;
	}
	size_t len = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
	if (c < 0xC2 || c > 0xF4 || n < len)
		return 0;
	uint32_t v = c & (0xFFu >> (len + 1));
	for (size_t i = 1; i < len; i++) {
		unsigned char t = (unsigned char)s[i];
		if ((t & 0xC0u) != 0x80u)
			return 0;
		v = v << 6 | (t & 0x3Fu);
	}
	bool overlong = (len == 3 && v < 0x800) || (len == 4 && v < 0x10000);
	if (overlong || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
		return 0;
	*cp = v;
	return len;
}
/* Offset of the first invalid byte; n if all is valid. */
size_t utf8_check(const char *s, size_t n);
/* Number of code points; an invalid byte counts as one. */
size_t utf8_count(const char *s, size_t n);
/* Control characters and bidirectional marks, which must not be sent to a terminal. */
bool utf8_is_control(uint32_t cp);
/* Columns on a terminal: 0 for combining marks, 2 for wide characters, else 1. */
unsigned utf8_width(uint32_t cp);

/* Length of the line at `text` without its line end (LF or CR LF). *next: begin of the next line; `end` after the
 * last. */
size_t utf8_line(const char *text, const char *end, const char **next);

#endif
