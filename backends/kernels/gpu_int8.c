/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-group GEMM in int8: where the kernel before quantized x to int8 (round_rows) and the weights are
 * quantized, devices with dot4 multiply the integers. A K step is a quant block of 32. x was stored as
 * dequantized f32; quantizing it again returns the same quants, and results have the arithmetic of
 * matmul_lowp.c.
 */
#include "backends/kernels/gpu_internal.h"

/* True if a kernel before quantized x by blocks of 32, and no block of weights is shorter. */
bool gpu_has_int8(const struct linear *l)
{
	const struct ir_format_desc *d = ir_format(l->panel.format);
	const struct ir_op *before = ir_def(l->job->func, l->g->root->operands[OPERAND(linear, x)]);
	const struct ir_op *op = before && before->code == OP_group ? ir_group_root(before) : NULL;
	if (!op || op->code != OP_round_rows || before->n_results != 1)
		return false;
	const struct ir_op *last = before->region->ops[before->region->n_ops - 1];
	const struct attrs_round_rows *a = op->attrs;
	return ir_same_value(last->operands[0], op->results[0]) && a->to == ROUND_int8 && a->block == BLOCK &&
	       l->panel.kind == PANEL_QUANTS && d->block % BLOCK == 0 && l->depth % BLOCK == 0 &&
	       l->k_stride.is_const && l->k_stride.c == 1;
}

struct kb_val gpu_x_row_offset(const struct wg_matmul *g, struct kb_val row)
{
	const struct linear *l = &g->l;
	row = kb_add(l->k, g->norm.first, row);
	row = kb_min(l->k, row, kb_add_const(l->k, l->rows, -1));
	struct eval_point p = matmul_point(l, row, kb_index(l->k, 0));
	return eval_offset(l->eval, l->x, &p);
}

/* max |x| of a block; infinite if it contains NaN. */
static struct kb_val block_abs_max(struct kb *k, const struct kb_val *x)
{
	struct kb_val abs_max = kb_splat(k, kb_f32(k, 0), LANES);
	for (int i = 0; i < WORDS; i++)
		abs_max = kb_max(k, rowwise_abs_or_inf(k, x[i]), abs_max);
	return kb_reduce(k, KB_MAX, abs_max);
}

void gpu_quantize_x(const struct wg_matmul *g, struct kb_val row, struct kb_val from, struct kb_val to)
{
	struct kb *k = g->l.k;
	struct kb_val x[WORDS], inverse, scale, sum = kb_splat(k, kb_i32(k, 0), LANES);
	struct kb_val bytes = kb_mul_const(k, to, 4 * X_WORDS);
	to = kb_mul_const(k, to, X_WORDS);
	for (int i = 0; i < WORDS; i++)
		x[i] = kb_load(k, KB_TYPE(KB_F32, LANES), g->l.x->t.ptr, kb_add(k, row, from), 4 * i, 0);
	rowwise_int8_scales(k, block_abs_max(k, x), &inverse, &scale);
	for (int i = 0; i < WORDS; i++) {
		struct kb_val quant = kb_cvt_nearest(k, kb_mul(k, x[i], kb_splat(k, inverse, LANES)));
		kb_store(k, kb_cvt(k, quant, KB_I8), g->tile, bytes, 4 * (g->operands + i), 0);
		sum = kb_add(k, sum, quant);
	}
	sum = kb_cvt(k, kb_reduce(k, KB_ADD, sum), KB_F32);
	kb_store(k, scale, g->tile, to, g->operands + WORDS, 0);
	kb_store(k, kb_mul(k, sum, scale), g->tile, to, g->operands + WORDS + 1, 0);
}

/* Weights follow x in local memory: [WORDS, 64] words of quants, [64] scales, [64] minima. */
static int64_t w_offset(const struct wg_matmul *g)
{
	return g->operands + g->rows * X_WORDS;
}

/* Each item copies two vectors of columns of one word; items of the first word copy the scales, too. */
static void copy_w_int8(const struct wg_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val i = kb_add(k, from, kb_mul_const(k, g->row, 4)),
	              column = kb_mul_const(k, g->column, LANES);
	struct kb_val to = kb_add(k, kb_mul_const(k, g->row, GPU_COLUMNS), column);
	struct kb_val is_first = kb_cmp(k, KB_LT, column, kb_index(k, MATMUL_PANEL));
	struct kb_val in_panel = kb_rem_const(k, column, MATMUL_PANEL);
	for (int h = 0; h < ITEM_VECTORS; h++) {
		int64_t begin = w_offset(g) + (int64_t)h * SIDE * LANES;
		struct kb_val first_panel = gpu_panel(g, ITEM_VECTORS * h),
		              second_panel = gpu_panel(g, ITEM_VECTORS * h + 1);
		struct kb_val at =
		        kb_mul_const(k, kb_select(k, is_first, first_panel, second_panel), l->panel.bytes);
		at = kb_ptr_add(k, l->w->t.ptr, at, 0);
		kb_store(k, panel_load_i8(k, &l->panel, at, in_panel, i, 0, LANES), g->tile, to, begin, 0);
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, SIDE)));
		const struct panel_block b = panel_load_block(k, &l->panel, at, in_panel, from, LANES);
		kb_store(k, b.scale, g->tile, to, begin + (int64_t)WORDS * GPU_COLUMNS, 0);
		if (b.offset.id)
			kb_store(k, b.offset, g->tile, to, begin + (int64_t)(WORDS + 1) * GPU_COLUMNS, 0);
		kb_end_if(k);
	}
}

/* Sums a quant block in i32. */
static void multiply_block(const struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, LANES);
	struct kb_val x[MR_MAX], row = kb_mul_const(k, g->row, X_WORDS),
	                         column = kb_mul_const(k, g->column, LANES);
	for (int i = 0; i < g->n_acc; i++)
		kb_set(k, g->dot[i], kb_splat(k, kb_i32(k, 0), LANES));
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, WORDS), LANES, KB_NONEMPTY);
	struct kb_val k_row = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, kb_add(k, row, at), g->operands + (int64_t)m * SIDE * X_WORDS,
		               0);
	for (int i = 0; i < LANES * ITEM_VECTORS; i++) {
		int64_t disp =
		        (int64_t)i / ITEM_VECTORS * GPU_COLUMNS + (int64_t)i % ITEM_VECTORS * SIDE * LANES;
		struct kb_val w = kb_load(k, vec, g->tile, k_row, w_offset(g) + disp, 0);
		for (int m = 0; m < g->mr; m++) {
			struct kb_var dot = g->dot[m * ITEM_VECTORS + i % ITEM_VECTORS];
			struct kb_val e = kb_splat(k, kb_lane(k, x[m], i / ITEM_VECTORS), LANES);
			kb_set(k, dot, kb_dot_s8s8(k, kb_get(k, dot), w, e));
		}
	}
	kb_end_loop(k);
}

struct kb_val gpu_add_scaled(const struct wg_matmul *g, struct kb_val sum, struct kb_val dot,
                             const struct panel_block *w, struct kb_val x, int64_t disp)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	struct kb_val d = kb_load_splat(k, vec, g->tile, x, g->operands + disp + WORDS);
	struct kb_val scale = kb_mul(k, d, w->scale);
	sum = kb_fma(k, kb_cvt(k, dot, KB_F32), scale, sum);
	if (!w->offset.id)
		return sum;
	return kb_fma(k, w->offset, kb_load_splat(k, vec, g->tile, x, g->operands + disp + WORDS + 1), sum);
}

/* Scales the i32 sums of a quant block and adds them to the f32 accumulators. */
static void scale_block(const struct wg_matmul *g, bool has_offset)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	struct kb_val row = kb_mul_const(k, g->row, X_WORDS), column = kb_mul_const(k, g->column, LANES);
	int64_t begin = w_offset(g) + (int64_t)WORDS * GPU_COLUMNS;
	for (int i = 0; i < g->n_acc; i++) {
		int64_t of_row = (int64_t)(i / ITEM_VECTORS) * SIDE * X_WORDS,
		        of_column = begin + (int64_t)(i % ITEM_VECTORS) * SIDE * LANES;
		struct panel_block w = {.scale = kb_load(k, vec, g->tile, column, of_column, 0)};
		if (has_offset)
			w.offset = kb_load(k, vec, g->tile, column, of_column + GPU_COLUMNS, 0);
		struct kb_val dot = kb_get(k, g->dot[i]);
		kb_set(k, g->acc[i], gpu_add_scaled(g, kb_get(k, g->acc[i]), dot, &w, row, of_row));
	}
}

void gpu_int8(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	const struct ir_format_desc *d = ir_format(g->l.panel.format);
	size_t mark = eval_mark(g->l.eval);
	struct kb_val row = gpu_x_row_offset(g, g->item);
	struct kb_val from = kb_loop(k, "block", kb_index(k, 0), kb_index(k, g->l.depth), BLOCK, KB_NONEMPTY);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, g->rows)));
	gpu_quantize_x(g, row, from, g->item);
	kb_end_if(k);
	copy_w_int8(g, from);
	kb_barrier(k);
	multiply_block(g);
	scale_block(g, d->has_offset);
	kb_barrier(k);
	kb_end_loop(k);
	eval_release(g->l.eval, mark);
}
