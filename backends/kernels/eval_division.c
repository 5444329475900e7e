/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator: floor division, floor modulo (Python's // and %), and integer powers. Integer division never traps:
 * divisors 0 and -1 are replaced by 1, and a select fixes the result.
 */
#include <math.h>

#include "backends/kernels/eval.h"

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

/* True where x and y have different signs; false where one is 0 or NaN. */
static struct kb_val differ_in_sign(struct kb *k, struct kb_val x, struct kb_val y)
{
	struct kb_val zero = constant(k, x, 0);
	struct kb_val above = kb_cmp(k, KB_GT, y, zero);
	struct kb_val down = kb_bin(k, KB_AND, kb_cmp(k, KB_LT, x, zero), above);
	struct kb_val below = kb_cmp(k, KB_LT, y, zero);
	struct kb_val up = kb_bin(k, KB_AND, kb_cmp(k, KB_GT, x, zero), below);
	return kb_bin(k, KB_OR, down, up);
}

/* f64. r = fma(-q, b, a) is the exact remainder for q = floor(a / b); where its sign differs from that of b, the
 * rounded quotient was one too large. is_mod: returns the remainder instead of the quotient. */
static struct kb_val divide_f64(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), q = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b));
	struct kb_val r = kb_fma(k, kb_un(k, KB_NEG, q), b, a);
	r = kb_select(k, kb_cmp(k, KB_EQ, q, zero), a, r); /* 0 * b is NaN for an infinite b */
	struct kb_val is_too_large = differ_in_sign(k, r, b);
	if (is_mod)
		return kb_select(k, is_too_large, kb_add(k, r, b), r);
	return kb_select(k, is_too_large, kb_sub(k, q, constant(k, q, 1)), q);
}

/*
 * f32 quotient and remainder in integers (as fmodf of C libraries), because OpenCL C may lack f64 and fma.
 * |v| = mantissa * 2^(exponent - 150).
 */
struct float_bits {
	struct kb_val mantissa; /* i64, below 2^24; of a divisor at least 1 */
	struct kb_val exponent; /* i32, at least 1 */
};

#define SHIFT_MAX 38 /* largest shift of a mantissa that fits i64 */

static struct float_bits decompose(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, kb_un(k, KB_ABS, v), KB_I32), one = constant(k, bits, 1);
	struct kb_val exponent = kb_bin(k, KB_SHR, bits, constant(k, bits, 23));
	struct kb_val fraction = kb_bin(k, KB_AND, bits, constant(k, bits, 0x7fffff));
	struct kb_val normal =
	        kb_bin(k, KB_OR, fraction, constant(k, bits, 0x800000)); /* with the implicit bit */
	struct kb_val is_denormal = kb_cmp(k, KB_LT, exponent, one);
	struct kb_val mantissa = kb_cvt(k, kb_select(k, is_denormal, fraction, normal), KB_I64);
	return (struct float_bits){mantissa, kb_select(k, is_denormal, one, exponent)};
}

/* A mantissa of 0 becomes 1, so that no division traps; is_divisible selects another result then. */
static struct float_bits decompose_divisor(struct kb *k, struct kb_val b)
{
	struct float_bits p = decompose(k, b);
	struct kb_val one = constant(k, p.mantissa, 1);
	p.mantissa = kb_bin(k, KB_MAX, p.mantissa, one);
	return p;
}

/* True where a is finite and b neither 0 nor NaN. */
static struct kb_val is_divisible(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val infinite = kb_splat(k, kb_f32(k, HUGE_VALF), kb_type_of(k, a).lanes);
	struct kb_val finite = kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), infinite);
	struct kb_val zero = constant(k, b, 0);
	return kb_bin(k, KB_AND, finite, kb_cmp(k, KB_GT, kb_un(k, KB_ABS, b), zero));
}

/* |a| < |b| */
static struct kb_val is_smaller(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val limit = kb_un(k, KB_ABS, b);
	return kb_cmp(k, KB_LT, kb_un(k, KB_ABS, a), limit);
}

/* mantissa * 2^(exponent - 150) as f32, composed from its bits: OpenCL devices may flush denormal products to
 * zero. */
static struct kb_val compose(struct kb *k, struct kb_val mantissa, struct kb_val exponent)
{
	struct kb_val m = kb_cvt(k, mantissa, KB_I32), zero = constant(k, m, 0);
	struct kb_val bits = kb_bitcast(k, kb_cvt(k, m, KB_F32), KB_I32);
	struct kb_val scale = kb_sub(k, exponent, constant(k, exponent, 150));
	struct kb_val high = kb_add(k, kb_bin(k, KB_SHR, bits, constant(k, bits, 23)), scale);
	struct kb_val normal = kb_add(k, bits, kb_bin(k, KB_SHL, scale, constant(k, bits, 23)));
	struct kb_val most = constant(k, exponent, 23);
	struct kb_val by = kb_bin(k, KB_MIN, kb_sub(k, exponent, constant(k, exponent, 1)), most);
	struct kb_val denormal = kb_bin(k, KB_SHL, m, by);
	bits = kb_select(k, kb_cmp(k, KB_GT, high, zero), normal, denormal);
	return kb_bitcast(k, kb_select(k, kb_cmp(k, KB_EQ, m, zero), zero, bits), KB_F32);
}

/* a mod b. Long division: each iteration reduces SHIFT_MAX bits of the quotient, until no lane has any left. */
static struct kb_val mod_f32_in_ints(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct float_bits x = decompose(k, a), y = decompose_divisor(k, b);
	struct kb_val zero = constant(k, x.exponent, 0), most = constant(k, x.exponent, SHIFT_MAX);
	struct kb_val bits = kb_bin(k, KB_MAX, kb_sub(k, x.exponent, y.exponent), zero);
	struct kb_var left = kb_var(k, "left", kb_type_of(k, bits), bits);
	struct kb_var rem = kb_var(k, "rest", kb_type_of(k, x.mantissa), x.mantissa);
	kb_forever(k);
	struct kb_val n = kb_get(k, left), by = kb_bin(k, KB_MIN, n, most);
	struct kb_val distance = kb_cvt(k, by, KB_I64);
	struct kb_val shifted = kb_bin(k, KB_SHL, kb_get(k, rem), distance);
	kb_set(k, rem, kb_bin(k, KB_REM, shifted, y.mantissa));
	n = kb_sub(k, n, by);
	kb_set(k, left, n);
	bool is_vector = kb_type_of(k, n).lanes > 1;
	kb_break_if(k, kb_cmp(k, KB_LE, is_vector ? kb_reduce(k, KB_MAX, n) : n, kb_i32(k, 0)));
	kb_end_forever(k);
	struct kb_val r = compose(k, kb_get(k, rem), y.exponent);
	struct kb_val negative = kb_un(k, KB_NEG, r);
	r = kb_select(k, kb_cmp(k, KB_LT, a, constant(k, a, 0)), negative, r);
	r = kb_select(k, is_smaller(k, a, b), a, r);
	struct kb_val other = kb_add(k, r, b);
	return kb_select(k, differ_in_sign(k, r, b), other, r);
}

/* floor(a / b), rounded once; `rounded`, the floor of the f32 quotient, if a needs a shift beyond SHIFT_MAX: the
 * quotient is then above 2^24, where every f32 is an integer. */
static struct kb_val floor_div_f32_in_ints(struct kb *k, struct kb_val a, struct kb_val b,
                                           struct kb_val rounded)
{
	struct float_bits x = decompose(k, a), y = decompose_divisor(k, b);
	struct kb_val shift = kb_sub(k, x.exponent, y.exponent), most = constant(k, shift, SHIFT_MAX);
	struct kb_val by = kb_bin(k, KB_MIN, kb_bin(k, KB_MAX, shift, constant(k, shift, 0)), most);
	struct kb_val shifted = kb_bin(k, KB_SHL, x.mantissa, kb_cvt(k, by, KB_I64));
	struct kb_val q = kb_bin(k, KB_DIV, shifted, y.mantissa), zero = constant(k, q, 0);
	struct kb_val is_below_one = is_smaller(k, a, b), one = constant(k, q, 1);
	q = kb_select(k, is_below_one, zero, q);
	struct kb_val is_exact = kb_cmp(k, KB_EQ, kb_mul(k, q, y.mantissa), shifted);
	struct kb_val negative = kb_sub(k, zero, kb_select(k, is_exact, q, kb_add(k, q, one)));
	q = kb_cvt(k, kb_select(k, differ_in_sign(k, a, b), negative, q), KB_F32);
	return kb_select(k, kb_cmp(k, KB_GT, shift, most), rounded, q);
}

/* Where a / b is not a finite quotient: the f32 division, or NaN for mod. */
static struct kb_val divide_f32(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val rounded = kb_un(k, KB_FLOOR, kb_bin(k, KB_DIV, a, b)), ok = is_divisible(k, a, b);
	if (is_mod) {
		struct kb_val nan = kb_splat(k, kb_f32(k, NAN), kb_type_of(k, a).lanes);
		return kb_select(k, ok, mod_f32_in_ints(k, a, b), nan);
	}
	return kb_select(k, ok, floor_div_f32_in_ints(k, a, b, rounded), rounded);
}

/* Divisors 0 and -1 are replaced by 1: remainder 0. Quotients: 0 and -a (wraps). */
static struct kb_val divide_int(struct kb *k, bool is_mod, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, b, zero), is_minus = kb_cmp(k, KB_EQ, b, constant(k, a, -1));
	struct kb_val by = kb_select(k, kb_bin(k, KB_OR, is_zero, is_minus), one, b);
	struct kb_val r = kb_bin(k, KB_REM, a, by), is_too_large = differ_in_sign(k, r, by);
	if (is_mod)
		return kb_select(k, is_too_large, kb_add(k, r, by), r);
	struct kb_val q = kb_bin(k, KB_DIV, a, by);
	q = kb_select(k, is_too_large, kb_sub(k, q, one), q);
	q = kb_select(k, is_minus, kb_sub(k, zero, a), q);
	return kb_select(k, is_zero, zero, q);
}

struct kb_val eval_floor_division(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b)
{
	enum kb_scalar s = kb_type_of(e->k, a).scalar;
	bool is_mod = op->code == OP_mod;
	if (s == KB_F32)
		return divide_f32(e->k, is_mod, a, b);
	return s == KB_F64 ? divide_f64(e->k, is_mod, a, b) : divide_int(e->k, is_mod, a, b);
}

/* Significant bits of a nonnegative exponent of the dtype. */
static int64_t exponent_bits(enum ir_dtype t)
{
	return 8 * (int64_t)ir_dtype_bytes(t) - (t == DT_U8 ? 0 : 1);
}

/* Exponentiation by squaring, lowest bit of the exponent first; wraps. A negative exponent gives 0, except for
 * bases 1 and -1. */
struct kb_val eval_int_power(struct eval *e, const struct ir_op *op, struct kb_val a, struct kb_val b)
{
	struct kb *k = e->k;
	struct kb_type t = kb_type_of(k, a);
	struct kb_val zero = constant(k, a, 0), one = constant(k, a, 1), minus = constant(k, a, -1);
	struct kb_val is_odd = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, b, one), zero);
	struct kb_val sign = kb_select(k, is_odd, minus, one);
	struct kb_var base = kb_var(k, "base", t, a), left = kb_var(k, "left", t, b);
	struct kb_var result = kb_var(k, "power", t, one);
	int64_t bits = exponent_bits(eval_type(e, eval_result(op))->dtype);
	(void)kb_loop(k, "bit", kb_index(k, 0), kb_index(k, bits), 1, 0);
	struct kb_val n = kb_get(k, left), x = kb_get(k, base), y = kb_get(k, result);
	struct kb_val is_set = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, n, one), zero);
	kb_set(k, result, kb_select(k, is_set, kb_mul(k, y, x), y));
	kb_set(k, base, kb_mul(k, x, x));
	kb_set(k, left, kb_bin(k, KB_SHR, n, one));
	kb_end_loop(k);
	struct kb_val inverse = kb_select(k, kb_cmp(k, KB_EQ, a, one), one, zero);
	inverse = kb_select(k, kb_cmp(k, KB_EQ, a, minus), sign, inverse);
	struct kb_val power = kb_get(k, result);
	return kb_select(k, kb_cmp(k, KB_LT, b, zero), inverse, power);
}
