/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expansion of blocks to the graph level: each step appends statements and
 * leaves a new current value x. Scalars are evaluated here; statements hold
 * literals, dims and names of values. Only blocks_expand is called from
 * outside of blocks*.c.
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
	const char *name; /* an expression that yields it */
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
	const char *prefix;    /* path pattern of the body, "" at the root */
	struct strmap owned;   /* concrete paths with parameters */
	struct strmap paths;   /* concrete paths of all parameters' steps */
	struct strmap ties;    /* concrete tied paths -> struct loc * */
	struct strmap *locals; /* not NULL: bodies are graph statements; their names -> names at level 3 */
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
	struct loc loc;
	const struct yaml_node *args; /* merged; a mapping */
	const char *path;             /* pattern of the step */
	const char *params;           /* pattern of its parameters */
	struct block_value in;
};

typedef bool step_handler(struct step *st);

/* blocks.c */
bool blocks_body(struct blocks *b, const struct yaml_node *steps);
bool emit(const struct step *st, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* A free name; given back in reverse order. */
const char *temp_push(struct blocks *b, const char *stem);
void temp_pop(struct blocks *b, size_t n);
/* " [B, S, 8]" for messages. */
const char *shape_text(struct blocks *b, int rank, const struct ir_dim *const *dims);
const char *dim_text(struct blocks *b, const struct ir_dim *d);
const char *float_text(struct blocks *b, double v);
static inline const char *bool_text(bool v)
{
	return v ? "true" : "false";
}
const char *concrete(struct blocks *b, const char *pattern);
const char *path_join(struct blocks *b, const char *prefix, const char *id);
void mark_mixed(struct step *st, struct block_value *v);
bool step_error(const struct step *st, const char *key, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);

/* Kind and merged arguments of a step, their keys checked. */
bool read_step(struct blocks *b, const struct yaml_node *node, struct step *st);

/* check.c: behind a step that failed no shape is known. What can be wrong without one is reported:
 * kinds, keys, and the types of arguments of the steps from `from` on and of those in their bodies. */
void blocks_check_rest(struct blocks *b, const struct yaml_node *steps, size_t from);

/* args.c: absent keys take the schema's default; without one the result is left alone */
const struct yaml_node *arg(const struct step *st, const char *key);
bool arg_int(const struct step *st, const char *key, int64_t lo, int64_t *out);
bool arg_float(const struct step *st, const char *key, double *out);
bool arg_bool(const struct step *st, const char *key, bool *out);
bool arg_word(const struct step *st, const char *key, const char **out);
bool arg_act(const struct step *st, const char *key, const char **out); /* aliases resolved */
bool arg_value(const struct step *st, const char *key, struct block_value *out);
bool arg_path(const struct step *st, const char *key, const char **out);
/* As arg_path, of a node. */
bool path_of_node(const struct step *st, const struct yaml_node *node, const char *key, const char **out);
bool arg_lengths(const struct step *st, const char *key, const char **out);
/* The arguments of graph-level rope after x and positions for heads of `width`; NULL without `rope`
 * (frontend/step_kinds/rope.c). */
bool arg_rope(const struct step *st, int64_t width, const char **out);
/* A word of a mapping argument whose keys are those of `where` in frontend/model/schema.def; *out stays when
 * it is absent.
 */
bool arg_map_word(const struct step *st, const struct yaml_node *map, const char *where, const char *key,
                  const char **out);

/* frontend/step_kinds/simple.c: x gets the type of the input with another last axis. */
void set_width(struct step *st, int64_t width);
bool want_float_input(const struct step *st);

/* frontend/step_kinds/norm.c: one row of features brought to a common size; weight, bias: parameters
 * PATH.ROLE. */
struct norm {
	const char *kind; /* NULL: none */
	double eps;
	bool weight, bias, plus_one;
};
bool emit_norm(const struct step *st, const struct norm *n, const char *to, const char *from,
               const char *path, int64_t width);

/* frontend/step_kinds/qk_norm.c: norms of queries and keys. */
struct qk_norm {
	struct norm norm;
	bool over_all; /* of all heads together, before they are split */
	bool each;     /* every head has parameters of its own: PATH.q_norm.N.weight */
};
bool arg_qk_norm(const struct step *st, struct qk_norm *out);
/* Of q [B, heads[0], S, e] and k [B, heads[1], S, e], or of all features before the split. */
bool emit_qk_norm(struct step *st, const struct qk_norm *n, const char *const qk[2], const int64_t heads[2],
                  int64_t e);
/* frontend/step_kinds/bias.c: what attention adds to its scores, as arguments of sdpa; "" for nothing. */
bool arg_prefix(const struct step *st, const char **out); /* what `prefix` of sdpa wants */
/* Length and element type of the cache; absent: left alone. */
struct cache_use;
/* Of the keys and values of a step: its path and the indices of shared repeats, whose turns have one path. */
const char *cache_name(const struct step *st);
bool arg_cache(const struct step *st, const struct cache_use *use, int64_t *len, const char **dtype);
bool arg_score_bias(const struct step *st, bool causal, const char **out);
struct expr_env blocks_env(struct blocks *b, bool dims);
bool find_value(struct blocks *b, const struct yaml_node *name, struct block_value *out);
/* As find_value, where something else may stand in its place; reports nothing. */
bool find_named(struct blocks *b, const struct yaml_node *name, struct block_value *out);
const struct yaml_node *merge_args(struct blocks *b, const struct schema_step *kind,
                                   const struct yaml_node *step, const struct yaml_node *value);
int64_t width_of(const struct step *st,
                 const struct block_value *v); /* constant last axis, or -1 after a report */

step_handler step_embed, step_positions, step_norm, step_linear, step_attention, step_ffn, step_moe,
        step_residual, step_repeat, step_pool, step_normalize, step_act, step_scale, step_softcap,
        step_reshape, step_transpose, step_patchify, step_conv1d, step_prepend, step_save, step_x, step_use,
        step_graph;

#endif
