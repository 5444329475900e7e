/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a value back to the weights that make some of its features, through
 * views and ops that a change of features passes unharmed. On the way nobody
 * else may read these features.
 */
#include "passes/folds/feature_rows.h"
#include "passes/folds/weight_changes.h"

#define DEPTH_MAX 16

struct trace {
	struct weight_changes *c;
	size_t unit;
	const struct ir_func *f;
	const struct value_uses *uses;
	unsigned ways;
	int depth;
};

static const struct value_uses *uses_of(const struct weight_changes *c, const struct ir_func *f)
{
	for (size_t i = 0; i < c->in->funcs.n; i++)
		if (c->uses[i].f == f)
			return &c->uses[i];
	return NULL;
}

/* --- other readers ------------------------------------------------------------------------------------- */

struct other_readers {
	const struct trace *t;
	const struct value_use *reader;
	struct wexpr_rows rows; /* of the value behind all views */
	int depth;
};

static bool chooses_rows(const struct ir_op *op)
{
	return op->code == OP_take_rows || op->code == OP_mask_rows;
}

static bool readers_behind(const struct other_readers *o, struct ir_value leaf, const struct ir_op *op);

/* True when the use does not see any of the rows, or is the reader. */
static bool leaves_alone(void *user, struct ir_value leaf, const struct value_use *use)
{
	struct other_readers *o = user;
	const struct trace *t = o->t;
	struct ir_value base;
	struct wexpr_rows whole, seen;
	int64_t n;
	if (use->op == o->reader->op && use->operand == o->reader->operand)
		return true;
	if (chooses_rows(use->op) && use->operand == 0 && o->depth < DEPTH_MAX)
		return readers_behind(o, leaf, use->op);
	if (!feature_count(t->f, leaf, &n))
		return false;
	whole = feature_rows_all(n);
	return feature_rows_behind_views(t->c->in, t->f, leaf, 1, &whole, &base, &seen) &&
	       !feature_rows_meet(&o->rows, &seen);
}

/* op passes features of leaf on: whoever reads its result. */
static bool readers_behind(const struct other_readers *o, struct ir_value leaf, const struct ir_op *op)
{
	const struct trace *t = o->t;
	struct other_readers behind = *o;
	struct wexpr_rows first = {.heads = 1, .step = 1, .size = 1}, at;
	struct ir_value base;
	if (!feature_rows_behind_views(t->c->in, t->f, leaf, feature_axes(t->f, op), &first, &base, &at) ||
	    at.heads != 1)
		return false;
	behind.rows.start -= at.start;
	behind.depth++;
	return value_uses_behind_views(t->uses, op->results[0], leaves_alone, &behind);
}

/* --- ways ---------------------------------------------------------------------------------------------- */

static const char *trace(struct trace *t, const struct value_use *reader, const struct weight_change *change);

static const char *onward(struct trace *t, const struct ir_op *op, size_t operand,
                          const struct weight_change *change)
{
	const struct value_use reader = {op, operand};
	return trace(t, &reader, change);
}

static const char *demand(struct trace *t, const struct ir_op *op, size_t operand,
                          const struct weight_change *change)
{
	const struct value_use use = {op, operand};
	if (operand >= op->n_operands || op->operands[operand].id == 0)
		return NULL;
	return weight_changes_demand(t->c, t->unit, t->f, &use, change);
}

static const char *through_linear(struct trace *t, const struct ir_op *op, const struct weight_change *change)
{
	const char *why = demand(t, op, 1, change);
	return why != NULL ? why : demand(t, op, 2, change);
}

/* gamma and beta; an order of features then goes on to what is normed. */
static const char *through_norm(struct trace *t, const struct ir_op *op, const struct weight_change *change)
{
	if (change->kind == CHANGE_SCALE && op->operands[1].id == 0)
		return "it comes from a norm without gamma";
	const char *why = demand(t, op, 1, change);
	if (why == NULL && op->code == OP_layer_norm)
		why = demand(t, op, 2, change);
	if (why != NULL || change->kind == CHANGE_SCALE)
		return why;
	return onward(t, op, 0, change);
}

static const char *through_table(struct trace *t, const struct ir_op *op, const struct weight_change *change)
{
	int64_t rows;
	struct weight_change all = *change;
	const struct ir_type *table = ir_type_of(t->f, op->operands[0]);
	if (table->rank != 2 || !ir_dim_is_const(table->dims[0], &rows))
		return "it comes from no table [V, D]";
	all.rows = feature_rows_all(rows);
	return demand(t, op, 0, &all);
}

static const char *through_sum(struct trace *t, const struct ir_op *op, const struct weight_change *change)
{
	const char *why = onward(t, op, 0, change);
	return why != NULL ? why : onward(t, op, 1, change);
}

/* base: what makes the features. */
static const char *through(struct trace *t, const struct ir_op *op, const struct weight_change *change)
{
	bool linear = (t->ways & TRACE_LINEAR) != 0, scales = change->kind == CHANGE_SCALE;
	if (op == NULL)
		return "it does not come from weights in this region";
	if (op->code == OP_linear && linear)
		return through_linear(t, op, change);
	if ((op->code == OP_rms_norm || op->code == OP_layer_norm) && (t->ways & TRACE_NORM))
		return through_norm(t, op, change);
	if (op->code == OP_rope && scales && (t->ways & TRACE_ROPE))
		return onward(t, op, 0, change);
	if (chooses_rows(op) && ir_type_of(t->f, op->operands[0])->rank > 2)

		return onward(t, op, 0, change);
	if (op->code == OP_gather && scales && (t->ways & TRACE_TABLE))
		return through_table(t, op, change);
	if (op->code == OP_add && scales && (t->ways & TRACE_TABLE))
		return through_sum(t, op, change);
	return arena_printf(t->c->p->arena, "it comes from %s", ir_op_desc(op->code)->name);
}

static const char *trace(struct trace *t, const struct value_use *reader, const struct weight_change *change)
{
	struct weight_change here = *change;
	struct ir_value base, v = reader->op->operands[reader->operand];
	const char *why = NULL;
	if (t->depth == DEPTH_MAX)
		return "it comes from too many steps away";
	int axes = feature_axes(t->f, reader->op);
	if (!feature_rows_behind_views(t->c->in, t->f, v, axes, &change->rows, &base, &here.rows))
		return "its features are mixed on the way from the weights";
	struct other_readers others = {t, reader, here.rows, 0};
	if (!value_uses_behind_views(t->uses, base, leaves_alone, &others))
		return "something else reads it too";
	t->depth++;
	why = through(t, ir_def(t->f, base), &here);
	t->depth--;
	return why;
}

const char *weight_changes_trace(struct weight_changes *c, size_t unit, const struct ir_func *f,
                                 const struct value_use *reader, const struct weight_change *change,
                                 unsigned ways)
{
	struct trace t = {c, unit, f, uses_of(c, f), ways, 0};
	size_t before = c->demands.n;
	const char *why = t.uses == NULL ? "memory ran out" : trace(&t, reader, change);
	if (why != NULL)
		weight_changes_drop(c, before);
	return why;
}
