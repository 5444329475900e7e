/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of one lane. f32 is computed in double and rounded once, which is the correctly rounded result for +
 * - * / and sqrt; fma is the C library's fmaf.
 */
#include "tests/kb_interp/interp_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/weights/weight.h"

union kb_cell kb_cell_int(enum kb_scalar s, int64_t v)
{
	union kb_cell c = {.i = v};
	if (s == KB_BOOL)
		c.i = v != 0;
	else if (s == KB_I8)
		c.i = (int8_t)(uint8_t)(uint64_t)v;
	else if (s == KB_U8)
		c.i = (uint8_t)(uint64_t)v;
	else if (s == KB_U16)
		c.i = (uint16_t)(uint64_t)v;
	else if (s == KB_I16)
		c.i = (int16_t)(uint16_t)(uint64_t)v;
	else if (s == KB_I32)
		c.i = (int32_t)(uint32_t)(uint64_t)v;
	return c;
}

union kb_cell kb_cell_float(enum kb_scalar s, double v)
{
	union kb_cell c = {.f = v};
	if (s == KB_F32)
		c.f = (double)(float)v;
	else if (s == KB_F16)
		c.f = f16_to_f64(f64_to_f16(v));
	else if (s == KB_BF16)
		c.f = bf16_to_f64(f64_to_bf16(v));
	return c;
}

static double float_bin(enum kb_bin op, double a, double b)
{
	switch (op) {
	case KB_ADD: return a + b;
	case KB_SUB: return a - b;
	case KB_MUL: return a * b;
	case KB_DIV: return a / b;
	case KB_MIN: return a < b ? a : b;
	case KB_MAX: return a > b ? a : b;
	case KB_REM:
	case KB_AND:
	case KB_OR:
	case KB_XOR:
	case KB_SHL:
	case KB_SHR:
	case KB_SAR: return 0;
	}
	return 0;
}

/* a >> b on the bits of the type, logical or arithmetic, whatever the signedness of the type. */
static int64_t shift_right(enum kb_scalar s, int64_t a, int64_t b, bool is_arithmetic)
{
	int bits = 8 * kb_scalar_bytes(s), unused = 64 - bits;
	uint64_t high = (uint64_t)a << unused, sign = high >> 63;
	int by = unused + (int)(b & (bits - 1));
	uint64_t filled = is_arithmetic && sign && by > 0 ? ~(UINT64_MAX >> by) : 0;
	return (int64_t)(high >> by | filled);
}

static int64_t int_bin(enum kb_bin op, enum kb_scalar s, int64_t a, int64_t b)
{
	uint64_t x = (uint64_t)a, y = (uint64_t)b;
	int mask = 8 * kb_scalar_bytes(s) - 1;
	bool bad = b == 0 || (b == -1 && a == INT64_MIN);
	switch (op) {
	case KB_ADD: return (int64_t)(x + y);
	case KB_SUB: return (int64_t)(x - y);
	case KB_MUL: return (int64_t)(x * y);
	case KB_DIV: return bad ? 0 : a / b;
	case KB_REM: return bad ? 0 : a % b;
	case KB_MIN: return a < b ? a : b;
	case KB_MAX: return a > b ? a : b;
	case KB_AND: return a & b;
	case KB_OR: return a | b;
	case KB_XOR: return a ^ b;
	case KB_SHL: return (int64_t)(x << (b & mask));
	case KB_SHR: return shift_right(s, a, b, false);
	case KB_SAR: return shift_right(s, a, b, true);
	}
	return 0;
}

union kb_cell kb_cell_bin(enum kb_bin op, enum kb_scalar s, union kb_cell a, union kb_cell b)
{
	if (kb_is_float(s))
		return kb_cell_float(s, float_bin(op, a.f, b.f));
	return kb_cell_int(s, int_bin(op, s, a.i, b.i));
}

static double float_un(enum kb_un op, double a)
{
	switch (op) {
	case KB_NEG: return -a;
	case KB_ABS: return fabs(a);
	case KB_SQRT: return sqrt(a);
	case KB_FLOOR: return floor(a);
	case KB_CEIL: return ceil(a);
	case KB_NOT: return 0;
	}
	return 0;
}

union kb_cell kb_cell_un(enum kb_un op, enum kb_scalar s, union kb_cell a)
{
	if (kb_is_float(s))
		return kb_cell_float(s, float_un(op, a.f));
	if (op == KB_NOT)
		return kb_cell_int(s, s == KB_BOOL ? !a.i : ~a.i);
	bool flip = op == KB_NEG || (op == KB_ABS && a.i < 0);
	return kb_cell_int(s, flip ? (int64_t)(0 - (uint64_t)a.i) : a.i);
}

bool kb_cell_cmp(enum kb_cmp op, enum kb_scalar s, union kb_cell a, union kb_cell b)
{
	bool is_float = kb_is_float(s);
	bool less = is_float ? a.f < b.f : a.i < b.i;
	bool more = is_float ? a.f > b.f : a.i > b.i;
	bool same = is_float ? a.f == b.f : a.i == b.i;
	switch (op) {
	case KB_LT: return less;
	case KB_LE: return less || same;
	case KB_GT: return more;
	case KB_GE: return more || same;
	case KB_EQ: return same;
	case KB_NE: return !same;
	}
	return false;
}

/* Truncates, saturates; NaN gives 0. */
static union kb_cell float_to_int(enum kb_scalar to, double v)
{
	bool is_wide = to == KB_I64 || to == KB_INDEX;
	double lo = to == KB_I8    ? INT8_MIN
	            : to == KB_U8  ? 0
	            : to == KB_I16 ? INT16_MIN
	            : to == KB_I32 ? INT32_MIN
	                           : -0x1p63;
	double hi = to == KB_I8    ? INT8_MAX
	            : to == KB_U8  ? UINT8_MAX
	            : to == KB_I16 ? INT16_MAX
	            : to == KB_I32 ? INT32_MAX
	                           : 0x1p63;
	if (isnan(v))
		return kb_cell_int(to, 0);
	if (v <= lo)
		return kb_cell_int(to, is_wide ? INT64_MIN : (int64_t)lo);
	if (v >= hi)
		return kb_cell_int(to, is_wide ? INT64_MAX : (int64_t)hi);
	return kb_cell_int(to, (int64_t)v);
}

union kb_cell kb_cell_cvt(enum kb_scalar from, enum kb_scalar to, union kb_cell a)
{
	if (kb_is_float(from) && kb_is_float(to))
		return kb_cell_float(to, a.f);
	if (kb_is_float(from))
		return float_to_int(to, a.f);
	if (kb_is_float(to))
		return kb_cell_float(to, to == KB_F32 ? (double)(float)a.i : (double)a.i);
	return kb_cell_int(to, a.i);
}

union kb_cell kb_cell_read(enum kb_scalar s, const void *p)
{
	uint8_t byte;
	uint16_t half;
	uint32_t word;
	uint64_t wide;
	float f;
	union kb_cell c = {.i = 0};
	switch (s) {
	case KB_VOID:
	case KB_BOOL: break; /* never in memory */
	case KB_I8:
	case KB_U8: memcpy(&byte, p, 1); return kb_cell_int(s, byte);
	case KB_I16:
	case KB_U16: memcpy(&half, p, 2); return kb_cell_int(s, half);
	case KB_F16: memcpy(&half, p, 2); return (union kb_cell){.f = f16_to_f64(half)};
	case KB_BF16: memcpy(&half, p, 2); return (union kb_cell){.f = bf16_to_f64(half)};
	case KB_I32: memcpy(&word, p, 4); return kb_cell_int(s, word);
	case KB_F32: memcpy(&f, p, 4); return (union kb_cell){.f = (double)f};
	case KB_I64:
	case KB_INDEX: memcpy(&wide, p, 8); return kb_cell_int(s, (int64_t)wide);
	case KB_F64:
	case KB_PTR: memcpy(&c, p, 8); break;
	}
	return c;
}

void kb_cell_write(enum kb_scalar s, union kb_cell v, void *p)
{
	uint8_t byte = (uint8_t)(uint64_t)v.i;
	uint16_t half = (uint16_t)(uint64_t)v.i;
	uint32_t word = (uint32_t)(uint64_t)v.i;
	float f;
	switch (s) {
	case KB_VOID:
	case KB_BOOL: break;
	case KB_I8:
	case KB_U8: memcpy(p, &byte, 1); break;
	case KB_F16:
	case KB_BF16:
		half = s == KB_F16 ? f64_to_f16(v.f) : f64_to_bf16(v.f);
		memcpy(p, &half, 2);
		break;
	case KB_I16:
	case KB_U16: memcpy(p, &half, 2); break;
	case KB_I32: memcpy(p, &word, 4); break;
	case KB_F32:
		f = (float)v.f;
		memcpy(p, &f, 4);
		break;
	case KB_I64:
	case KB_INDEX:
	case KB_F64:
	case KB_PTR: memcpy(p, &v, 8); break;
	}
}

/* ---- KB_LANES operations: lane_NAME returns lane i of the result ---- */

static union kb_cell lane_bin(const struct kb_lanes *l, int i)
{
	return kb_cell_bin(l->inst->bin, l->from.scalar, l->x[0][i], l->x[1][i]);
}

static union kb_cell lane_un(const struct kb_lanes *l, int i)
{
	return kb_cell_un(l->inst->un, l->from.scalar, l->x[0][i]);
}

static union kb_cell lane_fma(const struct kb_lanes *l, int i)
{
	union kb_cell a = l->x[0][i], b = l->x[1][i], c = l->x[2][i];
	if (l->from.scalar == KB_F32)
		return (union kb_cell){.f = (double)fmaf((float)a.f, (float)b.f, (float)c.f)};
	return (union kb_cell){.f = fma(a.f, b.f, c.f)};
}

/* Element `at` of `bits` bits of a packed lane. */
static int64_t packed_element(union kb_cell word, int at, int bits, bool is_signed)
{
	uint64_t high = (uint64_t)word.i << (64 - bits * (at + 1));
	uint64_t part = high >> (64 - bits), sign = high >> 63;
	return (int64_t)part - (is_signed && sign ? (int64_t)1 << bits : 0);
}

static double flushed(double v)
{
	return fabs(v) < 0x1p-126 ? copysign(0, v) : v;
}

/* The product is exact in f64, and the sum nearly enough that rounding it to f32 equals a single rounding. The
 * result is flushed if it is denormal after rounding to 24 bits with unbounded exponent. */
float kb_cell_flushing_fma(float a, float b, float c)
{
	double exact = flushed((double)a) * flushed((double)b) + flushed((double)c);
	return fabs(exact) < 0x1p-126 * (1 - 0x1p-25) ? (float)copysign(0, exact) : (float)exact;
}

float kb_cell_bf16_of(union kb_cell word, int at)
{
	return (float)bf16_to_f64((uint16_t)packed_element(word, at, 16, false));
}

static union kb_cell dot_bf16(union kb_cell sum, union kb_cell a, union kb_cell b)
{
	float s = (float)sum.f;
	for (int at = 1; at >= 0; at--)
		s = kb_cell_flushing_fma(kb_cell_bf16_of(a, at), kb_cell_bf16_of(b, at), s);
	return (union kb_cell){.f = (double)s};
}

/* a + b rounded to odd: the f64 sum and its TwoSum error are exact; truncated to f32 with the last bit set if
 * inexact. */
static float add_round_to_odd(float a, float b)
{
	double sum = (double)a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
	if (fabs(sum) < 0x1p-126)
		return (float)copysign(0, sum);
	if (!(fabs(sum) < 0x1p128))
		return (float)sum;
	float near = fabs(sum) > FLT_MAX ? (float)copysign(FLT_MAX, sum) : (float)sum;
	double remaining = sum - near + lost;
	if (remaining == 0)
		return near;
	uint32_t bits;
	memcpy(&bits, &near, 4);
	bits = (bits - ((remaining < 0) != (near < 0))) | 1;
	memcpy(&near, &bits, 4);
	return near;
}

static union kb_cell dot_bf16_odd(union kb_cell sum, union kb_cell a, union kb_cell b)
{
	float product[2];
	for (int at = 0; at < 2; at++)
		product[at] = kb_cell_flushing_fma(kb_cell_bf16_of(a, at), kb_cell_bf16_of(b, at), 0);
	float s = add_round_to_odd((float)flushed(sum.f), add_round_to_odd(product[0], product[1]));
	return (union kb_cell){.f = (double)s};
}

/* DOT_U7S8_I16 */
static union kb_cell dot_i16_acc(union kb_cell sum, union kb_cell a, union kb_cell b)
{
	uint32_t word = 0;
	for (int half = 0; half < 2; half++) {
		int64_t s = packed_element(sum, half, 16, true);
		for (int at = 2 * half; at < 2 * half + 2; at++)
			s += packed_element(a, at, 8, false) * packed_element(b, at, 8, true);
		word |= (uint32_t)((uint64_t)s & 0xffff) << 16 * half;
	}
	return kb_cell_int(KB_I32, (int32_t)word);
}

union kb_cell kb_cell_dot(enum kb_dot dot, union kb_cell sum, union kb_cell a, union kb_cell b)
{
	int bits = dot == KB_DOT_S16S16 ? 16 : 8;
	if (dot == KB_DOT_BF16)
		return dot_bf16(sum, a, b);
	if (dot == KB_DOT_BF16_ODD)
		return dot_bf16_odd(sum, a, b);
	if (dot == KB_DOT_U7S8_I16)
		return dot_i16_acc(sum, a, b);
	for (int at = 0; at < 32 / bits; at++)
		sum.i += packed_element(a, at, bits, dot != KB_DOT_U8S8 && dot != KB_DOT_U7S8) *
		         packed_element(b, at, bits, true);
	return kb_cell_int(KB_I32, sum.i);
}

static union kb_cell dot_2x2(const struct kb_lanes *l, enum kb_dot dot, int i)
{
	union kb_cell sum = l->x[0][i];
	int first = i / 4 * 4, row = first + i % 4 / 2 * 2, column = first + i % 2 * 2;
	for (int at = 0; at < 2; at++)
		sum = kb_cell_dot(dot, sum, l->x[1][row + at], l->x[2][column + at]);
	return sum;
}

static union kb_cell lane_dot(const struct kb_lanes *l, int i)
{
	enum kb_dot dot = l->inst->dot;
	if (dot == KB_DOT_U8S8_2X2)
		return dot_2x2(l, KB_DOT_U8S8, i);
	if (dot == KB_DOT_S8S8_2X2)
		return dot_2x2(l, KB_DOT_S8S8, i);
	if (dot == KB_DOT_BF16_ODD_2X2)
		return dot_2x2(l, KB_DOT_BF16_ODD, i);
	return kb_cell_dot(dot, l->x[0][i], l->x[1][i], l->x[2][i]);
}

static union kb_cell lane_lookup16(const struct kb_lanes *l, int i)
{
	return l->x[0][l->x[1][i].i & 15];
}

static union kb_cell lane_cmp(const struct kb_lanes *l, int i)
{
	return (union kb_cell){.i = kb_cell_cmp(l->inst->cmp, l->from.scalar, l->x[0][i], l->x[1][i])};
}

static union kb_cell lane_select(const struct kb_lanes *l, int i)
{
	return l->x[0][i].i ? l->x[1][i] : l->x[2][i];
}

static union kb_cell lane_splat(const struct kb_lanes *l, int i)
{
	(void)i;
	return l->x[0][0];
}

static union kb_cell lane_lane(const struct kb_lanes *l, int i)
{
	(void)i;
	return l->x[0][l->inst->lane];
}

static union kb_cell lane_cvt(const struct kb_lanes *l, int i)
{
	return kb_cell_cvt(l->from.scalar, l->inst->type.scalar, l->x[0][i]);
}

/* As cvtps2dq: INT32_MIN if out of range. */
static union kb_cell lane_nearest(const struct kb_lanes *l, int i)
{
	double v = l->x[0][i].f;
	return (union kb_cell){.i = fabs(v) <= 0x1p22 ? (int64_t)nearbyint(v) : INT32_MIN};
}

/* Lane i of all lanes as bytes, which kb_lanes_compute writes once. */
static union kb_cell lane_bitcast(const struct kb_lanes *l, int i)
{
	enum kb_scalar s = l->inst->type.scalar;
	return kb_cell_read(s, l->raw + (ptrdiff_t)i * kb_scalar_bytes(s));
}

static union kb_cell lane_shuffle(const struct kb_lanes *l, int i)
{
	int lane = l->inst->lanes[i], n = l->from.lanes;
	return lane < n ? l->x[0][lane] : l->x[1][lane - n];
}

static union kb_cell lane_reduce(const struct kb_lanes *l, int i)
{
	union kb_cell tree[KB_LANES_MAX];
	(void)i;
	memcpy(tree, l->x[0], (size_t)l->from.lanes * sizeof *tree);
	for (int half = l->from.lanes / 2; half >= 1; half /= 2)
		for (int k = 0; k < half; k++)
			tree[k] = kb_cell_bin(l->inst->bin, l->from.scalar, tree[k], tree[k + half]);
	return tree[0];
}

/* lanes_NAME: all lanes of the result, in a loop that lane_NAME is inlined into. */
#define KB_LANES(op, name, effect)                                             \
	static void lanes_##name(const struct kb_lanes *l, union kb_cell *out) \
	{                                                                      \
		for (int i = 0, n = l->inst->type.lanes; i < n; i++)           \
			out[i] = lane_##name(l, i);                            \
	}
#define KB_OP(op, name, effect)
#include "backends/kb/kb_ops.def"

static void (*const lanes_ops[])(const struct kb_lanes *, union kb_cell *) = {
#define KB_LANES(op, name, effect) [KBO_##op] = lanes_##name,
#define KB_OP(op, name, effect)    [KBO_##op] = NULL,
#include "backends/kb/kb_ops.def"
};

void kb_lanes_compute(struct kb_lanes *l, union kb_cell *out)
{
	int from = kb_scalar_bytes(l->from.scalar);
	for (int i = 0; l->inst->op == KBO_BITCAST && i < l->from.lanes; i++)
		kb_cell_write(l->from.scalar, l->x[0][i], l->raw + (ptrdiff_t)i * from);
	lanes_ops[l->inst->op](l, out);
}

void kb_cells_read(enum kb_scalar s, const void *p, int n, union kb_cell *out)
{
	for (int i = 0; i < n && s == KB_F32; i++) {
		float f;
		memcpy(&f, (const char *)p + (size_t)i * sizeof(f), sizeof(f));
		out[i].f = (double)f;
	}
	for (int i = 0, bytes = kb_scalar_bytes(s); i < n && s != KB_F32; i++)
		out[i] = kb_cell_read(s, (const char *)p + (ptrdiff_t)i * bytes);
}
