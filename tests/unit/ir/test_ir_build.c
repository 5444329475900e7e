/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The builder: sticky failure and its messages, folding, merging, regions,
 * and copies of functions into another module.
 */
#include <check.h>
#include <math.h>

#include "ir/core/build.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "tests/support/tir.h"

Suite *suite_ir_build(void);

static const struct ir_loc nowhere = {.at = {0, 0, 0, 0}};

/* A module with dim S and a function under construction with parameters x, y: f32[S,4]. */
struct site {
	struct tir t;
	struct ir_builder *b;
	struct ir_value x, y;
	const struct ir_dim *dims[2];
};

static void setup(struct site *s)
{
	tir_init(&s->t);
	s->t.m = ir_module_create("m");
	struct ir_module *m = s->t.m;
	ck_assert(ir_dims_declare(m->dims, "S", 1, 16));
	s->dims[0] = ir_dim_sym(m->dims, "S");
	s->dims[1] = ir_dim_const(m->dims, 4);
	s->b = irb_begin(m, &s->t.cx, "f", nowhere);
	const struct ir_type *type = ir_type_tensor(m->types, DT_F32, 2, s->dims);
	s->x = irb_param(s->b, &(struct ir_param){.name = "x", .lengths = -1}, type);
	s->y = irb_param(s->b, &(struct ir_param){.name = "y", .lengths = -1}, type);
}

static struct ir_value full(struct site *s, double v)
{
	return irb_full_of(s->b, v, DT_F32, 2, s->dims);
}

static void finish(struct site *s, struct ir_value v)
{
	struct ir_result r = {.lengths = -1};
	ck_assert_msg(irb_finish(s->b, &v, &r, 1, NULL) == TFMC_OK, "%s", s->t.log.data);
	ck_assert_msg(ir_verify(s->t.m, &s->t.cx) == TFMC_OK, "%s", s->t.log.data);
}

static bool same(struct ir_value a, struct ir_value b)
{
	return a.id != 0 && ir_same_value(a, b);
}

START_TEST(folds_arithmetic)
{
	struct site s;
	setup(&s);
	struct ir_value zero = full(&s, 0.0), minus_zero = full(&s, -0.0), one = full(&s, 1.0);
	ck_assert(same(irb_scale_by(s.b, s.x, 1.0), s.x));
	ck_assert(same(irb_mul(s.b, s.x, one, NULL), s.x));
	ck_assert(same(irb_mul(s.b, one, s.x, NULL), s.x));
	ck_assert(same(irb_div(s.b, s.x, one, NULL), s.x));
	ck_assert(same(irb_add(s.b, s.x, minus_zero, NULL), s.x));
	ck_assert(!same(irb_add(s.b, s.x, zero, NULL), s.x)); /* -0 + 0 is 0 */
	ck_assert(same(irb_sub(s.b, s.x, zero, NULL), s.x));
	ck_assert(!same(irb_sub(s.b, s.x, minus_zero, NULL), s.x));
	ck_assert(same(irb_neg(s.b, irb_neg(s.b, s.x, NULL), NULL), s.x));
	ck_assert(same(irb_cast(s.b, s.x, &(struct attrs_cast){.dtype = DT_F32}), s.x));
	ck_assert(!same(irb_cast(s.b, s.x, &(struct attrs_cast){.dtype = DT_F16}), s.x));
	ck_assert(!same(irb_scale_by(s.b, s.x, 2.0), s.x));
	struct ir_value c = irb_cmp(s.b, s.x, s.y, NULL);
	ck_assert(same(irb_where(s.b, c, s.x, s.x, NULL), s.x));
	ck_assert(same(irb_not(s.b, irb_not(s.b, c, NULL), NULL), c));
	finish(&s, s.x);
	tir_destroy(&s.t);
}
END_TEST

START_TEST(folds_views)
{
	struct site s;
	setup(&s);
	struct ir_dims *t = s.t.m->dims;
	const struct ir_dim *flat = ir_dim_mul(t, s.dims[0], s.dims[1]);
	const struct ir_dim *zero = ir_dim_const(t, 0), *one = ir_dim_const(t, 1), *two = ir_dim_const(t, 2);
	const int64_t swap[] = {1, 0}, keep[] = {0, 1};
	struct ir_value r = irb_reshape_to(s.b, s.x, 1, &flat);
	ck_assert(same(irb_reshape_to(s.b, r, 2, s.dims), s.x));
	ck_assert(same(irb_transpose_by(s.b, irb_transpose_by(s.b, s.x, 2, swap), 2, swap), s.x));
	ck_assert(same(irb_transpose_by(s.b, s.x, 2, keep), s.x));
	ck_assert(same(irb_broadcast_to(s.b, s.x, 2, s.dims), s.x));
	ck_assert(same(irb_slice_of(s.b, s.x, 1, zero, s.dims[1]), s.x));
	struct ir_value part =
	        irb_slice_of(s.b, irb_slice_of(s.b, s.x, 1, one, ir_dim_const(t, 3)), 1, one, two);
	ck_assert(same(part, irb_slice_of(s.b, s.x, 1, two, two)));
	struct ir_value f = irb_reshape_to(s.b, full(&s, 3.0), 1, &flat);
	ck_assert_int_eq(ir_def(irb_func(s.b), f)->code, OP_full);
	finish(&s, part);
	tir_destroy(&s.t);
}
END_TEST

START_TEST(folds_values_of_dims)
{
	struct site s;
	setup(&s);
	struct ir_dims *t = s.t.m->dims;
	const struct ir_dim *S = s.dims[0], *wide = ir_dim_const(t, INT32_MAX);
	struct ir_value n = irb_dim_value_of(s.b, S, 1, &S), one = irb_full_of(s.b, 1.0, DT_I32, 1, &S);
	struct ir_value most = irb_dim_value_of(s.b, wide, 1, &S);
	struct ir_value before = irb_dim_value_of(s.b, ir_dim_sub(t, S, ir_dim_const(t, 1)), 1, &S);
	ck_assert(same(irb_sub(s.b, n, one, NULL), before));
	ck_assert(same(irb_add(s.b, before, one, NULL), n));
	ck_assert(same(irb_broadcast_to(s.b, irb_dim_value_of(s.b, S, 0, NULL), 1, &S), n));
	ck_assert_int_eq(ir_def(irb_func(s.b), irb_add(s.b, most, one, NULL))->code, OP_add);
	finish(&s, n);
	tir_destroy(&s.t);
}
END_TEST

START_TEST(merges_equal_ops)
{
	struct site s;
	setup(&s);
	ck_assert(same(irb_add(s.b, s.x, s.y, NULL), irb_add(s.b, s.y, s.x, NULL)));
	ck_assert(!same(irb_sub(s.b, s.x, s.y, NULL), irb_sub(s.b, s.y, s.x, NULL)));
	ck_assert(same(full(&s, 2.0), full(&s, 2.0)));
	ck_assert(!same(full(&s, 0.0), full(&s, -0.0)));
	ck_assert(!same(irb_scale_by(s.b, s.x, 2.0), irb_scale_by(s.b, s.x, 3.0)));
	struct ir_value outer = irb_exp(s.b, s.x, NULL), args[2], result;
	irb_repeat_begin(s.b, 3, &s.x, 1, args);
	ck_assert(same(irb_exp(s.b, s.x, NULL), outer));
	struct ir_value inner = irb_exp(s.b, args[1], NULL);
	irb_repeat_end(s.b, &inner, 1, &result);
	ck_assert(!same(irb_exp(s.b, result, NULL), inner));
	irb_set_literal(s.b, true);
	ck_assert(!same(irb_exp(s.b, s.x, NULL), outer));
	ck_assert(!same(irb_scale_by(s.b, s.x, 1.0), s.x));
	finish(&s, result);
	tir_destroy(&s.t);
}
END_TEST

START_TEST(failure_is_sticky)
{
	struct site s;
	setup(&s);
	struct ir_value bad = irb_matmul(s.b, s.x, s.y, NULL);
	ck_assert_uint_eq(bad.id, 0);
	ck_assert(irb_failed(s.b));
	tir_says(&s.t,
	         "matmul: a is f32[S,4], b is f32[S,4]: axis 1 of a (4) and axis 0 of b (S) differ [E300]");
	ck_assert_uint_eq(irb_add(s.b, bad, s.y, NULL).id, 0);
	struct ir_value args[2], result;
	irb_repeat_begin(s.b, 2, &bad, 1, args);
	irb_repeat_end(s.b, &bad, 1, &result);
	ck_assert(irb_finish(s.b, &bad, NULL, 0, NULL) == TFMC_INVALID);
	ck_assert_uint_eq(s.t.cx.n_errors, 1);
	ck_assert_uint_eq(s.t.m->funcs.n, 0);
	tir_destroy(&s.t);
}
END_TEST

START_TEST(optional_operands_have_slots)
{
	struct site s;
	setup(&s);
	struct ir_value a = irb_op1(s.b, OP_layer_norm, &s.x, 1, NULL);
	ck_assert(same(a, irb_layer_norm(s.b, s.x, IR_NO_VALUE, IR_NO_VALUE, NULL)));
	ck_assert_uint_eq(ir_def(irb_func(s.b), a)->n_operands, 3);
	finish(&s, a);
	tir_destroy(&s.t);
}
END_TEST

/* Copies every function of `from` into a module like it. */
static struct ir_module *copy_module(struct tir *t, const struct ir_module *from)
{
	struct ir_module *to = ir_module_create_like(from);
	for (size_t i = 0; i < from->funcs.n; i++) {
		const struct ir_func *f = from->funcs.items[i];
		const struct ir_op *last = f->body->ops[f->body->n_ops - 1];
		struct ir_value *map = ARENA_ARRAY(&to->arena, struct ir_value, f->n_values);
		struct ir_value results[8];
		struct ir_builder *b = irb_begin(to, &t->cx, f->name, f->loc);
		irb_clone_params(b, f, map);
		for (size_t k = 0; k + 1 < f->body->n_ops; k++)
			irb_clone(b, f, f->body->ops[k], map);
		for (size_t k = 0; k < last->n_operands; k++)
			results[k] = map[last->operands[k].id];
		const struct ir_dim *arena = ir_import_dim(to, f->arena);
		ck_assert_msg(irb_finish(b, results, f->results, last->n_operands, arena) == TFMC_OK, "%s",
		              t->log.data);
	}
	return to;
}

static const char cloned[] =
        "module \"m\" stage=plan\n"
        "dim B in [1,8]\n"
        "dim S in [1,16]\n"
        "weight @g : f32[2,8] = stack(i in 0..2, tensor \"m.safetensors\":\"{i}.g\" f32[8])\n"
        "weight @w : f32[2,8,8] #panel16 = full(0.5, [2,8,8])\n"
        "state @kv : f32[B,2,2,16,4] #row\n"
        "\n"
        "func @f(%x: f32[B,S,8], %past: i32[B] {role=past max=16}, %kv: state @kv) -> (y: f32[B,S,8], state "
        "@kv)"
        " arena=256*B*S loc(#loc3) {\n"
        "  %y, %k = repeat %l = 0 to 2 carry (%h = %x, %c = %kv) {\n"
        "    %t = group linear {mr=14 nr=32} {\n"
        "      pre  %n = layer_norm %h, @g[%l] {eps=0.001} : f32[B,S,8]\n"
        "      root %p = linear %n, @w[%l] #panel16 : f32[B,S,8]\n"
        "      post %1 = relu %p : f32[B,S,8]\n"
        "      yield %1\n"
        "    } at [-1] : f32[B,S,8] loc(#loc7)\n"
        "    %r = reshape %t {dims=[B,S,2,4]} : f32[B,S,2,4]\n"
        "    %q = transpose %r {perm=[0,2,1,3]} : f32[B,2,S,4]\n"
        "    %s, %c1 = group loops {\n"
        "      root %s.1, %c2 = state_append %c, %q, %past, %l : f32[B,2,16,4], state @kv\n"
        "      yield %s.1, %c2\n"
        "    } at [-1, 64*B] : f32[B,2,16,4], state @kv\n"
        "    yield %t, %c1\n"
        "  } : f32[B,S,8], state @kv loc(#loc)\n"
        "  return %y, %k\n"
        "}\n"
        "\n"
        "#loc3 = loc(\"model.yaml\":3:1)\n"
        "#loc7 = loc(\"model.yaml\":7:3 \"layers.ffn\")\n"
        "#loc = loc(\"layers\")\n";

START_TEST(copies_are_equal)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, cloned);
	/* Values without name are numbered anew. */
	struct buf first, second;
	buf_init(&first);
	buf_init(&second);
	ir_print(&first, &t.cx, t.m);
	struct ir_module *to = copy_module(&t, t.m);
	ck_assert_msg(ir_verify(to, &t.cx) == TFMC_OK, "%s", t.log.data);
	ir_module_destroy(t.m);
	t.m = to;
	to = copy_module(&t, t.m);
	ir_module_destroy(t.m);
	t.m = to;
	ir_print(&second, &t.cx, t.m);
	ck_assert_uint_eq(t.m->weights.n, 2);
	/* Weights come in order of use. */
	ck_assert_str_eq(second.data, first.data);
	buf_destroy(&first);
	buf_destroy(&second);
	tir_destroy(&t);
}
END_TEST

START_TEST(weights_have_one_meaning)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, "weight @w : f32[2] = full(1.0, [2])\n");
	struct ir_weight w = *ir_find_weight(t.m, "w");
	ck_assert_ptr_eq(ir_add_weight(t.m, &w), ir_find_weight(t.m, "w"));
	w.init = NULL;
	ck_assert_ptr_null(ir_add_weight(t.m, &w));
	w.name = "w2";
	ck_assert_ptr_nonnull(ir_add_weight(t.m, &w));
	ck_assert_uint_eq(t.m->weights.n, 2);
	tir_destroy(&t);
}
END_TEST

START_TEST(nesting_is_limited)
{
	struct site s;
	setup(&s);
	struct ir_value args[1];
	for (int i = 0; i < 40; i++)
		irb_repeat_begin(s.b, 1, NULL, 0, args);
	ck_assert(irb_failed(s.b));
	tir_says(&s.t, "nested deeper");
	tir_destroy(&s.t);
}
END_TEST

START_TEST(uses_are_counted)
{
	struct tir t;
	struct arena a;
	tir_init(&t);
	arena_init(&a);
	tir_load(&t, "func @f(%x: f32[2]) -> (f32[2]) {\n"
	             "  %y = repeat %l = 0 to 2 carry (%c = %x) {\n"
	             "    %z = add %c, %x : f32[2]\n"
	             "    yield %z\n"
	             "  } : f32[2]\n"
	             "  return %y\n"
	             "}\n");
	const struct ir_func *f = ir_find_func(t.m, "f");
	const uint32_t *uses = ir_count_uses(&a, f);
	ck_assert_uint_eq(uses[f->params[0].value.id], 2);
	ck_assert_uint_eq(uses[f->body->ops[0]->results[0].id], 1);
	ck_assert_uint_eq(uses[f->body->ops[0]->region->args[REPEAT_INDEX].id], 0);
	arena_destroy(&a);
	tir_destroy(&t);
}
END_TEST

Suite *suite_ir_build(void)
{
	Suite *s = suite_create("ir_build");
	TCase *c = tcase_create("builder");
	tcase_add_test(c, folds_arithmetic);
	tcase_add_test(c, folds_views);
	tcase_add_test(c, folds_values_of_dims);
	tcase_add_test(c, merges_equal_ops);
	tcase_add_test(c, failure_is_sticky);
	tcase_add_test(c, optional_operands_have_slots);
	tcase_add_test(c, copies_are_equal);
	tcase_add_test(c, weights_have_one_meaning);
	tcase_add_test(c, nesting_is_limited);
	tcase_add_test(c, uses_are_counted);
	suite_add_tcase(s, c);
	return s;
}
