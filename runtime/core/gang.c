/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gang of workers: the caller is worker 0, n - 1 threads wait for rounds of
 * work. Who waits looks at a word of its own for a bounded time, then sleeps on a
 * condition variable, so that calls that follow each other closely cost no system
 * call and an idle gang costs nothing. Every word that is looked at has a line of
 * its own and one writer. Waiting inside the work (the barriers of an object) is
 * the object's business.
 */
#define _DEFAULT_SOURCE /* _SC_NPROCESSORS_ONLN */
#include "tfmc_rt.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE        128 /* bytes: two lines, which processors fetch in pairs */
#define MAX_WORKERS 4096
#define MAX_SPIN    1000000 /* us */
#define LOOKS       64      /* with a pause each, between looks at the clock */
#define ALONE_NS    4000    /* after that, the processor is offered to others between looks */

/* An event with one ringer and one waiter. */
struct bell {
	_Alignas(LINE) atomic_uint rung; /* times; written by the ringer only */
	/* What the round is; written before it is rung. */
	tfmc_task_fn *fn;
	void *arg;
	int64_t n;
	_Alignas(LINE) atomic_int asleep; /* written by the waiter only, with the mutex */
	pthread_mutex_t mutex;
	pthread_cond_t wake;
};

struct seat {
	struct bell start, done;
	struct tfmc_gang *gang;
	int64_t worker;
	unsigned rounds; /* begun so far; the caller's */
	pthread_t thread;
};

struct tfmc_gang {
	int64_t size;    /* workers, the caller included */
	int64_t started; /* threads that exist */
	int64_t spin_ns;
	struct seat *seats; /* [size - 1], of workers 1 .. */
};

/* ---- bells ---- */

static void pause_a_little(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int has_rung(struct bell *b, unsigned times)
{
	return atomic_load_explicit(&b->rung, memory_order_acquire) == times;
}

/* Looks until it has rung so often; 0 when the time was over before. */
static int spin(struct bell *b, unsigned times, int64_t limit)
{
	for (int i = 0; i < LOOKS; i++) {
		if (has_rung(b, times))
			return 1;
		pause_a_little();
	}
	for (int64_t start = now_ns(), passed = 0; passed < limit; passed = now_ns() - start) {
		for (int i = 0; i < LOOKS; i++) {
			if (has_rung(b, times))
				return 1;
			pause_a_little();
		}
		if (passed > ALONE_NS)
			sched_yield();
	}
	return 0;
}

static void await(struct bell *b, unsigned times, int64_t spin_ns)
{
	if (spin_ns > 0 && spin(b, times, spin_ns))
		return;
	pthread_mutex_lock(&b->mutex);
	atomic_store(&b->asleep, 1);
	while (atomic_load(&b->rung) != times)
		pthread_cond_wait(&b->wake, &b->mutex);
	atomic_store(&b->asleep, 0);
	pthread_mutex_unlock(&b->mutex);
}

/*
 * Either the ringer sees that the waiter sleeps (or is about to, and then waits for the mutex), or the waiter
 * sees the new value before it does: both are in one order. Without spinning all of it happens with the
 * mutex.
 */
static void ring(struct bell *b, unsigned times, int64_t spin_ns)
{
	if (spin_ns > 0) {
		atomic_store(&b->rung, times);
		if (!atomic_load(&b->asleep))
			return;
	}
	pthread_mutex_lock(&b->mutex);
	atomic_store(&b->rung, times);
	pthread_cond_signal(&b->wake);
	pthread_mutex_unlock(&b->mutex);
}

static void hang_up(struct bell *b)
{
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->wake, NULL);
}

static void take_down(struct bell *b)
{
	pthread_cond_destroy(&b->wake);
	pthread_mutex_destroy(&b->mutex);
}

/* ---- workers ---- */

/* A round without a function ends the thread. */
static void *thread_main(void *arg)
{
	struct seat *s = arg;
	int64_t spin_ns = s->gang->spin_ns;
	for (unsigned round = 1;; round++) {
		await(&s->start, round, spin_ns);
		if (!s->start.fn)
			return NULL;
		s->start.fn(s->start.arg, s->worker, s->start.n);
		ring(&s->done, round, spin_ns);
	}
}

static void begin_round(struct seat *s, tfmc_task_fn *fn, void *arg, int64_t n)
{
	s->start.fn = fn;
	s->start.arg = arg;
	s->start.n = n;
	ring(&s->start, ++s->rounds, s->gang->spin_ns);
}

static int start_threads(struct tfmc_gang *g)
{
	for (int64_t i = 0; i + 1 < g->size; i++) {
		struct seat *s = &g->seats[i];
		s->gang = g;
		s->worker = i + 1;
		hang_up(&s->start);
		hang_up(&s->done);
		if (pthread_create(&s->thread, NULL, thread_main, s)) {
			take_down(&s->start);
			take_down(&s->done);
			return TFMC_RT_E_THREAD;
		}
		g->started++;
	}
	return TFMC_RT_OK;
}

int tfmc_gang_create_spinning(int64_t n, int64_t microseconds, struct tfmc_gang **out)
{
	void *seats = NULL;
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (n < 1 || n > MAX_WORKERS || microseconds < 0 || microseconds > MAX_SPIN)
		return TFMC_RT_E_WORKER;
	struct tfmc_gang *g = calloc(1, sizeof(*g));
	if (!g)
		return TFMC_RT_E_MEMORY;
	g->size = n;
	g->spin_ns = microseconds * 1000;
	int status = TFMC_RT_OK;
	if (n > 1 && posix_memalign(&seats, LINE, (size_t)(n - 1) * sizeof(*g->seats)))
		status = TFMC_RT_E_MEMORY;
	else if (n > 1)
		g->seats = memset(seats, 0, (size_t)(n - 1) * sizeof(*g->seats));
	if (status == TFMC_RT_OK)
		status = start_threads(g);
	if (status != TFMC_RT_OK) {
		tfmc_gang_destroy(g);
		return status;
	}
	*out = g;
	return TFMC_RT_OK;
}

int tfmc_gang_create(int64_t n, struct tfmc_gang **out)
{
	return tfmc_gang_create_spinning(n, n <= sysconf(_SC_NPROCESSORS_ONLN) ? TFMC_GANG_SPIN_US : 0, out);
}

void tfmc_gang_destroy(struct tfmc_gang *gang)
{
	if (!gang)
		return;
	for (int64_t i = 0; i < gang->started; i++)
		begin_round(&gang->seats[i], NULL, NULL, 0);
	for (int64_t i = 0; i < gang->started; i++) {
		pthread_join(gang->seats[i].thread, NULL);
		take_down(&gang->seats[i].start);
		take_down(&gang->seats[i].done);
	}
	free(gang->seats);
	free(gang);
}

int64_t tfmc_gang_size(const struct tfmc_gang *gang)
{
	return gang ? gang->size : 1;
}

void tfmc_gang_run_some(struct tfmc_gang *gang, int64_t n, tfmc_task_fn *fn, void *arg)
{
	int64_t most = tfmc_gang_size(gang);
	if (!fn)
		return;
	n = n < 1 ? 1 : n > most ? most : n;
	for (int64_t i = 0; i + 1 < n; i++)
		begin_round(&gang->seats[i], fn, arg, n);
	fn(arg, 0, n);
	for (int64_t i = 0; i + 1 < n; i++)
		await(&gang->seats[i].done, gang->seats[i].rounds, gang->spin_ns);
}

void tfmc_gang_run(struct tfmc_gang *gang, tfmc_task_fn *fn, void *arg)
{
	tfmc_gang_run_some(gang, tfmc_gang_size(gang), fn, arg);
}

/* n tasks dealt out to the workers by stride. */
struct deal {
	tfmc_task_fn *fn;
	void *arg;
	int64_t n;
};

static void run_dealt(void *arg, int64_t worker, int64_t n_workers)
{
	const struct deal *d = arg;
	for (int64_t i = worker; d->fn && i < d->n; i += n_workers)
		d->fn(d->arg, i, d->n);
}

void tfmc_gang_parallel_for(void *gang, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct deal deal = {.fn = fn, .arg = arg, .n = n};
	tfmc_gang_run_some(gang, n, run_dealt, &deal);
}
