/* SPDX-License-Identifier: Apache-2.0 */
/*
* Consequences of the conditions of a case: bound dims and types, upper
 * bounds, copies between modules, and that clones of a function into a case
 * compute the same.
 */
#include <check.h>

#include "ir/core/build.h"
#include "ir/core/case.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"

Suite *suite_ir_case(void);

static const char text[] = "module \"m\"\n"
                           "dim B in [1,8]\n"
                           "dim S in [1,16]\n"
                           "\n"
                           "func @f(%x: f32[B,S,4], %n: i32[B] {default=S max=S}) -> (y: f32[B,S,4]) {\n"
                           "  %h = reshape %x {dims=[B,S,2,2]} : f32[B,S,2,2]\n"
                           "  %t = transpose %h {perm=[0,2,1,3]} : f32[B,2,S,2]\n"
                           "  %s = softmax %t : f32[B,2,S,2]\n"
                           "  %u = transpose %s {perm=[0,2,1,3]} : f32[B,S,2,2]\n"
                           "  %v = reshape %u {dims=[B,S,4]} : f32[B,S,4]\n"
                           "  %w = slice %x {axis=1 begin=S-1 size=1} : f32[B,1,4]\n"
                           "  %b = broadcast %w {dims=[B,S,4]} : f32[B,S,4]\n"
                           "  %a = add %v, %b : f32[B,S,4]\n"
                           "  %y = mask_rows %a, %n : f32[B,S,4]\n"
                           "  return %y\n"
                           "}\n"
                           "\n"
                           "func @g(%x: f32[B,S]) -> (y: f32[B,S]) case of @h when B*S <= 14 {\n"
                           "  return %x\n"
                           "}\n"
                           "\n"
                           "func @h(%x: f32[B,S]) -> (y: f32[B,S]) {\n"
                           "  return %x\n"
                           "}\n";

static struct ir_case one_row(struct ir_module *m, struct ir_condition *c)
{
	c[0] = (struct ir_condition){ir_dim_sym(m->dims, "S"), IR_EQUAL, 1};
	c[1] = (struct ir_condition){ir_dim_sym(m->dims, "B"), IR_AT_MOST, 4};
	return (struct ir_case){"f", c, 2};
}

START_TEST(symbols_are_bound)
{
	struct tir t;
	struct ir_condition c[2];
	tir_init(&t);
	tir_load(&t, text);
	struct ir_dims *d = t.m->dims;
	struct ir_case one = one_row(t.m, c);
	const struct ir_dim *b = c[1].dim, *s = c[0].dim, *bs = ir_dim_mul(d, b, s);
	const struct ir_dim *up = ir_dim_floordiv(d, ir_dim_add(d, s, ir_dim_const(d, 7)), 4);
	ck_assert_ptr_eq(ir_case_bind_dim(t.m, &one, bs), b);
	ck_assert_ptr_eq(ir_case_bind_dim(t.m, &one, up), ir_dim_const(d, 2));
	ck_assert(ir_dim_has_symbol(up, 1) && !ir_dim_has_symbol(up, 0) && ir_dim_has_symbol(bs, 0));
	const struct ir_dim *most = ir_dim_max(d, ir_dim_mul(d, b, b), s);
	ck_assert(ir_dim_has_symbol(most, 0) && ir_dim_has_symbol(most, 1) && !ir_dim_has_symbol(most, 2));
	ck_assert_ptr_eq(ir_case_bind_dim(t.m, &one, most), ir_dim_mul(d, b, b));
	ck_assert_int_eq(ir_dim_as_symbol(s), 1);
	ck_assert_int_eq(ir_dim_as_symbol(bs), -1);
	ck_assert_int_eq(ir_dim_as_symbol(ir_dim_floordiv(d, s, 4)), -1);
	const struct ir_dim *dims[] = {b, s}, *bound[] = {b, ir_dim_const(d, 1)};
	ck_assert_ptr_eq(ir_case_bind_type(t.m, &one, ir_type_tensor(t.m->types, DT_F32, 2, dims)),
	                 ir_type_tensor(t.m->types, DT_F32, 2, bound));
	tir_destroy(&t);
}
END_TEST

START_TEST(bounds_of_a_bucket)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, text);
	struct ir_dims *d = t.m->dims;
	const struct ir_func *g = ir_find_func(t.m, "g"), *h = ir_find_func(t.m, "h");
	const struct ir_dim *b = ir_dim_sym(d, "B"), *s = ir_dim_sym(d, "S"), *bs = ir_dim_mul(d, b, s);
	ck_assert_int_eq(ir_func_dim_hi(t.m, h, bs), 128);
	ck_assert_int_eq(ir_func_dim_hi(t.m, g, bs), 14);
	ck_assert_int_eq(ir_func_dim_hi(t.m, g, ir_dim_mul(d, bs, ir_dim_const(d, 32))), 448);
	ck_assert_int_eq(ir_func_dim_hi(t.m, g, ir_dim_mul(d, bs, s)), 14 * 16);
	ck_assert_int_eq(ir_func_dim_hi(t.m, g, b), 8);
	ck_assert_int_eq(ir_func_dim_hi(t.m, g, ir_dim_sub(d, ir_dim_const(d, 0), bs)), -1);
	ck_assert(ir_case_holds(g->when, (int64_t[]){2, 7}));
	ck_assert(!ir_case_holds(g->when, (int64_t[]){3, 5}));
	tir_destroy(&t);
}
END_TEST

START_TEST(clones_compute_the_same)
{
	struct tir t;
	struct arena a;
	struct ir_condition c[2];
	tir_init(&t);
	tir_load(&t, text);
	arena_init(&a);
	struct ir_case one = one_row(t.m, c);
	const struct ir_func *f = ir_find_func(t.m, "f"), *g = tir_add_case(&t.cx, t.m, f, "f.one", &one);
	ck_assert_ptr_eq(ir_select_case(t.m, f, (int64_t[]){4, 1}), g);
	ck_assert_ptr_eq(ir_select_case(t.m, f, (int64_t[]){5, 1}), f);
	for (uint64_t seed = 1; seed < 20; seed++) {
		struct random_call general, special;
		ck_assert(random_call_make(&a, t.m, g, seed, &special));
		special.dims[1] = 1;
		general = special;
		ck_assert_int_eq(random_call_run(&t.cx, t.m, g, &a, &special), TFMC_OK);
		ck_assert_int_eq(random_call_run(&t.cx, t.m, f, &a, &general), TFMC_OK);
		ck_assert_ptr_null(random_compare(&a, &special.outputs[0], &general.outputs[0], 0));
	}
	arena_destroy(&a);
	tir_destroy(&t);
}
END_TEST

/* Conditions are written in the words of the module they are copied into. */
START_TEST(copies_stay_cases)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, text);
	struct ir_module *to = ir_module_create_like(t.m);
	const struct ir_func *g = ir_find_func(t.m, "g");
	struct ir_value map[8] = {{0}}, v;
	struct ir_builder *b = irb_begin(to, &t.cx, "g", g->loc);
	irb_clone_params(b, g, map);
	v = map[g->params[0].value.id];
	ck_assert_int_eq(irb_finish(b, &v, g->results, 1, NULL), TFMC_OK);
	const struct ir_case *c = ir_find_func(to, "g")->when;
	ck_assert_ptr_nonnull(c);
	ck_assert_str_eq(c->of, "h");
	ck_assert_ptr_ne(c->of, g->when->of);
	ck_assert_ptr_eq(c->conditions[0].dim,
	                 ir_dim_mul(to->dims, ir_dim_sym(to->dims, "B"), ir_dim_sym(to->dims, "S")));
	ir_module_destroy(to);
	tir_destroy(&t);
}
END_TEST

Suite *suite_ir_case(void)
{
	Suite *s = suite_create("ir_case");
	TCase *t = tcase_create("all");
	tcase_add_test(t, symbols_are_bound);
	tcase_add_test(t, bounds_of_a_bucket);
	tcase_add_test(t, clones_compute_the_same);
	tcase_add_test(t, copies_stay_cases);
	suite_add_tcase(s, t);
	return s;
}
