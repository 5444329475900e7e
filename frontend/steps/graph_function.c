/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of a user's functions in graph statements, written out where they
 * are: arguments become values or literals, names of the body become free
 * ones, the call becomes the name of its result.
 *
 * INVARIANT: a body sees its arguments, its own names, parameters, dims and
 * indices; nothing else of the place of use. A name that stands for a value
 * that was written here begins with `%` in the tree, so that no name of the
 * user can be taken for it.
 */
#include <string.h>

#include "frontend/steps/graph_close.h"

#define FUNCTION_DEPTH_MAX 64

struct inliner {
	struct blocks *b;
	const struct expr *call;
	const struct definition *def;
	struct function_call *f;
};

static bool refuse(const struct inliner *in, struct loc at, const char *what)
{
	diag_error(in->b->cx, at, DIAG_ARGUMENTS, "the function '%s' %s", in->def->name, what);
	diag_note(in->b->cx, in->def->loc, "it is defined here");
	return false;
}

static const struct definition *called(struct blocks *b, const struct expr *e)
{
	return e->kind == EX_CALL ? model_find_definition(&b->m->definitions, e->text) : NULL;
}

/* ---- arguments ---- */

/* Numbers, and what is computed from numbers, parameters and dims alone. */
static bool is_scalar(const struct blocks *b, const struct expr *e)
{
	const char *what = e->kind == EX_NAME ? strmap_get(&b->m->scope.names, e->text) : NULL;
	switch (e->kind) {
	case EX_INT:
	case EX_FLOAT:
	case EX_BOOL:
	case EX_DIM: return true;
	case EX_NAME: return what != NULL && (strcmp(what, "a param") == 0 || strcmp(what, "a dim") == 0);
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

/* What the body reads for an argument that is `e` at the place of use. */
static bool bind_tree(const struct inliner *in, const char *name, const struct expr *e, bool assigned)
{
	struct blocks *b = in->b;
	struct loc loc = in->call->loc;
	struct expr_env env = blocks_env(b, true);
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
		e = graph_name(b, temp, loc);
	}
	return strmap_set(&in->f->trees, name, (void *)(uintptr_t)e);
}

const struct value *graph_function_value(const struct blocks *b, const char *name)
{
	return b->function == NULL ? NULL : strmap_get(&b->function->values, name);
}

/* ---- names of the body ---- */

static bool bind(const struct inliner *in)
{
	struct blocks *b = in->b;
	const struct definition *d = in->def;
	const struct signature_use use = {b->arena, b->cx, in->call->loc, NULL};
	const struct signature signature = definition_signature(d);
	const struct expr **values = signature_match_call(&use, &signature, in->call);
	struct strmap assigned;
	strmap_init(&assigned, b->arena);
	if (values == NULL || !graph_assigned(b, b->cx, d->body, &assigned))
		return false;
	for (size_t i = 0; i < d->n_args; i++) {
		const struct expr *value;
		if (!graph_inline(b, values[i], &value) ||
		    !bind_tree(in, d->args[i].name, graph_close(b, value),
		               strmap_has(&assigned, d->args[i].name)))
			return false;
	}
	for (size_t i = 0; i < assigned.n; i++) {
		const char *name = assigned.items[i].key;
		if (strmap_has(&in->f->trees, name))
			continue;
		const struct expr *own = graph_name(b, temp_push(b, name), in->call->loc);
		if (!strmap_set(&in->f->trees, name, (void *)(uintptr_t)own))
			return false;
	}
	return true;
}

/* The names of the results, as many as the last statement returns. */
static bool name_results(const struct inliner *in)
{
	struct blocks *b = in->b;
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

static bool may_enter(const struct inliner *in)
{
	int depth = 0;
	if (!in->def->function)
		return refuse(in, in->call->loc, "is a list of steps; its last entry is no return");
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

static bool write_body(const struct inliner *in)
{
	struct blocks *b = in->b;
	struct use_chain link = {b->chain, in->def->name, in->call->loc};
	const struct function_call *outer = b->function;
	struct strmap *locals = b->locals;
	b->chain = &link;
	b->function = in->f;
	b->locals = &in->f->trees;
	bool ok = blocks_body(b, in->def->body);
	b->chain = link.outer;
	b->function = outer;
	b->locals = locals;
	return ok;
}

bool graph_call(struct blocks *b, const struct expr *call, const char *const **results, size_t *n)
{
	struct function_call f = {.def = model_find_definition(&b->m->definitions, call->text)};
	const struct inliner in = {b, call, f.def, &f};
	strmap_init(&f.trees, b->arena);
	strmap_init(&f.values, b->arena);
	if (!may_enter(&in) || !name_results(&in) || !bind(&in) || !write_body(&in))
		return false;
	*results = f.results;
	*n = f.n_results;
	return true;
}

/* ---- expressions ---- */

struct inlining {
	struct blocks *b;
	bool failed;
};

/* The name of its result instead of a call. */
static const struct expr *inline_call(void *user, const struct expr *e)
{
	struct inlining *in = user;
	struct blocks *b = in->b;
	const char *const *results;
	size_t n;
	if (in->failed || called(b, e) == NULL)
		return NULL;
	in->failed = !graph_call(b, e, &results, &n);
	if (in->failed)
		return NULL;
	if (n != 1) {
		diag_error(b->cx, e->loc, DIAG_ARGUMENTS, "'%s' returns %zu values; here is one name",
		           e->text, n);
		in->failed = true;
	}
	return graph_name(b, arena_printf(b->arena, "%%%s", results[0]), e->loc);
}

bool graph_inline(struct blocks *b, const struct expr *e, const struct expr **out)
{
	struct inlining in = {b, false};
	*out = expr_map(b->arena, e, inline_call, &in);
	return !in.failed;
}
