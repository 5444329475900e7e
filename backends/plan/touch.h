/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a group reads and writes: buffers, weights, inputs, outputs and slices of states. Barriers follow
 * from it, and the addresses that kernels are given, in objects and in OpenCL.
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

/* ---- where it lies ---- */
/* The memory of a use by e->group. False: no formula names it: a constant, a slice at an index that is computed. */
bool area_of(const struct emit *e, const struct touch *t, struct area *out);
/* Everything that e->group touches and area_of names, in order of its operands, results last; no two are the same
 * memory. Into e->areas. */
TFMC_MUST_USE enum tfmc_status areas_collect(struct emit *e);
/* Its address in the memory of an object, in a function that has loaded its dims and bases. */
struct kb_val area_address(struct emit *e, const struct area *a);
/* Of a use: in a kernel that one of e->pointers, elsewhere its address. False: there is none. */
bool area_pointer(struct emit *e, const struct touch *t, struct kb_val *out);

/* ---- whether workers wait (order.c) ---- */
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
