/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of an exchange between ranks inside one process, of one worker each: sums of several sizes, in interleaved
 * rounds, as rank 0 sees them. Minimum and median are printed.
 *
 *	ranks [RANKS [ROUNDS]]
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tfmc_rt.h"

#define MAX_RANKS  64
#define MAX_ROUNDS 100
#define WARM       20  /* exchanges of each size and round that are not measured */
#define MEASURED   200 /* exchanges of each size and round */
#define N_SIZES    5

static const uint64_t sizes[N_SIZES] = {4096, 16384, 65536, 262144, 1048576}; /* bytes */
#define MAX_FLOATS (1048576 / sizeof(float))

static float x[MAX_RANKS][MAX_FLOATS], sums[MAX_RANKS][MAX_FLOATS];
static double us[N_SIZES][MAX_ROUNDS * MEASURED];
static int rounds = 20;

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
	fprintf(stderr, "ranks: %s\n", tfmc_rt_status_text(status));
	exit(1);
}

/* All ranks make the same exchanges, which keep them in step. */
static void *run_rank(void *arg)
{
	const struct tfmc_ranks *r = arg;
	for (int k = 0; k < rounds; k++)
		for (int i = 0; i < N_SIZES; i++)
			for (int e = 0; e < WARM + MEASURED; e++) {
				double start = now();
				r->sum(r->user, x[r->rank], sums[r->rank], sizes[i] / sizeof(float), r->n, 0,
				       0, 1);
				if (r->rank == 0 && e >= WARM)
					us[i][k * MEASURED + e - WARM] = now() - start;
			}
	must(r->status(r->user));
	return NULL;
}

static int compare(const void *a, const void *b)
{
	double p = *(const double *)a, q = *(const double *)b;
	return (p > q) - (p < q);
}

static void print_row(int i)
{
	size_t n = (size_t)rounds * MEASURED;
	qsort(us[i], n, sizeof(double), compare);
	printf("%8llu bytes %24s %9.2f %9.2f\n", (unsigned long long)sizes[i], "", us[i][0], us[i][n / 2]);
}

int main(int argc, char **argv)
{
	int64_t n = argc > 1 ? atoi(argv[1]) : 2;
	struct tfmc_local_ranks *group;
	pthread_t threads[MAX_RANKS];
	rounds = argc > 2 ? atoi(argv[2]) : rounds;
	rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	n = n < 1 ? 1 : n > MAX_RANKS ? MAX_RANKS : n;
	for (int64_t r = 0; r < n; r++)
		for (uint64_t i = 0; i < MAX_FLOATS; i++)
			x[r][i] = (float)(r + 1);
	must(tfmc_local_ranks_create(n, &group));
	for (int64_t r = 1; r < n; r++)
		if (pthread_create(&threads[r], NULL, run_rank, (void *)(uintptr_t)tfmc_local_rank(group, r)))
			must(TFMC_RT_E_THREAD);
	run_rank((void *)(uintptr_t)tfmc_local_rank(group, 0));
	for (int64_t r = 1; r < n; r++)
		pthread_join(threads[r], NULL);
	printf("%lld ranks, us %31s min    median\n", (long long)n, "");
	for (int i = 0; i < N_SIZES; i++)
		print_row(i);
	tfmc_local_ranks_destroy(group);
	return 0;
}
