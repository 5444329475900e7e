/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heights of the tiles that rows are divided into. A low tile loads as many
 * weights as a high one and hides less latency, so many rows go through tiles of
 * at least half the full height: 128 rows in tiles of 14 are 8 x 14 + 8 + 8, not
 * 9 x 14 + 2. Results do not depend on the choice. Code that is compiled when a
 * program starts (OpenCL) has few heights: its length is what the start takes.
 */
#include "backends/linear/matmul_internal.h"

/* For the few rows that no half tile takes. */
static const int low_heights[] = {8, 4, 2, 1};
#define LOW_OPENCL 4 /* the only one of them there, beside single rows */

bool matmul_is_short(const struct linear *l)
{
	return l->job->target->arch == ARCH_OPENCL;
}

/* The least height of tiles that many rows are divided into: half a tile, even. 0: tiles are low anyway, or
 * odd. */
static int least_height(const struct linear *l)
{
	if (matmul_is_short(l))
		return 0;
	return l->mr >= 6 && l->mr % 2 == 0 ? (l->mr / 2 + 1) / 2 * 2 : 0;
}

static bool is_low(const struct linear *l, int64_t rows)
{
	for (size_t i = 0; i < TFMC_COUNT(low_heights); i++)
		if (low_heights[i] == rows)
			return rows < l->mr && (!matmul_is_short(l) || rows == LOW_OPENCL || rows == 1);
	return false;
}

/* Between half and full height: even ones, and one odd one for an odd number of rows. */
static bool is_middle(const struct linear *l, int64_t rows)
{
	int least = least_height(l);
	return l->rows_hi > l->mr && least > 0 && rows >= least && rows < l->mr &&
	       (rows % 2 == 0 || rows == least + 1);
}

/* Few rows, too, go through tiles of the least height. */
bool matmul_of_many(const struct linear *l, int rows)
{
	return is_middle(l, rows) && !is_low(l, rows) && rows != least_height(l);
}

int matmul_heights(const struct linear *l, int *height)
{
	bool is_one = l->rows_lo == l->rows_hi && l->rows_hi <= l->mr && !l->norm.after;
	int64_t left = l->rows_hi;
	int n = 0;
	for (int rows = l->mr; rows > 0; rows--) {
		if (rows > left || (rows != l->mr && !is_middle(l, rows) && !is_low(l, rows)))
			continue;
		height[n++] = rows;
		left = is_one ? left % rows : left;
	}
	return n;
}

struct kb_val matmul_height(const struct linear *l, struct kb_val rows, struct kb_val left)
{
	struct kb *k = l->k;
	struct kb_val mr = kb_index(k, l->mr), least = kb_index(k, least_height(l));
	if (l->rows_hi <= l->mr || least_height(l) == 0)
		return left;
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, left, kb_index(k, 1)), kb_index(k, 0));
	/* What stays after a tile is no less than half a tile, where that can be. */
	struct kb_val others = kb_sub(k, left, least);
	struct kb_val odd = kb_max(k, kb_min(k, others, kb_add_const(k, least, 1)), least);
	struct kb_val even = kb_min(k, others, mr);
	struct kb_val many = kb_select(k, is_odd, odd, even);
	/* Few rows in all walk over single panels, which tiles of middle heights cannot. */
	struct kb_val few = kb_min(k, left, least);
	few = kb_select(k, kb_cmp(k, KB_LE, rows, mr), few, left);
	few = kb_select(k, kb_cmp(k, KB_EQ, left, mr), mr, few);
	return kb_select(k, kb_cmp(k, KB_GT, left, mr), many, few);
}
