/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments `alibi` and `rel_bias` of attention, as arguments of the graph
 * level's sdpa.
 */
#include "frontend/steps/blocks.h"

static bool refuse_memory(const struct step *st, const char *key)
{
	if (arg(st, "memory") == NULL)
		return true;
	return step_error(st, key, DIAG_REFUSED, "attention over a memory has no %s", key);
}

/* A positive number of the mapping; absent: left alone. */
static bool read_positive(const struct step *st, const struct yaml_node *map, const char *key, double *out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *node = yaml_find(map, key);
	if (node == NULL)
		return true;
	if (!expr_read_float(&env, node, key, out))
		return false;
	return *out > 0.0 || step_error(st, "alibi", DIAG_VALUE_TYPE, "%s must be positive", key);
}

/* *max 0: none */
static bool read_alibi(const struct step *st, double *max, double *scale)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *node = arg(st, "alibi");
	bool on = true;
	if (node == NULL)
		return true;
	*max = 8.0;
	if (node->kind == YAML_MAPPING) {
		if (!schema_check(st->b->arena, st->b->cx, node, "alibi", NULL, "alibi") ||
		    !read_positive(st, node, "max", max) || !read_positive(st, node, "scale", scale))
			return false;
	} else if (!expr_read_bool(&env, node, "alibi", &on)) {
		return false;
	}
	if (!on)
		*max = 0.0;
	return !on || refuse_memory(st, "alibi");
}

static bool read_relative(const struct step *st, bool causal, const char **out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "rel_bias"), *node;
	const char *path = path_join(st->b, st->params, "rel_bias");
	int64_t buckets, reach;
	bool both = !causal;
	if (map == NULL)
		return true;
	if (map->kind != YAML_MAPPING)
		return step_error(st, "rel_bias", DIAG_VALUE_TYPE,
		                  "rel_bias is a mapping with 'buckets' and 'max_distance'");
	if (!refuse_memory(st, "rel_bias") ||
	    !schema_check(st->b->arena, st->b->cx, map, "rel_bias", NULL, "rel_bias") ||
	    !expr_read_int(&env, yaml_find(map, "buckets"), "buckets", &buckets) ||
	    !expr_read_int(&env, yaml_find(map, "max_distance"), "max_distance", &reach))
		return false;
	if ((node = yaml_find(map, "bidirectional")) != NULL &&
	    !expr_read_bool(&env, node, "bidirectional", &both))
		return false;
	if (!path_of_node(st, yaml_find(map, "share"), "share", &path))
		return false;
	*out = arena_printf(st->b->arena,
	                    "%s, rel_bias=\"%s\", buckets=%lld, max_distance=%lld, bidirectional=%s", *out,
	                    path, (long long)buckets, (long long)reach, bool_text(both));
	return true;
}

bool arg_score_bias(const struct step *st, bool causal, const char **out)
{
	double max = 0.0, scale = 1.0;
	*out = "";
	if (!read_alibi(st, &max, &scale))
		return false;
	if (max > 0.0)
		*out = arena_printf(st->b->arena, ", alibi=%s", float_text(st->b, max));
	if (max > 0.0 && scale != 1.0)
		*out = arena_printf(st->b->arena, "%s, alibi_scale=%s", *out, float_text(st->b, scale));
	return read_relative(st, causal, out);
}
