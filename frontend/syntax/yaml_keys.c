/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a YAML tree: lookup of keys, checks of keys and node kinds, and their messages. Declared in
 * yaml_tree.h.
 */
#include <string.h>

#include "frontend/syntax/yaml_tree.h"
#include "ir/support/strmap.h"
#include "ir/support/utf8.h"

#define CLIP_BYTES 48 /* bytes of a scalar quoted in a message */

/* Keys that matter only for training, anywhere in a model file. */
static const char *const training_keys[] = {
        "dropout", "label_smoothing", "optimizer", "lr", "init", "layerdrop",
};

const struct yaml_pair *yaml_find_pair(const struct yaml_node *map, const char *key)
{
	if (map == NULL || map->kind != YAML_MAPPING)
		return NULL;
	for (size_t i = 0; i < map->n; i++) {
		if (strcmp(map->pairs[i].key->text, key) == 0)
			return &map->pairs[i];
	}
	return NULL;
}

const struct yaml_node *yaml_find(const struct yaml_node *map, const char *key)
{
	const struct yaml_pair *pair = yaml_find_pair(map, key);
	return pair == NULL ? NULL : pair->value;
}

bool yaml_is(const struct yaml_node *scalar, const char *text)
{
	return scalar != NULL && scalar->kind == YAML_SCALAR && strcmp(scalar->text, text) == 0;
}

/* Columns count code points; the text begins after a quote. */
struct loc yaml_loc_at(const struct yaml_node *scalar, size_t offset, size_t len)
{
	struct loc loc = scalar->loc;
	if (scalar->kind != YAML_SCALAR || !scalar->exact)
		return loc;
	if (offset > scalar->len)
		offset = scalar->len;
	if (len > scalar->len - offset)
		len = scalar->len - offset;
	loc.col += (uint32_t)utf8_count(scalar->text, offset) + (scalar->quoted ? 1 : 0);
	loc.len = (uint32_t)utf8_count(scalar->text + offset, len);
	return loc;
}

/* The text in quotes, truncated at a UTF-8 boundary: bytes 10xxxxxx continue a character. */
static const char *truncate_quoted(struct arena *a, const char *text)
{
	size_t n = strlen(text);
	if (n <= CLIP_BYTES)
		return arena_printf(a, "'%s'", text);
	n = CLIP_BYTES;
	while (n > 0 && ((unsigned char)text[n] & 0xC0u) == 0x80u)
		n--;
	return arena_printf(a, "'%.*s...'", (int)n, text);
}

const char *yaml_describe(struct arena *a, const struct yaml_node *node)
{
	switch (node->kind) {
	case YAML_SCALAR: return node->null ? "null" : truncate_quoted(a, node->text);
	case YAML_SEQUENCE: return "a list";
	case YAML_MAPPING: return "a mapping";
	}
	return "";
}

static bool is_one_of(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(text, words[i]) == 0)
			return true;
	}
	return false;
}

void yaml_unknown_key(struct diag_context *cx, const struct yaml_node *key, const char *const *allowed,
                      size_t n, const char *what)
{
	/* Rejected, since a model with them computes something else when it is trained. */
	if (is_one_of(key->text, training_keys, TFMC_COUNT(training_keys))) {
		diag_error(cx, key->loc, DIAG_INFERENCE_ONLY,
		           "'%s' matters only for training; tfmc compiles for inference only, remove it",
		           key->text);
		return;
	}
	struct arena scratch;
	arena_init(&scratch);
	diag_error(cx, key->loc, DIAG_UNKNOWN_KEY, "unknown key '%.60s' in %s%s", key->text, what,
	           did_you_mean_or_known(&scratch, key->text, allowed, n));
	arena_destroy(&scratch);
}

bool yaml_check_keys(struct diag_context *cx, const struct yaml_node *map, const char *const *allowed,
                     size_t n, const char *what)
{
	bool ok = true;
	if (map == NULL || map->kind != YAML_MAPPING)
		return true;
	for (size_t i = 0; i < map->n; i++) {
		if (is_one_of(map->pairs[i].key->text, allowed, n))
			continue;
		yaml_unknown_key(cx, map->pairs[i].key, allowed, n, what);
		ok = false;
	}
	return ok;
}

static const char *kind_name(enum yaml_kind kind)
{
	switch (kind) {
	case YAML_SCALAR: return "a single value";
	case YAML_SEQUENCE: return "a list";
	case YAML_MAPPING: return "a mapping";
	}
	return "";
}

/* A null is reported by its own code and advice, as it usually stands for a value that was forgotten. */
bool yaml_expect(struct diag_context *cx, const struct yaml_node *node, enum yaml_kind kind, const char *what)
{
	if (node->kind == kind && !node->null)
		return true;
	if (node->null) {
		diag_error(cx, node->loc, DIAG_NULL_VALUE,
		           "'%s' wants %s, found null; give a value or remove the key", what,
		           kind_name(kind));
		return false;
	}
	struct arena scratch;
	arena_init(&scratch);
	diag_error(cx, node->loc, DIAG_VALUE_TYPE, "'%s' wants %s, found %s", what, kind_name(kind),
	           yaml_describe(&scratch, node));
	arena_destroy(&scratch);
	return false;
}

struct yaml_list yaml_as_list(struct arena *a, const struct yaml_node *node)
{
	if (node->kind == YAML_SEQUENCE)
		return (struct yaml_list){node->items, node->n};
	const struct yaml_node **one = ARENA_ARRAY(a, const struct yaml_node *, 1);
	if (one == NULL)
		return (struct yaml_list){NULL, 0};
	one[0] = node;
	return (struct yaml_list){one, 1};
}
