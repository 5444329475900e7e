/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of schema.def, the check of mappings against them, and reading of a mapping into members of a struct, each
 * by its row. Tables are short and searched linearly. A function that returns false has reported an error.
 * A place is a mapping of the language, `where` of the rows of its keys; words of a row depend on its type: values of
 * a word, bounds of a number, the place of a mapping.
 */
#include "frontend/model/schema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "frontend/syntax/yaml_edit.h"
#include "ir/support/strmap.h"

#define STATE_NOW   true
#define STATE_LATER false
#define HAS_PARAMS  true
#define HAS_NONE    false

static const struct schema_key keys[] = {
#define KEY(where, name, type, words, def, state, doc) \
	{#where, #name, KEY_##type, words, def, STATE_##state, doc},
#include "frontend/model/schema.def"
};

static const struct schema_step steps[] = {
#define STEP(kind, main, params, state, doc) {#kind, main, HAS_##params, STATE_##state, doc},
#include "frontend/model/schema.def"
};

/* Compares the first character before strcmp: most names differ there. */
static bool string_equal(const char *a, const char *b)
{
	return a[0] == b[0] && strcmp(a, b) == 0;
}

static const struct schema_param params[] = {
#define PARAM(step, name, shape, when) {#step, name, shape, when},
#include "frontend/model/schema.def"
};

const struct schema_step *schema_find_step(const char *kind)
{
	for (size_t i = 0; i < TFMC_COUNT(steps); i++) {
		if (string_equal(steps[i].kind, kind))
			return &steps[i];
	}
	return NULL;
}

const struct schema_key *schema_find_key(const char *where, const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(keys); i++) {
		if (string_equal(keys[i].name, name) && string_equal(keys[i].where, where))
			return &keys[i];
	}
	return NULL;
}

const struct schema_key *schema_next_key(const char *where, const struct schema_key *key)
{
	for (size_t i = key == NULL ? 0 : (size_t)(key - keys) + 1; i < TFMC_COUNT(keys); i++) {
		if (where == NULL || strcmp(keys[i].where, where) == 0)
			return &keys[i];
	}
	return NULL;
}

const char *const *schema_step_kinds(struct arena *a, size_t *n)
{
	const char **list = ARENA_ARRAY(a, const char *, TFMC_COUNT(steps));
	*n = list == NULL ? 0 : TFMC_COUNT(steps);
	for (size_t i = 0; i < *n; i++)
		list[i] = steps[i].kind;
	return list;
}

/* The names of all keys of a place, and of `also` (NULL: none), for suggestions. */
static const char *const *key_names(struct arena *a, const char *where, const char *also, size_t *n)
{
	const char **list = ARENA_ARRAY(a, const char *, TFMC_COUNT(keys));
	*n = 0;
	for (size_t i = 0; list != NULL && i < TFMC_COUNT(keys); i++) {
		bool in_also = also != NULL && strcmp(keys[i].where, also) == 0;
		if (in_also || strcmp(keys[i].where, where) == 0)
			list[(*n)++] = keys[i].name;
	}
	return list;
}

/* Checks a key that the place has: implemented, and with a value. An unimplemented bool may be false, since that is
 * the default. A null would delete a key of a base, and there is none here. */
static bool check_key_value(struct arena *a, struct diag_context *cx, const struct yaml_pair *pair,
                            const struct schema_key *key, const char *what)
{
	if (!key->now) {
		const struct yaml_node *v = pair->value;
		if (key->type == KEY_BOOL && v->kind == YAML_SCALAR && yaml_is(v, "false"))
			return true;
		diag_error(cx, pair->key->loc, DIAG_UNSUPPORTED, "not supported yet: %s", key->name);
		return false;
	}
	if (pair->value->kind == YAML_SCALAR && pair->value->null) {
		diag_error(cx, pair->key->loc, DIAG_NULL_VALUE, "'%s' of %s has no value", key->name,
		           arena_strdup(a, what));
		return false;
	}
	return true;
}

/* True if the mapping has a misspelling of this key, which has been reported with a suggestion: that the key is
 * missing would be the same mistake again. */
static bool is_misspelled(struct arena *a, const struct yaml_node *map, const struct schema_key *key)
{
	size_t n;
	const char *const *names = key_names(a, key->where, NULL, &n);
	for (size_t i = 0; i < map->n; i++) {
		const char *given = map->pairs[i].key->text;
		const char *nearest =
		        schema_find_key(key->where, given) == NULL ? nearest_name(given, names, n) : NULL;
		if (nearest != NULL && strcmp(nearest, key->name) == 0)
			return true;
	}
	return false;
}

/* A key that neither place has is reported with a suggestion from both. All keys are checked, so that every mistake
 * is reported. */
bool schema_check_present(struct arena *a, struct diag_context *cx, const struct yaml_node *map,
                          const char *where, const char *also, const char *what)
{
	bool ok = true;
	for (size_t i = 0; where != NULL && i < map->n; i++) {
		const struct yaml_pair *pair = &map->pairs[i];
		const struct schema_key *key = schema_find_key(where, pair->key->text);
		size_t n;
		if (key == NULL && also != NULL)
			key = schema_find_key(also, pair->key->text);
		if (key == NULL) {
			const char *const *names = key_names(a, where, also, &n);
			yaml_unknown_key(cx, pair->key, names, n, what);
		}
		ok = key != NULL && check_key_value(a, cx, pair, key, what) && ok;
	}
	return ok;
}

bool schema_check(struct arena *a, struct diag_context *cx, const struct yaml_node *map, const char *where,
                  const char *also, const char *what)
{
	bool ok = schema_check_present(a, cx, map, where, also, what);
	for (const struct schema_key *key = NULL; (key = schema_next_key(where, key)) != NULL;) {
		if (key->def[0] != '!' || yaml_find(map, key->name) != NULL || is_misspelled(a, map, key))
			continue;
		diag_error(cx, map->loc, DIAG_MISSING, "%s needs '%s' (%s)", what, key->name, key->doc);
		ok = false;
	}
	return ok;
}

/* A word has one character at least and a blank after it, which bounds their number. */
const char *const *schema_words(struct arena *a, const struct schema_key *key, size_t *n)
{
	struct word w = {key->words, 0};
	const char **list = ARENA_ARRAY(a, const char *, strlen(key->words) / 2 + 1);
	for (*n = 0; list != NULL && list_word_next(&w);)
		list[(*n)++] = arena_strndup(a, w.text, w.n);
	return list;
}

const struct schema_param *schema_next_param(const char *kind, const struct schema_param *param)
{
	for (size_t i = param == NULL ? 0 : (size_t)(param - params) + 1; i < TFMC_COUNT(params); i++) {
		if (strcmp(params[i].kind, kind) == 0)
			return &params[i];
	}
	return NULL;
}

const char *schema_type_name(enum schema_type type)
{
	static const char *const names[] = {
	        [KEY_INT] = "int",   [KEY_FLOAT] = "float", [KEY_BOOL] = "bool",   [KEY_DIM] = "dim",
	        [KEY_WORD] = "word", [KEY_NAME] = "name",   [KEY_VALUE] = "value", [KEY_PATH] = "path",
	        [KEY_TEXT] = "text", [KEY_LIST] = "list",   [KEY_MAP] = "mapping", [KEY_STEPS] = "steps",
	        [KEY_ANY] = "any",
	};
	return names[type];
}

/* ---- members of structs ---- */

struct member_reader {
	const struct expr_env *env;
	const struct schema_key *key;
	const struct yaml_node *node;
};

/* Checks a number against "[>]MIN [MAX]" of its row, > for an open bound; an int of a row with MIN alone is below
 * 2^31. An empty row accepts any number. */
static bool check_range(const struct member_reader *r, const struct value *v)
{
	const char *words = r->key->words;
	bool is_int = v->kind == VALUE_INT, above = words[0] == '>';
	char *end;
	double x = is_int ? (double)v->i : v->f, min = strtod(words + above, &end);
	double max = *end != '\0' ? strtod(end, NULL) : is_int ? (double)INT32_MAX : (double)INFINITY;
	if (words[0] == '\0' || ((above ? x > min : x >= min) && x <= max))
		return true;
	struct buf text;
	buf_init(&text);
	if (is_int)
		buf_printf(&text, "%lld", (long long)v->i);
	else
		buf_printf(&text, "%g", x);
	buf_printf(&text, ", it must be %s %g", above ? "above" : "at least", min);
	if (*end != '\0' || x > max)
		buf_printf(&text, " and at most %.10g", max);
	diag_error(r->env->cx, r->node->loc, DIAG_VALUE_TYPE, "%s is %s", r->key->name, text.data);
	buf_destroy(&text);
	return false;
}

/* Reads an int into *i, or if that is NULL a float into *f, and checks its range. */
static bool read_number(const struct member_reader *r, int64_t *i, double *f)
{
	struct value v;
	bool ok = i != NULL ? expr_read_int(r->env, r->node, r->key->name, i)
	                    : expr_read_float(r->env, r->node, r->key->name, f);
	if (ok)
		v = i != NULL ? value_int(*i) : value_float(*f);
	return ok && check_range(r, &v);
}

/* Reads a word into an enum member: 0 stands for an absent key, so words count from 1. */
static bool read_word(const struct member_reader *r, int *out)
{
	size_t n, word;
	const char *const *words = schema_words(r->env->arena, r->key, &n);
	if (words == NULL || !expr_read_word(r->env, r->node, r->key->name, words, n, &word))
		return false;
	*out = 1 + (int)word;
	return true;
}

/* Reads a scalar as text, without evaluating it. */
static bool read_text(const struct member_reader *r, const char **out)
{
	*out = r->node->text;
	return yaml_expect(r->env->cx, r->node, YAML_SCALAR, r->key->name);
}

/* Reads a list of token ids, each 0 to 2^31 - 1 (i32 at run time); an element may be an expression that evaluates to
 * a list. */
static bool read_ids(const struct member_reader *r, struct frontend_ids *out)
{
	struct yaml_list list = yaml_as_list(r->env->arena, r->node);
	struct {
		int64_t *items;
		size_t n, cap;
	} ids = {NULL, 0, 0};
	for (size_t i = 0; i < list.n; i++) {
		const struct yaml_node *node = list.items[i];
		struct value v;
		if (!yaml_expect(r->env->cx, node, YAML_SCALAR, r->key->name) ||
		    !expr_read_list(r->env, node, r->key->name, &v))
			return false;
		for (size_t k = 0; k < (v.kind == VALUE_LIST ? v.n : 1); k++) {
			int64_t *id = ARENA_PUSH(r->env->arena, &ids);
			const struct value *one = v.kind == VALUE_LIST ? &v.items[k] : &v;
			if (id == NULL || !expr_require_int(r->env, node->loc, r->key->name, one, id))
				return false;
			if (*id >= 0 && *id <= INT32_MAX)
				continue;
			diag_error(r->env->cx, node->loc, DIAG_VALUE_TYPE, "%s has the id %lld", r->key->name,
			           (long long)*id);
			return false;
		}
	}
	*out = (struct frontend_ids){ids.items, ids.n};
	return true;
}

/* Reads a key's value into a member of the type that struct schema_member describes; values that have none stay
 * nodes, which the caller reads. */
static bool read_member(const struct member_reader *r, void *out)
{
	switch (r->key->type) {
	case KEY_INT: return read_number(r, out, NULL);
	case KEY_FLOAT: return read_number(r, NULL, out);
	case KEY_BOOL: return expr_read_bool(r->env, r->node, r->key->name, out);
	case KEY_WORD: return r->key->words[0] == '\0' ? read_text(r, out) : read_word(r, out);
	case KEY_NAME:
	case KEY_TEXT: return read_text(r, out);
	case KEY_LIST:
		if (strcmp(r->key->words, "ids") == 0)
			return read_ids(r, out);
		break;
	case KEY_DIM:
	case KEY_VALUE:
	case KEY_PATH:
	case KEY_MAP:
	case KEY_STEPS:
	case KEY_ANY: break;
	}
	*(const struct yaml_node **)out = r->node;
	return true;
}

/* An absent key has the default of its row, read as if it were written; without one the member stays as it is. A
 * required key that is absent has been reported by schema_check(). */
bool schema_read(const struct expr_env *env, const struct yaml_node *map, const char *where, const char *what,
                 const struct schema_member *members, size_t n, void *out)
{
	bool ok = true;
	if (map != NULL && (!yaml_expect(env->cx, map, YAML_MAPPING, what) ||
	                    !schema_check(env->arena, env->cx, map, where, NULL, what)))
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct schema_key *key = schema_find_key(where, members[i].key);
		struct member_reader r = {env, key, yaml_find(map, key->name)};
		if (r.node == NULL && key->def[0] != '\0' && key->def[0] != '!')
			r.node = yaml_scalar(env->arena, LOC_NONE, key->def, false);
		if (r.node != NULL)
			ok = read_member(&r, (char *)out + members[i].at) && ok;
	}
	return ok;
}
