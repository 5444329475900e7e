/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of built-in presets. Their texts are the files of presets/, made
 * part of the program when it is built.
 */
#include <string.h>

#include "frontend/import/compose.h"
#include "ir/support/strmap.h"

#define PRESET(name, types) extern const unsigned char preset_##name[];
#include "frontend/presets/presets.def"

static const struct {
	const char *name;
	const unsigned char *text;
	const char *types;
} presets[] = {
#define PRESET(name, types) {#name, preset_##name, types},
#include "frontend/presets/presets.def"
};

static const char *const names[] = {
#define PRESET(name, types) #name,
#include "frontend/presets/presets.def"
};

const char *const *preset_names(size_t *n)
{
	*n = TFMC_COUNT(names);
	return names;
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
		if (word_in(presets[i].types, type, strlen(type)))
			return presets[i].name;
	}
	return NULL;
}

bool preset_generates(struct arena *a, struct diag_context *cx, const char *type, const char *architecture,
                      const char **kind)
{
	const char *name = preset_of_type(arena_printf(a, "%s:%s", type, architecture));
	*kind = NULL;
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

const char *preset_nearest_type(struct arena *a, const char *type)
{
	struct {
		const char **items;
		size_t n, cap;
	} all = {NULL, 0, 0};
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		struct word w = {presets[i].types, 0};
		while (word_next(&w)) {
			const char **slot = memchr(w.text, ':', w.n) == NULL ? ARENA_PUSH(a, &all) : NULL;
			if (slot != NULL)
				*slot = arena_strndup(a, w.text, w.n);
		}
	}
	return did_you_mean(a, type, all.items, arena_failed(a) ? 0 : all.n);
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
