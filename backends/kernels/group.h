/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface of the kernel generators: from one fused group of the planned tensor IR to kernel IR. The caller
 * (backends/plan) begins a function and maps tensors to memory by a binding; kernel_emit_group emits the body, which
 * computes the share of one worker.
 */
#ifndef TFMC_BACKENDS_KERNELS_GROUP_H
#define TFMC_BACKENDS_KERNELS_GROUP_H

#include "backends/kb/kb.h"
#include "ir/core/module.h"
#include "ir/target/target.h"

/* A size, stride or offset. */
struct kb_size {
	bool is_const;
	int64_t c;       /* the value if constant */
	struct kb_val v; /* the value as KB_INDEX, also if constant */
};

/* A tensor in memory. Element [i0, i1, ..] is at ptr + (i0*stride[0] + i1*stride[1] + ..) elements. */
struct kb_tensor {
	struct kb_val ptr;
	enum ir_dtype dtype;
	enum ir_format
	        format; /* of a weight: PLAIN, a smaller float (then also in dtype), or a quantized format */
	/* ENC_PANEL16: packed panels of 16 columns. Of a weight: ptr is the packed matrix and strides are unused.
	 * Of a slice of a state [.., T, E]: its last two axes are packed matrices; the other strides are valid,
	 * the one of E is 16. */
	enum ir_encoding encoding;
	/* Ring buffer (sliding-window KV cache): index t of axis rank - 2 is stored at t mod ring, a multiple of
	 * 16; 0: no ring. */
	int64_t ring;
	/* Of a weight: bytes of the model's weights that are stored after it (after all matrices of a stack). */
	int64_t bytes_after;
	int rank;
	struct kb_size size[IR_RANK_MAX];
	struct kb_size stride[IR_RANK_MAX]; /* in elements; 0 where broadcast */
};

/* Maps tensor IR to memory; the functions may emit address computations. */
struct kernel_binding {
	/* The memory of a value that is not computed inside of the group: parameters, results of other groups,
	 * weights, views of these (any chain of reshape, transpose, broadcast, slice), state slices, and the
	 * results of this group (where its yields are stored). False if v has no memory. */
	bool (*tensor)(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out);
	/* The slice [B, ..] of the state that a state op reads or writes. */
	bool (*state)(void *user, struct kb *k, const struct ir_op *op, struct kb_tensor *out);
	/* The value of a dim expression. */
	struct kb_size (*dim)(void *user, struct kb *k, const struct ir_dim *d);
	/* If v is the index of a `repeat`, its value (KB_INDEX); otherwise none. */
	struct kb_val (*index)(void *user, struct kb *k, struct ir_value v);
	void *user;
};

/* The location of code that comes from loc; file NULL: loc has none. */
struct kb_loc kernel_loc(const struct diag_context *cx, struct ir_loc loc);
/* kb_set_loc for the location of loc. */
uint32_t kernel_set_loc(struct kb *k, const struct diag_context *cx, struct ir_loc loc);

/* Specialization of a kernel by the rows of a call: see kernel_few_rows. */
enum { KERNEL_FEW_ROWS_MAX = 8 };
enum kernel_rows { KERNEL_ANY_ROWS, KERNEL_FEW_ROWS /* at most KERNEL_FEW_ROWS_MAX */, KERNEL_MANY_ROWS };

struct kernel_job {
	struct kb *k;
	const struct ir_module *module;
	const struct ir_func *func;
	const struct ir_op *group; /* OP_group */
	const struct target *target;
	const struct kernel_binding *bind;
	struct kb_val worker;    /* KB_INDEX, 0 .. n_workers - 1 */
	struct kb_val n_workers; /* KB_INDEX, >= 1 */
	/* Work-items that form this worker (kernel_items), numbered by kb_item_id; 0 or 1: one. */
	int64_t items;
	enum kernel_rows rows;
	struct kb_val scratch; /* this worker's private buffer, 64-byte aligned, attrs_group.scratch bytes */
	/*
	 * Split-KV attention (attrs `split`) has two kernels with a barrier between them: the first leaves partial
	 * results of blocks of keys in the scratch buffers of the workers, the second (is_combine) combines them.
	 * scratch_stride: bytes from the scratch buffer of one worker to the next.
	 */
	int64_t scratch_stride;
	/* For work-groups: kernel_combine_bytes of memory for the partial results instead; the second kernel
	 * always follows. */
	struct kb_val partials;
	/* Lengths i32[B] of the sequences of a padded batch, a parameter: the root and all results are read at their
	 * real rows only (ir/core/real_rows.h), and others need not be computed. None: all rows. */
	struct ir_value lengths;
	struct kb_val ranks; /* of an exchange: address of struct tfmc_ranks (runtime/abi.h) */
	bool is_combine;
	int64_t weight_bytes; /* of all weights of the module, as stored */
	bool remarks;         /* report the loop nests */
	struct diag_context *cx;
	struct arena *arena;
};

/* Emits the kernel. Results are bitwise equal for every n_workers: one worker computes each result element, in an
 * order of operations that does not depend on the number of workers. */
TFMC_MUST_USE enum tfmc_status kernel_emit_group(const struct kernel_job *job);

/* True if the group is an attention with a combining kernel; *heads: key heads of all sequences, B * K. */
bool kernel_has_combine(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                        const struct target *t, const struct ir_dim **heads);
/* Bytes of memory for partial results between the two kernels of work-groups; NULL: none. */
const struct ir_dim *kernel_combine_bytes(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group, const struct target *t);
/* KB_BOOL: true if workers divide the key blocks of a head, because there are too few heads for all workers. */
struct kb_val kernel_is_split(struct kb *k, struct kb_val heads, struct kb_val n_workers);

/* Work-items of a work-group that compute one task together, with shared memory and barriers, on targets with
 * work-groups; 1: each work-item is a worker by itself. */
int64_t kernel_items(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                     const struct target *t);
/*
 * Rows of a call if the group has two kernels, one for at most KERNEL_FEW_ROWS_MAX rows and one for more; NULL: one
 * kernel serves all calls. Separate kernels because occupancy depends on the registers and local memory of the whole
 * kernel (gfx1100: 4 waves of 16 with both in one kernel, 15 apart).
 */
const struct ir_dim *kernel_few_rows(const struct ir_module *m, const struct ir_func *f,
                                     const struct ir_op *group, const struct target *t);
/* Independent tasks of the group, to choose the number of workers: an estimate; any number of workers is correct. */
const struct ir_dim *kernel_tasks(const struct ir_module *m, const struct ir_func *f,
                                  const struct ir_op *group, const struct target *t, enum kernel_rows rows);
/* kernel_tasks of the combining kernel. */
const struct ir_dim *kernel_combine_tasks(const struct ir_module *m, const struct ir_func *f,
                                          const struct ir_op *group);

#endif
