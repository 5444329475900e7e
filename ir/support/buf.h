/* SPDX-License-Identifier: Apache-2.0 */
/* Growable string or byte buffer with a sticky failure flag. Always zero-terminated; the terminator is not counted. */
#ifndef TFMC_IR_SUPPORT_BUF_H
#define TFMC_IR_SUPPORT_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/compiler.h"

struct buf {
	char *data; /* never NULL after buf_init; zero-terminated */
	size_t len; /* bytes without the terminator */
	size_t cap;
	bool failed; /* sticky: no memory */
};

void buf_init(struct buf *b);
void buf_destroy(struct buf *b);
void buf_clear(struct buf *b);
bool buf_failed(const struct buf *b);

void buf_bytes(struct buf *b, const void *bytes, size_t n);
/* Appends another buffer; if that has failed, this one fails. */
void buf_append(struct buf *b, const struct buf *from);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_fill(struct buf *b, char c, size_t n);
void buf_printf(struct buf *b, const char *fmt, ...) TFMC_PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) TFMC_PRINTF(2, 0);
/* In a function with arguments after `fmt`: initializes b and formats them into it. */
#define BUF_FROM_ARGS(b, fmt)               \
	do {                                \
		va_list ap_;                \
		va_start(ap_, fmt);         \
		buf_init(b);                \
		buf_vprintf((b), fmt, ap_); \
		va_end(ap_);                \
	} while (0)
/* Word-wraps the first line of `text`, which begins at column `at`, to `columns`; continuation lines are indented.
 * Appends a newline. */
void buf_wrap(struct buf *b, const char *text, size_t at, size_t indent, size_t columns);
/* Shortest decimal that parses to the same bits (number.h). */
void buf_f32(struct buf *b, float v);
void buf_f64(struct buf *b, double v);
/* "s" with escapes \" \\ \n \t \xNN; valid UTF-8 is not escaped. */
void buf_quoted(struct buf *b, const char *s);
/* "text" as a JSON string; control characters are escaped, each byte of invalid UTF-8 becomes \ufffd. */
void buf_json(struct buf *b, const char *text);
/* Little-endian integers, for binary output. */
void buf_u32le(struct buf *b, uint32_t v);
void buf_u64le(struct buf *b, uint64_t v);

#endif
