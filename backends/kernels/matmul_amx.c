/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMM by matrix tiles (AMX): 16 rows of x times 16 k-rows of a panel, 64 bytes each, into a tile of 16 x 16
 * accumulators.
 *
 * All of K (bf16; int8 with one scale a row): accumulators are stored in the C buffer between K blocks. tilestored
 * serializes outstanding loads (about 1000 cycles if operands come from L2), so K is blocked until the k-rows of two
 * panels stay in L1 while all row tiles of the M block pass. Each row tile prefetches its share of the next k-rows
 * into L2, since L1 is full. A tile always has 16 rows: those beyond the last row of x are whatever scratch contains,
 * and their results are never read. Remainder k-rows are copied and padded with zeros. Accumulators are scaled after
 * all of K.
 *
 * By dot blocks (int8 with a scale for each block): an N block is dequantized to signed bytes in scratch
 * once; the i32 accumulators of a block are stored and scaled by vectors, with the arithmetic of matmul_lowp.c. They
 * are exact, so results have the same bits. Remainder rows go through matmul_lowp.c. K has at least two dot blocks.
 *
 * A chunk is 16 k-rows of a panel, which one tile multiply takes. A panel group is one or two panels that are
 * multiplied at once, so that a tile of x serves two tiles of weights. An M block is the rows [row, row_end) of a
 * matmul_block. mats 2: the panels of projections gate and up are multiplied one after the other. Prefetch: `next` is
 * read after the open K block or group; past the end of the model's weights (matmul_prefetch_end) each prefetch would
 * be a page walk, so shares stop there.
 */
#include "backends/kernels/matmul_internal.h"

#define CHUNK_ROWS  KB_TILE_ROWS
#define CHUNK_BYTES (CHUNK_ROWS * PANEL_ROW_BYTES)
#define PANELS      2 /* panels of a group: with two row tiles, 2 x 2 tiles of accumulators */

/* A group of panels that one loop nest multiplies. */
struct panel_group {
	int n;
	struct kb_val first;  /* panel, of all projections */
	struct kb_val w;      /* its address */
	struct kb_val next;   /* bytes from there to the group that is multiplied next */
	struct kb_val acc_at; /* address in the C buffer */
};

/* A K block: chunks [from, to) of 16 k-rows; next: address of the k-rows after it. */
struct k_block {
	struct kb_val from, to, next;
	struct kb_val share; /* k-rows of a panel that each chunk prefetches */
	/* k-row after `next` from which a share ends with the model's weights; none: it never does. */
	struct kb_val most;
};

/* k-rows of a panel. */
static int64_t k_rows(const struct linear *l)
{
	int per_k_row = l->gemm.panel.k_per_line;
	return ceil_div(l->gemm.depth, per_k_row);
}

/* Chunks that have all 16 k-rows; the others are copied by copy_k_tail. */
static int64_t full_chunks(const struct linear *l)
{
	return k_rows(l) / CHUNK_ROWS;
}

/* K elements (bytes) of a tile multiply by dot blocks: a dot block, at most the 64 bytes of a tile's row. Of the two
 * lengths one divides the other (tile_blocks_use_amx), so a dot block is full tiles. */
static int k_of_tile(const struct linear *l)
{
	return l->gemm.lowp.layout.block < KB_TILE_BYTES ? (int)l->gemm.lowp.layout.block : KB_TILE_BYTES;
}

/* Configures the tile registers, for all of K or for dot blocks, and makes the local buffers: of the last k-rows, or
 * where a tile stores the accumulators of a dot block, as vectors cannot read tile registers. Nothing without AMX. */
void matmul_amx_begin(struct linear *l)
{
	struct kb *k = l->k;
	bool has_full_k = l->nest.order == NEST_AMX;
	if (!has_full_k && l->nest.repack.to != REPACK_AMX)
		return;
	struct kb_val config = kb_local(k, "config", KB_I32, KB_TILE_CONFIG / 4);
	if (!has_full_k)
		l->buf.dot = kb_local(k, "acc", KB_I32, CHUNK_BYTES / 4);
	else if (k_rows(l) % CHUNK_ROWS > 0)
		l->buf.tail = kb_local(k, "tail", KB_I32, PANELS * CHUNK_BYTES / 4);
	kb_tile_config_gemm(k, config, has_full_k ? KB_TILE_BYTES : k_of_tile(l));
}

void matmul_amx_end(const struct linear *l)
{
	if (l->nest.order == NEST_AMX || l->nest.repack.to == REPACK_AMX)
		kb_tile_release(l->k);
}

/* Copies the k-rows after the last full chunk to local memory, padded with zeros, since a tile multiply always takes
 * 16. */
static void copy_k_tail(const struct linear *l, const struct panel_group *c)
{
	struct kb *k = l->k;
	struct kb_type type = KB_TYPE(KB_I32, l->nest.lanes);
	int64_t words = k_rows(l) % CHUNK_ROWS * MATMUL_PANEL,
	        at = full_chunks(l) * CHUNK_BYTES + l->gemm.panel.header;
	for (int p = 0; words > 0 && p < c->n; p++) {
		struct kb_val from = kb_ptr_add(k, c->w, kb_index(k, 0), p * l->gemm.panel.bytes + at),
		              to = kb_ptr_add(k, l->buf.tail, kb_index(k, 0), p * CHUNK_BYTES);
		struct kb_val i =
		        kb_loop(k, "line", kb_index(k, 0), kb_index(k, words), l->nest.lanes, KB_NONEMPTY);
		kb_store(k, kb_load(k, type, from, i, 0, 0), to, i, 0, 0);
		kb_end_loop(k);
		i = kb_loop(k, "clear", kb_index(k, words), kb_index(k, CHUNK_ROWS * MATMUL_PANEL),
		            l->nest.lanes, KB_NONEMPTY);
		kb_store(k, kb_splat(k, kb_i32(k, 0), l->nest.lanes), to, i, 0, 0);
		kb_end_loop(k);
	}
}

/* Prefetches the share of row tile `row_tile` in chunk `chunk` of the next K block: all pairs of row tile and chunk are
 * numbered in order of execution, and each takes the next `share` k-rows of both panels. */
static void prefetch_next(const struct linear *l, const struct panel_group *c, const struct k_block *k_block,
                          struct kb_val row_tile, struct kb_val chunk)
{
	struct kb *k = l->k;
	struct kb_val before = kb_mul(k, row_tile, kb_sub(k, k_block->to, k_block->from));
	before = kb_add(k, before, kb_sub(k, chunk, k_block->from));
	struct kb_val k_row = kb_mul(k, before, k_block->share);
	if (k_block->most.id)
		k_row = kb_min(k, k_row, k_block->most);
	struct kb_val end = kb_add(k, k_row, k_block->share);
	k_row = kb_loop(k, "ahead", k_row, end, 1, KB_NONEMPTY);
	for (int p = 0; p < c->n; p++)
		kb_prefetch_l2(k, k_block->next, kb_mul_const(k, k_row, PANEL_ROW_BYTES),
		               p * l->gemm.panel.bytes);
	kb_end_loop(k);
}

/* Adds the product of the K block to the accumulators of `rows` (16 or 32) rows from row `row` of the M block on. The
 * first K block begins with zeros, later ones with the C buffer; the last one also takes the padded k-rows (tail),
 * whose panels are adjacent in local memory. */
static void multiply_rows(const struct linear *l, const struct panel_group *c, const struct k_block *k_block,
                          struct kb_val row, int rows)
{
	struct kb *k = l->k;
	int64_t row_bytes = l->gemm.lowp.layout.bytes, full = full_chunks(l), c_stride = l->nest.c.width * 4;
	struct matrix_tiles t = {.k = k,
	                         .dot = l->nest.dot.word,
	                         .rows = rows / KB_TILE_ROWS,
	                         .columns = c->n,
	                         .x_row_stride = row_bytes,
	                         .x_tile_stride = KB_TILE_ROWS * row_bytes,
	                         .w_row_stride = PANEL_ROW_BYTES,
	                         .w_tile_stride = l->gemm.panel.bytes};
	struct kb_val x = kb_ptr_add(k, l->buf.x, kb_mul_const(k, row, row_bytes), 0);
	struct kb_val acc_at = kb_ptr_add(k, c->acc_at, kb_mul_const(k, row, c_stride), 0);
	kb_if(k, kb_cmp(k, KB_EQ, k_block->from, kb_index(k, 0)));
	matrix_tiles_zero(&t);
	kb_else(k);
	matrix_tiles_load(&t, acc_at, c_stride);
	kb_end_if(k);
	struct kb_val row_tile = kb_div_const(k, row, AMX_TILE_ROWS);
	struct kb_val chunk = kb_loop(k, "chunk", k_block->from, k_block->to, 1, 0);
	prefetch_next(l, c, k_block, row_tile, chunk);
	struct kb_val words = kb_ptr_add(k, x, kb_mul_const(k, chunk, KB_TILE_BYTES), 0),
	              w = kb_ptr_add(k, c->w, kb_mul_const(k, chunk, CHUNK_BYTES), l->gemm.panel.header);
	matrix_tiles_mac_k(&t, words, w);
	kb_end_loop(k);
	if (l->buf.tail.id) {
		t.w_tile_stride = CHUNK_BYTES;
		kb_if(k, kb_cmp(k, KB_EQ, k_block->to, kb_index(k, full)));
		matrix_tiles_mac_k(&t, kb_ptr_add(k, x, kb_index(k, 0), full * KB_TILE_BYTES), l->buf.tail);
		kb_end_if(k);
	}
	matrix_tiles_store(&t, acc_at, c_stride);
}

/* Scales the integer accumulators of `rows` rows of the panel group in the C buffer to f32, in place. */
static void dequantize_acc(const struct linear *l, const struct panel_group *c, struct kb_val rows)
{
	struct kb *k = l->k;
	int64_t row_bytes = l->gemm.lowp.layout.bytes;
	struct reg_tile p = {
	        .k = k, .rows = 1, .vectors = c->n * MATMUL_PANEL / l->nest.lanes, .lanes = l->nest.lanes};
	const struct matmul_lowp_tile tile = {.l = l, .p = &p, .w = c->w};
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), rows, 1, 0);
	struct kb_val at = kb_mul_const(k, row, l->nest.c.width);
	p.x[0] = kb_ptr_add(k, l->buf.x, kb_mul_const(k, row, row_bytes), 0);
	for (int v = 0; v < p.vectors; v++) {
		struct kb_val sum =
		        kb_load(k, KB_TYPE(KB_I32, l->nest.lanes), c->acc_at, at, v * l->nest.lanes, 0);
		kb_store(k, matmul_dequantize_acc(&tile, 0, v, sum), c->acc_at, at, v * l->nest.lanes, 0);
	}
	kb_end_loop(k);
}

/* Bytes past the matrix that the shares of an M block reach, at most: the last panels prefetch the next group (PANELS),
 * and a share is rounded up to a k-row, so that many row tiles reach further, by tiles / CHUNK_ROWS panels. */
static int64_t reach_of_shares(const struct linear *l)
{
	int64_t tiles = l->nest.m_block / AMX_TILE_ROWS + 1;
	return (2 * PANELS + tiles / CHUNK_ROWS + 1) * l->gemm.panel.bytes;
}

/* All of K for the rows of the M block times a panel group, K block by K block. K below a chunk is one K block of the
 * tail alone. share: the 16 k-rows of a chunk divided among the row tiles, rounded up. Tiles of 32 rows, but 16 for a
 * remainder of at most 16 rows. int8 accumulators become f32 at the end. */
static void add_panel_group(const struct linear *l, const struct panel_group *c, struct kb_val rows)
{
	struct kb *k = l->k;
	int64_t full = full_chunks(l), step = l->nest.kc / (CHUNK_ROWS * l->gemm.panel.k_per_line);
	struct kb_val tiles = kb_add_const(k, rows, AMX_TILE_ROWS - 1), end = kb_index(k, full);
	tiles = kb_max(k, kb_div_const(k, tiles, AMX_TILE_ROWS), kb_index(k, 1));
	struct k_block k_block = {.share = kb_bin(k, KB_DIV, kb_add_const(k, tiles, CHUNK_ROWS - 1), tiles)};
	copy_k_tail(l, c);
	k_block.from =
	        kb_loop(k, "block", kb_index(k, 0), kb_index(k, full > 0 ? full : 1), step, KB_NONEMPTY);
	k_block.to = kb_min(k, kb_add_const(k, k_block.from, step), end);
	struct kb_val next_offset = kb_mul_const(k, k_block.to, CHUNK_BYTES);
	next_offset = kb_select(k, kb_cmp(k, KB_LT, k_block.to, end), next_offset, c->next);
	k_block.next = kb_ptr_add(k, c->w, next_offset, l->gemm.panel.header);
	struct kb_val last = matmul_prefetch_end(l, c->first, (struct kb_val){0}, reach_of_shares(l));
	if (last.id) {
		last = kb_add_const(k, kb_sub(k, last, next_offset),
		                    -l->gemm.panel.header - (c->n - 1) * l->gemm.panel.bytes);
		k_block.most = kb_sub(k, kb_div_const(k, last, PANEL_ROW_BYTES), k_block.share);
	}
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), rows, AMX_TILE_ROWS, 0);
	if (l->gemm.rows_hi > KB_TILE_ROWS) {
		kb_if(k, kb_cmp(k, KB_GT, kb_sub(k, rows, row), kb_index(k, KB_TILE_ROWS)));
		multiply_rows(l, c, &k_block, row, AMX_TILE_ROWS);
		kb_else(k);
	}
	multiply_rows(l, c, &k_block, row, KB_TILE_ROWS);
	if (l->gemm.rows_hi > KB_TILE_ROWS)
		kb_end_if(k);
	kb_end_loop(k);
	kb_end_loop(k);
	if (!l->gemm.lowp.to.bf16)
		dequantize_acc(l, c, rows);
}

/* Multiplies a group of n panels from `panel` on, of each projection. c.next is the distance to the group multiplied
 * next: from gate to the same panels of up; from up back to the panels of gate after these. */
static void emit_panel_group(const struct linear *l, const struct matmul_block *s, struct kb_val panel, int n)
{
	struct kb *k = l->k;
	int64_t bytes = l->gemm.panel.bytes, other_mat = l->gemm.columns.panels * bytes;
	struct kb_val mat = {0};
	if (l->gemm.columns.mats > 1)
		mat = kb_loop(k, "mat", kb_index(k, 0), kb_index(k, l->gemm.columns.mats), 1, KB_NONEMPTY);
	struct panel_group c = {.n = n, .next = kb_index(k, n * bytes)};
	struct kb_val first = panel, column = kb_mul_const(k, kb_sub(k, panel, s->begin), MATMUL_PANEL);
	first = matmul_of_mat(l, first, mat, l->gemm.columns.panels);
	column = matmul_of_mat(l, column, mat, l->nest.c.width / l->gemm.columns.mats);
	if (l->gemm.columns.mats > 1)
		c.next = kb_select(k, kb_cmp(k, KB_EQ, mat, kb_index(k, 0)), kb_index(k, other_mat),
		                   kb_index(k, n * bytes - other_mat));
	c.first = first;
	c.w = kb_ptr_add(k, s->weights, kb_mul_const(k, first, bytes), 0);
	c.acc_at = kb_ptr_add(k, l->buf.c, kb_mul_const(k, column, 4), 0);
	add_panel_group(l, &c, kb_sub(k, s->row_end, s->row));
	if (l->gemm.columns.mats > 1)
		kb_end_loop(k);
}

void matmul_amx_block(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct kb_val pairs = kb_div_const(k, kb_sub(k, s->end, s->begin), PANELS);
	struct kb_val full = kb_add(k, s->begin, kb_mul_const(k, pairs, PANELS));
	struct kb_val panel = kb_loop(k, "panel", s->begin, full, PANELS, 0);
	emit_panel_group(l, s, panel, PANELS);
	kb_end_loop(k);
	panel = kb_loop(k, "panel", full, s->end, 1, 0);
	emit_panel_group(l, s, panel, 1);
	kb_end_loop(k);
	matmul_epilogue(l, s, s->row, kb_sub(k, s->row_end, s->row));
}

/* ---- dot blocks ---- */

struct block_loop {
	const struct matmul_lowp_tile *c;
	struct matrix_tiles tiles;
};

/* Sets the accumulator tile to the products of the n elements of dot block `dot_block`, tile width by tile width. */
static void multiply_dot_block(const struct block_loop *s, struct kb_val dot_block, int64_t n)
{
	const struct matmul_lowp_tile *c = s->c;
	struct kb *k = s->tiles.k;
	struct kb_val first = kb_mul_const(k, dot_block, c->l->gemm.lowp.layout.block);
	struct kb_val x = kb_ptr_add(k, c->p->x[0], first, 0);
	struct kb_val w = kb_ptr_add(k, c->repacked_w, kb_mul_const(k, first, MATMUL_PANEL), 0);
	matrix_tiles_zero(&s->tiles);
	for (int64_t at = 0; at < n; at += k_of_tile(c->l)) {
		struct kb_val words = kb_ptr_add(k, x, kb_index(k, 0), at);
		matrix_tiles_mac_k(&s->tiles, words, kb_ptr_add(k, w, kb_index(k, 0), at * MATMUL_PANEL));
	}
}

/* Scales the i32 accumulators of dot block `dot_block` (n elements), which are in buf.dot, and adds them to the f32
 * accumulators. Prefetches this block's share of the next weights. */
static void scale_dot_block(const struct block_loop *s, struct kb_val dot_block, int64_t n)
{
	const struct linear *l = s->c->l;
	const struct reg_tile *p = s->c->p;
	struct kb *k = l->k;
	struct kb_val zero = kb_index(k, 0), first = kb_mul_const(k, dot_block, l->gemm.lowp.layout.block);
	matmul_prefetch_k_range(l, s->c->prefetch, first, n);
	for (int v = 0; v < p->vectors; v++) {
		struct kb_val column = kb_index(k, v * l->nest.lanes);
		struct panel_block scale =
		        panel_load_block(k, &l->gemm.panel, s->c->w, column, first, l->nest.lanes);
		for (int m = 0; m < p->rows; m++) {
			struct kb_var sum = p->sum[m * p->vectors + v];
			struct kb_val integers = kb_load(k, KB_TYPE(KB_I32, l->nest.lanes), l->buf.dot, zero,
			                                 m * MATMUL_PANEL + v * l->nest.lanes, 0);
			kb_set(k, sum,
			       matmul_add_scaled(s->c, dot_block, m, &scale, integers, kb_get(k, sum)));
		}
	}
}

/* Software pipelining: AMX multiplies dot block i + 1 while vectors scale the stored accumulators of block i. The first
 * and the last block (which may be shorter) are outside of the loop. */
void matmul_amx_per_block_loop(const struct matmul_lowp_tile *c)
{
	const struct linear *l = c->l;
	struct kb *k = l->k;
	const struct block_loop s = {c,
	                             {.k = k,
	                              .dot = KB_DOT_S8S8,
	                              .rows = 1,
	                              .columns = 1,
	                              .x_row_stride = l->gemm.lowp.layout.bytes,
	                              .w_row_stride = PANEL_ROW_BYTES}};
	int64_t dot_block_k = l->gemm.lowp.layout.block, n = l->gemm.lowp.layout.blocks,
	        tail = l->gemm.depth - (n - 1) * dot_block_k;
	multiply_dot_block(&s, kb_index(k, 0), dot_block_k);
	struct kb_val dot_block = kb_loop(k, "step", kb_index(k, 0), kb_index(k, n - 2), 1, 0);
	matrix_tiles_store(&s.tiles, l->buf.dot, PANEL_ROW_BYTES);
	multiply_dot_block(&s, kb_add_const(k, dot_block, 1), dot_block_k);
	scale_dot_block(&s, dot_block, dot_block_k);
	kb_end_loop(k);
	matrix_tiles_store(&s.tiles, l->buf.dot, PANEL_ROW_BYTES);
	multiply_dot_block(&s, kb_index(k, n - 1), tail);
	scale_dot_block(&s, kb_index(k, n - 2), dot_block_k);
	matrix_tiles_store(&s.tiles, l->buf.dot, PANEL_ROW_BYTES);
	scale_dot_block(&s, kb_index(k, n - 1), tail);
}
