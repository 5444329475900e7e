/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluator of cumsum, topk and last_at: one element, by a loop over all elements before it. For groups that
 * the generator (in_order.c) does not accept.
 */
#include "backends/kernel/eval.h"

#include "backends/in_order/in_order.h"

static const struct ir_type *operand_type(const struct eval *e, const struct ir_op *op)
{
	return ir_type_of(e->job->func, op->operands[0]);
}

struct kb_val ranked_after(struct kb *k, struct ranked a, struct ranked b)
{
	enum kb_scalar s = kb_type_of(k, a.value).scalar;
	struct kb_val less = kb_cmp(k, KB_LT, a.value, b.value), same = kb_cmp(k, KB_EQ, a.value, b.value);
	if (s == KB_F32 || s == KB_F64) {
		struct kb_val none_a = kb_cmp(k, KB_NE, a.value, a.value);
		struct kb_val none_b = kb_cmp(k, KB_NE, b.value, b.value);
		less = kb_bin(k, KB_OR, less, kb_bin(k, KB_AND, none_a, kb_un(k, KB_NOT, none_b)));
		same = kb_bin(k, KB_OR, same, kb_bin(k, KB_AND, none_a, none_b));
	}
	struct kb_val later = kb_bin(k, KB_AND, same, kb_cmp(k, KB_GT, a.index, b.index));
	return kb_bin(k, KB_OR, less, later);
}

/* x at index i of the row of `at`. */
static struct kb_val x_at(struct eval *e, const struct ir_op *op, struct eval_point *at, struct kb_val i)
{
	at->index[at->rank - 1] = i;
	return eval_value(e, op->operands[0], at);
}

/* Sum of elements 0 .. p of the row. */
static struct kb_val cumsum(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = p->rank, .vec = -1};
	for (int i = 0; i < p->rank; i++)
		at.index[i] = p->index[i];
	enum ir_dtype dtype = operand_type(e, op)->dtype;
	enum kb_scalar s = eval_scalar(dtype);
	struct kb_var sum = kb_var(k, "sum", KB_TYPE(s, 1), eval_const(e, &at, s, 0));
	struct kb_val end = kb_add_const(k, p->index[p->rank - 1], 1);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), end, 1, 0);
	struct kb_val x = x_at(e, op, &at, i);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), x));
	kb_end_loop(k);
	eval_release(e, mark);
	return eval_round_to_dtype(e, dtype, kb_get(k, sum));
}

/* Finds the first element of the row in ranking order after (*value, *index), and sets them; index -1: the
 * first of all. */
static void find_next(struct eval *e, const struct ir_op *op, struct eval_point *at, struct kb_var value,
                      struct kb_var index)
{
	struct kb *k = e->k;
	struct ranked last = {.value = kb_get(k, value)};
	last.index = kb_get(k, index);
	struct kb_val none = kb_index(k, -1);
	struct kb_var best = kb_var(k, "best", kb_type_of(k, last.value), last.value);
	struct kb_var best_index = kb_var(k, "where", KB_INDEX_T, none);
	const struct ir_type *x = operand_type(e, op);
	struct kb_val size = eval_dim(e, x->dims[x->rank - 1]);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), size, 1, 0);
	struct ranked here = {x_at(e, op, at, i), i}, old = {.value = kb_get(k, best)};
	old.index = kb_get(k, best_index);
	struct kb_val is_after_last = ranked_after(k, here, last);
	struct kb_val open = kb_bin(k, KB_OR, kb_cmp(k, KB_EQ, last.index, none), is_after_last);
	struct kb_val before = ranked_after(k, old, here);
	struct kb_val beats_best = kb_bin(k, KB_OR, kb_cmp(k, KB_EQ, old.index, none), before);
	struct kb_val better = kb_bin(k, KB_AND, open, beats_best);
	kb_set(k, best, kb_select(k, better, here.value, old.value));
	kb_set(k, best_index, kb_select(k, better, i, old.index));
	kb_end_loop(k);
	eval_release(e, mark);
	kb_set(k, value, kb_get(k, best));
	kb_set(k, index, kb_get(k, best_index));
}

/* x [.., V] -> [.., 2, k]: values and indices. Selection by k passes over the row. */
static struct kb_val topk(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = p->rank - 1, .vec = -1};
	for (int i = 0; i + 2 < p->rank; i++)
		at.index[i] = p->index[i];
	enum kb_scalar s = eval_scalar(operand_type(e, op)->dtype);
	struct kb_var value = kb_var(k, "value", KB_TYPE(s, 1), eval_const(e, &at, s, 0));
	struct kb_var index = kb_var(k, "index", KB_INDEX_T, kb_index(k, -1));
	struct kb_val end = kb_add_const(k, p->index[p->rank - 1], 1);
	(void)kb_loop(k, "place", kb_index(k, 0), end, 1, 0);
	find_next(e, op, &at, value, index);
	kb_end_loop(k);
	struct kb_val is_value = kb_cmp(k, KB_EQ, p->index[p->rank - 2], kb_index(k, 0));
	struct kb_val number = ranked_index(k, kb_get(k, index), s);
	return kb_select(k, is_value, kb_get(k, value), number);
}

struct kb_val ranked_index(struct kb *k, struct kb_val index, enum kb_scalar s)
{
	return s == KB_I64 ? kb_cvt(k, index, KB_I64) : kb_cvt(k, kb_cvt(k, index, KB_I32), s);
}

/* Index of the last element equal to p, or -1. */
static struct kb_val last_at(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct eval_point at = {.rank = 1, .vec = -1};
	struct kb_val row = kb_cvt(k, p->index[0], KB_I32);
	struct kb_var found = kb_var(k, "found", KB_TYPE(KB_I32, 1), kb_i32(k, -1));
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), eval_dim(e, operand_type(e, op)->dims[0]), 1, 0);
	struct kb_val here = kb_cmp(k, KB_EQ, x_at(e, op, &at, i), row);
	struct kb_val old = kb_get(k, found);
	kb_set(k, found, kb_select(k, here, kb_cvt(k, i, KB_I32), old));
	kb_end_loop(k);
	eval_release(e, mark);
	return kb_get(k, found);
}

struct kb_val eval_in_order(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	switch ((int)op->code) {
	case OP_cumsum: return cumsum(e, op, p);
	case OP_topk: return topk(e, op, p);
	case OP_last_at: return last_at(e, op, p);
	}
	return eval_internal(e, op, "no op of rows in order");
}
