/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validation by trial on random Transformers: O2 is right on each of them and on
 * its shrunk copy, a rule that is wrong is found with its number in both ways,
 * and a pass with fuel applies a prefix.
 */
#include <check.h>
#include <string.h>

#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/pipeline/run.h"
#include "passes/pipeline/shrink.h"
#include "passes/pipeline/validate.h"
#include "tests/support/random/random_transformer.h"

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct ir_module *m;
	struct pipeline pipeline;
	struct pass_options options;
};

static void setup(struct fixture *t, uint64_t seed, const char *pipeline)
{
	struct buf text;
	*t = (struct fixture){.options = {.target = target_find("x86-64-v3")}};
	arena_init(&t->arena);
	buf_init(&t->log);
	buf_init(&text);
	diag_init(&t->cx, diag_render_text, &t->log);
	random_transformer(&text, seed, true);
	ck_assert_msg(ir_parse(&t->cx, "t.tir", text.data, text.len, &t->m) == TFMC_OK, "%s", t->log.data);
	ck_assert_int_eq(pipeline_parse(&t->arena, &t->cx, pipeline, &t->pipeline), TFMC_OK);
	buf_destroy(&text);
}

static void teardown(struct fixture *t)
{
	ir_module_destroy(t->m);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

typedef enum tfmc_status validate_fn(const struct validate *v, const struct ir_module *m, bool *found,
                                     struct validate_culprit *culprit);

static bool is_wrong(struct fixture *t, validate_fn *run, const struct ir_module *m,
                     const struct weight_source *weights, struct validate_culprit *c)
{
	const struct validate v = {.cx = &t->cx,
	                           .arena = &t->arena,
	                           .pipeline = &t->pipeline,
	                           .options = &t->options,
	                           .weights = weights};
	bool found;
	ck_assert_msg(run(&v, m, &found, c) == TFMC_OK, "%s", t->log.data);
	return found;
}

START_TEST(random_transformers)
{
	struct fixture t;
	struct shrunk small;
	struct validate_culprit c;
	setup(&t, (uint64_t)_i + 1, "O2");
	ck_assert_msg(!is_wrong(&t, validate_after_each, t.m, NULL, &c), "%s", c.pass);
	ck_assert_int_eq(module_shrink(t.m, &t.arena, &small), TFMC_OK);
	ck_assert_msg(small.module != NULL, "seed %d: %s", _i + 1, small.why);
	ck_assert_int_eq(ir_verify(small.module, &t.cx), TFMC_OK);
	ck_assert_msg(!is_wrong(&t, validate_after_each, small.module, &small.weights, &c), "%s", c.pass);
	ir_module_destroy(small.module);
	teardown(&t);
}
END_TEST

/* A rule that doubles the factor of every mask's scores. */
static const char wrong_rule[] = "rule twice : round { match { %y = linear %x, %w, %b } "
                                 "into { %y = linear (scale %x {f=2.0}), %w, %b } "
                                 "}";

START_TEST(a_wrong_rule_is_found)
{
	static validate_fn *const ways[] = {validate_after_each, validate_bisect};
	struct fixture t;
	struct validate_culprit c;
	setup(&t, 3, "O2");
	t.options.rules_text = wrong_rule;
	t.options.rules_name = "wrong.rule";
	t.options.rules_len = strlen(wrong_rule);
	ck_assert(is_wrong(&t, ways[_i], t.m, NULL, &c));
	ck_assert_str_eq(c.pass, "canonicalize");
	ck_assert_uint_eq(c.step, 0);
	ck_assert_int_gt(c.number, 0);
	ck_assert_str_eq(c.what, "twice");
	ck_assert_ptr_nonnull(c.op);
	teardown(&t);
}
END_TEST

/* ---- fuel ---- */

struct seen {
	int64_t numbers[256];
	size_t n;
};

static void see(void *user, const char *pass, int64_t number, const char *what, struct ir_loc loc)
{
	struct seen *s = user;
	(void)pass;
	(void)what;
	(void)loc;
	if (s->n < TFMC_COUNT(s->numbers))
		s->numbers[s->n++] = number;
}

static struct seen applications(struct fixture *t, const struct pipeline_step *step, int64_t fuel)
{
	struct seen seen = {.n = 0};
	struct pipeline_step limited = *step;
	struct ir_module *out = NULL;
	struct pass_options o = t->options;
	limited.settings[pass_setting_find(step->pass, "fuel")] = fuel;
	o.sink.applied = see;
	o.sink.user = &seen;
	ck_assert_msg(passes_run(&t->cx, &(const struct pipeline){&limited, 1, 1}, &o, t->m, &out, NULL) ==
	                      TFMC_OK,
	              "%s", t->log.data);
	ck_assert_int_eq(ir_verify(out, &t->cx), TFMC_OK);
	ir_module_destroy(out);
	return seen;
}

/* Every pass with fuel, after those before it: N applications with fuel N, and a right module. */
START_TEST(fuel_is_a_prefix)
{
	struct fixture t;
	struct validate_culprit c;
	setup(&t, (uint64_t)_i + 1, "O2");
	const struct pipeline all = t.pipeline;
	for (size_t i = 0; i < all.n; i++) {
		struct ir_module *next = NULL;
		int setting = pass_setting_find(all.items[i].pass, "fuel");
		int64_t total = setting < 0 ? 0 : (int64_t)applications(&t, &all.items[i], 1000000000).n;
		for (int64_t fuel = 0; fuel <= total && fuel < 4; fuel++) {
			struct pipeline_step step = all.items[i];
			struct seen seen =
			        setting < 0 ? (struct seen){.n = 0} : applications(&t, &step, fuel);
			for (size_t k = 0; k < seen.n; k++)
				ck_assert_int_le(seen.numbers[k], fuel);
			if (setting < 0)
				continue;
			step.settings[setting] = fuel;
			t.pipeline = (struct pipeline){&step, 1, 1};
			ck_assert_msg(!is_wrong(&t, validate_after_each, t.m, NULL, &c), "%s{fuel=%d}",
			              c.pass, (int)fuel);
		}
		t.pipeline = (struct pipeline){&all.items[i], 1, 1};
		ck_assert_int_eq(passes_run(&t.cx, &t.pipeline, &t.options, t.m, &next, NULL), TFMC_OK);
		ir_module_destroy(t.m);
		t.m = next;
	}
	teardown(&t);
}
END_TEST

Suite *suite_validate(void)
{
	Suite *s = suite_create("validate");
	TCase *tc = tcase_create("trials");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, random_transformers, 0, 40);
	tcase_add_loop_test(tc, a_wrong_rule_is_found, 0, 2);
	tcase_add_loop_test(tc, fuel_is_a_prefix, 0, 12);
	suite_add_tcase(s, tc);
	return s;
}
