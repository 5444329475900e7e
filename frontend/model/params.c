/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section `params`, overridden by `set` and --set. Params are evaluated on demand, so that derived ones follow
 * overrides; `require` checks conditions on them.
 */
#include <string.h>

#include "frontend/model/model.h"
#include "ir/support/strmap.h"

static struct model_param *add_param(struct model_scope *s, const struct yaml_pair *pair)
{
	if (s->params.n >= MODEL_PARAMS_MAX) {
		diag_error(s->cx, pair->key->loc, DIAG_LIMIT, "more than %d params", MODEL_PARAMS_MAX);
		return NULL;
	}
	if (!model_declare(s, pair->key->text, "param", pair->key->loc))
		return NULL;
	struct model_param *p = ARENA_NEW(s->arena, struct model_param);
	if (p == NULL)
		return NULL;
	p->name = pair->key->text;
	p->loc = pair->key->loc;
	p->node = pair->value;
	strmap_set(&s->params, p->name, p);
	return p;
}

static bool override_param(struct model_scope *s, const char *name, struct loc loc,
                           const struct yaml_node *value)
{
	struct model_param *p = strmap_get(&s->params, name);
	if (p == NULL) {
		size_t n;
		const char *const *names = model_names(s, &n);
		diag_error(s->cx, loc, DIAG_UNKNOWN_NAME,
		           "no param is called '%s'; only existing params can be set%s", name,
		           did_you_mean_or_known(s->arena, name, names, n));
		return false;
	}
	p->node = value;
	return true;
}

static bool apply_set(struct model_scope *s, const struct yaml_node *set)
{
	bool ok = true;
	if (set == NULL)
		return true;
	if (!yaml_expect(s->cx, set, YAML_MAPPING, "set"))
		return false;
	for (size_t i = 0; i < set->n; i++)
		ok = override_param(s, set->pairs[i].key->text, set->pairs[i].key->loc,
		                    set->pairs[i].value) &&
		     ok;
	return ok;
}

/* Applies one --set key=value; the value is typed as in params. */
static bool apply_set_option(struct model_scope *s, const char *text)
{
	const char *eq = strchr(text, '=');
	uint32_t source = diag_add_source(s->cx, "--set", text, strlen(text));
	struct loc loc = {source, 1, 1, 0};
	if (eq == NULL || eq == text) {
		diag_error(s->cx, loc, DIAG_OPTION, "--set wants key=value, found '%s'", text);
		return false;
	}
	const char *key = arena_strndup(s->arena, text, (size_t)(eq - text));
	const char *shown = arena_printf(s->arena, "--set %s", key);
	const struct yaml_node *value;
	loc.len = (uint32_t)(eq - text);
	if (yaml_parse(s->arena, s->cx, shown, eq + 1, strlen(eq + 1), true, &value) != TFMC_OK)
		return false;
	return override_param(s, key, loc, value);
}

enum expr_lookup model_lookup_param(struct model_scope *s, const char *name, struct loc loc,
                                    struct value *out)
{
	struct model_param *p = strmap_get(&s->params, name);
	if (p == NULL)
		return EXPR_ABSENT;
	if (p->state == PARAM_BUSY) {
		diag_error(s->cx, loc, DIAG_CYCLE, "param '%s' depends on itself", name);
		return EXPR_FAILED;
	}
	if (p->state == PARAM_NEW) {
		struct expr_env env = model_env(s, false);
		p->state = PARAM_BUSY;
		bool ok = expr_read_value(&env, p->node, p->name, &p->value);
		p->state = ok ? PARAM_DONE : PARAM_FAILED;
	}
	*out = p->value;
	return p->state == PARAM_DONE ? EXPR_FOUND : EXPR_FAILED;
}

static bool evaluate_all(struct model_scope *s)
{
	bool ok = true;
	for (size_t i = 0; i < s->params.n; i++) {
		struct value v;
		const struct model_param *p = s->params.items[i].value;
		ok = model_lookup_param(s, p->name, p->loc, &v) == EXPR_FOUND && ok;
	}
	return ok;
}

/* Prints the params used in an expression with their values: "d = 30, heads = 4". */
static void print_param_values(struct model_scope *s, const struct expr *e, struct buf *out)
{
	const struct model_param *p = e->kind == EX_NAME ? strmap_get(&s->params, e->text) : NULL;
	if (p != NULL && p->state == PARAM_DONE) {
		buf_printf(out, "%s%s = ", out->len > 0 ? ", " : "", p->name);
		value_print(out, NULL, &p->value);
	}
	for (size_t i = 0; i < e->n_args; i++)
		print_param_values(s, e->args[i], out);
}

static bool check_condition(struct model_scope *s, const struct yaml_node *node)
{
	struct expr_env env = model_env(s, false);
	bool holds;
	if (!yaml_expect(s->cx, node, YAML_SCALAR, "require") ||
	    !expr_read_bool(&env, node, "require", &holds))
		return false;
	if (holds)
		return true;
	const struct expr *e = expr_parse(s->arena, s->cx, expr_source_of(node), EXPR_PLAIN);
	struct buf names;
	buf_init(&names);
	if (e != NULL)
		print_param_values(s, e, &names);
	diag_error(s->cx, node->loc, DIAG_REFUSED, "required condition does not hold%s%s",
	           names.len > 0 ? ": " : "", names.data);
	buf_destroy(&names);
	return false;
}

static bool check_require(struct model_scope *s, const struct yaml_node *node)
{
	bool ok = true;
	if (node == NULL)
		return true;
	struct yaml_list list = yaml_as_list(s->arena, node);
	for (size_t i = 0; i < list.n; i++)
		ok = check_condition(s, list.items[i]) && ok;
	return ok;
}

bool model_read_params(struct model_scope *s, const struct yaml_node *root,
                       const struct frontend_options *options)
{
	const struct yaml_node *params = yaml_find(root, "params");
	bool ok = params == NULL || yaml_expect(s->cx, params, YAML_MAPPING, "params");
	for (size_t i = 0; params != NULL && params->kind == YAML_MAPPING && i < params->n; i++)
		ok = add_param(s, &params->pairs[i]) != NULL && ok;
	ok = apply_set(s, yaml_find(root, "set")) && ok;
	for (size_t i = 0; i < options->n_sets; i++)
		ok = apply_set_option(s, options->sets[i]) && ok;
	return ok && evaluate_all(s) && check_require(s, yaml_find(root, "require"));
}
