/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times one linear in every language tfmc emits, on one core, beside the
 * multiply-add peaks of that core. languages.sh compiles the rows; here each is
 * loaded, called in interleaved rounds, and compared with the first row's result.
 *
 *	tfmc_languages ROUNDS ROW...
 *	ROW: LABEL,PEAK,M,N,K,native,LIBRARY,MODEL     a shared library and the model's name
 *	     LABEL,PEAK,M,N,K,opencl,FILE.tir,TARGET   compiled here, run on the first OpenCL device
 *	PEAK: 0 AVX2, 1 AVX-512
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/tfmc_rt.h"
#include "tests/perf/languages.h"
#include "tests/perf/peaks.h"

#define MAX_ROUNDS 200
#define MAX_ROWS   64
#define SLICE      0.02 /* seconds that one measurement takes at least */

enum { FIELD_LABEL, FIELD_PEAK, FIELD_M, FIELD_N, FIELD_K, FIELD_KIND, FIELD_FILE, FIELD_NAME, N_FIELDS };

struct row {
	char *field[N_FIELDS];
	int64_t m, n, k;
	int peak;
	struct tfmc_model model;
	struct tfmc_session *session; /* native */
	struct opencl_row *opencl;
	struct tfmc_buffer x, y;
	int64_t calls; /* in one measurement */
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
	fprintf(stderr, "tfmc_languages: %s %s: %s\n", r->field[FIELD_LABEL], r->field[FIELD_FILE], what);
	exit(1);
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
	r->peak = atoi(r->field[FIELD_PEAK]);
	r->m = atol(r->field[FIELD_M]);
	r->n = atol(r->field[FIELD_N]);
	r->k = atol(r->field[FIELD_K]);
	return r->peak >= 0 && r->peak < N_PEAKS && r->m > 0 && r->n > 0 && r->k > 0;
}

/* The address of MODEL_suffix goes to the pointer at `out`. */
static void find(struct row *r, void *library, const char *suffix, void *out)
{
	char symbol[256];
	(void)snprintf(symbol, sizeof(symbol), "%s_%s", r->field[FIELD_NAME], suffix);
	void *at = dlsym(library, symbol);
	if (!at)
		fail(r, dlerror());
	memcpy(out, &at, sizeof(at));
}

static void open_native(struct row *r)
{
	void *library = dlopen(r->field[FIELD_FILE], RTLD_NOW | RTLD_LOCAL);
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

static double call_many(struct row *r, int64_t n)
{
	double start = now();
	if (r->opencl) {
		if (!opencl_row_call(r->opencl, n))
			fail(r, "the device refused a launch");
		return now() - start;
	}
	for (int64_t i = 0; i < n; i++) {
		int status = tfmc_session_call(r->session, 0, NULL, &r->x, &r->y);
		if (status != TFMC_RT_OK)
			fail(r, tfmc_rt_status_text(status));
	}
	return now() - start;
}

static void open_row(struct row *r)
{
	r->x = (struct tfmc_buffer){calloc((size_t)(r->m * r->k), sizeof(float)), (uint64_t)(r->m * r->k)};
	r->y = (struct tfmc_buffer){calloc((size_t)(r->m * r->n), sizeof(float)), (uint64_t)(r->m * r->n)};
	if (!r->x.data || !r->y.data)
		fail(r, "no memory");
	for (int64_t i = 0; i < r->m * r->k; i++)
		((float *)r->x.data)[i] = (float)((i * 7919) % 1009) / 504.5f - 1;
	if (strcmp(r->field[FIELD_KIND], "opencl") != 0)
		open_native(r);
	else if (!(r->opencl = opencl_row_open(r->field[FIELD_FILE], r->field[FIELD_NAME], r->x.data)))
		fail(r, "cannot be run on an OpenCL device");
	call_many(r, 1);
	double once = call_many(r, 1);
	r->calls = once < SLICE ? (int64_t)(SLICE / once) + 1 : 1;
}

/* All rows of one size compute the same; the largest difference in units of the result's scale. */
static double difference(struct row *r, const struct row *first)
{
	const float *a = r->y.data, *b = first->y.data;
	double worst = 0, scale = 1;
	if (r->opencl && !opencl_row_read(r->opencl, r->y.data))
		fail(r, "the device gave no result");
	for (int64_t i = 0; i < r->m * r->n; i++) {
		worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
		scale = fmax(scale, fabs((double)b[i]));
	}
	return worst / scale;
}

/* ---- measuring ---- */

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

static void measure(struct row *rows, int n_rows, long rounds, double *rates)
{
	struct peak peaks[N_PEAKS];
	peaks_find(peaks);
	for (long k = 0; k < rounds; k++) {
		for (int i = 0; i < N_FMA_PEAKS; i++)
			rates[i] = fmax(rates[i], peaks[i].available ? time_peak(&peaks[i]) : 0);
		for (int i = 0; i < n_rows; i++)
			rows[i].seconds[k] = call_many(&rows[i], rows[i].calls) / (double)rows[i].calls;
	}
	for (int i = 0; i < N_FMA_PEAKS; i++)
		if (peaks[i].available)
			printf("%-17s %7.1f GFLOP/s\n", peaks[i].name, rates[i] * 1e-9);
}

static void print_row(struct row *r, const struct row *first, long rounds, double peak)
{
	double flops = 2.0 * (double)r->m * (double)r->n * (double)r->k;
	qsort(r->seconds, (size_t)rounds, sizeof(double), compare);
	double best = flops / r->seconds[0], median = flops / r->seconds[rounds / 2];
	printf("%4lldx%lldx%-6lld %-22s %9.1f %9.1f %6.0f %% %10.1e\n", (long long)r->m, (long long)r->n,
	       (long long)r->k, r->field[FIELD_LABEL], best * 1e-9, median * 1e-9, 100 * best / peak,
	       difference(r, first));
}

int main(int argc, char **argv)
{
	static struct row rows[MAX_ROWS];
	double rates[N_PEAKS] = {0};
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	int n = argc - 2;
	if (rounds < 1 || rounds > MAX_ROUNDS || n < 1 || n > MAX_ROWS) {
		fprintf(stderr, "usage: tfmc_languages ROUNDS ROW..., see languages.sh\n");
		return 2;
	}
	for (int i = 0; i < n; i++) {
		if (!split_row(argv[i + 2], &rows[i]))
			return fprintf(stderr, "tfmc_languages: not a row: %s\n", argv[i + 2]), 2;
		open_row(&rows[i]);
	}
	measure(rows, n, rounds, rates);
	printf("%-16s %-22s %9s %9s %8s %10s\n", "M x N x K", "language", "GFLOP/s", "median", "of peak",
	       "difference");
	int first = 0;
	for (int i = 0; i < n; i++) {
		if (rows[i].m != rows[first].m || rows[i].n != rows[first].n || rows[i].k != rows[first].k)
			first = i;
		print_row(&rows[i], &rows[first], rounds, rates[rows[i].peak]);
	}
	return 0;
}
