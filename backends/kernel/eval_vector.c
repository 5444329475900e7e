/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: what can be asked before code is emitted: whether lanes along
 * an axis are neighbours in everything a value is made of, and which row
 * addresses a loop along an axis should find ready.
 */
#include "backends/kernel/eval.h"

#define BUDGET 4096 /* values visited by one question */

struct question {
	struct eval *e;
	int budget;
};

static const struct ir_type *type_of(const struct eval *e, struct ir_value v)
{
	return ir_type_of(e->job->func, v);
}

static bool ask(struct question *q, struct ir_value v, int axis);

/* All operands at the same axis. */
static bool ask_operands(struct question *q, const struct ir_op *op, int axis)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && !ask(q, op->operands[i], axis))
			return false;
	return true;
}

static bool ask_tensor(const struct question *q, const struct eval_tensor *t, int axis)
{
	if (axis < 0)
		return true;
	if (t->t.encoding == ENC_PANEL16)
		return axis == t->t.rank - 1 || (axis == t->t.rank - 2 && kb_caps(q->e->k)->lanes <= 16);
	if (t->t.ring > 0 && axis == t->t.rank - 2)
		return false;
	return t->t.stride[axis].is_const && (t->t.stride[axis].c == 0 || t->t.stride[axis].c == 1);
}

static bool ask_view(struct question *q, const struct ir_op *op, int axis)
{
	int source = eval_view_axis(q->e, op, axis);
	return source != -2 && ask(q, op->operands[0], source);
}

static bool ask_move(struct question *q, const struct ir_op *op, int axis)
{
	const struct attrs_pad *pad = op->attrs;
	const struct attrs_concat *concat = op->attrs;
	int ids = op->code == OP_gather ? type_of(q->e, op->operands[1])->rank : 1;
	switch ((int)op->code) {
	case OP_gather:
	case OP_take_rows: {
		int behind = op->code == OP_gather ? axis - ids + 1 : axis + 1;
		return ask(q, op->operands[1], -1) && (axis < 0 || axis >= ids) &&
		       ask(q, op->operands[0], axis < 0 ? -1 : behind);
	}
	case OP_pad: return axis != (int)pad->axis && ask(q, op->operands[0], axis);
	case OP_concat: return axis != (int)concat->axis && ask_operands(q, op, axis);
	}
	return ask_view(q, op, axis);
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

/* The axis of x that becomes `axis` of the result. */
static int reduced_axis(const struct question *q, const struct ir_op *op, int axis)
{
	int rank = type_of(q->e, op->operands[0])->rank, at = 0;
	bool keep = op->code != OP_argmax && ((const struct attrs_reduce_sum *)op->attrs)->keep;
	if (keep)
		return is_reduced(op, rank, axis) ? -1 : axis;
	for (int i = 0; i < rank; i++) {
		if (is_reduced(op, rank, i))
			continue;
		if (at++ == axis)
			return i;
	}
	return -1;
}

static bool ask_matmul(struct question *q, const struct ir_op *op, int axis)
{
	const struct attrs_matmul *at = op->attrs;
	int r = type_of(q->e, eval_result(op))->rank;
	if (axis < 0)
		return ask_operands(q, op, -1);
	return axis == r - 1 && ask(q, op->operands[0], -1) &&
	       ask(q, op->operands[1], at->tb ? r - 2 : r - 1);
}

static bool ask_linear(struct question *q, const struct ir_op *op, int axis)
{
	int r = type_of(q->e, eval_result(op))->rank, lanes = axis < 0 ? -1 : 0;
	return (axis < 0 || axis == r - 1) && ask(q, op->operands[0], -1) && ask(q, op->operands[1], lanes) &&
	       (!op->operands[2].id || ask(q, op->operands[2], lanes));
}

static bool ask_expert_linear(struct question *q, const struct ir_op *op, int axis)
{
	int r = type_of(q->e, eval_result(op))->rank, lanes = axis < 0 ? -1 : 1;
	return (axis < 0 || axis == r - 1) && ask(q, op->operands[0], -1) && ask(q, op->operands[1], lanes) &&
	       ask(q, op->operands[2], -1) && (!op->operands[3].id || ask(q, op->operands[3], lanes));
}

/* Whole vectors of one half, in x and in the table. */
static bool ask_rope(struct question *q, const struct ir_op *op, int axis)
{
	int last = type_of(q->e, eval_result(op))->rank - 1;
	if (!ask(q, op->operands[2], -1))
		return false;
	if (axis < 0)
		return ask(q, op->operands[0], -1) && ask(q, op->operands[1], -1);
	return axis == last && eval_rope_vectorizes(q->e, op, kb_caps(q->e->k)->lanes) &&
	       ask(q, op->operands[0], last) && ask(q, op->operands[1], 1);
}

static bool ask_op(struct question *q, const struct ir_op *op, int axis)
{
	int last = type_of(q->e, eval_result(op))->rank - 1;
	if (ir_op_has(op->code, TRAIT_CONST))
		return true;
	if (op->code == OP_mask_rows)
		return ask(q, op->operands[0], axis) && ask(q, op->operands[1], axis == 0 ? 0 : -1);
	if (op->code == OP_mask)
		return (axis < 0 || axis == last) && ask(q, op->operands[0], axis);
	if (ir_op_has(op->code, TRAIT_ELEMENTWISE))
		return ask_operands(q, op, axis);
	if (ir_op_has(op->code, TRAIT_REDUCE))
		return ask(q, op->operands[0], axis < 0 ? -1 : reduced_axis(q, op, axis));
	if (op->code == OP_strip_argmax || op->code == OP_strip_score || op->code == OP_cumsum ||
	    op->code == OP_topk || op->code == OP_last_at)
		return axis < 0;
	if (op->code == OP_matmul)
		return ask_matmul(q, op, axis);
	if (op->code == OP_linear)
		return ask_linear(q, op, axis);
	if (op->code == OP_expert_linear)
		return ask_expert_linear(q, op, axis);
	if (op->code == OP_rope)
		return ask_rope(q, op, axis);
	if (ir_op_has(op->code, TRAIT_VIEW) || ir_op_has(op->code, TRAIT_MOVE))
		return ask_move(q, op, axis);
	return true; /* bound by a template */
}

static bool ask(struct question *q, struct ir_value v, int axis)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	if (--q->budget < 0)
		return false;
	if (t)
		return ask_tensor(q, t, axis);
	return !op || ask_op(q, op, axis);
}

bool eval_vectorizes(struct eval *e, struct ir_value v, int axis)
{
	struct question q = {e, BUDGET};
	return ask(&q, v, axis);
}

/* ---- row addresses ---- */

static void hoist(struct question *q, struct ir_value v, const struct eval_point *p);

static void hoist_view(struct question *q, const struct ir_op *op, const struct eval_point *p)
{
	struct eval_point at;
	bool changes_lanes = op->code == OP_reshape && eval_view_axis(q->e, op, p->vec) < 0;
	if (!changes_lanes && eval_view_point(q->e, op, p, &at))
		hoist(q, op->operands[0], &at);
}

static void hoist_op(struct question *q, const struct ir_op *op, const struct eval_point *p)
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

static void hoist(struct question *q, struct ir_value v, const struct eval_point *p)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	if (--q->budget < 0 || !v.id)
		return;
	if (t && t->t.encoding == ENC_ROW)
		eval_hoist_offset(q->e, v, t, p);
	else if (!t && op)
		hoist_op(q, op, p);
}

void eval_hoist(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	struct question q = {e, BUDGET};
	if (p->vec >= 0)
		hoist(&q, v, p);
}
