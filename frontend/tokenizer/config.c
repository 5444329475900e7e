/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of tokenizer_config.json, special_tokens_map.json and added_tokens.json: typed members, special
 * tokens by name or with an id. As in transformers, a list of added tokens in the first file replaces the
 * other two files.
 * A role is the use of a special token, such as bos or pad; flags that a file may leave out are -1 then. A token may be
 * named several times: its first definition has the flags. read_NAME returns false after a diagnostic.
 */
#include "frontend/tokenizer/config.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/tokenizer/build.h"
#include "ir/support/number.h"

static const char *const role_keys[TOKENIZER_N_ROLES] = {
        [TOKENIZER_BOS] = "bos_token",  [TOKENIZER_EOS] = "eos_token", [TOKENIZER_UNK] = "unk_token",
        [TOKENIZER_SEP] = "sep_token",  [TOKENIZER_PAD] = "pad_token", [TOKENIZER_CLS] = "cls_token",
        [TOKENIZER_MASK] = "mask_token"};

#define TOKENS_MAX 32768 /* quadratic: each is compared with those before it */

/* Reader of the configuration files. */
struct reader {
	struct tokenizer_source source; /* name: of the file that is read */
	struct tokenizer_config *c;
	const char *class_name;        /* class for the model type */
	bool roles[TOKENIZER_N_ROLES]; /* roles that a file has, even as null */
	size_t cap;
};

static bool reject(const struct reader *r, const char *key, const char *what)
{
	(void)tokenizer_reject_file(&r->source, TOKENIZER_WRONG, key, "%s", what);
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

/* Appends a token, without an id (-1) and flags; NULL after a diagnostic, or without memory. Their number is limited,
 * as find_named() compares each with those before it. */
static struct tokenizer_named *push_named(struct reader *r, const char *text)
{
	struct {
		struct tokenizer_named *items;
		size_t n, cap;
	} list = {r->c->tokens, r->c->n_tokens, r->cap};
	if (list.n == TOKENS_MAX) {
		reject(r, text, "is one more than the 32768 added tokens that are supported");
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

/* A flag of an object, `absent` if there is none; false after a diagnostic. */
static bool read_bool_member(const struct reader *r, const struct json_node *o, const char *key, bool absent,
                             bool *out)
{
	const struct json_node *v = json_find(o, key);
	*out = v != NULL && v->kind == JSON_NODE_BOOL ? v->i != 0 : absent;
	return v == NULL || v->kind == JSON_NODE_BOOL || reject(r, key, "is not true or false");
}

/* Reads the flags of {"content": .., "lstrip": .., ..}; `special`: where the object does not have it. Special tokens
 * are matched in the raw text, others in normalized text, unless the object says otherwise. */
static bool read_flags(const struct reader *r, const struct json_node *o, bool special,
                       struct tokenizer_named *t)
{
	bool left, right, word;
	if (!read_bool_member(r, o, "lstrip", false, &left) ||
	    !read_bool_member(r, o, "rstrip", false, &right) ||
	    !read_bool_member(r, o, "single_word", false, &word) ||
	    !read_bool_member(r, o, "special", special, &special) ||
	    !read_bool_member(r, o, "normalized", !special, &t->normalized))
		return false;
	t->flags = (left ? TFMC_TOK_A_LSTRIP : 0u) | (right ? TFMC_TOK_A_RSTRIP : 0u) |
	           (word ? TFMC_TOK_A_WORD : 0u) | (special ? TFMC_TOK_A_SPECIAL : 0u);
	t->has_explicit_flags = true;
	return true;
}

/* String of a token: a string, or an object with `content`; NULL after a diagnostic. */
static const char *token_text(const struct reader *r, const char *key, const struct json_node *v)
{
	const struct json_node *content = v->kind == JSON_NODE_OBJECT ? json_find(v, "content") : v;
	if (content != NULL && content->kind == JSON_NODE_STRING && content->text[0] != '\0')
		return content->text;
	reject(r, key, "is not a token");
	return NULL;
}

/* Reads a special token and adds it unless it is known; flags of an object count only for a new one, as the list of
 * added tokens comes first. */
static bool read_special(struct reader *r, const char *key, const struct json_node *v, const char **text)
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

/* Reads a list of special tokens, or an object of them by name; absent or null: none. False after a diagnostic. */
static bool read_special_list(struct reader *r, const char *key, const struct json_node *list)
{
	const char *text;
	if (list == NULL || list->kind == JSON_NODE_NULL)
		return true;
	if (list->kind != JSON_NODE_ARRAY && list->kind != JSON_NODE_OBJECT)
		return reject(r, key, "is not a list of tokens");
	for (size_t i = 0; i < list->n; i++)
		if (!read_special(r, key, &list->items[i], &text))
			return false;
	return true;
}

/* Reads roles and further special tokens of tokenizer_config.json or special_tokens_map.json, whose roles override
 * those of the former; null means none, also where the class has a default (r->roles). */
static bool read_specials(struct reader *r, const struct json_node *root)
{
	for (size_t i = 0; i < TOKENIZER_N_ROLES; i++) {
		const struct json_node *v = json_find(root, role_keys[i]);
		if (v == NULL)
			continue;
		r->roles[i] = true;
		r->c->roles[i] = NULL;
		if (v->kind != JSON_NODE_NULL && !read_special(r, role_keys[i], v, &r->c->roles[i]))
			return false;
	}
	return read_special_list(r, "extra_special_tokens", json_find(root, "extra_special_tokens")) &&
	       read_special_list(r, "additional_special_tokens",
	                         json_find(root, "additional_special_tokens"));
}

/* Reads added_tokens_decoder: {"32000": {"content": "<pad>", ..}, ..}. Its tokens override those of tokenizer.json
 * (is_listed). */
static bool read_added_decoder(struct reader *r, const struct json_node *map)
{
	if (map->kind != JSON_NODE_OBJECT)
		return reject(r, "added_tokens_decoder", "is not an object");
	for (size_t i = 0; i < map->n; i++) {
		const char *text = token_text(r, "added_tokens_decoder", &map->items[i]);
		struct tokenizer_named *t = text != NULL ? push_named(r, text) : NULL;
		if (t == NULL)
			return false;
		t->is_listed = true;
		if (!number_parse_i64(map->keys[i], strlen(map->keys[i]), &t->id) || t->id < 0 ||
		    t->id >= TFMC_TOK_TOKENS_MAX)
			return reject(r, "added_tokens_decoder",
			              arena_printf(r->source.arena, "'%s' is not a usable id", map->keys[i]));
		if (map->items[i].kind == JSON_NODE_OBJECT && !read_flags(r, &map->items[i], false, t))
			return false;
	}
	return true;
}

/* Reads added_tokens.json: {"<pad>": 32000, ..}. A token that special_tokens_map.json has described keeps its
 * flags. */
static bool read_added_tokens(struct reader *r, const struct json_node *map)
{
	for (size_t i = 0; i < map->n; i++) {
		const struct json_node *id = &map->items[i];
		if (map->kind != JSON_NODE_OBJECT || id->kind != JSON_NODE_INT || id->i < 0 ||
		    id->i >= TFMC_TOK_TOKENS_MAX)
			return reject(r, "the file", "is not an object that maps tokens to ids");
		struct tokenizer_named *t = find_named(r->c, map->keys[i]);
		bool is_new = t == NULL && map->keys[i][0] != '\0';
		if (t == NULL && !is_new)
			return reject(r, "the file", "has an empty token");
		t = is_new ? push_named(r, map->keys[i]) : t;
		if (t == NULL)
			return false;
		t->id = id->i;
		t->normalized = is_new || t->normalized;
		t->has_explicit_flags = true;
	}
	return true;
}

/* ---- members ---- */

/* Reads an optional flag, which stays -1 if it is absent. */
static bool read_tristate(const struct reader *r, const struct json_node *root, const char *key, int *out)
{
	const struct json_node *v = json_find(root, key);
	if (v == NULL || v->kind == JSON_NODE_NULL)
		return true;
	*out = v->i != 0;
	return v->kind == JSON_NODE_BOOL || reject(r, key, "is not true or false");
}

/* A string of the object; *out stays if it is absent or null. False after a diagnostic. */
static bool read_string_member(const struct reader *r, const struct json_node *root, const char *key,
                               const char **out)
{
	const struct json_node *v = json_find(root, key);
	if (v == NULL || v->kind == JSON_NODE_NULL)
		return true;
	*out = v->text;
	return v->kind == JSON_NODE_STRING || reject(r, key, "is not a string");
}

/* Rejects unsupported keys that change ids, unless they have the harmless value, which is that of their absence. */
static bool reject_unsupported(const struct reader *r, const struct json_node *root)
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
	       tokenizer_reject_file(&r->source, TOKENIZER_UNSUPPORTED, key, "%s", value) == TFMC_OK;
}

/* Reads the members that change ids; false after a diagnostic. */
static bool read_members(struct reader *r, const struct json_node *root)
{
	struct tokenizer_config *c = r->c;
	return read_string_member(r, root, "tokenizer_class", &c->class_name) &&
	       read_tristate(r, root, "add_bos_token", &c->add_bos) &&
	       read_tristate(r, root, "add_eos_token", &c->add_eos) &&
	       read_tristate(r, root, "add_prefix_space", &c->prefix_space) &&
	       read_tristate(r, root, "do_lower_case", &c->lowercase) &&
	       read_tristate(r, root, "keep_accents", &c->keep_accents) &&
	       read_tristate(r, root, "strip_accents", &c->strip_accents) &&
	       read_tristate(r, root, "tokenize_chinese_chars", &c->chinese) &&
	       read_tristate(r, root, "legacy_behaviour", &c->legacy_language) &&
	       read_tristate(r, root, "predict_timestamps", &c->timestamps) &&
	       read_string_member(r, root, "src_lang", &c->src_lang) &&
	       read_string_member(r, root, "language", &c->language) &&
	       read_string_member(r, root, "task", &c->task) && reject_unsupported(r, root);
}

/* ---- files ---- */

/* Root of a file; an empty object if it does not exist; NULL after a diagnostic. */
static const struct json_node *open_file(struct reader *r, const struct tokenizer_config_file *file)
{
	static const struct json_node empty = {.kind = JSON_NODE_OBJECT};
	if (file->root == NULL)
		return &empty;
	r->source.name = file->name;
	return file->root->kind == JSON_NODE_OBJECT || reject(r, "the file", "is not an object") ? file->root
	                                                                                         : NULL;
}

/* Finds the class and adds its special tokens for roles that the files do not name; they are implied: left out if the
 * vocabulary lacks them. TOKENIZER_AS_IT_IS overrides the class that the files name. False without memory. */
static bool apply_class(struct reader *r)
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
	if (mask != NULL && c->class != NULL && c->class->mask_strips && !mask->has_explicit_flags)
		mask->flags |= TFMC_TOK_A_LSTRIP;
	return true;
}

/* Reads the files in their order of precedence: added_tokens_decoder in the first one replaces the others. False
 * after a diagnostic, or without memory. */
static bool read_files(struct reader *r, const struct tokenizer_config_files *files)
{
	const struct json_node *root = open_file(r, &files->config);
	if (root == NULL || !read_members(r, root))
		return false;
	const struct json_node *decoder = json_find(root, "added_tokens_decoder");
	bool listed = decoder != NULL && decoder->kind != JSON_NODE_NULL;
	if ((listed && !read_added_decoder(r, decoder)) || !read_specials(r, root))
		return false;
	const struct json_node *special = listed ? NULL : open_file(r, &files->special);
	if (!listed && (special == NULL || !read_specials(r, special)))
		return false;
	const struct json_node *added = listed ? NULL : open_file(r, &files->added);
	return (listed || (added != NULL && read_added_tokens(r, added))) && apply_class(r);
}

/* out->name is the file that messages about flags name: the configuration, or the tokenizer where there is none. */
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
