/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator's small helpers: sizes, indices, constants, and the split of
 * tasks over workers.
 */
#include "backends/kernel/eval.h"

enum kb_scalar eval_scalar(enum ir_dtype t)
{
	switch (t) {
	case DT_F32:
	case DT_F16:
	case DT_BF16: return KB_F32;
	case DT_F64: return KB_F64;
	case DT_I8:
	case DT_U8:
	case DT_I16:
	case DT_I32: return KB_I32;
	case DT_I64: return KB_I64;
	case DT_BOOL: return KB_BOOL;
	}
	return KB_F32;
}

struct kb_val eval_dim(struct eval *e, const struct ir_dim *d)
{
	return e->job->bind->dim(e->job->bind->user, e->k, d).v;
}

void eval_sizes(struct eval *e, struct ir_value v, struct kb_val size[IR_RANK_MAX])
{
	const struct ir_type *t = ir_type_of(e->job->func, v);
	for (int i = 0; i < t->rank; i++)
		size[i] = eval_dim(e, t->dims[i]);
}

struct kb_val eval_product(struct eval *e, const struct kb_val *size, int from, int to)
{
	struct kb_val n = kb_index(e->k, 1);
	for (int i = from; i < to; i++)
		n = kb_mul(e->k, n, size[i]);
	return n;
}

void eval_unravel(struct eval *e, struct kb_val at, const struct kb_val *size, int n, struct kb_val *index)
{
	for (int i = n - 1; i > 0; i--) {
		index[i] = kb_bin(e->k, KB_REM, at, size[i]);
		at = kb_bin(e->k, KB_DIV, at, size[i]);
	}
	if (n > 0)
		index[0] = at;
}

/* The first total % n_workers workers take one more; no product that an index might not hold. */
struct kb_val eval_split(struct eval *e, struct kb_val total, struct kb_val *hi)
{
	struct kb *k = e->k;
	struct kb_val worker = e->job->worker, n = e->job->n_workers;
	struct kb_val each = kb_bin(k, KB_DIV, total, n), more = kb_bin(k, KB_REM, total, n);
	struct kb_val extra = kb_min(k, worker, more);
	struct kb_val lo = kb_add(k, kb_mul(k, worker, each), extra);
	struct kb_val one = kb_index(k, 1), zero = kb_index(k, 0);
	struct kb_val longer = kb_select(k, kb_cmp(k, KB_LT, worker, more), one, zero);
	*hi = kb_add(k, kb_add(k, lo, each), longer);
	return lo;
}

static struct kb_val scalar_const(struct eval *e, enum kb_scalar s, double v)
{
	switch (s) {
	case KB_F32: return kb_f32(e->k, (float)v);
	case KB_F64: return kb_f64(e->k, v);
	case KB_I32: return kb_i32(e->k, (int32_t)v);
	case KB_I64: return kb_i64(e->k, (int64_t)v);
	case KB_INDEX: return kb_index(e->k, (int64_t)v);
	case KB_BOOL: return kb_bool(e->k, v != 0);
	case KB_VOID:
	case KB_I8:
	case KB_U8:
	case KB_I16:
	case KB_U16:
	case KB_F16:
	case KB_BF16:
	case KB_PTR: break;
	}
	return kb_f32(e->k, (float)v);
}

struct kb_val eval_const(struct eval *e, const struct eval_point *p, enum kb_scalar s, double v)
{
	struct kb_val c = scalar_const(e, s, v);
	return p->vec < 0 ? c : kb_splat(e->k, c, e->lanes);
}

struct kb_val eval_index_i32(struct eval *e, const struct eval_point *p, int axis)
{
	struct kb_val i = kb_cvt(e->k, p->index[axis], KB_I32);
	if (p->vec < 0 || e->lanes == 1)
		return i;
	i = kb_splat(e->k, i, e->lanes);
	return p->vec == axis ? kb_add(e->k, i, kb_lane_ids(e->k, e->lanes)) : i;
}

struct kb_val eval_gather_lanes(struct eval *e, const struct kb_val *lane)
{
	if (e->lanes == 1)
		return lane[0];
	struct kb_val all = kb_splat(e->k, lane[0], e->lanes);
	struct kb_val ids = kb_lane_ids(e->k, e->lanes);
	for (int l = 1; l < e->valid; l++) {
		struct kb_val here = kb_cmp(e->k, KB_EQ, ids, kb_splat(e->k, kb_i32(e->k, l), e->lanes));
		all = kb_select(e->k, here, kb_splat(e->k, lane[l], e->lanes), all);
	}
	return all;
}
