/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that scan rows in order: cumsum, topk, last_at, with state carried from element to element.
 * eval_in_order (backends/kernels/eval.h) computes any single element instead, for groups that this generator
 * does not accept.
 */
#ifndef TFMC_BACKENDS_IN_ORDER_IN_ORDER_H
#define TFMC_BACKENDS_IN_ORDER_IN_ORDER_H

#include "backends/kernels/generator.h"

/* Emits a group of one such op alone. False: another group. */
bool kernel_in_order(struct kernel *g);

#endif
