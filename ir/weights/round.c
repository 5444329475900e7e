/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions between f64 and f16, bf16; rounding to an element type; stored elements to f64 and back. Rounding is one
 * step from f64 to nearest even: going through f32 would round twice.
 */
#include <math.h>
#include <string.h>

#include "ir/weights/weight.h"

/* A binary format of at most 16 bits: a sign bit, `exp` exponent bits and `mant` stored mantissa bits. */
struct small_float {
	int exp, mant;
	double (*to_f64)(uint16_t bits);
};

static const struct small_float f16 = {5, 10, f16_to_f64};
static const struct small_float bf16 = {8, 7, bf16_to_f64};

static uint64_t bits_of(double v)
{
	uint64_t u;
	memcpy(&u, &v, sizeof(u));
	return u;
}

static double f64_of(uint64_t bits)
{
	double v;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* v >> shift, rounded to nearest even; shift >= 1. v has 53 bits, so from 64 on nothing is left. */
static uint64_t shift_nearest(uint64_t v, int shift)
{
	if (shift > 63)
		return 0;
	uint64_t down = v >> shift;
	uint64_t remainder = v & ((UINT64_C(1) << shift) - 1);
	uint64_t half = UINT64_C(1) << (shift - 1);
	return down + (remainder > half || (remainder == half && (down & 1)));
}

/* v in the bits of format f, rounded once to nearest even; overflow is infinity, NaN stays NaN. A subnormal result
 * has no implicit one: the mantissa is shifted further, by as much as the exponent is too small. */
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
	if (e == -1023) /* zero, or an f64 subnormal far below the smallest value */
		return (uint16_t)sign;
	/* A carry out of the mantissa increments the exponent, up to infinity, as rounding requires. */
	if (e >= 1 - bias)
		return (uint16_t)(sign |
		                  (((uint64_t)(e + bias) << f.mant) + shift_nearest(fraction, 52 - f.mant)));
	return (uint16_t)(sign | shift_nearest(fraction | UINT64_C(1) << 52, 52 - f.mant + 1 - bias - e));
}

double f16_to_f64(uint16_t bits)
{
	/* Exponent and mantissa moved to their place in an f64 are 2^1008 times too small, also of subnormals. */
	uint64_t u = (uint64_t)(bits & 0x7fff) << 42, sign = (uint64_t)(bits >> 15) << 63;
	double v = f64_of(u) * 0x1p1008;
	bool is_finite = (bits & 0x7c00) != 0x7c00;
	return f64_of(sign | (is_finite ? bits_of(v) : u | UINT64_C(0x7ff) << 52));
}

double bf16_to_f64(uint16_t bits)
{
	uint32_t u = (uint32_t)bits << 16;
	float v;
	memcpy(&v, &u, sizeof(v));
	return (double)v;
}

/* v rounded to the format. */
static double round_small(struct small_float f, double v)
{
	uint64_t u = bits_of(v), one = UINT64_C(1) << (52 - f.mant);
	int bias = (1 << (f.exp - 1)) - 1, e = (int)((u >> 52) & 0x7ff) - 1023;
	if (e < 1 - bias || e >= bias)
		return f.to_f64(to_small(f, v));
	/* Fast path: the result is normal and finite, so the mantissa bits of the f64 are rounded in place. */
	u = (u + one / 2 - 1 + (u / one & 1)) & ~(one - 1);
	memcpy(&v, &u, sizeof(v));
	return v;
}

uint16_t f64_to_f16(double v)
{
	return to_small(f16, v);
}

uint16_t f64_to_bf16(double v)
{
	return to_small(bf16, v);
}

static double clamp_int(double v, double lo, double hi)
{
	if (isnan(v))
		return 0;
	v = rint(v);
	return v < lo ? lo : v > hi ? hi : v;
}

/* The values of each type are doubles, but for large ones of i64. */
double ir_round(enum ir_dtype dtype, double v)
{
	switch (dtype) {
	case DT_F32: return (double)(float)v;
	case DT_F16: return round_small(f16, v);
	case DT_BF16: return round_small(bf16, v);
	case DT_F64: return v;
	case DT_I8: return clamp_int(v, -128, 127);
	case DT_U8: return clamp_int(v, 0, 255);
	case DT_I16: return clamp_int(v, INT16_MIN, INT16_MAX);
	case DT_I32: return clamp_int(v, INT32_MIN, INT32_MAX);
	case DT_I64:
		/* 2^63 is not an i64, but the double below it is 2^63 - 1024; conversion to bytes saturates */
		return clamp_int(v, -0x1p63, 0x1p63);
	case DT_BOOL: return v != 0;
	}
	return v;
}

/* ---- bytes ---- */

/* Stored elements may be unaligned, hence memcpy. */
#define READ_LOOP(type, expr)                                         \
	for (int64_t i = 0; i < n; i++) {                             \
		type v;                                               \
		memcpy(&v, bytes + (size_t)i * sizeof(v), sizeof(v)); \
		out[i] = (double)(expr);                              \
	}                                                             \
	break

void weight_read_elements(enum ir_dtype dtype, const void *data, int64_t begin, int64_t n, double *out)
{
	const unsigned char *bytes = (const unsigned char *)data + begin * ir_dtype_bytes(dtype);
	switch (dtype) {
	case DT_F32: READ_LOOP(float, v);
	case DT_F16: READ_LOOP(uint16_t, f16_to_f64(v));
	case DT_BF16: READ_LOOP(uint16_t, bf16_to_f64(v));
	case DT_F64: READ_LOOP(double, v);
	case DT_I8: READ_LOOP(int8_t, v);
	case DT_U8: READ_LOOP(uint8_t, v);
	case DT_I16: READ_LOOP(int16_t, v);
	case DT_I32: READ_LOOP(int32_t, v);
	case DT_I64: READ_LOOP(int64_t, v);
	case DT_BOOL: READ_LOOP(uint8_t, v != 0);
	}
}

#define WRITE_LOOP(type, expr)                                      \
	for (int64_t i = 0; i < n; i++) {                           \
		type e = (type)(expr);                              \
		memcpy(out + (size_t)i * sizeof(e), &e, sizeof(e)); \
	}                                                           \
	break

int64_t f64_to_i64(double v)
{
	if (isnan(v))
		return 0;
	if (v >= 0x1p63)
		return INT64_MAX;
	return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

void weight_write_elements(enum ir_dtype dtype, const double *values, int64_t n, void *bytes)
{
	unsigned char *out = bytes;
	switch (dtype) {
	case DT_F32: WRITE_LOOP(float, values[i]);
	case DT_F16: WRITE_LOOP(uint16_t, f64_to_f16(values[i]));
	case DT_BF16: WRITE_LOOP(uint16_t, f64_to_bf16(values[i]));
	case DT_F64: WRITE_LOOP(double, values[i]);
	case DT_I8: WRITE_LOOP(int8_t, ir_round(dtype, values[i]));
	case DT_U8: WRITE_LOOP(uint8_t, ir_round(dtype, values[i]));
	case DT_I16: WRITE_LOOP(int16_t, ir_round(dtype, values[i]));
	case DT_I32: WRITE_LOOP(int32_t, ir_round(dtype, values[i]));
	case DT_I64: WRITE_LOOP(int64_t, f64_to_i64(values[i]));
	case DT_BOOL: WRITE_LOOP(uint8_t, values[i] != 0);
	}
}
