/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: binds the group, chooses where rows are kept between passes, and loops over this
 * worker's rows. The number of workers only decides which worker computes a row.
 *
 * A pass is a loop over the elements of a row, emitted for each op (rowwise_ops.c). Elements wait between passes in
 * registers (short rows), in memory as they are (x is read again), or in a buffer. staged: x is first computed element
 * by element into the buffer, since it does not vectorize. Several accumulators (slots) hide latency; which one takes
 * a vector depends on its number alone. A chunk is a vector of a row: `valid` of its lanes exist (mask).
 *
 * items > 1: the items of a work-group share a row, each every items-th element, the same ones in all passes, so that
 * an item reads only what it stored itself. Their accumulators are reduced in local memory, in a tree that depends on
 * the number of items only. Rows belong to the group, so that all items reach all barriers.
 *
 * is_producer: a norm in the group of another root, whose rows that root's generator reads from the buffer.
 */
#include "backends/kernels/batch_rows.h"
#include "backends/kernels/rowwise.h"
#include "backends/kernels/rowwise_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- the open row ---- */

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

/* partials[item] = partials[item] op partials[item + half], for items below half; then a barrier. */
static void tree_step(struct rowwise *r, enum kb_bin op, int64_t half)
{
	struct kb *k = r->k;
	kb_if(k, kb_cmp(k, KB_LT, r->item, kb_index(k, half)));
	struct kb_val mine = kb_load(k, KB_F32_T, r->partials, r->item, 0, 0);
	struct kb_val other = kb_load(k, KB_F32_T, r->partials, r->item, half, 0);
	kb_store(k, kb_bin(k, op, other, mine), r->partials, r->item, 0, 0);
	kb_end_if(k);
	kb_barrier(k);
}

/* A barrier and tree reduction: returns `mine` of all items, combined by op, to each item. All items must
 * call it. */
static struct kb_val rowwise_items_reduce(struct rowwise *r, enum kb_bin op, struct kb_val mine)
{
	struct kb *k = r->k;
	kb_store(k, mine, r->partials, r->item, 0, 0);
	kb_barrier(k);
	for (int64_t half = r->items / 2; half >= 1; half /= 2)
		tree_step(r, op, half);
	struct kb_val all = kb_load(k, KB_F32_T, r->partials, kb_index(k, 0), 0, 0);
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

/* `count` full vectors from vector `first` after `at` on, unrolled. The slot depends on the vector's number in the
 * row, of which `at` is a multiple of the unrolled vectors. */
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

/* The last n elements, n < lanes, at constant index `at`: a partial vector, in the slot that a full one would have. */
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

/* A row of constant length n: unrolled (in registers it must be, and short rows are), or an unrolled loop and the
 * vectors after it, then the remainder as one partial vector. */
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

/* Elements after the last full vector of a row of unknown length: one masked vector if memory is padded and the body
 * reads the buffer only, else one by one, with a scalar accumulator of their own. */
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

/* Zeros the buffer's last vector, of which only a part will be written: passes read it as a whole. */
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

/* Items take single elements in turn. A range of constant length from 0 is unrolled as far as it pays; else full
 * iterations of several vectors, single vectors, and the tail. */
void rowwise_loop(struct rowwise *r, struct kb_val from, struct kb_val to, const struct rowwise_loop *w)
{
	struct kb *k = r->k;
	int64_t lo, hi, step = unroll_of(w) * w->lanes;
	if (r->items > 1) {
		/* This item's elements of [from, to). */
		struct rowwise_chunk c = {.lanes = 1, .valid = 1};
		c.at = kb_loop(k, "j", kb_add(k, from, r->item), to, r->items, 0);
		emit_chunk(r, w, &c);
		kb_end_loop(k);
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

/* A result of 16 bits is rounded before the epilogue computes with it, so that fused and separate ops give the same
 * bits. */
static struct kb_val round_to_dtype(struct rowwise *r, struct kb_val value)
{
	enum ir_dtype t = ir_type_of(r->job->func, r->root->results[0])->dtype;
	if (t != DT_F16 && t != DT_BF16)
		return value;
	return kb_cvt(r->k, kb_cvt(r->k, value, t == DT_F16 ? KB_F16 : KB_BF16), KB_F32);
}

/* Stores elements of the result: in the buffer for another root, or as the group's outputs, with the epilogue. */
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

void rowwise_acc_begin(struct rowwise *r, struct rowwise_acc *a, enum kb_bin op)
{
	struct kb_val none = kb_f32(r->k, identity(op));
	a->op = op;
	for (int i = 0; i < ROWWISE_UNROLL; i++)
		a->slot[i] = kb_var(r->k, "acc", KB_TYPE(KB_F32, r->lanes), kb_splat(r->k, none, r->lanes));
	a->tail = kb_var(r->k, "tail", KB_F32_T, none);
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

/* Combines slots in order, then lanes, then the tail: an order that depends on the width only. Slots that a short row
 * cannot reach are left out; items have only slot 0 and reduce theirs by a tree. */
struct kb_val rowwise_acc_reduce(struct rowwise *r, const struct rowwise_acc *a)
{
	struct kb *k = r->k;
	struct kb_val all = kb_get(k, a->slot[0]);
	if (r->items > 1)
		return rowwise_items_reduce(r, a->op, all);
	/* accumulators that a pass over the row can use */
	int64_t chunks = r->width < 0 ? ROWWISE_UNROLL : ceil_div(r->width, r->lanes);
	for (int i = 1; i < ROWWISE_UNROLL && i < chunks; i++)
		all = kb_bin(k, a->op, kb_get(k, a->slot[i]), all);
	if (r->lanes > 1)
		all = kb_reduce(k, a->op, all);
	return kb_bin(k, a->op, kb_get(k, a->tail), all);
}

/* ---- the group ---- */

struct kb_val rowwise_width(const struct rowwise *r)
{
	return r->size[r->rank - 1];
}

/* Number of visible elements of the row (columns below it, from *first on): length, causal mask, window. */
struct kb_val rowwise_visible(struct rowwise *r, const struct eval_mask *mask, struct kb_val *first)
{
	struct kb *k = r->k;
	struct kb_val b = r->row.index[0], i = r->row.index[r->rank - 2];
	struct kb_val n = eval_visible_end(&r->e, mask, b, i);
	*first = eval_visible_begin(&r->e, mask, b, i);
	if (!n.id)
		return rowwise_width(r);
	n = kb_min(k, kb_cvt(k, n, KB_INDEX), rowwise_width(r));
	return kb_max(k, n, kb_index(k, 0));
}

/* ---- the group ---- */

static bool is_masked(const struct rowwise *r)
{
	return r->root->code == OP_mask || r->root->code == OP_masked_softmax;
}

/* True for ops whose exponentials replace x in the buffer. */
static bool keeps_exponentials(const struct rowwise *r)
{
	return r->root->code == OP_softmax || r->root->code == OP_masked_softmax;
}

/* Rejects types and shapes that the passes do not support, with a diagnostic: f64, no row axis (a mask needs a query
 * axis, too), results that are not elements of the same rows. */
static enum tfmc_status check_types(struct rowwise *r)
{
	const struct ir_func *f = r->job->func;
	const struct ir_type *y = ir_type_of(f, r->root->results[0]);
	for (size_t i = 0; i < r->root->n_operands; i++)
		if (r->root->operands[i].id && ir_type_of(f, r->root->operands[i])->dtype == DT_F64)
			eval_unsupported(&r->e, r->root, "rows of f64");
	if (y->rank < (is_masked(r) ? 2 : 1))
		eval_unsupported(&r->e, r->root, "rows of a tensor of this rank");
	if (r->outputs.n == 0)
		eval_internal(&r->e, r->root, "the group stores nothing");
	for (size_t i = 0; i < r->outputs.n; i++)
		if (!ir_same_dims(ir_type_of(f, r->outputs.items[i].value), y))
			eval_unsupported(&r->e, r->root, "results with another shape than the rows");
	return eval_status(&r->e);
}

/* True if later passes can read x from memory again: the first pass does not change it (a masked softmax may scale or
 * cap). Exponentials of rows of unknown length are computed in the buffer instead, whose tail is a masked vector. */
static bool can_reread_x(const struct rowwise *r)
{
	const struct attrs_masked_softmax *a = r->root->attrs;
	if (r->root->code == OP_masked_softmax && (a->scale != 1 || a->softcap > 0))
		return false;
	return eval_tensor(&r->e, r->root->operands[0]) && !r->is_staged &&
	       !(keeps_exponentials(r) && r->width < 0);
}

/*
 * Chooses where elements of a row are between two passes (a producer's buffer is the caller's): the first of local
 * memory of the work-group, scratch, and the row of the result (f32, contiguous) that can hold a row. Without any,
 * each pass computes x again, element by element where x is not vectorized, since it cannot be staged. No buffer is
 * needed if elements stay in registers, or if later passes read x from memory again; mask has one pass and stages x
 * only.
 */
static void choose_buffer(struct rowwise *r)
{
	const struct attrs_group *schedule = r->job->group->attrs;
	const struct ir_type *x = ir_type_of(r->job->func, r->root->operands[0]);
	int64_t longest = ir_dim_hi(r->job->module->dims, x->dims[r->rank - 1]);
	bool is_needed = r->root->code == OP_mask
	                         ? r->is_staged
	                         : !r->in_registers && (keeps_exponentials(r) || !r->rereads_x);
	if (!is_needed || r->is_producer)
		return;
	const struct kb_tensor *y = &r->outputs.items[0].to.t;
	const struct kb_size *stride = &y->stride[r->rank - 1];
	bool fits_result = y->dtype == DT_F32 && y->encoding == ENC_ROW && stride->is_const && stride->c == 1;
	if (r->items > 1 && longest <= ROWWISE_SHARED) {
		r->buffer = kb_shared(r->k, "kept", KB_F32, longest > 0 ? longest : 1);
	} else if (schedule->scratch / 4 >= longest) {
		r->buffer = r->job->scratch;
		r->is_padded = schedule->scratch % 64 == 0 && r->lanes <= 16;
	} else if (fits_result) {
		r->buffer_is_result = true;
	} else {
		r->recomputes = true;
		r->lanes = r->is_staged ? 1 : r->lanes;
		r->out_lanes = r->is_staged ? 1 : r->out_lanes;
		r->is_staged = false;
	}
}

/* Lanes of a vector: as scheduled, at most what the row fills; 1 if work-items share rows. */
static int vector_lanes(const struct rowwise *r)
{
	int64_t planned = ((const struct attrs_group *)r->job->group->attrs)->lanes;
	int lanes = kb_caps(r->k)->lanes;
	if (r->items > 1)
		return 1;
	if (planned > 0 && planned <= KB_LANES_MAX && (planned & (planned - 1)) == 0)
		lanes = (int)planned;
	while (lanes > 1 && r->width >= 0 && lanes / 2 >= r->width)
		lanes /= 2;
	return lanes;
}

/* True for short rows of constant length, of which all elements are read, in one block and with equal vectors in all
 * passes: at most half of the registers. */
static bool fits_registers(const struct rowwise *r)
{
	int64_t chunks = ceil_div(r->width, r->lanes);
	return r->items == 1 && !is_masked(r) && !rowwise_has_quant_blocks(r) && r->width >= 0 &&
	       chunks <= ROWWISE_REGISTER_CHUNKS && 2 * chunks <= kb_caps(r->k)->registers && !r->is_staged &&
	       r->out_lanes == r->lanes;
}

/* Chooses the lanes, and where elements are between passes: in registers, in memory as x, or in a buffer. Each choice
 * depends on those before. The pass that stores is scalar if any output does not vectorize. */
static void choose_schedule(struct rowwise *r)
{
	int last = r->rank - 1;
	if (ir_dim_is_const(ir_type_of(r->job->func, r->root->results[0])->dims[last], &r->width))
		r->size[last] = kb_index(r->k, r->width);
	else
		r->width = -1;
	r->lanes = r->out_lanes = vector_lanes(r);
	for (size_t i = 0; i < r->outputs.n; i++)
		if (!eval_vectorizes(&r->e, r->outputs.items[i].value, last))
			r->out_lanes = 1;
	r->is_staged = r->lanes > 1 && !eval_vectorizes(&r->e, r->root->operands[0], last);
	r->in_registers = fits_registers(r);
	r->rereads_x = can_reread_x(r);
	choose_buffer(r);
}

/* ---- rows ---- */

/* Stages x, which is not vectorized, in the buffer. */
static void copy_element(struct rowwise *r, const struct rowwise_chunk *c, void *user)
{
	struct eval_point p = r->row;
	(void)user;
	p.index[r->rank - 1] = c->at;
	rowwise_write_buffer(r, c, eval_value(&r->e, r->root->operands[0], &p));
}

/* Emits the passes of the root's op. */
static void emit_root(struct rowwise *r)
{
	switch ((int)r->root->code) {
	case OP_softmax:
	case OP_masked_softmax: rowwise_softmax(r); return;
	case OP_log_softmax: rowwise_log_softmax(r); return;
	case OP_mask: rowwise_mask(r); return;
	case OP_layer_norm: rowwise_layer_norm(r); return;
	case OP_rms_norm: rowwise_rms_norm(r); return;
	case OP_quantize_rows: rowwise_quantize_rows(r); return;
	}
	eval_internal(&r->e, r->root, "no generator for this rowwise op");
}

/* Emits all passes over the open row. Row offsets that they share are hoisted; then x is staged if it must be (the last
 * vector zeroed before, where a masked tail reads it). Code has the location of the norm, also in another group's
 * kernel. */
static void emit_open_row(struct rowwise *r)
{
	struct kb *k = r->k;
	r->row.index[r->rank - 1] = kb_index(k, 0);
	eval_hoist(&r->e, r->root->operands[0], &r->row);
	for (size_t i = 0; i < r->outputs.n; i++)
		eval_hoist(&r->e, r->outputs.items[i].value, &r->row);
	if (r->buffer_is_result) {
		const struct eval_tensor *to = &r->outputs.items[0].to;
		struct kb_val offset = eval_offset(&r->e, to, &r->row);
		r->buffer = kb_ptr_add(k, to->t.ptr, kb_mul_const(k, offset, 4), 0);
	}
	if (r->is_staged) {
		const struct rowwise_loop w = {.body = copy_element, .lanes = 1};
		if (keeps_exponentials(r))
			rowwise_zero_tail(r, rowwise_width(r));
		rowwise_loop(r, kb_index(r->k, 0), rowwise_width(r), &w);
	}
	uint32_t before = kernel_set_loc(k, r->job->cx, r->root->loc); /* of a norm in another group */
	emit_root(r);
	kb_reset_loc(k, before);
}

/* Opens and emits row number `at` of all leading axes as one. */
static void emit_row(struct rowwise *r, struct kb_val at)
{
	r->row = (struct eval_point){.rank = r->rank, .vec = r->rank - 1, .flat = at};
	eval_unravel(&r->e, at, r->size, r->rank - 1, r->row.index);
	emit_open_row(r);
}

/* Loop over this worker's rows, of a padded batch the real ones (batch_rows.h). */
static void emit_rows(struct rowwise *r)
{
	struct kb *k = r->k;
	struct kb_val hi;
	const struct batch_rows rows = batch_rows_of(&r->e, r->root->results[0], r->size);
	struct kb_val lo = eval_worker_range(&r->e, rows.n, &hi);
	size_t mark = eval_mark(&r->e);
	emit_row(r, batch_rows_begin(k, &rows, lo, hi).row);
	batch_rows_end(k, &rows);
	eval_release(&r->e, mark);
}

/* ---- norms fused with another root ---- */

/* State for a norm in the group of another root. It shares the evaluator except for the cache, whose widths
 * and points are those of that root. */
static struct rowwise begin_norm(struct eval *e, const struct ir_op *norm)
{
	struct rowwise r = {.job = e->job, .k = e->k, .root = norm, .e = *e, .items = 1};
	r.e.cache.items = NULL;
	r.e.cache.n = r.e.cache.cap = 0;
	r.rank = ir_type_of(e->job->func, norm->results[0])->rank;
	return r;
}

/* Hands failures back to the caller's evaluator. */
static void end_norm(const struct rowwise *r, struct eval *e)
{
	e->failed = r->e.failed;
	e->unsupported = r->e.unsupported;
	e->no_memory = r->e.no_memory;
}

/* Emits the norm for rows [first, end): to rows->to if it produces rows for another root, else in place in
 * the group's result. */
static void emit_norm(struct rowwise *r, struct eval *e, const struct rowwise_rows *rows)
{
	struct kb *k = r->k;
	eval_sizes(&r->e, r->root->results[0], r->size);
	choose_schedule(r);
	struct kb_val at = kb_loop(k, "row", rows->first, rows->end, 1, 0);
	if (r->is_producer) {
		struct kb_val row = kb_sub(k, at, rows->first);
		r->buffer = kb_ptr_add(k, rows->to, kb_mul_const(k, row, rows->step * 4), 0);
	}
	if (rows->list.id)
		at = kb_cvt(k, kb_load(k, KB_I32_T, rows->list, at, 0, 0), KB_INDEX);
	emit_row(r, at);
	kb_end_loop(k);
	end_norm(r, e);
}

void rowwise_norm_rows(struct eval *e, const struct rowwise_rows *rows)
{
	struct rowwise r = begin_norm(e, rows->norm);
	r.is_producer = true;
	emit_norm(&r, e, rows);
}

/* Emits the norm of one row, into `to`: another generator reads it there. */
void rowwise_norm_row(struct eval *e, const struct ir_op *norm, const struct eval_point *row,
                      struct kb_val to)
{
	struct rowwise r = begin_norm(e, norm);
	r.is_producer = true;
	r.buffer = to;
	eval_sizes(&r.e, norm->results[0], r.size);
	choose_schedule(&r);
	r.row = *row;
	emit_open_row(&r);
	end_norm(&r, e);
}

/* Normalizes in place: in a copy of the tensor table the operand of the norm is the group's result, so that each row is
 * read where the epilogue's results are stored. */
void rowwise_norm_after(struct eval *e, const struct rowwise_after *after)
{
	struct rowwise r = begin_norm(e, after->norm);
	size_t n = e->job->func->n_values;
	struct eval_tensor *tensors = ARENA_ARRAY(e->job->arena, struct eval_tensor, n);
	if (!tensors) {
		e->no_memory = true;
		return;
	}
	memcpy(tensors, e->tensors, n * sizeof(*tensors));
	tensors[after->norm->operands[0].id] = after->out->items[0].to;
	r.e.tensors = tensors;
	r.outputs = *after->out;
	emit_norm(
	        &r, e,
	        &(struct rowwise_rows){
	                .norm = after->norm, .first = after->first, .end = after->end, .list = after->list});
}

/* ---- groups ---- */

/* Rows are divided among workers; work-items of a group share each row, for which local memory is declared at function
 * level. */
enum tfmc_status rowwise_emit(const struct kernel_job *job)
{
	const struct attrs_group *schedule = job->group->attrs;
	const struct ir_region *region = job->group->region;
	assert(schedule->root >= 0 && (size_t)schedule->root < region->n_ops);
	struct rowwise r = {.job = job, .k = job->k, .root = region->ops[schedule->root]};
	assert(ir_op_has(r.root->code, TRAIT_ROWWISE));
	TFMC_TRY(eval_begin(&r.e, job));
	TFMC_TRY(eval_outputs(&r.e, &r.outputs));
	r.rank = ir_type_of(job->func, r.root->results[0])->rank;
	TFMC_TRY(check_types(&r));
	r.items = job->items > 1 ? job->items : 1;
	if (r.items > 1) {
		/* Declares what work-items share; at function level. */
		r.item = kb_item_id(r.k);
		r.partials = kb_shared(r.k, "partials", KB_F32, r.items);
	}
	eval_sizes(&r.e, r.root->results[0], r.size);
	choose_schedule(&r);
	emit_rows(&r);
	return eval_status(&r.e);
}
