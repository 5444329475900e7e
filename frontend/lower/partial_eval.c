/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partial evaluation of expressions in bodies of statements: names are replaced by their bindings, subexpressions with
 * known operands are computed, the rest becomes a residual expression of the graph level. The query functions answer
 * questions about types, dims and the step at compile time: fn_NAME and form_NAME are the rows NAME of
 * syntax/calls.def. `of` of a partial is the value that its tree names, with type and properties; NULL: its type is not
 * known. Bodies of the prelude are shared, so that their errors are reported at the step. False after a report.
 */
#include <string.h>

#include "frontend/syntax/signature.h"
#include "frontend/lower/lower.h"
#include "frontend/lower/macro.h"
#include "ir/support/strmap.h"

struct partial known_value(struct value v)
{
	return (struct partial){.known = true, .v = v};
}

struct partial partial_of_value(struct macro *t, const struct step_value *v)
{
	return (struct partial){.tree = value_ref(t->st->b, v, t->st->loc), .of = v};
}

const struct partial *find_binding(const struct macro *t, const char *name)
{
	const struct partial *found = NULL;
	for (const struct bindings *n = t->names; n != NULL && found == NULL; n = n->outer)
		found = strmap_get(&n->map, name);
	return found;
}

struct loc macro_loc(const struct macro *t, struct loc loc)
{
	return t->is_prelude ? t->loc : loc;
}

/* False after a report if size exceeds PARTIAL_SIZE_MAX: a body may double a value with each statement. */
static bool check_partial_size(struct macro *t, size_t size)
{
	return size <= PARTIAL_SIZE_MAX ||
	       step_error(t->st, NULL, DIAG_LIMIT, "a value of the body has more than %d parts",
	                  PARTIAL_SIZE_MAX);
}

const struct expr *partial_tree(struct macro *t, const struct partial *i, struct loc loc)
{
	if (!i->known || i->tree != NULL)
		return i->tree;
	if (i->word && i->v.kind == VALUE_STRING)
		return name_tree(t->st->b, i->v.s, loc);
	return expr_of_value(t->st->b->arena, &i->v, loc);
}

/* ---- query functions ---- */

struct query_call {
	struct macro *t;
	const struct expr *e;
	const struct partial *args;
	struct partial *out;
};

typedef bool macro_fn(const struct query_call *u);

static bool query_return(const struct query_call *u, struct value v)
{
	*u->out = known_value(v);
	return true;
}

static bool query_return_null(const struct query_call *u)
{
	return query_return(u, (struct value){.kind = VALUE_NONE});
}

/* The value that argument `at` names; NULL after a report. */
static const struct step_value *query_value_arg(const struct query_call *u, size_t at)
{
	const struct step_value *v = u->args[at].of;
	if (v == NULL)
		step_error(u->t->st, NULL, DIAG_UNKNOWN_VALUE, "'%s' wants a value whose type is known",
		           u->e->text);
	return v;
}

/* An argument that is no known int counts as 0. */
static int64_t query_int_arg(const struct query_call *u, size_t at)
{
	const struct partial *i = &u->args[at];
	return i->known && i->v.kind == VALUE_INT ? i->v.i : 0;
}

static bool fn_rank(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	return v != NULL && query_return(u, value_int(v->rank));
}

static bool fn_dtype(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	return v != NULL && query_return(u, value_string(ir_dtype_name(v->dtype)));
}

static bool fn_is_float(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	return v != NULL && query_return(u, value_bool(ir_dtype_class(v->dtype) == DTCLASS_FLOAT));
}

/* dim(x, i): the size of axis i, which counts from the end if negative; null: x has no such axis. */
static bool fn_dim(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	if (v == NULL)
		return false;
	int64_t i = query_int_arg(u, 1) + (query_int_arg(u, 1) < 0 ? v->rank : 0);
	return i < 0 || i >= v->rank ? query_return_null(u) : query_return(u, value_dim(v->dims[i]));
}

/* shape(x): the list of its sizes. */
static bool fn_shape(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, IR_RANK_MAX);
	if (v == NULL || items == NULL)
		return false;
	for (int i = 0; i < v->rank; i++)
		items[i] = value_dim(v->dims[i]);
	return query_return(u, (struct value){.kind = VALUE_LIST, .n = (size_t)v->rank, .items = items});
}

/* lengths(x): the name of its real lengths; null: none. */
static bool fn_lengths(const struct query_call *u)
{
	struct expander *b = u->t->st->b;
	const struct step_value *v = query_value_arg(u, 0);
	if (v == NULL || v->lengths == NULL)
		return v != NULL && query_return_null(u);
	*u->out = (struct partial){.tree = name_tree(b, v->lengths, u->t->st->loc)};
	return true;
}

static bool fn_grows(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	return v != NULL && query_return(u, value_bool(v->grows));
}

static bool fn_is_input(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	return v != NULL && query_return(u, value_bool(v->input > 0));
}

/* below(x): the bound that ids of the input x are checked against; null: none, or x is no input. */
static bool fn_below(const struct query_call *u)
{
	const struct step_value *v = query_value_arg(u, 0);
	int64_t n = v == NULL || v->input == 0 ? 0 : u->t->st->b->m->inputs.items[v->input - 1].below;
	return v != NULL && (n == 0 ? query_return_null(u) : query_return(u, value_int(n)));
}

/* positions_end(x): one past the largest position along axis 1: its largest size, or max_len if x depends on the
 * tokens of a generating model, where a call continues a sequence; null: x has no axis 1. */
static bool fn_positions_end(const struct query_call *u)
{
	const struct frontend_model *m = u->t->st->b->m;
	const struct step_value *v = query_value_arg(u, 0);
	if (v == NULL || v->rank < 2)
		return v != NULL && query_return_null(u);
	int64_t n = ir_dim_hi(m->scope.dims, v->dims[1]);
	return query_return(u, value_int(v->grows && m->generate.max_len > n ? m->generate.max_len : n));
}

/* lo(n): the least value of a dim; a number is its own. */
static bool fn_lo(const struct query_call *u)
{
	const struct value *v = &u->args[0].v;
	return query_return(
	        u, v->kind != VALUE_DIM ? *v : value_int(ir_dim_lo(u->t->st->b->m->scope.dims, v->dim)));
}

static bool fn_is_int(const struct query_call *u)
{
	return query_return(u, value_bool(u->args[0].known && u->args[0].v.kind == VALUE_INT));
}

/* product(list): the product of ints and dims; null if another element is in the list. */
static bool fn_product(const struct query_call *u)
{
	struct ir_dims *dims = u->t->st->b->m->scope.dims;
	const struct value *v = &u->args[0].v;
	const struct ir_dim *n = ir_dim_const(dims, 1);
	for (size_t i = 0; v->kind == VALUE_LIST && i < v->n; i++) {
		if (v->items[i].kind != VALUE_DIM && v->items[i].kind != VALUE_INT)
			return query_return_null(u);
		n = ir_dim_mul(dims, n,
		               v->items[i].kind == VALUE_DIM ? v->items[i].dim
		                                             : ir_dim_const(dims, v->items[i].i));
	}
	return query_return(u, value_dim(n));
}

/* without(list, i): the list without element i, which counts from the end if negative. */
static bool fn_without(const struct query_call *u)
{
	const struct value *v = &u->args[0].v;
	int64_t at = query_int_arg(u, 1);
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, v->n + 1);
	struct value out = {.kind = VALUE_LIST, .items = items};
	at += at < 0 ? (int64_t)v->n : 0;
	for (size_t i = 0; items != NULL && i < v->n; i++) {
		if ((int64_t)i != at)
			items[out.n++] = v->items[i];
	}
	return items != NULL && query_return(u, out);
}

/* repeated(value, n): a shape, so n is at most IR_RANK_MAX; a negative n counts as 0. */
static bool fn_repeated(const struct query_call *u)
{
	int64_t n = query_int_arg(u, 1);
	if (n > IR_RANK_MAX)
		return step_error(u->t->st, NULL, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	n = n < 0 ? 0 : n;
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, n + 1);
	for (int64_t i = 0; items != NULL && i < n; i++)
		items[i] = u->args[0].v;
	return items != NULL &&
	       query_return(u, (struct value){.kind = VALUE_LIST, .n = (size_t)n, .items = items});
}

/* is_permutation(list): true if it has each of 0 .. n - 1 once. */
static bool fn_is_permutation(const struct query_call *u)
{
	const struct value *v = &u->args[0].v;
	unsigned seen = 0;
	if (v->n > IR_RANK_MAX)
		return query_return(u, value_bool(false));
	for (size_t i = 0; i < v->n; i++) {
		int64_t at = v->items[i].kind == VALUE_INT ? v->items[i].i : -1;
		if (at < 0 || at >= (int64_t)v->n || (seen & 1u << at) != 0)
			return query_return(u, value_bool(false));
		seen |= 1u << at;
	}
	return query_return(u, value_bool(true));
}

/* Appends ".{i}" for each enclosing loop whose index the name lacks, outermost first. A scope with a definition is no
   loop. */
static const char *append_loop_indices(const struct step *st, const struct step_scope *s, const char *name)
{
	struct arena *a = st->b->arena;
	if (s == NULL)
		return name;
	name = append_loop_indices(st, s->outer, name);
	bool is_known = s->def != NULL || name == NULL || has_index(a, name, s->loop);
	return is_known ? name : arena_printf(a, "%s.{%s}", name, s->loop);
}

/* Name of the cache of a step: its path, and the indices of shared repeats, whose iterations have the same
 * path. */
static bool fn_cache_name(const struct query_call *u)
{
	return query_return(u,
	                    value_string(append_loop_indices(u->t->st, u->t->st->b->scope, u->t->st->path)));
}

/* Path of the table of relative biases: the step's own (share null), or with `share: PATH` the table of an
 * earlier attention at PATH. A path with a leading slash names a table that no attention owns. */
static bool fn_bias_table(const struct query_call *u)
{
	const struct step *st = u->t->st;
	struct expander *b = st->b;
	const struct yaml_node *bias = step_arg(st, "rel_bias");
	const struct yaml_node *share =
	        bias == NULL || bias->kind != YAML_MAPPING ? NULL : yaml_find(bias, "share");
	if (u->args[0].v.kind != VALUE_STRING) {
		strmap_set(&b->biased, fill_loop_indices(b, st->params), b);
		return query_return(u, value_string(arena_printf(b->arena, "%s.rel_bias", st->params)));
	}
	const char *path = u->args[0].v.s;
	if (strmap_has(&b->biased, fill_loop_indices(b, path)))
		return query_return(u, value_string(arena_printf(b->arena, "%s.rel_bias", path)));
	const char *dot = strrchr(path, '.');
	bool is_table = dot != NULL && strcmp(dot, ".rel_bias") == 0 &&
	                strmap_has(&b->biased,
	                           fill_loop_indices(b, arena_strndup(b->arena, path, (size_t)(dot - path))));
	if (is_table || (share != NULL && share->text[0] == '/'))
		return query_return(u, u->args[0].v);
	size_t n = 0;
	const char **names = ARENA_ARRAY(b->arena, const char *, b->biased.n + 1);
	for (; names != NULL && n < b->biased.n; n++)
		names[n] = b->biased.items[n].key;
	diag_error(b->cx, share != NULL ? share->loc : st->loc, DIAG_UNKNOWN_PATH,
	           "no earlier attention has its own rel_bias at the path '%s'%s; a table outside of any "
	           "attention begins with a slash, as in share: /distances",
	           fill_loop_indices(b, path), did_you_mean(b->arena, fill_loop_indices(b, path), names, n));
	return false;
}

/* Error text if attention with (window, is causal) cannot have a cache of `len` positions, else null. */
static bool fn_cache_refusal(const struct query_call *u)
{
	struct expander *b = u->t->st->b;
	struct cache_use use = {query_int_arg(u, 0), u->args[1].v.kind == VALUE_BOOL && u->args[1].v.b};
	const char *why = cache_len_error(b->arena, &use, query_int_arg(u, 2), b->m->generate.max_len);
	return why == NULL ? query_return_null(u) : query_return(u, value_string(why));
}

/* ---- forms: functions that do not evaluate all arguments ---- */

/* if(condition, a, b): evaluates the selected one only; the condition must be known. */
static bool form_if(struct macro *t, const struct expr *const *args, struct partial *out)
{
	struct partial c;
	if (!partial_eval(t, args[0], &c))
		return false;
	if (c.known && c.v.kind == VALUE_BOOL)
		return partial_eval(t, args[c.v.b ? 1 : 2], out);
	return step_error(t->st, NULL, DIAG_VALUE_TYPE, "the condition of 'if' is not known here");
}

/* each(i, n, E): the list of E for i = 0 .. n - 1. Nested ones multiply, so that the iterations of all `each` of a
 * step are counted before they are made. */
static bool form_each(struct macro *t, const struct expr *const *args, struct partial *out)
{
	struct arena *a = t->st->b->arena;
	struct bindings inner = {.outer = t->names};
	struct partial n, one;
	size_t size = 1;
	struct expr *list = ARENA_NEW(a, struct expr);
	if (list == NULL || !partial_eval(t, args[1], &n))
		return false;
	int64_t count = n.known && n.v.kind == VALUE_INT ? n.v.i : -1;
	if (count < 0 || count > MODEL_REPEAT_MAX)
		return step_error(t->st, NULL, DIAG_LIMIT, "'each' counts from 0 to %d", MODEL_REPEAT_MAX);
	t->each_count += (size_t)count;
	if (!check_partial_size(t, t->each_count))
		return false;
	*list = (struct expr){.kind = EX_LIST, .loc = macro_loc(t, args[0]->loc)};
	list->args = ARENA_ARRAY(a, const struct expr *, count + 1);
	strmap_init(&inner.map, a);
	bool ok = list->args != NULL;
	for (int64_t i = 0; ok && i < count; i++) {
		struct partial index = known_value(value_int(i));
		t->names = &inner;
		ok = bind_name(t, args[0]->text, &index) && partial_eval(t, args[2], &one);
		t->names = inner.outer;
		ok = ok && check_partial_size(t, size += 1 + one.size);
		if (ok)
			list->args[list->n_args++] = partial_tree(t, &one, list->loc);
	}
	*out = (struct partial){.tree = list, .size = size};
	return ok;
}

/* given(name): true if the step has the argument. */
static bool form_given(struct macro *t, const struct expr *const *args, struct partial *out)
{
	*out = known_value(value_bool(step_arg(t->st, args[0]->text) != NULL));
	return true;
}

static const struct {
	macro_fn *fn; /* applied to evaluated arguments, or */
	bool (*form)(struct macro *t, const struct expr *const *args, struct partial *out);
} functions[] = {
#define QUERY(name, doc, args)      {fn_##name, NULL},
#define FORM(name, doc, args)       {NULL, form_##name},
#define QUERY_FORM(name, doc, args) {NULL, form_##name},
#include "frontend/syntax/calls.def"
};

/* Matches the arguments of a query to its signature and runs its row of `functions`, which has one row for each
 * QUERY, FORM and QUERY_FORM of calls.def. A form gets its arguments unevaluated. False after a report. */
static bool evaluate_query(struct macro *t, const struct expr *e, const struct signature *s, size_t row,
                           struct partial *out)
{
	struct arena *a = t->st->b->arena;
	const struct signature_use use = {a, t->st->b->cx, macro_loc(t, e->loc), t->st->path};
	const struct expr **values = signature_match_call(&use, s, e);
	struct partial *args = ARENA_ARRAY(a, struct partial, signature_length(s) + 1);
	if (values == NULL || args == NULL)
		return false;
	if (s->args[0].type == ARGUMENT_NAME && values[0]->kind != EX_NAME)
		return step_error(t->st, NULL, DIAG_VALUE_TYPE, "'%s' of %s is a name", s->args[0].name,
		                  s->name);
	if (functions[row].form != NULL)
		return functions[row].form(t, values, out);
	for (size_t i = 0; i < signature_length(s); i++) {
		if (!partial_eval(t, values[i], &args[i]))
			return false;
	}
	return functions[row].fn(&(struct query_call){t, e, args, out});
}

enum function_found { FUNCTION_NONE, FUNCTION_DONE, FUNCTION_FAILED };

/* Calls a query function or form; FUNCTION_NONE: e is not one. Graphs have forms only: their values may have no type
 * yet. */
static enum function_found call_query(struct macro *t, const struct expr *e, struct partial *out)
{
	size_t row, form;
	const struct signature *s = signature_of(CALL_QUERY | CALL_QUERY_FORM | CALL_FORM, e->text, &row);
	if (s == NULL || (t->is_graph && signature_of(CALL_FORM, e->text, &form) == NULL))
		return FUNCTION_NONE;
	return evaluate_query(t, e, s, row, out) ? FUNCTION_DONE : FUNCTION_FAILED;
}

/* ---- names ---- */

/* Reports a value of the caller that the body of a function reads (hygiene). */
static bool report_value_of_caller(const struct macro *t, const struct expr *e)
{
	diag_error(t->st->b->cx, e->loc, DIAG_UNKNOWN_VALUE,
	           "'%s' is neither an argument of the function '%s' nor a local name", e->text,
	           t->def->name);
	return false;
}

/* The binding of a name; in bodies of the model also values, and indices, arguments, params and dims of the caller;
 * in functions no values. A body of the prelude sees its bindings only. Another name is that of a graph value, or a
 * word. x has the type of before the first statement (t->before). */
static bool eval_name(struct macro *t, const struct expr *e, struct partial *out)
{
	struct expander *b = t->st->b;
	const struct partial *found = find_binding(t, e->text);
	struct loc loc = macro_loc(t, e->loc);
	if (found != NULL) {
		*out = *found;
		if (!t->is_prelude && !found->known && found->tree->kind == EX_NAME)
			out->tree = name_tree(b, found->tree->text, loc);
		return true;
	}
	*out = (struct partial){.tree = name_tree(b, e->text, loc)};
	if (strcmp(e->text, "x") == 0 && !t->is_graph)
		out->of = &t->before;
	if (t->is_prelude || out->of != NULL)
		return true;
	const struct step_value *of = strmap_get(&b->values, e->text);
	if (t->results != NULL && (of != NULL || strmap_has(&b->graph_names, e->text) ||
	                           model_find_input(&b->m->inputs, e->text) >= 0))
		return report_value_of_caller(t, e);
	if (of != NULL) {
		*out = (struct partial){.tree = value_ref(b, of, loc), .of = of};
		return true;
	}
	struct expr_env env = step_env(b, true);
	struct value v;
	enum expr_lookup how = env.lookup(env.user, e->text, e->loc, &v);
	if (how == EXPR_FOUND) {
		*out = known_value(v);
		out->word = v.kind == VALUE_STRING && expr_is_name(v.s);
	}
	return how != EXPR_FAILED;
}

/* ---- strings ---- */

/* Replacement of {name} in a string: a binding, in bodies of the model also an argument of the caller or a param; NULL:
 * it stays, as an index does. */
static const char *name_in_string(void *user, const char *name)
{
	struct macro *t = user;
	struct expander *b = t->st->b;
	const struct partial *i = find_binding(t, name);
	struct value v;
	if (i != NULL && i->known)
		return value_in_string(b, &i->v);
	if (i != NULL) /* a word is an argument of a function as it stands */
		return t->results != NULL && i->tree->kind == EX_NAME ? i->tree->text : NULL;
	if (t->is_prelude || is_loop_index(b, name))
		return NULL;
	struct expr_env env = step_env(b, false);
	bool found = env.lookup(env.user, name, LOC_NONE, &v) == EXPR_FOUND && v.kind != VALUE_DIM;
	return found ? value_in_string(b, &v) : NULL;
}

/* Parses an expression of a body. Texts of the prelude are cached; those of a model are not, since each has a
 * location of its own. */
static const struct expr *parse_cached_expr(struct macro *t, struct expr_source src)
{
	struct expander *b = t->st->b;
	const struct expr *e = t->is_prelude ? strmap_get(&b->parsed, src.text) : NULL;
	if (e != NULL)
		return e;
	e = expr_parse(b->arena, b->cx, src, EXPR_GRAPH);
	if (e != NULL && t->is_prelude)
		strmap_set(&b->parsed, src.text, (void *)(uintptr_t)e);
	return e;
}

static const char *value_in_message(void *user, const char *text)
{
	struct macro *t = user;
	const struct expr *e = parse_cached_expr(
	        t, (struct expr_source){.text = text, .len = strlen(text), .loc = t->st->loc});
	struct partial i;
	return e != NULL && partial_eval(t, e, &i) && i.known ? value_in_string(t->st->b, &i.v) : NULL;
}

const char *macro_message(struct macro *t, const char *text)
{
	return fill_placeholders(t->st->b->arena, text, value_in_message, t);
}

/* ---- operations ---- */

/* Evaluates the operands of e; *known: all are known. False after a report. */
static bool eval_args(struct macro *t, const struct expr *e, struct partial *args, bool *known)
{
	*known = true;
	for (size_t i = 0; i < e->n_args; i++) {
		if (!partial_eval(t, e->args[i], &args[i]))
			return false;
		*known = *known && args[i].known;
	}
	return true;
}

/* Rebuilds a node with evaluated arguments. Keyword arguments that are null are left out, so that a body may pass an
 * absent argument on. False after a report. */
static bool residual_call(struct macro *t, const struct expr *e, const struct partial *args,
                          struct partial *out)
{
	struct arena *a = t->st->b->arena;
	struct expr *copy = ARENA_NEW(a, struct expr);
	size_t size = 1 + e->n_args;
	if (copy == NULL)
		return false;
	*copy = *e;
	copy->loc = macro_loc(t, e->loc);
	copy->args = ARENA_ARRAY(a, const struct expr *, e->n_args + 1);
	copy->keywords = ARENA_ARRAY(a, struct expr_keyword, e->n_keywords + 1);
	copy->n_keywords = 0;
	if (copy->args == NULL || copy->keywords == NULL)
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		copy->args[i] = partial_tree(t, &args[i], macro_loc(t, e->args[i]->loc));
		size += args[i].size;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		struct partial value;
		if (!partial_eval(t, e->keywords[i].value, &value))
			return false;
		if (value.known && value.v.kind == VALUE_NONE)
			continue;
		size += 1 + value.size;
		copy->keywords[copy->n_keywords++] = (struct expr_keyword){
		        e->keywords[i].name, macro_loc(t, e->keywords[i].loc),
		        partial_tree(t, &value, macro_loc(t, e->keywords[i].value->loc))};
	}
	*out = (struct partial){.tree = copy, .size = size};
	return !arena_failed(a) && check_partial_size(t, size);
}

/* Applies the operator or function to known arguments with the evaluator of plain expressions. A failure has been
 * reported: nothing is left for run time. */
static bool fold_constants(struct macro *t, const struct expr *e, const struct partial *args,
                           struct partial *out)
{
	struct expander *b = t->st->b;
	struct expr_env env = step_env(t->st->b, true);
	struct expr at = *e;
	struct value *values = ARENA_ARRAY(b->arena, struct value, e->n_args + 1);
	if (values == NULL)
		return false;
	for (size_t i = 0; i < e->n_args; i++)
		values[i] = args[i].v;
	at.loc = macro_loc(t, e->loc);
	*out = known_value((struct value){.kind = VALUE_NONE});
	return expr_apply(&env, &at, values, e->n_args, &out->v);
}

/* a + b of known lists; false after a report of too many elements. */
static bool concat_lists(struct macro *t, const struct value *a, const struct value *b, struct partial *out)
{
	if (!check_partial_size(t, a->n + b->n))
		return false;
	struct value *items = ARENA_ARRAY(t->st->b->arena, struct value, a->n + b->n + 1);
	if (items == NULL)
		return false;
	for (size_t i = 0; i < a->n + b->n; i++)
		items[i] = i < a->n ? a->items[i] : b->items[i - a->n];
	*out = known_value((struct value){.kind = VALUE_LIST, .n = a->n + b->n, .items = items});
	return true;
}

/* True if == and != compare identity, which the evaluator of plain expressions does not: one operand is null or a
 * list, or both are known and one is a dim. A tensor is compared with the size of a dim when the model runs. */
static bool compares_by_identity(const struct partial *args, bool known)
{
	for (size_t i = 0; i < 2; i++) {
		enum value_kind k = args[i].v.kind;
		if (args[i].known && (k == VALUE_NONE || k == VALUE_LIST || (k == VALUE_DIM && known)))
			return true;
	}
	return false;
}

/* Equality of values; dims are interned, so the same pointer. */
static bool values_identical(const struct value *a, const struct value *b)
{
	bool same = a->kind == b->kind && a->n == b->n;
	if (a->kind != VALUE_LIST)
		return same && (a->kind == VALUE_DIM ? a->dim == b->dim : value_equal(a, b));
	for (size_t i = 0; same && i < a->n; i++)
		same = values_identical(&a->items[i], &b->items[i]);
	return same;
}

/* and/or short-circuit on a known first operand; == and != with null, lists and dims compare identity (not in a
 * graph, where they compare tensors); lists are concatenated by +. All operands known: computed; else a residual
 * expression. */
static bool eval_operation(struct macro *t, const struct expr *e, struct partial *out)
{
	struct partial args[2] = {0};
	bool known, equal = e->op == EXPR_EQ || e->op == EXPR_NE;
	if (e->op == EXPR_AND || e->op == EXPR_OR) {
		if (!partial_eval(t, e->args[0], &args[0]))
			return false;
		*out = args[0];
		if (args[0].known && args[0].v.kind == VALUE_BOOL)
			return args[0].v.b == (e->op == EXPR_OR) || partial_eval(t, e->args[1], out);
	}
	if (!eval_args(t, e, args, &known))
		return false;
	if (e->kind == EX_BINARY && equal && !t->is_graph && compares_by_identity(args, known)) {
		bool same = known && values_identical(&args[0].v, &args[1].v);
		*out = known_value(value_bool(same == (e->op == EXPR_EQ)));
		return true;
	}
	if (!known)
		return residual_call(t, e, args, out);
	if (e->op == EXPR_ADD && args[0].v.kind == VALUE_LIST && args[1].v.kind == VALUE_LIST)
		return concat_lists(t, &args[0].v, &args[1].v, out);
	return fold_constants(t, e, args, out);
}

/* A known list if all elements are known scalars, else a residual list. The tree keeps the places of the elements. */
static bool eval_list(struct macro *t, const struct expr *e, struct partial *out)
{
	struct arena *a = t->st->b->arena;
	struct partial *args = ARENA_ARRAY(a, struct partial, e->n_args + 1);
	struct value *values = ARENA_ARRAY(a, struct value, e->n_args + 1);
	bool known;
	if (args == NULL || values == NULL || !eval_args(t, e, args, &known))
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		known = known && args[i].v.kind != VALUE_LIST && args[i].v.kind != VALUE_STRING;
		values[i] = args[i].v;
	}
	if (!residual_call(t, e, args, out))
		return false;
	out->known = known;
	if (known)
		out->v = (struct value){.kind = VALUE_LIST, .n = e->n_args, .items = values};
	return true;
}

/* list[i]; null outside of the list, which in a graph is an error. f32[B, n, 3] stays an expression. */
static bool eval_index(struct macro *t, const struct expr *e, struct partial *out)
{
	struct partial *args = ARENA_ARRAY(t->st->b->arena, struct partial, e->n_args + 1);
	bool known;
	if (args == NULL || !eval_args(t, e, args, &known))
		return false;
	if (!known || e->n_args != 2)
		return residual_call(t, e, args, out);
	int64_t i = args[1].v.kind == VALUE_INT ? args[1].v.i : -1;
	bool inside = args[0].v.kind == VALUE_LIST && i >= 0 && (uint64_t)i < args[0].v.n;
	struct expr_env env = step_env(t->st->b, true);
	*out = known_value(inside ? args[0].v.items[i] : (struct value){.kind = VALUE_NONE});
	return inside || !t->is_graph || expr_eval(&env, e, &out->v);
}

/* Functions of the model (in graphs alone), query functions, then constant folding of plain functions, else a
 * residual call, in which an unknown name is reported when it is lowered. */
static bool eval_call(struct macro *t, const struct expr *e, struct partial *out)
{
	if (t->is_graph && model_find_definition(&t->st->b->m->definitions, e->text) != NULL)
		return inline_function(t, e, out);
	enum function_found found = call_query(t, e, out);
	struct partial *args = ARENA_ARRAY(t->st->b->arena, struct partial, e->n_args + 1);
	const struct partial *callee = find_binding(t, e->text);
	struct expr named = *e;
	bool known;
	if (found != FUNCTION_NONE || args == NULL)
		return found == FUNCTION_DONE;
	if (!eval_args(t, e, args, &known))
		return false;
	if (known && e->n_args > 0 && e->n_keywords == 0 && expr_is_function(e->text))
		return fold_constants(t, e, args, out);
	if (callee != NULL && callee->known && callee->v.kind == VALUE_STRING)
		named.text = callee->v.s; /* an argument names the operator, as an activation does */
	return residual_call(t, &named, args, out);
}

bool partial_eval(struct macro *t, const struct expr *e, struct partial *out)
{
	struct expander *b = t->st->b;
	const struct expr_env env = {.arena = b->arena, .cx = b->cx};
	*out = (struct partial){.known = true};
	switch (e->kind) {
	case EX_NONE:
	case EX_INT:
	case EX_FLOAT:
	case EX_BOOL:
	case EX_DIM: return expr_eval(&env, e, &out->v);
	case EX_STRING:
		out->v = value_string(fill_placeholders(b->arena, e->text, name_in_string, t));
		return out->v.s != NULL && check_partial_size(t, strlen(out->v.s));
	case EX_NAME: return eval_name(t, e, out);
	case EX_UNARY:
	case EX_BINARY: return eval_operation(t, e, out);
	case EX_INDEX: return eval_index(t, e, out);
	case EX_CALL: return eval_call(t, e, out);
	case EX_LIST: return eval_list(t, e, out);
	}
	return false;
}

bool partial_eval_node(struct macro *t, const struct yaml_node *node, struct partial *out)
{
	struct expander *b = t->st->b;
	bool is_null = node->kind == YAML_SCALAR && node->null;
	if (!is_null && !yaml_expect(b->cx, node, YAML_SCALAR, "an expression"))
		return false;
	const struct expr *e = parse_cached_expr(t, expr_source_of(node));
	return e != NULL && partial_eval(t, e, out);
}

bool partial_eval_bool(struct macro *t, const struct yaml_node *node, bool *out)
{
	struct partial i;
	if (!partial_eval_node(t, node, &i))
		return false;
	*out = i.known && i.v.kind == VALUE_BOOL && i.v.b;
	if (i.known && i.v.kind == VALUE_BOOL)
		return true;
	return step_error(t->st, NULL, DIAG_VALUE_TYPE, "'%s' is not a bool known at compile time",
	                  node->text);
}
