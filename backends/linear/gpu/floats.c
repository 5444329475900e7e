/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of 16 along K is copied to shared memory by all items, then each multiplies its rows (8 apart) by its two vectors
 * of columns. Items whose row or column does not exist load the last one instead. Each element is one chain of fused
 * multiply-adds in increasing k, as elsewhere.
 */
#include "backends/linear/gpu/internal.h"

/* What an item copies of x in each step: `n` vectors, or single elements, of one row each. */
struct x_share {
	bool is_vector;
	int n;
	int per_row;                 /* of these in a row of a step */
	struct kb_val at;            /* which of the row, this item's */
	struct kb_val row[16];       /* element where the row begins in x */
	struct eval_point point[16]; /* of a norm: the same place */
};

/* ---- sharing ---- */

static int64_t w_begin(const struct shared_matmul *g)
{
	return g->operands + (int64_t)g->mr * SIDE * X_ROW;
}

int64_t gpu_operands(const struct shared_matmul *g)
{
	return w_begin(g) - g->operands + STEP * GPU_COLUMNS;
}

/* Row m of this item's share of x, counted in the tile. */
static struct kb_val share_row(struct shared_matmul *g, const struct x_share *x, int m)
{
	int64_t apart = GPU_ITEMS / x->per_row;
	return kb_add_const(g->l.k, kb_div_const(g->l.k, g->item, x->per_row), m * apart);
}

/* Divides the elements of x in a step among the items; rows that do not exist are the last one. */
static void divide_x(struct shared_matmul *g, struct x_share *x, bool is_vector)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	x->is_vector = is_vector;
	x->per_row = is_vector ? STEP / LANES : STEP;
	x->n = (g->mr * SIDE * x->per_row + GPU_ITEMS - 1) / GPU_ITEMS;
	x->at = kb_rem_const(k, g->item, x->per_row);
	for (int m = 0; m < x->n; m++) {
		struct kb_val row = kb_add(k, g->norm.first, share_row(g, x, m));
		row = kb_min(k, row, kb_add_const(k, l->rows, -1));
		if (l->norm.before) {
			x->point[m] = rowwise_tile_row(&g->norm, row);
			continue;
		}
		size_t mark = eval_mark(l->eval);
		struct eval_point p = matmul_point(l, row, kb_index(k, 0));
		x->row[m] = eval_offset(l->eval, l->x, &p);
		eval_release(l->eval, mark);
	}
}

/* x from `column` on in row m of the share: as it lies in memory, or of a norm. */
static struct kb_val load_x(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val column,
                            int lanes)
{
	struct kb *k = g->l.k;
	if (!g->l.norm.before) {
		struct kb_val at = kb_add(k, x->row[m], kb_mul(k, column, g->l.along.v));
		return kb_load(k, KB_TYPE(KB_F32, lanes), g->l.x->t.ptr, at, 0, 0);
	}
	struct eval_point p = x->point[m];
	struct kb_val last = kb_add_const(k, g->norm.rows, -1);
	struct kb_val row = kb_min(k, share_row(g, x, m), last);
	p.vec = lanes > 1 ? p.rank - 1 : -1;
	p.index[p.rank - 1] = column;
	return rowwise_tile_value(&g->norm, row, &p, lanes);
}

static void copy_x_vector(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, x->at, LANES);
	struct kb_val v = load_x(g, x, m, kb_add(k, from, column), LANES);
	struct kb_val to = kb_add(k, kb_mul_const(k, share_row(g, x, m), X_ROW), column);
	kb_store(k, v, g->tile, to, g->operands, LANES * 4);
}

/* Elements after the last are the last one; nobody multiplies by them. */
static void copy_x_element(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	struct kb_val element = kb_min(k, kb_add(k, from, x->at), kb_index(k, g->l.depth - 1));
	struct kb_val v = load_x(g, x, m, element, 1);
	kb_store(k, v, g->tile, kb_add(k, kb_mul_const(k, share_row(g, x, m), X_ROW), x->at), g->operands, 0);
}

/* x[first_row .., from ..] -> [8 mr, X_ROW] */
static void copy_x(struct shared_matmul *g, const struct x_share *x, struct kb_val from)
{
	struct kb *k = g->l.k;
	bool some = g->mr * SIDE * x->per_row < GPU_ITEMS; /* not every item has one */
	if (some)
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->mr * SIDE * x->per_row)));
	for (int m = 0; m < x->n; m++) {
		if (x->is_vector)
			copy_x_vector(g, x, m, from);
		else
			copy_x_element(g, x, m, from);
	}
	if (some)
		kb_end_if(k);
}

/* Columns of element i of K from place `at` on, f32. */
static struct kb_val load_w(const struct linear *l, struct kb_val at, struct kb_val i)
{
	struct kb *k = l->k;
	struct kb_val ptr = l->w->t.ptr;
	if (l->panel.lines == PANEL_PAIRS)
		return eval_load_pairs(k, ptr, at, i, LANES);
	if (l->panel.lines == PANEL_HALVES)
		return kb_cvt(k, kb_load(k, KB_TYPE(KB_F16, LANES), ptr, at, 0, LANES * 2), KB_F32);
	return kb_load(k, KB_TYPE(KB_F32, LANES), ptr, at, 0, LANES * 4);
}

/* Lines [from, from + 16) of four panels -> [STEP, 64]: item i has vector i of each. */
static void copy_w(struct shared_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val line = kb_div_const(k, g->item, STEP / LANES),
	              column = kb_mul_const(k, kb_rem_const(k, g->item, LANES), LANES);
	struct kb_val in_panel = kb_min(k, kb_add(k, from, line), kb_index(k, l->depth - 1));
	struct kb_val element = in_panel;
	if (l->panel.lines == PANEL_PAIRS)
		in_panel = kb_div_const(k, in_panel, 2);
	in_panel = kb_add(k, kb_mul_const(k, in_panel, MATMUL_PANEL), column);
	struct kb_val to = kb_add(k, kb_mul_const(k, line, GPU_COLUMNS), column);
	for (int i = 0; i < GPU_COLUMNS / MATMUL_PANEL; i++) {
		struct kb_val panel = gpu_panel(g, i);
		int64_t size = l->panel.bytes / (l->panel.lines == PANEL_HALVES ? 2 : 4);
		struct kb_val v;
		if (l->panel.lines == PANEL_CODES) {
			struct kb_val at =
			        kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, panel, l->panel.bytes), 0);
			v = panel_code(k, &l->panel, at, column, element, LANES);
		} else {
			struct kb_val at = kb_add(k, kb_mul_const(k, panel, size), in_panel);
			v = load_w(l, at, element);
		}
		kb_store(k, v, g->tile, to, w_begin(g) + (int64_t)i * MATMUL_PANEL, LANES * 4);
	}
}

/* ---- products ---- */

/* sum[m][h] += x[m][at] w[at][h] for n <= 4 elements along K. */
static void multiply(struct shared_matmul *g, struct kb_val at, int n)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	struct kb_val x[MR_MAX], from = kb_add(k, kb_mul_const(k, g->row, X_ROW), at);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, from, g->operands + (int64_t)m * SIDE * X_ROW, LANES * 4);
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val line = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int i = 0; i < n; i++) {
		for (int h = 0; h < HALVES; h++) {
			int64_t disp = w_begin(g) + (int64_t)i * GPU_COLUMNS + (int64_t)h * SIDE * LANES;
			struct kb_val w = kb_load(k, vec, g->tile, line, disp, LANES * 4);
			for (int m = 0; m < g->mr; m++) {
				struct kb_val e = kb_splat(k, kb_lane(k, x[m], i), LANES);
				kb_set(k, g->sum[m][h], kb_fma(k, e, w, kb_get(k, g->sum[m][h])));
			}
		}
	}
}

/* n <= 16 elements along K. */
static void multiply_step(struct shared_matmul *g, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t whole = n / LANES * LANES;
	if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), LANES, KB_NONEMPTY);
		multiply(g, at, LANES);
		kb_end_loop(k);
	}
	if (n > whole)
		multiply(g, kb_index(k, whole), (int)(n - whole));
}

static void emit_step(struct shared_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	copy_x(g, x, from);
	copy_w(g, from);
	kb_barrier(g->l.k);
	multiply_step(g, n);
	kb_barrier(g->l.k);
}

void gpu_floats(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t whole = l->depth / STEP * STEP;
	struct x_share x;
	if (whole > 0) {
		bool by_vectors = l->norm.before
		                          ? eval_vectorizes(l->eval, l->norm.before->operands[0], l->rank - 1)
		                          : l->along.is_const && l->along.c == 1;
		divide_x(g, &x, by_vectors);
		struct kb_val from =
		        kb_loop(k, "part", kb_index(k, 0), kb_index(k, whole), STEP, KB_NONEMPTY);
		emit_step(g, &x, from, STEP);
		kb_end_loop(k);
	}
	if (whole < l->depth) {
		divide_x(g, &x, false);
		emit_step(g, &x, kb_index(k, whole), l->depth - whole);
	}
}
