/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rounded rows by matrix tiles (kb.h): 16 rows of x times 16 lines of a panel at a time, which are what a
 * tile reads. A tile always has 16 rows: those beyond the last one of x are whatever lies in scratch, and nobody reads
 * their sums. Lines that do not fill a tile are copied, with zeros behind them. Sums wait in memory of the function for
 * what follows; those of integers for their scales, too.
 */
#include "backends/linear/matmul_internal.h"

#define LINES       KB_TILE_ROWS
#define CHUNK_BYTES (LINES * TILE_LINE)

static int64_t lines_of(const struct linear *l)
{
	int per_line = l->panel.per_line;
	return (l->depth + per_line - 1) / per_line;
}

/* Zeros behind the last lines of every panel of a tile. */
static void clear_rest(const struct linear *l, int64_t lines)
{
	struct kb *k = l->k;
	struct kb_val zero = kb_splat(k, kb_i32(k, 0), l->lanes);
	for (int64_t p = 0; p < MATMUL_STRIP; p++) {
		int64_t from = p * LINES + lines, to = (p + 1) * LINES;
		struct kb_val at = kb_loop(k, "clear", kb_index(k, from * MATMUL_PANEL),
		                           kb_index(k, to * MATMUL_PANEL), l->lanes, KB_NONEMPTY);
		kb_store(k, zero, l->matrix.rest, at, 0, 0);
		kb_end_loop(k);
	}
}

void matmul_begin_matrix(struct linear *l)
{
	struct kb *k = l->k;
	if (!matmul_by_matrix(l))
		return;
	l->matrix.config = kb_local(k, "config", KB_I32, KB_TILE_CONFIG / 4);
	l->matrix.sums = kb_local(k, "sums", KB_I32, MATMUL_ACC_MAX * MATMUL_PANEL);
	int64_t rest = lines_of(l) % LINES;
	if (rest > 0) {
		l->matrix.rest = kb_local(k, "rest", KB_I32, MATMUL_STRIP * CHUNK_BYTES / 4);
		clear_rest(l, rest);
	}
	kb_tile_config_whole(k, l->matrix.config);
}

void matmul_end_matrix(const struct linear *l)
{
	if (l->matrix.config.id)
		kb_tile_release(l->k);
}

static int panels_of(const struct matmul_rounded_tile *c)
{
	return c->p->vectors * c->p->lanes / MATMUL_PANEL;
}

static void ask_ahead(const struct matmul_rounded_tile *c, struct kb_val chunk)
{
	struct kb *k = c->l->k;
	int64_t per_line = c->l->panel.per_line;
	struct kb_val first = kb_mul(k, chunk, kb_index(k, LINES * per_line));
	for (int64_t i = 0; c->ahead->from.id && i < LINES; i++)
		matmul_step_ahead(c->l, c->ahead, kb_add_const(k, first, i * per_line));
}

/* The rows at byte 64 chunk. */
static struct kb_val rows_at(const struct matmul_rounded_tile *c, struct kb_val chunk)
{
	struct kb *k = c->l->k;
	return kb_ptr_add(k, c->p->x[0], kb_mul(k, chunk, kb_index(k, KB_TILE_BYTES)), 0);
}

/* The lines behind the whole chunks. */
static void add_rest(const struct matmul_rounded_tile *c, struct product_tiles t, int64_t chunk,
                     int64_t lines)
{
	struct kb *k = c->l->k;
	struct kb_type type = KB_TYPE(KB_I32, c->p->lanes);
	struct kb_val line = kb_loop(k, "line", kb_index(k, 0), kb_index(k, lines), 1, KB_NONEMPTY);
	struct kb_val at = kb_mul(k, line, kb_index(k, MATMUL_PANEL));
	for (int v = 0; v < c->p->vectors; v++) {
		int per_panel = MATMUL_PANEL / c->p->lanes;
		int64_t panel = v / per_panel, column = v % per_panel * c->p->lanes;
		int64_t lines_at = panel * c->l->panel.bytes + c->l->panel.head + chunk * CHUNK_BYTES;
		int64_t from = lines_at / 4 + column, to = panel * (CHUNK_BYTES / 4) + column;
		kb_store(k, kb_load(k, type, c->w, at, from, 0), c->l->matrix.rest, at, to, 0);
	}
	kb_end_loop(k);
	t.w_apart = CHUNK_BYTES;
	product_tiles_step(&t, rows_at(c, kb_index(k, chunk)), c->l->matrix.rest);
}

void matmul_matrix_depth(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int64_t lines = lines_of(c->l), whole = lines / LINES, row = c->l->rounded.row.bytes;
	const struct product_tiles t = {.k = k,
	                                .dot = c->l->rounded.to.bf16 ? KB_DOT_BF16 : KB_DOT_U8S8,
	                                .rows = (c->p->rows + KB_TILE_ROWS - 1) / KB_TILE_ROWS,
	                                .columns = panels_of(c),
	                                .x_step = row,
	                                .x_apart = KB_TILE_ROWS * row,
	                                .w_step = TILE_LINE,
	                                .w_apart = c->l->panel.bytes};
	product_tiles_begin(&t);
	if (whole > 0) {
		struct kb_val chunk = kb_loop(k, "chunk", kb_index(k, 0), kb_index(k, whole), 1, KB_NONEMPTY);
		ask_ahead(c, chunk);
		struct kb_val lines_at = kb_mul(k, chunk, kb_index(k, CHUNK_BYTES));
		struct kb_val w = kb_ptr_add(k, c->w, lines_at, c->l->panel.head);
		product_tiles_step(&t, rows_at(c, chunk), w);
		kb_end_loop(k);
	}
	if (lines % LINES > 0)
		add_rest(c, t, whole, lines % LINES);
	product_tiles_store(&t, c->l->matrix.sums, (int64_t)panels_of(c) * TILE_LINE);
}

struct kb_val matmul_matrix_sum(const struct matmul_rounded_tile *c, int m, int v)
{
	enum kb_scalar s = c->l->rounded.to.bf16 ? KB_F32 : KB_I32;
	struct kb_val at = kb_index(c->l->k, (int64_t)(m * c->p->vectors + v) * c->p->lanes);
	struct kb_val sum = kb_load(c->l->k, KB_TYPE(s, c->p->lanes), c->l->matrix.sums, at, 0, 0);
	return c->l->rounded.to.bf16 ? sum : matmul_rounded_alone(c, m, v, sum);
}
