/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether workers must wait for each other between two groups. The schedule asks
 * for every group about those since the last barrier.
 */
#ifndef TFMC_BACKENDS_PLAN_ORDER_H
#define TFMC_BACKENDS_PLAN_ORDER_H

#include "backends/plan/object.h"

/* Neither writes memory that the other one touches: they may run at the same time. */
bool order_is_free(const struct object *o, const struct function *f, const struct ir_op *before,
                   const struct ir_op *group);
/*
 * `before` is the linear that gives `group`, attention of one new token, its queries, keys and values: parts
 * of equal heads such that a worker that computes the columns and the attention of whole parts needs nothing
 * of another worker. 1: there are none, or the two share other memory.
 */
int64_t order_parts(const struct object *o, const struct function *f, const struct ir_op *before,
                    const struct ir_op *group);

#endif
