/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of an object's functions: check the arguments, run the kernels (the body), commit. The lengths in the state
 * change in `finish` only, when nothing can fail any more.
 *
 *   NAME.func.body(context, args, worker, n) -> status   runs the kernels of the plan: "the body" below
 *   NAME.func.finish(context, args, status) -> status   commits a call whose body returned status
 *   NAME.func.call(context, args, worker) -> status     checks, body, finish; worker -1: single-call form
 *   NAME_call(context, entry, args, worker) -> status   any entry by its number
 *   NAME_ENTRY, NAME_ENTRY_spmd                         the exported forms of an entry, by NAME_call
 *
 * With several variants the functions are NAME.LEVEL.func.., and NAME_call calls those of the variant that
 * init chose, with direct calls selected by its number: a table of addresses would need load-time
 * relocations.
 *
 * A worker calls the same function with the same arguments as all others (SPMD), or one thread (-1) does it all,
 * giving kernels to the caller's parallel_for. Sequences of a call are rows 0 .. B - 1; past[b] is the length of row b
 * before the call. A slot is an argument of the caller (abi.h), a floor the least length that trim may restore in
 * rings (sliding windows).
 */
#include "backends/kernels/eval.h"
#include "backends/plan/host.h"

/* ---- checks of arguments ---- */

/*
 * All checks of a call's arguments, before anything is written, in this order: null pointers, dims, buffer
 * sizes, arena, state, values, capacity. Dims are checked against their bounds before sizes are computed, so
 * that no product overflows (the layout checked the bounds).
 */

/* The buffer in slots [slot, slot + 2), unless null, has enough elements for the tensor. Slot + 1 has the number of
 * its elements. */
static void check_size(struct emit *e, size_t slot, const struct ir_type *t)
{
	struct kb_val need = emit_dim(e, ir_type_count(e->object->module->dims, t));
	struct kb_val given = emit_has_arg(e, slot), count = emit_load_arg(e, KB_INDEX, slot + 1);
	struct kb_val low = kb_cmp(e->k, KB_LT, count, need);
	emit_return_if(e, kb_bin(e->k, KB_AND, given, low), TFMC_RT_E_SIZE);
}

/* Checks, in this order, required inputs, dims, sizes of input and output buffers, and the arena: the call writes
 * nothing before. */
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

/* Element b of a lengths input, or default_length if it is omitted, which the caller may do. */
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

/* Elements are in [0, most], or the call returns `status`; is_ragged: of [B, S, ..] only those at positions below the
 * sequence's length, as padding may be anything. An omitted input is not checked: its default is valid. */
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
		struct kb_val all = emit_dim(e, t->dims[1]), real = all;
		if (l->role != ROLE_PAST)
			real = load_length(e, p->lengths, b,
			                   l->default_value ? emit_dim(e, l->default_value) : real);
		if (l->max != t->dims[1]) /* the lengths are bounded by the rows of another input */
			real = kb_min(e->k, real, all);
		n = kb_mul(e->k, real, emit_dim(e, ir_type_count_range(dims, t, 2, t->rank)));
	}
	struct kb_val i = kb_loop(e->k, "i", kb_index(e->k, 0), n, 1, 0);
	struct kb_val at = kb_add(e->k, kb_mul(e->k, b, row), i);
	emit_require_between(e, load_int(e, t, ptr, at), 0, most, status);
	kb_end_loop(e->k);
	kb_end_loop(e->k);
	kb_end_if(e->k);
}

/* Lengths first, since they tell which positions of ids are valid; then ids at these. */
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

/* The input with the number of valid tokens among the `rows` new ones of each sequence: i32[B] with `rows` as its
 * bound and its default. -1: none. */
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

/* The least capacity of the states that get `rows` new rows. *first: the first of these appends, where the check is
 * emitted once. */
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

/* One check for all appends with the same formula of new rows: the smallest state fills first. Runs after
 * check_values, which checked the lengths. Without a batch or past lengths nothing grows. */
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

/* Emits all argument checks of a call of e->function: return a status if one fails. Dims and base addresses
 * are loaded. */
static void emit_check(struct emit *e)
{
	check_memory(e);
	check_state(e);
	check_values(e);
	check_capacity(e);
}

/* ---- barriers ---- */

/*
 * Synchronization of workers.
 *
 *   NAME.barrier(context, worker, n) -> i32
 *       waits for all workers; nonzero: the call was cancelled, leave it
 *   NAME.leave(context, args, worker, n, finish) -> i32
 *       end of a call: the last worker to arrive runs finish(context, args, status) -> status, which all workers return
 *
 * A two-level combining barrier with epochs. Workers of a cluster count arrivals on a counter of their
 * cluster; the last of each cluster counts at the root; the last of all increments the epoch of every
 * cluster, on which the others spin.
 * A worker whose yield hook returns nonzero marks the call as cancelled: workers that wait at a barrier leave
 * it, working ones see the mark at their next barrier. Calls end at a barrier of their own, because cancelled
 * workers arrive from the middle of others. Its last worker decides whether the call was cancelled, and
 * resets the counters of barriers that workers left.
 */

#define PAUSES_BEFORE_YIELD 1024 /* spins before the first yield, then YIELD_EVERY between yields */
#define YIELD_EVERY         64

/* Context offsets of one of the two barriers. */
struct barrier {
	int64_t root;     /* i32: clusters that have arrived */
	int64_t cancel;   /* i32: mark of the call that a worker cancelled */
	int64_t clusters; /* per cluster a line pair with its arrival count and one with its epoch */
};

static const struct barrier command_barrier = {CONTEXT_ROOT, CONTEXT_CANCEL, CONTEXT_CLUSTERS};
static const struct barrier end_barrier = {CONTEXT_EXIT_ROOT, CONTEXT_EXIT_CANCEL, CONTEXT_EXIT_CLUSTERS};

/* Offsets in i32 of the count and the epoch of a cluster; bytes of both line pairs. */
enum { COUNT = 0, EPOCH = OBJECT_LINE_PAIR / 4, CLUSTER_BYTES = 2 * OBJECT_LINE_PAIR };

/* A worker at a barrier. */
struct barrier_member {
	const struct barrier *barrier;
	struct kb_val cluster; /* address of its cluster's count and epoch */
	struct kb_val members; /* workers of its cluster */
	struct kb_val n_clusters;
	struct kb_val epoch; /* the epoch before it arrives */
};

static struct kb_val context_ptr(struct emit *e, int64_t offset)
{
	return kb_ptr_add(e->k, e->context, kb_index(e->k, 0), offset);
}

static struct kb_val cluster_ptr(struct emit *e, const struct barrier *m, struct kb_val cluster)
{
	struct kb_val far = kb_mul_const(e->k, cluster, CLUSTER_BYTES);
	return kb_ptr_add(e->k, e->context, far, m->clusters);
}

/* The worker's view of the barrier. Clusters are runs of CLUSTER_SIZE workers, the last one may be smaller. The
 * epoch is read before the arrival, after which the last worker may change it. */
static struct barrier_member barrier_enter(struct emit *e, const struct barrier *m, struct kb_val worker,
                                           struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val size = emit_load_context(e, KB_INDEX, CONTEXT_CLUSTER_SIZE);
	struct kb_val number = kb_bin(k, KB_DIV, worker, size);
	struct kb_val left = kb_sub(k, n, kb_mul(k, number, size));
	struct barrier_member p = {.barrier = m, .cluster = cluster_ptr(e, m, number)};
	p.members = kb_min(k, size, left);
	p.n_clusters = emit_load_context(e, KB_INDEX, CONTEXT_N_CLUSTERS);
	p.epoch = kb_atomic_load(k, p.cluster, EPOCH);
	return p;
}

/* Atomically increments a counter; true for the last of n, which resets it to 0 for the next barrier. */
static struct kb_val arrive(struct emit *e, struct kb_val counter, struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val old = kb_atomic_add(k, kb_i32(k, 1), counter, 0);
	struct kb_val count = kb_add_const(k, kb_cvt(k, old, KB_INDEX), 1);
	struct kb_val last = kb_cmp(k, KB_GE, count, n);
	kb_if(k, last);
	kb_atomic_store(k, kb_i32(k, 0), counter, 0);
	kb_end_if(k);
	return last;
}

/* Counts the worker's arrival at its cluster, then the cluster's at the root; true for the last of all workers. One
 * cluster needs no root. */
static struct kb_val arrive_all(struct emit *e, const struct barrier_member *p)
{
	struct kb *k = e->k;
	struct kb_var is_last = kb_var(k, "is_last", KB_I32_T, kb_i32(k, 0));
	kb_if(k, arrive(e, p->cluster, p->members));
	kb_set(k, is_last, kb_i32(k, 1));
	kb_if(k, kb_cmp(k, KB_GT, p->n_clusters, kb_index(k, 1)));
	struct kb_val all = arrive(e, context_ptr(e, p->barrier->root), p->n_clusters);
	kb_set(k, is_last, kb_select(k, all, kb_i32(k, 1), kb_i32(k, 0)));
	kb_end_if(k);
	kb_end_if(k);
	return kb_cmp(k, KB_NE, kb_get(k, is_last), kb_i32(k, 0));
}

/* Releases all workers: increments the epoch of every cluster. */
static void release(struct emit *e, const struct barrier_member *p)
{
	struct kb *k = e->k;
	struct kb_val next = kb_bin(k, KB_ADD, p->epoch, kb_i32(k, 1));
	struct kb_val c = kb_loop(k, "cluster", kb_index(k, 0), p->n_clusters, 1, KB_NONEMPTY);
	kb_atomic_store(k, next, cluster_ptr(e, p->barrier, c), EPOCH);
	kb_end_loop(k);
}

/* The value of a cancel field that cancels this call: derived from the number of calls so far, so that a
 * late mark does not cancel a later call. At the end of a call a hook may cancel while the last worker
 * finishes already; end_barrier has a cancel field of its own, so that such a late mark cannot overwrite
 * one of the next call. */
static struct kb_val cancel_mark(struct emit *e, const struct barrier_member *p)
{
	struct kb *k = e->k;
	struct kb_val cluster =
	        kb_ptr_add(k, p->cluster, kb_index(k, 0), end_barrier.clusters - p->barrier->clusters);
	struct kb_val calls = kb_atomic_load(k, cluster, EPOCH);
	return kb_bin(k, KB_OR, kb_bin(k, KB_SHL, calls, kb_i32(k, 1)), kb_i32(k, 1));
}

static struct kb_val is_cancelled(struct emit *e, const struct barrier *m, struct kb_val mark)
{
	return kb_cmp(e->k, KB_EQ, kb_atomic_load(e->k, context_ptr(e, m->cancel), 0), mark);
}

/* Spins until the epoch of the cluster changes, or, at a command barrier, the call is cancelled. Calls the yield
 * hook every YIELD_EVERY spins after the first PAUSES_BEFORE_YIELD. The barrier at the end of a call is never left
 * early, since all workers reach it. */
static void spin_wait(struct emit *e, const struct barrier_member *p, struct kb_val mark)
{
	struct kb *k = e->k;
	struct kb_var waited = kb_var(k, "waited", KB_I32_T, kb_i32(k, 0));
	kb_forever(k);
	kb_break_if(k, kb_cmp(k, KB_NE, kb_atomic_load(k, p->cluster, EPOCH), p->epoch));
	if (p->barrier == &command_barrier)
		kb_break_if(k, is_cancelled(e, p->barrier, mark));
	kb_pause(k);
	struct kb_val n = kb_bin(k, KB_ADD, kb_get(k, waited), kb_i32(k, 1));
	kb_set(k, waited, n);
	kb_if(k, kb_cmp(k, KB_GE, n, kb_i32(k, PAUSES_BEFORE_YIELD)));
	kb_set(k, waited, kb_i32(k, PAUSES_BEFORE_YIELD - YIELD_EVERY));
	struct kb_val hook = emit_load_context(e, KB_PTR, CONTEXT_YIELD);
	struct kb_val user = emit_load_context(e, KB_PTR, CONTEXT_USER);
	kb_if(k, kb_cmp(k, KB_NE, hook, kb_null(k)));
	struct kb_val stop = kb_call_ptr(k, hook, KB_I32, &user, 1);
	kb_if(k, kb_cmp(k, KB_NE, stop, kb_i32(k, 0)));
	kb_atomic_store(k, mark, context_ptr(e, p->barrier->cancel), 0);
	kb_end_if(k);
	kb_end_if(k);
	kb_end_if(k);
	kb_end_forever(k);
}

/* NAME.barrier: the last worker to arrive releases the others. */
static void emit_barrier(struct object *o)
{
	struct emit e = {.object = o};
	struct kb *k = e.k = kb_begin(o->kb, emit_variant_symbol(o, "barrier"), KB_INTERNAL, KB_I32);
	e.context = kb_param(k, "context", KB_PTR_T, 0);
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct barrier_member p = barrier_enter(&e, &command_barrier, worker, n);
	struct kb_val mark = cancel_mark(&e, &p);
	kb_if(k, arrive_all(&e, &p));
	release(&e, &p);
	kb_else(k);
	spin_wait(&e, &p, mark);
	kb_end_if(k);
	kb_return(k, kb_select(k, is_cancelled(&e, &command_barrier, mark), kb_i32(k, 1), kb_i32(k, 0)));
	kb_end(k);
}

/* NAME.leave: the last worker to arrive runs finish and passes its status to the others in the context. */
static void emit_leave(struct object *o)
{
	struct emit e = emit_begin(o, NULL, emit_variant_symbol(o, "leave"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val finish = kb_param(k, "finish", KB_PTR_T, KB_READONLY);
	struct barrier_member p = barrier_enter(&e, &end_barrier, worker, n);
	/* Two result fields, used in turn: a worker may still read the status of the call before. */
	struct kb_val parity = kb_bin(k, KB_AND, kb_cvt(k, p.epoch, KB_INDEX), kb_index(k, 1));
	struct kb_val slot = kb_ptr_add(k, e.context, kb_mul_const(k, parity, 4), CONTEXT_RESULT);
	struct kb_val mark = cancel_mark(&e, &p);
	kb_if(k, arrive_all(&e, &p));
	struct kb_val cancelled = is_cancelled(&e, &end_barrier, mark);
	cancelled = kb_bin(k, KB_OR, is_cancelled(&e, &command_barrier, mark), cancelled);
	struct kb_val call[] = {
	        e.context, e.args,
	        kb_select(k, cancelled, kb_i32(k, TFMC_RT_E_CANCELLED), kb_i32(k, TFMC_RT_OK))};
	struct kb_val status = kb_call_ptr(k, finish, KB_I32, call, 3);
	kb_if(k, cancelled); /* cancelled workers left barriers with their arrivals counted */
	kb_atomic_store(k, kb_i32(k, 0), context_ptr(&e, command_barrier.root), 0);
	struct kb_val c = kb_loop(k, "cluster", kb_index(k, 0), p.n_clusters, 1, KB_NONEMPTY);
	kb_atomic_store(k, kb_i32(k, 0), cluster_ptr(&e, &command_barrier, c), COUNT);
	kb_end_loop(k);
	kb_end_if(k);
	kb_atomic_store(k, status, slot, 0);
	release(&e, &p);
	kb_else(k);
	spin_wait(&e, &p, mark);
	kb_end_if(k);
	kb_return(k, kb_atomic_load(k, slot, 0));
	kb_end(k);
}

void emit_barriers(struct object *o)
{
	emit_barrier(o);
	emit_leave(o);
}

/* Up to OBJECT_CLUSTERS clusters of at least OBJECT_CLUSTER_MIN workers, so that few workers share a counter. All
 * counters and epochs are cleared: epochs of clusters that were unused for a while would differ. */
void emit_set_workers(struct emit *e, struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val up = kb_add_const(k, n, OBJECT_CLUSTERS - 1);
	struct kb_val size = kb_div_const(k, up, OBJECT_CLUSTERS);
	size = kb_max(k, size, kb_index(k, OBJECT_CLUSTER_MIN));
	struct kb_val more = kb_add_const(k, kb_add(k, n, size), -1);
	emit_store_context(e, n, CONTEXT_WORKERS);
	emit_store_context(e, size, CONTEXT_CLUSTER_SIZE);
	emit_store_context(e, kb_bin(k, KB_DIV, more, size), CONTEXT_N_CLUSTERS);
	emit_zero_words(e, context_ptr(e, CONTEXT_SHARED), kb_index(k, CONTEXT_BYTES - CONTEXT_SHARED));
}

/* ---- the body ---- */

/*
 * Executes the commands of a plan.
 *
 *   NAME.func.N.kind(task, worker, n)   loads the arguments of kernel N and calls it. `task`: enum task_slot; it has
 *                 the signature of a parallel_for task, so the caller's parallel_for can run it
 *   NAME.func.body(context, args, worker, n) -> i32   run by every worker, with a barrier where the plan has one and
 *                 none at the end; nonzero: cancelled. worker -1: one thread runs it and passes each kernel to the
 *                 caller's parallel_for
 *
 * Before the first command worker 0 or -1 fills omitted inputs with their defaults.
 */

struct body {
	struct emit e;
	struct kb_val worker, n_workers;
	struct kb_val has_pool;   /* worker is -1: parallel_for runs the kernels */
	struct kb_val is_several; /* SPMD: several workers run this function, and meet at barriers */
	struct kb_val task; /* [TASK_SLOTS]: context, args and repeat indices for the callers of kernels */
	size_t depth;       /* repeats that are open */
};

/* ---- kernels ---- */

/* The value of a kernel argument in the kernel's calling function. */
static struct kb_val kernel_argument(struct emit *e, const struct plan_kernel *kernel,
                                     const struct plan_arg *arg, struct kb_val worker,
                                     struct kb_val n_workers)
{
	const struct area *area = arg->kind == PLAN_BUFFER ? &kernel->areas.items[arg->number] : NULL;
	switch (arg->kind) {
	case PLAN_BUFFER:
		if (area->memory != AREA_SCRATCH)
			return area_address(e, area);
		/* The scratch of all workers is at the beginning of the arena. */
		struct kb_val arena = emit_load_context(e, KB_PTR, CONTEXT_ARENA);
		return kb_ptr_add(e->k, arena, kb_mul_const(e->k, worker, e->object->scratch), 0);
	case PLAN_OFFSET: break; /* only kernels of devices have it */
	case PLAN_DIM: return e->dims[arg->number];
	case PLAN_INDEX: return e->index[arg->number];
	case PLAN_WORKER: return worker;
	case PLAN_WORKERS: return n_workers;
	case PLAN_SOURCE_STEP: return e->source_step;
	case PLAN_RANKS: return emit_load_context(e, KB_PTR, CONTEXT_RANKS);
	}
	return (struct kb_val){0};
}

/* Emits NAME.func.N.kind: loads what the kernel takes as arguments from the task and the context. Kernels that are
 * equal share code; their callers differ. */
static enum tfmc_status emit_kernel_caller(struct object *o, const struct function *f,
                                           const struct plan_kernel *kernel)
{
	struct emit e = emit_for_group(o, f, kernel->groups[0]);
	struct kb_val *args = ARENA_ARRAY(o->arena, struct kb_val, kernel->n_args + 1);
	e.k = kb_begin(o->kb, kernel_symbol(o, f, kernel), KB_INTERNAL, KB_VOID);
	if (!args)
		return TFMC_NO_MEMORY;
	struct kb_val task = kb_param(e.k, "task", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	struct kb_val n_workers = kb_param(e.k, "n_workers", KB_INDEX_T, 0);
	emit_group_comment(&e);
	e.context = emit_load(e.k, KB_PTR, task, 8 * TASK_CONTEXT);
	e.args = emit_load(e.k, KB_PTR, task, 8 * TASK_ARGS);
	for (size_t i = 0; i < e.n_repeats; i++)
		e.index[i] = emit_load(e.k, KB_INDEX, task, 8 * (TASK_INDEX + (int64_t)i));
	emit_load_call(&e);
	for (size_t i = 0; i < kernel->n_args; i++)
		args[i] = kernel_argument(&e, kernel, &kernel->args[i], worker, n_workers);
	kb_call(e.k, kernel->name, KB_VOID, args, kernel->n_args);
	kb_end(e.k);
	return TFMC_OK;
}

/* ---- omitted inputs ---- */

/* If the input is omitted: sets `any`, and the first worker fills its default buffer. The others loop zero times: they
 * wait for the first. */
static void fill_default(struct emit *e, size_t param, struct kb_val is_first, struct kb_var any)
{
	struct kb *k = e->k;
	const struct ir_param *p = &e->function->func->params[param];
	const struct ir_type *t = ir_type_of(e->function->func, p->value);
	struct kb_val ptr = emit_load_arg(e, KB_PTR, e->function->param_slot[param]);
	kb_if(k, kb_cmp(k, KB_EQ, ptr, kb_null(k)));
	kb_set(k, any, kb_i32(k, 1));
	struct kb_val at = kb_ptr_add(k, e->buffers, emit_dim(e, e->function->default_at[param]), 0);
	struct kb_val v = p->default_value      ? emit_dim(e, p->default_value)
	                  : t->dtype == DT_BOOL ? kb_i32(k, (int32_t)p->fill)
	                                        : kb_f64(k, p->fill);
	struct kb_val element = kb_cvt(k, v, eval_stored_scalar(t->dtype));
	struct kb_val n = emit_dim(e, ir_type_count(e->object->module->dims, t));
	struct kb_val end = kb_select(k, is_first, n, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), end, 1, 0);
	kb_store(k, element, at, i, 0, 0);
	kb_end_loop(k);
	kb_end_if(k);
}

struct kb_val emit_defaults(struct emit *e, struct kb_val worker)
{
	struct kb *k = e->k;
	struct kb_val is_first = kb_cmp(k, KB_LE, worker, kb_index(k, 0));
	struct kb_var any = kb_var(k, "any", KB_I32_T, kb_i32(k, 0));
	for (size_t i = 0; i < e->function->func->n_params; i++)
		if (e->function->default_at[i])
			fill_default(e, i, is_first, any);
	return kb_cmp(k, KB_NE, kb_get(k, any), kb_i32(k, 0));
}

/* ---- commands ---- */

/* Emits the barrier at which all workers of the body wait. The worker returns E_CANCELLED if the call was cancelled.
 * A single worker needs no barrier, nor does a pool: parallel_for returns when all tasks are done. */
static void emit_barrier_call(struct body *s)
{
	struct kb *k = s->e.k;
	struct kb_val args[] = {s->e.context, s->worker, s->n_workers};
	kb_if(k, s->is_several);
	struct kb_val stop = kb_call(k, emit_variant_symbol(s->e.object, "barrier"), KB_I32, args, 3);
	emit_return_if(&s->e, kb_cmp(k, KB_NE, stop, kb_i32(k, 0)), TFMC_RT_E_CANCELLED);
	kb_end_if(k);
}

/* Emits the condition of an optional group: the OR over its outputs of whether the caller passes a buffer. id 0 (no
 * value) stands before the first output; a group has at least one. */
static struct kb_val is_wanted(struct body *s, const struct plan_command *command)
{
	struct kb_val any = {0};
	for (size_t i = 0; i < command->n_outputs; i++) {
		struct kb_val wanted = emit_has_arg(&s->e, s->e.function->result_slot[command->outputs[i]]);
		any = any.id ? kb_bin(s->e.k, KB_OR, any, wanted) : wanted;
	}
	return any;
}

/* Runs the kernel in this worker, or gives it to the caller's parallel_for. */
static void emit_dispatch(struct body *s, const struct plan_kernel *kernel)
{
	struct kb *k = s->e.k;
	const char *symbol = kernel_symbol(s->e.object, s->e.function, kernel);
	struct kb_val here[] = {s->task, s->worker, s->n_workers};
	kb_if(k, s->has_pool);
	struct kb_val user = emit_load_context(&s->e, KB_PTR, CONTEXT_USER);
	struct kb_val pool[] = {user, s->n_workers, kb_func_addr(k, symbol), s->task};
	kb_call_ptr(k, emit_load_context(&s->e, KB_PTR, CONTEXT_PARALLEL_FOR), KB_VOID, pool, 4);
	kb_else(k);
	kb_call(k, symbol, KB_VOID, here, 3);
	kb_end_if(k);
}

/* Emits the commands from index `at` up to and including the PLAN_END of the open block (or the end of the plan);
 * returns the index after that command. A repeat stores its index in the task, where the callers of kernels read it.
 */
static size_t emit_commands(struct body *s, size_t at)
{
	struct kb *k = s->e.k;
	const struct plan *p = s->e.function->plan;
	struct kb_val index;
	while (at < p->n) {
		const struct plan_command *command = &p->items[at++];
		switch (command->kind) {
		case PLAN_DISPATCH: emit_dispatch(s, command->kernel); break;
		case PLAN_REPEAT:
			index = kb_loop(k, "l", kb_index(k, 0), kb_index(k, command->count), 1,
			                command->count > 0 ? KB_NONEMPTY : 0);
			emit_store(k, index, s->task, 8 * (TASK_INDEX + (int64_t)s->depth++));
			at = emit_commands(s, at);
			s->depth--;
			kb_end_loop(k);
			break;
		case PLAN_IF_REQUESTED:
			kb_if(k, is_wanted(s, command));
			at = emit_commands(s, at);
			kb_end_if(k);
			break;
		case PLAN_IF_SPLIT:
			kb_if(k, kernel_is_split(k, emit_dim(&s->e, command->heads), s->n_workers));
			at = emit_commands(s, at);
			kb_end_if(k);
			break;
		case PLAN_END: return at;
		case PLAN_BARRIER: emit_barrier_call(s); break;
		case PLAN_LENGTHS: break; /* emit_finish stores them */
		}
	}
	return at;
}

/* ---- the body ---- */

/*
 * Emits NAME.func.body, and before it the caller of each kernel that the plan dispatches. The body fills the task
 * with the context and the arguments, fills omitted inputs with defaults (a barrier then lets the other workers read
 * them), and runs the commands. The index that emit_commands() returns is the end of the plan.
 */
enum tfmc_status emit_body(struct object *o, struct function *f)
{
	struct body s = {0};
	TFMC_TRY(plan_make(o, f));
	for (size_t i = 0; i < f->plan->n; i++)
		if (f->plan->items[i].kind == PLAN_DISPATCH)
			TFMC_TRY(emit_kernel_caller(o, f, f->plan->items[i].kernel));
	s.e = emit_begin(o, f, emit_function_symbol(o, f, "body"), KB_INTERNAL);
	struct kb *k = s.e.k;
	s.worker = kb_param(k, "worker", KB_INDEX_T, 0);
	s.n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	s.task = kb_local(k, "task", KB_INDEX, TASK_SLOTS);
	s.has_pool = kb_cmp(k, KB_LT, s.worker, kb_index(k, 0));
	struct kb_val several = kb_cmp(k, KB_GT, s.n_workers, kb_index(k, 1));
	s.is_several = kb_bin(k, KB_AND, several, kb_un(k, KB_NOT, s.has_pool));
	emit_store(k, s.e.context, s.task, 8 * TASK_CONTEXT);
	emit_store(k, s.e.args, s.task, 8 * TASK_ARGS);
	emit_load_call(&s.e);
	if (f->has_defaults) { /* all workers see the same arguments, so all decide alike whether to wait */
		kb_if(k, emit_defaults(&s.e, s.worker));
		emit_barrier_call(&s);
		kb_end_if(k);
	}
	(void)emit_commands(&s, 0);
	emit_end(&s.e, TFMC_RT_OK);
	return TFMC_OK;
}

/* ---- calls ---- */

/* Sets the encode marks of the call's sequences: 1: `encode` has filled the source. */
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
	if (o->ranks > 1) { /* exchanges return nothing: the table knows whether one failed */
		struct kb_val table = emit_load_context(&e, KB_PTR, CONTEXT_RANKS);
		struct kb_val user = emit_load(k, KB_PTR, table, offsetof(struct tfmc_ranks, user));
		struct kb_val fn = emit_load(k, KB_PTR, table, offsetof(struct tfmc_ranks, status));
		struct kb_val ranks = kb_call_ptr(k, fn, KB_I32, &user, 1);
		struct kb_val failed = kb_cmp(k, KB_NE, ranks, kb_i32(k, 0));
		status = kb_select(k, failed, kb_i32(k, TFMC_RT_E_RANK), status);
	}
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

/* NAME.func.call: run by all workers, or by one thread (worker -1) that may use the caller's parallel_for; without
 * one, or with one worker set, it is alone. Several workers end the call together (leave). Worker 0 alone runs a
 * device call. */
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

/* Calls the first case whose conditions hold, or else the function itself; conditions that hold for all dims of the
 * entry need no test. e->args: the function's argument slots. */
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

/* Calls entry `number` of the variant that init chose. Its slots are the entry's; an entry with a fixed dim gets a
 * copy on the stack with the dim inserted. Variant 0 remains without a test. */
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

/* Emits NAME_call: checks what any call must satisfy, then calls the entry by comparisons of its number. */
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

/* NAME_ENTRY, or NAME_ENTRY_spmd with the caller's worker number: NAME_call of the entry's number. */
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
