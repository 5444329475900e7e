/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Row b of a result from row b of operands, op by op. Invariant: axis 0 of a
 * value with rows is the axis of the sequences, and the axis of the rows has the
 * size that the key says, so that rows can be taken from any such value.
 */
#include "passes/demand/demand.h"

#include "ir/core/axes.h"

static const struct ir_type *operand_type(const struct demand_plan *plan, const struct ir_op *op, size_t i)
{
	return ir_type_of(plan->f, op->operands[i]);
}

/* ---- views ---- */

/* The axis with as many elements before it. */
static bool reshape_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	struct ir_dims *dims = plan->m->dims;
	const struct ir_type *from = operand_type(plan, op, 0), *to = ir_type_of(plan->f, op->results[0]);
	const struct ir_dim *before = ir_type_count_range(dims, to, 0, axis);
	for (int i = 1; i < from->rank; i++)
		if (from->dims[i] == to->dims[axis] && ir_type_count_range(dims, from, 0, i) == before) {
			axes[0] = i;
			return true;
		}
	return false;
}

/* Trailing axes are aligned; an axis of size 1 or none is the same in every row. */
static bool broadcast_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	const struct ir_type *from = operand_type(plan, op, 0), *to = ir_type_of(plan->f, op->results[0]);
	int at = axis - (to->rank - from->rank);
	axes[0] = 0;
	if (at < 0 || ir_dim_equals(from->dims[at], 1))
		return true;
	axes[0] = at;
	return from->rank == to->rank && from->dims[0] == to->dims[0];
}

static bool transpose_rule(const struct ir_op *op, int axis, int *axes)
{
	const struct attrs_transpose *a = op->attrs;
	axes[0] = (int)a->perm.items[axis];
	return a->perm.items[0] == 0;
}

/* An op that changes axis `changed` only. */
static bool other_axis(const struct ir_op *op, int64_t changed, int axis, int *axes)
{
	for (size_t i = 0; i < op->n_operands; i++)
		axes[i] = axis;
	return changed > 0 && changed != axis;
}

/* ---- arithmetic ---- */

/* All reductions have the same attributes. */
static bool reduce_rule(const struct attrs_reduce_sum *a, int axis, int *axes)
{
	const struct ir_int_list *reduced = &a->axes;
	axes[0] = axis;
	for (size_t i = 0; i < reduced->n; i++) {
		if (!a->keep && reduced->items[i] <= axes[0])
			axes[0]++;
		if (reduced->items[i] == 0 || (a->keep && reduced->items[i] == axis))
			return false;
	}
	return true;
}

static bool rule_of(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	int rank = ir_type_of(plan->f, op->results[0])->rank;
	const void *a = op->attrs;
	switch ((int)op->code) {
	case OP_reduce_sum:
	case OP_reduce_mean:
	case OP_reduce_max:
	case OP_reduce_min: return reduce_rule(a, axis, axes);
	case OP_reshape: return reshape_rule(plan, op, axis, axes);
	case OP_broadcast: return broadcast_rule(plan, op, axis, axes);
	case OP_transpose: return transpose_rule(op, axis, axes);
	case OP_slice: return other_axis(op, ((const struct attrs_slice *)a)->axis, axis, axes);
	case OP_concat: return other_axis(op, ((const struct attrs_concat *)a)->axis, axis, axes);
	case OP_pad: return other_axis(op, ((const struct attrs_pad *)a)->axis, axis, axes);
	case OP_full: return true;
	case OP_iota: return rank == 2 || ((const struct attrs_iota *)a)->axis != axis;
	/* Every op that has no axes in its row reads all rows. */
	default: return ir_axis_rows(plan->f, op, axis, axes) != IR_AXIS_MIXED;
	}
}

bool demand_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	if (op->n_operands > DEMAND_OPERANDS_MAX || op->n_results != 1)
		return false;
	for (size_t i = 0; i < DEMAND_OPERANDS_MAX; i++)
		axes[i] = 0;
	if (!rule_of(plan, op, axis, axes))
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id == 0 || axes[i] == 0)
			continue;
		const struct ir_type *t = operand_type(plan, op, i);
		if (axes[i] >= t->rank || t->dims[0] != plan->key.batch || t->dims[axes[i]] != plan->key.rows)
			return false;
	}
	return true;
}
