/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Size variables of a module: one for each constant axis of each value, weight and state, for each repeat count
 * and each slice, with the constraints that the ops impose.
 */
#ifndef TFMC_PASSES_PIPELINE_SHRINK_SHAPES_H
#define TFMC_PASSES_PIPELINE_SHRINK_SHAPES_H

#include "passes/pipeline/shrink_sizes.h"

struct axes {
	size_var of[IR_RANK_MAX]; /* 0: a symbolic size */
};

/* A slice with constant bounds, or the operand of a pad within its result: a run of pieces of the longer axis. */
struct cut {
	const struct ir_op *op;
	size_var whole, part;
	int64_t begin, end;
	const size_var *pieces;       /* of the longer axis, in order */
	size_t n_pieces, first, last; /* the slice is [first, last) of them */
};

struct shapes {
	struct sizes sizes;
	const struct ir_module *m;
	struct ir_module *out; /* its dims have the new bounds */
	struct axes **values;  /* [funcs][values] */
	struct axes *weights;  /* [weights] */
	struct axes *states;   /* [states] */
	size_var **counts;     /* [funcs][values] count of the repeat whose index the value is; 0: none */
	size_var **below;      /* [funcs][params] bound of the ids of a parameter; 0: none */
	struct {
		struct cut *items;
		size_t n, cap;
	} cuts;
	const struct ir_func *f; /* being visited */
	size_t func;
};

/* Collects the variables and constraints of m and solves them. False when memory ran out. */
bool shapes_solve(struct shapes *s, const struct ir_module *m, struct ir_module *out, struct arena *arena);
/* The type `old` with the solved sizes, in the new module. */
const struct ir_type *shapes_type(struct shapes *s, const struct axes *axes, const struct ir_type *old);
/* The cut of a slice or pad; NULL: its bounds are unchanged. */
const struct cut *shapes_cut(const struct shapes *s, const struct ir_op *op);
/* Total new size of the pieces [from, to) of a cut. */
int64_t shapes_pieces(struct shapes *s, const struct cut *c, size_t from, size_t to);

#endif
