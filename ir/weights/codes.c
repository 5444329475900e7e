/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of codes: memory, elements, and codes for elements. */
#include "ir/weights/codes.h"

#include <math.h>

#include "ir/support/checked.h"
#include "ir/support/memory.h"
#include "ir/weights/weight.h"

#define REFINED_MAX 8

/* Arrays of a row. */
struct row_sizes {
	int64_t blocks, offsets, supers, super_offsets;
};

static struct row_sizes row_sizes(const struct weight_codes *c)
{
	bool has_offset = ir_format(c->format)->has_offset;
	int64_t blocks = ir_format_blocks(c->format, c->k), supers = ir_format_supers(c->format, c->k);
	return (struct row_sizes){blocks, has_offset ? blocks : 0, supers, has_offset ? supers : 0};
}

bool weight_codes_alloc(struct weight_codes *c, enum ir_format format, int64_t k, int64_t rows)
{
	*c = (struct weight_codes){.format = format, .k = k};
	struct row_sizes n = row_sizes(c);
	int64_t floats, bytes, codes;
	if (!checked_mul_i64(n.blocks + n.offsets + n.supers + n.super_offsets, rows, &floats) ||
	    !checked_mul_i64(floats, (int64_t)sizeof(float), &bytes) || !checked_mul_i64(k, rows, &codes) ||
	    !checked_add_i64(bytes, codes, &bytes))
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
	c->codes = (int8_t *)(void *)at;
	return true;
}

void weight_codes_release(struct weight_codes *c)
{
	memory_free(c->scales);
	*c = (struct weight_codes){0};
}

struct weight_codes weight_codes_from(const struct weight_codes *c, int64_t row)
{
	struct row_sizes n = row_sizes(c);
	struct weight_codes r = *c;
	r.codes += row * c->k;
	r.scales += row * n.blocks;
	r.offsets = n.offsets ? r.offsets + row * n.offsets : NULL;
	r.super_scales = n.supers ? r.super_scales + row * n.supers : NULL;
	r.super_offsets = n.super_offsets ? r.super_offsets + row * n.super_offsets : NULL;
	return r;
}

int weight_codes_shift(const struct weight_codes *row, int64_t b)
{
	const struct ir_format_desc *d = ir_format(row->format);
	if (d->shift == 0)
		return 0;
	int bits = f64_to_half((double)row->scales[b] * FORMAT_SHIFT_UNIT);
	return (bits & ((1 << d->shift) - 1)) - ir_format_shift_zero(d);
}

/* Scale and offset of block b of a row. */
static void block_of(const struct weight_codes *row, int64_t b, double *scale, double *offset)
{
	int64_t s = b / ir_format(row->format)->super;
	*scale = row->scales[b];
	*offset = row->offsets ? row->offsets[b] : 0;
	if (row->super_scales)
		*scale *= row->super_scales[s];
	if (row->super_offsets)
		*offset *= row->super_offsets[s];
}

void weight_codes_decode(const struct weight_codes *c, int64_t rows, double *out)
{
	int64_t blocks = ir_format_blocks(c->format, c->k), block = ir_format(c->format)->block;
	if (block == 0)
		block = c->k;
	for (int64_t r = 0; r < rows; r++) {
		const struct weight_codes row = weight_codes_from(c, r);
		for (int64_t b = 0; b < blocks; b++) {
			double scale, offset;
			int64_t end = (b + 1) * block < c->k ? (b + 1) * block : c->k;
			block_of(&row, b, &scale, &offset);
			for (int64_t i = b * block; i < end; i++)
				out[r * c->k + i] = (float)(scale * row.codes[i] + offset);
		}
	}
}

/* ---- codes for elements ---- */

/* The code nearest to v; of two as near the even one, of a codebook the first. NaN: any. */
static int8_t nearest_code(const struct ir_format_desc *d, double v)
{
	int least = d->bits == 8 ? -127 : -d->zero, most = d->bits == 8 ? 127 : 15 - d->zero;
	if (!d->codebook) /* beside 1.5 * 2^52 a double has no fraction */
		return (int8_t)((v > least ? v < most ? v : most : least) + 0x1.8p52 - 0x1.8p52);
	int best = 0;
	for (int i = 1; i < 16; i++)
		if (fabs(d->codebook[i] - v) < fabs(d->codebook[best] - v))
			best = i;
	return d->codebook[best];
}

/* Scale and offset of a block. */
struct fit {
	double scale, offset;
};

/* Elements of a block, and their inputs from there on (squares NULL: not known). */
struct sample {
	const double *x;
	struct weight_inputs in;
	int64_t n;
};

double weight_inputs_variance(const struct weight_inputs *in, int64_t i)
{
	double v = in->squares[i] - in->means[i] * in->means[i], least = in->squares[i] / 100;
	return v > least ? v : least;
}

/* What the square of an error counts. */
static double weight_of(const struct sample *s, int64_t i)
{
	return s->in.squares ? weight_inputs_variance(&s->in, i) : 1;
}

/* The scale and offset of least squared error, *error, for the codes that f gives; f where they do not say. */
static struct fit refine(const struct ir_format_desc *d, const struct sample *s, struct fit f, double *error)
{
	double n = 0, q = 0, qq = 0, x = 0, qx = 0, xx = 0, inverse = isfinite(1 / f.scale) ? 1 / f.scale : 0;
	for (int64_t i = 0; i < s->n; i++) {
		double w = weight_of(s, i), v = s->x[i], wv = w * v;
		double c = nearest_code(d, (v - f.offset) * inverse);
		n += w;
		q += w * c;
		qq += w * c * c;
		x += wv;
		qx += wv * c;
		xx += wv * v;
	}
	double det = d->has_offset ? n * qq - q * q : qq;
	if (det > 0 && d->has_offset)
		f = (struct fit){(n * qx - q * x) / det, (qq * x - q * qx) / det};
	else if (det > 0)
		f.scale = qx / det;
	*error = xx + f.scale * (f.scale * qq - 2 * qx) + f.offset * (n * f.offset + 2 * (f.scale * q - x));
	return f;
}

/* Ends of a block that get the first and the last code. */
static struct fit between(const struct ir_format_desc *d, double least, double most)
{
	if (d->bits == 8)
		return (struct fit){(most - least) / 254, (most + least) / 2};
	return (struct fit){(most - least) / 15, least};
}

/* The element that is farthest from zero gets the code that is, and `more` of what is a step between codes there. */
static struct fit reaching(const struct ir_format_desc *d, double far, double more)
{
	int first = d->codebook ? d->codebook[0] : -8, last = first != 0 ? first : d->codebook[7];
	if (d->bits == 8)
		return (struct fit){fabs(far) / (127 + more), 0};
	return (struct fit){far / (last * (1 + more / 8)), 0};
}

/*
 * Where a search begins: elements fall between codes in another way where the ends are moved by parts of a step, and may
 * be cut off. The best of some such draws loses a fifth less in blocks of 32.
 */
static bool start(const struct ir_format_desc *d, double least, double most, size_t number, struct fit *out)
{
	static const double cuts[] = {0, -0.45, 0.45, 0.9, 1.35, 1.8, 2.25},
	                    more[] = {0, 0.25, 0.5, 0.8, 1.1, 1.4, 1.75, -0.3, -0.6, -1, -1.6, -2.3};
	size_t n = TFMC_COUNT(cuts);
	double step = between(d, least, most).scale;
	if (d->has_offset && number < n * n)
		*out = between(d, least + cuts[number / n] * step, most - cuts[number % n] * step);
	else if (!d->has_offset && number < TFMC_COUNT(more))
		*out = reaching(d, -least > most ? least : most, more[number]);
	return number < (d->has_offset ? n * n : TFMC_COUNT(more));
}

/* The best of the starts, refined until that helps no more. */
static struct fit fit_block(const struct ir_format_desc *d, const struct sample *s)
{
	double least = s->x[0], most = s->x[0], least_error = HUGE_VAL, error;
	for (int64_t i = 0; i < s->n; i++) {
		least = s->x[i] < least ? s->x[i] : least;
		most = s->x[i] > most ? s->x[i] : most;
	}
	struct fit best = {0}, f;
	for (size_t k = 0; start(d, least, most, k, &f); k++) {
		f = refine(d, s, f, &error);
		if (error < least_error || k == 0) {
			least_error = error;
			best = f;
		}
	}
	for (int turn = 0; turn < REFINED_MAX; turn++) {
		f = refine(d, s, best, &error);
		if (!(error < least_error))
			break;
		least_error = error;
		best = f;
	}
	return best;
}

/* The largest magnitude of n numbers. */
static double largest(const float *v, int64_t n)
{
	double most = 0;
	for (int64_t i = 0; i < n; i++)
		most = fabs((double)v[i]) > most ? fabs((double)v[i]) : most;
	return most;
}

/* Numbers of a super block as integers of 8 bits that *of multiplies, which is a number of the type. */
static void share_scale(enum ir_dtype type, float *v, int64_t n, float *of)
{
	double step = ir_round(type, largest(v, n) / 127);
	*of = (float)step;
	for (int64_t i = 0; i < n; i++) {
		double q = step != 0 ? nearbyint((double)v[i] / step) : 0;
		v[i] = (float)(q > 127 ? 127 : q < -127 ? -127 : q);
	}
}

static void round_scales(const struct weight_codes *row, const struct ir_format_desc *d)
{
	int64_t blocks = ir_format_blocks(row->format, row->k);
	for (int64_t b = 0; b < blocks; b += d->super) {
		int64_t n = blocks - b < d->super ? blocks - b : d->super;
		if (d->super > 1) {
			share_scale(d->scale, row->scales + b, n, &row->super_scales[b / d->super]);
			if (d->has_offset)
				share_scale(d->scale, row->offsets + b, n, &row->super_offsets[b / d->super]);
			continue;
		}
		row->scales[b] = (float)ir_round(d->scale, (double)row->scales[b]);
		if (d->has_offset)
			row->offsets[b] = (float)ir_round(d->scale, (double)row->offsets[b]);
	}
}

static struct sample block_from(const struct weight_codes *row, const double *x,
                                const struct weight_inputs *in, int64_t b)
{
	int block = ir_format(row->format)->block;
	int64_t size = block ? block : row->k, at = b * size;
	struct sample s = {.x = x + at, .n = row->k - at < size ? row->k - at : size};
	if (in)
		s.in = (struct weight_inputs){in->squares + at, in->means + at};
	return s;
}

/* ---- the sum of all errors ---- */

/* A code that is changed by one, and by how much that changes what errors count. */
struct change {
	int64_t i; /* of the row; -1: none is better */
	int8_t code;
	double by, counts;
};

/* The next code on the other side of the element; false: the code is the last one. */
static bool other_side(const struct ir_format_desc *d, int8_t code, bool up, int8_t *out)
{
	int least = d->bits == 8 ? -127 : -d->zero, most = d->bits == 8 ? 127 : 15 - d->zero;
	bool found = false;
	if (!d->codebook) {
		*out = (int8_t)(up ? code + 1 : code - 1);
		return *out >= least && *out <= most;
	}
	for (int i = 0; i < 16; i++) {
		int8_t c = d->codebook[i];
		bool beyond = up ? c > code : c < code;
		if (beyond && (!found || (up ? c < *out : c > *out))) {
			*out = c;
			found = true;
		}
	}
	return found;
}

/* The best change in a block, if it is better than *best; sum: of m(k) e(k) now. */
static void find_change(const struct weight_codes *row, const struct sample *s, int64_t b, double sum,
                        struct change *best)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t at = b * (d->block ? d->block : row->k);
	int shift = weight_codes_shift(row, b);
	struct fit f;
	block_of(row, b, &f.scale, &f.offset);
	for (int64_t i = 0; i < s->n; i++) {
		int8_t code = (int8_t)(row->codes[at + i] - shift);
		double e = f.scale * row->codes[at + i] + f.offset - s->x[i], m = s->in.means[i];
		bool rises = e < 0;
		if ((rises ? m : -m) * sum >= 0 || !other_side(d, code, rises == (f.scale > 0), &code))
			continue;
		code = (int8_t)(code + shift);
		double step = f.scale * (code - row->codes[at + i]), by = m * step;
		double counts = weight_of(s, i) * step * (2 * e + step) + by * (2 * sum + by);
		if (counts < best->counts)
			*best = (struct change){at + i, code, by, counts};
	}
}

/* Changes codes one by one, the best first, as long as errors count less. */
static void balance(const struct weight_codes *row, const double *x, const struct weight_inputs *in)
{
	int64_t blocks = ir_format_blocks(row->format, row->k);
	double sum = 0;
	for (int64_t b = 0; b < blocks; b++) {
		const struct sample s = block_from(row, x, in, b);
		struct fit f;
		block_of(row, b, &f.scale, &f.offset);
		for (int64_t i = 0; i < s.n; i++)
			sum += s.in.means[i] * (f.scale * row->codes[s.x + i - x] + f.offset - s.x[i]);
	}
	for (int64_t n = 0; n < row->k && isfinite(sum); n++) {
		struct change best = {.i = -1};
		for (int64_t b = 0; b < blocks; b++) {
			const struct sample s = block_from(row, x, in, b);
			find_change(row, &s, b, sum, &best);
		}
		if (best.i < 0)
			return;
		row->codes[best.i] = best.code;
		sum += best.by;
	}
}

static void find_scales(const struct weight_codes *row, const double *x, const struct weight_inputs *in)
{
	const struct ir_format_desc *d = ir_format(row->format);
	for (int64_t b = 0; b < ir_format_blocks(row->format, row->k); b++) {
		const struct sample s = block_from(row, x, in, b);
		struct fit f = fit_block(d, &s);
		row->scales[b] = (float)f.scale;
		if (d->has_offset)
			row->offsets[b] = (float)f.offset;
	}
	round_scales(row, d);
}

static bool are_finite(const float *v, int64_t n)
{
	for (int64_t i = 0; v && i < n; i++)
		if (!isfinite(v[i]))
			return false;
	return true;
}

bool weight_codes_quantize(const struct weight_codes *row, const double *x, const struct weight_inputs *in,
                           double *worst)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t block = d->block ? d->block : row->k, blocks = ir_format_blocks(row->format, row->k),
	        supers = ir_format_supers(row->format, row->k);
	double sum = 0;
	*worst = 0;
	for (int64_t i = 0; i < row->k; i++) {
		sum += fabs(x[i]);
		*worst = isnan(x[i]) || fabs(x[i]) > fabs(*worst) ? x[i] : *worst;
	}
	if (!isfinite((float)sum))
		return false;
	if (d->shift > 0)
		weight_codes_shifted_scales(row, x, in);
	else
		find_scales(row, x, in);
	for (int64_t i = 0; i < row->k; i++) {
		int shift = weight_codes_shift(row, i / block);
		double scale, offset, v;
		block_of(row, i / block, &scale, &offset);
		v = (x[i] - offset) / scale - shift;
		row->codes[i] = (int8_t)(isfinite(v) ? nearest_code(d, v) + shift : 0);
	}
	if (in)
		balance(row, x, in);
	return are_finite(row->scales, blocks) && are_finite(row->offsets, blocks) &&
	       are_finite(row->super_scales, supers) && are_finite(row->super_offsets, supers);
}
