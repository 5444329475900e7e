/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Search for scales of formats with shifts (ir_format_desc.shift): element = scale * (quant + shift), and the low
 * bits of the f16 scale encode the shift. Candidates differ in shift, sign of the scale, and how far the codebook
 * reaches beyond the elements; the least-squares fit of their quants ranks them. The best are tried with other
 * reaches, and the best of those refined by alternating: choose scale and shift for the quants, then round to the
 * quants. SIMD over blocks as in fixed.h: all lanes take the same path.
 */
#include <math.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "ir/weights/quants.h"
#include "ir/weights/weight.h"

#define LANES   FIXED_LANES
#define STARTS  16 /* 8 shifts, 2 signs */
#define BEST    4  /* candidates that are tried with other reaches, and candidates that are refined */
#define REFINED 2  /* iterations */

/* Scale of a candidate relative to the least scale for which no element is clipped. */
static const double first_end = 0.96, other_ends[] = {1, 0.92};
enum { OTHERS = TFMC_COUNT(other_ends) };

/* Candidates, the sums over their quants, and gains (fixed_solve). */
struct search {
	struct fixed_fit reach[STARTS], fits[STARTS + BEST * OTHERS];
	struct fixed_sums sums[STARTS + BEST * OTHERS];
	double gain[STARTS + BEST * OTHERS][LANES];
	int best[BEST][LANES]; /* indices of the best candidates, the best first */
};

/* The representable scale nearest to `scale` whose low bits encode `shift`. */
static double scale_with_shift(const struct ir_format_desc *d, double scale, int shift)
{
	int bits = f64_to_f16(scale * FORMAT_SHIFT_SCALE), low = shift + ir_format_shift_bias(d);
	int steps = ((bits & 0x7fff) - low + ir_format_shift_bias(d)) >> d->shift;
	bits = (bits & 0x8000) + (steps > 0 ? steps << d->shift : 0) + low;
	return f16_to_f64((uint16_t)bits) / FORMAT_SHIFT_SCALE;
}

/* The same by f32 bit operations, if the stored scale is a normal f16 (f32 with 13 fewer mantissa bits); else 0. low:
 * the biased shift. */
static inline double normal_scale_with_shift(int bits, int low, double scale)
{
	const uint32_t step = UINT32_C(1) << (13 + bits), floor = (uint32_t)low << 13;
	float stored = (float)(scale * FORMAT_SHIFT_SCALE);
	uint32_t word, magnitude;
	memcpy(&word, &stored, sizeof(word));
	magnitude = word & 0x7fffffff;
	word = (word & 0x80000000) | (((magnitude - floor + step / 2) & ~(step - 1)) + floor);
	word = magnitude > 0x38ffffff && magnitude < 0x47000000 ? word : 0; /* 2^-13, 2^15 */
	memcpy(&stored, &word, sizeof(word));
	return (double)stored / FORMAT_SHIFT_SCALE;
}

/* True if all scales tried for a lane are normal f16 values: the farthest element over quants of about 64. */
static bool is_normal(const struct fixed_blocks *b, int l)
{
	double far = b->unit[l] * INT16_MAX * FORMAT_SHIFT_SCALE / 64;
	return far > 0x1p-11 && far < 0x1p13;
}

/* Replaces the fit of a lane by the best representable one for its quants: of the shift nearest to the fit's and its
 * two neighbours, the one with the least squared error. */
static inline __attribute__((always_inline)) void round_lane(const struct ir_format_desc *d, bool normal,
                                                             const struct fixed_blocks *b,
                                                             const struct fixed_sums *s, int l,
                                                             struct fixed_fit *fit, double *gain)
{
	const int zero = 1 << (d->shift - 1);
	double shift = fit->offset[l] / fit->scale[l], best = 0, best_shift = 0, most = -HUGE_VAL;
	shift = shift > 1 - zero ? shift : 1 - zero;
	shift = shift < zero - 2 ? shift : zero - 2;
	int middle = (int)(shift + zero + 0.5) - zero;
	for (int k = middle - 1; k <= middle + 1; k++) {
		double qq = s->qq[l] + k * (2 * s->q[l] + k * b->w[l]), xq = s->xq[l] + k * b->wx[l];
		double scale = xq / qq * b->unit[l];
		scale = (normal ? normal_scale_with_shift(d->shift, k + zero, scale)
		                : scale_with_shift(d, scale, k)) /
		        b->unit[l];
		double by = scale * (2 * xq - scale * qq);
		bool better = by > most;
		best = better ? scale : best;
		best_shift = better ? k : best_shift;
		most = better ? by : most;
	}
	gain[l] = most;
	fit->scale[l] = best;
	fit->offset[l] = best * best_shift;
}

/* round_lane for all lanes, vectorized; right for normal scales only. */
TFMC_MULTIVERSION static void round_normal(const struct ir_format_desc *d,
                                           const struct fixed_blocks *restrict b,
                                           const struct fixed_sums *restrict s,
                                           struct fixed_fit *restrict fit, double *restrict gain)
{
	const struct ir_format_desc format = *d;
	for (int l = 0; l < LANES; l++)
		round_lane(&format, true, b, s, l, fit, gain);
}

/* Rounds the fits of all lanes to representable scales and shifts. */
static void round_fits(const struct ir_format_desc *d, const struct fixed_blocks *b,
                       const struct fixed_sums *s, struct fixed_fit *fit, double *gain)
{
	struct fixed_fit given = *fit;
	round_normal(d, b, s, fit, gain);
	for (int l = 0; l < LANES; l++)
		if (b->unit[l] > 0 && !is_normal(b, l)) {
			fit->scale[l] = given.scale[l];
			fit->offset[l] = given.offset[l];
			round_lane(d, false, b, s, l, fit, gain);
		}
}

/* Least scale of the given sign for which the shifted codebook covers all elements. */
TFMC_MULTIVERSION static void cover_elements(const struct ir_format_desc *d, const struct fixed_blocks *b,
                                             int shift, bool is_negative, struct fixed_fit *out)
{
	for (int l = 0; l < LANES; l++) {
		double low = (is_negative ? -b->most[l] : b->least[l]) / (d->codebook[0] + shift);
		double high = (is_negative ? -b->least[l] : b->most[l]) / (d->codebook[15] + shift);
		double scale = (low > high ? low : high) / b->unit[l];
		out->scale[l] = is_negative ? -scale : scale;
		out->offset[l] = out->scale[l] * shift;
	}
}

static void multiply_fit(double by, const struct fixed_fit *from, int l, struct fixed_fit *to)
{
	to->scale[l] = by * from->scale[l];
	to->offset[l] = by * from->offset[l];
}

/* s->best: the BEST of the first n candidates in each lane, by insertion. */
TFMC_MULTIVERSION static void find_best(struct search *s, int n)
{
	double gain[BEST][LANES];
	for (int k = 0; k < BEST; k++)
		for (int l = 0; l < LANES; l++) {
			gain[k][l] = -1;
			s->best[k][l] = 0;
		}
	for (int i = 0; i < n; i++)
		for (int l = 0; l < LANES; l++) {
			double g = s->gain[i][l];
			int number = i;
			for (int k = 0; k < BEST; k++) {
				bool better = g > gain[k][l];
				double next = better ? gain[k][l] : g;
				int other = better ? s->best[k][l] : number;
				gain[k][l] = better ? g : gain[k][l];
				s->best[k][l] = better ? number : s->best[k][l];
				g = next;
				number = other;
			}
		}
}

/* Rounds with candidates [first, end), and replaces each by the least-squares fit of its quants. */
static void try_fits(const struct weight_quantizer *z, struct fixed_blocks *b, struct search *s, int first,
                     int end)
{
	fixed_sum(&z->fixed, b, end - first, s->fits + first, s->sums + first);
	for (int i = first; i < end; i++)
		fixed_solve(b, &s->sums[i], true, &s->fits[i], s->gain[i]);
}

TFMC_MULTIVERSION static void try_starts(const struct weight_quantizer *z, struct fixed_blocks *b,
                                         struct search *s)
{
	for (int i = 0; i < STARTS; i++) {
		cover_elements(ir_format(z->format), b, i / 2 * 4 - 14, i % 2 == 1, &s->reach[i]);
		for (int l = 0; l < LANES; l++)
			multiply_fit(first_end, &s->reach[i], l, &s->fits[i]);
	}
	try_fits(z, b, s, 0, STARTS);
	find_best(s, STARTS);
	for (int i = 0; i < BEST * OTHERS; i++)
		for (int l = 0; l < LANES; l++)
			multiply_fit(other_ends[i % OTHERS], &s->reach[s->best[i / OTHERS][l]], l,
			             &s->fits[STARTS + i]);
	try_fits(z, b, s, STARTS, STARTS + BEST * OTHERS);
	find_best(s, STARTS + BEST * OTHERS);
}

TFMC_MULTIVERSION void weight_fit_shifted_scales(const struct weight_quantizer *z, struct fixed_blocks *b,
                                                 double *scales)
{
	const struct ir_format_desc *d = ir_format(z->format);
	struct search s;
	struct fixed_fit from[BEST], best;
	struct fixed_sums sums[BEST];
	double gain[LANES], most[LANES];
	try_starts(z, b, &s);
	for (int l = 0; l < LANES; l++) {
		most[l] = -HUGE_VAL;
		best.scale[l] = NAN;
		for (int k = 0; k < BEST; k++) {
			int i = s.best[k][l];
			sums[k].q[l] = s.sums[i].q[l];
			sums[k].qq[l] = s.sums[i].qq[l];
			sums[k].xq[l] = s.sums[i].xq[l];
			from[k].scale[l] = s.fits[i].scale[l];
			from[k].offset[l] = s.fits[i].offset[l];
		}
	}
	for (int i = 0; i <= REFINED; i++) {
		if (i > 0)
			fixed_sum(&z->fixed, b, BEST, from, sums);
		for (int k = 0; k < BEST; k++) {
			round_fits(d, b, &sums[k], &from[k], gain);
			(void)fixed_keep_better(&best, most, &from[k], gain);
		}
	}
	for (int l = 0; l < LANES; l++)
		scales[l] = b->unit[l] > 0 ? best.scale[l] * b->unit[l] : 0;
}
