/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work-group GEMM: 8 x 8 items share a tile of rows and 64 columns of the result. Finished tiles go through a
 * C buffer in local memory, so that the epilogue is emitted once and stores complete rows. With outputs by
 * ranges of columns (q k v), an N block of whole heads, some tiles wide, does. If a norm follows, a group has
 * all columns of its rows; the operand of the norm is stored where the result goes. Items whose row or column
 * does not exist store nothing, but reach all barriers.
 *
 * gpu_nest.h defines tile, item, K step and N block; all decisions are taken there, from struct gemm. All items copy a
 * K step to local memory, wait at a barrier, multiply, and wait again before the next step overwrites it. The epilogue
 * runs when the results of an N block are in the C buffer.
 *
 * Many rows: an item has mr rows, 8 apart, and two vectors of 4 columns, 32 apart, so that neighbouring items read
 * neighbouring words of local memory. Few rows (skinny; at most 4): the items of a group split K (split-K), each weight
 * is read by one item into registers, and partial results are added at the end in a fixed order. int8: where the kernel
 * before quantized x by blocks of 32, devices with dot4 multiply integers (kb_device_dot, known at run time): x is
 * quantized again, to the same quants.
 *
 * Functions emit kernel IR: an `if` of C decides by facts of the model, kb_if in the call. eval_mark and eval_release
 * bracket what is cached in one scope of the emitted code.
 */
#include "backends/kernels/gpu_nest.h"
#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"

struct wg_matmul {
	struct linear l;
	const struct gpu_tile *tile;
	struct kb_val item;             /* local id */
	struct kb_val row, column;      /* item / tile->item_columns and the remainder */
	struct kb_val local;            /* local memory */
	struct kb_val first_panel;      /* of the open N block */
	struct kb_val before;           /* panels of the block before the open tile */
	struct rowwise_tile norm;       /* rows of the tile, also for a norm after the product */
	struct kb_var acc[GPU_ACC_MAX]; /* f32 accumulators */
	struct kb_var dot[GPU_ACC_MAX]; /* i32 accumulators of a quant block */
};

/* The copy of x of an item, in each K step. */
struct x_share {
	const struct gpu_copy *copy;
	struct kb_val row[GPU_COPIES_MAX]; /* offset in x of the row of each vector, in elements */
};

/* ---- x: items whose row does not exist load the last one ---- */

/* Row of the tile of vector or element m of this item's share: items take consecutive ones, so that neighbours read
 * neighbouring addresses. A row of at least 64 is read by all items at once; of shorter rows, several at once. */
static struct kb_val share_row(const struct wg_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	int64_t per_row = x->copy->per_row;
	if (per_row >= GPU_ITEMS)
		return kb_index(k, m / (per_row / GPU_ITEMS));
	return kb_add_const(k, kb_div_const(k, g->item, per_row), m * (GPU_ITEMS / per_row));
}

/* Position in its row of vector or element m of this item's share (share_row). */
static struct kb_val share_at(const struct wg_matmul *g, const struct x_share *x, int m)
{
	struct kb *k = g->l.k;
	int64_t per_row = x->copy->per_row;
	if (per_row >= GPU_ITEMS)
		return kb_add_const(k, g->item, m % (per_row / GPU_ITEMS) * GPU_ITEMS);
	return kb_rem_const(k, g->item, per_row);
}

/* Offset in x of row `row` of the tile, clamped to the last row. */
static struct kb_val gpu_x_row_offset(const struct wg_matmul *g, struct kb_val row)
{
	const struct linear *l = &g->l;
	row = kb_add(l->k, g->norm.first, row);
	row = kb_min(l->k, row, kb_add_const(l->k, l->rows, -1));
	struct eval_point p = matmul_point(l, row, kb_index(l->k, 0));
	return eval_offset(l->eval, l->x, &p);
}

/* The offsets of the rows of this item's share, before the loop over steps; rows that do not exist are clamped to the
 * last one, so that loads stay inside. */
static struct x_share bind_share(const struct wg_matmul *g, const struct gpu_copy *copy)
{
	struct x_share x = {.copy = copy};
	for (int m = 0; m < copy->n; m++) {
		size_t mark = eval_mark(g->l.eval);
		x.row[m] = gpu_x_row_offset(g, share_row(g, &x, m));
		eval_release(g->l.eval, mark);
	}
	return x;
}

/* Copies this item's share of x[first row .., from ..] to the operands. Elements at or beyond K, which only the single
 * elements of the remainder reach, repeat others of the row. */
static void gpu_copy_x(struct wg_matmul *g, const struct x_share *x, struct kb_val from)
{
	struct kb *k = g->l.k;
	int lanes = x->copy->lanes;
	bool is_partial = x->copy->items < GPU_ITEMS;
	if (is_partial)
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, x->copy->items)));
	for (int m = 0; m < x->copy->n; m++) {
		struct kb_val column = kb_mul_const(k, share_at(g, x, m), lanes);
		struct kb_val element = kb_add(k, from, column);
		if (lanes == 1)
			element = kb_min(k, element, kb_index(k, g->l.gemm.depth - 1));
		struct kb_val at = kb_add(k, x->row[m], kb_mul(k, element, g->l.k_stride.v));
		struct kb_val v = kb_load(k, KB_TYPE(KB_F32, lanes), g->l.x->t.ptr, at, 0, 0);
		struct kb_val to = kb_mul_const(k, share_row(g, x, m), g->tile->f32.x_row);
		to = kb_add(k, to, column);
		kb_store(k, v, g->local, to, g->tile->operands, lanes > 1 ? lanes * 4 : 0);
	}
	if (is_partial)
		kb_end_if(k);
}

/* ---- weights: items whose column does not exist load the last one ---- */

/* Number of panel i of the open tile, clamped to the last panel, so that loads stay inside; with two projections the
 * second half of i is of the second. */
static struct kb_val gpu_panel(const struct wg_matmul *g, int i)
{
	const struct matmul_columns *c = &g->l.gemm.columns;
	struct kb *k = g->l.k;
	int64_t mat = c->mats > 1 ? i / g->tile->nc : 0;
	struct kb_val at = kb_add_const(k, kb_add(k, g->first_panel, g->before), i - mat * g->tile->nc);
	return kb_add_const(k, kb_min(k, at, kb_index(k, c->panels - 1)), mat * c->panels);
}

/* Address of a panel. */
static struct kb_val gpu_panel_at(const struct linear *l, struct kb_val panel)
{
	return kb_ptr_add(l->k, l->w->t.ptr, kb_mul_const(l->k, panel, l->gemm.panel.bytes), 0);
}

/* ---- products ---- */

/* Copies K elements [from, from + 16) of four panels to [16, 64]: an item has one vector of one K element of each
 * panel. Elements at or beyond K repeat the last one and are not multiplied. */
static void copy_w(struct wg_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val k_row = kb_div_const(k, g->item, GPU_PANEL_VECTORS),
	              column = kb_mul_const(k, kb_rem_const(k, g->item, GPU_PANEL_VECTORS), GPU_LANES);
	struct kb_val element = kb_min(k, kb_add(k, from, k_row), kb_index(k, l->gemm.depth - 1));
	struct kb_val to = kb_add(k, kb_mul_const(k, k_row, GPU_COLUMNS), column);
	for (int i = 0; i < g->tile->panels; i++) {
		struct kb_val panel = gpu_panel(g, i);
		struct kb_val v =
		        panel_load_element(k, &l->gemm.panel, l->w->t.ptr, panel, column, element, GPU_LANES);
		kb_store(k, v, g->local, to, g->tile->f32.w + (int64_t)i * MATMUL_PANEL, GPU_LANES * 4);
	}
}

/* acc[m][h] += x[m][at + i] w[at + i][h] for n <= 4 K elements; h: vector of columns of the item. x is loaded once, as
 * a vector of four elements. */
static void multiply_f32(struct wg_matmul *g, struct kb_val at, int n)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, GPU_LANES);
	int64_t x_row = g->tile->f32.x_row;
	struct kb_val x[GPU_MR_MAX], from = kb_add(k, kb_mul_const(k, g->row, x_row), at);
	for (int m = 0; m < g->tile->mr; m++)
		x[m] = kb_load(k, vec, g->local, from, g->tile->operands + m * GPU_SIDE * x_row,
		               GPU_LANES * 4);
	struct kb_val column = kb_mul_const(k, g->column, GPU_LANES);
	struct kb_val k_row = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int i = 0; i < n; i++) {
		for (int h = 0; h < GPU_ITEM_VECTORS; h++) {
			int64_t disp =
			        g->tile->f32.w + (int64_t)i * GPU_COLUMNS + (int64_t)h * GPU_SIDE * GPU_LANES;
			struct kb_val w = kb_load(k, vec, g->local, k_row, disp, GPU_LANES * 4);
			for (int m = 0; m < g->tile->mr; m++) {
				struct kb_var sum = g->acc[m * GPU_ITEM_VECTORS + h];
				struct kb_val e = kb_splat(k, kb_lane(k, x[m], i), GPU_LANES);
				kb_set(k, sum, kb_fma(k, e, w, kb_get(k, sum)));
			}
		}
	}
}

/* Multiplies the n K elements of a step, which are in local memory, four at a time. */
static void multiply_step(struct wg_matmul *g, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t full = n / GPU_LANES * GPU_LANES;
	if (full > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, full), GPU_LANES, KB_NONEMPTY);
		multiply_f32(g, at, GPU_LANES);
		kb_end_loop(k);
	}
	if (n > full)
		multiply_f32(g, kb_index(k, full), (int)(n - full));
}

/* ---- int8 ---- */

/* A K step is a quant block of 32. x was stored as dequantized f32; results have the arithmetic of matmul_lowp.c. */

/* Elements of a block of x, if the group that computes x ends with quantize_rows to int8 and has no other result; 0:
 * it does not. */
static int64_t int8_block_of_x(const struct linear *l)
{
	const struct ir_op *before = ir_def(l->job->func, l->g->root->operands[OPERAND(linear, x)]);
	const struct ir_op *op = before && before->code == OP_group ? ir_group_root(before) : NULL;
	if (!op || op->code != OP_quantize_rows || before->n_results != 1)
		return 0;
	const struct ir_op *last = before->region->ops[before->region->n_ops - 1];
	const struct attrs_quantize_rows *a = op->attrs;
	return ir_same_value(last->operands[0], op->results[0]) && a->to == ROUND_int8 ? a->block : 0;
}

/* Quantizes the block of x at element `from` of the row at offset `row` (as matmul_prologue.c does), into block `to` of
 * the operands: 8 words of quants, the scale, and scale * sum for weights with minima. */
static void gpu_quantize_x(const struct wg_matmul *g, struct kb_val row, struct kb_val from, struct kb_val to)
{
	struct kb *k = g->l.k;
	struct kb_val x[GPU_WORDS], inverse, scale, sum = kb_splat(k, kb_i32(k, 0), GPU_LANES);
	struct kb_val abs_max; /* infinite if the block contains NaN */
	struct kb_val bytes = kb_mul_const(k, to, 4 * GPU_X_WORDS);
	to = kb_mul_const(k, to, GPU_X_WORDS);
	for (int i = 0; i < GPU_WORDS; i++)
		x[i] = kb_load(k, KB_TYPE(KB_F32, GPU_LANES), g->l.x->t.ptr, kb_add(k, row, from), 4 * i, 0);
	abs_max = kb_splat(k, kb_f32(k, 0), GPU_LANES);
	for (int i = 0; i < GPU_WORDS; i++)
		abs_max = kb_max(k, rowwise_abs_or_inf(k, x[i]), abs_max);
	rowwise_int8_scales(k, kb_reduce(k, KB_MAX, abs_max), &inverse, &scale);
	for (int i = 0; i < GPU_WORDS; i++) {
		struct kb_val quant = kb_cvt_nearest(k, kb_mul(k, x[i], kb_splat(k, inverse, GPU_LANES)));
		kb_store(k, kb_cvt(k, quant, KB_I8), g->local, bytes, 4 * (g->tile->operands + i), 0);
		sum = kb_add(k, sum, quant);
	}
	sum = kb_cvt(k, kb_reduce(k, KB_ADD, sum), KB_F32);
	kb_store(k, scale, g->local, to, g->tile->operands + GPU_WORDS, 0);
	kb_store(k, kb_mul(k, sum, scale), g->local, to, g->tile->operands + GPU_WORDS + 1, 0);
}

/* Copies the quant block from K element `from` on of the tile's 64 columns: each item two vectors of columns of one
 * word (four K elements, signed bytes); items of the first word copy scales and minima, too. Half a tile is two
 * panels: the item's columns are in the first or the second of them. */
static void copy_w_int8(const struct wg_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val i = kb_add(k, from, kb_mul_const(k, g->row, 4)),
	              column = kb_mul_const(k, g->column, GPU_LANES);
	struct kb_val to = kb_add(k, kb_mul_const(k, g->row, GPU_COLUMNS), column);
	struct kb_val is_first = kb_cmp(k, KB_LT, column, kb_index(k, MATMUL_PANEL));
	struct kb_val in_panel = kb_rem_const(k, column, MATMUL_PANEL);
	for (int h = 0; h < GPU_ITEM_VECTORS; h++) {
		int64_t begin = g->tile->int8.w + (int64_t)h * GPU_SIDE * GPU_LANES;
		struct kb_val first_panel = gpu_panel(g, GPU_ITEM_VECTORS * h),
		              second_panel = gpu_panel(g, GPU_ITEM_VECTORS * h + 1);
		struct kb_val at = kb_mul_const(k, kb_select(k, is_first, first_panel, second_panel),
		                                l->gemm.panel.bytes);
		at = kb_ptr_add(k, l->w->t.ptr, at, 0);
		kb_store(k, panel_load_i8(k, &l->gemm.panel, at, in_panel, i, ANY_WORD, GPU_LANES), g->local,
		         to, begin, 0);
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, GPU_SIDE)));
		const struct panel_block b =
		        panel_load_block(k, &l->gemm.panel, at, in_panel, from, GPU_LANES);
		kb_store(k, b.scale, g->local, to, begin + (int64_t)GPU_WORDS * GPU_COLUMNS, 0);
		if (b.offset.id)
			kb_store(k, b.offset, g->local, to, begin + (int64_t)(GPU_WORDS + 1) * GPU_COLUMNS,
			         0);
		kb_end_if(k);
	}
}

/* Dot products of a quant block in i32, from 0 (g->dot): four words of each row of x at a time, as one vector. */
static void multiply_int8(const struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, GPU_LANES);
	struct kb_val x[GPU_MR_MAX], row = kb_mul_const(k, g->row, GPU_X_WORDS),
	                             column = kb_mul_const(k, g->column, GPU_LANES);
	for (int i = 0; i < g->tile->n_acc; i++)
		kb_set(k, g->dot[i], kb_splat(k, kb_i32(k, 0), GPU_LANES));
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, GPU_WORDS), GPU_LANES, KB_NONEMPTY);
	struct kb_val k_row = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int m = 0; m < g->tile->mr; m++)
		x[m] = kb_load(k, vec, g->local, kb_add(k, row, at),
		               g->tile->operands + (int64_t)m * GPU_SIDE * GPU_X_WORDS, 0);
	for (int i = 0; i < GPU_LANES * GPU_ITEM_VECTORS; i++) {
		int64_t disp = (int64_t)i / GPU_ITEM_VECTORS * GPU_COLUMNS +
		               (int64_t)i % GPU_ITEM_VECTORS * GPU_SIDE * GPU_LANES;
		struct kb_val w = kb_load(k, vec, g->local, k_row, g->tile->int8.w + disp, 0);
		for (int m = 0; m < g->tile->mr; m++) {
			struct kb_var dot = g->dot[m * GPU_ITEM_VECTORS + i % GPU_ITEM_VECTORS];
			struct kb_val e = kb_splat(k, kb_lane(k, x[m], i / GPU_ITEM_VECTORS), GPU_LANES);
			kb_set(k, dot, kb_dot_s8s8(k, kb_get(k, dot), w, e));
		}
	}
	kb_end_loop(k);
}

/* sum + scale_x scale_w dot (+ minimum_w sum_x), for the block of x at element x + disp of the operands. */
static struct kb_val gpu_add_scaled(const struct wg_matmul *g, struct kb_val sum, struct kb_val dot,
                                    const struct panel_block *w, struct kb_val x, int64_t disp)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, GPU_LANES);
	struct kb_val d = kb_load_splat(k, vec, g->local, x, g->tile->operands + disp + GPU_WORDS);
	struct kb_val scale = kb_mul(k, d, w->scale);
	sum = kb_fma(k, kb_cvt(k, dot, KB_F32), scale, sum);
	if (!w->offset.id)
		return sum;
	return kb_fma(k, w->offset,
	              kb_load_splat(k, vec, g->local, x, g->tile->operands + disp + GPU_WORDS + 1), sum);
}

/* Scales the i32 dot products of a quant block and adds them to the f32 accumulators. */
static void scale_block(const struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, GPU_LANES);
	struct kb_val row = kb_mul_const(k, g->row, GPU_X_WORDS),
	              column = kb_mul_const(k, g->column, GPU_LANES);
	int64_t begin = g->tile->int8.w + (int64_t)GPU_WORDS * GPU_COLUMNS;
	for (int i = 0; i < g->tile->n_acc; i++) {
		int64_t of_row = (int64_t)(i / GPU_ITEM_VECTORS) * GPU_SIDE * GPU_X_WORDS,
		        of_column = begin + (int64_t)(i % GPU_ITEM_VECTORS) * GPU_SIDE * GPU_LANES;
		struct panel_block w = {.scale = kb_load(k, vec, g->local, column, of_column, 0)};
		if (g->tile->int8.has_minima)
			w.offset = kb_load(k, vec, g->local, column, of_column + GPU_COLUMNS, 0);
		struct kb_val dot = kb_get(k, g->dot[i]);
		kb_set(k, g->acc[i], gpu_add_scaled(g, kb_get(k, g->acc[i]), dot, &w, row, of_row));
	}
}

/* ---- few rows ---- */

/*
 * Work-group GEMM of few rows, bound by reading weights (decode). Of 64 K elements an item has four, and of these a
 * vector of four columns of each panel; neighbours read neighbouring addresses (coalesced). Each weight is read by one
 * item, into registers; x is read by all items, from local memory, in long K steps. Each result is 16 chains of FMAs
 * over K, added in a fixed order at the end, in any format.
 */

#define K_PER_ITERATION (GPU_LANES * GPU_K_ITEMS) /* four of each item */

/* ---- f32 ---- */

/* Opens a branch for the rows after the first, which is often the only one. */
static void if_more_rows(const struct wg_matmul *g)
{
	kb_if(g->l.k, kb_cmp(g->l.k, KB_GT, g->norm.rows, kb_index(g->l.k, 1)));
}

/* acc[m][p] += x[m][element .. element + n - 1] w[p][..] for rows [first, end) of the tile and all its panels. */
static void multiply_rows(struct wg_matmul *g, struct kb_val element, int n, struct kb_val w[][GPU_LANES],
                          int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	for (int64_t m = first; m < end; m++) {
		int64_t disp = g->tile->operands + m * g->tile->f32.x_row;
		struct kb_val x = kb_load(k, KB_TYPE(KB_F32, n), g->local, element, disp,
		                          n == GPU_LANES ? GPU_LANES * 4 : 0);
		for (int u = 0; u < n; u++) {
			struct kb_val e = kb_splat(k, n > 1 ? kb_lane(k, x, u) : x, GPU_LANES);
			for (int64_t i = 0; i < g->tile->panels; i++) {
				struct kb_var sum = g->acc[m * g->tile->panels + i];
				kb_set(k, sum, kb_fma(k, e, w[i][u], kb_get(k, sum)));
			}
		}
	}
}

/* Multiplies the n K elements of the step that begins at `from`: 64 at a time, four of each item, with code for row 0
 * outside of the branch that the other rows need; then the remainder, one at a time, each of the item's four checked,
 * as they need not all exist. w[p][u]: this item's columns of its element u, of panel p. */
static void multiply_few_step(struct wg_matmul *g, struct kb_val from, int64_t n)
{
	struct kb *k = g->l.k;
	const struct panel *layout = &g->l.gemm.panel;
	int64_t full = n / K_PER_ITERATION * K_PER_ITERATION;
	struct kb_val w[MATMUL_NC][GPU_LANES];
	if (full > 0) {
		struct kb_val at =
		        kb_loop(k, "k", kb_index(k, 0), kb_index(k, full), K_PER_ITERATION, KB_NONEMPTY);
		struct kb_val element = kb_add(k, at, kb_mul_const(k, g->row, GPU_LANES));
		struct kb_val i = kb_add(k, from, element), column = kb_mul_const(k, g->column, GPU_LANES);
		for (int p = 0; p < g->tile->panels; p++) {
			struct kb_val panel = gpu_panel_at(&g->l, gpu_panel(g, p));
			panel_load_four(k, layout, panel, column, i, GPU_LANES, w[p]);
		}
		multiply_rows(g, element, GPU_LANES, w, 0, 1);
		if (g->tile->rows > 1) {
			if_more_rows(g);
			multiply_rows(g, element, GPU_LANES, w, 1, g->tile->rows);
			kb_end_if(k);
		}
		kb_end_loop(k);
	}
	if (full == n)
		return;
	struct kb_val column = kb_mul_const(k, g->column, GPU_LANES);
	struct kb_val at = kb_add(k, kb_index(k, full), kb_mul_const(k, g->row, GPU_LANES));
	for (int u = 0; u < GPU_LANES; u++) {
		struct kb_val element = kb_add_const(k, at, u), i = kb_add(k, from, element);
		kb_if(k, kb_cmp(k, KB_LT, element, kb_index(k, n)));
		for (int p = 0; p < g->tile->panels; p++) {
			struct kb_val panel = gpu_panel(g, p);
			w[p][0] = panel_load_element(k, layout, g->l.w->t.ptr, panel, column, i, GPU_LANES);
		}
		multiply_rows(g, element, 1, w, 0, g->tile->rows);
		kb_end_if(k);
	}
}

/* ---- int8 ---- */

/* Rows [first, end) times a quant block of a panel, whose words are w: dot product in i32, scaled into g->acc. The
 * item's block of x is the one of its place along K. */
static void multiply_words(struct wg_matmul *g, int64_t panel, const struct kb_val *w,
                           const struct panel_block *b, int64_t first, int64_t end)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, GPU_LANES);
	struct kb_val x = kb_mul_const(k, g->row, GPU_X_WORDS);
	for (int64_t m = first; m < end; m++) {
		struct kb_var sum = g->acc[m * g->tile->panels + panel];
		struct kb_val dot = kb_splat(k, kb_i32(k, 0), GPU_LANES);
		int64_t row = m * GPU_K_ITEMS * GPU_X_WORDS;
		for (int i = 0; i < GPU_WORDS; i++)
			dot = kb_dot_s8s8(k, dot, w[i],
			                  kb_load_splat(k, vec, g->local, x, g->tile->operands + row + i));
		kb_set(k, sum, gpu_add_scaled(g, kb_get(k, sum), dot, b, x, row));
	}
}

/* This item's quant block, from K element i on, of each panel: weights are loaded once for all rows. */
static void multiply_few_int8(struct wg_matmul *g, struct kb_val i)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, GPU_LANES), w[GPU_WORDS];
	for (int p = 0; p < g->tile->panels; p++) {
		struct kb_val at = gpu_panel_at(&g->l, gpu_panel(g, p));
		const struct panel_block b = panel_load_block(k, &g->l.gemm.panel, at, column, i, GPU_LANES);
		for (int word = 0; word < GPU_WORDS; word++)
			w[word] = panel_load_i8(k, &g->l.gemm.panel, at, column, i, word, GPU_LANES);
		multiply_words(g, p, w, &b, 0, 1);
		if (g->tile->rows == 1)
			continue;
		if_more_rows(g);
		multiply_words(g, p, w, &b, 1, g->tile->rows);
		kb_end_if(k);
	}
}

/* ---- reduction over items ---- */

/* Reduces what the items that split K have: each stores its accumulators in local memory, [GPU_K_ITEMS][n_acc][16];
 * after a barrier an item adds up one vector, in order of K, and stores it in the C buffer at the open tile. */
static void add_k_shares(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, GPU_LANES);
	int64_t item_stride = (int64_t)g->tile->n_acc * MATMUL_PANEL;
	struct kb_val column = kb_mul_const(k, g->column, GPU_LANES);
	struct kb_val item_block = kb_add(k, kb_mul_const(k, g->row, item_stride), column);
	for (int i = 0; i < g->tile->n_acc; i++)
		kb_store(k, kb_get(k, g->acc[i]), g->local, item_block,
		         g->tile->operands + (int64_t)i * MATMUL_PANEL, GPU_LANES * 4);
	kb_barrier(k);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->tile->n_acc * GPU_PANEL_VECTORS)));
	struct kb_val from = kb_mul_const(k, g->item, GPU_LANES);
	struct kb_val sum = kb_load(k, vec, g->local, from, g->tile->operands, GPU_LANES * 4);
	for (int i = 1; i < GPU_K_ITEMS; i++)
		sum = kb_add(
		        k, sum,
		        kb_load(k, vec, g->local, from, g->tile->operands + i * item_stride, GPU_LANES * 4));
	struct kb_val row = kb_div_const(k, g->row, g->tile->panels),
	              panel = kb_rem_const(k, g->row, g->tile->panels);
	panel = kb_mul_const(k, kb_add(k, panel, g->before), MATMUL_PANEL);
	struct kb_val to = kb_add(k, panel, column);
	to = kb_add(k, kb_mul_const(k, row, g->tile->width), to);
	kb_store(k, sum, g->local, to, 0, GPU_LANES * 4);
	kb_end_if(k);
}

/* ---- a tile ---- */

/* K elements [from, from + n), n <= step: all items copy both operands (few rows: x alone), then multiply what all have
 * copied. */
static void emit_step(struct wg_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	struct kb *k = g->l.k;
	gpu_copy_x(g, x, from);
	if (!g->tile->splits_k)
		copy_w(g, from);
	kb_barrier(k);
	if (g->tile->splits_k)
		multiply_few_step(g, from, n);
	else
		multiply_step(g, n);
	kb_barrier(k);
}

/* Adds the f32 product of the open tile to g->acc: in a loop over full steps, then the remainder, whose single elements
 * are clamped to K. */
static void loop_steps(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	int64_t step = g->tile->f32.step, full = g->l.gemm.depth / step * step;
	if (full > 0) {
		const struct x_share x = bind_share(g, &g->tile->f32.full);
		struct kb_val from =
		        kb_loop(k, "block", kb_index(k, 0), kb_index(k, full), (int)step, KB_NONEMPTY);
		emit_step(g, &x, from, step);
		kb_end_loop(k);
	}
	if (full < g->l.gemm.depth) {
		const struct x_share x = bind_share(g, &g->tile->f32.tail);
		emit_step(g, &x, kb_index(k, full), g->l.gemm.depth - full);
	}
}

/* Adds the integer product of the open tile to g->acc: items quantize a block of x each, all of one K position or, for
 * few rows, of 16, of which an item multiplies its own. Blocks beyond K are clamped when quantized, and not
 * multiplied. */
static void loop_quant_blocks(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	size_t mark = eval_mark(g->l.eval);
	bool splits_k = g->tile->splits_k;
	int64_t blocks = splits_k ? GPU_K_ITEMS : 1;
	struct kb_val depth = kb_index(k, g->l.gemm.depth), last = kb_index(k, g->l.gemm.depth - GPU_BLOCK);
	struct kb_val row = gpu_x_row_offset(g, kb_div_const(k, g->item, blocks));
	struct kb_val item_block = kb_mul_const(k, kb_rem_const(k, g->item, blocks), GPU_BLOCK);
	struct kb_val from = kb_loop(k, "block", kb_index(k, 0), depth, blocks * GPU_BLOCK, KB_NONEMPTY);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, g->tile->rows * blocks)));
	struct kb_val at = kb_add(k, from, item_block);
	gpu_quantize_x(g, row, splits_k ? kb_min(k, at, last) : at, g->item);
	kb_end_if(k);
	if (!splits_k)
		copy_w_int8(g, from);
	kb_barrier(k);
	if (splits_k) {
		struct kb_val i = kb_add(k, from, kb_mul_const(k, g->row, GPU_BLOCK));
		kb_if(k, kb_cmp(k, KB_LT, i, depth));
		multiply_few_int8(g, i);
		kb_end_if(k);
	} else {
		multiply_int8(g);
		scale_block(g);
	}
	kb_barrier(k);
	kb_end_loop(k);
	eval_release(g->l.eval, mark);
}

/* Stores the item's accumulators where its rows and columns are in the C buffer. */
static void store_acc(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, GPU_LANES);
	column = kb_add(k, column, kb_mul_const(k, g->before, MATMUL_PANEL));
	struct kb_val at = kb_add(k, kb_mul_const(k, g->row, g->tile->width), column);
	for (int i = 0; i < g->tile->n_acc; i++)
		kb_store(k, kb_get(k, g->acc[i]), g->local, at,
		         i / GPU_ITEM_VECTORS * GPU_SIDE * g->tile->width +
		                 (int64_t)(i % GPU_ITEM_VECTORS) * GPU_SIDE * GPU_LANES,
		         GPU_LANES * 4);
}

/* Multiplies a tile and stores it in the C buffer. Whether the device multiplies int8 is known at run time only, so
 * both loops are emitted. */
static void emit_tile_product(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	for (int i = 0; i < g->tile->n_acc; i++)
		kb_set(k, g->acc[i], kb_splat(k, kb_f32(k, 0), GPU_LANES));
	if (g->tile->int8.is_on) {
		kb_if(k, kb_device_dot(k));
		loop_quant_blocks(g);
		kb_else(k);
	}
	loop_steps(g);
	if (g->tile->int8.is_on)
		kb_end_if(k);
	if (g->tile->splits_k)
		add_k_shares(g);
	else
		store_acc(g);
}

/* ---- N blocks ---- */

/* An N block: its tiles, then the epilogue over all its columns. Barriers: all tiles are in the C buffer before the
 * epilogue, whose items read what others stored; and the epilogue is done before local memory is overwritten. */
static void emit_n_block(struct wg_matmul *g)
{
	struct kb *k = g->l.k;
	bool is_one_tile = g->tile->width == g->tile->panels * MATMUL_PANEL;
	g->before = kb_index(k, 0);
	if (!is_one_tile)
		g->before = kb_loop(k, "panel", g->before, kb_index(k, g->tile->nc), (int)g->tile->panels,
		                    KB_NONEMPTY);
	emit_tile_product(g);
	if (!is_one_tile && g->tile->splits_k)
		kb_barrier(k); /* before the next tile overwrites the partial sums */
	if (!is_one_tile)
		kb_end_loop(k);
	kb_barrier(k);
	struct matmul_block s = {.rows = g->l.rows, .begin = g->first_panel};
	s.end = kb_min(k, kb_add_const(k, s.begin, g->tile->nc), kb_index(k, g->l.gemm.columns.panels));
	matmul_epilogue(&g->l, &s, g->norm.first, g->norm.rows);
	kb_barrier(k); /* before the next N block overwrites the C buffer */
}

/* ---- tasks ---- */

/* All columns of the rows of the tile are stored, then normalized in place: the norm reads complete rows from the
 * result, which is bound as its operand from here on. Statistics are computed by all items together; then items take
 * elements in turn. */
static void emit_norm_after(struct wg_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct rowwise_tile tile = g->norm;
	g->first_panel = kb_loop(k, "n_block", kb_index(k, 0), kb_index(k, l->gemm.columns.panels),
	                         (int)g->tile->nc, KB_NONEMPTY);
	emit_n_block(g);
	kb_end_loop(k);
	size_t mark = eval_mark(l->eval);
	tile.norm = l->norm.after;
	eval_set_tensor(l->eval, l->out.value, &l->out.to, &(struct eval_bias){0});
	rowwise_tile_stats(&tile);
	struct kb_val i =
	        kb_loop(k, "i", g->item, kb_mul_const(k, tile.rows, l->gemm.columns.n), GPU_ITEMS, 0);
	struct kb_val row = kb_div_const(k, i, l->gemm.columns.n),
	              column = kb_rem_const(k, i, l->gemm.columns.n);
	struct eval_point p = matmul_point(l, kb_add(k, g->norm.first, row), column);
	p.vec = -1;
	struct kb_val value = rowwise_tile_normalized(&tile, row, &p, 1);
	eval_bind(l->eval, eval_result(tile.norm), &p, value);
	eval_store_output(l->eval, &l->g->out.items[0], &p);
	kb_end_loop(k);
	eval_release(l->eval, mark);
	kb_barrier(k); /* before the next tile overwrites the statistics of the rows */
}

/* Loop over tasks (row tile, N block): group, group + groups, ..; consecutive tasks differ in rows, so that groups that
 * run at once share weights. With a norm after the product a task is all columns of a row tile. */
static void emit_tiles(struct wg_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t n_blocks = l->norm.after ? 1 : ceil_div(l->gemm.columns.panels, g->tile->nc);
	struct kb_val m_tiles = kb_div_const(k, kb_add_const(k, l->rows, g->tile->rows - 1), g->tile->rows);
	struct kb_var next = kb_var(k, "tile", KB_INDEX_T, l->job->worker);
	for (int i = 0; i < g->tile->n_acc; i++)
		g->acc[i] = kb_var(k, "sum", KB_TYPE(KB_F32, GPU_LANES), (struct kb_val){0});
	for (int i = 0; g->tile->int8.is_on && !g->tile->splits_k && i < g->tile->n_acc; i++)
		g->dot[i] = kb_var(k, "dot", KB_TYPE(KB_I32, GPU_LANES), (struct kb_val){0});
	kb_forever(k);
	struct kb_val t = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, t, kb_mul_const(k, m_tiles, n_blocks)));
	g->norm.first = kb_mul_const(k, kb_bin(k, KB_REM, t, m_tiles), g->tile->rows);
	g->first_panel = kb_mul_const(k, kb_bin(k, KB_DIV, t, m_tiles), g->tile->nc);
	g->norm.rows = kb_min(k, kb_sub(k, l->rows, g->norm.first), kb_index(k, g->tile->rows));
	if (l->norm.after)
		emit_norm_after(g);
	else
		emit_n_block(g);
	kb_set(k, next, kb_add(k, t, l->job->n_workers));
	kb_end_forever(k);
}

/* ---- few and many rows ---- */

/* Emits all tasks with one kind of tile. Positions of items are computed inside the branch on the number of rows:
 * before it, the compiler of Intel's OpenCL runtime for CPUs (2026.22) crashes. */
static void emit_tile_kind(struct wg_matmul *g, const struct gpu_tile *tile, struct kb_val means)
{
	struct kb *k = g->l.k;
	g->tile = tile;
	g->item = kb_item_id(k);
	g->row = kb_div_const(k, g->item, tile->item_columns);
	g->column = kb_rem_const(k, g->item, tile->item_columns);
	g->norm = (struct rowwise_tile){.e = g->l.eval,
	                                .most = tile->rows,
	                                .items = GPU_ITEMS,
	                                .item = g->item,
	                                .partials = g->local,
	                                .means = means};
	g->l.nest.c.width = tile->width;
	emit_tiles(g);
}

/* Describes the GEMM of the calls that this kernel serves (job->rows), and chooses its schedule; a norm after the
 * product has one kind of tile. False: gpu_nest_choose. */
static bool choose_schedule(struct linear *l, struct gpu_nest *n)
{
	matmul_describe(l);
	l->gemm.x_block = int8_block_of_x(l);
	struct gemm g = l->gemm;
	if (l->job->rows == KERNEL_FEW_ROWS && !g.has_norm_after && g.rows_hi > KERNEL_FEW_ROWS_MAX)
		g.rows_hi = KERNEL_FEW_ROWS_MAX;
	if (l->job->rows == KERNEL_MANY_ROWS && g.rows_lo <= KERNEL_FEW_ROWS_MAX)
		g.rows_lo = KERNEL_FEW_ROWS_MAX + 1;
	if (!gpu_nest_choose(&g, n))
		return false;
	struct buf text = kernel_begin_remark(l->job);
	gpu_nest_print(n, &text);
	kernel_remark_nest(l->job, &text);
	return true;
}

/* Local memory is declared once, at function level, large enough for both kinds of tiles; the call selects one by its
 * number of rows. */
bool kernel_workgroup_linear(struct kernel *kernel)
{
	struct wg_matmul g = {0};
	struct linear *l = &g.l;
	struct gpu_nest n;
	if (kernel->job->items != GPU_ITEMS || !matmul_bind(l, kernel) || l->norm.before)
		return false;
	if (l->gemm.columns.panels == 0 || l->gemm.rows_hi == 0)
		return true;
	if (!choose_schedule(l, &n))
		return false;
	struct kb *k = l->k;
	l->nest.lanes = GPU_LANES;
	g.local = l->buf.c = kb_shared(k, "tile", KB_F32, n.elements);
	struct kb_val means = {0};
	if (n.means > 0)
		means = kb_shared(k, "means", KB_F32, n.means);
	if (n.n_tiles > 1)
		kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, KERNEL_FEW_ROWS_MAX)));
	for (int i = 0; i < n.n_tiles; i++) {
		if (i > 0)
			kb_else(k);
		emit_tile_kind(&g, &n.tile[i], means);
	}
	if (n.n_tiles > 1)
		kb_end_if(k);
	return true;
}
