/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics in the form of --diagnostics: text, one line each, JSON lines, or
 * one SARIF document. The sink of the command; text goes to a buffer that the
 * caller writes to stderr.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_DIAGNOSTICS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_DIAGNOSTICS_H

#include "frontend/driver/options/options.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/diag/diag.h"

struct diagnostics {
	struct arena *arena;
	enum message_word form;
	bool color, on_terminal;
	enum diag_code first_error;
	struct buf open; /* JSON: the diagnostic whose notes may follow; SARIF: all results so far */
	bool is_open;    /* its list of notes is not closed */
	size_t n_notes, n_results;
	struct {
		int *items; /* codes, in the order of their first result */
		size_t n, cap;
	} rules;
};

void diagnostics_init(struct diagnostics *s, struct arena *arena);
void diagnostics_destroy(struct diagnostics *s);
/* json and sarif: nothing else may be written to stderr. */
bool diagnostics_is_data(const struct diagnostics *s);

/* Appends to `log` what can be written by now. Notes belong to the diagnostic before them. */
void diagnostics_add(struct diagnostics *s, const struct diag_context *cx, const struct diag *m,
                     struct buf *log);
/* Forgets what was begun and is not complete: a diagnostic during which memory ran out. */
void diagnostics_restart(struct diagnostics *s);
/* What is left, and on a terminal the command that explains the first error; once, at the end. */
void diagnostics_finish(struct diagnostics *s, int exit_code, const char *version, struct buf *log);

/*
 * What a code means. The text is frontend/manual/reference/diagnostics.md, which is part of the program: a code is a
 * section of it, `## E108: title`, a paragraph, and examples in fences.
 */
struct explanation {
	const char *code, *title;
	const char *meaning; /* the paragraph */
	const char *text;    /* the paragraph and the examples */
};

/* `code` as E108, e108 or 108. False: there is none; *nearest is a code that is spelled nearly so, or NULL. */
bool explain_find(struct arena *a, const char *code, struct explanation *out, const char **nearest);
/* The section as it stands in the page. */
void explain_print(struct buf *out, const struct explanation *e);
/* How to read the examples; every code with its title. */
void explain_list(struct arena *a, struct buf *out);

/* "path" as a URI: file:// before an absolute one, all but letters, digits and -._~/ in percent. */
void diagnostics_json_uri(struct buf *out, const char *path);

#endif
