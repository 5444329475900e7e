/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by work-groups: the items of one share a tile of rows of a head. Block after block of keys is copied
 * to shared memory as f32; each item computes scores of one key with several rows, several items the powers of
 * a row, and each keeps sums of a column of values for several rows in registers (online softmax: Milakov and
 * Gimelshein 2018, arXiv 1805.02867, algorithm 3, by blocks).
 *
 * Blocks begin at multiples of their length from key 0 on, and a block of which a row sees nothing leaves its sums as they
 * are: what a row gives depends on the keys it sees alone. All items come to all barriers.
 */
#include <float.h>
#include <math.h>

#include "backends/attention/attention.h"
#include "backends/attention/internal.h"
#include "backends/kb/math.h"
#include "backends/kernel/templates.h"

#define ITEMS GPU_ITEMS

/* Rows of a tile, keys of a block, elements in shared memory. */
struct share_sizes {
	int64_t rows, keys;
	int64_t stride; /* of a key or its values: odd, so that the keys of neighbours lie in other banks */
	int64_t elements;
};

struct shared_attention {
	const struct attention *a;
	struct kb *k;
	struct share_sizes n;
	struct kb_val item;
	/* Shared memory. */
	struct kb_val q;       /* [rows,E] */
	struct kb_val kv;      /* [keys,stride] */
	struct kb_val scores;  /* [rows,keys] */
	struct kb_val parts;   /* [2,ITEMS]: maxima and sums of the items of a row */
	struct kb_val factors; /* [rows] */
	/* Softmax: this item's row, its place among the items of the row, their number. */
	struct kb_val row, part;
	int64_t per_row;
	struct kb_var max, sum;
	/* Sums: this item's column (more: ITEMS apart) and its first row (more: `apart` apart). */
	struct kb_val column, first_row;
	int64_t apart;
	int n_rows, n_columns;
	struct kb_var acc[16][4];
};

static bool find_sizes(const struct target *t, int64_t size, int64_t value_size, struct share_sizes *out)
{
	int64_t longest = size > value_size ? size : value_size;
	if (value_size > 4 * ITEMS || size > 4 * ITEMS)
		return false;
	for (int64_t rows = 16; rows >= 8; rows /= 2) {
		struct share_sizes n = {.rows = rows, .keys = 2 * rows, .stride = longest | 1};
		n.elements = rows * size + n.keys * n.stride + rows * n.keys + 2 * ITEMS + rows;
		*out = n;
		if (n.elements * 4 <= t->shared_bytes)
			return true;
	}
	return false;
}

int64_t attention_shared_rows(const struct target *t, int64_t size, int64_t value_size)
{
	struct share_sizes n;
	return t->group_size == ITEMS && find_sizes(t, size, value_size, &n) ? n.rows : 0;
}

/* ---- small things ---- */

static struct kb_val times(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_mul(k, a, kb_index(k, c));
}

static struct kb_val over(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_DIV, a, kb_index(k, c));
}

static struct kb_val modulo(struct kb *k, struct kb_val a, int64_t c)
{
	return kb_bin(k, KB_REM, a, kb_index(k, c));
}

static struct kb_val load(struct shared_attention *s, struct kb_val table, struct kb_val at, int64_t disp)
{
	return kb_load(s->k, KB_F32_T, table, at, disp, 0);
}

/* Element `row`, `column` of a table with rows of `stride`. */
static struct kb_val place(struct kb *k, struct kb_val row, int64_t stride, struct kb_val column)
{
	return kb_add(k, times(k, row, stride), column);
}

/* ---- copies ---- */

/* The task's queries times q_factor; rows after the last repeat it. */
static void copy_queries(struct shared_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val end = kb_index(k, s->n.rows * a->size);
	struct kb_val i = kb_loop(k, "i", s->item, end, ITEMS, 0);
	struct kb_val last = kb_add_const(k, t->n, -1), row = kb_min(k, over(k, i, a->size), last);
	struct kb_val element = attention_step(k, &a->q, ATTENTION_ELEMENT, modulo(k, i, a->size));
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
	struct kb_val row = t->ring > 0 ? modulo(k, j, t->ring) : j;
	if (t->encoding == ENC_PANEL16) {
		struct kb_val line = place(k, over(k, row, TILE_PANEL), size, e);
		return place(k, line, TILE_PANEL, modulo(k, row, TILE_PANEL));
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
	struct kb_val key = over(k, i, size), e = modulo(k, i, size);
	struct kb_val last = kb_add_const(k, end, -1), j = kb_min(k, kb_add(k, first, key), last);
	struct kb_val x = attention_load(k, t, head, key_index(k, t, size, j, e), 0, 1, 1);
	if (attention_has(scales)) {
		struct kb_val row = scales->ring > 0 ? modulo(k, j, scales->ring) : j;
		struct kb_val at = attention_step(k, scales, ATTENTION_ROW, row);
		x = kb_mul(k, x, attention_load(k, scales, head_scales, at, 0, 1, 1));
	}
	x = attention_rounded(s->a, x);
	kb_store(k, x, s->kv, place(k, key, s->n.stride, e), 0, 0);
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

/* Which are -inf where the row does not see the key. */
static void store_score(struct shared_attention *s, const struct attention_head *h,
                        const struct attention_task *t, struct kb_val row, struct kb_val key,
                        struct kb_val in_block, struct kb_val score)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val last = kb_add_const(k, t->n, -1);
	struct kb_val r = kb_add(k, t->first, kb_min(k, row, last));
	struct kb_val begin = attention_row_begin(a, &t->limits, r);
	struct kb_val limit = attention_row_limit(a, &t->limits, r);
	struct kb_val from_begin = kb_cmp(k, KB_GE, key, begin);
	struct kb_val sees = kb_bin(k, KB_AND, from_begin, kb_cmp(k, KB_LT, key, limit));
	struct kb_var value = kb_var(k, "score", KB_F32_T, kb_f32(k, -HUGE_VALF));
	kb_if(k, sees);
	score = with_bias(s, h, r, key, score);
	if (a->score.cap > 0)
		score = attention_capped(k, score, a->score.cap);
	kb_set(k, value, score);
	kb_end_if(k);
	struct kb_val to = place(k, row, s->n.keys, in_block);
	kb_store(k, kb_get(k, value), s->scores, to, 0, 0);
}

/* This item's key with every second row: chains of multiply-adds in increasing element. */
static void find_scores(struct shared_attention *s, const struct attention_head *h,
                        const struct attention_task *t, struct kb_val first)
{
	struct kb *k = s->k;
	int64_t each = ITEMS / s->n.keys;
	int n = (int)(s->n.rows / each);
	struct kb_var sum[16];
	struct kb_val key = modulo(k, s->item, s->n.keys), row = over(k, s->item, s->n.keys);
	struct kb_val from = times(k, key, s->n.stride), q = times(k, row, s->a->size);
	for (int i = 0; i < n; i++)
		sum[i] = kb_var(k, "product", KB_F32_T, kb_f32(k, 0));
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, s->a->size), 1, KB_NONEMPTY);
	struct kb_val y = load(s, s->kv, kb_add(k, from, e), 0), at = kb_add(k, q, e);
	for (int i = 0; i < n; i++) {
		struct kb_val x = load(s, s->q, at, i * each * s->a->size);
		kb_set(k, sum[i], kb_fma(k, x, y, kb_get(k, sum[i])));
	}
	kb_end_loop(k);
	struct kb_val j = kb_add(k, first, key);
	for (int i = 0; i < n; i++) {
		struct kb_val at_row = kb_add_const(k, row, i * each);
		store_score(s, h, t, at_row, j, key, kb_get(k, sum[i]));
	}
}

/* ---- softmax ---- */

/* By the first item of the row: all of them have the same. */
static void store_factor(struct shared_attention *s, struct kb_val factor)
{
	struct kb *k = s->k;
	kb_if(k, kb_cmp(k, KB_EQ, s->part, kb_index(k, 0)));
	kb_store(k, factor, s->factors, s->row, 0, 0);
	kb_end_if(k);
}

/* What the items of this one's row have left, in their order. */
static struct kb_val join_parts(struct shared_attention *s, int64_t table, bool is_max)
{
	struct kb *k = s->k;
	struct kb_val at = times(k, s->row, s->per_row), all = load(s, s->parts, at, table);
	for (int64_t i = 1; i < s->per_row; i++) {
		struct kb_val x = load(s, s->parts, at, table + i);
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
	int64_t n = s->n.keys / s->per_row;
	struct kb_val at = place(k, s->row, s->n.keys, times(k, s->part, n));
	struct kb_val most = kb_f32(k, -FLT_MAX), x[16];
	for (int64_t i = 0; i < n; i++) {
		x[i] = load(s, s->scores, at, i);
		most = kb_max(k, x[i], most);
	}
	kb_store(k, most, s->parts, s->item, 0, 0);
	kb_barrier(k);
	struct kb_val before = kb_get(k, s->max), now = kb_max(k, join_parts(s, 0, true), before);
	struct kb_val factor = attention_power(a, kb_sub(k, before, now)), sum = kb_f32(k, 0);
	struct kb_val hidden = kb_f32(k, -HUGE_VALF);
	for (int64_t i = 0; i < n; i++) {
		struct kb_val power = attention_power(a, kb_sub(k, x[i], now));
		sum = kb_add(k, sum, power);
		struct kb_val is_hidden = kb_cmp(k, KB_EQ, x[i], hidden);
		power = attention_rounded(a, power);
		power = kb_select(k, is_hidden, kb_f32(k, ATTENTION_UNSEEN), power);
		kb_store(k, power, s->scores, at, i, 0);
	}
	kb_store(k, sum, s->parts, s->item, ITEMS, 0);
	store_factor(s, factor);
	kb_barrier(k);
	struct kb_val all = join_parts(s, ITEMS, false), both = kb_fma(k, kb_get(k, s->sum), factor, all);
	kb_set(k, s->sum, both);
	kb_set(k, s->max, now);
}

/* ---- values ---- */

static struct kb_val acc_row(struct shared_attention *s, int i)
{
	struct kb *k = s->k;
	struct kb_val row = kb_add_const(k, s->first_row, i * s->apart);
	return kb_min(k, row, kb_index(k, s->n.rows - 1));
}

static struct kb_val acc_column(struct shared_attention *s, int c)
{
	struct kb *k = s->k;
	struct kb_val column = kb_add_const(k, s->column, (int64_t)c * ITEMS);
	return kb_min(k, column, kb_index(k, s->a->value_size - 1));
}

/* acc = acc factor + weights v, without the values that a row does not see. */
static void add_values(struct shared_attention *s)
{
	struct kb *k = s->k;
	struct kb_val line[16], column[4];
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val row = acc_row(s, i), factor = load(s, s->factors, row, 0);
		line[i] = times(k, row, s->n.keys);
		for (int c = 0; c < s->n_columns; c++)
			kb_set(k, s->acc[i][c], kb_mul(k, kb_get(k, s->acc[i][c]), factor));
	}
	for (int c = 0; c < s->n_columns; c++)
		column[c] = acc_column(s, c);
	struct kb_val key = kb_loop(k, "key", kb_index(k, 0), kb_index(k, s->n.keys), 1, KB_NONEMPTY);
	struct kb_val from = times(k, key, s->n.stride), v[4];
	for (int c = 0; c < s->n_columns; c++)
		v[c] = load(s, s->kv, kb_add(k, from, column[c]), 0);
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val weight = load(s, s->scores, kb_add(k, line[i], key), 0);
		struct kb_val is_unseen = kb_cmp(k, KB_EQ, weight, kb_f32(k, ATTENTION_UNSEEN));
		for (int c = 0; c < s->n_columns; c++) {
			struct kb_val old = kb_get(k, s->acc[i][c]), more = kb_fma(k, weight, v[c], old);
			kb_set(k, s->acc[i][c], kb_select(k, is_unseen, old, more));
		}
	}
	kb_end_loop(k);
}

/* ---- a task ---- */

/* Nothing was seen yet. */
static void clear(struct shared_attention *s)
{
	struct kb *k = s->k;
	kb_set(k, s->max, kb_f32(k, -FLT_MAX));
	kb_set(k, s->sum, kb_f32(k, 0));
	for (int i = 0; i < s->n_rows; i++)
		for (int c = 0; c < s->n_columns; c++)
			kb_set(k, s->acc[i][c], kb_f32(k, 0));
}

/* 1 / sum of the row, to which the power of its sink belongs; a row that saw nothing has sum 0 and gives 0. */
static void find_factors(struct shared_attention *s, const struct attention_head *h,
                         const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	struct kb_val sum = kb_get(k, s->sum), factor = kb_f32(k, 1);
	if (attention_has(&a->sinks)) {
		struct kb_val row = kb_min(k, s->row, kb_add_const(k, t->n, -1));
		struct kb_val sink = attention_sink(a, h->sink, kb_add(k, t->first, row)), power;
		(void)attention_join_max(a, kb_get(k, s->max), sink, &factor, &power);
		sum = kb_fma(k, sum, factor, power);
	}
	struct kb_val one = kb_f32(k, 1), is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	store_factor(s, kb_bin(k, KB_DIV, factor, kb_select(k, is_zero, one, sum)));
}

static void store_sums(struct shared_attention *s, const struct attention_head *h,
                       const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	for (int i = 0; i < s->n_rows; i++) {
		struct kb_val row = kb_add_const(k, s->first_row, i * s->apart);
		struct kb_val factor = load(s, s->factors, acc_row(s, i), 0);
		kb_if(k, kb_cmp(k, KB_LT, row, kb_min(k, t->n, kb_index(k, s->n.rows))));
		struct kb_val to = attention_row_index(a, &a->out, kb_add(k, t->first, row));
		for (int c = 0; c < s->n_columns; c++) {
			struct kb_val column = kb_add_const(k, s->column, (int64_t)c * ITEMS);
			kb_if(k, kb_cmp(k, KB_LT, column, kb_index(k, a->value_size)));
			struct kb_val x = kb_mul(k, kb_get(k, s->acc[i][c]), factor);
			struct kb_val at = attention_step(k, &a->out, ATTENTION_ELEMENT, column);
			at = kb_add(k, to, at);
			kb_store(k, kb_cvt(k, x, eval_stored(a->out.dtype)), h->out, at, 0, 0);
			kb_end_if(k);
		}
		kb_end_if(k);
	}
}

static void run_task(struct shared_attention *s, const struct attention_head *h,
                     const struct attention_task *t)
{
	const struct attention *a = s->a;
	struct kb *k = s->k;
	copy_queries(s, h, t);
	clear(s);
	struct kb_val lo = attention_round_down(k, t->begin, s->n.keys);
	struct kb_val first = kb_loop(k, "block", lo, t->end, s->n.keys, 0);
	copy_block(s, &a->key, h->k, &a->k_scale, h->k_scale, a->size, first, t->end);
	kb_barrier(k);
	find_scores(s, h, t, first);
	kb_barrier(k);
	copy_block(s, &a->value, h->v, &a->v_scale, h->v_scale, a->value_size, first, t->end);
	find_weights(s);
	add_values(s);
	kb_barrier(k);
	kb_end_loop(k);
	find_factors(s, h, t);
	kb_barrier(k);
	store_sums(s, h, t);
	kb_barrier(k);
}

/* ---- all tasks ---- */

static void divide_items(struct shared_attention *s)
{
	struct kb *k = s->k;
	int64_t columns = 1;
	while (columns < ITEMS && columns < s->a->value_size)
		columns *= 2;
	s->item = kb_item_id(k);
	s->per_row = ITEMS / s->n.rows;
	s->row = over(k, s->item, s->per_row);
	s->part = modulo(k, s->item, s->per_row);
	s->max = kb_var(k, "max", KB_F32_T, kb_f32(k, 0));
	s->sum = kb_var(k, "sum", KB_F32_T, kb_f32(k, 0));
	s->column = modulo(k, s->item, columns);
	s->first_row = over(k, s->item, columns);
	s->apart = ITEMS / columns;
	s->n_rows = (int)((s->n.rows + s->apart - 1) / s->apart);
	s->n_columns = (int)((s->a->value_size + ITEMS - 1) / ITEMS);
	for (int i = 0; i < s->n_rows; i++)
		for (int c = 0; c < s->n_columns; c++)
			s->acc[i][c] = kb_var(k, "acc", KB_F32_T, kb_f32(k, 0));
}

static void divide_memory(struct shared_attention *s)
{
	struct kb *k = s->k;
	struct kb_val zero = kb_index(k, 0);
	int64_t at = 0;
	s->q = kb_shared(k, "tile", KB_F32, s->n.elements);
	s->kv = kb_ptr_add(k, s->q, zero, (at += s->n.rows * s->a->size) * 4);
	s->scores = kb_ptr_add(k, s->q, zero, (at += s->n.keys * s->n.stride) * 4);
	s->parts = kb_ptr_add(k, s->q, zero, (at += s->n.rows * s->n.keys) * 4);
	s->factors = kb_ptr_add(k, s->q, zero, (at += 2 * ITEMS) * 4);
}

void attention_shared(const struct attention *a)
{
	struct shared_attention s = {.a = a, .k = a->k};
	struct kb *k = a->k;
	if (!find_sizes(a->job->target, a->size, a->value_size, &s.n))
		return;
	divide_memory(&s);
	divide_items(&s);
	struct kb_val rows = kb_index(k, s.n.rows);
	struct kb_val tiles = over(k, kb_add_const(k, a->heads.rows, s.n.rows - 1), s.n.rows);
	struct kb_val heads = kb_mul(k, a->heads.batch, a->heads.heads);
	struct kb_val end = kb_mul(k, heads, tiles);
	struct kb_var next = kb_var(k, "next", KB_INDEX_T, a->job->worker);
	kb_forever(k);
	struct kb_val task = kb_get(k, next);
	kb_break_if(k, kb_cmp(k, KB_GE, task, end));
	struct kb_val head = kb_bin(k, KB_DIV, task, tiles), tile = kb_bin(k, KB_REM, task, tiles);
	struct kb_val b = kb_bin(k, KB_DIV, head, a->heads.heads);
	struct kb_val key_head = kb_bin(k, KB_REM, head, a->heads.heads);
	const struct attention_limits limits = attention_find_limits(a, b);
	const struct attention_head h = attention_find_head(a, b, key_head);
	struct kb_val first = kb_mul(k, tile, rows);
	struct kb_val n = kb_min(k, kb_sub(k, a->heads.rows, first), rows);
	const struct attention_task t = attention_find_task(a, &limits, first, n);
	run_task(&s, &h, &t);
	kb_set(k, next, kb_add(k, task, a->job->n_workers));
	kb_end_forever(k);
}
