/* SPDX-License-Identifier: Apache-2.0 */
/* Edited copies of YAML trees: mappings with changed, added and removed keys, and deep merge. Keys and values are
   shared with the original tree; only the list of pairs is new. */
#include "frontend/syntax/yaml_edit.h"

#include <string.h>

struct yaml_node *yaml_scalar(struct arena *a, struct loc loc, const char *text, bool quoted)
{
	struct yaml_node *n = ARENA_NEW(a, struct yaml_node);
	if (n != NULL)
		*n = (struct yaml_node){
		        .kind = YAML_SCALAR, .loc = loc, .text = text, .len = strlen(text), .quoted = quoted};
	return n;
}

struct yaml_node *yaml_new_map(struct arena *a, struct loc loc, size_t n)
{
	struct yaml_node *map = ARENA_NEW(a, struct yaml_node);
	struct yaml_pair *pairs = ARENA_ARRAY(a, struct yaml_pair, n + 1);
	if (map == NULL || pairs == NULL || arena_failed(a))
		return NULL;
	*map = (struct yaml_node){.kind = YAML_MAPPING, .loc = loc, .pairs = pairs};
	return map;
}

static void push_pair(struct yaml_node *map, const struct yaml_node *key, const struct yaml_node *value)
{
	map->pairs[map->n++] = (struct yaml_pair){key, value};
}

void yaml_put(struct yaml_node *map, const struct yaml_node *key, const struct yaml_node *value)
{
	struct yaml_pair *old = (struct yaml_pair *)(uintptr_t)yaml_find_pair(map, key->text);
	if (old == NULL)
		push_pair(map, key, value);
	else
		*old = (struct yaml_pair){key, value};
}

const struct yaml_node *yaml_without(struct arena *a, const struct yaml_node *map, const char *key)
{
	const struct yaml_pair *removed = yaml_find_pair(map, key);
	struct yaml_node *copy = removed == NULL ? NULL : yaml_new_map(a, map->loc, map->n);
	for (size_t i = 0; copy != NULL && i < map->n; i++) {
		if (&map->pairs[i] != removed)
			push_pair(copy, map->pairs[i].key, map->pairs[i].value);
	}
	return removed == NULL ? map : copy;
}

/* A new key has the location of its value, as it has no text of its own. */
const struct yaml_node *yaml_with(struct arena *a, const struct yaml_node *map, const char *key,
                                  const struct yaml_node *value)
{
	const struct yaml_pair *old = yaml_find_pair(map, key);
	struct yaml_node *copy = yaml_new_map(a, map->loc, map->n + 1);
	if (copy == NULL)
		return NULL;
	for (size_t i = 0; i < map->n; i++)
		push_pair(copy, map->pairs[i].key, &map->pairs[i] == old ? value : map->pairs[i].value);
	if (old == NULL)
		push_pair(copy, yaml_scalar(a, value->loc, key, false), value);
	return copy;
}

static bool is_null(const struct yaml_node *node)
{
	return node->kind == YAML_SCALAR && node->null;
}

/* Keys of the base come first, with their position; a null of `top` deletes them. Keys of `top` alone follow, a null
 * among them in *idle. */
const struct yaml_node *yaml_merge(struct arena *a, const struct yaml_node *base, const struct yaml_node *top,
                                   const struct yaml_pair **idle)
{
	struct yaml_node *map = yaml_new_map(a, top->loc, base->n + top->n);
	if (map == NULL)
		return NULL;
	for (size_t i = 0; i < base->n; i++) {
		const struct yaml_pair *p = &base->pairs[i], *over = yaml_find_pair(top, p->key->text);
		const struct yaml_node *value = over == NULL ? p->value : over->value;
		if (over != NULL && p->value->kind == YAML_MAPPING && value->kind == YAML_MAPPING)
			value = yaml_merge(a, p->value, value, idle);
		if (value == NULL)
			return NULL;
		if (over == NULL || !is_null(value))
			push_pair(map, over == NULL ? p->key : over->key, value);
	}
	for (size_t i = 0; i < top->n; i++) {
		const struct yaml_pair *p = &top->pairs[i];
		if (yaml_find_pair(base, p->key->text) != NULL)
			continue;
		if (is_null(p->value) && *idle == NULL)
			*idle = p;
		push_pair(map, p->key, p->value);
	}
	return map;
}

/* ---- strings ---- */

/* Whether single quotes cannot hold the character: they have no escapes. */
static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Prints in single quotes, doubling those inside; with control characters in double quotes, with escapes. */
void yaml_print_quoted(struct buf *out, const char *text)
{
	bool escapes = false;
	for (const char *p = text; *p != '\0'; p++)
		escapes = escapes || is_control(*p);
	buf_char(out, escapes ? '"' : '\'');
	for (; *text != '\0'; text++) {
		if (is_control(*text))
			buf_printf(out, "\\x%02x", (unsigned)(unsigned char)*text);
		else if (escapes ? *text == '"' || *text == '\\' : *text == '\'')
			buf_printf(out, "%c%c", escapes ? '\\' : '\'', *text);
		else
			buf_char(out, *text);
	}
	buf_char(out, escapes ? '"' : '\'');
}

const char *yaml_quote(struct arena *a, const char *text)
{
	struct buf out;
	buf_init(&out);
	yaml_print_quoted(&out, text);
	const char *quoted = arena_strdup(a, out.data);
	buf_destroy(&out);
	return quoted;
}
