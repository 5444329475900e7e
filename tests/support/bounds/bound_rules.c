/* SPDX-License-Identifier: Apache-2.0 */
/*
* Error propagation of each op. With u = 2^-24 and operands known up to ea, eb, the
 * bound of a result is (derivative) x (operand errors) + (error of the op's own
 * arithmetic). Own errors: elementary functions as asserted by
 * tests/unit/kernels/test_kernel_math.c and listed in backends/kb/math.h, plus the
 * interpreter's own rounding; sums of n terms in any order n u sum |terms| (Higham
 * 2002, section 4.2); compositions (norms, softmax, attention) by the chain rule.
 */
#include <float.h>
#include <math.h>

#include "tests/support/bounds/bound_math.h"

/* ---- roundings ---- */

/* Relative difference of two roundings to a type that is not wider than the arithmetic, and at its smallest
 * numbers. */
static double narrow(enum ir_dtype t)
{
	switch (t) {
	case DT_F16: return 2 * 0x1.0p-11;
	case DT_BF16: return 2 * 0x1.0p-8;
	case DT_F32:
	case DT_F64:
	case DT_I8:
	case DT_U8:
	case DT_I16:
	case DT_I32:
	case DT_I64:
	case DT_BOOL: return 0;
	}
	return 0;
}

static enum ir_dtype type_of_result(const struct bound *s, const struct ir_op *op)
{
	return ir_type_of(s->from, op->results[0])->dtype;
}

struct ir_value bound_rounded(struct bound *s, const struct ir_op *op, struct ir_value e, struct ir_value y)
{
	enum ir_dtype t = type_of_result(s, op);
	if (narrow(t) > 0)
		e = add(s, e, times(s, mag(s, y), narrow(t)));
	return t == DT_F16 ? plus(s, e, 0x1.0p-24) : e;
}

/* ---- elementwise ---- */

enum slope { ONE, BY_Y, BY_X, BY_Y_X };

/* bound = slope * ex + ulps * 2u * max(|y|, floor) + by_x * min(|x|, 16) + TINY */
struct unary_row {
	double ulps;
	enum slope slope; /* factor of ex: c, c|y|, c/|x|, c|y/x| */
	double c, floor, by_x;
};

/* ulps: those of backends/kb/math.h and half a unit for the interpreter's rounding. */
static const struct unary_row unary[IR_N_OPS] = {
        [OP_exp] = {2, BY_Y, 2, 0, 0},
        [OP_log] = {3, BY_X, 1, 0, 0},
        [OP_sqrt] = {1, BY_Y_X, 0.5, 0, 0},
        [OP_rsqrt] = {2, BY_Y_X, 0.5, 0, 0},
        [OP_sin] = {2.5, ONE, 1, 1e-3, 0},
        [OP_cos] = {2.5, ONE, 1, 1e-3, 0},
        [OP_tanh] = {3, ONE, 1, 0, 0},
        [OP_erf] = {3, ONE, 1.13, 0, 0},
        [OP_sigmoid] = {3.5, ONE, 0.25, 0, 0},
        [OP_relu2] = {1, BY_Y_X, 2, 0, 0},
        [OP_gelu] = {4.5, ONE, 1.13, 0, 1e-6},
        [OP_gelu_tanh] = {6.5, ONE, 1.13, 0, 1e-6},
        [OP_gelu_quick] = {40.5, ONE, 1.1, 0, 0},
        [OP_silu] = {3.5, ONE, 1.1, 0, 2.5e-38}, /* 0 below -88.3, where the result is at least -3.8e-37 */
        [OP_scale] = {1.5, BY_Y_X, 1, 0, 0},     /* the factor is rounded, then the product */
        [OP_softcap] = {5, ONE, 1, 0, 0},        /* quotient, tanh, product */
        [OP_cast] = {1, ONE, 1, 0, 0},
};

static struct ir_value slope_times(struct bound *s, const struct unary_row *row, struct ir_value ex,
                                   struct ir_value x, struct ir_value y)
{
	struct ir_value e = times(s, ex, row->c);
	/* 0/0 where the operand is exactly 0: scale and relu2 of 0 are exact. */
	struct ir_value ax = irb_max(s->b, mag(s, x), constant(s, x, DBL_MIN), NULL);
	switch (row->slope) {
	case ONE: return e;
	case BY_Y: return mul(s, e, mag(s, y));
	case BY_X: return quotient(s, e, ax);
	case BY_Y_X: return mul(s, e, quotient(s, mag(s, y), ax));
	}
	return e;
}

static struct ir_value rule_unary(struct bound *s, const struct ir_op *op)
{
	const struct unary_row *row = &unary[op->code];
	struct ir_value x = val(s, op, 0), y = as_f64(s, s->value[op->results[0].id]);
	struct ir_value at = irb_max(s->b, mag(s, y), constant(s, y, row->floor), NULL);
	struct ir_value e = plus(s, times(s, at, row->ulps * 2 * U), TINY);
	if (row->by_x > 0)
		e = add(s, e, times(s, irb_min(s->b, mag(s, x), constant(s, x, 16), NULL), row->by_x));
	if (s->err[op->operands[0].id].id)
		e = add(s, e, slope_times(s, row, err(s, op, 0), x, y));
	return bound_rounded(s, op, e, y);
}

static bool is_float_value(const struct bound *s, struct ir_value v)
{
	return ir_dtype_class(ir_type_of(s->from, v)->dtype) == DTCLASS_FLOAT;
}

/* An exact operand gives an exact int or bool; otherwise the caller asked for no jumping ops. */
static struct ir_value rule_cast(struct bound *s, const struct ir_op *op)
{
	if (!is_float_value(s, op->results[0]))
		return IR_NO_VALUE;
	return rule_unary(s, op);
}

static bool no_errors(const struct bound *s, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && s->err[op->operands[i].id].id)
			return false;
	return true;
}

/* a + b, a - b, a b, a / b, a^b: both derivatives. */
static struct ir_value rule_binary(struct bound *s, const struct ir_op *op)
{
	if (!is_float_value(s, op->results[0]))
		return IR_NO_VALUE;
	struct ir_value a = mag(s, val(s, op, 0)), b = mag(s, val(s, op, 1));
	struct ir_value ea = err(s, op, 0), eb = err(s, op, 1);
	struct ir_value y = mag(s, as_f64(s, s->value[op->results[0].id]));
	double own = op->code == OP_pow ? 4e-6 : 2 * U;
	struct ir_value e = plus(s, times(s, y, own), TINY);
	if (no_errors(s, op))
		return bound_rounded(s, op, e, y);
	if (op->code == OP_mul) {
		ea = mul(s, ea, add(s, b, eb));
		eb = mul(s, eb, a);
	} else if (op->code == OP_div) {
		ea = quotient(s, ea, b);
		eb = mul(s, quotient(s, eb, b), y);
	} else if (op->code == OP_pow) {
		ea = mul(s, mul(s, quotient(s, ea, a), b), y);
		eb = mul(s, mul(s, eb, mag(s, irb_log(s->b, a, NULL))), y);
	}
	return bound_rounded(s, op, add(s, e, add(s, ea, eb)), y);
}

static struct ir_value rule_extreme(struct bound *s, const struct ir_op *op)
{
	if (no_errors(s, op))
		return IR_NO_VALUE;
	return irb_max(s->b, err(s, op, 0), err(s, op, 1), NULL);
}

/* ---- movement: errors move as values do ---- */

static struct ir_value rule_move(struct bound *s, const struct ir_op *op)
{
	struct ir_value *x = ARENA_ARRAY(&irb_module(s->b)->arena, struct ir_value, op->n_operands);
	if (no_errors(s, op))
		return IR_NO_VALUE;
	for (size_t i = 0; x && i < op->n_operands; i++)
		x[i] = is_float_value(s, op->operands[i]) ? err(s, op, i) : s->value[op->operands[i].id];
	if (op->code == OP_pad) {
		struct attrs_pad a = *(const struct attrs_pad *)op->attrs;
		a.value = 0;
		return irb_pad(s->b, x[0], &a);
	}
	return x ? irb_op1(s->b, op->code, x, op->n_operands, op->attrs) : IR_NO_VALUE;
}

/* Views have dims among their attributes, which copying imports. */
static struct ir_value rule_view(struct bound *s, const struct ir_op *op)
{
	uint32_t from = op->operands[0].id, to = op->results[0].id;
	struct ir_value x = s->value[from], y = s->value[to];
	if (no_errors(s, op))
		return IR_NO_VALUE;
	s->value[from] = s->err[from];
	irb_clone(s->b, s->from, op, s->value);
	struct ir_value e = s->value[to];
	s->value[from] = x;
	s->value[to] = y;
	return e;
}

/* Finite values keep their error, masked ones are -inf on both sides. */
static struct ir_value rule_mask(struct bound *s, const struct ir_op *op)
{
	if (no_errors(s, op))
		return IR_NO_VALUE;
	struct ir_value y = mag(s, as_f64(s, s->value[op->results[0].id]));
	struct ir_value visible = irb_cmp(s->b, y, constant(s, y, FAR), &(struct attrs_cmp){.kind = CMP_lt});
	return irb_where(s->b, visible, err(s, op, 0), constant(s, y, 0), NULL);
}

/* ---- rows ---- */

struct ir_value bound_counted(struct bound *s, struct ir_value x)
{
	struct ir_value a = mag(s, x);
	struct ir_value ok = irb_cmp(s->b, a, constant(s, a, FAR), &(struct attrs_cmp){.kind = CMP_lt});
	return irb_where(s->b, ok, x, constant(s, a, 0), NULL);
}

static struct ir_value finite(struct bound *s, struct ir_value x)
{
	return bound_counted(s, mag(s, x));
}

/*
 * Relative error of the probabilities of scores x that are known up to ex: twice the largest ex of the row
 * (key and maximum, both also in the sum), rounding of x - max, exp, the sum of n terms, the quotient.
 */
struct ir_value bound_softmax_relative(struct bound *s, struct ir_value x, struct ir_value ex)
{
	struct ir_value spread = times(s, of_row(s, OP_reduce_max, finite(s, x)), 2);
	spread = irb_min(s->b, spread, constant(s, spread, SPREAD), NULL);
	struct ir_value own = times(s, plus(s, add(s, spread, row_length(s, x, x)), 8), U);
	return add(s, own, times(s, of_row(s, OP_reduce_max, ex), 2));
}

void bound_scaled(struct bound *s, double scale, double cap, struct ir_value *x, struct ir_value *ex)
{
	*x = times(s, *x, scale);
	*ex = add(s, times(s, *ex, fabs(scale)), times(s, finite(s, *x), 2 * U));
	if (cap > 0) {
		*x = irb_softcap(s->b, *x, &(struct attrs_softcap){.c = cap});
		*ex = add(s, *ex, times(s, mag(s, *x), 10 * U));
	}
}

static struct ir_value rule_softmax(struct bound *s, const struct ir_op *op)
{
	struct ir_value y = as_f64(s, s->value[op->results[0].id]), x = val(s, op, 0), ex = err(s, op, 0);
	if (op->code == OP_masked_softmax) {
		const struct attrs_masked_softmax *a = op->attrs;
		bound_scaled(s, a->scale, a->softcap, &x, &ex);
	}
	struct ir_value e = plus(s, mul(s, y, bound_softmax_relative(s, x, ex)), TINY);
	return bound_rounded(s, op, e, y);
}

/* x - max - log(sum): absolute errors of all three, the sum's is relative in the logarithm. */
static struct ir_value rule_log_softmax(struct bound *s, const struct ir_op *op)
{
	struct ir_value y = as_f64(s, s->value[op->results[0].id]), x = val(s, op, 0), ex = err(s, op, 0);
	struct ir_value e = add(s, ex, bound_softmax_relative(s, x, ex));
	e = add(s, e, times(s, add(s, mag(s, y), finite(s, x)), 4 * U));
	return bound_rounded(s, op, e, y);
}

/* Bounds shared by a full row of x [.., V], for a result [.., 3, n]. */
static struct ir_value for_blocks(struct bound *s, struct ir_value x, struct ir_value y)
{
	const struct ir_dim *dims[IR_RANK_MAX + 1];
	const struct ir_type *t = irb_type(s->b, x), *ty = irb_type(s->b, y);
	if (!t || !ty)
		return IR_NO_VALUE;
	int64_t axis = t->rank - 1;
	struct attrs_reduce_max a = {.axes = {&axis, 1}, .keep = true};
	for (int i = 0; i < t->rank; i++)
		dims[i] = t->dims[i];
	dims[t->rank - 1] = dims[t->rank] = ir_dim_const(irb_module(s->b)->dims, 1);
	x = irb_reshape_to(s->b, irb_reduce_max(s->b, x, &a), t->rank + 1, dims);
	return irb_broadcast_to(s->b, x, ty->rank, ty->dims);
}

/* The largest of a block, the sum of exp(x - largest), x[at] - largest: what is bounded for a whole row. */
static struct ir_value rule_block_log_softmax(struct bound *s, const struct ir_op *op)
{
	struct ir_value y = as_f64(s, s->value[op->results[0].id]), x = val(s, op, 0), ex = err(s, op, 0);
	struct ir_value relative = plus(s, for_blocks(s, bound_softmax_relative(s, x, ex), y), 4 * U);
	struct ir_value e = add(s, mul(s, finite(s, y), relative), times(s, for_blocks(s, ex, y), 2));
	return bound_rounded(s, op, plus(s, e, TINY), y);
}

/* As the largest moves; indices are whole numbers, which a bound below 1 keeps. */
static struct ir_value rule_block_argmax(struct bound *s, const struct ir_op *op)
{
	struct ir_value y = s->value[op->results[0].id];
	return no_errors(s, op) ? IR_NO_VALUE : for_blocks(s, err(s, op, 0), y);
}

/* Error of the mean of squares of rows d that are known up to ed. */
static struct ir_value mean_square_error(struct bound *s, struct ir_value d, struct ir_value ed,
                                         struct ir_value mean)
{
	struct ir_value e = mul(s, ed, add(s, times(s, mag(s, d), 2), ed));
	struct ir_value own = mul(s, mean, times(s, plus(s, row_length(s, d, d), ORDER_1), U));
	return add(s, of_row(s, OP_reduce_mean, e), own);
}

/* d / sqrt(mean(d^2) + eps), then gamma and beta. */
static struct ir_value norm_error(struct bound *s, const struct ir_op *op, double eps, struct ir_value d,
                                  struct ir_value ed)
{
	struct ir_value square = of_row(s, OP_reduce_mean, mul(s, d, d));
	struct ir_value under = plus(s, square, eps), root = irb_sqrt(s->b, under, NULL);
	struct ir_value y = quotient(s, mag(s, d), root);
	struct ir_value relative = quotient(s, mean_square_error(s, d, ed, square), times(s, under, 2));
	struct ir_value e = add(s, quotient(s, ed, root), mul(s, y, plus(s, relative, 4 * U)));
	if (given(op, 1)) {
		struct ir_value gamma = along(s, mag(s, val(s, op, 1)), y);
		e = add(s, mul(s, e, gamma), mul(s, y, along(s, err(s, op, 1), y)));
		y = mul(s, y, gamma);
		e = add(s, e, times(s, y, 2 * U));
	}
	if (given(op, 2)) {
		y = add(s, y, along(s, mag(s, val(s, op, 2)), y));
		e = add(s, e, along(s, err(s, op, 2), y));
	}
	return bound_rounded(s, op, add(s, e, times(s, y, 2 * U)), y);
}

static struct ir_value rule_layer_norm(struct bound *s, const struct ir_op *op)
{
	struct ir_value x = val(s, op, 0), ex = err(s, op, 0), ax = mag(s, x);
	struct ir_value mean = of_row(s, OP_reduce_mean, x);
	struct ir_value d = irb_sub(s->b, x, mean, NULL);
	struct ir_value own = of_row(s, OP_reduce_sum, ax);
	struct ir_value e_mean = add(s, of_row(s, OP_reduce_mean, ex), times(s, own, U));
	struct ir_value ed = add(s, add(s, ex, e_mean), times(s, mag(s, d), U));
	return norm_error(s, op, ((const struct attrs_layer_norm *)op->attrs)->eps, d, ed);
}

static struct ir_value rule_rms_norm(struct bound *s, const struct ir_op *op)
{
	return norm_error(s, op, ((const struct attrs_rms_norm *)op->attrs)->eps, val(s, op, 0),
	                  err(s, op, 0));
}

/* ---- reductions and contractions ---- */

static struct ir_value apply1(struct bound *s, const struct ir_op *op, struct ir_value x)
{
	return irb_op1(s->b, op->code, &x, 1, op->attrs);
}

/* n u sum |x|, for means over n; as many ones are summed as there are terms. */
static struct ir_value rule_sum(struct bound *s, const struct ir_op *op)
{
	if (!is_float_value(s, op->results[0]))
		return IR_NO_VALUE;
	struct ir_value x = val(s, op, 0), one = constant(s, x, 1), sum = apply1(s, op, mag(s, x));
	bool in_order = op->code == OP_cumsum; /* a sum for each element */
	struct ir_value n = in_order ? apply1(s, op, one) : irb_op1(s->b, OP_reduce_sum, &one, 1, op->attrs);
	struct ir_value e = mul(s, sum, times(s, plus(s, n, 2), U));
	if (!no_errors(s, op))
		e = add(s, e, apply1(s, op, err(s, op, 0)));
	return bound_rounded(s, op, e, sum);
}

static struct ir_value rule_reduce_extreme(struct bound *s, const struct ir_op *op)
{
	struct ir_value e = err(s, op, 0);
	return no_errors(s, op) ? IR_NO_VALUE : irb_op1(s->b, OP_reduce_max, &e, 1, op->attrs);
}

struct ir_value bound_product(struct bound *s, struct ir_value a, struct ir_value b, bool ta, bool tb)
{
	return irb_matmul(s->b, a, b, &(struct attrs_matmul){.ta = ta, .tb = tb});
}

/* K, everywhere in the shape of the product. */
static struct ir_value terms_of(struct bound *s, struct ir_value a, struct ir_value b, bool ta, bool tb,
                                struct ir_value size)
{
	if (ta && tb)
		return bound_product(s, constant(s, a, 1), constant(s, b, 1), ta, tb);
	return along_axis(s, OP_reduce_sum, constant(s, ta ? b : a, 1), ta ? 2 : 1, size);
}

/* e + a b, where there are both. */
static struct ir_value add_product(struct bound *s, struct ir_value e, struct ir_value a, struct ir_value b,
                                   bool ta, bool tb)
{
	return a.id && b.id ? add(s, e, bound_product(s, a, b, ta, tb)) : e;
}

/* Error of a b, over K terms: K u |a| |b| + |a| eb + ea |b| + ea eb; ea, eb: none where exact. */
struct ir_value bound_product_error(struct bound *s, struct ir_value a, struct ir_value ea, struct ir_value b,
                                    struct ir_value eb, bool ta, bool tb)
{
	struct ir_value size = bound_product(s, mag(s, a), mag(s, b), ta, tb);
	struct ir_value e = mul(s, size, times(s, plus(s, terms_of(s, a, b, ta, tb, size), ORDER_1), U));
	e = add_product(s, e, mag(s, a), eb, ta, tb);
	return add_product(s, e, ea, eb.id ? add(s, mag(s, b), eb) : mag(s, b), ta, tb);
}

static struct ir_value rule_matmul(struct bound *s, const struct ir_op *op)
{
	const struct attrs_matmul *m = op->attrs;
	struct ir_value y = as_f64(s, s->value[op->results[0].id]);
	struct ir_value e = bound_product_error(s, val(s, op, 0), known_err(s, op, 0), val(s, op, 1),
	                                        known_err(s, op, 1), m->ta, m->tb);
	return bound_rounded(s, op, e, y);
}

static struct ir_value linear(struct bound *s, struct ir_value x, struct ir_value w)
{
	return irb_linear(s->b, x, w, IR_NO_VALUE, NULL);
}

static struct ir_value rule_linear(struct bound *s, const struct ir_op *op)
{
	struct ir_value x = mag(s, val(s, op, 0)), ex = known_err(s, op, 0), w = mag(s, val(s, op, 1)),
	                ew = known_err(s, op, 1), sum = linear(s, x, w);
	struct ir_value terms = row_length(s, x, sum);
	if (given(op, 2))
		sum = add(s, sum, along(s, mag(s, val(s, op, 2)), sum));
	struct ir_value e = times(s, mul(s, sum, plus(s, terms, ORDER_1)), U);
	if (ew.id)
		e = add(s, e, linear(s, x, ew));
	if (ex.id)
		e = add(s, e, linear(s, ex, ew.id ? add(s, w, ew) : w));
	if (given(op, 2) && known_err(s, op, 2).id)
		e = add(s, e, along(s, known_err(s, op, 2), sum));
	return bound_rounded(s, op, e, sum);
}

/* The product of each row with the matrix that it names; b [E, N] or none. */
static struct ir_value expert_linear(struct bound *s, const struct ir_op *op, struct ir_value x,
                                     struct ir_value w, struct ir_value b)
{
	const struct ir_value operands[] = {x, w, s->value[op->operands[2].id], b};
	return irb_op1(s->b, OP_expert_linear, operands, b.id ? 4 : 3, op->attrs);
}

static struct ir_value rule_expert_linear(struct bound *s, const struct ir_op *op)
{
	struct ir_value x = mag(s, val(s, op, 0)), ex = err(s, op, 0), w = mag(s, val(s, op, 1)),
	                ew = err(s, op, 1), b = IR_NO_VALUE, eb = IR_NO_VALUE;
	if (given(op, 3)) {
		b = mag(s, val(s, op, 3));
		eb = err(s, op, 3);
	}
	struct ir_value sum = expert_linear(s, op, x, w, b), terms = row_length(s, x, sum);
	struct ir_value e =
	        add(s, expert_linear(s, op, x, ew, eb), expert_linear(s, op, ex, add(s, w, ew), IR_NO_VALUE));
	e = add(s, e, times(s, mul(s, sum, plus(s, terms, ORDER_1)), U));
	return bound_rounded(s, op, e, sum);
}

/* x cos + partner sin: each term at most the largest feature times the largest of the table. */
static struct ir_value rule_rope(struct bound *s, const struct ir_op *op)
{
	struct attrs_reduce_max all = {.axes = {(int64_t[]){0, 1}, 2}};
	struct ir_value x = of_row(s, OP_reduce_max, mag(s, val(s, op, 0)));
	struct ir_value ex = add(s, of_row(s, OP_reduce_max, err(s, op, 0)), times(s, x, ORDER_1 * U));
	struct ir_value c = along(s, irb_reduce_max(s->b, mag(s, val(s, op, 1)), &all), x);
	struct ir_value ec = along(s, irb_reduce_max(s->b, err(s, op, 1), &all), x);
	struct ir_value e = add(s, mul(s, ex, add(s, c, ec)), mul(s, x, ec));
	return bound_rounded(s, op, times(s, e, 2), as_f64(s, s->value[op->results[0].id]));
}

/* ---- which rule ---- */

static struct ir_value rule_same(struct bound *s, const struct ir_op *op)
{
	return s->err[op->operands[0].id];
}

/*
 * Ops without a rule are exact, or (floor, ceil, cmp, argmax) decided by exact operands: the programs have
 * none of others. An op that is new and has no rule must give the interpreter's bits. Repeats are rewritten
 * by bound.c.
 */
typedef struct ir_value rule_fn(struct bound *s, const struct ir_op *op);
static rule_fn *const rules[IR_N_OPS] = {
        [OP_exp] = rule_unary,
        [OP_log] = rule_unary,
        [OP_sqrt] = rule_unary,
        [OP_rsqrt] = rule_unary,
        [OP_sin] = rule_unary,
        [OP_cos] = rule_unary,
        [OP_tanh] = rule_unary,
        [OP_erf] = rule_unary,
        [OP_sigmoid] = rule_unary,
        [OP_relu2] = rule_unary,
        [OP_gelu] = rule_unary,
        [OP_gelu_tanh] = rule_unary,
        [OP_gelu_quick] = rule_unary,
        [OP_silu] = rule_unary,
        [OP_scale] = rule_unary,
        [OP_softcap] = rule_unary,
        [OP_cast] = rule_cast,
        [OP_add] = rule_binary,
        [OP_sub] = rule_binary,
        [OP_mul] = rule_binary,
        [OP_div] = rule_binary,
        [OP_pow] = rule_binary,
        [OP_min] = rule_extreme,
        [OP_max] = rule_extreme,
        [OP_neg] = rule_same,
        [OP_abs] = rule_same,
        [OP_relu] = rule_same,
        [OP_where] = rule_move,
        [OP_mask_rows] = rule_move,
        [OP_concat] = rule_move,
        [OP_pad] = rule_move,
        [OP_gather] = rule_move,
        [OP_select_rows] = rule_move,
        [OP_reshape] = rule_view,
        [OP_transpose] = rule_view,
        [OP_broadcast] = rule_view,
        [OP_slice] = rule_view,
        [OP_mask] = rule_mask,
        [OP_softmax] = rule_softmax,
        [OP_masked_softmax] = rule_softmax,
        [OP_log_softmax] = rule_log_softmax,
        [OP_layer_norm] = rule_layer_norm,
        [OP_rms_norm] = rule_rms_norm,
        [OP_reduce_sum] = rule_sum,
        [OP_reduce_mean] = rule_sum,
        [OP_cumsum] = rule_sum,
        [OP_reduce_max] = rule_reduce_extreme,
        [OP_reduce_min] = rule_reduce_extreme,
        [OP_matmul] = rule_matmul,
        [OP_linear] = rule_linear,
        [OP_expert_linear] = rule_expert_linear,
        [OP_block_argmax] = rule_block_argmax,
        [OP_block_log_softmax] = rule_block_log_softmax,
        [OP_attention] = bound_attention,
        [OP_rope] = rule_rope,
};

struct ir_value bound_rule(struct bound *s, const struct ir_op *op)
{
	return rules[op->code] ? rules[op->code](s, op) : IR_NO_VALUE;
}
