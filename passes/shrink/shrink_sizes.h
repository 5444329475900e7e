/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes as unknowns: each constant size of a module is a variable, equal ones
 * are merged, and products and sums tie others together. The old sizes are a
 * solution, so that there always is one; a search looks for a small one.
 */
#ifndef TFMC_PASSES_SHRINK_SHRINK_SIZES_H
#define TFMC_PASSES_SHRINK_SHRINK_SIZES_H

#include "ir/core/module.h"

typedef uint32_t size_var; /* 0: none */

struct size_info {
	size_var parent;     /* of the merged ones */
	int64_t old, now;    /* now 0: open */
	int64_t least, want; /* 0: none */
	bool even, fixed;
	uint32_t part; /* sizes that constraints tie together */
};

/* The product or the sum of `left` is that of `right`; or left[0] <= right[0]. */
enum size_relation { SIZE_PRODUCT, SIZE_SUM, SIZE_AT_MOST };
struct size_constraint {
	enum size_relation relation;
	const size_var *left, *right;
	size_t n_left, n_right;
};

struct sizes {
	struct arena *arena;
	struct {
		struct size_info *items; /* [0] is not used */
		size_t n, cap;
	} vars;
	struct {
		struct size_constraint *items;
		size_t n, cap;
	} constraints;
	size_t steps; /* of the search, left */
};

void sizes_init(struct sizes *s, struct arena *arena);
/* A new variable. 0 and 1 stay as they are. */
size_var size_new(struct sizes *s, int64_t old);
size_var size_find(const struct sizes *s, size_var v);
/* Of equal old sizes; with a variable that is none (a symbolic size) the other stays as it is. */
void size_merge(struct sizes *s, size_var a, size_var b);
void size_fix(struct sizes *s, size_var v);
void size_relate(struct sizes *s, enum size_relation r, const size_var *left, size_t n_left,
                 const size_var *right, size_t n_right);
struct size_info *size_of(struct sizes *s, size_var v);
/* Gives every variable its new size. */
void sizes_solve(struct sizes *s);

#endif
