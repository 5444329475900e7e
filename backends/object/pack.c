/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs weights into the layouts that kernels read, in parallel and in bounded memory, and streams them to a
 * sink. Floats are stored as f32 or in a smaller float type, integers as i32, quantized weights as panels of
 * quants and scales.
 * A unit of work is some rows of one matrix, or a piece of a tensor in row order (struct unit).
 *
 *   row      the elements in order
 *   panel16  a matrix [N, K] as [ceil(N/16)][K][16], rows beyond N zero. bf16: [ceil(N/16)][ceil(K/2)][16][2] (pairs of
 *            K for dot products); f16: [ceil(N/16)][K rounded up to even][16]; quantized: struct quant_panel_layout
 *
 * Encodings of quants: a quant (a quantized value) is stored as an offset from the zero point or as an index of a
 * codebook; a group of GROUP quants is divided into bit planes (k-rows of the panel, struct quant_group), so that a
 * kernel unpacks it by shifts and masks. A block has a scale and perhaps an offset (minimum), a super-block some
 * blocks. Elements of a weight come from a wexpr, an expression over tensors of files, so that all stored types go one
 * way.
 */
#include "backends/object/internal.h"

#include <pthread.h>
#include <string.h>

#include "ir/core/view.h"
#include "ir/support/memory.h"
#include "ir/support/strmap.h"
#include "ir/target/tile.h"

#define PANEL       PANEL_COLUMNS
#define BLOCK       65536 /* elements of a unit, but at least one panel */
#define COLUMNS_MAX (1 << 22)
#define COPY_BYTES  (1u << 20) /* bytes per write of already packed weights */
#define SAMPLES     32         /* elements of each rank's part that the hash of a set has */
/* Rows per unit of formats with one scale per row: the scale search processes FIXED_LANES rows at once.
 * Rows longer than SCALED_COLUMNS are packed by panels. */
#define SCALED_ROWS    FIXED_LANES
#define SCALED_COLUMNS 16384

/* A unit of work. Workers take units in order, pack each into their own memory and write the results in the
 * same order, so the bytes do not depend on the number of workers. Diagnostics keep that order, too: a
 * worker packs silently, and a unit that fails is packed again, with diagnostics, when its turn to write
 * comes. */
struct unit {
	const struct weight_layout *layout;
	int64_t begin; /* first element, counted in the weight */
	int64_t rows, columns;
	int64_t number;
};

struct packer {
	struct object *object;
	const struct weight_source *source;
	const struct backend_sink *sink;
	uint64_t base; /* position of the packed weights in the sink */
	pthread_mutex_t lock;
	pthread_cond_t turn;
	/* Protected by the lock. */
	size_t weight; /* weight of the next unit; row: its first row over all matrices (ENC_ROW: element) */
	int64_t row;
	int64_t n_taken, n_written; /* units */
	enum tfmc_status status;
	uint64_t at; /* bytes written so far */
	struct tfmc_weights_hash hash;
	uint64_t shared; /* hash of the units that are equal on all ranks */
	bool warned;     /* a non-finite element was reported; one warning is enough */
};

/* A buffer of a worker, used for one unit after another; buffer_reserve() drops the contents when it grows. */
struct scratch_buffer {
	void *at;
	size_t bytes;
};

struct worker {
	struct packer *packer;
	struct diag_context *cx;
	const struct weight_source *source;
	struct scratch_buffer values;   /* f64, before rounding to the type */
	struct scratch_buffer elements; /* in the stored type, row-major */
	struct scratch_buffer packed;   /* in the packed layout */
	struct weight_quants quants;
	int64_t quant_rows;
	int64_t not_finite; /* first non-finite element of the unit, counted in the weight; -1: none */
};

/* Makes the buffer hold that many bytes; the old contents are lost. False: no memory. */
static bool buffer_reserve(struct scratch_buffer *r, int64_t bytes)
{
	if ((size_t)bytes <= r->bytes)
		return true;
	memory_free(r->at);
	r->at = memory_alloc((size_t)bytes);
	r->bytes = r->at ? (size_t)bytes : 0;
	return r->at != NULL;
}

/* ---- non-finite elements ---- */

/* Index of the first infinity or NaN (all exponent bits set), or -1. masks: but for -infinity. Blocks of 256 are tested
 * without branches, so the loop is vectorized. */
static int64_t find_non_finite(enum ir_dtype t, const void *elements, int64_t n, bool masks)
{
	const uint32_t *u32 = elements;
	const uint16_t *u16 = elements;
	const uint32_t most = t == DT_F32 ? 0x7f800000u : t == DT_BF16 ? 0x7f80u : 0x7c00u;
	const uint32_t below = most | (t == DT_F32 ? 0x80000000u : 0x8000u); /* -infinity */
	for (int64_t i = 0; i < n; i += 256) {
		int64_t end = n - i < 256 ? n : i + 256;
		unsigned any = 0;
		for (int64_t k = i; t == DT_F32 && k < end; k++)
			any |= (u32[k] & most) == most;
		for (int64_t k = i; t != DT_F32 && k < end; k++)
			any |= (u16[k] & most) == most;
		for (int64_t k = i; any && k < end; k++) {
			uint32_t v = t == DT_F32 ? u32[k] : u16[k];
			if ((v & most) == most && !(masks && v == below))
				return k;
		}
	}
	return -1;
}

/* Prints the index of element `at` of the row-major tensor, such as "[0,4,17]"; `inner`: elements for one step on the
 * axis. */
static void print_index(struct buf *out, int rank, const int64_t *dims, int64_t at)
{
	int64_t inner = 1;
	for (int i = 0; i < rank; i++)
		inner *= dims[i];
	buf_char(out, '[');
	for (int i = 0; i < rank && inner > 0; i++) {
		inner /= dims[i];
		buf_printf(out, "%s%lld", i ? "," : "", (long long)(at / inner % dims[i]));
	}
	buf_char(out, ']');
}

/* True: attention alone reads the weight, or views of it, as its bias, in which -infinity hides a key. */
static bool is_mask(const struct ir_module *m, const struct ir_weight *w)
{
	bool is_read = false;
	for (size_t n = 0; n < m->funcs.n; n++) {
		const struct ir_func *f = m->funcs.items[n];
		for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
			for (size_t i = 0; i < it.op->n_operands; i++) {
				const struct ir_weight *read =
				        ir_weight_of(f, ir_view_base(f, it.op->operands[i]));
				if (ir_op_has(it.op->code, TRAIT_VIEW) || read == NULL ||
				    strcmp(read->name, w->name) != 0)
					continue;
				if (it.op->code != OP_attention || i != OPERAND(attention, bias))
					return false;
				is_read = true;
			}
	}
	return is_read;
}

/* Prints the first non-finite element of the tensors that e reads; masks: -infinity is none. False: all are finite, so
 * the conversion to a smaller type overflowed, or they cannot be read. x - x is 0 for finite x alone. */
static bool print_non_finite_source(struct packer *p, const struct ir_wexpr *e, bool masks, struct buf *out)
{
	for (size_t i = 0; i < e->n_args; i++)
		if (print_non_finite_source(p, e->args[i], masks, out))
			return true;
	int64_t count = e->kind == WX_TENSOR ? wexpr_count(e) : 0;
	double values[1024];
	for (int64_t begin = 0; begin < count; begin += (int64_t)TFMC_COUNT(values)) {
		int64_t left = count - begin,
		        n = left < (int64_t)TFMC_COUNT(values) ? left : (int64_t)TFMC_COUNT(values);
		if (wexpr_eval(p->object->cx, e, p->source, begin, n, values) != TFMC_OK)
			return false;
		for (int64_t i = 0; i < n; i++) {
			if (values[i] - values[i] == 0 || (masks && values[i] < 0))
				continue;
			buf_printf(out, "the tensor '%s' of '%s' has %s at ", e->tensor, e->file,
			           values[i] != values[i] ? "NaN"
			           : values[i] < 0        ? "-infinity"
			                                  : "infinity");
			print_index(out, e->rank, e->dims, begin + i);
			return true;
		}
	}
	return false;
}

/* Warns that element `at` of a weight is infinite or NaN, with the tensor element that it comes from. -infinity in a
 * mask is meant, also where a finite number becomes it. */
static void warn_non_finite(struct packer *p, const struct ir_weight *w, int64_t at)
{
	int64_t dims[IR_RANK_MAX];
	struct buf text;
	bool masks = is_mask(p->object->module, w);
	buf_init(&text);
	for (int i = 0; i < w->type->rank; i++)
		if (!ir_dim_is_const(w->type->dims[i], &dims[i]))
			dims[i] = 1;
	bool found = print_non_finite_source(p, w->init, masks, &text);
	if (!found) {
		buf_str(&text, "elements are too large for their type, the first one at ");
		print_index(&text, w->type->rank, dims, at);
	}
	p->warned = true;
	diag_warning(p->object->cx, w->loc.at, DIAG_WEIGHT_RANGE, "the weight '%s' is not finite: %s",
	             w->name, text.data);
	buf_destroy(&text);
}

/* Sets k->not_finite from k->elements, elements [begin, begin + n) of the weight, if these are floats in their stored
 * type (integers are finite). */
static void find_non_finite_element(struct worker *k, const struct ir_weight *w, int64_t begin, int64_t n)
{
	enum ir_dtype t = ir_format(ir_weight_stored_format(w))->dtype;
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT &&
	                (t == DT_F32 || t == DT_BF16 || t == DT_F16);
	int64_t at = is_float ? find_non_finite(t, k->elements.at, n, false) : -1;
	if (at >= 0 && is_mask(k->packer->object->module, w))
		at = find_non_finite(t, k->elements.at, n, true);
	if (at >= 0)
		k->not_finite = begin + at;
}

/* Sets k->not_finite from the scales and minimums of n quantized rows, the first of which begins at element `begin`:
 * to the first element of the block (or super-block) with the wrong one. */
static void find_non_finite_scale(struct worker *k, const struct weight_quants *rows, int64_t begin,
                                  int64_t n)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	int64_t block = d->block > 0 ? d->block : rows->k, blocks = ir_format_blocks(rows->format, rows->k);
	int64_t supers = ir_format_super_blocks(rows->format, rows->k);
	const struct {
		const float *values;
		int64_t per_row, of; /* values per row, elements per value */
	} all[] = {{rows->scales, blocks, block},
	           {rows->offsets, blocks, block},
	           {rows->super_scales, supers, block * d->super},
	           {rows->super_offsets, supers, block * d->super}};
	for (size_t i = 0; i < TFMC_COUNT(all) && k->not_finite < 0; i++) {
		int64_t at = all[i].values ? find_non_finite(DT_F32, all[i].values, n * all[i].per_row, false)
		                           : -1;
		if (at >= 0)
			k->not_finite =
			        begin + at / all[i].per_row * rows->k + at % all[i].per_row * all[i].of;
	}
}

/* Evaluates the unit's elements, rounded to their type, into k->elements: f32 directly, others through f64, which has
 * every value of all types; f16 and bf16 by their bits, integers as i32. */
static enum tfmc_status eval_elements(struct worker *k, const struct unit *u)
{
	const struct ir_weight *w = u->layout->weight;
	int64_t n = u->rows * u->columns;
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT;
	if (!buffer_reserve(&k->elements, n * (int64_t)sizeof(uint32_t)))
		return TFMC_NO_MEMORY;
	struct wexpr_out out = {.at = k->elements.at, .dtype = ir_format(ir_weight_stored_format(w))->dtype};
	if (w->type->dtype == DT_F32) {
		TFMC_TRY(wexpr_eval_to(k->cx, w->init, k->source, u->begin, n, out));
	} else {
		if (!buffer_reserve(&k->values, n * (int64_t)sizeof(double)))
			return TFMC_NO_MEMORY;
		double *values = k->values.at;
		TFMC_TRY(wexpr_eval(k->cx, w->init, k->source, u->begin, n, values));
		for (int64_t i = 0; i < n; i++)
			values[i] = ir_round(is_float ? w->type->dtype : DT_I32, values[i]);
		weight_write_elements(is_float ? out.dtype : DT_I32, values, n, out.at);
	}
	find_non_finite_element(k, w, u->begin, n);
	return TFMC_OK;
}

/* Transposes n rows of n_u32 32-bit elements, `pitch` bytes apart, into a panel. 16 x 16 blocks, so that
 * rows at a power-of-two distance do not evict each other from the cache. */
static void transpose_32(uint32_t *to, const char *from, int64_t n, int64_t n_u32, int64_t pitch)
{
	for (int64_t k0 = 0; k0 < n_u32; k0 += PANEL) {
		int64_t end = n_u32 - k0 < PANEL ? n_u32 : k0 + PANEL;
		for (int64_t r = 0; r < n; r++)
			for (int64_t k = k0; k < end; k++)
				memcpy(&to[k * PANEL + r], from + r * pitch + k * 4, 4);
	}
}

/* Transposes n rows of 16-bit elements into a panel, in blocks as transpose_32. */
static void transpose_16(uint16_t *to, const char *from, int64_t n, int64_t columns)
{
	for (int64_t k0 = 0; k0 < columns; k0 += PANEL) {
		int64_t end = columns - k0 < PANEL ? columns : k0 + PANEL;
		for (int64_t r = 0; r < n; r++)
			for (int64_t k = k0; k < end; k++)
				memcpy(&to[k * PANEL + r], from + (r * columns + k) * 2, 2);
	}
}

/* bf16: adjacent pairs of K are transposed as 32-bit elements; with an odd number of columns the last pair
 * has one. */
static void transpose_bf16_pairs(uint32_t *to, const char *from, int64_t n, int64_t columns)
{
	transpose_32(to, from, n, columns / 2, columns * 2);
	for (int64_t r = 0; columns % 2 && r < n; r++)
		memcpy(&to[columns / 2 * PANEL + r], from + (r * columns + columns - 1) * 2, 2);
}

/* Packs n <= 16 rows into one panel of n_u32 32-bit elements. Rows and a last odd column that the matrix does not have
 * are zeros. */
static void pack_panel(enum ir_dtype t, uint32_t *to, int64_t n_u32, const char *from, int64_t n,
                       int64_t columns)
{
	if (n < PANEL || columns % 2)
		memset(to, 0, (size_t)n_u32 * sizeof(*to));
	if (t == DT_BF16)
		transpose_bf16_pairs(to, from, n, columns);
	else if (t == DT_F16)
		transpose_16((uint16_t *)(void *)to, from, n, columns);
	else
		transpose_32(to, from, n, columns, columns * 4);
}

/* Packs the unit's rows as panels of floats or integers into k->packed. *bytes: size of the panels. The last panel may
 * have fewer rows. */
static enum tfmc_status pack_panels(struct worker *k, const struct unit *u, int64_t *bytes)
{
	const struct ir_weight *w = u->layout->weight;
	enum ir_dtype t = ir_format(w->format)->dtype;
	int64_t panels = ceil_div(u->rows, PANEL), n_u32 = panel_row_count(t, u->columns) * PANEL;
	int64_t pitch = u->columns * weight_element_bytes(w);
	*bytes = panels * n_u32 * (int64_t)sizeof(uint32_t);
	TFMC_TRY(eval_elements(k, u));
	if (!buffer_reserve(&k->packed, *bytes))
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < panels; i++) {
		int64_t rows = u->rows - i * PANEL < PANEL ? u->rows - i * PANEL : PANEL;
		const char *from = (const char *)k->elements.at + i * PANEL * pitch;
		pack_panel(t, (uint32_t *)k->packed.at + i * n_u32, n_u32, from, rows, u->columns);
	}
	return TFMC_OK;
}

/* ---- quantized panels ---- */

#define GROUP 32 /* elements encoded at once, full groups of quants; block size of formats with shifts */
#define WORDS (GROUP / 4) /* words of four quants; k-rows, too: at most 8 bits */

/* Encoding of quants: quant + zero point, or its index in the codebook. The index is computed as the sum of
 * the increments of all codebook values <= quant, in u8 that wraps: values are sorted, but their indices
 * need not be. */
struct quant_encoding {
	bool has_codebook;
	int8_t quants[16];
	uint8_t increments[16];
	uint8_t zero;
	uint8_t none; /* padding at the end of a row */
	struct quant_group group;
};

/* The encoding of the format's quants. With a codebook, its codes in ascending order, each with the difference
 * of its index to that of the code before: store_quants sums the differences up to a code, without a search. */
static struct quant_encoding quant_encoding_of(const struct ir_format_desc *d)
{
	struct quant_encoding s = {
	        .has_codebook = d->codebook, .zero = (uint8_t)d->zero, .group = quant_group(d->bits)};
	int n = 0;
	uint8_t before = 0;
	s.none = d->codebook ? 0 : s.zero;
	for (int code = INT8_MIN; d->codebook && code <= INT8_MAX; code++) {
		int index = -1;
		for (int i = 0; i < 16; i++)
			index = d->codebook[i] == code ? i : index;
		if (index < 0)
			continue;
		s.quants[n] = (int8_t)code;
		s.increments[n++] = (uint8_t)(index - before);
		before = (uint8_t)index;
	}
	return s;
}

/*
 * Stores n <= GROUP quants of column c of a panel in k-rows [0, k_rows) at `to`, four to a u32 of each plane, as their
 * encoding (above) says; shift: of the block, added to the codebook. Elements from n on become `none`. All loops over
 * elements have constant bounds, without branches, so that compilers vectorize them.
 */
TFMC_MULTIVERSION static void store_quants(const struct quant_encoding *s, const int8_t *quants, int64_t n,
                                           int shift, int64_t c, int k_rows, uint8_t *to)
{
	int8_t code[GROUP] = {0};
	uint8_t out[GROUP] = {0};
	uint32_t word[WORDS], k_row[WORDS] = {0};
	memcpy(code, quants, n < GROUP ? (size_t)n : GROUP);
	for (int b = 0; s->has_codebook && b < 16; b++) {
		const int8_t from = (int8_t)(s->quants[b] + shift);
		const uint8_t increment = s->increments[b];
		for (int i = 0; i < GROUP; i++)
			out[i] = (uint8_t)(out[i] + (increment & -(code[i] >= from)));
	}
	for (int i = 0; !s->has_codebook && i < GROUP; i++)
		out[i] = (uint8_t)(code[i] + s->zero);
	for (int64_t i = n; i < GROUP; i++)
		out[i] = s->none;
	memcpy(word, out, sizeof(word));
	for (int i = 0; i < WORDS; i++) {
		const struct quant_word *w = &s->group.word[i % s->group.words];
		uint32_t *row = k_row + i / s->group.words * s->group.k_rows;
		for (int p = 0; p < w->n; p++) {
			const struct quant_piece *q = &w->piece[p];
			uint32_t mask = ((1u << q->bits) - 1) * 0x01010101u;
			row[q->k_row] |= (word[i] >> q->low_bit & mask) << q->bit;
		}
	}
	for (int i = 0; i < k_rows; i++)
		memcpy(to + i * PANEL_ROW_BYTES + 4 * c, &k_row[i], 4);
}

/* Stores values [from, from + n) (NULL: the format has none) of column c, times `unit`, as type t; a panel interleaves
 * 16 columns. unit: the fixed scale of formats whose blocks have shifts. */
static void store_column(enum ir_dtype t, uint8_t *to, int64_t c, const float *values, int64_t from,
                         int64_t n, int unit)
{
	for (int64_t i = 0; values && i < n; i++) {
		double v = (double)values[from + i] * unit;
		weight_write_elements(t, &v, 1, to + (i * PANEL + c) * ir_dtype_bytes(t));
	}
}

/* Stores elements [from, from + n) of a row as column c of the super-block at `to`: quants, then scales and offsets of
 * blocks (of 4 bits both in one byte) and super-block. Column c has a row, or none: then its quants are `none`, its
 * scales stay 0. 32 quants (GROUP) of b bits fill b k-rows. Formats whose blocks shift their quants have scales times
 * FORMAT_SHIFT_SCALE. */
static void store_super_block(const struct quant_panel_layout *at, const struct quant_encoding *encoding,
                              const struct weight_quants *row, bool has_row, int64_t from, int64_t n,
                              int64_t c, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t block = d->block > 0 ? from / d->block : 0, blocks = ir_format_blocks(row->format, n);
	int64_t super = block / d->super, supers = ir_format_super_blocks(row->format, n);
	enum ir_dtype t = d->super > 1 ? DT_I8 : d->scale;
	const struct quant_group *g = &encoding->group;
	for (int64_t k = 0; k < n; k += GROUP) {
		int shift = has_row && d->shift > 0 ? weight_block_shift(row, (from + k) / d->block) : 0;
		int elements = n - k < GROUP ? (int)(n - k) : GROUP,
		    k_rows = (elements + g->elements - 1) / g->elements * g->k_rows;
		store_quants(encoding, row->quants + from + k, has_row ? elements : 0, shift, c, k_rows,
		             to + at->quants + k / GROUP * d->bits * PANEL_ROW_BYTES);
	}
	if (!has_row)
		return;
	for (int64_t i = 0; d->sub == 4 && i < blocks; i++)
		to[at->scales + i * PANEL + c] =
		        (uint8_t)((int)row->scales[block + i] | (int)row->offsets[block + i] << 4);
	if (d->sub != 4) {
		store_column(t, to + at->scales, c, row->scales, block, blocks,
		             d->shift > 0 ? FORMAT_SHIFT_SCALE : 1);
		store_column(t, to + at->offsets, c, row->offsets, block, blocks, 1);
	}
	store_column(d->scale, to + at->super_scales, c, row->super_scales, super, supers, 1);
	store_column(d->scale, to + at->super_offsets, c, row->super_offsets, super, supers, 1);
}

/* Packs n <= 16 quantized rows into one panel, super-block by super-block. Columns without a row take only their shape
 * from row 0. */
static void pack_quant_panel(const struct weight_quants *rows, int64_t n, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	const struct quant_panel_layout at = quant_panel_layout(rows->format, rows->k);
	const struct quant_encoding encoding = quant_encoding_of(d);
	uint8_t *end = to + at.bytes;
	for (int64_t from = 0; to < end; to += at.super_block_bytes, from += at.super_block) {
		int64_t left = rows->k - from, length = left < at.super_block ? left : at.super_block;
		memset(to, 0, (size_t)at.quants);
		for (int64_t c = 0; c < PANEL; c++) {
			const struct weight_quants row = weight_quants_from_row(rows, c < n ? c : 0);
			store_super_block(&at, &encoding, &row, c < n, from, length, c, to);
		}
	}
}

/* Arrays for quantized rows; reused if the format and columns are those of the unit before. False: no memory. */
static bool reserve_quants(struct worker *k, enum ir_format f, int64_t columns, int64_t rows)
{
	if (k->quants.scales && k->quants.format == f && k->quants.k == columns && k->quant_rows >= rows)
		return true;
	weight_quants_free(&k->quants);
	k->quant_rows = rows;
	return weight_quants_alloc(&k->quants, f, columns, rows);
}

/*
 * Packs the unit's rows as quantized panels into k->packed: evaluates the rows as quants and scales (k->quants), then
 * interleaves each 16 rows to one panel; the last panel of a matrix may have fewer rows. *bytes: size of the panels.
 * A scale that is not finite is no failure: k->not_finite records its element, for a warning. One more byte is
 * reserved, so that panels of 0 bytes have an address, too.
 */
static enum tfmc_status pack_quantized(struct worker *k, const struct unit *u, int64_t *bytes)
{
	const struct ir_weight *w = u->layout->weight;
	int64_t panel = quant_panel_layout(w->format, u->columns).bytes, panels = ceil_div(u->rows, PANEL);
	*bytes = panels * panel;
	if (!reserve_quants(k, w->format, u->columns, u->rows) || !buffer_reserve(&k->packed, *bytes + 1))
		return TFMC_NO_MEMORY;
	TFMC_TRY(wexpr_eval_to(k->cx, w->init, k->source, u->begin, u->rows * u->columns,
	                       (struct wexpr_out){.quants = k->quants}));
	find_non_finite_scale(k, &k->quants, u->begin, u->rows);
	for (int64_t i = 0; i < panels; i++) {
		const struct weight_quants rows = weight_quants_from_row(&k->quants, i * PANEL);
		int64_t n = u->rows - i * PANEL < PANEL ? u->rows - i * PANEL : PANEL;
		pack_quant_panel(&rows, n, (uint8_t *)k->packed.at + i * panel);
	}
	return TFMC_OK;
}

/* ---- units ---- */

/* Packs a unit in its weight's encoding. *out: its bytes, in the worker's memory. TFMC_INVALID: the weight has no
 * value. */
static enum tfmc_status pack_unit(struct worker *k, const struct unit *u, const void **out, int64_t *bytes)
{
	const struct ir_weight *w = u->layout->weight;
	k->not_finite = -1;
	if (!ir_weight_has_value(k->cx, w))
		return TFMC_INVALID;
	if (w->encoding == ENC_PANEL16) {
		TFMC_TRY(ir_format_is_quantized(w->format) ? pack_quantized(k, u, bytes)
		                                           : pack_panels(k, u, bytes));
		*out = k->packed.at;
		return TFMC_OK;
	}
	TFMC_TRY(eval_elements(k, u));
	*bytes = u->columns * weight_element_bytes(w);
	*out = k->elements.at;
	return TFMC_OK;
}

/* Rows of a unit of a matrix, a multiple of 16: about BLOCK elements, or what the search for one scale per row takes
 * at once. */
static int64_t unit_rows(const struct weight_layout *w)
{
	const struct ir_format_desc *d = ir_format(w->weight->format);
	if (d->bits > 0 && d->block == 0 && w->columns <= SCALED_COLUMNS)
		return SCALED_ROWS;
	return w->columns > 0 && w->columns * PANEL < BLOCK ? BLOCK / (w->columns * PANEL) * PANEL : PANEL;
}

/* The next unit of work, under the lock; false: there is none. Units of a matrix do not cross its end, as its last
 * panel is padded. A weight in row order is divided as one row. */
static bool next_unit(struct packer *p, struct unit *u)
{
	const struct weight_list *all = &p->object->weights;
	for (; p->weight < all->n; p->weight++, p->row = 0) {
		const struct weight_layout *w = &all->items[p->weight];
		bool is_row = w->weight->encoding == ENC_ROW;
		int64_t count = is_row ? w->columns : w->matrices * w->rows, first = p->row;
		if (first >= count)
			continue;
		int64_t left = is_row ? count - first : w->rows - first % w->rows,
		        most = is_row ? BLOCK : unit_rows(w), n = left < most ? left : most;
		p->row += n;
		*u = (struct unit){.layout = w,
		                   .begin = is_row ? first : first * w->columns,
		                   .rows = is_row ? 1 : n,
		                   .columns = is_row ? n : w->columns,
		                   .number = p->n_taken++};
		return true;
	}
	return false;
}

/* Appends bytes to both sinks, the output (at `base`) and the cache's file, and to the hash of the weights. TFMC_IO: a
 * sink failed, after its diagnostic. */
static enum tfmc_status write_bytes(struct packer *p, const void *bytes, size_t n)
{
	const struct backend_sink *also = p->object->options->packed_sink;
	tfmc_weights_hash_add(&p->hash, bytes, n);
	if (p->sink && n && !p->sink->write_at(p->sink->user, p->base + p->at, bytes, n))
		return TFMC_IO;
	if (also && n && !also->write_at(also->user, TFMC_WEIGHTS_DATA + p->at, bytes, n))
		return TFMC_IO;
	p->at += n;
	progress_report(p->object->options->progress, "packing weights", NULL, p->at,
	                (uint64_t)p->object->weights.bytes);
	return TFMC_OK;
}

/* Writes zeros up to an offset, where the next weight begins. */
static enum tfmc_status write_padding(struct packer *p, uint64_t offset)
{
	static const char zeros[OBJECT_ALIGN];
	while (p->at < offset) {
		uint64_t n = offset - p->at;
		TFMC_TRY(write_bytes(p, zeros, n < sizeof(zeros) ? (size_t)n : sizeof(zeros)));
	}
	return TFMC_OK;
}

static bool depends_on_rank(const struct ir_wexpr *e)
{
	bool depends = e != NULL && e->kind == WX_RANKS;
	for (size_t i = 0; e != NULL && i < e->n_args && !depends; i++)
		depends = depends_on_rank(e->args[i]);
	return depends;
}

/*
 * Adds some elements (SAMPLES, evenly spaced) of every rank's part of the divided weights to p->shared, whichever rank
 * is packed, so that files of all ranks have one hash: parts of two checkpoints, of which one may be fine-tuned from
 * the other and share all undivided weights, are not one set.
 */
static enum tfmc_status hash_parts(struct packer *p)
{
	const struct object *o = p->object;
	for (size_t i = 0; i < o->weights.n; i++) {
		const struct ir_wexpr *e = o->weights.items[i].weight->init;
		const int64_t count = e != NULL && depends_on_rank(e) ? wexpr_count(e) : 0;
		const int64_t n = count < SAMPLES ? count : SAMPLES;
		for (int64_t k = 0; k < n * o->ranks; k++) {
			struct weight_source source = p->source ? *p->source : (struct weight_source){0};
			double value;
			source.rank = k % o->ranks;
			TFMC_TRY(wexpr_eval(o->cx, e, &source, k / o->ranks * (count / n), 1, &value));
			p->shared = hash_bytes64(p->shared, &value, sizeof(value));
		}
	}
	return TFMC_OK;
}

/* Writes a packed unit in the order of units, under the lock, after the padding before its weight. Units that are the
 * same on all ranks go into p->shared, the hash by which ranks see that their files belong together. */
static enum tfmc_status write_unit(struct worker *k, const struct unit *u, enum tfmc_status st,
                                   const void *packed, int64_t bytes)
{
	struct packer *p = k->packer;
	if (st != TFMC_OK) { /* pack it again, with diagnostics */
		struct worker reporting = *k;
		reporting.cx = p->object->cx;
		reporting.source = p->source;
		st = pack_unit(&reporting, u, &packed, &bytes);
		reporting.cx = k->cx;
		reporting.source = k->source;
		*k = reporting;
	}
	TFMC_TRY(st);
	if (k->not_finite >= 0 && !p->warned)
		warn_non_finite(p, u->layout->weight, k->not_finite);
	if (p->object->ranks > 1 && !depends_on_rank(u->layout->weight->init)) {
		struct tfmc_weights_hash h;
		tfmc_weights_hash_begin(&h);
		tfmc_weights_hash_add(&h, packed, (uint64_t)bytes);
		const uint64_t unit = tfmc_weights_hash_end(&h);
		p->shared = hash_bytes64(p->shared, &unit, sizeof(unit));
	}
	TFMC_TRY(write_padding(p, (uint64_t)u->layout->offset));
	return write_bytes(p, packed, (size_t)bytes);
}

/* A parallel_for task: packs units until none is left or one fails. Units are taken in order and written in order, so
 * a worker waits only for those before its unit, which others are packing. */
static void pack_worker(void *user, int64_t number, int64_t n_workers)
{
	struct packer *p = user;
	struct diag_context silent;
	struct worker k = {.packer = p, .cx = &silent, .source = p->source};
	struct unit u;
	(void)number, (void)n_workers;
	diag_init(&silent, NULL, NULL);
	pthread_mutex_lock(&p->lock);
	while (p->status == TFMC_OK && next_unit(p, &u)) {
		const void *packed = NULL;
		int64_t bytes = 0;
		pthread_mutex_unlock(&p->lock);
		enum tfmc_status st = pack_unit(&k, &u, &packed, &bytes);
		pthread_mutex_lock(&p->lock);
		while (p->n_written != u.number)
			pthread_cond_wait(&p->turn, &p->lock);
		if (p->status == TFMC_OK)
			p->status = write_unit(&k, &u, st, packed, bytes);
		p->n_written++;
		pthread_cond_broadcast(&p->turn);
	}
	pthread_mutex_unlock(&p->lock);
	memory_free(k.values.at);
	memory_free(k.elements.at);
	memory_free(k.packed.at);
	weight_quants_free(&k.quants);
	diag_destroy(&silent);
}

/* Reads every tensor once before the workers start: sources find tensors and open files here and only look
 * them up later. */
static enum tfmc_status resolve_tensors(struct packer *p, const struct ir_wexpr *e)
{
	struct weight_bytes bytes;
	for (size_t i = 0; i < e->n_args; i++)
		TFMC_TRY(resolve_tensors(p, e->args[i]));
	if (e->kind != WX_TENSOR || !p->source || !p->source->read)
		return TFMC_OK;
	return p->source->read(p->source->user, p->object->cx, e->file, e->tensor, &bytes);
}

/* Rejects rows that are too long for a worker's buffers and resolves all tensors (resolve_tensors). */
static enum tfmc_status check_weights(struct packer *p)
{
	const struct weight_list *all = &p->object->weights;
	for (size_t i = 0; i < all->n; i++) {
		const struct weight_layout *w = &all->items[i];
		bool is_plain =
		        w->weight->encoding == ENC_PANEL16 && !ir_format_is_quantized(w->weight->format);
		if (is_plain && w->columns > COLUMNS_MAX) {
			diag_error(p->object->cx, w->weight->loc.at, DIAG_LIMIT,
			           "weight '%s' has rows of %lld elements", w->weight->name,
			           (long long)w->columns);
			return TFMC_INVALID;
		}
		if (w->weight->init)
			TFMC_TRY(resolve_tensors(p, w->weight->init));
	}
	return TFMC_OK;
}

/* check_weights runs first, by one thread: it opens files and reports errors, after which workers take no unit. The
 * hashes are set in any case; the status says whether they count. */
enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                              const struct backend_sink *sink, uint64_t base)
{
	const struct backend_options *options = o->options;
	struct packer p = {.object = o,
	                   .source = source,
	                   .sink = sink,
	                   .base = base,
	                   .shared = HASH64_SEED,
	                   .lock = PTHREAD_MUTEX_INITIALIZER,
	                   .turn = PTHREAD_COND_INITIALIZER};
	memory_stage("packing weights", NULL);
	tfmc_weights_hash_begin(&p.hash);
	p.status = check_weights(&p);
	if (p.status == TFMC_OK)
		p.status = hash_parts(&p);
	if (options->parallel_for)
		options->parallel_for(options->parallel_user, options->workers, pack_worker, &p);
	else
		pack_worker(&p, 0, 1);
	if (p.status == TFMC_OK)
		p.status = write_padding(&p, (uint64_t)o->weights.bytes);
	pthread_cond_destroy(&p.turn);
	pthread_mutex_destroy(&p.lock);
	o->weights_hash = tfmc_weights_hash_end(&p.hash);
	o->set_hash = o->ranks > 1 ? p.shared : o->weights_hash;
	return p.status;
}

bool pack_is_done(const struct object *o)
{
	const struct backend_packed *packed = o->options->packed;
	return packed && packed->structure_hash == o->structure_hash &&
	       packed->bytes == (uint64_t)o->weights.bytes;
}

/* In pieces, so that progress can be reported. */
enum tfmc_status pack_copy(struct object *o, const struct backend_sink *sink, uint64_t base)
{
	const struct backend_packed *packed = o->options->packed;
	const char *from = packed->data;
	o->weights_hash = o->set_hash = packed->weights_hash;
	for (uint64_t at = 0; sink && at < packed->bytes;) {
		uint64_t left = packed->bytes - at, n = left < COPY_BYTES ? left : COPY_BYTES;
		if (!sink->write_at(sink->user, base + at, from + at, (size_t)n))
			return TFMC_IO;
		at += n;
		progress_report(o->options->progress, "copying weights", NULL, at, packed->bytes);
	}
	return TFMC_OK;
}

enum tfmc_status pack_header(struct object *o, const struct backend_sink *sink, int64_t rank)
{
	static const char zeros[TFMC_WEIGHTS_DATA];
	struct tfmc_weights_header header = {.magic = TFMC_WEIGHTS_MAGIC,
	                                     .abi_version = TFMC_ABI_VERSION,
	                                     .structure_hash = o->structure_hash,
	                                     .weights_hash = o->weights_hash,
	                                     .bytes = (uint64_t)o->weights.bytes,
	                                     .set_hash = o->set_hash,
	                                     .rank = rank,
	                                     .ranks = o->ranks};
	size_t n = sizeof(header);
	if (!sink->write_at(sink->user, 0, &header, n))
		return TFMC_IO;
	return sink->write_at(sink->user, n, zeros, sizeof(zeros) - n) ? TFMC_OK : TFMC_IO;
}
