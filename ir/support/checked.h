/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic for sizes and dimensions: false on overflow, *out is then unchanged. */
#ifndef TFMC_IR_SUPPORT_CHECKED_H
#define TFMC_IR_SUPPORT_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/support/compiler.h"

TFMC_MUST_USE bool checked_add_i64(int64_t a, int64_t b, int64_t *out);
TFMC_MUST_USE bool checked_sub_i64(int64_t a, int64_t b, int64_t *out);
TFMC_MUST_USE bool checked_mul_i64(int64_t a, int64_t b, int64_t *out);
TFMC_MUST_USE bool checked_add_size(size_t a, size_t b, size_t *out);
TFMC_MUST_USE bool checked_mul_size(size_t a, size_t b, size_t *out);
/* Rounds up to a multiple of align, a power of two. */
TFMC_MUST_USE bool checked_round_up_i64(int64_t a, int64_t align, int64_t *out);
/* Product of n non-negative factors (1 for n = 0). */
TFMC_MUST_USE bool checked_product_i64(const int64_t *factors, size_t n, int64_t *out);
/* Greatest common divisor, >= 0; gcd(0, b) = |b|. Neither may be INT64_MIN. */
int64_t gcd_i64(int64_t a, int64_t b);

#endif
