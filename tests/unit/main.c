/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the unit suites named on the command line (all without arguments).
 * The suites are the rows of suites.def.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Check writes the place of each assertion that holds to a file, for the message when the test crashes behind
 * it. Most of ours stand in loops: a place that is written already is not written again (ld
 * --wrap=_mark_point). */
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
	static const char *last_file;
	static int last_line;
	if (file == last_file && line == last_line)
		return;
	last_file = file;
	last_line = line;
	__real__mark_point(file, line);
}

static const struct suite_row *find(const char *name)
{
	for (size_t i = 0; i < N_SUITES; i++)
		if (!strcmp(suites[i].name, name))
			return &suites[i];
	return NULL;
}

int main(int argc, char **argv)
{
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
