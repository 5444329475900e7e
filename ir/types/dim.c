/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbolic dims as interned polynomials (hash-consing): the table, arithmetic, floor division, substitution, bounds
 * by interval arithmetic, provable order, evaluation and text. A dim is a sum of terms, a term a coefficient times
 * atoms (a monomial), an atom a symbol, a floor of a division, or a maximum. Invariant: the terms of a dim are in
 * canonical order without zero coefficients, so that equal polynomials are one object and are compared by pointer.
 * Constants have one term without atoms, 0 has no term. A failed table (overflow, too many terms) returns 0.
 */
#include "ir/types/dim.h"

#include <inttypes.h>
#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/strmap.h"
#include "ir/types/intern.h"

/* Limits for hostile input. */
#define DIM_TERMS_MAX   64
#define DIM_FACTORS_MAX 16
#define DIM_SYMBOLS_MAX 256

struct ir_dims {
	struct arena *arena;
	struct {
		struct ir_dim_sym *items;
		size_t n, cap;
	} syms;
	struct intern atoms, dims;
	uint32_t n_atoms, n_dims;
	bool failed;
};

/* An interned atom. The serial number (order of creation) is hashed in place of the address. */
struct dim_atom {
	struct ir_dim_atom pub;
	uint32_t serial;
};

struct dim_term {
	int64_t coeff;
	size_t n;
	const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
};

/* A polynomial under construction, in canonical order; dims_intern returns the dim equal to it. */
struct dim_poly {
	size_t n;
	struct dim_term terms[DIM_TERMS_MAX];
};

struct ir_dims *ir_dims_create(struct arena *arena)
{
	struct ir_dims *t = ARENA_NEW(arena, struct ir_dims);
	if (t == NULL)
		return NULL;
	t->arena = arena;
	intern_init(&t->atoms, arena);
	intern_init(&t->dims, arena);
	return t;
}

/* Bounds are below 2^31, so that sizes fit into i32 tensors and products of two of them into int64. */
bool ir_dims_declare(struct ir_dims *t, const char *name, int64_t lo, int64_t hi)
{
	if (lo < 0 || hi < lo || hi > INT32_MAX || ir_dims_find(t, name) >= 0 || t->syms.n >= DIM_SYMBOLS_MAX)
		return false;
	return ARENA_ADDED(t->arena, &t->syms, (struct ir_dim_sym){arena_strdup(t->arena, name), lo, hi});
}

size_t ir_dims_count(const struct ir_dims *t)
{
	return t->syms.n;
}

const struct ir_dim_sym *ir_dims_sym(const struct ir_dims *t, size_t index)
{
	return &t->syms.items[index];
}

bool ir_dims_set_hi(struct ir_dims *t, size_t index, int64_t hi)
{
	struct ir_dim_sym *s = &t->syms.items[index];
	if (hi < s->lo || hi > s->hi)
		return false;
	s->hi = hi;
	return true;
}

int ir_dims_find(const struct ir_dims *t, const char *name)
{
	for (size_t i = 0; i < t->syms.n; i++)
		if (strcmp(t->syms.items[i].name, name) == 0)
			return (int)i;
	return -1;
}

bool ir_dims_failed(const struct ir_dims *t)
{
	return t->failed;
}

/* ---- canonical order ---- */

static int dim_compare_monomials(const struct ir_dim_atom *const *a, size_t n_a,
                                 const struct ir_dim_atom *const *b, size_t n_b);

/* Canonical order of polynomials, negative: a before b. Terms are compared in pairs, first their monomials, then
 * their coefficients; of two that agree so far the one with fewer terms is first. */
static int dim_compare(const struct ir_dim *a, const struct ir_dim *b)
{
	if (a == b)
		return 0;
	for (size_t i = 0; i < a->n_terms && i < b->n_terms; i++) {
		const struct ir_dim_term *x = &a->terms[i], *y = &b->terms[i];
		int c = dim_compare_monomials(x->atoms, x->n_atoms, y->atoms, y->n_atoms);
		if (c != 0)
			return c;
		if (x->coeff != y->coeff)
			return x->coeff < y->coeff ? -1 : 1;
	}
	return a->n_terms < b->n_terms ? -1 : 1;
}

/* Symbols in order of declaration, then floors and maxima by structure; never by address or serial number, so that the
 * order of terms does not depend on what was built before. */
static int dim_compare_atoms(const struct ir_dim_atom *a, const struct ir_dim_atom *b)
{
	if (a == b)
		return 0;
	if (a->sym >= 0 || b->sym >= 0) {
		if (a->sym < 0)
			return 1;
		if (b->sym < 0)
			return -1;
		return a->sym < b->sym ? -1 : 1;
	}
	int c = dim_compare(a->of, b->of);
	if (c != 0)
		return c;
	if (a->by != b->by)
		return a->by < b->by ? -1 : 1;
	return dim_compare(a->other, b->other);
}

/* Higher degree first, then by atoms (graded order). Negative: a before b. */
static int dim_compare_monomials(const struct ir_dim_atom *const *a, size_t n_a,
                                 const struct ir_dim_atom *const *b, size_t n_b)
{
	if (n_a != n_b)
		return n_a > n_b ? -1 : 1;
	for (size_t i = 0; i < n_a; i++) {
		int c = dim_compare_atoms(a[i], b[i]);
		if (c != 0)
			return c;
	}
	return 0;
}

/* ---- interning ---- */

static bool atom_equal(const void *item, const void *key)
{
	const struct ir_dim_atom *a = item, *b = key;
	return a->sym == b->sym && a->of == b->of && a->by == b->by && a->other == b->other;
}

/* The interned atom equal to `key`; NULL without memory. */
static const struct ir_dim_atom *intern_atom(struct ir_dims *t, const struct ir_dim_atom *key)
{
	int64_t parts[4] = {key->sym, key->of != NULL ? (int64_t)key->of->serial : -1, key->by,
	                    key->other != NULL ? (int64_t)key->other->serial : -1};
	uint64_t hash = hash_bytes64(HASH64_SEED, parts, sizeof(parts));
	struct dim_atom *a = intern_find(&t->atoms, hash, atom_equal, key);
	if (a != NULL)
		return &a->pub;
	a = ARENA_NEW(t->arena, struct dim_atom);
	if (a == NULL)
		return NULL;
	*a = (struct dim_atom){*key, t->n_atoms++};
	return intern_add(&t->atoms, hash, a) ? &a->pub : NULL;
}

/* Hashes coefficients and the serial numbers of atoms, not their addresses, which differ from run to run. */
static uint64_t poly_hash(const struct dim_poly *p)
{
	uint64_t h = HASH64_SEED;
	for (size_t i = 0; i < p->n; i++) {
		h = hash_bytes64(h, &p->terms[i].coeff, sizeof(int64_t));
		for (size_t k = 0; k < p->terms[i].n; k++) {
			/* struct dim_atom begins with the public atom */
			const struct dim_atom *a =
			        (const struct dim_atom *)(const void *)p->terms[i].atoms[k];
			h = hash_bytes64(h, &a->serial, sizeof(a->serial));
		}
	}
	return h;
}

/* intern_equal of dims: `item` is a struct ir_dim, `key` a struct dim_poly. Atoms are interned, so their
 * pointers are compared. */
static bool dim_is_poly(const void *item, const void *key)
{
	const struct ir_dim *d = item;
	const struct dim_poly *p = key;
	if (d->n_terms != p->n)
		return false;
	for (size_t i = 0; i < p->n; i++) {
		const struct ir_dim_term *x = &d->terms[i];
		const struct dim_term *y = &p->terms[i];
		if (x->coeff != y->coeff || x->n_atoms != y->n)
			return false;
		for (size_t k = 0; k < y->n; k++)
			if (x->atoms[k] != y->atoms[k])
				return false;
	}
	return true;
}

/* Copies the terms of p into to[p->n], their atoms into the arena. False without memory. */
static bool copy_terms(struct arena *arena, struct ir_dim_term *to, const struct dim_poly *p)
{
	for (size_t i = 0; i < p->n; i++) {
		const struct dim_term *from = &p->terms[i];
		const struct ir_dim_atom **atoms = NULL;
		if (from->n > 0) {
			atoms = ARENA_ARRAY(arena, const struct ir_dim_atom *, from->n);
			if (atoms == NULL)
				return false;
			memcpy(atoms, from->atoms, from->n * sizeof(*atoms));
		}
		to[i] = (struct ir_dim_term){from->coeff, from->n, atoms};
	}
	return true;
}

/* The dim equal to `p`, whose terms are in canonical order. Without memory the table fails, and the result is the
 * zeroed scratch area of the arena, the constant 0. */
static const struct ir_dim *dims_intern(struct ir_dims *t, const struct dim_poly *p)
{
	uint64_t hash = poly_hash(p);
	struct ir_dim *d = intern_find(&t->dims, hash, dim_is_poly, p);
	if (d != NULL)
		return d;
	d = ARENA_NEW(t->arena, struct ir_dim);
	struct ir_dim_term *terms = p->n == 0 ? NULL : ARENA_ARRAY(t->arena, struct ir_dim_term, p->n);
	if (d == NULL || (p->n > 0 && (terms == NULL || !copy_terms(t->arena, terms, p)))) {
		t->failed = true;
		return d;
	}
	*d = (struct ir_dim){p->n, terms, t->n_dims++};
	if (!intern_add(&t->dims, hash, d))
		t->failed = true;
	return d;
}

/* Marks the table as failed and returns the constant 0. */
static const struct ir_dim *dims_fail(struct ir_dims *t)
{
	t->failed = true;
	return dims_intern(t, &(struct dim_poly){.n = 0});
}

/* ---- polynomials under construction ---- */

/* p += coeff * monomial, keeping canonical order: adds to the term with that monomial (a sum of 0 removes it), or
 * inserts one before the first that is greater. False on overflow or too many terms. */
static bool dim_poly_add(struct dim_poly *p, int64_t coeff, const struct ir_dim_atom *const *atoms, size_t n)
{
	if (coeff == 0)
		return true;
	if (coeff == INT64_MIN) /* callers negate coefficients */
		return false;
	size_t at = 0;
	int order = 1;
	for (; at < p->n; at++) {
		order = dim_compare_monomials(atoms, n, p->terms[at].atoms, p->terms[at].n);
		if (order <= 0)
			break;
	}
	if (at < p->n && order == 0) {
		if (!checked_add_i64(p->terms[at].coeff, coeff, &p->terms[at].coeff) ||
		    p->terms[at].coeff == INT64_MIN)
			return false;
		if (p->terms[at].coeff == 0) {
			p->n--;
			memmove(&p->terms[at], &p->terms[at + 1], (p->n - at) * sizeof(p->terms[0]));
		}
		return true;
	}
	if (p->n == DIM_TERMS_MAX || n > DIM_FACTORS_MAX)
		return false;
	memmove(&p->terms[at + 1], &p->terms[at], (p->n - at) * sizeof(p->terms[0]));
	p->terms[at].coeff = coeff;
	p->terms[at].n = n;
	if (n > 0)
		memcpy(p->terms[at].atoms, atoms, n * sizeof(*atoms));
	p->n++;
	return true;
}

/* p += k * d. */
static bool dim_poly_add_dim(struct dim_poly *p, const struct ir_dim *d, int64_t k)
{
	for (size_t i = 0; i < d->n_terms; i++) {
		int64_t c;
		if (!checked_mul_i64(d->terms[i].coeff, k, &c) ||
		    !dim_poly_add(p, c, d->terms[i].atoms, d->terms[i].n_atoms))
			return false;
	}
	return true;
}

/* p += x * y of two terms, merging their sorted atoms. */
static bool dim_poly_add_product(struct dim_poly *p, const struct ir_dim_term *x, const struct ir_dim_term *y)
{
	const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
	int64_t c;
	if (x->n_atoms + y->n_atoms > DIM_FACTORS_MAX || !checked_mul_i64(x->coeff, y->coeff, &c))
		return false;
	size_t n = 0, i = 0, k = 0;
	while (i < x->n_atoms || k < y->n_atoms) {
		bool from_x = k == y->n_atoms ||
		              (i < x->n_atoms && dim_compare_atoms(x->atoms[i], y->atoms[k]) <= 0);
		atoms[n++] = from_x ? x->atoms[i++] : y->atoms[k++];
	}
	return dim_poly_add(p, c, atoms, n);
}

/* ---- arithmetic ---- */

const struct ir_dim *ir_dim_const(struct ir_dims *t, int64_t v)
{
	struct dim_poly p;
	p.n = v == 0 ? 0 : 1;
	p.terms[0].coeff = v;
	p.terms[0].n = 0;
	return dims_intern(t, &p);
}

/* The dim of one atom; fails if it is NULL. */
static const struct ir_dim *atom_to_dim(struct ir_dims *t, const struct ir_dim_atom *atom)
{
	struct dim_poly p;
	if (atom == NULL)
		return dims_fail(t);
	p.n = 1;
	p.terms[0].coeff = 1;
	p.terms[0].n = 1;
	p.terms[0].atoms[0] = atom;
	return dims_intern(t, &p);
}

const struct ir_dim *ir_dim_sym(struct ir_dims *t, const char *name)
{
	int sym = ir_dims_find(t, name);
	if (sym < 0)
		return NULL;
	return atom_to_dim(t, intern_atom(t, &(struct ir_dim_atom){.sym = sym}));
}

/* a + k b */
static const struct ir_dim *add_multiple(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b,
                                         int64_t k)
{
	struct dim_poly p;
	p.n = 0;
	if (!dim_poly_add_dim(&p, a, 1) || !dim_poly_add_dim(&p, b, k))
		return dims_fail(t);
	return dims_intern(t, &p);
}

const struct ir_dim *ir_dim_add(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return add_multiple(t, a, b, 1);
}

const struct ir_dim *ir_dim_sub(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return add_multiple(t, a, b, -1);
}

/* Each term of a with each of b; equal monomials are added up by dim_poly_add. */
const struct ir_dim *ir_dim_mul(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	struct dim_poly p;
	p.n = 0;
	for (size_t i = 0; i < a->n_terms; i++)
		for (size_t k = 0; k < b->n_terms; k++)
			if (!dim_poly_add_product(&p, &a->terms[i], &b->terms[k]))
				return dims_fail(t);
	return dims_intern(t, &p);
}

/* ---- floor division, maxima, exact division, substitution ---- */

static int64_t floor_div(int64_t a, int64_t by)
{
	int64_t q = a / by;
	return a % by < 0 ? q - 1 : q;
}

/* floor(remainder / by), where no coefficient of the remainder is a multiple of `by` and no factor is common. The
 * quotient of a quotient is one with the product of the divisors, so that floors of floors are in normal form. */
static const struct ir_dim *floor_of_remainder(struct ir_dims *t, const struct dim_poly *remainder,
                                               int64_t by)
{
	const struct ir_dim *of = dims_intern(t, remainder);
	if (of->n_terms == 0)
		return of;
	if (of->n_terms == 1 && of->terms[0].n_atoms == 0)
		return ir_dim_const(t, floor_div(of->terms[0].coeff, by));
	const struct ir_dim_term *x = &of->terms[0];
	if (of->n_terms == 1 && x->coeff == 1 && x->n_atoms == 1 && x->atoms[0]->by > 0) {
		/* floor(floor(y / a) / by) = floor(y / (a by)) */
		int64_t product;
		if (!checked_mul_i64(by, x->atoms[0]->by, &product))
			return dims_fail(t);
		return ir_dim_floordiv(t, x->atoms[0]->of, product);
	}
	return atom_to_dim(t, intern_atom(t, &(struct ir_dim_atom){.sym = -1, .of = of, .by = by}));
}

const struct ir_dim *ir_dim_floordiv(struct ir_dims *t, const struct ir_dim *a, int64_t by)
{
	/* a = by * quotient + remainder, the coefficients of the remainder in [0, by) */
	struct dim_poly quotient, remainder;
	if (by < 1)
		return dims_fail(t);
	quotient.n = remainder.n = 0;
	for (size_t i = 0; i < a->n_terms; i++) {
		const struct ir_dim_term *x = &a->terms[i];
		int64_t q = floor_div(x->coeff, by);
		if (!dim_poly_add(&quotient, q, x->atoms, x->n_atoms) ||
		    !dim_poly_add(&remainder, x->coeff - q * by, x->atoms, x->n_atoms))
			return dims_fail(t);
	}
	const struct ir_dim *whole = dims_intern(t, &quotient);
	if (remainder.n == 0)
		return whole;
	int64_t common = by; /* floor(c x / (c by)) is floor(x / by) */
	for (size_t i = 0; i < remainder.n; i++)
		common = gcd_i64(remainder.terms[i].coeff, common);
	for (size_t i = 0; i < remainder.n; i++)
		remainder.terms[i].coeff /= common;
	return ir_dim_add(t, whole, floor_of_remainder(t, &remainder, by / common));
}

/* Operands of an atom are in canonical order, so that max(a, b) and max(b, a) are one object. */
const struct ir_dim *ir_dim_max(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	if (ir_dim_le(t, a, b))
		return b;
	if (ir_dim_le(t, b, a))
		return a;
	bool in_order = dim_compare(a, b) < 0;
	const struct ir_dim_atom key = {.sym = -1, .of = in_order ? a : b, .other = in_order ? b : a};
	return atom_to_dim(t, intern_atom(t, &key));
}

/* Writes the atoms of x that are not in y to `out`; false if x lacks an atom of y. */
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

/* Long division by leading terms, which the graded order makes well defined for several symbols. An overflow is no
 * failure of the table: no quotient is found. */
const struct ir_dim *ir_dim_divide(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	const struct ir_dim *remainder = a;
	struct dim_poly quotient;
	quotient.n = 0;
	if (b->n_terms == 0)
		return NULL;
	const struct ir_dim_term *lead = &b->terms[0];
	while (remainder->n_terms > 0) {
		/* the quotient of the leading terms, then the remainder less that times b */
		const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
		const struct ir_dim_term *x = &remainder->terms[0];
		size_t n;
		if (x->coeff % lead->coeff != 0 || !divide_atoms(x, lead, atoms, &n))
			return NULL;
		struct ir_dim_term q = {x->coeff / lead->coeff, n, atoms}, minus_q = {-q.coeff, n, atoms};
		struct dim_poly p;
		p.n = 0;
		bool ok = dim_poly_add(&quotient, q.coeff, atoms, n) && dim_poly_add_dim(&p, remainder, 1);
		for (size_t i = 0; ok && i < b->n_terms; i++)
			ok = dim_poly_add_product(&p, &b->terms[i], &minus_q);
		if (!ok)
			return NULL;
		remainder = dims_intern(t, &p);
	}
	return dims_intern(t, &quotient);
}

/* Atom `a` after the substitution. Floors and maxima are built again, since with new operands they may simplify. */
static const struct ir_dim *substitute_in_atom(struct ir_dims *t, const struct ir_dim_atom *a, int sym,
                                               const struct ir_dim *with)
{
	if (a->sym == sym)
		return with;
	if (a->sym >= 0)
		return atom_to_dim(t, a);
	if (a->other != NULL)
		return ir_dim_max(t, ir_dim_substitute(t, a->of, sym, with),
		                  ir_dim_substitute(t, a->other, sym, with));
	return ir_dim_floordiv(t, ir_dim_substitute(t, a->of, sym, with), a->by);
}

/* Builds the polynomial again, since atoms may become polynomials. */
const struct ir_dim *ir_dim_substitute(struct ir_dims *t, const struct ir_dim *a, int sym,
                                       const struct ir_dim *with)
{
	const struct ir_dim *r = ir_dim_const(t, 0);
	for (size_t i = 0; i < a->n_terms; i++) {
		const struct ir_dim *x = ir_dim_const(t, a->terms[i].coeff);
		for (size_t k = 0; k < a->terms[i].n_atoms; k++)
			x = ir_dim_mul(t, x, substitute_in_atom(t, a->terms[i].atoms[k], sym, with));
		r = ir_dim_add(t, r, x);
	}
	return r;
}

/* ---- constants and bounds ---- */

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

/* Inclusive. */
struct interval {
	int64_t lo, hi;
};

static int64_t saturating_mul(int64_t a, int64_t b)
{
	int64_t r;
	if (checked_mul_i64(a, b, &r))
		return r;
	return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

/* A saturated bound absorbs what is added. */
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

/* All products of a value of a and one of b: the extremes are among the products of the ends, as either may be
 * negative. */
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

static int64_t saturating_floor_div(int64_t a, int64_t by)
{
	return a == INT64_MIN || a == INT64_MAX ? a : floor_div(a, by);
}

static struct interval dim_interval(const struct ir_dims *t, const struct ir_dim *d);

/* Bounds of an atom: those declared for a symbol; floor and max are monotonic, so they map bounds to bounds. */
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
	return (struct interval){saturating_floor_div(of.lo, a->by), saturating_floor_div(of.hi, a->by)};
}

static struct interval term_interval(const struct ir_dims *t, int64_t coeff,
                                     const struct ir_dim_atom *const *atoms, size_t n)
{
	struct interval x = {1, 1};
	for (size_t i = 0; i < n; i++)
		x = interval_mul(x, atom_interval(t, atoms[i]));
	return interval_mul(x, (struct interval){coeff, coeff});
}

/* Bounds of the sum from those of each term; terms with common symbols are bounded separately, so it need not be
 * tight. */
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

/* ---- provable order ---- */

#define MAXIMA_DEPTH 8 /* maxima that one proof splits into cases */

/* Lower bound of x / y for terms without coefficients whose atoms are all >= 0; 0 unless y divides x. */
static int64_t min_quotient(const struct ir_dims *t, const struct dim_term *x, const struct dim_term *y)
{
	struct interval q = {1, 1};
	size_t k = 0;
	for (size_t i = 0; i < x->n; i++) {
		if (k < y->n && x->atoms[i] == y->atoms[k])
			k++;
		else
			q = interval_mul(q, atom_interval(t, x->atoms[i]));
	}
	return k == y->n ? q.lo : 0;
}

/*
 * Lower bound of p that is tighter than its interval: negative terms are cancelled against positive terms that are
 * multiples of them. With T >= 1, 18*B*T - 6*B has the lower bound 0. INT64_MIN if an atom may be negative. Changes p.
 */
static int64_t lower_bound_by_cancelling(const struct ir_dims *t, struct dim_poly *p)
{
	int64_t sum = 0;
	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < p->terms[i].n; k++)
			if (atom_interval(t, p->terms[i].atoms[k]).lo < 0)
				return INT64_MIN;
	for (size_t i = 0; i < p->n; i++) {
		struct dim_term *y = &p->terms[i];
		for (size_t k = 0; k < p->n && y->coeff < 0; k++) {
			/* x >= least * (atoms of y): each unit of x pays for `least` units of y */
			struct dim_term *x = &p->terms[k];
			int64_t least = x->coeff > 0 ? min_quotient(t, x, y) : 0;
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
		sum = saturating_add(sum, term_interval(t, x->coeff, x->atoms, x->n).lo);
	}
	return sum;
}

static bool is_floor(const struct ir_dim_term *x)
{
	return x->n_atoms == 1 && x->atoms[0]->sym < 0 && x->atoms[0]->other == NULL;
}

/* Proves d >= 0 from y - (by - 1) <= by * floor(y / by) <= y, so that 4*S <= 64*((4*S + 63)//64). d is divided by
 * its common factor and multiplied by `scale`, so that the coefficient of every floor is a multiple of its divisor;
 * then each floor is replaced by its lower bound, of a negative coefficient by its upper one. As d is an integer,
 * scale * d > -scale means d >= 0. */
static bool is_nonnegative_by_floors(struct ir_dims *t, const struct ir_dim *d)
{
	int64_t scale = 1, common = 0;
	bool has_floor = false;
	struct dim_poly p;
	p.n = 0;
	for (size_t i = 0; i < d->n_terms; i++) {
		common = gcd_i64(common, d->terms[i].coeff);
		has_floor = has_floor || is_floor(&d->terms[i]);
	}
	if (!has_floor)
		return false;
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
		int64_t c, loss = 0;
		if (!checked_mul_i64(x->coeff / common, scale, &c))
			return false;
		if (!is_floor(x)) {
			if (!dim_poly_add(&p, c, x->atoms, x->n_atoms))
				return false;
			continue;
		}
		int64_t by = x->atoms[0]->by, times = c / by;
		if ((times > 0 && !checked_mul_i64(-times, by - 1, &loss)) ||
		    !dim_poly_add_dim(&p, x->atoms[0]->of, times) || !dim_poly_add(&p, loss, NULL, 0))
			return false;
	}
	return ir_dim_lo(t, dims_intern(t, &p)) > -scale || lower_bound_by_cancelling(t, &p) > -scale;
}

/* Index of the term of d that is a positive multiple of a maximum; n_terms if there is none. Only such a term grows
 * and shrinks with its maximum, which prove_le relies on. */
static size_t find_max(const struct ir_dim *d)
{
	size_t i = 0;
	while (i < d->n_terms &&
	       !(d->terms[i].n_atoms == 1 && d->terms[i].coeff > 0 && d->terms[i].atoms[0]->other != NULL))
		i++;
	return i;
}

/* d with the maximum in term i replaced by its first or its other operand. */
static const struct ir_dim *replace_max(struct ir_dims *t, const struct ir_dim *d, size_t i, bool other)
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

/*
 * Proves b - a >= 0 by its interval, by cancelling terms, or by the bounds of its floors; else splits on a maximum, at
 * most `depth` times: x <= max(y, z) if x <= y or x <= z, and max(y, z) <= x if y <= x and z <= x.
 */
static bool prove_le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b, int depth)
{
	size_t i = find_max(b);
	struct dim_poly p;
	p.n = 0;
	if (dim_poly_add_dim(&p, b, 1) && dim_poly_add_dim(&p, a, -1)) {
		const struct ir_dim *d = dims_intern(t, &p);
		if (ir_dim_lo(t, d) >= 0 || lower_bound_by_cancelling(t, &p) >= 0 ||
		    is_nonnegative_by_floors(t, d))
			return true;
	}
	if (depth == 0)
		return false;
	if (i < b->n_terms)
		return prove_le(t, a, replace_max(t, b, i, false), depth - 1) ||
		       prove_le(t, a, replace_max(t, b, i, true), depth - 1);
	i = find_max(a);
	return i < a->n_terms && prove_le(t, replace_max(t, a, i, false), b, depth - 1) &&
	       prove_le(t, replace_max(t, a, i, true), b, depth - 1);
}

bool ir_dim_le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return prove_le(t, a, b, MAXIMA_DEPTH);
}

/* ---- values ---- */

/* The value of an atom where symbol i is values[i]. False on overflow. */
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

/* The value of coefficient times atoms where symbol i is values[i]. False on overflow. */
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

/* Prints an atom: a symbol, max(a, b) or a floor quotient. inside: it is a factor or follows a minus, so a quotient
 * gets parentheses: 2*S//4 would divide 2*S. */
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

/* Prints a term without its sign, for which ir_dim_print writes the operator: the magnitude of the coefficient, unless
 * it is 1 before an atom, and the atoms. tight: without blanks. */
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
