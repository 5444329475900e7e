/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidate scales of blocks of codes, tried in fixed point and FIXED_LANES blocks at a time: element i of each, side by side.
 * Elements are integers of 16 bits and codes of 8, so that every processor has them in wide vectors, and sums over a block are
 * exact integers.
 */
#ifndef TFMC_IR_WEIGHTS_FIXED_H
#define TFMC_IR_WEIGHTS_FIXED_H

#include <stdbool.h>

#include "ir/types/format.h"

#define FIXED_LANES 64  /* blocks at a time */
#define FIXED_PART  128 /* elements of each that are converted at once */
#define FIXED_TRIED 16  /* candidates at once */

struct weight_input_stats; /* codes.h */

/* The codes of a format. */
struct fixed_format {
	int bits;            /* behind the point of a quotient x / scale */
	int16_t least, most; /* codes that are integers */
	int16_t nearest; /* what makes of rounding down that to the nearest, or of thresholds as bytes the nearest bytes */
	bool has_book;
	/* The code of a codebook is `first` and the steps of all thresholds below the quotient. A row repeats one number. */
	int8_t first, below[15][FIXED_LANES], step[15][FIXED_LANES];
};

/* Elements of lane l are centre + unit x with integers x, that of the farthest +-32767. */
struct fixed_blocks {
	const double *from[FIXED_LANES];
	const struct weight_input_stats
	        *in; /* of the rows; squared errors count by their variance. NULL: all alike */
	int64_t column[FIXED_LANES]; /* of the first element in `in` */
	int64_t n[FIXED_LANES];      /* elements; 0: no block */
	double least[FIXED_LANES], most[FIXED_LANES];
	double centre[FIXED_LANES], unit[FIXED_LANES]; /* unit 0: all elements are the centre, or nearly so */
	double w[FIXED_LANES], wx[FIXED_LANES];        /* sums over the block: of weights, of weights and x */
	/* Elements [at, at + count). */
	int64_t longest, at, count;
	int16_t x[FIXED_PART][FIXED_LANES];
	int16_t is_element[FIXED_PART][FIXED_LANES]; /* -1; 0: beyond the end of the block */
	float weight[FIXED_PART][FIXED_LANES];
};

/* An x is about scale code + offset. */
struct fixed_fit {
	double scale[FIXED_LANES], offset[FIXED_LANES];
};

/* Of w q, w q q and w x q over the codes q of a block. */
struct fixed_sums {
	double q[FIXED_LANES], qq[FIXED_LANES], xq[FIXED_LANES];
};

struct fixed_format fixed_format(enum ir_format f);
/* from, in, column and n are given. The centre is 0 without an offset. */
void fixed_begin(struct fixed_blocks *b, bool has_offset);
/* Sums of the codes that each of n fits gives. */
void fixed_sum(const struct fixed_format *f, struct fixed_blocks *b, int n, const struct fixed_fit *fits,
               struct fixed_sums *out);
/* The fit of least squared error for codes, `fit` as it is where they say nothing; gain [FIXED_LANES]: by how much its error is
 * below that of one code for all, without an offset of zeros. */
void fixed_solve(const struct fixed_blocks *b, const struct fixed_sums *sums, bool has_offset,
                 struct fixed_fit *fit, double *gain);
/* In each lane the better of two fits, by their gains; false: in none the new one. */
bool fixed_keep_better(struct fixed_fit *best, double *most, const struct fixed_fit *fit, const double *gain);

#endif
