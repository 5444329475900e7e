/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template of groups of kind `rowwise`: an op on rows of the last axis (softmax,
 * log_softmax, masked_softmax, mask, layer_norm, rms_norm, round_rows) with the elementwise
 * ops before and after it. A row is read once, kept in registers, in the row of
 * the result or in scratch, and every row is computed by one worker.
 */
#ifndef TFMC_BACKENDS_ROWS_ROWWISE_H
#define TFMC_BACKENDS_ROWS_ROWWISE_H

#include "backends/kernel/eval.h"

/*
 * Emits the body for job->group. Scratch of a worker: 4 bytes for each element of
 * a row. Less is enough when the result is f32 and its rows are dense; else rows
 * are computed again in every walk. f64 is refused.
 */
TFMC_MUST_USE enum tfmc_status rowwise_emit(const struct kernel_job *job);

/* Rows [first, end) of a norm before another root, one after the other. */
struct rowwise_rows {
	const struct ir_op *norm; /* layer_norm or rms_norm of f32, rows of a constant length */
	struct kb_val first, end; /* of all leading axes as one */
	struct kb_val to;         /* f32 [end - first, step], of which a row takes `length` */
	int64_t step;
};
/* Emits them; the bits are those of a group of the norm alone. What fails is marked in `e`. */
void rowwise_norm_rows(struct eval *e, const struct rowwise_rows *rows);

/* The one row of such a norm that `row` names, to f32 [length] at `to`, which may be where it is read. */
void rowwise_norm_row(struct eval *e, const struct ir_op *norm, const struct eval_point *row,
                      struct kb_val to);

/* Such a norm of the rows [first, first + rows) of a tile, whose elements the items of a work-group read. */
struct rowwise_tile {
	struct eval *e;
	const struct ir_op *norm;
	struct kb_val first, rows; /* of all leading axes as one; rows <= most <= items */
	int64_t most;
	int64_t items;
	struct kb_val item;
	struct kb_val parts; /* shared f32 [most, items], free afterwards */
	struct kb_val means; /* shared f32 [2, most] */
};
/* Finds what it needs of the rows; all items come here. */
void rowwise_tile_begin(const struct rowwise_tile *t);
/* Element 0 of row `row` of all, and the norm at p in row m of the tile, in so many lanes along the row. */
struct eval_point rowwise_tile_row(const struct rowwise_tile *t, struct kb_val row);
struct kb_val rowwise_tile_value(const struct rowwise_tile *t, struct kb_val m, const struct eval_point *p,
                                 int lanes);

/* |x|, infinite for NaN: so that the largest of a block tells of every number that cannot be rounded. */
struct kb_val rowwise_magnitude(struct kb *k, struct kb_val x);
/* Of a block whose largest |x| is `most` (infinite for one with NaN), f32: what round_rows multiplies by to get
 * integers, and their step; NaN when most is infinite. */
void rowwise_rounding(struct kb *k, struct kb_val most, struct kb_val *inverse, struct kb_val *step);

/* A norm after another root: its rows lie where the group's result goes, and are normalised there. */
struct rowwise_after {
	const struct ir_op *norm;       /* layer_norm or rms_norm of f32 */
	const struct eval_outputs *out; /* the group's one result, of the norm's shape, in f32 */
	struct kb_val first, end;       /* rows, of all leading axes as one */
};
/* Emits them and what follows the norm; the bits are those of a group of the norm alone. */
void rowwise_norm_after(struct eval *e, const struct rowwise_after *after);

#endif
