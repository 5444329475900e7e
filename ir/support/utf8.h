/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8: strict decoding (no overlong forms, surrogates, or values above U+10FFFF), terminal width, and splitting
 * into lines. */
#ifndef TFMC_IR_SUPPORT_UTF8_H
#define TFMC_IR_SUPPORT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the first code point; returns its bytes (1..4), 0 if it is invalid or n is 0. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);
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
