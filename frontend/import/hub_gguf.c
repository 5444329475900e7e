/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of a GGUF file as a configuration: what tables of presets are applied to. Numbers, texts and
 * short lists are taken over; nothing is interpreted here.
 */
#include <string.h>

#include "frontend/import/hub.h"

static struct json_node scalar(struct model_document *d, const struct gguf_value *v)
{
	if (gguf_is_whole(v->type))
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

static struct json_node node_of(struct model_document *d, const struct gguf_value *v)
{
	struct gguf_value element;
	size_t at = 0, n = 0;
	if (v->type != GGUF_ARRAY)
		return scalar(d, v);
	if (v->n > HUB_LIST_MAX)
		return (struct json_node){.kind = JSON_NODE_STRING,
		                          .text = arena_printf(d->arena, "a list of %zu elements", v->n),
		                          .n = v->n};
	struct json_node *items = ARENA_ARRAY(d->arena, struct json_node, v->n + 1);
	if (items == NULL || arena_failed(d->arena))
		return (struct json_node){.kind = JSON_NODE_NULL};
	bool equal = v->n > 0;
	for (; gguf_next(v, &at, &element); n++) {
		items[n] = scalar(d, &element);
		equal = equal && same_number(&items[n], &items[0]);
	}
	return equal ? items[0] : (struct json_node){.kind = JSON_NODE_ARRAY, .n = n, .items = items};
}

/* Further tokens that end what a model writes, of a turn or of a message, join the one that ends a text. */
static bool join_stops(struct model_document *d, struct json_node *items, const char **keys, size_t n)
{
	static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
	                                   "tokenizer.ggml.eom_token_id"};
	struct json_node *ids = ARENA_ARRAY(d->arena, struct json_node, TFMC_COUNT(ends));
	struct json_node *first = NULL;
	size_t n_ids = 0;
	if (ids == NULL)
		return false;
	for (size_t k = 0; k < TFMC_COUNT(ends); k++) {
		for (size_t i = 0; i < n; i++) {
			if (strcmp(keys[i], ends[k]) != 0 || items[i].kind != JSON_NODE_INT ||
			    items[i].i < 0 || items[i].i > INT32_MAX)
				continue;
			bool known = false;
			for (size_t j = 0; j < n_ids; j++)
				known = known || ids[j].i == items[i].i;
			if (!known)
				ids[n_ids++] = items[i];
			keys[i] = ends[0];
			if (first == NULL)
				first = &items[i];
			else
				items[i] = (struct json_node){.kind = JSON_NODE_NULL};
		}
	}
	if (n_ids > 1)
		*first = (struct json_node){.kind = JSON_NODE_ARRAY, .n = n_ids, .items = ids};
	return true;
}

const struct json_node *hub_gguf_tree(struct model_document *d, const struct gguf *g, const char **type)
{
	const struct gguf_value *architecture = gguf_find(g, "general.architecture");
	struct json_node *root = ARENA_NEW(d->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(d->arena, struct json_node, g->n_entries + 1);
	const char **keys = ARENA_ARRAY(d->arena, const char *, g->n_entries + 1);
	*type = NULL;
	if (root == NULL || items == NULL || keys == NULL || arena_failed(d->arena))
		return NULL;
	const char *prefix = "";
	if (architecture != NULL && architecture->type == GGUF_STRING) {
		const char *name = arena_strndup(d->arena, architecture->text, architecture->len);
		prefix = arena_printf(d->arena, "%s.", name);
		*type = arena_printf(d->arena, "gguf:%s", name);
	}
	for (size_t i = 0; i < g->n_entries; i++) {
		const char *key = g->entries[i].key;
		bool own = strncmp(key, prefix, strlen(prefix)) == 0;
		keys[i] = own ? key + strlen(prefix) : key;
		items[i] = node_of(d, &g->entries[i].value);
	}
	if (!join_stops(d, items, keys, g->n_entries))
		return NULL;
	*root = (struct json_node){.kind = JSON_NODE_OBJECT, .n = g->n_entries, .items = items, .keys = keys};
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
