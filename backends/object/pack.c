/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs weights into the layout the kernels read and streams them: bounded
 * memory whatever the model. Floats are stored as f32, or as the narrow type
 * they are kept as, everything else as i32.
 *   row      the elements in order
 *   panel16  a matrix [N, K] as [ceil(N/16)][K][16], rows beyond N zero; bf16:
 * [ceil(N/16)][ceil(K/2)][16][2], f16: [ceil(N/16)][K rounded up to even][16]
 */
#include "backends/object/object.h"

#include <stdlib.h>
#include <string.h>

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
	double *values;  /* [capacity]; integers */
	float *floats;   /* [capacity] */
	uint32_t *words; /* [capacity]; narrow elements too */
	size_t capacity;
	struct wexpr_memo memo; /* of the weight at work */
};

static void release(struct packer *p)
{
	free(p->values);
	free(p->floats);
	free(p->words);
}

static bool reserve(struct packer *p, size_t n)
{
	if (n <= p->capacity)
		return true;
	release(p);
	p->values = malloc(n * sizeof(*p->values));
	p->floats = malloc(n * sizeof(*p->floats));
	p->words = malloc(n * sizeof(*p->words));
	p->capacity = p->values && p->floats && p->words ? n : 0;
	return p->capacity == n;
}

static enum tfmc_status put(struct packer *p, const void *bytes, size_t n)
{
	tfmc_weights_hash_add(&p->hash, bytes, n);
	if (p->sink && n && !p->sink->write_at(p->sink->user, p->base + p->at, bytes, n))
		return TFMC_IO;
	p->at += n;
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

/* Elements [begin, begin + n), rounded to the weight's type. */
static enum tfmc_status eval_floats(struct packer *p, const struct ir_weight *w, int64_t begin, int64_t n)
{
	struct diag_context *cx = p->object->cx;
	if (w->type->dtype == DT_F32)
		return wexpr_eval_part_f32(cx, &p->memo, w->init, p->source, begin, n, p->floats);
	TFMC_TRY(wexpr_eval_part(cx, &p->memo, w->init, p->source, begin, n, p->values));
	for (int64_t i = 0; i < n; i++)
		p->floats[i] = (float)ir_round(w->type->dtype, p->values[i]);
	return TFMC_OK;
}

static enum tfmc_status eval_ints(struct packer *p, const struct ir_weight *w, int64_t begin, int64_t n)
{
	TFMC_TRY(wexpr_eval_part(p->object->cx, &p->memo, w->init, p->source, begin, n, p->values));
	for (int64_t i = 0; i < n; i++)
		p->words[i] = (uint32_t)(int32_t)ir_round(DT_I32, p->values[i]);
	return TFMC_OK;
}

/* A number of the narrow type as its bits. */
static uint16_t narrow_bits(enum ir_dtype t, float v)
{
	uint32_t bits;
	if (t == DT_F16)
		return f64_to_half((double)v);
	memcpy(&bits, &v, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

/* n numbers as they lie in memory, in p->words. */
static void narrow_row(struct packer *p, enum ir_dtype t, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t bits = narrow_bits(t, p->floats[i]);
		memcpy((char *)p->words + i * 2, &bits, sizeof(bits));
	}
}

static enum tfmc_status pack_rows(struct packer *p, const struct weight_place *w)
{
	bool is_float = ir_dtype_class(w->weight->type->dtype) == DTCLASS_FLOAT;
	if (!reserve(p, BLOCK))
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < w->columns; i += BLOCK) {
		int64_t n = w->columns - i < BLOCK ? w->columns - i : BLOCK;
		TFMC_TRY(is_float ? eval_floats(p, w->weight, i, n) : eval_ints(p, w->weight, i, n));
		bool is_narrow = w->weight->narrow != DT_F32;
		if (is_narrow)
			narrow_row(p, w->weight->narrow, n);
		TFMC_TRY(put(p, is_float && !is_narrow ? (const void *)p->floats : p->words,
		             (size_t)(n * weight_element_bytes(w->weight))));
	}
	return TFMC_OK;
}

/* n rows of `columns` numbers as one panel. Squares of 16 x 16, so that rows that lie a power of two apart do
 * not push each other out of the cache. */
static void turn_panel(uint32_t *to, const float *from, int64_t n, int64_t columns)
{
	if (n < PANEL)
		memset(to, 0, (size_t)columns * PANEL * sizeof(*to));
	for (int64_t k0 = 0; k0 < columns; k0 += PANEL) {
		int64_t some = columns - k0 < PANEL ? columns - k0 : PANEL;
		for (int64_t r = 0; r < n; r++) {
			const float *row = from + r * columns + k0;
			uint32_t *line = to + k0 * PANEL + r;
			for (int64_t k = 0; k < some; k++)
				memcpy(&line[k * PANEL], &row[k], sizeof(*line));
		}
	}
}

/* The same for a narrow type, in pairs of K: bf16 side by side, f16 below each other. */
static void turn_narrow(enum ir_dtype t, uint32_t *to, const float *from, int64_t n, int64_t columns)
{
	int64_t lines = tile_lines(t, columns);
	int64_t across = t == DT_BF16 ? 2 : 1, down = t == DT_BF16 ? 1 : PANEL;
	memset(to, 0, (size_t)lines * TILE_LINE);
	for (int64_t k0 = 0; k0 < columns; k0 += PANEL) {
		int64_t end = columns - k0 < PANEL ? columns : k0 + PANEL;
		for (int64_t r = 0; r < n; r++)
			for (int64_t k = k0; k < end; k++) {
				uint16_t bits = narrow_bits(t, from[r * columns + k]);
				int64_t at = k / 2 * 2 * PANEL + r * across + k % 2 * down;
				memcpy((char *)to + at * 2, &bits, sizeof(bits));
			}
	}
}

/* Rows [row, row + n) of the matrix that begins at element `begin`, as panels. */
static enum tfmc_status pack_some(struct packer *p, const struct weight_place *w, int64_t begin, int64_t row,
                                  int64_t n)
{
	int64_t columns = w->columns, panels = (n + PANEL - 1) / PANEL;
	enum ir_dtype t = w->weight->narrow;
	int64_t words = tile_lines(t, columns) * PANEL; /* of a panel */
	TFMC_TRY(eval_floats(p, w->weight, begin + row * columns, n * columns));
	for (int64_t i = 0; i < panels; i++) {
		int64_t rows = n - i * PANEL < PANEL ? n - i * PANEL : PANEL;
		const float *from = p->floats + i * PANEL * columns;
		if (t == DT_F32)
			turn_panel(p->words + i * words, from, rows, columns);
		else
			turn_narrow(t, p->words + i * words, from, rows, columns);
	}
	return put(p, p->words, (size_t)(panels * words) * sizeof(*p->words));
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

static enum tfmc_status pack_encoded(struct packer *p, const struct weight_place *w)
{
	switch (w->weight->encoding) {
	case ENC_ROW: return pack_rows(p, w);
	case ENC_PANEL16: return pack_panels(p, w);
	}
	return TFMC_INTERNAL;
}

static enum tfmc_status pack_weight(struct packer *p, const struct weight_place *w)
{
	wexpr_memo_init(&p->memo);
	enum tfmc_status status = pack_encoded(p, w);
	wexpr_memo_destroy(&p->memo);
	return status;
}

static enum tfmc_status pack_all(struct packer *p)
{
	const struct object *o = p->object;
	for (size_t i = 0; i < o->weights.n; i++) {
		TFMC_TRY(pad_to(p, (uint64_t)o->weights.items[i].offset));
		TFMC_TRY(pack_weight(p, &o->weights.items[i]));
	}
	return pad_to(p, (uint64_t)o->weights_bytes);
}

enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                              const struct backend_sink *sink, uint64_t base)
{
	struct packer p = {.object = o, .source = source, .sink = sink, .base = base};
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
	                                     .bytes = (uint64_t)o->weights_bytes};
	size_t n = sizeof(header);
	if (!sink->write_at(sink->user, 0, &header, n))
		return TFMC_IO;
	return sink->write_at(sink->user, n, zeros, sizeof(zeros) - n) ? TFMC_OK : TFMC_IO;
}
