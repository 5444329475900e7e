/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions in kernel IR, f32, any number of lanes. They call no library, so every back end computes the
 * same bits. Maximum errors in ulp of the exact result, with fma, as tests/unit/kernels/test_kernel_math.c asserts
 * them:
 *
 *   exp, exp2, log, 1/sqrt    1.5 (log near 1: 2.5)    all x; subnormal results to one ulp
 *   exp, exp2 for x <= 0      1.5                      results below 2^-126 to one subnormal ulp, or 0
 *   tanh, erf                 2.5                      all x
 *   sigmoid, silu             3                        x >= -88; below that 0
 *   gelu                      4; in [-5, 0] 40         absolute error below 1e-6 of x everywhere
 *   gelu_tanh, gelu_quick     6 and 40                 dominated by the rounding of the argument of exp
 *   sin, cos                  2; near zeros 1e-3 rel.  |x| < 2^15
 *   pow                       relative 4e-6            sign rules of IEEE 754
 */
#ifndef TFMC_BACKENDS_KB_MATH_H
#define TFMC_BACKENDS_KB_MATH_H

#include "backends/kb/kb.h"

/* c in the lanes of x. */
struct kb_val math_const(struct kb *k, struct kb_val x, float c);

/* For x <= 0 (softmax): results below 2^-126 are subnormal or 0; -inf gives 0, NaN gives NaN. */
struct kb_val math_exp_nonpositive(struct kb *k, struct kb_val x);
/* 2^x for x <= 0, as math_exp_nonpositive. */
struct kb_val math_exp2_nonpositive(struct kb *k, struct kb_val x);

/* The functions of these names, for all x unless a domain is given; NaN gives NaN. Errors: see above. */
struct kb_val math_exp(struct kb *k, struct kb_val x);
struct kb_val math_log(struct kb *k, struct kb_val x);
struct kb_val math_sin(struct kb *k, struct kb_val x); /* |x| < 2^15 */
struct kb_val math_cos(struct kb *k, struct kb_val x); /* |x| < 2^15 */
struct kb_val math_tanh(struct kb *k, struct kb_val x);
struct kb_val math_erf(struct kb *k, struct kb_val x);
struct kb_val math_rsqrt(struct kb *k, struct kb_val x);
struct kb_val math_sigmoid(struct kb *k, struct kb_val x);
struct kb_val math_relu(struct kb *k, struct kb_val x);
struct kb_val math_gelu(struct kb *k, struct kb_val x);
struct kb_val math_gelu_tanh(struct kb *k, struct kb_val x);
struct kb_val math_gelu_quick(struct kb *k, struct kb_val x);
struct kb_val math_silu(struct kb *k, struct kb_val x);
/* a^b with the sign rules of IEEE 754 for a < 0 and a = 0. */
struct kb_val math_pow(struct kb *k, struct kb_val a, struct kb_val b);
/* NaN if either operand is NaN; also of integers. */
struct kb_val math_min(struct kb *k, struct kb_val a, struct kb_val b);
struct kb_val math_max(struct kb *k, struct kb_val a, struct kb_val b);

/* Table look-up of four indices, the low four bits of each byte, in each I32 lane of words: bytes of the table. */
struct kb_val math_lookup16(struct kb *k, const uint8_t table[16], struct kb_val words);

#endif
