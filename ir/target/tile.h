/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of tiles: from the record of a machine to the sizes that
 * kernels walk in. What bounds the templates themselves is here too, for
 * whoever chooses other sizes.
 */
#ifndef TFMC_IR_TARGET_TILE_H
#define TFMC_IR_TARGET_TILE_H

#include "ir/target/target.h"
#include "ir/types/format.h"

#define PANEL_COLUMNS       16 /* columns of a panel of weights; features of attention are rounded up to it */
#define TILE_PANELS_MAX     4  /* of a tile: the strip that a linear walks over together */
#define TILE_MR_MAX         32 /* of a register tile */
#define TILE_ACC_MAX        64 /* accumulators of a register tile */
#define ATTENTION_BLOCK_MAX 4096 /* queries and keys of a block of attention */
#define TILE_WAY_BYTES      4096 /* of L1, everywhere: addresses that far apart meet in a set */
#define TILE_PAD            16   /* elements between rows that would meet: a line */
#define TILE_KC_MAX         65536
#define C_BUFFER_ROWS       256 /* rows whose sums wait while K is walked over in parts */
/* Scratch for the sums of a strip. */
#define C_BUFFER_BYTES ((int64_t)4 * C_BUFFER_ROWS * TILE_PANELS_MAX * PANEL_COLUMNS)

/* n, rounded up to whole panels. */
static inline int64_t panel_round_up(int64_t n)
{
	return (n + PANEL_COLUMNS - 1) / PANEL_COLUMNS * PANEL_COLUMNS;
}

/* A panel is lines of 64 bytes: 16 columns of one element of K, or of two where elements have 2 bytes. bf16
 * lies in pairs, element 2 i of K in the low half of a word; f16 as two rows of 16. */
#define PANEL_ROW_BYTES (4 * PANEL_COLUMNS)
static inline int panel_row_k(enum ir_dtype t)
{
	return ir_dtype_bytes(t) == 2 ? 2 : 1;
}
static inline int64_t panel_row_count(enum ir_dtype t, int64_t depth)
{
	return depth / panel_row_k(t) + depth % panel_row_k(t);
}

/*
 * Panels of codes, 16 rows of a matrix [N, K]: sections of K one behind the other, so that who passes by a panel reads
 * one stream of memory. A section is what its blocks have, all 16 of one block beside each other, then lines of 64
 * bytes of codes; every part begins at a line.
 *
 *   first    scales [blocks][16], offsets [blocks][16], of the format's scale type, or signed bytes where there are
 *            super blocks; then scales [supers][16] and offsets [supers][16] of these
 *   8 bits   line l: byte 4 c + j is the code of column c and element 4 l + j of the section
 *   4 bits   four lines for 32 elements, from 32 b on; byte 4 c + j of line v: of element 32 b + 4 v + j in the low
 *            half, of element 32 b + 16 + 4 v + j in the high half
 *
 * The last section has no more lines than K wants. Elements beyond K have code 0.
 */
struct quant_panel_layout {
	int64_t section; /* elements of K */
	int64_t scales, offsets, super_scales,
	        super_offsets;        /* bytes from the section's beginning on; offsets: only
	                                                          in formats that have them */
	int64_t lines, section_bytes; /* the same; of a whole section */
	int64_t bytes;                /* of a panel */
};
struct quant_panel_layout quant_panel_layout(enum ir_format f, int64_t depth);
/* Bytes of a panel of any format. False: too many. */
bool panel_bytes(enum ir_format f, int64_t depth, int64_t *bytes);

/* What round_rows makes of x: bf16, or integers by blocks (0: whole rows). */
struct activation_quant {
	bool bf16;
	int64_t block;
};
/*
 * Products of rounded numbers: of integers with weights of codes, of bf16 with weights of bf16. The products of `step`
 * elements of K have one scale of x and one of each column, and are summed as integers of 32 bits; 0: all of K. -1: x
 * and the weights have no such products, or sums that do not fit.
 */
int64_t quant_dot_block(enum ir_format f, struct activation_quant r, int64_t depth);
/*
 * A row of x in scratch, bytes from its beginning: its codes or numbers, zeros up to a whole line; then of integers for
 * each step i32: minus the sum of codes that weights stored as code + zero want, in formats with shifts the sum itself;
 * f32: the scale; and for formats with offsets f32: the sum of codes times the scale.
 */
struct activation_row_layout {
	int64_t step, steps; /* step: as above, K instead of 0 */
	int64_t starts, scales, totals, bytes;
};
struct activation_row_layout activation_row_layout(enum ir_format f, struct activation_quant r,
                                                   int64_t depth);

/*
 * The target has matrix tiles, and they multiply such rows: bf16, or bytes with one scale for all of K. A register tile
 * of a linear is then two by two of them, and rows of x behind the last one of a block may be read, not used.
 */
#define AMX_TILE_ROWS     32
#define AMX_OVERREAD_ROWS (AMX_TILE_ROWS - 1)
/* Bytes of scratch where sums of a block of so many rows wait: whole tiles of 128 columns, one tile of 256 at least. */
#define AMX_C_BUFFER_BYTES(rows) (512 * ((rows) / AMX_TILE_ROWS + 2) * AMX_TILE_ROWS)
bool tile_uses_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth);

/*
 * Products of integers of at least so many rows, in forms of the factors that pay to make in scratch once. Where no
 * instruction multiplies bytes, they are halves of 16 bits: two words for each word of a row's codes and of a panel.
 * Where the target has matrix tiles, weights with a scale for each step are signed bytes, lines of all steps.
 */
#define UNPACK_MIN_ROWS 16
bool tile_unpacks_to_i16(const struct target *t, enum ir_format f);
/* Products of 32 codes of 4 bits are added with 16 bits where the target has no dot products of bytes. */
bool tile_accumulates_i16(const struct target *t, enum ir_format f);
bool tile_blocks_use_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth);
/* Bytes of these of a row of x and of a panel; 0: codes are multiplied as they lie. False: too many. */
struct tile_unpacked_bytes {
	int64_t row, panel;
};
bool tile_unpacked_bytes(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth,
                         struct tile_unpacked_bytes *out);

/* Rows and columns of the register tile of a linear. */
struct register_tile {
	int mr, nr;
};

/*
 * Registers that an mr x nr tile wants at once: its sums, a line of weights, one element of x (and, without a
 * fused multiply-add, the product).
 */
int target_tile_registers(const struct target *t, int mr, int nr);
/*
 * Among the tiles that fit into the registers, hide the latency of multiply-adds and are not bound by loads:
 * the one with most products for each element that is loaded, mr nr / (mr + nr).
 */
struct register_tile target_register_tile(const struct target *t);
/* Rows of the tile for weights that lie in memory as `stored`: narrow ones take a register more on their way
 * to f32, two where vectors of x are open beside them. */
int register_tile_mr(const struct target *t, struct register_tile tile, enum ir_dtype stored);
/* Rows of the tile of such products: where there are several steps, sums of f32 wait beside those of integers. */
int register_tile_mr_quantized(const struct target *t, struct register_tile tile, bool has_steps);
/* The same where products are added with 16 bits: meanwhile sums of f32 wait in memory. */
int register_tile_mr_i16(const struct target *t, struct register_tile tile);
/*
 * Rows of f32 of this length that lie side by side are a multiple of TILE_WAY_BYTES apart: they fall into one set
 * of L1, which holds target_l1_ways of them.
 */
static inline bool tile_rows_collide(int64_t length)
{
	return length > 0 && length % (TILE_WAY_BYTES / 4) == 0;
}
int target_l1_ways(const struct target *t);
/* Elements from one row of f32 to the next in memory of our own: such rows have a line between them. */
static inline int64_t tile_row_stride(int64_t length)
{
	return tile_rows_collide(length) ? length + TILE_PAD : length;
}
/* Rows of K that a linear walks over at once: a strip of weights takes a quarter of L2 at most. A multiple of 16. */
int64_t target_gemm_kc(const struct target *t);
/* Rows of x, as deep, that stay in three quarters of L2 while weights pass; enough of them where K is deep.
 */
int64_t target_gemm_mc(const struct target *t, int64_t depth);
/* Weights of l2_tiles register tiles, as deep, take more than three quarters of L2: walking over K in parts pays. */
bool target_blocks_k(const struct target *t, int64_t depth);
/*
 * Rows of queries of a task and keys of a block of attention, for heads of e features and values of v: keys
 * and values of a block take an eighth of L2, and 32 lines of a panel of keys in L1; queries and sums of a
 * task take a quarter of L2. Fewer rows than that cost packing of keys; work-items are many and have few rows
 * each.
 */
void target_attention_blocks(const struct target *t, int64_t e, int64_t v, int64_t *br, int64_t *bc);
/* Scratch of the attention kernel in elements of f32: what each part takes, e and v of the heads. */
struct target_attention_scratch {
	int64_t queries, keys, values, scores, sums;
	int64_t scales;       /* of the keys or values of a block */
	int64_t rows;         /* a vector longer than rows of a task */
	int64_t tile_rows;    /* those of a register tile in whole vectors */
	int64_t score_stride; /* from one row of scores to the next */
	/* Where workers divide the blocks of a head: sums, maxima and sums of weights of a block, for each
	 * block that one worker can have; work-groups leave them elsewhere. */
	int64_t slot_rows, slot, n_slots;
	int64_t bytes; /* of all parts, each in whole lines of 64 bytes */
};
/* Sizes of the schedule: rows of a task, keys of a block, blocks of a head that workers may divide; how many of keys and
 * values have scales. */
struct target_attention_sizes {
	int64_t br, bc, split;
	int scales;
};
void target_attention_scratch(const struct target *t, int64_t e, int64_t v,
                              const struct target_attention_sizes *s, struct target_attention_scratch *out);
/* Rows of the lower register tile of attention, 0: there is none. */
int target_attention_skinny_mr(const struct target *t);
/* bf16 factors of heads of e features are multiplied by matrix tiles, AMX_TILE_ROWS rows at a time. */
bool target_attention_uses_amx(const struct target *t, int64_t e);

#endif
