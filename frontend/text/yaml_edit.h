/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees that differ from other ones. A tree is never changed: what differs is
 * copied, every node keeps the place it was written at. NULL: memory ran out.
 */
#ifndef TFMC_FRONTEND_TEXT_YAML_EDIT_H
#define TFMC_FRONTEND_TEXT_YAML_EDIT_H

#include "frontend/text/yaml_tree.h"

struct yaml_node *yaml_scalar(struct arena *a, struct loc loc, const char *text, bool quoted);
/* An empty mapping at a place, with room for n pairs. */
struct yaml_node *yaml_new_map(struct arena *a, struct loc loc, size_t n);
/* Replaces the pair with that key, or adds one; there is room. */
void yaml_put(struct yaml_node *map, const struct yaml_node *key, const struct yaml_node *value);
/* `map` without a key. */
const struct yaml_node *yaml_without(struct arena *a, const struct yaml_node *map, const char *key);
/* `map` with the value of a key, at its place or at the end. */
const struct yaml_node *yaml_with(struct arena *a, const struct yaml_node *map, const char *key,
                                  const struct yaml_node *value);
/*
 * The deep merge of two mappings: mappings merge, anything else replaces, null deletes. Keys of `base` keep
 * their place; the result has the place of `top`. *idle is set to the first null that has nothing to delete; it
 * stays in the result.
 */
const struct yaml_node *yaml_merge(struct arena *a, const struct yaml_node *base, const struct yaml_node *top,
                                   const struct yaml_pair **idle);

#endif
