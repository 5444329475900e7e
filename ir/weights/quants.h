/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a matrix in a format of codes (ir/types/format.h): what readers of files, the quantizer, packing and the
 * interpreter give each other.
 */
#ifndef TFMC_IR_WEIGHTS_QUANTS_H
#define TFMC_IR_WEIGHTS_QUANTS_H

#include "ir/weights/fixed.h"

/* Arrays of somebody else, for some rows; floats are numbers of the format's scale type (with a shift, divided by
 * FORMAT_SHIFT_SCALE), integers as floats in `scales` and `offsets` where there are super blocks. Codes have the shift added. */
struct weight_quants {
	enum ir_format format;
	int64_t k;            /* elements of a row */
	int8_t *codes;        /* [rows, k] */
	float *scales;        /* [rows, ir_format_blocks] */
	float *offsets;       /* the same, of formats that have them; else NULL */
	float *super_scales;  /* [rows, ir_format_super_blocks], of formats with super blocks; else NULL */
	float *super_offsets; /* the same, of formats that have offsets, too */
};

/* Arrays for `rows` rows of k elements, in one block. False when memory ran out; codes_release is harmless then. */
bool weight_quants_alloc(struct weight_quants *c, enum ir_format format, int64_t k, int64_t rows);
void weight_quants_free(struct weight_quants *c);
/* The same arrays from row `row` on. */
struct weight_quants weight_quants_from_row(const struct weight_quants *c, int64_t row);
/* What is added to the codes of block b of a row, as its scale says; 0 in formats without shifts. */
int weight_block_shift(const struct weight_quants *row, int64_t b);
/* All elements of some rows [rows, k]. */
void weight_dequantize(const struct weight_quants *c, int64_t rows, double *out);
/* What multiplies a matrix [.., K]: the means of the squares and the means of its inputs, [K] each. */
struct weight_input_stats {
	const double *squares, *means;
};
/* The variance of one; a hundredth of its square at least, as texts are few and f32 rounds. */
double weight_input_variance(const struct weight_input_stats *in, int64_t i);
/* What quantizing needs of a format. `nearest` [CODE_PLACES] for codebooks: the code nearest to (i - CODE_PLACES / 2) / 4. */
#define CODE_PLACES 1025
struct weight_quantizer {
	enum ir_format format;
	struct fixed_format fixed;
	int8_t nearest[CODE_PLACES];
};
struct weight_quantizer weight_quantizer(enum ir_format f);
/*
 * Codes of rows x [rows, k], with scales that are found from them: to the nearest where `in` is NULL. Else errors e count as inputs
 * z say, with the means m and variances v of their columns as if these were independent:
 *
 *     mean (sum of e(k) z(k))^2  =  sum of v(k) e(k)^2  +  (sum of m(k) e(k))^2
 *
 * Scales make the first sum small, and codes one further from the nearest the second. False: a scale would be beyond its type,
 * or the sum of all magnitudes of a row is beyond f32, as the products of the row then are; *worst is its largest element, or NaN.
 */
bool weight_quantize(const struct weight_quantizer *z, const struct weight_quants *codes, int64_t rows,
                     const double *x, const struct weight_input_stats *in, double *worst);
/* shift.c: scales [FIXED_LANES] of a format with shifts, which say them; NaN beyond their type. */
void weight_fit_shifted_scales(const struct weight_quantizer *z, struct fixed_blocks *b, double *scales);

#endif
