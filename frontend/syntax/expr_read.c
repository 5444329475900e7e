/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads YAML scalars with a required type: the schema defines the type, the text is an expression. An int is
 * accepted where a float is required; there are no other conversions. A function that returns false has reported an
 * error; `what` names the value in it.
 */
#include <string.h>

#include "frontend/syntax/expr.h"
#include "ir/support/strmap.h"

/* Text with one of these characters is an expression, not a misspelled word. */
#define EXPRESSION_MARKS "([' "

/* Reports a value of another type, with the conversion to write if there is one. Always false. */
static bool report_type(const struct expr_env *env, struct loc loc, const char *what, const char *expected,
                        const struct value *v)
{
	const char *advice = "";
	if (v->kind == VALUE_FLOAT && strcmp(expected, "an int") == 0)
		advice = "; write floor(...) or ceil(...)";
	if (v->kind == VALUE_INT && strcmp(expected, "a bool") == 0)
		advice = "; write true or false";
	diag_error(env->cx, loc, v->kind == VALUE_NONE ? DIAG_NULL_VALUE : DIAG_VALUE_TYPE,
	           "'%s' wants %s, found %s%s", what, expected, value_describe(env->arena, env->dims, v),
	           advice);
	return false;
}

bool expr_require_int(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      int64_t *out)
{
	if (v->kind != VALUE_INT)
		return report_type(env, loc, what, "an int", v);
	*out = v->i;
	return true;
}

bool expr_require_float(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                        double *out)
{
	if (v->kind != VALUE_INT && v->kind != VALUE_FLOAT)
		return report_type(env, loc, what, "a float", v);
	*out = v->kind == VALUE_INT ? (double)v->i : v->f;
	return true;
}

bool expr_require_bool(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                       bool *out)
{
	if (v->kind != VALUE_BOOL)
		return report_type(env, loc, what, "a bool", v);
	*out = v->b;
	return true;
}

bool expr_require_dim(const struct expr_env *env, struct loc loc, const char *what, const struct value *v,
                      const struct ir_dim **out)
{
	if (v->kind != VALUE_INT && v->kind != VALUE_DIM)
		return report_type(env, loc, what, "a dim", v);
	*out = v->kind == VALUE_DIM ? v->dim : ir_dim_const(env->dims, v->i);
	return true;
}

/* Parses and evaluates a scalar as an expression, quoted or not. */
static bool read_expression(const struct expr_env *env, const struct yaml_node *node, const char *what,
                            struct value *out)
{
	if (!yaml_expect(env->cx, node, YAML_SCALAR, what))
		return false;
	const struct expr *e = expr_parse(env->arena, env->cx, expr_source_of(node), EXPR_PLAIN);
	return e != NULL && expr_eval(env, e, out);
}

bool expr_read_int(const struct expr_env *env, const struct yaml_node *node, const char *what, int64_t *out)
{
	struct value v;
	return read_expression(env, node, what, &v) && expr_require_int(env, node->loc, what, &v, out);
}

bool expr_read_float(const struct expr_env *env, const struct yaml_node *node, const char *what, double *out)
{
	struct value v;
	return read_expression(env, node, what, &v) && expr_require_float(env, node->loc, what, &v, out);
}

bool expr_read_bool(const struct expr_env *env, const struct yaml_node *node, const char *what, bool *out)
{
	struct value v;
	return read_expression(env, node, what, &v) && expr_require_bool(env, node->loc, what, &v, out);
}

bool expr_read_dim(const struct expr_env *env, const struct yaml_node *node, const char *what,
                   const struct ir_dim **out)
{
	struct value v;
	return read_expression(env, node, what, &v) && expr_require_dim(env, node->loc, what, &v, out);
}

/* Sets *out to the index of text in words. False: it is none of them. */
static bool find_keyword(const char *text, const char *const *words, size_t n, size_t *out)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(words[i], text) == 0) {
			*out = i;
			return true;
		}
	}
	return false;
}

static bool report_unknown_word(const struct expr_env *env, struct loc loc, const char *what,
                                const char *text, const char *const *words, size_t n)
{
	struct buf list;
	buf_init(&list);
	for (size_t i = 0; i < n; i++)
		buf_printf(&list, "%s%s", i == 0 ? "" : ", ", words[i]);
	diag_error(env->cx, loc, DIAG_WORD, "'%.60s' is not a word of '%s' (%s)%s", text, what, list.data,
	           did_you_mean(env->arena, text, words, n));
	buf_destroy(&list);
	return false;
}

/* A word of the enumeration wins; text with a mark of expressions is one; a plain name is a param; anything else is a
 * misspelled word, reported with a suggestion. */
bool expr_read_word(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    const char *const *words, size_t n, size_t *out)
{
	struct value v = {.kind = VALUE_NONE};
	if (!yaml_expect(env->cx, node, YAML_SCALAR, what))
		return false;
	if (find_keyword(node->text, words, n, out))
		return true;
	if (strpbrk(node->text, EXPRESSION_MARKS) != NULL) {
		if (!read_expression(env, node, what, &v))
			return false;
	} else if (!expr_is_name(node->text)) {
		return report_unknown_word(env, node->loc, what, node->text, words, n);
	} else {
		enum expr_lookup found = env->lookup(env->user, node->text, node->loc, &v);
		if (found == EXPR_FAILED)
			return false;
		if (found == EXPR_ABSENT)
			return report_unknown_word(env, node->loc, what, node->text, words, n);
	}
	if (v.kind != VALUE_STRING)
		return report_type(env, node->loc, what, "a word", &v);
	return find_keyword(v.s, words, n, out) || report_unknown_word(env, node->loc, what, v.s, words, n);
}

/* A quoted scalar is a string, a plain one an expression. */
static bool read_scalar(const struct expr_env *env, const struct yaml_node *node, const char *what,
                        struct value *out)
{
	if (node->kind == YAML_SCALAR && node->quoted) {
		*out = value_string(node->text);
		return true;
	}
	return read_expression(env, node, what, out);
}

/* Lists are never nested: an element that evaluates to a list is an error. */
bool expr_read_value(const struct expr_env *env, const struct yaml_node *node, const char *what,
                     struct value *out)
{
	if (node->kind != YAML_SEQUENCE)
		return read_scalar(env, node, what, out);
	struct value *items = ARENA_ARRAY(env->arena, struct value, node->n);
	if (node->n != 0 && (items == NULL || arena_failed(env->arena)))
		return false;
	for (size_t i = 0; i < node->n; i++) {
		if (!read_scalar(env, node->items[i], what, &items[i]))
			return false;
		if (items[i].kind == VALUE_LIST)
			return report_type(env, node->items[i]->loc, what, "a list of single values",
			                   &items[i]);
	}
	*out = (struct value){.kind = VALUE_LIST, .n = node->n, .items = items};
	return true;
}

bool expr_read_list(const struct expr_env *env, const struct yaml_node *node, const char *what,
                    struct value *out)
{
	return node->kind == YAML_SCALAR ? read_expression(env, node, what, out)
	                                 : expr_read_value(env, node, what, out);
}
