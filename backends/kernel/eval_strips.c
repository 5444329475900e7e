/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: strips of the last axis, element by element, for groups that no
 * template computes. The index before the last of the point says which number of a
 * strip is wanted, the last one the strip.
 */
#include "backends/kernel/eval.h"
#include "backends/kb/math.h"

#include <math.h>

struct strip {
	struct eval *e;
	struct ir_value x;
	struct eval_point at; /* in x */
	struct kb_val first, end;
	struct kb_val number; /* which one of the strip is wanted */
};

static void open_strip(struct strip *s, const struct ir_op *op, const struct eval_point *p, int64_t width)
{
	struct kb *k = s->e->k;
	const struct ir_type *x = ir_type_of(s->e->job->func, op->operands[0]);
	s->x = op->operands[0];
	s->at = (struct eval_point){.rank = x->rank, .vec = -1};
	for (int i = 0; i + 1 < x->rank; i++)
		s->at.index[i] = p->index[i];
	struct kb_val size = eval_dim(s->e, x->dims[x->rank - 1]), strip = p->index[x->rank];
	s->first = kb_mul(k, strip, kb_index(k, width));
	s->end = kb_min(k, kb_add_const(k, s->first, width), size);
	s->number = p->index[x->rank - 1];
}

static struct kb_val is_number(struct strip *s, int64_t which)
{
	return kb_cmp(s->e->k, KB_EQ, s->number, kb_index(s->e->k, which));
}

static struct kb_val x_at(struct strip *s, struct kb_val column)
{
	s->at.index[s->at.rank - 1] = column;
	return eval_value(s->e, s->x, &s->at);
}

struct kb_val eval_strip_argmax(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct strip s = {.e = e};
	open_strip(&s, op, p, ((const struct attrs_strip_argmax *)op->attrs)->width);
	enum kb_scalar scalar = eval_scalar(ir_type_of(e->job->func, s.x)->dtype);
	struct kb_var best = kb_var(k, "best", KB_TYPE(scalar, 1), eval_const(e, &s.at, scalar, NAN));
	struct kb_var where = kb_var(k, "where", KB_INDEX_T, s.first);
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", s.first, s.end, 1, 0);
	struct kb_val x = x_at(&s, i), old = kb_get(k, best);
	struct kb_val exists = kb_cmp(k, KB_EQ, x, x);
	struct kb_val first = kb_bin(k, KB_AND, kb_cmp(k, KB_NE, old, old), exists);
	struct kb_val better = kb_bin(k, KB_OR, first, kb_cmp(k, KB_GT, x, old));
	kb_set(k, best, kb_select(k, better, x, old));
	kb_set(k, where, kb_select(k, better, i, kb_get(k, where)));
	kb_end_loop(k);
	eval_release(e, mark);
	struct kb_val index = kb_cvt(k, kb_cvt(k, kb_get(k, where), KB_I32), scalar);
	struct kb_val value = kb_get(k, best);
	return kb_select(k, is_number(&s, 0), value, index);
}

static struct kb_val largest(struct strip *s)
{
	struct kb *k = s->e->k;
	struct kb_var most = kb_var(k, "most", KB_F32_T, kb_f32(k, -HUGE_VALF));
	size_t mark = eval_mark(s->e);
	struct kb_val i = kb_loop(k, "i", s->first, s->end, 1, 0);
	struct kb_val old = kb_get(k, most);
	kb_set(k, most, kb_max(k, x_at(s, i), old));
	kb_end_loop(k);
	eval_release(s->e, mark);
	return kb_get(k, most);
}

static struct kb_val sum_of_powers(struct strip *s, struct kb_val shift)
{
	struct kb *k = s->e->k;
	struct kb_var sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	size_t mark = eval_mark(s->e);
	struct kb_val i = kb_loop(k, "i", s->first, s->end, 1, 0);
	struct kb_val power = math_exp_nonpositive(k, kb_sub(k, x_at(s, i), shift));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), power));
	kb_end_loop(k);
	eval_release(s->e, mark);
	return kb_get(k, sum);
}

struct kb_val eval_strip_score(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct strip s = {.e = e};
	const struct ir_type *x = ir_type_of(e->job->func, op->operands[0]);
	if (eval_scalar(x->dtype) != KB_F32)
		return eval_unsupported(e, op, "strip_score of f64");
	open_strip(&s, op, p, ((const struct attrs_strip_score *)op->attrs)->width);
	struct kb_val most = largest(&s), none = kb_f32(k, -HUGE_VALF), zero = kb_f32(k, 0);
	struct kb_val shift = kb_select(k, kb_cmp(k, KB_EQ, most, none), zero, most);
	struct kb_val sum = sum_of_powers(&s, shift), empty = kb_cmp(k, KB_EQ, sum, zero);
	struct eval_point row = s.at;
	row.rank--;
	struct kb_val at = kb_cvt(k, eval_value(e, op->operands[1], &row), KB_INDEX);
	at = eval_clamped(e, at, eval_dim(e, x->dims[x->rank - 1]));
	struct kb_val is_below = kb_cmp(k, KB_LT, at, s.end);
	struct kb_val here = kb_bin(k, KB_AND, kb_cmp(k, KB_GE, at, s.first), is_below);
	struct kb_val within = kb_select(k, empty, zero, kb_sub(k, x_at(&s, at), shift));
	within = kb_select(k, here, within, none);
	sum = kb_select(k, empty, kb_f32(k, 1), sum);
	struct kb_val others = kb_select(k, is_number(&s, 1), sum, within);
	return kb_select(k, is_number(&s, 0), most, others);
}
