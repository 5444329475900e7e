/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transposed weight is a weight of its own: the movement happens when the
 * weight is packed, not at run time.
 */
#ifndef TFMC_PASSES_GRAPH_TURN_WEIGHT_H
#define TFMC_PASSES_GRAPH_TURN_WEIGHT_H

#include "passes/framework/rebuild.h"

/* As the members of struct rewrite, for transposes. */
bool turn_weight_match(struct rebuild *r, const struct ir_op *op);
void turn_weight_emit(struct rebuild *r, const struct ir_op *op);

#endif
