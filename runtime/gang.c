/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gang of workers: the caller is worker 0, n - 1 threads sleep on a condition
 * variable until there is work and run it all at once. Waiting inside the work
 * (the barriers of an object) is the object's business.
 */
#define _POSIX_C_SOURCE 200809L
#include "tfmc_rt.h"

#include <pthread.h>
#include <stdlib.h>

struct tfmc_gang {
	pthread_mutex_t mutex;
	pthread_cond_t start, done;
	int64_t size;    /* workers, the caller included */
	int64_t started; /* threads that exist */
	int64_t next;    /* next thread's worker number */
	int64_t running; /* threads that have not finished the current round */
	uint64_t round;  /* counts calls of tfmc_gang_run */
	int stop;
	tfmc_task_fn *fn;
	void *arg;
	pthread_t *threads; /* [size - 1] */
};

static void work(struct tfmc_gang *g, int64_t worker)
{
	uint64_t seen = 0;
	pthread_mutex_lock(&g->mutex);
	for (;;) {
		while (!g->stop && g->round == seen)
			pthread_cond_wait(&g->start, &g->mutex);
		if (g->stop)
			break;
		seen = g->round;
		pthread_mutex_unlock(&g->mutex);
		g->fn(g->arg, worker, g->size);
		pthread_mutex_lock(&g->mutex);
		if (--g->running == 0)
			pthread_cond_signal(&g->done);
	}
	pthread_mutex_unlock(&g->mutex);
}

static void *thread_main(void *arg)
{
	struct tfmc_gang *g = arg;
	pthread_mutex_lock(&g->mutex);
	int64_t worker = g->next++;
	pthread_mutex_unlock(&g->mutex);
	work(g, worker);
	return NULL;
}

int tfmc_gang_create(int64_t n, struct tfmc_gang **out)
{
	*out = NULL;
	if (n < 1 || n > 4096)
		return TFMC_RT_E_WORKER;
	struct tfmc_gang *g = calloc(1, sizeof(*g));
	if (!g)
		return TFMC_RT_E_MEMORY;
	g->size = n;
	g->next = 1;
	pthread_mutex_init(&g->mutex, NULL);
	pthread_cond_init(&g->start, NULL);
	pthread_cond_init(&g->done, NULL);
	g->threads = calloc((size_t)n, sizeof(*g->threads));
	int status = TFMC_RT_OK;
	if (!g->threads)
		status = TFMC_RT_E_MEMORY;
	for (int64_t i = 0; status == TFMC_RT_OK && i + 1 < n; i++) {
		if (pthread_create(&g->threads[i], NULL, thread_main, g))
			status = TFMC_RT_E_THREAD;
		else
			g->started++;
	}
	if (status != TFMC_RT_OK) {
		tfmc_gang_destroy(g);
		return status;
	}
	*out = g;
	return TFMC_RT_OK;
}

void tfmc_gang_destroy(struct tfmc_gang *gang)
{
	if (!gang)
		return;
	pthread_mutex_lock(&gang->mutex);
	gang->stop = 1;
	pthread_cond_broadcast(&gang->start);
	pthread_mutex_unlock(&gang->mutex);
	for (int64_t i = 0; i < gang->started; i++)
		pthread_join(gang->threads[i], NULL);
	pthread_cond_destroy(&gang->start);
	pthread_cond_destroy(&gang->done);
	pthread_mutex_destroy(&gang->mutex);
	free(gang->threads);
	free(gang);
}

int64_t tfmc_gang_size(const struct tfmc_gang *gang)
{
	return gang->size;
}

void tfmc_gang_run(struct tfmc_gang *gang, tfmc_task_fn *fn, void *arg)
{
	pthread_mutex_lock(&gang->mutex);
	gang->fn = fn;
	gang->arg = arg;
	gang->running = gang->size - 1;
	gang->round++;
	pthread_cond_broadcast(&gang->start);
	pthread_mutex_unlock(&gang->mutex);

	fn(arg, 0, gang->size);

	pthread_mutex_lock(&gang->mutex);
	while (gang->running)
		pthread_cond_wait(&gang->done, &gang->mutex);
	pthread_mutex_unlock(&gang->mutex);
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
	for (int64_t i = worker; i < d->n; i += n_workers)
		d->fn(d->arg, i, d->n);
}

void tfmc_gang_parallel_for(void *gang, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct deal deal = {.fn = fn, .arg = arg, .n = n};
	tfmc_gang_run(gang, run_dealt, &deal);
}
