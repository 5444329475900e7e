/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments `prefix` and `cache` of attention: an int or a value for the
 * former, length and element type for the latter.
 */
#include <string.h>

#include "frontend/steps/blocks.h"
#include "frontend/lower/lower.h"

bool arg_prefix(const struct step *st, const char **out)
{
	const struct yaml_node *node = arg(st, "prefix");
	struct block_value v;
	int64_t n = 0;
	if (find_named(st->b, node, &v)) {
		if (v.dtype != DT_I32 || v.rank != 1)
			return step_error(st, "prefix", DIAG_SHAPE,
			                  "prefix is an int, or i32 with one axis, the batch");
		*out = v.name;
		return true;
	}
	if (!arg_int(st, "prefix", 0, &n))
		return false;
	*out = arena_printf(st->b->arena, "%lld", (long long)n);
	return true;
}

static const char *add_turns(const struct step *st, const struct block_scope *s, const char *name)
{
	struct arena *a = st->b->arena;
	if (s == NULL)
		return name;
	name = add_turns(st, s->outer, name);
	const char *index = s->def != NULL || name == NULL ? NULL : arena_printf(a, "{%s}", s->loop);
	bool is_known = index == NULL || strstr(name, index) != NULL;
	return is_known ? name : arena_printf(a, "%s.%s", name, index);
}

const char *cache_name(const struct step *st)
{
	return add_turns(st, st->b->scope, st->path);
}

bool arg_cache(const struct step *st, const struct cache_use *use, int64_t *len, const char **dtype)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "cache"), *node;
	if (map == NULL)
		return true;
	if (map->kind != YAML_MAPPING)
		return step_error(st, "cache", DIAG_VALUE_TYPE, "cache is a mapping with 'len' and 'dtype'");
	if (!schema_check(st->b->arena, st->b->cx, map, "cache", NULL, "cache") ||
	    (yaml_find(map, "dtype") != NULL && !arg_map_word(st, map, "cache", "dtype", dtype)))
		return false;
	if (!st->in.grows || arg(st, "memory") != NULL)
		return step_error(st, "cache", DIAG_REFUSED,
		                  "only attention on the tokens of a generating model has a cache");
	if ((node = yaml_find(map, "len")) == NULL)
		return true;
	if (!expr_read_int(&env, node, "len", len))
		return false;
	if (*len < 1 || *len > INT32_MAX)
		return step_error(st, "cache", DIAG_VALUE_TYPE, "the len of a cache is at least 1");
	const char *why = cache_refusal(st->b->arena, use, *len, st->b->m->generate.max_len);
	return why == NULL || step_error(st, "cache", DIAG_REFUSED, "%s", why);
}
