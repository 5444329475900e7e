/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a result: all axes but the last linearized. Of a padded batch [B, S, ..] (job->lengths) the kernel computes
 * only the real ones, which are numbered without gaps, so that workers get equal shares of them:
 *
 *   lengths 3 1, S = 4      row     0 1 2 . 4 . . .      number  0 1 2 3
 */
#ifndef TFMC_BACKENDS_KERNELS_BATCH_ROWS_H
#define TFMC_BACKENDS_KERNELS_BATCH_ROWS_H

#include "backends/kernels/eval.h"

struct batch_rows {
	struct kb_val n;          /* rows that are computed */
	struct kb_tensor lengths; /* i32[B]; ptr none: all rows are computed */
	struct kb_val batch;      /* B */
	struct kb_val positions;  /* S */
	struct kb_val inner;      /* rows of a position: the axes between S and the last one */
};

/* The rows of v, of axes `size`; emits their count. */
struct batch_rows batch_rows_of(struct eval *e, struct ir_value v, const struct kb_val *size);

/* A row, and how many from there on follow each other without padding, before the end of the loop. */
struct batch_row {
	struct kb_val row, run;
};
/* Opens a loop over rows number [lo, hi). */
struct batch_row batch_rows_begin(struct kb *k, const struct batch_rows *rows, struct kb_val lo,
                                  struct kb_val hi);
void batch_rows_end(struct kb *k, const struct batch_rows *rows);

/* Real positions of sequence b, of `positions`: as many as its length says, at least one (ir/core/real_rows.h). */
struct kb_val batch_real_positions(struct kb *k, const struct kb_tensor *lengths, struct kb_val positions,
                                   struct kb_val b);

#endif
