/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions, as in SLEEF or Cephes: Cody-Waite range reduction (constants short enough that their products
 * are exact with and without fma), a minimax polynomial, exact scaling by powers of two. Branch-free: both cases are
 * computed and one is selected. kb_min and kb_max return their second operand if either is NaN: bounds are written with
 * x second, so that NaN stays NaN.
 */
#include "backends/kb/math.h"

#include <math.h>

/* 1.5 * 2^23: the sum with it has ulp 1, so it rounds x to an integer, which is in the low mantissa bits. */
#define ROUND_MAGIC 0x1.8p23f
#define LOG2E       0x1.715476p0f
#define LN2_HIGH    0x1.62e4p-1f /* 15 bits */
#define LN2_LOW     0x1.7f7d1cp-20f

struct kb_val math_const(struct kb *k, struct kb_val x, float c)
{
	return kb_splat(k, kb_f32(k, c), kb_type_of(k, x).lanes);
}

static struct kb_val const_i32(struct kb *k, struct kb_val x, int32_t c)
{
	return kb_splat(k, kb_i32(k, c), kb_type_of(k, x).lanes);
}

static struct kb_val mul_const(struct kb *k, struct kb_val x, float c)
{
	return kb_mul(k, x, math_const(k, x, c));
}

static struct kb_val add_const(struct kb *k, struct kb_val x, float c)
{
	return kb_add(k, x, math_const(k, x, c));
}

static struct kb_val abs_of(struct kb *k, struct kb_val x)
{
	return kb_un(k, KB_ABS, x);
}

/* min(|x|, most); NaN stays NaN. */
static struct kb_val bounded_abs(struct kb *k, struct kb_val x, float most)
{
	struct kb_val a = abs_of(k, x);
	return kb_min(k, math_const(k, x, most), a);
}

/* x * factor + term, fused */
static struct kb_val fma_consts(struct kb *k, struct kb_val x, float factor, float term)
{
	struct kb_val last = math_const(k, x, term);
	return kb_fma(k, x, math_const(k, x, factor), last);
}

/* copysign(x, s) for x >= 0, whose sign bit is clear. */
static struct kb_val with_sign(struct kb *k, struct kb_val x, struct kb_val s)
{
	struct kb_val bit = const_i32(k, x, INT32_MIN);
	struct kb_val sign = kb_bin(k, KB_AND, kb_bitcast(k, s, KB_I32), bit);
	return kb_bitcast(k, kb_bin(k, KB_OR, kb_bitcast(k, x, KB_I32), sign), KB_F32);
}

/* c[0] + x c[1] + .. + x^(n-1) c[n-1], by Horner's rule. */
static struct kb_val math_poly(struct kb *k, struct kb_val x, const float *c, int n)
{
	struct kb_val sum = math_const(k, x, c[n - 1]);
	for (int i = n - 2; i >= 0; i--)
		sum = kb_fma(k, sum, x, math_const(k, x, c[i]));
	return sum;
}

/* c[0] + x c[1] + .. + x^(n-1) c[n-1] by even and odd coefficients in x^2 (as Estrin's scheme): half the
 * dependency chain of Horner's rule for one more multiplication. n >= 4. */
static struct kb_val split_poly(struct kb *k, struct kb_val x, const float *c, int n)
{
	struct kb_val square = kb_mul(k, x, x), sum[2];
	for (int odd = 0; odd < 2; odd++) {
		int i = (n - 1 - odd) / 2 * 2 + odd;
		sum[odd] = math_const(k, x, c[i]);
		for (i -= 2; i >= 0; i -= 2)
			sum[odd] = kb_fma(k, sum[odd], square, math_const(k, x, c[i]));
	}
	return kb_fma(k, sum[1], x, sum[0]);
}

/* kb_min returns b if one is NaN, so only a NaN in a has to be selected; integers have none. */
struct kb_val math_min(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val m = kb_min(k, a, b);
	enum kb_scalar s = kb_type_of(k, a).scalar;
	if (s != KB_F32 && s != KB_F64)
		return m;
	return kb_select(k, kb_cmp(k, KB_NE, a, a), a, m);
}

/* As math_min. */
struct kb_val math_max(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val m = kb_max(k, a, b);
	enum kb_scalar s = kb_type_of(k, a).scalar;
	if (s != KB_F32 && s != KB_F64)
		return m;
	return kb_select(k, kb_cmp(k, KB_NE, a, a), a, m);
}

/* ---- exponentials ---- */

/* round(x) as a float and as i32, |x| < 2^22. */
struct rounded {
	struct kb_val f, i;
};

/* x + 1.5 * 2^23 has ulp 1, so the addition rounds to an integer; the bits of the sum less those of the constant are
 * that integer. */
static struct rounded round_near(struct kb *k, struct kb_val x)
{
	struct kb_val t = add_const(k, x, ROUND_MAGIC);
	struct kb_val bits = kb_bitcast(k, t, KB_I32);
	struct kb_val magic = kb_bitcast(k, math_const(k, x, ROUND_MAGIC), KB_I32);
	struct kb_val integer = add_const(k, t, -ROUND_MAGIC);
	return (struct rounded){integer, kb_sub(k, bits, magic)};
}

/* 2^n for n in [-126, 127], built from its exponent bits. */
static struct kb_val power_of_two(struct kb *k, struct kb_val n)
{
	struct kb_val biased = kb_add(k, n, const_i32(k, n, 127));
	return kb_bitcast(k, kb_bin(k, KB_SHL, biased, const_i32(k, n, 23)), KB_F32);
}

/* x * 2^n for n in [-252, 254], by two factors: only the second product can overflow or become subnormal. */
static struct kb_val scale_by_power(struct kb *k, struct kb_val x, struct kb_val n)
{
	struct kb_val half = kb_bin(k, KB_SAR, n, const_i32(k, n, 1));
	struct kb_val y = kb_mul(k, x, power_of_two(k, half));
	return kb_mul(k, y, power_of_two(k, kb_sub(k, n, half)));
}

/* n in [-127, 128] as a float, and scale = 2^n: 0 for -127, infinity for 128. */
struct power {
	struct kb_val n, scale;
};

/* Rounds as ROUND_MAGIC and adds the exponent bias: the low mantissa bits are the exponent field of 2^n. */
#define BIASED_MAGIC (ROUND_MAGIC + 127.0f)

/* t: x + BIASED_MAGIC. n is x rounded to the nearest integer; the low 8 mantissa bits of t are n + 127, and shifted
 * into the exponent field they are 2^n. */
static struct power power_near(struct kb *k, struct kb_val t)
{
	struct kb_val width = const_i32(k, t, 23);
	struct kb_val bits = kb_bin(k, KB_SHL, kb_bitcast(k, t, KB_I32), width);
	struct kb_val n = add_const(k, t, -BIASED_MAGIC);
	return (struct power){n, kb_bitcast(k, bits, KB_F32)};
}

/* e^r - 1 = r + r^2 P(r), |r| <= ln 2 / 2. */
static struct kb_val expm1_poly(struct kb *k, struct kb_val r)
{
	static const float c[] = {0x1.0p-1f, 0x1.5554dcp-3f, 0x1.5554b8p-5f, 0x1.120b72p-7f, 0x1.6d7546p-10f};
	struct kb_val p = math_poly(k, r, c, 5);
	return kb_fma(k, kb_mul(k, r, r), p, r);
}

/* e^-r - 1; the sign is in the coefficients. */
static struct kb_val expm1_poly_negative(struct kb *k, struct kb_val r)
{
	static const float c[] = {-0x1.0p0f,      0x1.0p-1f,       -0x1.5554dcp-3f,
	                          0x1.5554b8p-5f, -0x1.120b72p-7f, 0x1.6d7546p-10f};
	return kb_mul(k, r, math_poly(k, r, c, 6));
}

/* x + n factor ln 2, factor 1 or -1 */
static struct kb_val add_ln2(struct kb *k, struct kb_val x, struct kb_val n, float factor)
{
	struct kb_val r = kb_fma(k, n, math_const(k, x, factor * LN2_HIGH), x);
	return kb_fma(k, n, math_const(k, x, factor * LN2_LOW), r);
}

/* min(max(x, lo), hi); NaN gives NaN. */
static struct kb_val clamp(struct kb *k, struct kb_val x, float lo, float hi)
{
	struct kb_val below = kb_min(k, math_const(k, x, hi), x);
	return kb_max(k, math_const(k, x, lo), below);
}

/* e^x = 2^n e^r with n = round(x log2 e) and |r| <= ln 2 / 2. The clamp keeps n in the range of scale_by_power: at
 * -106 the result is 0, at 89 infinity. */
struct kb_val math_exp(struct kb *k, struct kb_val x)
{
	struct kb_val y = clamp(k, x, -106.0f, 89.0f);
	struct rounded n = round_near(k, mul_const(k, y, LOG2E));
	struct kb_val q = expm1_poly(k, add_ln2(k, y, n.f, -1));
	return scale_by_power(k, add_const(k, q, 1.0f), n.i);
}

/* x <= -88 is clamped to -88, where the scale 2^-127 has the bits of 0, so no compare and select is needed. */
struct kb_val math_exp_nonpositive(struct kb *k, struct kb_val x)
{
	struct kb_val y = kb_max(k, math_const(k, x, -88.0f), x);
	struct kb_val t = fma_consts(k, y, LOG2E, BIASED_MAGIC);
	struct power p = power_near(k, t);
	struct kb_val q = expm1_poly(k, add_ln2(k, y, p.n, -1));
	return kb_fma(k, q, p.scale, p.scale);
}

/* 1 + e^-x; infinity for x < -88.3, so that quotients by it become 0. At x = 88 e^-x is lost in the sum. */
static struct kb_val one_plus_exp_of_minus(struct kb *k, struct kb_val x)
{
	struct kb_val y = clamp(k, x, -89.0f, 88.0f), one = math_const(k, x, 1.0f);
	struct kb_val t = fma_consts(k, y, -LOG2E, BIASED_MAGIC);
	struct power p = power_near(k, t);
	struct kb_val q = expm1_poly_negative(k, add_ln2(k, y, p.n, 1));
	return kb_fma(k, kb_add(k, q, one), p.scale, one);
}

/* 2^f = 1 + f P(f), |f| <= 1/2. */
static struct kb_val exp2_poly(struct kb *k, struct kb_val f)
{
	static const float c[] = {0x1.62e430p-1f, 0x1.ebfbdep-3f,  0x1.c6af6ep-5f,
	                          0x1.3b2ba0p-7f, 0x1.5f07b4p-10f, 0x1.4308f4p-13f};
	struct kb_val one = math_const(k, f, 1.0f);
	return kb_fma(k, f, math_poly(k, f, c, 6), one);
}

/* 2^x = 2^n 2^f; x <= -127 is clamped to -127, where the scale has the bits of 0. The reduction x - n is exact. */
struct kb_val math_exp2_nonpositive(struct kb *k, struct kb_val x)
{
	struct kb_val y = kb_max(k, math_const(k, x, -127.0f), x);
	struct power p = power_near(k, add_const(k, y, BIASED_MAGIC));
	return kb_mul(k, exp2_poly(k, kb_sub(k, y, p.n)), p.scale);
}

/* ---- logarithm ---- */

/* x = m 2^e; split_float: m in [sqrt 1/2, sqrt 2) for a normal x > 0. */
struct mantissa_exponent {
	struct kb_val m, e; /* e as a float */
};

/* m and e of a normal x > 0 by subtracting the bits of sqrt 1/2: the exponent field then rounds down to e, and m is
 * near 1, where the polynomial of the logarithm is accurate. The difference is an integer subtraction of ordered bit
 * patterns. */
static struct mantissa_exponent split_float(struct kb *k, struct kb_val x)
{
	struct kb_val bits = kb_bitcast(k, x, KB_I32);
	struct kb_val root_half = const_i32(k, x, 0x3f3504f3);
	struct kb_val above = kb_sub(k, bits, root_half);
	struct kb_val e = kb_bin(k, KB_SAR, above, const_i32(k, x, 23));
	struct kb_val m = kb_sub(k, bits, kb_bin(k, KB_SHL, e, const_i32(k, x, 23)));
	m = kb_bitcast(k, m, KB_F32);
	return (struct mantissa_exponent){m, kb_cvt(k, e, KB_F32)};
}

/* log(1 + f) - f = -f^2/2 + f^3 P(f). */
static struct kb_val log_tail(struct kb *k, struct kb_val f)
{
	static const float c[] = {0x1.555554p-2f,  -0x1.ffffe6p-3f, 0x1.999d36p-3f,
	                          -0x1.55625cp-3f, 0x1.23dd18p-3f,  -0x1.fbc4e6p-4f,
	                          0x1.dc8e6ep-4f,  -0x1.dd96c8p-4f, 0x1.2c562ep-4f};
	struct kb_val square = kb_mul(k, f, f);
	struct kb_val p = math_poly(k, f, c, 9);
	struct kb_val cube = kb_mul(k, kb_mul(k, square, f), p);
	return kb_fma(k, square, math_const(k, f, -0.5f), cube);
}

/* A subnormal x as x 2^24 with e = -24; otherwise x with e = 0. */
static struct mantissa_exponent normalize(struct kb *k, struct kb_val x)
{
	struct kb_val small = kb_cmp(k, KB_LT, x, math_const(k, x, 0x1p-126f));
	struct kb_val zero = math_const(k, x, 0.0f);
	struct kb_val m = kb_select(k, small, mul_const(k, x, 0x1p24f), x);
	return (struct mantissa_exponent){m, kb_select(k, small, math_const(k, x, -24.0f), zero)};
}

/* log(x) for special x: 0 gives -inf, x < 0 NaN, +inf and NaN themselves; otherwise y. */
static struct kb_val log_special(struct kb *k, struct kb_val x, struct kb_val y)
{
	struct kb_val zero = math_const(k, x, 0.0f), inf = math_const(k, x, HUGE_VALF);
	struct kb_val finite = kb_cmp(k, KB_LT, x, inf);
	struct kb_val r = kb_select(k, finite, y, x);
	struct kb_val minus_inf = math_const(k, x, -HUGE_VALF), nan = math_const(k, x, NAN);
	r = kb_select(k, kb_cmp(k, KB_EQ, x, zero), minus_inf, r);
	return kb_select(k, kb_cmp(k, KB_LT, x, zero), nan, r);
}

/* log x = e ln 2 + log m for x = m 2^e, added from the small terms to the large one: f and its tail, e times the low
 * part of ln 2, e times the high part. */
struct kb_val math_log(struct kb *k, struct kb_val x)
{
	struct mantissa_exponent n = normalize(k, x);
	struct mantissa_exponent p = split_float(k, n.m);
	struct kb_val e = kb_add(k, p.e, n.e);
	struct kb_val f = add_const(k, p.m, -1.0f);
	struct kb_val tail = log_tail(k, f);
	struct kb_val low = kb_add(k, f, kb_fma(k, e, math_const(k, x, LN2_LOW), tail));
	struct kb_val y = kb_fma(k, e, math_const(k, x, LN2_HIGH), low);
	return log_special(k, x, y);
}

/* ---- power ---- */

/* a^b for a > 0: 2^(b e + b log2 m) for a = m 2^e; `error` is the rounding error of b e, which fma gives exactly. The
 * integer and the fraction of the exponent are separated twice (r, s), since b log2 m may exceed 1; clamps keep
 * conversions in range. */
static struct kb_val pow_positive(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct mantissa_exponent n = normalize(k, a);
	struct mantissa_exponent p = split_float(k, n.m);
	struct kb_val e = kb_add(k, p.e, n.e);
	struct kb_val f = add_const(k, p.m, -1.0f);
	struct kb_val log2m = mul_const(k, kb_add(k, f, log_tail(k, f)), LOG2E);
	struct kb_val product = clamp(k, kb_mul(k, b, e), -1000.0f, 1000.0f);
	struct kb_val error = kb_fma(k, b, e, kb_un(k, KB_NEG, product));
	struct rounded r = round_near(k, product);
	struct kb_val small = kb_fma(k, b, log2m, error);
	struct kb_val y = kb_add(k, kb_sub(k, product, r.f), small);
	struct rounded s = round_near(k, clamp(k, y, -1000.0f, 1000.0f));
	struct kb_val power = clamp(k, kb_add(k, r.f, s.f), -200.0f, 200.0f);
	struct kb_val frac = clamp(k, kb_sub(k, y, s.f), -1.0f, 1.0f);
	power = kb_cvt(k, power, KB_I32);
	return scale_by_power(k, exp2_poly(k, frac), power);
}

static struct kb_val is_integer(struct kb *k, struct kb_val x)
{
	return kb_cmp(k, KB_EQ, kb_un(k, KB_FLOOR, x), x);
}

/* |a|^b for a = 0 and |a| = infinity, whose logarithm is infinite: 0 or infinity by the sign of b; otherwise y. */
static struct kb_val pow_extreme(struct kb *k, struct kb_val a, struct kb_val b, struct kb_val y)
{
	struct kb_val zero = math_const(k, a, 0.0f), inf = math_const(k, a, HUGE_VALF);
	struct kb_val is_zero = kb_cmp(k, KB_EQ, a, zero), is_inf = kb_cmp(k, KB_EQ, abs_of(k, a), inf);
	struct kb_val up = kb_cmp(k, KB_GT, b, zero);
	y = kb_select(k, is_zero, kb_select(k, up, zero, inf), y);
	return kb_select(k, is_inf, kb_select(k, up, inf, zero), y);
}

/* The magnitude |a|^b, then the special cases of IEEE 754, later ones overriding: sign of a < 0 for odd b, NaN for a
 * finite a < 0 with fractional b, NaN operands, and 1 for a = 1 or b = 0 even with NaN. */
struct kb_val math_pow(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val zero = math_const(k, a, 0.0f), one = math_const(k, a, 1.0f);
	/* |b| > 2^40: every |a| but 1 gives 0 or infinity already at 2^40; infinity * 0 would be NaN */
	struct kb_val bounded = clamp(k, b, -0x1p40f, 0x1p40f);
	struct kb_val y = pow_extreme(k, a, b, pow_positive(k, abs_of(k, a), bounded));
	struct kb_val b_is_integer = is_integer(k, b);
	struct kb_val is_even = is_integer(k, mul_const(k, b, 0.5f));
	struct kb_val is_odd = kb_bin(k, KB_AND, b_is_integer, kb_un(k, KB_NOT, is_even));
	y = kb_select(k, is_odd, with_sign(k, y, a), y);
	/* a finite negative base with a fractional exponent has no real power */
	struct kb_val is_nan = kb_cmp(k, KB_GT, a, math_const(k, a, -HUGE_VALF));
	is_nan = kb_bin(k, KB_AND, kb_cmp(k, KB_LT, a, zero), is_nan);
	is_nan = kb_bin(k, KB_AND, is_nan, kb_un(k, KB_NOT, b_is_integer));
	y = kb_select(k, is_nan, math_const(k, a, NAN), y);
	y = kb_select(k, kb_cmp(k, KB_NE, a, a), a, y);
	y = kb_select(k, kb_cmp(k, KB_NE, b, b), b, y);
	struct kb_val is_one = kb_cmp(k, KB_EQ, a, one);
	is_one = kb_bin(k, KB_OR, kb_cmp(k, KB_EQ, b, zero), is_one);
	return kb_select(k, is_one, one, y);
}

/* ---- trigonometry ---- */

/* Cody-Waite reduction x = n pi/2 + r with n = round(x 2/pi). pi/2 is split into pieces of 9 bits, whose products
 * with n are exact for |n| < 2^15. Returns r. */
static struct kb_val trig_reduce(struct kb *k, struct kb_val x, struct rounded *n)
{
	static const float pieces[] = {0x1.92p0f, 0x1.fbp-12f, 0x1.51p-22f, 0x1.0b4612p-34f};
	*n = round_near(k, mul_const(k, x, 0x1.45f306p-1f));
	struct kb_val r = x;
	for (int i = 0; i < 4; i++)
		r = kb_fma(k, n->f, math_const(k, x, -pieces[i]), r);
	return r;
}

/* sin(r + quarter pi/2), |r| <= pi/4: sine or cosine polynomial (bit 0 of quarter), and sign (bit 1). Both polynomials
 * are computed. */
static struct kb_val sin_quarter(struct kb *k, struct kb_val r, struct kb_val quarter)
{
	static const float s[] = {-0x1.555552p-3f, 0x1.110c28p-7f, -0x1.9ac8f8p-13f};
	static const float c[] = {0x1.555554p-5f, -0x1.6c12d2p-10f, 0x1.9bd7f2p-16f};
	struct kb_val z = kb_mul(k, r, r);
	struct kb_val p = math_poly(k, z, s, 3);
	struct kb_val sine = kb_fma(k, kb_mul(k, r, z), p, r);
	struct kb_val cosine = fma_consts(k, z, -0.5f, 1.0f);
	p = math_poly(k, z, c, 3);
	cosine = kb_fma(k, kb_mul(k, z, z), p, cosine);
	struct kb_val one = const_i32(k, r, 1), two = const_i32(k, r, 2), none = const_i32(k, r, 0);
	struct kb_val swap = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, quarter, one), none);
	struct kb_val flip = kb_cmp(k, KB_NE, kb_bin(k, KB_AND, quarter, two), none);
	struct kb_val y = kb_select(k, swap, cosine, sine);
	return kb_select(k, flip, kb_un(k, KB_NEG, y), y);
}

struct kb_val math_sin(struct kb *k, struct kb_val x)
{
	struct rounded n;
	struct kb_val r = trig_reduce(k, x, &n);
	return sin_quarter(k, r, n.i);
}

struct kb_val math_cos(struct kb *k, struct kb_val x)
{
	struct rounded n;
	struct kb_val r = trig_reduce(k, x, &n);
	return sin_quarter(k, r, kb_add(k, n.i, const_i32(k, n.i, 1)));
}

/* ---- activations ---- */

struct kb_val math_rsqrt(struct kb *k, struct kb_val x)
{
	struct kb_val root = kb_un(k, KB_SQRT, x);
	return kb_bin(k, KB_DIV, math_const(k, x, 1.0f), root);
}

struct kb_val math_sigmoid(struct kb *k, struct kb_val x)
{
	struct kb_val sum = one_plus_exp_of_minus(k, x);
	return kb_bin(k, KB_DIV, math_const(k, x, 1.0f), sum);
}

struct kb_val math_relu(struct kb *k, struct kb_val x)
{
	return kb_max(k, math_const(k, x, 0.0f), x);
}

/* tanh|x| = E / (E + 2) with E = e^(2|x|) - 1 = (2^n - 1) + 2^n (e^r - 1), which does not cancel near 0; |x| >= 10
 * gives 1. */
struct kb_val math_tanh(struct kb *k, struct kb_val x)
{
	struct kb_val a = bounded_abs(k, x, 10.0f), y = kb_add(k, a, a);
	struct kb_val t = fma_consts(k, y, LOG2E, BIASED_MAGIC);
	struct power p = power_near(k, t);
	struct kb_val q = expm1_poly(k, add_ln2(k, y, p.n, -1));
	struct kb_val e = kb_fma(k, q, p.scale, add_const(k, p.scale, -1.0f));
	return with_sign(k, kb_bin(k, KB_DIV, e, add_const(k, e, 2.0f)), x);
}

/* erf(x) = x + x P(x^2) for |x| < 0.96. */
static struct kb_val erf_near(struct kb *k, struct kb_val x)
{
	static const float c[] = {0x1.06eba8p-3f, -0x1.812742p-2f,  0x1.ce2dc2p-4f, -0x1.b8085cp-6f,
	                          0x1.548b26p-8f, -0x1.a821d8p-11f, 0x1.55d9a6p-14f};
	return kb_fma(k, x, math_poly(k, kb_mul(k, x, x), c, 7), x);
}

/* erfc(a) = 2^P(a) for a in [0.95, 6]; a is bounded by 6, from where on erf is 1 in f32. */
static struct kb_val erfc_far(struct kb *k, struct kb_val a)
{
	static const float c[] = {0x1.834f92p-12f, -0x1.a15e76p0f,  -0x1.d2c256p-1f, -0x1.45c07cp-3f,
	                          0x1.3b835cp-5f,  -0x1.d374eep-8f, 0x1.f751c2p-11f, -0x1.6fdf52p-14f,
	                          0x1.446e5ep-18f, -0x1.0371a4p-23f};
	struct kb_val bounded = kb_min(k, math_const(k, a, 6.0f), a);
	return math_exp2_nonpositive(k, split_poly(k, bounded, c, 10));
}

/* A polynomial near 0, where 1 - erfc(x) would cancel; beyond, 1 - erfc(|x|) with the sign of x. */
struct kb_val math_erf(struct kb *k, struct kb_val x)
{
	struct kb_val a = abs_of(k, x);
	struct kb_val is_near = kb_cmp(k, KB_LT, a, math_const(k, a, 0.96f));
	struct kb_val erfc = erfc_far(k, a);
	struct kb_val far = with_sign(k, kb_sub(k, math_const(k, x, 1.0f), erfc), x);
	return kb_select(k, is_near, erf_near(k, x), far);
}

/*
 * x Phi(x) = max(x, 0) - a Phi(-a), a = |x|, which never cancels. Phi(-a) = 2^P(a), P(0) = -1, fitted on [0, 5.8]; P
 * decreases beyond. a is bounded because infinity * 0 would be NaN.
 */
struct kb_val math_gelu(struct kb *k, struct kb_val x)
{
	static const float c[] = {-0x1.0p0f,        -0x1.26aee6p0f,   -0x1.d63912p-2f,  -0x1.ae10f8p-5f,
	                          0x1.cca43cp-8f,   -0x1.0ca186p-14f, -0x1.06ae08p-12f, 0x1.1f7da4p-14f,
	                          -0x1.45c9e0p-17f, 0x1.9340e0p-21f,  -0x1.adaf7cp-26f};
	struct kb_val a = bounded_abs(k, x, 20.0f);
	struct kb_val tail = math_exp2_nonpositive(k, split_poly(k, a, c, 11));
	struct kb_val ramp = kb_max(k, math_const(k, x, -0.0f), x); /* -0.0: gelu(-0) is -0 */
	return kb_fma(k, kb_un(k, KB_NEG, a), tail, ramp);
}

/* x sigmoid(t) = x / (1 + e^-t) */
static struct kb_val gated(struct kb *k, struct kb_val x, struct kb_val t)
{
	return kb_bin(k, KB_DIV, x, one_plus_exp_of_minus(k, t));
}

struct kb_val math_silu(struct kb *k, struct kb_val x)
{
	return gated(k, x, x);
}

/* x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3) */
struct kb_val math_gelu_tanh(struct kb *k, struct kb_val x)
{
	struct kb_val inner = fma_consts(k, kb_mul(k, x, x), 0.044715f, 1.0f);
	return gated(k, x, kb_mul(k, mul_const(k, x, 2 * 0x1.988454p-1f), inner));
}

struct kb_val math_gelu_quick(struct kb *k, struct kb_val x)
{
	return gated(k, x, mul_const(k, x, 1.702f));
}

/* ---- tables ---- */

/* A binary tree of selects among the 16 entries, one level for each bit of the index, in all four bytes at once: bytes
 * that are selected have the mask 0xff. */
static struct kb_val lookup_by_selects(struct kb *k, const uint8_t table[16], struct kb_val words)
{
	struct kb_val left[16], ones = const_i32(k, words, 0x01010101);
	for (int i = 0; i < 16; i++)
		left[i] = const_i32(k, words, (int32_t)(0x01010101u * table[i]));
	for (int bit = 0; bit < 4; bit++) {
		struct kb_val is = kb_bin(k, KB_SHR, words, const_i32(k, words, bit));
		is = kb_bin(k, KB_AND, is, ones);
		struct kb_val mask = kb_sub(k, kb_bin(k, KB_SHL, is, const_i32(k, words, 8)), is);
		for (int i = 0; i < 8 >> bit; i++) {
			struct kb_val differ = kb_bin(k, KB_XOR, left[2 * i], left[2 * i + 1]);
			left[i] = kb_bin(k, KB_XOR, left[2 * i], kb_bin(k, KB_AND, differ, mask));
		}
	}
	return left[0];
}

/* kb_lookup16 needs 16-byte vectors, hence 4 lanes: fewer are repeated. */
struct kb_val math_lookup16(struct kb *k, const uint8_t table[16], struct kb_val words)
{
	const int repeated[4] = {0, 1, 0, 1};
	int lanes = kb_type_of(k, words).lanes;
	if (kb_caps(k)->short_bytes)
		return lookup_by_selects(k, table, words);
	if (lanes == 1)
		words = kb_splat(k, words, 4);
	else if (lanes == 2)
		words = kb_shuffle(k, words, (struct kb_val){0}, repeated, 4);
	struct kb_val entries = kb_const_u8x16(k, table);
	words = kb_bitcast(k, kb_lookup16(k, entries, kb_bitcast(k, words, KB_U8)), KB_I32);
	if (lanes == 2)
		return kb_shuffle(k, words, (struct kb_val){0}, repeated, 2);
	return lanes == 1 ? kb_lane(k, words, 0) : words;
}
