/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divisions of dims and substitution of symbols. Floor division is brought to
 * a normal form: multiples of the divisor leave the quotient, common factors
 * cancel, and a quotient of a quotient is one quotient.
 */
#include "ir/types/dim_internal.h"

#include "ir/support/checked.h"

static int64_t floor_div(int64_t a, int64_t by)
{
	int64_t q = a / by;
	return a % by < 0 ? q - 1 : q;
}

/* a = by * whole + rest with the coefficients of rest in [0, by). False on failure. */
static bool split(const struct ir_dim *a, int64_t by, struct dim_poly *whole, struct dim_poly *rest)
{
	whole->n = rest->n = 0;
	for (size_t i = 0; i < a->n_terms; i++) {
		const struct ir_dim_term *x = &a->terms[i];
		int64_t q = floor_div(x->coeff, by);
		if (!dim_poly_add(whole, q, x->atoms, x->n_atoms) ||
		    !dim_poly_add(rest, x->coeff - q * by, x->atoms, x->n_atoms))
			return false;
	}
	return true;
}

/* Cancels the common factor of rest and by; returns the divisor that remains. */
static int64_t cancel(struct dim_poly *rest, int64_t by)
{
	int64_t g = by;
	for (size_t i = 0; i < rest->n; i++)
		g = gcd_i64(rest->terms[i].coeff, g);
	for (size_t i = 0; i < rest->n; i++)
		rest->terms[i].coeff /= g;
	return by / g;
}

/* floor of (rest / by), nothing left to take out. */
static const struct ir_dim *quotient(struct ir_dims *t, const struct dim_poly *rest, int64_t by)
{
	const struct ir_dim *of = dims_intern(t, rest);
	if (of->n_terms == 0)
		return of;
	if (of->n_terms == 1 && of->terms[0].n_atoms == 0)
		return ir_dim_const(t, floor_div(of->terms[0].coeff, by));
	const struct ir_dim_term *x = &of->terms[0];
	if (of->n_terms == 1 && x->coeff == 1 && x->n_atoms == 1 && x->atoms[0]->by > 0) {
		int64_t product;
		if (!checked_mul_i64(by, x->atoms[0]->by, &product))
			return dims_fail(t);
		return ir_dim_floordiv(t, x->atoms[0]->of, product);
	}
	return dims_atom_dim(t, dims_quotient_atom(t, of, by));
}

const struct ir_dim *ir_dim_floordiv(struct ir_dims *t, const struct ir_dim *a, int64_t by)
{
	struct dim_poly whole, rest;
	if (by < 1 || !split(a, by, &whole, &rest))
		return dims_fail(t);
	const struct ir_dim *q = dims_intern(t, &whole);
	if (rest.n == 0)
		return q;
	int64_t divisor = cancel(&rest, by);
	return ir_dim_add(t, q, quotient(t, &rest, divisor));
}

const struct ir_dim *ir_dim_max(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	if (ir_dim_le(t, a, b))
		return b;
	if (ir_dim_le(t, b, a))
		return a;
	bool in_order = dim_compare(a, b) < 0;
	return dims_atom_dim(t, dims_max_atom(t, in_order ? a : b, in_order ? b : a));
}

/* Removes the atoms of y from those of x; false when one is missing. */
static bool divide_atoms(const struct ir_dim_term *x, const struct ir_dim_term *y,
                         const struct ir_dim_atom **out, size_t *n)
{
	size_t k = 0;
	*n = 0;
	for (size_t i = 0; i < x->n_atoms; i++) {
		if (k < y->n_atoms && x->atoms[i] == y->atoms[k])
			k++;
		else
			out[(*n)++] = x->atoms[i];
	}
	return k == y->n_atoms;
}

const struct ir_dim *ir_dim_divide(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	const struct ir_dim *rest = a;
	struct dim_poly q;
	q.n = 0;
	if (b->n_terms == 0)
		return NULL;
	const struct ir_dim_term *lead = &b->terms[0];
	while (rest->n_terms > 0) {
		const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
		const struct ir_dim_term *x = &rest->terms[0];
		size_t n;
		if (x->coeff % lead->coeff != 0 || !divide_atoms(x, lead, atoms, &n))
			return NULL;
		struct ir_dim_term step = {x->coeff / lead->coeff, n, atoms};
		struct dim_poly p;
		p.n = 0;
		bool ok = dim_poly_add(&q, step.coeff, atoms, n) && dim_poly_add_dim(&p, rest, 1);
		struct ir_dim_term minus = {-step.coeff, n, atoms};
		for (size_t i = 0; ok && i < b->n_terms; i++)
			ok = dim_poly_add_product(&p, &b->terms[i], &minus);
		if (!ok)
			return NULL;
		rest = dims_intern(t, &p);
	}
	return dims_intern(t, &q);
}

static const struct ir_dim *bind_atom(struct ir_dims *t, const struct ir_dim_atom *a, int sym,
                                      const struct ir_dim *with)
{
	if (a->sym == sym)
		return with;
	if (a->sym >= 0)
		return dims_atom_dim(t, a);
	if (a->other != NULL)
		return ir_dim_max(t, ir_dim_substitute(t, a->of, sym, with),
		                  ir_dim_substitute(t, a->other, sym, with));
	return ir_dim_floordiv(t, ir_dim_substitute(t, a->of, sym, with), a->by);
}

const struct ir_dim *ir_dim_substitute(struct ir_dims *t, const struct ir_dim *a, int sym,
                                       const struct ir_dim *with)
{
	const struct ir_dim *r = ir_dim_const(t, 0);
	for (size_t i = 0; i < a->n_terms; i++) {
		const struct ir_dim *x = ir_dim_const(t, a->terms[i].coeff);
		for (size_t k = 0; k < a->terms[i].n_atoms; k++)
			x = ir_dim_mul(t, x, bind_atom(t, a->terms[i].atoms[k], sym, with));
		r = ir_dim_add(t, r, x);
	}
	return r;
}
