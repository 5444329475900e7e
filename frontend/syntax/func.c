/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of plain expressions: the FUNCTION rows of calls.def, each with a function call_NAME of the table
 * below. The evaluator handles `if`, which evaluates one branch only. A function that returns false has reported an
 * error at the call.
 * The number of a function is its row among these rows, also in the table.
 */
#include "frontend/syntax/func.h"

#include <math.h>
#include <string.h>

#include "frontend/syntax/signature.h"
#include "ir/support/checked.h"
#include "ir/support/strmap.h"

struct call {
	const struct expr_env *env;
	const struct expr *e;
	const struct value *args;
	size_t n;
	struct value *out;
};

typedef bool call_fn(const struct call *c);

static bool require_number(const struct call *c, const struct value *v)
{
	if (v->kind == VALUE_INT || v->kind == VALUE_FLOAT)
		return true;
	diag_error(c->env->cx, c->e->loc, DIAG_VALUE_TYPE, "'%s' wants %s, found %s", c->e->text,
	           c->n == 1 ? "a number" : "numbers", value_describe(c->env->arena, c->env->dims, v));
	return false;
}

/* Computes min (sign 1) or max (sign -1) of the arguments; a float if any argument is one. Two ints are compared
 * exactly, which f64 would not beyond 2^53. */
static bool min_or_max(const struct call *c, int sign)
{
	const struct value *best = &c->args[0];
	bool any_float = false;
	for (size_t i = 0; i < c->n; i++) {
		const struct value *v = &c->args[i];
		if (!require_number(c, v))
			return false;
		any_float = any_float || v->kind == VALUE_FLOAT;
		bool ints = v->kind == VALUE_INT && best->kind == VALUE_INT;
		bool less = ints ? v->i < best->i : expr_as_double(v) < expr_as_double(best);
		bool greater = ints ? v->i > best->i : expr_as_double(v) > expr_as_double(best);
		if (sign > 0 ? less : greater)
			best = v;
	}
	*c->out = any_float ? value_float(expr_as_double(best)) : value_int(best->i);
	return true;
}

static bool call_min(const struct call *c)
{
	return min_or_max(c, 1);
}

static bool call_max(const struct call *c)
{
	return min_or_max(c, -1);
}

/* |a| of an int or a float; INT64_MIN has no positive counterpart. */
static bool call_abs(const struct call *c)
{
	int64_t r = c->args[0].i;
	if (!require_number(c, &c->args[0]))
		return false;
	if (c->args[0].kind == VALUE_FLOAT) {
		*c->out = value_float(fabs(c->args[0].f));
		return true;
	}
	if (r < 0 && !checked_sub_i64(0, r, &r)) {
		diag_error(c->env->cx, c->e->loc, DIAG_OVERFLOW, "abs of %lld does not fit into 64 bits",
		           (long long)r);
		return false;
	}
	*c->out = value_int(r);
	return true;
}

static bool call_len(const struct call *c)
{
	if (c->args[0].kind != VALUE_LIST) {
		diag_error(c->env->cx, c->e->loc, DIAG_VALUE_TYPE, "'len' wants a list, found %s",
		           value_describe(c->env->arena, c->env->dims, &c->args[0]));
		return false;
	}
	*c->out = value_int((int64_t)c->args[0].n);
	return true;
}

/* contains(list, v): equal kinds and values, so that the int 1 is not the float 1.0. */
static bool call_contains(const struct call *c)
{
	const struct value *list = &c->args[0], *v = &c->args[1];
	bool found = false;
	if (list->kind != VALUE_LIST) {
		diag_error(c->env->cx, c->e->loc, DIAG_VALUE_TYPE,
		           "'contains' wants a list and a value, found %s",
		           value_describe(c->env->arena, c->env->dims, list));
		return false;
	}
	for (size_t i = 0; i < list->n; i++)
		found = found || value_equal(&list->items[i], v);
	*c->out = value_bool(found);
	return true;
}

/* Returns a float without fraction as an int, whose range is checked first: a conversion out of range is undefined. */
static bool return_int(const struct call *c, double r)
{
	/* 2^63 is exact in double, INT64_MAX is not. */
	if (!(r >= -9223372036854775808.0 && r < 9223372036854775808.0)) {
		diag_error(c->env->cx, c->e->loc, DIAG_OVERFLOW,
		           "the result of '%s' does not fit into 64 bits", c->e->text);
		return false;
	}
	*c->out = value_int((int64_t)r);
	return true;
}

/* An int stays as it is. */
static bool round_to_int(const struct call *c, double (*round_float)(double))
{
	if (!require_number(c, &c->args[0]))
		return false;
	*c->out = c->args[0];
	return c->args[0].kind == VALUE_INT || return_int(c, round_float(c->args[0].f));
}

static bool call_floor(const struct call *c)
{
	return round_to_int(c, floor);
}

static bool call_ceil(const struct call *c)
{
	return round_to_int(c, ceil);
}

static bool return_float(const struct call *c, double (*function)(double))
{
	return require_number(c, &c->args[0]) &&
	       expr_finite(c->env, c->e, function(expr_as_double(&c->args[0])), c->out);
}

static bool call_sqrt(const struct call *c)
{
	return return_float(c, sqrt);
}

static bool call_exp(const struct call *c)
{
	return return_float(c, exp);
}

static bool call_log(const struct call *c)
{
	return return_float(c, log);
}

#define FUNCTIONS (CALL_FUNCTION | CALL_FORM)
static call_fn *const functions[] = {
#define FUNCTION(name, doc, args) call_##name,
#define FORM(name, doc, args)     NULL, /* `if`: handled by the evaluator */
#include "frontend/syntax/calls.def"
};

const char *expr_suggest_function(struct arena *a, const char *name)
{
	const char *names[TFMC_COUNT(functions)];
	for (size_t i = 0; i < TFMC_COUNT(functions); i++)
		names[i] = signature_at(FUNCTIONS, i)->name;
	return did_you_mean(a, name, names, TFMC_COUNT(functions));
}

bool expr_is_function(const char *name)
{
	size_t number;
	return signature_of(FUNCTIONS, name, &number) != NULL;
}

bool expr_check_call(const struct expr_env *env, const struct expr *e)
{
	size_t number;
	const struct signature *s = signature_of(FUNCTIONS, e->text, &number);
	const struct signature_use use = {env->arena, env->cx, e->loc, NULL};
	if (s != NULL)
		return signature_match_call(&use, s, e) != NULL;
	diag_error(env->cx, e->loc, DIAG_UNKNOWN_NAME, "there is no function '%.63s' here", e->text);
	return false;
}

/* fold_constants() in lower/partial_eval.c comes here without expr_check_call() before. */
bool expr_call(const struct expr_env *env, const struct expr *e, const struct value *args, size_t n,
               struct value *out)
{
	size_t number;
	(void)signature_of(FUNCTIONS, e->text, &number);
	if (!expr_check_call(env, e) || functions[number] == NULL || n != e->n_args)
		return false;
	return functions[number](&(struct call){env, e, args, n, out});
}
