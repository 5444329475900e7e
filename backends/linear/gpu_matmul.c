/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A linear by work-groups: 8 x 8 items share a tile of rows and 64 columns of the result. A step of 16 along K is copied
 * to shared memory by all of them, then each multiplies its rows (8 apart) by its two vectors of columns. Finished tiles
 * go through shared memory once more, so that what follows the product is emitted once and stores whole rows; where
 * columns go different ways (q, k and v), a strip of whole heads does, some tiles wide. Where a norm follows, a group
 * has all columns of its rows: what the norm reads lies in the result until they are complete. Items whose row or column
 * does not exist load the last one instead and store nothing: all come to all barriers.
 * Each element is one chain of fused multiply-adds in increasing k, as elsewhere.
 *
 * Where x was rounded to integers (round_rows) and weights are codes, devices with dot products of bytes multiply
 * these: a step is a block of 32, whose codes are found once more, which gives the same ones, and products are
 * those of matmul_rounded.c.
 */
#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"

#define SIDE   8  /* items of a row or column of items */
#define LANES  4  /* of a vector */
#define STEP   16 /* elements along K in shared memory */
#define X_ROW  20 /* STEP, padded: rows begin in other banks, and at whole vectors */
#define HALVES 2  /* vectors of columns of an item */
#define MR_MAX 8
#define BLOCK  32 /* elements along K of a step of bytes */
#define WORDS  (BLOCK / 4)
#define CODES  12 /* words of a row of x in such a step: codes, scale, scale times their sum, and padding */

struct shared_matmul {
	struct linear l;
	int mr;                    /* rows of an item */
	struct kb_val item;        /* number of this one */
	struct kb_val row, column; /* of this one: item / 8, item % 8 */
	/* Shared: x [8 mr, X_ROW] and w [STEP, 64], from element `operands` on, and products [8 mr, width] of a strip,
	 * which overwrite them where a strip is one tile wide. */
	struct kb_val tile;
	int64_t operands;
	int64_t strip;             /* panels of a strip, of one half */
	int64_t width;             /* columns of its products: whole tiles, of all halves */
	struct kb_val first_panel; /* of the open strip */
	struct kb_val before;      /* panels of the strip before the open tile */
	struct rowwise_tile norm;  /* rows of the strip; .norm NULL: x lies in memory */
	struct kb_var sum[MR_MAX][HALVES];
	bool has_codes;                    /* x and weights are codes */
	struct kb_var dot[MR_MAX][HALVES]; /* sums of a block of these */
};

/* What an item copies of x in each step: `n` vectors, or single elements, of one row each. */
struct x_share {
	bool is_vector;
	int n;
	int per_row;                 /* of these in a row of a step */
	struct kb_val at;            /* which of the row, this item's */
	struct kb_val row[16];       /* element where the row begins in x */
	struct eval_point point[16]; /* of a norm: the same place */
};

int64_t kernel_linear_shared_rows(int64_t rows)
{
	int64_t n = SIDE;
	while (n < SIDE * MR_MAX && n < rows)
		n *= 2;
	return n;
}

/* ---- sharing ---- */

static int64_t w_begin(const struct shared_matmul *g)
{
	return g->operands + (int64_t)g->mr * SIDE * X_ROW;
}

static int64_t shared_elements(const struct shared_matmul *g)
{
	int64_t end = w_begin(g) + STEP * GPU_COLUMNS, products = g->mr * SIDE * g->width;
	return end > products ? end : products;
}

/* Row m of this item's share of x, counted in the tile. */
static struct kb_val share_row(struct shared_matmul *g, const struct x_share *x, int m)
{
	int64_t apart = GPU_ITEMS / x->per_row;
	return kb_add_const(g->l.k, kb_div_const(g->l.k, g->item, x->per_row), m * apart);
}

/* Divides the elements of x in a step among the items; rows that do not exist are the last one. */
static void divide_x(struct shared_matmul *g, struct x_share *x, bool is_vector)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	x->is_vector = is_vector;
	x->per_row = is_vector ? STEP / LANES : STEP;
	x->n = (g->mr * SIDE * x->per_row + GPU_ITEMS - 1) / GPU_ITEMS;
	x->at = kb_rem_const(k, g->item, x->per_row);
	for (int m = 0; m < x->n; m++) {
		struct kb_val row = kb_add(k, g->norm.first, share_row(g, x, m));
		row = kb_min(k, row, kb_add_const(k, l->rows, -1));
		if (l->norm.before) {
			x->point[m] = rowwise_tile_row(&g->norm, row);
			continue;
		}
		size_t mark = eval_mark(l->eval);
		struct eval_point p = matmul_point(l, row, kb_index(k, 0));
		x->row[m] = eval_offset(l->eval, l->x, &p);
		eval_release(l->eval, mark);
	}
}

/* x from `column` on in row m of the share: as it lies in memory, or of a norm. */
static struct kb_val load_x(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val column,
                            int lanes)
{
	struct kb *k = g->l.k;
	if (!g->l.norm.before) {
		struct kb_val at = kb_add(k, x->row[m], kb_mul(k, column, g->l.along.v));
		return kb_load(k, KB_TYPE(KB_F32, lanes), g->l.x->t.ptr, at, 0, 0);
	}
	struct eval_point p = x->point[m];
	struct kb_val last = kb_add_const(k, g->norm.rows, -1);
	struct kb_val row = kb_min(k, share_row(g, x, m), last);
	p.vec = lanes > 1 ? p.rank - 1 : -1;
	p.index[p.rank - 1] = column;
	return rowwise_tile_value(&g->norm, row, &p, lanes);
}

static void copy_x_vector(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, x->at, LANES);
	struct kb_val v = load_x(g, x, m, kb_add(k, from, column), LANES);
	struct kb_val to = kb_add(k, kb_mul_const(k, share_row(g, x, m), X_ROW), column);
	kb_store(k, v, g->tile, to, g->operands, LANES * 4);
}

/* Elements after the last are the last one; nobody multiplies by them. */
static void copy_x_element(struct shared_matmul *g, const struct x_share *x, int m, struct kb_val from)
{
	struct kb *k = g->l.k;
	struct kb_val element = kb_min(k, kb_add(k, from, x->at), kb_index(k, g->l.depth - 1));
	struct kb_val v = load_x(g, x, m, element, 1);
	kb_store(k, v, g->tile, kb_add(k, kb_mul_const(k, share_row(g, x, m), X_ROW), x->at), g->operands, 0);
}

/* x[first_row .., from ..] -> [8 mr, X_ROW] */
static void copy_x(struct shared_matmul *g, const struct x_share *x, struct kb_val from)
{
	struct kb *k = g->l.k;
	bool some = g->mr * SIDE * x->per_row < GPU_ITEMS; /* not every item has one */
	if (some)
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->mr * SIDE * x->per_row)));
	for (int m = 0; m < x->n; m++) {
		if (x->is_vector)
			copy_x_vector(g, x, m, from);
		else
			copy_x_element(g, x, m, from);
	}
	if (some)
		kb_end_if(k);
}

/* Columns of element i of K from place `at` on, f32. */
static struct kb_val load_w(const struct linear *l, struct kb_val at, struct kb_val i)
{
	struct kb *k = l->k;
	struct kb_val ptr = l->w->t.ptr;
	if (l->panel.lines == PANEL_PAIRS)
		return eval_load_pairs(k, ptr, at, i, LANES);
	if (l->panel.lines == PANEL_HALVES)
		return kb_cvt(k, kb_load(k, KB_TYPE(KB_F16, LANES), ptr, at, 0, LANES * 2), KB_F32);
	return kb_load(k, KB_TYPE(KB_F32, LANES), ptr, at, 0, LANES * 4);
}

/* Panel i of the open tile; one that does not exist is the last one. */
static struct kb_val panel_at(const struct shared_matmul *g, int i)
{
	const struct matmul_columns *c = &g->l.columns;
	struct kb *k = g->l.k;
	int64_t half = c->halves > 1 ? i / g->strip : 0;
	struct kb_val at = kb_add_const(k, kb_add(k, g->first_panel, g->before), i - half * g->strip);
	return kb_add_const(k, kb_min(k, at, kb_index(k, c->panels - 1)), half * c->panels);
}

/* Lines [from, from + 16) of four panels -> [STEP, 64]: item i has vector i of each. */
static void copy_w(struct shared_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val line = kb_div_const(k, g->item, STEP / LANES),
	              column = kb_mul_const(k, kb_rem_const(k, g->item, LANES), LANES);
	struct kb_val in_panel = kb_min(k, kb_add(k, from, line), kb_index(k, l->depth - 1));
	struct kb_val element = in_panel;
	if (l->panel.lines == PANEL_PAIRS)
		in_panel = kb_div_const(k, in_panel, 2);
	in_panel = kb_add(k, kb_mul_const(k, in_panel, MATMUL_PANEL), column);
	struct kb_val to = kb_add(k, kb_mul_const(k, line, GPU_COLUMNS), column);
	for (int i = 0; i < GPU_COLUMNS / MATMUL_PANEL; i++) {
		struct kb_val panel = panel_at(g, i);
		int64_t size = l->panel.bytes / (l->panel.lines == PANEL_HALVES ? 2 : 4);
		struct kb_val v;
		if (l->panel.lines == PANEL_CODES) {
			struct kb_val at =
			        kb_ptr_add(k, l->w->t.ptr, kb_mul_const(k, panel, l->panel.bytes), 0);
			v = panel_code(k, &l->panel, at, column, element, LANES);
		} else {
			struct kb_val at = kb_add(k, kb_mul_const(k, panel, size), in_panel);
			v = load_w(l, at, element);
		}
		kb_store(k, v, g->tile, to, w_begin(g) + (int64_t)i * MATMUL_PANEL, LANES * 4);
	}
}

/* ---- products ---- */

/* sum[m][h] += x[m][at] w[at][h] for n <= 4 elements along K. */
static void multiply(struct shared_matmul *g, struct kb_val at, int n)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	struct kb_val x[MR_MAX], from = kb_add(k, kb_mul_const(k, g->row, X_ROW), at);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, from, g->operands + (int64_t)m * SIDE * X_ROW, LANES * 4);
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	struct kb_val line = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int i = 0; i < n; i++) {
		for (int h = 0; h < HALVES; h++) {
			int64_t disp = w_begin(g) + (int64_t)i * GPU_COLUMNS + (int64_t)h * SIDE * LANES;
			struct kb_val w = kb_load(k, vec, g->tile, line, disp, LANES * 4);
			for (int m = 0; m < g->mr; m++) {
				struct kb_val e = kb_splat(k, kb_lane(k, x[m], i), LANES);
				kb_set(k, g->sum[m][h], kb_fma(k, e, w, kb_get(k, g->sum[m][h])));
			}
		}
	}
}

/* n <= 16 elements along K. */
static void multiply_step(struct shared_matmul *g, int64_t n)
{
	struct kb *k = g->l.k;
	int64_t whole = n / LANES * LANES;
	if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), LANES, KB_NONEMPTY);
		multiply(g, at, LANES);
		kb_end_loop(k);
	}
	if (n > whole)
		multiply(g, kb_index(k, whole), (int)(n - whole));
}

static void emit_step(struct shared_matmul *g, const struct x_share *x, struct kb_val from, int64_t n)
{
	copy_x(g, x, from);
	copy_w(g, from);
	kb_barrier(g->l.k);
	multiply_step(g, n);
	kb_barrier(g->l.k);
}

static void emit_floats(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t whole = l->depth / STEP * STEP;
	struct x_share x;
	if (whole > 0) {
		bool by_vectors = l->norm.before
		                          ? eval_vectorizes(l->eval, l->norm.before->operands[0], l->rank - 1)
		                          : l->along.is_const && l->along.c == 1;
		divide_x(g, &x, by_vectors);
		struct kb_val from =
		        kb_loop(k, "part", kb_index(k, 0), kb_index(k, whole), STEP, KB_NONEMPTY);
		emit_step(g, &x, from, STEP);
		kb_end_loop(k);
	}
	if (whole < l->depth) {
		divide_x(g, &x, false);
		emit_step(g, &x, kb_index(k, whole), l->depth - whole);
	}
}

/* ---- products of bytes ---- */

/* x is what a kernel before has rounded, and blocks of weights are no shorter. */
static bool has_codes(const struct linear *l)
{
	const struct ir_format_desc *d = ir_format(l->panel.format);
	const struct ir_op *before = ir_def(l->job->func, l->g->root->operands[OPERAND(linear, x)]);
	const struct ir_op *op = before && before->code == OP_group ? ir_group_root(before) : NULL;
	if (!op || op->code != OP_round_rows || before->n_results != 1)
		return false;
	const struct ir_op *last = before->region->ops[before->region->n_ops - 1];
	const struct attrs_round_rows *a = op->attrs;
	return ir_same(last->operands[0], op->results[0]) && a->to == ROUND_int8 && a->block == BLOCK &&
	       l->panel.lines == PANEL_CODES && d->block % BLOCK == 0 && l->depth % BLOCK == 0 &&
	       l->along.is_const && l->along.c == 1;
}

/* The row of this item. */
static struct kb_val find_row(const struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb_val row = kb_add(l->k, g->norm.first, g->item);
	row = kb_min(l->k, row, kb_add_const(l->k, l->rows, -1));
	struct eval_point p = matmul_point(l, row, kb_index(l->k, 0));
	return eval_offset(l->eval, l->x, &p);
}

/* The largest |x| of a block, infinite where one is no number. */
static struct kb_val find_most(struct kb *k, const struct kb_val *x)
{
	struct kb_val most = kb_splat(k, kb_f32(k, 0), LANES);
	for (int i = 0; i < WORDS; i++)
		most = kb_max(k, rowwise_magnitude(k, x[i]), most);
	return kb_reduce(k, KB_MAX, most);
}

/* A block of each row of x, a row by an item. */
static void copy_x_codes(const struct shared_matmul *g, struct kb_val row, struct kb_val from)
{
	struct kb *k = g->l.k;
	struct kb_val x[WORDS], inverse, scale, sum = kb_splat(k, kb_i32(k, 0), LANES);
	struct kb_val to = kb_mul_const(k, g->item, CODES), bytes = kb_mul_const(k, g->item, 4 * CODES);
	kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, (int64_t)g->mr * SIDE)));
	for (int i = 0; i < WORDS; i++)
		x[i] = kb_load(k, KB_TYPE(KB_F32, LANES), g->l.x->t.ptr, kb_add(k, row, from), 4 * i, 0);
	rowwise_rounding(k, find_most(k, x), &inverse, &scale);
	for (int i = 0; i < WORDS; i++) {
		struct kb_val code = kb_cvt_nearest(k, kb_mul(k, x[i], kb_splat(k, inverse, LANES)));
		kb_store(k, kb_cvt(k, code, KB_I8), g->tile, bytes, 4 * (g->operands + i), 0);
		sum = kb_add(k, sum, code);
	}
	sum = kb_cvt(k, kb_reduce(k, KB_ADD, sum), KB_F32);
	kb_store(k, scale, g->tile, to, g->operands + WORDS, 0);
	kb_store(k, kb_mul(k, sum, scale), g->tile, to, g->operands + WORDS + 1, 0);
	kb_end_if(k);
}

/* Columns of weights lie behind x: [WORDS, 64] codes, [64] scales, [64] offsets. */
static int64_t codes_begin(const struct shared_matmul *g)
{
	return g->operands + (int64_t)g->mr * SIDE * CODES;
}

/* An item copies two vectors of columns of one word; those of the first word their scales, too. */
static void copy_w_codes(const struct shared_matmul *g, struct kb_val from)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct kb_val i = kb_add(k, from, kb_mul_const(k, g->row, 4)),
	              column = kb_mul_const(k, g->column, LANES);
	struct kb_val to = kb_add(k, kb_mul_const(k, g->row, GPU_COLUMNS), column);
	struct kb_val is_first = kb_cmp(k, KB_LT, column, kb_index(k, MATMUL_PANEL));
	struct kb_val in_panel = kb_rem_const(k, column, MATMUL_PANEL);
	for (int h = 0; h < HALVES; h++) {
		int64_t begin = codes_begin(g) + (int64_t)h * SIDE * LANES;
		struct kb_val one = panel_at(g, HALVES * h), other = panel_at(g, HALVES * h + 1);
		struct kb_val at = kb_mul_const(k, kb_select(k, is_first, one, other), l->panel.bytes);
		at = kb_ptr_add(k, l->w->t.ptr, at, 0);
		kb_store(k, panel_words(k, &l->panel, at, in_panel, i, 0, LANES), g->tile, to, begin, 0);
		kb_if(k, kb_cmp(k, KB_LT, g->item, kb_index(k, SIDE)));
		const struct panel_block b = panel_block(k, &l->panel, at, in_panel, from, LANES);
		kb_store(k, b.scale, g->tile, to, begin + (int64_t)WORDS * GPU_COLUMNS, 0);
		if (b.offset.id)
			kb_store(k, b.offset, g->tile, to, begin + (int64_t)(WORDS + 1) * GPU_COLUMNS, 0);
		kb_end_if(k);
	}
}

/* Sums of integers of a block. */
static void multiply_codes(const struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_I32, LANES);
	struct kb_val x[MR_MAX], row = kb_mul_const(k, g->row, CODES),
	                         column = kb_mul_const(k, g->column, LANES);
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			kb_set(k, g->dot[m][h], kb_splat(k, kb_i32(k, 0), LANES));
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, WORDS), LANES, KB_NONEMPTY);
	struct kb_val line = kb_add(k, kb_mul_const(k, at, GPU_COLUMNS), column);
	for (int m = 0; m < g->mr; m++)
		x[m] = kb_load(k, vec, g->tile, kb_add(k, row, at), g->operands + (int64_t)m * SIDE * CODES,
		               0);
	for (int i = 0; i < LANES * HALVES; i++) {
		int64_t disp = (int64_t)i / HALVES * GPU_COLUMNS + (int64_t)i % HALVES * SIDE * LANES;
		struct kb_val w = kb_load(k, vec, g->tile, line, codes_begin(g) + disp, 0);
		for (int m = 0; m < g->mr; m++) {
			struct kb_var dot = g->dot[m][i % HALVES];
			struct kb_val e = kb_splat(k, kb_lane(k, x[m], i / HALVES), LANES);
			kb_set(k, dot, kb_dot_s8s8(k, kb_get(k, dot), w, e));
		}
	}
	kb_end_loop(k);
}

/* sum += dot (d_x d_w) + offset_w (d_x sum of x) */
static void add_block(const struct shared_matmul *g, bool has_offset)
{
	struct kb *k = g->l.k;
	struct kb_type vec = KB_TYPE(KB_F32, LANES);
	struct kb_val row = kb_mul_const(k, g->row, CODES), column = kb_mul_const(k, g->column, LANES),
	              offset = {0};
	int64_t begin = codes_begin(g) + (int64_t)WORDS * GPU_COLUMNS;
	for (int i = 0; i < g->mr * HALVES; i++) {
		int m = i / HALVES, h = i % HALVES;
		int64_t of_row = g->operands + (int64_t)m * SIDE * CODES + WORDS,
		        of_column = begin + (int64_t)h * SIDE * LANES;
		struct kb_val scale = kb_load(k, vec, g->tile, column, of_column, 0);
		struct kb_val d = kb_load_splat(k, vec, g->tile, row, of_row);
		struct kb_val dot = kb_cvt(k, kb_get(k, g->dot[m][h]), KB_F32);
		struct kb_val both = kb_mul(k, d, scale);
		struct kb_val sum = kb_fma(k, dot, both, kb_get(k, g->sum[m][h]));
		if (has_offset) {
			offset = kb_load(k, vec, g->tile, column, of_column + GPU_COLUMNS, 0);
			sum = kb_fma(k, offset, kb_load_splat(k, vec, g->tile, row, of_row + 1), sum);
		}
		kb_set(k, g->sum[m][h], sum);
	}
}

static void emit_codes(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	const struct ir_format_desc *d = ir_format(g->l.panel.format);
	size_t mark = eval_mark(g->l.eval);
	struct kb_val row = find_row(g);
	struct kb_val from = kb_loop(k, "block", kb_index(k, 0), kb_index(k, g->l.depth), BLOCK, KB_NONEMPTY);
	copy_x_codes(g, row, from);
	copy_w_codes(g, from);
	kb_barrier(k);
	multiply_codes(g);
	add_block(g, d->has_offset);
	kb_barrier(k);
	kb_end_loop(k);
	eval_release(g->l.eval, mark);
}

static void emit_product(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			kb_set(k, g->sum[m][h], kb_splat(k, kb_f32(k, 0), LANES));
	if (!g->has_codes) {
		emit_floats(g);
		return;
	}
	kb_if(k, kb_device_dot(k));
	emit_codes(g);
	kb_else(k);
	emit_floats(g);
	kb_end_if(k);
}

/* ---- what follows ---- */

static void share_sums(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	struct kb_val column = kb_mul_const(k, g->column, LANES);
	column = kb_add(k, column, kb_mul_const(k, g->before, MATMUL_PANEL));
	struct kb_val at = kb_add(k, kb_mul_const(k, g->row, g->width), column);
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			kb_store(k, kb_get(k, g->sum[m][h]), g->tile, at,
			         m * SIDE * g->width + (int64_t)h * SIDE * LANES, LANES * 4);
}

static void emit_strip(struct shared_matmul *g)
{
	struct kb *k = g->l.k;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_one = g->width == GPU_COLUMNS;
	g->before = kb_index(k, 0);
	if (g->l.norm.before)
		rowwise_tile_begin(&g->norm);
	if (!is_one)
		g->before = kb_loop(k, "panel", g->before, kb_index(k, g->strip), tile, KB_NONEMPTY);
	emit_product(g);
	share_sums(g);
	if (!is_one)
		kb_end_loop(k);
	kb_barrier(k);
	struct matmul_strip s = {.rows = g->l.rows, .begin = g->first_panel};
	s.end = kb_min(k, kb_add_const(k, s.begin, g->strip), kb_index(k, g->l.columns.panels));
	matmul_epilogue(&g->l, &s, g->norm.first, g->norm.rows);
	kb_barrier(k); /* before the next strip overwrites the products */
}

/* ---- tiles ---- */

/* Strips of whole heads, or of as much of gate and up, with as many rows as there is room for. */
static void choose_strips(struct shared_matmul *g)
{
	struct linear *l = &g->l;
	const int64_t tile = GPU_COLUMNS / MATMUL_PANEL;
	bool is_wide = l->parts && l->columns.halves == 1;
	g->strip = is_wide ? l->columns.strip : tile / l->columns.halves;
	g->width = (l->columns.halves * g->strip + tile - 1) / tile * GPU_COLUMNS;
	g->mr = (int)(kernel_linear_shared_rows(l->rows_hi) / SIDE);
	while (g->mr > 1 && g->mr * g->width > MR_MAX * GPU_COLUMNS)
		g->mr /= 2;
	g->operands = g->width > GPU_COLUMNS ? g->mr * SIDE * g->width : 0;
}

/* All columns of the rows, then the norm of what they left in the result. */
static void emit_norm_after(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	struct rowwise_tile tile = g->norm;
	g->first_panel = kb_loop(k, "strip", kb_index(k, 0), kb_index(k, l->columns.panels), (int)g->strip,
	                         KB_NONEMPTY);
	emit_strip(g);
	kb_end_loop(k);
	size_t mark = eval_mark(l->eval);
	tile.norm = l->norm.after;
	eval_place(l->eval, l->out.value, &l->out.to, &(struct eval_bias){0});
	rowwise_tile_begin(&tile);
	struct kb_val i = kb_loop(k, "i", g->item, kb_mul_const(k, tile.rows, l->columns.n), GPU_ITEMS, 0);
	struct kb_val row = kb_div_const(k, i, l->columns.n), column = kb_rem_const(k, i, l->columns.n);
	struct eval_point p = matmul_point(l, kb_add(k, g->norm.first, row), column);
	p.vec = -1;
	struct kb_val value = rowwise_tile_value(&tile, row, &p, 1);
	eval_bind(l->eval, eval_result(tile.norm), &p, value);
	eval_output_at(l->eval, &l->g->out.items[0], &p);
	kb_end_loop(k);
	eval_release(l->eval, mark);
	kb_barrier(k); /* before the next tile overwrites what was found of the rows */
}

/* Tile t of a group: group, group + groups, ..; tiles that share weights are neighbours. */
static void emit_tiles(struct shared_matmul *g)
{
	const struct linear *l = &g->l;
	struct kb *k = l->k;
	int64_t height = (int64_t)g->mr * SIDE;
	int64_t across = l->norm.after ? 1 : (l->columns.panels + g->strip - 1) / g->strip;
	struct kb_val down = kb_div_const(k, kb_add_const(k, l->rows, height - 1), height);
	struct kb_var next = kb_var(k, "tile", KB_INDEX_T, l->job->worker);
	for (int m = 0; m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			g->sum[m][h] = kb_var(k, "sum", KB_TYPE(KB_F32, LANES), (struct kb_val){0});
	for (int m = 0; g->has_codes && m < g->mr; m++)
		for (int h = 0; h < HALVES; h++)
			g->dot[m][h] = kb_var(k, "dot", KB_TYPE(KB_I32, LANES), (struct kb_val){0});
	kb_forever(k);
	struct kb_val t = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, t, kb_mul_const(k, down, across)));
	g->norm.first = kb_mul_const(k, kb_bin(k, KB_REM, t, down), height);
	g->first_panel = kb_mul_const(k, kb_bin(k, KB_DIV, t, down), g->strip);
	g->norm.rows = kb_min(k, kb_sub(k, l->rows, g->norm.first), kb_index(k, height));
	if (l->norm.after)
		emit_norm_after(g);
	else
		emit_strip(g);
	kb_set(k, next, kb_add(k, t, l->job->n_workers));
	kb_end_forever(k);
}

bool kernel_linear_shared(struct kernel *kernel)
{
	struct shared_matmul g = {0};
	if (kernel->job->items != GPU_ITEMS || !matmul_begin(&g.l, kernel))
		return false;
	struct kb *k = g.l.k;
	g.l.lanes = LANES;
	choose_strips(&g);
	g.has_codes = has_codes(&g.l);
	g.item = kb_item_id(k);
	g.row = kb_div_const(k, g.item, SIDE);
	g.column = kb_rem_const(k, g.item, SIDE);
	g.tile = kb_shared(k, "tile", KB_F32, shared_elements(&g));
	g.norm = (struct rowwise_tile){.e = g.l.eval,
	                               .norm = g.l.norm.before,
	                               .most = (int64_t)g.mr * SIDE,
	                               .items = GPU_ITEMS,
	                               .item = g.item,
	                               .parts = g.tile,
	                               .means = kb_shared(k, "means", KB_F32, 2 * g.mr * SIDE)};
	g.l.stage = (struct matmul_stage){.at = g.tile, .width = g.width};
	if (g.l.columns.panels > 0 && g.l.rows_hi > 0)
		emit_tiles(&g);
	return true;
}
