/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the schedules of work-groups (gpu_nest.h). */
#include "backends/kernels/gpu_nest.h"

#include <inttypes.h>

#include "backends/kernels/group.h"

#define STEP       16  /* K elements of both operands in local memory */
#define SPLIT_STEP 256 /* K elements of x alone: few barriers, since each item reads little of it */
#define SPLIT_ROWS 4   /* of a tile, whose rows an item accumulates all */

int64_t gpu_tile_rows(int64_t rows)
{
	int64_t n = GPU_SIDE;
	while (n < GPU_SIDE * GPU_MR_MAX && n < rows)
		n *= 2;
	return n;
}

/* N blocks of whole heads, or of both gate and up, and tiles, with as many rows as keep the C buffer within that of a
 * tile of 64 x 64. Where items split K reading weights bounds the time: as narrow as the epilogue allows, so that there
 * are many groups. */
static void choose_n_block(const struct gemm *g, int64_t rows, struct gpu_tile *t)
{
	const struct matmul_columns *c = &g->columns;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	t->rows = rows;
	t->nc = t->splits_k ? c->unit : c->mats > 1 ? tile / c->mats : c->nc;
	t->panels = t->splits_k && t->nc * c->mats < tile ? t->nc * c->mats : tile;
	t->width = ceil_div(c->mats * t->nc, t->panels) * t->panels * MATMUL_PANEL;
	while (!t->splits_k && t->rows > GPU_SIDE && t->rows * t->width > GPU_SIDE * GPU_MR_MAX * GPU_COLUMNS)
		t->rows /= 2;
}

/* Items take consecutive vectors: all of them of a row, or of several rows at once. */
static struct gpu_copy divide_copy(int64_t rows, int64_t step, int lanes)
{
	int64_t per_row = step / lanes, all = rows * per_row;
	return (struct gpu_copy){lanes, (int)ceil_div(all, GPU_ITEMS), per_row,
	                         all < GPU_ITEMS ? all : GPU_ITEMS};
}

/* Int8 gives the bits of the reference if K is full blocks of x in contiguous memory, and no block of the quantized
 * weights is shorter. */
static bool multiplies_int8(const struct gemm *g)
{
	return g->x_block == GPU_BLOCK && g->panel.kind == PANEL_QUANTS &&
	       ir_format(g->panel.format)->block % GPU_BLOCK == 0 && g->depth % GPU_BLOCK == 0 &&
	       g->is_k_adjacent;
}

/* Offsets in local memory. A vector of padding puts rows of x into other banks and keeps vectors aligned. */
static void choose_operands(const struct gemm *g, struct gpu_tile *t)
{
	int64_t c = t->rows * t->width;
	t->operands = t->splits_k || t->width > GPU_COLUMNS ? c : 0;
	t->f32.step = t->splits_k ? SPLIT_STEP : STEP;
	t->f32.x_row = t->f32.step + GPU_LANES;
	t->f32.w = t->operands + t->rows * t->f32.x_row;
	t->f32.full = divide_copy(t->rows, t->f32.step, g->is_k_adjacent ? GPU_LANES : 1);
	t->f32.tail = divide_copy(t->rows, t->f32.step, 1);
	t->int8.is_on = multiplies_int8(g);
	t->int8.has_minima = ir_format(g->panel.format)->has_offset;
	t->int8.w = t->operands + t->rows * GPU_X_WORDS;
	int64_t end = t->f32.w + t->f32.step * GPU_COLUMNS;
	if (t->splits_k) { /* x, quants of x, or partial results [items along K][n_acc][columns] */
		int64_t quants = t->rows * GPU_K_ITEMS * GPU_X_WORDS,
		        partials = (int64_t)t->n_acc * GPU_K_ITEMS * MATMUL_PANEL;
		end = max_i64(t->f32.w, t->operands + max_i64(quants, partials));
	}
	t->elements = max_i64(end, c);
}

static void add_tile(const struct gemm *g, bool splits_k, int64_t rows, struct gpu_nest *n)
{
	struct gpu_tile t = {.splits_k = splits_k};
	choose_n_block(g, rows, &t);
	t.item_columns = splits_k ? GPU_PANEL_VECTORS : GPU_SIDE;
	t.mr = splits_k ? 0 : (int)(t.rows / GPU_SIDE);
	t.n_acc = (int)(splits_k ? t.rows * t.panels : t.mr * GPU_ITEM_VECTORS);
	choose_operands(g, &t);
	n->elements = max_i64(n->elements, t.elements);
	n->means = g->has_norm_after ? max_i64(n->means, 2 * t.rows) : 0;
	n->tile[n->n_tiles++] = t;
}

/* A norm after the product needs complete rows, which tiles of few rows do not pay for. */
bool gpu_nest_choose(const struct gemm *g, struct gpu_nest *n)
{
	bool may_be_few = !g->has_norm_after && g->rows_lo <= KERNEL_FEW_ROWS_MAX;
	*n = (struct gpu_nest){0};
	if (may_be_few)
		add_tile(g, true, g->rows_hi < SPLIT_ROWS ? g->rows_hi : SPLIT_ROWS, n);
	if (!may_be_few || g->rows_hi > KERNEL_FEW_ROWS_MAX)
		add_tile(g, false, gpu_tile_rows(g->rows_hi), n);
	return 4 * (n->elements + n->means) <= g->target->shared_bytes;
}

void gpu_nest_print(const struct gpu_nest *n, struct buf *out)
{
	for (int i = 0; i < n->n_tiles; i++) {
		const struct gpu_tile *t = &n->tile[i];
		if (n->n_tiles > 1)
			buf_printf(out, "rows %s %d: ", i == 0 ? "<=" : ">", KERNEL_FEW_ROWS_MAX);
		buf_printf(out, "N blocks of %" PRId64 " panels, tiles %" PRId64 " x %" PRId64 ", ", t->nc,
		           t->rows, t->panels);
		if (t->splits_k)
			buf_printf(out, "%d items along K", GPU_K_ITEMS);
		else
			buf_printf(out, "%d x %d columns of an item", t->mr, GPU_ITEM_VECTORS * GPU_LANES);
		buf_printf(out, ", K steps of %" PRId64 "%s; ", t->f32.step,
		           t->int8.is_on ? ", of quant blocks where the device has dot4" : "");
	}
	buf_printf(out, "vectors of %d; local memory of %" PRId64 " bytes", GPU_LANES,
	           4 * (n->elements + n->means));
}

/* ---- attention ---- */

/* Offsets in local memory and shares of items, of a tile of given rows and keys. */
static void divide_tile(int64_t size, int64_t value_size, struct gpu_attention *n)
{
	n->stride = max_i64(size, value_size) | 1;
	n->kv = n->rows * size;
	n->scores = n->kv + n->keys * n->stride;
	n->partials = n->scores + n->rows * n->keys;
	n->factors = n->partials + 2 * GPU_ITEMS;
	n->elements = n->factors + n->rows;
	n->product.row_stride = GPU_ITEMS / n->keys;
	n->product.rows = (int)max_i64(n->rows / n->product.row_stride, 1);
	n->softmax.keys = n->keys / n->softmax.items;
	/* columns are rounded up to a power of two, so that items divide evenly */
	for (n->output.columns = 1; n->output.columns < GPU_ITEMS && n->output.columns < value_size;)
		n->output.columns *= 2;
	n->output.row_stride = GPU_ITEMS / n->output.columns;
	n->output.n_rows = (int)ceil_div(n->rows, n->output.row_stride);
	n->output.n_columns = (int)ceil_div(value_size, GPU_ITEMS);
}

bool gpu_attention_choose(const struct target *t, int64_t size, int64_t value_size, int64_t rows_max,
                          struct gpu_attention *n)
{
	bool fits = false;
	if (t->group_size != GPU_ITEMS || max_i64(size, value_size) > GPU_ATTENTION_COLUMNS * GPU_ITEMS)
		return false;
	for (int64_t rows = GPU_ATTENTION_ROWS; rows >= GPU_ATTENTION_ROWS / 2 && !fits; rows /= 2) {
		*n = (struct gpu_attention){
		        .rows = rows, .keys = 2 * rows, .softmax.items = GPU_ITEMS / rows};
		divide_tile(size, value_size, n);
		fits = n->elements * 4 <= t->shared_bytes;
	}
	while (n->rows > 1 && n->rows / 2 >= rows_max)
		n->rows /= 2;
	divide_tile(size, value_size, n);
	return fits;
}

void gpu_attention_print(const struct gpu_attention *n, struct buf *out)
{
	buf_printf(out,
	           "tiles of %" PRId64 " rows, local blocks of %" PRId64
	           " keys; an item has %d scores of a key, %" PRId64
	           " probabilities of a row, %d x %d of the output; local memory of %" PRId64 " bytes",
	           n->rows, n->keys, n->product.rows, n->softmax.keys, n->output.n_rows, n->output.n_columns,
	           4 * n->elements);
}
