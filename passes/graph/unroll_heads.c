/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repeat %i = 0 to H carry (%y) { .. %o = attention of one head ..  yield %y + W[%i] %o } is written out H
 * times; a weight at [%i] becomes a weight of its own, index(0, i, E). Refused unless the body is exactly one
 * head, whose loop index only chooses weights: merge-heads makes one attention of what is written out, so no
 * code grows.
 */
#include "passes/graph/unroll_heads.h"

#include "passes/weights/join_weights.h"

#define UNROLL_HEADS_MAX 256
#define INDEX_ARG        0
#define CARRY_ARG        1

static bool defined_inside(const struct rebuild *r, const struct ir_region *body, struct ir_value v)
{
	return ir_value_info(r->f, v)->region == body;
}

/* Position of the loop index among the indices of a weight op, or -1. */
static int index_position(const struct ir_op *weight, struct ir_value index)
{
	for (size_t i = 0; i < weight->n_operands; i++)
		if (ir_same_value(weight->operands[i], index))
			return (int)i;
	return -1;
}

/* Ops that can be written out: no regions, no state; the index only chooses weights, each by one of its axes. */
static bool plain_body(const struct rebuild *r, const struct ir_region *body, size_t *n_attention)
{
	uint32_t n_weights = 0;
	*n_attention = 0;
	for (size_t i = 0; i + 1 < body->n_ops; i++) {
		const struct ir_op *op = body->ops[i];
		if (!ir_op_has(op->code, TRAIT_PURE))
			return false;
		*n_attention += op->code == OP_attention;
		if (op->code != OP_weight || index_position(op, body->args[INDEX_ARG]) < 0)
			continue;
		const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
		if (w->init == NULL || w->encoding != ENC_ROW || w->init->depth + 2 > WEXPR_DEPTH_MAX)
			return false;
		n_weights++;
	}
	return r->uses[body->args[INDEX_ARG].id] == n_weights;
}

/* v is the output linear of one head [B,1,S,E], with a weight of its own in each round; nothing else reads
 * it. */
static bool is_head_term(const struct rebuild *r, const struct ir_region *body, struct ir_value v)
{
	const struct ir_op *out = ir_def_as(r->f, v, OP_linear);
	if (out == NULL || out->operands[OPERAND(linear, b)].id != 0 || !rebuild_once(r, v))
		return false;
	const struct ir_op *w = ir_def_as(r->f, out->operands[1], OP_weight);
	const struct ir_op *flat = ir_def_as(r->f, out->operands[0], OP_reshape);
	if (w == NULL || flat == NULL || index_position(w, body->args[INDEX_ARG]) < 0 ||
	    !rebuild_once(r, out->operands[1]) || !rebuild_once(r, out->operands[0]))
		return false;
	const struct ir_op *a = ir_def_as(r->f, flat->operands[0], OP_attention);
	return a != NULL && rebuild_once(r, flat->operands[0]) &&
	       a->operands[OPERAND(attention, bias)].id == 0 &&
	       a->operands[OPERAND(attention, sinks)].id == 0 &&
	       a->operands[OPERAND(attention, k_scale)].id == 0 &&
	       a->operands[OPERAND(attention, v_scale)].id == 0 &&
	       ir_type_of(r->f, flat->results[0])->rank == 3 &&
	       ir_dim_equals(ir_type_of(r->f, a->results[0])->dims[1], 1);
}

/* The yielded value is the carry plus the term of one head. */
static bool adds_a_head(const struct rebuild *r, const struct ir_region *body)
{
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	const struct ir_op *sum = ir_def_as(r->f, yield->operands[0], OP_add);
	struct ir_value carry = body->args[CARRY_ARG];
	if (sum == NULL || r->uses[carry.id] != 1)
		return false;
	size_t at = ir_same_value(sum->operands[0], carry) ? 0 : 1;
	return ir_same_value(sum->operands[at], carry) && is_head_term(r, body, sum->operands[1 - at]);
}

bool unroll_heads_match(struct rebuild *r, const struct ir_op *op)
{
	size_t n_attention;
	if (op->code != OP_repeat || op->n_operands != 1 ||
	    ((const struct attrs_repeat *)op->attrs)->count > UNROLL_HEADS_MAX)
		return false;
	const struct ir_region *body = op->region;
	if (!plain_body(r, body, &n_attention) || n_attention != 1 || !adds_a_head(r, body))
		return false;
	rebuild_need(r, op->operands[0]);
	for (size_t i = 0; i + 1 < body->n_ops; i++)
		for (size_t k = 0; k < body->ops[i]->n_operands; k++)
			if (body->ops[i]->operands[k].id != 0 &&
			    !defined_inside(r, body, body->ops[i]->operands[k]))
				rebuild_need(r, body->ops[i]->operands[k]);
	return true;
}

/* Element n of the axis that the loop index chooses, as a weight. */
static void emit_weight(struct rebuild *r, const struct ir_op *op, int axis, int64_t n)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	struct ir_weight one = *w;
	const struct ir_dim *dims[IR_RANK_MAX];
	struct ir_value index[IR_RANK_MAX];
	size_t n_index = 0;
	int rank = 0;
	for (int i = 0; i < w->type->rank; i++)
		if (i != axis)
			dims[rank++] = ir_import_dim(r->out, w->type->dims[i]);
	for (size_t i = 0; i < op->n_operands; i++)
		if ((int)i != axis)
			index[n_index++] = rebuild_get(r, op->operands[i]);
	one.name = arena_printf(r->p->arena, "%s.%lld", w->name, (long long)n);
	one.type = ir_type_tensor(r->out->types, w->type->dtype, rank, dims);
	one.init = wexpr_index(&r->out->arena, axis, n, w->init);
	const struct ir_weight *added =
	        one.type != NULL && one.init != NULL ? join_add_weight(r, &one) : NULL;
	if (added != NULL)
		r->map[op->results[0].id] = irb_weight_ref(r->b, added, index, n_index);
}

void unroll_heads_emit(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	struct ir_value carry = rebuild_get(r, op->operands[0]);
	for (int64_t n = 0; n < count && !irb_failed(r->b); n++) {
		r->map[body->args[CARRY_ARG].id] = carry;
		for (size_t i = 0; i + 1 < body->n_ops; i++) {
			const struct ir_op *inner = body->ops[i];
			int axis =
			        inner->code == OP_weight ? index_position(inner, body->args[INDEX_ARG]) : -1;
			irb_set_loc(r->b, inner->loc);
			if (axis >= 0)
				emit_weight(r, inner, axis, n);
			else
				irb_clone(r->b, r->f, inner, r->map);
		}
		carry = rebuild_get(r, yield->operands[0]);
	}
	rebuild_set(r, op->results[0], carry);
	pass_count(r->p, "loops written out", 1);
	pass_remark(r->p, op->loc, "a loop over %lld heads is written out", (long long)count);
}
