/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: check the arguments, run the body, commit. The lengths in the state change in `finish` only, when
 * nothing can fail any more.
 *
 *   NAME.func.finish(context, args, status) -> status   commits a call whose body returned status
 *   NAME.func.call(context, args, worker) -> status     checks, body, finish; worker -1: single-call form
 *   NAME_call(context, entry, args, worker) -> status   any entry by its number
 *   NAME_ENTRY, NAME_ENTRY_spmd                         the exported forms of an entry, by NAME_call
 *
 * With several variants the functions are NAME.LEVEL.func.., and NAME_call calls those of the variant that
 * init chose, with direct calls selected by its number: a table of addresses would need load-time
 * relocations.
 */
#include "backends/plan/host.h"

/* Sets the encode marks of the call's sequences. */
static void set_encode_marks(struct emit *e, int32_t mark)
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

/* Raises the least lengths that trim may restore, before the call writes anything. Tokens [past, past +
 * new) of a ring of `capacity` positions, of which `window` are read, overwrite those `capacity` positions
 * earlier, as padding does. A cancelled call leaves the raised values, since it may have written already. */
static void raise_trim_floors(struct emit *e, struct kb_val worker)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	const struct ir_func *f = e->function->func;
	struct kb_val zero = kb_index(k, 0);
	int64_t capacity;
	if (!o->states.floor_at || e->function->past_result < 0)
		return;
	kb_if(k, kb_cmp(k, KB_LE, worker, zero));
	struct kb_val b = kb_loop(k, "b", zero, e->dims[o->states.batch_dim], 1, 0);
	struct kb_val at = kb_ptr_add(k, e->past, zero, o->states.floor_at - STATE_PAST);
	struct kb_val before = kb_cvt(k, kb_load(k, KB_I32_T, at, b, 0, 4), KB_INDEX);
	struct kb_var floor = kb_var(k, "floor", KB_INDEX_T, before);
	struct kb_val past = kb_cvt(k, kb_load(k, KB_I32_T, e->past, b, 0, 4), KB_INDEX);
	for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it)) {
		if (it.op->code != OP_state_append || !ir_is_ring_slice(f, it.op->results[0], &capacity))
			continue;
		const struct ir_type *x = ir_type_of(f, it.op->operands[1]);
		int64_t window = ((const struct attrs_state_append *)it.op->attrs)->window;
		struct kb_val end = kb_add(k, past, emit_dim(e, x->dims[x->rank - 2]));
		struct kb_val overwritten = kb_add_const(k, end, -capacity);
		struct kb_val least = kb_add_const(k, overwritten, window - 1);
		least = kb_select(k, kb_cmp(k, KB_GT, overwritten, zero), least, zero);
		kb_set(k, floor, kb_max(k, kb_get(k, floor), least));
	}
	kb_store(k, kb_cvt(k, kb_get(k, floor), KB_I32), at, b, 0, 4);
	kb_end_loop(k);
	kb_end_if(k);
}

/* Commits the call when all workers are done; libtfmccl has already stored the lengths of a device call. A
 * failed or cancelled call keeps the lengths, but clears the marks of encode, which has overwritten the
 * state. */
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
		set_encode_marks(&e, 0);
	kb_return(k, status);
	kb_end_if(k);
	if (f->plan->lengths && has_batch && !object_is_device(o)) {
		struct kb_val from = area_address(&e, f->plan->lengths);
		struct kb_val b = kb_loop(k, "b", kb_index(k, 0), e.dims[o->states.batch_dim], 1, 0);
		kb_store(k, kb_load(k, KB_I32_T, from, b, 0, 4), e.past, b, 0, 4);
		kb_end_loop(k);
	}
	if (is_encode)
		set_encode_marks(&e, 1);
	emit_end(&e, TFMC_RT_OK);
}

/* NAME.func.call: run by all workers, or by one thread (worker -1) that may use the caller's parallel_for.
 * Worker 0 alone runs a device call. */
static void emit_call(struct object *o, const struct function *f)
{
	struct emit e = emit_begin(o, f, emit_function_symbol(o, f, "call"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0), zero = kb_index(k, 0);
	if (object_is_device(o))
		emit_return_if(&e, kb_cmp(k, KB_GT, worker, zero), TFMC_RT_OK);
	emit_load_call(&e);
	emit_check(&e);
	raise_trim_floors(&e, worker);
	struct kb_val n = emit_load_context(&e, KB_INDEX, CONTEXT_WORKERS);
	struct kb_val is_one = kb_cmp(k, KB_LE, n, kb_index(k, 1)),
	              is_single = kb_cmp(k, KB_LT, worker, zero);
	struct kb_val pool = emit_load_context(&e, KB_PTR, CONTEXT_PARALLEL_FOR);
	struct kb_val has_none = object_is_device(o) ? kb_bool(k, true) : kb_cmp(k, KB_EQ, pool, kb_null(k));
	struct kb_val alone = kb_bin(k, KB_OR, is_one, kb_bin(k, KB_AND, is_single, has_none));
	struct kb_val body_worker = kb_select(k, alone, zero, worker),
	              body_workers = kb_select(k, alone, kb_index(k, 1), n);
	struct kb_val body[] = {e.context, e.args, body_worker, body_workers};
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

/* Emits: return NAME.func.call(context, args, worker); */
static void return_call(struct emit *e, const struct function *f, struct kb_val worker)
{
	struct kb_val args[] = {e->context, e->args, worker};
	kb_return(e->k, kb_call(e->k, emit_function_symbol(e->object, f, "call"), KB_I32, args, 3));
}

/* Calls the first case whose conditions hold, or else the function itself. e->args: the function's argument
 * slots. */
static void call_function_or_case(struct emit *e, const struct entry *entry, struct kb_val worker)
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

/* Calls entry `number` of the variant that init chose. Its slots are the entry's; an entry with a fixed dim
 * gets a copy on the stack with the dim inserted. */
static void call_entry(struct emit *e, size_t number, struct kb_val worker, struct kb_val local_slots)
{
	struct kb *k = e->k;
	const struct object *all = e->object->all;
	const struct kb_val given = e->args, chosen = emit_load_context(e, KB_INDEX, CONTEXT_VARIANT);
	const struct entry *entry = &all->entries.items[number];
	e->function = &all->functions.items[entry->function];
	for (size_t i = 0, from = 0; entry->fixed_dim >= 0 && i < function_arg_slots(e->function); i++) {
		bool is_fixed = i == e->function->dim_slot[entry->fixed_dim];
		emit_store(k, is_fixed ? kb_index(k, 1) : emit_load_arg(e, KB_INDEX, from++), local_slots,
		           8 * (int64_t)i);
	}
	e->args = entry->fixed_dim < 0 ? given : local_slots;
	for (size_t i = all->n_all; i-- > 0;) {
		e->object = &all[i];
		entry = &e->object->entries.items[number];
		e->function = &e->object->functions.items[entry->function];
		if (i > 0)
			kb_if(k, kb_cmp(k, KB_EQ, chosen, kb_index(k, (int64_t)i)));
		call_function_or_case(e, entry, worker);
		if (i > 0)
			kb_end_if(k);
	}
	e->args = given;
}

/* NAME_call. */
static void emit_call_by_number(struct object *o)
{
	struct emit e = {.object = o};
	size_t slots = 0;
	struct kb *k = e.k = kb_begin(o->kb, emit_api_symbol(o, "call"), KB_EXPORTED, KB_I32);
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	struct kb_val number = kb_param(k, "entry", KB_INDEX_T, 0);
	e.args = kb_param(k, "args", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	for (size_t i = 0; i < o->functions.n; i++)
		slots = function_arg_slots(&o->functions.items[i]) > slots
		                ? function_arg_slots(&o->functions.items[i])
		                : slots;
	struct kb_val local_slots = kb_local(k, "words", KB_INDEX, (int64_t)slots + 1);
	emit_require_between(&e, number, 0, kb_index(k, (int64_t)o->entries.n - 1), TFMC_RT_E_ENTRY);
	emit_return_if(&e, kb_cmp(k, KB_EQ, e.args, kb_null(k)), TFMC_RT_E_NULL);
	emit_check_magic(&e);
	struct kb_val last = kb_add_const(k, emit_load_context(&e, KB_INDEX, CONTEXT_WORKERS), -1);
	emit_require_between(&e, worker, -1, last, TFMC_RT_E_WORKER);
	for (size_t i = 0; i < o->entries.n; i++) {
		kb_if(k, kb_cmp(k, KB_EQ, number, kb_index(k, (int64_t)i)));
		call_entry(&e, i, worker, local_slots);
		kb_end_if(k);
	}
	emit_end(&e, TFMC_RT_E_ENTRY);
}

static void emit_exported_entry(struct object *o, size_t number, bool spmd)
{
	const char *name = o->entries.items[number].name;
	if (spmd)
		name = arena_printf(o->arena, "%s_spmd", name);
	struct emit e = emit_begin(o, NULL, emit_api_symbol(o, name), KB_EXPORTED);
	struct kb *k = e.k;
	struct kb_val worker = spmd ? kb_param(k, "worker", KB_INDEX_T, 0) : kb_index(k, -1);
	/* -1 means the single-call form; other negative workers are rejected */
	struct kb_val none = kb_index(k, INT64_MIN);
	if (spmd)
		worker = kb_select(k, kb_cmp(k, KB_LT, worker, kb_index(k, 0)), none, worker);
	struct kb_val args[] = {e.context, kb_index(k, (int64_t)number), e.args, worker};
	kb_return(k, kb_call(k, emit_api_symbol(o, "call"), KB_I32, args, 4));
	kb_end(k);
}

void emit_entries(struct object *o)
{
	emit_call_by_number(o);
	for (size_t i = 0; i < o->entries.n; i++) {
		emit_exported_entry(o, i, false);
		emit_exported_entry(o, i, true);
	}
}
