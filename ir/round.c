/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between f64 and the narrow float formats, and the rounding to an
 * element type that ends every op. One rounding step, nearest even, directly
 * from f64: no detour over f32.
 */
#include <math.h>
#include <string.h>

#include "ir/weight.h"

/* A binary format with one sign bit, `exp` exponent bits and `mant` stored mantissa bits; at most 16 in all.
 */
struct small_float {
	int exp, mant;
};

static const struct small_float half = {5, 10};
static const struct small_float brain = {8, 7};

static uint64_t bits_of(double v)
{
	uint64_t u;
	memcpy(&u, &v, sizeof(u));
	return u;
}

/* v >> shift, rounded to nearest even. */
static uint64_t shift_nearest(uint64_t v, int shift)
{
	if (shift > 63)
		return 0;
	uint64_t down = v >> shift;
	uint64_t rest = v & ((UINT64_C(1) << shift) - 1);
	uint64_t half_way = UINT64_C(1) << (shift - 1);
	return down + (rest > half_way || (rest == half_way && (down & 1)));
}

static uint16_t to_small(struct small_float f, double v)
{
	uint64_t u = bits_of(v);
	uint64_t sign = (u >> 63) << (f.exp + f.mant);
	uint64_t infinity = ((UINT64_C(1) << f.exp) - 1) << f.mant;
	int bias = (1 << (f.exp - 1)) - 1;
	int e = (int)((u >> 52) & 0x7ff) - 1023;
	uint64_t fraction = u & ((UINT64_C(1) << 52) - 1);
	if (isnan(v)) /* quiet */
		return (uint16_t)(sign | infinity | UINT64_C(1) << (f.mant - 1));
	if (e > bias)
		return (uint16_t)(sign | infinity);
	if (e == -1023) /* zero, or far below the smallest number */
		return (uint16_t)sign;
	/* A carry out of the mantissa raises the exponent, up to infinity: what rounding wants. */
	if (e >= 1 - bias)
		return (uint16_t)(sign |
		                  (((uint64_t)(e + bias) << f.mant) + shift_nearest(fraction, 52 - f.mant)));
	return (uint16_t)(sign | shift_nearest(fraction | UINT64_C(1) << 52, 52 - f.mant + 1 - bias - e));
}

static double from_small(struct small_float f, uint16_t bits)
{
	int mantissa = bits & ((1 << f.mant) - 1);
	int e = (bits >> f.mant) & ((1 << f.exp) - 1);
	int bias = (1 << (f.exp - 1)) - 1;
	double sign = bits >> (f.exp + f.mant) ? -1.0 : 1.0;
	if (e == (1 << f.exp) - 1)
		return mantissa ? (double)NAN : sign * HUGE_VAL;
	if (e == 0)
		return sign * ldexp(mantissa, 1 - bias - f.mant);
	return sign * ldexp(mantissa | 1 << f.mant, e - bias - f.mant);
}

/* v as the nearest number of the format. */
static double nearest(struct small_float f, double v)
{
	uint64_t u = bits_of(v), one = UINT64_C(1) << (52 - f.mant);
	int bias = (1 << (f.exp - 1)) - 1, e = (int)((u >> 52) & 0x7ff) - 1023;
	if (e < 1 - bias || e >= bias)
		return from_small(f, to_small(f, v));
	/* A normal number, and what it is rounded up to is finite: the bits of the f64 are rounded. */
	u = (u + one / 2 - 1 + (u / one & 1)) & ~(one - 1);
	memcpy(&v, &u, sizeof(v));
	return v;
}

double half_to_f64(uint16_t bits)
{
	return from_small(half, bits);
}

double bf16_to_f64(uint16_t bits)
{
	return from_small(brain, bits);
}

uint16_t f64_to_half(double v)
{
	return to_small(half, v);
}

uint16_t f64_to_bf16(double v)
{
	return to_small(brain, v);
}

static double clamp_int(double v, double lo, double hi)
{
	if (isnan(v))
		return 0;
	v = rint(v);
	return v < lo ? lo : v > hi ? hi : v;
}

double ir_round(enum ir_dtype dtype, double v)
{
	switch (dtype) {
	case DT_F32: return (double)(float)v;
	case DT_F16: return nearest(half, v);
	case DT_BF16: return nearest(brain, v);
	case DT_F64: return v;
	case DT_I8: return clamp_int(v, -128, 127);
	case DT_U8: return clamp_int(v, 0, 255);
	case DT_I32: return clamp_int(v, INT32_MIN, INT32_MAX);
	case DT_I64:
		/* 2^63 is not an i64, but no double lies between; conversion to bytes saturates. */
		return clamp_int(v, -0x1p63, 0x1p63);
	case DT_BOOL: return v != 0;
	}
	return v;
}
