/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements written by the user: the step `graph`, whole graph models, and functions. Statements are
 * resolved to the graph level: loop indices, arguments of definitions and params become literals, local names
 * become unused ones, calls of functions are inlined. Strings keep `{i}` for the index of an enclosing repeat.
 *
 * INVARIANT (hygiene of inlining): a function body sees its arguments, its local
 * names, params, dims and indices, nothing else of the caller. In trees, the name
 * of an inlined result begins with `%`, so that no name of the user can clash.
 */
#include <string.h>

#include "frontend/lower/steps.h"
#include "frontend/lower/lower.h"

/* A call of a function while its body is expanded. */
struct inlined_call {
	const struct definition *def;
	struct strmap trees;  /* argument or local name of the body -> struct expr * in the caller */
	struct strmap values; /* argument with a scalar value -> struct value * */
	const char **results; /* temporaries for the returned values */
	size_t n_results;
};

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

/* Evaluates an index (with `loops`) or an argument of a definition; false if the name is neither. */
static bool eval_scoped_name(struct expander *b, const char *name, bool loops, struct value *v)
{
	struct expr_env env = step_env(b, true);
	for (const struct step_scope *s = b->scope; s != NULL; s = s->outer) {
		bool mine = s->def != NULL ? definition_argument(s->def, name) >= 0
		                           : loops && strcmp(s->loop, name) == 0;
		if (mine && env.lookup(env.user, name, LOC_NONE, v) == EXPR_FOUND)
			return true;
	}
	return false;
}

/* The expression for a name in a statement: that of a local name or argument, a value of the model, the value of
 * an index, else the name itself. `%` marks the result of an inlined call, which is final. */
static const struct expr *substitute_name(struct expander *b, const struct expr *e)
{
	const struct expr *local = strmap_get(b->locals, e->text);
	struct value v;
	if (e->text[0] == '%')
		return name_tree(b, e->text + 1, e->loc);
	if (local != NULL)
		return local;
	const struct step_value *of = b->function != NULL ? NULL : strmap_get(&b->values, e->text);
	if (of != NULL)
		return value_ref(b, of, e->loc);
	if (!eval_scoped_name(b, e->text, true, &v))
		return e;
	return v.kind == VALUE_STRING ? name_tree(b, v.s, e->loc) : expr_of_value(b->arena, &v, e->loc);
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

/* Replacement of {name} in a string; NULL: it stays, as a loop index does. */
static const char *substitute_placeholder(void *user, const char *name)
{
	struct expander *b = user;
	const struct expr *e = b->function != NULL ? strmap_get(&b->function->trees, name) : NULL;
	struct value v;
	if (e != NULL && (e->kind == EX_STRING || e->kind == EX_NAME))
		return e->text;
	const struct value *given = inlined_argument_value(b, name);
	if (given != NULL)
		return value_in_string(b, given);
	if (eval_scoped_name(b, name, false, &v))
		return value_in_string(b, &v);
	if (!strmap_has(&b->m->scope.params, name) ||
	    model_lookup_param(&b->m->scope, name, LOC_NONE, &v) != EXPR_FOUND)
		return NULL;
	return value_in_string(b, &v);
}

/* Substitutes names and the placeholders of strings (expr_map); NULL: its children are mapped. */
static const struct expr *substitute_node(void *user, const struct expr *e)
{
	struct expander *b = user;
	if (e->kind == EX_NAME)
		return substitute_name(b, e);
	if (e->kind != EX_STRING)
		return NULL;
	return expr_make_leaf(b->arena, EX_STRING,
	                      fill_placeholders(b->arena, e->text, substitute_placeholder, b), e->loc);
}

/* The expression with the names of the current scope replaced. */
static const struct expr *substitute_names(struct expander *b, const struct expr *e)
{
	return expr_map(b->arena, e, substitute_node, b);
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

/* Adds to *out the names assigned by a list of statements and its repeats. False if a statement cannot be
 * parsed, which is reported to cx; the others are added anyway. */
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
		for (size_t t = 0; st != NULL && t < st->n_targets; t++)
			strmap_set(out, st->targets[t].name, b);
	}
	return ok;
}

/* ---- inlining of functions ---- */

struct inline_site {
	struct expander *b;
	const struct expr *call;
	const struct definition *def;
	struct inlined_call *f;
};

static bool report_bad_call(const struct inline_site *in, struct loc at, const char *what)
{
	diag_error(in->b->cx, at, DIAG_ARGUMENTS, "the function '%s' %s", in->def->name, what);
	diag_note(in->b->cx, in->def->loc, "it is defined here");
	return false;
}

static bool inline_calls(struct expander *b, const struct expr *e, const struct expr **out);

/* ---- arguments ---- */

/* True for literals and expressions of literals, parameters and dims. */
static bool is_scalar(const struct expander *b, const struct expr *e)
{
	switch (e->kind) {
	case EX_INT:
	case EX_FLOAT:
	case EX_BOOL:
	case EX_DIM: return true;
	case EX_NAME: return model_is_param_or_dim(&b->m->scope, e->text);
	case EX_CALL:
		if (!expr_is_function(e->text) || e->n_keywords > 0)
			return false;
		break;
	case EX_UNARY:
	case EX_BINARY:
	case EX_INDEX: break;
	case EX_NONE:
	case EX_STRING:
	case EX_LIST: return false;
	}
	for (size_t i = 0; i < e->n_args; i++) {
		if (!is_scalar(b, e->args[i]))
			return false;
	}
	return e->n_args > 0;
}

/* Binds an argument of the body to the expression e of the caller: scalars are evaluated, other expressions get
 * a temporary, and so do arguments that the body assigns. */
static bool bind_argument_tree(const struct inline_site *in, const char *name, const struct expr *e,
                               bool assigned)
{
	struct expander *b = in->b;
	struct loc loc = in->call->loc;
	struct expr_env env = step_env(b, true);
	struct value v;
	bool is_value = e->kind != EX_NAME && e->kind != EX_STRING && e->kind != EX_LIST;
	if (is_scalar(b, e)) {
		if (!expr_eval(&env, e, &v))
			return false;
		struct value *copy = ARENA_NEW(b->arena, struct value);
		if (copy == NULL)
			return false;
		*copy = v;
		strmap_set(&in->f->values, name, copy);
		e = expr_of_value(b->arena, &v, loc);
		is_value = false;
	}
	if (is_value || assigned) {
		const char *temp = temp_push(b, name);
		if (!push_assignment(b, (struct ir_loc){loc, b->prefix}, temp, e))
			return false;
		e = name_tree(b, temp, loc);
	}
	return strmap_set(&in->f->trees, name, (void *)(uintptr_t)e);
}

const struct value *inlined_argument_value(const struct expander *b, const char *name)
{
	return b->function == NULL ? NULL : strmap_get(&b->function->values, name);
}

/* ---- names of the body ---- */

/* Binds the arguments of a call, and gives local names of the body unused graph names. */
static bool bind_arguments_and_locals(const struct inline_site *in)
{
	struct expander *b = in->b;
	const struct definition *d = in->def;
	const struct signature_use use = {b->arena, b->cx, in->call->loc, NULL};
	const struct signature signature = definition_signature(d);
	const struct expr **values = signature_match_call(&use, &signature, in->call);
	struct strmap assigned;
	strmap_init(&assigned, b->arena);
	if (values == NULL || !collect_assigned(b, b->cx, d->body, &assigned))
		return false;
	for (size_t i = 0; i < d->n_args; i++) {
		const struct expr *value;
		if (!inline_calls(b, values[i], &value) ||
		    !bind_argument_tree(in, d->args[i].name, substitute_names(b, value),
		                        strmap_has(&assigned, d->args[i].name)))
			return false;
	}
	for (size_t i = 0; i < assigned.n; i++) {
		const char *name = assigned.items[i].key;
		if (strmap_has(&in->f->trees, name))
			continue;
		const struct expr *local = name_tree(b, temp_push(b, name), in->call->loc);
		if (!strmap_set(&in->f->trees, name, (void *)(uintptr_t)local))
			return false;
	}
	return true;
}

/* Allocates temporaries for the results, as many as the last statement returns. */
static bool name_results(const struct inline_site *in)
{
	struct expander *b = in->b;
	const struct yaml_node *last = in->def->body->items[in->def->body->n - 1];
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(last));
	if (st == NULL)
		return false;
	in->f->results = ARENA_ARRAY(b->arena, const char *, st->n_values);
	for (size_t i = 0; in->f->results != NULL && i < st->n_values; i++)
		in->f->results[i] = temp_push(b, in->def->name);
	in->f->n_results = st->n_values;
	return in->f->results != NULL;
}

/* ---- the call ---- */

/* False after a report if the definition is not a function, calls itself, or calls are nested too deeply. */
static bool check_recursion(const struct inline_site *in)
{
	int depth = 0;
	if (!in->def->function)
		return report_bad_call(in, in->call->loc,
		                       "is a list of steps; its last entry is not a return");
	for (const struct use_chain *c = in->b->chain; c != NULL; c = c->outer) {
		if (strcmp(c->name, in->def->name) == 0) {
			diag_error(in->b->cx, in->call->loc, DIAG_CYCLE, "the definition '%s' uses itself",
			           in->def->name);
			return false;
		}
		depth++;
	}
	if (depth < FUNCTION_DEPTH_MAX)
		return true;
	diag_error(in->b->cx, in->call->loc, DIAG_LIMIT, "more than %d definitions inside of each other",
	           FUNCTION_DEPTH_MAX);
	return false;
}

/* Expands the statements of the function in its scope. */
static bool expand_function_body(const struct inline_site *in)
{
	struct expander *b = in->b;
	struct use_chain link = {b->chain, in->def->name, in->call->loc};
	const struct inlined_call *outer = b->function;
	struct strmap *locals = b->locals;
	b->chain = &link;
	b->function = in->f;
	b->locals = &in->f->trees;
	bool ok = expand_body(b, in->def->body);
	b->chain = link.outer;
	b->function = outer;
	b->locals = locals;
	return ok;
}

/* Expands a call; *results are the temporaries with its results. False after a report. */
static bool inline_call(struct expander *b, const struct expr *call, const char *const **results, size_t *n)
{
	struct inlined_call f = {.def = model_find_definition(&b->m->definitions, call->text)};
	const struct inline_site in = {b, call, f.def, &f};
	strmap_init(&f.trees, b->arena);
	strmap_init(&f.values, b->arena);
	if (!check_recursion(&in) || !name_results(&in) || !bind_arguments_and_locals(&in) ||
	    !expand_function_body(&in))
		return false;
	*results = f.results;
	*n = f.n_results;
	return true;
}

/* ---- expressions ---- */

struct inline_rewrite {
	struct expander *b;
	bool failed;
};

/* Replaces a call by the name of its result. */
static const struct expr *inline_call_node(void *user, const struct expr *e)
{
	struct inline_rewrite *in = user;
	struct expander *b = in->b;
	const char *const *results;
	size_t n;
	if (in->failed || e->kind != EX_CALL || model_find_definition(&b->m->definitions, e->text) == NULL)
		return NULL;
	in->failed = !inline_call(b, e, &results, &n);
	if (in->failed)
		return NULL;
	if (n != 1) {
		diag_error(b->cx, e->loc, DIAG_ARGUMENTS, "'%s' returns %zu values; here is one name",
		           e->text, n);
		in->failed = true;
	}
	return name_tree(b, arena_printf(b->arena, "%%%s", results[0]), e->loc);
}

/* Copies e to *out with calls of functions inlined; their statements are appended to b->out. */
static bool inline_calls(struct expander *b, const struct expr *e, const struct expr **out)
{
	struct inline_rewrite in = {b, false};
	*out = expr_map(b->arena, e, inline_call_node, &in);
	return !in.failed;
}

/* ---- statements ---- */

/* The graph name that an assignment in the current scope writes. */
static const char *scoped_target(struct expander *b, const char *target)
{
	const struct expr *local = strmap_get(b->locals, target);
	return local != NULL && local->kind == EX_NAME ? local->text : target;
}

/* Checks that a function body reads only its arguments and local names, not values of the caller (hygiene). */
static bool check_body_names(struct expander *b, const struct expr *e)
{
	bool outer = e->kind == EX_NAME && !strmap_has(b->locals, e->text) &&
	             (strmap_has(&b->values, e->text) || strmap_has(&b->graph_names, e->text) ||
	              model_find_input(&b->m->inputs, e->text) >= 0);
	if (outer) {
		diag_error(b->cx, e->loc, DIAG_UNKNOWN_VALUE,
		           "'%s' is neither an argument of the function '%s' nor a local name", e->text,
		           b->function->def->name);
		return false;
	}
	for (size_t i = 0; i < e->n_args; i++) {
		if (!check_body_names(b, e->args[i]))
			return false;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		const struct expr *v = e->keywords[i].value;
		if (v->kind != EX_NAME &&
		    !check_body_names(b, v)) /* a bare name may be a word of the language */
			return false;
	}
	return true;
}

/* Counts a statement of a function toward MODEL_STEPS_MAX, and checks the names it reads. False after a report. */
static bool check_body_statement(struct expander *b, const struct expr_statement *st)
{
	if (++b->n_steps > MODEL_STEPS_MAX) {
		diag_error(b->cx, st->loc, DIAG_LIMIT, "more than %d steps after expansion", MODEL_STEPS_MAX);
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		if (!check_body_names(b, st->values[i]))
			return false;
	}
	return true;
}

/* Assigns the values of `return a, b` to the temporaries of the call. */
static bool expand_return(struct expander *b, const struct yaml_node *node, const struct expr_statement *st)
{
	const struct inlined_call *f = b->function;
	if (f == NULL || node != f->def->body->items[f->def->body->n - 1]) {
		diag_error(b->cx, st->loc, DIAG_STATEMENT,
		           f == NULL ? "return is allowed only in a function"
		                     : "return is the last statement of a function");
		return false;
	}
	for (size_t i = 0; i < st->n_values; i++) {
		const struct expr *value;
		if (!inline_calls(b, st->values[i], &value) ||
		    !push_assignment(b, (struct ir_loc){node->loc, b->prefix}, f->results[i],
		                     substitute_names(b, value)))
			return false;
	}
	return true;
}

/* Expands `a, b = f(x)` for a function with as many results. */
static bool expand_multi_assignment(struct expander *b, const struct yaml_node *node,
                                    const struct expr_statement *st)
{
	const char *const *results;
	size_t n;
	if (!inline_call(b, st->values[0], &results, &n))
		return false;
	if (n != st->n_targets) {
		diag_error(b->cx, st->loc, DIAG_ARGUMENTS, "'%s' returns %zu values, %zu names are assigned",
		           st->values[0]->text, n, st->n_targets);
		return false;
	}
	for (size_t i = 0; i < n; i++) {
		if (!push_assignment(b, (struct ir_loc){node->loc, b->prefix},
		                     scoped_target(b, st->targets[i].name),
		                     name_tree(b, results[i], node->loc)))
			return false;
	}
	return true;
}

/* Appends an assignment with calls inlined and names substituted. */
static bool expand_assignment(struct expander *b, const struct yaml_node *node,
                              const struct expr_statement *st)
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
		        (struct expr_target){scoped_target(b, st->targets[i].name), st->targets[i].loc};
	for (size_t i = 0; i < st->n_values; i++) {
		const struct expr *value;
		if (!inline_calls(b, st->values[i], &value))
			return false;
		closed->values[i] = substitute_names(b, value);
	}
	return graph_push_statement(b->arena, b->out, (struct ir_loc){node->loc, b->prefix}, closed);
}

static bool check_targets_not_indices(struct expander *b, const struct expr_statement *st)
{
	for (size_t i = 0; i < st->n_targets; i++) {
		const char *name = scoped_target(b, st->targets[i].name);
		if (!is_loop_index(b, name))
			continue;
		diag_error(b->cx, st->targets[i].loc, DIAG_NAME_CLASH,
		           "'%s' is the index of a repeat and cannot be assigned", name);
		return false;
	}
	return true;
}

bool expand_graph_statement(struct expander *b, const struct yaml_node *node)
{
	const struct expr_statement *st = expr_parse_statement(b->arena, b->cx, expr_source_of(node));
	size_t temps = b->temps.n;
	if (st == NULL || (b->function != NULL && !check_body_statement(b, st)) ||
	    !check_targets_not_indices(b, st))
		return false;
	bool several = st->n_targets > 1 && st->n_values == 1 && st->values[0]->kind == EX_CALL &&
	               model_find_definition(&b->m->definitions, st->values[0]->text) != NULL;
	bool ok = st->is_return ? expand_return(b, node, st)
	          : several     ? expand_multi_assignment(b, node, st)
	                        : expand_assignment(b, node, st);
	temp_pop(b, b->temps.n - temps);
	return ok;
}

/* ---- the graph step ---- */

/* Gives every name that the statements assign an unused graph name; x stays x. */
static bool rename_locals(struct expander *b, const struct yaml_node *list, size_t *n_temps)
{
	for (size_t i = 0; i < list->n; i++) {
		const struct yaml_node *node = list->items[i];
		if (node->kind == YAML_MAPPING) {
			const struct yaml_node *body = graph_repeat_body(node);
			if (body != NULL && !rename_locals(b, body, n_temps))
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
			           (void *)(uintptr_t)name_tree(b, temp_push(b, name), LOC_NONE));
			(*n_temps)++;
		}
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
	return b->locals != NULL || infer_types(b, &last);
}

bool reads_growing_value(struct expander *b, const struct graph_body *body)
{
	for (size_t i = 0; i < b->values.n; i++) {
		const struct step_value *v = b->values.items[i].value;
		if (v->grows && graph_first_use(body, 0, b->values.items[i].key) == GRAPH_READ)
			return true;
	}
	return false;
}

/* The step `graph`: gives the local names unused graph names, expands the statements into a body, and appends it. */
bool step_graph(struct step *st)
{
	struct expander *b = st->b;
	const struct yaml_node *list = step_arg(st, "statements");
	struct strmap locals, *outer = b->locals;
	struct graph_body body = {NULL, 0, 0}, *out = b->out;
	size_t temps = 0;
	if (!yaml_expect(b->cx, list, YAML_SEQUENCE, "graph"))
		return false;
	bool ok = start_from_input(st);
	strmap_init(&locals, b->arena);
	b->locals = &locals;
	const char *prefix = b->prefix;
	ok = ok && rename_locals(b, list, &temps);
	b->x.lengths = NULL;
	b->out = &body;
	b->prefix = st->path;
	ok = ok && expand_body(b, list) && infer_x_type(b, &body);
	b->prefix = prefix;
	b->out = out;
	b->locals = outer;
	temp_pop(b, temps);
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
	struct strmap locals;
	const struct yaml_node *graph = model_section(m, "graph");
	strmap_init(&b.values, &m->arena);
	strmap_init(&b.owned, &m->arena);
	strmap_init(&locals, &m->arena);
	strmap_init(&b.graph_names, &m->arena);
	b.locals = &locals;
	b.x.name = "x";
	/* Collect the assigned names; invalid statements are reported when they are expanded. */
	struct diag_context quiet;
	diag_init(&quiet, NULL, NULL);
	(void)collect_assigned(&b, &quiet, graph, &b.graph_names);
	diag_destroy(&quiet);
	return expand_body(&b, graph);
}
