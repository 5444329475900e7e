/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of plan-memory: classes of values that share memory (alias.c), buffers and their lifetimes (memory.c),
 * offsets (pack.c). A size is an integer coefficient times a symbolic unit; buffers with the same unit form a
 * lane.
 */
#ifndef TFMC_PASSES_PLAN_PLAN_H
#define TFMC_PASSES_PLAN_PLAN_H

#include "ir/core/lifetime.h"
#include "passes/framework/pass_impl.h"

#define PLAN_ALIGN 64
/* Packing compares all pairs of buffers. */
#define PLAN_BUFFERS_MAX 8192

/* ---- values that share memory (alias.c) ---- */

struct plan_classes {
	const struct ir_module *m;
	const struct ir_func *f;
	struct ir_lifetimes life;
	uint32_t *class_of; /* [f->n_values] representative; values of one class share memory */
	uint32_t *next;     /* [f->n_values] circular list of the members of a class */
	bool *in_arena;     /* [f->n_values] stored in the arena: the result of a group, or a carry */
};

/*
 * Computes the classes: the values of each carry, then (with in_place) results that a group writes over one of its
 * operands. Counts them and emits remarks.
 */
TFMC_MUST_USE enum tfmc_status plan_classes(struct pass_context *p, const struct ir_module *m,
                                            const struct ir_func *f, bool in_place, struct plan_classes *out);

/*
 * Description of a value for messages: the op that computes or carries it, `layers.qkv linear (model.yaml:14),
 * %q`, with the name if the op has several results. In IR text, which has no paths: `%q`. "" when memory ran
 * out.
 */
const char *plan_value_text(struct pass_context *p, const struct ir_func *f, struct ir_value v);

/* ---- offsets (pack.c) ---- */

/*
 * Computes the offsets of all buffers, and size, lower bound and gaps of the arena. (ir_verify proves that buffers
 * which are alive at the same time do not overlap.) Dims belong to `dims`; temporaries are in `a`. False when
 * memory ran out.
 */
TFMC_MUST_USE bool plan_pack(struct arena *a, struct ir_dims *dims, struct plan_func *plan);

#endif
