/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that select or count along an axis: cumsum, topk, scatter. The IR ops work on rows of the last
 * axis; scatter is a gather: for each row of the result the op last_index finds the last id that names it.
 * call_mixes_axis declares the axis along which positions influence each other, and the neutral element that padding of
 * an encoder input gets there; FILL_NONE: only results past the end depend on it.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */

#include "frontend/lower/lower.h"

/* Swaps `axis` and the last axis. */
static struct ir_value swap_with_last_axis(struct ir_builder *b, struct ir_value x, int64_t axis)
{
	int64_t perm[IR_RANK_MAX];
	int rank = irb_type(b, x)->rank;
	for (int i = 0; i < rank; i++)
		perm[i] = i;
	perm[axis] = rank - 1;
	perm[rank - 1] = axis;
	return axis == rank - 1 ? x : irb_transpose_by(b, x, rank, perm);
}

static bool check_numbers(const struct call *c, struct ir_value x)
{
	const struct ir_type *t = call_type(c, x);
	if (ir_dtype_class(t->dtype) == DTCLASS_BOOL)
		return lower_fail(c->lw, c->e->loc, DIAG_DTYPE, "%s wants a tensor of numbers, found %s",
		                  c->e->text, type_to_string(c->lw, x));
	return true;
}

/* cumsum(x, axis): inclusive prefix sums. Padding at the end needs no fill, since only sums past the end read it. */
bool lower_cumsum(const struct call *c, struct lowered *out)
{
	struct ir_builder *b = c->lw->b;
	struct ir_value x;
	int64_t axis = 0;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &axis) ||
	    !check_numbers(c, x) || !call_mixes_axis(c, &x, axis, FILL_NONE))
		return false;
	x = irb_cumsum(b, swap_with_last_axis(b, x, axis), NULL);
	return !irb_failed(b) && call_return(c, out, swap_with_last_axis(b, x, axis));
}

/* ---- topk ---- */

/* The type in which topk computes: the op returns values and indices in one tensor, so it must represent
 * indices. */
static enum ir_dtype topk_compute_type(enum ir_dtype t)
{
	if (ir_dtype_bytes(t) >= 4)
		return t;
	return ir_dtype_class(t) == DTCLASS_FLOAT ? DT_F32 : DT_I32;
}

/* Row `which` (0: values, 1: indices) of the result [.., 2, k] of the op topk, as [.., k] of another type. */
static struct ir_value topk_part(const struct call *c, struct ir_value pairs, int64_t which,
                                 enum ir_dtype dtype)
{
	struct ir_builder *b = c->lw->b;
	struct ir_dims *d = c->lw->module->dims;
	const struct ir_type *t = irb_type(b, pairs);
	const struct ir_dim *dims[IR_RANK_MAX];
	if (t == NULL)
		return pairs;
	int rank = t->rank - 1;
	for (int i = 0; i < rank; i++)
		dims[i] = t->dims[i];
	dims[rank - 1] = t->dims[rank];
	pairs = irb_slice_of(b, pairs, rank - 1, ir_dim_const(d, which), ir_dim_const(d, 1));
	pairs = irb_reshape_to(b, pairs, rank, dims);
	return irb_failed(b) ? pairs : lower_cast_to(c->lw, pairs, dtype);
}

/* Checks x and k, which is at most the smallest size of a dynamic axis, so that every call has k elements; padding of
 * *x becomes the lowest value. The op's result has one axis more. False after a report. */
static bool check_topk(const struct call *c, struct ir_value *x, int64_t k)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = call_type(c, *x);
	if (t->rank < 1)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE, "topk of %s", type_to_string(lw, *x));
	if (t->rank + 1 > IR_RANK_MAX)
		return lower_fail(lw, c->e->loc, DIAG_LIMIT, "topk of more than %d axes", IR_RANK_MAX - 1);
	if (k < 1 || k > ir_dim_lo(lw->module->dims, t->dims[t->rank - 1]))
		return lower_fail(lw, c->e->loc, DIAG_VALUE_TYPE, "topk of %lld elements of %s", (long long)k,
		                  type_to_string(lw, *x));
	return check_numbers(c, *x) && call_mixes_axis(c, x, t->rank - 1, FILL_LOWEST);
}

/* topk(x, k): a tuple of the k largest elements of the last axis and their i32 indices. */
bool lower_topk(const struct call *c, struct lowered *out)
{
	struct lowering *lw = c->lw;
	struct ir_value x;
	int64_t k = 0;
	if (!call_tensor(c, "x", &x) || !call_int(c, "k", &k) || !check_topk(c, &x, k))
		return false;
	enum ir_dtype dtype = call_type(c, x)->dtype;
	struct ir_value pairs =
	        irb_topk(lw->b, lower_cast_to(lw, x, topk_compute_type(dtype)), &(struct attrs_topk){.k = k});
	*out = (struct lowered){
	        .kind = LOWERED_TUPLE, .items = ARENA_ARRAY(lw->arena, struct lowered, 2), .n = 2};
	if (out->items == NULL || irb_failed(lw->b))
		return false;
	out->items[0] = lowered_tensor(topk_part(c, pairs, 0, dtype));
	out->items[1] = lowered_tensor(topk_part(c, pairs, 1, DT_I32));
	return !irb_failed(lw->b);
}

/* ---- scatter ---- */

struct scatter {
	const struct call *c;
	struct ir_value x, ids, y; /* x [n, others..], ids [m], y [m, others..] */
	int64_t axis;
};

/* Reads and checks the operands (y has the axes of ids in place of the axis of x), moves the axis to the front and
 * flattens ids, so that lower_scatter() works on rows: x [n, others..], ids [m], y [m, others..]. */
static bool read_scatter(struct scatter *s)
{
	struct lowering *lw = s->c->lw;
	struct ir_builder *b = lw->b;
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!call_tensor(s->c, "x", &s->x) || !call_tensor(s->c, "ids", &s->ids) ||
	    !call_tensor(s->c, "y", &s->y) ||
	    !call_axis(s->c, "axis", call_type(s->c, s->x)->rank, &s->axis) ||
	    !call_mixes_axis(s->c, &s->x, s->axis, FILL_NONE))
		return false;
	const struct ir_type *x = call_type(s->c, s->x), *ids = call_type(s->c, s->ids),
	                     *y = call_type(s->c, s->y);
	int n = ids->rank;
	bool fits = ids->dtype == DT_I32 && y->dtype == x->dtype && y->rank == x->rank - 1 + n;
	for (int i = 0; fits && i < y->rank; i++) {
		int at = i < s->axis ? i : i - n + 1;
		fits = i >= s->axis && i < s->axis + n ? y->dims[i] == ids->dims[i - s->axis]
		                                       : y->dims[i] == x->dims[at];
	}
	if (!fits)
		return lower_fail(lw, s->c->e->loc, DIAG_SHAPE, "scatter of %s at %s into axis %lld of %s",
		                  type_to_string(lw, s->y), type_to_string(lw, s->ids), (long long)s->axis,
		                  type_to_string(lw, s->x));
	const struct ir_dim *m = ir_type_count_range(lw->module->dims, ids, 0, n);
	int rank = 0;
	for (int i = 0; i < y->rank; i++)
		if (i < s->axis || i >= s->axis + n)
			dims[rank++] = y->dims[i];
		else if (i == s->axis)
			dims[rank++] = m;
	if (n == 0)
		return lower_fail(lw, s->c->e->loc, DIAG_SHAPE, "the ids of scatter have one axis at least");
	s->y = lower_axis_to_front(lw, irb_reshape_to(b, s->y, rank, dims), (int)s->axis);
	s->ids = irb_reshape_to(b, s->ids, 1, &m);
	s->x = lower_axis_to_front(lw, s->x, (int)s->axis);
	return !irb_failed(b);
}

/* scatter(x, ids, y, axis): x with row ids[i] replaced by y[i]. `writer` is, for each row of x, the last i whose
 * id names it, or -1: the row of x stays. */
bool lower_scatter(const struct call *c, struct lowered *out)
{
	struct scatter s = {.c = c};
	struct ir_builder *b = c->lw->b;
	if (!read_scatter(&s))
		return false;
	struct attrs_last_index rows_of = {.size = call_type(c, s.x)->dims[0]};
	struct ir_value writer = irb_last_index(b, s.ids, &rows_of);
	if (irb_failed(b))
		return false;
	const struct ir_type *t = call_type(c, s.x);
	const struct ir_dim *column[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		column[i] = i == 0 ? t->dims[0] : ir_dim_const(c->lw->module->dims, 1);
	struct ir_value zero = irb_full_of(b, 0.0, DT_I32, 1, t->dims);
	struct ir_value hit = irb_reshape_to(b, irb_cmp(b, writer, zero, &(struct attrs_cmp){.kind = CMP_ge}),
	                                     t->rank, column);
	/* -1 is clamped to 0; the where below ignores these rows */
	struct ir_value rows = irb_gather(b, s.y, writer, NULL);
	rows = irb_where(b, irb_broadcast_to(b, hit, t->rank, t->dims), rows, s.x, NULL);
	return !irb_failed(b) && call_return(c, out, lower_axes_from_front(c->lw, rows, 1, (int)s.axis));
}
