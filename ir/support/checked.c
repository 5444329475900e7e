/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic by the overflow builtins of GCC and clang. */
#include "ir/support/checked.h"

bool checked_add_i64(int64_t a, int64_t b, int64_t *out)
{
	int64_t r;
	if (__builtin_add_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

bool checked_sub_i64(int64_t a, int64_t b, int64_t *out)
{
	int64_t r;
	if (__builtin_sub_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

bool checked_mul_i64(int64_t a, int64_t b, int64_t *out)
{
	int64_t r;
	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

bool checked_add_size(size_t a, size_t b, size_t *out)
{
	size_t r;
	if (__builtin_add_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

bool checked_mul_size(size_t a, size_t b, size_t *out)
{
	size_t r;
	if (__builtin_mul_overflow(a, b, &r))
		return false;
	*out = r;
	return true;
}

/* False also if align is no power of two. */
bool checked_round_up_i64(int64_t a, int64_t align, int64_t *out)
{
	int64_t r;
	if (align <= 0 || (align & (align - 1)) != 0)
		return false;
	if (!checked_add_i64(a, align - 1, &r))
		return false;
	*out = r & ~(align - 1);
	return true;
}

/* 0 if a factor is 0, even if the others would overflow. False if one is negative. */
bool checked_product_i64(const int64_t *factors, size_t n, int64_t *out)
{
	int64_t r = 1;
	bool zero = false;
	for (size_t i = 0; i < n; i++) {
		if (factors[i] < 0)
			return false;
		zero = zero || factors[i] == 0;
	}
	for (size_t i = 0; i < n && !zero; i++) {
		if (!checked_mul_i64(r, factors[i], &r))
			return false;
	}
	*out = zero ? 0 : r;
	return true;
}

/* Euclid's algorithm; remainders have the sign of the dividend, so the last one may be negative. */
int64_t gcd_i64(int64_t a, int64_t b)
{
	while (b != 0) {
		int64_t r = a % b;
		a = b;
		b = r;
	}
	return a < 0 ? -a : a;
}
