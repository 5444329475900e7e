/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers do together.
 *
 *   NAME.barrier(context, worker, n) -> i32
 *                                     waits for all workers; nonzero: the call is
 *                                     cancelled, leave it
 *   NAME.leave(context, args, worker, n, finish) -> i32
 *                                     the end of a call: the last worker that comes
 *                                     runs finish(context, args, status) -> status,
 *                                     all get its status
 *
 * Two levels: the workers of a cluster meet at a counter of their own, the last
 * one of each at that of the root; the last of all turns the epoch of every
 * cluster, at which its workers look. A worker whose yield hook says stop marks
 * the call as cancelled; who waits at a barrier leaves it then, who works sees the
 * mark at its next one. The end of a call has counters of its own, because
 * workers come there from the middle of a barrier. The last one decides whether
 * the call was cancelled, and sets the counts of barriers back that some have left.
 */
#include "backends/host/host.h"

#define PAUSES_BEFORE_YIELD 1024 /* then one more yield after each YIELD_EVERY */
#define YIELD_EVERY         64

/* Words of one of the two barriers. */
struct meeting {
	int64_t root;     /* i32: clusters that have come */
	int64_t cancel;   /* i32: mark of the call that a worker wants to stop */
	int64_t clusters; /* for each cluster a line with the count of its workers and one with its epoch */
};

static const struct meeting between = {CONTEXT_ROOT, CONTEXT_CANCEL, CONTEXT_CLUSTERS};
static const struct meeting at_end = {CONTEXT_EXIT_ROOT, CONTEXT_EXIT_CANCEL, CONTEXT_EXIT_CLUSTERS};

/* Offset of the epoch in words, bytes of the two lines. */
enum { COUNT = 0, EPOCH = OBJECT_LINE_PAIR / 4, CLUSTER_BYTES = 2 * OBJECT_LINE_PAIR };

/* A worker's place in a meeting. */
struct place_in {
	const struct meeting *meeting;
	struct kb_val lines;   /* of its cluster */
	struct kb_val members; /* workers of its cluster */
	struct kb_val n_clusters;
	struct kb_val epoch; /* before it came */
};

static struct kb_val word_at(struct emit *e, int64_t offset)
{
	return kb_ptr_add(e->k, e->context, kb_index(e->k, 0), offset);
}

static struct kb_val cluster_lines(struct emit *e, const struct meeting *m, struct kb_val cluster)
{
	struct kb_val far = kb_mul_const(e->k, cluster, CLUSTER_BYTES);
	return kb_ptr_add(e->k, e->context, far, m->clusters);
}

static struct place_in find_place(struct emit *e, const struct meeting *m, struct kb_val worker,
                                  struct kb_val n)
{
	struct kb *k = e->k;
	struct kb_val size = emit_load_context(e, KB_INDEX, CONTEXT_CLUSTER_SIZE);
	struct kb_val cluster = kb_bin(k, KB_DIV, worker, size);
	struct kb_val left = kb_sub(k, n, kb_mul(k, cluster, size));
	struct place_in p = {.meeting = m, .lines = cluster_lines(e, m, cluster)};
	p.members = kb_min(k, size, left);
	p.n_clusters = emit_load_context(e, KB_INDEX, CONTEXT_N_CLUSTERS);
	p.epoch = kb_atomic_load(k, p.lines, EPOCH);
	return p;
}

/* Adds one to a counter; true for the last of n. The counter is then 0 again. */
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

/* The worker comes; true for the last of all. */
static struct kb_val come(struct emit *e, const struct place_in *p)
{
	struct kb *k = e->k;
	struct kb_var is_last = kb_var(k, "is_last", KB_I32_T, kb_i32(k, 0));
	kb_if(k, arrive(e, p->lines, p->members));
	kb_set(k, is_last, kb_i32(k, 1));
	kb_if(k, kb_cmp(k, KB_GT, p->n_clusters, kb_index(k, 1)));
	struct kb_val all = arrive(e, word_at(e, p->meeting->root), p->n_clusters);
	kb_set(k, is_last, kb_select(k, all, kb_i32(k, 1), kb_i32(k, 0)));
	kb_end_if(k);
	kb_end_if(k);
	return kb_cmp(k, KB_NE, kb_get(k, is_last), kb_i32(k, 0));
}

/* Turns the epoch of every cluster. */
static void release(struct emit *e, const struct place_in *p)
{
	struct kb *k = e->k;
	struct kb_val next = kb_bin(k, KB_ADD, p->epoch, kb_i32(k, 1));
	struct kb_val c = kb_loop(k, "cluster", kb_index(k, 0), p->n_clusters, 1, KB_NONEMPTY);
	kb_atomic_store(k, next, cluster_lines(e, p->meeting, c), EPOCH);
	kb_end_loop(k);
}

/*
 * What a cancel word is when this call is cancelled: made of the calls so far. At the end of a call a hook
 * may say stop while the last worker ends the call already: the mark comes late then, cancels no later call,
 * and in a word of its own hides no mark of a later call from the workers at its barriers.
 */
static struct kb_val cancel_mark(struct emit *e, const struct place_in *p)
{
	struct kb *k = e->k;
	struct kb_val lines = kb_ptr_add(k, p->lines, kb_index(k, 0), at_end.clusters - p->meeting->clusters);
	struct kb_val calls = kb_atomic_load(k, lines, EPOCH);
	return kb_bin(k, KB_OR, kb_bin(k, KB_SHL, calls, kb_i32(k, 1)), kb_i32(k, 1));
}

static struct kb_val is_cancelled(struct emit *e, const struct meeting *m, struct kb_val mark)
{
	return kb_cmp(e->k, KB_EQ, kb_atomic_load(e->k, word_at(e, m->cancel), 0), mark);
}

/* Until the epoch of the cluster turns, or the call is cancelled and the worker may leave. After some pauses comes the
 * yield hook, now and then. */
static void wait(struct emit *e, const struct place_in *p, struct kb_val mark)
{
	struct kb *k = e->k;
	struct kb_var waited = kb_var(k, "waited", KB_I32_T, kb_i32(k, 0));
	kb_forever(k);
	kb_break_if(k, kb_cmp(k, KB_NE, kb_atomic_load(k, p->lines, EPOCH), p->epoch));
	if (p->meeting == &between)
		kb_break_if(k, is_cancelled(e, p->meeting, mark));
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
	kb_atomic_store(k, mark, word_at(e, p->meeting->cancel), 0);
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
	struct place_in p = find_place(&e, &between, worker, n);
	struct kb_val mark = cancel_mark(&e, &p);
	kb_if(k, come(&e, &p));
	release(&e, &p);
	kb_else(k);
	wait(&e, &p, mark);
	kb_end_if(k);
	kb_return(k, kb_select(k, is_cancelled(&e, &between, mark), kb_i32(k, 1), kb_i32(k, 0)));
	kb_end(k);
}

static void emit_leave(struct object *o)
{
	struct emit e = emit_begin(o, NULL, emit_variant_symbol(o, "leave"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	struct kb_val n = kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val finish = kb_param(k, "finish", KB_PTR_T, KB_READONLY);
	struct place_in p = find_place(&e, &at_end, worker, n);
	/* Of calls that follow each other: a worker may still read the status of the one before. */
	struct kb_val parity = kb_bin(k, KB_AND, kb_cvt(k, p.epoch, KB_INDEX), kb_index(k, 1));
	struct kb_val slot = kb_ptr_add(k, e.context, kb_mul_const(k, parity, 4), CONTEXT_RESULT);
	struct kb_val mark = cancel_mark(&e, &p);
	kb_if(k, come(&e, &p));
	struct kb_val cancelled = is_cancelled(&e, &at_end, mark);
	cancelled = kb_bin(k, KB_OR, is_cancelled(&e, &between, mark), cancelled);
	struct kb_val call[] = {
	        e.context, e.args,
	        kb_select(k, cancelled, kb_i32(k, TFMC_RT_E_CANCELLED), kb_i32(k, TFMC_RT_OK))};
	struct kb_val status = kb_call_ptr(k, finish, KB_I32, call, 3);
	kb_if(k, cancelled); /* workers that left a barrier in its middle are counted there */
	kb_atomic_store(k, kb_i32(k, 0), word_at(&e, between.root), 0);
	struct kb_val c = kb_loop(k, "cluster", kb_index(k, 0), p.n_clusters, 1, KB_NONEMPTY);
	kb_atomic_store(k, kb_i32(k, 0), cluster_lines(&e, &between, c), COUNT);
	kb_end_loop(k);
	kb_end_if(k);
	kb_atomic_store(k, status, slot, 0);
	release(&e, &p);
	kb_else(k);
	wait(&e, &p, mark);
	kb_end_if(k);
	kb_return(k, kb_atomic_load(k, slot, 0));
	kb_end(k);
}

void emit_barriers(struct object *o)
{
	emit_barrier(o);
	emit_leave(o);
}

/* Clusters of at least CLUSTER_MIN workers, as many as have lines. All words are 0 then: epochs of clusters
 * that took no part for a while would differ. */
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
	emit_zero_words(e, word_at(e, CONTEXT_SHARED), kb_index(k, CONTEXT_BYTES - CONTEXT_SHARED));
}
