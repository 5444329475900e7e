/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ir/view: chains of views as strides, checked element by element against the
 * interpreter on an input whose elements are their own positions.
 */
#include <check.h>
#include <stdio.h>

#include "ir/interp/interp.h"
#include "ir/core/view.h"
#include "tests/support/tir.h"

#define HEAD "module \"t\"\ndim B in [1,4]\ndim S in [1,8]\nfunc @f(%x: f32[B,S,12]) -> (y: "

struct fixture {
	struct tir tir;
	struct arena arena;
	const struct ir_func *f;
	struct ir_value y;
	int64_t dims[2];
};

static void setup(struct fixture *t, const char *text)
{
	tir_init(&t->tir);
	arena_init(&t->arena);
	tir_load(&t->tir, text);
	t->f = t->tir.m->funcs.items[0];
	t->y = t->f->body->ops[t->f->body->n_ops - 1]->operands[0];
	t->dims[0] = 2;
	t->dims[1] = 3;
}

static void teardown(struct fixture *t)
{
	arena_destroy(&t->arena);
	tir_destroy(&t->tir);
}

static int64_t value_of(const struct fixture *t, const struct ir_dim *d)
{
	int64_t v = 0;
	ck_assert(ir_dim_eval(d, t->dims, &v));
	return v;
}

/* Position of element number e of an array of these sizes under these strides. */
static int64_t position(const struct fixture *t, const struct ir_view *v, int64_t e)
{
	int64_t at = value_of(t, v->offset);
	for (int i = v->rank - 1; i >= 0; i--) {
		int64_t size = value_of(t, v->size[i]);
		at += e % size * value_of(t, v->stride[i]);
		e /= size;
	}
	return at;
}

static struct interp_tensor run(struct fixture *t)
{
	struct interp_tensor in, out;
	ck_assert(interp_tensor_make(&t->arena, ir_type_of(t->f, t->f->params[0].value), t->dims, &in));
	for (int64_t i = 0; i < interp_count(&in); i++)
		in.data[i] = (double)i;
	struct interp_args args = {.dims = t->dims, .inputs = &in, .outputs = &out, .arena = &t->arena};
	ck_assert_int_eq(interp_run(&t->tir.cx, t->tir.m, t->f, &args), TFMC_OK);
	return out;
}

static void check_resolves(const char *text)
{
	struct fixture t;
	struct ir_view v;
	setup(&t, text);
	ck_assert_msg(ir_view_resolve(t.tir.m, t.f, t.y, &v), "not resolved: %s", text);
	ck_assert_uint_eq(v.base.id, t.f->params[0].value.id);
	struct interp_tensor out = run(&t);
	for (int64_t e = 0; e < interp_count(&out); e++)
		ck_assert_int_eq(position(&t, &v, e), (int64_t)out.data[e]);
	teardown(&t);
}

START_TEST(test_resolves)
{
	static const char *const cases[] = {
	        "f32[B,S,12]) {\n return %x\n}\n",
	        "f32[B,4,S,3]) {\n %a = reshape %x {dims=[B,S,4,3]} : f32[B,S,4,3]\n"
	        " %y = transpose %a {perm=[0,2,1,3]} : f32[B,4,S,3]\n return %y\n}\n",
	        "f32[B*S,12]) {\n %y = reshape %x {dims=[B*S,12]} : f32[B*S,12]\n return %y\n}\n",
	        "f32[B,S,2,2]) {\n %a = slice %x {axis=2 begin=4 size=4} : f32[B,S,4]\n"
	        " %y = reshape %a {dims=[B,S,2,2]} : f32[B,S,2,2]\n return %y\n}\n",
	        "f32[B,S,5,12]) {\n %a = reshape %x {dims=[B,S,1,12]} : f32[B,S,1,12]\n"
	        " %y = broadcast %a {dims=[B,S,5,12]} : f32[B,S,5,12]\n return %y\n}\n",
	        "f32[B*S,5,2]) {\n %a = slice %x {axis=2 begin=0 size=5} : f32[B,S,5]\n"
	        " %b = reshape %a {dims=[B*S,1,5]} : f32[B*S,1,5]\n"
	        " %c = broadcast %b {dims=[B*S,2,5]} : f32[B*S,2,5]\n"
	        " %d = transpose %c {perm=[0,2,1]} : f32[B*S,5,2]\n"
	        " %e = slice %d {axis=2 begin=1 size=1} : f32[B*S,5,1]\n"
	        " %g = broadcast %e {dims=[B*S,5,2]} : f32[B*S,5,2]\n"
	        " %h = slice %g {axis=2 begin=0 size=2} : f32[B*S,5,2]\n"
	        " %i = slice %h {axis=1 begin=2 size=1} : f32[B*S,1,2]\n"
	        " %y = broadcast %i {dims=[B*S,5,2]} : f32[B*S,5,2]\n return %y\n}\n",
	        "f32[12*B*S]) {\n %y = reshape %x {dims=[S*B*12]} : f32[12*B*S]\n return %y\n}\n",
	        "f32[S,2]) {\n %a = slice %x {axis=0 begin=0 size=1} : f32[1,S,12]\n"
	        " %b = slice %a {axis=2 begin=3 size=2} : f32[1,S,2]\n"
	        " %y = reshape %b {dims=[S,2]} : f32[S,2]\n return %y\n}\n",
	};
	char text[2048];
	snprintf(text, sizeof(text), "%s%s", HEAD, cases[_i]);
	check_resolves(text);
}
END_TEST

static void check_refuses(const char *body)
{
	struct fixture t;
	struct ir_view v;
	char text[2048];
	snprintf(text, sizeof(text), "%s%s", HEAD, body);
	setup(&t, text);
	ck_assert(!ir_view_resolve(t.tir.m, t.f, t.y, &v));
	teardown(&t);
}

START_TEST(test_refuses_apart)
{
	check_refuses("f32[B,12*S]) {\n %a = transpose %x {perm=[0,2,1]} : f32[B,12,S]\n"
	              " %y = reshape %a {dims=[B,12*S]} : f32[B,12*S]\n return %y\n}\n");
	check_refuses("f32[B,4*S]) {\n %a = slice %x {axis=2 begin=0 size=4} : f32[B,S,4]\n"
	              " %y = reshape %a {dims=[B,4*S]} : f32[B,4*S]\n return %y\n}\n");
}
END_TEST

/* Storing the base through the chain and reading the buffer row-major gives the view. */
static void check_store(const char *body, const char *type)
{
	struct fixture t;
	struct ir_view v;
	char text[2048];
	snprintf(text, sizeof(text), "%s%s) {\n%s return %%y\n}\n", HEAD, type, body);
	setup(&t, text);
	ck_assert(ir_view_inverse(t.tir.m, t.f, t.y, 0, &v));
	ck_assert_uint_eq(v.base.id, t.f->params[0].value.id);
	struct interp_tensor out = run(&t);
	for (int64_t e = 0; e < interp_count(&out); e++)
		ck_assert_int_eq((int64_t)out.data[position(&t, &v, e)], e);
	teardown(&t);
}

START_TEST(test_store)
{
	check_store(" %a = reshape %x {dims=[B,S,4,3]} : f32[B,S,4,3]\n"
	            " %b = transpose %a {perm=[0,2,1,3]} : f32[B,4,S,3]\n"
	            " %y = transpose %b {perm=[1,3,0,2]} : f32[4,3,B,S]\n",
	            "f32[4,3,B,S]");
	check_store(" %a = transpose %x {perm=[0,2,1]} : f32[B,12,S]\n"
	            " %y = reshape %a {dims=[B,12*S]} : f32[B,12*S]\n",
	            "f32[B,12*S]");
}
END_TEST

START_TEST(test_store_refuses)
{
	struct fixture t;
	struct ir_view v;
	setup(&t, HEAD "f32[B,S,2]) {\n %y = slice %x {axis=2 begin=0 size=2} : f32[B,S,2]\n return %y\n}\n");
	ck_assert(!ir_view_inverse(t.tir.m, t.f, t.y, 0, &v));
	teardown(&t);
}
END_TEST

/* Axis 0 of a state slice steps over sequences. */
START_TEST(test_state_slice)
{
	struct fixture t;
	struct ir_view v;
	setup(&t,
	      "module \"t\"\ndim B in [1,4]\ndim S in [1,8]\nstate @kv : f32[B,2,16,4] #row\n"
	      "func @f(%x: f32[B,2,S,4], %past: i32[B], %kv: state @kv) -> (y: f32[B,16,4], state @kv) {\n"
	      " %a, %s = state_append %kv, %x, %past : f32[B,2,16,4], state @kv\n"
	      " %b = slice %a {axis=1 begin=1 size=1} : f32[B,1,16,4]\n"
	      " %y = reshape %b {dims=[B,16,4]} : f32[B,16,4]\n return %y, %s\n}\n");
	ck_assert(ir_view_resolve(t.tir.m, t.f, t.y, &v));
	ck_assert(v.is_state && v.state_axis[0] && !v.state_axis[1]);
	ck_assert(ir_dim_equals(v.stride[0], 1) && ir_dim_equals(v.stride[1], 4) &&
	          ir_dim_equals(v.stride[2], 1));
	ck_assert(ir_dim_equals(v.offset, 64) && ir_dim_equals(v.state_offset, 0));
	teardown(&t);
}
END_TEST

Suite *suite_pass_view(void)
{
	Suite *s = suite_create("pass_view");
	TCase *tc = tcase_create("view");
	tcase_add_loop_test(tc, test_resolves, 0, 8);
	tcase_add_test(tc, test_refuses_apart);
	tcase_add_test(tc, test_store);
	tcase_add_test(tc, test_store_refuses);
	tcase_add_test(tc, test_state_slice);
	suite_add_tcase(s, tc);
	return s;
}
