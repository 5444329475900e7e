/* SPDX-License-Identifier: Apache-2.0 */
/* Growable buffer. An empty one (cap 0) points to a constant "", which is never written or freed, so data is always a
 * string; memory is allocated with the first byte. A failed buffer keeps its bytes and ignores what is appended. */
#include "ir/support/buf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/memory.h"
#include "ir/support/number.h"
#include "ir/support/utf8.h"

static const char empty_text[1] = "";

void buf_init(struct buf *b)
{
	*b = (struct buf){.data = (char *)(uintptr_t)empty_text};
}

void buf_destroy(struct buf *b)
{
	if (b->cap != 0)
		memory_free(b->data);
	buf_init(b);
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	if (b->cap != 0)
		b->data[0] = '\0';
}

bool buf_failed(const struct buf *b)
{
	return b->failed;
}

/* Grows the capacity for n more bytes and the terminator, by doubling, so that appending is linear in time. False
 * without memory; then the buffer has failed. */
static bool reserve(struct buf *b, size_t n)
{
	size_t need, cap = b->cap == 0 ? 64 : b->cap;
	if (b->failed)
		return false;
	if (!checked_add_size(b->len, n, &need) || !checked_add_size(need, 1, &need)) {
		memory_failed(SIZE_MAX);
		b->failed = true;
		return false;
	}
	if (need <= b->cap)
		return true;
	while (cap < need && cap <= SIZE_MAX / 2)
		cap *= 2;
	if (cap < need)
		cap = need;
	char *p = memory_resize(b->cap == 0 ? NULL : b->data, b->cap, cap);
	if (p == NULL) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	b->data[b->len] = '\0';
	return true;
}

void buf_bytes(struct buf *b, const void *bytes, size_t n)
{
	if (n == 0 || !reserve(b, n))
		return;
	memcpy(b->data + b->len, bytes, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_append(struct buf *b, const struct buf *from)
{
	b->failed = b->failed || from->failed;
	buf_bytes(b, from->data, from->len);
}

void buf_str(struct buf *b, const char *s)
{
	buf_bytes(b, s, strlen(s));
}

void buf_char(struct buf *b, char c)
{
	buf_bytes(b, &c, 1);
}

void buf_fill(struct buf *b, char c, size_t n)
{
	if (n == 0 || !reserve(b, n))
		return;
	memset(b->data + b->len, c, n);
	b->len += n;
	b->data[b->len] = '\0';
}

/* Formats twice: the first time for the length. */
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	if (b->failed)
		return;
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (n < 0)
		b->failed = true;
	if (n <= 0 || !reserve(b, (size_t)n))
		return;
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

/* A word that does not fit begins a new line, except the first; at: the column so far. One blank between words. */
void buf_wrap(struct buf *b, const char *text, size_t at, size_t indent, size_t columns)
{
	for (const char *s = text; *s && *s != '\n'; s += *s == ' ') {
		size_t n = strcspn(s, " \n");
		bool begins = s == text;
		if (!begins && at + 1 + n > columns) {
			buf_char(b, '\n');
			buf_fill(b, ' ', indent);
			at = indent;
			begins = true;
		}
		buf_printf(b, "%s%.*s", begins ? "" : " ", (int)n, s);
		at += n + !begins;
		s += n;
	}
	buf_char(b, '\n');
}

void buf_f32(struct buf *b, float v)
{
	char text[NUMBER_TEXT_MAX];
	buf_bytes(b, text, number_print_f32(text, v));
}

void buf_f64(struct buf *b, double v)
{
	char text[NUMBER_TEXT_MAX];
	buf_bytes(b, text, number_print_f64(text, v));
}

/* Appends one character of a quoted string; returns its bytes in s. A byte of invalid UTF-8 is escaped alone, so
 * that the text is valid. */
static size_t quote_char(struct buf *b, const char *s, size_t n)
{
	uint32_t cp = 0;
	size_t len = utf8_decode(s, n, &cp);
	if (len == 0) {
		buf_printf(b, "\\x%02x", (unsigned)(unsigned char)s[0]);
		return 1;
	}
	if (len > 1) {
		buf_bytes(b, s, len);
		return len;
	}
	if (cp == '"' || cp == '\\') {
		buf_char(b, '\\');
		buf_char(b, (char)cp);
	} else if (cp == '\n') {
		buf_str(b, "\\n");
	} else if (cp == '\t') {
		buf_str(b, "\\t");
	} else if (cp < 0x20 || cp == 0x7F) {
		buf_printf(b, "\\x%02x", (unsigned)cp);
	} else {
		buf_char(b, (char)cp);
	}
	return 1;
}

void buf_quoted(struct buf *b, const char *s)
{
	size_t n = strlen(s);
	buf_char(b, '"');
	for (size_t at = 0; at < n;)
		at += quote_char(b, s + at, n - at);
	buf_char(b, '"');
}

/* A control character as JSON escape, of which \n and \t are short. */
static void json_escape(struct buf *out, uint32_t cp)
{
	if (cp == '\n')
		buf_str(out, "\\n");
	else if (cp == '\t')
		buf_str(out, "\\t");
	else
		buf_printf(out, "\\u%04x", (unsigned)cp);
}

/* Escapes what utf8_is_control names (JSON requires it below 0x20), as \u and four digits; code points above 0xffff
 * would not fit. */
void buf_json(struct buf *out, const char *text)
{
	size_t n = strlen(text), len;
	buf_char(out, '"');
	for (size_t at = 0; at < n; at += len) {
		uint32_t cp = 0;
		len = utf8_decode(text + at, n - at, &cp);
		if (!len || (cp <= 0xffff && utf8_is_control(cp))) {
			json_escape(out, len ? cp : 0xfffd);
			len = len ? len : 1;
			continue;
		}
		if (cp == '"' || cp == '\\')
			buf_char(out, '\\');
		buf_bytes(out, text + at, len);
	}
	buf_char(out, '"');
}

static void little_endian(struct buf *b, uint64_t v, size_t n)
{
	unsigned char bytes[8];
	for (size_t i = 0; i < n; i++)
		bytes[i] = (unsigned char)(v >> (8 * i));
	buf_bytes(b, bytes, n);
}

void buf_u32le(struct buf *b, uint32_t v)
{
	little_endian(b, v, 4);
}

void buf_u64le(struct buf *b, uint64_t v)
{
	little_endian(b, v, 8);
}
