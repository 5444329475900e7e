/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of packed matrices as elements and as quants. The product of a 16-bit scale and a 9-bit integer is
 * exact in f32, so quants with f32 offsets lose nothing; with an f32 scale the offset is the product rounded
 * once.
 */
#include <math.h>

#include "frontend/weights/packed.h"

static uint32_t read_word(const struct packed_words *w, int64_t i)
{
	const unsigned char *p = w->data + i * w->bytes;
	uint32_t word = w->bytes == 1
	                        ? p[0]
	                        : p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	return word ^ w->flip;
}

/* The integer at (r, c) of packed words. */
static int read_field(const struct packed_words *w, int64_t r, int64_t c)
{
	int64_t i = (r & ((1 << w->down) - 1)) | (c & ((1 << w->across) - 1));
	int slot = w->order ? w->order[i] : (int)i;
	uint32_t word = read_word(w, (r >> w->down) * w->row_words + (c >> w->across));
	return (int)(word >> (slot * w->bits) & ((1u << w->bits) - 1));
}

static int quant_at(const struct packed_matrix *m, int64_t n, int64_t k)
{
	k = m->order ? m->order[k] : k;
	return m->by_column ? read_field(&m->q, k, n) : read_field(&m->q, n, k);
}

/* MXFP4: the codebook has twice the E2M1 values, so scale_at returns half of the stored scale. */
static bool is_mxfp4(const struct packed_matrix *m)
{
	return m->scale_dtype == DT_U8;
}

/* The integer that the scale multiplies. */
static int value_at(const struct packed_matrix *m, int64_t n, int64_t k, int zero)
{
	int q = quant_at(m, n, k);
	return is_mxfp4(m) ? ir_format(FORMAT_MXFP4)->codebook[q] : q - zero;
}

/* Zero point of a group. */
static int zero_point_at(const struct packed_matrix *m, int64_t n, int64_t group)
{
	return m->zero + (m->zeros.data ? read_field(&m->zeros, group, n) : 0);
}

/* Scale of a group, half of it for MXFP4. */
static double scale_at(const struct packed_matrix *m, int64_t n, int64_t group)
{
	double scale;
	weight_read_elements(m->scale_dtype, m->scales, n * m->scale_row + group * m->scale_group, 1, &scale);
	if (is_mxfp4(m))
		return ldexp(1, (int)scale - 128);
	return m->inverse_scales ? (float)(1 / scale) : scale;
}

/* Group of a column. */
static int64_t group_of(const struct packed_matrix *m, int64_t k)
{
	double group;
	if (!m->group_of)
		return k / m->group;
	weight_read_elements(DT_I32, m->group_of, k, 1, &group);
	return (int64_t)group;
}

/* Number of groups of a row. */
static int64_t group_count(const struct packed_matrix *m)
{
	return m->k / m->group + (m->k % m->group != 0);
}

/* True: all zero points are equal, to *zero. Reads all of them. */
static bool are_zero_points_equal(const struct packed_matrix *m, int *zero)
{
	int64_t groups = group_count(m);
	*zero = zero_point_at(m, 0, 0);
	for (int64_t g = 0; m->zeros.data && g < groups; g++)
		for (int64_t n = 0; n < m->n; n++)
			if (zero_point_at(m, n, g) != *zero)
				return false;
	return true;
}

bool packed_groups_exist(const struct packed_matrix *m, bool *in_order)
{
	int64_t groups = group_count(m);
	*in_order = true;
	for (int64_t k = 0; k < m->k; k++) {
		int64_t g = group_of(m, k);
		if (g < 0 || g >= groups)
			return false;
		*in_order = *in_order && g == k / m->group;
	}
	return true;
}

bool packed_sort_columns(struct arena *a, struct packed_matrix *m)
{
	int64_t groups = group_count(m);
	int64_t *next = ARENA_ARRAY(a, int64_t, groups);
	int32_t *order = ARENA_ARRAY(a, int32_t, m->k);
	if (!next || !order || m->k > INT32_MAX)
		return false;
	for (int64_t g = 0; g < groups; g++)
		next[g] = g * m->group;
	for (int64_t k = 0; k < m->k; k++) {
		int64_t g = group_of(m, k), end = (g + 1) * m->group;
		if (next[g] == (end < m->k ? end : m->k))
			return false;
		order[next[g]++] = (int32_t)k;
	}
	m->order = order;
	m->group_of = NULL;
	return true;
}

/* True: groups consist of whole blocks of the format, or both have one scale for a row. */
static bool blocks_divide_groups(const struct packed_matrix *m, const struct ir_format_desc *d)
{
	return m->group >= m->k || (d->block != 0 && m->group % d->block == 0);
}

/* Of the formats that represent quants and scales exactly, the one with the smallest rows. */
enum ir_format packed_format(const struct packed_matrix *m)
{
	enum ir_format best = FORMAT_PLAIN;
	int zero, middle = 1 << (m->q.bits - 1);
	if (is_mxfp4(m))
		return FORMAT_MXFP4;
	bool centered = are_zero_points_equal(m, &zero) && zero == middle;
	for (int i = 0; i < IR_N_FORMATS && !m->group_of; i++) {
		enum ir_format f = (enum ir_format)i;
		const struct ir_format_desc *d = ir_format(f);
		bool codes_fit = d->bits == m->q.bits && d->super == 1 && d->shift == 0 && !d->codebook &&
		                 blocks_divide_groups(m, d);
		bool scales_fit = d->scale == DT_F32 || (d->scale == m->scale_dtype && !d->has_offset);
		if (codes_fit && scales_fit && (d->has_offset || centered) &&
		    (best == FORMAT_PLAIN || ir_format_row_bytes(f, m->k) < ir_format_row_bytes(best, m->k)))
			best = f;
	}
	return best;
}

/* Offset of a block: the stored quants are relative to the zero point of the format, not to that of the
 * matrix. */
static float block_offset(const struct packed_matrix *m, double scale, int zero)
{
	return (float)(scale * (ir_format(m->format)->zero - zero));
}

void packed_elements(const void *data, int64_t begin, int64_t n, double *out)
{
	const struct packed_matrix *m = data;
	int64_t row = begin / m->k, k = begin % m->k, group = -1;
	bool has_offset = ir_format(m->format)->has_offset;
	double scale = 0, offset = 0;
	int zero = 0;
	for (int64_t i = 0; i < n; i++) {
		if (group_of(m, k) != group) {
			group = group_of(m, k);
			scale = scale_at(m, row, group);
			zero = zero_point_at(m, row, group);
			offset = has_offset ? (double)block_offset(m, scale, zero) : 0;
			zero = has_offset ? ir_format(m->format)->zero : zero;
		}
		out[i] = (float)(scale * value_at(m, row, k, zero) + offset);
		if (++k == m->k) {
			row++;
			k = 0;
			group = -1;
		}
	}
}

/* Reads a row as quants, scales and offsets of the format. */
static void read_packed_row(const struct packed_matrix *m, int64_t row, const struct weight_quants *out)
{
	const struct ir_format_desc *d = ir_format(m->format);
	int64_t blocks = ir_format_blocks(m->format, m->k), block = d->block ? d->block : m->k;
	for (int64_t b = 0; b < blocks; b++) {
		int64_t group = b * block / m->group;
		double scale = scale_at(m, row, group);
		out->scales[b] = (float)scale;
		if (d->has_offset)
			out->offsets[b] = block_offset(m, scale, zero_point_at(m, row, group));
	}
	for (int64_t k = 0; k < m->k; k++)
		out->quants[k] = (int8_t)value_at(m, row, k, d->zero);
}

void packed_rows(const void *data, int64_t row, int64_t n, const struct weight_quants *out)
{
	const struct packed_matrix *m = data;
	for (int64_t i = 0; i < n; i++) {
		const struct weight_quants to = weight_quants_from_row(out, i);
		read_packed_row(m, row + i, &to);
	}
}
