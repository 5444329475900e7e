/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One register tile of a linear: accumulators stay in registers over the whole
 * K loop, each step loads the packed lines and broadcasts one element of every
 * row. Where the machine multiplies by an element of a vector (target.k_lanes),
 * a step loads that many neighbours of every row at once and uses one after
 * another. Each element is one chain of fused multiply-adds in increasing k,
 * whichever way.
 */
#include "backends/linear/matmul_internal.h"

#define REGISTERS_TO_KEEP 32 /* as many hold the pairs of a step until the next one */
#define UNROLLED          8  /* steps of a single row: its sums are so few that the loop itself shows */

struct accumulators {
	const struct linear *l;
	const struct matmul_strip *strip;
	const struct matmul_tile *tile;
	struct reg_tile p;
	struct panel_reader r;
	const struct panel_walk *walk; /* over codes, while one is open */
	struct matmul_ahead ahead;     /* its share of the weights that come next, or none */
};

/* ---- points ---- */

struct eval_point matmul_point(const struct linear *l, struct kb_val row, struct kb_val column)
{
	struct eval_point p = {.rank = l->rank, .vec = l->lanes > 1 ? l->rank - 1 : -1};
	if (l->list.id)
		row = kb_cvt(l->k, kb_load(l->k, KB_TYPE(KB_I32, 1), l->list, row, 0, 0), KB_INDEX);
	p.flat = row;
	eval_unravel(l->eval, row, l->size, l->rank - 1, p.index);
	p.index[l->rank - 1] = column;
	return p;
}

/* Adds the bias, of an expert if any, to a product at p: from now on the root's value there. */
static void matmul_bind(const struct linear *l, struct kb_val expert, const struct eval_point *p,
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
}

/* The same, and computes what follows, stores. */
static void matmul_finish(const struct linear *l, struct kb_val expert, const struct eval_point *p,
                          struct kb_val product)
{
	matmul_bind(l, expert, p, product);
	eval_store_output(l->eval, &l->out, p);
}

/* ---- the K loop ---- */

/* Element offset of a row of x in its tensor. */
static struct kb_val x_offset(const struct linear *l, const struct eval_point *p)
{
	struct eval_point at = *p;
	at.vec = l->rank - 1;
	return eval_offset(l->eval, l->x, &at);
}

/* Rows that were made in scratch, of words. */
static void find_made_rows(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
	struct kb_val row = kb_sub(k, a->tile->row, a->strip->row);
	int64_t step = l->rounded.round ? l->rounded.row.bytes / 4 : tile_row_stride(l->depth);
	struct kb_val first = kb_ptr_add(k, l->norm.at, kb_mul_const(k, row, step * 4), 0);
	for (int m = 0; m < a->tile->rows; m++) {
		a->p.x[m] = first;
		a->p.x_disp[m] = m * step;
	}
}

/* The same rows and the tile's panels where they are unpacked. */
static void find_unpacked(const struct accumulators *a, struct matmul_rounded_tile *c)
{
	const struct linear *l = a->l;
	struct kb *k = l->k;
	struct kb_val row = kb_sub(k, a->tile->row, a->strip->row);
	struct kb_val panel = kb_sub(k, a->tile->panel, a->strip->begin);
	if (l->columns.halves > 1)
		panel = kb_add(k, panel, kb_mul_const(k, a->tile->half, l->unpacked.step));
	panel = kb_mul_const(k, panel, l->unpacked.bytes);
	c->unpacked_w = kb_ptr_add(k, l->unpacked.panels, panel, 0);
	if (!l->unpacked.rows.id)
		return;
	row = kb_mul_const(k, row, 2 * l->rounded.row.starts);
	c->unpacked_x = kb_ptr_add(k, l->unpacked.rows, row, 0);
}

/* Addresses of the rows: one pointer and constant distances where rows step evenly. */
static void find_rows(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
	if (matmul_makes_rows(l)) {
		find_made_rows(l, a);
		return;
	}
	const struct kb_tensor *x = &l->x->t;
	const struct kb_size *step = l->rank >= 2 ? &x->stride[l->rank - 2] : NULL;
	bool even = l->x->is_flat && !l->list.id && step->is_const && step->c >= 0 && step->c <= INT32_MAX;
	for (int m = 0; m < a->tile->rows; m++) {
		a->p.x_disp[m] = even ? m * step->c : 0;
		a->p.x[m] = a->p.x[0];
		if (even && m > 0)
			continue;
		struct eval_point p = matmul_point(l, kb_add_const(k, a->tile->row, m), kb_index(k, 0));
		struct kb_val bytes = kb_mul_const(k, x_offset(l, &p), 4);
		a->p.x[m] = kb_ptr_add(k, x->ptr, bytes, 0);
	}
}

/* Element of the stage where the tile begins. */
static struct kb_val in_stage(const struct linear *l, const struct accumulators *a)
{
	struct kb *k = l->k;
	const struct matmul_tile *t = a->tile;
	struct kb_val column = kb_mul_const(k, kb_sub(k, t->panel, a->strip->begin), MATMUL_PANEL);
	if (l->columns.halves > 1)
		column = kb_add(k, column, kb_mul_const(k, t->half, l->stage.width / l->columns.halves));
	return kb_add(k, kb_mul_const(k, t->stage_row, l->stage.width), column);
}

/* Sums begin at 0, or where the part of K before this one left them. */
static void begin_sums(const struct linear *l, struct accumulators *a)
{
	if (!l->stage.kc) {
		reg_tile_zero(&a->p, "sum");
		return;
	}
	struct kb_val from = in_stage(l, a);
	struct kb_type type = KB_TYPE(KB_F32, l->lanes);
	for (int i = 0; i < a->p.rows * a->p.vectors; i++) {
		int64_t disp = i / a->p.vectors * l->stage.width + i % a->p.vectors * l->lanes;
		a->p.sum[i] = kb_var(l->k, "sum", type, kb_load(l->k, type, l->stage.at, from, disp, 0));
	}
}

/* Vector n of the tile's weights in that line, as f32. */
static struct kb_val load_weights(const void *user, struct kb_val line, int i, int n)
{
	const struct accumulators *a = user;
	return a->walk ? panel_walk_vector(a->walk, i, n) : panel_vector(&a->r, line, i, n);
}

/* Element at + i of K of a row of x. */
static struct kb_val element_of(const struct linear *l, struct kb_val at, int i)
{
	return kb_mul(l->k, kb_add_const(l->k, at, i), l->along.v);
}

/* Elements at + i of all rows, each in all lanes. */
static void splat_x(const struct linear *l, const struct accumulators *a, struct kb_val at, int i,
                    struct kb_val *x)
{
	struct kb_type type = KB_TYPE(KB_F32, l->lanes);
	for (int m = 0; m < a->p.rows; m++)
		x[m] = kb_load_splat(l->k, type, a->p.x[m], element_of(l, at, i), a->p.x_disp[m]);
}

/* f16 needs registers on its way to f32; those of x are free for all rows. */
static bool is_widened_last(const struct linear *l, const struct accumulators *a)
{
	int widening = l->job->target->has_fma ? 2 : 4;
	return a->r.panel->lines == PANEL_HALVES &&
	       a->p.rows * (a->p.vectors + 1) + widening <= kb_caps(l->k)->registers;
}

/* sum[m][n] += x[m][at + i] w[n][at + i]; loads are directly before their uses. */
static void step(const struct linear *l, const struct accumulators *a, struct kb_val at, int i)
{
	struct kb_val x[MATMUL_ROWS_MAX], line = panel_line(&a->r, at, i);
	if (a->ahead.from.id && i % a->r.panel->per_line == 0)
		matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
	if (!is_widened_last(l, a)) {
		reg_tile_mac_k(&a->p, element_of(l, at, i), line, i, 0, a->p.rows);
		return;
	}
	splat_x(l, a, at, i, x);
	for (int n = 0; n < a->p.vectors; n++)
		reg_tile_mac_vector(&a->p, n, x, load_weights(a, line, i, n));
}

/* Registers hold two elements of every row, so that the pairs of one vector can be used up before the next
 * one. */
static bool is_paired(const struct linear *l, const struct accumulators *a)
{
	int sums = a->p.rows * a->p.vectors, words = 2; /* of pairs, and what becomes of them */
	int wanted = sums + 2 * a->p.rows + words + !l->job->target->has_fma;
	return a->r.panel->lines == PANEL_PAIRS && wanted < kb_caps(l->k)->registers;
}

/* Steps at + i and the next one for pairs of bf16. */
static void step_pair(const struct linear *l, const struct accumulators *a, struct kb_val at, int i)
{
	struct kb_val x[2][MATMUL_ROWS_MAX], line = panel_line(&a->r, at, i);
	if (a->ahead.from.id)
		matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
	splat_x(l, a, at, i, x[0]);
	splat_x(l, a, at, i + 1, x[1]);
	for (int n = 0; n < a->p.vectors; n++) {
		struct kb_val words = panel_pairs(&a->r, a->r.at, line, n);
		for (int odd = 0; odd < 2; odd++)
			reg_tile_mac_vector(&a->p, n, x[odd], panel_half(l->k, words, odd));
	}
}

/* The same with elements of vectors of x. */
static void lane_pair(const struct linear *l, const struct accumulators *a, struct kb_val line,
                      const struct kb_val *x, int i)
{
	for (int n = 0; n < a->p.vectors; n++) {
		struct kb_val words = panel_pairs(&a->r, a->r.at, line, n);
		for (int odd = 0; odd < 2; odd++)
			reg_tile_mac_lane(&a->p, n, x, i + odd, panel_half(l->k, words, odd));
	}
}

/* `lanes` neighbours along K: beside the sums live a vector of each row and one of weights. */
static void step_lanes(const struct linear *l, const struct accumulators *a, struct kb_val at, int lanes)
{
	struct kb_val x[MATMUL_ROWS_MAX];
	bool pairs = a->r.panel->lines == PANEL_PAIRS;
	reg_tile_load_x(&a->p, at, lanes, x);
	for (int i = 0; i < lanes; i += 1 + pairs) {
		struct kb_val line = panel_line(&a->r, at, i);
		/* a share is half a line at most, unless rows are few */
		if (a->ahead.from.id && i % (2 * a->r.panel->per_line) == 0)
			matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
		if (pairs)
			lane_pair(l, a, line, x, i);
		else
			reg_tile_mac_k_lane(&a->p, x, line, i);
	}
}

/* Where the steps of `lanes` end; the part of K is constant unless K is divided. */
static struct kb_val end_of_lanes(const struct linear *l, const struct matmul_strip *s, int lanes)
{
	struct kb *k = l->k;
	if (!l->stage.kc)
		return kb_index(k, l->depth / lanes * lanes);
	struct kb_val n = kb_div_const(k, kb_sub(k, s->k_hi, s->k_lo), lanes);
	return kb_add(k, s->k_lo, kb_mul_const(k, n, lanes));
}

/* Steps [*from, ..) of K in turns of n while whole ones are left; *from is where they end. */
static void walk_turns(const struct linear *l, struct accumulators *a, struct kb_val *from, int n)
{
	struct kb *k = l->k;
	struct kb_val first = *from;
	*from = end_of_lanes(l, a->strip, n);
	struct kb_val at = kb_loop(k, "k", first, *from, n, l->stage.kc ? 0 : KB_NONEMPTY);
	bool pairs = is_paired(l, a);
	for (int i = 0; i < n; i += 1 + pairs) {
		if (pairs)
			step_pair(l, a, at, i);
		else
			step(l, a, at, i);
	}
	kb_end_loop(k);
}

/* True when turns of n leave nothing of a part of K. */
static bool divides_depth(const struct linear *l, int n)
{
	return l->depth % n == 0 && l->stage.kc % n == 0;
}

/* n neighbours along K whose codes are in the line that is open. */
static void step_codes(void *user, const struct panel_walk *w, struct kb_val at, int n)
{
	const struct accumulators *a = user;
	const struct linear *l = a->l;
	struct kb_val x[MATMUL_ROWS_MAX];
	bool by_lanes = n > 1 && n == l->job->target->k_lanes && l->along.is_const && l->along.c == 1;
	if (a->ahead.from.id && w->is_first)
		matmul_line_ahead(l, &a->ahead, w->position, w->section, w->word);
	if (by_lanes)
		reg_tile_load_x(&a->p, at, n, x);
	for (int i = 0; i < n; i++) {
		if (by_lanes)
			reg_tile_mac_k_lane(&a->p, x, at, i);
		else
			reg_tile_mac_k(&a->p, element_of(l, at, i), at, i, 0, a->p.rows);
	}
}

static void walk_codes(const struct linear *l, struct accumulators *a)
{
	struct panel_walk w = {.k = l->k,
	                       .panel = a->r.panel,
	                       .lanes = l->lanes,
	                       .vectors = a->p.vectors,
	                       .at = a->r.at,
	                       .lo = a->strip->k_lo,
	                       .hi = a->strip->k_hi,
	                       .is_part = l->stage.kc != 0,
	                       .line = step_codes,
	                       .user = a};
	a->walk = &w;
	panel_walk(&w);
	a->walk = NULL;
}

/* The part of K that is open: by vectors of x or long turns as far as they go, by whole lines, by elements.
 */
static void walk_depth(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
	if (a->r.panel->lines == PANEL_CODES) {
		walk_codes(l, a);
		return;
	}
	int lanes = l->along.is_const && l->along.c == 1 ? l->job->target->k_lanes : 1;
	unsigned flags = l->depth > 0 ? KB_NONEMPTY : 0;
	struct kb_val from = a->strip->k_lo;
	int turn = 1;
	if (lanes > 1 && l->depth >= lanes) {
		turn = lanes;
		from = end_of_lanes(l, a->strip, lanes);
		struct kb_val at =
		        kb_loop(k, "k", a->strip->k_lo, from, lanes, l->stage.kc ? 0 : KB_NONEMPTY);
		step_lanes(l, a, at, lanes);
		kb_end_loop(k);
	} else if (lanes == 1 && a->tile->rows == 1 && !l->stage.kc && l->depth >= UNROLLED &&
	           l->job->target->arch != ARCH_OPENCL) { /* whose compilers unroll, too */
		turn = UNROLLED;
		walk_turns(l, a, &from, turn);
	}
	int64_t left = turn > 1 ? l->depth % turn : l->depth;
	if (a->r.panel->per_line > 1 && (left >= a->r.panel->per_line || l->stage.kc % turn != 0)) {
		walk_turns(l, a, &from, a->r.panel->per_line);
		turn = a->r.panel->per_line;
	}
	if (turn > 1 && divides_depth(l, turn))
		return;
	if (turn > 1)
		flags = l->stage.kc ? 0 : KB_NONEMPTY;
	struct kb_val at = kb_loop(k, "k", from, a->strip->k_hi, 1, flags);
	step(l, a, at, 0);
	kb_end_loop(k);
}

/* ---- what follows ---- */

/* Columns of vector n that exist when the tile's last panel has `last` columns. */
static int valid_lanes(const struct linear *l, const struct accumulators *a, int n, int last)
{
	int per_panel = MATMUL_PANEL / l->lanes;
	int left = n / per_panel == a->tile->panels - 1 ? last - n % per_panel * l->lanes : l->lanes;
	return left < 0 ? 0 : left < l->lanes ? left : l->lanes;
}

static void finish_tile(const struct linear *l, struct accumulators *a, int last)
{
	struct kb *k = l->k;
	struct eval_point p[MATMUL_ROWS_MAX];
	struct kb_val column = kb_mul_const(k, a->tile->panel, MATMUL_PANEL);
	for (int m = 0; m < a->tile->rows; m++)
		p[m] = matmul_point(l, kb_add_const(k, a->tile->row, m), column);
	for (int n = 0; n < a->p.vectors; n++) {
		int valid = valid_lanes(l, a, n, last);
		if (valid == 0)
			continue;
		struct kb_val at = kb_add_const(k, column, (int64_t)n * l->lanes);
		struct eval_width before = eval_width(l->eval, l->lanes, valid);
		for (int m = 0; m < a->tile->rows; m++) {
			p[m].index[l->rank - 1] = at;
			matmul_finish(l, a->strip->expert, &p[m], reg_tile_acc(&a->p, m, n));
		}
		eval_width(l->eval, before.lanes, before.valid);
	}
}

static void finish_part(const struct linear *l, struct accumulators *a, int last)
{
	size_t mark = eval_mark(l->eval);
	finish_tile(l, a, last);
	eval_release(l->eval, mark);
}

/* Only a tile of one panel can be the partial one. */
static void finish(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
	int last = (int)(l->columns.n % MATMUL_PANEL);
	if (a->tile->panels > 1 || last == 0) {
		finish_part(l, a, MATMUL_PANEL);
		return;
	}
	if (l->columns.panels == 1) {
		finish_part(l, a, last);
		return;
	}
	kb_if(k, kb_cmp(k, KB_LT, a->tile->panel, kb_index(k, l->columns.panels - 1)));
	finish_part(l, a, MATMUL_PANEL);
	kb_else(k);
	finish_part(l, a, last);
	kb_end_if(k);
}

static void leave_in_stage(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
	struct kb_val at = in_stage(l, a);
	for (int m = 0; m < a->tile->rows; m++)
		for (int n = 0; n < a->p.vectors; n++)
			kb_store(k, reg_tile_acc(&a->p, m, n), l->stage.at, at,
			         m * l->stage.width + n * l->lanes, 0);
}

void matmul_tile(const struct linear *l, const struct matmul_strip *s, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct accumulators a = {.l = l, .strip = s, .tile = t};
	a.p = (struct reg_tile){
	        .k = k, .rows = t->rows, .lanes = l->lanes, .weights = load_weights, .user = &a};
	a.p.vectors = t->panels * (MATMUL_PANEL / l->lanes);
	const struct panel *lies = s->copied ? s->copied : &l->panel;
	struct kb_val panel = s->copied ? kb_sub(k, t->panel, s->begin) : t->panel;
	if (l->columns.halves > 1) {
		int64_t half = s->copied ? l->columns.strip : l->columns.panels;
		panel = kb_add(k, panel, kb_mul_const(k, t->half, half));
	}
	struct kb_val line = kb_mul_const(k, panel, lies->bytes);
	a.r = (struct panel_reader){.k = k, .panel = lies, .lanes = l->lanes};
	a.r.at = kb_ptr_add(k, s->weights, line, 0);
	if (lies->lines == PANEL_PAIRS && !is_paired(l, &a) && kb_caps(k)->registers < REGISTERS_TO_KEEP)
		a.r.again = kb_ptr_opaque(k, a.r.at);
	size_t mark = eval_mark(l->eval);
	find_rows(l, &a);
	eval_release(l->eval, mark);
	a.ahead = t->ahead;
	a.ahead.from = matmul_ahead(l, s, t, a.r.at);
	struct matmul_rounded_tile rounded = {.l = l, .p = &a.p, .w = a.r.at, .ahead = &a.ahead};
	if (s->is_unpacked)
		find_unpacked(&a, &rounded);
	begin_sums(l, &a);
	if (matmul_strip_by_steps(l, s))
		matmul_steps_depth(&rounded);
	else if (l->rounded.to.bf16)
		matmul_bf16_depth(&rounded);
	else if (l->rounded.round)
		matmul_integer_depth(&rounded);
	else
		walk_depth(l, &a);
	if (l->stage.at.id)
		leave_in_stage(l, &a);
	else
		finish(l, &a);
}
