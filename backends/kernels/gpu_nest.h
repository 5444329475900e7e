/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedule of a GEMM by work-groups as a value, as nest.h has the loop nest of processors: gpu_nest.c chooses it
 * from struct gemm before code is emitted, gpu_gemm.c emits the loops that it describes. Levels, from the outermost:
 *
 *           M        N                                     K
 *   task    rows     nc panels of each projection, of an   all
 *                    N block; all of N before a norm
 *   tile    rows     panels                                all
 *   step                                                   f32.step, or a quant block, in local memory
 *   item    mr rows  2 vectors of 4 columns                all
 *
 * Items that split K have 4 neighbours of each 64 elements, and of each panel one vector of columns, for all rows.
 */
#ifndef TFMC_BACKENDS_KERNELS_GPU_NEST_H
#define TFMC_BACKENDS_KERNELS_GPU_NEST_H

#include "backends/kernels/nest.h"

#define GPU_ITEMS         64 /* of a work-group */
#define GPU_COLUMNS       64 /* of a tile of many rows */
#define GPU_SIDE          8  /* items along rows, and along columns, of a tile */
#define GPU_LANES         4  /* of a vector */
#define GPU_ITEM_VECTORS  2  /* vectors of columns of an item, at a distance of half a tile */
#define GPU_MR_MAX        8
#define GPU_ACC_MAX       (GPU_MR_MAX * GPU_ITEM_VECTORS)
#define GPU_PANEL_VECTORS (MATMUL_PANEL / GPU_LANES)
#define GPU_K_ITEMS       (GPU_ITEMS / GPU_PANEL_VECTORS) /* items along K, where they split it */
#define GPU_COPIES_MAX    16
#define GPU_BLOCK         32 /* elements of a quant block of x */
#define GPU_WORDS         (GPU_BLOCK / 4)
/* Words of a quant block of x in local memory: 8 of quants, scale, scaled sum, 2 of padding. */
#define GPU_X_WORDS 12

/* The copy of x to local memory: vectors, or single elements, that a K step has. */
struct gpu_copy {
	int lanes, n;           /* of a vector; vectors of an item */
	int64_t per_row, items; /* vectors of a row; items that copy any */
};

/* Tiles of few rows, or of many. */
struct gpu_tile {
	bool splits_k;        /* items divide K and add up partial results; else rows and columns */
	int64_t rows, panels; /* of a tile; panels of both projections */
	int64_t nc;           /* panels of an N block, of one projection */
	int item_columns; /* item / item_columns is the row of an item, or where it is along K; the remainder its
	                       * vector of columns */
	int mr;           /* rows of an item, with stride GPU_SIDE; 0: items split K */
	int n_acc;        /* accumulators of an item: [mr][GPU_ITEM_VECTORS]; of split K [rows][panels] */
	/* Local memory, in elements of 4 bytes. The C buffer [rows][width], full tiles of both projections, begins at
	 * 0, the operands of a K step at `operands`: 0 where an N block is one tile of many rows, since C then
	 * overwrites them. x is [rows][x_row], or [rows][GPU_X_WORDS] if quantized. Weights follow at w:
	 * [step][GPU_COLUMNS]; of int8 words [GPU_WORDS][GPU_COLUMNS], scales and minima. Items that split K read
	 * weights into registers. */
	int64_t width, operands, elements;
	struct {
		int64_t step, x_row, w;
		struct gpu_copy full, tail; /* of a step; of the remainder of K */
	} f32;
	/* Integer products, in addition to f32: whether the device has them is known at run time. */
	struct {
		bool is_on, has_minima;
		int64_t w;
	} int8;
};

struct gpu_nest {
	int n_tiles; /* 2: the call selects by its rows, at most KERNEL_FEW_ROWS_MAX or more */
	struct gpu_tile tile[2];
	int64_t elements; /* of local memory, of any tile */
	int64_t means; /* elements, in addition: mean and deviation of each row, for a norm after the product */
};

/* Rows of a tile for at most `rows` rows: 8, 16, 32 or 64. */
int64_t gpu_tile_rows(int64_t rows);
/* Chooses the schedule for calls of [g->rows_lo, g->rows_hi] rows. False: it exceeds the target's local memory. */
bool gpu_nest_choose(const struct gemm *g, struct gpu_nest *n);
/* Appends the schedule in words, of one line. */
void gpu_nest_print(const struct gpu_nest *n, struct buf *out);

#define GPU_ATTENTION_ROWS    16 /* of a tile, at most */
#define GPU_ATTENTION_COLUMNS 4  /* of the output of an item */

/*
 * The schedule of attention by work-groups, whose items share a tile of rows of a head. Keys, then values, are copied
 * to local memory a local block at a time. An item has three roles: scores of a key with several rows, a part of the
 * softmax of a row, and columns of the output of several rows, in registers.
 */
struct gpu_attention {
	int64_t rows, keys; /* of a tile; of a local block */
	int64_t stride; /* of a key or its values: odd, so that neighbouring keys are in different banks */
	/* Local memory, in elements: queries [rows][E] at 0, [keys][stride], scores [rows][keys], two partial values
	 * of each item, a factor of each row. */
	int64_t kv, scores, partials, factors, elements;
	struct {
		int64_t row_stride; /* item / keys is the first row of an item, item % keys its key */
		int rows;
	} product;
	struct {
		int64_t items; /* of a row: the same for any number of rows, as it orders additions */
		int64_t keys;  /* of an item */
	} softmax;
	struct {
		int64_t columns,
		        row_stride;    /* item % columns is the first column, item / columns the first row */
		int n_rows, n_columns; /* of an item, with strides row_stride and GPU_ITEMS */
	} output;
};

/* Chooses the tile with most rows that local memory holds, for heads of `size` elements of queries and keys and
 * value_size of values; of a lower tile, where a call has at most rows_max rows, with the same order of additions.
 * False: no tile fits, or a head has more columns than items have registers. */
bool gpu_attention_choose(const struct target *t, int64_t size, int64_t value_size, int64_t rows_max,
                          struct gpu_attention *n);
/* Appends the schedule in words. */
void gpu_attention_print(const struct gpu_attention *n, struct buf *out);

#endif
