/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the short run of the tests saves: `tests/run.sh --all` sets TFMC_ALL.
 */
#ifndef TFMC_TESTS_SUPPORT_EFFORT_H
#define TFMC_TESTS_SUPPORT_EFFORT_H

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

#endif
