/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hub folders of models that write: what generation_config.json says of ids becomes parameters of the preset,
 * over what config.json says of them, as in the library the folder is made for. How to choose among ids
 * (sampling, beams) stays with the caller and is only repeated in a comment.
 */
#include <string.h>

#include "frontend/files.h"
#include "frontend/folder.h"
#include "frontend/json.h"
#include "frontend/yaml_tree.h"
#include "ir/support/buf.h"

#define FILE_NAME "generation_config.json"

struct generation {
	struct arena *a;
	struct diag_context *cx;
	struct json_source src;
	const struct json_node *root, *config;
	struct buf *params; /* "stop: [1, 2], pad: 0" */
};

static bool refuse(const struct generation *g, const char *key, const char *what)
{
	diag_error(g->cx, LOC_NONE, DIAG_FILE, "'%s' in '%s' %s", key, g->src.name, what);
	return false;
}

static bool is_id(const struct json_node *n)
{
	return n->kind == JSON_NODE_INT && n->i >= 0 && n->i <= INT32_MAX;
}

/* An id or a list of ids. */
static bool are_ids(const struct json_node *n)
{
	bool ok = n->kind == JSON_NODE_ARRAY || is_id(n);
	for (size_t i = 0; ok && n->kind == JSON_NODE_ARRAY && i < n->n; i++)
		ok = is_id(&n->items[i]);
	return ok;
}

static void begin_param(struct generation *g, const char *param)
{
	buf_printf(g->params, "%s%s: [", g->params->len != 0 ? ", " : "", param);
}

static void put_id(struct generation *g, int64_t id)
{
	bool first = g->params->data[g->params->len - 1] == '[';
	buf_printf(g->params, "%s%lld", first ? "" : ", ", (long long)id);
}

static void put_ids(struct generation *g, const struct json_node *ids)
{
	if (ids->kind == JSON_NODE_INT)
		put_id(g, ids->i);
	for (size_t i = 0; ids->kind == JSON_NODE_ARRAY && i < ids->n; i++)
		put_id(g, ids->items[i].i);
}

/* The value of a key that names ids; NULL in *out when there is none. */
static bool find_ids(const struct generation *g, const struct json_node *object, const char *key,
                     const struct json_node **out)
{
	const struct json_node *v = json_find(object, key);
	*out = v == NULL || v->kind == JSON_NODE_NULL ? NULL : v;
	return *out == NULL || are_ids(v) || refuse(g, key, "is no id and no list of ids");
}

static bool take_ids(struct generation *g, const char *key, const char *param)
{
	const struct json_node *ids;
	if (!find_ids(g, g->root, key, &ids))
		return false;
	if (ids == NULL)
		return true;
	begin_param(g, param);
	put_ids(g, ids);
	buf_str(g->params, "]");
	return true;
}

static bool take_pad(struct generation *g)
{
	const struct json_node *pad = json_find(g->root, "pad_token_id");
	if (pad == NULL || pad->kind == JSON_NODE_NULL)
		return true;
	if (pad->kind != JSON_NODE_INT || pad->i < INT32_MIN || pad->i > INT32_MAX)
		return refuse(g, "pad_token_id", "is no id");
	if (pad->i >= 0) /* -1 stands for none */
		buf_printf(g->params, "%spad: %lld", g->params->len != 0 ? ", " : "", (long long)pad->i);
	return true;
}

/* forced_decoder_ids: [[1, id], [2, id], ..]: ids behind the first one; those whose place or id is open end
 * them. */
static bool put_forced_list(struct generation *g, const struct json_node *list)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct json_node *pair = &list->items[i];
		bool is_pair =
		        pair->kind == JSON_NODE_ARRAY && pair->n == 2 && pair->items[0].kind == JSON_NODE_INT;
		if (!is_pair || (pair->items[1].kind != JSON_NODE_NULL && !is_id(&pair->items[1])))
			return refuse(g, "forced_decoder_ids", "is no list of pairs of a position and an id");
		if (pair->items[0].i != (int64_t)i + 1 || pair->items[1].kind == JSON_NODE_NULL)
			return true;
		put_id(g, pair->items[1].i);
	}
	return true;
}

/* What a decoder begins with: its start id (of config.json, when it stands there alone) and ids that are
 * forced behind it. */
static bool take_start(struct generation *g)
{
	const struct json_node *start, *first, *list = json_find(g->root, "forced_decoder_ids");
	if (!find_ids(g, g->root, "decoder_start_token_id", &start) ||
	    (start == NULL && !find_ids(g, g->config, "decoder_start_token_id", &start)) ||
	    !find_ids(g, g->root, "forced_bos_token_id", &first))
		return false;
	bool lists = list != NULL && list->kind != JSON_NODE_NULL;
	if (lists && list->kind != JSON_NODE_ARRAY)
		return refuse(g, "forced_decoder_ids", "is no list");
	if (start == NULL)
		return take_ids(g, "bos_token_id", "start");
	begin_param(g, "start");
	put_ids(g, start);
	if (first != NULL)
		put_ids(g, first);
	if (lists && first == NULL && !put_forced_list(g, list))
		return false;
	buf_str(g->params, "]");
	return true;
}

/* One value of a way to choose, as it stands in the file; others than numbers and bools are left out. */
static void put_choice(struct buf *out, const char *key, const struct json_node *v)
{
	const char *before = out->len != 0 ? ", " : "";
	if (v->kind == JSON_NODE_INT)
		buf_printf(out, "%s%s %lld", before, key, (long long)v->i);
	else if (v->kind == JSON_NODE_REAL)
		buf_printf(out, "%s%s %.6g", before, key, v->f);
	else if (v->kind == JSON_NODE_BOOL)
		buf_printf(out, "%s%s %s", before, key, v->i != 0 ? "true" : "false");
}

/* A comment with the choices the file asks for, "" when it does not. */
static const char *choices(const struct generation *g)
{
	static const char *const keys[] = {
	        "do_sample",      "temperature",          "top_k",     "top_p",
	        "min_p",          "repetition_penalty",   "num_beams", "length_penalty",
	        "early_stopping", "no_repeat_ngram_size", "min_length"};
	struct buf text;
	buf_init(&text);
	for (size_t i = 0; i < TFMC_COUNT(keys); i++) {
		const struct json_node *v = json_find(g->root, keys[i]);
		if (v != NULL)
			put_choice(&text, keys[i], v);
	}
	const char *comment =
	        text.len == 0 ? "" : arena_printf(g->a, "# " FILE_NAME " also says: %s\n", text.data);
	buf_destroy(&text);
	return comment;
}

static const struct json_node *read(struct generation *g, const char *dir, const char *file)
{
	const char *text, *path = file_beneath(g->a, g->cx, dir, file, LOC_NONE);
	size_t len;
	if (path == NULL || file_read(g->a, g->cx, path, YAML_FILE_MAX, LOC_NONE, &text, &len) != TFMC_OK)
		return NULL;
	g->src = (struct json_source){.name = path, .loc = LOC_NONE, .code = DIAG_FILE};
	const struct json_node *root = json_parse(g->a, g->cx, &g->src, text, len);
	if (root != NULL && root->kind != JSON_NODE_OBJECT) {
		diag_error(g->cx, LOC_NONE, DIAG_FILE, "'%s' is no object", path);
		return NULL;
	}
	return root;
}

const char *folder_generation(struct arena *a, struct diag_context *cx, const char *dir)
{
	struct buf params;
	buf_init(&params);
	struct generation g = {.a = a, .cx = cx, .params = &params};
	g.config = read(&g, dir, "config.json");
	g.root = g.config != NULL ? read(&g, dir, FILE_NAME) : NULL;
	bool ok = g.root != NULL && take_start(&g) && take_ids(&g, "eos_token_id", "stop") && take_pad(&g) &&
	          take_ids(&g, "suppress_tokens", "suppress") &&
	          take_ids(&g, "begin_suppress_tokens", "suppress_first");
	const char *text = NULL;
	if (ok && params.len == 0)
		text = choices(&g);
	else if (ok)
		text = arena_printf(a, "%sparams: {%s}\n", choices(&g), params.data);
	buf_destroy(&params);
	return text;
}
