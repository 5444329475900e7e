/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator of element expressions: emits code for one element, or for `lanes` neighbouring elements along one
 * axis, of any value of a fused group (pull model, as Halide inlines a Func). Generators bind what they have computed
 * (eval_bind) and request the values that are built on it, such as an epilogue; everything else is computed from its
 * operands through elementwise ops, views and gathers down to loads from memory. Emitted values are cached by
 * element, so that nothing is computed twice within one scope.
 *
 * At the end of a row only `valid` of the `lanes` lanes exist: the others are never loaded or stored, and their
 * values are undefined.
 */
#ifndef TFMC_BACKENDS_KERNELS_EVAL_H
#define TFMC_BACKENDS_KERNELS_EVAL_H

#include "backends/kernels/group.h"

/* The coordinates of one element of a value, or of a vector of neighbours along axis `vec`. */
struct eval_point {
	int rank;
	struct kb_val index[IR_RANK_MAX]; /* KB_INDEX */
	int vec;                          /* lane l has index[vec] + l; -1: one element, scalar values */
	struct kb_val flat;               /* row number: all axes but the last linearized; none if unknown */
	bool shifted;                     /* index[vec] need not be a multiple of the lanes */
};

/* A bias that is not yet added to GEMM results in a buffer: it is added where they are loaded. */
struct eval_bias {
	struct ir_value v;         /* [N]; of experts [E, N] */
	struct kb_val expert;      /* row of v, or none */
	int64_t begin;             /* column of v at element 0 of the buffer */
	int64_t step[IR_RANK_MAX]; /* columns of v for one index of each axis; last axis: 1 */
};

/* A tensor in memory. */
struct eval_tensor {
	struct kb_tensor t;
	bool is_flat;       /* row r (all axes but the last linearized) is at r * stride[rank - 2] */
	struct kb_val skip; /* elements added to every offset; may be none */
	const struct eval_bias *bias; /* NULL: none */
};

/* A cached value of an element, or a cached row offset. An element of a slice in memory is that of the sliced value, so
 * that slices which overlap load it once. */
struct eval_entry {
	uint32_t value;
	struct eval_point point;
	int64_t plus[IR_RANK_MAX]; /* the constants of the indices, which those of point are without */
	struct kb_val result;
	int lanes;
	bool is_offset; /* result is the element offset of all axes but point.vec in the tensor of `value` */
};

/* The number of the last analysis (eval_vectorizes) that found that lanes may run along `axis` of a value. */
struct eval_proof {
	uint32_t analysis;
	int axis;
};

struct eval {
	const struct kernel_job *job;
	struct kb *k;
	int lanes;        /* lanes of vector values, a power of two; 1: everything is scalar */
	int valid;        /* lanes that exist, 1 .. lanes */
	int depth;        /* of recursion through operands */
	bool failed;      /* a diagnostic was reported */
	bool unsupported; /* the diagnostic concerns a missing feature or an attribute, not an internal error */
	bool no_memory;   /* sticky */
	struct {
		struct eval_entry *items;
		size_t n, cap;
	} cache;
	struct eval_tensor *tensors; /* by value id; t.rank -1: not in memory */
	struct eval_proof *proofs;   /* by value id */
	uint32_t n_analyses;
};

/* A result of the group. If the result is a view of a value of the group, `value` is that value and `to` is
 * addressed by its axes, so that the view costs nothing. */
struct eval_output {
	struct ir_value value;
	struct eval_tensor to;
};

struct eval_outputs {
	struct eval_output *items;
	size_t n;
};

/* Initializes e and emits the addresses of all tensors that the group reads. Outside of loops, before everything
 * else. */
TFMC_MUST_USE enum tfmc_status eval_begin(struct eval *e, const struct kernel_job *job);
/* The results that must be stored: not states and state slices, which are written in place. */
TFMC_MUST_USE enum tfmc_status eval_outputs(struct eval *e, struct eval_outputs *out);
/* TFMC_OK, TFMC_NO_MEMORY, or after a diagnostic TFMC_INVALID (unsupported, refused) or TFMC_INTERNAL. */
enum tfmc_status eval_status(const struct eval *e);
/* Report an internal error, or a missing feature, at op (NULL: the group); only the first one counts. Return none. */
struct kb_val eval_internal(struct eval *e, const struct ir_op *op, const char *what);
struct kb_val eval_unsupported(struct eval *e, const struct ir_op *op, const char *what);
/* Reports an attribute of the group that its kernel cannot have (E606). */
void eval_reject(struct eval *e, const char *why);

struct eval_width {
	int lanes, valid;
};
/* Sets the vector width. Returns the previous one. */
struct eval_width eval_width(struct eval *e, int lanes, int valid);

/* The value of v at p: e->lanes lanes, or a scalar if p.vec is -1. After a failure: a valid value of the right
 * type. */
struct kb_val eval_value(struct eval *e, struct ir_value v, const struct eval_point *p);
/* Defines the value of v at p. */
void eval_bind(struct eval *e, struct ir_value v, const struct eval_point *p, struct kb_val value);
/* Cache scopes: values emitted inside of a loop or condition are not visible after it. eval_release drops what was
 * cached since eval_mark. */
size_t eval_mark(const struct eval *e);
void eval_release(struct eval *e, size_t mark);
/* Emits the row offsets (all axes but p.vec) of all loads in v before a loop along p.vec: loop-invariant code
 * motion by hand, since no LLVM pass does it. */
void eval_hoist(struct eval *e, struct ir_value v, const struct eval_point *p);
/* True if v can be evaluated with vectors along the axis. */
bool eval_vectorizes(struct eval *e, struct ir_value v, int axis);

/* The tensor of v if it is in memory, otherwise NULL. */
const struct eval_tensor *eval_tensor(const struct eval *e, struct ir_value v);
/* Element offset of the point, without axis p.vec. */
struct kb_val eval_offset(struct eval *e, const struct eval_tensor *t, const struct eval_point *p);
/* Stores value, a scalar or a vector like that of eval_value, as element p of t, in the type of t. */
void eval_store(struct eval *e, const struct eval_tensor *t, const struct eval_point *p, struct kb_val value);
/* Evaluates and stores an output at p. */
void eval_store_output(struct eval *e, const struct eval_output *o, const struct eval_point *p);

/* The type in which a dtype is computed: f32, f64, i32, i64 or bool. */
enum kb_scalar eval_scalar(enum ir_dtype t);
/* The type in which a dtype is stored; a bool is a byte. */
enum kb_scalar eval_stored_scalar(enum ir_dtype t);
static inline const struct ir_type *eval_type(const struct eval *e, struct ir_value v)
{
	return ir_type_of(e->job->func, v);
}
/* True if the group computes v. */
bool eval_is_in_group(const struct eval *e, struct ir_value v);
/* The value of a dim expression. */
struct kb_val eval_dim(struct eval *e, const struct ir_dim *d);
/* Sizes of the axes of v. */
void eval_sizes(struct eval *e, struct ir_value v, struct kb_val size[IR_RANK_MAX]);
/* Product of size[from .. to - 1]. */
struct kb_val eval_dim_product(struct eval *e, const struct kb_val *size, int from, int to);
/* From now on v is loaded from `t`, a buffer that the generator has filled; bias->v none: no bias. */
void eval_set_tensor(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                     const struct eval_bias *bias);
/* Row-major position `at` to indices of the axes [0, n), as numpy.unravel_index. */
void eval_unravel(struct eval *e, struct kb_val at, const struct kb_val *size, int n, struct kb_val *index);
/* This worker's range of `total` tasks: returns its begin; *hi: its end. */
struct kb_val eval_worker_range(struct eval *e, struct kb_val total, struct kb_val *hi);
/* The constant v of type s in the lanes of p. */
struct kb_val eval_const(struct eval *e, const struct eval_point *p, enum kb_scalar s, double v);
/* index[axis] as i32 in the lanes of p. */
struct kb_val eval_index_i32(struct eval *e, const struct eval_point *p, int axis);
/* A vector from scalars, one for each valid lane. */
struct kb_val eval_build_vector(struct eval *e, const struct kb_val *lane);

/* Parts of eval_value by kind of op: each returns the value of op's result at p, or none after a diagnostic. */
struct kb_val eval_elementwise(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* Views, gather, select_rows, pad, concat: the operand at the point that p shows, or lane by lane. */
struct kb_val eval_movement(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* Ops that read more than one element of an operand: masks, reductions, contractions, ops along rows. */
struct kb_val eval_by_loops(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* rope, lane by lane unless a vector keeps pairs together (eval_rope_vectorizes). */
struct kb_val eval_rope(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* Rounds v to a dtype that is narrower than the type it is computed in; integers wrap. */
struct kb_val eval_round_to_dtype(struct eval *e, enum ir_dtype t, struct kb_val v);
/* cumsum, topk, last_index; p without lanes. */
struct kb_val eval_in_order(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* index clamped to [0, n - 1]. */
struct kb_val eval_clamp_index(struct eval *e, struct kb_val index, struct kb_val n);
/* True if vectors of `lanes` along the last axis of a rope never cross from one half of the rotated features to the
 * other (rotate-half layout), or split a pair (interleaved layout). */
bool eval_rope_vectorizes(const struct eval *e, const struct ir_op *op, int lanes);
/* The point of operand 0 that a view op shows at p. False if the lanes would not be neighbours there. */
bool eval_view_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                     struct eval_point *out);
/* The axis of operand 0 that corresponds to an axis of a view; -1: none (broadcast); -2: lanes would not be
 * neighbours. */
int eval_view_axis(struct eval *e, const struct ir_op *op, int axis);

/* Columns [first, end) of a row of x. */
struct eval_columns {
	struct ir_value x;
	struct eval_point row;
	struct kb_val first, end;
	int lanes;        /* vector width along the last axis; 1: scalar */
	int64_t unrolled; /* > 0: number of columns, a multiple of lanes: the loop is unrolled fully */
};
#define EVAL_BLOCK_VALUES 3
/* The values of a block op for these columns of its operand. Returns how many, at most EVAL_BLOCK_VALUES. */
int eval_block_values(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                      struct kb_val number[EVAL_BLOCK_VALUES]);
/* Columns of a block. */
int64_t eval_block_width(const struct ir_op *op);

/* An attention mask. Query i of sequence b is at position past[b] + i and sees keys below len[b]; causal: none
 * after its position; window > 0: only keys less than `window` positions away. len and past may be none. */
struct eval_mask {
	struct ir_value len, past;
	bool causal;
	int64_t window; /* 0: none */
};
/* i32: one past the last key that query i sees; none if it sees all. */
struct kb_val eval_visible_end(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i);
/* i32: the first key that query i sees, may be negative; none without a window. */
struct kb_val eval_visible_begin(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i);

static inline struct ir_value eval_result(const struct ir_op *op)
{
	return op->results[0];
}

#endif
