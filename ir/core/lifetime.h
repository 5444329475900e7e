/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live ranges of values, as intervals of time counted in groups (kernels) in program order. A use inside a repeat
 * extends the range to the whole repeat, unless the value is defined in the same iteration. A carry is several values
 * that share one buffer: the init, the argument of the body, the yield and the result of the repeat.
 */
#ifndef TFMC_IR_CORE_LIFETIME_H
#define TFMC_IR_CORE_LIFETIME_H

#include "ir/core/module.h"

struct ir_lifetimes {
	size_t n_times;
	const struct ir_op **groups; /* [n_times] in program order */
	size_t *first, *last;        /* [n_values] live range, inclusive; first > last: never in memory */
	uint32_t *carry; /* [n_values] representative of the carry of v; outside of carries v itself */
};

/* f: in stage groups or plan. Arrays are in `a`. False without memory. */
TFMC_MUST_USE bool ir_lifetimes(struct arena *a, const struct ir_func *f, struct ir_lifetimes *out);
/* The live ranges overlap. */
static inline bool ir_lifetimes_overlap(const struct ir_lifetimes *l, struct ir_value a, struct ir_value b)
{
	return l->first[a.id] <= l->last[b.id] && l->first[b.id] <= l->last[a.id];
}

#endif
