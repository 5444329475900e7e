/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs weights into the layout the kernels read and streams them: bounded
 * memory whatever the model. Floats are stored as f32, or as the narrow type
 * they are kept as, everything else as i32.
 *   row      the elements in order
 *   panel16  a matrix [N, K] as [ceil(N/16)][K][16], rows beyond N zero; bf16:
 * [ceil(N/16)][ceil(K/2)][16][2], f16: [ceil(N/16)][K rounded up to even][16]; codes: struct tile_codes
 */
#include "backends/object/internal.h"

#include <string.h>

#include "ir/support/memory.h"
#include "ir/target/tile.h"

#define PANEL       TILE_PANEL
#define BLOCK       65536 /* elements evaluated at once, at least one panel */
#define COLUMNS_MAX (1 << 22)

struct packer {
	struct object *object;
	const struct weight_source *source;
	const struct backend_sink *sink;
	uint64_t base; /* position of the packed weights in the sink */
	uint64_t at;   /* bytes packed so far */
	struct tfmc_weights_hash hash;
	double *values;     /* [capacity]; before they are rounded */
	uint32_t *elements; /* [capacity] words: elements as they lie in memory, row by row */
	uint32_t *panel;    /* [capacity] words */
	size_t capacity;
	bool warned; /* of an element that is not finite; the first one is enough */
};

static void release(struct packer *p)
{
	memory_free(p->values);
	memory_free(p->elements);
	memory_free(p->panel);
}

static bool reserve(struct packer *p, size_t n)
{
	if (n <= p->capacity)
		return true;
	release(p);
	p->values = memory_alloc(n * sizeof(*p->values));
	p->elements = memory_alloc(n * sizeof(*p->elements));
	p->panel = memory_alloc(n * sizeof(*p->panel));
	p->capacity = p->values && p->elements && p->panel ? n : 0;
	return p->capacity == n;
}

static enum tfmc_status put(struct packer *p, const void *bytes, size_t n)
{
	tfmc_weights_hash_add(&p->hash, bytes, n);
	if (p->sink && n && !p->sink->write_at(p->sink->user, p->base + p->at, bytes, n))
		return TFMC_IO;
	p->at += n;
	progress_tell(p->object->options->progress, "packing weights", NULL, p->at,
	              (uint64_t)p->object->weights.bytes);
	return TFMC_OK;
}

/* Zeros up to the next weight. */
static enum tfmc_status pad_to(struct packer *p, uint64_t offset)
{
	static const char zeros[OBJECT_ALIGN];
	while (p->at < offset) {
		uint64_t n = offset - p->at;
		TFMC_TRY(put(p, zeros, n < sizeof(zeros) ? (size_t)n : sizeof(zeros)));
	}
	return TFMC_OK;
}

/* ---- elements that are not finite ---- */

/* The exponent bits of floats are all ones. Blocks without a branch inside are vectorized. */
static int64_t first_wide(enum ir_dtype t, const void *elements, int64_t n)
{
	const uint32_t *words = elements;
	const uint16_t *halves = elements;
	const uint32_t most = t == DT_F32 ? 0x7f800000u : t == DT_BF16 ? 0x7f80u : 0x7c00u;
	for (int64_t i = 0; i < n; i += 256) {
		int64_t end = n - i < 256 ? n : i + 256;
		unsigned any = 0;
		for (int64_t k = i; t == DT_F32 && k < end; k++)
			any |= (words[k] & most) == most;
		for (int64_t k = i; t != DT_F32 && k < end; k++)
			any |= (halves[k] & most) == most;
		for (int64_t k = i; any && k < end; k++)
			if (((t == DT_F32 ? words[k] : halves[k]) & most) == most)
				return k;
	}
	return -1;
}

/* "[0,4,17]" of an element of a tensor. */
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

/* Prints the first stored element that is not finite; false when there is none: narrowing made it so. */
static bool print_stored(struct packer *p, const struct ir_wexpr *e, struct buf *out)
{
	for (size_t i = 0; i < e->n_args; i++)
		if (print_stored(p, e->args[i], out))
			return true;
	int64_t count = e->kind == WX_TENSOR ? wexpr_count(e) : 0;
	double values[1024];
	for (int64_t begin = 0; begin < count; begin += (int64_t)TFMC_COUNT(values)) {
		int64_t left = count - begin,
		        n = left < (int64_t)TFMC_COUNT(values) ? left : (int64_t)TFMC_COUNT(values);
		if (wexpr_eval(p->object->cx, e, p->source, begin, n, values) != TFMC_OK)
			return false;
		for (int64_t i = 0; i < n; i++) {
			if (values[i] - values[i] == 0)
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

static void warn_wide(struct packer *p, const struct ir_weight *w, int64_t at)
{
	int64_t dims[IR_RANK_MAX];
	struct buf text;
	buf_init(&text);
	for (int i = 0; i < w->type->rank; i++)
		if (!ir_dim_is_const(w->type->dims[i], &dims[i]))
			dims[i] = 1;
	if (!print_stored(p, w->init, &text)) {
		buf_str(&text, "elements are too large for their type, the first one at ");
		print_index(&text, w->type->rank, dims, at);
	}
	p->warned = true;
	diag_warning(p->object->cx, w->loc.at, DIAG_WEIGHT_RANGE, "the weight '%s' is not finite: %s",
	             w->name, text.data);
	buf_destroy(&text);
}

/* Elements [begin, begin + n) as they lie in p->elements. */
static void check_elements(struct packer *p, const struct ir_weight *w, int64_t begin, int64_t n)
{
	enum ir_dtype t = ir_format(ir_weight_kept(w))->dtype;
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT &&
	                (t == DT_F32 || t == DT_BF16 || t == DT_F16);
	int64_t at = is_float && !p->warned ? first_wide(t, p->elements, n) : -1;
	if (at >= 0)
		warn_wide(p, w, begin + at);
}

/* Scales of n rows of codes, the first of which begins at element `begin`. */
static void check_codes(struct packer *p, const struct ir_weight *w, const struct weight_codes *rows,
                        int64_t begin, int64_t n)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	int64_t block = d->block > 0 ? d->block : rows->k, blocks = ir_format_blocks(rows->format, rows->k);
	int64_t supers = ir_format_supers(rows->format, rows->k);
	const struct {
		const float *numbers;
		int64_t each, of; /* numbers of a row, elements of one */
	} all[] = {{rows->scales, blocks, block},
	           {rows->offsets, blocks, block},
	           {rows->super_scales, supers, block * d->super},
	           {rows->super_offsets, supers, block * d->super}};
	for (size_t i = 0; i < TFMC_COUNT(all) && !p->warned; i++) {
		int64_t at = all[i].numbers ? first_wide(DT_F32, all[i].numbers, n * all[i].each) : -1;
		if (at >= 0)
			warn_wide(p, w, begin + at / all[i].each * rows->k + at % all[i].each * all[i].of);
	}
}

/* Elements [begin, begin + n) of the weight as they lie in memory, to p->elements. */
static enum tfmc_status eval_elements(struct packer *p, const struct ir_weight *w, int64_t begin, int64_t n)
{
	struct diag_context *cx = p->object->cx;
	struct wexpr_out out = {.at = p->elements, .dtype = ir_format(ir_weight_kept(w))->dtype};
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT;
	if (!ir_weight_has_value(cx, w))
		return TFMC_INVALID;
	if (w->type->dtype == DT_F32)
		return wexpr_eval_to(cx, w->init, p->source, begin, n, out);
	TFMC_TRY(wexpr_eval(cx, w->init, p->source, begin, n, p->values));
	for (int64_t i = 0; i < n; i++)
		p->values[i] = ir_round(is_float ? w->type->dtype : DT_I32, p->values[i]);
	if (is_float)
		weight_write_floats(out.dtype, p->values, n, p->elements);
	for (int64_t i = 0; !is_float && i < n; i++)
		p->elements[i] = (uint32_t)(int32_t)p->values[i];
	return TFMC_OK;
}

static enum tfmc_status pack_rows(struct packer *p, const struct weight_place *w)
{
	if (!reserve(p, BLOCK))
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < w->columns; i += BLOCK) {
		int64_t n = w->columns - i < BLOCK ? w->columns - i : BLOCK;
		TFMC_TRY(eval_elements(p, w->weight, i, n));
		check_elements(p, w->weight, i, n);
		TFMC_TRY(put(p, p->elements, (size_t)(n * weight_element_bytes(w->weight))));
	}
	return TFMC_OK;
}

/* n rows of `words` words, `pitch` bytes apart, as one panel of words. Squares of 16 x 16, so that rows that
 * lie a power of two apart do not push each other out of the cache. */
static void turn_words(uint32_t *to, const char *from, int64_t n, int64_t words, int64_t pitch)
{
	for (int64_t k0 = 0; k0 < words; k0 += PANEL) {
		int64_t end = words - k0 < PANEL ? words : k0 + PANEL;
		for (int64_t r = 0; r < n; r++)
			for (int64_t k = k0; k < end; k++)
				memcpy(&to[k * PANEL + r], from + r * pitch + k * 4, 4);
	}
}

/* The same with 16 bits. */
static void turn_halves(uint16_t *to, const char *from, int64_t n, int64_t columns)
{
	for (int64_t k0 = 0; k0 < columns; k0 += PANEL) {
		int64_t end = columns - k0 < PANEL ? columns : k0 + PANEL;
		for (int64_t r = 0; r < n; r++)
			for (int64_t k = k0; k < end; k++)
				memcpy(&to[k * PANEL + r], from + (r * columns + k) * 2, 2);
	}
}

/* Pairs of K, side by side, are words; of an odd number of columns the last pair has one. */
static void turn_pairs(uint32_t *to, const char *from, int64_t n, int64_t columns)
{
	turn_words(to, from, n, columns / 2, columns * 2);
	for (int64_t r = 0; columns % 2 && r < n; r++)
		memcpy(&to[columns / 2 * PANEL + r], from + (r * columns + columns - 1) * 2, 2);
}

/* n rows of elements as one panel of `words` words. */
static void turn_panel(enum ir_dtype t, uint32_t *to, int64_t words, const char *from, int64_t n,
                       int64_t columns)
{
	if (n < PANEL || columns % 2)
		memset(to, 0, (size_t)words * sizeof(*to));
	if (t == DT_BF16)
		turn_pairs(to, from, n, columns);
	else if (t == DT_F16)
		turn_halves((uint16_t *)(void *)to, from, n, columns);
	else
		turn_words(to, from, n, columns, columns * 4);
}

/* Rows [row, row + n) of the matrix that begins at element `begin`, as panels. */
static enum tfmc_status pack_some(struct packer *p, const struct weight_place *w, int64_t begin, int64_t row,
                                  int64_t n)
{
	enum ir_dtype t = ir_format(w->weight->format)->dtype;
	int64_t columns = w->columns, panels = (n + PANEL - 1) / PANEL;
	int64_t words = tile_lines(t, columns) * PANEL, pitch = columns * weight_element_bytes(w->weight);
	TFMC_TRY(eval_elements(p, w->weight, begin + row * columns, n * columns));
	check_elements(p, w->weight, begin + row * columns, n * columns);
	for (int64_t i = 0; i < panels; i++) {
		int64_t rows = n - i * PANEL < PANEL ? n - i * PANEL : PANEL;
		const char *from = (const char *)p->elements + i * PANEL * pitch;
		turn_panel(t, p->panel + i * words, words, from, rows, columns);
	}
	return put(p, p->panel, (size_t)(panels * words) * sizeof(*p->panel));
}

static enum tfmc_status pack_panels(struct packer *p, const struct weight_place *w)
{
	if (w->columns > COLUMNS_MAX) {
		diag_error(p->object->cx, w->weight->loc.at, DIAG_LIMIT,
		           "weight '%s' has rows of %lld elements", w->weight->name, (long long)w->columns);
		return TFMC_INVALID;
	}
	int64_t panels = w->columns > 0 && w->columns * PANEL < BLOCK ? BLOCK / (w->columns * PANEL) : 1;
	int64_t rows = panels * PANEL;
	if (!reserve(p, (size_t)(w->columns * rows)))
		return TFMC_NO_MEMORY;
	for (int64_t m = 0; m < w->matrices; m++)
		for (int64_t row = 0; row < w->rows; row += rows) {
			int64_t n = w->rows - row < rows ? w->rows - row : rows;
			TFMC_TRY(pack_some(p, w, m * w->rows * w->columns, row, n));
		}
	return TFMC_OK;
}

/* ---- codes ---- */

/* What is stored of each code, by the byte that the code is. */
struct stored {
	uint8_t of[256];
	uint8_t none; /* beyond the end of a row */
};

static struct stored stored_codes(const struct ir_format_desc *d)
{
	struct stored s = {.none = (uint8_t)(d->codebook ? 0 : d->zero)};
	for (int i = 0; i < 256; i++)
		s.of[i] = (uint8_t)(i + d->zero);
	for (int i = 0; d->codebook && i < 16; i++)
		s.of[(uint8_t)d->codebook[i]] = (uint8_t)i;
	return s;
}

/* Up to 32 elements of column c. */
static void put_codes(const struct stored *s, int bits, const int8_t *codes, int64_t n, int shift, int64_t c,
                      uint8_t *to)
{
	uint8_t code[32];
	for (int64_t i = 0; i < n; i++)
		code[i] = s->of[(uint8_t)(codes[i] - shift)];
	for (int64_t i = n; i < 32; i++)
		code[i] = s->none;
	for (int i = 0; bits == 4 && i < 16; i++)
		code[i] = (uint8_t)(code[i] | code[i + 16] << 4);
	for (int64_t i = 0; i < (bits == 4 ? 4 : (n + 3) / 4); i++)
		memcpy(to + i * TILE_LINE + 4 * c, code + 4 * i, 4);
}

/* Numbers [from, from + n) of a column times `unit`, 16 apart. */
static void put_column(enum ir_dtype t, uint8_t *to, int64_t c, const float *numbers, int64_t from, int64_t n,
                       int unit)
{
	for (int64_t i = 0; numbers && i < n; i++) {
		double v = (double)numbers[from + i] * unit;
		int64_t at = (i * PANEL + c) * ir_dtype_bytes(t);
		if (t == DT_I8)
			to[at] = (uint8_t)(int8_t)v;
		else
			weight_write_floats(t, &v, 1, to + at);
	}
}

/* Elements [from, from + n) of a row, which are those of the section at `to`. */
static void put_section(const struct tile_codes *at, const struct stored *stored,
                        const struct weight_codes *row, int64_t from, int64_t n, int64_t c, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t block = d->block > 0 ? from / d->block : 0, blocks = ir_format_blocks(row->format, n);
	int64_t super = block / d->super, supers = ir_format_supers(row->format, n);
	enum ir_dtype t = d->super > 1 ? DT_I8 : d->scale;
	for (int64_t k = 0; k < n; k += 32) { /* a block of a format with shifts */
		int shift = d->shift > 0 ? weight_codes_shift(row, (from + k) / d->block) : 0;
		put_codes(stored, d->bits, row->codes + from + k, n - k < 32 ? n - k : 32, shift, c,
		          to + at->lines + k / 32 * d->bits * TILE_LINE);
	}
	put_column(t, to + at->scales, c, row->scales, block, blocks, d->shift > 0 ? FORMAT_SHIFT_UNIT : 1);
	put_column(t, to + at->offsets, c, row->offsets, block, blocks, 1);
	put_column(d->scale, to + at->super_scales, c, row->super_scales, super, supers, 1);
	put_column(d->scale, to + at->super_offsets, c, row->super_offsets, super, supers, 1);
}

/* n rows of codes as one panel. */
static void turn_codes(const struct weight_codes *rows, int64_t n, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	const struct tile_codes at = tile_codes(rows->format, rows->k);
	const struct stored stored = stored_codes(d);
	uint8_t *end = to + at.bytes, zero = (uint8_t)(d->bits == 8 ? d->zero : d->zero * 17);
	memset(to, d->codebook ? 0 : zero, (size_t)at.bytes);
	for (int64_t from = 0; to < end; to += at.section_bytes, from += at.section) {
		int64_t left = rows->k - from, length = left < at.section ? left : at.section;
		memset(to, 0, (size_t)at.lines);
		for (int64_t c = 0; c < n; c++) {
			const struct weight_codes row = weight_codes_from(rows, c);
			put_section(&at, &stored, &row, from, length, c, to);
		}
	}
}

static enum tfmc_status pack_code_panels(struct packer *p, const struct weight_place *w,
                                         const struct weight_codes *rows, uint8_t *panel)
{
	int64_t bytes = tile_codes(rows->format, rows->k).bytes;
	for (int64_t m = 0; m < w->matrices; m++)
		for (int64_t row = 0; row < w->rows; row += PANEL) {
			int64_t n = w->rows - row < PANEL ? w->rows - row : PANEL;
			int64_t begin = (m * w->rows + row) * w->columns;
			TFMC_TRY(wexpr_eval_to(p->object->cx, w->weight->init, p->source, begin,
			                       n * w->columns, (struct wexpr_out){.codes = *rows}));
			check_codes(p, w->weight, rows, begin, n);
			turn_codes(rows, n, panel);
			TFMC_TRY(put(p, panel, (size_t)bytes));
		}
	return TFMC_OK;
}

static enum tfmc_status pack_codes(struct packer *p, const struct weight_place *w)
{
	struct weight_codes rows;
	enum tfmc_status status = TFMC_NO_MEMORY;
	if (!ir_weight_has_value(p->object->cx, w->weight))
		return TFMC_INVALID;
	uint8_t *panel = memory_alloc((size_t)tile_codes(w->weight->format, w->columns).bytes + 1);
	if (weight_codes_alloc(&rows, w->weight->format, w->columns, PANEL) && panel)
		status = pack_code_panels(p, w, &rows, panel);
	weight_codes_release(&rows);
	memory_free(panel);
	return status;
}

static enum tfmc_status pack_encoded(struct packer *p, const struct weight_place *w)
{
	switch (w->weight->encoding) {
	case ENC_ROW: return pack_rows(p, w);
	case ENC_PANEL16:
		return ir_format_has_codes(w->weight->format) ? pack_codes(p, w) : pack_panels(p, w);
	}
	return TFMC_INTERNAL;
}

static enum tfmc_status pack_all(struct packer *p)
{
	const struct object *o = p->object;
	for (size_t i = 0; i < o->weights.n; i++) {
		TFMC_TRY(pad_to(p, (uint64_t)o->weights.items[i].offset));
		TFMC_TRY(pack_encoded(p, &o->weights.items[i]));
	}
	return pad_to(p, (uint64_t)o->weights.bytes);
}

enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                              const struct backend_sink *sink, uint64_t base)
{
	struct packer p = {.object = o, .source = source, .sink = sink, .base = base};
	memory_stage("packing weights", NULL);
	tfmc_weights_hash_begin(&p.hash);
	enum tfmc_status status = pack_all(&p);
	release(&p);
	o->weights_hash = tfmc_weights_hash_end(&p.hash);
	return status;
}

enum tfmc_status pack_header(struct object *o, const struct backend_sink *sink)
{
	static const char zeros[TFMC_WEIGHTS_DATA];
	struct tfmc_weights_header header = {.magic = TFMC_WEIGHTS_MAGIC,
	                                     .abi_version = TFMC_ABI_VERSION,
	                                     .structure_hash = o->structure_hash,
	                                     .weights_hash = o->weights_hash,
	                                     .bytes = (uint64_t)o->weights.bytes};
	size_t n = sizeof(header);
	if (!sink->write_at(sink->user, 0, &header, n))
		return TFMC_IO;
	return sink->write_at(sink->user, n, zeros, sizeof(zeros) - n) ? TFMC_OK : TFMC_IO;
}
