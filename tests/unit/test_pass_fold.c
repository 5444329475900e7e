/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fold-affine, center and fold-bias on models made for them: the interpreter
 * gives the same outputs with and without, also where a sequence has length 0,
 * and the counters say how much was folded.
 */
#include <check.h>
#include <string.h>

#include "ir/print/text.h"
#include "ir/verify/verify.h"
#include "passes/framework/pass.h"
#include "tests/support/random_ir.h"
#include "tests/support/tir.h"

#define TOLERANCE 2e-5

/* A table with other numbers for every `start`. */
#define TABLE(rows, dim, start) \
	"sinusoid(rows=" #rows ", dim=" #dim ", layout=halves, spacing=t2t, start=" #start ", base=50.0)"
#define WEIGHT(name, n, k, rows, start)                                   \
	"weight @" name " : f32[2," #n "," #k "] = reshape([2," #n "," #k \
	"], scale(0.5, " TABLE(rows, k, start) "))\n"
#define VECTOR(name, n, start) "weight @" name " : f32[2," #n "] = " TABLE(2, n, start) "\n"
#define GAMMA(name, n, start)  "weight @" name " : f32[2," #n "] = offset(1.0, " TABLE(2, n, start) ")\n"

#define HEAD          "module \"t\"\ndim B in [1,3]\ndim S in [1,5]\n"
#define NORM_WEIGHTS  GAMMA("g1", 8, 3) VECTOR("b1", 8, 4) GAMMA("g2", 8, 5) VECTOR("b2", 8, 6)
#define QUERY_WEIGHTS WEIGHT("q", 8, 8, 16, 1) VECTOR("bq", 8, 7)
#define KEY_WEIGHTS   WEIGHT("k", 8, 8, 16, 21) VECTOR("bk", 8, 8)
#define VALUE_WEIGHTS WEIGHT("v", 8, 8, 16, 41) VECTOR("bv", 8, 9)
#define OUT_WEIGHTS   WEIGHT("o", 8, 8, 16, 61) VECTOR("bo", 8, 10)
#define UP_WEIGHTS    WEIGHT("u", 12, 8, 24, 81) VECTOR("bu", 12, 11)
#define DOWN_WEIGHTS  WEIGHT("d", 8, 12, 16, 101) VECTOR("bd", 8, 12)
#define FFN_WEIGHTS   UP_WEIGHTS DOWN_WEIGHTS
#define LAYER_WEIGHTS NORM_WEIGHTS QUERY_WEIGHTS KEY_WEIGHTS VALUE_WEIGHTS OUT_WEIGHTS FFN_WEIGHTS
#define ATTENTION(x)                                                              \
	"    %q = linear " x ", @q[%l], @bq[%l] : f32[B,S,8]\n"                   \
	"    %k = linear " x ", @k[%l], @bk[%l] : f32[B,S,8]\n"                   \
	"    %v = linear " x ", @v[%l], @bv[%l] : f32[B,S,8]\n"                   \
	"    %q1 = reshape %q {dims=[B,S,2,4]} : f32[B,S,2,4]\n"                  \
	"    %k1 = reshape %k {dims=[B,S,2,4]} : f32[B,S,2,4]\n"                  \
	"    %v1 = reshape %v {dims=[B,S,2,4]} : f32[B,S,2,4]\n"                  \
	"    %qh = transpose %q1 {perm=[0,2,1,3]} : f32[B,2,S,4]\n"               \
	"    %kh = transpose %k1 {perm=[0,2,1,3]} : f32[B,2,S,4]\n"               \
	"    %vh = transpose %v1 {perm=[0,2,1,3]} : f32[B,2,S,4]\n"               \
	"    %a = attention %qh, %kh, %vh, len=%len {scale=0.5} : f32[B,2,S,4]\n" \
	"    %t = transpose %a {perm=[0,2,1,3]} : f32[B,S,2,4]\n"                 \
	"    %z = reshape %t {dims=[B,S,8]} : f32[B,S,8]\n"                       \
	"    %y = linear %z, @o[%l], @bo[%l] : f32[B,S,8]\n"
#define FFN(x)                                                   \
	"    %m = linear " x ", @u[%l], @bu[%l] : f32[B,S,12]\n" \
	"    %n = gelu %m : f32[B,S,12]\n"                       \
	"    %w = linear %n, @d[%l], @bd[%l] : f32[B,S,8]\n"
#define ENTRY "func @f(%ids: i32[B,S] {below=9 lengths=%len}, %len: i32[B] {default=S max=S}) -> "

static const char pre_norm[] = HEAD LAYER_WEIGHTS "weight @tok : f32[9,8] = " TABLE(
        9, 8, 2) "\n"
                 "weight @pos : f32[5,8] = " TABLE(
                         5, 8,
                         30) "\n"
                             "weight @gf : f32[8] = offset(1.0, index(0, 0, " TABLE(
                                     2, 8,
                                     13) "))\n"
                                         "weight @bf : f32[8] = index(0, 1, " TABLE(
                                                 2, 8,
                                                 14) ")\n" ENTRY "(y: f32[B,S,9] {lengths=%len}) {\n"
                                                     "  %i = iota {dims=[B,S] axis=1} : i32[B,S]\n"
                                                     "  %e = gather @tok, %ids : f32[B,S,8]\n"
                                                     "  %p = gather @pos, %i : f32[B,S,8]\n"
                                                     "  %x = add %e, %p : f32[B,S,8]\n"
                                                     "  %s = repeat %l = 0 to 2 carry (%r = %x) {\n"
                                                     "    %h = layer_norm %r, @g1[%l], @b1[%l] : "
                                                     "f32[B,S,8]\n" ATTENTION(
                                                             "%h") "    %r1 = add %r, %y : f32[B,S,8]\n"
                                                                   "    %h1 = layer_norm %r1, @g2[%l], "
                                                                   "@b2[%l] : f32[B,S,8]\n" FFN(
                                                                           "%h1") "    %r2 = add %r1, %w : "
                                                                                  "f32[B,S,8]\n"
                                                                                  "    yield %r2\n"
                                                                                  "  } : f32[B,S,8]\n"
                                                                                  "  %f = layer_norm %s, "
                                                                                  "@gf, @bf : f32[B,S,8]\n"
                                                                                  "  %o = linear %f, @tok : "
                                                                                  "f32[B,S,9]\n"
                                                                                  "  %y = mask_rows %o, %len "
                                                                                  ": f32[B,S,9]\n"
                                                                                  "  return %y\n"
                                                                                  "}\n";

static const char post_norm[] = HEAD LAYER_WEIGHTS "weight @tok : f32[9,8] = " TABLE(
        9, 8, 2) "\n" ENTRY "(y: f32[B,S,8] {lengths=%len}) {\n"
                 "  %x = gather @tok, %ids : f32[B,S,8]\n"
                 "  %s = repeat %l = 0 to 2 carry (%r = %x) {\n" ATTENTION(
                         "%r") "    %r1 = add %r, %y : f32[B,S,8]\n"
                               "    %h = layer_norm %r1, @g1[%l], @b1[%l] : f32[B,S,8]\n" FFN(
                                       "%h") "    %r2 = add %h, %w : f32[B,S,8]\n"
                                             "    %h1 = layer_norm %r2, @g2[%l], @b2[%l] : f32[B,S,8]\n"
                                             "    yield %h1\n"
                                             "  } : f32[B,S,8]\n"
                                             "  %y = mask_rows %s, %len : f32[B,S,8]\n"
                                             "  return %y\n"
                                             "}\n";

/* Four query heads over two value heads; the rows of empty sequences are seen through a mean over the batch.
 */
#define GROUPED(seen)                                                                                       \
	HEAD WEIGHT("v", 4, 8, 8, 1) VECTOR("bv", 4, 3) WEIGHT("k", 4, 8, 8, 31) VECTOR("bk", 4, 5)         \
	        WEIGHT("o", 8, 8, 16, 61) VECTOR(                                                           \
	                "bo", 8,                                                                            \
	                7) "func @f(%x: f32[B,S,8], %len: i32[B] {default=S max=S}) -> (y: f32[B,S,8]) {\n" \
	                   "  %s = repeat %l = 0 to 2 carry (%r = %x) {\n"                                  \
	                   "    %q1 = reshape %r {dims=[B,S,4,2]} : f32[B,S,4,2]\n"                         \
	                   "    %qh = transpose %q1 {perm=[0,2,1,3]} : f32[B,4,S,2]\n"                      \
	                   "    %k = linear %r, @k[%l], @bk[%l] : f32[B,S,4]\n"                             \
	                   "    %k1 = reshape %k {dims=[B,S,2,2]} : f32[B,S,2,2]\n"                         \
	                   "    %kh = transpose %k1 {perm=[0,2,1,3]} : f32[B,2,S,2]\n"                      \
	                   "    %v = linear %r, @v[%l], @bv[%l] : f32[B,S,4]\n"                             \
	                   "    %v1 = reshape %v {dims=[B,S,2,2]} : f32[B,S,2,2]\n"                         \
	                   "    %vh = transpose %v1 {perm=[0,2,1,3]} : f32[B,2,S,2]\n"                      \
	                   "    %a = attention %qh, %kh, %vh, len=%len {mask=causal} : f32[B,4,S,2]\n"      \
	                   "    %t = transpose %a {perm=[0,2,1,3]} : f32[B,S,4,2]\n"                        \
	                   "    %u = reshape %t {dims=[B,S,8]} : f32[B,S,8]\n"                              \
	                   "    %o = linear %u, @o[%l], @bo[%l] : f32[B,S,8]\n"                             \
	                   "    yield %o\n"                                                                 \
	                   "  } : f32[B,S,8]\n" seen "  return %y\n}\n"

struct folded {
	const char *pass, *counter;
	int64_t n;
};
static const struct {
	const char *text;
	struct folded counts[4];
} models[] = {
        {pre_norm,
         {{"fold-affine", "norms", 2},
          {"fold-affine", "linears", 4},
          {"center", "norms", 3},
          {"fold-bias", "outputs", 1}}},
        {post_norm,
         {{"fold-affine", "norms", 0},
          {"center", "norms", 0},
          {"fold-bias", "key biases", 1},
          {"fold-bias", "value biases", 1}}},
        {GROUPED("  %y = mask_rows %s, %len : f32[B,S,8]\n"),
         {{"fold-bias", "key biases", 1}, {"fold-bias", "value biases", 1}, {"fold-bias", "outputs", 1}}},
        {GROUPED("  %y = scale %s {f=2.0} : f32[B,S,8]\n"),
         {{"fold-bias", "key biases", 1}, {"fold-bias", "value biases", 0}, {"fold-bias", "outputs", 0}}},
};

static void compare(struct tir *t, const struct ir_module *after, uint64_t seed)
{
	struct arena arena;
	struct random_call a, b;
	const struct ir_func *f = ir_find_func(t->m, "f");
	arena_init(&arena);
	ck_assert(random_call_make(&arena, t->m, f, seed, &a));
	/* Sequences of length 0 are the hard case: the last one always, all of them every third time. */
	struct interp_tensor *len = &a.inputs[1];
	for (int64_t i = 0; i < len->dims[0]; i++)
		if (i + 1 == len->dims[0] || seed % 3 == 0)
			len->data[i] = 0;
	ck_assert_int_eq(random_call_run(&t->cx, t->m, f, &arena, &a), TFMC_OK);
	b = a;
	ck_assert_int_eq(random_call_run(&t->cx, after, ir_find_func(after, "f"), &arena, &b), TFMC_OK);
	const char *why = random_compare(&arena, &b.outputs[0], &a.outputs[0], TOLERANCE);
	ck_assert_msg(why == NULL, "%s\n%s", why != NULL ? why : "", tir_text(&arena, &t->cx, after));
	arena_destroy(&arena);
}

START_TEST(same_results)
{
	const struct pass_options options = {0};
	struct pass_report report;
	struct ir_module *after = NULL;
	struct pipeline p;
	struct arena arena;
	struct tir t;

	tir_init(&t);
	arena_init(&arena);
	pass_report_init(&report);
	tir_load(&t, models[_i].text);
	ck_assert_int_eq(pipeline_parse(&arena, &t.cx, "fold-affine,center,fold-bias", &p), TFMC_OK);
	enum tfmc_status st = passes_run(&t.cx, &p, &options, t.m, &after, &report);
	ck_assert_msg(st == TFMC_OK, "%s", t.log.data);
	for (size_t i = 0; i < 4 && models[_i].counts[i].pass != NULL; i++) {
		const struct folded *c = &models[_i].counts[i];
		ck_assert_msg(pass_report_count(&report, c->pass, c->counter) == c->n, "%s: %s is %lld",
		              c->pass, c->counter,
		              (long long)pass_report_count(&report, c->pass, c->counter));
	}
	for (uint64_t seed = 1; seed <= 12; seed++)
		compare(&t, after, seed);
	ir_module_destroy(after);
	pass_report_destroy(&report);
	arena_destroy(&arena);
	tir_destroy(&t);
}
END_TEST

Suite *suite_pass_fold(void)
{
	Suite *s = suite_create("pass_fold");
	TCase *tc = tcase_create("models");
	tcase_add_loop_test(tc, same_results, 0, TFMC_COUNT(models));
	suite_add_tcase(s, tc);
	return s;
}
