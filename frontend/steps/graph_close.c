/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements in a block model and whole graph models: names are made
 * unambiguous, then the text is appended like that of any step.
 */
#include "frontend/steps/graph_close.h"

#include <string.h>

#include "frontend/lower/lower.h"

const char *graph_value_text(struct blocks *b, const struct value *v)
{
	struct buf t;
	buf_init(&t);
	value_print(&t, b->m->dims, v);
	const char *s = arena_strdup(b->arena, t.data);
	buf_destroy(&t);
	return v->kind == VALUE_INT && v->i < 0 ? arena_printf(b->arena, "(%s)", s) : s;
}

/* The literal of an index or of an argument of a definition, or NULL. */
static const char *scoped_text(struct blocks *b, const char *name, bool loops)
{
	struct expr_env env = blocks_env(b, true);
	struct value v;
	for (const struct block_scope *s = b->scope; s != NULL; s = s->outer) {
		bool mine = s->def == NULL && loops && strcmp(s->loop, name) == 0;
		for (size_t i = 0; s->def != NULL && i < s->def->n_args; i++)
			mine = mine || strcmp(s->def->args[i].name, name) == 0;
		if (mine && env.lookup(env.user, name, LOC_NONE, &v) == EXPR_FOUND)
			return v.kind == VALUE_STRING ? v.s : graph_value_text(b, &v);
	}
	return NULL;
}

static const char *rename_name(void *user, const char *name)
{
	struct blocks *b = user;
	if (name[0] == '%')
		return name + 1;
	const char *local = strmap_get(b->locals, name);
	if (local != NULL)
		return local;
	const struct block_value *v = b->function != NULL ? NULL : strmap_get(&b->values, name);
	if (v != NULL)
		return v->name;
	return scoped_text(b, name, true);
}

static const char *fill_placeholder(void *user, const char *name)
{
	struct blocks *b = user;
	const char *text = b->function != NULL ? strmap_get(&b->function->strings, name) : NULL;
	struct value v;
	if (text == NULL)
		text = scoped_text(b, name, false);
	if (text != NULL)
		return text;
	if (!strmap_has(&b->m->param_index, name) ||
	    model_lookup_param(b->m, name, LOC_NONE, &v) != EXPR_FOUND)
		return NULL;
	return v.kind == VALUE_STRING ? v.s : graph_value_text(b, &v);
}

const char *graph_expr_text(struct blocks *b, const struct expr *e)
{
	struct buf text;
	buf_init(&text);
	expr_print(&text, e, rename_name, fill_placeholder, b);
	const char *copy = arena_strdup(b->arena, text.data);
	buf_destroy(&text);
	return copy;
}

static bool push(struct blocks *b, struct loc loc, const char *target, const char *value)
{
	const char *local = strmap_get(b->locals, target);
	const char *text = arena_printf(b->arena, "%s = %s", local != NULL ? local : target, value);
	return graph_push_text(b->arena, b->cx, b->out, (struct ir_loc){loc, b->prefix}, text);
}

/* A body may not read what belongs to the place of use. */
static bool check_names(struct blocks *b, const struct expr *e)
{
	bool outer = e->kind == EX_NAME && !strmap_has(b->locals, e->text) &&
	             (strmap_has(&b->values, e->text) || strmap_has(&b->graph_names, e->text) ||
	              model_find_input(b->m, e->text) >= 0);
	if (outer) {
		diag_error(b->cx, e->loc, DIAG_UNKNOWN_VALUE,
		           "'%s' is no argument of the function '%s' and no name of its own", e->text,
		           b->function->def->name);
		return false;
	}
	for (size_t i = 0; i < e->n_args; i++) {
		if (!check_names(b, e->args[i]))
			return false;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		const struct expr *v = e->keywords[i].value;
		if (v->kind != EX_NAME && !check_names(b, v)) /* a bare name may be a word */
			return false;
	}
	return true;
}

static bool in_function(struct blocks *b, const struct expr_statement *st)
{
	if (++b->n_steps > MODEL_STEPS_MAX) {
		diag_error(b->cx, st->loc, DIAG_LIMIT, "more than %d steps after expansion", MODEL_STEPS_MAX);
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		if (!check_names(b, st->values[i]))
			return false;
	}
	return true;
}

/* `return a, b`: the last statement of a function. */
static bool close_return(struct blocks *b, const struct yaml_node *node, const struct expr_statement *st)
{
	const struct function_call *f = b->function;
	if (f == NULL || node != f->def->body->items[f->def->body->n - 1]) {
		diag_error(b->cx, st->loc, DIAG_STATEMENT,
		           f == NULL ? "return belongs into a function"
		                     : "return is the last statement of a function");
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		const struct expr *value;
		if (!graph_inline(b, st->values[i], &value) ||
		    !graph_push_text(
		            b->arena, b->cx, b->out, (struct ir_loc){node->loc, b->prefix},
		            arena_printf(b->arena, "%s = %s", f->results[i], graph_expr_text(b, value))))
			return false;
	}
	return true;
}

/* `a, b = f(x)` of a function that returns as many. */
static bool close_several(struct blocks *b, const struct yaml_node *node, const struct expr_statement *st)
{
	const char *const *results;
	size_t n;
	if (!graph_call(b, st->values[0], &results, &n))
		return false;
	if (n != st->n_targets) {
		diag_error(b->cx, st->loc, DIAG_ARGUMENTS, "'%s' returns %zu values, %zu names are assigned",
		           st->values[0]->text, n, st->n_targets);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (!push(b, node->loc, st->targets[i].name, results[i]))
			return false;
	}
	return true;
}

static bool close_assignment(struct blocks *b, const struct yaml_node *node, const struct expr_statement *st)
{
	const char *targets = "", *values = "";
	for (size_t i = 0; i < st->n_targets; i++) {
		const char *local = strmap_get(b->locals, st->targets[i].name);
		targets = arena_printf(b->arena, "%s%s%s", targets, i > 0 ? ", " : "",
		                       local != NULL ? local : st->targets[i].name);
	}
	for (size_t i = 0; i < st->n_values; i++) {
		const struct expr *value;
		if (!graph_inline(b, st->values[i], &value))
			return false;
		values = arena_printf(b->arena, "%s%s%s", values, i > 0 ? ", " : "",
		                      graph_expr_text(b, value));
	}
	const char *text = arena_printf(b->arena, "%s = %s", targets, values);
	return graph_push_text(b->arena, b->cx, b->out, (struct ir_loc){node->loc, b->prefix}, text);
}

bool graph_close_statement(struct blocks *b, const struct yaml_node *node)
{
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	size_t temps = b->temps.n;
	if (st == NULL || (b->function != NULL && !in_function(b, st)))
		return false;
	bool several = st->n_targets > 1 && st->n_values == 1 && st->values[0]->kind == EX_CALL &&
	               model_find_definition(b->m, st->values[0]->text) != NULL;
	bool ok = st->is_return ? close_return(b, node, st)
	          : several     ? close_several(b, node, st)
	                        : close_assignment(b, node, st);
	temp_pop(b, b->temps.n - temps);
	return ok;
}

bool graph_assigned(struct blocks *b, struct diag_context *cx, const struct yaml_node *list,
                    struct strmap *out)
{
	bool ok = true;
	for (size_t i = 0; list != NULL && list->kind == YAML_SEQUENCE && i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (node->kind != YAML_SCALAR) {
			ok = graph_assigned(b, cx, graph_repeat_body(node), out) && ok;
			continue;
		}
		const struct expr_statement *st = expr_parse_statement(b->arena, cx, expr_source_of(node));
		ok = ok && st != NULL;
		for (size_t t = 0; st != NULL && t < st->n_targets; t++)
			strmap_set(out, st->targets[t].name, b);
	}
	return ok;
}

const struct yaml_node *graph_repeat_body(const struct yaml_node *node)
{
	if (node->kind != YAML_MAPPING)
		return NULL;
	const struct yaml_node *repeat = yaml_find(node, "repeat"), *body = yaml_find(node, "body");
	return body != NULL ? body : yaml_find(repeat, "body");
}

/* ---- the graph step ---- */

/* Every name that the statements assign gets a free one; x stays x. */
static bool name_locals(struct blocks *b, const struct yaml_node *list, size_t *n_temps)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (node->kind == YAML_MAPPING) {
			const struct yaml_node *body = graph_repeat_body(node);
			if (body != NULL && !name_locals(b, body, n_temps))
				return false;
			continue;
		}
		const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
		if (st == NULL)
			return false;
		for (size_t t = 0; t < st->n_targets; t++) {
			const char *name = st->targets[t].name;
			if (strcmp(name, "x") == 0 || strmap_get(b->locals, name) != NULL)
				continue;
			if (strmap_has(&b->values, name)) {
				diag_error(b->cx, st->targets[t].loc, DIAG_NAME_CLASH,
				           "'%s' is a value of the model and cannot be assigned", name);
				return false;
			}
			strmap_set(b->locals, name, (void *)(uintptr_t)temp_push(b, name));
			(*n_temps)++;
		}
	}
	return true;
}

/* Everything a statement may name, for the types. */
static struct probe_value *given_values(struct blocks *b, const struct block_value *x, size_t *n)
{
	struct probe_value *list =
	        ARENA_ARRAY(b->arena, struct probe_value, b->values.n + b->m->inputs.n + 1);
	*n = 0;
	for (size_t i = 0; list != NULL && i < b->m->inputs.n; i++) {
		const struct model_input *in = &b->m->inputs.items[i];
		list[*n] = (struct probe_value){in->pub.name, in->pub.dtype, in->pub.rank, {NULL}};
		memcpy(list[(*n)++].dims, in->dims, sizeof(in->dims));
	}
	for (size_t i = 0; list != NULL && i < b->values.n; i++) {
		const struct block_value *v = b->values.items[i].value;
		if (!expr_is_name(v->name) || model_find_input(b->m, v->name) >= 0)
			continue;
		list[*n] = (struct probe_value){v->name, v->dtype, v->rank, {NULL}};
		memcpy(list[(*n)++].dims, v->dims, sizeof(v->dims));
	}
	if (list != NULL) {
		list[*n] = (struct probe_value){"x", x->dtype, x->rank, {NULL}};
		memcpy(list[(*n)++].dims, x->dims, sizeof(x->dims));
	}
	return list;
}

static bool probe_x(struct step *st, const struct graph_body *body)
{
	struct blocks *b = st->b;
	struct probe_value want = {.name = "x"};
	size_t n;
	struct probe_value *given = given_values(b, &st->in, &n);
	if (given == NULL || !lower_probe(b->m, given, n, body, &want))
		return false;
	b->x.name = "x";
	b->x.dtype = want.dtype;
	b->x.rank = want.rank;
	memcpy(b->x.dims, want.dims, sizeof(want.dims));
	b->x.lengths = NULL;
	return true;
}

static bool grows_inside(struct blocks *b, const struct graph_body *body)
{
	for (size_t i = 0; i < b->values.n; i++) {
		const struct block_value *v = b->values.items[i].value;
		if (v->grows && graph_first_use(body, 0, b->values.items[i].key) == GRAPH_READ)
			return true;
	}
	return false;
}

bool step_graph(struct step *st)
{
	struct blocks *b = st->b;
	const struct yaml_node *list = arg(st, "statements");
	struct strmap locals, *outer = b->locals;
	struct graph_body body = {NULL, 0, 0}, *out = b->out;
	size_t temps = 0;
	if (!yaml_expect(b->cx, list, YAML_SEQUENCE, "graph"))
		return false;
	strmap_init(&locals, b->arena);
	b->locals = &locals;
	const char *prefix = b->prefix;
	bool ok = name_locals(b, list, &temps);
	if (ok && arg(st, "from") != NULL)
		ok = emit(st, "x = %s", st->in.name);
	b->x = st->in;
	b->out = &body;
	b->prefix = st->path;
	ok = ok && blocks_body(b, list) && probe_x(st, &body);
	b->prefix = prefix;
	b->out = out;
	b->locals = outer;
	temp_pop(b, temps);
	b->x.grows = b->x.grows || grows_inside(b, &body);
	for (size_t i = 0; ok && i < body.n; i++) {
		struct graph_node *node = graph_push(b->arena, out, body.items[i]->kind, body.items[i]->loc);
		ok = node != NULL;
		if (ok)
			*node = *body.items[i];
	}
	return ok;
}

/* ---- top level ---- */

/* What the statements assign; wrong ones are reported when they are closed. */
static void note_names(struct blocks *b, const struct yaml_node *list)
{
	struct diag_context quiet;
	diag_init(&quiet, NULL, NULL);
	(void)graph_assigned(b, &quiet, list, &b->graph_names);
	diag_destroy(&quiet);
}

bool graph_close_model(struct frontend_model *m)
{
	struct blocks b = {
	        .m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = "", .has_x = true};
	struct strmap locals;
	const struct yaml_node *graph = model_section(m, "graph");
	strmap_init(&b.values, &m->arena);
	strmap_init(&b.owned, &m->arena);
	strmap_init(&locals, &m->arena);
	strmap_init(&b.graph_names, &m->arena);
	b.locals = &locals;
	b.x.name = "x";
	note_names(&b, graph);
	return blocks_body(&b, graph);
}
