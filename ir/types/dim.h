/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbolic dimensions (shape arithmetic): polynomials with integer coefficients over named symbols, floor divisions
 * by a constant, and maxima. They are interned in normal form, so equal pointers mean provably equal dims. Every
 * symbol has inclusive bounds. Errors are sticky in the table: after an overflow all further results are the constant
 * 0, and ir_dims_failed returns true.
 */
#ifndef TFMC_IR_TYPES_DIM_H
#define TFMC_IR_TYPES_DIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"

struct ir_dim;  /* interned, immutable, owned by its table */
struct ir_dims; /* the table, allocated in an arena */

struct ir_dim_sym {
	const char *name;
	int64_t lo, hi; /* inclusive */
};

/* One factor of a monomial: a symbol, floor(of / by), or max(of, other). */
struct ir_dim_atom {
	int sym;                    /* index of the symbol; -1: a floor division or a maximum */
	const struct ir_dim *of;    /* dividend, or first operand of the maximum; NULL for a symbol */
	int64_t by;                 /* divisor >= 2; 0 unless a floor division */
	const struct ir_dim *other; /* second operand of the maximum; NULL otherwise */
};

/* A monomial: coeff * product of atoms. Atoms are sorted and repeated for powers. */
struct ir_dim_term {
	int64_t coeff;
	size_t n_atoms;
	const struct ir_dim_atom *const *atoms; /* interned */
};

/* Sum of terms in canonical order (the constant last). Read-only view for printers and code generators. */
struct ir_dim {
	size_t n_terms;
	const struct ir_dim_term *terms;
	uint32_t serial; /* order of creation, for deterministic sorting */
};

/* A table without symbols; NULL without memory. */
struct ir_dims *ir_dims_create(struct arena *arena);
/* Declares a symbol. False if the name exists, or the bounds are not 0 <= lo <= hi < 2^31. */
bool ir_dims_declare(struct ir_dims *t, const char *name, int64_t lo, int64_t hi);
size_t ir_dims_count(const struct ir_dims *t);
const struct ir_dim_sym *ir_dims_sym(const struct ir_dims *t, size_t index);
int ir_dims_find(const struct ir_dims *t, const char *name); /* index or -1 */
/*
 * Lowers the upper bound of symbol `index` to hi. False, and unchanged, if hi is below lo or above the present bound.
 */
bool ir_dims_set_hi(struct ir_dims *t, size_t index, int64_t hi);
/* True after an overflow (also: too many terms or factors, no memory); the failing calls returned the constant 0. */
bool ir_dims_failed(const struct ir_dims *t);

/* Expressions in canonical form: equal ones have one address. */
const struct ir_dim *ir_dim_const(struct ir_dims *t, int64_t v);
const struct ir_dim *ir_dim_sym(struct ir_dims *t, const char *name); /* NULL when not declared */
const struct ir_dim *ir_dim_add(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
const struct ir_dim *ir_dim_sub(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
const struct ir_dim *ir_dim_mul(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* floor(a / by) in normal form, by >= 1: whole multiples leave the quotient, (4*S + 7)//4 = S + 1. */
const struct ir_dim *ir_dim_floordiv(struct ir_dims *t, const struct ir_dim *a, int64_t by);
/* max(a, b): a or b itself if ir_dim_le proves which is larger, else an atom. */
const struct ir_dim *ir_dim_max(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* Exact quotient a / b if b divides a as a polynomial (multivariate long division), else NULL. */
const struct ir_dim *ir_dim_divide(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* a with `with` in place of symbol `sym`, also inside floors and maxima. */
const struct ir_dim *ir_dim_substitute(struct ir_dims *t, const struct ir_dim *a, int sym,
                                       const struct ir_dim *with);

bool ir_dim_is_const(const struct ir_dim *d, int64_t *out); /* out may be NULL */
bool ir_dim_equals(const struct ir_dim *d, int64_t v);      /* d is the constant v */
/* Bounds of the value by interval arithmetic over the symbols' bounds; they saturate at INT64_MIN and INT64_MAX and
 * need not be tight. */
int64_t ir_dim_lo(const struct ir_dims *t, const struct ir_dim *d);
int64_t ir_dim_hi(const struct ir_dims *t, const struct ir_dim *d);
/* True if a <= b is proved for all values of the symbols; false if it is not proved, which need not mean that it is
 * wrong. */
bool ir_dim_le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* The value of d where symbol i is values[i]. False on overflow. */
bool ir_dim_eval(const struct ir_dim *d, const int64_t *values, int64_t *out);

/* Canonical text: `B*S`, `2*S + 3`, `S*S - 1`, `(S + 3)//4`, `max(S, T)`; `tight`: without blanks, as in shapes. */
void ir_dim_print(struct buf *out, const struct ir_dims *t, const struct ir_dim *d, bool tight);
/* The text of ir_dim_print as a string in `a`; "" without memory. */
const char *ir_dim_to_string(struct arena *a, const struct ir_dims *t, const struct ir_dim *d, bool tight);

#endif
