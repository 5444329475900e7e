/* SPDX-License-Identifier: Apache-2.0 */
/*
 * argmax by vectors against the IR interpreter: rows of every length around the
 * steps of the walk, the largest at every place, ties, -inf, NaN; every index
 * must be exactly the interpreter's. The kernel interpreter checks every access.
 */
#include <check.h>
#include <math.h>

#include "backends/kernels/group.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/group_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};
static const int64_t widths[] = {1, 2, 7, 8, 9, 31, 32, 33, 64, 65, 100};

#define ROWS 7
#define TEXT                                                          \
	"module \"m\" stage=groups dim R in [0,16] dim D in [1,300] " \
	"func @f(%x: f32[R,D]) -> (i32[R]) { %y = group loops { "     \
	"root %n = argmax %x : i32[R] yield %n } : i32[R] return %y }"

/* Ties, one at the end, NaN before, NaN but the last, -inf alone, NaN alone, zeros of both signs. */
static void put_rows(float *x, int64_t width)
{
	for (int64_t j = 0; j < width; j++) {
		x[j] = (float)(j % 5);
		x[width + j] = (float)j;
		x[2 * width + j] = j == 0 ? NAN : -(float)j;
		x[3 * width + j] = j == width - 1 ? -HUGE_VALF : NAN;
		x[4 * width + j] = -HUGE_VALF;
		x[5 * width + j] = NAN;
		x[6 * width + j] = j % 2 ? 0.0f : -0.0f;
	}
}

static void check_call(struct group_case *c, struct group_call *call)
{
	group_case_run(c, call, 2);
	group_case_expect(c, call);
	group_case_run_checked(c, call, 1);
	group_case_expect(c, call);
}

START_TEST(rows_with_ties_and_without_numbers)
{
	struct group_case c;
	group_case_init(&c, TEXT, targets[_i], kernel_emit_group);
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		const int64_t dims[] = {ROWS, widths[i]};
		struct group_call call;
		group_call_init(&c, &call, dims);
		put_rows(call.in[0], widths[i]);
		check_call(&c, &call);
	}
	group_case_destroy(&c);
}
END_TEST

START_TEST(the_largest_at_every_place)
{
	const int64_t dims[] = {1, 75};
	struct group_case c;
	group_case_init(&c, TEXT, targets[_i], kernel_emit_group);
	for (int64_t j = 0; j < dims[1]; j++) {
		struct group_call call;
		group_call_init(&c, &call, dims);
		((float *)call.in[0])[j] = 9;
		if (j % 3 == 0 && j + 40 < dims[1])
			((float *)call.in[0])[j + 40] = 9;
		check_call(&c, &call);
	}
	group_case_destroy(&c);
}
END_TEST

Suite *suite_kernel_argmax(void);

Suite *suite_kernel_argmax(void)
{
	Suite *s = suite_create("kernel_argmax");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, rows_with_ties_and_without_numbers, 0, (int)TFMC_COUNT(targets));
	tcase_add_loop_test(t, the_largest_at_every_place, 0, (int)TFMC_COUNT(targets));
	suite_add_tcase(s, t);
	return s;
}
