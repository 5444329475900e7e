/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random Transformers made smaller while they hold one op: little else is left,
 * everything that was kept verifies and reads back, and the input is not
 * touched.
 */
#include <check.h>
#include <string.h>

#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/pipeline/reduce.h"
#include "tests/support/random/random_transformer.h"
#include "tests/support/tir.h"

#define OPS_MAX 12 /* of what is left around one op */

Suite *suite_reduce(void);

struct want {
	enum ir_opcode code;
	struct diag_context *cx;
	size_t ops, found;
};

static void count(void *user, const struct ir_op *op)
{
	struct want *w = user;
	w->ops++;
	w->found += op->code == w->code;
}

static bool holds(void *user, const struct ir_module *m)
{
	struct want *w = user;
	w->ops = w->found = 0;
	for (size_t i = 0; i < m->funcs.n; i++)
		ir_visit_ops(m->funcs.items[i]->body, count, w);
	return w->found > 0;
}

static void reads_back(struct tir *t, const struct ir_module *m)
{
	struct arena a;
	struct ir_module *again = NULL;
	arena_init(&a);
	const char *text = tir_text(&a, &t->cx, m);
	ck_assert_msg(ir_parse(&t->cx, "again.tir", text, strlen(text), &again) == TFMC_OK, "%s\n%s",
	              t->log.data, text);
	ck_assert_int_eq(ir_verify(again, &t->cx), TFMC_OK);
	ck_assert_str_eq(tir_text(&a, &t->cx, again), text);
	ir_module_destroy(again);
	arena_destroy(&a);
}

static size_t state_params(const struct ir_func *f)
{
	size_t n = 0;
	for (size_t i = 0; i < f->n_params; i++)
		n += ir_type_of(f, f->params[i].value)->kind == IR_STATE;
	return n;
}

static void reduce_to(struct tir *t, enum ir_opcode code)
{
	struct want w = {.code = code, .cx = &t->cx};
	struct reduce_report report;
	struct ir_module *small = NULL;
	if (!holds(&w, t->m))
		return;
	ck_assert_int_eq(module_reduce(t->m, holds, &w, &small, &report), TFMC_OK);
	ck_assert(holds(&w, small));
	ck_assert_msg(w.ops <= OPS_MAX, "%zu ops are left, %zu of %zu changes", w.ops, report.kept,
	              report.tried);
	ck_assert_uint_eq(small->funcs.n, 1);
	ck_assert_uint_le(small->states.n, state_params(small->funcs.items[0]));
	reads_back(t, small);
	ir_module_destroy(small);
}

START_TEST(random_transformers)
{
	static const enum ir_opcode codes[] = {OP_attention, OP_linear, OP_state_append, OP_repeat, OP_rope};
	struct buf text;
	struct tir t;
	buf_init(&text);
	tir_init(&t);
	random_transformer(&text, (uint64_t)_i + 1, true);
	tir_load(&t, text.data);
	for (size_t i = 0; i < TFMC_COUNT(codes); i++)
		reduce_to(&t, codes[i]);
	tir_destroy(&t);
	buf_destroy(&text);
}
END_TEST

START_TEST(edits_that_do_not_apply)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, "module \"t\"\ndim S in [1,4]\nfunc @f(%x: f32[S], %n: i32[S]) -> (y: f32[S]) {\n"
	             "  %a = exp %x : f32[S]\n  return %a\n}\n");
	const struct reduce_edit no[] = {{REDUCE_RESULT, 0, 0, 0},  {REDUCE_PARAM, 0, 0, 0},
	                                 {REDUCE_COUNT, 0, 0, 0},   {REDUCE_OPEN, 0, 0, 0},
	                                 {REDUCE_OPERAND, 0, 0, 1}, {REDUCE_INPUT, 0, 1, 0},
	                                 {REDUCE_ONES, 0, 7, 0},    {REDUCE_BOUND, 0, 0, 0}};
	for (size_t i = 0; i < TFMC_COUNT(no); i++)
		ck_assert_msg(reduce_apply(t.m, &no[i]) == NULL, "edit %zu", i);
	struct ir_module *m = reduce_apply(t.m, &(struct reduce_edit){REDUCE_PARAM, 0, 1, 0});
	ck_assert(m != NULL && m->funcs.items[0]->n_params == 1);
	ir_module_destroy(m);
	tir_destroy(&t);
}
END_TEST

Suite *suite_reduce(void)
{
	Suite *s = suite_create("reduce");
	TCase *t = tcase_create("reduce");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, random_transformers, 0, 30);
	tcase_add_test(t, edits_that_do_not_apply);
	suite_add_tcase(s, t);
	return s;
}
