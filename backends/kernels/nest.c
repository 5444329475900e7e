/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the loop nest of a linear (nest.h). Outer decisions need the inner ones, so they are taken in the order:
 * register tile, rows of x in scratch, order of the loops, C buffer, B buffer (without which dequantizing lowers the
 * tile), M block, repacking, dot products, row tiles or passes. What the attributes of the group say replaces a
 * preference, never a condition: a nest that does not have it is refused. Bounds are mr and nr, which dequantizing in
 * registers lowers, and kc, of a K that is blocked.
 */
#include "backends/kernels/nest.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "ir/support/checked.h"

#define CACHE_LINE    64
#define LIST_ROWS_MAX 1024 /* rows of an M block that are listed */

/* An attribute cannot be met; the first one is reported. Returns false. */
static bool reject(struct nest *n, const char *format, ...) TFMC_PRINTF(2, 3);

static bool reject(struct nest *n, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	if (!n->rejection[0])
		(void)vsnprintf(n->rejection, sizeof(n->rejection), format, ap);
	va_end(ap);
	return false;
}

/* True if integer accumulators are scaled block by block, which takes more than one register per accumulator. */
static bool has_dot_blocks(const struct gemm *g)
{
	return g->lowp.is_on && g->lowp.layout.blocks > 1;
}

/* Registers of an accumulator: 2 if an i32 sum of the open dot block is live in addition to the f32 sum. */
static int acc_registers(const struct gemm *g)
{
	return 1 + has_dot_blocks(g);
}

/* Vector registers of one k-row of a panel, which are those of its accumulators for one row of x. */
static int panel_vectors(const struct gemm *g)
{
	return MATMUL_PANEL / tile_lanes(g->caps.lanes);
}

/* ---- the main register tile ---- */

int64_t nest_mr(const struct target *t, const struct attrs_group *s, enum ir_dtype stored)
{
	return s->mr > 0 ? s->mr : register_tile_mr(t, target_register_tile(t), stored);
}

/* mr, nr and lanes: the group's attributes, else the target's model. False: refused. */
static bool choose_tile(const struct gemm *g, struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	const struct target *t = g->target;
	int64_t lanes = s->lanes > 0 ? s->lanes : tile_lanes(t->lanes),
	        mr = nest_mr(t, s, ir_format(g->panel.format)->dtype),
	        nr = s->nr > 0 ? s->nr : target_register_tile(t).nr;
	if (mr > MATMUL_ROWS_MAX)
		return reject(n, "mr=%" PRId64 ": a register tile has at most %d rows", mr, MATMUL_ROWS_MAX);
	if (nr % MATMUL_PANEL != 0 || nr > MATMUL_NC * MATMUL_PANEL)
		return reject(n, "nr=%" PRId64 ": a register tile has a multiple of %d columns, at most %d",
		              nr, MATMUL_PANEL, MATMUL_NC * MATMUL_PANEL);
	if (mr * (nr / lanes) > MATMUL_ACC_MAX)
		return reject(n,
		              "mr=%" PRId64 " nr=%" PRId64 " lanes=%" PRId64 ": %" PRId64
		              " accumulators, a register tile has at most %d",
		              mr, nr, lanes, mr * (nr / lanes), MATMUL_ACC_MAX);
	n->lanes = (int)lanes;
	n->mr = (int)mr;
	n->nr = (int)(nr / MATMUL_PANEL);
	return true;
}

/* nc: panels of an N block. False: refused. */
static bool choose_n_block(struct gemm *g, struct nest *n)
{
	int64_t nc = g->attrs->nc, unit = g->columns.unit * MATMUL_PANEL,
	        all = ceil_div(g->columns.panels, g->columns.unit) * unit,
	        now = (int64_t)g->columns.nc * MATMUL_PANEL;
	if (nc == 0 || nc == now)
		return true;
	if (nc % unit != 0 || nc > all || nc > INT32_MAX)
		return reject(n,
		              "nc=%" PRId64 ": an N block of this matrix has a multiple of %" PRId64
		              " columns, at most %" PRId64,
		              nc, unit, all);
	if (g->columns.is_nc_fixed)
		return reject(
		        n, "nc=%" PRId64 ": the op after the product reduces blocks of %" PRId64 " columns",
		        nc, now);
	g->columns.nc = (int)(nc / MATMUL_PANEL);
	return true;
}

/* nr1: panels of a tile of one row. False: refused. */
static bool check_single_row(const struct gemm *g, struct nest *n)
{
	int64_t nr1 = g->attrs->nr1, full = g->columns.n / MATMUL_PANEL * MATMUL_PANEL;
	full = full < MATMUL_PANEL ? MATMUL_PANEL : full;
	if (nr1 % MATMUL_PANEL == 0 && nr1 <= MATMUL_NC * MATMUL_PANEL && nr1 <= full)
		return true;
	return reject(n,
	              "nr1=%" PRId64
	              ": a tile of one row has a multiple of %d columns, at most %d, and %" PRId64
	              " of this matrix",
	              nr1, MATMUL_PANEL, MATMUL_NC * MATMUL_PANEL, full);
}

/* AMX multiplies all of K at once: bf16, or int8 with one scale a row. */
static bool uses_amx(const struct gemm *g)
{
	return g->lowp.is_on && tile_uses_amx(g->target, g->panel.format, g->lowp.to, g->depth);
}

/* AMX multiplies dot block by dot block, for full tiles of 16 rows. */
static bool uses_amx_per_block(const struct gemm *g)
{
	return g->lowp.is_on && tile_blocks_use_amx(g->target, g->panel.format, g->lowp.to, g->depth);
}

/* Rows of the largest register tile. */
static int max_mr(const struct gemm *g, const struct nest *n)
{
	return uses_amx_per_block(g) && n->mr < KB_TILE_ROWS ? KB_TILE_ROWS : n->mr;
}

/* ---- rows of x in scratch ---- */

/* br rows, after which AMX tiles of 16 rows may read, and an f32 row where rows are quantized. False: refused, too few
 * or too large. */
static bool choose_x_buffer(const struct gemm *g, struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	int64_t min_rows = g->rows_hi < n->mr ? g->rows_hi : n->mr,
	        spare = uses_amx(g) ? AMX_OVERREAD_ROWS : 0,
	        row_bytes = g->lowp.is_on ? g->lowp.layout.bytes : 4 * tile_row_stride(g->depth);
	if (!g->makes_x)
		return true;
	n->x.rows = s->br;
	bool fits = s->br >= min_rows && s->br <= INT32_MAX &&
	            checked_mul_i64(s->br + spare, row_bytes, &n->x.f32_row) && n->x.f32_row <= s->scratch;
	n->x.bytes = fits ? n->x.f32_row + (g->lowp.is_on ? 4 * g->depth : 0) : 0;
	n->x.bytes = ceil_div(n->x.bytes, CACHE_LINE) * CACHE_LINE;
	if (fits && g->lowp.is_on)
		fits = n->x.bytes <= s->scratch - (uses_amx(g) ? AMX_C_BUFFER_BYTES(s->br) : 0);
	if (!fits)
		reject(n,
		       "br=%" PRId64 " scratch=%" PRId64 ": at least %" PRId64 " rows of x, of %" PRId64
		       " bytes, are made in scratch",
		       s->br, s->scratch, min_rows, row_bytes);
	return fits;
}

/* Rows of an M block of an expert, at most: x stays in L2 together with an N block; full register tiles. */
static void choose_expert_block(struct gemm *g, struct nest *n, int64_t most)
{
	int64_t mr = n->mr,
	        rows = g->makes_x ? n->x.rows : target_gemm_mc(g->target, g->depth > 0 ? g->depth : 1);
	rows = (rows < most ? rows : most) / mr * mr;
	n->m_block = rows > mr ? rows : mr;
	g->rows_lo = 1;
	g->rows_hi = n->m_block < g->rows_hi ? n->m_block : g->rows_hi;
}

/* ---- buffers ---- */

/* K elements of a K block of AMX: K is divided evenly so that the k-rows of two panels take at most half of L1. */
static int64_t amx_kc(const struct gemm *g)
{
	int per_k_row = g->panel.k_per_line;
	int64_t chunk = (int64_t)KB_TILE_ROWS * per_k_row,
	        full = ceil_div(g->depth, per_k_row) / KB_TILE_ROWS,
	        most = g->target->l1_bytes / 2 / (2 * KB_TILE_ROWS * PANEL_ROW_BYTES),
	        blocks = most > 0 ? ceil_div(full, most) : full;
	return blocks > 0 ? ceil_div(full, blocks) * chunk : chunk;
}

/* k-rows of an f32 copy of an N block, or rows of its accumulators, that scratch holds. */
static int64_t scratch_k_rows(const struct gemm *g, const struct nest *n)
{
	return (g->attrs->scratch - n->x.bytes) / (4 * n->c.width);
}

/* The C buffer. K is blocked if scratch holds the accumulators of at least one row tile. x of reduced precision is
 * multiplied along all of K. */
static void choose_c_buffer(const struct gemm *g, struct nest *n, bool is_expert)
{
	const struct attrs_group *s = g->attrs;
	int64_t rows = scratch_k_rows(g, n), kc = s->kc / g->panel.k_per_line * g->panel.k_per_line;
	bool may_block = g->panel.kind != PANEL_QUANTS && !g->value.is_on && !g->lowp.is_on &&
	                 n->order == NEST_M_BLOCKS && !is_expert && kc > 0 && kc < g->depth && rows >= n->mr;
	bool is_blocked = may_block && (s->c == C_IN_automatic ? g->rows_hi > n->mr : s->c == C_IN_scratch);
	if (n->order == NEST_AMX) {
		n->c.location = C_IN_scratch;
		n->c.rows = rows / AMX_TILE_ROWS * AMX_TILE_ROWS;
		n->kc = amx_kc(g);
		if (n->c.rows == 0)
			reject(n,
			       "nc=%" PRId64 " scratch=%" PRId64 ": accumulators of %d rows exceed scratch",
			       s->nc, s->scratch, AMX_TILE_ROWS);
		return;
	}
	n->kc = is_blocked ? kc : 0;
	n->c.location = is_blocked                                ? C_IN_scratch
	                : g->needs_c_buffer || s->c == C_IN_stack ? C_IN_stack
	                                                          : C_IN_registers;
	n->c.rows = is_blocked ? rows : n->order == NEST_SKINNY ? g->rows_hi : max_mr(g, n);
}

#define DEQUANT_REGISTERS 4 /* registers of masks and constants that dequantize, and an element of x */
#define LIVE_PER_VECTOR   2 /* registers of a vector of columns: its quants, and one dequantized element */

/* The largest mr of a tile of `panels` panels that dequantizes inline: its accumulators fit into the registers beside
 * the live registers of each vector of columns, and of the product of an ISA without FMA. */
static int mr_of_inline_tile(const struct gemm *g, int panels)
{
	const struct kb_caps *caps = &g->caps;
	int vectors = panels * panel_vectors(g);
	return (caps->registers - vectors * (LIVE_PER_VECTOR + g->panel.live_registers) - DEQUANT_REGISTERS -
	        !caps->has_fma) /
	       vectors;
}

/* The main tile if it dequantizes inline, nr in panels. */
static struct register_tile inline_tile(const struct gemm *g, const struct nest *n)
{
	int nr = mr_of_inline_tile(g, n->nr) < 2 ? 1 : n->nr, mr = mr_of_inline_tile(g, nr);
	return (struct register_tile){mr < 1 ? 1 : mr < n->mr ? mr : n->mr, nr};
}

/* K elements of a copy of B: all, or, where scratch has too little room for them, kc that leave rows of the C buffer;
 * -1: scratch holds neither. */
static int64_t copied_k(const struct gemm *g, const struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	int64_t k_rows = scratch_k_rows(g, n), align = g->panel.k_align,
	        kc = (s->kc < k_rows / 2 ? s->kc : k_rows / 2) / align * align;
	bool may_block = s->c == C_IN_automatic || s->c == C_IN_scratch;
	if (k_rows >= g->depth && s->c != C_IN_scratch)
		return g->depth;
	return may_block && kc >= 1 && kc < g->depth && k_rows - kc >= n->mr ? kc : -1;
}

/* Quantized weights are dequantized once into a copy, if scratch holds it. Inline, each tile dequantizes them again:
 * from the second tile on that takes longer than the copy, which calls of one row would pay in vain. */
static bool prefers_copy(const struct gemm *g, const struct nest *n)
{
	bool has_tiles = g->rows_hi > n->mr || (g->rows_lo > 1 && g->rows_hi > inline_tile(g, n).mr);
	return g->panel.kind == PANEL_QUANTS && !g->lowp.is_on && copied_k(g, n) >= 0 &&
	       (g->attrs->b == B_FROM_automatic ? has_tiles : g->attrs->b == B_FROM_copied);
}

/* Weights are quantized, the product is of f32, and no B buffer holds them dequantized. */
static bool dequantizes_inline(const struct gemm *g, const struct nest *n)
{
	return g->panel.kind == PANEL_QUANTS && !g->lowp.is_on && n->b.source == B_FROM_packed;
}

/* Reads the panels of a value where they are stored: packing would cost more than the only row tile that reads them. A
 * partial panel is packed. False: B is packed (value_is_read_unpacked), or no value. */
static bool choose_stored(const struct gemm *g, struct nest *n)
{
	const struct value_panels b = {g->rows_hi, g->depth, g->value.is_n_adjacent,
	                               gemm_has_partial_panel(g)};
	if (!g->value.is_on || g->attrs->b == B_FROM_copied ||
	    !value_is_read_unpacked(&b, n->mr, g->attrs->scratch - n->x.bytes))
		return false;
	n->b.source = B_FROM_stored;
	n->b.copy = n->b.stored = panel_of(FORMAT_PLAIN, g->depth);
	n->b.stored.bytes = MATMUL_PANEL * ir_dtype_bytes(g->value.dtype);
	return true;
}

/* The B buffer (and its kc) if there are scratch and rows enough; else lowers mr to what dequantizing in registers
 * leaves. False: a value must be packed, and scratch is too small. */
static bool choose_b_buffer(const struct gemm *g, struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	int64_t kc = copied_k(g, n);
	if ((g->panel.kind != PANEL_QUANTS && !g->value.is_on) || g->lowp.is_on || choose_stored(g, n))
		return true;
	if (kc < 0 && g->value.is_on) {
		if (ir_group_has_nest(s))
			reject(n,
			       "scratch=%" PRId64 " nc=%" PRId64
			       " c=%s: a copy of a value has all of K, or, with C in scratch, "
			       "kc less than K; K=%" PRId64 " kc=%" PRId64 " mr=%d",
			       s->scratch, n->c.width, ir_keyword(KEYWORDS_C_IN, s->c), g->depth, s->kc,
			       n->mr);
		return false;
	}
	if (!g->value.is_on && (n->order == NEST_SKINNY || !prefers_copy(g, n))) {
		struct register_tile tile = inline_tile(g, n);
		n->mr = tile.mr;
		n->nr = tile.nr;
		return true;
	}
	n->b.source = B_FROM_copied;
	n->b.copy = panel_of(FORMAT_PLAIN, kc);
	if (kc == g->depth)
		return true;
	n->kc = kc;
	n->c.rows = scratch_k_rows(g, n) - kc;
	n->c.location = C_IN_scratch;
	return true;
}

/* Rows of an M block, at most: those of an expert, of the C buffer between K blocks, of x in scratch, and of a list. */
static int64_t max_m_block(const struct gemm *g, const struct nest *n)
{
	int64_t rows = n->m_block;
	rows = n->kc && rows > n->c.rows ? n->c.rows : rows;
	rows = g->makes_x && rows > n->x.rows ? n->x.rows : rows;
	return n->lists_rows && rows > LIST_ROWS_MAX ? LIST_ROWS_MAX : rows;
}

/* Rows of an M block: x takes three quarters of L2, N blocks of weights the rest; as many as are allowed (`all`) of
 * experts, and with AMX, whose x is in scratch. All rows of a call, or full tiles. */
static int64_t choose_m_block(const struct gemm *g, struct nest *n, bool is_expert)
{
	bool all = is_expert || n->order == NEST_AMX || uses_amx_per_block(g);
	int64_t depth = n->kc ? n->kc : g->depth > 0 ? g->depth : 1, mc = g->attrs->mc;
	int64_t mr = max_mr(g, n), most = max_m_block(g, n), rows = target_gemm_mc(g->target, depth);
	rows = rows > most || all ? most : rows;
	int64_t full = rows > mr ? rows / mr * mr : n->mr;
	most = most > n->mr ? most : n->mr;
	if (mc > most)
		reject(n,
		       "mc=%" PRId64 ": an M block has at most %" PRId64
		       " rows, those of an expert, of x (br), of C in scratch, or of a list",
		       mc, most);
	else if (mc % mr != 0 && mc != n->mr && mc < g->rows_hi)
		reject(n,
		       "mc=%" PRId64 ": an M block has all rows, or a multiple of %" PRId64
		       " (those of a tile)",
		       mc, mr);
	if (mc > 0)
		return mc;
	return full < g->rows_hi && g->rows_hi <= rows ? g->rows_hi : full;
}

/* Repacking, if it pays and there is scratch. */
static void choose_repack(const struct gemm *g, struct nest *n)
{
	bool per_block = uses_amx_per_block(g);
	bool repacks_n_block = n->c.location != C_IN_registers || per_block;
	struct tile_unpacked_bytes unpacked;
	if (n->order == NEST_SKINNY || !g->lowp.is_on || g->rows_hi < UNPACK_MIN_ROWS ||
	    n->m_block < UNPACK_MIN_ROWS || g->attrs->b == B_FROM_packed ||
	    !tile_unpacked_bytes(g->target, g->panel.format, g->lowp.to, g->depth, &unpacked))
		return;
	if (per_block && KB_TILE_ROWS * MATMUL_PANEL / n->lanes > MATMUL_ACC_MAX)
		return; /* short vectors: 16 rows have too many accumulators */
	int group = repacks_n_block ? g->columns.nc : n->nr;
	int64_t rows = n->x.rows * unpacked.row, left = g->attrs->scratch - n->x.bytes - rows;
	if (unpacked.panel == 0 || g->columns.mats * group * unpacked.panel > left)
		return;
	n->repack.to = per_block ? REPACK_AMX : unpacked.row > 0 ? REPACK_I16 : REPACK_BYTES;
	n->repack.group = group;
	n->repack.panel = g->panel;
	n->repack.panel.bytes = unpacked.panel;
	if (n->repack.to != REPACK_I16) {
		n->repack.panel.group = quant_group(8);
		n->repack.panel.k_per_line = n->repack.panel.group.elements;
		n->repack.panel.bytes_per_k = PANEL_COLUMNS;
	}
	n->repack.row_bytes = rows;
}

/* ---- the K loop of a register tile ---- */

/* Rows of a tile at least: for fewer, interleaving the weights costs more than MMLA gains. */
#define SQUARE_ROWS_MIN 4

/* True if bytes of B above 127 are multiplied by magnitudes of x: the target has pmaddubsw, which adds two u8 x s8 with
 * saturation, and no dot product of such bytes. Not where many rows repack both as i16, nor in formats with shifts,
 * whose corrections are multiplied by the shift. */
static bool multiplies_by_magnitude(const struct gemm *g, const struct nest *n)
{
	const struct kb_caps *caps = &g->caps;
	return caps->has_dot_u7s8 && !caps->has_dot_u8s8 && !caps->has_dot_s8s8 &&
	       n->repack.to != REPACK_I16 && ir_format(g->panel.format)->shift == 0;
}

/* The dot products of reduced precision. */
static void choose_dot(const struct gemm *g, struct nest *n)
{
	const struct kb_caps *caps = &g->caps;
	enum ir_format f = g->panel.format;
	bool is_large = ir_format_u8_max(f) > 127, has_square = caps->has_dot_bf16_odd_2x2;
	if (!g->lowp.is_on)
		return;
	if (g->lowp.to.bf16) {
		n->dot.word = caps->has_dot_bf16_odd ? KB_DOT_BF16_ODD : KB_DOT_BF16;
		n->dot.square = KB_DOT_BF16_ODD_2X2;
		n->dot.is_emulated = !caps->has_dot_bf16 && !caps->has_dot_bf16_odd;
	} else {
		n->dot.by_magnitude = is_large && multiplies_by_magnitude(g, n);
		bool has_signed = caps->has_dot_s8s8 && !caps->has_dot_u8s8,
		     is_signed = n->dot.by_magnitude || (is_large && has_signed);
		n->dot.word = tile_accumulates_i16(g->target, f) ? KB_DOT_U7S8_I16
		              : n->dot.by_magnitude              ? KB_DOT_U7S8
		              : is_signed                        ? KB_DOT_S8S8
		              : is_large                         ? KB_DOT_U8S8
		                                                 : KB_DOT_U7S8;
		n->dot.square = KB_DOT_U8S8_2X2;
		has_square = caps->has_dot_u8s8_2x2 && !has_dot_blocks(g) && ir_format(f)->bits == 8;
		n->dot.is_emulated = !caps->has_dot_u8s8 && !caps->has_dot_s8s8;
		n->dot.zero = ir_format_u8_zero_point(f) - (is_signed ? 128 : 0);
		n->dot.flips_sign = is_signed && !ir_format(f)->codebook;
		n->dot.corrects_by_pairs = caps->has_dot_s16s16;
		n->dot.merges = tile_merges_dot_blocks(g->target, f, g->lowp.to, g->depth);
	}
	n->dot.square_rows = has_square && n->lanes == MATMUL_X_WORDS ? SQUARE_ROWS_MIN : 0;
}

/* With fewer registers a vector of bf16 pairs is loaded twice, not kept for its odd elements. */
#define REGISTERS_TO_KEEP 32
#define UNROLLED          8 /* K elements of a single row: the loop would cost as much as its few multiply-adds */

static void choose_f32_loop(const struct gemm *g, const struct nest *n, const struct panel *b, int rows,
                            int vectors, struct nest_tile *t)
{
	const struct target *target = g->target;
	int registers = g->caps.registers, accumulators = rows * vectors;
	t->x_lanes = g->is_k_adjacent ? target->k_lanes : 1;
	int last = 1;
	if (t->x_lanes > 1)
		last = g->depth >= t->x_lanes ? t->x_lanes : 1;
	else if (rows == 1 && !n->kc && g->depth >= UNROLLED && !target_prefers_small_code(g->target))
		last = UNROLLED; /* compilers of OpenCL unroll themselves */
	if (last > 1)
		t->step[t->n_steps++] = last;
	if (b->k_per_line > 1 &&
	    ((last > 1 ? g->depth % last : g->depth) >= b->k_per_line || n->kc % last != 0))
		t->step[t->n_steps++] = last = b->k_per_line;
	if (last == 1 || g->depth % last != 0 || n->kc % last != 0 || g->value.has_depth)
		t->step[t->n_steps++] = 1; /* a K block has a remainder */
	/* f16 needs registers to be converted. If all broadcasts fit as well, weights are converted one vector at
	 * a time, after the broadcasts. So are f32 weights loaded where a whole k-row would not fit. */
	bool is_full = b->kind == PANEL_F32 && rows > 1 && target->has_fma &&
	               accumulators + vectors + 1 > registers,
	     converts = b->kind == PANEL_F16;
	int of_weights = converts ? target->has_fma ? 2 : 4 : 1;
	t->is_x_first = (is_full || converts) && accumulators + rows + of_weights <= registers;
	/* two K elements of each row, a vector of pairs, and its even or odd elements as f32 */
	t->by_pairs =
	        b->kind == PANEL_BF16_PAIRS && accumulators + 2 * rows + 2 + !target->has_fma < registers;
	t->reloads_pairs = b->kind == PANEL_BF16_PAIRS && !t->by_pairs && registers < REGISTERS_TO_KEEP;
}

#define BF16_UNROLL 8  /* k-rows of bf16 in an iteration, if accumulators are few */
#define ACC_FEW     16 /* with more accumulators, one k-row has enough independent work to hide latency */
/* ACC_FEW for i16 operands: in longer iterations LLVM hoists loads of words and spills them. */
#define ACC_FEW_I16 4

/* Words whose products (two of each are added by pmaddubsw) fit into i16, for quants too large for chunks; 0: less than
 * two, or the target has better dot products. Several rows have no registers for i16 accumulators beside the others. */
static int words_in_i16(const struct gemm *g, const struct nest *n, bool is_repacked, int rows)
{
	int words = INT16_MAX / (2 * 127 * ir_format_u8_max(g->panel.format));
	bool is_pairwise = n->dot.word == KB_DOT_U7S8 && n->dot.is_emulated && !n->dot.by_magnitude;
	return is_pairwise && g->caps.has_dot_u7s8_i16 && !is_repacked && rows == 1 && words > 1 ? words : 0;
}

static void choose_lowp_loop(const struct gemm *g, const struct nest *n, bool is_repacked, int rows,
                             int vectors, struct nest_tile *t)
{
	const struct quant_group *q = is_repacked ? &n->repack.panel.group : &g->panel.group;
	const struct activation_row_layout *row = &g->lowp.layout;
	int accumulators = rows * vectors, others = 3; /* a k-row, its quants, a mask */
	bool is_i16 = is_repacked && n->repack.to == REPACK_I16,
	     is_codebook = ir_format(g->panel.format)->codebook;
	t->x_lanes = n->lanes == MATMUL_X_WORDS && g->target->k_lanes == MATMUL_X_WORDS ? MATMUL_X_WORDS : 1;
	t->is_square = n->dot.square_rows > 0 && rows >= n->dot.square_rows;
	if (g->lowp.to.bf16) {
		t->unroll = accumulators <= ACC_FEW ? BF16_UNROLL : t->x_lanes;
		return;
	}
	t->splits_groups = has_dot_blocks(g) && row->block < q->elements;
	t->dot_blocks = t->splits_groups || (has_dot_blocks(g) && n->dot.merges) ? 2 : 1;
	t->in_x_order = t->x_lanes > 1 && q->words / (1 + t->splits_groups) > MATMUL_X_WORDS &&
	                acc_registers(g) * accumulators + 2 * rows + others > g->caps.registers;
	t->reloads = t->in_x_order || (is_codebook && rows > vectors * n->lanes / MATMUL_PANEL);
	t->is_unmasked = is_codebook && rows == 1;
	t->words_i16 = words_in_i16(g, n, is_repacked, rows);
	/* x86 takes spilled factors as memory operands; NEON has none, and emulated products need its registers */
	bool may_keep = g->target->k_lanes == 1 || !n->dot.is_emulated;
	t->keeps_factors = rows == 1 && !is_repacked && ir_format(g->panel.format)->super > 1 && may_keep;
	t->loop_min = n->dot.is_emulated || is_i16 ? MATMUL_CHUNK : 4 * MATMUL_CHUNK;
	/* an emulated dot product has common subexpressions that would exceed the registers over a chunk: one group */
	bool is_short = (n->dot.is_emulated && !is_i16) || accumulators > (is_i16 ? ACC_FEW_I16 : ACC_FEW);
	int least = t->x_lanes > 1 ? 4 * MATMUL_X_WORDS : 4;
	t->unroll = n->dot.word == KB_DOT_U7S8_I16 || !is_short ? MATMUL_CHUNK
	            : q->elements > least                       ? q->elements
	                                                        : least;
}

struct nest_tile nest_tile(const struct gemm *g, const struct nest *n, const struct panel *b,
                           bool is_repacked, int rows, int vectors)
{
	struct nest_tile t = {0};
	choose_f32_loop(g, n, b, rows, vectors, &t);
	if (g->lowp.is_on)
		choose_lowp_loop(g, n, is_repacked, rows, vectors, &t);
	return t;
}

/* ---- M blocks ---- */

/*
 * Smallest mr that many rows are divided into: half a tile, even. 0: mr is small or odd anyway, or no call has more
 * rows. A low tile loads as many weights as a high one and hides less latency: 128 rows in tiles of 14 are 8 x 14 + 8 +
 * 8, not 9 x 14 + 2.
 */
static int half_tile_mr(const struct gemm *g, const struct nest *n)
{
	int mr = n->mr;
	bool is_divided = g->rows_hi > mr && mr >= 6 && mr % 2 == 0 &&
	                  !target_prefers_small_code(g->target) && g->attrs->tiles != TILES_full;
	return is_divided ? (mr / 2 + 1) / 2 * 2 : 0;
}

/*
 * The most panels, a power of two up to MATMUL_NC, whose accumulators for `rows` rows fit into the registers of a
 * tile that dequantizes inline. The tile of one row (GEMV) has too few accumulators to hide the latency of FMAs, and
 * is given more panels, though its scales are spilled, up to half of latency * ports vectors: dequantizing executes an
 * independent FMA beside each dependent one, and beyond as many chains another one gains nothing. x86 takes spilled
 * scales as memory operands; FMA by element (NEON) has none, so all live registers must fit. A tile has complete panels
 * only.
 */
static int inline_panels(const struct gemm *g, const struct nest *nest, int rows)
{
	const struct target *t = g->target;
	int n = MATMUL_NC;
	for (; n > 1; n /= 2) {
		if (rows * n * (MATMUL_PANEL / nest->lanes) > MATMUL_ACC_MAX)
			continue;
		int vectors = n * panel_vectors(g),
		    live = vectors * (LIVE_PER_VECTOR + g->panel.live_registers) + DEQUANT_REGISTERS;
		bool may_spill = t->k_lanes == 1 || live <= g->caps.registers;
		bool hides_latency = rows == 1 && 2 * vectors <= t->fma_latency * t->fma_ports && may_spill;
		if ((rows <= mr_of_inline_tile(g, n) || hides_latency) && n <= g->columns.n / MATMUL_PANEL)
			break;
	}
	return n;
}

/* Panels (nr) of a tile of `rows` rows, which is lower than the main one if is_low: as many as registers hold in
 * addition to one k-row of weights and a broadcast element of x. */
static int tile_panels(const struct gemm *g, const struct nest *n, int rows, bool is_low)
{
	int vectors = panel_vectors(g), accumulators = acc_registers(g) * rows * vectors;
	int64_t full = g->columns.n / MATMUL_PANEL;
	bool is_inline = dequantizes_inline(g, n);
	int panels = is_low && (rows == 1 || !target_prefers_small_code(g->target)) ? MATMUL_NC : n->nr;
	if (is_inline)
		panels = is_low ? inline_panels(g, n, rows) : n->nr;
	for (; panels > 1; panels /= 2) {
		int b_registers = rows > 1 ? panels * vectors : 1;
		bool fits = rows == n->mr || is_inline ||
		            panels * accumulators + b_registers + 1 < g->caps.registers;
		if (fits && panels <= full && rows * panels * (MATMUL_PANEL / n->lanes) <= MATMUL_ACC_MAX)
			break;
	}
	return panels;
}

/*
 * The row tiles that calls can need: the main one; half tiles and higher ones of even rows, and an odd one for an odd
 * number of rows; 8, 4, 2 and 1 rows for remainders that no half tile covers (OpenCL: 4 and 1). Where the number of
 * rows is constant and small (is_one), only those that its division takes.
 */
static void list_row_tiles(const struct gemm *g, struct nest *n)
{
	bool is_small = target_prefers_small_code(g->target),
	     is_one = g->rows_lo == g->rows_hi && g->rows_hi <= n->mr && !g->has_norm_after && !n->lists_rows;
	int64_t left = g->rows_hi;
	n->half_mr = half_tile_mr(g, n);
	for (int rows = n->mr; rows > 0; rows--) {
		bool is_main = rows == n->mr, is_remainder = !is_main && rows <= 8 &&
		                                             (rows & (rows - 1)) == 0 &&
		                                             (!is_small || rows == 4 || rows == 1);
		bool is_middle = !is_main && n->half_mr > 0 && rows >= n->half_mr &&
		                 (rows % 2 == 0 || rows == n->half_mr + 1);
		if (rows > left || !(is_main || is_middle || is_remainder))
			continue;
		/* only calls of more rows than the main tile use it; smaller calls use half tiles, too */
		bool needs_many = is_middle && !is_remainder && rows != n->half_mr;
		int panels = tile_panels(g, n, rows, !is_main && !needs_many);
		if (rows == 1 && g->attrs->nr1 > 0)
			panels = (int)(g->attrs->nr1 / MATMUL_PANEL);
		/* tasks of many rows have full tiles only */
		bool is_full = (needs_many || (is_small && n->unit % panels == 0)) && !g->value.has_n &&
		               g->columns.n % ((int64_t)panels * MATMUL_PANEL) == 0 &&
		               g->columns.nc % panels == 0;
		n->row_tile[n->n_row_tiles++] = (struct nest_rows){rows, panels, !is_full};
		left = is_one ? left % rows : left;
	}
}

/* ---- skinny GEMM ---- */

#define ROWS_MAX            32 /* rows of a call */
#define ALWAYS_MORE_MAX     15 /* rows_lo above it: M blocks may be faster */
#define PANEL_MR_MAX        8 /* rows of a one-panel tile: beyond it, loads of x are the bound, not the weights */
#define INLINE_LOW_MR       3     /* rows for which dequantizing tiles take more panels */
#define C_BUFFER_MAX        65536 /* bytes of the C buffer of an N block */
#define PREFETCH_BYTES      8192  /* prefetch distance in bytes */
#define PREFETCH_BYTES_GEMV 4096  /* the same for one row without dot blocks, where it measured faster */
#define PREFETCH_BYTES_TWO  576   /* the same for two_panel_mr rows: nine lines of each panel */
#define L2_SHARE_BLOCKS     8 /* M blocks are faster if the panels of a tile take at most this part of L2 */
#define L2_SHARE_NEXT       4 /* the next panels stay in L2 with the current ones if each take at most this part */
#define L2_MULTIPLE         16 /* weights of this many times L2 come from memory in every call */

/* mr of a one-panel tile: registers left by a k-row of weights, an element of x and, without FMA, a product. */
static int single_panel_mr(const struct gemm *g)
{
	const struct kb_caps *caps = &g->caps;
	int vectors = panel_vectors(g), free = caps->registers - vectors - 2 - !caps->has_fma;
	if (g->panel.kind == PANEL_QUANTS && !g->lowp.is_on)
		free -= vectors * (1 + g->panel.live_registers) + 2; /* constants */
	int rows = free / (vectors * acc_registers(g));
	return rows < 1 ? 1 : rows < PANEL_MR_MAX ? rows : PANEL_MR_MAX;
}

/* True if `panels` panels take at most 1 / part of L2. */
static bool fit_l2_share(const struct gemm *g, int panels, int part)
{
	return panels * g->panel.bytes <= g->target->l2_bytes / part;
}

/* True if skinny GEMM can compute the group: few rows, whose accumulators are few bytes, of a packed matrix. */
static bool may_be_skinny(const struct gemm *g, const struct nest *n)
{
	return !target_prefers_small_code(g->target) && !g->value.is_on && !uses_amx(g) &&
	       !g->has_norm_after && (!g->makes_x || g->rows_hi <= n->x.rows) && !g->shares_rows &&
	       g->rows_hi <= ROWS_MAX && g->rows_hi * n->c.width * 4 <= C_BUFFER_MAX &&
	       n->lanes <= g->caps.lanes;
}

/* The order of the loops. Panels outside of rows: if the weights come from memory; but not if calls always have many
 * rows, and panels are short or need more than two passes, where M blocks are faster, or where several rows read a
 * dequantized copy. */
static enum nest_order choose_order(const struct gemm *g, const struct nest *n, enum ir_keyword_order order,
                                    bool is_expert)
{
	bool prefers_m_blocks = g->rows_lo > ALWAYS_MORE_MAX &&
	                        (g->rows_hi > 2 * n->mr || fit_l2_share(g, n->nr, L2_SHARE_BLOCKS));
	bool prefers_panels = !prefers_m_blocks && (g->rows_lo < 2 || !prefers_copy(g, n)) &&
	                      g->weight_bytes / L2_MULTIPLE > g->target->l2_bytes;
	if (uses_amx(g))
		return NEST_AMX;
	if (order != ORDER_automatic)
		prefers_panels = order == ORDER_panels;
	return prefers_panels && !is_expert && may_be_skinny(g, n) ? NEST_SKINNY : NEST_M_BLOCKS;
}

/* True if a k-row costs one multiply-add: the hardware prefetcher then keeps up with several panels. */
static bool is_load_bound(const struct gemm *g, const struct nest *n)
{
	return g->panel.kind == PANEL_F32 || (g->lowp.is_on && !n->dot.is_emulated && panel_vectors(g) == 1);
}

/* Panels that a GEMV interleaves: one panel has too few accumulators to hide the latency of multiply-adds. Not for
 * int8 that is converted in registers, which is bound by the conversion. The more a k-row costs, the fewer. */
static int gemv_panels(const struct gemm *g, const struct nest *n)
{
	if (panel_vectors(g) > 2 || has_dot_blocks(g) || g->columns.n / MATMUL_PANEL < MATMUL_NC)
		return 1;
	if (is_load_bound(g, n))
		return MATMUL_NC;
	if (dequantizes_inline(g, n))
		return inline_panels(g, n, 1);
	return g->lowp.is_on && !g->lowp.to.bf16 ? 1 : MATMUL_NC / 2;
}

/*
 * Rows of floats, at most, that pass by two panels at once; 0: none. Where a panel is two vectors, two or three rows of
 * one panel multiply faster than one stream of memory comes, and a bf16 accumulator waits for two multiply-adds of each
 * k-row. Beside the accumulators of two panels, 16 registers hold, of three rows of f32, an element of each row of x
 * and one vector of weights (is_x_first); of two rows of bf16, two elements of each and a vector of pairs (by_pairs).
 * Also a row alone, of a matrix of fewer panels than gemv_panels takes.
 */
static int two_panel_mr(const struct gemm *g, const struct nest *n)
{
	bool is_wide = g->columns.n >= 2 * MATMUL_PANEL && n->lanes == g->caps.lanes;
	if (panel_vectors(g) != 2 || !g->caps.has_fma || g->lowp.is_on || !is_wide)
		return 0;
	return g->panel.kind == PANEL_F32 ? 3 : g->panel.kind == PANEL_BF16_PAIRS ? 2 : 0;
}

/* Height of the highest and the lowest of ceil(rows / mr) passes, over all numbers of rows from `rows` on. */
static void find_pass_mr(const struct gemm *g, struct nest_pass *p, int64_t rows)
{
	rows = g->rows_lo > rows ? g->rows_lo : rows;
	for (p->high = 1, p->low = p->mr; rows <= g->rows_hi; rows++) {
		int64_t n = ceil_div(rows, p->mr), low = rows / n, high = ceil_div(rows, n);
		p->high = high > p->high ? (int)high : p->high;
		p->low = low < p->low ? (int)low : p->low;
	}
}

/* Adds one pass of `low` to `high` rows for calls of at most rows_max. */
static void add_pass(struct nest *n, int64_t rows_max, int64_t low, int64_t high, int panels, int64_t ahead)
{
	n->pass[n->n_passes++] = (struct nest_pass){.rows_max = rows_max,
	                                            .mr = (int)high,
	                                            .high = (int)high,
	                                            .low = (int)low,
	                                            .panels = panels,
	                                            .is_one = true,
	                                            .ahead = ahead};
}

/*
 * A row alone (GEMV) interleaves panels, as many as nr1 says. One pass over the rows that a one-panel tile has, as one
 * stream of memory; quants are fewer bytes than floats, so the chain of multiply-adds would be slower than memory: the
 * fewer rows, the more panels. More rows go in passes by the main register tile, which loads less for each
 * multiply-add, so that memory is busy all the time.
 */
static void choose_passes(const struct gemm *g, struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	int gemv = s->nr1 > 0 ? (int)(s->nr1 / MATMUL_PANEL) : gemv_panels(g, n);
	int most = single_panel_mr(g), most_of_lanes = MATMUL_ACC_MAX / (MATMUL_PANEL / n->lanes);
	most = most < most_of_lanes ? most : most_of_lanes;
	bool uses_main_tile = g->rows_hi > most && n->mr * n->nr > most, is_inline = dequantizes_inline(g, n);
	bool is_alone = (gemv > 1 || s->nr1 > 0) && g->rows_lo < 2;
	/* the least rows of a call that has no pass yet */
	int64_t first = is_alone ? 2 : max_i64(g->rows_lo, 1), two = two_panel_mr(g, n),
	        ahead_alone = has_dot_blocks(g) ? PREFETCH_BYTES : PREFETCH_BYTES_GEMV;
	if (is_alone)
		add_pass(n, 1, 1, 1, gemv, gemv > 1 && is_load_bound(g, n) ? 0 : ahead_alone);
	if (two >= first && g->rows_hi >= first) {
		add_pass(n, two, first, g->rows_hi < two ? g->rows_hi : two, 2, PREFETCH_BYTES_TWO);
		first = two + 1;
	}
	int64_t high = g->rows_hi < most ? g->rows_hi : most, ahead = high > 1 ? PREFETCH_BYTES : ahead_alone;
	if (high >= first && (g->rows_hi <= most || uses_main_tile)) {
		if (is_inline && first <= INLINE_LOW_MR && high > INLINE_LOW_MR) {
			add_pass(n, INLINE_LOW_MR, first, INLINE_LOW_MR, inline_panels(g, n, INLINE_LOW_MR),
			         ahead);
			first = INLINE_LOW_MR + 1;
		}
		add_pass(n, most, first, high, is_inline ? inline_panels(g, n, (int)high) : 1, ahead);
	}
	if (g->rows_hi > most) {
		struct nest_pass p = {.rows_max = g->rows_hi, .mr = most, .panels = 1};
		if (uses_main_tile) {
			p.mr = n->mr;
			p.panels = n->nr;
		}
		p.ahead = PREFETCH_BYTES;
		p.next_fits = fit_l2_share(g, p.panels, L2_SHARE_NEXT);
		find_pass_mr(g, &p, uses_main_tile ? most + 1 : first);
		n->pass[n->n_passes++] = p;
	}
	for (int i = 0; i < n->n_passes; i++) {
		struct nest_pass *p = &n->pass[i];
		p->ahead = s->prefetch == PREFETCH_none ? 0 : s->ahead > 0 ? s->ahead : p->ahead;
		p->next_fits = p->next_fits || s->prefetch == PREFETCH_next;
	}
}

/* ---- the attributes of the group ---- */

#define AHEAD_MAX (1 << 20) /* bytes */

/* Refuses what the chosen order does not have. */
static void check_order(const struct gemm *g, struct nest *n)
{
	const struct attrs_group *s = g->attrs;
	if (s->order == ORDER_panels && n->order != NEST_SKINNY)
		reject(n,
		       "order=panels: at most %d rows of packed weights (here %" PRId64
		       "), all of them in br if they are made, %d bytes of accumulators; no AMX, experts, "
		       "OpenCL or norm after the product",
		       ROWS_MAX, g->rows_hi, C_BUFFER_MAX);
	if (n->order == NEST_SKINNY && (s->mc > 0 || s->tiles != TILES_automatic))
		reject(n, "%s: panels outside of rows have no M blocks", s->mc > 0 ? "mc" : "tiles");
	const struct nest_pass *last = &n->pass[n->n_passes - (n->n_passes > 0)];
	if (n->order == NEST_SKINNY && s->prefetch == PREFETCH_next && (last->is_one || last->panels < 2))
		reject(n, "prefetch=next: of panels outside of rows, in several passes over tiles of several "
		          "panels");
	if (s->nr1 > 0 && nest_attrs(g, n).nr1 != s->nr1)
		reject(n, "nr1=%" PRId64 ": no call has a tile of one row", s->nr1);
	if (n->order != NEST_SKINNY && s->ahead > 0)
		reject(n, "ahead=%" PRId64 ": M blocks prefetch the next block (prefetch=next)", s->ahead);
	if (s->ahead % CACHE_LINE != 0 || s->ahead > AHEAD_MAX ||
	    (s->ahead > 0 && s->prefetch == PREFETCH_none))
		reject(n,
		       "ahead=%" PRId64 ": a distance is a multiple of %d bytes, at most %d, and not with "
		       "prefetch=none",
		       s->ahead, CACHE_LINE, AHEAD_MAX);
	if (n->order == NEST_AMX &&
	    (s->nr1 > 0 || s->prefetch != PREFETCH_automatic || s->tiles != TILES_automatic))
		reject(n, "nr1, prefetch, tiles: AMX multiplies tiles of %d rows, and prefetches by itself",
		       KB_TILE_ROWS);
}

/* Refuses a decision that a condition has overruled. */
static void check_attributes(const struct gemm *g, struct nest *n)
{
	static const char *const b_condition[] = {
	        [B_FROM_packed] = "a value is copied, or read where it is stored",
	        [B_FROM_copied] =
	                "of values, and of quantized weights with x of f32 in M blocks, if scratch holds an "
	                "N block of K elements, or of kc beside C for mr rows",
	        [B_FROM_stored] = "of values, of at most mr rows, whose columns are neighbours in memory",
	        [B_FROM_repacked] =
	                "of integers that the target multiplies in another layout, in M blocks of at least "
	                "16 rows, if scratch holds them"};
	static const char *const c_condition[] = {
	        [C_IN_registers] = "K is blocked (AMX), or the epilogue reads N blocks",
	        [C_IN_stack] = "K is blocked (AMX)",
	        [C_IN_scratch] = "K is blocked in M blocks of f32 (quantized weights and values: copied), no "
	                         "experts, by kc less than K, if scratch holds C for mr rows"};
	const struct attrs_group *s = g->attrs, of = nest_attrs(g, n);
	check_order(g, n);
	if (s->b != B_FROM_automatic && s->b != of.b)
		reject(n, "b=%s: %s; K=%" PRId64 " mr=%d scratch=%" PRId64, ir_keyword(KEYWORDS_B_FROM, s->b),
		       b_condition[s->b], g->depth, n->mr, s->scratch);
	if (s->c != C_IN_automatic && s->c != of.c)
		reject(n, "c=%s: %s; K=%" PRId64 " kc=%" PRId64 " mr=%d scratch=%" PRId64,
		       ir_keyword(KEYWORDS_C_IN, s->c), c_condition[s->c], g->depth, s->kc, n->mr,
		       s->scratch);
	bool is_c_given = s->c == C_IN_stack || (s->nc > 0 && !g->columns.is_nc_fixed);
	if (n->c.location == C_IN_stack && is_c_given && n->c.rows * n->c.width * 4 > C_BUFFER_MAX)
		reject(n,
		       "%s: accumulators of %" PRId64 " rows and %" PRId64
		       " columns, more than %d bytes on the stack",
		       s->nc > 0 ? "nc" : "c", n->c.rows, n->c.width, C_BUFFER_MAX);
	if (s->prefetch == PREFETCH_next && n->order == NEST_M_BLOCKS && !n->prefetches_next)
		reject(n, "prefetch=next: a copy of B is in the cache, and OpenCL has no prefetch");
	if (s->tiles == TILES_balanced && n->half_mr == 0)
		reject(n, "tiles=balanced: of more rows than mr=%d, which is even, and at least 6; no OpenCL",
		       n->mr);
}

/* ---- the nest ---- */

/* The nest of g with this order of the loops. */
static bool choose_nest(struct gemm *g, int64_t expert_rows, enum ir_keyword_order order, struct nest *n)
{
	*n = (struct nest){.order = NEST_M_BLOCKS, .m_block = INT32_MAX, .b.source = B_FROM_packed};
	if (!choose_tile(g, n) || !choose_n_block(g, n) || !check_single_row(g, n) || !choose_x_buffer(g, n))
		return false;
	n->c.width = (int64_t)g->columns.mats * g->columns.nc * MATMUL_PANEL;
	if (expert_rows > 0)
		choose_expert_block(g, n, expert_rows);
	n->order = choose_order(g, n, order, expert_rows > 0);
	n->lists_rows = g->may_list_rows && n->order != NEST_SKINNY;
	choose_c_buffer(g, n, expert_rows > 0);
	if (!choose_b_buffer(g, n))
		return false;
	if (expert_rows > 0 && n->kc && n->c.rows < g->rows_hi)
		g->rows_hi = n->c.rows;
	n->m_block = choose_m_block(g, n, expert_rows > 0);
	if (expert_rows > 0 && g->rows_hi > n->m_block)
		g->rows_hi = n->m_block;
	choose_repack(g, n);
	choose_dot(g, n);
	n->few_unit = g->columns.unit;
	n->unit = g->columns.unit * (g->columns.unit % n->nr == 0 ? 1 : n->nr);
	if (target_prefers_small_code(g->target))
		n->few_unit = n->unit;
	/* OpenCL has no prefetch that all devices implement; a B buffer is in the cache anyway. */
	bool may_prefetch = n->b.source == B_FROM_packed && !target_prefers_small_code(g->target);
	bool requires_prefetch = g->attrs->prefetch == PREFETCH_automatic
	                                 ? g->rows_hi > n->mr
	                                 : g->attrs->prefetch == PREFETCH_next;
	n->prefetches_next = may_prefetch && requires_prefetch;
	if (n->order == NEST_SKINNY)
		choose_passes(g, n);
	else
		list_row_tiles(g, n);
	check_attributes(g, n);
	return !n->rejection[0];
}

/* An order that is not given is the one that meets the other attributes, if the preferred one does not. */
bool nest_choose(struct gemm *g, int64_t expert_rows, struct nest *n)
{
	struct gemm again = *g;
	struct nest other;
	if (choose_nest(g, expert_rows, (enum ir_keyword_order)g->attrs->order, n))
		return true;
	if (g->attrs->order != ORDER_automatic || !n->rejection[0] ||
	    !choose_nest(&again, expert_rows, n->order == NEST_SKINNY ? ORDER_blocks : ORDER_panels, &other))
		return false;
	*g = again;
	*n = other;
	return true;
}

struct attrs_group nest_attrs(const struct gemm *g, const struct nest *n)
{
	struct attrs_group a = *g->attrs;
	const struct nest_rows *last = &n->row_tile[n->n_row_tiles - (n->n_row_tiles > 0)];
	a.nc = (int64_t)g->columns.nc * MATMUL_PANEL;
	a.b = n->repack.to != REPACK_NONE ? B_FROM_repacked : (int)n->b.source;
	a.c = (int)n->c.location;
	a.order = n->order == NEST_SKINNY ? ORDER_panels : ORDER_blocks;
	if (n->order == NEST_SKINNY) {
		a.nr1 = n->pass[0].rows_max == 1 ? (int64_t)n->pass[0].panels * MATMUL_PANEL : 0;
		return a;
	}
	a.mc = n->m_block;
	if (n->order == NEST_AMX)
		return a;
	a.kc = n->kc > 0 ? n->kc : a.kc;
	a.nr1 = last->rows == 1 ? (int64_t)last->panels * MATMUL_PANEL : 0;
	a.prefetch = n->prefetches_next ? PREFETCH_next : PREFETCH_none;
	a.tiles = n->half_mr > 0 ? TILES_balanced : TILES_full;
	return a;
}

/* ---- in words ---- */

/* The dot products of reduced precision; those of AMX are said by its tiles. */
static void print_dot(const struct gemm *g, const struct nest *n, struct buf *out)
{
	if (g->lowp.is_on && n->order != NEST_AMX)
		buf_printf(out, ", %s%s%s", kb_dot_name(n->dot.word), n->dot.by_magnitude ? " of |x|" : "",
		           n->dot.is_emulated ? " (emulated)" : "");
	if (n->dot.square_rows > 0)
		buf_printf(out, ", %s from %d rows on", kb_dot_name(n->dot.square), n->dot.square_rows);
}

/* Accumulators beyond the registers, which are legal, and slow. */
static void print_spills(const struct gemm *g, const struct nest *n, struct buf *out)
{
	int accumulators = n->mr * n->nr * (MATMUL_PANEL / n->lanes);
	if (n->order != NEST_AMX && n->lanes <= g->caps.lanes && accumulators > g->caps.registers)
		buf_printf(out, "; %d accumulators of a tile exceed %d registers", accumulators,
		           g->caps.registers);
}

static void print_attributes(const struct gemm *g, const struct nest *n, struct buf *out)
{
	const struct attrs_group a = nest_attrs(g, n);
	const char *before = "; {";
	for (const struct ir_attr_desc *d = NULL; (d = ir_next_nest_attr(&a, d)) != NULL; before = " ") {
		buf_str(out, before);
		ir_attr_print(out, NULL, d, (const char *)&a + d->offset);
	}
	buf_char(out, '}');
}

void nest_print(const struct gemm *g, const struct nest *n, struct buf *out)
{
	static const char *const repacks[] = {
	        [REPACK_I16] = "i16", [REPACK_BYTES] = "bytes", [REPACK_AMX] = "bytes for AMX"};
	if (n->order == NEST_SKINNY) {
		buf_str(out, "panels outside of rows");
		for (int i = 0; i < n->n_passes; i++) {
			const struct nest_pass *p = &n->pass[i];
			buf_printf(out, "; rows <= %" PRId64 ": tiles %d x %d", p->rows_max, p->high,
			           p->panels);
			if (p->ahead > 0)
				buf_printf(out, ", prefetch %" PRId64 " bytes ahead", p->ahead);
		}
	} else {
		buf_printf(out, "M blocks of %" PRId64 ", N blocks of %d panels", n->m_block, g->columns.nc);
		if (n->kc > 0)
			buf_printf(out, ", K blocks of %" PRId64, n->kc);
		buf_str(out, n->order == NEST_AMX ? "; AMX tiles" : "; tiles");
		for (int i = 0; i < n->n_row_tiles && n->order != NEST_AMX; i++)
			buf_printf(out, " %d x %d", n->row_tile[i].rows, n->row_tile[i].panels);
	}
	buf_printf(out, "; vectors of %d", n->lanes);
	print_dot(g, n, out);
	buf_printf(out, "; B %s", ir_keyword(KEYWORDS_B_FROM, (int)n->b.source));
	if (n->repack.to != REPACK_NONE)
		buf_printf(out, ", %d panels at once repacked as %s", n->repack.group, repacks[n->repack.to]);
	if (g->makes_x)
		buf_printf(out, "; x in scratch, %" PRId64 " rows", n->x.rows);
	buf_printf(out, "; C in %s", ir_keyword(KEYWORDS_C_IN, (int)n->c.location));
	buf_str(out, n->lists_rows ? "; real rows are listed" : "");
	print_spills(g, n, out);
	print_attributes(g, n, out);
}
