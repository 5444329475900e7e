/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements written by the user: the step `graph`, whole graph models, and functions, evaluated partially as
 * those of other bodies. Local names become unused ones, calls of functions are inlined. Strings keep `{i}` for the
 * index of an enclosing repeat.
 *
 * INVARIANT (hygiene of inlining): a function body sees its arguments, its local names, params, dims and indices,
 * nothing else of the caller.
 * A temporary is an unused name of the graph (temp_push); a binding maps a name of a body to such a name, a value or
 * an expression.
 */
#include <string.h>

#include "frontend/lower/lower.h"
#include "frontend/lower/macro.h"

#define FUNCTION_DEPTH_MAX 64

const struct expr *name_tree(struct expander *b, const char *name, struct loc loc)
{
	return expr_make_leaf(b->arena, EX_NAME, name, loc);
}

const struct expr *value_ref(struct expander *b, const struct step_value *v, struct loc loc)
{
	const struct expr *const args[] = {name_tree(b, v->name, loc),
	                                   v->cut == NULL ? NULL : name_tree(b, v->cut, loc)};
	return v->cut == NULL ? args[0] : expr_make_call(b->arena, "mask_rows", loc, args, 2);
}

const char *value_in_string(struct expander *b, const struct value *v)
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

bool push_assignment(struct expander *b, struct ir_loc loc, const char *target, const struct expr *value)
{
	return graph_push_assignment(b->arena, b->out, loc, &target, 1, value);
}

/* The body of a repeat in a list of statements, or NULL. */
static const struct yaml_node *graph_repeat_body(const struct yaml_node *node)
{
	if (node->kind != YAML_MAPPING)
		return NULL;
	const struct yaml_node *repeat = yaml_find(node, "repeat"), *body = yaml_find(node, "body");
	return body != NULL ? body : yaml_find(repeat, "body");
}

/* Adds to *out the targets of a list of statements and its repeats: name -> struct expr_target *, the first of each
 * name. False if a statement cannot be parsed, which is reported to cx; the others are added anyway. */
static bool collect_assigned(struct expander *b, struct diag_context *cx, const struct yaml_node *list,
                             struct strmap *out)
{
	bool ok = true;
	for (size_t i = 0; list != NULL && list->kind == YAML_SEQUENCE && i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (node->kind != YAML_SCALAR) {
			ok = collect_assigned(b, cx, graph_repeat_body(node), out) && ok;
			continue;
		}
		const struct expr_statement *st = expr_parse_statement(b->arena, cx, expr_source_of(node));
		ok = ok && st != NULL;
		for (size_t t = 0; st != NULL && t < st->n_targets; t++) {
			if (!strmap_has(out, st->targets[t].name))
				strmap_set(out, st->targets[t].name, &st->targets[t]);
		}
	}
	return ok;
}

/* Binds a name of the body to an unused graph name. */
static bool bind_local(struct macro *t, const char *name)
{
	const char *temp = temp_push(t->st->b, name);
	return bind_name(t, name, &(struct partial){.tree = name_tree(t->st->b, temp, t->loc)});
}

/* ---- inlining of functions ---- */

/* Binds the arguments of a call, evaluated in the body t of the caller, and gives local names of the body f unused
   graph names. An expression without a name gets a temporary, since the body may read it more than once, and so does
   an argument that the body assigns, since the caller's value stays. */
static bool bind_arguments_and_locals(struct macro *t, const struct expr *call, struct macro *f)
{
	struct expander *b = t->st->b;
	const struct signature_use use = {b->arena, b->cx, call->loc, NULL};
	const struct signature signature = definition_signature(f->def);
	const struct expr **values = signature_match_call(&use, &signature, call);
	struct strmap assigned;
	strmap_init(&assigned, b->arena);
	if (values == NULL || !collect_assigned(b, b->cx, f->def->body, &assigned))
		return false;
	for (size_t i = 0; i < f->def->n_args; i++) {
		const char *name = f->def->args[i].name;
		struct partial item;
		if (!partial_eval(t, values[i], &item))
			return false;
		bool is_named = item.known || item.tree->kind == EX_NAME || item.tree->kind == EX_LIST;
		if (is_named && !strmap_has(&assigned, name)) {
			bind_name(f, name, &item);
			continue;
		}
		if (!bind_local(f, name) ||
		    !push_assignment(b, (struct ir_loc){call->loc, b->prefix}, target_name(f, name),
		                     partial_tree(t, &item, call->loc)))
			return false;
	}
	for (size_t i = 0; i < assigned.n; i++) {
		if (find_binding(f, assigned.items[i].key) == NULL && !bind_local(f, assigned.items[i].key))
			return false;
	}
	return !arena_failed(b->arena);
}

/* Allocates temporaries for the results, as many as the last statement returns: the body of a function ends with a
 * return (check_recursion has rejected others). */
static bool name_results(struct macro *f)
{
	struct expander *b = f->st->b;
	const struct yaml_node *last = f->def->body->items[f->def->body->n - 1];
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(last));
	if (st == NULL)
		return false;
	f->results = ARENA_ARRAY(b->arena, const char *, st->n_values);
	for (size_t i = 0; f->results != NULL && i < st->n_values; i++)
		f->results[i] = temp_push(b, f->def->name);
	f->n_results = st->n_values;
	return f->results != NULL;
}

/* False after a report if the definition is not a function, calls itself, or calls are nested too deeply: each level
 * uses the C stack. */
static bool check_recursion(const struct macro *f)
{
	struct expander *b = f->st->b;
	int depth = 0;
	if (!f->def->function) {
		diag_error(b->cx, f->loc, DIAG_ARGUMENTS,
		           "the function '%s' is a list of steps; its last entry is not a return",
		           f->def->name);
		diag_note(b->cx, f->def->loc, "it is defined here");
		return false;
	}
	for (const struct use_chain *c = b->chain; c != NULL; c = c->outer) {
		if (strcmp(c->name, f->def->name) == 0) {
			diag_error(b->cx, f->loc, DIAG_CYCLE, "the definition '%s' uses itself",
			           f->def->name);
			return false;
		}
		depth++;
	}
	if (depth < FUNCTION_DEPTH_MAX)
		return true;
	diag_error(b->cx, f->loc, DIAG_LIMIT, "more than %d definitions inside of each other",
	           FUNCTION_DEPTH_MAX);
	return false;
}

/* Expands a call in the body t; f->results are the temporaries with its results. False after a report. */
static bool expand_call(struct macro *t, const struct expr *call, struct macro *f)
{
	struct expander *b = t->st->b;
	struct bindings names = {0};
	*f = (struct macro){.st = t->st,
	                    .names = &names,
	                    .def = model_find_definition(&b->m->definitions, call->text),
	                    .is_graph = true,
	                    .loc = call->loc};
	strmap_init(&names.map, b->arena);
	if (!check_recursion(f) || !name_results(f) || !bind_arguments_and_locals(t, call, f))
		return false;
	struct use_chain link = {b->chain, f->def->name, call->loc};
	b->chain = &link;
	b->graph = f;
	bool ok = expand_body(b, f->def->body);
	b->chain = link.outer;
	b->graph = t;
	f->names = NULL; /* `names` ends here; callers read f->results alone */
	return ok;
}

bool inline_function(struct macro *t, const struct expr *call, struct partial *out)
{
	struct expander *b = t->st->b;
	struct macro f;
	if (!expand_call(t, call, &f))
		return false;
	*out = (struct partial){.tree = name_tree(b, f.results[0], call->loc)};
	if (f.n_results == 1)
		return true;
	diag_error(b->cx, call->loc, DIAG_ARGUMENTS, "'%s' returns %zu values; here is one name", call->text,
	           f.n_results);
	return false;
}

/* ---- statements ---- */

/* Assigns the values of `return a, b` to the temporaries of the call. */
static bool expand_return(struct macro *t, const struct yaml_node *node, const struct expr_statement *st)
{
	struct expander *b = t->st->b;
	if (t->results == NULL || node != t->def->body->items[t->def->body->n - 1]) {
		diag_error(b->cx, st->loc, DIAG_STATEMENT,
		           t->results == NULL ? "return is allowed only in a function"
		                              : "return is the last statement of a function");
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		struct partial value;
		if (!partial_eval(t, st->values[i], &value) ||
		    !push_assignment(b, (struct ir_loc){node->loc, b->prefix}, t->results[i],
		                     partial_tree(t, &value, st->values[i]->loc)))
			return false;
	}
	return true;
}

/* Expands `a, b = f(x)` for a function with as many results. All of them, also a returned argument itself, are in
 * temporaries of the call (name_results, expand_return) until all are computed, as an argument may be one of the
 * targets. */
static bool expand_multi_assignment(struct macro *t, const struct yaml_node *node,
                                    const struct expr_statement *st)
{
	struct expander *b = t->st->b;
	struct macro f;
	if (!expand_call(t, st->values[0], &f))
		return false;
	if (f.n_results != st->n_targets) {
		diag_error(b->cx, st->loc, DIAG_ARGUMENTS, "'%s' returns %zu values, %zu names are assigned",
		           st->values[0]->text, f.n_results, st->n_targets);
		return false;
	}
	for (size_t i = 0; i < f.n_results; i++) {
		if (!push_assignment(b, (struct ir_loc){node->loc, b->prefix},
		                     target_name(t, st->targets[i].name),
		                     name_tree(b, f.results[i], node->loc)))
			return false;
	}
	return true;
}

/* Counts a statement of a function toward MODEL_STEPS_MAX, since nested calls multiply them (those of a graph are
 * bounded by its text), and checks that it assigns no index. False after a report. */
static bool check_statement(struct macro *t, const struct expr_statement *st)
{
	struct expander *b = t->st->b;
	if (t->results != NULL && ++b->n_steps > MODEL_STEPS_MAX) {
		diag_error(b->cx, st->loc, DIAG_LIMIT, "more than %d steps after expansion", MODEL_STEPS_MAX);
		return false;
	}
	for (size_t i = 0; i < st->n_targets; i++) {
		const char *name = target_name(t, st->targets[i].name);
		if (!is_loop_index(b, name))
			continue;
		diag_error(b->cx, st->targets[i].loc, DIAG_NAME_CLASH,
		           "'%s' is the index of a repeat and cannot be assigned", name);
		return false;
	}
	return true;
}

/* Temporaries of calls that are inlined in the statement are free after it. */
bool expand_graph_statement(struct expander *b, const struct yaml_node *node)
{
	struct macro *t = b->graph;
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	size_t temps = b->temps.n;
	if (st == NULL || !check_statement(t, st))
		return false;
	bool several = st->n_targets > 1 && st->n_values == 1 && st->values[0]->kind == EX_CALL &&
	               model_find_definition(&b->m->definitions, st->values[0]->text) != NULL;
	bool ok = st->is_return ? expand_return(t, node, st)
	          : several     ? expand_multi_assignment(t, node, st)
	                        : macro_statement(t, node, st);
	temp_pop(b, b->temps.n - temps);
	return ok;
}

/* ---- the graph step ---- */

/* Gives every name that the statements assign an unused graph name; x stays x. */
static bool rename_locals(struct macro *t, const struct yaml_node *list)
{
	struct expander *b = t->st->b;
	struct strmap assigned;
	strmap_init(&assigned, b->arena);
	if (!collect_assigned(b, b->cx, list, &assigned))
		return false;
	for (size_t i = 0; i < assigned.n; i++) {
		const struct expr_target *target = assigned.items[i].value;
		if (strcmp(target->name, "x") == 0)
			continue;
		if (strmap_has(&b->values, target->name)) {
			diag_error(b->cx, target->loc, DIAG_NAME_CLASH,
			           "'%s' is a value of the model and cannot be assigned", target->name);
			return false;
		}
		if (!bind_local(t, target->name))
			return false;
	}
	return true;
}

/* Copies the nodes with the current indices of enclosing repeats filled into their paths, for messages. */
static struct graph_body with_concrete_paths(struct expander *b, const struct graph_body *body)
{
	struct graph_body out = {NULL, 0, 0};
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		const char *path = node->loc.path == NULL ? NULL : fill_loop_indices(b, node->loc.path);
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

/* Infers the types of the values that the statements assign, by lowering them after all before them. */
static bool infer_types(struct expander *b, const struct graph_body *body)
{
	const struct graph_body here = with_concrete_paths(b, body);
	return lower_body(b->types, &here, false);
}

/* b->types has lowered all statements before; the values keep their dims, imported into the model's table. */
bool infer_x_type(struct expander *b, const struct graph_body *body)
{
	if (!infer_types(b, body))
		return false;
	const struct lowered *x = lower_find(b->types, "x");
	if (x == NULL || x->kind != LOWERED_TENSOR)
		return lower_fail(b->types, LOC_NONE, DIAG_VALUE_TYPE,
		                  "'x' is not a tensor after the statements");
	const struct ir_type *t = irb_type(b->types->b, x->v);
	b->x.dtype = t->dtype;
	b->x.rank = t->rank;
	for (int i = 0; i < t->rank; i++)
		b->x.dims[i] = ir_dim_import(b->m->scope.dims, t->dims[i]);
	b->has_x = true;
	return true;
}

bool push_typed_assignment(struct expander *b, struct ir_loc loc, const char *target,
                           const struct expr *value)
{
	if (!push_assignment(b, loc, target, value))
		return false;
	const struct graph_body last = {b->out->items + b->out->n - 1, 1, 1};
	return b->graph != NULL || infer_types(b, &last);
}

/* A name that the statements assign before they read it is another value. */
bool reads_growing_value(struct expander *b, const struct graph_body *body)
{
	for (size_t i = 0; i < b->values.n; i++) {
		const struct step_value *v = b->values.items[i].value;
		if (v->grows && graph_first_use(body, 0, b->values.items[i].key) == GRAPH_READ)
			return true;
	}
	return false;
}

/* The step `graph`: gives the local names unused graph names and expands the statements into a body of their own,
 * from which the type of x is inferred, before it is appended. */
bool step_graph(struct step *st)
{
	struct expander *b = st->b;
	const struct yaml_node *list = step_arg(st, "statements");
	struct bindings names = {0};
	struct macro t = {.st = st, .names = &names, .is_graph = true, .loc = st->loc};
	struct graph_body body = {NULL, 0, 0}, *out = b->out;
	size_t temps = b->temps.n;
	if (!yaml_expect(b->cx, list, YAML_SEQUENCE, "graph"))
		return false;
	bool ok = start_from_input(st);
	strmap_init(&names.map, b->arena);
	b->graph = &t;
	const char *prefix = b->prefix;
	ok = ok && rename_locals(&t, list);
	/* statements may change rows: real lengths of the result are not known */
	b->x.lengths = NULL;
	b->out = &body;
	b->prefix = st->path;
	ok = ok && expand_body(b, list) && infer_x_type(b, &body);
	b->prefix = prefix;
	b->out = out;
	b->graph = NULL;
	temp_pop(b, b->temps.n - temps);
	b->x.grows = b->x.grows || reads_growing_value(b, &body);
	for (size_t i = 0; ok && i < body.n; i++) {
		struct graph_node *node = graph_push(b->arena, out, body.items[i]->kind, body.items[i]->loc);
		ok = node != NULL;
		if (ok)
			*node = *body.items[i];
	}
	return ok;
}

/* ---- top level ---- */

bool expand_graph_model(struct frontend_model *m)
{
	struct expander b = {
	        .m = m, .arena = &m->arena, .cx = m->cx, .out = &m->graph, .prefix = "", .has_x = true};
	static const struct yaml_node no_args = {.kind = YAML_MAPPING};
	const struct yaml_node *graph = model_section(m, "graph");
	struct step st = {.b = &b, .loc = graph->loc, .args = &no_args, .path = "", .params = ""};
	struct bindings names = {0};
	struct macro t = {.st = &st, .names = &names, .is_graph = true, .loc = graph->loc};
	strmap_init(&b.values, &m->arena);
	strmap_init(&b.owned, &m->arena);
	strmap_init(&names.map, &m->arena);
	strmap_init(&b.graph_names, &m->arena);
	b.graph = &t;
	b.x.name = "x"; /* and has_x: a repeat is a step, which needs a current value */
	/* Collect the assigned names; invalid statements are reported when they are expanded. */
	struct diag_context quiet;
	diag_init(&quiet, NULL, NULL);
	(void)collect_assigned(&b, &quiet, graph, &b.graph_names);
	diag_destroy(&quiet);
	return expand_body(&b, graph);
}
