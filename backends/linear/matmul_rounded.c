/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rounded rows, which lie in scratch (matmul_rows.c), with weights in panels (ir/target/tile.h). Pairs of
 * bf16: each sum is one chain over the pairs in increasing k, with the arithmetic of kb_dot_bf16. Integers: over
 * each step of K the products are summed exactly in 32 bits; the sum times the scales of x and of the column is then
 * added to the sums of f32, in increasing order of steps:
 *
 *   y += (sum of (w + zero) x - zero sum of x) (d_x d_w) + offset_w (d_x sum of x)
 */
#include "backends/linear/matmul_internal.h"

#define TURN         8    /* lines of bf16 without a loop, where sums are few */
#define CHUNK        32   /* elements of K without a loop: eight words of x */
#define HALVES_AHEAD 2048 /* bytes between a line of 4 bits that is used and the one that is fetched */
#define SUMS_FEW     16   /* in a tile of more of them a line alone keeps the processor busy */

static struct kb_type words_of(const struct matmul_rounded_tile *c)
{
	return KB_TYPE(KB_I32, c->l->lanes);
}

int64_t matmul_rounded_vector(const struct matmul_rounded_tile *c, int v, int64_t bytes)
{
	int per_panel = MATMUL_PANEL / c->l->lanes;
	return v / per_panel * (c->l->panel.bytes / bytes) + v % per_panel * c->l->lanes;
}

struct kb_val matmul_rounded_word(const struct matmul_rounded_tile *c, int m, struct kb_val x, int64_t disp)
{
	return kb_load_splat(c->l->k, words_of(c), c->p->x[m], x, c->p->x_disp[m] + disp);
}

/* ---- sums of integers ---- */

/* Word x of the rows times a vector of weights for each panel. */
static void add_words(struct matmul_rounded_tile *c, const struct kb_val *w, struct kb_val x, int64_t disp)
{
	struct kb *k = c->l->k;
	const struct products *p = c->p;
	bool is_small = ir_format_byte_most(c->l->panel.format) < 128;
	for (int m = 0; m < p->rows; m++) {
		struct kb_val codes = matmul_rounded_word(c, m, x, disp);
		for (int v = 0; v < p->vectors; v++) {
			struct kb_var sum = c->sum[m * p->vectors + v];
			struct kb_val before = kb_get(k, sum);
			kb_set(k, sum,
			       is_small ? kb_dot_u7s8(k, before, w[v], codes)
			                : kb_dot_u8s8(k, before, w[v], codes));
		}
	}
}

/* Codes of four bits of every byte, from bit `shift` on. */
static struct kb_val halves_of(const struct matmul_rounded_tile *c, struct kb_val bytes, int shift)
{
	struct kb *k = c->l->k;
	if (shift > 0)
		bytes = kb_bin(k, KB_SHR, bytes, kb_splat(k, kb_i32(k, shift), c->l->lanes));
	bytes = kb_bin(k, KB_AND, bytes, kb_splat(k, kb_i32(k, 0x0f0f0f0f), c->l->lanes));
	return panel_look_up(k, &c->l->panel, bytes, c->l->lanes);
}

/* One row over panels side by side: each is a short stream of memory. */
static void fetch_ahead(const struct matmul_rounded_tile *c, struct kb_val at, int line)
{
	struct kb *k = c->l->k;
	struct kb_val bytes = kb_mul(k, at, kb_index(k, 4));
	for (int v = 0; v < c->p->vectors; v += MATMUL_PANEL / c->l->lanes)
		kb_prefetch(k, c->w, bytes,
		            matmul_rounded_vector(c, v, 1) + (int64_t)line * TILE_LINE + HALVES_AHEAD);
}

/* Line `line` of a chunk whose first word of x is `first`. */
static void add_line(struct matmul_rounded_tile *c, struct kb_val first, int line)
{
	struct kb *k = c->l->k;
	bool is_half = ir_format(c->l->panel.format)->bits == 4;
	int64_t words = MATMUL_PANEL / (is_half ? 2 : 1); /* of weights, for a word of x */
	struct kb_val at = kb_mul(k, first, kb_index(k, words)), w[MATMUL_ACC_MAX], half[MATMUL_ACC_MAX];
	if (c->ahead->from.id) {
		int64_t element = (int64_t)line * (is_half ? 8 : 4);
		struct kb_val i = kb_mul(k, first, kb_index(k, 4));
		matmul_step_ahead(c->l, c->ahead, kb_add_const(k, i, element));
	}
	if (is_half && c->p->rows == 1 && !c->ahead->from.id)
		fetch_ahead(c, at, line);
	for (int v = 0; v < c->p->vectors; v++)
		w[v] = kb_load(k, words_of(c), c->w, at,
		               matmul_rounded_vector(c, v, 4) + (int64_t)line * MATMUL_PANEL, 0);
	if (!is_half) {
		add_words(c, w, first, line);
		return;
	}
	for (int v = 0; v < c->p->vectors; v++)
		half[v] = halves_of(c, w[v], 0);
	add_words(c, half, first, line);
	for (int v = 0; v < c->p->vectors; v++) {
		w[v] = kb_load(k, words_of(c), c->again, at,
		               matmul_rounded_vector(c, v, 4) + (int64_t)line * MATMUL_PANEL, 0);
		half[v] = halves_of(c, w[v], 4);
	}
	add_words(c, half, first, line + CHUNK / 8);
}

/* n elements, at most a chunk. */
static void add_chunk(struct matmul_rounded_tile *c, struct kb_val first, int64_t n)
{
	int lines = ir_format(c->l->panel.format)->bits == 4 ? CHUNK / 8 : (int)(n + 3) / 4;
	for (int line = 0; line < lines; line++)
		add_line(c, first, line);
}

/* Minus what `code + zero` has too much. */
static void begin_sums(struct matmul_rounded_tile *c, struct kb_val step)
{
	struct kb *k = c->l->k;
	const struct products *p = c->p;
	int64_t starts = c->l->rounded.row.starts / 4;
	for (int m = 0; m < p->rows; m++) {
		struct kb_val start = kb_load_splat(k, words_of(c), p->x[m], step, p->x_disp[m] + starts);
		for (int v = 0; v < p->vectors; v++)
			kb_set(k, c->sum[m * p->vectors + v], start);
	}
}

/* ---- scales ---- */

/* The block that a step of K lies in. */
static struct kb_val block_of(const struct linear *l, struct kb_val step)
{
	int64_t block = ir_format(l->panel.format)->block;
	if (block == 0 || block >= l->depth)
		return kb_index(l->k, 0);
	int64_t per = block / l->rounded.row.step;
	return per == 1 ? step : kb_bin(l->k, KB_DIV, step, kb_index(l->k, per));
}

/* Scale and offset of vector v in a step. */
struct scales {
	struct kb_val scale, offset;
};

static struct scales scales_of(const struct matmul_rounded_tile *c, struct kb_val step, int v)
{
	struct kb_val block = block_of(c->l, step);
	struct scales s = {.scale = panel_scale(c->l->k, &c->l->panel, c->w, block, v, c->l->lanes)};
	s.offset = panel_offset(c->l->k, &c->l->panel, c->w, block, v, c->l->lanes);
	return s;
}

/* sum and the sum of integers of a step, scaled. */
static struct kb_val add_scaled(const struct matmul_rounded_tile *c, struct kb_val step, int m,
                                const struct scales *s, struct kb_val integers, struct kb_val sum)
{
	struct kb *k = c->l->k;
	const struct products *p = c->p;
	const struct tile_rounded_row *row = &c->l->rounded.row;
	struct kb_type type = KB_TYPE(KB_F32, c->l->lanes);
	struct kb_val d = kb_load_splat(k, type, p->x[m], step, p->x_disp[m] + row->scales / 4);
	struct kb_val both = kb_mul(k, d, s->scale);
	sum = kb_fma(k, kb_cvt(k, integers, KB_F32), both, sum);
	if (!s->offset.id)
		return sum;
	struct kb_val total = kb_load_splat(k, type, p->x[m], step, p->x_disp[m] + row->totals / 4);
	return kb_fma(k, s->offset, total, sum);
}

/* Vector v of the sums of f32 grows by the sums of integers of a step. */
static void add_integers(const struct matmul_rounded_tile *c, struct kb_val step, int v)
{
	struct kb *k = c->l->k;
	const struct scales s = scales_of(c, step, v);
	for (int m = 0; m < c->p->rows; m++) {
		int at = m * c->p->vectors + v;
		struct kb_val integers = kb_get(k, c->sum[at]);
		kb_set(k, c->p->sum[at], add_scaled(c, step, m, &s, integers, kb_get(k, c->p->sum[at])));
	}
}

struct kb_val matmul_rounded_alone(const struct matmul_rounded_tile *c, int m, int v, struct kb_val integers)
{
	struct kb *k = c->l->k;
	struct kb_val step = kb_index(k, 0), zero = kb_splat(k, kb_f32(k, 0), c->l->lanes);
	const struct scales s = scales_of(c, step, v);
	struct kb_val start = matmul_rounded_word(c, m, step, c->l->rounded.row.starts / 4);
	return add_scaled(c, step, m, &s, kb_add(k, integers, start), zero);
}

/* ---- K ---- */

/* Step number `step`, of n elements. */
static void add_step(struct matmul_rounded_tile *c, struct kb_val step, int64_t n)
{
	struct kb *k = c->l->k;
	struct kb_val first = kb_mul(k, step, kb_index(k, c->l->rounded.row.step / 4));
	bool by_lines = ir_format(c->l->panel.format)->bits == 8 && c->p->rows * c->p->vectors > SUMS_FEW;
	int64_t done = 0, turn = by_lines ? 4 : CHUNK;
	begin_sums(c, step);
	if (n >= 4 * CHUNK) {
		done = n / turn * turn;
		struct kb_val to = kb_add_const(k, first, done / 4);
		add_chunk(c, kb_loop(k, "k", first, to, turn / 4, KB_NONEMPTY), turn);
		kb_end_loop(k);
	}
	for (; done < n; done += CHUNK)
		add_chunk(c, kb_add_const(k, first, done / 4), n - done < CHUNK ? n - done : CHUNK);
	for (int v = 0; v < c->p->vectors; v++)
		add_integers(c, step, v);
}

void matmul_integer_depth(struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	const struct tile_rounded_row *row = &c->l->rounded.row;
	int64_t whole = c->l->depth / row->step, rest = c->l->depth % row->step;
	c->again = ir_format(c->l->panel.format)->codebook ? kb_ptr_apart(k, c->w) : c->w;
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		c->sum[i] = kb_var(k, "dot", words_of(c), (struct kb_val){0});
	if (whole == 1) {
		add_step(c, kb_index(k, 0), row->step);
	} else if (whole > 1) {
		struct kb_val step = kb_loop(k, "step", kb_index(k, 0), kb_index(k, whole), 1, KB_NONEMPTY);
		add_step(c, step, row->step);
		kb_end_loop(k);
	}
	if (rest > 0)
		add_step(c, kb_index(k, whole), rest);
}

/* ---- pairs of bf16 ---- */

/* Line number at + i. */
static void add_pairs(const struct matmul_rounded_tile *c, struct kb_val at, int i)
{
	struct kb *k = c->l->k;
	const struct products *p = c->p;
	struct kb_val words = kb_mul(k, at, kb_index(k, MATMUL_PANEL)), w[MATMUL_ACC_MAX];
	if (c->ahead->from.id)
		matmul_step_ahead(c->l, c->ahead, kb_mul(k, kb_add_const(k, at, i), kb_index(k, 2)));
	for (int v = 0; v < p->vectors; v++)
		w[v] = kb_load(k, KB_TYPE(KB_I32, p->lanes), c->w, words,
		               matmul_rounded_vector(c, v, 4) + (int64_t)i * MATMUL_PANEL, 0);
	for (int m = 0; m < p->rows; m++) {
		struct kb_val x = matmul_rounded_word(c, m, at, i);
		for (int v = 0; v < p->vectors; v++)
			kb_set(k, p->sum[m * p->vectors + v], kb_dot_bf16(k, products_sum(p, m, v), w[v], x));
	}
}

void matmul_bf16_depth(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int64_t lines = tile_lines(DT_BF16, c->l->depth);
	int turn = c->p->rows * c->p->vectors > SUMS_FEW ? 1 : TURN;
	int64_t whole = lines / turn * turn;
	if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), turn, KB_NONEMPTY);
		for (int i = 0; i < turn; i++)
			add_pairs(c, at, i);
		kb_end_loop(k);
	}
	for (int i = 0; i < lines - whole; i++)
		add_pairs(c, kb_index(k, whole), i);
}
