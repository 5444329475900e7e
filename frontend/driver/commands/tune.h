/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc tune: the choice among tile sizes by times measured in alternation.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_TUNE_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_TUNE_H

#include <stddef.h>

#define TUNE_GAIN  0.03 /* least relative gain over the default size */
#define TUNE_TIMES 3    /* of 4 rounds, at least, that must show it */

/*
 * seconds: [n_rounds][n], n >= 1 candidates; candidate 0 is the default of the cost model. Returns the one with the
 * least time among those that gain TUNE_GAIN over candidate 0, both in their least time and in TUNE_TIMES of 4 rounds;
 * 0 when there is none.
 */
size_t tune_choose(const double *seconds, size_t n_rounds, size_t n);
/* The least time of a candidate. n_rounds >= 1. */
double tune_least(const double *seconds, size_t n_rounds, size_t n, size_t candidate);

#endif
