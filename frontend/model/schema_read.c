/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a mapping into members of a struct, each by its row in schema.def.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "frontend/model/schema.h"
#include "frontend/syntax/yaml_edit.h"

struct member_reader {
	const struct expr_env *env;
	const struct schema_key *key;
	const struct yaml_node *node;
};

/* Checks a number against "[>]MIN [MAX]" of its row; ints have 32 bits without MAX. */
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

static bool read_number(const struct member_reader *r, int64_t *i, double *f)
{
	struct value v;
	bool ok = i != NULL ? expr_read_int(r->env, r->node, r->key->name, i)
	                    : expr_read_float(r->env, r->node, r->key->name, f);
	if (ok)
		v = i != NULL ? value_int(*i) : value_float(*f);
	return ok && check_range(r, &v);
}

static bool read_word(const struct member_reader *r, int *out)
{
	size_t n, word;
	const char *const *words = schema_words(r->env->arena, r->key, &n);
	if (words == NULL || !expr_read_word(r->env, r->node, r->key->name, words, n, &word))
		return false;
	*out = 1 + (int)word;
	return true;
}

static bool read_text(const struct member_reader *r, const char **out)
{
	*out = r->node->text;
	return yaml_expect(r->env->cx, r->node, YAML_SCALAR, r->key->name);
}

/* Reads a list of token ids; an element may be an expression that evaluates to a list. */
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
