/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable C printer against the kernel interpreter: every operation of the
 * builder, on one lane, native vectors, and vectors wider than the machine's.
 */
#include <check.h>
#include <math.h>

#include "ir/support/compiler.h"
#include "tests/support/kernels/c_case.h"

#define LANES 16

/* Values of a case go one after another to places of 8 bytes. */
struct sink {
	struct kb *k;
	struct kb_val out;
	int64_t at; /* bytes */
};

static int scalar_bytes(enum kb_scalar s)
{
	return s == KB_I8 || s == KB_U8                                    ? 1
	       : s == KB_I16 || s == KB_U16 || s == KB_F16 || s == KB_BF16 ? 2
	       : s == KB_I32 || s == KB_F32                                ? 4
	                                                                   : 8;
}

static void put(struct sink *s, struct kb_val v)
{
	struct kb_type t = kb_type_of(s->k, v);
	if (t.scalar == KB_BOOL)
		v = kb_cvt(s->k, v, KB_I32);
	t = kb_type_of(s->k, v);
	int bytes = scalar_bytes(t.scalar);
	kb_store(s->k, v, s->out, kb_index(s->k, 0), s->at / bytes, 0);
	s->at += (bytes * t.lanes + 7) / 8 * 8;
}

#define OUT_BYTES (1 << 16)

/* ---- floats ---- */

struct floats {
	float a[LANES], b[LANES], c[LANES];
	double d[LANES], e[LANES], f[LANES];
};

/* Products and sums are exact, so that one rounding or two give the same. */
#define A 1, -2, 3.5, 0, -0.0, 100, 0.25, -7, 0.75, 1, 16, -4, 8, 9, 0x1p-120, -3
#define B 2, 2, -0.5, 1, 4, 10, 0.5, 2, 1, 0.5, 2, 4, 4, -3, 1, 0.5
#define C 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 15
static const struct floats numbers = {{A}, {B}, {C}, {A}, {B}, {C}};

static void float_ops_of(struct sink *s, struct kb_val in, enum kb_scalar scalar, int lanes)
{
	struct kb *k = s->k;
	struct kb_type t = KB_TYPE(scalar, lanes);
	int64_t first = scalar == KB_F32 ? 0 : 3 * LANES / 2;
	struct kb_val a = kb_load(k, t, in, kb_index(k, 0), first, 0);
	struct kb_val b = kb_load(k, t, in, kb_index(k, 0), first + LANES, 0);
	struct kb_val c = kb_load(k, t, in, kb_index(k, 0), first + (int64_t)2 * LANES, 0);
	for (int op = KB_ADD; op <= KB_MAX; op++)
		if (op != KB_REM)
			put(s, kb_bin(k, (enum kb_bin)op, a, b));
	for (int op = KB_NEG; op <= KB_CEIL; op++)
		put(s, kb_un(k, (enum kb_un)op, op == KB_SQRT ? kb_un(k, KB_ABS, a) : a));
	put(s, kb_fma(k, a, b, c));
	put(s, kb_fma(k, kb_un(k, KB_NEG, a), b, kb_un(k, KB_NEG, c)));
	put(s, kb_sub(k, kb_mul(k, a, b), c));
	for (int op = KB_LT; op <= KB_NE; op++) {
		struct kb_val is = kb_cmp(k, (enum kb_cmp)op, a, b);
		put(s, is);
		put(s, kb_select(k, is, b, a));
		put(s, kb_select(k, kb_un(k, KB_NOT, is), b, a));
	}
}

static void float_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= LANES; lanes *= 2) {
		float_ops_of(&s, in, KB_F32, lanes);
		float_ops_of(&s, in, KB_F64, lanes);
	}
}

/* min, max, compares and selects say what happens to NaN; roundings keep large numbers and signs. */
static void special_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= LANES; lanes *= 4) {
		struct kb_val a = kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), 0, 0);
		struct kb_val b = kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), LANES, 0);
		struct kb_val least = kb_min(k, a, b), most = kb_max(k, a, b);
		put(&s, kb_cmp(k, KB_EQ, least, least));
		put(&s, kb_cmp(k, KB_EQ, most, most));
		for (int op = KB_LT; op <= KB_NE; op++)
			put(&s, kb_cmp(k, (enum kb_cmp)op, a, b));
		put(&s, kb_un(k, KB_FLOOR, b));
		put(&s, kb_un(k, KB_CEIL, b));
		put(&s, kb_un(k, KB_FLOOR, kb_cvt(k, b, KB_F64)));
		put(&s, kb_un(k, KB_CEIL, kb_cvt(k, b, KB_F64)));
	}
}

static const float special[2][LANES] = {
        {NAN, 1, INFINITY, -INFINITY, 0, NAN, 1, 2, -0.0f, 3, 4, NAN, 5, 6, 7, 8},
        {1, 3, INFINITY, -INFINITY, -0.0f, 0.5f, -0.5f, -0.25f, 1e30f, -1e30f, 8388607.5f, -8388607.5f,
         4194303.75f, 1.5f, -1.5f, 1e-40f},
};

START_TEST(computes_floats)
{
	const struct llvm_case cases[] = {{float_ops, NULL, &numbers, sizeof(numbers), OUT_BYTES},
	                                  {special_ops, NULL, special, sizeof(special), OUT_BYTES}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

/* ---- integers ---- */

static void int_ops_of(struct sink *s, struct kb_val in, enum kb_scalar scalar, int lanes)
{
	struct kb *k = s->k;
	struct kb_type t = KB_TYPE(scalar, lanes);
	int64_t first = scalar == KB_I32 ? 0 : 8;
	struct kb_val a = kb_load(k, t, in, kb_index(k, 0), first, 0);
	struct kb_val b = kb_load(k, t, in, kb_index(k, 0), first + 8, 0);
	struct kb_val seven = kb_splat(k, kb_cvt(k, kb_index(k, 7), scalar), lanes);
	struct kb_val small = kb_bin(k, KB_AND, b, seven);
	for (int op = KB_ADD; op <= KB_SAR; op++) {
		put(s, kb_bin(k, (enum kb_bin)op, a, op >= KB_SHL ? small : b));
		put(s, kb_bin(k, (enum kb_bin)op, a, seven));
	}
	put(s, kb_un(k, KB_NEG, a));
	put(s, kb_un(k, KB_ABS, a));
	put(s, kb_un(k, KB_NOT, a));
	/* chains that stay unsigned, and the places where they may not */
	struct kb_val chain = kb_add(k, kb_mul(k, a, seven), kb_sub(k, b, a));
	put(s, kb_bin(k, KB_DIV, kb_add(k, kb_mul(k, a, b), seven), seven));
	put(s, kb_bin(k, KB_SAR, kb_mul(k, a, kb_add(k, a, seven)), seven));
	put(s, kb_cmp(k, KB_LT, kb_mul(k, a, a), b));
	put(s, kb_cvt(k, chain, KB_F64));
	put(s, kb_min(k, kb_add(k, a, a), kb_sub(k, b, a)));
	for (int op = KB_LT; op <= KB_NE; op++) {
		struct kb_val is = kb_cmp(k, (enum kb_cmp)op, a, b);
		put(s, is);
		put(s, kb_select(k, is, b, a));
	}
}

struct ints {
	int32_t narrow[16];
	int64_t wide[16];
};
static const struct ints ints = {
        {7, -9, INT32_MAX, 12345, INT32_MIN, 0, 5, -1, 3, 4, -2, 1000, 3, 17, -100, 65537},
        {7, -9, INT64_MAX, 1234567890123, INT64_MIN, 0, 5, -1, 3, 4, -2, 1000, 3, 17, -100, 4294967297},
};

static void int_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const int lanes[] = {1, 4, 8};
	struct sink s = {k, out, 0};
	for (size_t i = 0; i < TFMC_COUNT(lanes); i++) {
		int_ops_of(&s, in, KB_I32, lanes[i]);
		int_ops_of(&s, in, KB_I64, lanes[i]);
		int_ops_of(&s, in, KB_INDEX, lanes[i]);
	}
}

/* All operations of narrow integers, on one lane, few, and as many as a vector of 64 bytes has. */
static void narrow_arith_of(struct sink *s, struct kb_val in, struct kb_type t)
{
	struct kb *k = s->k;
	int64_t far = 64 / scalar_bytes(t.scalar);
	struct kb_val a = kb_load(k, t, in, kb_index(k, 0), 0, 0);
	struct kb_val b = kb_load(k, t, in, kb_index(k, 0), t.lanes > 1 ? far : 9, 0);
	struct kb_val seven = kb_splat(k, kb_cvt(k, kb_i32(k, 7), t.scalar), t.lanes);
	static const enum kb_bin ops[] = {KB_ADD, KB_SUB, KB_MUL, KB_MIN, KB_MAX, KB_SHL, KB_SHR, KB_SAR};
	for (size_t i = 0; i < TFMC_COUNT(ops); i++) {
		bool is_shift = ops[i] == KB_SHL || ops[i] == KB_SHR || ops[i] == KB_SAR;
		put(s, kb_bin(k, ops[i], a, is_shift ? kb_bin(k, KB_AND, b, seven) : b));
		put(s, kb_bin(k, ops[i], a, seven));
	}
	put(s, kb_cvt(k, kb_mul(k, kb_cvt(k, a, KB_I32), kb_cvt(k, b, KB_I32)), t.scalar));
}

static void narrow_arith(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar scalars[] = {KB_I8, KB_U8, KB_I16, KB_U16};
	struct sink s = {k, out, 0};
	for (size_t i = 0; i < TFMC_COUNT(scalars); i++) {
		int most = 64 / scalar_bytes(scalars[i]);
		narrow_arith_of(&s, in, KB_TYPE(scalars[i], 1));
		narrow_arith_of(&s, in, KB_TYPE(scalars[i], 8));
		narrow_arith_of(&s, in, KB_TYPE(scalars[i], most));
	}
}

static void narrow_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar scalars[] = {KB_I8, KB_U8, KB_I16, KB_U16};
	struct sink s = {k, out, 0};
	for (size_t i = 0; i < TFMC_COUNT(scalars); i++)
		for (int lanes = 1; lanes <= 8; lanes *= 8) {
			struct kb_type t = KB_TYPE(scalars[i], lanes);
			struct kb_val a = kb_load(k, t, in, kb_index(k, 0), 0, 0);
			struct kb_val b = kb_load(k, t, in, kb_index(k, 0), 9, 0);
			for (int op = KB_AND; op <= KB_XOR; op++)
				put(&s, kb_bin(k, (enum kb_bin)op, a, b));
			put(&s, kb_un(k, KB_NOT, a));
			for (int op = KB_LT; op <= KB_NE; op++) {
				struct kb_val is = kb_cmp(k, (enum kb_cmp)op, a, b);
				put(&s, is);
				put(&s, kb_select(k, is, kb_un(k, KB_NOT, b), a));
			}
		}
}

static void bool_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar to[] = {KB_I8,  KB_U8,   KB_I16, KB_I32, KB_I64,
	                                    KB_F16, KB_BF16, KB_F32, KB_F64};
	static const int swap[] = {3, 2, 1, 0};
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= 4; lanes *= 4) {
		struct kb_val a = kb_load(k, KB_TYPE(KB_I32, lanes), in, kb_index(k, 0), 0, 0);
		struct kb_val b = kb_load(k, KB_TYPE(KB_I64, lanes), in, kb_index(k, 0), 8, 0);
		struct kb_val x = kb_cmp(k, KB_GT, a, kb_splat(k, kb_i32(k, 0), lanes));
		struct kb_val y = kb_cmp(k, KB_LT, b, kb_splat(k, kb_i64(k, 0), lanes));
		for (int op = KB_AND; op <= KB_XOR; op++)
			put(&s, kb_bin(k, (enum kb_bin)op, x, y));
		put(&s, kb_select(k, x, y, kb_un(k, KB_NOT, y)));
		put(&s, kb_splat(k, kb_lane(k, x, lanes - 1), 8));
		put(&s, kb_select(k, kb_lane(k, y, 0), a, kb_un(k, KB_NEG, a)));
		for (size_t i = 0; i < TFMC_COUNT(to); i++)
			put(&s, kb_cvt(k, kb_bin(k, KB_OR, x, y), to[i]));
		if (lanes == 4)
			put(&s, kb_shuffle(k, x, (struct kb_val){0}, swap, 4));
		put(&s, kb_select(k, kb_bool(k, true), a, a));
	}
}

/* Indices whose operators bind less tightly than the sum with the displacement. */
static void loose_indices(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	struct kb_val x = kb_cvt(k, kb_load(k, KB_I32_T, in, kb_index(k, 0), 0, 0), KB_INDEX);
	struct kb_val small = kb_bin(k, KB_AND, x, kb_index(k, 3)),
	              is = kb_cmp(k, KB_LT, small, kb_index(k, 2));
	struct kb_val one = kb_index(k, 1), two = kb_index(k, 2);
	static const enum kb_bin ops[] = {KB_AND, KB_OR, KB_SHL, KB_SHR, KB_SAR};
	for (size_t i = 0; i < TFMC_COUNT(ops); i++)
		put(&s, kb_load(k, KB_I32_T, in, kb_bin(k, ops[i], small, one), 3, 0));
	put(&s, kb_load(k, KB_I32_T, in, kb_select(k, is, one, two), 3, 0));
}

START_TEST(computes_integers)
{
	const struct llvm_case cases[] = {{int_ops, NULL, &ints, sizeof(ints), OUT_BYTES},
	                                  {narrow_ops, NULL, &ints, sizeof(ints), OUT_BYTES},
	                                  {narrow_arith, NULL, &ints, sizeof(ints), OUT_BYTES},
	                                  {loose_indices, NULL, &ints, sizeof(ints), OUT_BYTES},
	                                  {bool_ops, NULL, &ints, sizeof(ints), OUT_BYTES}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

/* ---- conversions ---- */

static const enum kb_scalar int_types[] = {KB_I8, KB_U8, KB_I16, KB_I32, KB_I64, KB_INDEX};
static const enum kb_scalar float_types[] = {KB_F16, KB_BF16, KB_F32, KB_F64};

static void from_ints(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= 8; lanes *= 8)
		for (size_t i = 0; i < TFMC_COUNT(int_types); i++) {
			struct kb_val v = kb_load(k, KB_TYPE(int_types[i], lanes), in, kb_index(k, 0), 8, 0);
			for (size_t j = 0; j < TFMC_COUNT(int_types); j++)
				put(&s, kb_cvt(k, v, int_types[j]));
			for (size_t j = 0; j < TFMC_COUNT(float_types); j++)
				put(&s, kb_cvt(k, v, float_types[j]));
		}
}

static const double reals[16] = {0.5,       -0.5, 127.5, -128.5,  3e9,   -3e9,         NAN,     INFINITY,
                                 -INFINITY, 1e19, -1e19, 32767.9, 255.5, 2147483647.0, 65504.0, 1e-7};

static void from_floats(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= LANES; lanes *= 16) {
		struct kb_val d =
		        kb_load(k, KB_TYPE(KB_F64, lanes), in, kb_index(k, 0), lanes == 1 ? 4 : 0, 0);
		for (size_t i = 0; i < TFMC_COUNT(float_types); i++) {
			struct kb_val v = kb_cvt(k, d, float_types[i]);
			for (size_t j = 0; j < TFMC_COUNT(int_types); j++)
				put(&s, kb_cvt(k, v, int_types[j]));
			struct kb_val back = kb_cvt(k, v, KB_F64);
			struct kb_val is = kb_cmp(k, KB_EQ, back, back);
			back = kb_select(k, is, back, kb_splat(k, kb_f64(k, 0), lanes));
			for (size_t j = 0; j < TFMC_COUNT(float_types); j++)
				put(&s, kb_cvt(k, back, float_types[j]));
		}
	}
}

#define HALVES 65536

static void every_small(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar types[] = {KB_F16, KB_BF16};
	for (size_t t = 0; t < 2; t++) {
		int64_t at = (int64_t)t * HALVES * 6;
		struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, HALVES), 8, KB_NONEMPTY);
		struct kb_val wide = kb_cvt(k, kb_load(k, KB_TYPE(types[t], 8), in, i, 0, 2), KB_F32);
		struct kb_val clean =
		        kb_select(k, kb_cmp(k, KB_EQ, wide, wide), wide, kb_splat(k, kb_f32(k, 0), 8));
		kb_store(k, clean, out, i, at / 4, 4);
		kb_store(k, kb_cvt(k, clean, types[t]), out, i, at / 2 + (int64_t)HALVES * 2, 2);
		kb_end_loop(k);
	}
}

#define ROUNDED 2048

/* Numbers near the points where small floats round, of all sizes. */
static void round_floats(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar types[] = {KB_F16, KB_BF16, KB_F32};
	for (int lanes = 1; lanes <= 4; lanes *= 4) {
		struct kb_val i = kb_loop(k, "i", kb_index(k, 0), kb_index(k, ROUNDED), lanes, 0);
		struct kb_val d = kb_load(k, KB_TYPE(KB_F64, lanes), in, i, 0, 8);
		for (size_t t = 0; t < 3; t++) {
			int64_t at = ROUNDED * (int64_t)(4 * t + (lanes == 4 ? 2 : 0));
			kb_store(k, kb_cvt(k, d, types[t]), out, i, at, 0);
			if (types[t] != KB_F32)
				kb_store(k, kb_cvt(k, kb_cvt(k, d, KB_F32), types[t]), out, i, at + ROUNDED,
				         0);
		}
		kb_end_loop(k);
	}
}

START_TEST(converts)
{
	static uint16_t all[HALVES];
	static double values[ROUNDED];
	uint64_t x = 88172645463325252u;
	for (uint32_t i = 0; i < HALVES; i++)
		all[i] = (uint16_t)i;
	for (int i = 0; i < ROUNDED; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		double near =
		        ldexp((double)((x >> 8) % 4096) + (double)((x >> 40) % 3) / 2, (int)(x % 60) - 40);
		values[i] = (i % 2 ? -1 : 1) * near * (1 + ldexp((double)((x >> 20) % 3) - 1, -30));
	}
	const struct llvm_case cases[] = {{from_ints, NULL, &ints, sizeof(ints), OUT_BYTES},
	                                  {from_floats, NULL, reals, sizeof(reals), OUT_BYTES},
	                                  {every_small, NULL, all, sizeof(all), HALVES * 12},
	                                  {round_floats, NULL, values, sizeof(values), (size_t)ROUNDED * 48}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

/* ---- lanes ---- */

static void lane_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	static const int mixed[] = {3, 20, 0, 31, 16, 5, 9, 2};
	static const int one[] = {17};
	const struct kb_val none = {0};
	struct kb_val a = kb_load(k, KB_TYPE(KB_F32, LANES), in, kb_index(k, 0), 0, 0);
	struct kb_val b = kb_load(k, KB_TYPE(KB_F32, LANES), in, kb_index(k, 0), LANES, 0);
	put(&s, kb_shuffle(k, a, b, mixed, 8));
	put(&s, kb_shuffle(k, a, b, one, 1));
	put(&s, kb_shuffle(k, kb_cvt(k, a, KB_F16), none, (const int[]){15, 1, 2, 3}, 4));
	put(&s, kb_lane(k, kb_add(k, a, b), 13));
	put(&s, kb_lane_ids(k, 8));
	put(&s, kb_lane_ids(k, 1));
	for (int lanes = 2; lanes <= LANES; lanes *= 2) {
		struct kb_val v = kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), 3, 0);
		struct kb_val n = kb_cvt(k, v, KB_I32), d = kb_cvt(k, v, KB_F64);
		put(&s, kb_reduce(k, KB_ADD, v));
		put(&s, kb_reduce(k, KB_MIN, v));
		put(&s, kb_reduce(k, KB_MAX, v));
		put(&s, kb_reduce(k, KB_ADD, n));
		put(&s, kb_reduce(k, KB_MIN, n));
		put(&s, kb_reduce(k, KB_MAX, d));
		put(&s, kb_reduce(k, KB_ADD, d));
	}
	struct kb_val bits = kb_bitcast(k, a, KB_I32);
	put(&s, bits);
	put(&s, kb_bitcast(k, bits, KB_F32));
	put(&s, kb_bitcast(k, kb_lane(k, a, 2), KB_I32));
	put(&s, kb_bitcast(k, kb_i32(k, 0x40490fdb), KB_F32));
	put(&s, kb_bitcast(k, kb_f64(k, 1.5), KB_I64));
	put(&s, kb_bitcast(k, kb_cvt(k, kb_lane(k, b, 1), KB_F16), KB_I16));
	put(&s, kb_bitcast(k, kb_cvt(k, kb_i32(k, -3), KB_I8), KB_U8));
}

static void constants(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const double floats[] = {0,        -0.0,      1,     -1.5, 0.1, 1e-40, 3.4028234663852886e38,
	                                INFINITY, -INFINITY, 1e-300};
	static const int64_t wides[] = {0,         1,         -1,         INT32_MAX,  INT32_MIN,
	                                INT64_MAX, INT64_MIN, 4294967296, -4294967297};
	struct sink s = {k, out, 0};
	for (size_t i = 0; i < TFMC_COUNT(floats); i++) {
		put(&s, kb_f32(k, (float)floats[i]));
		put(&s, kb_un(k, KB_NEG, kb_f64(k, floats[i])));
	}
	for (size_t i = 0; i < TFMC_COUNT(wides); i++) {
		put(&s, kb_i64(k, wides[i]));
		put(&s, kb_i32(k, (int32_t)(uint32_t)(uint64_t)wides[i]));
		put(&s, kb_add(k, kb_load(k, KB_INDEX_T, in, kb_index(k, 0), 0, 8), kb_index(k, wides[i])));
	}
}

/* The same bytes as lanes of other types; one lane and many. */
static void regroup(struct kb *k, struct kb_val in, struct kb_val out)
{
	static const enum kb_scalar types[] = {KB_U8, KB_I8, KB_I16, KB_U16, KB_BF16, KB_I32, KB_I64, KB_F64};
	struct sink s = {k, out, 0};
	for (int words = 1; words <= LANES; words *= 4) {
		struct kb_val v = kb_load(k, KB_TYPE(KB_I32, words), in, kb_index(k, 0), 0, 0);
		for (size_t i = 0; i < TFMC_COUNT(types); i++) {
			if (scalar_bytes(types[i]) > 4 * words)
				continue;
			struct kb_val w = kb_bitcast(k, v, types[i]);
			put(&s, w);
			put(&s, kb_bitcast(k, w, KB_I32));
			for (size_t j = 0; j < TFMC_COUNT(types); j++)
				if (scalar_bytes(types[j]) <= 4 * words)
					put(&s, kb_bitcast(k, w, types[j]));
		}
	}
}

static const float halfway[16] = {0.5f,       1.5f,        2.5f,    -0.5f,  -1.5f,  -2.5f,
                                  126.49999f, 0.49999997f, -0.0f,   1e-40f, 127.5f, -127.5f,
                                  4194303.5f, -4194303.5f, 4194304, 3.2f};

static void nearest(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	for (int lanes = 1; lanes <= LANES; lanes *= 2)
		put(&s, kb_cvt_nearest(k, kb_load(k, KB_TYPE(KB_F32, lanes), in, kb_index(k, 0), 0, 0)));
	put(&s, kb_cvt(k, kb_cvt_nearest(k, kb_load(k, KB_TYPE(KB_F32, LANES), in, kb_index(k, 0), 0, 0)),
	               KB_I8));
}

START_TEST(moves_lanes)
{
	const struct llvm_case cases[] = {{lane_ops, NULL, &numbers, sizeof(numbers), OUT_BYTES},
	                                  {regroup, NULL, &numbers, sizeof(numbers), OUT_BYTES},
	                                  {nearest, NULL, halfway, sizeof(halfway), OUT_BYTES},
	                                  {constants, NULL, &ints.wide[1], 8, OUT_BYTES}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

/* ---- memory and control ---- */

static void memory_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	struct kb_val zero = kb_index(k, 0);
	struct kb_val tile = kb_local(k, "tile", KB_F32, 32);
	struct kb_val v = kb_load(k, KB_TYPE(KB_F32, 8), in, zero, 5, 4);
	for (int n = 1; n <= 8; n++) {
		kb_store(k, kb_splat(k, kb_f32(k, -1), 8), tile, zero, 0, 32);
		kb_store_part(k, v, n, tile, zero, 0);
		put(&s, kb_load(k, KB_TYPE(KB_F32, 8), tile, zero, 0, 64));
		put(&s, kb_load_part(k, KB_TYPE(KB_F32, 8), n, in, zero, 40));
	}
	put(&s, kb_load_splat(k, KB_TYPE(KB_F32, 4), in, zero, 2));
	put(&s, kb_load_splat(k, KB_TYPE(KB_I32, 8), in, kb_index(k, 3), -1));
	struct kb_val later = kb_ptr_add(k, in, kb_index(k, 64), 4);
	put(&s, kb_load(k, KB_F32_T, kb_ptr_add(k, later, zero, -8), zero, 0, 0));
	put(&s, kb_load(k, KB_TYPE(KB_F32, 4), kb_ptr_add(k, in, zero, 2), zero, 0, 1));
	put(&s, kb_load(k, KB_F32_T, kb_ptr_opaque(k, later), zero, 0, 0));
	put(&s, kb_load(k, KB_TYPE(KB_F64, 2), kb_ptr_add(k, in, zero, 4), zero, 0, 4));
	kb_prefetch(k, in, kb_index(k, 8), 64);
	put(&s, kb_load(k, KB_I32_T, kb_symbol(k, "table.of.words"), zero, 1, 0));
	/* what was loaded before a store stays what it was */
	struct kb_val before = kb_load(k, KB_F32_T, tile, zero, 0, 0);
	kb_store(k, kb_f32(k, 77), tile, zero, 0, 0);
	put(&s, before);
	put(&s, kb_load(k, KB_F32_T, tile, zero, 0, 0));
}

static void functions(struct kb_module *m)
{
	static const int32_t words[] = {11, 22, 33};
	kb_data(m, "table.of.words", KB_INTERNAL, words, sizeof(words), 64);
	struct kb *k = kb_begin(m, "table_of_words", KB_INTERNAL, KB_INDEX); /* would collide */
	struct kb_val x = kb_param(k, "int", KB_INDEX_T, 0);
	struct kb_val unused = kb_param(k, "x", KB_INDEX_T, 0);
	(void)unused;
	kb_if(k, kb_cmp(k, KB_LT, x, kb_index(k, 5)));
	kb_return(k, kb_call(k, "table.of", KB_INDEX, &x, 1));
	kb_end_if(k);
	kb_return(k, kb_index(k, -7));
	kb_end(k);
	k = kb_begin(m, "table.of", KB_INTERNAL, KB_INDEX);
	x = kb_param(k, "x", KB_INDEX_T, 0);
	kb_return(k, kb_mul(k, x, x));
	kb_end(k);
	k = kb_begin(m, "not.used", KB_INTERNAL, KB_VOID);
	kb_comment(k, "ends */ early /* or not");
	kb_return(k, (struct kb_val){0});
	kb_end(k);
	k = kb_begin(m, "widen", KB_INTERNAL, KB_VOID); /* gcc 12 may find that it stores nothing */
	x = kb_param(k, "x", KB_PTR_T, 0);
	struct kb_val n = kb_param(k, "n", KB_INDEX_T, 0), i = kb_loop(k, "i", kb_index(k, 0), n, 1, 0);
	struct kb_val wide = kb_cvt(k, kb_load(k, KB_TYPE(KB_F16, 1), x, i, 0, 0), KB_F32);
	kb_store(k, wide, kb_ptr_add(k, x, kb_mul_const(k, n, 64), 0), i, 0, 0);
	kb_end_loop(k);
	kb_end(k);
}

static void count_down(struct sink *s)
{
	struct kb *k = s->k;
	struct kb_var n = kb_var(k, "n", KB_INDEX_T, kb_index(k, 10));
	struct kb_var seen = kb_var(k, "seen", KB_INDEX_T, kb_index(k, 0));
	struct kb_var never = kb_var(k, "never", KB_INDEX_T, kb_index(k, 0));
	kb_forever(k);
	struct kb_val now = kb_get(k, n);
	kb_set(k, n, kb_add_const(k, now, -1)); /* read, then set: `now` is the old one */
	kb_set(k, never, now);
	kb_break_if(k, kb_cmp(k, KB_LE, now, kb_index(k, 2)));
	kb_set(k, seen, kb_add(k, kb_mul(k, kb_get(k, seen), kb_index(k, 3)), now));
	kb_end_forever(k);
	put(s, kb_get(k, seen));
	put(s, kb_get(k, n));
}

static void control_ops(struct kb *k, struct kb_val in, struct kb_val out)
{
	struct sink s = {k, out, 0};
	struct kb_var sum = kb_var(k, "sum", KB_INDEX_T, kb_index(k, 0));
	struct kb_val n = kb_load(k, KB_INDEX_T, in, kb_index(k, 0), 0, 0); /* 7 */
	struct kb_val i = kb_loop(k, "i", kb_index(k, 1), n, 2, 0);
	struct kb_val j = kb_loop(k, "i", i, kb_add(k, kb_get(k, sum), kb_index(k, 4)), 3, 0);
	kb_set(k, sum, kb_add(k, kb_mul(k, kb_get(k, sum), kb_index(k, 2)), j));
	kb_end_loop(k);
	kb_if(k, kb_cmp(k, KB_EQ, i, kb_index(k, 3)));
	kb_set(k, sum, kb_index(k, 1));
	kb_else(k);
	kb_set(k, sum, kb_add(k, kb_get(k, sum), i));
	kb_end_if(k);
	kb_end_loop(k);
	struct kb_val none = kb_loop(k, "none", n, kb_index(k, 2), 1, 0);
	kb_set(k, sum, none);
	kb_end_loop(k);
	put(&s, kb_get(k, sum));
	count_down(&s);
	struct kb_val args[] = {kb_index(k, 4), n}, results[] = {out, n};
	put(&s, kb_call(k, "table_of_words", KB_INDEX, args, 2));
	args[0] = n;
	put(&s, kb_call(k, "table_of_words", KB_INDEX, args, 2));
	put(&s, kb_call_ptr(k, kb_func_addr(k, "table.of"), KB_INDEX, &n, 1));
	put(&s, kb_cmp(k, KB_EQ, kb_func_addr(k, "table.of"), kb_null(k)));
	struct kb_val word = kb_local(k, "word", KB_I32, 4);
	kb_atomic_store(k, kb_i32(k, 5), word, 2);
	put(&s, kb_atomic_add(k, kb_i32(k, -8), word, 2));
	(void)kb_atomic_add(k, kb_i32(k, 100), word, 2);
	kb_pause(k);
	put(&s, kb_atomic_load(k, word, 2));
	(void)kb_call(k, "widen", KB_VOID, results, 2);
	(void)kb_call(k, "widen", KB_VOID, results, 2); /* twice, so that it stays a call */
}

START_TEST(controls)
{
	const struct llvm_case cases[] = {{memory_ops, functions, &numbers, sizeof(numbers), OUT_BYTES},
	                                  {control_ops, NULL, ints.wide, sizeof(ints.wide), OUT_BYTES}};
	c_case_check(cases, TFMC_COUNT(cases));
}
END_TEST

Suite *suite_cfamily(void)
{
	Suite *s = suite_create("cfamily");
	TCase *t = tcase_create("c");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, computes_floats);
	tcase_add_test(t, computes_integers);
	tcase_add_test(t, converts);
	tcase_add_test(t, moves_lanes);
	tcase_add_test(t, controls);
	suite_add_tcase(s, t);
	return s;
}
