/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop over heads written out, so that merge-heads sees its attentions side
 * by side.
 */
#ifndef TFMC_PASSES_GRAPH_UNROLL_HEADS_H
#define TFMC_PASSES_GRAPH_UNROLL_HEADS_H

#include "passes/framework/rebuild.h"

/* As the members of struct rewrite. */
bool unroll_heads_match(struct rebuild *r, const struct ir_op *op);
void unroll_heads_emit(struct rebuild *r, const struct ir_op *op);

#endif
