/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention as primitive ops; the passes fuse them again.
 * With a cache, new keys and values are appended to the state and all of it is
 * read.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower.h"

struct sdpa {
	struct ir_value q, k, v, len, past; /* q [B,h,n,e], k, v [B,g,m,e] */
	double scale, softcap;
	int64_t window; /* 0: none */
	bool causal;
	const char *cache;
};

static bool refuse(const struct call *c, const char *name)
{
	const struct expr *e = call_arg(c, name);
	bool off = e == NULL || (e->kind == EX_INT && e->i == 0) || (e->kind == EX_BOOL && e->i == 0) ||
	           e->kind == EX_NONE || (e->kind == EX_NAME && strcmp(e->text, "none") == 0);
	return off || lower_fail(c->lw, e->loc, DIAG_UNSUPPORTED, "not supported yet: %s of sdpa", name);
}

static bool read_sdpa(const struct call *c, struct sdpa *s)
{
	static const char *const later[] = {"prefix", "mask", "sinks"};
	struct lowering *lw = c->lw;
	for (size_t i = 0; i < TFMC_COUNT(later); i++) {
		if (!refuse(c, later[i]))
			return false;
	}
	if (!call_tensor(c, "q", &s->q) || !call_tensor(c, "k", &s->k) || !call_tensor(c, "v", &s->v))
		return false;
	const struct ir_type *q = irb_type(lw->b, s->q), *k = irb_type(lw->b, s->k);
	int64_t e;
	if (q->rank != 4 || k->rank != 4 || irb_type(lw->b, s->v)->rank != 4 ||
	    !ir_dim_is_const(q->dims[3], &e))
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "sdpa wants q [B, h, n, e] and k, v [B, g, m, e], found %s and %s",
		                  type_text(lw, s->q), type_text(lw, s->k));
	s->scale = 1.0 / sqrt((double)(e > 0 ? e : 1));
	const struct expr *len = call_arg(c, "lengths");
	bool has_len = len != NULL && !(len->kind == EX_NAME && strcmp(len->text, "none") == 0);
	if (has_len && !call_tensor(c, "lengths", &s->len))
		return false;
	if (!call_int(c, "window", &s->window))
		return false;
	if (s->window < 0 || s->window > IR_WINDOW_MAX)
		return lower_fail(lw, call_arg(c, "window")->loc, DIAG_VALUE_TYPE, "window is 0 to %d",
		                  IR_WINDOW_MAX);
	return call_float(c, "scale", &s->scale) && call_float(c, "softcap", &s->softcap) &&
	       call_bool(c, "causal", &s->causal) && call_word(c, "cache", &s->cache);
}

/* ---- the cache ---- */

static bool record_cache(const struct call *c, const struct sdpa *s)
{
	static const char *const ends[] = {"k", "v"};
	struct lowering *lw = c->lw;
	const struct ir_value parts[] = {s->k, s->v};
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		const struct ir_type *t = irb_type(lw->b, parts[i]);
		struct state_type slice = {.dtype = t->dtype, .rank = 4, .loc = lw->loc};
		memcpy(slice.dims, t->dims, sizeof(slice.dims));
		slice.dims[2] = ir_dim_const(lw->module->dims, lw->m->generate.max_len);
		if (!lower_record_state(lw, arena_printf(lw->arena, "%s.%s", s->cache, ends[i]), &slice))
			return false;
	}
	return true;
}

static bool append(const struct call *c, const char *pattern, struct ir_value *x)
{
	struct lowering *lw = c->lw;
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[3 + IR_RANK_MAX], results[2];
	size_t n;
	const char *name = lower_indexed(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	in[0] = state->value;
	in[1] = *x;
	in[2] = lw->past;
	lower_index_operands(loops, n, in + 3);
	irb_op(lw->b, OP_state_append, in, 3 + n, NULL, results, 2);
	*x = results[0];
	state->value = results[1];
	return !irb_failed(lw->b);
}

static bool use_cache(const struct call *c, struct sdpa *s)
{
	struct lowering *lw = c->lw;
	const struct ir_type *q = irb_type(lw->b, s->q);
	bool grows = lw->mode == LOWER_DECODE && q->dims[2] == lw->grows;
	if (s->cache == NULL && grows && s->causal)
		return lower_fail(lw, c->e->loc, DIAG_GENERATE,
		                  "a causal sdpa between tokens and logits needs cache=\"NAME\"");
	if (s->cache == NULL)
		return true;
	if (!s->causal)
		return lower_fail(lw, c->e->loc, DIAG_NO_CAUSAL_MASK, "sdpa with a cache needs causal=true");
	if (lw->mode == LOWER_RUN)
		return lw->m->tokens < 0 || record_cache(c, s);
	if (lw->mode != LOWER_DECODE)
		return true;
	s->len = IR_NO_VALUE; /* keys of real rows only are visible from real rows */
	s->past = lw->past;
	return append(c, arena_printf(lw->arena, "%s.k", s->cache), &s->k) &&
	       append(c, arena_printf(lw->arena, "%s.v", s->cache), &s->v);
}

/* ---- arithmetic ---- */

/* [B, g, m, e] to [B, h, m, e]: each key head for its h / g query heads. */
static bool repeat_heads(const struct call *c, const struct ir_type *q, struct ir_value *x)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, *x);
	int64_t h, g;
	if (!ir_dim_is_const(q->dims[1], &h) || !ir_dim_is_const(t->dims[1], &g) || g < 1 || h % g != 0)
		return lower_fail(lw, c->e->loc, DIAG_NOT_DIVISIBLE,
		                  "the heads of q are not a multiple of those of %s", type_text(lw, *x));
	if (h == g)
		return true;
	struct ir_dims *d = lw->module->dims;
	const struct ir_dim *one[] = {t->dims[0], t->dims[1], ir_dim_const(d, 1), t->dims[2], t->dims[3]};
	const struct ir_dim *wide[] = {t->dims[0], t->dims[1], ir_dim_const(d, h / g), t->dims[2],
	                               t->dims[3]};
	const struct ir_dim *flat[] = {t->dims[0], q->dims[1], t->dims[2], t->dims[3]};
	*x = irb_reshape_to(lw->b, *x, 5, one);
	*x = irb_broadcast_to(lw->b, *x, 5, wide);
	*x = irb_reshape_to(lw->b, *x, 4, flat);
	return !irb_failed(lw->b);
}

bool lower_sdpa(const struct call *c, struct lval *out)
{
	struct sdpa s = {.len = IR_NO_VALUE, .past = IR_NO_VALUE};
	struct ir_builder *b = c->lw->b;
	if (!read_sdpa(c, &s) || !use_cache(c, &s))
		return false;
	const struct ir_type *q = irb_type(b, s.q);
	if (!repeat_heads(c, q, &s.k) || !repeat_heads(c, q, &s.v))
		return false;
	struct ir_value p = irb_matmul(b, s.q, s.k, &(struct attrs_matmul){.tb = true});
	if (s.scale != 1.0)
		p = irb_scale_by(b, p, s.scale);
	if (!lower_score_bias(c, &p))
		return false;
	if (s.softcap > 0.0)
		p = irb_softcap(b, p, &(struct attrs_softcap){.c = s.softcap});
	const struct attrs_mask mask = {.mask = s.causal ? MASK_causal : MASK_none, .window = s.window};
	if (s.causal || s.len.id != 0 || s.window > 0)
		p = irb_mask(b, p, s.len, s.past, &mask);
	p = irb_softmax(b, p, NULL);
	*out = lval_tensor(irb_matmul(b, p, s.v, &(struct attrs_matmul){.ta = false}));
	return !irb_failed(b);
}
