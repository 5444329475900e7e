/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data movement (reshape, transpose, slice, gather, windows, ..) and matmul. call_mixes_axis declares each axis
 * along which positions influence each other: in decode an error for the axis of new tokens; on an axis of the
 * encoder input, padding past the end gets a neutral element (FILL_NONE: none is needed, as only results past the end
 * depend on it), or the operator is not supported (FILL_UNSUPPORTED). Functions return false after a report.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */

#include "frontend/lower/lower.h"

/* reshape(x, shape): no size is inferred. In decode the end of a source must stay the end of an axis
 * (lower_reshape_source). */
bool lower_reshape(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank;
	return call_tensor(c, "x", &x) && call_dims(c, "shape", &rank, dims) &&
	       lower_reshape_source(c, x, rank, dims) &&
	       call_return(c, out, irb_reshape_to(c->lw->b, x, rank, dims));
}

bool lower_broadcast(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const struct ir_dim *dims[IR_RANK_MAX];
	int rank;
	return call_tensor(c, "x", &x) && call_dims(c, "shape", &rank, dims) &&
	       call_return(c, out, irb_broadcast_to(c->lw->b, x, rank, dims));
}

/* perm is read as a shape: a list of ints, none negative; the builder rejects one that is no permutation. */
bool lower_transpose(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t perm[IR_RANK_MAX];
	int rank;
	if (!call_tensor(c, "x", &x) || !call_dims(c, "perm", &rank, dims))
		return false;
	for (int i = 0; i < rank; i++) {
		if (!ir_dim_is_const(dims[i], &perm[i]))
			return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "perm wants ints");
	}
	return call_return(c, out, irb_transpose_by(c->lw->b, x, rank, perm));
}

/* concat(xs, axis). Only the last tensor may have padding of a source along the axis: its end must be the end of the
 * axis. */
bool lower_concat(const struct call *c, struct lowered *out)
{
	const struct expr *list = call_arg(c, "xs");
	struct ir_value v;
	int64_t axis = 0;
	if (list->kind != EX_LIST || list->n_args == 0)
		return lower_fail(c->lw, list->loc, DIAG_VALUE_TYPE, "concat wants a list of tensors");
	struct ir_value *xs = ARENA_ARRAY(c->lw->arena, struct ir_value, list->n_args);
	if (xs == NULL)
		return false;
	for (size_t i = 0; i < list->n_args; i++) {
		struct lowered t;
		if (!lower_expr(c->lw, list->args[i], &t))
			return false;
		if (t.kind != LOWERED_TENSOR)
			return lower_fail(c->lw, list->args[i]->loc, DIAG_VALUE_TYPE, "concat wants tensors");
		xs[i] = t.v;
	}
	if (!call_axis(c, "axis", call_type(c, xs[0])->rank, &axis))
		return false;
	for (size_t i = 0; i < list->n_args; i++) {
		if (!call_mixes_axis(c, &xs[i], axis, i + 1 == list->n_args ? FILL_NONE : FILL_UNSUPPORTED))
			return false;
	}
	v = irb_op1(c->lw->b, OP_concat, xs, list->n_args, &(struct attrs_concat){.axis = axis});
	return call_return(c, out, v);
}

/* split(x, axis, sizes): a tuple of slices, whose sizes must add up to the axis. A part after one with a size of the
 * source would begin elsewhere in each sequence, which is not supported. */
bool lower_split(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const struct ir_dim *sizes[IR_RANK_MAX];
	int n;
	int64_t axis = 0;
	struct lowering *lw = c->lw;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &axis) ||
	    !call_dims(c, "sizes", &n, sizes))
		return false;
	bool follows_source = false; /* a part starts after a part whose size depends on the source */
	for (int i = 0; i + 1 < n; i++)
		follows_source = follows_source || lower_is_source(lw, sizes[i]);
	if (!call_mixes_axis(c, &x, axis, follows_source ? FILL_UNSUPPORTED : FILL_NONE))
		return false;
	const struct ir_dim *begin = ir_dim_const(lw->module->dims, 0);
	*out = (struct lowered){
	        .kind = LOWERED_TUPLE, .items = ARENA_ARRAY(lw->arena, struct lowered, n), .n = (size_t)n};
	for (int i = 0; out->items != NULL && i < n; i++) {
		out->items[i] = lowered_tensor(irb_slice_of(lw->b, x, (int)axis, begin, sizes[i]));
		begin = ir_dim_add(lw->module->dims, begin, sizes[i]);
	}
	if (begin != call_type(c, x)->dims[axis])
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "the sizes of split do not add up to axis %lld of %s", (long long)axis,
		                  type_to_string(lw, x));
	return out->items != NULL && !irb_failed(lw->b);
}

/* Reads a bound of slice on an axis of `size` elements: an int or a size; negative ints count from the end. A bound
 * that may be before the axis for some size is an error; the builder checks the end. */
static bool read_slice_bound(const struct call *c, const char *name, const struct ir_dim *size,
                             const struct ir_dim **out)
{
	struct lowering *lw = c->lw;
	const struct expr *e = call_arg(c, name);
	struct value v;
	const struct ir_dim *d;
	int64_t n;
	if (!expr_eval(&lw->env, e, &v) || !expr_require_dim(&lw->env, e->loc, name, &v, &d))
		return false;
	d = lower_dim(lw, d);
	*out = ir_dim_is_const(d, &n) && n < 0 ? ir_dim_add(lw->module->dims, d, size) : d;
	if (ir_dim_lo(lw->module->dims, *out) < 0)
		return lower_fail(lw, e->loc, DIAG_INDEX, "'%s' of slice may be in front of the axis", name);
	return true;
}

/* Every step-th element of an axis, ceil(n / step) of them, by a gather: the IR has no strided slice. */
static struct ir_value strided_axis(struct lowering *lw, struct ir_value x, int axis, int64_t step)
{
	struct ir_dims *dims = lw->module->dims;
	struct ir_builder *b = lw->b;
	if (step == 1)
		return x;
	const struct ir_dim *n = irb_type(b, x)->dims[axis];
	n = ir_dim_floordiv(dims, ir_dim_add(dims, n, ir_dim_const(dims, step - 1)), step);
	struct ir_value at = irb_iota(b, &(struct attrs_iota){.dims = {&n, 1}, .axis = 0});
	at = irb_mul(b, at, irb_full_of(b, (double)step, DT_I32, 1, &n), NULL);
	return lower_gather_axis(lw, x, axis, at);
}

/* slice(x, axis, begin, end, step): elements begin, begin + step, .. before end. A slice that begins at a size of the
 * source begins elsewhere in each sequence, which is not supported. */
bool lower_slice(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	const struct ir_dim *begin, *end;
	int64_t axis = 0, step = 0;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &axis) ||
	    !read_slice_bound(c, "begin", call_type(c, x)->dims[axis], &begin) ||
	    !call_mixes_axis(c, &x, axis, lower_is_source(c->lw, begin) ? FILL_UNSUPPORTED : FILL_NONE) ||
	    !read_slice_bound(c, "end", call_type(c, x)->dims[axis], &end) || !call_int(c, "step", &step))
		return false;
	if (step < 1 || step > INT32_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "the step of slice is at least 1");
	struct ir_dims *dims = c->lw->module->dims;
	const struct ir_dim *size = ir_dim_sub(dims, end, begin);
	x = irb_slice_of(c->lw->b, x, (int)axis, begin, size);
	return !irb_failed(c->lw->b) && call_return(c, out, strided_axis(c->lw, x, (int)axis, step));
}

/* perm[i]: the axis that becomes axis i; the others keep their order. */
struct ir_value lower_axis_to_front(struct lowering *lw, struct ir_value x, int axis)
{
	int64_t perm[IR_RANK_MAX] = {axis};
	int rank = irb_type(lw->b, x)->rank;
	for (int i = 0, to = 1; i < rank; i++)
		if (i != axis)
			perm[to++] = i;
	return axis == 0 ? x : irb_transpose_by(lw->b, x, rank, perm);
}

/* perm[i]: the axis that becomes axis i. */
struct ir_value lower_axes_from_front(struct lowering *lw, struct ir_value x, int n, int axis)
{
	int64_t perm[IR_RANK_MAX];
	int rank = irb_type(lw->b, x)->rank;
	for (int i = 0; i < rank; i++)
		perm[i] = i < axis ? i + n : i < axis + n ? i - axis : i;
	return axis == 0 ? x : irb_transpose_by(lw->b, x, rank, perm);
}

struct ir_value lower_gather_axis(struct lowering *lw, struct ir_value x, int axis, struct ir_value at)
{
	const struct ir_type *ids = irb_type(lw->b, at);
	x = irb_gather(lw->b, lower_axis_to_front(lw, x, axis), at, NULL);
	return irb_failed(lw->b) ? x : lower_axes_from_front(lw, x, ids->rank, axis);
}

/* A gather at the i32 indices [count, size], i hop + k step. */
struct ir_value lower_windows(struct lowering *lw, struct ir_value x, int axis, const struct lower_windows *w)
{
	struct ir_builder *b = lw->b;
	const struct ir_dim *dims[] = {w->count, ir_dim_const(lw->module->dims, w->size)};
	struct ir_value first = irb_iota(b, &(struct attrs_iota){.dims = {dims, 2}, .axis = 0});
	struct ir_value next = irb_iota(b, &(struct attrs_iota){.dims = {dims, 2}, .axis = 1});
	first = irb_mul(b, first, irb_full_of(b, (double)w->hop, DT_I32, 2, dims), NULL);
	if (w->step != 1)
		next = irb_mul(b, next, irb_full_of(b, (double)w->step, DT_I32, 2, dims), NULL);
	if (irb_failed(b))
		return x;
	struct ir_value at = irb_add(b, first, next, NULL);
	return lower_gather_axis(lw, x, axis, at);
}

/* frame(x, size, hop, axis): windows [.., (n - size) // hop + 1, size, ..] of an axis of n elements; every window is
 * full, for the least n, too. The result has one axis more. */
bool lower_frame(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	struct lower_windows w = {.step = 1};
	int64_t axis = 0;
	struct ir_dims *dims = c->lw->module->dims;
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &axis) ||
	    !call_mixes_axis(c, &x, axis, FILL_NONE) || !call_int(c, "size", &w.size) ||
	    !call_int(c, "hop", &w.hop))
		return false;
	if (w.size < 1 || w.size > INT32_MAX || w.hop < 1 || w.hop > INT32_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "size and hop of frame are at least 1");
	if (call_type(c, x)->rank == IR_RANK_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	const struct ir_dim *span =
	        ir_dim_add(dims, call_type(c, x)->dims[axis], ir_dim_const(dims, -w.size));
	if (ir_dim_lo(dims, span) < 0)
		return lower_fail(c->lw, c->e->loc, DIAG_SHAPE,
		                  "frame: a window of %lld is longer than axis %lld of %s may be",
		                  (long long)w.size, (long long)axis, type_to_string(c->lw, x));
	w.count = ir_dim_add(dims, ir_dim_floordiv(dims, span, w.hop), ir_dim_const(dims, 1));
	return call_return(c, out, lower_windows(c->lw, x, (int)axis, &w));
}

/* pad(x, axis, before, after, value). In decode nothing can follow the padding of an encoder input. */
bool lower_pad(const struct call *c, struct lowered *out)
{
	struct ir_value x;
	struct attrs_pad at = {.axis = 0};
	if (!call_tensor(c, "x", &x) || !call_axis(c, "axis", call_type(c, x)->rank, &at.axis) ||
	    !call_int(c, "before", &at.before) || !call_int(c, "after", &at.after) ||
	    !call_mixes_axis(c, &x, at.axis, at.after > 0 ? FILL_UNSUPPORTED : FILL_NONE) ||
	    !call_float(c, "value", &at.value))
		return false;
	if (!lower_dtype_holds(call_type(c, x)->dtype, at.value))
		return lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE,
		                  "pad: %.17g is not a value of %s, or too large", at.value,
		                  ir_dtype_name(call_type(c, x)->dtype));
	return call_return(c, out, irb_pad(c->lw->b, x, &at));
}

/* gather(x, ids, axis): elements of an axis at i32 ids; the axes of ids replace it. */
bool lower_gather(const struct call *c, struct lowered *out)
{
	struct ir_value x, ids;
	int64_t axis = 0;
	if (!call_tensor(c, "x", &x) || !call_tensor(c, "ids", &ids) ||
	    !call_axis(c, "axis", call_type(c, x)->rank, &axis) || !call_mixes_axis(c, &x, axis, FILL_NONE))
		return false;
	int n = call_type(c, ids)->rank;
	if (call_type(c, x)->rank - 1 + n > IR_RANK_MAX)
		return lower_fail(c->lw, c->e->loc, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	x = irb_gather(c->lw->b, lower_axis_to_front(c->lw, x, (int)axis), ids, NULL);
	return !irb_failed(c->lw->b) && call_return(c, out, lower_axes_from_front(c->lw, x, n, (int)axis));
}

/* Broadcasts the batch axes of two matrices [.., rows, columns], aligned at the end as in NumPy. False after a
 * report. */
static bool broadcast_leading_axes(const struct call *c, struct ir_value *a, struct ir_value *b)
{
	const struct ir_type *ta = call_type(c, *a), *tb = call_type(c, *b);
	const struct ir_dim *da[IR_RANK_MAX], *db[IR_RANK_MAX];
	if (ta->rank < 2 || tb->rank < 2)
		return lower_fail(c->lw, c->e->loc, DIAG_SHAPE, "matmul of %s and %s",
		                  type_to_string(c->lw, *a), type_to_string(c->lw, *b));
	int rank = ta->rank > tb->rank ? ta->rank : tb->rank;
	for (int i = 1; i <= rank; i++) {
		const struct ir_dim *x =
		        i <= ta->rank ? ta->dims[ta->rank - i] : ir_dim_const(c->lw->module->dims, 1);
		const struct ir_dim *y =
		        i <= tb->rank ? tb->dims[tb->rank - i] : ir_dim_const(c->lw->module->dims, 1);
		bool lead = i > 2;
		da[rank - i] = lead && ir_dim_equals(x, 1) ? y : x;
		db[rank - i] = lead && ir_dim_equals(y, 1) ? x : y;
		if (lead && da[rank - i] != db[rank - i])
			return lower_fail(c->lw, c->e->loc, DIAG_SHAPE,
			                  "matmul of %s and %s: leading axes differ",
			                  type_to_string(c->lw, *a), type_to_string(c->lw, *b));
	}
	*a = irb_broadcast_to(c->lw->b, *a, rank, da);
	*b = irb_broadcast_to(c->lw->b, *b, rank, db);
	return !irb_failed(c->lw->b);
}

/* a b, each transposed or not. The summed axes get zeros; the columns of b are declared, too, since every row of a
 * meets all of their positions. Rows of a are independent. */
bool lower_matmul(const struct call *c, struct lowered *out)
{
	struct ir_value a, b;
	struct attrs_matmul at = {.ta = false};
	if (!call_tensor(c, "a", &a) || !call_tensor(c, "b", &b) || !call_bool(c, "transpose_a", &at.ta) ||
	    !call_bool(c, "transpose_b", &at.tb))
		return false;
	if (!broadcast_leading_axes(c, &a, &b))
		return false;
	int row = call_type(c, a)->rank - 2, column = row + 1;
	return call_mixes_axis(c, &a, at.ta ? row : column, FILL_ZERO) &&
	       call_mixes_axis(c, &b, at.tb ? column : row, FILL_ZERO) &&
	       call_mixes_axis(c, &b, at.tb ? row : column, FILL_NONE) &&
	       call_return(c, out, irb_matmul(c->lw->b, a, b, &at));
}
