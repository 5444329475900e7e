/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of kernels and peaks of devices: their figures on the mock library, every call failed with every code, and what
 * a real device says.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/opencl/mocked.h"

#define LARGEST (1 << 20)
#define SPENT   10000000 /* nanoseconds: long enough, so that nothing is repeated */

static struct mock *mock;
static struct tfmc_cl *cl;
static struct tfmc_cl_error error;
static const uint64_t one[] = {1, 1};

static void script(int64_t at, int64_t code)
{
	*mock = (struct mock){.platforms = MOCK_PLATFORMS, .fail_at = at, .code = code, .nanoseconds = SPENT};
	error.text[0] = 0;
}

static void begin(void)
{
	mock = mocked();
	mock->largest = LARGEST;
	ck_assert_msg(tfmc_cl_open(mocked_path(), &cl, &error) == TFMC_CL_OK, "%s", error.text);
	script(0, 0);
}

static void end(void)
{
	tfmc_cl_close(cl);
	ck_assert_int_eq(mock->live, 0);
	ck_assert_int_eq(mock->misuse, 0);
}

static bool is_near(double a, double b)
{
	return a > b * 0.999999 && a < b * 1.000001;
}

/* ---- peaks ---- */

/* A processor of 8 units with vectors of 8 floats, GPUs of 16 and 32 units. */
START_TEST(peaks)
{
	static const struct {
		size_t number;
		uint64_t bytes;
		double floats, read; /* operations and bytes of a launch of one repeat */
	} rows[] = {
	        {0, 1 << 16, 2.0 * 14 * 8 * 16 * 4, 1 << 16},
	        {0, UINT64_MAX, 2.0 * 14 * 8 * 16 * 4, LARGEST},
	        {0, 255, 2.0 * 14 * 8 * 16 * 4, 0},
	        {0, 257, 2.0 * 14 * 8 * 16 * 4, 256},
	        {1, 10000, 2.0 * 14 * 16 * 64 * 16, 2 * 4096},
	        {2, 0, 2.0 * 14 * 32 * 64 * 16, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tfmc_cl_peaks r;
		script(0, 0);
		ck_assert_msg(!tfmc_cl_peaks(cl, rows[i].number, rows[i].bytes, &r, &error), "%s",
		              error.text);
		double seconds = SPENT * 1e-9;
		ck_assert(is_near(r.f32 * seconds, rows[i].floats));
		ck_assert(is_near(r.int8 * seconds, 4 * rows[i].floats));
		ck_assert(rows[i].read > 0 ? is_near(r.bytes * seconds, rows[i].read) : r.bytes == 0);
		ck_assert_int_eq(mock->live, 0);
	}
}
END_TEST

/* A kernel that is too fast for the clock runs often, and without end never. */
START_TEST(no_time)
{
	struct tfmc_cl_peaks r;
	mock->nanoseconds = 0;
	ck_assert_int_eq(tfmc_cl_peaks(cl, 0, 1 << 16, &r, &error), TFMC_CL_OK);
	ck_assert(r.f32 == 0 && r.int8 == 0 && r.bytes == 0);
	mock->odd = MOCK_BACKWARDS;
	ck_assert_int_eq(tfmc_cl_peaks(cl, 0, 1 << 16, &r, &error), TFMC_CL_E_ANSWER);
	ck_assert_str_eq(error.text, "clGetEventProfilingInfo: a kernel ends before it begins");
}
END_TEST

/* Each call with a code, and the first one of a name with every one. */
START_TEST(every_call_fails)
{
	static const char *names[MOCK_CALLS];
	struct tfmc_cl_peaks r;
	ck_assert_int_eq(tfmc_cl_peaks(cl, 2, 1 << 16, &r, &error), TFMC_CL_OK);
	int64_t n = mock->calls, last = n; /* the last one that waits is that of closing */
	ck_assert(n > 100 && n < MOCK_CALLS);
	memcpy(names, mock->log, sizeof(names));
	while (strcmp(names[--last], "clFinish") != 0)
		;
	for (int64_t at = 0, first; at < n; at++) {
		for (first = 0; strcmp(names[first], names[at]) != 0;)
			first++;
		for (size_t c = first < at ? (size_t)at % mocked_codes_n : 0; c < mocked_codes_n;
		     c += first < at ? mocked_codes_n : 1) {
			bool is_told = strncmp(names[at], "clRelease", 9) != 0 && at != last;
			script(at + 1, mocked_codes[c].code);
			r.f32 = 1;
			int status = tfmc_cl_peaks(cl, 2, 1 << 16, &r, &error);
			ck_assert_msg((status != TFMC_CL_OK) == is_told, "%s, %s: status %d", names[at],
			              mocked_codes[c].name, status);
			ck_assert_msg(!is_told || mocked_tells(error.text, names[at], &mocked_codes[c]),
			              "%s failed with %s: '%s'", names[at], mocked_codes[c].name, error.text);
			ck_assert((r.f32 == 0 && r.bytes == 0) == is_told);
			ck_assert_int_eq(mock->live, 0);
		}
	}
}
END_TEST

START_TEST(wrong)
{
	struct tfmc_cl_peaks r;
	struct tfmc_cl_event *event = NULL;
	uint64_t spent;
	ck_assert_int_eq(tfmc_cl_peaks(cl, 0, 1, NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_peaks(NULL, 0, 1, &r, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_peaks(cl, MOCK_DEVICES, 1, &r, NULL), TFMC_CL_E_DEVICE);
	ck_assert_int_eq(tfmc_cl_launch_timed(NULL, one, one, &event, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_launch_timed(NULL, one, one, NULL, &error), TFMC_CL_E_NULL);
	ck_assert_int_eq(tfmc_cl_event_wait(NULL, event, &spent, &error), TFMC_CL_E_NULL);
}
END_TEST

/* ---- launches ---- */

/* The first launch that is timed has a queue of its own, which stays. */
START_TEST(queues)
{
	static const char text[] = "__kernel void first() {}\n";
	static const uint64_t none[] = {0, 1};
	const struct tfmc_cl_source source = {text, sizeof(text) - 1, NULL, NULL};
	struct tfmc_cl_context *c;
	struct tfmc_cl_program *p;
	struct tfmc_cl_kernel *k;
	struct tfmc_cl_event *events[3];
	uint64_t spent;
	ck_assert(!tfmc_cl_context_open(cl, 1, 0, &c, &error) &&
	          !tfmc_cl_program_build(c, &source, &p, &error));
	ck_assert(!tfmc_cl_kernel_create(p, "first", &k, &error) && !tfmc_cl_launch(k, one, one, &error));
	mock->odd = MOCK_NULL_OBJECTS;
	ck_assert_int_eq(tfmc_cl_launch_timed(k, one, one, &events[0], &error), TFMC_CL_E_ANSWER);
	ck_assert(!events[0] && !strcmp(error.text, "clCreateCommandQueue: a null pointer"));
	mock->odd = MOCK_USUAL;
	int64_t live = mock->live;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(tfmc_cl_launch_timed(k, one, one, &events[i], &error), TFMC_CL_OK);
	ck_assert_int_eq(mock->live, live + 3);
	mock->odd = MOCK_NULL_OBJECTS;
	struct tfmc_cl_event *event;
	ck_assert_int_eq(tfmc_cl_launch_timed(k, one, one, &event, &error), TFMC_CL_E_ANSWER);
	ck_assert(!event && !strcmp(error.text, "clEnqueueNDRangeKernel: a null pointer"));
	mock->odd = MOCK_USUAL;
	ck_assert_int_eq(tfmc_cl_launch_timed(k, none, one, &event, &error), TFMC_CL_E_RANGE);
	for (int i = 3; i-- > 0;)
		ck_assert(!tfmc_cl_event_wait(c, events[i], &spent, &error) && spent == SPENT);
	ck_assert_int_eq(mock->live, live);
	ck_assert_int_eq(tfmc_cl_launch(k, one, one, &error), TFMC_CL_OK);
	tfmc_cl_kernel_free(k);
	tfmc_cl_program_free(p);
	tfmc_cl_context_close(c);
}
END_TEST

/* ---- the device of this machine ---- */

START_TEST(real_device)
{
	struct tfmc_cl_peaks r;
	if (tfmc_cl_open(NULL, &cl, &error) || tfmc_cl_count(cl) == 0) {
		(void)fprintf(stderr, "SKIPPED: peaks of an OpenCL device: there is none\n");
		tfmc_cl_close(cl);
		return;
	}
	ck_assert_msg(!tfmc_cl_peaks(cl, 0, 1 << 20, &r, &error), "%s", error.text);
	ck_assert(r.f32 > 1e8 && r.int8 > 1e8 && r.bytes > 1e8);
	ck_assert_msg(r.f32 < 1e16 && r.int8 < 1e16 && r.bytes < 1e15, "the compiler has left the loops out");
	tfmc_cl_close(cl);
}
END_TEST

Suite *suite_opencl_time(void);
Suite *suite_opencl_time(void)
{
	Suite *s = suite_create("opencl_time");
	TCase *t = tcase_create("mocked");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, begin, end);
	tcase_add_test(t, peaks);
	tcase_add_test(t, no_time);
	tcase_add_test(t, every_call_fails);
	tcase_add_test(t, wrong);
	tcase_add_test(t, queues);
	suite_add_tcase(s, t);
	TCase *real = tcase_create("real");
	tcase_set_timeout(real, 120);
	tcase_add_test(real, real_device);
	suite_add_tcase(s, real);
	return s;
}
