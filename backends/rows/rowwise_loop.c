/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise template: walks over the open row, where its elements are kept, and
 * accumulators. Nothing here knows which op is computed.
 */
#include <math.h>

#include "backends/rows/rowwise_internal.h"

/* ---- walks ---- */

void rowwise_chunk(struct rowwise *r, const struct rowwise_walk *w, const struct rowwise_chunk *c)
{
	size_t mark = eval_mark(&r->e);
	struct eval_width before = eval_width(&r->e, c->lanes, c->valid);
	w->body(r, c, w->user);
	eval_width(&r->e, before.lanes, before.valid);
	eval_release(&r->e, mark);
}

/* Lanes below n of the chunk. */
static struct kb_val lanes_below(struct rowwise *r, int lanes, struct kb_val n)
{
	struct kb_val bound = kb_splat(r->k, kb_cvt(r->k, n, KB_I32), lanes);
	struct kb_val ids = lanes == 1 ? kb_i32(r->k, 0) : kb_lane_ids(r->k, lanes);
	return kb_cmp(r->k, KB_LT, ids, bound);
}

/* Vectors of a turn, each with an accumulator of its own. */
static int64_t at_once(const struct rowwise_walk *w)
{
	return w->at_once > 0 ? w->at_once : ROWWISE_UNROLL;
}

/* `count` whole vectors from `at` on, without a loop. */
static void emit_vectors(struct rowwise *r, const struct rowwise_walk *w, struct kb_val at, int64_t first,
                         int64_t count)
{
	for (int64_t i = first; i < first + count; i++) {
		struct rowwise_chunk c = {.at = kb_add_const(r->k, at, i * w->lanes),
		                          .lanes = w->lanes,
		                          .valid = w->lanes,
		                          .slot = (int)(i % at_once(w)),
		                          .number = (int)i};
		rowwise_chunk(r, w, &c);
	}
}

/* The last n elements, n < lanes, at a constant place. */
static void emit_part(struct rowwise *r, const struct rowwise_walk *w, int64_t at, int64_t n)
{
	int64_t i = at / w->lanes;
	struct rowwise_chunk c = {.at = kb_index(r->k, at),
	                          .lanes = w->lanes,
	                          .valid = (int)n,
	                          .slot = (int)(i % at_once(w)),
	                          .number = (int)i,
	                          .mask = lanes_below(r, w->lanes, kb_index(r->k, n))};
	rowwise_chunk(r, w, &c);
}

static void walk_constant(struct rowwise *r, const struct rowwise_walk *w, int64_t n)
{
	struct kb *k = r->k;
	struct kb_val zero = kb_index(k, 0);
	int64_t whole = n / w->lanes, step = at_once(w) * w->lanes, looped = 0;
	if (!r->is_held && whole >= 2 * ROWWISE_UNROLL)
		looped = whole - whole % at_once(w);
	if (looped > 0) {
		struct kb_val to = kb_index(k, looped * w->lanes);
		struct kb_val at = kb_loop(k, "j", zero, to, step, KB_NONEMPTY);
		emit_vectors(r, w, at, 0, at_once(w));
		kb_end_loop(k);
	}
	emit_vectors(r, w, zero, looped, whole - looped);
	if (n % w->lanes > 0)
		emit_part(r, w, whole * w->lanes, n % w->lanes);
}

/* Elements after the last whole vector: one masked vector in padded memory, else one by one. */
static void walk_rest(struct rowwise *r, const struct rowwise_walk *w, struct kb_val from, struct kb_val to)
{
	struct kb *k = r->k;
	bool pads = w->pads && r->is_padded;
	struct rowwise_chunk c = {
	        .lanes = pads ? w->lanes : 1, .valid = pads ? w->lanes : 1, .is_rest = !pads};
	c.at = kb_loop(k, "j", from, to, c.lanes, 0);
	if (pads)
		c.mask = lanes_below(r, c.lanes, kb_sub(k, to, c.at));
	rowwise_chunk(r, w, &c);
	kb_end_loop(k);
}

/* to - (to - from) % step */
static struct kb_val whole_steps(struct kb *k, struct kb_val from, struct kb_val to, int64_t step)
{
	return kb_sub(k, to, kb_rem_const(k, kb_sub(k, to, from), step));
}

void rowwise_clear_rest(struct rowwise *r, struct kb_val to)
{
	struct kb *k = r->k;
	if (!r->is_padded || r->lanes == 1)
		return;
	struct kb_val vectors = whole_steps(k, kb_index(k, 0), to, r->lanes);
	struct kb_val at = kb_loop(k, "j", vectors, to, r->lanes, 0);
	kb_store(k, kb_splat(k, kb_f32(k, 0), r->lanes), r->buffer, at, 0, 0);
	kb_end_loop(k);
}

void rowwise_walk(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_walk *w)
{
	struct kb *k = r->k;
	int64_t lo, hi, step = at_once(w) * w->lanes;
	if (r->items > 1) {
		rowwise_items_walk(r, from, to, w);
		return;
	}
	if (kb_const_index(k, from, &lo) && lo == 0 && kb_const_index(k, to, &hi)) {
		walk_constant(r, w, hi);
		return;
	}
	struct kb_val blocks = whole_steps(k, from, to, step);
	struct kb_val at = kb_loop(k, "j", from, blocks, step, 0);
	emit_vectors(r, w, at, 0, at_once(w));
	kb_end_loop(k);
	struct kb_val vectors = whole_steps(k, blocks, to, w->lanes);
	at = kb_loop(k, "j", blocks, vectors, w->lanes, 0);
	emit_vectors(r, w, at, 0, 1);
	kb_end_loop(k);
	if (w->lanes > 1)
		walk_rest(r, w, vectors, to);
}

void rowwise_all(struct rowwise *r, rowwise_body *body, void *user)
{
	const struct rowwise_walk w = {.body = body, .user = user, .lanes = r->lanes};
	rowwise_walk(r, kb_index(r->k, 0), rowwise_width(r), &w);
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

struct kb_val rowwise_get(struct rowwise *r, const struct rowwise_chunk *c)
{
	if (r->is_held)
		return r->held[c->number];
	return kb_load_part(r->k, KB_TYPE(KB_F32, c->lanes), c->valid, r->buffer, c->at, 0);
}

void rowwise_put(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->is_held)
		r->held[c->number] = value;
	else
		kb_store_part(r->k, value, c->valid, r->buffer, c->at, 0);
}

struct kb_val rowwise_first(struct rowwise *r, const struct rowwise_chunk *c)
{
	return r->is_filled ? rowwise_get(r, c) : evaluate_x(r, c);
}

void rowwise_keep(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->is_held || !(r->x_stays || r->has_none))
		rowwise_put(r, c, value);
}

struct kb_val rowwise_again(struct rowwise *r, const struct rowwise_chunk *c)
{
	bool again = r->x_stays || r->has_none;
	return r->is_held || !again ? rowwise_get(r, c) : evaluate_x(r, c);
}

/* A result of 16 bits is rounded before others compute with it. */
static struct kb_val rounded(struct rowwise *r, struct kb_val value)
{
	enum ir_dtype t = ir_type_of(r->job->func, r->root->results[0])->dtype;
	if (t != DT_F16 && t != DT_BF16)
		return value;
	return kb_cvt(r->k, kb_cvt(r->k, value, t == DT_F16 ? KB_F16 : KB_BF16), KB_F32);
}

void rowwise_store(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	struct eval_point p = point_of(r, c);
	value = rounded(r, value);
	if (r->is_inner) {
		kb_store_part(r->k, value, c->valid, r->buffer, c->at, 0);
		return;
	}
	eval_bind(&r->e, r->root->results[0], &p, value);
	for (size_t i = 0; i < r->outputs.n; i++)
		eval_store_output(&r->e, &r->outputs.items[i], &p);
}

/* value where the chunk's lanes exist, else c. */
static struct kb_val rowwise_only(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value,
                                  float other)
{
	if (!c->mask.id)
		return value;
	return kb_select(r->k, c->mask, value, rowwise_splat(r, c, kb_f32(r->k, other)));
}

/* ---- accumulators ---- */

static float identity(enum kb_bin op)
{
	return op == KB_MAX ? -HUGE_VALF : 0;
}

/* Slots that a walk over the row can reach. */
static int slots(const struct rowwise *r)
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
	a->rest = kb_var(r->k, "rest", KB_F32_T, none);
}

static struct kb_var target_of(const struct rowwise_acc *a, const struct rowwise_chunk *c)
{
	return c->is_rest ? a->rest : a->slot[c->slot];
}

void rowwise_acc_add(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c, struct kb_val x)
{
	struct kb_var v = target_of(a, c);
	x = rowwise_only(r, c, x, identity(a->op));
	kb_set(r->k, v, kb_bin(r->k, a->op, x, kb_get(r->k, v)));
}

void rowwise_acc_square(struct rowwise *r, struct rowwise_acc *a, const struct rowwise_chunk *c,
                        struct kb_val x)
{
	struct kb_var v = target_of(a, c);
	x = rowwise_only(r, c, x, 0);
	kb_set(r->k, v, kb_fma(r->k, x, x, kb_get(r->k, v)));
}

struct kb_val rowwise_acc_value(struct rowwise *r, const struct rowwise_acc *a)
{
	struct kb *k = r->k;
	struct kb_val all = kb_get(k, a->slot[0]);
	if (r->items > 1)
		return rowwise_items_reduce(r, a->op, all);
	for (int i = 1; i < slots(r); i++)
		all = kb_bin(k, a->op, kb_get(k, a->slot[i]), all);
	if (r->lanes > 1)
		all = kb_reduce(k, a->op, all);
	return kb_bin(k, a->op, kb_get(k, a->rest), all);
}
