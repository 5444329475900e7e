/* SPDX-License-Identifier: Apache-2.0 */
/* Multiply-accumulate on a register tile and on AMX tiles, for GEMM and attention: the functions of reg_tile.h. */
#include "backends/kernels/reg_tile.h"

void reg_tile_zero(struct reg_tile *p, const char *name)
{
	struct kb_val zero = kb_splat(p->k, kb_f32(p->k, 0), p->lanes);
	for (int i = 0; i < p->rows * p->vectors; i++)
		p->sum[i] = kb_var(p->k, name, KB_TYPE(KB_F32, p->lanes), zero);
}

/* acc[row][v] += x * w. kb_dot_bf16 takes the broadcast operand, x, last: x86 reads it from memory. */
static void mac(const struct reg_tile *p, int row, int v, struct kb_val x, struct kb_val w)
{
	struct kb_val sum = reg_tile_acc(p, row, v);
	sum = p->pairs ? kb_dot_bf16(p->k, sum, w, x) : kb_fma(p->k, x, w, sum);
	kb_set(p->k, p->sum[row * p->vectors + v], sum);
}

void reg_tile_mac_vector(const struct reg_tile *p, int v, const struct kb_val *x, struct kb_val w)
{
	for (int row = 0; row < p->rows; row++)
		mac(p, row, v, x[row], w);
}

void reg_tile_mac_lane(const struct reg_tile *p, int v, const struct kb_val *x, int i, struct kb_val w)
{
	for (int row = 0; row < p->rows; row++)
		mac(p, row, v, kb_splat(p->k, kb_lane(p->k, x[row], i), p->lanes), w);
}

/* acc[row][v] += x[row] w[v] for one k and rows [from, to): the weights of the k-row are loaded once, x is
 * broadcast. */
void reg_tile_mac_k(const struct reg_tile *p, struct kb_val element, struct kb_val k_row, int i, int from,
                    int to)
{
	struct kb_val w[TILE_ACC_MAX];
	for (int v = 0; v < p->vectors; v++)
		w[v] = p->weights(p->user, k_row, i, v);
	for (int row = from; row < to; row++) {
		struct kb_type type = KB_TYPE(p->pairs ? KB_I32 : KB_F32, p->lanes);
		struct kb_val x = kb_load_splat(p->k, type, p->x[row], element, p->x_disp[row]);
		for (int v = 0; v < p->vectors; v++)
			mac(p, row, v, x, w[v]);
	}
}

void reg_tile_load_x(const struct reg_tile *p, struct kb_val element, int lanes, struct kb_val *x)
{
	for (int row = 0; row < p->rows; row++)
		x[row] = kb_load(p->k, KB_TYPE(KB_F32, lanes), p->x[row], element, p->x_disp[row], 0);
}

void reg_tile_mac_k_lane(const struct reg_tile *p, const struct kb_val *x, struct kb_val k_row, int i)
{
	for (int v = 0; v < p->vectors; v++)
		reg_tile_mac_lane(p, v, x, i, p->weights(p->user, k_row, i, v));
}

/* Transposes a square of lanes x lanes in registers: log2 lanes rounds of exchanging blocks of d elements between rows
 * i and i + d. */
void reg_tile_transpose(struct kb *k, struct kb_val *rows, int lanes)
{
	for (int d = 1; d < lanes; d *= 2) {
		int low[KB_LANES_MAX], high[KB_LANES_MAX];
		for (int l = 0; l < lanes; l++) {
			low[l] = l & d ? lanes + l - d : l;
			high[l] = l & d ? lanes + l : l + d;
		}
		for (int i = 0; i < lanes; i++) {
			if (i & d)
				continue;
			struct kb_val x = rows[i], y = rows[i + d];
			rows[i] = kb_shuffle(k, x, y, low, lanes);
			rows[i + d] = kb_shuffle(k, x, y, high, lanes);
		}
	}
}

void matrix_tiles_zero(const struct matrix_tiles *t)
{
	for (int i = 0; i < t->rows * t->columns; i++)
		kb_tile_zero(t->k, KB_TILE_ACC + i);
}

/* Address of the accumulator of row tile i, column tile c in the matrix at `at`. */
static struct kb_val acc_address(const struct matrix_tiles *t, struct kb_val at, int64_t step, int i, int c)
{
	return kb_ptr_add(t->k, at, kb_index(t->k, 0), i * KB_TILE_ROWS * step + c * KB_TILE_BYTES);
}

void matrix_tiles_load(const struct matrix_tiles *t, struct kb_val from, int64_t step)
{
	for (int i = 0; i < t->rows * t->columns; i++)
		kb_tile_load(t->k, KB_TILE_ACC + i,
		             acc_address(t, from, step, i / t->columns, i % t->columns),
		             kb_index(t->k, step));
}

/* One step along K: loads the tiles of x once, and each tile of weights into two registers in turn, so that a load
 * overlaps the products before. */
void matrix_tiles_mac_k(const struct matrix_tiles *t, struct kb_val x, struct kb_val w)
{
	struct kb *k = t->k;
	for (int i = 0; i < t->rows; i++)
		kb_tile_load(k, KB_TILE_X + i, kb_ptr_add(k, x, kb_index(k, 0), i * t->x_tile_stride),
		             kb_index(k, t->x_row_stride));
	for (int c = 0; c < t->columns; c++) {
		int weights = KB_TILE_WEIGHTS + c % 2;
		kb_tile_load(k, weights, kb_ptr_add(k, w, kb_index(k, 0), c * t->w_tile_stride),
		             kb_index(k, t->w_row_stride));
		for (int i = 0; i < t->rows; i++)
			kb_tile_dot(k, t->dot, KB_TILE_ACC + i * t->columns + c, weights, KB_TILE_X + i);
	}
}

void matrix_tiles_store(const struct matrix_tiles *t, struct kb_val to, int64_t step)
{
	for (int i = 0; i < t->rows * t->columns; i++)
		kb_tile_store(t->k, KB_TILE_ACC + i, acc_address(t, to, step, i / t->columns, i % t->columns),
		              kb_index(t->k, step));
}
