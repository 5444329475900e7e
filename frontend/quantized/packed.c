/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed matrices as elements and as codes. Products of a scale of 16 bits and a whole number of 9 are exact in f32,
 * so codes with f32 offsets lose nothing; scales of f32 keep their codes only where the zero point is that of a
 * format.
 */
#include <math.h>

#include "frontend/quantized/packed.h"

static uint32_t word_at(const struct packed_words *w, int64_t i)
{
	const unsigned char *p = w->data + i * w->bytes;
	uint32_t word = w->bytes == 1
	                        ? p[0]
	                        : p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	return word ^ w->flip;
}

static int field_at(const struct packed_words *w, int64_t r, int64_t c)
{
	int64_t i = (r & ((1 << w->down) - 1)) | (c & ((1 << w->across) - 1));
	int slot = w->order ? w->order[i] : (int)i;
	uint32_t word = word_at(w, (r >> w->down) * w->row_words + (c >> w->across));
	return (int)(word >> (slot * w->bits) & ((1u << w->bits) - 1));
}

static int q_at(const struct packed_matrix *m, int64_t n, int64_t k)
{
	return m->by_column ? field_at(&m->q, k, n) : field_at(&m->q, n, k);
}

/* The scale of MXFP4 is half of what its byte says: numbers are counted by halves. */
static bool is_mxfp4(const struct packed_matrix *m)
{
	return m->scale_dtype == DT_U8;
}

/* What the scale multiplies. */
static int number_at(const struct packed_matrix *m, int64_t n, int64_t k, int zero)
{
	int q = q_at(m, n, k);
	return is_mxfp4(m) ? ir_format(FORMAT_MXFP4)->codebook[q] : q - zero;
}

static int zero_at(const struct packed_matrix *m, int64_t n, int64_t group)
{
	return m->zero + (m->zeros.data ? field_at(&m->zeros, group, n) : 0);
}

static double scale_at(const struct packed_matrix *m, int64_t n, int64_t group)
{
	double scale;
	weight_read_elements(m->scale_dtype, m->scales, n * m->scale_row + group * m->scale_group, 1, &scale);
	if (is_mxfp4(m))
		return ldexp(1, (int)scale - 128);
	return m->inverse_scales ? (float)(1 / scale) : scale;
}

static int64_t group_of(const struct packed_matrix *m, int64_t k)
{
	double group;
	if (!m->group_of)
		return k / m->group;
	weight_read_elements(DT_I32, m->group_of, k, 1, &group);
	return (int64_t)group;
}

/* Groups of a row. */
static int64_t packed_groups(const struct packed_matrix *m)
{
	return m->k / m->group + (m->k % m->group != 0);
}

/* The zero points are all the same: *zero. Reads all of them. */
static bool packed_same_zeros(const struct packed_matrix *m, int *zero)
{
	int64_t groups = packed_groups(m);
	*zero = zero_at(m, 0, 0);
	for (int64_t g = 0; m->zeros.data && g < groups; g++)
		for (int64_t n = 0; n < m->n; n++)
			if (zero_at(m, n, g) != *zero)
				return false;
	return true;
}

bool packed_groups_exist(const struct packed_matrix *m, bool *in_order)
{
	int64_t groups = packed_groups(m);
	*in_order = true;
	for (int64_t k = 0; k < m->k; k++) {
		int64_t g = group_of(m, k);
		if (g < 0 || g >= groups)
			return false;
		*in_order = *in_order && g == k / m->group;
	}
	return true;
}

/* Blocks of the format are parts of groups, or its rows have one scale and those of the matrix, too. */
static bool blocks_fit(const struct packed_matrix *m, enum ir_format f)
{
	int64_t block = ir_format(f)->block;
	if (block == 0)
		return m->group >= m->k;
	return m->group % block == 0 || m->group >= m->k;
}

enum ir_format packed_format(const struct packed_matrix *m)
{
	static const enum ir_format formats[] = {FORMAT_Q8_ROW, FORMAT_Q8_128,  FORMAT_Q8,     FORMAT_Q4_128,
	                                         FORMAT_Q4,     FORMAT_Q4G_128, FORMAT_Q4G_64, FORMAT_Q4G_32};
	int zero, middle = 1 << (m->q.bits - 1);
	if (is_mxfp4(m))
		return FORMAT_MXFP4;
	bool centered = packed_same_zeros(m, &zero) && zero == middle;
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats) && !m->group_of; i++) {
		const struct ir_format_desc *d = ir_format(formats[i]);
		bool scales_fit =
		        d->scale == m->scale_dtype ||
		        (d->scale == DT_F32 && (m->scale_dtype == DT_F16 || m->scale_dtype == DT_BF16));
		bool offsets_fit = d->has_offset ? m->scale_dtype != DT_F32 || centered : centered;
		if (d->bits == m->q.bits && blocks_fit(m, formats[i]) && scales_fit && offsets_fit)
			return formats[i];
	}
	return FORMAT_PLAIN;
}

void packed_elements(const void *data, int64_t begin, int64_t n, double *out)
{
	const struct packed_matrix *m = data;
	int64_t row = begin / m->k, k = begin % m->k, group = -1;
	double scale = 0;
	int zero = 0;
	for (int64_t i = 0; i < n; i++) {
		if (group_of(m, k) != group) {
			group = group_of(m, k);
			scale = scale_at(m, row, group);
			zero = zero_at(m, row, group);
		}
		out[i] = (float)(scale * number_at(m, row, k, zero));
		if (++k == m->k) {
			row++;
			k = 0;
			group = -1;
		}
	}
}

static void packed_row(const struct packed_matrix *m, int64_t row, const struct weight_codes *out)
{
	const struct ir_format_desc *d = ir_format(m->format);
	int64_t blocks = ir_format_blocks(m->format, m->k), block = d->block ? d->block : m->k;
	int middle = d->has_offset ? 0 : 1 << (m->q.bits - 1);
	for (int64_t b = 0; b < blocks; b++) {
		int64_t group = b * block / m->group;
		double scale = scale_at(m, row, group);
		out->scales[b] = (float)scale;
		if (d->has_offset)
			out->offsets[b] = (float)(scale * -zero_at(m, row, group));
	}
	for (int64_t k = 0; k < m->k; k++)
		out->codes[k] = (int8_t)number_at(m, row, k, middle);
}

void packed_rows(const void *data, int64_t row, int64_t n, const struct weight_codes *out)
{
	const struct packed_matrix *m = data;
	for (int64_t i = 0; i < n; i++) {
		const struct weight_codes to = weight_codes_from(out, i);
		packed_row(m, row + i, &to);
	}
}
