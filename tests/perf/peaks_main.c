/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the peaks of this machine, or serves them to compare.sh.
 *
 *	peaks [SECONDS]                 table for 1 .. n threads; SECONDS for each figure (default 0.3)
 *	peaks --serve THREADS BYTES TYPE
 *	                                a line "slice SECONDS" on stdin is answered by "rates FLOPS READ":
 *	                                operations on f32, bf16 or int8 and bytes a second, reading a buffer of BYTES
 */
#define _GNU_SOURCE /* CPU_COUNT */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peaks.h"

#define REPEATS 3 /* the best counts */

static int n_cpus(void)
{
	cpu_set_t all;
	CPU_ZERO(&all);
	sched_getaffinity(0, sizeof(all), &all);
	return CPU_COUNT(&all);
}

/* Bytes of a data cache of that level as the system's tables have it, or a guess where they say nothing. */
static size_t cache_bytes(int level, size_t guess)
{
	char path[96], text[64];
	for (int i = 0; i < 8; i++) {
		unsigned long size = 0, found = 0;
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
		FILE *f = fopen(path, "r");
		if (!f)
			break;
		if (fgets(text, sizeof(text), f))
			found = strtoul(text, NULL, 10);
		fclose(f);
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
		f = fopen(path, "r");
		if (f && fgets(text, sizeof(text), f))
			size = strtoul(text, NULL, 10);
		if (f)
			fclose(f);
		if (size && found == (unsigned long)level)
			return size << 10;
	}
	return guess;
}

static void print_flops(const struct peak *peak, int n_threads, double seconds)
{
	printf("%-22s", peak->name);
	for (int n = 1; n <= n_threads; n++) {
		double best = 0;
		for (int k = 0; peak->available && k < REPEATS; k++) {
			double r = peaks_flops(peak, n, seconds);
			best = r > best ? r : best;
		}
		if (peak->available)
			printf(" %10.1f", best * 1e-9);
		else
			printf(" %10s", "-");
	}
	printf("  GFLOP/s\n");
}

/* bytes: of each thread's buffer, or of all together. */
static void print_read(const char *name, size_t bytes, int each, int n_threads, double seconds)
{
	printf("%-22s", name);
	for (int n = 1; n <= n_threads; n++) {
		double best = 0;
		for (int k = 0; k < REPEATS; k++) {
			double r = peaks_read_rate(each ? bytes * (size_t)n : bytes, n, seconds);
			best = r > best ? r : best;
		}
		printf(" %10.1f", best * 1e-9);
	}
	printf("  GB/s, %zu KiB%s\n", bytes >> 10, each ? " a thread" : " in all");
}

static void print_all(double seconds)
{
	struct peak peaks[N_PEAKS];
	int n = n_cpus();
	peaks_find(peaks);
	printf("%-22s", "threads");
	for (int i = 1; i <= n; i++)
		printf(" %10d", i);
	printf("\n");
	print_flops(&peaks[PEAK_SSE2], n, seconds);
	print_flops(&peaks[PEAK_AVX2], n, seconds);
	print_flops(&peaks[PEAK_AVX512], n, seconds);
	for (int i = PEAK_BF16; i < N_PEAKS; i++)
		print_flops(&peaks[i], n, seconds);
	size_t l1 = cache_bytes(1, 32u << 10);
	size_t l2 = cache_bytes(2, 512u << 10);
	size_t l3 = cache_bytes(3, 16u << 20);
	print_read("read L1", l1 / 2, 1, n, seconds);
	print_read("read L2", l2 / 4 * 3, 1, n, seconds);
	print_read("read L3", l3 / 2, 0, n, seconds);
	print_read("read memory", l3 * 16 < (512u << 20) ? 512u << 20 : l3 * 16, 0, n, seconds);
}

static void serve(int n_threads, size_t bytes, const char *type)
{
	struct peak peaks[N_PEAKS];
	char line[128];
	peaks_find(peaks);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		const size_t enough = 256u << 20;
		double seconds = strncmp(line, "slice ", 6) ? 0.01 : strtod(line + 6, NULL);
		double flops = peaks_flops(peaks_best(peaks, type), n_threads, seconds / 2);
		double read = peaks_read_rate(bytes < enough ? bytes : enough, n_threads, seconds / 2);
		printf("rates %.6g %.6g\n", flops, read);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "--serve")) {
		serve((int)strtol(argv[2], NULL, 10), (size_t)strtoull(argv[3], NULL, 10), argv[4]);
		return 0;
	}
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 0.3;
	if (argc > 2 || seconds <= 0) {
		fprintf(stderr, "usage: peaks [SECONDS] | peaks --serve THREADS BYTES TYPE\n");
		return 2;
	}
	print_all(seconds);
	return 0;
}
