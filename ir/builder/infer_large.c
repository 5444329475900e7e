/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Result types of contractions, norms, masks, rope, slice and concat.
 */
#include "ir/builder/infer_internal.h"

#include <string.h>

static bool present(const struct infer *c, size_t i)
{
	return i < c->n_in && c->in[i] != NULL;
}

bool infer_slice_rule(const struct infer *c)
{
	const struct attrs_slice *a = c->attrs;
	const struct ir_type *x = c->in[0];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_axis(c, a->axis, x->rank))
		return false;
	if (a->begin == NULL || a->size == NULL)
		return infer_fail(c, DIAG_IR_TYPE, "begin and size are needed");
	const struct ir_dim *whole = x->dims[a->axis];
	const struct ir_dim *end = ir_dim_add(c->m->dims, a->begin, a->size);
	if (ir_dim_lo(c->m->dims, a->begin) < 0 || !ir_dim_le(c->m->dims, end, whole))
		return infer_fail(c, DIAG_SHAPE, "[%s, %s) is not always inside axis %d of %s",
		                  infer_dim_text(c, a->begin), infer_dim_text(c, end), (int)a->axis,
		                  infer_text(c, x));
	memcpy(dims, x->dims, sizeof(dims));
	dims[a->axis] = a->size;
	return infer_result(c, x->dtype, x->rank, dims);
}

bool infer_concat_rule(const struct infer *c)
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

bool infer_expert_linear_rule(const struct infer *c)
{
	const struct ir_type *w = c->in[OPERAND(expert_linear, w)];
	if (!infer_by_axes(c))
		return false;
	if (ir_dim_lo(c->m->dims, w->dims[0]) < 1)
		return infer_mismatch(c, DIAG_SHAPE, OPERAND(expert_linear, x), OPERAND(expert_linear, w),
		                      "there is no expert");
	return true;
}

/* x [..,S,T]; with len or past, axis 0 of x is the batch */
bool infer_mask_rule(const struct infer *c)
{
	bool batch = present(c, 1) || present(c, 2);
	if (!infer_rank_min(c, 0, batch ? 3 : 2) || !infer_per_batch(c, 1, 0) || !infer_per_batch(c, 2, 0))
		return false;
	c->out[0] = c->in[0];
	return true;
}

bool infer_rope_rule(const struct infer *c)
{
	enum { X = OPERAND(rope, x), TABLE = OPERAND(rope, table) };
	int64_t width, turned, rows;
	if (!infer_by_axes(c))
		return false;
	if (c->in[TABLE]->dtype != DT_F32 && !infer_same_dtype(c, X, TABLE))
		return false;
	if (!ir_dim_is_const(c->in[X]->dims[c->in[X]->rank - 1], &width) ||
	    !ir_dim_is_const(c->in[TABLE]->dims[0], &rows) ||
	    !ir_dim_is_const(c->in[TABLE]->dims[1], &turned))
		return infer_mismatch(c, DIAG_SHAPE, X, TABLE,
		                      "the features and the table need constant sizes");
	if (turned < 2 || turned % 2 != 0 || turned > width || rows < 1)
		return infer_mismatch(c, DIAG_SHAPE, X, TABLE,
		                      "the rows of the table have an even width, at most that of x");
	return true;
}

static bool heads_divide(const struct infer *c)
{
	int64_t heads, keys;
	if (c->in[0]->dims[1] == c->in[1]->dims[1])
		return true;
	if (ir_dim_is_const(c->in[0]->dims[1], &heads) && ir_dim_is_const(c->in[1]->dims[1], &keys) &&
	    keys > 0 && heads % keys == 0)
		return true;
	return infer_mismatch(c, DIAG_SHAPE, 0, 1, "the heads of q are not a multiple of those of k");
}

/* Keys and values are stored in the type of q, or for f32 in one of half its size, or as i8 with scales. */
static bool is_narrow_or_same(const struct infer *c, size_t i, size_t scale)
{
	enum ir_dtype q = c->in[0]->dtype, t = c->in[i]->dtype;
	if (!present(c, scale))
		return (q == DT_F32 && (t == DT_F16 || t == DT_BF16)) || infer_same_dtype(c, 0, i);
	if (q != DT_F32 || t != DT_I8 || c->in[scale]->dtype != DT_F32)
		return infer_mismatch(c, DIAG_SHAPE, i, scale, "f32 scales are for i8 beside queries of f32");
	return ir_dim_equals(c->in[scale]->dims[3], 1) ||
	       infer_mismatch(c, DIAG_SHAPE, i, scale, "there is one scale for each position and head");
}

bool infer_attention_rule(const struct infer *c)
{
	enum { SINKS = OPERAND(attention, sinks), K_SCALE = OPERAND(attention, k_scale) };
	const struct attrs_attention *a = c->attrs;
	if (a->factors == FACTORS_bf16 && (present(c, K_SCALE) || present(c, OPERAND(attention, v_scale))))
		return infer_mismatch(c, DIAG_SHAPE, 0, K_SCALE,
		                      "keys and values with scales are not rounded");
	return infer_by_axes(c) && is_narrow_or_same(c, OPERAND(attention, k), OPERAND(attention, k_scale)) &&
	       is_narrow_or_same(c, OPERAND(attention, v), OPERAND(attention, v_scale)) && heads_divide(c) &&
	       (!present(c, SINKS) || infer_same_dtype(c, 0, SINKS));
}
