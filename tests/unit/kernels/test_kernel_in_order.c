/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows in order against the IR interpreter, exactly: rows of every length around the
 * vectors of the walk, ascending (every element comes into the heap), descending, with
 * ties, NaN, infinities, zeros of both signs, the extremes of ints; the template, and
 * the evaluator where more than the op is in a group. The kernel interpreter checks
 * every access.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "backends/kernels/group.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/group_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};

#define ROWS 10
#define TOP(k, t)                                                                                        \
	"module \"m\" stage=groups dim R in [0,16] dim V in [" #k ",900] "                               \
	"func @f(%x: " #t "[R,V]) -> (" #t "[R,2," #k "]) { %y = group loops { root %n = topk %x {k=" #k \
	"} : " #t "[R,2," #k "] yield %n } : " #t "[R,2," #k "] return %y }"
/* An op before the root and one after it. */
#define TOP_AMONG(k)                                                                                  \
	"module \"m\" stage=groups dim R in [0,16] dim V in [" #k ",900] "                            \
	"func @f(%x: f32[R,V]) -> (f32[R,2," #k "]) { %y = group loops { pre %m = neg %x : f32[R,V] " \
	"root %n = topk %m {k=" #k "} : f32[R,2," #k "] post %a = abs %n : f32[R,2," #k "] "          \
	"yield %a } : f32[R,2," #k "] return %y }"
#define SUMS(t)                                                           \
	"module \"m\" stage=groups dim R in [0,16] dim V in [0,900] "     \
	"func @f(%x: " #t "[R,V]) -> (" #t "[R,V]) { %y = group loops { " \
	"root %n = cumsum %x : " #t "[R,V] yield %n } : " #t "[R,V] return %y }"
#define LAST                                                          \
	"module \"m\" stage=groups dim R in [0,16] dim V in [0,900] " \
	"func @f(%x: i32[V]) -> (i32[R]) { %y = group loops { "       \
	"root %n = last_index %x {size=R} : i32[R] yield %n } : i32[R] return %y }"

/* A number in [0, n) from two. */
static int64_t mixed(int64_t i, int64_t j, int64_t n)
{
	return (i * 7919 + j * 104729 + i * j % 31) % n;
}

static float float_of(int64_t row, int64_t j, int64_t width)
{
	switch (row) {
	case 0: return (float)j;
	case 1: return -(float)j;
	case 2: return (float)(j % 5);
	case 3: return j % 3 == 0 ? NAN : (float)mixed(row, j, 100);
	case 4: return NAN;
	case 5: return j == width - 1 ? 1.0f : -HUGE_VALF;
	case 6: return j % 2 ? 0.0f : -0.0f;
	case 7: return j % 4 == 1 ? HUGE_VALF : (float)j;
	case 8: return j < width / 2 ? NAN : -HUGE_VALF;
	}
	return (float)mixed(row, j, 1000) - 500;
}

static int64_t int_of(int64_t row, int64_t j, int64_t lo, int64_t hi)
{
	switch (row) {
	case 0: return j;
	case 1: return lo;
	case 2: return hi;
	case 3: return j % 2 ? hi - j : lo + j;
	}
	return mixed(row, j, 1000) - 500;
}

/* The rows as elements of the type of the parameter; 53 bits are what the IR interpreter holds. */
static void fill(const struct group_case *c, struct group_call *call, int64_t rows, int64_t width)
{
	enum ir_dtype t = ir_type_of(c->f, c->f->params[0].value)->dtype;
	for (int64_t i = 0; i < rows * width; i++) {
		int64_t row = i / width, j = i % width, far = INT64_C(1) << 52;
		if (t == DT_F32)
			((float *)call->in[0])[i] = float_of(row, j, width);
		else if (t == DT_I32)
			((int32_t *)call->in[0])[i] = (int32_t)int_of(row, j, INT32_MIN, INT32_MAX);
		else if (t == DT_I64)
			((int64_t *)call->in[0])[i] = int_of(row, j, -far, far);
		else
			((uint8_t *)call->in[0])[i] = (uint8_t)int_of(row, j, 0, UINT8_MAX);
	}
}

static void check_call(struct group_case *c, struct group_call *call)
{
	group_case_run(c, call, 1);
	group_case_expect(c, call);
	group_case_run(c, call, 3);
	group_case_expect(c, call);
	group_case_run_checked(c, call, 2);
	group_case_expect(c, call);
}

static void check_widths(const char *text, const char *target, int64_t least)
{
	static const int64_t more[] = {0, 1, 15, 16, 17, 33, 100};
	struct group_case c;
	group_case_init(&c, text, target, kernel_emit_group);
	for (size_t i = 0; i < TFMC_COUNT(more); i++) {
		const int64_t dims[] = {ROWS, least + more[i]};
		struct group_call call;
		group_call_init(&c, &call, dims);
		fill(&c, &call, ROWS, dims[1]);
		check_call(&c, &call);
	}
	group_case_destroy(&c);
}

START_TEST(the_largest_of_rows)
{
	static const struct {
		const char *text;
		int64_t k;
	} cases[] = {{TOP(1, f32), 1}, {TOP(2, f32), 2}, {TOP(17, f32), 17}, {TOP(50, f32), 50},
	             {TOP(7, i32), 7}, {TOP(7, i64), 7}, {TOP_AMONG(3), 3},  {TOP_AMONG(20), 20}};
	for (size_t i = 0; i < TFMC_COUNT(cases); i++)
		check_widths(cases[i].text, targets[_i], cases[i].k);
}
END_TEST

START_TEST(sums_of_rows)
{
	check_widths(SUMS(f32), targets[_i], 0);
	check_widths(SUMS(i32), targets[_i], 0);
	check_widths(SUMS(u8), targets[_i], 0);
}
END_TEST

/* Ids beyond both ends name no row. */
START_TEST(the_last_id_of_each_row)
{
	static const int64_t counts[] = {0, 1, 2, 16, 17, 200};
	struct group_case c;
	group_case_init(&c, LAST, targets[_i], kernel_emit_group);
	for (size_t i = 0; i < TFMC_COUNT(counts); i++)
		for (int64_t rows = 0; rows <= 16; rows += 4) {
			const int64_t dims[] = {rows, counts[i]};
			struct group_call call;
			group_call_init(&c, &call, dims);
			for (int64_t j = 0; j < counts[i]; j++)
				((int32_t *)call.in[0])[j] = j == 5   ? INT32_MIN
				                             : j == 6 ? INT32_MAX
				                                      : (int32_t)mixed(1, j, 20) - 2;
			check_call(&c, &call);
		}
	group_case_destroy(&c);
}
END_TEST

Suite *suite_kernel_in_order(void);

Suite *suite_kernel_in_order(void)
{
	Suite *s = suite_create("kernel_in_order");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, the_largest_of_rows, 0, (int)TFMC_COUNT(targets));
	tcase_add_loop_test(t, sums_of_rows, 0, (int)TFMC_COUNT(targets));
	tcase_add_loop_test(t, the_last_id_of_each_row, 0, (int)TFMC_COUNT(targets));
	suite_add_tcase(s, t);
	return s;
}
