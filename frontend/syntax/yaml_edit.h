/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edited copies of YAML trees. Trees are immutable: these functions copy the nodes that differ and share the
 * others. Every node keeps its source location. NULL: no memory. Strings as YAML scalars.
 */
#ifndef TFMC_FRONTEND_SYNTAX_YAML_EDIT_H
#define TFMC_FRONTEND_SYNTAX_YAML_EDIT_H

#include "frontend/syntax/yaml_tree.h"
#include "ir/support/buf.h"

/* A scalar whose text has no position in the source; text is not copied. */
struct yaml_node *yaml_scalar(struct arena *a, struct loc loc, const char *text, bool quoted);
/* An empty mapping with location loc and capacity for n pairs. */
struct yaml_node *yaml_new_map(struct arena *a, struct loc loc, size_t n);
/* Replaces the pair with this key or appends one; the capacity must suffice. */
void yaml_put(struct yaml_node *map, const struct yaml_node *key, const struct yaml_node *value);
/* A copy of `map` without a key; `map` itself if it does not have the key. */
const struct yaml_node *yaml_without(struct arena *a, const struct yaml_node *map, const char *key);
/* A copy of `map` in which a key has this value, at its old position or at the end. */
const struct yaml_node *yaml_with(struct arena *a, const struct yaml_node *map, const char *key,
                                  const struct yaml_node *value);
/*
 * Deep merge: nested mappings are merged, other values of `top` replace those of `base`, null deletes a key.
 * Keys of `base` keep their position; the result has the location of `top`. *idle is set to the first null of a key
 * that `base` lacks, in mappings that are merged; that pair stays in the result, for a caller that reports it later.
 */
const struct yaml_node *yaml_merge(struct arena *a, const struct yaml_node *base, const struct yaml_node *top,
                                   const struct yaml_pair **idle);

/* Appends a string as a YAML scalar in single quotes, or in double quotes if it has control characters. */
void yaml_print_quoted(struct buf *out, const char *text);
/* The same, in `a`. */
const char *yaml_quote(struct arena *a, const char *text);

#endif
