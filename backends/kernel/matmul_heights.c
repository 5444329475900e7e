/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heights of the tiles that rows are divided into. A low tile loads as many
 * weights as a high one and hides less latency, so many rows go through tiles of
 * at least half the full height: 128 rows in tiles of 14 are 8 x 14 + 8 + 8, not
 * 9 x 14 + 2. Results do not depend on the choice.
 */
#include "backends/kernel/matmul_internal.h"

/* For the few rows that no half tile takes. */
static const int low_heights[] = {8, 4, 2, 1};

/* The least height of tiles that many rows are divided into: half a tile, even. 0: tiles are low anyway, or
 * odd. */
static int least_height(const struct linear *l)
{
	return l->mr >= 6 && l->mr % 2 == 0 ? (l->mr / 2 + 1) / 2 * 2 : 0;
}

static bool is_low(const struct linear *l, int64_t rows)
{
	for (size_t i = 0; i < TFMC_COUNT(low_heights); i++)
		if (low_heights[i] == rows)
			return rows < l->mr;
	return false;
}

/* Between half and full height: even ones, and one odd one for an odd number of rows. */
static bool is_middle(const struct linear *l, int64_t rows)
{
	int least = least_height(l);
	return l->rows_hi > l->mr && least > 0 && rows >= least && rows < l->mr &&
	       (rows % 2 == 0 || rows == least + 1);
}

bool matmul_of_many(const struct linear *l, int rows)
{
	return is_middle(l, rows) && !is_low(l, rows);
}

/* The height for `left` rows, when they are more than a tile: what stays behind is no less than half a tile.
 */
static int64_t height_of_many(const struct linear *l, int64_t left)
{
	int64_t least = least_height(l);
	if (least == 0)
		return l->mr;
	if (left % 2 != 0)
		return left > 2 * least ? least + 1 : least;
	return left >= l->mr + least ? l->mr : left - least;
}

/* Heights of the last block when there are always so many rows: blocks before it are whole tiles. */
static void mark_heights(const struct linear *l, int64_t left, bool *used)
{
	for (int rows = l->mr; left > 0;) {
		int64_t most = left > l->mr ? height_of_many(l, left) : left;
		while (rows > most || (rows != l->mr && !is_middle(l, rows) && !is_low(l, rows)))
			rows--;
		used[rows] = true;
		left -= rows;
		rows = l->mr;
	}
}

int matmul_heights(const struct linear *l, int *height)
{
	/* Rows that a norm behind them needs are divided among workers as they come. */
	bool fixed = l->rows_lo == l->rows_hi && !l->after, used[MATMUL_ROWS_MAX + 1] = {false};
	int64_t tiles = l->rows_hi / l->mr;
	int n = 0;
	/* From 2 tiles on, more of them change nothing but for full ones. */
	for (int64_t i = 0; fixed && i <= tiles && i <= 4; i++)
		mark_heights(l, i < 4 ? l->rows_hi % l->mr + i * l->mr : l->rows_hi, used);
	for (int rows = l->mr; rows > 0; rows--) {
		bool can = rows == l->mr || is_middle(l, rows) || is_low(l, rows);
		if (can && rows <= l->rows_hi && (!fixed || used[rows]))
			height[n++] = rows;
	}
	return n;
}

struct kb_val matmul_height(struct linear *l, struct kb_val left)
{
	struct kb *k = l->k;
	struct kb_val mr = kb_index(k, l->mr), least = kb_index(k, least_height(l));
	if (l->rows_hi <= l->mr || least_height(l) == 0)
		return left;
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, left, kb_index(k, 1)), kb_index(k, 0));
	struct kb_val others = kb_sub(k, left, least);
	struct kb_val odd = kb_max(k, kb_min(k, others, kb_add_const(k, least, 1)), least);
	struct kb_val even = kb_min(k, others, mr);
	struct kb_val many = kb_select(k, is_odd, odd, even);
	/* Few rows in all walk over single panels, which tiles of middle heights cannot. */
	struct kb_val few = kb_select(k, kb_cmp(k, KB_LE, l->rows, mr), kb_min(k, left, least), left);
	few = kb_select(k, kb_cmp(k, KB_EQ, left, mr), mr, few);
	return kb_select(k, kb_cmp(k, KB_GT, left, mr), many, few);
}
