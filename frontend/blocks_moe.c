/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts: a router, the weights of the chosen experts (0 for the
 * others), and the weighted sum of the feed-forward blocks (Shazeer et al. 2017,
 * eq. 1). An expert is chosen when fewer than top_k others come before it: those
 * with a larger logit, or an equal one and a lower number.
 */
#include <string.h>

#include "frontend/blocks.h"

#define EXPERTS_MAX 1024

struct moe {
	int64_t experts, top_k;
	bool before, renorm, router_bias, shared_gate;
	double scale;
	const struct yaml_node *ffn, *shared;
	const char *x, *weights, *sum; /* names */
	const char *rows;              /* sizes of all axes of x but the last: "B, S" */
};

static bool read_router(struct step *st, struct moe *m)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "router"), *node;
	const char *when = NULL;
	if (map->kind != YAML_MAPPING)
		return step_error(st, "router", DIAG_VALUE_TYPE, "router is a mapping with 'softmax'");
	if (!schema_check(st->b->arena, st->b->cx, map, "router", NULL, "router") ||
	    !arg_map_word(st, map, "router", "softmax", &when))
		return false;
	m->before = strcmp(when, "before") == 0;
	node = yaml_find(map, "renorm");
	if ((node != NULL) != m->before)
		return step_error(st, "router", m->before ? DIAG_MISSING : DIAG_REFUSED,
		                  m->before ? "router with softmax: before needs 'renorm'"
		                            : "router with softmax: after has no 'renorm'");
	if (node != NULL && !expr_read_bool(&env, node, "renorm", &m->renorm))
		return false;
	node = yaml_find(map, "bias");
	return node == NULL || expr_read_bool(&env, node, "bias", &m->router_bias);
}

static bool read_moe(struct step *st, struct moe *m)
{
	*m = (struct moe){.scale = 1.0, .ffn = arg(st, "ffn"), .shared = arg(st, "shared")};
	if (!arg_int(st, "experts", 1, &m->experts) || !arg_int(st, "top_k", 1, &m->top_k) ||
	    !arg_bool(st, "shared_gate", &m->shared_gate) || !arg_float(st, "scale", &m->scale) ||
	    !read_router(st, m))
		return false;
	if (m->experts > EXPERTS_MAX)
		return step_error(st, "experts", DIAG_LIMIT, "more than %d experts", EXPERTS_MAX);
	if (m->top_k > m->experts)
		return step_error(st, "top_k", DIAG_VALUE_TYPE, "top_k (%lld) of %lld experts",
		                  (long long)m->top_k, (long long)m->experts);
	if (m->shared_gate && m->shared == NULL)
		return step_error(st, "shared_gate", DIAG_MISSING, "shared_gate needs 'shared'");
	m->rows = "";
	for (int i = 0; i + 1 < st->in.rank; i++)
		m->rows = arena_printf(st->b->arena, "%s%s, ", m->rows, dim_text(st->b, st->in.dims[i]));
	return true;
}

/* [.., E]: the weight of each expert for each row. */
static bool route(struct step *st, const struct moe *m)
{
	const char *w = m->weights, *t = temp_push(st->b, "t");
	long long e = (long long)m->experts;
	bool ok = emit(st, "%s = linear(%s, \"%s.router\", out=%lld, bias=%s)", w, m->x, st->params, e,
	               bool_text(m->router_bias)) &&
	          emit(st,
	               "%s = sum(cast(reshape(%s, [%s1, %lld]) > reshape(%s, [%s%lld, 1]), f32) + "
	               "cast(reshape(%s, [%s1, %lld]) == reshape(%s, [%s%lld, 1]), f32) * "
	               "cast(reshape(iota(%lld), [1, %lld]) < reshape(iota(%lld), [%lld, 1]), f32), axis=-1)",
	               t, w, m->rows, e, w, m->rows, e, w, m->rows, e, w, m->rows, e, e, e, e, e);
	if (m->before)
		ok = ok &&
		     emit(st, "%s = where(%s < %lld.0, softmax(%s), 0.0)", w, t, (long long)m->top_k, w);
	else
		ok = ok &&
		     emit(st, "%s = softmax(where(%s < %lld.0, %s, -.inf))", w, t, (long long)m->top_k, w);
	if (m->renorm)
		ok = ok && emit(st, "%s = %s / sum(%s, axis=-1, keep=true)", w, w, w);
	temp_pop(st->b, 1);
	return ok;
}

/* x = ffn(input) with the parameters under `path`. */
static bool expert(struct step *st, const struct moe *m, const struct yaml_node *args, const char *path)
{
	struct step one = *st;
	one.kind = schema_find_step("ffn");
	one.args = args;
	one.path = one.params = path;
	one.in = st->in;
	one.in.name = m->x;
	if (args->kind != YAML_MAPPING)
		return step_error(st, NULL, DIAG_VALUE_TYPE, "the experts of moe are a mapping, as of ffn");
	if (!schema_check(st->b->arena, st->b->cx, args, "ffn", "step", "ffn of moe") || !step_ffn(&one))
		return false;
	bool same = st->b->x.dims[st->in.rank - 1] == st->in.dims[st->in.rank - 1];
	return same || step_error(st, NULL, DIAG_SHAPE, "the experts of moe keep the width");
}

static bool add_experts(struct step *st, const struct moe *m)
{
	struct blocks *b = st->b;
	for (int64_t k = 0; k < m->experts; k++) {
		const char *path = arena_printf(b->arena, "%s.experts.%lld", st->params, (long long)k);
		if (!expert(st, m, m->ffn, path) ||
		    !emit(st, "%s = %s%sx * slice(%s, axis=-1, begin=%lld, end=%lld)", m->sum,
		          k > 0 ? m->sum : "", k > 0 ? " + " : "", m->weights, (long long)k,
		          (long long)k + 1))
			return false;
	}
	return m->scale == 1.0 || emit(st, "%s = %s * %s", m->sum, m->sum, float_text(b, m->scale));
}

static bool add_shared(struct step *st, const struct moe *m)
{
	if (m->shared == NULL)
		return emit(st, "x = %s", m->sum);
	if (!expert(st, m, m->shared, arena_printf(st->b->arena, "%s.shared", st->params)))
		return false;
	if (m->shared_gate &&
	    !emit(st, "x = x * sigmoid(linear(%s, \"%s.shared_gate\", out=1, bias=false))", m->x, st->params))
		return false;
	return emit(st, "x = %s + x", m->sum);
}

bool step_moe(struct step *st)
{
	struct blocks *b = st->b;
	struct moe m;
	struct block_value v = st->in;
	if (ir_dtype_class(v.dtype) != DTCLASS_FLOAT || v.rank < 2 || width_of(st, &v) < 0)
		return step_error(st, NULL, DIAG_SHAPE, "moe wants a float tensor [.., d], found %s%s",
		                  ir_dtype_name(v.dtype), shape_text(b, v.rank, v.dims));
	if (!read_moe(st, &m))
		return false;
	m.x = temp_push(b, "m");
	m.weights = temp_push(b, "w");
	m.sum = temp_push(b, "s");
	bool ok = emit(st, "%s = %s", m.x, v.name) && route(st, &m) && add_experts(st, &m) &&
	          add_shared(st, &m);
	temp_pop(b, 3);
	v.name = "x";
	b->x = v;
	return ok;
}
