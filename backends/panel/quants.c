/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codes as f32. A code that is shifted to the highest bits of a mantissa is a number t of [1, 2),
 * 1 + (code + zero) / 2^bits, and scale code = (2^bits scale) t - (2^bits + zero) scale: both factors are exact where
 * scales are f16, and so is the product, so one fma makes the element. Other formats take the code itself, as
 * 2^23 + code + zero less 2^23 + zero. Codes of a codebook are looked up, a line at once, as unsigned
 * bytes, and go on as codes of 8 bits.
 */
#include "backends/panel/panel.h"

#define GROUP    32 /* elements of K whose codes of 4 bits lie together, in 4 lines */
#define ONE_BITS 0x3f800000
#define BIG_BITS 0x4b000000 /* 2^23 */

/* ---- constants ---- */

static struct kb_val to_lanes(struct kb *k, struct kb_val v, int lanes)
{
	return lanes > 1 ? kb_splat(k, v, lanes) : v;
}

static struct kb_val splat_i32(struct kb *k, int32_t v, int lanes)
{
	return to_lanes(k, kb_i32(k, v), lanes);
}

static struct kb_val splat_f32(struct kb *k, float v, int lanes)
{
	return to_lanes(k, kb_f32(k, v), lanes);
}

/* ---- scales and offsets ---- */

static enum kb_scalar scalar_of(enum ir_dtype t)
{
	return t == DT_F16 ? KB_F16 : t == DT_BF16 ? KB_BF16 : KB_F32;
}

/* Numbers of 16 columns that begin at byte `begin` of a panel: `lanes` from element at + disp on. */
static struct kb_val load_numbers(struct kb *k, struct kb_val panel, enum kb_scalar s, int64_t begin,
                                  struct kb_val at, int64_t disp, int lanes)
{
	int64_t bytes = s == KB_I8 ? 1 : s == KB_F32 ? 4 : 2;
	struct kb_val v = kb_load(k, KB_TYPE(s, lanes), panel, at, begin / bytes + disp, 0);
	if (s == KB_I8)
		v = kb_cvt(k, v, KB_I32);
	return kb_cvt(k, v, KB_F32);
}

/* Where numbers of blocks are in a section, in bytes, and those of super blocks. */
struct level {
	int64_t blocks, supers;
};

/* Numbers of block b of a section: `panel` bytes from `at` on, columns from column + disp on. */
static struct kb_val block_numbers(struct kb *k, const struct panel *p, struct level level, struct kb_val at,
                                   int64_t panel, struct kb_val b, struct kb_val column, int64_t disp,
                                   int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	struct kb_val width = kb_index(k, PANEL_COLUMNS), first = kb_add(k, kb_mul(k, b, width), column);
	enum kb_scalar s = scalar_of(d->scale);
	if (d->super == 1) {
		struct kb_val v = load_numbers(k, at, s, panel + level.blocks, first, disp, lanes);
		return d->shift > 0 ? kb_mul(k, v, splat_f32(k, 1.0f / FORMAT_SHIFT_SCALE, lanes)) : v;
	}
	struct kb_val v = load_numbers(k, at, KB_I8, panel + level.blocks, first, disp, lanes);
	struct kb_val super = kb_div_const(k, b, d->super);
	first = kb_add(k, kb_mul(k, super, width), column);
	return kb_mul(k, v, load_numbers(k, at, s, panel + level.supers, first, disp, lanes));
}

static struct level scales_of(const struct quant_panel_layout *t)
{
	return (struct level){t->scales, t->super_scales};
}

/* What the lowest bits of a scale say, i16. */
static struct kb_val block_shift(struct kb *k, const struct panel *p, int64_t scales, struct kb_val at,
                                 struct kb_val b, struct kb_val column, int64_t disp, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	struct kb_val first = kb_add(k, kb_mul_const(k, b, PANEL_COLUMNS), column);
	struct kb_val bits = kb_load(k, KB_TYPE(KB_I16, lanes), at, first, scales / 2 + disp, 0);
	bits = kb_bin(k, KB_AND, bits, kb_cvt(k, splat_i32(k, (1 << d->shift) - 1, lanes), KB_I16));
	return kb_sub(k, bits, kb_cvt(k, splat_i32(k, ir_format_shift_bias(d), lanes), KB_I16));
}

/* Offsets of columns from column + disp on; none: the format has none. Those of shifts are exact. */
static struct kb_val block_offset(struct kb *k, const struct panel *p, struct kb_val at, int64_t panel,
                                  struct kb_val b, struct kb_val column, int64_t disp, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct level offsets = {t.offsets, t.super_offsets};
	if (d->has_offset)
		return block_numbers(k, p, offsets, at, panel, b, column, disp, lanes);
	if (d->shift == 0)
		return (struct kb_val){0};
	struct kb_val scale = block_numbers(k, p, scales_of(&t), at, panel, b, column, disp, lanes);
	struct kb_val shift = block_shift(k, p, panel + t.scales, at, b, column, disp, lanes);
	return kb_mul(k, scale, kb_cvt(k, kb_cvt(k, shift, KB_I32), KB_F32));
}

/* ---- one element ---- */

/* Of a or, in bytes of the mask, b. */
static struct kb_val choose(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val mask)
{
	return kb_bin(k, KB_XOR, a, kb_bin(k, KB_AND, kb_bin(k, KB_XOR, a, b), mask));
}

/* Where no instruction looks up: each bit of the numbers halves the bytes that are left. */
static struct kb_val look_up_by_bits(struct kb *k, const uint8_t bytes[16], struct kb_val words, int lanes)
{
	struct kb_val left[16], ones = splat_i32(k, 0x01010101, lanes);
	for (int i = 0; i < 16; i++)
		left[i] = splat_i32(k, (int32_t)(0x01010101u * bytes[i]), lanes);
	for (int bit = 0; bit < 4; bit++) {
		struct kb_val is = kb_bin(k, KB_SHR, words, splat_i32(k, bit, lanes));
		is = kb_bin(k, KB_AND, is, ones);
		struct kb_val mask = kb_sub(k, kb_bin(k, KB_SHL, is, splat_i32(k, 8, lanes)), is);
		for (int i = 0; i < 8 >> bit; i++)
			left[i] = choose(k, left[2 * i], left[2 * i + 1], mask);
	}
	return left[0];
}

struct kb_val panel_look_up(struct kb *k, const struct panel *p, struct kb_val words, int zero, int lanes)
{
	const int8_t *codebook = ir_format(p->format)->codebook;
	uint8_t bytes[16];
	int wide = lanes < 4 ? 4 : lanes;
	if (!codebook)
		return words;
	for (int i = 0; i < 16; i++)
		bytes[i] = (uint8_t)(codebook[i] + zero);
	if (kb_caps(k)->short_bytes)
		return look_up_by_bits(k, bytes, words, lanes);
	if (lanes != wide)
		words = kb_splat(k, lanes > 1 ? kb_lane(k, words, 0) : words, wide);
	struct kb_val table = kb_const_u8x16(k, bytes);
	words = kb_bitcast(k, kb_lookup16(k, table, kb_bitcast(k, words, KB_U8)), KB_I32);
	return lanes == 1 ? kb_lane(k, words, 0) : words;
}

/* Where element i of a section lies: its word of column 0 from the first line on, and the lowest bit of its code. */
static struct kb_val place_of(struct kb *k, const struct panel *p, struct kb_val i, struct kb_val *bit)
{
	struct kb_val four = kb_index(k, 4), width = kb_index(k, PANEL_COLUMNS),
	              byte = kb_bin(k, KB_REM, i, four);
	*bit = kb_mul_const(k, byte, 8);
	if (ir_format(p->format)->bits == 8)
		return kb_mul(k, kb_bin(k, KB_DIV, i, four), width);
	struct kb_val in = kb_rem_const(k, i, GROUP), half = kb_bin(k, KB_DIV, in, width);
	struct kb_val line = kb_bin(k, KB_DIV, kb_bin(k, KB_REM, i, width), four);
	*bit = kb_add(k, *bit, kb_mul(k, half, four));
	struct kb_val first = kb_mul(k, kb_div_const(k, i, GROUP), four);
	return kb_mul(k, kb_add(k, first, line), width);
}

/* scale code (+ offset) */
static struct kb_val element(struct kb *k, struct kb_val code, struct kb_val scale, struct kb_val offset)
{
	return offset.id ? kb_fma(k, code, scale, offset) : kb_mul(k, code, scale);
}

/* The section that element *i of a panel lies in; *i becomes its element. */
static struct kb_val section_at(struct kb *k, const struct quant_panel_layout *t, struct kb_val at,
                                struct kb_val *i, int64_t depth)
{
	struct kb_val n = kb_index(k, t->section);
	if (depth <= t->section)
		return at;
	struct kb_val bytes = kb_mul_const(k, kb_bin(k, KB_DIV, *i, n), t->section_bytes);
	*i = kb_bin(k, KB_REM, *i, n);
	return kb_ptr_add(k, at, bytes, 0);
}

/* Of element i of the section at `at`. */
static struct panel_block block_of(struct kb *k, const struct panel *p, struct kb_val at,
                                   struct kb_val column, struct kb_val i, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct kb_val b = d->block ? kb_div_const(k, i, d->block) : kb_index(k, 0);
	struct kb_val scale = block_numbers(k, p, scales_of(&t), at, 0, b, column, 0, lanes);
	return (struct panel_block){scale, block_offset(k, p, at, 0, b, column, 0, lanes)};
}

void panel_codes(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column, struct kb_val i,
                 int n, int lanes, struct kb_val *out)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	at = section_at(k, &t, at, &i, p->depth);
	struct kb_val bit, word = place_of(k, p, i, &bit);
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), at, kb_add(k, word, column), p->head / 4, 0);
	words = kb_bin(k, KB_SHR, words, to_lanes(k, kb_cvt(k, bit, KB_I32), lanes));
	const struct panel_block b = block_of(k, p, at, column, i, lanes);
	for (int u = 0; u < n; u++) {
		struct kb_val code = u > 0 ? kb_bin(k, KB_SHR, words, splat_i32(k, 8 * u, lanes)) : words;
		code = kb_bin(k, KB_AND, code, splat_i32(k, d->bits == 8 ? 255 : 15, lanes));
		if (d->codebook) {
			code = panel_look_up(k, p, code, ir_format_u8_zero_point(p->format), lanes);
			code = kb_bin(k, KB_AND, code, splat_i32(k, 255, lanes));
		}
		code = kb_sub(k, code, splat_i32(k, ir_format_u8_zero_point(p->format), lanes));
		out[u] = element(k, kb_cvt(k, code, KB_F32), b.scale, b.offset);
	}
}

struct kb_val panel_code(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                         struct kb_val i, int lanes)
{
	struct kb_val one;
	panel_codes(k, p, at, column, i, 1, lanes, &one);
	return one;
}

/* Bytes of the words plus what the shift of the block of element i of the section adds to each: the sums fit. */
static struct kb_val add_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, struct kb_val words, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct kb_val b = kb_div_const(k, i, ir_format(p->format)->block);
	struct kb_val shift = kb_cvt(k, block_shift(k, p, t.scales, at, b, column, 0, lanes), KB_I32);
	shift = kb_bin(k, KB_AND, shift, splat_i32(k, 255, lanes));
	shift = kb_mul(k, shift, splat_i32(k, 0x01010101, lanes));
	struct kb_val low = splat_i32(k, 0x7f7f7f7f, lanes), left = kb_bin(k, KB_AND, words, low);
	struct kb_val sum = kb_add(k, left, kb_bin(k, KB_AND, shift, low));
	struct kb_val signs = kb_bin(k, KB_XOR, words, shift);
	return kb_bin(k, KB_XOR, sum, kb_bin(k, KB_AND, signs, splat_i32(k, -0x7f7f7f80, lanes)));
}

struct panel_block panel_block(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	at = section_at(k, &t, at, &i, p->depth);
	struct panel_block b = block_of(k, p, at, column, i, lanes);
	if (ir_format(p->format)->shift > 0)
		b.offset = (struct kb_val){0};
	return b;
}

struct kb_val panel_words(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                          struct kb_val i, int line, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int zero = ir_format_u8_zero_point(p->format);
	at = section_at(k, &t, at, &i, p->depth);
	struct kb_val bit, word = place_of(k, p, i, &bit), signs = splat_i32(k, -0x7f7f7f80, lanes);
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), at, kb_add(k, word, column),
	                              p->head / 4 + (int64_t)line * PANEL_COLUMNS, 0);
	if (d->bits == 8)
		return kb_bin(k, KB_XOR, words, signs);
	words = kb_bin(k, KB_SHR, words, to_lanes(k, kb_cvt(k, bit, KB_I32), lanes));
	words = kb_bin(k, KB_AND, words, splat_i32(k, 0x0f0f0f0f, lanes));
	if (d->codebook) {
		words = panel_look_up(k, p, words, 0, lanes);
		return d->shift > 0 ? add_shift(k, p, at, column, i, words, lanes) : words;
	}
	words = kb_bin(k, KB_OR, words, signs);
	words = kb_sub(k, words, splat_i32(k, 0x01010101 * zero, lanes));
	return kb_bin(k, KB_XOR, words, signs);
}

/* ---- the walk ---- */

/* Scales are f16, so that their multiples by small integers are exact in f32. */
static bool is_folded(const struct ir_format_desc *d)
{
	return d->scale == DT_F16 && d->super == 1 && !d->has_offset && !d->codebook;
}

static int64_t panel_of_vector(const struct panel *p, int lanes, int v, int64_t *column)
{
	int per_panel = PANEL_COLUMNS / lanes;
	*column = (int64_t)(v % per_panel) * lanes;
	return v / per_panel * p->bytes;
}

struct kb_val panel_scale(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                          int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return block_numbers(k, p, scales_of(&t), at, panel, b, kb_index(k, 0), column, lanes);
}

struct kb_val panel_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                          int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return block_shift(k, p, panel + t.scales, at, b, kb_index(k, 0), column, lanes);
}

struct kb_val panel_offset(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                           int lanes)
{
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return block_offset(k, p, at, panel, b, kb_index(k, 0), column, lanes);
}

/* Block b of the section. */
static void open_block(struct panel_walk *w, struct kb_val b)
{
	struct kb *k = w->k;
	const struct panel *p = w->panel;
	const struct ir_format_desc *d = ir_format(p->format);
	int steps = 1 << d->bits;
	for (int v = 0; v < w->vectors; v++) {
		struct kb_val scale = panel_scale(k, p, w->section, b, v, w->lanes);
		w->scale[v] = scale;
		w->offset[v] = panel_offset(k, p, w->section, b, v, w->lanes);
		if (!is_folded(d))
			continue;
		w->scale[v] = kb_mul(k, scale, splat_f32(k, (float)steps, w->lanes));
		w->offset[v] = kb_mul(k, scale, splat_f32(k, -(float)(steps + d->zero), w->lanes));
	}
}

static struct kb_val load_words(const struct panel_walk *w, int v)
{
	int64_t column, panel = panel_of_vector(w->panel, w->lanes, v, &column);
	return kb_load(w->k, KB_TYPE(KB_I32, w->lanes), w->section, w->word, panel / 4 + column, 0);
}

/* Bits [bit, bit + bits) to the bits from `to` on, below the exponent of `base`: f32. */
static struct kb_val in_mantissa(struct kb *k, struct kb_val words, int bit, int bits, int to, int32_t base)
{
	int lanes = kb_type_of(k, words).lanes, by = to - bit;
	if (by > 0)
		words = kb_bin(k, KB_SHL, words, splat_i32(k, by, lanes));
	if (by < 0)
		words = kb_bin(k, KB_SHR, words, splat_i32(k, -by, lanes));
	words = kb_bin(k, KB_AND, words, splat_i32(k, ((1 << bits) - 1) << to, lanes));
	return kb_bitcast(k, kb_bin(k, KB_OR, words, splat_i32(k, base, lanes)), KB_F32);
}

struct kb_val panel_walk_vector(const struct panel_walk *w, int i, int v)
{
	struct kb *k = w->k;
	const struct ir_format_desc *d = ir_format(w->panel->format);
	if (w->alone.id) {
		int64_t column, panel = panel_of_vector(w->panel, w->lanes, v, &column);
		struct kb_val at = kb_ptr_add(k, w->at, kb_index(k, 0), panel);
		return panel_code(k, w->panel, at, kb_index(k, column), w->alone, w->lanes);
	}
	struct kb_val words = d->codebook ? w->codes[v] : load_words(w, v);
	int bits = d->codebook ? 8 : d->bits, zero = ir_format_u8_zero_point(w->panel->format);
	int bit = 8 * i + (d->codebook ? 0 : 4 * w->half);
	if (is_folded(d))
		return kb_fma(k, in_mantissa(k, words, bit, bits, 23 - bits, ONE_BITS), w->scale[v],
		              w->offset[v]);
	struct kb_val code = in_mantissa(k, words, bit, bits, 0, BIG_BITS);
	code = kb_sub(k, code, splat_f32(k, (float)(0x800000 + zero), w->lanes));
	return element(k, code, w->scale[v], w->offset[v]);
}

static void emit_line(struct panel_walk *w, struct kb_val from)
{
	struct kb *k = w->k;
	const struct ir_format_desc *d = ir_format(w->panel->format);
	for (int v = 0; d->codebook && v < w->vectors; v++) {
		struct kb_val words = load_words(w, v);
		if (w->half)
			words = kb_bin(k, KB_SHR, words, splat_i32(k, 4, w->lanes));
		w->codes[v] = panel_look_up(k, w->panel, words, ir_format_u8_zero_point(w->panel->format),
		                            w->lanes);
	}
	w->line(w->user, w, from, 4);
}

/* The elements from g of the section on, `from` of K, that lie together: a line, or four lines twice. */
static void emit_group(struct panel_walk *w, struct kb_val g, struct kb_val from)
{
	struct kb *k = w->k;
	int64_t words = w->panel->head / 4;
	if (ir_format(w->panel->format)->bits == 8) {
		w->is_first = true;
		w->position = from;
		w->word = kb_add_const(k, kb_mul_const(k, g, PANEL_COLUMNS / 4), words);
		emit_line(w, from);
		return;
	}
	for (w->half = 0; w->half < 2; w->half++) {
		struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, GROUP / 2), 4, KB_NONEMPTY);
		struct kb_val line = kb_mul_const(k, i, 2);
		w->is_first = w->half == 0;
		w->position = kb_add(k, from, line);
		w->word = kb_add_const(k, kb_mul_const(k, kb_add(k, g, line), 2), words);
		emit_line(w, kb_add_const(k, kb_add(k, from, i), (int64_t)w->half * (GROUP / 2)));
		kb_end_loop(k);
	}
}

static int64_t group_of(const struct panel_walk *w)
{
	return ir_format(w->panel->format)->bits == 8 ? 4 : GROUP;
}

/* n elements of K from `first` on, in whole groups, which are element `at` of the section and the next ones. */
static void emit_groups(struct panel_walk *w, struct kb_val at, struct kb_val first, struct kb_val n,
                        unsigned flags)
{
	struct kb *k = w->k;
	struct kb_val g = kb_loop(k, "k", kb_index(k, 0), n, group_of(w), flags);
	struct kb_val from = kb_add(k, first, g);
	emit_group(w, kb_add(k, at, g), from);
	kb_end_loop(k);
}

/* Opens the section of element *i of K, which becomes its element. */
static void open_section(struct panel_walk *w, struct kb_val *i)
{
	const struct quant_panel_layout t = quant_panel_layout(w->panel->format, w->panel->depth);
	w->section = section_at(w->k, &t, w->at, i, w->panel->depth);
}

/* What follows the whole blocks, elements [from, w->hi): what is no whole group element by element. */
static void emit_rest(struct panel_walk *w, struct kb_val from)
{
	struct kb *k = w->k;
	struct kb_val size = kb_index(k, group_of(w)), at = from;
	struct kb_val end = kb_mul(k, kb_bin(k, KB_DIV, w->hi, size), size);
	int64_t block = ir_format(w->panel->format)->block;
	open_section(w, &at);
	open_block(w, block ? kb_div_const(k, at, block) : kb_index(k, 0));
	emit_groups(w, at, from, kb_sub(k, end, from), 0);
	if (w->panel->depth % group_of(w) == 0)
		return;
	w->is_first = false;
	w->alone = kb_loop(k, "k", end, w->hi, 1, 0);
	w->line(w->user, w, w->alone, 1);
	kb_end_loop(k);
	w->alone = (struct kb_val){0};
}

/* n blocks of a constant size. */
void panel_walk(struct panel_walk *w)
{
	struct kb *k = w->k;
	const struct panel *p = w->panel;
	int64_t size = ir_format(p->format)->block;
	if (size == 0) {
		emit_rest(w, w->lo);
		return;
	}
	struct kb_val of = kb_index(k, size);
	struct kb_val end = w->is_part ? kb_mul(k, kb_bin(k, KB_DIV, w->hi, of), of)
	                               : kb_index(k, p->depth / size * size);
	struct kb_val from = kb_loop(k, "block", w->lo, end, size, 0), at = from;
	open_section(w, &at);
	open_block(w, kb_bin(k, KB_DIV, at, of));
	if (size == group_of(w))
		emit_group(w, at, from);
	else
		emit_groups(w, at, from, of, KB_NONEMPTY);
	kb_end_loop(k);
	if (p->depth % size == 0)
		return;
	if (w->is_part)
		kb_if(k, kb_cmp(k, KB_LT, end, w->hi));
	emit_rest(w, end);
	if (w->is_part)
		kb_end_if(k);
}
