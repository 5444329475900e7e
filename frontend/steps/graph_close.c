/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements in a block model and whole graph models: names are made
 * unambiguous.
 */
#include "frontend/steps/graph_close.h"

#include <string.h>

#include "frontend/lower/lower.h"

static const struct expr *tree_of(struct blocks *b, enum expr_kind kind, const char *text, struct loc loc)
{
	struct expr *e = ARENA_NEW(b->arena, struct expr);
	if (e != NULL)
		*e = (struct expr){.kind = kind, .loc = loc, .text = text};
	return e;
}

const struct expr *graph_name(struct blocks *b, const char *name, struct loc loc)
{
	return tree_of(b, EX_NAME, name, loc);
}

const struct expr *value_ref(struct blocks *b, const struct block_value *v, struct loc loc)
{
	const struct expr *name = graph_name(b, v->name, loc);
	struct expr *e = v->cut == NULL ? NULL : ARENA_NEW(b->arena, struct expr);
	const struct expr **args = v->cut == NULL ? NULL : ARENA_ARRAY(b->arena, const struct expr *, 2);
	if (e == NULL || args == NULL)
		return name;
	args[0] = name;
	args[1] = graph_name(b, v->cut, loc);
	*e = (struct expr){.kind = EX_CALL, .loc = loc, .text = "mask_rows", .n_args = 2, .args = args};
	return e;
}

/* The value of an index or of an argument of a definition. */
static bool scoped_value(struct blocks *b, const char *name, bool loops, struct value *v)
{
	struct expr_env env = blocks_env(b, true);
	for (const struct block_scope *s = b->scope; s != NULL; s = s->outer) {
		bool mine = s->def != NULL ? definition_argument(s->def, name) >= 0
		                           : loops && strcmp(s->loop, name) == 0;
		if (mine && env.lookup(env.user, name, LOC_NONE, v) == EXPR_FOUND)
			return true;
	}
	return false;
}

static const struct expr *close_name(struct blocks *b, const struct expr *e)
{
	const struct expr *local = strmap_get(b->locals, e->text);
	struct value v;
	if (e->text[0] == '%')
		return graph_name(b, e->text + 1, e->loc);
	if (local != NULL)
		return local;
	const struct block_value *of = b->function != NULL ? NULL : strmap_get(&b->values, e->text);
	if (of != NULL)
		return value_ref(b, of, e->loc);
	if (!scoped_value(b, e->text, true, &v))
		return e;
	return v.kind == VALUE_STRING ? graph_name(b, v.s, e->loc) : expr_of_value(b->arena, &v, e->loc);
}

const char *value_in_string(struct blocks *b, const struct value *v)
{
	struct buf t;
	if (v->kind == VALUE_STRING)
		return v->s;
	buf_init(&t);
	value_print(&t, b->m->scope.dims, v);
	const char *s = arena_strdup(b->arena, t.data);
	buf_destroy(&t);
	return s;
}

/* What {name} in a string becomes; NULL: it stays. */
static const char *placeholder(struct blocks *b, const char *name)
{
	const struct expr *e = b->function != NULL ? strmap_get(&b->function->trees, name) : NULL;
	struct value v;
	if (e != NULL && (e->kind == EX_STRING || e->kind == EX_NAME))
		return e->text;
	const struct value *given = graph_function_value(b, name);
	if (given != NULL)
		return value_in_string(b, given);
	if (scoped_value(b, name, false, &v))
		return value_in_string(b, &v);
	if (!strmap_has(&b->m->scope.params, name) ||
	    model_lookup_param(&b->m->scope, name, LOC_NONE, &v) != EXPR_FOUND)
		return NULL;
	return value_in_string(b, &v);
}

const char *fill_placeholders(struct blocks *b, const char *text, placeholder_fn *fn, void *user)
{
	struct buf out;
	if (strchr(text, '{') == NULL)
		return text;
	buf_init(&out);
	while (*text != '\0') {
		size_t len = *text == '{' ? strcspn(text, "}") : 0;
		const char *with = NULL;
		if (len > 1 && text[len] == '}')
			with = fn(user, arena_strndup(b->arena, text + 1, len - 1));
		if (with != NULL) {
			buf_str(&out, with);
			text += len + 1;
		} else {
			buf_char(&out, *text++);
		}
	}
	const char *copy = arena_strdup(b->arena, out.data);
	buf_destroy(&out);
	return copy;
}

static const char *own_placeholder(void *user, const char *name)
{
	return placeholder(user, name);
}

static const struct expr *close_node(void *user, const struct expr *e)
{
	struct blocks *b = user;
	if (e->kind == EX_NAME)
		return close_name(b, e);
	if (e->kind != EX_STRING)
		return NULL;
	return tree_of(b, EX_STRING, fill_placeholders(b, e->text, own_placeholder, b), e->loc);
}

const struct expr *graph_close(struct blocks *b, const struct expr *e)
{
	return expr_map(b->arena, e, close_node, b);
}

bool push_assignment(struct blocks *b, struct ir_loc loc, const char *target, const struct expr *value)
{
	struct expr_statement *st = ARENA_NEW(b->arena, struct expr_statement);
	struct expr_target *t = ARENA_NEW(b->arena, struct expr_target);
	const struct expr **values = ARENA_ARRAY(b->arena, const struct expr *, 1);
	if (st == NULL || t == NULL || values == NULL || value == NULL)
		return false;
	*t = (struct expr_target){target, loc.at};
	values[0] = value;
	*st = (struct expr_statement){
	        .loc = loc.at, .n_targets = 1, .targets = t, .n_values = 1, .values = values};
	return graph_push_statement(b->arena, b->out, loc, st);
}

/* The name that an assignment of the present scope means. */
static const char *local_name(struct blocks *b, const char *target)
{
	const struct expr *local = strmap_get(b->locals, target);
	return local != NULL && local->kind == EX_NAME ? local->text : target;
}

/* A body may not read what belongs to the place of use. */
static bool check_names(struct blocks *b, const struct expr *e)
{
	bool outer = e->kind == EX_NAME && !strmap_has(b->locals, e->text) &&
	             (strmap_has(&b->values, e->text) || strmap_has(&b->graph_names, e->text) ||
	              model_find_input(&b->m->inputs, e->text) >= 0);
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
		    !push_assignment(b, (struct ir_loc){node->loc, b->prefix}, f->results[i],
		                     graph_close(b, value)))
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
		if (!push_assignment(b, (struct ir_loc){node->loc, b->prefix},
		                     local_name(b, st->targets[i].name),
		                     graph_name(b, results[i], node->loc)))
			return false;
	}
	return true;
}

static bool close_assignment(struct blocks *b, const struct yaml_node *node, const struct expr_statement *st)
{
	struct expr_statement *closed = ARENA_NEW(b->arena, struct expr_statement);
	if (closed == NULL)
		return false;
	*closed = *st;
	closed->targets = ARENA_ARRAY(b->arena, struct expr_target, st->n_targets);
	closed->values = ARENA_ARRAY(b->arena, const struct expr *, st->n_values);
	if (closed->targets == NULL || closed->values == NULL)
		return false;
	for (size_t i = 0; i < st->n_targets; i++)
		closed->targets[i] =
		        (struct expr_target){local_name(b, st->targets[i].name), st->targets[i].loc};
	for (size_t i = 0; i < st->n_values; i++) {
		const struct expr *value;
		if (!graph_inline(b, st->values[i], &value))
			return false;
		closed->values[i] = graph_close(b, value);
	}
	return graph_push_statement(b->arena, b->out, (struct ir_loc){node->loc, b->prefix}, closed);
}

static bool spares_indices(struct blocks *b, const struct expr_statement *st)
{
	for (size_t i = 0; i < st->n_targets; i++) {
		const char *name = local_name(b, st->targets[i].name);
		if (!is_loop_index(b, name))
			continue;
		diag_error(b->cx, st->targets[i].loc, DIAG_NAME_CLASH,
		           "'%s' is the index of a repeat and cannot be assigned", name);
		return false;
	}
	return true;
}

bool graph_close_statement(struct blocks *b, const struct yaml_node *node)
{
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	size_t temps = b->temps.n;
	if (st == NULL || (b->function != NULL && !in_function(b, st)) || !spares_indices(b, st))
		return false;
	bool several = st->n_targets > 1 && st->n_values == 1 && st->values[0]->kind == EX_CALL &&
	               model_find_definition(&b->m->definitions, st->values[0]->text) != NULL;
	bool ok = st->is_return ? close_return(b, node, st)
	          : several     ? close_several(b, node, st)
	                        : close_assignment(b, node, st);
	temp_pop(b, b->temps.n - temps);
	return ok;
}

/* The statements of a repeat in a list of statements, or NULL. */
static const struct yaml_node *graph_repeat_body(const struct yaml_node *node)
{
	if (node->kind != YAML_MAPPING)
		return NULL;
	const struct yaml_node *repeat = yaml_find(node, "repeat"), *body = yaml_find(node, "body");
	return body != NULL ? body : yaml_find(repeat, "body");
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
			strmap_set(b->locals, name,
			           (void *)(uintptr_t)graph_name(b, temp_push(b, name), LOC_NONE));
			(*n_temps)++;
		}
	}
	return true;
}

struct given {
	struct probe_value *items;
	size_t n, cap;
};

static void add_given(struct blocks *b, struct given *list, const struct block_value *v)
{
	for (size_t i = 0; i < list->n; i++) {
		if (strcmp(list->items[i].name, v->name) == 0)
			return;
	}
	struct probe_value *slot = ARENA_PUSH(b->arena, list);
	if (slot == NULL)
		return;
	*slot = (struct probe_value){v->name, v->dtype, v->rank, {NULL}};
	memcpy(slot->dims, v->dims, sizeof(v->dims));
	struct block_value lengths = {.name = v->lengths, .dtype = DT_I32, .rank = 1, .dims = {v->dims[0]}};
	if (v->lengths != NULL)
		add_given(b, list, &lengths);
}

/* Everything a statement may name, for the types. */
static void given_values(struct blocks *b, const struct block_value *x, struct given *list)
{
	for (size_t i = 0; i < b->m->inputs.n; i++) {
		const struct frontend_input *in = &b->m->inputs.items[i];
		struct block_value v = {.name = in->name, .dtype = in->dtype, .rank = in->rank};
		memcpy(v.dims, in->dims, sizeof(v.dims));
		add_given(b, list, &v);
	}
	for (size_t i = 0; i < b->values.n; i++)
		add_given(b, list, b->values.items[i].value);
	struct block_value v = *x;
	v.name = "x";
	if (b->has_x)
		add_given(b, list, &v);
}

/* The nodes with paths for messages: indices of the repeats around have their present values. */
static struct graph_body located(struct blocks *b, const struct graph_body *body)
{
	struct graph_body out = {NULL, 0, 0};
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		const char *path = node->loc.path == NULL ? NULL : concrete(b, node->loc.path);
		struct graph_node *copy =
		        graph_push(b->arena, &out, node->kind, (struct ir_loc){node->loc.at, path});
		if (copy == NULL)
			break;
		struct ir_loc loc = copy->loc;
		*copy = *node;
		copy->loc = loc;
	}
	return out;
}

bool probe_x(struct blocks *b, const struct block_value *before, const struct graph_body *body)
{
	struct probe_value want = {.name = "x"};
	struct given given = {NULL, 0, 0};
	const struct graph_body here = located(b, body);
	given_values(b, before, &given);
	if (!lower_probe(b->m, given.items, given.n, &here, &want))
		return false;
	b->x.dtype = want.dtype;
	b->x.rank = want.rank;
	memcpy(b->x.dims, want.dims, sizeof(want.dims));
	b->has_x = true;
	return true;
}

bool values_grow(struct blocks *b, const struct graph_body *body)
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
		ok = assign(st, "x", value_ref(b, &st->in, st->loc));
	set_x(b, &st->in);
	b->x.lengths = NULL;
	b->out = &body;
	b->prefix = st->path;
	ok = ok && blocks_body(b, list) && probe_x(b, &st->in, &body);
	b->prefix = prefix;
	b->out = out;
	b->locals = outer;
	temp_pop(b, temps);
	b->x.grows = b->x.grows || values_grow(b, &body);
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
