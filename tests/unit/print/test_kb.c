/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel builder: what is recorded, folded and printed, which misuse the
 * verifier reports, how many registers a tile wants, and that the kernel
 * interpreter computes, jumps and refuses as it should.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "tests/kb_interp/live.h"
#include "backends/kb/kernel_ir.h"

struct fixture {
	struct arena arena;
	struct buf log;
	struct diag_context cx;
	struct kb_module *m;
};

static void setup(struct fixture *t)
{
	const struct kb_caps caps = {.lanes = 8, .registers = 16, .has_fma = true};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
	t->m = kb_module_create(&t->arena, &caps);
}

static void teardown(struct fixture *t)
{
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

static struct kb *begin(struct fixture *t, const char *name, enum kb_scalar result)
{
	return kb_begin(t->m, name, KB_INTERNAL, result);
}

/* ---- text ---- */

START_TEST(dump_reads_like_the_program)
{
	struct fixture t;
	struct buf text;
	setup(&t);
	buf_init(&text);
	struct kb *k = kb_begin(t.m, "double", KB_EXPORTED, KB_VOID);
	struct kb_val p = kb_param(k, "x", KB_PTR_T, KB_NOALIAS), n = kb_param(k, "n", KB_INDEX_T, 0);
	kb_comment(k, "[n]");
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), n, 8, 0);
	struct kb_val x = kb_load(k, KB_TYPE(KB_F32, 8), p, i, 0, 0);
	kb_store(k, kb_add(k, x, x), p, i, 0, 0);
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_LT, n, kb_index(k, 8)));
	struct kb_val half = kb_f32(k, 0.5f);
	kb_store(k, half, p, kb_index(k, 3), 1, 0);
	kb_end_if(k);
	kb_end(k);
	kb_dump(&text, t.m, "double");
	ck_assert_str_eq(text.data, "exported @double(%1: ptr x noalias, %2: index n) -> void {\n"
	                            "  ; [n]\n"
	                            "  %3 = const_int index 0\n"
	                            "  loop %4 i = %3 to %2 step 8 {\n"
	                            "    %5 = load 8 x f32 [%1 + %4 + 0] align 4\n"
	                            "    %6 = add 8 x f32 %5, %5\n"
	                            "    store 8 x f32 %6 [%1 + %4 + 0] align 4\n"
	                            "  }\n"
	                            "  %7 = const_int index 8\n"
	                            "  %8 = cmp lt bool %2, %7\n"
	                            "  if %8 {\n"
	                            "    %9 = const_float f32 0.5\n"
	                            "    %10 = const_int index 3\n"
	                            "    %11 = const_int index 0\n"
	                            "    store f32 %9 [%1 + %11 + 4] align 4\n"
	                            "  }\n"
	                            "}\n");
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	buf_destroy(&text);
	teardown(&t);
}
END_TEST

START_TEST(indices_fold)
{
	struct fixture t;
	int64_t c;
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val n = kb_param(k, "n", KB_INDEX_T, 0), two = kb_index(k, 2), zero = kb_index(k, 0);
	ck_assert(kb_const_index(k, kb_mul(k, two, kb_add_const(k, two, 5)), &c) && c == 14);
	ck_assert_uint_eq(kb_add(k, n, zero).id, n.id);
	ck_assert_uint_eq(kb_add(k, zero, n).id, n.id);
	ck_assert_uint_eq(kb_bin(k, KB_DIV, n, kb_index(k, 1)).id, n.id);
	ck_assert(kb_const_index(k, kb_mul(k, n, zero), &c) && c == 0);
	ck_assert(!kb_const_index(k, kb_bin(k, KB_DIV, two, zero), &c));
	ck_assert(!kb_const_index(k, kb_mul(k, kb_index(k, INT64_MAX), two), &c));
	teardown(&t);
}
END_TEST

/* ---- misuse ---- */

typedef void misuse_fn(struct kb *k, struct kb_val f, struct kb_val i);

static void add_of_two_types(struct kb *k, struct kb_val f, struct kb_val i)
{
	kb_add(k, f, i);
}

static void open_loop(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)f;
	kb_loop(k, "i", i, i, 1, 0);
}

static void end_without_begin(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)f;
	(void)i;
	kb_end_if(k);
}

static void value_of_a_closed_region(struct kb *k, struct kb_val f, struct kb_val i)
{
	struct kb_val inside = kb_loop(k, "i", i, i, 1, 0);
	kb_end_loop(k);
	(void)f;
	kb_add_const(k, inside, 1);
}

static void variable_of_another_type(struct kb *k, struct kb_val f, struct kb_val i)
{
	kb_set(k, kb_var(k, "v", KB_F32_T, f), i);
}

static void break_in_a_condition(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)f;
	(void)i;
	kb_forever(k);
	kb_if(k, kb_bool(k, true));
	kb_break_if(k, kb_bool(k, true));
	kb_end_if(k);
	kb_end_forever(k);
}

static void call_with_too_few(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)i;
	kb_call(k, "f", KB_VOID, &f, 1);
}

static void late_parameter(struct kb *k, struct kb_val f, struct kb_val i)
{
	kb_add(k, f, f);
	(void)i;
	kb_param(k, "late", KB_F32_T, 0);
}

static void odd_lanes(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)i;
	kb_splat(k, f, 3);
}

static void vector_condition(struct kb *k, struct kb_val f, struct kb_val i)
{
	(void)i;
	kb_if(k, kb_cmp(k, KB_LT, kb_splat(k, f, 4), kb_splat(k, f, 4)));
	kb_end_if(k);
}

static misuse_fn *const misuses[] = {
        add_of_two_types,
        open_loop,
        end_without_begin,
        value_of_a_closed_region,
        variable_of_another_type,
        break_in_a_condition,
        call_with_too_few,
        late_parameter,
        odd_lanes,
        vector_condition,
};

START_TEST(misuse_is_reported)
{
	struct fixture t;
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val f = kb_param(k, "f", KB_F32_T, 0), i = kb_param(k, "i", KB_INDEX_T, 0);
	misuses[_i](k, f, i);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_INTERNAL);
	ck_assert_ptr_nonnull(strstr(t.log.data, "kernel f"));
	teardown(&t);
}
END_TEST

START_TEST(functions_end_and_differ)
{
	struct fixture t;
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_INTERNAL);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	kb_end(begin(&t, "f", KB_VOID));
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_INTERNAL);
	teardown(&t);
}
END_TEST

/* ---- registers ---- */

/* A tile of 6 x 2 vectors: 12 sums, 2 vectors of weights; the broadcast is an operand. */
START_TEST(tiles_fit_registers)
{
	struct fixture t;
	struct kb_var sum[12];
	setup(&t);
	struct kb *k = begin(&t, "tile", KB_VOID);
	struct kb_val p = kb_param(k, "p", KB_PTR_T, 0), zero = kb_splat(k, kb_f32(k, 0), 8);
	for (int i = 0; i < 12; i++)
		sum[i] = kb_var(k, "sum", KB_TYPE(KB_F32, 8), zero);
	struct kb_val i = kb_loop(k, "k", kb_index(k, 0), kb_index(k, 64), 1, KB_NONEMPTY);
	struct kb_val w[2];
	for (int v = 0; v < 2; v++)
		w[v] = kb_load(k, KB_TYPE(KB_F32, 8), p, i, v * 8, 0);
	for (int r = 0; r < 6; r++) {
		struct kb_val x = kb_load_splat(k, KB_TYPE(KB_F32, 8), p, i, r);
		for (int v = 0; v < 2; v++)
			kb_set(k, sum[2 * r + v], kb_fma(k, x, w[v], kb_get(k, sum[2 * r + v])));
	}
	kb_end_loop(k);
	for (int r = 0; r < 12; r++)
		kb_store(k, kb_get(k, sum[r]), p, kb_index(k, 8 * r), 0, 0);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	int live = kb_max_live_vectors(t.m, "tile");
	ck_assert_msg(live >= 14 && live <= 16, "%d", live);
	teardown(&t);
}
END_TEST

/* ---- execution ---- */

/* factorial(n) by recursion: if, call, return. */
START_TEST(calls_and_conditions)
{
	struct fixture t;
	setup(&t);
	struct kb *k = begin(&t, "factorial", KB_INDEX);
	struct kb_val n = kb_param(k, "n", KB_INDEX_T, 0);
	kb_if(k, kb_cmp(k, KB_LE, n, kb_index(k, 1)));
	kb_return(k, kb_index(k, 1));
	kb_end_if(k);
	struct kb_val less = kb_add_const(k, n, -1);
	kb_return(k, kb_mul(k, n, kb_call(k, "factorial", KB_INDEX, &less, 1)));
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	struct kb_interp in = {.module = t.m};
	union kb_cell arg = {.i = 10}, result;
	ck_assert_msg(kb_interp_call(&in, "factorial", &arg, 1, &result), "%s", in.error);
	ck_assert_int_eq(result.i, 3628800);
	arg.i = 1000;
	ck_assert(!kb_interp_call(&in, "factorial", &arg, 1, &result));
	ck_assert_ptr_nonnull(strstr(in.error, "too deep"));
	teardown(&t);
}
END_TEST

/* Steps of the Collatz sequence: forever, break, else, variables. */
START_TEST(loops_and_variables)
{
	struct fixture t;
	setup(&t);
	struct kb *k = begin(&t, "steps", KB_INDEX);
	struct kb_val n = kb_param(k, "n", KB_INDEX_T, 0), one = kb_index(k, 1), two = kb_index(k, 2);
	struct kb_var x = kb_var(k, "x", KB_INDEX_T, n),
	              count = kb_var(k, "count", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	kb_break_if(k, kb_cmp(k, KB_EQ, kb_get(k, x), one));
	kb_if(k, kb_cmp(k, KB_EQ, kb_bin(k, KB_REM, kb_get(k, x), two), kb_index(k, 0)));
	kb_set(k, x, kb_bin(k, KB_DIV, kb_get(k, x), two));
	kb_else(k);
	kb_set(k, x, kb_add_const(k, kb_mul(k, kb_get(k, x), kb_index(k, 3)), 1));
	kb_end_if(k);
	kb_set(k, count, kb_add(k, kb_get(k, count), one));
	kb_end_forever(k);
	kb_return(k, kb_get(k, count));
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	struct kb_interp in = {.module = t.m};
	union kb_cell arg = {.i = 27}, result;
	ck_assert_msg(kb_interp_call(&in, "steps", &arg, 1, &result), "%s", in.error);
	ck_assert_int_eq(result.i, 111);
	in.max_steps = 100;
	ck_assert(!kb_interp_call(&in, "steps", &arg, 1, &result));
	teardown(&t);
}
END_TEST

/* sum over lanes of reverse(x) * <0, 1, 2, 3> + partial loads */
START_TEST(lanes)
{
	static const int reverse[] = {3, 2, 1, 0};
	struct fixture t;
	float x[4] = {1, 2, 3, 4}, y[2];
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val from = kb_param(k, "x", KB_PTR_T, 0), to = kb_param(k, "y", KB_PTR_T, 0);
	struct kb_val zero = kb_index(k, 0), none = {0};
	struct kb_val v = kb_load(k, KB_TYPE(KB_F32, 4), from, zero, 0, 0);
	struct kb_val ids = kb_cvt(k, kb_lane_ids(k, 4), KB_F32);
	struct kb_val w = kb_mul(k, kb_shuffle(k, v, none, reverse, 4), ids);
	kb_store(k, kb_reduce(k, KB_ADD, w), to, zero, 0, 0);
	struct kb_val part = kb_load_part(k, KB_TYPE(KB_F32, 4), 3, from, zero, 1);
	kb_store(k, kb_reduce(k, KB_ADD, part), to, zero, 1, 0);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	struct kb_range ranges[] = {{x, sizeof x, false}, {y, sizeof y, true}};
	struct kb_interp in = {.module = t.m, .ranges = ranges, .n_ranges = 2};
	const union kb_cell args[] = {{.p = x}, {.p = y}};
	ck_assert_msg(kb_interp_call(&in, "f", args, 2, NULL), "%s", in.error);
	ck_assert_float_eq(y[0], 3 * 1 + 2 * 2 + 1 * 3);
	ck_assert_float_eq(y[1], 2 + 3 + 4);
	teardown(&t);
}
END_TEST

START_TEST(conversions_saturate)
{
	static const float from[] = {1.9f, -1.9f, 1e20f, -1e20f, NAN, 255.6f, -3, 0};
	static const int32_t want[] = {1, -1, INT32_MAX, INT32_MIN, 0, 255, -3, 0};
	struct fixture t;
	int32_t out[8];
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val x = kb_param(k, "x", KB_PTR_T, 0), y = kb_param(k, "y", KB_PTR_T, 0),
	              zero = kb_index(k, 0);
	kb_store(k, kb_cvt(k, kb_load(k, KB_TYPE(KB_F32, 8), x, zero, 0, 0), KB_I32), y, zero, 0, 0);
	kb_end(k);
	ck_assert_int_eq(kb_verify(t.m, &t.cx), TFMC_OK);
	struct kb_range ranges[] = {{(void *)(uintptr_t)from, sizeof from, false}, {out, sizeof out, true}};
	struct kb_interp in = {.module = t.m, .ranges = ranges, .n_ranges = 2};
	const union kb_cell args[] = {{.p = (void *)(uintptr_t)from}, {.p = out}};
	ck_assert_msg(kb_interp_call(&in, "f", args, 2, NULL), "%s", in.error);
	ck_assert_mem_eq(out, want, sizeof want);
	teardown(&t);
}
END_TEST

START_TEST(accesses_are_checked)
{
	struct fixture t;
	float x[4] = {0};
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val p = kb_param(k, "x", KB_PTR_T, 0), i = kb_param(k, "i", KB_INDEX_T, 0);
	kb_store(k, kb_load(k, KB_F32_T, p, i, 0, 0), p, kb_index(k, 0), 0, 0);
	kb_end(k);
	struct kb_range range = {x, sizeof x, true};
	struct kb_interp in = {.module = t.m, .ranges = &range, .n_ranges = 1};
	union kb_cell args[] = {{.p = x}, {.i = 3}};
	ck_assert_msg(kb_interp_call(&in, "f", args, 2, NULL), "%s", in.error);
	args[1].i = 4;
	ck_assert(!kb_interp_call(&in, "f", args, 2, NULL));
	args[1].i = -1;
	ck_assert(!kb_interp_call(&in, "f", args, 2, NULL));
	args[1].i = 0;
	range.writable = false;
	ck_assert(!kb_interp_call(&in, "f", args, 2, NULL));
	ck_assert_ptr_nonnull(strstr(in.error, "stores outside"));
	teardown(&t);
}
END_TEST

Suite *suite_kb(void);

/* ---- alignment ---- */

/* Alignments of the loads of the last function, in their order. */
static void check_loads(struct fixture *t, const int *expected)
{
	const struct kb_func *f = kb_func_at(t->m, kb_func_count(t->m) - 1);
	const uint8_t *known = kb_alignments(f, &t->arena);
	ck_assert_ptr_nonnull(known);
	size_t n = 0;
	for (size_t i = 0; i < f->n_insts; i++)
		if (f->insts[i].op == KBO_LOAD) {
			int align = kb_access_align(known, &f->insts[i]);
			ck_assert_msg(align == expected[n], "load %zu: %d, not %d", n, align, expected[n]);
			n++;
		}
	ck_assert_int_eq(expected[n], 0);
}

/* p is a multiple of 64 and at of 32; a variable that a loop assigns has the least alignment of all its values. */
START_TEST(derives_alignments)
{
	struct fixture t;
	setup(&t);
	struct kb *k = begin(&t, "f", KB_VOID);
	struct kb_val p = kb_param(k, "p", KB_PTR_T, 0), q = kb_param(k, "q", KB_PTR_T, 0);
	struct kb_val at = kb_param(k, "at", KB_INDEX_T, 0), n = kb_param(k, "n", KB_INDEX_T, 0);
	struct kb_type four = KB_TYPE(KB_F32, 4);
	kb_assume_multiple(k, p, 64);
	kb_assume_multiple(k, at, 32);
	struct kb_var falls = kb_var(k, "falls", KB_INDEX_T, kb_index(k, 64));
	struct kb_val base = kb_ptr_add(k, p, at, 0);
	(void)kb_load(k, four, base, kb_index(k, 0), 0, 0);
	(void)kb_load(k, four, base, kb_index(k, 0), 2, 0);
	(void)kb_load(k, four, q, kb_index(k, 0), 0, 0);
	(void)kb_load(k, four, q, kb_index(k, 0), 0, 16);
	(void)kb_load(k, four, p, n, 0, 0);
	(void)kb_load(k, four, p, kb_mul_const(k, n, 4), 8, 0);
	(void)kb_load(k, four, p, kb_bin(k, KB_AND, n, kb_index(k, -8)), 0, 0);
	(void)kb_load(k, four, p, kb_min(k, kb_mul_const(k, n, 16), kb_index(k, 24)), 0, 0);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 8), n, 4, 0);
	(void)kb_load(k, four, p, i, 0, 0);
	(void)kb_load(k, four, p, kb_get(k, falls), 0, 0);
	kb_set(k, falls, kb_add(k, kb_get(k, falls), kb_index(k, 2)));
	kb_end_loop(k);
	kb_end(k);
	ck_assert(!kb_module_failed(t.m));
	check_loads(&t, (const int[]){32, 8, 4, 16, 4, 16, 32, 32, 16, 8, 0});
	teardown(&t);
}
END_TEST

Suite *suite_kb(void)
{
	Suite *s = suite_create("kb");
	TCase *t = tcase_create("all");
	tcase_add_test(t, derives_alignments);
	tcase_add_test(t, dump_reads_like_the_program);
	tcase_add_test(t, indices_fold);
	tcase_add_loop_test(t, misuse_is_reported, 0, (int)TFMC_COUNT(misuses));
	tcase_add_test(t, functions_end_and_differ);
	tcase_add_test(t, tiles_fit_registers);
	tcase_add_test(t, calls_and_conditions);
	tcase_add_test(t, loops_and_variables);
	tcase_add_test(t, lanes);
	tcase_add_test(t, conversions_saturate);
	tcase_add_test(t, accesses_are_checked);
	suite_add_tcase(s, t);
	return s;
}
