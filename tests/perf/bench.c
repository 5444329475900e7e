/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the `run` entry of encoders made by make_encoder.py, one core, beside
 * the multiply-add peaks of that core. bench.sh writes the list of models
 * (models.h: their headers, and MODELS(X) with a row per model and size) and links their objects.
 *
 *	bench [ROUNDS]
 *
 * Every round measures each row once, so that slow phases of the machine fall
 * on all rows alike; minimum and median over the rounds are printed.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tfmc_rt.h"

#include "models.h"
#include "peaks.h"

#define MAX_ROUNDS 200
#define SLICE      0.02 /* seconds that one measurement takes at least */

/* The products of the model: what GFLOP/s counts. */
struct shape {
	int64_t layers, hidden, ff;
};

struct row {
	const char *name;
	struct tfmc_model model;
	const char *weights; /* file, or NULL: embedded */
	struct shape shape;
	int64_t batch, length;
	int peak; /* number of the peak of its instruction set */
	struct tfmc_session *session;
	int64_t dims[2];
	struct tfmc_buffer inputs[2], output;
	int64_t calls; /* in one measurement */
	double flops;  /* of one call */
	double seconds[MAX_ROUNDS];
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *name, int status)
{
	fprintf(stderr, "bench: %s: %s\n", name, tfmc_rt_status_text(status));
	exit(1);
}

static double count_flops(const struct shape *s, int64_t batch, int64_t length)
{
	double d = (double)s->hidden, f = (double)s->ff, t = (double)length;
	return (double)batch * (double)s->layers * (2 * t * (4 * d * d + 2 * d * f) + 4 * t * t * d);
}

static void make_ids(int32_t *ids, int64_t n, int64_t vocabulary)
{
	uint32_t x = 12345;
	for (int64_t i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		ids[i] = (int32_t)((int64_t)(x >> 8) % vocabulary);
	}
}

static double call_many(struct row *r, int64_t n)
{
	double start = now();
	for (int64_t i = 0; i < n; i++) {
		int status = tfmc_session_call(r->session, 0, r->dims, r->inputs, &r->output);
		if (status != TFMC_RT_OK)
			fail(r->name, status);
	}
	return now() - start;
}

/* The dims of make_encoder.py in the order of the record. */
static bool set_dims(struct row *r)
{
	const struct tfmc_record *record = r->model.record;
	if (record->n_dims != 2)
		return false;
	for (uint64_t i = 0; i < 2; i++) {
		const char *name = tfmc_record_text(record, tfmc_record_dim_at(record, i)->name);
		r->dims[i] = !strcmp(name, "B") ? r->batch : r->length;
	}
	return true;
}

/* Opens the model for one size; ids stay below 1000, the smallest vocabulary of the presets. */
static void open_row(struct row *r)
{
	struct tfmc_session_options o = {.struct_size = sizeof(o), .weights_path = r->weights};
	if (!set_dims(r))
		fail(r->name, TFMC_RT_E_RECORD);
	o.batch = r->batch;
	o.dims_max = r->dims;
	int status = tfmc_session_open(&r->model, &o, &r->session);
	if (status != TFMC_RT_OK)
		fail(r->name, status);
	uint64_t n = (uint64_t)(r->batch * r->length), n_out = n * (uint64_t)r->shape.hidden;
	r->inputs[0] = (struct tfmc_buffer){calloc((size_t)n, sizeof(int32_t)), n};
	r->output = (struct tfmc_buffer){calloc((size_t)n_out, sizeof(float)), n_out};
	if (!r->inputs[0].data || !r->output.data)
		fail(r->name, TFMC_RT_E_MEMORY);
	make_ids(r->inputs[0].data, (int64_t)n, 1000);
	r->flops = count_flops(&r->shape, r->batch, r->length);
	double once = call_many(r, 1);
	once = call_many(r, 1);
	r->calls = once < SLICE ? (int64_t)(SLICE / once) + 1 : 1;
}

static void close_row(struct row *r)
{
	tfmc_session_close(r->session);
	free(r->inputs[0].data);
	free(r->output.data);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double time_peak(const struct peak *peak)
{
	const int64_t n = 2000000;
	double start = now();
	volatile float result = peak->run(n);
	(void)result;
	return (double)n * peak->flops / (now() - start);
}

struct bench {
	struct row *rows;
	size_t n;
	long rounds;
	struct peak peaks[N_PEAKS];
	double rates[N_PEAKS]; /* best of all rounds; 0: not on this processor */
};

static void measure(struct bench *b)
{
	for (long k = 0; k < b->rounds; k++) {
		for (int i = 0; i < N_FMA_PEAKS; i++) {
			double rate = b->peaks[i].available ? time_peak(&b->peaks[i]) : 0;
			b->rates[i] = rate > b->rates[i] ? rate : b->rates[i];
		}
		for (size_t i = 0; i < b->n; i++) {
			struct row *r = &b->rows[i];
			r->seconds[k] = call_many(r, r->calls) / (double)r->calls;
		}
	}
}

static void print_row(const struct bench *b, struct row *r)
{
	qsort(r->seconds, (size_t)b->rounds, sizeof(double), compare);
	double best = r->seconds[0], median = r->seconds[b->rounds / 2], rate = r->flops / best;
	printf("%-14s %4lld %5lld %11.3f %11.3f %9.1f", r->name, (long long)r->batch, (long long)r->length,
	       best * 1e3, median * 1e3, rate * 1e-9);
	if (b->rates[r->peak] > 0)
		printf(" %5.0f %%", 100 * rate / b->rates[r->peak]);
	printf("\n");
}

static void print_all(const struct bench *b)
{
	for (int i = 0; i < N_FMA_PEAKS; i++)
		if (b->peaks[i].available)
			printf("%-17s %7.1f GFLOP/s\n", b->peaks[i].name, b->rates[i] * 1e-9);
	printf("%-14s %4s %5s %11s %11s %9s %7s\n", "model", "B", "S", "min ms", "median ms", "GFLOP/s",
	       "of peak");
	for (size_t i = 0; i < b->n; i++)
		print_row(b, &b->rows[i]);
}

int main(int argc, char **argv)
{
	struct row rows[] = {
#define ROW(prefix, file, number, l, d, f, b, s) \
	{.name = #prefix,                        \
	 .model = prefix##_model(),              \
	 .weights = file,                        \
	 .shape = {l, d, f},                     \
	 .batch = b,                             \
	 .length = s,                            \
	 .peak = number},
	        MODELS(ROW)
#undef ROW
	};
	struct bench b = {.rows = rows, .n = sizeof(rows) / sizeof(rows[0]), .rounds = 10};
	if (argc > 1)
		b.rounds = strtol(argv[1], NULL, 10);
	if (b.rounds < 1 || b.rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: bench [ROUNDS], 1 to %d\n", MAX_ROUNDS);
		return 2;
	}
	peaks_find(b.peaks);
	for (size_t i = 0; i < b.n; i++)
		open_row(&rows[i]);
	measure(&b);
	print_all(&b);
	for (size_t i = 0; i < b.n; i++)
		close_row(&rows[i]);
	return 0;
}
