/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer_config.json, special_tokens_map.json, added_tokens.json: members with types, special tokens by
 * name or with an id. As in the library the files are made for, a list of added tokens in the first file
 * replaces the other two files.
 */
#include "frontend/tokenizer_files/config.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"
#include "ir/support/number.h"

static const char *const role_keys[TOKENIZER_N_ROLES] = {
        [TOKENIZER_BOS] = "bos_token",  [TOKENIZER_EOS] = "eos_token", [TOKENIZER_UNK] = "unk_token",
        [TOKENIZER_SEP] = "sep_token",  [TOKENIZER_PAD] = "pad_token", [TOKENIZER_CLS] = "cls_token",
        [TOKENIZER_MASK] = "mask_token"};

#define TOKENS_MAX 32768 /* each is compared with those before it */

struct reader {
	struct tokenizer_source source; /* with the name of the file that is read */
	struct tokenizer_config *c;
	const char *class_name;        /* of the model's type */
	bool roles[TOKENIZER_N_ROLES]; /* that a file has, null or not */
	size_t cap;
};

static bool wrong(const struct reader *r, const char *key, const char *what)
{
	(void)tokenizer_refuse(&r->source, TOKENIZER_WRONG, key, "%s", what);
	return false;
}

/* ---- tokens ---- */

static struct tokenizer_named *find_named(const struct tokenizer_config *c, const char *text)
{
	for (size_t i = 0; i < c->n_tokens; i++)
		if (strcmp(c->tokens[i].text, text) == 0)
			return &c->tokens[i];
	return NULL;
}

static struct tokenizer_named *push_named(struct reader *r, const char *text)
{
	struct {
		struct tokenizer_named *items;
		size_t n, cap;
	} list = {r->c->tokens, r->c->n_tokens, r->cap};
	if (list.n == TOKENS_MAX) {
		wrong(r, text, "is one more than the 32768 added tokens that are supported");
		return NULL;
	}
	struct tokenizer_named *t = ARENA_PUSH(r->source.arena, &list);
	if (t == NULL)
		return NULL;
	*t = (struct tokenizer_named){.text = text, .id = -1};
	r->c->tokens = list.items;
	r->c->n_tokens = list.n;
	r->cap = list.cap;
	return t;
}

static bool read_flag(const struct reader *r, const struct json_node *o, const char *key, bool absent,
                      bool *out)
{
	const struct json_node *v = json_find(o, key);
	*out = v != NULL && v->kind == JSON_NODE_BOOL ? v->i != 0 : absent;
	return v == NULL || v->kind == JSON_NODE_BOOL || wrong(r, key, "is not true or false");
}

/* {"content": .., "lstrip": .., ..} */
static bool read_flags(const struct reader *r, const struct json_node *o, bool special,
                       struct tokenizer_named *t)
{
	bool left, right, word;
	if (!read_flag(r, o, "lstrip", false, &left) || !read_flag(r, o, "rstrip", false, &right) ||
	    !read_flag(r, o, "single_word", false, &word) || !read_flag(r, o, "special", special, &special) ||
	    !read_flag(r, o, "normalized", !special, &t->normalized))
		return false;
	t->flags = (left ? TFMC_TOK_A_LSTRIP : 0u) | (right ? TFMC_TOK_A_RSTRIP : 0u) |
	           (word ? TFMC_TOK_A_WORD : 0u) | (special ? TFMC_TOK_A_SPECIAL : 0u);
	t->is_whole = true;
	return true;
}

/* The text of a token that is a string or an object; NULL after a refusal. */
static const char *token_text(const struct reader *r, const char *key, const struct json_node *v)
{
	const struct json_node *content = v->kind == JSON_NODE_OBJECT ? json_find(v, "content") : v;
	if (content != NULL && content->kind == JSON_NODE_STRING && content->text[0] != '\0')
		return content->text;
	wrong(r, key, "is no token");
	return NULL;
}

/* A token by its text; an object that nothing listed before brings its flags. */
static bool take_special(struct reader *r, const char *key, const struct json_node *v, const char **text)
{
	*text = token_text(r, key, v);
	if (*text == NULL)
		return false;
	struct tokenizer_named *t = find_named(r->c, *text);
	if (t == NULL) {
		t = push_named(r, *text);
		if (t == NULL)
			return false;
		if (v->kind == JSON_NODE_OBJECT && !read_flags(r, v, true, t))
			return false;
	}
	t->flags |= TFMC_TOK_A_SPECIAL;
	return true;
}

static bool take_list(struct reader *r, const char *key, const struct json_node *list)
{
	const char *text;
	if (list == NULL || list->kind == JSON_NODE_NULL)
		return true;
	if (list->kind != JSON_NODE_ARRAY && list->kind != JSON_NODE_OBJECT)
		return wrong(r, key, "is no list of tokens");
	for (size_t i = 0; i < list->n; i++)
		if (!take_special(r, key, &list->items[i], &text))
			return false;
	return true;
}

/* Names of roles and further special tokens, of tokenizer_config.json or special_tokens_map.json. */
static bool take_specials(struct reader *r, const struct json_node *root)
{
	for (size_t i = 0; i < TOKENIZER_N_ROLES; i++) {
		const struct json_node *v = json_find(root, role_keys[i]);
		if (v == NULL)
			continue;
		r->roles[i] = true;
		r->c->roles[i] = NULL;
		if (v->kind != JSON_NODE_NULL && !take_special(r, role_keys[i], v, &r->c->roles[i]))
			return false;
	}
	return take_list(r, "extra_special_tokens", json_find(root, "extra_special_tokens")) &&
	       take_list(r, "additional_special_tokens", json_find(root, "additional_special_tokens"));
}

/* {"32000": {"content": "<pad>", ..}, ..} */
static bool take_decoder(struct reader *r, const struct json_node *map)
{
	if (map->kind != JSON_NODE_OBJECT)
		return wrong(r, "added_tokens_decoder", "is no object");
	for (size_t i = 0; i < map->n; i++) {
		const char *text = token_text(r, "added_tokens_decoder", &map->items[i]);
		struct tokenizer_named *t = text != NULL ? push_named(r, text) : NULL;
		if (t == NULL)
			return false;
		t->is_listed = true;
		if (!number_parse_i64(map->keys[i], strlen(map->keys[i]), &t->id) || t->id < 0 ||
		    t->id >= TFMC_TOK_TOKENS_MAX)
			return wrong(r, "added_tokens_decoder",
			             arena_printf(r->source.arena, "'%s' is no usable id", map->keys[i]));
		if (map->items[i].kind == JSON_NODE_OBJECT && !read_flags(r, &map->items[i], false, t))
			return false;
	}
	return true;
}

/* {"<pad>": 32000, ..} */
static bool take_added(struct reader *r, const struct json_node *map)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct json_node *id = &map->items[i];
		if (map->kind != JSON_NODE_OBJECT || id->kind != JSON_NODE_INT || id->i < 0 ||
		    id->i >= TFMC_TOK_TOKENS_MAX)
			return wrong(r, "the file", "is no object of tokens and ids");
		struct tokenizer_named *t = find_named(r->c, map->keys[i]);
		bool is_new = t == NULL && map->keys[i][0] != '\0';
		if (t == NULL && !is_new)
			return wrong(r, "the file", "has an empty token");
		t = is_new ? push_named(r, map->keys[i]) : t;
		if (t == NULL)
			return false;
		t->id = id->i;
		t->normalized = is_new || t->normalized;
		t->is_whole = true;
	}
	return true;
}

/* ---- members ---- */

static bool take_flag(const struct reader *r, const struct json_node *root, const char *key, int *out)
{
	const struct json_node *v = json_find(root, key);
	if (v == NULL || v->kind == JSON_NODE_NULL)
		return true;
	*out = v->i != 0;
	return v->kind == JSON_NODE_BOOL || wrong(r, key, "is not true or false");
}

static bool take_text(const struct reader *r, const struct json_node *root, const char *key, const char **out)
{
	const struct json_node *v = json_find(root, key);
	if (v == NULL || v->kind == JSON_NODE_NULL)
		return true;
	*out = v->text;
	return v->kind == JSON_NODE_STRING || wrong(r, key, "is no text");
}

/* Keys that change ids in a way that is not followed, other than with these values. */
static bool refuse_others(const struct reader *r, const struct json_node *root)
{
	static const struct {
		const char *key;
		bool harmless;
	} keys[] = {{"split_special_tokens", false}, {"do_basic_tokenize", true}, {"do_split_on_punc", true}};
	const char *key = NULL, *value = "tokens";
	for (size_t i = 0; key == NULL && i < TFMC_COUNT(keys); i++) {
		const struct json_node *v = json_find(root, keys[i].key);
		if (v != NULL && v->kind == JSON_NODE_BOOL && (v->i != 0) != keys[i].harmless) {
			key = keys[i].key;
			value = v->i != 0 ? "true" : "false";
		}
	}
	const struct json_node *never = json_find(root, "never_split");
	if (key == NULL && never != NULL && never->kind == JSON_NODE_ARRAY && never->n > 0)
		key = "never_split";
	return key == NULL ||
	       tokenizer_refuse(&r->source, TOKENIZER_UNSUPPORTED, key, "%s", value) == TFMC_OK;
}

static bool take_members(struct reader *r, const struct json_node *root)
{
	struct tokenizer_config *c = r->c;
	return take_text(r, root, "tokenizer_class", &c->class_name) &&
	       take_flag(r, root, "add_bos_token", &c->add_bos) &&
	       take_flag(r, root, "add_eos_token", &c->add_eos) &&
	       take_flag(r, root, "add_prefix_space", &c->prefix_space) &&
	       take_flag(r, root, "do_lower_case", &c->lowercase) &&
	       take_flag(r, root, "keep_accents", &c->keep_accents) &&
	       take_flag(r, root, "strip_accents", &c->strip_accents) &&
	       take_flag(r, root, "tokenize_chinese_chars", &c->chinese) &&
	       take_flag(r, root, "legacy_behaviour", &c->legacy_language) &&
	       take_flag(r, root, "predict_timestamps", &c->timestamps) &&
	       take_text(r, root, "src_lang", &c->src_lang) && take_text(r, root, "language", &c->language) &&
	       take_text(r, root, "task", &c->task) && refuse_others(r, root);
}

/* ---- the whole ---- */

/* NULL after a diagnostic; an empty object for a file that is not there. */
static const struct json_node *begin_file(struct reader *r, const struct tokenizer_config_file *file)
{
	static const struct json_node empty = {.kind = JSON_NODE_OBJECT};
	if (file->root == NULL)
		return &empty;
	r->source.name = file->name;
	return file->root->kind == JSON_NODE_OBJECT || wrong(r, "the file", "is no object") ? file->root
	                                                                                    : NULL;
}

/* What the class calls its tokens, where the files do not say. */
static bool take_class(struct reader *r)
{
	struct tokenizer_config *c = r->c;
	bool as_it_is = r->class_name != NULL && strcmp(r->class_name, TOKENIZER_AS_IT_IS) == 0;
	if (as_it_is)
		c->class_name = r->class_name;
	c->class = c->class_name != NULL ? tokenizer_class_find(c->class_name) : NULL;
	for (size_t i = 0; c->class != NULL && i < TOKENIZER_N_ROLES; i++) {
		const char *text = c->class->roles[i];
		if (r->roles[i] || text[0] == '\0')
			continue;
		c->roles[i] = text;
		if (find_named(c, text) != NULL)
			continue;
		struct tokenizer_named *t = push_named(r, text);
		if (t == NULL)
			return false;
		t->is_implied = true;
		t->flags = TFMC_TOK_A_SPECIAL;
	}
	struct tokenizer_named *mask =
	        c->roles[TOKENIZER_MASK] != NULL ? find_named(c, c->roles[TOKENIZER_MASK]) : NULL;
	if (mask != NULL && c->class != NULL && c->class->mask_strips && !mask->is_whole)
		mask->flags |= TFMC_TOK_A_LSTRIP;
	return true;
}

static bool read_files(struct reader *r, const struct tokenizer_config_files *files)
{
	const struct json_node *root = begin_file(r, &files->config);
	if (root == NULL || !take_members(r, root))
		return false;
	const struct json_node *decoder = json_find(root, "added_tokens_decoder");
	bool listed = decoder != NULL && decoder->kind != JSON_NODE_NULL;
	if ((listed && !take_decoder(r, decoder)) || !take_specials(r, root))
		return false;
	const struct json_node *special = listed ? NULL : begin_file(r, &files->special);
	if (!listed && (special == NULL || !take_specials(r, special)))
		return false;
	const struct json_node *added = listed ? NULL : begin_file(r, &files->added);
	return (listed || (added != NULL && take_added(r, added))) && take_class(r);
}

enum tfmc_status tokenizer_config_read(const struct tokenizer_source *s,
                                       const struct tokenizer_config_files *files,
                                       struct tokenizer_config *out)
{
	struct reader r = {.source = *s, .c = out, .class_name = files->class_name};
	*out = (struct tokenizer_config){.name = files->config.root != NULL ? files->config.name : s->name,
	                                 .class_name = files->class_name,
	                                 .add_bos = -1,
	                                 .add_eos = -1,
	                                 .prefix_space = -1,
	                                 .lowercase = -1,
	                                 .keep_accents = -1,
	                                 .strip_accents = -1,
	                                 .chinese = -1,
	                                 .legacy_language = -1,
	                                 .timestamps = -1};
	if (read_files(&r, files))
		return TFMC_OK;
	return arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
}
