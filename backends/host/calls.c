/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: check, run, finish. The lengths in the state change in `finish` only,
 * when nothing can fail any more.
 *
 *   NAME.func.finish(context, args, status) -> status   given that of the body
 *   NAME.func.call(context, args, worker) -> status     checks, body, finish; worker -1: the single-call form
 *   NAME_call(context, entry, args, worker) -> status   any entry by its number
 *   NAME_ENTRY, NAME_ENTRY_spmd     the exported forms, by NAME_call
 *
 * With several variants the functions are NAME.LEVEL.func.., and NAME_call calls those of the variant that
 * init has chosen: directly, by its number. A table of addresses would need relocations when it is loaded.
 */
#include "backends/host/host.h"

/* Marks the sequences of the call. */
static void set_encoded(struct emit *e, int32_t mark)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	struct kb_val state = emit_load_context(e, KB_PTR, CONTEXT_STATE);
	struct kb_val first = emit_load_context(e, KB_INDEX, CONTEXT_FIRST);
	struct kb_val end = kb_add(k, first, e->dims[o->states.batch_dim]);
	struct kb_val b = kb_loop(k, "b", first, end, 1, 0);
	kb_store(k, kb_i32(k, mark), kb_ptr_add(k, state, kb_index(k, 0), o->states.encoded_at), b, 0, 4);
	kb_end_loop(k);
}

/* Before the call writes anything: rows [past, past + new) of a ring of `held`, of which `window` are read, overwrite
 * those that lie a round before; padding does so, too. A call that is cancelled leaves this behind: it may have written
 * already. */
static void raise_floors(struct emit *e, struct kb_val worker)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	const struct ir_func *f = e->function->func;
	struct kb_val zero = kb_index(k, 0);
	int64_t held;
	if (!o->states.floor_at || e->function->past_result < 0)
		return;
	kb_if(k, kb_cmp(k, KB_LE, worker, zero));
	struct kb_val b = kb_loop(k, "b", zero, e->dims[o->states.batch_dim], 1, 0);
	struct kb_val at = kb_ptr_add(k, e->past, zero, o->states.floor_at - STATE_PAST);
	struct kb_val before = kb_cvt(k, kb_load(k, KB_I32_T, at, b, 0, 4), KB_INDEX);
	struct kb_var floor = kb_var(k, "floor", KB_INDEX_T, before);
	struct kb_val past = kb_cvt(k, kb_load(k, KB_I32_T, e->past, b, 0, 4), KB_INDEX);
	for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it)) {
		if (it.op->code != OP_state_append || !ir_is_ring_slice(f, it.op->results[0], &held))
			continue;
		const struct ir_type *x = ir_type_of(f, it.op->operands[1]);
		int64_t window = ((const struct attrs_state_append *)it.op->attrs)->window;
		struct kb_val end = kb_add(k, past, emit_dim(e, x->dims[x->rank - 2]));
		struct kb_val gone = kb_add_const(k, end, -held);
		struct kb_val least = kb_add_const(k, gone, window - 1);
		least = kb_select(k, kb_cmp(k, KB_GT, gone, zero), least, zero);
		kb_set(k, floor, kb_max(k, kb_get(k, floor), least));
	}
	kb_store(k, kb_cvt(k, kb_get(k, floor), KB_I32), at, b, 0, 4);
	kb_end_loop(k);
	kb_end_if(k);
}

/* When all are through; on the device the lengths are there already. A call that failed or was cancelled keeps the
 * lengths, but encode has overwritten what the state held. */
static void emit_finish(struct object *o, const struct function *f)
{
	struct emit e = emit_begin(o, f, emit_function_symbol(o, f, "finish"), KB_INTERNAL);
	bool has_batch = o->states.batch_dim >= 0,
	     is_encode = has_batch && f->has_state && function_is_encode(f);
	struct kb *k = e.k;
	struct kb_val status = kb_param(k, "status", KB_I32_T, 0);
	emit_load_call(&e);
	kb_if(k, kb_cmp(k, KB_NE, status, kb_i32(k, TFMC_RT_OK)));
	if (is_encode)
		set_encoded(&e, 0);
	kb_return(k, status);
	kb_end_if(k);
	if (f->plan->lengths && has_batch && !object_is_device(o)) {
		struct kb_val from = area_address(&e, f->plan->lengths);
		struct kb_val b = kb_loop(k, "b", kb_index(k, 0), e.dims[o->states.batch_dim], 1, 0);
		kb_store(k, kb_load(k, KB_I32_T, from, b, 0, 4), e.past, b, 0, 4);
		kb_end_loop(k);
	}
	if (is_encode)
		set_encoded(&e, 1);
	emit_end(&e, TFMC_RT_OK);
}

/* All workers run it, or one (worker -1), perhaps with the caller's pool. A call on a device is run by the first worker
 * as a whole. */
static void emit_call(struct object *o, const struct function *f)
{
	struct emit e = emit_begin(o, f, emit_function_symbol(o, f, "call"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0), zero = kb_index(k, 0);
	if (object_is_device(o))
		emit_return_if(&e, kb_cmp(k, KB_GT, worker, zero), TFMC_RT_OK);
	emit_load_call(&e);
	emit_check(&e);
	raise_floors(&e, worker);
	struct kb_val n = emit_load_context(&e, KB_INDEX, CONTEXT_WORKERS);
	struct kb_val is_one = kb_cmp(k, KB_LE, n, kb_index(k, 1)),
	              is_single = kb_cmp(k, KB_LT, worker, zero);
	struct kb_val pool = emit_load_context(&e, KB_PTR, CONTEXT_PARALLEL_FOR);
	struct kb_val has_none = object_is_device(o) ? kb_bool(k, true) : kb_cmp(k, KB_EQ, pool, kb_null(k));
	struct kb_val alone = kb_bin(k, KB_OR, is_one, kb_bin(k, KB_AND, is_single, has_none));
	struct kb_val who = kb_select(k, alone, zero, worker), of = kb_select(k, alone, kb_index(k, 1), n);
	struct kb_val body[] = {e.context, e.args, who, of};
	struct kb_val status = kb_call(k, emit_function_symbol(o, f, "body"), KB_I32, body, 4);
	struct kb_val finish[] = {e.context, e.args, status};
	if (!object_is_device(o)) {
		kb_if(k, kb_un(k, KB_NOT, kb_bin(k, KB_OR, is_one, is_single)));
		struct kb_val leave[] = {e.context, e.args, worker, n,
		                         kb_func_addr(k, emit_function_symbol(o, f, "finish"))};
		kb_return(k, kb_call(k, emit_variant_symbol(o, "leave"), KB_I32, leave, 5));
		kb_end_if(k);
	}
	kb_return(k, kb_call(k, emit_function_symbol(o, f, "finish"), KB_I32, finish, 3));
	kb_end(k);
}

enum tfmc_status emit_function(struct object *o, struct function *f)
{
	if (object_is_device(o))
		emit_device_body(o, f);
	else
		TFMC_TRY(emit_body(o, f));
	emit_finish(o, f);
	emit_call(o, f);
	return TFMC_OK;
}

/* ---- entries ---- */

static void return_call(struct emit *e, const struct function *f, struct kb_val worker)
{
	struct kb_val args[] = {e->context, e->args, worker};
	kb_return(e->k, kb_call(e->k, emit_function_symbol(e->object, f, "call"), KB_I32, args, 3));
}

/* The first case whose conditions hold, otherwise the function itself. e->args: the function's words. */
static void dispatch(struct emit *e, const struct entry *entry, struct kb_val worker)
{
	const struct object *o = e->object;
	for (size_t i = 0; i < o->functions.n; i++) {
		const struct function *f = &o->functions.items[i];
		switch (entry_case(o, entry, f)) {
		case CASE_NEVER: break;
		case CASE_SOMETIMES:
			emit_load_dims(e);
			kb_if(e->k, emit_conditions(e, f->func->when));
			return_call(e, f, worker);
			kb_end_if(e->k);
			break;
		case CASE_ALWAYS: return_call(e, f, worker); return;
		}
	}
	return_call(e, e->function, worker);
}

/* By the variant that init has chosen. Its words are the entry's, with a fixed dim in a copy on the stack. */
static void run_entry(struct emit *e, size_t number, struct kb_val worker, struct kb_val copy)
{
	struct kb *k = e->k;
	const struct object *all = e->object->all;
	const struct kb_val given = e->args, chosen = emit_load_context(e, KB_INDEX, CONTEXT_VARIANT);
	const struct entry *entry = &all->entries.items[number];
	e->function = &all->functions.items[entry->function];
	for (size_t i = 0, from = 0; entry->fixed_dim >= 0 && i < function_arg_slots(e->function); i++) {
		bool is_fixed = i == e->function->dim_slot[entry->fixed_dim];
		emit_store(k, is_fixed ? kb_index(k, 1) : emit_load_arg(e, KB_INDEX, from++), copy,
		           8 * (int64_t)i);
	}
	e->args = entry->fixed_dim < 0 ? given : copy;
	for (size_t i = all->n_all; i-- > 0;) {
		e->object = &all[i];
		entry = &e->object->entries.items[number];
		e->function = &e->object->functions.items[entry->function];
		if (i > 0)
			kb_if(k, kb_cmp(k, KB_EQ, chosen, kb_index(k, (int64_t)i)));
		dispatch(e, entry, worker);
		if (i > 0)
			kb_end_if(k);
	}
	e->args = given;
}

static void emit_any_entry(struct object *o)
{
	struct emit e = {.object = o};
	size_t words = 0;
	struct kb *k = e.k = kb_begin(o->kb, emit_api_symbol(o, "call"), KB_EXPORTED, KB_I32);
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	struct kb_val number = kb_param(k, "entry", KB_INDEX_T, 0);
	e.args = kb_param(k, "args", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	for (size_t i = 0; i < o->functions.n; i++)
		words = function_arg_slots(&o->functions.items[i]) > words
		                ? function_arg_slots(&o->functions.items[i])
		                : words;
	struct kb_val copy = kb_local(k, "words", KB_INDEX, (int64_t)words + 1);
	emit_require_between(&e, number, 0, kb_index(k, (int64_t)o->entries.n - 1), TFMC_RT_E_ENTRY);
	emit_return_if(&e, kb_cmp(k, KB_EQ, e.args, kb_null(k)), TFMC_RT_E_NULL);
	emit_check_magic(&e);
	struct kb_val last = kb_add_const(k, emit_load_context(&e, KB_INDEX, CONTEXT_WORKERS), -1);
	emit_require_between(&e, worker, -1, last, TFMC_RT_E_WORKER);
	for (size_t i = 0; i < o->entries.n; i++) {
		kb_if(k, kb_cmp(k, KB_EQ, number, kb_index(k, (int64_t)i)));
		run_entry(&e, i, worker, copy);
		kb_end_if(k);
	}
	emit_end(&e, TFMC_RT_E_ENTRY);
}

static void emit_form(struct object *o, size_t number, bool spmd)
{
	const char *name = o->entries.items[number].name;
	if (spmd)
		name = arena_printf(o->arena, "%s_spmd", name);
	struct emit e = emit_begin(o, NULL, emit_api_symbol(o, name), KB_EXPORTED);
	struct kb *k = e.k;
	struct kb_val worker = spmd ? kb_param(k, "worker", KB_INDEX_T, 0) : kb_index(k, -1);
	struct kb_val none = kb_index(k, INT64_MIN); /* -1 is the other form's */
	if (spmd)
		worker = kb_select(k, kb_cmp(k, KB_LT, worker, kb_index(k, 0)), none, worker);
	struct kb_val args[] = {e.context, kb_index(k, (int64_t)number), e.args, worker};
	kb_return(k, kb_call(k, emit_api_symbol(o, "call"), KB_I32, args, 4));
	kb_end(k);
}

void emit_entries(struct object *o)
{
	emit_any_entry(o);
	for (size_t i = 0; i < o->entries.n; i++) {
		emit_form(o, i, false);
		emit_form(o, i, true);
	}
}
