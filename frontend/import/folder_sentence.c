/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of sentence embedders: modules.json says what happens to the hidden
 * states of the model, and what it says becomes the params `pooling`, `sentence` (width of a
 * projection, with `sentence_bias` and `sentence_act`) and `normalize` of the preset.
 * Modules and modes that no preset has are refused by name.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/import/compose.h"
#include "frontend/text/files.h"
#include "frontend/import/folder.h"
#include "frontend/text/json.h"

struct sentence {
	struct parsed_files *f;
	const char *dir;
	const char *pooling;
	const char *weights; /* of the projection; NULL without one */
	const char *act;
	int64_t width;
	bool bias;
	bool normalize;
	int64_t most; /* tokens that the embedder reads; 0: all that the model can */
};

static bool refuse(struct sentence *s, const char *file, const char *what)
{
	diag_error(s->f->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: %s in '%s'", what,
	           file_join(s->f->arena, s->dir, file));
	return false;
}

static const struct json_node *read(struct sentence *s, const char *name)
{
	const char *path = file_path_inside(s->f->arena, s->f->cx, s->dir, name, LOC_NONE);
	const struct parsed_file *file;
	return path != NULL && parsed_json(s->f, path, LOC_NONE, false, &file) == TFMC_OK ? file->root : NULL;
}

/* pooling_mode_KEY: true, or pooling_mode: KEY, in words of the step `pool`. */
static const char *pool_kind(const char *mode)
{
	static const char *const words[][2] = {
	        {"cls_token", "cls"}, {"mean_tokens", "mean"}, {"max_tokens", "max"}, {"lasttoken", "last"},
	        {"cls", "cls"},       {"mean", "mean"},        {"max", "max"}};
	for (size_t i = 0; i < TFMC_COUNT(words); i++) {
		if (strcmp(words[i][0], mode) == 0)
			return words[i][1];
	}
	return NULL;
}

static bool read_mode(struct sentence *s, const char *file, const char *mode)
{
	const char *kind = pool_kind(mode);
	if (kind == NULL)
		return refuse(s, file, arena_printf(s->f->arena, "pooling '%s'", mode));
	if (s->pooling != NULL)
		return refuse(s, file, "more than one pooling");
	s->pooling = kind;
	return true;
}

static bool read_pooling(struct sentence *s, const char *folder)
{
	static const char prefix[] = "pooling_mode_";
	const char *file = folder[0] != '\0' ? file_join(s->f->arena, folder, "config.json") : "config.json";
	const struct json_node *config = read(s, file);
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
			ok = refuse(s, file, arena_printf(s->f->arena, "'%s'", key));
	}
	if (ok && s->pooling == NULL)
		return refuse(s, file, "no pooling");
	return ok;
}

/* The last part of the dotted name of a class. */
static const char *class_name(const char *path)
{
	const char *dot = strrchr(path, '.');
	return dot != NULL ? dot + 1 : path;
}

/* The activation that a class of the framework computes, NULL for others. */
static const char *act_name(const char *path)
{
	static const char *const words[][2] = {{"Identity", "identity"}, {"Tanh", "tanh"},
	                                       {"ReLU", "relu"},         {"GELU", "gelu"},
	                                       {"SiLU", "silu"},         {"Sigmoid", "sigmoid"}};
	for (size_t i = 0; i < TFMC_COUNT(words); i++) {
		if (strcmp(words[i][0], class_name(path)) == 0)
			return words[i][1];
	}
	return NULL;
}

static bool read_dense_key(struct sentence *s, const char *file, const char *key, const struct json_node *v)
{
	if (strcmp(key, "in_features") == 0)
		return true; /* the shape of the weight says it, too */
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
		return refuse(s, file,
		              v->kind == JSON_NODE_STRING
		                      ? arena_printf(s->f->arena, "'%s': '%s'", key, v->text)
		                      : arena_printf(s->f->arena, "'%s'", key));
	return true;
}

/* A projection of the pooled state: its configuration, and a file with linear.weight and linear.bias. */
static bool read_dense(struct sentence *s, const char *folder)
{
	const char *file = file_join(s->f->arena, folder, "config.json");
	if (folder[0] == '\0' || strpbrk(folder, "'\n\r") != NULL)
		return refuse(s, "modules.json", "the folder of a projection by that name");
	const struct json_node *config = read(s, file);
	bool ok = config != NULL && config->kind == JSON_NODE_OBJECT;
	s->bias = true;
	s->act = "tanh";
	s->weights = file_join(s->f->arena, folder, "model.safetensors");
	for (size_t i = 0; ok && i < config->n; i++)
		ok = read_dense_key(s, file, config->keys[i], &config->items[i]);
	return ok && (s->width > 0 || refuse(s, file, "a projection without 'out_features'"));
}

/* One entry of modules.json; `type` is the name of a class, known by its last part. */
static bool read_module(struct sentence *s, size_t at, const struct json_node *module)
{
	const struct json_node *type = json_find(module, "type"), *path = json_find(module, "path");
	if (type == NULL || type->kind != JSON_NODE_STRING || path == NULL || path->kind != JSON_NODE_STRING)
		return refuse(s, "modules.json", "a module without type and path");
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
	return refuse(s, "modules.json", arena_printf(s->f->arena, "module %zu, '%s'", at, name));
}

/* Longer texts are cut off there, so no longer ones are embedded. */
static bool read_most(struct sentence *s)
{
	static const char file[] = "sentence_bert_config.json";
	if (!folder_has(s->f->arena, s->dir, file))
		return true;
	const struct json_node *config = read(s, file), *most = json_find(config, "max_seq_length");
	if (config == NULL)
		return false;
	const struct json_node *lower = json_find(config, "do_lower_case");
	if (lower != NULL && lower->kind == JSON_NODE_BOOL && lower->i)
		diag_warning(s->f->cx, LOC_NONE, DIAG_UNSUPPORTED,
		             "'do_lower_case' in '%s' is left to the tokenizer",
		             file_join(s->f->arena, s->dir, file));
	if (most == NULL || most->kind == JSON_NODE_NULL)
		return true;
	if (most->kind != JSON_NODE_INT || most->i < 1 || most->i > INT32_MAX)
		return refuse(s, file, "'max_seq_length' that is no number of tokens");
	s->most = most->i;
	return true;
}

/* Texts get no prompt of their own in front. */
static bool read_prompt(struct sentence *s)
{
	static const char file[] = "config_sentence_transformers.json";
	if (!folder_has(s->f->arena, s->dir, file))
		return true;
	const struct json_node *config = read(s, file), *name = json_find(config, "default_prompt_name");
	if (config == NULL)
		return false;
	return name == NULL || name->kind == JSON_NODE_NULL ||
	       refuse(s, file, "'default_prompt_name': write the prompt into the text");
}

/* What the modules say in the model language. `set` refuses what the preset has no params for. */
static const char *sentence_text(struct sentence *s, const char *preset)
{
	const char *dense = "", *dims = "";
	if (s->most != 0)
		dims = arena_printf(s->f->arena, "dims: {S: \"1..min(%" PRId64 ", ctx)\"}\n", s->most);
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
	const struct json_node *modules = read(&s, "modules.json");
	*weights = NULL;
	if (modules == NULL)
		return NULL;
	if (modules->kind != JSON_NODE_ARRAY) {
		refuse(&s, "modules.json", "what is no list of modules");
		return NULL;
	}
	for (size_t i = 0; i < modules->n; i++) {
		if (!read_module(&s, i, &modules->items[i]))
			return NULL;
	}
	if (s.pooling == NULL)
		return "";
	if (!read_most(&s) || !read_prompt(&s))
		return NULL;
	const struct json_node *config = read(&s, "config.json");
	const struct json_node *type = config != NULL ? json_find(config, "model_type") : NULL;
	const char *preset = NULL;
	if (type != NULL && type->kind == JSON_NODE_STRING) {
		preset = preset_of_architecture(f->arena, type->text, "sentence");
		preset = preset != NULL ? preset : preset_of_type(type->text);
	}
	if (preset == NULL) {
		if (config != NULL)
			refuse(&s, "config.json", "a type of model that no preset pools");
		return NULL;
	}
	*weights = s.weights;
	return sentence_text(&s, preset);
}
