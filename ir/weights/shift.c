/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of formats with shifts. Starts differ in the shift, in how far the ends of the codes are beyond those of the
 * elements and in the sign of the scale; of the codes that each gives the scale and offset of least squared error say how
 * good it can become. The best are refined: the scale that says the nearest shift, the codes for it, and so on.
 */
#include <math.h>

#include "ir/weights/codes.h"
#include "ir/weights/weight.h"

#define BLOCK       32 /* elements at most */
#define CODE_MOST   64 /* magnitude of a code */
#define CANDIDATES  4  /* starts that are refined */
#define REFINED_MAX 8  /* times */

/* nearest[i]: the code nearest to numbers between i and i + 1 halves from -CODE_MOST on. Codes of integers change sides
 * only there. */
struct search {
	const struct ir_format_desc *d;
	double nearest[4 * CODE_MOST];
};

/* x, what the square of an error counts, and sums of w and w x. */
struct block {
	double x[BLOCK], w[BLOCK];
	int64_t n;
	double sum, sum_x, least, most;
};

/* A scale and what is added to codes, the sums over a block of w q, w q q, w x q of the codes that come, and what these
 * explain of the squares. */
struct candidate {
	double scale, shift, q, qq, xq, gain;
};

static struct search search_of(const struct ir_format_desc *d)
{
	struct search s = {.d = d};
	const int8_t *code = d->codebook;
	for (int i = 0, c = 0; i < 4 * CODE_MOST; i++) {
		double v = (i + 0.5) / 2 - CODE_MOST;
		while (c < 15 && v - code[c] > code[c + 1] - v)
			c++;
		s.nearest[i] = code[c];
	}
	return s;
}

/* The sums of the codes for a scale and shift. Two loops, as the first has no look-ups. */
static void sum_codes(const struct search *s, const struct block *b, struct candidate *c)
{
	const double last = TFMC_COUNT(s->nearest) - 1;
	double halves = isfinite(2 / c->scale) ? 2 / c->scale : 0, zero = 2 * (CODE_MOST - c->shift);
	double q = 0, qq = 0, xq = 0;
	int at[BLOCK];
	for (int i = 0; i < BLOCK; i++) {
		double v = b->x[i] * halves + zero;
		v = v > 0 ? v : 0;
		at[i] = (int)(v < last ? v : last);
	}
	for (int64_t i = 0; i < b->n; i++) {
		double code = s->nearest[at[i]], wq = b->w[i] * code;
		q += wq;
		qq += wq * code;
		xq += wq * b->x[i];
	}
	c->q = q;
	c->qq = qq;
	c->xq = xq;
}

/* The scale and shift of least squared error for the codes, the shift any number. */
static void fit(const struct block *b, struct candidate *c)
{
	double with = c->xq - c->q * b->sum_x / b->sum, own = c->qq - c->q * c->q / b->sum;
	c->gain = 0;
	if (!(own > 0 && with != 0))
		return;
	c->gain = with * with / own;
	c->scale = with / own;
	c->shift = (b->sum_x - c->scale * c->q) / (b->sum * c->scale);
}

/* The scale nearest to `scale` that says `shift`. */
static double scale_with(const struct ir_format_desc *d, double scale, int shift)
{
	int bits = f64_to_half(scale * FORMAT_SHIFT_UNIT), low = shift + ir_format_shift_zero(d);
	int steps = ((bits & 0x7fff) - low + ir_format_shift_zero(d)) >> d->shift;
	bits = (bits & 0x8000) + (steps > 0 ? steps << d->shift : 0) + low;
	return half_to_f64((uint16_t)bits) / FORMAT_SHIFT_UNIT;
}

/* For the codes, of the scales that say the shift or one beside it that of least error. */
static struct candidate round_shift(const struct search *s, const struct block *b, const struct candidate *c)
{
	int zero = ir_format_shift_zero(s->d);
	double within = c->shift > -zero ? c->shift < zero - 1 ? c->shift : zero - 1 : -zero;
	int middle = (int)nearbyint(within);
	struct candidate best = {.scale = NAN, .gain = -HUGE_VAL};
	for (int i = middle - 1; i <= middle + 1; i++) {
		double qq = c->qq + i * (2 * c->q + i * b->sum), xq = c->xq + i * b->sum_x;
		if (i < -zero || i >= zero)
			continue;
		double scale = scale_with(s->d, qq > 0 ? xq / qq : c->scale, i);
		double gain = scale * (2 * xq - scale * qq);
		if (gain > best.gain)
			best = (struct candidate){.scale = scale, .shift = i, .gain = gain};
	}
	return best;
}

/* The least scale of a sign for which no element is beyond the codes. */
static double reaching(const struct search *s, const struct block *b, int shift, bool is_negative)
{
	double low = is_negative ? -b->most : b->least, high = is_negative ? -b->least : b->most;
	double by_low = low / (s->d->codebook[0] + shift), by_high = high / (s->d->codebook[15] + shift);
	double scale = by_low > by_high ? by_low : by_high;
	return is_negative ? -scale : scale;
}

/* The best first. */
static void consider(struct candidate *list, const struct candidate *one)
{
	int i = CANDIDATES - 1;
	if (!(one->gain > list[i].gain))
		return;
	for (; i > 0 && one->gain > list[i - 1].gain; i--)
		list[i] = list[i - 1];
	list[i] = *one;
}

static void try_starts(const struct search *s, const struct block *b, struct candidate *list)
{
	static const double parts[] = {1, 0.92, 0.84};
	for (int i = 0; i < CANDIDATES; i++)
		list[i] = (struct candidate){.scale = NAN, .gain = -1};
	for (int n = 0; n < 16; n++) {
		int shift = n / 2 * 4 - 14;
		double scale = reaching(s, b, shift, n % 2 == 1);
		for (size_t p = 0; p < TFMC_COUNT(parts); p++) {
			struct candidate one = {.scale = parts[p] * scale, .shift = shift};
			sum_codes(s, b, &one);
			fit(b, &one);
			consider(list, &one);
		}
	}
}

static double refine(const struct search *s, const struct block *b, struct candidate from, double *gain)
{
	struct candidate best = round_shift(s, b, &from), next = best;
	for (int turn = 0; turn < REFINED_MAX; turn++) {
		sum_codes(s, b, &next);
		next = round_shift(s, b, &next);
		if (!(next.gain > best.gain))
			break;
		best = next;
	}
	*gain = best.gain;
	return best.scale;
}

/* NaN where all starts are beyond the type. */
static double find_scale(const struct search *s, const struct block *b)
{
	struct candidate list[CANDIDATES];
	double best = NAN, most = -HUGE_VAL, gain;
	if (b->least == 0 && b->most == 0)
		return 0;
	try_starts(s, b, list);
	for (int i = 0; i < CANDIDATES && list[i].gain >= 0; i++) {
		if (isinf(ir_round(s->d->scale, list[i].scale * FORMAT_SHIFT_UNIT)))
			continue;
		double scale = refine(s, b, list[i], &gain);
		if (gain > most) {
			most = gain;
			best = scale;
		}
	}
	return best;
}

static void read_block(struct block *b, const double *x, const struct weight_inputs *in, int64_t from,
                       int64_t n)
{
	*b = (struct block){.n = n, .least = x[from], .most = x[from]};
	for (int64_t i = 0; i < n; i++) {
		double v = x[from + i], w = in ? weight_inputs_variance(in, from + i) : 1;
		b->x[i] = v;
		b->w[i] = w;
		b->sum += w;
		b->sum_x += w * v;
		b->least = v < b->least ? v : b->least;
		b->most = v > b->most ? v : b->most;
	}
}

void weight_codes_shifted_scales(const struct weight_codes *row, const double *x,
                                 const struct weight_inputs *in)
{
	const struct search s = search_of(ir_format(row->format));
	for (int64_t k = 0; k < row->k; k += s.d->block) {
		struct block b;
		int64_t n = row->k - k < s.d->block ? row->k - k : s.d->block;
		read_block(&b, x, in, k, n);
		row->scales[k / s.d->block] = (float)find_scale(&s, &b);
	}
}
