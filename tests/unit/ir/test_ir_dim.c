/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dims: one object for each polynomial, division, bounds, values, text; and
 * the interning of types.
 */
#include <check.h>

#include "ir/core/module.h"
#include "ir/types/type.h"

Suite *suite_ir_dim(void);

struct table {
	struct arena arena;
	struct ir_dims *t;
	const struct ir_dim *B, *S, *T;
};

static void setup(struct table *x)
{
	arena_init(&x->arena);
	x->t = ir_dims_create(&x->arena);
	ck_assert(ir_dims_declare(x->t, "B", 1, 8));
	ck_assert(ir_dims_declare(x->t, "S", 1, 128));
	ck_assert(ir_dims_declare(x->t, "T", 0, 512));
	x->B = ir_dim_sym(x->t, "B");
	x->S = ir_dim_sym(x->t, "S");
	x->T = ir_dim_sym(x->t, "T");
}

static const struct ir_dim *num(struct table *x, int64_t v)
{
	return ir_dim_const(x->t, v);
}

static void reads(struct table *x, const struct ir_dim *d, bool tight, const char *text)
{
	struct buf out;
	buf_init(&out);
	ir_dim_print(&out, x->t, d, tight);
	ck_assert_str_eq(out.data, text);
	buf_destroy(&out);
}

START_TEST(symbols)
{
	struct table x;
	setup(&x);
	ck_assert(!ir_dims_declare(x.t, "B", 1, 2));
	ck_assert(!ir_dims_declare(x.t, "N", -1, 2));
	ck_assert(!ir_dims_declare(x.t, "N", 3, 2));
	ck_assert(!ir_dims_declare(x.t, "N", 3, INT64_C(1) << 31));
	ck_assert_uint_eq(ir_dims_count(x.t), 3);
	ck_assert_int_eq(ir_dims_find(x.t, "T"), 2);
	ck_assert_int_eq(ir_dims_find(x.t, "N"), -1);
	ck_assert_ptr_null(ir_dim_sym(x.t, "N"));
	ck_assert_str_eq(ir_dims_sym(x.t, 1)->name, "S");
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(equal_polynomials_are_one_object)
{
	struct table x;
	setup(&x);
	const struct ir_dim *sum = ir_dim_add(x.t, x.S, x.B);
	ck_assert_ptr_eq(sum, ir_dim_add(x.t, x.B, x.S));
	const struct ir_dim *square = ir_dim_mul(x.t, sum, sum);
	const struct ir_dim *parts = ir_dim_mul(x.t, x.B, x.B);
	parts = ir_dim_add(x.t, parts, ir_dim_mul(x.t, x.S, x.S));
	parts = ir_dim_add(x.t, parts, ir_dim_mul(x.t, num(&x, 2), ir_dim_mul(x.t, x.S, x.B)));
	ck_assert_ptr_eq(square, parts);
	ck_assert_ptr_eq(ir_dim_sub(x.t, square, parts), num(&x, 0));
	ck_assert_ptr_eq(ir_dim_mul(x.t, x.S, num(&x, 0)), num(&x, 0));
	int64_t v;
	ck_assert(ir_dim_is_const(num(&x, -7), &v) && v == -7);
	ck_assert(!ir_dim_is_const(x.S, NULL));
	ck_assert(ir_dim_equals(num(&x, 3), 3) && !ir_dim_equals(x.S, 3));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(text)
{
	struct table x;
	setup(&x);
	const struct ir_dim *four_s = ir_dim_mul(x.t, num(&x, 4), x.S);
	reads(&x, ir_dim_mul(x.t, x.S, x.B), false, "B*S");
	reads(&x, ir_dim_add(x.t, four_s, num(&x, 3)), false, "4*S + 3");
	reads(&x, ir_dim_add(x.t, four_s, num(&x, 3)), true, "4*S+3");
	reads(&x, ir_dim_sub(x.t, ir_dim_mul(x.t, x.S, x.S), num(&x, 1)), false, "S*S - 1");
	reads(&x, ir_dim_sub(x.t, num(&x, 4), x.S), false, "-S + 4");
	reads(&x, num(&x, 0), false, "0");
	reads(&x, num(&x, -2), true, "-2");
	const struct ir_dim *up = ir_dim_floordiv(x.t, ir_dim_add(x.t, x.S, num(&x, 3)), 4);
	reads(&x, up, false, "(S + 3)//4");
	reads(&x, up, true, "(S+3)//4");
	reads(&x, ir_dim_floordiv(x.t, x.S, 4), true, "S//4");
	reads(&x, ir_dim_mul(x.t, num(&x, 4), up), true, "4*((S+3)//4)");
	reads(&x, ir_dim_sub(x.t, x.B, up), true, "B-((S+3)//4)");
	reads(&x, ir_dim_add(x.t, up, num(&x, 1)), false, "(S + 3)//4 + 1");
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(floor_division_is_normal)
{
	struct table x;
	setup(&x);
	const struct ir_dim *four_s = ir_dim_mul(x.t, num(&x, 4), x.S);
	ck_assert_ptr_eq(ir_dim_floordiv(x.t, four_s, 4), x.S);
	ck_assert_ptr_eq(ir_dim_floordiv(x.t, four_s, 1), four_s);
	reads(&x, ir_dim_floordiv(x.t, ir_dim_add(x.t, four_s, num(&x, 7)), 4), true, "S+1");
	reads(&x, ir_dim_floordiv(x.t, ir_dim_add(x.t, x.S, num(&x, 7)), 4), true, "(S+3)//4+1");
	reads(&x, ir_dim_floordiv(x.t, four_s, 6), true, "(2*S)//3");
	reads(&x, ir_dim_floordiv(x.t, ir_dim_floordiv(x.t, x.S, 3), 5), true, "S//15");
	ck_assert_ptr_eq(ir_dim_floordiv(x.t, num(&x, -1), 4), num(&x, -1));
	ck_assert(!ir_dims_failed(x.t));
	ir_dim_floordiv(x.t, x.S, 0);
	ck_assert(ir_dims_failed(x.t));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(exact_quotients)
{
	struct table x;
	setup(&x);
	const struct ir_dim *bs = ir_dim_mul(x.t, x.B, x.S);
	const struct ir_dim *a = ir_dim_add(x.t, bs, x.S); /* (B + 1) S */
	ck_assert_ptr_eq(ir_dim_divide(x.t, a, x.S), ir_dim_add(x.t, x.B, num(&x, 1)));
	ck_assert_ptr_eq(ir_dim_divide(x.t, a, ir_dim_add(x.t, x.B, num(&x, 1))), x.S);
	ck_assert_ptr_null(ir_dim_divide(x.t, a, x.B));
	ck_assert_ptr_null(ir_dim_divide(x.t, a, num(&x, 2)));
	ck_assert_ptr_null(ir_dim_divide(x.t, a, num(&x, 0)));
	ck_assert_ptr_eq(ir_dim_divide(x.t, num(&x, 0), a), num(&x, 0));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(binding)
{
	struct table x;
	setup(&x);
	const struct ir_dim *d = ir_dim_floordiv(x.t, ir_dim_add(x.t, x.S, num(&x, 3)), 4);
	d = ir_dim_add(x.t, ir_dim_mul(x.t, d, x.B), x.S);
	ck_assert_ptr_eq(ir_dim_substitute(x.t, d, 1, num(&x, 1)), ir_dim_add(x.t, x.B, num(&x, 1)));
	reads(&x, ir_dim_substitute(x.t, d, 0, x.T), true, "T*((S+3)//4)+S");
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(bounds)
{
	struct table x;
	setup(&x);
	const struct ir_dim *d = ir_dim_sub(x.t, ir_dim_mul(x.t, x.B, x.S), x.T);
	ck_assert_int_eq(ir_dim_lo(x.t, d), 1 - 512);
	ck_assert_int_eq(ir_dim_hi(x.t, d), 1024);
	const struct ir_dim *q = ir_dim_floordiv(x.t, ir_dim_sub(x.t, x.S, num(&x, 2)), 4);
	ck_assert_int_eq(ir_dim_lo(x.t, q), -1);
	ck_assert_int_eq(ir_dim_hi(x.t, q), 31);
	ck_assert(ir_dim_le(x.t, x.S, num(&x, 128)));
	ck_assert(!ir_dim_le(x.t, x.S, num(&x, 127)));
	ck_assert(ir_dim_le(x.t, ir_dim_sub(x.t, x.S, num(&x, 1)), x.S));
	const struct ir_dim *big = x.T;
	for (int i = 0; i < 8; i++)
		big = ir_dim_mul(x.t, big, x.T);
	ck_assert_int_eq(ir_dim_hi(x.t, big), INT64_MAX);
	ck_assert_int_eq(ir_dim_lo(x.t, big), 0);
	arena_destroy(&x.arena);
}
END_TEST

/* Order that holds because a quotient that is rounded down is near to its dividend. */
START_TEST(floors)
{
	struct table x;
	setup(&x);
	const struct ir_dim *bs = ir_dim_mul(x.t, x.B, x.S), *bytes = ir_dim_mul(x.t, num(&x, 4), bs);
	const struct ir_dim *up = ir_dim_add(x.t, bytes, num(&x, 63)), *lines = ir_dim_floordiv(x.t, up, 64);
	const struct ir_dim *whole = ir_dim_mul(x.t, num(&x, 64), lines);
	ck_assert(ir_dim_le(x.t, bytes, whole) && !ir_dim_le(x.t, whole, bytes));
	ck_assert(!ir_dim_le(x.t, ir_dim_add(x.t, bytes, num(&x, 1)), whole));
	ck_assert(ir_dim_le(x.t, whole, up) && !ir_dim_le(x.t, up, whole));
	ck_assert(ir_dim_le(x.t, lines, bs)); /* B*S is at least 1 */
	ck_assert(ir_dim_le(x.t, whole, ir_dim_mul(x.t, num(&x, 64), bs)));
	ck_assert(!ir_dim_le(x.t, ir_dim_mul(x.t, num(&x, 17), lines), bs));
	const struct ir_dim *none = ir_dim_floordiv(x.t, x.T, 3);
	ck_assert(ir_dim_le(x.t, none, x.T));
	ck_assert(!ir_dim_le(x.t, num(&x, 1), none)); /* T may be 0 */
	ck_assert(!ir_dims_failed(x.t));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(evaluation)
{
	struct table x;
	setup(&x);
	const int64_t values[3] = {2, 10, INT64_MAX};
	int64_t v;
	const struct ir_dim *d = ir_dim_floordiv(x.t, ir_dim_add(x.t, x.S, num(&x, 3)), 4);
	ck_assert(ir_dim_eval(ir_dim_mul(x.t, x.B, d), values, &v) && v == 6);
	ck_assert(!ir_dim_eval(ir_dim_mul(x.t, x.B, x.T), values, &v));
	ck_assert(ir_dim_eval(num(&x, 0), values, &v) && v == 0);
	arena_destroy(&x.arena);
}
END_TEST

/* Maxima, and order that holds because one term is a multiple of another. */
START_TEST(maxima)
{
	struct table x;
	setup(&x);
	const struct ir_dim *bs = ir_dim_mul(x.t, x.B, x.S), *bt = ir_dim_mul(x.t, x.B, x.T);
	const struct ir_dim *m = ir_dim_max(x.t, bs, bt), *three = ir_dim_mul(x.t, num(&x, 3), x.B);
	const int64_t values[] = {2, 5, 9};
	int64_t v;
	reads(&x, m, false, "max(B*S, B*T)");
	ck_assert_ptr_eq(m, ir_dim_max(x.t, bt, bs));
	ck_assert_ptr_eq(ir_dim_max(x.t, x.B, bs), bs); /* S is at least 1 */
	ck_assert(ir_dim_eval(m, values, &v) && v == 18);
	ck_assert_int_eq(ir_dim_lo(x.t, m), 1);
	ck_assert_int_eq(ir_dim_hi(x.t, m), 8 * 512);
	ck_assert(ir_dim_le(x.t, bs, m) && ir_dim_le(x.t, bt, m) && !ir_dim_le(x.t, m, bs));
	ck_assert(ir_dim_le(x.t, m, ir_dim_add(x.t, bs, bt)));
	ck_assert(ir_dim_le(x.t, three, ir_dim_mul(x.t, num(&x, 3), bs)));
	ck_assert(!ir_dim_le(x.t, three, ir_dim_mul(x.t, num(&x, 2), bs)));
	ck_assert(!ir_dim_le(x.t, x.B, bt)); /* T may be 0 */
	const struct ir_dim *three_and_t = ir_dim_add(x.t, three, x.T),
	                    *thrice = ir_dim_mul(x.t, num(&x, 3), bs);
	ck_assert(ir_dim_le(x.t, three_and_t, ir_dim_add(x.t, thrice, num(&x, 512)))); /* T is at most 512 */
	ck_assert(!ir_dim_le(x.t, three_and_t, ir_dim_add(x.t, thrice, num(&x, 511))));
	ck_assert_ptr_eq(ir_dim_substitute(x.t, m, 2, num(&x, 1)), bs);
	ck_assert(!ir_dims_failed(x.t));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(overflow_is_sticky)
{
	struct table x;
	setup(&x);
	const struct ir_dim *huge = num(&x, INT64_MAX);
	ck_assert_ptr_eq(ir_dim_add(x.t, huge, num(&x, 1)), num(&x, 0));
	ck_assert(ir_dims_failed(x.t));
	arena_destroy(&x.arena);
	setup(&x);
	const struct ir_dim *d = x.S;
	for (int i = 0; i < 40; i++)
		d = ir_dim_mul(x.t, d, x.S);
	ck_assert(ir_dims_failed(x.t));
	arena_destroy(&x.arena);
}
END_TEST

START_TEST(types)
{
	struct ir_module *m = ir_module_create("t");
	ck_assert(ir_dims_declare(m->dims, "S", 1, 4));
	const struct ir_dim *dims[] = {ir_dim_sym(m->dims, "S"), ir_dim_const(m->dims, 3)};
	const struct ir_type *a = ir_type_tensor(m->types, DT_BF16, 2, dims);
	ck_assert_ptr_eq(a, ir_type_tensor(m->types, DT_BF16, 2, dims));
	ck_assert_ptr_ne(a, ir_type_tensor(m->types, DT_F32, 2, dims));
	ck_assert_ptr_eq(ir_type_count(m->dims, a), ir_dim_mul(m->dims, dims[0], dims[1]));
	ck_assert_ptr_eq(ir_type_count_range(m->dims, a, 1, 2), dims[1]);
	ck_assert_ptr_null(ir_type_tensor(m->types, DT_F32, IR_RANK_MAX + 1, dims));
	const struct ir_dim *negative = ir_dim_sub(m->dims, dims[0], dims[1]);
	ck_assert_ptr_null(ir_type_tensor(m->types, DT_F32, 1, &negative));
	const struct ir_state_decl *s = ir_add_state(m, "kv", a, (struct ir_loc){.at = LOC_NONE});
	const struct ir_type *state = ir_type_state(m->types, s);
	ck_assert_ptr_eq(state, ir_type_state(m->types, s));
	struct buf out;
	buf_init(&out);
	ir_type_print(&out, m->dims, a);
	buf_char(&out, ' ');
	ir_type_print(&out, m->dims, state);
	buf_char(&out, ' ');
	ir_type_print(&out, m->dims, ir_type_tensor(m->types, DT_BOOL, 0, NULL));
	ck_assert_str_eq(out.data, "bf16[S,3] state @kv bool[]");
	buf_destroy(&out);
	enum ir_dtype dt;
	ck_assert(ir_dtype_parse("BF16", 4, &dt) && dt == DT_BF16 && ir_dtype_bytes(dt) == 2);
	ck_assert(!ir_dtype_parse("f3", 2, &dt));
	ir_module_destroy(m);
}
END_TEST

Suite *suite_ir_dim(void)
{
	Suite *s = suite_create("ir_dim");
	TCase *c = tcase_create("dims");
	tcase_add_test(c, symbols);
	tcase_add_test(c, equal_polynomials_are_one_object);
	tcase_add_test(c, text);
	tcase_add_test(c, floor_division_is_normal);
	tcase_add_test(c, exact_quotients);
	tcase_add_test(c, binding);
	tcase_add_test(c, bounds);
	tcase_add_test(c, floors);
	tcase_add_test(c, evaluation);
	tcase_add_test(c, maxima);
	tcase_add_test(c, overflow_is_sticky);
	tcase_add_test(c, types);
	suite_add_tcase(s, c);
	return s;
}
