/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of expressions: constructors, comparison, printing; and helpers shared by parser and evaluator (names,
 * operator texts, sources).
 */
#include <string.h>

#include "frontend/syntax/expr.h"
#include "ir/support/chars.h"

bool expr_is_name(const char *s)
{
	size_t n = strlen(s);
	if (n == 0 || n > EXPR_NAME_MAX || char_is_digit(s[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!char_is_word(s[i])) /* ASCII only: names become C identifiers */
			return false;
	return true;
}

/* The text of a scalar; after the quote, if it is quoted and its columns are known. */
struct expr_source expr_source_of(const struct yaml_node *scalar)
{
	struct expr_source src = {scalar->text, scalar->len, scalar->loc, scalar->exact};
	if (scalar->exact)
		src.loc.col += scalar->quoted ? 1 : 0;
	return src;
}

const char *expr_op_name(enum expr_op op)
{
	switch (op) {
	case EXPR_OR: return "or";
	case EXPR_AND: return "and";
	case EXPR_NOT: return "not";
	case EXPR_EQ: return "==";
	case EXPR_NE: return "!=";
	case EXPR_LT: return "<";
	case EXPR_LE: return "<=";
	case EXPR_GT: return ">";
	case EXPR_GE: return ">=";
	case EXPR_ADD: return "+";
	case EXPR_SUB: return "-";
	case EXPR_MUL: return "*";
	case EXPR_DIV: return "/";
	case EXPR_FLOORDIV: return "//";
	case EXPR_MOD: return "%";
	case EXPR_POW: return "**";
	case EXPR_NEG: return "-";
	}
	return "";
}

struct value value_int(int64_t i)
{
	return (struct value){.kind = VALUE_INT, .i = i};
}

struct value value_float(double f)
{
	return (struct value){.kind = VALUE_FLOAT, .f = f};
}

struct value value_bool(bool b)
{
	return (struct value){.kind = VALUE_BOOL, .b = b};
}

struct value value_string(const char *s)
{
	return (struct value){.kind = VALUE_STRING, .s = s};
}

struct value value_dim(const struct ir_dim *d)
{
	int64_t i;
	if (ir_dim_is_const(d, &i))
		return value_int(i);
	return (struct value){.kind = VALUE_DIM, .dim = d};
}

static bool lists_equal(const struct value *a, const struct value *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		if (!value_equal(&a->items[i], &b->items[i]))
			return false;
	}
	return true;
}

bool value_equal(const struct value *a, const struct value *b)
{
	if (a->kind != b->kind)
		return false;
	switch (a->kind) {
	case VALUE_NONE: return true;
	case VALUE_INT: return a->i == b->i;
	/* By bits, so that values that print alike are equal: NaN equals itself, 0 and -0 differ. */
	case VALUE_FLOAT: return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
	case VALUE_BOOL: return a->b == b->b;
	case VALUE_STRING: return strcmp(a->s, b->s) == 0;
	case VALUE_LIST: return lists_equal(a, b);
	case VALUE_DIM: return a->dim == b->dim;
	}
	return false;
}

/* Prints a float as YAML writes it. Only zero and the infinities are their own double, and of these only an infinity
 * is above or below 0; values are never NaN. */
void value_print_float(struct buf *out, double f)
{
	if (f > 0 && f == f + 1 && f == 2 * f)
		buf_str(out, ".inf");
	else if (f < 0 && f == f - 1 && f == 2 * f)
		buf_str(out, "-.inf");
	else
		buf_f64(out, f);
}

void value_print_string(struct buf *out, const char *text, char quote)
{
	if (strchr(text, quote) != NULL)
		quote = quote == '"' ? '\'' : '"';
	buf_printf(out, "%c%s%c", quote, text, quote);
}

static void print_single_quoted(struct buf *out, const char *text)
{
	value_print_string(out, text, '\'');
}

void value_print(struct buf *out, const struct ir_dims *dims, const struct value *v)
{
	value_print_with(out, dims, v, print_single_quoted);
}

void value_print_with(struct buf *out, const struct ir_dims *dims, const struct value *v,
                      void (*print_string)(struct buf *, const char *))
{
	switch (v->kind) {
	case VALUE_NONE: buf_str(out, "null"); break;
	case VALUE_INT: buf_printf(out, "%lld", (long long)v->i); break;
	case VALUE_FLOAT: value_print_float(out, v->f); break;
	case VALUE_BOOL: buf_str(out, v->b ? "true" : "false"); break;
	case VALUE_STRING: print_string(out, v->s); break;
	case VALUE_LIST:
		buf_char(out, '[');
		for (size_t i = 0; i < v->n; i++) {
			buf_str(out, i > 0 ? ", " : "");
			value_print_with(out, dims, &v->items[i], print_string);
		}
		buf_char(out, ']');
		break;
	case VALUE_DIM: ir_dim_print(out, dims, v->dim, false); break;
	}
}

static const char *kind_name(enum value_kind kind)
{
	switch (kind) {
	case VALUE_NONE: return "";
	case VALUE_INT: return "the int ";
	case VALUE_FLOAT: return "the float ";
	case VALUE_BOOL: return "the bool ";
	case VALUE_STRING: return "the string ";
	case VALUE_LIST: return "a list of ";
	case VALUE_DIM: return "the dim ";
	}
	return "";
}

/* A list is described by its length; a dim has no text without its symbols. */
const char *value_describe(struct arena *a, const struct ir_dims *dims, const struct value *v)
{
	struct buf text;
	const char *out;
	buf_init(&text);
	if (v->kind == VALUE_LIST)
		buf_printf(&text, "%zu", v->n);
	else if (v->kind != VALUE_DIM || dims != NULL)
		value_print(&text, dims, v);
	out = arena_printf(a, "%s%.60s", kind_name(v->kind), text.data);
	buf_destroy(&text);
	return out;
}

/* Memory is checked once, at the end: the arena's failure is sticky. */
const struct expr *expr_of_value(struct arena *a, const struct value *v, struct loc loc)
{
	struct expr *e = ARENA_NEW(a, struct expr);
	if (e == NULL)
		return NULL;
	*e = (struct expr){.loc = loc};
	switch (v->kind) {
	case VALUE_NONE: e->kind = EX_NONE; break;
	case VALUE_INT: e->kind = EX_INT, e->i = v->i; break;
	case VALUE_FLOAT: e->kind = EX_FLOAT, e->f = v->f; break;
	case VALUE_BOOL: e->kind = EX_BOOL, e->i = v->b; break;
	case VALUE_STRING: e->kind = EX_STRING, e->text = v->s; break;
	case VALUE_DIM: e->kind = EX_DIM, e->dim = v->dim; break;
	case VALUE_LIST:
		e->kind = EX_LIST;
		e->n_args = v->n;
		e->args = ARENA_ARRAY(a, const struct expr *, v->n + 1);
		for (size_t i = 0; e->args != NULL && i < v->n; i++)
			e->args[i] = expr_of_value(a, &v->items[i], loc);
		break;
	}
	return arena_failed(a) ? NULL : e;
}
