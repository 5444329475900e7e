/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of steps as names of a definition's body. The type of an argument
 * is that of its row in schema.def; those of a mapping are read by the rows of
 * its place and are called ARGUMENT_KEY.
 */
#include <stdlib.h>
#include <string.h>

#include "frontend/steps/template.h"

bool bind(struct template *t, const char *name, const struct item *item)
{
	struct item *copy = ARENA_NEW(t->st->b->arena, struct item);
	if (copy == NULL)
		return false;
	*copy = *item;
	return strmap_set(&t->names->map, name, copy);
}

struct reading {
	struct template *t;
	const struct schema_key *key;
	const struct yaml_node *node; /* not NULL */
	const char *name;             /* what the body calls it */
};

static bool read_int(const struct reading *r, struct item *out)
{
	struct expr_env env = blocks_env(r->t->st->b, false);
	int64_t v, least = r->key->words[0] == '\0' ? INT64_MIN : strtoll(r->key->words, NULL, 10);
	if (!expr_read_int(&env, r->node, r->key->name, &v))
		return false;
	*out = item_value(value_int(v));
	if (r->key->words[0] == '\0' || (v >= least && v < INT64_C(1) << 31))
		return true;
	return step_error(r->t->st, r->key->name, DIAG_VALUE_TYPE,
	                  "%s is %lld, it must be at least %lld and below 2^31", r->key->name, (long long)v,
	                  (long long)least);
}

static bool read_word(const struct reading *r, struct item *out)
{
	struct expr_env env = blocks_env(r->t->st->b, false);
	size_t n, word;
	const char *const *words = schema_words(r->t->st->b->arena, r->key, &n);
	if (words == NULL || !expr_read_word(&env, r->node, r->key->name, words, n, &word))
		return false;
	*out = item_value(value_string(activation_name(words[word])));
	out->word = true;
	return true;
}

static bool read_value(const struct reading *r, struct item *out)
{
	struct block_value *v = ARENA_NEW(r->t->st->b->arena, struct block_value);
	if (yaml_is(r->node, "none"))
		return true;
	if (v == NULL || !find_value(r->t->st->b, r->node, v))
		return false;
	*out = item_named(r->t, v);
	return true;
}

/* Ints and dims, or what an expression gives that is a list of numbers. */
static bool read_list(const struct reading *r, struct item *out)
{
	struct blocks *b = r->t->st->b;
	struct expr_env env = blocks_env(b, true);
	struct yaml_list list = yaml_as_list(b->arena, r->node);
	struct {
		struct value *items;
		size_t n, cap;
	} all = {NULL, 0, 0};
	for (size_t i = 0; i < list.n; i++) {
		struct value v;
		if (!yaml_expect(b->cx, list.items[i], YAML_SCALAR, r->key->name))
			return false;
		const struct expr *e = expr_parse(b->arena, b->cx, expr_source_of(list.items[i]), EXPR_PLAIN);
		if (e == NULL || !expr_eval(&env, e, &v))
			return false;
		if (v.kind == VALUE_NONE || v.kind == VALUE_STRING || v.kind == VALUE_BOOL) {
			diag_error(b->cx, list.items[i]->loc, DIAG_VALUE_TYPE, "'%s' wants numbers, found %s",
			           r->key->name, value_describe(b->arena, b->m->scope.dims, &v));
			return false;
		}
		for (size_t k = 0; k < (v.kind == VALUE_LIST ? v.n : 1); k++) {
			struct value *slot = ARENA_PUSH(b->arena, &all);
			if (slot == NULL)
				return false;
			*slot = v.kind == VALUE_LIST ? v.items[k] : v;
			if (strcmp(r->key->words, "float") == 0 && slot->kind == VALUE_INT)
				*slot = value_float((double)slot->i);
		}
	}
	*out = item_value((struct value){.kind = VALUE_LIST, .n = all.n, .items = all.items});
	return true;
}

static bool bind_map(const struct reading *r, struct item *out)
{
	struct blocks *b = r->t->st->b;
	const char *where =
	        r->key->type == KEY_MAP && r->key->words[0] != '\0' ? r->key->words : r->key->name;
	bool kind = schema_find_step(where) != NULL;
	const char *what = kind ? arena_printf(b->arena, "%s of %s", where, r->t->st->kind->kind) : where;
	*out = item_value(value_bool(true));
	if (r->node->kind != YAML_MAPPING)
		return step_error(r->t->st, r->key->name, DIAG_VALUE_TYPE, "%s is a mapping", r->key->name);
	return schema_check(b->arena, b->cx, r->node, where, kind ? "step" : NULL, what) &&
	       bind_arguments(r->t, where, r->node, arena_printf(b->arena, "%s_", r->name));
}

/* A value, a mapping, or what the words of the row say. */
static bool read_any(const struct reading *r, struct item *out)
{
	static const struct yaml_node empty = {.kind = YAML_MAPPING};
	struct blocks *b = r->t->st->b;
	struct expr_env env = blocks_env(b, false);
	struct block_value *v = ARENA_NEW(b->arena, struct block_value);
	struct reading defaults = *r;
	int64_t n;
	bool yes;
	if (v == NULL)
		return false;
	if (find_named(b, r->node, v)) {
		*out = item_named(r->t, v);
		return true;
	}
	if (strcmp(r->key->words, "int") == 0) {
		if (!expr_read_int(&env, r->node, r->key->name, &n))
			return false;
		*out = item_value(value_int(n));
		return true;
	}
	if (strcmp(r->key->words, "bool") != 0)
		return read_list(r, out);
	if (r->node->kind == YAML_MAPPING)
		return bind_map(r, out);
	defaults.node = &empty;
	if (!expr_read_bool(&env, r->node, r->key->name, &yes) || !bind_map(&defaults, out))
		return false;
	*out = item_value(value_bool(yes));
	return true;
}

static bool read_path(const struct reading *r, struct item *out)
{
	const char *path;
	if (!path_of_node(r->t->st, r->node, r->key->name, &path))
		return false;
	*out = item_value(value_string(path));
	return true;
}

static bool read_argument(const struct reading *r, struct item *out)
{
	struct expr_env env = blocks_env(r->t->st->b, false);
	double f;
	bool yes;
	switch (r->key->type) {
	case KEY_INT: return read_int(r, out);
	case KEY_FLOAT:
		if (!expr_read_float(&env, r->node, r->key->name, &f))
			return false;
		*out = item_value(value_float(f));
		return true;
	case KEY_BOOL:
		if (!expr_read_bool(&env, r->node, r->key->name, &yes))
			return false;
		*out = item_value(value_bool(yes));
		return true;
	case KEY_WORD: return read_word(r, out);
	case KEY_VALUE: return read_value(r, out);
	case KEY_PATH: return read_path(r, out);
	case KEY_LIST: return read_list(r, out);
	case KEY_MAP: return bind_map(r, out);
	case KEY_ANY: return read_any(r, out);
	case KEY_DIM:
	case KEY_NAME:
	case KEY_TEXT:
	case KEY_STEPS: return true; /* read where they are used */
	}
	return false;
}

/* The default of the row as it would be written, or NULL. */
static const struct yaml_node *default_node(struct template *t, const struct schema_key *key)
{
	struct yaml_node *def = ARENA_NEW(t->st->b->arena, struct yaml_node);
	if (def == NULL || key->def[0] == '\0' || key->def[0] == '!')
		return NULL;
	*def = (struct yaml_node){
	        .kind = YAML_SCALAR, .loc = t->st->loc, .text = key->def, .len = strlen(key->def)};
	return def;
}

bool bind_arguments(struct template *t, const char *where, const struct yaml_node *given, const char *prefix)
{
	const struct schema_key *key = NULL;
	while ((key = schema_next_key(where, key)) != NULL) {
		const struct yaml_node *node = yaml_find(given, key->name);
		struct reading r = {t, key, node != NULL ? node : default_node(t, key),
		                    arena_printf(t->st->b->arena, "%s%s", prefix, key->name)};
		struct item item = item_value((struct value){.kind = VALUE_NONE});
		if (r.node != NULL && !read_argument(&r, &item))
			return false;
		if (!bind(t, r.name, &item))
			return false;
	}
	return true;
}

bool arg_read(struct step *st, const char *key, struct value *out)
{
	struct template t = {.st = st};
	const struct schema_key *row = schema_find_key(st->kind->kind, key);
	const struct yaml_node *node = arg(st, key);
	struct reading r = {&t, row, node != NULL ? node : default_node(&t, row), key};
	struct item item;
	if (r.node == NULL || !read_argument(&r, &item))
		return false;
	*out = item.v;
	return true;
}

/* ---- definitions of the model ---- */

static bool bind_one(struct template *t, const struct argument *a)
{
	struct blocks *b = t->st->b;
	const struct yaml_node *node = arg(t->st, a->name);
	struct expr_env env = blocks_env(b, true);
	struct block_value *v = ARENA_NEW(b->arena, struct block_value);
	struct item item = {.known = true};
	if (v == NULL)
		return false;
	if (node != NULL && find_named(b, node, v))
		item = item_named(t, v);
	else if (env.lookup(env.user, a->name, t->st->loc, &item.v) != EXPR_FOUND)
		return false;
	item.word = item.known && item.v.kind == VALUE_STRING && expr_is_name(item.v.s);
	return bind(t, a->name, &item);
}

bool bind_definition(struct template *t)
{
	for (size_t i = 0; i < t->def->n_args; i++) {
		if (!bind_one(t, &t->def->args[i]))
			return false;
	}
	return true;
}
