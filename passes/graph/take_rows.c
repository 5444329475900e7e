/* SPDX-License-Identifier: Apache-2.0 */
/*
 * take_rows(f(x), at) = f(take_rows(x, at)) when row [b, s] of f(x) depends on
 * row [b, s] of x only. One recursion serves both walks: without a builder it
 * marks what is read, with it it builds. Depth is bounded; single uses make it
 * a tree. Invariant: both walks take the same way.
 */
#include "passes/graph/take_rows.h"

#include "ir/core/axes.h"

#define DEPTH_MAX    64
#define OPERANDS_MAX IR_AXES_OPERANDS_MAX

struct taker {
	struct rebuild *r;
	const struct ir_op *take;
	bool building;
	size_t moved;
};

/* from[i] is not 0 for operands that have the rows of the result. Each linear rounds rows for itself (group), so that
 * may be done again. */
static bool can_move(const struct taker *t, struct ir_value v, const struct ir_op *op, int *from)
{
	const struct rebuild *r = t->r;
	return op != NULL && op->n_operands > 0 && op->n_operands <= OPERANDS_MAX &&
	       (rebuild_once(r, v) || op->code == OP_round_rows) &&
	       ir_axis_dependence(r->f, op, 1, from) == IR_AXIS_WILDCARD &&
	       ir_value_info(r->f, v)->region == ir_value_info(r->f, t->take->results[0])->region;
}

/* dims of v without axis 1, of the new module */
static int row_dims(const struct taker *t, struct ir_value v, const struct ir_dim **dims)
{
	const struct ir_type *type = ir_type_of(t->r->f, v);
	int n = 0;
	for (int i = 0; i < type->rank; i++)
		if (i != 1)
			dims[n++] = ir_import_dim(t->r->out, type->dims[i]);
	return n;
}

/* A value that is the same in every row. */
static bool is_uniform(const struct taker *t, const struct ir_op *op)
{
	if (op == NULL)
		return false;
	if (op->code == OP_full)
		return true;
	return op->code == OP_broadcast &&
	       ir_type_of(t->r->f, op->operands[0])->rank + 2 <= ir_type_of(t->r->f, op->results[0])->rank;
}

static struct ir_value uniform(struct taker *t, struct ir_value v, const struct ir_op *op)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank = row_dims(t, v, dims);

	if (op->code == OP_full) {
		const struct attrs_full *a = op->attrs;
		return t->building ? irb_full_of(t->r->b, a->value, a->dtype, rank, dims) : IR_NO_VALUE;
	}
	if (t->building)
		return irb_broadcast_to(t->r->b, rebuild_get(t->r, op->operands[0]), rank, dims);
	rebuild_need(t->r, op->operands[0]);
	return IR_NO_VALUE;
}

static struct ir_value leaf(struct taker *t, struct ir_value v)
{
	if (t->building)
		return irb_take_rows(t->r->b, rebuild_get(t->r, v), rebuild_get(t->r, t->take->operands[1]),
		                     NULL);
	rebuild_need(t->r, v);
	rebuild_need(t->r, t->take->operands[1]);
	return IR_NO_VALUE;
}

/* The taken rows of v. */
static struct ir_value rows_of(struct taker *t, struct ir_value v, int depth)
{
	const struct ir_op *op = ir_def(t->r->f, v);
	struct ir_value operands[OPERANDS_MAX];
	int from[OPERANDS_MAX];

	if (is_uniform(t, op))
		return uniform(t, v, op);
	if (depth >= DEPTH_MAX || !can_move(t, v, op, from))
		return leaf(t, v);
	t->moved++;
	for (size_t i = 0; i < op->n_operands; i++) {
		operands[i] = IR_NO_VALUE;
		if (op->operands[i].id == 0)
			continue;
		if (from[i] > 0)
			operands[i] = rows_of(t, op->operands[i], depth + 1);
		else if (t->building)
			operands[i] = rebuild_get(t->r, op->operands[i]);
		else
			rebuild_need(t->r, op->operands[i]);
	}
	if (!t->building)
		return IR_NO_VALUE;
	irb_set_loc(t->r->b, op->loc);
	struct ir_value now = irb_op1(t->r->b, op->code, operands, op->n_operands, op->attrs);
	irb_name(t->r->b, now, ir_value_info(t->r->f, v)->name);
	return now;
}

bool take_rows_match(struct rebuild *r, const struct ir_op *op)
{
	struct taker t = {.r = r, .take = op};
	const struct ir_op *def = ir_def(r->f, op->operands[0]);
	int from[OPERANDS_MAX];
	if (!is_uniform(&t, def) && !can_move(&t, op->operands[0], def, from))
		return false;
	rows_of(&t, op->operands[0], 0);
	return true;
}

void take_rows_emit(struct rebuild *r, const struct ir_op *op)
{
	struct taker t = {.r = r, .take = op, .building = true};
	rebuild_set(r, op->results[0], rows_of(&t, op->operands[0], 0));
	pass_count(r->p, "take_rows moved", (int64_t)t.moved);
	pass_remark(r->p, op->loc, "take_rows moved over %zu ops", t.moved);
}
