/* SPDX-License-Identifier: Apache-2.0 */
/* Which sizes tune takes: another one has to win clearly and nearly always. */
#include <check.h>

#include "frontend/driver/commands/tune.h"

Suite *suite_tune(void);

START_TEST(takes_what_wins)
{
	const double all[] = {1.0, 0.9, 0.8, 1.1, 0.95, 0.82, 1.0, 0.9, 0.81, 1.0, 0.9, 0.9};
	ck_assert_uint_eq(tune_choose(all, 4, 3), 2);
	ck_assert_double_eq(tune_least(all, 4, 3, 1), 0.9);
	/* The same without the best one. */
	const double less[] = {1.0, 0.9, 1.1, 0.95, 1.0, 0.9, 1.0, 0.9};
	ck_assert_uint_eq(tune_choose(less, 4, 2), 1);
}
END_TEST

START_TEST(keeps_what_is_as_good)
{
	/* A little faster, always. */
	const double close[] = {1.0, 0.98, 1.0, 0.98, 1.0, 0.98, 1.0, 0.98};
	ck_assert_uint_eq(tune_choose(close, 4, 2), 0);
	/* Much faster, but in two rounds of four. */
	const double seldom[] = {1.0, 0.5, 1.0, 0.5, 1.0, 1.0, 1.0, 1.2};
	ck_assert_uint_eq(tune_choose(seldom, 4, 2), 0);
	/* Faster in three rounds, in which something else kept the machine busy: the least times are the same. */
	const double busy[] = {1.0, 1.0, 2.0, 1.2, 2.0, 1.2, 2.0, 1.2};
	ck_assert_uint_eq(tune_choose(busy, 4, 2), 0);
	ck_assert_uint_eq(tune_choose(close, 4, 1), 0);
	ck_assert_uint_eq(tune_choose(NULL, 0, 2), 0);
}
END_TEST

Suite *suite_tune(void)
{
	Suite *s = suite_create("tune");
	TCase *c = tcase_create("choice");
	tcase_add_test(c, takes_what_wins);
	tcase_add_test(c, keeps_what_is_as_good);
	suite_add_tcase(s, c);
	return s;
}
