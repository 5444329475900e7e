/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: sources, counts, suppression, and rendering as text: message, source line, and a caret with underline.
 * Columns of a source are code points, those of the screen terminal cells: tabs are expanded, control characters
 * escaped, wide characters take two cells. Long lines are clipped to a window around the caret.
 */
#include "ir/support/diag.h"

#include <stdio.h>
#include <string.h>

#include "ir/support/strmap.h"
#include "ir/support/utf8.h"

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

/* Numbers count from 1, since source 0 of a location is none. */
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

/* The error was reported before with the same code, location and message (compared by hash); else records it. Only
 * the first DIAG_REPORTED_MAX errors are recorded: those after them always count as new. */
static bool is_repeated(struct diag_context *cx, const struct diag *d)
{
	const uint32_t at[] = {(uint32_t)d->code, d->loc.source, d->loc.line, d->loc.col};
	uint64_t hash = hash_bytes64(HASH64_SEED, at, sizeof(at));
	/* 0 is an empty slot of cx->reported */
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
 * one. Fullness is tested before counting, so that the error that reaches the limit is shown. Remarks leave
 * drop_notes as it is. */
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
	} else if (d.severity != DIAG_NOTE)
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

/* Goes through emit_about, since emit needs a va_list. */
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

/* ---- rendering ---- */

#define TAB_CELLS    8
#define WINDOW_CELLS 100 /* drawn part of a source line */
#define MARGIN_CELLS 30  /* kept before the caret of a clipped line */

struct style {
	const char *error, *warning, *note, *remark, *bold, *caret, *off;
};

static const struct style plain_style = {"", "", "", "", "", "", ""};
static const struct style color_style = {"\x1b[1;31m", "\x1b[1;35m", "\x1b[1;36m", "\x1b[1;34m",
                                         "\x1b[1m",    "\x1b[1;32m", "\x1b[0m"};

/* Appends one character, escaped if it is a control character or invalid; `cell`: its position, for tabs. *taken:
 * its bytes in s. Returns its width in cells: that of an escape is its length, as it is ASCII. */
static unsigned put_char(struct buf *out, const char *s, size_t n, unsigned cell, size_t *taken)
{
	uint32_t cp = 0;
	size_t len = utf8_decode(s, n, &cp);
	size_t before = out->len;
	*taken = len == 0 ? 1 : len;
	if (len != 0 && cp == '\t') {
		buf_fill(out, ' ', TAB_CELLS - cell % TAB_CELLS);
	} else if (len == 0 || cp < 0x80) {
		if (len == 0 || utf8_is_control(cp))
			buf_printf(out, "\\x%02x", (unsigned)(unsigned char)s[0]);
		else
			buf_char(out, s[0]);
	} else if (utf8_is_control(cp)) {
		buf_printf(out, "\\u%04x", (unsigned)cp);
	} else {
		buf_bytes(out, s, len);
		return utf8_width(cp);
	}
	return (unsigned)(out->len - before);
}

/* Appends a message or name with all control characters escaped. Line ends and tabs are escaped by name: a message
 * is one line. */
static void put_safe(struct buf *out, const char *s)
{
	size_t n = strlen(s), taken;
	for (size_t at = 0; at < n; at += taken) {
		if (s[at] == '\n' || s[at] == '\t') {
			buf_str(out, s[at] == '\n' ? "\\n" : "\\t");
			taken = 1;
		} else {
			put_char(out, s + at, n - at, 0, &taken);
		}
	}
}

/* The source line without its line end; false if the source has no text or no such line. */
static bool find_line(const struct diag_context *cx, struct loc loc, const char **line, size_t *len)
{
	if (loc.source == 0 || loc.source > cx->n_sources || loc.line == 0)
		return false;
	const struct diag_source *s = &cx->sources[loc.source - 1];
	if (s->text == NULL)
		return false;
	const char *p = s->text, *end = s->text + s->len;
	for (uint32_t i = 1; i < loc.line; i++) {
		p = memchr(p, '\n', (size_t)(end - p));
		if (p == NULL)
			return false;
		p++;
	}
	*line = p;
	*len = utf8_line(p, end, &p);
	return true;
}

/* Cells [caret, caret_end) of the underlined code points. */
struct underline {
	unsigned caret, caret_end;
};

/* Converts the code points of `loc` to cells of the line, by rendering them to a scratch buffer. A column after the
 * end of the line puts the caret there; the underline has at least one cell. */
static struct underline find_underline(const char *line, size_t len, struct loc loc)
{
	struct underline l = {0, 0};
	struct buf scratch;
	unsigned cell = 0;
	uint64_t first = loc.col == 0 ? 1 : loc.col, last = first + (loc.len == 0 ? 1 : loc.len), col = 1;
	size_t taken;
	buf_init(&scratch);
	for (size_t at = 0; at < len && col < last; at += taken, col++) {
		buf_clear(&scratch);
		unsigned width = put_char(&scratch, line + at, len - at, cell, &taken);
		if (col < first)
			l.caret = cell + width;
		cell += width;
	}
	buf_destroy(&scratch);
	if (col <= first)
		l.caret = cell; /* at or after the end of the line */
	l.caret_end = cell > l.caret ? cell : l.caret + 1;
	return l;
}

/* Appends cells [from, from + WINDOW_CELLS) of the line. A character that is cut at `from` becomes blanks, so that
 * the caret stays in its column; `...` marks the cut end. */
static void put_window(struct buf *out, const char *line, size_t len, unsigned from)
{
	struct buf piece;
	unsigned cell = 0;
	size_t at = 0, taken;
	buf_init(&piece);
	for (; at < len && cell < from + WINDOW_CELLS; at += taken) {
		buf_clear(&piece);
		unsigned width = put_char(&piece, line + at, len - at, cell, &taken);
		if (cell >= from)
			buf_append(out, &piece);
		else if (cell + width > from)
			buf_fill(out, ' ', cell + width - from);
		cell += width;
	}
	if (at < len)
		buf_str(out, "...");
	buf_destroy(&piece);
}

/* Appends the source line and below it `^~~~` under `loc`. A long line is clipped so that the caret is visible: the
 * window begins MARGIN_CELLS before it, with `...` in front. */
static void put_source(struct buf *out, const char *line, size_t len, struct loc loc, const struct style *st)
{
	struct underline l = find_underline(line, len, loc);
	unsigned from = l.caret_end > WINDOW_CELLS && l.caret > MARGIN_CELLS ? l.caret - MARGIN_CELLS : 0;
	unsigned end = l.caret_end > from + WINDOW_CELLS ? from + WINDOW_CELLS : l.caret_end;
	const char *lead = from == 0 ? "" : "...";
	buf_printf(out, "%5u | %s", (unsigned)loc.line, lead);
	put_window(out, line, len, from);
	buf_str(out, "\n      | ");
	buf_fill(out, ' ', strlen(lead) + (l.caret - from));
	buf_str(out, st->caret);
	buf_char(out, '^');
	if (end > l.caret + 1)
		buf_fill(out, '~', end - l.caret - 1);
	buf_printf(out, "%s\n", st->off);
}

const char *diag_severity_name(enum diag_severity s)
{
	switch (s) {
	case DIAG_ERROR: return "error";
	case DIAG_WARNING: return "warning";
	case DIAG_NOTE: return "note";
	case DIAG_REMARK: return "remark";
	}
	return "";
}

static const char *severity_style(const struct style *st, enum diag_severity s)
{
	switch (s) {
	case DIAG_ERROR: return st->error;
	case DIAG_WARNING: return st->warning;
	case DIAG_NOTE: return st->note;
	case DIAG_REMARK: return st->remark;
	}
	return "";
}

/* The parts as in diag.h: location, severity, message, code; then the source line if it is known. Names and messages
 * quote input, so control characters in them are escaped. */
void diag_render(struct buf *out, const struct diag_context *cx, const struct diag *d, bool color)
{
	const struct style *st = color ? &color_style : &plain_style;
	const char *name = diag_source_name(cx, d->loc.source);
	const char *line;
	size_t len;
	if (name[0] != '\0') {
		buf_str(out, st->bold);
		put_safe(out, name);
		if (d->loc.line != 0)
			buf_printf(out, ":%u:%u", (unsigned)d->loc.line, (unsigned)d->loc.col);
		buf_printf(out, ": %s", st->off);
	}
	buf_printf(out, "%s%s: %s%s", severity_style(st, d->severity), diag_severity_name(d->severity),
	           st->off, st->bold);
	put_safe(out, d->message);
	buf_str(out, st->off);
	if (d->code != DIAG_NONE)
		buf_printf(out, " [E%d]", (int)d->code);
	buf_char(out, '\n');
	if (find_line(cx, d->loc, &line, &len))
		put_source(out, line, len, d->loc, st);
}

void diag_render_text(void *user, const struct diag_context *cx, const struct diag *d)
{
	diag_render(user, cx, d, false);
}
