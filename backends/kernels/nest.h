/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop nest of a linear as a value: tiles, blocks, buffers and passes. nest.c chooses it from the shape, the format
 * and the target before code is emitted; matmul*.c emit the loops that it describes. Levels, from the outermost:
 *
 *           M                    N                      K
 *   task    m_block rows         unit panels
 *   block                        columns.nc panels      kc
 *   tile    row_tile[].rows      row_tile[].panels
 *   vector                       lanes
 *
 * A skinny GEMM has no M blocks: its rows pass over each tile of panels (pass[]).
 */
#ifndef TFMC_BACKENDS_KERNELS_NEST_H
#define TFMC_BACKENDS_KERNELS_NEST_H

#include "backends/kb/kb.h"
#include "backends/kernels/panel.h"
#include "ir/core/module.h"
#include "ir/support/buf.h"
#include "ir/target/tile.h"

#define MATMUL_PANEL    PANEL_COLUMNS
#define MATMUL_NC       TILE_PANELS_MAX /* panels of an N block, at least; no register tile is wider */
#define MATMUL_ROWS_MAX TILE_MR_MAX
#define MATMUL_ACC_MAX  TILE_ACC_MAX
#define MATMUL_X_WORDS  4  /* words of x in a vector that is multiplied by element (SDOT) or 2x2 (MMLA) */
#define MATMUL_CHUNK    32 /* K elements in an iteration: eight words of x */

/* Columns of the result. */
struct matmul_columns {
	int64_t n;        /* N, of one projection */
	int64_t panels;   /* ceil(n / 16): the last panel may be partial */
	int64_t unit;     /* panels that stay in one task, so that it has whole heads */
	int nc;           /* panels of an N block, a multiple of unit */
	int mats;         /* 2: gate and up, whose panels [panels, 2 panels) belong to up; else 1 */
	bool is_nc_fixed; /* an N block is a block of a block op */
};

/* Reduced precision: x is quantized to int8 or rounded to bf16 (op quantize_rows) before the product. */
struct matmul_lowp {
	bool is_on;                          /* false: x is f32 */
	struct activation_quant to;          /* type, and block length along K */
	struct activation_row_layout layout; /* of a row in the x buffer: quants, row sums, scales */
};

/* The GEMM that a nest is chosen for: its shape, its operands, and the parts of its group that decide on a nest. */
struct gemm {
	const struct target *target;
	struct kb_caps caps; /* of the target */
	/* Of the group: tile, blocks and scratch; decisions on the nest, if any. lanes: 0, or a divisor of 16
	 * (kernel_emit_group). */
	const struct attrs_group *attrs;
	int64_t rows_lo, rows_hi; /* bounds of M; of experts, when their nest is chosen, of an M block */
	int64_t depth;            /* K, or its bound (value.has_depth) */
	struct panel panel;       /* layout of B */
	struct matmul_columns columns;
	struct matmul_lowp lowp;
	/* Op matmul: B is a value. N or K may be known in the call only; neighbours along N may be neighbours in
	 * memory. */
	struct {
		bool is_on, has_n, has_depth, is_n_adjacent;
		enum ir_dtype dtype;
	} value;
	bool is_k_adjacent;  /* neighbours along K of a row of x are neighbours in memory */
	bool makes_x;        /* the prologue makes rows of x in scratch: a norm, quantization, or both */
	bool has_norm_after; /* the epilogue needs complete rows */
	/* The epilogue reads columns by ranges or in blocks, ends at an N known in the call, or is long: from the C
	 * buffer it is emitted once, else for each accumulator of each register tile. */
	bool needs_c_buffer;
	bool may_list_rows; /* rows of a padded batch beyond the lengths are never read (README.md) */
	bool shares_rows;   /* several work-items compute a task */
	int64_t x_block; /* work-groups: x in memory was quantized to int8 by blocks of that many elements; 0: no */
	int64_t weight_bytes; /* of the model, at least of this GEMM */
};
/* True if the last panel may have fewer than 16 columns. */
static inline bool gemm_has_partial_panel(const struct gemm *g)
{
	return g->value.has_n || g->columns.n % MATMUL_PANEL != 0;
}

/* The order of the loops: M blocks outside of N blocks; panels outside of rows, since reading B bounds the time; M
 * blocks whose accumulators AMX adds up in the C buffer, K block by K block. */
enum nest_order { NEST_M_BLOCKS, NEST_SKINNY, NEST_AMX };
/*
 * Operands of integer multiplies that are repacked in scratch for many rows (tile_unpacked_bytes): x and B as i16 for
 * pmaddwd, where each word of four bytes becomes the pairs (0, 2) and (1, 3); B as bytes, as panels of 8 bits have
 * them; or as bytes with signs, for AMX by dot blocks.
 */
enum nest_repack { REPACK_NONE, REPACK_I16, REPACK_BYTES, REPACK_AMX };

/* Row tile: register tiles of `rows` rows and `panels` panels, then single panels if any can be left. */
struct nest_rows {
	int rows, panels;
	bool has_single;
};

/*
 * Passes of a skinny GEMM over the rows of a tile of panels, for calls of at most rows_max rows: one if the rows fit
 * into a register tile, else ceil(rows / mr) of about equal height, which the call decides. Microkernels are emitted
 * for each height from high down to low.
 */
struct nest_pass {
	int64_t rows_max;
	int mr, high, low, panels;
	bool is_one;
	/* One pass prefetches the k-row at a distance of `ahead` bytes; 0: none does, since the hardware keeps up, or
	 * the group says prefetch=none. Of several each prefetches its share of the next panels; where a call has one,
	 * at that distance, unless the next panels fit into L2. */
	int64_t ahead;
	bool next_fits;
};

struct nest {
	enum nest_order order;
	int lanes;              /* of an accumulator; divides 16 */
	int mr, nr;             /* rows and panels of the main register tile */
	int64_t m_block;        /* rows of an M block, at most */
	int64_t unit, few_unit; /* panels of a task; the same in calls of at most mr rows */
	int64_t kc;  /* K block, between two of which accumulators are in the C buffer; 0: K is not blocked */
	int half_mr; /* the least rows of a row tile of many, while they are left; 0: rows are not balanced */
	int n_row_tiles;
	struct nest_rows row_tile[TILE_MR_MAX + 1]; /* that calls can need, by decreasing rows */
	int n_passes;
	struct nest_pass pass[4]; /* by increasing rows_max */
	/* Rows of x that the prologue makes in scratch. */
	struct {
		int64_t rows;           /* capacity */
		int64_t f32_row, bytes; /* where an f32 row is before it is quantized; the end of all */
	} x;
	struct {
		/* packed panels, converted in registers; copied: an f32 copy of the N block (B buffer); stored: a
		 * value where it is, of which the partial panel is copied */
		enum ir_keyword_b_from source;
		struct panel copy, stored; /* layouts: of a panel of the copy; of one where it is stored */
	} b;
	/* f32 accumulators [rows][width] before bias and epilogue: in the registers of the tile, on the stack, or in
	 * scratch. */
	struct {
		enum ir_keyword_c_in location;
		int64_t rows;  /* of a register tile; of an M block if K is blocked or AMX multiplies */
		int64_t width; /* columns of an N block, of both projections if there are two */
	} c;
	struct {
		enum nest_repack to;
		int group;          /* panels that are repacked at once */
		struct panel panel; /* layout of a repacked panel */
		int64_t row_bytes;  /* of all rows of x */
	} repack;
	/* Reduced precision: what multiplies a word of B, which is four bytes or two bf16 of a column, and one of x. */
	struct {
		enum kb_dot word; /* KB_DOT_U7S8_I16: i16 accumulators of a chunk are added to i32 after it */
		enum kb_dot square; /* of two words of two rows and two columns (MMLA) */
		int square_rows;    /* of a register tile that uses it, at least; 0: none */
		bool is_emulated;   /* `word` is several instructions */
		/* A byte is quant + zero. Unsigned bytes that are not looked up become signed ones (128 less) in
		 * registers, where the target has only s8 x s8, or x is multiplied by magnitude. */
		int zero;
		bool flips_sign;
		/* The unsigned operand of pmaddubsw is |x|, the signed one takes the sign of x: w (x < 0: -w - 1). What
		 * is missing, |x| of negative x, is in the corrections of the row. */
		bool by_magnitude;
		/* zero points times sums of x: a product of i16 pairs is faster than one of i32 */
		bool corrects_by_pairs;
		bool merges; /* tile_merges_dot_blocks */
	} dot;
	bool lists_rows;      /* M blocks are lists of the real rows of a padded batch */
	bool prefetches_next; /* row tiles prefetch the next block of B, each its share */
	char rejection[256];  /* which attribute of the group cannot be met, and its bound; "": none */
};

/* The K loop of a register tile. */
struct nest_tile {
	/* Elements of x (words in reduced precision) that are loaded as a vector and multiplied by element
	 * (NEON); 1: each is broadcast. */
	int x_lanes;
	/* f32: loops of `step` K elements, each over what the one before leaves; x_lanes of them as vectors of x. */
	int n_steps, step[3];
	/* f32: all rows of x are broadcast before vectors of B are loaded one by one; two K elements of them, so that a
	 * vector of bf16 pairs is used up; such a vector is loaded twice, not kept for its odd elements. */
	bool is_x_first, by_pairs, reloads_pairs;
	/* int8 and bf16 */
	int unroll;         /* K elements, of bf16 k-rows, of an iteration */
	bool is_square;     /* dot.square multiplies, then a remainder by words */
	int dot_blocks;     /* of an iteration: 2 if a group of quants has two, or two are merged */
	bool splits_groups; /* a scale belongs to half of a group of quants */
	int64_t loop_min;   /* K elements of a dot block from which on they are looped over */
	/* words in order, k-rows loaded for each: registers cannot hold all words of x of a group */
	bool in_x_order;
	/* k-rows are loaded again for further words, since the table of a codebook, or the words of x, need the
	 * register. */
	bool reloads;
	bool is_unmasked; /* codebook indices keep high bits, which the lookup ignores */
	int words_i16; /* words that i16 accumulators add up before they go to i32; 0: none, or a chunk (dot.word) */
	/* Factors of super-blocks stay in registers, or on the stack, while their blocks are scaled: a single row does
	 * not divide the cost of their conversion. */
	bool keeps_factors;
};

/* Rows of the main register tile: the attribute of the group, else the target's model for weights stored as that. */
int64_t nest_mr(const struct target *t, const struct attrs_group *s, enum ir_dtype stored);
/*
 * Chooses the nest of g: what attributes of its group say, and the rest by the model of the target. expert_rows: 0, or
 * the most rows of an M block of those that select an expert; the row bounds of g become those of the M block. nc of
 * its columns becomes that of the attributes. False: n->rejection says which attribute cannot be met; if none does, the
 * group has too little scratch for the panels that are made there.
 */
bool nest_choose(struct gemm *g, int64_t expert_rows, struct nest *n);
/* The attributes of g with the decisions of n: nest_choose takes them, and makes n of them. */
struct attrs_group nest_attrs(const struct gemm *g, const struct nest *n);
/* Appends the nest in words, of one line: the loops from the outermost, then where B, x and C are, then the attributes
 * that decide so. */
void nest_print(const struct gemm *g, const struct nest *n, struct buf *out);
/* The K loop of a tile of `rows` rows and `vectors` vectors of columns, whose k-rows are stored as `b`. */
struct nest_tile nest_tile(const struct gemm *g, const struct nest *n, const struct panel *b,
                           bool is_repacked, int rows, int vectors);

#endif
