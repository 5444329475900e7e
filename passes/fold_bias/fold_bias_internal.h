/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files that find what fold-bias may fold: fold_bias_sites.c sees
 * states and linears, fold_bias_outs.c the attentions and what projects them.
 */
#ifndef TFMC_PASSES_FOLDS_FOLD_BIAS_INTERNAL_H
#define TFMC_PASSES_FOLDS_FOLD_BIAS_INTERNAL_H

#include "passes/fold_bias/fold_bias.h"

#define BIAS_VIEWS_MAX 16

/* What a state holds, decided by its readers and writers. */
struct bias_state {
	const struct ir_state_decl *state;
	struct bias_node node;
	bool keys, values; /* read as these */
	bool appended, written;
	bool open_reader;             /* a reader may see rows that no append gave */
	const struct ir_weight *bias; /* of the linears that write it */
	struct bias_columns at;
	bool has_writer;
};

struct bias_finder {
	struct pass_context *p;
	const struct ir_module *m;
	struct bias_sites *sites;
	struct func_uses *uses;
	struct bias_state *states;  /* [m->states.n] */
	const struct ir_op *linear; /* whose leaves are seen, NULL: a slice of `state` */
	const struct ir_op *access; /* the op that gives the slice */
	struct bias_state *state;
	unsigned char *columns; /* [N] of the linear: 1 << kind, or OTHER */
	int64_t n_columns;
};

/* A reason against the set of n; the first one stays. */
void bias_refuse(struct bias_node *n, const char *why);
struct bias_state *bias_info_of(struct bias_finder *d, struct ir_value state);
bool bias_same_values(const struct bias_finder *d, const struct ir_value *a, size_t n,
                      const struct ir_value *b, size_t k);
/* The indices of an op on state. */
const struct ir_value *bias_state_indices(const struct ir_op *op, size_t *n);
/* The marks of a linear and of an attention; NULL when memory ran out. */
struct bias_linear *bias_linear_mark(struct bias_finder *d, const struct ir_op *op);
struct bias_site *bias_site_mark(struct bias_finder *d, const struct ir_op *op);
/* A view or take_rows whose result has the last axis of its operand. */
bool bias_keeps_last_axis(const struct bias_finder *d, const struct ir_op *op);
/* Visits an attention: the reasons against it, and its projections. */
ir_visit bias_see_attention;

#endif
