/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked arithmetic against 128-bit products, and that results are left
 * alone on overflow.
 */
#include <check.h>
#include <stdint.h>

#include "ir/support/checked.h"

__extension__ typedef __int128 wide_int;

Suite *suite_checked(void);

START_TEST(edges)
{
	int64_t r = 5;
	size_t z = 5;
	ck_assert(!checked_add_i64(INT64_MAX, 1, &r) && r == 5);
	ck_assert(!checked_sub_i64(INT64_MIN, 1, &r) && r == 5);
	ck_assert(!checked_mul_i64(INT64_MIN, -1, &r) && r == 5);
	ck_assert(checked_add_i64(INT64_MAX, -1, &r) && r == INT64_MAX - 1);
	ck_assert(!checked_add_size(SIZE_MAX, 1, &z) && z == 5);
	ck_assert(!checked_mul_size(SIZE_MAX / 2, 3, &z) && z == 5);
	ck_assert(checked_mul_size(SIZE_MAX / 2, 2, &z) && z == SIZE_MAX - 1);
}
END_TEST

START_TEST(greatest_common_divisor)
{
	ck_assert_int_eq(gcd_i64(12, 18), 6);
	ck_assert_int_eq(gcd_i64(0, -7), 7);
	ck_assert_int_eq(gcd_i64(-8, 12), 4);
	ck_assert_int_eq(gcd_i64(0, 0), 0);
}
END_TEST

START_TEST(rounding_up)
{
	int64_t r = -1;
	ck_assert(checked_round_up_i64(0, 64, &r) && r == 0);
	ck_assert(checked_round_up_i64(1, 64, &r) && r == 64);
	ck_assert(checked_round_up_i64(64, 64, &r) && r == 64);
	ck_assert(!checked_round_up_i64(INT64_MAX, 2, &r));
	ck_assert(!checked_round_up_i64(1, 3, &r));
	ck_assert(!checked_round_up_i64(1, 0, &r));
}
END_TEST

START_TEST(products)
{
	int64_t r = 9;
	ck_assert(checked_product_i64(NULL, 0, &r) && r == 1);
	ck_assert(checked_product_i64((int64_t[]){3, 5, 7}, 3, &r) && r == 105);
	ck_assert(checked_product_i64((int64_t[]){INT64_MAX, INT64_MAX, 0}, 3, &r) && r == 0);
	ck_assert(!checked_product_i64((int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}, 2, &r));
	ck_assert(!checked_product_i64((int64_t[]){0, -1}, 2, &r));
}
END_TEST

START_TEST(random_products)
{
	uint64_t x = 88172645463325252u;
	for (int i = 0; i < 100000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		int64_t a = (int64_t)x >> (x % 60), b = (int64_t)(x * 7919) >> (x % 59), r = 0;
		wide_int wide = (wide_int)a * b;
		bool fits = wide >= INT64_MIN && wide <= INT64_MAX;
		ck_assert(checked_mul_i64(a, b, &r) == fits);
		ck_assert(!fits || r == (int64_t)wide);
	}
}
END_TEST

Suite *suite_checked(void)
{
	Suite *s = suite_create("checked");
	TCase *t = tcase_create("checked");
	tcase_add_test(t, edges);
	tcase_add_test(t, greatest_common_divisor);
	tcase_add_test(t, rounding_up);
	tcase_add_test(t, products);
	tcase_add_test(t, random_products);
	suite_add_tcase(s, t);
	return s;
}
