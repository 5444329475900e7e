/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real rows, see real_rows.h: a backward data-flow analysis. Each value has a need, which only grows: a join over its
 * readers, which the backward traversal visits first. The body of a repeat is visited until the needs of its carries
 * are stable. A row is an index along `axis`, axis 0 is the batch, whose sequences have lengths i32[B], a parameter.
 * With a KV cache rows of the state count, too: the call has `past` tokens of each sequence and appends `appended`.
 */
#include "ir/core/real_rows.h"

#include "ir/core/axes.h"

#define CHAIN_MAX 8 /* ops that compute a row number */

/* In increasing order. */
enum need {
	NEED_NONE,
	NEED_FIRST, /* row 0 of each sequence along `axis` */
	NEED_REAL,  /* rows below max(lengths, 1) along `axis` */
	NEED_PAST,  /* of the slice of a state: rows below past + max(appended lengths, 1) */
	NEED_ALL
};

struct rows_need {
	enum need need;
	int axis;
	struct ir_value lengths; /* REAL */
};

struct analysis {
	const struct ir_module *m;
	const struct ir_func *f;
	struct rows_need *of; /* [f->n_values] */
	bool changed;
	/* The parameter with the tokens in the state of each sequence, and that of which it has more after the call:
	 * rows of states from their sum on belong to no sequence, and no later call reads them. None: not known. */
	struct ir_value past, appended;
};

static const struct rows_need all_rows = {.need = NEED_ALL};

static const struct ir_value *yielded(const struct ir_op *op)
{
	return op->region->ops[op->region->n_ops - 1]->operands;
}

/* ---- needs ---- */

/* Joins the need of v with that of one more reader: the greater one; all rows if they differ in axis or lengths, as
 * no smaller need contains both. Sets s->changed if it grew. */
static void need(struct analysis *s, struct ir_value v, struct rows_need more)
{
	struct rows_need *old = &s->of[v.id], now = more.need > old->need ? more : *old;
	bool both = v.id != 0 && old->need != NEED_NONE && more.need != NEED_NONE;
	if (both && (old->axis != more.axis ||
	             (old->need == more.need && !ir_same_value(old->lengths, more.lengths))))
		now = all_rows;
	if (v.id == 0 || (now.need == old->need && now.axis == old->axis))
		return;
	*old = now;
	s->changed = true;
}

/* v, if it is a parameter i32[B]; else none. */
static struct ir_value parameter_of(const struct analysis *s, struct ir_value v)
{
	for (size_t i = 0; v.id != 0 && i < s->f->n_params; i++) {
		const struct ir_type *t = ir_type_of(s->f, s->f->params[i].value);
		if (ir_same_value(s->f->params[i].value, v) && t->kind == IR_TENSOR && t->dtype == DT_I32 &&
		    t->rank == 1)
			return v;
	}
	return IR_NO_VALUE;
}

/* v, if it can be lengths of `x`: a parameter i32[B] with the batch of x, which has rows (two axes); else none. */
static struct ir_value lengths_of(const struct analysis *s, struct ir_value v, struct ir_value x)
{
	const struct ir_type *of = ir_type_of(s->f, x);
	struct ir_value n = parameter_of(s, v);
	return n.id != 0 && of->rank >= 2 && of->dims[0] == ir_type_of(s->f, n)->dims[0] ? n : IR_NO_VALUE;
}

/* The value that a result of a group is inside of it; v itself if it is none. */
static struct ir_value computed_in_group(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *group = ir_def_as(f, v, OP_group);
	return group == NULL ? v : yielded(group)[ir_value_info(f, v)->index];
}

/* Real rows of x along `axis` by these lengths; all rows where they are no parameter. */
static struct rows_need real_rows(const struct analysis *s, struct ir_value x, int axis,
                                  struct ir_value lengths)
{
	struct ir_value n = lengths_of(s, lengths, x);
	return n.id != 0 ? (struct rows_need){NEED_REAL, axis, n} : all_rows;
}

/* ---- row numbers ---- */

/* v is the constant n everywhere. */
static bool is_full(const struct analysis *s, struct ir_value v, double n)
{
	const struct ir_op *op = ir_def_as(s->f, v, OP_full);
	return op != NULL && ((const struct attrs_full *)op->attrs)->value == n;
}

/* Of row numbers `at` of x, clamped as select_rows does: the lengths whose last row, or one before it, they are:
 * lengths - 1, as sub or as add of -1, and its minimum with any numbers and maximum with 0; none if that is not
 * known. left: ops that may still follow. */
static struct ir_value real_row_number(const struct analysis *s, struct ir_value at, struct ir_value x,
                                       int left)
{
	const struct ir_op *op = ir_def(s->f, computed_in_group(s->f, at));
	if (op == NULL || op->n_operands != 2 || left == 0)
		return IR_NO_VALUE;
	struct ir_value a = op->operands[0], b = op->operands[1];
	if (op->code == OP_sub)
		return is_full(s, b, 1) ? lengths_of(s, a, x) : IR_NO_VALUE;
	if (op->code == OP_add)
		return is_full(s, b, -1) ? lengths_of(s, a, x) : IR_NO_VALUE;
	struct ir_value of_a = real_row_number(s, a, x, left - 1);
	struct ir_value of_b = real_row_number(s, b, x, left - 1);
	if (op->code == OP_min)
		return of_a.id != 0 ? of_a : of_b;
	if (op->code == OP_max && is_full(s, b, 0))
		return of_a;
	return op->code == OP_max && is_full(s, a, 0) ? of_b : IR_NO_VALUE;
}

/* ---- states ---- */

/* Finds past and appended: the result with the role past (the new number of tokens) is past + appended, in either
 * order, inside of its group. */
static void find_past(struct analysis *s)
{
	const struct ir_func *f = s->f;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1], *sum = NULL;
	for (size_t i = 0; i < f->n_params; i++)
		if (f->params[i].role == ROLE_PAST)
			s->past = f->params[i].value;
	for (size_t i = 0; i < f->n_results && i < ret->n_operands; i++)
		if (f->results[i].role == ROLE_PAST)
			sum = ir_def(f, computed_in_group(f, ret->operands[i]));
	if (s->past.id == 0 || sum == NULL || sum->code != OP_add)
		return;
	bool is_first = ir_same_value(sum->operands[0], s->past);
	struct ir_value n = sum->operands[is_first ? 1 : 0];
	if (is_first || ir_same_value(sum->operands[1], s->past))
		s->appended = parameter_of(s, n);
}

/* Whether the rows of an attention whose result has that need see no key from past + appended on: real rows by the
 * causal mask, or one row, at a real position, whose number the pass demand-rows has added to past. */
static bool sees_the_past(const struct analysis *s, const struct ir_op *op, struct rows_need result)
{
	const struct attrs_attention *a = op->attrs;
	struct ir_value past = op->operands[OPERAND(attention, past)],
	                q = op->operands[OPERAND(attention, q)];
	const struct ir_op *sum = ir_def_as(s->f, computed_in_group(s->f, past), OP_add);
	if (s->appended.id == 0 || a->mask != MASK_causal)
		return false;
	if (ir_same_value(past, s->past))
		return result.need == NEED_REAL && result.axis == 2 &&
		       ir_same_value(result.lengths, s->appended);
	if (sum == NULL || !ir_dim_equals(ir_type_of(s->f, q)->dims[2], 1))
		return false;
	bool is_first = ir_same_value(sum->operands[0], s->past);
	struct ir_value at = real_row_number(s, sum->operands[is_first ? 1 : 0], q, CHAIN_MAX);
	return (is_first || ir_same_value(sum->operands[1], s->past)) && ir_same_value(at, s->appended);
}

/* The rows that a state_append writes from past + appended on are not read if no reader of its slice does, and later
 * calls overwrite them: they begin at the new past. */
static bool appends_real_rows(const struct analysis *s, const struct ir_op *op)
{
	enum need slice = op->code == OP_state_append ? s->of[op->results[0].id].need : NEED_ALL;
	return s->appended.id != 0 && slice != NEED_ALL && (slice == NEED_NONE || slice == NEED_PAST) &&
	       ir_same_value(op->operands[OPERAND(state_append, past)], s->past);
}

/* ---- ops ---- */

/* The need of op's results: that of the only one, or all rows of several, whose axes may differ. */
static struct rows_need need_of_results(const struct analysis *s, const struct ir_op *op)
{
	if (op->n_results == 1)
		return s->of[op->results[0].id];
	for (size_t i = 0; i < op->n_results; i++)
		if (s->of[op->results[i].id].need != NEED_NONE)
			return all_rows;
	return (struct rows_need){.need = NEED_NONE};
}

/* from[i]: the axis of operand i with the rows of the result along `axis`, 0: the operand is needed in full. False:
 * op mixes rows, or more operands than axes are known for. Constants have no operands. */
static bool find_axes(const struct analysis *s, const struct ir_op *op, int axis, int *from)
{
	if (axis <= 0 || op->n_operands > IR_AXES_OPERANDS_MAX)
		return false;
	if (op->code == OP_reshape) {
		from[0] = ir_reshape_axis(s->m->dims, s->f, op, axis);
		return from[0] > 0;
	}
	return ir_op_has(op->code, TRAIT_CONST) || ir_axis_dependence(s->f, op, axis, from) != IR_AXIS_MIXED;
}

/* The need of operand i that the op itself states, whatever its result is needed for: by masks, positions and
 * slices, which select rows. False: none. */
static bool find_own_need(const struct analysis *s, const struct ir_op *op, size_t i, struct rows_need result,
                          struct rows_need *out)
{
	const struct ir_value *x = op->operands;
	const struct attrs_slice *slice = op->attrs;
	bool is_key;
	switch ((int)op->code) {
	case OP_mask_rows:
		*out = real_rows(s, x[i], 1, x[OPERAND(mask_rows, len)]);
		return i == OPERAND(mask_rows, x) && out->need == NEED_REAL;
	case OP_attention: /* keys at and beyond len are not visible; with a past they are rows of a state */
		is_key = i == OPERAND(attention, k) || i == OPERAND(attention, v);
		is_key = is_key || i == OPERAND(attention, k_scale) || i == OPERAND(attention, v_scale);
		if (x[OPERAND(attention, past)].id != 0) {
			*out = (struct rows_need){.need = NEED_PAST};
			return is_key && sees_the_past(s, op, result);
		}
		*out = real_rows(s, x[i], 2, x[OPERAND(attention, len)]);
		return is_key && x[OPERAND(attention, len)].id != 0;
	case OP_select_rows: {
		struct ir_value n = real_row_number(s, x[OPERAND(select_rows, at)], x[0], CHAIN_MAX);
		*out = (struct rows_need){NEED_REAL, 1, n};
		return i == OPERAND(select_rows, x) && n.id != 0;
	}
	case OP_slice: /* of row 0 alone; a need of fewer rows than all goes through by axes (visit_op) */
		*out = (struct rows_need){.need = NEED_FIRST, .axis = (int)slice->axis};
		return slice->axis > 0 && ir_dim_equals(slice->begin, 0) && ir_dim_equals(slice->size, 1) &&
		       result.need == NEED_ALL;
	}
	return false;
}

/* Hands the need of the result to the operands, row by row where the op allows it (find_axes) and the sizes agree.
 * An op with effects (return, states) reads all rows, but of those that it appends to a state the real ones may be
 * enough. real: rows of x [.., S, E] that belong to sequences. */
static void visit_op(struct analysis *s, const struct ir_op *op)
{
	int from[IR_AXES_OPERANDS_MAX] = {0};
	const struct rows_need result = need_of_results(s, op);
	if (!ir_op_has(op->code, TRAIT_PURE)) {
		for (size_t i = 0; i < op->n_operands; i++) {
			struct rows_need real = {NEED_REAL, 0, s->appended};
			struct ir_value x = op->operands[i];
			real.axis = x.id != 0 ? ir_type_of(s->f, x)->rank - 2 : 0;
			bool is_real = i == OPERAND(state_append, x) && appends_real_rows(s, op);
			need(s, x, is_real && real.axis > 0 ? real : all_rows);
		}
		return;
	}
	if (result.need == NEED_NONE)
		return;
	bool by_rows = result.need != NEED_ALL && find_axes(s, op, result.axis, from);
	const struct ir_type *y = ir_type_of(s->f, op->results[0]);
	for (size_t i = 0; i < op->n_operands; i++) {
		struct rows_need own, same = result;
		if (op->operands[i].id == 0)
			continue;
		const struct ir_type *x = ir_type_of(s->f, op->operands[i]);
		bool has_rows = by_rows && from[i] > 0 && from[i] < x->rank && x->dims[0] == y->dims[0] &&
		                x->dims[from[i]] == y->dims[result.axis];
		same.axis = from[i];
		if (find_own_need(s, op, i, result, &own))
			need(s, op->operands[i], own);
		else
			need(s, op->operands[i], has_rows ? same : all_rows);
	}
}

/* ---- regions ---- */

static void visit_region(struct analysis *s, const struct ir_region *region);

/* A carry is needed as its result and as the argument of the next iteration are; both may grow while the body is
 * visited. s->changed is kept for an outer repeat. */
static void visit_repeat(struct analysis *s, const struct ir_op *op)
{
	bool before = s->changed, any = false;
	do {
		s->changed = false;
		for (size_t i = 0; i < op->n_operands; i++) {
			const struct ir_value carry[] = {op->results[i], op->region->args[i + 1]};
			for (size_t k = 0; k < TFMC_COUNT(carry); k++) {
				need(s, yielded(op)[i], s->of[carry[k].id]);
				need(s, op->operands[i], s->of[carry[k].id]);
			}
		}
		visit_region(s, op->region);
		any = any || s->changed;
	} while (s->changed);
	s->changed = before || any;
}

/* Visits the ops of a region from the last to the first. The results of a group are the values that it yields. */
static void visit_region(struct analysis *s, const struct ir_region *region)
{
	for (size_t i = region->n_ops; i-- > 0;) {
		const struct ir_op *op = region->ops[i];
		if (op->code == OP_repeat) {
			visit_repeat(s, op);
		} else if (op->code == OP_group) {
			for (size_t k = 0; k < op->n_results; k++)
				need(s, yielded(op)[k], s->of[op->results[k].id]);
			visit_region(s, op->region);
		} else if (op->code != OP_yield) {
			visit_op(s, op);
		}
	}
}

/* Only the need REAL has an axis in the result; of other values all rows may be read, or none. */
const struct ir_real_rows *ir_real_rows(struct arena *a, const struct ir_module *m, const struct ir_func *f)
{
	struct analysis s = {.m = m, .f = f, .of = ARENA_ARRAY(a, struct rows_need, f->n_values + 1)};
	struct ir_real_rows *out = ARENA_ARRAY(a, struct ir_real_rows, f->n_values + 1);
	if (s.of == NULL || out == NULL)
		return NULL;
	find_past(&s);
	visit_region(&s, f->body);
	for (size_t i = 0; i < f->n_values; i++)
		if (s.of[i].need == NEED_REAL)
			out[i] = (struct ir_real_rows){s.of[i].axis, s.of[i].lengths};
	return out;
}
