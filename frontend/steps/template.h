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
#ifndef TFMC_FRONTEND_STEPS_TEMPLATE_H
#define TFMC_FRONTEND_STEPS_TEMPLATE_H

#include "frontend/steps/blocks.h"

/* What an expression of a body stands for. */
struct item {
	bool known;                   /* v, else tree */
	bool word;                    /* v is a word of the language, written without quotes */
	struct value v;               /* VALUE_NONE: absent */
	const struct expr *tree;      /* of the graph level */
	const struct block_value *of; /* the value that it names, or NULL */
	size_t size;                  /* nodes of the tree where it is no name */
};

/* Nodes of a tree, elements of a list, bytes of a string; numbers that `each` counts in one step. */
#define ITEM_SIZE_MAX 65536

struct names {
	struct names *outer;
	struct strmap map; /* name -> struct item * */
};

struct template
{
	struct step *st;
	struct names *names;
	const struct definition *def; /* of the model; NULL: of the prelude */
	struct block_value before;    /* x at the start */
	struct item lengths;          /* of the result */
	bool mixes;
	struct loc loc; /* where what is wrong with a statement of the prelude is said */
	size_t temps;
	size_t turns; /* of `each` */
};

bool template_run(struct step *st, const struct definition *def, const struct yaml_node *body);

/* bind.c: the arguments of a kind that schema.def knows; `given` as in st->args. */
bool bind_arguments(struct template *t, const char *where, const struct yaml_node *given, const char *prefix);
/* The arguments of a definition of the model. */
bool bind_definition(struct template *t);
bool bind(struct template *t, const char *name, const struct item *item);
struct item item_value(struct value v);
struct item item_named(struct template *t, const struct block_value *v);

/* close.c */
bool item_close(struct template *t, const struct expr *e, struct item *out);
/* The same of a text of the body. */
bool item_read(struct template *t, const struct yaml_node *node, struct item *out);
bool item_bool(struct template *t, const struct yaml_node *node, bool *out);
const struct item *item_find(const struct template *t, const char *name);
/* False after a report: a body made more than ITEM_SIZE_MAX of something. */
bool item_fits(struct template *t, size_t size);
const struct expr *item_tree(struct template *t, const struct item *i, struct loc loc);
/* Where what the body says at `loc` is to be looked for. */
struct loc template_loc(const struct template *t, struct loc loc);
/* A message with every {E} replaced. */
const char *template_message(struct template *t, const char *text);

/* functions.c */
enum function_found { FUNCTION_NONE, FUNCTION_DONE, FUNCTION_FAILED };
/* A function of bodies alone: dim, rank, ... */
enum function_found template_function(struct template *t, const struct expr *e, struct item *out);

#endif
