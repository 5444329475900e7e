/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized rows of a matrix (ir/types/format.h): the exchange form between file readers, quantizer, packing and
 * interpreter; and the quantizer. Block scales are chosen by trying candidates and refining the best by least squares
 * (fixed.h); with activation statistics the expected error of the dot products is minimized, as GPTQ and imatrix do.
 */
#ifndef TFMC_IR_WEIGHTS_QUANTS_H
#define TFMC_IR_WEIGHTS_QUANTS_H

#include "ir/weights/fixed.h"

/*
 * Unpacked quantized rows; does not own its arrays. Scales and offsets are values of the format's scale type; of
 * formats with super-blocks, int8 values as floats; of formats with shifts, divided by FORMAT_SHIFT_SCALE. Quants
 * have the shift of their block added.
 */
struct weight_quants {
	enum ir_format format;
	int64_t k;            /* elements of a row */
	int8_t *quants;       /* quants [rows, k] */
	float *scales;        /* [rows, ir_format_blocks] */
	float *offsets;       /* [rows, ir_format_blocks]; NULL in formats without offset */
	float *super_scales;  /* [rows, ir_format_super_blocks]; NULL in formats without super-blocks */
	float *super_offsets; /* [rows, ir_format_super_blocks]; NULL without super-blocks or offset */
};

/* Allocates the arrays for `rows` rows of k elements as one block. False without memory or on overflow; calling
 * weight_quants_free is then allowed. */
bool weight_quants_alloc(struct weight_quants *c, enum ir_format format, int64_t k, int64_t rows);
void weight_quants_free(struct weight_quants *c);
/* The rows of c from `row` on, in the arrays of c. */
struct weight_quants weight_quants_from_row(const struct weight_quants *c, int64_t row);
/* The shift of block b of a row, decoded from its scale; 0 in formats without shifts. */
int weight_block_shift(const struct weight_quants *row, int64_t b);
/* Dequantizes `rows` rows to out [rows, k]. */
void weight_dequantize(const struct weight_quants *c, int64_t rows, double *out);
/* Statistics of the activations that a matrix [.., K] multiplies, from calibration. */
struct weight_input_stats {
	const double *squares, *means; /* mean square and mean of each input, [K] */
};
/* Variance of input i; at least 1 % of its mean square, as calibration samples are few. */
double weight_input_variance(const struct weight_input_stats *in, int64_t i);
/* Tables of the quantizer for a format. nearest[i], of codebooks: the value nearest to (i - CODE_PLACES / 2) / 4. */
#define CODE_PLACES 1025
struct weight_quantizer {
	enum ir_format format;
	struct fixed_format fixed;
	int8_t nearest[CODE_PLACES];
};
/* The tables of format f. */
struct weight_quantizer weight_quantizer(enum ir_format f);
/*
 * Quantizes rows x [rows, k]: fits the scales of all blocks, then rounds to the nearest quants. With `in`, the
 * expected squared error of the dot product with an activation vector z is minimized; for independent z(k) with means
 * m(k) and variances v(k), and rounding errors e(k), it is
 *
 *     E (sum of e(k) z(k))^2  =  sum of v(k) e(k)^2  +  (sum of m(k) e(k))^2
 *
 * Scales minimize the first term; then single quants move to the other neighbour of their element to lower the
 * second. False if a scale overflows its type, or the sum of |x| of a row overflows f32 (dot products would); *worst
 * is then the element of that row with the largest magnitude, or NaN.
 */
bool weight_quantize(const struct weight_quantizer *z, const struct weight_quants *quants, int64_t rows,
                     const double *x, const struct weight_input_stats *in, double *worst);
/* Scales [FIXED_LANES] with encoded shifts for the blocks of b; NaN on overflow of the scale type. */
void weight_fit_shifted_scales(const struct weight_quantizer *z, struct fixed_blocks *b, double *scales);

#endif
