/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention generator: binds operands, chooses the schedule, divides scratch. attention.h states the result;
 * internal.h lists the parts.
 */
#include "backends/kernels/attention.h"

#include <assert.h>

#include "backends/kernels/attention_internal.h"

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

#define HEAD_MAX  65536
#define BLOCK_MAX ATTENTION_BLOCK_MAX
#define UNROLLED  8 /* vectors of a row that are unrolled */

/* ---- tensors ---- */

struct kb_type attention_vector(const struct attention *a)
{
	return KB_TYPE(KB_F32, a->lanes);
}

bool attention_is_dense(const struct kb_tensor *t, int axis)
{
	return t->stride[axis].is_const && t->stride[axis].c == 1;
}

struct kb_val attention_dim(struct kb *k, const struct kb_size *s)
{
	return s->is_const ? kb_index(k, s->c) : s->v;
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
	struct kb_type type = KB_TYPE(eval_stored_scalar(dtype), a->lanes);
	int align = is_aligned ? a->lanes * (int)ir_dtype_bytes(dtype) : 0;
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

int attention_nr_vectors(const struct attention *a, int rows)
{
	const struct target *t = a->job->target;
	int panel = PANEL_COLUMNS / a->lanes, best = panel;
	if (rows == a->mr)
		return target_register_tile(t).nr / a->lanes;
	for (int v = panel; v <= TILE_PANELS_MAX * panel; v *= 2) {
		int by_lane = t->k_lanes > 1 ? rows : 0;
		if (rows * v <= t->max_accumulators &&
		    rows * v + v + by_lane + 1 + !t->has_fma <= t->registers)
			best = v;
	}
	return best;
}

/* ---- the group ---- */

/* Reports an internal error: passes before should have excluded the case. */
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

/* The same, for elements of 16 or 32 bits of float; rejects others. Only keys may be packed. */
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

/* Binds the storage of the root's axes [B,H,S,V] in the group's result. */
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

/* ---- the schedule ---- */

/* Takes n elements of scratch at *at, which advances by full cache lines. */
static struct kb_val alloc_scratch(const struct attention *a, int64_t *at, int64_t n)
{
	struct kb_val p = kb_ptr_add(a->k, a->job->scratch, kb_index(a->k, 0), *at * 4);
	*at += panel_round_up(n);
	return p;
}

/* Assigns the buffers of the schedule to the worker's scratch. */
static enum tfmc_status divide_scratch(struct attention *a, const struct attrs_group *schedule)
{
	struct target_attention_scratch s;
	const struct target_attention_sizes sizes = {a->br, a->bc, schedule->split,
	                                             attention_has(&a->k_scale) + attention_has(&a->v_scale)};
	target_attention_scratch(a->job->target, a->size, a->value_size, &sizes, &s);
	struct attention_scratch *to = &a->scratch;
	int64_t at = 0;
	to->queries = alloc_scratch(a, &at, s.queries);
	to->keys = alloc_scratch(a, &at, s.keys);
	to->values = alloc_scratch(a, &at, s.values);
	to->scores = alloc_scratch(a, &at, s.scores);
	to->stride = s.score_stride;
	to->partial.acc = alloc_scratch(a, &at, s.sums);
	to->partial.max = alloc_scratch(a, &at, s.rows);
	to->partial.sum = alloc_scratch(a, &at, s.rows);
	to->tile_max = alloc_scratch(a, &at, s.tile_rows);
	to->tile_sum = alloc_scratch(a, &at, s.tile_rows);
	to->old_factor = alloc_scratch(a, &at, s.tile_rows);
	to->new_factor = alloc_scratch(a, &at, s.tile_rows);
	to->slots = (struct attention_slots){s.n_slots, s.slot_rows, s.slot, s.rows,
	                                     alloc_scratch(a, &at, s.n_slots * s.slot)};
	if (attention_has(&a->k_scale))
		to->k_scale = alloc_scratch(a, &at, s.scales);
	if (attention_has(&a->v_scale))
		to->v_scale = alloc_scratch(a, &at, s.scales);
	return at * 4 > schedule->scratch ? internal(a, "the planned scratch is too small") : TFMC_OK;
}

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

/* The mask in terms of a window and of the keys that token 0 sees. */
static struct attention_mask find_mask(const struct attrs_attention *attrs)
{
	bool is_causal = attrs->mask == MASK_causal;
	return (struct attention_mask){.rows_differ = is_causal || attrs->window > 0,
	                               .window = attrs->window,
	                               .reach = is_causal ? 1 : attrs->window};
}

/* Folds constant factors into the queries, once for each. With a bias the base stays e: a bias may be the
 * lowest float, which a factor would make infinite. */
static struct attention_score choose_factors(const struct attrs_attention *attrs, bool has_bias)
{
	double cap = attrs->softcap, base = has_bias || cap > 0 ? 1 : ATTENTION_LOG2E;
	double inside = cap > 0 ? 1 / cap : 1;
	return (struct attention_score){.q_factor = (float)(attrs->scale * inside * base),
	                                .bias_factor = (float)inside,
	                                .cap = (float)cap,
	                                .base2 = base != 1};
}

/* True if products of bf16 pairs apply: rows see the same keys, and operands are read in full vectors. CPUs
 * with AMX multiply pairs in vectors at half the rate of f32, so AMX does it or nothing. */
static bool can_use_bf16_dot(const struct attention *a)
{
	const struct kb_tensor *const read[] = {&a->q, &a->key, &a->value};
	const struct kb_caps *caps = kb_caps(a->k);
	bool fits = a->is_bf16 && caps->has_dot_bf16 && a->amx == caps->has_tiles &&
	            a->lanes == PANEL_COLUMNS && a->job->target->k_lanes == 1 && !a->mask.rows_differ &&
	            a->key.ring == 0 && a->key.encoding == ENC_ROW;
	for (size_t i = 0; i < TFMC_COUNT(read); i++)
		fits = fits && attention_is_dense(read[i], ATTENTION_ELEMENT);
	return fits;
}

/* Values are packed if they are not full vectors, or if keys are not contiguous. Keys in panels and
 * contiguous values are converted in registers. */
static void choose_packing(struct attention *a)
{
	a->amx = kb_caps(a->k)->has_tiles && target_attention_uses_amx(a->job->target, a->size);
	a->bf16_dot = can_use_bf16_dot(a);
	a->amx = a->amx && a->bf16_dot;
	const struct kb_size *step = &a->value.stride[ATTENTION_ROW];
	bool full = a->value_size % a->lanes == 0 && attention_is_dense(&a->value, ATTENTION_ELEMENT);
	a->packs_values = a->bf16_dot || !full || !step->is_const || step->c != a->value_size;
	a->value_dtype = a->packs_values ? DT_F32 : a->value.dtype;
	a->key_dtype = a->key.encoding == ENC_PANEL16 ? a->key.dtype : DT_F32;
}

/* Sizes and schedule: the group's attributes, else the target's model. */
static enum tfmc_status choose_schedule(struct attention *a, const struct attrs_group *s)
{
	int64_t br, bc;
	TFMC_TRY(find_head_size(a, &a->q.size[ATTENTION_ELEMENT], &a->size));
	TFMC_TRY(find_head_size(a, &a->value.size[ATTENTION_ELEMENT], &a->value_size));
	target_attention_blocks(a->job->target, a->size, a->value_size, &br, &bc);
	a->br = s->br > 0 ? s->br : br;
	a->bc = s->bc > 0 ? s->bc : bc;
	int64_t lanes = s->lanes > 0 ? s->lanes : kb_caps(a->k)->lanes;
	a->lanes = lanes < ATTENTION_LANES_MAX ? (int)lanes : ATTENTION_LANES_MAX;
	a->size_pad = panel_round_up(a->size);
	a->value_pad = panel_round_up(a->value_size);
	choose_packing(a);
	a->mr = a->amx ? AMX_TILE_ROWS : target_register_tile(a->job->target).mr;
	bool fits = (a->lanes & (a->lanes - 1)) == 0 && a->bc % PANEL_COLUMNS == 0 && a->br <= BLOCK_MAX &&
	            a->bc <= BLOCK_MAX;
	return fits ? divide_scratch(a, s) : internal(a, "the schedule does not fit");
}

/* Query heads of a key head (GQA). */
static struct kb_val queries_of_head(const struct attention *a)
{
	const struct kb_size *q = &a->q.size[ATTENTION_HEAD], *key = &a->key.size[ATTENTION_HEAD];
	if (q->is_const && key->is_const && key->c > 0)
		return kb_index(a->k, q->c / key->c);
	struct kb_val heads = attention_dim(a->k, key);
	return kb_bin(a->k, KB_DIV, attention_dim(a->k, q), heads);
}

static struct attention_heads find_heads(const struct attention *a)
{
	struct kb *k = a->k;
	struct attention_heads h = {.batch = attention_dim(k, &a->q.size[ATTENTION_BATCH])};
	h.heads = attention_dim(k, &a->key.size[ATTENTION_HEAD]);
	h.queries = queries_of_head(a);
	h.rows = kb_mul(k, attention_dim(k, &a->q.size[ATTENTION_ROW]), h.queries);
	return h;
}

enum tfmc_status kernel_attention(const struct kernel_job *job)
{
	const struct attrs_group *schedule = job->group->attrs;
	const struct ir_region *r = job->group->region;
	assert(schedule->root >= 0 && (size_t)schedule->root < r->n_ops);
	const struct ir_op *root = r->ops[schedule->root];
	assert(root->code == OP_attention);
	struct attention a = {.job = job, .k = job->k};
	int64_t queries;
	TFMC_TRY(bind_operands(&a, root));
	TFMC_TRY(bind_result(&a, root));
	a.mask = find_mask(root->attrs);
	a.is_bf16 = ((const struct attrs_attention *)root->attrs)->factors == FACTORS_bf16;
	a.score = choose_factors(root->attrs, attention_has(&a.bias));
	TFMC_TRY(choose_schedule(&a, schedule));
	a.heads = find_heads(&a);
	if (job->items > 1 && schedule->split > 0 && kb_const_index(a.k, a.heads.queries, &queries)) {
		a.split = schedule->split;
		a.scratch.slots = attention_group_slots(queries, a.value_size);
	}
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
