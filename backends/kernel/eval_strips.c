/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: what a range of columns of a row leaves: its largest element, or the sum of its powers. Whole
 * vectors first, then single elements. A strip op has several numbers for each strip of the last axis of x: the
 * index before the last of its point says which one is wanted, the last one the strip.
 */
#include "backends/kernel/eval.h"
#include "backends/kb/math.h"

#include <math.h>

#define SLOTS 4

/* What is found among single elements, [0], and among vectors, which take turns: one would wait for itself. */
struct found {
	int slots; /* of vectors */
	struct kb_var at[1 + SLOTS];
};

/* An element, or as many as x has lanes, from `column` on. */
typedef void column_fn(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user);

static struct kb_val value_at(struct eval *e, const struct eval_columns *c, struct kb_val column, int lanes)
{
	struct eval_point p = c->row;
	p.vec = lanes > 1 ? p.rank - 1 : -1;
	p.index[p.rank - 1] = column;
	struct eval_width before = eval_width(e, lanes, lanes);
	struct kb_val x = eval_value(e, c->x, &p);
	eval_width(e, before.lanes, before.valid);
	return x;
}

static void take(struct eval *e, const struct eval_columns *c, struct kb_val column, int slot, column_fn *fn,
                 void *user)
{
	size_t mark = eval_mark(e);
	fn(e, column, value_at(e, c, column, slot ? c->lanes : 1), slot, user);
	eval_release(e, mark);
}

/* All columns, in order. */
static void walk(struct eval *e, const struct eval_columns *c, int slots, column_fn *fn, void *user)
{
	struct kb *k = e->k;
	struct kb_val i, main = c->first;
	for (int64_t at = 0; at < c->unrolled; at += c->lanes)
		take(e, c, kb_add_const(k, c->first, at), 1 + (int)(at / c->lanes) % slots, fn, user);
	if (c->unrolled > 0)
		return;
	if (c->lanes > 1) {
		int64_t step = (int64_t)c->lanes * slots;
		struct kb_val n = kb_sub(k, c->end, c->first);
		main = kb_sub(k, c->end, kb_rem_const(k, n, step));
		i = kb_loop(k, "i", c->first, main, step, 0);
		for (int slot = 0; slot < slots; slot++)
			take(e, c, kb_add_const(k, i, (int64_t)slot * c->lanes), 1 + slot, fn, user);
		kb_end_loop(k);
	}
	i = kb_loop(k, "i", main, c->end, 1, 0);
	take(e, c, i, 0, fn, user);
	kb_end_loop(k);
}

/* Those that a walk sets: [first, end). */
static int first_slot(const struct eval_columns *c)
{
	return c->unrolled > 0;
}

static int end_slot(const struct eval_columns *c, const struct found *f)
{
	return c->lanes > 1 ? 1 + f->slots : 1;
}

static struct found begin(struct eval *e, const struct eval_columns *c, const char *name, int slots,
                          struct kb_val none)
{
	struct found f = {.slots = slots};
	for (int i = first_slot(c); i < end_slot(c, &f); i++) {
		struct kb_type type = {kb_type_of(e->k, none).scalar, i ? c->lanes : 1};
		f.at[i] = kb_var(e->k, name, type, kb_splat(e->k, none, type.lanes));
	}
	return f;
}

/* What was found in all of them. */
static struct kb_val joined(struct eval *e, const struct eval_columns *c, enum kb_bin op,
                            const struct found *f)
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

/* ---- the largest ---- */

/* The largest so far and the lowest column that holds it. */
struct top {
	struct found best, where;
};

static void take_top(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct top *t = user;
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

/* No element is above -infinity, `low`: the first that is no NaN. */
static void find_low(struct eval *e, const struct eval_columns *c, struct kb_val low, struct kb_var where)
{
	struct kb *k = e->k;
	size_t mark = eval_mark(e);
	struct kb_val i = kb_loop(k, "i", c->first, c->end, 1, 0);
	struct kb_val is_low = kb_cmp(k, KB_EQ, value_at(e, c, i, 1), low), old = kb_get(k, where);
	struct kb_val first = kb_min(k, kb_cvt(k, i, KB_I32), old);
	kb_set(k, where, kb_select(k, is_low, first, old));
	kb_end_loop(k);
	eval_release(e, mark);
}

struct kb_val eval_argmax_columns(struct eval *e, const struct eval_columns *c, struct kb_val *where)
{
	struct kb *k = e->k;
	const struct eval_point one = {.vec = -1};
	enum kb_scalar scalar = eval_scalar(ir_type_of(e->job->func, c->x)->dtype);
	struct kb_val none = kb_i32(k, INT32_MAX), low = eval_const(e, &one, scalar, -HUGE_VAL);
	struct top t = {.best = begin(e, c, "best", SLOTS, low)};
	t.where = begin(e, c, "where", SLOTS, none);
	walk(e, c, SLOTS, take_top, &t);
	struct kb_val best = joined(e, c, KB_MAX, &t.best);
	for (int i = first_slot(c); i < end_slot(c, &t.best); i++) { /* columns that hold less are none */
		struct kb_val old = kb_get(k, t.best.at[i]), at = kb_get(k, t.where.at[i]);
		int lanes = kb_type_of(k, old).lanes;
		struct kb_val wanted = kb_splat(k, best, lanes), nowhere = kb_splat(k, none, lanes);
		kb_set(k, t.where.at[i], kb_select(k, kb_cmp(k, KB_EQ, old, wanted), at, nowhere));
	}
	struct kb_var first = kb_var(k, "first", KB_I32_T, joined(e, c, KB_MIN, &t.where));
	kb_if(k, kb_cmp(k, KB_EQ, best, low));
	find_low(e, c, low, first);
	kb_end_if(k);
	struct kb_val column = kb_cvt(k, c->first, KB_I32), found = kb_get(k, first);
	struct kb_val nothing = kb_cmp(k, KB_EQ, found, none);
	*where = kb_select(k, nothing, column, found);
	return kb_select(k, nothing, eval_const(e, &one, scalar, NAN), best);
}

/* ---- powers ---- */

struct powers {
	struct kb_val shift;
	struct found most, sum;
};

static void take_most(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	struct kb_var most = ((struct powers *)user)->most.at[slot];
	(void)column;
	kb_set(e->k, most, kb_max(e->k, x, kb_get(e->k, most)));
}

static void take_power(struct eval *e, struct kb_val column, struct kb_val x, int slot, void *user)
{
	const struct powers *p = user;
	struct kb *k = e->k;
	struct kb_var sum = p->sum.at[slot];
	(void)column;
	struct kb_val shift = kb_splat(k, p->shift, kb_type_of(k, x).lanes);
	struct kb_val power = math_exp_nonpositive(k, kb_sub(k, x, shift));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), power));
}

/* The largest; the sum of powers relative to it, of nothing but -infinity 1; the column of the wanted id relative
 * to it. Of columns of -infinity the shift is 0; NaN reaches the sum. */
static void score(struct eval *e, const struct ir_op *op, const struct eval_columns *c,
                  struct kb_val number[EVAL_STRIP_VALUES])
{
	struct kb *k = e->k;
	struct kb_val none = kb_f32(k, -HUGE_VALF), zero = kb_f32(k, 0);
	struct powers p = {.most = begin(e, c, "most", SLOTS, none)};
	p.sum = begin(e, c, "sum", 1, zero); /* exponentials hide how long a sum takes */
	walk(e, c, SLOTS, take_most, &p);
	struct kb_val most = joined(e, c, KB_MAX, &p.most);
	p.shift = kb_select(k, kb_cmp(k, KB_EQ, most, none), zero, most);
	walk(e, c, 1, take_power, &p);
	struct kb_val sum = joined(e, c, KB_ADD, &p.sum), empty = kb_cmp(k, KB_EQ, sum, zero);
	struct kb_var within = kb_var(k, "within", KB_F32_T, none);
	struct eval_point row = c->row;
	row.rank--;
	row.vec = -1;
	row.flat = (struct kb_val){0};
	const struct ir_type *x = ir_type_of(e->job->func, c->x);
	struct kb_val at = kb_cvt(k, eval_value(e, op->operands[1], &row), KB_INDEX);
	at = eval_clamp_index(e, at, eval_dim(e, x->dims[x->rank - 1]));
	struct kb_val is_below = kb_cmp(k, KB_LT, at, c->end);
	kb_if(k, kb_bin(k, KB_AND, kb_cmp(k, KB_GE, at, c->first), is_below));
	size_t mark = eval_mark(e);
	kb_set(k, within, kb_select(k, empty, zero, kb_sub(k, value_at(e, c, at, 1), p.shift)));
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
		score(e, op, c, number);
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
	const struct ir_type *x = ir_type_of(e->job->func, op->operands[0]);
	struct eval_columns c = {.x = op->operands[0], .row = {.rank = x->rank, .vec = -1}, .lanes = 1};
	struct kb_val number[EVAL_STRIP_VALUES], width = kb_index(k, eval_strip_width(op));
	if (op->code == OP_strip_score && eval_scalar(x->dtype) != KB_F32)
		return eval_unsupported(e, op, "strip_score of f64");
	for (int i = 0; i + 1 < x->rank; i++)
		c.row.index[i] = p->index[i];
	c.first = kb_mul(k, p->index[x->rank], width);
	c.end = kb_min(k, kb_add(k, c.first, width), eval_dim(e, x->dims[x->rank - 1]));
	int n = eval_strip_values(e, op, &c, number);
	struct kb_val wanted = number[n - 1];
	for (int i = n - 2; i >= 0; i--) {
		struct kb_val is_it = kb_cmp(k, KB_EQ, p->index[x->rank - 1], kb_index(k, i));
		wanted = kb_select(k, is_it, number[i], wanted);
	}
	return wanted;
}
