/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planned modules in the bytes of their arena: faults that are planted into
 * plans are found where they are read, with the names of both buffers.
 */
#include <check.h>
#include <string.h>

#include "ir/interp/interp.h"
#include "tests/support/tir.h"

Suite *suite_interp_memory(void);

/* Three groups; %b is read twice, by the group of %c and that of %y. */
#define PLAN(arena, a, b, c)                                            \
	"module \"m\" stage=plan\n"                                     \
	"dim B in [1,4]\n"                                              \
	"func @f(%x: f32[B,16]) -> (y: f32[B,16]) arena=" arena " {\n"  \
	"  %a = group loops {\n    root %a1 = exp %x : f32[B,16]\n"     \
	"    yield %a1\n  } at [" a "] : f32[B,16]\n"                   \
	"  %b = group loops {\n    root %b1 = neg %a : f32[B,16]\n"     \
	"    yield %b1\n  } at [" b "] : f32[B,16]\n"                   \
	"  %c = group loops {\n    root %c1 = softmax %b : f32[B,16]\n" \
	"    yield %c1\n  } at [" c "] : f32[B,16]\n"                   \
	"  %y = group loops {\n    root %y1 = add %b, %c : f32[B,16]\n" \
	"    yield %y1\n  } at [-1] : f32[B,16]\n"                      \
	"  return %y\n"                                                 \
	"}\n"

static enum tfmc_status run(struct tir *t, struct arena *a, const char *text, double *out)
{
	const int64_t dims[] = {2};
	struct interp_tensor in, y;
	ck_assert_msg(tir_parse(t, text) == TFMC_OK, "%s", t->log.data);
	const struct ir_func *f = t->m->funcs.items[0];
	ck_assert(interp_tensor_make(a, ir_type_of(f, f->params[0].value), dims, &in));
	for (int i = 0; i < 32; i++)
		in.data[i] = i * 0.0625;
	const struct interp_args args = {
	        .dims = dims, .inputs = &in, .outputs = &y, .arena = a, .planned = true};
	enum tfmc_status st = interp_run(&t->cx, t->m, f, &args);
	if (st == TFMC_OK)
		*out = y.data[0];
	return st;
}

static const struct {
	const char *text, *error; /* NULL: a right plan */
} plans[] = {
        {PLAN("192*B", "0", "64*B", "128*B"), NULL},
        {PLAN("128*B", "0", "0", "64*B"), NULL},
        {PLAN("128*B", "0", "64*B", "0"), NULL},
        {PLAN("128*B", "0", "64*B", "64*B"),
         "plan: the group writes over %b, which it reads: it is read at other elements than the one that is "
         "written"},
        {PLAN("192*B", "0", "64*B", "64"),
         "plan: the group writes over %b, which it reads: they overlap in part"},
        {PLAN("64*B", "0", "64*B", "0"), "plan: %b lies outside of the arena"},
};

START_TEST(test_plans)
{
	struct tir t;
	struct arena a;
	double y = 0;
	tir_init(&t);
	arena_init(&a);
	enum tfmc_status st = run(&t, &a, plans[_i].text, &y);
	ck_assert_msg((st == TFMC_OK) == (plans[_i].error == NULL), "%s", t.log.data);
	if (plans[_i].error != NULL)
		ck_assert_msg(strstr(t.log.data, plans[_i].error) != NULL, "%s", t.log.data);
	else
		ck_assert(y > -1 && y < 0); /* -exp(0) + softmax: neither NaN nor anything else */
	arena_destroy(&a);
	tir_destroy(&t);
}
END_TEST

/* A value of a loop is written over what the next iteration reads: seen in the second one only. */
START_TEST(test_loops)
{
	static const char text[] = "module \"m\" stage=plan\n"
	                           "dim B in [1,4]\n"
	                           "func @f(%x: f32[B,16]) -> (y: f32[B,16]) arena=192*B {\n"
	                           "  %w = group loops {\n    root %w1 = exp %x : f32[B,16]\n    yield %w1\n "
	                           " } at [128*B] : f32[B,16]\n"
	                           "  %i = group loops {\n    root %i1 = neg %x : f32[B,16]\n    yield %i1\n "
	                           " } at [0] : f32[B,16]\n"
	                           "  %r = repeat %l = 0 to 2 carry (%h = %i) {\n"
	                           "    %u = group loops {\n      root %u1 = add %h, %w : f32[B,16]\n      "
	                           "yield %u1\n    } at [64*B] : "
	                           "f32[B,16]\n"
	                           "    %v = group loops {\n      root %v1 = sin %u : f32[B,16]\n      yield "
	                           "%v1\n    } at [128*B] : "
	                           "f32[B,16]\n"
	                           "    %z = group loops {\n      root %z1 = neg %v : f32[B,16]\n      yield "
	                           "%z1\n    } at [0] : f32[B,16]\n"
	                           "    yield %z\n"
	                           "  } : f32[B,16]\n"
	                           "  %y = group loops {\n    root %y1 = exp %r : f32[B,16]\n    yield %y1\n "
	                           " } at [-1] : f32[B,16]\n"
	                           "  return %y\n"
	                           "}\n";
	struct tir t;
	struct arena a;
	double y = 0;
	tir_init(&t);
	arena_init(&a);
	ck_assert_int_eq(run(&t, &a, text, &y), TFMC_INVALID);
	ck_assert_msg(strstr(t.log.data, "plan: %w is read at byte 256, where %v was written since") != NULL,
	              "%s", t.log.data);
	arena_destroy(&a);
	tir_destroy(&t);
}
END_TEST

Suite *suite_interp_memory(void)
{
	Suite *s = suite_create("interp_memory");
	TCase *tc = tcase_create("plans");
	tcase_add_loop_test(tc, test_plans, 0, (int)TFMC_COUNT(plans));
	tcase_add_test(tc, test_loops);
	suite_add_tcase(s, tc);
	return s;
}
