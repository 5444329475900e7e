/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Microkernel of the GEMM: one register tile of mr rows of x by nr panels of B. Accumulators stay in
 * registers over the whole K loop; each K element loads a k-row of B and broadcasts one element of each row
 * of x. Where the target multiplies by an element of a vector (target.k_lanes, NEON), that many K neighbours
 * of each row are loaded at once and used lane by lane. Each accumulator is one chain of fused multiply-adds in
 * increasing k either way.
 *
 * Software prefetch of B: while the row tiles of an M block pass over an N block, each tile prefetches an equal share
 * of the weights that are read next (the next K block, else the next N block), `stride` bytes for each K element, so
 * that the first tile of the next block finds them in the cache. Past the end of the model's weights a prefetch would
 * be a page walk: shares stop there (matmul_prefetch_end). Prefetches never fault and change no result.
 *
 * Finished accumulators go through the epilogue at once (finish) or, if the group has a C buffer, are stored there,
 * where the epilogue or the next K block takes them. struct microkernel: tile is the register tile, block the rows,
 * panels and K elements (k_lo .. k_hi) around it. mats 2: gate and up, whose panels follow one another; t->mat selects.
 * Listed rows: real rows of a padded batch or rows of an expert; the row number is read from row_list.
 */
#include "backends/kernels/matmul_internal.h"

/* ---- weight prefetch ---- */

/* After the last N block the weights read next are whatever follows the matrix in memory, as a rule the next matrix of
 * the model. */

struct kb_val matmul_prefetch_end(const struct linear *l, struct kb_val panel, struct kb_val mat,
                                  int64_t reach)
{
	struct kb *k = l->k;
	int64_t after = l->w->t.bytes_after,
	        all = l->gemm.columns.mats * l->gemm.columns.panels * l->gemm.panel.bytes;
	if (after >= reach)
		return (struct kb_val){0};
	panel = matmul_of_mat(l, panel, mat, l->gemm.columns.panels);
	return kb_sub(k, kb_index(k, all + after), kb_mul_const(k, panel, l->gemm.panel.bytes));
}

/* stride: the bytes of a K element of all panels of a tile, divided among the row tiles and rounded up, but at most
 * those of one panel: a k-row issues one prefetch, of one cache line. */
struct matmul_prefetch matmul_prefetch_begin(const struct linear *l, struct kb_val rows, int mr, int panels)
{
	struct kb *k = l->k;
	struct matmul_prefetch a = {.row_tile = {0}};
	if (!l->nest.prefetches_next)
		return a;
	struct kb_val tiles = kb_div_const(k, kb_add_const(k, rows, mr - 1), mr);
	int64_t step = l->gemm.panel.bytes_per_k;
	struct kb_val bytes = kb_add_const(k, tiles, panels * step - 1);
	a.stride = kb_min(k, kb_bin(k, KB_DIV, bytes, tiles), kb_index(k, step));
	a.row_tile = kb_var(k, "row_tile", KB_INDEX_T, kb_index(k, 0));
	return a;
}

void matmul_prefetch_next_row_tile(const struct linear *l, const struct matmul_prefetch *a)
{
	if (a->row_tile.id)
		kb_set(l->k, a->row_tile, kb_add_const(l->k, kb_get(l->k, a->row_tile), 1));
}

/* Bytes past the matrix that the shares of an M block reach, at most: its last panels prefetch an N block (nc) ahead,
 * and shares exceed it since a stride is rounded up to a byte and some row tiles are lower than mr (of runs of rows all
 * of them may have one row). */
static int64_t reach_of_shares(const struct linear *l)
{
	int64_t rows = l->nest.m_block,
	        tiles = (rows < l->gemm.rows_hi ? rows : l->gemm.rows_hi) / l->nest.mr + 1;
	int64_t panels = (l->nest.nr + tiles / l->gemm.panel.bytes_per_k) * (l->row_runs.id ? l->nest.mr : 1);
	return (l->gemm.columns.nc + panels + 3) * l->gemm.panel.bytes;
}

/* at + disp are the bytes from the tile's first panel to its share for n K elements: returns `at`, or less where
 * weights end before the share does. */
static struct kb_val stop_at_end(const struct linear *l, const struct matmul_tile *t, struct kb_val at,
                                 int64_t disp, struct kb_val n)
{
	struct kb *k = l->k;
	struct kb_val end = matmul_prefetch_end(l, t->panel, t->mat, reach_of_shares(l));
	if (!end.id)
		return at;
	struct kb_val share = kb_mul(k, t->prefetch.stride, n);
	return kb_min(k, at, kb_sub(k, kb_add_const(k, end, -disp), share));
}

/* Where the tile prefetches if all of K is multiplied: in the next N block, nc panels ahead (the next repacked group,
 * if operands are repacked). Panels are contiguous, and so are the shares. `full`: quants have full groups of K. */
static struct kb_val base_full_k(const struct linear *l, const struct matmul_block *s,
                                 const struct matmul_tile *t, struct kb_val w)
{
	struct kb *k = l->k;
	struct kb_val depth = kb_index(k, l->gemm.depth), share = kb_mul(k, t->prefetch.stride, depth);
	struct kb_val first = kb_mul(k, share, kb_get(k, t->prefetch.row_tile));
	int64_t n_block = (s->is_repacked ? l->nest.repack.group : l->gemm.columns.nc) * l->gemm.panel.bytes;
	int64_t group = l->gemm.panel.group.elements;
	struct kb_val full = kb_index(k, ceil_div(l->gemm.depth, group) * group);
	return kb_ptr_add(k, w, stop_at_end(l, t, first, n_block, full), n_block);
}

/* Where the tile prefetches if K is blocked: the next K block, or after the last one the next N block. A K block is
 * strided by panels: a share that ends in a panel of the block goes on in the next panel. */
static struct kb_val base_k_block(const struct linear *l, const struct matmul_block *s,
                                  const struct matmul_tile *t, struct kb_val w)
{
	struct kb *k = l->k;
	const struct matmul_prefetch *a = &t->prefetch;
	struct kb_val bytes_per_k = kb_index(k, l->gemm.panel.bytes_per_k),
	              panel_bytes = kb_index(k, l->gemm.panel.bytes);
	struct kb_val block_bytes = kb_mul(k, kb_sub(k, s->k_hi, s->k_lo), bytes_per_k),
	              k_offset = kb_mul(k, s->k_hi, bytes_per_k);
	struct kb_val k_elements = kb_sub(k, s->k_hi, s->k_lo);
	struct kb_val share = kb_mul(k, kb_mul(k, a->stride, kb_get(k, a->row_tile)), k_elements);
	struct kb_val panel = kb_bin(k, KB_DIV, share, block_bytes),
	              in_panel = kb_bin(k, KB_REM, share, block_bytes);
	struct kb_val next = kb_select(k, kb_cmp(k, KB_LT, s->k_hi, kb_index(k, l->gemm.depth)), k_offset,
	                               kb_index(k, l->gemm.columns.nc * l->gemm.panel.bytes));
	struct kb_val before = kb_mul(k, panel, panel_bytes);
	struct kb_val at = kb_add(k, kb_add(k, next, in_panel), before);
	at = stop_at_end(l, t, at, 0, k_elements);
	/* matmul_prefetch_k counts k from 0 */
	return kb_ptr_add(k, w, kb_sub(k, at, kb_mul(k, s->k_lo, a->stride)), 0);
}

/* Base address for the tile whose weights begin at w; none: the tile does not prefetch. A base that the caller has set
 * (skinny GEMM) stays. Only tiles that the shares count prefetch: at least half the main mr, and its full width. */
static struct kb_val matmul_prefetch_base(const struct linear *l, const struct matmul_block *s,
                                          const struct matmul_tile *t, struct kb_val w)
{
	const struct matmul_prefetch *a = &t->prefetch;
	bool is_main = matmul_block_uses_amx(l, s) || (2 * t->rows >= l->nest.mr && t->panels == l->nest.nr);
	if (a->base.id || !a->row_tile.id || !is_main)
		return a->base;
	return l->nest.kc ? base_k_block(l, s, t, w) : base_full_k(l, s, t, w);
}

void matmul_prefetch_line(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                          struct kb_val super_block, struct kb_val word)
{
	if (!a->distance) {
		matmul_prefetch_k(l, a, at);
		return;
	}
	struct kb_val bytes = kb_mul_const(l->k, word, 4);
	if (a->ahead.id)
		bytes = kb_add(l->k, bytes, a->ahead);
	for (int i = 0; i < a->panels; i++)
		kb_prefetch(l->k, super_block, bytes,
		            (a->ahead.id ? 0 : a->distance) + i * l->gemm.panel.bytes);
}

void matmul_prefetch_k_range(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                             int64_t n)
{
	struct kb *k = l->k;
	if (!a->base.id)
		return;
	struct kb_val begin = kb_mul(k, at, a->stride), end = kb_add(k, begin, kb_mul_const(k, a->stride, n));
	kb_prefetch_l2(k, a->base, kb_loop(k, "ahead", begin, end, PANEL_ROW_BYTES, KB_NONEMPTY), 0);
	kb_end_loop(k);
}

void matmul_prefetch_k(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at)
{
	struct kb_val from = kb_mul(l->k, at, a->stride);
	for (int i = 0; i < a->panels || i == 0; i++)
		kb_prefetch(l->k, a->base, from, i * l->gemm.panel.bytes);
}

/* ---- register tiles ---- */

struct microkernel {
	const struct linear *l;
	const struct matmul_block *block;
	const struct matmul_tile *tile;
	struct nest_tile nest;
	struct reg_tile p;
	struct panel_reader r;
	const struct panel_loop *loop; /* of quants, while it is open */
	struct matmul_prefetch prefetch;
};

/* ---- points ---- */

struct kb_val matmul_listed_row(const struct linear *l, struct kb_val row)
{
	if (!l->row_list.id)
		return row;
	return kb_cvt(l->k, kb_load(l->k, KB_I32_T, l->row_list, row, 0, 0), KB_INDEX);
}

/* Evaluator point of row number `row` of the result. */
static struct eval_point point_of_row(const struct linear *l, struct kb_val row, struct kb_val column)
{
	struct eval_point p = {.rank = l->rank, .vec = l->nest.lanes > 1 ? l->rank - 1 : -1};
	p.flat = row;
	eval_unravel(l->eval, row, l->size, l->rank - 1, p.index);
	p.index[l->rank - 1] = column;
	return p;
}

struct eval_point matmul_point(const struct linear *l, struct kb_val row, struct kb_val column)
{
	return point_of_row(l, matmul_listed_row(l, row), column);
}

/* matmul_point of row m of a tile. Where rows are listed in runs, the rows of a tile are consecutive: one look-up in
 * the list serves all. */
static struct eval_point tile_point(const struct linear *l, const struct matmul_tile *t, int m,
                                    struct kb_val column)
{
	if (!l->row_runs.id)
		return matmul_point(l, kb_add_const(l->k, t->row, m), column);
	return point_of_row(l, kb_add_const(l->k, matmul_listed_row(l, t->row), m), column);
}

/* Stores the result of the group at p: product + bias (of the expert) is the root's value, the epilogue
 * follows. */
static void finish_element(const struct linear *l, struct kb_val expert, const struct eval_point *p,
                           struct kb_val product)
{
	if (l->bias.id) {
		struct kb_val column = p->index[l->rank - 1];
		struct eval_point at = {.rank = 1, .index = {column}};
		if (expert.id)
			at = (struct eval_point){.rank = 2, .index = {expert, column}};
		at.vec = p->vec < 0 ? -1 : at.rank - 1;
		product = kb_add(l->k, product, eval_value(l->eval, l->bias, &at));
	}
	eval_bind(l->eval, eval_result(l->g->root), p, product);
	eval_store_output(l->eval, &l->out, p);
}

/* ---- operands ---- */

/* The tile's rows and panels in the repacked buffers. A row of x is its quants (layout.corrections bytes) as i16, so
 * twice as many bytes; without such a copy, x is read as it is. */
static void find_repacked(const struct microkernel *a, struct matmul_lowp_tile *c)
{
	const struct linear *l = a->l;
	struct kb *k = l->k;
	struct kb_val row = kb_sub(k, a->tile->row, a->block->row);
	struct kb_val panel = kb_sub(k, a->tile->panel, a->block->begin);
	panel = matmul_of_mat(l, panel, a->tile->mat, l->nest.repack.group);
	panel = kb_mul_const(k, panel, l->nest.repack.panel.bytes);
	c->repacked_w = kb_ptr_add(k, l->buf.repacked, panel, 0);
	if (l->nest.repack.to != REPACK_I16)
		return;
	row = kb_mul_const(k, row, 2 * l->gemm.lowp.layout.corrections);
	c->repacked_x = kb_ptr_add(k, l->buf.repacked_x, row, 0);
}

/* Addresses of the rows of x, in scratch if the prologue made them (displacements are in words): one pointer and
 * constant displacements where the rows of the tile are at one constant stride, to save registers; else a pointer for
 * each row, since listed rows, and rows of several products, may be anywhere. */
static void find_x_rows(const struct linear *l, struct microkernel *a)
{
	struct kb *k = l->k;
	if (l->gemm.makes_x) {
		int64_t words =
		        l->gemm.lowp.is_on ? l->gemm.lowp.layout.bytes / 4 : tile_row_stride(l->gemm.depth);
		struct kb_val row = kb_sub(k, a->tile->row, a->block->row);
		struct kb_val first = kb_ptr_add(k, l->buf.x, kb_mul_const(k, row, words * 4), 0);
		for (int m = 0; m < a->tile->rows; m++) {
			a->p.x[m] = first;
			a->p.x_disp[m] = m * words;
		}
		return;
	}
	const struct kb_tensor *x = &l->x->t;
	const struct kb_size *row_stride = l->rank >= 2 ? &x->stride[l->rank - 2] : NULL;
	bool in_batch = l->x->is_flat || l->value.batches.id; /* a tile has rows of one product only */
	bool in_run = !l->row_list.id || l->row_runs.id;
	bool even = in_batch && in_run && row_stride->is_const && row_stride->c >= 0 &&
	            row_stride->c <= INT32_MAX;
	for (int m = 0; m < a->tile->rows; m++) {
		a->p.x_disp[m] = even ? m * row_stride->c : 0;
		a->p.x[m] = a->p.x[0];
		if (even && m > 0)
			continue;
		struct eval_point p = tile_point(l, a->tile, m, kb_index(k, 0));
		p.vec = l->rank - 1;
		struct kb_val bytes = kb_mul_const(k, eval_offset(l->eval, l->x, &p), 4);
		a->p.x[m] = kb_ptr_add(k, x->ptr, bytes, 0);
	}
}

/* Offset of the tile in the C buffer, in elements. */
static struct kb_val c_buf_offset(const struct linear *l, const struct microkernel *a)
{
	struct kb *k = l->k;
	const struct matmul_tile *t = a->tile;
	struct kb_val column = kb_mul_const(k, kb_sub(k, t->panel, a->block->begin), MATMUL_PANEL);
	column = matmul_of_mat(l, column, t->mat, l->nest.c.width / l->gemm.columns.mats);
	return kb_add(k, kb_mul_const(k, t->c_row, l->nest.c.width), column);
}

/* Accumulators begin with 0, or if K is blocked with the values that the K block before stored in the C buffer, which
 * the caller has cleared before the first one. */
static void begin_accumulators(const struct linear *l, struct microkernel *a)
{
	if (!l->nest.kc) {
		reg_tile_zero(&a->p, "sum");
		return;
	}
	struct kb_val from = c_buf_offset(l, a);
	struct kb_type type = KB_TYPE(KB_F32, l->nest.lanes);
	for (int i = 0; i < a->p.rows * a->p.vectors; i++) {
		int64_t disp = i / a->p.vectors * l->nest.c.width + i % a->p.vectors * l->nest.lanes;
		a->p.sum[i] = kb_var(l->k, "sum", type, kb_load(l->k, type, l->buf.c, from, disp, 0));
	}
}

/* Vector n of the k-row, as f32 (a callback of struct reg_tile). */
static struct kb_val load_weights(const void *user, struct kb_val offset, int i, int n)
{
	const struct microkernel *a = user;
	return a->loop ? panel_loop_vector(a->loop, i, n) : panel_load_f32(&a->r, offset, i, n);
}

/* Offset of K element at + i in a row of x. */
static struct kb_val x_element(const struct linear *l, struct kb_val at, int i)
{
	return kb_mul(l->k, kb_add_const(l->k, at, i), l->k_stride.v);
}

/* Broadcasts K element at + i of each row. */
static void broadcast_x(const struct linear *l, const struct microkernel *a, struct kb_val at, int i,
                        struct kb_val *x)
{
	struct kb_type type = KB_TYPE(KB_F32, l->nest.lanes);
	for (int m = 0; m < a->p.rows; m++)
		x[m] = kb_load_splat(l->k, type, a->p.x[m], x_element(l, at, i), a->p.x_disp[m]);
}

/* acc[m][n] += x[m][at + i] w[n][at + i]. Each load directly precedes its uses, to keep live ranges short: weights of
 * the k-row, then x row by row; with is_x_first (f16, converted vector by vector, or few registers) all x, then one
 * vector at a time. A k-row of several K elements is prefetched at its first one. */
static void emit_k(const struct linear *l, const struct microkernel *a, struct kb_val at, int i)
{
	struct kb_val x[MATMUL_ROWS_MAX], offset = panel_k_row_offset(&a->r, at, i);
	if (a->prefetch.base.id && i % a->r.panel->k_per_line == 0)
		matmul_prefetch_k(l, &a->prefetch, kb_add_const(l->k, at, i));
	if (!a->nest.is_x_first) {
		reg_tile_mac_k(&a->p, x_element(l, at, i), offset, i, 0, a->p.rows);
		return;
	}
	broadcast_x(l, a, at, i, x);
	for (int n = 0; n < a->p.vectors; n++)
		reg_tile_mac_vector(&a->p, n, x, load_weights(a, offset, i, n));
}

/* Both K elements of a k-row of bf16 pairs, so that each vector is loaded once: x, odd: the even and the odd element
 * broadcast; odd NULL: elements i and i + 1 of the vectors x (multiply by element). */
static void add_pairs(const struct linear *l, const struct microkernel *a, struct kb_val offset,
                      const struct kb_val *x, const struct kb_val *odd, int i)
{
	for (int n = 0; n < a->p.vectors; n++) {
		struct kb_val pairs = panel_load_pairs(&a->r, a->r.at, offset, n);
		for (int e = 0; e < 2; e++) {
			struct kb_val w = panel_bf16_half(l->k, pairs, e);
			if (odd)
				reg_tile_mac_vector(&a->p, n, e ? odd : x, w);
			else
				reg_tile_mac_lane(&a->p, n, x, i + e, w);
		}
	}
}

/* K elements at + i and at + i + 1 of bf16 pairs. */
static void emit_k_pair(const struct linear *l, const struct microkernel *a, struct kb_val at, int i)
{
	struct kb_val x[2][MATMUL_ROWS_MAX], offset = panel_k_row_offset(&a->r, at, i);
	if (a->prefetch.base.id)
		matmul_prefetch_k(l, &a->prefetch, kb_add_const(l->k, at, i));
	broadcast_x(l, a, at, i, x[0]);
	broadcast_x(l, a, at, i + 1, x[1]);
	add_pairs(l, a, offset, x[0], x[1], 0);
}

/* `lanes` K neighbours, multiplied by element (NEON): in addition to the accumulators, a vector of each row and one of
 * weights are live. */
static void emit_k_lanes(const struct linear *l, const struct microkernel *a, struct kb_val at, int lanes)
{
	struct kb_val x[MATMUL_ROWS_MAX];
	bool pairs = a->r.panel->kind == PANEL_BF16_PAIRS;
	reg_tile_load_x(&a->p, at, lanes, x);
	for (int i = 0; i < lanes; i += 1 + pairs) {
		struct kb_val offset = panel_k_row_offset(&a->r, at, i);
		/* a share is at most half a k-row, unless rows are few */
		if (a->prefetch.base.id && i % (2 * a->r.panel->k_per_line) == 0)
			matmul_prefetch_k(l, &a->prefetch, kb_add_const(l->k, at, i));
		if (pairs)
			add_pairs(l, a, offset, x, NULL, i);
		else
			reg_tile_mac_k_lane(&a->p, x, offset, i);
	}
}

/* Where full iterations of `lanes` K elements, counted from k_lo, end in the K block; a constant if K is. */
static struct kb_val last_multiple(const struct linear *l, const struct matmul_block *s, int lanes)
{
	struct kb *k = l->k;
	if (matmul_has_constant_k(l))
		return kb_index(k, l->gemm.depth / lanes * lanes);
	struct kb_val n = kb_div_const(k, kb_sub(k, s->k_hi, s->k_lo), lanes);
	return kb_add(k, s->k_lo, kb_mul_const(k, n, lanes));
}

/* n K neighbours of a k-row of quants (a callback of panel_loop), which load_weights dequantizes. The k-row is
 * prefetched when its first word is used. Single elements (tail) are broadcast even where the target multiplies by
 * element. */
static void emit_quants(void *user, const struct panel_loop *w, struct kb_val at, int n)
{
	const struct microkernel *a = user;
	const struct linear *l = a->l;
	struct kb_val x[MATMUL_ROWS_MAX];
	bool by_lanes = n > 1 && n == a->nest.x_lanes;
	if (a->prefetch.base.id && w->is_first_use)
		matmul_prefetch_line(l, &a->prefetch, w->k_before, w->super_block, w->row_word);
	if (by_lanes)
		reg_tile_load_x(&a->p, at, n, x);
	for (int i = 0; i < n; i++) {
		if (by_lanes)
			reg_tile_mac_k_lane(&a->p, x, at, i);
		else
			reg_tile_mac_k(&a->p, x_element(l, at, i), at, i, 0, a->p.rows);
	}
}

/* The K loop over quants, which are dequantized in registers. a->loop is set while it is open: load_weights reads
 * it. */
static void loop_quants(const struct linear *l, struct microkernel *a)
{
	struct panel_loop w = {.k = l->k,
	                       .panel = a->r.panel,
	                       .lanes = l->nest.lanes,
	                       .vectors = a->p.vectors,
	                       .at = a->r.at,
	                       .lo = a->block->k_lo,
	                       .hi = a->block->k_hi,
	                       .is_k_range = l->nest.kc != 0,
	                       .body = emit_quants,
	                       .user = a};
	a->loop = &w;
	panel_loop(&w);
	a->loop = NULL;
}

/* The K block: loops with fewer and fewer K elements per iteration (nest.step), each over what the one before leaves:
 * by element vectors (x_lanes), by pairs of bf16, or one by one. No guard where K surely has an iteration. */
static void emit_k_loop(const struct linear *l, struct microkernel *a)
{
	struct kb *k = l->k;
	if (a->r.panel->kind == PANEL_QUANTS) {
		loop_quants(l, a);
		return;
	}
	bool is_nonempty =
	        a->nest.step[0] > 1 ? matmul_has_constant_k(l) : l->gemm.depth > 0 && !l->value.depth.id;
	struct kb_val from = a->block->k_lo;
	for (int s = 0; s < a->nest.n_steps; s++) {
		int n = a->nest.step[s];
		struct kb_val first = from;
		from = n > 1 ? last_multiple(l, a->block, n) : a->block->k_hi;
		struct kb_val at = kb_loop(k, "k", first, from, n, is_nonempty ? KB_NONEMPTY : 0);
		bool by_lanes = n > 1 && n == a->nest.x_lanes, by_pairs = n > 1 && a->nest.by_pairs;
		if (by_lanes)
			emit_k_lanes(l, a, at, n);
		for (int i = 0; !by_lanes && i < n; i += 1 + by_pairs) {
			if (by_pairs)
				emit_k_pair(l, a, at, i);
			else
				emit_k(l, a, at, i);
		}
		kb_end_loop(k);
	}
}

/* ---- the end of a tile ---- */

/* Columns of vector n of the tile that exist if the last panel has `last` columns: 0 .. lanes. */
static int valid_lanes(const struct linear *l, const struct microkernel *a, int n, int last)
{
	int per_panel = MATMUL_PANEL / l->nest.lanes;
	int left =
	        n / per_panel == a->tile->panels - 1 ? last - n % per_panel * l->nest.lanes : l->nest.lanes;
	return left < 0 ? 0 : left < l->nest.lanes ? left : l->nest.lanes;
}

/* Runs the epilogue on all accumulators; last: columns of the tile's last panel, in which vectors without valid lanes
 * are skipped. Column by column, so that bias and other values of a column are evaluated once for all rows (cache). */
static void finish_tile(const struct linear *l, struct microkernel *a, int last)
{
	struct kb *k = l->k;
	size_t mark = eval_mark(l->eval);
	struct eval_point p[MATMUL_ROWS_MAX];
	struct kb_val column = kb_mul_const(k, a->tile->panel, MATMUL_PANEL);
	for (int m = 0; m < a->tile->rows; m++)
		p[m] = tile_point(l, a->tile, m, column);
	for (int n = 0; n < a->p.vectors; n++) {
		int valid = valid_lanes(l, a, n, last);
		if (valid == 0)
			continue;
		struct kb_val at = kb_add_const(k, column, (int64_t)n * l->nest.lanes);
		struct eval_width before = eval_width(l->eval, l->nest.lanes, valid);
		for (int m = 0; m < a->tile->rows; m++) {
			p[m].index[l->rank - 1] = at;
			finish_element(l, a->block->expert, &p[m], reg_tile_acc(&a->p, m, n));
		}
		eval_width(l->eval, before.lanes, before.valid);
	}
	eval_release(l->eval, mark);
}

/* The last panel of N may be partial; only tiles of one panel include it. */
static void finish(const struct linear *l, struct microkernel *a)
{
	struct kb *k = l->k;
	int last = (int)(l->gemm.columns.n % MATMUL_PANEL);
	if (a->tile->panels > 1 || last == 0) {
		finish_tile(l, a, MATMUL_PANEL);
		return;
	}
	if (l->gemm.columns.panels == 1) {
		finish_tile(l, a, last);
		return;
	}
	kb_if(k, kb_cmp(k, KB_LT, a->tile->panel, kb_index(k, l->gemm.columns.panels - 1)));
	finish_tile(l, a, MATMUL_PANEL);
	kb_else(k);
	finish_tile(l, a, last);
	kb_end_if(k);
}

/* Stores the accumulators in the C buffer, without bias or epilogue. */
static void store_c_buf(const struct linear *l, struct microkernel *a)
{
	struct kb *k = l->k;
	struct kb_val at = c_buf_offset(l, a);
	for (int m = 0; m < a->tile->rows; m++)
		for (int n = 0; n < a->p.vectors; n++)
			kb_store(k, reg_tile_acc(&a->p, m, n), l->buf.c, at,
			         m * l->nest.c.width + n * l->nest.lanes, 0);
}

/* b_layout: panels are in the B buffer, counted from the block's begin, nc of each projection; else in memory. The K
 * loop by the reduced precision of x; repacked weights are read by the integer loops only. */
void matmul_microkernel(const struct linear *l, const struct matmul_block *s, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct microkernel a = {.l = l, .block = s, .tile = t};
	a.p = (struct reg_tile){
	        .k = k, .rows = t->rows, .lanes = l->nest.lanes, .weights = load_weights, .user = &a};
	a.p.vectors = t->panels * (MATMUL_PANEL / l->nest.lanes);
	const struct panel *layout = s->b_layout ? s->b_layout : &l->gemm.panel;
	struct kb_val panel = s->b_layout ? kb_sub(k, t->panel, s->begin) : t->panel;
	panel = matmul_of_mat(l, panel, t->mat, s->b_layout ? l->gemm.columns.nc : l->gemm.columns.panels);
	struct kb_val offset = kb_mul_const(k, panel, layout->bytes);
	a.r = (struct panel_reader){.k = k, .panel = layout, .lanes = l->nest.lanes};
	a.r.at = kb_ptr_add(k, s->weights, offset, 0);
	if (layout == &l->nest.b.stored) {
		a.r.row_stride = l->value.k_stride.v;
		a.r.stored = eval_stored_scalar(l->value.t->t.dtype);
	}
	a.nest = nest_tile(&l->gemm, &l->nest, layout, s->is_repacked, a.p.rows, a.p.vectors);
	if (a.nest.reloads_pairs)
		a.r.reload = kb_ptr_opaque(k, a.r.at);
	size_t mark = eval_mark(l->eval);
	find_x_rows(l, &a);
	eval_release(l->eval, mark);
	a.prefetch = t->prefetch;
	a.prefetch.base = matmul_prefetch_base(l, s, t, a.r.at);
	struct matmul_lowp_tile lowp = {
	        .l = l, .p = &a.p, .t = &a.nest, .w = a.r.at, .prefetch = &a.prefetch};
	if (s->is_repacked)
		find_repacked(&a, &lowp);
	begin_accumulators(l, &a);
	if (matmul_block_uses_amx(l, s))
		matmul_amx_per_block_loop(&lowp);
	else if (l->gemm.lowp.to.bf16)
		matmul_bf16_loop(&lowp);
	else if (l->gemm.lowp.is_on)
		matmul_int8_loop(&lowp);
	else
		emit_k_loop(l, &a);
	if (l->buf.c.id)
		store_c_buf(l, &a);
	else
		finish(l, &a);
}
