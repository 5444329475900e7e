/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the CPU GEMM generator: y[M,N] = x[M,K] W[N,K]^T with packed weights (B), after the
 * blocking of Goto and van de Geijn (2008) and BLIS (2015).
 *
 *   nest.c                the loop nest as a value: tiles, blocks, buffers, passes
 *   matmul.c              division among workers, loop nest down to the microkernel; the same for the rows that
 *                         select an expert (mixture of experts)
 *   matmul_microkernel.c  one mr x nr register tile over K; store or epilogue; software prefetch of B
 *   matmul_lowp.c         K loops in int8 and bf16: dot8 (VNNI, SDOT), pmaddwd, 2x2 MMLA
 *   matmul_amx.c          int8 and bf16 by matrix tiles (AMX)
 *   matmul_skinny.c       GEMV and skinny GEMM: few rows, bound by the bandwidth of the weights
 *   matmul_prologue.c     made in scratch: rows of x (fused norm, dynamic quantization); B dequantized
 *                         to f32, packed from a value (op matmul), or repacked for integer multiplies
 *   matmul_epilogue.c     ops after the product, from the C buffer; of fused projections (q k v; gate and
 *                         up) by ranges of columns
 *
 * B is stored in panels of NR = 16 columns (ir/target/tile.h). A k-row of a panel is 64 bytes: its 16 columns
 * at one K element, or at as many as fit (2 of 16 bits, 4 of 8, 8 of 4; other quants: quant_group in tile.h).
 */
#ifndef TFMC_BACKENDS_KERNELS_MATMUL_INTERNAL_H
#define TFMC_BACKENDS_KERNELS_MATMUL_INTERNAL_H

#include "backends/kernels/batch_rows.h"
#include "backends/kernels/reg_tile.h"
#include "backends/kernels/generator.h"
#include "backends/kernels/nest.h"

/* Norms fused with the linear. */
struct matmul_norms {
	const struct ir_op *before; /* norm or concat that computes x; NULL: x is in memory */
	/* Reads y; needs complete rows, so that workers divide M only; NULL: none. */
	const struct ir_op *after;
};

/* Op matmul: B is a value [.., K, N], or [.., N, K], whose panels each worker packs into the B buffer. For the rows of
 * one register tile, which read B once, full panels are read where they are stored if neighbours along N are neighbours
 * in memory. */
struct matmul_value {
	const struct eval_tensor *t;       /* NULL: B is a packed weight */
	struct kb_size k_stride, n_stride; /* elements between neighbours along K, along N */
	/* Products, one for each index of the leading axes; none: one. The rows of x are those of all of them. */
	struct kb_val batches;
	struct kb_val n,
	        depth; /* N and K where the call has them, which gemm.columns.n and gemm.depth bound; else none */
};

/* Copies and accumulators of the nest in scratch, the latter perhaps on the stack; none: the nest has no such copy. */
struct matmul_buffers {
	struct kb_val x;       /* [nest.x.rows][row]: rows that the prologue made */
	struct kb_val f32_row; /* f32 [K]: a row before it is quantized */
	struct kb_val
	        b; /* [panels][K or kc][16]: quants of an N block dequantized, or columns of a value packed */
	struct kb_val c;                    /* [nest.c.rows][nest.c.width] */
	struct kb_val repacked_x, repacked; /* i16 [rows][2][bytes of a row]; [panels][nest.repack.bytes] */
	struct kb_val dot;  /* AMX by dot blocks: i32 [16][16], where a tile stores its accumulators */
	struct kb_val tail; /* AMX: the last k-rows of B, padded with zeros to a full tile */
};

/* A linear group: operands, shapes and the loop nest. Set up once, constant while code is emitted. */
struct linear {
	struct kernel *g;
	const struct kernel_job *job;
	struct kb *k;
	struct eval *eval;
	const struct eval_tensor *x; /* [..,K], before quantization; NULL: a fused norm computes it */
	const struct eval_tensor *w; /* [N,K] in panels; of experts [experts,N,K] */
	struct ir_value bias;        /* [N], or none */
	struct eval_output out; /* the group's result, or the operand of norm.after, on the root's axes */
	int rank;               /* of the result */
	struct kb_val size[IR_RANK_MAX]; /* of its axes */
	struct kb_val rows;              /* M: product of the leading axes (of values without batches) */
	struct kb_size k_stride;         /* elements between neighbours along K in a row of x */
	struct matmul_norms norm;
	struct matmul_value value;
	struct matmul_ranges *ranges; /* outputs by ranges of columns; NULL: one output */
	const struct ir_op *block_op; /* block_argmax or block_log_softmax ends the group; NULL: neither */
	struct batch_rows real; /* of a padded batch, if M counts its real rows; lengths none: all rows */
	/* i32: rows of the M block, which those of an expert and those of a padded batch are listed for; or none */
	struct kb_val row_list;
	struct kb_val row_runs; /* i32: listed rows that follow each other from each one on; or none */
	struct gemm gemm;
	struct nest nest;
	struct matmul_buffers buf;
};

/* A macro block of the loop nest: rows [row, row_end) x panels [begin, end) x K elements [k_lo, k_hi). */
struct matmul_block {
	struct kb_val rows; /* M: of the call, or of the expert's list */
	struct kb_val row, row_end;
	struct kb_val begin, end;
	/* Address of panel 0, element 0 of K (of the dequantized block: as if it had them). */
	struct kb_val weights;
	struct kb_val expert; /* or none */
	struct kb_val k_lo, k_hi;
	const struct panel *b_layout; /* B is read from the B buffer, stored like this; NULL: from memory */
	bool is_repacked;             /* B is read from buf.repacked */
};

/* Weight prefetch in a register tile: K element k prefetches base + k stride, or each k-row the one at
 * distance. */
struct matmul_prefetch {
	struct kb_val base;   /* address for k = 0; none: computed from row_tile */
	struct kb_val stride; /* bytes for each K element */
	int panels;           /* panels in which the address is prefetched; 0: one */
	int64_t distance;     /* bytes ahead of the k-row that is read; 0: use base and stride */
	struct kb_val
	        ahead; /* the distance in tiles whose panels the end of the weights may follow; or none */
	/* Index of the row tile: each prefetches its share of the next block; none: nothing. */
	struct kb_var row_tile;
};

/* A register tile: rows x panels of the result, from `row` and `panel` on. */
struct matmul_tile {
	int rows, panels; /* mr, nr; of a row tile 0 panels: as the nest has them */
	bool has_single;  /* of a row tile: single panels can be left */
	struct kb_val row, panel;
	struct kb_val mat;   /* 0: gate, 1: up, where columns.mats is 2 */
	struct kb_val c_row; /* first row in the C buffer */
	struct kb_var done;  /* none, or receives the rows of the tile that ran */
	struct matmul_prefetch prefetch;
};
typedef void matmul_tile_emitter(const struct linear *l, const struct matmul_block *s,
                                 const struct matmul_tile *t);

/* `at`, of projection `mat`; the panels, columns, .. of a projection begin `step` after those of the one before. */
static inline struct kb_val matmul_of_mat(const struct linear *l, struct kb_val at, struct kb_val mat,
                                          int64_t step)
{
	return l->gemm.columns.mats > 1 ? kb_add(l->k, at, kb_mul_const(l->k, mat, step)) : at;
}

/* ---- matmul.c ---- */
/* Binds operands, shapes and outputs. False: the layout does not suit register tiles. */
bool matmul_bind(struct linear *l, struct kernel *g);
/* Describes the GEMM to the chooser (l->gemm), from bound operands. */
void matmul_describe(struct linear *l);
/* Emits the tile once for each of n row tiles of decreasing rows: if (rows >= of[0].rows) ..; else if (rows >=
 * of[1].rows) ..; the last one always fits. */
void matmul_emit_by_rows(const struct linear *l, const struct matmul_block *s, struct matmul_tile t,
                         const struct nest_rows *of, int n, struct kb_val rows, matmul_tile_emitter *emit);
/* Opens a loop over the panels of the block: by tiles of t->panels; in the second call, if t->has_single, over those
 * that are left one by one. *end: where the loop before ended, none at first. False: there is no further loop. */
bool matmul_open_panels(const struct linear *l, const struct matmul_block *s, struct matmul_tile *t,
                        struct kb_val *end);
/* True if a register tile multiplies all of K, a constant. */
static inline bool matmul_has_constant_k(const struct linear *l)
{
	return !l->nest.kc && !l->value.depth.id;
}

/* ---- matmul_microkernel.c ---- */
/* Emits a register tile: the K loop, then its epilogue, or stores the accumulators in the C buffer. */
void matmul_microkernel(const struct linear *l, const struct matmul_block *s, const struct matmul_tile *t);
/* Number of row `row` of the M block: that in the row list, if any. */
struct kb_val matmul_listed_row(const struct linear *l, struct kb_val row);
/* Evaluator point of row `row` (of the row list, if any) and `column`. */
struct eval_point matmul_point(const struct linear *l, struct kb_val row, struct kb_val column);

/* ---- prefetch (matmul_microkernel.c) ---- */
/* Prefetch state for `rows` rows in register tiles of `mr` rows and `panels` panels. */
struct matmul_prefetch matmul_prefetch_begin(const struct linear *l, struct kb_val rows, int mr, int panels);
/*
 * Bytes from panel `panel` (of projection `mat`, or none) to the end of the model's weights, for prefetches that reach
 * `reach` bytes past the matrix; none: as many bytes of weights are stored there. Past the end no page may be mapped:
 * no TLB caches that, so each such prefetch costs a page walk.
 */
struct kb_val matmul_prefetch_end(const struct linear *l, struct kb_val panel, struct kb_val mat,
                                  int64_t reach);
/* Counts a row tile: the next one prefetches the next share. */
void matmul_prefetch_next_row_tile(const struct linear *l, const struct matmul_prefetch *a);
/* Emits the prefetch of K element k = at. */
void matmul_prefetch_k(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at);
/* Emits the prefetches of K elements [at, at + n), into L2. */
void matmul_prefetch_k_range(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                             int64_t n);
/* Emits the prefetch of a k-row of quants: K element `at`, word `word` of the super-block at `super_block`. */
void matmul_prefetch_line(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                          struct kb_val super_block, struct kb_val word);

/* ---- matmul_skinny.c ---- */
/* Emits the product of few rows whose weights come from memory: each worker reads a run of panels once. */
void matmul_skinny(const struct linear *l);

/* ---- matmul_prologue.c ---- */
/* Finds x and the ops that make it. False: these weights need another x. */
bool matmul_bind_x(struct linear *l);
/* Emits the prologue for rows [row, row_end). Each worker makes all of them for itself, if it has any of panels
 * [panel, panel_end): a barrier would cost more. */
void matmul_fill_x_buffer(const struct linear *l, struct kb_val row, struct kb_val row_end,
                          struct kb_val panel, struct kb_val panel_end);

/* ---- matmul_lowp.c ---- */
#define MATMUL_X_VECTORS 2 /* such vectors of a row that are live at once */

/* State of a register tile in reduced precision. p->x: rows of x_buf, with distances in words. */
struct matmul_lowp_tile {
	const struct linear *l;
	const struct reg_tile *p;
	const struct nest_tile *t;
	struct kb_val w; /* first panel */
	struct panel b;  /* layout of the k-rows that are read: of the panels, or repacked */
	/* Address of each panel, and an opaque copy of it: what is loaded again through the copy LLVM cannot
	 * keep in a register, which the table of a codebook or the words of x need. */
	struct kb_val panel[MATMUL_NC], reload[MATMUL_NC];
	struct quant_panel_layout layout; /* of super-blocks */
	/* The open dot block: address and first word of quants of its super-block, its first word in a row of x,
	 * 4-byte word of its first group of quants in a panel; its number in the iteration; half of that group it
	 * begins with: 0, or 1 where a group is two dot blocks. */
	struct kb_val super_block, quants_word, x_word, b_word;
	int part, half;
	struct panel_block
	        factors[MATMUL_ACC_MAX]; /* of vectors, kept for the open blocks that share them; or none */
	const struct matmul_prefetch *prefetch;
	struct kb_val repacked_x, repacked_w; /* rows of x (i16) and first panel, repacked; or none */
	struct kb_var acc[MATMUL_ACC_MAX];    /* i32, of the dot block */
	struct kb_var acc16
	        [MATMUL_ACC_MAX]; /* i16, of a chunk of 32 elements or a few words, where they fit; or none */
	struct kb_val x_words[MATMUL_X_VECTORS]
	                     [MATMUL_ROWS_MAX]; /* live vectors of x for multiplies by element */
};
/* K loops. int8: accumulators of a dot block are i32, scaled and added to p->sum. bf16: pairs, accumulated
 * in f32. */
void matmul_int8_loop(struct matmul_lowp_tile *c);
void matmul_bf16_loop(struct matmul_lowp_tile *c);
/* sum + scale_x scale_w integers (+ minimum_w sum_x) of dot block `dot_block`, for row m. */
struct kb_val matmul_add_scaled(const struct matmul_lowp_tile *c, struct kb_val dot_block, int m,
                                const struct panel_block *s, struct kb_val integers, struct kb_val sum);
/* The f32 value of an i32 sum over all of K, if K is one dot block: row m, vector v. */
struct kb_val matmul_dequantize_acc(const struct matmul_lowp_tile *c, int m, int v, struct kb_val integers);

/* ---- matmul_amx.c ---- */
static inline bool matmul_block_uses_amx(const struct linear *l, const struct matmul_block *s)
{
	return s->is_repacked && l->nest.repack.to == REPACK_AMX;
}
/* Configures tiles, and allocates what their loops keep on the stack; releases the tiles. */
void matmul_amx_begin(struct linear *l);
void matmul_amx_end(const struct linear *l);
/* Emits a macro block by AMX. */
void matmul_amx_block(const struct linear *l, const struct matmul_block *s);
/* By dot blocks: the K loop of 16 rows x 1 panel. */
void matmul_amx_per_block_loop(const struct matmul_lowp_tile *c);

/* ---- copies for many rows (matmul_prologue.c) ---- */
/* Addresses of the copies and accumulators of the nest (l->buf); begins AMX. */
void matmul_bind_buffers(struct linear *l);
/* Dequantizes, or packs, the block's K range into the B buffer; returns the block that reads it. */
struct matmul_block matmul_fill_b_buffer(const struct linear *l, const struct matmul_block *s);
/* Repacks the panels of a block, of all projections, into the buffer of nest.repack.group panels. */
void matmul_repack_block(const struct linear *l, const struct matmul_block *s);

/* ---- matmul_epilogue.c ---- */
/* Emits the epilogue of the first `rows` rows of the C buffer, which are rows first, first + 1, .. of the
 * result. */
void matmul_epilogue(const struct linear *l, const struct matmul_block *s, struct kb_val first,
                     struct kb_val rows);
/* Columns [lo, hi). */
struct matmul_range {
	struct kb_val lo, hi;
};
#define MATMUL_PIECES 8 /* work-items that share a row of the C buffer */
/* Columns [lo, hi) of `width` that piece `piece_id` has, if `any`; all of them if piece_id is none (one
 * worker). */
struct matmul_piece {
	struct kb_val lo, hi, any;
};
/* Finds a block op that ends the group. False: there is none, or its blocks are not N blocks. */
bool matmul_bind_block_op(struct linear *l);

/* ---- fused projections (matmul_epilogue.c) ---- */
/* Traces outputs to ranges of columns. False: an op of the group does not allow it. */
bool matmul_find_ranges(struct linear *l);

#endif
