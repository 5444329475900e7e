/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every pass and every pipeline on random modules and on every op: the
 * interpreter gives the same results before and after, the result verifies and
 * its text reads back.
 */
#include <check.h>
#include <string.h>

#include "ir/core/case.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/tir.h"
#include "tests/support/random/random_ir.h"

/* Fusions reassociate and round less often. */
#define TOLERANCE 1e-4

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct pass_report report;
	struct ir_module *before, *after;
};

static void setup(struct fixture *t)
{
	*t = (struct fixture){0};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	pass_report_init(&t->report);
}

static void teardown(struct fixture *t)
{
	ir_module_destroy(t->before);
	ir_module_destroy(t->after);
	pass_report_destroy(&t->report);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

static void run(struct fixture *t, const char *pipeline)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	struct pipeline p;
	ck_assert_int_eq(pipeline_parse(&t->arena, &t->cx, pipeline, &p), TFMC_OK);
	enum tfmc_status st = passes_run(&t->cx, &p, &options, t->before, &t->after, &t->report);
	ck_assert_msg(st == TFMC_OK, "%s\non %s", t->log.data, tir_text(&t->arena, &t->cx, t->before));
}

static void reads_back(struct fixture *t)
{
	struct ir_module *again = NULL;
	const char *text = tir_text(&t->arena, &t->cx, t->after);
	enum tfmc_status st = ir_parse(&t->cx, "again.tir", text, strlen(text), &again);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, text);
	ck_assert_int_eq(ir_verify(again, &t->cx), TFMC_OK);
	ck_assert_str_eq(tir_text(&t->arena, &t->cx, again), text);
	ir_module_destroy(again);
}

static void same_results(struct fixture *t, uint64_t seed)
{
	struct random_call a, b;
	const struct ir_func *f = ir_find_func(t->before, "f"), *g = ir_find_func(t->after, "f");
	ck_assert(random_call_make(&t->arena, t->before, f, seed, &a));
	ck_assert_int_eq(random_call_run(&t->cx, t->before, f, &t->arena, &a), TFMC_OK);
	b = a;
	enum tfmc_status st = random_call_run(&t->cx, t->after, g, &t->arena, &b);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&t->arena, &t->cx, t->after));
	for (size_t i = 0; i < a.n_outputs; i++) {
		const char *why = random_compare(&t->arena, &b.outputs[i], &a.outputs[i], TOLERANCE);
		ck_assert_msg(why == NULL, "result %zu: %s\nbefore: %s\nafter: %s", i, why != NULL ? why : "",
		              tir_text(&t->arena, &t->cx, t->before), tir_text(&t->arena, &t->cx, t->after));
	}
}

static void check(struct fixture *t, const char *pipeline, uint64_t seed)
{
	run(t, pipeline);
	if (pipeline[0] == '\0')
		ck_assert_str_eq(tir_text(&t->arena, &t->cx, t->after),
		                 tir_text(&t->arena, &t->cx, t->before));
	reads_back(t);
	same_results(t, seed);
	ir_module_destroy(t->after);
	t->after = NULL;
}

static const char *const pipelines[] = {
        "",
        "canonicalize",
        "merge-heads,merge-linear",
        "specialize{buckets=4}",
        "group",
        "group{max_ops=1},select,plan-memory",
        "canonicalize,group{max_ops=3},plan-memory",
        "O0",
        "O1",
        "O2",
};

START_TEST(test_programs)
{
	struct fixture t;
	uint64_t seed = (uint64_t)_i + 1;
	struct random_options options = {.n_ops = 8 + (size_t)_i % 30, .smooth = true};
	setup(&t);
	t.before = random_module(&t.cx, seed, &options);
	ck_assert_msg(t.before != NULL, "%s", t.log.data);
	for (size_t i = 0; i < TFMC_COUNT(pipelines); i++)
		check(&t, pipelines[i], seed);
	teardown(&t);
}
END_TEST

/* The function with a dim bound to 1 as a case of itself, simplified and through pipelines: the same results.
 */
static void check_case(struct fixture *t, const char *pipeline, const struct ir_func *c, uint64_t seed)
{
	struct random_call a, b;
	run(t, pipeline);
	reads_back(t);
	const struct ir_func *f = ir_find_func(t->before, "f"), *g = ir_find_func(t->after, "f.one");
	ck_assert(random_call_make(&t->arena, t->before, c, seed, &a));
	a.dims[ir_dim_as_symbol(c->when->conditions[0].dim)] = 1;
	b = a;
	ck_assert_int_eq(random_call_run(&t->cx, t->before, f, &t->arena, &a), TFMC_OK);
	enum tfmc_status st = random_call_run(&t->cx, t->after, g, &t->arena, &b);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&t->arena, &t->cx, t->after));
	for (size_t i = 0; i < a.n_outputs; i++) {
		const char *why = random_compare(&t->arena, &b.outputs[i], &a.outputs[i], TOLERANCE);
		ck_assert_msg(why == NULL, "result %zu: %s\nafter: %s", i, why != NULL ? why : "",
		              tir_text(&t->arena, &t->cx, t->after));
	}
	ir_module_destroy(t->after);
	t->after = NULL;
}

START_TEST(test_cases)
{
	static const char *const names[] = {"B", "S", "T"};
	struct fixture t;
	uint64_t seed = (uint64_t)_i + 1;
	struct random_options options = {.n_ops = 8 + (size_t)_i % 30, .smooth = true};
	setup(&t);
	t.before = random_module(&t.cx, seed, &options);
	ck_assert_msg(t.before != NULL, "%s", t.log.data);
	const struct ir_func *f = ir_find_func(t.before, "f");
	const struct ir_dim *sym = ir_dim_sym(t.before->dims, names[_i % 3]);
	bool has = false, of_state = false;
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_type *type = ir_type_of(f, f->params[i].value);
		of_state = of_state || type->kind == IR_STATE;
		for (int k = 0; type->kind == IR_TENSOR && k < type->rank; k++)
			has = has || ir_dim_has_symbol(type->dims[k], ir_dim_as_symbol(sym));
	}
	if (has && !of_state) {
		const struct ir_condition one = {sym, IR_EQUAL, 1};
		const struct ir_case when = {"f", &one, 1};
		const struct ir_func *c = tir_add_case(&t.cx, t.before, f, "f.one", &when);
		check_case(&t, "specialize", c, seed);
		check_case(&t, "O2", c, seed);
	}
	teardown(&t);
}
END_TEST

START_TEST(test_ops)
{
	struct fixture t;
	setup(&t);
	for (uint64_t seed = 1; seed < 6; seed++) {
		t.before = random_module_for_op(&t.cx, (enum ir_opcode)_i, seed, NULL);
		if (t.before == NULL)
			break;
		check(&t, "O0", seed);
		check(&t, "O2", seed);
		ir_module_destroy(t.before);
		t.before = NULL;
	}
	teardown(&t);
}
END_TEST

Suite *suite_pass_random(void)
{
	Suite *s = suite_create("pass_random");
	TCase *tc = tcase_create("random");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_programs, 0, 150);
	tcase_add_loop_test(tc, test_cases, 0, 120);
	tcase_add_loop_test(tc, test_ops, 0, IR_N_OPS);
	suite_add_tcase(s, tc);
	return s;
}
