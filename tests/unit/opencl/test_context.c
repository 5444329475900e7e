/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, buffers, programs and launches of libtfmccl on the mock library: what is asked of the device, and
 * every call failed with every code.
 */
#include <check.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/opencl/mocked.h"

#define BYTES 5000
#define PIECE 1000
#define PAGE  4096

static struct mock *mock;
static struct tfmc_cl *cl;
static struct tfmc_cl_error error;
static alignas(PAGE) char data[2 * PAGE];
static const char text[] = "__kernel void first() {}\n__kernel void second() {}\n";
static const struct tfmc_cl_source source = {text, sizeof(text) - 1, "-cl-std=CL1.2", NULL};

static void begin(void)
{
	mock = mocked();
	ck_assert_msg(tfmc_cl_open(mocked_path(), &cl, &error) == TFMC_CL_OK, "%s", error.text);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 256);
	*mock = (struct mock){.platforms = MOCK_PLATFORMS};
}

static void end(void)
{
	tfmc_cl_close(cl);
	ck_assert_int_eq(mock->live, 0);
	ck_assert_int_eq(mock->misuse, 0);
}

/* Everything that a program can do on device `number`; the status of the first failure. */
struct use {
	struct tfmc_cl_context *context;
	struct tfmc_cl_buffer *buffer, *shared;
	struct tfmc_cl_program *program;
	struct tfmc_cl_kernel *kernel;
	char back[BYTES], later[2];
};

static int use_kernel(struct use *u)
{
	static const uint64_t groups[] = {6, 1}, items[] = {64, 2};
	uint64_t most;
	int32_t word = 5;
	int status = tfmc_cl_program_build(u->context, &source, &u->program, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_create(u->program, "second", &u->kernel, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_items(u->kernel, &most, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_set_buffer(u->kernel, 0, u->buffer, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_kernel_set(u->kernel, 1, &word, sizeof(word), &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_launch(u->kernel, groups, items, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_finish(u->context, &error);
	return status;
}

static int use(struct use *u, size_t number)
{
	memset(u, 0, sizeof(*u));
	error.text[0] = 0;
	int status = tfmc_cl_context_open(cl, number, PIECE, &u->context, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_buffer_create(u->context, BYTES, &u->buffer, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_buffer_share(u->context, data, sizeof(data), &u->shared, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_upload(u->buffer, 1, data, BYTES - 1, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_copy(u->shared, 4000, u->buffer, 100, 50, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_clear(u->buffer, 0, 10, &error);
	if (status == TFMC_CL_OK)
		status = use_kernel(u);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_download(u->buffer, 1, u->back, BYTES - 1, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_upload_async(u->buffer, 7, data + 7, 2, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_download_async(u->buffer, 7, u->later, 2, &error);
	return status;
}

static void unuse(struct use *u)
{
	tfmc_cl_kernel_free(u->kernel);
	tfmc_cl_program_free(u->program);
	tfmc_cl_buffer_free(u->shared);
	tfmc_cl_buffer_free(u->buffer);
	tfmc_cl_context_close(u->context);
}

static int64_t count(const char *call)
{
	int64_t n = 0;
	for (int64_t i = 0; i < mock->calls && i < MOCK_CALLS; i++)
		n += !strcmp(mock->log[i], call);
	return n;
}

/* ---- what is asked for ---- */

START_TEST(works)
{
	for (size_t number = 0; number < MOCK_DEVICES; number++) {
		struct use u;
		bool is_unified = number == 0;
		*mock = (struct mock){.platforms = MOCK_PLATFORMS};
		ck_assert_msg(use(&u, number) == TFMC_CL_OK, "%s", error.text);
		static const char zeros[9];
		ck_assert_int_eq(memcmp(u.back, zeros, 9), 0);
		ck_assert_int_eq(memcmp(u.back + 9, data + 9, 90), 0);
		ck_assert_int_eq(memcmp(u.back + 99, data + 4000, 50), 0);
		ck_assert_int_eq(memcmp(u.back + 149, data + 149, BYTES - 1 - 149), 0);
		ck_assert_uint_eq(tfmc_cl_buffer_bytes(u.buffer), BYTES);
		ck_assert_int_eq(tfmc_cl_buffer_is_shared(u.shared), is_unified);
		ck_assert_int_eq(mock->shared, is_unified);
		ck_assert_int_eq(count("clEnqueueReadBuffer"), 5 + 1);
		ck_assert_int_eq(count("clEnqueueWriteBuffer"), 5 + 1 + (is_unified ? 0 : 9));
		ck_assert_int_eq(mock->later, 2);
		ck_assert_int_eq(tfmc_cl_finish(u.context, &error), TFMC_CL_OK);
		ck_assert(mock->later == 0 && !memcmp(u.later, data + 7, 2));
		ck_assert(mock->groups[0] == 6 && mock->groups[1] == 1 && mock->items[0] == 64 &&
		          mock->items[1] == 2);
		unuse(&u);
		ck_assert_int_eq(mock->live, 0);
	}
}
END_TEST

/* On a processor a buffer of zeros lies in pages that nothing has touched; elsewhere it is cleared. Pages that the
 * driver declines are no failure. */
START_TEST(zeros)
{
	for (size_t number = 0; number < MOCK_DEVICES; number++) {
		struct tfmc_cl_context *context;
		struct tfmc_cl_buffer *buffer;
		static char back[3 * PAGE];
		static const char none[3 * PAGE];
		*mock = (struct mock){.platforms = MOCK_PLATFORMS};
		ck_assert_int_eq(tfmc_cl_context_open(cl, number, 0, &context, &error), TFMC_CL_OK);
		for (int declines = 0; declines < 2; declines++) {
			bool in_pages = number == 0 && !declines;
			mock->calls = 0;
			mock->shared = 0;
			mock->fail_at = number == 0 && declines; /* the first clCreateBuffer */
			mock->code = CL_OUT_OF_RESOURCES;
			memset(back, 1, sizeof(back));
			ck_assert_msg(tfmc_cl_buffer_zeroed(context, sizeof(back), &buffer, &error) ==
			                      TFMC_CL_OK,
			              "%s", error.text);
			ck_assert_int_eq(count("clEnqueueFillBuffer"), !in_pages);
			ck_assert_int_eq(mock->shared, in_pages);
			ck_assert_int_eq(tfmc_cl_buffer_is_shared(buffer), 0);
			ck_assert_int_eq(tfmc_cl_upload(buffer, PAGE, data, 5, &error), TFMC_CL_OK);
			ck_assert_int_eq(tfmc_cl_download(buffer, 0, back, sizeof(back), &error), TFMC_CL_OK);
			ck_assert(!memcmp(back, none, PAGE) && !memcmp(back + PAGE, data, 5) &&
			          !memcmp(back + PAGE + 5, none, 2 * PAGE - 5));
			tfmc_cl_buffer_free(buffer);
		}
		tfmc_cl_context_close(context);
		ck_assert_int_eq(mock->live, 0);
	}
}
END_TEST

START_TEST(every_call_fails)
{
	static const char *names[MOCK_CALLS];
	for (size_t number = 0; number < MOCK_DEVICES; number += 2) {
		struct use u;
		*mock = (struct mock){.platforms = MOCK_PLATFORMS};
		ck_assert_int_eq(use(&u, number), TFMC_CL_OK);
		int64_t asked = mock->calls; /* of these a failure is told; of those of freeing it is not */
		unuse(&u);
		int64_t n = mock->calls;
		ck_assert(asked > 20 && n > asked && n < MOCK_CALLS);
		memcpy(names, mock->log, sizeof(names));
		for (int64_t at = 0; at < n; at++) {
			/* A second buffer is that of the process, or else a copy. */
			bool is_told = at < asked && !(number == 0 && at == 3);
			for (size_t c = 0; c < mocked_codes_n; c++) {
				*mock = (struct mock){.platforms = MOCK_PLATFORMS,
				                      .fail_at = at + 1,
				                      .code = mocked_codes[c].code};
				int want = !is_told ? TFMC_CL_OK
				           : !strcmp(names[at], "clBuildProgram") &&
				                           mocked_codes[c].code == CL_BUILD_PROGRAM_FAILURE
				                   ? TFMC_CL_E_BUILD
				                   : TFMC_CL_E_CALL;
				int got = use(&u, number);
				unuse(&u);
				ck_assert_msg(got == want, "%s, %s: status %d, '%s'", names[at],
				              mocked_codes[c].name, got, error.text);
				ck_assert_msg(!is_told ||
				                      mocked_tells(error.text, names[at], &mocked_codes[c]),
				              "%s failed with %s: '%s'", names[at], mocked_codes[c].name,
				              error.text);
				ck_assert(!is_told || error.code == mocked_codes[c].code);
				ck_assert_msg(mock->live == 0, "%s: %lld objects are left", names[at],
				              (long long)mock->live);
			}
		}
	}
}
END_TEST

START_TEST(nothing_is_created)
{
	struct use u;
	mock->odd = MOCK_NULL_OBJECTS;
	ck_assert_int_eq(use(&u, 1), TFMC_CL_E_ANSWER);
	ck_assert_str_eq(error.text, "clCreateContext: a null pointer");
	ck_assert_ptr_null(u.context);
}
END_TEST

/* ---- limits ---- */

START_TEST(limits)
{
	static const uint64_t one[] = {1, 1}, none[] = {0, 1}, many[] = {UINT64_MAX, 1}, two[] = {2, 1},
	                      wide[] = {129, 1};
	struct use u;
	struct tfmc_cl_buffer *b;
	struct tfmc_cl_kernel *k;
	char byte = 0;
	ck_assert_int_eq(use(&u, 0), TFMC_CL_OK);
	ck_assert_int_eq(tfmc_cl_buffer_create(u.context, (1 << 18) + 1, &b, &error), TFMC_CL_E_RANGE);
	ck_assert_str_eq(error.text, "a buffer of 262145 bytes, the device gives at most 262144");
	ck_assert_ptr_null(b);
	ck_assert_int_eq(tfmc_cl_buffer_create(u.context, UINT64_MAX, &b, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_buffer_share(u.context, data, 1 << 20, &b, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_buffer_create(u.context, 0, &b, &error), TFMC_CL_OK);
	ck_assert_int_eq(tfmc_cl_upload(b, 0, NULL, 0, &error), TFMC_CL_OK);
	ck_assert_int_eq(tfmc_cl_upload(b, 0, &byte, 1, &error), TFMC_CL_E_RANGE);
	tfmc_cl_buffer_free(b);
	ck_assert_int_eq(tfmc_cl_buffer_share(u.context, data + 1, 100, &b, &error), TFMC_CL_OK);
	ck_assert_msg(!tfmc_cl_buffer_is_shared(b), "data that begin inside of a page are copied");
	tfmc_cl_buffer_free(b);
	ck_assert_int_eq(tfmc_cl_upload(u.buffer, BYTES, &byte, 1, &error), TFMC_CL_E_RANGE);
	ck_assert_str_eq(error.text, "1 bytes from byte 5000 of a buffer of 5000");
	ck_assert_int_eq(tfmc_cl_download(u.buffer, UINT64_MAX, &byte, 2, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_download(u.buffer, 2, &byte, UINT64_MAX, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_upload_async(u.buffer, BYTES, &byte, 1, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_download_async(u.buffer, 2, &byte, BYTES, NULL), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_upload(u.shared, 0, &byte, 1, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_clear(u.shared, 0, 1, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_clear(u.buffer, 1, BYTES, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_copy(u.buffer, 0, u.shared, 0, 1, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_copy(u.shared, 0, u.buffer, BYTES, 1, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_copy(u.shared, UINT64_MAX, u.buffer, 0, 2, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_copy(u.buffer, 10, u.buffer, 0, 11, &error), TFMC_CL_E_RANGE);
	ck_assert_str_eq(error.text, "a copy of 11 bytes over a distance of 10 overlaps");
	ck_assert_int_eq(tfmc_cl_copy(u.buffer, 10, u.buffer, 0, 10, &error), TFMC_CL_OK);
	ck_assert_int_eq(tfmc_cl_copy(u.buffer, 0, u.buffer, 0, 0, &error), TFMC_CL_OK);
	ck_assert_int_eq(tfmc_cl_launch(u.kernel, none, one, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_launch(u.kernel, many, two, &error), TFMC_CL_E_RANGE);
	ck_assert_int_eq(tfmc_cl_launch(u.kernel, one, wide, &error), TFMC_CL_E_CALL);
	ck_assert_str_eq(error.text, "clEnqueueNDRangeKernel(second, 1 x 1 groups of 129 x 1): "
	                             "CL_INVALID_WORK_GROUP_SIZE (-54)");
	ck_assert_int_eq(tfmc_cl_kernel_set(u.kernel, 64, &byte, 1, &error), TFMC_CL_E_CALL);
	ck_assert_str_eq(error.text, "clSetKernelArg(second, 64): CL_INVALID_ARG_INDEX (-49)");
	ck_assert_int_eq(tfmc_cl_kernel_create(u.program, "third", &k, &error), TFMC_CL_E_CALL);
	ck_assert_str_eq(error.text, "clCreateKernel(third): CL_INVALID_KERNEL_NAME (-46)");
	unuse(&u);
}
END_TEST

START_TEST(null_pointers)
{
	static const uint64_t one[] = {1, 1};
	struct tfmc_cl_context *c;
	struct tfmc_cl_buffer *b;
	struct tfmc_cl_program *p;
	struct tfmc_cl_kernel *k;
	uint64_t n;
	char byte = 0;
	ck_assert_int_eq(tfmc_cl_context_open(NULL, 0, 0, &c, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_context_open(cl, 0, 0, NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_context_open(cl, MOCK_DEVICES, 0, &c, &error), TFMC_CL_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_finish(NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_flush(NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_buffer_create(NULL, 1, &b, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_buffer_share(NULL, data, 1, &b, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_upload(NULL, 0, &byte, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_download(NULL, 0, &byte, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_upload_async(NULL, 0, &byte, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_download_async(NULL, 0, &byte, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_copy(NULL, 0, NULL, 0, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_clear(NULL, 0, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_program_build(NULL, &source, &p, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_kernel_create(NULL, "first", &k, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_kernel_items(NULL, &n, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_kernel_set(NULL, 0, &byte, 1, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_kernel_set_buffer(NULL, 0, NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_launch(NULL, one, one, NULL), TFMC_CL_E_NULL);
	ck_assert(tfmc_cl_buffer_bytes(NULL) == 0 && !tfmc_cl_buffer_is_shared(NULL));
	struct use none = {0};
	unuse(&none);
}
END_TEST

/* ---- programs that do not compile ---- */

START_TEST(build_fails)
{
	static const struct {
		enum mock_odd odd;
		const char *want;
	} rows[] = {
	        {MOCK_USUAL, "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11)\nsource:1: note: a long "
	                     "way\nsource:2:5: error: WRONG is no word"},
	        {MOCK_NO_END, "\nsource:2:5: error: WRONG is no word"},
	        {MOCK_LONG, "(-11)\nsource:2:5: error: WRONG is no word"},
	        {MOCK_EMPTY,
	         "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11), and no messages of the compiler"},
	        {MOCK_HUGE, "no messages of the compiler: clGetProgramBuildInfo(CL_PROGRAM_BUILD_LOG): a "
	                    "result of 1099511627776 bytes"},
	};
	static const char wrong[] = "WRONG";
	struct tfmc_cl_context *c;
	struct tfmc_cl_program *p;
	ck_assert_int_eq(tfmc_cl_context_open(cl, 2, 0, &c, &error), TFMC_CL_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tfmc_cl_source s = {wrong, sizeof(wrong) - 1, NULL, NULL};
		mock->odd = rows[i].odd;
		ck_assert_int_eq(tfmc_cl_program_build(c, &s, &p, &error), TFMC_CL_E_BUILD);
		ck_assert_msg(mocked_has(error.text, rows[i].want), "%zu: %s", i, error.text);
		ck_assert(!p && error.code == CL_BUILD_PROGRAM_FAILURE);
		s.bytes = 0;
		ck_assert_int_eq(tfmc_cl_program_build(c, &s, &p, &error), TFMC_CL_E_RANGE);
	}
	mock->odd = MOCK_USUAL;
	mock->fail_at = mock->calls + 3;
	mock->code = CL_OUT_OF_HOST_MEMORY;
	struct tfmc_cl_source s = {wrong, sizeof(wrong) - 1, NULL, NULL};
	ck_assert_int_eq(tfmc_cl_program_build(c, &s, &p, &error), TFMC_CL_E_BUILD);
	ck_assert_msg(mocked_has(error.text,
	                         "clGetProgramBuildInfo(CL_PROGRAM_BUILD_LOG): CL_OUT_OF_HOST_MEMORY (-6)"),
	              "%s", error.text);
	tfmc_cl_context_close(c);
}
END_TEST

/* ---- the device of this machine ---- */

static void run_twice_plus(struct tfmc_cl_context *c, const float *in, float *out)
{
	static const char kernel[] =
	        "__kernel void twice_plus(__global const float *a, __global float *b, float c)\n"
	        "{\n\tsize_t i = get_global_id(0);\n\tb[i] = 2.0f * a[i] + c;\n}\n";
	static const uint64_t groups[] = {PAGE / 64, 1}, items[] = {64, 1};
	const struct tfmc_cl_source s = {kernel, sizeof(kernel) - 1, "-cl-std=CL1.2", NULL};
	struct tfmc_cl_program *p;
	struct tfmc_cl_kernel *k;
	struct tfmc_cl_buffer *a, *b;
	float three = 3.0f;
	uint64_t most;
	ck_assert_msg(!tfmc_cl_buffer_share(c, in, PAGE * sizeof(*in), &a, &error), "%s", error.text);
	ck_assert_msg(!tfmc_cl_buffer_create(c, PAGE * sizeof(*in), &b, &error), "%s", error.text);
	ck_assert_msg(!tfmc_cl_program_build(c, &s, &p, &error), "%s", error.text);
	ck_assert_msg(!tfmc_cl_kernel_create(p, "twice_plus", &k, &error), "%s", error.text);
	ck_assert(!tfmc_cl_kernel_items(k, &most, &error) && most >= items[0]);
	ck_assert(!tfmc_cl_clear(b, 0, PAGE * sizeof(*in), &error) && !tfmc_cl_copy(a, 0, b, 64, 64, &error));
	ck_assert(!tfmc_cl_download(b, 64, out, 64, &error) && !memcmp(in, out, 64));
	ck_assert(!tfmc_cl_kernel_set_buffer(k, 0, a, &error) && !tfmc_cl_kernel_set_buffer(k, 1, b, &error));
	ck_assert(!tfmc_cl_kernel_set(k, 2, &three, sizeof(three), &error));
	ck_assert_msg(!tfmc_cl_launch(k, groups, items, &error), "%s", error.text);
	ck_assert_msg(!tfmc_cl_finish(c, &error), "%s", error.text);
	ck_assert_msg(!tfmc_cl_download(b, 0, out, PAGE * sizeof(*out), &error), "%s", error.text);
	tfmc_cl_kernel_free(k);
	tfmc_cl_program_free(p);
	tfmc_cl_buffer_free(a);
	tfmc_cl_buffer_free(b);
}

START_TEST(real_device)
{
	static alignas(PAGE) float in[PAGE], out[PAGE];
	static const char wrong[] = "__kernel void wrong() { nothing_of_this_name(); }\n";
	const struct tfmc_cl_source s = {wrong, sizeof(wrong) - 1, NULL, NULL};
	struct tfmc_cl_context *c;
	struct tfmc_cl_program *p;
	if (tfmc_cl_open(NULL, &cl, &error) || tfmc_cl_context_open(cl, 0, PIECE, &c, &error)) {
		(void)fprintf(stderr, "SKIPPED: kernels on an OpenCL device: %s\n", error.text);
		tfmc_cl_close(cl);
		return;
	}
	for (size_t i = 0; i < PAGE; i++)
		in[i] = (float)i / 16.0f;
	run_twice_plus(c, in, out);
	for (size_t i = 0; i < PAGE; i++)
		ck_assert_msg(out[i] == 2.0f * in[i] + 3.0f, "%zu: %g", i, (double)out[i]);
	ck_assert_int_eq(tfmc_cl_program_build(c, &s, &p, &error), TFMC_CL_E_BUILD);
	ck_assert_msg(mocked_has(error.text, "nothing_of_this_name"), "%s", error.text);
	tfmc_cl_context_close(c);
	tfmc_cl_close(cl);
}
END_TEST

Suite *suite_context(void);
Suite *suite_context(void)
{
	Suite *s = suite_create("context");
	TCase *c = tcase_create("context");
	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, begin, end);
	tcase_add_test(c, works);
	tcase_add_test(c, zeros);
	tcase_add_test(c, every_call_fails);
	tcase_add_test(c, nothing_is_created);
	tcase_add_test(c, limits);
	tcase_add_test(c, null_pointers);
	tcase_add_test(c, build_fails);
	suite_add_tcase(s, c);
	TCase *real = tcase_create("real");
	tcase_set_timeout(real, 120);
	tcase_add_test(real, real_device);
	suite_add_tcase(s, real);
	return s;
}
