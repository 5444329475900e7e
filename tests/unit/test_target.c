/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target table and the question what this machine runs.
 */
#include <check.h>
#include <string.h>

#include "ir/target/target.h"

START_TEST(finds_rows)
{
	const struct target *t = target_find("x86-64-v3");
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->lanes, 8);
	ck_assert(t->has_fma);
	ck_assert_ptr_eq(target_at(1), t);
	ck_assert_ptr_null(target_find("x86-64-v9"));
	ck_assert_ptr_null(target_at(1000));
}
END_TEST

/* A level implies the levels below it, and the native row is the highest that runs. */
START_TEST(levels_nest)
{
	bool above = false;
	const struct target *best = NULL;
	for (size_t i = 0; target_at(i); i++) {
		bool runs = target_runs_here(target_at(i));
		ck_assert(!above || !runs);
		above = !runs;
		if (runs)
			best = target_at(i);
	}
	ck_assert_ptr_eq(target_native(), best);
}
END_TEST

#if defined(__x86_64__)
START_TEST(agrees_with_the_compiler)
{
	__builtin_cpu_init();
	ck_assert_int_eq(target_runs_here(target_find("x86-64-v3")), __builtin_cpu_supports("avx2") &&
	                                                                     __builtin_cpu_supports("fma") &&
	                                                                     __builtin_cpu_supports("bmi2"));
	ck_assert_int_eq(target_runs_here(target_find("x86-64-v4")),
	                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
	                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"));
}
END_TEST
#endif

Suite *suite_target(void)
{
	Suite *s = suite_create("target");
	TCase *t = tcase_create("all");
	tcase_add_test(t, finds_rows);
	tcase_add_test(t, levels_nest);
#if defined(__x86_64__)
	tcase_add_test(t, agrees_with_the_compiler);
#endif
	suite_add_tcase(s, t);
	return s;
}
