/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a group reads and writes: buffers, weights, inputs, outputs and slices of states. Barriers follow
 * from it (order.c), and the addresses that kernels are given, in objects and in OpenCL.
 */
#ifndef TFMC_BACKENDS_PLAN_TOUCH_H
#define TFMC_BACKENDS_PLAN_TOUCH_H

#include "backends/plan/emit.h"

/* One use. */
struct touch {
	struct ir_value value; /* as the group names it; none: a state op names its state */
	struct ir_value base;  /* whose memory it is; none: the slice */
	struct binding_slice slice;
	bool is_outer;   /* value is no result of an op inside the group */
	bool is_written; /* otherwise read */
};

struct touches {
	struct touch *items;
	size_t n, cap;
};

/* Appends what the ops of the group read and write, in their order, then its results; constants and what is
 * computed inside have no memory. False: no memory here. */
TFMC_MUST_USE bool touch_group(const struct object *o, const struct function *f, const struct ir_op *group,
                               struct touches *out);
bool touch_same_memory(const struct touch *a, const struct touch *b);

#endif
