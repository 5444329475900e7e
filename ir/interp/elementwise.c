/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpreter: elementwise ops. Floats are plain f64 arithmetic; integers are
 * computed modulo 2^64 and wrapped to their width.
 */
#include <math.h>

#include "ir/interp/interp_internal.h"

static bool is_float(const struct interp_tensor *t)
{
	return ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

static uint64_t bits(double v)
{
	return (uint64_t)interp_int(v);
}

/* --- one operand ---------------------------------------------------------------------------------- */

static double sigmoid(double v)
{
	return 1 / (1 + exp(-v));
}

static double gelu_tanh(double v)
{
	return v / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
}

/* max(v, 0) that keeps NaN. */
static double positive(double v)
{
	return v <= 0 ? 0 : v;
}

#define UNARY(name, expr)                                                                                    \
	enum tfmc_status interp_eval_##name(struct interp *in, const struct ir_op *op,                       \
	                                    const struct interp_tensor *const *x, struct interp_tensor *out) \
	{                                                                                                    \
		(void)in;                                                                                    \
		(void)op;                                                                                    \
		for (int64_t i = 0; i < interp_size(out); i++) {                                             \
			double v = x[0]->data[i];                                                            \
			out->data[i] = (expr);                                                               \
		}                                                                                            \
		return TFMC_OK;                                                                              \
	}

UNARY(neg, is_float(out) ? -v : interp_wrap(out->dtype, 0 - bits(v)))
UNARY(abs, is_float(out) || v >= 0 ? fabs(v) : interp_wrap(out->dtype, 0 - bits(v)))
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
UNARY(relu, positive(v))
UNARY(relu2, positive(v) * positive(v))
UNARY(gelu, v == -HUGE_VAL ? -0.0 : v / 2 * (1 + erf(v / sqrt(2))))
UNARY(gelu_tanh, gelu_tanh(v))
UNARY(gelu_quick, v *sigmoid(1.702 * v))
UNARY(silu, v *sigmoid(v))
UNARY(scale, v *((const struct attrs_scale *)op->attrs)->f)
UNARY(softcap, interp_softcap(v, ((const struct attrs_softcap *)op->attrs)->c))
UNARY(not, v == 0)
/* Rounding to the nearest value of the dtype is left to the driver: only truncation happens here. */
UNARY(cast, ir_dtype_class(out->dtype) == DTCLASS_INT ? trunc(v) : v)

/* --- two operands ---------------------------------------------------------------------------------- */

static double smaller(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
}

static double larger(double a, double b)
{
	return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
}

static bool compare(enum ir_word_cmp kind, double a, double b)
{
	switch (kind) {
	case CMP_lt: return a < b;
	case CMP_le: return a <= b;
	case CMP_gt: return a > b;
	case CMP_ge: return a >= b;
	case CMP_eq: return a == b;
	case CMP_ne: return a != b;
	}
	return false;
}

/* The quotient is rounded down: a == quotient * b + rest, and the rest has the sign of b. */
static double float_rest(double a, double b)
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

static double int_quotient(enum ir_dtype dtype, double a, double b)
{
	int64_t x = interp_int(a), y = interp_int(b);
	if (y == 0)
		return 0;
	if (y == -1)
		return interp_wrap(dtype, 0 - (uint64_t)x);
	return interp_wrap(dtype, (uint64_t)(x / y - (x % y != 0 && (x < 0) != (y < 0))));
}

static double int_rest(double a, double b)
{
	int64_t x = interp_int(a), y = interp_int(b);
	int64_t r = y == 0 || y == -1 ? 0 : x % y;
	return (double)(r != 0 && (r < 0) != (y < 0) ? r + y : r);
}

static double int_power(enum ir_dtype dtype, double a, double b)
{
	uint64_t base = bits(a), r = 1;
	int64_t n = interp_int(b);
	if (n < 0) /* 1 / a^-b toward zero */
		return a == 1 ? 1 : a == -1 ? (n % 2 != 0 ? -1 : 1) : 0;
	for (; n > 0; n /= 2, base *= base)
		r *= n % 2 != 0 ? base : 1;
	return interp_wrap(dtype, r);
}

#define BINARY(name, expr)                                                                                   \
	enum tfmc_status interp_eval_##name(struct interp *in, const struct ir_op *op,                       \
	                                    const struct interp_tensor *const *x, struct interp_tensor *out) \
	{                                                                                                    \
		(void)in;                                                                                    \
		(void)op;                                                                                    \
		for (int64_t i = 0; i < interp_size(out); i++) {                                             \
			double a = x[0]->data[i], b = x[1]->data[i];                                         \
			out->data[i] = (expr);                                                               \
		}                                                                                            \
		return TFMC_OK;                                                                              \
	}

BINARY(add, is_float(out) ? a + b : interp_wrap(out->dtype, bits(a) + bits(b)))
BINARY(sub, is_float(out) ? a - b : interp_wrap(out->dtype, bits(a) - bits(b)))
BINARY(mul, is_float(out) ? a *b : interp_wrap(out->dtype, bits(a) * bits(b)))
BINARY(div, a / b)
BINARY(floor_div, is_float(out) ? float_quotient(a, b) : int_quotient(out->dtype, a, b))
BINARY(mod, is_float(out) ? float_rest(a, b) : int_rest(a, b))
BINARY(pow, is_float(out) ? pow(a, b) : int_power(out->dtype, a, b))
BINARY(min, smaller(a, b))
BINARY(max, larger(a, b))
BINARY(cmp, compare((enum ir_word_cmp)((const struct attrs_cmp *)op->attrs)->kind, a, b))
BINARY(and, a != 0 && b != 0)
BINARY(or, a != 0 || b != 0)

enum tfmc_status interp_eval_where(struct interp *in, const struct ir_op *op,
                                   const struct interp_tensor *const *x, struct interp_tensor *out)
{
	(void)in;
	(void)op;
	for (int64_t i = 0; i < interp_size(out); i++)
		out->data[i] = x[0]->data[i] != 0 ? x[1]->data[i] : x[2]->data[i];
	return TFMC_OK;
}

/* x [B, S, ...], len [B] */
enum tfmc_status interp_eval_mask_rows(struct interp *in, const struct ir_op *op,
                                       const struct interp_tensor *const *x, struct interp_tensor *out)
{
	int64_t index[IR_RANK_MAX];
	(void)in;
	(void)op;
	for (int64_t i = 0; i < interp_size(out); i++) {
		interp_unravel(out, i, index);
		bool inside = (double)index[1] < x[1]->data[index[0]];
		out->data[i] = inside ? x[0]->data[i] : 0;
	}
	return TFMC_OK;
}
