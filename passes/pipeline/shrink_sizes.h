/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small constraint solver for sizes: each constant size of a module is a variable; equal ones are merged
 * (union-find), products and sums constrain the others. The old sizes are a solution; a backtracking search looks
 * for a small one.
 */
#ifndef TFMC_PASSES_PIPELINE_SHRINK_SIZES_H
#define TFMC_PASSES_PIPELINE_SHRINK_SIZES_H

#include "ir/core/module.h"

typedef uint32_t size_var; /* 0: none */

struct size_info {
	size_var parent;     /* union-find */
	int64_t old, now;    /* now: new size, 0: unassigned */
	int64_t least, want; /* lower bound, preferred size; 0: none */
	bool even, fixed;
	uint32_t component; /* connected component of the constraints */
};

/* product(left) = product(right), sum(left) = sum(right), or left[0] <= right[0]. */
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
	size_t steps; /* left for the search */
};

void sizes_init(struct sizes *s, struct arena *arena);
/* Adds a variable; sizes 0 and 1 are fixed. */
size_var size_new(struct sizes *s, int64_t old);
/* Representative of a merged variable. */
size_var size_find(const struct sizes *s, size_var v);
/* Merges two variables of equal old size. If one is 0 (a symbolic size), the other is fixed. */
void size_merge(struct sizes *s, size_var a, size_var b);
void size_fix(struct sizes *s, size_var v);
void size_relate(struct sizes *s, enum size_relation r, const size_var *left, size_t n_left,
                 const size_var *right, size_t n_right);
struct size_info *size_of(struct sizes *s, size_var v);
/* Assigns every variable its new size. */
void sizes_solve(struct sizes *s);

#endif
