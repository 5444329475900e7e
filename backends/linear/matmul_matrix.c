/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rounded rows by matrix tiles (kb.h): 16 rows of x times 16 lines of a panel at a time, which are what a
 * tile reads. A tile always has 16 rows: those beyond the last one of x are whatever lies in scratch, and nobody reads
 * their sums. Lines that do not fill a tile are copied, with zeros behind them. Sums wait in memory of the function for
 * what follows; those of integers for their scales, too.
 */
#include "backends/linear/matmul_internal.h"

enum { SUMS = 0, ROWS = 4, WEIGHTS = 6, HALF_TILES = 2 }; /* numbers of tiles */
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

static int halves_of(const struct matmul_rounded_tile *c)
{
	return (c->p->rows + KB_TILE_ROWS - 1) / KB_TILE_ROWS;
}

/* Bytes [64 chunk, 64 chunk + 64) of the rows times the 16 lines of every panel at w, whose panels are so far apart. */
static void add_chunk(const struct matmul_rounded_tile *c, struct kb_val chunk, struct kb_val w,
                      int64_t apart)
{
	struct kb *k = c->l->k;
	int64_t row = c->l->rounded.row.bytes;
	enum kb_dot dot = c->l->rounded.to.bf16 ? KB_DOT_BF16 : KB_DOT_U8S8;
	struct kb_val at = kb_mul(k, chunk, kb_index(k, KB_TILE_BYTES));
	for (int half = 0; half < halves_of(c); half++)
		kb_tile_load(k, ROWS + half, kb_ptr_add(k, c->p->x[0], at, half * KB_TILE_ROWS * row),
		             kb_index(k, row));
	for (int p = 0; p < panels_of(c); p++) {
		int weights = WEIGHTS + p % HALF_TILES;
		kb_tile_load(k, weights, kb_ptr_add(k, w, kb_index(k, 0), p * apart), kb_index(k, TILE_LINE));
		for (int half = 0; half < halves_of(c); half++)
			kb_tile_dot(k, dot, SUMS + half * panels_of(c) + p, weights, ROWS + half);
	}
}

static void ask_ahead(const struct matmul_rounded_tile *c, struct kb_val chunk)
{
	struct kb *k = c->l->k;
	int64_t per_line = c->l->panel.per_line;
	struct kb_val first = kb_mul(k, chunk, kb_index(k, LINES * per_line));
	for (int64_t i = 0; c->ahead->from.id && i < LINES; i++)
		matmul_step_ahead(c->l, c->ahead, kb_add_const(k, first, i * per_line));
}

/* The lines behind the whole chunks. */
static void add_rest(const struct matmul_rounded_tile *c, int64_t chunk, int64_t lines)
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
	add_chunk(c, kb_index(k, chunk), c->l->matrix.rest, CHUNK_BYTES);
}

void matmul_matrix_depth(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int64_t lines = lines_of(c->l), whole = lines / LINES, width = (int64_t)panels_of(c) * TILE_LINE;
	for (int i = 0; i < halves_of(c) * panels_of(c); i++)
		kb_tile_zero(k, SUMS + i);
	if (whole > 0) {
		struct kb_val chunk = kb_loop(k, "chunk", kb_index(k, 0), kb_index(k, whole), 1, KB_NONEMPTY);
		ask_ahead(c, chunk);
		add_chunk(c, chunk,
		          kb_ptr_add(k, c->w, kb_mul(k, chunk, kb_index(k, CHUNK_BYTES)), c->l->panel.head),
		          c->l->panel.bytes);
		kb_end_loop(k);
	}
	if (lines % LINES > 0)
		add_rest(c, whole, lines % LINES);
	for (int half = 0; half < halves_of(c); half++)
		for (int p = 0; p < panels_of(c); p++) {
			int64_t at = half * KB_TILE_ROWS * width + (int64_t)p * TILE_LINE;
			kb_tile_store(k, SUMS + half * panels_of(c) + p,
			              kb_ptr_add(k, c->l->matrix.sums, kb_index(k, 0), at),
			              kb_index(k, width));
		}
}

struct kb_val matmul_matrix_sum(const struct matmul_rounded_tile *c, int m, int v)
{
	enum kb_scalar s = c->l->rounded.to.bf16 ? KB_F32 : KB_I32;
	struct kb_val at = kb_index(c->l->k, (int64_t)(m * c->p->vectors + v) * c->p->lanes);
	struct kb_val sum = kb_load(c->l->k, KB_TYPE(s, c->p->lanes), c->l->matrix.sums, at, 0, 0);
	return c->l->rounded.to.bf16 ? sum : matmul_rounded_alone(c, m, v, sum);
}
