/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows of each value somebody reads: all of them, or one row of each
 * sequence, at[b] of an axis. The facts are found backward over a function
 * (demand.c, by the rules of rule.c) before anything is rewritten.
 *
 * The axis of a value that holds the rows is never 0: that one counts sequences.
 */
#ifndef TFMC_PASSES_DEMAND_DEMAND_H
#define TFMC_PASSES_DEMAND_DEMAND_H

#include "passes/framework/pass_impl.h"

#define DEMAND_OPERANDS_MAX 16

/* What picks rows: take_rows x, at, or slice x {axis=1 begin size=1}; one row of all sequences is a slice. */
struct demand_key {
	const struct ir_dim *batch, *rows; /* axes 0 and 1 of x */
	struct ir_value at;                /* i32[batch]; none: the row is `begin` of every sequence */
	const struct ir_dim *begin;
};

struct demand {
	bool all;   /* somebody reads all rows */
	bool taken; /* the op is computed on the rows of the key */
	bool kept;  /* not taken, nor views of it: it becomes one linear with others that need all rows */
	int axis;   /* > 0: somebody reads the rows of the key along this axis */
};

struct demand_plan {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	bool may_peel;
	struct demand_key key;
	struct demand *of; /* [f->n_values] */
	bool *peel; /* [f->n_values] by the first result of a repeat: its last iteration is computed apart */
	size_t products; /* contractions that are taken */
	size_t ops;      /* ops that are taken */
	size_t kept, peeled;
	const struct ir_op *refused; /* a repeat that keeps its last iteration though rows of it are picked */
	const char *why;
};

/*
 * Chooses what picks rows in f (that by which most products become smaller) and finds the demand for it.
 * False when no product becomes smaller; with remarks the reasons are said.
 */
bool demand_find(struct demand_plan *plan);
/* op picks the rows of the key. */
bool demand_is_root(const struct demand_plan *plan, const struct ir_op *op);
/*
 * The rows of op's result along `axis` can be computed from rows of its operands: axes[i] is the axis of the
 * rows in operand i, 0 when it is read whole.
 */
bool demand_rule(const struct demand_plan *plan, const struct ir_op *op, int axis, int *axes);

#endif
