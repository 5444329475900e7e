/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on YAML trees that compose.c is made of. Trees are never changed:
 * what differs is copied.
 */
#include <string.h>

#include "frontend/import/compose.h"
#include "frontend/text/files.h"

struct yaml_node *compose_scalar(struct frontend_model *m, struct loc loc, const char *text, bool quoted)
{
	struct yaml_node *n = ARENA_NEW(&m->arena, struct yaml_node);
	if (n != NULL)
		*n = (struct yaml_node){
		        .kind = YAML_SCALAR, .loc = loc, .text = text, .len = strlen(text), .quoted = quoted};
	return n;
}

/* An empty mapping at the place of `like` with room for n pairs. */
static struct yaml_node *new_map(struct frontend_model *m, const struct yaml_node *like, size_t n)
{
	struct yaml_node *map = ARENA_NEW(&m->arena, struct yaml_node);
	struct yaml_pair *pairs = ARENA_ARRAY(&m->arena, struct yaml_pair, n + 1);
	if (map == NULL || pairs == NULL)
		return NULL;
	*map = *like;
	map->n = 0;
	map->pairs = pairs;
	return map;
}

static void push(struct yaml_node *map, const struct yaml_node *key, const struct yaml_node *value)
{
	map->pairs[map->n++] = (struct yaml_pair){key, value};
}

static bool is_null(const struct yaml_node *node)
{
	return node->kind == YAML_SCALAR && node->null;
}

/* What a key of the base becomes: *out NULL means it goes. */
static bool merged_value(struct frontend_model *m, const struct yaml_node *base, const struct yaml_node *top,
                         const struct yaml_node **out)
{
	*out = top == NULL ? base : top;
	if (top != NULL && is_null(top))
		*out = NULL;
	else if (top != NULL && base->kind == YAML_MAPPING && top->kind == YAML_MAPPING)
		return (*out = compose_merge(m, base, top)) != NULL;
	return true;
}

const struct yaml_node *compose_merge(struct frontend_model *m, const struct yaml_node *base,
                                      const struct yaml_node *top)
{
	struct yaml_node *map = new_map(m, top, base->n + top->n);
	if (map == NULL || !yaml_expect(m->cx, base, YAML_MAPPING, "the document") ||
	    !yaml_expect(m->cx, top, YAML_MAPPING, "the document"))
		return NULL;
	for (size_t i = 0; i < base->n; i++) {
		const struct yaml_pair *p = &base->pairs[i], *over = yaml_find_pair(top, p->key->text);
		const struct yaml_node *value;
		if (!merged_value(m, p->value, over == NULL ? NULL : over->value, &value))
			return NULL;
		if (value != NULL)
			push(map, over == NULL ? p->key : over->key, value);
	}
	for (size_t i = 0; i < top->n; i++) {
		const struct yaml_pair *p = &top->pairs[i];
		if (yaml_find_pair(base, p->key->text) != NULL)
			continue;
		if (is_null(p->value)) {
			diag_error(m->cx, p->value->loc, DIAG_NULL_VALUE,
			           "null deletes a key of the document below, which has no '%s'",
			           p->key->text);
			return NULL;
		}
		push(map, p->key, p->value);
	}
	return map;
}

const struct yaml_node *compose_without(struct frontend_model *m, const struct yaml_node *map,
                                        const char *key)
{
	if (yaml_find_pair(map, key) == NULL)
		return map;
	struct yaml_node *copy = new_map(m, map, map->n);
	for (size_t i = 0; copy != NULL && i < map->n; i++) {
		if (strcmp(map->pairs[i].key->text, key) != 0)
			push(copy, map->pairs[i].key, map->pairs[i].value);
	}
	return copy;
}

const struct yaml_node *compose_with(struct frontend_model *m, const struct yaml_node *map, const char *key,
                                     const struct yaml_node *value)
{
	const struct yaml_pair *old = yaml_find_pair(map, key);
	struct yaml_node *copy = new_map(m, map, map->n + 1);
	if (copy == NULL)
		return NULL;
	for (size_t i = 0; i < map->n; i++)
		push(copy, map->pairs[i].key, &map->pairs[i] == old ? value : map->pairs[i].value);
	if (old == NULL)
		push(copy, compose_scalar(m, value->loc, key, false), value);
	return copy;
}

/* ---- file names ---- */

static const struct yaml_node *moved_name(struct frontend_model *m, const struct yaml_node *node,
                                          const char *dir)
{
	if (node == NULL || node->kind != YAML_SCALAR || is_null(node))
		return node;
	struct yaml_node *copy = ARENA_NEW(&m->arena, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->text = file_join(&m->arena, dir, node->text);
	copy->len = strlen(copy->text);
	copy->exact = false;
	return copy;
}

static const struct yaml_node *moved_list(struct frontend_model *m, const struct yaml_node *node,
                                          const char *dir)
{
	if (node == NULL || node->kind != YAML_SEQUENCE)
		return moved_name(m, node, dir);
	struct yaml_node *copy = ARENA_NEW(&m->arena, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->items = ARENA_ARRAY(&m->arena, const struct yaml_node *, node->n + 1);
	for (size_t i = 0; copy->items != NULL && i < node->n; i++)
		copy->items[i] = moved_name(m, node->items[i], dir);
	return copy;
}

/* Some keys of a mapping hold names. */
static const struct yaml_node *moved_keys(struct frontend_model *m, const struct yaml_node *map,
                                          const char *const *keys, size_t n, const char *dir)
{
	for (size_t i = 0; map != NULL && map->kind == YAML_MAPPING && i < n; i++) {
		const struct yaml_node *value = yaml_find(map, keys[i]);
		if (value != NULL)
			map = compose_with(m, map, keys[i], moved_list(m, value, dir));
	}
	return map;
}

static const struct yaml_node *moved_check(struct frontend_model *m, const struct yaml_node *check,
                                           const char *dir)
{
	static const char *const file[] = {"file"}, *const parts[] = {"with", "expect"};
	check = moved_keys(m, check, file, 1, dir);
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		const struct yaml_node *part = yaml_find(check, parts[i]);
		if (yaml_find(part, "file") != NULL)
			check = compose_with(m, check, parts[i], moved_keys(m, part, file, 1, dir));
	}
	return check;
}

const struct yaml_node *compose_moved(struct frontend_model *m, const struct yaml_node *root, const char *dir)
{
	static const char *const top[] = {"hf"}, *const files[] = {"files"}, *const map[] = {"map"};
	static const char *const tokenizer[] = {"file",  "vocab",  "merges", "config",      "special",
	                                        "added", "source", "target", "target_vocab"};
	const struct yaml_node *weights = yaml_find(root, "weights"), *tok = yaml_find(root, "tokenizer");
	const struct yaml_node *checks = yaml_find(root, "checks"), *rows = yaml_find(weights, "map");
	root = moved_keys(m, root, top, 1, dir);
	weights = moved_keys(m, weights, files, 1, dir);
	if (rows != NULL && rows->kind == YAML_SCALAR && !yaml_is(rows, "identity"))
		weights = moved_keys(m, weights, map, 1, dir);
	if (weights != NULL)
		root = compose_with(m, root, "weights", weights);
	if (tok != NULL)
		root = compose_with(m, root, "tokenizer",
		                    moved_keys(m, tok, tokenizer, TFMC_COUNT(tokenizer), dir));
	if (checks == NULL || checks->kind != YAML_SEQUENCE)
		return root;
	struct yaml_node *list = ARENA_NEW(&m->arena, struct yaml_node);
	if (list == NULL)
		return NULL;
	*list = *checks;
	list->items = ARENA_ARRAY(&m->arena, const struct yaml_node *, checks->n + 1);
	for (size_t i = 0; list->items != NULL && i < checks->n; i++)
		list->items[i] = moved_check(m, checks->items[i], dir);
	return compose_with(m, root, "checks", list);
}
