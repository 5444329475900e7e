/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-group GEMM in f32. A K step of 16 of both operands is copied to local memory by all items, whatever
 * the format of the weights; each item then multiplies its rows (8 apart) by its two vectors of columns
 * (outer products in registers). Items whose row or column does not exist load the last one instead. Each
 * element is one chain of FMAs in increasing k.
 */
#include "backends/kernels/gpu_internal.h"

/* ---- x ---- */

/* Row of the tile, and position in the row, of vector or element m of this item's share. */
static struct kb_val share_row(const struct wg_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	if (x->per_row >= GPU_ITEMS)
		return kb_index(k, m / (x->per_row / GPU_ITEMS));
	return kb_add_const(k, kb_div_const(k, g->item, x->per_row), m * (GPU_ITEMS / x->per_row));
}

static struct kb_val share_at(const struct wg_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	if (x->per_row >= GPU_ITEMS)
		return kb_add_const(k, g->item, m % (x->per_row / GPU_ITEMS) * GPU_ITEMS);
	return kb_rem_const(k, g->item, x->per_row);
}

/* Divides the elements of x of a step among the items; rows that do not exist are clamped to the last one. */
static struct x_share divide_x(struct wg_matmul *g, int64_t step, bool is_vector)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct x_share x = {.is_vector = is_vector, .step = step, .per_row = is_vector ? step / LANES : step};
	x.n = (int)((g->rows * x.per_row + GPU_ITEMS - 1) / GPU_ITEMS);
	for (int m = 0; m < x.n; m++) {
		struct kb_val row = kb_add(k, g->norm.first, share_row(g, &x, m));
		row = kb_min(k, row, kb_add_const(k, l->rows, -1));
		size_t mark = eval_mark(l->eval);
		struct eval_point p = matmul_point(l, row, kb_index(k, 0));
		x.row[m] = eval_offset(l->eval, l->x, &p);
		eval_release(l->eval, mark);
	}
	return x;
}

/* Copies vector or element m of this item's share to local memory. */
static void copy_share(struct wg_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	int lanes = x->is_vector ? LANES : 1;
	struct kb_val column = kb_mul_const(k, share_at(g, x, m), lanes);
	struct kb_val element = kb_add(k, from, column);
	if (!x->is_vector)
		element = kb_min(k, element, kb_index(k, g->l.depth - 1));
	struct kb_val at = kb_add(k, x->row[m], kb_mul(k, element, g->l.k_stride.v));
	struct kb_val v = kb_load(k, KB_TYPE(KB_F32, lanes), g->l.x->t.ptr, at, 0, 0);
	struct kb_val to = kb_add(k, kb_mul_const(k, share_row(g, x, m), gpu_x_row_stride(x->step)), column);
	kb_store(k, v, g->tile, to, g->operands, x->is_vector ? LANES * 4 : 0);
}

void gpu_copy_x(struct wg_matmul *g, const struct x_share *x, struct kb_val from)
{
	struct kb *k = g->l.k;
	int64_t all = g->rows * x->per_row;
	if (all < GPU_ITEMS) /* fewer elements than items */
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, all)));
	for (int m = 0; m < x->n; m++)
		copy_share(g, x, m, from);
	if (all < GPU_ITEMS)
		kb_end_if(k);
}

void gpu_loop_k(struct wg_matmul *g, int64_t step, gpu_step_fn *emit)
{
	struct kb *k = g->l.k;
	int64_t full = g->l.depth / step * step;
	if (full > 0) {
		const struct x_share x = divide_x(g, step, g->l.k_stride.is_const && g->l.k_stride.c == 1);
		struct kb_val from =
		        kb_loop(k, "part", kb_index(k, 0), kb_index(k, full), (int)step, KB_NONEMPTY);
		emit(g, &x, from, step);
		kb_end_loop(k);
	}
	if (full < g->l.depth) {
		const struct x_share x = divide_x(g, step, false);
		emit(g, &x, kb_index(k, full), g->l.depth - full);
	}
}

/* ---- weights ---- */

struct kb_val gpu_panel(const struct wg_matmul *g, int i)
{
	const struct matmul_columns *c = &g->l.columns;
	struct kb *k = g->l.k;
	int64_t mat = c->mats > 1 ? i / g->nc : 0;
	struct kb_val at = kb_add_const(k, kb_add(k, g->first_panel, g->before), i - mat * g->nc);
	return kb_add_const(k, kb_min(k, at, kb_index(k, c->panels - 1)), mat * c->panels);
}

struct kb_val gpu_panel_at(const struct linear *l, struct kb_val panel)
{
	return kb_ptr_add(l->k, l->w->t.ptr, kb_mul_const(l->k, panel, l->panel.bytes), 0);
}

struct kb_val gpu_load_w(const struct linear *l, struct kb_val panel, struct kb_val column, struct kb_val i)
{
	struct kb *k = l->k;
	struct kb_val ptr = l->w->t.ptr, k_row = i;
	if (l->panel.kind == PANEL_QUANTS)
		return panel_dequantize(k, &l->panel, gpu_panel_at(l, panel), column, i, LANES);
	if (l->panel.kind == PANEL_BF16_PAIRS)
		k_row = kb_div_const(k, i, 2);
	struct kb_val in_panel = kb_add(k, kb_mul_const(k, k_row, MATMUL_PANEL), column);
	int64_t size = l->panel.bytes / (l->panel.kind == PANEL_F16 ? 2 : 4);
	struct kb_val at = kb_add(k, kb_mul_const(k, panel, size), in_panel);
	if (l->panel.kind == PANEL_BF16_PAIRS)
		return eval_load_bf16_pair(k, ptr, at, i, LANES);
	if (l->panel.kind == PANEL_F16)
		return kb_cvt(k, kb_load(k, KB_TYPE(KB_F16, LANES), ptr, at, 0, LANES * 2), KB_F32);
	return kb_load(k, KB_TYPE(KB_F32, LANES), ptr, at, 0, LANES * 4);
}

/* ---- products ---- */

#define STEP 16 /* K elements in local memory */

static int64_t w_begin(const struct wg_matmul *g)
{
	return g->operands + g->rows * gpu_x_row_stride(STEP);
}

int64_t gpu_operands(const struct wg_matmul *g)
{
	return w_begin(g) - g->operands + STEP * GPU_COLUMNS;
}

/* Copies K elements [from, from + 16) of four panels to [STEP, 64]: item i has vector i of each. */
static void copy_w(struct wg_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val k_row = kb_div_const(k, g->item, PANEL_VECTORS),
	              column = kb_mul_const(k, kb_rem_const(k, g->item, PANEL_VECTORS), LANES);
	struct kb_val element = kb_min(k, kb_add(k, from, k_row), kb_index(k, l->depth - 1));
	struct kb_val to = kb_add(k, kb_mul_const(k, k_row, GPU_COLUMNS), column);
	for (int i = 0; i < g->panels; i++) {
		struct kb_val v = gpu_load_w(l, gpu_panel(g, i), column, element);
		kb_store(k, v, g->tile, to, w_begin(g) + (int64_t)i * MATMUL_PANEL, LANES * 4);
	}
}

/* acc[m][h] += x[m][at] w[at][h] for n <= 4 K elements; h: vector of columns of the item. */
static void multiply(struct wg_matmul *g, struct kb_val at, int n)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	int64_t x_row = gpu_x_row_stride(STEP);
	struct kb_val x[MR_MAX], from = kb_add(k, kb_mul_const(k, g->row, x_row), at);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, from, g->operands + m * SIDE * x_row, LANES * 4);
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val k_row = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int i = 0; i < n; i++) {
		for (int h = 0; h < ITEM_VECTORS; h++) {
			int64_t disp = w_begin(g) + (int64_t)i * GPU_COLUMNS + (int64_t)h * SIDE * LANES;
			struct kb_val w = kb_load(k, vec, g->tile, k_row, disp, LANES * 4);
			for (int m = 0; m < g->mr; m++) {
				struct kb_var sum = g->acc[m * ITEM_VECTORS + h];
				struct kb_val e = kb_splat(k, kb_lane(k, x[m], i), LANES);
				kb_set(k, sum, kb_fma(k, e, w, kb_get(k, sum)));
			}
		}
	}
}

/* n <= STEP K elements. */
static void multiply_step(struct wg_matmul *g, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t full = n / LANES * LANES;
	if (full > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, full), LANES, KB_NONEMPTY);
		multiply(g, at, LANES);
		kb_end_loop(k);
	}
	if (n > full)
		multiply(g, kb_index(k, full), (int)(n - full));
}

static void emit_step(struct wg_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	gpu_copy_x(g, x, from);
	copy_w(g, from);
	kb_barrier(g->l.k);
	multiply_step(g, n);
	kb_barrier(g->l.k);
}

void gpu_f32(struct wg_matmul *g)
{
	gpu_loop_k(g, STEP, emit_step);
}
