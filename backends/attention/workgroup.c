/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by work-groups: the items of one share a tile of rows of a head. Block after block of keys is copied
 * to shared memory as f32; each item computes scores of one key with several rows, several items the powers of
 * a row, and each keeps sums of a column of values for several rows in registers (online softmax: Milakov and
 * Gimelshein 2018, arXiv 1805.02867, algorithm 3, by blocks).
 *
 * A section is a block of the schedule (bc keys), which begins at a multiple of its length: its sums are found from zero,
 * shared block after shared block, and then joined in order. So a new token's sections may be divided among groups, which
 * leave their sums for a second kernel (split.c; Dao and others 2023, Flash-Decoding): the same bits. A block of which a
 * row sees nothing leaves its sums as they are: what a row gives depends on the keys it sees alone. All items come to all
 * barriers.
 */
#include <float.h>

#include "backends/attention/attention.h"
#include "backends/attention/shared.h"

/* The highest tile whose memory there is. */
static bool find_sizes(const struct target *t, int64_t size, int64_t value_size, struct share_sizes *out)
{
	int64_t longest = size > value_size ? size : value_size;
	if (value_size > 4 * ITEMS || size > 4 * ITEMS)
		return false;
	for (int64_t rows = 16; rows >= 8; rows /= 2) {
		struct share_sizes n = {
		        .rows = rows, .keys = 2 * rows, .per_row = ITEMS / rows, .stride = longest | 1};
		n.elements = rows * size + n.keys * n.stride + rows * n.keys + 2 * ITEMS + rows;
		*out = n;
		if (n.elements * 4 <= t->shared_bytes)
			return true;
	}
	return false;
}

/* A power of two of rows, where there are few. */
static void lower_tile(struct share_sizes *n, int64_t rows)
{
	while (n->rows / 2 >= rows)
		n->rows /= 2;
}

int64_t attention_shared_rows(const struct target *t, int64_t size, int64_t value_size)
{
	struct share_sizes n;
	return t->group_size == ITEMS && find_sizes(t, size, value_size, &n) ? n.rows : 0;
}

/* ---- sections ---- */

/* Nothing was seen yet. */
static void clear(struct shared_attention *s, struct kb_var max, struct kb_var sum, struct kb_var acc[16][4])
{
	struct kb *k = s->k;
	kb_set(k, max, kb_f32(k, -FLT_MAX));
	kb_set(k, sum, kb_f32(k, 0));
	for (int i = 0; i < s->n_rows; i++)
		for (int c = 0; c < s->n_columns; c++)
			kb_set(k, acc[i][c], kb_f32(k, 0));
}

/* The section's sums join those before it, as join_columns of split.c joins what groups have left. */
static void join_section(struct shared_attention *s)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val before = kb_get(k, s->all_max), old, new;
	kb_set(k, s->all_max, attention_join_max(a, before, kb_get(k, s->max), &old, &new));
	struct kb_val sum = kb_mul(k, kb_get(k, s->sum), new);
	kb_set(k, s->all_sum, kb_fma(k, kb_get(k, s->all_sum), old, sum));
	kb_if(k, shared_is_first(s));
	kb_store(k, old, s->parts, s->row, 0, 0);
	kb_store(k, new, s->parts, s->row, ITEMS, 0);
	kb_end_if(k);
	kb_barrier(k);
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val row = shared_acc_row(s, i);
		old = shared_load(s, s->parts, row, 0);
		new = shared_load(s, s->parts, row, ITEMS);
		for (int c = 0; c < s->n_columns; c++) {
			struct kb_val x = kb_mul(k, kb_get(k, s->acc[i][c]), new);
			kb_set(k, s->all[i][c], kb_fma(k, kb_get(k, s->all[i][c]), old, x));
		}
	}
}

/* Row i and column c of this item are there. */
static struct kb_val has_sum(struct shared_attention *s, const struct attention_task *t, int i, int c)
{
	struct kb *k = s->k;
	struct kb_val row = kb_add_const(k, s->first_row, i * s->apart);
	struct kb_val column = kb_add_const(k, s->column, (int64_t)c * ITEMS);
	struct kb_val has_row = kb_cmp(k, KB_LT, row, kb_min(k, t->n, kb_index(k, s->n.rows)));
	return kb_bin(k, KB_AND, has_row, kb_cmp(k, KB_LT, column, kb_index(k, s->a->value_size)));
}

/* For the second kernel. */
static void leave_section(struct shared_attention *s, const struct attention_task *t, struct kb_val slot)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	const struct attention_sums to = attention_slot(a, a->job->sums, slot);
	struct kb_val is_first = shared_is_first(s), exists = kb_cmp(k, KB_LT, s->row, t->n);
	kb_if(k, kb_bin(k, KB_AND, is_first, exists));
	struct kb_val row = kb_add(k, t->first, s->row);
	kb_store(k, kb_get(k, s->max), to.max, row, 0, 0);
	kb_store(k, kb_get(k, s->sum), to.sum, row, 0, 0);
	kb_end_if(k);
	for (int i = 0; i < s->n_rows; i++)
		for (int c = 0; c < s->n_columns; c++) {
			kb_if(k, has_sum(s, t, i, c));
			row = kb_add(k, t->first, shared_acc_row(s, i));
			struct kb_val at = shared_place(k, row, a->value_pad, shared_acc_column(s, c));
			kb_store(k, kb_get(k, s->acc[i][c]), to.acc, at, 0, 0);
			kb_end_if(k);
		}
}

/* Keys of the task from `first` on that are of one section. */
static void run_section(struct shared_attention *s, const struct attention_head *h,
                        const struct attention_task *t, struct kb_val first)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct attention_task in = *t;
	in.end = kb_min(k, kb_add_const(k, first, a->bc), t->end);
	struct kb_val unseen = kb_max(k, kb_sub(k, t->begin, first), kb_index(k, 0));
	struct kb_val lo = kb_add(k, first, attention_round_down(k, unseen, s->n.keys));
	clear(s, s->max, s->sum, s->acc);
	struct kb_val block = kb_loop(k, "block", lo, in.end, s->n.keys, 0);
	shared_block(s, h, &in, block);
	kb_end_loop(k);
}

/* ---- a task ---- */

/* What brings the sums of the row to its result. */
static void find_factors(struct shared_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	struct kb *k = s->k;
	struct kb_val row = kb_min(k, s->row, kb_add_const(k, t->n, -1));
	struct kb_val max = kb_get(k, s->all_max), sum = kb_get(k, s->all_sum);
	shared_store_factor(s, attention_row_factor(s->a, h, kb_add(k, t->first, row), max, sum));
}

static void store_sums(struct shared_attention *s, const struct attention_head *h,
                       const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val factor = shared_load(s, s->factors, shared_acc_row(s, i), 0);
		struct kb_val row = kb_add(k, t->first, kb_add_const(k, s->first_row, i * s->apart));
		for (int c = 0; c < s->n_columns; c++) {
			struct kb_val column = kb_add_const(k, s->column, (int64_t)c * ITEMS);
			kb_if(k, has_sum(s, t, i, c));
			struct kb_val x = kb_mul(k, kb_get(k, s->all[i][c]), factor);
			attention_store(a, h, row, column, x);
			kb_end_if(k);
		}
	}
}

/* Sections from key lo, where one begins, up to hi; `slot`: of the one section, where they are divided. */
static void run_task(struct shared_attention *s, const struct attention_head *h,
                     const struct attention_task *t, struct kb_val lo, struct kb_val hi, struct kb_val slot)
{
	struct kb *k = s->k;
	shared_copy_queries(s, h, t);
	if (!s->is_split)
		clear(s, s->all_max, s->all_sum, s->all);
	struct kb_val first = kb_loop(k, "section", lo, hi, s->a->bc, 0);
	run_section(s, h, t, first);
	if (s->is_split)
		leave_section(s, t, slot);
	else
		join_section(s);
	kb_end_loop(k);
	if (s->is_split)
		return;
	find_factors(s, h, t);
	kb_barrier(k);
	store_sums(s, h, t);
	kb_barrier(k);
}

/* ---- all tasks ---- */

static void declare(struct shared_attention *s, struct kb_var *max, struct kb_var *sum,
                    struct kb_var acc[16][4])
{
	struct kb *k = s->k;
	*max = kb_var(k, "max", KB_F32_T, kb_f32(k, 0));
	*sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	for (int i = 0; i < s->n_rows; i++)
		for (int c = 0; c < s->n_columns; c++)
			acc[i][c] = kb_var(k, "acc", KB_F32_T, kb_f32(k, 0));
}

static void divide_items(struct shared_attention *s)
{
	struct kb *k = s->k;
	int64_t columns = 1, busy = s->n.rows * s->n.per_row;
	while (columns < ITEMS && columns < s->a->value_size)
		columns *= 2;
	s->row = kb_div_const(k, s->item, s->n.per_row);
	s->part = kb_rem_const(k, s->item, s->n.per_row);
	if (busy < ITEMS) {
		s->has_row = kb_cmp(k, KB_LT, s->item, kb_index(k, busy));
		s->row = kb_min(k, s->row, kb_index(k, s->n.rows - 1));
	}
	s->column = kb_rem_const(k, s->item, columns);
	s->first_row = kb_div_const(k, s->item, columns);
	s->apart = ITEMS / columns;
	s->n_rows = (int)((s->n.rows + s->apart - 1) / s->apart);
	s->n_columns = (int)((s->a->value_size + ITEMS - 1) / ITEMS);
	declare(s, &s->max, &s->sum, s->acc);
	if (!s->is_split)
		declare(s, &s->all_max, &s->all_sum, s->all);
}

static void divide_memory(struct shared_attention *s, struct kb_val memory)
{
	struct kb *k = s->k;
	struct kb_val zero = kb_index(k, 0);
	int64_t at = 0;
	s->q = memory;
	s->kv = kb_ptr_add(k, s->q, zero, (at += s->n.rows * s->a->size) * 4);
	s->scores = kb_ptr_add(k, s->q, zero, (at += s->n.keys * s->n.stride) * 4);
	s->parts = kb_ptr_add(k, s->q, zero, (at += s->n.rows * s->n.keys) * 4);
	s->factors = kb_ptr_add(k, s->q, zero, (at += 2 * ITEMS) * 4);
}

/* Task `task` of the line of all heads' tiles, or of all heads' tiles and sections. */
static void find_task(struct shared_attention *s, struct kb_val task, struct kb_val tiles)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val bc = kb_index(k, a->bc), part = task, slot = {0};
	if (s->is_split) {
		part = kb_div_const(k, task, a->split);
		slot = kb_rem_const(k, task, a->split);
	}
	struct kb_val head = kb_bin(k, KB_DIV, part, tiles), tile = kb_bin(k, KB_REM, part, tiles);
	struct kb_val b = kb_bin(k, KB_DIV, head, a->heads.heads);
	struct kb_val key_head = kb_bin(k, KB_REM, head, a->heads.heads);
	const struct attention_limits limits = attention_find_limits(a, b);
	const struct attention_head h = attention_find_head(a, b, key_head);
	struct kb_val first = kb_mul_const(k, tile, s->n.rows);
	struct kb_val n = kb_min(k, kb_sub(k, a->heads.rows, first), kb_index(k, s->n.rows));
	const struct attention_task t = attention_find_task(a, &limits, first, n);
	struct kb_val lo = attention_round_down(k, t.begin, a->bc), hi = t.end;
	if (s->is_split) {
		lo = kb_add(k, lo, kb_mul(k, slot, bc));
		hi = kb_min(k, hi, kb_add(k, lo, bc));
		slot = shared_place(k, head, a->split, slot);
	}
	run_task(s, &h, &t, lo, hi, slot);
}

/* divides: bool, the call divides sections; none: a kernel of calls that do, or of calls that do not. */
static void run_tasks(struct shared_attention *s, struct kb_val memory, struct kb_val divides)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	if (s->is_split)
		lower_tile(&s->n, a->scratch.slots.rows);
	divide_memory(s, memory);
	divide_items(s);
	struct kb_val tiles = kb_div_const(k, kb_add_const(k, a->heads.rows, s->n.rows - 1), s->n.rows);
	struct kb_val end = kb_mul(k, kb_mul(k, a->heads.batch, a->heads.heads), tiles);
	if (s->is_split)
		end = kb_mul_const(k, end, a->split);
	struct kb_val none = kb_index(k, 0);
	if (divides.id)
		end = kb_select(k, divides, s->is_split ? end : none, s->is_split ? none : end);
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, a->job->worker);
	kb_forever(k);
	struct kb_val task = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, task, end));
	find_task(s, task, tiles);
	kb_set(k, next, kb_add(k, task, a->job->n_workers));
	kb_end_forever(k);
}

void attention_shared(const struct attention *a)
{
	struct kb *k = a->k;
	struct shared_attention s = {.a = a, .k = k, .item = kb_item_id(k)}, split;
	struct kb_val divides = {0};
	int64_t rows;
	if (!find_sizes(a->job->target, a->size, a->value_size, &s.n))
		return;
	bool is_few =
	        a->split > 0 && kb_const_index(k, a->heads.rows, &rows) && rows <= a->scratch.slots.rows;
	struct kb_val memory = kb_shared(k, "tile", KB_F32, s.n.elements);
	split = s;
	split.is_split = true;
	if (a->split > 0 && !is_few)
		divides = attention_is_divided(a);
	if (!is_few)
		run_tasks(&s, memory, divides);
	if (a->split > 0)
		run_tasks(&split, memory, divides);
}
