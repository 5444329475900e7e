/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peels scale, mask, softcap and bias off the operand of a softmax, outermost first. Invariant: the operand of the
 * softmax equals mask(f softcap(g x)), f and g being the factors collected outside and inside of the softcap.
 */
#include "passes/graph/scores.h"

#include <math.h>

struct score_peeler {
	const struct rebuild *r;
	struct scores *s;
};

/* The op that defines x if it has that code and x has one use; else NULL, with s->blocked set for other users. */
static const struct ir_op *single_use_def(struct score_peeler *p, enum ir_opcode code)
{
	const struct ir_op *op = ir_def_as(p->r->f, p->s->x, code);
	if (op == NULL)
		return NULL;
	if (rebuild_has_one_use(p->r, p->s->x))
		return op;
	p->s->blocked = "the scores before the softmax are used again";
	return NULL;
}

static void advance(struct score_peeler *p, const struct ir_op *op)
{
	p->s->x = op->operands[0];
	p->s->n_peeled++;
}

/* Peels scales and returns their product. Only positive ones: those commute with a mask, as they preserve -inf. */
static double peel_scales(struct score_peeler *p)
{
	double f = 1;
	for (const struct ir_op *op; (op = single_use_def(p, OP_scale)) != NULL; advance(p, op)) {
		double more = ((const struct attrs_scale *)op->attrs)->f;
		if (!(more > 0) || !isfinite(f * more))
			return f;
		f *= more;
	}
	return f;
}

/* Peels a mask; its positions and lengths become those of the scores. */
static void peel_mask(struct score_peeler *p)
{
	const struct ir_op *op = single_use_def(p, OP_mask);
	if (op == NULL)
		return;
	p->s->mask = ((const struct attrs_mask *)op->attrs)->mask;
	p->s->window = ((const struct attrs_mask *)op->attrs)->window;
	p->s->len = op->operands[OPERAND(mask, len)];
	p->s->past = op->operands[OPERAND(mask, past)];
	advance(p, op);
}

/* f c tanh(x / c) = c' tanh(f x / c') with c' = f c: a factor outside of the softcap moves inside. */
static void peel_softcap(struct score_peeler *p)
{
	const struct ir_op *op = single_use_def(p, OP_softcap);
	double c = op != NULL ? ((const struct attrs_softcap *)op->attrs)->c : 0;
	if (!(c > 0) || !isfinite(c * p->s->scale))
		return;
	p->s->softcap = c * p->s->scale;
	advance(p, op);
}

/* Peels an added bias: the operand that is not a matmul, scaled or not; the second one if neither is. Only if no
 * factor was peeled before: scale (x + bias) is not scale x + bias. */
static void peel_bias(struct score_peeler *p)
{
	const struct ir_op *op = single_use_def(p, OP_add);
	if (op == NULL || p->s->scale != 1)
		return;
	size_t x = ir_def_as(p->r->f, op->operands[1], OP_matmul) != NULL ? 1 : 0;
	const struct ir_op *other = ir_def_as(p->r->f, op->operands[1], OP_scale);
	if (other != NULL && ir_def_as(p->r->f, other->operands[0], OP_matmul) != NULL)
		x = 1;
	p->s->bias = op->operands[1 - x];
	p->s->x = op->operands[x];
	p->s->n_peeled++;
}

static void init_scores(struct scores *s, struct ir_value x)
{
	*s = (struct scores){.x = x, .scale = 1, .mask = MASK_none};
}

static void peel_inside(struct score_peeler *p)
{
	p->s->scale = peel_scales(p);
	peel_mask(p);
	p->s->scale *= peel_scales(p);
	peel_softcap(p);
	p->s->scale *= peel_scales(p);
}

static void peel_added(struct score_peeler *p)
{
	peel_bias(p);
	p->s->scale *= peel_scales(p);
}

void scores_read_from(const struct rebuild *r, struct ir_value x, struct scores *out)
{
	struct score_peeler p = {r, out};
	init_scores(out, x);
	peel_inside(&p);
	peel_added(&p);
}

/* A masked_softmax has its scale, softcap and mask in its attributes; the ops before it can only be a bias and
 * scales. */
void scores_read(const struct rebuild *r, const struct ir_op *op, bool with_bias, struct scores *out)
{
	struct score_peeler p = {r, out};
	init_scores(out, op->operands[0]);
	if (op->code == OP_masked_softmax) {
		const struct attrs_masked_softmax *a = op->attrs;
		out->scale = a->scale;
		out->softcap = a->softcap;
		out->mask = a->mask;
		out->window = a->window;
		out->len = op->operands[OPERAND(masked_softmax, len)];
		out->past = op->operands[OPERAND(masked_softmax, past)];
	} else {
		peel_inside(&p);
	}
	if (with_bias)
		peel_added(&p);
}
