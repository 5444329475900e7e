/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The float tensors of a call as the kernel finds them, see attention_store.h.
 */
#include "tests/support/kernels/attention_store.h"

#include <math.h>
#include <string.h>

#include "tests/support/narrow.h"

static void *stored_in(struct attention_case *c, enum ir_dtype t, float *x, int64_t n)
{
	if (t == DT_F32)
		return x;
	uint16_t *out = ARENA_ARRAY(&c->arena, uint16_t, n + 32);
	out = (uint16_t *)(((uintptr_t)out + 63) & ~(uintptr_t)63); /* as states are */
	int8_t *codes = (int8_t *)out;
	for (int64_t i = 0; i < n; i++) {
		if (t == DT_I8)
			codes[i] = isnan(x[i]) ? INT8_MIN : (int8_t)x[i];
		else
			out[i] = narrow_bits(t, x[i]);
	}
	return out;
}

/* A float tensor as the kernel sees it, and back. */
void *attention_stored(struct attention_case *c, float *x, int64_t n)
{
	return stored_in(c, c->config.is_bf16 ? DT_BF16 : DT_F32, x, n);
}

enum ir_dtype attention_key_type(const struct attention_config *c)
{
	return c->is_bf16 ? DT_BF16 : c->kv;
}

static int64_t rows_of(const struct attention_case *c, const struct attention_call *call, bool panels)
{
	int64_t rows = c->config.ring > 0 ? c->config.ring : call->t;
	return panels ? (rows + 15) / 16 * 16 : rows;
}

int64_t attention_key_floats(const struct attention_case *c, const struct attention_call *call)
{
	return call->b * c->config.key_heads * rows_of(c, call, c->config.panel_keys) * c->config.size;
}

int64_t attention_value_floats(const struct attention_case *c, const struct attention_call *call)
{
	return call->b * c->config.key_heads * rows_of(c, call, false) * c->config.value_size;
}

/* Keys or values, [B,K,T,e], as a state holds them: in panels, in a ring. What stands for no position is NaN.
 */
static void *stored_rows(struct attention_case *c, struct attention_call *call, const float *x, int64_t e,
                         enum ir_dtype dtype, bool panels)
{
	const struct attention_config *g = &c->config;
	int64_t rows = rows_of(c, call, panels), t = call->t, n = call->b * g->key_heads * rows * e;
	float *out = ARENA_ARRAY(&c->arena, float, n + 16);
	out = (float *)(((uintptr_t)out + 63) & ~(uintptr_t)63); /* as states are */
	memset(out, 0xff, (size_t)n * 4);
	for (int64_t i = 0; i < call->b * g->key_heads * t * e; i++) {
		int64_t head = i / (t * e), at = i / e % t, end = call->past[head / g->key_heads] + call->s;
		int64_t row = g->ring > 0 ? at % g->ring : at;
		if (g->ring > 0 && at >= end)
			continue;
		if (panels)
			out[(head * rows + row / 16 * 16) * e + i % e * 16 + row % 16] = x[i];
		else
			out[(head * rows + row) * e + i % e] = x[i];
	}
	return stored_in(c, dtype, out, n);
}

void *attention_stored_keys(struct attention_case *c, struct attention_call *call)
{
	enum ir_dtype dtype = attention_key_type(&c->config);
	bool as_given = !c->config.panel_keys && c->config.ring == 0;
	return as_given ? stored_in(c, dtype, call->k, call->n_k)
	                : stored_rows(c, call, call->k, c->config.size, dtype, c->config.panel_keys);
}

void *attention_stored_values(struct attention_case *c, struct attention_call *call)
{
	enum ir_dtype dtype = attention_key_type(&c->config);
	return c->config.ring == 0 ? stored_in(c, dtype, call->v, call->n_v)
	                           : stored_rows(c, call, call->v, c->config.value_size, dtype, false);
}

int64_t attention_scale_floats(const struct attention_case *c, const struct attention_call *call)
{
	return c->config.kv == DT_I8 ? call->b * c->config.key_heads * rows_of(c, call, false) : 0;
}

void *attention_stored_scales(struct attention_case *c, struct attention_call *call, const float *scales)
{
	return c->config.kv == DT_I8 ? stored_rows(c, call, scales, 1, DT_F32, false) : NULL;
}

/* Position t of [B,K,T,n], or of [B,K,n,T]. */
static void poison(const struct attention_case *c, float *x, int64_t row, int64_t t, int64_t all, int64_t n)
{
	for (int64_t e = 0; e < n; e++)
		x[c->config.transposed_kv ? (row * n + e) * all + t : (row * all + t) * n + e] = NAN;
}

void attention_poison(const struct attention_case *c, struct attention_call *call, int64_t b, int64_t from,
                      int64_t to)
{
	for (int64_t h = b * c->config.key_heads; h < (b + 1) * c->config.key_heads; h++) {
		for (int64_t t = from; t < to && t < call->t; t++) {
			if (c->config.kv == DT_I8) {
				call->k_scale[h * call->t + t] = NAN;
				call->v_scale[h * call->t + t] = HUGE_VALF;
				continue;
			}
			poison(c, call->k, h, t, call->t, c->config.size);
			poison(c, call->v, h, t, call->t, c->config.value_size);
		}
	}
}
