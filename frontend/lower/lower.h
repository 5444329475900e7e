/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowering of the graph level to IR; this module is the only caller of the IR builder. The same graph is lowered
 * once for each function of the module; lower_mode selects what differs.
 *
 * INVARIANT: a name is bound to a value that is visible in the current region; names assigned in the body of a
 * repeat are carried by it or unbound after it.
 */
#ifndef TFMC_FRONTEND_LOWER_LOWER_H
#define TFMC_FRONTEND_LOWER_LOWER_H

#include "frontend/syntax/signature.h"
#include "frontend/model/model.h"
#include "ir/core/build.h"

enum lower_mode {
	LOWER_RUN,    /* run: no state; records the types of the states that encode and decode will have */
	LOWER_INFER,  /* type inference: weights are zeros */
	LOWER_ENCODE, /* encode: state_put writes */
	LOWER_DECODE, /* decode, score: KV caches grow, state_get reads */
};

enum lowered_kind { LOWERED_TENSOR, LOWERED_SCALAR, LOWERED_TUPLE };

/* Result of lowering an expression. */
struct lowered {
	enum lowered_kind kind;
	struct ir_value v;
	struct value s; /* LOWERED_SCALAR: number, dim, word or string */
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
	struct ir_value value; /* current value of the state, threaded through the function */
};

struct state_type {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX];
	/* Of a value that encode stores for decode: its type before it is laid out as a state (state.c). */
	int value_rank;
	const struct ir_dim *value_dims[IR_RANK_MAX];
	struct ir_loc loc;
	int64_t call_rows; /* ring cache: the most tokens that one call may append; else 0 */
};

/* Types of states, recorded by LOWER_RUN; shared by the functions of a module. */
struct state_types {
	struct state_type *items;
	size_t n, cap;
	uint64_t sizes;    /* bit i: decode reads the size of dim i of the source, so encode must store it */
	bool sizes_missed; /* decode read a size whose bit was not set yet: it must be lowered again */
};

/* A dim of the encoder input (source) of a seq2seq model. */
struct source_dim {
	int sym, in_decode; /* dim symbols; they differ only if the tokens have the dim as well */
	const char *state;
	struct ir_value
	        size; /* LOWER_DECODE: i32 [B], size for each sequence; no value: not read from its state */
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
	int *parameter;     /* [inputs of the model] number of its parameter; -1: none in this function */
	const struct lower_loop *loop;
	const struct lower_frame *frame;
	struct ir_loc loc;
	const char *const *outputs; /* names read after the body */
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
	struct ir_value past; /* LOWER_DECODE */
	/* LOWER_DECODE with generate.long_from > 0: i32 [B], length of each sequence after the whole prompt. */
	struct ir_value call_end;
	const struct ir_dim *grows; /* LOWER_DECODE: dim of axis 1 of the tokens of a call; else NULL */
	const struct ir_dim
	        *bound; /* replaces the symbol bound_sym in this function (lower_bind_rows); NULL: none */
	int bound_sym;
};

/* body.c */
/* Lowers the statements and repeats of a body in order; loop: it is the body of a repeat. False after a report, or
 * without memory. */
bool lower_body(struct lowering *lw, const struct graph_body *body, bool loop);
/* Binds a name to a copy of *v, in place of a former binding. */
void lower_bind(struct lowering *lw, const char *name, const struct lowered *v);
/* The binding of a name; NULL: unbound. */
const struct lowered *lower_find(const struct lowering *lw, const char *name);

/* expr.c */
/* Imports a dim of the model into the module. */
const struct ir_dim *lower_dim(struct lowering *lw, const struct ir_dim *d);
/* The batch dim of the tokens of a generating model, in the module. */
const struct ir_dim *lower_batch_dim(struct lowering *lw);
/* Lowers an expression: a bound name to its binding, an expression without tensors to a scalar, else to ops. False
 * after a report. */
bool lower_expr(struct lowering *lw, const struct expr *e, struct lowered *out);
/* Reports an error at `at`, or at the current statement if `at` has no line, with the path of the step. Returns
 * false. */
bool lower_fail(struct lowering *lw, struct loc at, enum diag_code code, const char *fmt, ...)
        TFMC_PRINTF(4, 5);
const char *type_to_string(struct lowering *lw, struct ir_value v);
struct lowered lowered_tensor(struct ir_value v);
/* Broadcasts *a and *b to a common shape, aligning trailing axes as NumPy does. False after a report. */
bool lower_broadcast_pair(struct lowering *lw, struct loc at, struct ir_value *a, struct ir_value *b);
/*
 * Replaces a scalar by a constant tensor (splat) of the dtype and shape of `like`; a tensor is left unchanged.
 */
bool lower_splat(struct lowering *lw, struct loc at, struct lowered *v, struct ir_value like);
/* A constant tensor i64 of type t with any value: IR constants are doubles, exact up to 2^53. */
struct ir_value lower_large_i64(struct lowering *lw, int64_t v, const struct ir_type *t);

/* x cast to the type; x itself if it has the type or the builder has failed. */
struct ir_value lower_cast_to(struct lowering *lw, struct ir_value x, enum ir_dtype dtype);

/* call.c */
struct call {
	struct lowering *lw;
	const struct expr *e;
	const struct signature *signature;
	const struct expr *const *values; /* of its arguments, in the order of the signature */
};
/* Matches the arguments of a call; false after a report. */
bool call_match(struct lowering *lw, const struct expr *e, const struct signature *signature,
                struct call *out);
/* An argument of a call of an operator as written; NULL: not given. */
const struct expr *call_written(const struct expr *e, const char *name);
/* An argument or its default; NULL if it is absent and has no default value. */
const struct expr *call_arg(const struct call *c, const char *name);
/* Lowers an argument that must be a tensor; false after a report, or if it is absent. */
bool call_tensor(const struct call *c, const char *name, struct ir_value *out);
/* Typed access to arguments. An absent argument without a default value leaves *out unchanged; false after a
 * report. */
bool call_int(const struct call *c, const char *name, int64_t *out);
bool call_float(const struct call *c, const char *name, double *out);
bool call_bool(const struct call *c, const char *name, bool *out);
bool call_word(const struct call *c, const char *name, const char **out); /* a word or a string */
/* A shape: one size or a list of them, none negative, as dims of the module; room for IR_RANK_MAX. */
bool call_dims(const struct call *c, const char *name, int *rank, const struct ir_dim **dims);
bool call_axis(const struct call *c, const char *name, int rank,
               int64_t *axis); /* in [0, rank): negative axes count from the end */
/* Lowers the call of an operator; false after a report. */
bool lower_call(struct lowering *lw, const struct expr *e, struct lowered *out);
/* The type of a value, NULL when the builder has failed. */
const struct ir_type *call_type(const struct call *c, struct ir_value v);
/* Sets the result of the call; false when the builder has failed. */
bool call_return(const struct call *c, struct lowered *out, struct ir_value v);
/* Neutral element of an operator that mixes positions of an axis: what it reads past the end of a source. */
enum call_fill {
	FILL_NONE, /* none needed: it reads no position past the end, or only results past the end depend on it */
	FILL_ZERO,
	FILL_LOWEST,
	FILL_HIGHEST,
	FILL_UNSUPPORTED
};
/*
 * LOWER_DECODE: declares that the call mixes positions of `axis` of *x. If the axis is the growing one, that is
 * an error; if it is an axis of the source, its elements past the end of each sequence's source are replaced by
 * the neutral element.
 */
bool call_mixes_axis(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill);

/* ops.c, state.c, lower_*.c */
typedef bool op_lowering(const struct call *c, struct lowered *out);
#define OPERATOR(name, lowering, doc, args) op_lowering lower_##lowering;
#define INTERNAL(name, lowering, doc, args) op_lowering lower_##lowering;
#include "frontend/syntax/calls.def"

/* weights.c */
enum weight_form {
	WEIGHT_PLAIN,
	WEIGHT_MATRIX, /* [out, ...] flattened to a matrix [out, product of the others] */
	WEIGHT_TAPS_FIRST, /* [out, C, taps..] transposed to a matrix [out, taps * C] (im2col, channels innermost) */
	WEIGHT_TAPS_OUTERMOST, /* [out, 1, taps..] transposed to [taps, out] (depthwise convolution) */
	WEIGHT_DERIVED,        /* result of `make` */
};

struct weight_request {
	const char *pattern; /* path pattern, with {i} for loop indices */
	int rank;
	int64_t dims[IR_RANK_MAX]; /* shape of the whole parameter */
	int64_t first, rows;       /* rows > 0: only rows [first, first + rows) of axis 0 */
	int64_t groups; /* > 1: axis 0 is divided into equal groups; take rows / groups rows from each */
	enum weight_form form;
	const struct ir_wexpr *(*make)(void *user, const struct ir_wexpr *parameter); /* WEIGHT_DERIVED */
	void *user;
	const char *
	        derived_suffix; /* WEIGHT_DERIVED: suffix of the weight's name that identifies the derivation */
	bool plus_one;          /* use 1 + the parameter */
	bool is_quantizable; /* the section `quantize` applies: the matrix of a linear, or an embedding table */
	bool is_table;       /* rows are looked up (embedding) */
	int64_t experts; /* > 0: the pattern contains LOWER_EXPERT, and the matrices of all experts are stacked */
	const bool *subset;      /* [experts]: stack only these; NULL: all */
	const char *subset_name; /* replaces the expert index in the weight's name; NULL: "all" */
	/* NULL: columns must be in logical order. Else set to i32 [K], the logical column of each stored one, if they
	 * are stored in another order (GPTQ act-order); left unchanged otherwise. */
	struct ir_value *column_order;
};
#define LOWER_EXPERT "{*}" /* stands for the index of an expert */
bool lower_weight(struct lowering *lw, const struct weight_request *need, struct ir_value *out);
/* True if the weight of `path`, although tied to that of `tie`, is stored with different values
 * (weight_map_unties). */
bool lower_is_untied(struct lowering *lw, const char *path, const char *tie);
/* Storage format of the matrix of each expert, out[experts], in the first iteration of the enclosing loops. */
bool lower_expert_formats(struct lowering *lw, const struct weight_request *need, enum ir_format *out);
/* Adds the arguments bias, alibi and rel_bias of sdpa to the scores [B, H, S, T], and -inf where a key is not
 * visible (bool, rank 4, broadcast; may be no value). */
bool lower_score_bias(const struct call *c, struct ir_value visible, struct ir_value *scores);

/* frontend/lower/lower_move.c */
struct ir_value lower_axis_to_front(struct lowering *lw, struct ir_value x, int axis);
/* Moves the first n axes to position `axis`. */
struct ir_value lower_axes_from_front(struct lowering *lw, struct ir_value x, int n, int axis);
/* Gathers elements of an axis at i32 ids of any shape; the axes of ids replace it. */
struct ir_value lower_gather_axis(struct lowering *lw, struct ir_value x, int axis, struct ir_value at);
/* Sliding windows: [.., n, ..] -> [.., count, size, ..]; window i contains elements i hop + k step, k < size,
 * all of which must exist. */
struct lower_windows {
	const struct ir_dim *count;
	int64_t size, hop, step;
};
struct ir_value lower_windows(struct lowering *lw, struct ir_value x, int axis,
                              const struct lower_windows *w);

/* frontend/lower/lower_visible.c */
bool lower_is_none(const struct expr *e); /* true if the argument is absent or `none` */
/* Key position minus query position, i32 [B or 1, 1, S, T]; both count from the start of the sequence, with a
 * cache too. */
struct ir_value lower_distances(const struct lowering *lw, const struct ir_type *scores);
/* Reads an optional argument of sdpa that broadcasts to the scores, reshaped to four axes; `none` leaves *out
 * unchanged. False after a report: another dtype, or a shape that does not broadcast. */
bool lower_score_operand(const struct call *c, const char *name, struct ir_value scores, enum ir_dtype dtype,
                         struct ir_value *out);
/* where(visible, x, -inf); x defaults to 0. */
struct ir_value lower_mask_fill(struct lowering *lw, struct ir_value visible, struct ir_value x,
                                enum ir_dtype dtype);
/* Combines `mask` and `prefix` of sdpa to one bool tensor, or no value. With a prefix it includes causality. */
bool lower_visibility(const struct call *c, struct ir_value scores, bool *has_prefix, struct ir_value *out);
/* Adds a constant tensor that is not a parameter as a weight; equal names must have equal expressions. */
bool lower_const_table(struct lowering *lw, const char *name, const struct ir_wexpr *e, struct ir_value *out);
/* True if elements of the type represent the value exactly (floats: any value). */
bool lower_dtype_holds(enum ir_dtype t, double v);
/* Name of the stacked weight or state of a path pattern: indices of enclosing loops are removed. *loops: these
 * loops, outermost first (room for IR_RANK_MAX). NULL after a report. */
const char *lower_stacked_name(struct lowering *lw, const char *pattern, const struct lower_loop **loops,
                               size_t *n);
/* Opens the weight files, the profile and the weight map, once. TFMC_IO if the file of an option cannot be
 * read. */
enum tfmc_status weights_open(struct frontend_model *m);

/* profile.c: calibration profile, statistics of the inputs of each quantized matrix. False after a report. */
/* Opens the profile, if there is one, as one more weight file. TFMC_IO if that of an option cannot be read. */
enum tfmc_status profile_open(struct frontend_model *m);
/* Statistics [2, K] for a parameter [N, K]; NULL: the profile has none, which is reported at the end except for
 * tables. */
bool profile_find(struct frontend_model *m, const struct parameter_request *want, bool is_table,
                  const struct ir_wexpr **out);
/* Reports profile entries without a parameter, and quantized matrices without an entry. */
bool profile_finish(struct frontend_model *m);

/* state.c */
bool lower_record_state(struct lowering *lw, const char *pattern, const struct state_type *slice);
/* The recorded type of a state; NULL: none. */
const struct state_type *lower_find_state_type(const struct lowering *lw, const char *name);
/* The state of the current function with this name; NULL after the report of an internal error. */
struct lower_state *lower_find_state(struct lowering *lw, const char *name);
/* State names of a cache: keys, values; with int8 also their scales. */
#define LOWER_CACHE_PARTS 4
const char *lower_cache_state(struct lowering *lw, const char *cache, size_t part);
/* Names of the states used by a body, in order of first use. */
struct names_list {
	const char **items;
	size_t n, cap;
};
bool lower_body_states(struct lowering *lw, const struct graph_body *body, struct names_list *out);
void lower_index_operands(const struct lower_loop *const *loops, size_t n, struct ir_value *out);

/* state.c: rows of caches */
struct cache_use {
	int64_t window; /* 0: no window */
	bool is_causal; /* causal and without a prefix visible to all */
};
/* Error text if attention cannot have a cache of `len` positions; NULL: it can. */
const char *cache_len_error(struct arena *a, const struct cache_use *use, int64_t len, int64_t max_len);
/* Rows of the state for a cache of len positions; fewer than max_len: a ring buffer. */
int64_t cache_rows(int64_t len, int64_t max_len);
/* Binds the number of tokens of a call to a dim of its own with a smaller bound, if decode (ring caches) or
 * score requires it. */
bool lower_bind_rows(struct lowering *lw, bool scores);

/* frontend/lower/lower_score.c: the parts of the function score that decode does not have. */
/* Adds the parameter `targets`, i32 [B, rows]: ids, checked against the vocabulary size of decode's logits (decode
 * has been built). lengths: number of the parameter with the real rows of each sequence, -1: none. False after a
 * report. */
bool score_add_targets(struct lowering *lw, int lengths);
/* Binds `name` to the log-probabilities of the targets, f32 [B, rows], in place of the logits. */
bool score_finish(struct lowering *lw, const char *name);
extern const char score_output[];

/* source.c: decode is lowered with the dims of the source, although its states have capacity for the longest
 * one */
enum dim_owner { DIM_FREE, DIM_OF_SOURCE, DIM_OF_TOKENS, DIM_OF_BOTH };
/* Which inputs of a seq2seq model have the dim symbol; the batch dim is DIM_FREE. */
enum dim_owner lower_dim_owner(const struct frontend_model *m, int sym);
/* Declares separate symbols for dims that the source shares with the tokens. */
bool lower_declare_source(const struct frontend_model *m, struct ir_dims *dims, struct arena *a);
/* Lists the dims of the source in lw->source; false without memory. */
bool lower_list_source_dims(struct lowering *lw);
/* Imports a dim of a source value with the symbols of decode. */
const struct ir_dim *lower_source_dim(struct lowering *lw, const struct ir_dim *d);
/* LOWER_DECODE: true if the dim depends on the size of the source. */
bool lower_is_source(const struct lowering *lw, const struct ir_dim *d);
/* i32 [B]: value of the dim for each sequence's source; and the same broadcast to the dims of t. */
struct ir_value lower_source_size(struct lowering *lw, const struct ir_dim *d);
bool lower_broadcast_source_size(struct lowering *lw, struct loc at, const struct ir_dim *d,
                                 const struct ir_type *t, struct ir_value *out);
/* call_mixes_axis for an axis of the source. */
bool lower_fill_source(const struct call *c, struct ir_value *x, int64_t axis, enum call_fill fill);
/* Reports a reshape after which positions past the end of a source are no longer at the end of an axis. */
bool lower_reshape_source(const struct call *c, struct ir_value x, int rank,
                          const struct ir_dim *const *dims);
/* Records the types of the states that store sizes of the source. */
bool lower_record_sizes(struct frontend_model *m, struct ir_module *module, struct state_types *types);
/* LOWER_ENCODE writes the sizes that decode reads; LOWER_DECODE reads them. */
bool lower_write_sizes(struct lowering *lw);
bool lower_read_sizes(struct lowering *lw);
/* Clones the functions of `from` into `out` with the dims of the source bound to their capacity; declares the
 * states. */
bool lower_bind_source(struct frontend_model *m, struct ir_module *from, struct ir_module *out);

/* split.c: partition of a seq2seq graph into encode and decode */
struct split_result {
	struct graph_body body; /* the graph, in which values of the source reach tokens by states */
	const bool *of_source;  /* outputs that do not depend on the tokens: encode returns them */
};
/* Cuts the statements of run; encode and decode are slices of them. False without memory. */
bool split_encode_decode(struct frontend_model *m, const struct graph_body *graph, struct split_result *out);

/* lower.c: type inference of steps. Their statements are lowered one after another by lower_body to a scratch module
 * in which parameters are zeros. NULL after a report, or without memory. */
struct lowering *lower_begin_inference(struct frontend_model *m);
void lower_end_inference(struct lowering *lw); /* NULL: does nothing */

#endif
