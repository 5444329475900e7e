/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The differential matrix, driven by matrix.sh:
 *
 *	tfmc_matrix columns SOURCE            name, target and kind of every column
 *	tfmc_matrix cases SOURCE DIR          DIR/cases.bin for the runner
 *	tfmc_matrix emit SOURCE DIR COLUMN    objects or C files beneath DIR/COLUMN
 *	tfmc_matrix opencl SOURCE DIR COLUMN  runs a column of OpenCL; 77: no device
 *	tfmc_matrix table SOURCE DIR [ROW]    the table; with ROW one expected value of that row is wrong
 *
 * Exit codes: 0, 2 usage, 3 environment, 4 something differs.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/matrix/matrix.h"

static int list_columns(void)
{
	for (size_t i = 0; column_at(i); i++)
		printf("%s %s %s\n", column_at(i)->name, column_at(i)->target,
		       column_kind_name(column_at(i)->kind));
	return 0;
}

/* Proof that the table can fail: the first expected number of a row grows by more than any bound. */
static bool spoil(struct suite *s, const char *row)
{
	for (size_t i = 0; i < s->cases.n; i++) {
		struct matrix_case *c = &s->cases.items[i];
		if (strcmp(c->row, row) != 0 || interp_count(&c->outputs[0]) == 0 ||
		    !isfinite(c->outputs[0].data[0]))
			continue;
		c->outputs[0].data[0] += 1 + fabs(c->outputs[0].data[0]);
		return true;
	}
	return false;
}

static int print_table(struct suite *s, const char *dir, const char *row)
{
	size_t n_failed;
	if (row && !spoil(s, row))
		return 2;
	if (!table_print(s, dir, &n_failed))
		return 3;
	return n_failed ? 4 : 0;
}

static int run(struct suite *s, int argc, char **argv)
{
	const char *command = argv[1], *dir = argv[3];
	const struct column *column = argc > 4 ? column_find(argv[4]) : NULL;
	if (!suite_build(s))
		return 3;
	if (!strcmp(command, "cases"))
		return write_cases(s, arena_printf(s->arena, "%s/cases.bin", dir)) ? 0 : 3;
	if (!strcmp(command, "table"))
		return print_table(s, dir, argc > 4 ? argv[4] : NULL);
	if (!column)
		return 2;
	if (!strcmp(command, "emit"))
		return column_emit(s, column, dir) ? 0 : 4;
	return !strcmp(command, "opencl") ? column_run_opencl(s, column, dir) : 2;
}

int main(int argc, char **argv)
{
	struct arena arena;
	struct diag_context cx;
	struct buf log;
	if (argc > 1 && !strcmp(argv[1], "columns"))
		return list_columns();
	if (argc < 4) {
		fprintf(stderr,
		        "usage: tfmc_matrix columns | cases|emit|opencl|table SOURCE DIR [COLUMN|ROW]\n");
		return 2;
	}
	arena_init(&arena);
	buf_init(&log);
	diag_init(&cx, diag_render_text, &log);
	struct suite s = {.arena = &arena, .cx = &cx, .source = argv[2]};
	int code = run(&s, argc, argv);
	if (log.len > 0)
		fputs(log.data, stderr);
	suite_destroy(&s);
	diag_destroy(&cx);
	buf_destroy(&log);
	arena_destroy(&arena);
	return code;
}
