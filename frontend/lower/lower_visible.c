/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Visibility of keys in sdpa, in addition to lengths, causality and windows: a given mask, and a prefix visible
 * to all queries. Positions count from the start of the sequence, with a cache too. A value with id 0 is none.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"

bool lower_is_none(const struct expr *e)
{
	return e == NULL || e->kind == EX_NONE || (e->kind == EX_NAME && strcmp(e->text, "none") == 0);
}

/* Positions i32 [B or 1, 1, S, T]: of keys along axis 3, or of queries along axis 2 (past + index). The batch axis is
 * B only where queries follow `past`, which differs between sequences. */
static struct ir_value position_indices(const struct lowering *lw, const struct ir_type *scores, int axis)
{
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1);
	const struct ir_dim *const *t = scores->dims;
	/* queries are the new tokens of decode: they follow `past` of their sequence */
	bool grows = t[2] == lw->grows;
	const struct ir_dim *all[] = {grows ? t[0] : one, one, t[2], t[3]};
	struct ir_value at = irb_iota(lw->b, &(struct attrs_iota){.dims = {all, 4}, .axis = axis});
	if (axis == 3 || !grows)
		return at;
	const struct ir_dim *column[] = {t[0], one, one, one};
	struct ir_value past = irb_reshape_to(lw->b, lw->past, 4, column);
	return irb_add(lw->b, at, irb_broadcast_to(lw->b, past, 4, all), NULL);
}

struct ir_value lower_distances(const struct lowering *lw, const struct ir_type *scores)
{
	struct ir_value keys = position_indices(lw, scores, 3);
	return irb_sub(lw->b, keys, position_indices(lw, scores, 2), NULL);
}

bool lower_score_operand(const struct call *c, const char *name, struct ir_value scores, enum ir_dtype dtype,
                         struct ir_value *out)
{
	struct lowering *lw = c->lw;
	const struct expr *e = call_arg(c, name);
	const struct ir_type *s = irb_type(lw->b, scores);
	struct ir_value v;
	if (lower_is_none(e))
		return true;
	if (!call_tensor(c, name, &v))
		return false;
	const struct ir_type *t = irb_type(lw->b, v);
	const struct ir_dim *dims[4];
	bool fits = t->rank <= 4 && t->dtype == dtype;
	for (int i = 0; fits && i < 4; i++) {
		int at = i - (4 - t->rank);
		dims[i] = at < 0 ? ir_dim_const(lw->module->dims, 1) : t->dims[at];
		fits = ir_dim_equals(dims[i], 1) || dims[i] == s->dims[i];
	}
	if (!fits)
		return lower_fail(lw, e->loc, DIAG_SHAPE, "%s of sdpa: %s does not fit scores %s", name,
		                  type_to_string(lw, v), type_to_string(lw, scores));
	*out = irb_reshape_to(lw->b, v, 4, dims);
	return !irb_failed(lw->b);
}

struct ir_value lower_mask_fill(struct lowering *lw, struct ir_value visible, struct ir_value x,
                                enum ir_dtype dtype)
{
	const struct ir_type *t = irb_type(lw->b, visible);
	if (t == NULL)
		return IR_NO_VALUE;
	if (x.id == 0)
		x = irb_full_of(lw->b, 0.0, dtype, t->rank, t->dims);
	if (!lower_broadcast_pair(lw, LOC_NONE, &visible, &x))
		return IR_NO_VALUE;
	t = irb_type(lw->b, x);
	struct ir_value none = irb_full_of(lw->b, -HUGE_VAL, dtype, t->rank, t->dims);
	return irb_where(lw->b, visible, x, none, NULL);
}

/* Records that the first n tokens must be in one call, since they see each other. */
static void record_prefix(struct lowering *lw, int64_t n)
{
	struct frontend_generate *g = &lw->m->generate;
	if (lw->m->tokens >= 0)
		g->prefix = n > g->prefix ? n : g->prefix;
}

/* Reads the prefix length, i32 [B or 1, 1, 1, 1]; no value: no prefix. Records its largest length, since a session
 * has to read a prefix in one call. False after a report. */
static bool read_prefix(const struct call *c, struct ir_value scores, struct ir_value *out)
{
	struct lowering *lw = c->lw;
	const struct expr *e = call_arg(c, "prefix");
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1);
	const struct ir_dim *ones[] = {one, one, one, one};
	struct lowered v;
	int64_t n = 0;
	if (lower_is_none(e) || (e->kind == EX_INT && e->i == 0))
		return true;
	if (!lower_expr(lw, e, &v))
		return false;
	if (v.kind == LOWERED_SCALAR) {
		if (!call_int(c, "prefix", &n))
			return false;
		if (n < 0 || n > INT32_MAX)
			return lower_fail(lw, e->loc, DIAG_VALUE_TYPE, "prefix must not be negative");
		record_prefix(lw, n);
		*out = irb_full_of(lw->b, (double)n, DT_I32, 4, ones);
		return !irb_failed(lw->b);
	}
	const struct ir_type *t = v.kind == LOWERED_TENSOR ? irb_type(lw->b, v.v) : NULL;
	const struct ir_dim *batch = irb_type(lw->b, scores)->dims[0];
	if (t == NULL || t->dtype != DT_I32 || t->rank != 1 || t->dims[0] != batch)
		return lower_fail(lw, e->loc, DIAG_SHAPE, "prefix of sdpa is an int or i32[B]");
	record_prefix(lw, lw->m->generate.max_len);
	*out = irb_reshape_to(lw->b, v.v, 4, (const struct ir_dim *[]){batch, one, one, one});
	return !irb_failed(lw->b);
}

/* *out: bool [B or 1, 1, S, T], true where key j is visible to query i: j <= i or j < prefix. */
static bool prefix_or_causal(const struct call *c, struct ir_value scores, struct ir_value prefix,
                             struct ir_value *out)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, scores);
	struct ir_value d = lower_distances(lw, t), keys = position_indices(lw, t, 3);
	const struct ir_type *dt = irb_type(lw->b, d);
	if (dt == NULL)
		return false;
	struct ir_value zero = irb_full_of(lw->b, 0.0, DT_I32, 4, dt->dims);
	struct ir_value past = irb_cmp(lw->b, d, zero, &(struct attrs_cmp){.kind = CMP_le});
	if (!lower_broadcast_pair(lw, c->e->loc, &keys, &prefix))
		return false;
	struct ir_value first = irb_cmp(lw->b, keys, prefix, &(struct attrs_cmp){.kind = CMP_lt});
	if (!lower_broadcast_pair(lw, c->e->loc, &past, &first))
		return false;
	*out = irb_or(lw->b, past, first, NULL);
	return !irb_failed(lw->b);
}

bool lower_visibility(const struct call *c, struct ir_value scores, bool *has_prefix, struct ir_value *out)
{
	struct ir_value mask = IR_NO_VALUE, prefix = IR_NO_VALUE;
	*out = IR_NO_VALUE;
	if (!lower_score_operand(c, "mask", scores, DT_BOOL, &mask) || !read_prefix(c, scores, &prefix))
		return false;
	*has_prefix = prefix.id != 0;
	*out = mask;
	if (prefix.id == 0)
		return true;
	if (!prefix_or_causal(c, scores, prefix, out))
		return false;
	if (mask.id == 0)
		return true;
	if (!lower_broadcast_pair(c->lw, c->e->loc, out, &mask))
		return false;
	*out = irb_and(c->lw->b, *out, mask, NULL);
	return !irb_failed(c->lw->b);
}
