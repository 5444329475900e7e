/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights as f32 in kernels: loads from panels of floats, and dequantization of panels of quants.
 *
 * Quants are dequantized without int-to-float conversion. Formats without minimum whose scales are f16 (one-FMA
 * formats): a b-bit quant q with zero point z, shifted to the highest bits of the mantissa of 1.0, is t = 1 + (q + z) /
 * 2^b, and scale q = (2^b scale) t - (2^b + z) scale. Both factors and the product are exact, so one FMA
 * dequantizes an element. Other formats OR the quant into 2^23 and subtract 2^23 + z. Codebook indices are
 * looked up a word at a time, to unsigned bytes, and then treated as quants of 8 bits; quants in pieces are combined a
 * word at a time.
 *
 * Terms (ir/target/tile.h has the layout): a panel is PANEL_COLUMNS columns of a matrix; a k-row is its line of one
 * u32 per column; a word is four quants of one column as bytes; a group is the least number of k-rows that hold whole
 * words. If bits do not divide 8, words consist of pieces in several k-rows. A block of K elements shares a scale (and
 * a minimum or shift). A super-block is a range of K whose scales, the header, precede its quants; blocks of it may
 * share a second scale. Formats with shifts have an integer for each block, in the low bits of its scale, that is
 * added to its quants. zero, the zero point: what is stored for 0. lanes: columns per vector; vector v: columns v *
 * lanes .. of panels side by side. `disp` is a constant offset that emitters fold into the address.
 */
#include "backends/kernels/panel.h"

#include "backends/kb/math.h"

/* How elements of the format are loaded; only quants have bits. */
static enum panel_kind kind_of(const struct ir_format_desc *d)
{
	if (d->bits != 0)
		return PANEL_QUANTS;
	return d->dtype == DT_BF16 ? PANEL_BF16_PAIRS : d->dtype == DT_F16 ? PANEL_F16 : PANEL_F32;
}

/* The layout of a panel of the format with `depth` K elements. k_align: where a K block may begin, full groups and
 * blocks. live_registers: vectors of scales that a loop keeps (scale, and what is added: a minimum, or the second
 * factor of one-FMA formats). */
struct panel panel_of(enum ir_format f, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	struct panel p = {.format = f, .kind = kind_of(d), .depth = depth, .group.elements = 1};
	(void)panel_bytes(f, depth, &p.bytes);
	p.k_per_line = d->bits ? (32 + d->bits - 1) / d->bits : panel_row_k(d->dtype);
	p.k_align = p.k_per_line;
	p.bytes_per_k = PANEL_ROW_BYTES / p.k_per_line;
	if (d->bits) {
		bool has_sum = d->has_offset || d->shift > 0 ||
		               (d->scale == DT_F16 && d->super == 1 && !d->codebook);
		const struct quant_panel_layout t = quant_panel_layout(f, depth);
		p.group = quant_group(d->bits);
		p.bytes_per_k = PANEL_ROW_BYTES * p.group.k_rows / p.group.elements;
		p.k_align = d->block > p.group.elements ? d->block : p.group.elements;
		p.header = t.quants;
		p.live_registers = 1 + has_sum;
	}
	return p;
}

/* The odd (high) or even (low) bf16 of each pair as f32: its bits are the high half of an f32. */
struct kb_val panel_bf16_half(struct kb *k, struct kb_val pairs, int odd)
{
	struct kb_val by = kb_splat(k, kb_i32(k, odd ? -65536 : 16), kb_type_of(k, pairs).lanes);
	return kb_bitcast(k, kb_bin(k, odd ? KB_AND : KB_SHL, pairs, by), KB_F32);
}

/* A value that is not packed: at + i row strides. Pairs: `at` is even, and a k-row is 16 words for two K elements. */
struct kb_val panel_k_row_offset(const struct panel_reader *r, struct kb_val at, int i)
{
	struct kb *k = r->k;
	if (r->row_stride.id)
		return kb_mul(k, kb_add_const(k, at, i), r->row_stride);
	if (r->panel->kind != PANEL_BF16_PAIRS)
		return kb_mul_const(k, kb_add_const(k, at, i), PANEL_COLUMNS);
	struct kb_val even = kb_mul_const(k, at, PANEL_COLUMNS / 2);
	return kb_add_const(k, even, (int64_t)i / 2 * PANEL_COLUMNS);
}

/* Vector n of the k-row at offset `k_row`, over panels side by side; offsets are in elements of `bytes` bytes. */
static struct kb_val load(const struct panel_reader *r, enum kb_scalar s, int bytes, struct kb_val from,
                          struct kb_val k_row, int n)
{
	int per_panel = PANEL_COLUMNS / r->lanes;
	int64_t in_panel = n % per_panel * r->lanes, panel = n / per_panel * r->panel->bytes;
	return kb_load(r->k, KB_TYPE(s, r->lanes), from, k_row, panel / bytes + in_panel, 0);
}

struct kb_val panel_load_pairs(const struct panel_reader *r, struct kb_val from, struct kb_val k_row, int n)
{
	return load(r, KB_I32, 4, from, k_row, n);
}

struct kb_val panel_load_f32(const struct panel_reader *r, struct kb_val k_row, int i, int n)
{
	if (r->row_stride.id) {
		struct kb_val v = load(r, r->stored, (int)(r->panel->bytes / PANEL_COLUMNS), r->at, k_row, n);
		return kb_cvt(r->k, v, KB_F32);
	}
	switch (r->panel->kind) {
	case PANEL_BF16_PAIRS: {
		struct kb_val from = i % 2 && r->reload.id ? r->reload : r->at;
		return panel_bf16_half(r->k, panel_load_pairs(r, from, k_row, n), i % 2);
	}
	case PANEL_F16: return kb_cvt(r->k, load(r, KB_F16, 2, r->at, k_row, n), KB_F32);
	case PANEL_F32: return load(r, KB_F32, 4, r->at, k_row, n);
	case PANEL_QUANTS: break;
	}
	return (struct kb_val){0};
}

/* i is known in the call only, so the half is selected by a shift, and the low half is masked off. */
struct kb_val panel_load_bf16(struct kb *k, struct kb_val ptr, struct kb_val at, struct kb_val i, int lanes)
{
	struct kb_val pair = kb_load(k, KB_TYPE(KB_I32, lanes), ptr, at, 0, 0);
	struct kb_val odd = kb_bin(k, KB_REM, kb_cvt(k, i, KB_I32), kb_i32(k, 2));
	/* the element becomes the high half of an f32: shift by 16 if it is the low half */
	struct kb_val by = kb_mul(k, kb_sub(k, kb_i32(k, 1), odd), kb_i32(k, 16));
	struct kb_val high = kb_i32(k, -65536);
	if (lanes > 1) {
		by = kb_splat(k, by, lanes);
		high = kb_splat(k, high, lanes);
	}
	return kb_bitcast(k, kb_bin(k, KB_AND, kb_bin(k, KB_SHL, pair, by), high), KB_F32);
}

#define ONE_BITS 0x3f800000
#define BIG_BITS 0x4b000000 /* 2^23 */

/* ---- constants ---- */

static struct kb_val splat_lanes(struct kb *k, struct kb_val v, int lanes)
{
	return lanes > 1 ? kb_splat(k, v, lanes) : v;
}

static struct kb_val splat_i32(struct kb *k, int32_t v, int lanes)
{
	return splat_lanes(k, kb_i32(k, v), lanes);
}

static struct kb_val splat_f32(struct kb *k, float v, int lanes)
{
	return splat_lanes(k, kb_f32(k, v), lanes);
}

/* ---- scales and offsets ---- */

static enum kb_scalar scalar_of(enum ir_dtype t)
{
	return t == DT_F16 ? KB_F16 : t == DT_BF16 ? KB_BF16 : KB_F32;
}

/* `lanes` f32 values (scales or minima) from column at + disp on, of a list that begins at byte `begin` of
 * the super-block. */
static struct kb_val load_scales(struct kb *k, struct kb_val panel, enum kb_scalar s, int64_t begin,
                                 struct kb_val at, int64_t disp, int lanes)
{
	int64_t bytes = s == KB_I8 ? 1 : s == KB_F32 ? 4 : 2;
	struct kb_val v = kb_load(k, KB_TYPE(s, lanes), panel, at, begin / bytes + disp, 0);
	if (s == KB_I8)
		v = kb_cvt(k, v, KB_I32);
	return kb_cvt(k, v, KB_F32);
}

/* Where scales, or minima (offset), are in a super-block: byte offsets of the values of its blocks, and of the scales
 * that these are multiplied by. */
struct level {
	bool offset;
	int64_t blocks, supers;
};

/* Integer scales or minima (offset) of a block, in columns first + disp on of the list at byte `begin` of the
 * super-block, as f32. Of 4 bits scales are in the lower half of a byte, minima in the upper. */
static struct kb_val load_integers(struct kb *k, const struct ir_format_desc *d, bool offset,
                                   struct kb_val at, int64_t begin, struct kb_val first, int64_t disp,
                                   int lanes)
{
	if (d->sub == 8)
		return load_scales(k, at, KB_I8, begin, first, disp, lanes);
	struct kb_val v = kb_cvt(k, kb_load(k, KB_TYPE(KB_U8, lanes), at, first, begin + disp, 0), KB_I32);
	v = kb_bin(k, offset ? KB_SHR : KB_AND, v, splat_i32(k, offset ? 4 : 15, lanes));
	return kb_cvt(k, v, KB_F32);
}

/* The scales (by level, of formats with super-blocks) that integers of block b are multiplied by. */
static struct kb_val load_factors(struct kb *k, const struct panel *p, struct level level, struct kb_val at,
                                  int64_t panel, struct kb_val b, struct kb_val column, int64_t disp,
                                  int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	struct kb_val super = kb_mul_const(k, kb_div_const(k, b, d->super), PANEL_COLUMNS);
	struct kb_val first = kb_add(k, super, column);
	return load_scales(k, at, scalar_of(d->scale), panel + level.supers, first, disp, lanes);
}

/* Scales or minima (by level) of block b of the super-block at + panel, from column + disp on, as f32. With
 * super-blocks an integer of the block times the float of the super-block, `factors` or, none, loaded. A format with
 * shifts stores scales times FORMAT_SHIFT_SCALE. */
static struct kb_val load_block_values(struct kb *k, const struct panel *p, struct level level,
                                       struct kb_val at, int64_t panel, struct kb_val b, struct kb_val column,
                                       int64_t disp, struct kb_val factors, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	struct kb_val width = kb_index(k, PANEL_COLUMNS), first = kb_add(k, kb_mul(k, b, width), column);
	enum kb_scalar s = scalar_of(d->scale);
	if (d->super == 1) {
		struct kb_val v = load_scales(k, at, s, panel + level.blocks, first, disp, lanes);
		return d->shift > 0 ? kb_mul(k, v, splat_f32(k, 1.0f / FORMAT_SHIFT_SCALE, lanes)) : v;
	}
	struct kb_val v = load_integers(k, d, level.offset, at, panel + level.blocks, first, disp, lanes);
	if (!factors.id)
		factors = load_factors(k, p, level, at, panel, b, column, disp, lanes);
	return kb_mul(k, v, factors);
}

/* Where scales are, and minima: those of blocks and of super-blocks. */
static struct level scales_of(const struct quant_panel_layout *t)
{
	return (struct level){false, t->scales, t->super_scales};
}

static struct level offsets_of(const struct quant_panel_layout *t)
{
	return (struct level){true, t->offsets, t->super_offsets};
}

/* Shift of a block, i16, with sign: stored with a bias in the lowest bits of its f16 scale. */
static struct kb_val load_block_shift(struct kb *k, const struct panel *p, int64_t scales, struct kb_val at,
                                      struct kb_val b, struct kb_val column, int64_t disp, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	struct kb_val first = kb_add(k, kb_mul_const(k, b, PANEL_COLUMNS), column);
	struct kb_val bits = kb_load(k, KB_TYPE(KB_I16, lanes), at, first, scales / 2 + disp, 0);
	bits = kb_bin(k, KB_AND, bits, kb_cvt(k, splat_i32(k, (1 << d->shift) - 1, lanes), KB_I16));
	return kb_sub(k, bits, kb_cvt(k, splat_i32(k, ir_format_shift_bias(d), lanes), KB_I16));
}

/* Minima of columns from column + disp on, f32: of formats with shifts scale * shift, which is exact. none: the format
 * has neither. */
static struct kb_val load_block_offset(struct kb *k, const struct panel *p, struct kb_val at, int64_t panel,
                                       struct kb_val b, struct kb_val column, int64_t disp,
                                       struct kb_val factors, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	if (d->has_offset)
		return load_block_values(k, p, offsets_of(&t), at, panel, b, column, disp, factors, lanes);
	if (d->shift == 0)
		return (struct kb_val){0};
	struct kb_val scale =
	        load_block_values(k, p, scales_of(&t), at, panel, b, column, disp, factors, lanes);
	struct kb_val shift = load_block_shift(k, p, panel + t.scales, at, b, column, disp, lanes);
	return kb_mul(k, scale, kb_cvt(k, kb_cvt(k, shift, KB_I32), KB_F32));
}

/* ---- elements ---- */

/* Looks up codebook indices, the low four bits of each byte of words: bytes entry + zero. Formats without codebook:
 * words unchanged. */
static struct kb_val codebook_lookup(struct kb *k, const struct panel *p, struct kb_val words, int zero)
{
	const int8_t *codebook = ir_format(p->format)->codebook;
	uint8_t bytes[16];
	if (!codebook)
		return words;
	for (int i = 0; i < 16; i++)
		bytes[i] = (uint8_t)(codebook[i] + zero);
	return math_lookup16(k, bytes, words);
}

/* The bits of a piece in the words of its k-row, shifted to where they belong in each byte. Shifts of words move bits
 * of the next byte in, which the mask removes; shifts of bytes (NEON) do not. The mask is left out if no other bits
 * remain (is_clean) or the codebook lookup ignores them (is_unmasked). */
static struct kb_val piece_bits(struct kb *k, const struct quant_piece *q, const struct panel_word *w,
                                struct kb_val words, int lanes)
{
	int by = q->bit - q->low_bit;
	bool is_clean = q->bits == 8;
	if (by > 0 && w->shifts_bytes) {
		struct kb_val bytes = kb_splat(k, kb_cvt(k, kb_i32(k, by), KB_U8), 4 * lanes);
		bytes = kb_bin(k, KB_SHR, kb_bitcast(k, words, KB_U8), bytes);
		words = kb_bitcast(k, bytes, KB_I32);
		is_clean = q->bit + q->bits == 8 && q->low_bit == 0;
	} else if (by > 0) {
		words = kb_bin(k, KB_SHR, words, splat_i32(k, by, lanes));
	}
	if (is_clean || w->is_unmasked)
		return words;
	uint32_t mask = ((1u << q->bits) - 1) * 0x01010101u << q->low_bit;
	return kb_bin(k, KB_AND, words, splat_i32(k, (int32_t)mask, lanes));
}

/* Loads, shifts and masks each piece of the word, ORs them, and looks up codebook indices. Pieces above bit 0 are
 * loaded through the opaque copy, if there is one, so that LLVM does not keep the k-row in a register. */
struct kb_val panel_load_word(struct kb *k, const struct panel *p, const struct panel_word *w, int lanes)
{
	const struct quant_word *q = &p->group.word[w->i];
	struct kb_val quants = {0};
	for (int i = 0; i < q->n; i++) {
		struct kb_val from = q->piece[i].bit > 0 && w->again.id ? w->again : w->from;
		struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), from, w->group,
		                              w->disp + (int64_t)q->piece[i].k_row * PANEL_COLUMNS, 0);
		words = piece_bits(k, &q->piece[i], w, words, lanes);
		quants = i > 0 ? kb_bin(k, KB_OR, quants, words) : words;
	}
	return codebook_lookup(k, p, quants, w->zero);
}

/* panel_load_word of word x, which need not be constant. Words in one piece are addressed by x (k-row x % k_rows, from
 * bit b (x / k_rows) on); those in several pieces, at the end of a group, are all loaded, and x selects. */
static struct kb_val load_word_at(struct kb *k, const struct panel *p, struct panel_word w, struct kb_val x,
                                  int lanes)
{
	const struct quant_group *g = &p->group;
	int bits = ir_format(p->format)->bits;
	struct kb_val unsplit = kb_min(k, x, kb_index(k, g->n_unsplit - 1));
	struct kb_val at = kb_mul_const(k, kb_rem_const(k, unsplit, g->k_rows), PANEL_COLUMNS);
	struct kb_val quants = kb_load(k, KB_TYPE(KB_I32, lanes), w.from, kb_add(k, w.group, at), w.disp, 0);
	if (bits < 8) {
		struct kb_val bit = kb_mul_const(k, kb_div_const(k, unsplit, g->k_rows), bits);
		quants = kb_bin(k, KB_SHR, quants, splat_lanes(k, kb_cvt(k, bit, KB_I32), lanes));
		quants = kb_bin(k, KB_AND, quants, splat_i32(k, ((1 << bits) - 1) * 0x01010101, lanes));
	}
	quants = codebook_lookup(k, p, quants, w.zero);
	for (w.i = g->n_unsplit; w.i < g->words; w.i++) {
		struct kb_val is = kb_cmp(k, KB_EQ, x, kb_index(k, w.i));
		quants = kb_select(k, is, panel_load_word(k, p, &w, lanes), quants);
	}
	return quants;
}

/* 4-byte words of k-rows before element i of a super-block, a multiple of the group: by one multiplication where a K
 * element has a whole number of words. */
static struct kb_val words_before(struct kb *k, const struct quant_group *g, struct kb_val i)
{
	int words = g->k_rows * PANEL_COLUMNS; /* of a group */
	return words % g->elements == 0 ? kb_mul_const(k, i, words / g->elements)
	                                : kb_mul_const(k, kb_div_const(k, i, g->elements), words);
}

/* Bytes of K elements i + 4 word .. of the super-block at `at`, as panel_load_u8 specifies it. word: a constant, or
 * ANY_WORD if i is any element. zero: added by a codebook lookup. */
static struct kb_val load_bytes(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                                struct kb_val i, int word, int zero, int lanes)
{
	const struct quant_group *g = &p->group;
	struct panel_word w = {.from = at, .disp = p->header / 4, .zero = zero};
	if (word >= 0) {
		w.group = kb_add(k, words_before(k, g, i), column);
		w.disp += (int64_t)word / g->words * g->k_rows * PANEL_COLUMNS;
		w.i = word % g->words;
		return panel_load_word(k, p, &w, lanes);
	}
	w.group = kb_mul_const(k, kb_div_const(k, i, g->elements), (int64_t)g->k_rows * PANEL_COLUMNS);
	w.group = kb_add(k, w.group, column);
	return load_word_at(k, p, w, kb_div_const(k, kb_rem_const(k, i, g->elements), 4), lanes);
}

/* scale * quant (+ minimum, if there is one). */
static struct kb_val scale_quant(struct kb *k, struct kb_val quant, struct kb_val scale, struct kb_val offset)
{
	return offset.id ? kb_fma(k, quant, scale, offset) : kb_mul(k, quant, scale);
}

/* Address of the super-block of K element *i; *i becomes the element in it. A panel of one super-block needs no
 * division. */
static struct kb_val super_block_at(struct kb *k, const struct quant_panel_layout *t, struct kb_val at,
                                    struct kb_val *i, int64_t depth)
{
	struct kb_val n = kb_index(k, t->super_block);
	if (depth <= t->super_block)
		return at;
	struct kb_val bytes = kb_mul_const(k, kb_bin(k, KB_DIV, *i, n), t->super_block_bytes);
	*i = kb_bin(k, KB_REM, *i, n);
	return kb_ptr_add(k, at, bytes, 0);
}

/* Scales and minima of the block of element i of the super-block. */
static struct panel_block load_block(struct kb *k, const struct panel *p, struct kb_val at,
                                     struct kb_val column, struct kb_val i, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct kb_val b = d->block ? kb_div_const(k, i, d->block) : kb_index(k, 0);
	const struct kb_val loaded = {0};
	struct kb_val scale = load_block_values(k, p, scales_of(&t), at, 0, b, column, 0, loaded, lanes);
	return (struct panel_block){scale, load_block_offset(k, p, at, 0, b, column, 0, loaded, lanes)};
}

/* Elements i .. i + n - 1 are in one word. n = 1: i is any element, and its byte is shifted down; otherwise i begins a
 * word. For single elements: loops along K use panel_loop, which loads scales once for each block. */
void panel_dequantize_n(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                        struct kb_val i, int n, int lanes, struct kb_val *out)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int zero = ir_format_u8_zero_point(p->format);
	at = super_block_at(k, &t, at, &i, p->depth);
	struct kb_val words = load_bytes(k, p, at, column, i, ANY_WORD, zero, lanes);
	if (n == 1) {
		struct kb_val bit = kb_cvt(k, kb_mul_const(k, kb_rem_const(k, i, 4), 8), KB_I32);
		words = kb_bin(k, KB_SHR, words, splat_lanes(k, bit, lanes));
	}
	const struct panel_block b = load_block(k, p, at, column, i, lanes);
	for (int u = 0; u < n; u++) {
		struct kb_val quant = u > 0 ? kb_bin(k, KB_SHR, words, splat_i32(k, 8 * u, lanes)) : words;
		quant = kb_bin(k, KB_AND, quant, splat_i32(k, 255, lanes));
		quant = kb_sub(k, quant, splat_i32(k, zero, lanes));
		out[u] = scale_quant(k, kb_cvt(k, quant, KB_F32), b.scale, b.offset);
	}
}

struct kb_val panel_dequantize(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, int lanes)
{
	struct kb_val one;
	panel_dequantize_n(k, p, at, column, i, 1, lanes, &one);
	return one;
}

struct kb_val panel_load_element(struct kb *k, const struct panel *p, struct kb_val ptr, struct kb_val panel,
                                 struct kb_val column, struct kb_val i, int lanes)
{
	bool is_pairs = p->kind == PANEL_BF16_PAIRS, is_f16 = p->kind == PANEL_F16;
	if (p->kind == PANEL_QUANTS) {
		struct kb_val at = kb_ptr_add(k, ptr, kb_mul_const(k, panel, p->bytes), 0);
		return panel_dequantize(k, p, at, column, i, lanes);
	}
	struct kb_val k_row = is_pairs ? kb_div_const(k, i, 2) : i;
	struct kb_val in_panel = kb_add(k, kb_mul_const(k, k_row, PANEL_COLUMNS), column);
	struct kb_val at = kb_add(k, kb_mul_const(k, panel, p->bytes / (is_f16 ? 2 : 4)), in_panel);
	if (is_pairs)
		return panel_load_bf16(k, ptr, at, i, lanes);
	struct kb_val w =
	        kb_load(k, KB_TYPE(is_f16 ? KB_F16 : KB_F32, lanes), ptr, at, 0, lanes * (is_f16 ? 2 : 4));
	return kb_cvt(k, w, KB_F32);
}

void panel_load_four(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                     struct kb_val i, int lanes, struct kb_val *out)
{
	struct panel_reader r = {.k = k, .panel = p, .lanes = lanes};
	if (p->kind == PANEL_QUANTS) {
		panel_dequantize_n(k, p, at, column, i, 4, lanes, out);
		return;
	}
	r.at = kb_ptr_add(k, at, kb_mul_const(k, column, p->kind == PANEL_F16 ? 2 : 4), 0);
	for (int u = 0; u < 4; u++)
		out[u] = panel_load_f32(&r, panel_k_row_offset(&r, i, u), u, 0);
}

/* Adds the shift of the block of element i to each signed byte; sums do not overflow. SWAR: the top bits are
 * added apart, so that no carry leaves a byte. */
static struct kb_val add_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, struct kb_val words, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct kb_val b = kb_div_const(k, i, ir_format(p->format)->block);
	struct kb_val shift = kb_cvt(k, load_block_shift(k, p, t.scales, at, b, column, 0, lanes), KB_I32);
	shift = kb_bin(k, KB_AND, shift, splat_i32(k, 255, lanes));
	shift = kb_mul(k, shift, splat_i32(k, 0x01010101, lanes));
	struct kb_val low = splat_i32(k, 0x7f7f7f7f, lanes), left = kb_bin(k, KB_AND, words, low);
	struct kb_val sum = kb_add(k, left, kb_bin(k, KB_AND, shift, low));
	struct kb_val signs = kb_bin(k, KB_XOR, words, shift);
	return kb_bin(k, KB_XOR, sum, kb_bin(k, KB_AND, signs, splat_i32(k, KB_SIGN_BITS, lanes)));
}

struct panel_block panel_load_block(struct kb *k, const struct panel *p, struct kb_val at,
                                    struct kb_val column, struct kb_val i, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	at = super_block_at(k, &t, at, &i, p->depth);
	struct panel_block b = load_block(k, p, at, column, i, lanes);
	/* panel_load_i8 has added the shift to the quants already: as an offset it would count twice */
	if (ir_format(p->format)->shift > 0)
		b.offset = (struct kb_val){0};
	return b;
}

struct kb_val panel_load_u8(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                            struct kb_val i, int word, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	at = super_block_at(k, &t, at, &i, p->depth);
	return load_bytes(k, p, at, column, i, word, 0, lanes);
}

/* Signed bytes: the zero point is subtracted in all four bytes of a word at once; codebook entries have none, but
 * perhaps a shift. */
struct kb_val panel_load_i8(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                            struct kb_val i, int word, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	struct kb_val signs = splat_i32(k, KB_SIGN_BITS, lanes);
	at = super_block_at(k, &t, at, &i, p->depth);
	struct kb_val words = load_bytes(k, p, at, column, i, word, 0, lanes);
	if (d->bits == 8) /* less 128, the zero point */
		return kb_bin(k, KB_XOR, words, signs);
	if (d->codebook)
		return d->shift > 0 ? add_shift(k, p, at, column, i, words, lanes) : words;
	/* subtracts the zero point from each byte: with the top bits set no borrow leaves a byte */
	words = kb_bin(k, KB_OR, words, signs);
	words = kb_sub(k, words, splat_i32(k, 0x01010101 * d->zero, lanes));
	return kb_bin(k, KB_XOR, words, signs);
}

/* ---- loop along K ---- */

/* True for formats that one FMA dequantizes: multiples of f16 scales by small integers are exact in f32. */
static bool is_one_fma(const struct ir_format_desc *d)
{
	return d->scale == DT_F16 && d->super == 1 && !d->has_offset && !d->codebook;
}

/* Byte offset of the panel that contains vector v of panels side by side; *column: its first column there. */
static int64_t panel_of_vector(const struct panel *p, int lanes, int v, int64_t *column)
{
	int per_panel = PANEL_COLUMNS / lanes;
	*column = (int64_t)(v % per_panel) * lanes;
	return v / per_panel * p->bytes;
}

struct panel_block panel_block_factors(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b,
                                       int v, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	struct kb_val first = kb_index(k, 0);
	struct panel_block factors = {
	        .scale = load_factors(k, p, scales_of(&t), at, panel, b, first, column, lanes)};
	if (ir_format(p->format)->has_offset)
		factors.offset = load_factors(k, p, offsets_of(&t), at, panel, b, first, column, lanes);
	return factors;
}

/* Bytes are interleaved before they are extended. Two lanes or one are loaded with their neighbours. */
struct kb_val panel_integer_pairs(struct kb *k, const struct panel *p, bool offset, struct kb_val at,
                                  struct kb_val a, struct kb_val b, int v, int lanes)
{
	const struct ir_format_desc *d = ir_format(p->format);
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int order[2 * PANEL_COLUMNS], loaded = lanes < 4 ? 4 : lanes;
	int64_t column, panel = panel_of_vector(p, lanes, v, &column),
	                begin = panel + column + (offset ? t.offsets : t.scales);
	struct kb_type type = KB_TYPE(d->sub == 8 ? KB_I8 : KB_U8, loaded);
	struct kb_val low = kb_load(k, type, at, kb_mul_const(k, a, PANEL_COLUMNS), begin, 0);
	struct kb_val high = kb_load(k, type, at, kb_mul_const(k, b, PANEL_COLUMNS), begin, 0);
	for (int i = 0; i < 2 * lanes; i++)
		order[i] = i / 2 + i % 2 * loaded;
	struct kb_val pairs = kb_cvt(k, kb_shuffle(k, low, high, order, 2 * lanes), KB_I16);
	if (d->sub == 4) {
		struct kb_val by = kb_splat(k, kb_cvt(k, kb_i32(k, offset ? 4 : 15), KB_I16), 2 * lanes);
		pairs = kb_bin(k, offset ? KB_SHR : KB_AND, pairs, by);
	}
	return kb_bitcast(k, pairs, KB_I32);
}

struct kb_val panel_block_scale(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                struct kb_val factors, int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return load_block_values(k, p, scales_of(&t), at, panel, b, kb_index(k, 0), column, factors, lanes);
}

struct kb_val panel_block_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                int lanes)
{
	const struct quant_panel_layout t = quant_panel_layout(p->format, p->depth);
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return load_block_shift(k, p, panel + t.scales, at, b, kb_index(k, 0), column, lanes);
}

struct kb_val panel_block_offset(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b,
                                 int v, struct kb_val factors, int lanes)
{
	int64_t column, panel = panel_of_vector(p, lanes, v, &column);
	return load_block_offset(k, p, at, panel, b, kb_index(k, 0), column, factors, lanes);
}

/* Loads scales and minima of block b for all vectors, to be used until the next block; for one-FMA formats the factors
 * of the head comment: 2^b scale and -(2^b + z) scale. */
static void load_scales_of_block(struct panel_loop *w, struct kb_val b)
{
	struct kb *k = w->k;
	const struct panel *p = w->panel;
	const struct ir_format_desc *d = ir_format(p->format);
	const struct kb_val loaded = {0};
	int levels = 1 << d->bits;
	for (int v = 0; v < w->vectors; v++) {
		struct kb_val scale = panel_block_scale(k, p, w->super_block, b, v, loaded, w->lanes);
		w->scale[v] = scale;
		w->offset[v] = panel_block_offset(k, p, w->super_block, b, v, loaded, w->lanes);
		if (!is_one_fma(d))
			continue;
		w->scale[v] = kb_mul(k, scale, splat_f32(k, (float)levels, w->lanes));
		w->offset[v] = kb_mul(k, scale, splat_f32(k, -(float)(levels + d->zero), w->lanes));
	}
}

/* The word of the loop, addressed in vector v of the panels. */
static struct panel_word word_in_vector(const struct panel_loop *w, int v)
{
	int64_t column, panel = panel_of_vector(w->panel, w->lanes, v, &column);
	struct panel_word word = w->word;
	word.disp += panel / 4 + column;
	return word;
}

/* Vector v of the k-row that has the loop's word, which is in one piece: panel_loop_vector extracts from it. */
static struct kb_val load_k_row(const struct panel_loop *w, int v)
{
	const struct panel_word word = word_in_vector(w, v);
	int64_t k_row = w->panel->group.word[word.i].piece[0].k_row;
	return kb_load(w->k, KB_TYPE(KB_I32, w->lanes), word.from, word.group,
	               word.disp + k_row * PANEL_COLUMNS, 0);
}

/* f32 with bits [bit, bit + bits) of the words moved to mantissa bits `to` .., on top of `base` (1.0 or 2^23). */
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

/* Element i of the word in vector v as f32: from the unpacked bytes, or straight from the k-row, whose load LLVM shares
 * among the elements. In the tail of single elements (tail_k) by panel_dequantize. */
struct kb_val panel_loop_vector(const struct panel_loop *w, int i, int v)
{
	struct kb *k = w->k;
	const struct ir_format_desc *d = ir_format(w->panel->format);
	if (w->tail_k.id) {
		int64_t column, panel = panel_of_vector(w->panel, w->lanes, v, &column);
		struct kb_val at = kb_ptr_add(k, w->at, kb_index(k, 0), panel);
		return panel_dequantize(k, w->panel, at, kb_index(k, column), w->tail_k, w->lanes);
	}
	struct kb_val words = w->is_unpacked ? w->unpacked[v] : load_k_row(w, v);
	int bits = d->codebook ? 8 : d->bits, zero = ir_format_u8_zero_point(w->panel->format);
	int bit = 8 * i + (w->is_unpacked ? 0 : w->panel->group.word[w->word.i].piece[0].bit);
	if (is_one_fma(d))
		return kb_fma(k, in_mantissa(k, words, bit, bits, 23 - bits, ONE_BITS), w->scale[v],
		              w->offset[v]);
	struct kb_val quant = in_mantissa(k, words, bit, bits, 0, BIG_BITS);
	quant = kb_sub(k, quant, splat_f32(k, (float)(0x800000 + zero), w->lanes));
	return scale_quant(k, quant, w->scale[v], w->offset[v]);
}

/* Calls the body for word i of the group, whose K elements begin at `from`. Words in pieces or with a codebook are
 * unpacked first, once for four elements. */
static void emit_word(struct panel_loop *w, int i, struct kb_val from)
{
	w->word.i = i;
	w->is_unpacked = w->panel->group.word[i].n > 1 || ir_format(w->panel->format)->codebook;
	for (int v = 0; w->is_unpacked && v < w->vectors; v++) {
		const struct panel_word word = word_in_vector(w, v);
		w->unpacked[v] = panel_load_word(w->k, w->panel, &word, w->lanes);
	}
	w->body(w->user, w, from, 4);
}

/* Words in one piece, k_rows of them from word `first` on, one k-row per iteration: word first + row is in k-row
 * `row`. The k-row is read for the first time in the first of these loops, when the body prefetches. */
static void loop_k_rows(struct panel_loop *w, int first, struct kb_val group, struct kb_val from)
{
	struct kb *k = w->k;
	struct kb_val row =
	        kb_loop(k, "row", kb_index(k, 0), kb_index(k, w->panel->group.k_rows), 1, KB_NONEMPTY);
	w->word.group = kb_add(k, group, kb_mul_const(k, row, PANEL_COLUMNS));
	w->is_first_use = first == 0;
	w->k_before = kb_add(k, from, kb_mul_const(k, row, w->panel->k_per_line));
	w->row_word = kb_add_const(k, w->word.group, w->word.disp);
	struct kb_val at = kb_add_const(k, from, 4 * (int64_t)first);
	emit_word(w, first, kb_add(k, at, kb_mul_const(k, row, 4)));
	kb_end_loop(k);
}

/* Emits words [first, end) of the group at element g of the super-block (`from` of K): a loop over k-rows if all words
 * are in one piece, for less code, else unrolled. Sets what the body may ask: is_first_use, k_before, row_word. */
static void emit_words(struct panel_loop *w, struct kb_val g, struct kb_val from, int first, int end)
{
	struct kb *k = w->k;
	const struct quant_group *q = &w->panel->group;
	struct kb_val group = words_before(k, q, g);
	w->word = (struct panel_word){.from = w->super_block,
	                              .disp = w->panel->header / 4,
	                              .group = group,
	                              .is_unmasked = ir_format(w->panel->format)->codebook,
	                              .zero = ir_format_u8_zero_point(w->panel->format)};
	bool is_looped = q->k_rows > 1 && q->n_unsplit == q->words;
	for (int i = first; is_looped && i < end; i += q->k_rows)
		loop_k_rows(w, i, group, from);
	for (int i = first; !is_looped && i < end; i++) {
		w->is_first_use = i < q->k_rows;
		w->k_before = kb_add_const(k, from, (int64_t)i * w->panel->k_per_line);
		w->row_word = kb_add_const(k, group, w->word.disp + (int64_t)i * PANEL_COLUMNS);
		emit_word(w, i, kb_add_const(k, from, 4 * (int64_t)i));
	}
}

/* Loop over n K elements from `first` on, full groups; `at`: their element in the super-block. */
static void emit_groups(struct panel_loop *w, struct kb_val at, struct kb_val first, struct kb_val n,
                        unsigned flags)
{
	struct kb *k = w->k;
	struct kb_val g = kb_loop(k, "k", kb_index(k, 0), n, w->panel->group.elements, flags);
	struct kb_val from = kb_add(k, first, g);
	emit_words(w, kb_add(k, at, g), from, 0, w->panel->group.words);
	kb_end_loop(k);
}

/* Sets the super-block of K element *i; *i becomes the element in it. */
static void enter_super_block(struct panel_loop *w, struct kb_val *i)
{
	const struct quant_panel_layout t = quant_panel_layout(w->panel->format, w->panel->depth);
	w->super_block = super_block_at(w->k, &t, w->at, i, w->panel->depth);
}

/* Blocks of a group: 2 if a scale belongs to half of one (blocks of 16 in formats whose groups are 32), else 1. */
static int blocks_of_group(const struct panel *p)
{
	int block = ir_format(p->format)->block;
	return block > 0 && block < p->group.elements ? p->group.elements / block : 1;
}

/* The remainder after full blocks and groups, [from, w->hi), which is less than a block (or without blocks all of K):
 * full groups, or the first half of one, with scales loaded once; then one element at a time. */
static void emit_tail(struct panel_loop *w, struct kb_val from)
{
	struct kb *k = w->k;
	int64_t block = ir_format(w->panel->format)->block, elements = w->panel->group.elements;
	int blocks = blocks_of_group(w->panel), unit = (int)elements / blocks;
	struct kb_val size = kb_index(k, elements), at = from;
	struct kb_val end = kb_mul(k, kb_bin(k, KB_DIV, w->hi, size), size);
	enter_super_block(w, &at);
	load_scales_of_block(w, block ? kb_div_const(k, at, block) : kb_index(k, 0));
	if (blocks == 1) {
		emit_groups(w, at, from, kb_sub(k, end, from), 0);
	} else if (w->panel->depth % elements >= unit) {
		emit_words(w, at, from, 0, w->panel->group.words / blocks);
		end = kb_add_const(k, from, unit);
	}
	if (w->panel->depth % unit == 0)
		return;
	w->is_first_use = false;
	w->tail_k = kb_loop(k, "k", end, w->hi, 1, 0);
	w->body(w->user, w, w->tail_k, 1);
	kb_end_loop(k);
	w->tail_k = (struct kb_val){0};
}

/* Loop over blocks (or pairs of blocks that share a group), scales loaded at each; without blocks one scale serves all
 * of K and the tail is everything. A range of K may end before the remainder of K, so the tail is conditional then. */
void panel_loop(struct panel_loop *w)
{
	struct kb *k = w->k;
	const struct panel *p = w->panel;
	int blocks = blocks_of_group(p), words = p->group.words / blocks;
	int64_t block = ir_format(p->format)->block, size = block * blocks;
	if (block == 0) {
		emit_tail(w, w->lo);
		return;
	}
	struct kb_val of = kb_index(k, size);
	struct kb_val end = w->is_k_range ? kb_mul(k, kb_bin(k, KB_DIV, w->hi, of), of)
	                                  : kb_index(k, p->depth / size * size);
	struct kb_val from = kb_loop(k, "block", w->lo, end, size, 0), at = from;
	enter_super_block(w, &at);
	for (int i = 0; i < blocks; i++) {
		load_scales_of_block(w, kb_add_const(k, kb_div_const(k, at, block), i));
		if (size == p->group.elements)
			emit_words(w, at, from, i * words, (i + 1) * words);
		else
			emit_groups(w, at, from, of, KB_NONEMPTY);
	}
	kb_end_loop(k);
	if (p->depth % size == 0)
		return;
	if (w->is_k_range)
		kb_if(k, kb_cmp(k, KB_LT, end, w->hi));
	emit_tail(w, end);
	if (w->is_k_range)
		kb_end_if(k);
}
