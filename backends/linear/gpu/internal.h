/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a linear by work-groups share: strips.c divides rows and panels and finishes tiles; floats.c, few.c
 * and codes.c compute the products of a tile, of which operands.c copies x to shared memory.
 */
#ifndef TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H
#define TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H

#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"

#define SIDE     8 /* items of a row or column of items */
#define LANES    4 /* of a vector */
#define HALVES   2 /* vectors of columns of an item */
#define MR_MAX   8
#define SUMS_MAX (MR_MAX * HALVES)
#define BLOCK    32 /* elements along K of a block of bytes */
#define WORDS    (BLOCK / 4)
#define CODES \
	12 /* words of such a block of x in shared memory: codes, scale, scale times their sum, and padding */

/* Few rows: items divide K, see few.c. */
#define FEW_ROWS 4 /* of a tile */
#define VECTORS  (MATMUL_PANEL / LANES)
#define LINES    (GPU_ITEMS / VECTORS) /* elements along K that items have side by side */

struct shared_matmul {
	struct linear l;
	bool is_few;
	int mr;                    /* rows of an item; its two vectors of columns are half a tile apart */
	int64_t rows, panels;      /* of a tile; panels of all halves */
	struct kb_val item;        /* number of this one */
	struct kb_val row, column; /* of this one: item / 8, item % 8; of few rows item / 4, item % 4 */
	/* Shared: operands from element `operands` on, and products [rows, width] of a strip, which overwrite them where
	 * a strip is one tile wide and rows are many. */
	struct kb_val tile;
	int64_t operands;
	int64_t strip;             /* panels of a strip, of one half */
	int64_t width;             /* columns of its products: whole tiles, of all halves */
	struct kb_val first_panel; /* of the open strip */
	struct kb_val before;      /* panels of the strip before the open tile */
	struct rowwise_tile norm;  /* rows of the strip, for a norm after the product */
	int n_sums;
	struct kb_var sum[SUMS_MAX]; /* vectors of this item: [mr][HALVES], of few rows [rows][panels] */
	bool has_codes;              /* x and weights are codes */
	struct kb_var dot[SUMS_MAX]; /* sums of a block of these */
};

/* What an item copies of x in each step of `step` elements: `n` vectors, or single elements, of one row each. */
struct x_share {
	bool is_vector;
	int n;
	int64_t step, per_row; /* of these in a row of a step */
	struct kb_val row[16]; /* element where the row begins in x */
};
/* Elements of a row of a step in shared memory: padded, so that rows begin in other banks, and at whole vectors. */
static inline int64_t gpu_x_row(int64_t step)
{
	return step + LANES;
}
/* x[first row .., from ..] -> [rows, gpu_x_row(step)] at the operands. Elements after the last are others of the row. */
void gpu_copy_x(struct shared_matmul *g, const struct x_share *x, struct kb_val from);
/* Emits the products of elements [from, from + n) of K, n <= the step: of whole steps in a loop, then of what is left. */
typedef void gpu_step_fn(struct shared_matmul *g, const struct x_share *x, struct kb_val from, int64_t n);
void gpu_walk_steps(struct shared_matmul *g, int64_t step, gpu_step_fn *emit);
/* Panel i of the open tile; one that does not exist is the last one. */
struct kb_val gpu_panel(const struct shared_matmul *g, int i);
/* Where a panel begins. */
struct kb_val gpu_panel_at(const struct linear *l, struct kb_val panel);
/* Columns [column, column + 4) of element i of K in a panel, f32. */
struct kb_val gpu_load_w(const struct linear *l, struct kb_val panel, struct kb_val column, struct kb_val i);

/* Elements of shared memory that products need from g->operands on. */
int64_t gpu_operands(const struct shared_matmul *g);
int64_t gpu_few_operands(const struct shared_matmul *g);
/* Products of f32: g->sum of the open tile, which are zero before. */
void gpu_floats(struct shared_matmul *g);
/* The same of bytes; whether x and weights are codes. */
bool gpu_has_codes(const struct linear *l);
void gpu_codes(struct shared_matmul *g);
/* Of few rows: products of this item; the sums of all items, to the stage. */
void gpu_few_floats(struct shared_matmul *g);
void gpu_few_codes(struct shared_matmul *g);
void gpu_few_join(struct shared_matmul *g);

/* A block of x as codes: from element `from` of row `row` on, to block `to` of the operands. */
void gpu_copy_x_codes(const struct shared_matmul *g, struct kb_val row, struct kb_val from, struct kb_val to);
/* Element where row `row` of the tile begins in x. */
struct kb_val gpu_find_row(const struct shared_matmul *g, struct kb_val row);
/* sum + dot (d_x d_w) + offset_w (d_x sum of x), of the block of x at element x of the operands + disp. */
struct kb_val gpu_add_block(const struct shared_matmul *g, struct kb_val sum, struct kb_val dot,
                            const struct panel_block *w, struct kb_val x, int64_t disp);

#endif
