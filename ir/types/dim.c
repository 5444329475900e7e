/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dim table: symbols, interned atoms and interned polynomials, sums and
 * products. Invariant: terms of a dim are in canonical order without zero
 * coefficients, so equal polynomials are one object.
 */
#include "ir/types/dim.h"

#include <string.h>

#include "ir/types/dim_internal.h"
#include "ir/support/checked.h"
#include "ir/support/strmap.h"

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

bool ir_dims_declare(struct ir_dims *t, const char *name, int64_t lo, int64_t hi)
{
	if (lo < 0 || hi < lo || hi > INT32_MAX || ir_dims_find(t, name) >= 0 || t->syms.n >= DIM_SYMBOLS_MAX)
		return false;
	if (!ARENA_ADDED(t->arena, &t->syms, (struct ir_dim_sym){arena_strdup(t->arena, name), lo, hi}))
		return false;
	return true;
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

/* ---- interning ---- */

int dim_compare(const struct ir_dim *a, const struct ir_dim *b)
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

/* Symbols in order of declaration, then quotients and maxima by structure: never by address or age. */
int dim_compare_atoms(const struct ir_dim_atom *a, const struct ir_dim_atom *b)
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

int dim_compare_monomials(const struct ir_dim_atom *const *a, size_t n_a, const struct ir_dim_atom *const *b,
                          size_t n_b)
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

static bool atom_equal(const void *item, const void *key)
{
	const struct ir_dim_atom *a = item, *b = key;
	return a->sym == b->sym && a->of == b->of && a->by == b->by && a->other == b->other;
}

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

const struct ir_dim_atom *dims_quotient_atom(struct ir_dims *t, const struct ir_dim *of, int64_t by)
{
	return intern_atom(t, &(struct ir_dim_atom){.sym = -1, .of = of, .by = by});
}

const struct ir_dim_atom *dims_max_atom(struct ir_dims *t, const struct ir_dim *of,
                                        const struct ir_dim *other)
{
	return intern_atom(t, &(struct ir_dim_atom){.sym = -1, .of = of, .other = other});
}

static uint64_t poly_hash(const struct dim_poly *p)
{
	uint64_t h = HASH64_SEED;
	for (size_t i = 0; i < p->n; i++) {
		h = hash_bytes64(h, &p->terms[i].coeff, sizeof(int64_t));
		for (size_t k = 0; k < p->terms[i].n; k++) {
			/* pub is the first member */
			const struct dim_atom *a =
			        (const struct dim_atom *)(const void *)p->terms[i].atoms[k];
			h = hash_bytes64(h, &a->serial, sizeof(a->serial));
		}
	}
	return h;
}

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

const struct ir_dim *dims_intern(struct ir_dims *t, const struct dim_poly *p)
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

const struct ir_dim *dims_fail(struct ir_dims *t)
{
	t->failed = true;
	return dims_intern(t, &(struct dim_poly){.n = 0});
}

/* ---- polynomials under construction ---- */

static void remove_term(struct dim_poly *p, size_t at)
{
	p->n--;
	memmove(&p->terms[at], &p->terms[at + 1], (p->n - at) * sizeof(p->terms[0]));
}

bool dim_poly_add(struct dim_poly *p, int64_t coeff, const struct ir_dim_atom *const *atoms, size_t n)
{
	if (coeff == 0)
		return true;
	if (coeff == INT64_MIN) /* its negative would not fit */
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
		if (p->terms[at].coeff == 0)
			remove_term(p, at);
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

bool dim_poly_add_dim(struct dim_poly *p, const struct ir_dim *d, int64_t k)
{
	for (size_t i = 0; i < d->n_terms; i++) {
		int64_t c;
		if (!checked_mul_i64(d->terms[i].coeff, k, &c) ||
		    !dim_poly_add(p, c, d->terms[i].atoms, d->terms[i].n_atoms))
			return false;
	}
	return true;
}

bool dim_poly_add_product(struct dim_poly *p, const struct ir_dim_term *x, const struct ir_dim_term *y)
{
	const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
	int64_t c;
	if (x->n_atoms + y->n_atoms > DIM_FACTORS_MAX || !checked_mul_i64(x->coeff, y->coeff, &c))
		return false;
	size_t n = 0, i = 0, k = 0;
	while (i < x->n_atoms || k < y->n_atoms) {
		bool first = k == y->n_atoms ||
		             (i < x->n_atoms && dim_compare_atoms(x->atoms[i], y->atoms[k]) <= 0);
		atoms[n++] = first ? x->atoms[i++] : y->atoms[k++];
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

const struct ir_dim *dims_atom_dim(struct ir_dims *t, const struct ir_dim_atom *atom)
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
	return dims_atom_dim(t, intern_atom(t, &(struct ir_dim_atom){.sym = sym}));
}

static const struct ir_dim *sum(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b, int64_t k)
{
	struct dim_poly p;
	p.n = 0;
	if (!dim_poly_add_dim(&p, a, 1) || !dim_poly_add_dim(&p, b, k))
		return dims_fail(t);
	return dims_intern(t, &p);
}

const struct ir_dim *ir_dim_add(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return sum(t, a, b, 1);
}

const struct ir_dim *ir_dim_sub(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b)
{
	return sum(t, a, b, -1);
}

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
