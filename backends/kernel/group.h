/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one group of the planned IR to kernel-builder calls. The caller (the
 * object) has begun a function and says through a binding where values lie;
 * kernel_emit_group emits the body that computes this worker's share.
 */
#ifndef TFMC_BACKENDS_KERNEL_GROUP_H
#define TFMC_BACKENDS_KERNEL_GROUP_H

#include "backends/kb/kb.h"
#include "ir/core/module.h"
#include "ir/target/target.h"

/* A size, stride or offset: a constant or a value (i64). */
struct kb_size {
	bool is_const;
	int64_t c;       /* when constant */
	struct kb_val v; /* when not (and also valid when constant) */
};

/* Where the elements of a value lie: element [i0, i1, ..] at ptr + (i0*stride[0] + i1*stride[1] + ..)
 * elements. */
struct kb_tensor {
	struct kb_val ptr;
	enum ir_dtype dtype;
	enum ir_format format; /* of a weight: PLAIN, a smaller float, which is dtype, or codes */
	/* PANEL16: ptr is the packed matrix, strides are meaningless; of a slice of a state [.., T, E]: the
	 * matrices of its last two axes, all other strides hold, that of E is 16. */
	enum ir_encoding encoding;
	/* Of the slice of a ring: index t of axis rank - 2 stands for t mod ring, a multiple of 16; else 0.
	 */
	int64_t ring;
	int rank;
	struct kb_size size[IR_RANK_MAX];
	struct kb_size stride[IR_RANK_MAX]; /* in elements; 0 where broadcast */
};

struct kernel_binding {
	/*
	 * The place of a value that is not computed inside the group: parameters, results of other groups,
	 * weight references, views of these (any chain of reshape, transpose, broadcast, slice), state
	 * slices, and the results of this group (where its yields are stored). False: not addressable (an
	 * internal error).
	 */
	bool (*tensor)(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out);
	/* The slice [B, rest] of the state that a state op works on. */
	bool (*state)(void *user, struct kb *k, const struct ir_op *op, struct kb_tensor *out);
	/* The value of a dim expression (i64). */
	struct kb_size (*dim)(void *user, struct kb *k, const struct ir_dim *d);
	/* The value of a repeat's index (i64) when v is one; none otherwise. */
	struct kb_val (*index)(void *user, struct kb *k, struct ir_value v);
	void *user;
};

/* The calls that a kernel is for, by their rows: kernel_few_rows. */
enum { KERNEL_FEW_ROWS_MAX = 8 };
enum kernel_rows { KERNEL_ANY_ROWS, KERNEL_FEW_ROWS /* at most KERNEL_FEW_ROWS_MAX */, KERNEL_MANY_ROWS };

struct kernel_job {
	struct kb *k;
	const struct ir_module *module;
	const struct ir_func *func;
	const struct ir_op *group; /* OP_group */
	const struct target *target;
	const struct kernel_binding *bind;
	struct kb_val worker;    /* index, 0 .. n_workers - 1 */
	struct kb_val n_workers; /* index, >= 1 */
	/* Work-items that are this worker together (kernel_items); they know themselves by kb_item_id. 0, 1:
	 * one. */
	int64_t items;
	enum kernel_rows rows;
	struct kb_val scratch; /* this worker's scratch, 64-byte aligned, attrs_group.scratch bytes */
	/* Of an attention with `split`: the scratch of the next worker lies so many bytes after. The second
	 * step joins what the workers left there; it comes after a barrier, where kernel_is_split. */
	int64_t scratch_stride;
	/* Of work-groups: kernel_combine_bytes where they leave what the second step joins, which always follows. */
	struct kb_val sums;
	bool is_combine;
	struct diag_context *cx;
	struct arena *arena;
};

/*
 * Emits the kernel. The same bits come out for every n_workers: each result
 * element is computed by one worker in an order that does not depend on the split.
 */
TFMC_MUST_USE enum tfmc_status kernel_emit_group(const struct kernel_job *job);

/* The group is an attention with a second step; *heads: heads of keys in all sequences. */
bool kernel_has_combine(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                        const struct target *t, const struct ir_dim **heads);
/* Memory between the steps where work-groups share tasks; NULL: none. */
const struct ir_dim *kernel_combine_bytes(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group, const struct target *t);
/* bool: workers divide the blocks of a head, since whole heads would leave some without work. */
struct kb_val kernel_is_split(struct kb *k, struct kb_val heads, struct kb_val n_workers);

/*
 * Work-items that share the tasks of this group on a target with work-groups: above 1 its template divides a
 * task among them, with shared memory and barriers. 1: each work-item is a worker of its own.
 */
int64_t kernel_items(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct target *t);
/*
 * Rows of a call, where calls of at most KERNEL_FEW_ROWS_MAX rows and others have kernels of their own: a work-group that holds code
 * for both has the registers and local memory of the larger one (gfx1100: 4 waves of 16 instead of 15). NULL: one kernel
 * is for all calls.
 */
const struct ir_dim *kernel_few_rows(const struct ir_module *m, const struct ir_func *f,
                                     const struct ir_op *group, const struct target *t);
/* Tasks that workers of the group can take; an estimate, more or fewer workers are never wrong. */
const struct ir_dim *kernel_tasks(const struct ir_module *m, const struct ir_func *f,
                                  const struct ir_op *group, const struct target *t, enum kernel_rows rows);
/* Those of its second step. */
const struct ir_dim *kernel_combine_tasks(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group);

#endif
