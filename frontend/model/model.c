/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one name space of a model, what its expressions may name, and searches
 * in its lists.
 */
#include "frontend/model/model.h"

#include <string.h>

bool model_declare(struct frontend_model *m, const char *name, const char *what, struct loc loc)
{
	if (!expr_is_name(name)) {
		diag_error(m->cx, loc, DIAG_NAME, "'%s' is not a name (letters, digits, _; at most 63)",
		           name);
		return false;
	}
	const char *old = strmap_get(&m->names, name);
	if (old != NULL) {
		diag_error(m->cx, loc, DIAG_NAME_CLASH, "%s '%s' has the name of %s", what, name, old);
		return false;
	}
	char *text = arena_alloc(&m->arena, strlen(what) + 3);
	if (text == NULL)
		return false;
	memcpy(text, "a ", 2);
	memcpy(text + 2, what, strlen(what));
	strmap_set(&m->names, name, text);
	return true;
}

const struct yaml_node *model_section(const struct frontend_model *m, const char *key)
{
	return yaml_find(m->root, key);
}

static enum expr_lookup lookup(void *user, const char *name, struct loc loc, struct value *out)
{
	struct frontend_model *m = user;
	const struct ir_dim *d = ir_dim_sym(m->dims, name);
	if (d != NULL) {
		*out = value_dim(d);
		return EXPR_FOUND;
	}
	return model_lookup_param(m, name, loc, out);
}

static const char *const *suggest(void *user, size_t *n)
{
	struct frontend_model *m = user;
	*n = m->n_suggestions;
	return m->suggestions;
}

struct expr_env model_env(struct frontend_model *m, bool dims)
{
	return (struct expr_env){&m->arena, m->cx, dims ? m->dims : NULL, lookup, suggest, m};
}

int model_find_input(const struct frontend_model *m, const char *name)
{
	for (size_t i = 0; i < m->inputs.n; i++) {
		if (strcmp(m->inputs.items[i].pub.name, name) == 0)
			return (int)i;
	}
	return -1;
}

int model_find_output(const struct frontend_model *m, const char *name)
{
	for (size_t i = 0; i < m->outputs.n; i++) {
		if (strcmp(m->outputs.items[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

const struct definition *model_find_definition(const struct frontend_model *m, const char *name)
{
	for (size_t i = 0; i < m->defines.n; i++) {
		if (strcmp(m->defines.items[i].name, name) == 0)
			return &m->defines.items[i];
	}
	return NULL;
}

void model_note_file(struct frontend_model *m, const char *path)
{
	const char **slot = ARENA_PUSH(&m->arena, &m->read);
	if (slot != NULL)
		*slot = arena_strdup(&m->arena, path);
}
