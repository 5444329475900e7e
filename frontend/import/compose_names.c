/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of other folders: the names of files in them as seen from the model.
 */
#include <string.h>

#include "frontend/import/compose.h"
#include "frontend/text/files.h"
#include "frontend/text/yaml_edit.h"

static const struct yaml_node *moved_name(struct arena *a, const struct yaml_node *node, const char *dir)
{
	if (node == NULL || node->kind != YAML_SCALAR || node->null)
		return node;
	struct yaml_node *copy = ARENA_NEW(a, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->text = file_join(a, dir, node->text);
	copy->len = strlen(copy->text);
	copy->exact = false;
	return copy;
}

static const struct yaml_node *moved_list(struct arena *a, const struct yaml_node *node, const char *dir)
{
	if (node == NULL || node->kind != YAML_SEQUENCE)
		return moved_name(a, node, dir);
	struct yaml_node *copy = ARENA_NEW(a, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->items = ARENA_ARRAY(a, const struct yaml_node *, node->n + 1);
	for (size_t i = 0; copy->items != NULL && i < node->n; i++)
		copy->items[i] = moved_name(a, node->items[i], dir);
	return copy;
}

/* Some keys of a mapping hold names. */
static const struct yaml_node *moved_keys(struct arena *a, const struct yaml_node *map,
                                          const char *const *keys, size_t n, const char *dir)
{
	for (size_t i = 0; map != NULL && map->kind == YAML_MAPPING && i < n; i++) {
		const struct yaml_node *value = yaml_find(map, keys[i]);
		if (value != NULL)
			map = yaml_with(a, map, keys[i], moved_list(a, value, dir));
	}
	return map;
}

static const struct yaml_node *moved_check(struct arena *a, const struct yaml_node *check, const char *dir)
{
	static const char *const file[] = {"file"}, *const parts[] = {"with", "expect"};
	check = moved_keys(a, check, file, 1, dir);
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		const struct yaml_node *part = yaml_find(check, parts[i]);
		if (yaml_find(part, "file") != NULL)
			check = yaml_with(a, check, parts[i], moved_keys(a, part, file, 1, dir));
	}
	return check;
}

const struct yaml_node *compose_moved(struct arena *a, const struct yaml_node *root, const char *dir)
{
	static const char *const top[] = {"hf"}, *const files[] = {"files"}, *const map[] = {"map"},
	                         *const profile[] = {"profile"};
	static const char *const tokenizer[] = {"file",  "vocab",  "merges", "config",      "special",
	                                        "added", "source", "target", "target_vocab"};
	const struct yaml_node *weights = yaml_find(root, "weights"), *tok = yaml_find(root, "tokenizer");
	const struct yaml_node *checks = yaml_find(root, "checks"), *rows = yaml_find(weights, "map");
	const struct yaml_node *quantize = yaml_find(root, "quantize");
	root = moved_keys(a, root, top, 1, dir);
	if (quantize != NULL)
		root = yaml_with(a, root, "quantize", moved_keys(a, quantize, profile, 1, dir));
	weights = moved_keys(a, weights, files, 1, dir);
	if (rows != NULL && rows->kind == YAML_SCALAR && !yaml_is(rows, "identity"))
		weights = moved_keys(a, weights, map, 1, dir);
	if (weights != NULL)
		root = yaml_with(a, root, "weights", weights);
	if (tok != NULL)
		root = yaml_with(a, root, "tokenizer",
		                 moved_keys(a, tok, tokenizer, TFMC_COUNT(tokenizer), dir));
	if (checks == NULL || checks->kind != YAML_SEQUENCE)
		return root;
	struct yaml_node *list = ARENA_NEW(a, struct yaml_node);
	if (list == NULL)
		return NULL;
	*list = *checks;
	list->items = ARENA_ARRAY(a, const struct yaml_node *, checks->n + 1);
	for (size_t i = 0; list->items != NULL && i < checks->n; i++)
		list->items[i] = moved_check(a, checks->items[i], dir);
	return yaml_with(a, root, "checks", list);
}
