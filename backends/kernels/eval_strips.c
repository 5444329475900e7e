/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: reductions of a range of columns of a row: argmax, and the maximum with the sum of exponentials (the
 * partial results of log-softmax). Full vectors first, then the scalar remainder.
 *
 * The strip ops compute them for each strip (N block) of the last axis of x, so that logits need not be stored. Their
 * result is x's leading axes, then [values, strips]: the last index of a point is the strip, the one before it
 * selects one of its values.
 */
#include "backends/kernels/eval.h"
#include "backends/kb/math.h"

#include <math.h>

#define SLOTS 4

/* The accumulators of one reduction: [0] of the scalar remainder, [1 .. slots] of vectors, used round-robin to
 * break the dependency chain. */
struct accumulators {
	int slots;
	struct kb_var at[1 + SLOTS];
};

/* Reduces x, which begins at `column`, into accumulator `slot`; x is a scalar for slot 0, otherwise a vector. */
typedef void column_fn(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user);

static struct kb_val x_at(struct eval *e, const struct eval_columns *c, struct kb_val column, int lanes)
{
	struct eval_point p = c->row;
	p.vec = lanes > 1 ? p.rank - 1 : -1;
	p.index[p.rank - 1] = column;
	struct eval_width before = eval_width(e, lanes, lanes);
	struct kb_val x = eval_value(e, c->x, &p);
	eval_width(e, before.lanes, before.valid);
	return x;
}

static void visit_column(struct eval *e, const struct eval_columns *c, struct kb_val column, int slot,
                         column_fn *fn, void *user)
{
	size_t mark = eval_mark(e);
	fn(e, column, x_at(e, c, column, slot ? c->lanes : 1), slot, user);
	eval_release(e, mark);
}

/* Emits fn for all columns, in order. */
static void for_each_column(struct eval *e, const struct eval_columns *c, int slots, column_fn *fn,
                            void *user)
{
	struct kb *k = e->k;
	struct kb_val i, main = c->first;
	for (int64_t at = 0; at < c->unrolled; at += c->lanes)
		visit_column(e, c, kb_add_const(k, c->first, at), 1 + (int)(at / c->lanes) % slots, fn, user);
	if (c->unrolled > 0)
		return;
	if (c->lanes > 1) {
		int64_t step = (int64_t)c->lanes * slots;
		struct kb_val n = kb_sub(k, c->end, c->first);
		main = kb_sub(k, c->end, kb_rem_const(k, n, step));
		i = kb_loop(k, "i", c->first, main, step, 0);
		for (int slot = 0; slot < slots; slot++)
			visit_column(e, c, kb_add_const(k, i, (int64_t)slot * c->lanes), 1 + slot, fn, user);
		kb_end_loop(k);
	}
	i = kb_loop(k, "i", main, c->end, 1, 0);
	visit_column(e, c, i, 0, fn, user);
	kb_end_loop(k);
}

/* The accumulators in use are [first_slot, end_slot): unrolled columns have no scalar remainder. */
static int first_slot(const struct eval_columns *c)
{
	return c->unrolled > 0;
}

static int end_slot(const struct eval_columns *c, const struct accumulators *f)
{
	return c->lanes > 1 ? 1 + f->slots : 1;
}

/* Creates the accumulators as variables, set to `none`. */
static struct accumulators make_accumulators(struct eval *e, const struct eval_columns *c, const char *name,
                                             int slots, struct kb_val none)
{
	struct accumulators f = {.slots = slots};
	for (int i = first_slot(c); i < end_slot(c, &f); i++) {
		struct kb_type type = {kb_type_of(e->k, none).scalar, i ? c->lanes : 1};
		f.at[i] = kb_var(e->k, name, type, kb_splat(e->k, none, type.lanes));
	}
	return f;
}

/* All accumulators, and the lanes of vectors, reduced by op to one scalar. */
static struct kb_val reduce_all(struct eval *e, const struct eval_columns *c, enum kb_bin op,
                                const struct accumulators *f)
{
	struct kb *k = e->k;
	int n = end_slot(c, f);
	struct kb_val all = kb_get(k, f->at[n - 1]);
	for (int i = n - 2; i > 0; i--)
		all = kb_bin(k, op, kb_get(k, f->at[i]), all);
	if (n > 1)
		all = kb_reduce(k, op, all);
	return n > 1 && first_slot(c) == 0 ? kb_bin(k, op, kb_get(k, f->at[0]), all) : all;
}

/* ---- argmax ---- */

/* The largest element so far and the lowest column that holds it. */
struct argmax {
	struct accumulators best, where;
};

static void update_argmax(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct argmax *t = user;
	struct kb *k = e->k;
	struct kb_var best = t->best.at[slot], where = t->where.at[slot];
	struct kb_val old = kb_get(k, best), at = kb_get(k, where);
	int lanes = kb_type_of(k, old).lanes;
	struct kb_val here = kb_splat(k, kb_cvt(k, column, KB_I32), lanes);
	if (lanes > 1)
		here = kb_add(k, here, kb_lane_ids(k, lanes));
	struct kb_val better = kb_cmp(k, KB_GT, x, old);
	kb_set(k, best, kb_select(k, better, x, old));
	kb_set(k, where, kb_select(k, better, here, at));
}

/* If no element is above -infinity (`low`), the comparison has found none: the first column that holds -infinity. */
static void find_first_low(struct eval *e, const struct eval_columns *c, struct kb_val low,
                           struct kb_var where)
{
	struct kb *k = e->k;
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", c->first, c->end, 1, 0);
	struct kb_val is_low = kb_cmp(k, KB_EQ, x_at(e, c, i, 1), low), old = kb_get(k, where);
	struct kb_val first = kb_min(k, kb_cvt(k, i, KB_I32), old);
	kb_set(k, where, kb_select(k, is_low, first, old));
	kb_end_loop(k);
	eval_release(e, mark);
}

struct kb_val eval_argmax_columns(struct eval *e, const struct eval_columns *c, struct kb_val *where)
{
	struct kb *k = e->k;
	const struct eval_point one = {.vec = -1};
	enum kb_scalar scalar = eval_scalar(eval_type(e, c->x)->dtype);
	struct kb_val none = kb_i32(k, INT32_MAX), low = eval_const(e, &one, scalar, -HUGE_VAL);
	struct argmax t = {.best = make_accumulators(e, c, "best", SLOTS, low)};
	t.where = make_accumulators(e, c, "where", SLOTS, none);
	for_each_column(e, c, SLOTS, update_argmax, &t);
	struct kb_val best = reduce_all(e, c, KB_MAX, &t.best);
	/* the lowest column among lanes that hold the maximum: others get INT32_MAX */
	for (int i = first_slot(c); i < end_slot(c, &t.best); i++) {
		struct kb_val old = kb_get(k, t.best.at[i]), at = kb_get(k, t.where.at[i]);
		int lanes = kb_type_of(k, old).lanes;
		struct kb_val maximum = kb_splat(k, best, lanes), nowhere = kb_splat(k, none, lanes);
		kb_set(k, t.where.at[i], kb_select(k, kb_cmp(k, KB_EQ, old, maximum), at, nowhere));
	}
	struct kb_var first = kb_var(k, "first", KB_I32_T, reduce_all(e, c, KB_MIN, &t.where));
	kb_if(k, kb_cmp(k, KB_EQ, best, low));
	find_first_low(e, c, low, first);
	kb_end_if(k);
	struct kb_val column = kb_cvt(k, c->first, KB_I32), found = kb_get(k, first);
	struct kb_val nothing = kb_cmp(k, KB_EQ, found, none);
	*where = kb_select(k, nothing, column, found);
	return kb_select(k, nothing, eval_const(e, &one, scalar, NAN), best);
}

/* ---- sum of exponentials ---- */

/* Shifted for stability: sum of exp(x - shift), shift = max(x). */
struct exp_sum {
	struct kb_val shift;
	struct accumulators most, sum;
};

static void update_max(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct kb_var most = ((struct exp_sum *)user)->most.at[slot];
	(void)column;
	kb_set(e->k, most, kb_max(e->k, x, kb_get(e->k, most)));
}

static void add_exp(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	const struct exp_sum *p = user;
	struct kb *k = e->k;
	struct kb_var sum = p->sum.at[slot];
	(void)column;
	struct kb_val shift = kb_splat(k, p->shift, kb_type_of(k, x).lanes);
	struct kb_val exponential = math_exp_nonpositive(k, kb_sub(k, x, shift));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), exponential));
}

/*
 * The values of strip_score: [0] the maximum m; [1] sum of exp(x - m); [2] x[id] - m if the id of the row is among
 * the columns, otherwise -infinity. If all columns are -infinity, [1] is 1 and [2] is 0 or -infinity. NaN propagates
 * to [1].
 */
static void score_columns(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                          struct kb_val number[EVAL_STRIP_VALUES])
{
	struct kb *k = e->k;
	struct kb_val none = kb_f32(k, -HUGE_VALF), zero = kb_f32(k, 0);
	struct exp_sum p = {.most = make_accumulators(e, c, "most", SLOTS, none)};
	p.sum = make_accumulators(e, c, "sum", 1,
	                          zero); /* one: the latency of the addition is hidden by exp */
	for_each_column(e, c, SLOTS, update_max, &p);
	struct kb_val most = reduce_all(e, c, KB_MAX, &p.most);
	p.shift = kb_select(k, kb_cmp(k, KB_EQ, most, none), zero, most);
	for_each_column(e, c, 1, add_exp, &p);
	struct kb_val sum = reduce_all(e, c, KB_ADD, &p.sum), empty = kb_cmp(k, KB_EQ, sum, zero);
	struct kb_var within = kb_var(k, "within", KB_F32_T, none);
	struct eval_point row = c->row;
	row.rank--;
	row.vec = -1;
	row.flat = (struct kb_val){0};
	const struct ir_type *x = eval_type(e, c->x);
	struct kb_val at = kb_cvt(k, eval_value(e, op->operands[1], &row), KB_INDEX);
	at = eval_clamp_index(e, at, eval_dim(e, x->dims[x->rank - 1]));
	struct kb_val is_below = kb_cmp(k, KB_LT, at, c->end);
	kb_if(k, kb_bin(k, KB_AND, kb_cmp(k, KB_GE, at, c->first), is_below));
	size_t mark = eval_mark(e);
	kb_set(k, within, kb_select(k, empty, zero, kb_sub(k, x_at(e, c, at, 1), p.shift)));
	eval_release(e, mark);
	kb_end_if(k);
	number[0] = most;
	number[1] = kb_select(k, empty, kb_f32(k, 1), sum);
	number[2] = kb_get(k, within);
}

int eval_strip_values(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                      struct kb_val number[EVAL_STRIP_VALUES])
{
	if (op->code == OP_strip_score) {
		score_columns(e, op, c, number);
		return 3;
	}
	struct kb_val where;
	number[0] = eval_argmax_columns(e, c, &where);
	number[1] = kb_cvt(e->k, where, kb_type_of(e->k, number[0]).scalar);
	return 2;
}

int64_t eval_strip_width(const struct ir_op *op)
{
	return op->code == OP_strip_argmax ? ((const struct attrs_strip_argmax *)op->attrs)->width
	                                   : ((const struct attrs_strip_score *)op->attrs)->width;
}

struct kb_val eval_strip(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	struct kb *k = e->k;
	const struct ir_type *x = eval_type(e, op->operands[0]);
	struct eval_columns c = {.x = op->operands[0], .row = {.rank = x->rank, .vec = -1}, .lanes = 1};
	struct kb_val number[EVAL_STRIP_VALUES], width = kb_index(k, eval_strip_width(op));
	if (op->code == OP_strip_score && eval_scalar(x->dtype) != KB_F32)
		return eval_unsupported(e, op, "strip_score of f64");
	for (int i = 0; i + 1 < x->rank; i++)
		c.row.index[i] = p->index[i];
	c.first = kb_mul(k, p->index[x->rank], width);
	c.end = kb_min(k, kb_add(k, c.first, width), eval_dim(e, x->dims[x->rank - 1]));
	int n = eval_strip_values(e, op, &c, number);
	struct kb_val selected = number[n - 1];
	for (int i = n - 2; i >= 0; i--) {
		struct kb_val is_it = kb_cmp(k, KB_EQ, p->index[x->rank - 1], kb_index(k, i));
		selected = kb_select(k, is_it, number[i], selected);
	}
	return selected;
}
