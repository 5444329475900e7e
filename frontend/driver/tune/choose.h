/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of several sizes is taken, by times that were measured in turns.
 */
#ifndef TFMC_FRONTEND_DRIVER_TUNE_CHOOSE_H
#define TFMC_FRONTEND_DRIVER_TUNE_CHOOSE_H

#include <stddef.h>

#define TUNE_GAIN  0.03 /* part of the time that another size must gain, at least */
#define TUNE_TIMES 3    /* of 4 rounds at least, in which it does */

/*
 * seconds: [n_rounds][n], of candidate 0, which is what the model of the target says, and of others. Gives the one
 * with the least time among those that gain TUNE_GAIN, in their least time and in TUNE_TIMES of 4 rounds; else 0.
 * n >= 1.
 */
size_t tune_choose(const double *seconds, size_t n_rounds, size_t n);
/* The least time of a candidate. n_rounds >= 1. */
double tune_least(const double *seconds, size_t n_rounds, size_t n, size_t candidate);

#endif
