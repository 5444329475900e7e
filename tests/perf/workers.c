/* SPDX-License-Identifier: Apache-2.0 */
/*
* Costs of several workers: a round of the pool
 * that does nothing, a barrier of an object, and the end of a call. workers.sh
 * makes the two objects: `chain` passes a row through STEPS groups that one
 * worker can do alone, `link` through one. Rounds are interleaved; minimum and median are printed.
 *
 *	workers [WORKERS [ROUNDS]]
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tfmc_rt.h"

#include "chain.h"
#include "link.h"

#define MAX_ROUNDS 200
#define POOL_RUNS  20000
#define LINK_RUNS  20000
#define CHAIN_RUNS 20
#define STEPS      1000 /* of chain */

struct row {
	const char *name;
	double (*measure)(void *subject);
	void *subject;
	double us[MAX_ROUNDS];
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static void must(int status)
{
	if (status == TFMC_RT_OK)
		return;
	fprintf(stderr, "workers: %s\n", tfmc_rt_status_text(status));
	exit(1);
}

static void nothing(void *arg, int64_t worker, int64_t n_workers)
{
	(void)arg;
	(void)worker;
	(void)n_workers;
}

static double time_pool(void *subject)
{
	double start = now();
	for (int i = 0; i < POOL_RUNS; i++)
		tfmc_pool_run(subject, nothing, NULL);
	return (now() - start) / POOL_RUNS;
}

static double time_calls(struct tfmc_session *s, int n)
{
	static float x[16], y[16];
	int64_t dims[1] = {1};
	struct tfmc_buffer in = {x, 16}, out = {y, 16};
	double start = now();
	for (int i = 0; i < n; i++)
		must(tfmc_session_call(s, 0, dims, &in, &out));
	return (now() - start) / n;
}

static double time_link(void *subject)
{
	return time_calls(subject, LINK_RUNS);
}

static double time_step(void *subject)
{
	return time_calls(subject, CHAIN_RUNS) / STEPS;
}

static struct tfmc_session *open_session(struct tfmc_model model, int64_t workers)
{
	struct tfmc_session_options o = {.struct_size = sizeof(o), .workers = workers, .all_workers = 1};
	struct tfmc_session *s;
	must(tfmc_session_open(&model, &o, &s));
	return s;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_row(struct row *r, int rounds)
{
	qsort(r->us, (size_t)rounds, sizeof(double), compare);
	printf("%-44s %9.4f %9.4f\n", r->name, r->us[0], r->us[rounds / 2]);
}

int main(int argc, char **argv)
{
	int64_t workers = argc > 1 ? atoi(argv[1]) : 2;
	int rounds = argc > 2 ? atoi(argv[2]) : 20;
	struct tfmc_pool *pool;
	must(tfmc_pool_create(workers, &pool));
	struct row rows[] = {
	        {"an empty round of the pool", time_pool, pool, {0}},
	        {"a call with one small group, one worker", time_link, open_session(link_model(), 1), {0}},
	        {"a call with one small group, workers", time_link, open_session(link_model(), workers), {0}},
	        {"a small group of many, one worker", time_step, open_session(chain_model(), 1), {0}},
	        {"a small group and a barrier, workers",
	         time_step,
	         open_session(chain_model(), workers),
	         {0}},
	};
	int n = (int)(sizeof(rows) / sizeof(rows[0]));
	rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	for (int k = 0; k < rounds; k++)
		for (int i = 0; i < n; i++)
			rows[i].us[k] = rows[i].measure(rows[i].subject);
	printf("%lld workers, us %33s min    median\n", (long long)workers, "");
	for (int i = 0; i < n; i++)
		print_row(&rows[i], rounds);
	tfmc_pool_destroy(pool);
	for (int i = 1; i < n; i++)
		tfmc_session_close(rows[i].subject);
	return 0;
}
