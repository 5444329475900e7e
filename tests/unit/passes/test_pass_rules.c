/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrite rules: every built-in rule holds numerically, planted mistakes are
 * caught and named, wrong texts are refused at their place, and the options of
 * the pass act on single rules.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "passes/pipeline/run.h"
#include "tests/rules/check.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"
#include "tests/support/report.h"

#define SEEDS 40

struct rules {
	struct diag_context cx;
	struct buf log;
	struct rule_set set;
};

static void setup(struct rules *t)
{
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	rule_set_init(&t->set);
}

static void drop(struct rules *t)
{
	rule_set_destroy(&t->set);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
}

static enum tfmc_status read_text(struct rules *t, const char *text)
{
	return rule_set_read(&t->set, &t->cx, "test.rule", text, strlen(text));
}

/* ---- numeric checks ---- */

START_TEST(test_builtin_hold)
{
	struct rules t;
	setup(&t);
	ck_assert_int_eq(rule_set_read_builtin(&t.set, &t.cx), TFMC_OK);
	ck_assert_uint_gt(t.set.rules.n, 50);
	enum tfmc_status st = rule_check_all(&t.cx, &t.set, SEEDS, NULL);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	drop(&t);
}
END_TEST

static const char *const planted[] = {
        /* eps of another size */
        "rule planted : reassociate { match { %x : float[..,D] %v = reduce_mean (mul %x, %x) {axes=last "
        "keep} "
        "%y = mul %x, (broadcast (rsqrt (add %v, $eps)) : float[..,D]) } "
        "into { %y = rms_norm %x {eps=$eps*2.0} } }",
        /* the scale is lost */
        "rule planted : round { match { %y = softmax (scale %x {f=$f}) } into { %y = softmax %x } }",
        /* another function, near */
        "rule planted : round { match { %y = gelu %x } into { %y = gelu_tanh %x } }",
        /* operands exchanged */
        "rule planted : bits { match { %a : float[..] %y = sub (neg %a), %b } into { %y = sub %b, %a } }",
        /* only the sign of zero is wrong */
        "rule planted : bits { match { %x : float[..] %y = add %x, 0.0 } into { %y = %x } }",
        /* NaN is forgotten */
        "rule planted : round { match { %x : float[..] %y = where (cmp %x, 0.0 {kind=gt}), %x, 0.0 } "
        "into { %y = relu %x } }",
        /* the bias is dropped */
        "rule planted : round { match { %y = layer_norm %x, %g, %b {eps=$e} } "
        "into { %y = layer_norm %x, %g {eps=$e} } }",
        /* rounds more than it says */
        "rule planted : bits { match { %y = scale (scale %x {f=$a}) {f=$b} } into { %y = scale %x {f=$a*$b} "
        "} }",
        /* another type */
        "rule planted : bits { match { %x : float[..,D] %y = reduce_sum %x {axes=last} } "
        "into { %y = reduce_sum %x {axes=last keep} } }",
        /* can never match */
        "rule planted : bits { match { %x : float[3] %y = exp (reshape %x : float[2]) } into { %y = exp %x } "
        "}",
};

START_TEST(test_planted_is_caught)
{
	struct rules t;
	setup(&t);
	enum tfmc_status st = read_text(&t, planted[_i]);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	ck_assert_int_eq(rule_check_all(&t.cx, &t.set, SEEDS, NULL), TFMC_INVALID);
	ck_assert_msg(strstr(t.log.data, "the rule planted") != NULL, "%s", t.log.data);
	ck_assert_ptr_nonnull(strstr(t.log.data, "test.rule:1:6"));
	drop(&t);
}
END_TEST

START_TEST(test_tolerance_counts)
{
	struct rules t;
	setup(&t);
	ck_assert_int_eq(
	        read_text(&t,
	                  "rule a : approximate 0.01 { match { %y = gelu %x } into { %y = gelu_tanh %x } }"),
	        TFMC_OK);
	enum tfmc_status st = rule_check_all(&t.cx, &t.set, SEEDS, NULL);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	drop(&t);
}
END_TEST

/* ---- all rules together ---- */

/* Rules of written-out scores are approximations where a row is empty. */
#define TOGETHER_TOLERANCE 1e-4

struct together {
	struct arena arena;
	struct pass_report report;
	struct pipeline pipeline;
};

/* canonicalize with every rule; the caller destroys the result. */
static struct ir_module *canonical(struct rules *t, struct together *w, const struct ir_module *m,
                                   int64_t *rewrites)
{
	const struct pass_options options = {.remarks = false};
	struct ir_module *out = NULL;
	pass_report_init(&w->report);
	enum tfmc_status st = passes_run(&t->cx, &w->pipeline, &options, m, &out, &w->report);
	ck_assert_msg(st == TFMC_OK, "%s\n%s", t->log.data, tir_text(&w->arena, &t->cx, m));
	*rewrites = report_count(&w->report, "canonicalize", "rewrites");
	pass_report_destroy(&w->report);
	return out;
}

static void agree(struct rules *t, struct together *w, const struct ir_module *a, const struct ir_module *b,
                  uint64_t seed)
{
	struct random_call x, y;
	const struct ir_func *f = ir_find_func(a, "f"), *g = ir_find_func(b, "f");
	ck_assert(random_call_make(&w->arena, a, f, seed, &x));
	y = x;
	y.outputs = ARENA_ARRAY(&w->arena, struct interp_tensor, 1);
	ck_assert_int_eq(random_call_run(&t->cx, a, f, &w->arena, &x), TFMC_OK);
	ck_assert_int_eq(random_call_run(&t->cx, b, g, &w->arena, &y), TFMC_OK);
	for (int64_t i = 0; i < interp_count(&x.outputs[0]); i++)
		if (isnan(x.outputs[0].data[i]))
			return;
	const char *why = random_compare(&w->arena, &y.outputs[0], &x.outputs[0], TOGETHER_TOLERANCE);
	ck_assert_msg(why == NULL, "%s\nbefore: %s\nafter: %s", why, tir_text(&w->arena, &t->cx, a),
	              tir_text(&w->arena, &t->cx, b));
}

/* The left side of each rule under all rules: the same results, and a fixed point is reached. */
START_TEST(test_together)
{
	struct rules t;
	struct together w;
	setup(&t);
	ck_assert_int_eq(rule_set_read_builtin(&t.set, &t.cx), TFMC_OK);
	for (size_t i = 0; i < t.set.rules.n; i++) {
		arena_init(&w.arena);
		ck_assert_int_eq(pipeline_parse(&w.arena, &t.cx, "canonicalize", &w.pipeline), TFMC_OK);
		for (uint64_t seed = 1; seed < 8; seed++) {
			int64_t first, second;
			struct ir_module *m = rule_instance(t.set.rules.items[i], seed * 1000 + i, DT_F32);
			if (m == NULL)
				continue;
			struct ir_module *once = canonical(&t, &w, m, &first);
			struct ir_module *twice = canonical(&t, &w, once, &second);
			ck_assert_msg(second == 0, "%s", tir_text(&w.arena, &t.cx, once));
			agree(&t, &w, m, once, seed);
			ir_module_destroy(twice);
			ir_module_destroy(once);
			ir_module_destroy(m);
		}
		arena_destroy(&w.arena);
	}
	drop(&t);
}
END_TEST

/* ---- wrong texts ---- */

static const struct {
	const char *text, *says;
} mistakes[] = {
        {"rul a", "expected 'rule'"},
        {"rule a : bit { }", "did you mean 'bits'"},
        {"rule a : bits { match { %y = sofmax %x } into { %y = %x } }", "did you mean 'softmax'"},
        {"rule a : bits { match { %y = scale %x {ff=1.0} } into { %y = %x } }", "attribute of scale"},
        {"rule a : bits { match { %y = add %x } into { %y = %x } }", "lacks its operand b"},
        {"rule a : bits { match { %y = neg %x, %x } into { %y = %x } }", "has 1 operands"},
        {"rule a : bits { match { %y = neg %x } into { %y = abs %z } }", "unknown value 'z'"},
        {"rule a : bits { match { %y = neg %x } into { %y = abs %y } }", "reads its own result"},
        {"rule a : bits { match { %y = neg %x } into { %z = abs %x } }", "does not give %y"},
        {"rule a : bits { match { %y = neg %x } into { %y = scale %x {f=$c} } }", "unknown variable 'c'"},
        {"rule a : bits { match { %y = neg %x } where { positiv($c) } into { %y = %x } }", "'positive'"},
        {"rule a : bits { match { %y = scale %x {f=$c} } where { positive(sqr($c)) } into { %y = %x } }",
         "'sqrt'"},
        {"rule a : bits { match { %y = neg %y } into { %y = %y } }", "by itself"},
        {"rule a : bits { match { %z = exp %x %y = neg %x } into { %y = %x } }", "nothing reads this"},
        {"rule a : bits { match { %x : flat[..] %y = neg %x } into { %y = %x } }", "did you mean 'float'"},
        {"rule a : bits { match { %y = state_read %x } into { %y = %x } }", "cannot be used in a rule"},
        {"rule a : bits { match { } into { } }", "match has no op"},
        {"rule a : bits { match { %y = neg %x } into { %y = %x } } rule a : bits { }", "two rules a"},
        {"rule a : bits { match { %y = neg %x } into { %y = %x }", "the text ends here"},
        {"rule a : bits { match { %y = broadcast %x {dims=[2]} } into { %y = %x } }", "type of the result"},
};

START_TEST(test_mistakes)
{
	struct rules t;
	setup(&t);
	ck_assert_int_eq(read_text(&t, mistakes[_i].text), TFMC_INVALID);
	ck_assert_msg(strstr(t.log.data, mistakes[_i].says) != NULL, "%s", t.log.data);
	ck_assert_msg(strncmp(t.log.data, "test.rule:1:", 12) == 0, "%s", t.log.data);
	drop(&t);
}
END_TEST

/* ---- the pass ---- */

static const char chain[] = "module \"t\"\n"
                            "dim B in [1,4]\n"
                            "func @f(%x: f32[B]) -> (y: f32[B]) {\n"
                            "  %a = scale %x {f=2.0} : f32[B]\n"
                            "  %b = scale %a {f=3.0} : f32[B]\n"
                            "  %c = exp %b : f32[B]\n"
                            "  %d = neg %c : f32[B]\n"
                            "  %y = scale %d {f=5.0} : f32[B]\n"
                            "  return %y\n"
                            "}\n";

static int64_t rewrites(const char *pipeline, const struct pass_options *options, struct pass_report *report)
{
	struct tir t;
	struct arena a;
	struct pipeline p;
	struct ir_module *out = NULL;
	tir_init(&t);
	arena_init(&a);
	tir_load(&t, chain);
	pass_report_init(report);
	ck_assert_int_eq(pipeline_parse(&a, &t.cx, pipeline, &p), TFMC_OK);
	enum tfmc_status st = passes_run(&t.cx, &p, options, t.m, &out, report);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	ir_module_destroy(out);
	arena_destroy(&a);
	tir_destroy(&t);
	return report_count(report, "canonicalize", "rewrites");
}

START_TEST(test_fuel_is_a_prefix)
{
	struct pass_report r;
	const struct pass_options options = {.remarks = false};
	ck_assert_int_eq(rewrites("canonicalize", &options, &r), 2);
	ck_assert_int_eq(report_count(&r, "canonicalize", "rule scale_of_neg"), 1);
	ck_assert_int_eq(report_count(&r, "canonicalize", "rule scale_of_scale"), 1);
	pass_report_destroy(&r);
	ck_assert_int_eq(rewrites("canonicalize{fuel=1}", &options, &r), 1);
	ck_assert_int_eq(report_count(&r, "canonicalize", "rule scale_of_neg"), 1);
	pass_report_destroy(&r);
	ck_assert_int_eq(rewrites("canonicalize{fuel=0}", &options, &r), 0);
	pass_report_destroy(&r);
}
END_TEST

START_TEST(test_disabled)
{
	const char *names[] = {"scale_of_neg"};
	const struct pass_options options = {.disable_rules = {names, 1}};
	struct pass_report r;
	ck_assert_int_eq(rewrites("canonicalize", &options, &r), 1);
	ck_assert_int_eq(report_count(&r, "canonicalize", "rule scale_of_neg"), 0);
	pass_report_destroy(&r);
}
END_TEST

START_TEST(test_own_rules_come_first)
{
	const char text[] =
	        "rule mine : round { match { %y = scale (neg %x) {f=5.0} } into { %y = scale %x {f=-5.0} } }";
	const struct pass_options options = {
	        .rules_text = text, .rules_name = "mine.rule", .rules_len = sizeof(text) - 1};
	struct pass_report r;
	ck_assert_int_eq(rewrites("canonicalize", &options, &r), 2);
	ck_assert_int_eq(report_count(&r, "canonicalize", "rule mine"), 1);
	pass_report_destroy(&r);
}
END_TEST

Suite *suite_pass_rules(void)
{
	Suite *s = suite_create("pass_rules");
	TCase *tc = tcase_create("rules");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_builtin_hold);
	tcase_add_loop_test(tc, test_planted_is_caught, 0, (int)TFMC_COUNT(planted));
	tcase_add_test(tc, test_tolerance_counts);
	tcase_add_test(tc, test_together);
	tcase_add_loop_test(tc, test_mistakes, 0, (int)TFMC_COUNT(mistakes));
	tcase_add_test(tc, test_fuel_is_a_prefix);
	tcase_add_test(tc, test_disabled);
	tcase_add_test(tc, test_own_rules_come_first);
	suite_add_tcase(s, tc);
	return s;
}
