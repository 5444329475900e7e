/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rowwise template against the IR interpreter: every root, rows of constant
 * and of unknown length around the sizes of vectors, with ops before and after
 * the root, strided inputs, without scratch, of 16 bits, and rows of -inf, NaN and large
 * numbers. The kernel interpreter checks every access.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/kernels/rowwise.h"
#include "ir/support/compiler.h"
#include "tests/support/effort.h"
#include "tests/support/kernels/group_case.h"
#include "tests/support/kernels/padded.h"

static const char *const targets[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"};
static const int64_t widths[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 96, 257};
static const int64_t row_counts[] = {0, 1, 2, 7};

/* ---- texts ---- */

/* A group over x [R, D], g [D], h [D], y [R, D]: %p is x after the prologue, %n the root, %q the result. */
struct recipe {
	const char *name, *pre, *root, *post;
};

#define ROW_TYPE "f32[R,D]"

static const struct recipe recipes[] = {
        {"softmax", NULL, "softmax %p", NULL},
        {"log_softmax", NULL, "log_softmax %p", NULL},
        {"layer_norm", NULL, "layer_norm %p, %g, %h {eps=1e-05}", NULL},
        {"layer_norm without parameters", NULL, "layer_norm %p {eps=1e-05}", NULL},
        {"rms_norm", NULL, "rms_norm %p, %g {eps=1e-05}", NULL},
        {"rms_norm without gamma", NULL, "rms_norm %p {eps=1e-05}", NULL},
        {"quantize_rows", NULL, "quantize_rows %p {block=16}", NULL},
        {"quantize_rows to bf16", NULL, "quantize_rows %p {to=bf16}", NULL},
        {"quantize_rows of whole rows", NULL, "quantize_rows %p {block=0}", NULL},
        {"softmax of a sum", "add %x, %y", "softmax %p", "mul %n, %y"},
        {"log_softmax of a sum", "add %x, %y", "log_softmax %p", "mul %n, %y"},
        {"layer_norm of a sum", "add %x, %y", "layer_norm %p, %g, %h {eps=1e-05}", "gelu %n"},
        {"rms_norm of a product", "mul %x, %y", "rms_norm %p, %g {eps=1e-05}", "silu %n"},
        {"quantize_rows to bf16 of a product", "mul %x, %y", "quantize_rows %p {to=bf16}", "add %n, %y"},
        {"quantize_rows of a product", "mul %x, %y", "quantize_rows %p", "add %n, %y"},
        {"layer_norm and a residual", NULL, "layer_norm %p, %g, %h {eps=1e-05}", "add %n, %y"},
        {"rms_norm and a scan", "cumsum %y", "rms_norm %x, %g {eps=1e-05}", "add %n, %p"},
        {"quantize_rows to bf16 and a scan", "cumsum %y", "quantize_rows %x {to=bf16}", "add %n, %p"},
};

/* Replaces every D of the shapes. */
static void put_width(char *text, const char *width)
{
	char out[2048];
	size_t n = 0;
	for (const char *p = text; *p && n + 16 < sizeof out; p++) {
		bool is_shape = p > text && *p == 'D' && strchr(",[", p[-1]) && strchr(",]", p[1]);
		n += (size_t)(is_shape ? snprintf(out + n, 16, "%s", width) : snprintf(out + n, 2, "%c", *p));
	}
	out[n] = 0;
	strcpy(text, out);
}

enum shape_of_x { X_DENSE, X_TRANSPOSED /* the view of [D, R] */ };

/* width 0: the dim D. */
static void write_text(char text[2048], const struct recipe *r, int64_t width, enum shape_of_x x, int scratch)
{
	char pre[128] = "", post[128] = "", root[128] = "", group[64] = "", number[24] = "D";
	if (width > 0)
		snprintf(number, sizeof number, "%d", (int)width);
	if (r->pre)
		snprintf(pre, sizeof pre, "    pre %%p = %s : " ROW_TYPE "\n", r->pre);
	if (r->post)
		snprintf(post, sizeof post, "    post %%q = %s : " ROW_TYPE "\n", r->post);
	snprintf(root, sizeof root, "%s", r->root);
	if (scratch > 0)
		snprintf(group, sizeof group, "{scratch=%d} ", scratch);
	if (!r->pre) /* the root reads x itself */
		memcpy(strstr(root, "%p"), "%x", 2);
	snprintf(text, 2048,
	         "module \"m\" stage=groups\n"
	         "dim R in [0,16]\n"
	         "dim D in [0,300]\n"
	         "func @f(%s], %%y: " ROW_TYPE ", %%g: f32[D], %%h: f32[D]) -> (" ROW_TYPE ") {\n"
	         "%s"
	         "  %%o = group rowwise %s{\n"
	         "%s"
	         "    root %%n = %s : " ROW_TYPE "\n"
	         "%s"
	         "    yield %%%c\n"
	         "  } : " ROW_TYPE "\n"
	         "  return %%o\n"
	         "}\n",
	         x == X_TRANSPOSED ? "%s: f32[D,R" : "%x: f32[R,D",
	         x == X_TRANSPOSED ? "  %x = transpose %s {perm=[1,0]} : " ROW_TYPE "\n" : "", group, pre,
	         root, post, r->post ? 'q' : 'n');
	put_width(text, number);
}

/* ---- shapes ---- */

static void check_rows(struct group_case *c, int64_t width)
{
	for (size_t i = 0; i < TFMC_COUNT(row_counts); i++) {
		const int64_t dims[] = {row_counts[i], width};
		struct group_call call;
		group_call_init(c, &call, dims);
		group_case_run(c, &call, 2);
		group_case_expect(c, &call);
		if (width > 33 || row_counts[i] > 2)
			continue;
		group_case_run_checked(c, &call, 1);
		group_case_expect(c, &call);
	}
}

/* Recipe and target of a loop test. */
static const struct recipe *recipe_of(int i)
{
	return &recipes[i / (int)TFMC_COUNT(targets)];
}

static const char *target_of(int i)
{
	return targets[i % (int)TFMC_COUNT(targets)];
}

START_TEST(rows_of_constant_length)
{
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		char text[2048];
		struct group_case c;
		write_text(text, recipe_of(_i), widths[i], X_DENSE, 1088);
		group_case_init(&c, text, target_of(_i), rowwise_emit);
		check_rows(&c, widths[i]);
		group_case_destroy(&c);
	}
}
END_TEST

static void check_widths(const struct recipe *r, const char *target, enum shape_of_x x, int scratch)
{
	char text[2048];
	struct group_case c;
	write_text(text, r, 0, x, scratch);
	group_case_init(&c, text, target, rowwise_emit);
	for (size_t i = 0; i < TFMC_COUNT(widths); i++)
		check_rows(&c, widths[i]);
	check_rows(&c, 0);
	group_case_destroy(&c);
}

START_TEST(rows_of_any_length)
{
	check_widths(recipe_of(_i), target_of(_i), X_DENSE, 1216);
}
END_TEST

START_TEST(rows_kept_in_the_result)
{
	check_widths(recipe_of(_i), target_of(_i), X_DENSE, 0);
}
END_TEST

START_TEST(strided_rows)
{
	check_widths(recipe_of(_i), target_of(_i), X_TRANSPOSED, 1216);
}
END_TEST

START_TEST(strided_rows_of_constant_length)
{
	static const int64_t some[] = {1, 5, 16, 33};
	for (size_t i = 0; i < TFMC_COUNT(some); i++) {
		char text[2048];
		struct group_case c;
		write_text(text, recipe_of(_i), some[i], X_TRANSPOSED, 1088);
		group_case_init(&c, text, target_of(_i), rowwise_emit);
		check_rows(&c, some[i]);
		group_case_destroy(&c);
	}
}
END_TEST

START_TEST(workers_have_the_same_bits)
{
	char text[2048];
	struct group_case c;
	struct group_call one, three;
	const int64_t dims[] = {16, 97};
	write_text(text, recipe_of(_i), 0, X_DENSE, 1216);
	group_case_init(&c, text, target_of(_i), rowwise_emit);
	group_call_init(&c, &one, dims);
	group_call_init(&c, &three, dims);
	group_case_run(&c, &one, 1);
	group_case_run(&c, &three, 3);
	ck_assert_mem_eq(one.out, three.out, (size_t)one.n_out * 4);
	group_case_destroy(&c);
}
END_TEST

/* ---- padded batches ---- */

/* The recipe over x [B, S, H, 33]: rows of a position are real or padding together. lengths: "", or one more
 * parameter. */
static void write_padded(char text[2048], const struct recipe *r, const char *lengths)
{
	char pre[128] = "", post[128] = "", root[128] = "";
	if (r->pre)
		snprintf(pre, sizeof pre, "    pre %%p = %s : f32[B,S,3,33]\n", r->pre);
	if (r->post)
		snprintf(post, sizeof post, "    post %%q = %s : f32[B,S,3,33]\n", r->post);
	snprintf(root, sizeof root, "%s", r->root);
	if (!r->pre)
		memcpy(strstr(root, "%p"), "%x", 2);
	snprintf(text, 2048,
	         "module \"m\" stage=groups\n"
	         "dim B in [0,8]\n"
	         "dim S in [0,16]\n"
	         "func @f(%%x: f32[B,S,3,33], %%y: f32[B,S,3,33], %%g: f32[33], %%h: f32[33]%s) -> "
	         "(f32[B,S,3,33]) {\n"
	         "  %%o = group rowwise {scratch=1216} {\n"
	         "%s"
	         "    root %%n = %s : f32[B,S,3,33]\n"
	         "%s"
	         "    yield %%%c\n"
	         "  } : f32[B,S,3,33]\n"
	         "  return %%o\n"
	         "}\n",
	         lengths, pre, root, post, r->post ? 'q' : 'n');
}

START_TEST(rows_of_padding_are_left_alone)
{
	static const int64_t shapes[][2] = {{5, 7}, {1, 4}, {3, 0}, {8, 16}};
	char text[2048];
	struct group_case all, some;
	write_padded(text, recipe_of(_i), "");
	group_case_init(&all, text, target_of(_i), rowwise_emit);
	write_padded(text, recipe_of(_i), ", %lengths: i32[B]");
	group_case_init(&some, text, target_of(_i), rowwise_emit);
	for (size_t i = 0; i < TFMC_COUNT(shapes); i++) {
		struct group_call expected, got;
		group_call_init(&all, &expected, shapes[i]);
		group_call_init(&some, &got, shapes[i]);
		padded_fill(got.in[4], shapes[i][0], shapes[i][1]);
		bool is_checked = i == 0; /* both: the kernel interpreter rounds a multiply-add once */
		if (is_checked)
			group_case_run_checked(&all, &expected, 1);
		else
			group_case_run(&all, &expected, 1);
		for (int64_t workers = 1; workers <= 3; workers++) {
			if (is_checked)
				group_case_run_checked(&some, &got, workers);
			else
				group_case_run(&some, &got, workers);
			padded_expect(some.tir.m, ir_type_of(some.f, some.group->results[0]), shapes[i],
			              got.in[4], got.out, expected.out);
		}
	}
	group_case_destroy(&some);
	group_case_destroy(&all);
}
END_TEST

/* ---- extreme rows ---- */

/* Seven rows of -inf, large numbers, infinities and NaN. */
static void put_extremes(float *x, int64_t width)
{
	for (int64_t j = 0; j < width; j++) {
		x[j] = -HUGE_VALF;
		x[width + j] = j == width / 2 ? 1 : -HUGE_VALF;
		x[2 * width + j] = j % 2 ? 3e38f : -3e38f;
		x[3 * width + j] = j == width - 1 ? NAN : (float)j;
		x[4 * width + j] = j == 0 ? HUGE_VALF : (float)j;
		x[5 * width + j] = j == 0 ? NAN : -HUGE_VALF;
		x[6 * width + j] = 1000 + (float)j;
	}
}

static void check_extremes(struct group_case *c, int64_t width)
{
	const int64_t dims[] = {7, width};
	struct group_call call;
	group_call_init(c, &call, dims);
	put_extremes(call.in[0], width);
	group_case_run(c, &call, 1);
	group_case_expect(c, &call);
	group_case_run_checked(c, &call, 1);
	group_case_expect(c, &call);
}

/* softmax and log_softmax */
START_TEST(extreme_scores)
{
	for (size_t i = 0; i < TFMC_COUNT(widths); i++) {
		for (int64_t width = 0; width <= widths[i]; width += widths[i]) {
			char text[2048];
			struct group_case c;
			write_text(text, recipe_of(_i), width, X_DENSE, 1216);
			group_case_init(&c, text, target_of(_i), rowwise_emit);
			check_extremes(&c, widths[i]);
			group_case_destroy(&c);
		}
	}
}
END_TEST

/* Norms of rows with a large mean, and of equal elements. */
START_TEST(norms_keep_digits)
{
	static const struct recipe norm = {"layer_norm", NULL, "layer_norm %p {eps=1e-05}", NULL};
	char text[2048];
	struct group_case c;
	struct group_call call;
	const int64_t dims[] = {3, 96};
	write_text(text, &norm, 0, X_DENSE, 1216);
	group_case_init(&c, text, targets[_i], rowwise_emit);
	group_call_init(&c, &call, dims);
	float *x = call.in[0];
	for (int j = 0; j < 96; j++) {
		x[j] = 4096 + (float)(j % 7);
		x[96 + j] = 3;
		x[192 + j] = 1e-20f * (float)j;
	}
	group_case_run(&c, &call, 1);
	group_case_expect(&c, &call);
	group_case_destroy(&c);
}
END_TEST

/* ---- masks ---- */

static const char *const masks[] = {
        "mask %p {mask=causal}",
        "mask %p, %len",
        "mask %p, %len, %past {mask=causal}",
        "masked_softmax %p {mask=causal}",
        "masked_softmax %p, %len",
        "masked_softmax %p, %len {scale=0.5}",
        "masked_softmax %p, past=%past {scale=0.25 mask=causal}",
        "masked_softmax %p, %len, %past {scale=0.25 softcap=2.5 mask=causal}",
        "masked_softmax %p {softcap=3.0}",
        "masked_softmax %p, %len, %past {scale=0.25 mask=causal}",
};

static void write_mask(char text[2048], const char *root, const char *keys, bool has_pre)
{
	char line[128];
	snprintf(line, sizeof line, "%s", root);
	if (!has_pre)
		memcpy(strstr(line, "%p"), "%x", 2);
	snprintf(text, 2048,
	         "module \"m\" stage=groups\n"
	         "dim B in [0,4]\n"
	         "dim S in [0,16]\n"
	         "dim T in [0,300]\n"
	         "func @f(%%x: f32[B,2,S,%s], %%len: i32[B], %%past: i32[B]) -> (f32[B,2,S,%s]) {\n"
	         "  %%o = group rowwise {scratch=1216} {\n"
	         "%s%s%s"
	         "    root %%n = %s : f32[B,2,S,%s]\n"
	         "    post %%q = scale %%n {f=2.0} : f32[B,2,S,%s]\n"
	         "    yield %%q\n"
	         "  } : f32[B,2,S,%s]\n"
	         "  return %%o\n"
	         "}\n",
	         keys, keys, has_pre ? "    pre %p = tanh %x : f32[B,2,S," : "", has_pre ? keys : "",
	         has_pre ? "]\n" : "", line, keys, keys, keys);
}

static void check_mask(struct group_case *c, int64_t rows, int64_t keys, bool is_checked)
{
	const int64_t dims[] = {3, rows, keys};
	struct group_call call;
	group_call_init(c, &call, dims);
	int32_t *len = call.in[1], *past = call.in[2];
	for (int b = 0; b < 3; b++) {
		len[b] = (int32_t)(keys * b / 2);
		past[b] = b == 2 ? 300 : (int32_t)(keys / 3 * b);
	}
	group_case_run(c, &call, 1);
	group_case_expect(c, &call);
	if (!is_checked)
		return;
	group_case_run_checked(c, &call, 2);
	group_case_expect(c, &call);
}

START_TEST(masked_rows)
{
	const char *root = masks[_i / (int)TFMC_COUNT(targets)], *target = target_of(_i);
	for (size_t i = 0; i < 2 * TFMC_COUNT(widths); i++) {
		char text[2048], keys[24];
		struct group_case c;
		int64_t width = widths[i / 2];
		snprintf(keys, sizeof keys, "%d", (int)width);
		write_mask(text, root, i % 2 ? "T" : keys, i % 4 > 1);
		group_case_init(&c, text, target, rowwise_emit);
		check_mask(&c, 5, width, width < 40);
		check_mask(&c, 1, width, width < 40);
		group_case_destroy(&c);
	}
}
END_TEST

/* Padding keys after the visible ones changes no bit of those before. */
START_TEST(lengths_have_the_same_bits)
{
	char text[2048];
	struct group_case c;
	struct group_call alone, padded;
	const int64_t short_dims[] = {1, 2, 13}, long_dims[] = {1, 2, 90};
	write_mask(text, "masked_softmax %p, %len", "T", false);
	group_case_init(&c, text, targets[_i], rowwise_emit);
	group_call_init(&c, &alone, short_dims);
	group_call_init(&c, &padded, long_dims);
	((int32_t *)alone.in[1])[0] = ((int32_t *)padded.in[1])[0] = 13;
	for (int64_t row = 0; row < 4; row++)
		memcpy((float *)padded.in[0] + row * 90, (float *)alone.in[0] + row * 13, 13 * sizeof(float));
	group_case_run(&c, &alone, 1);
	group_case_run(&c, &padded, 1);
	for (int64_t row = 0; row < 4; row++) {
		const float *wide = (float *)padded.out + row * 90;
		ck_assert_mem_eq(wide, (float *)alone.out + row * 13, 13 * sizeof(float));
		for (int j = 13; j < 90; j++)
			ck_assert(wide[j] == 0);
	}
	group_case_destroy(&c);
}
END_TEST

/* ---- 16 bits ---- */

static void narrow(char *text, const char *dtype)
{
	for (char *at = text; (at = strstr(at, "f32[")) != NULL;)
		memcpy(at, dtype, 3);
}

/* Without scratch, and the result cannot hold f32: everything is computed in every walk. */
static void check_narrow(const struct recipe *r, const char *target, const char *dtype, int scratch)
{
	static const int64_t some[] = {1, 5, 16, 33, 97};
	char text[2048];
	struct group_case c;
	for (int x = X_DENSE; x <= X_TRANSPOSED; x++) {
		write_text(text, r, 0, (enum shape_of_x)x, scratch);
		narrow(text, dtype);
		group_case_init(&c, text, target, rowwise_emit);
		for (size_t i = 0; i < TFMC_COUNT(some); i++) {
			const int64_t dims[] = {3, some[i]};
			struct group_call call;
			group_call_init(&c, &call, dims);
			group_case_run(&c, &call, 2);
			group_case_expect(&c, &call);
		}
		group_case_destroy(&c);
	}
}

START_TEST(rows_of_16_bits)
{
	check_narrow(recipe_of(_i), target_of(_i), "f16", 0);
	check_narrow(recipe_of(_i), target_of(_i), "f16", 1216);
}
END_TEST

START_TEST(masked_rows_of_16_bits)
{
	static const char planned[] = "{scratch=1216}";
	char text[2048];
	struct group_case c;
	write_mask(text, masks[_i / (int)TFMC_COUNT(targets)], "T", true);
	memset(strstr(text, planned), ' ', strlen(planned));
	narrow(text, "f16");
	group_case_init(&c, text, target_of(_i), rowwise_emit);
	check_mask(&c, 5, 37, true);
	group_case_destroy(&c);
}
END_TEST

static const struct recipe f64_softmax = {"softmax", NULL, "softmax %p", NULL};

static enum tfmc_status refused(const struct kernel_job *job)
{
	ck_assert_int_ne(rowwise_emit(job), TFMC_OK);
	return TFMC_OK;
}

START_TEST(refuses_f64)
{
	char text[2048];
	struct group_case c;
	write_text(text, &f64_softmax, 0, X_DENSE, 1216);
	narrow(text, "f64");
	group_case_init(&c, text, targets[0], refused);
	tir_says(&c.tir, "not supported yet");
	group_case_destroy(&c);
}
END_TEST

Suite *suite_kernel_rowwise(void)
{
	Suite *s = suite_create("kernel_rowwise");
	TCase *t = tcase_create("kernel_rowwise"), *padding = tcase_create("padding");
	int n_targets = (int)TFMC_COUNT(targets), all = (int)TFMC_COUNT(recipes) * n_targets;
	tcase_set_timeout(t, 120);
	effort_add_loop(t, rows_of_constant_length, all, 3);
	effort_add_loop(t, rows_of_any_length, all, 3);
	effort_add_loop(t, rows_kept_in_the_result, all, 3);
	effort_add_loop(t, strided_rows, all, 3);
	effort_add_loop(t, strided_rows_of_constant_length, all, 3);
	effort_add_loop(t, workers_have_the_same_bits, all, 3);
	tcase_add_loop_test(t, extreme_scores, 0, 2 * n_targets);
	tcase_add_loop_test(t, norms_keep_digits, 0, n_targets);
	effort_add_loop(t, masked_rows, (int)TFMC_COUNT(masks) * n_targets, 3);
	tcase_add_loop_test(t, lengths_have_the_same_bits, 0, n_targets);
	effort_add_loop(t, rows_of_16_bits, all, 3);
	effort_add_loop(t, masked_rows_of_16_bits, (int)TFMC_COUNT(masks) * n_targets, 3);
	tcase_add_test(t, refuses_f64);
	tcase_set_timeout(padding, 240);
	effort_add_loop(padding, rows_of_padding_are_left_alone, all, 3);
	suite_add_tcase(s, padding);
	suite_add_tcase(s, t);
	return s;
}
