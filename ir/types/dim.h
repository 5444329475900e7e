/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded symbolic dimensions: polynomials with integer coefficients over
 * named symbols, floor divisions by a constant and maxima, interned in normal
 * form, so that pointer equality is provable equality. Every symbol has inclusive
 * bounds. Overflow and unknown names are sticky in the table (ir_dims_failed).
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
	int sym;                    /* index of the symbol, or -1 */
	const struct ir_dim *of;    /* floor division: dividend; maximum: one of two */
	int64_t by;                 /* floor division: divisor >= 2; maximum: 0 */
	const struct ir_dim *other; /* maximum: the other one; else NULL */
};

/* coeff * product of atoms; atoms sorted, repeated for powers. */
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

struct ir_dims *ir_dims_create(struct arena *arena);
/* Declares a symbol. False when the name exists or bounds are not 0 <= lo <= hi < 2^31. */
bool ir_dims_declare(struct ir_dims *t, const char *name, int64_t lo, int64_t hi);
size_t ir_dims_count(const struct ir_dims *t);
const struct ir_dim_sym *ir_dims_sym(const struct ir_dims *t, size_t index);
int ir_dims_find(const struct ir_dims *t, const char *name); /* index or -1 */
/* Lowers the upper bound of a symbol; false when it is below the lower one, or above the one that there was. */
bool ir_dims_set_hi(struct ir_dims *t, size_t index, int64_t hi);
/* True after an overflow; the results of the failing calls were the constant 0. */
bool ir_dims_failed(const struct ir_dims *t);

const struct ir_dim *ir_dim_const(struct ir_dims *t, int64_t v);
const struct ir_dim *ir_dim_sym(struct ir_dims *t, const char *name); /* NULL when not declared */
const struct ir_dim *ir_dim_add(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
const struct ir_dim *ir_dim_sub(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
const struct ir_dim *ir_dim_mul(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* floor(a / by), by >= 1; exact division is carried out when every coefficient is divisible. */
const struct ir_dim *ir_dim_floordiv(struct ir_dims *t, const struct ir_dim *a, int64_t by);
/* The larger one: a or b where the bounds prove it, else a maximum. */
const struct ir_dim *ir_dim_max(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* Exact quotient a / b when b divides a as a polynomial, else NULL. */
const struct ir_dim *ir_dim_divide(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* Replaces symbol `sym` by `with` everywhere. */
const struct ir_dim *ir_dim_substitute(struct ir_dims *t, const struct ir_dim *a, int sym,
                                       const struct ir_dim *with);

bool ir_dim_is_const(const struct ir_dim *d, int64_t *out); /* out may be NULL */
bool ir_dim_equals(const struct ir_dim *d, int64_t v);
/* Interval bounds over the symbols' bounds; saturate at INT64_MIN / INT64_MAX. */
int64_t ir_dim_lo(const struct ir_dims *t, const struct ir_dim *d);
int64_t ir_dim_hi(const struct ir_dims *t, const struct ir_dim *d);
/* True only when a <= b is provable from the bounds. */
bool ir_dim_le(struct ir_dims *t, const struct ir_dim *a, const struct ir_dim *b);
/* values[i]: the value of symbol i. False on overflow. */
bool ir_dim_eval(const struct ir_dim *d, const int64_t *values, int64_t *out);

/* Canonical text: `B*S`, `2*S + 3`, `S*S - 1`, `(S + 3)//4`, `max(S, T)`; without blanks inside shapes when
 * `tight`. */
void ir_dim_print(struct buf *out, const struct ir_dims *t, const struct ir_dim *d, bool tight);
/* The same as a text in `a`. */
const char *ir_dim_to_string(struct arena *a, const struct ir_dims *t, const struct ir_dim *d, bool tight);

#endif
