/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaled dot-product attention as primitive ops, which passes fuse again. With a KV cache, new keys and values
 * are appended to its states and the whole cache is read. An int8 cache has two states each for keys and
 * values: quants, and a scale for each position and head. Encoder keys and values for cross attention use the
 * same format (quantize_kv, dequantize_kv). q is [B, h, n, e], k and v are [B, g, m, e]: h / g query heads share a key
 * head. A value with id 0 is none; functions return false after a report.
 * Builder errors are sticky: after one, its calls do nothing and their values have no type, so that irb_failed() is
 * checked before a type is read, and at the end.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"

struct sdpa {
	struct ir_value q, k, v, len,
	        past; /* q [B, h, n, e]; k, v [B, g, m, e]: h / g query heads share a key head (GQA) */
	struct ir_value k_scale, v_scale; /* [B, g, m, 1] of an int8 cache, else no value */
	struct ir_value fresh;            /* with a cache: lengths of the keys of this call */
	double scale, softcap;
	int64_t window;      /* 0: no window */
	bool causal, prefix; /* prefix: some positions are visible to all */
	const char *cache;
	enum ir_dtype cache_dtype;
};

/* True if the argument is dequantize_kv(..): keys or values stored in the cache format. */
static bool is_dequantized(const struct call *c, const char *name)
{
	const struct expr *e = call_arg(c, name);
	return e->kind == EX_CALL && strcmp(e->text, "dequantize_kv") == 0;
}

/* Reads keys or values; dequantized ones are cast to the type of q. */
static bool read_kv(const struct call *c, const char *name, struct ir_value q, struct ir_value *out)
{
	if (!call_tensor(c, name, out))
		return false;
	if (is_dequantized(c, name))
		*out = lower_cast_to(c->lw, *out, irb_type(c->lw->b, q)->dtype);
	return !irb_failed(c->lw->b);
}

/* True if `lengths` is an input that measures another one: entry functions check that it does not exceed the source,
 * so it needs no clamping. Not for graphs, whose sdpa may have the lengths of any input. */
static bool lengths_are_checked(const struct call *c, const struct expr *lengths)
{
	const struct frontend_model *m = c->lw->m;
	if (model_section(m, "model") == NULL || lengths == NULL)
		return false;
	for (size_t i = 0; lengths->kind == EX_NAME && i < m->inputs.n; i++) {
		const char *of = m->inputs.items[i].lengths;
		if (of != NULL && strcmp(of, lengths->text) == 0)
			return true;
	}
	return false;
}

/* Reads the arguments except bias, mask, prefix and sinks, which are read where they are applied. */
static bool read_sdpa(const struct call *c, struct sdpa *s)
{
	struct lowering *lw = c->lw;
	if (!call_tensor(c, "q", &s->q) || !read_kv(c, "k", s->q, &s->k) || !read_kv(c, "v", s->q, &s->v))
		return false;
	const struct ir_type *q = irb_type(lw->b, s->q), *k = irb_type(lw->b, s->k);
	int64_t e;
	if (q->rank != 4 || k->rank != 4 || irb_type(lw->b, s->v)->rank != 4 ||
	    !ir_dim_is_const(q->dims[3], &e))
		return lower_fail(lw, c->e->loc, DIAG_SHAPE,
		                  "sdpa wants q [B, h, n, e] and k, v [B, g, m, e], found %s and %s",
		                  type_to_string(lw, s->q), type_to_string(lw, s->k));
	s->scale = 1.0 / sqrt((double)(e > 0 ? e : 1));
	if (!lower_is_none(call_arg(c, "lengths")) && !call_tensor(c, "lengths", &s->len))
		return false;
	/* keys past the end of the source are padding */
	if (lower_is_source(lw, k->dims[2]) && !lengths_are_checked(c, call_arg(c, "lengths"))) {
		struct ir_value end = lower_source_size(lw, k->dims[2]);
		s->len = s->len.id == 0 ? end : irb_min(lw->b, s->len, end, NULL);
	}
	if (!call_int(c, "window", &s->window))
		return false;
	if (s->window < 0 || s->window > IR_WINDOW_MAX)
		return lower_fail(lw, call_arg(c, "window")->loc, DIAG_VALUE_TYPE, "window is 0 to %d",
		                  IR_WINDOW_MAX);
	return call_float(c, "scale", &s->scale) && call_float(c, "softcap", &s->softcap) &&
	       call_bool(c, "causal", &s->causal) && call_word(c, "cache", &s->cache);
}

/* ---- the cache ---- */

/* False after a report if iterations of an enclosing repeat would share the cache: its name must contain their
 * indices. */
static bool cache_is_per_iteration(const struct call *c, const struct sdpa *s)
{
	const struct lower_loop *named[IR_RANK_MAX];
	size_t n;
	if (lower_stacked_name(c->lw, s->cache, named, &n) == NULL)
		return false;
	for (const struct lower_loop *l = c->lw->loop; l != NULL; l = l->outer) {
		bool is_named = l->node->count <= 1;
		for (size_t i = 0; i < n; i++)
			is_named = is_named || named[i] == l;
		if (!is_named)
			return lower_fail(
			        c->lw, c->e->loc, DIAG_GENERATE,
			        "the iterations of the repeat over '%s' would share the cache \"%s\": "
			        "its name needs {%s}",
			        l->node->as, s->cache, l->node->as);
	}
	return true;
}

/* LOWER_RUN: records the types of the states of a cache. The tokens of one call must not overwrite keys in the
 * window of the first of them, which bounds their number in a ring (call_rows). */
static bool record_cache(const struct call *c, const struct sdpa *s)
{
	struct lowering *lw = c->lw;
	int64_t max_len = lw->m->generate.max_len, rows = max_len;
	const struct cache_use use = {s->window, s->causal && lower_is_none(call_arg(c, "prefix"))};
	if (!cache_is_per_iteration(c, s) || !call_int(c, "cache_len", &rows))
		return false;
	const char *why = rows > INT32_MAX ? "a cache of that many positions is too large"
	                                   : cache_len_error(lw->arena, &use, rows, max_len);
	if (why != NULL)
		return lower_fail(lw, c->e->loc, DIAG_REFUSED, "%s", why);
	rows = cache_rows(rows, max_len);
	const struct ir_value parts[] = {s->k, s->v, s->k_scale, s->v_scale};
	for (size_t i = 0; i < TFMC_COUNT(parts) && parts[i].id != 0; i++) {
		const struct ir_type *t = irb_type(lw->b, parts[i]);
		struct state_type slice = {.dtype = t->dtype,
		                           .rank = 4,
		                           .loc = lw->loc,
		                           .call_rows = rows < max_len ? rows - s->window + 1 : 0};
		memcpy(slice.dims, t->dims, sizeof(slice.dims));
		slice.dims[2] = ir_dim_const(lw->module->dims, rows);
		if (!lower_record_state(lw, lower_cache_state(lw, s->cache, i), &slice))
			return false;
	}
	return true;
}

/* Appends *x at the positions from `past` on to a state of the cache, and returns all of it in *x. A state with fewer
 * rows than max_len is a ring buffer: its op needs max_len, the rows that readers see, and the window. */
static bool append_to_cache(const struct call *c, const char *pattern, int64_t window, struct ir_value *x)
{
	struct lowering *lw = c->lw;
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value in[3 + IR_RANK_MAX], results[2];
	size_t n;
	const char *name = lower_stacked_name(lw, pattern, loops, &n);
	struct lower_state *state = name == NULL ? NULL : lower_find_state(lw, name);
	if (state == NULL)
		return false;
	const struct ir_type *t = state->decl->type;
	int64_t rows, max_len = lw->m->generate.max_len;
	bool is_ring = ir_dim_is_const(t->dims[t->rank - 2], &rows) && rows < max_len;
	const struct attrs_state_append ring = {.rows = max_len, .window = window};
	in[0] = state->value;
	in[1] = *x;
	in[2] = lw->past;
	lower_index_operands(loops, n, in + 3);
	irb_op(lw->b, OP_state_append, in, 3 + n, is_ring ? &ring : NULL, results, 2);
	*x = results[0];
	state->value = results[1];
	return !irb_failed(lw->b);
}

/* Reads cache_dtype; default dtype.cache. */
static bool read_cache_dtype(const struct call *c, struct sdpa *s)
{
	static const struct {
		const char *name;
		enum ir_dtype dtype;
	} all[] = {{"f32", DT_F32}, {"f16", DT_F16}, {"bf16", DT_BF16}, {"int8", DT_I8}};
	const char *name = NULL;
	s->cache_dtype = c->lw->m->dtypes.cache;
	if (!call_word(c, "cache_dtype", &name))
		return false;
	for (size_t i = 0; name != NULL && i < TFMC_COUNT(all); i++) {
		s->cache_dtype = all[i].dtype;
		if (strcmp(all[i].name, name) == 0)
			return true;
	}
	return name == NULL ||
	       lower_fail(c->lw, c->e->loc, DIAG_VALUE_TYPE, "a cache stores f32, f16, bf16 or int8");
}

/* Checks the arguments of a cache. LOWER_RUN records its states; decode appends k and v to it and continues with its
 * contents; other functions have no states and attend to the keys of the call. */
static bool use_cache(const struct call *c, struct sdpa *s)
{
	struct lowering *lw = c->lw;
	const struct ir_type *q = irb_type(lw->b, s->q);
	if (s->cache == NULL && q->dims[2] == lw->grows && s->causal)
		return lower_fail(lw, c->e->loc, DIAG_GENERATE,
		                  "a causal sdpa between tokens and logits needs cache=\"NAME\"");
	if (s->cache == NULL)
		return true;
	if (!s->causal && lower_is_none(call_arg(c, "prefix")))
		return lower_fail(lw, c->e->loc, DIAG_NO_CAUSAL_MASK,
		                  "sdpa with a cache needs causal=true or a prefix");
	if (lw->m->tokens >= 0 && !lower_is_none(call_arg(c, "mask")))
		return lower_fail(lw, c->e->loc, DIAG_GENERATE, "sdpa with a cache has no mask");
	if (lw->mode == LOWER_RUN)
		return lw->m->tokens < 0 || record_cache(c, s);
	if (lw->mode != LOWER_DECODE)
		return true;
	s->fresh = s->len;
	s->len = IR_NO_VALUE; /* real queries see only keys of real rows: padding is at the end */
	s->past = lw->past;
	struct ir_value *const parts[] = {&s->k, &s->v, &s->k_scale, &s->v_scale};
	bool ok = true;
	for (size_t i = 0; i < TFMC_COUNT(parts) && ok && parts[i]->id != 0; i++)
		ok = append_to_cache(c, lower_cache_state(lw, s->cache, i), s->window, parts[i]);
	return ok;
}

/* Quantizes x [B, g, m, e] to i8, the nearest to x / scale; returns the scale [B, g, m, 1] = max |x| / 127 over
 * e. If an x is NaN or infinite the scale is not finite and the quants are 0, so that the result is NaN. */
static struct ir_value quantize_i8(const struct call *c, struct ir_value *x)
{
	struct ir_builder *b = c->lw->b;
	const struct ir_type *t = irb_type(b, *x);
	int64_t last = 3;
	const struct attrs_reduce_max of_row = {.axes = {&last, 1}, .keep = true};
	struct ir_value scale = irb_reduce_max(b, irb_scale_by(b, irb_abs(b, *x, NULL), 1.0 / 127), &of_row);
	struct ir_value half = irb_full_of(b, 0.5, DT_F32, 4, t->dims);
	struct ir_value q = irb_div(b, *x, irb_broadcast_to(b, scale, 4, t->dims), NULL);
	q = irb_floor(b, irb_add(b, q, half, NULL), NULL);
	*x = irb_cast(b, q, &(struct attrs_cast){.dtype = DT_I8});
	return scale;
}

/* Converts x [B, g, m, e] to the format of the cache; *scale: scales of int8 quants, else unchanged. */
static struct ir_value to_cache_format(const struct call *c, struct ir_value x, enum ir_dtype dtype,
                                       struct ir_value *scale)
{
	x = lower_cast_to(c->lw, x, dtype == DT_I8 ? DT_F32 : dtype);
	if (dtype == DT_I8)
		*scale = quantize_i8(c, &x);
	return x;
}

/* Inverse of to_cache_format, in the type of the computation. */
static struct ir_value from_cache_format(const struct call *c, struct ir_value x, struct ir_value scale,
                                         enum ir_dtype dtype)
{
	struct ir_builder *b = c->lw->b;
	if (scale.id != 0) {
		x = lower_cast_to(c->lw, x, DT_F32);
		x = irb_mul(b, x, irb_broadcast_to(b, scale, 4, irb_type(b, x)->dims), NULL);
	}
	return lower_cast_to(c->lw, x, dtype);
}

/* Keys and values are rounded to the cache format when they are appended and converted back when they are read.
 * Functions without states (run) do the same, so that all functions of a model compute the same. */
static bool use_typed_cache(const struct call *c, struct sdpa *s)
{
	if (s->cache == NULL || c->lw->m->generate.kind == GENERATE_NONE)
		return use_cache(c, s);
	const struct ir_type *q = irb_type(c->lw->b, s->q);
	if (!read_cache_dtype(c, s))
		return false;
	s->k = to_cache_format(c, s->k, s->cache_dtype, &s->k_scale);
	s->v = to_cache_format(c, s->v, s->cache_dtype, &s->v_scale);
	if (s->k_scale.id != 0) {
		irb_name(c->lw->b, s->k_scale, "k_scale");
		irb_name(c->lw->b, s->v_scale, "v_scale");
	}
	if (!use_cache(c, s))
		return false;
	s->k = from_cache_format(c, s->k, s->k_scale, q->dtype);
	s->v = from_cache_format(c, s->v, s->v_scale, q->dtype);
	return !irb_failed(c->lw->b);
}

/* quantize_kv(x): keys or values of the encoder [B, g, m, e] in the cache format; with int8 a tuple of quants and
 * scales. split.c writes it for cross attention. */
bool lower_quantize_kv(const struct call *c, struct lowered *out)
{
	struct lowering *lw = c->lw;
	struct ir_value x, scale = IR_NO_VALUE;
	if (!call_tensor(c, "x", &x))
		return false;
	if (irb_type(lw->b, x)->rank != 4)
		return lower_fail(lw, LOC_NONE, DIAG_SHAPE, "sdpa wants k, v [B, g, m, e], found %s",
		                  type_to_string(lw, x));
	*out = lowered_tensor(to_cache_format(c, x, lw->m->dtypes.cache, &scale));
	if (scale.id != 0) {
		const struct lowered both[] = {*out, lowered_tensor(scale)};
		*out = (struct lowered){
		        .kind = LOWERED_TUPLE, .items = ARENA_ARRAY(lw->arena, struct lowered, 2), .n = 2};
		if (out->items == NULL)
			return false;
		memcpy(out->items, both, sizeof(both));
	}
	return !irb_failed(lw->b);
}

/* dequantize_kv(x, scale): x of quantize_kv as f32, which read_kv() casts to the type of q; scale is absent but for
 * int8. */
bool lower_dequantize_kv(const struct call *c, struct lowered *out)
{
	struct ir_value x, scale = IR_NO_VALUE;
	bool has_scale = !lower_is_none(call_arg(c, "scale"));
	if (!call_tensor(c, "x", &x) || (has_scale && !call_tensor(c, "scale", &scale)))
		return false;
	*out = lowered_tensor(from_cache_format(c, x, scale, DT_F32));
	return !irb_failed(c->lw->b);
}

/* ---- arithmetic ---- */

/* [B, g, m, e] to [B, h, m, e]: repeats each key head for its h / g query heads, neighbours in h. fuse_attention
 * reads the keys without this broadcast. */
static bool repeat_heads(const struct call *c, const struct ir_type *q, struct ir_value *x)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, *x);
	int64_t h, g;
	if (!ir_dim_is_const(q->dims[1], &h) || !ir_dim_is_const(t->dims[1], &g) || g < 1 || h % g != 0)
		return lower_fail(lw, c->e->loc, DIAG_NOT_DIVISIBLE,
		                  "the heads of q are not a multiple of those of %s", type_to_string(lw, *x));
	if (h == g)
		return true;
	struct ir_dims *d = lw->module->dims;
	const struct ir_dim *one[] = {t->dims[0], t->dims[1], ir_dim_const(d, 1), t->dims[2], t->dims[3]};
	const struct ir_dim *repeated[] = {t->dims[0], t->dims[1], ir_dim_const(d, h / g), t->dims[2],
	                                   t->dims[3]};
	const struct ir_dim *flat[] = {t->dims[0], q->dims[1], t->dims[2], t->dims[3]};
	*x = irb_reshape_to(lw->b, *x, 5, one);
	*x = irb_broadcast_to(lw->b, *x, 5, repeated);
	*x = irb_reshape_to(lw->b, *x, 4, flat);
	return !irb_failed(lw->b);
}

/* With a prefix, which is not causal, keys past those of this call (past + new ones) must be masked by length: s->len
   is set to that. Without a cache there are none. */
static bool limit_prefix_keys(const struct call *c, struct sdpa *s)
{
	struct lowering *lw = c->lw;
	if (s->past.id == 0)
		return true;
	const struct ir_type *q = irb_type(lw->b, s->q);
	struct ir_value n = s->fresh;
	if (n.id == 0)
		n = irb_dim_value_of(lw->b, q->dims[2], 1, q->dims);
	s->len = irb_add(lw->b, s->past, n, NULL);
	return !irb_failed(lw->b);
}

/* Sets scores of invisible keys to -inf, in the order of the language: lengths, causality, window; then a given mask.
 * `past` moves the positions of queries, which only causality and windows compare. */
static bool mask_scores(const struct call *c, struct sdpa *s, struct ir_value visible, struct ir_value *p)
{
	struct ir_builder *b = c->lw->b;
	bool causal = s->causal && !s->prefix;
	const struct attrs_mask mask = {.mask = causal ? MASK_causal : MASK_none, .window = s->window};
	if (causal || s->len.id != 0 || s->window > 0)
		*p = irb_mask(b, *p, s->len, causal || s->window > 0 ? s->past : IR_NO_VALUE, &mask);
	if (visible.id == 0)
		return !irb_failed(b);
	const struct ir_type *t = irb_type(b, *p);
	*p = lower_mask_fill(c->lw, visible, *p, t->dtype);
	return !irb_failed(b);
}

/* softmax over the scores [B, h, n, m], with one more logit for each head that has no value (attention sinks): it is
 * concatenated as the last column, which is dropped after the softmax. */
static bool softmax_with_sinks(const struct call *c, struct ir_value *p)
{
	struct lowering *lw = c->lw;
	const struct ir_type *t = irb_type(lw->b, *p);
	struct ir_value sinks;
	if (lower_is_none(call_arg(c, "sinks"))) {
		*p = irb_softmax(lw->b, *p, NULL);
		return !irb_failed(lw->b);
	}
	if (!call_tensor(c, "sinks", &sinks))
		return false;
	const struct ir_type *st = irb_type(lw->b, sinks);
	const struct ir_dim *one = ir_dim_const(lw->module->dims, 1);
	const struct ir_dim *heads[] = {one, t->dims[1], one, one};
	const struct ir_dim *column[] = {t->dims[0], t->dims[1], t->dims[2], one};
	if (st->rank != 1 || st->dims[0] != t->dims[1] || st->dtype != t->dtype)
		return lower_fail(lw, c->e->loc, DIAG_SHAPE, "sinks of sdpa: %s does not fit scores %s",
		                  type_to_string(lw, sinks), type_to_string(lw, *p));
	sinks = irb_broadcast_to(lw->b, irb_reshape_to(lw->b, sinks, 4, heads), 4, column);
	const struct ir_value both[] = {*p, sinks};
	struct ir_value all = irb_op1(lw->b, OP_concat, both, 2, &(struct attrs_concat){.axis = 3});
	const struct ir_dim *begin = ir_dim_const(lw->module->dims, 0);
	*p = irb_slice_of(lw->b, irb_softmax(lw->b, all, NULL), 3, begin, t->dims[3]);
	return !irb_failed(lw->b);
}

/* True if compute is bf16 and the products may be rounded to bf16: every query sees the same keys, which come
 * from no cache or state, so the kernel is a GEMM with many rows. */
static bool uses_bf16_products(const struct call *c, const struct sdpa *s)
{
	return c->lw->m->dtypes.compute == COMPUTE_BF16 && s->cache == NULL && !s->causal && s->window == 0 &&
	       lower_is_none(call_arg(c, "prefix")) && !is_dequantized(c, "k") && !is_dequantized(c, "v") &&
	       irb_type(c->lw->b, s->q)->dtype == DT_F32;
}

static struct ir_value round_to_bf16_if(const struct call *c, bool enabled, struct ir_value x)
{
	return enabled ? irb_quantize_rows(c->lw->b, x, &(struct attrs_quantize_rows){.to = ROUND_bf16}) : x;
}

/* softmax(q k^T scale + biases) v as matmul, scale, biases and masks, softmax, matmul. The cache comes before the
 * heads are repeated, so that it has the key heads alone. */
bool lower_sdpa(const struct call *c, struct lowered *out)
{
	struct sdpa s = {.len = IR_NO_VALUE, .past = IR_NO_VALUE};
	struct ir_builder *b = c->lw->b;
	struct ir_value visible, none = IR_NO_VALUE;
	if (!read_sdpa(c, &s) || !use_typed_cache(c, &s))
		return false;
	const struct ir_type *q = irb_type(b, s.q);
	if (!repeat_heads(c, q, &s.k) || !repeat_heads(c, q, &s.v))
		return false;
	bool use_bf16 = uses_bf16_products(c, &s);
	s.q = round_to_bf16_if(c, use_bf16, s.q);
	s.k = round_to_bf16_if(c, use_bf16, s.k);
	struct ir_value p = irb_matmul(b, s.q, s.k, &(struct attrs_matmul){.tb = true});
	if (s.scale != 1.0)
		p = irb_scale_by(b, p, s.scale);
	if (irb_failed(b) || !lower_visibility(c, p, &s.prefix, &visible) ||
	    (s.prefix && !limit_prefix_keys(c, &s)))
		return false;
	/* a mask may be added before everything except a softcap, which would make -inf finite */
	bool early = s.softcap == 0.0;
	if (!lower_score_bias(c, early ? visible : none, &p))
		return false;
	if (!early)
		p = irb_softcap(b, p, &(struct attrs_softcap){.c = s.softcap});
	irb_name(b, p, "scores");
	if (!mask_scores(c, &s, early ? none : visible, &p) || !softmax_with_sinks(c, &p))
		return false;
	irb_name(b, p, "weights");
	p = round_to_bf16_if(c, use_bf16, p);
	s.v = round_to_bf16_if(c, use_bf16, s.v);
	p = irb_matmul(b, p, s.v, &(struct attrs_matmul){.ta = false});
	irb_name(b, p, "context");
	*out = lowered_tensor(p);
	return !irb_failed(b);
}
