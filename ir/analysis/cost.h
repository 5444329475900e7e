/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a computation costs, as formulas of the module's dims: operations of its
 * products and bytes of its tensors. Nothing here depends on a target.
 */
#ifndef TFMC_IR_ANALYSIS_COST_H
#define TFMC_IR_ANALYSIS_COST_H

#include "ir/core/module.h"

/* What products multiply: rows that round_rows makes for the kernel of a linear, or f32. */
enum ir_mac_type { MAC_F32, MAC_INT8, MAC_BF16, MAC_ALL };

/*
 * Operations of the products of that kind of one execution of `op`, multiply and add as two: linear [.., K] x [N, K] is
 * 2 .. N K, matmul 2 .. M N K, attention 2 B H S T (E + Ev) over all keys, masked or not. Regions count with
 * their repetitions. Everything else counts 0: its cost is that of moving its operands.
 */
const struct ir_dim *ir_op_flops(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                                 enum ir_mac_type kind);
/* The sum over the body of a function. */
const struct ir_dim *ir_func_flops(const struct ir_module *m, const struct ir_func *f, enum ir_mac_type kind);
/*
 * Operations of the products of that kind that one execution of `op` computes at these values of the dims: as
 * ir_op_flops, but attention counts the keys that causality and window let each row see, behind `past` cached tokens
 * where it has a past, and regions their ops. A dim that overflows counts 0.
 */
double ir_op_flops_at(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                      enum ir_mac_type kind, const int64_t *values, int64_t past);
/*
 * Bytes of the weights that one execution of `op` reads at these values of the dims, as they lie in memory
 * without padding; with regions, those of what is in them with its repetitions. Of a table or of experts that are
 * chosen by ids, a row for each id and not more than there are.
 */
double ir_op_weight_bytes(const struct ir_func *f, const struct ir_op *op, const int64_t *values);
double ir_func_weight_bytes(const struct ir_func *f, const int64_t *values);

#endif
