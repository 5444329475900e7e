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
/* Elements of a row that one worker computes: few where thousands of them are next to each other. */
int64_t kernel_loops_block(const struct target *t);
/* True for groups that the rowwise template computes (backends/rows/rowwise.h). */
bool kernel_is_rowwise(const struct attrs_group *attrs, const struct ir_op *root);
/* linear with packed weights. False when an operand does not lie as the tile needs it. */
bool kernel_linear(struct kernel *g);
/* The same for expert_linear: rows are gathered by expert. */
bool kernel_expert_linear(struct kernel *g);
/* The same by a work-group of GPU_ITEMS items, which share the work of a tile. */
bool kernel_linear_shared(struct kernel *g);
#define GPU_ITEMS   64
#define GPU_COLUMNS 64 /* of a tile of many rows; where a call has few it is one panel */
/* Rows of a tile of many when there are at most `rows`: 8, 16, 32 or 64. */
int64_t kernel_linear_shared_rows(int64_t rows);
/* Rows are in backends/rows/rowwise.h, attention in backends/attention/attention.h. */

/* A loop along the last axis: whole vectors, then what is left. `body` is recorded for both. */
struct row_loop {
	struct eval *e;
	struct kb_val lo, hi; /* hi - lo: length; lo a multiple of nothing */
	int lanes;
	struct eval_point *at; /* index[last] and vec are set for the body */
	void (*body)(void *user, struct eval *e, const struct eval_point *at);
	void *user;
};

/* Elements [lo, hi) of one row of an output; the other indices of `at` are set. */
void kernel_output_row(struct kernel *g, struct eval_output *o, struct eval_point *at, struct kb_val lo,
                       struct kb_val hi);

/* A write of x into the slice of a state: state_append, state_write. */
struct kernel_write {
	const struct ir_op *op;
	struct ir_value x;
	struct eval_tensor to;
	int shifted;       /* axis of `to` that begins at past[b], -1: none */
	struct kb_val row; /* on that axis, of the open row */
};
/* False after a refusal. */
bool kernel_make_write(struct kernel *g, const struct ir_op *op, struct kernel_write *w);
/* Elements [lo, hi) of one row of x; rows that do not fit into the state are dropped. */
void kernel_write_row(struct kernel *g, struct kernel_write *w, struct eval_point *at, struct kb_val lo,
                      struct kb_val hi);

/* True when a group has functions that take many instructions. */
bool kernel_has_functions(const struct kernel *g);

#endif
