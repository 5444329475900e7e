/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concatenation of the weights of several linears into one weight, for passes that merge linears. The weight
 * expression (ir_weight.init) of the result records what it is made of; its name joins the parts in which the
 * names differ: a.q.w, a.k.w -> a.q_k.w.
 */
#ifndef TFMC_PASSES_GRAPH_CONCAT_WEIGHTS_H
#define TFMC_PASSES_GRAPH_CONCAT_WEIGHTS_H

#include "passes/framework/rebuild.h"

/* Linears that can be concatenated with the first. */
struct linear_list {
	const struct ir_op *const *items;
	size_t n;
};

/*
 * Whether the weight of linear b can be appended to that of a (b == a: whether a can be the first). Requires
 * weights with an expression, of one format and K, selected by the same indices from stacks of equal height;
 * likewise the bias of b, if there is one.
 */
bool can_concat_weights(const struct ir_func *f, const struct ir_op *a, const struct ir_op *b);
/*
 * Adds the concatenation of the weights (operand 1) or biases (operand 2, zeros for a missing one) to r->out,
 * along axis 0 (N) or 1 (K) of a layer, and returns a reference to it at the indices of the first linear.
 * IR_NO_VALUE: no linear has the operand, or an error.
 */
struct ir_value concat_weight_ref(struct rebuild *r, const struct linear_list *s, size_t operand, int axis);
/* Adds w to `out`, which is made from `in`; if another weight of one of them has its name, as NAME.2, NAME.3 ..  NULL:
 * memory ran out. */
const struct ir_weight *add_weight_renamed(struct arena *a, const struct ir_module *in, struct ir_module *out,
                                           struct ir_weight *w);

#endif
