/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantized rows: memory, dequantization, quantization, and the error of quantization. For quantization see quants.h;
 * the search for scales works in fixed point (fixed.c), the final rounding in f64.
 */
#include "ir/weights/quants.h"

#include <math.h>
#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/compiler.h"
#include "ir/support/memory.h"
#include "ir/weights/weight.h"

#define REFINED_MAX      8     /* iterations of rounding and least squares */
#define ERROR_BLOCK_SIZE 16384 /* elements that are quantized again at once, at least a row */

/* Number of values in each array of a row. */
struct row_sizes {
	int64_t blocks, offsets, supers, super_offsets;
};

static struct row_sizes row_sizes(const struct weight_quants *c)
{
	bool has_offset = ir_format(c->format)->has_offset;
	int64_t blocks = ir_format_blocks(c->format, c->k), supers = ir_format_super_blocks(c->format, c->k);
	return (struct row_sizes){blocks, has_offset ? blocks : 0, supers, has_offset ? supers : 0};
}

/* Floats are first, so that they are aligned. At least one byte: no memory is a failure. */
bool weight_quants_alloc(struct weight_quants *c, enum ir_format format, int64_t k, int64_t rows)
{
	*c = (struct weight_quants){.format = format, .k = k};
	struct row_sizes n = row_sizes(c);
	int64_t floats, bytes, quants;
	if (!checked_mul_i64(n.blocks + n.offsets + n.supers + n.super_offsets, rows, &floats) ||
	    !checked_mul_i64(floats, (int64_t)sizeof(float), &bytes) || !checked_mul_i64(k, rows, &quants) ||
	    !checked_add_i64(bytes, quants, &bytes))
		return false;
	c->scales = memory_alloc((size_t)bytes + 1);
	if (!c->scales)
		return false;
	float *at = c->scales + n.blocks * rows;
	c->offsets = n.offsets ? at : NULL;
	at += n.offsets * rows;
	c->super_scales = n.supers ? at : NULL;
	at += n.supers * rows;
	c->super_offsets = n.super_offsets ? at : NULL;
	at += n.super_offsets * rows;
	c->quants = (int8_t *)(void *)at;
	return true;
}

void weight_quants_free(struct weight_quants *c)
{
	memory_free(c->scales);
	*c = (struct weight_quants){0};
}

struct weight_quants weight_quants_from_row(const struct weight_quants *c, int64_t row)
{
	struct row_sizes n = row_sizes(c);
	struct weight_quants r = *c;
	r.quants += row * c->k;
	r.scales += row * n.blocks;
	r.offsets = n.offsets ? r.offsets + row * n.offsets : NULL;
	r.super_scales = n.supers ? r.super_scales + row * n.supers : NULL;
	r.super_offsets = n.super_offsets ? r.super_offsets + row * n.super_offsets : NULL;
	return r;
}

/* The low bits of the stored f16 scale. */
int weight_block_shift(const struct weight_quants *row, int64_t b)
{
	const struct ir_format_desc *d = ir_format(row->format);
	if (d->shift == 0)
		return 0;
	int bits = f64_to_f16((double)row->scales[b] * FORMAT_SHIFT_SCALE);
	return (bits & ((1 << d->shift) - 1)) - ir_format_shift_bias(d);
}

/* Scale and offset of block b of a row, times the factors of its super-block. */
static void block_scale(const struct weight_quants *row, int64_t b, double *scale, double *offset)
{
	int64_t s = b / ir_format(row->format)->super;
	*scale = row->scales[b];
	*offset = row->offsets ? row->offsets[b] : 0;
	if (row->super_scales)
		*scale *= row->super_scales[s];
	if (row->super_offsets)
		*offset *= row->super_offsets[s];
}

/* scale * quant + offset in f64, rounded once to f32, as the format defines; a last block may be shorter. */
void weight_dequantize(const struct weight_quants *c, int64_t rows, double *out)
{
	int64_t blocks = ir_format_blocks(c->format, c->k), block = ir_format(c->format)->block;
	if (block == 0)
		block = c->k;
	for (int64_t r = 0; r < rows; r++) {
		const struct weight_quants row = weight_quants_from_row(c, r);
		for (int64_t b = 0; b < blocks; b++) {
			double scale, offset;
			int64_t end = (b + 1) * block < c->k ? (b + 1) * block : c->k;
			block_scale(&row, b, &scale, &offset);
			for (int64_t i = b * block; i < end; i++)
				out[r * c->k + i] = (float)(scale * row.quants[i] + offset);
		}
	}
}

/* ---- candidate scales ---- */

/* The quant nearest to v; ties to even, of a codebook to the first. NaN: any. */
static int8_t nearest_quant(const struct ir_format_desc *d, double v)
{
	int least = ir_format_quant_min(d), most = ir_format_quant_max(d);
	if (!d->codebook) /* adding 1.5 * 2^52 rounds to an integer: doubles of that size have no fraction bits */
		return (int8_t)((v > least ? v < most ? v : most : least) + 0x1.8p52 - 0x1.8p52);
	int best = 0;
	for (int i = 1; i < 16; i++)
		if (fabs(d->codebook[i] - v) < fabs(d->codebook[best] - v))
			best = i;
	return d->codebook[best];
}

/* Only intervals of 16 places whose ends round to different values are filled one by one. */
struct weight_quantizer weight_quantizer(enum ir_format f)
{
	const struct ir_format_desc *d = ir_format(f);
	struct weight_quantizer z = {.format = f, .fixed = fixed_format(f)};
	/* Only intervals whose ends round to different values are filled one by one. */
	for (int i = 0, step = 16; d->codebook && i < CODE_PLACES; i += step) {
		int8_t here = nearest_quant(d, (i - CODE_PLACES / 2) / 4.0);
		bool same = here == nearest_quant(d, (i + step - CODE_PLACES / 2) / 4.0);
		for (int k = i; k < i + step && k < CODE_PLACES; k++)
			z.nearest[k] = same ? here : nearest_quant(d, (k - CODE_PLACES / 2) / 4.0);
	}
	return z;
}

/* Scale and offset of a block. */
struct fit {
	double scale, offset;
};

/* Elements of a block, and the statistics of their inputs (squares NULL: unknown). */
struct sample {
	const double *x;
	struct weight_input_stats in;
	int64_t n;
};

double weight_input_variance(const struct weight_input_stats *in, int64_t i)
{
	double v = in->squares[i] - in->means[i] * in->means[i], least = in->squares[i] / 100;
	return v > least ? v : least;
}

/* Scale and offset that map `least` and `most` to the first and the last quant: -127 and 127 of 8 bits, 0 and the
 * largest of fewer. */
static struct fit fit_range(const struct ir_format_desc *d, double least, double most)
{
	if (d->bits == 8)
		return (struct fit){(most - least) / 254, (most + least) / 2};
	return (struct fit){(most - least) / ((1 << d->bits) - 1), least};
}

/* Scale without offset that maps the element `far`, the one of largest magnitude, to the quant of largest magnitude
 * plus `more` quant steps. Fewer than 8 bits reach further on the negative side: that is the first quant. E2M1
 * begins with 0, and its largest value is the 8th. */
static struct fit fit_magnitude(const struct ir_format_desc *d, double far, double more)
{
	int half = 1 << (d->bits - 1), first = d->codebook ? d->codebook[0] : -half,
	    last = first != 0 ? first : d->codebook[7];
	if (d->bits == 8)
		return (struct fit){fabs(far) / (127 + more), 0};
	return (struct fit){far / (last * (1 + more / half)), 0};
}

/*
 * Candidates move the ends of the range by fractions of a quant step, clipping elements where it shrinks: each rounds
 * the elements differently. The best candidate has a fifth less squared error in blocks of 32 than the range itself.
 */
static const double cuts[] = {0, -0.45, 0.45, 0.9, 1.35, 1.8, 2.25},
                    more[] = {0, 0.25, 0.5, 0.8, 1.1, 1.4, 1.75, -0.3, -0.6, -1, -1.6, -2.3};
enum { CUTS = TFMC_COUNT(cuts), STARTS = TFMC_COUNT(more) };

/* Candidate `number` of all lanes, in units of fixed_blocks: there the range of a block, or its larger end, is
 * +-32767. With an offset, the number selects a cut at each end. */
static void make_candidate(const struct ir_format_desc *d, const struct fixed_blocks *b, int number,
                           struct fixed_fit *out)
{
	double end = INT16_MAX, step = fit_range(d, -end, end).scale;
	struct fit f = fit_magnitude(d, end, more[number % STARTS]);
	if (d->has_offset)
		f = fit_range(d, cuts[number / CUTS] * step - end, end - cuts[number % CUTS] * step);
	for (int l = 0; l < FIXED_LANES; l++) {
		/* Quants of fewer than 8 bits reach further on the negative side: a negative scale if the
		 * largest element is negative. */
		bool is_negative = !d->has_offset && d->bits < 8 && -b->least[l] > b->most[l];
		out->scale[l] = is_negative ? -f.scale : f.scale;
		out->offset[l] = f.offset;
	}
}

/* Scales and offsets of all lanes: the best candidate, STARTS at a time, then rounding and least squares in
 * alternation while they help in any lane. At the end from units of fixed_blocks to those of elements. */
static void fit_blocks(const struct weight_quantizer *z, struct fixed_blocks *b, struct fixed_fit *best)
{
	const struct ir_format_desc *d = ir_format(z->format);
	struct fixed_fit fits[STARTS];
	struct fixed_sums sums[STARTS];
	double gain[FIXED_LANES], most[FIXED_LANES];
	int all = d->has_offset ? CUTS * CUTS : STARTS, n;
	bool better = true;
	for (int l = 0; l < FIXED_LANES; l++)
		most[l] = -1;
	for (int first = 0; first < all; first += n) {
		n = all - first < STARTS ? all - first : STARTS;
		for (int i = 0; i < n; i++)
			make_candidate(d, b, first + i, &fits[i]);
		fixed_sum(&z->fixed, b, n, fits, sums);
		for (int i = 0; i < n; i++) {
			fixed_solve(b, &sums[i], d->has_offset, &fits[i], gain);
			(void)fixed_keep_better(best, most, &fits[i], gain);
		}
	}
	for (int i = 0; better && i < REFINED_MAX; i++) {
		fits[0] = *best;
		fixed_sum(&z->fixed, b, 1, fits, sums);
		fixed_solve(b, sums, d->has_offset, fits, gain);
		better = fixed_keep_better(best, most, fits, gain);
	}
	for (int l = 0; l < FIXED_LANES; l++) {
		best->scale[l] *= b->unit[l];
		best->offset[l] = best->offset[l] * b->unit[l] + b->centre[l];
	}
}

/* Block b of the row x; the last may be shorter. in: statistics of the whole row, or NULL. */
static struct sample block_sample(const struct weight_quants *row, const double *x,
                                  const struct weight_input_stats *in, int64_t b)
{
	int block = ir_format(row->format)->block;
	int64_t size = block ? block : row->k, at = b * size;
	struct sample s = {.x = x + at, .n = row->k - at < size ? row->k - at : size};
	if (in)
		s.in = (struct weight_input_stats){in->squares + at, in->means + at};
	return s;
}

/* Quantizes the scales (or offsets) v of a super-block to integers of d->sub bits in place, with the factor *of of
 * type d->scale: signed 8 bits, unsigned 4. Unsigned ones are negative if one of v is (by a negative factor), and
 * positive ones then 0: a block above a minimum of 0 only has larger steps. */
static void quantize_scales(const struct ir_format_desc *d, float *v, int64_t n, float *of)
{
	double least_value = 0, largest = 0;
	for (int64_t i = 0; i < n; i++) {
		least_value = (double)v[i] < least_value ? (double)v[i] : least_value;
		largest = fabs((double)v[i]) > largest ? fabs((double)v[i]) : largest;
	}
	const int most = d->sub == 4 ? 15 : (1 << (d->sub - 1)) - 1, least = d->sub == 4 ? 0 : -most;
	double end = d->sub == 4 && least_value < 0 ? least_value : largest;
	double step = ir_round(d->scale, end / most);
	*of = (float)step;
	for (int64_t i = 0; i < n; i++) {
		double q = step != 0 ? nearbyint((double)v[i] / step) : 0;
		v[i] = (float)(q > most ? most : q < least ? least : q);
	}
}

/* Rewrites the fit of block b with the smallest scale and offset: quants of the elements x begin at 0, and two
 * values are the first and the last. A fit by the upper two quants has an offset of three ranges, beside which those
 * of the other blocks of its super-block are few steps of 4 bits. */
static void normalize_fit(const struct ir_format_desc *d, const struct weight_quants *row, const double *x,
                          int64_t b)
{
	const struct sample s = block_sample(row, x, NULL, b);
	double scale = (double)row->scales[b], offset = (double)row->offsets[b];
	int low = INT8_MAX, high = INT8_MIN;
	for (int64_t i = 0; scale > 0 && i < s.n; i++) {
		int quant = nearest_quant(d, (s.x[i] - offset) / scale);
		low = quant < low ? quant : low;
		high = quant > high ? quant : high;
	}
	if (high < low)
		return;
	row->offsets[b] = (float)(offset + scale * low);
	if (high - low < 2)
		row->scales[b] = (float)(scale * (high - low) / ir_format_quant_max(d));
}

/* quantize_scales of a super-block's n blocks from b on. Offsets of 4 bits are far from those that were fitted:
 * scales then keep the upper end of their blocks, which is stored in scales[i] (in quant steps) while offsets are
 * quantized. */
static void quantize_super_block(const struct ir_format_desc *d, const struct weight_quants *row,
                                 const double *x, int64_t b, int64_t n)
{
	float *scales = row->scales + b, *offsets = d->has_offset ? row->offsets + b : NULL;
	for (int64_t i = 0; offsets && d->sub == 4 && i < n; i++) {
		normalize_fit(d, row, x, b + i);
		scales[i] += offsets[i] / (float)ir_format_quant_max(d);
	}
	if (offsets)
		quantize_scales(d, offsets, n, &row->super_offsets[b / d->super]);
	for (int64_t i = 0; offsets && d->sub == 4 && i < n; i++) {
		scales[i] -= offsets[i] * row->super_offsets[b / d->super] / (float)ir_format_quant_max(d);
		scales[i] = scales[i] > 0 ? scales[i] : 0;
	}
	quantize_scales(d, scales, n, &row->super_scales[b / d->super]);
}

/* Rounds the scales and offsets of a row to their stored type; with super-blocks to integers times a factor for each
 * super-block. */
static void round_scales(const struct weight_quants *row, const struct ir_format_desc *d, const double *x)
{
	int64_t blocks = ir_format_blocks(row->format, row->k);
	for (int64_t b = 0; b < blocks; b += d->super) {
		int64_t n = blocks - b < d->super ? blocks - b : d->super;
		if (d->super > 1) {
			quantize_super_block(d, row, x, b, n);
			continue;
		}
		row->scales[b] = (float)ir_round(d->scale, (double)row->scales[b]);
		if (d->has_offset)
			row->offsets[b] = (float)ir_round(d->scale, (double)row->offsets[b]);
	}
}

/* ---- the sum of weighted errors ---- */

/* A quant replaced by its neighbour. */
struct change {
	int64_t i; /* element of the row; -1: none lowers the error */
	int8_t quant;
	double by;     /* change of the sum of m(k) e(k) */
	double counts; /* change of the expected squared error */
};

/* The next quant above (up) or below; false if `quant` is the last one. Values of a codebook are not in order: the
 * nearest beyond is searched. */
static bool neighbour_quant(const struct ir_format_desc *d, int8_t quant, bool up, int8_t *out)
{
	int least = ir_format_quant_min(d), most = ir_format_quant_max(d);
	bool found = false;
	if (!d->codebook) {
		*out = (int8_t)(up ? quant + 1 : quant - 1);
		return *out >= least && *out <= most;
	}
	for (int i = 0; i < 16; i++) {
		int8_t c = d->codebook[i];
		bool beyond = up ? c > quant : c < quant;
		if (beyond && (!found || (up ? c < *out : c > *out))) {
			*out = c;
			found = true;
		}
	}
	return found;
}

/* Updates *best with the best change in block b: a quant that moves to the other side of its element, where that
 * moves the sum of m(k) e(k) over the row toward 0 and lowers the expected squared error of the dot product.
 * row->quants have the shift added, the codebook has not. */
static void find_change(const struct weight_quants *row, const struct sample *s, int64_t b, double sum,
                        struct change *best)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t at = b * (d->block ? d->block : row->k);
	int shift = weight_block_shift(row, b);
	struct fit f;
	block_scale(row, b, &f.scale, &f.offset);
	for (int64_t i = 0; i < s->n; i++) {
		int8_t quant = (int8_t)(row->quants[at + i] - shift);
		double e = f.scale * row->quants[at + i] + f.offset - s->x[i], m = s->in.means[i];
		bool rises = e < 0;
		/* the quant on the other side of the element; only if that moves the sum toward 0 */
		if ((rises ? m : -m) * sum >= 0 || !neighbour_quant(d, quant, rises == (f.scale > 0), &quant))
			continue;
		quant = (int8_t)(quant + shift);
		double step = f.scale * (quant - row->quants[at + i]), by = m * step;
		/* The change of the expected squared error, sum of v(k) e(k)^2 + (sum of m(k) e(k))^2. */
		double counts =
		        (s->in.squares ? weight_input_variance(&s->in, i) : 1) * step * (2 * e + step) +
		        by * (2 * sum + by);
		if (counts < best->counts)
			*best = (struct change){at + i, quant, by, counts};
	}
}

/* Lowers the expected squared error of the row's dot product: greedily replaces single quants by their neighbours,
 * at most k of them, which bounds the time. */
static void cancel_mean_error(const struct weight_quants *row, const double *x,
                              const struct weight_input_stats *in)
{
	int64_t blocks = ir_format_blocks(row->format, row->k);
	double sum = 0;
	for (int64_t b = 0; b < blocks; b++) {
		const struct sample s = block_sample(row, x, in, b);
		struct fit f;
		block_scale(row, b, &f.scale, &f.offset);
		for (int64_t i = 0; i < s.n; i++)
			sum += s.in.means[i] * (f.scale * row->quants[s.x + i - x] + f.offset - s.x[i]);
	}
	for (int64_t n = 0; n < row->k && isfinite(sum); n++) {
		struct change best = {.i = -1};
		for (int64_t b = 0; b < blocks; b++) {
			const struct sample s = block_sample(row, x, in, b);
			find_change(row, &s, b, sum, &best);
		}
		if (best.i < 0)
			return;
		row->quants[best.i] = best.quant;
		sum += best.by;
	}
}

/* Fits the scales (and offsets) of all blocks of `rows` rows, FIXED_LANES blocks at a time, of consecutive rows.
 * Unused lanes of the last set have 0 elements. */
static void find_scales(const struct weight_quantizer *z, const struct weight_quants *quants, int64_t rows,
                        const double *x, const struct weight_input_stats *in)
{
	const struct ir_format_desc *d = ir_format(quants->format);
	int64_t blocks = ir_format_blocks(quants->format, quants->k), size = d->block ? d->block : quants->k;
	struct fixed_blocks b = {.in = in};
	struct fixed_fit fit;
	for (int64_t first = 0; first < rows * blocks; first += FIXED_LANES) {
		int64_t lanes = rows * blocks - first < FIXED_LANES ? rows * blocks - first : FIXED_LANES;
		for (int64_t l = 0; l < FIXED_LANES; l++) {
			int64_t row = (first + l) / blocks, column = (first + l) % blocks * size;
			int64_t left = l < lanes ? quants->k - column : 0;
			b.from[l] = l < lanes ? x + row * quants->k + column : x;
			b.column[l] = column;
			b.n[l] = left < size ? left : size;
		}
		fixed_begin(&b, d->has_offset);
		if (d->shift > 0)
			weight_fit_shifted_scales(z, &b, fit.scale);
		else
			fit_blocks(z, &b, &fit);
		for (int64_t l = 0; l < lanes; l++)
			quants->scales[first + l] = (float)fit.scale[l];
		for (int64_t l = 0; d->has_offset && l < lanes; l++)
			quants->offsets[first + l] = (float)fit.offset[l];
	}
}

/* ---- rounding to quants ---- */

/* out[i]: (x[i] - offset) * inverse, clamped to [least, most] and rounded to nearest even. */
TFMC_MULTIVERSION static void round_integers(const double *restrict x, int64_t n, double offset,
                                             double inverse, double least, double most, int8_t *restrict out)
{
	for (int64_t i = 0; i < n; i++) {
		double v = (x[i] - offset) * inverse;
		v = v > least ? v : least;
		v = v < most ? v : most;
		/* adding 1.5 * 2^52 rounds to an integer */
		out[i] = (int8_t)(int32_t)(v + 0x1.8p52 - 0x1.8p52);
	}
}

/* out[i]: of the codebook's values plus `shift`, the one nearest to (x[i] - offset) * inverse; by the table
 * nearest[CODE_PLACES] over quotients in steps of 1/4: even places are multiples of 1/2, odd ones all that is
 * between. */
TFMC_MULTIVERSION static void round_to_book(const int8_t *restrict nearest, const double *restrict x,
                                            int64_t n, double offset, double inverse, int shift,
                                            int8_t *restrict out)
{
	double far = CODE_PLACES / 4, zero = far - 2 * shift;
	int place[FIXED_LANES];
	for (int64_t at = 0; at < n; at += FIXED_LANES) {
		int64_t some = n - at < FIXED_LANES ? n - at : FIXED_LANES;
		for (int64_t i = 0; i < some; i++) {
			double halves = (x[at + i] - offset) * (2 * inverse) + zero;
			halves = halves > 0 ? halves : 0;
			halves = halves < 2 * far ? halves : 2 * far;
			int whole = (int)halves;
			place[i] = 2 * whole + (halves > whole);
		}
		for (int64_t i = 0; i < some; i++)
			out[at + i] = (int8_t)(nearest[place[i]] + shift);
	}
}

/* Quants of a row for its stored scales, so that rounding sees their errors; 0 where 1 / scale is not finite. */
static void round_quants(const struct weight_quantizer *z, const struct weight_quants *row, const double *x)
{
	const struct ir_format_desc *d = ir_format(row->format);
	for (int64_t b = 0; b < ir_format_blocks(row->format, row->k); b++) {
		const struct sample s = block_sample(row, x, NULL, b);
		int8_t *out = row->quants + (s.x - x);
		double scale, offset;
		block_scale(row, b, &scale, &offset);
		if (!isfinite(1 / scale))
			memset(out, 0, (size_t)s.n);
		else if (d->codebook)
			round_to_book(z->nearest, s.x, s.n, offset, 1 / scale, weight_block_shift(row, b),
			              out);
		else
			round_integers(s.x, s.n, offset, 1 / scale, z->fixed.least, z->fixed.most, out);
	}
}

/* Sum of |x|; not finite if an element is not. 8 accumulators, so that it vectorizes. */
TFMC_MULTIVERSION static double sum_magnitudes(const double *x, int64_t n)
{
	double sums[8] = {0};
	int64_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (int l = 0; l < 8; l++)
			sums[l] += fabs(x[i + l]);
	for (; i < n; i++)
		sums[0] += fabs(x[i]);
	for (int l = 1; l < 8; l++)
		sums[0] += sums[l];
	return sums[0];
}

static bool are_finite(const float *v, int64_t n)
{
	for (int64_t i = 0; v && i < n; i++)
		if (!isfinite(v[i]))
			return false;
	return true;
}

/* Quantizes one row whose scales are fitted: scales are rounded first, then quants for them. False if a scale or
 * offset overflowed. */
static bool quantize_row(const struct weight_quantizer *z, const struct weight_quants *row, const double *x,
                         const struct weight_input_stats *in)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t blocks = ir_format_blocks(row->format, row->k),
	        supers = ir_format_super_blocks(row->format, row->k);
	if (d->shift == 0) /* scales with shifts are fitted as stored values */
		round_scales(row, d, x);
	if (!are_finite(row->scales, blocks) || !are_finite(row->offsets, blocks) ||
	    !are_finite(row->super_scales, supers) || !are_finite(row->super_offsets, supers))
		return false;
	round_quants(z, row, x);
	if (in)
		cancel_mean_error(row, x, in);
	return true;
}

/* The element of largest magnitude, or NaN, for the message. */
static double farthest(const double *x, int64_t n)
{
	double far = 0;
	for (int64_t i = 0; i < n; i++)
		far = isnan(x[i]) || fabs(x[i]) > fabs(far) ? x[i] : far;
	return far;
}

/* wrong: the first row that fails; nothing is done after it. */
bool weight_quantize(const struct weight_quantizer *z, const struct weight_quants *quants, int64_t rows,
                     const double *x, const struct weight_input_stats *in, double *worst)
{
	int64_t k = quants->k, wrong = -1;
	for (int64_t i = 0; i < rows && wrong < 0; i++)
		wrong = isfinite((float)sum_magnitudes(x + i * k, k)) ? -1 : i;
	/* Offsets of 4 bits lose what weights move a fit by, and then are worse than those of the plain fit. */
	if (wrong < 0)
		find_scales(z, quants, rows, x, ir_format(quants->format)->sub == 4 ? NULL : in);
	for (int64_t i = 0; i < rows && wrong < 0; i++) {
		const struct weight_quants row = weight_quants_from_row(quants, i);
		wrong = quantize_row(z, &row, x + i * k, in) ? -1 : i;
	}
	*worst = wrong < 0 ? 0 : farthest(x + wrong * k, k);
	return wrong < 0;
}

/* ---- the error of quantization ---- */

/* Adds the error of a row x that was quantized to q, by the formula of quants.h; in: mean squares and means of its
 * inputs [2, k], NULL: unknown, then only the errors of elements. */
static void add_row_error(struct wexpr_quant_errors *out, const double *x, const double *q, const double *in,
                          int64_t k)
{
	const struct weight_input_stats inputs = {in, in ? in + k : NULL};
	double sum = 0, sum_x = 0;
	for (int64_t i = 0; i < k; i++) {
		double e = q[i] - x[i], variance = in ? weight_input_variance(&inputs, i) : 0;
		out->elements += e * e;
		out->of_elements += x[i] * x[i];
		out->products += variance * e * e;
		out->of_products += variance * x[i] * x[i];
		sum += in ? in[k + i] * e : 0;
		sum_x += in ? in[k + i] * x[i] : 0;
	}
	out->products += sum * sum;
	out->of_products += sum_x * sum_x;
}

/* Adds the errors of a `quantize` node, some rows at a time: the argument and the dequantized node are evaluated and
 * compared. */
static enum tfmc_status add_matrix_errors(struct diag_context *cx, const struct ir_wexpr *e,
                                          const struct weight_source *source, struct wexpr_quant_errors *out)
{
	int64_t k = e->dims[e->rank - 1], n = wexpr_count(e);
	if (n == 0)
		return TFMC_OK;
	int64_t some = k < ERROR_BLOCK_SIZE ? ERROR_BLOCK_SIZE / k * k : k;
	double *x = memory_alloc((size_t)(2 * some + 2 * k) * sizeof(*x) + 1);
	if (!x)
		return TFMC_NO_MEMORY;
	double *q = x + some, *in = q + some;
	bool has_inputs = e->n_args > 1;
	enum tfmc_status st = TFMC_OK;
	if (has_inputs)
		st = wexpr_eval(cx, e->args[1], source, 0, 2 * k, in);
	for (int64_t at = 0; st == TFMC_OK && at < n; at += some) {
		some = n - at < some ? n - at : some;
		st = wexpr_eval(cx, e->args[0], source, at, some, x);
		if (st == TFMC_OK)
			st = wexpr_eval(cx, e, source, at, some, q);
		for (int64_t i = 0; st == TFMC_OK && i < some; i += k)
			add_row_error(out, x + i, q + i, has_inputs ? in : NULL, k);
	}
	memory_free(x);
	return st;
}

enum tfmc_status wexpr_add_quant_errors(struct diag_context *cx, const struct ir_wexpr *e,
                                        const struct weight_source *source, struct wexpr_quant_errors *out)
{
	if (e->kind == WX_QUANTIZE)
		return add_matrix_errors(cx, e, source, out);
	for (size_t i = 0; i < e->n_args; i++)
		TFMC_TRY(wexpr_add_quant_errors(cx, e->args[i], source, out));
	return TFMC_OK;
}
