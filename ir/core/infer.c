/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type inference: the result types of an op, or a diagnostic with both shapes. First operands are checked against the
 * classes of their row in ir/core/ops.def; then the op's rule applies, or for ops without one the named axes of the row
 * (ir/core/axes.h). The builder and the verifier both call it, so they cannot disagree. A rule sets c->out and returns
 * true, or reports and returns false. Dims and types are interned: equal ones are one pointer, and two dims that are
 * not provably equal are different. in[i] is operand i in the order of ops.def, NULL if absent.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/core/axes.h"

/* One call of ir_infer. */
struct infer {
	struct ir_module *m;
	struct diag_context *cx;
	struct ir_loc loc;
	const struct ir_op_desc *desc;
	const struct ir_type *const *in; /* NULL: absent */
	size_t n_in;
	const void *attrs;
	const struct ir_type **out;
};

/* ---- checks, each false after a report ---- */

/* Reports `op: message`; returns false, so that rules can return it. */
static bool infer_fail(const struct infer *c, enum diag_code code, const char *fmt, ...) TFMC_PRINTF(3, 4);

static bool infer_fail(const struct infer *c, enum diag_code code, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, &c->m->arena, fmt);
	diag_error(c->cx, c->loc.at, code, "%s: %s", c->desc->name, text);
	return false;
}

static const char *type_string(const struct infer *c, const struct ir_type *t)
{
	return ir_type_to_string(&c->m->arena, c->m->dims, t);
}

static const char *dim_string(const struct infer *c, const struct ir_dim *d)
{
	return ir_dim_to_string(&c->m->arena, c->m->dims, d, false);
}

/* The name of operand i in ops.def; all variadic ones have the name of the last row entry. */
static const char *operand_name(const struct infer *c, size_t i)
{
	const struct ir_operand_desc *d = c->desc->operands;
	for (size_t k = 0; k < i && d->name != NULL && d->kind != OPERAND_VARIADIC; k++)
		d++;
	return d->name != NULL ? d->name : "operand";
}

/* `op: a is f32[2,3], b is f32[3]: <what>` */
static bool infer_mismatch(const struct infer *c, enum diag_code code, size_t a, size_t b, const char *what)
{
	return infer_fail(c, code, "%s is %s, %s is %s: %s", operand_name(c, a), type_string(c, c->in[a]),
	                  operand_name(c, b), type_string(c, c->in[b]), what);
}

static bool infer_rank_min(const struct infer *c, size_t i, int rank)
{
	if (c->in[i]->rank >= rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "%s is %s, it needs at least %d axes", operand_name(c, i),
	                  type_string(c, c->in[i]), rank);
}

/* An absent operand has every rank. */
static bool infer_rank(const struct infer *c, size_t i, int rank)
{
	if (c->in[i] == NULL || c->in[i]->rank == rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "%s is %s, it needs %d axes", operand_name(c, i),
	                  type_string(c, c->in[i]), rank);
}

/* Axis x of operand a equals axis y of operand b; true if one is absent. */
static bool infer_axes_equal(const struct infer *c, size_t a, int x, size_t b, int y)
{
	if (c->in[a] == NULL || c->in[b] == NULL || c->in[a]->dims[x] == c->in[b]->dims[y])
		return true;
	const char *what = arena_printf(&c->m->arena, "axis %d of %s (%s) and axis %d of %s (%s) differ", x,
	                                operand_name(c, a), dim_string(c, c->in[a]->dims[x]), y,
	                                operand_name(c, b), dim_string(c, c->in[b]->dims[y]));
	return infer_mismatch(c, DIAG_SHAPE, a, b, what);
}

/* Operand i, if present, is i32[B] with B = axis 0 of operand `of`. */
static bool infer_per_batch(const struct infer *c, size_t i, size_t of)
{
	if (i >= c->n_in || c->in[i] == NULL)
		return true;
	return infer_rank(c, i, 1) && infer_axes_equal(c, i, 0, of, 0);
}

static bool infer_axis(const struct infer *c, int64_t axis, int rank)
{
	if (axis >= 0 && axis < rank)
		return true;
	return infer_fail(c, DIAG_SHAPE, "axis %" PRId64 " of a tensor with %d axes", axis, rank);
}

static bool infer_same_dtype(const struct infer *c, size_t a, size_t b)
{
	if (c->in[a]->dtype == c->in[b]->dtype)
		return true;
	return infer_mismatch(c, DIAG_DTYPE, a, b, "the element types differ");
}

/* Sets out[0] to a tensor type; reports a rank that is too large or a dim that may be negative for some values of
 * the symbols. */
static bool infer_result(const struct infer *c, enum ir_dtype dtype, int rank,
                         const struct ir_dim *const *dims)
{
	if (rank > IR_RANK_MAX)
		return infer_fail(c, DIAG_SHAPE, "the result has %d axes, at most %d are possible", rank,
		                  IR_RANK_MAX);
	for (int i = 0; i < rank; i++) {
		if (dims[i] == NULL)
			return infer_fail(c, DIAG_SHAPE, "a dim of the result is missing");
		if (ir_dim_lo(c->m->dims, dims[i]) < 0)
			return infer_fail(c, DIAG_SHAPE, "axis %d of the result (%s) may be negative", i,
			                  dim_string(c, dims[i]));
	}
	c->out[0] = ir_type_tensor(c->m->types, dtype, rank, dims);
	return c->out[0] != NULL || infer_fail(c, DIAG_INTERNAL, "out of memory");
}

/* ---- inference by named axes ---- */

/* First occurrence of a named axis. */
struct axis_origin {
	bool known;
	size_t operand;
	int axis;
};

/* Reports that operand i does not have the rank of its axes. Single wildcards are elementwise ops, where both full
 * shapes help; a wildcard that is not known yet (< 0) can only be too short. */
static bool fail_rank(const struct infer *c, const struct ir_axes *a, size_t i)
{
	const struct ir_axis_list *list = &a->in[i];
	if (list->wildcard >= 0 && list->n == 1 && a->in[0].n == 1)
		return infer_mismatch(c, DIAG_SHAPE, 0, i, "the shapes differ (only broadcast repeats axes)");
	if (list->wildcard >= 0 && a->wildcard[list->wildcard] < 0)
		return infer_rank_min(c, i, list->n - 1);
	return infer_rank(c, i, ir_axes_rank(a, list));
}

/*
 * Checks that axes of the same name have equal sizes; origins[name]: the operand and axis where the name occurs first.
 * Where operand 0 and this one are each a single wildcard (elementwise ops), the message shows both full shapes,
 * as for a wrong rank; else the two axes.
 */
static bool match_axes(const struct infer *c, const struct ir_axes *a, struct axis_origin *origins)
{
	for (size_t i = 0; i < a->n_in; i++) {
		const struct ir_axis_list *list = &a->in[i];
		for (int k = 0; c->in[i] != NULL && k < c->in[i]->rank; k++) {
			struct axis_origin *first = &origins[ir_axis_name(a, list, k)];
			if (!first->known) {
				*first = (struct axis_origin){true, i, k};
				continue;
			}
			if (c->in[first->operand]->dims[first->axis] == c->in[i]->dims[k])
				continue;
			bool is_elementwise =
			        list->n == 1 && list->wildcard >= 0 && first->operand == 0 && a->in[0].n == 1;
			return is_elementwise ? fail_rank(c, a, i)
			                      : infer_axes_equal(c, first->operand, first->axis, i, k);
		}
	}
	return true;
}

/* out[0] has the dtype of operand 0 and the axes of the result in the op's row, each with the size of the operand
 * axis of that name. */
static bool infer_by_axes(const struct infer *c)
{
	struct axis_origin origins[IR_AXIS_NAMES] = {{0}};
	const struct ir_dim *dims[2 * IR_RANK_MAX];
	struct ir_axes a;
	size_t misfit;
	if (!ir_axes(c->desc->code, c->attrs, c->in, c->n_in, &a, &misfit))
		return misfit == SIZE_MAX ? infer_fail(c, DIAG_INTERNAL, "has neither axes nor a rule")
		                          : fail_rank(c, &a, misfit);
	if (!match_axes(c, &a, origins))
		return false;
	int rank = ir_axes_rank(&a, &a.out);
	for (int i = 0; i < rank && i < (int)TFMC_COUNT(dims); i++) {
		const struct axis_origin *p = &origins[ir_axis_name(&a, &a.out, i)];
		dims[i] = c->in[p->operand]->dims[p->axis];
	}
	return infer_result(c, c->in[0]->dtype, rank, dims);
}

/* ---- constants ---- */

/* n indices, scalars, select along the first n axes of the weight (layers); the result has the other axes. */
static bool infer_weight(const struct infer *c)
{
	const struct ir_weight *w = ((const struct attrs_weight *)c->attrs)->weight;
	if (w == NULL)
		return infer_fail(c, DIAG_IR_TYPE, "no weight is named");
	if (c->n_in > (size_t)w->type->rank)
		return infer_fail(c, DIAG_SHAPE, "%zu indices into the weight @%s, which is %s", c->n_in,
		                  w->name, type_string(c, w->type));
	for (size_t i = 0; i < c->n_in; i++)
		if (!infer_rank(c, i, 0))
			return false;
	return infer_result(c, w->type->dtype, w->type->rank - (int)c->n_in, w->type->dims + c->n_in);
}

static bool infer_dims(const struct infer *c, enum ir_dtype dtype, const struct ir_dim_list *dims)
{
	if (dims->n > IR_RANK_MAX)
		return infer_fail(c, DIAG_SHAPE, "%zu axes, at most %d are possible", dims->n, IR_RANK_MAX);
	return infer_result(c, dtype, (int)dims->n, dims->items);
}

static bool infer_full(const struct infer *c)
{
	const struct attrs_full *a = c->attrs;
	return infer_dims(c, a->dtype, &a->dims);
}

static bool infer_iota(const struct infer *c)
{
	const struct attrs_iota *a = c->attrs;
	if (!infer_dims(c, DT_I32, &a->dims))
		return false;
	return infer_axis(c, a->axis, c->out[0]->rank);
}

/* The value is i32: it must fit for all values of the symbols. */
static bool infer_dim_value(const struct infer *c)
{
	const struct attrs_dim_value *a = c->attrs;
	if (a->dim == NULL || ir_dim_lo(c->m->dims, a->dim) < INT32_MIN ||
	    ir_dim_hi(c->m->dims, a->dim) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the dim is missing or may not fit into i32");
	return infer_dims(c, DT_I32, &a->dims);
}

/* ---- elementwise ---- */

static bool infer_softcap(const struct infer *c)
{
	const struct attrs_softcap *a = c->attrs;
	if (!(a->c > 0.0))
		return infer_fail(c, DIAG_IR_TYPE, "c must be positive");
	return infer_by_axes(c);
}

static bool infer_cast(const struct infer *c)
{
	const struct attrs_cast *a = c->attrs;
	return infer_result(c, a->dtype, c->in[0]->rank, c->in[0]->dims);
}

static bool infer_binary(const struct infer *c)
{
	return infer_by_axes(c) && infer_same_dtype(c, 0, 1);
}

static bool infer_cmp(const struct infer *c)
{
	return infer_binary(c) && infer_result(c, DT_BOOL, c->in[0]->rank, c->in[0]->dims);
}

/* The type of the values, not of the condition, which is operand 0. */
static bool infer_where(const struct infer *c)
{
	if (!infer_by_axes(c) || !infer_same_dtype(c, 1, 2))
		return false;
	c->out[0] = c->in[1];
	return true;
}

/* ---- masks and attention windows ---- */

static bool present(const struct infer *c, size_t i)
{
	return i < c->n_in && c->in[i] != NULL;
}

static bool check_window(const struct infer *c, int64_t window)
{
	if (window >= 0 && window <= IR_WINDOW_MAX)
		return true;
	return infer_fail(c, DIAG_IR_TYPE, "window is 0 (none) to 2^30");
}

/* x [..,S,T]; with len or past (operands 1 and 2, i32[B]), axis 0 of x is the batch, so there must be three axes. */
static bool infer_masked(const struct infer *c, int64_t window)
{
	if (!check_window(c, window))
		return false;
	bool batch = present(c, 1) || present(c, 2);
	if (!infer_rank_min(c, 0, batch ? 3 : 2) || !infer_per_batch(c, 1, 0) || !infer_per_batch(c, 2, 0))
		return false;
	c->out[0] = c->in[0];
	return true;
}

static bool infer_mask(const struct infer *c)
{
	return infer_masked(c, ((const struct attrs_mask *)c->attrs)->window);
}

static bool infer_masked_softmax(const struct infer *c)
{
	return infer_masked(c, ((const struct attrs_masked_softmax *)c->attrs)->window);
}

/* ---- reductions ---- */

/* Removes the axes, which must ascend (each is found once), or with `keep` makes them 1. */
static bool infer_reduce(const struct infer *c)
{
	const struct attrs_reduce_sum *a = c->attrs; /* those of all reductions */
	const struct ir_int_list *axes = &a->axes;
	bool keep = a->keep;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	size_t next = 0;
	int rank = 0;
	for (size_t i = 0; i < axes->n; i++) {
		if (!infer_axis(c, axes->items[i], x->rank))
			return false;
		if (i > 0 && axes->items[i] <= axes->items[i - 1])
			return infer_fail(c, DIAG_IR_TYPE, "axes must ascend");
	}
	for (int i = 0; i < x->rank; i++) {
		bool removed = next < axes->n && axes->items[next] == i;
		next += removed;
		if (!removed || keep)
			dims[rank++] = removed ? ir_dim_const(c->m->dims, 1) : x->dims[i];
	}
	return infer_result(c, x->dtype, rank, dims);
}

/* Removes the axis (-1: the last one); indices are i32. */
static bool infer_argmax(const struct infer *c)
{
	const struct attrs_argmax *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t axis = a->axis == -1 ? x->rank - 1 : a->axis;
	int rank = 0;
	if (!infer_rank_min(c, 0, 1) || !infer_axis(c, axis, x->rank))
		return false;
	for (int i = 0; i < x->rank; i++)
		if (i != axis)
			dims[rank++] = x->dims[i];
	return infer_result(c, DT_I32, rank, dims);
}

/* ---- dynamic quantization ---- */

/* 16 or 32 bits: kernels quantize in f32, in which f64 would be rounded first. */
static bool infer_quantize_rows(const struct infer *c)
{
	if (c->in[0]->dtype == DT_F64)
		return infer_fail(c, DIAG_DTYPE, "x must have 16 or 32 bits: it is quantized in f32");
	if (((const struct attrs_quantize_rows *)c->attrs)->block < 0)
		return infer_fail(c, DIAG_IR_TYPE, "block must not be negative");
	return infer_by_axes(c);
}

/* ---- blocks of the last axis ---- */

/* x [..,V] -> [..,n_values,n blocks]; V is constant, and at most 2^24, so that column indices are exact in f32. */
static bool infer_blocks(const struct infer *c, int64_t width, int64_t n_values)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	int64_t columns;
	if (!infer_rank_min(c, 0, 1))
		return false;
	if (width < 1 || !ir_dim_is_const(x->dims[x->rank - 1], &columns) || columns < 1 || columns > 1 << 24)
		return infer_fail(c, DIAG_SHAPE,
		                  "width is at least 1 and the last axis of x a constant from 1 to 2^24");
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[i];
	dims[x->rank - 1] = ir_dim_const(c->m->dims, n_values);
	dims[x->rank] = ir_dim_const(c->m->dims, (columns - 1) / width + 1);
	return infer_result(c, x->dtype, x->rank + 1, dims);
}

static bool infer_block_argmax(const struct infer *c)
{
	return infer_blocks(c, ((const struct attrs_block_argmax *)c->attrs)->width, 2);
}

/* x [..,V], at [..]: one column of each row; the result as infer_blocks with 3 values. */
static bool infer_block_log_softmax(const struct infer *c)
{
	int rank = c->in[0]->rank - 1;
	if (!infer_rank_min(c, 0, 1) || !infer_rank(c, 1, rank))
		return false;
	for (int i = 0; i < rank; i++)
		if (!infer_axes_equal(c, 1, i, 0, i))
			return false;
	return infer_blocks(c, ((const struct attrs_block_log_softmax *)c->attrs)->width, 3);
}

/* ---- scans and selections along a row ---- */

/* x [..,V] -> [..,2,k], values and their indices in one type: V is at most 2^24, so that indices are exact in f32,
 * and types of 2 bytes could not hold them. k is at most V for all values of the symbols. */
static bool infer_topk(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	int64_t k = ((const struct attrs_topk *)c->attrs)->k;
	if (!infer_rank_min(c, 0, 1))
		return false;
	if (ir_dtype_bytes(x->dtype) < 4 || x->rank >= IR_RANK_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "x is f32, f64, i32 or i64 with less than %d axes",
		                  IR_RANK_MAX);
	const struct ir_dim *width = x->dims[x->rank - 1];
	if (k < 1 || k > ir_dim_lo(c->m->dims, width) || ir_dim_hi(c->m->dims, width) > 1 << 24)
		return infer_fail(c, DIAG_SHAPE,
		                  "k is 1 to the size of the last axis, which is at most 2^24");
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[i];
	dims[x->rank - 1] = ir_dim_const(c->m->dims, 2);
	dims[x->rank] = ir_dim_const(c->m->dims, k);
	return infer_result(c, x->dtype, x->rank + 1, dims);
}

static bool infer_ranks(const struct infer *c, int64_t ranks)
{
	return (ranks >= 2 && ranks <= IR_RANKS_MAX) ||
	       infer_fail(c, DIAG_SHAPE, "ranks is 2 to %d", IR_RANKS_MAX);
}

static bool infer_all_reduce(const struct infer *c)
{
	return infer_ranks(c, ((const struct attrs_all_reduce *)c->attrs)->ranks) && infer_by_axes(c);
}

/* x [..,K] -> [.., ranks K]: the columns of all ranks, in their order. */
static bool infer_all_gather(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t ranks = ((const struct attrs_all_gather *)c->attrs)->ranks;
	if (!infer_rank_min(c, 0, 1) || !infer_ranks(c, ranks))
		return false;
	for (int i = 0; i < x->rank; i++)
		dims[i] = x->dims[i];
	dims[x->rank - 1] = ir_dim_mul(c->m->dims, x->dims[x->rank - 1], ir_dim_const(c->m->dims, ranks));
	return infer_result(c, x->dtype, x->rank, dims);
}

/* send and receive: the result has the type of x. Processes are stages x ranks; the division keeps the product from
 * overflowing. */
static bool infer_stage(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct attrs_send *a = c->attrs; /* those of receive are the same */
	if (a->ranks < 1 || a->stages < 2 || a->ranks > IR_RANKS_MAX / a->stages)
		return infer_fail(c, DIAG_SHAPE, "2 stages or more, with at most %d ranks in all",
		                  IR_RANKS_MAX);
	return infer_result(c, x->dtype, x->rank, x->dims);
}

/* ids [M] -> i32[size]. Positions and size must fit into i32. */
static bool infer_last_index(const struct infer *c)
{
	const struct attrs_last_index *a = c->attrs;
	if (!infer_rank(c, 0, 1))
		return false;
	if (a->size == NULL || ir_dim_lo(c->m->dims, a->size) < 0 ||
	    ir_dim_hi(c->m->dims, a->size) > INT32_MAX ||
	    ir_dim_hi(c->m->dims, c->in[0]->dims[0]) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the size is missing or does not fit into i32");
	return infer_result(c, DT_I32, 1, &a->size);
}

/* ---- movement ---- */

/* The result has the shape of the attribute, which must have provably as many elements as x. */
static bool infer_reshape(const struct infer *c)
{
	const struct attrs_reshape *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!infer_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_dim *from = ir_type_count(c->m->dims, x), *to = ir_type_count(c->m->dims, c->out[0]);
	if (from == to)
		return true;
	return infer_fail(c, DIAG_SHAPE, "x is %s, the result is %s: %s and %s elements", type_string(c, x),
	                  type_string(c, c->out[0]), dim_string(c, from), dim_string(c, to));
}

/* Axis i of the result is axis perm[i] of x; perm must be a permutation. */
static bool infer_transpose(const struct infer *c)
{
	const struct attrs_transpose *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	unsigned seen = 0;
	if (a->perm.n != (size_t)x->rank)
		return infer_fail(c, DIAG_SHAPE, "perm has %zu axes, x is %s", a->perm.n, type_string(c, x));
	for (size_t i = 0; i < a->perm.n; i++) {
		int64_t axis = a->perm.items[i];
		if (!infer_axis(c, axis, x->rank))
			return false;
		if (seen & (1u << axis))
			return infer_fail(c, DIAG_IR_TYPE, "perm names axis %" PRId64 " twice", axis);
		seen |= 1u << axis;
		dims[i] = x->dims[axis];
	}
	return infer_result(c, x->dtype, x->rank, dims);
}

/* Axes are aligned at the last one; each axis of x has the size of the result's or 1. */
static bool infer_broadcast(const struct infer *c)
{
	const struct attrs_broadcast *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!infer_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_type *to = c->out[0];
	bool fits = to->rank >= x->rank;
	for (int i = 0; fits && i < x->rank; i++)
		fits = x->dims[i] == to->dims[i + to->rank - x->rank] || ir_dim_equals(x->dims[i], 1);
	return fits || infer_fail(c, DIAG_SHAPE, "x is %s, which does not repeat to %s", type_string(c, x),
	                          type_string(c, to));
}

/* Adds before + after elements to one axis. Bounds keep their sum within int64. */
static bool infer_pad(const struct infer *c)
{
	const struct attrs_pad *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_axis(c, a->axis, x->rank))
		return false;
	if (a->before < 0 || a->after < 0 || a->before > INT32_MAX || a->after > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE,
		                  "before (%" PRId64 ") and after (%" PRId64
		                  ") cannot be negative or so large",
		                  a->before, a->after);
	memcpy(dims, x->dims, sizeof(dims));
	dims[a->axis] = ir_dim_add(c->m->dims, dims[a->axis], ir_dim_const(c->m->dims, a->before + a->after));
	return infer_result(c, x->dtype, x->rank, dims);
}

/* Elements [begin, begin + size) of one axis, provably inside of it for all values of the symbols. */
static bool infer_slice(const struct infer *c)
{
	const struct attrs_slice *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_axis(c, a->axis, x->rank))
		return false;
	if (a->begin == NULL || a->size == NULL)
		return infer_fail(c, DIAG_IR_TYPE, "begin and size are needed");
	const struct ir_dim *size = x->dims[a->axis];
	const struct ir_dim *end = ir_dim_add(c->m->dims, a->begin, a->size);
	if (ir_dim_lo(c->m->dims, a->begin) < 0 || !ir_dim_le(c->m->dims, end, size))
		return infer_fail(c, DIAG_SHAPE, "[%s, %s) is not always inside axis %d of %s",
		                  dim_string(c, a->begin), dim_string(c, end), (int)a->axis,
		                  type_string(c, x));
	memcpy(dims, x->dims, sizeof(dims));
	dims[a->axis] = a->size;
	return infer_result(c, x->dtype, x->rank, dims);
}

/* The sizes along the axis are added; the other axes and the element types must be equal. */
static bool infer_concat(const struct infer *c)
{
	const struct attrs_concat *a = c->attrs;
	const struct ir_dim *dims[IR_RANK_MAX];
	if (c->n_in == 0)
		return infer_fail(c, DIAG_IR_TYPE, "at least one operand is needed");
	const struct ir_type *first = c->in[0];
	if (!infer_axis(c, a->axis, first->rank))
		return false;
	memcpy(dims, first->dims, sizeof(dims));
	for (size_t i = 1; i < c->n_in; i++) {
		if (!infer_same_dtype(c, 0, i) || !infer_rank(c, i, first->rank))
			return false;
		for (int k = 0; k < first->rank; k++)
			if (k != a->axis && !infer_axes_equal(c, 0, k, i, k))
				return false;
		dims[a->axis] = ir_dim_add(c->m->dims, dims[a->axis], c->in[i]->dims[a->axis]);
	}
	return infer_result(c, first->dtype, first->rank, dims);
}

/* gather, select_rows, expert_linear: by named axes. There must be at least one row of the table (x, expert), to which
 * indices are clamped. */
static bool infer_selection(const struct infer *c)
{
	bool has_experts = c->desc == ir_op_desc(OP_expert_linear);
	size_t table = has_experts ? OPERAND(expert_linear, w) : 0;
	int axis = c->desc == ir_op_desc(OP_select_rows) ? 1 : 0;
	if (!infer_by_axes(c))
		return false;
	return ir_dim_lo(c->m->dims, c->in[table]->dims[axis]) >= 1 ||
	       infer_fail(c, DIAG_SHAPE, "%s is %s: axis %d may have no %s", operand_name(c, table),
	                  type_string(c, c->in[table]), axis, has_experts ? "experts" : "rows");
}

/* ---- contractions and RoPE ---- */

/* x [..,E], table [rows, R] with constant sizes: R <= E features are rotated, in pairs, so R is even. The table
 * may be f32 for x of another type. */
static bool infer_rope(const struct infer *c)
{
	enum { X = OPERAND(rope, x), TABLE = OPERAND(rope, table) };
	int64_t width, rotated, rows;
	if (!infer_by_axes(c))
		return false;
	if (c->in[TABLE]->dtype != DT_F32 && !infer_same_dtype(c, X, TABLE))
		return false;
	if (!ir_dim_is_const(c->in[X]->dims[c->in[X]->rank - 1], &width) ||
	    !ir_dim_is_const(c->in[TABLE]->dims[0], &rows) ||
	    !ir_dim_is_const(c->in[TABLE]->dims[1], &rotated))
		return infer_mismatch(c, DIAG_SHAPE, X, TABLE,
		                      "the features and the table need constant sizes");
	if (rotated < 2 || rotated % 2 != 0 || rotated > width || rows < 1)
		return infer_mismatch(c, DIAG_SHAPE, X, TABLE,
		                      "the rows of the table have an even width, at most that of x");
	return true;
}

/* Grouped-query attention: the number of query heads (axis 1 of q) is a multiple of the key heads: equal dims, or
 * constants. */
static bool check_heads(const struct infer *c)
{
	int64_t heads, keys;
	if (c->in[0]->dims[1] == c->in[1]->dims[1])
		return true;
	if (ir_dim_is_const(c->in[0]->dims[1], &heads) && ir_dim_is_const(c->in[1]->dims[1], &keys) &&
	    keys > 0 && heads % keys == 0)
		return true;
	return infer_mismatch(c, DIAG_SHAPE, 0, 1, "the heads of q are not a multiple of those of k");
}

/* The element type of keys or values (operand i) is that of q; if q is f32, also f16, bf16, or i8 with f32 scales
 * (operand `scale`), [B,K,T,1]. */
static bool check_kv_dtype(const struct infer *c, size_t i, size_t scale)
{
	enum ir_dtype q = c->in[0]->dtype, t = c->in[i]->dtype;
	if (!present(c, scale))
		return (q == DT_F32 && (t == DT_F16 || t == DT_BF16)) || infer_same_dtype(c, 0, i);
	if (q != DT_F32 || t != DT_I8 || c->in[scale]->dtype != DT_F32)
		return infer_mismatch(c, DIAG_SHAPE, i, scale, "f32 scales require i8 and queries of f32");
	return ir_dim_equals(c->in[scale]->dims[3], 1) ||
	       infer_mismatch(c, DIAG_SHAPE, i, scale, "there is one scale for each position and head");
}

/* By named axes; then types of keys and values, head counts, and the sinks, which have the type of q. */
static bool infer_attention(const struct infer *c)
{
	enum { SINKS = OPERAND(attention, sinks), K_SCALE = OPERAND(attention, k_scale) };
	const struct attrs_attention *a = c->attrs;
	if (!check_window(c, a->window))
		return false;
	if (a->factors == FACTORS_bf16 && (present(c, K_SCALE) || present(c, OPERAND(attention, v_scale))))
		return infer_mismatch(c, DIAG_SHAPE, 0, K_SCALE,
		                      "keys and values with scales are not rounded");
	return infer_by_axes(c) && check_kv_dtype(c, OPERAND(attention, k), OPERAND(attention, k_scale)) &&
	       check_kv_dtype(c, OPERAND(attention, v), OPERAND(attention, v_scale)) && check_heads(c) &&
	       (!present(c, SINKS) || infer_same_dtype(c, 0, SINKS));
}

/* ---- state: [B, at.., rest] at k indices is the slice [B, rest] ---- */

/* The type of the slice at the indices in operands [first, n_in), scalars: axis 0, the batch, stays, the next n_at
 * axes are removed. NULL after a report. */
static const struct ir_type *state_slice(const struct infer *c, size_t first)
{
	const struct ir_type *state = c->in[0]->state->type;
	size_t n_at = c->n_in > first ? c->n_in - first : 0;
	const struct ir_dim *dims[IR_RANK_MAX];
	if ((size_t)state->rank < n_at + 1) {
		infer_fail(c, DIAG_SHAPE, "%zu indices into the state @%s, which is %s", n_at,
		           c->in[0]->state->name, type_string(c, state));
		return NULL;
	}
	for (size_t i = first; i < c->n_in; i++)
		if (!infer_rank(c, i, 0))
			return NULL;
	int rank = state->rank - (int)n_at;
	for (int i = 0; i < rank; i++)
		dims[i] = state->dims[i == 0 ? 0 : i + (int)n_at];
	return ir_type_tensor(c->m->types, state->dtype, rank, dims);
}

static bool fail_slice(const struct infer *c, const struct ir_type *slice, const char *what)
{
	return infer_fail(c, DIAG_SHAPE, "x is %s, the slice of the state @%s is %s: %s",
	                  type_string(c, c->in[1]), c->in[0]->state->name, type_string(c, slice), what);
}

/* Ring buffer of T rows (sliding-window attention): appending S rows must not overwrite the last window - 1 rows,
 * which the new ones still see; T is full panels of 16. rows and window 0: no ring. */
static bool check_ring(const struct infer *c, const struct attrs_state_append *a, const struct ir_type *slice)
{
	int64_t capacity, new = ir_dim_hi(c->m->dims, c->in[1]->dims[2]);
	if (a->rows == 0 && a->window == 0)
		return true;
	if (a->rows < 1 || a->rows > INT32_MAX || a->window < 1 || a->window > IR_WINDOW_MAX)
		return infer_fail(c, DIAG_SHAPE, "a ring needs rows and a window of at least 1");
	if (!ir_dim_is_const(slice->dims[2], &capacity) || capacity < 1 || capacity % 16 != 0)
		return fail_slice(c, slice, "a ring holds a constant multiple of 16 rows");
	if (new > capacity - a->window + 1)
		return infer_fail(c, DIAG_SHAPE,
		                  "a ring of %" PRId64 " rows has no space for %" PRId64
		                  " new ones and a window of %" PRId64,
		                  capacity, new, a->window);
	return true;
}

/* The type of the slice that the op returns: a ring buffer of T rows has `rows` logical rows, as many as are ever
 * appended; readers index these. */
static const struct ir_type *ring_slice(const struct infer *c, const struct attrs_state_append *a,
                                        const struct ir_type *slice)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	if (a->rows == 0)
		return slice;
	for (int i = 0; i < slice->rank; i++)
		dims[i] = slice->dims[i];
	dims[2] = ir_dim_const(c->m->dims, a->rows);
	return ir_type_tensor(c->m->types, slice->dtype, slice->rank, dims);
}

/* state [B,at..,K,T,E], x [B,K,S,E], past [B], indices at -> the slice [B,K,T,E] and the new state. */
static bool infer_state_append(const struct infer *c)
{
	const struct ir_type *x = c->in[1], *slice = state_slice(c, 3);
	if (slice == NULL)
		return false;
	if (slice->rank != 4 || x->rank != 4)
		return fail_slice(c, slice, "both need four axes [B,K,T,E]");
	if (x->dtype != slice->dtype)
		return fail_slice(c, slice, "the element types differ");
	if (x->dims[0] != slice->dims[0] || x->dims[1] != slice->dims[1] || x->dims[3] != slice->dims[3])
		return fail_slice(c, slice, "they may differ on axis 2 only");
	if (!infer_per_batch(c, 2, 1) || !check_ring(c, c->attrs, slice))
		return false;
	c->out[0] = ring_slice(c, c->attrs, slice);
	c->out[1] = c->in[0];
	return true;
}

/* state [B,at..,rest], x, indices at -> the new state. x may be smaller than the slice: it fills its first
 * elements on each axis. */
static bool infer_state_write(const struct infer *c)
{
	const struct ir_type *x = c->in[1], *slice = state_slice(c, 2);
	if (slice == NULL)
		return false;
	if (x->rank != slice->rank)
		return fail_slice(c, slice, "they need equally many axes");
	if (x->dtype != slice->dtype)
		return fail_slice(c, slice, "the element types differ");
	for (int i = 0; i < x->rank; i++)
		if (!ir_dim_le(c->m->dims, x->dims[i], slice->dims[i]))
			return fail_slice(c, slice, "x does not always fit into the slice");
	c->out[0] = c->in[0];
	return true;
}

static bool infer_state_read(const struct infer *c)
{
	c->out[0] = state_slice(c, 1);
	c->out[1] = c->in[0];
	return c->out[0] != NULL;
}

/* Types of repeat, group and terminators follow from their regions. */
static bool infer_region(const struct infer *c)
{
	return infer_fail(c, DIAG_INTERNAL, "is built by the calls for regions");
}

/* ---- operand classes ---- */

/* A type belongs to an operand class of ops.def. */
static bool class_fits(const struct ir_type *t, enum ir_operand_class class)
{
	bool tensor = t->kind == IR_TENSOR;
	switch (class) {
	case CLASS_ANY: return tensor;
	case CLASS_FLOAT: return tensor && ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
	case CLASS_INT: return tensor && ir_dtype_class(t->dtype) == DTCLASS_INT;
	case CLASS_I32: return tensor && t->dtype == DT_I32;
	case CLASS_BOOL: return tensor && t->dtype == DT_BOOL;
	case CLASS_NUMBER: return tensor && ir_dtype_class(t->dtype) != DTCLASS_BOOL;
	case CLASS_STATE: return t->kind == IR_STATE;
	}
	return false;
}

static const char *class_string(enum ir_operand_class class)
{
	switch (class) {
	case CLASS_ANY: return "a tensor";
	case CLASS_FLOAT: return "a tensor of floats";
	case CLASS_INT: return "a tensor of ints";
	case CLASS_I32: return "a tensor of i32";
	case CLASS_BOOL: return "a tensor of bool";
	case CLASS_NUMBER: return "a tensor of numbers";
	case CLASS_STATE: return "a state";
	}
	return "";
}

/* Operand i is present, unless it is optional, and of the class of d; false after a report. An operand after the end
 * of the list is absent. */
static bool operand_fits(const struct infer *c, const struct ir_operand_desc *d, size_t i)
{
	const struct ir_type *t = i < c->n_in ? c->in[i] : NULL;
	if (t == NULL)
		return d->kind == OPERAND_OPTIONAL ||
		       infer_fail(c, DIAG_IR_TYPE, "operand %s is missing", d->name);
	if (class_fits(t, d->class))
		return true;
	return infer_fail(c, DIAG_DTYPE, "%s is %s, it must be %s", d->name, type_string(c, t),
	                  class_string(d->class));
}

/* The number of operands and the class of each are those of the row in ops.def; false after a report. Rules rely on
 * it and check no more. */
static bool operands_fit(const struct infer *c)
{
	const struct ir_operand_desc *d = c->desc->operands;
	size_t i = 0;
	for (; d->name != NULL && d->kind != OPERAND_VARIADIC; d++, i++)
		if (!operand_fits(c, d, i))
			return false;
	if (d->name == NULL && i < c->n_in)
		return infer_fail(c, DIAG_IR_TYPE, "%zu operands, it has %zu", c->n_in, i);
	for (; i < c->n_in; i++)
		if (!operand_fits(c, d, i))
			return false;
	return true;
}

/* ---- rules ---- */

typedef bool infer_fn(const struct infer *c);

/* NULL: by named axes. */
static infer_fn *const rules[IR_N_OPS] = {
        [OP_weight] = infer_weight,
        [OP_full] = infer_full,
        [OP_iota] = infer_iota,
        [OP_dim_value] = infer_dim_value,
        [OP_softcap] = infer_softcap,
        [OP_cast] = infer_cast,
        [OP_add] = infer_binary,
        [OP_sub] = infer_binary,
        [OP_mul] = infer_binary,
        [OP_div] = infer_binary,
        [OP_floor_div] = infer_binary,
        [OP_mod] = infer_binary,
        [OP_pow] = infer_binary,
        [OP_min] = infer_binary,
        [OP_max] = infer_binary,
        [OP_cmp] = infer_cmp,
        [OP_where] = infer_where,
        [OP_mask] = infer_mask,
        [OP_masked_softmax] = infer_masked_softmax,
        [OP_quantize_rows] = infer_quantize_rows,
        [OP_rope] = infer_rope,
        [OP_reduce_sum] = infer_reduce,
        [OP_reduce_mean] = infer_reduce,
        [OP_reduce_max] = infer_reduce,
        [OP_reduce_min] = infer_reduce,
        [OP_argmax] = infer_argmax,
        [OP_block_argmax] = infer_block_argmax,
        [OP_block_log_softmax] = infer_block_log_softmax,
        [OP_topk] = infer_topk,
        [OP_all_reduce] = infer_all_reduce,
        [OP_all_gather] = infer_all_gather,
        [OP_send] = infer_stage,
        [OP_receive] = infer_stage,
        [OP_last_index] = infer_last_index,
        [OP_reshape] = infer_reshape,
        [OP_transpose] = infer_transpose,
        [OP_broadcast] = infer_broadcast,
        [OP_slice] = infer_slice,
        [OP_concat] = infer_concat,
        [OP_pad] = infer_pad,
        [OP_gather] = infer_selection,
        [OP_select_rows] = infer_selection,
        [OP_matmul] = infer_binary,
        [OP_expert_linear] = infer_selection,
        [OP_attention] = infer_attention,
        [OP_state_append] = infer_state_append,
        [OP_state_write] = infer_state_write,
        [OP_state_read] = infer_state_read,
        [OP_repeat] = infer_region,
        [OP_group] = infer_region,
        [OP_yield] = infer_region,
        [OP_return] = infer_region,
};

bool ir_infer(struct ir_module *m, struct diag_context *cx, struct ir_loc loc, enum ir_opcode code,
              const struct ir_type *const *operands, size_t n_operands, const void *attrs,
              const struct ir_type **results)
{
	struct infer c = {m, cx, loc, ir_op_desc(code), operands, n_operands, attrs, results};
	return operands_fit(&c) && (rules[code] != NULL ? rules[code](&c) : infer_by_axes(&c));
}
