/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that scan rows in order: cumsum, topk, last_at. The generator (in_order.c) scans each row once, with
 * state carried from element to element. The evaluator (eval_in_order.c) computes any single element, for
 * groups that the generator does not accept.
 */
#ifndef TFMC_BACKENDS_IN_ORDER_IN_ORDER_H
#define TFMC_BACKENDS_IN_ORDER_IN_ORDER_H

#include "backends/kernel/generator.h"

/* An element and its index. Larger values rank first, then lower indices; NaN ranks last. */
struct ranked {
	struct kb_val value, index;
};
/* bool: a ranks after b. */
struct kb_val ranked_after(struct kb *k, struct ranked a, struct ranked b);
/* An index as a value of type s, as topk stores it. */
struct kb_val ranked_index(struct kb *k, struct kb_val index, enum kb_scalar s);

/* Emits a group of one such op alone. False: another group. */
bool kernel_in_order(struct kernel *g);

#endif
