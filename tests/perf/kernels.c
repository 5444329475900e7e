/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times linears and attentions on one core, beside the peaks of that core. kernels.sh compiles each as a model of
 * its own into a shared library.
 *
 * 	tfmc_kernels ROUNDS ROW...
 * 	ROW: LABEL,LIBRARY,MODEL,WEIGHTS,FLOPS,BYTES,PEAK
 * 	     WEIGHTS: the weights file, or -; FLOPS of a call; BYTES of weights, keys and values that a call reads;
 * 	     PEAK: number in enum peak_number
 *
 * Warm: one copy of weights and inputs, called again and again. Cold: calls go round as many copies as fill
 * COLD_BYTES, as the layers of a model do, so that what a call reads comes from memory.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peaks.h"
#include "runtime/tfmc_rt.h"

#define MAX_ROUNDS  100
#define MAX_ROWS    400
#define MAX_COPIES  256
#define MAX_TENSORS 4
#define SLICE       0.004              /* seconds that one measurement takes at least */
#define COLD_BYTES  ((size_t)96 << 20) /* more than the caches of a core and its share of the last one */

enum {
	FIELD_LABEL,
	FIELD_LIBRARY,
	FIELD_MODEL,
	FIELD_WEIGHTS,
	FIELD_FLOPS,
	FIELD_BYTES,
	FIELD_PEAK,
	N_FIELDS
};

/* A context with weights and inputs of its own. */
struct copy {
	void *context, *weights;
	uint64_t words[4 * MAX_TENSORS];
};

struct row {
	char *field[N_FIELDS];
	double flops, bytes;
	int peak;
	struct tfmc_model model;
	void *arena;
	struct copy copies[MAX_COPIES];
	size_t n_copies;
	double warm, cold; /* least seconds of a call */
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const struct row *r, const char *what)
{
	fprintf(stderr, "tfmc_kernels: %s %s: %s\n", r->field[FIELD_LABEL], r->field[FIELD_LIBRARY], what);
	exit(1);
}

static void *lines(const struct row *r, uint64_t bytes)
{
	void *p = NULL;
	if (posix_memalign(&p, 64, (size_t)bytes + 64))
		fail(r, "no memory");
	memset(p, 0, (size_t)bytes);
	return p;
}

/* ---- rows ---- */

static bool split_row(char *text, struct row *r)
{
	for (int i = 0; i < N_FIELDS; i++) {
		r->field[i] = text;
		text = strchr(text, ',');
		if (!text != (i == N_FIELDS - 1))
			return false;
		if (text)
			*text++ = 0;
	}
	r->flops = strtod(r->field[FIELD_FLOPS], NULL);
	r->bytes = strtod(r->field[FIELD_BYTES], NULL);
	r->peak = (int)strtol(r->field[FIELD_PEAK], NULL, 10);
	return r->peak >= 0 && r->peak < N_PEAKS;
}

static void *symbol(const struct row *r, void *library, const char *suffix)
{
	char name[256];
	snprintf(name, sizeof(name), "%s%s", r->field[FIELD_MODEL], suffix);
	void *found = dlsym(library, name);
	if (!found)
		fail(r, name);
	return found;
}

static void load(struct row *r)
{
	void *library = dlopen(r->field[FIELD_LIBRARY], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail(r, dlerror());
	r->model.record = symbol(r, library, "_record");
	*(void **)&r->model.init = symbol(r, library, "_init");
	*(void **)&r->model.call = symbol(r, library, "_call");
	*(void **)&r->model.arena_size = symbol(r, library, "_arena_bytes");
}

/* The packed weights of the file, after its header; NULL: the row has none. */
static void *read_weights(const struct row *r)
{
	uint64_t n = r->model.record->weights_bytes;
	if (!strcmp(r->field[FIELD_WEIGHTS], "-"))
		return NULL;
	char *data = lines(r, n);
	FILE *f = fopen(r->field[FIELD_WEIGHTS], "rb");
	if (!f || fseek(f, TFMC_WEIGHTS_DATA, SEEK_SET) || fread(data, 1, (size_t)n, f) != n)
		fail(r, "the weights cannot be read");
	fclose(f);
	return data;
}

static void add_tensors(const struct row *r, struct copy *c)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r->model.record, 0);
	uint64_t n = 0, of_inputs = e->n_inputs;
	if (e->n_dims || e->n_inputs + e->n_outputs > 2 * MAX_TENSORS)
		fail(r, "dims, or too many tensors");
	for (uint64_t i = 0; i < of_inputs + e->n_outputs; i++) {
		const struct tfmc_record_tensor *t =
		        i < of_inputs ? tfmc_entry_input(r->model.record, 0, i)
		                      : tfmc_entry_output(r->model.record, 0, i - of_inputs);
		int64_t count = tfmc_tensor_count(r->model.record, t, NULL);
		float *data = lines(r, (uint64_t)count * sizeof(float));
		for (int64_t k = 0; k < count; k++)
			data[k] = (float)((k * 7919 + 13) % 1009) / 1009 - 0.5f;
		c->words[n++] = (uint64_t)(uintptr_t)data;
		c->words[n++] = (uint64_t)count;
	}
}

static void open_copy(struct row *r, const void *weights)
{
	const struct tfmc_record *record = r->model.record;
	struct copy *c = &r->copies[r->n_copies++];
	struct tfmc_config config = {.struct_size = sizeof(config), .workers = 1};
	config.arena_bytes = r->model.arena_size(NULL, 1);
	if (!r->arena)
		r->arena = lines(r, config.arena_bytes);
	config.arena = r->arena;
	if (weights) {
		c->weights = lines(r, record->weights_bytes);
		memcpy(c->weights, weights, (size_t)record->weights_bytes);
		config.weights = c->weights;
		config.weights_bytes = record->weights_bytes;
	}
	c->context = lines(r, record->context_bytes);
	add_tensors(r, c);
	int status = r->model.init(c->context, &config);
	if (status != TFMC_RT_OK)
		fail(r, tfmc_rt_status_text(status));
}

static void open_row(struct row *r)
{
	load(r);
	void *weights = read_weights(r);
	size_t wanted = (size_t)(COLD_BYTES / (r->bytes > 1 ? r->bytes : 1)) + 1;
	while (r->n_copies < wanted && r->n_copies < MAX_COPIES)
		open_copy(r, weights);
	free(weights);
}

static void close_row(struct row *r)
{
	for (size_t i = 0; i < r->n_copies; i++) {
		const struct tfmc_record_entry *e = tfmc_entry_at(r->model.record, 0);
		for (uint64_t k = 0; k < e->n_inputs + e->n_outputs; k++)
			free((void *)(uintptr_t)r->copies[i].words[2 * k]);
		free(r->copies[i].weights);
		free(r->copies[i].context);
	}
	free(r->arena);
}

/* ---- measuring ---- */

/* Seconds of a call when calls go round n copies. */
static double time_calls(struct row *r, size_t n)
{
	double start = now(), end = start;
	int64_t calls = 0;
	while (end - start < SLICE || calls < (int64_t)n) {
		struct copy *c = &r->copies[(size_t)calls++ % n];
		int status = r->model.call(c->context, 0, c->words, -1);
		if (status != TFMC_RT_OK)
			fail(r, tfmc_rt_status_text(status));
		end = now();
	}
	return (end - start) / (double)calls;
}

static double least(double a, double b)
{
	return a > 0 && a < b ? a : b;
}

/* Rows are measured one after another: copies of all would not fit; their peak is measured with each. */
static void run_row(struct row *r, const struct peak *peaks, long rounds)
{
	double peak = 0;
	open_row(r);
	(void)time_calls(r, r->n_copies);
	for (long k = 0; k < rounds; k++) {
		double rate = peaks_flops(&peaks[r->peak], 1, 0.002);
		peak = rate > peak ? rate : peak;
		r->warm = least(r->warm, time_calls(r, 1));
		r->cold = least(r->cold, time_calls(r, r->n_copies));
	}
	printf("%-34s %10.2f %7.1f %4.0f %% %7.1f %10.2f %7.1f %4.0f %% %7.1f\n", r->field[FIELD_LABEL],
	       r->warm * 1e6, r->flops / r->warm * 1e-9, 100 * r->flops / r->warm / peak,
	       r->bytes / r->warm * 1e-9, r->cold * 1e6, r->flops / r->cold * 1e-9,
	       100 * r->flops / r->cold / peak, r->bytes / r->cold * 1e-9);
	fflush(stdout);
	close_row(r);
}

int main(int argc, char **argv)
{
	struct peak peaks[N_PEAKS];
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	if (argc < 3 || argc > MAX_ROWS || rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: tfmc_kernels ROUNDS ROW...\n");
		return 2;
	}
	peaks_find(peaks);
	printf("one core, reads of memory %.1f GB/s, of L2 %.1f GB/s\n",
	       peaks_read_rate(256u << 20, 1, 0.1) * 1e-9, peaks_read_rate(512u << 10, 1, 0.05) * 1e-9);
	printf("%-34s %10s %7s %6s %7s %10s %7s %6s %7s\n", "kernel", "warm us", "GFLOP/s", "peak", "GB/s",
	       "cold us", "GFLOP/s", "peak", "GB/s");
	for (int i = 2; i < argc; i++) {
		struct row *r = calloc(1, sizeof(*r));
		if (!r || !split_row(argv[i], r)) {
			fprintf(stderr, "tfmc_kernels: %s is no row\n", argv[i]);
			return 2;
		}
		run_row(r, peaks, rounds);
		free(r);
	}
	return 0;
}
