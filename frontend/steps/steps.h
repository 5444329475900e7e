/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expansion of blocks to the graph level: each step appends statements and
 * leaves a new current value x. Scalars are evaluated here; statements hold
 * literals, dims and names of values. Only steps_expand is called from
 * outside blocks*.c.
 *
 * INVARIANT: the shape of every value is known; parameter paths are patterns
 * that keep `{i}` for the index of each enclosing repeat.
 */
#ifndef TFMC_FRONTEND_STEPS_STEPS_H
#define TFMC_FRONTEND_STEPS_STEPS_H

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

bool steps_expand(struct frontend_model *m);
/* Where inputs or outputs are wrong: reports what is wrong in the steps whatever these are. */
void steps_check(struct frontend_model *m);

/* ---- private to blocks*.c ---- */

struct step_value {
	const char *name;
	const char *cut; /* lengths: after them it is read as 0; NULL: as it is */
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
	const char *lengths; /* value i32[B]: real positions of axis 1, or NULL */
	bool grows;          /* depends on the tokens of a generating model */
	struct loc mixed;    /* grows: the first step that did not treat each position alone */
	const char *mixed_by;
	int input; /* 1 + index of the input that it is, 0: none */
};

/* A loop variable (def NULL) or the arguments of a use. */
struct step_scope {
	const struct step_scope *outer;
	const char *loop;
	struct value value;
	const struct definition *def;
	const struct yaml_node *args; /* mapping of the step; evaluated in `outer` */
};

struct inlined_call;

struct temp_names {
	const char **items;
	size_t n, cap;
};

struct expander {
	struct frontend_model *m;
	struct arena *arena;
	struct diag_context *cx;
	const struct step_scope *scope;
	const struct use_chain *chain;
	struct strmap values; /* name -> struct step_value * */
	struct step_value x;
	struct step_value start; /* the input of the stack */
	bool has_x;
	struct graph_body *out;
	const char *prefix; /* path pattern of the body, "" at the root */
	const struct yaml_node *prelude;
	struct strmap parsed, statements; /* its texts -> struct expr *, struct expr_statement * */
	struct strmap owned;              /* concrete paths with parameters */
	struct strmap paths;              /* concrete paths of all parameters' steps */
	struct strmap ties;               /* concrete tied paths -> struct loc * */
	struct strmap biased;  /* concrete paths of attention with a table of relative biases of its own */
	struct strmap *locals; /* not NULL: bodies are graph statements; their names -> trees at level 3 */
	struct strmap graph_names;           /* what the statements of a top-level graph assign */
	const struct inlined_call *function; /* whose body is written out, or NULL (graph_function.c) */
	bool again;                          /* a further round of a shared repeat: paths are known */
	struct temp_names temps;             /* live temporaries */
	size_t n_steps;
	bool noted; /* the uses that led to the error have been shown */
};

struct step {
	struct expander *b;
	const struct schema_step *kind;
	const struct definition *def; /* of the model, whose name is the kind; NULL: a built-in kind */
	struct loc loc;
	const struct yaml_node *args; /* merged; a mapping */
	const char *path;             /* pattern of the step */
	const char *params;           /* pattern of its parameters */
	struct step_value in;
};

typedef bool step_handler(struct step *st);

/* blocks.c */
bool expand_body(struct expander *b, const struct yaml_node *steps);
/* Appends TARGET = value. */
bool push_value(const struct step *st, const char *target, const struct expr *value);
/* How a statement reads the value. */
const struct expr *value_ref(struct expander *b, const struct step_value *v, struct loc loc);
/* The name is the index of a repeat around. */
bool is_loop_index(const struct expander *b, const char *name);
/* A free name; given back in reverse order. */
const char *temp_push(struct expander *b, const char *stem);
void temp_pop(struct expander *b, size_t n);
/* x has the type of `v`. */
void set_x(struct expander *b, const struct step_value *v);
/* " [B, S, 8]" for messages. */
const char *shape_text(struct expander *b, int rank, const struct ir_dim *const *dims);
const char *fill_loop_indices(struct expander *b, const char *pattern);
const char *path_join(struct expander *b, const char *prefix, const char *id);
void mark_mixing(struct step *st, struct step_value *v);
/* The uses that led to the error, once. */
void note_use_chain(struct expander *b);
bool step_error(const struct step *st, const char *key, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);

/* Runs the body of a definition of the model; the arguments are checked. */
bool use_definition(struct step *st, const struct definition *d);
bool check_use(struct step *st, const struct definition *d);
/* Kind and merged arguments of a step, their keys checked. */
bool read_step(struct expander *b, const struct yaml_node *node, struct step *st);

/* check.c: after a step that failed no shape is known. What can be wrong without one is reported:
 * kinds, keys, and the types of arguments of the steps from `from` on and of those in their bodies. */
void steps_check_rest(struct expander *b, const struct yaml_node *steps, size_t from);

/* args.c */
const struct yaml_node *step_arg(const struct step *st, const char *key);
/* The value of an argument that is a number or a bool, by its row in schema.def (bind.c). */
bool step_arg_value(struct step *st, const char *key, struct value *out);
/* The activation that a word means: its own name, or that of which it is another one. */
const char *activation_name(const char *word);
/* A path from the root, `/a.b`, or from the body; without a node *out stays. */
bool path_of_node(const struct step *st, const struct yaml_node *node, const char *key, const char **out);
struct expr_env step_env(struct expander *b, bool dims);
bool find_named_value(struct expander *b, const struct yaml_node *name, struct step_value *out);
/* As find_value, where something else may be in its place; reports nothing. */
bool try_find_value(struct expander *b, const struct yaml_node *name, struct step_value *out);
const struct yaml_node *merge_args(struct expander *b, const struct schema_step *kind,
                                   const struct yaml_node *step, const struct yaml_node *value);
/* The type that x gets by statements; `before`: what it is ahead of them. */
bool infer_x_type(struct expander *b, const struct step_value *before, const struct graph_body *body);
/* Statements read a saved value that depends on the tokens. */
bool reads_growing_value(struct expander *b, const struct graph_body *body);

step_handler step_residual, step_repeat, step_save, step_x, step_use, step_graph;

/* A top-level `graph`. */
bool expand_graph_model(struct frontend_model *m);
/* The number that an argument of the function stands for whose body is written out, or NULL. */
const struct value *inlined_argument_value(const struct expander *b, const char *name);
/* One statement of a body in graph mode (b->locals). */
bool expand_graph_statement(struct expander *b, const struct yaml_node *node);

/* ---- private to substitute_names.c and graph_function.c ---- */

/* A call of a function while its body is written out. */
struct inlined_call {
	const struct definition *def;
	struct strmap trees;  /* argument or name of the body -> struct expr * at the place of use */
	struct strmap values; /* argument that is a number -> struct value * */
	const char **results; /* names of what it returns */
	size_t n_results;
};

/* `e` with the calls of functions written out before the statement. */
bool inline_calls(struct expander *b, const struct expr *e, const struct expr **out);
/* Writes out a call of a function; the names of its results are temporaries. */
bool inline_call(struct expander *b, const struct expr *call, const char *const **results, size_t *n);
/* An expression with the names of the present scope replaced. */
const struct expr *substitute_names(struct expander *b, const struct expr *e);
const struct expr *graph_name(struct expander *b, const char *name, struct loc loc);
bool push_assignment(struct expander *b, struct ir_loc loc, const char *target, const struct expr *value);
/* Text with every {name} replaced by what `fn` returns; NULL keeps it. */
typedef const char *placeholder_fn(void *user, const char *name);
const char *fill_placeholders(struct expander *b, const char *text, placeholder_fn *fn, void *user);
/* A value inside a string. */
const char *value_in_string(struct expander *b, const struct value *v);
/*
 * Adds the names that a list of statements and its repeats assign. False when one cannot be read, which is
 * reported to cx; the others are added all the same.
 */
bool collect_assigned(struct expander *b, struct diag_context *cx, const struct yaml_node *list,
                      struct strmap *out);

#endif
