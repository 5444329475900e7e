/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expansion of blocks to the graph level: each step appends statements and
 * leaves a new current value x. Scalars are evaluated here; statements hold
 * literals, dims and names of values. Only blocks_expand is called from
 * outside blocks*.c.
 *
 * INVARIANT: the shape of every value is known; parameter paths are patterns
 * that keep `{i}` for the index of each enclosing repeat.
 */
#ifndef TFMC_FRONTEND_STEPS_BLOCKS_H
#define TFMC_FRONTEND_STEPS_BLOCKS_H

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

bool blocks_expand(struct frontend_model *m);
/* Where inputs or outputs are wrong: reports what is wrong in the steps whatever these are. */
void blocks_check(struct frontend_model *m);

/* ---- private to blocks*.c ---- */

struct block_value {
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
struct block_scope {
	const struct block_scope *outer;
	const char *loop;
	struct value value;
	const struct definition *def;
	const struct yaml_node *args; /* mapping of the step; evaluated in `outer` */
};

struct function_call;

struct block_names {
	const char **items;
	size_t n, cap;
};

struct blocks {
	struct frontend_model *m;
	struct arena *arena;
	struct diag_context *cx;
	const struct block_scope *scope;
	const struct use_chain *chain;
	struct strmap values; /* name -> struct block_value * */
	struct block_value x;
	struct block_value start; /* the input of the stack */
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
	struct strmap graph_names;            /* what the statements of a top-level graph assign */
	const struct function_call *function; /* whose body is written out, or NULL (graph_function.c) */
	bool again;                           /* a further round of a shared repeat: paths are known */
	struct block_names temps;             /* live temporaries */
	size_t n_steps;
	bool noted; /* the uses that led to the error have been shown */
};

struct step {
	struct blocks *b;
	const struct schema_step *kind;
	const struct definition *def; /* of the model, whose name is the kind; NULL: a built-in kind */
	struct loc loc;
	const struct yaml_node *args; /* merged; a mapping */
	const char *path;             /* pattern of the step */
	const char *params;           /* pattern of its parameters */
	struct block_value in;
};

typedef bool step_handler(struct step *st);

/* blocks.c */
bool blocks_body(struct blocks *b, const struct yaml_node *steps);
/* Appends TARGET = value. */
bool assign(const struct step *st, const char *target, const struct expr *value);
/* How a statement reads the value. */
const struct expr *value_ref(struct blocks *b, const struct block_value *v, struct loc loc);
/* The name is the index of a repeat around. */
bool is_loop_index(const struct blocks *b, const char *name);
/* A free name; given back in reverse order. */
const char *temp_push(struct blocks *b, const char *stem);
void temp_pop(struct blocks *b, size_t n);
/* x has the type of `v`. */
void set_x(struct blocks *b, const struct block_value *v);
/* " [B, S, 8]" for messages. */
const char *shape_text(struct blocks *b, int rank, const struct ir_dim *const *dims);
const char *concrete(struct blocks *b, const char *pattern);
const char *path_join(struct blocks *b, const char *prefix, const char *id);
void mark_mixed(struct step *st, struct block_value *v);
/* The uses that led to the error, once. */
void use_notes(struct blocks *b);
bool step_error(const struct step *st, const char *key, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);

/* Runs the body of a definition of the model; the arguments are checked. */
bool use_definition(struct step *st, const struct definition *d);
bool check_use(struct step *st, const struct definition *d);
/* Kind and merged arguments of a step, their keys checked. */
bool read_step(struct blocks *b, const struct yaml_node *node, struct step *st);

/* check.c: after a step that failed no shape is known. What can be wrong without one is reported:
 * kinds, keys, and the types of arguments of the steps from `from` on and of those in their bodies. */
void blocks_check_rest(struct blocks *b, const struct yaml_node *steps, size_t from);

/* args.c */
const struct yaml_node *arg(const struct step *st, const char *key);
/* The value of an argument that is a number or a bool, by its row in schema.def (bind.c). */
bool arg_read(struct step *st, const char *key, struct value *out);
/* The activation that a word means: its own name, or that of which it is another one. */
const char *activation_name(const char *word);
/* A path from the root, `/a.b`, or from the body; without a node *out stays. */
bool path_of_node(const struct step *st, const struct yaml_node *node, const char *key, const char **out);
struct expr_env blocks_env(struct blocks *b, bool dims);
bool find_value(struct blocks *b, const struct yaml_node *name, struct block_value *out);
/* As find_value, where something else may be in its place; reports nothing. */
bool find_named(struct blocks *b, const struct yaml_node *name, struct block_value *out);
const struct yaml_node *merge_args(struct blocks *b, const struct schema_step *kind,
                                   const struct yaml_node *step, const struct yaml_node *value);
/* The type that x gets by statements; `before`: what it is ahead of them. */
bool probe_x(struct blocks *b, const struct block_value *before, const struct graph_body *body);
/* Statements read a saved value that depends on the tokens. */
bool values_grow(struct blocks *b, const struct graph_body *body);

step_handler step_residual, step_repeat, step_save, step_x, step_use, step_graph;

#endif
