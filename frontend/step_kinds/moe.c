/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixture of experts (Shazeer et al. 2017, eq. 1): a router chooses top_k experts
 * for each row, the row stands top_k times in a line that goes through the
 * feed-forward of those experts only, and the results are summed by weight in the
 * order of the choice.
 */
#include <string.h>

#include "frontend/steps/blocks.h"

#define EXPERTS_MAX 1024

struct moe {
	int64_t experts, top_k;
	bool before, renorm, router_bias, shared_gate;
	double scale;
	const struct yaml_node *ffn, *shared;
	const char *x, *weights, *ids, *sum; /* names */
	const char *rows;                    /* sizes of all axes of x but the last: "B, S" */
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

/* weights, ids [.., k]: the chosen experts of each row, best first. */
static bool route(struct step *st, const struct moe *m)
{
	const char *w = m->weights;
	long long k = (long long)m->top_k;
	bool ok = emit(st, "%s = linear(%s, \"%s.router\", out=%lld, bias=%s)", w, m->x, st->params,
	               (long long)m->experts, bool_text(m->router_bias));
	if (m->before)
		ok = ok && emit(st, "%s = softmax(%s)", w, w);
	ok = ok && emit(st, "%s, %s = topk(%s, %lld)", w, m->ids, w, k);
	if (!m->before)
		ok = ok && emit(st, "%s = softmax(%s)", w, w);
	if (m->renorm)
		ok = ok && emit(st, "%s = %s / sum(%s, axis=-1, keep=true)", w, w, w);
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

/* What is read of the experts' ffn. */
struct experts {
	int64_t dim, width;
	const char *kind, *act, *fused;
	bool bias;
};

static bool read_experts(struct step *st, const struct moe *m, struct experts *x)
{
	struct step one = *st;
	int64_t out = x->width;
	one.kind = schema_find_step("ffn");
	one.args = m->ffn;
	if (m->ffn->kind != YAML_MAPPING)
		return step_error(st, NULL, DIAG_VALUE_TYPE, "the experts of moe are a mapping, as of ffn");
	if (!schema_check(st->b->arena, st->b->cx, m->ffn, "ffn", "step", "ffn of moe") ||
	    !arg_word(&one, "kind", &x->kind) || !arg_int(&one, "dim", 1, &x->dim) ||
	    !arg_act(&one, "act", &x->act) || !arg_bool(&one, "bias", &x->bias) ||
	    !arg_int(&one, "out", 1, &out) || !arg_word(&one, "fused", &x->fused))
		return false;
	if (out != x->width)
		return step_error(st, NULL, DIAG_SHAPE, "the experts of moe keep the width");
	if (strcmp(x->kind, "gated") != 0 && strcmp(x->fused, "none") != 0)
		return step_error(&one, "fused", DIAG_REFUSED, "fused is for kind gated");
	return true;
}

/* to = act(from through the matrices `role` of the chosen experts) */
static bool through(struct step *st, const struct moe *m, const struct experts *x, const char *to,
                    const char *from, const char *role, int64_t out, bool act)
{
	const char *how =
	        act && strcmp(x->act, "identity") != 0 ? arena_printf(st->b->arena, ", act=%s", x->act) : "";
	return emit(st,
	            "%s = expert_linear(%s, %s, \"%s.experts\", \"%s\", experts=%lld, out=%lld, bias=%s%s)",
	            to, from, m->ids, st->params, role, (long long)m->experts, (long long)out,
	            bool_text(x->bias), how);
}

static bool inner(struct step *st, const struct moe *m, const struct experts *x)
{
	const char *s = m->sum, *g = temp_push(st->b, "g");
	bool gated = strcmp(x->kind, "gated") == 0, first = strcmp(x->fused, "gate_up") == 0, ok;
	if (!gated) {
		ok = through(st, m, x, s, s, "up", x->dim, true);
	} else if (strcmp(x->fused, "none") == 0) {
		ok = through(st, m, x, g, s, "gate", x->dim, true) &&
		     through(st, m, x, s, s, "up", x->dim, false) && emit(st, "%s = %s * %s", s, g, s);
	} else {
		ok = through(st, m, x, s, s, x->fused, 2 * x->dim, false) &&
		     emit(st, "%s, %s = split(%s, axis=-1, sizes=[%lld, %lld])", first ? g : s, first ? s : g,
		          s, (long long)x->dim, (long long)x->dim) &&
		     emit(st, "%s = %s(%s) * %s", s, x->act, g, s);
	}
	temp_pop(st->b, 1);
	return ok;
}

/* sum = the weighted results of the chosen experts; rows stand k times, [.., k, d]. */
static bool add_experts(struct step *st, const struct moe *m)
{
	struct experts x = {.kind = "mlp", .bias = true, .width = width_of(st, &st->in)};
	long long d = (long long)x.width, k = (long long)m->top_k;
	const char *s = m->sum;
	if (!read_experts(st, m, &x))
		return false;
	bool ok = emit(st, "%s = broadcast(reshape(%s, [%s1, %lld]), [%s%lld, %lld])", s, m->x, m->rows, d,
	               m->rows, k, d) &&
	          inner(st, m, &x) && through(st, m, &x, s, s, "down", x.width, false) &&
	          emit(st, "%s = sum(%s * reshape(%s, [%s%lld, 1]), axis=-2)", s, s, m->weights, m->rows, k);
	return ok && (m->scale == 1.0 || emit(st, "%s = %s * %s", s, s, float_text(st->b, m->scale)));
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
	if (ir_dtype_class(v.dtype) != DTCLASS_FLOAT || v.rank < 2 || v.rank >= IR_RANK_MAX ||
	    width_of(st, &v) < 0)
		return step_error(st, NULL, DIAG_SHAPE, "moe wants a float tensor [.., d], found %s%s",
		                  ir_dtype_name(v.dtype), shape_text(b, v.rank, v.dims));
	if (!read_moe(st, &m))
		return false;
	m.x = temp_push(b, "m");
	m.weights = temp_push(b, "w");
	m.sum = temp_push(b, "s");
	m.ids = temp_push(b, "i");
	bool ok = emit(st, "%s = %s", m.x, v.name) && route(st, &m) && add_experts(st, &m) &&
	          add_shared(st, &m);
	temp_pop(b, 4);
	v.name = "x";
	b->x = v;
	return ok;
}
