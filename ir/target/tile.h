/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tile sizes and packed layouts of the CPU kernels, derived from a target record: register tiles (mr x nr) and cache
 * blocks (kc, mc) of the GEMM in the way of BLIS ("Analytical Modeling Is Enough for High-Performance BLIS", Low et
 * al. 2016), blocks of attention, and the bytes of packed weights, quantized activations and scratch that planner and
 * kernels agree on. A linear is C [M, N] = A [M, K] W^T; `depth` is K.
 *
 * Half of these functions are called by passes/group, which chooses sizes and reserves scratch, and by
 * backends/kernels, which lays it out; scratch for converted panels follows from the packed layout. Passes may not
 * include back ends, so the contract of both is in a module below both.
 */
#ifndef TFMC_IR_TARGET_TILE_H
#define TFMC_IR_TARGET_TILE_H

#include "ir/target/target.h"
#include "ir/types/format.h"

#define PANEL_COLUMNS       16   /* NR unit: a packed panel is 16 rows of W, that is 16 columns of C */
#define TILE_PANELS_MAX     4    /* panels of a register tile (nr / 16) */
#define TILE_MR_MAX         32   /* rows of a register tile */
#define TILE_ACC_MAX        64   /* vector accumulators of a register tile */
#define ATTENTION_BLOCK_MAX 4096 /* queries, and keys, of a block of attention */
#define TILE_WAY_BYTES      4096 /* of L1, on all targets: addresses that far apart share a cache set */
#define TILE_PAD            16   /* f32 elements, a cache line, between rows that would share a cache set */
#define C_BUFFER_ROWS       256  /* rows of C whose f32 accumulators stay in memory between blocks of K */
/* Scratch for those accumulators, of nr columns. */
#define C_BUFFER_BYTES ((int64_t)4 * C_BUFFER_ROWS * TILE_PANELS_MAX * PANEL_COLUMNS)

/* n rounded up to full panels. */
static inline int64_t panel_round_up(int64_t n)
{
	return ceil_div(n, PANEL_COLUMNS) * PANEL_COLUMNS;
}

/* Lanes of a vector of columns: a panel is at least one vector. */
static inline int tile_lanes(int64_t lanes)
{
	return lanes < PANEL_COLUMNS ? (int)lanes : PANEL_COLUMNS;
}

/*
 * A packed panel of floats is a sequence of k-rows of 64 bytes: the 16 columns of one K element, of 2-byte types of
 * two. bf16 is interleaved in pairs for the dot-product instructions (elements 2i and 2i + 1 of K in one u32, 2i in
 * the low half); f16 is two rows of 16.
 */
#define PANEL_ROW_BYTES (4 * PANEL_COLUMNS)
/* K elements of a k-row. */
static inline int panel_row_k(enum ir_dtype t)
{
	return ir_dtype_bytes(t) == 2 ? 2 : 1;
}
/* Number of k-rows of a panel. */
static inline int64_t panel_row_count(enum ir_dtype t, int64_t depth)
{
	return depth / panel_row_k(t) + depth % panel_row_k(t);
}

/*
 * Layout of a packed panel of quantized weights. The panel is one stream: super-blocks, each a range of K with the
 * scales of its blocks, then its quants. Super-blocks and their quants begin at multiples of 64 bytes.
 *
 *   scales   [blocks][16], then offsets [blocks][16], of the format's scale type; with super-blocks integers, followed
 *            by super-block scales [supers][16] and offsets [supers][16]. Scale and offset of 4 bits share a
 *            byte, the scale in its lower half
 *   quants   groups of K elements, each some k-rows (quant_group)
 *
 * The last super-block has only the groups it needs; quants after K are 0.
 */
struct quant_panel_layout {
	int64_t super_block; /* K elements of a super-block */
	/* Byte offsets in the super-block; offsets: only in formats that have them, and not of 4 bits. */
	int64_t scales, offsets;
	int64_t super_scales, super_offsets; /* likewise, only in formats with super-blocks */
	int64_t quants;                      /* byte offset of the quants */
	int64_t super_block_bytes;           /* of a full super-block */
	int64_t bytes;                       /* of the panel */
};
/*
 * Quants of b bits in k-rows. A word is four K neighbours of a column; byte j of a quant's word c is byte 4 c + j of a
 * k-row. A group is the least number of words that fills n k-rows (4 bits: 8 words, 4 k-rows). Word i of it is in k-row
 * i % n, from bit b (i / n) of each byte on, while b bits are left. What is left of the bytes (2 bits of 6, 3 of 5, 2
 * of 3) has the last words, in pieces: all that is left of one k-row after the other, then of those that were not
 * needed completely.
 */
struct quant_piece {
	int k_row, bit;    /* where the piece is: bits [bit, bit + bits) of bytes */
	int low_bit, bits; /* bits [low_bit, low_bit + bits) of the quant */
};
struct quant_word {
	int n, last_k_row; /* pieces; the last k-row that has one */
	struct quant_piece piece[3];
};
struct quant_group {
	int elements, words, k_rows;
	int n_unsplit; /* words 0 .. n_unsplit - 1 have one piece */
	struct quant_word word[8];
};
struct quant_group quant_group(int bits);
/* The layout of a panel of `depth` K elements in a quantized format. */
struct quant_panel_layout quant_panel_layout(enum ir_format f, int64_t depth);
/* Bytes of a packed panel of any format. False if too many for int64. */
bool panel_bytes(enum ir_format f, int64_t depth, int64_t *bytes);

/* Dynamic quantization of activations, as the op quantize_rows specifies it. */
struct activation_quant {
	bool bf16;     /* rounded to bf16; else to int8 with a scale for each block */
	int64_t block; /* elements along K; 0: the whole row */
};
/*
 * K elements whose products have one activation scale and one weight scale, and can be accumulated as int32 before they
 * are scaled; 0: all of K. bf16 activations with bf16 weights accumulate over all of K. -1: the pair has no integer or
 * bf16 dot products, or int32 could overflow.
 */
int64_t quant_dot_block(enum ir_format f, struct activation_quant r, int64_t depth);
/*
 * Layout of a quantized row of activations in scratch, byte offsets. First the values, zero padded to 64 bytes. Then,
 * for int8, one value for each dot block: the i32 zero-point correction, -zero * sum of the quants (of formats with
 * shifts the sum itself); the f32 scale; and for formats with offsets the f32 product of scale and sum, or, of dot
 * blocks that are merged (tile_merges_dot_blocks), the sums as pairs of int16.
 */
struct activation_row_layout {
	int64_t block, blocks; /* K elements of a dot block, K if quant_dot_block returns 0; their number */
	int64_t corrections, scales, offset_sums;
	int64_t bytes;
};
/* The layout of a row of `depth` elements quantized as r says, for weights of format f. */
struct activation_row_layout activation_row_layout(enum ir_format f, struct activation_quant r,
                                                   int64_t depth);

/*
 * True if the target has AMX and its tiles multiply these operands in one go: bf16, or int8 with one scale for all of
 * K. A register tile is then 2 x 2 AMX tiles, and up to AMX_OVERREAD_ROWS rows after the last one of a block may be
 * read.
 */
bool tile_uses_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth);
#define AMX_TILE_ROWS     32
#define AMX_OVERREAD_ROWS (AMX_TILE_ROWS - 1)
/* Scratch for the accumulators of a block of `rows` rows: full tiles of 128 columns; at least one tile of 256. */
#define AMX_C_BUFFER_BYTES(rows) (512 * ((rows) / AMX_TILE_ROWS + 2) * AMX_TILE_ROWS)

/*
 * Operands that are converted once in scratch before an integer GEMM of at least UNPACK_MIN_ROWS rows. x86 without
 * VNNI: quants of 8 bits are converted to int16 for vpmaddwd, twice the bytes. AMX with a scale for each dot block:
 * panels are unpacked to int8. Quants of 2, 3, 5 and 6 bits, elsewhere: they are unpacked to bytes.
 */
#define UNPACK_MIN_ROWS 16
/* Products of 32 4-bit quants are accumulated in int16 (vpmaddubsw): x86 without VNNI. */
bool tile_accumulates_i16(const struct target *t, enum ir_format f);
/*
 * Two neighbouring dot blocks of 16 K elements are merged: pmaddwd multiplies their int16 sums by the integer scales of
 * the blocks, and the int32 sum of both, which is exact as f32, is scaled by the factor of the super-block. x86 without
 * VNNI, formats with super-blocks, and activations whose scale both share. Sums of floats depend on it.
 */
bool tile_merges_dot_blocks(const struct target *t, enum ir_format f, struct activation_quant r,
                            int64_t depth);
/* AMX multiplies dot blocks, whose int32 results are then scaled. */
bool tile_blocks_use_amx(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth);
/* Bytes of a converted activation row and a converted panel; 0: used as stored. False if too many for int64. */
struct tile_unpacked_bytes {
	int64_t row, panel;
};
bool tile_unpacked_bytes(const struct target *t, enum ir_format f, struct activation_quant r, int64_t depth,
                         struct tile_unpacked_bytes *out);

/*
 * B [K, N] of op matmul, a value that is not packed before the call. Panels of all of K are packed in scratch, except
 * that the rows of one register tile, which read B once, read full panels where B is stored.
 */
struct value_panels {
	int64_t rows, depth; /* M, at most; K, or its bound */
	bool is_n_adjacent;  /* neighbours along N are neighbours in memory */
	bool has_partial; /* the last panel may have fewer than PANEL_COLUMNS columns, beyond which nothing is read */
};
/* True if register tiles of mr rows read full panels where B is stored, and `scratch` bytes hold the partial one. */
static inline bool value_is_read_unpacked(const struct value_panels *b, int64_t mr, int64_t scratch)
{
	return b->is_n_adjacent && b->rows <= mr &&
	       (!b->has_partial || b->depth <= scratch / PANEL_ROW_BYTES);
}

/* Register tile of a GEMM: mr rows of C times nr columns. */
struct register_tile {
	int mr, nr;
};

/* Vector registers an mr x nr tile needs: accumulators, one k-row of weights, one broadcast element of A, and without
 * FMA the product. */
int target_tile_registers(const struct target *t, int mr, int nr);
/*
 * The f32 register tile: of those that fit into the registers, hide the latency of FMA and are not bound by loads,
 * the one with the highest arithmetic intensity, mr nr / (mr + nr).
 */
struct register_tile target_register_tile(const struct target *t);
/* mr for f32 accumulators and weights stored as `stored`: converting 2-byte types needs another register, two where
 * vectors of A are held. */
int register_tile_mr(const struct target *t, struct register_tile tile, enum ir_dtype stored);
/* mr for quantized activations; has_blocks: f32 accumulators are held in addition to the int32 ones. */
int register_tile_mr_quantized(const struct target *t, struct register_tile tile, bool has_blocks);
/* mr for int16 accumulation (tile_accumulates_i16), while the f32 accumulators are in memory. */
int register_tile_mr_i16(const struct target *t, struct register_tile tile);
/* Consecutive f32 rows of `length` elements fall into the same set of L1, of which it holds target_l1_ways. */
static inline bool tile_rows_collide(int64_t length)
{
	return length > 0 && length % (TILE_WAY_BYTES / 4) == 0;
}
int target_l1_ways(const struct target *t);
/* Stride in elements of f32 rows in memory of our own: rows that would collide are padded by a cache line. */
static inline int64_t tile_row_stride(int64_t length)
{
	return tile_rows_collide(length) ? length + TILE_PAD : length;
}
/* kc: K elements of a block, so that nr columns of weights take at most a quarter of L2. A multiple of 16. */
int64_t target_gemm_kc(const struct target *t);
/* mc: rows of A of that depth that fit into three quarters of L2, but at least 128. */
int64_t target_gemm_mc(const struct target *t, int64_t depth);
/* K should be divided into blocks of kc: l2_tiles register tiles of weights of this depth exceed three quarters of
 * L2. */
bool target_blocks_k(const struct target *t, int64_t depth);
/*
 * Block sizes of attention for e features of queries and keys and v of values: *bc keys, whose keys and values take
 * an eighth of L2 and 32 k-rows of packed keys L1; *br queries of a task, whose queries and results take a quarter of
 * L2. With fewer queries keys would be packed too often; OpenCL has at most 64, as there are many work-items.
 */
void target_attention_blocks(const struct target *t, int64_t e, int64_t v, int64_t *br, int64_t *bc);
/* Split-KV: a slot holds the partial result of one KV block, in elements: acc [rows, V], max and sum [list]. */
struct attention_slots {
	int64_t n; /* in scratch; 0: none, or in memory of the call, as on GPUs */
	int64_t rows, size, list;
};
/* Buffers of attention in the scratch of a worker: offsets of f32 elements, each a multiple of 16. */
struct target_attention_scratch {
#define BUFFER(name, elements) int64_t name;
#include "ir/target/attention_buffers.def"
	int64_t end;          /* of all */
	int64_t score_stride; /* between rows of scores */
	struct attention_slots slot;
};
/* Schedule of attention: queries of a task, keys of a block, key blocks of a head that workers may divide (0: none);
 * whether keys and values are quantized and have scales. */
struct target_attention_sizes {
	int64_t br, bc, split;
	bool has_k_scale, has_v_scale;
};
void target_attention_scratch(const struct target *t, int64_t e, int64_t v,
                              const struct target_attention_sizes *s, struct target_attention_scratch *out);
/* mr of the smaller register tile of attention, for remainders and few queries; 0: there is none. */
int target_attention_skinny_mr(const struct target *t);
/* AMX multiplies bf16 queries and keys of e features, AMX_TILE_ROWS rows at a time. */
bool target_attention_uses_amx(const struct target *t, int64_t e);

#endif
