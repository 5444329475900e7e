/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that lie in memory as bf16, f16 or codes: the matmul template gives the bits
 * that the same numbers give as f32, for odd K, any rows, schedules and workers,
 * with tiles and with streams of panels.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/linear_case.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};

#define N_TARGETS ((int)TFMC_COUNT(targets))

static const struct linear_weights kept[] = {{.rounded = DT_BF16, .kept = DT_BF16},
                                             {.rounded = DT_F16, .kept = DT_F16},
                                             {.rounded = DT_BF16, .kept = DT_BF16, .is_streamed = true},
                                             {.rounded = DT_F16, .kept = DT_F16, .is_streamed = true}};

static void format_product(struct buf *text, int64_t depth, int64_t columns, const char *attrs,
                           const char *before)
{
	long long k = (long long)depth, n = (long long)columns;
	buf_printf(text,
	           "module \"m\" stage=groups dim B in [0,1] dim S in [0,33] "
	           "func @f(%%x: f32[B,S,%lld], %%w: f32[%lld,%lld], %%b: f32[%lld]) -> (y: f32[B,S,%lld]) "
	           "{ %%y = group linear %s { %s root %%h = linear %s, %%w, %%b : f32[B,S,%lld] yield %%h } "
	           ": f32[B,S,%lld] return %%y }",
	           k, n, k, n, n, attrs, before, before[0] != '\0' ? "%n" : "%x", n, n);
}

static void expect_bits(const struct linear_call *call, const struct linear_call *expected)
{
	for (int64_t i = 0; i < call->n_out; i++)
		ck_assert_msg(memcmp(&call->out[i], &expected->out[i], 4) == 0,
		              "S %d: element %d is %.9g, not %.9g", (int)call->dims[1], (int)i,
		              (double)call->out[i], (double)expected->out[i]);
}

static void check_kept(const char *text, const char *target, const struct linear_weights *w)
{
	static const int64_t rows[] = {0, 1, 2, 7, 14, 15, 33};
	struct linear_case wide, narrow;
	struct linear_call call, expected;
	linear_case_init_kept(&wide, text, target,
	                      &(struct linear_weights){
	                              .rounded = w->rounded, .kept = DT_F32, .is_streamed = w->is_streamed});
	linear_case_init_kept(&narrow, text, target, w);
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		linear_call_init(&wide, &expected, 1, rows[i]);
		linear_call_init(&narrow, &call, 1, rows[i]);
		linear_run(&wide, &expected, 1);
		for (int64_t workers = 1; workers <= 3; workers++) {
			linear_run(&narrow, &call, workers);
			expect_bits(&call, &expected);
		}
		if (!wide.jit || i % 3 != 1 || expected.n_out > 500)
			continue; /* without machine code they ran checked */
		linear_run_checked(&wide, &expected, 1);
		linear_run_checked(&narrow, &call, 2);
		expect_bits(&call, &expected);
	}
	linear_case_destroy(&wide);
	linear_case_destroy(&narrow);
}

/* Each target and each way of keeping has some of the depths and widths. */
START_TEST(test_products)
{
	static const int64_t depths[] = {1, 2, 7, 9, 22, 33}, widths[] = {1, 16, 31, 80, 101};
	for (size_t i = 0; i < 3; i++) {
		struct buf text;
		size_t at = (size_t)_i * 5 + i;
		buf_init(&text);
		format_product(&text, depths[at % TFMC_COUNT(depths)], widths[at % TFMC_COUNT(widths)], "",
		               "");
		check_kept(text.data, targets[_i % N_TARGETS], &kept[_i / N_TARGETS]);
		buf_destroy(&text);
	}
}
END_TEST

/* Other tiles; K in parts of odd and even length; a norm before. */
START_TEST(test_schedules)
{
	static const char *const attrs[] = {"{mr=4 nr=32 lanes=8}", "{mr=2 nr=16 lanes=1}",
	                                    "{kc=7 scratch=8192}", "{kc=1 scratch=8192}",
	                                    "{mr=4 nr=32 kc=16 scratch=2048}"};
	struct buf text;
	const char *target = targets[_i % N_TARGETS];
	buf_init(&text);
	format_product(&text, 19 + _i / N_TARGETS % 2, 85, attrs[_i / N_TARGETS], "");
	check_kept(text.data, target, &kept[_i % 2]);
	check_kept(text.data, target, &kept[(_i + 1) % 2]);
	buf_destroy(&text);
}
END_TEST

START_TEST(test_norm)
{
	struct buf text;
	buf_init(&text);
	format_product(&text, 19, 37, "{br=64 scratch=4864}", "pre %n = layer_norm %x : f32[B,S,19]");
	check_kept(text.data, targets[_i % N_TARGETS], &kept[_i / N_TARGETS]);
	buf_destroy(&text);
}
END_TEST

/* The words of a bf16 panel: half of the bytes, odd K rounded up. */
START_TEST(test_bytes)
{
	static const int64_t bytes[] = {6 * 64 * 2, 3 * 64 * 2, 3 * 64 * 2};
	static const enum ir_dtype types[] = {DT_F32, DT_BF16, DT_F16};
	struct linear_case c;
	struct linear_call call;
	struct buf text;
	buf_init(&text);
	format_product(&text, 6, 17, "", "");
	linear_case_init_kept(&c, text.data, "x86-64-v3",
	                      &(struct linear_weights){.rounded = types[_i], .kept = types[_i]});
	linear_call_init(&c, &call, 1, 1);
	ck_assert_int_eq((int64_t)call.packed_bytes, bytes[_i]);
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

/* ---- codes ---- */

/* Without fma, where scale code is not exact, an element is rounded twice. */
static bool is_exact(enum ir_format f, const char *target)
{
	const struct ir_format_desc *d = ir_format(f);
	return strcmp(target, "x86-64-v2") != 0 || !d->has_offset;
}

static void expect_same(const struct linear_call *call, const struct linear_call *expected, bool is_exact)
{
	for (int64_t i = 0; i < call->n_out; i++) {
		float a = call->out[i], b = expected->out[i];
		bool same = memcmp(&a, &b, 4) == 0 || (!is_exact && fabs((double)a - (double)b) < 1e-4);
		ck_assert_msg(same, "S %d: element %d is %.9g, not %.9g", (int)call->dims[1], (int)i,
		              (double)a, (double)b);
	}
}

struct way {
	const char *text, *target;
	enum ir_format format;
	bool is_streamed;
	const char *wide_text; /* for their numbers as f32; NULL: text */
};

static void check_codes(const struct way *w)
{
	static const int64_t rows[] = {0, 1, 2, 7, 14, 15, 33};
	struct linear_case wide, codes;
	struct linear_call call, expected;
	bool exact = is_exact(w->format, w->target);
	struct linear_weights weights = {.format = w->format, .is_wide = true, .is_streamed = w->is_streamed};
	linear_case_init_kept(&wide, w->wide_text ? w->wide_text : w->text, w->target, &weights);
	weights.is_wide = false;
	linear_case_init_kept(&codes, w->text, w->target, &weights);
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		linear_call_init(&wide, &expected, 1, rows[i]);
		linear_call_init(&codes, &call, 1, rows[i]);
		linear_run(&wide, &expected, 1);
		for (int64_t workers = 1; workers <= 3; workers++) {
			linear_run(&codes, &call, workers);
			expect_same(&call, &expected, exact);
		}
		if (!wide.jit || i % 3 != 1 || expected.n_out > 500)
			continue; /* without machine code they ran checked */
		linear_run_checked(&wide, &expected, 1);
		linear_run_checked(&codes, &call, 2);
		expect_same(&call, &expected, exact);
	}
	linear_case_destroy(&wide);
	linear_case_destroy(&codes);
}

/* Each format on each target, with tiles and with streams, has some of the depths and widths. */
START_TEST(test_codes)
{
	static const int64_t depths[] = {1, 95, 33, 64, 15, 160, 31, 300, 17};
	static const int64_t widths[] = {1, 80, 31, 16, 101};
	enum ir_format f = (enum ir_format)(_i / N_TARGETS);
	if (!ir_format_is_quantized(f))
		return;
	for (size_t i = 0; i < 4; i++) {
		struct buf text;
		size_t at = (size_t)_i * 5 + i;
		buf_init(&text);
		format_product(&text, depths[at % TFMC_COUNT(depths)], widths[at % TFMC_COUNT(widths)], "",
		               "");
		check_codes(&(struct way){text.data, targets[_i % N_TARGETS], f, i % 2 == 1, NULL});
		buf_destroy(&text);
	}
}
END_TEST

/* Loop nests by hand: dequantized in registers or copied, of all of K and of K blocks. */
START_TEST(test_nests)
{
	static const char *const attrs[] = {
	        "{mr=4 nr=32 scratch=65536 nc=32 b=packed nr1=32 tiles=full}",
	        "{mr=4 nr=16 scratch=65536 nc=16 b=copied c=stack}",
	        "{mr=4 nr=32 kc=128 scratch=131072 nc=96 b=copied c=scratch mc=20}",
	        "{mr=6 nr=16 kc=64 scratch=131072 b=copied c=registers tiles=balanced}"};
	static const enum ir_format formats[] = {FORMAT_Q4, FORMAT_Q8_ROW, FORMAT_Q6_K, FORMAT_IQ4_NL};
	const char *target = targets[_i % N_TARGETS];
	for (size_t i = (size_t)_i % 2; i < TFMC_COUNT(attrs); i += 2) {
		enum ir_format f = formats[(i + (size_t)_i) % TFMC_COUNT(formats)];
		struct buf text, wide;
		buf_init(&text);
		buf_init(&wide);
		format_product(&text, 167, 85, attrs[i], "");
		format_product(&wide, 167, 85, "", "");
		check_codes(&(struct way){text.data, target, f, false, wide.data});
		buf_destroy(&text);
		buf_destroy(&wide);
	}
}
END_TEST

/* Repacked N blocks, of all of K and of K blocks, also with a norm; other tiles. */
START_TEST(test_copies)
{
	static const char *const attrs[] = {"{mr=4 nr=32 scratch=65536}", "{mr=2 nr=16 lanes=1}",
	                                    "{mr=4 nr=32 kc=128 scratch=36864}", "{br=64 scratch=131072}",
	                                    "{mr=4 nr=16 kc=32 br=33 scratch=65536}"};
	static const enum ir_format formats[] = {FORMAT_Q4,   FORMAT_Q8_ROW, FORMAT_Q6_K,
	                                         FORMAT_Q4_K, FORMAT_IQ4_NL, FORMAT_Q4S,
	                                         FORMAT_Q5,   FORMAT_Q3_K,   FORMAT_Q2_K};
	struct buf text;
	const char *target = targets[_i % N_TARGETS];
	size_t n = (size_t)(_i / N_TARGETS);
	for (size_t i = 0; i < 3; i++) {
		enum ir_format f = formats[(n + i) % TFMC_COUNT(formats)];
		const char *norm = n < 3 ? "" : "pre %n = layer_norm %x : f32[B,S,167]";
		buf_init(&text);
		format_product(&text, n < 3 ? 160 + (int64_t)i * 7 : 167, 85, attrs[n], norm);
		check_codes(&(struct way){text.data, target, f, false, NULL});
		buf_destroy(&text);
	}
}
END_TEST

/* Work-groups of OpenCL. */
START_TEST(test_code_groups)
{
	enum ir_format f = (enum ir_format)_i;
	struct linear_case c;
	struct linear_call call;
	struct buf text;
	if (!ir_format_is_quantized(f))
		return;
	buf_init(&text);
	format_product(&text, 37 + _i % 3, 40, "", "");
	linear_case_init_kept(&c, text.data, "opencl-gpu",
	                      &(struct linear_weights){.format = f, .is_shared = true});
	linear_call_init(&c, &call, 1, 9);
	linear_launch(&c, &call, 2);
	linear_expect(&c, &call);
	linear_case_destroy(&c);
	buf_destroy(&text);
}
END_TEST

Suite *suite_kernel_narrow(void);

Suite *suite_kernel_narrow(void)
{
	Suite *s = suite_create("kernel_narrow");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	effort_add_loop(t, test_products, N_TARGETS * (int)TFMC_COUNT(kept), 7);
	effort_add_loop(t, test_schedules, N_TARGETS * 5, 3);
	effort_add_loop(t, test_norm, N_TARGETS * (int)TFMC_COUNT(kept), 7);
	tcase_add_loop_test(t, test_bytes, 0, 3);
	effort_add_loop(t, test_codes, N_TARGETS * IR_N_FORMATS, 7);
	effort_add_loop(t, test_copies, N_TARGETS * 5, 7);
	tcase_add_loop_test(t, test_code_groups, 0, IR_N_FORMATS);
	suite_add_tcase(s, t);
	t = tcase_create("nests");
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, test_nests, 0, N_TARGETS);
	suite_add_tcase(s, t);
	return s;
}
