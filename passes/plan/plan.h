/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of plan-memory: which values share memory (alias.c), which buffers a
 * function has and when they are alive (live.c), and where they lie
 * (pack.c, search.c, lanes.c). Sizes are coefficient times unit:
 * buffers with the same unit are one lane, and a packing of the coefficients is
 * a packing for every value of the dims.
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
 * Offsets of all buffers, blocks, peaks and lower bounds (pack.c), then bases of the blocks, arena and
 * lower bound of the whole (lanes.c). Allocates blocks in `keep`, works in `a`. False when memory ran
 * out.
 */
TFMC_MUST_USE bool plan_pack(struct arena *a, struct arena *keep, struct ir_dims *dims,
                             struct plan_func *plan);

/*
 * Branch and bound over buffers of one block (search.c) whose best known packing has the peak `peak`:
 * writes offsets of a better one when it finds any. True when the offsets are optimal.
 */
bool plan_search(struct arena *a, struct plan_buffer **buffers, size_t n, size_t n_times, int64_t peak,
                 int64_t bound);

/* A gap at the largest dims counts so much: those are the bytes that callers have. */
#define PLAN_LARGEST_WEIGHT 8

/* One way to lay blocks on top of each other, measured (lanes.c). */
struct plan_stack {
	struct plan_func *plan;
	struct arena *arena;
	size_t *order;               /* [n_blocks] from the bottom up */
	int64_t *base;               /* [n_blocks][n_lanes] coefficients of the units */
	double (*unit)[PLAN_POINTS]; /* [n_lanes] bytes for each coefficient at the points */
	int64_t *least; /* [n_lanes][n_lanes] unit i is at least so many times unit j; 0: not known */
	double bound[PLAN_POINTS];       /* bytes that are alive at once, at least */
	double arena_bytes[PLAN_POINTS]; /* of this stack */
};
TFMC_MUST_USE bool plan_stack_begin(struct plan_stack *s, struct arena *a, struct ir_dims *dims,
                                    struct plan_func *plan);
/* Bases for the offsets that buffers have now, with lanes in the order number `turn`; the largest weighted
 * gap. */
double plan_stack_try(struct plan_stack *s, size_t turn);
/* Orders of lanes that are worth a try. */
size_t plan_stack_turns(const struct plan_stack *s);
/* Writes the bases of the last try into the plan, with arena, lower bound and gaps. */
void plan_stack_keep(struct plan_stack *s, struct ir_dims *dims);

/*
 * Packs buffer by buffer (mixed.c). When that makes the largest gap smaller than `gap`, every buffer is
 * a block of its own, with bases for plan_stack_keep; gives the new gap. Negative: it does not, the plan is
 * as it was.
 */
double plan_mixed(struct plan_stack *s, struct arena *keep, double gap);

/* No two buffers of a block share bytes while both are alive, and all lie below its peak at multiples of 64.
 * NULL, or what is wrong. That blocks are apart is proved by ir_verify. */
const char *plan_check(struct arena *a, const struct plan_func *plan);

#endif
