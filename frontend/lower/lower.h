/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering of the graph level to IR: the only callers of the IR builder. One
 * body is lowered for each function of the module; what differs is the mode.
 *
 * INVARIANT: a name is bound to a value that is visible in the present region;
 * names that a repeat's body assigns are carried or unbound after it.
 */
#ifndef TFMC_FRONTEND_LOWER_LOWER_H
#define TFMC_FRONTEND_LOWER_LOWER_H

#include "frontend/expr/signature.h"
#include "frontend/model/model.h"
#include "ir/builder/build.h"

enum lower_mode {
	LOWER_RUN,    /* no state; records the types of caches */
	LOWER_INFER,  /* types only: weights are zeros, state statements record their types */
	LOWER_ENCODE, /* state_put writes */
	LOWER_DECODE, /* caches grow, state_get reads */
};

enum lowered_kind { LOWERED_TENSOR, LOWERED_SCALAR, LOWERED_TUPLE };

/* What an expression yields. */
struct lowered {
	enum lowered_kind kind;
	struct ir_value v;
	struct value s; /* numbers, words, strings */
	struct lowered *items;
	size_t n;
};

struct lower_loop {
	const struct lower_loop *outer;
	const struct graph_node *node;
	struct ir_value index;
};

struct lower_frame {
	const struct lower_frame *outer;
	const struct graph_body *body;
	size_t at;
	bool loop;
};

struct lower_state {
	const char *name;
	const struct ir_state_decl *decl;
	struct ir_value value; /* present state */
};

struct state_type {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
	int value_rank; /* of what encode leaves: its own axes, of a source as long as it is */
	const struct ir_dim *value_dims[IR_RANK_MAX];
	struct ir_loc loc;
	int64_t call_rows; /* of a ring: tokens that one call may append at most; else 0 */
};

/* Types of states, found by the modes that have none; shared by the functions of a module. */
struct state_types {
	struct state_type *items;
	size_t n, cap;
	uint64_t sizes;    /* bit i: decode reads the size of dim i of the source, so encode keeps it */
	bool sizes_missed; /* it was not yet known when decode was lowered */
};

/* A dim of the source. */
struct source_dim {
	int sym, in_decode; /* symbols; other ones only where the tokens have the dim, too */
	const char *state;
	struct ir_value size; /* LOWER_DECODE: i32 [B], of each sequence; none: not read so far */
};

struct lowering {
	struct frontend_model *m;
	struct arena *arena;
	struct diag_context *cx;
	enum lower_mode mode;
	struct ir_module *module;
	struct ir_builder *b;
	struct expr_env env;
	struct strmap vars; /* name -> struct lowered *; NULL: unbound */
	const struct lower_loop *loop;
	const struct lower_frame *frame;
	struct ir_loc loc;
	const char *const *outputs; /* names that are read at the end */
	size_t n_outputs;
	struct state_types *types;
	struct {
		struct lower_state *items;
		size_t n, cap;
	} states;
	struct {
		struct source_dim *items;
		size_t n;
	} source;
	struct ir_value past;       /* LOWER_DECODE */
	struct ir_value call_end;   /* LOWER_DECODE: i32 [B], where generate.long_from > 0 */
	const struct ir_dim *grows; /* LOWER_DECODE: the sequence dim of tokens */
	const struct ir_dim *bound; /* stands for the symbol bound_sym in this function; NULL: none */
	int bound_sym;
	bool tail; /* rows have been taken: values are [B, d] */
};

/* body.c */
bool lower_body(struct lowering *lw, const struct graph_body *body, bool loop);
void lower_bind(struct lowering *lw, const char *name, const struct lowered *v);
const struct lowered *lower_find(const struct lowering *lw, const char *name);

/* expr.c */
/* A dim of the model in the module. */
const struct ir_dim *lower_dim(struct lowering *lw, const struct ir_dim *d);
bool lower_expr(struct lowering *lw, const struct expr *e, struct lowered *out);
bool lower_fail(struct lowering *lw, struct loc at, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
const char *type_text(struct lowering *lw, struct ir_value v);
struct lowered lowered_tensor(struct ir_value v);
/* Both with the same shape, by broadcasting. */
bool lower_broadcast_pair(struct lowering *lw, struct loc at, struct ir_value *a, struct ir_value *b);
/* A tensor of the dtype and shape of `like` from a scalar; a tensor is left alone. */
bool lower_splat(struct lowering *lw, struct loc at, struct lowered *v, struct ir_value like);

/* call.c */
struct call {
	struct lowering *lw;
	const struct expr *e;
	const struct signature *signature;
	const struct expr *const *values; /* of its arguments */
};
/* Arguments in their places; false after a report. */
bool call_match(struct lowering *lw, const struct expr *e, const struct signature *signature,
                struct call *out);
/* An argument or its default; NULL where it is absent and the default is none. */
const struct expr *call_arg(const struct call *c, const char *name);
bool call_tensor(const struct call *c, const char *name, struct ir_value *out);
/* An absent argument without a default is left alone. */
bool call_int(const struct call *c, const char *name, int64_t *out);
bool call_float(const struct call *c, const char *name, double *out);
bool call_bool(const struct call *c, const char *name, bool *out);
bool call_word(const struct call *c, const char *name, const char **out); /* word or string */
bool call_dims(const struct call *c, const char *name, int *rank, const struct ir_dim **dims);
bool call_axis(const struct call *c, const char *name, int rank, int64_t *axis); /* negative ones resolved */
bool lower_call(struct lowering *lw, const struct expr *e, struct lowered *out);
/* The type of a value, NULL when the builder has failed. */
const struct ir_type *call_type(const struct call *c, struct ir_value v);
/* Sets the result of the call; false when the builder has failed. */
bool call_return(const struct call *c, struct lowered *out, struct ir_value v);
/* What an operator that mixes positions reads past the end of a source. */
enum call_fill {
	FILL_NONE, /* nothing: it reads no position past the end, or none of its results before the end does */
	FILL_ZERO,
	FILL_LOWEST,
	FILL_HIGHEST,
	FILL_UNSUPPORTED
};
/* LOWER_DECODE: reports an operation that mixes positions of the growing axis; positions of a source past its end become
 * neutral. */
bool call_mixes_axis(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill);

/* ops.c, state.c, frontend/operators */
typedef bool op_lowering(const struct call *c, struct lowered *out);
#define OPERATOR(name, lowering, doc, args) op_lowering lower_##lowering;
#define INTERNAL(name, lowering, doc, args) op_lowering lower_##lowering;
#include "frontend/expr/calls.def"

/* weights.c */
enum weight_form {
	WEIGHT_PLAIN,
	WEIGHT_MATRIX,     /* [out, ...] as a matrix [out, all the rest] */
	WEIGHT_TAPS_FIRST, /* [out, C, taps..] as a matrix [out, taps C] */
	WEIGHT_DERIVED,    /* what `make` makes of it */
};

struct weight_request {
	const char *pattern; /* path with {i} */
	int rank;
	int64_t dims[IR_RANK_MAX]; /* of the whole parameter */
	int64_t first, rows;       /* rows > 0: only rows [first, first + rows) of axis 0 */
	int64_t groups;            /* > 1: only those many rows of each equal part of axis 0, rows in all */
	enum weight_form form;
	const struct ir_wexpr *(*make)(void *user, const struct ir_wexpr *parameter); /* WEIGHT_DERIVED */
	void *user;
	const char *derived_suffix; /* how the result differs from the parameter; part of its name */
	bool plus_one;              /* 1 + the parameter */
	bool is_quantizable;        /* a matrix that a linear multiplies, or a table */
	bool is_table;              /* rows are looked up */
	int64_t experts;            /* > 0: the pattern has LOWER_EXPERT, as many matrices are stacked */
	const bool *subset;         /* [experts]: only these; NULL: all */
	const char *subset_name; /* what the name of the weight has in place of their numbers; NULL: "all" */
	struct ir_value *
	        column_order; /* NULL: columns must be in order; else i32 [K]: what is multiplied by each; left alone
	                           where they are */
};
#define LOWER_EXPERT "{*}" /* the number of an expert */
bool lower_weight(struct lowering *lw, const struct weight_request *need, struct ir_value *out);
/* Whether the weight of `path`, which is tied to that of `tie`, is stored with values of its own (weight_map_unties). */
bool lower_is_untied(struct lowering *lw, const char *path, const char *tie);
/* What the matrix of each expert is kept as, in the first round of the loops around: [experts]. */
bool lower_expert_formats(struct lowering *lw, const struct weight_request *need, enum ir_format *out);
/* Adds what the arguments bias, alibi and rel_bias of sdpa say to scores [B, H, S, T], and -inf where a key
 * is not visible (bool, rank 4, broadcast; may be none). */
bool lower_score_bias(const struct call *c, struct ir_value visible, struct ir_value *scores);

/* frontend/operators/lower_move.c */
struct ir_value lower_axis_to_front(struct lowering *lw, struct ir_value x, int axis);
/* The first n axes come to lie at `axis`. */
struct ir_value lower_axes_from_front(struct lowering *lw, struct ir_value x, int n, int axis);
/* Elements of an axis, i32 ids of any shape, whose axes come to lie there. */
struct ir_value lower_gather_axis(struct lowering *lw, struct ir_value x, int axis, struct ir_value at);
/* [.., n, ..] -> [.., count, size, ..]: window i holds the elements i hop + k step, k < size; all exist. */
struct lower_windows {
	const struct ir_dim *count;
	int64_t size, hop, step;
};
struct ir_value lower_windows(struct lowering *lw, struct ir_value x, int axis,
                              const struct lower_windows *w);

/* frontend/operators/lower_visibility.c */
bool lower_is_none(const struct expr *e); /* absent, or written as none */
/* i32 [B or 1, 1, S, T]: j - i, both from the start of the sequence. */
struct ir_value lower_distances(const struct lowering *lw, const struct ir_type *scores);
/* An optional argument of sdpa that broadcasts to the scores, with four axes; none: left alone. */
bool lower_score_operand(const struct call *c, const char *name, struct ir_value scores, enum ir_dtype dtype,
                         struct ir_value *out);
/* x (0 when none) where visible, else -inf. */
struct ir_value lower_mask_fill(struct lowering *lw, struct ir_value visible, struct ir_value x,
                                enum ir_dtype dtype);
/* What `mask` and `prefix` let a query see, or none; with a prefix that includes causality. */
bool lower_visibility(const struct call *c, struct ir_value scores, bool *has_prefix, struct ir_value *out);
/* A weight that is not a parameter. */
bool lower_const_table(struct lowering *lw, const char *name, const struct ir_wexpr *e, struct ir_value *out);
/* Whether elements of that type can hold the value exactly. */
bool lower_dtype_holds(enum ir_dtype t, double v);
/* The name that a path with indices stands for, and the indices of its loops (room for IR_RANK_MAX). */
const char *lower_stacked_name(struct lowering *lw, const char *pattern, const struct lower_loop **loops,
                               size_t *n);
/* TFMC_IO where the file of an option cannot be read. */
enum tfmc_status weights_open(struct frontend_model *m);

/* profile.c: what the inputs of a matrix that is quantized are like. False after a report. */
/* Opens the file beside the weight files; nothing without one. TFMC_IO where that of an option cannot be read. */
enum tfmc_status profile_open(struct frontend_model *m);
/* The numbers for a parameter [N, K]: [2, K]; NULL: nothing is known of it, which is said at the end but of tables. */
bool profile_find(struct frontend_model *m, const struct weight_want *want, bool is_table,
                  const struct ir_wexpr **out);
/* Reports what the model has not, and matrices that the file says nothing of. */
bool profile_finish(struct frontend_model *m);

/* state.c */
bool lower_record_state(struct lowering *lw, const char *pattern, const struct state_type *slice);
struct lower_state *lower_find_state(struct lowering *lw, const char *name);
/* Names of the states of a cache: keys, values; of int8, their scales. */
#define LOWER_CACHE_PARTS 4
const char *lower_cache_state(struct lowering *lw, const char *cache, size_t part);
/* Names of the states that a body uses, in order. */
struct names_list {
	const char **items;
	size_t n, cap;
};
bool lower_body_states(struct lowering *lw, const struct graph_body *body, struct names_list *out);
void lower_index_operands(const struct lower_loop *const *loops, size_t n, struct ir_value *out);

/* rows.c */
struct cache_use {
	int64_t window; /* 0: none */
	bool is_causal; /* and no position is seen by all */
};
/* Why attention cannot have a cache of `len` positions; NULL: it can. */
const char *cache_len_error(struct arena *a, const struct cache_use *use, int64_t len, int64_t max_len);
/* Rows of a state for so many positions; fewer than max_len: a ring. */
int64_t cache_rows(int64_t len, int64_t max_len);
/* Bounds the tokens of a call of decode or score, where their bound is not small enough. */
bool lower_bind_rows(struct lowering *lw, bool scores);

/* frontend/operators/lower_score.c: what the entry score has beside decode. */
bool score_add_targets(struct lowering *lw, int lengths);
/* Binds `name` to log p of the targets, f32 [B, rows], instead of logits. */
bool score_finish(struct lowering *lw, const char *name);
extern const char score_output[];

/* source.c: decode sees a source as long as it is, in states with room for the longest */
enum dim_owner { DIM_FREE, DIM_OF_SOURCE, DIM_OF_TOKENS, DIM_OF_BOTH };
/* Which inputs of a seq2seq model have the symbol, that of the batch apart. */
enum dim_owner lower_dim_owner(const struct frontend_model *m, int sym);
/* Declares what stands for dims that the source shares with the tokens. */
bool lower_declare_source(const struct frontend_model *m, struct ir_dims *dims, struct arena *a);
bool lower_list_source_dims(struct lowering *lw);
/* The dim of a value of the source as decode calls it. */
const struct ir_dim *lower_source_dim(struct lowering *lw, const struct ir_dim *d);
/* LOWER_DECODE: whether the dim depends on the size of the source. */
bool lower_is_source(const struct lowering *lw, const struct ir_dim *d);
/* i32 [B]: the dim for the source of each sequence; the same spread to the dims of t. */
struct ir_value lower_source_size(struct lowering *lw, const struct ir_dim *d);
bool lower_broadcast_source_size(struct lowering *lw, struct loc at, const struct ir_dim *d,
                                 const struct ir_type *t, struct ir_value *out);
/* call_mixes_axis of an axis of the source. */
bool lower_fill_source(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill);
/* Reports a reshape after which the end of a source is no end of an axis. */
bool lower_reshape_source(const struct call *c, struct ir_value x, int rank,
                          const struct ir_dim *const *dims);
/* Records the types of states of sizes. */
bool lower_record_sizes(struct frontend_model *m, struct ir_module *module, struct state_types *types);
/* LOWER_ENCODE writes the sizes that decode reads, LOWER_DECODE reads them. */
bool lower_write_sizes(struct lowering *lw);
bool lower_read_sizes(struct lowering *lw);
/* The functions of `from` with the source as long as its room; states are declared. */
bool lower_bind_source(struct frontend_model *m, struct ir_module *from, struct ir_module *out);

/* split.c: a seq2seq model whole, and its parts before and with the tokens */
struct split_result {
	struct graph_body run, encode, decode;
	const char **encode_outputs; /* names at level 3 */
	size_t *encode_index;        /* their model outputs */
	size_t n_encode_outputs;
};
bool split_encode_decode(struct frontend_model *m, struct split_result *out);

/* lower.c: the type that `name` has after `body`, where the named values have the given types. */
struct typed_name {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
};
bool lower_infer_type(struct frontend_model *m, const struct typed_name *given, size_t n,
                      const struct graph_body *body, struct typed_name *want);

#endif
