/* SPDX-License-Identifier: Apache-2.0 */
/*
* Pass manager: the input stays, text goes to the sink,
 * stops, counts.
 */
#include <check.h>
#include <string.h>

#include "ir/text/text.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/tir.h"
#include "tests/support/report.h"

static const char text[] = "module \"t\"\ndim S in [1,8]\n\nfunc @f(%x: f32[S]) -> (y: f32[S]) {\n"
                           "  %a = exp %x : f32[S]\n  %y = neg %a : f32[S]\n  return %y\n}\n";

struct fixture {
	struct tir tir;
	struct arena arena;
	struct pipeline pipeline;
	struct pass_options options;
	struct pass_report report;
	struct ir_module *out;
	struct buf seen; /* names of what reached the sink */
	double time;
	const char *stop_in_hook;
};

static void on_print(void *user, const char *title, const struct buf *ir)
{
	struct fixture *t = user;
	ck_assert_uint_eq(strlen(ir->data), ir->len);
	buf_printf(&t->seen, "print %s\n", title);
}

static void on_dump(void *user, const char *name, const struct buf *ir)
{
	struct fixture *t = user;
	ck_assert_uint_eq(strlen(ir->data), ir->len);
	buf_printf(&t->seen, "dump %s\n", name);
}

static bool on_after(void *user, const char *pass, const struct ir_module *m)
{
	struct fixture *t = user;
	(void)m;
	return t->stop_in_hook == NULL || strcmp(pass, t->stop_in_hook) != 0;
}

static double on_clock(void *user)
{
	struct fixture *t = user;
	return t->time += 1;
}

static void setup(struct fixture *t, const char *pipeline)
{
	*t = (struct fixture){0};
	tir_init(&t->tir);
	tir_load(&t->tir, text);
	arena_init(&t->arena);
	buf_init(&t->seen);
	pass_report_init(&t->report);
	ck_assert_int_eq(pipeline_parse(&t->arena, &t->tir.cx, pipeline, &t->pipeline), TFMC_OK);
	t->options.target = target_find("x86-64-v3");
	t->options.sink = (struct pass_sink){
	        .print = on_print, .dump = on_dump, .after = on_after, .clock = on_clock, .user = t};
}

static enum tfmc_status run(struct fixture *t)
{
	return passes_run(&t->tir.cx, &t->pipeline, &t->options, t->tir.m, &t->out, &t->report);
}

static void teardown(struct fixture *t)
{
	tir_expect(&t->tir, text); /* the input stays */
	ir_module_destroy(t->out);
	pass_report_destroy(&t->report);
	buf_destroy(&t->seen);
	arena_destroy(&t->arena);
	tir_destroy(&t->tir);
}

START_TEST(test_empty_is_a_copy)
{
	struct fixture t;
	struct buf copy;
	setup(&t, "");
	ck_assert_int_eq(run(&t), TFMC_OK);
	buf_init(&copy);
	ir_print(&copy, &t.tir.cx, t.out);
	ck_assert_str_eq(copy.data, text);
	buf_destroy(&copy);
	teardown(&t);
}
END_TEST

START_TEST(test_sink)
{
	static const char *const before[] = {"group"}, *const after[] = {"changed"};
	struct fixture t;
	setup(&t, "encode,group,select");
	t.options.variant = "v3";
	t.options.first_number = 6;
	t.options.print_before = (struct name_list){before, 1};
	t.options.print_after = (struct name_list){after, 1};
	ck_assert_int_eq(run(&t), TFMC_OK);
	ck_assert_str_eq(t.seen.data, "dump 06-encode.v3.tir\nprint before group\nprint after group\n"
	                              "dump 07-group.v3.tir\nprint after select\ndump 08-select.v3.tir\n");
	ck_assert_uint_eq(t.report.times.n, 3);
	ck_assert(t.report.times.items[0].pass_seconds == 1 && t.report.times.items[0].verify_seconds == 1);
	teardown(&t);
}
END_TEST

START_TEST(test_stop_after)
{
	struct fixture t;
	setup(&t, "O2");
	t.options.stop_after = "group";
	ck_assert_int_eq(run(&t), TFMC_OK);
	ck_assert_int_eq(t.out->stage, STAGE_GROUPS);
	ck_assert_int_eq(report_count(&t.report, "group", "loops"), 1);
	ck_assert_int_eq(report_count(&t.report, "group", "linear"), 0);
	teardown(&t);
}
END_TEST

START_TEST(test_hook_stops)
{
	struct fixture t;
	setup(&t, "O2");
	t.stop_in_hook = "encode";
	ck_assert_int_eq(run(&t), TFMC_INVALID);
	ck_assert_ptr_null(t.out);
	teardown(&t);
}
END_TEST

START_TEST(test_needs_target)
{
	struct fixture t;
	setup(&t, "O2");
	t.options.target = NULL;
	ck_assert_int_eq(run(&t), TFMC_INVALID);
	ck_assert_ptr_null(t.out);
	tir_says(&t.tir, "the pass select needs a target");
	teardown(&t);
}
END_TEST

START_TEST(test_report_text)
{
	struct fixture t;
	struct buf out;
	setup(&t, "group{max_ops=1},select,plan-memory");
	ck_assert_int_eq(run(&t), TFMC_OK);
	buf_init(&out);
	pass_report_print(&out, &t.report);
	ck_assert_ptr_nonnull(strstr(out.data, "group: loops 2\n"));
	ck_assert_msg(strstr(out.data, "arena of f: 64*S bytes, lower bound 4*S, gap") != NULL, "%s",
	              out.data);
	buf_destroy(&out);
	teardown(&t);
}
END_TEST

Suite *suite_pass_manager(void)
{
	Suite *s = suite_create("pass_manager");
	TCase *tc = tcase_create("manager");
	tcase_add_test(tc, test_empty_is_a_copy);
	tcase_add_test(tc, test_sink);
	tcase_add_test(tc, test_stop_after);
	tcase_add_test(tc, test_hook_stops);
	tcase_add_test(tc, test_needs_target);
	tcase_add_test(tc, test_report_text);
	suite_add_tcase(s, tc);
	return s;
}
