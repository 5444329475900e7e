/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements that a user wrote, closed: indices and arguments of
 * definitions become literals, local names become free ones, strings keep
 * `{i}` for the index of an enclosing repeat.
 */
#ifndef TFMC_FRONTEND_STEPS_GRAPH_CLOSE_H
#define TFMC_FRONTEND_STEPS_GRAPH_CLOSE_H

#include "frontend/steps/blocks.h"

/* A top-level `graph`. */
bool graph_close_model(struct frontend_model *m);
/* The number that an argument of the function stands for whose body is written out, or NULL. */
const struct value *graph_function_value(const struct blocks *b, const char *name);
/* One statement of a body in graph mode (b->locals). */
bool graph_close_statement(struct blocks *b, const struct yaml_node *node);

/* ---- private to graph_close.c and graph_function.c ---- */

/* A call of a function while its body is written out. */
struct function_call {
	const struct definition *def;
	struct strmap trees;  /* argument or name of the body -> struct expr * at the place of use */
	struct strmap values; /* argument that is a number -> struct value * */
	const char **results; /* names of what it returns */
	size_t n_results;
};

/* `e` with the calls of functions written out before the statement. */
bool graph_inline(struct blocks *b, const struct expr *e, const struct expr **out);
/* Writes out a call of a function; the names of its results are temporaries. */
bool graph_call(struct blocks *b, const struct expr *call, const char *const **results, size_t *n);
/* An expression with the names of the present scope replaced. */
const struct expr *graph_close(struct blocks *b, const struct expr *e);
const struct expr *graph_name(struct blocks *b, const char *name, struct loc loc);
bool push_assignment(struct blocks *b, struct ir_loc loc, const char *target, const struct expr *value);
/* Text with every {name} replaced by what `fn` returns; NULL keeps it. */
typedef const char *placeholder_fn(void *user, const char *name);
const char *fill_placeholders(struct blocks *b, const char *text, placeholder_fn *fn, void *user);
/* A value inside a string. */
const char *value_in_string(struct blocks *b, const struct value *v);
/*
 * Adds the names that a list of statements and its repeats assign. False when one cannot be read, which is
 * reported to cx; the others are added all the same.
 */
bool graph_assigned(struct blocks *b, struct diag_context *cx, const struct yaml_node *list,
                    struct strmap *out);

#endif
