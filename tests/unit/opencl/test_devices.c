/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of OpenCL devices (libtfmccl) on the mock library: every call failed with every code, odd answers,
 * choosing; and on the device of this machine. Tests run with sanitizers see what leaks.
 */
#include <check.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/opencl/mocked.h"

static struct mock *mock;

static void find_mock(void)
{
	mock = mocked();
}

static void script(struct mock s)
{
	s.platforms = MOCK_PLATFORMS;
	*mock = s;
}

static int open_mock(struct tfmc_cl **cl, struct tfmc_cl_error *error)
{
	error->text[0] = 0;
	return tfmc_cl_open(mocked_path(), cl, error);
}

/* ---- what is there ---- */

START_TEST(lists_all)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	script((struct mock){0});
	ck_assert_msg(open_mock(&cl, &error) == TFMC_CL_OK, "%s", error.text);
	ck_assert_uint_eq(tfmc_cl_count(cl), MOCK_DEVICES);
	ck_assert_ptr_null(tfmc_cl_fault(cl, 0));
	ck_assert_ptr_null(tfmc_cl_device(cl, MOCK_DEVICES));
	const struct tfmc_cl_device *cpu = tfmc_cl_device(cl, 0), *large = tfmc_cl_device(cl, 2);
	ck_assert_str_eq(cpu->platform, "Mock One");
	ck_assert_str_eq(cpu->name, "Mock Processor");
	ck_assert_str_eq(cpu->vendor, "Nobody");
	ck_assert_str_eq(cpu->driver, "7.5");
	ck_assert_str_eq(cpu->c_version, "OpenCL C 1.2 mock");
	ck_assert(cpu->type == TFMC_CL_CPU && cpu->is_unified && !cpu->has_own_local);
	ck_assert(cpu->has_subgroups && cpu->has_integer_dot && !cpu->has_fp16 && !cpu->has_fp64);
	ck_assert(cpu->compute_units == 8 && cpu->clock == 1500 && cpu->vector_width == 16);
	ck_assert(cpu->memory == 1 << 20 && cpu->largest == 1 << 18 && cpu->local_memory == 1 << 14);
	ck_assert_uint_eq(cpu->group_items, 256);
	ck_assert_str_eq(large->platform, "Mock Two");
	ck_assert(large->type == TFMC_CL_GPU && !large->is_unified && large->has_own_local);
	ck_assert_msg(large->has_fp16 && large->has_fp64 && !large->has_subgroups,
	              "a longer word is no extension");
	tfmc_cl_close(cl);
	ck_assert_int_eq(mock->misuse, 0);
}
END_TEST

/* ---- failures ---- */

/* Result of a listing whose call `at` fails with a code. */
static void check_failed(const char *call, int64_t at, size_t code)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	int status = open_mock(&cl, &error);
	bool is_empty =
	        !strcmp(call, "clGetPlatformIDs") && mocked_codes[code].code == CL_PLATFORM_NOT_FOUND_KHR;
	bool is_none = !strcmp(call, "clGetDeviceIDs") && mocked_codes[code].code == CL_DEVICE_NOT_FOUND;
	bool is_fatal = !strcmp(call, "clGetPlatformIDs") && !is_empty;
	bool is_needless = !strcmp(call, "clGetDeviceInfo of dot products");
	const char *text = is_fatal ? error.text : tfmc_cl_fault(cl, 0);
	ck_assert_msg(status == (is_fatal ? TFMC_CL_E_CALL : TFMC_CL_OK), "%s, call %lld: status %d", call,
	              (long long)at, status);
	ck_assert_int_eq(error.text[0] != 0 && status != TFMC_CL_OK, is_fatal);
	if (is_fatal)
		ck_assert(error.code == mocked_codes[code].code && !cl);
	if (is_empty) {
		ck_assert_uint_eq(tfmc_cl_count(cl), 0);
		ck_assert_msg(mocked_has(text, "no OpenCL driver"), "%s", text);
	} else if (is_none || is_needless) {
		ck_assert_ptr_null(text);
	} else {
		ck_assert_msg(mocked_tells(text, call, &mocked_codes[code]), "%s failed with %s: '%s'", call,
		              mocked_codes[code].name, text);
	}
	if (!is_fatal && !is_empty)
		ck_assert_msg(tfmc_cl_count(cl) > 0 && (tfmc_cl_count(cl) == MOCK_DEVICES) == is_needless,
		              "%s: %zu devices", call, tfmc_cl_count(cl));
	tfmc_cl_close(cl);
}

START_TEST(every_call_fails)
{
	static const char *names[MOCK_CALLS]; /* in the order of a listing without failures */
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	script((struct mock){0});
	ck_assert_int_eq(open_mock(&cl, &error), TFMC_CL_OK);
	tfmc_cl_close(cl);
	int64_t n = mock->calls;
	ck_assert_msg(n > 60 && n < MOCK_CALLS, "%lld calls", (long long)n);
	memcpy(names, mock->log, sizeof(names));
	for (int64_t at = 1; at <= n; at++) {
		for (size_t c = 0; c < mocked_codes_n; c++) {
			script((struct mock){.fail_at = at, .code = mocked_codes[c].code});
			check_failed(names[at - 1], at, c);
			ck_assert_int_eq(mock->misuse, 0);
		}
	}
}
END_TEST

START_TEST(odd_answers)
{
	static const struct {
		enum mock_odd odd;
		size_t devices;
		const char *fault; /* NULL: none */
	} rows[] = {
	        {MOCK_NO_END, 3, NULL},
	        {MOCK_LONG, 3, NULL},
	        {MOCK_TINY, 3, NULL},
	        {MOCK_HUGE, 0,
	         "platform 0: clGetPlatformInfo(CL_PLATFORM_NAME): a result of 1099511627776 bytes"},
	        {MOCK_CONTROLS, 0, "OpenCL 1.2 is needed"},
	        {MOCK_EMPTY, 0, "'' says it is '', OpenCL 1.2 is needed"},
	        {MOCK_SHORT_VALUES, 0,
	         "Mock One, device 0: clGetDeviceInfo(CL_DEVICE_MAX_COMPUTE_UNITS): a result of 1 bytes, "
	         "not 4"},
	        {MOCK_NULL_IDS, 0, "platform 0: clGetPlatformIDs: a platform is a null pointer"},
	        {MOCK_NULL_DEVICES, 0, "Mock One, device 0: clGetDeviceIDs: a device is a null pointer"},
	        {MOCK_NO_DEVICES, 0, NULL},
	        {MOCK_OLD, 0, "'Mock Processor' says it is 'OpenCL 1.1 mock', OpenCL 1.2 is needed"},
	        {MOCK_NO_COMPILER, 0, "'Mock Processor' has no compiler"},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tfmc_cl *cl;
		struct tfmc_cl_error error;
		size_t number;
		script((struct mock){.odd = rows[i].odd});
		ck_assert_msg(open_mock(&cl, &error) == TFMC_CL_OK, "%zu: %s", i, error.text);
		const char *fault = tfmc_cl_fault(cl, 0);
		ck_assert_msg(tfmc_cl_count(cl) == rows[i].devices, "%zu: %zu devices", i, tfmc_cl_count(cl));
		ck_assert_msg(rows[i].fault ? mocked_has(fault, rows[i].fault) : !fault, "%zu: %s", i, fault);
		for (const char *p = fault; p && *p; p++)
			ck_assert(!iscntrl((unsigned char)*p));
		ck_assert_int_eq(tfmc_cl_choose(cl, 0, NULL, &number, &error),
		                 rows[i].devices ? TFMC_CL_OK : TFMC_CL_E_DEVICE);
		tfmc_cl_close(cl);
		ck_assert_int_eq(mock->misuse, 0);
	}
}
END_TEST

START_TEST(too_many_platforms)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	script((struct mock){.odd = MOCK_MANY});
	ck_assert_int_eq(open_mock(&cl, &error), TFMC_CL_E_ANSWER);
	ck_assert_str_eq(error.text, "clGetPlatformIDs: 4294967295 platforms, at most 64 are read");
	ck_assert_ptr_null(cl);
}
END_TEST

START_TEST(no_library)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	ck_assert_int_eq(tfmc_cl_open("/nowhere/libOpenCL.so.1", &cl, &error), TFMC_CL_E_LIBRARY);
	ck_assert_msg(mocked_has(error.text, "/nowhere/libOpenCL.so.1"), "%s", error.text);
	ck_assert(error.code == 0 && !cl);
	ck_assert_int_eq(tfmc_cl_open("libm.so.6", &cl, &error), TFMC_CL_E_LIBRARY);
	ck_assert_str_eq(error.text, "the OpenCL library has no function clGetPlatformIDs");
	ck_assert_int_eq(tfmc_cl_open("/nowhere", NULL, NULL), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_open("/nowhere", &cl, NULL), TFMC_CL_E_LIBRARY);
}
END_TEST

/* ---- choosing ---- */

START_TEST(chooses)
{
	static const struct {
		const char *wanted;
		int status;
		size_t number;
		const char *text;
	} rows[] = {
	        {NULL, TFMC_CL_OK, 2, ""},
	        {"", TFMC_CL_OK, 2, ""},
	        {"0", TFMC_CL_OK, 0, ""},
	        {"1", TFMC_CL_OK, 1, ""},
	        {"gpu", TFMC_CL_OK, 2, ""},
	        {"MOCK GPU SM", TFMC_CL_OK, 1, ""},
	        {"mock one", TFMC_CL_OK, 0, ""},
	        {"nobody", TFMC_CL_OK, 2, ""},
	        {"3", TFMC_CL_E_DEVICE, 0, "there is no OpenCL device 3, they are 0 to 2"},
	        {"18446744073709551616", TFMC_CL_E_DEVICE, 0,
	         "there is no OpenCL device 18446744073709551616"},
	        {"-1", TFMC_CL_E_DEVICE, 0,
	         "no OpenCL device has '-1' in its name, vendor or platform; 0 is 'Mock Processor'"},
	        {"gpux", TFMC_CL_E_DEVICE, 0, "no OpenCL device has 'gpux'"},
	};
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	size_t number;
	script((struct mock){0});
	ck_assert_int_eq(open_mock(&cl, &error), TFMC_CL_OK);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		error.text[0] = 0;
		ck_assert_int_eq(tfmc_cl_choose(cl, 0, rows[i].wanted, &number, &error), rows[i].status);
		ck_assert_uint_eq(number, rows[i].number);
		ck_assert_msg(mocked_has(error.text, rows[i].text), "%s", error.text);
	}
	ck_assert_int_eq(tfmc_cl_choose(NULL, 0, NULL, &number, NULL), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_choose(cl, 0, NULL, NULL, NULL), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_choose(cl, 0, "gpux", &number, NULL), TFMC_CL_E_DEVICE);
	tfmc_cl_close(cl);
	tfmc_cl_close(NULL);
	ck_assert_uint_eq(tfmc_cl_count(NULL), 0);
	ck_assert_ptr_null(tfmc_cl_device(NULL, 0));
	ck_assert_ptr_null(tfmc_cl_fault(NULL, 0));
}
END_TEST

/* ---- the library of this machine ---- */

START_TEST(real_device)
{
	struct tfmc_cl *cl;
	struct tfmc_cl_error error;
	size_t number;
	int status = tfmc_cl_open(NULL, &cl, &error);
	if (status == TFMC_CL_E_LIBRARY || (status == TFMC_CL_OK && tfmc_cl_count(cl) == 0)) {
		(void)fprintf(stderr,
		              "SKIPPED: no OpenCL device (Debian: pocl-opencl-icd ocl-icd-libopencl1): %s\n",
		              status == TFMC_CL_OK ? tfmc_cl_fault(cl, 0) : error.text);
		tfmc_cl_close(cl);
		return;
	}
	ck_assert_msg(status == TFMC_CL_OK, "%s", error.text);
	ck_assert_msg(tfmc_cl_choose(cl, 0, NULL, &number, &error) == TFMC_CL_OK, "%s", error.text);
	for (size_t i = 0; i < tfmc_cl_count(cl); i++) {
		const struct tfmc_cl_device *d = tfmc_cl_device(cl, i);
		ck_assert(d->name[0] && d->platform[0] && mocked_has(d->version, "OpenCL ") &&
		          d->c_version[0]);
		ck_assert(d->compute_units > 0 && d->largest > 0 && d->largest <= d->memory &&
		          d->group_items > 0);
		ck_assert(d->local_memory > 0 && d->vector_width > 0);
	}
	tfmc_cl_close(cl);
}
END_TEST

Suite *suite_devices(void);
Suite *suite_devices(void)
{
	Suite *s = suite_create("devices");
	TCase *c = tcase_create("devices");
	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, find_mock, NULL);
	tcase_add_test(c, lists_all);
	tcase_add_test(c, every_call_fails);
	tcase_add_test(c, odd_answers);
	tcase_add_test(c, too_many_platforms);
	tcase_add_test(c, no_library);
	tcase_add_test(c, chooses);
	tcase_add_test(c, real_device);
	suite_add_tcase(s, c);
	return s;
}
