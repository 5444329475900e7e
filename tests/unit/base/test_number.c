/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers to text and back: known spellings, random round trips, correct
 * rounding against the C library, refusals, and independence of the locale.
 */
#include <check.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/number.h"

static void expect_bytes(uint64_t bytes, const char *text)
{
	char out[NUMBER_TEXT_MAX];
	ck_assert_uint_eq(number_print_bytes(out, bytes), strlen(text));
	ck_assert_str_eq(out, text);
}

START_TEST(bytes)
{
	uint64_t v;
	expect_bytes(0, "0 bytes");
	expect_bytes(999, "999 bytes");
	expect_bytes(1000, "1.0 kB");
	expect_bytes(1001, "1.1 kB");
	expect_bytes(999999, "1.0 MB");
	expect_bytes(549755813632, "549.8 GB");
	expect_bytes(UINT64_MAX, "18.5 EB");
	ck_assert(number_parse_bytes("17", 2, &v) && v == 17);
	ck_assert(number_parse_bytes("2.5M", 4, &v) && v == 2500000);
	ck_assert(number_parse_bytes("4kB", 3, &v) && v == 4000);
	ck_assert(number_parse_bytes("1E", 2, &v) && v == 1000000000000000000);
	static const char *const wrong[] = {"",    "B",   "k",   "kB",  "0",   "-1",
	                                    "nan", "1 k", "1kk", "10E", "1e30"};
	for (size_t i = 0; i < TFMC_COUNT(wrong); i++)
		ck_assert_msg(!number_parse_bytes(wrong[i], strlen(wrong[i]), &v), "%s", wrong[i]);
}
END_TEST

Suite *suite_number(void);

static void check_f64(double v, const char *text)
{
	char out[NUMBER_TEXT_MAX];
	ck_assert_uint_eq(number_print_f64(out, v), strlen(text));
	ck_assert_str_eq(out, text);
}

START_TEST(spellings)
{
	char out[NUMBER_TEXT_MAX];
	check_f64(0.125, "0.125");
	check_f64(1, "1.0");
	check_f64(1e-5, "1e-05");
	check_f64(16, "16.0");
	check_f64(123456, "123456.0");
	check_f64(-0.0, "-0.0");
	check_f64(0.0001, "0.0001");
	check_f64(1e15, "1000000000000000.0");
	check_f64(1e16, "1e+16");
	check_f64(1.5e300, "1.5e+300");
	check_f64(-2.5, "-2.5");
	check_f64(5e-324, "5e-324");
	check_f64(0.1, "0.1");
	check_f64(1.7976931348623157e308, "1.7976931348623157e+308");
	check_f64((double)INFINITY, "inf");
	check_f64(-(double)INFINITY, "-inf");
	check_f64((double)NAN, "nan");
	number_print_f32(out, 0.1f);
	ck_assert_str_eq(out, "0.1");
	number_print_f32(out, 1e-12f);
	ck_assert_str_eq(out, "1e-12");
	number_print_f32(out, 3.4028235e38f);
	ck_assert_str_eq(out, "3.4028235e+38");
}
END_TEST

static uint64_t next_random(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void check_round_trips(void)
{
	uint64_t state = 88172645463325252u;
	for (int i = 0; i < 100000; i++) {
		char out[NUMBER_TEXT_MAX];
		uint64_t bits = next_random(&state), back_bits;
		uint32_t bits32 = (uint32_t)bits, back32;
		double v, back;
		float f, back_f;
		memcpy(&v, &bits, sizeof(v));
		memcpy(&f, &bits32, sizeof(f));
		if (!isnan(v)) {
			ck_assert(number_parse_f64(out, number_print_f64(out, v), &back));
			memcpy(&back_bits, &back, sizeof(back_bits));
			ck_assert_msg(bits == back_bits, "%s", out);
		}
		if (!isnan(f)) {
			ck_assert(number_parse_f64(out, number_print_f32(out, f), &back));
			back_f = (float)back;
			memcpy(&back32, &back_f, sizeof(back32));
			ck_assert_msg(bits32 == back32, "%s", out);
		}
	}
}

START_TEST(round_trips)
{
	check_round_trips();
}
END_TEST

/* Some locales write 1,5; where none is installed the test says nothing. */
START_TEST(locale_does_not_matter)
{
	static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"};
	double v;
	for (size_t i = 0; i < TFMC_COUNT(names); i++)
		setlocale(LC_ALL, names[i]);
	check_f64(0.125, "0.125");
	ck_assert(number_parse_f64("0.125", 5, &v) && v == 0.125);
	ck_assert(!number_parse_f64("0,125", 5, &v));
	setlocale(LC_ALL, "C");
}
END_TEST

static void check_parse(const char *text)
{
	double v;
	ck_assert_msg(number_parse_f64(text, strlen(text), &v), "%s", text);
	double want = strtod(text, NULL);
	ck_assert_msg(memcmp(&v, &want, sizeof(v)) == 0, "%s", text);
}

START_TEST(correct_rounding)
{
	char text[1200];
	check_parse("9007199254740993");
	check_parse("9007199254740992.99999999999999999999");
	check_parse("1.00000000000000011102230246251565404236316680908203125");
	check_parse("1.00000000000000011102230246251565404236316680908203126");
	check_parse("2.2250738585072011e-308");
	check_parse("4.9406564584124654e-324");
	check_parse("1e400");
	check_parse("1e-400");
	check_parse("-0.0");
	check_parse("0000.00001e5");
	memset(text, '0', sizeof(text));
	memcpy(text, "9007199254740993.", 17);
	memcpy(text + 1190, "1", 2);
	check_parse(text);
	memset(text, '3', 1100);
	text[1100] = '\0';
	check_parse(text);
}
END_TEST

START_TEST(refusals)
{
	static const char *const bad[] = {"",   "-",  ".5",    "1.",  "1e",       "1e+", "e5",  "0x10", "1_0",
	                                  " 1", "1 ", "1.5.2", "--1", "infinity", "1,5", "NaN", "1e5x"};
	double v;
	int64_t i;
	for (size_t k = 0; k < TFMC_COUNT(bad); k++)
		ck_assert_msg(!number_parse_f64(bad[k], strlen(bad[k]), &v), "%s", bad[k]);
	ck_assert(!number_parse_i64("", 0, &i));
	ck_assert(!number_parse_i64("-", 1, &i));
	ck_assert(!number_parse_i64("0x", 2, &i));
	ck_assert(!number_parse_i64("12a", 3, &i));
	ck_assert(!number_parse_i64("9223372036854775808", 19, &i));
	ck_assert(!number_parse_i64("-9223372036854775809", 20, &i));
}
END_TEST

START_TEST(integers)
{
	int64_t i = 0;
	ck_assert(number_parse_i64("-9223372036854775808", 20, &i) && i == INT64_MIN);
	ck_assert(number_parse_i64("9223372036854775807", 19, &i) && i == INT64_MAX);
	ck_assert(number_parse_i64("0x7fffffffffffffff", 18, &i) && i == INT64_MAX);
	ck_assert(number_parse_i64("-0xA", 4, &i) && i == -10);
	ck_assert(number_parse_i64("0", 1, &i) && i == 0);
}
END_TEST

Suite *suite_number(void)
{
	Suite *s = suite_create("number");
	TCase *t = tcase_create("number");
	tcase_set_timeout(t, 60);
	tcase_add_test(t, spellings);
	tcase_add_test(t, round_trips);
	tcase_add_test(t, locale_does_not_matter);
	tcase_add_test(t, correct_rounding);
	tcase_add_test(t, refusals);
	tcase_add_test(t, integers);
	tcase_add_test(t, bytes);
	suite_add_tcase(s, t);
	return s;
}
