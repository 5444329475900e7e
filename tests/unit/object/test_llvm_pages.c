/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of the LLVM library that are not in use leave the process, and come back when they are needed.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "backends/backend.h"

Suite *suite_llvm_pages(void);

/* Kilobytes of the library's pages that cannot be written to. */
static long resident(void)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[1024], access[8];
	long sum = 0, kb;
	bool is_library = false;
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*x-%*x %7s", access) == 1)
			is_library = strstr(line, "/libLLVM") && !strcmp(access, "r-xp");
		else if (is_library && sscanf(line, "Rss: %ld kB", &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

START_TEST(come_back)
{
	char version[64];
	snprintf(version, sizeof(version), "%s", backend_llvm_version());
	long before = resident(), after;
	backend_llvm_release();
	after = resident(); /* the headers that say where the others are */
	ck_assert_msg(after < before && after <= 64, "%ld kB of %ld are still there", after, before);
	ck_assert_str_eq(backend_llvm_version(), version);
}
END_TEST

Suite *suite_llvm_pages(void)
{
	Suite *s = suite_create("llvm_pages");
	TCase *t = tcase_create("all");
	tcase_add_test(t, come_back);
	suite_add_tcase(s, t);
	return s;
}
