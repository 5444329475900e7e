/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rounded rows by matrix tiles (kb.h): 16 rows of x times 16 lines of a panel at a time, which are what a
 * tile reads. Sums wait in the stage: two panels of the strip at a time, whose lines of a part of K stay in the
 * first-level cache while all rows of the block pass by. (A store of tiles ends what the processor has read ahead; it
 * costs less the nearer the operands are.) Each tile of rows asks for its share of the lines that come next, in the
 * second-level cache: the first one is full.
 *
 * A tile always has 16 rows: those beyond the last one of x are whatever lies in scratch, and nobody reads their sums.
 * Lines that do not fill a tile are copied, with zeros behind them. Sums of integers are scaled when K has ended.
 *
 * Codes with a scale for each step of K: the panels of a strip become signed bytes in scratch once, and the tile's sums of
 * a step go to memory, from where vectors scale them as those of matmul_rounded.c are. Sums of integers are exact, so
 * results have the same bits. Rows that do not fill a tile are those of matmul_rounded.c, too.
 */
#include "backends/linear/matmul_internal.h"

#define LINES       KB_TILE_ROWS
#define CHUNK_BYTES (LINES * PANEL_ROW_BYTES)
#define COLUMNS     2 /* panels side by side */
#define SQUARES_ROWS \
	4 /* of a tile at least: fewer rows are not worth putting words of weights beside each other */

/* Panels that are walked over together. */
struct columns {
	int n;
	struct kb_val w;    /* where it begins */
	struct kb_val next; /* bytes from there to the lines of the columns that are next */
	struct kb_val sums; /* in the stage */
};

/* Chunks [from, to) of K, and where the lines begin that are next. */
struct part {
	struct kb_val from, to, next;
	struct kb_val share; /* lines of a panel that each chunk asks for */
};

static int64_t lines_of(const struct linear *l)
{
	int per_line = l->panel.per_line;
	return (l->depth + per_line - 1) / per_line;
}

static int64_t whole_chunks(const struct linear *l)
{
	return lines_of(l) / LINES;
}

/* Parts of about equal length whose lines of two panels take half of the first-level cache at most. */
static int64_t chunks_of_part(const struct linear *l)
{
	int64_t whole = whole_chunks(l), most = l->job->target->l1_bytes / 2 / (COLUMNS * CHUNK_BYTES),
	        parts = most > 0 ? (whole + most - 1) / most : whole;
	return parts > 0 ? (whole + parts - 1) / parts : 1;
}

void matmul_begin_matrix(struct linear *l)
{
	struct kb *k = l->k;
	const struct attrs_group *s = l->g->attrs;
	if (!matmul_by_matrix(l))
		return;
	int64_t before = matmul_rows_bytes(l),
	        width = (int64_t)l->columns.halves * l->columns.strip * MATMUL_PANEL;
	l->stage = (struct matmul_stage){.at = kb_ptr_add(k, l->job->scratch, kb_index(k, before), 0),
	                                 .width = width};
	l->stage.rows = (s->scratch - before) / (width * 4) / AMX_TILE_ROWS * AMX_TILE_ROWS;
	l->matrix.config = kb_local(k, "config", KB_I32, KB_TILE_CONFIG / 4);
	if (lines_of(l) % LINES > 0)
		l->matrix.rest = kb_local(k, "rest", KB_I32, COLUMNS * CHUNK_BYTES / 4);
	kb_tile_config_gemm(k, l->matrix.config, KB_TILE_BYTES);
}

void matmul_end_matrix(const struct linear *l)
{
	if (l->matrix.config.id || l->unpacked.sums.id)
		kb_tile_release(l->k);
}

/* The lines behind the whole chunks, and zeros. */
static void copy_rest(const struct linear *l, const struct columns *c)
{
	struct kb *k = l->k;
	struct kb_type type = KB_TYPE(KB_I32, l->lanes);
	int64_t lines = lines_of(l) % LINES * MATMUL_PANEL,
	        at = whole_chunks(l) * CHUNK_BYTES + l->panel.head;
	for (int p = 0; lines > 0 && p < c->n; p++) {
		struct kb_val from = kb_ptr_add(k, c->w, kb_index(k, 0), p * l->panel.bytes + at),
		              to = kb_ptr_add(k, l->matrix.rest, kb_index(k, 0), p * CHUNK_BYTES);
		struct kb_val i =
		        kb_loop(k, "line", kb_index(k, 0), kb_index(k, lines), l->lanes, KB_NONEMPTY);
		kb_store(k, kb_load(k, type, from, i, 0, 0), to, i, 0, 0);
		kb_end_loop(k);
		i = kb_loop(k, "clear", kb_index(k, lines), kb_index(k, LINES * MATMUL_PANEL), l->lanes,
		            KB_NONEMPTY);
		kb_store(k, kb_splat(k, kb_i32(k, 0), l->lanes), to, i, 0, 0);
		kb_end_loop(k);
	}
}

/* Lines that come next: the share of row tile `turn` in chunk `chunk` of the part. */
static void ask_ahead(const struct linear *l, const struct columns *c, const struct part *part,
                      struct kb_val turn, struct kb_val chunk)
{
	struct kb *k = l->k;
	struct kb_val before = kb_mul(k, turn, kb_sub(k, part->to, part->from));
	before = kb_add(k, before, kb_sub(k, chunk, part->from));
	struct kb_val line = kb_mul(k, before, part->share), end = kb_add(k, line, part->share);
	line = kb_loop(k, "ahead", line, end, 1, KB_NONEMPTY);
	for (int p = 0; p < c->n; p++)
		kb_prefetch_l2(k, part->next, kb_mul_const(k, line, PANEL_ROW_BYTES), p * l->panel.bytes);
	kb_end_loop(k);
}

/* Sums of 16 or 32 rows from row `row` of the block on += their products with the part. */
static void add_products(const struct linear *l, const struct columns *c, const struct part *part,
                         struct kb_val row, int rows)
{
	struct kb *k = l->k;
	int64_t row_bytes = l->rounded.row.bytes, whole = whole_chunks(l), sums_step = l->stage.width * 4;
	struct matrix_tiles t = {.k = k,
	                         .dot = l->rounded.to.bf16 ? KB_DOT_BF16 : KB_DOT_U8S8,
	                         .rows = rows / KB_TILE_ROWS,
	                         .columns = c->n,
	                         .x_step = row_bytes,
	                         .x_apart = KB_TILE_ROWS * row_bytes,
	                         .w_step = PANEL_ROW_BYTES,
	                         .w_apart = l->panel.bytes};
	struct kb_val x = kb_ptr_add(k, l->norm.at, kb_mul_const(k, row, row_bytes), 0);
	struct kb_val sums = kb_ptr_add(k, c->sums, kb_mul_const(k, row, sums_step), 0);
	kb_if(k, kb_cmp(k, KB_EQ, part->from, kb_index(k, 0)));
	matrix_tiles_zero(&t);
	kb_else(k);
	matrix_tiles_load(&t, sums, sums_step);
	kb_end_if(k);
	struct kb_val turn = kb_div_const(k, row, AMX_TILE_ROWS);
	struct kb_val chunk = kb_loop(k, "chunk", part->from, part->to, 1, 0);
	ask_ahead(l, c, part, turn, chunk);
	struct kb_val words = kb_ptr_add(k, x, kb_mul_const(k, chunk, KB_TILE_BYTES), 0),
	              w = kb_ptr_add(k, c->w, kb_mul_const(k, chunk, CHUNK_BYTES), l->panel.head);
	matrix_tiles_mac_k(&t, words, w);
	kb_end_loop(k);
	if (l->matrix.rest.id) {
		t.w_apart = CHUNK_BYTES;
		kb_if(k, kb_cmp(k, KB_EQ, part->to, kb_index(k, whole)));
		matrix_tiles_mac_k(&t, kb_ptr_add(k, x, kb_index(k, 0), whole * KB_TILE_BYTES),
		                   l->matrix.rest);
		kb_end_if(k);
	}
	matrix_tiles_store(&t, sums, sums_step);
}

static void add_part(const struct linear *l, const struct columns *c, const struct part *part,
                     struct kb_val rows)
{
	struct kb *k = l->k;
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), rows, AMX_TILE_ROWS, 0);
	if (l->rows_hi > KB_TILE_ROWS) {
		kb_if(k, kb_cmp(k, KB_GT, kb_sub(k, rows, row), kb_index(k, KB_TILE_ROWS)));
		add_products(l, c, part, row, AMX_TILE_ROWS);
		kb_else(k);
	}
	add_products(l, c, part, row, KB_TILE_ROWS);
	if (l->rows_hi > KB_TILE_ROWS)
		kb_end_if(k);
	kb_end_loop(k);
}

/* Sums of integers become those of f32. */
static void scale_sums(const struct linear *l, const struct columns *c, struct kb_val rows)
{
	struct kb *k = l->k;
	int64_t step = l->rounded.row.bytes;
	struct reg_tile p = {.k = k, .rows = 1, .vectors = c->n * MATMUL_PANEL / l->lanes, .lanes = l->lanes};
	const struct matmul_rounded_tile tile = {.l = l, .p = &p, .w = c->w};
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), rows, 1, 0);
	struct kb_val at = kb_mul_const(k, row, l->stage.width);
	p.x[0] = kb_ptr_add(k, l->norm.at, kb_mul_const(k, row, step), 0);
	for (int v = 0; v < p.vectors; v++) {
		struct kb_val sum = kb_load(k, KB_TYPE(KB_I32, l->lanes), c->sums, at, v * l->lanes, 0);
		kb_store(k, matmul_rounded_alone(&tile, 0, v, sum), c->sums, at, v * l->lanes, 0);
	}
	kb_end_loop(k);
}

static void add_columns(const struct linear *l, const struct columns *c, struct kb_val rows)
{
	struct kb *k = l->k;
	int64_t whole = whole_chunks(l), step = chunks_of_part(l);
	struct kb_val tiles = kb_add_const(k, rows, AMX_TILE_ROWS - 1), end = kb_index(k, whole);
	tiles = kb_max(k, kb_div_const(k, tiles, AMX_TILE_ROWS), kb_index(k, 1));
	struct part part = {.share = kb_bin(k, KB_DIV, kb_add_const(k, tiles, LINES - 1), tiles)};
	copy_rest(l, c);
	part.from = kb_loop(k, "part", kb_index(k, 0), kb_index(k, whole > 0 ? whole : 1), step, KB_NONEMPTY);
	part.to = kb_min(k, kb_add_const(k, part.from, step), end);
	struct kb_val behind = kb_mul_const(k, part.to, CHUNK_BYTES);
	behind = kb_select(k, kb_cmp(k, KB_LT, part.to, end), behind, c->next);
	part.next = kb_ptr_add(k, c->w, behind, l->panel.head);
	add_part(l, c, &part, rows);
	kb_end_loop(k);
	if (!l->rounded.to.bf16)
		scale_sums(l, c, rows);
}

/* Columns from panel `panel` of the half on; the other half is next, or the panels behind them. */
static void walk_columns(const struct linear *l, const struct matmul_strip *s, struct kb_val half,
                         struct kb_val panel, int n)
{
	struct kb *k = l->k;
	int64_t bytes = l->panel.bytes, beyond = l->columns.panels * bytes;
	struct columns c = {.n = n, .next = kb_index(k, n * bytes)};
	struct kb_val first = panel, column = kb_mul_const(k, kb_sub(k, panel, s->begin), MATMUL_PANEL);
	if (l->columns.halves > 1) {
		first = kb_add(k, first, kb_mul_const(k, half, l->columns.panels));
		column = kb_add(k, column, kb_mul_const(k, half, l->stage.width / l->columns.halves));
		c.next = kb_select(k, kb_cmp(k, KB_EQ, half, kb_index(k, 0)), kb_index(k, beyond),
		                   kb_index(k, n * bytes - beyond));
	}
	c.w = kb_ptr_add(k, s->weights, kb_mul_const(k, first, bytes), 0);
	c.sums = kb_ptr_add(k, l->stage.at, kb_mul_const(k, column, 4), 0);
	add_columns(l, &c, kb_sub(k, s->row_end, s->row));
}

static void walk_halves(const struct linear *l, const struct matmul_strip *s, struct kb_val panel, int n)
{
	struct kb *k = l->k;
	struct kb_val half = {0};
	if (l->columns.halves > 1)
		half = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.halves), 1, KB_NONEMPTY);
	walk_columns(l, s, half, panel, n);
	if (l->columns.halves > 1)
		kb_end_loop(k);
}

void matmul_matrix_strip(const struct linear *l, const struct matmul_strip *s)
{
	struct kb *k = l->k;
	struct kb_val pairs = kb_div_const(k, kb_sub(k, s->end, s->begin), COLUMNS);
	struct kb_val whole = kb_add(k, s->begin, kb_mul_const(k, pairs, COLUMNS));
	struct kb_val panel = kb_loop(k, "panel", s->begin, whole, COLUMNS, 0);
	walk_halves(l, s, panel, COLUMNS);
	kb_end_loop(k);
	panel = kb_loop(k, "panel", whole, s->end, 1, 0);
	walk_halves(l, s, panel, 1);
	kb_end_loop(k);
	matmul_epilogue(l, s, s->row, kb_sub(k, s->row_end, s->row));
}

/* ---- steps ---- */

/* Elements of K that one product of tiles takes of a step. */
static int chunk_of_step(const struct linear *l)
{
	return l->rounded.row.step < KB_TILE_BYTES ? (int)l->rounded.row.step : KB_TILE_BYTES;
}

void matmul_begin_steps(struct linear *l)
{
	struct kb *k = l->k;
	struct kb_val config = kb_local(k, "config", KB_I32, KB_TILE_CONFIG / 4);
	l->unpacked.sums = kb_local(k, "sums", KB_I32, CHUNK_BYTES / 4);
	kb_tile_config_gemm(k, config, chunk_of_step(l));
}

/* n lines from element i of K on. */
static void unpack_lines(const struct linear *l, struct kb_val from, struct kb_val to, struct kb_val i, int n)
{
	struct kb *k = l->k;
	struct kb_val at = kb_mul_const(k, i, MATMUL_PANEL / 4);
	for (int line = 0; line < n; line++)
		for (int column = 0; column < MATMUL_PANEL; column += l->lanes) {
			struct kb_val first = kb_index(k, column),
			              words = panel_words(k, &l->panel, from, first, i, line, l->lanes);
			kb_store(k, words, to, at, line * MATMUL_PANEL + column, 0);
		}
}

#define LINES_UNROLLED 4

void matmul_unpack_panel(const struct linear *l, struct kb_val from, struct kb_val to)
{
	struct kb *k = l->k;
	int64_t turn = 4 * LINES_UNROLLED, whole = l->depth / turn * turn;
	struct kb_val i = kb_loop(k, "unpack", kb_index(k, 0), kb_index(k, whole), turn, 0);
	unpack_lines(l, from, to, i, LINES_UNROLLED);
	kb_end_loop(k);
	unpack_lines(l, from, to, kb_index(k, whole), (int)(l->depth - whole + 3) / 4);
}

struct steps {
	const struct matmul_rounded_tile *c;
	struct matrix_tiles tiles;
};

/* The tile becomes the sums of the n elements of a step. */
static void add_step(const struct steps *s, struct kb_val step, int64_t n)
{
	const struct matmul_rounded_tile *c = s->c;
	struct kb *k = s->tiles.k;
	struct kb_val first = kb_mul_const(k, step, c->l->rounded.row.step);
	struct kb_val x = kb_ptr_add(k, c->p->x[0], first, 0);
	struct kb_val w = kb_ptr_add(k, c->unpacked_w, kb_mul_const(k, first, MATMUL_PANEL), 0);
	matrix_tiles_zero(&s->tiles);
	for (int64_t at = 0; at < n; at += chunk_of_step(c->l)) {
		struct kb_val words = kb_ptr_add(k, x, kb_index(k, 0), at);
		matrix_tiles_mac_k(&s->tiles, words, kb_ptr_add(k, w, kb_index(k, 0), at * MATMUL_PANEL));
	}
}

static void scale_step(const struct steps *s, struct kb_val step)
{
	const struct linear *l = s->c->l;
	const struct reg_tile *p = s->c->p;
	struct kb *k = l->k;
	int64_t size = l->rounded.row.step;
	struct kb_val zero = kb_index(k, 0), first = kb_mul_const(k, step, size);
	matmul_steps_ahead(l, s->c->ahead, first, size);
	for (int v = 0; v < p->vectors; v++) {
		struct kb_val column = kb_index(k, v * l->lanes);
		struct panel_block scale = panel_block(k, &l->panel, s->c->w, column, first, l->lanes);
		for (int m = 0; m < p->rows; m++) {
			struct kb_var sum = p->sum[m * p->vectors + v];
			struct kb_val integers = kb_load(k, KB_TYPE(KB_I32, l->lanes), l->unpacked.sums, zero,
			                                 m * MATMUL_PANEL + v * l->lanes, 0);
			kb_set(k, sum, matmul_add_scaled(s->c, step, m, &scale, integers, kb_get(k, sum)));
		}
	}
}

/* The tile multiplies a step while the sums of the one before are scaled. */
void matmul_steps_depth(const struct matmul_rounded_tile *c)
{
	const struct linear *l = c->l;
	struct kb *k = l->k;
	const struct steps s = {c,
	                        {.k = k,
	                         .dot = KB_DOT_S8S8,
	                         .rows = 1,
	                         .columns = 1,
	                         .x_step = l->rounded.row.bytes,
	                         .w_step = PANEL_ROW_BYTES}};
	int64_t size = l->rounded.row.step, n = l->rounded.row.steps, rest = l->depth - (n - 1) * size;
	add_step(&s, kb_index(k, 0), size);
	struct kb_val step = kb_loop(k, "step", kb_index(k, 0), kb_index(k, n - 2), 1, 0);
	matrix_tiles_store(&s.tiles, l->unpacked.sums, PANEL_ROW_BYTES);
	add_step(&s, kb_add_const(k, step, 1), size);
	scale_step(&s, step);
	kb_end_loop(k);
	matrix_tiles_store(&s.tiles, l->unpacked.sums, PANEL_ROW_BYTES);
	add_step(&s, kb_index(k, n - 1), rest);
	scale_step(&s, kb_index(k, n - 2));
	matrix_tiles_store(&s.tiles, l->unpacked.sums, PANEL_ROW_BYTES);
	scale_step(&s, kb_index(k, n - 1));
}

/* ---- matrices of 2 x 2 words ---- */

bool matmul_by_squares(const struct matmul_rounded_tile *c)
{
	const struct kb_caps *caps = kb_caps(c->l->k);
	bool is_bf16 = c->l->rounded.to.bf16;
	bool has = is_bf16 ? caps->has_dot_bf16_odd_2x2 : caps->has_dot_u8s8_2x2;
	bool fits = is_bf16 || (c->l->rounded.row.steps == 1 && ir_format(c->l->panel.format)->bits == 8);
	return has && fits && c->l->lanes == MATMUL_WORDS && c->p->rows >= SQUARES_ROWS;
}

/* Words x + i and x + i + 1 of two rows; of the last one twice where there is no other. */
static struct kb_val rows_of_square(const struct matmul_rounded_tile *c, int m, struct kb_val x, int i)
{
	static const int beside[] = {0, 1, 2, 3};
	const struct reg_tile *p = c->p;
	struct kb_val row[2];
	for (int r = 0; r < 2; r++) {
		int at = m + r < p->rows ? m + r : m;
		row[r] = kb_load(p->k, KB_TYPE(KB_I32, 2), p->x[at], x, p->x_disp[at] + i, 0);
	}
	return kb_shuffle(p->k, row[0], row[1], beside, MATMUL_WORDS);
}

/* Lines x + i and x + i + 1; sum: [two rows][vectors][two columns]. */
static void add_squares(const struct matmul_rounded_tile *c, const struct kb_var *sum, struct kb_val x, int i)
{
	static const int columns[2][MATMUL_WORDS] = {{0, 4, 1, 5}, {2, 6, 3, 7}};
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_val rows[MATMUL_ROWS_MAX], line[2];
	struct kb_val at = kb_add_const(k, kb_mul_const(k, x, MATMUL_PANEL), c->l->panel.head / 4),
	              per_word = kb_index(k, c->l->panel.per_line);
	for (int r = 0; c->ahead->from.id && r < 2; r++)
		matmul_step_ahead(c->l, c->ahead, kb_mul(k, kb_add_const(k, x, i + r), per_word));
	for (int m = 0; m < p->rows; m += 2)
		rows[m] = rows_of_square(c, m, x, i);
	for (int v = 0; v < 2 * p->vectors; v++) {
		for (int r = 0; v % 2 == 0 && r < 2; r++)
			line[r] = matmul_load_words(c, c->panel, at, i + r, v / 2);
		struct kb_val w = kb_shuffle(k, line[0], line[1], columns[v % 2], MATMUL_WORDS);
		for (int m = 0; m < p->rows; m += 2) {
			struct kb_var to = sum[m * p->vectors + v];
			struct kb_val before = kb_get(k, to);
			kb_set(k, to,
			       c->l->rounded.to.bf16 ? kb_dot_bf16_odd_2x2(k, before, w, rows[m])
			                             : kb_dot_u8s8_2x2(k, before, w, rows[m]));
		}
	}
}

void matmul_walk_squares(const struct matmul_rounded_tile *c, int64_t n, struct kb_val *sum)
{
	static const int of_row[2][MATMUL_WORDS] = {{0, 2, 4, 6}, {1, 3, 5, 7}};
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_var square[2 * MATMUL_ACC_MAX];
	enum kb_scalar s = c->l->rounded.to.bf16 ? KB_F32 : KB_I32;
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, 0), s), MATMUL_WORDS);
	for (int i = 0; i < (p->rows + 1) / 2 * 2 * p->vectors; i++)
		square[i] = kb_var(k, "square", KB_TYPE(s, MATMUL_WORDS), zero);
	if (n > 0) {
		struct kb_val x = kb_loop(k, "k", kb_index(k, 0), kb_index(k, n), 2, KB_NONEMPTY);
		add_squares(c, square, x, 0);
		kb_end_loop(k);
	}
	for (int m = 0; m < p->rows; m++)
		for (int v = 0; v < p->vectors; v++) {
			const struct kb_var *of = &square[m / 2 * 2 * p->vectors + 2 * v];
			struct kb_val left = kb_get(k, of[0]);
			sum[m * p->vectors + v] =
			        kb_shuffle(k, left, kb_get(k, of[1]), of_row[m % 2], MATMUL_WORDS);
		}
}
