/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of 16 along K is copied to shared memory by all items, then each multiplies its rows (8 apart) by its two vectors
 * of columns. Items whose row or column does not exist load the last one instead. Each element is one chain of fused
 * multiply-adds in increasing k.
 */
#include "backends/linear/gpu/internal.h"

#define STEP 16 /* elements along K in shared memory */

static int64_t w_begin(const struct shared_matmul *g)
{
	return g->operands + g->rows * gpu_x_row(STEP);
}

int64_t gpu_operands(const struct shared_matmul *g)
{
	return w_begin(g) - g->operands + STEP * GPU_COLUMNS;
}

/* Lines [from, from + 16) of four panels -> [STEP, 64]: item i has vector i of each. */
static void copy_w(struct shared_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val line = kb_div_const(k, g->item, VECTORS),
	              column = kb_mul_const(k, kb_rem_const(k, g->item, VECTORS), LANES);
	struct kb_val element = kb_min(k, kb_add(k, from, line), kb_index(k, l->depth - 1));
	struct kb_val to = kb_add(k, kb_mul_const(k, line, GPU_COLUMNS), column);
	for (int i = 0; i < g->panels; i++) {
		struct kb_val v = gpu_load_w(l, gpu_panel(g, i), column, element);
		kb_store(k, v, g->tile, to, w_begin(g) + (int64_t)i * MATMUL_PANEL, LANES * 4);
	}
}

/* sum[m][h] += x[m][at] w[at][h] for n <= 4 elements along K. */
static void multiply(struct shared_matmul *g, struct kb_val at, int n)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	int64_t x_row = gpu_x_row(STEP);
	struct kb_val x[MR_MAX], from = kb_add(k, kb_mul_const(k, g->row, x_row), at);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, from, g->operands + m * SIDE * x_row, LANES * 4);
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val line = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int i = 0; i < n; i++) {
		for (int h = 0; h < HALVES; h++) {
			int64_t disp = w_begin(g) + (int64_t)i * GPU_COLUMNS + (int64_t)h * SIDE * LANES;
			struct kb_val w = kb_load(k, vec, g->tile, line, disp, LANES * 4);
			for (int m = 0; m < g->mr; m++) {
				struct kb_var sum = g->sum[m * HALVES + h];
				struct kb_val e = kb_splat(k, kb_lane(k, x[m], i), LANES);
				kb_set(k, sum, kb_fma(k, e, w, kb_get(k, sum)));
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
	gpu_copy_x(g, x, from);
	copy_w(g, from);
	kb_barrier(g->l.k);
	multiply_step(g, n);
	kb_barrier(g->l.k);
}

void gpu_floats(struct shared_matmul *g)
{
	gpu_walk_steps(g, STEP, emit_step);
}
