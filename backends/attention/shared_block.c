/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One block of keys for the rows of a work-group's tile: keys are copied to shared memory as f32; each item computes
 * scores of one key with several rows; then values are copied, several items find the powers of a row, and each adds to
 * its sums of a column of values for several rows.
 */
#include <float.h>
#include <math.h>

#include "backends/attention/shared.h"

struct kb_val shared_acc_row(struct shared_attention *s, int i)
{
	struct kb *k = s->k;
	struct kb_val row = kb_add_const(k, s->first_row, i * s->apart);
	return kb_min(k, row, kb_index(k, s->n.rows - 1));
}

struct kb_val shared_acc_column(struct shared_attention *s, int c)
{
	struct kb *k = s->k;
	struct kb_val column = kb_add_const(k, s->column, (int64_t)c * ITEMS);
	return kb_min(k, column, kb_index(k, s->a->value_size - 1));
}

struct kb_val shared_is_first(struct shared_attention *s)
{
	struct kb *k = s->k;
	struct kb_val first = kb_cmp(k, KB_EQ, s->part, kb_index(k, 0));
	return s->has_row.id ? kb_bin(k, KB_AND, first, s->has_row) : first;
}

void shared_store_factor(struct shared_attention *s, struct kb_val factor)
{
	struct kb *k = s->k;
	kb_if(k, shared_is_first(s));
	kb_store(k, factor, s->factors, s->row, 0, 0);
	kb_end_if(k);
}

/* ---- copies ---- */

void shared_copy_queries(struct shared_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val end = kb_index(k, s->n.rows * a->size);
	struct kb_val i = kb_loop(k, "i", s->item, end, ITEMS, 0);
	struct kb_val last = kb_add_const(k, t->n, -1), row = kb_min(k, kb_div_const(k, i, a->size), last);
	struct kb_val element = attention_step(k, &a->q, ATTENTION_ELEMENT, kb_rem_const(k, i, a->size));
	struct kb_val from = attention_row_index(a, &a->q, kb_add(k, t->first, row));
	struct kb_val x = attention_load(k, &a->q, h->q, kb_add(k, from, element), 0, 1, 1);
	x = kb_mul(k, attention_rounded(a, x), kb_f32(k, a->score.q_factor));
	kb_store(k, x, s->q, i, 0, 0);
	kb_end_loop(k);
}

/* Element e of the row of key `j` of the sequence, counted from the head's address. */
static struct kb_val key_index(struct kb *k, const struct kb_tensor *t, int64_t size, struct kb_val j,
                               struct kb_val e)
{
	struct kb_val row = t->ring > 0 ? kb_rem_const(k, j, t->ring) : j;
	if (t->encoding == ENC_PANEL16) {
		struct kb_val line = shared_place(k, kb_div_const(k, row, PANEL_COLUMNS), size, e);
		return shared_place(k, line, PANEL_COLUMNS, kb_rem_const(k, row, PANEL_COLUMNS));
	}
	struct kb_val at = attention_step(k, t, ATTENTION_ROW, row);
	return kb_add(k, at, attention_step(k, t, ATTENTION_ELEMENT, e));
}

/* Keys, or values, of the block from key `first` on; keys at or beyond `end` are the last one, seen by no row. */
static void copy_block(struct shared_attention *s, const struct kb_tensor *t, struct kb_val head,
                       const struct kb_tensor *scales, struct kb_val head_scales, int64_t size,
                       struct kb_val first, struct kb_val end)
{
	struct kb *k = s->k;
	struct kb_val n = kb_index(k, s->n.keys * size);
	struct kb_val i = kb_loop(k, "i", s->item, n, ITEMS, 0);
	struct kb_val key = kb_div_const(k, i, size), e = kb_rem_const(k, i, size);
	if (t->encoding == ENC_PANEL16) { /* as it lies */
		struct kb_val line = kb_div_const(k, i, PANEL_COLUMNS);
		struct kb_val panel = kb_div_const(k, line, size);
		key = shared_place(k, panel, PANEL_COLUMNS, kb_rem_const(k, i, PANEL_COLUMNS));
		e = kb_rem_const(k, line, size);
	}
	struct kb_val last = kb_add_const(k, end, -1), j = kb_min(k, kb_add(k, first, key), last);
	struct kb_val x = attention_load(k, t, head, key_index(k, t, size, j, e), 0, 1, 1);
	if (attention_has(scales)) {
		struct kb_val row = scales->ring > 0 ? kb_rem_const(k, j, scales->ring) : j;
		struct kb_val at = attention_step(k, scales, ATTENTION_ROW, row);
		x = kb_mul(k, x, attention_load(k, scales, head_scales, at, 0, 1, 1));
	}
	x = attention_rounded(s->a, x);
	kb_store(k, x, s->kv, shared_place(k, key, s->n.stride, e), 0, 0);
	kb_end_loop(k);
}

/* ---- scores ---- */

static struct kb_val with_bias(struct shared_attention *s, const struct attention_head *h, struct kb_val r,
                               struct kb_val key, struct kb_val score)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	if (!attention_has(&a->bias))
		return score;
	struct kb_val at = attention_row_index(a, &a->bias, r);
	at = kb_add(k, at, attention_step(k, &a->bias, ATTENTION_ELEMENT, key));
	struct kb_val x = attention_load(k, &a->bias, h->bias, at, 0, 1, 1);
	return kb_fma(k, x, kb_f32(k, a->score.bias_factor), score);
}

/* Which are -inf where the row does not see the key, or the section ends before it. */
static void store_score(struct shared_attention *s, const struct attention_head *h,
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
	struct kb_val sees = kb_bin(k, KB_AND, from_begin, kb_cmp(k, KB_LT, key, limit));
	struct kb_var value = kb_var(k, "score", KB_F32_T, kb_f32(k, -HUGE_VALF));
	kb_if(k, sees);
	score = with_bias(s, h, r, key, score);
	if (a->score.cap > 0)
		score = attention_capped(k, score, a->score.cap);
	kb_set(k, value, score);
	kb_end_if(k);
	struct kb_val to = shared_place(k, row, s->n.keys, in_block);
	kb_store(k, kb_get(k, value), s->scores, to, 0, 0);
}

/* This item's key with every second row: chains of multiply-adds in increasing element. */
static void find_scores(struct shared_attention *s, const struct attention_head *h,
                        const struct attention_task *t, struct kb_val first)
{
	struct kb *k = s->k;
	int64_t each = ITEMS / s->n.keys;
	bool has_spare = s->n.rows < each; /* items without a row */
	int n = has_spare ? 1 : (int)(s->n.rows / each);
	struct kb_var sum[16];
	struct kb_val key = kb_rem_const(k, s->item, s->n.keys), row = kb_div_const(k, s->item, s->n.keys);
	if (has_spare)
		kb_if(k, kb_cmp(k, KB_LT, row, kb_index(k, s->n.rows)));
	struct kb_val from = kb_mul_const(k, key, s->n.stride), q = kb_mul_const(k, row, s->a->size);
	for (int i = 0; i < n; i++)
		sum[i] = kb_var(k, "product", KB_F32_T, kb_f32(k, 0));
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, s->a->size), 1, KB_NONEMPTY);
	struct kb_val y = shared_load(s, s->kv, kb_add(k, from, e), 0), at = kb_add(k, q, e);
	for (int i = 0; i < n; i++) {
		struct kb_val x = shared_load(s, s->q, at, i * each * s->a->size);
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

/* What the items of this one's row have left, in their order. */
static struct kb_val join_parts(struct shared_attention *s, int64_t table, bool is_max)
{
	struct kb *k = s->k;
	struct kb_val at = kb_mul_const(k, s->row, s->n.per_row), all = shared_load(s, s->parts, at, table);
	for (int64_t i = 1; i < s->n.per_row; i++) {
		struct kb_val x = shared_load(s, s->parts, at, table + i);
		all = is_max ? kb_max(k, x, all) : kb_add(k, all, x);
	}
	return all;
}

/* Scores become powers relative to the row's maximum so far, by which its sums are brought there, too. The power of a key
 * that the row does not see is told apart from 0. */
static void find_weights(struct shared_attention *s)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	int64_t n = s->n.keys / s->n.per_row;
	struct kb_val at = shared_place(k, s->row, s->n.keys, kb_mul_const(k, s->part, n));
	struct kb_val most = kb_f32(k, -FLT_MAX), x[16];
	for (int64_t i = 0; i < n; i++) {
		x[i] = shared_load(s, s->scores, at, i);
		most = kb_max(k, x[i], most);
	}
	kb_store(k, most, s->parts, s->item, 0, 0);
	kb_barrier(k);
	struct kb_val before = kb_get(k, s->max), now = kb_max(k, join_parts(s, 0, true), before);
	struct kb_val factor = attention_power(a, kb_sub(k, before, now)), sum = kb_f32(k, 0);
	struct kb_val hidden = kb_f32(k, -HUGE_VALF);
	if (s->has_row.id)
		kb_if(k, s->has_row);
	for (int64_t i = 0; i < n; i++) {
		struct kb_val power = attention_power(a, kb_sub(k, x[i], now));
		sum = kb_add(k, sum, power);
		struct kb_val is_hidden = kb_cmp(k, KB_EQ, x[i], hidden);
		power = attention_rounded(a, power);
		power = kb_select(k, is_hidden, kb_f32(k, ATTENTION_UNSEEN), power);
		kb_store(k, power, s->scores, at, i, 0);
	}
	kb_store(k, sum, s->parts, s->item, ITEMS, 0);
	if (s->has_row.id)
		kb_end_if(k);
	shared_store_factor(s, factor);
	kb_barrier(k);
	struct kb_val all = join_parts(s, ITEMS, false), both = kb_fma(k, kb_get(k, s->sum), factor, all);
	kb_set(k, s->sum, both);
	kb_set(k, s->max, now);
}

/* ---- values ---- */

/* acc = acc factor + weights v, without the values that a row does not see. */
static void add_values(struct shared_attention *s)
{
	struct kb *k = s->k;
	struct kb_val line[16], column[4];
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val row = shared_acc_row(s, i), factor = shared_load(s, s->factors, row, 0);
		line[i] = kb_mul_const(k, row, s->n.keys);
		for (int c = 0; c < s->n_columns; c++)
			kb_set(k, s->acc[i][c], kb_mul(k, kb_get(k, s->acc[i][c]), factor));
	}
	for (int c = 0; c < s->n_columns; c++)
		column[c] = shared_acc_column(s, c);
	struct kb_val key = kb_loop(k, "key", kb_index(k, 0), kb_index(k, s->n.keys), 1, KB_NONEMPTY);
	struct kb_val from = kb_mul_const(k, key, s->n.stride), v[4];
	for (int c = 0; c < s->n_columns; c++)
		v[c] = shared_load(s, s->kv, kb_add(k, from, column[c]), 0);
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val weight = shared_load(s, s->scores, kb_add(k, line[i], key), 0);
		struct kb_val is_unseen = kb_cmp(k, KB_EQ, weight, kb_f32(k, ATTENTION_UNSEEN));
		for (int c = 0; c < s->n_columns; c++) {
			struct kb_val old = kb_get(k, s->acc[i][c]), more = kb_fma(k, weight, v[c], old);
			kb_set(k, s->acc[i][c], kb_select(k, is_unseen, old, more));
		}
	}
	kb_end_loop(k);
}

/* ---- the whole ---- */

void shared_block(struct shared_attention *s, const struct attention_head *h, const struct attention_task *t,
                  struct kb_val first)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	copy_block(s, &a->key, h->k, &a->k_scale, h->k_scale, a->size, first, t->end);
	kb_barrier(k);
	find_scores(s, h, t, first);
	kb_barrier(k);
	copy_block(s, &a->value, h->v, &a->v_scale, h->v_scale, a->value_size, first, t->end);
	find_weights(s);
	add_values(s);
	kb_barrier(k);
}
