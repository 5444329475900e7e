/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention generator: binds operands, describes them for the nest, and divides heads and rows among workers.
 * attention.h states the result; attention_internal.h lists the parts.
 *
 * A key head serves a group of query heads (grouped-query attention): its rows are the tokens times these. A task is
 * some rows of a key head, computed KV block by KV block (bc keys each), in register tiles of mr rows. A partial
 * result of a row is its maximum score, the sum of exponentials relative to it, and the accumulated values, not yet
 * divided by the sum. With split-KV the blocks of a head are divided among workers, and each block has a slot, a
 * partial result of its own, which attention_split.c combines. limits: which keys rows see (mask, window, lengths).
 * Scratch is in units of f32.
 *
 * Division among workers: the row tiles of all heads form one sequence, each tile with a cost (tile_cost), of which
 * workers take equal shares (struct share: [lo, hi) and a cursor). So a worker has few heads, reads keys and values of
 * a head once for all its rows, and causal rows are balanced. Results do not depend on the division. A size that is
 * known in the call only is a kb_val; is_split with id 0: blocks are never divided. Later rows see later keys, so the
 * first and the last row of a task bound its keys.
 */
#include <inttypes.h>

#include "backends/kernels/attention.h"
#include "backends/kernels/attention_internal.h"
#include "backends/kernels/batch_rows.h"
#include "backends/kernels/generator.h"
#include "ir/support/checked.h"

#include <assert.h>
#include <float.h>

/* ---- rows of a head ---- */

/* Token of row r of a head. */
static struct kb_val token_of(const struct attention *a, struct kb_val r)
{
	return kb_bin(a->k, KB_DIV, r, a->heads.queries);
}

/* Element offset of row r in an operand [B,H,S,..]: its token, and the query head within the group (rows are token by
 * token). */
struct kb_val attention_row_index(const struct attention *a, const struct kb_tensor *t, struct kb_val r)
{
	struct kb *k = a->k;
	struct kb_val token = attention_offset(k, t, ATTENTION_ROW, token_of(a, r));
	struct kb_val head = kb_bin(k, KB_REM, r, a->heads.queries);
	return kb_add(k, token, attention_offset(k, t, ATTENTION_HEAD, head));
}

struct kb_val attention_row_begin(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r)
{
	struct kb_val zero = kb_index(a->k, 0);
	if (a->mask.window == 0)
		return zero;
	return kb_max(a->k, kb_add(a->k, l->begin, token_of(a, r)), zero);
}

struct kb_val attention_row_limit(const struct attention *a, const struct attention_limits *l,
                                  struct kb_val r)
{
	if (!a->mask.rows_differ)
		return l->all;
	return kb_min(a->k, l->all, kb_add(a->k, l->first, token_of(a, r)));
}

/* ---- the head ---- */

/* Element of an i32[B] operand. */
static struct kb_val sequence_value(const struct attention *a, const struct kb_tensor *t, struct kb_val b)
{
	struct kb *k = a->k;
	return kb_cvt(k, kb_load(k, KB_I32_T, t->ptr, attention_offset(k, t, 0, b), 0, 0), KB_INDEX);
}

/* Value of a size; constants stay visible to index arithmetic. */
static struct kb_val attention_dim(struct kb *k, const struct kb_size *s)
{
	return s->is_const ? kb_index(k, s->c) : s->v;
}

/* The visible keys of sequence b: below its length (all); the end of those that token 0 sees (first), and where its
 * window begins, which later tokens shift by one each. past: keys before the call, by which the mask is shifted. */
struct attention_limits attention_find_limits(const struct attention *a, struct kb_val b)
{
	struct kb *k = a->k;
	struct attention_limits l = {.rows = a->heads.rows};
	if (attention_has(&a->heads.lengths)) {
		struct kb_val positions = attention_dim(k, &a->q.size[ATTENTION_ROW]);
		positions = batch_real_positions(k, &a->heads.lengths, positions, b);
		l.rows = kb_mul(k, positions, a->heads.queries);
	}
	l.all = attention_dim(k, &a->key.size[ATTENTION_ROW]);
	if (attention_has(&a->len))
		l.all = kb_min(k, l.all, sequence_value(a, &a->len, b));
	struct kb_val past = kb_index(k, 0);
	if (a->mask.rows_differ && attention_has(&a->past))
		past = sequence_value(a, &a->past, b);
	l.first = kb_add_const(k, past, a->mask.reach);
	l.begin = kb_add_const(k, past, 1 - a->mask.window);
	return l;
}

/* Address of head h of sequence b. */
static struct kb_val head_at(const struct attention *a, const struct kb_tensor *t, struct kb_val b,
                             struct kb_val h)
{
	struct kb *k = a->k;
	struct kb_val head = attention_offset(k, t, ATTENTION_HEAD, h);
	struct kb_val index = kb_add(k, attention_offset(k, t, ATTENTION_BATCH, b), head);
	return attention_at(k, t, t->ptr, index);
}

/* Addresses of a key head of a sequence in all operands that there are; queries, output, bias and sink at the first
 * query head of its group. */
struct attention_head attention_find_head(const struct attention *a, struct kb_val b, struct kb_val key_head)
{
	struct kb_val first = kb_mul(a->k, key_head, a->heads.queries);
	struct attention_head h = {.q = head_at(a, &a->q, b, first)};
	h.out = head_at(a, &a->out, b, first);
	h.k = head_at(a, &a->key, b, key_head);
	h.v = head_at(a, &a->value, b, key_head);
	if (attention_has(&a->bias))
		h.bias = head_at(a, &a->bias, b, first);
	if (attention_has(&a->k_scale))
		h.k_scale = head_at(a, &a->k_scale, b, key_head);
	if (attention_has(&a->v_scale))
		h.v_scale = head_at(a, &a->v_scale, b, key_head);
	if (attention_has(&a->sinks))
		h.sink = attention_at(a->k, &a->sinks, a->sinks.ptr,
		                      attention_offset(a->k, &a->sinks, 0, first));
	return h;
}

/* ---- the task ---- */

/* Resets partial results of n_rows rows: no key seen (maximum -FLT_MAX, sum 0). Maxima and sums are read in full
 * vectors from any row on, so a vector more is reset. With split-KV all rows of a slot, which may be fewer than a tile
 * of mr. */
static void zero_partial(const struct attention *a, const struct attention_partial *s, struct kb_val n_rows)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), a->nest.lanes);
	struct kb_val lowest = kb_splat(k, kb_f32(k, -FLT_MAX), a->nest.lanes);
	/* the last tile reads and updates rows that do not exist, in full vectors */
	struct kb_val rows = attention_round_up(k, n_rows, a->nest.mr);
	if (a->nest.slots.n > 0)
		rows = kb_index(k, a->nest.slots.rows);
	struct kb_val end = kb_add_const(k, rows, a->nest.lanes);
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), end, a->nest.lanes, KB_NONEMPTY);
	kb_store(k, lowest, s->max, row, 0, a->nest.lanes * 4);
	kb_store(k, zero, s->sum, row, 0, a->nest.lanes * 4);
	kb_end_loop(k);
	struct kb_val n = kb_mul_const(k, rows, a->nest.value_pad);
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), n, a->nest.lanes, KB_NONEMPTY);
	kb_store(k, zero, s->acc, e, 0, a->nest.lanes * 4);
	kb_end_loop(k);
}

struct row_store {
	const struct attention *a;
	struct kb_val acc, out, factor;
};

/* out[e ..] = acc[e ..] factor for n of `lanes` elements (an attention_row_fn); scratch is padded, the output is
 * not. */
static void store_elements(void *user, struct kb_val e, int lanes, int n)
{
	const struct row_store *s = user;
	struct kb *k = s->a->k;
	const struct kb_tensor *out = &s->a->out;
	struct kb_val x = kb_load(k, KB_TYPE(KB_F32, lanes), s->acc, e, 0, lanes * 4);
	x = kb_mul(k, x, kb_splat(k, s->factor, lanes));
	x = kb_cvt(k, x, eval_stored_scalar(out->dtype));
	kb_store_part(k, x, n, s->out, attention_offset(k, out, ATTENTION_ELEMENT, e), 0);
}

/*
 * 1 / sum; a row without visible keys has sum 0 and result 0. A sink is combined after all keys: its exponential is
 * added to the sum, relative to the larger one of row maximum and sink logit, so that no exponential exceeds 1;
 * `factor` then also rescales the row to that maximum. The logit, of the row's query head, is in the base of the kernel
 * (base2: times log2 e).
 */
struct kb_val attention_row_factor(const struct attention *a, const struct attention_head *h, struct kb_val r,
                                   struct kb_val max, struct kb_val sum)
{
	struct kb *k = a->k;
	struct kb_val factor = kb_f32(k, 1), sink_exp;
	if (attention_has(&a->sinks)) {
		struct kb_val head = kb_bin(k, KB_REM, r, a->heads.queries);
		struct kb_val index = attention_offset(k, &a->sinks, 0, head);
		struct kb_val logit = attention_load(k, &a->sinks, h->sink, index, 0, 1, 1);
		if (a->score.base2)
			logit = kb_mul(k, logit, kb_f32(k, (float)ATTENTION_LOG2E));
		(void)attention_combine_max(a, max, logit, &factor, &sink_exp);
		sum = kb_fma(k, sum, factor, sink_exp);
	}
	struct kb_val is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	return kb_bin(k, KB_DIV, factor, kb_select(k, is_zero, kb_f32(k, 1), sum));
}

void attention_store(const struct attention *a, const struct attention_head *h, struct kb_val r,
                     struct kb_val column, struct kb_val x)
{
	struct kb *k = a->k;
	struct kb_val at = attention_offset(k, &a->out, ATTENTION_ELEMENT, column);
	at = kb_add(k, attention_row_index(a, &a->out, r), at);
	kb_store(k, kb_cvt(k, x, eval_stored_scalar(a->out.dtype)), h->out, at, 0, 0);
}

void attention_store_row(const struct attention *a, const struct attention_head *h, struct kb_val first,
                         struct kb_val row)
{
	struct kb *k = a->k;
	const struct attention_partial *partial = &a->scratch.partial;
	struct row_store s = {.a = a, .acc = attention_scratch_row(k, partial->acc, row, a->nest.value_pad)};
	struct kb_val r = kb_add(k, first, row);
	s.out = attention_at(k, &a->out, h->out, attention_row_index(a, &a->out, r));
	struct kb_val max = kb_load(k, KB_F32_T, partial->max, row, 0, 0);
	struct kb_val sum = kb_load(k, KB_F32_T, partial->sum, row, 0, 0);
	s.factor = attention_row_factor(a, h, r, max, sum);
	attention_loop_row(a, a->value_size, a->nest.out_lanes, store_elements, &s);
}

/* The task of rows [first, first + n): keys [begin, end) that any of them sees, where later rows see later keys. */
struct attention_task attention_find_task(const struct attention *a, const struct attention_limits *l,
                                          struct kb_val first, struct kb_val n)
{
	struct kb *k = a->k;
	struct attention_task t = {.limits = *l, .first = first, .n = n};
	struct kb_val last = kb_add_const(k, kb_add(k, first, n), -1);
	t.end = attention_row_limit(a, l, last);
	t.begin = kb_index(k, 0);
	if (a->mask.window == 0)
		return t;
	/* at least one key, if any is visible; rounded down to a panel */
	struct kb_val last_key = kb_add_const(k, t.end, -1);
	struct kb_val begin = kb_min(k, attention_row_begin(a, l, first), last_key);
	t.begin = attention_round_down(k, kb_max(k, begin, kb_index(k, 0)), PANEL_COLUMNS);
	return t;
}

/* KV blocks of a task. */
struct blocks {
	struct kb_val lo, hi;   /* keys [lo, hi); lo is the beginning of a block */
	struct kb_val is_split; /* bool: workers divide the blocks of a head (split-KV); none: never */
	struct kb_val slot;     /* of the first block, if split */
};

/* Partial result for the block that begins at key `first`: its slot, zeroed, if split; else the task's, into which all
 * blocks are combined. */
static struct attention_partial partial_of_block(const struct attention *a, const struct attention_task *t,
                                                 const struct blocks *b, struct kb_val first)
{
	struct kb *k = a->k;
	struct attention_partial s = a->scratch.partial;
	if (!b->is_split.id)
		return s;
	struct kb_val n = kb_div_const(k, kb_sub(k, first, b->lo), a->nest.bc);
	const struct attention_partial slot = attention_slot(a, a->scratch.slots, kb_add(k, b->slot, n));
	s.acc = kb_select(k, b->is_split, slot.acc, s.acc);
	s.max = kb_select(k, b->is_split, slot.max, s.max);
	s.sum = kb_select(k, b->is_split, slot.sum, s.sum);
	kb_if(k, b->is_split);
	zero_partial(a, &s, t->n);
	kb_end_if(k);
	return s;
}

/* Address of the keys that are read after this block, to prefetch them: the next block, or the first one of the next
 * head, a stride away. */
static struct kb_val keys_read_next(const struct attention *a, const struct attention_head *h,
                                    const struct attention_block *b, const struct blocks *of)
{
	struct kb *k = a->k;
	struct kb_val step = attention_offset(k, &a->key, ATTENTION_HEAD, kb_index(k, 1));
	struct kb_val after = kb_add_const(k, b->first, a->nest.bc), is_in = kb_cmp(k, KB_LT, after, of->hi);
	struct kb_val head = kb_select(k, is_in, h->k, attention_at(k, &a->key, h->k, step));
	return attention_panel_at(a, head, kb_select(k, is_in, after, of->lo));
}

/* Combines KV blocks into the partial results of the task (with split-KV each into its slot). Keys of the first block
 * before the window, and of the last one after the end, are left out. */
static void emit_kv_blocks(const struct attention *a, const struct attention_head *h,
                           const struct attention_task *t, const struct blocks *b)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0);
	struct attention_block block = {.task = t, .begin = zero, .bias = h->bias};
	block.first = kb_loop(k, "block", b->lo, b->hi, a->nest.bc, 0);
	if (a->mask.window > 0)
		block.begin = kb_max(k, kb_sub(k, t->begin, block.first), zero);
	block.n = kb_min(k, kb_sub(k, t->end, block.first), kb_index(k, a->nest.bc));
	block.partial = partial_of_block(a, t, b, block.first);
	attention_pack_block(a, h, &block);
	if (a->nest.is_one_run)
		block.next = keys_read_next(a, h, &block, b);
	attention_block(a, &block);
	kb_end_loop(k);
}

/* Emits all KV blocks of the task and stores its rows; or, if blocks are divided (is_split, in the call), this worker's
 * share of them, which attention_combine stores after a barrier. */
static void emit_task(const struct attention *a, const struct attention_head *h,
                      const struct attention_task *t, const struct blocks *share_of_blocks)
{
	struct kb *k = a->k;
	struct blocks b = {.lo = attention_round_down(k, t->begin, a->nest.bc), .hi = t->end};
	attention_pack_queries(a, h, t);
	zero_partial(a, &a->scratch.partial, t->n);
	if (share_of_blocks->is_split.id) {
		b.is_split = share_of_blocks->is_split;
		b.slot = share_of_blocks->slot;
		b.lo = kb_select(k, b.is_split, share_of_blocks->lo, b.lo);
		b.hi = kb_select(k, b.is_split, share_of_blocks->hi, b.hi);
	}
	emit_kv_blocks(a, h, t, &b);
	if (b.is_split.id) {
		kb_if(k, b.is_split);
		kb_else(k);
	}
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), t->n, 1, KB_NONEMPTY);
	attention_store_row(a, h, t->first, row);
	kb_end_loop(k);
	if (b.is_split.id)
		kb_end_if(k);
}

/* ---- shares ---- */

/* A worker's share [lo, hi) of a sequence of units; at: units passed so far. */
struct share {
	struct kb_val lo, hi;
	struct kb_var at;
};

/* This worker's share of `length` units. */
static struct share find_share(const struct attention *a, struct kb_val length, const char *name)
{
	struct kb *k = a->k;
	struct share s = {.lo = attention_share_begin(a, length, a->job->worker)};
	s.hi = attention_share_begin(a, length, kb_add_const(k, a->job->worker, 1));
	s.at = kb_var(k, name, KB_INDEX_T, kb_index(k, 0));
	return s;
}

/*
 * One traversal of all heads serves two divisions, of which a call uses one. Normally a worker has a share of the row
 * tiles, by cost, and all KV blocks of these rows. With split-KV (is_split at run time) it has a share of the KV blocks
 * of all heads, and all rows of each. Both cursors advance head by head; kb_select picks the rows and blocks.
 */
struct schedule {
	struct share tiles_share;
	struct kb_val is_split; /* none: never */
	struct share blocks;
};

/* Estimated cost of row tile i of a head, in units of 16 keys: visible keys / 16, plus 1 of overhead. */
static struct kb_val tile_cost(const struct attention *a, const struct attention_limits *l, struct kb_val i)
{
	struct kb *k = a->k;
	struct kb_val first = kb_mul_const(k, i, a->nest.mr);
	struct kb_val end = kb_add_const(k, first, a->nest.mr);
	struct kb_val last = kb_add_const(k, kb_min(k, end, l->rows), -1);
	struct kb_val begin = attention_row_begin(a, l, first);
	struct kb_val keys = kb_sub(k, attention_row_limit(a, l, last), begin);
	keys = kb_max(k, keys, kb_index(k, 0));
	return kb_add_const(k, kb_div_const(k, keys, PANEL_COLUMNS), 1);
}

/* Row tiles of a head. */
static struct kb_val count_tiles(const struct attention *a, const struct attention_limits *l)
{
	return kb_div_const(a->k, kb_add_const(a->k, l->rows, a->nest.mr - 1), a->nest.mr);
}

/* Cost of all tiles of a head. */
static struct kb_val head_cost(const struct attention *a, const struct attention_limits *l)
{
	struct kb *k = a->k;
	struct kb_var sum = kb_var(k, "head_length", KB_INDEX_T, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "tile", kb_index(k, 0), count_tiles(a, l), 1, 0);
	struct kb_val cost = tile_cost(a, l, i);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), cost));
	kb_end_loop(k);
	return kb_get(k, sum);
}

/* Sum of a value of each head; that of the heads of one batch entry is the same. */
static struct kb_val sum_heads(const struct attention *a, const char *name,
                               struct kb_val (*of_head)(const struct attention *a,
                                                        const struct attention_limits *l))
{
	struct kb *k = a->k;
	struct kb_var sum = kb_var(k, name, KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), a->heads.batch, 1, 0);
	const struct attention_limits limits = attention_find_limits(a, b);
	struct kb_val of_all = kb_mul(k, of_head(a, &limits), a->heads.heads);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), of_all));
	kb_end_loop(k);
	return kb_get(k, sum);
}

struct kb_val attention_share_begin(const struct attention *a, struct kb_val length, struct kb_val w)
{
	struct kb *k = a->k;
	struct kb_val n = a->job->n_workers;
	struct kb_val each = kb_bin(k, KB_DIV, length, n), remainder = kb_bin(k, KB_REM, length, n);
	struct kb_val extra = kb_min(k, w, remainder);
	return kb_add(k, kb_mul(k, w, each), extra);
}

/* Increments n if the condition holds. */
static void count_if(struct kb *k, struct kb_var n, struct kb_val cond)
{
	struct kb_val old = kb_get(k, n);
	kb_set(k, n, kb_add(k, old, kb_select(k, cond, kb_index(k, 1), kb_index(k, 0))));
}

/* Rows [*lo, *hi) of the tiles of the head whose cost interval begins in this worker's share: tiles before lo and
 * before hi of the share are counted one by one, since their costs differ, so that a tile belongs to one worker.
 * Advances the cursor by the head's cost. */
static void find_share_rows(const struct attention *a, const struct schedule *l,
                            const struct attention_limits *limits, struct kb_val *lo, struct kb_val *hi)
{
	struct kb *k = a->k;
	struct kb_var before = kb_var(k, "before", KB_INDEX_T, kb_index(k, 0));
	struct kb_var end = kb_var(k, "end", KB_INDEX_T, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "tile", kb_index(k, 0), count_tiles(a, limits), 1, 0),
	              at = kb_get(k, l->tiles_share.at);
	count_if(k, before, kb_cmp(k, KB_LT, at, l->tiles_share.lo));
	count_if(k, end, kb_cmp(k, KB_LT, at, l->tiles_share.hi));
	kb_set(k, l->tiles_share.at, kb_add(k, at, tile_cost(a, limits, i)));
	kb_end_loop(k);
	struct kb_val mr = kb_index(k, a->nest.mr);
	*lo = kb_mul(k, kb_get(k, before), mr);
	*hi = kb_min(k, kb_mul(k, kb_get(k, end), mr), limits->rows);
}

static struct attention_task all_rows_of_head(const struct attention *a, const struct attention_limits *l)
{
	return attention_find_task(a, l, kb_index(a->k, 0), l->rows);
}

/* Number of KV blocks that the rows of a task see; blocks begin at multiples of bc, so the first may be seen in
 * part. */
static struct kb_val count_blocks(const struct attention *a, const struct attention_task *t)
{
	struct kb *k = a->k;
	struct kb_val keys = kb_sub(k, t->end, attention_round_down(k, t->begin, a->nest.bc));
	keys = kb_max(k, kb_add_const(k, keys, a->nest.bc - 1), kb_index(k, 0));
	return kb_div_const(k, keys, a->nest.bc);
}

/* This worker's KV blocks of the head (n of all blocks from the cursor on), and the slot of the first. If the call is
 * split, *lo, *hi become all rows if it has any block, else none; otherwise they stay. */
static struct blocks find_share_blocks(const struct attention *a, const struct schedule *l,
                                       const struct attention_limits *limits, struct kb_val *lo,
                                       struct kb_val *hi)
{
	struct kb *k = a->k;
	struct kb_val zero = kb_index(k, 0), at = kb_get(k, l->blocks.at);
	const struct attention_task all = all_rows_of_head(a, limits);
	struct kb_val n = count_blocks(a, &all);
	struct kb_val first = kb_min(k, kb_max(k, kb_sub(k, l->blocks.lo, at), zero), n);
	struct kb_val end = kb_min(k, kb_max(k, kb_sub(k, l->blocks.hi, at), zero), n);
	struct kb_val key = attention_round_down(k, all.begin, a->nest.bc), bc = kb_index(k, a->nest.bc);
	struct blocks b = {.is_split = l->is_split};
	b.lo = kb_add(k, key, kb_mul(k, first, bc));
	b.hi = kb_min(k, kb_add(k, key, kb_mul(k, end, bc)), all.end);
	b.slot = kb_sub(k, kb_add(k, at, first), l->blocks.lo);
	kb_set(k, l->blocks.at, kb_add(k, at, n));
	struct kb_val any = kb_select(k, kb_cmp(k, KB_LT, first, end), a->heads.rows, zero);
	*lo = kb_select(k, l->is_split, zero, *lo);
	*hi = kb_select(k, l->is_split, any, *hi);
	return b;
}

/* Tasks of this worker in a key head: at most br rows each, rounded up to full register tiles, for which scratch has
 * room. Addresses are computed only if the worker has rows of the head. */
static void emit_head(const struct attention *a, const struct schedule *l,
                      const struct attention_limits *limits, struct kb_val b, struct kb_val key_head)
{
	struct kb *k = a->k;
	struct kb_val lo, hi;
	struct blocks share_of_blocks = {.is_split = l->is_split};
	find_share_rows(a, l, limits, &lo, &hi);
	if (l->is_split.id)
		share_of_blocks = find_share_blocks(a, l, limits, &lo, &hi);
	kb_if(k, kb_cmp(k, KB_LT, lo, hi));
	const struct attention_head h = attention_find_head(a, b, key_head);
	struct kb_val first = kb_loop(k, "row", lo, hi, a->nest.task_rows, KB_NONEMPTY);
	struct kb_val n = kb_min(k, kb_sub(k, hi, first), kb_index(k, a->nest.task_rows));
	const struct attention_task t = attention_find_task(a, limits, first, n);
	emit_task(a, &h, &t, &share_of_blocks);
	kb_end_loop(k);
	kb_end_if(k);
}

struct kb_val attention_head_blocks(const struct attention *a, const struct attention_limits *l)
{
	const struct attention_task all = all_rows_of_head(a, l);
	return count_blocks(a, &all);
}

struct kb_val attention_all_blocks(const struct attention *a)
{
	return sum_heads(a, "blocks", attention_head_blocks);
}

/* Emits all tasks of this worker: a loop over all heads, in which the cursors tell what belongs to the worker. With
 * slots in scratch the call decides between the two divisions (kernel_is_split). */
static void attention_tasks(const struct attention *a)
{
	struct kb *k = a->k;
	const struct attention_heads *all = &a->heads;
	struct schedule l = {.tiles_share = find_share(a, sum_heads(a, "length", head_cost), "at")};
	if (a->nest.slots.n > 0) {
		l.is_split = kernel_is_split(k, kb_mul(k, all->batch, all->heads), a->job->n_workers);
		l.blocks = find_share(a, attention_all_blocks(a), "block_at");
	}
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), all->batch, 1, 0);
	const struct attention_limits limits = attention_find_limits(a, b);
	struct kb_val head = kb_loop(k, "head", kb_index(k, 0), all->heads, 1, 0);
	emit_head(a, &l, &limits, b, head);
	kb_end_loop(k);
	kb_end_loop(k);
}

/* ---- the group ---- */

/* Operands of OP_attention. */
enum {
	Q = OPERAND(attention, q),
	KEY = OPERAND(attention, k),
	VALUE = OPERAND(attention, v),
	BIAS = OPERAND(attention, bias),
	LEN = OPERAND(attention, len),
	PAST = OPERAND(attention, past),
	SINKS = OPERAND(attention, sinks),
	K_SCALE = OPERAND(attention, k_scale),
	V_SCALE = OPERAND(attention, v_scale)
};

#define HEAD_MAX 65536
#define UNROLLED 8 /* vectors of a row that are unrolled */

/* ---- tensors ---- */

struct kb_type attention_vector(const struct attention *a)
{
	return KB_TYPE(KB_F32, a->nest.lanes);
}

struct kb_val attention_offset(struct kb *k, const struct kb_tensor *t, int axis, struct kb_val index)
{
	return kb_mul(k, index, attention_dim(k, &t->stride[axis]));
}

struct kb_val attention_at(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index)
{
	return kb_ptr_add(k, ptr, kb_mul_const(k, index, ir_dtype_bytes(t->dtype)), 0);
}

struct kb_val attention_load(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index,
                             int64_t disp, int lanes, int n)
{
	struct kb_type type = KB_TYPE(eval_stored_scalar(t->dtype), lanes);
	return kb_cvt(k, kb_load_part(k, type, n, ptr, index, disp), KB_F32);
}

struct kb_val attention_load_vector(const struct attention *a, enum ir_dtype dtype, struct kb_val ptr,
                                    struct kb_val index, int64_t disp, bool is_aligned)
{
	struct kb_type type = KB_TYPE(eval_stored_scalar(dtype), a->nest.lanes);
	int align = is_aligned ? a->nest.lanes * (int)ir_dtype_bytes(dtype) : 0;
	return kb_cvt(a->k, kb_load(a->k, type, ptr, index, disp, align), KB_F32);
}

struct kb_val attention_round_factor(const struct attention *a, struct kb_val x)
{
	return a->is_bf16 ? kb_cvt(a->k, kb_cvt(a->k, x, KB_BF16), KB_F32) : x;
}

struct kb_val attention_scratch_row(struct kb *k, struct kb_val table, struct kb_val row, int64_t length)
{
	return kb_ptr_add(k, table, kb_mul_const(k, row, length * 4), 0);
}

struct kb_val attention_round_down(struct kb *k, struct kb_val n, int64_t step)
{
	return step == 1 ? n : kb_mul_const(k, kb_div_const(k, n, step), step);
}

struct kb_val attention_round_up(struct kb *k, struct kb_val n, int64_t step)
{
	return attention_round_down(k, kb_add_const(k, n, step - 1), step);
}

/* Emits step for all elements of a row: full vectors, unrolled if they are few, then one partial vector. */
void attention_loop_row(const struct attention *a, int64_t count, int lanes, attention_row_fn *step,
                        void *user)
{
	struct kb *k = a->k;
	int64_t full = count - count % lanes;
	if (full <= (int64_t)UNROLLED * lanes) {
		for (int64_t e = 0; e < full; e += lanes)
			step(user, kb_index(k, e), lanes, lanes);
	} else {
		struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, full), lanes, KB_NONEMPTY);
		step(user, e, lanes, lanes);
		kb_end_loop(k);
	}
	if (full < count)
		step(user, kb_index(k, full), lanes, (int)(count - full));
}

/* ---- the group ---- */

/* Reports an internal error (TFMC_INTERNAL): passes before should have excluded the case. */
static enum tfmc_status internal(const struct attention *a, const char *what)
{
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_INTERNAL, "attention: %s", what);
	return TFMC_INTERNAL;
}

/* Binds the storage of an operand. */
static enum tfmc_status operand(const struct attention *a, struct ir_value v, struct kb_tensor *out)
{
	const struct kernel_binding *bind = a->job->bind;
	if (!bind->tensor(bind->user, a->k, v, out))
		return internal(a, "an operand has no storage");
	return TFMC_OK;
}

/* True for element types that attention computes with. */
static bool is_float(enum ir_dtype t)
{
	return ir_dtype_class(t) == DTCLASS_FLOAT && t != DT_F64;
}

/* Binds the storage of an operand of 16 or 32-bit floats; rejects other types. Only keys may be packed. */
static enum tfmc_status float_operand(struct attention *a, struct ir_value v, struct kb_tensor *out)
{
	TFMC_TRY(operand(a, v, out));
	if (out->encoding != ENC_ROW && out != &a->key)
		return internal(a, "an operand is packed");
	if (is_float(out->dtype))
		return TFMC_OK;
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_UNSUPPORTED,
	           "not supported yet: attention over %s elements", ir_dtype_name(out->dtype));
	return TFMC_INVALID;
}

/* Keys or values: floats, or int8 with scales, which must be in the same ring buffer. */
static enum tfmc_status scaled_operand(struct attention *a, struct ir_value v, struct ir_value scale,
                                       struct kb_tensor *out, struct kb_tensor *scales)
{
	if (!scale.id)
		return float_operand(a, v, out);
	TFMC_TRY(float_operand(a, scale, scales));
	TFMC_TRY(operand(a, v, out));
	return scales->ring == out->ring ? TFMC_OK : internal(a, "scales are in another ring buffer");
}

/* Binds the operands of the root; the tensors of absent ones keep no pointer. Keys and values must be in one ring
 * buffer (or none), because a block of both is addressed alike; its length is full panels of 16 keys. */
static enum tfmc_status bind_operands(struct attention *a, const struct ir_op *root)
{
	struct ir_value x[V_SCALE + 1] = {{0}};
	for (size_t i = 0; i < root->n_operands; i++)
		x[i] = root->operands[i];
	TFMC_TRY(float_operand(a, x[Q], &a->q));
	TFMC_TRY(scaled_operand(a, x[KEY], x[K_SCALE], &a->key, &a->k_scale));
	TFMC_TRY(scaled_operand(a, x[VALUE], x[V_SCALE], &a->value, &a->v_scale));
	if (a->value.ring != a->key.ring || a->q.ring > 0 || a->key.ring % PANEL_COLUMNS != 0)
		return internal(a, "keys and values are in different ring buffers");
	if (x[BIAS].id)
		TFMC_TRY(float_operand(a, x[BIAS], &a->bias));
	if (x[LEN].id)
		TFMC_TRY(operand(a, x[LEN], &a->len));
	if (x[PAST].id)
		TFMC_TRY(operand(a, x[PAST], &a->past));
	if (x[SINKS].id)
		TFMC_TRY(float_operand(a, x[SINKS], &a->sinks));
	return TFMC_OK;
}

/* Binds the storage of the root's axes [B,H,S,V] in the group's result, which may be a view (heads concatenated): the
 * kernel stores through it. */
static enum tfmc_status bind_result(struct attention *a, const struct ir_op *root)
{
	struct eval e;
	struct eval_outputs out;
	TFMC_TRY(eval_begin(&e, a->job));
	TFMC_TRY(eval_outputs(&e, &out));
	if (out.n != 1 || !ir_same_value(out.items[0].value, root->results[0]))
		return internal(a, "the result of the group is not a view of the root");
	a->out = out.items[0].to.t;
	return is_float(a->out.dtype) ? TFMC_OK : internal(a, "the result has an unsupported element type");
}

/* ---- the nest ---- */

/* Constant size of an axis E or V. Rejects unknown or too large ones. */
static enum tfmc_status find_head_size(const struct attention *a, const struct kb_size *s, int64_t *out)
{
	*out = s->c;
	if (s->is_const && s->c > 0 && s->c <= HEAD_MAX)
		return TFMC_OK;
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_UNSUPPORTED,
	           "not supported yet: attention with a head size that is not a constant from 1 to %d",
	           HEAD_MAX);
	return TFMC_INVALID;
}

/* The mask in terms of a window and of the keys that token 0 sees (reach): itself if causal; without a causal mask
 * those less than `window` positions after it. */
static struct attention_mask find_mask(const struct attrs_attention *attrs)
{
	bool is_causal = attrs->mask == MASK_causal;
	return (struct attention_mask){.rows_differ = is_causal || attrs->window > 0,
	                               .window = attrs->window,
	                               .reach = is_causal ? 1 : attrs->window};
}

/* Folds constant factors into the queries, once for each: scale, 1 / cap inside of tanh, log2 e for base 2. With a
 * bias the base stays e: a bias may be the lowest float, which a factor would make infinite; with a softcap, too,
 * since log2 e would have to follow tanh. */
static struct attention_score choose_factors(const struct attrs_attention *attrs, bool has_bias)
{
	double cap = attrs->softcap, base = has_bias || cap > 0 ? 1 : ATTENTION_LOG2E;
	double inside = cap > 0 ? 1 / cap : 1;
	return (struct attention_score){.q_factor = (float)(attrs->scale * inside * base),
	                                .bias_factor = (float)inside,
	                                .cap = (float)cap,
	                                .base2 = base != 1};
}

/* How an operand is stored. */
static struct attention_operand describe(const struct kb_tensor *t)
{
	const struct kb_size *row = &t->stride[ATTENTION_ROW], *element = &t->stride[ATTENTION_ELEMENT];
	return (struct attention_operand){.is_on = attention_has(t),
	                                  .has_panels = t->encoding == ENC_PANEL16,
	                                  .dtype = t->dtype,
	                                  .row = row->is_const ? row->c : -1,
	                                  .element = element->is_const ? element->c : -1,
	                                  .ring = t->ring};
}

/* Describes the attention for its nest. */
static struct attention_shape shape_of(const struct attention *a)
{
	const struct kernel_job *job = a->job;
	const struct kb_size *q = a->q.size, *key = &a->key.size[ATTENTION_HEAD];
	bool has_queries = q[ATTENTION_HEAD].is_const && key->is_const && key->c > 0;
	struct attention_shape s = {.target = job->target,
	                            .caps = *kb_caps(a->k),
	                            .attrs = job->group->attrs,
	                            .size = a->size,
	                            .value_size = a->value_size,
	                            .queries = has_queries ? q[ATTENTION_HEAD].c / key->c : 0,
	                            .q = describe(&a->q),
	                            .key = describe(&a->key),
	                            .value = describe(&a->value),
	                            .bias = describe(&a->bias),
	                            .k_scale = describe(&a->k_scale),
	                            .v_scale = describe(&a->v_scale),
	                            .out = describe(&a->out),
	                            .rows_differ = a->mask.rows_differ,
	                            .has_softcap = a->score.cap > 0,
	                            .rounds_factors = a->is_bf16,
	                            .has_lengths = job->lengths.id != 0,
	                            .shares_rows = job->items > 1};
	if (!has_queries || !q[ATTENTION_ROW].is_const ||
	    !checked_mul_i64(q[ATTENTION_ROW].c, s.queries, &s.rows))
		s.rows = INT64_MAX;
	return s;
}

/* Chooses the nest and binds its buffers in scratch. */
static enum tfmc_status choose_nest(struct attention *a)
{
	TFMC_TRY(find_head_size(a, &a->q.size[ATTENTION_ELEMENT], &a->size));
	TFMC_TRY(find_head_size(a, &a->value.size[ATTENTION_ELEMENT], &a->value_size));
	const struct attention_shape shape = shape_of(a);
	if (!attention_nest_choose(&shape, &a->nest)) {
		diag_error(a->job->cx, a->job->group->loc.at, DIAG_SCHEDULE, "%s (group)", a->nest.rejection);
		return TFMC_INVALID;
	}
	if (!shape.shares_rows && !a->job->is_combine) { /* that of work-groups is their tile */
		struct buf text = kernel_begin_remark(a->job);
		attention_nest_print(&a->nest, &text);
		kernel_remark_nest(a->job, &text);
	}
#define BUFFER(name, elements) \
	a->scratch.name = kb_ptr_add(a->k, a->job->scratch, kb_index(a->k, 0), a->nest.at.name * 4);
#include "ir/target/attention_buffers.def"
	a->scratch.partial = (struct attention_partial){a->scratch.acc, a->scratch.max, a->scratch.sum};
	return TFMC_OK;
}

/* Sizes of the call: a key head has a row for each token and query head of its group. */
static struct attention_heads find_heads(const struct attention *a)
{
	struct kb *k = a->k;
	struct attention_heads h = {.batch = attention_dim(k, &a->q.size[ATTENTION_BATCH])};
	h.heads = attention_dim(k, &a->key.size[ATTENTION_HEAD]);
	h.queries = kb_bin(k, KB_DIV, attention_dim(k, &a->q.size[ATTENTION_HEAD]), h.heads);
	h.rows = kb_mul(k, attention_dim(k, &a->q.size[ATTENTION_ROW]), h.queries);
	return h;
}

/* The combining kernel (is_combine) only adds up partial results: it needs no AMX. */
enum tfmc_status kernel_attention(const struct kernel_job *job)
{
	const struct attrs_group *attrs = job->group->attrs;
	const struct ir_region *r = job->group->region;
	assert(attrs->root >= 0 && (size_t)attrs->root < r->n_ops);
	const struct ir_op *root = r->ops[attrs->root];
	assert(root->code == OP_attention);
	struct attention a = {.job = job, .k = job->k};
	TFMC_TRY(bind_operands(&a, root));
	TFMC_TRY(bind_result(&a, root));
	a.mask = find_mask(root->attrs);
	a.is_bf16 = ((const struct attrs_attention *)root->attrs)->factors == FACTORS_bf16;
	a.score = choose_factors(root->attrs, attention_has(&a.bias));
	TFMC_TRY(choose_nest(&a));
	a.heads = find_heads(&a);
	if (a.nest.skips_padding)
		TFMC_TRY(operand(&a, job->lengths, &a.heads.lengths));
	if (!job->is_combine)
		attention_amx_begin(&a);
	if (job->is_combine)
		attention_combine(&a);
	else if (job->items > 1)
		attention_workgroup(&a);
	else
		attention_tasks(&a);
	attention_amx_end(&a);
	return TFMC_OK;
}
