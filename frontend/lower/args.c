/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of steps: name lookup through the scopes, merging with defaults, values and paths.
 * A scope is a repeat with its index, or the use of a definition with its arguments; b->scope is the innermost one.
 * Arguments of a use stay unevaluated YAML nodes, which are read in the scope of the caller each time they are needed.
 */
#include <string.h>

#include "frontend/lower/macro.h"
#include "frontend/syntax/yaml_edit.h"
#include "ir/support/strmap.h"

/* ---- names ---- */

static const struct yaml_node *written_argument(const struct step_scope *s, const char *name)
{
	return definition_argument(s->def, name) < 0 ? NULL : yaml_find(s->args, name);
}

struct scope_lookup {
	struct expander *b;
	const struct step_scope *scope;
	bool dims;
};

static enum expr_lookup lookup_scoped(void *user, const char *name, struct loc loc, struct value *out);

/* Environment that looks names up from `scope` outward; the plain environment of the model without memory. It has no
 * names for suggestions: step_env() adds them, and in an argument an unknown name is a word, not a mistake. */
static struct expr_env scope_env(struct expander *b, const struct step_scope *scope, bool dims)
{
	struct expr_env env = model_env(&b->m->scope, dims);
	struct scope_lookup *s = ARENA_NEW(b->arena, struct scope_lookup);
	if (s == NULL)
		return env;
	*s = (struct scope_lookup){b, scope, dims};
	env.lookup = lookup_scoped;
	env.names = NULL;
	env.user = s;
	return env;
}

/* Evaluates an argument of a use (node; NULL: not written) or its default, in the scope of the caller, which wrote
   it. An unknown identifier is a word of the language and becomes a string. EXPR_FAILED after a report. */
static enum expr_lookup argument_value(struct scope_lookup *s, const struct step_scope *scope,
                                       const struct yaml_node *node, const struct expr *def,
                                       struct value *out)
{
	struct expr_env env = scope_env(s->b, scope->outer, s->dims);
	const struct expr *e = node == NULL ? def : NULL;
	if (node != NULL && node->kind == YAML_SCALAR)
		e = expr_parse(s->b->arena, s->b->cx, expr_source_of(node), EXPR_PLAIN);
	if (node != NULL && node->kind != YAML_SCALAR)
		diag_error(s->b->cx, node->loc, DIAG_VALUE_TYPE,
		           "an argument is an expression, a word or a value name");
	if (e == NULL)
		return EXPR_FAILED;
	if (e->kind == EX_NAME) {
		enum expr_lookup found = lookup_scoped(env.user, e->text, e->loc, out);
		if (found == EXPR_ABSENT)
			*out = value_string(e->text);
		return found == EXPR_FAILED ? EXPR_FAILED : EXPR_FOUND;
	}
	return expr_eval(&env, e, out) ? EXPR_FOUND : EXPR_FAILED;
}

/* Lookup of a name for expressions, innermost first: arguments of the inlined function (a tensor is skipped, as it
 * has no value at compile time), then indices and arguments of the scopes, then params and dims. */
static enum expr_lookup lookup_scoped(void *user, const char *name, struct loc loc, struct value *out)
{
	struct scope_lookup *s = user;
	const struct partial *given = s->b->graph == NULL ? NULL : find_binding(s->b->graph, name);
	if (given != NULL && given->known) {
		*out = given->v;
		return EXPR_FOUND;
	}
	for (const struct step_scope *scope = s->scope; scope != NULL; scope = scope->outer) {
		if (scope->def == NULL) {
			if (strcmp(scope->loop, name) != 0)
				continue;
			*out = scope->value;
			return EXPR_FOUND;
		}
		int i = definition_argument(scope->def, name);
		if (i >= 0)
			return argument_value(s, scope, written_argument(scope, name),
			                      scope->def->args[i].def, out);
	}
	struct expr_env env = model_env(&s->b->m->scope, s->dims);
	return env.lookup(env.user, name, loc, out);
}

/* Names for suggestions: indices and arguments first, then params and dims. */
static const char *const *suggest_scoped(void *user, size_t *n)
{
	const struct scope_lookup *s = user;
	size_t n_outer;
	const char *const *outer = model_names(&s->b->m->scope, &n_outer);
	size_t capacity = n_outer;
	for (const struct step_scope *c = s->scope; c != NULL; c = c->outer)
		capacity += c->def == NULL ? 1 : c->def->n_args;
	const char **names = ARENA_ARRAY(s->b->arena, const char *, capacity);
	*n = 0;
	if (names == NULL)
		return NULL;
	for (const struct step_scope *c = s->scope; c != NULL; c = c->outer) {
		for (size_t i = 0; c->def != NULL && i < c->def->n_args; i++)
			names[(*n)++] = c->def->args[i].name;
		if (c->def == NULL)
			names[(*n)++] = c->loop;
	}
	for (size_t i = 0; i < n_outer; i++)
		names[(*n)++] = outer[i];
	return names;
}

struct expr_env step_env(struct expander *b, bool dims)
{
	struct expr_env env = scope_env(b, b->scope, dims);
	env.names = suggest_scoped;
	return env;
}

/* ---- merging ---- */

/* The written arguments of a step as one mapping: the mapping `value` under its kind (NULL: the step is a bare word),
 * then the keys next to the kind, without the kind itself. Any other value is that of the kind's main argument; a
 * null, or a kind without one, is an error (NULL). */
static const struct yaml_node *merge_written_args(struct expander *b, const struct schema_step *kind,
                                                  const struct yaml_node *step, const struct yaml_node *value)
{
	bool mapping = value != NULL && value->kind == YAML_MAPPING;
	struct yaml_node *out = yaml_new_map(b->arena, step->loc, (mapping ? value->n : 1) + step->n);
	for (size_t i = 0; mapping && out != NULL && i < value->n; i++)
		yaml_put(out, value->pairs[i].key, value->pairs[i].value);
	for (size_t i = 0; out != NULL && step->kind == YAML_MAPPING && i < step->n; i++) {
		if (step->pairs[i].value != value)
			yaml_put(out, step->pairs[i].key, step->pairs[i].value);
	}
	if (value == NULL || mapping)
		return out;
	if (kind->main[0] == '\0' || (value->kind == YAML_SCALAR && value->null)) {
		diag_error(b->cx, value->loc, DIAG_VALUE_TYPE, "'%s' wants a mapping of arguments, found %s",
		           kind->kind, yaml_describe(b->arena, value));
		return NULL;
	}
	return out == NULL ? NULL : yaml_with(b->arena, out, kind->main, value);
}

/* Written arguments win over `defaults` of the kind; a written null deletes a default. */
const struct yaml_node *merge_args(struct expander *b, const struct schema_step *kind,
                                   const struct yaml_node *step, const struct yaml_node *value)
{
	const struct yaml_node *written = merge_written_args(b, kind, step, value);
	const struct yaml_node *def = yaml_find(model_section(b->m, "defaults"), kind->kind);
	/* a null without a default to delete stays, and the schema reports it as a key without a value */
	const struct yaml_pair *idle = NULL;
	return written == NULL || def == NULL ? written : yaml_merge(b->arena, def, written, &idle);
}

/* ---- typed extraction ---- */

const struct yaml_node *step_arg(const struct step *st, const char *key)
{
	return yaml_find(st->args, key);
}

const char *activation_name(const char *word)
{
	static const char *const aliases[][2] = {{"swish", "silu"},
	                                         {"gelu_new", "gelu_tanh"},
	                                         {"gelu_pytorch_tanh", "gelu_tanh"},
	                                         {"gelu_fast", "gelu_tanh"},
	                                         {"quick_gelu", "gelu_quick"}};
	for (size_t i = 0; i < TFMC_COUNT(aliases); i++) {
		if (strcmp(word, aliases[i][0]) == 0)
			return aliases[i][1];
	}
	return word;
}

/* Resolves a value name: an argument of a definition is replaced by the name that the caller wrote, which may be an
   argument of the caller's own scope in turn; indices are filled in. */
static const char *resolve_value_name(struct expander *b, const char *name)
{
	for (const struct step_scope *s = b->scope; s != NULL; s = s->outer) {
		const struct yaml_node *node = s->def == NULL ? NULL : written_argument(s, name);
		if (node != NULL && node->kind == YAML_SCALAR)
			name = node->text;
	}
	return fill_loop_indices(b, name);
}

static void report_unknown_value(struct expander *b, struct loc loc, const char *name)
{
	const char **names = ARENA_ARRAY(b->arena, const char *, b->values.n + 1);
	size_t n = 0;
	for (; names != NULL && n < b->values.n; n++)
		names[n] = b->values.items[n].key;
	diag_error(b->cx, loc, DIAG_UNKNOWN_VALUE, "no value is called '%s' here%s", name,
	           did_you_mean(b->arena, name, names, n));
}

/* `x` is the current value of the steps; it is unknown before the first step of a stack (has_x). */
bool find_named_value(struct expander *b, const struct yaml_node *node, struct step_value *out)
{
	if (!yaml_expect(b->cx, node, YAML_SCALAR, "a value name"))
		return false;
	const char *name = resolve_value_name(b, node->text);
	if (strcmp(name, "x") == 0 && b->has_x) {
		*out = b->x;
		return true;
	}
	const struct step_value *v = strmap_get(&b->values, name);
	if (v == NULL) {
		report_unknown_value(b, node->loc, name);
		return false;
	}
	*out = *v;
	return true;
}

/* `x` is not in b->values and counts as no value here. */
bool try_find_value(struct expander *b, const struct yaml_node *node, struct step_value *out)
{
	const struct step_value *v =
	        node->kind == YAML_SCALAR ? strmap_get(&b->values, resolve_value_name(b, node->text)) : NULL;
	if (v != NULL)
		*out = *v;
	return v != NULL;
}

bool path_of_node(const struct step *st, const struct yaml_node *node, const char *key, const char **out)
{
	if (node == NULL)
		return true;
	if (!yaml_expect(st->b->cx, node, YAML_SCALAR, key))
		return false;
	if (node->text[0] == '/')
		*out = node->text + 1;
	else
		*out = path_join(st->b, st->b->prefix, node->text);
	if (**out != '\0')
		return true;
	return step_error(st, key, DIAG_VALUE_TYPE, "%s wants a path", key);
}
