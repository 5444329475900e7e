/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub configuration as a JSON tree, from config.json or GGUF metadata, and its mapping to the parameters of a preset.
 *
 * Applies the table `hub` of a preset to a hub configuration (config.json, or the metadata of a GGUF file):
 *
 *   hub:
 *     keys: {hidden_size: d, rope_scaling.factor: factor}  key -> param; a dot enters a nested object
 *     same: {pretraining_tp: 1}                      the only values that the preset computes
 *     count: {id2label: classes}                     number of entries of an object -> param
 *     runs: {attention_types: types}                 [[[a, b], 2], ...] -> param: the list a, b, a, b,
 *     words: {layer_types: [full_attention]}         accepted strings of a value or a list
 *     within: [text_config]                          objects whose keys `same` and `ignore` also match without prefix
 *     given: {rope: {kind: default}}                 an existing object -> params that differ from its absence
 *     nulls: {sliding_window: 0}                     value for null where it differs from absence
 *     ignore: {name: [use_cache, "*dropout"]}        keys that do not change the computation; named lists add up
 *                                                    along presets. The lists of a model file and --ignore-key
 *                                                    come first: such a key counts as absent
 *     stored: {output.weight: untied}                GGUF: whether this tensor exists -> param; with one `*`: the
 *                                                    list of the integers in its place
 *     rows: {token_embd.weight: vocab}               GGUF: size of the outermost axis -> param
 *     values: {rope_freqs.weight: factors}           GGUF: the elements as a list -> param
 *
 * `quantization_config` is mapped to a value of `weights.packed` instead: a key in no rule may change the meaning of
 * the weights and is rejected by name.
 *
 * Any other null counts as absent. Any other key is an error: nothing is guessed.
 *
 * Functions return false after a diagnostic, or without memory; checking continues, so that one run reports every key.
 */
#include "frontend/model/hub.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/model/compose.h"
#include "frontend/model/folder.h"
#include "frontend/syntax/expr.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"
#include "frontend/syntax/yaml_edit.h"
#include "frontend/weights/gguf.h"
#include "ir/support/glob.h"
#include "ir/support/strmap.h"

/* A hub configuration. */
struct hub_config {
	const struct json_node *root;
	const char *name; /* name in messages */
	const char *type; /* `model_type`, "gguf:ARCHITECTURE", or NULL */
	struct loc loc;   /* location of the reference */
	const struct gguf *gguf;
	/* JSON: its text, to locate keys */
	const char *text;
	size_t len;
	uint32_t source; /* 0: none */
};

/* ---- GGUF metadata as a tree ---- */

#define HUB_LIST_MAX 4096 /* elements; longer lists are vocabularies, which no preset reads */

/* A metadata value that is not an array, as a JSON node. */
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

/* Whether two scalars that are not strings are equal. */
static bool same_number(const struct json_node *a, const struct json_node *b)
{
	return a->kind == b->kind && a->kind != JSON_NODE_STRING && a->i == b->i && a->f == b->f;
}

/* A metadata value as a JSON node. A list of equal numbers is one number, a value of all layers; a list longer than
 * HUB_LIST_MAX is a string with its length, which no preset reads (n keeps the length for `count`). */
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

/* Sets ids[N_ENDS] to the first token with each string of the table; -1: none. One pass over the vocabulary, in which
 * the first character is compared before the length. */
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

/* Adds an id, or all ids of a list; NULL and other values add nothing. False: no memory. */
static bool add_stops(struct model_document *d, struct stops *s, const struct json_node *v)
{
	bool ok = true;
	if (v != NULL && v->kind == JSON_NODE_INT)
		return add_stop(d, s, v->i);
	for (size_t i = 0; v != NULL && v->kind == JSON_NODE_ARRAY && i < v->n; i++)
		ok = ok && add_stops(d, s, &v->items[i]);
	return ok;
}

/* Collects stop ids as llama.cpp does: by metadata keys, then by strings, unless metadata have the string's key
 * (gguf_ends.def). Drops two that end no turn: `<|end|>`, which closes one of several messages, where return and call,
 * or flush and call or calls, are tokens; `</s>`, plain text, where `<|tool_response>` is one. */
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

/* The metadata of a GGUF file as a tree: keys without the prefix of the architecture, values of json_from_gguf(). The
 * three keys of stop ids become one, the list of find_stops(), as presets have one key for it. NULL after a
 * diagnostic. */
static const struct json_node *hub_gguf_tree(struct model_document *d, const struct gguf *g,
                                             const char **type)
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
	n = 0;
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

/* Returns the elements of a stored tensor as a list; NULL: not readable, more than HUB_LIST_MAX, or no memory. */
static const struct json_node *hub_gguf_values(struct model_document *d, const struct stored_tensor *t)
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

/* ---- reading ---- */

#define RUNS_MAX 4096 /* length of a list made by `runs` */

/* Lists of the table, the configuration, and the params so far. */
struct hub {
	struct model_document *d;
	const struct hub_config *c;
	const struct yaml_node *keys, *same, *count, *runs, *words, *within, *nulls, *ignore;
	const struct yaml_node *params;
	const struct yaml_node *given;
	const struct yaml_node
	        *extra_ignored; /* `ignore` lists of the model file and the command line, or NULL */
	struct {
		const char **items;
		size_t n, cap;
	} unknown_keys;             /* keys in no list */
	struct loc here;            /* location of the current key, for its values */
	struct strmap first_values; /* param -> value of the first key for it, as a string */
};

/* Reads config.json. Its text becomes a source, so that messages point at keys. False after a diagnostic. */
static bool read_json(struct model_document *d, const char *path, struct hub_config *c)
{
	const struct parsed_file *file;
	if (parsed_json(&d->parsed, path, c->loc, false, &file) != TFMC_OK)
		return false;
	c->root = file->root;
	c->text = file->text;
	c->len = file->len;
	c->source = diag_add_source(d->cx, path, c->text, c->len);
	if (c->root->kind != JSON_NODE_OBJECT) {
		diag_error(d->cx, c->loc, DIAG_FILE, "'%s' holds no JSON object", c->name);
		return false;
	}
	const struct json_node *type = json_find(c->root, "model_type");
	c->type = type != NULL && type->kind == JSON_NODE_STRING ? type->text : NULL;
	return true;
}

/* Appends the tensors of another part of a split file, since the table asks which are stored; metadata are those of
 * the first part. False after a diagnostic. */
static bool append_part(struct model_document *d, const char *path, const struct hub_config *c,
                        struct gguf *g)
{
	const struct parsed_file *part;
	if (parsed_gguf(&d->parsed, path, c->loc, &part) != TFMC_OK)
		return false;
	size_t n = g->tensors.n + part->gguf.tensors.n;
	struct stored_tensor *all = ARENA_ARRAY(d->arena, struct stored_tensor, n + 1);
	if (all == NULL || arena_failed(d->arena))
		return false;
	for (size_t i = 0; i < n; i++)
		all[i] = i < g->tensors.n ? g->tensors.items[i] : part->gguf.tensors.items[i - g->tensors.n];
	g->tensors = (struct stored_tensors){all, n};
	return true;
}

/* Reads the metadata of a GGUF file, and the tensors of all parts of a split file. False after a diagnostic. */
static bool read_gguf(struct model_document *d, const char *path, struct hub_config *c)
{
	const struct parsed_file *file;
	struct gguf *g = ARENA_NEW(d->arena, struct gguf);
	if (g == NULL || parsed_gguf(&d->parsed, path, c->loc, &file) != TFMC_OK)
		return false;
	*g = file->gguf;
	for (int i = 2; i <= gguf_part_count(path); i++) {
		const char *part = gguf_part_name(d->arena, path, i);
		document_record_file(d, part);
		if (!append_part(d, part, c, g))
			return false;
	}
	c->gguf = g;
	c->root = hub_gguf_tree(d, g, &c->type);
	return c->root != NULL;
}

struct loc hub_key_loc(const struct hub_config *c, const char *key)
{
	return json_key_loc(c->text, c->len, c->source, key, c->loc);
}

/* The file is recorded as read before it is opened, so that no output overwrites it. Its first bytes tell GGUF from
 * JSON. */
const struct hub_config *hub_read(struct model_document *d, const struct yaml_node *file)
{
	struct hub_config *c = ARENA_NEW(d->arena, struct hub_config);
	if (c == NULL || !yaml_expect(d->cx, file, YAML_SCALAR, "hf"))
		return NULL;
	const char *path = file_path_any(d->arena, d->cx, d->dir, file->text, file->loc);
	if (path == NULL)
		return NULL;
	document_record_file(d, path);
	d->hub_path = path;
	*c = (struct hub_config){.name = file->text, .loc = file->loc};
	bool ok = file_begins_with(d->cx, path, "GGUF", 4) ? read_gguf(d, path, c) : read_json(d, path, c);
	return ok ? c : NULL;
}

const char *hub_type(const struct hub_config *c)
{
	return c->type;
}

bool hub_is_gguf(const struct hub_config *c)
{
	return c->gguf != NULL;
}

const char *hub_architecture(const struct hub_config *c)
{
	const struct json_node *list = json_find(c->root, "architectures");
	bool is_list = list != NULL && list->kind == JSON_NODE_ARRAY && list->n > 0;
	return is_list && list->items[0].kind == JSON_NODE_STRING ? list->items[0].text : NULL;
}

/* ---- values ---- */

/* A JSON value as a string, as YAML and messages show it. */
static const char *scalar_string(struct hub *h, const struct json_node *v)
{
	struct buf t;
	buf_init(&t);
	switch (v->kind) {
	case JSON_NODE_NULL: buf_str(&t, "null"); break;
	case JSON_NODE_BOOL: buf_str(&t, v->i ? "true" : "false"); break;
	case JSON_NODE_INT: buf_printf(&t, "%lld", (long long)v->i); break;
	case JSON_NODE_REAL: value_print_float(&t, v->f); break;
	case JSON_NODE_STRING: buf_str(&t, v->text); break;
	case JSON_NODE_ARRAY: buf_str(&t, "a list"); break;
	case JSON_NODE_OBJECT: buf_str(&t, "an object"); break;
	}
	const char *text = arena_strdup(h->d->arena, t.data);
	buf_destroy(&t);
	return text;
}

/* A JSON value as a YAML node; loc: that of its key. NULL: no memory. */
static const struct yaml_node *yaml_from_json(struct hub *h, const struct json_node *v, struct loc loc)
{
	if (v->kind != JSON_NODE_ARRAY)
		return yaml_scalar(h->d->arena, loc, scalar_string(h, v), v->kind == JSON_NODE_STRING);
	struct yaml_node *list = ARENA_NEW(h->d->arena, struct yaml_node);
	if (list == NULL)
		return NULL;
	*list = (struct yaml_node){.kind = YAML_SEQUENCE, .loc = loc, .n = v->n};
	list->items = ARENA_ARRAY(h->d->arena, const struct yaml_node *, v->n + 1);
	for (size_t i = 0; list->items != NULL && i < v->n; i++)
		list->items[i] = yaml_from_json(h, &v->items[i], loc);
	return list;
}

/* ---- keys ---- */

/* The key without the name of an object in `within`, or NULL. */
static const char *key_within(const struct hub *h, const char *key)
{
	for (size_t i = 0; h->within != NULL && h->within->kind == YAML_SEQUENCE && i < h->within->n; i++) {
		const struct yaml_node *object = h->within->items[i];
		size_t len = object->kind == YAML_SCALAR ? strlen(object->text) : 0;
		if (len > 0 && strncmp(key, object->text, len) == 0 && key[len] == '.')
			return key + len + 1;
	}
	return NULL;
}

/* True: a pattern of any of the named lists matches the key. */
static bool is_listed(const struct yaml_node *lists, const char *key)
{
	for (size_t i = 0; lists != NULL && lists->kind == YAML_MAPPING && i < lists->n; i++) {
		const struct yaml_node *list = lists->pairs[i].value;
		for (size_t k = 0; list->kind == YAML_SEQUENCE && k < list->n; k++) {
			if (list->items[k]->kind == YAML_SCALAR && glob_match(list->items[k]->text, key))
				return true;
		}
	}
	return false;
}

/* False after a diagnostic: a string in `v`, or in its lists, is none of `words`. Other values are checked where the
 * param is used. */
static bool check_words(struct hub *h, const char *key, const struct yaml_node *words,
                        const struct json_node *v)
{
	struct yaml_list list = yaml_as_list(h->d->arena, words);
	bool found = false;
	if (v->kind == JSON_NODE_ARRAY) {
		for (size_t i = 0; i < v->n; i++) {
			if (!check_words(h, key, words, &v->items[i]))
				return false;
		}
		return true;
	}
	if (v->kind != JSON_NODE_STRING)
		return true;
	for (size_t i = 0; i < list.n; i++)
		found = found ||
		        (list.items[i]->kind == YAML_SCALAR && strcmp(list.items[i]->text, v->text) == 0);
	if (!found)
		diag_error(h->d->cx, hub_key_loc(h->c, key), DIAG_UNSUPPORTED,
		           "not supported yet: '%s' holds '%s' in %s", key, v->text, h->c->name);
	return found;
}

static bool is_ignored(const struct hub *h, const char *key)
{
	const char *inner = key_within(h, key);
	return is_listed(h->ignore, key) || (inner != NULL && is_listed(h->ignore, inner));
}

/* Sets a param to a JSON value, located at the current key (h->here). False: no memory, or the table names no param. */
static bool set_param(struct hub *h, const struct yaml_node *param, const struct json_node *v)
{
	const struct yaml_node *value = yaml_from_json(h, v, h->here);
	if (value == NULL || param->kind != YAML_SCALAR)
		return false;
	h->params = yaml_with(h->d->arena, h->params, param->text, value);
	return h->params != NULL;
}

/* Whether a param is a number by its default `def` (NULL: the preset has no such param), so that its values must be
 * numbers. */
static bool is_number(const struct yaml_node *def)
{
	char *end;
	if (def == NULL || def->kind != YAML_SCALAR || def->quoted || def->len == 0)
		return false;
	(void)strtod(def->text, &end);
	return *end == '\0' && strchr("0123456789-.", def->text[0]) != NULL;
}

/* Whether two strings are equal, or equal numbers (1, 1.0). */
static bool same_value(const char *a, const char *b)
{
	char *end_a, *end_b;
	if (strcmp(a, b) == 0)
		return true;
	double x = strtod(a, &end_a), y = strtod(b, &end_b);
	return x == y && end_a != a && *end_a == '\0' && end_b != b && *end_b == '\0';
}

/* Checks that two keys for one param agree: the file does not say which one counts. Values are compared as they are
 * printed. */
static bool check_agreement(struct hub *h, const char *param, const char *key, const struct json_node *v)
{
	const char *now = scalar_string(h, v), *before = strmap_get(&h->first_values, param);
	if (before == NULL)
		strmap_set(&h->first_values, param, (void *)(uintptr_t)now);
	if (before == NULL || same_value(before, now))
		return true;
	diag_error(h->d->cx, hub_key_loc(h->c, key), DIAG_UNSUPPORTED,
	           "not supported yet: '%s' is %s in %s, where another key for the same thing says %s", key,
	           now, h->c->name, before);
	return false;
}

/* Sets a param from a key. A string where the param is a number is rejected here, with the location of the
 * key. */
static bool set_param_from_key(struct hub *h, const struct yaml_node *param, const char *key,
                               const struct json_node *v)
{
	if (v->kind != JSON_NODE_STRING || param->kind != YAML_SCALAR ||
	    !is_number(yaml_find(h->params, param->text)))
		return set_param(h, param, v);
	diag_error(h->d->cx, hub_key_loc(h->c, key), DIAG_VALUE_TYPE,
	           "'%s' wants a number, found the text \"%.60s\"", key, v->text);
	return false;
}

/* Expands [[names, n], ...] into list[]: each group of names n times. `list` NULL: only counts, for its size.
 * SIZE_MAX: malformed, or more than RUNS_MAX. */
static size_t expand_runs(const struct json_node *v, struct json_node *list)
{
	size_t n = 0;
	for (size_t i = 0; v->kind == JSON_NODE_ARRAY && i < v->n; i++) {
		const struct json_node *group = &v->items[i];
		const struct json_node *names = group->items;
		if (group->kind != JSON_NODE_ARRAY || group->n != 2 || names[0].kind != JSON_NODE_ARRAY ||
		    names[1].kind != JSON_NODE_INT || names[1].i < 0 || names[1].i > RUNS_MAX ||
		    names[0].n > RUNS_MAX || n + names[0].n * (size_t)names[1].i > RUNS_MAX)
			return SIZE_MAX;
		for (size_t k = 0; k < names[0].n * (size_t)names[1].i; k++, n++) {
			if (list != NULL)
				list[n] = names[0].items[k % names[0].n];
		}
	}
	return v->kind == JSON_NODE_ARRAY ? n : SIZE_MAX;
}

/* Sets a param from a key of `runs`. False after a diagnostic. */
static bool set_param_from_runs(struct hub *h, const struct yaml_node *param, const char *key,
                                const struct json_node *v)
{
	struct json_node list = {.kind = JSON_NODE_ARRAY, .n = expand_runs(v, NULL)};
	if (list.n == SIZE_MAX) {
		diag_error(h->d->cx, hub_key_loc(h->c, key), DIAG_VALUE_TYPE,
		           "'%s' in %s is not a list of [names, count] pairs", key, h->c->name);
		return false;
	}
	struct json_node *items = ARENA_ARRAY(h->d->arena, struct json_node, list.n + 1);
	if (items == NULL)
		return false;
	expand_runs(v, items);
	list.items = items;
	return set_param(h, param, &list);
}

/* Checks that a value is one of those in `same`. */
static bool check_value(struct hub *h, const char *key, const struct yaml_node *expected,
                        const struct json_node *v)
{
	struct yaml_list list = yaml_as_list(h->d->arena, expected);
	const char *found = scalar_string(h, v);
	for (size_t i = 0; i < list.n; i++) {
		if (list.items[i]->kind == YAML_SCALAR && same_value(list.items[i]->text, found))
			return true;
	}
	diag_error(h->d->cx, hub_key_loc(h->c, key), DIAG_UNSUPPORTED, "not supported yet: '%s' is %s in %s",
	           key, found, h->c->name);
	return false;
}

/* Applies one key of the configuration by the first list of the table that has it: ignored by the user, null, words
 * (a check that goes on), keys, runs, count, ignore, same; an object that no list has is entered. Any other key is
 * unknown. False after a diagnostic. */
static bool apply_key(struct hub *h, const char *key, const struct json_node *v)
{
	const struct yaml_node *param = yaml_find(h->keys, key), *expected = yaml_find(h->same, key);
	const struct yaml_node *counted = yaml_find(h->count, key), *runs = yaml_find(h->runs, key);
	const struct yaml_node *words = yaml_find(h->words, key);
	bool ok = true;
	if (is_listed(h->extra_ignored, key))
		return true;
	if (v->kind == JSON_NODE_NULL) {
		const struct yaml_node *value = yaml_find(h->nulls, key);
		if (param != NULL && value != NULL)
			h->params = yaml_with(h->d->arena, h->params, param->text, value);
		return h->params != NULL;
	}
	if (words != NULL && !check_words(h, key, words, v))
		return false;
	if (param != NULL || runs != NULL || counted != NULL)
		h->here = hub_key_loc(h->c, key);
	if (param != NULL)
		return (param->kind != YAML_SCALAR || check_agreement(h, param->text, key, v)) &&
		       set_param_from_key(h, param, key, v);
	if (runs != NULL)
		return set_param_from_runs(h, runs, key, v);
	if (counted != NULL) {
		const struct json_node n = {.kind = JSON_NODE_INT, .i = (int64_t)v->n};
		return set_param(h, counted, &n);
	}
	if (is_ignored(h, key))
		return true;
	if (expected == NULL && key_within(h, key) != NULL)
		expected = yaml_find(h->same, key_within(h, key));
	if (expected != NULL)
		return check_value(h, key, expected, v);
	if (v->kind == JSON_NODE_OBJECT) {
		const struct yaml_node *given = yaml_find(h->given, key);
		for (size_t i = 0; given != NULL && given->kind == YAML_MAPPING && i < given->n; i++)
			h->params = yaml_with(h->d->arena, h->params, given->pairs[i].key->text,
			                      given->pairs[i].value);
		for (size_t i = 0; i < v->n && !diag_is_full(h->d->cx); i++)
			ok = apply_key(h, arena_printf(h->d->arena, "%s.%s", key, v->keys[i]),
			               &v->items[i]) &&
			     ok;
		return ok;
	}
	(void)ARENA_ADDED(h->d->arena, &h->unknown_keys, key);
	diag_error(
	        h->d->cx, hub_key_loc(h->c, key), DIAG_UNSUPPORTED,
	        "not supported yet: '%s' (%s) in %s is unknown to the preset and may change the computation",
	        key, scalar_string(h, v), h->c->name);
	return false;
}

/* ---- tensors of a GGUF file ---- */

static const struct stored_tensor *find_tensor(const struct gguf *g, const char *name)
{
	for (size_t i = 0; i < g->tensors.n; i++) {
		if (strcmp(g->tensors.items[i].name, name) == 0)
			return &g->tensors.items[i];
	}
	return NULL;
}

/* Returns the integer that stands for the star of the pattern in a name; -1: the name does not match. */
static int64_t index_at_star(const char *pattern, const char *star, const char *name)
{
	size_t before = (size_t)(star - pattern), after = strlen(star + 1), n = strlen(name);
	int64_t index = 0;
	if (n <= before + after || strncmp(pattern, name, before) != 0 ||
	    strcmp(name + n - after, star + 1) != 0)
		return -1;
	for (size_t i = before; i < n - after; i++) {
		if (name[i] < '0' || name[i] > '9' || index > INT32_MAX / 10)
			return -1;
		index = 10 * index + (name[i] - '0');
	}
	return index;
}

/* Sets a param to the list of integers that stand for the star in names of stored tensors, such as layers. */
static bool set_param_from_indices(struct hub *h, const struct yaml_node *param, const char *pattern,
                                   const char *star)
{
	const struct stored_tensors *all = &h->c->gguf->tensors;
	struct json_node *items = ARENA_ARRAY(h->d->arena, struct json_node, all->n + 1);
	struct json_node list = {.kind = JSON_NODE_ARRAY, .items = items};
	if (items == NULL || arena_failed(h->d->arena))
		return false;
	for (size_t i = 0; i < all->n; i++) {
		int64_t index = index_at_star(pattern, star, all->items[i].name);
		if (index >= 0)
			items[list.n++] = (struct json_node){.kind = JSON_NODE_INT, .i = index};
	}
	return set_param(h, param, &list);
}

/* Sets params from the tensors of a GGUF file that the table names: whether they are stored, their rows, their
 * values. An absent tensor leaves the param at its default. */
static bool set_params_from_tensors(struct hub *h, const struct yaml_node *table)
{
	const struct yaml_node *stored = yaml_find(table, "stored"), *rows = yaml_find(table, "rows"),
	                       *values = yaml_find(table, "values");
	bool ok = true;
	for (size_t i = 0; ok && stored != NULL && stored->kind == YAML_MAPPING && i < stored->n; i++) {
		const char *name = stored->pairs[i].key->text, *star = strchr(name, '*');
		const struct json_node is_stored = {.kind = JSON_NODE_BOOL,
		                                    .i = find_tensor(h->c->gguf, name) != NULL};
		ok = star != NULL ? set_param_from_indices(h, stored->pairs[i].value, name, star)
		                  : set_param(h, stored->pairs[i].value, &is_stored);
	}
	for (size_t i = 0; ok && rows != NULL && rows->kind == YAML_MAPPING && i < rows->n; i++) {
		const struct stored_tensor *t = find_tensor(h->c->gguf, rows->pairs[i].key->text);
		if (t == NULL || t->rank == 0)
			continue;
		ok = set_param(h, rows->pairs[i].value,
		               &(struct json_node){.kind = JSON_NODE_INT, .i = t->dims[0]});
	}
	for (size_t i = 0; ok && values != NULL && values->kind == YAML_MAPPING && i < values->n; i++) {
		const struct stored_tensor *t = find_tensor(h->c->gguf, values->pairs[i].key->text);
		const struct json_node *list = t == NULL ? NULL : hub_gguf_values(h->d, t);
		if (list != NULL)
			ok = set_param(h, values->pairs[i].value, list);
		else if (t != NULL) {
			diag_error(h->d->cx, h->c->loc, DIAG_UNSUPPORTED,
			           "not supported yet: the tensor '%s' (%s) in %s as a list of numbers",
			           t->name, t->type_name, h->c->name);
			ok = false;
		}
	}
	return ok;
}

/* ---- ignored keys ---- */

/* Notes how unknown keys can be ignored: as options, and in a model file. GGUF files have no text to point into: the
 * note is at the reference. */
static void note_unknown(const struct hub *h)
{
	struct buf options, list;
	buf_init(&options);
	buf_init(&list);
	for (size_t i = 0; i < h->unknown_keys.n; i++) {
		buf_printf(&options, " --ignore-key=%s", h->unknown_keys.items[i]);
		buf_printf(&list, "%s\"%s\"", i == 0 ? "" : ", ", h->unknown_keys.items[i]);
	}
	diag_note(
	        h->d->cx, h->c->source != 0 ? LOC_NONE : h->c->loc,
	        "where they do not change the computation:%s, or in a model file hub: {ignore: {mine: [%s]}}",
	        options.data, list.data);
	buf_destroy(&options);
	buf_destroy(&list);
}

/* True if the pattern matches a key of the object or of an object nested in it; `before` is the path to the object. */
static bool has_key(struct arena *a, const struct json_node *object, const char *before, const char *pattern)
{
	for (size_t i = 0; object->kind == JSON_NODE_OBJECT && i < object->n; i++) {
		const char *key = arena_printf(a, "%s%s", before, object->keys[i]);
		if (glob_match(pattern, key) ||
		    has_key(a, &object->items[i], arena_printf(a, "%s.", key), pattern))
			return true;
	}
	return false;
}

/* Checks that each name of --ignore-key matches a key, as a misspelled one would ignore nothing. False after a
 * diagnostic. */
static bool check_ignored_options(struct model_document *d, const struct hub_config *c)
{
	bool ok = true;
	for (size_t i = 0; i < d->n_ignored; i++) {
		if (has_key(d->arena, c->root, "", d->ignored[i]))
			continue;
		diag_error(d->cx, LOC_NONE, DIAG_OPTION, "--ignore-key: no key of %s is called '%s'", c->name,
		           d->ignored[i]);
		ok = false;
	}
	return ok;
}

/* The names of --ignore-key become one more list, called "command line"; is_listed() matches all lists alike. */
const struct yaml_node *hub_ignored_lists(struct model_document *d, const struct yaml_node *own,
                                          struct loc loc)
{
	const struct yaml_node *lists = yaml_find(own, "ignore");
	struct yaml_node *list = ARENA_NEW(d->arena, struct yaml_node);
	if (d->n_ignored == 0 || list == NULL)
		return lists;
	*list = (struct yaml_node){.kind = YAML_SEQUENCE, .loc = loc, .n = d->n_ignored};
	list->items = ARENA_ARRAY(d->arena, const struct yaml_node *, d->n_ignored);
	for (size_t i = 0; list->items != NULL && i < d->n_ignored; i++)
		list->items[i] = yaml_scalar(d->arena, loc, d->ignored[i], true);
	if (lists == NULL || lists->kind != YAML_MAPPING)
		lists = yaml_new_map(d->arena, loc, 0);
	return yaml_with(d->arena, lists, "command line", list);
}

/* model_type has chosen the preset, and hub_weight_packing() reads quantization_config. Tensors come last: they win
 * over metadata. */
const struct yaml_node *hub_apply(struct model_document *d, const struct hub_config *c,
                                  const struct yaml_node *table, const struct yaml_node *extra_ignored,
                                  const struct yaml_node *params)
{
	struct hub h = {.d = d,
	                .c = c,
	                .keys = yaml_find(table, "keys"),
	                .same = yaml_find(table, "same"),
	                .count = yaml_find(table, "count"),
	                .runs = yaml_find(table, "runs"),
	                .words = yaml_find(table, "words"),
	                .within = yaml_find(table, "within"),
	                .nulls = yaml_find(table, "nulls"),
	                .ignore = yaml_find(table, "ignore"),
	                .given = yaml_find(table, "given"),
	                .extra_ignored = extra_ignored,
	                .here = c->loc,
	                .params = params};
	strmap_init(&h.first_values, d->arena);
	bool ok = params != NULL && check_ignored_options(d, c);
	for (size_t i = 0; h.params != NULL && i < c->root->n && !diag_is_full(d->cx); i++) {
		if (strcmp(c->root->keys[i], "model_type") != 0 &&
		    strcmp(c->root->keys[i], "quantization_config") != 0)
			ok = apply_key(&h, c->root->keys[i], &c->root->items[i]) && ok;
	}
	if (h.unknown_keys.n != 0)
		note_unknown(&h);
	h.here = c->loc;
	if (ok && c->gguf != NULL)
		ok = set_params_from_tensors(&h, table);
	return ok ? h.params : NULL;
}

/* ---- quantization_config ---- */

/* Accepted keys (patterns) of a method and their accepted values; NULL: any value. */
static const struct rule {
	const char *method, *keys, *values; /* values: separated by spaces */
} rules[] = {
        {"gptq", "bits", "4 8"},
        {"gptq", "{checkpoint_format,quant_method}", "gptq gptq_v2"},
        {"gptq", "{is_marlin_format,lm_head}", "false"},
        {"gptq", "pack_dtype", "int32"},
        {"gptq",
         "{group_size,desc_act,sym,static_groups,true_sequential,damp*,meta.**,model_name_or_path,dataset*}",
         NULL},
        {"gptq",
         "{model_file_base_name,tokenizer,use_*,disable_exllama,exllama_config.**,max_input_length,version}",
         NULL},
        {"gptq", "{cache_block_outputs,batch_size,pad_token_id,block_name_to_quantize,model_seqlen,backend}",
         NULL},
        {"gptq", "{modules_in_block_to_quantize*,module_name_preceding_first_block*,modules_to_not_convert*}",
         NULL},
        {"awq", "bits", "4"},
        {"awq", "quant_method", "awq"},
        {"awq", "version", "gemm GEMM"},
        {"awq", "do_fuse", "false"},
        {"awq",
         "{group_size,zero_point,backend,fuse_max_seq_len,modules_to_not_convert*,modules_to_fuse*,exllama_"
         "config*}",
         NULL},
        {"mxfp4", "quant_method", "mxfp4"},
        {"mxfp4", "modules_to_not_convert*", NULL},
        {"mxfp4", "dequantize", "false"},
        {"compressed-tensors", "quant_method", "compressed-tensors"},
        {"compressed-tensors", "format", "int-quantized pack-quantized"},
        {"compressed-tensors", "quantization_status", "compressed frozen"},
        {"compressed-tensors", "{version,ignore,global_compression_ratio}", NULL},
        {"compressed-tensors", "config_groups.*.targets", NULL},
        {"compressed-tensors", "config_groups.*.format", "int-quantized pack-quantized"},
        {"compressed-tensors", "config_groups.*.weights.num_bits", "4 8"},
        {"compressed-tensors", "config_groups.*.weights.type", "int"},
        {"compressed-tensors", "config_groups.*.weights.strategy", "tensor channel group"},
        {"compressed-tensors", "config_groups.*.weights.symmetric", "true"},
        {"compressed-tensors", "config_groups.*.weights.dynamic", "false"},
        {"compressed-tensors", "config_groups.*.weights.actorder", "false true weight group static dynamic"},
        {"compressed-tensors", "config_groups.*.weights.{group_size,observer*,observer_kwargs.**}", NULL},
        /* Dynamic quantization of activations approximates what is computed here: ignored. */
        {"compressed-tensors", "config_groups.*.input_activations.dynamic", "true"},
        {"compressed-tensors", "config_groups.*.input_activations.num_bits", "8"},
        {"compressed-tensors",
         "config_groups.*.input_activations.{type,strategy,symmetric,group_size,observer*,actorder}", NULL},
        {"compressed-tensors", "config_groups.*.input_activations.observer_kwargs.**", NULL},
};

/* A value as messages and the rules write it. */
static const char *setting_string(struct arena *a, const struct json_node *v)
{
	switch (v->kind) {
	case JSON_NODE_STRING: return v->text;
	case JSON_NODE_BOOL: return v->i ? "true" : "false";
	case JSON_NODE_INT: return arena_printf(a, "%lld", (long long)v->i);
	case JSON_NODE_REAL: return arena_printf(a, "%g", v->f);
	case JSON_NODE_NULL: return "null";
	case JSON_NODE_ARRAY: return "a list";
	case JSON_NODE_OBJECT: return "an object";
	}
	return "";
}

/* The first rule that matches a key; NULL: none. */
static const struct rule *find_rule(const char *method, const char *key)
{
	for (size_t i = 0; i < TFMC_COUNT(rules); i++)
		if (strcmp(rules[i].method, method) == 0 && glob_match(rules[i].keys, key))
			return &rules[i];
	return NULL;
}

/* False after a diagnostic: a key of the object, or of those in it, or its value, is in no rule of the method. path:
 * prefix of the keys. Null and an empty object mean that the key is not set. */
static bool check_keys(struct model_document *d, const struct hub_config *c, const char *method,
                       const char *path, const struct json_node *object)
{
	for (size_t i = 0; i < object->n; i++) {
		const struct json_node *v = &object->items[i];
		const char *key = arena_printf(d->arena, "%s%s", path, object->keys[i]);
		const struct rule *rule = find_rule(method, key);
		const char *setting = setting_string(d->arena, v);
		if (v->kind == JSON_NODE_NULL || (v->kind == JSON_NODE_OBJECT && v->n == 0) ||
		    (rule != NULL &&
		     (rule->values == NULL ||
		      (setting != NULL && list_has_word(rule->values, setting, strlen(setting))))))
			continue;
		if (v->kind == JSON_NODE_OBJECT && rule == NULL) {
			if (!check_keys(d, c, method, arena_printf(d->arena, "%s.", key), v))
				return false;
			continue;
		}
		const char *full_key = arena_printf(d->arena, "quantization_config.%s", key);
		diag_error(d->cx, hub_key_loc(c, full_key), DIAG_UNSUPPORTED,
		           "not supported yet: '%s' is %.60s in %s%s", full_key, setting, c->name,
		           rule == NULL ? "; it may change what the weights mean" : "");
		return false;
	}
	return true;
}

/* "none": no quantization_config. GPTQ files name a later layout of their zero points by checkpoint_format (gptq_v2),
 * which replaces the method. */
const char *hub_weight_packing(struct model_document *d, const struct hub_config *c)
{
	const struct json_node *q = json_find(c->root, "quantization_config");
	const struct json_node *named = json_find(q, "quant_method"),
	                       *form = json_find(q, "checkpoint_format");
	if (q == NULL || q->kind != JSON_NODE_OBJECT || q->n == 0)
		return "none";
	const char *method = named != NULL && named->kind == JSON_NODE_STRING ? named->text : NULL;
	bool known = method != NULL && find_rule(method, "quant_method") != NULL;
	if (!known)
		diag_error(d->cx, hub_key_loc(c, "quantization_config"), DIAG_UNSUPPORTED,
		           "not supported yet: quantized weights%s%.60s%s (gptq, awq, mxfp4 and "
		           "compressed-tensors are); use the "
		           "folder of the model before it was quantized",
		           method != NULL ? " ('" : "", method != NULL ? method : "",
		           method != NULL ? "')" : "");
	if (!known || !check_keys(d, c, method, "", q))
		return NULL;
	if (strcmp(method, "compressed-tensors") == 0)
		return "compressed";
	return form != NULL && form->kind == JSON_NODE_STRING ? form->text : method;
}
