/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost of a computation as formulas over the module's dims: floating-point operations of contractions, and bytes of
 * weights. Independent of targets; used for rooflines (`bench`) and for the work that objects record. And descriptions
 * of ops for reports.
 */
#ifndef TFMC_IR_CORE_COST_H
#define TFMC_IR_CORE_COST_H

#include "ir/core/module.h"

/* Operand type of multiply-accumulates: int8 or bf16 if the activations are dynamically quantized (quantize_rows), else
 * f32. */
enum ir_mac_type { MAC_F32, MAC_INT8, MAC_BF16, MAC_ALL };

/*
 * Operations of the multiply-accumulates of that type in one execution of `op`, two for each: linear [.., K] x [N, K]
 * has 2 .. N K, matmul 2 .. M N K, attention 2 B H S T (E + Ev) over all keys, masked or not. Regions count with
 * their repetitions. All other ops count 0, as they are bound by memory.
 */
const struct ir_dim *ir_op_flops(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                                 enum ir_mac_type kind);
/* The sum over the body of a function. */
const struct ir_dim *ir_func_flops(const struct ir_module *m, const struct ir_func *f, enum ir_mac_type kind);
/*
 * ir_op_flops where symbol i has the value values[i], except that attention counts only the keys visible to each
 * query by causality and window, with `past` tokens in the KV cache. A dim that overflows counts 0.
 */
double ir_op_flops_at(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                      enum ir_mac_type kind, const int64_t *values, int64_t past);
/*
 * Bytes of weights that one execution of `op` reads, in their storage format without padding; regions count with their
 * repetitions. Of tables and experts that are selected by ids: one row or expert for each id, at most all of them.
 */
double ir_op_weight_bytes(const struct ir_func *f, const struct ir_op *op, const int64_t *values);
/* Bytes of a weight in its storage format without padding. */
double ir_weight_bytes(const struct ir_weight *w);
double ir_func_weight_bytes(const struct ir_func *f, const int64_t *values);

/* Exchanges of one op with other ranks. */
struct ir_exchange {
	enum ir_opcode code;        /* OP_all_reduce, OP_all_gather, OP_send, OP_receive */
	const struct ir_dim *count; /* elements that a rank gives to one exchange */
	int64_t times;              /* exchanges in one call of the function */
};
typedef void ir_exchange_fn(void *user, const struct ir_exchange *x);
/* Calls each() for the exchanges of a function, in order; those of a repeat together. */
void ir_visit_exchanges(const struct ir_module *m, const struct ir_func *f, ir_exchange_fn *each, void *user);

/*
 * Appends a description of an op in terms of the model: `layers.self.attention.q linear (model.yaml:14)`; for a
 * group, of its root. The path is that of its first weight, else of its step; unknown parts are left out.
 */
void ir_op_describe(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                    const struct ir_op *op);
/*
 * Length of the range of iterations at the beginning of a path: ".3_5" of a loop over the layers 3 to 5 of
 * layers.3_5.self, ".1_3_7" over 1, 3, 5 and 7; then iteration i is of layer first + i * step. 0: there is none, first
 * and step are 0 and 1.
 */
size_t ir_path_range(const char *path, int64_t *first, int64_t *step);
/* The first part of the description, `layers.self.attention.q linear`; marked: with .#N# after the path of each repeat
 * of N iterations around the op, `layers.#6#.self.attention.q linear`, or .#N*STEP+FIRST# in place of a range. */
void ir_op_title(struct buf *out, const struct ir_func *f, const struct ir_op *op, bool marked);
/* The last part, `model.yaml:14`; nothing where it is unknown. */
void ir_op_line(struct buf *out, const struct diag_context *cx, const struct ir_op *op);
/* Kind and block sizes of a group: `linear 14x32x384`. */
void ir_group_kernel(struct buf *out, const struct ir_op *group);

#endif
