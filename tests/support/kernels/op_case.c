/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One op on literal tensors; see op_case.h. The builder is literal, so the op
 * itself runs and not what folding makes of it.
 */
#include "tests/support/kernels/op_case.h"

#include <check.h>
#include <math.h>

#include "ir/core/verify.h"

#define OPERANDS_MAX 9

void op_case_begin(struct op_case *c)
{
	buf_init(&c->messages);
	diag_init(&c->cx, diag_render_text, &c->messages);
	arena_init(&c->arena);
	c->m = ir_module_create("case");
	ck_assert_ptr_nonnull(c->m);
}

void op_case_end(struct op_case *c)
{
	ir_module_destroy(c->m);
	arena_destroy(&c->arena);
	diag_destroy(&c->cx);
	buf_destroy(&c->messages);
}

struct ir_dim_list op_case_dims(struct op_case *c, size_t n, const int64_t *dims)
{
	struct ir_dim_list list = {ARENA_ARRAY(&c->m->arena, const struct ir_dim *, n + 1), n};
	for (size_t i = 0; i < n; i++)
		list.items[i] = ir_dim_const(c->m->dims, dims[i]);
	return list;
}

static struct interp_tensor tensor_of(struct op_case *c, const struct literal *l)
{
	struct interp_tensor t = {.dtype = l->dtype, .rank = l->rank};
	for (int i = 0; i < l->rank; i++)
		t.dims[i] = l->dims[i];
	ck_assert_int_eq(interp_count(&t), (int64_t)l->n_values);
	t.data = ARENA_ARRAY(&c->arena, double, l->n_values + 1);
	for (size_t i = 0; i < l->n_values; i++)
		t.data[i] = l->values[i];
	return t;
}

static struct ir_value add_param(struct op_case *c, struct ir_builder *b, size_t i, const struct literal *l)
{
	struct ir_dim_list dims = op_case_dims(c, (size_t)l->rank, l->dims);
	const struct ir_type *type = ir_type_tensor(c->m->types, l->dtype, l->rank, dims.items);
	struct ir_param p = {.name = arena_printf(&c->m->arena, "p%zu", i), .lengths = -1};
	return irb_param(b, &p, type);
}

enum tfmc_status op_case_try(struct op_case *c, enum ir_opcode code, const void *attrs,
                             const struct literal *in, size_t n_in)
{
	struct ir_value operands[OPERANDS_MAX] = {{0}};
	struct interp_tensor inputs[OPERANDS_MAX];
	size_t n_inputs = 0;
	struct ir_builder *b = irb_begin(c->m, &c->cx, "f", (struct ir_loc){0});
	irb_set_literal(b, true);
	ck_assert_uint_le(n_in, OPERANDS_MAX);
	for (size_t i = 0; i < n_in; i++) {
		if (in[i].rank < 0)
			continue;
		operands[i] = add_param(c, b, i, &in[i]);
		inputs[n_inputs++] = tensor_of(c, &in[i]);
	}
	struct ir_value result = irb_op1(b, code, operands, n_in, attrs);
	const struct ir_result name = {.name = "y", .lengths = -1};
	TFMC_TRY(irb_finish(b, &result, &name, 1, NULL));
	TFMC_TRY(ir_verify(c->m, &c->cx));
	struct interp_args args = {.inputs = inputs, .outputs = &c->out, .arena = &c->arena};
	return interp_run(&c->cx, c->m, ir_find_func(c->m, "f"), &args);
}

void op_case_run(struct op_case *c, enum ir_opcode code, const void *attrs, const struct literal *in,
                 size_t n_in)
{
	enum tfmc_status st = op_case_try(c, code, attrs, in, n_in);
	ck_assert_msg(st == TFMC_OK, "%s: %s", ir_op_desc(code)->name, c->messages.data);
}

static bool same(double have, double want)
{
	if (isnan(want) || isinf(want))
		return isnan(want) ? isnan(have) : have == want;
	return fabs(have - want) <= 1e-6 * fmax(1, fabs(want));
}

void op_case_expect(const struct op_case *c, struct literal want)
{
	ck_assert_str_eq(ir_dtype_name(c->out.dtype), ir_dtype_name(want.dtype));
	ck_assert_int_eq(c->out.rank, want.rank);
	for (int i = 0; i < want.rank; i++)
		ck_assert_int_eq(c->out.dims[i], want.dims[i]);
	for (size_t i = 0; i < want.n_values; i++)
		ck_assert_msg(same(c->out.data[i], want.values[i]), "element %zu is %.9g, expected %.9g", i,
		              c->out.data[i], want.values[i]);
}

void op_case_check(enum ir_opcode code, const void *attrs, const struct literal *in, size_t n_in,
                   struct literal want)
{
	struct op_case c;
	op_case_begin(&c);
	op_case_run(&c, code, attrs, in, n_in);
	op_case_expect(&c, want);
	op_case_end(&c);
}
