/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: loops over the chunks of the open row, storage of its elements between passes,
 * accumulators. Nothing here depends on the op.
 *
 * Work-items of a group that share a row each have every items-th element, the same ones in all passes, so
 * that an item reads only what it stored itself. Their sums are reduced in local memory, in a tree that
 * depends on the number of items only. Rows belong to the group, so that all items reach all barriers.
 */
#include <math.h>

#include "backends/kernels/rowwise_internal.h"

/* Emits the body at one chunk, in a scope of the evaluator. */
static void emit_chunk(struct rowwise *r, const struct rowwise_loop *w, const struct rowwise_chunk *c)
{
	size_t mark = eval_mark(&r->e);
	struct eval_width before = eval_width(&r->e, c->lanes, c->valid);
	w->body(r, c, w->user);
	eval_width(&r->e, before.lanes, before.valid);
	eval_release(&r->e, mark);
}

/* ---- work-items ---- */

void rowwise_items_begin(struct rowwise *r)
{
	r->item = kb_item_id(r->k);
	r->sums = kb_shared(r->k, "sums", KB_F32, r->items);
}

/* This item's elements of [from, to). */
static void loop_items(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_loop *w)
{
	struct kb *k = r->k;
	struct rowwise_chunk c = {.lanes = 1, .valid = 1};
	c.at = kb_loop(k, "j", kb_add(k, from, r->item), to, r->items, 0);
	emit_chunk(r, w, &c);
	kb_end_loop(k);
}

/* sums[item] = sums[item] op sums[item + half], for items below half. */
static void tree_step(struct rowwise *r, enum kb_bin op, int64_t half)
{
	struct kb *k = r->k;
	kb_if(k, kb_cmp(k, KB_LT, r->item, kb_index(k, half)));
	struct kb_val mine = kb_load(k, KB_F32_T, r->sums, r->item, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, r->sums, r->item, half, 0);
	kb_store(k, kb_bin(k, op, other, mine), r->sums, r->item, 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

/* A barrier and tree reduction: returns `mine` of all items, combined by op, to each item. All items must
 * call it. */
static struct kb_val rowwise_items_reduce(struct rowwise *r, enum kb_bin op, struct kb_val mine)
{
	struct kb *k = r->k;
	kb_store(k, mine, r->sums, r->item, 0, 0);
	kb_barrier(k);
	for (int64_t half = r->items / 2; half >= 1; half /= 2)
		tree_step(r, op, half);
	struct kb_val all = kb_load(k, KB_F32_T, r->sums, kb_index(k, 0), 0, 0);
	kb_barrier(k); /* before the next reduction overwrites it */
	return all;
}

/* ---- loops ---- */

/* Mask of the lanes below n. */
static struct kb_val lanes_below(struct rowwise *r, int lanes, struct kb_val n)
{
	struct kb_val bound = kb_splat(r->k, kb_cvt(r->k, n, KB_I32), lanes);
	struct kb_val ids = lanes == 1 ? kb_i32(r->k, 0) : kb_lane_ids(r->k, lanes);
	return kb_cmp(r->k, KB_LT, ids, bound);
}

/* Vectors of an iteration: each has its accumulator, so that chains of additions overlap. */
static int64_t unroll_of(const struct rowwise_loop *w)
{
	return w->unroll > 0 ? w->unroll : ROWWISE_UNROLL;
}

/* `count` full vectors from vector `first` after `at` on, unrolled. */
static void emit_vectors(struct rowwise *r, const struct rowwise_loop *w, struct kb_val at, int64_t first,
                         int64_t count)
{
	for (int64_t i = first; i < first + count; i++) {
		struct rowwise_chunk c = {.at = kb_add_const(r->k, at, i * w->lanes),
		                          .lanes = w->lanes,
		                          .valid = w->lanes,
		                          .slot = (int)(i % unroll_of(w)),
		                          .number = (int)i};
		emit_chunk(r, w, &c);
	}
}

/* The last n elements, n < lanes, at constant index `at`: a partial vector. */
static void emit_partial_vector(struct rowwise *r, const struct rowwise_loop *w, int64_t at, int64_t n)
{
	int64_t i = at / w->lanes;
	struct rowwise_chunk c = {.at = kb_index(r->k, at),
	                          .lanes = w->lanes,
	                          .valid = (int)n,
	                          .slot = (int)(i % unroll_of(w)),
	                          .number = (int)i,
	                          .mask = lanes_below(r, w->lanes, kb_index(r->k, n))};
	emit_chunk(r, w, &c);
}

/* A row of constant length n: unrolled, or an unrolled loop and the vectors after it. */
static void loop_constant(struct rowwise *r, const struct rowwise_loop *w, int64_t n)
{
	struct kb *k = r->k;
	struct kb_val zero = kb_index(k, 0);
	int64_t full = n / w->lanes, step = unroll_of(w) * w->lanes, looped = 0;
	if (!r->in_registers && full >= 2 * ROWWISE_UNROLL)
		looped = full - full % unroll_of(w);
	if (looped > 0) {
		struct kb_val to = kb_index(k, looped * w->lanes);
		struct kb_val at = kb_loop(k, "j", zero, to, step, KB_NONEMPTY);
		emit_vectors(r, w, at, 0, unroll_of(w));
		kb_end_loop(k);
	}
	emit_vectors(r, w, zero, looped, full - looped);
	if (n % w->lanes > 0)
		emit_partial_vector(r, w, full * w->lanes, n % w->lanes);
}

/* Elements after the last full vector: one masked vector if memory is padded, else one by one. */
static void loop_tail(struct rowwise *r, const struct rowwise_loop *w, struct kb_val from, struct kb_val to)
{
	struct kb *k = r->k;
	bool pads = w->is_masked_tail && r->is_padded;
	struct rowwise_chunk c = {
	        .lanes = pads ? w->lanes : 1, .valid = pads ? w->lanes : 1, .is_tail = !pads};
	c.at = kb_loop(k, "j", from, to, c.lanes, 0);
	if (pads)
		c.mask = lanes_below(r, c.lanes, kb_sub(k, to, c.at));
	emit_chunk(r, w, &c);
	kb_end_loop(k);
}

/* to - (to - from) % step */
static struct kb_val last_full(struct kb *k, struct kb_val from, struct kb_val to, int64_t step)
{
	return kb_sub(k, to, kb_rem_const(k, kb_sub(k, to, from), step));
}

void rowwise_zero_tail(struct rowwise *r, struct kb_val to)
{
	struct kb *k = r->k;
	if (!r->is_padded || r->lanes == 1)
		return;
	struct kb_val vectors = last_full(k, kb_index(k, 0), to, r->lanes);
	struct kb_val at = kb_loop(k, "j", vectors, to, r->lanes, 0);
	kb_store(k, kb_splat(k, kb_f32(k, 0), r->lanes), r->buffer, at, 0, 0);
	kb_end_loop(k);
}

void rowwise_loop(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_loop *w)
{
	struct kb *k = r->k;
	int64_t lo, hi, step = unroll_of(w) * w->lanes;
	if (r->items > 1) {
		loop_items(r, from, to, w);
		return;
	}
	if (kb_const_index(k, from, &lo) && lo == 0 && kb_const_index(k, to, &hi)) {
		loop_constant(r, w, hi);
		return;
	}
	struct kb_val blocks = last_full(k, from, to, step);
	struct kb_val at = kb_loop(k, "j", from, blocks, step, 0);
	emit_vectors(r, w, at, 0, unroll_of(w));
	kb_end_loop(k);
	struct kb_val vectors = last_full(k, blocks, to, w->lanes);
	at = kb_loop(k, "j", blocks, vectors, w->lanes, 0);
	emit_vectors(r, w, at, 0, 1);
	kb_end_loop(k);
	if (w->lanes > 1)
		loop_tail(r, w, vectors, to);
}

void rowwise_for_row(struct rowwise *r, rowwise_chunk_fn *body, void *user)
{
	const struct rowwise_loop w = {.body = body, .user = user, .lanes = r->lanes};
	rowwise_loop(r, kb_index(r->k, 0), rowwise_width(r), &w);
}

/* ---- elements ---- */

static struct eval_point point_of(const struct rowwise *r, const struct rowwise_chunk *c)
{
	struct eval_point p = r->row;
	p.index[r->rank - 1] = c->at;
	return p;
}

struct kb_val rowwise_splat(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val scalar)
{
	return kb_splat(r->k, scalar, c->lanes);
}

static struct kb_val evaluate_x(struct rowwise *r, const struct rowwise_chunk *c)
{
	struct eval_point p = point_of(r, c);
	return rowwise_splat(r, c, eval_value(&r->e, r->root->operands[0], &p));
}

struct kb_val rowwise_read_buffer(struct rowwise *r, const struct rowwise_chunk *c)
{
	if (r->in_registers)
		return r->chunk_value[c->number];
	return kb_load_part(r->k, KB_TYPE(KB_F32, c->lanes), c->valid, r->buffer, c->at, 0);
}

void rowwise_write_buffer(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->in_registers)
		r->chunk_value[c->number] = value;
	else
		kb_store_part(r->k, value, c->valid, r->buffer, c->at, 0);
}

struct kb_val rowwise_load_x(struct rowwise *r, const struct rowwise_chunk *c)
{
	return r->is_staged ? rowwise_read_buffer(r, c) : evaluate_x(r, c);
}

void rowwise_keep_x(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->in_registers || !(r->rereads_x || r->recomputes))
		rowwise_write_buffer(r, c, value);
}

struct kb_val rowwise_reload_x(struct rowwise *r, const struct rowwise_chunk *c)
{
	bool again = r->rereads_x || r->recomputes;
	return r->in_registers || !again ? rowwise_read_buffer(r, c) : evaluate_x(r, c);
}

/* A result of 16 bits is rounded before the epilogue computes with it. */
static struct kb_val round_to_dtype(struct rowwise *r, struct kb_val value)
{
	enum ir_dtype t = ir_type_of(r->job->func, r->root->results[0])->dtype;
	if (t != DT_F16 && t != DT_BF16)
		return value;
	return kb_cvt(r->k, kb_cvt(r->k, value, t == DT_F16 ? KB_F16 : KB_BF16), KB_F32);
}

void rowwise_store_result(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	struct eval_point p = point_of(r, c);
	value = round_to_dtype(r, value);
	if (r->is_producer) {
		kb_store_part(r->k, value, c->valid, r->buffer, c->at, 0);
		return;
	}
	eval_bind(&r->e, r->root->results[0], &p, value);
	for (size_t i = 0; i < r->outputs.n; i++)
		eval_store_output(&r->e, &r->outputs.items[i], &p);
}

/* value in lanes that exist, else `other`. */
static struct kb_val rowwise_mask_tail(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value,
                                       float other)
{
	if (!c->mask.id)
		return value;
	return kb_select(r->k, c->mask, value, rowwise_splat(r, c, kb_f32(r->k, other)));
}

/* ---- accumulators ---- */

/* Neutral element of op. */
static float identity(enum kb_bin op)
{
	return op == KB_MAX ? -HUGE_VALF : 0;
}

/* Accumulators that a pass over the row can use. */
static int used_slots(const struct rowwise *r)
{
	int64_t chunks = r->width < 0 ? ROWWISE_UNROLL : (r->width + r->lanes - 1) / r->lanes;
	return chunks < ROWWISE_UNROLL ? (int)chunks : ROWWISE_UNROLL;
}

void rowwise_acc_begin(struct rowwise *r, struct rowwise_acc *a, enum kb_bin op)
{
	struct kb_val none = kb_f32(r->k, identity(op));
	a->op = op;
	for (int i = 0; i < ROWWISE_UNROLL; i++)
		a->slot[i] = kb_var(r->k, "acc", KB_TYPE(KB_F32, r->lanes), kb_splat(r->k, none, r->lanes));
	a->tail = kb_var(r->k, "rest", KB_F32_T, none);
}

static struct kb_var accumulator_of(const struct rowwise_acc *a, const struct rowwise_chunk *c)
{
	return c->is_tail ? a->tail : a->slot[c->slot];
}

void rowwise_acc_add(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c, struct kb_val x)
{
	struct kb_var v = accumulator_of(a, c);
	x = rowwise_mask_tail(r, c, x, identity(a->op));
	kb_set(r->k, v, kb_bin(r->k, a->op, x, kb_get(r->k, v)));
}

void rowwise_acc_square(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                        struct kb_val x)
{
	struct kb_var v = accumulator_of(a, c);
	x = rowwise_mask_tail(r, c, x, 0);
	kb_set(r->k, v, kb_fma(r->k, x, x, kb_get(r->k, v)));
}

struct kb_val rowwise_acc_reduce(struct rowwise *r, const struct rowwise_acc *a)
{
	struct kb *k = r->k;
	struct kb_val all = kb_get(k, a->slot[0]);
	if (r->items > 1)
		return rowwise_items_reduce(r, a->op, all);
	for (int i = 1; i < used_slots(r); i++)
		all = kb_bin(k, a->op, kb_get(k, a->slot[i]), all);
	if (r->lanes > 1)
		all = kb_reduce(k, a->op, all);
	return kb_bin(k, a->op, kb_get(k, a->tail), all);
}
