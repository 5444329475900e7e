/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokenizers of hub folders: which files define one, and ids that a model needs and only its tokenizer has.
 */
#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/model/folder.h"
#include "frontend/tokenizer/config.h"

/* ---- the section tokenizer ---- */

struct tokenizer_file_set {
	const char *kind; /* "": implied by the keys */
	struct {
		const char *key, *name;
	} parts[3]; /* all must exist */
};

static const struct tokenizer_file_set tokenizer_file_sets[] = {
        {"", {{"file", "tokenizer.json"}}},
        {"marian", {{"source", "source.spm"}, {"target", "target.spm"}, {"vocab", "vocab.json"}}},
        {"", {{"vocab", "vocab.json"}, {"merges", "merges.txt"}}},
        {"sentencepiece", {{"file", "tokenizer.model"}}},
        {"sentencepiece", {{"file", "spiece.model"}}},
        {"sentencepiece", {{"file", "sentencepiece.bpe.model"}}},
        {"wordpiece", {{"vocab", "vocab.txt"}}},
};

/* First set of tokenizer files that all exist; NULL: none. */
static const struct tokenizer_file_set *find_files(struct arena *a, const char *dir)
{
	for (size_t i = 0; i < TFMC_COUNT(tokenizer_file_sets); i++) {
		bool all = true;
		for (size_t k = 0; k < TFMC_COUNT(tokenizer_file_sets[i].parts) &&
		                   tokenizer_file_sets[i].parts[k].name != NULL;
		     k++)
			all = all && directory_has_file(a, dir, tokenizer_file_sets[i].parts[k].name);
		if (all)
			return &tokenizer_file_sets[i];
	}
	return NULL;
}

static const char *string_member(const struct json_node *object, const char *key)
{
	const struct json_node *v = json_find(object, key);
	return v != NULL && v->kind == JSON_NODE_STRING ? v->text : NULL;
}

/* The tokenizer class: named by the configuration, or the default of its model type; NULL: none. */
static const char *tokenizer_class(const struct json_node *config, bool has_json)
{
	const char *named = string_member(config, "tokenizer_class"),
	           *type = string_member(config, "model_type");
	const char *of_type = type != NULL ? tokenizer_class_of_type(type, has_json) : NULL;
	if (named == NULL || named[0] == '\0' ||
	    (of_type != NULL && strcmp(of_type, TOKENIZER_AS_IT_IS) == 0) ||
	    strspn(named, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != strlen(named))
		return of_type;
	return named;
}

const char *folder_tokenizer(struct arena *a, const char *dir, const char *at, const struct json_node *config)
{
	static const char *const optional_files[][2] = {{"config", "tokenizer_config.json"},
	                                                {"special", "special_tokens_map.json"},
	                                                {"added", "added_tokens.json"}};
	const struct tokenizer_file_set *tokenizer_files = find_files(a, dir);
	const char *more = "", *text = "";
	if (tokenizer_files == NULL)
		return "";
	bool marian = strcmp(tokenizer_files->kind, "marian") == 0;
	for (size_t i = 0; !marian && i < TFMC_COUNT(optional_files); i++)
		if (directory_has_file(a, dir, optional_files[i][1]))
			more = arena_printf(a, "%s, %s: %s", more, optional_files[i][0],
			                    folder_file_scalar(a, at, optional_files[i][1]));
	const char *class = tokenizer_class(config, tokenizer_files == &tokenizer_file_sets[0]);
	if (class != NULL && !marian)
		more = arena_printf(a, "%s, class: %s", more, class);
	if (marian && directory_has_file(a, dir, "target_vocab.json"))
		more = arena_printf(a, ", target_vocab: %s", folder_file_scalar(a, at, "target_vocab.json"));
	for (size_t k = 0; k < TFMC_COUNT(tokenizer_files->parts) && tokenizer_files->parts[k].name != NULL;
	     k++)
		text = arena_printf(a, "%s%s%s: %s", text, k == 0 ? "" : ", ", tokenizer_files->parts[k].key,
		                    folder_file_scalar(a, at, tokenizer_files->parts[k].name));
	return arena_printf(a, "tokenizer: {%s%s%s%s%s, embed: true, optional: true}\n",
	                    tokenizer_files->kind[0] != '\0' ? "kind: " : "", tokenizer_files->kind,
	                    tokenizer_files->kind[0] != '\0' ? ", " : "", text, more);
}

/* ---- ids ---- */

const struct json_node *folder_json(struct parsed_files *f, const char *dir, const char *name)
{
	const char *path = file_path_inside(f->arena, f->cx, dir, name, LOC_NONE);
	bool shorten = strcmp(name, "tokenizer_config.json") == 0;
	const struct parsed_file *file;
	if (path == NULL || parsed_json(f, path, LOC_NONE, shorten, &file) != TFMC_OK)
		return NULL;
	if (file->root->kind == JSON_NODE_OBJECT)
		return file->root;
	diag_error(f->cx, LOC_NONE, DIAG_FILE, "'%s' holds no JSON object", name);
	return NULL;
}

/* Reads a JSON file; an empty object if it does not exist; NULL after a diagnostic. */
static const struct json_node *optional_json(struct parsed_files *f, const char *dir, const char *file)
{
	static const struct json_node empty = {.kind = JSON_NODE_OBJECT};
	return directory_has_file(f->arena, dir, file) ? folder_json(f, dir, file) : &empty;
}

static int64_t id_of(const struct json_node *v)
{
	return v != NULL && v->kind == JSON_NODE_INT && v->i >= 0 && v->i <= INT32_MAX ? v->i : -1;
}

/* Id of a string in added_tokens_decoder, {"2": {"content": "</s>"}}; -1: none. */
static int64_t id_in_decoder(const struct json_node *map, const char *text)
{
	for (size_t i = 0; map != NULL && map->kind == JSON_NODE_OBJECT && i < map->n; i++) {
		const char *content = string_member(&map->items[i], "content");
		int64_t id = 0;
		if (content == NULL || strcmp(content, text) != 0)
			continue;
		for (const char *c = map->keys[i]; *c >= '0' && *c <= '9' && id <= INT32_MAX; c++)
			id = 10 * id + (*c - '0');
		return id <= INT32_MAX ? id : -1;
	}
	return -1;
}

/* Id of a string in tokenizer.json: added_tokens, or the vocabulary, an object or a list of pairs; -1:
 * none. */
static int64_t id_in_tokenizer(const struct json_node *root, const char *text)
{
	const struct json_node *added = json_find(root, "added_tokens");
	for (size_t i = 0; added != NULL && added->kind == JSON_NODE_ARRAY && i < added->n; i++) {
		const char *content = string_member(&added->items[i], "content");
		if (content != NULL && strcmp(content, text) == 0)
			return id_of(json_find(&added->items[i], "id"));
	}
	const struct json_node *vocab = json_find(json_find(root, "model"), "vocab");
	for (size_t i = 0; vocab != NULL && vocab->kind == JSON_NODE_ARRAY && i < vocab->n; i++) {
		const struct json_node *pair = &vocab->items[i];
		if (pair->kind == JSON_NODE_ARRAY && pair->n > 0 && pair->items[0].kind == JSON_NODE_STRING &&
		    strcmp(pair->items[0].text, text) == 0)
			return (int64_t)i;
	}
	return id_of(json_find(vocab, text));
}

bool folder_token_id(struct parsed_files *f, const char *dir, const char *text, int64_t *id)
{
	const struct json_node *config = optional_json(f, dir, "tokenizer_config.json");
	*id = config != NULL ? id_in_decoder(json_find(config, "added_tokens_decoder"), text) : -1;
	if (config == NULL || *id >= 0)
		return config != NULL;
	const struct json_node *added = optional_json(f, dir, "added_tokens.json");
	*id = added != NULL ? id_of(json_find(added, text)) : -1;
	if (added == NULL || *id >= 0)
		return added != NULL;
	const struct json_node *tokenizer_json = optional_json(f, dir, "tokenizer.json");
	*id = tokenizer_json != NULL ? id_in_tokenizer(tokenizer_json, text) : -1;
	if (tokenizer_json == NULL || *id >= 0)
		return tokenizer_json != NULL;
	const struct json_node *vocab = optional_json(f, dir, "vocab.json");
	*id = vocab != NULL ? id_of(json_find(vocab, text)) : -1;
	return vocab != NULL;
}

/* String of a token: a string, or an object with `content`. */
static const char *token_string(const struct json_node *object, const char *key)
{
	const char *text = string_member(object, key);
	return text != NULL ? text : string_member(json_find(object, key), "content");
}

bool folder_token_of(struct parsed_files *f, const char *dir, const char *key, const char **text)
{
	static const char *const tokenizer_files[] = {"tokenizer_config.json", "special_tokens_map.json"};
	*text = NULL;
	for (size_t i = 0; *text == NULL && i < TFMC_COUNT(tokenizer_files); i++) {
		const struct json_node *root = optional_json(f, dir, tokenizer_files[i]);
		if (root == NULL)
			return false;
		*text = token_string(root, key);
	}
	return true;
}
