/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of the builder as OpenCL C: floats, integers, bools and conversions
 * on odd values at every lane count, run on a device and compared byte for byte
 * with the kernel interpreter.
 */
#include <check.h>
#include <math.h>

#include "tests/support/random/dot_case.h"
#include "tests/support/opencl/opencl_numbers.h"

/* ---- floats ---- */

static void float_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++) {
		int n = all_lanes[i];
		struct kb_val a = load(k, in, n, 0), b = load(k, in, n, 1);
		for (int op = KB_ADD; op <= KB_MAX; op++)
			if (op != KB_REM && op != KB_DIV)
				at = put(k, kb_bin(k, (enum kb_bin)op, a, b), out, at);
		for (int op = KB_NEG; op <= KB_CEIL; op++)
			if (op != KB_SQRT)
				at = put(k, kb_un(k, (enum kb_un)op, a), out, at);
		at = put(k, kb_fma(k, a, b, load(k, in, n, 2)), out, at);
		for (int op = KB_LT; op <= KB_NE; op++) {
			struct kb_val c = kb_cmp(k, (enum kb_cmp)op, a, b);
			at = put(k, c, out, at);
			at = put(k, kb_un(k, KB_NOT, c), out, at);
			at = put(k, kb_select(k, c, b, a), out, at);
		}
	}
}

START_TEST(computes_floats)
{
	struct opencl_case c = {
	        .body = float_ops, .in = &numbers, .in_bytes = sizeof(numbers), .out_bytes = 4 * 28 * 31};
	opencl_case_check(&c);
}
END_TEST

/* A product and a sum are two roundings unless an fma is asked for. */
static void round_twice(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val a = load(k, in, 8, 0), b = load(k, in, 8, 1), c = load(k, in, 8, 2);
	put(k, kb_add(k, kb_mul(k, a, b), c), out, 0);
	put(k, kb_sub(k, c, kb_mul(k, a, b)), out, 8);
	struct kb_val x = load(k, in, 1, 0), y = load(k, in, 1, 1), z = load(k, in, 1, 2);
	put(k, kb_add(k, kb_mul(k, x, y), z), out, 16);
}

START_TEST(contracts_nothing)
{
	struct floats in;
	for (int i = 0; i < LANES; i++) {
		in.a[i] = 1.0f + (float)(2 * i + 1) * 0x1p-20f;
		in.b[i] = 1.0f - (float)(3 * i + 1) * 0x1p-21f;
		in.c[i] = -1.0f;
	}
	struct opencl_case c = {.body = round_twice, .in = &in, .in_bytes = sizeof(in), .out_bytes = 4 * 17};
	opencl_case_check(&c);
}
END_TEST

/* min, max, compares, selects and conversions say what happens to NaN and infinity. */
static void nan_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++) {
		int n = all_lanes[i];
		struct kb_val a = load(k, in, n, 0), b = load(k, in, n, 1);
		struct kb_val least = kb_min(k, a, b), most = kb_max(k, a, b);
		at = put(k, kb_cmp(k, KB_EQ, least, least), out, at);
		at = put(k, kb_cmp(k, KB_EQ, most, most), out, at);
		for (int op = KB_LT; op <= KB_NE; op++)
			at = put(k, kb_cmp(k, (enum kb_cmp)op, a, b), out, at);
		at = put(k, kb_cvt(k, a, KB_I32), out, at);
		struct kb_val huge = kb_splat(k, kb_f32(k, -INFINITY), n);
		at = put(k, kb_max(k, a, huge), out, at);
		at = put(k, kb_bitcast(k, kb_splat(k, kb_f32(k, INFINITY), n), KB_I32), out, at);
	}
}

START_TEST(orders_nan)
{
	struct floats in = numbers;
	static const float a[] = {NAN, 1, INFINITY, -INFINITY, 1e30f, -1e30f, 1e-40f, -0.0f};
	static const float b[] = {1, NAN, 2, 3, NAN, -INFINITY, 0, 0};
	for (int i = 0; i < LANES; i++) {
		in.a[i] = a[i % 8];
		in.b[i] = b[i % 8];
	}
	/* the maximum of NaN and -inf is -inf by its rule: no NaN reaches the output */
	struct opencl_case c = {.body = nan_ops, .in = &in, .in_bytes = sizeof(in), .out_bytes = 4 * 11 * 31};
	opencl_case_check(&c);
}
END_TEST

/* Division and square root may miss by a few units in the last place; here they are exact. */
static void divide(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++) {
		struct kb_val a = load(k, in, all_lanes[i], 0), b = load(k, in, all_lanes[i], 1);
		at = put(k, kb_bin(k, KB_DIV, a, b), out, at);
		at = put(k, kb_un(k, KB_SQRT, kb_mul(k, a, a)), out, at);
	}
}

START_TEST(divides)
{
	struct floats in = numbers;
	for (int i = 0; i < LANES; i++)
		in.b[i] = ldexpf(i % 2 ? -1 : 1, i - 8);
	struct opencl_case c = {.body = divide, .in = &in, .in_bytes = sizeof(in), .out_bytes = 4 * 2 * 31};
	opencl_case_check(&c);
}
END_TEST

static void constants(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const float values[] = {0,         -0.0f,           1,     -1,    0.1f,     3.4028235e38f,
	                               1e-45f,    -1e-40f,         65535, 65536, INFINITY, 1e30f,
	                               -INFINITY, 1.17549435e-38f, 0.5f,  -2.75f};
	(void)in;
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(values); i++)
		at = put(k, kb_f32(k, values[i]), out, at);
	at = put(k, kb_bitcast(k, kb_f32(k, NAN), KB_I32), out, at);
	static const int32_t ints[] = {0, -1, INT32_MIN, INT32_MAX};
	for (size_t i = 0; i < TFMC_COUNT(ints); i++)
		at = put(k, kb_i32(k, ints[i]), out, at);
	static const int64_t wide[] = {0, -1, INT64_MIN, INT64_MAX, 0x123456789abcdef};
	for (size_t i = 0; i < TFMC_COUNT(wide); i++)
		kb_store(k, kb_i64(k, wide[i]), out, zero(k), 12 + (int64_t)i, 8);
	kb_store(k, kb_index(k, -7), out, zero(k), 17, 8);
	kb_store(k, kb_lane_ids(k, 16), out, zero(k), 36, 4);
	kb_store(k, kb_lane_ids(k, 1), out, zero(k), 52, 4);
}

START_TEST(prints_constants)
{
	struct opencl_case c = {.body = constants, .in = &numbers, .in_bytes = 4, .out_bytes = 4 * 53};
	opencl_case_check(&c);
}
END_TEST

/* ---- integers ---- */

static int64_t int_ops_of(struct kb *k, struct kb_val in, struct kb_val out, enum kb_scalar s, int lanes,
                          int64_t at)
{
	struct kb_type t = KB_TYPE(s, lanes);
	struct kb_val a = kb_load(k, t, in, zero(k), 0, 0);
	struct kb_val b = kb_load(k, t, in, zero(k), 4, 0);
	struct kb_val c, small = kb_bin(k, KB_AND, b, kb_splat(k, kb_cvt(k, kb_index(k, 7), s), lanes));
	for (int op = KB_ADD; op <= KB_SAR; op++, at += lanes)
		kb_store(k, kb_bin(k, (enum kb_bin)op, a, op >= KB_SHL ? small : b), out, zero(k), at, 0);
	for (int op = KB_NEG; op <= KB_NOT; op++, at += lanes)
		if (op == KB_NEG || op == KB_ABS || op == KB_NOT)
			kb_store(k, kb_un(k, (enum kb_un)op, a), out, zero(k), at, 0);
	for (int op = KB_LT; op <= KB_NE; op++, at += 2 * (int64_t)lanes) {
		c = kb_cmp(k, (enum kb_cmp)op, a, b);
		kb_store(k, kb_select(k, c, a, b), out, zero(k), at, 0);
		kb_store(k, kb_cvt(k, c, s), out, zero(k), at + lanes, 0);
	}
	return at;
}

static void i32_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = int_ops_of(k, in, out, KB_I32, 4, 0);
	int_ops_of(k, in, out, KB_I32, 1, at);
}

static void i64_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = int_ops_of(k, in, out, KB_I64, 4, 0);
	int_ops_of(k, in, out, KB_I64, 1, at);
}

static void index_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = int_ops_of(k, in, out, KB_INDEX, 4, 0);
	int_ops_of(k, in, out, KB_INDEX, 1, at);
}

START_TEST(computes_integers)
{
	static const int32_t narrow[] = {7, -9, INT32_MAX, INT32_MIN, 3, 4, -2, 1000};
	static const int64_t wide[] = {7, -9, INT64_MAX, 1234567890123, 3, 4, -2, 1000};
	static const int64_t small[] = {7, 9, 100000, 12345, 3, 4, 2, 1000};
	struct opencl_case c = {
	        .body = i32_ops, .in = narrow, .in_bytes = sizeof(narrow), .out_bytes = 4 * 31 * 5};
	opencl_case_check(&c);
	c = (struct opencl_case){
	        .body = i64_ops, .in = wide, .in_bytes = sizeof(wide), .out_bytes = 8 * 31 * 5};
	opencl_case_check(&c);
	c.body = index_ops; /* does not wrap, by contract */
	c.in = small;
	opencl_case_check(&c);
}
END_TEST

/* Narrow integers: bits, compares, both widths of their conversions. */
static void narrow_ops_of(struct kb *k, struct kb_val in, struct kb_val out, enum kb_scalar s, int lanes,
                          int64_t *at)
{
	struct kb_type t = KB_TYPE(s, lanes);
	struct kb_val a = kb_load(k, t, in, zero(k), 0, 0), b = kb_load(k, t, in, zero(k), 8, 0);
	*at = put(k, kb_bin(k, KB_AND, a, b), out, *at);
	*at = put(k, kb_bin(k, KB_OR, a, b), out, *at);
	*at = put(k, kb_bin(k, KB_XOR, a, b), out, *at);
	*at = put(k, kb_un(k, KB_NOT, a), out, *at);
	*at = put(k, kb_sub(k, kb_bin(k, KB_AND, a, b), b), out, *at);
	for (int op = KB_LT; op <= KB_NE; op++) {
		struct kb_val c = kb_cmp(k, (enum kb_cmp)op, a, b);
		*at = put(k, c, out, *at);
		*at = put(k, kb_select(k, c, a, b), out, *at);
	}
	*at = put(k, kb_cvt(k, a, KB_F32), out, *at);
	*at = put(k, kb_cvt(k, kb_cvt(k, kb_cvt(k, a, KB_I32), KB_I64), s), out, *at);
}

static void narrow_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar types[] = {KB_I8, KB_U8, KB_I16, KB_U16};
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(types); i++) {
		narrow_ops_of(k, in, out, types[i], 1, &at);
		narrow_ops_of(k, in, out, types[i], 8, &at);
	}
}

START_TEST(computes_narrow_integers)
{
	static const unsigned char bytes[32] = {200, 5,  127, 128, 255, 0,  1,  77, 3,   250, 127,
	                                        127, 0,  0,   254, 78,  9,  81, 12, 130, 128, 7,
	                                        90,  91, 12,  210, 11,  19, 21, 1,  17,  3};
	struct opencl_case c = {
	        .body = narrow_ops, .in = bytes, .in_bytes = sizeof(bytes), .out_bytes = 4 * 4 * 19 * 9};
	opencl_case_check(&c);
}
END_TEST

/* Bools: combined, spread, picked out, kept in variables. */
static void bool_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++) {
		int n = all_lanes[i];
		struct kb_val a = kb_cmp(k, KB_LT, load(k, in, n, 0), load(k, in, n, 1));
		struct kb_val b = kb_cmp(k, KB_GE, load(k, in, n, 0), load(k, in, n, 2));
		struct kb_var v = kb_var(k, "mask", KB_TYPE(KB_BOOL, n), a);
		kb_set(k, v, kb_bin(k, KB_AND, kb_get(k, v), kb_un(k, KB_NOT, b)));
		at = put(k, kb_get(k, v), out, at);
		at = put(k, kb_bin(k, KB_OR, a, b), out, at);
		at = put(k, kb_bin(k, KB_XOR, a, kb_splat(k, kb_bool(k, true), n)), out, at);
		struct kb_val one = kb_lane(k, a, n - 1);
		at = put(k, kb_splat(k, one, n), out, at);
		at = put(k, kb_select(k, one, load(k, in, n, 0), load(k, in, n, 2)), out, at);
		at = put(k, kb_select(k, b, a, kb_splat(k, kb_bool(k, false), n)), out, at);
		at = put(k, kb_cvt(k, a, KB_F32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, a, KB_U8), KB_I32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, a, KB_BF16), KB_F32), out, at);
	}
}

START_TEST(combines_bools)
{
	struct opencl_case c = {
	        .body = bool_ops, .in = &numbers, .in_bytes = sizeof(numbers), .out_bytes = 4 * 9 * 31};
	opencl_case_check(&c);
}
END_TEST

/* ---- conversions ---- */

#define HALVES 65536

/* All bit patterns of a small float to f32 and back; NaN stays NaN but not its payload. */
static void every_small(struct kb *k, struct kb_val in, struct kb_val out, enum kb_scalar s, int lanes)
{
	struct kb_val i = kb_loop(k, "i", zero(k), kb_index(k, HALVES), lanes, KB_NONEMPTY);
	struct kb_val wide = kb_cvt(k, kb_load(k, KB_TYPE(s, lanes), in, i, 0, 2), KB_F32);
	struct kb_val is_number = kb_cmp(k, KB_EQ, wide, wide);
	struct kb_val clean = kb_select(k, is_number, wide, kb_splat(k, kb_f32(k, 0), lanes));
	kb_store(k, clean, out, i, 0, 4);
	kb_store(k, kb_cvt(k, clean, s), out, i, (int64_t)HALVES * 2, 2);
	kb_end_loop(k);
}

static void every_f16(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_F16, 8);
}

static void every_bf16(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_BF16, 8);
}

static void every_f16_alone(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_F16, 1);
}

static void every_bf16_alone(struct kb *k, struct kb_val in, struct kb_val out)
{
	every_small(k, in, out, KB_BF16, 1);
}

START_TEST(reads_every_small_float)
{
	static opencl_case_body *const bodies[] = {every_f16, every_bf16, every_f16_alone, every_bf16_alone};
	static uint16_t all[HALVES];
	for (uint32_t i = 0; i < HALVES; i++)
		all[i] = (uint16_t)i;
	for (size_t i = 0; i < TFMC_COUNT(bodies); i++) {
		struct opencl_case c = {
		        .body = bodies[i], .in = all, .in_bytes = sizeof(all), .out_bytes = HALVES * 6};
		opencl_case_check(&c);
	}
}
END_TEST

#define ROUNDED 4096

static void round_floats(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar to[] = {KB_F16, KB_BF16};
	struct kb_val i = kb_loop(k, "i", zero(k), kb_index(k, ROUNDED), 4, KB_NONEMPTY);
	struct kb_val f = kb_load(k, KB_TYPE(KB_F32, 4), in, i, 0, 4);
	for (int64_t t = 0; t < 2; t++)
		kb_store(k, kb_cvt(k, f, to[t]), out, i, t * ROUNDED, 2);
	kb_end_loop(k);
}

/* Numbers near the points where f16 and bf16 round, of all sizes. */
START_TEST(rounds_to_small_floats)
{
	static float values[ROUNDED];
	uint64_t x = 88172645463325252u;
	for (int i = 0; i < ROUNDED; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		double scale = ldexp(1.0, (int)(x % 60) - 40);
		double steps = (double)((x >> 8) % 4096);
		double nudge = (x >> 24) % 3 == 0 ? 0.0 : ((x >> 26) & 1 ? 1e-7 : -1e-7);
		values[i] = (float)(((x >> 30) & 1 ? -1 : 1) * scale * (1 + steps / 4096 + nudge));
	}
	values[0] = INFINITY, values[1] = -INFINITY, values[2] = 65519.996f, values[3] = 65520, values[4] = 0;
	values[5] = -0.0f, values[6] = 3.3895313e38f, values[7] = 1e-45f, values[8] = 2.98023223876953125e-8f;
	struct opencl_case c = {.body = round_floats,
	                        .in = values,
	                        .in_bytes = sizeof(values),
	                        .out_bytes = (size_t)ROUNDED * 4};
	opencl_case_check(&c);
}
END_TEST

static int64_t convert_lanes(struct kb *k, struct kb_val f, struct kb_val out, int64_t at)
{
	static const enum kb_scalar ints[] = {KB_I8, KB_U8, KB_I16, KB_I32, KB_I64};
	for (size_t i = 0; i < TFMC_COUNT(ints); i++) {
		struct kb_val v = kb_cvt(k, f, ints[i]);
		at = put(k, kb_cvt(k, v, KB_F32), out, at);
		at = put(k, kb_cvt(k, v, KB_I32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, v, KB_BF16), KB_F32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, v, KB_F16), KB_F32), out, at);
		at = put(k, kb_cvt(k, kb_cvt(k, v, KB_INDEX), KB_I32), out, at);
	}
	at = put(k, kb_cvt(k, kb_cvt(k, f, KB_F16), KB_I32), out, at);
	at = put(k, kb_cvt(k, kb_cvt(k, f, KB_BF16), KB_U8), out, at);
	return at;
}

static void convert_numbers(struct kb *k, struct kb_val in, struct kb_val out)
{
	int64_t at = 0;
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++)
		at = convert_lanes(k, load(k, in, all_lanes[i], 0), out, at);
	for (int lane = 0; lane < LANES; lane++)
		at = convert_lanes(k, kb_load(k, KB_F32_T, in, zero(k), lane, 4), out, at);
}

START_TEST(converts_numbers)
{
	static const float values[] = {0.9f,   -1.9f, 127.5f,   300,      -300,       3e9f,
	                               -1e20f, NAN,   1e20f,    16777220, 2139095040, -2139095040,
	                               8.6e9f, -0.0f, INFINITY, -INFINITY};
	struct opencl_case c = {.body = convert_numbers,
	                        .in = values,
	                        .in_bytes = sizeof(values),
	                        .out_bytes = 4 * 27 * (31 + LANES)};
	opencl_case_check(&c);
}
END_TEST

/* Wide integers to bf16 round once. */
static void round_integers(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val i = kb_loop(k, "i", zero(k), kb_index(k, 64), 4, KB_NONEMPTY);
	struct kb_val v = kb_load(k, KB_TYPE(KB_I64, 4), in, i, 0, 8);
	struct kb_val n = kb_cvt(k, v, KB_I32);
	kb_store(k, kb_cvt(k, v, KB_BF16), out, i, 0, 2);
	kb_store(k, kb_cvt(k, n, KB_BF16), out, i, 64, 2);
	kb_store(k, kb_cvt(k, n, KB_F16), out, i, 128, 2);
	kb_store(k, kb_cvt(k, kb_lane(k, v, 0), KB_BF16), out, i, 192, 2);
	kb_store(k, kb_cvt(k, v, KB_F32), out, i, 128, 4);
	kb_end_loop(k);
}

START_TEST(rounds_integers_once)
{
	int64_t values[64];
	for (int i = 0; i < 64; i++) {
		int64_t bit = (int64_t)1 << (i < 62 ? i : 61);
		/* just above, at and below a tie of bf16 */
		values[i] = bit + (bit >> 8) + (i % 3 - 1) * (bit > 1 << 20 ? (bit >> 52) + 1 : 0);
		if (i % 5 == 4)
			values[i] = -values[i];
	}
	values[62] = INT64_MAX, values[63] = INT64_MIN;
	struct opencl_case c = {
	        .body = round_integers, .in = values, .in_bytes = sizeof(values), .out_bytes = 768};
	opencl_case_check(&c);
}
END_TEST

static void bitcasts(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct kb_val f = load(k, in, 4, 0);
	int64_t at = put(k, kb_bitcast(k, f, KB_I32), out, 0);
	at = put(k, kb_bitcast(k, kb_bitcast(k, f, KB_I32), KB_F32), out, at);
	at = put(k, kb_bitcast(k, kb_lane(k, f, 1), KB_I32), out, at);
	struct kb_val h = kb_load(k, KB_TYPE(KB_F16, 4), in, zero(k), 0, 2);
	at = put(k, kb_cvt(k, kb_bitcast(k, h, KB_I16), KB_I32), out, at);
	at = put(k, kb_cvt(k, kb_bitcast(k, kb_bitcast(k, h, KB_BF16), KB_I16), KB_I32), out, at);
	struct kb_val u = kb_load(k, KB_TYPE(KB_U8, 4), in, zero(k), 0, 1);
	at = put(k, kb_cvt(k, kb_bitcast(k, u, KB_I8), KB_I32), out, at);
	struct kb_val w = kb_cvt(k, kb_bitcast(k, f, KB_I32), KB_I64);
	at = put(k, kb_cvt(k, kb_bitcast(k, kb_bitcast(k, w, KB_INDEX), KB_I64), KB_I32), out, at);
}

START_TEST(casts_bits)
{
	struct opencl_case c = {
	        .body = bitcasts, .in = &numbers, .in_bytes = sizeof(numbers), .out_bytes = 4 * 25};
	opencl_case_check(&c);
}
END_TEST

START_TEST(multiplies_neighbours)
{
	struct dot_numbers in;
	dot_numbers_fill(&in);
	struct opencl_case c = {
	        .body = dot_case_body, .in = &in, .in_bytes = sizeof(in), .out_bytes = DOT_OUT_BYTES};
	opencl_case_check(&c);
}
END_TEST

/* Narrow integers wrap and shift as their bits say; words as lanes of them; floats to the nearest. */
static void narrow_arith(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar types[] = {KB_I8, KB_U8, KB_I16, KB_U16};
	static const enum kb_bin ops[] = {KB_ADD, KB_SUB, KB_MUL, KB_MIN, KB_MAX, KB_SHL, KB_SHR, KB_SAR};
	int64_t at = 0;
	for (int lanes = 1; lanes <= 8; lanes *= 8)
		for (size_t t = 0; t < TFMC_COUNT(types); t++) {
			struct kb_val a = kb_load(k, KB_TYPE(types[t], lanes), in, zero(k), 3, 0);
			struct kb_val b = kb_load(k, KB_TYPE(types[t], lanes), in, zero(k), 20, 0);
			struct kb_val five = kb_splat(k, kb_cvt(k, kb_i32(k, 5), types[t]), lanes);
			for (size_t o = 0; o < TFMC_COUNT(ops); o++)
				at = put(k, kb_bin(k, ops[o], a, ops[o] >= KB_SHL ? five : b), out, at);
		}
	struct kb_val words = kb_load(k, KB_TYPE(KB_I32, 4), in, zero(k), 0, 0);
	struct kb_val bytes = kb_bitcast(k, words, KB_U8);
	at = put(k, bytes, out, at);
	at = put(k, kb_bitcast(k, kb_add(k, bytes, bytes), KB_I32), out, at);
	at = put(k, kb_bitcast(k, kb_lane(k, words, 1), KB_I16), out, at);
	at = put(k, kb_lookup16(k, bytes, bytes), out, at);
	at = put(k, kb_const_u8x16(k, (const uint8_t[16]){1, 200, 3, 4, [15] = 255}), out, at);
	for (size_t i = 0; i < TFMC_COUNT(all_lanes); i++)
		at = put(k, kb_cvt_nearest(k, load(k, in, all_lanes[i], 0)), out, at);
}

START_TEST(computes_with_narrow_integers)
{
	struct floats in = numbers;
	for (int i = 0; i < LANES; i++)
		in.a[i] = (float)(i - 8) * 1.25f;
	struct opencl_case c = {.body = narrow_arith,
	                        .in = &in,
	                        .in_bytes = sizeof(in),
	                        .out_bytes = 4 * (4 * 8 * 9 + 16 + 4 + 2 + 32 + 31)};
	opencl_case_check(&c);
}
END_TEST

Suite *suite_opencl_arith(void);
Suite *suite_opencl_arith(void)
{
	Suite *s = suite_create("opencl_arith");
	TCase *t = tcase_create("all");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, computes_floats);
	tcase_add_test(t, contracts_nothing);
	tcase_add_test(t, orders_nan);
	tcase_add_test(t, divides);
	tcase_add_test(t, prints_constants);
	tcase_add_test(t, computes_integers);
	tcase_add_test(t, computes_narrow_integers);
	tcase_add_test(t, combines_bools);
	tcase_add_test(t, reads_every_small_float);
	tcase_add_test(t, rounds_to_small_floats);
	tcase_add_test(t, converts_numbers);
	tcase_add_test(t, rounds_integers_once);
	tcase_add_test(t, casts_bits);
	tcase_add_test(t, multiplies_neighbours);
	tcase_add_test(t, computes_with_narrow_integers);
	suite_add_tcase(s, t);
	return s;
}
