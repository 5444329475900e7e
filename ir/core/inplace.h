/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In-place updates: which kernels may write their result into a buffer that they read. Allowed if the kernel, with any
 * number of workers, reads each element of the buffer before it writes that element, and nothing reads it later. Memory
 * planner, plan verifier and interpreter use this; kernel generators must obey:
 *
 *   loops      operands of elementwise ops, read at the element that is written (also copies)
 *   rowwise    the same in prologue and epilogue: a row is read before it is written, its values are kept in scratch
 *   linear     operands of elementwise ops of the epilogue, but not after a fused norm; never the rows of x
 *   attention  q, if a task writes its results exactly where its queries are
 */
#ifndef TFMC_IR_CORE_INPLACE_H
#define TFMC_IR_CORE_INPLACE_H

#include "ir/core/module.h"

/* NULL if the group may write its result into the buffer of `base`, which it reads and which is no view; else the
 * reason why not, as a phrase: "it is read through a gather". */
const char *ir_inplace_conflict(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                                struct ir_value base);
/* An op of the group reads base, or a view of it. */
bool ir_group_reads(const struct ir_func *f, const struct ir_op *group, struct ir_value base);

#endif
