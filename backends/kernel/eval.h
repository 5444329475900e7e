/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: emits the value of an element (or of `lanes` neighbours along
 * one axis) of any value of a group. Templates bind what they have computed
 * (eval_bind) and ask for what is built on it; everything else is pulled through
 * elementwise ops, views, gathers and loads. Values are cached by element, so
 * nothing is computed twice in one scope.
 *
 * Lanes that run past the end (valid < lanes) are never loaded or stored; what
 * they hold is of no meaning.
 */
#ifndef TFMC_BACKENDS_KERNEL_EVAL_H
#define TFMC_BACKENDS_KERNEL_EVAL_H

#include "backends/kernel/group.h"

/* One element of a value, or neighbours along axis `vec`. */
struct eval_point {
	int rank;
	struct kb_val index[IR_RANK_MAX]; /* i64 */
	int vec;                          /* lane l is at index[vec] + l; -1: one element, scalar values */
	struct kb_val flat;               /* all axes but the last as one row number; none when not known */
	bool shifted;                     /* index[vec] need not be a multiple of the lanes */
};

/* A vector by columns that is still to be added to what lies in memory: the bias of sums of products. */
struct eval_bias {
	struct ir_value v;         /* [N], of experts [E,N] */
	struct kb_val expert;      /* which one, or none */
	int64_t begin;             /* column of element 0 */
	int64_t step[IR_RANK_MAX]; /* columns from one index of an axis to the next; last: 1 */
};

/* A tensor in memory that leading axes may walk as one. */
struct eval_tensor {
	struct kb_tensor t;
	bool is_flat;                 /* rows of the last axis are at multiples of stride[rank - 2] */
	struct kb_val skip;           /* elements that are added to every offset; may be none */
	const struct eval_bias *bias; /* NULL: none */
};

struct eval_entry {
	uint32_t value;
	struct eval_point point;
	struct kb_val result;
	int lanes;
	bool is_offset; /* result: element offset of all axes but point.vec in the tensor of the value */
};

struct eval {
	const struct kernel_job *job;
	struct kb *k;
	int lanes;        /* lanes of vector values, a power of two; 1: everything is scalar */
	int valid;        /* lanes that exist, 1 .. lanes */
	int depth;        /* of the walk */
	bool failed;      /* a diagnostic was emitted */
	bool unsupported; /* the diagnostic: what the user asked for is not built yet */
	bool no_memory;   /* sticky */
	struct {
		struct eval_entry *items;
		size_t n, cap;
	} cache;
	struct eval_tensor *tensors; /* by value id; rank -1: not in memory */
};

/* Where a result of the group goes, seen from the value before the views at its end. */
struct eval_output {
	struct ir_value value; /* what is computed */
	struct eval_tensor to; /* sizes and strides of the axes of `value` */
};

struct eval_outputs {
	struct eval_output *items;
	size_t n;
};

/* Resolves all tensors the group reads. Emit at function level, before everything else. */
TFMC_MUST_USE enum tfmc_status eval_begin(struct eval *e, const struct kernel_job *job);
/* The results that must be stored (state and slices of state need nothing). */
TFMC_MUST_USE enum tfmc_status eval_outputs(struct eval *e, struct eval_outputs *out);
/* TFMC_OK unless something was refused. */
enum tfmc_status eval_status(const struct eval *e);
/* Refuses with an internal error, or for what is not built yet. Always none. */
struct kb_val eval_internal(struct eval *e, const struct ir_op *op, const char *what);
struct kb_val eval_unsupported(struct eval *e, const struct ir_op *op, const char *what);

/* Changes the vector width; gives the width before. */
struct eval_width {
	int lanes, valid;
};
struct eval_width eval_width(struct eval *e, int lanes, int valid);

/* The value of v at p: e->lanes lanes, or a scalar when p.vec is -1. */
struct kb_val eval_value(struct eval *e, struct ir_value v, const struct eval_point *p);
/* From now on v at p is `value`. */
void eval_bind(struct eval *e, struct ir_value v, const struct eval_point *p, struct kb_val value);
/* What was cached since the mark is forgotten: the scope it was emitted in ends. */
size_t eval_mark(const struct eval *e);
void eval_release(struct eval *e, size_t mark);
/* Emits row addresses (all axes but p.vec) of everything v loads, so that a loop along p.vec need not. */
void eval_hoist(struct eval *e, struct ir_value v, const struct eval_point *p);
/* True when v can be evaluated with vectors along the axis. */
bool eval_vectorizes(struct eval *e, struct ir_value v, int axis);

/* The tensor of v when it lies in memory, else NULL. */
const struct eval_tensor *eval_tensor(const struct eval *e, struct ir_value v);
/* Element offset of the point, without axis p.vec. */
struct kb_val eval_offset(struct eval *e, const struct eval_tensor *t, const struct eval_point *p);
struct kb_val eval_load(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                        const struct eval_point *p);
/* Words `at` of panels of bf16 (ir/target/tile.h), one for each of `lanes` columns: element i of K as f32. */
struct kb_val eval_load_bf16_pair(struct kb *k, struct kb_val ptr, struct kb_val at, struct kb_val i,
                                  int lanes);
void eval_store(struct eval *e, const struct eval_tensor *t, const struct eval_point *p, struct kb_val value);
/* Evaluates and stores an output at p. */
void eval_store_output(struct eval *e, const struct eval_output *o, const struct eval_point *p);

/* The scalar in which a dtype is computed: f32, f64, i32, i64 or bool. */
enum kb_scalar eval_scalar(enum ir_dtype t);
/* What it is in memory; a bool is a byte. */
enum kb_scalar eval_stored_scalar(enum ir_dtype t);
bool eval_is_in_group(const struct eval *e, struct ir_value v); /* computed by the group */
struct kb_val eval_dim(struct eval *e, const struct ir_dim *d);
/* Sizes of the axes of v. */
void eval_sizes(struct eval *e, struct ir_value v, struct kb_val size[IR_RANK_MAX]);
/* Product of size[from, to). */
struct kb_val eval_dim_product(struct eval *e, const struct kb_val *size, int from, int to);
/* From now on v lies in memory, as `t` says; with a bias that was not added yet where it has a value. */
void eval_set_tensor(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                     const struct eval_bias *bias);
/* Row-major position -> indices of the axes [0, n). */
void eval_unravel(struct eval *e, struct kb_val at, const struct kb_val *size, int n, struct kb_val *index);
/* This worker's part of `total` tasks. */
struct kb_val eval_worker_range(struct eval *e, struct kb_val total, struct kb_val *hi);
/* A constant of a computing type in the lanes of p. */
struct kb_val eval_const(struct eval *e, const struct eval_point *p, enum kb_scalar s, double v);
/* index[axis] as i32 in the lanes of p. */
struct kb_val eval_index_i32(struct eval *e, const struct eval_point *p, int axis);
/* A vector from scalars, one for each valid lane. */
struct kb_val eval_build_vector(struct eval *e, const struct kb_val *lane);

/* Makes the row address of a load at p ready. */
void eval_hoist_offset(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                       const struct eval_point *p);

/* Parts of eval_value; each gives the value of op's result at p. */
struct kb_val eval_elementwise(struct eval *e, const struct ir_op *op, const struct eval_point *p);
struct kb_val eval_movement(struct eval *e, const struct ir_op *op, const struct eval_point *p);
struct kb_val eval_by_loops(struct eval *e, const struct ir_op *op, const struct eval_point *p);
struct kb_val eval_rope(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* floor_div and mod of a and b. */
struct kb_val eval_floor_division(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b);
/* pow of ints. */
struct kb_val eval_int_power(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b);
/* Rounds to a dtype that is narrower than the type it is computed in; ints wrap. */
struct kb_val eval_round_to_dtype(struct eval *e, enum ir_dtype t, struct kb_val v);
/* The same, one lane after the other. */
struct kb_val eval_per_lane(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* One number of a strip; p without lanes. */
struct kb_val eval_strip(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* cumsum, topk, last_at; p without lanes. */
struct kb_val eval_in_order(struct eval *e, const struct ir_op *op, const struct eval_point *p);
/* index clamped into [0, n). */
struct kb_val eval_clamp_index(struct eval *e, struct kb_val index, struct kb_val n);
/* True when lanes along the last axis of a rope turn alike, each with its own angle. */
bool eval_rope_vectorizes(const struct eval *e, const struct ir_op *op, int lanes);
/* The point of operand 0 that a view op shows at p. False when lanes would not be neighbours there. */
bool eval_view_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                     struct eval_point *out);
/* The axis of operand 0 along which a view's axis runs, -1: none (broadcast), -2: lanes are no neighbours. */
int eval_view_axis(struct eval *e, const struct ir_op *op, int axis);

/* Columns [first, end) of a row of x. */
struct eval_columns {
	struct ir_value x;
	struct eval_point row;
	struct kb_val first, end;
	int lanes;        /* of the vectors that x has along its last axis; 1: none */
	int64_t unrolled; /* so many columns are taken without a loop, whole vectors: all of them; 0: none */
};
/* The largest and the lowest column that holds it, i32: NaN is passed over; of nothing else NaN in the first. */
struct kb_val eval_argmax_columns(struct eval *e, const struct eval_columns *c, struct kb_val *where);
/* The numbers of a strip op for these columns of its operand, at most EVAL_STRIP_VALUES; gives how many. */
#define EVAL_STRIP_VALUES 3
int eval_strip_values(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                      struct kb_val number[EVAL_STRIP_VALUES]);
int64_t eval_strip_width(const struct ir_op *op);

/*
 * Keys [0, limit) are visible from query i of sequence b: i32, none when all are.
 * len and past may be absent.
 */
struct eval_mask {
	struct ir_value len, past;
	bool causal;
	int64_t window; /* 0: none */
};
/* i32: one past the last key that query i sees, or none when that is all of them. */
struct kb_val eval_visible_end(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i);
/* i32: the first one, which may be negative, or none without a window. */
struct kb_val eval_visible_begin(struct eval *e, const struct eval_mask *m, struct kb_val b, struct kb_val i);

static inline struct ir_value eval_result(const struct ir_op *op)
{
	return op->results[0];
}

#endif
