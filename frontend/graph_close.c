/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements in a block model and whole graph models: names are made
 * unambiguous, then the text is appended like that of any step.
 */
#include "frontend/graph_close.h"

#include <string.h>

#include "frontend/lower.h"

static const char *value_text(struct blocks *b, const struct value *v)
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
			return v.kind == VALUE_STRING ? v.s : value_text(b, &v);
	}
	return NULL;
}

static const char *rename_name(void *user, const char *name)
{
	struct blocks *b = user;
	const char *local = strmap_get(b->locals, name);
	if (local != NULL)
		return local;
	const struct block_value *v = strmap_get(&b->values, name);
	if (v != NULL)
		return v->name;
	return scoped_text(b, name, true);
}

static const char *fill_placeholder(void *user, const char *name)
{
	struct blocks *b = user;
	const char *text = scoped_text(b, name, false);
	struct value v;
	if (text != NULL)
		return text;
	if (!strmap_has(&b->m->param_index, name) ||
	    model_lookup_param(b->m, name, LOC_NONE, &v) != EXPR_FOUND)
		return NULL;
	return v.kind == VALUE_STRING ? v.s : value_text(b, &v);
}

static bool is_function_call(struct blocks *b, const struct expr *e)
{
	const struct definition *d = e->kind == EX_CALL ? model_find_definition(b->m, e->text) : NULL;
	if (d != NULL)
		diag_error(b->cx, e->loc, DIAG_UNSUPPORTED, "not supported yet: functions ('%s')", d->name);
	bool found = d != NULL;
	for (size_t i = 0; !found && i < e->n_args; i++)
		found = is_function_call(b, e->args[i]);
	for (size_t i = 0; !found && i < e->n_keywords; i++)
		found = is_function_call(b, e->keywords[i].value);
	return found;
}

static void print_targets(struct blocks *b, const struct expr_statement *st, struct buf *out)
{
	for (size_t i = 0; i < st->n_targets; i++) {
		const char *local = strmap_get(b->locals, st->targets[i].name);
		buf_printf(out, "%s%s", i > 0 ? ", " : "", local != NULL ? local : st->targets[i].name);
	}
	buf_str(out, " = ");
}

bool graph_close_statement(struct blocks *b, const struct yaml_node *node)
{
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	struct buf text;
	if (st == NULL)
		return false;
	if (st->is_return) {
		diag_error(b->cx, st->loc, DIAG_STATEMENT, "return belongs into a function");
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		if (is_function_call(b, st->values[i]))
			return false;
	}
	buf_init(&text);
	print_targets(b, st, &text);
	for (size_t i = 0; i < st->n_values; i++) {
		buf_str(&text, i > 0 ? ", " : "");
		expr_print(&text, st->values[i], rename_name, fill_placeholder, b);
	}
	const char *copy = arena_strdup(b->arena, text.data);
	buf_destroy(&text);
	return graph_push_text(b->arena, b->cx, b->out, (struct ir_loc){node->loc, b->prefix}, copy);
}

/* ---- the graph step ---- */

/* Every name that the statements assign gets a free one; x stays x. */
static bool name_locals(struct blocks *b, const struct yaml_node *list, size_t *n_temps)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (node->kind == YAML_MAPPING) {
			const struct yaml_node *repeat = yaml_find(node, "repeat"),
			                       *body = yaml_find(node, "body");
			body = body != NULL ? body : yaml_find(repeat, "body");
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

bool graph_close_model(struct frontend_model *m)
{
	struct blocks b = {
	        .m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = "", .has_x = true};
	struct strmap locals;
	const struct yaml_node *graph = model_section(m, "graph");
	strmap_init(&b.values, &m->arena);
	strmap_init(&b.owned, &m->arena);
	strmap_init(&locals, &m->arena);
	b.locals = &locals;
	b.x.name = "x";
	return blocks_body(&b, graph);
}
