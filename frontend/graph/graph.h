/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph level: statements over named values and repeats of them. Blocks
 * expand to this, `graph:` is this, `tfmc expand` prints it, lowering reads it.
 *
 * INVARIANT: a statement's tree is what its text parses to. In a body that a
 * repeat node owns, strings keep `{i}` for its index; nothing else refers to
 * the index.
 */
#ifndef TFMC_FRONTEND_GRAPH_GRAPH_H
#define TFMC_FRONTEND_GRAPH_GRAPH_H

#include "frontend/expr/expr.h"
#include "ir/core/module.h"

enum graph_kind { GRAPH_STATEMENT, GRAPH_REPEAT };

struct graph_node;

struct graph_body {
	struct graph_node **items;
	size_t n, cap;
};

struct graph_node {
	enum graph_kind kind;
	struct ir_loc loc; /* path: pattern of the step, "decoder.layers.{i}.self.attention" */
	/* GRAPH_STATEMENT */
	const char *text;
	const struct expr_statement *st; /* one or more targets */
	/* GRAPH_REPEAT */
	int64_t count, start;
	const char *as;
	const char *label; /* the index in weight names when the loop was split: "0_3"; NULL: none */
	struct graph_body body;
};

/* Appends; NULL when memory ran out. */
struct graph_node *graph_push(struct arena *a, struct graph_body *body, enum graph_kind kind,
                              struct ir_loc loc);
/* Parses and appends a statement; false after a diagnostic. */
bool graph_push_text(struct arena *a, struct diag_context *cx, struct graph_body *body, struct ir_loc loc,
                     const char *text);

/* True when both print the same (locations do not count). */
bool graph_equal(const struct graph_body *a, const struct graph_body *b);
/* A copy in which `{name}` in strings and paths is replaced by `with`. */
bool graph_substitute(struct arena *a, struct diag_context *cx, const struct graph_body *body,
                      const char *name, const char *with, struct graph_body *out);
/* `pattern` with every {name} replaced. */
const char *graph_fill(struct arena *a, const char *pattern, const char *name, const char *with);

/* ---- names (live.c) ---- */
bool expr_mentions(const struct expr *e, const char *name);
/* True when `e` or a part of it is a call of `name`. */
bool expr_calls(const struct expr *e, const char *name);
enum graph_use { GRAPH_UNUSED, GRAPH_READ, GRAPH_WRITTEN };
/* What the nodes from `from` on do first with a name. */
enum graph_use graph_first_use(const struct graph_body *body, size_t from, const char *name);
/* Every name that a body assigns, in order, once. */
const char *const *graph_targets(struct arena *a, const struct graph_body *body, size_t *n);
/* Without the statements that `outputs` do not need; statements that call `effect` are always needed. */
struct graph_body graph_prune(struct arena *a, const struct graph_body *body, const char *const *outputs,
                              size_t n, const char *effect);

/* ---- text (text.c) ---- */
/* Replacement of a name, or NULL to keep it. */
typedef const char *expr_rename(void *user, const char *name);
void expr_print(struct buf *out, const struct expr *e, expr_rename *rename, expr_rename *placeholder,
                void *user);
/* A whole body as YAML, one statement per line. */
void graph_print(struct buf *out, const struct graph_body *body, unsigned indent);

#endif
