/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph level of the model language: statements over named values, and repeats of them. Steps expand to it,
 * `graph:` is written in it, `tfmc expand` prints it, lowering reads it.
 *
 * INVARIANT: statements are trees; graph_print is the only printer, and its text parses back to equal trees. In
 * the body of a repeat, strings and paths contain `{i}` for its index, or `{2*i+1}` for a linear function of it;
 * nothing else refers to the index.
 */
#ifndef TFMC_FRONTEND_SYNTAX_GRAPH_H
#define TFMC_FRONTEND_SYNTAX_GRAPH_H

#include "frontend/syntax/expr.h"
#include "ir/core/module.h"

enum graph_kind { GRAPH_STATEMENT, GRAPH_REPEAT };

/* Iterations that lowering requires to have different bodies (index-set splitting); shared by all copies of their
 * repeat. */
struct graph_split_points {
	/* [count]: the first iteration that may have the body of this one; NULL: all have one. */
	int64_t *like;
};

struct graph_node;

struct graph_body {
	struct graph_node **items;
	size_t n, cap;
};

struct graph_node {
	enum graph_kind kind;
	struct ir_loc loc; /* path: path pattern of the step, "decoder.layers.{i}.self.attention" */
	/* GRAPH_STATEMENT */
	const struct expr_statement *st;
	/* GRAPH_REPEAT */
	int64_t count, start;
	const char *as;
	bool is_part; /* of the iterations of a repeat: weight names have their range ("0_3") in place of the index */
	struct graph_body body;
	struct graph_split_points *split_points; /* never NULL */
};

/* Appends a node; NULL: no memory. */
struct graph_node *graph_push(struct arena *a, struct graph_body *body, enum graph_kind kind,
                              struct ir_loc loc);
bool graph_push_statement(struct arena *a, struct graph_body *body, struct ir_loc loc,
                          const struct expr_statement *st);
/* Appends the statement TARGETS = value; none: value is a call without results. False without memory or value. */
bool graph_push_assignment(struct arena *a, struct graph_body *body, struct ir_loc loc,
                           const char *const *targets, size_t n, const struct expr *value);

/* ---- expression trees (graph.c); NULL: no memory ---- */
/* An EX_NAME or EX_STRING. */
const struct expr *expr_make_leaf(struct arena *a, enum expr_kind kind, const char *text, struct loc loc);
/* The call NAME(args...) without keywords; the array args is copied. */
const struct expr *expr_make_call(struct arena *a, const char *name, struct loc loc,
                                  const struct expr *const *args, size_t n);

/* ---- comparison, rewriting (graph.c) ---- */
/* Structural equality; locations and parentheses are ignored. */
bool graph_equal(const struct graph_body *a, const struct graph_body *b);
/* Returns the replacement of a node; NULL: keep the node and map its children. */
typedef const struct expr *expr_map_fn(void *user, const struct expr *e);
/* Copy of the tree with nodes replaced; shares unchanged subtrees. */
const struct expr *expr_map(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user);
/* The same for the children of e only. */
const struct expr *expr_map_children(struct arena *a, const struct expr *e, expr_map_fn *fn, void *user);
/* factor * i + offset for the index i of a repeat. */
struct index_map {
	int64_t factor, offset;
};
/* Reads the text of a placeholder: NAME, 2*NAME, NAME+1 or 2*NAME+1; false: it has another form or name. */
bool index_map_read(const char *text, const char *name, struct index_map *out);
/* The map at i = value. Wraps: paths of hostile text name no weight. */
int64_t index_map_at(struct index_map map, int64_t value);
/* `pattern` with the index `name` replaced by the map of it: a number if the factor is 0. */
const char *substitute_index(struct arena *a, const char *pattern, const char *name, struct index_map by);
/* Whether a placeholder of the pattern reads the index. */
bool has_index(struct arena *a, const char *pattern, const char *name);
/* Appends to out a copy of body with the index replaced in strings and paths (substitute_index); false: no memory. */
bool graph_substitute(struct arena *a, const struct graph_body *body, const char *name, struct index_map by,
                      struct graph_body *out);
/* True if iteration i may have the body of iteration j < i. */
typedef bool graph_alike_fn(void *user, int64_t i, int64_t j);
/*
 * Length of the longest run from iteration `from` of `count` on in which each iteration is like the one a period
 * before, in whole periods, of which there are two or more: with the smallest period. Else 1, a single iteration.
 */
int64_t graph_longest_run(graph_alike_fn *alike, void *user, int64_t count, int64_t from, int64_t *period);
/*
 * Appends iterations [from, to) of a repeat, whole periods, as a repeat over periods; a single iteration is unrolled.
 * body: of each iteration, NULL: all have that of the repeat. With period 1 the index is that of the repeat, else the
 * body has iterations from + k at the indices period * i + start + from + k.
 */
bool graph_push_iterations(struct arena *a, const struct graph_node *repeat, const struct graph_body *body,
                           int64_t from, int64_t to, int64_t period, struct graph_body *out);
/* Appends body with every repeat split into runs of its split points; false: no memory. */
bool graph_split_repeats(struct arena *a, const struct graph_body *body, struct graph_body *out);
/* Number of statements; those of a repeat are counted once. */
size_t graph_count(const struct graph_body *body);
/* Returns the replacement of a placeholder; NULL keeps it. */
typedef const char *placeholder_fn(void *user, const char *name);
/* `text` with every {name} replaced by the result of fn; text itself if none is, and for NULL. */
const char *fill_placeholders(struct arena *a, const char *text, placeholder_fn *fn, void *user);
/* `pattern` with every {name} replaced by `with`. */
const char *replace_placeholder(struct arena *a, const char *pattern, const char *name, const char *with);

/* ---- liveness of names (liveness.c) ---- */
enum graph_use { GRAPH_UNUSED, GRAPH_READ, GRAPH_WRITTEN };
/* Whether the nodes from index `from` on read or write a name first. */
enum graph_use graph_first_use(const struct graph_body *body, size_t from, const char *name);
/* The names that a body assigns, each once, in order of first assignment. */
const char *const *graph_targets(struct arena *a, const struct graph_body *body, size_t *n);
/* Dead code elimination: a copy without statements that `outputs` do not need. Statements that call `effect`
 * (NULL: none) are always kept. */
struct graph_body graph_prune(struct arena *a, const struct graph_body *body, const char *const *outputs,
                              size_t n, const char *effect);

/* ---- printing (print.c) ---- */
void expr_print(struct buf *out, const struct ir_dims *dims, const struct expr *e);
/* Prints a body as YAML, one statement per line. */
void graph_print(struct buf *out, const struct ir_dims *dims, const struct graph_body *body, unsigned indent);

#endif
