/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Microkernels of GEMM and attention: multiply-accumulate on a register tile of `rows` rows of x times `vectors`
 * vectors of weights, whose accumulators stay in registers. Each accumulator is one chain of fma in increasing k,
 * whatever the tile shape, so results are bitwise independent of the tiling.
 */
#ifndef TFMC_BACKENDS_KERNELS_REG_TILE_H
#define TFMC_BACKENDS_KERNELS_REG_TILE_H

#include "backends/kb/kb.h"
#include "ir/target/tile.h"

struct reg_tile {
	struct kb *k;
	int rows, vectors, lanes;
	bool pairs; /* x and weights are u32 of two bf16 (kb_dot_bf16): one k step covers two elements of K */
	struct kb_val x[TILE_MR_MAX];    /* addresses of the rows of x, f32 */
	int64_t x_disp[TILE_MR_MAX];     /* displacements from them, elements */
	struct kb_var sum[TILE_ACC_MAX]; /* accumulators [rows, vectors], f32 */
	/* Loads (and dequantizes) vector v of a k-row of the packed panel; k_row: its position, i: its
	 * number among the unrolled k steps. */
	struct kb_val (*weights)(const void *user, struct kb_val k_row, int i, int v);
	const void *user;
};

/* Creates the accumulators as variables called `name`, set to 0. */
void reg_tile_zero(struct reg_tile *p, const char *name);
static inline struct kb_val reg_tile_acc(const struct reg_tile *p, int row, int v)
{
	return kb_get(p->k, p->sum[row * p->vectors + v]);
}
/* acc[row][v] += x[row] * w for all rows; x[row]: the element of x in all lanes. */
void reg_tile_mac_vector(const struct reg_tile *p, int v, const struct kb_val *x, struct kb_val w);
/* acc[row][v] += x[row][i] * w for all rows: by-element multiply (NEON), x[row] being a vector along K. */
void reg_tile_mac_lane(const struct reg_tile *p, int v, const struct kb_val *x, int i, struct kb_val w);
/* One k step of rows [from, to): loads the k-row of weights into registers, then broadcasts one element of x after
 * the other from memory. element: index of the element of x. */
void reg_tile_mac_k(const struct reg_tile *p, struct kb_val element, struct kb_val k_row, int i, int from,
                    int to);
/* Loads `lanes` elements along K of each row, from `element` on, into x[rows]. */
void reg_tile_load_x(const struct reg_tile *p, struct kb_val element, int lanes, struct kb_val *x);
/* One k step with lane i of the vectors of reg_tile_load_x, which stay in registers: one vector of weights after the
 * other. */
void reg_tile_mac_k_lane(const struct reg_tile *p, const struct kb_val *x, struct kb_val k_row, int i);

/* In-register transpose of lanes x lanes: log2(lanes) rounds exchange halves of ever larger squares. */
void reg_tile_transpose(struct kb *k, struct kb_val *rows, int lanes);

/*
 * The microkernel on AMX tiles (kb.h): a block of up to four accumulator tiles of 16 rows of x times 16 columns, at
 * most two tiles high. Used between kb_tile_config_gemm and kb_tile_release.
 */
struct matrix_tiles {
	struct kb *k;
	enum kb_dot dot;
	int rows, columns;                  /* of the block, in tiles */
	int64_t x_row_stride, w_row_stride; /* bytes from one row of x, one k-row of weights, to the next */
	int64_t x_tile_stride,
	        w_tile_stride; /* bytes from the operand of one tile to the operand of the next */
};
/* Sets the accumulators to 0, or loads them from a matrix of f32 or i32 at `from`; step: its row stride in bytes. */
void matrix_tiles_zero(const struct matrix_tiles *t);
void matrix_tiles_load(const struct matrix_tiles *t, struct kb_val from, int64_t step);
/* acc += x * w over the K extent of one tile: the configured bytes of each row at x, the k-rows of weights at w. */
void matrix_tiles_mac_k(const struct matrix_tiles *t, struct kb_val x, struct kb_val w);
/* Stores the accumulators to a matrix at `to`; step: its row stride in bytes. */
void matrix_tiles_store(const struct matrix_tiles *t, struct kb_val to, int64_t step);

#endif
