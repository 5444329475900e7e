/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch copies of B and x for many rows.
 *
 * f32: quants of an N block are dequantized into the B buffer once, and f32 microkernels read it. Weights in
 * registers and in the buffer are the same f32 values, so results have the same bits.
 *
 * i16: where integers are multiplied by pmaddwd, each word of four bytes becomes two words of i16 pairs,
 * bytes 0 and 2 and bytes 1 and 3: each row of x once, and a few panels once for all rows of an M block.
 * Integer sums are exact, so results have the same bits.
 */
#include "backends/kernels/matmul_internal.h"

#define DEQUANT_REGISTERS 4 /* registers of masks and constants that dequantize, and an element of x */
#define LIVE_PER_VECTOR   2 /* registers of a vector of columns: its quants, and one dequantized element */

/* mr of a tile that dequantizes in registers: accumulators fit in addition to the live registers of each
 * vector of columns. */
static int mr_of_inline_tile(const struct linear *l, int panels)
{
	const struct kb_caps *caps = kb_caps(l->k);
	int vectors = panels * matmul_panel_vectors(l);
	return (caps->registers - vectors * (LIVE_PER_VECTOR + l->panel.live_registers) - DEQUANT_REGISTERS -
	        !caps->has_fma) /
	       vectors;
}

/* Lowers mr (and nr) to what dequantizing in registers leaves. */
static void lower_mr(struct linear *l)
{
	int rows = mr_of_inline_tile(l, l->nr);
	if (rows < 2 && l->nr > 1) {
		l->nr = 1;
		rows = mr_of_inline_tile(l, 1);
	}
	l->mr = rows < l->mr ? rows : l->mr;
	l->mr = l->mr > 1 ? l->mr : 1;
}

bool matmul_dequantizes_inline(const struct linear *l)
{
	return l->panel.kind == PANEL_QUANTS && !l->lowp.op && !l->b_buf.at.id;
}

/* True if scales of `vectors` vectors may be spilled: x86 takes them as memory operands; by-element ISAs
 * (NEON) need them in registers. */
static bool may_spill_scales(const struct linear *l, int vectors)
{
	int registers = vectors * (LIVE_PER_VECTOR + l->panel.live_registers) + DEQUANT_REGISTERS;
	return l->job->target->k_lanes == 1 || registers <= kb_caps(l->k)->registers;
}

int matmul_inline_panels(const struct linear *l, int rows)
{
	const struct target *t = l->job->target;
	int vectors = matmul_panel_vectors(l), n = MATMUL_NC;
	for (; n > 1; n /= 2) {
		bool hides_latency = rows == 1 && n * vectors <= t->fma_latency * t->fma_ports &&
		                     may_spill_scales(l, n * vectors);
		if ((rows <= mr_of_inline_tile(l, n) || hides_latency) && n <= l->columns.n / MATMUL_PANEL)
			break;
	}
	return n;
}

void matmul_choose_b_buffer(struct linear *l, bool is_skinny, int64_t begin)
{
	const struct attrs_group *s = l->g->attrs;
	int64_t width = (int64_t)l->columns.mats * l->columns.nc * MATMUL_PANEL * 4;
	/* k-rows of f32 that scratch holds; without room for all of K they are divided between kc and the C
	 * buffer */
	int64_t k_rows = (s->scratch - begin) / width, align = l->panel.k_align;
	if (l->panel.kind != PANEL_QUANTS || l->lowp.op)
		return;
	int64_t kc = s->kc < k_rows / 2 ? s->kc / align * align : k_rows / 2 / align * align;
	bool holds_all_k = k_rows >= l->depth;
	if (is_skinny || l->rows_hi <= l->mr || (!holds_all_k && (kc < 1 || k_rows - kc < l->mr))) {
		lower_mr(l);
		return;
	}
	int64_t depth = holds_all_k ? l->depth : kc;
	l->b_buf.at = kb_ptr_add(l->k, l->job->scratch, kb_index(l->k, begin), 0);
	l->b_buf.panel = panel_of(FORMAT_PLAIN, depth);
	if (holds_all_k)
		return;
	l->c_buf.kc = kc;
	l->c_buf.rows = k_rows - kc;
	l->c_buf.at = kb_ptr_add(l->k, l->b_buf.at, kb_index(l->k, kc * width), 0);
}

struct dequantizer {
	struct kb_val to; /* dequantized panel; address as if K began at 0 */
};

/* Stores n dequantized k-rows (a callback of panel_loop). */
static void store_k_row(void *user, const struct panel_loop *w, struct kb_val from, int n)
{
	const struct dequantizer *c = user;
	struct kb *k = w->k;
	struct kb_val at = kb_mul_const(k, from, MATMUL_PANEL);
	for (int i = 0; i < n; i++)
		for (int v = 0; v < w->vectors; v++) {
			struct kb_val weights = panel_loop_vector(w, i, v);
			kb_store(k, weights, c->to, at, (int64_t)i * MATMUL_PANEL + (int64_t)v * w->lanes, 0);
		}
}

/* Bytes from the B buffer to where K element 0 would be stored (negative). */
static struct kb_val k_bias(const struct linear *l, const struct matmul_block *s)
{
	return kb_mul_const(l->k, s->k_lo, -PANEL_ROW_BYTES);
}

/* Dequantizes the K block of a panel (of projection `mat`). */
static void dequantize_panel(const struct linear *l, const struct matmul_block *s, struct kb_val panel,
                             struct kb_val mat)
{
	struct kb *k = l->k;
	struct dequantizer c;
	struct kb_val to = kb_sub(k, panel, s->begin);
	if (mat.id) {
		panel = kb_add(k, panel, kb_mul_const(k, mat, l->columns.panels));
		to = kb_add(k, to, kb_mul_const(k, mat, l->columns.nc));
	}
	to = kb_mul_const(k, to, l->b_buf.panel.bytes);
	c.to = kb_ptr_add(k, l->b_buf.at, kb_add(k, to, k_bias(l, s)), 0);
	struct panel_loop w = {.k = k,
	                       .panel = &l->panel,
	                       .lanes = l->lanes,
	                       .vectors = MATMUL_PANEL / l->lanes,
	                       .lo = s->k_lo,
	                       .hi = s->k_hi,
	                       .is_k_range = l->c_buf.kc != 0,
	                       .body = store_k_row,
	                       .user = &c};
	w.at = kb_ptr_add(k, s->weights, kb_mul_const(k, panel, l->panel.bytes), 0);
	panel_loop(&w);
}

struct matmul_block matmul_dequantize_block(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct matmul_block block = *s;
	struct kb_val mat = {0};
	if (!l->b_buf.at.id)
		return block;
	if (l->columns.mats > 1)
		mat = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.mats), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	dequantize_panel(l, s, panel, mat);
	kb_end_loop(k);
	if (l->columns.mats > 1)
		kb_end_loop(k);
	block.b_layout = &l->b_buf.panel;
	block.weights = kb_ptr_add(k, l->b_buf.at, k_bias(l, s), 0);
	return block;
}

/* ---- repacked integers ---- */

void matmul_choose_repack(struct linear *l, int64_t begin)
{
	const struct attrs_group *s = l->g->attrs;
	bool repacks_n_block = l->c_buf.at.id || l->ranges || l->strip_op || matmul_uses_amx_per_block(l);
	int group = repacks_n_block ? l->columns.nc : l->nr;
	if (!l->lowp.op || l->rows_hi < UNPACK_MIN_ROWS)
		return;
	struct tile_unpacked_bytes unpacked;
	if (!tile_unpacked_bytes(l->job->target, l->panel.format, l->lowp.to, l->depth, &unpacked))
		return;
	if (matmul_uses_amx_per_block(l) && KB_TILE_ROWS * MATMUL_PANEL / l->lanes > MATMUL_ACC_MAX)
		return; /* short vectors: 16 rows have too many accumulators */
	int64_t rows = l->norm.x_rows * unpacked.row, left = s->scratch - begin - rows;
	if (unpacked.panel == 0 || l->columns.mats * group * unpacked.panel > left)
		return;
	l->repack.group = group;
	l->repack.bytes = unpacked.panel;
	struct kb_val at = kb_ptr_add(l->k, l->job->scratch, kb_index(l->k, begin), 0);
	l->repack.x = unpacked.row > 0 ? at : (struct kb_val){0};
	l->repack.panels = kb_ptr_add(l->k, at, kb_index(l->k, rows), 0);
	if (matmul_uses_amx_per_block(l))
		matmul_amx_per_block_begin(l);
}

/* Unpacks bytes of words to i16 pairs: even bytes to `to`, odd ones to `to` + odd_offset. */
struct i16_unpack {
	const struct linear *l;
	struct kb_val from, to;
	int64_t bytes, odd_offset;
	bool is_signed;
};

static void unpack_i16(const struct i16_unpack *w)
{
	struct kb *k = w->l->k;
	int lanes = w->l->lanes;
	enum kb_bin right = w->is_signed ? KB_SAR : KB_SHR;
	struct kb_val eight = kb_splat(k, kb_cvt(k, kb_i32(k, 8), KB_I16), 2 * lanes);
	struct kb_val at = kb_loop(k, "word", kb_index(k, 0), kb_index(k, w->bytes / 4), lanes, KB_NONEMPTY);
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, lanes), w->from, at, 0, 0);
	struct kb_val both = kb_bitcast(k, words, KB_I16);
	struct kb_val even = kb_bin(k, right, kb_bin(k, KB_SHL, both, eight), eight);
	kb_store(k, kb_bitcast(k, even, KB_I32), w->to, at, 0, 0);
	struct kb_val odd = kb_bin(k, right, both, eight);
	kb_store(k, kb_bitcast(k, odd, KB_I32), w->to, at, w->odd_offset / 4, 0);
	kb_end_loop(k);
}

void matmul_repack_row(const struct linear *l, struct kb_val quants, struct kb_val row)
{
	int64_t bytes = l->lowp.layout.corrections;
	struct i16_unpack w = {
	        .l = l, .from = quants, .bytes = bytes, .odd_offset = bytes, .is_signed = true};
	w.to = kb_ptr_add(l->k, l->repack.x, kb_mul_const(l->k, row, 2 * bytes), 0);
	unpack_i16(&w);
}

void matmul_repack_block(const struct linear *l, const struct matmul_block *s)
{
	struct kb *k = l->k;
	struct i16_unpack w = {.l = l, .bytes = l->panel.bytes, .odd_offset = l->panel.bytes};
	struct kb_val mat = kb_loop(k, "half", kb_index(k, 0), kb_index(k, l->columns.mats), 1, KB_NONEMPTY);
	struct kb_val panel = kb_loop(k, "panel", s->begin, s->end, 1, 0);
	struct kb_val from = kb_add(k, panel, kb_mul_const(k, mat, l->columns.panels));
	struct kb_val to = kb_sub(k, panel, s->begin);
	to = kb_add(k, to, kb_mul_const(k, mat, l->repack.group));
	w.from = kb_ptr_add(k, s->weights, kb_mul_const(k, from, l->panel.bytes), 0);
	w.to = kb_ptr_add(k, l->repack.panels, kb_mul_const(k, to, l->repack.bytes), 0);
	if (l->repack.acc.id)
		matmul_amx_repack_panel(l, w.from, w.to);
	else
		unpack_i16(&w);
	kb_end_loop(k);
	kb_end_loop(k);
}
