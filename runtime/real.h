/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: exp, log and log-sum-exp with the same bits on every machine: IEEE double in a fixed order, no
 * libm. The files that use them are compiled without contraction of a * b + c to fma (CMakeLists.txt).
 */
#ifndef TFMC_RUNTIME_REAL_H
#define TFMC_RUNTIME_REAL_H

#include <stdint.h>

/* e^x for x <= 0, to about 1 ulp; 0 below -708. */
double real_exp(double x);
/* Natural logarithm of a normal x > 0, to about 1 ulp. */
double real_log(double x);
/* log of the sum of e^logits[i]: log p(id) is logits[id] minus *out. TFMC_RT_E_LOGITS for NaN, +infinity, and when all
 * are -infinity. */
int log_sum_exp(const float *logits, int64_t vocab, double *out);

#endif
