/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: located messages that go to an explicit sink. Sources (YAML
 * files, .tir texts) are registered once; a location names a source, a line, a
 * column and a length. Nothing is printed here: the sink decides.
 *
 * Messages: lower case, no final period, one line, the user's words, both
 * values. A note is attached to the error before it. Control characters in
 * messages are escaped by the renderer.
 */
#ifndef TFMC_IR_DIAG_DIAG_H
#define TFMC_IR_DIAG_DIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/compiler.h"

enum diag_code {
	DIAG_NONE = 0, /* notes */
#define DIAG(name, number) DIAG_##name = number,
#include "ir/diag/diagnostics.def"
};

enum diag_severity { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE, DIAG_REMARK };

/* A place in a source text. line 0: the whole file; source 0: no place at all. */
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

/* What a remark of a pass is about; text that is absent is NULL. */
struct diag_remark {
	const char *pass, *function, *path; /* path: of the block in the model */
	const char *text;
	int64_t count;  /* how many times at this place; 0: once */
	bool is_missed; /* something was not done, the text says why */
};

struct diag {
	enum diag_severity severity;
	enum diag_code code; /* DIAG_NONE for notes and remarks without code */
	struct loc loc;
	const char *message; /* valid during the call of the sink */
	const struct diag_remark
	        *about; /* of remarks of passes, else NULL; its words are part of the message */
};

struct diag_context;
/* Called once for every diagnostic that is not suppressed by the limit. */
typedef void diag_sink(void *user, const struct diag_context *cx, const struct diag *d);

struct diag_context {
	struct arena arena; /* source names and texts */
	struct diag_source *sources;
	size_t n_sources, cap_sources;
	diag_sink *sink; /* may be NULL: only counted */
	void *user;
	size_t n_errors, n_warnings;
	size_t n_environment; /* of the errors: not the input's fault (diag_environment_error) */
	size_t n_repeated;    /* of the errors: told before, at the same place in the same words */
	size_t max_errors;    /* default 20; later errors are only counted */
	uint64_t told[DIAG_REPORTED_MAX]; /* hashes of the first errors: an error is told once */
	bool drop_notes;                  /* the error before was suppressed */
	bool warnings_are_errors;
};

void diag_init(struct diag_context *cx, diag_sink *sink, void *user);
void diag_destroy(struct diag_context *cx);

/* Registers a source; copies name and text. Returns its number for struct loc (0 when memory ran out). */
uint32_t diag_add_source(struct diag_context *cx, const char *name, const char *text, size_t len);
/* The number of a registered source of that name, else 0. */
uint32_t diag_find_source(const struct diag_context *cx, const char *name);
const char *diag_source_name(const struct diag_context *cx, uint32_t source);

void diag_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
/* An error of the system that was asked, not of the input: a file that cannot be read, no memory, no device.
 * However the stages go on, the command ends with the exit code of such errors. */
void diag_environment_error(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt,
                            ...) TFMC_PRINTF(4, 5);
void diag_warning(struct diag_context *cx, struct loc loc, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
/* Whether a further error would only be counted. */
bool diag_is_full(const struct diag_context *cx);
/* Attached to the diagnostic before it, and suppressed with it. */
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
void diag_render(struct buf *out, const struct diag_context *cx, const struct diag *d, bool color);

#endif
