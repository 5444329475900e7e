/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: views (reshape, transpose, broadcast, slice) and data movement (gather, take_rows, pad, concat) by
 * index arithmetic. Where lanes are not neighbours in the operand, each lane is evaluated as a scalar.
 */
#include "backends/kernels/eval.h"

/* Number of trailing axes of equal size: a reshape leaves their indices unchanged. */
static int common_tail(const struct ir_type *a, const struct ir_type *b)
{
	int n = 0;
	while (n < a->rank && n < b->rank && a->dims[a->rank - 1 - n] == b->dims[b->rank - 1 - n])
		n++;
	return n;
}

/* ---- axes ---- */

/* Lanes along an axis of a reshape's result stay neighbours if the operand's axis is a multiple of it; -2: they do
 * not. */
static int reshape_axis(struct eval *e, const struct ir_type *from, const struct ir_type *to, int axis)
{
	int tail = common_tail(from, to);
	int head = to->rank - tail, source = from->rank - tail;
	if (axis >= head)
		return axis - head + source;
	if (axis != head - 1 || source == 0)
		return -2;
	bool is_multiple =
	        ir_dim_divide(e->job->module->dims, from->dims[source - 1], to->dims[axis]) != NULL;
	return is_multiple ? source - 1 : -2;
}

static int broadcast_axis(const struct ir_type *from, const struct ir_type *to, int axis)
{
	int source = axis - (to->rank - from->rank);
	if (source < 0 || from->dims[source] != to->dims[axis])
		return -1;
	return source;
}

int eval_view_axis(struct eval *e, const struct ir_op *op, int axis)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	if (axis < 0)
		return -1;
	switch ((int)op->code) {
	case OP_reshape: return reshape_axis(e, from, to, axis);
	case OP_broadcast: return broadcast_axis(from, to, axis);
	case OP_transpose: return (int)((const struct attrs_transpose *)op->attrs)->perm.items[axis];
	case OP_slice: return axis;
	}
	return -2;
}

/* ---- points ---- */

static void reshape_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                          struct eval_point *out)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	int tail = common_tail(from, to);
	int head = to->rank - tail, source = from->rank - tail;
	struct kb_val size[IR_RANK_MAX], at = kb_index(e->k, 0);
	for (int i = 0; i < head; i++)
		at = kb_add(e->k, kb_mul(e->k, at, eval_dim(e, to->dims[i])), p->index[i]);
	for (int i = 0; i < source; i++)
		size[i] = eval_dim(e, from->dims[i]);
	eval_unravel(e, at, size, source, out->index);
	for (int i = 0; i < tail; i++)
		out->index[source + i] = p->index[head + i];
	if (tail > 0)
		out->flat = p->flat;
}

static void broadcast_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                            struct eval_point *out)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	int added = to->rank - from->rank;
	for (int i = 0; i < from->rank; i++) {
		bool same = from->dims[i] == to->dims[i + added];
		out->index[i] = same ? p->index[i + added] : kb_index(e->k, 0);
	}
}

/* True if a vector along `axis` may begin at any index of the operand, not only at multiples of the lanes. */
static bool may_misalign(struct eval *e, const struct ir_op *op, int axis)
{
	const struct ir_type *from = eval_type(e, op->operands[0]), *to = eval_type(e, eval_result(op));
	if (op->code == OP_reshape)
		return axis >= 0 && axis < to->rank - common_tail(from, to);
	return op->code == OP_slice && axis == (int)((const struct attrs_slice *)op->attrs)->axis;
}

bool eval_view_point(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                     struct eval_point *out)
{
	const struct attrs_slice *slice = op->attrs;
	const struct attrs_transpose *transpose = op->attrs;
	*out = (struct eval_point){.rank = eval_type(e, op->operands[0])->rank};
	out->vec = eval_view_axis(e, op, p->vec);
	if (out->vec == -2 && e->lanes > 1)
		return false;
	out->shifted = p->shifted || may_misalign(e, op, p->vec);
	if (op->code == OP_reshape)
		reshape_point(e, op, p, out);
	if (op->code == OP_broadcast)
		broadcast_point(e, op, p, out);
	for (int i = 0; op->code == OP_transpose && i < p->rank; i++)
		out->index[transpose->perm.items[i]] = p->index[i];
	for (int i = 0; op->code == OP_slice && i < p->rank; i++) {
		out->index[i] = p->index[i];
		if (i == (int)slice->axis)
			out->index[i] = kb_add(e->k, p->index[i], eval_dim(e, slice->begin));
	}
	if (out->vec == -2)
		out->vec = -1; /* one lane: a scalar */
	return true;
}

/* ---- movement ---- */

struct kb_val eval_per_lane(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb_val lane[KB_LANES_MAX];
	for (int l = 0; l < e->valid; l++) {
		struct eval_point at = *p;
		at.vec = -1;
		at.index[p->vec] = kb_add_const(e->k, p->index[p->vec], l);
		if (p->vec != p->rank - 1)
			at.flat = (struct kb_val){0};
		lane[l] = eval_value(e, eval_result(op), &at);
	}
	return eval_build_vector(e, lane);
}

struct kb_val eval_clamp_index(struct eval *e, struct kb_val index, struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val top = kb_add_const(k, n, -1);
	struct kb_val i = kb_min(k, kb_cvt(k, index, KB_INDEX), top);
	return kb_max(k, i, kb_index(k, 0));
}

/* table [V, ..], ids [..]: table[ids]; ids are clamped to the table. */
static struct kb_val gather(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *table = eval_type(e, op->operands[0]);
	int r = eval_type(e, op->operands[1])->rank;
	struct eval_point id = {.rank = r, .vec = -1};
	struct eval_point at = {.rank = table->rank, .vec = -1, .shifted = p->shifted};
	if (p->vec >= 0 && p->vec < r && e->lanes > 1)
		return eval_per_lane(e, op, p);
	for (int i = 0; i < r; i++)
		id.index[i] = p->index[i];
	if (p->rank == r + 1)
		id.flat = (struct kb_val){0};
	at.index[0] = eval_clamp_index(e, eval_value(e, op->operands[1], &id), eval_dim(e, table->dims[0]));
	for (int i = 1; i < table->rank; i++)
		at.index[i] = p->index[r + i - 1];
	if (p->vec >= r)
		at.vec = p->vec - r + 1;
	return eval_value(e, op->operands[0], &at);
}

/* x [B, S, ..], at [B]: x[b, at[b]], [B, ..]. */
static struct kb_val take_rows(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct ir_type *x = eval_type(e, op->operands[0]);
	struct eval_point row = {.rank = 1, .vec = -1, .index = {p->index[0]}};
	struct eval_point at = {.rank = x->rank, .vec = p->vec > 0 ? p->vec + 1 : -1, .shifted = p->shifted};
	if (p->vec == 0 && e->lanes > 1)
		return eval_per_lane(e, op, p);
	at.index[0] = p->index[0];
	at.index[1] = eval_clamp_index(e, eval_value(e, op->operands[1], &row), eval_dim(e, x->dims[1]));
	for (int i = 2; i < x->rank; i++)
		at.index[i] = p->index[i - 1];
	return eval_value(e, op->operands[0], &at);
}

/* if (lo <= index[axis] < hi) to = x at index[axis] - lo. */
static void set_if_inside(struct eval *e, struct ir_value x, const struct eval_point *p, int axis,
                          struct kb_val lo, struct kb_val hi, struct kb_var to)
{
	struct kb *k = e->k;
	struct kb_val i = p->index[axis];
	struct kb_val is_below = kb_cmp(k, KB_LT, i, hi);
	struct kb_val inside = kb_bin(k, KB_AND, kb_cmp(k, KB_GE, i, lo), is_below);
	struct eval_point at = *p;
	size_t mark = eval_mark(e);
	kb_if(k, inside);
	at.index[axis] = kb_sub(k, i, lo);
	if (axis != p->rank - 1)
		at.flat = (struct kb_val){0};
	struct kb_val v = eval_value(e, x, &at);
	kb_set(k, to, p->vec < 0 ? v : kb_splat(k, v, e->lanes));
	kb_end_if(k);
	eval_release(e, mark);
}

static struct kb_var result_var(struct eval *e, const struct ir_op *op, const struct eval_point *p,
                                double init)
{
	enum kb_scalar s = eval_scalar(eval_type(e, eval_result(op))->dtype);
	struct kb_type t = KB_TYPE(s, p->vec < 0 ? 1 : e->lanes);
	return kb_var(e->k, ir_op_desc(op->code)->name, t, eval_const(e, p, s, init));
}

static struct kb_val pad(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_pad *a = op->attrs;
	struct kb_var to = result_var(e, op, p, a->value);
	struct kb_val lo = kb_index(e->k, a->before);
	struct kb_val size = eval_dim(e, eval_type(e, op->operands[0])->dims[a->axis]);
	set_if_inside(e, op->operands[0], p, (int)a->axis, lo, kb_add(e->k, lo, size), to);
	return kb_get(e->k, to);
}

static struct kb_val concat(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	int axis = (int)((const struct attrs_concat *)op->attrs)->axis;
	struct kb_var to = result_var(e, op, p, 0);
	struct kb_val lo = kb_index(e->k, 0);
	for (size_t i = 0; i < op->n_operands; i++) {
		struct kb_val hi = kb_add(e->k, lo, eval_dim(e, eval_type(e, op->operands[i])->dims[axis]));
		set_if_inside(e, op->operands[i], p, axis, lo, hi, to);
		lo = hi;
	}
	return kb_get(e->k, to);
}

/* The axis of a pad or concat. */
static int border_axis(const struct ir_op *op)
{
	return (int)(op->code == OP_pad ? ((const struct attrs_pad *)op->attrs)->axis
	                                : ((const struct attrs_concat *)op->attrs)->axis);
}

struct kb_val eval_movement(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct eval_point at;
	if (op->code == OP_gather)
		return gather(e, op, p);
	if (op->code == OP_take_rows)
		return take_rows(e, op, p);
	if (op->code == OP_pad || op->code == OP_concat) {
		if (p->vec == border_axis(op) && e->lanes > 1)
			return eval_per_lane(e, op, p);
		return op->code == OP_pad ? pad(e, op, p) : concat(e, op, p);
	}
	if (!eval_view_point(e, op, p, &at))
		return eval_per_lane(e, op, p);
	return eval_value(e, op->operands[0], &at);
}
