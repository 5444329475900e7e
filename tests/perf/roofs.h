/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roofs of one core: the f32 multiply-add rate with 256- and 512-bit vectors.
 * Independent accumulators in registers, no memory; measured in the same run
 * as what is compared with them.
 */
#ifndef TFMC_TESTS_PERF_ROOFS_H
#define TFMC_TESTS_PERF_ROOFS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * One way to multiply and add. run(n) does n * flops operations (multiply and add count as two)
 * and returns a number that depends on all of them.
 */
struct roof {
	const char *name;
	double flops;
	float (*run)(int64_t n);
	bool available; /* on this processor */
};

#define N_ROOFS 2
/* Fills roofs[N_ROOFS]: AVX2, AVX-512. */
void roofs_find(struct roof *roofs);

#endif
