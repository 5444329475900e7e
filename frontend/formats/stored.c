/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a file, in the words that all formats have. */
#include "frontend/formats/stored.h"

#include <stdarg.h>

#include "ir/support/buf.h"

static bool report(const struct stored_source *s, const char *where, const char *fmt, va_list ap)
{
	struct buf text;
	buf_init(&text);
	buf_vprintf(&text, fmt, ap);
	diag_error(s->cx, s->loc, DIAG_WEIGHT_FILE, "'%s'%s: %s", s->name, where, text.data);
	buf_destroy(&text);
	return false;
}

bool stored_bad(const struct stored_source *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	report(s, "", fmt, ap);
	va_end(ap);
	return false;
}

bool stored_bad_item(const struct stored_source *s, const char *kind, const char *item, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	report(s, arena_printf(s->arena, ": %s '%.200s'", kind, item), fmt, ap);
	va_end(ap);
	return false;
}

bool stored_bad_byte(const struct stored_source *s, size_t at, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	report(s, arena_printf(s->arena, ": at byte %zu", at), fmt, ap);
	va_end(ap);
	return false;
}
