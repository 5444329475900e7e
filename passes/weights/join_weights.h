/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of several linears as one weight: for passes that make one linear of
 * many. The provenance of the result says what it is made of; its name is that
 * of the parts with the differing middles joined: a.q.w, a.k.w -> a.q_k.w.
 */
#ifndef TFMC_PASSES_WEIGHTS_JOIN_WEIGHTS_H
#define TFMC_PASSES_WEIGHTS_JOIN_WEIGHTS_H

#include "passes/framework/rebuild.h"

/* Linears that fit the first. */
struct join {
	const struct ir_op *const *items;
	size_t n;
};

/*
 * Whether b may follow a (a itself: begin) along axis 0: weights with a provenance, of one format and K, at the same
 * indices into stacks of one height; a bias, where there is one, is such a stack at these indices too.
 */
bool join_fits(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b);
/*
 * The weights (operand 1) or biases (operand 2, zeros where one is missing) along axis 0 ([N]) or 1 ([K]) of
 * one layer, added to r->out, at the indices of the first. IR_NO_VALUE when none of the linears has one.
 */
struct ir_value join_reference(struct rebuild *r, const struct join *s, size_t operand, int axis);
/* Adds w under its name or, when that means something else already, the name and a number. NULL: no memory.
 */
const struct ir_weight *join_add_weight(struct rebuild *r, struct ir_weight *w);

#endif
