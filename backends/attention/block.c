/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block of keys for all rows of a task, register tile after register tile:
 * scores, weights relative to the row's maximum in the block, weighted values.
 * Each block's share of a row is computed from zero and then joined to what the
 * row has, so that blocks may be computed anywhere and joined in order.
 *
 * What happens to a row depends on its own number of visible keys and on the
 * place of the block only: keys a row does not see get the weight 0 and are left
 * out of its products, so that neither their values nor the row's neighbours in
 * the tile can change its bits.
 */
#include "backends/attention/internal.h"

struct kb_val attention_row_first(const struct attention *a, const struct attention_block *b,
                                  struct kb_val row)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	if (a->mask.window == 0)
		return zero;
	struct kb_val begin = attention_row_begin(a, &b->task->limits, kb_add(k, b->task->first, row));
	return kb_max(k, kb_min(k, kb_sub(k, begin, b->first), b->n), zero);
}

struct kb_val attention_row_end(const struct attention *a, const struct attention_block *b, struct kb_val row)
{
	struct kb *k = a->k;
	if (!a->mask.rows_differ)
		return b->n;
	struct kb_val limit = attention_row_limit(a, &b->task->limits, kb_add(k, b->task->first, row));
	return kb_max(k, kb_min(k, kb_sub(k, limit, b->first), b->n), kb_index(k, 0));
}

/* Tiles of more than one row, the higher ones first: those that the rows of a task can fill. Code for OpenCL, compiled
 * when a program starts, has one height of them. */
static int find_heights(const struct attention *a, int heights[2])
{
	int n = 0, few = attention_few(a);
	int64_t most;
	if (!kb_const_index(a->k, a->heads.rows, &most))
		most = INT64_MAX;
	if (most > (a->matrix ? attention_lowest(a) : 2 * few) && a->mr > 1)
		heights[n++] = a->mr;
	if (!a->matrix && few > 1 && most > 1 && (n == 0 || a->job->target->arch != ARCH_OPENCL))
		heights[n++] = few;
	return n;
}

/* The part of a step that has code for each height of a tile. */
typedef void height_step(const struct attention *a, const struct attention_block *b,
                         const struct attention_tile *t, int rows);

static void by_height(const struct attention *a, const struct attention_block *b,
                      const struct attention_tile *t, struct kb_val height, height_step *step)
{
	struct kb *k = a->k;
	int heights[2], n = find_heights(a, heights);
	for (int i = 0; i < n; i++) {
		kb_if(k, kb_cmp(k, KB_EQ, height, kb_index(k, heights[i])));
		step(a, b, t, heights[i]);
		kb_else(k);
	}
	step(a, b, t, attention_lowest(a));
	for (int i = 0; i < n; i++)
		kb_end_if(k);
}

/* Rows of the next tile when `left` rows are left: whole tiles, then low ones, the lowest. */
static struct kb_val choose_height(const struct attention *a, struct kb_val left)
{
	struct kb *k = a->k;
	int heights[2], n = find_heights(a, heights);
	struct kb_val low = kb_index(k, attention_lowest(a)), height = n ? kb_index(k, heights[0]) : low;
	if (n == 2) {
		struct kb_val is_few = kb_cmp(k, KB_LE, left, kb_index(k, (int64_t)2 * heights[1]));
		height = kb_select(k, is_few, kb_index(k, heights[1]), height);
	}
	/* where the lowest is one row, EQ costs a register less */
	struct kb_val is_low = kb_cmp(k, a->matrix ? KB_LE : KB_EQ, left, low);
	return n ? kb_select(k, is_low, low, height) : low;
}

/* The rows' keys end (and with a window begin) inside the block, one key after the other. */
static struct kb_val find_even(const struct attention *a, const struct attention_block *b,
                               struct kb_val first, struct kb_val last)
{
	struct kb *k = a->k;
	const struct attention_limits *l = &b->task->limits;
	struct kb_val row = kb_add(k, b->task->first, first), zero = kb_index(k, 0);
	struct kb_val end = kb_sub(k, attention_row_limit(a, l, row), b->first);
	struct kb_val is_even = kb_cmp(k, KB_GE, end, zero);
	if (a->mask.window == 0)
		return is_even;
	struct kb_val begin = kb_sub(k, kb_add(k, l->begin, row), b->first);
	struct kb_val upper = attention_row_end(a, b, first);
	struct kb_val apart = kb_cmp(k, KB_LE, attention_row_first(a, b, last), upper);
	is_even = kb_bin(k, KB_AND, is_even, kb_cmp(k, KB_GE, begin, zero));
	return kb_bin(k, KB_AND, is_even, apart);
}

/* Rows from `row` on, as many as a tile of this height has and the task. */
static struct attention_tile find_tile(const struct attention *a, const struct attention_block *b,
                                       struct kb_val row, struct kb_val height)
{
	struct kb *k = a->k;
	struct attention_tile t = {.row = row};
	t.rows = kb_min(k, height, kb_sub(k, b->task->n, row));
	struct kb_val last_row = kb_add_const(k, kb_add(k, row, t.rows), -1);
	t.low = attention_row_first(a, b, row);
	t.last = attention_row_end(a, b, last_row);
	t.common = kb_index(k, 0);
	t.common_end = attention_row_end(a, b, row);
	if (a->mask.window > 0) {
		t.common = kb_min(k, attention_row_first(a, b, last_row), t.last);
		t.common_end = kb_max(k, t.common_end, t.common);
	}
	if (attention_has_edges(a))
		t.is_even = find_even(a, b, row, last_row);
	return t;
}

void attention_block(const struct attention *a, const struct attention_block *b)
{
	struct kb *k = a->k;
	struct kb_var next = kb_var(k, "row", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val row = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, row, b->task->n));
	struct kb_val height = choose_height(a, kb_sub(k, b->task->n, row));
	const struct attention_tile t = find_tile(a, b, row, height);
	kb_if(k, kb_cmp(k, KB_GT, t.last, t.low));
	by_height(a, b, &t, height, attention_scores);
	attention_softmax(a, b, &t);
	by_height(a, b, &t, height, attention_values);
	kb_end_if(k);
	kb_set(k, next, kb_add(k, row, height));
	kb_end_forever(k);
}
