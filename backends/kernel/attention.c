/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attention template: reads the group, divides the work into tasks (head,
 * tile of query rows), and for each task walks over the blocks of keys that some
 * row of the tile sees (attention_block.c). Blocks lie at absolute positions of
 * the keys, so that a row's bits do not depend on how queries were divided.
 */
#include "backends/kernel/attention.h"

#include <assert.h>
#include <float.h>

#include "backends/kernel/attention_internal.h"
#include "ir/target/tile.h"
#include "ir/view.h"

/* Operands of OP_attention, and axes of [B,H,S,E]. */
enum { Q, KEY, VALUE, BIAS, LEN, PAST };
enum { BATCH, HEAD, ROW, ELEMENT };

#define HEAD_MAX  65536
#define BLOCK_MAX TILE_BLOCK_MAX

/* --- tensors -------------------------------------------------------------------------------------------- */

enum kb_scalar attention_scalar(enum ir_dtype t)
{
	switch (t) {
	case DT_F32: return KB_F32;
	case DT_F16: return KB_F16;
	case DT_BF16: return KB_BF16;
	case DT_F64:
	case DT_I8:
	case DT_U8:
	case DT_I32:
	case DT_I64:
	case DT_BOOL: return KB_VOID;
	}
	return KB_VOID;
}

bool attention_is_dense(const struct kb_tensor *t, int axis)
{
	return t->stride[axis].is_const && t->stride[axis].c == 1;
}

/* The value of a size; constants stay visible to index arithmetic. */
static struct kb_val size_value(struct kb *k, const struct kb_size *s)
{
	return s->is_const ? kb_index(k, s->c) : s->v;
}

struct kb_val attention_step(struct kb *k, const struct kb_tensor *t, int axis, struct kb_val index)
{
	return kb_mul(k, index, size_value(k, &t->stride[axis]));
}

struct kb_val attention_at(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index)
{
	return kb_ptr_add(k, ptr, kb_mul(k, index, kb_index(k, ir_dtype_bytes(t->dtype))), 0);
}

struct kb_val attention_load(struct kb *k, const struct kb_tensor *t, struct kb_val ptr, struct kb_val index,
                             int64_t disp, int lanes, int n)
{
	struct kb_type type = KB_TYPE(attention_scalar(t->dtype), lanes);
	return kb_cvt(k, kb_load_part(k, type, n, ptr, index, disp), KB_F32);
}

/* --- the group -------------------------------------------------------------------------------------------
 */

static enum tfmc_status internal(const struct attention *a, const char *what)
{
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_INTERNAL, "attention: %s", what);
	return TFMC_INTERNAL;
}

static enum tfmc_status operand(const struct attention *a, struct ir_value v, struct kb_tensor *out)
{
	const struct kernel_binding *bind = a->job->bind;
	if (!bind->tensor(bind->user, a->k, v, out))
		return internal(a, "an operand has no place in memory");
	return TFMC_OK;
}

static enum tfmc_status float_operand(const struct attention *a, struct ir_value v, struct kb_tensor *out)
{
	TFMC_TRY(operand(a, v, out));
	if (out->encoding != ENC_ROW)
		return internal(a, "an operand is packed");
	if (attention_scalar(out->dtype) != KB_VOID)
		return TFMC_OK;
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_UNSUPPORTED,
	           "not supported yet: attention over %s elements", ir_dtype_name(out->dtype));
	return TFMC_INVALID;
}

static enum tfmc_status bind_operands(struct attention *a, const struct ir_op *root)
{
	const struct ir_value *x = root->operands;
	a->has_bias = root->n_operands > BIAS && x[BIAS].id != 0;
	a->has_len = root->n_operands > LEN && x[LEN].id != 0;
	a->has_past = root->n_operands > PAST && x[PAST].id != 0;
	a->is_causal = a->attrs->mask == MASK_causal;
	TFMC_TRY(float_operand(a, x[Q], &a->q));
	TFMC_TRY(float_operand(a, x[KEY], &a->key));
	TFMC_TRY(float_operand(a, x[VALUE], &a->value));
	if (a->has_bias)
		TFMC_TRY(float_operand(a, x[BIAS], &a->bias));
	if (a->has_len)
		TFMC_TRY(operand(a, x[LEN], &a->len));
	if (a->has_past)
		TFMC_TRY(operand(a, x[PAST], &a->past));
	return TFMC_OK;
}

static struct kb_size dim_size(const struct attention *a, const struct ir_dim *d)
{
	return a->job->bind->dim(a->job->bind->user, a->k, d);
}

/* The root's axes [B,H,S,V] inside the group's result. */
static enum tfmc_status bind_result(struct attention *a, const struct ir_op *root)
{
	const struct kernel_job *job = a->job;
	const struct ir_region *r = job->group->region;
	const struct ir_op *yield = r->ops[r->n_ops - 1];
	struct kb_tensor result;
	struct ir_view view;
	if (yield->n_operands != 1 || !job->bind->result(job->bind->user, a->k, 0, &result))
		return internal(a, "the group has not one result in memory");
	if (!ir_view_store(job->module, job->func, yield->operands[0], &view) ||
	    !ir_same(view.base, root->results[0]))
		return internal(a, "the result is no view of the root");
	if (attention_scalar(result.dtype) == KB_VOID)
		return internal(a, "the result has another element type");
	a->out = (struct kb_tensor){.dtype = result.dtype, .rank = view.rank};
	for (int i = 0; i < view.rank; i++) {
		a->out.size[i] = dim_size(a, view.size[i]);
		a->out.stride[i] = dim_size(a, view.stride[i]);
	}
	struct kb_size offset = dim_size(a, view.offset);
	a->out.ptr = attention_at(a->k, &a->out, result.ptr, size_value(a->k, &offset));
	return TFMC_OK;
}

static int64_t padded(int64_t n)
{
	return (n + ATTENTION_PAD - 1) / ATTENTION_PAD * ATTENTION_PAD;
}

/* Addresses of the parts of scratch. */
static enum tfmc_status divide_scratch(struct attention *a)
{
	struct kb *k = a->k;
	int64_t rows = a->br * a->bc, acc = a->br * a->value_pad, at = padded(a->size) * a->bc;
	a->keys = a->job->scratch;
	a->scores = kb_ptr_add(k, a->keys, kb_index(k, 0), at * 4);
	a->acc = kb_ptr_add(k, a->scores, kb_index(k, 0), rows * 4);
	a->max = kb_ptr_add(k, a->acc, kb_index(k, 0), acc * 4);
	a->sum = kb_ptr_add(k, a->max, kb_index(k, 0), a->br * 4);
	if ((at + rows + acc + 2 * a->br) * 4 > a->schedule->scratch)
		return internal(a, "the planned scratch is too small");
	return TFMC_OK;
}

static enum tfmc_status find_head_size(const struct attention *a, const struct kb_size *s, int64_t *out)
{
	*out = s->c;
	if (s->is_const && s->c > 0 && s->c <= HEAD_MAX)
		return TFMC_OK;
	diag_error(a->job->cx, a->job->group->loc.at, DIAG_UNSUPPORTED,
	           "not supported yet: attention with a head size that is no constant from 1 to %d",
	           HEAD_MAX);
	return TFMC_INVALID;
}

/* Sizes and the schedule; the group's attributes win over the defaults. */
static enum tfmc_status choose_schedule(struct attention *a)
{
	const struct attrs_group *s = a->schedule;
	const struct kb_caps *caps = kb_caps(a->k);
	TFMC_TRY(find_head_size(a, &a->q.size[ELEMENT], &a->size));
	TFMC_TRY(find_head_size(a, &a->value.size[ELEMENT], &a->value_size));
	a->br = s->br > 0 ? s->br : ATTENTION_TASK_ROWS;
	a->bc = s->bc > 0 ? s->bc : 64;
	int64_t lanes = s->lanes > 0 ? s->lanes : caps->lanes;
	a->lanes = lanes < ATTENTION_LANES_MAX ? (int)lanes : ATTENTION_LANES_MAX;
	a->value_lanes = attention_is_dense(&a->value, ELEMENT) ? a->lanes : 1;
	a->value_pad = padded(a->value_size);
	a->vectors = caps->registers >= 32 ? ATTENTION_VECTORS_MAX : 2;
	bool fits = (a->lanes & (a->lanes - 1)) == 0 && a->bc % ATTENTION_PAD == 0 && a->br <= BLOCK_MAX &&
	            a->bc <= BLOCK_MAX;
	return fits ? divide_scratch(a) : internal(a, "the schedule does not fit");
}

/* --- tasks ------------------------------------------------------------------------------------------------
 */

/* Element of an i32[B] operand. */
static struct kb_val sequence_value(struct attention *a, const struct kb_tensor *t, struct kb_val b)
{
	struct kb *k = a->k;
	return kb_cvt(k, kb_load(k, KB_I32_T, t->ptr, attention_step(k, t, 0, b), 0, 0), KB_INDEX);
}

/* Which keys the rows of the tile see. */
static void find_visible(struct attention *a, struct kb_val b)
{
	struct kb *k = a->k;
	a->limit = size_value(k, &a->key.size[ROW]);
	if (a->has_len)
		a->limit = kb_min(k, a->limit, sequence_value(a, &a->len, b));
	a->visible = a->limit;
	if (!a->is_causal)
		return;
	a->first_limit = kb_add_const(k, a->first_row, 1);
	if (a->has_past)
		a->first_limit = kb_add(k, a->first_limit, sequence_value(a, &a->past, b));
	struct kb_val last = kb_add(k, a->first_limit, kb_add_const(k, a->n_rows, -1));
	a->visible = kb_min(k, a->visible, last);
}

static struct kb_val head_at(struct attention *a, const struct kb_tensor *t, struct kb_val b, struct kb_val h,
                             struct kb_val row)
{
	struct kb *k = a->k;
	struct kb_val index = kb_add(k, attention_step(k, t, BATCH, b), attention_step(k, t, HEAD, h));
	return attention_at(k, t, t->ptr, kb_add(k, index, attention_step(k, t, ROW, row)));
}

/* Tiles are outermost, so that each worker gets short and long ones alike. */
static void begin_task(struct attention *a, struct kb_val task)
{
	struct kb *k = a->k;
	struct kb_val batch = size_value(k, &a->q.size[BATCH]), heads = size_value(k, &a->q.size[HEAD]);
	struct kb_val key_heads = size_value(k, &a->key.size[HEAD]);
	struct kb_val all = kb_mul(k, batch, heads);
	struct kb_val head = kb_bin(k, KB_REM, task, all);
	struct kb_val b = kb_bin(k, KB_DIV, head, heads), h = kb_bin(k, KB_REM, head, heads);
	struct kb_val key_head = kb_bin(k, KB_DIV, h, kb_bin(k, KB_DIV, heads, key_heads));
	struct kb_val zero = kb_index(k, 0);
	a->first_row = kb_mul(k, kb_bin(k, KB_DIV, task, all), kb_index(k, a->br));
	struct kb_val rows = kb_sub(k, size_value(k, &a->q.size[ROW]), a->first_row);
	a->n_rows = kb_min(k, rows, kb_index(k, a->br));
	find_visible(a, b);
	a->q_rows = head_at(a, &a->q, b, h, a->first_row);
	a->out_rows = head_at(a, &a->out, b, h, a->first_row);
	a->k_head = head_at(a, &a->key, b, key_head, zero);
	a->v_head = head_at(a, &a->value, b, key_head, zero);
	if (a->has_bias)
		a->bias_rows = head_at(a, &a->bias, b, h, a->first_row);
}

static void clear_rows(const struct attention *a)
{
	struct kb *k = a->k;
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), a->n_rows, 1, KB_NONEMPTY);
	kb_store(k, kb_f32(k, -FLT_MAX), a->max, row, 0, 0);
	kb_store(k, kb_f32(k, 0), a->sum, row, 0, 0);
	kb_end_loop(k);
	struct kb_val n = kb_mul(k, a->n_rows, kb_index(k, a->value_pad));
	struct kb_val e = kb_loop(k, "e", kb_index(k, 0), n, a->lanes, KB_NONEMPTY);
	kb_store(k, kb_splat(k, kb_f32(k, 0), a->lanes), a->acc, e, 0, a->lanes * 4);
	kb_end_loop(k);
}

/* out[e0 ..] = acc[e0 ..] / sum for n of `lanes` elements. */
static void store_part(const struct attention *a, struct kb_val acc, struct kb_val out, struct kb_val e0,
                       int lanes, int n, struct kb_val sum)
{
	struct kb *k = a->k;
	struct kb_val x = kb_load(k, KB_TYPE(KB_F32, lanes), acc, e0, 0, lanes * 4);
	x = kb_bin(k, KB_DIV, x, kb_splat(k, sum, lanes));
	x = kb_cvt(k, x, attention_scalar(a->out.dtype));
	kb_store_part(k, x, n, out, attention_step(k, &a->out, ELEMENT, e0), 0);
}

/* The weighted mean of one row; a row that saw nothing has sum 0 and gives 0. */
static void store_row(const struct attention *a, struct kb_val row)
{
	struct kb *k = a->k;
	int lanes = attention_is_dense(&a->out, ELEMENT) ? a->lanes : 1;
	int64_t whole = a->value_size - a->value_size % lanes;
	struct kb_val offset = kb_mul(k, row, kb_index(k, a->value_pad * 4));
	struct kb_val acc = kb_ptr_add(k, a->acc, offset, 0);
	struct kb_val out = attention_at(k, &a->out, a->out_rows, attention_step(k, &a->out, ROW, row));
	struct kb_val sum = kb_load(k, KB_F32_T, a->sum, row, 0, 0);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, sum, kb_f32(k, 0));
	sum = kb_select(k, is_zero, kb_f32(k, 1), sum);
	if (whole > 0) {
		struct kb_val e = kb_loop(k, "e", kb_index(k, 0), kb_index(k, whole), lanes, KB_NONEMPTY);
		store_part(a, acc, out, e, lanes, lanes, sum);
		kb_end_loop(k);
	}
	if (whole < a->value_size)
		store_part(a, acc, out, kb_index(k, whole), lanes, (int)(a->value_size - whole), sum);
}

static void emit_task(struct attention *a, struct kb_val task)
{
	struct kb *k = a->k;
	begin_task(a, task);
	clear_rows(a);
	a->first_key = kb_loop(k, "block", kb_index(k, 0), a->visible, a->bc, 0);
	a->n_keys = kb_min(k, kb_sub(k, a->visible, a->first_key), kb_index(k, a->bc));
	attention_block(a);
	kb_end_loop(k);
	struct kb_val row = kb_loop(k, "row", kb_index(k, 0), a->n_rows, 1, KB_NONEMPTY);
	store_row(a, row);
	kb_end_loop(k);
}

/* Task i of a worker is worker + i n_workers. */
static void emit_tasks(struct attention *a)
{
	struct kb *k = a->k;
	const struct kernel_job *job = a->job;
	struct kb_val rows = size_value(k, &a->q.size[ROW]);
	struct kb_val tiles = kb_bin(k, KB_DIV, kb_add_const(k, rows, a->br - 1), kb_index(k, a->br));
	struct kb_val heads = kb_mul(k, size_value(k, &a->q.size[BATCH]), size_value(k, &a->q.size[HEAD]));
	struct kb_val left = kb_sub(k, kb_mul(k, tiles, heads), job->worker);
	struct kb_val up = kb_add(k, left, kb_add_const(k, job->n_workers, -1));
	struct kb_val count = kb_bin(k, KB_DIV, up, job->n_workers);
	struct kb_val i = kb_loop(k, "task", kb_index(k, 0), count, 1, 0);
	emit_task(a, kb_add(k, job->worker, kb_mul(k, i, job->n_workers)));
	kb_end_loop(k);
}

enum tfmc_status kernel_attention(const struct kernel_job *job)
{
	const struct attrs_group *schedule = job->group->attrs;
	const struct ir_region *r = job->group->region;
	assert(schedule->root >= 0 && (size_t)schedule->root < r->n_ops);
	const struct ir_op *root = r->ops[schedule->root];
	assert(root->code == OP_attention);
	struct attention a = {.job = job, .k = job->k, .attrs = root->attrs, .schedule = schedule};
	TFMC_TRY(bind_operands(&a, root));
	TFMC_TRY(bind_result(&a, root));
	TFMC_TRY(choose_schedule(&a));
	emit_tasks(&a);
	return TFMC_OK;
}
