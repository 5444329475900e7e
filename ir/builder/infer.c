/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result types, after the operand classes of the row of ir/core/ops.def were
 * checked: by the axes of the row, or by the rule of an op that needs more. The
 * builder and the verifier share it, so what is built is what is verified.
 */

#include "ir/builder/infer_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- constants ---- */

static bool infer_weight(const struct infer *c)
{
	const struct ir_weight *w = ((const struct attrs_weight *)c->attrs)->weight;
	if (w == NULL)
		return infer_fail(c, DIAG_IR_TYPE, "no weight is named");
	if (c->n_in > (size_t)w->type->rank)
		return infer_fail(c, DIAG_SHAPE, "%zu indices into the weight @%s, which is %s", c->n_in,
		                  w->name, infer_text(c, w->type));
	for (size_t i = 0; i < c->n_in; i++)
		if (!infer_rank(c, i, 0))
			return false;
	return infer_result(c, w->type->dtype, w->type->rank - (int)c->n_in, w->type->dims + c->n_in);
}

static bool result_dims(const struct infer *c, enum ir_dtype dtype, const struct ir_dim_list *dims)
{
	if (dims->n > IR_RANK_MAX)
		return infer_fail(c, DIAG_SHAPE, "%zu axes, at most %d are possible", dims->n, IR_RANK_MAX);
	return infer_result(c, dtype, (int)dims->n, dims->items);
}

static bool infer_full(const struct infer *c)
{
	const struct attrs_full *a = c->attrs;
	return result_dims(c, a->dtype, &a->dims);
}

static bool infer_iota(const struct infer *c)
{
	const struct attrs_iota *a = c->attrs;
	if (!result_dims(c, DT_I32, &a->dims))
		return false;
	return infer_axis(c, a->axis, c->out[0]->rank);
}

static bool infer_dim_value(const struct infer *c)
{
	const struct attrs_dim_value *a = c->attrs;
	if (a->dim == NULL || ir_dim_lo(c->m->dims, a->dim) < INT32_MIN ||
	    ir_dim_hi(c->m->dims, a->dim) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the dim is missing or may not fit into i32");
	return result_dims(c, DT_I32, &a->dims);
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

static bool infer_where(const struct infer *c)
{
	if (!infer_by_axes(c) || !infer_same_dtype(c, 1, 2))
		return false;
	c->out[0] = c->in[1];
	return true;
}

/* ---- rows ---- */

/* Positions and windows together stay far below 2^31. */
static bool is_window(const struct infer *c, int64_t window)
{
	if (window >= 0 && window <= IR_WINDOW_MAX)
		return true;
	return infer_fail(c, DIAG_IR_TYPE, "window is 0 (none) to 2^30");
}

static bool infer_mask(const struct infer *c)
{
	return is_window(c, ((const struct attrs_mask *)c->attrs)->window) && infer_mask_rule(c);
}

static bool infer_masked_softmax(const struct infer *c)
{
	return is_window(c, ((const struct attrs_masked_softmax *)c->attrs)->window) && infer_mask_rule(c);
}

/* ---- reductions ---- */

/* Axes ascend; each goes, or becomes 1 with keep. */
static bool reduce(const struct infer *c, const struct ir_int_list *axes, bool keep)
{
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
		bool gone = next < axes->n && axes->items[next] == i;
		next += gone;
		if (!gone || keep)
			dims[rank++] = gone ? ir_dim_const(c->m->dims, 1) : x->dims[i];
	}
	return infer_result(c, x->dtype, rank, dims);
}

static bool infer_reduce(const struct infer *c)
{
	const struct attrs_reduce_sum *a = c->attrs;
	return reduce(c, &a->axes, a->keep);
}

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

/* ---- rows ---- */

static bool infer_round_rows(const struct infer *c)
{
	if (c->in[0]->dtype == DT_F64)
		return infer_fail(c, DIAG_DTYPE, "x must have 16 or 32 bits: integers are found in f32");
	if (((const struct attrs_round_rows *)c->attrs)->block < 0)
		return infer_fail(c, DIAG_IR_TYPE, "block must not be negative");
	return infer_by_axes(c);
}

/* ---- strips of the last axis ---- */

/* x [..,V] -> [..,numbers,n]; V is constant, and its columns are exact as f32. */
static bool infer_strips(const struct infer *c, int64_t width, int64_t numbers)
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
	dims[x->rank - 1] = ir_dim_const(c->m->dims, numbers);
	dims[x->rank] = ir_dim_const(c->m->dims, (columns - 1) / width + 1);
	return infer_result(c, x->dtype, x->rank + 1, dims);
}

static bool infer_strip_argmax(const struct infer *c)
{
	return infer_strips(c, ((const struct attrs_strip_argmax *)c->attrs)->width, 2);
}

static bool infer_strip_score(const struct infer *c)
{
	int rank = c->in[0]->rank - 1;
	if (!infer_rank_min(c, 0, 1) || !infer_rank(c, 1, rank))
		return false;
	for (int i = 0; i < rank; i++)
		if (!infer_axes_equal(c, 1, i, 0, i))
			return false;
	return infer_strips(c, ((const struct attrs_strip_score *)c->attrs)->width, 3);
}

/* ---- rows in order ---- */

/* x [..,V] -> [..,2,k]; indices are exact as f32. */
static bool infer_topk(const struct infer *c)
{
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	int64_t k = ((const struct attrs_topk *)c->attrs)->k;
	bool is_narrow = ir_dtype_bytes(x->dtype) < 4;
	if (!infer_rank_min(c, 0, 1))
		return false;
	if (is_narrow || x->rank >= IR_RANK_MAX)
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

static bool infer_last_at(const struct infer *c)
{
	const struct attrs_last_at *a = c->attrs;
	if (!infer_rank(c, 0, 1))
		return false;
	if (a->size == NULL || ir_dim_lo(c->m->dims, a->size) < 0 ||
	    ir_dim_hi(c->m->dims, a->size) > INT32_MAX ||
	    ir_dim_hi(c->m->dims, c->in[0]->dims[0]) > INT32_MAX)
		return infer_fail(c, DIAG_IR_TYPE, "the size is missing or does not fit into i32");
	return infer_result(c, DT_I32, 1, &a->size);
}

/* ---- movement ---- */

static bool infer_reshape(const struct infer *c)
{
	const struct attrs_reshape *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!result_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_dim *from = ir_type_count(c->m->dims, x), *to = ir_type_count(c->m->dims, c->out[0]);
	if (from == to)
		return true;
	return infer_fail(c, DIAG_SHAPE, "x is %s, the result is %s: %s and %s elements", infer_text(c, x),
	                  infer_text(c, c->out[0]), infer_dim_text(c, from), infer_dim_text(c, to));
}

static bool infer_transpose(const struct infer *c)
{
	const struct attrs_transpose *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	unsigned seen = 0;
	if (a->perm.n != (size_t)x->rank)
		return infer_fail(c, DIAG_SHAPE, "perm has %zu axes, x is %s", a->perm.n, infer_text(c, x));
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

static bool infer_broadcast(const struct infer *c)
{
	const struct attrs_broadcast *a = c->attrs;
	const struct ir_type *x = c->in[0];
	if (!result_dims(c, x->dtype, &a->dims))
		return false;
	const struct ir_type *to = c->out[0];
	bool fits = to->rank >= x->rank;
	for (int i = 0; fits && i < x->rank; i++)
		fits = x->dims[i] == to->dims[i + to->rank - x->rank] || ir_dim_equals(x->dims[i], 1);
	return fits || infer_fail(c, DIAG_SHAPE, "x is %s, which does not repeat to %s", infer_text(c, x),
	                          infer_text(c, to));
}

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

static bool infer_attention(const struct infer *c)
{
	return is_window(c, ((const struct attrs_attention *)c->attrs)->window) && infer_attention_rule(c);
}

/* The types follow from the region, not from here. */
static bool by_region(const struct infer *c)
{
	return infer_fail(c, DIAG_INTERNAL, "is built by the calls for regions");
}

/* ---- operand classes ---- */

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

static const char *class_words(enum ir_operand_class class)
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

static bool operand_fits(const struct infer *c, const struct ir_operand_desc *d, size_t i)
{
	const struct ir_type *t = i < c->n_in ? c->in[i] : NULL;
	if (t == NULL)
		return d->kind == OPERAND_OPTIONAL ||
		       infer_fail(c, DIAG_IR_TYPE, "operand %s is missing", d->name);
	if (class_fits(t, d->class))
		return true;
	return infer_fail(c, DIAG_DTYPE, "%s is %s, it must be %s", d->name, infer_text(c, t),
	                  class_words(d->class));
}

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

/* ---- all ---- */

typedef bool infer_fn(const struct infer *c);

/* Ops that are not here have no rule beside their axes. */
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
        [OP_round_rows] = infer_round_rows,
        [OP_rope] = infer_rope_rule,
        [OP_reduce_sum] = infer_reduce,
        [OP_reduce_mean] = infer_reduce,
        [OP_reduce_max] = infer_reduce,
        [OP_reduce_min] = infer_reduce,
        [OP_argmax] = infer_argmax,
        [OP_strip_argmax] = infer_strip_argmax,
        [OP_strip_score] = infer_strip_score,
        [OP_topk] = infer_topk,
        [OP_last_at] = infer_last_at,
        [OP_reshape] = infer_reshape,
        [OP_transpose] = infer_transpose,
        [OP_broadcast] = infer_broadcast,
        [OP_slice] = infer_slice_rule,
        [OP_concat] = infer_concat_rule,
        [OP_pad] = infer_pad,
        [OP_matmul] = infer_binary,
        [OP_expert_linear] = infer_expert_linear_rule,
        [OP_attention] = infer_attention,
        [OP_state_append] = infer_state_append_rule,
        [OP_state_write] = infer_state_write_rule,
        [OP_state_read] = infer_state_read_rule,
        [OP_repeat] = by_region,
        [OP_group] = by_region,
        [OP_yield] = by_region,
        [OP_return] = by_region,
};

bool ir_infer(struct ir_module *m, struct diag_context *cx, struct ir_loc loc, enum ir_opcode code,
              const struct ir_type *const *operands, size_t n_operands, const void *attrs,
              const struct ir_type **results)
{
	struct infer c = {m, cx, loc, ir_op_desc(code), operands, n_operands, attrs, results};
	return operands_fit(&c) && (rules[code] != NULL ? rules[code](&c) : infer_by_axes(&c));
}
