/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tile sizes by enumeration and closed forms, from the target record alone. Results of kernels do not depend on them,
 * with one exception: the order of summation of attention depends on the keys of a block.
 *
 * A register tile is mr rows of C by nr columns in vector registers; kc and mc are blocks of K and of rows of A. A
 * packed panel is 16 columns of weights in k-rows of 64 bytes. A dot block is the K elements that integer products
 * accumulate before their scales are applied.
 */
#include "ir/target/tile.h"

#define KC_MAX 512 /* K elements that amortize loading and storing the accumulators of a tile */
#define MC_MIN 128 /* rows of A that amortize reading the weights, even if A then comes from L3 */

/* A K element of a panel, with its scales, takes far less than 4096 bytes. */
#define PANEL_DEPTH_MAX (INT64_MAX / 4096)

static int64_t min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
	return ceil_div(n, multiple) * multiple;
}

/* ---- packed panels and quantized activations ---- */

/* The widths that quant_group divides into at most three pieces. */
#define FLOATS(NAME, name, dtype)
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) \
	_Static_assert(bits == 8 || (bits >= 2 && bits <= 6), "quants of " #name);
#include "ir/types/formats.def"

/* The k-rows of a group (tile.h): per_byte whole quants fit into a byte, which takes the first n_unsplit words.
 * used[i]: bits of a byte of k-row i that are taken. Each further word is divided over what is left of the bytes:
 * all of a fresh k-row first, then of those with bits left. */
struct quant_group quant_group(int bits)
{
	struct quant_group g = {.k_rows = bits};
	int used[8], fresh = 0, per_byte = 8 / bits;
	while (g.k_rows % 2 == 0)
		g.k_rows /= 2;
	if (bits == 4)
		g.k_rows = 4; /* their low nibbles meet 16 neighbours of x, a vector of int8 */
	g.words = 8 * g.k_rows / bits;
	g.elements = 4 * g.words;
	g.n_unsplit = per_byte * g.k_rows;
	for (int i = 0; i < g.k_rows; i++)
		used[i] = per_byte * bits;
	for (int i = 0; i < g.words; i++) {
		struct quant_word *w = &g.word[i];
		for (int low_bit = 0; low_bit < bits; w->n++) {
			int k_row = i < g.n_unsplit ? i % g.k_rows : fresh < g.k_rows ? fresh++ : 0;
			while (i >= g.n_unsplit && used[k_row] == 8)
				k_row++;
			int bit = i < g.n_unsplit ? i / g.k_rows * bits : used[k_row],
			    left = i < g.n_unsplit ? bits : 8 - bit,
			    n = bits - low_bit < left ? bits - low_bit : left;
			w->piece[w->n] = (struct quant_piece){k_row, bit, low_bit, n};
			w->last_k_row = k_row > w->last_k_row ? k_row : w->last_k_row;
			used[k_row] += i < g.n_unsplit ? 0 : n;
			low_bit += n;
		}
	}
	return g;
}

/* Bytes of the k-rows that hold n K elements. */
static int64_t quant_bytes(const struct ir_format_desc *d, int64_t n)
{
	const struct quant_group g = quant_group(d->bits);
	return PANEL_ROW_BYTES * (ceil_div(n, g.elements) * g.k_rows);
}

/* The header of super-blocks of t->super_block K elements, from byte 0 on: sets its offsets; t->quants is its size.
 * In formats with super-blocks a scale is an integer of one byte. */
static void place_scales(enum ir_format f, struct quant_panel_layout *t)
{
	const struct ir_format_desc *d = ir_format(f);
	int64_t scale = PANEL_COLUMNS * ir_dtype_bytes(d->scale),
	        blocks = ir_format_blocks(f, t->super_block),
	        supers = ir_format_super_blocks(f, t->super_block) * scale;
	/* scale and offset of 4 bits share a byte */
	int64_t each = d->super == 1 ? scale : PANEL_COLUMNS,
	        offsets = d->has_offset && d->sub != 4 ? blocks * each : 0;
	t->offsets = d->sub == 4 ? t->scales : t->scales + blocks * each;
	t->super_scales = t->scales + blocks * each + offsets;
	t->super_offsets = t->super_scales + supers;
	t->quants = round_up(t->super_offsets + d->has_offset * supers, PANEL_ROW_BYTES);
}

#define SUPERS_MAX 8 /* super-blocks of the format in one of a panel: more would part scales and quants */

/* Super-blocks of the panel: the shortest whose scales fill multiples of 64 bytes, with at least 32 K elements, full
 * groups of k-rows for all bits; all of K if rows have one scale. Where the format has super-blocks, as many of them
 * as make headers smallest: two, unless K is no multiple of that. Only super_block and the offsets up to quants are
 * set. */
static struct quant_panel_layout super_blocks(enum ir_format f, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	int64_t blocks = max_i64(PANEL_ROW_BYTES / (PANEL_COLUMNS * ir_dtype_bytes(d->scale)), 1),
	        unit = d->super > 1 ? d->block * d->super : max_i64(d->block * blocks, 32);
	struct quant_panel_layout best = {.super_block = d->block == 0  ? max_i64(depth, 1)
	                                                 : d->super > 1 ? 2 * unit
	                                                                : unit};
	place_scales(f, &best);
	for (int64_t n = 1; d->super > 1 && n <= SUPERS_MAX; n++) {
		struct quant_panel_layout t = {.super_block = n * unit};
		place_scales(f, &t);
		if (ceil_div(depth, t.super_block) * t.quants <
		    ceil_div(depth, best.super_block) * best.quants)
			best = t;
	}
	return best;
}

/* Full super-blocks, then one with the remaining K elements: its header is complete, its quants are as many groups
 * as needed. */
struct quant_panel_layout quant_panel_layout(enum ir_format f, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	struct quant_panel_layout t = super_blocks(f, depth);
	t.super_block_bytes = t.quants + quant_bytes(d, t.super_block);
	int64_t remainder = depth % t.super_block;
	t.bytes = depth / t.super_block * t.super_block_bytes +
	          (remainder > 0 ? t.quants + quant_bytes(d, remainder) : 0);
	return t;
}

bool panel_bytes(enum ir_format f, int64_t depth, int64_t *bytes)
{
	if (depth < 0 || depth > PANEL_DEPTH_MAX)
		return false;
	*bytes = ir_format_is_quantized(f) ? quant_panel_layout(f, depth).bytes
	                                   : panel_row_count(ir_format(f)->dtype, depth) * PANEL_ROW_BYTES;
	return true;
}

#define INTEGER_DEPTH_MAX 131072 /* 2^17 products of int8, each at most 2^14, fit into int32 */

/* The smaller of the blocks of activations and of weights, if it divides the larger. Rows of one scale count as a
 * block of K. An i32 accumulator holds INTEGER_DEPTH_MAX products. */
int64_t quant_dot_block(enum ir_format f, struct activation_quant r, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	if (r.bf16)
		return f == FORMAT_BF16 && depth >= 1 ? 0 : -1;
	if (d->bits == 0 || r.block < 0 || depth < 1)
		return -1;
	int64_t x = r.block > 0 ? r.block : depth, w = d->block > 0 ? d->block : depth,
	        group = quant_group(d->bits).elements;
	int64_t block = min_i64(x, w);
	if (block > INTEGER_DEPTH_MAX)
		return -1;
	if (block >= depth)
		return 0;
	bool divides = (x >= depth || x % block == 0) && (w >= depth || w % block == 0);
	/* a dot block reads full groups of k-rows, or the half of one (16 of 32 K elements) */
	bool is_half = block % 16 == 0 && 2 * block == group;
	return divides && (block % group == 0 || is_half) ? block : -1;
}

/* After the quants, for int8, each dot block has an i32 correction for the zero point of the weights, the f32 scale
 * of the activations, and in formats with offsets the product of that scale and the sum of the quants. Parts that
 * are absent have no bytes: their offsets are that of the next part. */
struct activation_row_layout activation_row_layout(enum ir_format f, struct activation_quant r, int64_t depth)
{
	int64_t block = quant_dot_block(f, r, depth);
	struct activation_row_layout row = {.block = block > 0 ? block : depth};
	row.blocks = ceil_div(depth, row.block);
	row.corrections = round_up(r.bf16 ? 2 * depth : depth, PANEL_ROW_BYTES);
	int64_t bytes = r.bf16 ? 0 : 4 * row.blocks; /* of one value for each block */
	row.scales = row.corrections + bytes;
	row.offset_sums = row.scales + bytes;
	row.bytes = round_up(row.offset_sums + (ir_format(f)->has_offset ? bytes : 0), PANEL_ROW_BYTES);
	/* an odd number of cache lines, so that rows do not fall into the same cache set */
	row.bytes += row.bytes / PANEL_ROW_BYTES % 2 == 0 ? PANEL_ROW_BYTES : 0;
	return row;
}

/* AMX accumulates over all of K in i32 or f32, so there must be one dot block (0). */
bool tile_uses_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth)
{
	bool fits = r.bf16 || ir_format(f)->bits == 8;
	return target_has(t, FEATURE_AMX_TILE) && fits && quant_dot_block(f, r, depth) == 0;
}

/* Integer products only in pairs: vpmaddubsw and vpmaddwd. */
static bool is_x86_without_vnni(const struct target *t)
{
	return t->arch == ARCH_X86_64 && !target_has(t, FEATURE_AVXVNNI) &&
	       !target_has(t, FEATURE_AVX512VNNI);
}

/* 8-bit quants are converted to int16: x86 without VNNI. */
static bool tile_unpacks_to_i16(const struct target *t, enum ir_format f)
{
	return is_x86_without_vnni(t) && ir_format(f)->bits == 8;
}

/* Quants of 2, 3, 5 and 6 bits are unpacked to bytes. OpenCL's work-groups unpack them into local memory. */
static bool unpacks_to_bytes(const struct target *t, enum ir_format f, struct activation_quant r)
{
	int bits = ir_format(f)->bits;
	return !r.bf16 && t->arch != ARCH_OPENCL && bits > 0 && bits != 4 && bits != 8;
}

/* Unsigned quants below 16: of 32 K elements an i16 accumulates 16 products of at most 15 * 127, which fit. Of merged
 * dot blocks an i16 begins with the correction of Q3_K, 4 * 16 * 127 + 8 * 7 * 127. */
bool tile_accumulates_i16(const struct target *t, enum ir_format f)
{
	return is_x86_without_vnni(t) && ir_format_u8_max(f) < 16;
}

bool tile_merges_dot_blocks(const struct target *t, enum ir_format f, struct activation_quant r,
                            int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	bool is_shared = r.block % 32 == 0 || r.block >= depth;
	return !r.bf16 && d->super > 1 && d->block == 16 && is_shared && tile_accumulates_i16(t, f);
}

#define AMX_BLOCK_MIN 32 /* shorter dot blocks are faster with VNNI than storing the results of AMX tiles */

/* A row of an AMX tile is 64 bytes along K: dot blocks are multiples of it or divide it. */
bool tile_blocks_use_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth)
{
	int64_t block = quant_dot_block(f, r, depth);
	bool fits = block >= AMX_BLOCK_MIN && (block % PANEL_ROW_BYTES == 0 || PANEL_ROW_BYTES % block == 0);
	return target_has(t, FEATURE_AMX_TILE) && fits;
}

/* Quants of 8 bits take two bytes after the conversion to int16; unpacked ones a byte each, in groups of 4 K
 * elements. */
bool tile_unpacked_bytes(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth,
                         struct tile_unpacked_bytes *out)
{
	int64_t panel;
	*out = (struct tile_unpacked_bytes){0};
	if (!panel_bytes(f, depth, &panel))
		return false;
	struct activation_row_layout row = activation_row_layout(f, r, depth);
	if (!r.bf16 && tile_unpacks_to_i16(t, f))
		*out = (struct tile_unpacked_bytes){2 * row.corrections, 2 * panel};
	else if (tile_blocks_use_amx(t, f, r, depth) || unpacks_to_bytes(t, f, r))
		*out = (struct tile_unpacked_bytes){0, round_up(row.blocks * row.block, 4) * PANEL_COLUMNS};
	return true;
}

/* ---- register tiles ---- */

int target_tile_registers(const struct target *t, int mr, int nr)
{
	int vecs = nr > t->lanes ? (nr + t->lanes - 1) / t->lanes : 1;
	return mr * vecs + vecs + 1 + !t->has_fma;
}

/* Enumerates all tiles; the first of equally good ones stays. If none hides latency and loads, it is one row of a
 * panel. */
struct register_tile target_register_tile(const struct target *t)
{
	struct register_tile best = {1, PANEL_COLUMNS};
	for (int nr = PANEL_COLUMNS; nr <= TILE_PANELS_MAX * PANEL_COLUMNS; nr *= 2)
		for (int mr = 1; mr <= TILE_MR_MAX; mr++) {
			int vecs = nr / tile_lanes(t->lanes), accumulators = mr * vecs;
			if (target_tile_registers(t, mr, nr) > t->registers ||
			    accumulators > t->max_accumulators)
				continue;
			/* as many independent FMAs as are in flight */
			bool hides_latency = accumulators >= t->fma_latency * t->fma_ports;
			/* for each K element, mr broadcasts and a k-row are loaded while mr k-rows are multiplied */
			bool hides_loads = accumulators * t->load_ports >= (mr + vecs) * t->fma_ports;
			/* mr nr / (mr + nr) is larger than that of `best` */
			bool is_better = (int64_t)mr * nr * (best.mr + best.nr) >
			                 (int64_t)best.mr * best.nr * (mr + nr);
			if (hides_latency && hides_loads && is_better)
				best = (struct register_tile){mr, nr};
		}
	return best;
}

/* Lowers mr until the registers suffice. With k_lanes each row has a vector of A in addition to its accumulators;
 * weights are then read a vector at a time, one register and two that convert it. */
int register_tile_mr(const struct target *t, struct register_tile tile, enum ir_dtype stored)
{
	int mr = tile.mr, vecs = tile.nr / tile_lanes(t->lanes);
	if (stored == DT_F32)
		return mr;
	while (mr > 1 && (target_tile_registers(t, mr, tile.nr) + 1 > t->registers ||
	                  (t->k_lanes > 1 && mr * (vecs + 1) + 3 > t->registers)))
		mr--;
	return mr;
}

/* Registers of an integer tile in addition to the accumulators. */
static int operand_registers(const struct target *t, int vecs, int mr, bool has_blocks)
{
	bool by_mmla = !has_blocks && target_has(t, FEATURE_I8MM); /* a vector holds two rows of A */
	if (t->k_lanes > 1) /* vectors of A; two vectors of a k-row and their pair, or one and a mask */
		return (by_mmla ? (mr + 1) / 2 : mr) + 3;
	/* a k-row and a broadcast; with blocks a scale, and one for what the compiler hoists in the longer loop */
	return vecs + (has_blocks ? 4 : 2);
}

/* Registers besides the i16 accumulators: packed quants and the nibbles unpacked from them (2 vecs), a word of x,
 * the nibble mask, a product and one in reserve. */
int register_tile_mr_i16(const struct target *t, struct register_tile tile)
{
	int vecs = tile.nr / tile_lanes(t->lanes), mr = (t->registers - 2 * vecs - 4) / vecs;
	return mr < 1 ? 1 : mr < tile.mr ? mr : tile.mr;
}

/* Lowers mr until accumulators, twice as many with blocks (i32 and f32), and operands fit. */
int register_tile_mr_quantized(const struct target *t, struct register_tile tile, bool has_blocks)
{
	int vecs = tile.nr / tile_lanes(t->lanes), mr = tile.mr;
	while (mr > 1 &&
	       mr * vecs * (1 + has_blocks) + operand_registers(t, vecs, mr, has_blocks) > t->registers)
		mr--;
	return mr;
}

/* ---- cache blocks ---- */

/* L1 is a set of ways of TILE_WAY_BYTES; at most as many as a tile has rows matter. */
int target_l1_ways(const struct target *t)
{
	int64_t ways = t->l1_bytes / TILE_WAY_BYTES;
	return ways < 1 ? 1 : ways < TILE_MR_MAX ? (int)ways : TILE_MR_MAX;
}

/* n rounded down to a multiple of 16, but at least 16. */
static int64_t round_down_to_panel(int64_t n)
{
	return n < PANEL_COLUMNS ? PANEL_COLUMNS : n / PANEL_COLUMNS * PANEL_COLUMNS;
}

/* nr is at most TILE_PANELS_MAX panels of f32 weights, 256 bytes for each K element. */
int64_t target_gemm_kc(const struct target *t)
{
	int64_t quarter = t->l2_bytes / 4 / (4 * TILE_PANELS_MAX * PANEL_COLUMNS);
	return round_down_to_panel(min_i64(quarter, KC_MAX));
}

int64_t target_gemm_mc(const struct target *t, int64_t depth)
{
	int64_t rows = t->l2_bytes / 4 * 3 / (4 * (depth > 0 ? depth : 1));
	return max_i64(rows, MC_MIN);
}

bool target_blocks_k(const struct target *t, int64_t depth)
{
	return depth > t->l2_bytes / 4 * 3 / (4 * target_register_tile(t).nr * t->l2_tiles);
}

/* Counts f32: a key and its value take 4 (e + v) bytes, 32 k-rows of packed keys 128 bytes for each key. */
void target_attention_blocks(const struct target *t, int64_t e, int64_t v, int64_t *br, int64_t *bc)
{
	int64_t features = e + v > 0 ? e + v : 1;
	int64_t by_l2 = t->l2_bytes / (32 * features), by_l1 = t->l1_bytes / 128;
	*bc = round_down_to_panel(min_i64(min_i64(by_l2, by_l1), ATTENTION_BLOCK_MAX));
	int64_t most = t->arch == ARCH_OPENCL ? 64 : ATTENTION_BLOCK_MAX;
	*br = max_i64(min_i64(t->l2_bytes / 4 / (4 * features), most), 1);
}

/* ---- attention ---- */

/* A third to a half of mr, so that few rows compute few others in vain. A tile below 4 rows needs no smaller one. */
int target_attention_skinny_mr(const struct target *t)
{
	int mr = target_register_tile(t).mr;
	return mr >= 12 ? 4 : mr >= 4 ? 2 : 0;
}

/* A row of an AMX tile has 32 bf16, and e is not padded: it must be full tiles. */
bool target_attention_uses_amx(const struct target *t, int64_t e)
{
	return target_has(t, FEATURE_AMX_TILE) && e % (2 * PANEL_COLUMNS) == 0;
}

/* Rows that the register tiles of br queries write: br rounded up to their mr. As choose_mr of the kernel, up to two
 * skinny tiles take the place of a tall one. */
static int64_t slot_rows(const struct target *t, int64_t br)
{
	int64_t few = target_attention_skinny_mr(t);
	if (br <= 1)
		return 1;
	return br <= 2 * few ? round_up(br, few) : round_up(br, target_register_tile(t).mr);
}

/* Lists of rows are padded by a vector, since the last tile updates rows that do not exist. Blocks of keys are divided
 * only if there are fewer than 2 heads for each worker, so it leaves at most 2 * split partial results. */
void target_attention_scratch(const struct target *t, int64_t e, int64_t v,
                              const struct target_attention_sizes *s, struct target_attention_scratch *out)
{
	int64_t mr = target_register_tile(t).mr, rows = round_up(s->br, mr), value_pad = panel_round_up(v);
	struct attention_slots slot = {.n = t->group_size > 1 ? 0 : 2 * s->split,
	                               .rows = slot_rows(t, s->br)};
	if (target_attention_uses_amx(t, e) && mr < AMX_TILE_ROWS) {
		mr = AMX_TILE_ROWS;
		rows = round_up(rows, mr);
	}
	slot.list = panel_round_up(rows + PANEL_COLUMNS);
	slot.size = slot.rows * value_pad + 2 * slot.list;
	*out = (struct target_attention_scratch){.score_stride = s->bc + PANEL_COLUMNS, .slot = slot};
#define BUFFER(name, elements) \
	out->name = out->end;  \
	out->end += panel_round_up(elements);
#include "ir/target/attention_buffers.def"
}
