/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of constants, state ops and ops with regions.
 */
#include <check.h>

#include "ir/core/verify.h"
#include "tests/support/interp/interp_checks.h"
#include "tests/support/kernels/op_case.h"

void interp_check_full(void)
{
	struct op_case c;
	op_case_begin(&c);
	struct attrs_full a = {.value = 2.5, .dims = op_case_dims(&c, 2, (int64_t[]){1, 3}), .dtype = DT_F32};
	op_case_run(&c, OP_full, &a, NO_INS);
	op_case_expect(&c, TENSOR(F32, (1, 3), 2.5, 2.5, 2.5));
	op_case_end(&c);
}

void interp_check_iota(void)
{
	struct op_case c;
	op_case_begin(&c);
	struct attrs_iota a = {.dims = op_case_dims(&c, 2, (int64_t[]){2, 3}), .axis = 1, .start = 5};
	op_case_run(&c, OP_iota, &a, NO_INS);
	op_case_expect(&c, TENSOR(I32, (2, 3), 5, 6, 7, 5, 6, 7));
	op_case_end(&c);
}

void interp_check_dim_value(void)
{
	struct op_case c;
	op_case_begin(&c);
	struct attrs_dim_value a = {.dim = ir_dim_const(c.m->dims, 7)};
	op_case_run(&c, OP_dim_value, &a, NO_INS);
	op_case_expect(&c, SCALAR(I32, 7));
	op_case_end(&c);
	op_case_begin(&c);
	a.dim = ir_dim_const(c.m->dims, 7);
	a.dims = op_case_dims(&c, 2, (int64_t[]){2, 1});
	op_case_run(&c, OP_dim_value, &a, NO_INS);
	op_case_expect(&c, TENSOR(I32, (2, 1), 7, 7));
	op_case_end(&c);
}

/* ---- functions built by hand ---- */

static const struct ir_type *type_of(struct op_case *c, enum ir_dtype dtype, int rank, const int64_t *dims)
{
	return ir_type_tensor(c->m->types, dtype, rank, op_case_dims(c, (size_t)rank, dims).items);
}

static struct ir_builder *begin(struct op_case *c)
{
	struct ir_builder *b = irb_begin(c->m, &c->cx, "f", (struct ir_loc){0});
	irb_set_literal(b, true);
	return b;
}

static struct ir_value param(struct ir_builder *b, const char *name, const struct ir_type *type)
{
	return irb_param(b, &(struct ir_param){.name = name, .lengths = -1}, type);
}

/* Ends the function with these results and runs it; c->out is the first tensor. */
static void finish_and_run(struct op_case *c, struct ir_builder *b, const struct ir_value *results, size_t n,
                           const struct interp_args *args)
{
	struct ir_result names[4];
	for (size_t i = 0; i < n; i++)
		names[i] = (struct ir_result){.name = arena_printf(&c->arena, "y%zu", i), .lengths = -1};
	ck_assert_msg(irb_finish(b, results, names, n, NULL) == TFMC_OK, "%s", c->messages.data);
	ck_assert_msg(ir_verify(c->m, &c->cx) == TFMC_OK, "%s", c->messages.data);
	struct interp_args a = *args;
	a.arena = &c->arena;
	a.outputs = &c->out;
	ck_assert_msg(interp_run(&c->cx, c->m, ir_find_func(c->m, "f"), &a) == TFMC_OK, "%s",
	              c->messages.data);
}

void interp_check_weight(void)
{
	struct op_case c;
	op_case_begin(&c);
	const struct ir_wexpr *rows[2];
	for (int i = 0; i < 2; i++)
		rows[i] = wexpr_full(&c.m->arena, i + 0.1, 1, (int64_t[]){2});
	struct ir_weight w = {
	        .name = "w",
	        .type = type_of(&c, DT_F16, 2, (int64_t[]){2, 2}),
	        .init = wexpr_stack(&c.m->arena, 2, rows),
	};
	struct ir_builder *b = begin(&c);
	struct ir_value i = param(b, "i", type_of(&c, DT_I32, 0, NULL));
	struct ir_value y = irb_weight_ref(b, ir_add_weight(c.m, &w), &i, 1);
	double one = 1;
	struct interp_tensor in = {.dtype = DT_I32, .data = &one};
	finish_and_run(&c, b, &y, 1, &(struct interp_args){.inputs = &in});
	/* 1.1 rounded to f16 */
	op_case_expect(&c, TENSOR(F16, (2), 1.099609375, 1.099609375));
	op_case_end(&c);
}

/* y = x doubled `count` times, plus the sum of the indices. */
void interp_check_repeat(void)
{
	for (int64_t count = 0; count < 4; count++) {
		struct op_case c;
		op_case_begin(&c);
		struct ir_builder *b = begin(&c);
		struct ir_value x = param(b, "x", type_of(&c, DT_I32, 0, NULL)), args[3], results[2];
		irb_repeat_begin(b, count, (struct ir_value[]){x, x}, 2, args);
		struct ir_value doubled = irb_add(b, args[1], args[1], NULL);
		struct ir_value sum = irb_add(b, args[2], args[REPEAT_INDEX], NULL);
		irb_repeat_end(b, (struct ir_value[]){doubled, sum}, 2, results);
		struct ir_value y = irb_sub(b, results[0], results[1], NULL);
		double three = 3;
		struct interp_tensor in = {.dtype = DT_I32, .data = &three};
		finish_and_run(&c, b, &y, 1, &(struct interp_args){.inputs = &in});
		double want = (double)((3 << count) - (3 + count * (count - 1) / 2));
		op_case_expect(&c, SCALAR(I32, want));
		op_case_end(&c);
	}
}

void interp_check_group(void)
{
	struct op_case c;
	op_case_begin(&c);
	c.m->stage = STAGE_GROUPS;
	struct ir_builder *b = begin(&c);
	struct ir_value x = param(b, "x", type_of(&c, DT_F32, 1, (int64_t[]){2})), results[2];
	irb_group_begin(b);
	struct ir_value e = irb_neg(b, x, NULL), twice = irb_add(b, e, x, NULL);
	irb_group_end(b, &(struct attrs_group){.kind = GROUP_loops}, (struct ir_value[]){e, twice}, 2,
	              results);
	double values[] = {1, -2};
	struct interp_tensor in = {.dtype = DT_F32, .rank = 1, .dims = {2}, .data = values};
	finish_and_run(&c, b, results, 1, &(struct interp_args){.inputs = &in});
	op_case_expect(&c, TENSOR(F32, (2), -1, 2));
	op_case_end(&c);
}

/* Terminators end every function and region above; here only that they are what they say. */
void interp_check_yield(void)
{
	ck_assert(ir_op_has(OP_yield, TRAIT_TERMINATOR));
}

void interp_check_return(void)
{
	ck_assert(ir_op_has(OP_return, TRAIT_TERMINATOR));
}

/* ---- state: @s f32[B,2,1,3,2], two layers, three rows ---- */

struct state_case {
	struct op_case c;
	struct ir_builder *b;
	struct ir_value layer, x, past, state;
	struct interp_state *contents;
};

static void state_begin_rows(struct state_case *s, int64_t rows)
{
	op_case_begin(&s->c);
	struct op_case *c = &s->c;
	ck_assert(ir_dims_declare(c->m->dims, "B", 1, 4));
	const struct ir_dim *batch = ir_dim_sym(c->m->dims, "B");
	struct ir_dim_list dims = op_case_dims(c, 5, (int64_t[]){0, 2, 1, rows, 2});
	dims.items[0] = batch;
	const struct ir_type *type = ir_type_tensor(c->m->types, DT_F32, 5, dims.items);
	const struct ir_state_decl *decl = ir_add_state(c->m, "s", type, (struct ir_loc){0});
	s->b = begin(c);
	s->layer = param(s->b, "layer", type_of(c, DT_I32, 0, NULL));
	s->past = param(s->b, "past", ir_type_tensor(c->m->types, DT_I32, 1, &batch));
	dims = op_case_dims(c, 4, (int64_t[]){0, 1, 2, 2});
	dims.items[0] = batch;
	s->x = param(s->b, "x", ir_type_tensor(c->m->types, DT_F32, 4, dims.items));
	s->state = param(s->b, "s", ir_type_state(c->m->types, decl));
}

static void state_begin(struct state_case *s)
{
	state_begin_rows(s, 3);
}

/* Runs with two sequences, past (0, second), x = 1..8, layer 1. */
static void state_run_behind(struct state_case *s, double second, const struct ir_value *results, size_t n)
{
	double layer = 1, past[] = {0, second}, x[] = {1, 2, 3, 4, 5, 6, 7, 8};
	const struct interp_tensor inputs[] = {
	        {.dtype = DT_I32, .data = &layer},
	        {.dtype = DT_I32, .rank = 1, .dims = {2}, .data = past},
	        {.dtype = DT_F32, .rank = 4, .dims = {2, 1, 2, 2}, .data = x},
	};
	s->contents = interp_state_create(&s->c.arena, s->c.m, 2);
	ck_assert_ptr_nonnull(s->contents);
	struct interp_args args = {.inputs = inputs, .dims = (int64_t[]){2}, .state = s->contents};
	finish_and_run(&s->c, s->b, results, n, &args);
}

static void state_run(struct state_case *s, const struct ir_value *results, size_t n)
{
	state_run_behind(s, 2, results, n);
}

/* A ring of 16 rows for 18: rows 15 and 16 of sequence 1 are its last row and its first one. */
static void check_ring(void)
{
	const struct attrs_state_append ring = {.rows = 18, .window = 3};
	struct state_case s;
	struct ir_value results[2];
	state_begin_rows(&s, 16);
	irb_op(s.b, OP_state_append, (struct ir_value[]){s.state, s.x, s.past, s.layer}, 4, &ring, results,
	       2);
	state_run_behind(&s, 15, results, 2);
	op_case_expect(&s.c,
	               TENSOR(F32, (2, 1, 18, 2), 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0));
	op_case_end(&s.c);
}

void interp_check_state_append(void)
{
	check_ring();
	struct state_case s;
	struct ir_value results[2];
	state_begin(&s);
	irb_op(s.b, OP_state_append, (struct ir_value[]){s.state, s.x, s.past, s.layer}, 4, NULL, results, 2);
	state_run(&s, results, 2);
	/* Sequence 1 has two rows already: row 2 is written, its second row lies beyond the end. */
	op_case_expect(&s.c, TENSOR(F32, (2, 1, 3, 2), 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6));
	op_case_end(&s.c);
}

void interp_check_state_write(void)
{
	struct state_case s;
	struct ir_value state, results[2];
	state_begin(&s);
	irb_op(s.b, OP_state_write, (struct ir_value[]){s.state, s.x, s.layer}, 3, NULL, &state, 1);
	irb_op(s.b, OP_state_read, (struct ir_value[]){state}, 1, NULL, results, 2);
	state_run(&s, results, 2);
	op_case_expect(&s.c, TENSOR(F32, (2, 2, 1, 3, 2), 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0,
	                            0, 5, 6, 7, 8, 0, 0));
	op_case_end(&s.c);
}

void interp_check_state_read(void)
{
	struct state_case s;
	struct ir_value state, results[2];
	state_begin(&s);
	irb_op(s.b, OP_state_write, (struct ir_value[]){s.state, s.x, s.layer}, 3, NULL, &state, 1);
	irb_op(s.b, OP_state_read, (struct ir_value[]){state, s.layer}, 2, NULL, results, 2);
	state_run(&s, results, 2);
	op_case_expect(&s.c, TENSOR(F32, (2, 1, 3, 2), 1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0));
	op_case_end(&s.c);
}
