/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which axes of a module are divided among ranks (tensor parallelism), and where. Axes of values, weights and states
 * that an op relates element by element (ir/core/axes.h) form one class, in all functions; a class is cut if linears,
 * matmuls or expert linears contract it and no op needs it as a whole. An axis of size a in a class of n atoms is cut
 * at multiples of a / n elements: heads of a fused projection, or blocks of a quantized format, stay on one rank.
 */
#ifndef TFMC_PASSES_GRAPH_SHARD_H
#define TFMC_PASSES_GRAPH_SHARD_H

#include "passes/framework/rebuild.h"

struct shard_plan;

/* In the arena of the pass; classes that are not cut are reported by remarks. NULL without memory. */
const struct shard_plan *shard_plan(struct pass_context *p, const struct ir_module *m, int64_t ranks);
/* Whether op contracts an axis that is cut: the ranks have terms of its result. */
bool shard_is_contraction(const struct shard_plan *s, const struct ir_op *op);
/* The axis of an operand of such an op that is contracted, with the elements [*begin, *end) of `rank`; -1: none. */
int shard_contracted(const struct shard_plan *s, const struct ir_func *f, const struct ir_op *op,
                     size_t operand, int64_t rank, int64_t *begin, int64_t *end);

/* The elements [begin, end) of an axis on one rank, padded with zeros to `local`; local 0: the axis is whole. */
struct shard_part {
	int64_t begin, end, local;
};
struct shard_part shard_value(const struct shard_plan *s, const struct ir_func *f, struct ir_value v,
                              int axis, int64_t rank);
struct shard_part shard_weight(const struct shard_plan *s, const struct ir_weight *w, int axis, int64_t rank);
/* `local` alone is used: states of all ranks have one shape. */
struct shard_part shard_state(const struct shard_plan *s, const struct ir_state_decl *d, int axis);

#endif
