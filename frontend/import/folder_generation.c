/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hub folders of models that write: what generation_config.json says of ids becomes parameters of the preset,
 * over what config.json says of them, as in the library the folder is made for. How to choose among ids
 * (sampling, beams) stays with the caller and is only repeated in a comment.
 */
#include <string.h>

#include "frontend/text/files.h"
#include "frontend/import/folder.h"
#include "frontend/text/json.h"
#include "ir/support/buf.h"

#define FILE_NAME "generation_config.json"

struct generation {
	struct parsed_files *f;
	const char *name; /* of the file */
	const struct json_node *root, *config;
	int64_t language;   /* to write, -1: no tokenizer says which */
	struct buf *params; /* "stop: [1, 2], pad: 0" */
};

static bool refuse(const struct generation *g, const char *key, const char *what)
{
	diag_error(g->f->cx, LOC_NONE, DIAG_FILE, "'%s' in '%s' %s", key, g->name, what);
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

/* suppress_tokens, and the ids that bad_words_ids, [[id, ..], ..], bans alone; longer ones are choices, as beams are. */
static bool take_suppressed(struct generation *g, const struct json_node *object)
{
	const struct json_node *ids, *words = json_find(object, "bad_words_ids");
	if (!find_ids(g, object, "suppress_tokens", &ids))
		return false;
	bool has_words = words != NULL && words->kind == JSON_NODE_ARRAY && words->n > 0;
	if (ids == NULL && !has_words)
		return true;
	begin_param(g, "suppress");
	if (ids != NULL)
		put_ids(g, ids);
	for (size_t i = 0; has_words && i < words->n; i++) {
		const struct json_node *word = &words->items[i];
		if (word->kind != JSON_NODE_ARRAY || !are_ids(word))
			return refuse(g, "bad_words_ids", "is no list of lists of ids");
		if (word->n == 1)
			put_ids(g, word);
	}
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

/* forced_decoder_ids: [[1, id], [2, id], ..]: ids after the first one; those whose place or id is open end
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

/* After the start, unless that is the language itself. */
static void put_language(struct generation *g, const struct json_node *start)
{
	if (g->language >= 0 && !(start->kind == JSON_NODE_INT && start->i == g->language))
		put_id(g, g->language);
}

/* What a decoder begins with: its start id (of config.json, when it is there alone) and ids that are
 * forced after it. */
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
	if (!lists && first == NULL)
		put_language(g, start);
	buf_str(g->params, "]");
	return true;
}

/* One value of a way to choose, as it is in the file; others than numbers and bools are left out. */
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
	        text.len == 0 ? "" : arena_printf(g->f->arena, "# " FILE_NAME " also says: %s\n", text.data);
	buf_destroy(&text);
	return comment;
}

/* ---- ids that only the tokenizer has ---- */

static bool has_suffix(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);
	return n >= k && strcmp(text + n - k, end) == 0;
}

/* Endings of architectures that write ids one after the other: after a text, or after a source. */
static const char *const causal[] = {"ForCausalLM", "LMHeadModel"};
static const char *const pairs[] = {"ForConditionalGeneration"};

static bool writes(const struct generation *g, const char *const *endings, size_t n)
{
	const struct json_node *list = json_find(g->config, "architectures");
	const struct json_node *first =
	        list != NULL && list->kind == JSON_NODE_ARRAY && list->n > 0 ? list->items : NULL;
	for (size_t i = 0; first != NULL && first->kind == JSON_NODE_STRING && i < n; i++)
		if (has_suffix(first->text, endings[i]))
			return true;
	return false;
}

static bool has_id(const struct json_node *object, const char *key)
{
	const struct json_node *v = json_find(object, key);
	return v != NULL && v->kind != JSON_NODE_NULL;
}

/* The token that ends a text ends what the model writes, when neither configuration says what does. */
static bool take_end(struct generation *g, const char *dir)
{
	const char *text;
	int64_t id;
	if (has_id(g->root, "eos_token_id") || has_id(g->config, "eos_token_id") ||
	    !writes(g, causal, TFMC_COUNT(causal)))
		return true;
	if (!folder_token_of(g->f, dir, "eos_token", &text))
		return false;
	if (text == NULL)
		return true;
	if (!folder_token_id(g->f, dir, text, &id))
		return false;
	if (id < 0)
		return true;
	begin_param(g, "stop");
	put_id(g, id);
	buf_str(g->params, "]");
	return true;
}

/* The id of the language to write, -1 when tokenizer_config.json names none or a configuration forces an id.
 */
static bool find_language(const struct generation *g, const char *dir, int64_t *id)
{
	const char *text;
	*id = -1;
	if (has_id(g->root, "forced_bos_token_id") || has_id(g->config, "forced_bos_token_id") ||
	    !writes(g, pairs, TFMC_COUNT(pairs)))
		return true;
	return folder_token_of(g->f, dir, "tgt_lang", &text) &&
	       (text == NULL || folder_token_id(g->f, dir, text, id));
}

/* A decoder's start without generation_config.json: that of config.json, after it the id it forces or the
 * language. */
static bool take_language(struct generation *g)
{
	const struct json_node *start, *first;
	if (!writes(g, pairs, TFMC_COUNT(pairs)))
		return true;
	if (!find_ids(g, g->config, "decoder_start_token_id", &start) ||
	    !find_ids(g, g->config, "forced_bos_token_id", &first))
		return false;
	if (start == NULL || (first == NULL && g->language < 0))
		return true;
	begin_param(g, "start");
	put_ids(g, start);
	if (first != NULL)
		put_ids(g, first);
	else
		put_language(g, start);
	buf_str(g->params, "]");
	return true;
}

static bool take_file(struct generation *g)
{
	return take_start(g) && take_ids(g, "eos_token_id", "stop") && take_pad(g) &&
	       take_suppressed(g, g->root) && take_ids(g, "begin_suppress_tokens", "suppress_first");
}

const char *folder_generation(struct parsed_files *f, const char *dir, const struct json_node *config)
{
	static const struct json_node empty = {.kind = JSON_NODE_OBJECT};
	struct buf params;
	buf_init(&params);
	bool has_file = folder_has(f->arena, dir, FILE_NAME);
	struct generation g = {.f = f, .params = &params, .config = config, .language = -1};
	g.name = file_join(f->arena, dir, FILE_NAME);
	g.root = has_file ? folder_json(f, dir, FILE_NAME) : &empty;
	bool ok = g.root != NULL && find_language(&g, dir, &g.language) &&
	          (has_file ? take_file(&g) : take_language(&g) && take_suppressed(&g, config)) &&
	          take_end(&g, dir);
	const char *text = NULL;
	if (ok && params.len == 0)
		text = choices(&g);
	else if (ok)
		text = arena_printf(f->arena, "%sparams: {%s}\n", choices(&g), params.data);
	buf_destroy(&params);
	return text;
}
