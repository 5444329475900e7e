/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel generator of rowwise groups: an op on rows of the last axis (softmax, log_softmax, masked_softmax,
 * mask, layer_norm, rms_norm, quantize_rows), fused with the elementwise ops before and after it. A row is read
 * once; between passes it is kept in registers, in the row of the result, or in scratch. Each row is computed
 * by one worker, or by one work-group.
 */
#ifndef TFMC_BACKENDS_KERNELS_ROWWISE_H
#define TFMC_BACKENDS_KERNELS_ROWWISE_H

#include "backends/kernels/eval.h"

/* Emits the body of job->group. A worker needs scratch of 4 bytes for each element of a row, unless the
 * result is f32 with dense rows; without either, each pass computes the row again. Rejects f64. */
TFMC_MUST_USE enum tfmc_status rowwise_emit(const struct kernel_job *job);

/* Rows [first, end) of a norm that is fused before another root. */
struct rowwise_rows {
	const struct ir_op *norm; /* layer_norm or rms_norm of f32, rows of a constant length */
	struct kb_val first, end; /* all leading axes as one */
	struct kb_val list;       /* i32: row i is list[i]; or none */
	struct kb_val to;         /* f32 [end - first][step] */
	int64_t step;             /* elements between rows, at least their length */
};
/* Emits the norm of the rows, with the bits of the norm as a group of its own. Failures are recorded in `e`. */
void rowwise_norm_rows(struct eval *e, const struct rowwise_rows *rows);

/* Emits the norm of the row of point `row`, to f32 [length] at `to`, which may be where x is. */
void rowwise_norm_row(struct eval *e, const struct ir_op *norm, const struct eval_point *row,
                      struct kb_val to);

/* A norm of the rows [first, first + rows) of a tile, whose elements the items of a work-group read. */
struct rowwise_tile {
	struct eval *e;
	const struct ir_op *norm;
	struct kb_val first, rows; /* all leading axes as one; rows <= most <= items */
	int64_t most;
	int64_t items;
	struct kb_val item;
	struct kb_val partials; /* local f32 [most][items], free afterwards */
	struct kb_val means;    /* local f32 [2][most]: means, inverse standard deviations */
};
/* Computes the statistics of all rows of the tile. All items must call it: it has barriers. */
void rowwise_tile_stats(const struct rowwise_tile *t);
/* The normalized value at p, which is in row m of the tile: `lanes` neighbours along the row. */
struct kb_val rowwise_tile_normalized(const struct rowwise_tile *t, struct kb_val m,
                                      const struct eval_point *p, int lanes);

/* |x|, infinite for NaN: the maximum of a block then shows every value that cannot be quantized. */
struct kb_val rowwise_abs_or_inf(struct kb *k, struct kb_val x);
/* int8 quantization of a block whose max |x| is `most` (infinite: a NaN or infinity), f32: *inverse = 127 /
 * most (0 if not finite) makes quants, *step = most / 127 is the scale, NaN if most is infinite. */
void rowwise_int8_scales(struct kb *k, struct kb_val most, struct kb_val *inverse, struct kb_val *step);

/* A norm after another root, in place: its operand is stored where the group's result goes. */
struct rowwise_after {
	const struct ir_op *norm;       /* layer_norm or rms_norm of f32 */
	const struct eval_outputs *out; /* the group's one result, of the norm's shape, in f32 */
	struct kb_val first, end;       /* rows, all leading axes as one */
	struct kb_val list;             /* i32: row i is list[i]; or none */
};
/* Emits the norm and the ops after it, with the bits of the norm as a group of its own. */
void rowwise_norm_after(struct eval *e, const struct rowwise_after *after);

#endif
