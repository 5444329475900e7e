/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of a tile: x, which items copy to shared memory for each other, and vectors of weights, whatever their
 * format.
 */
#include "backends/linear/gpu/internal.h"

/* ---- x ---- */

/* Row of the tile, and place in the row, of vector or element m of this item's share. */
static struct kb_val share_row(const struct shared_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	if (x->per_row >= GPU_ITEMS)
		return kb_index(k, m / (x->per_row / GPU_ITEMS));
	return kb_add_const(k, kb_div_const(k, g->item, x->per_row), m * (GPU_ITEMS / x->per_row));
}

static struct kb_val share_at(const struct shared_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	if (x->per_row >= GPU_ITEMS)
		return kb_add_const(k, g->item, m % (x->per_row / GPU_ITEMS) * GPU_ITEMS);
	return kb_rem_const(k, g->item, x->per_row);
}

/* Divides the elements of x in a step among the items; rows that do not exist are the last one. */
static struct x_share divide_x(struct shared_matmul *g, int64_t step, bool is_vector)
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

static void copy_share(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	int lanes = x->is_vector ? LANES : 1;
	struct kb_val column = kb_mul_const(k, share_at(g, x, m), lanes);
	struct kb_val element = kb_add(k, from, column);
	if (!x->is_vector)
		element = kb_min(k, element, kb_index(k, g->l.depth - 1));
	struct kb_val at = kb_add(k, x->row[m], kb_mul(k, element, g->l.along.v));
	struct kb_val v = kb_load(k, KB_TYPE(KB_F32, lanes), g->l.x->t.ptr, at, 0, 0);
	struct kb_val to = kb_add(k, kb_mul_const(k, share_row(g, x, m), gpu_x_row(x->step)), column);
	kb_store(k, v, g->tile, to, g->operands, x->is_vector ? LANES * 4 : 0);
}

void gpu_copy_x(struct shared_matmul *g, const struct x_share *x, struct kb_val from)
{
	struct kb *k = g->l.k;
	int64_t all = g->rows * x->per_row;
	if (all < GPU_ITEMS) /* not every item has one */
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, all)));
	for (int m = 0; m < x->n; m++)
		copy_share(g, x, m, from);
	if (all < GPU_ITEMS)
		kb_end_if(k);
}

void gpu_walk_steps(struct shared_matmul *g, int64_t step, gpu_step_fn *emit)
{
	struct kb *k = g->l.k;
	int64_t whole = g->l.depth / step * step;
	if (whole > 0) {
		const struct x_share x = divide_x(g, step, g->l.along.is_const && g->l.along.c == 1);
		struct kb_val from =
		        kb_loop(k, "part", kb_index(k, 0), kb_index(k, whole), (int)step, KB_NONEMPTY);
		emit(g, &x, from, step);
		kb_end_loop(k);
	}
	if (whole < g->l.depth) {
		const struct x_share x = divide_x(g, step, false);
		emit(g, &x, kb_index(k, whole), g->l.depth - whole);
	}
}

/* ---- weights ---- */

struct kb_val gpu_panel(const struct shared_matmul *g, int i)
{
	const struct matmul_columns *c = &g->l.columns;
	struct kb *k = g->l.k;
	int64_t half = c->halves > 1 ? i / g->strip : 0;
	struct kb_val at = kb_add_const(k, kb_add(k, g->first_panel, g->before), i - half * g->strip);
	return kb_add_const(k, kb_min(k, at, kb_index(k, c->panels - 1)), half * c->panels);
}

struct kb_val gpu_panel_at(const struct linear *l, struct kb_val panel)
{
	return kb_ptr_add(l->k, l->w->t.ptr, kb_mul_const(l->k, panel, l->panel.bytes), 0);
}

struct kb_val gpu_load_w(const struct linear *l, struct kb_val panel, struct kb_val column, struct kb_val i)
{
	struct kb *k = l->k;
	struct kb_val ptr = l->w->t.ptr, line = i;
	if (l->panel.lines == PANEL_CODES)
		return panel_code(k, &l->panel, gpu_panel_at(l, panel), column, i, LANES);
	if (l->panel.lines == PANEL_PAIRS)
		line = kb_div_const(k, i, 2);
	struct kb_val in_panel = kb_add(k, kb_mul_const(k, line, MATMUL_PANEL), column);
	int64_t size = l->panel.bytes / (l->panel.lines == PANEL_HALVES ? 2 : 4);
	struct kb_val at = kb_add(k, kb_mul_const(k, panel, size), in_panel);
	if (l->panel.lines == PANEL_PAIRS)
		return eval_load_bf16_pair(k, ptr, at, i, LANES);
	if (l->panel.lines == PANEL_HALVES)
		return kb_cvt(k, kb_load(k, KB_TYPE(KB_F16, LANES), ptr, at, 0, LANES * 2), KB_F32);
	return kb_load(k, KB_TYPE(KB_F32, LANES), ptr, at, 0, LANES * 4);
}
