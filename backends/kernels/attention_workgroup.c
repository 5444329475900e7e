/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by work-groups: the items of a group share a tile of rows of a head. Keys are copied to local
 * memory as f32, a local block at a time; each item computes scores of one key with several rows, several
 * items the probabilities of a row, and each accumulates a column of the output for several rows in registers
 * (online softmax: Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3, by blocks).
 *
 * A KV block of the schedule (bc keys, at a multiple of its length) is computed from zero, local block by
 * local block, and then combined in order. So the KV blocks of a new token may be divided among groups, which
 * leave partial results for a second kernel (attention_split.c): the same bits. A block in which a row sees nothing
 * leaves its partial result unchanged, so that a row depends only on the keys it sees. All items reach all
 * barriers.
 *
 * A local block is as many keys as local memory holds. Probabilities of masked keys are marked (ATTENTION_MASKED), so
 * that 0 times an infinite value does not occur.
 *
 * struct gpu_attention (gpu_nest.h) has the shares of an item. Of the items of a row the first is its leader; has_row:
 * false for items beyond the rows. Rows and columns that do not exist are clamped when loaded and not stored. is_split:
 * a task is one KV block, whose slot receives its partial result.
 */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "backends/kernels/attention.h"
#include "backends/kernels/attention_internal.h"
#include "backends/kernels/generator.h"
#include "backends/kernels/gpu_nest.h"

/* A partial result in registers of an item: of its row, and its columns of its rows. */
struct registers {
	struct kb_var max, sum;
	struct kb_var acc[GPU_ATTENTION_ROWS][GPU_ATTENTION_COLUMNS];
};

struct wg_attention {
	const struct attention *a;
	struct kb *k;
	struct gpu_attention n;
	struct kb_val item;
	/* Local memory. */
	struct kb_val q;        /* [rows,E] */
	struct kb_val kv;       /* [keys,stride] */
	struct kb_val scores;   /* [rows,keys] */
	struct kb_val partials; /* [2][GPU_ITEMS]: maxima and sums of the items of a row */
	struct kb_val factors;  /* [rows] */
	/* Softmax: this item's row, its number among the items of the row. */
	struct kb_val row, item_in_row;
	struct kb_val has_row;           /* bool: this item has a row; none: all items do */
	struct kb_val column, first_row; /* output: this item's first column and first row */
	struct registers block, all;     /* partial results: of the open KV block, of those before */
	bool is_split;                   /* KV blocks are divided among groups */
};

static inline struct kb_val index_2d(struct kb *k, struct kb_val row, int64_t stride, struct kb_val column)
{
	return kb_add(k, kb_mul_const(k, row, stride), column);
}

static inline struct kb_val load_shared(struct wg_attention *s, struct kb_val table, struct kb_val at,
                                        int64_t disp)
{
	return kb_load(s->k, KB_F32_T, table, at, disp, 0);
}

/* ---- one local block ---- */

/* Row i of this item's output, clamped to the last row. */
static struct kb_val acc_row(struct wg_attention *s, int i)
{
	struct kb *k = s->k;
	struct kb_val row = kb_add_const(k, s->first_row, i * s->n.output.row_stride);
	return kb_min(k, row, kb_index(k, s->n.rows - 1));
}

/* Column c of this item's output, clamped to the last column. */
static struct kb_val acc_column(struct wg_attention *s, int c)
{
	struct kb *k = s->k;
	struct kb_val column = kb_add_const(k, s->column, (int64_t)c * GPU_ITEMS);
	return kb_min(k, column, kb_index(k, s->a->value_size - 1));
}

/* bool: this item is the first of its row; all items of a row have the same maximum and sum. */
static struct kb_val is_row_leader(struct wg_attention *s)
{
	struct kb *k = s->k;
	struct kb_val first = kb_cmp(k, KB_EQ, s->item_in_row, kb_index(k, 0));
	return s->has_row.id ? kb_bin(k, KB_AND, first, s->has_row) : first;
}

/* The leader stores the factor of its row, for the items that have the row's columns; a barrier must follow. */
static void store_row_factor(struct wg_attention *s, struct kb_val factor)
{
	struct kb *k = s->k;
	kb_if(k, is_row_leader(s));
	kb_store(k, factor, s->factors, s->row, 0, 0);
	kb_end_if(k);
}

/* ---- copies ---- */

/* Copies the task's queries times q_factor to local memory, neighbouring items neighbouring elements; rows after the
 * last repeat it. */
static void copy_queries(struct wg_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val end = kb_index(k, s->n.rows * a->size);
	struct kb_val i = kb_loop(k, "i", s->item, end, GPU_ITEMS, 0);
	struct kb_val last = kb_add_const(k, t->n, -1), row = kb_min(k, kb_div_const(k, i, a->size), last);
	struct kb_val element = attention_offset(k, &a->q, ATTENTION_ELEMENT, kb_rem_const(k, i, a->size));
	struct kb_val from = attention_row_index(a, &a->q, kb_add(k, t->first, row));
	struct kb_val x = attention_load(k, &a->q, h->q, kb_add(k, from, element), 0, 1, 1);
	x = kb_mul(k, attention_round_factor(a, x), kb_f32(k, a->score.q_factor));
	kb_store(k, x, s->q, i, 0, 0);
	kb_end_loop(k);
}

/* Offset of element e of key j of the sequence, from the head's address: by the ring, by panels [E][16], or by
 * strides. */
static struct kb_val key_index(struct kb *k, const struct kb_tensor *t, int64_t size, struct kb_val j,
                               struct kb_val e)
{
	struct kb_val row = t->ring > 0 ? kb_rem_const(k, j, t->ring) : j;
	if (t->encoding == ENC_PANEL16) {
		struct kb_val row_offset = index_2d(k, kb_div_const(k, row, PANEL_COLUMNS), size, e);
		return index_2d(k, row_offset, PANEL_COLUMNS, kb_rem_const(k, row, PANEL_COLUMNS));
	}
	struct kb_val at = attention_offset(k, t, ATTENTION_ROW, row);
	return kb_add(k, at, attention_offset(k, t, ATTENTION_ELEMENT, e));
}

/* Copies keys or values of the local block from key `first` on, dequantized (int8 cache: times the key's scale); keys
 * at or beyond `end` repeat the last one and are masked later. Neighbouring items read neighbouring elements. */
static void copy_kv(struct wg_attention *s, const struct kb_tensor *t, struct kb_val head,
                    const struct kb_tensor *scales, struct kb_val head_scales, int64_t size,
                    struct kb_val first, struct kb_val end)
{
	struct kb *k = s->k;
	struct kb_val n = kb_index(k, s->n.keys * size);
	struct kb_val i = kb_loop(k, "i", s->item, n, GPU_ITEMS, 0);
	struct kb_val key = kb_div_const(k, i, size), e = kb_rem_const(k, i, size);
	if (t->encoding == ENC_PANEL16) { /* in storage order, coalesced */
		struct kb_val row_offset = kb_div_const(k, i, PANEL_COLUMNS);
		struct kb_val panel = kb_div_const(k, row_offset, size);
		key = index_2d(k, panel, PANEL_COLUMNS, kb_rem_const(k, i, PANEL_COLUMNS));
		e = kb_rem_const(k, row_offset, size);
	}
	struct kb_val last = kb_add_const(k, end, -1), j = kb_min(k, kb_add(k, first, key), last);
	struct kb_val x = attention_load(k, t, head, key_index(k, t, size, j, e), 0, 1, 1);
	if (attention_has(scales)) {
		struct kb_val row = scales->ring > 0 ? kb_rem_const(k, j, scales->ring) : j;
		struct kb_val at = attention_offset(k, scales, ATTENTION_ROW, row);
		x = kb_mul(k, x, attention_load(k, scales, head_scales, at, 0, 1, 1));
	}
	x = attention_round_factor(s->a, x);
	kb_store(k, x, s->kv, index_2d(k, key, s->n.stride, e), 0, 0);
	kb_end_loop(k);
}

/* ---- scores ---- */

/* Stores a score, with bias and softcap; -inf if the row does not see the key or the KV block ends before it. */
static void store_score(struct wg_attention *s, const struct attention_head *h,
                        const struct attention_task *t, struct kb_val row, struct kb_val key,
                        struct kb_val in_block, struct kb_val score)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val last = kb_add_const(k, t->n, -1);
	struct kb_val r = kb_add(k, t->first, kb_min(k, row, last));
	struct kb_val begin = attention_row_begin(a, &t->limits, r);
	struct kb_val limit = kb_min(k, attention_row_limit(a, &t->limits, r), t->end);
	struct kb_val from_begin = kb_cmp(k, KB_GE, key, begin);
	struct kb_val is_visible = kb_bin(k, KB_AND, from_begin, kb_cmp(k, KB_LT, key, limit));
	struct kb_var value = kb_var(k, "score", KB_F32_T, kb_f32(k, -HUGE_VALF));
	kb_if(k, is_visible);
	if (attention_has(&a->bias)) {
		struct kb_val at = attention_row_index(a, &a->bias, r);
		at = kb_add(k, at, attention_offset(k, &a->bias, ATTENTION_ELEMENT, key));
		struct kb_val x = attention_load(k, &a->bias, h->bias, at, 0, 1, 1);
		score = kb_fma(k, x, kb_f32(k, a->score.bias_factor), score);
	}
	if (a->score.cap > 0)
		score = attention_softcap(k, score, a->score.cap);
	kb_set(k, value, score);
	kb_end_if(k);
	struct kb_val to = index_2d(k, row, s->n.keys, in_block);
	kb_store(k, kb_get(k, value), s->scores, to, 0, 0);
}

/* Scores of this item's key with its rows: chains of FMAs in increasing element. An item has the rows item / keys,
 * + each, ..; with more items than scores the others wait. */
static void compute_scores(struct wg_attention *s, const struct attention_head *h,
                           const struct attention_task *t, struct kb_val first)
{
	struct kb *k = s->k;
	int64_t each = s->n.product.row_stride;
	bool has_spare = s->n.rows < each; /* more items than rows */
	int n = s->n.product.rows;
	struct kb_var sum[GPU_ATTENTION_ROWS];
	struct kb_val key = kb_rem_const(k, s->item, s->n.keys), row = kb_div_const(k, s->item, s->n.keys);
	if (has_spare)
		kb_if(k, kb_cmp(k, KB_LT, row, kb_index(k, s->n.rows)));
	struct kb_val from = kb_mul_const(k, key, s->n.stride), q = kb_mul_const(k, row, s->a->size);
	for (int i = 0; i < n; i++)
		sum[i] = kb_var(k, "product", KB_F32_T, kb_f32(k, 0));
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, s->a->size), 1, KB_NONEMPTY);
	struct kb_val y = load_shared(s, s->kv, kb_add(k, from, e), 0), at = kb_add(k, q, e);
	for (int i = 0; i < n; i++) {
		struct kb_val x = load_shared(s, s->q, at, i * each * s->a->size);
		kb_set(k, sum[i], kb_fma(k, x, y, kb_get(k, sum[i])));
	}
	kb_end_loop(k);
	struct kb_val j = kb_add(k, first, key);
	for (int i = 0; i < n; i++) {
		struct kb_val at_row = kb_add_const(k, row, i * each);
		store_score(s, h, t, at_row, j, key, kb_get(k, sum[i]));
	}
	if (has_spare)
		kb_end_if(k);
}

/* ---- softmax ---- */

/* Reduces the partial values of the items of this item's row, in their order, by each of these items: maxima are at 0
 * of `partials`, sums at GPU_ITEMS (table). */
static struct kb_val reduce_row(struct wg_attention *s, int64_t table, bool is_max)
{
	struct kb *k = s->k;
	struct kb_val at = kb_mul_const(k, s->row, s->n.softmax.items),
	              reduced = load_shared(s, s->partials, at, table);
	for (int64_t i = 1; i < s->n.softmax.items; i++) {
		struct kb_val x = load_shared(s, s->partials, at, table + i);
		reduced = is_max ? kb_max(k, x, reduced) : kb_add(k, reduced, x);
	}
	return reduced;
}

/* Turns scores into probabilities relative to the row's maximum so far, and rescales its sum to it: each item its part
 * of a row, reduced by way of `partials` (a barrier after each half of it). The factor of the row rescales its columns.
 * Masked keys are marked. Items without a row take part in the barriers only. */
static void compute_probabilities(struct wg_attention *s)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	int64_t n = s->n.softmax.keys;
	struct kb_val at = index_2d(k, s->row, s->n.keys, kb_mul_const(k, s->item_in_row, n));
	struct kb_val chunk_max = kb_f32(k, -FLT_MAX), x[GPU_ATTENTION_ROWS];
	for (int64_t i = 0; i < n; i++) {
		x[i] = load_shared(s, s->scores, at, i);
		chunk_max = kb_max(k, x[i], chunk_max);
	}
	kb_store(k, chunk_max, s->partials, s->item, 0, 0);
	kb_barrier(k);
	struct kb_val before = kb_get(k, s->block.max), now = kb_max(k, reduce_row(s, 0, true), before);
	struct kb_val factor = attention_exp(a, kb_sub(k, before, now)), sum = kb_f32(k, 0);
	struct kb_val hidden = kb_f32(k, -HUGE_VALF);
	if (s->has_row.id)
		kb_if(k, s->has_row);
	for (int64_t i = 0; i < n; i++) {
		struct kb_val probability = attention_exp(a, kb_sub(k, x[i], now));
		sum = kb_add(k, sum, probability);
		struct kb_val is_hidden = kb_cmp(k, KB_EQ, x[i], hidden);
		probability = attention_round_factor(a, probability);
		probability = kb_select(k, is_hidden, kb_f32(k, ATTENTION_MASKED), probability);
		kb_store(k, probability, s->scores, at, i, 0);
	}
	kb_store(k, sum, s->partials, s->item, GPU_ITEMS, 0);
	if (s->has_row.id)
		kb_end_if(k);
	store_row_factor(s, factor);
	kb_barrier(k);
	struct kb_val reduced = reduce_row(s, GPU_ITEMS, false),
	              new_sum = kb_fma(k, kb_get(k, s->block.sum), factor, reduced);
	kb_set(k, s->block.sum, new_sum);
	kb_set(k, s->block.max, now);
}

/* ---- values ---- */

/* acc = acc factor + probabilities v for this item's rows and columns, key by key, without masked keys. */
static void accumulate_values(struct wg_attention *s)
{
	struct kb *k = s->k;
	struct kb_val row_offset[GPU_ATTENTION_ROWS], column[GPU_ATTENTION_COLUMNS];
	for (int i = 0; i < s->n.output.n_rows; i++) {
		struct kb_val row = acc_row(s, i), factor = load_shared(s, s->factors, row, 0);
		row_offset[i] = kb_mul_const(k, row, s->n.keys);
		for (int c = 0; c < s->n.output.n_columns; c++)
			kb_set(k, s->block.acc[i][c], kb_mul(k, kb_get(k, s->block.acc[i][c]), factor));
	}
	for (int c = 0; c < s->n.output.n_columns; c++)
		column[c] = acc_column(s, c);
	struct kb_val key = kb_loop(k, "key", kb_index(k, 0), kb_index(k, s->n.keys), 1, KB_NONEMPTY);
	struct kb_val from = kb_mul_const(k, key, s->n.stride), v[GPU_ATTENTION_COLUMNS];
	for (int c = 0; c < s->n.output.n_columns; c++)
		v[c] = load_shared(s, s->kv, kb_add(k, from, column[c]), 0);
	for (int i = 0; i < s->n.output.n_rows; i++) {
		struct kb_val probability = load_shared(s, s->scores, kb_add(k, row_offset[i], key), 0);
		struct kb_val is_masked = kb_cmp(k, KB_EQ, probability, kb_f32(k, ATTENTION_MASKED));
		for (int c = 0; c < s->n.output.n_columns; c++) {
			struct kb_val old = kb_get(k, s->block.acc[i][c]),
			              next = kb_fma(k, probability, v[c], old);
			kb_set(k, s->block.acc[i][c], kb_select(k, is_masked, old, next));
		}
	}
	kb_end_loop(k);
}

/* ---- KV blocks ---- */

/* Resets a partial result: no key seen. */
static void reset_partial(struct wg_attention *s, const struct registers *p)
{
	struct kb *k = s->k;
	kb_set(k, p->max, kb_f32(k, -FLT_MAX));
	kb_set(k, p->sum, kb_f32(k, 0));
	for (int i = 0; i < s->n.output.n_rows; i++)
		for (int c = 0; c < s->n.output.n_columns; c++)
			kb_set(k, p->acc[i][c], kb_f32(k, 0));
}

/* Combines the KV block with those before it, by the arithmetic of combine_row_by_items (attention_split.c). The row's
 * leader stores the factors for the items that have its columns, in `partials`, which is free between local blocks. */
static void combine_kv_block(struct wg_attention *s)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val before = kb_get(k, s->all.max), old_factor, new_factor;
	kb_set(k, s->all.max,
	       attention_combine_max(a, before, kb_get(k, s->block.max), &old_factor, &new_factor));
	struct kb_val sum = kb_mul(k, kb_get(k, s->block.sum), new_factor);
	kb_set(k, s->all.sum, kb_fma(k, kb_get(k, s->all.sum), old_factor, sum));
	kb_if(k, is_row_leader(s));
	kb_store(k, old_factor, s->partials, s->row, 0, 0);
	kb_store(k, new_factor, s->partials, s->row, GPU_ITEMS, 0);
	kb_end_if(k);
	kb_barrier(k);
	for (int i = 0; i < s->n.output.n_rows; i++) {
		struct kb_val row = acc_row(s, i);
		old_factor = load_shared(s, s->partials, row, 0);
		new_factor = load_shared(s, s->partials, row, GPU_ITEMS);
		for (int c = 0; c < s->n.output.n_columns; c++) {
			struct kb_val x = kb_mul(k, kb_get(k, s->block.acc[i][c]), new_factor);
			kb_set(k, s->all.acc[i][c], kb_fma(k, kb_get(k, s->all.acc[i][c]), old_factor, x));
		}
	}
}

/* bool: row i and column c of this item exist. */
static struct kb_val has_element(struct wg_attention *s, const struct attention_task *t, int i, int c)
{
	struct kb *k = s->k;
	struct kb_val row = kb_add_const(k, s->first_row, i * s->n.output.row_stride);
	struct kb_val column = kb_add_const(k, s->column, (int64_t)c * GPU_ITEMS);
	struct kb_val has_row = kb_cmp(k, KB_LT, row, kb_min(k, t->n, kb_index(k, s->n.rows)));
	return kb_bin(k, KB_AND, has_row, kb_cmp(k, KB_LT, column, kb_index(k, s->a->value_size)));
}

/* Stores the partial result of the KV block in a slot, for the combine kernel: leaders the maximum and sum of their
 * rows, all items their columns; only rows and columns that exist. */
static void store_kv_block(struct wg_attention *s, const struct attention_task *t, struct kb_val slot)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	const struct attention_partial to = attention_slot(a, a->job->partials, slot);
	struct kb_val is_leader = is_row_leader(s), exists = kb_cmp(k, KB_LT, s->row, t->n);
	kb_if(k, kb_bin(k, KB_AND, is_leader, exists));
	struct kb_val row = kb_add(k, t->first, s->row);
	kb_store(k, kb_get(k, s->block.max), to.max, row, 0, 0);
	kb_store(k, kb_get(k, s->block.sum), to.sum, row, 0, 0);
	kb_end_if(k);
	for (int i = 0; i < s->n.output.n_rows; i++)
		for (int c = 0; c < s->n.output.n_columns; c++) {
			kb_if(k, has_element(s, t, i, c));
			row = kb_add(k, t->first, acc_row(s, i));
			struct kb_val at = index_2d(k, row, a->nest.value_pad, acc_column(s, c));
			kb_store(k, kb_get(k, s->block.acc[i][c]), to.acc, at, 0, 0);
			kb_end_if(k);
		}
}

/* Emits the KV block from key `first` on, local block by local block, from an empty partial result. Local blocks before
 * the window are left out; they begin at multiples from `first`, so that the bits do not depend on it. Each begins by
 * overwriting local memory, after a barrier, and ends with a barrier. Values take the memory of the keys once scores
 * are done; the barriers inside of compute_probabilities also come before they are read. */
static void emit_kv_block(struct wg_attention *s, const struct attention_head *h,
                          const struct attention_task *t, struct kb_val first)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct attention_task in = *t;
	in.end = kb_min(k, kb_add_const(k, first, a->nest.bc), t->end);
	struct kb_val invisible = kb_max(k, kb_sub(k, t->begin, first), kb_index(k, 0));
	struct kb_val lo = kb_add(k, first, attention_round_down(k, invisible, s->n.keys));
	reset_partial(s, &s->block);
	struct kb_val block = kb_loop(k, "block", lo, in.end, s->n.keys, 0);
	copy_kv(s, &a->key, h->k, &a->k_scale, h->k_scale, a->size, block, in.end);
	kb_barrier(k);
	compute_scores(s, h, &in, block);
	kb_barrier(k);
	copy_kv(s, &a->value, h->v, &a->v_scale, h->v_scale, a->value_size, block, in.end);
	compute_probabilities(s);
	accumulate_values(s);
	kb_barrier(k);
	kb_end_loop(k);
}

/* ---- a task ---- */

/* Normalizes and stores this item's part of the output; factors: of the rows, 1 / sum, with the sink. */
static void store_output(struct wg_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	for (int i = 0; i < s->n.output.n_rows; i++) {
		struct kb_val factor = load_shared(s, s->factors, acc_row(s, i), 0);
		struct kb_val row =
		        kb_add(k, t->first, kb_add_const(k, s->first_row, i * s->n.output.row_stride));
		for (int c = 0; c < s->n.output.n_columns; c++) {
			struct kb_val column = kb_add_const(k, s->column, (int64_t)c * GPU_ITEMS);
			kb_if(k, has_element(s, t, i, c));
			struct kb_val x = kb_mul(k, kb_get(k, s->all.acc[i][c]), factor);
			attention_store(a, h, row, column, x);
			kb_end_if(k);
		}
	}
}

/* KV blocks from key lo (the beginning of one) to hi; slot: of the one block, if split. Otherwise blocks are combined
 * in order, and the output is normalized and stored. Empty ranges leave nothing in a slot, which is not read. Behind
 * the last barrier the next task may overwrite local memory. */
static void emit_task(struct wg_attention *s, const struct attention_head *h, const struct attention_task *t,
                      struct kb_val lo, struct kb_val hi, struct kb_val slot)
{
	struct kb *k = s->k;
	copy_queries(s, h, t);
	if (!s->is_split)
		reset_partial(s, &s->all);
	struct kb_val first = kb_loop(k, "block", lo, hi, s->a->nest.bc, 0);
	emit_kv_block(s, h, t, first);
	if (s->is_split)
		store_kv_block(s, t, slot);
	else
		combine_kv_block(s);
	kb_end_loop(k);
	if (s->is_split)
		return;
	struct kb_val row = kb_min(k, s->row, kb_add_const(k, t->n, -1));
	struct kb_val max = kb_get(k, s->all.max), sum = kb_get(k, s->all.sum);
	store_row_factor(s, attention_row_factor(s->a, h, kb_add(k, t->first, row), max, sum));
	kb_barrier(k);
	store_output(s, h, t);
	kb_barrier(k);
}

/* ---- all tasks ---- */

static void declare_partial(struct wg_attention *s, struct registers *p)
{
	struct kb *k = s->k;
	p->max = kb_var(k, "max", KB_F32_T, kb_f32(k, 0));
	p->sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	for (int i = 0; i < s->n.output.n_rows; i++)
		for (int c = 0; c < s->n.output.n_columns; c++)
			p->acc[i][c] = kb_var(k, "acc", KB_F32_T, kb_f32(k, 0));
}

/* Assigns rows and columns to this item, and local memory to the tables. */
static void divide_items(struct wg_attention *s, struct kb_val memory)
{
	struct kb *k = s->k;
	const struct gpu_attention *n = &s->n;
	int64_t busy = n->rows * n->softmax.items;
	struct kb_val zero = kb_index(k, 0);
	s->q = memory;
	s->kv = kb_ptr_add(k, memory, zero, 4 * n->kv);
	s->scores = kb_ptr_add(k, memory, zero, 4 * n->scores);
	s->partials = kb_ptr_add(k, memory, zero, 4 * n->partials);
	s->factors = kb_ptr_add(k, memory, zero, 4 * n->factors);
	s->row = kb_div_const(k, s->item, n->softmax.items);
	s->item_in_row = kb_rem_const(k, s->item, n->softmax.items);
	if (busy < GPU_ITEMS) {
		s->has_row = kb_cmp(k, KB_LT, s->item, kb_index(k, busy));
		s->row = kb_min(k, s->row, kb_index(k, n->rows - 1));
	}
	s->column = kb_rem_const(k, s->item, n->output.columns);
	s->first_row = kb_div_const(k, s->item, n->output.columns);
	declare_partial(s, &s->block);
	if (!s->is_split)
		declare_partial(s, &s->all);
}

/* Task `task` of all tiles of all heads, or, if split, of `split` KV blocks of each: finds head, tile and block by
 * division. Blocks are counted from the first visible one; those beyond the last have no keys. */
static void emit_task_of(struct wg_attention *s, struct kb_val task, struct kb_val tiles)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val bc = kb_index(k, a->nest.bc), tile_index = task, slot = {0};
	if (s->is_split) {
		tile_index = kb_div_const(k, task, a->nest.split);
		slot = kb_rem_const(k, task, a->nest.split);
	}
	struct kb_val head = kb_bin(k, KB_DIV, tile_index, tiles),
	              tile = kb_bin(k, KB_REM, tile_index, tiles);
	struct kb_val b = kb_bin(k, KB_DIV, head, a->heads.heads);
	struct kb_val key_head = kb_bin(k, KB_REM, head, a->heads.heads);
	const struct attention_limits limits = attention_find_limits(a, b);
	const struct attention_head h = attention_find_head(a, b, key_head);
	struct kb_val first = kb_mul_const(k, tile, s->n.rows);
	struct kb_val n = kb_min(k, kb_sub(k, a->heads.rows, first), kb_index(k, s->n.rows));
	const struct attention_task t = attention_find_task(a, &limits, first, n);
	struct kb_val lo = attention_round_down(k, t.begin, a->nest.bc), hi = t.end;
	if (s->is_split) {
		lo = kb_add(k, lo, kb_mul(k, slot, bc));
		hi = kb_min(k, hi, kb_add(k, lo, bc));
		slot = index_2d(k, head, a->nest.split, slot);
	}
	emit_task(s, &h, &t, lo, hi, slot);
}

/* Loop over tasks: group, group + groups, .. is_split_call: bool, the call divides KV blocks, and the other of the two
 * loops has no task; none: this kernel serves only one kind of call. */
static void emit_tasks(struct wg_attention *s, struct kb_val memory, struct kb_val is_split_call)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct buf text = kernel_begin_remark(a->job);
	gpu_attention_print(&s->n, &text);
	kernel_remark_nest(a->job, &text);
	divide_items(s, memory);
	struct kb_val tiles = kb_div_const(k, kb_add_const(k, a->heads.rows, s->n.rows - 1), s->n.rows);
	struct kb_val end = kb_mul(k, kb_mul(k, a->heads.batch, a->heads.heads), tiles);
	if (s->is_split)
		end = kb_mul_const(k, end, a->nest.split);
	struct kb_val none = kb_index(k, 0);
	if (is_split_call.id)
		end = kb_select(k, is_split_call, s->is_split ? end : none, s->is_split ? none : end);
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, a->job->worker);
	kb_forever(k);
	struct kb_val task = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, task, end));
	emit_task_of(s, task, tiles);
	kb_set(k, next, kb_add(k, task, a->job->n_workers));
	kb_end_forever(k);
}

/* Emits the loop over tiles, the loop over KV blocks (split), or both, of which a call runs one: with constantly few
 * rows only the split one. They share local memory, of the highest tile. */
void attention_workgroup(const struct attention *a)
{
	struct kb *k = a->k;
	struct wg_attention s = {.a = a, .k = k, .item = kb_item_id(k)}, split = s;
	struct kb_val is_split_call = {0};
	int64_t rows;
	bool is_few =
	        a->nest.split > 0 && kb_const_index(k, a->heads.rows, &rows) && rows <= a->nest.slots.rows;
	const struct target *t = a->job->target;
	bool fits = gpu_attention_choose(t, a->size, a->value_size, GPU_ATTENTION_ROWS, &s.n) &&
	            gpu_attention_choose(t, a->size, a->value_size, a->nest.slots.rows, &split.n);
	assert(fits); /* attention_group_rows chose this generator */
	(void)fits;
	struct kb_val memory = kb_shared(k, "tile", KB_F32, s.n.elements);
	split.is_split = true;
	if (a->nest.split > 0 && !is_few)
		is_split_call = attention_is_split(a);
	if (!is_few)
		emit_tasks(&s, memory, is_split_call);
	if (a->nest.split > 0)
		emit_tasks(&split, memory, is_split_call);
}

int64_t attention_group_rows(const struct ir_func *f, const struct ir_op *group, const struct target *t)
{
	const struct ir_op *root = ir_group_root(group);
	int64_t size, value_size;
	struct gpu_attention n;
	if (((const struct attrs_group *)group->attrs)->kind != GROUP_attention || !root ||
	    root->code != OP_attention)
		return 0;
	const struct ir_type *q = ir_type_of(f, root->operands[0]), *v = ir_type_of(f, root->operands[2]);
	if (!ir_dim_is_const(q->dims[q->rank - 1], &size) ||
	    !ir_dim_is_const(v->dims[v->rank - 1], &value_size))
		return 0;
	return gpu_attention_choose(t, size, value_size, GPU_ATTENTION_ROWS, &n) ? n.rows : 0;
}
