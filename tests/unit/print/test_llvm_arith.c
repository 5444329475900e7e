/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The LLVM printer against the kernel interpreter: arithmetic, compares,
 * conversions, on one lane, on native vectors and on wider ones.
 */
#include <check.h>
#include <math.h>

#include "ir/support/compiler.h"
#include "tests/support/kernels/llvm_case.h"

#define LANES 16

struct floats {
	float a[LANES], b[LANES], c[LANES];
};

/* Exact in f32 with one or two roundings, so that machines without fma agree. */
static const struct floats numbers = {
        .a = {1, -2, 3.5f, 0, -0.0f, 100, 0.25f, -7, NAN, 1, INFINITY, -INFINITY, 8, 9, 1e-40f, -3},
        .b = {2, 2, -0.5f, 1, 4, 10, 0.5f, 2, 1, NAN, 2, 3, 4, -3, 1, 0.5f},
        .c = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
};

static struct kb_val load(struct kb *k, struct kb_val in, int lanes, int array)
{
	return kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), (int64_t)array * LANES, 4);
}

static int64_t put(struct kb *k, struct kb_val v, struct kb_val out, int64_t at)
{
	struct kb_type t = kb_type_of(k, v);
	if (t.scalar == KB_BOOL)
		v = kb_cvt(k, v, KB_I32);
	kb_store(k, v, out, kb_index(k, 0), at, 4);
	return at + t.lanes;
}

static void float_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const int lanes[] = {1, 4, 8, 16};
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(lanes); i++) {
		struct kb_val a = load(k, in, lanes[i], 0), b = load(k, in, lanes[i], 1);
		for (int op = KB_ADD; op <= KB_MAX; op++)
			if (op != KB_REM)
				at = put(k, kb_bin(k, (enum kb_bin)op, a, b), out, at);
		for (int op = KB_NEG; op <= KB_CEIL; op++)
			if (op != KB_SQRT)
				at = put(k, kb_un(k, (enum kb_un)op, a), out, at);
		at = put(k, kb_un(k, KB_SQRT, kb_un(k, KB_ABS, a)), out, at);
		at = put(k, kb_fma(k, a, b, load(k, in, lanes[i], 2)), out, at);
		for (int op = KB_LT; op <= KB_NE; op++) {
			struct kb_val c = kb_cmp(k, (enum kb_cmp)op, a, b);
			at = put(k, c, out, at);
			at = put(k, kb_select(k, c, b, a), out, at);
		}
	}
}

START_TEST(computes_floats)
{
	/* NaN payloads are not part of the contract: they are told apart only by being NaN. */
	struct floats in = numbers;
	in.a[8] = 2;
	in.b[9] = 0.5f;
	in.a[11] = -4; /* inf - inf */
	in.a[10] = 16;
	struct llvm_case c = {float_ops, NULL, &in, sizeof(in), 4 * 29 * (1 + 4 + 8 + 16)};
	llvm_case_check(&c);
}
END_TEST

/* min, max, compares and selects say what happens to NaN. */
static void nan_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	struct kb_val a = load(k, in, LANES, 0), b = load(k, in, LANES, 1);
	struct kb_val least = kb_min(k, a, b), most = kb_max(k, a, b);
	at = put(k, kb_cmp(k, KB_EQ, least, least), out, at);
	at = put(k, kb_cmp(k, KB_EQ, most, most), out, at);
	for (int op = KB_LT; op <= KB_NE; op++)
		at = put(k, kb_cmp(k, (enum kb_cmp)op, a, b), out, at);
	at = put(k, kb_cvt(k, a, KB_I32), out, at);
}

START_TEST(orders_nan)
{
	struct llvm_case c = {nan_ops, NULL, &numbers, sizeof(numbers), 4 * LANES * 9};
	llvm_case_check(&c);
}
END_TEST

/* ---- integers ---- */

static void int_ops_of(struct kb *k, struct kb_val in, struct kb_val out, enum kb_scalar s)
{
	struct kb_type t = KB_TYPE(s, 4);
	struct kb_val a = kb_load(k, t, in, kb_index(k, 0), 0, 0);
	struct kb_val b = kb_load(k, t, in, kb_index(k, 0), 4, 0);
	struct kb_val small = kb_bin(k, KB_AND, b, kb_splat(k, kb_cvt(k, kb_index(k, 7), s), 4));
	for (int op = KB_ADD; op <= KB_SAR; op++) {
		struct kb_val right = op >= KB_SHL ? small : b;
		kb_store(k, kb_bin(k, (enum kb_bin)op, a, right), out, kb_index(k, 0), 4 * (int64_t)op, 0);
	}
	kb_store(k, kb_un(k, KB_NEG, a), out, kb_index(k, 0), 4 * 13, 0);
	kb_store(k, kb_un(k, KB_ABS, a), out, kb_index(k, 0), 4 * 14, 0);
	kb_store(k, kb_un(k, KB_NOT, a), out, kb_index(k, 0), 4 * 15, 0);
}

static void i32_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int_ops_of(k, in, out, KB_I32);
}

static void i64_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int_ops_of(k, in, out, KB_I64);
}

START_TEST(computes_integers)
{
	static const int32_t narrow[] = {7, -9, INT32_MAX, 12345, 3, 4, -2, 1000};
	static const int64_t wide[] = {7, -9, INT64_MAX, 1234567890123, 3, 4, -2, 1000};
	struct llvm_case c = {i32_ops, NULL, narrow, sizeof(narrow), 4 * 4 * 16};
	llvm_case_check(&c);
	c = (struct llvm_case){i64_ops, NULL, wide, sizeof(wide), 8 * 4 * 16};
	llvm_case_check(&c);
}
END_TEST

/* ---- conversions ---- */

#define HALVES 65536

/* All bit patterns of a small float to f32 and back; NaN stays NaN but not its payload. */
static void every_small(struct kb *k, struct kb_val in, struct kb_val out, enum kb_scalar s)
{
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, HALVES), 8, KB_NONEMPTY);
	struct kb_val v = kb_load(k, KB_TYPE(s, 8), in, i, 0, 2);
	struct kb_val wide = kb_cvt(k, v, KB_F32);
	struct kb_val is_number = kb_cmp(k, KB_EQ, wide, wide);
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), 8);
	struct kb_val clean = kb_select(k, is_number, wide, zero);
	kb_store(k, clean, out, i, 0, 4);
	kb_store(k, kb_cvt(k, clean, s), out, i, (int64_t)HALVES * 2, 2);
	kb_end_loop(k);
}

static void every_f16(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_F16);
}

static void every_bf16(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_BF16);
}

START_TEST(reads_every_small_float)
{
	static uint16_t all[HALVES];
	for (uint32_t i = 0; i < HALVES; i++)
		all[i] = (uint16_t)i;
	struct llvm_case c = {every_f16, NULL, all, sizeof(all), HALVES * 6};
	llvm_case_check(&c);
	c.body = every_bf16;
	llvm_case_check(&c);
}
END_TEST

#define ROUNDED 4096

static void round_floats(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, ROUNDED), 4, KB_NONEMPTY);
	struct kb_val d = kb_load(k, KB_TYPE(KB_F64, 4), in, i, 0, 8);
	struct kb_val f = kb_cvt(k, d, KB_F32);
	int64_t at = 0;
	static const enum kb_scalar to[] = {KB_F16, KB_BF16};
	for (size_t t = 0; t < 2; t++) {
		kb_store(k, kb_cvt(k, d, to[t]), out, i, at, 2);
		kb_store(k, kb_cvt(k, f, to[t]), out, i, at + ROUNDED, 2);
		at += 2 * ROUNDED;
	}
	kb_end_loop(k);
}

/* Numbers near the points where f16 and bf16 round, of all sizes. */
START_TEST(rounds_to_small_floats)
{
	static double values[ROUNDED];
	uint64_t x = 88172645463325252u;
	for (int i = 0; i < ROUNDED; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		double scale = ldexp(1.0, (int)(x % 60) - 40);
		double steps = (double)((x >> 8) % 4096);
		double nudge = (x >> 24) % 3 == 0 ? 0.0 : ((x >> 26) & 1 ? 1e-12 : -1e-12);
		values[i] = ((x >> 30) & 1 ? -1 : 1) * scale * (1 + steps / 4096 + nudge);
	}
	values[0] = INFINITY, values[1] = -INFINITY, values[2] = 65519.999, values[3] = 65520, values[4] = 0;
	values[5] = -0.0, values[6] = 1e300, values[7] = 3.3895313e38, values[8] = 1e-45,
	values[9] = 2.98023223876953125e-8;
	struct llvm_case c = {round_floats, NULL, values, sizeof(values), (size_t)ROUNDED * 8};
	llvm_case_check(&c);
}
END_TEST

static void convert_numbers(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar ints[] = {KB_I8, KB_U8, KB_I16, KB_I32, KB_I64};
	int64_t at = 0;
	struct kb_val f = kb_load(k, KB_TYPE(KB_F32, 8), in, kb_index(k, 0), 0, 4);
	for (size_t i = 0; i < TFMC_COUNT(ints); i++) {
		struct kb_val v = kb_cvt(k, f, ints[i]);
		at = put(k, kb_cvt(k, v, KB_F32), out, at);
		at = put(k, kb_cvt(k, v, KB_I32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, kb_cvt(k, v, KB_F64), KB_I64), KB_I32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, v, KB_BF16), KB_F32), out, at);
	}
}

START_TEST(converts_numbers)
{
	static const float values[] = {0.9f, -1.9f, 127.5f, 300, -300, 3e9f, -1e20f, NAN};
	struct llvm_case c = {convert_numbers, NULL, values, sizeof(values), 5 * 4 * 8 * 4};
	llvm_case_check(&c);
}
END_TEST

Suite *suite_llvm_arith(void)
{
	Suite *s = suite_create("llvm_arith");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, computes_floats);
	tcase_add_test(t, orders_nan);
	tcase_add_test(t, computes_integers);
	tcase_add_test(t, reads_every_small_float);
	tcase_add_test(t, rounds_to_small_floats);
	tcase_add_test(t, converts_numbers);
	suite_add_tcase(s, t);
	return s;
}
