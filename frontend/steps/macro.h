/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions whose bodies are statements: the step kinds of the prelude (frontend/presets/prelude.yaml) and those
 * a model defines. A body is closed against what its names mean: what is known when the model is compiled is
 * computed, the rest becomes statements of the graph level.
 *
 *   x = linear(in, "{path}.up", out=2 * dim)      a statement; a keyword whose value is null is left out
 *   {require: E, else: TEXT, code: C, at: KEY}    an error at the argument KEY (else at the step), {E} in TEXT
 *   {let: {name: E, ...}}                         names for values
 *   {if: E, then: [...], else: [...]}             one of two bodies
 *   {do: NAME, with: {name: E, ...}}              the body of another definition of the prelude
 *   {mixes: E}                                    true: the step does not treat each position alone
 *   {lengths: E}                                  real positions of the result; null: all. Default: those of `in`
 *   {below: E, of: E}                             ids of an input are less than this
 *   {known_path: E}                               a step has parameters at this path; null: nothing is said
 *   {at: KEY}                                     mistakes in the statements after it are reported at this argument
 *
 * `in` is the value the step begins with, `x` the current one, `start` the input of the stack, `path` where the
 * parameters lie, `kind_name` the kind. Functions: functions.c. The type of the result is that of `x` after the
 * statements.
 */
#ifndef TFMC_FRONTEND_STEPS_MACRO_H
#define TFMC_FRONTEND_STEPS_MACRO_H

#include "frontend/steps/steps.h"

/* What an expression of a body stands for. */
struct partial {
	bool known;                  /* v, else tree */
	bool word;                   /* v is a word of the language, written without quotes */
	struct value v;              /* VALUE_NONE: absent */
	const struct expr *tree;     /* of the graph level */
	const struct step_value *of; /* the value that it names, or NULL */
	size_t size;                 /* nodes of the tree where it is no name */
};

/* Nodes of a tree, elements of a list, bytes of a string; numbers that `each` counts in one step. */
#define PARTIAL_SIZE_MAX 65536

struct bindings {
	struct bindings *outer;
	struct strmap map; /* name -> struct item * */
};

struct macro {
	struct step *st;
	struct bindings *names;
	const struct definition *def; /* of the model; NULL: of the prelude */
	struct step_value before;     /* x at the start */
	struct partial lengths;       /* of the result */
	bool mixes;
	struct loc loc; /* where what is wrong with a statement of the prelude is said */
	size_t temps;
	size_t each_count; /* iterations of all `each` so far */
};

bool macro_expand(struct step *st, const struct definition *def, const struct yaml_node *body);

/* bind.c: the arguments of a kind that schema.def knows; `given` as in st->args. */
bool bind_arguments(struct macro *t, const char *where, const struct yaml_node *given, const char *prefix);
/* The arguments of a definition of the model. */
bool bind_definition(struct macro *t);
bool bind_name(struct macro *t, const char *name, const struct partial *item);
struct partial known_value(struct value v);
struct partial partial_of_value(struct macro *t, const struct step_value *v);

/* close.c */
bool partial_eval(struct macro *t, const struct expr *e, struct partial *out);
/* The same of a text of the body. */
bool partial_eval_node(struct macro *t, const struct yaml_node *node, struct partial *out);
bool partial_eval_bool(struct macro *t, const struct yaml_node *node, bool *out);
const struct partial *find_binding(const struct macro *t, const char *name);
/* False after a report: a body made more than PARTIAL_SIZE_MAX of something. */
bool check_partial_size(struct macro *t, size_t size);
const struct expr *partial_tree(struct macro *t, const struct partial *i, struct loc loc);
/* Where what the body says at `loc` is to be looked for. */
struct loc macro_loc(const struct macro *t, struct loc loc);
/* A message with every {E} replaced. */
const char *macro_message(struct macro *t, const char *text);

/* functions.c */
enum function_found { FUNCTION_NONE, FUNCTION_DONE, FUNCTION_FAILED };
/* A function of bodies alone: dim, rank, ... */
enum function_found macro_function(struct macro *t, const struct expr *e, struct partial *out);

#endif
