/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that walk over rows in order: cumsum, topk, last_at. The template computes a
 * row with what it knows of the elements before; the evaluator, element by element,
 * whatever the group is.
 */
#ifndef TFMC_BACKENDS_IN_ORDER_IN_ORDER_H
#define TFMC_BACKENDS_IN_ORDER_IN_ORDER_H

#include "backends/kernel/generator.h"

/* An element and where it is; larger ones come first, then lower indices; NaN comes last. */
struct ranked {
	struct kb_val value, index;
};
/* a comes after b. */
struct kb_val ranked_behind(struct kb *k, struct ranked a, struct ranked b);
/* An index as a number of type s. */
struct kb_val ranked_number(struct kb *k, struct kb_val index, enum kb_scalar s);

/* False for groups that are anything else, or hold anything else. */
bool kernel_in_order(struct kernel *g);

#endif
