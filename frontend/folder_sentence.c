/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of sentence embedders: modules.json says what happens to the hidden
 * states of the model, and what it says becomes the params `pooling` and
 * `normalize` of the preset. Modules and modes that no preset has are refused by name.
 */
#include <string.h>

#include "frontend/compose.h"
#include "frontend/files.h"
#include "frontend/folder.h"
#include "frontend/json.h"
#include "frontend/yaml_tree.h"

struct sentence {
	struct arena *a;
	struct diag_context *cx;
	const char *dir;
	const char *pooling;
	bool normalize;
};

static bool refuse(struct sentence *s, const char *file, const char *what)
{
	diag_error(s->cx, LOC_NONE, DIAG_UNSUPPORTED, "not supported yet: %s in '%s'", what,
	           file_join(s->a, s->dir, file));
	return false;
}

static const struct json_node *read(struct sentence *s, const char *file)
{
	const char *text, *path = file_beneath(s->a, s->cx, s->dir, file, LOC_NONE);
	size_t len;
	if (path == NULL || file_read(s->a, s->cx, path, YAML_FILE_MAX, LOC_NONE, &text, &len) != TFMC_OK)
		return NULL;
	const struct json_source src = {.name = path, .loc = LOC_NONE, .code = DIAG_FILE};
	return json_parse(s->a, s->cx, &src, text, len);
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
		return refuse(s, file, arena_printf(s->a, "pooling '%s'", mode));
	if (s->pooling != NULL)
		return refuse(s, file, "more than one pooling");
	s->pooling = kind;
	return true;
}

static bool read_pooling(struct sentence *s, const char *folder)
{
	static const char prefix[] = "pooling_mode_";
	const char *file = folder[0] != '\0' ? file_join(s->a, folder, "config.json") : "config.json";
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
			ok = refuse(s, file, arena_printf(s->a, "'%s'", key));
	}
	if (ok && s->pooling == NULL)
		return refuse(s, file, "no pooling");
	return ok;
}

/* One entry of modules.json; `type` is the name of a class, known by its last part. */
static bool read_module(struct sentence *s, size_t at, const struct json_node *module)
{
	const struct json_node *type = json_find(module, "type"), *path = json_find(module, "path");
	if (type == NULL || type->kind != JSON_NODE_STRING || path == NULL || path->kind != JSON_NODE_STRING)
		return refuse(s, "modules.json", "a module without type and path");
	const char *dot = strrchr(type->text, '.'), *name = dot != NULL ? dot + 1 : type->text;
	if (at == 0 && strcmp(name, "Transformer") == 0 && path->text[0] == '\0')
		return true;
	if (at == 1 && strcmp(name, "Pooling") == 0)
		return read_pooling(s, path->text);
	if (at == 2 && strcmp(name, "Normalize") == 0) {
		s->normalize = true;
		return true;
	}
	return refuse(s, "modules.json", arena_printf(s->a, "module %zu, '%s'", at, name));
}

const char *folder_sentence(struct arena *a, struct diag_context *cx, const char *dir)
{
	struct sentence s = {.a = a, .cx = cx, .dir = dir};
	const struct json_node *modules = read(&s, "modules.json");
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
	const struct json_node *config = read(&s, "config.json");
	const struct json_node *type = config != NULL ? json_find(config, "model_type") : NULL;
	const char *preset =
	        type != NULL && type->kind == JSON_NODE_STRING ? preset_of_type(type->text) : NULL;
	if (preset == NULL) {
		if (config != NULL)
			refuse(&s, "config.json", "a type of model that no preset pools");
		return NULL;
	}
	return arena_printf(
	        a, "preset: %s\nparams: {pooling: \"%s\", normalize: %s}\noutputs: {sentence_embedding: x}\n",
	        preset, s.pooling, s.normalize ? "true" : "false");
}
