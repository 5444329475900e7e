/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed-point search for block scales, see fixed.h. Loops run over lanes (blocks), so that compilers vectorize them;
 * int16 products are the upper 16 bits, as pmulhw computes.
 *
 * The elements of a block are centre + unit * x with int16 x. A candidate (struct fixed_fit) is a scale and an offset
 * in units of x; x is divided by the scale to a quotient in fixed point and rounded to a quant. The sums over these
 * quants give the least-squares scale and offset for them, and the gain: by how much the squared error is smaller.
 */
#include "ir/weights/fixed.h"
#include "ir/support/compiler.h"
#include "ir/weights/quants.h"
#include "ir/weights/weight.h"

#include <math.h>
#include <string.h>

#define LANES    FIXED_LANES
#define FRACTION 6 /* fraction bits that are dropped before rounding or comparing with thresholds */

/* Distinct values of a codebook in ascending order; returns their number. */
static int sort_codebook(const int8_t *codebook, int8_t *out)
{
	int n = 0;
	for (int quant = INT8_MIN; quant <= INT8_MAX; quant++)
		if (memchr(codebook, (unsigned char)quant, 16))
			out[n++] = (int8_t)quant;
	return n;
}

/* Integer quants are rounded by adding half before FRACTION bits are dropped; values of a codebook by counting
 * thresholds. Rows of unused thresholds are INT8_MAX, above every quotient. */
struct fixed_format fixed_format(enum ir_format format)
{
	const struct ir_format_desc *d = ir_format(format);
	struct fixed_format f = {.bits = FRACTION, .has_book = d->codebook != NULL};
	f.least = (int16_t)ir_format_quant_min(d);
	f.most = (int16_t)ir_format_quant_max(d);
	f.nearest = 1 << (FRACTION - 1);
	if (!f.has_book)
		return f;
	int8_t values[16];
	int n = sort_codebook(d->codebook, values),
	    far = values[n - 1] > -values[0] ? values[n - 1] : -values[0];
	/* quotients are compared with the thresholds as bytes: as many fraction bits as still fit */
	while (far << (f.bits + 1 - FRACTION) <= 128)
		f.bits++;
	f.first = values[0];
	f.nearest = 0;
	memset(f.below, INT8_MAX, sizeof(f.below));
	for (int i = 0; i + 1 < n; i++) {
		/* Twice the middle between two values. A middle of half a unit is rounded up, and a quarter is added to
		 * all quotients, so that every threshold is off by a quarter at most. */
		int twice = (values[i] + values[i + 1]) * (1 << (f.bits - FRACTION));
		memset(f.below[i], (twice + (twice & 1)) / 2 - 1, LANES);
		f.nearest = twice & 1 ? 1 << (FRACTION - 2) : f.nearest;
		memset(f.step[i], values[i + 1] - values[i], LANES);
	}
	return f;
}

/* Minimum and maximum of n > 0 elements, in 8 independent ones, which a compiler can vectorize. */
TFMC_MULTIVERSION static void find_range(const double *restrict x, int64_t n, double *least, double *most)
{
	double low[8], high[8];
	int64_t i = 0;
	for (int l = 0; l < 8; l++)
		low[l] = high[l] = x[0];
	for (; i + 8 <= n; i += 8)
		for (int l = 0; l < 8; l++) {
			low[l] = x[i + l] < low[l] ? x[i + l] : low[l];
			high[l] = x[i + l] > high[l] ? x[i + l] : high[l];
		}
	for (; i < n; i++) {
		low[0] = x[i] < low[0] ? x[i] : low[0];
		high[0] = x[i] > high[0] ? x[i] : high[0];
	}
	for (int l = 1; l < 8; l++) {
		low[0] = low[l] < low[0] ? low[l] : low[0];
		high[0] = high[l] > high[0] ? high[l] : high[0];
	}
	*least = low[0];
	*most = high[0];
}

/* out[i]: (x[i] - centre) / unit, rounded: 32768.5 makes it positive, so that truncation rounds. unit 0: all 0. */
TFMC_MULTIVERSION static void convert(const double *restrict x, int64_t n, double centre, double unit,
                                      int16_t *restrict out)
{
	double inverse = unit > 0 ? 1 / unit : 0;
	for (int64_t i = 0; i < n; i++)
		out[i] = (int16_t)((int32_t)((x[i] - centre) * inverse + 32768.5) - 32768);
}

/* Converts elements [at, at + FIXED_PART) of all lanes to int16, with masks and weights, transposed: lane l is
 * column l. After the end of a block all three are 0, so that sums need no test. */
static void read_part(struct fixed_blocks *b, int64_t at)
{
	b->at = at;
	b->count = b->longest - at < FIXED_PART ? b->longest - at : FIXED_PART;
	for (int l = 0; l < LANES; l++) {
		int16_t x[FIXED_PART];
		int64_t left = b->n[l] > at ? b->n[l] - at : 0, n = left < b->count ? left : b->count;
		convert(b->from[l] + at, n, b->centre[l], b->unit[l], x);
		for (int64_t i = 0; i < n; i++)
			b->x[i][l] = x[i];
		for (int64_t i = 0; i < n; i++)
			b->is_element[i][l] = -1;
		for (int64_t i = n; i < b->count; i++)
			b->x[i][l] = b->is_element[i][l] = 0;
		for (int64_t i = 0; b->in && i < b->count; i++)
			b->weight[i][l] =
			        i < n ? (float)weight_input_variance(b->in, b->column[l] + at + i) : 0;
	}
}

/* Adds the weights of the current part to b->w and b->wx; without statistics each element has 1, from its mask -1. */
TFMC_MULTIVERSION static void add_weights(struct fixed_blocks *b)
{
	for (int64_t i = 0; i < b->count; i++)
		for (int l = 0; l < LANES; l++) {
			double w = b->in ? (double)b->weight[i][l] : -b->is_element[i][l];
			b->w[l] += w;
			b->wx[l] += w * b->x[i][l];
		}
}

/* unit 0: the elements are so near to the centre that the quotient overflows. The first part stays converted for
 * fixed_sum, if there is only one. */
void fixed_begin(struct fixed_blocks *b, bool has_offset)
{
	b->longest = 0;
	for (int l = 0; l < LANES; l++) {
		b->least[l] = b->most[l] = b->w[l] = b->wx[l] = 0;
		if (b->n[l] > 0)
			find_range(b->from[l], b->n[l], &b->least[l], &b->most[l]);
		b->longest = b->n[l] > b->longest ? b->n[l] : b->longest;
		b->centre[l] = has_offset ? (b->least[l] + b->most[l]) / 2 : 0;
		double above = b->most[l] - b->centre[l], below = b->centre[l] - b->least[l];
		double far = above > below ? above : below;
		b->unit[l] = isfinite(INT16_MAX / far) ? far / INT16_MAX : 0;
	}
	for (int64_t at = 0; at < b->longest; at += FIXED_PART) {
		read_part(b, at);
		add_weights(b);
	}
}

/* ---- sums over the quants of a candidate ---- */

#define INLINE static inline __attribute__((always_inline))

/* A candidate as multiplier: the quotient of x is x * factor / 2^16 + zero. */
struct reciprocal {
	int16_t factor[LANES], zero[LANES];
};

/* The factor 1 / scale and the constant that is added, in fixed point, of each lane, limited to their bits: factors
 * use 15 and a sign, quotients 14, the headroom being for candidates that clip elements. A scale of 0 gives factor
 * 0. */
INLINE void make_reciprocal(const struct fixed_format *f, const struct fixed_fit *fit, struct reciprocal *t)
{
	const double one = 1 << f->bits;
	for (int l = 0; l < LANES; l++) {
		double inverse = fit->scale[l] != 0 ? one / fit->scale[l] : 0;
		double factor = inverse * 0x1p16, zero = f->nearest - fit->offset[l] * inverse;
		factor = factor < INT16_MAX ? factor : INT16_MAX;
		factor = factor > -INT16_MAX ? factor : -INT16_MAX;
		zero = zero < INT16_MAX / 2 ? zero : INT16_MAX / 2;
		zero = zero > -INT16_MAX / 2 ? zero : -INT16_MAX / 2;
		t->factor[l] = (int16_t)(int32_t)factor;
		t->zero[l] = (int16_t)(int32_t)zero;
	}
}

/* out[l]: the quotient of x[l] plus the rounding constant, without the low FRACTION bits. */
INLINE void quotients(const struct reciprocal *t, const int16_t *restrict x, int16_t *restrict out)
{
	for (int l = 0; l < LANES; l++) {
		int16_t product = (int16_t)((x[l] * t->factor[l]) >> 16);
		out[l] = (int16_t)((int16_t)(product + t->zero[l]) >> FRACTION);
	}
}

/* out[l]: the quant of x[l], 0 after the end of the block. */
INLINE void round_to_integers(const struct fixed_format *f, const struct reciprocal *t,
                              const int16_t *restrict x, const int16_t *restrict is_element,
                              int16_t *restrict out)
{
	const int16_t least = f->least, most = f->most;
	quotients(t, x, out);
	for (int l = 0; l < LANES; l++) {
		int16_t v = out[l] < least ? least : out[l];
		out[l] = (int16_t)((v > most ? most : v) & is_element[l]);
	}
}

/* out[l]: the codebook's value nearest to x[l], 0 after the end of the block; counts the thresholds below the
 * quotient. */
INLINE void round_to_codebook(const struct fixed_format *f, const struct reciprocal *t,
                              const int16_t *restrict x, const int16_t *restrict is_element,
                              int16_t *restrict out)
{
	int8_t at[LANES], quant[LANES];
	quotients(t, x, out);
	for (int l = 0; l < LANES; l++) {
		int16_t v = out[l] < INT8_MIN ? INT8_MIN : out[l];
		at[l] = (int8_t)(v > INT8_MAX ? INT8_MAX : v);
		quant[l] = f->first;
	}
	for (int k = 0; k < 15; k++)
		for (int l = 0; l < LANES; l++)
			quant[l] = (int8_t)(quant[l] + (f->step[k][l] & -(at[l] > f->below[k][l])));
	for (int l = 0; l < LANES; l++)
		out[l] = (int16_t)(quant[l] & is_element[l]);
}

/* Adds the sums of the current part, exact integers: |xq| <= FIXED_PART * 127 * 32767 < 2^31, and |q| <= FIXED_PART
 * * 127 < 2^15. */
INLINE void add_unweighted(bool has_book, const struct fixed_format *f, const struct reciprocal *t,
                           const struct fixed_blocks *b, struct fixed_sums *out)
{
	int16_t q[LANES] = {0}, quant[LANES];
	int32_t qq[LANES] = {0}, xq[LANES] = {0};
	for (int64_t i = 0; i < b->count; i++) {
		if (has_book)
			round_to_codebook(f, t, b->x[i], b->is_element[i], quant);
		else
			round_to_integers(f, t, b->x[i], b->is_element[i], quant);
		for (int l = 0; l < LANES; l++)
			q[l] = (int16_t)(q[l] + quant[l]);
		for (int l = 0; l < LANES; l++)
			qq[l] += (int16_t)(quant[l] * quant[l]);
		for (int l = 0; l < LANES; l++)
			xq[l] += quant[l] * b->x[i][l];
	}
	for (int l = 0; l < LANES; l++) {
		out->q[l] += q[l];
		out->qq[l] += qq[l];
		out->xq[l] += xq[l];
	}
}

/* Adds the sums of the current part, with the weights of the elements, in f64. */
INLINE void add_weighted(bool has_book, const struct fixed_format *f, const struct reciprocal *t,
                         const struct fixed_blocks *b, struct fixed_sums *out)
{
	int16_t quant[LANES];
	for (int64_t i = 0; i < b->count; i++) {
		if (has_book)
			round_to_codebook(f, t, b->x[i], b->is_element[i], quant);
		else
			round_to_integers(f, t, b->x[i], b->is_element[i], quant);
		for (int l = 0; l < LANES; l++) {
			double wq = (double)b->weight[i][l] * quant[l];
			out->q[l] += wq;
			out->qq[l] += wq * quant[l];
			out->xq[l] += wq * b->x[i][l];
		}
	}
}

/* Adds to *out the sums of the current part for candidate `fit`; four instances, so that the inner loops have no
 * branches. */
TFMC_MULTIVERSION static void add_part(const struct fixed_format *f, const struct fixed_blocks *b,
                                       const struct fixed_fit *fit, struct fixed_sums *out)
{
	struct reciprocal t;
	make_reciprocal(f, fit, &t);
	if (b->in && f->has_book)
		add_weighted(true, f, &t, b, out);
	else if (b->in)
		add_weighted(false, f, &t, b, out);
	else if (f->has_book)
		add_unweighted(true, f, &t, b, out);
	else
		add_unweighted(false, f, &t, b, out);
}

/* A block of one part is converted already (fixed_begin); longer ones are converted again for each set of
 * candidates. */
void fixed_sum(const struct fixed_format *f, struct fixed_blocks *b, int n, const struct fixed_fit *fits,
               struct fixed_sums *out)
{
	memset(out, 0, (size_t)n * sizeof(*out));
	for (int64_t at = 0; at < b->longest; at += FIXED_PART) {
		if (at != b->at)
			read_part(b, at);
		for (int i = 0; i < n; i++)
			add_part(f, b, &fits[i], &out[i]);
	}
}

/* With an offset, regression on the deviations from the mean; without, n and the mean are 0 and the same formulas go
 * through the origin. variance 0: all quants are equal. */
TFMC_MULTIVERSION void fixed_solve(const struct fixed_blocks *b, const struct fixed_sums *restrict sums,
                                   bool has_offset, struct fixed_fit *restrict fit, double *restrict gain)
{
	for (int l = 0; l < LANES; l++) {
		double n = has_offset ? 1 / b->w[l] : 0, mean = b->wx[l] * n;
		double covariance = sums->xq[l] - sums->q[l] * mean,
		       variance = sums->qq[l] - sums->q[l] * sums->q[l] * n;
		double scale = covariance / variance, offset = mean - scale * sums->q[l] * n;
		bool is_known = variance > 0 && covariance != 0;
		gain[l] = is_known ? covariance * scale : 0;
		fit->scale[l] = is_known ? scale : fit->scale[l];
		fit->offset[l] = is_known ? offset : fit->offset[l];
	}
}

/* Branch-free over lanes, so that it vectorizes. */
TFMC_MULTIVERSION bool fixed_keep_better(struct fixed_fit *restrict best, double *restrict most,
                                         const struct fixed_fit *restrict fit, const double *restrict gain)
{
	int any = 0;
	for (int l = 0; l < LANES; l++) {
		bool better = gain[l] > most[l];
		best->scale[l] = better ? fit->scale[l] : best->scale[l];
		best->offset[l] = better ? fit->offset[l] : best->offset[l];
		most[l] = better ? gain[l] : most[l];
		any |= better;
	}
	return any;
}

/* ---- formats with shifts ---- */

/*
 * Search for scales of formats with shifts (ir_format_desc.shift): element = scale * (quant + shift), and the low
 * bits of the f16 scale encode the shift. Candidates differ in shift, sign of the scale, and how far the codebook
 * reaches beyond the elements; the least-squares fit of their quants ranks them. The best are tried with other
 * reaches, and the best of those refined by alternating: choose scale and shift for the quants, then round to the
 * quants. SIMD over blocks as in fixed.h: all lanes take the same path.
 */

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

/* The representable scale nearest to `scale` whose low bits encode `shift`: steps of 1 << d->shift in the bits of
 * the f16, from `low` on. Its magnitude cannot be below that of `low`. */
static double scale_with_shift(const struct ir_format_desc *d, double scale, int shift)
{
	int bits = f64_to_f16(scale * FORMAT_SHIFT_SCALE), low = shift + ir_format_shift_bias(d);
	int steps = ((bits & 0x7fff) - low + ir_format_shift_bias(d)) >> d->shift;
	bits = (bits & 0x8000) + (steps > 0 ? steps << d->shift : 0) + low;
	return f16_to_f64((uint16_t)bits) / FORMAT_SHIFT_SCALE;
}

/* scale_with_shift by f32 bit operations, if the stored scale is a normal f16 (f32 with 13 fewer mantissa bits),
 * well inside of its range; else 0. low: the biased shift. */
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
 * two neighbours, the one with the least squared error. The shift is clamped so that the neighbours exist. Sums for
 * quants + k follow from those of the quants. */
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

/* Rounds the fits of all lanes to representable scales and shifts: all as if they were normal, then those that
 * are not one by one. */
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

/* Least scale of the given sign for which the shifted codebook, whose ends are its first and last value, covers all
 * elements. Shifts are smaller than these, so that the signs of the ends stay. Lanes of unit 0 get no finite scale,
 * and need none. */
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

/* s->best: the BEST of the first n candidates in each lane, by insertion: a better one moves the others down. */
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

/* Rounds with candidates [first, end), and replaces each by the least-squares fit of its quants; the offset of the
 * fit is its shift. */
static void try_fits(const struct weight_quantizer *z, struct fixed_blocks *b, struct search *s, int first,
                     int end)
{
	fixed_sum(&z->fixed, b, end - first, s->fits + first, s->sums + first);
	for (int i = first; i < end; i++)
		fixed_solve(b, &s->sums[i], true, &s->fits[i], s->gain[i]);
}

/* Fits all pairs of shift (-14, -10 .. 14) and sign at the first reach, then the best ones at other reaches;
 * s->best: the best of all. */
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

/* Rounds the fits of the BEST candidates to representable scales and keeps the best, then rounds the elements with
 * them and fits again, REFINED times. A lane without any finite fit keeps NaN, which the caller reports. */
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
	for (int i = 0; i <= REFINED; i++) { /* the first time with the sums of the search */
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
