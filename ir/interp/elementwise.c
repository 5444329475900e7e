/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter: elementwise ops. Floats in f64; integers modulo 2^64, then wrapped to their width. */
#include <math.h>

#include "ir/interp/interp_internal.h"

static bool is_int(const struct interp_tensor *t)
{
	return ir_dtype_class(t->dtype) == DTCLASS_INT;
}

/* ---- one operand ---- */

static double sigmoid(double v)
{
	return 1 / (1 + exp(-v));
}

static double gelu_tanh(double v)
{
	return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
}

/* max(v, 0), NaN stays NaN. */
static double relu(double v)
{
	return v <= 0 ? 0 : v;
}

#define UNARY(name, expr)                                        \
	INTERP_EVAL(name)                                        \
	{                                                        \
		for (int64_t i = 0; i < interp_size(out); i++) { \
			double v = x[0]->data[i];                \
			out->data[i] = (expr);                   \
		}                                                \
		return TFMC_OK;                                  \
	}

#define UNARY_NUMBER(name, expr, int_expr)                                                   \
	INTERP_EVAL(name)                                                                    \
	{                                                                                    \
		for (int64_t i = 0; i < interp_size(out); i++) {                             \
			double v = x[0]->data[i];                                            \
			int64_t n = is_int(x[0]) ? interp_get_int(x[0], i) : 0;              \
			out->data[i] = (expr);                                               \
			if (is_int(x[0]))                                                    \
				interp_set_int(out, i, interp_wrap(out->dtype, (int_expr))); \
		}                                                                            \
		return TFMC_OK;                                                              \
	}

UNARY_NUMBER(neg, -v, 0 - (uint64_t)n)
UNARY_NUMBER(abs, fabs(v), n < 0 ? 0 - (uint64_t)n : (uint64_t)n)
UNARY(exp, exp(v))
UNARY(log, log(v))
UNARY(sqrt, sqrt(v))
UNARY(rsqrt, 1 / sqrt(v))
UNARY(sin, sin(v))
UNARY(cos, cos(v))
UNARY(tanh, tanh(v))
UNARY(erf, erf(v))
UNARY(floor, floor(v))
UNARY(ceil, ceil(v))
UNARY(sigmoid, sigmoid(v))
UNARY(relu, relu(v))
UNARY(relu2, relu(v) * relu(v))
UNARY(gelu, v == -HUGE_VAL ? -0.0 : v / 2 * (1 + erf(v / sqrt(2))))
UNARY(gelu_tanh, gelu_tanh(v))
UNARY(gelu_quick, v *sigmoid(1.702 * v))
UNARY(silu, v *sigmoid(v))
UNARY(scale, v *((const struct attrs_scale *)op->attrs)->f)
UNARY(softcap, interp_softcap(v, ((const struct attrs_softcap *)op->attrs)->c))
UNARY(not, v == 0)

/* n as a double by round-to-odd: rounding it again to a float of at most 51 mantissa bits gives the correctly rounded
 * n. */
static double round_to_odd(int64_t n)
{
	uint64_t v = n < 0 ? 0 - (uint64_t)n : (uint64_t)n, lost = 0;
	int shift = 0;
	for (; v >> 53 != 0; shift++, v >>= 1)
		lost |= v & 1;
	double d = ldexp((double)(v | lost), shift);
	return n < 0 ? -d : d;
}

/* Float to int truncates here; rounding to the result type follows in interp.c. */
static double cast(const struct interp_tensor *x, int64_t i, enum ir_dtype to)
{
	bool rounds_again = ir_dtype_class(to) == DTCLASS_FLOAT && to != DT_F64;
	if (x->exact && rounds_again)
		return round_to_odd(interp_get_int(x, i));
	return ir_dtype_class(to) == DTCLASS_INT ? trunc(x->data[i]) : x->data[i];
}

INTERP_EVAL(cast)
{
	for (int64_t i = 0; i < interp_size(out); i++)
		if (is_int(x[0]) && is_int(out))
			interp_set_int(out, i, interp_get_int(x[0], i));
		else
			out->data[i] = cast(x[0], i, out->dtype);
	return TFMC_OK;
}

/* ---- two operands ---- */

static double smaller(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
}

static double larger(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
}

#define COMPARE(name, type)                                        \
	static bool name(enum ir_keyword_cmp kind, type a, type b) \
	{                                                          \
		switch (kind) {                                    \
		case CMP_lt: return a < b;                         \
		case CMP_le: return a <= b;                        \
		case CMP_gt: return a > b;                         \
		case CMP_ge: return a >= b;                        \
		case CMP_eq: return a == b;                        \
		case CMP_ne: return a != b;                        \
		}                                                  \
		return false;                                      \
	}

COMPARE(compare, double)
COMPARE(compare_ints, int64_t)

/* Floor division: a == quotient * b + remainder, and the remainder has the sign of b. */
static double float_remainder(double a, double b)
{
	double r = fmod(a, b);
	return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double float_quotient(double a, double b)
{
	double r = fmod(a, b), q = (a - r) / b;
	if (b == 0 || isinf(a))
		return a / b;
	return round(r != 0 && (r < 0) != (b < 0) ? q - 1 : q);
}

/* The integer versions, modulo 2^64; 0 if y is 0. */
static uint64_t int_quotient(int64_t x, int64_t y)
{
	if (y == 0)
		return 0;
	if (y == -1)
		return 0 - (uint64_t)x;
	return (uint64_t)(x / y - (x % y != 0 && (x < 0) != (y < 0)));
}

static uint64_t int_remainder(int64_t x, int64_t y)
{
	int64_t r = y == 0 || y == -1 ? 0 : x % y;
	return (uint64_t)(r != 0 && (r < 0) != (y < 0) ? r + y : r);
}

static uint64_t int_power(int64_t x, int64_t n)
{
	uint64_t base = (uint64_t)x, r = 1;
	if (n < 0) /* 1 / x^-n toward zero */
		return x == 1 || (x == -1 && n % 2 == 0) ? 1 : x == -1 ? UINT64_MAX : 0;
	for (; n > 0; n /= 2, base *= base)
		r *= n % 2 != 0 ? base : 1;
	return r;
}

#define BINARY(name, expr)                                           \
	INTERP_EVAL(name)                                            \
	{                                                            \
		for (int64_t i = 0; i < interp_size(out); i++) {     \
			double a = x[0]->data[i], b = x[1]->data[i]; \
			out->data[i] = (expr);                       \
		}                                                    \
		return TFMC_OK;                                      \
	}

#define BINARY_NUMBER(name, expr, int_expr)                                               \
	INTERP_EVAL(name)                                                                 \
	{                                                                                 \
		for (int64_t i = 0; i < interp_size(out); i++) {                          \
			double a = x[0]->data[i], b = x[1]->data[i];                      \
			if (!is_int(x[0])) {                                              \
				out->data[i] = (expr);                                    \
				continue;                                                 \
			}                                                                 \
			int64_t n = interp_get_int(x[0], i), m = interp_get_int(x[1], i); \
			interp_set_int(out, i, interp_wrap(out->dtype, (int_expr)));      \
		}                                                                         \
		return TFMC_OK;                                                           \
	}

BINARY_NUMBER(add, a + b, (uint64_t)n + (uint64_t)m)
BINARY_NUMBER(sub, a - b, (uint64_t)n - (uint64_t)m)
BINARY_NUMBER(mul, a *b, (uint64_t)n *(uint64_t)m)
BINARY(div, a / b)
BINARY_NUMBER(floor_div, float_quotient(a, b), int_quotient(n, m))
BINARY_NUMBER(mod, float_remainder(a, b), int_remainder(n, m))
BINARY_NUMBER(pow, pow(a, b), int_power(n, m))
BINARY_NUMBER(min, smaller(a, b), (uint64_t)(n < m ? n : m))
BINARY_NUMBER(max, larger(a, b), (uint64_t)(n > m ? n : m))
BINARY(and, a != 0 && b != 0)
BINARY(or, a != 0 || b != 0)

INTERP_EVAL(cmp)
{
	enum ir_keyword_cmp kind = (enum ir_keyword_cmp)((const struct attrs_cmp *)op->attrs)->kind;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = is_int(x[0])
		                       ? compare_ints(kind, interp_get_int(x[0], i), interp_get_int(x[1], i))
		                       : compare(kind, x[0]->data[i], x[1]->data[i]);
	return TFMC_OK;
}

INTERP_EVAL(where)
{
	for (int64_t i = 0; i < interp_size(out); i++)
		interp_copy(out, i, x[0]->data[i] != 0 ? x[1] : x[2], i, 1);
	return TFMC_OK;
}

/* x [B, S, ...], len [B] */
INTERP_EVAL(mask_rows)
{
	int64_t index[IR_RANK_MAX];
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		bool inside = (double)index[1] < x[1]->data[index[0]];
		if (inside)
			interp_copy(out, i, x[0], i, 1);
	}
	return TFMC_OK;
}
