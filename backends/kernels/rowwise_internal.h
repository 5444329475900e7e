/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the rowwise generator.
 *
 *   rowwise_nest.[ch]  the schedule, chosen before code is emitted
 *   rowwise.c          binds the group, loops over rows; loops over the chunks of a row, accumulators, work-items that
 *                      share a row
 *   rowwise_ops.c      the passes of each op: norms, softmax, quantization
 *
 * A pass over a row calls a small function for each chunk of `lanes` elements. Sums take elements in an order that
 * depends on the length of the row only.
 */
#ifndef TFMC_BACKENDS_KERNELS_ROWWISE_INTERNAL_H
#define TFMC_BACKENDS_KERNELS_ROWWISE_INTERNAL_H

#include "backends/kernels/eval.h"
#include "backends/kernels/rowwise_nest.h"

struct rowwise {
	struct eval e;
	const struct kernel_job *job;
	struct kb *k;
	const struct ir_op *root;
	struct eval_outputs
	        outputs; /* none: results go to the buffer, where another generator's root reads them */
	int rank;
	struct kb_val size[IR_RANK_MAX];
	struct rowwise_nest nest;

	int64_t items;          /* work-items that share a row; 1: a row is one worker's */
	struct kb_val item;     /* local id */
	struct kb_val partials; /* local f32 [items] */

	struct eval_point row; /* the open row, element 0 */
	struct kb_val buffer;  /* f32 [width], unless it is registers: */
	struct kb_val chunk_value[ROWWISE_REGISTER_VECTORS];
};

/* `lanes` neighbours of a row. */
struct rowwise_chunk {
	struct kb_val at; /* index of the first */
	int lanes, valid;
	int slot;           /* accumulator */
	int number;         /* in the row, if rows are in registers */
	bool is_tail;       /* a single element after the last full vector */
	struct kb_val mask; /* bool lanes that exist; none: all */
};

/* Emits one chunk of a pass. */
typedef void rowwise_chunk_fn(struct rowwise *r, const struct rowwise_chunk *c, void *user);

/* Emits the body of a pass for elements [from, to) of the open row, from <= to. */
void rowwise_loop(struct rowwise *r, enum rowwise_pass pass, struct kb_val from, struct kb_val to,
                  rowwise_chunk_fn *body, void *user);
/* Zeros the last vector of [0, to) before elements are stored there one by one: a masked tail reads all of it. */
void rowwise_zero_tail(struct rowwise *r, struct kb_val to);

/* x at the chunk, in the first pass: evaluates the prologue. */
struct kb_val rowwise_load_x(struct rowwise *r, const struct rowwise_chunk *c);
/* Stores a value derived from x by the first pass; nothing if later passes read or compute x again. */
void rowwise_keep_x(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
/* The value that the first pass kept. */
struct kb_val rowwise_reload_x(struct rowwise *r, const struct rowwise_chunk *c);
/* Replaces x in the buffer by another value; reads that value. */
void rowwise_write_buffer(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
struct kb_val rowwise_read_buffer(struct rowwise *r, const struct rowwise_chunk *c);
/* Binds the root's result at the chunk; evaluates the epilogue and stores the group's results. */
void rowwise_store_result(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value);
/* A scalar in the lanes of the chunk. */
struct kb_val rowwise_splat(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val scalar);

/* A sum or maximum over a row. */
struct rowwise_acc {
	enum kb_bin op; /* KB_ADD, KB_MAX (ignores NaN) */
	struct kb_var slot[ROWWISE_UNROLL];
	struct kb_var tail;
};
/* Creates the accumulators, with the neutral element of op. */
void rowwise_acc_begin(struct rowwise *r, struct rowwise_acc *a, enum kb_bin op);
/* Adds x (combines it by op) in the lanes that exist. */
void rowwise_acc_add(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                     struct kb_val x);
/* Adds x^2. */
void rowwise_acc_square(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                        struct kb_val x);
/* The sum or maximum over the row, of all lanes and items; all items must call it. */
struct kb_val rowwise_acc_reduce(struct rowwise *r, const struct rowwise_acc *a);

/* Visible elements of the open row: [*first, result); *first is none without a window. */
struct kb_val rowwise_visible(struct rowwise *r, const struct eval_mask *mask, struct kb_val *first);
/* Elements of a row. */
struct kb_val rowwise_width(const struct rowwise *r);
static inline struct ir_value rowwise_operand(const struct rowwise *r, size_t i)
{
	return i < r->root->n_operands ? r->root->operands[i] : IR_NO_VALUE;
}

/* Emit all passes over the open row, for the root of that name; rowwise_softmax also for masked_softmax. */
void rowwise_softmax(struct rowwise *r);
void rowwise_log_softmax(struct rowwise *r);
void rowwise_mask(struct rowwise *r); /* elements outside the mask become -inf */
void rowwise_layer_norm(struct rowwise *r);
void rowwise_rms_norm(struct rowwise *r);
void rowwise_quantize_rows(struct rowwise *r); /* the results are dequantized */

#endif
