/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which biases of keys and values fold-bias may move: linears, the attentions
 * that read them directly or through state, and the reasons against it. What is
 * linked by one weight or one state is decided together, in all functions.
 */
#ifndef TFMC_PASSES_FOLDS_FOLD_BIAS_H
#define TFMC_PASSES_FOLDS_FOLD_BIAS_H

#include "passes/weights/module_uses.h"

#define BIAS_OUTS_MAX 8

enum bias_kind { BIAS_K, BIAS_V, BIAS_KINDS };

/* Columns h * stride + begin + e of a linear, h < heads, e < width; heads * stride columns in all. */
struct bias_columns {
	int64_t heads, stride, begin, width;
};

/* Sets of what must be decided together. */
struct bias_node {
	struct bias_node *parent; /* NULL: the root */
	const char *why;          /* of a root: the reason against it */
	struct ir_loc loc;        /* where to say so */
	bool said;
	int64_t number; /* of the application: one for the set */
};

struct bias_source {
	const struct ir_weight *bias; /* NULL: the linear has none */
	bool has[BIAS_KINDS];
	struct bias_columns at[BIAS_KINDS];
	struct bias_node *node[BIAS_KINDS];
};

struct bias_site {
	const struct ir_func *f;
	const struct ir_op *attention;
	struct bias_node node[BIAS_KINDS];
	const struct ir_weight *values; /* bias of its values, NULL: none */
	struct bias_columns at;         /* where in `values` */
	const struct ir_op *outs[BIAS_OUTS_MAX];
	size_t n_outs;
};

/* The mark of a linear. */
struct bias_linear {
	struct bias_source source;
	struct bias_site *out; /* the attention whose output it projects, NULL: none */
};

struct bias_sites {
	struct module_uses *uses; /* marks: struct bias_linear of linears, struct bias_site of attentions */
};

/* NULL when memory ran out. */
struct bias_sites *bias_sites_collect(struct pass_context *p, const struct ir_module *m);
/* Every use of the bias w is one of a projection that gains. */
bool bias_changes_everywhere(const struct bias_sites *s, const struct ir_weight *w);
int64_t bias_node_number(struct bias_node *n);
/* The set of the node may be folded. */
bool bias_node_accepted(struct bias_node *n);

/*
 * A sequence of length 0 makes all rows of the attention 0. NULL when nothing
 * that a caller may see depends on these rows: they are masked by the same
 * lengths before. Otherwise what depends on them.
 */
const char *bias_dead_rows(struct arena *a, const struct module_uses *u, const struct ir_func *f,
                           const struct ir_op *attention);
/*
 * Every reader of the slices of state s is an attention whose keys are masked by lengths that were written
 * beside s: into a state that bias_lengths_beside gives for each writer.
 */
bool bias_state_masked(const struct module_uses *u, const struct ir_state_decl *s,
                       const struct ir_state_decl *lengths);
/* The state that `len` is written to in f, or NULL. */
const struct ir_state_decl *bias_lengths_beside(const struct ir_func *f, struct ir_value len);
/* v is >= 0, also when it is none: positions are counted from there. */
bool bias_not_negative(const struct ir_func *f, struct ir_value v);
/*
 * The causal attention on the slice that `append` gives sees no row behind those that it has just stored: its
 * past is that of the append, or a bounded step behind it (one row of the last layer).
 */
bool bias_sees_stored(const struct ir_module *m, const struct ir_func *f, const struct ir_op *attention,
                      const struct ir_op *append);

#endif
