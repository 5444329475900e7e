/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demand-rows does not change a bit: the interpreter before and after, with
 * lengths from 0 to S, one row, one sequence, pasts, and every way in which rows
 * are picked.
 */
#include <check.h>

#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"
#include "tests/support/report.h"

#define SEEDS 12

#define HEAD                                                                                             \
	"module \"t\"\n"                                                                                 \
	"dim B in [1,4]\n"                                                                               \
	"dim S in [1,7]\n"                                                                               \
	"state @k : f32[B,3,2,12,4] #row\n"                                                              \
	"weight @w : f32[3,8,8] = stack(i in 0..3, sinusoid(rows=8, dim=8, layout=halves, spacing=t2t, " \
	"start=1, base=10.0))\n"                                                                         \
	"weight @u : f32[3,8,8] = stack(i in 0..3, sinusoid(rows=8, dim=8, layout=halves, spacing=t2t, " \
	"start=3, base=10.0))\n"                                                                         \
	"weight @r : f32[12,4] = sinusoid(rows=12, dim=4, layout=halves, spacing=t2t, start=0, base=10.0)\n"

/* A layer with positions, a state, a causal mask over it, rows set to 0, and a feed-forward part. */
#define CACHED(count, tail)                                                                              \
	HEAD "func @f(%x: f32[B,S,8], %len: i32[B] {default=S max=S}, %past: i32[B] {default=0 max=5}, " \
	     "%k: state @k) -> (y: f32[B,8], state @k) {\n"                                              \
	     "  %l, %s = repeat %i = 0 to " count " carry (%c = %x, %d = %k) {\n"                        \
	     "    %n = rms_norm %c : f32[B,S,8]\n"                                                       \
	     "    %h = linear %n, @w[%i] : f32[B,S,8]\n"                                                 \
	     "    %h1 = reshape %h {dims=[B,S,2,4]} : f32[B,S,2,4]\n"                                    \
	     "    %h2 = transpose %h1 {perm=[0,2,1,3]} : f32[B,2,S,4]\n"                                 \
	     "    %p0 = iota {dims=[B,S] axis=1} : i32[B,S]\n"                                           \
	     "    %p1 = reshape %past {dims=[B,1]} : i32[B,1]\n"                                         \
	     "    %p2 = broadcast %p1 {dims=[B,S]} : i32[B,S]\n"                                         \
	     "    %p = add %p0, %p2 : i32[B,S]\n"                                                        \
	     "    %h3 = rope %h2, @r, %p : f32[B,2,S,4]\n"                                               \
	     "    %k3, %e = state_append %d, %h3, %past, %i : f32[B,2,12,4], state @k\n"                 \
	     "    %a = attention %h3, %k3, %k3, past=%past {scale=0.5 mask=causal} : f32[B,2,S,4]\n"     \
	     "    %a1 = transpose %a {perm=[0,2,1,3]} : f32[B,S,2,4]\n"                                  \
	     "    %a2 = reshape %a1 {dims=[B,S,8]} : f32[B,S,8]\n"                                       \
	     "    %a3 = mask_rows %a2, %len : f32[B,S,8]\n"                                              \
	     "    %z = add %c, %a3 : f32[B,S,8]\n"                                                       \
	     "    %o = linear %z, @u[%i] : f32[B,S,8]\n"                                                 \
	     "    %g = gelu %o : f32[B,S,8]\n"                                                           \
	     "    %y = add %z, %g : f32[B,S,8]\n"                                                        \
	     "    yield %y, %e\n"                                                                        \
	     "  } : f32[B,S,8], state @k\n" tail "}\n"

#define LAST                                                      \
	"  %one = full {value=1.0 dims=[B] dtype=i32} : i32[B]\n" \
	"  %at = sub %len, %one : i32[B]\n"                       \
	"  %t = select_rows %l, %at : f32[B,8]\n"                 \
	"  return %t, %s\n"
#define FIRST                                                    \
	"  %t = slice %l {axis=1 begin=0 size=1} : f32[B,1,8]\n" \
	"  %z = reshape %t {dims=[B,8]} : f32[B,8]\n"            \
	"  return %z, %s\n"
/* A dim chooses the row. */
#define END                                                        \
	"  %t = slice %l {axis=1 begin=S-1 size=1} : f32[B,1,8]\n" \
	"  %z = reshape %t {dims=[B,8]} : f32[B,8]\n"              \
	"  return %z, %s\n"

/* Scores spelled out, with lengths and a causal mask without a past; concat, reductions, a bias of scores. */
#define SPELLED                                                                                              \
	HEAD "func @f(%x: f32[B,S,8], %len: i32[B] {default=S max=S}, %at: i32[B], %bias: f32[B,1,S,S]) -> " \
	     "(y: f32[B,8]) {\n"                                                                             \
	     "  %l = repeat %i = 0 to 2 carry (%c = %x) {\n"                                                 \
	     "    %v = reshape %c {dims=[B,1,S,8]} : f32[B,1,S,8]\n"                                         \
	     "    %h = linear %v, @w[%i] : f32[B,1,S,8]\n"                                                   \
	     "    %q = matmul %h, %v {tb} : f32[B,1,S,S]\n"                                                  \
	     "    %m = masked_softmax %q, %len {scale=0.5 mask=causal} : f32[B,1,S,S]\n"                     \
	     "    %p = matmul %m, %v : f32[B,1,S,8]\n"                                                       \
	     "    %o = attention %h, %v, %v, %bias, %len {scale=0.5 mask=causal} : f32[B,1,S,8]\n"           \
	     "    %s = concat %p, %o {axis=3} : f32[B,1,S,16]\n"                                             \
	     "    %t = slice %s {axis=3 begin=4 size=8} : f32[B,1,S,8]\n"                                    \
	     "    %u = reshape %t {dims=[B,S,8]} : f32[B,S,8]\n"                                             \
	     "    %e = reduce_max %u {axes=[2] keep} : f32[B,S,1]\n"                                         \
	     "    %d = broadcast %e {dims=[B,S,8]} : f32[B,S,8]\n"                                           \
	     "    %y = add %u, %d : f32[B,S,8]\n"                                                            \
	     "    yield %y\n"                                                                                \
	     "  } : f32[B,S,8]\n"                                                                            \
	     "  %r = select_rows %l, %at : f32[B,8]\n"                                                       \
	     "  return %r\n}\n"

struct sample {
	const char *text;
	int64_t peeled;
};
static const struct sample samples[] = {
        {CACHED("3", LAST), 1}, {CACHED("1", LAST), 1}, {CACHED("3", FIRST), 1},
        {CACHED("2", END), 1},  {SPELLED, 1},
};

struct fixture {
	struct tir t;
	struct arena arena;
	struct pass_report report;
	struct ir_module *after;
};

static void setup(struct fixture *t, const struct sample *s)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	struct pipeline p;
	*t = (struct fixture){0};
	tir_init(&t->t);
	arena_init(&t->arena);
	pass_report_init(&t->report);
	tir_load(&t->t, s->text);
	ck_assert_int_eq(pipeline_parse(&t->arena, &t->t.cx, "demand-rows", &p), TFMC_OK);
	enum tfmc_status st = passes_run(&t->t.cx, &p, &options, t->t.m, &t->after, &t->report);
	ck_assert_msg(st == TFMC_OK, "%s", t->t.log.data);
}

static void teardown(struct fixture *t)
{
	ir_module_destroy(t->after);
	pass_report_destroy(&t->report);
	arena_destroy(&t->arena);
	tir_destroy(&t->t);
}

START_TEST(test_same_bits)
{
	const struct sample *s = &samples[_i];
	struct fixture t;
	setup(&t, s);
	ck_assert_int_eq(report_count(&t.report, "demand-rows", "peeled"), s->peeled);
	const struct ir_func *f = ir_find_func(t.t.m, "f"), *g = ir_find_func(t.after, "f");
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct random_call a, b;
		ck_assert(random_call_make(&t.arena, t.t.m, f, seed, &a));
		b = a;
		ck_assert_int_eq(random_call_run(&t.t.cx, t.t.m, f, &t.arena, &a), TFMC_OK);
		enum tfmc_status st = random_call_run(&t.t.cx, t.after, g, &t.arena, &b);
		ck_assert_msg(st == TFMC_OK, "%s", t.t.log.data);
		const char *why = random_compare(&t.arena, &b.outputs[0], &a.outputs[0], 0);
		ck_assert_msg(why == NULL, "seed %d: %s\n%s", (int)seed, why != NULL ? why : "",
		              tir_text(&t.arena, &t.t.cx, t.after));
	}
	teardown(&t);
}
END_TEST

/* Elements of all weights after packing, which is what an object stores. */
static int64_t stored(const struct ir_module *m)
{
	int64_t sum = 0, n = 0;
	for (size_t i = 0; i < m->weights.n; i++) {
		ck_assert(ir_dim_is_const(ir_type_count(m->dims, m->weights.items[i]->type), &n));
		sum += n;
	}
	return sum;
}

START_TEST(test_no_weight_twice)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	static const char *const lists[] = {"merge-linear,encode", "demand-rows,merge-linear,encode"};
	struct ir_module *out[2] = {NULL, NULL};
	struct fixture t;
	setup(&t, &samples[_i]);
	for (int i = 0; i < 2; i++) {
		struct pipeline p;
		ck_assert_int_eq(pipeline_parse(&t.arena, &t.t.cx, lists[i], &p), TFMC_OK);
		ck_assert_int_eq(passes_run(&t.t.cx, &p, &options, t.t.m, &out[i], NULL), TFMC_OK);
	}
	ck_assert_int_eq(stored(out[0]), stored(out[1]));
	ir_module_destroy(out[0]);
	ir_module_destroy(out[1]);
	teardown(&t);
}
END_TEST

Suite *suite_demand_rows(void)
{
	Suite *s = suite_create("demand_rows");
	TCase *c = tcase_create("rows");
	tcase_add_loop_test(c, test_same_bits, 0, (int)TFMC_COUNT(samples));
	tcase_add_loop_test(c, test_no_weight_twice, 0, (int)TFMC_COUNT(samples));
	suite_add_tcase(s, c);
	return s;
}
