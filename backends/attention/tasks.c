/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who computes what. The tiles of rows of all heads are in one line, each as
 * long as the keys it sees; workers take equal lengths of it. So a worker has
 * few heads, reads keys and values of a head once for all rows that it has of
 * it, and causal rows are shared out evenly. Nothing a row gives depends on it.
 */
#include <float.h>

#include "backends/attention/internal.h"
#include "backends/kernel/templates.h"

/* ---- rows of a head ---- */

static bool is_grouped(const struct attention *a)
{
	int64_t n;
	return !kb_const_index(a->k, a->head.queries, &n) || n != 1;
}

bool attention_has_edges(const struct attention *a)
{
	return a->rows_differ && !is_grouped(a) && a->job->target->arch != ARCH_OPENCL;
}

static struct kb_val token_of(const struct attention *a, struct kb_val r)
{
	return is_grouped(a) ? kb_bin(a->k, KB_DIV, r, a->head.queries) : r;
}

struct kb_val attention_row_index(const struct attention *a, const struct kb_tensor *t, struct kb_val r)
{
	struct kb *k = a->k;
	struct kb_val index = attention_step(k, t, ATTENTION_ROW, token_of(a, r));
	if (!is_grouped(a))
		return index;
	return kb_add(k, index, attention_step(k, t, ATTENTION_HEAD, kb_bin(k, KB_REM, r, a->head.queries)));
}

struct kb_val attention_row_begin(const struct attention *a, struct kb_val r)
{
	struct kb_val zero = kb_index(a->k, 0);
	if (a->window == 0)
		return zero;
	return kb_max(a->k, kb_add(a->k, a->head.first_begin, token_of(a, r)), zero);
}

struct kb_val attention_row_limit(const struct attention *a, struct kb_val r)
{
	if (!a->rows_differ)
		return a->head.limit;
	return kb_min(a->k, a->head.limit, kb_add(a->k, a->head.first_limit, token_of(a, r)));
}

/* ---- the head ---- */

/* Element of an i32[B] operand. */
static struct kb_val sequence_value(struct attention *a, const struct kb_tensor *t, struct kb_val b)
{
	struct kb *k = a->k;
	return kb_cvt(k, kb_load(k, KB_I32_T, t->ptr, attention_step(k, t, 0, b), 0, 0), KB_INDEX);
}

void attention_find_limits(struct attention *a, struct kb_val b)
{
	struct kb *k = a->k;
	a->head.limit = attention_size(k, &a->key.size[ATTENTION_ROW]);
	if (a->has_len)
		a->head.limit = kb_min(k, a->head.limit, sequence_value(a, &a->len, b));
	struct kb_val past = kb_index(k, 0);
	if (a->rows_differ && a->has_past)
		past = sequence_value(a, &a->past, b);
	a->head.first_limit = kb_add_const(k, past, a->reach);
	a->head.first_begin = kb_add_const(k, past, 1 - a->window);
}

static struct kb_val head_at(const struct attention *a, const struct kb_tensor *t, struct kb_val b,
                             struct kb_val h)
{
	struct kb *k = a->k;
	struct kb_val head = attention_step(k, t, ATTENTION_HEAD, h);
	struct kb_val index = kb_add(k, attention_step(k, t, ATTENTION_BATCH, b), head);
	return attention_at(k, t, t->ptr, index);
}

void attention_find_head(struct attention *a, struct kb_val b, struct kb_val key_head)
{
	struct kb_val first = is_grouped(a) ? kb_mul(a->k, key_head, a->head.queries) : key_head;
	a->head.q = head_at(a, &a->q, b, first);
	a->head.out = head_at(a, &a->out, b, first);
	a->head.k = head_at(a, &a->key, b, key_head);
	a->head.v = head_at(a, &a->value, b, key_head);
	if (a->has_bias)
		a->head.bias = head_at(a, &a->bias, b, first);
	if (a->has_sinks)
		a->head.sink = attention_at(a->k, &a->sinks, a->sinks.ptr,
		                            attention_step(a->k, &a->sinks, 0, first));
}

/* ---- the task ---- */

static void clear_rows(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->lanes);
	struct kb_val least = kb_splat(k, kb_f32(k, -FLT_MAX), a->lanes);
	/* the last tile reads and adds to rows that do not exist, and vectors of them */
	struct kb_val rows = attention_round_up(k, a->n_rows, a->mr);
	if (a->slots.n > 0)
		rows = kb_index(k, a->slots.rows);
	struct kb_val end = kb_add_const(k, rows, a->lanes);
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), end, a->lanes, KB_NONEMPTY);
	kb_store(k, least, a->sums.max, row, 0, a->lanes * 4);
	kb_store(k, zero, a->sums.sum, row, 0, a->lanes * 4);
	kb_end_loop(k);
	struct kb_val n = kb_mul(k, rows, kb_index(k, a->value_pad));
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), n, a->lanes, KB_NONEMPTY);
	kb_store(k, zero, a->sums.acc, e, 0, a->lanes * 4);
	kb_end_loop(k);
}

struct row_store {
	const struct attention *a;
	struct kb_val acc, out, factor;
};

/* out[e ..] = acc[e ..] factor for n of `lanes` elements. */
static void store_part(void *user, struct kb_val e, int lanes, int n)
{
	const struct row_store *s = user;
	struct kb *k = s->a->k;
	const struct kb_tensor *out = &s->a->out;
	struct kb_val x = kb_load(k, KB_TYPE(KB_F32, lanes), s->acc, e, 0, lanes * 4);
	x = kb_mul(k, x, kb_splat(k, s->factor, lanes));
	x = kb_cvt(k, x, attention_scalar(out->dtype));
	kb_store_part(k, x, n, s->out, attention_step(k, out, ATTENTION_ELEMENT, e), 0);
}

/* The logit of row r of the head, to the base of the kernel. */
static struct kb_val sink_of(const struct attention *a, struct kb_val r)
{
	struct kb *k = a->k;
	struct kb_val head = is_grouped(a) ? kb_bin(k, KB_REM, r, a->head.queries) : kb_index(k, 0);
	struct kb_val index = attention_step(k, &a->sinks, 0, head);
	struct kb_val x = attention_load(k, &a->sinks, a->head.sink, index, 0, 1, 1);
	return a->base2 ? kb_mul(k, x, kb_f32(k, (float)ATTENTION_LOG2E)) : x;
}

/*
 * What the sink does to a row that has all of its keys: its power joins the sum, relative to the larger one
 * of the row's maximum and the sink, which bounds both powers by 1. The factor brings the row there.
 */
static struct kb_val join_sink(const struct attention *a, struct kb_val row, struct kb_val *sum)
{
	struct kb *k = a->k;
	struct kb_val sink = sink_of(a, kb_add(k, a->first_row, row));
	struct kb_val before = kb_load(k, KB_F32_T, a->sums.max, row, 0, 0), max = kb_max(k, sink, before);
	struct kb_val factor = attention_power(a, kb_sub(k, before, max));
	*sum = kb_fma(k, *sum, factor, attention_power(a, kb_sub(k, sink, max)));
	return factor;
}

/* The weighted mean of one row; a row that saw nothing has sum 0 and gives 0. */
void attention_store_row(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	int lanes = attention_is_dense(&a->out, ATTENTION_ELEMENT) ? a->lanes : 1;
	struct row_store s = {.a = a, .acc = attention_scratch_row(k, a->sums.acc, row, a->value_pad)};
	struct kb_val index = attention_row_index(a, &a->out, kb_add(k, a->first_row, row));
	s.out = attention_at(k, &a->out, a->head.out, index);
	struct kb_val sum = kb_load(k, KB_F32_T, a->sums.sum, row, 0, 0), one = kb_f32(k, 1);
	if (a->has_sinks)
		one = join_sink(a, row, &sum);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	s.factor = kb_bin(k, KB_DIV, one, kb_select(k, is_zero, kb_f32(k, 1), sum));
	attention_walk_row(a, a->value_size, lanes, store_part, &s);
}

/* The first panel of keys that the task reads; with any visible key, it has one. */
static struct kb_val task_begin(const struct attention *a)
{
	struct kb *k = a->k;
	if (a->window == 0)
		return kb_index(k, 0);
	struct kb_val last = kb_add_const(k, a->visible, -1);
	struct kb_val begin = kb_min(k, attention_row_begin(a, a->first_row), last);
	return attention_round_down(k, kb_max(k, begin, kb_index(k, 0)), TILE_PANEL);
}

/* Blocks of keys of the task. */
struct blocks {
	struct kb_val lo, hi; /* keys: lo begins a block */
	struct kb_val slot;   /* of the first block, where blocks are divided */
};

/* Where blocks are divided, the open block's sums have a slot of their own. */
static void open_slot(struct attention *a, const struct blocks *b)
{
	struct kb *k = a->k;
	struct kb_val n = kb_bin(k, KB_DIV, kb_sub(k, a->block.first, b->lo), kb_index(k, a->bc));
	const struct attention_sums slot = attention_slot(a, a->slots.base, kb_add(k, b->slot, n));
	a->sums.acc = kb_select(k, a->slots.is_split, slot.acc, a->sums.acc);
	a->sums.max = kb_select(k, a->slots.is_split, slot.max, a->sums.max);
	a->sums.sum = kb_select(k, a->slots.is_split, slot.sum, a->sums.sum);
	kb_if(k, a->slots.is_split);
	clear_rows(a);
	kb_end_if(k);
}

/* Adds blocks of keys to the task's sums. */
static void run_blocks(struct attention *a, const struct blocks *b)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	const struct attention_sums own = a->sums;
	a->block.begin = zero;
	a->block.first = kb_loop(k, "block", b->lo, b->hi, a->bc, 0);
	if (a->window > 0)
		a->block.begin = kb_max(k, kb_sub(k, a->begin, a->block.first), zero);
	a->block.n = kb_min(k, kb_sub(k, a->visible, a->block.first), kb_index(k, a->bc));
	if (a->slots.n > 0)
		open_slot(a, b);
	attention_block(a);
	kb_end_loop(k);
	a->sums = own;
}

static void find_task(struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val last = kb_add_const(k, kb_add(k, a->first_row, a->n_rows), -1);
	a->visible = attention_row_limit(a, last);
	a->begin = task_begin(a);
}

static void store_rows(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), a->n_rows, 1, KB_NONEMPTY);
	attention_store_row(a, row);
	kb_end_loop(k);
}

/* Rows first_row .. + n_rows of the head: all of their blocks, or this worker's part of them. */
static void run_task(struct attention *a, const struct blocks *part)
{
	struct kb *k = a->k;
	find_task(a);
	struct blocks b = {.lo = attention_round_down(k, a->begin, a->bc), .hi = a->visible};
	attention_copy_queries(a);
	clear_rows(a);
	if (a->slots.n == 0) {
		run_blocks(a, &b);
		store_rows(a);
		return;
	}
	b.lo = kb_select(k, a->slots.is_split, part->lo, b.lo);
	b.hi = kb_select(k, a->slots.is_split, part->hi, b.hi);
	b.slot = part->slot;
	run_blocks(a, &b);
	kb_if(k, a->slots.is_split);
	kb_else(k);
	store_rows(a);
	kb_end_if(k);
}

/* ---- shares ---- */

/* The line of tiles, and this worker's part [lo, hi) of it; where blocks are divided, the line of all blocks.
 */
struct line {
	struct attention_heads all;
	struct kb_val tiles; /* of a head */
	struct kb_val lo, hi;
	struct kb_var at;
	struct kb_val block_lo, block_hi;
	struct kb_var block_at;
};

/* Length of tile i of a head of the open sequence: keys it sees, and what it costs beside them. */
static struct kb_val tile_length(const struct attention *a, const struct line *l, struct kb_val i)
{
	struct kb *k = a->k;
	struct kb_val first = kb_mul(k, i, kb_index(k, a->mr));
	struct kb_val end = kb_add_const(k, first, a->mr);
	struct kb_val last = kb_add_const(k, kb_min(k, end, l->all.rows), -1);
	struct kb_val begin = attention_row_begin(a, first);
	struct kb_val keys = kb_sub(k, attention_row_limit(a, last), begin);
	keys = kb_max(k, keys, kb_index(k, 0));
	return kb_add_const(k, kb_bin(k, KB_DIV, keys, kb_index(k, TILE_PANEL)), 1);
}

/* Length of all heads. */
static struct kb_val line_length(struct attention *a, const struct line *l)
{
	struct kb *k = a->k;
	struct kb_var sum = kb_var(k, "length", KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), l->all.batch, 1, 0);
	attention_find_limits(a, b);
	struct kb_var head = kb_var(k, "head_length", KB_INDEX_T, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "tile", kb_index(k, 0), l->tiles, 1, 0);
	struct kb_val length = tile_length(a, l, i);
	kb_set(k, head, kb_add(k, kb_get(k, head), length));
	kb_end_loop(k);
	struct kb_val of_all = kb_mul(k, kb_get(k, head), l->all.heads);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), of_all));
	kb_end_loop(k);
	return kb_get(k, sum);
}

struct kb_val attention_part_begin(const struct attention *a, struct kb_val length, struct kb_val w)
{
	struct kb *k = a->k;
	struct kb_val n = a->job->n_workers;
	struct kb_val each = kb_bin(k, KB_DIV, length, n), more = kb_bin(k, KB_REM, length, n);
	struct kb_val extra = kb_min(k, w, more);
	return kb_add(k, kb_mul(k, w, each), extra);
}

static struct kb_val count_if(struct kb *k, struct kb_val n, struct kb_val cond)
{
	return kb_add(k, n, kb_select(k, cond, kb_index(k, 1), kb_index(k, 0)));
}

/* The tiles of the head that begin in this worker's part: rows [*lo, *hi). */
static void find_rows(const struct attention *a, const struct line *l, struct kb_val *lo, struct kb_val *hi)
{
	struct kb *k = a->k;
	struct kb_var before = kb_var(k, "before", KB_INDEX_T, kb_index(k, 0));
	struct kb_var end = kb_var(k, "end", KB_INDEX_T, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "tile", kb_index(k, 0), l->tiles, 1, 0), at = kb_get(k, l->at);
	struct kb_val is_before = kb_cmp(k, KB_LT, at, l->lo);
	kb_set(k, before, count_if(k, kb_get(k, before), is_before));
	struct kb_val is_below = kb_cmp(k, KB_LT, at, l->hi);
	kb_set(k, end, count_if(k, kb_get(k, end), is_below));
	kb_set(k, l->at, kb_add(k, at, tile_length(a, l, i)));
	kb_end_loop(k);
	struct kb_val mr = kb_index(k, a->mr);
	*lo = kb_mul(k, kb_get(k, before), mr);
	*hi = kb_min(k, kb_mul(k, kb_get(k, end), mr), l->all.rows);
}

/* This worker's blocks of the head; its rows are all of them where it has any block. */
static struct blocks find_blocks(struct attention *a, const struct line *l, struct kb_val *lo,
                                 struct kb_val *hi)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0), at = kb_get(k, l->block_at);
	struct kb_val n = attention_head_blocks(a, &l->all);
	struct kb_val first = kb_min(k, kb_max(k, kb_sub(k, l->block_lo, at), zero), n);
	struct kb_val end = kb_min(k, kb_max(k, kb_sub(k, l->block_hi, at), zero), n);
	struct kb_val key = attention_round_down(k, a->begin, a->bc), bc = kb_index(k, a->bc);
	struct blocks b = {.lo = kb_add(k, key, kb_mul(k, first, bc))};
	b.hi = kb_min(k, kb_add(k, key, kb_mul(k, end, bc)), a->visible);
	b.slot = kb_sub(k, kb_add(k, at, first), l->block_lo);
	kb_set(k, l->block_at, kb_add(k, at, n));
	struct kb_val any = kb_select(k, kb_cmp(k, KB_LT, first, end), l->all.rows, zero);
	*lo = kb_select(k, a->slots.is_split, zero, *lo);
	*hi = kb_select(k, a->slots.is_split, any, *hi);
	return b;
}

static void run_head(struct attention *a, const struct line *l, struct kb_val b, struct kb_val key_head)
{
	struct kb *k = a->k;
	struct kb_val lo, hi;
	struct blocks part = {0};
	find_rows(a, l, &lo, &hi);
	if (a->slots.n > 0)
		part = find_blocks(a, l, &lo, &hi);
	kb_if(k, kb_cmp(k, KB_LT, lo, hi));
	attention_find_head(a, b, key_head);
	int64_t rows = (a->br + a->mr - 1) / a->mr * a->mr;
	a->first_row = kb_loop(k, "row", lo, hi, rows, KB_NONEMPTY);
	a->n_rows = kb_min(k, kb_sub(k, hi, a->first_row), kb_index(k, rows));
	run_task(a, &part);
	kb_end_loop(k);
	kb_end_if(k);
}

static struct kb_val heads_of_a_group(const struct attention *a)
{
	const struct kb_size *q = &a->q.size[ATTENTION_HEAD], *key = &a->key.size[ATTENTION_HEAD];
	if (q->is_const && key->is_const && key->c > 0)
		return kb_index(a->k, q->c / key->c);
	struct kb_val heads = attention_size(a->k, key);
	return kb_bin(a->k, KB_DIV, attention_size(a->k, q), heads);
}

/* All of the heads whose queries, keys and values this worker has computed, nothing of others. */
static void take_parts(struct attention *a, struct line *l, struct kb_val *first, struct kb_val *end)
{
	struct kb *k = a->k;
	struct kb_val by_parts = kernel_by_parts(a->job);
	struct kb_val each = kb_bin(k, KB_DIV, l->all.heads, a->job->n_workers);
	struct kb_val own = kb_mul(k, a->job->worker, each);
	*first = kb_select(k, by_parts, own, *first);
	*end = kb_select(k, by_parts, kb_add(k, own, each), *end);
	l->lo = kb_select(k, by_parts, kb_index(k, 0), l->lo);
	l->hi = kb_select(k, by_parts, kb_index(k, INT64_MAX), l->hi);
	*a->job->is_divided = true;
}

struct attention_heads attention_all_heads(struct attention *a)
{
	struct kb *k = a->k;
	struct attention_heads h = {.batch = attention_size(k, &a->q.size[ATTENTION_BATCH])};
	h.heads = attention_size(k, &a->key.size[ATTENTION_HEAD]);
	a->head.queries = heads_of_a_group(a);
	h.rows = kb_mul(k, attention_size(k, &a->q.size[ATTENTION_ROW]), a->head.queries);
	return h;
}

struct kb_val attention_head_blocks(struct attention *a, const struct attention_heads *h)
{
	struct kb *k = a->k;
	a->first_row = kb_index(k, 0);
	a->n_rows = h->rows;
	find_task(a);
	struct kb_val keys = kb_sub(k, a->visible, attention_round_down(k, a->begin, a->bc));
	keys = kb_max(k, kb_add_const(k, keys, a->bc - 1), kb_index(k, 0));
	return kb_bin(k, KB_DIV, keys, kb_index(k, a->bc));
}

struct kb_val attention_all_blocks(struct attention *a, const struct attention_heads *h)
{
	struct kb *k = a->k;
	struct kb_var sum = kb_var(k, "blocks", KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), h->batch, 1, 0);
	attention_find_limits(a, b);
	struct kb_val blocks = kb_mul(k, attention_head_blocks(a, h), h->heads);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), blocks));
	kb_end_loop(k);
	return kb_get(k, sum);
}

/* Whether blocks are divided, and this worker's part of the line of all blocks. */
static void find_split(struct attention *a, struct line *l)
{
	struct kb *k = a->k;
	struct kb_val heads = kb_mul(k, l->all.batch, l->all.heads);
	a->slots.is_split = kernel_is_split(k, heads, a->job->n_workers);
	struct kb_val length = attention_all_blocks(a, &l->all);
	l->block_lo = attention_part_begin(a, length, a->job->worker);
	l->block_hi = attention_part_begin(a, length, kb_add_const(k, a->job->worker, 1));
	l->block_at = kb_var(k, "block_at", KB_INDEX_T, kb_index(k, 0));
}

void attention_tasks(struct attention *a)
{
	struct kb *k = a->k;
	struct line l = {.all = attention_all_heads(a)};
	l.tiles = kb_bin(k, KB_DIV, kb_add_const(k, l.all.rows, a->mr - 1), kb_index(k, a->mr));
	struct kb_val length = line_length(a, &l);
	l.lo = attention_part_begin(a, length, a->job->worker);
	l.hi = attention_part_begin(a, length, kb_add_const(k, a->job->worker, 1));
	l.at = kb_var(k, "at", KB_INDEX_T, kb_index(k, 0));
	struct kb_val first = kb_index(k, 0), end = l.all.heads;
	if (a->slots.n > 0)
		find_split(a, &l);
	if (a->job->parts > 1)
		take_parts(a, &l, &first, &end);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), l.all.batch, 1, 0);
	attention_find_limits(a, b);
	struct kb_val head = kb_loop(k, "head", first, end, 1, 0);
	run_head(a, &l, b, head);
	kb_end_loop(k);
	kb_end_loop(k);
}
