/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the unit suites named on the command line (all without arguments).
 * The suites are the rows of suites.def.
 */
#define _DEFAULT_SOURCE
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SUITE(name) Suite *suite_##name(void);
#include "tests/unit/suites.def"
#undef SUITE

struct suite_row {
	const char *name;
	Suite *(*make)(void);
};

static const struct suite_row suites[] = {
#define SUITE(name) {#name, suite_##name},
#include "tests/unit/suites.def"
#undef SUITE
};
#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

#ifdef CHECK_IS_STATIC
/*
 * Check writes the place of each assertion that holds to a file, for the message when the test crashes or hangs behind
 * it: a system call each, of millions. Here the test's process keeps the last place in memory that it shares with
 * Check's, which writes it down when the test has ended without a failure of its own (ld --wrap: check_msg.h has no
 * public header).
 */
struct place {
	const char *file; /* of this program, which the test's process is a fork of */
	int line;
	bool has_failed; /* the test said where */
};
static struct place *last;

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __real_send_failure_info(const char *message);
void __wrap_send_failure_info(const char *message);
TestResult *__real_receive_test_result(int has_crashed);
TestResult *__wrap_receive_test_result(int has_crashed);
void __real_tcase_fn_start(const char *name, const char *file, int line);
void __wrap_tcase_fn_start(const char *name, const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
	last->file = file;
	last->line = line;
}

void __wrap_send_failure_info(const char *message)
{
	last->has_failed = true;
	__real_send_failure_info(message);
}

TestResult *__wrap_receive_test_result(int has_crashed)
{
	if (last->file && !last->has_failed)
		__real__mark_point(last->file, last->line);
	*last = (struct place){0};
	return __real_receive_test_result(has_crashed);
}

/* A place in a fixture is not one of the test that begins. */
void __wrap_tcase_fn_start(const char *name, const char *file, int line)
{
	*last = (struct place){0};
	__real_tcase_fn_start(name, file, line);
}

static bool share_places(void)
{
	last = mmap(NULL, sizeof(*last), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return last != MAP_FAILED;
}
#else
static bool share_places(void)
{
	return true;
}
#endif

static const struct suite_row *find(const char *name)
{
	for (size_t i = 0; i < N_SUITES; i++)
		if (!strcmp(suites[i].name, name))
			return &suites[i];
	return NULL;
}

int main(int argc, char **argv)
{
	if (!share_places())
		return 2;
	SRunner *runner = srunner_create(NULL);
	for (size_t i = 0; argc < 2 && i < N_SUITES; i++)
		srunner_add_suite(runner, suites[i].make());
	for (int i = 1; i < argc; i++) {
		const struct suite_row *row = find(argv[i]);
		if (!row) {
			fprintf(stderr, "no suite named %s\n", argv[i]);
			return 2;
		}
		srunner_add_suite(runner, row->make());
	}
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
	srunner_free(runner);
	if (run == 0)
		fprintf(stderr, "nothing was run: CK_RUN_CASE names a case, as tcase_create does\n");
	return failed || run == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
