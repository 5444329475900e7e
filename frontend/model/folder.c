/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub directory or a GGUF file as the text of a model file: name, configuration, weights, tokenizer. `tfmc import`
 * writes this text.
 *
 * Directories of sentence embedders (sentence-transformers): modules.json lists the modules after the transformer,
 * which become the params `pooling`, `sentence` (width of a projection, with `sentence_bias` and `sentence_act`) and
 * `normalize` of the preset. Unsupported modules and modes are rejected by name.
 * `at` is the path of the directory as the model file has it, "" if the file is in it. File names that are not fixed
 * strings are quoted, as they may have any characters.
 */
#include "frontend/model/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "frontend/model/compose.h"
#include "frontend/syntax/expr.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"
#include "frontend/syntax/yaml_edit.h"
#include "frontend/tokenizer/config.h"
#include "frontend/tokenizer/tokenizer.h"
#include "frontend/weights/gguf.h"

#define FILES_MAX 4096

bool path_is_directory(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool directory_has_file(struct arena *a, const char *dir, const char *name)
{
	return file_exists(file_join(a, dir, name));
}

/* A component of a path: [from, end). */
struct component {
	size_t from, end;
};

/* Returns the last component of path[0, end), without slashes; empty if there is none. */
static struct component last_component(const char *path, size_t end)
{
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t from = end;
	while (from > 0 && path[from - 1] != '/')
		from--;
	return (struct component){from, end};
}

/* Whether a component of the path begins with the text. */
static bool component_begins_with(const char *path, struct component p, const char *text)
{
	size_t n = strlen(text);
	return p.end - p.from >= n && memcmp(path + p.from, text, n) == 0;
}

/* Returns the component that names the model: the last one; in a hub cache, models--OWNER--NAME/snapshots/HASH, NAME,
 * since the hash says nothing. The search backwards for "--" ends at that of the prefix "models--" at the latest. */
static struct component naming_component(const char *path)
{
	struct component last = last_component(path, strlen(path)),
	                 snapshots = last_component(path, last.from);
	struct component cached = last_component(path, snapshots.from);
	if (snapshots.end - snapshots.from != 9 || !component_begins_with(path, snapshots, "snapshots") ||
	    !component_begins_with(path, cached, "models--"))
		return last;
	size_t from = cached.end;
	while (memcmp(path + from - 2, "--", 2) != 0)
		from--;
	return from < cached.end ? (struct component){from, cached.end} : last;
}

/* Returns a model name for a path: letters, digits and underscores, at most EXPR_NAME_MAX; it is the prefix of C
   symbols, so it does not begin with a digit. NULL: no memory. A path without them is "model". */
static const char *model_name(struct arena *a, const char *path)
{
	struct component p = naming_component(path);
	size_t from = p.from, n = p.end;
	char *name = arena_alloc(a, EXPR_NAME_MAX + 1);
	size_t len = 0;
	if (name == NULL)
		return NULL;
	if (from < n && isdigit((unsigned char)path[from]))
		name[len++] = 'm';
	for (size_t i = from; i < n && len < EXPR_NAME_MAX; i++) {
		unsigned char c = (unsigned char)path[i];
		name[len++] = c < 0x80 && isalnum(c) ? (char)tolower(c) : '_';
	}
	name[len] = '\0';
	bool plain = len > 0 && (isalpha((unsigned char)name[0]) || strspn(name, "_") < len);
	return plain ? name : "model";
}

static int compare_strings(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns a name as a YAML value; null must be quoted to be a string. */
static const char *quote_if_null(struct arena *a, const char *name)
{
	return strcasecmp(name, "null") == 0 ? yaml_quote(a, name) : name;
}

/* A file of the folder as a YAML scalar of that text. */
static const char *hub_dir_scalar(struct arena *a, const char *at, const char *name)
{
	return at[0] == '\0' ? name : yaml_quote(a, file_join(a, at, name));
}

/* ---- tokenizer files ---- */

struct tokenizer_file_set {
	const char *kind; /* "": implied by the keys */
	struct {
		const char *key, *name;
	} parts[3]; /* all must exist */
};

/* In order of preference: the first set wins, as a tokenizer.json describes the tokenizer completely. */
static const struct tokenizer_file_set tokenizer_file_sets[] = {
        {"", {{"file", "tokenizer.json"}}},
        {"marian", {{"source", "source.spm"}, {"target", "target.spm"}, {"vocab", "vocab.json"}}},
        {"", {{"vocab", "vocab.json"}, {"merges", "merges.txt"}}},
        {"sentencepiece", {{"file", "tokenizer.model"}}},
        {"sentencepiece", {{"file", "spiece.model"}}},
        {"sentencepiece", {{"file", "sentencepiece.bpe.model"}}},
        {"wordpiece", {{"vocab", "vocab.txt"}}},
};

/* First set of tokenizer files that all exist, in the order of the table; NULL: none. */
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

/* The tokenizer class: named by the configuration, or the default of its model type; NULL: none. The default wins
 * over a name where the type's tokenizer is taken as it is, and over one with characters that no class name has,
 * which could not be written as a bare word. */
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

/* Returns the section `tokenizer` for the files of the directory; "": it has none that is known. It is optional: an
 * unsupported tokenizer is no error for programs that work on ids. */
static const char *hub_dir_tokenizer(struct arena *a, const char *dir, const char *at,
                                     const struct json_node *config)
{
	static const char *const optional_files[][2] = {{"config", "tokenizer_config.json"},
	                                                {"special", "special_tokens_map.json"},
	                                                {"added", "added_tokens.json"}};
	const struct tokenizer_file_set *tokenizer_files = find_files(a, dir);
	const char *more = "", *text = "";
	if (tokenizer_files == NULL)
		return "";
	/* read_marian() in tokenizer.c reads no configuration files. */
	bool marian = strcmp(tokenizer_files->kind, "marian") == 0;
	for (size_t i = 0; !marian && i < TFMC_COUNT(optional_files); i++)
		if (directory_has_file(a, dir, optional_files[i][1]))
			more = arena_printf(a, "%s, %s: %s", more, optional_files[i][0],
			                    hub_dir_scalar(a, at, optional_files[i][1]));
	const char *class = tokenizer_class(config, tokenizer_files == &tokenizer_file_sets[0]);
	if (class != NULL && !marian)
		more = arena_printf(a, "%s, class: %s", more, class);
	if (marian && directory_has_file(a, dir, "target_vocab.json"))
		more = arena_printf(a, ", target_vocab: %s", hub_dir_scalar(a, at, "target_vocab.json"));
	for (size_t k = 0; k < TFMC_COUNT(tokenizer_files->parts) && tokenizer_files->parts[k].name != NULL;
	     k++)
		text = arena_printf(a, "%s%s%s: %s", text, k == 0 ? "" : ", ", tokenizer_files->parts[k].key,
		                    hub_dir_scalar(a, at, tokenizer_files->parts[k].name));
	return arena_printf(a, "tokenizer: {%s%s%s%s%s, embed: true, optional: true}\n",
	                    tokenizer_files->kind[0] != '\0' ? "kind: " : "", tokenizer_files->kind,
	                    tokenizer_files->kind[0] != '\0' ? ", " : "", text, more);
}

/* ---- ids that only the tokenizer has ---- */

/* tokenizer_config.json may have a length beyond int64, which is truncated (json_truncate_long_ints). */
const struct json_node *hub_dir_json(struct parsed_files *f, const char *dir, const char *name)
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
	return directory_has_file(f->arena, dir, file) ? hub_dir_json(f, dir, file) : &empty;
}

static int64_t id_of(const struct json_node *v)
{
	return v != NULL && v->kind == JSON_NODE_INT && v->i >= 0 && v->i <= INT32_MAX ? v->i : -1;
}

/* Returns the id of a string in added_tokens_decoder, {"2": {"content": "</s>"}}; -1: none. The key is the id. */
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

/* Returns the id of a string in tokenizer.json: in added_tokens, which win, or in the vocabulary, an object or a list
 * of pairs whose position is the id (Unigram); -1: none. */
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

/* The first file that has the string counts: the files of added tokens before the vocabularies. */
bool hub_dir_token_id(struct parsed_files *f, const char *dir, const char *text, int64_t *id)
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

/* The token is a string, or an object with its string as `content`. */
bool hub_dir_token_of(struct parsed_files *f, const char *dir, const char *key, const char **text)
{
	static const char *const tokenizer_files[] = {"tokenizer_config.json", "special_tokens_map.json"};
	*text = NULL;
	for (size_t i = 0; *text == NULL && i < TFMC_COUNT(tokenizer_files); i++) {
		const struct json_node *root = optional_json(f, dir, tokenizer_files[i]);
		if (root == NULL)
			return false;
		*text = string_member(root, key);
		if (*text == NULL) /* an object */
			*text = string_member(json_find(root, key), "content");
	}
	return true;
}

/* ---- sentence embedders ---- */

/* The collected settings of all modules. */
struct sentence {
	struct parsed_files *f;
	const char *dir;
	const char *pooling;
	const char *weights; /* weights of the projection; NULL: none */
	const char *act;
	int64_t width;
	bool bias;
	bool normalize;
	int64_t max_tokens; /* maximum tokens of the embedder; 0: those of the model */
};

/* Reports what a file of the embedder contains and tfmc does not support. Always false. */
static bool reject(struct sentence *s, const char *file, const char *what)
{
	diag_error(s->f->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: %s in '%s'", what,
	           file_join(s->f->arena, s->dir, file));
	return false;
}

/* Reads a JSON file of the embedder's directory; NULL after a diagnostic. */
static const struct json_node *read_json_file(struct sentence *s, const char *name)
{
	const char *path = file_path_inside(s->f->arena, s->f->cx, s->dir, name, LOC_NONE);
	const struct parsed_file *file;
	return path != NULL && parsed_json(s->f, path, LOC_NONE, false, &file) == TFMC_OK ? file->root : NULL;
}

/* The `kind` of step `pool` for pooling_mode_KEY: true, or pooling_mode: KEY; NULL: unknown. */
static const char *pooling_kind(const char *mode)
{
	static const char *const names[][2] = {
	        {"cls_token", "cls"}, {"mean_tokens", "mean"}, {"max_tokens", "max"}, {"lasttoken", "last"},
	        {"cls", "cls"},       {"mean", "mean"},        {"max", "max"}};
	for (size_t i = 0; i < TFMC_COUNT(names); i++) {
		if (strcmp(names[i][0], mode) == 0)
			return names[i][1];
	}
	return NULL;
}

/* Sets the pooling from a mode of the configuration. False after a diagnostic: unknown, or a second one. */
static bool read_mode(struct sentence *s, const char *file, const char *mode)
{
	const char *kind = pooling_kind(mode);
	if (kind == NULL)
		return reject(s, file, arena_printf(s->f->arena, "pooling '%s'", mode));
	if (s->pooling != NULL)
		return reject(s, file, "more than one pooling");
	s->pooling = kind;
	return true;
}

/* Reads the configuration of a Pooling module; exactly one mode is supported. The width is that of the model, and
 * include_prompt matters with prompts only (read_prompt); any other key may change the result. */
static bool read_pooling(struct sentence *s, const char *directory)
{
	static const char prefix[] = "pooling_mode_";
	const char *file =
	        directory[0] != '\0' ? file_join(s->f->arena, directory, "config.json") : "config.json";
	const struct json_node *config = read_json_file(s, file);
	bool ok = config != NULL && config->kind == JSON_NODE_OBJECT;
	for (size_t i = 0; ok && i < config->n; i++) {
		const char *key = config->keys[i];
		const struct json_node *v = &config->items[i];
		if (strcmp(key, "word_embedding_dimension") == 0 || strcmp(key, "embedding_dimension") == 0 ||
		    strcmp(key, "include_prompt") == 0)
			continue;
		if (strcmp(key, "pooling_mode") == 0 && v->kind == JSON_NODE_STRING)
			ok = read_mode(s, file, v->text);
		else if (strncmp(key, prefix, strlen(prefix)) == 0 && v->kind == JSON_NODE_BOOL)
			ok = !v->i || read_mode(s, file, key + strlen(prefix));
		else
			ok = reject(s, file, arena_printf(s->f->arena, "'%s'", key));
	}
	if (ok && s->pooling == NULL)
		return reject(s, file, "no pooling");
	return ok;
}

/* Last component of a dotted class name. */
static const char *class_name(const char *path)
{
	const char *dot = strrchr(path, '.');
	return dot != NULL ? dot + 1 : path;
}

/* Activation computed by a torch.nn class, NULL: unknown. */
static const char *act_name(const char *path)
{
	static const char *const names[][2] = {{"Identity", "identity"}, {"Tanh", "tanh"},
	                                       {"ReLU", "relu"},         {"GELU", "gelu"},
	                                       {"SiLU", "silu"},         {"Sigmoid", "sigmoid"}};
	for (size_t i = 0; i < TFMC_COUNT(names); i++) {
		if (strcmp(names[i][0], class_name(path)) == 0)
			return names[i][1];
	}
	return NULL;
}

/* Reads one key of the configuration of a projection. False after a diagnostic: it may change the computation. */
static bool read_dense_key(struct sentence *s, const char *file, const char *key, const struct json_node *v)
{
	if (strcmp(key, "in_features") == 0)
		return true; /* redundant: the shape of the weight */
	if ((strcmp(key, "module_input_name") == 0 || strcmp(key, "module_output_name") == 0) &&
	    (v->kind == JSON_NODE_NULL ||
	     (v->kind == JSON_NODE_STRING && strcmp(v->text, "sentence_embedding") == 0)))
		return true;
	if (strcmp(key, "out_features") == 0 && v->kind == JSON_NODE_INT && v->i > 0)
		s->width = v->i;
	else if (strcmp(key, "bias") == 0 && v->kind == JSON_NODE_BOOL)
		s->bias = v->i != 0;
	else if (strcmp(key, "activation_function") == 0 && v->kind == JSON_NODE_STRING &&
	         act_name(v->text) != NULL)
		s->act = act_name(v->text);
	else
		return reject(s, file,
		              v->kind == JSON_NODE_STRING
		                      ? arena_printf(s->f->arena, "'%s': '%s'", key, v->text)
		                      : arena_printf(s->f->arena, "'%s'", key));
	return true;
}

/* Reads a Dense module: a projection of the pooled state, with a config.json and a file with linear.weight and
 * linear.bias, of which safetensors wins. The directory is written into the model file, so a name that would need
 * escapes is rejected. */
static bool read_dense(struct sentence *s, const char *directory)
{
	const char *file = file_join(s->f->arena, directory, "config.json");
	if (directory[0] == '\0' || strpbrk(directory, "'\n\r") != NULL)
		return reject(s, "modules.json", "the folder of a projection by that name");
	const struct json_node *config = read_json_file(s, file);
	bool ok = config != NULL && config->kind == JSON_NODE_OBJECT;
	/* The defaults of sentence-transformers. */
	s->bias = true;
	s->act = "tanh";
	s->weights = file_join(s->f->arena, directory, "model.safetensors");
	const char *torch = file_join(s->f->arena, directory, "pytorch_model.bin");
	if (!directory_has_file(s->f->arena, s->dir, s->weights) &&
	    directory_has_file(s->f->arena, s->dir, torch))
		s->weights = torch;
	for (size_t i = 0; ok && i < config->n; i++)
		ok = read_dense_key(s, file, config->keys[i], &config->items[i]);
	return ok && (s->width > 0 || reject(s, file, "a projection without 'out_features'"));
}

/* Reads entry `at` of modules.json; `type` is a class name, of which the last component counts. Transformer, pooling,
 * at most one projection and normalization follow in this order, as the preset computes them. */
static bool read_module(struct sentence *s, size_t at, const struct json_node *module)
{
	const struct json_node *type = json_find(module, "type"), *path = json_find(module, "path");
	if (type == NULL || type->kind != JSON_NODE_STRING || path == NULL || path->kind != JSON_NODE_STRING)
		return reject(s, "modules.json", "a module without type and path");
	const char *name = class_name(type->text);
	if (at == 0 && strcmp(name, "Transformer") == 0 && path->text[0] == '\0')
		return true;
	if (at == 1 && strcmp(name, "Pooling") == 0)
		return read_pooling(s, path->text);
	if (at >= 2 && s->weights == NULL && !s->normalize && strcmp(name, "Dense") == 0)
		return read_dense(s, path->text);
	if (at >= 2 && !s->normalize && strcmp(name, "Normalize") == 0) {
		s->normalize = true;
		return true;
	}
	return reject(s, "modules.json", arena_printf(s->f->arena, "module %zu, '%s'", at, name));
}

/* Reads the maximum length. Longer texts would be truncated by sentence-transformers, so the model is not compiled
 * for more. */
static bool read_max_tokens(struct sentence *s)
{
	static const char file[] = "sentence_bert_config.json";
	if (!directory_has_file(s->f->arena, s->dir, file))
		return true;
	const struct json_node *config = read_json_file(s, file),
	                       *max_tokens = json_find(config, "max_seq_length");
	if (config == NULL)
		return false;
	const struct json_node *lower = json_find(config, "do_lower_case");
	if (lower != NULL && lower->kind == JSON_NODE_BOOL && lower->i)
		diag_warning(s->f->cx, LOC_NONE, DIAG_UNSUPPORTED,
		             "'do_lower_case' in '%s' is left to the tokenizer",
		             file_join(s->f->arena, s->dir, file));
	if (max_tokens == NULL || max_tokens->kind == JSON_NODE_NULL)
		return true;
	if (max_tokens->kind != JSON_NODE_INT || max_tokens->i < 1 || max_tokens->i > INT32_MAX)
		return reject(s, file, "'max_seq_length' that is not a number of tokens");
	s->max_tokens = max_tokens->i;
	return true;
}

/* Rejects a default prompt: sentence-transformers prepends it to texts, an object does not. */
static bool read_prompt(struct sentence *s)
{
	static const char file[] = "config_sentence_transformers.json";
	if (!directory_has_file(s->f->arena, s->dir, file))
		return true;
	const struct json_node *config = read_json_file(s, file),
	                       *name = json_find(config, "default_prompt_name");
	if (config == NULL)
		return false;
	return name == NULL || name->kind == JSON_NODE_NULL ||
	       reject(s, file, "'default_prompt_name': write the prompt into the text");
}

/* Returns the model file text for the modules. They are written as `set`, which rejects params that the preset lacks.
 * The bound of the tokens is that of the embedder, within that of the model. */
static const char *sentence_text(struct sentence *s, const char *preset)
{
	const char *dense = "", *dims = "";
	if (s->max_tokens != 0)
		dims = arena_printf(s->f->arena, "dims: {S: \"1..min(%" PRId64 ", ctx)\"}\n", s->max_tokens);
	if (s->weights != NULL)
		dense = arena_printf(s->f->arena,
		                     ", sentence: %" PRId64 ", sentence_bias: %s, sentence_act: \"%s\"",
		                     s->width, s->bias ? "true" : "false", s->act);
	return arena_printf(
	        s->f->arena,
	        "preset: %s\nset: {pooling: \"%s\"%s, normalize: %s}\n%soutputs: {sentence_embedding: x}\n",
	        preset, s->pooling, dense, s->normalize ? "true" : "false", dims);
}

/* Text for the modules of a sentence embedder (modules.json): parameters and an output, "" without pooling, where the
 * hidden states are the output; NULL after a diagnostic. *weights: file of the projection after the pooling, NULL:
 * none. */
static const char *hub_dir_sentence(struct parsed_files *f, const char *dir, const char **weights)
{
	struct sentence s = {.f = f, .dir = dir};
	const struct json_node *modules = read_json_file(&s, "modules.json");
	*weights = NULL;
	if (modules == NULL)
		return NULL;
	if (modules->kind != JSON_NODE_ARRAY) {
		reject(&s, "modules.json", "something other than a list of modules");
		return NULL;
	}
	for (size_t i = 0; i < modules->n; i++) {
		if (!read_module(&s, i, &modules->items[i]))
			return NULL;
	}
	if (s.pooling == NULL)
		return "";
	if (!read_max_tokens(&s) || !read_prompt(&s))
		return NULL;
	const struct json_node *config = read_json_file(&s, "config.json");
	const struct json_node *type = config != NULL ? json_find(config, "model_type") : NULL;
	const char *preset = NULL;
	if (type != NULL && type->kind == JSON_NODE_STRING) {
		preset = preset_of_architecture(f->arena, type->text, "sentence");
		preset = preset != NULL ? preset : preset_of_type(type->text);
	}
	if (preset == NULL) {
		if (config != NULL)
			reject(&s, "config.json", "a type of model that no preset pools");
		return NULL;
	}
	*weights = s.weights;
	return sentence_text(&s, preset);
}

/* ---- hub directories ---- */

/* Reports that a directory cannot be read; error: an errno. */
static void report_unreadable(struct diag_context *cx, const char *dir, int error)
{
	diag_environment_error(cx, LOC_NONE, DIAG_FILE, "cannot read '%s': %s", dir, strerror(error));
}

/* The next entry; NULL: the end (*error 0), or the directory cannot be read further. readdir() tells the two apart by
 * errno alone. */
static const struct dirent *next_entry(DIR *d, int *error)
{
	errno = 0;
	const struct dirent *e = readdir(d);
	*error = e == NULL ? errno : 0;
	return e;
}

/* Returns the names of all files with a suffix as a YAML list without brackets, sorted by name, as the order of a
 * directory is arbitrary; NULL: none, or after a diagnostic. `at`: path of the directory as seen from the model file.
 */
static const char *list_files_with_suffix(struct arena *a, struct diag_context *cx, const char *dir,
                                          const char *at, const char *ending)
{
	const char *names[FILES_MAX], *list = NULL;
	size_t n = 0;
	int error = 0;
	DIR *d = opendir(dir);
	if (d == NULL) {
		report_unreadable(cx, dir, errno);
		return NULL;
	}
	for (const struct dirent *e; n <= FILES_MAX && (e = next_entry(d, &error)) != NULL;) {
		size_t len = strlen(e->d_name), end = strlen(ending);
		bool is_listed = len > end && strcmp(e->d_name + len - end, ending) == 0 &&
		                 directory_has_file(a, dir, e->d_name);
		if (is_listed && n < FILES_MAX)
			names[n] = arena_strdup(a, e->d_name);
		n += is_listed;
	}
	closedir(d);
	if (error != 0) {
		report_unreadable(cx, dir, error);
		return NULL;
	}
	if (n > FILES_MAX) {
		diag_error(cx, LOC_NONE, DIAG_LIMIT, "'%s' has more than %d files whose names end with %s",
		           dir, FILES_MAX, ending);
		return NULL;
	}
	qsort(names, n, sizeof(names[0]), compare_strings);
	for (size_t i = 0; i < n; i++)
		list = arena_printf(a, "%s%s%s", list == NULL ? "" : list, list == NULL ? "" : ", ",
		                    yaml_quote(a, file_join(a, at, names[i])));
	return list;
}

#define OTHER_TORCH_NAME "a file by another name than pytorch_model.bin"
#define TORCH_ADVICE                                                                             \
	"if torch.save wrote it, a model file reads it: {tfmc: 1, name: NAME, hf: config.json, " \
	"weights: {files: [FILE]}}"

/* Weight files that are not used, with advice. */
static const struct substitute {
	const char *name; /* file name, or a suffix that begins with a dot */
	const char *what, *advice;
} substitutes[] = {
        {"adapter_config.json", "an adapter (LoRA) for another model",
         "give that model, and this folder as its adapter: tfmc MODEL --adapter=FOLDER"},
        {".gguf", "GGUF files", "a GGUF file is a model of its own: give its name in place of the folder's"},
        {".onnx", "a model as a graph of ONNX",
         "an ONNX file is a model of its own: give its name in place of the folder's"},
        {".h5", "weights of TensorFlow",
         "transformers of version 4 reads them: from_pretrained(FOLDER, "
         "from_tf=True).save_pretrained(OTHER)"},
        {".msgpack", "weights of Flax",
         "transformers of version 4 reads them: from_pretrained(FOLDER, "
         "from_flax=True).save_pretrained(OTHER)"},
        {".bin", OTHER_TORCH_NAME, TORCH_ADVICE},
        {".pt", OTHER_TORCH_NAME, TORCH_ADVICE},
        {".pth", OTHER_TORCH_NAME, TORCH_ADVICE},
};

/* Returns the first file name with a suffix, in alphabetical order; NULL: none, or after a diagnostic, or the
 * directory cannot be opened, which its first reader reports. */
static const char *first_file_with_suffix(struct arena *a, struct diag_context *cx, const char *dir,
                                          const char *ending)
{
	const char *first = NULL;
	int error = 0;
	DIR *d = opendir(dir);
	if (d == NULL)
		return NULL;
	for (const struct dirent *e; (e = next_entry(d, &error)) != NULL;) {
		if (file_ends_with(e->d_name, ending) && (first == NULL || strcmp(e->d_name, first) < 0))
			first = arena_strdup(a, e->d_name);
	}
	closedir(d);
	if (error != 0)
		report_unreadable(cx, dir, error);
	return error != 0 ? NULL : first;
}

/* Reports unsupported weights in the directory, the first kind of the table that is there, or that it cannot be read;
 * false: none found, and nothing reported. */
static bool report_substitute(struct arena *a, struct diag_context *cx, const char *dir)
{
	size_t errors = cx->n_errors;
	for (size_t i = 0; i < TFMC_COUNT(substitutes); i++) {
		const struct substitute *s = &substitutes[i];
		const char *found = s->name[0] == '.' ? first_file_with_suffix(a, cx, dir, s->name)
		                    : directory_has_file(a, dir, s->name) ? s->name
		                                                          : NULL;
		if (cx->n_errors > errors)
			return true;
		if (found == NULL)
			continue;
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' holds %s ('%s') and no model", dir, s->what, found);
		diag_note(cx, LOC_NONE, "%s", s->advice);
		return true;
	}
	return false;
}

/* Weights are looked for by the names that save_pretrained writes, safetensors first; else all .safetensors files are
 * taken, unless they are those of an adapter. The projection of a sentence embedder is a further file. */
const char *hub_dir_model(struct parsed_files *f, const char *path, const char *name, const char *at,
                          const char *adapters, enum tfmc_status *st)
{
	struct arena *a = f->arena;
	struct diag_context *cx = f->cx;
	static const char *const names[] = {"model.safetensors.index.json", "model.safetensors",
	                                    "pytorch_model.bin", "pytorch_model.bin.index.json"};
	const char *files = NULL;
	size_t errors = cx->n_errors;
	*st = TFMC_IO;
	if (!directory_has_file(a, path, "config.json")) {
		if (report_substitute(a, cx, path))
			return NULL;
		diag_error(cx, LOC_NONE, DIAG_FILE, "'%s' is a folder without config.json", path);
		diag_note(cx, LOC_NONE,
		          "a model folder has config.json and weights (safetensors or pytorch_model.bin); a "
		          "model file (.yaml) is given by its name");
		return NULL;
	}
	for (size_t i = 0; files == NULL && i < TFMC_COUNT(names); i++)
		files = directory_has_file(a, path, names[i]) ? hub_dir_scalar(a, at, names[i]) : NULL;
	if (files == NULL && !directory_has_file(a, path, "adapter_config.json"))
		files = list_files_with_suffix(a, cx, path, at, ".safetensors");
	/* Reported already: too many files; or the folder cannot be read, an error of the environment, which sets the
	 * exit code whatever *st is. */
	if (files == NULL && cx->n_errors != errors)
		*st = TFMC_INVALID;
	if (files == NULL && cx->n_errors == errors && !report_substitute(a, cx, path))
		diag_error(cx, LOC_NONE, DIAG_FILE,
		           "'%s' has no weights: no file ends with .safetensors, none is pytorch_model.bin",
		           path);
	if (files == NULL)
		return NULL;
	const char *more = NULL, *projection = NULL;
	const struct json_node *config = hub_dir_json(f, path, "config.json");
	if (config != NULL && directory_has_file(a, path, "modules.json"))
		more = hub_dir_sentence(f, path, &projection);
	else if (config != NULL)
		more = hub_dir_generation(f, path, config);
	if (projection != NULL)
		files = arena_printf(a, "%s, %s", files, yaml_quote(a, file_join(a, at, projection)));
	*st = more == NULL ? TFMC_INVALID : TFMC_OK;
	return more == NULL ? NULL
	                    : arena_printf(a, "tfmc: 1\nname: %s\nhf: %s\n%sweights: {files: [%s]%s}\n%s",
	                                   quote_if_null(a, name != NULL ? name : model_name(a, path)),
	                                   hub_dir_scalar(a, at, "config.json"), more, files, adapters,
	                                   hub_dir_tokenizer(a, path, at, config));
}

/* ---- GGUF ---- */

#define PARTS_MAX 1000

bool is_gguf_file(struct diag_context *cx, const char *path)
{
	return file_begins_with(cx, path, "GGUF", 4);
}

static const char part_suffix[] = "-#####-of-#####.gguf";

/* Parses NAME-00002-of-00003.gguf: part 2 of 3, matching the end of the path against part_suffix, whose # stand for
 * digits. False for other names, and for numbers out of range. */
static bool parse_part_name(const char *path, int *component, int *parts)
{
	size_t n = strlen(path), len = sizeof(part_suffix) - 1;
	int numbers[2] = {0, 0}, at = 0;
	if (n <= len)
		return false;
	const char *end = path + n - len;
	for (size_t i = 0; i < len; i++) {
		bool digit = part_suffix[i] == '#' && isdigit((unsigned char)end[i]);
		if (!digit && part_suffix[i] != end[i])
			return false;
		if (digit)
			numbers[at] = numbers[at] * 10 + (end[i] - '0');
		at += digit && part_suffix[i + 1] != '#' && at == 0;
	}
	*component = numbers[0];
	*parts = numbers[1];
	return *component >= 1 && *component <= *parts && *parts <= PARTS_MAX;
}

int gguf_part_count(const char *path)
{
	int component, parts;
	return parse_part_name(path, &component, &parts) && component == 1 ? parts : 1;
}

/* All parts have the name of the first one but for its number. */
const char *gguf_part_name(struct arena *a, const char *path, int i)
{
	int parts = gguf_part_count(path);
	if (parts == 1)
		return path;
	size_t stem = strlen(path) - (sizeof(part_suffix) - 1);
	return arena_printf(a, "%.*s-%05d-of-%05d.gguf", (int)stem, path, i, parts);
}

/* Returns the integer metadata key ARCHITECTURE.key; -1: not this architecture, or no such key. Strings of GGUF are
 * not zero-terminated. */
static int64_t architecture_key(struct arena *a, const struct gguf *g, const char *architecture,
                                const char *key)
{
	const struct gguf_value *name = gguf_find(g, "general.architecture");
	if (name == NULL || name->type != GGUF_STRING || name->len != strlen(architecture) ||
	    memcmp(name->text, architecture, name->len) != 0)
		return -1;
	const struct gguf_value *v = gguf_find(g, arena_printf(a, "%s.%s", architecture, key));
	return v != NULL && gguf_is_integer_type(v->type) ? v->i : -1;
}

/* Returns the text for bert.pooling_type (0 none, then as in `kinds`): pooling and its output; "": none. A warning
 * for a type that is not supported: the hidden states are still right. */
static const char *pooling_text(struct arena *a, struct diag_context *cx, const char *path,
                                const struct gguf *g)
{
	static const char *const kinds[] = {NULL, "mean", "cls", "last"};
	int64_t type = architecture_key(a, g, "bert", "pooling_type");
	if (type >= (int64_t)TFMC_COUNT(kinds))
		diag_warning(cx, LOC_NONE, DIAG_UNSUPPORTED,
		             "'%s': not supported yet: bert.pooling_type %lld; hidden states are not pooled",
		             path, (long long)type);
	return type < 1 || type >= (int64_t)TFMC_COUNT(kinds)
	               ? ""
	               : arena_printf(a, "set: {pooling: \"%s\"}\noutputs: {sentence_embedding: x}\n",
	                              kinds[type]);
}

/*
 * Returns the text for metadata: pooling, and the section `tokenizer` if the file has one; NULL after a diagnostic.
 */
static const char *gguf_sections(struct parsed_files *f, const char *path, const char *base)
{
	const struct parsed_file *file;
	if (parsed_gguf(f, path, LOC_NONE, &file) != TFMC_OK)
		return NULL;
	const char *pooling = pooling_text(f->arena, f->cx, path, &file->gguf);
	if (!gguf_has_tokenizer(&file->gguf))
		return pooling;
	return arena_printf(f->arena, "%stokenizer: {kind: gguf, file: %s, embed: true, optional: true}\n",
	                    pooling, yaml_quote(f->arena, base));
}

/* A split file is named by its first part, which has the metadata of the model. */
const char *gguf_model(struct parsed_files *f, const char *path, const char *name, const char *at)
{
	struct arena *a = f->arena;
	const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
	const char *first = file_join(a, at, base), *files = yaml_quote(a, first);
	size_t n = strlen(base);
	int parts = gguf_part_count(base);
	int component, of;
	if (parse_part_name(base, &component, &of) && component > 1) {
		diag_error(f->cx, LOC_NONE, DIAG_FILE, "'%s' is part %d of %d of a GGUF file", path,
		           component, of);
		diag_note(f->cx, LOC_NONE,
		          "give the first part, '%.*s-00001-of-%05d.gguf'; the others beside it are read",
		          (int)(n - (sizeof(part_suffix) - 1)), base, of);
		return NULL;
	}
	for (int i = 2; i <= parts; i++)
		files = arena_printf(a, "%s, %s", files, yaml_quote(a, gguf_part_name(a, first, i)));
	if (parts > 1) /* the model's name is that of the file, without the suffix */
		n -= sizeof(part_suffix) - 1;
	else if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
		n -= 5;
	const char *sections = gguf_sections(f, path, first);
	if (sections == NULL)
		return NULL;
	return arena_printf(a, "tfmc: 1\nname: %s\nhf: %s\nweights: {files: [%s]}\n%s",
	                    quote_if_null(a, name != NULL ? name : model_name(a, arena_strndup(a, base, n))),
	                    yaml_quote(a, first), files, sections);
}
