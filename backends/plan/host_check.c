/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All checks of a call's arguments, before anything is written, in this order: null pointers, dims, buffer
 * sizes, arena, state, values, capacity. Dims are checked against their bounds before sizes are computed, so
 * that no product overflows (the layout checked the bounds).
 */
#include "backends/plan/host.h"
#include "backends/kernels/eval.h"

/* The buffer in slots [slot, slot + 2), unless null, has enough elements for the tensor. */
static void check_size(struct emit *e, size_t slot, const struct ir_type *t)
{
	struct kb_val need = emit_dim(e, ir_type_count(e->object->module->dims, t));
	struct kb_val given = emit_has_arg(e, slot), count = emit_load_arg(e, KB_INDEX, slot + 1);
	struct kb_val low = kb_cmp(e->k, KB_LT, count, need);
	emit_return_if(e, kb_bin(e->k, KB_AND, given, low), TFMC_RT_E_SIZE);
}

/* Pointers, dims, buffer sizes and the arena. */
static void check_memory(struct emit *e)
{
	const struct function *f = e->function;
	for (size_t i = 0; i < f->func->n_params; i++)
		if (param_is_input(f->func, i) && !f->func->params[i].has_default)
			emit_require(e, emit_has_arg(e, f->param_slot[i]), TFMC_RT_E_NULL);
	for (size_t i = 0; i < ir_dims_count(e->object->module->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(e->object->module->dims, i);
		if (f->has_dim[i])
			emit_require_between(e, e->dims[i], s->lo, kb_index(e->k, s->hi), TFMC_RT_E_DIM);
	}
	for (size_t i = 0; i < f->func->n_params; i++)
		if (param_is_input(f->func, i))
			check_size(e, f->param_slot[i], ir_type_of(f->func, f->func->params[i].value));
	for (size_t i = 0; i < f->func->n_results; i++)
		if (result_is_output(f->func, i))
			check_size(e, f->result_slot[i], ir_type_of(f->func, func_result(f->func, i)));
	/* The arena holds the scratch of all workers of the config, then the function's buffers. */
	struct kb_val workers = emit_load_context(e, KB_INDEX, CONTEXT_WORKERS_MAX);
	struct kb_val scratch = kb_mul_const(e->k, workers, e->object->scratch);
	struct kb_val need = kb_add(e->k, emit_dim(e, f->arena), scratch);
	struct kb_val have = emit_load_context(e, KB_INDEX, CONTEXT_ARENA_BYTES);
	emit_return_if(e, kb_cmp(e->k, KB_LT, have, need), TFMC_RT_E_SIZE);
}

/* ---- state ---- */

static struct kb_val call_batch(struct emit *e)
{
	return e->dims[e->object->states.batch_dim];
}

/* The state is present and has memory for the call's sequences; sources are encoded. */
static void check_state(struct emit *e)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	if (!e->function->has_state || o->states.batch_dim < 0)
		return;
	emit_return_if(e, kb_cmp(k, KB_EQ, e->state, kb_null(k)), TFMC_RT_E_STATE);
	struct kb_val capacity = emit_load_context(e, KB_INDEX, CONTEXT_BATCH);
	struct kb_val end = kb_add(k, emit_load_context(e, KB_INDEX, CONTEXT_FIRST), call_batch(e));
	emit_return_if(e, kb_cmp(k, KB_GT, end, capacity), TFMC_RT_E_DIM);
	if (!function_has_source(o, e->function))
		return;
	/* encode has filled the source of each row */
	struct kb_val marks = emit_load_context(e, KB_PTR, CONTEXT_ENCODED);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), call_batch(e), 1, 0);
	struct kb_val mark = kb_load(k, KB_I32_T, marks, kb_mul(k, b, e->source_step), 0, 4);
	emit_return_if(e, kb_cmp(k, KB_EQ, mark, kb_i32(k, 0)), TFMC_RT_E_STATE);
	kb_end_loop(k);
}

/* ---- values ---- */

/* Element i of an integer tensor as i64. */
static struct kb_val load_int(struct emit *e, const struct ir_type *t, struct kb_val ptr, struct kb_val i)
{
	struct kb_val v = kb_load(e->k, KB_TYPE(eval_stored_scalar(t->dtype), 1), ptr, i, 0, 0);
	return kb_cvt(e->k, v, KB_INDEX);
}

/* Element b of a lengths input, or default_length if it is omitted. */
static struct kb_val load_length(struct emit *e, int param, struct kb_val b, struct kb_val default_length)
{
	const struct ir_func *f = e->function->func;
	struct kb_var n = kb_var(e->k, "n", KB_INDEX_T, default_length);
	kb_if(e->k, emit_has_arg(e, e->function->param_slot[param]));
	struct kb_val lengths = emit_load_arg(e, KB_PTR, e->function->param_slot[param]);
	kb_set(e->k, n, load_int(e, ir_type_of(f, f->params[param].value), lengths, b));
	kb_end_if(e->k);
	return kb_get(e->k, n);
}

/* Elements are in [0, most]; is_ragged: of [B, S, ..] only those at positions below the sequence's length. */
static void check_elements(struct emit *e, size_t param, bool is_ragged, struct kb_val most,
                           enum tfmc_rt_status status)
{
	const struct ir_param *p = &e->function->func->params[param];
	const struct ir_type *t = ir_type_of(e->function->func, p->value);
	struct ir_dims *dims = e->object->module->dims;
	int split = is_ragged ? 1 : 0;
	struct kb_val rows = emit_dim(e, ir_type_count_range(dims, t, 0, split));
	struct kb_val row = emit_dim(e, ir_type_count_range(dims, t, split, t->rank)), n = row;
	struct kb_val ptr = emit_load_arg(e, KB_PTR, e->function->param_slot[param]);
	kb_if(e->k, emit_has_arg(e, e->function->param_slot[param]));
	struct kb_val b = kb_loop(e->k, "b", kb_index(e->k, 0), rows, 1, 0);
	if (is_ragged) {
		const struct ir_param *l = &e->function->func->params[p->lengths];
		struct kb_val real = emit_dim(e, t->dims[1]);
		if (l->role != ROLE_PAST)
			real = load_length(e, p->lengths, b,
			                   l->default_value ? emit_dim(e, l->default_value) : real);
		n = kb_mul(e->k, real, emit_dim(e, ir_type_count_range(dims, t, 2, t->rank)));
	}
	struct kb_val i = kb_loop(e->k, "i", kb_index(e->k, 0), n, 1, 0);
	struct kb_val at = kb_add(e->k, kb_mul(e->k, b, row), i);
	emit_require_between(e, load_int(e, t, ptr, at), 0, most, status);
	kb_end_loop(e->k);
	kb_end_loop(e->k);
	kb_end_if(e->k);
}

/* Lengths, then ids at the valid positions. */
static void check_values(struct emit *e)
{
	const struct ir_func *f = e->function->func;
	for (size_t i = 0; i < f->n_params; i++)
		if (param_is_input(f, i) && f->params[i].max)
			check_elements(e, i, false, emit_dim(e, f->params[i].max), TFMC_RT_E_LENGTH);
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		bool is_ragged = p->lengths >= 0 && ir_type_of(f, p->value)->rank >= 2;
		if (param_is_input(f, i) && p->below > 0)
			check_elements(e, i, is_ragged, kb_index(e->k, p->below - 1), TFMC_RT_E_TOKEN);
	}
}

/* ---- capacity ---- */

/* The input with the number of valid tokens among the `rows` new ones of each sequence, or -1. */
static int lengths_param(const struct function *f, const struct ir_dim *rows)
{
	for (size_t i = 0; i < f->func->n_params; i++) {
		const struct ir_param *p = &f->func->params[i];
		if (param_is_input(f->func, i) && p->max == rows && p->default_value == rows &&
		    ir_type_of(f->func, p->value)->rank == 1)
			return (int)i;
	}
	return -1;
}

/* The new rows of an append, and the rows that its state has. False: op is no append of a constant capacity. */
static bool append_rows(const struct ir_func *f, const struct ir_op *op, const struct ir_dim **rows,
                        int64_t *capacity)
{
	if (op->code != OP_state_append)
		return false;
	const struct ir_type *x = ir_type_of(f, op->operands[1]), *slice = ir_type_of(f, op->results[0]);
	*rows = x->dims[x->rank - 2];
	return ir_dim_is_const(slice->dims[slice->rank - 2], capacity);
}

/* past[b] + valid new tokens <= capacity for every sequence; padding beyond the capacity is not stored. */
static void check_rows(struct emit *e, const struct ir_dim *rows, int64_t capacity)
{
	struct kb *k = e->k;
	int lengths = lengths_param(e->function, rows);
	struct kb_val all = emit_dim(e, rows);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), call_batch(e), 1, 0);
	struct kb_val past = kb_cvt(k, kb_load(k, KB_I32_T, e->past, b, 0, 4), KB_INDEX);
	struct kb_val end = kb_add(k, past, lengths < 0 ? all : load_length(e, lengths, b, all));
	emit_return_if(e, kb_cmp(k, KB_GT, end, kb_index(k, capacity)), TFMC_RT_E_FULL);
	kb_end_loop(k);
}

/* The least capacity of the states that get `rows` new rows. *first: the first of these appends. */
static int64_t least_capacity(const struct ir_func *f, const struct ir_dim *rows, const struct ir_op **first)
{
	const struct ir_dim *other;
	int64_t capacity, least = INT64_MAX;
	*first = NULL;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it)) {
		if (!append_rows(f, it.op, &other, &capacity) || other != rows)
			continue;
		least = capacity < least ? capacity : least;
		*first = *first ? *first : it.op;
	}
	return least;
}

/* One check for all appends with the same formula of new rows: the smallest state fills first. Runs after check_values,
 * which checked the lengths. */
static void check_capacity(struct emit *e)
{
	const struct ir_func *f = e->function->func;
	const struct ir_dim *rows;
	const struct ir_op *first;
	int64_t capacity;
	if (e->object->states.batch_dim < 0 || e->function->past_param < 0)
		return;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it)) {
		if (!append_rows(f, it.op, &rows, &capacity))
			continue;
		capacity = least_capacity(f, rows, &first);
		if (first == it.op)
			check_rows(e, rows, capacity);
	}
}

void emit_check(struct emit *e)
{
	check_memory(e);
	check_state(e);
	check_values(e);
	check_capacity(e);
}
