/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expansion of steps to the graph level. Each step appends graph statements and
 * defines a new current value x. Scalar arguments are evaluated during the
 * expansion; statements contain only literals, dims and names of values.
 * frontend/load calls steps_expand and steps_check, the rest is private.
 *
 *   expand.c            traversal of stacks and steps: scopes, paths, outputs; checks after an error
 *   args.c              arguments of steps: scopes, defaults, values, paths
 *   compound.c          steps with bodies of steps: residual, repeat, use; save, x
 *   macro.c             steps whose bodies are statements: built-in kinds (prelude.yaml) and definitions of the model
 *   partial_eval.c      partial evaluation of expressions in macro bodies
 *   graph_statements.c  the step `graph`, whole graph models, inlining of functions
 *
 * INVARIANT: the type of every value is known; paths of parameters are patterns
 * that contain `{i}` for the index of each enclosing repeat.
 */
#ifndef TFMC_FRONTEND_LOWER_STEPS_H
#define TFMC_FRONTEND_LOWER_STEPS_H

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

/* Expands the section `model` or `graph` into m->graph and resolves the outputs. False after a report. */
bool steps_expand(struct frontend_model *m);
/* For models with invalid inputs or outputs: reports mistakes in steps that do not depend on them. */
void steps_check(struct frontend_model *m);

/* ---- private to frontend/lower ---- */

/* A named value and its inferred properties. */
struct step_value {
	const char *name;
	const char *cut; /* name of lengths; rows from there on read as 0 (mask_rows). NULL: no masking */
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
	const char *lengths;  /* value i32[B]: number of real positions of axis 1, or NULL */
	bool grows;           /* depends on the tokens of a generating model */
	struct loc mixed;     /* grows: the first step that mixed positions (not causal attention) */
	const char *mixed_by; /* its kind; NULL: none did */
	int input;            /* 1 + index of the input that it is, 0: not an input */
};

/* A loop index (def NULL) or the arguments of a use of a definition. */
struct step_scope {
	const struct step_scope *outer;
	const char *loop;             /* name of the index */
	struct value value;           /* value of the index */
	const struct definition *def; /* definition in use */
	const struct yaml_node *args; /* its arguments, a mapping; evaluated in `outer` */
};

struct macro;

struct temp_names {
	const char **items;
	size_t n, cap;
};

/* State of the expansion of a model. */
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
	struct lowering *types; /* statements so far, lowered to infer types; NULL: a top-level graph */
	const char *prefix;     /* path pattern of the body, "" at the root */
	const struct yaml_node *prelude; /* bodies of the built-in kinds */
	struct strmap parsed,
	        statements;   /* parsed texts of the prelude -> struct expr *, struct expr_statement * */
	struct strmap owned;  /* paths of steps that have parameters of their own, indices filled in */
	struct strmap paths;  /* paths of all steps with parameters, shared ones included */
	struct strmap ties;   /* tied paths -> struct loc *; checked at the end */
	struct strmap biased; /* paths of attention steps with their own table of relative biases */
	struct macro *graph; /* the graph or function whose statements are expanded; NULL: bodies are steps */
	struct strmap graph_names; /* names assigned by the statements of a top-level graph */
	bool paths_claimed;        /* a further iteration of a shared repeat: paths are claimed already */
	struct temp_names temps;   /* live temporaries, a stack */
	size_t n_steps;
	bool noted; /* the chain of uses that led to the error has been shown */
};

/* One step while it is expanded. */
struct step {
	struct expander *b;
	const struct schema_step *kind;
	const struct definition *def; /* definition of the model that is the kind; NULL: a built-in kind */
	struct loc loc;
	const struct yaml_node *args; /* a mapping, merged with defaults */
	const char *path;             /* path pattern of the step */
	const char *params;           /* path pattern of its parameters; differs from path with `share` */
	struct step_value in;         /* x, or the value named by `from` */
};

/* Expands one step; false after a report. */
typedef bool step_handler(struct step *st);
step_handler step_residual, step_repeat, step_save, step_x, step_use, step_graph;

/* Name of a graph value as an expression. */
const struct expr *name_tree(struct expander *b, const char *name, struct loc loc);
/* Expression that reads a value: its name, or mask_rows(name, lengths) when it has `cut`. */
const struct expr *value_ref(struct expander *b, const struct step_value *v, struct loc loc);
/* Appends the statement TARGET = value. */
bool push_assignment(struct expander *b, struct ir_loc loc, const char *target, const struct expr *value);
/* The same for a statement between steps, whose type is inferred at once (in a graph with its body). */
bool push_typed_assignment(struct expander *b, struct ir_loc loc, const char *target,
                           const struct expr *value);

/* ---- expand.c ---- */

/* Expands a list of steps; in a graph (b->graph) a list of statements. */
bool expand_body(struct expander *b, const struct yaml_node *steps);
/* Finds the kind of a step and merges its arguments; checks their keys. */
bool read_step(struct expander *b, const struct yaml_node *node, struct step *st);
/* Appends TARGET = value at the location and path of the step. */
bool push_value(const struct step *st, const char *target, const struct expr *value);
/* True if an enclosing repeat has an index of this name. */
bool is_loop_index(const struct expander *b, const char *name);
/* Allocates an unused name that begins with `stem`; names are released in reverse order. */
const char *temp_push(struct expander *b, const char *stem);
void temp_pop(struct expander *b, size_t n);
/* Gives x the type and properties of v. */
void set_x(struct expander *b, const struct step_value *v);
/* "[B, S, 8]", for messages. */
const char *shape_to_string(struct expander *b, int rank, const struct ir_dim *const *dims);
/* `pattern` with the current index of every enclosing repeat filled in. */
const char *fill_loop_indices(struct expander *b, const char *pattern);
/* prefix.id; only one of them if the other is empty. */
const char *path_join(struct expander *b, const char *prefix, const char *id);
/* Records that the step mixes positions of v, for the check of generating models. */
void mark_mixing(struct step *st, struct step_value *v);
/* Adds the chain of uses that led to an error as notes, once. */
void note_use_chain(struct expander *b);
/* Reports at the argument `key` (NULL: at the step); returns false. */
bool step_error(const struct step *st, const char *key, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);

/* ---- args.c ---- */

/* The YAML node of an argument, or NULL. */
const struct yaml_node *step_arg(const struct step *st, const char *key);
/* Arguments of a step: the value of its kind, the keys next to it, and `defaults` of the kind. NULL after a report. */
const struct yaml_node *merge_args(struct expander *b, const struct schema_step *kind,
                                   const struct yaml_node *step, const struct yaml_node *value);
/* The canonical name of an activation: "gelu_new" is "gelu_tanh". */
const char *activation_name(const char *word);
/* The path that node names: `/a.b` from the root, `a.b` below the prefix of the body. *out is unchanged without
 * node. */
bool path_of_node(const struct step *st, const struct yaml_node *node, const char *key, const char **out);
/* Environment for scalar expressions in the current scope; with `dims`, dims are allowed. */
struct expr_env step_env(struct expander *b, bool dims);
/* The value that a node names; false after a report. */
bool find_named_value(struct expander *b, const struct yaml_node *name, struct step_value *out);
/* find_named_value without reports, for arguments that need not be names; false: no value is called so. */
bool try_find_value(struct expander *b, const struct yaml_node *name, struct step_value *out);
/* The value of an int, float or bool argument or its default, by its row in schema.def (macro.c). */
bool step_arg_value(struct step *st, const char *key, struct value *out);

/* ---- compound.c ---- */

/* Appends x = `from`, if given, and gives x the type and properties of the step's input. */
bool start_from_input(struct step *st);
/* Expands the body of a definition of the model, whose arguments have been checked. */
bool use_definition(struct step *st, const struct definition *d);
/* Checks the arguments of a use against the signature. */
bool check_use(struct step *st, const struct definition *d);

/* ---- graph_statements.c ---- */

/* Expands a top-level `graph`. */
bool expand_graph_model(struct frontend_model *m);
/* Expands one statement of a graph or a function (b->graph). */
bool expand_graph_statement(struct expander *b, const struct yaml_node *node);
/* Infers the types of the values that the statements assign, and sets that of x. False after a report. */
bool infer_x_type(struct expander *b, const struct graph_body *body);
/* True if the statements read a saved value that depends on the tokens. */
bool reads_growing_value(struct expander *b, const struct graph_body *body);
/* Text of a value inside a string: strings without quotes. */
const char *value_in_string(struct expander *b, const struct value *v);

#endif
