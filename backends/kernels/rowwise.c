/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise generator: binds the group and loops over this worker's rows, as its nest describes. The number of workers
 * only decides which worker computes a row.
 *
 * A pass is a loop over the elements of a row, emitted for each op (rowwise_ops.c). Several accumulators (slots) hide
 * latency; which one takes a vector depends on its number alone. A chunk is a vector of a row: `valid` of its lanes
 * exist (mask).
 *
 * items > 1: the items of a work-group share a row, each every items-th element, the same ones in all passes, so that
 * an item reads only what it stored itself. Their accumulators are reduced in local memory, in a tree that depends on
 * the number of items only. Rows belong to the group, so that all items reach all barriers.
 *
 * A norm in the group of another root has no outputs: that root's generator reads its rows from the buffer.
 */
#include "backends/kernels/batch_rows.h"
#include "backends/kernels/generator.h"
#include "backends/kernels/rowwise.h"
#include "backends/kernels/rowwise_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- the open row ---- */

/* Emits the body at one chunk, in a scope of the evaluator. */
static void emit_chunk(struct rowwise *r, const struct rowwise_chunk *c, rowwise_chunk_fn *body, void *user)
{
	size_t mark = eval_mark(&r->e);
	struct eval_width before = eval_width(&r->e, c->lanes, c->valid);
	body(r, c, user);
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

/* to - (to - from) % step */
static struct kb_val last_full(struct kb *k, struct kb_val from, struct kb_val to, int64_t step)
{
	return kb_sub(k, to, kb_rem_const(k, kb_sub(k, to, from), step));
}

/* Zeros the buffer's last vector, of which only a part will be written: passes read it as a whole. */
void rowwise_zero_tail(struct rowwise *r, struct kb_val to)
{
	struct kb *k = r->k;
	int lanes = r->nest.lanes;
	if (!r->nest.masks_tail || lanes == 1)
		return;
	struct kb_val vectors = last_full(k, kb_index(k, 0), to, lanes);
	struct kb_val at = kb_loop(k, "j", vectors, to, lanes, 0);
	kb_store(k, kb_splat(k, kb_f32(k, 0), lanes), r->buffer, at, 0, 0);
	kb_end_loop(k);
}

/* Items take every items-th element; else the parts of the range. The slot depends on the vector's number in the row,
 * of which iterations are a multiple of the slots. */
void rowwise_loop(struct rowwise *r, enum rowwise_pass pass, struct kb_val from, struct kb_val to,
                  rowwise_chunk_fn *body, void *user)
{
	struct kb *k = r->k;
	int64_t lo, hi = -1;
	if (r->items > 1) {
		struct rowwise_chunk c = {.lanes = 1, .valid = 1};
		c.at = kb_loop(k, "j", kb_add(k, from, r->item), to, r->items, 0);
		emit_chunk(r, &c, body, user);
		kb_end_loop(k);
		return;
	}
	bool is_const = kb_const_index(k, from, &lo) && lo == 0 && kb_const_index(k, to, &hi);
	const struct rowwise_range range = rowwise_divide(&r->nest, pass, is_const ? hi : -1);
	for (const struct rowwise_part *p = range.part; p < range.part + ROWWISE_PARTS; p++) {
		int64_t step = p->vectors * p->lanes;
		if (step == 0)
			continue;
		struct kb_val end = p->is_masked || p->is_tail ? to
		                    : is_const                 ? kb_add_const(k, from, p->iterations * step)
		                                               : last_full(k, from, to, step);
		struct kb_val at = from;
		if (p->iterations != 1)
			at = kb_loop(k, "j", from, end, step, is_const ? KB_NONEMPTY : 0);
		for (int64_t i = 0; i < p->vectors; i++) {
			struct rowwise_chunk c = {.at = kb_add_const(k, at, i * p->lanes),
			                          .lanes = p->lanes,
			                          .valid = p->valid,
			                          .slot = (int)((p->first + i) % range.vectors),
			                          .number = (int)(p->first + i),
			                          .is_tail = p->is_tail};
			if (p->is_masked)
				c.mask = lanes_below(r, p->lanes, kb_sub(k, to, at));
			emit_chunk(r, &c, body, user);
		}
		if (p->iterations != 1)
			kb_end_loop(k);
		from = end;
	}
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
	if (r->nest.buffer == ROWWISE_REGISTERS)
		return r->chunk_value[c->number];
	return kb_load_part(r->k, KB_TYPE(KB_F32, c->lanes), c->valid, r->buffer, c->at, 0);
}

void rowwise_write_buffer(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->nest.buffer == ROWWISE_REGISTERS)
		r->chunk_value[c->number] = value;
	else
		kb_store_part(r->k, value, c->valid, r->buffer, c->at, 0);
}

struct kb_val rowwise_load_x(struct rowwise *r, const struct rowwise_chunk *c)
{
	return r->nest.is_staged ? rowwise_read_buffer(r, c) : evaluate_x(r, c);
}

void rowwise_keep_x(struct rowwise *r, const struct rowwise_chunk *c, struct kb_val value)
{
	if (r->nest.keeps_x)
		rowwise_write_buffer(r, c, value);
}

struct kb_val rowwise_reload_x(struct rowwise *r, const struct rowwise_chunk *c)
{
	return r->nest.keeps_x ? rowwise_read_buffer(r, c) : evaluate_x(r, c);
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
	if (r->outputs.n == 0) {
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
	int lanes = r->nest.lanes;
	for (int i = 0; i < ROWWISE_UNROLL; i++)
		a->slot[i] = kb_var(r->k, "acc", KB_TYPE(KB_F32, lanes), kb_splat(r->k, none, lanes));
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
 * does not reach are left out; items have only slot 0 and reduce theirs by a tree. */
struct kb_val rowwise_acc_reduce(struct rowwise *r, const struct rowwise_acc *a)
{
	struct kb *k = r->k;
	struct kb_val all = kb_get(k, a->slot[0]);
	if (r->items > 1)
		return rowwise_items_reduce(r, a->op, all);
	for (int i = 1; i < r->nest.accumulators; i++)
		all = kb_bin(k, a->op, kb_get(k, a->slot[i]), all);
	if (r->nest.lanes > 1)
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

/* Rejects types and shapes that the passes do not support, with a diagnostic: f64, no row axis (a mask needs a query
 * axis, too), results that are not elements of the same rows. */
static enum tfmc_status check_types(struct rowwise *r)
{
	const struct ir_func *f = r->job->func;
	const struct ir_type *y = ir_type_of(f, r->root->results[0]);
	for (size_t i = 0; i < r->root->n_operands; i++)
		if (r->root->operands[i].id && ir_type_of(f, r->root->operands[i])->dtype == DT_F64)
			eval_unsupported(&r->e, r->root, "rows of f64");
	if (y->rank < (rowwise_has_mask(r->root->code) ? 2 : 1))
		eval_unsupported(&r->e, r->root, "rows of a tensor of this rank");
	if (r->outputs.n == 0)
		eval_internal(&r->e, r->root, "the group stores nothing");
	for (size_t i = 0; i < r->outputs.n; i++)
		if (!ir_same_dims(ir_type_of(f, r->outputs.items[i].value), y))
			eval_unsupported(&r->e, r->root, "results with another shape than the rows");
	return eval_status(&r->e);
}

/* The rows that the nest is chosen for; a row of constant width gets that as its size. */
static struct rowwise_shape shape_of(struct rowwise *r)
{
	int last = r->rank - 1;
	struct ir_value x = r->root->operands[0];
	const struct ir_dim *width = ir_type_of(r->job->func, r->root->results[0])->dims[last];
	struct rowwise_shape s = {.caps = *kb_caps(r->k),
	                          .attrs = r->job->group->attrs,
	                          .root = r->root->code,
	                          .width = -1,
	                          .longest = ir_dim_hi(r->job->module->dims, width),
	                          .items = r->items,
	                          .has_one_pass = r->root->code == OP_mask,
	                          .x_is_stored = eval_tensor(&r->e, x) != NULL,
	                          .x_vectorizes = eval_vectorizes(&r->e, x, last),
	                          .results_vectorize = true,
	                          .is_producer = r->outputs.n == 0};
	if (ir_dim_is_const(width, &s.width))
		r->size[last] = kb_index(r->k, s.width);
	if (r->root->code == OP_masked_softmax) {
		const struct attrs_masked_softmax *a = r->root->attrs;
		s.scales_x = a->scale != 1 || a->softcap > 0;
	}
	if (r->root->code == OP_quantize_rows) {
		const struct attrs_quantize_rows *a = r->root->attrs;
		bool has_blocks = a->to == ROUND_int8 && a->block > 0 && (s.width < 0 || a->block < s.width);
		s.quant_block = has_blocks ? a->block : 0;
		s.has_one_pass = a->to == ROUND_bf16;
	}
	for (size_t i = 0; i < r->outputs.n; i++)
		s.results_vectorize &= eval_vectorizes(&r->e, r->outputs.items[i].value, last);
	if (r->outputs.n > 0) {
		const struct kb_tensor *y = &r->outputs.items[0].to.t;
		const struct kb_size *stride = &y->stride[last];
		s.fits_result =
		        y->dtype == DT_F32 && y->encoding == ENC_ROW && stride->is_const && stride->c == 1;
	}
	return s;
}

/* Chooses the nest, and binds a buffer that is the same for all rows. That of a norm in the group of another root is
 * not reported. */
static void choose_nest(struct rowwise *r)
{
	eval_sizes(&r->e, r->root->results[0], r->size);
	const struct rowwise_shape s = shape_of(r);
	rowwise_nest_choose(&s, &r->nest);
	if (r->root == ir_group_root(r->job->group)) {
		struct buf text = kernel_begin_remark(r->job);
		rowwise_nest_print(&s, &r->nest, &text);
		kernel_remark_nest(r->job, &text);
	}
	if (r->nest.buffer == ROWWISE_LOCAL_MEMORY)
		r->buffer = kb_shared(r->k, "kept", KB_F32, s.longest);
	else if (r->nest.buffer == ROWWISE_SCRATCH)
		r->buffer = r->job->scratch;
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
	if (r->nest.buffer == ROWWISE_RESULT) {
		const struct eval_tensor *to = &r->outputs.items[0].to;
		struct kb_val offset = eval_offset(&r->e, to, &r->row);
		r->buffer = kb_ptr_add(k, to->t.ptr, kb_mul_const(k, offset, 4), 0);
	}
	if (r->nest.is_staged) {
		struct kb_val width = rowwise_width(r);
		rowwise_zero_tail(r, width);
		rowwise_loop(r, ROWWISE_COPY, kb_index(k, 0), width, copy_element, NULL);
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
	struct rowwise r = {.job = e->job, .k = e->k, .root = norm, .items = 1, .e = *e};
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
	choose_nest(r);
	struct kb_val at = kb_loop(k, "row", rows->first, rows->end, 1, 0);
	if (r->outputs.n == 0) {
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
	emit_norm(&r, e, rows);
}

/* Emits the norm of one row, into `to`: another generator reads it there. */
void rowwise_norm_row(struct eval *e, const struct ir_op *norm, const struct eval_point *row,
                      struct kb_val to)
{
	struct rowwise r = begin_norm(e, norm);
	r.buffer = to;
	choose_nest(&r);
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
	choose_nest(&r);
	emit_rows(&r);
	return eval_status(&r.e);
}
