/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention step: projections in every stored layout, heads, sdpa, output
 * projection.
 */
#include <math.h>
#include <string.h>

#include "frontend/steps/blocks.h"
#include "frontend/lower/lower.h"

struct attention {
	struct block_value mem; /* where keys and values come from */
	bool has_memory, causal;
	int64_t h, g, e, d, dm; /* heads, key heads, head size, widths of x and memory */
	bool bq, bk, bv, bo;
	const char *fused, *lengths, *rope; /* rope: arguments, or NULL */
	const char *score_bias;             /* arguments, or "" */
	const char *prefix;                 /* argument, or NULL */
	int64_t cache_len;                  /* 0: as generate says */
	const char *cache_dtype;            /* NULL: as dtype says */
	bool sinks;
	int64_t window; /* 0: none */
	double scale, softcap;
	struct qk_norm norm;
	const char *q, *k, *v; /* names */
};

static bool read_bias(struct step *st, struct attention *at)
{
	const struct yaml_node *node = arg(st, "bias");
	struct expr_env env = blocks_env(st->b, false);
	bool *const letters[] = {&at->bq, &at->bk, &at->bv, &at->bo};
	static const char *const names[] = {"q", "k", "v", "o"};
	bool all = true;
	bool mapping = node != NULL && node->kind == YAML_MAPPING;
	if (mapping && !schema_check(st->b->arena, st->b->cx, node, "bias", NULL, "bias"))
		return false;
	if (node != NULL && !mapping && !expr_read_bool(&env, node, "bias", &all))
		return false;
	for (size_t i = 0; i < TFMC_COUNT(names); i++) {
		const struct yaml_node *letter = mapping ? yaml_find(node, names[i]) : NULL;
		*letters[i] = all;
		if (letter != NULL && !expr_read_bool(&env, letter, names[i], letters[i]))
			return false;
	}
	return true;
}

static bool read_heads(struct step *st, struct attention *at)
{
	if (!arg_int(st, "heads", 1, &at->h))
		return false;
	at->g = at->h;
	if (!arg_int(st, "kv_heads", 1, &at->g))
		return false;
	if (at->h % at->g != 0)
		return step_error(st, "kv_heads", DIAG_NOT_DIVISIBLE,
		                  "heads (%lld) is not a multiple of kv_heads (%lld)", (long long)at->h,
		                  (long long)at->g);
	if (arg(st, "head_dim") != NULL)
		return arg_int(st, "head_dim", 1, &at->e);
	if (at->d % at->h != 0)
		return step_error(st, "heads", DIAG_NOT_DIVISIBLE,
		                  "width (%lld) is not a multiple of heads (%lld)", (long long)at->d,
		                  (long long)at->h);
	at->e = at->d / at->h;
	return true;
}

static bool read_window(struct step *st, struct attention *at)
{
	if (!arg_int(st, "window", 0, &at->window))
		return false;
	if (at->window > IR_WINDOW_MAX)
		return step_error(st, "window", DIAG_VALUE_TYPE, "window is at most %d", IR_WINDOW_MAX);
	if (at->window > 0 && at->has_memory)
		return step_error(st, "window", DIAG_REFUSED, "attention over a memory has no window");
	return true;
}

static bool read_mask(struct step *st, struct attention *at)
{
	const char *mask = NULL;
	if (!arg_word(st, "mask", &mask))
		return false;
	bool prefix = mask != NULL && strcmp(mask, "prefix") == 0;
	at->causal = prefix || (mask != NULL && strcmp(mask, "causal") == 0);
	if (prefix != (arg(st, "prefix") != NULL))
		return step_error(st, prefix ? "mask" : "prefix", prefix ? DIAG_MISSING : DIAG_REFUSED,
		                  prefix ? "mask: prefix needs 'prefix', how many positions all may see"
		                         : "'prefix' is for mask: prefix");
	if (prefix && !arg_prefix(st, &at->prefix))
		return false;
	if (!at->has_memory && mask == NULL)
		return step_error(st, NULL, DIAG_MISSING, "attention needs 'mask' (none, causal or prefix)");
	if (at->has_memory && at->causal)
		return step_error(st, "mask", DIAG_REFUSED, "attention over a memory has no mask");
	if (!at->has_memory && st->in.grows && !at->causal)
		return step_error(
		        st, "mask", DIAG_NO_CAUSAL_MASK,
		        "attention on the tokens of a generating model needs mask: causal or prefix");
	if (at->has_memory && at->mem.grows)
		return step_error(st, "memory", DIAG_GENERATE,
		                  "the memory depends on the tokens of a generating model");
	return true;
}

static bool check_values(struct step *st, struct attention *at)
{
	if (st->in.rank != 3 || at->mem.rank != 3 || st->in.dims[0] != at->mem.dims[0])
		return step_error(st, NULL, DIAG_SHAPE, "attention wants [B, S, d], found %s and %s",
		                  shape_text(st->b, st->in.rank, st->in.dims),
		                  shape_text(st->b, at->mem.rank, at->mem.dims));
	at->d = width_of(st, &st->in);
	at->dm = width_of(st, &at->mem);
	return at->d > 0 && at->dm > 0;
}

static bool read_attention(struct step *st, struct attention *at)
{
	at->mem = st->in;
	at->has_memory = arg(st, "memory") != NULL;
	if (!arg_value(st, "memory", &at->mem) || !read_window(st, at) || !check_values(st, at) ||
	    !read_heads(st, at) || !read_bias(st, at) || !read_mask(st, at))
		return false;
	at->lengths = at->mem.lengths;
	at->scale = 1.0 / sqrt((double)at->e);
	if (!arg_lengths(st, "lengths", &at->lengths) || !arg_float(st, "scale", &at->scale) ||
	    !arg_float(st, "softcap", &at->softcap) || !arg_word(st, "fused", &at->fused) ||
	    !arg_bool(st, "sinks", &at->sinks))
		return false;
	const struct cache_use use = {at->window, at->causal && at->prefix == NULL};
	if (!arg_cache(st, &use, &at->cache_len, &at->cache_dtype))
		return false;
	if (!arg_rope(st, at->e, &at->rope) || !arg_qk_norm(st, &at->norm) ||
	    !arg_score_bias(st, at->causal, &at->score_bias))
		return false;
	if (at->rope != NULL && at->has_memory)
		return step_error(st, "rope", DIAG_REFUSED, "attention over a memory has no rope");
	if (at->softcap < 0.0)
		return step_error(st, "softcap", DIAG_VALUE_TYPE, "softcap must not be negative");
	bool kv = strcmp(at->fused, "kv") == 0, none = strcmp(at->fused, "none") == 0;
	if ((!none && at->bk != at->bv) || (!none && !kv && at->bq != at->bk))
		return step_error(st, "bias", DIAG_REFUSED,
		                  "projections that are stored in one matrix must agree on their bias");
	if (!none && !kv && at->d != at->dm)
		return step_error(st, "fused", DIAG_SHAPE,
		                  "one matrix for q, k and v needs equal widths, found %lld and %lld",
		                  (long long)at->d, (long long)at->dm);
	return true;
}

/* ---- projections ---- */

static bool separate(struct step *st, const struct attention *at, bool query, bool keys)
{
	const char *p = st->params;
	bool ok = true;
	if (query)
		ok = emit(st, "%s = linear(%s, \"%s.q\", out=%lld, bias=%s)", at->q, st->in.name, p,
		          (long long)(at->h * at->e), bool_text(at->bq));
	if (!keys)
		return ok;
	return ok &&
	       emit(st, "%s = linear(%s, \"%s.k\", out=%lld, bias=%s)", at->k, at->mem.name, p,
	            (long long)(at->g * at->e), bool_text(at->bk)) &&
	       emit(st, "%s = linear(%s, \"%s.v\", out=%lld, bias=%s)", at->v, at->mem.name, p,
	            (long long)(at->g * at->e), bool_text(at->bv));
}

static bool fused_kv(struct step *st, const struct attention *at)
{
	long long ge = (long long)(at->g * at->e);
	return separate(st, at, true, false) &&
	       emit(st, "%s = linear(%s, \"%s.kv\", out=%lld, bias=%s)", at->k, at->mem.name, st->params,
	            2 * ge, bool_text(at->bk)) &&
	       emit(st, "%s, %s = split(%s, axis=-1, sizes=[%lld, %lld])", at->k, at->v, at->k, ge, ge);
}

/* One matrix: one product for self attention, two slices of it with a memory. */
static bool fused_qkv(struct step *st, const struct attention *at)
{
	long long he = (long long)(at->h * at->e), ge = (long long)(at->g * at->e);
	const char *p = st->params, *bias = bool_text(at->bq);
	if (!at->has_memory)
		return emit(st, "%s = linear(%s, \"%s.qkv\", out=%lld, bias=%s)", at->q, st->in.name, p,
		            he + 2 * ge, bias) &&
		       emit(st, "%s, %s, %s = split(%s, axis=-1, sizes=[%lld, %lld, %lld])", at->q, at->k,
		            at->v, at->q, he, ge, ge);
	return emit(st, "%s = linear(%s, \"%s.qkv\", out=%lld, bias=%s, first=0, of=%lld)", at->q,
	            st->in.name, p, he, bias, he + 2 * ge) &&
	       emit(st, "%s = linear(%s, \"%s.qkv\", out=%lld, bias=%s, first=%lld, of=%lld)", at->k,
	            at->mem.name, p, 2 * ge, bias, he, he + 2 * ge) &&
	       emit(st, "%s, %s = split(%s, axis=-1, sizes=[%lld, %lld])", at->k, at->v, at->k, ge, ge);
}

/* Each key head: its query heads, then k, then v. */
static bool fused_grouped(struct step *st, const struct attention *at)
{
	long long he = (long long)(at->h * at->e), ge = (long long)(at->g * at->e),
	          r = (long long)(at->h / at->g);
	struct blocks *b = st->b;
	const char *rows =
	        arena_printf(b->arena, "%s, %s", dim_text(b, st->in.dims[0]), dim_text(b, st->in.dims[1]));
	bool ok =
	        emit(st, "%s = linear(%s, \"%s.qkv\", out=%lld, bias=%s)", at->q, st->in.name, st->params,
	             he + 2 * ge, bool_text(at->bq)) &&
	        emit(st, "%s = reshape(%s, [%s, %lld, %lld, %lld])", at->q, at->q, rows, (long long)at->g,
	             r + 2, (long long)at->e) &&
	        emit(st, "%s, %s, %s = split(%s, axis=3, sizes=[%lld, 1, 1])", at->q, at->k, at->v, at->q, r);
	if (at->norm.norm.kind == NULL || !at->norm.over_all)
		return ok; /* heads_of takes both forms */
	return ok && emit(st, "%s = reshape(%s, [%s, %lld])", at->q, at->q, rows, he) &&
	       emit(st, "%s = reshape(%s, [%s, %lld])", at->k, at->k, rows, ge);
}

/* The same matrix: its rows of queries for x, those of keys and of values for the memory. */
static bool grouped_memory(struct step *st, const struct attention *at)
{
	long long e = (long long)at->e, g = (long long)at->g, r = (long long)(at->h / at->g);
	const char *const to[] = {at->q, at->k, at->v};
	const long long first[] = {0, r * e, (r + 1) * e}, out[] = {g * r * e, g * e, g * e};
	bool ok = true;
	for (size_t i = 0; ok && i < TFMC_COUNT(to); i++)
		ok = emit(st,
		          "%s = linear(%s, \"%s.qkv\", out=%lld, bias=%s, first=%lld, of=%lld, groups=%lld)",
		          to[i], i == 0 ? st->in.name : at->mem.name, st->params, out[i], bool_text(at->bq),
		          first[i], g * (r + 2) * e, g);
	return ok;
}

static bool project(struct step *st, const struct attention *at)
{
	if (strcmp(at->fused, "none") == 0)
		return separate(st, at, true, true);
	if (strcmp(at->fused, "kv") == 0)
		return fused_kv(st, at);
	if (strcmp(at->fused, "qkv") == 0)
		return fused_qkv(st, at);
	return at->has_memory ? grouped_memory(st, at) : fused_grouped(st, at);
}

/* [B, S, h*e] to [B, h, S, e]. */
static bool heads_of(struct step *st, const char *name, const struct block_value *from, int64_t h, int64_t e)
{
	struct blocks *b = st->b;
	return emit(st, "%s = transpose(reshape(%s, [%s, %s, %lld, %lld]), [0, 2, 1, 3])", name, name,
	            dim_text(b, from->dims[0]), dim_text(b, from->dims[1]), (long long)h, (long long)e);
}

static bool norm_heads(struct step *st, const struct attention *at, bool before_split)
{
	bool here = at->norm.norm.kind != NULL && at->norm.over_all == before_split;
	return !here || emit_qk_norm(st, &at->norm, (const char *const[]){at->q, at->k},
	                             (const int64_t[]){at->h, at->g}, at->e);
}

/* Queries and keys turn with their absolute positions. */
static bool turn(struct step *st, const struct attention *at)
{
	return at->rope == NULL ||
	       (emit(st, "%s = rope(%s, positions(%s), %s)", at->q, at->q, st->in.name, at->rope) &&
	        emit(st, "%s = rope(%s, positions(%s), %s)", at->k, at->k, st->in.name, at->rope));
}

static const char *sdpa_options(struct step *st, const struct attention *at)
{
	struct arena *a = st->b->arena;
	const char *s = at->causal ? ", causal=true" : "";
	s = arena_printf(a, "%s, scale=%s", s, float_text(st->b, at->scale));
	s = arena_printf(a, "%s%s", s, at->score_bias);
	if (at->window > 0)
		s = arena_printf(a, "%s, window=%lld", s, (long long)at->window);
	if (at->softcap > 0.0)
		s = arena_printf(a, "%s, softcap=%s", s, float_text(st->b, at->softcap));
	if (at->lengths != NULL)
		s = arena_printf(a, "%s, lengths=%s", s, at->lengths);
	if (at->prefix != NULL)
		s = arena_printf(a, "%s, prefix=%s", s, at->prefix);
	if (at->sinks)
		s = arena_printf(a, "%s, sinks=param(\"%s.sinks\", [%lld])", s, st->params, (long long)at->h);
	if (!at->has_memory && st->in.grows)
		s = arena_printf(a, "%s, cache=\"%s\"", s, cache_name(st));
	if (at->cache_len > 0)
		s = arena_printf(a, "%s, cache_len=%lld", s, (long long)at->cache_len);
	if (at->cache_dtype != NULL)
		s = arena_printf(a, "%s, cache_dtype=%s", s, at->cache_dtype);
	return s;
}

bool step_attention(struct step *st)
{
	struct blocks *b = st->b;
	struct attention at = {.fused = "none"};
	if (!read_attention(st, &at))
		return false;
	at.q = temp_push(b, "q");
	at.k = temp_push(b, "k");
	at.v = temp_push(b, "v");
	bool ok = project(st, &at) && norm_heads(st, &at, true) && heads_of(st, at.q, &st->in, at.h, at.e) &&
	          heads_of(st, at.k, &at.mem, at.g, at.e) && heads_of(st, at.v, &at.mem, at.g, at.e) &&
	          norm_heads(st, &at, false) && turn(st, &at) &&
	          emit(st, "%s = sdpa(%s, %s, %s%s)", at.q, at.q, at.k, at.v, sdpa_options(st, &at)) &&
	          emit(st, "%s = reshape(transpose(%s, [0, 2, 1, 3]), [%s, %s, %lld])", at.q, at.q,
	               dim_text(b, st->in.dims[0]), dim_text(b, st->in.dims[1]), (long long)(at.h * at.e)) &&
	          emit(st, "x = linear(%s, \"%s.o\", out=%lld, bias=%s)", at.q, st->params, (long long)at.d,
	               bool_text(at.bo));
	temp_pop(b, 3);
	b->x = st->in;
	b->x.name = "x";
	return ok;
}
