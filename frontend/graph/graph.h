/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph level: statements over named values and repeats of them. Blocks
 * expand to this, `graph:` is this, `tfmc expand` prints it, lowering reads it.
 *
 * INVARIANT: statements are trees; graph_print alone makes text of them, which
 * parses back to equal trees. In a body that a repeat node owns, strings keep
 * `{i}` for its index; nothing else refers to the index.
 */
#ifndef TFMC_FRONTEND_GRAPH_GRAPH_H
#define TFMC_FRONTEND_GRAPH_GRAPH_H

#include "frontend/expr/expr.h"
#include "ir/core/module.h"

enum graph_kind { GRAPH_STATEMENT, GRAPH_REPEAT };

/* Where lowering wants to divide a repeat; one for all copies of its node. */
struct graph_split_points {
	bool *before; /* [count]: a repeat of its own begins with this round; NULL: none does */
};

struct graph_node;

struct graph_body {
	struct graph_node **items;
	size_t n, cap;
};

struct graph_node {
	enum graph_kind kind;
	struct ir_loc loc; /* path: pattern of the step, "decoder.layers.{i}.self.attention" */
	/* GRAPH_STATEMENT */
	const struct expr_statement *st; /* one or more targets */
	/* GRAPH_REPEAT */
	int64_t count, start;
	const char *as;
	const char *label; /* the index in weight names when the loop was split: "0_3"; NULL: none */
	struct graph_body body;
	struct graph_split_points *split_points; /* not NULL */
};

/* Appends; NULL when memory ran out. */
struct graph_node *graph_push(struct arena *a, struct graph_body *body, enum graph_kind kind,
                              struct ir_loc loc);
bool graph_push_statement(struct arena *a, struct graph_body *body, struct ir_loc loc,
                          const struct expr_statement *st);
/* Parses and appends a statement; false after a diagnostic. */
bool graph_push_text(struct arena *a, struct diag_context *cx, struct graph_body *body, struct ir_loc loc,
                     const char *text);

/* ---- trees (tree.c) ---- */
/* Locations and parentheses do not count. */
bool graph_equal(const struct graph_body *a, const struct graph_body *b);
/* What stands for a node of a tree; NULL: the node itself, with its children mapped. */
typedef const struct expr *expr_map_fn(void *user, const struct expr *e);
/* The tree with nodes replaced; shares what did not change. */
const struct expr *expr_map(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user);
/* The same, the root is left to the caller. */
const struct expr *expr_map_children(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user);
/* A copy in which `{name}` in strings and paths is replaced by `with`; false when memory ran out. */
bool graph_substitute(struct arena *a, const struct graph_body *body, const char *name, const char *with,
                      struct graph_body *out);
/* Rounds [from, to) of a repeat as a repeat with a label, a single one written out. */
bool graph_push_iterations(struct arena *a, const struct graph_node *repeat, int64_t from, int64_t to,
                           struct graph_body *out);
/* The body with every repeat divided at its cuts; false when memory ran out. */
bool graph_split_repeats(struct arena *a, const struct graph_body *body, struct graph_body *out);
/* Statements, those of repeats once. */
size_t graph_count(const struct graph_body *body);
/* `pattern` with every {name} replaced. */
const char *replace_placeholder(struct arena *a, const char *pattern, const char *name, const char *with);

/* ---- names (live.c) ---- */
enum graph_use { GRAPH_UNUSED, GRAPH_READ, GRAPH_WRITTEN };
/* What the nodes from `from` on do first with a name. */
enum graph_use graph_first_use(const struct graph_body *body, size_t from, const char *name);
/* Every name that a body assigns, in order, once. */
const char *const *graph_targets(struct arena *a, const struct graph_body *body, size_t *n);
/* Without the statements that `outputs` do not need; statements that call `effect` are always needed. */
struct graph_body graph_prune(struct arena *a, const struct graph_body *body, const char *const *outputs,
                              size_t n, const char *effect);

/* ---- text (text.c) ---- */
void expr_print(struct buf *out, const struct ir_dims *dims, const struct expr *e);
/* A whole body as YAML, one statement per line. */
void graph_print(struct buf *out, const struct ir_dims *dims, const struct graph_body *body, unsigned indent);

#endif
