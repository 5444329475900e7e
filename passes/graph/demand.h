/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demand analysis (backward slicing by row): for each value, whether its readers need all rows, or one row of each
 * sequence, at[b] along some axis. Computed backward over a function before anything is rewritten.
 *
 * The row axis of a value is never axis 0, which is the batch axis.
 */
#ifndef TFMC_PASSES_GRAPH_DEMAND_H
#define TFMC_PASSES_GRAPH_DEMAND_H

#include "passes/framework/pass_impl.h"

#define DEMAND_OPERANDS_MAX 16

/* A row selection: select_rows x, at (a row per sequence), or slice x {axis=1 begin size=1} (the same row of all). */
struct demand_key {
	const struct ir_dim *batch, *rows; /* axes 0 and 1 of x */
	struct ir_value at;                /* i32[batch]; absent: the row is `begin` in every sequence */
	const struct ir_dim *begin;
};

struct demand {
	bool all_rows;       /* some reader needs all rows */
	bool is_reduced;     /* the op is computed for the selected rows */
	bool stays_complete; /* all rows are computed, also of views: merge-linear needs them */
	int axis;            /* > 0: some reader needs the selected rows along this axis */
};

struct demand_plan {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	bool may_peel;
	struct demand_key key;
	struct demand *of;   /* [f->n_values] */
	bool *peel;          /* [f->n_values] by first result of a repeat: peel its last iteration */
	size_t contractions; /* number of reduced contractions (matmul, linear, attention) */
	size_t ops;          /* number of reduced ops */
	size_t n_complete, peeled;
	const struct ir_op *unpeeled; /* a repeat of selected rows that cannot be peeled */
	const char *reason;           /* why it cannot */
};

/*
 * Computes the demand for each row selection in f and keeps the one that makes most contractions smaller. Returns
 * false, with remarks, if there is none.
 */
bool demand_find(struct demand_plan *plan);
/* op is the row selection of plan->key. */
bool demand_is_selection(const struct demand_plan *plan, const struct ir_op *op);
/*
 * Whether a row of op's result along `axis` can be computed from rows of its operands. axes[i]: the row axis of
 * operand i, or 0 if the complete operand is read.
 */
bool demand_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes);

#endif
