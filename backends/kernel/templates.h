/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The templates and what they share. Each emits the whole body of one group:
 * tasks are split over workers by a fixed rule, every result element is computed
 * by one worker in an order that does not depend on the split.
 */
#ifndef TFMC_BACKENDS_KERNEL_TEMPLATES_H
#define TFMC_BACKENDS_KERNEL_TEMPLATES_H

#include "backends/kernel/eval.h"

/* What every template starts from. */
struct kernel {
	struct eval *e;
	struct kb *k;
	const struct kernel_job *job;
	const struct attrs_group *attrs;
	const struct ir_op *root;
	struct eval_outputs out;
};

/* Any op, by element: elementwise, movement, reductions, products, writes into state. */
void kernel_loops(struct kernel *g);
/* linear with packed weights. False when an operand does not lie as the tile needs it. */
bool kernel_linear(struct kernel *g);
/* Rows are in rowwise.h, attention in attention.h. */

/* A loop along the last axis: whole vectors, then what is left. `body` is recorded for both. */
struct row_loop {
	struct eval *e;
	struct kb_val lo, hi; /* hi - lo: length; lo a multiple of nothing */
	int lanes;
	struct eval_point *at; /* index[last] and vec are set for the body */
	void (*body)(void *user, struct eval *e, const struct eval_point *at);
	void *user;
};
void kernel_row_loop(const struct row_loop *l);

/* True when a group has functions that take many instructions. */
bool kernel_has_functions(const struct kernel *g);

#endif
