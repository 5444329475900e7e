/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers for tests of the IR, see tir.h. Failures of expectations fail the
 * running Check test.
 */
#include "tests/support/tir.h"

#include <check.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"

void tir_init(struct tir *t)
{
	*t = (struct tir){.m = NULL};
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
}

void tir_destroy(struct tir *t)
{
	ir_module_destroy(t->m);
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
}

enum tfmc_status tir_parse(struct tir *t, const char *text)
{
	ir_module_destroy(t->m);
	return ir_parse(&t->cx, "test.tir", text, strlen(text), &t->m);
}

void tir_load(struct tir *t, const char *text)
{
	enum tfmc_status parsed = tir_parse(t, text);
	ck_assert_msg(parsed == TFMC_OK, "not read:\n%s", t->log.data);
	enum tfmc_status verified = ir_verify(t->m, &t->cx);
	ck_assert_msg(verified == TFMC_OK, "not verified:\n%s", t->log.data);
}

void tir_expect(const struct tir *t, const char *text)
{
	struct buf out;
	buf_init(&out);
	ir_print(&out, &t->cx, t->m);
	ck_assert_str_eq(out.data, text);
	buf_destroy(&out);
}

void tir_says(const struct tir *t, const char *words)
{
	ck_assert_msg(strstr(t->log.data, words) != NULL, "expected '%s' in:\n%s", words, t->log.data);
}

const char *tir_text(struct arena *a, const struct diag_context *cx, const struct ir_module *m)
{
	struct buf out;
	buf_init(&out);
	ir_print(&out, cx, m);
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

const struct ir_func *tir_add_case(struct diag_context *cx, struct ir_module *m, const struct ir_func *f,
                                   const char *name, const struct ir_case *c)
{
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	struct arena a;
	arena_init(&a);
	struct ir_value *map = ARENA_ARRAY(&a, struct ir_value, f->n_values);
	struct ir_value *values = ARENA_ARRAY(&a, struct ir_value, ret->n_operands + 1);
	struct ir_builder *b = irb_begin(m, cx, name, f->loc);
	irb_case(b, c);
	irb_clone_params(b, f, map);
	for (size_t i = 0; i + 1 < f->body->n_ops; i++)
		irb_clone(b, f, f->body->ops[i], map);
	for (size_t i = 0; i < ret->n_operands; i++)
		values[i] = map[ret->operands[i].id];
	ck_assert_int_eq(irb_finish(b, values, f->results, ret->n_operands, NULL), TFMC_OK);
	arena_destroy(&a);
	ck_assert_int_eq(ir_verify(m, cx), TFMC_OK);
	return ir_find_func(m, name);
}
