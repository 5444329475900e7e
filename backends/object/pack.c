/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs weights into the layout the kernels read and streams them: bounded
 * memory whatever the model. Floats are stored as f32, or as the narrow type
 * they are kept as, everything else as i32.
 *   row      the elements in order
 *   panel16  a matrix [N, K] as [ceil(N/16)][K][16], rows beyond N zero; bf16:
 * [ceil(N/16)][ceil(K/2)][16][2], f16: [ceil(N/16)][K rounded up to even][16]; codes: struct quant_panel_layout
 */
#include "backends/object/internal.h"

#include <pthread.h>
#include <string.h>

#include "ir/support/memory.h"
#include "ir/target/tile.h"

#define PANEL       PANEL_COLUMNS
#define BLOCK       65536 /* elements of a unit, at least one panel */
#define COLUMNS_MAX (1 << 22)
#define COPIED      (1u << 20) /* bytes at once */
/* Rows of a unit whose scales are each of a whole row: so many are searched for at once. */
#define SCALED_ROWS    FIXED_LANES
#define SCALED_COLUMNS 16384 /* of longer rows a panel */

/*
 * Workers take units in order, pack each into memory of their own, and give its bytes in the same order: they do not depend on
 * the number of workers. What is said about a unit is said in its turn, too: a worker packs without saying anything,
 * and a unit that fails is packed again when all before it are done.
 */
struct unit {
	const struct weight_layout *place;
	int64_t begin; /* first element of the weight */
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
	/* Under the lock. */
	size_t weight; /* number of the next unit's, and its first row (ENC_ROW: element) in all matrices */
	int64_t row;
	int64_t taken, given; /* units */
	enum tfmc_status status;
	uint64_t at; /* bytes given so far */
	struct tfmc_weights_hash hash;
	bool warned; /* of an element that is not finite; the first one is enough */
};

/* Memory that grows. */
struct room {
	void *at;
	size_t bytes;
};

struct worker {
	struct packer *packer;
	struct diag_context *cx;
	const struct weight_source *source;
	struct room values;   /* f64, before they are rounded */
	struct room elements; /* as they lie in memory, row by row */
	struct room packed;   /* elements in the order of the kernels */
	struct weight_quants codes;
	int64_t codes_rows;
	int64_t not_finite; /* the first element of the unit that is not, counted in the weight; -1: none */
};

static bool reserve(struct room *r, int64_t bytes)
{
	if ((size_t)bytes <= r->bytes)
		return true;
	memory_free(r->at);
	r->at = memory_alloc((size_t)bytes);
	r->bytes = r->at ? (size_t)bytes : 0;
	return r->at != NULL;
}

static void release(struct worker *k)
{
	memory_free(k->values.at);
	memory_free(k->elements.at);
	memory_free(k->packed.at);
	weight_quants_free(&k->codes);
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

/* Elements [begin, begin + n) as they lie in k->elements. */
static void check_elements(struct worker *k, const struct ir_weight *w, int64_t begin, int64_t n)
{
	enum ir_dtype t = ir_format(ir_weight_stored_format(w))->dtype;
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT &&
	                (t == DT_F32 || t == DT_BF16 || t == DT_F16);
	int64_t at = is_float ? first_wide(t, k->elements.at, n) : -1;
	if (at >= 0)
		k->not_finite = begin + at;
}

/* Scales of n rows of codes, the first of which begins at element `begin`. */
static void check_codes(struct worker *k, const struct weight_quants *rows, int64_t begin, int64_t n)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	int64_t block = d->block > 0 ? d->block : rows->k, blocks = ir_format_blocks(rows->format, rows->k);
	int64_t supers = ir_format_super_blocks(rows->format, rows->k);
	const struct {
		const float *numbers;
		int64_t each, of; /* numbers of a row, elements of one */
	} all[] = {{rows->scales, blocks, block},
	           {rows->offsets, blocks, block},
	           {rows->super_scales, supers, block * d->super},
	           {rows->super_offsets, supers, block * d->super}};
	for (size_t i = 0; i < TFMC_COUNT(all) && k->not_finite < 0; i++) {
		int64_t at = all[i].numbers ? first_wide(DT_F32, all[i].numbers, n * all[i].each) : -1;
		if (at >= 0)
			k->not_finite = begin + at / all[i].each * rows->k + at % all[i].each * all[i].of;
	}
}

/* The unit's elements as they lie in memory, to k->elements. */
static enum tfmc_status eval_elements(struct worker *k, const struct unit *u)
{
	const struct ir_weight *w = u->place->weight;
	int64_t n = u->rows * u->columns;
	bool is_float = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT;
	if (!reserve(&k->elements, n * (int64_t)sizeof(uint32_t)))
		return TFMC_NO_MEMORY;
	struct wexpr_out out = {.at = k->elements.at, .dtype = ir_format(ir_weight_stored_format(w))->dtype};
	if (w->type->dtype == DT_F32) {
		TFMC_TRY(wexpr_eval_to(k->cx, w->init, k->source, u->begin, n, out));
	} else {
		if (!reserve(&k->values, n * (int64_t)sizeof(double)))
			return TFMC_NO_MEMORY;
		double *values = k->values.at;
		int32_t *integers = k->elements.at;
		TFMC_TRY(wexpr_eval(k->cx, w->init, k->source, u->begin, n, values));
		for (int64_t i = 0; i < n; i++)
			values[i] = ir_round(is_float ? w->type->dtype : DT_I32, values[i]);
		if (is_float)
			weight_write_floats(out.dtype, values, n, out.at);
		for (int64_t i = 0; !is_float && i < n; i++)
			integers[i] = (int32_t)values[i];
	}
	check_elements(k, w, u->begin, n);
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

/* The unit's rows as panels. */
static enum tfmc_status pack_panels(struct worker *k, const struct unit *u, int64_t *bytes)
{
	const struct ir_weight *w = u->place->weight;
	enum ir_dtype t = ir_format(w->format)->dtype;
	int64_t panels = (u->rows + PANEL - 1) / PANEL, words = panel_row_count(t, u->columns) * PANEL;
	int64_t pitch = u->columns * weight_element_bytes(w);
	*bytes = panels * words * (int64_t)sizeof(uint32_t);
	TFMC_TRY(eval_elements(k, u));
	if (!reserve(&k->packed, *bytes))
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < panels; i++) {
		int64_t rows = u->rows - i * PANEL < PANEL ? u->rows - i * PANEL : PANEL;
		const char *from = (const char *)k->elements.at + i * PANEL * pitch;
		turn_panel(t, (uint32_t *)k->packed.at + i * words, words, from, rows, u->columns);
	}
	return TFMC_OK;
}

/* ---- codes ---- */

#define GROUP 32 /* elements whose codes of 4 bits are interleaved; a block of a format with shifts */

/*
 * What is stored of codes: code + zero, or the place in a codebook, which is the sum of the steps of all codes of the book
 * that are not above. Bytes wrap.
 */
struct stored {
	bool has_book;
	int8_t codes[16];
	uint8_t steps[16];
	uint8_t zero;
	uint8_t none; /* beyond the end of a row */
};

static struct stored stored_codes(const struct ir_format_desc *d)
{
	struct stored s = {.has_book = d->codebook, .zero = (uint8_t)d->zero};
	int n = 0;
	uint8_t before = 0;
	s.none = d->codebook ? 0 : s.zero;
	for (int code = INT8_MIN; d->codebook && code <= INT8_MAX; code++) {
		int place = -1;
		for (int i = 0; i < 16; i++)
			place = d->codebook[i] == code ? i : place;
		if (place < 0)
			continue;
		s.codes[n] = (int8_t)code;
		s.steps[n++] = (uint8_t)(place - before);
		before = (uint8_t)place;
	}
	return s;
}

/* Up to GROUP elements of column c. */
TFMC_MULTIVERSION static void put_codes(const struct stored *s, int bits, const int8_t *codes, int64_t n,
                                      int shift, int64_t c, uint8_t *to)
{
	int8_t code[GROUP] = {0};
	uint8_t out[GROUP] = {0};
	memcpy(code, codes, n < GROUP ? (size_t)n : GROUP);
	for (int b = 0; s->has_book && b < 16; b++) {
		const int8_t from = (int8_t)(s->codes[b] + shift);
		const uint8_t step = s->steps[b];
		for (int i = 0; i < GROUP; i++)
			out[i] = (uint8_t)(out[i] + (step & -(code[i] >= from)));
	}
	for (int i = 0; !s->has_book && i < GROUP; i++)
		out[i] = (uint8_t)(code[i] + s->zero);
	for (int64_t i = n; i < GROUP; i++)
		out[i] = s->none;
	for (int i = 0; bits == 4 && i < GROUP / 2; i++)
		out[i] = (uint8_t)(out[i] | out[i + GROUP / 2] << 4);
	for (int64_t i = 0; i < (bits == 4 ? 4 : (n + 3) / 4); i++)
		memcpy(to + i * PANEL_ROW_BYTES + 4 * c, out + 4 * i, 4);
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
static void put_section(const struct quant_panel_layout *at, const struct stored *stored,
                        const struct weight_quants *row, int64_t from, int64_t n, int64_t c, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(row->format);
	int64_t block = d->block > 0 ? from / d->block : 0, blocks = ir_format_blocks(row->format, n);
	int64_t super = block / d->super, supers = ir_format_super_blocks(row->format, n);
	enum ir_dtype t = d->super > 1 ? DT_I8 : d->scale;
	for (int64_t k = 0; k < n; k += GROUP) {
		int shift = d->shift > 0 ? weight_block_shift(row, (from + k) / d->block) : 0;
		put_codes(stored, d->bits, row->codes + from + k, n - k < GROUP ? n - k : GROUP, shift, c,
		          to + at->lines + k / GROUP * d->bits * PANEL_ROW_BYTES);
	}
	put_column(t, to + at->scales, c, row->scales, block, blocks, d->shift > 0 ? FORMAT_SHIFT_SCALE : 1);
	put_column(t, to + at->offsets, c, row->offsets, block, blocks, 1);
	put_column(d->scale, to + at->super_scales, c, row->super_scales, super, supers, 1);
	put_column(d->scale, to + at->super_offsets, c, row->super_offsets, super, supers, 1);
}

/* n rows of codes as one panel. */
static void turn_codes(const struct weight_quants *rows, int64_t n, uint8_t *to)
{
	const struct ir_format_desc *d = ir_format(rows->format);
	const struct quant_panel_layout at = quant_panel_layout(rows->format, rows->k);
	const struct stored stored = stored_codes(d);
	uint8_t *end = to + at.bytes, zero = (uint8_t)(d->bits == 8 ? d->zero : d->zero * 17);
	memset(to, d->codebook ? 0 : zero, (size_t)at.bytes);
	for (int64_t from = 0; to < end; to += at.section_bytes, from += at.section) {
		int64_t left = rows->k - from, length = left < at.section ? left : at.section;
		memset(to, 0, (size_t)at.lines);
		for (int64_t c = 0; c < n; c++) {
			const struct weight_quants row = weight_quants_from_row(rows, c);
			put_section(&at, &stored, &row, from, length, c, to);
		}
	}
}

/* Arrays of rows of codes, which mostly are those of the unit before. */
static bool reserve_codes(struct worker *k, enum ir_format f, int64_t columns, int64_t rows)
{
	if (k->codes.scales && k->codes.format == f && k->codes.k == columns && k->codes_rows >= rows)
		return true;
	weight_quants_free(&k->codes);
	k->codes_rows = rows;
	return weight_quants_alloc(&k->codes, f, columns, rows);
}

static enum tfmc_status pack_codes(struct worker *k, const struct unit *u, int64_t *bytes)
{
	const struct ir_weight *w = u->place->weight;
	int64_t panel = quant_panel_layout(w->format, u->columns).bytes, panels = (u->rows + PANEL - 1) / PANEL;
	*bytes = panels * panel;
	if (!reserve_codes(k, w->format, u->columns, u->rows) || !reserve(&k->packed, *bytes + 1))
		return TFMC_NO_MEMORY;
	TFMC_TRY(wexpr_eval_to(k->cx, w->init, k->source, u->begin, u->rows * u->columns,
	                       (struct wexpr_out){.codes = k->codes}));
	check_codes(k, &k->codes, u->begin, u->rows);
	for (int64_t i = 0; i < panels; i++) {
		const struct weight_quants rows = weight_quants_from_row(&k->codes, i * PANEL);
		int64_t n = u->rows - i * PANEL < PANEL ? u->rows - i * PANEL : PANEL;
		turn_codes(&rows, n, (uint8_t *)k->packed.at + i * panel);
	}
	return TFMC_OK;
}

/* ---- units ---- */

/* *out: the unit's bytes, in the worker's memory. */
static enum tfmc_status pack_unit(struct worker *k, const struct unit *u, const void **out, int64_t *bytes)
{
	const struct ir_weight *w = u->place->weight;
	k->not_finite = -1;
	if (!ir_weight_has_value(k->cx, w))
		return TFMC_INVALID;
	if (w->encoding == ENC_PANEL16) {
		TFMC_TRY(ir_format_is_quantized(w->format) ? pack_codes(k, u, bytes) : pack_panels(k, u, bytes));
		*out = k->packed.at;
		return TFMC_OK;
	}
	TFMC_TRY(eval_elements(k, u));
	*bytes = u->columns * weight_element_bytes(w);
	*out = k->elements.at;
	return TFMC_OK;
}

/* Rows of a matrix that are a unit: whole panels. */
static int64_t rows_at_once(const struct weight_layout *w)
{
	const struct ir_format_desc *d = ir_format(w->weight->format);
	if (d->bits > 0 && d->block == 0 && w->columns <= SCALED_COLUMNS)
		return SCALED_ROWS;
	return w->columns > 0 && w->columns * PANEL < BLOCK ? BLOCK / (w->columns * PANEL) * PANEL : PANEL;
}

/* The next one; false: there is none. */
static bool take_unit(struct packer *p, struct unit *u)
{
	const struct weight_list *all = &p->object->weights;
	for (; p->weight < all->n; p->weight++, p->row = 0) {
		const struct weight_layout *w = &all->items[p->weight];
		bool is_row = w->weight->encoding == ENC_ROW;
		int64_t count = is_row ? w->columns : w->matrices * w->rows, first = p->row;
		if (first >= count)
			continue;
		int64_t left = is_row ? count - first : w->rows - first % w->rows,
		        most = is_row ? BLOCK : rows_at_once(w), n = left < most ? left : most;
		p->row += n;
		*u = (struct unit){.place = w,
		                   .begin = is_row ? first : first * w->columns,
		                   .rows = is_row ? 1 : n,
		                   .columns = is_row ? n : w->columns,
		                   .number = p->taken++};
		return true;
	}
	return false;
}

static enum tfmc_status put(struct packer *p, const void *bytes, size_t n)
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

/* In the unit's turn, under the lock. */
static enum tfmc_status give_unit(struct worker *k, const struct unit *u, enum tfmc_status st,
                                  const void *packed, int64_t bytes)
{
	struct packer *p = k->packer;
	if (st != TFMC_OK) { /* again, to say why */
		struct worker aloud = *k;
		aloud.cx = p->object->cx;
		aloud.source = p->source;
		st = pack_unit(&aloud, u, &packed, &bytes);
		aloud.cx = k->cx;
		aloud.source = k->source;
		*k = aloud;
	}
	TFMC_TRY(st);
	if (k->not_finite >= 0 && !p->warned)
		warn_wide(p, u->place->weight, k->not_finite);
	TFMC_TRY(pad_to(p, (uint64_t)u->place->offset));
	return put(p, packed, (size_t)bytes);
}

static void work(void *user, int64_t number, int64_t n_workers)
{
	struct packer *p = user;
	struct diag_context silent;
	struct worker k = {.packer = p, .cx = &silent, .source = p->source};
	struct unit u;
	(void)number, (void)n_workers;
	diag_init(&silent, NULL, NULL);
	pthread_mutex_lock(&p->lock);
	while (p->status == TFMC_OK && take_unit(p, &u)) {
		const void *packed = NULL;
		int64_t bytes = 0;
		pthread_mutex_unlock(&p->lock);
		enum tfmc_status st = pack_unit(&k, &u, &packed, &bytes);
		pthread_mutex_lock(&p->lock);
		while (p->given != u.number)
			pthread_cond_wait(&p->turn, &p->lock);
		if (p->status == TFMC_OK)
			p->status = give_unit(&k, &u, st, packed, bytes);
		p->given++;
		pthread_cond_broadcast(&p->turn);
	}
	pthread_mutex_unlock(&p->lock);
	release(&k);
	diag_destroy(&silent);
}

/* Sources look for tensors and open files here, so that workers only find them. */
static enum tfmc_status find_tensors(struct packer *p, const struct ir_wexpr *e)
{
	struct weight_bytes bytes;
	for (size_t i = 0; i < e->n_args; i++)
		TFMC_TRY(find_tensors(p, e->args[i]));
	if (e->kind != WX_TENSOR || !p->source || !p->source->read)
		return TFMC_OK;
	return p->source->read(p->source->user, p->object->cx, e->file, e->tensor, &bytes);
}

static enum tfmc_status check_weights(struct packer *p)
{
	const struct weight_list *all = &p->object->weights;
	for (size_t i = 0; i < all->n; i++) {
		const struct weight_layout *w = &all->items[i];
		bool is_plain = w->weight->encoding == ENC_PANEL16 && !ir_format_is_quantized(w->weight->format);
		if (is_plain && w->columns > COLUMNS_MAX) {
			diag_error(p->object->cx, w->weight->loc.at, DIAG_LIMIT,
			           "weight '%s' has rows of %lld elements", w->weight->name,
			           (long long)w->columns);
			return TFMC_INVALID;
		}
		if (w->weight->init)
			TFMC_TRY(find_tensors(p, w->weight->init));
	}
	return TFMC_OK;
}

enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                              const struct backend_sink *sink, uint64_t base)
{
	const struct backend_options *options = o->options;
	struct packer p = {.object = o,
	                   .source = source,
	                   .sink = sink,
	                   .base = base,
	                   .lock = PTHREAD_MUTEX_INITIALIZER,
	                   .turn = PTHREAD_COND_INITIALIZER};
	memory_stage("packing weights", NULL);
	tfmc_weights_hash_begin(&p.hash);
	p.status = check_weights(&p);
	if (options->parallel_for)
		options->parallel_for(options->parallel_user, options->workers, work, &p);
	else
		work(&p, 0, 1);
	if (p.status == TFMC_OK)
		p.status = pad_to(&p, (uint64_t)o->weights.bytes);
	pthread_cond_destroy(&p.turn);
	pthread_mutex_destroy(&p.lock);
	o->weights_hash = tfmc_weights_hash_end(&p.hash);
	return p.status;
}

bool pack_is_done(const struct object *o)
{
	const struct backend_packed *packed = o->options->packed;
	return packed && packed->structure_hash == o->structure_hash &&
	       packed->bytes == (uint64_t)o->weights.bytes;
}

enum tfmc_status pack_copy(struct object *o, const struct backend_sink *sink, uint64_t base)
{
	const struct backend_packed *packed = o->options->packed;
	const char *from = packed->data;
	o->weights_hash = packed->weights_hash;
	for (uint64_t at = 0; sink && at < packed->bytes;) {
		uint64_t left = packed->bytes - at, n = left < COPIED ? left : COPIED;
		if (!sink->write_at(sink->user, base + at, from + at, (size_t)n))
			return TFMC_IO;
		at += n;
		progress_report(o->options->progress, "copying weights", NULL, at, packed->bytes);
	}
	return TFMC_OK;
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
