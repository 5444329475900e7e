/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times single groups (softmax, norms, activations, copies) on one core, in
 * core cycles per element. rowwise.sh compiles each as a model of its own into a
 * shared library; here they are called in interleaved rounds. The length of a
 * cycle comes from a chain of dependent additions in every round.
 *
 *	tfmc_rowwise ROUNDS ROW...
 *	ROW: LABEL,LIBRARY,MODEL,ELEMENTS       ELEMENTS: what cycles are divided by; 0: this row is
 *	                                        the cost of a call, taken from all others
 *	ROUNDS 0: every row is called once and nothing is timed (tests/shell/instruction_counts.sh)
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/tfmc_rt.h"

#define MAX_ROUNDS  200
#define MAX_ROWS    400
#define MAX_TENSORS 8
#define SLICE       0.004 /* seconds that one measurement takes at least */
#define CHAIN       2000000

enum { DTYPE_F32 = 0, DTYPE_I32 = 6 };
enum { FIELD_LABEL, FIELD_LIBRARY, FIELD_MODEL, FIELD_ELEMENTS, N_FIELDS };

struct row {
	char *field[N_FIELDS];
	int64_t elements, calls;
	struct tfmc_model model;
	struct tfmc_session *session;
	struct tfmc_buffer in[MAX_TENSORS], out[MAX_TENSORS];
	double seconds[MAX_ROUNDS];
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const struct row *r, const char *what)
{
	fprintf(stderr, "tfmc_rowwise: %s %s: %s\n", r->field[FIELD_LABEL], r->field[FIELD_LIBRARY], what);
	exit(1);
}

/* One addition takes one cycle, and each needs the one before. */
static double seconds_of_cycle(void)
{
	uint64_t x = 1;
	double start = now();
	for (int64_t i = 0; i < CHAIN / 16; i++) {
#define ADD  __asm__ volatile("add $1, %0" : "+r"(x));
#define ADD4 ADD ADD ADD ADD
		ADD4 ADD4 ADD4 ADD4
	}
	return (now() - start) / CHAIN;
}

/* ---- rows ---- */

static bool split_row(char *text, struct row *r)
{
	char *remaining = text;
	for (int i = 0; i < N_FIELDS; i++) {
		r->field[i] = remaining;
		remaining = remaining ? strchr(remaining, ',') : NULL;
		if (remaining)
			*remaining++ = '\0';
		if (!r->field[i])
			return false;
	}
	r->elements = atol(r->field[FIELD_ELEMENTS]);
	return r->elements >= 0;
}

/* The address of MODEL_suffix goes to the pointer at `out`. */
static void find(struct row *r, void *library, const char *suffix, void *out)
{
	char symbol[256];
	(void)snprintf(symbol, sizeof(symbol), "%s_%s", r->field[FIELD_MODEL], suffix);
	void *at = dlsym(library, symbol);
	if (!at)
		fail(r, dlerror());
	memcpy(out, &at, sizeof(at));
}

static void open_model(struct row *r)
{
	void *library = dlopen(r->field[FIELD_LIBRARY], RTLD_NOW | RTLD_LOCAL);
	if (!library)
		fail(r, dlerror());
	find(r, library, "record", &r->model.record);
#define MODEL(field, name, result, parameters, comment) find(r, library, #name, &r->model.field);
#define OTHER(name, result, parameters, comment)
#include "backends/interface.def"
	struct tfmc_session_options o = {.struct_size = sizeof(o)};
	int status = tfmc_session_open(&r->model, &o, &r->session);
	if (status != TFMC_RT_OK)
		fail(r, tfmc_rt_status_text(status));
}

/* f32: between -4 and 4; i32: below 64, which every id, position and length may be. */
static struct tfmc_buffer make_buffer(struct row *r, const struct tfmc_record_tensor *t)
{
	int64_t n = tfmc_tensor_count(r->model.record, t, NULL);
	uint64_t x = 88172645463325252u;
	size_t bytes = (((size_t)n * tfmc_dtype_bytes(t->dtype)) + 4095) / 4096 * 4096;
	struct tfmc_buffer b = {aligned_alloc(4096, bytes + 4096), (uint64_t)n};
	if (!b.data)
		fail(r, "no memory");
	memset(b.data, 0, bytes);
	for (int64_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		if (t->dtype == DTYPE_F32)
			((float *)b.data)[i] = (float)(x >> 40) / 2097152.0f - 4.0f;
		else if (t->dtype == DTYPE_I32)
			((int32_t *)b.data)[i] = (int32_t)(x >> 58);
	}
	return b;
}

static void open_tensors(struct row *r)
{
	const struct tfmc_record *record = r->model.record;
	const struct tfmc_record_entry *e = tfmc_entry_at(record, 0);
	if (e->n_inputs > MAX_TENSORS || e->n_outputs > MAX_TENSORS || record->n_dims > 0)
		fail(r, "tensors of constant sizes are expected, and few");
	for (uint64_t i = 0; i < e->n_inputs; i++)
		r->in[i] = make_buffer(r, tfmc_entry_input(record, 0, i));
	for (uint64_t i = 0; i < e->n_outputs; i++)
		r->out[i] = make_buffer(r, tfmc_entry_output(record, 0, i));
}

static double call_many(struct row *r, int64_t n)
{
	double start = now();
	for (int64_t i = 0; i < n; i++) {
		int status = tfmc_session_call(r->session, 0, NULL, r->in, r->out);
		if (status != TFMC_RT_OK)
			fail(r, tfmc_rt_status_text(status));
	}
	return now() - start;
}

static void open_row(struct row *r)
{
	open_model(r);
	open_tensors(r);
}

static void choose_calls(struct row *r)
{
	(void)call_many(r, 1);
	double once = call_many(r, 1);
	r->calls = once < SLICE ? (int64_t)(SLICE / once) + 1 : 1;
}

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_rows(struct row *rows, int n, long rounds, double cycle)
{
	double call = 0;
	printf("%-28s %10s %10s %10s\n", "group", "elements", "cycles/el", "median");
	for (int i = 0; i < n; i++) {
		struct row *r = &rows[i];
		qsort(r->seconds, (size_t)rounds, sizeof(double), compare);
		double best = r->seconds[0] / cycle, median = r->seconds[rounds / 2] / cycle;
		if (r->elements == 0) {
			call = best;
			printf("%-28s %10s %10.0f %10.0f cycles, taken from the rows below\n",
			       r->field[FIELD_LABEL], "call", best, median);
			continue;
		}
		double count = (double)r->elements;
		printf("%-28s %10lld %10.3f %10.3f\n", r->field[FIELD_LABEL], (long long)r->elements,
		       (best - call) / count, (median - call) / count);
	}
}

int main(int argc, char **argv)
{
	static struct row rows[MAX_ROWS];
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	int n = argc - 2;
	double cycle = 1;
	if (rounds < 0 || rounds > MAX_ROUNDS || n < 1 || n > MAX_ROWS) {
		fprintf(stderr, "usage: tfmc_rowwise ROUNDS ROW..., see rowwise.sh\n");
		return 2;
	}
	for (int i = 0; i < n; i++) {
		if (!split_row(argv[i + 2], &rows[i]))
			return fprintf(stderr, "tfmc_rowwise: not a row: %s\n", argv[i + 2]), 2;
		open_row(&rows[i]);
		if (rounds > 0)
			choose_calls(&rows[i]);
		else
			(void)call_many(&rows[i], 1);
	}
	if (rounds == 0)
		return 0;
	for (long k = 0; k < rounds; k++) {
		double c = seconds_of_cycle();
		cycle = c < cycle ? c : cycle;
		for (int i = 0; i < n; i++)
			rows[i].seconds[k] = call_many(&rows[i], rows[i].calls) / (double)rows[i].calls;
	}
	printf("one cycle: %.4f ns\n", cycle * 1e9);
	print_rows(rows, n, rounds, cycle);
	return 0;
}
