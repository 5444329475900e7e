/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of padding: 64 texts of 5 to 128 tokens (2413 in all) through the `run` entry of an encoder, one by one and
 * in batches as long as their longest text. Every round measures each batch size once; the least time is printed.
 *
 *	ragged WORKERS ROUNDS WEIGHTS
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tfmc_rt.h"

#include "ragged_model.h"

enum { TEXTS = 64, MOST = 128, SHORTEST = 5, LARGEST_DIM = 384 };

static const int64_t batches[] = {1, 8, 16, 64};
#define N_BATCHES (sizeof(batches) / sizeof(batches[0]))

struct texts {
	int32_t lengths[TEXTS], ids[TEXTS * MOST];
	float *out;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int status)
{
	if (status == TFMC_RT_OK)
		return;
	fprintf(stderr, "ragged: %s\n", tfmc_rt_status_text(status));
	exit(1);
}

/* Few texts are long, in an order in which they are not neighbours. */
static void make_texts(struct texts *t)
{
	for (int i = 0; i < TEXTS; i++) {
		double u = (i * 37 % TEXTS + 0.5) / TEXTS;
		t->lengths[i] = (int32_t)lround(SHORTEST + (MOST - SHORTEST) * pow(u, 2.756));
	}
	for (int i = 0; i < TEXTS * MOST; i++)
		t->ids[i] = i * 7919 % 1000;
	t->out = malloc(sizeof(float) * TEXTS * MOST * LARGEST_DIM);
}

/* Seconds for all texts, `batch` at a time. */
static double run(struct tfmc_session *s, const struct texts *t, int64_t batch)
{
	double start = now();
	for (int64_t first = 0; first < TEXTS; first += batch) {
		int64_t most = 0;
		for (int64_t i = first; i < first + batch; i++)
			most = t->lengths[i] > most ? t->lengths[i] : most;
		const int64_t dims[] = {batch, most};
		const struct tfmc_buffer in[] = {{(void *)(uintptr_t)t->ids, (uint64_t)(batch * most)},
		                                 {(void *)(uintptr_t)(t->lengths + first), (uint64_t)batch}};
		const struct tfmc_buffer out = {t->out, (uint64_t)(batch * most * LARGEST_DIM)};
		check(tfmc_session_call(s, 0, dims, in, &out));
	}
	return now() - start;
}

int main(int argc, char **argv)
{
	static struct texts texts;
	static double best[N_BATCHES];
	const struct tfmc_model model = ragged_model();
	const struct tfmc_session_options o = {.struct_size = sizeof(o),
	                                       .workers = argc > 1 ? atoi(argv[1]) : 1,
	                                       .weights_path = argc > 3 ? argv[3] : NULL};
	struct tfmc_session *s;
	make_texts(&texts);
	check(tfmc_session_open(&model, &o, &s));
	for (int round = argc > 2 ? atoi(argv[2]) : 5; texts.out != NULL && round > 0; round--)
		for (size_t i = 0; i < N_BATCHES; i++) {
			double seconds = run(s, &texts, batches[i]);
			best[i] = best[i] == 0 || seconds < best[i] ? seconds : best[i];
		}
	for (size_t i = 0; i < N_BATCHES; i++)
		printf("  batch %2d: %6.1f texts/s, %.2f of single texts\n", (int)batches[i], TEXTS / best[i],
		       best[0] / best[i]);
	tfmc_session_close(s);
}
