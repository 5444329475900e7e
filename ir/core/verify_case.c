/* SPDX-License-Identifier: Apache-2.0 */
/* Verification of cases: the base, the conditions, and the signature, which is the base's with bound symbols
 * replaced. */
#include <string.h>

#include "ir/core/case.h"
#include "ir/core/verify_internal.h"

static const char *dim_string(struct verifier *v, const struct ir_dim *d)
{
	return ir_dim_to_string(&v->arena, v->m->dims, d, true);
}

static const char *sym_name(const struct verifier *v, int sym)
{
	return ir_dims_sym(v->m->dims, (size_t)sym)->name;
}

/* ---- conditions ---- */

static bool params_have(const struct ir_func *f, int sym)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (ir_type_has_symbol(ir_type_of(f, f->params[i].value), sym))
			return true;
	return false;
}

/* All symbols of d occur in the parameters of the base. */
static bool is_over_base(struct verifier *v, const struct ir_func *base, const struct ir_dim *d)
{
	for (size_t i = 0; i < ir_dims_count(v->m->dims); i++) {
		if (!ir_dim_has_symbol(d, (int)i) || params_have(base, (int)i))
			continue;
		verify_fail(v, v->f->loc, "the condition on %s: @%s has no dim %s", dim_string(v, d),
		            base->name, sym_name(v, (int)i));
		return false;
	}
	return true;
}

static bool binds(const struct ir_condition *x)
{
	return x->relation == IR_EQUAL && ir_dim_as_symbol(x->dim) >= 0;
}

/* Condition n does not contain a symbol that another condition binds. */
static void check_not_bound(struct verifier *v, size_t n)
{
	const struct ir_case *c = v->f->when;
	for (size_t i = 0; i < c->n; i++) {
		int sym = ir_dim_as_symbol(c->conditions[i].dim);
		if (i != n && binds(&c->conditions[i]) && ir_dim_has_symbol(c->conditions[n].dim, sym))
			verify_fail(v, v->f->loc, "the condition on %s: %s is bound by another one",
			            dim_string(v, c->conditions[n].dim), sym_name(v, sym));
	}
}

static void check_condition(struct verifier *v, const struct ir_func *base, size_t n)
{
	const struct ir_condition *x = &v->f->when->conditions[n];
	int64_t lo = ir_dim_lo(v->m->dims, x->dim), hi = ir_dim_hi(v->m->dims, x->dim);
	bool equal = x->relation == IR_EQUAL;
	if (!is_over_base(v, base, x->dim))
		return;
	check_not_bound(v, n);
	if (equal && !binds(x))
		verify_fail(v, v->f->loc, "the condition %s = %lld: only a symbol can be bound",
		            dim_string(v, x->dim), (long long)x->value);
	else if (x->value < lo || (equal && x->value > hi))
		verify_fail(v, v->f->loc, "the condition %s %s %lld never holds: it is in [%lld,%lld]",
		            dim_string(v, x->dim), equal ? "=" : "<=", (long long)x->value, (long long)lo,
		            (long long)hi);
}

/* ---- the function ---- */

/* The bound symbol does not occur in the case. */
static void check_is_replaced(struct verifier *v, int sym)
{
	if (ir_func_has_symbol(v->f, sym))
		verify_fail(v, v->f->loc, "%s is bound by this case, but occurs in it", sym_name(v, sym));
}

static bool same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_dim(struct verifier *v, const struct ir_dim *mine, const struct ir_dim *theirs)
{
	if (mine == NULL || theirs == NULL)
		return mine == theirs;
	return mine == ir_case_bind_dim(v->m, v->f->when, theirs);
}

static bool same_type(struct verifier *v, struct ir_value mine, const struct ir_func *base,
                      struct ir_value theirs)
{
	return ir_type_of(v->f, mine) == ir_case_bind_type(v->m, v->f->when, ir_type_of(base, theirs));
}

static void check_params(struct verifier *v, const struct ir_func *base)
{
	const struct ir_func *f = v->f;
	if (f->n_params != base->n_params) {
		verify_fail(v, f->loc, "%zu parameters, its base @%s has %zu", f->n_params, base->name,
		            base->n_params);
		return;
	}
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *a = &f->params[i], *b = &base->params[i];
		bool same = same_text(a->name, b->name) && same_type(v, a->value, base, b->value) &&
		            a->role == b->role && a->below == b->below && a->lengths == b->lengths &&
		            a->has_default == b->has_default && a->fill == b->fill &&
		            same_dim(v, a->max, b->max) && same_dim(v, a->default_value, b->default_value);
		if (!same)
			verify_fail(v, a->loc, "the parameter '%s' is not that of its base @%s",
			            a->name != NULL ? a->name : "", base->name);
	}
}

static void check_results(struct verifier *v, const struct ir_func *base)
{
	const struct ir_func *f = v->f;
	const struct ir_op *mine = f->body->ops[f->body->n_ops - 1];
	if (base->body == NULL || base->body->n_ops == 0)
		return;
	const struct ir_op *theirs = base->body->ops[base->body->n_ops - 1];
	bool same = f->n_results == base->n_results && mine->n_operands == f->n_results &&
	            theirs->n_operands == f->n_results;
	for (size_t i = 0; same && i < f->n_results; i++) {
		const struct ir_result *a = &f->results[i], *b = &base->results[i];
		same = same_text(a->name, b->name) && a->role == b->role && a->lengths == b->lengths &&
		       same_type(v, mine->operands[i], base, theirs->operands[i]);
	}
	if (!same)
		verify_fail(v, f->loc, "the results are not those of its base @%s", base->name);
}

/* ---- the case ---- */

static bool same_conditions(const struct ir_case *a, const struct ir_case *b)
{
	bool same = strcmp(a->of, b->of) == 0 && a->n == b->n;
	for (size_t i = 0; same && i < a->n; i++)
		same = a->conditions[i].dim == b->conditions[i].dim &&
		       a->conditions[i].relation == b->conditions[i].relation &&
		       a->conditions[i].value == b->conditions[i].value;
	return same;
}

/* No earlier case has the same conditions. */
static void check_reachable(struct verifier *v)
{
	for (size_t i = 0; i < v->m->funcs.n && v->m->funcs.items[i] != v->f; i++) {
		const struct ir_func *f = v->m->funcs.items[i];
		if (f->when != NULL && same_conditions(f->when, v->f->when))
			verify_fail(v, v->f->loc, "this case is never taken: @%s has the same conditions",
			            f->name);
	}
}

void verify_case(struct verifier *v)
{
	const struct ir_case *c = v->f->when;
	if (c == NULL)
		return;
	const struct ir_func *base = ir_find_func(v->m, c->of);
	if (base == NULL || base == v->f || base->when != NULL) {
		verify_fail(v, v->f->loc,
		            base == NULL ? "a case of @%s, which does not exist"
		                         : "a case of @%s, which is a case itself",
		            c->of);
		return;
	}
	if (c->n == 0)
		verify_fail(v, v->f->loc, "a case of @%s without conditions", c->of);
	for (size_t i = 0; i < c->n; i++) {
		check_condition(v, base, i);
		if (binds(&c->conditions[i]))
			check_is_replaced(v, ir_dim_as_symbol(c->conditions[i].dim));
	}
	check_params(v, base);
	check_results(v, base);
	check_reachable(v);
}
