/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row instead of all, op by op: the same op, kernels and order of
 * arithmetic, with an axis of size 1. What depends on the number of a row gets
 * it: causal masks start at past + at, mask_rows compares with len - at.
 */
#include "passes/demand/build.h"

#include "ir/core/axes.h"

/* ---- which row ---- */

/* Row numbers may be computed after what reads them: their ops are built here first, and merged later. */
static struct ir_value early(struct rebuild *r, struct ir_value v)
{
	const struct ir_op *op = ir_def(r->f, v);
	if (op == NULL || r->map[v.id].id != 0)
		return r->map[v.id];
	for (size_t i = 0; i < op->n_operands; i++)
		early(r, op->operands[i]);
	irb_clone(r->b, r->f, op, r->map);
	return r->map[v.id];
}

/* i32[batch] full of the value of a dim. */
static struct ir_value filled(struct demand_builder *d, const struct ir_dim *value)
{
	struct ir_builder *b = d->r->b;
	const struct ir_dim *batch = ir_import_dim(d->r->out, d->plan->key.batch);
	int64_t n;
	if (ir_dim_is_const(value, &n))
		return irb_full_of(b, (double)n, DT_I32, 1, &batch);
	return irb_dim_value_of(b, value, 1, &batch);
}

/* The number of the row of each sequence, i32[batch], inside the bounds. */
static struct ir_value demand_at(struct demand_builder *d)
{
	const struct demand_key *key = &d->plan->key;
	struct ir_dims *dims = d->r->out->dims;
	struct ir_builder *b = d->r->b;
	if (key->at.id == 0)
		return filled(d, ir_import_dim(d->r->out, key->begin));
	const struct ir_dim *last =
	        ir_dim_sub(dims, ir_import_dim(d->r->out, key->rows), ir_dim_const(dims, 1));
	struct ir_value most = filled(d, last);
	struct ir_value at = irb_min(b, early(d->r, key->at), most, NULL);
	return irb_max(b, at, filled(d, ir_dim_const(dims, 0)), NULL);
}

/* Rows of a value that is computed whole. */
static struct ir_value pick(struct demand_builder *d, struct ir_value v, int axis)
{
	struct rebuild *r = d->r;
	const struct ir_type *type = ir_type_of(r->f, v);
	const struct ir_dim *one = ir_dim_const(r->out->dims, 1), *dims[IR_RANK_MAX];
	struct ir_value x = rebuild_get(r, v);
	int64_t turn[IR_RANK_MAX], back[IR_RANK_MAX];

	if (d->plan->key.at.id == 0)
		return irb_slice_of(r->b, x, axis, ir_import_dim(r->out, d->plan->key.begin), one);
	for (int i = 0; i < type->rank; i++)
		turn[i] = i == 1 ? axis : i - (i > 1 && i <= axis);
	for (int i = 0; i < type->rank; i++) {
		back[turn[i]] = i;
		dims[i] = i == 1 ? one : ir_import_dim(r->out, type->dims[turn[i]]);
	}
	x = irb_transpose_by(r->b, x, type->rank, turn);
	x = irb_take_rows(r->b, x, demand_at(d), NULL);
	x = irb_reshape_to(r->b, x, type->rank, dims);
	pass_count(r->p, "rows picked", 1);
	return irb_transpose_by(r->b, x, type->rank, back);
}

struct ir_value demand_row(struct demand_builder *d, struct ir_value v, int axis)
{
	const struct demand *of = &d->plan->of[v.id];
	return of->taken && of->axis == axis ? d->rows[v.id] : pick(d, v, axis);
}

/* ---- ops ---- */

/* dims of the result in the new module, 1 at the axis of the row. */
static int result_dims(struct demand_builder *d, const struct ir_op *op, const struct ir_dim **dims)
{
	const struct ir_type *type = ir_type_of(d->r->f, op->results[0]);
	for (int i = 0; i < type->rank; i++)
		dims[i] = ir_import_dim(d->r->out, type->dims[i]);
	dims[d->plan->of[op->results[0].id].axis] = ir_dim_const(d->r->out->dims, 1);
	return type->rank;
}

/* Along the row axis, the number of the row. */
static struct ir_value build_iota(struct demand_builder *d, const struct ir_op *op)
{
	struct attrs_iota a = *(const struct attrs_iota *)op->attrs;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_builder *b = d->r->b;
	int rank = result_dims(d, op, dims), axis = d->plan->of[op->results[0].id].axis;

	if (a.axis == axis) {
		struct ir_value at = irb_reshape_to(b, demand_at(d), rank, dims);
		return irb_add(b, at, irb_full_of(b, (double)a.start, DT_I32, rank, dims), NULL);
	}
	a.dims = (struct ir_dim_list){dims, (size_t)rank};
	return irb_iota(b, &a);
}

/* Operand `past` of an op whose mask knows positions: the row is at past + at. */
static void move_past(struct demand_builder *d, struct ir_value *operands, size_t past)
{
	struct ir_value at = demand_at(d);
	operands[past] = operands[past].id != 0 ? irb_add(d->r->b, operands[past], at, NULL) : at;
}

/* The mask compares the place of the row with that of a key. */
static bool knows_positions(const struct ir_op *op)
{
	if (op->code == OP_attention) {
		const struct attrs_attention *a = op->attrs;
		return a->mask == MASK_causal || a->window > 0;
	}
	if (op->code == OP_masked_softmax) {
		const struct attrs_masked_softmax *a = op->attrs;
		return a->mask == MASK_causal || a->window > 0;
	}
	const struct attrs_mask *a = op->attrs;
	return op->code == OP_mask && (a->mask == MASK_causal || a->window > 0);
}

static struct ir_value build_general(struct demand_builder *d, const struct ir_op *op,
                                     struct ir_value *operands)
{
	int axis = d->plan->of[op->results[0].id].axis, from[DEMAND_OPERANDS_MAX];
	if (ir_axis_dependence(d->r->f, op, axis, from) == IR_AXIS_POSITION) {
		if (op->code == OP_mask_rows)
			operands[OPERAND(mask_rows, len)] =
			        irb_sub(d->r->b, operands[OPERAND(mask_rows, len)], demand_at(d), NULL);
		else if (knows_positions(op))
			move_past(d, operands,
			          op->code == OP_attention ? OPERAND(attention, past) : OPERAND(mask, past));
	}
	return irb_op1(d->r->b, op->code, operands, op->n_operands, op->attrs);
}

static struct ir_value build_op(struct demand_builder *d, const struct ir_op *op, struct ir_value *operands)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_module *out = d->r->out;
	struct ir_builder *b = d->r->b;
	int rank = result_dims(d, op, dims);

	if (op->code == OP_reshape)
		return irb_reshape_to(b, operands[0], rank, dims);
	if (op->code == OP_broadcast)
		return irb_broadcast_to(b, operands[0], rank, dims);
	if (op->code == OP_iota)
		return build_iota(d, op);
	if (op->code == OP_full) {
		const struct attrs_full *a = op->attrs;
		return irb_full_of(b, a->value, a->dtype, rank, dims);
	}
	if (op->code == OP_slice) {
		const struct attrs_slice *a = op->attrs;
		return irb_slice_of(b, operands[0], (int)a->axis, ir_import_dim(out, a->begin),
		                    ir_import_dim(out, a->size));
	}
	return build_general(d, op, operands);
}

void demand_build(struct demand_builder *d, const struct ir_op *op)
{
	struct ir_value operands[DEMAND_OPERANDS_MAX] = {IR_NO_VALUE};
	const struct demand *of = &d->plan->of[op->results[0].id];
	int axes[DEMAND_OPERANDS_MAX];

	if (of->all)
		irb_clone(d->r->b, d->r->f, op, d->r->map);
	if (!demand_rule(d->plan, op, of->axis, axes))
		return;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id == 0)
			continue;
		operands[i] = axes[i] > 0 ? demand_row(d, op->operands[i], axes[i])
		                          : rebuild_get(d->r, op->operands[i]);
	}
	irb_set_loc(d->r->b, op->loc);
	struct ir_value now = build_op(d, op, operands);
	d->rows[op->results[0].id] = now;
	irb_name(d->r->b, now, ir_value_info(d->r->f, op->results[0])->name);
}
