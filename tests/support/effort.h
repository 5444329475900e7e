/* SPDX-License-Identifier: Apache-2.0 */
/*
* Effort of the short run of the tests: `tests/run.sh --all` sets TFMC_ALL.
 */
#ifndef TFMC_TESTS_SUPPORT_EFFORT_H
#define TFMC_TESTS_SUPPORT_EFFORT_H

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

static inline bool effort_is_all(void)
{
	return getenv("TFMC_ALL") != NULL;
}

/* Of code generation: without optimization it takes a third of the time, and the kernels compute the same. */
static inline int effort_of_code(void)
{
	return effort_is_all() ? 2 : 0;
}

/* Adds cases 0 to n - 1 of a loop test with --all, every `stride`-th otherwise. Cases are pairs (configuration, target)
 * in row-major order: a stride that shares no factor with the number of targets leaves no target and, where it is below
 * that number, no configuration out. */
#define effort_add_loop(tcase, test, n, stride)                                           \
	do {                                                                              \
		for (int case_ = 0; case_ < (n); case_ += effort_is_all() ? 1 : (stride)) \
			tcase_add_loop_test(tcase, test, case_, case_ + 1);               \
	} while (0)

#endif
