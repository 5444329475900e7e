/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMV and skinny GEMM: at most 32 rows in models whose weights do not stay in a cache, so that reading
 * weights bounds the time. A worker has one run of panels and reads it once; all rows pass by a panel before
 * the next one. One panel at a time is one stream of memory; each k-row prefetches the one a fixed distance
 * ahead. More rows than hide the loads of one panel use tiles of the main size. Results do not depend on the
 * grouping of rows.
 *
 * Terms of matmul_internal.h: a panel is 16 columns of packed weights, a k-row its line of 64 bytes; a tile is rows
 * (mr) times panels that one microkernel multiplies; a pass is a tile's panels read once for some of the rows; an N
 * block is the panels whose results wait in the C buffer for the epilogue; a dot block is the K elements whose integer
 * products share one scale; mats: gate and up projection.
 */
#include "backends/kernels/matmul_internal.h"
#include "ir/support/checked.h"

#define ROWS_MAX            32 /* rows of a call */
#define ALWAYS_MORE_MAX     15 /* rows_lo above it: M blocks may be faster */
#define PANEL_MR_MAX        8 /* rows of a one-panel tile: beyond it, loads of x are the bound, not the weights */
#define INLINE_LOW_MR       3     /* rows for which dequantizing tiles take more panels */
#define C_BUFFER_MAX        65536 /* bytes of the C buffer of an N block */
#define PREFETCH_BYTES      8192  /* prefetch distance in bytes */
#define PREFETCH_BYTES_GEMV 4096  /* the same for one row without dot blocks, where it measured faster */
#define L2_SHARE_BLOCKS     8 /* M blocks are faster if the panels of a tile take at most this part of L2 */
#define L2_SHARE_NEXT       4 /* the next panels stay in L2 with the current ones if each take at most this part */
#define L2_MULTIPLE         16 /* weights of this many times L2 come from memory in every call */

/* ---- choice ---- */

/* Bytes of all weights of the model, at least those of this linear; saturates. */
static int64_t model_weight_bytes(const struct linear *l)
{
	const struct ir_module *m = l->job->module;
	int64_t linear_bytes, sum = 0;
	if (!checked_mul_i64(l->columns.n, ir_format_row_bytes(l->panel.format, l->depth), &linear_bytes))
		return INT64_MAX;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_type *t = m->weights.items[i]->type;
		enum ir_format stored = ir_weight_stored_format(m->weights.items[i]);
		int last = ir_format_is_quantized(stored) ? t->rank - 1 : t->rank;
		int64_t bytes =
		        ir_dtype_bytes(ir_format(stored)->dtype); /* DT_F32 where elements have 4 bytes */
		if (last < t->rank)
			bytes = ir_format_row_bytes(stored, ir_dim_hi(m->dims, t->dims[last]));
		for (int a = 0; a < last; a++)
			if (!checked_mul_i64(bytes, ir_dim_hi(m->dims, t->dims[a]), &bytes))
				return INT64_MAX;
		if (!checked_add_i64(sum, bytes, &sum))
			return INT64_MAX;
	}
	return sum > linear_bytes ? sum : linear_bytes;
}

/* True if integer accumulators are scaled block by block, which takes more than one register per accumulator. */
static bool has_dot_blocks(const struct linear *l)
{
	return matmul_acc_registers(l) > 1;
}

/* mr of a one-panel tile: registers left by a k-row of weights, an element of x and, without FMA, a product. */
static int single_panel_mr(const struct linear *l)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int vectors = matmul_panel_vectors(l), free = caps->registers - vectors - 2 - !caps->has_fma;
	if (l->panel.kind == PANEL_QUANTS && !l->lowp.op)
		free -= vectors * (1 + l->panel.live_registers) + 2; /* constants */
	int rows = free / (vectors * matmul_acc_registers(l));
	return rows < 1 ? 1 : rows < PANEL_MR_MAX ? rows : PANEL_MR_MAX;
}

/* True if `panels` panels take at most 1 / part of L2. */
static bool fit_l2_share(const struct linear *l, int panels, int part)
{
	return panels * l->panel.bytes <= l->job->target->l2_bytes / part;
}

/* True if calls always have many rows, and panels are short or need more than two passes: M blocks are
 * faster. */
static bool prefers_m_blocks(const struct linear *l)
{
	return l->rows_lo > ALWAYS_MORE_MAX &&
	       (l->rows_hi > 2 * l->mr || fit_l2_share(l, l->nr, L2_SHARE_BLOCKS));
}

bool matmul_is_skinny(const struct linear *l)
{
	int64_t width = (int64_t)l->columns.mats * l->columns.nc * MATMUL_PANEL;
	return !matmul_prefers_small_code(l) && !l->value.t && !l->amx.config.id && !prefers_m_blocks(l) &&
	       !l->norm.after && (!matmul_has_x_buffer(l) || l->rows_hi <= l->norm.x_rows) &&
	       l->job->items <= 1 && l->rows_hi <= ROWS_MAX && l->rows_hi * width * 4 <= C_BUFFER_MAX &&
	       l->lanes <= kb_caps(l->k)->lanes &&
	       model_weight_bytes(l) / L2_MULTIPLE > l->job->target->l2_bytes;
}

/* ---- tiles ---- */

/* True if a k-row costs one multiply-add: the hardware prefetcher then keeps up with several panels. */
static bool is_load_bound(const struct linear *l)
{
	return l->panel.kind == PANEL_F32 ||
	       (l->lowp.op && matmul_has_dot(l) && matmul_panel_vectors(l) == 1);
}

/* Panels that a GEMV interleaves: one panel has too few accumulators to hide the latency of multiply-adds. Not for
 * int8 that is converted in registers, which is bound by the conversion. The more a k-row costs, the fewer. */
static int gemv_panels(const struct linear *l)
{
	if (matmul_panel_vectors(l) > 2 || has_dot_blocks(l) || l->columns.n / MATMUL_PANEL < MATMUL_NC)
		return 1;
	if (is_load_bound(l))
		return MATMUL_NC;
	if (matmul_dequantizes_inline(l))
		return matmul_inline_panels(l, 1);
	return l->lowp.op && !l->lowp.to.bf16 ? 1 : MATMUL_NC / 2;
}

/*
 * Passes over the rows of a tile of panels: one if the rows fit into a register tile, else n = ceil(rows / mr) of about
 * equal mr. n is known at run time only; microkernels are emitted for every mr from mr_max down to mr_min that
 * any number of rows can need. Together the passes prefetch the next panels once: a pass its share of them.
 */
struct passes {
	int mr_max, mr_min;   /* mr of the largest and the smallest pass */
	int panels;           /* panels of a tile */
	struct kb_val n;      /* number of passes; none: one */
	struct kb_val share;  /* bytes that a pass prefetches */
	struct kb_val stride; /* of them for each K element */
};

/* True if passes use the main register tile, which loads less for each multiply-add than a tile of one panel. */
static bool uses_main_tile(const struct linear *l)
{
	return l->rows_hi > single_panel_mr(l) && l->mr * l->nr > single_panel_mr(l);
}

/* One pass: prefetches at a fixed distance. Quants are fewer bytes than floats, so the chain of multiply-adds
 * would be slower than memory: the fewer rows, the more panels. */
static struct passes plan_one_pass(const struct linear *l)
{
	int64_t most = single_panel_mr(l), least = gemv_panels(l) > 1 ? 2 : 1;
	most = l->rows_hi < most ? l->rows_hi : most;
	least = l->rows_lo > least ? l->rows_lo : least;
	return (struct passes){.mr_max = (int)most,
	                       .mr_min = (int)(least < most ? least : most),
	                       .panels =
	                               matmul_dequantizes_inline(l) ? matmul_inline_panels(l, (int)most) : 1,
	                       .stride = kb_index(l->k, matmul_bytes_per_k(l))};
}

/* Largest and smallest mr of n = ceil(rows / most) passes, over all numbers of rows that can occur. */
static void find_pass_mr(const struct linear *l, struct passes *p)
{
	int64_t most = p->mr_max, rows = uses_main_tile(l)    ? single_panel_mr(l) + 1
	                                 : gemv_panels(l) > 1 ? 2
	                                                      : 1;
	rows = l->rows_lo > rows ? l->rows_lo : rows;
	for (p->mr_max = 1, p->mr_min = (int)most; rows <= l->rows_hi; rows++) {
		int64_t n = (rows + most - 1) / most, low = rows / n, high = (rows + n - 1) / n;
		p->mr_max = high > p->mr_max ? (int)high : p->mr_max;
		p->mr_min = low < p->mr_min ? (int)low : p->mr_min;
	}
}

/* Several passes: each prefetches its share of the next panels, so that memory is busy all the time; a single
 * one, too, if these fit into L2 with its own. */
static struct passes plan_passes(const struct linear *l)
{
	struct kb *k = l->k;
	struct passes p = {.mr_max = single_panel_mr(l), .panels = 1};
	if (uses_main_tile(l))
		p = (struct passes){.mr_max = l->mr, .panels = l->nr};
	struct kb_val most = kb_index(k, p.mr_max), bytes_per_k = kb_index(k, matmul_bytes_per_k(l));
	p.n = kb_bin(k, KB_DIV, kb_add_const(k, l->rows, p.mr_max - 1), most);
	p.n = kb_max(k, p.n, kb_index(k, 1));
	p.stride = kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, bytes_per_k, p.n), -1), p.n);
	p.share = kb_mul(k, kb_bin(k, KB_DIV, kb_index(k, l->depth), p.n), bytes_per_k);
	find_pass_mr(l, &p);
	return p;
}

/* The tile by a microkernel of `rows` rows: a branch for each mr that the pass may have. */
static void emit_by_rows(const struct linear *l, const struct matmul_block *s, struct matmul_tile t,
                         struct kb_val rows, const struct passes *p)
{
	int mr[MATMUL_ROWS_MAX], n = 0;
	for (int i = p->mr_max; n == 0 || i >= p->mr_min; i--)
		mr[n++] = i;
	matmul_emit_by_mr(l, s, t, mr, n, rows, matmul_microkernel);
}

/* Address of the tile's first panel. */
static struct kb_val panel_address(const struct linear *l, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct kb_val panel = t->panel;
	if (l->columns.mats > 1)
		panel = kb_add(k, panel, kb_mul_const(k, t->mat, l->columns.panels));
	return kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, panel, l->panel.bytes), 0);
}

/* The prefetch distance `ahead` of the tile, at most `reach`, or less where weights end before; none: they never do. */
static struct kb_val stop_at_end(const struct linear *l, const struct matmul_tile *t, struct kb_val ahead,
                                 int64_t reach)
{
	struct kb_val end = matmul_prefetch_end(l, t->panel, t->mat, reach);
	return end.id ? kb_min(l->k, ahead, kb_add_const(l->k, end, -t->panels * l->panel.bytes)) : end;
}

/* All rows of the tile's panels, pass by pass: each takes ceil(rows left / passes left) rows, so that passes are about
 * equal. */
static void emit_passes(const struct linear *l, const struct matmul_block *s, const struct passes *p,
                        struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val next = panel_address(l, &t), zero = kb_index(k, 0);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, zero);
	struct kb_val pass = kb_loop(k, "pass", zero, p->n, 1, KB_NONEMPTY);
	struct kb_val left = kb_sub(k, p->n, pass);
	t.row = t.c_row = kb_get(k, row);
	struct kb_val others = kb_add_const(k, left, -1);
	struct kb_val rows = kb_add(k, kb_sub(k, l->rows, t.row), others);
	rows = kb_bin(k, KB_DIV, rows, left);
	struct kb_val distance = kb_index(k, t.panels * l->panel.bytes);
	distance = kb_add(k, distance, kb_mul(k, pass, p->share));
	if (t.panels == 1 || !fit_l2_share(l, t.panels, L2_SHARE_NEXT))
		distance = kb_select(k, kb_cmp(k, KB_LE, p->n, kb_index(k, 1)), kb_index(k, PREFETCH_BYTES),
		                     distance);
	struct kb_val ahead = stop_at_end(l, &t, distance, (t.panels + 1) * l->panel.bytes + PREFETCH_BYTES);
	t.prefetch.base = kb_ptr_add(k, next, ahead.id ? ahead : distance, 0);
	t.prefetch.stride = p->stride;
	t.prefetch.panels = t.panels;
	emit_by_rows(l, s, t, rows, p);
	kb_set(k, row, kb_add(k, t.row, rows));
	kb_end_loop(k);
}

/* ---- N blocks ---- */

/* Loop over tiles of t.panels panels from t.panel on, all rows in one pass; returns the panel where it ends. */
static struct kb_val loop_panels_one_pass(const struct linear *l, const struct matmul_block *s,
                                          const struct passes *p, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val end = t.panels > 1 ? matmul_full_tiles_end(l, s, t.panels) : s->end;
	t.panel = kb_loop(k, "panel", t.panel, end, t.panels, 0);
	t.prefetch.distance = p->mr_max > 1 || has_dot_blocks(l) ? PREFETCH_BYTES : PREFETCH_BYTES_GEMV;
	struct kb_val first = panel_address(l, &t), distance = kb_index(k, t.prefetch.distance);
	t.prefetch.ahead = stop_at_end(l, &t, distance, t.prefetch.distance);
	t.prefetch.base = kb_ptr_add(k, first, t.prefetch.ahead.id ? t.prefetch.ahead : distance, 0);
	t.prefetch.stride = p->stride;
	t.prefetch.panels = t.panels;
	emit_by_rows(l, s, t, l->rows, p);
	kb_end_loop(k);
	return end;
}

/* The N block by tiles of p->panels panels, then the remainder one by one. */
static void emit_one_pass_panels(const struct linear *l, const struct matmul_block *s, const struct passes *p,
                                 struct matmul_tile t)
{
	t.panel = s->begin;
	t.panels = p->panels;
	if (t.panels > 1)
		t.panel = loop_panels_one_pass(l, s, p, t);
	t.panels = 1;
	loop_panels_one_pass(l, s, p, t);
}

/* One pass; if microkernels dequantize, calls of very few rows take more panels. */
static void emit_one_pass(const struct linear *l, const struct matmul_block *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct passes p = plan_one_pass(l), low = p;
	low.mr_max = INLINE_LOW_MR;
	if (!matmul_dequantizes_inline(l) || p.mr_min > low.mr_max || p.mr_max <= low.mr_max) {
		emit_one_pass_panels(l, s, &p, t);
		return;
	}
	low.panels = matmul_inline_panels(l, low.mr_max);
	p.mr_min = low.mr_max + 1;
	kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, low.mr_max)));
	emit_one_pass_panels(l, s, &low, t);
	kb_else(k);
	emit_one_pass_panels(l, s, &p, t);
	kb_end_if(k);
}

/* Several passes over tiles of p.panels panels, then over single panels. */
static void emit_several_passes(const struct linear *l, const struct matmul_block *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	const struct passes p = plan_passes(l);
	struct kb_val full = s->begin;
	if (p.panels > 1) {
		full = matmul_full_tiles_end(l, s, p.panels);
		t.panels = p.panels;
		t.panel = kb_loop(k, "panel", s->begin, full, p.panels, 0);
		emit_passes(l, s, &p, t);
		kb_end_loop(k);
	}
	t.panels = 1;
	t.panel = kb_loop(k, "panel", full, s->end, 1, 0);
	emit_passes(l, s, &p, t);
	kb_end_loop(k);
}

/* Chooses between one pass and several, where both can occur. */
static void emit_rows(const struct linear *l, const struct matmul_block *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	int most = single_panel_mr(l);
	bool needs_passes = l->rows_hi > most;
	bool has_one_pass = !needs_passes || (uses_main_tile(l) && l->rows_lo <= most);
	if (has_one_pass && needs_passes)
		kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, most)));
	if (has_one_pass)
		emit_one_pass(l, s, t);
	if (has_one_pass && needs_passes)
		kb_else(k);
	if (needs_passes)
		emit_several_passes(l, s, t);
	if (has_one_pass && needs_passes)
		kb_end_if(k);
}

/* The panels of the N block, of one projection; a single row (GEMV) interleaves several. */
static void emit_panels(const struct linear *l, const struct matmul_block *s, struct kb_val mat)
{
	struct kb *k = l->k;
	struct matmul_tile t = {.mat = mat, .row = s->row, .c_row = s->row};
	const struct passes one = {.mr_max = 1,
	                           .mr_min = 1,
	                           .panels = gemv_panels(l),
	                           .stride = kb_index(k, matmul_bytes_per_k(l))};
	bool may_be_one = one.panels > 1 && l->rows_lo < 2; /* a GEMV has its own loop */
	if (may_be_one) {
		if (l->rows_hi > 1)
			kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, 1)));
		t.rows = 1;
		t.panels = one.panels;
		if (is_load_bound(l))
			matmul_emit_panels(l, s, t, true);
		else
			emit_one_pass_panels(l, s, &one, t);
		if (l->rows_hi > 1)
			kb_else(k);
	}
	if (!may_be_one || l->rows_hi > 1)
		emit_rows(l, s, t);
	if (may_be_one && l->rows_hi > 1)
		kb_end_if(k);
}

void matmul_skinny(const struct linear *l)
{
	struct kb *k = l->k;
	const struct matmul_columns *c = &l->columns;
	struct kb_val hi, unit = kb_index(k, c->unit), panels = kb_index(k, c->panels), zero = kb_index(k, 0);
	struct kb_val lo = eval_worker_range(l->eval, kb_index(k, (c->panels + c->unit - 1) / c->unit), &hi);
	struct kb_val first = kb_mul(k, lo, unit), end = kb_min(k, kb_mul(k, hi, unit), panels);
	if (l->rows_lo < 1)
		kb_if(k, kb_cmp(k, KB_GT, l->rows, zero));
	struct matmul_block s = {.rows = l->rows, .row = zero, .row_end = l->rows, .k_lo = zero};
	s.k_hi = kb_index(k, l->depth);
	s.weights = l->w->t.ptr;
	matmul_fill_x_buffer(l, s.row, s.row_end, first, end);
	s.begin = kb_loop(k, "n_block", first, end, c->nc, 0);
	s.end = kb_min(k, kb_add_const(k, s.begin, c->nc), end);
	struct kb_val mat = {0};
	if (l->columns.mats > 1)
		mat = kb_loop(k, "mat", zero, kb_index(k, l->columns.mats), 1, KB_NONEMPTY);
	emit_panels(l, &s, mat);
	if (l->columns.mats > 1)
		kb_end_loop(k);
	if (l->c_buf.at.id)
		matmul_epilogue(l, &s, s.row, l->rows);
	kb_end_loop(k);
	if (l->rows_lo < 1)
		kb_end_if(k);
}
