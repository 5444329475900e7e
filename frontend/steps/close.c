/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions of the bodies of definitions, closed: names replaced by what they
 * stand for, and computed where all of it is known.
 */
#include <string.h>

#include "frontend/steps/graph_close.h"
#include "frontend/steps/template.h"

struct item item_value(struct value v)
{
	return (struct item){.known = true, .v = v};
}

struct item item_named(struct template *t, const struct block_value *v)
{
	return (struct item){.tree = value_ref(t->st->b, v, t->st->loc), .of = v};
}

const struct item *item_find(const struct template *t, const char *name)
{
	const struct item *found = NULL;
	for (const struct names *n = t->names; n != NULL && found == NULL; n = n->outer)
		found = strmap_get(&n->map, name);
	return found;
}

struct loc template_loc(const struct template *t, struct loc loc)
{
	return t->def == NULL ? t->loc : loc;
}

/* A body that doubles what a name stands for, again and again, would never end. */
bool item_fits(struct template *t, size_t size)
{
	return size <= ITEM_SIZE_MAX ||
	       step_error(t->st, NULL, DIAG_LIMIT, "a value of the body has more than %d parts",
	                  ITEM_SIZE_MAX);
}

const struct expr *item_tree(struct template *t, const struct item *i, struct loc loc)
{
	if (!i->known)
		return i->tree;
	if (i->word && i->v.kind == VALUE_STRING)
		return graph_name(t->st->b, i->v.s, loc);
	return expr_of_value(t->st->b->arena, &i->v, loc);
}

/* Bodies of the prelude see nothing of the model but what they are given. */
static struct expr_env env_of(const struct template *t)
{
	return blocks_env(t->st->b, true);
}

static bool close_name(struct template *t, const struct expr *e, struct item *out)
{
	struct blocks *b = t->st->b;
	const struct item *found = item_find(t, e->text);
	if (found != NULL) {
		*out = *found;
		return true;
	}
	*out = (struct item){.tree = graph_name(b, e->text, template_loc(t, e->loc))};
	if (strcmp(e->text, "x") == 0)
		out->of = &t->before;
	if (t->def == NULL || out->of != NULL)
		return true;
	struct expr_env env = env_of(t);
	struct value v;
	const struct block_value *of = strmap_get(&b->values, e->text);
	if (of != NULL) {
		*out = item_named(t, of);
		return true;
	}
	enum expr_lookup how = env.lookup(env.user, e->text, e->loc, &v);
	if (how == EXPR_FOUND)
		*out = item_value(v);
	return how != EXPR_FAILED;
}

/* ---- strings ---- */

static const char *name_placeholder(void *user, const char *name)
{
	struct template *t = user;
	const struct item *i = item_find(t, name);
	return i != NULL && i->known ? value_in_string(t->st->b, &i->v) : NULL;
}

/* Texts of the prelude are parsed once; those of a model have places of their own. */
static const struct expr *parsed(struct template *t, struct expr_source src)
{
	struct blocks *b = t->st->b;
	const struct expr *e = t->def != NULL ? NULL : strmap_get(&b->parsed, src.text);
	if (e != NULL)
		return e;
	e = expr_parse(b->arena, b->cx, src, EXPR_GRAPH);
	if (e != NULL && t->def == NULL)
		strmap_set(&b->parsed, src.text, (void *)(uintptr_t)e);
	return e;
}

static const char *message_placeholder(void *user, const char *text)
{
	struct template *t = user;
	const struct expr *e =
	        parsed(t, (struct expr_source){.text = text, .len = strlen(text), .loc = t->st->loc});
	struct item i;
	return e != NULL && item_close(t, e, &i) && i.known ? value_in_string(t->st->b, &i.v) : NULL;
}

const char *template_message(struct template *t, const char *text)
{
	return fill_placeholders(t->st->b, text, message_placeholder, t);
}

/* ---- operations ---- */

static bool close_all(struct template *t, const struct expr *e, struct item *args, bool *known)
{
	*known = true;
	for (size_t i = 0; i < e->n_args; i++) {
		if (!item_close(t, e->args[i], &args[i]))
			return false;
		*known = *known && args[i].known;
	}
	return true;
}

/* The node with closed arguments; keywords that are null are left out. */
static bool rebuild(struct template *t, const struct expr *e, const struct item *args, struct item *out)
{
	struct arena *a = t->st->b->arena;
	struct expr *copy = ARENA_NEW(a, struct expr);
	size_t size = 1 + e->n_args;
	if (copy == NULL)
		return false;
	*copy = *e;
	copy->loc = template_loc(t, e->loc);
	copy->args = ARENA_ARRAY(a, const struct expr *, e->n_args + 1);
	copy->keywords = ARENA_ARRAY(a, struct expr_keyword, e->n_keywords + 1);
	copy->n_keywords = 0;
	if (copy->args == NULL || copy->keywords == NULL)
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		copy->args[i] = item_tree(t, &args[i], copy->loc);
		size += args[i].size;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		struct item value;
		if (!item_close(t, e->keywords[i].value, &value))
			return false;
		if (value.known && value.v.kind == VALUE_NONE)
			continue;
		size += 1 + value.size;
		copy->keywords[copy->n_keywords++] = (struct expr_keyword){e->keywords[i].name, copy->loc,
		                                                           item_tree(t, &value, copy->loc)};
	}
	*out = (struct item){.tree = copy, .size = size};
	return !arena_failed(a) && item_fits(t, size);
}

static bool compute(struct template *t, const struct expr *e, const struct item *args, struct item *out)
{
	struct blocks *b = t->st->b;
	struct expr_env env = env_of(t);
	struct expr at = *e;
	struct value *values = ARENA_ARRAY(b->arena, struct value, e->n_args + 1);
	if (values == NULL)
		return false;
	for (size_t i = 0; i < e->n_args; i++)
		values[i] = args[i].v;
	at.loc = template_loc(t, e->loc);
	*out = item_value((struct value){.kind = VALUE_NONE});
	return expr_apply(&env, &at, values, e->n_args, &out->v);
}

static bool join_lists(struct template *t, const struct value *a, const struct value *b, struct item *out)
{
	if (!item_fits(t, a->n + b->n))
		return false;
	struct value *items = ARENA_ARRAY(t->st->b->arena, struct value, a->n + b->n + 1);
	if (items == NULL)
		return false;
	for (size_t i = 0; i < a->n + b->n; i++)
		items[i] = i < a->n ? a->items[i] : b->items[i - a->n];
	*out = item_value((struct value){.kind = VALUE_LIST, .n = a->n + b->n, .items = items});
	return true;
}

/* Whether two are the same, where one is absent, a list or a dim. */
static bool compares_whole(const struct item *args)
{
	for (size_t i = 0; i < 2; i++) {
		enum value_kind k = args[i].v.kind;
		if (args[i].known && (k == VALUE_NONE || k == VALUE_LIST || k == VALUE_DIM))
			return true;
	}
	return false;
}

static bool is_same(const struct value *a, const struct value *b)
{
	bool same = a->kind == b->kind && a->n == b->n;
	if (a->kind != VALUE_LIST)
		return same && (a->kind == VALUE_DIM ? a->dim == b->dim : value_equal(a, b));
	for (size_t i = 0; same && i < a->n; i++)
		same = is_same(&a->items[i], &b->items[i]);
	return same;
}

static bool close_operation(struct template *t, const struct expr *e, struct item *out)
{
	struct item args[2] = {0};
	bool known, equal = e->op == EXPR_EQ || e->op == EXPR_NE;
	if (e->op == EXPR_AND || e->op == EXPR_OR) {
		if (!item_close(t, e->args[0], &args[0]))
			return false;
		*out = args[0];
		if (args[0].known && args[0].v.kind == VALUE_BOOL)
			return args[0].v.b == (e->op == EXPR_OR) || item_close(t, e->args[1], out);
	}
	if (!close_all(t, e, args, &known))
		return false;
	if (e->kind == EX_BINARY && equal && compares_whole(args)) {
		bool same = known && is_same(&args[0].v, &args[1].v);
		*out = item_value(value_bool(same == (e->op == EXPR_EQ)));
		return true;
	}
	if (!known)
		return rebuild(t, e, args, out);
	if (e->op == EXPR_ADD && args[0].v.kind == VALUE_LIST && args[1].v.kind == VALUE_LIST)
		return join_lists(t, &args[0].v, &args[1].v, out);
	return compute(t, e, args, out);
}

static bool close_list(struct template *t, const struct expr *e, struct item *out)
{
	struct arena *a = t->st->b->arena;
	struct item *args = ARENA_ARRAY(a, struct item, e->n_args + 1);
	struct value *values = ARENA_ARRAY(a, struct value, e->n_args + 1);
	bool known;
	if (args == NULL || values == NULL || !close_all(t, e, args, &known))
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		known = known && args[i].v.kind != VALUE_LIST && args[i].v.kind != VALUE_STRING;
		values[i] = args[i].v;
	}
	if (!known)
		return rebuild(t, e, args, out);
	*out = item_value((struct value){.kind = VALUE_LIST, .n = e->n_args, .items = values});
	return true;
}

static bool close_index(struct template *t, const struct expr *e, struct item *out)
{
	struct item args[2];
	bool known;
	if (e->n_args != 2 || !close_all(t, e, args, &known))
		return false;
	if (!known)
		return rebuild(t, e, args, out);
	int64_t i = args[1].v.kind == VALUE_INT ? args[1].v.i : -1;
	bool inside = args[0].v.kind == VALUE_LIST && i >= 0 && (uint64_t)i < args[0].v.n;
	*out = item_value(inside ? args[0].v.items[i] : (struct value){.kind = VALUE_NONE});
	return true;
}

static bool close_call(struct template *t, const struct expr *e, struct item *out)
{
	enum function_found found = template_function(t, e, out);
	struct item *args = ARENA_ARRAY(t->st->b->arena, struct item, e->n_args + 1);
	const struct item *callee = item_find(t, e->text);
	struct expr named = *e;
	bool known;
	if (found != FUNCTION_NONE || args == NULL)
		return found == FUNCTION_DONE;
	if (!close_all(t, e, args, &known))
		return false;
	if (known && e->n_args > 0 && e->n_keywords == 0 && expr_is_function(e->text))
		return compute(t, e, args, out);
	if (callee != NULL && callee->known && callee->v.kind == VALUE_STRING)
		named.text = callee->v.s;
	return rebuild(t, &named, args, out);
}

bool item_close(struct template *t, const struct expr *e, struct item *out)
{
	struct blocks *b = t->st->b;
	const struct expr_env env = {.arena = b->arena, .cx = b->cx};
	*out = (struct item){.known = true};
	switch (e->kind) {
	case EX_NONE:
	case EX_INT:
	case EX_FLOAT:
	case EX_BOOL:
	case EX_DIM: return expr_eval(&env, e, &out->v);
	case EX_STRING:
		out->v = value_string(fill_placeholders(b, e->text, name_placeholder, t));
		return out->v.s != NULL && item_fits(t, strlen(out->v.s));
	case EX_NAME: return close_name(t, e, out);
	case EX_UNARY:
	case EX_BINARY: return close_operation(t, e, out);
	case EX_INDEX: return close_index(t, e, out);
	case EX_CALL: return close_call(t, e, out);
	case EX_LIST: return close_list(t, e, out);
	}
	return false;
}

bool item_read(struct template *t, const struct yaml_node *node, struct item *out)
{
	struct blocks *b = t->st->b;
	bool is_null = node->kind == YAML_SCALAR && node->null;
	if (!is_null && !yaml_expect(b->cx, node, YAML_SCALAR, "an expression"))
		return false;
	const struct expr *e = parsed(t, expr_source_of(node));
	return e != NULL && item_close(t, e, out);
}

bool item_bool(struct template *t, const struct yaml_node *node, bool *out)
{
	struct item i;
	if (!item_read(t, node, &i))
		return false;
	*out = i.known && i.v.kind == VALUE_BOOL && i.v.b;
	if (i.known && i.v.kind == VALUE_BOOL)
		return true;
	return step_error(t->st, NULL, DIAG_VALUE_TYPE, "'%s' is no bool that is known here", node->text);
}
