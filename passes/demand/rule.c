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

static bool rule_of(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes)
{
	if (op->code == OP_reshape)
		return reshape_rule(plan, op, axis, axes);
	if (op->code == OP_iota)
		return ir_type_of(plan->f, op->results[0])->rank == 2 ||
		       ((const struct attrs_iota *)op->attrs)->axis != axis;
	/* An op of which no axes are known reads all rows. */
	return op->code == OP_full || ir_axis_dependence(plan->f, op, axis, axes) != IR_AXIS_MIXED;
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
