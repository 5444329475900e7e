/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of the ranks of an MPI job (mpi.sh): microseconds for 4, 16, 64 and 256 KB, in the window and by messages.
 *
 *	mpi TRANSPORT     window, messages
 */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/abi.h"
#include "runtime/mpi/tfmc_mpi.h"

#define MAX_COUNT 65536
#define WARM      200
#define SUMS      3000

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + 1e-3 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static float x[MAX_COUNT], out[MAX_COUNT];
	static double us[SUMS];
	struct tfmc_mpi_options options = {.struct_size = sizeof(options)};
	struct tfmc_mpi *mpi;
	options.messages_only = argc > 1 && !strcmp(argv[1], "messages");
	if (tfmc_mpi_open(&options, &mpi))
		return 1;
	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi);
	for (uint64_t count = 1024; count <= MAX_COUNT; count *= 4) {
		for (int i = -WARM; i < SUMS; i++) {
			for (uint64_t k = 0; k < count; k++) /* the vector was just computed */
				x[k] = (float)k + (float)i;
			double start = now_us();
			ranks->sum(ranks->user, x, out, count, ranks->n, count, 0, 1);
			if (i >= 0)
				us[i] = now_us() - start;
		}
		if (ranks->status(ranks->user)) {
			fprintf(stderr, "%s\n", tfmc_mpi_error(mpi));
			return 1;
		}
		qsort(us, SUMS, sizeof(us[0]), compare);
		if (ranks->rank == 0)
			printf("%2d ranks %-8s %4d KB  min %7.2f  median %7.2f  p90 %7.2f us\n",
			       (int)ranks->n, argc > 1 ? argv[1] : "window", (int)(count / 256), us[0],
			       us[SUMS / 2], us[SUMS * 9 / 10]);
	}
	tfmc_mpi_close(mpi);
	return 0;
}
