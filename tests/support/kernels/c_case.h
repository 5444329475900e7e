/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small kernels printed as one file of portable C, compiled by every compiler
 * and for every processor at hand, loaded, and compared byte for byte with the
 * kernel interpreter. All kernels of a test are one file: compilers start slowly.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_C_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_C_CASE_H

#include "tests/support/kernels/llvm_case.h"

/* Fails the running test where a compiler and the interpreter differ. `functions` may be set in one case
 * only. */
void c_case_check(const struct llvm_case *cases, size_t n);

#endif
