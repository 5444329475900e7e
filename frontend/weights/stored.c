/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics about weight files, common to all formats, and readers of element types that the IR lacks.
 * Elements are assembled byte by byte, independent of the alignment of the data and the byte order of this
 * machine. */
#include "frontend/weights/stored.h"

#include <math.h>
#include <string.h>

static bool report(const struct stored_source *s, const char *where, const char *text)
{
	diag_error(s->cx, s->loc, DIAG_WEIGHT_FILE, "'%s'%s: %s", s->name, where, text);
	return false;
}

bool weight_file_error(const struct stored_source *s, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, s->arena, fmt);
	return report(s, "", text);
}

bool weight_file_error_in(const struct stored_source *s, const char *kind, const char *item, const char *fmt,
                          ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, s->arena, fmt);
	return report(s, arena_printf(s->arena, ": %s '%.200s'", kind, item), text);
}

bool weight_file_error_at(const struct stored_source *s, size_t at, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, s->arena, fmt);
	return report(s, arena_printf(s->arena, ": at byte %zu", at), text);
}

/* ---- elements ---- */

uint64_t read_little_endian(const unsigned char *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static uint64_t read_big_endian(const unsigned char *p, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i++)
		v = v << 8 | p[i];
	return v;
}

double f32_from_bits(uint64_t bits)
{
	uint32_t low = (uint32_t)bits;
	float f;
	memcpy(&f, &low, sizeof(f));
	return (double)f;
}

double f64_from_bits(uint64_t bits)
{
	double d;
	memcpy(&d, &bits, sizeof(d));
	return d;
}

double stored_element(const struct stored_tensor *t, size_t i)
{
	double v;
	if (t->read != NULL)
		t->read(t->data, (int64_t)i, 1, &v);
	else
		weight_read_elements(t->dtype, t->data, (int64_t)i, 1, &v);
	return v;
}

/*
 * 8-bit float: sign, exponent with this bias, `fraction` bits, with subnormals. The caller handles NaN and
 * infinity.
 */
static double float8_value(unsigned code, int fraction, int bias)
{
	int exponent = (int)(code & 0x7f) >> fraction;
	int bits = (int)code & ((1 << fraction) - 1);
	double v = exponent == 0 ? ldexp(bits, 1 - bias - fraction)
	                         : ldexp(bits + (1 << fraction), exponent - bias - fraction);
	return code & 0x80 ? -v : v;
}

static double e4m3(uint64_t code)
{
	return (code & 0x7f) == 0x7f ? NAN : float8_value((unsigned)code, 3, 7);
}

static double e5m2(uint64_t code)
{
	if ((code & 0x7f) > 0x7c)
		return NAN;
	if ((code & 0x7f) == 0x7c)
		return code & 0x80 ? -INFINITY : INFINITY;
	return float8_value((unsigned)code, 2, 15);
}

static double e4m3fnuz(uint64_t code)
{
	return code == 0x80 ? NAN : float8_value((unsigned)code, 3, 8);
}

static double e5m2fnuz(uint64_t code)
{
	return code == 0x80 ? NAN : float8_value((unsigned)code, 2, 16);
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

READER(stored_read_u16, read_little_endian, 2, v)
READER(stored_read_u32, read_little_endian, 4, v)
READER(stored_read_u64, read_little_endian, 8, v)
READER(stored_read_f8_e4m3, read_little_endian, 1, e4m3(v))
READER(stored_read_f8_e5m2, read_little_endian, 1, e5m2(v))
READER(stored_read_f8_e4m3fnuz, read_little_endian, 1, e4m3fnuz(v))
READER(stored_read_f8_e5m2fnuz, read_little_endian, 1, e5m2fnuz(v))
READER(stored_read_f8_e8m0, read_little_endian, 1, e8m0(v))
READER(stored_read_be_i16, read_big_endian, 2, (int16_t)v)
READER(stored_read_be_u16, read_big_endian, 2, v)
READER(stored_read_be_i32, read_big_endian, 4, (int32_t)v)
READER(stored_read_be_u32, read_big_endian, 4, v)
READER(stored_read_be_i64, read_big_endian, 8, (int64_t)v)
READER(stored_read_be_u64, read_big_endian, 8, v)
READER(stored_read_be_f16, read_big_endian, 2, f16_to_f64((uint16_t)v))
READER(stored_read_be_f32, read_big_endian, 4, f32_from_bits(v))
READER(stored_read_be_f64, read_big_endian, 8, f64_from_bits(v))
