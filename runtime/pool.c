/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thread pool. The caller is worker 0; n - 1 threads are workers 1 .. n - 1. A waiter polls its own event for
 * at most spin_ns, then blocks on a condition variable: back-to-back calls make no system call, and an idle
 * pool uses no CPU. Each polled counter has one writer and its own pair of cache lines (no false sharing).
 * Barriers inside a task belong to the compiled object, not to the pool.
 */
#define _DEFAULT_SOURCE /* _SC_NPROCESSORS_ONLN */
#include "runtime/feed.h"
#include "runtime/spin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE        128 /* bytes: a pair of cache lines (adjacent-line prefetch) */
#define MAX_SPIN_US 1000000

/* Event with one signaler and one waiter. signaled counts up: the waiter waits for an exact count, so
 * nothing is reset. */
struct event {
	_Alignas(LINE) atomic_uint signaled; /* number of signals so far; written by the signaler only */
	/* The task. Written before signaled; the waiter reads it after the acquire load of signaled. */
	tfmc_task_fn *fn;
	void *arg;
	int64_t n;
	_Alignas(LINE) atomic_int asleep; /* written by the waiter only, under the mutex */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
};

/* A worker with a thread of its own. */
struct worker {
	struct event start, done;
	struct tfmc_pool *pool;
	int64_t index;    /* 1 .. size - 1 */
	unsigned started; /* tasks given to this worker so far; used by the caller only */
	pthread_t thread;
};

struct tfmc_pool {
	int64_t size;      /* workers, including the caller */
	int64_t n_threads; /* started so far */
	int64_t spin_ns;
	struct worker *workers; /* [size - 1]: worker 1 first */
};

/* ---- events ---- */

/* Waits for signal number `count`: polls for spin_ns, then blocks. asleep tells the signaler that it must take the
 * mutex. */
static void event_wait(struct event *e, unsigned count, int64_t spin_ns)
{
	if (spin_ns > 0 && spin_while(&e->signaled, count - 1, spin_ns))
		return;
	pthread_mutex_lock(&e->mutex);
	atomic_store(&e->asleep, 1);
	while (atomic_load(&e->signaled) != count)
		pthread_cond_wait(&e->wake, &e->mutex);
	atomic_store(&e->asleep, 0);
	pthread_mutex_unlock(&e->mutex);
}

/*
 * Wakes the waiter without a lost wake-up. signaled and asleep are sequentially consistent: either the
 * signaler reads asleep = 1 and signals under the mutex, or the waiter reads the new count before it blocks.
 * Without spinning, everything happens under the mutex.
 */
static void event_signal(struct event *e, unsigned count, int64_t spin_ns)
{
	if (spin_ns > 0) {
		atomic_store(&e->signaled, count);
		if (!atomic_load(&e->asleep))
			return;
	}
	pthread_mutex_lock(&e->mutex);
	atomic_store(&e->signaled, count);
	pthread_cond_signal(&e->wake);
	pthread_mutex_unlock(&e->mutex);
}

static void event_init(struct event *e)
{
	pthread_mutex_init(&e->mutex, NULL);
	pthread_cond_init(&e->wake, NULL);
}

static void event_destroy(struct event *e)
{
	pthread_cond_destroy(&e->wake);
	pthread_mutex_destroy(&e->mutex);
}

/* ---- workers ---- */

/* Body of a thread. A task without a function ends it. */
static void *thread_main(void *arg)
{
	struct worker *w = arg;
	int64_t spin_ns = w->pool->spin_ns;
	for (unsigned count = 1;; count++) {
		event_wait(&w->start, count, spin_ns);
		if (!w->start.fn)
			return NULL;
		w->start.fn(w->start.arg, w->index, w->start.n);
		event_signal(&w->done, count, spin_ns);
	}
}

/* Gives a worker a task; fn NULL: ends its thread. */
static void start_task(struct worker *w, tfmc_task_fn *fn, void *arg, int64_t n)
{
	w->start.fn = fn;
	w->start.arg = arg;
	w->start.n = n;
	event_signal(&w->start, ++w->started, w->pool->spin_ns);
}

/* Starts workers 1 .. size - 1. After a failure p->n_threads of them run, which tfmc_pool_destroy ends. */
static int start_threads(struct tfmc_pool *p)
{
	for (int64_t i = 0; i + 1 < p->size; i++) {
		struct worker *w = &p->workers[i];
		w->pool = p;
		w->index = i + 1;
		event_init(&w->start);
		event_init(&w->done);
		if (pthread_create(&w->thread, NULL, thread_main, w)) {
			event_destroy(&w->start);
			event_destroy(&w->done);
			return TFMC_RT_E_THREAD;
		}
		p->n_threads++;
	}
	return TFMC_RT_OK;
}

/* Creates a pool of n workers whose waiters poll for `microseconds`. Workers are aligned to pairs of cache lines, as
 * their events demand; zeroed counters are those of an event without signals. After a failure tfmc_pool_destroy()
 * ends the threads that run. */
int tfmc_pool_create_spinning(int64_t n, int64_t microseconds, struct tfmc_pool **out)
{
	void *workers = NULL;
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (n < 1 || n > MODEL_WORKERS_MAX || microseconds < 0 || microseconds > MAX_SPIN_US)
		return TFMC_RT_E_WORKER;
	struct tfmc_pool *p = calloc(1, sizeof(*p));
	if (!p)
		return TFMC_RT_E_MEMORY;
	p->size = n;
	p->spin_ns = microseconds * 1000;
	int status = TFMC_RT_OK;
	if (n > 1 && posix_memalign(&workers, LINE, (size_t)(n - 1) * sizeof(*p->workers)))
		status = TFMC_RT_E_MEMORY;
	else if (n > 1)
		p->workers = memset(workers, 0, (size_t)(n - 1) * sizeof(*p->workers));
	if (status == TFMC_RT_OK)
		status = start_threads(p);
	if (status != TFMC_RT_OK) {
		tfmc_pool_destroy(p);
		return status;
	}
	*out = p;
	return TFMC_RT_OK;
}

/* Spins only if each worker can have a processor: else a spinning waiter takes the one that another worker needs. */
int tfmc_pool_create(int64_t n, struct tfmc_pool **out)
{
	return tfmc_pool_create_spinning(n, n <= sysconf(_SC_NPROCESSORS_ONLN) ? TFMC_POOL_SPIN_US : 0, out);
}

/* Ends the threads and frees the pool. All threads get their last task before the first is joined, so that they end
 * at the same time. */
void tfmc_pool_destroy(struct tfmc_pool *pool)
{
	if (!pool)
		return;
	for (int64_t i = 0; i < pool->n_threads; i++)
		start_task(&pool->workers[i], NULL, NULL, 0);
	for (int64_t i = 0; i < pool->n_threads; i++) {
		pthread_join(pool->workers[i].thread, NULL);
		event_destroy(&pool->workers[i].start);
		event_destroy(&pool->workers[i].done);
	}
	free(pool->workers);
	free(pool);
}

int64_t tfmc_pool_size(const struct tfmc_pool *pool)
{
	return pool ? pool->size : 1;
}

/* n is clamped to [1, size]. The caller is worker 0, so a pool of one, or none, runs fn directly. Returns when all are
 * done. */
void tfmc_pool_run_some(struct tfmc_pool *pool, int64_t n, tfmc_task_fn *fn, void *arg)
{
	int64_t size = tfmc_pool_size(pool);
	if (!fn)
		return;
	n = n < 1 ? 1 : n > size ? size : n;
	for (int64_t i = 0; i + 1 < n; i++)
		start_task(&pool->workers[i], fn, arg, n);
	fn(arg, 0, n);
	for (int64_t i = 0; i + 1 < n; i++)
		event_wait(&pool->workers[i].done, pool->workers[i].started, pool->spin_ns);
}

void tfmc_pool_run(struct tfmc_pool *pool, tfmc_task_fn *fn, void *arg)
{
	tfmc_pool_run_some(pool, tfmc_pool_size(pool), fn, arg);
}

/* A loop of n iterations; worker w executes iterations w, w + n_workers, .. */
struct strided_loop {
	tfmc_task_fn *fn;
	void *arg;
	int64_t n;
};

static void run_strided(void *arg, int64_t worker, int64_t n_workers)
{
	const struct strided_loop *l = arg;
	for (int64_t i = worker; l->fn && i < l->n; i += n_workers)
		l->fn(l->arg, i, l->n);
}

void tfmc_pool_parallel_for(void *pool, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct strided_loop loop = {.fn = fn, .arg = arg, .n = n};
	tfmc_pool_run_some(pool, n, run_strided, &loop);
}
