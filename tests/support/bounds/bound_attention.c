/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of attention: scores, masked weights with or without sinks, their product with the values. */
#include <math.h>

#include "tests/support/bounds/bound_math.h"

/* x [B, H, S, T] beside one number for each head: [B, H, S, T + 1]. */
static struct ir_value beside(struct bound *s, struct ir_value x, struct ir_value heads)
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
static struct ir_value by_query_head(struct bound *s, struct ir_value x, const struct ir_dim *heads)
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

/* p [B, H, S, T] from scores, masked as the op masks. */
static struct ir_value probabilities(struct bound *s, const struct ir_op *op, struct ir_value scores)
{
	const struct attrs_attention *a = op->attrs;
	struct ir_value x[3] = {scores, given(op, 4) ? s->value[op->operands[4].id] : IR_NO_VALUE,
	                        given(op, 5) ? s->value[op->operands[5].id] : IR_NO_VALUE};
	return irb_op1(s->b, OP_masked_softmax, x, 3,
	               &(struct attrs_masked_softmax){.scale = 1, .mask = a->mask, .window = a->window});
}

/* Weights of scores beside sinks, and their error: those of a softmax that is one column wider, which then
 * goes. */
static struct ir_value weights_beside(struct bound *s, const struct ir_op *op, struct ir_value x,
                                      struct ir_value ex, struct ir_value *ep)
{
	const struct attrs_attention *a = op->attrs;
	const struct attrs_mask mask = {.mask = a->mask, .window = a->window};
	struct ir_value len = given(op, 4) ? s->value[op->operands[4].id] : IR_NO_VALUE;
	struct ir_value past = given(op, 5) ? s->value[op->operands[5].id] : IR_NO_VALUE;
	struct ir_value z = val(s, op, 6), ez = add(s, err(s, op, 6), times(s, mag(s, z), 2 * U));
	const struct ir_type *t = irb_type(s->b, x);
	if (!t)
		return IR_NO_VALUE;
	struct ir_value p = irb_softmax(s->b, beside(s, irb_mask(s->b, x, len, past, &mask), z), NULL);
	struct ir_value relative = bound_softmax_relative(s, beside(s, x, z), beside(s, ex, ez));
	const struct ir_dim *zero = ir_dim_const(irb_module(s->b)->dims, 0);
	*ep = irb_slice_of(s->b, plus(s, mul(s, p, relative), TINY), 3, zero, t->dims[3]);
	return irb_slice_of(s->b, p, 3, zero, t->dims[3]);
}

/* Keys or values of every query head, and their error: integers times scales are rounded once. */
static void keys_of(struct bound *s, const struct ir_op *op, size_t i, size_t scale, struct ir_value *x,
                    struct ir_value *e)
{
	const struct ir_dim *heads = irb_type(s->b, s->value[op->operands[0].id])->dims[1];
	*x = val(s, op, i);
	*e = known_err(s, op, i);
	if (given(op, scale)) { /* integers have no error */
		*e = mul(s, mag(s, *x), along(s, err(s, op, scale), *x));
		*x = mul(s, *x, along(s, val(s, op, scale), *x));
		*e = add(s, *e, times(s, mag(s, *x), 2 * U));
	}
	*x = by_query_head(s, bound_counted(s, *x), heads);
	if (e->id)
		*e = by_query_head(s, bound_counted(s, *e), heads);
}

/* Rounding to bf16 moves a number by at most 2^-8 of it, to one side here and to the other there. */
static struct ir_value to_bf16(struct bound *s, const struct ir_op *op, struct ir_value x, struct ir_value e)
{
	const struct attrs_attention *a = op->attrs;
	if (a->factors != FACTORS_bf16)
		return e;
	x = mag(s, x);
	return e.id ? add(s, e, times(s, add(s, x, e), 0x1p-7)) : times(s, x, 0x1p-7);
}

struct ir_value bound_attention(struct bound *s, const struct ir_op *op)
{
	const struct attrs_attention *a = op->attrs;
	struct ir_value q = val(s, op, 0), eq = known_err(s, op, 0), k, ek, v, ev;
	keys_of(s, op, 1, OPERAND(attention, k_scale), &k, &ek);
	keys_of(s, op, 2, OPERAND(attention, v_scale), &v, &ev);
	eq = to_bf16(s, op, q, eq);
	ek = to_bf16(s, op, k, ek);
	ev = to_bf16(s, op, v, ev);
	struct ir_value x = times(s, bound_product(s, q, k, false, true), a->scale);
	struct ir_value ex = times(s, bound_product_error(s, q, eq, k, ek, false, true), fabs(a->scale));
	if (given(op, 3)) {
		x = add(s, x, val(s, op, 3));
		ex = add(s, ex, err(s, op, 3));
	}
	bound_scaled(s, 1, a->softcap, &x, &ex);
	struct ir_value p, ep;
	if (given(op, 6)) {
		p = weights_beside(s, op, x, ex, &ep);
	} else {
		p = probabilities(s, op, x);
		ep = plus(s, mul(s, p, bound_softmax_relative(s, x, ex)), TINY);
	}
	ep = to_bf16(s, op, p, ep);
	return bound_rounded(s, op, bound_product_error(s, p, ep, v, ev, false, false),
	                     as_f64(s, s->value[op->results[0].id]));
}
