/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles by enumeration and closed forms. Every number that belongs to a machine
 * comes from its record; results of kernels depend on none of them but the keys
 * of a block of attention.
 */
#include "ir/target/tile.h"

#define PART_DEPTH 512 /* steps of K that are worth loading and storing the sums of a tile */
#define ROWS_LEAST 128 /* rows of x that are worth reading weights: as many as hide that x comes from L3 */

#define CODES_DEPTH_MAX (INT64_MAX / 4096)

static int64_t whole_lines_of(int64_t bytes)
{
	return (bytes + PANEL_ROW_BYTES - 1) / PANEL_ROW_BYTES * PANEL_ROW_BYTES;
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Bytes of the lines of so many elements. */
static int64_t code_bytes(const struct ir_format_desc *d, int64_t n)
{
	return PANEL_ROW_BYTES * (d->bits == 8 ? (n + 3) / 4 : (n + 31) / 32 * 4);
}

/* The least whose numbers are whole lines: all of these sizes are powers of two. All of K where rows have one scale. */
static int64_t section_of(const struct ir_format_desc *d, int64_t depth)
{
	int64_t scale = PANEL_COLUMNS * ir_dtype_bytes(d->scale), one = d->super > 1 ? PANEL_COLUMNS : scale;
	if (d->block == 0)
		return larger(depth, 1);
	int64_t blocks = larger(PANEL_ROW_BYTES / one, 1), supers = larger(PANEL_ROW_BYTES / scale, 1);
	return larger(d->block * (d->super > 1 ? larger(blocks, d->super * supers) : blocks), 32);
}

struct quant_panel_layout quant_panel_layout(enum ir_format f, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	int64_t scale = ir_dtype_bytes(d->scale), each = d->super > 1 ? 1 : scale;
	struct quant_panel_layout t = {.section = section_of(d, depth)};
	int64_t blocks = whole_lines_of(ir_format_blocks(f, t.section) * PANEL_COLUMNS * each);
	int64_t supers = whole_lines_of(ir_format_super_blocks(f, t.section) * PANEL_COLUMNS * scale);
	t.offsets = t.scales + blocks;
	t.super_scales = t.offsets + d->has_offset * blocks;
	t.super_offsets = t.super_scales + supers;
	t.lines = t.super_offsets + d->has_offset * supers;
	t.section_bytes = t.lines + code_bytes(d, t.section);
	int64_t rest = depth % t.section;
	t.bytes = depth / t.section * t.section_bytes + (rest > 0 ? t.lines + code_bytes(d, rest) : 0);
	return t;
}

bool panel_bytes(enum ir_format f, int64_t depth, int64_t *bytes)
{
	if (depth < 0 || depth > CODES_DEPTH_MAX)
		return false;
	*bytes = ir_format_is_quantized(f) ? quant_panel_layout(f, depth).bytes
	                                   : panel_row_count(ir_format(f)->dtype, depth) * PANEL_ROW_BYTES;
	return true;
}

#define INTEGER_DEPTH_MAX 131072 /* codes of -128 .. 127 whose products are summed in 32 bits */

static int64_t lower(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t quant_dot_block(enum ir_format f, struct activation_quant r, int64_t depth)
{
	const struct ir_format_desc *d = ir_format(f);
	if (r.bf16)
		return f == FORMAT_BF16 && depth >= 1 ? 0 : -1;
	int64_t x = r.block > 0 ? r.block : depth, w = d->block > 0 ? d->block : depth,
	        line = d->bits == 8 ? 4 : 32;
	int64_t step = lower(x, w);
	if (d->bits == 0 || r.block < 0 || depth < 1 || step > INTEGER_DEPTH_MAX)
		return -1;
	if (step >= depth)
		return 0;
	bool divides = (x >= depth || x % step == 0) && (w >= depth || w % step == 0);
	return divides && step % line == 0 ? step : -1;
}

struct activation_row_layout activation_row_layout(enum ir_format f, struct activation_quant r, int64_t depth)
{
	int64_t step = quant_dot_block(f, r, depth);
	struct activation_row_layout row = {.step = step > 0 ? step : depth};
	row.steps = (depth + row.step - 1) / row.step;
	row.starts = whole_lines_of(r.bf16 ? 2 * depth : depth);
	int64_t words = r.bf16 ? 0 : 4 * row.steps;
	row.scales = row.starts + words;
	row.totals = row.scales + words;
	row.bytes = whole_lines_of(row.totals + (ir_format(f)->has_offset ? words : 0));
	/* an odd number of lines, so that rows do not meet in the cache */
	row.bytes += row.bytes / PANEL_ROW_BYTES % 2 == 0 ? PANEL_ROW_BYTES : 0;
	return row;
}

bool tile_uses_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth)
{
	bool fits = r.bf16 || ir_format(f)->bits == 8;
	return target_has(t, FEATURE_AMX_TILE) && fits && quant_dot_block(f, r, depth) == 0;
}

/* Pairs of bytes or of halves are all that an x86 multiplies then. */
static bool has_pairs_alone(const struct target *t)
{
	return t->arch == ARCH_X86_64 && !target_has(t, FEATURE_AVXVNNI) &&
	       !target_has(t, FEATURE_AVX512VNNI);
}

bool tile_unpacks_to_i16(const struct target *t, enum ir_format f)
{
	return has_pairs_alone(t) && ir_format(f)->bits == 8;
}

bool tile_accumulates_i16(const struct target *t, enum ir_format f)
{
	return has_pairs_alone(t) && ir_format_u8_max(f) < 16;
}

#define MATRIX_STEP_LEAST 32 /* fewer products are summed faster by vectors than their sums are stored */

bool tile_blocks_use_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth)
{
	int64_t step = quant_dot_block(f, r, depth);
	bool fits = step >= MATRIX_STEP_LEAST && (step % PANEL_ROW_BYTES == 0 || PANEL_ROW_BYTES % step == 0);
	return target_has(t, FEATURE_AMX_TILE) && fits;
}

bool tile_unpacked_bytes(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth,
                         struct tile_unpacked_bytes *out)
{
	int64_t panel;
	*out = (struct tile_unpacked_bytes){0};
	if (!panel_bytes(f, depth, &panel))
		return false;
	struct activation_row_layout row = activation_row_layout(f, r, depth);
	if (!r.bf16 && tile_unpacks_to_i16(t, f))
		*out = (struct tile_unpacked_bytes){2 * row.starts, 2 * panel};
	else if (tile_blocks_use_amx(t, f, r, depth))
		*out = (struct tile_unpacked_bytes){0, row.steps * row.step * PANEL_COLUMNS};
	return true;
}

/* Vectors of a line of nr columns. */
static int vectors(const struct target *t, int nr)
{
	int lanes = t->lanes < PANEL_COLUMNS ? t->lanes : PANEL_COLUMNS;
	return nr / lanes;
}

int target_tile_registers(const struct target *t, int mr, int nr)
{
	int units = nr > t->lanes ? (nr + t->lanes - 1) / t->lanes : 1;
	return mr * units + units + 1 + !t->has_fma;
}

static bool hides_latency(const struct target *t, int mr, int nr)
{
	return mr * vectors(t, nr) >= t->fma_latency * t->fma_ports;
}

/* Each step of K loads mr elements of x and a line of weights for mr lines of multiply-adds. */
static bool hides_loads(const struct target *t, int mr, int nr)
{
	int line = vectors(t, nr);
	return mr * line * t->load_ports >= (mr + line) * t->fma_ports;
}

/* More products for each element that is loaded. */
static bool is_better(const struct register_tile *a, const struct register_tile *b)
{
	return (int64_t)a->mr * a->nr * (b->mr + b->nr) > (int64_t)b->mr * b->nr * (a->mr + a->nr);
}

struct register_tile target_register_tile(const struct target *t)
{
	struct register_tile best = {1, PANEL_COLUMNS};
	for (int nr = PANEL_COLUMNS; nr <= TILE_PANELS_MAX * PANEL_COLUMNS; nr *= 2)
		for (int mr = 1; mr <= TILE_MR_MAX; mr++) {
			const struct register_tile tile = {mr, nr};
			if (target_tile_registers(t, mr, nr) <= t->registers &&
			    mr * vectors(t, nr) <= t->max_accumulators && hides_latency(t, mr, nr) &&
			    hides_loads(t, mr, nr) && is_better(&tile, &best))
				best = tile;
		}
	return best;
}

int register_tile_mr(const struct target *t, struct register_tile tile, enum ir_dtype stored)
{
	int rows = tile.mr, line = vectors(t, tile.nr);
	if (stored == DT_F32)
		return rows;
	while (rows > 1 && (target_tile_registers(t, rows, tile.nr) + 1 > t->registers ||
	                    (t->k_lanes > 1 && rows * (line + 1) + 3 > t->registers)))
		rows--;
	return rows;
}

/* Registers beside the sums: a line and an element of x, with steps a scale and what a compiler moves ahead in a longer
 * loop; or vectors of x and of weights, the latter two of a line, the pair they become, or one and a mask. */
static int beside_rounded(const struct target *t, int line, int rows, bool has_steps)
{
	bool in_pairs = !has_steps && target_has(t, FEATURE_I8MM); /* two rows share a vector */
	if (t->k_lanes > 1)
		return (in_pairs ? (rows + 1) / 2 : rows) + 3;
	return line + (has_steps ? 4 : 2);
}

int register_tile_mr_i16(const struct target *t, struct register_tile tile)
{
	int line = vectors(t, tile.nr), rows = (t->registers - 2 * line - 4) / line;
	return rows < 1 ? 1 : rows < tile.mr ? rows : tile.mr;
}

int register_tile_mr_quantized(const struct target *t, struct register_tile tile, bool has_steps)
{
	int line = vectors(t, tile.nr), rows = tile.mr;
	while (rows > 1 &&
	       rows * line * (1 + has_steps) + beside_rounded(t, line, rows, has_steps) > t->registers)
		rows--;
	return rows;
}

int target_l1_ways(const struct target *t)
{
	int64_t ways = t->l1_bytes / TILE_WAY_BYTES;
	return ways < 1 ? 1 : ways < TILE_MR_MAX ? (int)ways : TILE_MR_MAX;
}

static int64_t at_least_panel(int64_t n)
{
	return n < PANEL_COLUMNS ? PANEL_COLUMNS : n / PANEL_COLUMNS * PANEL_COLUMNS;
}

int64_t target_gemm_kc(const struct target *t)
{
	int64_t quarter = t->l2_bytes / 4 / (4 * TILE_PANELS_MAX * PANEL_COLUMNS);
	return at_least_panel(quarter < PART_DEPTH ? quarter : PART_DEPTH);
}

int64_t target_gemm_mc(const struct target *t, int64_t depth)
{
	int64_t rows = t->l2_bytes / 4 * 3 / (4 * (depth > 0 ? depth : 1));
	return rows > ROWS_LEAST ? rows : ROWS_LEAST;
}

bool target_blocks_k(const struct target *t, int64_t depth)
{
	return depth > t->l2_bytes / 4 * 3 / (4 * target_register_tile(t).nr * t->l2_tiles);
}

void target_attention_blocks(const struct target *t, int64_t e, int64_t v, int64_t *br, int64_t *bc)
{
	int64_t features = e + v > 0 ? e + v : 1;
	int64_t by_l2 = t->l2_bytes / (32 * features), by_l1 = t->l1_bytes / 128;
	int64_t keys = by_l2 < by_l1 ? by_l2 : by_l1;
	keys = keys < ATTENTION_BLOCK_MAX ? keys : ATTENTION_BLOCK_MAX;
	*bc = at_least_panel(keys);
	int64_t most = t->arch == ARCH_OPENCL ? 64 : ATTENTION_BLOCK_MAX,
	        rows = t->l2_bytes / 4 / (4 * features);
	rows = rows < most ? rows : most;
	*br = rows > 1 ? rows : 1;
}

int target_attention_skinny_mr(const struct target *t)
{
	int mr = target_register_tile(t).mr;
	return mr >= 12 ? 4 : mr >= 4 ? 2 : 0;
}

static int64_t round_up(int64_t n, int64_t step)
{
	return (n + step - 1) / step * step;
}

bool target_attention_uses_amx(const struct target *t, int64_t e)
{
	return target_has(t, FEATURE_AMX_TILE) && e % (2 * PANEL_COLUMNS) == 0;
}

/* Rows that the tiles of a block write. */
static int64_t slot_rows(const struct target *t, int64_t br)
{
	int64_t few = target_attention_skinny_mr(t);
	if (br <= 1)
		return 1;
	return br <= 2 * few ? round_up(br, few) : round_up(br, target_register_tile(t).mr);
}

void target_attention_scratch(const struct target *t, int64_t e, int64_t v,
                              const struct target_attention_sizes *s, struct target_attention_scratch *out)
{
	int64_t mr = target_register_tile(t).mr, rows = round_up(s->br, mr), bc = s->bc;
	if (target_attention_uses_amx(t, e) && mr < AMX_TILE_ROWS) {
		mr = AMX_TILE_ROWS;
		rows = round_up(rows, mr);
	}
	*out = (struct target_attention_scratch){.queries = rows * panel_round_up(e),
	                                         .keys = bc * e,
	                                         .values = bc * panel_round_up(v),
	                                         .scales = bc,
	                                         .score_stride = bc + PANEL_COLUMNS,
	                                         .sums = rows * panel_round_up(v),
	                                         .rows = panel_round_up(rows + PANEL_COLUMNS),
	                                         .tile_rows = panel_round_up(mr),
	                                         .slot_rows = slot_rows(t, s->br),
	                                         .n_slots = t->group_size > 1 ? 0 : 2 * s->split};
	out->slot = out->slot_rows * panel_round_up(v) + 2 * out->rows;
	out->scores = mr * out->score_stride;
	out->bytes = 4 * (out->queries + out->keys + out->values + out->scores + out->sums + 2 * out->rows +
	                  4 * out->tile_rows + out->n_slots * out->slot + s->scales * out->scales);
}
