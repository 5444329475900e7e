/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads packed weights (panels of NR = 16 columns, ir/target/tile.h) of any format as f32 vectors of
 * neighbouring columns at one K element.
 *
 * A quantized weight is scale * quant + minimum of its block, rounded once where the target has FMA. scale *
 * quant alone is exact in formats without super-blocks whose scales are f16; scale and minimum of a
 * super-block are multiplied by its own scales first, which is exact. So every kernel sees the same f32
 * weights, and its sums have the bits of a product with dequantized weights.
 */
#ifndef TFMC_BACKENDS_KERNELS_PANEL_H
#define TFMC_BACKENDS_KERNELS_PANEL_H

#include "backends/kb/kb.h"
#include "ir/target/tile.h"

/* Contents of a k-row of PANEL_ROW_BYTES bytes: f32; pairs of bf16, even K element in the low half; two rows
 * of f16; quants. */
enum panel_kind { PANEL_F32, PANEL_BF16_PAIRS, PANEL_F16, PANEL_QUANTS };

struct panel {
	enum ir_format format;
	enum panel_kind kind;
	int64_t depth;       /* K */
	int64_t bytes;       /* of a panel */
	int64_t header;      /* quants: bytes of scales and minima at the beginning of a super-block */
	int k_per_line;      /* K elements of a k-row; of quants rounded up */
	int64_t bytes_per_k; /* of k-rows, for a K element */
	int k_align;         /* a K block begins at multiples of it */
	int live_registers;  /* quants: scale and minimum registers of a vector of columns, live along K */
	struct quant_group group; /* quants; of floats one element */
};
/* The layout of panels of the format with depth (K) elements in a column. */
struct panel panel_of(enum ir_format f, int64_t depth);

/* Floats: panels side by side. */
struct panel_reader {
	struct kb *k;
	const struct panel *panel;
	int lanes;
	struct kb_val at;     /* first k-row of the first panel */
	struct kb_val reload; /* an opaque copy of `at` for odd elements of pairs (kb_ptr_opaque); or none */
	/* A value that is not packed: k-rows are `row_stride` elements of type `stored` apart, panels are side by side
	 * in them; none: packed. */
	struct kb_val row_stride;
	enum kb_scalar stored;
};
/* Offset in a panel of the k-row of K element at + i, `at` a multiple of k_per_line: in words of pairs, else
 * elements. */
struct kb_val panel_k_row_offset(const struct panel_reader *r, struct kb_val at, int i);
/* Vector n of the pairs of the k-row at offset `k_row`; its even or odd bf16 elements as f32. */
struct kb_val panel_load_pairs(const struct panel_reader *r, struct kb_val from, struct kb_val k_row, int n);
struct kb_val panel_bf16_half(struct kb *k, struct kb_val pairs, int odd);
/* Element i of K of `lanes` columns of bf16 pairs as f32. at: offset of the u32 that holds elements 2 (i / 2) and
 * 2 (i / 2) + 1 of the first column. */
struct kb_val panel_load_bf16(struct kb *k, struct kb_val ptr, struct kb_val at, struct kb_val i, int lanes);
/* Vector n of K element i of the k-row at offset `k_row`, as f32. */
struct kb_val panel_load_f32(const struct panel_reader *r, struct kb_val k_row, int i, int n);

/* Columns [column, column + lanes) of K element i of panel `panel` of a matrix at ptr, as f32. */
struct kb_val panel_load_element(struct kb *k, const struct panel *p, struct kb_val ptr, struct kb_val panel,
                                 struct kb_val column, struct kb_val i, int lanes);
/* The same of K elements i .. i + 3 of the panel at `at`, to out[4]; i is a multiple of 4. */
void panel_load_four(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                     struct kb_val i, int lanes, struct kb_val *out);

/* Quants: columns [column, column + lanes) of K element i of the panel at `at`, dequantized to f32. */
struct kb_val panel_dequantize(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, int lanes);
/* panel_dequantize of elements i .. i + n - 1, n <= 4, to out[n]; i is a multiple of 4 if n > 1. */
void panel_dequantize_n(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                        struct kb_val i, int n, int lanes, struct kb_val *out);

/*
 * Quants of K elements i + 4 word .. i + 4 word + 3 as bytes, four in each i32 lane. word >= 0: i is a multiple of the
 * group; ANY_WORD: of 4, and the elements are i .. i + 3. u8: as stored, with zero points (formats without codebook).
 * i8: zero points subtracted and shifts added; formats of 8 bits must have zero point 128; formats with shifts must
 * have a codebook.
 */
#define ANY_WORD (-1)
struct kb_val panel_load_u8(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                            struct kb_val i, int word, int lanes);
struct kb_val panel_load_i8(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                            struct kb_val i, int word, int lanes);
/* A weight is scale * quant + offset; offset none: 0. */
struct panel_block {
	struct kb_val scale, offset;
};
/* Scales and minima of the block of K element i, to be used with panel_load_i8. */
struct panel_block panel_load_block(struct kb *k, const struct panel *p, struct kb_val at,
                                    struct kb_val column, struct kb_val i, int lanes);

/*
 * The decoder of packed quants, of every kernel: loads word i of a group in each lane, combines the pieces of its
 * quants, and looks up codebook indices. Returns bytes quant + zero point, or codebook entry + zero.
 */
struct panel_word {
	struct kb_val from, again; /* address; an opaque copy for pieces above bit 0, or none */
	struct kb_val group;       /* 4-byte word of the group's first k-row, in the first column */
	int64_t disp;              /* 4-byte words in addition */
	int i;
	int zero;          /* zero point of looked up bytes */
	bool shifts_bytes; /* the target shifts bytes (NEON) */
	bool is_unmasked;  /* bits above indices stay: the lookup ignores them */
};
struct kb_val panel_load_word(struct kb *k, const struct panel *p, const struct panel_word *w, int lanes);

/*
 * Of block b of the super-block at `at`, for vector v of the panels side by side: scales; i16 shifts, which are
 * added to quants of formats with shifts; minima (scale * shift in formats with shifts), none: the format has
 * none. factors: what integer scales or minima of the super-block are multiplied by, as panel_block_factors loads
 * them, equal for all blocks that share them; none: loaded here.
 */
struct panel_block panel_block_factors(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b,
                                       int v, int lanes);
/* Integer scales, or minima (offset), of blocks a and b as pairs of i16, that of a in the low half; formats with
 * super-blocks. */
struct kb_val panel_integer_pairs(struct kb *k, const struct panel *p, bool offset, struct kb_val at,
                                  struct kb_val a, struct kb_val b, int v, int lanes);
struct kb_val panel_block_scale(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                struct kb_val factors, int lanes);
struct kb_val panel_block_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                int lanes);
struct kb_val panel_block_offset(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b,
                                 int v, struct kb_val factors, int lanes);

/* A loop along K over panels of quants side by side, which dequantizes in registers. */
struct panel_loop {
	struct kb *k;
	const struct panel *panel;
	int lanes, vectors;
	struct kb_val at;     /* first panel */
	struct kb_val lo, hi; /* K elements; lo a multiple of k_align, hi as well or K */
	bool is_k_range;      /* [lo, hi) may be less than all of K */
	/* Called for n neighbours from K element `from` on; panel_loop_vector returns their weights. */
	void (*body)(void *user, const struct panel_loop *w, struct kb_val from, int n);
	void *user;
	/* State while body runs. */
	struct kb_val super_block; /* address of the super-block */
	bool is_first_use;         /* k-row row_word is read for the first time */
	struct kb_val k_before;    /* K elements in the k-rows before it */
	struct kb_val row_word;    /* word of the k-row in the super-block */
	struct kb_val tail_k;      /* K element outside full groups, dequantized alone; or none */
	struct panel_word word;    /* that is open */
	struct kb_val scale[TILE_ACC_MAX], offset[TILE_ACC_MAX];
	/* Bytes, where the open word has several pieces or codebook indices. */
	struct kb_val unpacked[TILE_ACC_MAX];
	bool is_unpacked;
};
/* Emits the loop, block by block of quants, whose scales are loaded once; then the remainder of K. */
void panel_loop(struct panel_loop *w);
/* Vector v of neighbour i, f32. */
struct kb_val panel_loop_vector(const struct panel_loop *w, int i, int v);

#endif
