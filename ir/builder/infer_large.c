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

/* a [..,M,K] b [..,K,N], each possibly stored transposed */
bool infer_matmul_rule(const struct infer *c)
{
	const struct attrs_matmul *attrs = c->attrs;
	const struct ir_type *a = c->in[0], *b = c->in[1];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_rank_min(c, 0, 2) || !infer_rank(c, 1, a->rank) || !infer_same_dtype(c, 0, 1))
		return false;
	int r = a->rank;
	for (int i = 0; i + 2 < r; i++)
		if (!infer_axes_equal(c, 0, i, 1, i))
			return false;
	if (!infer_axes_equal(c, 0, attrs->ta ? r - 2 : r - 1, 1, attrs->tb ? r - 1 : r - 2))
		return false;
	memcpy(dims, a->dims, sizeof(dims));
	dims[r - 2] = a->dims[attrs->ta ? r - 1 : r - 2];
	dims[r - 1] = b->dims[attrs->tb ? r - 2 : r - 1];
	return infer_result(c, a->dtype, r, dims);
}

/* x [..,K] w [N,K] b [N] */
bool infer_linear_rule(const struct infer *c)
{
	const struct ir_type *x = c->in[0], *w = c->in[1];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_rank_min(c, 0, 1) || !infer_rank(c, 1, 2) || !infer_axes_equal(c, 0, x->rank - 1, 1, 1))
		return false;
	if (present(c, 2) && (!infer_rank(c, 2, 1) || !infer_axes_equal(c, 2, 0, 1, 0)))
		return false;
	memcpy(dims, x->dims, sizeof(dims));
	dims[x->rank - 1] = w->dims[0];
	return infer_result(c, x->dtype, x->rank, dims);
}

/* x [..,K] w [E,N,K] ids [..] b [E,N] */
bool infer_expert_linear_rule(const struct infer *c)
{
	enum { X, W, IDS, B };
	const struct ir_type *x = c->in[X], *w = c->in[W];
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_rank_min(c, X, 1) || !infer_rank(c, W, 3) || !infer_axes_equal(c, X, x->rank - 1, W, 2) ||
	    !infer_rank(c, IDS, x->rank - 1))
		return false;
	for (int i = 0; i + 1 < x->rank; i++)
		if (!infer_axes_equal(c, IDS, i, X, i))
			return false;
	if (present(c, B) &&
	    (!infer_rank(c, B, 2) || !infer_axes_equal(c, B, 0, W, 0) || !infer_axes_equal(c, B, 1, W, 1)))
		return false;
	if (ir_dim_lo(c->m->dims, w->dims[0]) < 1)
		return infer_mismatch(c, DIAG_SHAPE, X, W, "there is no expert");
	memcpy(dims, x->dims, sizeof(dims));
	dims[x->rank - 1] = w->dims[1];
	return infer_result(c, x->dtype, x->rank, dims);
}

/* Operand i, if present, is [D] with D the last axis of operand 0. */
static bool row_parameter(const struct infer *c, size_t i)
{
	if (!present(c, i))
		return true;
	return infer_rank(c, i, 1) && infer_axes_equal(c, i, 0, 0, c->in[0]->rank - 1);
}

bool infer_norm_rule(const struct infer *c)
{
	if (!infer_rank_min(c, 0, 1) || !row_parameter(c, 1) || !row_parameter(c, 2))
		return false;
	c->out[0] = c->in[0];
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

/* x [B,..,S,E], table [P,D], at [B,S] */
bool infer_rope_rule(const struct infer *c)
{
	enum { X, TABLE, AT };
	int64_t width, turned, rows;
	if (!infer_rank_min(c, X, 3) || !infer_rank(c, TABLE, 2) || !infer_rank(c, AT, 2) ||
	    !infer_axes_equal(c, AT, 0, X, 0) || !infer_axes_equal(c, AT, 1, X, c->in[X]->rank - 2))
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
	c->out[0] = c->in[X];
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

/* Keys and values are stored in the type of q, or for f32 in one of half its size. */
static bool is_narrow_or_same(const struct infer *c, size_t i)
{
	enum ir_dtype t = c->in[i]->dtype;
	return (c->in[0]->dtype == DT_F32 && (t == DT_F16 || t == DT_BF16)) || infer_same_dtype(c, 0, i);
}

/* q [B,H,S,E], k [B,K,T,E], v [B,K,T,E], bias [B,H,S,T], len and past [B], sinks [H] */
bool infer_attention_rule(const struct infer *c)
{
	enum { Q, K, V, BIAS, LEN, PAST, SINKS };
	const struct ir_dim *dims[IR_RANK_MAX];
	if (!infer_rank(c, Q, 4) || !infer_rank(c, K, 4) || !infer_rank(c, V, 4) ||
	    !is_narrow_or_same(c, K) || !is_narrow_or_same(c, V) || !heads_divide(c))
		return false;
	if (!infer_axes_equal(c, Q, 0, K, 0) || !infer_axes_equal(c, Q, 3, K, 3))
		return false;
	for (int i = 0; i < 3; i++)
		if (!infer_axes_equal(c, K, i, V, i))
			return false;
	if (present(c, BIAS)) {
		if (!infer_rank(c, BIAS, 4) || !infer_axes_equal(c, BIAS, 3, K, 2))
			return false;
		for (int i = 0; i < 3; i++)
			if (!infer_axes_equal(c, BIAS, i, Q, i))
				return false;
	}
	if (!infer_per_batch(c, LEN, Q) || !infer_per_batch(c, PAST, Q))
		return false;
	if (present(c, SINKS) && (!infer_rank(c, SINKS, 1) || !infer_axes_equal(c, SINKS, 0, Q, 1) ||
	                          !infer_same_dtype(c, Q, SINKS)))
		return false;
	memcpy(dims, c->in[Q]->dims, sizeof(dims));
	dims[3] = c->in[V]->dims[3];
	return infer_result(c, c->in[Q]->dtype, 4, dims);
}
