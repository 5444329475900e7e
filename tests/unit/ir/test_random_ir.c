/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The random generator, and with it the laws that need many modules: they
 * verify, run, print and read back to the same text and the same results; a
 * seed gives the same module; programs reach every op and stay finite.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "tests/support/random/random_ir.h"

#define OP_SEEDS      30
#define PROGRAM_SEEDS 300
#define PROGRAM_PARTS 10

struct fixture {
	struct diag_context cx;
	struct buf messages;
	struct arena arena;
};

static struct fixture fx;

static void setup(void)
{
	buf_init(&fx.messages);
	diag_init(&fx.cx, diag_render_text, &fx.messages);
	arena_init(&fx.arena);
}

static void teardown(void)
{
	arena_destroy(&fx.arena);
	diag_destroy(&fx.cx);
	buf_destroy(&fx.messages);
}

static struct random_call run(struct ir_module *m, uint64_t seed)
{
	struct random_call call;
	const struct ir_func *f = ir_find_func(m, "f");
	ck_assert_ptr_nonnull(f);
	ck_assert(random_call_make(&fx.arena, m, f, seed, &call));
	ck_assert_msg(random_call_run(&fx.cx, m, f, &fx.arena, &call) == TFMC_OK, "%s", fx.messages.data);
	return call;
}

/* print(parse(print(m))) == print(m), and both modules compute the same bits. */
static void check_module(struct ir_module *m, uint64_t seed)
{
	struct buf first, second;
	struct ir_module *again;
	ck_assert_msg(m != NULL, "%s", fx.messages.data);
	ck_assert_msg(ir_verify(m, &fx.cx) == TFMC_OK, "%s", fx.messages.data);
	buf_init(&first);
	buf_init(&second);
	ir_print(&first, &fx.cx, m);
	ck_assert_msg(ir_parse(&fx.cx, "random.tir", first.data, first.len, &again) == TFMC_OK, "%s\n%s",
	              fx.messages.data, first.data);
	ir_print(&second, &fx.cx, again);
	ck_assert_str_eq(second.data, first.data);
	struct random_call a = run(m, seed), b = run(again, seed);
	ck_assert_uint_eq(a.n_outputs, b.n_outputs);
	for (size_t i = 0; i < a.n_outputs; i++) {
		const char *why = random_compare(&fx.arena, &b.outputs[i], &a.outputs[i], 0);
		ck_assert_msg(!why, "%s\n%s", why, first.data);
	}
	ir_module_destroy(again);
	buf_destroy(&first);
	buf_destroy(&second);
}

START_TEST(makes_every_op)
{
	enum ir_opcode code = (enum ir_opcode)_i;
	for (uint64_t seed = 0; seed < OP_SEEDS; seed++) {
		struct random_options options = {.all_dtypes = seed % 3 == 2, .constant_dims = seed % 4 == 3};
		struct ir_module *m = random_module_for_op(&fx.cx, code, seed, &options);
		if (code == OP_group || code == OP_yield || code == OP_return ||
		    ir_op_has(code, TRAIT_EXCHANGE)) {
			ck_assert_ptr_null(m);
			continue;
		}
		check_module(m, seed);
		ir_module_destroy(m);
	}
}
END_TEST

START_TEST(makes_programs)
{
	struct arena_mark mark = arena_mark(&fx.arena);
	for (uint64_t seed = (uint64_t)_i; seed < PROGRAM_SEEDS; seed += PROGRAM_PARTS) {
		struct random_options options = {.all_dtypes = seed % 5 == 4, .smooth = seed % 2 == 0};
		struct ir_module *m = random_module(&fx.cx, seed, &options);
		check_module(m, seed);
		ir_module_destroy(m);
		arena_release(&fx.arena, mark);
	}
}
END_TEST

/* The module built again, now with folding and merging. */
static struct ir_module *rebuild(const struct ir_module *m)
{
	const struct ir_func *f = ir_find_func(m, "f");
	struct ir_module *to = ir_module_create_like(m);
	struct ir_builder *b = irb_begin(to, &fx.cx, "f", (struct ir_loc){0});
	struct ir_value *map = ARENA_ARRAY(&fx.arena, struct ir_value, f->n_values), results[8];
	irb_clone_params(b, f, map);
	for (size_t i = 0; i + 1 < f->body->n_ops; i++)
		irb_clone(b, f, f->body->ops[i], map);
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < ret->n_operands; i++)
		results[i] = map[ret->operands[i].id];
	ck_assert_msg(irb_finish(b, results, f->results, f->n_results, NULL) == TFMC_OK, "%s",
	              fx.messages.data);
	return to;
}

START_TEST(folding_keeps_every_bit)
{
	struct arena_mark mark = arena_mark(&fx.arena);
	for (uint64_t seed = (uint64_t)_i; seed < PROGRAM_SEEDS; seed += PROGRAM_PARTS) {
		struct random_options options = {.all_dtypes = seed % 5 == 4};
		struct ir_module *m = random_module(&fx.cx, seed, &options), *folded = rebuild(m);
		ck_assert_msg(ir_verify(folded, &fx.cx) == TFMC_OK, "%s", fx.messages.data);
		struct random_call a = run(m, seed), b = run(folded, seed);
		for (size_t i = 0; i < a.n_outputs; i++) {
			const char *why = random_compare(&fx.arena, &b.outputs[i], &a.outputs[i], 0);
			ck_assert_msg(!why, "seed %d: %s", (int)seed, why);
		}
		ir_module_destroy(m);
		ir_module_destroy(folded);
		arena_release(&fx.arena, mark);
	}
}
END_TEST

static void count_op(void *user, const struct ir_op *op)
{
	int *count = user;
	count[op->code]++;
}

static bool has_nan(const struct interp_tensor *t)
{
	for (int64_t i = 0; i < interp_count(t); i++)
		if (isnan(t->data[i]))
			return true;
	return false;
}

START_TEST(reaches_every_op_and_stays_finite)
{
	int count[IR_N_OPS] = {0}, with_nan = 0;
	struct arena_mark mark = arena_mark(&fx.arena);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct ir_module *m = random_module(&fx.cx, seed, NULL);
		ck_assert_ptr_nonnull(m);
		ir_visit_ops(ir_find_func(m, "f")->body, count_op, count);
		struct random_call call = run(m, seed);
		for (size_t i = 0; i < call.n_outputs; i++)
			with_nan += has_nan(&call.outputs[i]);
		ir_module_destroy(m);
		arena_release(&fx.arena, mark);
	}
	for (int i = 0; i < IR_N_OPS; i++) {
		bool made = i != OP_group && !ir_op_has((enum ir_opcode)i, TRAIT_EXCHANGE) &&
		            !ir_op_has((enum ir_opcode)i, TRAIT_STATEFUL);
		ck_assert_msg(!made || count[i] > 0, "no program has %s",
		              ir_op_desc((enum ir_opcode)i)->name);
	}
	ck_assert_int_eq(with_nan, 0);
}
END_TEST

START_TEST(repeats_with_the_seed)
{
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct buf text[3];
		for (int i = 0; i < 3; i++) {
			struct ir_module *m = random_module(&fx.cx, i == 2 ? seed + 1 : seed, NULL);
			buf_init(&text[i]);
			ir_print(&text[i], &fx.cx, m);
			ir_module_destroy(m);
		}
		ck_assert_str_eq(text[0].data, text[1].data);
		ck_assert_str_ne(text[0].data, text[2].data);
		for (int i = 0; i < 3; i++)
			buf_destroy(&text[i]);
	}
}
END_TEST

START_TEST(compares_tensors)
{
	double x[] = {1, 100, NAN}, y[] = {1, 100.05, NAN}, z[] = {1, 100, 3};
	struct interp_tensor a = {.dtype = DT_F32, .rank = 1, .dims = {3}, .data = x}, b = a, c = a;
	b.data = y;
	c.data = z;
	ck_assert_ptr_null(random_compare(&fx.arena, &a, &a, 0));
	ck_assert_ptr_null(random_compare(&fx.arena, &b, &a, 1e-3));
	ck_assert_ptr_nonnull(strstr(random_compare(&fx.arena, &b, &a, 1e-4), "element 1"));
	ck_assert_ptr_nonnull(strstr(random_compare(&fx.arena, &c, &a, 1), "element 2"));
	c.dims[0] = 2;
	ck_assert_ptr_nonnull(strstr(random_compare(&fx.arena, &c, &a, 1), "axis 0 is 2, expected 3"));
}
END_TEST

Suite *suite_random_ir(void)
{
	Suite *s = suite_create("random_ir");
	TCase *t = tcase_create("all");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, makes_every_op, 0, IR_N_OPS);
	tcase_add_loop_test(t, makes_programs, 0, PROGRAM_PARTS);
	tcase_add_loop_test(t, folding_keeps_every_bit, 0, PROGRAM_PARTS);
	tcase_add_test(t, reaches_every_op_and_stays_finite);
	tcase_add_test(t, repeats_with_the_seed);
	tcase_add_test(t, compares_tensors);
	suite_add_tcase(s, t);
	return s;
}
