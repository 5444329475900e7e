/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing text or byte buffer with a sticky failure flag. The bytes are always
 * followed by a zero byte that is not counted. Owned memory; buf_destroy frees.
 */
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
/* All of another one; its failure is one of this one. */
void buf_append(struct buf *b, const struct buf *from);
void buf_str(struct buf *b, const char *s);
void buf_char(struct buf *b, char c);
void buf_fill(struct buf *b, char c, size_t n);
void buf_printf(struct buf *b, const char *fmt, ...) TFMC_PRINTF(2, 3);
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) TFMC_PRINTF(2, 0);
/*
 * The first line of `text`, from column `at` on, in lines of at most `columns` that end at blanks; further ones are
 * indented. Ends with a newline.
 */
void buf_wrap(struct buf *b, const char *text, size_t at, size_t indent, size_t columns);
/* Shortest decimal that reads back to the same bits (number.h). */
void buf_f32(struct buf *b, float v);
void buf_f64(struct buf *b, double v);
/* "text" with \" \\ \n \t \xNN escapes, and bytes above 0x7f kept when they are valid UTF-8. */
void buf_quoted(struct buf *b, const char *s);
/* "text" as JSON: ASCII controls and DEL escaped, each byte that is not part of valid UTF-8 is \ufffd. */
void buf_json(struct buf *b, const char *text);
/* Little-endian integers, for binary output. */
void buf_u32le(struct buf *b, uint32_t v);
void buf_u64le(struct buf *b, uint64_t v);

#endif
