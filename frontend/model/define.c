/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section `define`: signatures such as `gau(x, eps=1e-5)`, and whether a definition is a list of steps, a macro
 * of statements or a function. Bodies are read where they are used.
 */
#include <string.h>

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

struct signature definition_signature(const struct definition *d)
{
	return (struct signature){.name = d->name, .args = d->args, .loc = d->loc};
}

int definition_argument(const struct definition *d, const char *name)
{
	const struct signature s = definition_signature(d);
	return signature_find(&s, name);
}

static bool add_arg(struct model_scope *s, struct definition *d, const char *name, struct loc loc,
                    const struct expr *def)
{
	if (definition_argument(d, name) >= 0) {
		diag_error(s->cx, loc, DIAG_ARGUMENTS, "'%s' declares the argument '%s' twice", d->name,
		           name);
		return false;
	}
	const char *old = strmap_get(&s->names, name);
	if (old != NULL && (strcmp(old, "a param") == 0 || strcmp(old, "a dim") == 0)) {
		diag_error(s->cx, loc, DIAG_NAME_CLASH, "argument '%s' of '%s' has the name of %s", name,
		           d->name, old);
		return false;
	}
	d->args[d->n_args++] = (struct argument){name, ARGUMENT_VALUE, def};
	return true;
}

static bool read_signature(struct model_scope *s, struct definition *d, const struct yaml_node *key)
{
	const struct expr *e = expr_parse(s->arena, s->cx, expr_source_of(key), EXPR_GRAPH);
	if (e == NULL)
		return false;
	if (e->kind != EX_NAME && e->kind != EX_CALL) {
		diag_error(s->cx, key->loc, DIAG_ARGUMENTS,
		           "a definition is written NAME or NAME(a, b=1), found '%s'", key->text);
		return false;
	}
	d->name = e->text;
	d->args = ARENA_ARRAY(s->arena, struct argument, e->n_args + e->n_keywords + 1);
	for (size_t i = 0; i < e->n_args; i++) {
		if (e->args[i]->kind != EX_NAME) {
			diag_error(s->cx, e->args[i]->loc, DIAG_ARGUMENTS, "arguments of '%s' are names",
			           d->name);
			return false;
		}
		if (!add_arg(s, d, e->args[i]->text, e->args[i]->loc, NULL))
			return false;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		if (!add_arg(s, d, e->keywords[i].name, e->keywords[i].loc, e->keywords[i].value))
			return false;
	}
	return model_declare(s, d->name, "definition", key->loc);
}

static bool is_function(const struct yaml_node *body)
{
	const struct yaml_node *last = body->n > 0 ? body->items[body->n - 1] : NULL;
	return last != NULL && last->kind == YAML_SCALAR && strncmp(last->text, "return ", 7) == 0;
}

/* True for a body of statements (macro): it begins with an assignment, require, let or if. Steps are names of
 * kinds or mappings. */
static bool has_statements(const struct yaml_node *body)
{
	static const char *const entries[] = {"require", "let", "if"};
	const struct yaml_node *first = body->n > 0 ? body->items[0] : NULL;
	if (first == NULL || first->kind == YAML_SCALAR)
		return first != NULL && strchr(first->text, '=') != NULL;
	for (size_t i = 0; i < TFMC_COUNT(entries); i++) {
		if (yaml_find(first, entries[i]) != NULL)
			return true;
	}
	return false;
}

bool model_read_definitions(struct model_scope *s, const struct yaml_node *define, struct definitions *out)
{
	bool ok = true;
	if (define == NULL)
		return true;
	if (!yaml_expect(s->cx, define, YAML_MAPPING, "define"))
		return false;
	for (size_t i = 0; i < define->n; i++) {
		struct definition *d = ARENA_PUSH(s->arena, out);
		if (d == NULL)
			return false;
		d->name = "";
		if (!yaml_expect(s->cx, define->pairs[i].value, YAML_SEQUENCE, "a definition"))
			return false;
		d->loc = define->pairs[i].key->loc;
		d->body = define->pairs[i].value;
		d->function = is_function(d->body);
		d->statements = !d->function && has_statements(d->body);
		ok = read_signature(s, d, define->pairs[i].key) && ok;
		if (!d->function && schema_find_step(d->name)) {
			diag_error(s->cx, d->loc, DIAG_NAME_CLASH,
			           "'%s' is a built-in step; give the definition another name", d->name);
			ok = false;
		}
	}
	return ok;
}
