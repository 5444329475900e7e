/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of stored element types that the IR has no name for. Bits are put together byte by byte, so that
 * alignment and the order of bytes of this machine do not matter.
 */
#include "frontend/formats/stored.h"

#include <math.h>
#include <string.h>

uint64_t stored_little(const unsigned char *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static uint64_t big(const unsigned char *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

double stored_float(uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	float f;
	memcpy(&f, &low, sizeof(f));
	return (double)f;
}

double stored_double(uint64_t bits)
{
	double d;
	memcpy(&d, &bits, sizeof(d));
	return d;
}

/*
 * A float of 8 bits: sign, exponent with this bias, `fraction` bits. Exponent 0 has the subnormals; what the
 * largest codes mean differs and has been asked before.
 */
static double small_float(unsigned code, int fraction, int bias)
{
	int exponent = (int)(code & 0x7f) >> fraction;
	int bits = (int)code & ((1 << fraction) - 1);
	double v = exponent == 0 ? ldexp(bits, 1 - bias - fraction)
	                         : ldexp(bits + (1 << fraction), exponent - bias - fraction);
	return code & 0x80 ? -v : v;
}

static double e4m3(uint64_t code)
{
	return (code & 0x7f) == 0x7f ? NAN : small_float((unsigned)code, 3, 7);
}

static double e5m2(uint64_t code)
{
	if ((code & 0x7f) > 0x7c)
		return NAN;
	if ((code & 0x7f) == 0x7c)
		return code & 0x80 ? -INFINITY : INFINITY;
	return small_float((unsigned)code, 2, 15);
}

static double e4m3fnuz(uint64_t code)
{
	return code == 0x80 ? NAN : small_float((unsigned)code, 3, 8);
}

static double e5m2fnuz(uint64_t code)
{
	return code == 0x80 ? NAN : small_float((unsigned)code, 2, 16);
}

static double e8m0(uint64_t code)
{
	return code == 0xff ? NAN : ldexp(1.0, (int)code - 127);
}

#define READER(name, order, bytes, expr)                                                \
	void name(const void *data, int64_t begin, int64_t n, double *out)              \
	{                                                                               \
		const unsigned char *p = (const unsigned char *)data + begin * (bytes); \
		for (int64_t i = 0; i < n; i++) {                                       \
			uint64_t v = order(p + i * (bytes), bytes);                     \
			out[i] = (double)(expr);                                        \
		}                                                                       \
	}

READER(stored_read_u16, stored_little, 2, v)
READER(stored_read_u32, stored_little, 4, v)
READER(stored_read_u64, stored_little, 8, v)
READER(stored_read_f8_e4m3, stored_little, 1, e4m3(v))
READER(stored_read_f8_e5m2, stored_little, 1, e5m2(v))
READER(stored_read_f8_e4m3fnuz, stored_little, 1, e4m3fnuz(v))
READER(stored_read_f8_e5m2fnuz, stored_little, 1, e5m2fnuz(v))
READER(stored_read_f8_e8m0, stored_little, 1, e8m0(v))
READER(stored_read_be_i16, big, 2, (int16_t)v)
READER(stored_read_be_u16, big, 2, v)
READER(stored_read_be_i32, big, 4, (int32_t)v)
READER(stored_read_be_u32, big, 4, v)
READER(stored_read_be_i64, big, 8, (int64_t)v)
READER(stored_read_be_u64, big, 8, v)
READER(stored_read_be_f16, big, 2, f16_to_f64((uint16_t)v))
READER(stored_read_be_f32, big, 4, stored_float(v))
READER(stored_read_be_f64, big, 8, stored_double(v))
