/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal interface of the GEMM generator for work-groups (GPUs).
 *
 *   gemm.c    division of rows and panels among groups, epilogue, choice between tiles of few and many rows
 *   f32.c     many rows: operands staged in local memory, outer products in registers
 *   int8.c    the same with dot4 of int8, where the device has it
 *   skinny.c  few rows: the items of a group split K
 *
 * A tile of many rows is [rows, 64] and has 8 x 8 items; item (i, j) computes rows i, i + 8, .. times two
 * vectors of four columns, 4 j and 4 j + 32.
 */
#ifndef TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H
#define TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H

#include "backends/kernels/matmul_internal.h"
#include "backends/kernels/rowwise.h"

#define SIDE         8 /* items along rows, and along columns, of a tile */
#define LANES        4 /* of a vector */
#define ITEM_VECTORS 2 /* vectors of columns of an item, half a tile apart */
#define MR_MAX       8
#define ACC_MAX      (MR_MAX * ITEM_VECTORS)
#define BLOCK        32 /* elements of a quant block */
#define WORDS        (BLOCK / 4)
/* Words of a quantized block of x in local memory: 8 of quants, scale, scaled sum, 2 of padding. */
#define X_WORDS 12

/* Few rows: see skinny.c. */
#define FEW_ROWS      4 /* of a tile */
#define PANEL_VECTORS (MATMUL_PANEL / LANES)
#define K_ITEMS       (GPU_ITEMS / PANEL_VECTORS) /* items along K */

struct wg_matmul {
	struct linear l;
	bool is_few;
	int mr;               /* rows of an item */
	int64_t rows, panels; /* of a tile; the panels of both projections */
	struct kb_val item;   /* local id */
	struct kb_val row,
	        column; /* of the item in the tile: item / 8, item % 8; few rows: item / 4, item % 4 */
	/* Local memory. The C buffer [rows, width] of the N block is at 0. Operands are at element
	 * `operands`: 0 where the block is one tile wide and rows are many, since C overwrites them. */
	struct kb_val tile;
	int64_t operands;
	int64_t nc;                /* panels of an N block, of one projection */
	int64_t width;             /* columns of the C buffer: full tiles of both projections */
	struct kb_val first_panel; /* of the open N block */
	struct kb_val before;      /* panels of the block before the open tile */
	struct rowwise_tile norm;  /* rows of the tile, also for a norm after the product */
	int n_acc;
	struct kb_var acc[ACC_MAX]; /* f32 accumulators [mr][ITEM_VECTORS]; few rows: [rows][panels] */
	bool has_int8;              /* x and weights are quantized */
	struct kb_var dot[ACC_MAX]; /* i32 accumulators of a quant block */
};

/* Part of x that an item copies in each K step of `step` elements: n vectors, or single elements, of one row
 * each. */
struct x_share {
	bool is_vector;
	int n;
	int64_t step, per_row; /* vectors or elements in a row of a step */
	struct kb_val row[16]; /* offset of the row in x, in elements */
};
/* Elements between rows of a step in local memory: padding puts rows into other banks and keeps vectors
 * aligned. */
static inline int64_t gpu_x_row_stride(int64_t step)
{
	return step + LANES;
}
/* Copies x[first row .., from ..] to the operands [rows, gpu_x_row_stride(step)]. Elements at or beyond K
 * repeat others of the row. */
void gpu_copy_x(struct wg_matmul *g, const struct x_share *x, struct kb_val from);
/* Emits K elements [from, from + n), n <= step. gpu_loop_k: a loop over full steps, then the remainder. */
typedef void gpu_step_fn(struct wg_matmul *g, const struct x_share *x, struct kb_val from, int64_t n);
void gpu_loop_k(struct wg_matmul *g, int64_t step, gpu_step_fn *emit);
/* Number of panel i of the open tile, clamped to the last panel. */
struct kb_val gpu_panel(const struct wg_matmul *g, int i);
/* Address of a panel. */
struct kb_val gpu_panel_at(const struct linear *l, struct kb_val panel);
/* Columns [column, column + 4) of K element i of a panel, as f32. */
struct kb_val gpu_load_w(const struct linear *l, struct kb_val panel, struct kb_val column, struct kb_val i);

/* Elements of local memory of the operands. */
int64_t gpu_operands(const struct wg_matmul *g);
int64_t gpu_skinny_operands(const struct wg_matmul *g);
/* Adds the product of the open tile to g->acc: in f32, in int8. */
void gpu_f32(struct wg_matmul *g);
void gpu_int8(struct wg_matmul *g);
/* True if x and weights are quantized so that int8 gives the bits of the reference. */
bool gpu_has_int8(const struct linear *l);
/* Few rows: this item's partial sums; then their sum over the items that split K, to the C buffer. */
void gpu_skinny_f32(struct wg_matmul *g);
void gpu_skinny_int8(struct wg_matmul *g);
void gpu_skinny_reduce(struct wg_matmul *g);

/* Quantizes the block of x at element `from` of the row at offset `row`, into block `to` of the operands. */
void gpu_quantize_x(const struct wg_matmul *g, struct kb_val row, struct kb_val from, struct kb_val to);
/* Offset in x of row `row` of the tile, clamped to the last row. */
struct kb_val gpu_x_row_offset(const struct wg_matmul *g, struct kb_val row);
/* sum + scale_x scale_w dot (+ minimum_w sum_x), for the block of x at element x + disp of the operands. */
struct kb_val gpu_add_scaled(const struct wg_matmul *g, struct kb_val sum, struct kb_val dot,
                             const struct panel_block *w, struct kb_val x, int64_t disp);

#endif
