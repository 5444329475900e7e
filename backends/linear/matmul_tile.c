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
	struct products p;
	struct kb_val w;           /* first line of the tile's first panel */
	struct kb_val again;       /* the same, for the second elements of pairs of bf16; or none */
	struct matmul_ahead ahead; /* its share of the weights that come next, or none */
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

void matmul_bind(const struct linear *l, struct kb_val expert, const struct eval_point *p,
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

void matmul_finish(const struct linear *l, struct kb_val expert, const struct eval_point *p,
                   struct kb_val product)
{
	matmul_bind(l, expert, p, product);
	eval_output_at(l->eval, &l->out, p);
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
	int64_t step = l->integers.round ? l->integers.row.bytes / 4 : tile_row_step(l->depth);
	struct kb_val first = kb_ptr_add(k, l->norm.at, kb_mul(k, row, kb_index(k, step * 4)), 0);
	for (int m = 0; m < a->tile->rows; m++) {
		a->p.x[m] = first;
		a->p.x_disp[m] = m * step;
	}
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
		struct kb_val bytes = kb_mul(k, x_offset(l, &p), kb_index(k, 4));
		a->p.x[m] = kb_ptr_add(k, x->ptr, bytes, 0);
	}
}

/* Element of the stage where the tile begins. */
static struct kb_val in_stage(const struct linear *l, const struct accumulators *a)
{
	struct kb *k = l->k;
	const struct matmul_tile *t = a->tile;
	struct kb_val column = kb_mul(k, kb_sub(k, t->panel, a->strip->begin), kb_index(k, MATMUL_PANEL));
	if (l->columns.halves > 1)
		column = kb_add(k, column,
		                kb_mul(k, t->half, kb_index(k, l->stage.width / l->columns.halves)));
	return kb_add(k, kb_mul(k, t->stage_row, kb_index(k, l->stage.width)), column);
}

/* Sums begin at 0, or where the part of K before this one left them. */
static void begin_sums(const struct linear *l, struct accumulators *a)
{
	if (!l->stage.kc) {
		products_begin(&a->p, "sum");
		return;
	}
	struct kb_val from = in_stage(l, a);
	struct kb_type type = KB_TYPE(KB_F32, l->lanes);
	for (int i = 0; i < a->p.rows * a->p.vectors; i++) {
		int64_t disp = i / a->p.vectors * l->stage.width + i % a->p.vectors * l->lanes;
		a->p.sum[i] = kb_var(l->k, "sum", type, kb_load(l->k, type, l->stage.at, from, disp, 0));
	}
}

/* Words of pairs of bf16: an even element of K is the low half, an odd one the high half. */
static struct kb_val half_of_pair(const struct linear *l, struct kb_val words, int odd)
{
	struct kb *k = l->k;
	struct kb_val by = kb_splat(k, kb_i32(k, odd ? -65536 : 16), l->lanes);
	return kb_bitcast(k, kb_bin(k, odd ? KB_AND : KB_SHL, words, by), KB_F32);
}

/* Where element at + i of K begins in a panel, `at` a multiple of its elements: words of pairs, else elements.
 */
static struct kb_val line_of(const struct linear *l, struct kb_val at, int i)
{
	struct kb *k = l->k;
	if (l->stored != DT_BF16)
		return kb_mul(k, kb_add_const(k, at, i), kb_index(k, MATMUL_PANEL));
	struct kb_val even = kb_mul(k, at, kb_index(k, MATMUL_PANEL / 2));
	return kb_add_const(k, even, (int64_t)i / 2 * MATMUL_PANEL);
}

/* Vector n of the tile's pairs in that line. */
static struct kb_val load_pairs(const struct linear *l, struct kb_val w, struct kb_val line, int n)
{
	int per_panel = MATMUL_PANEL / l->lanes;
	int64_t in_panel = n % per_panel * l->lanes, panel = n / per_panel * matmul_panel_bytes(l);
	return kb_load(l->k, KB_TYPE(KB_I32, l->lanes), w, line, panel / 4 + in_panel, 0);
}

/* Vector n of the tile's weights in that line, as f32. */
static struct kb_val load_weights(const void *user, struct kb_val line, int i, int n)
{
	const struct accumulators *a = user;
	const struct linear *l = a->l;
	struct kb *k = l->k;
	int per_panel = MATMUL_PANEL / l->lanes;
	int64_t in_panel = n % per_panel * l->lanes, panel = n / per_panel * matmul_panel_bytes(l);
	if (l->stored == DT_BF16) {
		struct kb_val w = i % 2 && a->again.id ? a->again : a->w;
		return half_of_pair(l, load_pairs(l, w, line, n), i % 2);
	}
	if (l->stored == DT_F16) {
		struct kb_type type = KB_TYPE(KB_F16, l->lanes);
		return kb_cvt(k, kb_load(k, type, a->w, line, panel / 2 + in_panel, 0), KB_F32);
	}
	return kb_load(k, KB_TYPE(KB_F32, l->lanes), a->w, line, panel / 4 + in_panel, 0);
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
	return l->stored == DT_F16 && a->p.rows * (a->p.vectors + 1) + widening <= kb_caps(l->k)->registers;
}

/* sum[m][n] += x[m][at + i] w[n][at + i]; loads are directly before their uses. */
static void step(const struct linear *l, const struct accumulators *a, struct kb_val at, int i)
{
	struct kb_val x[MATMUL_ROWS_MAX], line = line_of(l, at, i);
	if (a->ahead.from.id && i % matmul_per_line(l) == 0)
		matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
	if (!is_widened_last(l, a)) {
		products_step(&a->p, element_of(l, at, i), line, i, 0, a->p.rows);
		return;
	}
	splat_x(l, a, at, i, x);
	for (int n = 0; n < a->p.vectors; n++)
		products_add_vector(&a->p, n, x, load_weights(a, line, i, n));
}

/* Registers hold two elements of every row, so that the pairs of one vector can be used up before the next
 * one. */
static bool is_paired(const struct linear *l, const struct accumulators *a)
{
	int sums = a->p.rows * a->p.vectors, words = 2; /* of pairs, and what becomes of them */
	int wanted = sums + 2 * a->p.rows + words + !l->job->target->has_fma;
	return l->stored == DT_BF16 && wanted < kb_caps(l->k)->registers;
}

/* Steps at + i and the next one for pairs of bf16. */
static void step_pair(const struct linear *l, const struct accumulators *a, struct kb_val at, int i)
{
	struct kb_val x[2][MATMUL_ROWS_MAX], line = line_of(l, at, i);
	if (a->ahead.from.id)
		matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
	splat_x(l, a, at, i, x[0]);
	splat_x(l, a, at, i + 1, x[1]);
	for (int n = 0; n < a->p.vectors; n++) {
		struct kb_val words = load_pairs(l, a->w, line, n);
		for (int odd = 0; odd < 2; odd++)
			products_add_vector(&a->p, n, x[odd], half_of_pair(l, words, odd));
	}
}

/* The same with elements of vectors of x. */
static void lane_pair(const struct linear *l, const struct accumulators *a, struct kb_val line,
                      const struct kb_val *x, int i)
{
	for (int n = 0; n < a->p.vectors; n++) {
		struct kb_val words = load_pairs(l, a->w, line, n);
		for (int odd = 0; odd < 2; odd++)
			products_add_lane(&a->p, n, x, i + odd, half_of_pair(l, words, odd));
	}
}

/* `lanes` neighbours along K: beside the sums live a vector of each row and one of weights. */
static void step_lanes(const struct linear *l, const struct accumulators *a, struct kb_val at, int lanes)
{
	struct kb_val x[MATMUL_ROWS_MAX];
	bool pairs = l->stored == DT_BF16;
	products_load_x(&a->p, at, lanes, x);
	for (int i = 0; i < lanes; i += 1 + pairs) {
		struct kb_val line = line_of(l, at, i);
		/* a share is half a line at most, unless rows are few */
		if (a->ahead.from.id && i % (2 * matmul_per_line(l)) == 0)
			matmul_step_ahead(l, &a->ahead, kb_add_const(l->k, at, i));
		if (pairs)
			lane_pair(l, a, line, x, i);
		else
			products_lane(&a->p, x, line, i);
	}
}

/* Where the steps of `lanes` end; the part of K is constant unless K is divided. */
static struct kb_val end_of_lanes(const struct linear *l, const struct matmul_strip *s, int lanes)
{
	struct kb *k = l->k;
	if (!l->stage.kc)
		return kb_index(k, l->depth / lanes * lanes);
	struct kb_val n = kb_bin(k, KB_DIV, kb_sub(k, s->k_hi, s->k_lo), kb_index(k, lanes));
	return kb_add(k, s->k_lo, kb_mul(k, n, kb_index(k, lanes)));
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

/* The part of K that is open: by vectors of x or long turns as far as they go, by whole lines, by elements.
 */
static void walk_depth(const struct linear *l, struct accumulators *a)
{
	struct kb *k = l->k;
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
	} else if (lanes == 1 && a->tile->rows == 1 && !l->stage.kc && l->depth >= UNROLLED) {
		turn = UNROLLED;
		walk_turns(l, a, &from, turn);
	}
	int64_t left = turn > 1 ? l->depth % turn : l->depth;
	if (matmul_per_line(l) > 1 && (left >= matmul_per_line(l) || l->stage.kc % turn != 0)) {
		walk_turns(l, a, &from, matmul_per_line(l));
		turn = matmul_per_line(l);
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
	struct kb_val column = kb_mul(k, a->tile->panel, kb_index(k, MATMUL_PANEL));
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
			matmul_finish(l, a->strip->expert, &p[m], products_sum(&a->p, m, n));
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
			kb_store(k, products_sum(&a->p, m, n), l->stage.at, at,
			         m * l->stage.width + n * l->lanes, 0);
}

void matmul_tile(const struct linear *l, const struct matmul_strip *s, const struct matmul_tile *t)
{
	struct kb *k = l->k;
	struct accumulators a = {.l = l, .strip = s, .tile = t};
	a.p = (struct products){
	        .k = k, .rows = t->rows, .lanes = l->lanes, .weights = load_weights, .user = &a};
	a.p.vectors = t->panels * (MATMUL_PANEL / l->lanes);
	struct kb_val panel = t->panel;
	if (l->columns.halves > 1)
		panel = kb_add(k, panel, kb_mul(k, t->half, kb_index(k, l->columns.panels)));
	struct kb_val line = kb_mul(k, panel, kb_index(k, matmul_panel_bytes(l)));
	a.w = kb_ptr_add(k, s->weights, line, 0);
	if (l->stored == DT_BF16 && !is_paired(l, &a) && kb_caps(k)->registers < REGISTERS_TO_KEEP)
		a.again = kb_ptr_apart(k, a.w);
	size_t mark = eval_mark(l->eval);
	find_rows(l, &a);
	eval_release(l->eval, mark);
	a.ahead = t->ahead;
	a.ahead.from = matmul_ahead(l, s, t, a.w);
	begin_sums(l, &a);
	if (l->integers.round)
		matmul_integer_depth(&(struct matmul_codes){.l = l, .p = &a.p, .w = a.w, .ahead = &a.ahead});
	else
		walk_depth(l, &a);
	if (l->stage.at.id)
		leave_in_stage(l, &a);
	else
		finish(l, &a);
}
