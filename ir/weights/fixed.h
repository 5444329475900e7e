/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Search for block scales in fixed point, SIMD over blocks: lane l is block l, FIXED_LANES blocks at a time. Elements
 * are int16 and quants int8, so that every vector ISA has wide operations for them and sums over a block are exact.
 */
#ifndef TFMC_IR_WEIGHTS_FIXED_H
#define TFMC_IR_WEIGHTS_FIXED_H

#include <stdbool.h>

#include "ir/types/format.h"

#define FIXED_LANES 64  /* blocks at a time */
#define FIXED_PART  128 /* elements of a block that are converted at a time */

struct weight_input_stats; /* quants.h */

/* Rounding to the quants of a format, on quotients x / scale in fixed point. */
struct fixed_format {
	int bits;            /* fraction bits of the quotient */
	int16_t least, most; /* smallest and largest integer quant */
	int16_t nearest;     /* rounding constant added before the shift right */
	bool has_book;
	/* Codebooks: the value is `first` plus step[i] for every threshold i below the quotient. Each row repeats one
	 * number for all lanes. */
	int8_t first, below[15][FIXED_LANES], step[15][FIXED_LANES];
};

/* Elements of lane l are centre + unit * x with int16 x; the farthest from the centre is +-32767. */
struct fixed_blocks {
	const double *from[FIXED_LANES];
	const struct weight_input_stats *in; /* errors are weighted by input variance; NULL: equally */
	int64_t column[FIXED_LANES];         /* of the block's first element in `in` */
	int64_t n[FIXED_LANES];              /* elements; 0: unused lane */
	double least[FIXED_LANES], most[FIXED_LANES];
	double centre[FIXED_LANES], unit[FIXED_LANES]; /* unit 0: all elements are (nearly) the centre */
	double w[FIXED_LANES], wx[FIXED_LANES];        /* sums over the block of the weights w, and of w x */
	/* The part that is converted now: elements [at, at + count) of blocks of at most `longest`. */
	int64_t longest, at, count;
	int16_t x[FIXED_PART][FIXED_LANES];
	int16_t is_element[FIXED_PART][FIXED_LANES]; /* mask: -1; 0 after the end of the block */
	float weight[FIXED_PART][FIXED_LANES];
};

/* A candidate: x is approximated by scale * q + offset. */
struct fixed_fit {
	double scale[FIXED_LANES], offset[FIXED_LANES];
};

/* Weighted sums over the quants q of a block: of w q, w q^2 and w x q. */
struct fixed_sums {
	double q[FIXED_LANES], qq[FIXED_LANES], xq[FIXED_LANES];
};

/* The rounding to the quants of format f. */
struct fixed_format fixed_format(enum ir_format f);
/* Fills b, of which the caller has set from, in, column and n. The centre is 0 unless the format has an offset. */
void fixed_begin(struct fixed_blocks *b, bool has_offset);
/* out[i]: sums over the quants that rounding with candidate fits[i] yields, i < n. */
void fixed_sum(const struct fixed_format *f, struct fixed_blocks *b, int n, const struct fixed_fit *fits,
               struct fixed_sums *out);
/* Least-squares scale and offset for given quants (linear regression); `fit` is unchanged where the sums determine
 * none. gain [FIXED_LANES]: reduction of the squared error compared with all elements at the mean (with an offset) or
 * at 0. */
void fixed_solve(const struct fixed_blocks *b, const struct fixed_sums *sums, bool has_offset,
                 struct fixed_fit *fit, double *gain);
/* Keeps in each lane the candidate with the larger gain; false if the new one is better in no lane. */
bool fixed_keep_better(struct fixed_fit *best, double *most, const struct fixed_fit *fit, const double *gain);

#endif
