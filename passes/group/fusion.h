/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fusion: which ops become one kernel. A cluster is a set of ops around a root; only the results of its last op
 * leave it, all other members are read by members only. So a cluster is emitted where its last op is, and nothing
 * is computed twice. The exception is a linear with column ranges (column_ranges.c): it has a result for each
 * range and is emitted where its root is, since everything that its members read from outside is available there.
 */
#ifndef TFMC_PASSES_GROUP_FUSION_H
#define TFMC_PASSES_GROUP_FUSION_H

#include "ir/target/tile.h"
#include "passes/framework/pass_impl.h"

enum member_role {
	MEMBER_PRE, /* prologue: evaluated at the element or row that the root works on */
	MEMBER_ROOT,
	MEMBER_POST, /* epilogue: after the root, on its result */
};

struct cluster {
	int kind; /* GROUP_* */
	const struct ir_op *root, *last;
	const struct ir_op *emit_at; /* emitted here: at the last member that is not a view, or at the root */
	size_t n_ops;                /* not counting constants and weight references */
	bool has_norm_epilogue;      /* the epilogue has a norm of rows, so the kernel computes whole rows */
	bool is_full;                /* phase 2: no further prologue */
	size_t first_prologue;       /* phase 2: 1 + the index of the earliest prologue; 0: none */
	uint32_t *inputs; /* buffers that root and prologues read; NULL before the first prologue */
	size_t n_inputs;
	/* Linear with column ranges: the last op of each range, in column order; `last` is unused. Else n_outputs is
	 * 0. */
	const struct ir_op **outputs;
	size_t n_outputs;
};

struct fusion_plan {
	const struct ir_op **ops; /* all ops with results and without regions, in program order */
	size_t n_ops;
	size_t *index_of;          /* [n_values] index of the defining op + 1 */
	size_t *cluster_of;        /* [n_ops] cluster + 1; 0: in none */
	enum member_role *role_of; /* [n_ops] */
	bool *needs_memory;        /* [n_ops] constants that some reader needs in memory */
	struct {
		struct cluster *items;
		size_t n, cap;
	} clusters;
	size_t *first_member; /* [clusters.n] index of the first member */
	size_t *next_member;  /* [n_ops] index of the next member, or n_ops */
	uint32_t *uses;       /* [n_values] */
};

/* Forms the clusters of f, by the settings of the pass. Returns false when memory ran out. */
bool form_clusters(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                   struct fusion_plan *out);

/* Index in plan->ops of an op with results. */
size_t fusion_op_index(const struct fusion_plan *g, const struct ir_op *op);
/* The cluster that contains op, or NULL. */
const struct cluster *fusion_cluster_of(const struct fusion_plan *g, const struct ir_op *op);
/* The type and block of a quantize_rows op. */
struct activation_quant rounding_of(const struct ir_op *op);
/*
 * op is quantize_rows (dynamic quantization of activations) and `linear` quantizes its rows inside its kernel. Every
 * such linear does, even if others read the same rows, so that its arithmetic does not depend on other readers.
 */
bool rounds_inside_linear(const struct pass_context *p, const struct ir_func *f, const struct ir_op *linear,
                          const struct ir_op *op);
/* op is full, iota or dim_value. */
bool fusion_is_constant(const struct ir_op *op);
/* A constant that is operand i of a member is cloned into the group and evaluated in place. */
bool fusion_constant_in_place(const struct ir_func *f, const struct ir_op *op, size_t i);

/* ---- state of the analysis ---- */

struct user_list {
	const struct ir_op **items;
	size_t n, cap;
};

struct fuser {
	struct pass_context *p;
	const struct ir_module *m;
	const struct ir_func *f;
	struct fusion_plan *g;
	struct user_list *users; /* [n_values] readers of each value, one entry for each operand */
	size_t *next_prologue; /* [n_ops] phase 2: 1 + the index of the next prologue of the cluster; 0: none */
	size_t max_ops;        /* setting: ops of a cluster (fusion_ops_max) */
	bool norms;            /* setting: norms may be fused into linears */
	bool failed;
};

bool fusion_is_elementwise(const struct ir_op *op);
/* op is elementwise and reads operand i at the element that it computes (no broadcast). */
bool fusion_reads_same_element(const struct ir_func *f, const struct ir_op *op, size_t i);
/* True for an absent value. */
bool fusion_is_f32(const struct ir_func *f, struct ir_value v);
/* op is elementwise integer arithmetic, cheap enough to be recomputed for every element that uses it. */
bool fusion_is_index_arithmetic(const struct ir_func *f, const struct ir_op *op);
/* op must be computed by a group (it is not a view, constant, region ..) and is in no cluster yet. */
bool fusion_is_unassigned(const struct fuser *s, const struct ir_op *op);
void fusion_assign(struct fuser *s, const struct ir_op *op, size_t cluster, enum member_role role);
/* Kind of the group whose root is op: GROUP_loops unless a kernel generator is specialized for it. */
int fusion_kernel_kind(const struct ir_func *f, const struct ir_op *op);
/* The most ops of a cluster of that kind: the setting, fewer where kernels are unrolled. */
size_t fusion_ops_max(const struct fuser *s, int kind);
/* A state of which op reads a slice, in place, is written between op and `at`: op may not be emitted there. */
bool fusion_state_is_written_between(const struct fuser *s, const struct ir_op *op, const struct ir_op *at);
/* The only op that reads v (perhaps with several operands), in the region of v; NULL: there is no such op. */
const struct ir_op *fusion_single_reader(const struct fuser *s, struct ir_value v);

/*
 * Column ranges begin at multiples of a packed panel (NR columns); on devices anywhere if all columns are one
 * block.
 */
#define RANGE_ALIGN 16
/* A head of a range lies within a block of at most this many columns. */
#define RANGE_BLOCK_MAX 256
#define RANGES_MAX      8

/*
 * Adds to the linear of `cluster` the ops of its column ranges: slices of its result along the last axis (or the
 * whole result), the epilogue of each range, an elementwise op of two ranges (gate and up), the split into heads,
 * rope, and writes into states. Returns false, without changes, if there are no ranges or they cannot be computed
 * together.
 */
bool fuse_column_ranges(struct fuser *s, size_t cluster);

/* ---- prologues ---- */

/* The input of the linear, before it is rounded inside the kernel. */
struct ir_value unrounded_input(const struct fuser *s, const struct ir_op *linear);
/* The only reader of v, looking through a rounding that the reader performs itself; NULL: none or several. */
const struct ir_op *reader_through_rounding(const struct fuser *s, struct ir_value v);

/* ---- norms ---- */

/* op is a norm of rows that the linear of c may compute as the end of its epilogue. */
bool can_fuse_norm_epilogue(const struct fuser *s, const struct cluster *c, const struct ir_op *op);
/*
 * The only linear whose input is this norm, if its kernel may compute the norm as prologue; else NULL, with a
 * remark.
 */
const struct ir_op *norm_prologue_linear(struct fuser *s, const struct ir_op *norm);
/* Adds the norm before the linear of `cluster` to it as prologue, if possible. */
void fuse_norm_prologue(struct fuser *s, size_t cluster);

#endif
