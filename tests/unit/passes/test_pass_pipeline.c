/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines as text: reading, printing, named ones, mistakes.
 */
#include <check.h>
#include <string.h>

#include "passes/framework/pass.h"

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct pipeline p;
};

static enum tfmc_status read(struct fixture *t, const char *text)
{
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	return pipeline_parse(&t->arena, &t->cx, text, &t->p);
}

static void drop(struct fixture *t)
{
	arena_destroy(&t->arena);
	buf_destroy(&t->log);
	diag_destroy(&t->cx);
}

static void prints(const char *text, const char *canonical)
{
	struct fixture t;
	struct buf out;
	ck_assert_int_eq(read(&t, text), TFMC_OK);
	buf_init(&out);
	pipeline_print(&out, &t.p);
	ck_assert_str_eq(out.data, canonical);
	buf_destroy(&out);
	drop(&t);
}

START_TEST(test_prints_back)
{
	prints("", "");
	prints("canonicalize", "canonicalize");
	prints(" canonicalize , group{max_ops=4},plan-memory ", "canonicalize,group{max_ops=4},plan-memory");
	prints("group{max_ops=64}", "group");
	prints("group{}", "group");
}
END_TEST

START_TEST(test_named_are_canonical)
{
	prints("O0", pipeline_named("O0"));
	prints("O1", pipeline_named("O1"));
	prints("O2", pipeline_named("O2"));
	ck_assert_ptr_null(pipeline_named("O7"));
}
END_TEST

/* The order of passes.def is that of the default pipeline, which has every pass but those of ranks. */
START_TEST(test_default_has_all)
{
	struct fixture t;
	size_t n = 0;
	ck_assert_int_eq(read(&t, "O2"), TFMC_OK);
	for (size_t i = 0; pass_at(i) != NULL; i++) {
		if (pass_at(i)->id == PASS_shard || pass_at(i)->id == PASS_stages)
			continue;
		ck_assert_uint_lt(n, t.p.n);
		ck_assert_ptr_eq(t.p.items[n++].pass, pass_at(i));
	}
	ck_assert_uint_eq(n, t.p.n);
	drop(&t);
}
END_TEST

static void refuses(const char *text, const char *words)
{
	struct fixture t;
	ck_assert_int_eq(read(&t, text), TFMC_INVALID);
	ck_assert_msg(strstr(t.log.data, words) != NULL, "'%s' not in %s", words, t.log.data);
	drop(&t);
}

START_TEST(test_mistakes)
{
	refuses("canonicalise", "did you mean 'canonicalize'?");
	refuses("canonicalize,,group", "there is no pass ''");
	refuses("canonicalize,", "there is no pass ''");
	refuses("group{max_ops=0}", "a number from 1 to 64, not '0'");
	refuses("group{max_ops}", "a value is missing");
	refuses("group{max_ops=4", "expected '}'");
	refuses("group{tiles=4}", "the pass group has no setting 'tiles'");
	refuses("canonicalize{a=1}", "the pass canonicalize has no setting 'a'");
	refuses("canonicalize group", "expected ','");
}
END_TEST

START_TEST(test_too_many)
{
	struct fixture t;
	struct buf text;
	buf_init(&text);
	for (int i = 0; i < 300; i++)
		buf_str(&text, i > 0 ? ",encode" : "encode");
	ck_assert_int_eq(read(&t, text.data), TFMC_INVALID);
	buf_destroy(&text);
	drop(&t);
}
END_TEST

Suite *suite_pass_pipeline(void)
{
	Suite *s = suite_create("pass_pipeline");
	TCase *tc = tcase_create("pipeline");
	tcase_add_test(tc, test_prints_back);
	tcase_add_test(tc, test_named_are_canonical);
	tcase_add_test(tc, test_default_has_all);
	tcase_add_test(tc, test_mistakes);
	tcase_add_test(tc, test_too_many);
	suite_add_tcase(s, tc);
	return s;
}
