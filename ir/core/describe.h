/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TFMC_IR_ANALYSIS_DESCRIBE_H
#define TFMC_IR_ANALYSIS_DESCRIBE_H

#include "ir/core/module.h"

/*
 * Appends a description of an op in terms of the model: `layers.self.attention.q linear (model.yaml:14)`; for a
 * group, of its root. The path is that of its first weight, else of its step; unknown parts are left out.
 */
void ir_op_describe(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                    const struct ir_op *op);

#endif
