/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise template: a row that the items of a work-group share. Each takes every
 * items-th element, in all walks the same ones, so that what it keeps of a row is
 * its own; sums meet in shared memory, in a tree that depends on the number of
 * items only. All items come to all barriers: rows are the group's.
 */
#include "backends/rows/rowwise_internal.h"

void rowwise_items_begin(struct rowwise *r)
{
	r->item = kb_item_id(r->k);
	r->sums = kb_shared(r->k, "sums", KB_F32, r->items);
}

void rowwise_items_walk(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_walk *w)
{
	struct kb *k = r->k;
	struct rowwise_chunk c = {.lanes = 1, .valid = 1};
	c.at = kb_loop(k, "j", kb_add(k, from, r->item), to, r->items, 0);
	rowwise_chunk(r, w, &c);
	kb_end_loop(k);
}

/* sums[item] = sums[item] op sums[item + half], for items below half */
static void fold(struct rowwise *r, enum kb_bin op, int64_t half)
{
	struct kb *k = r->k;
	kb_if(k, kb_cmp(k, KB_LT, r->item, kb_index(k, half)));
	struct kb_val mine = kb_load(k, KB_F32_T, r->sums, r->item, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, r->sums, r->item, half, 0);
	kb_store(k, kb_bin(k, op, other, mine), r->sums, r->item, 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

struct kb_val rowwise_items_reduce(struct rowwise *r, enum kb_bin op, struct kb_val mine)
{
	struct kb *k = r->k;
	kb_store(k, mine, r->sums, r->item, 0, 0);
	kb_barrier(k);
	for (int64_t half = r->items / 2; half >= 1; half /= 2)
		fold(r, op, half);
	struct kb_val all = kb_load(k, KB_F32_T, r->sums, kb_index(k, 0), 0, 0);
	kb_barrier(k); /* before the next sum overwrites it */
	return all;
}
