/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `qk_norm` argument of attention: norms of queries and keys, over the
 * features of each head (behind the split; with one weight for all heads or one
 * for each) or of all heads (before it).
 */
#include <string.h>

#include "frontend/steps/blocks.h"
#include "ir/support/buf.h"

static bool read_flag(const struct step *st, const struct yaml_node *map, const char *key, bool *out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *node = yaml_find(map, key);
	return node == NULL || expr_read_bool(&env, node, key, out);
}

bool arg_qk_norm(const struct step *st, struct qk_norm *out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "qk_norm");
	const char *kind = "rms", *over = "head";
	*out = (struct qk_norm){.norm.weight = true};
	if (map == NULL)
		return true;
	if (map->kind != YAML_MAPPING)
		return step_error(st, "qk_norm", DIAG_VALUE_TYPE, "qk_norm is a mapping with 'eps'");
	if (!schema_check(st->b->arena, st->b->cx, map, "qk_norm", NULL, "qk_norm") ||
	    !arg_map_word(st, map, "qk_norm", "kind", &kind) ||
	    !arg_map_word(st, map, "qk_norm", "over", &over) ||
	    !expr_read_float(&env, yaml_find(map, "eps"), "eps", &out->norm.eps))
		return false;
	if (!(out->norm.eps >= 0.0))
		return step_error(st, "qk_norm", DIAG_VALUE_TYPE, "eps must not be negative");
	out->norm.kind = kind;
	out->norm.bias = strcmp(kind, "layer") == 0;
	out->over_all = strcmp(over, "all") == 0;
	out->each = strcmp(over, "each") == 0;
	return read_flag(st, map, "plus_one", &out->norm.plus_one) &&
	       read_flag(st, map, "bias", &out->norm.bias);
}

/* Parameters PATH.N.ROLE of all heads as [heads, 1, width]; numbers, width 0, as [heads, 1, 1]. */
static const char *stacked(const struct step *st, const char *path, const char *role, int64_t heads,
                           int64_t width)
{
	struct buf t;
	const char *shape = width > 0 ? arena_printf(st->b->arena, "[%lld])", (long long)width) : "[]), [1])";
	buf_init(&t);
	for (int64_t i = 0; i < heads; i++)
		buf_printf(&t, "%s%sparam(\"%s.%lld.%s\", %s", i > 0 ? ", " : "", width > 0 ? "" : "reshape(",
		           path, (long long)i, role, shape);
	const char *text = arena_printf(st->b->arena, "reshape(concat([%s], axis=0), [%lld, 1, %lld])",
	                                t.data, (long long)heads, (long long)(width > 0 ? width : 1));
	buf_destroy(&t);
	return text;
}

/* Without parameters, then times [heads, 1, e] plus [heads, 1, e], whose rows are parameters of their own. */
static bool emit_each(const struct step *st, const struct norm *n, const char *x, const char *path,
                      int64_t heads, int64_t e)
{
	struct norm bare = {.kind = n->kind, .eps = n->eps};
	bool one = strcmp(n->kind, "scale") == 0;
	const char *weights = stacked(st, path, "weight", heads, one ? 0 : e);
	return emit_norm(st, &bare, x, x, path, e) &&
	       emit(st, n->plus_one ? "%s = %s * (1.0 + %s)" : "%s = %s * %s", x, x, weights) &&
	       (!n->bias || emit(st, "%s = %s + %s", x, x, stacked(st, path, "bias", heads, e)));
}

bool emit_qk_norm(struct step *st, const struct qk_norm *n, const char *const qk[2], const int64_t heads[2],
                  int64_t e)
{
	static const char *const roles[2] = {"q_norm", "k_norm"};
	for (size_t i = 0; i < 2; i++) {
		const char *path = arena_printf(st->b->arena, "%s.%s", st->params, roles[i]);
		bool ok =
		        n->each ? emit_each(st, &n->norm, qk[i], path, heads[i], e)
		                : emit_norm(st, &n->norm, qk[i], qk[i], path, n->over_all ? heads[i] * e : e);
		if (!ok)
			return false;
	}
	return true;
}
