/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The epilogue of a linear whose columns nobody reads but arg-max, or the
 * log-probability of a given id: of each strip of MATMUL_STRIP panels a row
 * leaves two or three numbers (strip_argmax, strip_score) instead of its columns. Strips
 * begin at multiples of their width whoever computes them, so that the numbers
 * do not depend on the division of work.
 */
#include "backends/kb/math.h"
#include "backends/linear/matmul_internal.h"

#include <math.h>

#define WIDTH        ((int64_t)MATMUL_STRIP * MATMUL_PANEL)
#define UNROLLED_MAX 8 /* vectors */

/* One row of the open strip. */
struct strip_row {
	const struct linear *l;
	const struct matmul_strip *strip;
	struct eval_point at;     /* in the root's result */
	struct kb_val row;        /* of the stage */
	struct kb_val first, end; /* columns */
	bool is_whole;            /* WIDTH columns */
};

/* `lanes` columns from `column`, of which `valid` exist. */
typedef void column_fn(struct strip_row *s, struct kb_val column, struct kb_val x, int valid, void *user);

static int64_t width_of(const struct ir_op *op)
{
	return op->code == OP_strip_argmax ? ((const struct attrs_strip_argmax *)op->attrs)->width
	                                   : ((const struct attrs_strip_score *)op->attrs)->width;
}

/* ---- what the group says ---- */

bool matmul_find_strips(struct linear *l)
{
	const struct kernel *g = l->g;
	const struct ir_region *r = g->job->group->region;
	const struct ir_op *last = NULL;
	for (size_t i = (size_t)g->attrs->root + 1; i < r->n_ops; i++) {
		enum ir_opcode code = r->ops[i]->code;
		if (code == OP_strip_argmax || code == OP_strip_score)
			last = r->ops[i];
		else if (last && code != OP_yield)
			return false;
		else if (!ir_op_has(code, TRAIT_ELEMENTWISE) && !ir_op_has(code, TRAIT_CONST) &&
		         code != OP_yield)
			return false;
	}
	if (!last || g->out.n != 1 || g->job->items > 1 || width_of(last) != WIDTH ||
	    g->out.items[0].value.id != eval_result(last).id || g->out.items[0].to.t.dtype != DT_F32 ||
	    ir_type_of(l->job->func, last->operands[0])->dtype != DT_F32)
		return false;
	l->strips = last;
	l->norm.after = NULL;
	l->out = g->out.items[0];
	l->columns.unit = MATMUL_STRIP;
	return true;
}

/* ---- columns ---- */

/* What the strip op reads. */
static struct kb_val value_at(struct strip_row *s, struct kb_val column, int lanes, int valid)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	struct eval_width before = eval_width(l->eval, lanes, valid);
	struct kb_val in_row = kb_sub(k, column, s->first);
	struct kb_val at = kb_add(k, kb_mul(k, s->row, kb_index(k, l->stage.width)), in_row);
	struct eval_point p = s->at;
	p.vec = lanes > 1 ? l->rank - 1 : -1;
	p.index[l->rank - 1] = column;
	matmul_bind(l, s->strip->expert, &p, kb_load(k, KB_TYPE(KB_F32, lanes), l->stage.at, at, 0, 0));
	struct kb_val x = eval_value(l->eval, l->strips->operands[0], &p);
	eval_width(l->eval, before.lanes, before.valid);
	return x;
}

static void take_columns(struct strip_row *s, struct kb_val column, int valid, column_fn *fn, void *user)
{
	size_t mark = eval_mark(s->l->eval);
	fn(s, column, value_at(s, column, s->l->lanes, valid), valid, user);
	eval_release(s->l->eval, mark);
}

/* All columns of the strip, in order; of a whole one without a loop. */
static void walk_columns(struct strip_row *s, column_fn *fn, void *user)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	if (s->is_whole) {
		for (int64_t i = 0; i < WIDTH; i += l->lanes) {
			struct kb_val at = kb_add_const(k, s->first, i);
			fn(s, at, value_at(s, at, l->lanes, l->lanes), l->lanes, user);
		}
		return;
	}
	int64_t whole = l->columns.n / l->lanes * l->lanes;
	struct kb_val end = kb_min(k, s->end, kb_index(k, whole));
	struct kb_val column = kb_loop(k, "column", s->first, end, l->lanes, 0);
	take_columns(s, column, l->lanes, fn, user);
	kb_end_loop(k);
	if (whole == l->columns.n)
		return;
	kb_if(k, kb_cmp(k, KB_EQ, s->end, kb_index(k, l->columns.n)));
	take_columns(s, kb_index(k, whole), (int)(l->columns.n - whole), fn, user);
	kb_end_if(k);
}

/* Lanes that do not exist become `none`. */
static struct kb_val only_valid(const struct linear *l, struct kb_val x, int valid, float none)
{
	struct kb *k = l->k;
	if (valid >= l->lanes)
		return x;
	struct kb_val end = kb_splat(k, kb_i32(k, valid), l->lanes);
	struct kb_val exists = kb_cmp(k, KB_LT, kb_lane_ids(k, l->lanes), end);
	return kb_select(k, exists, x, kb_splat(k, kb_f32(k, none), l->lanes));
}

static struct kb_val reduced(const struct linear *l, enum kb_bin op, struct kb_val x)
{
	return l->lanes > 1 ? kb_reduce(l->k, op, x) : x;
}

/* Number `which` of the strip. */
static void store_number(struct strip_row *s, int which, struct kb_val v)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	struct eval_point p = {.rank = l->rank + 1, .vec = -1};
	for (int i = 0; i + 1 < l->rank; i++)
		p.index[i] = s->at.index[i];
	p.index[l->rank - 1] = kb_index(k, which);
	p.index[l->rank] = kb_bin(k, KB_DIV, s->strip->begin, kb_index(k, MATMUL_STRIP));
	kb_store(k, v, l->out.to.t.ptr, eval_offset(l->eval, &l->out.to, &p), 0, 0);
}

/* ---- arg-max ---- */

/* For each lane the largest so far and the lowest column that holds it. */
struct top {
	struct kb_var best, where;
};

static void take_top(struct strip_row *s, struct kb_val column, struct kb_val x, int valid, void *user)
{
	struct top *t = user;
	struct kb *k = s->l->k;
	x = only_valid(s->l, x, valid, NAN);
	struct kb_val old = kb_get(k, t->best), at = kb_get(k, t->where);
	struct kb_val here = kb_splat(k, kb_cvt(k, column, KB_I32), s->l->lanes);
	if (s->l->lanes > 1)
		here = kb_add(k, here, kb_lane_ids(k, s->l->lanes));
	struct kb_val is_before = kb_cmp(k, KB_LT, here, at);
	struct kb_val tie = kb_bin(k, KB_AND, kb_cmp(k, KB_EQ, x, old), is_before);
	struct kb_val better = kb_bin(k, KB_OR, kb_cmp(k, KB_GT, x, old), tie);
	kb_set(k, t->best, kb_select(k, better, x, old));
	kb_set(k, t->where, kb_select(k, better, here, at));
}

static void argmax_row(struct strip_row *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	int n = l->lanes;
	struct kb_val none = kb_i32(k, INT32_MAX);
	struct top t;
	t.best = kb_var(k, "best", KB_TYPE(KB_F32, n), kb_splat(k, kb_f32(k, -HUGE_VALF), n));
	t.where = kb_var(k, "where", KB_TYPE(KB_I32, n), kb_splat(k, none, n));
	walk_columns(s, take_top, &t);
	struct kb_val all = kb_get(k, t.best), best = reduced(l, KB_MAX, all);
	struct kb_val holds = kb_cmp(k, KB_EQ, all, kb_splat(k, best, n));
	struct kb_val nowhere = kb_splat(k, none, n);
	struct kb_val where = kb_select(k, holds, kb_get(k, t.where), nowhere);
	where = reduced(l, KB_MIN, where);
	struct kb_val nothing = kb_cmp(k, KB_EQ, where, none);
	where = kb_select(k, nothing, kb_cvt(k, s->first, KB_I32), where);
	store_number(s, 0, kb_select(k, nothing, kb_f32(k, NAN), best));
	store_number(s, 1, kb_cvt(k, where, KB_F32));
}

/* ---- log-probability ---- */

struct powers {
	struct kb_val shift;
	struct kb_var most, sum;
};

static void take_most(struct strip_row *s, struct kb_val column, struct kb_val x, int valid, void *user)
{
	struct powers *p = user;
	(void)column;
	x = only_valid(s->l, x, valid, -HUGE_VALF);
	kb_set(s->l->k, p->most, kb_max(s->l->k, x, kb_get(s->l->k, p->most)));
}

static void take_power(struct strip_row *s, struct kb_val column, struct kb_val x, int valid, void *user)
{
	struct powers *p = user;
	struct kb *k = s->l->k;
	(void)column;
	x = only_valid(s->l, x, valid, -HUGE_VALF);
	struct kb_val power = math_exp_nonpositive(k, kb_sub(k, x, kb_splat(k, p->shift, s->l->lanes)));
	kb_set(k, p->sum, kb_add(k, kb_get(k, p->sum), power));
}

/* Of a strip of -infinity the shift is 0; NaN reaches the sum. */
static struct kb_val find_powers(struct strip_row *s, struct powers *p)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	struct kb_type vec = KB_TYPE(KB_F32, l->lanes);
	struct kb_val none = kb_f32(k, -HUGE_VALF);
	p->most = kb_var(k, "most", vec, kb_splat(k, none, l->lanes));
	p->sum = kb_var(k, "sum", vec, kb_splat(k, kb_f32(k, 0), l->lanes));
	walk_columns(s, take_most, p);
	struct kb_val most = reduced(l, KB_MAX, kb_get(k, p->most));
	p->shift = kb_select(k, kb_cmp(k, KB_EQ, most, none), kb_f32(k, 0), most);
	walk_columns(s, take_power, p);
	return most;
}

/* The wanted column of the row, no less than 0 and no more than the last one. */
static struct kb_val wanted_column(struct strip_row *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	struct eval_point row = s->at;
	row.rank--;
	row.vec = -1;
	row.flat = (struct kb_val){0};
	struct eval_width before = eval_width(l->eval, 1, 1);
	struct kb_val at = kb_cvt(k, eval_value(l->eval, l->strips->operands[1], &row), KB_INDEX);
	eval_width(l->eval, before.lanes, before.valid);
	return eval_clamped(l->eval, at, kb_index(k, l->columns.n));
}

static void score_row(struct strip_row *s)
{
	const struct linear *l = s->l;
	struct kb *k = l->k;
	struct powers p;
	struct kb_val most = find_powers(s, &p), sum = reduced(l, KB_ADD, kb_get(k, p.sum));
	struct kb_val zero = kb_f32(k, 0), empty = kb_cmp(k, KB_EQ, sum, zero);
	struct kb_var within = kb_var(k, "within", KB_F32_T, kb_f32(k, -HUGE_VALF));
	struct kb_val at = wanted_column(s);
	struct kb_val is_below = kb_cmp(k, KB_LT, at, s->end);
	struct kb_val here = kb_bin(k, KB_AND, kb_cmp(k, KB_GE, at, s->first), is_below);
	kb_if(k, here);
	size_t mark = eval_mark(l->eval);
	kb_set(k, within, kb_select(k, empty, zero, kb_sub(k, value_at(s, at, 1, 1), p.shift)));
	eval_release(l->eval, mark);
	kb_end_if(k);
	store_number(s, 0, most);
	store_number(s, 1, kb_select(k, empty, kb_f32(k, 1), sum));
	store_number(s, 2, kb_get(k, within));
}

static void emit_row(struct strip_row *s, bool is_whole)
{
	size_t mark = eval_mark(s->l->eval);
	s->is_whole = is_whole;
	if (s->l->strips->code == OP_strip_argmax)
		argmax_row(s);
	else
		score_row(s);
	eval_release(s->l->eval, mark);
}

/* Every row of the strip; whole strips of few vectors have a walk of their own. */
void matmul_strips_epilogue(const struct linear *l, const struct matmul_strip *strip, struct kb_val row,
                            struct kb_val rows)
{
	struct kb *k = l->k;
	struct kb_val width = kb_index(k, MATMUL_PANEL);
	struct strip_row s = {.l = l, .strip = strip, .first = kb_mul(k, strip->begin, width)};
	bool unrolls = WIDTH / l->lanes <= UNROLLED_MAX && l->columns.n >= WIDTH;
	bool has_part = l->columns.n % WIDTH != 0;
	s.end = kb_min(k, kb_mul(k, strip->end, width), kb_index(k, l->columns.n));
	s.row = kb_loop(k, "row", kb_index(k, 0), rows, 1, KB_NONEMPTY);
	size_t mark = eval_mark(l->eval);
	s.at = matmul_point(l, kb_add(k, row, s.row), s.first);
	if (unrolls && has_part)
		kb_if(k, kb_cmp(k, KB_EQ, kb_sub(k, s.end, s.first), kb_index(k, WIDTH)));
	if (unrolls)
		emit_row(&s, true);
	if (unrolls && has_part)
		kb_else(k);
	if (!unrolls || has_part)
		emit_row(&s, false);
	if (unrolls && has_part)
		kb_end_if(k);
	eval_release(l->eval, mark);
	kb_end_loop(k);
}
