/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of libtfmccl on the mock library, when something is wrong: every call failed with every code, devices that
 * kernels are not for, arguments that cannot be; and permutations of the state.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/model.h"
#include "tests/support/mini_model.h"
#include "tests/support/opencl/mocked.h"
#include "tests/support/opencl/model_code.h"

#define BATCH   4
#define TENSORS 8

static struct mock *mock;
static struct model_code code;
static char message[512];
static int32_t past[BATCH];
static size_t decode;
static tfmc_launched_fn *launched; /* of devices */
static size_t n_told;

static void tell(void *user, uint64_t kernel, uint64_t group, uint64_t nanoseconds)
{
	(void)user, (void)kernel, (void)group, (void)nanoseconds;
	n_told++;
}

/* The large GPU, which shares no memory. */
static struct tfmc_device device(const char *name)
{
	return (struct tfmc_device){.name = name,
	                            .library = mocked_path(),
	                            .message = message,
	                            .message_bytes = sizeof(message),
	                            .launched = launched};
}

static void begin(void)
{
	mock = mocked();
	message[0] = 0;
	launched = NULL;
	model_code_make(&code, mini_model, "opencl-gpu", "O2", BATCH);
	decode = model_code_function(&code, "decode");
}

static void end(void)
{
	model_code_destroy(&code);
	ck_assert_int_eq(mock->live, 0);
	ck_assert_int_eq(mock->misuse, 0);
}

/* ---- everything that an object does ---- */

static int32_t call(struct tfmc_cl_model *model)
{
	static int32_t ids[BATCH];
	static float logits[BATCH * 20];
	static const int64_t dims[] = {BATCH, 1, 1};
	struct tfmc_buffer params[TENSORS] = {{ids, sizeof(ids)}},
	                   results[TENSORS] = {{logits, sizeof(logits)}};
	const struct tfmc_cl_call c = {decode, past, 0, -1, dims, params, results};
	return tfmc_cl_model_call(model, &c);
}

/* The first failure. *n_open: calls of opening. */
static int32_t use(struct tfmc_cl_model **model, int64_t *n_open)
{
	static const int64_t from[] = {1, 2, 0, 0};
	struct tfmc_device d = device("2");
	char bytes[64];
	int32_t status = tfmc_cl_model_open(&code.device.code, &d, model);
	*n_open = mock->calls;
	if (status == TFMC_RT_OK)
		status = call(*model);
	if (status == TFMC_RT_OK)
		status = tfmc_cl_model_copy(*model, 0, 64, 64);
	if (status == TFMC_RT_OK)
		status = tfmc_cl_model_fetch(*model, 0, bytes, sizeof(bytes));
	if (status == TFMC_RT_OK)
		status = tfmc_cl_model_store(*model, 0, bytes, sizeof(bytes));
	if (status == TFMC_RT_OK)
		status = tfmc_cl_model_permute(*model, from, BATCH, 0, 64);
	return status;
}

static void script(int64_t at, int64_t failure)
{
	*mock = (struct mock){.platforms = MOCK_PLATFORMS, .fail_at = at, .code = failure};
	message[0] = 0;
	for (int i = 0; i < BATCH; i++)
		past[i] = 5 + i;
	n_told = 0;
}

/* A call of the library, from 1, fails; afterwards the model goes on, or there is none. */
static void fail_at(int64_t at, const char *name, const struct mocked_code *why)
{
	struct tfmc_cl_model *model;
	int64_t n_open;
	script(at, why->code);
	ck_assert_msg(use(&model, &n_open) == TFMC_RT_E_DEVICE, "%s, %s: no failure", name, why->name);
	ck_assert_msg(mocked_tells(message, name, why), "%s failed with %s: '%s'", name, why->name, message);
	ck_assert_int_eq(model == NULL, at <= n_open);
	ck_assert_int_eq(mock->later, 0);
	if (model) {
		bool was_called = past[0] != 5; /* the mock's lengths are zeros */
		bool of_call = strncmp(message, "decode: ", 8) == 0;
		ck_assert(of_call != was_called && (of_call || strncmp(message, "state: ", 7) == 0));
		ck_assert_int_eq(call(model), TFMC_RT_OK);
		ck_assert(past[0] == 0 && past[BATCH - 1] == 0);
	}
	tfmc_cl_model_close(model);
	ck_assert_msg(mock->live == 0, "%s: %lld objects are left", name, (long long)mock->live);
}

START_TEST(every_call_fails)
{
	static const char *names[MOCK_CALLS];
	struct tfmc_cl_model *model;
	int64_t n_open, begin_at = 0, calls;
	size_t n_set = 0;
	script(0, 0);
	ck_assert_msg(use(&model, &n_open) == TFMC_RT_OK, "%s", message);
	calls = mock->calls;
	ck_assert(calls > n_open + 50 && calls < MOCK_CALLS);
	memcpy(names, mock->log, sizeof(names));
	tfmc_cl_model_close(model);
	/* Devices left out of the list are tested there. */
	while (strcmp(names[begin_at], "clCreateContext") != 0)
		begin_at++;
	for (int64_t at = begin_at; at < calls; at++) {
		/* Of the hundreds of arguments every code once, and every argument with one. */
		bool is_arg = strcmp(names[at], "clSetKernelArg") == 0;
		n_set += is_arg;
		for (size_t c = 0; c < mocked_codes_n; c++)
			if (!is_arg || c == n_set % mocked_codes_n)
				fail_at(at + 1, names[at], &mocked_codes[c]);
	}
	ck_assert_uint_gt(n_set, mocked_codes_n);
}
END_TEST

/* When times are wanted. */
START_TEST(every_event_fails)
{
	static const char *const wanted[] = {"clCreateCommandQueue", "clEnqueueNDRangeKernel",
	                                     "clWaitForEvents", "clGetEventProfilingInfo", "clFinish"};
	static const char *names[MOCK_CALLS];
	struct tfmc_cl_model *model;
	int64_t n_open;
	size_t n_failed = 0;
	launched = tell;
	script(0, 0);
	ck_assert_msg(use(&model, &n_open) == TFMC_RT_OK, "%s", message);
	int64_t calls = mock->calls;
	memcpy(names, mock->log, sizeof(names));
	size_t n_launched = n_told;
	tfmc_cl_model_close(model);
	for (int64_t at = n_open; at < calls; at++) {
		bool fails = false;
		for (size_t i = 0; i < TFMC_COUNT(wanted); i++)
			fails = fails || !strcmp(names[at], wanted[i]);
		for (size_t c = 0; fails && c < mocked_codes_n; c += 10)
			fail_at(at + 1, names[at], &mocked_codes[(c + (size_t)at) % mocked_codes_n]);
		n_failed += fails;
	}
	ck_assert(n_launched > 0 && n_failed >= 4 * n_launched);
}
END_TEST

START_TEST(names_the_kernel)
{
	struct tfmc_cl_model *model;
	int64_t n_open, at = 0;
	script(0, 0);
	ck_assert_int_eq(use(&model, &n_open), TFMC_RT_OK);
	while (strcmp(mock->log[at], "clEnqueueNDRangeKernel") != 0)
		at++;
	tfmc_cl_model_close(model);
	script(at + 1, CL_OUT_OF_RESOURCES);
	ck_assert_int_eq(use(&model, &n_open), TFMC_RT_E_DEVICE);
	const char *kernel = NULL;
	for (size_t i = 0; !kernel; i++)
		if (code.device.program.functions[decode]->items[i].kind == PLAN_DISPATCH)
			kernel = code.device.program.functions[decode]->items[i].kernel->name;
	char want[128];
	(void)snprintf(want, sizeof(want), "decode: kernel %s: clEnqueueNDRangeKernel(%s, ", kernel, kernel);
	ck_assert_msg(!strncmp(message, want, strlen(want)), "%s, not %s", message, want);
	ck_assert_msg(strstr(message, "): CL_OUT_OF_RESOURCES (-5)"), "%s", message);
	tfmc_cl_model_close(model);
}
END_TEST

/* ---- what is refused ---- */

static void refuse(const struct tfmc_cl_code *c, const struct tfmc_device *d, const char *want)
{
	struct tfmc_cl_model *model;
	message[0] = 0;
	ck_assert_int_eq(tfmc_cl_model_open(c, d, &model), TFMC_RT_E_DEVICE);
	ck_assert_ptr_null(model);
	ck_assert_msg(strstr(message, want), "'%s', not '%s'", message, want);
}

START_TEST(devices)
{
	static const struct {
		enum tfmc_cl_for devices;
		const char *name, *wrong;
	} rows[] = {
	        {TFMC_CL_FOR_ANY, "0", NULL},
	        {TFMC_CL_FOR_ANY, NULL, NULL},
	        {TFMC_CL_FOR_GPU, "small", NULL},
	        {TFMC_CL_FOR_GPU, NULL, NULL},
	        {TFMC_CL_FOR_GPU, "0", "the kernels are for GPUs, 'Mock Processor' is none"},
	        {TFMC_CL_FOR_WIDE_CPU, "0", NULL},
	        {TFMC_CL_FOR_WIDE_CPU, NULL, NULL}, /* though GPUs are better */
	        {TFMC_CL_FOR_WIDE_CPU, "2", "processors with vectors of 16 floats, 'Mock GPU large' is none"},
	        {TFMC_CL_FOR_WIDE_CPU, "small", "'Mock GPU small' is none"},
	        {TFMC_CL_FOR_ANY, "7", "there is no OpenCL device 7"},
	        {TFMC_CL_FOR_ANY, "nobody has this", "no OpenCL device has"},
	};
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		struct tfmc_device d = device(rows[i].name);
		struct tfmc_cl_code c = code.device.code;
		struct tfmc_cl_model *model;
		c.devices = rows[i].devices;
		if (rows[i].wrong) {
			refuse(&c, &d, rows[i].wrong);
			continue;
		}
		ck_assert_msg(tfmc_cl_model_open(&c, &d, &model) == TFMC_RT_OK, "%s", message);
		ck_assert_int_eq(call(model), TFMC_RT_OK);
		tfmc_cl_model_close(model);
	}
}
END_TEST

START_TEST(wrong_code)
{
	struct tfmc_device d = device("2"), no_library = d, odd = d;
	struct tfmc_cl_code c = code.device.code, none = {0};
	struct tfmc_cl_model *model;
	char two[2] = "xy";
	refuse(&none, &d, "plan: ");
	refuse(NULL, &d, "the code or the result pointer is null");
	c.plan_bytes--;
	refuse(&c, &d, "plan: its size is not that of its header");
	c = code.device.code;
	c.weights_bytes += 64;
	refuse(&c, &d, "bytes of weights, there are");
	c = code.device.code;
	c.batch = 1000;
	refuse(&c, &d, "a buffer of the device has at most");
	c.batch = UINT64_MAX / 64;
	refuse(&c, &d, "sequences is too large");
	c = code.device.code;
	c.source = "WRONG";
	c.source_bytes = 5;
	refuse(&c, &d, "clBuildProgram: CL_BUILD_PROGRAM_FAILURE (-11)");
	no_library.library = "/nowhere/libOpenCL.so";
	refuse(&code.device.code, &no_library, "/nowhere/libOpenCL.so");
	odd.message = two;
	odd.message_bytes = 1;
	ck_assert_int_eq(tfmc_cl_model_open(&none, &odd, &model), TFMC_RT_E_DEVICE);
	ck_assert(two[0] == 0 && two[1] == 'y');
	odd.message = NULL;
	ck_assert_int_eq(tfmc_cl_model_open(&none, &odd, &model), TFMC_RT_E_DEVICE);
	tfmc_cl_model_close(NULL);
}
END_TEST

START_TEST(wrong_calls)
{
	static const int64_t dims[] = {BATCH, 1, 1};
	static int32_t ids[BATCH];
	static float logits[BATCH * 20];
	static const struct {
		uint64_t function;
		int64_t first, source;
		uint64_t ids, logits;
		bool has_past;
		const char *wrong;
	} rows[] = {
	        {99, 0, -1, sizeof(ids), sizeof(logits), true, "there is no function 99"},
	        {0, -1, -1, sizeof(ids), sizeof(logits), true, "decode: there are no such sequences"},
	        {0, 5, -1, sizeof(ids), sizeof(logits), true, "decode: there are no such sequences"},
	        {0, 0, BATCH, sizeof(ids), sizeof(logits), true, "decode: there are no such sequences"},
	        {0, 1, -1, sizeof(ids), sizeof(logits), true, "outside of its memory"},
	        {0, 0, -1, sizeof(ids) - 1, sizeof(logits), true, "decode: a parameter is smaller"},
	        {0, 0, -1, 0, sizeof(logits), true, "decode: a parameter is smaller"},
	        {0, 0, -1, sizeof(ids), sizeof(logits) - 1, true, "decode: a result is smaller"},
	        {0, 0, -1, sizeof(ids), sizeof(logits), false, "decode: the call has no lengths"},
	};
	struct tfmc_device d = device("2");
	struct tfmc_cl_model *model;
	ck_assert_int_eq(tfmc_cl_model_open(&code.device.code, &d, &model), TFMC_RT_OK);
	for (size_t i = 0; i < TFMC_COUNT(rows); i++) {
		struct tfmc_buffer params[TENSORS] = {{rows[i].ids ? ids : NULL, rows[i].ids}};
		struct tfmc_buffer results[TENSORS] = {{logits, rows[i].logits}};
		const struct tfmc_cl_call c = {rows[i].function ? rows[i].function : decode,
		                               rows[i].has_past ? past : NULL,
		                               rows[i].first,
		                               rows[i].source,
		                               dims,
		                               params,
		                               results};
		message[0] = 0;
		ck_assert_int_eq(tfmc_cl_model_call(model, &c), TFMC_RT_E_DEVICE);
		ck_assert_msg(strstr(message, rows[i].wrong), "'%s', not '%s'", message, rows[i].wrong);
		ck_assert_int_eq(call(model), TFMC_RT_OK);
	}
	ck_assert_int_eq(tfmc_cl_model_copy(model, 0, 1, 64), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_copy(model, -1, 64, 1), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_fetch(model, 0, ids, -1), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_store(model, INT64_MAX, ids, 1), TFMC_RT_E_DEVICE);
	ck_assert_msg(strncmp(message, "state: ", 7) == 0, "%s", message);
	tfmc_cl_model_close(model);
}
END_TEST

/* ---- permutations ---- */

/* All mappings of 4 blocks, of which some move. */
START_TEST(permutations)
{
	enum { AT = 64, BYTES = 128 };
	struct tfmc_device d = device("2");
	struct tfmc_cl_model *model;
	int64_t fixed = code.device.program.object->states.fixed_bytes,
	        block = code.device.program.object->states.batch_bytes;
	ck_assert_int_eq(tfmc_cl_model_open(&code.device.code, &d, &model), TFMC_RT_OK);
	for (int64_t mapping = 0; mapping < 256 * BATCH; mapping++) {
		int64_t from[] = {mapping & 3, mapping >> 2 & 3, mapping >> 4 & 3, mapping >> 6 & 3};
		int64_t n = 1 + mapping / 256;
		char bytes[BYTES + 2];
		for (int64_t i = 0; i < BATCH; i++) {
			memset(bytes, 'a' + (int)i, sizeof(bytes));
			ck_assert_int_eq(
			        tfmc_cl_model_store(model, fixed + i * block + AT - 1, bytes, BYTES + 2),
			        TFMC_RT_OK);
		}
		ck_assert_int_eq(tfmc_cl_model_permute(model, from, n, AT, BYTES), TFMC_RT_OK);
		for (int64_t i = 0; i < BATCH; i++) {
			ck_assert_int_eq(
			        tfmc_cl_model_fetch(model, fixed + i * block + AT - 1, bytes, BYTES + 2),
			        TFMC_RT_OK);
			char want = (char)('a' + (i < n ? from[i] : i)), own = (char)('a' + i);
			ck_assert(bytes[0] == own && bytes[BYTES + 1] == own);
			ck_assert_msg(bytes[1] == want && bytes[BYTES] == want, "block %d of mapping %d",
			              (int)i, (int)mapping);
		}
	}
	int64_t live = mock->live;
	static const int64_t wrong[] = {0, BATCH}, cycle[] = {1, 0};
	mock->calls = 0;
	ck_assert_int_eq(tfmc_cl_model_permute(model, cycle, 2, AT, BYTES), TFMC_RT_OK);
	ck_assert(mock->live == live && mock->calls == 3);
	ck_assert_int_eq(tfmc_cl_model_permute(model, wrong, 2, AT, BYTES), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_permute(model, cycle, 2, block, 1), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_permute(model, cycle, 2, -1, 1), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_permute(model, cycle, 2, 1, INT64_MAX), TFMC_RT_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_model_permute(model, cycle, BATCH + 1, 0, 1), TFMC_RT_E_DEVICE);
	tfmc_cl_model_close(model);
}
END_TEST

Suite *suite_opencl_model_fails(void);
Suite *suite_opencl_model_fails(void)
{
	Suite *s = suite_create("opencl_model_fails");
	TCase *t = tcase_create("models");
	tcase_add_checked_fixture(t, begin, end);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, every_call_fails);
	tcase_add_test(t, every_event_fails);
	tcase_add_test(t, names_the_kernel);
	tcase_add_test(t, devices);
	tcase_add_test(t, wrong_code);
	tcase_add_test(t, wrong_calls);
	tcase_add_test(t, permutations);
	suite_add_tcase(s, t);
	return s;
}
