/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passes/graph: names and patterns, values of nested repeats in the interpreter, what
 * keeps its readers, sums of what products with weights read, refusals.
 */
#include <check.h>
#include <string.h>

#include "ir/interp/interp.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/graph/probe.h"

Suite *suite_probe(void);

static const char *const nested =
        "module \"m\"\n"
        "dim B in [1,2]\n"
        "func @run(%x: f32[B,4]) -> (y: f32[B,4]) {\n"
        "  %r = repeat %i = 0 to 3 carry (%a = %x) {\n"
        "    %s = repeat %j = 0 to 2 carry (%b = %a) {\n"
        "      %t = scale %b {f=2.0} : f32[B,4] loc(\"m.yaml\":4:1 \"out.in.twice\")\n"
        "      %u = add %t, %x : f32[B,4] loc(\"m.yaml\":5:1 \"out.in\")\n"
        "      yield %u\n"
        "    } : f32[B,4] loc(\"m.yaml\":3:1 \"out.in\")\n"
        "    yield %s\n"
        "  } : f32[B,4] loc(\"m.yaml\":2:1 \"out\")\n"
        "  return %r\n"
        "}\n";

struct probed {
	struct diag_context cx;
	struct arena arena;
	struct buf text; /* of diagnostics */
	struct ir_module *in, *out;
	struct probe_values values;
	enum tfmc_status status;
};

static void begin(struct probed *p, const char *text, const char *const *patterns, size_t n,
                  enum probe_mode mode)
{
	static const char *const functions[] = {"run", "absent"};
	memset(p, 0, sizeof(*p));
	buf_init(&p->text);
	diag_init(&p->cx, diag_render_text, &p->text);
	arena_init(&p->arena);
	ck_assert_int_eq(ir_parse(&p->cx, "m.tir", text, strlen(text), &p->in), TFMC_OK);
	const struct probe_request q = {.cx = &p->cx,
	                                .arena = &p->arena,
	                                .patterns = patterns,
	                                .n_patterns = n,
	                                .functions = functions,
	                                .n_functions = 2,
	                                .mode = mode};
	p->status = probe_insert(&q, p->in, &p->out, &p->values);
	if (p->status == TFMC_OK)
		ck_assert_int_eq(ir_verify(p->out, &p->cx), TFMC_OK);
}

static void end(struct probed *p)
{
	if (p->status == TFMC_OK)
		ir_module_destroy(p->out);
	ir_module_destroy(p->in);
	arena_destroy(&p->arena);
	diag_destroy(&p->cx);
	buf_destroy(&p->text);
}

/* Twelve moments: two values in each of six rounds; "out.1.in.1" is the add, whose path names it as well. */
START_TEST(rounds_have_names_in_order)
{
	static const char *const all[] = {"*"};
	struct probed p;
	begin(&p, nested, all, 1, PROBE_RECOMPUTE);
	ck_assert_int_eq(p.status, TFMC_OK);
	ck_assert_str_eq(p.values.items[0].name, "out.0.in.0.twice");
	ck_assert_str_eq(p.values.items[1].name, "out.0.in.0");
	const struct probe_value *last = &p.values.items[p.values.n - 1];
	ck_assert_str_eq(last->name, "out");
	ck_assert_int_eq(last->slot, 5);
	ck_assert_int_eq(last->op->loc.at.line, 5);
	end(&p);
}
END_TEST

/* b' = 2 b + x: after k rounds (2^(k+1) - 1) x, and 2^(k+1) - 2 of it before the sum. */
START_TEST(nested_rounds_have_their_values)
{
	static const char *const some[] = {"out.1.in.?.twice", "out.2.in.0"};
	static const enum probe_mode modes[] = {PROBE_RECOMPUTE, PROBE_BARRIER};
	for (size_t mode = 0; mode < 2; mode++) {
		struct probed p;
		begin(&p, nested, some, 2, modes[mode]);
		ck_assert_int_eq(p.status, TFMC_OK);
		ck_assert_uint_eq(p.values.n, 3);
		const struct ir_func *f = ir_find_func(p.out, "run");
		ck_assert_uint_eq(f->n_results, 3);
		double x[] = {1, -2, 0.5, 4};
		const int64_t dims[] = {1};
		struct interp_tensor in = {.dtype = DT_F32, .rank = 2, .dims = {1, 4}, .data = x}, out[3];
		const struct interp_args args = {
		        .dims = dims, .inputs = &in, .outputs = out, .arena = &p.arena};
		ck_assert_int_eq(interp_run(&p.cx, p.out, f, &args), TFMC_OK);
		ck_assert_int_eq(out[1].dims[0], 2); /* rounds 2 and 3 */
		ck_assert_int_eq(out[2].dims[0], 1); /* round 4 */
		for (int i = 0; i < 4; i++) {
			ck_assert_double_eq(out[0].data[i], 127 * x[i]);
			ck_assert_double_eq(out[1].data[i], 14 * x[i]);
			ck_assert_double_eq(out[1].data[4 + i], 30 * x[i]);
			ck_assert_double_eq(out[2].data[i], 63 * x[i]);
		}
		end(&p);
	}
}
END_TEST

static uint32_t uses_of(const struct ir_module *m, struct arena *a, enum ir_opcode code)
{
	const struct ir_func *f = ir_find_func(m, "run");
	uint32_t *uses = ir_count_uses(a, f);
	for (size_t i = 0; i < f->body->n_ops; i++)
		if (f->body->ops[i]->code == code)
			return uses[f->body->ops[i]->results[0].id];
	return 0;
}

START_TEST(recomputed_values_leave_readers_alone)
{
	static const char *const text = "module \"m\"\n"
	                                "dim B in [1,2]\n"
	                                "func @run(%x: f32[B,4]) -> (y: f32[B,4]) {\n"
	                                "  %t = exp %x : f32[B,4]\n"
	                                "  %u = softmax %t : f32[B,4]\n"
	                                "  %y = relu %u : f32[B,4]\n"
	                                "  return %y\n"
	                                "}\n";
	static const char *const names[] = {"u"};
	struct probed p;
	begin(&p, text, names, 1, PROBE_RECOMPUTE);
	ck_assert_int_eq(p.status, TFMC_OK);
	ck_assert_uint_eq(uses_of(p.out, &p.arena, OP_softmax), 1);
	ck_assert_uint_eq(uses_of(p.out, &p.arena, OP_exp), 1);
	end(&p);
	begin(&p, text, names, 1, PROBE_BARRIER);
	ck_assert_int_eq(p.status, TFMC_OK);
	ck_assert_uint_eq(uses_of(p.out, &p.arena, OP_softmax), 2);
	end(&p);
}
END_TEST

START_TEST(wrong_names_are_refused)
{
	static const char *const names[] = {"out.0.in.0.twize"};
	struct probed p;
	begin(&p, nested, names, 1, PROBE_BARRIER);
	ck_assert_int_eq(p.status, TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(p.text.data, "no value of the model is called 'out.0.in.0.twize'"));
	ck_assert_ptr_nonnull(strstr(p.text.data, "did you mean 'out.0.in.0.twice'"));
	end(&p);
}
END_TEST

/* ---- what products with weights read ---- */

/* @out.a is another one in each round and @out.c the same; both read the carry. Round 1 reads 0.5 (sum of x) in all
 * columns. Rows 0 and 2 go to expert 1, row 1 to expert 2, as its id is too large. */
static const char *const products = "module \"m\"\n"
                                    "dim B in [1,3]\n"
                                    "weight @out.a.weight : f32[2,4,4] = full(1.0, [2,4,4])\n"
                                    "weight @out.c.weight.rows0_3 : f32[4,4] = full(0.5, [4,4])\n"
                                    "weight @m.all.up.weight : f32[3,5,4] = full(1.0, [3,5,4])\n"
                                    "weight @s.up.weight : f32[2,5,4] = full(1.0, [2,5,4])\n"
                                    "func @run(%x: f32[B,4], %ids: i32[B]) -> (y: f32[B,4], z: f32[B,5]) {\n"
                                    "  %r = repeat %i = 0 to 2 carry (%a = %x) {\n"
                                    "    %s = linear %a, @out.a.weight[%i] : f32[B,4]\n"
                                    "    %t = linear %a, @out.c.weight.rows0_3 : f32[B,4]\n"
                                    "    %d = sub %s, %s : f32[B,4]\n"
                                    "    %u = add %t, %d : f32[B,4]\n"
                                    "    yield %u\n"
                                    "  } : f32[B,4] loc(\"m.yaml\":2:1 \"out\")\n"
                                    "  %e = expert_linear %x, @m.all.up.weight, %ids : f32[B,5]\n"
                                    "  %f = expert_linear %x, @s.up.weight, %ids : f32[B,5]\n"
                                    "  %z = add %e, %f : f32[B,5]\n"
                                    "  return %r, %z\n"
                                    "}\n";

struct summed {
	const char *weight;
	int64_t first, rows;
	double sums[2][9]; /* of squares, of the inputs, and how many rows */
};

static void check_sums(const struct probe_columns *columns, const struct ir_func *f,
                       const struct interp_tensor *out, const struct summed *want, size_t n)
{
	ck_assert_uint_eq(columns->n, n);
	for (size_t i = 0; i < n; i++) {
		const struct probe_column *c = &columns->items[i];
		ck_assert_str_eq(c->weight, want[i].weight);
		ck_assert_int_eq(c->first, want[i].first);
		ck_assert_int_eq(c->rows, want[i].rows);
		ck_assert_int_eq(c->k, 4);
		size_t r = 0;
		while (strcmp(f->results[r].name, c->result) != 0)
			r++;
		for (int64_t k = 0; k < 9 * c->rows; k++)
			ck_assert_double_eq(out[r].data[9 * c->first + k], want[i].sums[k / 9][k % 9]);
	}
}

START_TEST(products_say_what_they_read)
{
	static const char *const functions[] = {"run"};
	static const struct summed want[] = {
	        {"out.0.a.weight", 0, 1, {{30, 8, 4.25, 25, 8, 0, 2.5, 7, 3}}},
	        {"out.c.weight", 0, 1, {{30, 8, 4.25, 25, 8, 0, 2.5, 7, 3}}},
	        {"out.1.a.weight", 1, 1, {{27.5625, 27.5625, 27.5625, 27.5625, 8.75, 8.75, 8.75, 8.75, 3}}},
	        {"out.c.weight", 1, 1, {{27.5625, 27.5625, 27.5625, 27.5625, 8.75, 8.75, 8.75, 8.75, 3}}},
	        {"m.0.up.weight", 0, 1, {{0}}},
	        {"m.1.up.weight", 1, 1, {{26, 4, 4.25, 16, 6, -2, 2.5, 4, 2}}},
	        {"m.2.up.weight", 2, 1, {{4, 4, 0, 9, 2, 2, 0, 3, 1}}},
	        {"s.up.weight", 0, 2, {{0}, {30, 8, 4.25, 25, 8, 0, 2.5, 7, 3}}},
	};
	double x[] = {1, -2, 0.5, 4, 2, 2, 0, 3, 5, 0, 2, 0}, ids[] = {1, 7, 1};
	int64_t exact[] = {1, 7, 1};
	const int64_t dims[] = {3};
	struct probe_columns columns = {0};
	struct interp_tensor in[] = {
	        {.dtype = DT_F32, .rank = 2, .dims = {3, 4}, .data = x},
	        {.dtype = DT_I32, .rank = 1, .dims = {3}, .data = ids, .exact = exact},
	};
	struct interp_tensor out[3];
	struct probed p;
	static const char *const none[] = {"*"};
	begin(&p, products, none, 1, PROBE_BARRIER);
	const struct probe_request q = {
	        .cx = &p.cx, .arena = &p.arena, .functions = functions, .n_functions = 1};
	struct ir_module *m;
	ck_assert_int_eq(probe_columns(&q, p.in, &m, &columns), TFMC_OK);
	ck_assert_int_eq(ir_verify(m, &p.cx), TFMC_OK);
	const struct ir_func *f = ir_find_func(m, "run");
	ck_assert_uint_eq(f->n_results, 3); /* of the carry, and of each number of experts */
	const struct interp_args args = {.dims = dims, .inputs = in, .outputs = out, .arena = &p.arena};
	ck_assert_int_eq(interp_run(&p.cx, m, f, &args), TFMC_OK);
	check_sums(&columns, f, out, want, TFMC_COUNT(want));
	ir_module_destroy(m);
	end(&p);
}
END_TEST

START_TEST(products_are_wanted)
{
	static const char *const all[] = {"*"}, *const functions[] = {"run"}, *const absent[] = {"walk"};
	struct probe_columns columns = {0};
	struct ir_module *m;
	struct probed p;
	begin(&p, nested, all, 1, PROBE_BARRIER);
	struct probe_request q = {.cx = &p.cx, .arena = &p.arena, .functions = functions, .n_functions = 1};
	ck_assert_int_eq(probe_columns(&q, p.in, &m, &columns), TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(p.text.data, "run multiplies nothing with a weight"));
	q.functions = absent;
	ck_assert_int_eq(probe_columns(&q, p.in, &m, &columns), TFMC_INVALID);
	ck_assert_ptr_nonnull(strstr(p.text.data, "statistics of a module without walk"));
	end(&p);
}
END_TEST

Suite *suite_probe(void)
{
	Suite *s = suite_create("probe");
	TCase *c = tcase_create("probe");
	tcase_add_test(c, rounds_have_names_in_order);
	tcase_add_test(c, nested_rounds_have_their_values);
	tcase_add_test(c, recomputed_values_leave_readers_alone);
	tcase_add_test(c, wrong_names_are_refused);
	tcase_add_test(c, products_say_what_they_read);
	tcase_add_test(c, products_are_wanted);
	suite_add_tcase(s, c);
	return s;
}
