/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Macro expansion of steps whose bodies are statements: the built-in kinds of
 * the prelude (frontend/presets/prelude.yaml) and definitions of a model. A body
 * is partially evaluated with respect to the arguments of the step: expressions
 * that are known at compile time are computed, the others become statements of
 * the graph level.
 *
 *   x = linear(in, "{path}.up", out=2 * dim)      a statement; a keyword argument whose value is null is left out
 *   {require: E, else: TEXT, code: C, at: KEY}    if E is false: an error at the argument KEY (default: the step), with
 *                                                 {E} in TEXT
 *   {let: {name: E, ...}}                         binds names
 *   {if: E, then: [...], else: [...]}             selects a body at compile time
 *   {do: NAME, with: {name: E, ...}}              expands another body of the prelude
 *   {mixes: E}                                    true: the step does not treat each position alone
 *   {lengths: E}                                  real lengths of the result; null: none. Default: those of `in`
 *   {below: E, of: E}                             ids of the input `of` are less than this
 *   {known_path: E}                               an error unless some step has parameters at this path; null: no check
 *   {at: KEY}                                     errors of the following statements are reported at this argument
 *
 * Implicit names: `in` is the input of the step, `x` the current value, `start` the input of the stack, `path` the path
 * of the parameters, `kind_name` the kind. The QUERY rows of syntax/calls.def are the functions of bodies. The type of
 * the result is the inferred type of `x` after the statements.
 *
 * Graphs and functions (graph_statements.c) are bodies of statements and repeats alone; their names stay as written.
 */
#ifndef TFMC_FRONTEND_LOWER_MACRO_H
#define TFMC_FRONTEND_LOWER_MACRO_H

#include "frontend/lower/steps.h"

/* Result of partial evaluation: a known value or a residual expression. */
struct partial {
	bool known;     /* v is valid, else tree */
	bool word;      /* v is a word of the language, printed without quotes */
	struct value v; /* VALUE_NONE: absent */
	const struct expr
	        *tree; /* residual expression of the graph level; of a known list the list, or NULL */
	const struct step_value *of; /* the value that tree names, whose type is known, or NULL */
	size_t size;                 /* nodes of tree, 0 for a name */
};

/* Limit for nodes of a tree, elements of a list, bytes of a string, and iterations of all `each` of a step: a body may
 * double a value repeatedly. */
#define PARTIAL_SIZE_MAX 65536

/* Names visible in a body. */
struct bindings {
	struct bindings *outer;
	struct strmap map; /* name -> struct partial * */
};

/* State of the expansion of one body of statements. */
struct macro {
	struct step *st;
	struct bindings *names;
	const struct definition *def; /* definition of the model, or NULL */
	bool is_prelude;              /* the body of a built-in kind: sees its own names only */
	bool is_graph;        /* a graph, or the body of a function: targets keep their names unless bound */
	const char **results; /* function: temporaries for the returned values */
	size_t n_results;
	struct step_value before; /* x before the first statement */
	struct partial lengths;   /* real lengths of the result */
	bool mixes;               /* the step mixes positions */
	struct loc loc;           /* where errors in statements of the prelude are reported */
	size_t temps;             /* temporaries to release at the end */
	size_t each_count;        /* iterations of all `each` so far */
};

/* Expands the body of st. def: the definition it belongs to; NULL: the built-in kind st->kind. False after a report. */
bool macro_expand(struct step *st, const struct definition *def, const struct yaml_node *body);
/* Evaluates a statement, written at node, partially and appends the residual statement. False after a report. */
bool macro_statement(struct macro *t, const struct yaml_node *node, const struct expr_statement *st);
/* The graph name that an assignment in the body writes: x itself, the value a name is bound to, else in a graph the
 * name, in other bodies a new temporary, which is bound to it. */
const char *target_name(struct macro *t, const char *name);
/* Binds a name in the innermost scope. */
bool bind_name(struct macro *t, const char *name, const struct partial *item);

/* ---- partial_eval.c ---- */

struct partial known_value(struct value v);
/* A value that exists at run time, read by value_ref. */
struct partial partial_of_value(struct macro *t, const struct step_value *v);
/* The binding of a name, innermost scope first; NULL: unbound. */
const struct partial *find_binding(const struct macro *t, const char *name);
/* Evaluates an expression of a body; false after a report. */
bool partial_eval(struct macro *t, const struct expr *e, struct partial *out);
/* Parses and evaluates a scalar of a body. */
bool partial_eval_node(struct macro *t, const struct yaml_node *node, struct partial *out);
/* Evaluates a scalar of a body that must be a known bool; false after a report. */
bool partial_eval_bool(struct macro *t, const struct yaml_node *node, bool *out);
/* The expression to write into a statement: a literal, a word, or the residual tree. */
const struct expr *partial_tree(struct macro *t, const struct partial *i, struct loc loc);
/* Location for errors: loc in definitions of the model, the step in bodies of the prelude, which users do not see. */
struct loc macro_loc(const struct macro *t, struct loc loc);
/* A message with every {E} replaced by its value. */
const char *macro_message(struct macro *t, const char *text);

/* ---- graph_statements.c ---- */

/* Inlines a call of a function of the model; its result must be one value. False after a report. */
bool inline_function(struct macro *t, const struct expr *call, struct partial *out);

#endif
