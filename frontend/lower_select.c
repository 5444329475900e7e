/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that choose or count along an axis: cumsum, topk, scatter. They are
 * made of comparisons of positions and reductions, so every backend has them;
 * work grows with the square of the axis, which is bounded.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower.h"

#define SELECT_MAX 4096 /* size of the axis of topk and cumsum */

static const struct ir_type *type_of(const struct call *c, struct ir_value v)
{
	return irb_type(c->lw->b, v);
}

static bool give(const struct call *c, struct lval *out, struct ir_value v)
{
	*out = lval_tensor(v);
	return !irb_failed(c->lw->b);
}

static struct ir_value compare(struct ir_builder *b, struct ir_value x, struct ir_value y, int kind)
{
	return irb_cmp(b, x, y, &(struct attrs_cmp){.kind = kind});
}

static struct ir_value to(struct ir_builder *b, struct ir_value x, enum ir_dtype dtype)
{
	return irb_cast(b, x, &(struct attrs_cast){.dtype = dtype});
}

/* x [.., n] as [.., m, n] or, along the other axis, [.., n, m]: `extra` is m, `at` where it comes to lie. */
static struct ir_value spread(struct ir_builder *b, struct ir_value x, const struct ir_dim *one,
                              const struct ir_dim *extra, int at)
{
	const struct ir_type *t = irb_type(b, x);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (t == NULL)
		return x;
	int rank = t->rank + 1;
	for (int i = 0; i < rank; i++)
		dims[i] = i == at ? one : t->dims[i < at ? i : i - 1];
	x = irb_reshape_to(b, x, rank, dims);
	dims[at] = extra;
	return irb_broadcast_to(b, x, rank, dims);
}

static struct ir_value positions_like(struct ir_builder *b, struct ir_value x, int axis)
{
	const struct ir_type *t = irb_type(b, x);
	if (t == NULL)
		return x;
	return irb_iota(b, &(struct attrs_iota){.dims = {(const struct ir_dim **)t->dims, (size_t)t->rank},
	                                        .axis = axis});
}

static bool check_axis(const struct call *c, struct ir_value x, int64_t axis)
{
	const struct ir_type *t = type_of(c, x);
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT)
		return lower_fail(c->lw, c->e->loc, DIAG_DTYPE, "%s wants a float tensor, found %s",
		                  c->e->text, type_text(c->lw, x));
	if (t->rank + 1 > IR_RANK_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "%s of more than %d axes", c->e->text,
		                  IR_RANK_MAX - 1);
	if (ir_dim_hi(c->lw->module->dims, t->dims[axis]) > SELECT_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_UNSUPPORTED,
		                  "not supported yet: %s over an axis of more than %d elements", c->e->text,
		                  SELECT_MAX);
	return call_refuse_mixing(c, x, axis);
}

/* Each element is a sum of its own, over the elements before it in their order. */
bool lower_cumsum(const struct call *c, struct lval *out)
{
	struct ir_builder *b = c->lw->b;
	struct ir_value x;
	int64_t axis = -1;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", type_of(c, x)->rank, &axis) ||
	    !check_axis(c, x, axis))
		return false;
	const struct ir_type *t = type_of(c, x);
	int at = (int)axis;
	int64_t reduced = at + 1;
	/* [.., i, j, ..] */
	struct ir_value wide = spread(b, x, ir_dim_const(c->lw->module->dims, 1), t->dims[at], at);
	struct ir_value i = positions_like(b, wide, at), j = positions_like(b, wide, at + 1);
	const struct ir_type *w = irb_type(b, wide);
	if (irb_failed(b))
		return false;
	struct ir_value zero = irb_full_of(b, 0.0, t->dtype, w->rank, w->dims);
	wide = irb_where(b, compare(b, j, i, CMP_le), wide, zero, NULL);
	return give(c, out, irb_reduce_sum(b, wide, &(struct attrs_reduce_sum){.axes = {&reduced, 1}}));
}

/* ---- topk ---- */

/* f32 [.., n]: how many elements come before each one: larger ones, and equal ones with a lower index. */
static struct ir_value places_of(const struct call *c, struct ir_value x)
{
	struct ir_builder *b = c->lw->b;
	const struct ir_type *t = type_of(c, x);
	const struct ir_dim *one = ir_dim_const(c->lw->module->dims, 1), *n = t->dims[t->rank - 1];
	int64_t last = t->rank;
	struct ir_value own = spread(b, x, one, n, t->rank), other = spread(b, x, one, n, t->rank - 1);
	struct ir_value i = positions_like(b, own, t->rank - 1), j = positions_like(b, own, t->rank);
	struct ir_value tie = irb_and(b, compare(b, other, own, CMP_eq), compare(b, j, i, CMP_lt), NULL);
	struct ir_value before = irb_or(b, compare(b, other, own, CMP_gt), tie, NULL);
	return irb_reduce_sum(b, to(b, before, DT_F32), &(struct attrs_reduce_sum){.axes = {&last, 1}});
}

bool lower_topk(const struct call *c, struct lval *out)
{
	struct lowering *lw = c->lw;
	struct ir_builder *b = lw->b;
	struct ir_value x;
	int64_t k = 0;
	if (!call_tensor(c, "x", &x) || !call_int(c, "k", &k))
		return false;
	const struct ir_type *t = type_of(c, x);
	if (t->rank < 1)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE, "topk of %s", type_text(lw, x));
	if (!check_axis(c, x, t->rank - 1))
		return false;
	if (k < 1 || k > ir_dim_lo(lw->module->dims, t->dims[t->rank - 1]))
		return lower_fail(lw, c->e->loc, DIAG_VALUE_TYPE, "topk of %lld elements of %s", (long long)k,
		                  type_text(lw, x));
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1), *kd = ir_dim_const(lw->module->dims, k);
	int64_t last = t->rank;
	struct ir_value place = spread(b, places_of(c, x), one, kd, t->rank - 1); /* [.., k, n] */
	struct ir_value wide = spread(b, x, one, kd, t->rank - 1);
	struct ir_value slot = to(b, positions_like(b, wide, t->rank - 1), DT_F32);
	struct ir_value id = to(b, positions_like(b, wide, t->rank), DT_F32);
	const struct ir_type *w = irb_type(b, wide);
	if (irb_failed(b))
		return false;
	struct ir_value here = compare(b, place, slot, CMP_eq);
	struct ir_value low = irb_full_of(b, -HUGE_VAL, t->dtype, w->rank, w->dims);
	struct ir_value zero = irb_full_of(b, 0.0, DT_F32, w->rank, w->dims);
	struct ir_value values = irb_reduce_max(b, irb_where(b, here, wide, low, NULL),
	                                        &(struct attrs_reduce_max){.axes = {&last, 1}});
	struct ir_value ids = irb_reduce_max(b, irb_where(b, here, id, zero, NULL),
	                                     &(struct attrs_reduce_max){.axes = {&last, 1}});
	*out = (struct lval){.kind = LV_TUPLE, .items = ARENA_ARRAY(lw->arena, struct lval, 2), .n = 2};
	if (out->items == NULL || irb_failed(b))
		return false;
	out->items[0] = lval_tensor(values);
	out->items[1] = lval_tensor(to(b, ids, DT_I32));
	return !irb_failed(b);
}

/* ---- scatter ---- */

struct scatter {
	const struct call *c;
	struct ir_value x, ids, y; /* x [n, rest..], ids [m], y [m, rest..] */
	int64_t axis;
};

/* Axis first, ids with one axis; y has the shape of ids in place of the axis. */
static bool read_scatter(struct scatter *s)
{
	struct lowering *lw = s->c->lw;
	struct ir_builder *b = lw->b;
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!call_tensor(s->c, "x", &s->x) || !call_tensor(s->c, "ids", &s->ids) ||
	    !call_tensor(s->c, "y", &s->y) || !call_axis(s->c, "axis", type_of(s->c, s->x)->rank, &s->axis) ||
	    !call_refuse_mixing(s->c, s->x, s->axis))
		return false;
	const struct ir_type *x = type_of(s->c, s->x), *ids = type_of(s->c, s->ids), *y = type_of(s->c, s->y);
	int n = ids->rank;
	bool fits = ids->dtype == DT_I32 && y->dtype == x->dtype && y->rank == x->rank - 1 + n;
	for (int i = 0; fits && i < y->rank; i++) {
		int at = i < s->axis ? i : i - n + 1;
		fits = i >= s->axis && i < s->axis + n ? y->dims[i] == ids->dims[i - s->axis]
		                                       : y->dims[i] == x->dims[at];
	}
	if (!fits)
		return lower_fail(lw, s->c->e->loc, DIAG_SHAPE, "scatter of %s at %s into axis %lld of %s",
		                  type_text(lw, s->y), type_text(lw, s->ids), (long long)s->axis,
		                  type_text(lw, s->x));
	const struct ir_dim *m = ir_type_count_range(lw->module->dims, ids, 0, n);
	int rank = 0;
	for (int i = 0; i < y->rank; i++)
		if (i < s->axis || i >= s->axis + n)
			dims[rank++] = y->dims[i];
		else if (i == s->axis)
			dims[rank++] = m;
	if (n == 0)
		return lower_fail(lw, s->c->e->loc, DIAG_SHAPE, "the ids of scatter have one axis at least");
	s->y = lower_axis_first(lw, irb_reshape_to(b, s->y, rank, dims), (int)s->axis);
	s->ids = irb_reshape_to(b, s->ids, 1, &m);
	s->x = lower_axis_first(lw, s->x, (int)s->axis);
	return !irb_failed(b);
}

/* i32 [n]: the last one of the ids that is the row, or -1. */
static struct ir_value last_writer(const struct scatter *s)
{
	struct ir_builder *b = s->c->lw->b;
	const struct ir_dim *n = type_of(s->c, s->x)->dims[0], *m = type_of(s->c, s->ids)->dims[0];
	const struct ir_dim *all[] = {n, m};
	int64_t last = 1;
	struct ir_value row = irb_iota(b, &(struct attrs_iota){.dims = {all, 2}, .axis = 0});
	struct ir_value at = irb_iota(b, &(struct attrs_iota){.dims = {all, 2}, .axis = 1});
	struct ir_value hit = compare(b, irb_broadcast_to(b, s->ids, 2, all), row, CMP_eq);
	struct ir_value none = irb_full_of(b, -1.0, DT_F32, 2, all);
	struct ir_value w = irb_where(b, hit, to(b, at, DT_F32), none, NULL);
	return to(b, irb_reduce_max(b, w, &(struct attrs_reduce_max){.axes = {&last, 1}}), DT_I32);
}

bool lower_scatter(const struct call *c, struct lval *out)
{
	struct scatter s = {.c = c};
	struct ir_builder *b = c->lw->b;
	if (!read_scatter(&s))
		return false;
	if (ir_dim_hi(c->lw->module->dims, type_of(c, s.ids)->dims[0]) > SELECT_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_UNSUPPORTED,
		                  "not supported yet: scatter of more than %d rows", SELECT_MAX);
	struct ir_value writer = last_writer(&s);
	if (irb_failed(b))
		return false;
	const struct ir_type *t = type_of(c, s.x);
	const struct ir_dim *column[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		column[i] = i == 0 ? t->dims[0] : ir_dim_const(c->lw->module->dims, 1);
	struct ir_value zero = irb_full_of(b, 0.0, DT_I32, 1, t->dims);
	struct ir_value hit = irb_reshape_to(b, compare(b, writer, zero, CMP_ge), t->rank, column);
	struct ir_value rows = irb_gather(b, s.y, writer, NULL); /* clamps -1, which is not taken */
	rows = irb_where(b, irb_broadcast_to(b, hit, t->rank, t->dims), rows, s.x, NULL);
	return !irb_failed(b) && give(c, out, lower_axes_back(c->lw, rows, 1, (int)s.axis));
}
