/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluation of expressions and predicates with the bindings of a match. Everything is f64; flags are 0 and 1,
 * keywords and element types their position.
 */
#include <math.h>
#include <string.h>

#include "passes/graph/rule.h"

#define NEAR 1e-6

const char *rule_class_name(enum rule_class c)
{
	switch (c) {
	case RULE_BITS: return "bits";
	case RULE_ROUND: return "round";
	case RULE_REASSOCIATE: return "reassociate";
	case RULE_APPROXIMATE: return "approximate";
	}
	return "";
}

static const char *const call_names[] = {"neg", "not", "inv", "sqrt", "rsqrt", "exp", "log", "abs"};
enum { CALL_NEG, CALL_NOT, CALL_INV, CALL_SQRT, CALL_RSQRT, CALL_EXP, CALL_LOG, CALL_ABS };

int rule_call_find(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(call_names); i++)
		if (strcmp(call_names[i], name) == 0)
			return (int)i;
	return -1;
}

size_t rule_call_names(const char *const **names)
{
	*names = call_names;
	return TFMC_COUNT(call_names);
}

/* Function number `function` of call_names; neg and not are functions, too. */
static double call(int function, double x)
{
	switch (function) {
	case CALL_NEG: return -x;
	case CALL_NOT: return x == 0;
	case CALL_INV: return 1 / x;
	case CALL_SQRT: return sqrt(x);
	case CALL_RSQRT: return 1 / sqrt(x);
	case CALL_EXP: return exp(x);
	case CALL_LOG: return log(x);
	case CALL_ABS: return fabs(x);
	}
	return (double)NAN;
}

static bool dim_value(const struct ir_dim *d, double *out)
{
	int64_t v;
	if (d == NULL || !ir_dim_is_const(d, &v))
		return false;
	*out = (double)v;
	return true;
}

/* False: a variable is unbound, or a dim is not constant. Recursion depth is that of the text, which the parser
 * bounds. */
bool rule_expr_eval(const struct rule_expr *e, const struct rule_match *m, double *out)
{
	double a = 0, b = 0;
	if (e->args[0] != NULL && !rule_expr_eval(e->args[0], m, &a))
		return false;
	if (e->args[1] != NULL && !rule_expr_eval(e->args[1], m, &b))
		return false;
	switch (e->kind) {
	case EXPR_NUMBER: *out = e->number; return true;
	case EXPR_VAR: *out = m->vars[e->index].number; return m->vars[e->index].is_set;
	case EXPR_DIM: return dim_value(m->dims[e->index], out);
	case EXPR_ADD: *out = a + b; return true;
	case EXPR_SUB: *out = a - b; return true;
	case EXPR_MUL: *out = a * b; return true;
	case EXPR_CALL: *out = call(e->index, a); return true;
	}
	return false;
}

static bool near(double a, double b)
{
	return fabs(a - b) <= NEAR * fmax(fabs(a), fabs(b));
}

bool rule_number_fits(double pattern, double value)
{
	bool exact = (double)(float)pattern == pattern;
	return exact ? pattern == value : near(pattern, value);
}

/* A predicate is true; false also if it reads an unbound variable or a dim that is not constant. */
static bool holds(const struct rule_pred *p, const struct rule_match *m)
{
	double a = 0, b = 0;
	if (!rule_expr_eval(p->args[0], m, &a) || (p->args[1] != NULL && !rule_expr_eval(p->args[1], m, &b)))
		return false;
	switch (p->kind) {
	case PRED_EQUAL: return a == b;
	case PRED_NEAR: return near(a, b);
	case PRED_POSITIVE: return a > 0;
	case PRED_NONNEGATIVE: return a >= 0;
	case PRED_NONZERO: return a != 0;
	case PRED_FINITE: return isfinite(a);
	}
	return false;
}

bool rule_preds_hold(const struct rule_match *m, const struct rule_pred **failed)
{
	for (int i = 0; i < m->rule->n_preds; i++) {
		if (holds(&m->rule->preds[i], m))
			continue;
		if (failed != NULL)
			*failed = &m->rule->preds[i];
		return false;
	}
	return true;
}

bool rule_elem_fits(const struct rule_type *t, enum ir_dtype dtype)
{
	enum ir_dtype_class class = ir_dtype_class(dtype);
	switch (t->elem) {
	case ELEM_ANY: return true;
	case ELEM_NUMBER: return class != DTCLASS_BOOL;
	case ELEM_FLOAT: return class == DTCLASS_FLOAT;
	case ELEM_INT: return class == DTCLASS_INT;
	case ELEM_BOOL: return class == DTCLASS_BOOL;
	case ELEM_DTYPE: return dtype == t->dtype;
	}
	return false;
}
