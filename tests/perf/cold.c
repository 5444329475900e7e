/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the start of a process to its first result: a linked application on a
 * model of make_encoder.py, weights mapped from a file. cold.sh compiles it
 * with MODEL_HEADER, MODEL and LENGTH.
 *
 *	cold WEIGHTS [N]      starts itself N times (default 20): least and median time, in ms
 *	cold WEIGHTS -1       the application: one sequence of LENGTH ids, one byte to stdout when the result is
 *	                      there
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tfmc_rt.h"

#include MODEL_HEADER

#define MAX_RUNS 1000

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int application(const char *weights)
{
	static int32_t ids[LENGTH];
	struct tfmc_model model = MODEL();
	const struct tfmc_record *r = model.record;
	int64_t dims[16] = {0};
	struct tfmc_session_options o = {.struct_size = sizeof(o), .weights_path = weights, .batch = 1};
	struct tfmc_session *session;
	for (uint64_t i = 0; i < r->n_dims && i < 16; i++)
		dims[i] = strcmp(tfmc_record_text(r, tfmc_record_dim_at(r, i)->name), "S") ? 1 : LENGTH;
	for (int i = 0; i < LENGTH; i++)
		ids[i] = (i * 37 + 5) % 1000;
	o.dims_max = dims;
	int status = tfmc_session_open(&model, &o, &session);
	if (status == TFMC_RT_OK) {
		int64_t n = tfmc_tensor_count(r, tfmc_entry_output(r, 0, 0), dims);
		struct tfmc_buffer in[2] = {{ids, LENGTH}};
		struct tfmc_buffer out = {malloc((size_t)n * sizeof(float)), (uint64_t)n};
		status = tfmc_session_call(session, 0, dims, in, &out);
	}
	if (status != TFMC_RT_OK) {
		fprintf(stderr, "cold: %s\n", tfmc_rt_status_text(status));
		return 1;
	}
	return write(STDOUT_FILENO, "r", 1) == 1 ? 0 : 1;
}

/* Seconds from before fork to the byte; negative: it failed. */
static double start_once(const char *self, const char *weights)
{
	int ends[2];
	char byte;
	if (pipe(ends))
		return -1;
	double start = now();
	pid_t child = fork();
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(self, self, weights, "-1", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	double seconds = read(ends[0], &byte, 1) == 1 ? now() - start : -1;
	close(ends[0]);
	int status = 0;
	if (waitpid(child, &status, 0) != child || status)
		return -1;
	return seconds;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static double seconds[MAX_RUNS];
	long n = argc > 2 ? strtol(argv[2], NULL, 10) : 20;
	if (argc < 2 || argc > 3 || n < -1 || n == 0 || n > MAX_RUNS) {
		fprintf(stderr, "usage: cold WEIGHTS [N]\n");
		return 2;
	}
	if (n == -1)
		return application(argv[1]);
	(void)start_once(argv[0], argv[1]); /* the files are in memory then */
	for (long i = 0; i < n; i++) {
		seconds[i] = start_once(argv[0], argv[1]);
		if (seconds[i] < 0) {
			fprintf(stderr, "cold: the application failed\n");
			return 1;
		}
	}
	qsort(seconds, (size_t)n, sizeof(double), compare);
	printf("process start to first result  %8.2f ms least, %.2f median, %ld starts\n", seconds[0] * 1e3,
	       seconds[n / 2] * 1e3, n);
	return 0;
}
