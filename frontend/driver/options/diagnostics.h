/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The diagnostic sink of the command, in the format of --diagnostics: text, short text, JSON Lines (one object a
 * line) or one SARIF 2.1.0 document. It appends to a buffer that the caller writes to stderr. Also the explanations
 * of diagnostic codes.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_DIAGNOSTICS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_DIAGNOSTICS_H

#include "frontend/driver/options/options.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/diag.h"

struct diagnostics {
	struct arena *arena;
	enum diagnostics_format_word format;
	bool color, on_terminal;
	enum diag_code first_error;
	struct buf open; /* JSON: the last object, whose notes may follow; SARIF: all results so far */
	bool is_open;    /* its array of notes is not closed yet */
	size_t n_notes, n_results;
	struct {
		int *items; /* codes, in the order of their first result: `ruleIndex` is the position */
		size_t n, cap;
	} rules;
};

void diagnostics_init(struct diagnostics *s, struct arena *arena);
void diagnostics_destroy(struct diagnostics *s);
/* JSON or SARIF: nothing else may be written to stderr. */
bool diagnostics_is_data(const struct diagnostics *s);

/* Appends to `log` as much as is complete. A note belongs to the diagnostic before it. */
void diagnostics_add(struct diagnostics *s, const struct diag_context *cx, const struct diag *m,
                     struct buf *log);
/* Drops an incomplete diagnostic, during which memory ran out. */
void diagnostics_restart(struct diagnostics *s);
/* Appends the remainder; on a terminal also the hint at `tfmc explain` for the first error. Once, at the end. */
void diagnostics_finish(struct diagnostics *s, int exit_code, const char *version, struct buf *log);

/*
 * The explanation of a code: its section of frontend/manual/reference/diagnostics.md, which is embedded in the program.
 * A section is `## E108: title`, a paragraph, and examples in fences.
 */
struct explanation {
	const char *code, *title;
	const char *meaning; /* the paragraph */
	const char *text;    /* the paragraph and the examples */
};

/* code: E108, e108 or 108. False: unknown; *nearest is then a similar code, or NULL. */
bool explain_find(struct arena *a, const char *code, struct explanation *out, const char **nearest);
/* Appends the section. */
void explain_print(struct buf *out, const struct explanation *e);
/* Appends how to read the examples, and every code with its title. */
void explain_list(struct arena *a, struct buf *out);
/* Prints the text form of the IR (ir/text.md). */
void explain_tir(struct buf *out);

/* Appends the path as a quoted URI: file:// before absolute paths, percent-encoded but for letters, digits and
 * -._~/. */
void diagnostics_json_uri(struct buf *out, const char *path);

#endif
