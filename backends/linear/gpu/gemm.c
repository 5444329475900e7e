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

static int64_t shared_elements(const struct shared_matmul *g)
{
	int64_t end = g->operands + (g->is_few ? gpu_few_operands(g) : gpu_operands(g));
	int64_t products = g->rows * g->width;
	return end > products ? end : products;
}

/* ---- products ---- */

static void multiply(struct shared_matmul *g, bool by_codes)
{
	if (g->is_few && by_codes)
		gpu_few_codes(g);
	else if (g->is_few)
		gpu_few_floats(g);
	else if (by_codes)
		gpu_codes(g);
	else
		gpu_floats(g);
}

static void share_sums(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	column = kb_add(k, column, kb_mul_const(k, g->before, MATMUL_PANEL));
	struct kb_val at = kb_add(k, kb_mul_const(k, g->row, g->width), column);
	for (int i = 0; i < g->n_sums; i++)
		kb_store(k, kb_get(k, g->sum[i]), g->tile, at,
		         i / HALVES * SIDE * g->width + (int64_t)(i % HALVES) * SIDE * LANES, LANES * 4);
}

/* Products of a tile, to their place in the stage. */
static void emit_product(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	for (int i = 0; i < g->n_sums; i++)
		kb_set(k, g->sum[i], kb_splat(k, kb_f32(k, 0), LANES));
	if (g->has_codes) {
		kb_if(k, kb_device_dot(k));
		multiply(g, true);
		kb_else(k);
	}
	multiply(g, false);
	if (g->has_codes)
		kb_end_if(k);
	if (g->is_few)
		gpu_few_join(g);
	else
		share_sums(g);
}

/* ---- strips ---- */

static void emit_strip(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	bool is_one = g->width == g->panels * MATMUL_PANEL;
	g->before = kb_index(k, 0);
	if (!is_one)
		g->before =
		        kb_loop(k, "panel", g->before, kb_index(k, g->strip), (int)g->panels, KB_NONEMPTY);
	emit_product(g);
	if (!is_one && g->is_few)
		kb_barrier(k); /* before the next tile overwrites what the sums meet in */
	if (!is_one)
		kb_end_loop(k);
	kb_barrier(k);
	struct matmul_strip s = {.rows = g->l.rows, .begin = g->first_panel};
	s.end = kb_min(k, kb_add_const(k, s.begin, g->strip), kb_index(k, g->l.columns.panels));
	matmul_epilogue(&g->l, &s, g->norm.first, g->norm.rows);
	kb_barrier(k); /* before the next strip overwrites the products */
}

/* ---- tiles ---- */

/* Strips of whole heads, or of as much of gate and up, with as many rows as there is room for; those of few rows as
 * narrow as what follows allows. */
static void choose_strips(struct shared_matmul *g, int64_t rows)
{
	const struct linear *l = &g->l;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_wide = l->parts && l->columns.halves == 1;
	g->is_few = rows <= FEW_ROWS;
	g->rows = rows;
	g->strip = is_wide ? l->columns.strip : tile / l->columns.halves;
	if (g->is_few && !l->strips)
		g->strip = is_wide ? l->columns.unit : 1;
	g->panels = g->is_few && g->strip * l->columns.halves < tile ? g->strip * l->columns.halves : tile;
	g->width = (l->columns.halves * g->strip + g->panels - 1) / g->panels * g->panels * MATMUL_PANEL;
	while (!g->is_few && g->rows > SIDE && g->rows * g->width > SIDE * MR_MAX * GPU_COLUMNS)
		g->rows /= 2;
	g->mr = (int)(g->rows / SIDE);
	g->n_sums = (int)(g->is_few ? g->rows * g->panels : g->mr * HALVES);
	g->operands = g->is_few || g->width > GPU_COLUMNS ? g->rows * g->width : 0;
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
	eval_set_tensor(l->eval, l->out.value, &l->out.to, &(struct eval_bias){0});
	rowwise_tile_begin(&tile);
	struct kb_val i = kb_loop(k, "i", g->item, kb_mul_const(k, tile.rows, l->columns.n), GPU_ITEMS, 0);
	struct kb_val row = kb_div_const(k, i, l->columns.n), column = kb_rem_const(k, i, l->columns.n);
	struct eval_point p = matmul_point(l, kb_add(k, g->norm.first, row), column);
	p.vec = -1;
	struct kb_val value = rowwise_tile_value(&tile, row, &p, 1);
	eval_bind(l->eval, eval_result(tile.norm), &p, value);
	eval_store_output(l->eval, &l->g->out.items[0], &p);
	kb_end_loop(k);
	eval_release(l->eval, mark);
	kb_barrier(k); /* before the next tile overwrites what was found of the rows */
}

/* Tile t of a group: group, group + groups, ..; tiles that share weights are neighbours. */
static void emit_tiles(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t across = l->norm.after ? 1 : (l->columns.panels + g->strip - 1) / g->strip;
	struct kb_val down = kb_div_const(k, kb_add_const(k, l->rows, g->rows - 1), g->rows);
	struct kb_var next = kb_var(k, "tile", KB_INDEX_T, l->job->worker);
	for (int i = 0; i < g->n_sums; i++)
		g->sum[i] = kb_var(k, "sum", KB_TYPE(KB_F32, LANES), (struct kb_val){0});
	for (int i = 0; g->has_codes && !g->is_few && i < g->n_sums; i++)
		g->dot[i] = kb_var(k, "dot", KB_TYPE(KB_I32, LANES), (struct kb_val){0});
	kb_forever(k);
	struct kb_val t = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, t, kb_mul_const(k, down, across)));
	g->norm.first = kb_mul_const(k, kb_bin(k, KB_REM, t, down), g->rows);
	g->first_panel = kb_mul_const(k, kb_bin(k, KB_DIV, t, down), g->strip);
	g->norm.rows = kb_min(k, kb_sub(k, l->rows, g->norm.first), kb_index(k, g->rows));
	if (l->norm.after)
		emit_norm_after(g);
	else
		emit_strip(g);
	kb_set(k, next, kb_add(k, t, l->job->n_workers));
	kb_end_forever(k);
}

/* ---- all rows ---- */

/* Tiles of so many rows. */
static struct shared_matmul begin(const struct linear *l, int64_t rows)
{
	struct shared_matmul g = {.l = *l};
	choose_strips(&g, rows);
	g.has_codes = gpu_has_codes(l);
	return g;
}

/* Tiles of few rows and of many: those that calls of this kernel may need; where a norm follows, of many alone. */
static int find_tiles(const struct linear *l, struct shared_matmul g[2])
{
	int n = 0;
	enum kernel_rows rows = l->job->rows;
	bool may_be_few = !l->norm.after && l->rows_lo <= KERNEL_FEW_ROWS_MAX && rows != KERNEL_MANY_ROWS;
	if (may_be_few)
		g[n++] = begin(l, l->rows_hi < FEW_ROWS ? l->rows_hi : FEW_ROWS);
	if (!may_be_few || (l->rows_hi > KERNEL_FEW_ROWS_MAX && rows != KERNEL_FEW_ROWS))
		g[n++] = begin(l, kernel_linear_shared_rows(l->rows_hi));
	return n;
}

/* Items find their places here: where they do before it is known which kind runs, the compiler of Intel's runtime for
 * processors (2026.22) ends with a fault. */
static void emit_kind(struct shared_matmul *g, struct kb_val tile, struct kb_val means)
{
	struct kb *k = g->l.k;
	g->item = kb_item_id(k);
	g->row = kb_div_const(k, g->item, g->is_few ? VECTORS : SIDE);
	g->column = kb_rem_const(k, g->item, g->is_few ? VECTORS : SIDE);
	g->tile = tile;
	g->norm = (struct rowwise_tile){.e = g->l.eval,
	                                .most = g->rows,
	                                .items = GPU_ITEMS,
	                                .item = g->item,
	                                .parts = tile,
	                                .means = means};
	g->l.stage = (struct matmul_stage){.at = tile, .width = g->width};
	emit_tiles(g);
}

bool kernel_linear_shared(struct kernel *kernel)
{
	struct linear l;
	struct shared_matmul g[2];
	int64_t elements = 0, rows = 0;
	if (kernel->job->items != GPU_ITEMS || !matmul_begin(&l, kernel) || l.norm.before)
		return false;
	if (l.columns.panels == 0 || l.rows_hi == 0)
		return true;
	struct kb *k = l.k;
	l.lanes = LANES;
	int n = find_tiles(&l, g);
	for (int i = 0; i < n; i++) {
		elements = shared_elements(&g[i]) > elements ? shared_elements(&g[i]) : elements;
		rows = g[i].rows > rows ? g[i].rows : rows;
	}
	struct kb_val tile = kb_shared(k, "tile", KB_F32, elements);
	struct kb_val means = {0};
	if (l.norm.after)
		means = kb_shared(k, "means", KB_F32, 2 * rows);
	if (n > 1)
		kb_if(k, kb_cmp(k, KB_LE, l.rows, kb_index(k, KERNEL_FEW_ROWS_MAX)));
	emit_kind(&g[0], tile, means);
	if (n > 1) {
		kb_else(k);
		emit_kind(&g[1], tile, means);
		kb_end_if(k);
	}
	return true;
}
