/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear by work-groups: 8 x 8 items share a tile of rows and 64 columns of the result. Finished tiles
 * go through shared memory once more, so that what follows the product is emitted once and stores whole rows; where
 * columns go different ways (q, k and v), a strip of whole heads does, some tiles wide. Where a norm follows, a group
 * has all columns of its rows: what the norm reads lies in the result until they are complete. Items whose row or column
 * does not exist store nothing: all come to all barriers.
 */
#include "backends/linear/gpu/internal.h"

int64_t kernel_linear_shared_rows(int64_t rows)
{
	int64_t n = SIDE;
	while (n < SIDE * MR_MAX && n < rows)
		n *= 2;
	return n;
}

struct kb_val gpu_panel(const struct shared_matmul *g, int i)
{
	const struct matmul_columns *c = &g->l.columns;
	struct kb *k = g->l.k;
	int64_t half = c->halves > 1 ? i / g->strip : 0;
	struct kb_val at = kb_add_const(k, kb_add(k, g->first_panel, g->before), i - half * g->strip);
	return kb_add_const(k, kb_min(k, at, kb_index(k, c->panels - 1)), half * c->panels);
}

static int64_t shared_elements(const struct shared_matmul *g)
{
	int64_t end = g->operands + gpu_operands(g), products = g->mr * SIDE * g->width;
	return end > products ? end : products;
}

static void emit_product(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			kb_set(k, g->sum[m][h], kb_splat(k, kb_f32(k, 0), LANES));
	if (!g->has_codes) {
		gpu_floats(g);
		return;
	}
	kb_if(k, kb_device_dot(k));
	gpu_codes(g);
	kb_else(k);
	gpu_floats(g);
	kb_end_if(k);
}

/* ---- what follows ---- */

static void share_sums(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	column = kb_add(k, column, kb_mul_const(k, g->before, MATMUL_PANEL));
	struct kb_val at = kb_add(k, kb_mul_const(k, g->row, g->width), column);
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			kb_store(k, kb_get(k, g->sum[m][h]), g->tile, at,
			         m * SIDE * g->width + (int64_t)h * SIDE * LANES, LANES * 4);
}

static void emit_strip(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_one = g->width == GPU_COLUMNS;
	g->before = kb_index(k, 0);
	if (g->l.norm.before)
		rowwise_tile_begin(&g->norm);
	if (!is_one)
		g->before = kb_loop(k, "panel", g->before, kb_index(k, g->strip), tile, KB_NONEMPTY);
	emit_product(g);
	share_sums(g);
	if (!is_one)
		kb_end_loop(k);
	kb_barrier(k);
	struct matmul_strip s = {.rows = g->l.rows, .begin = g->first_panel};
	s.end = kb_min(k, kb_add_const(k, s.begin, g->strip), kb_index(k, g->l.columns.panels));
	matmul_epilogue(&g->l, &s, g->norm.first, g->norm.rows);
	kb_barrier(k); /* before the next strip overwrites the products */
}

/* ---- tiles ---- */

/* Strips of whole heads, or of as much of gate and up, with as many rows as there is room for. */
static void choose_strips(struct shared_matmul *g)
{
	struct linear *l = &g->l;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_wide = l->parts && l->columns.halves == 1;
	g->strip = is_wide ? l->columns.strip : tile / l->columns.halves;
	g->width = (l->columns.halves * g->strip + tile - 1) / tile * GPU_COLUMNS;
	g->mr = (int)(kernel_linear_shared_rows(l->rows_hi) / SIDE);
	while (g->mr > 1 && g->mr * g->width > MR_MAX * GPU_COLUMNS)
		g->mr /= 2;
	g->operands = g->width > GPU_COLUMNS ? g->mr * SIDE * g->width : 0;
}

/* All columns of the rows, then the norm of what they left in the result. */
static void emit_norm_after(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct rowwise_tile tile = g->norm;
	g->first_panel = kb_loop(k, "strip", kb_index(k, 0), kb_index(k, l->columns.panels), (int)g->strip,
	                         KB_NONEMPTY);
	emit_strip(g);
	kb_end_loop(k);
	size_t mark = eval_mark(l->eval);
	tile.norm = l->norm.after;
	eval_place(l->eval, l->out.value, &l->out.to, &(struct eval_bias){0});
	rowwise_tile_begin(&tile);
	struct kb_val i = kb_loop(k, "i", g->item, kb_mul_const(k, tile.rows, l->columns.n), GPU_ITEMS, 0);
	struct kb_val row = kb_div_const(k, i, l->columns.n), column = kb_rem_const(k, i, l->columns.n);
	struct eval_point p = matmul_point(l, kb_add(k, g->norm.first, row), column);
	p.vec = -1;
	struct kb_val value = rowwise_tile_value(&tile, row, &p, 1);
	eval_bind(l->eval, eval_result(tile.norm), &p, value);
	eval_output_at(l->eval, &l->g->out.items[0], &p);
	kb_end_loop(k);
	eval_release(l->eval, mark);
	kb_barrier(k); /* before the next tile overwrites what was found of the rows */
}

/* Tile t of a group: group, group + groups, ..; tiles that share weights are neighbours. */
static void emit_tiles(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t height = (int64_t)g->mr * SIDE;
	int64_t across = l->norm.after ? 1 : (l->columns.panels + g->strip - 1) / g->strip;
	struct kb_val down = kb_div_const(k, kb_add_const(k, l->rows, height - 1), height);
	struct kb_var next = kb_var(k, "tile", KB_INDEX_T, l->job->worker);
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			g->sum[m][h] = kb_var(k, "sum", KB_TYPE(KB_F32, LANES), (struct kb_val){0});
	for (int m = 0; g->has_codes && m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			g->dot[m][h] = kb_var(k, "dot", KB_TYPE(KB_I32, LANES), (struct kb_val){0});
	kb_forever(k);
	struct kb_val t = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, t, kb_mul_const(k, down, across)));
	g->norm.first = kb_mul_const(k, kb_bin(k, KB_REM, t, down), height);
	g->first_panel = kb_mul_const(k, kb_bin(k, KB_DIV, t, down), g->strip);
	g->norm.rows = kb_min(k, kb_sub(k, l->rows, g->norm.first), kb_index(k, height));
	if (l->norm.after)
		emit_norm_after(g);
	else
		emit_strip(g);
	kb_set(k, next, kb_add(k, t, l->job->n_workers));
	kb_end_forever(k);
}

bool kernel_linear_shared(struct kernel *kernel)
{
	struct shared_matmul g = {0};
	if (kernel->job->items != GPU_ITEMS || !matmul_begin(&g.l, kernel))
		return false;
	struct kb *k = g.l.k;
	g.l.lanes = LANES;
	choose_strips(&g);
	g.has_codes = gpu_has_codes(&g.l);
	g.item = kb_item_id(k);
	g.row = kb_div_const(k, g.item, SIDE);
	g.column = kb_rem_const(k, g.item, SIDE);
	g.tile = kb_shared(k, "tile", KB_F32, shared_elements(&g));
	g.norm = (struct rowwise_tile){.e = g.l.eval,
	                               .norm = g.l.norm.before,
	                               .most = (int64_t)g.mr * SIDE,
	                               .items = GPU_ITEMS,
	                               .item = g.item,
	                               .parts = g.tile,
	                               .means = kb_shared(k, "means", KB_F32, 2 * g.mr * SIDE)};
	g.l.stage = (struct matmul_stage){.at = g.tile, .width = g.width};
	if (g.l.columns.panels > 0 && g.l.rows_hi > 0)
		emit_tiles(&g);
	return true;
}
