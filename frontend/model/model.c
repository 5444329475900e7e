/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The namespace of a model, the environment of its expressions, and lookup in its lists.
 */
#include "frontend/model/model.h"
#include "ir/support/strmap.h"

#include <string.h>

bool model_declare(struct model_scope *s, const char *name, const char *what, struct loc loc)
{
	if (!expr_is_name(name)) {
		diag_error(s->cx, loc, DIAG_NAME, "'%s' is not a name (letters, digits, _; at most 63)",
		           name);
		return false;
	}
	const char *old = strmap_get(&s->names, name);
	if (old != NULL) {
		diag_error(s->cx, loc, DIAG_NAME_CLASH, "%s '%s' has the name of %s", what, name, old);
		return false;
	}
	return strmap_set(&s->names, name, (char *)(uintptr_t)arena_printf(s->arena, "a %s", what));
}

const struct yaml_node *model_section(const struct frontend_model *m, const char *key)
{
	return yaml_find(m->doc.root, key);
}

static enum expr_lookup lookup_dim_or_param(void *user, const char *name, struct loc loc, struct value *out)
{
	struct model_scope *s = user;
	const struct ir_dim *d = ir_dim_sym(s->dims, name);
	if (d != NULL) {
		*out = value_dim(d);
		return EXPR_FOUND;
	}
	return model_lookup_param(s, name, loc, out);
}

const char *const *model_names(void *scope, size_t *n)
{
	struct model_scope *s = scope;
	size_t n_params = s->params.n, capacity = n_params + ir_dims_count(s->dims);
	const char **names = ARENA_ARRAY(s->arena, const char *, capacity);
	*n = names == NULL ? 0 : capacity;
	for (size_t i = 0; i < *n; i++)
		names[i] = i < n_params ? s->params.items[i].key : ir_dims_sym(s->dims, i - n_params)->name;
	return names;
}

struct expr_env model_env(struct model_scope *s, bool dims)
{
	return (struct expr_env){s->arena, s->cx, dims ? s->dims : NULL, lookup_dim_or_param, model_names, s};
}

int model_find_input(const struct model_inputs *in, const char *name)
{
	for (size_t i = 0; i < in->n; i++) {
		if (strcmp(in->items[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

void model_unknown_input(struct model_scope *s, const struct model_inputs *in, struct loc loc,
                         const char *name, enum diag_code code)
{
	const char **names = ARENA_ARRAY(s->arena, const char *, in->n);
	for (size_t i = 0; names != NULL && i < in->n; i++)
		names[i] = in->items[i].name;
	diag_error(s->cx, loc, code, "no input is called '%s'%s", name,
	           did_you_mean_or_known(s->arena, name, names, names == NULL ? 0 : in->n));
}

int model_find_output(const struct model_outputs *out, const char *name)
{
	for (size_t i = 0; i < out->n; i++) {
		if (strcmp(out->items[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

const struct definition *model_find_definition(const struct definitions *d, const char *name)
{
	for (size_t i = 0; i < d->n; i++) {
		if (strcmp(d->items[i].name, name) == 0)
			return &d->items[i];
	}
	return NULL;
}

void document_record_file(struct model_document *d, const char *path)
{
	ARENA_ADD(d->arena, &d->read, arena_strdup(d->arena, path));
}
