/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of the bodies of definitions: what is asked about values and dims
 * when a model is compiled.
 */
#include <string.h>

#include "frontend/expr/signature.h"
#include "frontend/lower/lower.h"
#include "frontend/steps/graph_close.h"
#include "frontend/steps/template.h"

struct use {
	struct template *t;
	const struct expr *e;
	const struct item *args;
	struct item *out;
};

typedef bool template_fn(const struct use *u);

static bool give(const struct use *u, struct value v)
{
	*u->out = item_value(v);
	return true;
}

static bool none(const struct use *u)
{
	return give(u, (struct value){.kind = VALUE_NONE});
}

/* The value that argument 0 names; one is reported. */
static const struct block_value *subject(const struct use *u, size_t at)
{
	const struct block_value *v = u->args[at].of;
	if (v == NULL)
		step_error(u->t->st, NULL, DIAG_UNKNOWN_VALUE, "'%s' wants a value whose type is known",
		           u->e->text);
	return v;
}

static int64_t number(const struct use *u, size_t at)
{
	const struct item *i = &u->args[at];
	return i->known && i->v.kind == VALUE_INT ? i->v.i : 0;
}

static bool fn_rank(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	return v != NULL && give(u, value_int(v->rank));
}

static bool fn_dtype(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	return v != NULL && give(u, value_string(ir_dtype_name(v->dtype)));
}

static bool fn_is_float(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	return v != NULL && give(u, value_bool(ir_dtype_class(v->dtype) == DTCLASS_FLOAT));
}

/* Null where there is no such axis. */
static bool fn_dim(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	if (v == NULL)
		return false;
	int64_t i = number(u, 1) + (number(u, 1) < 0 ? v->rank : 0);
	return i < 0 || i >= v->rank ? none(u) : give(u, value_dim(v->dims[i]));
}

static bool fn_shape(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, IR_RANK_MAX);
	if (v == NULL || items == NULL)
		return false;
	for (int i = 0; i < v->rank; i++)
		items[i] = value_dim(v->dims[i]);
	return give(u, (struct value){.kind = VALUE_LIST, .n = (size_t)v->rank, .items = items});
}

static bool fn_lengths(const struct use *u)
{
	struct blocks *b = u->t->st->b;
	const struct block_value *v = subject(u, 0);
	if (v == NULL || v->lengths == NULL)
		return v != NULL && none(u);
	*u->out = (struct item){.tree = graph_name(b, v->lengths, u->t->st->loc)};
	return true;
}

static bool fn_grows(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	return v != NULL && give(u, value_bool(v->grows));
}

static bool fn_is_input(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	return v != NULL && give(u, value_bool(v->input > 0));
}

/* What bounds the ids of an input, or null. */
static bool fn_below(const struct use *u)
{
	const struct block_value *v = subject(u, 0);
	int64_t n = v == NULL || v->input == 0 ? 0 : u->t->st->b->m->inputs.items[v->input - 1].below;
	return v != NULL && (n == 0 ? none(u) : give(u, value_int(n)));
}

/* One past the largest position that can occur along axis 1. */
static bool fn_positions_end(const struct use *u)
{
	const struct frontend_model *m = u->t->st->b->m;
	const struct block_value *v = subject(u, 0);
	if (v == NULL || v->rank < 2)
		return v != NULL && none(u);
	int64_t n = ir_dim_hi(m->scope.dims, v->dims[1]);
	return give(u, value_int(v->grows && m->generate.max_len > n ? m->generate.max_len : n));
}

static const struct ir_dim *dim_of(const struct use *u)
{
	const struct value *v = &u->args[0].v;
	return v->kind == VALUE_DIM ? v->dim : NULL;
}

static bool fn_lo(const struct use *u)
{
	const struct ir_dim *d = dim_of(u);
	return give(u, d == NULL ? u->args[0].v : value_int(ir_dim_lo(u->t->st->b->m->scope.dims, d)));
}

static bool fn_is_int(const struct use *u)
{
	return give(u, value_bool(u->args[0].known && u->args[0].v.kind == VALUE_INT));
}

static bool fn_product(const struct use *u)
{
	struct ir_dims *dims = u->t->st->b->m->scope.dims;
	const struct value *v = &u->args[0].v;
	const struct ir_dim *n = ir_dim_const(dims, 1);
	for (size_t i = 0; v->kind == VALUE_LIST && i < v->n; i++) {
		if (v->items[i].kind != VALUE_DIM && v->items[i].kind != VALUE_INT)
			return none(u);
		n = ir_dim_mul(dims, n,
		               v->items[i].kind == VALUE_DIM ? v->items[i].dim
		                                             : ir_dim_const(dims, v->items[i].i));
	}
	return give(u, value_dim(n));
}

/* A list without the element at an index, negative ones from the end. */
static bool fn_without(const struct use *u)
{
	const struct value *v = &u->args[0].v;
	int64_t at = number(u, 1);
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, v->n + 1);
	struct value out = {.kind = VALUE_LIST, .items = items};
	at += at < 0 ? (int64_t)v->n : 0;
	for (size_t i = 0; items != NULL && i < v->n; i++) {
		if ((int64_t)i != at)
			items[out.n++] = v->items[i];
	}
	return items != NULL && give(u, out);
}

static bool fn_repeated(const struct use *u)
{
	int64_t n = number(u, 1);
	if (n > IR_RANK_MAX)
		return step_error(u->t->st, NULL, DIAG_LIMIT, "more than %d axes", IR_RANK_MAX);
	n = n < 0 ? 0 : n;
	struct value *items = ARENA_ARRAY(u->t->st->b->arena, struct value, n + 1);
	for (int64_t i = 0; items != NULL && i < n; i++)
		items[i] = u->args[0].v;
	return items != NULL && give(u, (struct value){.kind = VALUE_LIST, .n = (size_t)n, .items = items});
}

static bool fn_is_permutation(const struct use *u)
{
	const struct value *v = &u->args[0].v;
	unsigned seen = 0;
	if (v->n > IR_RANK_MAX)
		return give(u, value_bool(false));
	for (size_t i = 0; i < v->n; i++) {
		int64_t at = v->items[i].kind == VALUE_INT ? v->items[i].i : -1;
		if (at < 0 || at >= (int64_t)v->n || (seen & 1u << at) != 0)
			return give(u, value_bool(false));
		seen |= 1u << at;
	}
	return give(u, value_bool(true));
}

static const char *add_turns(const struct step *st, const struct block_scope *s, const char *name)
{
	struct arena *a = st->b->arena;
	if (s == NULL)
		return name;
	name = add_turns(st, s->outer, name);
	const char *index = s->def != NULL || name == NULL ? NULL : arena_printf(a, "{%s}", s->loop);
	bool is_known = index == NULL || strstr(name, index) != NULL;
	return is_known ? name : arena_printf(a, "%s.%s", name, index);
}

/* Of the keys and values of a step: its path and the indices of shared repeats, whose turns have one path. */
static bool fn_cache_name(const struct use *u)
{
	return give(u, value_string(add_turns(u->t->st, u->t->st->b->scope, u->t->st->path)));
}

/*
 * `share: PATH` is the table of the attention at that path, which comes before; one that no attention owns begins with a
 * slash. NULL share: the step's own.
 */
static bool fn_bias_table(const struct use *u)
{
	const struct step *st = u->t->st;
	struct blocks *b = st->b;
	const struct yaml_node *bias = arg(st, "rel_bias");
	const struct yaml_node *share =
	        bias == NULL || bias->kind != YAML_MAPPING ? NULL : yaml_find(bias, "share");
	if (u->args[0].v.kind != VALUE_STRING) {
		strmap_set(&b->biased, concrete(b, st->params), b);
		return give(u, value_string(arena_printf(b->arena, "%s.rel_bias", st->params)));
	}
	const char *path = u->args[0].v.s;
	if (strmap_has(&b->biased, concrete(b, path)))
		return give(u, value_string(arena_printf(b->arena, "%s.rel_bias", path)));
	const char *dot = strrchr(path, '.');
	bool is_table =
	        dot != NULL && strcmp(dot, ".rel_bias") == 0 &&
	        strmap_has(&b->biased, concrete(b, arena_strndup(b->arena, path, (size_t)(dot - path))));
	if (is_table || (share != NULL && share->text[0] == '/'))
		return give(u, u->args[0].v);
	size_t n = 0;
	const char **names = ARENA_ARRAY(b->arena, const char *, b->biased.n + 1);
	for (; names != NULL && n < b->biased.n; n++)
		names[n] = b->biased.items[n].key;
	diag_error(b->cx, share != NULL ? share->loc : st->loc, DIAG_UNKNOWN_PATH,
	           "no attention before has a rel_bias of its own at the path '%s'%s; a table that no "
	           "attention owns begins with "
	           "a slash, as in share: /distances",
	           concrete(b, path), did_you_mean(b->arena, concrete(b, path), names, n));
	return false;
}

/* Why attention with (window, is causal) has no cache of so many positions, or null. */
static bool fn_cache_refusal(const struct use *u)
{
	struct blocks *b = u->t->st->b;
	struct cache_use use = {number(u, 0), u->args[1].v.kind == VALUE_BOOL && u->args[1].v.b};
	const char *why = cache_refusal(b->arena, &use, number(u, 2), b->m->generate.max_len);
	return why == NULL ? none(u) : give(u, value_string(why));
}

/* ---- functions that do not read all of their arguments ---- */

static bool form_if(struct template *t, const struct expr *const *args, struct item *out)
{
	struct item c;
	if (!item_close(t, args[0], &c))
		return false;
	if (c.known && c.v.kind == VALUE_BOOL)
		return item_close(t, args[c.v.b ? 1 : 2], out);
	return step_error(t->st, NULL, DIAG_VALUE_TYPE, "the condition of 'if' is not known here");
}

/* each(i, n, E): the list of E for i = 0 .. n - 1 */
static bool form_each(struct template *t, const struct expr *const *args, struct item *out)
{
	struct arena *a = t->st->b->arena;
	struct names inner = {.outer = t->names};
	struct item n, one;
	size_t size = 1;
	struct expr *list = ARENA_NEW(a, struct expr);
	if (list == NULL || !item_close(t, args[1], &n))
		return false;
	int64_t count = n.known && n.v.kind == VALUE_INT ? n.v.i : -1;
	if (count < 0 || count > MODEL_REPEAT_MAX)
		return step_error(t->st, NULL, DIAG_LIMIT, "'each' counts from 0 to %d", MODEL_REPEAT_MAX);
	t->turns += (size_t)count;
	if (!item_fits(t, t->turns))
		return false;
	*list = (struct expr){.kind = EX_LIST, .loc = template_loc(t, args[0]->loc)};
	list->args = ARENA_ARRAY(a, const struct expr *, count + 1);
	strmap_init(&inner.map, a);
	bool ok = list->args != NULL;
	for (int64_t i = 0; ok && i < count; i++) {
		struct item index = item_value(value_int(i));
		t->names = &inner;
		ok = bind(t, args[0]->text, &index) && item_close(t, args[2], &one);
		t->names = inner.outer;
		ok = ok && item_fits(t, size += 1 + one.size);
		if (ok)
			list->args[list->n_args++] = item_tree(t, &one, list->loc);
	}
	*out = (struct item){.tree = list, .size = size};
	return ok;
}

/* given(name): the step says something about the argument. */
static bool form_given(struct template *t, const struct expr *const *args, struct item *out)
{
	*out = item_value(value_bool(arg(t->st, args[0]->text) != NULL));
	return true;
}

static const struct {
	struct signature signature;
	template_fn *fn; /* of the values of its arguments, or */
	bool (*form)(struct template *t, const struct expr *const *args, struct item *out);
} functions[] = {
#define QUERY(name, doc, args)      {SIGNATURE(name, doc, args), fn_##name, NULL},
#define FORM(name, doc, args)       {SIGNATURE(name, doc, args), NULL, form_##name},
#define QUERY_FORM(name, doc, args) {SIGNATURE(name, doc, args), NULL, form_##name},
#include "frontend/expr/calls.def"
#include "ir/support/strmap.h"
};

static bool call(struct template *t, const struct expr *e, size_t row, struct item *out)
{
	struct arena *a = t->st->b->arena;
	const struct signature *s = &functions[row].signature;
	const struct signature_use use = {a, t->st->b->cx, template_loc(t, e->loc), t->st->path};
	const struct expr **values = signature_match_call(&use, s, e);
	struct item *args = ARENA_ARRAY(a, struct item, signature_length(s) + 1);
	if (values == NULL || args == NULL)
		return false;
	if (s->args[0].type == ARGUMENT_NAME && values[0]->kind != EX_NAME)
		return step_error(t->st, NULL, DIAG_VALUE_TYPE, "'%s' of %s is a name", s->args[0].name,
		                  s->name);
	if (functions[row].form != NULL)
		return functions[row].form(t, values, out);
	for (size_t i = 0; i < signature_length(s); i++) {
		if (!item_close(t, values[i], &args[i]))
			return false;
	}
	return functions[row].fn(&(struct use){t, e, args, out});
}

enum function_found template_function(struct template *t, const struct expr *e, struct item *out)
{
	for (size_t i = 0; i < TFMC_COUNT(functions); i++) {
		if (strcmp(functions[i].signature.name, e->text) == 0)
			return call(t, e, i, out) ? FUNCTION_DONE : FUNCTION_FAILED;
	}
	return FUNCTION_NONE;
}
