/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the dim table, shared by the dim*.c files. A poly is a sum in
 * canonical order under construction; dims_intern turns it into the one dim
 * that is equal to it.
 */
#ifndef TFMC_IR_TYPES_DIM_INTERNAL_H
#define TFMC_IR_TYPES_DIM_INTERNAL_H

#include "ir/types/dim.h"
#include "ir/types/intern.h"

/* Limits that hostile text cannot exceed. */
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

/* An atom with its number of creation. */
struct dim_atom {
	struct ir_dim_atom pub;
	uint32_t serial;
};

struct dim_term {
	int64_t coeff;
	size_t n;
	const struct ir_dim_atom *atoms[DIM_FACTORS_MAX];
};

struct dim_poly {
	size_t n;
	struct dim_term terms[DIM_TERMS_MAX];
};

/* Marks the table as failed and gives the constant 0. */
const struct ir_dim *dims_fail(struct ir_dims *t);
/* The dim equal to `p`, which is in canonical order. */
const struct ir_dim *dims_intern(struct ir_dims *t, const struct dim_poly *p);
/* The interned atom floor(of / by); NULL on failure. */
const struct ir_dim_atom *dims_quotient_atom(struct ir_dims *t, const struct ir_dim *of, int64_t by);
/* The interned atom max(of, other); NULL on failure. */
const struct ir_dim_atom *dims_max_atom(struct ir_dims *t, const struct ir_dim *of,
                                        const struct ir_dim *other);
/* The dim of one atom. */
const struct ir_dim *dims_atom_dim(struct ir_dims *t, const struct ir_dim_atom *atom);

/* Canonical order of monomials: higher degree first, then by atoms. Negative: a before b. */
int dim_compare_monomials(const struct ir_dim_atom *const *a, size_t n_a, const struct ir_dim_atom *const *b,
                          size_t n_b);
int dim_compare(const struct ir_dim *a, const struct ir_dim *b);
int dim_compare_atoms(const struct ir_dim_atom *a, const struct ir_dim_atom *b);

/* p += coeff * monomial, keeping canonical order. False on overflow or too many terms. */
bool dim_poly_add(struct dim_poly *p, int64_t coeff, const struct ir_dim_atom *const *atoms, size_t n);
/* p += k * d. */
bool dim_poly_add_dim(struct dim_poly *p, const struct ir_dim *d, int64_t k);
/* p += x * y of two terms. */
bool dim_poly_add_product(struct dim_poly *p, const struct ir_dim_term *x, const struct ir_dim_term *y);

#endif
