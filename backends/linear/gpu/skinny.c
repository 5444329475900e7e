/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few rows, as for a new token: the time is that of reading weights, so tiles are as narrow as the epilogue allows, one
 * panel at best, for many groups, and all items of a group read different weights, near those of their neighbours: of 64
 * elements along K an item has four, and of these a vector of four columns of each panel. Nobody reads weights twice, so
 * they go to registers; x, which all read, goes through shared memory in long steps. The 16 sums of a column meet in
 * order at the end. So an element is 16 chains of fused multiply-adds and the sum of these, whatever the format.
 */
#include "backends/linear/gpu/internal.h"

#define STEP    256             /* elements along K in shared memory */
#define AT_ONCE (LANES * LINES) /* elements along K that are open, four of each item */

int64_t gpu_few_operands(const struct shared_matmul *g)
{
	int64_t x = g->rows * gpu_x_row(STEP), codes = g->rows * LINES * CODES,
	        sums = (int64_t)g->n_sums * LINES * MATMUL_PANEL;
	int64_t most = x > codes ? x : codes;
	return most > sums ? most : sums;
}

/* ---- f32 ---- */

/* Begins what is for the rows after the first one, which is often the only one. */
static void if_more(const struct shared_matmul *g)
{
	kb_if(g->l.k, kb_cmp(g->l.k, KB_GT, g->norm.rows, kb_index(g->l.k, 1)));
}

/* sum[m] += x[m][element .. element + n - 1] w for rows [first, end) of the tile. */
static void multiply_rows(struct shared_matmul *g, struct kb_val element, int n,
                          struct kb_val w[][MATMUL_STRIP], int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	for (int64_t m = first; m < end; m++) {
		int64_t disp = g->operands + m * gpu_x_row(STEP);
		struct kb_val x =
		        kb_load(k, KB_TYPE(KB_F32, n), g->tile, element, disp, n == LANES ? LANES * 4 : 0);
		for (int u = 0; u < n; u++) {
			struct kb_val e = kb_splat(k, n > 1 ? kb_lane(k, x, u) : x, LANES);
			for (int64_t i = 0; i < g->panels; i++) {
				struct kb_var sum = g->sum[m * g->panels + i];
				kb_set(k, sum, kb_fma(k, e, w[u][i], kb_get(k, sum)));
			}
		}
	}
}

/* Columns of this item of elements i .. i + 3, i a multiple of 4: w[u][p] is element i + u of panel p of the tile. */
static void load_four(const struct shared_matmul *g, struct kb_val i, struct kb_val w[][MATMUL_STRIP])
{
	struct kb *k = g->l.k;
	const struct panel *panel = &g->l.panel;
	struct kb_val column = kb_mul_const(k, g->column, LANES), codes[LANES];
	struct panel_reader r = {.k = k, .panel = panel, .lanes = LANES};
	for (int p = 0; p < g->panels; p++) {
		struct kb_val at = gpu_panel_at(&g->l, gpu_panel(g, p));
		if (panel->lines == PANEL_CODES)
			panel_codes(k, panel, at, column, i, LANES, LANES, codes);
		r.at = kb_ptr_add(k, at, kb_mul_const(k, column, panel->lines == PANEL_HALVES ? 2 : 4), 0);
		for (int u = 0; u < LANES; u++)
			w[u][p] = panel->lines == PANEL_CODES ? codes[u]
			                                      : panel_vector(&r, panel_line(&r, i, u), u, 0);
	}
}

/* Elements [at, at + 64) of the step that begins at `from`, four of each item. */
static void multiply(struct shared_matmul *g, struct kb_val from, struct kb_val at)
{
	struct kb *k = g->l.k;
	struct kb_val w[LANES][MATMUL_STRIP];
	struct kb_val element = kb_add(k, at, kb_mul_const(k, g->row, LANES));
	load_four(g, kb_add(k, from, element), w);
	multiply_rows(g, element, LANES, w, 0, 1);
	if (g->rows == 1)
		return;
	if_more(g);
	multiply_rows(g, element, LANES, w, 1, g->rows);
	kb_end_if(k);
}

/* Those below `end`. */
static void multiply_rest(struct shared_matmul *g, struct kb_val from, struct kb_val at, struct kb_val end)
{
	struct kb *k = g->l.k;
	struct kb_val w[1][MATMUL_STRIP], column = kb_mul_const(k, g->column, LANES);
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

/* n <= 256 elements. */
static void emit_step(struct shared_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t whole = n / AT_ONCE * AT_ONCE;
	gpu_copy_x(g, x, from);
	kb_barrier(k);
	if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), AT_ONCE, KB_NONEMPTY);
		multiply(g, from, at);
		kb_end_loop(k);
	}
	if (whole < n)
		multiply_rest(g, from, kb_index(k, whole), kb_index(k, n));
	kb_barrier(k);
}

void gpu_few_floats(struct shared_matmul *g)
{
	gpu_walk_steps(g, STEP, emit_step);
}

/* ---- bytes ---- */

/* Rows [first, end) times a block of a panel, whose words are w. */
static void multiply_words(struct shared_matmul *g, int64_t panel, const struct kb_val *w,
                           const struct panel_block *b, int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, LANES);
	struct kb_val x = kb_mul_const(k, g->row, CODES);
	for (int64_t m = first; m < end; m++) {
		struct kb_var sum = g->sum[m * g->panels + panel];
		struct kb_val dot = kb_splat(k, kb_i32(k, 0), LANES);
		int64_t row = m * LINES * CODES;
		for (int i = 0; i < WORDS; i++)
			dot = kb_dot_s8s8(k, dot, w[i],
			                  kb_load_splat(k, vec, g->tile, x, g->operands + row + i));
		kb_set(k, sum, gpu_add_block(g, kb_get(k, sum), dot, b, x, row));
	}
}

/* One block of this item, from element i of K on. */
static void multiply_block(struct shared_matmul *g, struct kb_val i)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES), w[WORDS];
	for (int p = 0; p < g->panels; p++) {
		struct kb_val at = gpu_panel_at(&g->l, gpu_panel(g, p));
		const struct panel_block b = panel_block(k, &g->l.panel, at, column, i, LANES);
		for (int word = 0; word < WORDS; word++)
			w[word] = panel_words(k, &g->l.panel, at, column, kb_add_const(k, i, 4L * word), 0,
			                      LANES);
		multiply_words(g, p, w, &b, 0, 1);
		if (g->rows == 1)
			continue;
		if_more(g);
		multiply_words(g, p, w, &b, 1, g->rows);
		kb_end_if(k);
	}
}

/* 16 blocks of each row, a block by an item, which then multiplies the block of its line. */
void gpu_few_codes(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	size_t mark = eval_mark(g->l.eval);
	struct kb_val depth = kb_index(k, g->l.depth), last = kb_index(k, g->l.depth - BLOCK);
	struct kb_val row = gpu_find_row(g, kb_div_const(k, g->item, LINES));
	struct kb_val own = kb_mul_const(k, kb_rem_const(k, g->item, LINES), BLOCK);
	struct kb_val from = kb_loop(k, "block", kb_index(k, 0), depth, LINES * BLOCK, KB_NONEMPTY);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, g->rows * LINES)));
	gpu_copy_x_codes(g, row, kb_min(k, kb_add(k, from, own), last), g->item);
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

/* ---- the sums of all items ---- */

/* [LINES][n_sums][16] -> [rows, width], the sums of one vector by an item. */
void gpu_few_join(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	int64_t line = (int64_t)g->n_sums * MATMUL_PANEL;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val own = kb_add(k, kb_mul_const(k, g->row, line), column);
	for (int i = 0; i < g->n_sums; i++)
		kb_store(k, kb_get(k, g->sum[i]), g->tile, own, g->operands + (int64_t)i * MATMUL_PANEL,
		         LANES * 4);
	kb_barrier(k);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->n_sums * VECTORS)));
	struct kb_val from = kb_mul_const(k, g->item, LANES);
	struct kb_val sum = kb_load(k, vec, g->tile, from, g->operands, LANES * 4);
	for (int i = 1; i < LINES; i++)
		sum = kb_add(k, sum, kb_load(k, vec, g->tile, from, g->operands + i * line, LANES * 4));
	struct kb_val row = kb_div_const(k, g->row, g->panels), panel = kb_rem_const(k, g->row, g->panels);
	panel = kb_mul_const(k, kb_add(k, panel, g->before), MATMUL_PANEL);
	struct kb_val to = kb_add(k, panel, column);
	to = kb_add(k, kb_mul_const(k, row, g->width), to);
	kb_store(k, sum, g->tile, to, 0, LANES * 4);
	kb_end_if(k);
}
