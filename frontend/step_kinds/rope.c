/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The `rope` argument of attention: checked here, where the places in the file
 * are known, and written as arguments of the graph level's operator.
 */
#include <string.h>

#include "frontend/steps/blocks.h"
#include "frontend/operators/rope.h"

static bool fail(const struct step *st, const struct yaml_node *node, const char *what)
{
	diag_error(st->b->cx, node->loc, DIAG_VALUE_TYPE, "rope: %s (step %s)", what,
	           concrete(st->b, st->path));
	return false;
}

static bool read_factors(const struct step *st, const struct yaml_node *node, struct rope_turn *r)
{
	struct expr_env env = blocks_env(st->b, false);
	struct value v;
	if (!expr_read_list(&env, node, "factors", &v))
		return false;
	if (v.kind != VALUE_LIST || v.n == 0)
		return fail(st, node, "'factors' is a list of numbers");
	double *list = ARENA_ARRAY(st->b->arena, double, v.n);
	for (size_t i = 0; list != NULL && i < v.n; i++) {
		if (!expr_want_float(&env, node->loc, "factors", &v.items[i], &list[i]))
			return false;
	}
	r->factors = list;
	r->n_factors = v.n;
	return list != NULL;
}

static bool read_scaling(const struct step *st, const struct yaml_node *map, struct rope_turn *r)
{
	struct expr_env env = blocks_env(st->b, false);
	if (map->kind != YAML_MAPPING)
		return fail(st, map, "'scaling' is a mapping with 'kind'");
	if (!schema_check(st->b->arena, st->b->cx, map, "scaling", NULL, "scaling") ||
	    !arg_map_word(st, map, "scaling", "kind", &r->scaling))
		return false;
	for (int i = 0; i < ROPE_N_NUMBERS; i++) {
		const char *name = rope_number_name((enum rope_number)i);
		const struct yaml_node *node = yaml_find(map, name);
		r->given[i] = node != NULL;
		if (node != NULL && !expr_read_float(&env, node, name, &r->number[i]))
			return false;
	}
	const struct yaml_node *factors = yaml_find(map, "factors");
	return factors == NULL || read_factors(st, factors, r);
}

static const char *scaling_text(const struct step *st, const struct rope_turn *r)
{
	struct buf t;
	const char *between = "";
	buf_init(&t);
	buf_printf(&t, ", scaling=%s(", r->scaling);
	for (int i = 0; i < ROPE_N_NUMBERS; i++) {
		if (!r->given[i])
			continue;
		buf_printf(&t, "%s%s=%s", between, rope_number_name((enum rope_number)i),
		           float_text(st->b, r->number[i]));
		between = ", ";
	}
	for (size_t i = 0; i < r->n_factors; i++)
		buf_printf(&t, "%s%s", i == 0 ? arena_printf(st->b->arena, "%sfactors=[", between) : ", ",
		           float_text(st->b, r->factors[i]));
	buf_str(&t, r->n_factors > 0 ? "])" : ")");
	const char *text = arena_strdup(st->b->arena, t.data);
	buf_destroy(&t);
	return text;
}

bool arg_rope(const struct step *st, int64_t width, const char **out)
{
	struct expr_env env = blocks_env(st->b, false);
	const struct yaml_node *map = arg(st, "rope"), *node;
	struct rope_turn r = {.theta = 10000.0, .dim = width};
	const char *layout = NULL;
	*out = NULL;
	if (map == NULL)
		return true;
	if (map->kind != YAML_MAPPING)
		return fail(st, map, "a mapping with 'layout' is wanted");
	if (!schema_check(st->b->arena, st->b->cx, map, "rope", NULL, "rope") ||
	    !arg_map_word(st, map, "rope", "layout", &layout))
		return false;
	if ((node = yaml_find(map, "theta")) != NULL && !expr_read_float(&env, node, "theta", &r.theta))
		return false;
	if ((node = yaml_find(map, "dim")) != NULL && !expr_read_int(&env, node, "dim", &r.dim))
		return false;
	if ((node = yaml_find(map, "scaling")) != NULL && !read_scaling(st, node, &r))
		return false;
	const char *wrong = rope_check(st->b->arena, &r, width);
	if (wrong != NULL)
		return fail(st, map, wrong);
	*out = arena_printf(st->b->arena, "theta=%s, dim=%lld, layout=%s%s", float_text(st->b, r.theta),
	                    (long long)r.dim, layout, r.scaling == NULL ? "" : scaling_text(st, &r));
	return true;
}
