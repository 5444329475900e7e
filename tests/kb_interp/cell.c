/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lane of the kernel interpreter. f32 is computed in double and rounded
 * once: for + - * / and sqrt that is the correctly rounded result, and fma asks
 * the library for it.
 */
#include "tests/kb_interp/interp_internal.h"

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
		c.f = half_to_f64(f64_to_half(v));
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

static int64_t shift_right_logical(enum kb_scalar s, int64_t a, int64_t b)
{
	if (s == KB_I32)
		return (int64_t)((uint32_t)(uint64_t)a >> (b & 31));
	return (int64_t)((uint64_t)a >> (b & 63));
}

static int64_t int_bin(enum kb_bin op, enum kb_scalar s, int64_t a, int64_t b)
{
	uint64_t x = (uint64_t)a, y = (uint64_t)b;
	int mask = s == KB_I32 ? 31 : 63;
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
	case KB_SHR: return shift_right_logical(s, a, b);
	case KB_SAR: return a < 0 ? ~(~a >> (b & mask)) : a >> (b & mask);
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

/* Toward zero; saturates; NaN gives 0. */
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
	unsigned char raw[8] = {0};
	uint64_t bits = 0;
	float f;
	union kb_cell c = {.i = 0};
	memcpy(raw, p, (size_t)kb_scalar_bytes(s));
	for (int i = 7; i >= 0; i--)
		bits = bits << 8 | raw[i];
	if (s == KB_F32) {
		memcpy(&f, p, sizeof f);
		c.f = (double)f;
	} else if (s == KB_F64) {
		memcpy(&c.f, p, sizeof c.f);
	} else if (s == KB_F16 || s == KB_BF16) {
		c.f = s == KB_F16 ? half_to_f64((uint16_t)bits) : bf16_to_f64((uint16_t)bits);
	} else {
		c = kb_cell_int(s, (int64_t)bits);
	}
	return c;
}

void kb_cell_write(enum kb_scalar s, union kb_cell v, void *p)
{
	unsigned char raw[8];
	float f = (float)v.f;
	uint64_t bits = (uint64_t)v.i;
	if (s == KB_F16)
		bits = f64_to_half(v.f);
	if (s == KB_BF16)
		bits = f64_to_bf16(v.f);
	for (int i = 0; i < 8; i++)
		raw[i] = (unsigned char)(bits >> (8 * i));
	if (s == KB_F32)
		memcpy(p, &f, sizeof f);
	else
		memcpy(p, raw, (size_t)kb_scalar_bytes(s)); /* F64: the union's bits */
}

/* ---- operations on lanes: lane i of the result ---- */

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

static union kb_cell lane_bitcast(const struct kb_lanes *l, int i)
{
	unsigned char raw[8] = {0};
	kb_cell_write(l->from.scalar, l->x[0][i], raw);
	return kb_cell_read(l->inst->type.scalar, raw);
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

static union kb_cell (*const lane_ops[])(const struct kb_lanes *, int) = {
#define KB_LANES(op, name, effect) [KBO_##op] = lane_##name,
#define KB_OP(op, name, effect)    [KBO_##op] = NULL,
#include "backends/kb/kb_ops.def"
};

void kb_lanes_compute(const struct kb_lanes *l, union kb_cell *out)
{
	union kb_cell result[KB_LANES_MAX];
	for (int i = 0; i < l->inst->type.lanes; i++)
		result[i] = lane_ops[l->inst->op](l, i);
	memcpy(out, result, (size_t)l->inst->type.lanes * sizeof *out);
}
