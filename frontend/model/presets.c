/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built-in presets: the files of presets/, embedded at build time.
 */
#include <string.h>

#include "frontend/model/compose.h"
#include "ir/support/strmap.h"

#define PRESET(name, types) extern const unsigned char preset_##name[];
#include "frontend/model/presets.def"

static const struct {
	const char *name;
	const unsigned char *text;
	const char *types;
} presets[] = {
#define PRESET(name, types) {#name, preset_##name, types},
#include "frontend/model/presets.def"
};

static const char *const names[] = {
#define PRESET(name, types) #name,
#include "frontend/model/presets.def"
};

const char *const *preset_names(size_t *n)
{
	*n = TFMC_COUNT(names);
	return names;
}

static const char *const decoders[] = {
#define PRESET(name, types)
#define DECODER(name, types) #name,
#include "frontend/model/presets.def"
};

static const struct {
	const char *name;
	const char *ends; /* suffixes of architectures */
} heads[] = {
#define PRESET(name, types)
#define HEAD(name, ends) {#name, ends},
#include "frontend/model/presets.def"
};

static bool is_decoder(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(decoders); i++) {
		if (strcmp(decoders[i], name) == 0)
			return true;
	}
	return false;
}

static bool ends_with_one(const char *text, const char *ends)
{
	struct word w = {ends, 0};
	size_t n = strlen(text);
	while (list_word_next(&w)) {
		if (w.n <= n && memcmp(text + n - w.n, w.text, w.n) == 0)
			return true;
	}
	return false;
}

bool preset_split_head(struct arena *a, const char *name, const char **base, const char **head)
{
	for (size_t i = 0; i < TFMC_COUNT(heads); i++) {
		const char *end = arena_printf(a, "_%s", heads[i].name);
		if (!ends_with_one(name, end))
			continue;
		*base = arena_strndup(a, name, strlen(name) - strlen(end));
		*head = arena_printf(a, "head%s", end);
		return *base != NULL && is_decoder(*base);
	}
	return false;
}

const char *preset_of_architecture(struct arena *a, const char *type, const char *architecture)
{
	const char *preset = preset_of_type(arena_printf(a, "%s:%s", type, architecture));
	const char *base = preset_of_type(type);
	if (preset != NULL || base == NULL || !is_decoder(base))
		return preset;
	if (ends_with_one(architecture, "ForCausalLM LMHeadModel"))
		return base;
	for (size_t i = 0; i < TFMC_COUNT(heads) && !ends_with_one(architecture, "HeadsModel"); i++) {
		if (ends_with_one(architecture, heads[i].ends))
			return arena_printf(a, "%s_%s", base, heads[i].name);
	}
	return NULL;
}

const char *preset_architectures(struct arena *a, const char *type)
{
	const char *base = preset_of_type(type), *before = arena_printf(a, "%s:", type), *list = "";
	if (base != NULL && is_decoder(base))
		return "..ForCausalLM, ..ForSequenceClassification, ..ForTokenClassification, ..Model";
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		struct word w = {presets[i].types, 0};
		while (list_word_next(&w)) {
			size_t n = strlen(before);
			if (w.n > n && memcmp(w.text, before, n) == 0 && w.text[n] >= 'A' && w.text[n] <= 'Z')
				list = arena_printf(a, "%s%s%.*s", list, *list ? ", " : "", (int)(w.n - n),
				                    w.text + n);
		}
	}
	return list;
}

const char *preset_text(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (strcmp(presets[i].name, name) == 0)
			return (const char *)presets[i].text;
	}
	return NULL;
}

const char *preset_of_type(const char *type)
{
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (list_has_word(presets[i].types, type, strlen(type)))
			return presets[i].name;
	}
	return NULL;
}

bool preset_generate_kind(struct arena *a, struct diag_context *cx, const char *type,
                          const char *architecture, const char **kind)
{
	const char *name = preset_of_architecture(a, type, architecture), *decoder, *head;
	*kind = NULL;
	if (name != NULL && preset_split_head(a, name, &decoder, &head))
		return true; /* classifiers, taggers, hidden states */
	for (name = name != NULL ? name : preset_of_type(type); name != NULL;) {
		const char *text = preset_text(name);
		const struct yaml_node *root, *generate, *below;
		if (yaml_parse(a, cx, name, text, strlen(text), false, &root) != TFMC_OK)
			return false;
		generate = yaml_find(root, "generate");
		if (generate != NULL && generate->kind != YAML_MAPPING)
			return true;
		if (generate != NULL && yaml_find(generate, "kind") != NULL)
			*kind = yaml_find(generate, "kind")->text;
		below = *kind == NULL ? yaml_find(root, "preset") : NULL;
		name = below != NULL ? below->text : NULL;
	}
	return true;
}

const char *preset_types(struct arena *a, const char *prefix)
{
	const char *list = "";
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (strncmp(presets[i].types, prefix, strlen(prefix)) == 0)
			list = arena_printf(a, "%s%s%s", list, *list ? ", " : "",
			                    presets[i].types + strlen(prefix));
	}
	return list;
}
