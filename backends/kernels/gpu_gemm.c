/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-group GEMM: 8 x 8 items share a tile of rows and 64 columns of the result. Finished tiles go through a
 * C buffer in local memory, so that the epilogue is emitted once and stores complete rows. With outputs by
 * ranges of columns (q k v), an N block of whole heads, some tiles wide, does. If a norm follows, a group has
 * all columns of its rows; the operand of the norm is stored where the result goes. Items whose row or column
 * does not exist store nothing, but reach all barriers.
 */
#include "backends/kernels/gpu_internal.h"

int64_t kernel_linear_shared_rows(int64_t rows)
{
	int64_t n = SIDE;
	while (n < SIDE * MR_MAX && n < rows)
		n *= 2;
	return n;
}

/* Elements of local memory of a shape. */
static int64_t local_elements(const struct wg_matmul *g)
{
	int64_t end = g->operands + (g->is_few ? gpu_skinny_operands(g) : gpu_operands(g));
	int64_t products = g->rows * g->width;
	return end > products ? end : products;
}

/* ---- a tile ---- */

static void multiply_tile(struct wg_matmul *g, bool by_codes)
{
	if (g->is_few && by_codes)
		gpu_skinny_int8(g);
	else if (g->is_few)
		gpu_skinny_f32(g);
	else if (by_codes)
		gpu_int8(g);
	else
		gpu_f32(g);
}

/* Stores the accumulators in the C buffer. */
static void store_acc(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	column = kb_add(k, column, kb_mul_const(k, g->before, MATMUL_PANEL));
	struct kb_val at = kb_add(k, kb_mul_const(k, g->row, g->width), column);
	for (int i = 0; i < g->n_acc; i++)
		kb_store(k, kb_get(k, g->acc[i]), g->tile, at,
		         i / ITEM_VECTORS * SIDE * g->width + (int64_t)(i % ITEM_VECTORS) * SIDE * LANES,
		         LANES * 4);
}

/* Multiplies a tile and stores it in the C buffer. */
static void emit_tile_product(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	for (int i = 0; i < g->n_acc; i++)
		kb_set(k, g->acc[i], kb_splat(k, kb_f32(k, 0), LANES));
	if (g->has_int8) {
		kb_if(k, kb_device_dot(k));
		multiply_tile(g, true);
		kb_else(k);
	}
	multiply_tile(g, false);
	if (g->has_int8)
		kb_end_if(k);
	if (g->is_few)
		gpu_skinny_reduce(g);
	else
		store_acc(g);
}

/* ---- N blocks ---- */

/* An N block: its tiles, then the epilogue. */
static void emit_n_block(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	bool is_one_tile = g->width == g->panels * MATMUL_PANEL;
	g->before = kb_index(k, 0);
	if (!is_one_tile)
		g->before = kb_loop(k, "panel", g->before, kb_index(k, g->nc), (int)g->panels, KB_NONEMPTY);
	emit_tile_product(g);
	if (!is_one_tile && g->is_few)
		kb_barrier(k); /* before the next tile overwrites the partial sums */
	if (!is_one_tile)
		kb_end_loop(k);
	kb_barrier(k);
	struct matmul_block s = {.rows = g->l.rows, .begin = g->first_panel};
	s.end = kb_min(k, kb_add_const(k, s.begin, g->nc), kb_index(k, g->l.columns.panels));
	matmul_epilogue(&g->l, &s, g->norm.first, g->norm.rows);
	kb_barrier(k); /* before the next N block overwrites the C buffer */
}

/* ---- tasks ---- */

/* Chooses the shape: N blocks of whole heads, or of both gate and up, with as many rows as local memory
 * holds; for few rows as narrow as the epilogue allows. */
static void choose_n_block(struct wg_matmul *g, int64_t rows)
{
	const struct linear *l = &g->l;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_wide = l->ranges && l->columns.mats == 1;
	g->is_few = rows <= FEW_ROWS;
	g->rows = rows;
	g->nc = is_wide ? l->columns.nc : tile / l->columns.mats;
	if (g->is_few && !l->strip_op)
		g->nc = is_wide ? l->columns.unit : 1;
	g->panels = g->is_few && g->nc * l->columns.mats < tile ? g->nc * l->columns.mats : tile;
	g->width = (l->columns.mats * g->nc + g->panels - 1) / g->panels * g->panels * MATMUL_PANEL;
	while (!g->is_few && g->rows > SIDE && g->rows * g->width > SIDE * MR_MAX * GPU_COLUMNS)
		g->rows /= 2;
	g->mr = (int)(g->rows / SIDE);
	g->n_acc = (int)(g->is_few ? g->rows * g->panels : g->mr * ITEM_VECTORS);
	g->operands = g->is_few || g->width > GPU_COLUMNS ? g->rows * g->width : 0;
}

/* All columns of the rows, then the norm of them, in place of the result. */
static void emit_norm_after(struct wg_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct rowwise_tile tile = g->norm;
	g->first_panel =
	        kb_loop(k, "strip", kb_index(k, 0), kb_index(k, l->columns.panels), (int)g->nc, KB_NONEMPTY);
	emit_n_block(g);
	kb_end_loop(k);
	size_t mark = eval_mark(l->eval);
	tile.norm = l->norm.after;
	eval_set_tensor(l->eval, l->out.value, &l->out.to, &(struct eval_bias){0});
	rowwise_tile_stats(&tile);
	struct kb_val i = kb_loop(k, "i", g->item, kb_mul_const(k, tile.rows, l->columns.n), GPU_ITEMS, 0);
	struct kb_val row = kb_div_const(k, i, l->columns.n), column = kb_rem_const(k, i, l->columns.n);
	struct eval_point p = matmul_point(l, kb_add(k, g->norm.first, row), column);
	p.vec = -1;
	struct kb_val value = rowwise_tile_normalized(&tile, row, &p, 1);
	eval_bind(l->eval, eval_result(tile.norm), &p, value);
	eval_store_output(l->eval, &l->g->out.items[0], &p);
	kb_end_loop(k);
	eval_release(l->eval, mark);
	kb_barrier(k); /* before the next tile overwrites the statistics of the rows */
}

/* Loop over tasks: group, group + groups, ..; tiles that share weights are neighbours. */
static void emit_tiles(struct wg_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t n_blocks = l->norm.after ? 1 : (l->columns.panels + g->nc - 1) / g->nc;
	struct kb_val m_tiles = kb_div_const(k, kb_add_const(k, l->rows, g->rows - 1), g->rows);
	struct kb_var next = kb_var(k, "tile", KB_INDEX_T, l->job->worker);
	for (int i = 0; i < g->n_acc; i++)
		g->acc[i] = kb_var(k, "sum", KB_TYPE(KB_F32, LANES), (struct kb_val){0});
	for (int i = 0; g->has_int8 && !g->is_few && i < g->n_acc; i++)
		g->dot[i] = kb_var(k, "dot", KB_TYPE(KB_I32, LANES), (struct kb_val){0});
	kb_forever(k);
	struct kb_val t = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, t, kb_mul_const(k, m_tiles, n_blocks)));
	g->norm.first = kb_mul_const(k, kb_bin(k, KB_REM, t, m_tiles), g->rows);
	g->first_panel = kb_mul_const(k, kb_bin(k, KB_DIV, t, m_tiles), g->nc);
	g->norm.rows = kb_min(k, kb_sub(k, l->rows, g->norm.first), kb_index(k, g->rows));
	if (l->norm.after)
		emit_norm_after(g);
	else
		emit_n_block(g);
	kb_set(k, next, kb_add(k, t, l->job->n_workers));
	kb_end_forever(k);
}

/* ---- few and many rows ---- */

/* A shape with tiles of `rows` rows. */
static struct wg_matmul new_tile_shape(const struct linear *l, int64_t rows)
{
	struct wg_matmul g = {.l = *l};
	choose_n_block(&g, rows);
	g.has_int8 = gpu_has_int8(l);
	return g;
}

/* Shapes that calls of this kernel may need, for few rows and for many; with a norm after the product for
 * many only. Returns their number. */
static int find_tile_shapes(const struct linear *l, struct wg_matmul g[2])
{
	int n = 0;
	enum kernel_rows rows = l->job->rows;
	bool may_be_few = !l->norm.after && l->rows_lo <= KERNEL_FEW_ROWS_MAX && rows != KERNEL_MANY_ROWS;
	if (may_be_few)
		g[n++] = new_tile_shape(l, l->rows_hi < FEW_ROWS ? l->rows_hi : FEW_ROWS);
	if (!may_be_few || (l->rows_hi > KERNEL_FEW_ROWS_MAX && rows != KERNEL_FEW_ROWS))
		g[n++] = new_tile_shape(l, kernel_linear_shared_rows(l->rows_hi));
	return n;
}

/* Emits all tasks with one shape. Positions of items are computed inside the branch on the number of rows:
 * before it, the compiler of Intel's OpenCL runtime for CPUs (2026.22) crashes. */
static void emit_shape(struct wg_matmul *g, struct kb_val tile, struct kb_val means)
{
	struct kb *k = g->l.k;
	g->item = kb_item_id(k);
	g->row = kb_div_const(k, g->item, g->is_few ? PANEL_VECTORS : SIDE);
	g->column = kb_rem_const(k, g->item, g->is_few ? PANEL_VECTORS : SIDE);
	g->tile = tile;
	g->norm = (struct rowwise_tile){.e = g->l.eval,
	                                .most = g->rows,
	                                .items = GPU_ITEMS,
	                                .item = g->item,
	                                .partials = tile,
	                                .means = means};
	g->l.c_buf = (struct matmul_c_buffer){.at = tile, .width = g->width};
	emit_tiles(g);
}

bool kernel_linear_shared(struct kernel *kernel)
{
	struct linear l;
	struct wg_matmul g[2];
	int64_t elements = 0, rows = 0;
	if (kernel->job->items != GPU_ITEMS || !matmul_bind(&l, kernel) || l.norm.before)
		return false;
	if (l.columns.panels == 0 || l.rows_hi == 0)
		return true;
	struct kb *k = l.k;
	l.lanes = LANES;
	int n = find_tile_shapes(&l, g);
	for (int i = 0; i < n; i++) {
		elements = local_elements(&g[i]) > elements ? local_elements(&g[i]) : elements;
		rows = g[i].rows > rows ? g[i].rows : rows;
	}
	struct kb_val tile = kb_shared(k, "tile", KB_F32, elements);
	struct kb_val means = {0};
	if (l.norm.after)
		means = kb_shared(k, "means", KB_F32, 2 * rows);
	if (n > 1)
		kb_if(k, kb_cmp(k, KB_LE, l.rows, kb_index(k, KERNEL_FEW_ROWS_MAX)));
	emit_shape(&g[0], tile, means);
	if (n > 1) {
		kb_else(k);
		emit_shape(&g[1], tile, means);
		kb_end_if(k);
	}
	return true;
}
