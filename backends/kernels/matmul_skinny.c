/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMV and skinny GEMM: at most 32 rows in models whose weights do not stay in a cache, so that reading
 * weights bounds the time. A worker has one run of panels and reads it once; all rows pass by a panel before
 * the next one. One panel at a time is one stream of memory; each k-row prefetches the one a fixed distance
 * (`ahead`) after it. More rows than hide the loads of one panel use tiles of the main size, in several passes over
 * them: then the panels are in the cache after the first pass, and each pass prefetches its share of the next ones.
 * Results do not depend on the grouping of rows. Past the end of the model's weights a prefetch would be a page walk:
 * distances are shortened there (matmul_prefetch_end).
 *
 * Terms of matmul_internal.h: a panel is 16 columns of packed weights, a k-row its line of 64 bytes; a tile is rows
 * (mr) times panels that one microkernel multiplies; a pass is a tile's panels read once for some of the rows; an N
 * block is the panels whose results are in the C buffer before the epilogue; a dot block is the K elements whose
 * integer products share one scale; mats: gate and up projection.
 */
#include "backends/kernels/matmul_internal.h"

/* ---- tiles ---- */

/* Address of the tile's first panel. */
static struct kb_val panel_address(const struct linear *l, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct kb_val panel = matmul_of_mat(l, t->panel, t->mat, l->gemm.columns.panels);
	return kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, panel, l->gemm.panel.bytes), 0);
}

/* The tile prefetches from `distance` bytes after `from` on, at most `reach`, or less where weights end before, and
 * `stride` bytes further for each K element. Returns the distance where weights may end; none: they never do. */
static struct kb_val prefetch_from(const struct linear *l, struct matmul_tile *t, struct kb_val from,
                                   struct kb_val distance, int64_t reach, struct kb_val stride)
{
	struct kb *k = l->k;
	struct kb_val end = matmul_prefetch_end(l, t->panel, t->mat, reach);
	if (end.id) {
		distance = kb_min(k, distance, kb_add_const(k, end, -t->panels * l->gemm.panel.bytes));
		end = distance;
	}
	t->prefetch.base = kb_ptr_add(k, from, distance, 0);
	t->prefetch.stride = stride;
	t->prefetch.panels = t->panels;
	return end;
}

/* The tile by a microkernel of `rows` rows, known in the call only: a branch for each mr that the pass may have, from
 * high down to low (at least one, if high < low). */
static void emit_tiles_of_pass(const struct linear *l, const struct matmul_block *s,
                               const struct matmul_tile *t, struct kb_val rows, const struct nest_pass *p)
{
	struct nest_rows of[MATMUL_ROWS_MAX];
	int n = 0;
	for (int i = p->high; n == 0 || i >= p->low; i--)
		of[n++] = (struct nest_rows){.rows = i};
	matmul_emit_by_rows(l, s, *t, of, n, rows, matmul_microkernel);
}

/* Passes of a call: their number, and how much each prefetches. */
struct shares {
	struct kb_val n;
	struct kb_val bytes;  /* of a pass */
	struct kb_val stride; /* of them for each K element */
};

/* All rows of the tile's panels, pass by pass: each takes ceil(rows left / passes left) rows, so that passes are about
 * equal. Pass i prefetches its share, part i of the next tile's panels. A call with one pass has nothing in the cache
 * yet: it prefetches p->ahead bytes ahead, unless the next panels stay in L2 anyway (next_fits). */
static void emit_passes(const struct linear *l, const struct matmul_block *s, const struct nest_pass *p,
                        const struct shares *of, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val next = panel_address(l, &t), zero = kb_index(k, 0);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, zero);
	struct kb_val pass = kb_loop(k, "pass", zero, of->n, 1, KB_NONEMPTY);
	struct kb_val left = kb_sub(k, of->n, pass);
	t.row = t.c_row = kb_get(k, row);
	struct kb_val others = kb_add_const(k, left, -1);
	struct kb_val rows = kb_add(k, kb_sub(k, l->rows, t.row), others);
	rows = kb_bin(k, KB_DIV, rows, left);
	struct kb_val distance = kb_index(k, t.panels * l->gemm.panel.bytes);
	distance = kb_add(k, distance, kb_mul(k, pass, of->bytes));
	if (t.panels == 1 || !p->next_fits)
		distance = kb_select(k, kb_cmp(k, KB_LE, of->n, kb_index(k, 1)), kb_index(k, p->ahead),
		                     distance);
	if (p->ahead > 0)
		prefetch_from(l, &t, next, distance, (t.panels + 1) * l->gemm.panel.bytes + p->ahead,
		              of->stride);
	emit_tiles_of_pass(l, s, &t, rows, p);
	kb_set(k, row, kb_add(k, t.row, rows));
	kb_end_loop(k);
}

/* ---- N blocks ---- */

/* One pass over the N block by tiles of p->panels panels, then the remainder one by one; each k-row of each panel
 * prefetches the one p->ahead bytes after it. */
static void emit_one_pass(const struct linear *l, const struct matmul_block *s, const struct nest_pass *p,
                          struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val end = {0};
	while (matmul_open_panels(l, s, &t, &end)) {
		if (p->ahead > 0) {
			struct kb_val first = panel_address(l, &t), distance = kb_index(k, p->ahead),
			              stride = kb_index(k, l->gemm.panel.bytes_per_k);
			t.prefetch.distance = p->ahead;
			t.prefetch.ahead = prefetch_from(l, &t, first, distance, p->ahead, stride);
		}
		emit_tiles_of_pass(l, s, &t, l->rows, p);
		kb_end_loop(k);
	}
}

/* Several passes, ceil(M / mr), over tiles of p->panels panels, then over single panels. of: the share of a pass,
 * ceil(bytes / passes) for each K element, and where in the next panels it begins (of.bytes for each pass before). */
static void emit_several_passes(const struct linear *l, const struct matmul_block *s,
                                const struct nest_pass *p, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val most = kb_index(k, p->mr), bytes_per_k = kb_index(k, l->gemm.panel.bytes_per_k),
	              end = {0};
	struct shares of = {.n = kb_bin(k, KB_DIV, kb_add_const(k, l->rows, p->mr - 1), most)};
	of.n = kb_max(k, of.n, kb_index(k, 1));
	of.stride = kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, bytes_per_k, of.n), -1), of.n);
	of.bytes = kb_mul(k, kb_bin(k, KB_DIV, kb_index(k, l->gemm.depth), of.n), bytes_per_k);
	while (matmul_open_panels(l, s, &t, &end)) {
		emit_passes(l, s, p, &of, t);
		kb_end_loop(k);
	}
}

/* The panels of the N block, of one projection, by one of n kinds of passes: a tree of comparisons of M with rows_max,
 * by recursion. A row alone (GEMV) is compared first, the most frequent call, else the kind of several passes. */
static void emit_panels(const struct linear *l, const struct matmul_block *s, const struct matmul_tile *t,
                        const struct nest_pass *p, int n)
{
	struct kb *k = l->k;
	if (n == 1) {
		struct matmul_tile tile = *t;
		tile.panels = p->panels;
		if (p->is_one)
			emit_one_pass(l, s, p, tile);
		else
			emit_several_passes(l, s, p, tile);
		return;
	}
	int first = p[0].rows_max > 1 && !p[n - 1].is_one ? n - 1 : 1;
	kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, p[first - 1].rows_max)));
	emit_panels(l, s, t, p, first);
	kb_else(k);
	emit_panels(l, s, t, p + first, n - first);
	kb_end_if(k);
}

/* Workers divide the panels by units that stay in one task (whole heads, the width of a block op, else 1 panel); each
 * makes the rows of x for itself. K is not blocked. M = 0 runs nothing: tiles have at least one
 * row. `mat` is the inner loop: the epilogue combines the projections (gate, up) of one N block. */
void matmul_skinny(const struct linear *l)
{
	struct kb *k = l->k;
	const struct matmul_columns *c = &l->gemm.columns;
	struct kb_val hi, unit = kb_index(k, c->unit), panels = kb_index(k, c->panels), zero = kb_index(k, 0);
	struct kb_val lo = eval_worker_range(l->eval, kb_index(k, ceil_div(c->panels, c->unit)), &hi);
	struct kb_val first = kb_mul(k, lo, unit), end = kb_min(k, kb_mul(k, hi, unit), panels);
	if (l->gemm.rows_lo < 1)
		kb_if(k, kb_cmp(k, KB_GT, l->rows, zero));
	struct matmul_block s = {.rows = l->rows, .row = zero, .row_end = l->rows, .k_lo = zero};
	s.k_hi = kb_index(k, l->gemm.depth);
	s.weights = l->w->t.ptr;
	matmul_fill_x_buffer(l, s.row, s.row_end, first, end);
	s.begin = kb_loop(k, "n_block", first, end, c->nc, 0);
	s.end = kb_min(k, kb_add_const(k, s.begin, c->nc), end);
	struct kb_val mat = {0};
	if (l->gemm.columns.mats > 1)
		mat = kb_loop(k, "mat", zero, kb_index(k, l->gemm.columns.mats), 1, KB_NONEMPTY);
	const struct matmul_tile t = {.has_single = true, .mat = mat, .row = s.row, .c_row = s.row};
	emit_panels(l, &s, &t, l->nest.pass, l->nest.n_passes);
	if (l->gemm.columns.mats > 1)
		kb_end_loop(k);
	if (l->buf.c.id)
		matmul_epilogue(l, &s, s.row, l->rows);
	kb_end_loop(k);
	if (l->gemm.rows_lo < 1)
		kb_end_if(k);
}
