/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a linear by work-groups share: strips.c divides rows and panels and finishes tiles, floats.c and
 * codes.c compute the products of a tile.
 */
#ifndef TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H
#define TFMC_BACKENDS_LINEAR_GPU_INTERNAL_H

#include "backends/linear/matmul_internal.h"
#include "backends/rows/rowwise.h"

#define SIDE   8  /* items of a row or column of items */
#define LANES  4  /* of a vector */
#define STEP   16 /* elements along K in shared memory */
#define X_ROW  20 /* STEP, padded: rows begin in other banks, and at whole vectors */
#define HALVES 2  /* vectors of columns of an item */
#define MR_MAX 8
#define BLOCK  32 /* elements along K of a step of bytes */
#define WORDS  (BLOCK / 4)
#define CODES  12 /* words of a row of x in such a step: codes, scale, scale times their sum, and padding */

struct shared_matmul {
	struct linear l;
	int mr;                    /* rows of an item */
	struct kb_val item;        /* number of this one */
	struct kb_val row, column; /* of this one: item / 8, item % 8 */
	/* Shared: x [8 mr, X_ROW] and w [STEP, 64], from element `operands` on, and products [8 mr, width] of a strip,
	 * which overwrite them where a strip is one tile wide. */
	struct kb_val tile;
	int64_t operands;
	int64_t strip;             /* panels of a strip, of one half */
	int64_t width;             /* columns of its products: whole tiles, of all halves */
	struct kb_val first_panel; /* of the open strip */
	struct kb_val before;      /* panels of the strip before the open tile */
	struct rowwise_tile norm;  /* rows of the strip; .norm NULL: x lies in memory */
	struct kb_var sum[MR_MAX][HALVES];
	bool has_codes;                    /* x and weights are codes */
	struct kb_var dot[MR_MAX][HALVES]; /* sums of a block of these */
};

/* Panel i of the open tile; one that does not exist is the last one. */
struct kb_val gpu_panel(const struct shared_matmul *g, int i);
/* Elements of shared memory that products need from g->operands on. */
int64_t gpu_operands(const struct shared_matmul *g);
/* Products of f32: g->sum of the open tile, which are zero before. */
void gpu_floats(struct shared_matmul *g);
/* The same of bytes; whether x and weights are codes. */
bool gpu_has_codes(const struct linear *l);
void gpu_codes(struct shared_matmul *g);

#endif
