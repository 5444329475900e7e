/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears that leave two or three numbers of each block of columns (block_argmax,
 * block_log_softmax) against the IR interpreter, and their promise: the same bits for
 * every number of rows, every schedule and every number of workers.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/kernels/linear_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};
static const int64_t widths[] = {1, 16, 40, 63, 64, 65, 128, 150, 333};

#define HEAD "module \"m\" stage=groups dim B in [0,8] dim S in [0,40] "

static void format_argmax(struct buf *text, int64_t columns, const char *attrs)
{
	long long n = (long long)columns, blocks = (n + 63) / 64;
	buf_printf(text,
	           HEAD
	           "func @f(%%x: f32[B,S,24], %%w: f32[%lld,24], %%b: f32[%lld]) -> (y: f32[B,S,2,%lld]) { "
	           "%%y = group linear %s { root %%h = linear %%x, %%w, %%b : f32[B,S,%lld] "
	           "post %%c = softcap %%h {c=2.0} : f32[B,S,%lld] "
	           "post %%s = block_argmax %%c : f32[B,S,2,%lld] yield %%s } : f32[B,S,2,%lld] return %%y }",
	           n, n, blocks, attrs, n, n, blocks, blocks);
}

static void format_score(struct buf *text, int64_t columns, const char *attrs)
{
	long long n = (long long)columns, blocks = (n + 63) / 64;
	buf_printf(text,
	           HEAD
	           "func @f(%%x: f32[B,S,24], %%w: f32[%lld,24], %%at: i32[B,S]) -> (y: f32[B,S,3,%lld]) { "
	           "%%y = group linear %s { root %%h = linear %%x, %%w : f32[B,S,%lld] "
	           "post %%s = block_log_softmax %%h, %%at : f32[B,S,3,%lld] yield %%s } : f32[B,S,3,%lld] "
	           "return %%y }",
	           n, blocks, attrs, n, blocks, blocks);
}

typedef void format_fn(struct buf *text, int64_t columns, const char *attrs);

static void open_case(struct linear_case *c, format_fn *format, int64_t columns, const char *attrs,
                      const char *target, bool streamed)
{
	struct buf text;
	buf_init(&text);
	format(&text, columns, attrs);
	if (streamed)
		linear_case_init_streamed(c, text.data, target);
	else
		linear_case_init(c, text.data, target);
	buf_destroy(&text);
}

/* -inf is where the interpreter has it. */
static void expect_same(const struct linear_call *call, const float *expected, const char *what)
{
	for (int64_t i = 0; i < call->n_out; i++)
		ck_assert_msg(memcmp(&call->out[i], &expected[i], 4) == 0, "%s: B %d S %d: element %d", what,
		              (int)call->dims[0], (int)call->dims[1], (int)i);
}

static void check_case(struct linear_case *c, int64_t b, int64_t s)
{
	struct linear_call one, several;
	linear_call_init(c, &one, b, s);
	linear_run(c, &one, 1);
	linear_expect(c, &one);
	for (int64_t workers = 2; workers <= 5; workers++) {
		linear_call_init(c, &several, b, s);
		linear_run(c, &several, workers);
		expect_same(&several, one.out, "workers");
	}
}

static void check_format(format_fn *format, const char *target, bool streamed)
{
	static const int64_t shapes[][2] = {{1, 1}, {1, 0}, {3, 5}, {1, 17}, {2, 40}};
	struct linear_case c;
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		open_case(&c, format, widths[i], "", target, streamed);
		for (size_t k = 0; k < TFMC_COUNT(shapes); k++)
			check_case(&c, shapes[k][0], shapes[k][1]);
		linear_case_destroy(&c);
	}
}

START_TEST(test_argmax)
{
	check_format(format_argmax, targets[_i], false);
}
END_TEST

START_TEST(test_score)
{
	check_format(format_score, targets[_i], false);
}
END_TEST

/* By panels that are read once, as in models whose weights come from memory. */
START_TEST(test_streamed)
{
	struct linear_case c;
	static const char text[] =
	        "module \"m\" stage=groups dim B in [0,1] dim S in [0,8] "
	        "func @f(%x: f32[B,S,24], %w: f32[150,24]) -> (y: f32[B,S,2,3]) { "
	        "%y = group linear { root %h = linear %x, %w : f32[B,S,150] "
	        "post %s = block_argmax %h : f32[B,S,2,3] yield %s } : f32[B,S,2,3] return %y }";
	linear_case_init_streamed(&c, text, targets[_i]);
	for (int64_t s = 0; s <= 8; s++)
		check_case(&c, 1, s);
	linear_case_destroy(&c);
	check_format(format_score, targets[_i], true);
}
END_TEST

/* Schedules change no bit, nor do parts of K. */
START_TEST(test_schedules)
{
	static const char *const attrs[] = {"{mr=1 nr=16}", "{mr=4 nr=32 lanes=8}",
	                                    "{mr=2 nr=16 kc=8 scratch=16384}"};
	struct linear_case c;
	struct linear_call first, call;
	struct linear_case like;
	open_case(&like, format_argmax, 150, "", targets[_i], false);
	linear_call_init(&like, &first, 2, 9);
	linear_run(&like, &first, 1);
	for (size_t i = 0; i < TFMC_COUNT(attrs); i++) {
		open_case(&c, format_argmax, 150, attrs[i], targets[_i], false);
		linear_call_init(&c, &call, 2, 9);
		linear_run(&c, &call, 3);
		expect_same(&call, first.out, attrs[i]);
		linear_case_destroy(&c);
	}
	linear_case_destroy(&like);
}
END_TEST

/* Every access, in the kernel interpreter. */
START_TEST(test_checked)
{
	struct linear_case c;
	struct linear_call call;
	for (int i = 0; i < 2; i++) {
		open_case(&c, i == 0 ? format_argmax : format_score, 85, "", targets[_i], false);
		linear_call_init(&c, &call, 1, 5);
		linear_run_checked(&c, &call, 2);
		linear_expect(&c, &call);
		linear_case_destroy(&c);
	}
}
END_TEST

/* Columns of NaN and infinities: x is 1, the columns are the rows of w. */
static void special_row(struct linear_case *c, const float *columns, int64_t at, float *out)
{
	struct linear_call call;
	linear_call_init(c, &call, 1, 1);
	float *x = call.param[0], *w = call.packed;
	memset(x, 0, 24 * sizeof(float));
	x[0] = 1;
	memset(w, 0, call.packed_bytes);
	for (int64_t n = 0; n < 85; n++)
		w[n / 16 * 24 * 16 + n % 16] = columns[n];
	if (call.count[2] == 1)
		*(int32_t *)call.param[2] = (int32_t)at;
	linear_run(c, &call, 1);
	memcpy(out, call.out, (size_t)call.n_out * sizeof(float));
}

START_TEST(test_special_numbers)
{
	struct linear_case c;
	float columns[85], out[6];
	open_case(&c, format_score, 85, "", targets[_i], false);
	for (int n = 0; n < 85; n++)
		columns[n] = n < 64 ? -HUGE_VALF : (float)(n == 70);
	special_row(&c, columns, 3, out); /* m, sum, column; of both blocks */
	ck_assert(isinf(out[0]) && out[0] < 0 && out[2] == 1 && out[4] == 0);
	ck_assert(out[1] == 1 && fabs((double)out[3] - (1 + 20 * exp(-1))) < 1e-5 && isinf(out[5]));
	columns[80] = NAN;
	special_row(&c, columns, 70, out);
	ck_assert(isnan(out[3]) && out[2] == 1 && isinf(out[4]));
	columns[80] = 800; /* far from the others, and from what exp can hold */
	special_row(&c, columns, 70, out);
	ck_assert(out[1] == 800 && out[3] == 1 && out[5] == -799);
	linear_case_destroy(&c);
}
END_TEST

Suite *suite_kernel_logit_blocks(void)
{
	Suite *s = suite_create("kernel_logit_blocks");
	TCase *c = tcase_create("blocks");
	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, test_argmax, 0, TFMC_COUNT(targets));
	tcase_add_loop_test(c, test_score, 0, TFMC_COUNT(targets));
	tcase_add_loop_test(c, test_streamed, 0, TFMC_COUNT(targets));
	tcase_add_loop_test(c, test_schedules, 0, TFMC_COUNT(targets));
	tcase_add_loop_test(c, test_checked, 0, TFMC_COUNT(targets));
	tcase_add_loop_test(c, test_special_numbers, 0, 3);
	suite_add_tcase(s, c);
	return s;
}
