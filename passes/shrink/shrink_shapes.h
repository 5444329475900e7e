/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The size variables of a module: one for each constant axis of each value,
 * weight and state, each repeat count and each slice, tied as the ops tie them.
 */
#ifndef TFMC_PASSES_SHRINK_SHRINK_SHAPES_H
#define TFMC_PASSES_SHRINK_SHRINK_SHAPES_H

#include "passes/shrink/shrink_sizes.h"

struct axes {
	size_var of[IR_RANK_MAX]; /* 0: a symbolic size */
};

/*
 * A slice of constant bounds, or what a pad leaves as it is, and the pieces between all cuts of the longer
 * axis.
 */
struct cut {
	const struct ir_op *op;
	size_var whole, part;
	int64_t begin, end;
	const size_var *pieces;       /* of the whole axis, in order */
	size_t n_pieces, first, last; /* the slice is [first, last) of them */
};

struct shapes {
	struct sizes sizes;
	const struct ir_module *m;
	struct ir_module *out; /* its dims have the new bounds */
	struct axes **values;  /* [funcs][values] */
	struct axes *weights;  /* [weights] */
	struct axes *states;   /* [states] */
	size_var **counts;     /* [funcs][values] of the repeat whose index a value is, 0: none */
	size_var **below; /* [funcs][params] of the table that the ids of a parameter choose from, 0: none */
	struct {
		struct cut *items;
		size_t n, cap;
	} cuts;
	const struct ir_func *f; /* the one that is read */
	size_t func;
};

/* Collects and solves. False when memory ran out. */
bool shapes_solve(struct shapes *s, const struct ir_module *m, struct ir_module *out, struct arena *arena);
const struct ir_type *shapes_type(struct shapes *s, const struct axes *axes, const struct ir_type *old);
/* `part` lies in `whole` from `begin` on. */
void shapes_add_cut(struct shapes *s, const struct ir_op *op, size_var whole, size_var part, int64_t begin);
/* Ties the sizes of all cuts, once they are collected. */
void shapes_cut_axes(struct shapes *s);
/* The cut of a slice or pad; NULL: its bounds stay. */
const struct cut *shapes_cut(const struct shapes *s, const struct ir_op *op);
/* New size of the pieces [from, to) of a cut. */
int64_t shapes_pieces(struct shapes *s, const struct cut *c, size_t from, size_t to);

#endif
