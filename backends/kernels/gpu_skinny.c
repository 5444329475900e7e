/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-group GEMM of few rows, bound by reading weights (decode). Tiles are as narrow as the epilogue allows,
 * at best one panel, so that there are many groups. The items of a group split K (split-K): of 64 K elements
 * an item has four, and of these a vector of four columns of each panel; neighbours read neighbouring
 * addresses (coalesced). Each weight is read by one item, into registers; x is read by all items, from local
 * memory, in long K steps. Each result is 16 chains of FMAs over K, added in a fixed order at the end, in any
 * format.
 */
#include "backends/kernels/gpu_internal.h"

#define STEP            256               /* K elements of x in local memory */
#define K_PER_ITERATION (LANES * K_ITEMS) /* four of each item */

int64_t gpu_skinny_operands(const struct wg_matmul *g)
{
	int64_t x = g->rows * gpu_x_row_stride(STEP), quants = g->rows * K_ITEMS * X_WORDS,
	        partials = (int64_t)g->n_acc * K_ITEMS * MATMUL_PANEL;
	int64_t larger = x > quants ? x : quants;
	return larger > partials ? larger : partials;
}

/* ---- f32 ---- */

/* Opens a branch for the rows after the first, which is often the only one. */
static void if_more_rows(const struct wg_matmul *g)
{
	kb_if(g->l.k, kb_cmp(g->l.k, KB_GT, g->norm.rows, kb_index(g->l.k, 1)));
}

/* sum[m] += x[m][element .. element + n - 1] w for rows [first, end) of the tile. */
static void multiply_rows(struct wg_matmul *g, struct kb_val element, int n, struct kb_val w[][MATMUL_NC],
                          int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	for (int64_t m = first; m < end; m++) {
		int64_t disp = g->operands + m * gpu_x_row_stride(STEP);
		struct kb_val x =
		        kb_load(k, KB_TYPE(KB_F32, n), g->tile, element, disp, n == LANES ? LANES * 4 : 0);
		for (int u = 0; u < n; u++) {
			struct kb_val e = kb_splat(k, n > 1 ? kb_lane(k, x, u) : x, LANES);
			for (int64_t i = 0; i < g->panels; i++) {
				struct kb_var sum = g->acc[m * g->panels + i];
				kb_set(k, sum, kb_fma(k, e, w[u][i], kb_get(k, sum)));
			}
		}
	}
}

/* Loads this item's columns of K elements i .. i + 3, i a multiple of 4: w[u][p] is element i + u of panel p. */
static void load_four_k(const struct wg_matmul *g, struct kb_val i, struct kb_val w[][MATMUL_NC])
{
	struct kb *k = g->l.k;
	const struct panel *panel = &g->l.panel;
	struct kb_val column = kb_mul_const(k, g->column, LANES), quants[LANES];
	struct panel_reader r = {.k = k, .panel = panel, .lanes = LANES};
	for (int p = 0; p < g->panels; p++) {
		struct kb_val at = gpu_panel_at(&g->l, gpu_panel(g, p));
		if (panel->kind == PANEL_QUANTS)
			panel_dequantize_n(k, panel, at, column, i, LANES, LANES, quants);
		r.at = kb_ptr_add(k, at, kb_mul_const(k, column, panel->kind == PANEL_F16 ? 2 : 4), 0);
		for (int u = 0; u < LANES; u++)
			w[u][p] = panel->kind == PANEL_QUANTS
			                  ? quants[u]
			                  : panel_load_f32(&r, panel_k_row_offset(&r, i, u), u, 0);
	}
}

/* K elements [at, at + 64) of the step that begins at `from`, four of each item. */
static void multiply(struct wg_matmul *g, struct kb_val from, struct kb_val at)
{
	struct kb *k = g->l.k;
	struct kb_val w[LANES][MATMUL_NC];
	struct kb_val element = kb_add(k, at, kb_mul_const(k, g->row, LANES));
	load_four_k(g, kb_add(k, from, element), w);
	multiply_rows(g, element, LANES, w, 0, 1);
	if (g->rows == 1)
		return;
	if_more_rows(g);
	multiply_rows(g, element, LANES, w, 1, g->rows);
	kb_end_if(k);
}

/* The remainder, elements below `end`, one at a time. */
static void multiply_tail(struct wg_matmul *g, struct kb_val from, struct kb_val at, struct kb_val end)
{
	struct kb *k = g->l.k;
	struct kb_val w[1][MATMUL_NC], column = kb_mul_const(k, g->column, LANES);
	at = kb_add(k, at, kb_mul_const(k, g->row, LANES));
	for (int u = 0; u < LANES; u++) {
		struct kb_val element = kb_add_const(k, at, u);
		struct kb_val i = kb_add(k, from, element);
		kb_if(k, kb_cmp(k, KB_LT, element, end));
		for (int p = 0; p < g->panels; p++)
			w[0][p] = gpu_load_w(&g->l, gpu_panel(g, p), column, i);
		multiply_rows(g, element, 1, w, 0, g->rows);
		kb_end_if(k);
	}
}

/* n <= STEP K elements. */
static void emit_step(struct wg_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t full = n / K_PER_ITERATION * K_PER_ITERATION;
	gpu_copy_x(g, x, from);
	kb_barrier(k);
	if (full > 0) {
		struct kb_val at =
		        kb_loop(k, "k", kb_index(k, 0), kb_index(k, full), K_PER_ITERATION, KB_NONEMPTY);
		multiply(g, from, at);
		kb_end_loop(k);
	}
	if (full < n)
		multiply_tail(g, from, kb_index(k, full), kb_index(k, n));
	kb_barrier(k);
}

void gpu_skinny_f32(struct wg_matmul *g)
{
	gpu_loop_k(g, STEP, emit_step);
}

/* ---- int8 ---- */

/* Rows [first, end) times a quant block of a panel, whose words are w. */
static void multiply_words(struct wg_matmul *g, int64_t panel, const struct kb_val *w,
                           const struct panel_block *b, int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, LANES);
	struct kb_val x = kb_mul_const(k, g->row, X_WORDS);
	for (int64_t m = first; m < end; m++) {
		struct kb_var sum = g->acc[m * g->panels + panel];
		struct kb_val dot = kb_splat(k, kb_i32(k, 0), LANES);
		int64_t row = m * K_ITEMS * X_WORDS;
		for (int i = 0; i < WORDS; i++)
			dot = kb_dot_s8s8(k, dot, w[i],
			                  kb_load_splat(k, vec, g->tile, x, g->operands + row + i));
		kb_set(k, sum, gpu_add_scaled(g, kb_get(k, sum), dot, b, x, row));
	}
}

/* This item's quant block, from K element i on. */
static void multiply_block(struct wg_matmul *g, struct kb_val i)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES), w[WORDS];
	for (int p = 0; p < g->panels; p++) {
		struct kb_val at = gpu_panel_at(&g->l, gpu_panel(g, p));
		const struct panel_block b = panel_load_block(k, &g->l.panel, at, column, i, LANES);
		for (int word = 0; word < WORDS; word++)
			w[word] = panel_load_i8(k, &g->l.panel, at, column, kb_add_const(k, i, 4L * word), 0,
			                        LANES);
		multiply_words(g, p, w, &b, 0, 1);
		if (g->rows == 1)
			continue;
		if_more_rows(g);
		multiply_words(g, p, w, &b, 1, g->rows);
		kb_end_if(k);
	}
}

/* Items quantize 16 blocks of each row, one block each; then each multiplies the block of its K position. */
void gpu_skinny_int8(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	size_t mark = eval_mark(g->l.eval);
	struct kb_val depth = kb_index(k, g->l.depth), last = kb_index(k, g->l.depth - BLOCK);
	struct kb_val row = gpu_x_row_offset(g, kb_div_const(k, g->item, K_ITEMS));
	struct kb_val own_block = kb_mul_const(k, kb_rem_const(k, g->item, K_ITEMS), BLOCK);
	struct kb_val from = kb_loop(k, "block", kb_index(k, 0), depth, K_ITEMS * BLOCK, KB_NONEMPTY);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, g->rows * K_ITEMS)));
	gpu_quantize_x(g, row, kb_min(k, kb_add(k, from, own_block), last), g->item);
	kb_end_if(k);
	kb_barrier(k);
	struct kb_val i = kb_add(k, from, kb_mul_const(k, g->row, BLOCK));
	kb_if(k, kb_cmp(k, KB_LT, i, depth));
	multiply_block(g, i);
	kb_end_if(k);
	kb_barrier(k);
	kb_end_loop(k);
	eval_release(g->l.eval, mark);
}

/* ---- reduction over items ---- */

/* Reduces [K_ITEMS][n_acc][16] partial sums to the C buffer [rows, width]; an item sums one vector. */
void gpu_skinny_reduce(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	int64_t item_stride = (int64_t)g->n_acc * MATMUL_PANEL;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val own_block = kb_add(k, kb_mul_const(k, g->row, item_stride), column);
	for (int i = 0; i < g->n_acc; i++)
		kb_store(k, kb_get(k, g->acc[i]), g->tile, own_block, g->operands + (int64_t)i * MATMUL_PANEL,
		         LANES * 4);
	kb_barrier(k);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->n_acc * PANEL_VECTORS)));
	struct kb_val from = kb_mul_const(k, g->item, LANES);
	struct kb_val sum = kb_load(k, vec, g->tile, from, g->operands, LANES * 4);
	for (int i = 1; i < K_ITEMS; i++)
		sum = kb_add(k, sum,
		             kb_load(k, vec, g->tile, from, g->operands + i * item_stride, LANES * 4));
	struct kb_val row = kb_div_const(k, g->row, g->panels), panel = kb_rem_const(k, g->row, g->panels);
	panel = kb_mul_const(k, kb_add(k, panel, g->before), MATMUL_PANEL);
	struct kb_val to = kb_add(k, panel, column);
	to = kb_add(k, kb_mul_const(k, row, g->width), to);
	kb_store(k, sum, g->tile, to, 0, LANES * 4);
	kb_end_if(k);
}
