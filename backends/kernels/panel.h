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
	int64_t depth;      /* K */
	int64_t bytes;      /* of a panel */
	int64_t header;     /* quants: bytes of scales and minima at the beginning of a super-block */
	int k_per_line;     /* K elements of a k-row */
	int k_align;        /* a K block begins at multiples of it */
	int live_registers; /* quants: scale and minimum registers of a vector of columns, live along K */
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
};
/* Offset in a panel of the k-row of K element at + i, `at` a multiple of k_per_line: in words of pairs, else
 * elements. */
struct kb_val panel_k_row_offset(const struct panel_reader *r, struct kb_val at, int i);
/* Vector n of the pairs of the k-row at offset `k_row`; its even or odd bf16 elements as f32. */
struct kb_val panel_load_pairs(const struct panel_reader *r, struct kb_val from, struct kb_val k_row, int n);
struct kb_val panel_bf16_half(struct kb *k, struct kb_val pairs, int odd);
/* Vector n of K element i of the k-row at offset `k_row`, as f32. */
struct kb_val panel_load_f32(const struct panel_reader *r, struct kb_val k_row, int i, int n);

/* Quants: columns [column, column + lanes) of K element i of the panel at `at`, dequantized to f32. */
struct kb_val panel_dequantize(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                               struct kb_val i, int lanes);
/* panel_dequantize of elements i .. i + n - 1, n <= 4, to out[n]; i is a multiple of 4 if n > 1. */
void panel_dequantize_n(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                        struct kb_val i, int n, int lanes, struct kb_val *out);

/*
 * Quants of K elements i + 4 k_row .. i + 4 k_row + 3 as signed bytes, four in each i32 lane, zero points
 * subtracted and shifts added; i is a multiple of 4, and of 16 if k_row > 0. Formats of 8 bits must have zero
 * point 128; formats with shifts must have a codebook.
 */
struct kb_val panel_load_i8(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val column,
                            struct kb_val i, int k_row, int lanes);
/* A weight is scale * quant + offset; offset none: 0. */
struct panel_block {
	struct kb_val scale, offset;
};
/* Scales and minima of the block of K element i, to be used with panel_load_i8. */
struct panel_block panel_load_block(struct kb *k, const struct panel *p, struct kb_val at,
                                    struct kb_val column, struct kb_val i, int lanes);

/* The decoder of packed quants, of every kernel: shifts words right, masks them, and looks up codebook indices, the low
 * four bits of each byte. Returns bytes quant or (codebook entry + zero), in the bits of the mask. */
struct panel_unpacking {
	struct kb_val shift; /* bits, i32; none: 0 */
	int32_t mask;        /* 0: bits beyond the quants stay */
	int zero;            /* zero point of looked up bytes */
};
struct kb_val panel_unpack(struct kb *k, const struct panel *p, struct kb_val words, struct panel_unpacking u,
                           int lanes);

/*
 * Of block b of the super-block at `at`, for vector v of the panels side by side: scales; i16 shifts, which are
 * added to quants of formats with shifts; minima (scale * shift in formats with shifts), none: the format has
 * none.
 */
struct kb_val panel_block_scale(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                int lanes);
struct kb_val panel_block_shift(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b, int v,
                                int lanes);
struct kb_val panel_block_offset(struct kb *k, const struct panel *p, struct kb_val at, struct kb_val b,
                                 int v, int lanes);

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
	bool is_first_use;      /* this k-row is read for the first time (of 4 bits: for its low nibbles) */
	struct kb_val k_before; /* K elements in the k-rows before it */
	struct kb_val row_word; /* word of the k-row in the super-block */
	struct kb_val tail_k;   /* K element outside full k-rows, dequantized alone; or none */
	int nibble;             /* 4 bits: 0 low, 1 high */
	struct kb_val scale[TILE_ACC_MAX], offset[TILE_ACC_MAX], looked_up[TILE_ACC_MAX];
};
/* Emits the loop, block by block of quants, whose scales are loaded once; then what is left of K. */
void panel_loop(struct panel_loop *w);
/* Vector v of neighbour i, f32. */
struct kb_val panel_loop_vector(const struct panel_loop *w, int i, int v);

#endif
