/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on bounds, for the rules of bound_rules.c: everything is f64, of the shape of what it bounds. */
#ifndef TFMC_TESTS_MATRIX_BOUND_MATH_H
#define TFMC_TESTS_MATRIX_BOUND_MATH_H

#include "ir/builder/build.h"
#include "tests/matrix/bounds/bound.h"

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

/* b [N] along the last axis of `like`. */
static inline struct ir_value along(struct bound *s, struct ir_value b, struct ir_value like)
{
	const struct ir_type *t = irb_type(s->b, like);
	return t ? irb_broadcast_to(s->b, b, t->rank, t->dims) : IR_NO_VALUE;
}

/* Mean or largest of rows, in the shape of x. */
static inline struct ir_value of_row(struct bound *s, enum ir_opcode code, struct ir_value x)
{
	const struct ir_type *t = irb_type(s->b, x);
	if (!t)
		return IR_NO_VALUE;
	int64_t axis = t->rank - 1;
	struct attrs_reduce_sum a = {.axes = {&axis, 1}, .keep = true};
	return along(s, irb_op1(s->b, code, &x, 1, &a), x);
}

/* The length of rows, everywhere in the shape of x. */
static inline struct ir_value row_length(struct bound *s, struct ir_value x)
{
	return of_row(s, OP_reduce_sum, constant(s, x, 1));
}

/* x [B, H, S, T] beside one number for each head: [B, H, S, T + 1]. */
static inline struct ir_value beside(struct bound *s, struct ir_value x, struct ir_value heads)
{
	const struct ir_type *t = irb_type(s->b, x);
	if (!t)
		return IR_NO_VALUE;
	const struct ir_dim *one = ir_dim_const(irb_module(s->b)->dims, 1);
	const struct ir_dim *wide[] = {one, t->dims[1], one, one},
	                    *column[] = {t->dims[0], t->dims[1], t->dims[2], one};
	const struct ir_value both[] = {
	        x, irb_broadcast_to(s->b, irb_reshape_to(s->b, heads, 4, wide), 4, column)};
	return irb_op1(s->b, OP_concat, both, 2, &(struct attrs_concat){.axis = 3});
}

/* [B, K, T, E] -> [B, H, T, E]: the key head of every query head. */
static inline struct ir_value by_query_head(struct bound *s, struct ir_value x, const struct ir_dim *heads)
{
	const struct ir_type *t = irb_type(s->b, x);
	struct ir_dims *d = irb_module(s->b)->dims;
	int64_t have, want;
	if (!t || !ir_dim_is_const(t->dims[1], &have) || !ir_dim_is_const(heads, &want) || have == want)
		return x;
	const struct ir_dim *one = ir_dim_const(d, 1), *group = ir_dim_const(d, want / have);
	x = irb_reshape_to(s->b, x, 5,
	                   (const struct ir_dim *[]){t->dims[0], t->dims[1], one, t->dims[2], t->dims[3]});
	x = irb_broadcast_to(
	        s->b, x, 5, (const struct ir_dim *[]){t->dims[0], t->dims[1], group, t->dims[2], t->dims[3]});
	return irb_reshape_to(s->b, x, 4,
	                      (const struct ir_dim *[]){t->dims[0], heads, t->dims[2], t->dims[3]});
}

#endif
