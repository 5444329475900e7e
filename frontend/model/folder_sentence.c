/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of sentence embedders (sentence-transformers): modules.json lists the modules after the
 * transformer, which become the params `pooling`, `sentence` (width of a projection, with `sentence_bias` and
 * `sentence_act`) and `normalize` of the preset. Unsupported modules and modes are rejected by name.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/model/compose.h"
#include "frontend/syntax/files.h"
#include "frontend/model/folder.h"
#include "frontend/syntax/json.h"

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

static bool reject(struct sentence *s, const char *file, const char *what)
{
	diag_error(s->f->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: %s in '%s'", what,
	           file_join(s->f->arena, s->dir, file));
	return false;
}

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

/* Reads the configuration of a Pooling module; exactly one mode is supported. */
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

/* Reads a Dense module: a projection of the pooled state, with a config.json and a file with linear.weight
 * and linear.bias. */
static bool read_dense(struct sentence *s, const char *directory)
{
	const char *file = file_join(s->f->arena, directory, "config.json");
	if (directory[0] == '\0' || strpbrk(directory, "'\n\r") != NULL)
		return reject(s, "modules.json", "the folder of a projection by that name");
	const struct json_node *config = read_json_file(s, file);
	bool ok = config != NULL && config->kind == JSON_NODE_OBJECT;
	s->bias = true;
	s->act = "tanh";
	s->weights = file_join(s->f->arena, directory, "model.safetensors");
	for (size_t i = 0; ok && i < config->n; i++)
		ok = read_dense_key(s, file, config->keys[i], &config->items[i]);
	return ok && (s->width > 0 || reject(s, file, "a projection without 'out_features'"));
}

/* Reads an entry of modules.json; `type` is a class name, of which the last component counts. */
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

/* Reads the maximum length. Longer texts would be truncated, so the model is not compiled for more. */
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

/* Rejects a default prompt, which would be prepended to texts. */
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

/* Model file text for the modules. `set` rejects params that the preset lacks. */
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

const char *folder_sentence(struct parsed_files *f, const char *dir, const char **weights)
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
