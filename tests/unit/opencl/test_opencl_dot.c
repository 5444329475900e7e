/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products of bytes of a device: linears of codes with them, on PoCL with the functions of the extension written
 * out, are what the interpreter says; a device whose products fail, are wrong or slow does without.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/interp/interp.h"
#include "runtime/opencl/calls.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/effort.h"
#include "tests/support/opencl/mocked.h"
#include "tests/support/opencl/model_code.h"

#define ROWS_MAX 70
#define DEPTH    192
#define COLUMNS  101

static struct model_code code;
static char message[TFMC_CL_TEXT];

/* y = linear(quantize_rows x) with weights in a format; NULL: floats. */
static void begin(const char *format, int rows)
{
	char text[1024], kept[64] = "", matrix[128];
	if (!effort_is_all()) /* the device's optimizer takes two thirds of the time */
		setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", true);
	(void)snprintf(matrix, sizeof(matrix),
	               "sinusoid(rows=%d, dim=%d, layout=halves, spacing=paper, start=1, base=10000.0)",
	               COLUMNS, DEPTH);
	if (format)
		(void)snprintf(kept, sizeof(kept), "as %s = quantize(%s, ", format, format);
	(void)snprintf(text, sizeof(text),
	               "module \"m\" dim B in [1,%d] "
	               "weight @w : f32[%d,%d] %s%s%s "
	               "func @run(%%x: f32[B,%d]) -> (y: f32[B,%d]) { %%r = quantize_rows %%x : f32[B,%d] "
	               "%%y = linear %%r, @w : f32[B,%d] return %%y }",
	               rows, COLUMNS, DEPTH, format ? kept : "= ", matrix, format ? ")" : "", DEPTH, COLUMNS,
	               DEPTH, COLUMNS);
	model_code_make(&code, text, "opencl-gpu", "O2", 0);
}

/* ---- on PoCL ---- */

static const char extension[] = "#define TFMC_DOT 1\n"
                                "static int dot_4x8packed_ss_int(uint x, uint y)\n"
                                "{\n"
                                "\tint4 p = convert_int4(as_char4(x)) * convert_int4(as_char4(y));\n"
                                "\treturn p.x + p.y + p.z + p.w;\n"
                                "}\n";

static bool has_pocl(void)
{
	struct tfmc_cl *cl;
	size_t number;
	bool has = tfmc_cl_open(NULL, &cl, NULL) == TFMC_CL_OK &&
	           tfmc_cl_choose(cl, 0, "Portable Computing Language", &number, NULL) == TFMC_CL_OK;
	tfmc_cl_close(cl);
	if (!has)
		(void)fprintf(stderr, "SKIPPED: dot products on a device: there is no PoCL\n");
	return has;
}

static void run(const char *source, size_t n, const float *x, int64_t rows, float *y)
{
	struct tfmc_device device = {
	        .name = "Portable Computing Language", .message = message, .message_bytes = sizeof(message)};
	struct tfmc_cl_code with = code.device.code;
	struct tfmc_cl_model *model;
	int32_t past = 0;
	with.source = source;
	with.source_bytes = n;
	ck_assert_msg(tfmc_cl_model_open(&with, &device, &model) == TFMC_RT_OK, "%s", message);
	struct tfmc_buffer in = {(void *)(uintptr_t)x, (uint64_t)(rows * DEPTH) * 4},
	                   out = {y, (uint64_t)(rows * COLUMNS) * 4};
	const struct tfmc_cl_call call = {0, &past, 0, -1, &rows, &in, &out};
	ck_assert_msg(tfmc_cl_model_call(model, &call) == TFMC_RT_OK, "%s", message);
	tfmc_cl_model_close(model);
}

/* Rows of zeros, of one large number, and others. */
static void fill(float *x, int64_t rows)
{
	for (int64_t i = 0; i < rows * DEPTH; i++)
		x[i] = i / DEPTH == 1 ? 0 : (float)((i * 7919) % 1009 - 504) / (i % 32 == 5 ? 1 : 97);
}

static void check_rows(const struct buf *dots, int64_t rows, bool is_compared)
{
	static float x[ROWS_MAX * DEPTH], plain[ROWS_MAX * COLUMNS], y[ROWS_MAX * COLUMNS];
	const char *source = code.device.code.source;
	fill(x, rows);
	if (is_compared)
		run(source, strlen(source), x, rows, plain);
	run(dots->data, dots->len, x, rows, y);
	struct interp_tensor in = {.dtype = DT_F32, .rank = 2, .dims = {rows, DEPTH}}, out = {0};
	ck_assert(interp_tensor_alloc(&code.arena, &in));
	for (int64_t i = 0; i < rows * DEPTH; i++)
		in.data[i] = (double)x[i];
	const struct interp_args args = {.dims = &rows, .inputs = &in, .outputs = &out, .arena = &code.arena};
	const struct ir_module *m = code.graph.m;
	ck_assert_int_eq(interp_run(&code.graph.cx, m, m->funcs.items[0], &args), TFMC_OK);
	float largest = 0;
	bool differs = !is_compared;
	for (int64_t i = 0; i < rows * COLUMNS; i++)
		largest = fmaxf(largest, fabsf((float)out.data[i]));
	for (int64_t i = 0; i < rows * COLUMNS; i++) {
		ck_assert_float_eq_tol(y[i], (float)out.data[i], 2e-6f * largest);
		if (is_compared)
			ck_assert_float_eq_tol(plain[i], (float)out.data[i], 2e-6f * largest);
		differs = differs || memcmp(&y[i], &plain[i], sizeof(float)) != 0;
	}
	ck_assert_msg(differs, "the other products were not used");
}

static const char *const formats[] = {"q8",  "q8_row", "q8_128", "q8a",    "q5_k",   "q4",     "q4_128",
                                      "q4a", "q4_k",   "q4g_32", "q4g_64", "iq4_nl", "iq4_xs", "mxfp4",
                                      "q4s", "q8f_32", "q8g_64", "q5",     "q5a"};

START_TEST(with_dots)
{
	struct buf text;
	if (!has_pocl())
		return;
	begin(formats[_i], _i % 3 == 0 ? ROWS_MAX : _i % 3 == 1 ? 3 : 20);
	ck_assert_ptr_nonnull(strstr(code.device.code.source, "TFMC_DOT"));
	buf_init(&text);
	buf_printf(&text, "%s%s", extension, code.device.code.source);
	check_rows(&text, _i % 3 == 0 ? 69 : 3, _i < 2);
	buf_destroy(&text);
	model_code_destroy(&code);
}
END_TEST

/* Codes that are not multiplied as such. */
START_TEST(others)
{
	static const char *const without[] = {"q6_k", "q3_k", "q2_k"};
	begin(without[_i], 3);
	ck_assert_ptr_null(strstr(code.device.code.source, "TFMC_DOT"));
	model_code_destroy(&code);
}
END_TEST

/* ---- on the mock library ---- */

static struct mock *mock;
static bool returns_wrong;

/* Expected output of the probe. */
static void launch(void *user, const char *kernel, const struct mock_arg *args)
{
	(void)user;
	for (size_t i = 0; !strcmp(kernel, "dots") && i < args[2].n / 4; i++) {
		int32_t sum = 0;
		for (size_t at = 4 * i; at < 4 * i + 4; at++)
			sum += (int32_t)(signed char)args[0].bytes[at] * (signed char)args[1].bytes[at];
		sum += returns_wrong && i == 2;
		memcpy(args[2].bytes + 4 * i, &sum, 4);
	}
}

/* Opens the model; how many programs use dots. */
static int64_t open_mocked(enum mock_dot dot, int64_t fail_at, int32_t failure)
{
	struct tfmc_device device = {
	        .name = "2", .library = mocked_path(), .message = message, .message_bytes = sizeof(message)};
	struct tfmc_cl_model *model;
	*mock = (struct mock){.platforms = MOCK_PLATFORMS,
	                      .dot = dot,
	                      .fail_at = fail_at,
	                      .code = failure,
	                      .launched = launch};
	ck_assert_msg(tfmc_cl_model_open(&code.device.code, &device, &model) == TFMC_RT_OK, "%s", message);
	tfmc_cl_model_close(model);
	ck_assert(mock->live == 0 && mock->misuse == 0);
	return mock->dots;
}

START_TEST(probes)
{
	mock = mocked();
	returns_wrong = false;
	begin("q8", 3);
	ck_assert_int_eq(open_mocked(MOCK_NO_DOT, 0, 0), 0);
	int64_t usual = mock->calls;
	ck_assert_int_eq(open_mocked(MOCK_DOT_SLOW, 0, 0), 0);
	ck_assert_int_eq(mock->calls, usual + 1); /* nothing was tried */
	ck_assert_int_eq(open_mocked(MOCK_DOT, 0, 0), 1);
	ck_assert_int_eq(open_mocked(MOCK_DOT_OLD, 0, 0), 1);
	returns_wrong = true;
	ck_assert_int_eq(open_mocked(MOCK_DOT, 0, 0), 0);
	model_code_destroy(&code);
}
END_TEST

/* Every call of the probe with every code. */
START_TEST(probe_fails)
{
	int64_t begin_at = 0, end_at = 0;
	mock = mocked();
	returns_wrong = false;
	begin("q8", 3);
	ck_assert_int_eq(open_mocked(MOCK_DOT, 0, 0), 1);
	while (strcmp(mock->log[begin_at], "clCreateProgramWithSource") != 0)
		begin_at++;
	for (end_at = begin_at; strcmp(mock->log[end_at], "clEnqueueReadBuffer") != 0;)
		end_at++;
	ck_assert_int_gt(end_at, begin_at + 10);
	for (int64_t at = begin_at; at <= end_at; at++)
		for (size_t c = 0; c < mocked_codes_n; c++)
			ck_assert_int_eq(open_mocked(MOCK_DOT, at + 1, mocked_codes[c].code), 0);
	model_code_destroy(&code);
}
END_TEST

/* A program that has no use for them. */
START_TEST(floats)
{
	mock = mocked();
	returns_wrong = false;
	begin(NULL, 3);
	ck_assert_int_eq(open_mocked(MOCK_DOT, 0, 0), 0);
	int64_t calls = mock->calls;
	ck_assert_int_eq(open_mocked(MOCK_DOT_SLOW, 0, 0), 0);
	ck_assert_int_eq(mock->calls, calls);
	model_code_destroy(&code);
}
END_TEST

Suite *suite_opencl_dot(void);
Suite *suite_opencl_dot(void)
{
	Suite *s = suite_create("opencl_dot");
	TCase *t = tcase_create("dot products of a device");
	tcase_set_timeout(t, 120);
	effort_add_loop(t, with_dots, (int)TFMC_COUNT(formats), 2);
	tcase_add_loop_test(t, others, 0, 3);
	tcase_add_test(t, probes);
	tcase_add_test(t, probe_fails);
	tcase_add_test(t, floats);
	suite_add_tcase(s, t);
	return s;
}
