/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluator of expressions: names, indices, operators. Ints are 64-bit and never wrap, `/` on ints is exact or an
 * error, floats never become NaN or infinite by arithmetic. Functions are in func.c. A function that returns false
 * has reported an error at the expression e.
 * A dim is a size that is known only when the model runs, a polynomial in its symbols; without env->dims there are
 * none. The location of a report is that of the operator.
 */
#include <math.h>
#include <string.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/func.h"
#include "ir/support/checked.h"
#include "ir/support/number.h"
#include "ir/support/strmap.h"

/* ---- errors ---- */

static const char *describe(const struct expr_env *env, const struct value *v)
{
	return value_describe(env->arena, env->dims, v);
}

static bool report_operand_type(const struct expr_env *env, const struct expr *e, const char *expected,
                                const struct value *v)
{
	diag_error(env->cx, e->loc, DIAG_VALUE_TYPE, "'%s' wants %s, found %s", expr_op_name(e->op), expected,
	           describe(env, v));
	return false;
}

/* Reports the operation with the values of its operands; b NULL: e is unary. */
static bool report_overflow(const struct expr_env *env, const struct expr *e, const struct value *a,
                            const struct value *b)
{
	struct buf text;
	buf_init(&text);
	value_print(&text, env->dims, a);
	if (b != NULL) {
		buf_printf(&text, " %s ", expr_op_name(e->op));
		value_print(&text, env->dims, b);
	}
	diag_error(env->cx, e->loc, DIAG_OVERFLOW, "%s%s does not fit into 64 bits",
	           b == NULL ? expr_op_name(e->op) : "", text.data);
	buf_destroy(&text);
	return false;
}

static bool report_zero_division(const struct expr_env *env, const struct expr *e)
{
	diag_error(env->cx, e->loc, DIAG_OVERFLOW, "division by zero");
	return false;
}

/* Prints an operand for a message: "heads (10)" for a name, "10" for other expressions. */
static void put_operand(struct buf *out, const struct expr *e, const struct value *v)
{
	if (e->kind == EX_NAME) {
		buf_printf(out, "%s (", e->text);
		value_print(out, NULL, v);
		buf_char(out, ')');
		return;
	}
	value_print(out, NULL, v);
}

/* Reports both operands by name, since the values come from params elsewhere. */
static bool report_not_divisible(const struct expr_env *env, const struct expr *e, const struct value *a,
                                 const struct value *b)
{
	struct buf x, y;
	buf_init(&x);
	buf_init(&y);
	put_operand(&x, e->args[0], a);
	put_operand(&y, e->args[1], b);
	diag_error(env->cx, e->loc, DIAG_NOT_DIVISIBLE,
	           "%s is not a multiple of %s; write a // b to round down or 1.0 * a / b for a float",
	           x.data, y.data);
	buf_destroy(&x);
	buf_destroy(&y);
	return false;
}

/* ---- ints ---- */

/* Rounds down; C rounds to zero. Not for b = 0 or a quotient that overflows. */
static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* Exponentiation by squaring; exponent >= 0. The last square is not needed, and its overflow would be none of the
 * result. False: overflow. */
static bool int_power(int64_t base, int64_t exponent, int64_t *out)
{
	int64_t r = 1;
	while (exponent > 0) {
		if (exponent % 2 == 1 && !checked_mul_i64(r, base, &r))
			return false;
		exponent /= 2;
		if (exponent > 0 && !checked_mul_i64(base, base, &base))
			return false;
	}
	*out = r;
	return true;
}

/* `/`, `//` and `%` of ints. INT64_MIN / -1 is the only quotient that overflows, and traps in C, also for its
 * remainder, which is 0; % rounds as // does. */
static bool int_divide(const struct expr_env *env, const struct expr *e, const struct value *a,
                       const struct value *b, int64_t *out)
{
	if (b->i == 0)
		return report_zero_division(env, e);
	if (e->op == EXPR_MOD) {
		*out = b->i == -1 ? 0 : a->i - floor_div(a->i, b->i) * b->i;
		return true;
	}
	if (a->i == INT64_MIN && b->i == -1)
		return report_overflow(env, e, a, b);
	if (e->op == EXPR_DIV && a->i % b->i != 0)
		return report_not_divisible(env, e, a, b);
	*out = floor_div(a->i, b->i);
	return true;
}

/* Applies an arithmetic operator to two ints; `**` with an exponent >= 0. */
static bool int_arithmetic(const struct expr_env *env, const struct expr *e, const struct value *a,
                           const struct value *b, struct value *out)
{
	int64_t r = 0;
	bool fits = true;
	if (e->op == EXPR_DIV || e->op == EXPR_FLOORDIV || e->op == EXPR_MOD) {
		if (!int_divide(env, e, a, b, &r))
			return false;
	} else if (e->op == EXPR_ADD) {
		fits = checked_add_i64(a->i, b->i, &r);
	} else if (e->op == EXPR_SUB) {
		fits = checked_sub_i64(a->i, b->i, &r);
	} else if (e->op == EXPR_MUL) {
		fits = checked_mul_i64(a->i, b->i, &r);
	} else {
		fits = int_power(a->i, b->i, &r);
	}
	if (!fits)
		return report_overflow(env, e, a, b);
	*out = value_int(r);
	return true;
}

/* ---- floats ---- */

bool expr_finite(const struct expr_env *env, const struct expr *e, double r, struct value *out)
{
	if (isnan(r) || isinf(r)) {
		diag_error(env->cx, e->loc, DIAG_OVERFLOW, "the result of '%s' is %s",
		           e->kind == EX_CALL ? e->text : expr_op_name(e->op),
		           isnan(r) ? "not a number" : "infinite");
		return false;
	}
	*out = value_float(r);
	return true;
}

double expr_as_double(const struct value *v)
{
	return v->kind == VALUE_INT ? (double)v->i : v->f;
}

/* Applies an arithmetic operator to two floats; a result that is NaN or infinite is an error. // and % round down, as
 * those of ints. */
static bool float_arithmetic(const struct expr_env *env, const struct expr *e, double a, double b,
                             struct value *out)
{
	bool divides = e->op == EXPR_DIV || e->op == EXPR_FLOORDIV || e->op == EXPR_MOD;
	double r;
	if (divides && b == 0)
		return report_zero_division(env, e);
	if (e->op == EXPR_ADD)
		r = a + b;
	else if (e->op == EXPR_SUB)
		r = a - b;
	else if (e->op == EXPR_MUL)
		r = a * b;
	else if (e->op == EXPR_DIV)
		r = a / b;
	else if (e->op == EXPR_MOD)
		r = number_floor_mod(a, b);
	else if (e->op == EXPR_FLOORDIV)
		/* An exact quotient, which floor(a / b) may miss by rounding. */
		r = nearbyint((a - number_floor_mod(a, b)) / b);
	else
		r = pow(a, b);
	return expr_finite(env, e, r, out);
}

/* ---- dims ---- */

/* Sets *out to a new dim; NULL means no memory or overflow. was_failed: ir_dims_failed() before, which is sticky: an
 * overflow of another expression is not reported here again. */
static bool dim_result(const struct expr_env *env, const struct expr *e, const struct ir_dim *d,
                       bool was_failed, struct value *out)
{
	if (d == NULL || (!was_failed && ir_dims_failed(env->dims))) {
		diag_error(env->cx, e->loc, DIAG_OVERFLOW, "the dim does not fit into 64 bits");
		return false;
	}
	*out = value_dim(d);
	return true;
}

static const struct ir_dim *as_dim(const struct expr_env *env, const struct value *v)
{
	return v->kind == VALUE_DIM ? v->dim : ir_dim_const(env->dims, v->i);
}

/* Applies an operator of which an operand is a dim, a polynomial in the symbols: only those with a polynomial result,
 * and // by a positive int, which dims have as a factor of its own kind. */
static bool dim_arithmetic(const struct expr_env *env, const struct expr *e, const struct value *a,
                           const struct value *b, struct value *out)
{
	bool failed = ir_dims_failed(env->dims);
	bool fit = (a->kind == VALUE_DIM || a->kind == VALUE_INT) &&
	           (b->kind == VALUE_DIM || b->kind == VALUE_INT);
	if (fit && e->op == EXPR_ADD)
		return dim_result(env, e, ir_dim_add(env->dims, as_dim(env, a), as_dim(env, b)), failed, out);
	if (fit && e->op == EXPR_SUB)
		return dim_result(env, e, ir_dim_sub(env->dims, as_dim(env, a), as_dim(env, b)), failed, out);
	if (fit && e->op == EXPR_MUL)
		return dim_result(env, e, ir_dim_mul(env->dims, as_dim(env, a), as_dim(env, b)), failed, out);
	if (fit && e->op == EXPR_FLOORDIV && b->kind == VALUE_INT && b->i > 0)
		/* b is the int, so that a is the dim */
		return dim_result(env, e, ir_dim_floordiv(env->dims, a->dim, b->i), failed, out);
	diag_error(env->cx, e->loc, DIAG_VALUE_TYPE,
	           "'%s' cannot be applied to a dim; dims allow + - * and // by a positive constant",
	           expr_op_name(e->op));
	return false;
}

/* ---- operators ---- */

static bool is_number(const struct value *v)
{
	return v->kind == VALUE_INT || v->kind == VALUE_FLOAT;
}

/* Chooses the arithmetic by the types of the operands: dims before floats before ints. An int to a negative power is
 * a float, as it is no int. */
static bool eval_arithmetic(const struct expr_env *env, const struct expr *e, const struct value *a,
                            const struct value *b, struct value *out)
{
	if (a->kind == VALUE_DIM || b->kind == VALUE_DIM)
		return dim_arithmetic(env, e, a, b, out);
	if (!is_number(a))
		return report_operand_type(env, e, "numbers", a);
	if (!is_number(b))
		return report_operand_type(env, e, "numbers", b);
	bool negative_power = e->op == EXPR_POW && b->kind == VALUE_INT && b->i < 0;
	if (a->kind == VALUE_INT && b->kind == VALUE_INT && !negative_power)
		return int_arithmetic(env, e, a, b, out);
	return float_arithmetic(env, e, expr_as_double(a), expr_as_double(b), out);
}

/* -1, 0 or 1. Two ints are compared exactly, which f64 would not beyond 2^53. Floats are never NaN (expr_finite). */
static int compare_numbers(const struct value *a, const struct value *b)
{
	if (a->kind == VALUE_INT && b->kind == VALUE_INT)
		return (a->i > b->i) - (a->i < b->i);
	double x = expr_as_double(a), y = expr_as_double(b);
	return (x > y) - (x < y);
}

/* Compares numbers, or by == and != two strings or two bools; dims have no order that is known here. */
static bool eval_comparison(const struct expr_env *env, const struct expr *e, const struct value *a,
                            const struct value *b, struct value *out)
{
	bool equality = e->op == EXPR_EQ || e->op == EXPR_NE;
	int order;
	if (is_number(a) && is_number(b)) {
		order = compare_numbers(a, b);
	} else if (equality && a->kind == b->kind && (a->kind == VALUE_STRING || a->kind == VALUE_BOOL)) {
		order = !value_equal(a, b);
	} else {
		diag_error(env->cx, e->loc, DIAG_VALUE_TYPE, "%s and %s cannot be compared by '%s'",
		           describe(env, a), describe(env, b), expr_op_name(e->op));
		return false;
	}
	bool r = e->op == EXPR_EQ   ? order == 0
	         : e->op == EXPR_NE ? order != 0
	         : e->op == EXPR_LT ? order < 0
	         : e->op == EXPR_LE ? order <= 0
	         : e->op == EXPR_GT ? order > 0
	                            : order >= 0;
	*out = value_bool(r);
	return true;
}

/* Negates an int, a float or a dim. */
static bool eval_negation(const struct expr_env *env, const struct expr *e, const struct value *v,
                          struct value *out)
{
	int64_t r;
	if (v->kind == VALUE_FLOAT) {
		*out = value_float(-v->f);
		return true;
	}
	if (v->kind == VALUE_DIM) {
		bool failed = ir_dims_failed(env->dims);
		return dim_result(env, e, ir_dim_sub(env->dims, ir_dim_const(env->dims, 0), v->dim), failed,
		                  out);
	}
	if (v->kind != VALUE_INT)
		return report_operand_type(env, e, "a number", v);
	if (!checked_sub_i64(0, v->i, &r))
		return report_overflow(env, e, v, NULL);
	*out = value_int(r);
	return true;
}

/* Applies an operator or a function to the values of its operands. Of and/or only args[0] is read: it must be a bool,
 * and is the result, because callers do the short-circuit evaluation. eval_logic() passes one operand at a time, with
 * out as args; fold_constants() in lower/partial_eval.c comes here with a first operand that is no bool, for the
 * report. */
bool expr_apply(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
                struct value *out)
{
	if (e->kind == EX_CALL)
		return expr_call(env, e, args, n, out);
	switch (e->op) {
	case EXPR_ADD:
	case EXPR_SUB:
	case EXPR_MUL:
	case EXPR_DIV:
	case EXPR_FLOORDIV:
	case EXPR_MOD:
	case EXPR_POW: return eval_arithmetic(env, e, &args[0], &args[1], out);
	case EXPR_EQ:
	case EXPR_NE:
	case EXPR_LT:
	case EXPR_LE:
	case EXPR_GT:
	case EXPR_GE: return eval_comparison(env, e, &args[0], &args[1], out);
	case EXPR_NEG: return eval_negation(env, e, &args[0], out);
	case EXPR_NOT:
	case EXPR_AND:
	case EXPR_OR:
		if (args[0].kind != VALUE_BOOL)
			return report_operand_type(env, e, "bools", &args[0]);
		*out = value_bool(e->op == EXPR_NOT ? !args[0].b : args[0].b);
		return true;
	}
	return false;
}

/* ---- expression trees ---- */

/* The literal to write for words that other YAML readers take as bools, null or numbers; NULL: an ordinary
 * name. */
static const char *yaml_literal_advice(const char *name)
{
	static const char *const rows[][2] = {
	        {"yes", "true"},    {"Yes", "true"},  {"YES", "true"},  {"on", "true"},   {"On", "true"},
	        {"ON", "true"},     {"True", "true"}, {"TRUE", "true"}, {"no", "false"},  {"No", "false"},
	        {"NO", "false"},    {"off", "false"}, {"Off", "false"}, {"OFF", "false"}, {"False", "false"},
	        {"FALSE", "false"}, {"None", "null"}, {"Null", "null"}, {"NULL", "null"}, {"inf", ".inf"},
	};
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		if (strcmp(rows[i][0], name) == 0)
			return rows[i][1];
	}
	return NULL;
}

/* Reports a name that is not known here; a word of other YAML readers with the literal to write. */
static bool report_unknown_name(const struct expr_env *env, const struct expr *e)
{
	const char *advice = yaml_literal_advice(e->text);
	size_t n = 0;
	if (advice != NULL) {
		diag_error(env->cx, e->loc, DIAG_NUMBER, "'%s' is only a word here; write %s", e->text,
		           advice);
		return false;
	}
	const char *const *names = env->names == NULL ? NULL : env->names(env->user, &n);
	diag_error(env->cx, e->loc, DIAG_UNKNOWN_NAME, "there is no '%.63s' here%s", e->text,
	           did_you_mean(env->arena, e->text, names, n));
	return false;
}

/* Reads a name. A dim is an error where the value must be known at compile time (env->dims NULL). */
static bool eval_name(const struct expr_env *env, const struct expr *e, struct value *out)
{
	switch (env->lookup(env->user, e->text, e->loc, out)) {
	case EXPR_FAILED: return false;
	case EXPR_ABSENT: return report_unknown_name(env, e);
	case EXPR_FOUND: break;
	}
	if (out->kind != VALUE_DIM || env->dims != NULL)
		return true;
	diag_error(env->cx, e->loc, DIAG_VALUE_TYPE,
	           "the dim '%.63s' is not known at compile time; a number is wanted", e->text);
	return false;
}

/* Reads an element of a list; there are no negative indices. */
static bool eval_index(const struct expr_env *env, const struct expr *e, struct value *out)
{
	struct value list, at;
	if (e->n_args != 2) {
		diag_error(env->cx, e->loc, DIAG_EXPRESSION, "a list is read with one index");
		return false;
	}
	if (!expr_eval(env, e->args[0], &list) || !expr_eval(env, e->args[1], &at))
		return false;
	if (list.kind != VALUE_LIST) {
		diag_error(env->cx, e->loc, DIAG_VALUE_TYPE, "only lists have elements, found %s",
		           describe(env, &list));
		return false;
	}
	if (at.kind != VALUE_INT) {
		diag_error(env->cx, e->args[1]->loc, DIAG_VALUE_TYPE, "an index must be an int, found %s",
		           describe(env, &at));
		return false;
	}
	if (at.i < 0 || (uint64_t)at.i >= list.n) {
		diag_error(env->cx, e->args[1]->loc, DIAG_INDEX,
		           "the index %lld is outside of the list of %zu", (long long)at.i, list.n);
		return false;
	}
	*out = list.items[at.i];
	return true;
}

/* and/or with short-circuit evaluation: the second operand is evaluated, and must be a bool, only if the first one
 * does not decide the result. */
static bool eval_logic(const struct expr_env *env, const struct expr *e, struct value *out)
{
	if (!expr_eval(env, e->args[0], out) || !expr_apply(env, e, out, 1, out))
		return false;
	if (out->b == (e->op == EXPR_OR))
		return true;
	return expr_eval(env, e->args[1], out) && expr_apply(env, e, out, 1, out);
}

/* Evaluates the operands of a unary or binary operator, then applies it. */
static bool eval_operation(const struct expr_env *env, const struct expr *e, struct value *out)
{
	struct value args[2];
	if (e->kind == EX_BINARY && (e->op == EXPR_AND || e->op == EXPR_OR))
		return eval_logic(env, e, out);
	for (size_t i = 0; i < e->n_args; i++) {
		if (!expr_eval(env, e->args[i], &args[i]))
			return false;
	}
	return expr_apply(env, e, args, e->n_args, out);
}

/* Evaluates a call. `if` evaluates its condition and then only the branch that is chosen, since the other one may be
 * an error; functions have all arguments evaluated. expr_check_call() has matched number and names of the arguments. */
static bool eval_call(const struct expr_env *env, const struct expr *e, struct value *out)
{
	struct value condition;
	if (!expr_check_call(env, e))
		return false;
	if (strcmp(e->text, "if") == 0) {
		if (!expr_eval(env, e->args[0], &condition))
			return false;
		if (condition.kind != VALUE_BOOL) {
			diag_error(env->cx, e->args[0]->loc, DIAG_VALUE_TYPE, "'if' wants a bool, found %s",
			           describe(env, &condition));
			return false;
		}
		return expr_eval(env, e->args[condition.b ? 1 : 2], out);
	}
	struct value *args = ARENA_ARRAY(env->arena, struct value, e->n_args);
	if (args == NULL || arena_failed(env->arena))
		return false;
	for (size_t i = 0; i < e->n_args; i++) {
		if (!expr_eval(env, e->args[i], &args[i]))
			return false;
	}
	return expr_call(env, e, args, e->n_args, out);
}

/* Lists of graph expressions are arguments of calls; they are no values. */
bool expr_eval(const struct expr_env *env, const struct expr *e, struct value *out)
{
	switch (e->kind) {
	case EX_NONE: *out = (struct value){.kind = VALUE_NONE}; return true;
	case EX_INT: *out = value_int(e->i); return true;
	case EX_FLOAT: *out = value_float(e->f); return true;
	case EX_BOOL: *out = value_bool(e->i != 0); return true;
	case EX_STRING: *out = value_string(e->text); return true;
	case EX_DIM: *out = value_dim(e->dim); return true;
	case EX_NAME: return eval_name(env, e, out);
	case EX_UNARY:
	case EX_BINARY: return eval_operation(env, e, out);
	case EX_INDEX: return eval_index(env, e, out);
	case EX_CALL: return eval_call(env, e, out);
	case EX_LIST:
		diag_error(env->cx, e->loc, DIAG_VALUE_TYPE, "a list is not allowed here");
		return false;
	}
	return false;
}
