/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both products of a row tile by matrix tiles (AMX): 32 or 16 rows times two panels. Queries and
 * probabilities are rows of bf16; keys and values are packed as words of bf16 pairs (pack.c). Rows beyond the
 * task are whatever scratch contains, and their sums are never read; keys beyond the block have probability
 * 0.
 */
#include "backends/kernels/attention_internal.h"

#define PANELS     2                   /* panels of a tile step */
#define K_PER_TILE (2 * PANEL_COLUMNS) /* elements of a row in a matrix tile: 64 bytes of bf16 */
#define ACC_STRIDE (PANELS * KB_TILE_BYTES)

void attention_amx_begin(struct attention *a)
{
	if (!a->amx)
		return;
	a->scratch.amx_acc = kb_local(a->k, "sums", KB_I32, AMX_TILE_ROWS * ACC_STRIDE / 4);
	kb_tile_config_gemm(a->k, kb_local(a->k, "config", KB_I32, KB_TILE_CONFIG / 4), KB_TILE_BYTES);
}

void attention_amx_end(const struct attention *a)
{
	if (a->scratch.amx_acc.id)
		kb_tile_release(a->k);
}

/* Shape for rows of bf16 in a table whose f32 rows have `length` elements. */
static struct matrix_tiles tile_shape(const struct attention *a, int rows, int columns, int64_t length)
{
	return (struct matrix_tiles){.k = a->k,
	                             .dot = KB_DOT_BF16,
	                             .rows = rows / KB_TILE_ROWS,
	                             .columns = columns,
	                             .x_row_stride = length * 4,
	                             .x_tile_stride = KB_TILE_ROWS * length * 4};
}

/* Multiplies `steps` tiles of the rows at x by k-rows at w; stores the sums in amx_acc. */
static void multiply_tiles(const struct matrix_tiles *t, const struct attention *a, struct kb_val x,
                           struct kb_val w, struct kb_val steps)
{
	struct kb *k = a->k;
	matrix_tiles_zero(t);
	struct kb_val i = kb_loop(k, "step", kb_index(k, 0), steps, 1, KB_NONEMPTY);
	x = kb_ptr_add(k, x, kb_mul_const(k, i, KB_TILE_BYTES), 0);
	w = kb_ptr_add(k, w, kb_mul_const(k, i, KB_TILE_ROWS * t->w_row_stride), 0);
	matrix_tiles_mac_k(t, x, w);
	kb_end_loop(k);
	matrix_tiles_store(t, a->scratch.amx_acc, ACC_STRIDE);
}

/* Vector v of row i of amx_acc. */
static struct kb_val load_acc(const struct attention *a, struct kb_val i, int v)
{
	struct kb *k = a->k;
	struct kb_val at = kb_mul_const(k, i, ACC_STRIDE / 4);
	return kb_load(k, attention_vector(a), a->scratch.amx_acc, at, v * a->lanes, a->lanes * 4);
}

/* Scores for the keys of `columns` panels from `panel` on. */
static void score_panels(const struct attention *a, const struct attention_block *b,
                         const struct attention_tile *t, struct kb_val panel, int rows, int columns)
{
	struct kb *k = a->k;
	int64_t bytes = attention_key_k_rows(a) * KB_TILE_BYTES;
	struct matrix_tiles p = tile_shape(a, rows, columns, a->size_pad);
	p.w_row_stride = KB_TILE_BYTES;
	p.w_tile_stride = bytes;
	struct kb_val queries = attention_scratch_row(k, a->scratch.queries, t->row, a->size_pad);
	struct kb_val keys = kb_ptr_add(k, b->keys, kb_mul_const(k, panel, bytes), 0);
	multiply_tiles(&p, a, queries, keys, kb_index(k, a->size / K_PER_TILE));
	struct kb_val to = kb_mul_const(k, panel, PANEL_COLUMNS),
	              scale = kb_splat(k, kb_f32(k, a->score.q_factor), a->lanes);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	struct kb_val row = attention_scratch_row(k, a->scratch.scores, i, a->scratch.stride);
	for (int v = 0; v < columns; v++)
		kb_store(k, kb_mul(k, load_acc(a, i, v), scale), row, to, v * a->lanes, a->lanes * 4);
	kb_end_loop(k);
}

void attention_amx_scores(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, int rows)
{
	struct kb *k = a->k;
	struct kb_val panels = kb_div_const(k, attention_round_up(k, t->last, PANEL_COLUMNS), PANEL_COLUMNS);
	struct kb_val full = attention_round_down(k, panels, PANELS);
	struct kb_val panel = kb_loop(k, "panel", kb_index(k, 0), full, PANELS, 0);
	score_panels(a, b, t, panel, rows, PANELS);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, full, panels));
	score_panels(a, b, t, full, rows, 1);
	kb_end_if(k);
}

/* Columns e .. of acc = acc old_factor + (probabilities v) new_factor. */
static void value_columns(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, struct kb_val e, int rows, int columns)
{
	struct kb *k = a->k;
	struct kb_type type = attention_vector(a);
	struct matrix_tiles p = tile_shape(a, rows, columns, a->scratch.stride);
	p.w_row_stride = a->value_pad * 4;
	p.w_tile_stride = KB_TILE_BYTES;
	struct kb_val steps = attention_round_up(k, t->last, K_PER_TILE);
	steps = kb_div_const(k, steps, K_PER_TILE);
	struct kb_val values = kb_ptr_add(k, b->values, kb_mul_const(k, e, 4), 0);
	multiply_tiles(&p, a, a->scratch.scores, values, steps);
	struct kb_val acc = attention_scratch_row(k, b->partial.acc, t->row, a->value_pad);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), t->rows, 1, KB_NONEMPTY);
	struct kb_val old_factor = kb_load_splat(k, type, a->scratch.old_factor, i, 0),
	              new_factor = kb_load_splat(k, type, a->scratch.new_factor, i, 0),
	              row = attention_scratch_row(k, acc, i, a->value_pad);
	for (int v = 0; v < columns; v++) {
		struct kb_val sum = kb_mul(k, load_acc(a, i, v), new_factor);
		struct kb_val before = kb_load(k, type, row, e, v * a->lanes, a->lanes * 4);
		kb_store(k, kb_fma(k, before, old_factor, sum), row, e, v * a->lanes, a->lanes * 4);
	}
	kb_end_loop(k);
}

void attention_amx_values(const struct attention *a, const struct attention_block *b,
                          const struct attention_tile *t, int rows)
{
	struct kb *k = a->k;
	int64_t step = PANELS * PANEL_COLUMNS, full = a->value_pad - a->value_pad % step;
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, full), step, 0);
	value_columns(a, b, t, e, rows, PANELS);
	kb_end_loop(k);
	if (full < a->value_pad)
		value_columns(a, b, t, kb_index(k, full), rows, 1);
}
