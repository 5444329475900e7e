/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: check, run, finish. The lengths in the state change in `finish` only,
 * when nothing can fail any more.
 *
 *   NAME.func.extend(context, args)    before anything is written: what rings lose
 *   NAME.func.finish(context, args, status) -> status   given that of the body
 *   NAME.func.spmd(context, args, worker) -> status
 *   NAME.func.single(context, args) -> status
 *   NAME_ENTRY, NAME_ENTRY_spmd     the exported forms
 *
 * With several variants all of this is NAME.LEVEL.., and the exported forms call that of the variant that
 * init has chosen: directly, by its number. A table of addresses would need relocations when it is loaded.
 */
#include "backends/host/host.h"

static void commit_past(struct emit *e, const struct area *lengths)
{
	struct kb *k = e->k;
	struct kb_val from = area_address(e, lengths);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), e->dims[e->object->states.batch_dim], 1, 0);
	kb_store(k, kb_load(k, KB_I32_T, from, b, 0, 4), e->past, b, 0, 4);
	kb_end_loop(k);
}

/* Marks the sequences of the call. */
static void set_encoded(struct emit *e, int32_t mark)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	struct kb_val state = emit_context(e, KB_PTR, CONTEXT_STATE);
	struct kb_val first = emit_context(e, KB_INDEX, CONTEXT_FIRST);
	struct kb_val end = kb_add(k, first, e->dims[o->states.batch_dim]);
	struct kb_val b = kb_loop(k, "b", first, end, 1, 0);
	kb_store(k, kb_i32(k, mark), kb_ptr_add(k, state, kb_index(k, 0), o->states.encoded_at), b, 0, 4);
	kb_end_loop(k);
}

/* A function that takes the words of the call alone. */
static struct kb_val call_part(struct emit *e, const char *suffix, enum kb_scalar result)
{
	struct kb_val args[] = {e->context, e->args};
	return kb_call(e->k, emit_part(e, suffix), result, args, 2);
}

/* `rows` new rows overwrite a ring of `held`, of which `window` are read. */
struct ring {
	const struct ir_dim *rows;
	int64_t held, window;
};

static bool find_ring(const struct ir_func *f, const struct ir_op *op, struct ring *out)
{
	if (op->code != OP_state_append)
		return false;
	const struct attrs_state_append *a = op->attrs;
	const struct ir_type *t = ir_type_of(f, op->operands[0])->state->type;
	const struct ir_type *x = ir_type_of(f, op->operands[1]);
	*out = (struct ring){.rows = x->dims[x->rank - 2], .window = a->window};
	return a->rows > 0 && ir_dim_is_const(t->dims[t->rank - 2], &out->held);
}

static bool has_extend(const struct object *o, const struct function *f)
{
	struct ring ring;
	bool any = false;
	for (struct ir_iter it = ir_ops(f->func->body); it.op && !any; ir_next(&it))
		any = find_ring(f->func, it.op, &ring);
	return any && o->states.floor_at && f->past_result >= 0;
}

/* Rows [past, past + new) of a ring overwrite those that lie a round before; padding does so, too. */
static void raise_floor(struct emit *e, const struct ring *ring, struct kb_val past, struct kb_var floor)
{
	struct kb *k = e->k;
	struct kb_val zero = kb_index(k, 0), new = emit_dim(e, ring->rows);
	struct kb_val gone = kb_add_const(k, kb_add(k, past, new), -ring->held);
	struct kb_val least = kb_add_const(k, gone, ring->window - 1);
	least = kb_select(k, kb_cmp(k, KB_GT, gone, zero), least, zero);
	kb_set(k, floor, kb_max(k, kb_get(k, floor), least));
}

/* A call that is cancelled leaves this behind: it may have written already. */
static void emit_extend(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	struct ring ring;
	if (!has_extend(o, f) || !emit_begin(&e, emit_part(&e, "extend"), KB_INTERNAL, KB_VOID))
		return;
	struct kb *k = e.k;
	emit_load_dims(&e);
	emit_load_bases(&e);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), e.dims[o->states.batch_dim], 1, 0);
	struct kb_val at = kb_ptr_add(k, e.past, kb_index(k, 0), o->states.floor_at - STATE_PAST);
	struct kb_val before = kb_cvt(k, kb_load(k, KB_I32_T, at, b, 0, 4), KB_INDEX);
	struct kb_var floor = kb_var(k, "floor", KB_INDEX_T, before);
	struct kb_val past = kb_cvt(k, kb_load(k, KB_I32_T, e.past, b, 0, 4), KB_INDEX);
	for (struct ir_iter it = ir_ops(f->func->body); it.op; ir_next(&it))
		if (find_ring(f->func, it.op, &ring))
			raise_floor(&e, &ring, past, floor);
	kb_store(k, kb_cvt(k, kb_get(k, floor), KB_I32), at, b, 0, 4);
	kb_end_loop(k);
	kb_end(k);
}

/* When all are through; on the device the lengths are there already. A call that failed or was cancelled keeps the
 * lengths, but encode has overwritten what the state held. */
static void emit_finish(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	const struct plan_step *lengths = plan_find(f->plan, PLAN_LENGTHS);
	bool has_batch = o->states.batch_dim >= 0,
	     is_encode = has_batch && f->has_state && function_is_encode(f);
	if (!emit_begin(&e, emit_part(&e, "finish"), KB_INTERNAL, KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val status = kb_param(k, "status", KB_I32_T, 0);
	emit_load_dims(&e);
	emit_load_bases(&e);
	kb_if(k, kb_cmp(k, KB_NE, status, kb_i32(k, TFMC_RT_OK)));
	if (is_encode)
		set_encoded(&e, 0);
	kb_return(k, status);
	kb_end_if(k);
	if (lengths && has_batch && !object_is_device(o))
		commit_past(&e, lengths->lengths);
	if (is_encode)
		set_encoded(&e, 1);
	emit_end(&e, TFMC_RT_OK);
}

static void return_finished(struct emit *e, struct kb_val status)
{
	struct kb_val args[] = {e->context, e->args, status};
	kb_return(e->k, kb_call(e->k, emit_part(e, "finish"), KB_I32, args, 3));
}

static struct kb_val call_body(struct emit *e, struct kb_val worker, struct kb_val n)
{
	struct kb_val args[] = {e->context, e->args, worker, n};
	return kb_call(e->k, emit_part(e, "body"), KB_I32, args, 4);
}

static void emit_spmd(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	if (!emit_begin(&e, emit_part(&e, "spmd"), KB_INTERNAL, KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = emit_context(&e, KB_INDEX, CONTEXT_WORKERS);
	emit_return_failure(&e, call_part(&e, "check", KB_I32));
	if (has_extend(o, f)) {
		kb_if(k, kb_cmp(k, KB_EQ, worker, kb_index(k, 0)));
		call_part(&e, "extend", KB_VOID);
		kb_end_if(k);
	}
	struct kb_val status = call_body(&e, worker, n);
	kb_if(k, kb_cmp(k, KB_LE, n, kb_index(k, 1)));
	return_finished(&e, status);
	kb_end_if(k);
	struct kb_val leave[] = {e.context, e.args, worker, n, kb_func_addr(k, emit_part(&e, "finish"))};
	kb_return(k, kb_call(k, emit_internal(o, ".leave"), KB_I32, leave, 5));
	kb_end(k);
}

/* The call as a whole runs on the device, for the first worker. */
static void emit_device_spmd(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	if (!emit_begin(&e, emit_part(&e, "spmd"), KB_INTERNAL, KB_I32))
		return;
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	kb_if(e.k, kb_cmp(e.k, KB_EQ, worker, kb_index(e.k, 0)));
	kb_return(e.k, call_part(&e, "single", KB_I32));
	kb_end_if(e.k);
	emit_end(&e, TFMC_RT_OK);
}

static void emit_single(struct object *o, const struct function *f)
{
	struct emit e = {.object = o, .function = f};
	if (!emit_begin(&e, emit_part(&e, "single"), KB_INTERNAL, KB_I32))
		return;
	struct kb *k = e.k;
	emit_return_failure(&e, call_part(&e, "check", KB_I32));
	if (has_extend(o, f))
		call_part(&e, "extend", KB_VOID);
	if (!object_is_device(o)) {
		struct kb_val workers = emit_context(&e, KB_INDEX, CONTEXT_WORKERS);
		struct kb_val several = kb_cmp(k, KB_GT, workers, kb_index(k, 1));
		struct kb_val pool = emit_context(&e, KB_PTR, CONTEXT_PARALLEL_FOR);
		kb_if(k, kb_bin(k, KB_AND, several, kb_cmp(k, KB_NE, pool, kb_null(k))));
		call_part(&e, "tasks", KB_VOID);
		return_finished(&e, kb_i32(k, TFMC_RT_OK));
		kb_end_if(k);
	}
	return_finished(&e, call_body(&e, kb_index(k, 0), kb_index(k, 1)));
	kb_end(k);
}

void emit_calls(struct object *o, const struct function *f)
{
	emit_extend(o, f);
	emit_finish(o, f);
	if (object_is_device(o))
		emit_device_spmd(o, f);
	else
		emit_spmd(o, f);
	emit_single(o, f);
}

/* ---- entries ---- */

static void check_context(struct emit *e)
{
	emit_return_if(e, kb_cmp(e->k, KB_EQ, e->args, kb_null(e->k)), TFMC_RT_E_NULL);
	api_check_magic(e);
}

/* The function's words from the entry's, which lack a fixed dim: a copy on the stack. */
static struct kb_val full_args(struct emit *e, const struct entry *entry, struct kb_val copy)
{
	struct kb *k = e->k;
	const struct function *f = e->function;
	size_t n = f->n_dims + 2 * (f->n_inputs + f->n_outputs), from = 0;
	size_t fixed = f->dim_word[entry->fixed_dim];
	for (size_t i = 0; i < n; i++) {
		struct kb_val v =
		        i == fixed ? kb_index(k, entry->fixed_value) : emit_word(e, KB_INDEX, from++);
		emit_store(k, v, copy, 8 * (int64_t)i);
	}
	return copy;
}

static void call_function(struct emit *e, const struct function *f, const struct kb_val *args, bool spmd)
{
	const char *name = arena_printf(e->object->arena, "%s.%s", f->symbol, spmd ? "spmd" : "single");
	kb_return(e->k, kb_call(e->k, name, KB_I32, args, spmd ? 3 : 2));
}

/* The first case whose conditions hold, otherwise the function itself. args[1]: the words. */
static void dispatch(struct emit *e, const struct entry *entry, const struct kb_val *args, bool spmd)
{
	const struct object *o = e->object;
	for (size_t i = 0; i < o->functions.n; i++) {
		const struct function *f = &o->functions.items[i];
		switch (entry_case(o, entry, f)) {
		case CASE_NEVER: break;
		case CASE_SOMETIMES:
			e->args = args[1];
			emit_load_dims(e);
			kb_if(e->k, emit_conditions(e, f->func->when));
			call_function(e, f, args, spmd);
			kb_end_if(e->k);
			break;
		case CASE_ALWAYS: call_function(e, f, args, spmd); return;
		}
	}
	call_function(e, e->function, args, spmd);
}

static const char *form_name(const struct object *o, const struct entry *entry, bool spmd)
{
	const char *suffix = spmd ? "_spmd" : "";
	return o->n_all > 1 ? emit_internal(o, ".%s%s", entry->name, suffix)
	                    : emit_name(o, "_%s%s", entry->name, suffix);
}

static void emit_form(struct object *o, const struct entry *entry, bool spmd)
{
	struct emit e = {.object = o, .function = &o->functions.items[entry->function]};
	const struct function *f = e.function;
	bool is_exported = o->n_all == 1;
	if (!emit_begin(&e, form_name(o, entry, spmd), is_exported ? KB_EXPORTED : KB_INTERNAL, KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val worker = spmd ? kb_param(k, "worker", KB_INDEX_T, 0) : (struct kb_val){0};
	struct kb_val copy = {0};
	size_t n_words = f->n_dims + 2 * (f->n_inputs + f->n_outputs);
	if (entry->fixed_dim >= 0)
		copy = kb_local(k, "words", KB_INDEX, (int64_t)n_words);
	if (is_exported)
		check_context(&e);
	if (spmd) {
		struct kb_val n = emit_context(&e, KB_INDEX, CONTEXT_WORKERS);
		emit_require_between(&e, worker, 0, kb_add_const(k, n, -1), TFMC_RT_E_WORKER);
	}
	struct kb_val words = entry->fixed_dim >= 0 ? full_args(&e, entry, copy) : e.args;
	struct kb_val args[] = {e.context, words, worker};
	dispatch(&e, entry, args, spmd);
	kb_end(k);
}

void emit_entry(struct object *o, const struct entry *e)
{
	emit_form(o, e, false);
	emit_form(o, e, true);
}

static void emit_choice_form(struct object *o, const struct entry *entry, bool spmd)
{
	struct emit e = {.object = o, .function = &o->functions.items[entry->function]};
	if (!emit_begin(&e, emit_name(o, "_%s%s", entry->name, spmd ? "_spmd" : ""), KB_EXPORTED, KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val worker = spmd ? kb_param(k, "worker", KB_INDEX_T, 0) : (struct kb_val){0};
	struct kb_val args[] = {e.context, e.args, worker};
	check_context(&e);
	struct kb_val chosen = emit_context(&e, KB_INDEX, CONTEXT_VARIANT);
	for (size_t i = o->n_all; i-- > 0;) {
		const char *form = form_name(&o->all[i], entry, spmd);
		if (i > 0)
			kb_if(k, kb_cmp(k, KB_EQ, chosen, kb_index(k, (int64_t)i)));
		kb_return(k, kb_call(k, form, KB_I32, args, spmd ? 3 : 2));
		if (i > 0)
			kb_end_if(k);
	}
	kb_end(k);
}

void emit_entry_choice(struct object *o, const struct entry *e)
{
	emit_choice_form(o, e, false);
	emit_choice_form(o, e, true);
}
