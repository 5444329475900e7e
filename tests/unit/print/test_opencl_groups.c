/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Printed OpenCL kernels on a device against the interpreter: every op on random
 * odd shapes and random programs,
 * O0 and O2 in turn: the compiler of the device takes most of the time, so that in
 * the short run it optimizes some programs only. Skipped, and said so, without a device.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <check.h>
#include <string.h>

#include "tests/opencl/trial.h"
#include "tests/support/effort.h"

#define PROGRAMS     3
#define TRANSFORMERS 90 /* by --all; else some */

static const char *const pipelines[] = {"O2", "O0"};

/* The device of a test, which optimizes with --all or when `optimizes`, or NULL after a line on stderr. */
static struct opencl_device *open_device(bool optimizes)
{
	if (!optimizes && !effort_is_all())
		setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", true);
	return opencl_device_open(NULL);
}

static struct opencl_device *begin(struct trial *t, struct opencl_device *d, size_t pipeline)
{
	trial_init(t, d, "opencl-gpu", pipelines[pipeline % TFMC_COUNT(pipelines)]);
	ck_assert(t->target != NULL);
	return d;
}

static void end(struct trial *t, enum trial_result result)
{
	ck_assert_msg(result != TRIAL_FAILED, "%s at %s: %s", t->target->name, t->pipeline,
	              t->log.data ? t->log.data : "no reason");
	trial_destroy(t);
}

START_TEST(ops)
{
	struct trial t;
	/* A third: shell/matrix has every op. */
	bool is_taken = effort_is_all() || _i % 3 == 1;
	struct opencl_device *d = is_taken ? open_device(_i % 9 == 1) : NULL;
	if (d) {
		begin(&t, d, (size_t)_i / 3);
		end(&t, trial_op(&t, (enum ir_opcode)_i, (uint64_t)_i + 1, _i % 4 == 3));
	}
	opencl_device_close(d);
}
END_TEST

START_TEST(programs)
{
	struct trial t;
	struct opencl_device *d = open_device(_i == 0);
	if (d) {
		begin(&t, d, (size_t)_i);
		end(&t, trial_program(&t, (uint64_t)_i + 1, 6 + (size_t)_i));
	}
	opencl_device_close(d);
}
END_TEST

START_TEST(transformers)
{
	struct trial t;
	bool is_taken = effort_is_all() || _i % 30 == 0;
	struct opencl_device *d = is_taken ? open_device(false) : NULL;
	if (d) {
		begin(&t, d, 0);
		end(&t, trial_transformer(&t, (uint64_t)_i + 1));
	}
	opencl_device_close(d);
}
END_TEST

/* With next to no tolerance: the group, its kernel and its place in the text. */
START_TEST(differences_are_named)
{
	struct trial t;
	struct opencl_device *d = open_device(false);
	if (d) {
		begin(&t, d, 0);
		t.tolerance = 1e-30;
		const char *text = "module \"m\"\n"
		                   "func @run(%x: f32[3,7]) -> (y: f32[3,7]) {\n"
		                   "%y = softmax %x : f32[3,7]\n"
		                   "return %y\n}\n";
		ck_assert_int_eq(trial_text(&t, "named.tir", text, 1), TRIAL_FAILED);
		ck_assert(strstr(t.log.data, "named.tir:3:1: error: run: kernel 'softmax_0'") != NULL);
		trial_destroy(&t);
	}
	opencl_device_close(d);
}
END_TEST

Suite *suite_opencl_groups(void);

Suite *suite_opencl_groups(void)
{
	Suite *s = suite_create("opencl_groups");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 240);
	tcase_add_loop_test(t, ops, 0, IR_N_OPS);
	tcase_add_loop_test(t, programs, 0, PROGRAMS);
	tcase_add_loop_test(t, transformers, 0, TRANSFORMERS);
	tcase_add_test(t, differences_are_named);
	suite_add_tcase(s, t);
	return s;
}
