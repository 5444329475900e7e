/* SPDX-License-Identifier: Apache-2.0 */
/* The diagnostic context: sources, counts, suppression. Rendering is in diag_render.c. */
#include "ir/diag/diag.h"

#include <stdio.h>
#include <string.h>

#include "ir/support/strmap.h"

#define MAX_ERRORS_DEFAULT 20

void diag_init(struct diag_context *cx, diag_sink *sink, void *user)
{
	*cx = (struct diag_context){.sink = sink, .user = user, .max_errors = MAX_ERRORS_DEFAULT};
	arena_init(&cx->arena);
}

void diag_destroy(struct diag_context *cx)
{
	arena_destroy(&cx->arena);
	cx->sources = NULL;
	cx->n_sources = 0;
	cx->cap_sources = 0;
}

uint32_t diag_add_source(struct diag_context *cx, const char *name, const char *text, size_t len)
{
	const char *name_copy = arena_strdup(&cx->arena, name);
	const char *text_copy = text == NULL ? NULL : arena_strndup(&cx->arena, text, len);
	if (arena_failed(&cx->arena) || cx->n_sources >= UINT32_MAX)
		return 0;
	struct diag_source *s = arena_list_push(&cx->arena, (void **)&cx->sources, &cx->n_sources,
	                                        &cx->cap_sources, sizeof(*s));
	if (s == NULL)
		return 0;
	*s = (struct diag_source){name_copy, text_copy, text == NULL ? 0 : len};
	return (uint32_t)cx->n_sources;
}

uint32_t diag_find_source(const struct diag_context *cx, const char *name)
{
	for (size_t i = 0; i < cx->n_sources; i++) {
		if (strcmp(cx->sources[i].name, name) == 0)
			return (uint32_t)(i + 1);
	}
	return 0;
}

const char *diag_source_name(const struct diag_context *cx, uint32_t source)
{
	return source == 0 || source > cx->n_sources ? "" : cx->sources[source - 1].name;
}

/* The error was reported before with the same code, location and message; else records it, up to DIAG_REPORTED_MAX. */
static bool is_repeated(struct diag_context *cx, const struct diag *d)
{
	const uint32_t at[] = {(uint32_t)d->code, d->loc.source, d->loc.line, d->loc.col};
	uint64_t hash = hash_bytes64(HASH64_SEED, at, sizeof(at));
	hash = hash_bytes64(hash, d->message, strlen(d->message)) | 1;
	size_t i = 0;
	while (i < DIAG_REPORTED_MAX && cx->reported[i] != 0 && cx->reported[i] != hash)
		i++;
	if (i < DIAG_REPORTED_MAX && cx->reported[i] == hash)
		return true;
	if (i < DIAG_REPORTED_MAX)
		cx->reported[i] = hash;
	return false;
}

bool diag_is_full(const struct diag_context *cx)
{
	return cx->max_errors != 0 && cx->n_errors - cx->n_repeated >= cx->max_errors;
}

/* Counts the diagnostic and passes it to the sink, unless it is a repeated error or beyond the limit, or a note of
 * one. */
static void emit(struct diag_context *cx, struct diag d, const char *fmt, va_list ap)
{
	struct buf message;
	buf_init(&message);
	buf_vprintf(&message, fmt, ap);
	d.message = message.data;
	if (d.severity == DIAG_WARNING)
		cx->n_warnings++;
	if (d.severity == DIAG_ERROR) {
		bool was_full = diag_is_full(cx), repeated = is_repeated(cx, &d);
		cx->n_errors++;
		cx->n_repeated += repeated;
		cx->drop_notes = was_full || repeated;
	} else if (d.severity == DIAG_WARNING)
		cx->drop_notes = false;
	bool dropped = cx->drop_notes && (d.severity == DIAG_ERROR || d.severity == DIAG_NOTE);
	if (cx->sink != NULL && !dropped)
		cx->sink(cx->user, cx, &d);
	buf_destroy(&message);
}

void diag_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit(cx, (struct diag){DIAG_ERROR, code, loc, NULL, NULL}, fmt, ap);
	va_end(ap);
}

void diag_environment_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt,
                            ...)
{
	va_list ap;
	cx->n_environment++;
	va_start(ap, fmt);
	emit(cx, (struct diag){DIAG_ERROR, code, loc, NULL, NULL}, fmt, ap);
	va_end(ap);
}

void diag_warning(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
{
	enum diag_severity severity = cx->warnings_are_errors ? DIAG_ERROR : DIAG_WARNING;
	va_list ap;
	va_start(ap, fmt);
	emit(cx, (struct diag){severity, code, loc, NULL, NULL}, fmt, ap);
	va_end(ap);
}

void diag_note(struct diag_context *cx, struct loc loc, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit(cx, (struct diag){DIAG_NOTE, DIAG_NONE, loc, NULL, NULL}, fmt, ap);
	va_end(ap);
}

void diag_remark(struct diag_context *cx, struct loc loc, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit(cx, (struct diag){DIAG_REMARK, DIAG_NONE, loc, NULL, NULL}, fmt, ap);
	va_end(ap);
}

static void emit_about(struct diag_context *cx, struct diag d, const char *fmt, ...) TFMC_PRINTF(3, 4);

static void emit_about(struct diag_context *cx, struct diag d, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	emit(cx, d, fmt, ap);
	va_end(ap);
}

void diag_remark_about(struct diag_context *cx, struct loc loc, const struct diag_remark *about)
{
	const char *path = about->path, *function = about->function;
	char times[32] = "";
	if (about->count > 1)
		(void)snprintf(times, sizeof(times), ", %lld times", (long long)about->count);
	emit_about(cx, (struct diag){DIAG_REMARK, DIAG_NONE, loc, NULL, about}, "%s: %s%s%s%s%s%s%s",
	           about->pass, about->text, path != NULL ? ", in " : "", path != NULL ? path : "",
	           function != NULL ? " (@" : "", function != NULL ? function : "",
	           function != NULL ? ")" : "", times);
}
