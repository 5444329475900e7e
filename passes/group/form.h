/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which ops become one kernel. A cluster has one last op, whose results leave
 * it; every other member is read by members only. So a cluster can be emitted
 * where its last op is, and nothing is computed twice. A linear with parts
 * has a result for each part and is emitted where its root is: whatever its
 * members read from outside is there by then (parts.c).
 */
#ifndef TFMC_PASSES_GROUP_FORM_H
#define TFMC_PASSES_GROUP_FORM_H

#include "ir/target/tile.h"
#include "passes/framework/pass_impl.h"

enum member_role {
	MEMBER_PRE, /* evaluated at the element or row that the root works on */
	MEMBER_ROOT,
	MEMBER_POST, /* after the root, on its result */
};

struct cluster {
	int kind; /* GROUP_* */
	const struct ir_op *root, *last;
	const struct ir_op
	        *at;  /* the member at whose place it is emitted: the last one that is no view, or the root */
	size_t n_ops; /* without constants and weight references */
	bool has_norm; /* after the root: a kernel of whole rows */
	/* Of a linear with parts: the ends of its parts, in order of columns; last is meaningless. 0
	 * elsewhere. */
	const struct ir_op **ends;
	size_t n_ends;
};

struct formed {
	const struct ir_op **ops; /* all ops that are in clusters, views and constants, in program order */
	size_t n_ops, cap_ops;
	size_t *index_of;          /* [n_values] op index + 1 by any result */
	size_t *cluster_of;        /* [n_ops] cluster + 1; 0: in no cluster */
	enum member_role *role_of; /* [n_ops] */
	bool *in_memory;           /* [n_ops] constants that something reads from memory */
	bool *repeats_norm;        /* [n_ops] linears whose input is a norm that others compute, too */
	struct {
		struct cluster *items;
		size_t n, cap;
	} clusters;
	size_t *first_of; /* [clusters.n] index of the first member */
	size_t *next_of;  /* [n_ops] index of the next member, or n_ops */
	uint32_t *uses;   /* [n_values] */
};

/* Forms the clusters of a function of at most max_ops ops each. False when memory ran out. */
bool group_form(struct pass_context *p, const struct ir_module *m, const struct ir_func *f, size_t max_ops,
                struct formed *out);

/* Index of an op with results in `ops`. */
size_t formed_index(const struct formed *g, const struct ir_op *op);
/* The cluster of op, or NULL. */
const struct cluster *formed_cluster(const struct formed *g, const struct ir_op *op);
/* What round_rows rounds to. */
struct activation_quant group_rounding(const struct ir_op *op);
/* op is round_rows for a linear whose kernel multiplies integers or bf16: each such linear rounds for itself,
 * so that its arithmetic does not depend on what else reads the rows. */
bool group_rounds_for(const struct pass_context *p, const struct ir_func *f, const struct ir_op *linear,
                      const struct ir_op *op);
/* full, iota or dim_value. */
bool group_is_constant(const struct ir_op *op);
/* A constant as operand i of a member is a member itself, evaluated in place. */
bool group_constant_inside(const struct ir_func *f, const struct ir_op *op, size_t i);

#endif
