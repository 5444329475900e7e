/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers do together.
 *
 *   NAME.barrier(context, n) -> i32   waits for all workers; nonzero: the call is
 *                                     cancelled, leave it
 *   NAME.leave(context, worker, n, status) -> i32
 *                                     the end of a call: waits for all workers,
 *                                     gives worker 0's status to everybody
 *   NAME.task(task, worker, n)        runs one group for the caller's parallel_for
 *
 * A worker whose yield hook says stop sets the cancel word and goes to the end
 * of the call at once; the others see the word while they wait, or run one more
 * group. Worker 0 alone decides, after its last barrier, whether the call was
 * cancelled. The last worker at the end sets the words back for the next call.
 */
#include "backends/object/object.h"

#define PAUSES_BEFORE_YIELD 128

static struct kb_val word_at(struct emit *e, int64_t offset)
{
	return kb_ptr_add(e->k, e->context, kb_index(e->k, 0), offset);
}

static struct kb_val get(struct emit *e, int64_t offset)
{
	return kb_atomic_load(e->k, word_at(e, offset), 0);
}

static void set(struct emit *e, struct kb_val v, int64_t offset)
{
	kb_atomic_store(e->k, v, word_at(e, offset), 0);
}

/* Adds one to a counter; true for the last of n workers. */
static struct kb_val arrive(struct emit *e, int64_t offset, struct kb_val n)
{
	struct kb_val old = kb_atomic_add(e->k, kb_i32(e->k, 1), word_at(e, offset), 0);
	struct kb_val count = kb_add_const(e->k, kb_cvt(e->k, old, KB_INDEX), 1);
	return kb_cmp(e->k, KB_GE, count, n);
}

/* One pause; now and then the yield hook. Its result counts when `can_cancel`. */
static void wait_a_little(struct emit *e, struct kb_var waited, bool can_cancel)
{
	struct kb *k = e->k;
	kb_pause(k);
	struct kb_val n = kb_bin(k, KB_ADD, kb_get(k, waited), kb_i32(k, 1));
	kb_set(k, waited, n);
	struct kb_val rest = kb_bin(k, KB_AND, n, kb_i32(k, PAUSES_BEFORE_YIELD - 1));
	struct kb_val hook = emit_context(e, KB_PTR, CONTEXT_YIELD);
	struct kb_val user = emit_context(e, KB_PTR, CONTEXT_USER);
	struct kb_val has = kb_cmp(k, KB_NE, hook, kb_null(k));
	kb_if(k, kb_bin(k, KB_AND, has, kb_cmp(k, KB_EQ, rest, kb_i32(k, 0))));
	struct kb_val stop = kb_call_ptr(k, hook, KB_I32, &user, 1);
	if (can_cancel) {
		kb_if(k, kb_cmp(k, KB_NE, stop, kb_i32(k, 0)));
		set(e, kb_i32(k, 1), CONTEXT_CANCEL);
		kb_end_if(k);
	}
	kb_end_if(k);
}

/* Until the word at `offset` is no longer `old`, or the call is cancelled. */
static void wait(struct emit *e, int64_t offset, struct kb_val old, bool can_cancel)
{
	struct kb *k = e->k;
	struct kb_var waited = kb_var(k, "waited", KB_I32_T, kb_i32(k, 0));
	kb_forever(k);
	kb_break_if(k, kb_cmp(k, KB_NE, get(e, offset), old));
	if (can_cancel)
		kb_break_if(k, kb_cmp(k, KB_NE, get(e, CONTEXT_CANCEL), kb_i32(k, 0)));
	wait_a_little(e, waited, can_cancel);
	kb_end_forever(k);
}

static struct kb_val next(struct emit *e, struct kb_val epoch)
{
	return kb_bin(e->k, KB_ADD, epoch, kb_i32(e->k, 1));
}

static void emit_barrier(struct object *o)
{
	struct emit e = {.object = o};
	struct kb *k = e.k = kb_begin(o->kb, emit_internal(o, ".barrier"), KB_INTERNAL, KB_I32);
	if (!k)
		return;
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	emit_return_if(&e, kb_cmp(k, KB_LE, n, kb_index(k, 1)), TFMC_RT_OK);
	struct kb_val epoch = get(&e, CONTEXT_EPOCH);
	kb_if(k, arrive(&e, CONTEXT_COUNT, n));
	set(&e, kb_i32(k, 0), CONTEXT_COUNT);
	set(&e, next(&e, epoch), CONTEXT_EPOCH);
	kb_else(k);
	wait(&e, CONTEXT_EPOCH, epoch, true);
	kb_end_if(k);
	kb_return(k, get(&e, CONTEXT_CANCEL));
	kb_end(k);
}

static struct kb_val result_slot(struct emit *e, struct kb_val epoch)
{
	struct kb_val parity = kb_bin(e->k, KB_AND, kb_cvt(e->k, epoch, KB_INDEX), kb_index(e->k, 1));
	struct kb_val offset = kb_mul(e->k, parity, kb_index(e->k, 4));
	return kb_ptr_add(e->k, e->context, offset, CONTEXT_RESULT);
}

static void emit_leave(struct object *o)
{
	struct emit e = {.object = o};
	struct kb *k = e.k = kb_begin(o->kb, emit_internal(o, ".leave"), KB_INTERNAL, KB_I32);
	if (!k)
		return;
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val status = kb_param(k, "status", KB_I32_T, 0);
	struct kb_val epoch = get(&e, CONTEXT_EXIT_EPOCH);
	struct kb_val slot = result_slot(&e, epoch);
	kb_if(k, kb_cmp(k, KB_EQ, worker, kb_index(k, 0)));
	kb_atomic_store(k, status, slot, 0);
	kb_end_if(k);
	kb_if(k, arrive(&e, CONTEXT_EXIT_COUNT, n));
	set(&e, kb_i32(k, 0), CONTEXT_EXIT_COUNT);
	set(&e, kb_i32(k, 0), CONTEXT_COUNT);
	set(&e, kb_i32(k, 0), CONTEXT_CANCEL);
	set(&e, next(&e, epoch), CONTEXT_EXIT_EPOCH);
	kb_else(k);
	wait(&e, CONTEXT_EXIT_EPOCH, epoch, false);
	kb_end_if(k);
	kb_return(k, kb_atomic_load(k, slot, 0));
	kb_end(k);
}

/* task: group function, context, args, l0, l1. */
static void emit_task(struct object *o)
{
	struct kb *k = kb_begin(o->kb, emit_internal(o, ".task"), KB_INTERNAL, KB_VOID);
	if (!k)
		return;
	struct kb_val task = kb_param(k, "task", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val zero = kb_index(k, 0);
	struct kb_val fn = kb_load(k, KB_PTR_T, task, zero, 0, 8);
	struct kb_val args[] = {
	        kb_load(k, KB_PTR_T, task, zero, 1, 8),
	        kb_load(k, KB_PTR_T, task, zero, 2, 8),
	        kb_load(k, KB_INDEX_T, task, zero, 3, 8),
	        kb_load(k, KB_INDEX_T, task, zero, 4, 8),
	        worker,
	        n,
	};
	kb_call_ptr(k, fn, KB_VOID, args, 6);
	kb_end(k);
}

void emit_barriers(struct object *o)
{
	emit_barrier(o);
	emit_leave(o);
	emit_task(o);
}
