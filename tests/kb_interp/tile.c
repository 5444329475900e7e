/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMX tiles in the kernel interpreter, with an error wherever the processor would fault.
 */
#include "tests/kb_interp/interp_internal.h"

#include <string.h>

bool kb_frame_tile_release(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	(void)inst;
	(void)out;
	memset(fr->in->tiles, 0, sizeof(fr->in->tiles));
	return true;
}

bool kb_frame_tile_config(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	const unsigned char *config = fr->values[inst->args[0].id]->p;
	if (!kb_frame_allowed(fr, config, KB_TILE_CONFIG, false) || !kb_frame_tile_release(fr, inst, out))
		return false;
	bool fits = config[0] == 1 && config[1] == 0;
	for (int i = 0; i < KB_TILES; i++) {
		struct kb_interp_tile *t = &fr->in->tiles[i];
		t->rows = config[48 + i];
		t->bytes = config[16 + 2 * i];
		fits = fits && config[17 + 2 * i] == 0 && t->rows <= KB_TILE_ROWS &&
		       t->bytes <= KB_TILE_BYTES && (t->rows == 0) == (t->bytes == 0);
	}
	return fits || kb_frame_fail(fr, "no shapes of tiles");
}

static struct kb_interp_tile *tile_at(struct kb_frame *fr, int64_t number)
{
	struct kb_interp_tile *t = &fr->in->tiles[number];
	return t->rows > 0 || kb_frame_fail(fr, "a tile without a shape") ? t : NULL;
}

bool kb_frame_tile_zero(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	struct kb_interp_tile *t = tile_at(fr, inst->imm);
	(void)out;
	if (t)
		memset(t->data, 0, sizeof(t->data));
	return t != NULL;
}

bool kb_frame_tile_memory(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	struct kb_interp_tile *t = tile_at(fr, inst->imm);
	bool is_store = inst->op == KBO_TILE_STORE;
	uintptr_t base = (uintptr_t)fr->values[inst->args[0].id]->p;
	uintptr_t stride = (uintptr_t)fr->values[inst->args[1].id]->i;
	if (!t || (!is_store && !kb_frame_tile_zero(fr, inst, out)))
		return false;
	for (int row = 0; row < t->rows; row++) {
		void *p = (void *)(base + (uintptr_t)row * stride);
		if (!kb_frame_allowed(fr, p, (size_t)t->bytes, is_store))
			return false;
		memcpy(is_store ? p : t->data[row], is_store ? t->data[row] : p, (size_t)t->bytes);
	}
	return true;
}

/* ---- dot products of tiles ---- */

struct product {
	struct kb_interp_tile *sum;
	const struct kb_interp_tile *a, *b;
};

static union kb_cell word(const struct kb_interp_tile *t, int row, int at)
{
	return kb_cell_read(KB_I32, &t->data[row][4 * at]);
}

static void dot_bytes(const struct product *p, enum kb_dot dot, int m, int n)
{
	union kb_cell sum = word(p->sum, m, n);
	for (int k = 0; k < p->a->rows; k++)
		sum = kb_cell_dot(dot, sum, word(p->a, k, n), word(p->b, m, k));
	kb_cell_write(KB_I32, sum, &p->sum->data[m][4 * n]);
}

static void dot_bf16(const struct product *p, int m, int n)
{
	float pair[2] = {0, 0};
	unsigned char *at = &p->sum->data[m][4 * n];
	for (int k = 0; k < p->a->rows; k++)
		for (int i = 0; i < 2; i++)
			pair[i] = kb_cell_flushing_fma(kb_cell_bf16_of(word(p->a, k, n), i),
			                               kb_cell_bf16_of(word(p->b, m, k), i), pair[i]);
	float both = kb_cell_flushing_fma(pair[0], 1, pair[1]);
	float sum = kb_cell_flushing_fma(both, 1, (float)kb_cell_read(KB_F32, at).f);
	kb_cell_write(KB_F32, (union kb_cell){.f = (double)sum}, at);
}

bool kb_frame_tile_dot(struct kb_frame *fr, const struct kb_inst *inst, union kb_cell *out)
{
	struct product p = {tile_at(fr, inst->imm & 7), tile_at(fr, inst->imm >> 3 & 7),
	                    tile_at(fr, inst->imm >> 6 & 7)};
	(void)out;
	if (!p.sum || !p.a || !p.b)
		return false;
	if (p.sum->rows != p.b->rows || p.sum->bytes != p.a->bytes || p.b->bytes != 4 * p.a->rows)
		return kb_frame_fail(fr, "tiles of shapes that do not fit");
	for (int m = 0; m < p.sum->rows; m++)
		for (int n = 0; n < p.sum->bytes / 4; n++)
			if (inst->dot == KB_DOT_BF16)
				dot_bf16(&p, m, n);
			else
				dot_bytes(&p, inst->dot, m, n);
	return true;
}
