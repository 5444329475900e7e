/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TFMC_IR_ANALYSIS_DESCRIBE_H
#define TFMC_IR_ANALYSIS_DESCRIBE_H

#include "ir/core/module.h"

/*
 * What an op computes, in words of the model: `layers.self.attention.q linear (model.yaml:14)`. Of a group it is the
 * root. The path is that of the weight it reads, else of its step; what is not known is left out.
 */
void ir_op_describe(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                    const struct ir_op *op);

#endif
