/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One plan of choices for the model, then its text: declarations, and two
 * functions that share the layers. Values have names by a counter; a region's
 * names are not used outside it.
 */
#include "tests/support/random/random_transformer.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/random/rng.h"

enum norm {
	NORM_NONE,
	NORM_LAYER,
	NORM_LAYER_PLAIN,
	NORM_LAYER_SPELLED,
	NORM_RMS,
	NORM_RMS_SPELLED,
	N_NORMS
};
enum act { ACT_RELU, ACT_GELU, ACT_GELU_SPELLED, ACT_TANH, ACT_SILU, ACT_SILU_SPELLED, N_ACTS };
enum rotation { ROPE_NONE, ROPE_HALVES, ROPE_INTERLEAVED, N_ROPES };

struct plan {
	int d, h, kv, e, f, v, layers;
	enum norm norm;
	enum act act;
	enum rotation rope;
	bool is_post, is_gated, is_tied, is_spelled, is_causal;
	bool has_q_bias, has_kv_bias, has_o_bias, has_f_bias, has_qk_norm, has_softcap, has_window;
	bool has_positions, has_type_row, has_embed_scale, has_final_norm, is_scored;
	bool is_apart; /* a linear and an attention for each head */
	bool is_fused; /* gate and up in one linear */
};

struct text {
	struct buf *out, *weights;
	struct plan p;
	struct rng rng;
	int next;      /* number of the next value */
	int n_weights; /* weights made, for different numbers in each */
	bool decode;
};

static bool chance(struct text *t, int percent)
{
	return rng_chance(&t->rng, percent);
}

static struct plan choose(struct rng *r)
{
	static const int heads[] = {1, 2, 4}, sizes[] = {2, 4, 6};
	struct plan p = {.layers = (int)rng_between(r, 1, 3)};
	p.h = heads[rng_below(r, 3)];
	p.e = sizes[rng_below(r, 3)];
	p.kv = rng_chance(r, 60) ? p.h : 1;
	p.d = rng_chance(r, 70) ? p.h * p.e : (int)rng_between(r, 3, 20);
	p.f = rng_chance(r, 40) ? 16 * (int)rng_between(r, 1, 6) : (int)rng_between(r, 5, 40);
	p.v = (int)rng_between(r, 7, 24);
	p.norm = (enum norm)rng_below(r, N_NORMS);
	p.act = (enum act)rng_below(r, N_ACTS);
	p.rope = rng_chance(r, 50) ? ROPE_NONE : (enum rotation)rng_below(r, N_ROPES);
	bool *flags[] = {&p.is_post,        &p.is_gated,      &p.is_tied,      &p.is_spelled,
	                 &p.is_causal,      &p.has_q_bias,    &p.has_kv_bias,  &p.has_o_bias,
	                 &p.has_f_bias,     &p.has_positions, &p.has_type_row, &p.has_embed_scale,
	                 &p.has_final_norm, &p.is_scored};
	for (size_t i = 0; i < TFMC_COUNT(flags); i++)
		*flags[i] = rng_chance(r, 50);
	p.has_qk_norm = rng_chance(r, 20);
	p.has_softcap = rng_chance(r, 15);
	p.has_window = rng_chance(r, 20);
	p.is_fused = p.is_gated && rng_chance(r, 40);
	p.is_apart = p.h > 1 && p.h == p.kv && !p.has_qk_norm && rng_chance(r, 40);
	return p;
}

/* ---- words ---- */

/* A line of a function that defines a value; gives the value's number. */
static int line(struct text *t, const char *type, const char *fmt, ...) TFMC_PRINTF(3, 4);

static int line(struct text *t, const char *type, const char *fmt, ...)
{
	va_list ap;
	int value = t->next++;
	buf_printf(t->out, "%%v%d = ", value);
	va_start(ap, fmt);
	buf_vprintf(t->out, fmt, ap);
	va_end(ap);
	buf_printf(t->out, " : %s\n", type);
	return value;
}

struct words {
	char text[160];
};

static struct words say(const char *fmt, ...) TFMC_PRINTF(1, 2);

static struct words say(const char *fmt, ...)
{
	struct words w;
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(w.text, sizeof(w.text), fmt, ap);
	va_end(ap);
	return w;
}

#define SAY(...) (say(__VA_ARGS__).text)

/* [B,S,n] */
static struct words rows(int n)
{
	return say("f32[B,S,%d]", n);
}

/*
 * Declares a weight of n x k numbers (k = 0: n numbers) for each layer when it is used in the loop: values of
 * sines around `middle`. The first function declares, the second uses the same names in the same order.
 */
static struct words weight(struct text *t, const char *name, bool is_layer, int n, int k, double middle)
{
	int count = n * (k > 0 ? k : 1) * (is_layer ? t->p.layers : 1), w = t->n_weights++;
	double size = k > 0 ? 1.0 / sqrt((double)k) : 0.25;
	char dims[64], tail[32] = "";
	if (k > 0)
		(void)snprintf(tail, sizeof(tail), ",%d", k);
	if (is_layer)
		(void)snprintf(dims, sizeof(dims), "%d,%d%s", t->p.layers, n, tail);
	else
		(void)snprintf(dims, sizeof(dims), "%d%s", n, tail);
	buf_printf(t->weights,
	           "weight @%s : f32[%s] = offset(%.17g, mul(reshape([%s], slice(0, 0, %d, reshape([%d],"
	           " sinusoid(rows=%d, dim=2, layout=halves, spacing=paper, start=%d, base=10000.0)))),"
	           " full(%.17g, [])))\n",
	           name, dims, middle, dims, count, 2 * (count / 2 + 1), count / 2 + 1, 37 * w + 5, size);
	return is_layer ? say("@%s[%%l]", name) : say("@%s", name);
}

/* A vector weight of the loop, or of the function. */
static struct words vector(struct text *t, const char *name, bool is_layer, int n, double middle)
{
	return weight(t, name, is_layer, n, 0, middle);
}

/* ---- norms ---- */

/* (x - mean) / sqrt(mean of squares + eps), or without the mean. */
static int spelled_norm(struct text *t, int x, int n, bool has_mean)
{
	if (has_mean) {
		int mean = line(t, "f32[B,S,1]", "reduce_mean %%v%d {axes=[2] keep}", x);
		int wide = line(t, rows(n).text, "broadcast %%v%d {dims=[B,S,%d]}", mean, n);
		x = line(t, rows(n).text, "sub %%v%d, %%v%d", x, wide);
	}
	int square = line(t, rows(n).text, "mul %%v%d, %%v%d", x, x);
	int mean = line(t, "f32[B,S,1]", "reduce_mean %%v%d {axes=[2] keep}", square);
	int eps = line(t, "f32[B,S,1]", "full {value=1e-05 dims=[B,S,1] dtype=f32}");
	int sum = line(t, "f32[B,S,1]", "add %%v%d, %%v%d", mean, eps);
	bool divides = chance(t, 50);
	int root = line(t, "f32[B,S,1]", "%s %%v%d", divides ? "sqrt" : "rsqrt", sum);
	int wide = line(t, rows(n).text, "broadcast %%v%d {dims=[B,S,%d]}", root, n);
	return line(t, rows(n).text, "%s %%v%d, %%v%d", divides ? "div" : "mul", x, wide);
}

/* gamma x + beta with vectors that are broadcast. */
static int spelled_affine(struct text *t, int x, int n, const char *gamma, const char *beta)
{
	int g = line(t, rows(n).text, "broadcast %s {dims=[B,S,%d]}", gamma, n);
	x = line(t, rows(n).text, "mul %%v%d, %%v%d", x, g);
	if (beta == NULL)
		return x;
	int b = line(t, rows(n).text, "broadcast %s {dims=[B,S,%d]}", beta, n);
	return line(t, rows(n).text, "add %%v%d, %%v%d", x, b);
}

static int norm(struct text *t, int x, const char *name, bool is_layer)
{
	enum norm kind = t->p.norm;
	int n = t->p.d;
	if (kind == NORM_NONE)
		return x;
	if (kind == NORM_LAYER_PLAIN)
		return line(t, rows(n).text, "layer_norm %%v%d", x);
	struct words gamma = vector(t, SAY("%s.gamma", name), is_layer, n, 1.1);
	if (kind == NORM_RMS)
		return line(t, rows(n).text, "rms_norm %%v%d, %s", x, gamma.text);
	if (kind == NORM_RMS_SPELLED)
		return spelled_affine(t, spelled_norm(t, x, n, false), n, gamma.text, NULL);
	struct words beta = vector(t, SAY("%s.beta", name), is_layer, n, 0.05);
	if (kind == NORM_LAYER_SPELLED)
		return spelled_affine(t, spelled_norm(t, x, n, true), n, gamma.text, beta.text);
	return line(t, rows(n).text, "layer_norm %%v%d, %s, %s", x, gamma.text, beta.text);
}

/* ---- attention ---- */

static int linear(struct text *t, int x, const char *name, int n, int k, bool has_bias, bool is_layer)
{
	struct words w = weight(t, SAY("%s.weight", name), is_layer, n, k, 0);
	if (!has_bias)
		return line(t, rows(n).text, "linear %%v%d, %s", x, w.text);
	bool is_own = is_layer && t->n_weights % 4 != 1; /* else all layers have one bias */
	struct words b = vector(t, SAY("%s.bias", name), is_own, n, 0.1);
	if (!t->p.is_spelled || chance(t, 50))
		return line(t, rows(n).text, "linear %%v%d, %s, %s", x, w.text, b.text);
	int y = line(t, rows(n).text, "linear %%v%d, %s", x, w.text);
	int wide = line(t, rows(n).text, "broadcast %s {dims=[B,S,%d]}", b.text, n);
	return line(t, rows(n).text, "add %%v%d, %%v%d", y, wide);
}

/* [B,S,n e] to [B,n,S,e], with the norm of each head where the model has one. */
static int heads(struct text *t, int x, const char *name, int n, bool has_norm)
{
	int e = t->p.e;
	int y = line(t, SAY("f32[B,S,%d,%d]", n, e), "reshape %%v%d {dims=[B,S,%d,%d]}", x, n, e);
	if (has_norm) {
		struct words g = vector(t, SAY("%s.norm", name), true, e, 0.9);
		y = line(t, SAY("f32[B,S,%d,%d]", n, e), "rms_norm %%v%d, %s", y, g.text);
	}
	return line(t, SAY("f32[B,%d,S,%d]", n, e), "transpose %%v%d {perm=[0,2,1,3]}", y);
}

static int rotate(struct text *t, int x, int n, int at)
{
	if (t->p.rope == ROPE_NONE)
		return x;
	return line(t, SAY("f32[B,%d,S,%d]", n, t->p.e), "rope %%v%d, @rope, %%v%d%s", x, at,
	            t->p.rope == ROPE_INTERLEAVED ? " {layout=interleaved}" : "");
}

/* k or v after the cache: all its rows. */
static int cached(struct text *t, int x, const char *state)
{
	if (!t->decode)
		return x;
	int slice = t->next++, after = t->next++;
	buf_printf(t->out,
	           "%%v%d, %%v%d = state_append %%%s, %%v%d, %%past, %%l : f32[B,%d,%d,%d], state @%s\n",
	           slice, after, state, x, t->p.kv, RANDOM_TRANSFORMER_ROWS, t->p.e, state);
	buf_printf(t->out, "; %s is %%v%d\n", state, after);
	return slice;
}

/* Scores, mask, softmax and sum, one op each; only where every query head has its own keys. */
static int spelled_attention(struct text *t, int q, int k, int v, double scale)
{
	const struct plan *p = &t->p;
	struct words scores = say("f32[B,%d,S,S]", p->h), out = say("f32[B,%d,S,%d]", p->h, p->e);
	bool on_queries = chance(t, 50);
	if (on_queries)
		q = line(t, out.text, "scale %%v%d {f=%.17g}", q, scale);
	int s = line(t, scores.text, "matmul %%v%d, %%v%d {tb}", q, k);
	if (!on_queries)
		s = line(t, scores.text, "scale %%v%d {f=%.17g}", s, scale);
	if (p->has_softcap)
		s = line(t, scores.text, "softcap %%v%d {c=3.0}", s);
	s = line(t, scores.text, "mask %%v%d, %%len {mask=%s window=%d}", s, p->is_causal ? "causal" : "none",
	         p->has_window ? 3 : 0);
	s = line(t, scores.text, "softmax %%v%d", s);
	return line(t, out.text, "matmul %%v%d, %%v%d", s, v);
}

static int attention(struct text *t, int q, int k, int v)
{
	const struct plan *p = &t->p;
	double scale = 1 / sqrt((double)p->e);
	if (!t->decode && p->is_spelled && p->h == p->kv)
		return spelled_attention(t, q, k, v, scale);
	struct words cap =
	        say("%s%s", p->has_softcap ? " softcap=3.0" : "", p->has_window ? " window=3" : "");
	struct words out = say("f32[B,%d,S,%d]", p->h, p->e);
	if (t->decode)
		return line(t, out.text,
		            "attention %%v%d, %%v%d, %%v%d, past=%%past {scale=%.17g%s mask=causal}", q, k, v,
		            scale, cap.text);
	return line(t, out.text, "attention %%v%d, %%v%d, %%v%d, len=%%len {scale=%.17g%s%s}", q, k, v, scale,
	            cap.text, p->is_causal ? " mask=causal" : "");
}

/* The values, [B,S,E] each, side by side. */
static int concat(struct text *t, const int *xs)
{
	const struct plan *p = &t->p;
	struct buf list;
	buf_init(&list);
	for (int i = 0; i < p->h; i++)
		buf_printf(&list, "%s%%v%d", i > 0 ? ", " : "", xs[i]);
	int y = line(t, rows(p->h * p->e).text, "concat %s {axis=2}", list.data);
	buf_destroy(&list);
	return y;
}

/* An attention of one head: [B,S,E] of queries, keys and values to [B,S,E]. */
static int one_head(struct text *t, int q, int k, int v, int at)
{
	int all = t->p.h;
	t->p.h = t->p.kv = 1;
	q = rotate(t, heads(t, q, "q", 1, false), 1, at);
	k = rotate(t, heads(t, k, "k", 1, false), 1, at);
	int y = attention(t, q, k, heads(t, v, "v", 1, false));
	y = line(t, rows(t->p.e).text, "reshape %%v%d {dims=[B,S,%d]}", y, t->p.e);
	t->p.h = t->p.kv = all;
	return y;
}

/* Heads with weights of their own; decode, whose caches hold all heads, puts them side by side before. */
static int heads_apart(struct text *t, int x, int at)
{
	const struct plan *p = &t->p;
	static const char *const names[] = {"q", "k", "v"};
	int parts[3][4], y[4];
	for (int kind = 0; kind < 3; kind++)
		for (int i = 0; i < p->h; i++)
			parts[kind][i] = linear(t, x, SAY("%s%d", names[kind], i), p->e, p->d,
			                        kind == 0 ? p->has_q_bias : p->has_kv_bias, true);
	if (!t->decode) {
		for (int i = 0; i < p->h; i++)
			y[i] = one_head(t, parts[0][i], parts[1][i], parts[2][i], at);
		return linear(t, concat(t, y), "o", p->d, p->h * p->e, p->has_o_bias, true);
	}
	int q = rotate(t, heads(t, concat(t, parts[0]), "q", p->h, false), p->h, at);
	int k = rotate(t, heads(t, concat(t, parts[1]), "k", p->h, false), p->h, at);
	k = cached(t, k, "ck");
	int v = cached(t, heads(t, concat(t, parts[2]), "v", p->h, false), "cv");
	int o = line(t, SAY("f32[B,S,%d,%d]", p->h, p->e), "transpose %%v%d {perm=[0,2,1,3]}",
	             attention(t, q, k, v));
	o = line(t, rows(p->h * p->e).text, "reshape %%v%d {dims=[B,S,%d]}", o, p->h * p->e);
	return linear(t, o, "o", p->d, p->h * p->e, p->has_o_bias, true);
}

static int self_attention(struct text *t, int x, int at)
{
	const struct plan *p = &t->p;
	if (p->is_apart)
		return heads_apart(t, x, at);
	int q = heads(t, linear(t, x, "q", p->h * p->e, p->d, p->has_q_bias, true), "q", p->h,
	              p->has_qk_norm);
	int k = heads(t, linear(t, x, "k", p->kv * p->e, p->d, p->has_kv_bias, true), "k", p->kv,
	              p->has_qk_norm);
	int v = heads(t, linear(t, x, "v", p->kv * p->e, p->d, p->has_kv_bias, true), "v", p->kv, false);
	q = rotate(t, q, p->h, at);
	k = cached(t, rotate(t, k, p->kv, at), "ck");
	v = cached(t, v, "cv");
	int y = attention(t, q, k, v);
	y = line(t, SAY("f32[B,S,%d,%d]", p->h, p->e), "transpose %%v%d {perm=[0,2,1,3]}", y);
	y = line(t, rows(p->h * p->e).text, "reshape %%v%d {dims=[B,S,%d]}", y, p->h * p->e);
	return linear(t, y, "o", p->d, p->h * p->e, p->has_o_bias, true);
}

/* ---- feed-forward ---- */

/* x/2 (1 + erf(x / sqrt 2)) and x / (1 + exp(-x)), by single steps. */
static int spelled_act(struct text *t, int x, int n)
{
	struct words type = rows(n);
	int one = line(t, type.text, "full {value=1.0 dims=[B,S,%d] dtype=f32}", n);
	if (t->p.act == ACT_GELU_SPELLED) {
		int y = line(t, type.text, "scale %%v%d {f=0.70710678118654757}", x);
		y = line(t, type.text, "erf %%v%d", y);
		y = line(t, type.text, "add %%v%d, %%v%d", y, one);
		y = line(t, type.text, "mul %%v%d, %%v%d", x, y);
		return line(t, type.text, "scale %%v%d {f=0.5}", y);
	}
	int y = line(t, type.text, "neg %%v%d", x);
	y = line(t, type.text, "exp %%v%d", y);
	y = line(t, type.text, "add %%v%d, %%v%d", y, one);
	return line(t, type.text, "div %%v%d, %%v%d", x, y);
}

static int activation(struct text *t, int x, int n)
{
	switch (t->p.act) {
	case ACT_RELU: return line(t, rows(n).text, "relu %%v%d", x);
	case ACT_GELU: return line(t, rows(n).text, "gelu %%v%d", x);
	case ACT_TANH: return line(t, rows(n).text, "gelu_tanh %%v%d", x);
	case ACT_SILU: return line(t, rows(n).text, "silu %%v%d", x);
	case ACT_GELU_SPELLED:
	case ACT_SILU_SPELLED:
	case N_ACTS: break;
	}
	return spelled_act(t, x, n);
}

/* The columns [begin, begin + n) of x. */
static int columns(struct text *t, int x, int begin, int n)
{
	return line(t, rows(n).text, "slice %%v%d {axis=2 begin=%d size=%d}", x, begin, n);
}

static int feed_forward(struct text *t, int x)
{
	const struct plan *p = &t->p;
	int up, y;
	if (p->is_fused) {
		int both = linear(t, x, "gate_up", 2 * p->f, p->d, p->has_f_bias, true);
		up = columns(t, both, p->f, p->f);
		y = columns(t, both, 0, p->f);
	} else {
		up = linear(t, x, "up", p->f, p->d, p->has_f_bias, true);
		y = p->is_gated ? linear(t, x, "gate", p->f, p->d, p->has_f_bias, true) : up;
	}
	y = activation(t, y, p->f);
	if (p->is_gated)
		y = line(t, rows(p->f).text, "mul %%v%d, %%v%d", y, up);
	return linear(t, y, "down", p->d, p->f, p->has_f_bias, true);
}

/* ---- layers ---- */

typedef int sublayer(struct text *t, int x, int at);

static int feed_forward_at(struct text *t, int x, int at)
{
	(void)at;
	return feed_forward(t, x);
}

static int residual(struct text *t, int x, int at, const char *name, sublayer *body)
{
	int y = body(t, t->p.is_post ? x : norm(t, x, name, true), at);
	y = line(t, rows(t->p.d).text, "add %%v%d, %%v%d", x, y);
	return t->p.is_post ? norm(t, y, name, true) : y;
}

/* The number after `; NAME is %v`: the last value of a state. */
static int last_state(const struct text *t, const char *name)
{
	const struct words key = say("; %s is %%v", name);
	const char *found = NULL;
	for (const char *s = t->out->data; (s = strstr(s, key.text)) != NULL; s++)
		found = s;
	return found != NULL ? atoi(found + strlen(key.text)) : 0;
}

static int layers(struct text *t, int x, int at)
{
	const struct plan *p = &t->p;
	int carry = t->next++, k = 0, v = 0, result = t->next++;
	struct words stream = rows(p->d);
	if (t->decode)
		buf_printf(t->out,
		           "%%v%d, %%ak, %%av = repeat %%l = 0 to %d carry (%%v%d = %%v%d, %%ck = %%sk, %%cv "
		           "= %%sv)"
		           " {\n",
		           result, p->layers, carry, x);
	else
		buf_printf(t->out, "%%v%d = repeat %%l = 0 to %d carry (%%v%d = %%v%d) {\n", result,
		           p->layers, carry, x);
	int y = residual(t, carry, at, "n1", self_attention);
	y = residual(t, y, at, "n2", feed_forward_at);
	if (t->decode) {
		k = last_state(t, "ck");
		v = last_state(t, "cv");
		buf_printf(t->out, "yield %%v%d, %%v%d, %%v%d\n} : %s, state @ck, state @cv\n", y, k, v,
		           stream.text);
	} else {
		buf_printf(t->out, "yield %%v%d\n} : %s\n", y, stream.text);
	}
	return result;
}

/* ---- functions ---- */

/* i32[B,S]: the position of every row. */
static int positions(struct text *t)
{
	int at = line(t, "i32[B,S]", "iota {dims=[B,S] axis=1}");
	if (!t->decode)
		return at;
	int past = line(t, "i32[B,1]", "reshape %%past {dims=[B,1]}");
	past = line(t, "i32[B,S]", "broadcast %%v%d {dims=[B,S]}", past);
	return line(t, "i32[B,S]", "add %%v%d, %%v%d", at, past);
}

static int embed(struct text *t, int at)
{
	const struct plan *p = &t->p;
	struct words table = weight(t, "emb", false, p->v, p->d, 0);
	int x = line(t, rows(p->d).text, "gather %s, %%ids", table.text);
	if (p->has_embed_scale)
		x = line(t, rows(p->d).text, "scale %%v%d {f=%.17g}", x, sqrt((double)p->d));
	if (p->has_positions) {
		table = weight(t, "pos", false, RANDOM_TRANSFORMER_ROWS, p->d, 0);
		int y = line(t, rows(p->d).text, "gather %s, %%v%d", table.text, at);
		x = line(t, rows(p->d).text, "add %%v%d, %%v%d", x, y);
	}
	if (p->has_type_row) {
		table = weight(t, "type", false, 2, p->d, 0);
		int zero = line(t, "i32[B,S]", "full {value=0.0 dims=[B,S] dtype=i32}");
		int y = line(t, rows(p->d).text, "gather %s, %%v%d", table.text, zero);
		x = line(t, rows(p->d).text, "add %%v%d, %%v%d", x, y);
	}
	return x;
}

static int head(struct text *t, int x)
{
	const struct plan *p = &t->p;
	if (p->is_tied)
		return line(t, rows(p->v).text, "linear %%v%d, @emb", x);
	return linear(t, x, "head", p->v, p->d, p->has_o_bias, false);
}

/* From ids to the logits of every row. */
static int logits(struct text *t)
{
	int at = positions(t), x = embed(t, at);
	x = layers(t, x, at);
	if (t->p.has_final_norm)
		x = norm(t, x, "final", false);
	return head(t, x);
}

/* The log-probability of the id that a row reads. */
static int score(struct text *t, int x)
{
	const struct plan *p = &t->p;
	int log_p = line(t, rows(p->v).text, "log_softmax %%v%d", x);
	int flat = line(t, SAY("f32[B*S,%d]", p->v), "reshape %%v%d {dims=[B*S,%d]}", log_p, p->v);
	int at = line(t, "i32[B*S]", "reshape %%ids {dims=[B*S]}");
	int picked = line(t, "f32[B*S]", "select_rows %%v%d, %%v%d", flat, at);
	return line(t, "f32[B,S]", "reshape %%v%d {dims=[B,S]}", picked);
}

static void write_run(struct text *t)
{
	const struct plan *p = &t->p;
	buf_printf(
	        t->out,
	        "func @run(%%ids: i32[B,S] {below=%d lengths=%%len}, %%len: i32[B] {default=S max=S}) -> (y:"
	        " %s {lengths=%%len}) {\n",
	        p->v, p->is_scored ? "f32[B,S]" : rows(p->v).text);
	int x = logits(t);
	x = line(t, rows(p->v).text, "mask_rows %%v%d, %%len", x);
	x = p->is_scored ? score(t, x) : x;
	buf_printf(t->out, "return %%v%d\n}\n", x);
}

/* Logits of the last row of every sequence. */
static void write_decode(struct text *t)
{
	const struct plan *p = &t->p;
	buf_printf(
	        t->out,
	        "func @decode(%%ids: i32[B,S] {below=%d lengths=%%len}, %%len: i32[B] {default=S max=S}, "
	        "%%past:"
	        " i32[B] {role=past}, %%sk: state @ck, %%sv: state @cv) -> (y: f32[B,%d], i32[B] {role=past},"
	        " state @ck, state @cv) {\n",
	        p->v, p->v);
	int x = logits(t);
	int one = line(t, "i32[B]", "full {value=1.0 dims=[B] dtype=i32}");
	int last = line(t, "i32[B]", "sub %%len, %%v%d", one);
	int y = line(t, SAY("f32[B,%d]", p->v), "select_rows %%v%d, %%v%d", x, last);
	int past = line(t, "i32[B]", "add %%past, %%len");
	buf_printf(t->out, "return %%v%d, %%v%d, %%ak, %%av\n}\n", y, past);
}

void random_transformer(struct buf *out, uint64_t seed, bool decodes)
{
	struct buf weights, funcs, again;
	struct text t = {.rng = rng_seed(seed)};
	t.p = choose(&t.rng);
	buf_init(&weights);
	buf_init(&funcs);
	buf_init(&again);
	t.out = &funcs;
	t.weights = &weights;
	write_run(&t);
	if (decodes) {
		t.decode = true;
		t.next = t.n_weights = 0;
		t.weights = &again; /* the same declarations again */
		write_decode(&t);
	}
	buf_printf(out, "module \"random\"\ndim B in [1,4]\ndim S in [1,%d]\n", RANDOM_TRANSFORMER_ROWS);
	buf_bytes(out, weights.data, weights.len);
	if (t.p.rope != ROPE_NONE)
		buf_printf(out, "weight @rope : f32[%d,%d] = rotary(rows=%d, scale=1.0, frequencies=[%s])\n",
		           RANDOM_TRANSFORMER_ROWS, t.p.e, RANDOM_TRANSFORMER_ROWS,
		           t.p.e == 2   ? "1.0"
		           : t.p.e == 4 ? "1.0, 0.1"
		                        : "1.0, 0.3, 0.1");
	for (int i = 0; i < 2 && decodes; i++)
		buf_printf(out, "state @%s : f32[B,%d,%d,%d,%d] #row\n", i == 0 ? "ck" : "cv", t.p.layers,
		           t.p.kv, RANDOM_TRANSFORMER_ROWS, t.p.e);
	buf_bytes(out, funcs.data, funcs.len);
	buf_destroy(&weights);
	buf_destroy(&funcs);
	buf_destroy(&again);
}
