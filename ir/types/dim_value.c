/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known about the value of a dim: constants, intervals, provable
 * order, the value under given symbols; and its canonical text.
 */
#include "ir/types/dim_internal.h"

#include <inttypes.h>

#include "ir/support/checked.h"

/* Maxima that a proof looks into. */
#define MAXIMA_DEPTH 8

struct interval {
	int64_t lo, hi;
};

bool ir_dim_is_const(const struct ir_dim *d, int64_t *out)
{
	if (d->n_terms > 1 || (d->n_terms == 1 && d->terms[0].n_atoms > 0))
		return false;
	if (out != NULL)
		*out = d->n_terms == 0 ? 0 : d->terms[0].coeff;
	return true;
}

bool ir_dim_equals(const struct ir_dim *d, int64_t v)
{
	int64_t c;
	return ir_dim_is_const(d, &c) && c == v;
}

/* ---- intervals ---- */

static int64_t saturating_mul(int64_t a, int64_t b)
{
	int64_t r;
	if (checked_mul_i64(a, b, &r))
		return r;
	return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

/* A bound that has saturated stays there. */
static int64_t saturating_add(int64_t a, int64_t b)
{
	int64_t r;
	if (a == INT64_MIN || a == INT64_MAX)
		return a;
	if (b == INT64_MIN || b == INT64_MAX)
		return b;
	if (checked_add_i64(a, b, &r))
		return r;
	return a < 0 ? INT64_MIN : INT64_MAX;
}

static struct interval interval_mul(struct interval a, struct interval b)
{
	int64_t p[4] = {saturating_mul(a.lo, b.lo), saturating_mul(a.lo, b.hi), saturating_mul(a.hi, b.lo),
	                saturating_mul(a.hi, b.hi)};
	struct interval r = {p[0], p[0]};
	for (int i = 1; i < 4; i++) {
		r.lo = p[i] < r.lo ? p[i] : r.lo;
		r.hi = p[i] > r.hi ? p[i] : r.hi;
	}
	return r;
}

static int64_t bound_div(int64_t a, int64_t by)
{
	if (a == INT64_MIN || a == INT64_MAX)
		return a;
	return a % by < 0 ? a / by - 1 : a / by;
}

static struct interval dim_interval(const struct ir_dims *t, const struct ir_dim *d);

static struct interval atom_interval(const struct ir_dims *t, const struct ir_dim_atom *a)
{
	if (a->sym >= 0)
		return (struct interval){t->syms.items[a->sym].lo, t->syms.items[a->sym].hi};
	struct interval of = dim_interval(t, a->of);
	if (a->other != NULL) {
		struct interval other = dim_interval(t, a->other);
		return (struct interval){of.lo > other.lo ? of.lo : other.lo,
		                         of.hi > other.hi ? of.hi : other.hi};
	}
	return (struct interval){bound_div(of.lo, a->by), bound_div(of.hi, a->by)};
}

static struct interval term_interval(const struct ir_dims *t, int64_t coeff,
                                     const struct ir_dim_atom *const *atoms, size_t n)
{
	struct interval x = {1, 1};
	for (size_t i = 0; i < n; i++)
		x = interval_mul(x, atom_interval(t, atoms[i]));
	return interval_mul(x, (struct interval){coeff, coeff});
}

static struct interval dim_interval(const struct ir_dims *t, const struct ir_dim *d)
{
	struct interval sum = {0, 0};
	for (size_t i = 0; i < d->n_terms; i++) {
		const struct ir_dim_term *term = &d->terms[i];
		struct interval x = term_interval(t, term->coeff, term->atoms, term->n_atoms);
		sum.lo = saturating_add(sum.lo, x.lo);
		sum.hi = saturating_add(sum.hi, x.hi);
	}
	return sum;
}

int64_t ir_dim_lo(const struct ir_dims *t, const struct ir_dim *d)
{
	return dim_interval(t, d).lo;
}

int64_t ir_dim_hi(const struct ir_dims *t, const struct ir_dim *d)
{
	return dim_interval(t, d).hi;
}

/* The least value of x / y when the atoms of y are among those of x and all are at least 0; 0: not known. */
static int64_t least_quotient(const struct ir_dims *t, const struct dim_term *x, const struct dim_term *y)
{
	struct interval q = {1, 1};
	size_t k = 0;
	for (size_t i = 0; i < x->n; i++) {
		struct interval atom = atom_interval(t, x->atoms[i]);
		if (atom.lo < 0)
			return 0;
		if (k < y->n && x->atoms[i] == y->atoms[k])
			k++;
		else
			q = interval_mul(q, atom);
	}
	return k == y->n ? q.lo : 0;
}

/*
 * Terms that are below 0 are taken from terms that are multiples of them: 18*B*T - 6*B is at least 0 where T
 * is at least 1. Gives the least value of what is left.
 */
static int64_t absorb(const struct ir_dims *t, struct dim_poly *p)
{
	int64_t least_sum = 0;
	for (size_t i = 0; i < p->n; i++) {
		struct dim_term *y = &p->terms[i];
		for (size_t k = 0; k < p->n && y->coeff < 0; k++) {
			struct dim_term *x = &p->terms[k];
			int64_t least = x->coeff > 0 ? least_quotient(t, x, y) : 0;
			if (least <= 0)
				continue;
			int64_t need = -y->coeff / least + (-y->coeff % least != 0);
			int64_t taken = need < x->coeff ? need : x->coeff;
			x->coeff -= taken;
			y->coeff = taken == need ? 0 : y->coeff + taken * least;
		}
	}
	for (size_t i = 0; i < p->n; i++) {
		const struct dim_term *x = &p->terms[i];
		least_sum = saturating_add(least_sum, term_interval(t, x->coeff, x->atoms, x->n).lo);
	}
	return least_sum;
}

/* Every atom of every term is at least 0, as symbols are. */
static bool has_no_negative_atom(const struct ir_dims *t, const struct dim_poly *p)
{
	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < p->terms[i].n; k++)
			if (atom_interval(t, p->terms[i].atoms[k]).lo < 0)
				return false;
	return true;
}

static bool is_floor(const struct ir_dim_term *x)
{
	return x->n_atoms == 1 && x->atoms[0]->sym < 0 && x->atoms[0]->other == NULL;
}

/*
 * by * floor(of / by) is of - (by - 1) at least and of at most: 4*S <= 64*((4*S + 63)//64). The difference d is taken
 * without its common factor and so many times that every such term has a multiple of its divisor. It is an integer: where
 * `scale` times it is more than -scale, it is at least 0.
 */
static bool is_positive_by_floors(struct ir_dims *t, const struct ir_dim *d)
{
	int64_t scale = 1, common = 0;
	struct dim_poly p;
	p.n = 0;
	for (size_t i = 0; i < d->n_terms; i++)
		common = gcd_i64(common, d->terms[i].coeff);
	for (size_t i = 0; i < d->n_terms; i++) {
		const struct ir_dim_term *x = &d->terms[i];
		int64_t c;
		if (!is_floor(x) || !checked_mul_i64(x->coeff / common, scale, &c))
			continue;
		if (!checked_mul_i64(scale, x->atoms[0]->by / gcd_i64(c, x->atoms[0]->by), &scale))
			return false;
	}
	for (size_t i = 0; i < d->n_terms; i++) {
		const struct ir_dim_term *x = &d->terms[i];
		int64_t c, below = 0;
		if (!checked_mul_i64(x->coeff / common, scale, &c))
			return false;
		if (!is_floor(x)) {
			if (!dim_poly_add(&p, c, x->atoms, x->n_atoms))
				return false;
			continue;
		}
		int64_t by = x->atoms[0]->by, times = c / by;
		if ((times > 0 && !checked_mul_i64(-times, by - 1, &below)) ||
		    !dim_poly_add_dim(&p, x->atoms[0]->of, times) || !dim_poly_add(&p, below, NULL, 0))
			return false;
	}
	return ir_dim_lo(t, dims_intern(t, &p)) > -scale ||
	       (has_no_negative_atom(t, &p) && absorb(t, &p) > -scale);
}

static bool has_floor(const struct ir_dim *d)
{
	for (size_t i = 0; i < d->n_terms; i++)
		if (is_floor(&d->terms[i]))
			return true;
	return false;
}

/* a <= b without a look into maxima. */
static bool le_plain(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	struct dim_poly p;
	p.n = 0;
	if (!dim_poly_add_dim(&p, b, 1) || !dim_poly_add_dim(&p, a, -1))
		return false;
	const struct ir_dim *d = dims_intern(t, &p);
	return ir_dim_lo(t, d) >= 0 || (has_no_negative_atom(t, &p) && absorb(t, &p) >= 0) ||
	       (has_floor(d) && is_positive_by_floors(t, d));
}

/* The term of d that is a positive multiple of a maximum; n_terms: none. */
static size_t find_max(const struct ir_dim *d)
{
	size_t i = 0;
	while (i < d->n_terms &&
	       !(d->terms[i].n_atoms == 1 && d->terms[i].coeff > 0 && d->terms[i].atoms[0]->other != NULL))
		i++;
	return i;
}

/* d with one side of the maximum in term i. */
static const struct ir_dim *choose(struct ir_dims *t, const struct ir_dim *d, size_t i, bool other)
{
	const struct ir_dim_atom *atom = d->terms[i].atoms[0];
	struct dim_poly p;
	p.n = 0;
	for (size_t k = 0; k < d->n_terms; k++)
		if (k != i && !dim_poly_add(&p, d->terms[k].coeff, d->terms[k].atoms, d->terms[k].n_atoms))
			return dims_fail(t);
	if (!dim_poly_add_dim(&p, other ? atom->other : atom->of, d->terms[i].coeff))
		return dims_fail(t);
	return dims_intern(t, &p);
}

static bool le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b, int depth)
{
	size_t i = find_max(b);
	if (le_plain(t, a, b))
		return true;
	if (depth == 0)
		return false;
	if (i < b->n_terms)
		return le(t, a, choose(t, b, i, false), depth - 1) ||
		       le(t, a, choose(t, b, i, true), depth - 1);
	i = find_max(a);
	return i < a->n_terms && le(t, choose(t, a, i, false), b, depth - 1) &&
	       le(t, choose(t, a, i, true), b, depth - 1);
}

bool ir_dim_le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return le(t, a, b, MAXIMA_DEPTH);
}

/* ---- values ---- */

static bool atom_eval(const struct ir_dim_atom *a, const int64_t *values, int64_t *out)
{
	if (a->sym >= 0) {
		*out = values[a->sym];
		return true;
	}
	int64_t of;
	if (!ir_dim_eval(a->of, values, &of))
		return false;
	if (a->other != NULL) {
		if (!ir_dim_eval(a->other, values, out))
			return false;
		*out = of > *out ? of : *out;
		return true;
	}
	*out = of % a->by < 0 ? of / a->by - 1 : of / a->by;
	return true;
}

static bool term_eval(const struct ir_dim_term *x, const int64_t *values, int64_t *out)
{
	int64_t product = x->coeff;
	for (size_t k = 0; k < x->n_atoms; k++) {
		int64_t factor;
		if (!atom_eval(x->atoms[k], values, &factor) || !checked_mul_i64(product, factor, &product))
			return false;
	}
	*out = product;
	return true;
}

bool ir_dim_eval(const struct ir_dim *d, const int64_t *values, int64_t *out)
{
	int64_t total = 0;
	for (size_t i = 0; i < d->n_terms; i++) {
		int64_t x;
		if (!term_eval(&d->terms[i], values, &x) || !checked_add_i64(total, x, &total))
			return false;
	}
	*out = total;
	return true;
}

/* ---- text ---- */

/* A quotient, in parentheses where it is inside a product. */
static void print_atom(struct buf *out, const struct ir_dims *t, const struct ir_dim_atom *a, bool tight,
                       bool inside)
{
	if (a->sym >= 0) {
		buf_str(out, t->syms.items[a->sym].name);
		return;
	}
	if (a->other != NULL) {
		buf_str(out, "max(");
		ir_dim_print(out, t, a->of, tight);
		buf_str(out, tight ? "," : ", ");
		ir_dim_print(out, t, a->other, tight);
		buf_char(out, ')');
		return;
	}
	bool bare = a->of->n_terms == 1 && a->of->terms[0].n_atoms == 1 && a->of->terms[0].coeff == 1 &&
	            a->of->terms[0].atoms[0]->sym >= 0;
	buf_str(out, inside ? "(" : "");
	buf_str(out, bare ? "" : "(");
	ir_dim_print(out, t, a->of, tight);
	buf_str(out, bare ? "" : ")");
	buf_printf(out, "//%" PRId64 "%s", a->by, inside ? ")" : "");
}

static void print_term(struct buf *out, const struct ir_dims *t, const struct ir_dim_term *x, bool tight)
{
	uint64_t size = x->coeff < 0 ? 0 - (uint64_t)x->coeff : (uint64_t)x->coeff;
	bool number = size != 1 || x->n_atoms == 0;
	if (number)
		buf_printf(out, "%" PRIu64, size);
	for (size_t k = 0; k < x->n_atoms; k++) {
		buf_str(out, number || k > 0 ? "*" : "");
		print_atom(out, t, x->atoms[k], tight, number || x->n_atoms > 1 || x->coeff < 0);
	}
}

void ir_dim_print(struct buf *out, const struct ir_dims *t, const struct ir_dim *d, bool tight)
{
	if (d->n_terms == 0)
		buf_char(out, '0');
	for (size_t i = 0; i < d->n_terms; i++) {
		bool minus = d->terms[i].coeff < 0;
		if (i == 0)
			buf_str(out, minus ? "-" : "");
		else if (tight)
			buf_char(out, minus ? '-' : '+');
		else
			buf_str(out, minus ? " - " : " + ");
		print_term(out, t, &d->terms[i], tight);
	}
}

const char *ir_dim_to_string(struct arena *a, const struct ir_dims *t, const struct ir_dim *d, bool tight)
{
	struct buf text;
	buf_init(&text);
	ir_dim_print(&text, t, d, tight);
	const char *copy = arena_strdup(a, text.data);
	buf_destroy(&text);
	return copy;
}
