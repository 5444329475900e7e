/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: quotients that are rounded down, what they leave, and powers of
 * ints. No division traps: a divisor that would is replaced before, its result
 * after.
 */
#include <math.h>

#include "backends/kernel/eval.h"

/* v in the type and lanes of `like`. */
static struct kb_val constant(struct kb *k, struct kb_val like, int64_t v)
{
	struct kb_type t = kb_type_of(k, like);
	struct kb_val c = t.scalar == KB_F32   ? kb_f32(k, (float)v)
	                  : t.scalar == KB_F64 ? kb_f64(k, (double)v)
	                  : t.scalar == KB_I64 ? kb_i64(k, v)
	                                       : kb_i32(k, (int32_t)v);
	return kb_splat(k, c, t.lanes);
}

/* x and y have different signs; false where one is 0 or NaN. */
static struct kb_val differ_in_sign(struct kb *k, struct kb_val x, struct kb_val y)
{
	struct kb_val zero = constant(k, x, 0);
	struct kb_val above = kb_cmp(k, KB_GT, y, zero);
	struct kb_val down = kb_bin(k, KB_AND, kb_cmp(k, KB_LT, x, zero), above);
	struct kb_val below = kb_cmp(k, KB_LT, y, zero);
	struct kb_val up = kb_bin(k, KB_AND, kb_cmp(k, KB_GT, x, zero), below);
	return kb_bin(k, KB_OR, down, up);
}

/* In the type itself: what q leaves of a; where it has the wrong sign, the rounded quotient was one too
 * large. */
static struct kb_val of_floats(struct kb *k, bool rest, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), q = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b));
	struct kb_val r = kb_fma(k, kb_un(k, KB_NEG, q), b, a);
	r = kb_select(k, kb_cmp(k, KB_EQ, q, zero), a, r); /* 0 times an infinite b */
	struct kb_val more = differ_in_sign(k, r, b);
	if (rest)
		return kb_select(k, more, kb_add(k, r, b), r);
	return kb_select(k, more, kb_sub(k, q, constant(k, q, 1)), q);
}

/*
 * Quotient and rest of f32 in ints: OpenCL C need not have f64 nor fused products. |v| is
 * mantissa * 2^(exponent - 150).
 */
struct parts {
	struct kb_val mantissa; /* i64, below 2^24; of a divisor not 0 */
	struct kb_val exponent; /* i32, at least 1 */
};

#define SHIFT_MAX 38 /* what fits into i64 after a mantissa */

static struct parts parts_of(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, kb_un(k, KB_ABS, v), KB_I32), one = constant(k, bits, 1);
	struct kb_val exponent = kb_bin(k, KB_SHR, bits, constant(k, bits, 23));
	struct kb_val fraction = kb_bin(k, KB_AND, bits, constant(k, bits, 0x7fffff));
	struct kb_val whole = kb_bin(k, KB_OR, fraction, constant(k, bits, 0x800000));
	struct kb_val is_small = kb_cmp(k, KB_LT, exponent, one);
	struct kb_val mantissa = kb_cvt(k, kb_select(k, is_small, fraction, whole), KB_I64);
	return (struct parts){mantissa, kb_select(k, is_small, one, exponent)};
}

static struct parts divisor_of(struct kb *k, struct kb_val b)
{
	struct parts p = parts_of(k, b);
	struct kb_val one = constant(k, p.mantissa, 1);
	p.mantissa = kb_bin(k, KB_MAX, p.mantissa, one);
	return p;
}

/* a and b have a quotient. */
static struct kb_val is_divisible(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val infinite = kb_splat(k, kb_f32(k, HUGE_VALF), kb_type_of(k, a).lanes);
	struct kb_val finite = kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), infinite);
	struct kb_val zero = constant(k, b, 0);
	return kb_bin(k, KB_AND, finite, kb_cmp(k, KB_GT, kb_un(k, KB_ABS, b), zero));
}

static struct kb_val is_below(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val limit = kb_un(k, KB_ABS, b);
	return kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), limit);
}

/* rest * 2^(exponent - 150) by its bits: products of powers of two could lose the smallest numbers. */
static struct kb_val joined(struct kb *k, struct kb_val rest, struct kb_val exponent)
{
	struct kb_val whole = kb_cvt(k, rest, KB_I32), zero = constant(k, whole, 0);
	struct kb_val bits = kb_bitcast(k, kb_cvt(k, whole, KB_F32), KB_I32);
	struct kb_val scale = kb_sub(k, exponent, constant(k, exponent, 150));
	struct kb_val high = kb_add(k, kb_bin(k, KB_SHR, bits, constant(k, bits, 23)), scale);
	struct kb_val normal = kb_add(k, bits, kb_bin(k, KB_SHL, scale, constant(k, bits, 23)));
	struct kb_val most = constant(k, exponent, 23);
	struct kb_val by = kb_bin(k, KB_MIN, kb_sub(k, exponent, constant(k, exponent, 1)), most);
	struct kb_val tiny = kb_bin(k, KB_SHL, whole, by);
	bits = kb_select(k, kb_cmp(k, KB_GT, high, zero), normal, tiny);
	return kb_bitcast(k, kb_select(k, kb_cmp(k, KB_EQ, whole, zero), zero, bits), KB_F32);
}

/* What the quotient toward zero leaves of a: bits of the quotient in rounds, until no lane has more. */
static struct kb_val rest_in_ints(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct parts x = parts_of(k, a), y = divisor_of(k, b);
	struct kb_val zero = constant(k, x.exponent, 0), most = constant(k, x.exponent, SHIFT_MAX);
	struct kb_val bits = kb_bin(k, KB_MAX, kb_sub(k, x.exponent, y.exponent), zero);
	struct kb_var left = kb_var(k, "left", kb_type_of(k, bits), bits);
	struct kb_var rest = kb_var(k, "rest", kb_type_of(k, x.mantissa), x.mantissa);
	kb_forever(k);
	struct kb_val n = kb_get(k, left), by = kb_bin(k, KB_MIN, n, most);
	struct kb_val distance = kb_cvt(k, by, KB_I64);
	struct kb_val shifted = kb_bin(k, KB_SHL, kb_get(k, rest), distance);
	kb_set(k, rest, kb_bin(k, KB_REM, shifted, y.mantissa));
	n = kb_sub(k, n, by);
	kb_set(k, left, n);
	bool is_vector = kb_type_of(k, n).lanes > 1;
	kb_break_if(k, kb_cmp(k, KB_LE, is_vector ? kb_reduce(k, KB_MAX, n) : n, kb_i32(k, 0)));
	kb_end_forever(k);
	struct kb_val r = joined(k, kb_get(k, rest), y.exponent);
	struct kb_val negative = kb_un(k, KB_NEG, r);
	r = kb_select(k, kb_cmp(k, KB_LT, a, constant(k, a, 0)), negative, r);
	r = kb_select(k, is_below(k, a, b), a, r);
	struct kb_val other = kb_add(k, r, b);
	return kb_select(k, differ_in_sign(k, r, b), other, r);
}

/* Rounded once, where the quotient is not farther from 1 than i64 holds. */
static struct kb_val quotient_in_ints(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val rounded)
{
	struct parts x = parts_of(k, a), y = divisor_of(k, b);
	struct kb_val apart = kb_sub(k, x.exponent, y.exponent), most = constant(k, apart, SHIFT_MAX);
	struct kb_val by = kb_bin(k, KB_MIN, kb_bin(k, KB_MAX, apart, constant(k, apart, 0)), most);
	struct kb_val shifted = kb_bin(k, KB_SHL, x.mantissa, kb_cvt(k, by, KB_I64));
	struct kb_val q = kb_bin(k, KB_DIV, shifted, y.mantissa), none = constant(k, q, 0);
	struct kb_val is_below_one = is_below(k, a, b), one = constant(k, q, 1);
	q = kb_select(k, is_below_one, none, q);
	struct kb_val is_exact = kb_cmp(k, KB_EQ, kb_mul(k, q, y.mantissa), shifted);
	struct kb_val down = kb_sub(k, none, kb_select(k, is_exact, q, kb_add(k, q, one)));
	q = kb_cvt(k, kb_select(k, differ_in_sign(k, a, b), down, q), KB_F32);
	return kb_select(k, kb_cmp(k, KB_GT, apart, most), rounded, q);
}

/* Operands without a quotient give what their division gives. */
static struct kb_val of_singles(struct kb *k, bool rest, struct kb_val a, struct kb_val b)
{
	struct kb_val rounded = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b)), ok = is_divisible(k, a, b);
	if (rest) {
		struct kb_val none = kb_splat(k, kb_f32(k, NAN), kb_type_of(k, a).lanes);
		return kb_select(k, ok, rest_in_ints(k, a, b), none);
	}
	return kb_select(k, ok, quotient_in_ints(k, a, b, rounded), rounded);
}

/* Divisors 0 and -1 become 1, which leaves the rest 0. */
static struct kb_val of_ints(struct kb *k, bool rest, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, b, zero), is_minus = kb_cmp(k, KB_EQ, b, constant(k, a, -1));
	struct kb_val by = kb_select(k, kb_bin(k, KB_OR, is_zero, is_minus), one, b);
	struct kb_val r = kb_bin(k, KB_REM, a, by), more = differ_in_sign(k, r, by);
	if (rest)
		return kb_select(k, more, kb_add(k, r, by), r);
	struct kb_val q = kb_bin(k, KB_DIV, a, by);
	q = kb_select(k, more, kb_sub(k, q, one), q);
	q = kb_select(k, is_minus, kb_sub(k, zero, a), q);
	return kb_select(k, is_zero, zero, q);
}

struct kb_val eval_floor_division(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b)
{
	enum kb_scalar s = kb_type_of(e->k, a).scalar;
	bool rest = op->code == OP_mod;
	if (s == KB_F32)
		return of_singles(e->k, rest, a, b);
	return s == KB_F64 ? of_floats(e->k, rest, a, b) : of_ints(e->k, rest, a, b);
}

/* Bits that an exponent can have. */
static int64_t exponent_bits(enum ir_dtype t)
{
	return 8 * (int64_t)ir_dtype_bytes(t) - (t == DT_U8 ? 0 : 1);
}

/* By squaring, the lowest bit of the exponent first. */
struct kb_val eval_int_power(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b)
{
	struct kb *k = e->k;
	struct kb_type t = kb_type_of(k, a);
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1), minus = constant(k, a, -1);
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, b, one), zero);
	struct kb_val sign = kb_select(k, is_odd, minus, one);
	struct kb_var base = kb_var(k, "base", t, a), left = kb_var(k, "left", t, b);
	struct kb_var result = kb_var(k, "power", t, one);
	int64_t rounds = exponent_bits(ir_type_of(e->job->func, eval_result(op))->dtype);
	(void)kb_loop(k, "bit", kb_index(k, 0), kb_index(k, rounds), 1, 0);
	struct kb_val n = kb_get(k, left), x = kb_get(k, base), y = kb_get(k, result);
	struct kb_val taken = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, n, one), zero);
	kb_set(k, result, kb_select(k, taken, kb_mul(k, y, x), y));
	kb_set(k, base, kb_mul(k, x, x));
	kb_set(k, left, kb_bin(k, KB_SHR, n, one));
	kb_end_loop(k);
	struct kb_val inverse = kb_select(k, kb_cmp(k, KB_EQ, a, one), one, zero);
	inverse = kb_select(k, kb_cmp(k, KB_EQ, a, minus), sign, inverse);
	struct kb_val whole = kb_get(k, result);
	return kb_select(k, kb_cmp(k, KB_LT, b, zero), inverse, whole);
}
