/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside plan-memory: which values share memory (alias.c), which buffers a
 * function has and when they are alive (live.c), and where they lie (pack.c).
 * Sizes are coefficient times unit: buffers with the same unit are one lane.
 */
#ifndef TFMC_PASSES_PLAN_PLAN_H
#define TFMC_PASSES_PLAN_PLAN_H

#include "ir/analysis/lifetime.h"
#include "passes/framework/pass_impl.h"

#define PLAN_ALIGN 64
/* Packing compares all pairs. */
#define PLAN_BUFFERS_MAX 8192

/* ---- values that share memory (alias.c) ---- */

struct plan_classes {
	const struct ir_module *m;
	const struct ir_func *f;
	struct ir_lifetimes life;
	uint32_t *class_of; /* [f->n_values] representative; values of one class share memory */
	uint32_t *next;     /* [f->n_values] the members of a class, as a ring */
	bool *in_arena;     /* [f->n_values] memory of the planner: a group's result, or a carry of such */
};

/* Classes of the carries, then of results that are written over what their group reads. Counts and remarks.
 */
TFMC_MUST_USE enum tfmc_status plan_classes(struct pass_context *p, const struct ir_module *m,
                                            const struct ir_func *f, bool in_place, struct plan_classes *out);

/*
 * What computes the value or carries it, `layers.qkv linear (model.yaml:14), %q`, the name of one of several results behind
 * it. In IR text, which has no paths, `%q`. NULL when memory ran out.
 */
const char *plan_value_text(struct pass_context *p, const struct ir_func *f, struct ir_value v);

/* ---- buffers (live.c) ---- */

/* Buffers and lifetimes of f (stage groups). */
struct plan_live {
	struct plan_func *plan; /* buffers with lane and size, lanes with unit, n_times; dims of m */
	size_t *buffer_of;      /* [f->n_values] buffer + 1; 0: none of the arena */
};
TFMC_MUST_USE enum tfmc_status plan_live(struct pass_context *p, const struct ir_module *m,
                                         const struct ir_func *f, struct plan_live *out);

/* ---- places ---- */

/*
 * Offsets of all buffers, then arena, lower bound and gaps of the whole. That buffers which are alive
 * together lie apart is proved by ir_verify. Dims are of `dims`; works in `a`. False when memory ran out.
 */
TFMC_MUST_USE bool plan_pack(struct arena *a, struct ir_dims *dims, struct plan_func *plan);

#endif
