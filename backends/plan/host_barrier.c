/* SPDX-License-Identifier: Apache-2.0 */
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
#include "backends/plan/host.h"

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

/* Atomically increments a counter; true for the last of n, which resets it to 0. */
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

/* Counts the worker's arrival; true for the last of all workers. */
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

/* Spins until the epoch of the cluster changes, or, at a command barrier, the call is cancelled. Calls the
 * yield hook every YIELD_EVERY spins after the first PAUSES_BEFORE_YIELD. */
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

/* Up to OBJECT_CLUSTERS clusters of at least OBJECT_CLUSTER_MIN workers. All counters and epochs are
 * cleared: epochs of clusters that were unused for a while would differ. */
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
