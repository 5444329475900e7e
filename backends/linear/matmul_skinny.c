/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears with few rows in models whose weights do not stay in a cache: reading
 * the weights is what takes time. A worker has one run of panels and walks over
 * it once; all rows pass by a panel before the next one begins. One panel at a
 * time is one stream of memory, of which a line far behind is fetched with every
 * line that is used. More rows than hide the loads of one panel's weights go in
 * tiles of the main size. Which rows go together changes no result.
 */
#include "backends/linear/matmul_internal.h"
#include "ir/support/checked.h"

#define FEW_ROWS_MAX    32    /* rows of a call at most */
#define FEW_LEAST_MAX   15    /* always more rows may be faster by blocks */
#define FEW_TILE_MAX    8     /* of a tile: more wait for operands instead of weights */
#define FEW_ROWS_LOW    3     /* that have more panels of codes side by side */
#define FEW_STAGE_MAX   65536 /* bytes of finished products of a strip */
#define FEW_AHEAD       8192  /* bytes between the line that is used and the one that is fetched */
#define FEW_AHEAD_ONE   4096  /* the same for a tile of one row without integers in steps, which is faster */
#define FEW_L2_BLOCKS   8     /* they are where the panels of a tile take no more than this part of L2 */
#define FEW_L2_NEXT     4     /* the same, for the panels that come next to stay beside them */
#define FEW_L2_MULTIPLE 16    /* weights that large are read from memory by every call */

/* ---- whether ---- */

/* Bytes of all weights of the model, those of the linear at least. */
static int64_t bytes_of_model(const struct linear *l)
{
	const struct ir_module *m = l->job->module;
	int64_t own, sum = 0;
	if (!checked_mul_i64(l->columns.n, ir_format_row_bytes(l->panel.format, l->depth), &own))
		return INT64_MAX;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_type *t = m->weights.items[i]->type;
		enum ir_format kept = ir_weight_stored_format(m->weights.items[i]);
		int last = ir_format_is_quantized(kept) ? t->rank - 1 : t->rank;
		int64_t bytes =
		        ir_dtype_bytes(ir_format(kept)->dtype); /* DT_F32 where elements have 4 bytes */
		if (last < t->rank)
			bytes = ir_format_row_bytes(kept, ir_dim_hi(m->dims, t->dims[last]));
		for (int a = 0; a < last; a++)
			if (!checked_mul_i64(bytes, ir_dim_hi(m->dims, t->dims[a]), &bytes))
				return INT64_MAX;
		if (!checked_add_i64(sum, bytes, &sum))
			return INT64_MAX;
	}
	return sum > own ? sum : own;
}

/* Integers in steps: a panel is one stream of codes and scales. */
static bool has_integer_steps(const struct linear *l)
{
	return matmul_sum_registers(l) > 1;
}

/* Rows of a tile: sums, a line of weights, an element of x and, without fma, a product. */
static int rows_of_tile(const struct linear *l)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int units = matmul_units(l), free = caps->registers - units - 2 - !caps->has_fma;
	if (l->panel.lines == PANEL_CODES && !l->rounded.round)
		free -= units * (1 + l->panel.held) + 2; /* constants */
	int rows = free / (units * matmul_sum_registers(l));
	return rows < 1 ? 1 : rows < FEW_TILE_MAX ? rows : FEW_TILE_MAX;
}

/* Bytes of the panels of a tile are that part of L2 at most. */
static bool are_short(const struct linear *l, int panels, int part)
{
	return panels * l->panel.bytes <= l->job->target->l2_bytes / part;
}

/* Always more rows than a tile has: where panels are short, or passes more than two, blocks are faster. */
static bool is_for_blocks(const struct linear *l)
{
	return l->rows_lo > FEW_LEAST_MAX && (l->rows_hi > 2 * l->mr || are_short(l, l->nr, FEW_L2_BLOCKS));
}

bool matmul_is_few(const struct linear *l)
{
	int64_t width = (int64_t)l->columns.halves * l->columns.strip * MATMUL_PANEL;
	return !matmul_is_short(l) && !l->matrix.config.id && !is_for_blocks(l) && !l->norm.after &&
	       (!matmul_makes_rows(l) || l->rows_hi <= l->norm.rows) && l->job->items <= 1 &&
	       l->rows_hi <= FEW_ROWS_MAX && l->rows_hi * width * 4 <= FEW_STAGE_MAX &&
	       l->lanes <= kb_caps(l->k)->lanes &&
	       bytes_of_model(l) / FEW_L2_MULTIPLE > l->job->target->l2_bytes;
}

/* ---- tiles ---- */

/* A line of weights is one multiplication: the machine's own look-ahead keeps up with panels side by side. */
static bool is_plain(const struct linear *l)
{
	return l->panel.lines == PANEL_WORDS ||
	       (l->rounded.round && matmul_has_dots(l) && matmul_units(l) == 1);
}

/* Of one row, side by side: the few sums of a panel wait for each other, but for those of bytes that are widened, which are
 * busy with that. */
static int panels_of_row(const struct linear *l)
{
	if (matmul_units(l) > 2 || has_integer_steps(l) || l->columns.n / MATMUL_PANEL < MATMUL_STRIP)
		return 1;
	if (is_plain(l))
		return MATMUL_STRIP;
	if (matmul_reads_codes(l))
		return matmul_panels_of_codes(l, 1);
	return l->rounded.round && !l->rounded.to.bf16 ? 1 : MATMUL_STRIP / 2;
}

/* How panels are walked over: once when their rows fit into a tile, else in passes of about as many rows. */
struct passes {
	int most, least;     /* rows of a tile */
	int panels;          /* side by side */
	struct kb_val n;     /* none: one */
	struct kb_val share; /* bytes that a pass fetches */
	struct kb_val step;  /* of them for each k */
};

/* More rows than a tile has over one panel: tiles of the main height and width have fewer loads for each product. */
static bool has_wide(const struct linear *l)
{
	return l->rows_hi > rows_of_tile(l) && l->mr * l->nr > rows_of_tile(l);
}

/* A single pass over a panel fetches the lines a little behind. Codes are fewer bytes than floats, whose chain of
 * multiply-adds would be slower than memory: the fewer rows, the more panels side by side. */
static struct passes one_pass(const struct linear *l)
{
	int64_t most = rows_of_tile(l), least = panels_of_row(l) > 1 ? 2 : 1;
	most = l->rows_hi < most ? l->rows_hi : most;
	least = l->rows_lo > least ? l->rows_lo : least;
	return (struct passes){.most = (int)most,
	                       .least = (int)(least < most ? least : most),
	                       .panels = matmul_reads_codes(l) ? matmul_panels_of_codes(l, (int)most) : 1,
	                       .step = kb_index(l->k, matmul_step_bytes(l))};
}

/* Heights of n = ceil(rows / most) passes of about as many rows, for all rows that there can be. */
static void find_heights(const struct linear *l, struct passes *p)
{
	int64_t most = p->most, rows = has_wide(l) ? rows_of_tile(l) + 1 : panels_of_row(l) > 1 ? 2 : 1;
	rows = l->rows_lo > rows ? l->rows_lo : rows;
	for (p->most = 1, p->least = (int)most; rows <= l->rows_hi; rows++) {
		int64_t n = (rows + most - 1) / most, low = rows / n, high = (rows + n - 1) / n;
		p->most = high > p->most ? (int)high : p->most;
		p->least = low < p->least ? (int)low : p->least;
	}
}

/* Of several passes each fetches its part of the panels that come next, so that memory is read all the time; a
 * single one as well where these fit into L2 beside its own. */
static struct passes several_passes(const struct linear *l)
{
	struct kb *k = l->k;
	struct passes p = {.most = rows_of_tile(l), .panels = 1};
	if (has_wide(l))
		p = (struct passes){.most = l->mr, .panels = l->nr};
	struct kb_val most = kb_index(k, p.most), line = kb_index(k, matmul_step_bytes(l));
	p.n = kb_bin(k, KB_DIV, kb_add_const(k, l->rows, p.most - 1), most);
	p.n = kb_max(k, p.n, kb_index(k, 1));
	p.step = kb_bin(k, KB_DIV, kb_add_const(k, kb_add(k, line, p.n), -1), p.n);
	p.share = kb_mul(k, kb_bin(k, KB_DIV, kb_index(k, l->depth), p.n), line);
	find_heights(l, &p);
	return p;
}

/* if (height >= most) ..; else if (height >= most - 1) ..; the last one always fits. */
static void emit_heights(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t,
                         struct kb_val height, int most, int least)
{
	struct kb *k = l->k;
	if (most > least)
		kb_if(k, kb_cmp(k, KB_GE, height, kb_index(k, most)));
	t.rows = most;
	matmul_tile(l, s, &t);
	if (most > least) {
		kb_else(k);
		emit_heights(l, s, t, height, most - 1, least);
		kb_end_if(k);
	}
}

/* Where a tile's panels begin. */
static struct kb_val panels_at(const struct linear *l, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct kb_val panel = t->panel;
	if (l->columns.halves > 1)
		panel = kb_add(k, panel, kb_mul_const(k, t->half, l->columns.panels));
	return kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, panel, l->panel.bytes), 0);
}

/* All rows of the tile's panels, in passes. */
static void emit_passes(const struct linear *l, const struct matmul_strip *s, const struct passes *p,
                        struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val next = panels_at(l, &t), zero = kb_index(k, 0);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, zero);
	struct kb_val pass = kb_loop(k, "pass", zero, p->n, 1, KB_NONEMPTY);
	struct kb_val left = kb_sub(k, p->n, pass);
	t.row = t.stage_row = kb_get(k, row);
	struct kb_val others = kb_add_const(k, left, -1);
	struct kb_val height = kb_add(k, kb_sub(k, l->rows, t.row), others);
	height = kb_bin(k, KB_DIV, height, left);
	struct kb_val behind = kb_index(k, t.panels * l->panel.bytes);
	behind = kb_add(k, behind, kb_mul(k, pass, p->share));
	if (t.panels == 1 || !are_short(l, t.panels, FEW_L2_NEXT))
		behind = kb_select(k, kb_cmp(k, KB_LE, p->n, kb_index(k, 1)), kb_index(k, FEW_AHEAD), behind);
	t.ahead.from = kb_ptr_add(k, next, behind, 0);
	t.ahead.step = p->step;
	t.ahead.panels = t.panels;
	emit_heights(l, s, t, height, p->most, p->least);
	kb_set(k, row, kb_add(k, t.row, height));
	kb_end_loop(k);
}

/* ---- strips ---- */

/* So many panels side by side from t.panel on while they are there, their rows in one pass; where that ends. */
static struct kb_val walk_one_pass(const struct linear *l, const struct matmul_strip *s,
                                   const struct passes *p, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct kb_val end = t.panels > 1 ? matmul_whole_panels(l, s, t.panels) : s->end;
	t.panel = kb_loop(k, "panel", t.panel, end, t.panels, 0);
	t.ahead.behind = p->most > 1 || has_integer_steps(l) ? FEW_AHEAD : FEW_AHEAD_ONE;
	t.ahead.from = kb_ptr_add(k, panels_at(l, &t), kb_index(k, t.ahead.behind), 0);
	t.ahead.step = p->step;
	t.ahead.panels = t.panels;
	emit_heights(l, s, t, l->rows, p->most, p->least);
	kb_end_loop(k);
	return end;
}

/* Panels side by side, and one by one what is left. */
static void emit_one_pass_of(const struct linear *l, const struct matmul_strip *s, const struct passes *p,
                             struct matmul_tile t)
{
	t.panel = s->begin;
	t.panels = p->panels;
	if (t.panels > 1)
		t.panel = walk_one_pass(l, s, p, t);
	t.panels = 1;
	walk_one_pass(l, s, p, t);
}

/* The rows of each panel in one pass; few of them over more panels of codes than more of them. */
static void emit_one_pass(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	struct passes p = one_pass(l), low = p;
	low.most = FEW_ROWS_LOW;
	if (!matmul_reads_codes(l) || p.least > low.most || p.most <= low.most) {
		emit_one_pass_of(l, s, &p, t);
		return;
	}
	low.panels = matmul_panels_of_codes(l, low.most);
	p.least = low.most + 1;
	kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, low.most)));
	emit_one_pass_of(l, s, &low, t);
	kb_else(k);
	emit_one_pass_of(l, s, &p, t);
	kb_end_if(k);
}

/* As many panels as tiles have, and what is left by single ones. */
static void emit_several(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	const struct passes p = several_passes(l);
	struct kb_val whole = s->begin;
	if (p.panels > 1) {
		whole = matmul_whole_panels(l, s, p.panels);
		t.panels = p.panels;
		t.panel = kb_loop(k, "panel", s->begin, whole, p.panels, 0);
		emit_passes(l, s, &p, t);
		kb_end_loop(k);
	}
	t.panels = 1;
	t.panel = kb_loop(k, "panel", whole, s->end, 1, 0);
	emit_passes(l, s, &p, t);
	kb_end_loop(k);
}

/* Rows of one pass, and more, where both can be. */
static void emit_rows(const struct linear *l, const struct matmul_strip *s, struct matmul_tile t)
{
	struct kb *k = l->k;
	int most = rows_of_tile(l);
	bool may_be_more = l->rows_hi > most;
	bool has_own_tiles = !may_be_more || (has_wide(l) && l->rows_lo <= most);
	if (has_own_tiles && may_be_more)
		kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, most)));
	if (has_own_tiles)
		emit_one_pass(l, s, t);
	if (has_own_tiles && may_be_more)
		kb_else(k);
	if (may_be_more)
		emit_several(l, s, t);
	if (has_own_tiles && may_be_more)
		kb_end_if(k);
}

/* The panels of the strip, of one half; a single row takes several side by side. */
static void emit_panels(const struct linear *l, const struct matmul_strip *s, struct kb_val half)
{
	struct kb *k = l->k;
	struct matmul_tile t = {.half = half, .row = s->row, .stage_row = s->row};
	const struct passes one = {
	        .most = 1, .least = 1, .panels = panels_of_row(l), .step = kb_index(k, matmul_step_bytes(l))};
	bool may_be_one = one.panels > 1 && l->rows_lo < 2; /* one row has a loop of its own */
	if (may_be_one) {
		if (l->rows_hi > 1)
			kb_if(k, kb_cmp(k, KB_LE, l->rows, kb_index(k, 1)));
		t.rows = 1;
		t.panels = one.panels;
		if (is_plain(l))
			matmul_walk_panels(l, s, t, true);
		else
			emit_one_pass_of(l, s, &one, t);
		if (l->rows_hi > 1)
			kb_else(k);
	}
	if (!may_be_one || l->rows_hi > 1)
		emit_rows(l, s, t);
	if (may_be_one && l->rows_hi > 1)
		kb_end_if(k);
}

static void emit_strip(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct kb_val half = {0};
	if (l->columns.halves > 1)
		half = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.halves), 1, KB_NONEMPTY);
	emit_panels(l, s, half);
	if (l->columns.halves > 1)
		kb_end_loop(k);
	if (l->stage.at.id)
		matmul_epilogue(l, s, s->row, l->rows);
}

void matmul_few(const struct linear *l)
{
	struct kb *k = l->k;
	const struct matmul_columns *c = &l->columns;
	struct kb_val hi, unit = kb_index(k, c->unit), panels = kb_index(k, c->panels), zero = kb_index(k, 0);
	struct kb_val lo = eval_worker_range(l->eval, kb_index(k, (c->panels + c->unit - 1) / c->unit), &hi);
	struct kb_val first = kb_mul(k, lo, unit), end = kb_min(k, kb_mul(k, hi, unit), panels);
	if (l->rows_lo < 1)
		kb_if(k, kb_cmp(k, KB_GT, l->rows, zero));
	struct matmul_strip s = {.rows = l->rows, .row = zero, .row_end = l->rows, .k_lo = zero};
	s.k_hi = kb_index(k, l->depth);
	s.weights = l->w->t.ptr;
	matmul_make_rows(l, s.row, s.row_end, first, end);
	s.begin = kb_loop(k, "strip", first, end, c->strip, 0);
	s.end = kb_min(k, kb_add_const(k, s.begin, c->strip), end);
	emit_strip(l, &s);
	kb_end_loop(k);
	if (l->rows_lo < 1)
		kb_end_if(k);
}
