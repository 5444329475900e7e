/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: functions of real numbers with the same bits on every
 * machine: IEEE double in a fixed order, no library function. Files that use
 * them are compiled without contraction of a * b + c (CMakeLists.txt).
 */
#ifndef TFMC_RUNTIME_GENERATE_REAL_H
#define TFMC_RUNTIME_GENERATE_REAL_H

/* e^x for x <= 0, to about 1 ulp; 0 below -708. */
double real_exp(double x);
/* Natural logarithm of a normal number x > 0, to about 1 ulp. */
double real_log(double x);

#endif
