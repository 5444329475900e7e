/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The products of a register tile: rows of x times vectors of weights, whose sums stay in registers. Each sum is
 * one chain of fused multiply-adds in increasing step, whichever way the steps go.
 */
#ifndef TFMC_BACKENDS_KERNEL_PRODUCTS_H
#define TFMC_BACKENDS_KERNEL_PRODUCTS_H

#include "backends/kb/kb.h"
#include "ir/target/tile.h"

struct reg_tile {
	struct kb *k;
	int rows, vectors, lanes;
	bool pairs; /* elements of x and of weights are words of two bf16, a step is two of f32 */
	struct kb_val x[TILE_MR_MAX];    /* addresses of the rows of x, f32 */
	int64_t x_disp[TILE_MR_MAX];     /* elements */
	struct kb_var sum[TILE_ACC_MAX]; /* [rows, vectors] */
	/* Vector v, f32, of the weights of a step, of which this is the line; i: its place among unrolled ones. */
	struct kb_val (*weights)(const void *user, struct kb_val line, int i, int v);
	const void *user;
};

/* Sums of 0. */
void reg_tile_zero(struct reg_tile *p, const char *name);
static inline struct kb_val reg_tile_acc(const struct reg_tile *p, int row, int v)
{
	return kb_get(p->k, p->sum[row * p->vectors + v]);
}
/* The same for all rows, x[row] being the element in all lanes, or a vector whose element i it is. */
void reg_tile_mac_vector(const struct reg_tile *p, int v, const struct kb_val *x, struct kb_val w);
void reg_tile_mac_lane(const struct reg_tile *p, int v, const struct kb_val *x, int i, struct kb_val w);
/* A step for the rows [from, to): a line of weights in registers, one element of x after the other. */
void reg_tile_mac_k(const struct reg_tile *p, struct kb_val element, struct kb_val line, int i, int from,
                    int to);
/* Vectors of `lanes` elements of all rows, from `element` on. */
void reg_tile_load_x(const struct reg_tile *p, struct kb_val element, int lanes, struct kb_val *x);
/* A step with elements i of such vectors: one vector of weights after the other. */
void reg_tile_mac_k_lane(const struct reg_tile *p, const struct kb_val *x, struct kb_val line, int i);

/*
 * Sums of a block of up to four matrix tiles (kb.h), at most two of them for rows: 16 rows of x times 16 columns each,
 * in code between kb_tile_config_gemm and kb_tile_release.
 */
struct matrix_tiles {
	struct kb *k;
	enum kb_dot dot;
	int rows, columns; /* of tiles */
	/* Bytes from a row of x to the next one, from a line of weights; from what a tile reads to what the next does. */
	int64_t x_step, w_step, x_apart, w_apart;
};
/* Sums of 0, or rows at `from`, so many bytes from each other. */
void matrix_tiles_zero(const struct matrix_tiles *t);
void matrix_tiles_load(const struct matrix_tiles *t, struct kb_val from, int64_t step);
/* The configured bytes of the rows at x times the lines of weights at w that they take. */
void matrix_tiles_mac_k(const struct matrix_tiles *t, struct kb_val x, struct kb_val w);
/* Sums become rows at `to`, so many bytes from each other. */
void matrix_tiles_store(const struct matrix_tiles *t, struct kb_val to, int64_t step);

#endif
