/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs weights into the layout the kernels read and streams them: bounded
 * memory whatever the model. Floats are stored as f32, everything else as i32.
 *   row      the elements in order
 *   panel16  a matrix [N, K] as [ceil(N/16)][K][16], rows beyond N zero
 */
#include "backends/object/object.h"

#include <stdlib.h>
#include <string.h>

#define PANEL       16
#define BLOCK       65536 /* elements evaluated at once */
#define COLUMNS_MAX (1 << 22)

struct packer {
	struct object *object;
	const struct weight_source *source;
	const struct backend_sink *sink;
	uint64_t base; /* position of the packed weights in the sink */
	uint64_t at;   /* bytes packed so far */
	struct tfmc_weights_hash hash;
	double *values;  /* [capacity] */
	uint32_t *words; /* [capacity] */
	size_t capacity;
	struct wexpr_memo memo; /* of the weight at work */
};

static bool reserve(struct packer *p, size_t n)
{
	if (n <= p->capacity)
		return true;
	free(p->values);
	free(p->words);
	p->values = malloc(n * sizeof(*p->values));
	p->words = malloc(n * sizeof(*p->words));
	p->capacity = p->values && p->words ? n : 0;
	return p->capacity == n;
}

static uint32_t float_word(double v)
{
	float f = (float)v;
	uint32_t bits;
	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static uint32_t int_word(double v)
{
	return (uint32_t)(int32_t)v;
}

/* Rounds values[0..n) to the weight's type. */
static void round_values(struct packer *p, enum ir_dtype dtype, int64_t n)
{
	if (dtype == DT_F32)
		return; /* the conversion to a word rounds */
	enum ir_dtype stored = ir_dtype_class(dtype) == DTCLASS_FLOAT ? dtype : DT_I32;
	for (int64_t i = 0; i < n; i++)
		p->values[i] = ir_round(stored, p->values[i]);
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

static enum tfmc_status eval(struct packer *p, const struct ir_weight *w, int64_t begin, int64_t n)
{
	TFMC_TRY(wexpr_eval_part(p->object->cx, &p->memo, w->init, p->source, begin, n, p->values));
	round_values(p, w->type->dtype, n);
	return TFMC_OK;
}

static enum tfmc_status pack_rows(struct packer *p, const struct weight_place *w)
{
	bool is_float = ir_dtype_class(w->weight->type->dtype) == DTCLASS_FLOAT;
	if (!reserve(p, BLOCK))
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < w->columns; i += BLOCK) {
		int64_t n = w->columns - i < BLOCK ? w->columns - i : BLOCK;
		TFMC_TRY(eval(p, w->weight, i, n));
		for (int64_t k = 0; k < n; k++)
			p->words[k] = is_float ? float_word(p->values[k]) : int_word(p->values[k]);
		TFMC_TRY(put(p, p->words, (size_t)n * 4));
	}
	return TFMC_OK;
}

/* Rows [row, row + n) of the matrix that begins at element `begin`. */
static enum tfmc_status pack_panel(struct packer *p, const struct weight_place *w, int64_t begin, int64_t row)
{
	int64_t columns = w->columns;
	int64_t n = w->rows - row < PANEL ? w->rows - row : PANEL;
	TFMC_TRY(eval(p, w->weight, begin + row * columns, n * columns));
	for (int64_t k = 0; k < columns; k++)
		for (int64_t r = 0; r < PANEL; r++)
			p->words[k * PANEL + r] = r < n ? float_word(p->values[r * columns + k]) : 0;
	return put(p, p->words, (size_t)columns * PANEL * 4);
}

static enum tfmc_status pack_panels(struct packer *p, const struct weight_place *w)
{
	if (w->columns > COLUMNS_MAX) {
		diag_error(p->object->cx, w->weight->loc.at, DIAG_LIMIT,
		           "weight '%s' has rows of %lld elements", w->weight->name, (long long)w->columns);
		return TFMC_INVALID;
	}
	if (!reserve(p, (size_t)w->columns * PANEL))
		return TFMC_NO_MEMORY;
	for (int64_t m = 0; m < w->matrices; m++)
		for (int64_t row = 0; row < w->rows; row += PANEL)
			TFMC_TRY(pack_panel(p, w, m * w->rows * w->columns, row));
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
	free(p.values);
	free(p.words);
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
