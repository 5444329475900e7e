/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of rounded rows, which lie in scratch (matmul_rows.c), with weights in panels (ir/target/tile.h). Pairs of
 * bf16: each sum is one chain over the pairs in increasing k, with the arithmetic of kb_dot_bf16 or kb_dot_bf16_odd. Integers: over
 * each step of K the products are summed exactly in 32 bits; the sum times the scales of x and of the column is then
 * added to the sums of f32, in increasing order of steps:
 *
 *   y += (sum of (w + zero) x - zero sum of x) (d_x d_w) + offset_w (d_x sum of x)
 *
 * where w is without what a block adds to its codes, which is taken from zero instead. Codes of 4 bits are so small that
 * products of a chunk of K are first added with 16 bits where that is faster (tile_accumulates_i16); the sums are the same.
 *
 * Where the machine multiplies by an element of a vector, four words of each row of x are loaded at once. Where it
 * multiplies matrices of 2 x 2 words, tiles of several rows without steps are made of these: two rows of x times two
 * columns, whose words of two lines lie beside each other.
 */
#include "backends/linear/matmul_internal.h"

#define TURN      8  /* lines of bf16 without a loop, where sums are few */
#define CHUNK     32 /* elements of K without a loop: eight words of x */
#define SUMS_FEW  16 /* in a tile of more of them a line alone keeps the processor busy */
#define SUMS_WIDE 4  /* as well, where it is widened: a compiler loads the words of a longer turn ahead */

static struct kb_type words_of(const struct matmul_rounded_tile *c)
{
	return KB_TYPE(KB_I32, c->l->lanes);
}

/* Unsigned bytes are made signed ones before they are multiplied, 128 less. */
static bool turns_codes(const struct linear *l)
{
	const struct kb_caps *caps = kb_caps(l->k);
	return ir_format_u8_max(l->panel.format) > 127 && caps->has_dot_s8s8 && !caps->has_dot_u8s8;
}

int matmul_codes_zero(const struct linear *l)
{
	return ir_format_u8_zero_point(l->panel.format) - (turns_codes(l) ? 128 : 0);
}

static bool has_elements(const struct matmul_rounded_tile *c)
{
	return c->l->lanes == MATMUL_WORDS && c->l->job->target->k_lanes == MATMUL_WORDS;
}

/* Words x + 4 i to x + 4 i + 3 of all rows: of bf16 as f32, of which LLVM knows that an element may be an operand. */
static void open_words(struct matmul_rounded_tile *c, struct kb_val x, int i)
{
	const struct reg_tile *p = c->p;
	struct kb_type type = KB_TYPE(c->l->rounded.to.bf16 ? KB_F32 : KB_I32, MATMUL_WORDS);
	for (int m = 0; has_elements(c) && m < p->rows; m++)
		c->words[i][m] = kb_load(p->k, type, p->x[m], x, p->x_disp[m] + (int64_t)i * MATMUL_WORDS, 0);
}

/* Word x + disp of row m, in all lanes. */
static struct kb_val row_word(const struct matmul_rounded_tile *c, int m, struct kb_val x, int64_t disp)
{
	return kb_load_splat(c->l->k, words_of(c), c->p->x[m], x, c->p->x_disp[m] + disp);
}

/* Word x + i, of those that are open. */
static struct kb_val word_of(const struct matmul_rounded_tile *c, int m, struct kb_val x, int i)
{
	struct kb *k = c->l->k;
	if (!has_elements(c))
		return row_word(c, m, x, i);
	struct kb_val all =
	        kb_splat(k, kb_lane(k, c->words[i / MATMUL_WORDS][m], i % MATMUL_WORDS), MATMUL_WORDS);
	return c->l->rounded.to.bf16 ? kb_bitcast(k, all, KB_I32) : all;
}

bool matmul_has_dots(const struct linear *l)
{
	const struct kb_caps *caps = kb_caps(l->k);
	return l->rounded.to.bf16 ? caps->has_dot_bf16 || caps->has_dot_bf16_odd
	                          : caps->has_dot_u8s8 || caps->has_dot_s8s8;
}

/* Dot products of bytes are several instructions. */
static bool is_by_parts(const struct matmul_rounded_tile *c)
{
	return !c->unpacked_w.id && !matmul_has_dots(c->l);
}

/* ---- sums of integers ---- */

/* In halves of 16 bits, c->half. */
static bool is_in_halves(const struct matmul_rounded_tile *c)
{
	return tile_accumulates_i16(c->l->job->target, c->l->panel.format);
}

static struct kb_val dot_codes(const struct matmul_rounded_tile *c, struct kb_val sum, struct kb_val w,
                               struct kb_val x)
{
	struct kb *k = c->l->k;
	if (is_in_halves(c))
		return kb_dot_u7s8_i16(k, sum, w, x);
	if (turns_codes(c->l))
		return kb_dot_s8s8(k, sum, w, x);
	return ir_format_u8_max(c->l->panel.format) > 127 ? kb_dot_u8s8(k, sum, w, x)
	                                                  : kb_dot_u7s8(k, sum, w, x);
}

/* Codes of four bits of every byte, from bit `shift` on. Machines with products by element shift bytes, too. Look-ups need no
 * mask, but where registers are scarce that reads a line from memory just before it is used. */
static struct kb_val halves_of(const struct matmul_rounded_tile *c, struct kb_val words, int shift)
{
	struct kb *k = c->l->k;
	int lanes = c->l->lanes;
	if (shift > 0 && has_elements(c)) {
		struct kb_val by = kb_splat(k, kb_cvt(k, kb_i32(k, shift), KB_U8), 4 * lanes);
		words = kb_bitcast(k, kb_bin(k, KB_SHR, kb_bitcast(k, words, KB_U8), by), KB_I32);
	} else {
		if (shift > 0)
			words = kb_bin(k, KB_SHR, words, kb_splat(k, kb_i32(k, shift), lanes));
		if (!ir_format(c->l->panel.format)->codebook || c->p->rows > 1)
			words = kb_bin(k, KB_AND, words, kb_splat(k, kb_i32(k, 0x0f0f0f0f), lanes));
	}
	return panel_look_up(k, &c->l->panel, words, matmul_codes_zero(c->l), lanes);
}

/* The word of weights where the line of word `first` of x in the step begins, in a panel. */
static struct kb_val line_of(const struct matmul_rounded_tile *c, struct kb_val first)
{
	struct kb *k = c->l->k;
	int64_t words = MATMUL_PANEL / (ir_format(c->l->panel.format)->bits == 4 ? 2 : 1);
	return kb_add(k, c->line, kb_mul_const(k, first, words));
}

/* A share of a step is less than a line, and sums of steps leave no registers for more addresses. */
static bool asks_once(const struct matmul_rounded_tile *c)
{
	return c->ahead->turn.id && matmul_sum_registers(c->l) > 1;
}

static void ask_ahead(const struct matmul_rounded_tile *c, struct kb_val first, int line)
{
	struct kb *k = c->l->k;
	int64_t per_line = c->l->panel.per_line;
	if (!c->ahead->from.id || (asks_once(c) && (line > 0 || c->turn.id)))
		return;
	struct kb_val i = kb_mul_const(k, kb_add(k, c->first, first), 4), at = line_of(c, first);
	if (c->turn.id) {
		i = kb_add(k, i, kb_mul_const(k, c->turn, per_line));
		at = kb_add(k, at, kb_mul_const(k, c->turn, MATMUL_PANEL));
	}
	i = kb_add_const(k, i, line * per_line);
	matmul_line_ahead(c->l, c->ahead, i, c->w, kb_add_const(k, at, (int64_t)line * MATMUL_PANEL));
}

/* What is multiplied of a line: its bytes, or of 4 bits the low or the high halves. */
enum part { BYTES, LOW, HIGH };

/* The registers have no place for all words of x of a chunk: one half of the bytes after the other. */
static bool is_by_halves(const struct matmul_rounded_tile *c)
{
	const struct reg_tile *p = c->p;
	int sums = matmul_sum_registers(c->l) * p->rows * p->vectors,
	    others = 3; /* a line, its halves, a mask */
	return has_elements(c) && sums + 2 * p->rows + others > kb_caps(p->k)->registers;
}

/* An address for each panel where instructions have no room for the distance of panels. */
static void find_panels(struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int panels = c->p->vectors * c->l->lanes / MATMUL_PANEL;
	bool is_codebook = !c->l->rounded.to.bf16 && ir_format(c->l->panel.format)->codebook;
	bool is_again = is_by_halves(c) || (is_codebook && c->p->rows > panels);
	struct kb_val w = c->unpacked_w.id ? c->unpacked_w : c->w;
	int64_t bytes = c->l->panel.bytes * (c->unpacked_w.id ? 2 : 1);
	for (int i = 0; i < panels; i++) {
		struct kb_val at = kb_ptr_add(k, w, kb_index(k, 0), i * bytes);
		c->panel[i] = has_elements(c) && i > 0 ? kb_ptr_opaque(k, at) : at;
		c->again[i] = is_again ? kb_ptr_opaque(k, at) : c->panel[i];
	}
}

struct kb_val matmul_load_words(const struct matmul_rounded_tile *c, const struct kb_val *panel,
                                struct kb_val at, int line, int v)
{
	int per_panel = MATMUL_PANEL / c->l->lanes;
	int64_t disp = (int64_t)line * MATMUL_PANEL + v % per_panel * c->l->lanes;
	return kb_load(c->l->k, words_of(c), panel[v / per_panel], at, disp, 0);
}

static struct kb_val codes_of(const struct matmul_rounded_tile *c, struct kb_val at, int line, enum part part,
                              int v)
{
	struct kb *k = c->l->k;
	struct kb_val w = matmul_load_words(c, part == HIGH ? c->again : c->panel, at, line, v);
	if (part != BYTES)
		return halves_of(c, w, part == HIGH ? 4 : 0);
	if (!turns_codes(c->l))
		return w;
	return kb_bin(k, KB_XOR, w, kb_splat(k, kb_i32(k, -0x7f7f7f80), c->l->lanes)); /* 0x80808080 */
}

/* Part of line `line` of a chunk, whose first word is word `first` of the step, times the same word of all rows: the
 * codes of a line are together in registers, or, where words of x are, one vector after the other. */
static void add_line(struct matmul_rounded_tile *c, struct kb_val first, int line, enum part part)
{
	const struct reg_tile *p = c->p;
	struct kb_val at = line_of(c, first), x = kb_add(p->k, c->first, first);
	if (c->turn.id) {
		at = kb_add(p->k, at, kb_mul_const(p->k, c->turn, MATMUL_PANEL));
		x = kb_add(p->k, x, c->turn);
	}
	struct kb_val w[MATMUL_ACC_MAX];
	int i = line + (part == HIGH ? CHUNK / 8 : 0), n = has_elements(c) ? 1 : p->vectors;
	for (int from = 0; from < p->vectors; from += n) {
		for (int v = 0; v < n; v++)
			w[v] = codes_of(c, at, line, part, from + v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val word = word_of(c, m, x, i);
			for (int v = 0; v < n; v++) {
				int i_sum = m * p->vectors + from + v;
				struct kb_var sum = is_in_halves(c) ? c->half[i_sum] : c->sum[i_sum];
				kb_set(p->k, sum, dot_codes(c, kb_get(p->k, sum), w[v], word));
			}
		}
	}
}

/* Line `line` of a chunk, widened. */
static void add_wide_line(const struct matmul_rounded_tile *c, struct kb_val first, int line)
{
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_val w[MATMUL_ACC_MAX], at = line_of(c, first), x = kb_add(k, c->first, first);
	int64_t words = c->l->rounded.row.starts / 4;
	for (int odd = 0; odd < 2; odd++) {
		struct kb_val from = kb_add_const(k, at, odd * c->l->panel.bytes / 4);
		for (int v = 0; v < p->vectors; v++)
			w[v] = matmul_load_words(c, c->panel, from, line, v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val word =
			        kb_load_splat(k, words_of(c), c->unpacked_x, x, (2 * m + odd) * words + line);
			for (int v = 0; v < p->vectors; v++) {
				struct kb_var sum = c->sum[m * p->vectors + v];
				kb_set(k, sum, kb_dot_s16s16(k, kb_get(k, sum), w[v], word));
			}
		}
	}
}

/* A line in a turn, so that a compiler does not load the others ahead. */
static void add_chunk_by_lines(struct matmul_rounded_tile *c, struct kb_val first)
{
	struct kb *k = c->l->k;
	if (asks_once(c))
		ask_ahead(c, first, 0);
	c->turn = kb_loop(k, "line", kb_index(k, 0), kb_index(k, CHUNK / 8), 1, KB_NONEMPTY);
	ask_ahead(c, first, 0);
	add_line(c, first, 0, LOW);
	add_line(c, first, 0, HIGH);
	kb_end_loop(k);
	c->turn = (struct kb_val){0};
}

static void add_chunk_of_halves(struct matmul_rounded_tile *c, struct kb_val first)
{
	bool is_apart = is_by_halves(c);
	for (int high = 0; high < 2; high++) {
		open_words(c, kb_add(c->l->k, c->first, first), high);
		for (int line = 0; is_apart && line < CHUNK / 8; line++) {
			if (!high)
				ask_ahead(c, first, line);
			add_line(c, first, line, high ? HIGH : LOW);
		}
	}
	for (int line = 0; !is_apart && line < CHUNK / 8; line++) {
		ask_ahead(c, first, line);
		add_line(c, first, line, LOW);
		add_line(c, first, line, HIGH);
	}
}

/* n elements, at most a chunk. */
static void add_chunk(struct matmul_rounded_tile *c, struct kb_val first, int64_t n)
{
	if (ir_format(c->l->panel.format)->bits == 4) {
		if (is_in_halves(c))
			add_chunk_by_lines(c, first);
		else
			add_chunk_of_halves(c, first);
		return;
	}
	for (int line = 0; line < (int)(n + 3) / 4; line++) {
		if (c->unpacked_w.id) {
			add_wide_line(c, first, line);
			continue;
		}
		if (line % MATMUL_WORDS == 0)
			open_words(c, kb_add(c->l->k, c->first, first), line / MATMUL_WORDS);
		ask_ahead(c, first, line);
		add_line(c, first, line, BYTES);
	}
}

static void begin_halves(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	for (int i = 0; is_in_halves(c) && i < c->p->rows * c->p->vectors; i++)
		kb_set(k, c->half[i], kb_splat(k, kb_i32(k, 0), c->l->lanes));
}

static void end_halves(const struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	struct kb_val ones = kb_splat(k, kb_i32(k, 0x00010001), c->l->lanes);
	for (int i = 0; is_in_halves(c) && i < c->p->rows * c->p->vectors; i++) {
		struct kb_val sum = kb_get(k, c->sum[i]), half = kb_get(k, c->half[i]);
		kb_set(k, c->sum[i], kb_dot_s16s16(k, sum, half, ones));
	}
}

/* What codes of vector v have beyond the bytes that are multiplied, in formats with shifts; else none. Where pairs of
 * halves are multiplied the high one is 0: that takes one instruction, a product of words several. */
static struct kb_val beyond_bytes(const struct linear *l, struct kb_val section, struct kb_val block, int v)
{
	struct kb *k = l->k;
	if (ir_format(l->panel.format)->shift == 0)
		return (struct kb_val){0};
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, matmul_codes_zero(l)), KB_I16), l->lanes);
	struct kb_val v16 = kb_sub(k, panel_shift(k, &l->panel, section, block, v, l->lanes), zero);
	struct kb_val beyond = kb_cvt(k, v16, KB_I32);
	if (!kb_caps(k)->has_dot_s16s16)
		return beyond;
	return kb_bin(k, KB_AND, beyond, kb_splat(k, kb_i32(k, 0xffff), l->lanes));
}

/* What the sums of integers begin with; beyond: of the vector, or none. */
static struct kb_val start_of(const struct matmul_rounded_tile *c, struct kb_val step, int m,
                              struct kb_val beyond)
{
	struct kb_val word = row_word(c, m, step, c->l->rounded.row.starts / 4);
	if (!beyond.id)
		return word;
	struct kb *k = c->l->k;
	struct kb_val none = kb_splat(k, kb_i32(k, 0), c->l->lanes);
	return kb_caps(k)->has_dot_s16s16 ? kb_dot_s16s16(k, none, beyond, word) : kb_mul(k, beyond, word);
}

static void begin_sums(struct matmul_rounded_tile *c, struct kb_val step, struct kb_val block)
{
	const struct reg_tile *p = c->p;
	for (int v = 0; v < p->vectors; v++) {
		struct kb_val beyond = beyond_bytes(c->l, c->section, block, v);
		for (int m = 0; m < p->rows; m++)
			kb_set(p->k, c->sum[m * p->vectors + v], start_of(c, step, m, beyond));
	}
}

/* Sums of the first lines of the only step; gives how many elements those are. */
static int64_t add_integer_squares(struct matmul_rounded_tile *c, int64_t n)
{
	struct kb *k = c->l->k;
	struct kb_val sum[MATMUL_ACC_MAX];
	int64_t lines = (n + 3) / 4 / 2 * 2;
	matmul_walk_squares(c, lines, sum);
	begin_sums(c, kb_index(k, 0), kb_index(k, 0));
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		kb_set(k, c->sum[i], kb_add(k, kb_get(k, c->sum[i]), sum[i]));
	return 4 * lines;
}

/* ---- scales ---- */

/* The block of the section that its step number `step` lies in. */
static struct kb_val block_of(const struct linear *l, struct kb_val step)
{
	int64_t block = ir_format(l->panel.format)->block;
	if (block == 0 || block >= l->depth)
		return kb_index(l->k, 0);
	int64_t per = block / l->rounded.row.step;
	return per == 1 ? step : kb_div_const(l->k, step, per);
}

/* Scale and offset of vector v in a block of a section; no offset where it is that of a shift. */
static struct panel_block scales_of(const struct linear *l, struct kb_val section, struct kb_val block, int v)
{
	struct panel_block s = {.scale = panel_scale(l->k, &l->panel, section, block, v, l->lanes)};
	if (ir_format(l->panel.format)->has_offset)
		s.offset = panel_offset(l->k, &l->panel, section, block, v, l->lanes);
	return s;
}

struct kb_val matmul_add_scaled(const struct matmul_rounded_tile *c, struct kb_val step, int m,
                                const struct panel_block *s, struct kb_val integers, struct kb_val sum)
{
	struct kb *k = c->l->k;
	const struct reg_tile *p = c->p;
	const struct activation_row_layout *row = &c->l->rounded.row;
	struct kb_type type = KB_TYPE(KB_F32, c->l->lanes);
	struct kb_val d = kb_load_splat(k, type, p->x[m], step, p->x_disp[m] + row->scales / 4);
	struct kb_val both = kb_mul(k, d, s->scale);
	sum = kb_fma(k, kb_cvt(k, integers, KB_F32), both, sum);
	if (!s->offset.id)
		return sum;
	struct kb_val total = kb_load_splat(k, type, p->x[m], step, p->x_disp[m] + row->totals / 4);
	return kb_fma(k, s->offset, total, sum);
}

/* Vector v of the sums of f32 grows by the sums of integers of a step, which is of that block of the section. */
static void add_integers(const struct matmul_rounded_tile *c, struct kb_val step, struct kb_val block, int v)
{
	struct kb *k = c->l->k;
	const struct panel_block s = scales_of(c->l, c->section, block, v);
	for (int m = 0; m < c->p->rows; m++) {
		int at = m * c->p->vectors + v;
		struct kb_val integers = kb_get(k, c->sum[at]);
		kb_set(k, c->p->sum[at],
		       matmul_add_scaled(c, step, m, &s, integers, kb_get(k, c->p->sum[at])));
	}
}

struct kb_val matmul_rounded_alone(const struct matmul_rounded_tile *c, int m, int v, struct kb_val integers)
{
	struct kb *k = c->l->k;
	struct kb_val step = kb_index(k, 0), zero = kb_splat(k, kb_f32(k, 0), c->l->lanes);
	const struct panel_block s = scales_of(c->l, c->w, step, v);
	struct kb_val start = start_of(c, step, m, beyond_bytes(c->l, c->w, step, v));
	return matmul_add_scaled(c, step, m, &s, kb_add(k, integers, start), zero);
}

/* ---- K ---- */

/* What a section has before its lines is asked for as these are, in equal parts by the steps of the shortest section. */
static void ask_for_head(const struct matmul_rounded_tile *c, struct kb_val in_section)
{
	struct kb *k = c->l->k;
	int64_t size = c->l->rounded.row.step, rest = c->l->depth % c->codes.section;
	int64_t steps = ((rest > 0 ? rest : c->codes.section) + size - 1) / size;
	int64_t words = (c->codes.lines / 4 + steps - 1) / steps;
	if (!c->ahead->behind)
		return;
	struct kb_val zero = kb_index(k, 0), at = kb_mul_const(k, in_section, words);
	for (int64_t i = 0; i < words; i += MATMUL_PANEL)
		matmul_line_ahead(c->l, c->ahead, zero, c->section, kb_add_const(k, at, i));
}

/* The section of a step; gives its block there. */
static struct kb_val open_step(struct matmul_rounded_tile *c, struct kb_val step)
{
	struct kb *k = c->l->k;
	int64_t size = c->l->rounded.row.step, per = c->codes.section / size;
	struct kb_val in_section = step, line = kb_index(k, c->codes.lines / 4);
	c->section = c->w;
	if (c->l->depth > c->codes.section) {
		struct kb_val section = kb_div_const(k, step, per);
		in_section = kb_sub(k, step, kb_mul_const(k, section, per));
		line = kb_add(k, line, kb_mul_const(k, section, c->codes.section_bytes / 4));
		struct kb_val bytes = kb_mul_const(k, section, c->codes.section_bytes);
		c->section = kb_ptr_add(k, c->w, bytes, 0);
	}
	int64_t per_element = PANEL_COLUMNS / c->l->panel.per_line;
	c->first = kb_mul_const(k, step, size / 4);
	c->line = kb_add(k, line, kb_mul_const(k, in_section, size * per_element));
	ask_for_head(c, in_section);
	return block_of(c->l, in_section);
}

/* Elements of a turn of the loop over a step. Where a dot product is several instructions, what they have in common is
 * more than registers hold of a chunk: a line alone. */
static int turn_of(const struct matmul_rounded_tile *c)
{
	bool is_full =
	        is_by_parts(c) || c->p->rows * c->p->vectors > (c->unpacked_w.id ? SUMS_WIDE : SUMS_FEW);
	if (ir_format(c->l->panel.format)->bits == 4 || !is_full)
		return CHUNK;
	return has_elements(c) ? 4 * MATMUL_WORDS : 4;
}

/* Chunks whose sums are begun. */
static void add_whole(struct matmul_rounded_tile *c, struct kb_val first, int64_t n)
{
	begin_halves(c);
	add_chunk(c, first, n);
	end_halves(c);
}

/* Step number `step`, of n elements. */
static void add_step(struct matmul_rounded_tile *c, struct kb_val step, int64_t n)
{
	struct kb *k = c->l->k;
	struct kb_val block = open_step(c, step), zero = kb_index(k, 0);
	int64_t done = 0, turn = turn_of(c), least = is_by_parts(c) || c->unpacked_w.id ? CHUNK : 4 * CHUNK;
	if (matmul_by_squares(c)) {
		done = add_integer_squares(c, n);
	} else if (is_in_halves(c) &&
	           n <= CHUNK) { /* the registers of sums are needed behind the chunk only */
		begin_halves(c);
		add_chunk(c, zero, n);
		begin_sums(c, step, block);
		end_halves(c);
		done = n;
	} else {
		begin_sums(c, step, block);
	}
	if (done == 0 && n >= least) {
		done = n / turn * turn;
		struct kb_val at = kb_loop(k, "k", zero, kb_index(k, done / 4), turn / 4, KB_NONEMPTY);
		add_whole(c, at, turn);
		kb_end_loop(k);
	}
	for (; done < n; done += CHUNK)
		add_whole(c, kb_index(k, done / 4), n - done < CHUNK ? n - done : CHUNK);
	for (int v = 0; v < c->p->vectors; v++)
		add_integers(c, step, block, v);
}

void matmul_integer_depth(struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	const struct activation_row_layout *row = &c->l->rounded.row;
	int64_t whole = c->l->depth / row->step, rest = c->l->depth % row->step;
	if (c->unpacked_w.id) /* codes of what is widened next: no step of K reads any */
		matmul_steps_ahead(c->l, c->ahead, kb_index(k, 0), c->l->depth);
	find_panels(c);
	c->codes = quant_panel_layout(c->l->panel.format, c->l->depth);
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		c->sum[i] = kb_var(k, "dot", words_of(c), (struct kb_val){0});
	for (int i = 0; is_in_halves(c) && i < c->p->rows * c->p->vectors; i++)
		c->half[i] = kb_var(k, "halves", words_of(c), kb_splat(k, kb_i32(k, 0), c->l->lanes));
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

static struct kb_val dot_pairs(const struct matmul_rounded_tile *c, struct kb_val sum, struct kb_val w,
                               struct kb_val x)
{
	struct kb *k = c->l->k;
	return kb_caps(k)->has_dot_bf16_odd ? kb_dot_bf16_odd(k, sum, w, x) : kb_dot_bf16(k, sum, w, x);
}

/* Line number at + i. */
static void add_pairs(struct matmul_rounded_tile *c, struct kb_val at, int i)
{
	struct kb *k = c->l->k;
	const struct reg_tile *p = c->p;
	struct kb_val words = kb_mul_const(k, at, MATMUL_PANEL), w[MATMUL_ACC_MAX];
	int n = has_elements(c) ? 1 : p->vectors;
	if (c->ahead->from.id)
		matmul_step_ahead(c->l, c->ahead, kb_mul_const(k, kb_add_const(k, at, i), 2));
	if (i % MATMUL_WORDS == 0)
		open_words(c, at, i / MATMUL_WORDS);
	for (int from = 0; from < p->vectors; from += n) {
		for (int v = 0; v < n; v++)
			w[v] = matmul_load_words(c, c->panel, words, i, from + v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val x = word_of(c, m, at, i);
			for (int v = 0; v < n; v++) {
				struct kb_var sum = p->sum[m * p->vectors + from + v];
				kb_set(k, sum, dot_pairs(c, kb_get(k, sum), w[v], x));
			}
		}
	}
}

static void add_bf16_squares(const struct matmul_rounded_tile *c, int64_t lines)
{
	struct kb_val sum[MATMUL_ACC_MAX];
	matmul_walk_squares(c, lines, sum);
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		kb_set(c->l->k, c->p->sum[i], sum[i]);
}

void matmul_bf16_depth(struct matmul_rounded_tile *c)
{
	struct kb *k = c->l->k;
	int64_t lines = panel_row_count(DT_BF16, c->l->depth);
	int turn = c->p->rows * c->p->vectors <= SUMS_FEW ? TURN : has_elements(c) ? MATMUL_WORDS : 1;
	int64_t whole = lines / turn * turn;
	find_panels(c);
	if (matmul_by_squares(c)) {
		whole = lines / 2 * 2;
		add_bf16_squares(c, whole);
	} else if (whole > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, whole), turn, KB_NONEMPTY);
		for (int i = 0; i < turn; i++)
			add_pairs(c, at, i);
		kb_end_loop(k);
	}
	for (int i = 0; i < lines - whole; i++)
		add_pairs(c, kb_index(k, whole), i);
}
