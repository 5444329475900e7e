/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interpreter's driver: symbolic shapes, checks at entry, defaults, traces,
 * lifetimes and the memory limit, bytes in and out. Values of the ops are in
 * test_interp_ops.c.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/interp/interp.h"

struct fixture {
	struct diag_context cx;
	struct buf messages;
	struct arena arena;
	struct ir_module *m;
	struct ir_builder *b;
	const struct ir_dim *batch, *length;
	struct ir_value ids, lengths;
};

static struct fixture fx;

/* f(ids: i32[B,S] below 10, lengths: i32[B] default S max S), B in [1,4], S in [1,8] */
static void setup(void)
{
	buf_init(&fx.messages);
	diag_init(&fx.cx, diag_render_text, &fx.messages);
	arena_init(&fx.arena);
	fx.m = ir_module_create("m");
	ck_assert(ir_dims_declare(fx.m->dims, "B", 1, 4) && ir_dims_declare(fx.m->dims, "S", 0, 8));
	fx.batch = ir_dim_sym(fx.m->dims, "B");
	fx.length = ir_dim_sym(fx.m->dims, "S");
	fx.b = irb_begin(fx.m, &fx.cx, "f", (struct ir_loc){0});
	const struct ir_dim *dims[] = {fx.batch, fx.length};
	struct ir_param ids = {.name = "ids", .below = 10, .lengths = 1};
	struct ir_param lengths = {.name = "lengths",
	                           .lengths = -1,
	                           .has_default = true,
	                           .default_value = fx.length,
	                           .max = fx.length};
	fx.ids = irb_param(fx.b, &ids, ir_type_tensor(fx.m->types, DT_I32, 2, dims));
	fx.lengths = irb_param(fx.b, &lengths, ir_type_tensor(fx.m->types, DT_I32, 1, dims));
}

static void teardown(void)
{
	ir_module_destroy(fx.m);
	arena_destroy(&fx.arena);
	diag_destroy(&fx.cx);
	buf_destroy(&fx.messages);
}

static void finish(struct ir_value y)
{
	const struct ir_result result = {.name = "y", .lengths = -1};
	ck_assert_msg(irb_finish(fx.b, &y, &result, 1, NULL) == TFMC_OK, "%s", fx.messages.data);
}

static double id_values[] = {1, 2, 3, 4, 5, 6};
static double length_values[] = {3, 1};

/* Arguments for B = 2, S = 3. */
struct call {
	int64_t dims[2];
	struct interp_tensor in[2], out;
	struct interp_args args;
};

static struct call call_of(void)
{
	return (struct call){
	        .dims = {2, 3},
	        .in = {{.dtype = DT_I32, .rank = 2, .dims = {2, 3}, .data = id_values},
	               {.dtype = DT_I32, .rank = 1, .dims = {2}, .data = length_values}},
	};
}

static enum tfmc_status run(struct call *c)
{
	c->args.dims = c->dims;
	c->args.inputs = c->in;
	c->args.outputs = &c->out;
	c->args.arena = &fx.arena;
	return interp_run(&fx.cx, fx.m, ir_find_func(fx.m, "f"), &c->args);
}

static void expect_refused(struct call *c, const char *message)
{
	ck_assert_int_eq(run(c), TFMC_INVALID);
	ck_assert_msg(strstr(fx.messages.data, message) != NULL, "'%s' is not in '%s'", message,
	              fx.messages.data);
	buf_clear(&fx.messages);
}

START_TEST(runs_with_symbolic_shapes)
{
	finish(irb_mask_rows(fx.b, fx.ids, fx.lengths, NULL));
	struct call c = call_of();
	ck_assert_int_eq(run(&c), TFMC_OK);
	ck_assert_int_eq(c.out.rank, 2);
	ck_assert_int_eq(c.out.dims[1], 3);
	ck_assert_mem_eq(c.out.data, ((double[]){1, 2, 3, 4, 0, 0}), 6 * sizeof(double));
	/* A second run, with an empty axis. */
	c.dims[1] = c.in[0].dims[1] = 0;
	c.in[1].data = (double[]){0, 0};
	ck_assert_int_eq(run(&c), TFMC_OK);
	ck_assert_int_eq(interp_count(&c.out), 0);
}
END_TEST

START_TEST(fills_defaults)
{
	finish(irb_mask_rows(fx.b, fx.ids, fx.lengths, NULL));
	struct call c = call_of();
	c.in[1].data = NULL;
	ck_assert_int_eq(run(&c), TFMC_OK);
	ck_assert_mem_eq(c.out.data, id_values, sizeof(id_values));
	c.in[0].data = NULL;
	expect_refused(&c, "input 'ids' is missing");
}
END_TEST

START_TEST(checks_at_entry)
{
	finish(irb_mask_rows(fx.b, fx.ids, fx.lengths, NULL));
	struct call c = call_of();
	c.dims[0] = 5;
	expect_refused(&c, "dim B is 5, not in [1,4]");
	c = call_of();
	c.in[0].dims[1] = 4;
	expect_refused(&c, "axis 1 of input 'ids' is 4, the function expects 3");
	c = call_of();
	c.in[0].dtype = DT_F32;
	expect_refused(&c, "input 'ids' is f32 of rank 2, the function expects i32 of rank 2");
	c = call_of();
	c.in[0].data = (double[]){1, 2, 3, 10, 5, 6};
	expect_refused(&c, "input 'ids' has the value 10 at 3, not in [0,9]");
	c.in[0].data = (double[]){1, -2, 3, 1, 5, 6};
	expect_refused(&c, "input 'ids' has the value -2 at 1, not in [0,9]");
	c = call_of();
	c.in[1].data = (double[]){3, 4};
	expect_refused(&c, "input 'lengths' has the value 4 at 1, not in [0,3]");
}
END_TEST

static void count_ops(void *user, const struct ir_func *f, const struct ir_op *op,
                      const struct interp_tensor *const *results)
{
	int *count = user;
	(void)f;
	count[op->code]++;
	for (size_t i = 0; i < op->n_results; i++)
		ck_assert_ptr_nonnull(results[i]->data);
}

START_TEST(traces_every_op)
{
	struct ir_value args[2], y;
	irb_set_literal(fx.b, true);
	irb_repeat_begin(fx.b, 3, &fx.ids, 1, args);
	struct ir_value twice = irb_add(fx.b, args[1], args[1], NULL);
	irb_repeat_end(fx.b, &twice, 1, &y);
	finish(irb_neg(fx.b, y, NULL));
	int count[IR_N_OPS] = {0};
	struct call c = call_of();
	c.args.trace = count_ops;
	c.args.trace_user = count;
	ck_assert_int_eq(run(&c), TFMC_OK);
	ck_assert_int_eq(count[OP_add], 3);
	ck_assert_int_eq(count[OP_repeat], 1);
	ck_assert_int_eq(count[OP_neg], 1);
	ck_assert(c.out.data[5] == -48);
}
END_TEST

/* A chain of many ops lives in the memory of a few values; values used late stay. */
START_TEST(frees_after_last_use)
{
	irb_set_literal(fx.b, true);
	struct ir_value y = fx.ids;
	for (int i = 0; i < 100; i++)
		y = irb_neg(fx.b, y, NULL);
	finish(irb_add(fx.b, y, fx.ids, NULL));
	struct call c = call_of();
	c.args.memory_limit = 4 * sizeof(id_values) + sizeof(length_values);
	ck_assert_msg(run(&c) == TFMC_OK, "%s", fx.messages.data);
	ck_assert(c.out.data[5] == 12);
	c.args.memory_limit = 2 * sizeof(id_values);
	expect_refused(&c, "memory limit");
}
END_TEST

START_TEST(converts_bytes)
{
	const double values[] = {1.5, -2, 300, 0};
	for (int i = 0; i < IR_N_DTYPES; i++) {
		enum ir_dtype t = (enum ir_dtype)i;
		unsigned char bytes[32] = {0};
		double data[4], back[4];
		for (int k = 0; k < 4; k++)
			data[k] = ir_round(t, values[k]);
		struct interp_tensor from = {.dtype = t, .rank = 1, .dims = {4}, .data = data}, to = from;
		to.data = back;
		interp_to_bytes(&from, bytes);
		interp_from_bytes(&to, bytes);
		ck_assert_mem_eq(data, back, sizeof(data));
	}
	const float f[] = {1, 2};
	double d[2], largest = 0x1p63;
	struct interp_tensor t = {.dtype = DT_F32, .rank = 1, .dims = {2}, .data = d};
	interp_from_bytes(&t, f);
	ck_assert(d[0] == 1 && d[1] == 2);
	int64_t i64;
	struct interp_tensor wide = {.dtype = DT_I64, .data = &largest};
	interp_to_bytes(&wide, &i64);
	ck_assert(i64 == INT64_MAX);
}
END_TEST

/* Beside the doubles; a double that was set alone is the value. */
START_TEST(keeps_wide_ints)
{
	const struct ir_dim *dims[] = {ir_dim_const(fx.m->dims, 5)};
	const int64_t ends[] = {INT64_MIN, -((INT64_C(1) << 53) + 1), 0, (INT64_C(1) << 53) + 1, INT64_MAX};
	int64_t back[5];
	struct interp_tensor t, copy;
	ck_assert(interp_tensor_make(&fx.arena, ir_type_tensor(fx.m->types, DT_I64, 1, dims), NULL, &t));
	interp_from_bytes(&t, ends);
	ck_assert(interp_tensor_copy(&fx.arena, &t, &copy));
	interp_to_bytes(&copy, back);
	ck_assert_mem_eq(back, ends, sizeof(ends));
	copy.exact[3]--;
	ck_assert(interp_abs_diff(&t, &copy, 3) == 1 && interp_abs_diff(&t, &copy, 4) == 0);
	ck_assert(interp_abs_diff(&t, &(struct interp_tensor){.dtype = DT_I64, .data = copy.data + 4}, 0) ==
	          0x1p64);
	t.data[1] = 7;
	ck_assert_int_eq(interp_get_int(&t, 1), 7);
	interp_to_bytes(&t, back);
	ck_assert(back[1] == 7 && back[3] == ends[3]);
}
END_TEST

START_TEST(refuses_sizes_that_do_not_fit)
{
	const struct ir_dim *huge = ir_dim_const(fx.m->dims, INT64_C(1) << 40);
	const struct ir_dim *dims[] = {huge, huge};
	struct interp_tensor t;
	ck_assert(!interp_tensor_make(&fx.arena, ir_type_tensor(fx.m->types, DT_F32, 2, dims), NULL, &t));
	ck_assert(interp_tensor_make(&fx.arena, ir_type_tensor(fx.m->types, DT_F32, 0, NULL), NULL, &t));
	ck_assert(t.data[0] == 0);
	t = (struct interp_tensor){.rank = 2, .dims = {INT64_MAX, 2}};
	ck_assert_int_eq(interp_count(&t), -1);
}
END_TEST

/* x [3, 5], w [columns, 5], their sums in f64; terms that cancel, so that another order has other bits. */
static double sum_of(const double *x, const double *w)
{
	double sum = 0;
	for (int k = 0; k < 5; k++)
		sum += x[k] * w[k];
	return sum;
}

/* The number of columns is 1 to 9: whole blocks of columns, and what is left. */
START_TEST(sums_in_increasing_order)
{
	double x[3 * 5], w[9 * 5];
	int columns = _i;
	for (int i = 0; i < 9 * 5; i++)
		w[i] = (i % 2 ? -1.25 : 1) * ldexp(i + 3, i * 7 % 31);
	for (int i = 0; i < 3 * 5; i++)
		x[i] = ldexp(2 * i + 1, i * 5 % 23);
	const struct ir_dim *three = ir_dim_const(fx.m->dims, 3), *five = ir_dim_const(fx.m->dims, 5),
	                    *n = ir_dim_const(fx.m->dims, columns);
	const struct ir_dim *x_dims[] = {three, five}, *w_dims[] = {n, five};
	struct ir_builder *b = irb_begin(fx.m, &fx.cx, "g", (struct ir_loc){0});
	struct ir_value y, operands[] = {
	                           irb_param(b, &(struct ir_param){.name = "x", .lengths = -1},
	                                     ir_type_tensor(fx.m->types, DT_F64, 2, x_dims)),
	                           irb_param(b, &(struct ir_param){.name = "w", .lengths = -1},
	                                     ir_type_tensor(fx.m->types, DT_F64, 2, w_dims)),
	                   };
	irb_op(b, OP_matmul, operands, 2, &(struct attrs_matmul){.tb = true}, &y, 1);
	const struct ir_result result = {.name = "y", .lengths = -1};
	ck_assert_msg(irb_finish(b, &y, &result, 1, NULL) == TFMC_OK, "%s", fx.messages.data);
	struct interp_tensor out, in[] = {{.dtype = DT_F64, .rank = 2, .dims = {3, 5}, .data = x},
	                                  {.dtype = DT_F64, .rank = 2, .dims = {columns, 5}, .data = w}};
	int64_t dims[2] = {1, 1};
	struct interp_args args = {.dims = dims, .inputs = in, .outputs = &out, .arena = &fx.arena};
	ck_assert(interp_run(&fx.cx, fx.m, ir_find_func(fx.m, "g"), &args) == TFMC_OK);
	for (int i = 0; i < 3 * columns; i++)
		ck_assert(out.data[i] == sum_of(x + i / columns * 5, w + i % columns * 5));
}
END_TEST

Suite *suite_interp(void)
{
	Suite *s = suite_create("interp");
	TCase *t = tcase_create("all");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, runs_with_symbolic_shapes);
	tcase_add_test(t, fills_defaults);
	tcase_add_test(t, checks_at_entry);
	tcase_add_test(t, traces_every_op);
	tcase_add_test(t, frees_after_last_use);
	tcase_add_test(t, converts_bytes);
	tcase_add_test(t, keeps_wide_ints);
	tcase_add_test(t, refuses_sizes_that_do_not_fit);
	tcase_add_loop_test(t, sums_in_increasing_order, 1, 10);
	suite_add_tcase(s, t);
	return s;
}
