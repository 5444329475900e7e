/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of a GGUF file as a configuration for the tables of presets: numbers, strings and short lists,
 * without interpretation.
 */
#include <string.h>

#include "frontend/model/hub.h"

static struct json_node json_scalar(struct model_document *d, const struct gguf_value *v)
{
	if (gguf_is_integer_type(v->type))
		return (struct json_node){.kind = JSON_NODE_INT, .i = v->i};
	if (v->type == GGUF_BOOL)
		return (struct json_node){.kind = JSON_NODE_BOOL, .i = v->i};
	if (v->type == GGUF_F32 || v->type == GGUF_F64)
		return (struct json_node){.kind = JSON_NODE_REAL, .f = v->f};
	if (v->type == GGUF_STRING)
		return (struct json_node){.kind = JSON_NODE_STRING,
		                          .text = arena_strndup(d->arena, v->text, v->len)};
	return (struct json_node){.kind = JSON_NODE_NULL};
}

static bool same_number(const struct json_node *a, const struct json_node *b)
{
	return a->kind == b->kind && a->kind != JSON_NODE_STRING && a->i == b->i && a->f == b->f;
}

static struct json_node json_from_gguf(struct model_document *d, const struct gguf_value *v)
{
	struct gguf_value element;
	size_t at = 0, n = 0;
	if (v->type != GGUF_ARRAY)
		return json_scalar(d, v);
	if (v->n > HUB_LIST_MAX)
		return (struct json_node){.kind = JSON_NODE_STRING,
		                          .text = arena_printf(d->arena, "a list of %zu elements", v->n),
		                          .n = v->n};
	struct json_node *items = ARENA_ARRAY(d->arena, struct json_node, v->n + 1);
	if (items == NULL || arena_failed(d->arena))
		return (struct json_node){.kind = JSON_NODE_NULL};
	bool equal = v->n > 0;
	for (; gguf_next_element(v, &at, &element); n++) {
		items[n] = json_scalar(d, &element);
		equal = equal && same_number(&items[n], &items[0]);
	}
	return equal ? items[0] : (struct json_node){.kind = JSON_NODE_ARRAY, .n = n, .items = items};
}

/* ---- stop ids ---- */

#define EOS_KEY "tokenizer.ggml.eos_token_id"
#define EOT_KEY "tokenizer.ggml.eot_token_id"
#define EOM_KEY "tokenizer.ggml.eom_token_id"

enum end {
#define END(name, text, key) END_##name,
#include "frontend/model/gguf_ends.def"
	N_ENDS
};

static const struct {
	const char *text, *key;
} ends[N_ENDS] = {
#define END(name, text, key) {text, key},
#include "frontend/model/gguf_ends.def"
};

/* List of stop ids. */
struct stops {
	struct json_node *items;
	size_t n, cap;
};

/* Adds a stop id once. */
static bool add_stop(struct model_document *d, struct stops *s, int64_t id)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].i == id)
			return true;
	return id < 0 || id > INT32_MAX ||
	       ARENA_ADDED(d->arena, s, (struct json_node){.kind = JSON_NODE_INT, .i = id});
}

/* Id of the first token with each string of the table, -1: none. */
static void find_ends(const struct gguf *g, int64_t *ids)
{
	const struct gguf_value *tokens = gguf_find(g, "tokenizer.ggml.tokens");
	struct gguf_value v;
	size_t at = 0;
	for (size_t k = 0; k < N_ENDS; k++)
		ids[k] = -1;
	if (tokens == NULL || tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING)
		return;
	for (int64_t id = 0; gguf_next_element(tokens, &at, &v); id++) {
		for (size_t k = 0; v.len > 0 && k < N_ENDS; k++)
			if (ids[k] < 0 && ends[k].text[0] == v.text[0] && strlen(ends[k].text) == v.len &&
			    memcmp(ends[k].text, v.text, v.len) == 0)
				ids[k] = id;
	}
}

static bool add_stops(struct model_document *d, struct stops *s, const struct json_node *v)
{
	bool ok = true;
	if (v != NULL && v->kind == JSON_NODE_INT)
		return add_stop(d, s, v->i);
	for (size_t i = 0; v != NULL && v->kind == JSON_NODE_ARRAY && i < v->n; i++)
		ok = ok && add_stops(d, s, &v->items[i]);
	return ok;
}

/*
 * Stop ids as llama.cpp collects them: by metadata keys, then by strings. Two strings are dropped where
 * others exist: `<|end|>` closes one of several messages where calls and returns end the turn, `</s>` is
 * plain text where `<|tool_response>` is a token.
 */
static bool find_stops(struct model_document *d, const struct gguf *g, const struct json_node *root,
                       struct stops *stops)
{
	static const char *const keys[] = {EOS_KEY,
	                                   EOT_KEY,
	                                   EOM_KEY,
	                                   "tokenizer.ggml.eot_token_ids",
	                                   "tokenizer.ggml.fim_pad_token_id",
	                                   "tokenizer.ggml.fim_rep_token_id",
	                                   "tokenizer.ggml.fim_sep_token_id"};
	int64_t ids[N_ENDS];
	size_t n = 0;
	bool ok = true;
	find_ends(g, ids);
	for (size_t k = 0; k < TFMC_COUNT(keys); k++)
		ok = ok && add_stops(d, stops, json_find(root, keys[k]));
	for (size_t k = 0; k < N_ENDS; k++)
		if (json_find(root, ends[k].key) == NULL)
			ok = ok && add_stop(d, stops, ids[k]);
	bool is_inner = (ids[END_return] >= 0 && ids[END_call] >= 0) ||
	                (ids[END_flush] >= 0 && (ids[END_call] >= 0 || ids[END_calls] >= 0));
	bool is_text = ids[END_tool_response] >= 0;
	for (size_t i = 0; i < stops->n; i++)
		if (!(is_inner && stops->items[i].i == ids[END_end]) &&
		    !(is_text && stops->items[i].i == ids[END_slash_s]))
			stops->items[n++] = stops->items[i];
	stops->n = n;
	return ok;
}

/* ---- the tree ---- */

static bool starts_with(const char *key, const char *space)
{
	return strncmp(key, space, strlen(space)) == 0;
}

const struct json_node *hub_gguf_tree(struct model_document *d, const struct gguf *g, const char **type)
{
	const struct gguf_value *architecture = gguf_find(g, "general.architecture");
	struct json_node *root = ARENA_NEW(d->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(d->arena, struct json_node, g->n_entries + 1);
	const char **keys = ARENA_ARRAY(d->arena, const char *, g->n_entries + 1);
	struct stops stops = {0};
	*type = NULL;
	if (root == NULL || items == NULL || keys == NULL || arena_failed(d->arena))
		return NULL;
	const char *prefix = "";
	if (architecture != NULL && architecture->type == GGUF_STRING) {
		const char *name = arena_strndup(d->arena, architecture->text, architecture->len);
		prefix = arena_printf(d->arena, "%s.", name);
		*type = arena_printf(d->arena, "gguf:%s", name);
	}
	size_t n = 0;
	for (size_t i = 0; i < g->n_entries; i++) {
		const char *key = g->entries[i].key;
		bool is_own_key = starts_with(key, prefix);
		if (!is_own_key && !starts_with(key, "general.") && !starts_with(key, "tokenizer."))
			continue; /* provenance: quantizer, splitting */
		keys[n] = is_own_key ? key + strlen(prefix) : key;
		items[n++] = json_from_gguf(d, &g->entries[i].value);
	}
	*root = (struct json_node){.kind = JSON_NODE_OBJECT, .n = n, .items = items, .keys = keys};
	if (!find_stops(d, g, root, &stops))
		return NULL;
	n = 0; /* one key replaces the three */
	for (size_t i = 0; i < root->n; i++) {
		if (strcmp(keys[i], EOS_KEY) == 0 || strcmp(keys[i], EOT_KEY) == 0 ||
		    strcmp(keys[i], EOM_KEY) == 0)
			continue;
		keys[n] = keys[i];
		items[n++] = items[i];
	}
	keys[n] = EOS_KEY;
	items[n] = (struct json_node){.kind = JSON_NODE_ARRAY, .n = stops.n, .items = stops.items};
	if (stops.n == 1)
		items[n] = stops.items[0];
	root->n = n + (stops.n > 0);
	return root;
}

const struct json_node *hub_gguf_values(struct model_document *d, const struct stored_tensor *t)
{
	double values[HUB_LIST_MAX];
	int64_t n = 1;
	for (int i = 0; i < t->rank; i++) {
		if (t->dims[i] > HUB_LIST_MAX || n * t->dims[i] > HUB_LIST_MAX)
			return NULL;
		n *= t->dims[i];
	}
	struct json_node *list = ARENA_NEW(d->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(d->arena, struct json_node, n + 1);
	if (!t->readable || list == NULL || items == NULL || arena_failed(d->arena))
		return NULL;
	if (t->read != NULL)
		t->read(t->data, 0, n, values);
	else
		weight_read_elements(t->dtype, t->data, 0, n, values);
	for (int64_t i = 0; i < n; i++)
		items[i] = (struct json_node){.kind = JSON_NODE_REAL, .f = values[i]};
	*list = (struct json_node){.kind = JSON_NODE_ARRAY, .n = (size_t)n, .items = items};
	return list;
}
