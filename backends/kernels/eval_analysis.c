/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: analyses before code is emitted. eval_vectorizes: are lanes along an axis neighbours in every
 * operand, down to memory. eval_hoist: which row offsets are invariant in a loop along an axis.
 */
#include "backends/kernels/eval.h"

/* Values visited by one analysis, which visits shared operands again; beyond it the answer is no. */
#define BUDGET 4096

struct analysis {
	struct eval *e;
	int budget;
};

#define NO_AXIS (-2) /* lanes would not be neighbours */

static bool tensor_vectorizes(const struct analysis *q, const struct eval_tensor *t, int axis)
{
	if (axis < 0)
		return true;
	if (t->t.encoding == ENC_PANEL16)
		return axis == t->t.rank - 1 || (axis == t->t.rank - 2 && kb_caps(q->e->k)->lanes <= 16);
	if (t->t.ring > 0 && axis == t->t.rank - 2)
		return false;
	return t->t.stride[axis].is_const && (t->t.stride[axis].c == 0 || t->t.stride[axis].c == 1);
}

static bool is_reduced(const struct ir_op *op, int rank, int axis)
{
	const struct attrs_reduce_sum *a = op->attrs;
	const struct attrs_argmax *arg = op->attrs;
	if (op->code == OP_argmax)
		return (arg->axis < 0 ? arg->axis + rank : arg->axis) == axis;
	for (size_t i = 0; i < a->axes.n; i++)
		if ((a->axes.items[i] < 0 ? a->axes.items[i] + rank : a->axes.items[i]) == axis)
			return true;
	return false;
}

/* The axis of a reduction's operand that becomes `axis` of the result; -1: none. */
static int reduced_axis(const struct analysis *q, const struct ir_op *op, int axis)
{
	int rank = eval_type(q->e, op->operands[0])->rank, at = 0;
	bool keep = op->code != OP_argmax && ((const struct attrs_reduce_sum *)op->attrs)->keep;
	if (keep)
		return is_reduced(op, rank, axis) ? -1 : axis;
	for (int i = 0; i < rank; i++)
		if (!is_reduced(op, rank, i) && at++ == axis)
			return i;
	return -1;
}

/* The axis of operand i that corresponds to `axis` of the result; -1: the operand is the same for all lanes;
 * NO_AXIS. */
static int operand_axis(const struct analysis *q, const struct ir_op *op, size_t i, int axis)
{
	int last = eval_type(q->e, eval_result(op))->rank - 1, ids;
	const struct attrs_matmul *matmul = op->attrs;
	const struct attrs_pad *pad = op->attrs;
	const struct attrs_concat *concat = op->attrs;
	if (axis < 0)
		return -1;
	switch ((int)op->code) {
	case OP_mask_rows: return i == 0 ? axis : axis == 0 ? 0 : -1;
	case OP_mask: return axis != last ? NO_AXIS : i == 0 ? axis : -1;
	case OP_strip_argmax:
	case OP_strip_score:
	case OP_cumsum:
	case OP_topk:
	case OP_last_at: return NO_AXIS;
	case OP_matmul:
		if (axis != last)
			return NO_AXIS;
		return i == 0 ? -1 : matmul->tb ? last - 1 : last;
	case OP_linear: return axis != last ? NO_AXIS : i == 0 ? -1 : 0;
	case OP_expert_linear: return axis != last ? NO_AXIS : i % 2 == 0 ? -1 : 1;
	case OP_rope: /* a vector stays in one half, in x and in the table */
		if (axis != last || !eval_rope_vectorizes(q->e, op, kb_caps(q->e->k)->lanes))
			return NO_AXIS;
		return i == 0 ? last : i == 1 ? 1 : -1;
	case OP_gather:
	case OP_take_rows:
		ids = op->code == OP_gather ? eval_type(q->e, op->operands[1])->rank : 1;
		if (axis < ids)
			return NO_AXIS;
		return i > 0 ? -1 : op->code == OP_gather ? axis - ids + 1 : axis + 1;
	case OP_pad: return axis == (int)pad->axis ? NO_AXIS : axis;
	case OP_concat: return axis == (int)concat->axis ? NO_AXIS : axis;
	}
	if (ir_op_has(op->code, TRAIT_REDUCE))
		return reduced_axis(q, op, axis);
	return ir_op_has(op->code, TRAIT_VIEW) ? eval_view_axis(q->e, op, axis) : axis;
}

/* Ops that the evaluator computes from their operands; the results of others are bound by generators. */
static bool is_computed_from_operands(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_ELEMENTWISE) || ir_op_has(code, TRAIT_REDUCE) ||
	       ir_op_has(code, TRAIT_VIEW) || ir_op_has(code, TRAIT_MOVE) || code == OP_mask ||
	       code == OP_matmul || code == OP_linear || code == OP_expert_linear || code == OP_rope;
}

static bool value_vectorizes(struct analysis *q, struct ir_value v, int axis)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	if (--q->budget < 0)
		return false;
	if (t)
		return tensor_vectorizes(q, t, axis);
	for (size_t i = 0; op && i < op->n_operands; i++) {
		int of = operand_axis(q, op, i, axis);
		if (of == NO_AXIS)
			return false;
		if (is_computed_from_operands(op->code) && op->operands[i].id &&
		    !value_vectorizes(q, op->operands[i], of))
			return false;
	}
	return true;
}

bool eval_vectorizes(struct eval *e, struct ir_value v, int axis)
{
	struct analysis q = {e, BUDGET};
	return value_vectorizes(&q, v, axis);
}

/* ---- row offsets ---- */

static void hoist(struct analysis *q, struct ir_value v, const struct eval_point *p);

/* A reshape that changes the axis of lanes has no single row in its operand. */
static void hoist_view(struct analysis *q, const struct ir_op *op, const struct eval_point *p)
{
	struct eval_point at;
	bool changes_lanes = op->code == OP_reshape && eval_view_axis(q->e, op, p->vec) < 0;
	if (!changes_lanes && eval_view_point(q->e, op, p, &at))
		hoist(q, op->operands[0], &at);
}

static void hoist_op(struct analysis *q, const struct ir_op *op, const struct eval_point *p)
{
	if (op->code == OP_mask_rows || op->code == OP_rope) {
		hoist(q, op->operands[0], p);
	} else if (ir_op_has(op->code, TRAIT_ELEMENTWISE)) {
		for (size_t i = 0; i < op->n_operands; i++)
			hoist(q, op->operands[i], p);
	} else if (op->code == OP_transpose || op->code == OP_broadcast || op->code == OP_slice) {
		hoist_view(q, op, p);
	}
}

static void hoist(struct analysis *q, struct ir_value v, const struct eval_point *p)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	if (--q->budget < 0 || !v.id)
		return;
	if (t && t->t.encoding == ENC_ROW)
		(void)eval_row_offset(q->e, v, t, p);
	else if (!t && op)
		hoist_op(q, op, p);
}

void eval_hoist(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	struct analysis q = {e, BUDGET};
	if (p->vec >= 0)
		hoist(&q, v, p);
}
