/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of packed matrices as elements and as quants. The product of a 16-bit scale and a 9-bit integer is
 * exact in f32, so quants with f32 offsets lose nothing; with an f32 scale the offset is the product rounded
 * once.
 *
 * Packed matrices (weights.packed): combines X.qweight, X.qzeros, X.scales into one tensor X.weight [N, K], for
 * GPTQ, AWQ, compressed-tensors, CTranslate2 and MXFP4 files. The parts count as ignored. The function of a format
 * combines the parts of the matrix X; false after a diagnostic, or without memory.
 * packed_words is a matrix of integers of `bits` bits in words: 2^down rows and 2^across columns of it share a word,
 * in the slots that `order` lists (NULL: ascending), and `flip` is XORed to each word. by_column: the words have W
 * transposed, [K, N]. Act-order (g_idx, desc_act of GPTQ): columns of a group need not be neighbours; where groups have
 * one size, columns are sorted by group, since formats have blocks of neighbours, and the order is stored.
 */
#include "frontend/weights/packed.h"

#include <math.h>
#include <string.h>

#include "frontend/weights/files.h"
#include "ir/support/strmap.h"

/* ---- elements ---- */

/* The integer at (r, c) of packed words. Words of 4 bytes are assembled, as the data may be unaligned. */
static int read_field(const struct packed_words *w, int64_t r, int64_t c)
{
	int64_t i = (r & ((1 << w->down) - 1)) | (c & ((1 << w->across) - 1));
	int slot = w->order ? w->order[i] : (int)i;
	const unsigned char *p = w->data + ((r >> w->down) * w->row_words + (c >> w->across)) * w->bytes;
	uint32_t word = w->bytes == 1
	                        ? p[0]
	                        : p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	return (int)((word ^ w->flip) >> (slot * w->bits) & ((1u << w->bits) - 1));
}

/* MXFP4: the codebook has twice the E2M1 values, so scale_at returns half of the stored scale. */
static bool is_mxfp4(const struct packed_matrix *m)
{
	return m->scale_dtype == DT_U8;
}

/* The integer that the scale multiplies. */
static int value_at(const struct packed_matrix *m, int64_t n, int64_t k, int zero)
{
	k = m->order ? m->order[k] : k;
	int q = m->by_column ? read_field(&m->q, k, n) : read_field(&m->q, n, k);
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

/* Group of a column: the stored one (act-order), else columns are divided in order. */
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

/* Counting sort: next[g] is the next slot of group g, whose slots are those it would have in order. A group that has no
   slot left is larger than others. */
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

/* Of the formats that represent quants and scales exactly, the one with the smallest rows; FORMAT_PLAIN: none, or
   columns are not in the order of groups. A format without offsets needs the middle of the range as the zero point of
   every group. */
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

/* weight_elements: the dequantized values of elements [begin, begin + n), rounded as the chosen format would: with
   offsets, scale (q - zero point of the format) plus the f32 offset, else scale (q - zero point of the group). */
void packed_elements(const void *data, int64_t begin, int64_t n, double *out)
{
	const struct packed_matrix *m = data;
	int64_t row = begin / m->k, k = begin % m->k, group = -1;
	bool has_offset = ir_format(m->format)->has_offset;
	double scale = 0, offset = 0;
	int zero = 0;
	for (int64_t i = 0; i < n; i++) {
		if (group_of(m, k) != group) { /* scale and zero point are decoded once for a group */
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

/* weight_rows: quants, scales and offsets of n rows in the chosen format, which has blocks within groups. */
void packed_rows(const void *data, int64_t row, int64_t n, const struct weight_quants *out)
{
	const struct packed_matrix *m = data;
	const struct ir_format_desc *d = ir_format(m->format);
	int64_t blocks = ir_format_blocks(m->format, m->k), block = d->block ? d->block : m->k;
	for (int64_t i = 0; i < n; i++) {
		const struct weight_quants to = weight_quants_from_row(out, i);
		for (int64_t b = 0; b < blocks; b++) {
			int64_t group = b * block / m->group;
			double scale = scale_at(m, row + i, group);
			to.scales[b] = (float)scale;
			if (d->has_offset)
				to.offsets[b] = block_offset(m, scale, zero_point_at(m, row + i, group));
		}
		for (int64_t k = 0; k < m->k; k++)
			to.quants[k] = (int8_t)value_at(m, row + i, k, d->zero);
	}
}

/* Converted elements are f64 (struct weight_bytes), those of a quantized format f32. */
bool packed_describe(struct arena *a, struct stored_tensor *t, const struct packed_matrix *m)
{
	struct packed_matrix *copy = ARENA_NEW(a, struct packed_matrix);
	if (copy == NULL)
		return false;
	*copy = *m;
	copy->format = packed_format(m);
	t->packed_as = arena_printf(a, "%d bits, %s", m->q.bits,
	                            m->group_of != NULL
	                                    ? "groups of columns that differ in size"
	                                    : arena_printf(a, "groups of %lld columns", (long long)m->group));
	t->read = packed_elements;
	t->format = copy->format;
	t->dtype = t->format == FORMAT_PLAIN ? DT_F64 : DT_F32;
	t->read_quants = t->format == FORMAT_PLAIN ? NULL : packed_rows;
	if (t->rank == 2) /* the leading axes of experts are unchanged */
		t->dims[0] = m->n;
	t->dims[t->rank - 1] = m->k;
	t->data = copy;
	return true;
}

/* ---- parts of packed matrices ---- */

/* Context of combining packed matrices. */
struct packing {
	struct weight_files *files;
	struct arena *arena;
	struct diag_context *cx;
	const struct stored_tensor *last; /* subject of messages */
	struct strmap orders;             /* hash of a column order -> its stored_tensor */
};

static const char *shape_string(struct packing *p, const struct stored_tensor *t)
{
	const char *text = "";
	for (int i = 0; i < t->rank; i++)
		text = arena_printf(p->arena, "%s%s%lld", text, i == 0 ? "" : ", ", (long long)t->dims[i]);
	return text;
}

/* Reports a part of the wrong type or shape; returns false. */
static bool report_misfit(struct packing *p, const struct stored_tensor *t, const char *what)
{
	diag_error(p->cx, t->loc, DIAG_WEIGHT_FILE, "'%s': tensor '%.200s' %s [%s]: %s", t->file, t->name,
	           t->type_name, shape_string(p, t), what);
	return false;
}

/* Finds tensor Xend and marks it as a part, not a parameter. NULL: none. */
static struct stored_tensor *find_part(struct packing *p, const char *x, const char *end)
{
	struct stored_tensor *t = weight_files_find(p->files, arena_printf(p->arena, "%s%s", x, end));
	if (t != NULL)
		t->ignored = true;
	return t;
}

/* A required part, not empty, with `rank` axes and this element type; NULL after a diagnostic. The tensor whose name
 * identified the matrix (p->last) is the subject of the message, since an absent part has no location. */
static struct stored_tensor *required_part(struct packing *p, const char *x, const char *end, int rank,
                                           const char *type)
{
	struct stored_tensor *t = find_part(p, x, end);
	if (t == NULL) {
		diag_error(p->cx, p->last->loc, DIAG_MISSING_TENSOR,
		           "'%.200s' of '%s' has no '%.200s%s' beside it", p->last->name, p->last->file, x,
		           end);
		return NULL;
	}
	if (t->rank == rank && strcmp(t->type_name, type) == 0 && t->bytes > 0)
		return t;
	report_misfit(p, t,
	              arena_printf(p->arena, "it must be %s with %d axes that are not empty", type, rank));
	return NULL;
}

/* Finds the scales, which are floats stored as such, and sets them in *m. NULL after a diagnostic; that of
 * required_part where there are none. */
static const struct stored_tensor *find_scales(struct packing *p, const char *x, const char *end,
                                               struct packed_matrix *m)
{
	const struct stored_tensor *t = find_part(p, x, end);
	if (t == NULL)
		return required_part(p, x, end, 2, "F16");
	if (!t->readable || t->read != NULL || t->bytes == 0 || t->reversed ||
	    (t->dtype != DT_F16 && t->dtype != DT_BF16 && t->dtype != DT_F32)) {
		report_misfit(p, t, "scales are F16, BF16 or F32");
		return NULL;
	}
	m->scales = t->data;
	m->scale_dtype = t->dtype;
	return t;
}

/* log2 of the quants in a u32. */
static int log_quants_per_u32(int bits)
{
	return bits == 4 ? 3 : 2;
}

/* Bits of n quants in `words` u32 along an axis; 0: neither 4 nor 8. */
static int quant_bits(int64_t n, int64_t words)
{
	return n == words * 8 ? 4 : n == words * 4 ? 8 : 0;
}

/* Sets the group size from scales [groups, N]; groups must divide the columns. */
static bool set_groups(struct packing *p, struct packed_matrix *m, const struct stored_tensor *s,
                       int64_t groups)
{
	if (groups < 1 || m->k % groups != 0)
		return report_misfit(
		        p, s, arena_printf(p->arena, "%lld columns are not whole groups", (long long)m->k));
	m->group = m->k / groups;
	return true;
}

/* Sorts the columns by group and adds a tensor X.weight.order. Equal orders share one tensor, so that
 * their inputs are gathered once; they are found by hash and then compared. Groups of different sizes are not sorted,
 * *order is NULL, and the matrix is read as elements; this is no error. */
static bool sort_columns(struct packing *p, const char *x, const struct stored_tensor *groups,
                         struct packed_matrix *m, const struct stored_tensor **order)
{
	uint64_t hash = 14695981039346656037u; /* FNV-1a */
	*order = NULL;
	if (!packed_sort_columns(p->arena, m))
		return !arena_failed(p->arena);
	size_t bytes = (size_t)m->k * sizeof(*m->order);
	for (int64_t k = 0; k < m->k; k++)
		hash = (hash ^ (uint64_t)m->order[k]) * 1099511628211u;
	const char *key = arena_printf(p->arena, "%llx", (unsigned long long)hash);
	*order = strmap_get(&p->orders, key);
	if (*order != NULL && (*order)->bytes == bytes && memcmp((*order)->data, m->order, bytes) == 0)
		return true;
	struct stored_tensor *t = ARENA_NEW(p->arena, struct stored_tensor);
	if (t == NULL)
		return false;
	*t = *groups;
	t->name = arena_printf(p->arena, "%s.weight.order", x);
	t->data = m->order;
	t->bytes = bytes;
	*order = t;
	return strmap_set(&p->orders, key, t) && weight_files_add(p->files, t);
}

/* Adds tensor X.weight, with file, location and axes of `quants`; order: its column order, or NULL. */
static bool add_matrix(struct packing *p, const char *x, const struct stored_tensor *quants,
                       const struct stored_tensor *order, const struct packed_matrix *m)
{
	struct stored_tensor *t = ARENA_NEW(p->arena, struct stored_tensor);
	if (t == NULL)
		return false;
	*t = *quants;
	t->name = arena_printf(p->arena, "%s.weight", x);
	t->order = order;
	t->ignored = false;
	return packed_describe(p->arena, t, m) && weight_files_add(p->files, t);
}

/* Reads X.END [K], i32: the group of each column. Absent, or all -1 where may_be_unset
 * (compressed-tensors): in order. *order: as in add_matrix. */
static bool set_order(struct packing *p, const char *x, const char *end, struct packed_matrix *m,
                      bool may_be_unset, const struct stored_tensor **order)
{
	const struct stored_tensor *g = find_part(p, x, end);
	bool in_order = true;
	*order = NULL;
	if (g == NULL)
		return true;
	if (g->rank != 1 || g->dims[0] != m->k || strcmp(g->type_name, "I32") != 0)
		return report_misfit(
		        p, g,
		        arena_printf(p->arena, "the groups of columns are I32 [%lld]", (long long)m->k));
	m->group_of = g->data;
	bool is_unset = may_be_unset;
	for (size_t i = 0; is_unset && i < g->bytes; i++)
		is_unset = m->group_of[i] == 0xff;
	if (is_unset) {
		m->group_of = NULL;
		return true;
	}
	if (!packed_groups_exist(m, &in_order))
		return report_misfit(p, g, "a column is in a group that has no scales");
	m->group_of = in_order ? NULL : m->group_of;
	return in_order || sort_columns(p, x, g, m, order);
}

/* GPTQ and AWQ: reads X.scales [groups, N] and X.qzeros [groups, N / 8 or 4], which has the order of bits of q. */
static bool set_scales_and_zeros(struct packing *p, const char *x, struct packed_matrix *m)
{
	const struct stored_tensor *s = find_scales(p, x, ".scales", m);
	const struct stored_tensor *z = s != NULL ? required_part(p, x, ".qzeros", 2, "I32") : NULL;
	if (z == NULL)
		return false;
	if (s->rank != 2 || s->dims[1] != m->n)
		return report_misfit(p, s,
		                     arena_printf(p->arena, "scales of %lld rows are [groups, %lld]",
		                                  (long long)m->n, (long long)m->n));
	if (z->dims[0] != s->dims[0] || quant_bits(m->n, z->dims[1]) != m->q.bits)
		return report_misfit(p, z,
		                     arena_printf(p->arena, "zero points of scales [%s] are of another shape",
		                                  shape_string(p, s)));
	m->zeros = (struct packed_words){.data = z->data,
	                                 .bytes = 4,
	                                 .bits = m->q.bits,
	                                 .down = 0,
	                                 .across = log_quants_per_u32(m->q.bits),
	                                 .row_words = z->dims[1],
	                                 .order = m->q.order};
	m->scale_row = 1;
	m->scale_group = m->n;
	return set_groups(p, m, s, s->dims[0]);
}

/* GPTQ: X.qweight i32 [K / 8 or 4, N], first column in the lowest bits; X.g_idx [K]: group of each column. Bits are not
 * stored: N of qweight and the words of qzeros show them. */
static bool gptq(struct packing *p, const char *x, int zero)
{
	struct stored_tensor *q = required_part(p, x, ".qweight", 2, "I32");
	const struct stored_tensor *z = q != NULL ? required_part(p, x, ".qzeros", 2, "I32") : NULL;
	if (z == NULL)
		return false;
	int bits = quant_bits(q->dims[1], z->dims[1]);
	if (bits == 0)
		return report_misfit(p, z,
		                     arena_printf(p->arena, "zero points of %lld rows are not of 4 or 8 bits",
		                                  (long long)q->dims[1]));
	struct packed_matrix m = {
	        .n = q->dims[1], .k = q->dims[0] * (32 / bits), .by_column = true, .zero = zero};
	m.q = (struct packed_words){.data = q->data,
	                            .bytes = 4,
	                            .bits = bits,
	                            .down = log_quants_per_u32(bits),
	                            .across = 0,
	                            .row_words = m.n};
	const struct stored_tensor *order;
	return set_scales_and_zeros(p, x, &m) && set_order(p, x, ".g_idx", &m, false, &order) &&
	       add_matrix(p, x, q, order, &m);
}

/* Version 1 of the format stores zero points minus one: `zero` adds it. */
static bool gptq_v1(struct packing *p, const char *x)
{
	return gptq(p, x, 1);
}

static bool gptq_v2(struct packing *p, const char *x)
{
	return gptq(p, x, 0);
}

/* AWQ (gemm): X.qweight i32 [K, N / 8]; from the lowest bits on rows 0, 2, 4, 6, 1, 3, 5, 7 of eight. */
static bool awq(struct packing *p, const char *x)
{
	static const uint8_t order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
	struct stored_tensor *q = required_part(p, x, ".qweight", 2, "I32");
	if (q == NULL)
		return false;
	struct packed_matrix m = {.n = q->dims[1] * 8, .k = q->dims[0], .by_column = true};
	m.q = (struct packed_words){.data = q->data,
	                            .bytes = 4,
	                            .bits = 4,
	                            .down = 0,
	                            .across = 3,
	                            .row_words = q->dims[1],
	                            .order = order};
	return set_scales_and_zeros(p, x, &m) && add_matrix(p, x, q, NULL, &m);
}

/* compressed-tensors: X.weight_scale is one value, one for each row, or [N, groups]. A stride of 0 between rows shares
 * the one value. */
static bool set_row_scales(struct packing *p, const struct stored_tensor *s, struct packed_matrix *m)
{
	int64_t rows = s->rank > 0 ? s->dims[0] : 1, groups = s->rank > 1 ? s->dims[1] : 1;
	if (s->rank > 2 || (rows != m->n && (rows != 1 || groups != 1)))
		return report_misfit(p, s,
		                     arena_printf(p->arena,
		                                  "scales of %lld rows are [], [1], [%lld] or [%lld, groups]",
		                                  (long long)m->n, (long long)m->n, (long long)m->n));
	m->scale_row = rows == 1 && m->n != 1 ? 0 : groups;
	m->scale_group = 1;
	return set_groups(p, m, s, groups);
}

/* X.weight_packed i32 [N, K / 8 or 4], unsigned with the middle as zero point; X.weight_shape: N and K. Bits are 4 or
 * 8, whichever fits K to the words of a row, of which the last may be partly used. */
static bool compressed_words(struct packing *p, const char *x)
{
	struct packed_matrix m = {0};
	struct stored_tensor *q = required_part(p, x, ".weight_packed", 2, "I32");
	const struct stored_tensor *s = find_scales(p, x, ".weight_scale", &m);
	const struct stored_tensor *dims =
	        q != NULL && s != NULL ? required_part(p, x, ".weight_shape", 1, "I64") : NULL;
	double nk[2];
	if (dims == NULL)
		return false;
	if (dims->dims[0] != 2)
		return report_misfit(p, dims, "it must be the two sizes of a matrix");
	weight_read_elements(DT_I64, dims->data, 0, 2, nk);
	for (int bits = 4; bits <= 8 && m.k == 0; bits += 4) {
		int64_t fit = q->dims[1] * (32 / bits);
		if (nk[0] == (double)q->dims[0] && nk[1] <= (double)fit && nk[1] > (double)(fit - 32 / bits))
			m = (struct packed_matrix){.n = q->dims[0],
			                           .k = (int64_t)nk[1],
			                           .zero = 1 << (bits - 1),
			                           .scales = m.scales,
			                           .scale_dtype = m.scale_dtype,
			                           .q = {.data = q->data,
			                                 .bytes = 4,
			                                 .bits = bits,
			                                 .down = 0,
			                                 .across = log_quants_per_u32(bits),
			                                 .row_words = q->dims[1]}};
	}
	if (m.k == 0)
		return report_misfit(p, q,
		                     "its words are not the numbers of 4 or 8 bits of the stored shape");
	const struct stored_tensor *order;
	return set_row_scales(p, s, &m) && set_order(p, x, ".weight_g_idx", &m, true, &order) &&
	       add_matrix(p, x, q, order, &m);
}

/* The i8 matrix X, or NULL. */
static struct stored_tensor *find_i8_matrix(struct packing *p, const char *x)
{
	struct stored_tensor *q = weight_files_find(p->files, x);
	return q != NULL && q->rank == 2 && q->bytes > 0 && strcmp(q->type_name, "I8") == 0 ? q : NULL;
}

/* Packed matrix over i8 [N, K]. Inverting the sign bit makes signed q unsigned, q + 128, as read_field reads them. */
static struct packed_matrix i8_matrix(const struct stored_tensor *q)
{
	return (struct packed_matrix){.n = q->dims[0],
	                              .k = q->dims[1],
	                              .zero = 128,
	                              .q = {.data = q->data,
	                                    .bytes = 1,
	                                    .bits = 8,
	                                    .down = 0,
	                                    .across = 0,
	                                    .row_words = q->dims[1],
	                                    .flip = 0x80}};
}

/* compressed-tensors: scales of an i8 or packed matrix; scales of other tensors are left alone. */
static bool compressed(struct packing *p, const char *x)
{
	const char *name = arena_printf(p->arena, "%s.weight", x);
	struct stored_tensor *q = find_i8_matrix(p, name);
	if (q == NULL)
		return weight_files_find(p->files, name) != NULL || compressed_words(p, x);
	struct packed_matrix m = i8_matrix(q);
	const struct stored_tensor *s = find_scales(p, x, ".weight_scale", &m);
	return s != NULL && set_row_scales(p, s, &m) &&
	       set_order(p, x, ".weight_g_idx", &m, true, &q->order) && packed_describe(p->arena, q, &m);
}

/* CTranslate2: X i8 [N, K] and X_scale f32 [N], the inverse scales. X_scale of another tensor than an i8 matrix is an
 * ordinary weight. */
static bool ctranslate2(struct packing *p, const char *x)
{
	struct stored_tensor *q = find_i8_matrix(p, x);
	if (q == NULL)
		return true;
	struct packed_matrix m = i8_matrix(q);
	const struct stored_tensor *s = required_part(p, x, "_scale", 1, "F32");
	if (s == NULL)
		return false;
	m.scales = s->data;
	m.scale_dtype = DT_F32;
	m.inverse_scales = true;
	return set_row_scales(p, s, &m) && packed_describe(p->arena, q, &m);
}

/* gpt-oss: X_blocks u8 [E, N, K / 32, 16], the first of two values in the low bits, and X_scales u8 [E, N, K /
 * 32]. The E matrices are read as one of E N rows. */
static bool mxfp4(struct packing *p, const char *x)
{
	const struct stored_tensor *q = required_part(p, x, "_blocks", 4, "U8");
	const struct stored_tensor *s = q != NULL ? required_part(p, x, "_scales", 3, "U8") : NULL;
	if (s == NULL)
		return false;
	if (q->dims[3] != 16 || memcmp(q->dims, s->dims, 3 * sizeof(*s->dims)) != 0)
		return report_misfit(p, s,
		                     arena_printf(p->arena, "blocks [%s] are not 16 bytes for each scale",
		                                  shape_string(p, q)));
	struct packed_matrix m = {.n = q->dims[0] * q->dims[1],
	                          .k = q->dims[2] * 32,
	                          .group = 32,
	                          .q = {.data = q->data,
	                                .bytes = 1,
	                                .bits = 4,
	                                .down = 0,
	                                .across = 1,
	                                .row_words = q->dims[2] * 16},
	                          .scales = s->data,
	                          .scale_dtype = DT_U8,
	                          .scale_row = q->dims[2],
	                          .scale_group = 1};
	struct stored_tensor quants = *q;
	quants.rank = 3;
	return add_matrix(p, x, &quants, NULL, &m);
}

static const struct {
	const char *word, *ending; /* suffix of the tensor that identifies a matrix */
	bool (*unpack)(struct packing *p, const char *x);
} packings[] = {{"gptq", ".qweight", gptq_v1},
                {"gptq_v2", ".qweight", gptq_v2},
                {"awq", ".qweight", awq},
                {"compressed", ".weight_scale", compressed},
                {"ctranslate2", "_scale", ctranslate2},
                {"mxfp4", "_blocks", mxfp4}};

/* Calls the packing's function for every matrix X, found by the tensor X + ending. Tensors that unpacking adds come
 * after the count taken before, and are not visited. A word in no row ("none") packs nothing; schema.def checks the
 * words. */
enum tfmc_status weight_files_unpack(struct weight_files *wf, struct arena *a, struct diag_context *cx,
                                     const struct yaml_node *word)
{
	struct packing p = {.files = wf, .arena = a, .cx = cx};
	size_t n = weight_files_count(wf), i = 0;
	strmap_init(&p.orders, a);
	while (word != NULL && i < TFMC_COUNT(packings) && !yaml_is(word, packings[i].word))
		i++;
	for (size_t k = 0; word != NULL && i < TFMC_COUNT(packings) && k < n; k++) {
		const struct stored_tensor *t = weight_files_at(wf, k);
		size_t len = strlen(t->name), end = strlen(packings[i].ending);
		p.last = t;
		if (len > end && strcmp(t->name + len - end, packings[i].ending) == 0 &&
		    !packings[i].unpack(&p, arena_strndup(a, t->name, len - end)))
			return arena_failed(a) ? TFMC_NO_MEMORY : TFMC_INVALID;
	}
	return TFMC_OK;
}
