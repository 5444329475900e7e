/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the values of a function hold something that is still read, counted in
 * groups in program order. What reads a value from inside a repeat keeps it
 * alive for the whole repeat, unless the value is made anew in every iteration.
 * A carry is several values in one memory: its first value, the argument of the
 * body, what the body yields, and the result.
 */
#ifndef TFMC_IR_ANALYSIS_LIFETIME_H
#define TFMC_IR_ANALYSIS_LIFETIME_H

#include "ir/core/module.h"

struct ir_lifetimes {
	size_t n_times;
	const struct ir_op **groups; /* [n_times] in program order */
	size_t *first, *last;        /* [n_values] inclusive times; first > last: not in memory */
	uint32_t *carry; /* [n_values] representative of the values that share memory by a carry */
};

/* f: stage groups or plan. False when memory ran out. */
TFMC_MUST_USE bool ir_lifetimes(struct arena *a, const struct ir_func *f, struct ir_lifetimes *out);
/* Both hold something at the same time. */
static inline bool ir_lifetimes_overlap(const struct ir_lifetimes *l, struct ir_value a, struct ir_value b)
{
	return l->first[a.id] <= l->last[b.id] && l->first[b.id] <= l->last[a.id];
}

#endif
