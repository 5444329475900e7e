/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between f64 and the narrow float formats, and rounding to element types. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/weights/weight.h"

/* Value of a bit pattern: sign, exponent, fraction. */
static double worth(unsigned bits, int exponents, int fraction)
{
	int m = (int)bits & ((1 << fraction) - 1), e = (int)(bits >> fraction) & ((1 << exponents) - 1);
	int bias = (1 << (exponents - 1)) - 1;
	double v = ldexp(e == 0 ? m : m + (1 << fraction), (e == 0 ? 1 : e) - bias - fraction);
	if (e == (1 << exponents) - 1)
		v = m == 0 ? HUGE_VAL : (double)NAN;
	return bits >> 15 ? -v : v;
}

static void expect_worth(double have, double want)
{
	ck_assert(isnan(want) ? isnan(have) : memcmp(&have, &want, sizeof(have)) == 0);
}

START_TEST(converts_every_pattern)
{
	for (unsigned i = 0; i <= 0xffff; i++) {
		expect_worth(f16_to_f64((uint16_t)i), worth(i, 5, 10));
		expect_worth(bf16_to_f64((uint16_t)i), worth(i, 8, 7));
	}
}
END_TEST

START_TEST(converts_half_and_bf16)
{
	/* Every finite pattern comes back; between neighbours the even one wins. */
	for (unsigned i = 0; i < 0x7c00; i++) {
		double v = f16_to_f64((uint16_t)i), next = f16_to_f64((uint16_t)(i + 1));
		ck_assert_uint_eq(f64_to_f16(v), i);
		ck_assert_uint_eq(f64_to_f16(-v), i | 0x8000);
		if (i + 1 < 0x7c00)
			ck_assert_uint_eq(f64_to_f16((v + next) / 2), (i + 1) & ~1u);
	}
	for (unsigned i = 0; i + 1 < 0x7f80; i++) {
		double v = bf16_to_f64((uint16_t)i), next = bf16_to_f64((uint16_t)(i + 1));
		ck_assert_uint_eq(f64_to_bf16(v), i);
		ck_assert_uint_eq(f64_to_bf16((v + next) / 2), (i + 1) & ~1u);
	}
	ck_assert_uint_eq(f64_to_f16(65519), 0x7bff);
	ck_assert_uint_eq(f64_to_f16(65520), 0x7c00);
	ck_assert_uint_eq(f64_to_f16(1e300), 0x7c00);
	ck_assert_uint_eq(f64_to_f16(-1e-300), 0x8000);
	ck_assert_uint_eq(f64_to_f16(-HUGE_VAL), 0xfc00);
	ck_assert(isnan(f16_to_f64(f64_to_f16((double)NAN))));
	ck_assert(isnan(bf16_to_f64(f64_to_bf16((double)NAN))));
}
END_TEST

START_TEST(rounds_to_types)
{
	ck_assert(ir_round(DT_F32, 0.1) == (double)0.1f);
	ck_assert(ir_round(DT_F64, 0.1) == 0.1);
	ck_assert(ir_round(DT_F16, 2049) == 2048);
	ck_assert(ir_round(DT_BF16, 257) == 256);
	ck_assert(ir_round(DT_I8, 200) == 127 && ir_round(DT_I8, -200) == -128);
	ck_assert(ir_round(DT_U8, -3) == 0 && ir_round(DT_U8, 300) == 255);
	ck_assert(ir_round(DT_I16, 40000) == 32767 && ir_round(DT_I16, -40000) == -32768);
	ck_assert(ir_round(DT_I32, 2.5) == 2 && ir_round(DT_I32, 3e9) == 2147483647);
	ck_assert(ir_round(DT_I32, (double)NAN) == 0);
	ck_assert(ir_round(DT_I64, 1e30) == 0x1p63);
	ck_assert(ir_round(DT_BOOL, -0.5) == 1 && ir_round(DT_BOOL, -0.0) == 0);
}
END_TEST

/* A number of the format, one between two of them, and their neighbours among the f64. */
START_TEST(rounds_like_the_bits)
{
	for (unsigned i = 0; i < 0xfffe; i++) {
		uint16_t bits = (uint16_t)i, next = (uint16_t)(i + 1);
		const double values[2][2] = {{f16_to_f64(bits), f16_to_f64(next)},
		                             {bf16_to_f64(bits), bf16_to_f64(next)}};
		for (int f = 0; f < 2; f++) {
			double half_way = (values[f][0] + values[f][1]) / 2;
			const double v[] = {values[f][0], half_way, nextafter(half_way, 0),
			                    nextafter(half_way, HUGE_VAL), nextafter(half_way, -HUGE_VAL)};
			for (size_t k = 0; k < sizeof(v) / sizeof(v[0]) && !isnan(half_way); k++) {
				double want = f == 0 ? f16_to_f64(f64_to_f16(v[k]))
				                     : bf16_to_f64(f64_to_bf16(v[k]));
				double have = ir_round(f == 0 ? DT_F16 : DT_BF16, v[k]);
				ck_assert_msg(memcmp(&have, &want, sizeof(have)) == 0, "%a gives %a, not %a",
				              v[k], have, want);
			}
		}
	}
	ck_assert(isnan(ir_round(DT_F16, (double)NAN)) && isnan(ir_round(DT_BF16, (double)NAN)));
}
END_TEST

Suite *suite_round(void);

Suite *suite_round(void)
{
	Suite *s = suite_create("round");
	TCase *t = tcase_create("all");
	tcase_add_test(t, converts_every_pattern);
	tcase_add_test(t, converts_half_and_bf16);
	tcase_add_test(t, rounds_to_types);
	tcase_add_test(t, rounds_like_the_bits);
	suite_add_tcase(s, t);
	return s;
}
