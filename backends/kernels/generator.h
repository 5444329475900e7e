/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel generators and the state they share. A generator emits the body of the kernel of one group;
 * backends/kernels/group.c chooses it. Tasks are divided among workers by
 * eval_worker_range; every result element is computed by one worker, in an order that does not depend on the number
 * of workers.
 */
#ifndef TFMC_BACKENDS_KERNELS_GENERATOR_H
#define TFMC_BACKENDS_KERNELS_GENERATOR_H

#include "backends/kernels/eval.h"
#include "backends/kernels/gpu_nest.h"

/* The kernel being generated. */
struct kernel {
	struct eval *e;
	struct kb *k;
	const struct kernel_job *job;
	const struct attrs_group *attrs;
	const struct ir_op *root;
	struct eval_outputs out;
};

/* Any op, element by element: elementwise ops, data movement, reductions, contractions, writes to states. The
 * fallback for groups without a faster generator. */
void kernel_loops(struct kernel *g);
/* GEMM of `linear` with packed weights. False if the layout of an operand does not fit: the caller uses
 * kernel_loops. */
bool kernel_linear(struct kernel *g);
/* kernel_linear for expert_linear (mixture of experts): the rows of each expert are gathered. */
bool kernel_expert_linear(struct kernel *g);
/* kernel_linear by work-groups: GPU_ITEMS work-items compute a tile together (gpu_gemm.c). */
bool kernel_workgroup_linear(struct kernel *g);

/* Evaluates and stores elements [lo, hi) of one row of an output; the other indices of `at` are given. */
void kernel_output_row(struct kernel *g, struct eval_output *o, struct eval_point *at, struct kb_val lo,
                       struct kb_val hi);

/* A write of x into a slice of a state (state_append, state_write), such as new keys into the KV cache. */
struct kernel_write {
	const struct ir_op *op;
	struct ir_value x;
	struct eval_tensor to;
	int shifted;       /* axis of `to` whose indices begin at past[b]; -1: none */
	struct kb_val row; /* index on that axis of the row being written */
};
/* Binds the state that op writes. False after a diagnostic. */
bool kernel_make_write(struct kernel *g, const struct ir_op *op, struct kernel_write *w);
/* Writes elements [lo, hi) of one row of x; rows beyond the end of the state are dropped. */
void kernel_write_row(struct kernel *g, struct kernel_write *w, struct eval_point *at, struct kb_val lo,
                      struct kb_val hi);

/* A text for the nest of a group in words; without remarks a failed one, to which nothing is appended. */
struct buf kernel_begin_remark(const struct kernel_job *job);
/* Reports the text as a remark; destroys it. */
void kernel_remark_nest(const struct kernel_job *job, struct buf *text);
/* True if the group contains transcendental functions, which cost many instructions for each element. */
bool kernel_has_functions(const struct kernel *g);

#endif
