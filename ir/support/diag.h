/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: located messages, passed to a sink (callback), which prints them. Sources (YAML files, .tir texts) are
 * registered once; a location is a source, line, column and length.
 *
 * Style of messages: lower case, one line, no final period, in the user's terms, with both the found and the expected
 * value. A note belongs to the error before it. The renderer escapes control characters.
 */
#ifndef TFMC_IR_SUPPORT_DIAG_H
#define TFMC_IR_SUPPORT_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/compiler.h"

enum diag_code {
	DIAG_NONE = 0, /* notes */
#define DIAG(name, number) DIAG_##name = number,
#include "ir/support/diagnostics.def"
};

enum diag_severity { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE, DIAG_REMARK };
/* "error", "warning", "note", "remark". */
const char *diag_severity_name(enum diag_severity s);

/* A source location. line 0: the whole file; source 0: none. */
struct loc {
	uint32_t source; /* 1-based index into diag_context.sources */
	uint32_t line;   /* 1-based */
	uint32_t col;    /* 1-based, counted in Unicode code points */
	uint32_t len;    /* code points to underline; 0 = 1 */
};

#define LOC_NONE ((struct loc){0, 0, 0, 0})

#define DIAG_REPORTED_MAX 32

struct diag_source {
	const char *name; /* as shown */
	const char *text; /* may be NULL: no source line is drawn */
	size_t len;
};

/* An optimization remark of a pass; absent strings are NULL. */
struct diag_remark {
	const char *pass, *function, *path; /* path: of the block in the model */
	const char *text;
	int64_t count;  /* occurrences at this location; 0: one */
	bool is_missed; /* missed optimization, the text is the reason */
};

struct diag {
	enum diag_severity severity;
	enum diag_code code; /* DIAG_NONE for notes and remarks without code */
	struct loc loc;
	const char *message;             /* valid during the call of the sink */
	const struct diag_remark *about; /* remark of a pass, whose text is part of the message; else NULL */
};

struct diag_context;
/* Called for every diagnostic that is not suppressed. */
typedef void diag_sink(void *user, const struct diag_context *cx, const struct diag *d);

struct diag_context {
	struct arena arena; /* source names and texts */
	struct diag_source *sources;
	size_t n_sources, cap_sources;
	diag_sink *sink; /* may be NULL: only counted */
	void *user;
	size_t n_errors, n_warnings;
	size_t n_environment; /* errors of the environment (diag_environment_error), counted in n_errors too */
	size_t n_repeated; /* errors with code, location and message of an earlier one, counted in n_errors too */
	size_t max_errors;                    /* default 20; later errors are only counted */
	uint64_t reported[DIAG_REPORTED_MAX]; /* hashes of the first errors, to suppress repeated ones */
	bool drop_notes;                      /* the last error was suppressed */
	bool warnings_are_errors;
};

void diag_init(struct diag_context *cx, diag_sink *sink, void *user);
void diag_destroy(struct diag_context *cx);

/* Registers a source; copies name and text (NULL: no source lines are shown). Returns its number for struct loc; 0
 * without memory. */
uint32_t diag_add_source(struct diag_context *cx, const char *name, const char *text, size_t len);
/* The number of the source of that name, or 0. */
uint32_t diag_find_source(const struct diag_context *cx, const char *name);
const char *diag_source_name(const struct diag_context *cx, uint32_t source);

void diag_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
/* An error of the environment and not of the input: unreadable file, no memory, no device. The command then exits
 * with the code of such errors. */
void diag_environment_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt,
                            ...) TFMC_PRINTF(4, 5);
void diag_warning(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
/* max_errors is reached: further errors are only counted. */
bool diag_is_full(const struct diag_context *cx);
/* Belongs to the diagnostic before it, and is suppressed with it. */
void diag_note(struct diag_context *cx, struct loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
void diag_remark(struct diag_context *cx, struct loc loc, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* `pass: text, in path (@function)`. */
void diag_remark_about(struct diag_context *cx, struct loc loc, const struct diag_remark *about);

/*
 * A sink that renders text into a buf (user = struct buf *):
 *   model.yaml:14:10: error: d (768) is not a multiple of heads (10) [E108]
 *      14 |   heads: 10
 *         |          ^~
 */
diag_sink diag_render_text;
/* Appends the text of one diagnostic, like diag_render_text; color: with escape sequences of a terminal. */
void diag_render(struct buf *out, const struct diag_context *cx, const struct diag *d, bool color);

#endif
