/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `qk_norm` argument of attention: norms of queries and keys, over the
 * features of each head (behind the split) or of all heads (before it).
 */
#include <string.h>

#include "frontend/blocks.h"

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
	out->options = arena_printf(st->b->arena, "eps=%s%s", float_text(st->b, eps),
	                            layer      ? (bias ? ", bias=true" : ", bias=false")
	                            : plus_one ? ", plus_one=true"
	                                       : "");
	return true;
}

bool emit_qk_norm(struct step *st, const struct qk_norm *n, const char *q, const char *k)
{
	return emit(st, "%s = %s(%s, \"%s.q_norm\", %s)", q, n->call, q, st->params, n->options) &&
	       emit(st, "%s = %s(%s, \"%s.k_norm\", %s)", k, n->call, k, st->params, n->options);
}
