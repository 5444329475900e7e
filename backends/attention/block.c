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

struct kb_val attention_row_first(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	if (a->window == 0)
		return zero;
	struct kb_val begin = attention_row_begin(a, kb_add(k, a->first_row, row));
	return kb_max(k, kb_min(k, kb_sub(k, begin, a->block.first), a->block.n), zero);
}

struct kb_val attention_row_end(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	if (!a->rows_differ)
		return a->block.n;
	struct kb_val limit = attention_row_limit(a, kb_add(k, a->first_row, row));
	struct kb_val n = kb_sub(k, limit, a->block.first);
	return kb_max(k, kb_min(k, n, a->block.n), kb_index(k, 0));
}

/* The part of a step that has code for each height of a tile. */
typedef void height_step(const struct attention *a, int rows);

static void by_height(const struct attention *a, struct kb_val height, height_step *step)
{
	struct kb *k = a->k;
	int depth = 0;
	const int heights[] = {a->mr, a->few};
	for (int i = 0; i < 2; i++) {
		if (heights[i] <= 1)
			continue;
		kb_if(k, kb_cmp(k, KB_EQ, height, kb_index(k, heights[i])));
		step(a, heights[i]);
		kb_else(k);
		depth++;
	}
	step(a, 1);
	while (depth-- > 0)
		kb_end_if(k);
}

/* Rows of the next tile when `left` rows are left: whole tiles, then low ones, one row alone. */
static struct kb_val choose_height(const struct attention *a, struct kb_val left)
{
	struct kb *k = a->k;
	struct kb_val height = kb_index(k, a->mr);
	if (a->few > 1) {
		struct kb_val few = kb_cmp(k, KB_LE, left, kb_index(k, (int64_t)2 * a->few));
		height = kb_select(k, few, kb_index(k, a->few), height);
	}
	return kb_select(k, kb_cmp(k, KB_EQ, left, kb_index(k, 1)), kb_index(k, 1), height);
}

/* The rows' keys end (and with a window begin) inside the block, one key after the other. */
static void find_even(struct attention *a, struct kb_val last_row)
{
	struct kb *k = a->k;
	struct kb_val row = kb_add(k, a->first_row, a->row), zero = kb_index(k, 0);
	struct kb_val end = kb_sub(k, attention_row_limit(a, row), a->block.first);
	a->is_even = kb_cmp(k, KB_GE, end, zero);
	if (a->window == 0)
		return;
	struct kb_val begin = kb_sub(k, kb_add(k, a->head.first_begin, row), a->block.first);
	struct kb_val upper = attention_row_end(a, a->row);
	struct kb_val apart = kb_cmp(k, KB_LE, attention_row_first(a, last_row), upper);
	a->is_even = kb_bin(k, KB_AND, a->is_even, kb_cmp(k, KB_GE, begin, zero));
	a->is_even = kb_bin(k, KB_AND, a->is_even, apart);
}

/* Rows from a->row on, as many as a tile of this height has and the task. */
static void run_tile(struct attention *a, struct kb_val height)
{
	struct kb *k = a->k;
	a->rows = kb_min(k, height, kb_sub(k, a->n_rows, a->row));
	struct kb_val last_row = kb_add_const(k, kb_add(k, a->row, a->rows), -1);
	a->low = attention_row_first(a, a->row);
	a->last = attention_row_end(a, last_row);
	a->common = kb_index(k, 0);
	a->common_end = attention_row_end(a, a->row);
	if (a->window > 0) {
		a->common = kb_min(k, attention_row_first(a, last_row), a->last);
		a->common_end = kb_max(k, a->common_end, a->common);
	}
	if (attention_has_edges(a))
		find_even(a, last_row);
	kb_if(k, kb_cmp(k, KB_GT, a->last, a->low));
	by_height(a, height, attention_scores);
	attention_softmax(a);
	by_height(a, height, attention_values);
	kb_end_if(k);
}

void attention_block(struct attention *a)
{
	struct kb *k = a->k;
	attention_copy_block(a);
	struct kb_var row = kb_var(k, "row", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	a->row = kb_get(k, row);
	kb_break_if(k, kb_cmp(k, KB_GE, a->row, a->n_rows));
	struct kb_val height = choose_height(a, kb_sub(k, a->n_rows, a->row));
	run_tile(a, height);
	kb_set(k, row, kb_add(k, a->row, height));
	kb_end_forever(k);
}
