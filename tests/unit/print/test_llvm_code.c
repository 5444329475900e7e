/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LLVM printer against the kernel interpreter: memory, vectors, control
 * flow, calls; and what the object files look like.
 */
#include <check.h>
#include <string.h>

#include "backends/object/llvm.h"
#include "ir/support/compiler.h"
#include "tests/support/kernels/llvm_case.h"

static const int32_t ints[32] = {5,  3,  8,  1,  9,  2,  7,  4,  6,  0,  11, 15, 13, 12, 10, 14,
                                 21, 23, 28, 17, 29, 22, 27, 24, 26, 20, 31, 19, 18, 16, 30, 25};

/* ---- memory and vectors ---- */

static void memory(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val zero = kb_index(k, 0);
	static const int reversed[] = {7, 6, 5, 4, 3, 2, 1, 0}, mixed[] = {0, 8, 1, 9}, one[] = {13};
	for (int n = 1; n <= 16; n += 5)
		kb_store(k, kb_load_part(k, KB_TYPE(KB_I32, 16), n, in, zero, n), out, zero, 16 * (n / 5), 4);
	struct kb_val a = kb_load(k, KB_TYPE(KB_I32, 8), in, kb_index(k, 8), 0, 4);
	struct kb_val b = kb_load(k, KB_TYPE(KB_I32, 8), in, zero, 16, 4);
	kb_store_part(k, a, 3, out, kb_index(k, 64), 0);
	kb_store_part(k, kb_shuffle(k, a, (struct kb_val){0}, reversed, 8), 7, out, zero, 72);
	kb_store(k, kb_shuffle(k, a, b, mixed, 4), out, zero, 80, 4);
	kb_store(k, kb_shuffle(k, a, b, one, 1), out, zero, 84, 4);
	kb_store(k, kb_reduce(k, KB_ADD, a), out, zero, 85, 4);
	kb_store(k, kb_reduce(k, KB_MAX, b), out, zero, 86, 4);
	kb_store(k, kb_reduce(k, KB_MIN, b), out, zero, 87, 4);
	kb_store(k, kb_load_splat(k, KB_TYPE(KB_I32, 4), in, kb_index(k, 2), 1), out, zero, 88, 4);
	kb_store(k, kb_lane(k, a, 5), out, zero, 92, 4);
	kb_store(k, kb_lane_ids(k, 8), out, zero, 96, 4);
	struct kb_val bits = kb_bitcast(k, kb_cvt(k, a, KB_F32), KB_I32);
	kb_store(k, bits, kb_ptr_add(k, out, kb_index(k, 400), 16), zero, 0, 4);
	kb_prefetch(k, in, zero, 1 << 20);
}

START_TEST(loads_and_stores)
{
	struct llvm_case c = {memory, NULL, ints, sizeof(ints), 4 * 112};
	llvm_case_check(&c);
}
END_TEST

/* ---- control flow ---- */

/* gcd by a loop without bound, called below with and without a pointer */
static void gcd_functions(struct kb_module *m)
{
	static const int32_t table[] = {10, 20, 30};
	struct kb *k = kb_begin(m, "gcd", KB_INTERNAL, KB_INDEX);
	struct kb_val x = kb_param(k, "x", KB_INDEX_T, 0);
	struct kb_val y = kb_param(k, "y", KB_INDEX_T, 0);
	kb_if(k, kb_cmp(k, KB_LT, x, kb_index(k, 0)));
	kb_return(k, kb_index(k, -1));
	kb_end_if(k);
	struct kb_var a = kb_var(k, "a", KB_INDEX_T, x), b = kb_var(k, "b", KB_INDEX_T, y);
	kb_forever(k);
	kb_break_if(k, kb_cmp(k, KB_EQ, kb_get(k, b), kb_index(k, 0)));
	struct kb_val remaining = kb_bin(k, KB_REM, kb_get(k, a), kb_get(k, b));
	kb_set(k, a, kb_get(k, b));
	kb_set(k, b, remaining);
	kb_end_forever(k);
	kb_return(k, kb_get(k, a));
	kb_end(k);
	kb_data(m, "table", KB_INTERNAL, table, sizeof(table), 64);
}

static void control(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val zero = kb_index(k, 0);
	struct kb_var sum = kb_var(k, "sum", KB_I32_T, kb_i32(k, 0));
	struct kb_val local = kb_local(k, "local", KB_I32, 32);
	struct kb_val n = kb_cvt(k, kb_load(k, KB_I32_T, in, zero, 0, 4), KB_INDEX);
	struct kb_val i = kb_loop(k, "i", zero, kb_index(k, 32), 1, KB_NONEMPTY);
	struct kb_val v = kb_load(k, KB_I32_T, in, i, 0, 4);
	kb_if(k, kb_cmp(k, KB_GT, v, kb_i32(k, 15)));
	kb_set(k, sum, kb_add(k, kb_get(k, sum), v));
	kb_else(k);
	struct kb_val j = kb_loop(k, "j", n, i, 3, 0); /* empty while i <= n */
	kb_set(k, sum, kb_add(k, kb_get(k, sum), kb_cvt(k, j, KB_I32)));
	kb_end_loop(k);
	kb_end_if(k);
	kb_store(k, kb_get(k, sum), local, i, 0, 4);
	kb_end_loop(k);
	struct kb_val c = kb_loop(k, "copy", zero, kb_index(k, 32), 16, 0);
	kb_store(k, kb_load(k, KB_TYPE(KB_I32, 16), local, c, 0, 64), out, c, 0, 4);
	kb_end_loop(k);
	struct kb_val args[] = {kb_index(k, 84), kb_index(k, 36)};
	kb_store(k, kb_cvt(k, kb_call(k, "gcd", KB_INDEX, args, 2), KB_I32), out, zero, 32, 4);
	struct kb_val negative[] = {kb_index(k, -3), kb_index(k, 36)};
	struct kb_val through = kb_call_ptr(k, kb_func_addr(k, "gcd"), KB_INDEX, negative, 2);
	kb_store(k, kb_cvt(k, through, KB_I32), out, zero, 33, 4);
	kb_store(k, kb_load(k, KB_I32_T, kb_symbol(k, "table"), zero, 2, 4), out, zero, 34, 4);
	struct kb_val word = kb_ptr_add(k, out, kb_index(k, 140), 0);
	kb_atomic_store(k, kb_i32(k, 40), word, 0);
	struct kb_val old = kb_atomic_add(k, kb_i32(k, 2), word, 0);
	kb_pause(k);
	kb_store(k, kb_bin(k, KB_ADD, old, kb_atomic_load(k, word, 0)), out, zero, 36, 4);
}

START_TEST(branches_and_calls)
{
	struct llvm_case c = {control, gcd_functions, ints, sizeof(ints), 4 * 37};
	llvm_case_check(&c);
}
END_TEST

#if defined(__x86_64__)
struct compiled {
	struct arena arena;
	struct buf log, object, text, assembly;
	struct diag_context cx;
	enum tfmc_status status;
};

static void compile(struct compiled *c, llvm_case_module *functions_of, const struct llvm_options *o)
{
	struct kb_caps caps = kb_caps_of(o->target);
	arena_init(&c->arena);
	buf_init(&c->log);
	buf_init(&c->object);
	buf_init(&c->text);
	buf_init(&c->assembly);
	diag_init(&c->cx, diag_render_text, &c->log);
	struct kb_module *m = kb_module_create(&c->arena, &caps);
	functions_of(m);
	struct llvm_output out = {&c->object, &c->text, &c->assembly};
	c->status = llvm_compile(&c->cx, m, "code", o, &out);
}

static void release(struct compiled *c)
{
	buf_destroy(&c->log);
	buf_destroy(&c->object);
	buf_destroy(&c->text);
	buf_destroy(&c->assembly);
	diag_destroy(&c->cx);
	arena_destroy(&c->arena);
}

static void add_one(struct kb_module *m)
{
	struct kb *k = kb_begin(m, "add_one", KB_EXPORTED, KB_VOID);
	struct kb_val p = kb_param(k, "values", KB_PTR_T, KB_NOALIAS);
	struct kb_type t = KB_TYPE(KB_F32, 16);
	struct kb_val v = kb_load(k, t, p, kb_index(k, 0), 0, 4);
	struct kb_val one = kb_splat(k, kb_f32(k, 1), 16);
	kb_store(k, kb_fma(k, v, v, one), p, kb_index(k, 0), 0, 4);
	kb_end(k);
}

START_TEST(text_says_what_was_meant)
{
	struct compiled c;
	struct llvm_options o = {.target = target_find("x86-64-v4"), .opt_level = 2};
	compile(&c, add_one, &o);
	ck_assert_int_eq(c.status, TFMC_OK);
	ck_assert_ptr_nonnull(strstr(c.text.data, "ptr noalias noundef %values"));
	ck_assert_ptr_nonnull(strstr(c.text.data, "\"target-cpu\"=\"x86-64-v4\""));
	ck_assert_ptr_nonnull(strstr(c.text.data, "llvm.fma.v16f32"));
	ck_assert_ptr_nonnull(strstr(c.assembly.data, "%zmm"));
	ck_assert_ptr_nonnull(strstr(c.assembly.data, "vfmadd"));
	ck_assert_ptr_nonnull(strstr(c.assembly.data, "endbr64"));
	ck_assert_mem_eq(c.object.data, "\177ELF", 4);
	release(&c);
}
END_TEST

static void two_functions(struct kb_module *m)
{
	add_one(m);
	struct kb *k = kb_begin(m, "nothing", KB_EXPORTED, KB_VOID);
	kb_end(k);
}

static void hear(void *user, const struct progress_state *s)
{
	uint64_t *heard = user;
	*heard += 1;
	ck_assert_uint_eq(s->done, (*heard + 1) % 2 + 1);
	ck_assert_uint_eq(s->total, 2);
	ck_assert_str_eq(s->name, *heard <= 2 ? "assembly" : "machine code");
}

/* Each function is counted in the text and in the object. */
START_TEST(progress_counts_functions)
{
	struct compiled c;
	uint64_t heard = 0;
	const struct progress progress = {hear, &heard};
	struct llvm_options o = {.target = target_find("x86-64-v4"), .opt_level = 2, .progress = &progress};
	compile(&c, two_functions, &o);
	ck_assert_int_eq(c.status, TFMC_OK);
	ck_assert_uint_eq(heard, 4);
	release(&c);
}
END_TEST

static void add_one_anywhere(struct kb_module *m)
{
	struct kb_caps caps = kb_caps_of(target_find("x86-64-v4"));
	kb_module_set_variant(m, KB_BASELINE, &caps);
	add_one(m);
}

/* The same functions for a processor without them: no wide register, no library call for fma. */
START_TEST(baseline_functions_stay_baseline)
{
	struct compiled c;
	struct llvm_options o = {.target = target_find("x86-64-v4")};
	compile(&c, add_one_anywhere, &o);
	ck_assert_int_eq(c.status, TFMC_OK);
	ck_assert_ptr_null(strstr(c.assembly.data, "%ymm"));
	ck_assert_ptr_null(strstr(c.assembly.data, "%zmm"));
	release(&c);
	o = (struct llvm_options){.target = target_find("x86-64-v2")};
	compile(&c, add_one, &o);
	ck_assert_ptr_null(strstr(c.assembly.data, "fmaf"));
	release(&c);
}
END_TEST

START_TEST(same_bytes_twice)
{
	struct compiled a, b;
	struct llvm_options o = {.target = target_find("x86-64-v3"), .opt_level = 2};
	compile(&a, gcd_functions, &o);
	compile(&b, gcd_functions, &o);
	ck_assert_uint_eq(a.object.len, b.object.len);
	ck_assert_mem_eq(a.object.data, b.object.data, a.object.len);
	ck_assert_str_eq(a.text.data, b.text.data);
	release(&a);
	release(&b);
}
END_TEST
#endif

Suite *suite_llvm_code(void)
{
	Suite *s = suite_create("llvm_code");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, loads_and_stores);
	tcase_add_test(t, branches_and_calls);
#if defined(__x86_64__)
	tcase_add_test(t, text_says_what_was_meant);
	tcase_add_test(t, progress_counts_functions);
	tcase_add_test(t, baseline_functions_stay_baseline);
	tcase_add_test(t, same_bytes_twice);
#endif
	suite_add_tcase(s, t);
	return s;
}
