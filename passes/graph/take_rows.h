/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of canonicalize that moves take_rows toward the inputs, over ops
 * that treat every row alike, so that only the taken row is computed.
 */
#ifndef TFMC_PASSES_GRAPH_TAKE_ROWS_H
#define TFMC_PASSES_GRAPH_TAKE_ROWS_H

#include "passes/framework/rebuild.h"

bool take_rows_match(struct rebuild *r, const struct ir_op *op);
void take_rows_emit(struct rebuild *r, const struct ir_op *op);

#endif
