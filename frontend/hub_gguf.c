/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of a GGUF file as a configuration: what tables of presets are applied to. Numbers, texts and
 * short lists are taken over; nothing is interpreted here.
 */
#include <string.h>

#include "frontend/hub.h"

static struct json_node scalar(struct frontend_model *m, const struct gguf_value *v)
{
	if (gguf_is_whole(v->type))
		return (struct json_node){.kind = JSON_NODE_INT, .i = v->i};
	if (v->type == GGUF_BOOL)
		return (struct json_node){.kind = JSON_NODE_BOOL, .i = v->i};
	if (v->type == GGUF_F32 || v->type == GGUF_F64)
		return (struct json_node){.kind = JSON_NODE_REAL, .f = v->f};
	if (v->type == GGUF_STRING)
		return (struct json_node){.kind = JSON_NODE_STRING,
		                          .text = arena_strndup(&m->arena, v->text, v->len)};
	return (struct json_node){.kind = JSON_NODE_NULL};
}

static bool same_number(const struct json_node *a, const struct json_node *b)
{
	return a->kind == b->kind && a->kind != JSON_NODE_STRING && a->i == b->i && a->f == b->f;
}

static struct json_node node_of(struct frontend_model *m, const struct gguf_value *v)
{
	struct gguf_value element;
	size_t at = 0, n = 0;
	if (v->type != GGUF_ARRAY)
		return scalar(m, v);
	if (v->n > HUB_LIST_MAX)
		return (struct json_node){.kind = JSON_NODE_STRING,
		                          .text = arena_printf(&m->arena, "a list of %zu elements", v->n),
		                          .n = v->n};
	struct json_node *items = ARENA_ARRAY(&m->arena, struct json_node, v->n + 1);
	if (items == NULL || arena_failed(&m->arena))
		return (struct json_node){.kind = JSON_NODE_NULL};
	bool equal = v->n > 0;
	for (; gguf_next(v, &at, &element); n++) {
		items[n] = scalar(m, &element);
		equal = equal && same_number(&items[n], &items[0]);
	}
	return equal ? items[0] : (struct json_node){.kind = JSON_NODE_ARRAY, .n = n, .items = items};
}

const struct json_node *hub_gguf_tree(struct frontend_model *m, const struct gguf *g, const char **type)
{
	const struct gguf_value *architecture = gguf_find(g, "general.architecture");
	struct json_node *root = ARENA_NEW(&m->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(&m->arena, struct json_node, g->n_entries + 1);
	const char **keys = ARENA_ARRAY(&m->arena, const char *, g->n_entries + 1);
	*type = NULL;
	if (root == NULL || items == NULL || keys == NULL || arena_failed(&m->arena))
		return NULL;
	const char *prefix = "";
	if (architecture != NULL && architecture->type == GGUF_STRING) {
		const char *name = arena_strndup(&m->arena, architecture->text, architecture->len);
		prefix = arena_printf(&m->arena, "%s.", name);
		*type = arena_printf(&m->arena, "gguf:%s", name);
	}
	for (size_t i = 0; i < g->n_entries; i++) {
		const char *key = g->entries[i].key;
		bool own = strncmp(key, prefix, strlen(prefix)) == 0;
		keys[i] = own ? key + strlen(prefix) : key;
		items[i] = node_of(m, &g->entries[i].value);
	}
	*root = (struct json_node){.kind = JSON_NODE_OBJECT, .n = g->n_entries, .items = items, .keys = keys};
	return root;
}

const struct json_node *hub_gguf_values(struct frontend_model *m, const struct stored_tensor *t)
{
	double values[HUB_LIST_MAX];
	int64_t n = 1;
	for (int i = 0; i < t->rank; i++) {
		if (t->dims[i] > HUB_LIST_MAX || n * t->dims[i] > HUB_LIST_MAX)
			return NULL;
		n *= t->dims[i];
	}
	struct json_node *list = ARENA_NEW(&m->arena, struct json_node);
	struct json_node *items = ARENA_ARRAY(&m->arena, struct json_node, n + 1);
	if (!t->readable || list == NULL || items == NULL || arena_failed(&m->arena))
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
