/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier: every rule of verify.h is broken once, by text that reads well
 * or by damage to a good module.
 */
#include <check.h>
#include <limits.h>

#include "ir/core/verify.h"
#include "tests/support/tir.h"

Suite *suite_ir_verify(void);

struct rule {
	const char *text;
	const char *says;
};

#define DIMS "dim B in [1,8]\ndim S in [1,16]\n"
#define BASE "func @f(%x: f32[B,S]) -> (f32[B,S]) {\n  return %x\n}\n"
#define STEP "func @g(%x: f32[B,1]) -> (f32[B,1]) case of @f when S = 1 {\n  return %x\n}\n"
#define KV   "state @kv : f32[B,2,16,4] #row\n"

static const struct rule rules[] = {
        {DIMS "weight @w : f32[S]\n", "the weight @w is f32[S]: weights have constant dims"},
        {DIMS "weight @w : f32[2,3] = full(0.0, [3,2])\n",
         "the weight @w is f32[2,3], its expression has the shape [3,2]"},
        {DIMS "weight @w : f32[2] #panel16\n", "panels need two axes"},
        {DIMS "state @s : f32[2,B] #row\n", "the state @s is f32[2,B]: its axis 0 must be a batch dim"},
        {DIMS "func @f(%x: f32[B] {below=3}) -> () {\n  return\n}\n",
         "'x' is f32[B]: only i32 has checked values"},
        {DIMS "func @f(%x: f32[B] {role=past}) -> () {\n  return\n}\n",
         "the past length 'x' is f32[B], not i32[B]"},
        {DIMS "func @f(%x: f32[B,S] {lengths=%x}) -> () {\n  return\n}\n", "the lengths of 'x' are not"},
        {DIMS "func @f(%x: bool[B] {default=S}) -> () {\n  return\n}\n",
         "'x' is bool[B], which cannot be filled with its default"},
        {DIMS "func @f(%x: bool[B] {fill=0.5}) -> () {\n  return\n}\n", "cannot be filled with its default"},
        {DIMS "func @f(%x: i32[B] {fill=1.0}) -> () {\n  return\n}\n", "cannot be filled with its default"},
        {DIMS KV "func @f(%s: state @kv, %x: f32[B]) -> (state @kv) {\n  return %s\n}\n",
         "the parameter 'x' comes after a state"},
        {DIMS KV "func @f(%s: state @kv, %t: state @kv) -> (state @kv, state @kv) {\n  return %s, %t\n}\n",
         "two parameters for states are named 'kv'"},
        {DIMS "func @f(%x: f32[B]) -> (a: f32[B], a: f32[B]) {\n  return %x, %x\n}\n",
         "two results are named 'a'"},
        {DIMS KV "func @f(%s: state @kv) -> () {\n  return\n}\n", "the state %s is used 0 times"},
        {DIMS KV "func @f(%s: state @kv) -> (state @kv, state @kv) {\n  return %s, %s\n}\n",
         "the state %s is used 2 times"},
        {DIMS KV "func @f(%s: state @kv) -> () {\n"
                 "  repeat %l = 0 to 2 carry () {\n"
                 "    %a, %t = state_read %s : f32[B,2,16,4], state @kv\n"
                 "    %b, %u = state_read %t : f32[B,2,16,4], state @kv\n"
                 "    yield\n"
                 "  }\n"
                 "  return\n"
                 "}\n",
         "state_read uses the state %s of an enclosing region: carry it"},
        {DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
              "  %y = group loops {\n"
              "    root %a = relu %x : f32[B]\n"
              "    yield %a\n"
              "  } : f32[B]\n"
              "  return %y\n"
              "}\n",
         "in @f: a group in the stage graph"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = relu %x : f32[B]\n"
         "  return %y\n"
         "}\n",
         "test.tir:5:3: error: in @f: relu outside of a group in the stage groups [E603]"},
        {"module \"m\" stage=plan\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) arena=64 {\n"
         "  %y = group loops {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } at [32*B] : f32[B]\n"
         "  return %y\n"
         "}\n",
         "offset 0 of a group is neither a multiple of 64 nor -1"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {lanes=-8} {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "lanes=-8 of a group: it may be 0 to 2^32"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {scratch=4294967297} {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "scratch=4294967297 of a group: it may be 0 to 2^32"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {split=5000} {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "split=5000 of a group: it may be up to 4096"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {pad=16} {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "pad=16: it may be up to 1024, in a group whose one result has rows of a constant length"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B,8]) -> (f32[B,8]) {\n"
         "  %y = group loops {pad=16} {\n"
         "    root %a = relu %x : f32[B,8]\n"
         "    yield %a\n"
         "  } : f32[B,8]\n"
         "  return %y\n"
         "}\n",
         "return of a value with padded rows (pad)"},
        {"module \"m\" stage=plan\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) arena=64 {\n"
         "  %y = group loops {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "a group has 1 results and 0 offsets"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {\n"
         "    root %a = relu %x : f32[B]\n"
         "    yield %a\n"
         "  } at [0] : f32[B]\n"
         "  return %y\n"
         "}\n",
         "a group has offsets before the stage plan"},
        {"module \"m\" stage=plan\nfunc @f() -> () {\n  return\n}\n", "no arena in the stage plan"},
        {"module \"m\" stage=groups\n" DIMS "func @f(%x: f32[B]) -> (f32[B]) {\n"
         "  %y = group loops {\n"
         "    root %a = repeat %l = 0 to 2 carry (%c = %x) {\n"
         "      yield %c\n"
         "    } : f32[B]\n"
         "    yield %a\n"
         "  } : f32[B]\n"
         "  return %y\n"
         "}\n",
         "repeat inside a group"},
        {DIMS BASE "func @g(%x: f32[B,1]) -> (f32[B,1]) case of @h when S = 1 {\n  return %x\n}\n",
         "test.tir:6:6: error: in @g: a case of @h, which does not exist"},
        {DIMS BASE STEP "func @i(%x: f32[B,1]) -> (f32[B,1]) case of @g when S = 1 {\n  return %x\n}\n",
         "in @i: a case of @g, which is a case itself"},
        {DIMS BASE "func @g(%x: f32[B,0]) -> (f32[B,0]) case of @f when S = 0 {\n  return %x\n}\n",
         "in @g: the condition S = 0 never holds: it is in [1,16]"},
        {DIMS BASE "func @g(%x: f32[B,S]) -> (f32[B,S]) case of @f when B*S <= 0 {\n  return %x\n}\n",
         "in @g: the condition B*S <= 0 never holds: it is in [1,128]"},
        {DIMS BASE "func @g(%x: f32[B,S]) -> (f32[B,S]) case of @f when B*S = 4 {\n  return %x\n}\n",
         "in @g: the condition B*S = 4: only a symbol can be bound"},
        {DIMS BASE "func @g(%x: f32[B,1]) -> (f32[B,1]) case of @f when S = 1, B*S <= 4 {\n  return %x\n}\n",
         "in @g: the condition on B*S: S is bound by another one"},
        {DIMS BASE "func @g(%x: f32[B,1]) -> (f32[B,1]) case of @f when S = 1, S = 2 {\n  return %x\n}\n",
         "in @g: the condition on S: S is bound by another one"},
        {DIMS "dim T in [1,2]\n" BASE
              "func @g(%x: f32[B,S]) -> (f32[B,S]) case of @f when T = 1 {\n  return %x\n}\n",
         "in @g: the condition on T: @f has no dim T"},
        {DIMS BASE "func @g(%x: f32[B,S]) -> (f32[B,S]) case of @f when S = 1 {\n  return %x\n}\n",
         "in @g: S is bound by this case, but occurs in it"},
        {DIMS BASE "func @g(%x: f32[1,B]) -> (f32[1,B]) case of @f when S = 1 {\n  return %x\n}\n",
         "test.tir:6:9: error: in @g: the parameter 'x' is not that of its base @f"},
        {DIMS BASE "func @g(%y: f32[B,1]) -> (f32[B,1]) case of @f when S = 1 {\n  return %y\n}\n",
         "in @g: the parameter 'y' is not that of its base @f"},
        {DIMS BASE "func @g() -> () case of @f when S = 1 {\n  return\n}\n",
         "in @g: 0 parameters, its base @f has 1"},
        {DIMS BASE "func @g(%x: f32[B,1]) -> (y: f32[B,1]) case of @f when S = 1 {\n  return %x\n}\n",
         "in @g: the results are not those of its base @f"},
        {DIMS BASE STEP "func @i(%x: f32[B,1]) -> (f32[B,1]) case of @f when S = 1 {\n  return %x\n}\n",
         "in @i: this case is never taken: @g has the same conditions"},
        {DIMS KV "func @f(%s: state @kv) -> (state @kv) {\n  return %s\n}\n"
                 "func @g(%s: state @kv) -> (state @kv) case of @f when B = 1 {\n  return %s\n}\n",
         "in @g: B is bound by this case, but occurs in it"},
};

START_TEST(broken_rules)
{
	struct tir t;
	tir_init(&t);
	enum tfmc_status parsed = tir_parse(&t, rules[_i].text);
	ck_assert_msg(parsed == TFMC_OK, "%s", t.log.data);
	ck_assert(ir_verify(t.m, &t.cx) == TFMC_INVALID);
	tir_says(&t, rules[_i].says);
	tir_destroy(&t);
}
END_TEST

/* ---- damage: the body of @f is %y = relu %x %z = add %y, %x return %z ---- */

static void load_sound(struct tir *t)
{
	tir_init(t);
	tir_load(t, DIMS "weight @w : f32[2]\n"
	                 "func @f(%x: f32[S]) -> (z: f32[S]) {\n"
	                 "  %y = relu %x : f32[S]\n"
	                 "  %z = add %y, %x : f32[S]\n"
	                 "  return %z\n"
	                 "}\n");
}

static void finds(struct tir *t, const char *words)
{
	ck_assert(ir_verify(t->m, &t->cx) == TFMC_INVALID);
	tir_says(t, words);
	tir_destroy(t);
}

START_TEST(uses_before_definition)
{
	struct tir t;
	load_sound(&t);
	struct ir_region *r = t.m->funcs.items[0]->body;
	struct ir_op *first = r->ops[0];
	r->ops[0] = r->ops[1];
	r->ops[1] = first;
	finds(&t, "operand 0 of add (%y) is not defined before it, or not visible");
}
END_TEST

START_TEST(wrong_types)
{
	struct tir t;
	load_sound(&t);
	struct ir_func *f = t.m->funcs.items[0];
	const struct ir_dim *two = ir_dim_const(t.m->dims, 2);
	f->values[f->body->ops[0]->results[0].id].type = ir_type_tensor(t.m->types, DT_F32, 1, &two);
	finds(&t, "result 0 of relu is f32[2], it should be f32[S]");
}
END_TEST

START_TEST(missing_terminator)
{
	struct tir t;
	load_sound(&t);
	t.m->funcs.items[0]->body->n_ops = 2;
	finds(&t, "a region does not end in its only 'return'");
}
END_TEST

START_TEST(no_such_value)
{
	struct tir t;
	load_sound(&t);
	struct ir_op *op = t.m->funcs.items[0]->body->ops[1];
	struct ir_value operands[2] = {{0}, op->operands[1]};
	op->operands = operands;
	finds(&t, "operand 0 of add is no value");
}
END_TEST

START_TEST(wrong_results)
{
	struct tir t;
	load_sound(&t);
	t.m->funcs.items[0]->n_results = 0;
	finds(&t, "0 results are declared, 1 are returned");
}
END_TEST

START_TEST(twice_the_same_weight)
{
	struct tir t;
	load_sound(&t);
	struct ir_weight **slot = ARENA_PUSH(&t.m->arena, &t.m->weights);
	*slot = t.m->weights.items[0];
	finds(&t, "two weights are named 'w'");
}
END_TEST

START_TEST(wrong_record)
{
	struct tir t;
	load_sound(&t);
	struct ir_func *f = t.m->funcs.items[0];
	f->values[f->body->ops[0]->results[0].id].def = f->body->ops[1];
	finds(&t, "the record of %y is wrong");
}
END_TEST

/* Ids beyond the values of the function, and operands, results and parameters that are missing, are reported before
 * anything is read by them. */
static void no_body(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->body = NULL;
}

static void owned_body(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->body->owner = f->body->ops[0];
}

static void change_operand(struct tir *t, struct ir_op *op, size_t i, uint32_t id)
{
	struct ir_value *operands = ARENA_ARRAY(&t->m->arena, struct ir_value, op->n_operands);
	for (size_t k = 0; k < op->n_operands; k++)
		operands[k] = k == i ? (struct ir_value){id} : op->operands[k];
	op->operands = operands;
}

static void change_result(struct tir *t, struct ir_op *op, uint32_t id)
{
	struct ir_value *result = ARENA_NEW(&t->m->arena, struct ir_value);
	*result = (struct ir_value){id};
	op->results = result;
}

static void next_operand(struct tir *t, struct ir_func *f)
{
	change_operand(t, f->body->ops[1], 0, (uint32_t)f->n_values);
}

static void far_operand(struct tir *t, struct ir_func *f)
{
	change_operand(t, f->body->ops[1], 0, UINT32_MAX);
}

static void far_returned(struct tir *t, struct ir_func *f)
{
	change_operand(t, f->body->ops[f->body->n_ops - 1], 0, UINT32_MAX);
}

static void far_result(struct tir *t, struct ir_func *f)
{
	change_result(t, f->body->ops[0], UINT32_MAX);
}

static void far_argument(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->body->args[0].id = UINT32_MAX;
	f->params[0].value.id = UINT32_MAX;
}

static void far_parameter(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->params[0].value.id = UINT32_MAX;
}

static void one_parameter_more(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->n_params++;
}

static void far_lengths(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->params[0].lengths = INT_MAX;
}

static void no_operands(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->body->ops[0]->n_operands = 0;
}

static void no_type(struct tir *t, struct ir_func *f)
{
	(void)t;
	f->values[f->body->ops[0]->results[0].id].type = NULL;
}

static void region_of_another(struct tir *t, struct ir_func *f)
{
	struct ir_op *op = f->body->ops[0];
	op->code = OP_group;
	op->n_operands = 0;
	op->region = f->body;
	t->m->stage = STAGE_GROUPS;
}

static void group_without_region(struct tir *t, struct ir_func *f)
{
	f->body->ops[0]->code = OP_group;
	f->body->ops[0]->n_operands = 0;
	t->m->stage = STAGE_GROUPS;
}

static const struct {
	void (*damage)(struct tir *t, struct ir_func *f);
	const char *says;
} damages[] = {
        {no_body, "the function has no body with its parameters"},
        {owned_body, "the function has no body with its parameters"},
        {next_operand, "operand 0 of add is no value"},
        {far_operand, "operand 0 of add is no value"},
        {far_returned, "operand 0 of return is no value"},
        {far_result, "a value is defined twice or does not exist"},
        {far_argument, "a value is defined twice or does not exist"},
        {far_parameter, "the function has no body with its parameters"},
        {one_parameter_more, "the function has no body with its parameters"},
        {far_lengths, "the lengths of 'x' are not a parameter i32[B]"},
        {no_operands, "relu"},
        {no_type, "the record of %y is wrong"},
        {region_of_another, "group has no region"},
        {group_without_region, "group has no region"},
};

START_TEST(damaged_function)
{
	struct tir t;
	load_sound(&t);
	damages[_i].damage(&t, t.m->funcs.items[0]);
	finds(&t, damages[_i].says);
}
END_TEST

/* A case is not compared with a base whose structure is wrong. */
START_TEST(damaged_base)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, DIMS BASE STEP);
	damages[_i].damage(&t, t.m->funcs.items[0]);
	ck_assert(ir_verify(t.m, &t.cx) == TFMC_INVALID);
	tir_says(&t, "in @f: ");
	tir_destroy(&t);
}
END_TEST

START_TEST(panels_of_other_types)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, DIMS "state @s : i8[B,2,3] #panel16\nfunc @f() -> () {\n  return\n}\n");
	t.m->states.items[0]->type = ir_type_tensor(t.m->types, DT_I16, 3, t.m->states.items[0]->type->dims);
	finds(&t, "the state @s is i16[B,2,3]: only matrices of f32, f16, bf16 and i8 are #panel16");
}
END_TEST

Suite *suite_ir_verify(void)
{
	Suite *s = suite_create("ir_verify");
	TCase *c = tcase_create("verifier");
	tcase_add_loop_test(c, broken_rules, 0, (int)TFMC_COUNT(rules));
	tcase_add_test(c, uses_before_definition);
	tcase_add_test(c, wrong_types);
	tcase_add_test(c, missing_terminator);
	tcase_add_test(c, no_such_value);
	tcase_add_test(c, wrong_results);
	tcase_add_test(c, twice_the_same_weight);
	tcase_add_test(c, wrong_record);
	tcase_add_loop_test(c, damaged_function, 0, (int)TFMC_COUNT(damages));
	tcase_add_loop_test(c, damaged_base, 0, 2);
	tcase_add_test(c, panels_of_other_types);
	suite_add_tcase(s, c);
	return s;
}
