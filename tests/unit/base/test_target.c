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

static const char *chosen(const char *triple, const char *cpu)
{
	const struct target *t;
	switch (target_choose(triple, cpu, &t)) {
	case TARGET_CHOSEN: return t->name;
	case TARGET_NO_TRIPLE: return "no triple";
	case TARGET_NO_CPU: return "no processor";
	case TARGET_NO_NATIVE: return "no native";
	}
	return "";
}

/* A name on the command line is a row, or it is known why not. */
START_TEST(chooses_by_names)
{
	const char *native = target_native() ? target_native()->name : "no native";
	ck_assert_str_eq(chosen("aarch64-linux-gnu", NULL), "aarch64");
	ck_assert_str_eq(chosen("aarch64-unknown-linux-gnu", "aarch64"), "aarch64");
	ck_assert_str_eq(chosen("aarch64-linux-gnu", "x86-64-v2"), "no processor");
	ck_assert_str_eq(chosen("x86_64-linux-gnu", "x86-64-v3"), "x86-64-v3");
	ck_assert_str_eq(chosen("opencl", NULL), "opencl-cpu");
	ck_assert_str_eq(chosen("opencl", "opencl-gpu"), "opencl-gpu");
	ck_assert_str_eq(chosen("opencl-cpu512", NULL), "opencl-cpu512");
	ck_assert_str_eq(chosen("opencl-cpu512", "native"), "no processor");
	ck_assert_str_eq(chosen("aarch64", NULL), "no triple");
	ck_assert_str_eq(chosen("riscv64-linux-gnu", NULL), "no triple");
	ck_assert_str_eq(chosen(NULL, "x86-64-v9"), "no processor");
	ck_assert_str_eq(chosen(NULL, "aarch64"), "aarch64");
	ck_assert_str_eq(chosen(NULL, NULL), native);
	ck_assert_str_eq(chosen("native", "native"), native);
}
END_TEST

/* Every name that is listed can be chosen. */
START_TEST(lists_are_known_names)
{
	struct buf triples, cpus;
	buf_init(&triples);
	buf_init(&cpus);
	target_print_triples(&triples);
	for (char *name = strtok(triples.data, ", "); name; name = strtok(NULL, ", "))
		ck_assert_msg(strncmp(chosen(name, NULL), "no ", 3) || !target_native(), "%s", name);
	target_print_cpus(&cpus, "aarch64-linux-gnu");
	if (!target_native() || target_native()->arch != ARCH_AARCH64)
		ck_assert_str_eq(cpus.data, "aarch64");
	buf_destroy(&triples);
	buf_destroy(&cpus);
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
	tcase_add_test(t, chooses_by_names);
	tcase_add_test(t, lists_are_known_names);
#if defined(__x86_64__)
	tcase_add_test(t, agrees_with_the_compiler);
#endif
	suite_add_tcase(s, t);
	return s;
}
