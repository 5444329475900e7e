/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels may write their result over memory that they read. True only
 * when the template, with any number of workers, reads every element of that
 * memory before it writes the same element, and nobody reads it afterwards.
 * The planner asks, the verifier of plans asks, templates promise:
 *
 *   loops      elementwise ops at the element that is written (copies too)
 *   rowwise    the same before and after the root: a row is read before it is
 *              written; kept elements lie in scratch
 *   linear     elementwise ops of the epilogue, before a norm after it; never the rows of x
 *   attention  q, when the rows of a task lie where it writes its results
 */
#ifndef TFMC_IR_ANALYSIS_INPLACE_H
#define TFMC_IR_ANALYSIS_INPLACE_H

#include "ir/core/module.h"

/*
 * NULL: the group may write its result into the memory of `base`, which it
 * reads (a value that is no view). Else why not, as a phrase: "it is read
 * through a gather".
 */
const char *ir_inplace_conflict(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                                struct ir_value base);
/* The group reads the memory of base. */
bool ir_group_reads(const struct ir_func *f, const struct ir_op *group, struct ir_value base);

#endif
