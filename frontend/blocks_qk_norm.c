/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `qk_norm` argument of attention: norms of queries and keys, over the
 * features of each head (behind the split; with one weight for all heads or one
 * for each) or of all heads (before it).
 */
#include <string.h>

#include "frontend/blocks.h"
#include "ir/support/buf.h"

/* The mapping as arguments of the graph level's norm; false after a diagnostic. */
bool arg_qk_norm(const struct step *st, struct qk_norm *out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "qk_norm"), *node;
	const char *kind = "rms", *over = "head";
	bool plus_one = false;
	double eps = 0.0;
	*out = (struct qk_norm){0};
	if (map == NULL)
		return true;
	if (map->kind != YAML_MAPPING ||
	    !schema_check(st->b->arena, st->b->cx, map, "qk_norm", NULL, "qk_norm"))
		return map->kind == YAML_MAPPING ? false
		                                 : step_error(st, "qk_norm", DIAG_VALUE_TYPE,
		                                              "qk_norm is a mapping with 'eps'");
	if (!arg_map_word(st, map, "qk_norm", "kind", &kind) ||
	    !arg_map_word(st, map, "qk_norm", "over", &over) ||
	    !expr_read_float(&env, yaml_find(map, "eps"), "eps", &eps))
		return false;
	bool layer = strcmp(kind, "layer") == 0, bias = layer;
	if ((node = yaml_find(map, "plus_one")) != NULL && !expr_read_bool(&env, node, "plus_one", &plus_one))
		return false;
	if ((node = yaml_find(map, "bias")) != NULL && !expr_read_bool(&env, node, "bias", &bias))
		return false;
	if ((plus_one && layer) || (bias && !layer))
		return step_error(st, "qk_norm", DIAG_UNSUPPORTED,
		                  "not supported yet: qk_norm of kind %s with %s", kind,
		                  plus_one ? "plus_one" : "bias");
	out->call = layer ? "layer_norm" : "rms_norm";
	out->over_all = strcmp(over, "all") == 0;
	out->each = strcmp(over, "each") == 0;
	if (out->each && (bias || plus_one))
		return step_error(st, "qk_norm", DIAG_UNSUPPORTED,
		                  "not supported yet: qk_norm over each head with bias or plus_one");
	out->options = arena_printf(st->b->arena, "eps=%s%s", float_text(st->b, eps),
	                            out->each  ? ""
	                            : layer    ? (bias ? ", bias=true" : ", bias=false")
	                            : plus_one ? ", plus_one=true"
	                                       : "");
	return true;
}

/* Without a weight, then times [heads, 1, e], whose rows are parameters of their own. */
static bool emit_each(struct step *st, const struct qk_norm *n, const char *x, const char *path,
                      int64_t heads, int64_t e)
{
	struct buf t;
	buf_init(&t);
	for (int64_t i = 0; i < heads; i++)
		buf_printf(&t, "%sparam(\"%s.%lld.weight\", [%lld])", i > 0 ? ", " : "", path, (long long)i,
		           (long long)e);
	bool ok = emit(st, "%s = %s(%s, none, %s)", x, n->call, x, n->options) &&
	          emit(st, "%s = %s * reshape(concat([%s], axis=0), [%lld, 1, %lld])", x, x, t.data,
	               (long long)heads, (long long)e);
	buf_destroy(&t);
	return ok;
}

bool emit_qk_norm(struct step *st, const struct qk_norm *n, const char *const qk[2], const int64_t heads[2],
                  int64_t e)
{
	static const char *const roles[2] = {"q_norm", "k_norm"};
	for (size_t i = 0; i < 2; i++) {
		const char *path = arena_printf(st->b->arena, "%s.%s", st->params, roles[i]);
		bool ok = n->each ? emit_each(st, n, qk[i], path, heads[i], e)
		                  : emit(st, "%s = %s(%s, \"%s\", %s)", qk[i], n->call, qk[i], path,
		                         n->options);
		if (!ok)
			return false;
	}
	return true;
}
