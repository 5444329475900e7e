/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of plan-memory: which buffers a function has and when they are alive
 * (plan_live.c), and where they lie (plan_pack.c). Sizes are coefficient times
 * unit: buffers with the same unit are one lane, and a packing of the
 * coefficients is a packing for every value of the dims.
 */
#ifndef TFMC_PASSES_PLAN_H
#define TFMC_PASSES_PLAN_H

#include "passes/pass_impl.h"

#define PLAN_ALIGN 64
/* Packing compares all pairs. */
#define PLAN_BUFFERS_MAX 8192

/* Buffers and lifetimes of f (stage groups). */
struct plan_live {
	struct plan_func *plan; /* buffers with lane and size, lanes with unit, n_times; dims of m */
	size_t *buffer_of;      /* [f->n_values] buffer + 1; 0: none of the arena */
};
TFMC_MUST_USE enum tfmc_status plan_live(struct pass_context *p, const struct ir_module *m,
                                         const struct ir_func *f, struct plan_live *out);

/* Fills offsets, peaks and lower bounds of all lanes. False when memory ran out. */
bool plan_pack(struct arena *a, struct plan_func *plan);
/* No two buffers of a lane share bytes while both are alive, and all lie below its peak. NULL, or what is
 * wrong. */
const char *plan_check(struct arena *a, const struct plan_func *plan);

#endif
