/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on bounds, for the rules of bound_rules.c: everything is f64, of the shape of what it bounds. */
#ifndef TFMC_TESTS_SUPPORT_BOUNDS_BOUND_MATH_H
#define TFMC_TESTS_SUPPORT_BOUNDS_BOUND_MATH_H

#include "ir/core/build.h"
#include "tests/support/bounds/bound.h"

#define U       0x1.0p-24
#define TINY    0x1.0p-126 /* elementary functions may be off by this where results are subnormal */
#define FAR     1e30       /* scores beyond it are masked ones */
#define SPREAD  104.0      /* exp(-104) is 0 in f32: keys farther than this from the largest do not count */
#define ORDER_1 4          /* roundings beside those of a sum: weights scaled in advance, the last rounding */

static inline struct ir_value as_f64(struct bound *s, struct ir_value v)
{
	return irb_cast(s->b, v, &(struct attrs_cast){.dtype = DT_F64});
}

/* Operand i as it is in f64; its bound, zeros when exact; its magnitude. */
static inline struct ir_value val(struct bound *s, const struct ir_op *op, size_t i)
{
	return as_f64(s, s->value[op->operands[i].id]);
}

static inline bool given(const struct ir_op *op, size_t i)
{
	return i < op->n_operands && op->operands[i].id;
}

/* No value where it is exact. */
static inline struct ir_value known_err(const struct bound *s, const struct ir_op *op, size_t i)
{
	return s->err[op->operands[i].id];
}

static inline struct ir_value err(struct bound *s, const struct ir_op *op, size_t i)
{
	return bound_or_zero(s, s->err[op->operands[i].id], s->value[op->operands[i].id]);
}

static inline struct ir_value mag(struct bound *s, struct ir_value v)
{
	return irb_abs(s->b, v, NULL);
}

static inline struct ir_value constant(struct bound *s, struct ir_value like, double c)
{
	const struct ir_type *t = irb_type(s->b, like);
	return t ? irb_full_of(s->b, c, DT_F64, t->rank, t->dims) : IR_NO_VALUE;
}

static inline struct ir_value add(struct bound *s, struct ir_value a, struct ir_value b)
{
	return irb_add(s->b, a, b, NULL);
}

static inline struct ir_value mul(struct bound *s, struct ir_value a, struct ir_value b)
{
	return irb_mul(s->b, a, b, NULL);
}

static inline struct ir_value quotient(struct bound *s, struct ir_value a, struct ir_value b)
{
	return irb_div(s->b, a, b, NULL);
}

static inline struct ir_value times(struct bound *s, struct ir_value a, double c)
{
	return irb_scale_by(s->b, a, c);
}

static inline struct ir_value plus(struct bound *s, struct ir_value a, double c)
{
	return add(s, a, constant(s, a, c));
}

/* b, with axes that are missing or 1, in the shape of `like`. */
static inline struct ir_value along(struct bound *s, struct ir_value b, struct ir_value like)
{
	const struct ir_type *t = irb_type(s->b, like);
	return t ? irb_broadcast_to(s->b, b, t->rank, t->dims) : IR_NO_VALUE;
}

/* Sum, mean or largest along the axis that is `from_end` from the end, in the shape of `like`. */
static inline struct ir_value along_axis(struct bound *s, enum ir_opcode code, struct ir_value x,
                                         int from_end, struct ir_value like)
{
	const struct ir_type *t = irb_type(s->b, x);
	if (!t)
		return IR_NO_VALUE;
	int64_t axis = t->rank - from_end;
	struct attrs_reduce_sum a = {.axes = {&axis, 1}, .keep = true};
	return along(s, irb_op1(s->b, code, &x, 1, &a), like);
}

/* Mean or largest of rows, in the shape of x. */
static inline struct ir_value of_row(struct bound *s, enum ir_opcode code, struct ir_value x)
{
	return along_axis(s, code, x, 1, x);
}

/* The length of rows, everywhere in the shape of `like`, which may have other rows. */
static inline struct ir_value row_length(struct bound *s, struct ir_value x, struct ir_value like)
{
	return along_axis(s, OP_reduce_sum, constant(s, x, 1), 1, like);
}

/* ---- rules that others are made of, in bound_rules.c ---- */

/* e plus the difference of two roundings of the result y to its type. */
struct ir_value bound_rounded(struct bound *s, const struct ir_op *op, struct ir_value e, struct ir_value y);
/* x where it contributes, else 0: masked and unread elements may be anything. */
struct ir_value bound_counted(struct bound *s, struct ir_value x);
/* Scores after scale and softcap: value and error. */
void bound_scaled(struct bound *s, double scale, double cap, struct ir_value *x, struct ir_value *ex);
/* Relative error of the probabilities of scores x that are known up to ex. */
struct ir_value bound_softmax_relative(struct bound *s, struct ir_value x, struct ir_value ex);
/* a b, of which ta, tb are stored transposed, and its error; ea, eb: none where exact. */
struct ir_value bound_product(struct bound *s, struct ir_value a, struct ir_value b, bool ta, bool tb);
struct ir_value bound_product_error(struct bound *s, struct ir_value a, struct ir_value ea, struct ir_value b,
                                    struct ir_value eb, bool ta, bool tb);
/* The rule of attention, in bound_attention.c. */
struct ir_value bound_attention(struct bound *s, const struct ir_op *op);

#endif
