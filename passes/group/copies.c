/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies at the edges of repeats and of the function. A carry has one
 * buffer: for its first value, for the argument of the body, for what the body
 * yields and for the result. The backend relies on it and copies nothing.
 */
#include "passes/group/emit.h"

#include "ir/core/view.h"

static bool is_tensor(const struct grouper *g, struct ir_value old)
{
	return ir_type_of(g->f, old)->kind == IR_TENSOR;
}

/* The new value of `old` has a buffer of its own: a group computes it, and not into a state. */
static bool own_buffer(const struct grouper *g, struct ir_value old)
{
	const struct ir_func *f = irb_func(g->b);
	struct ir_value now = g->map[old.id];
	const struct ir_op *op = ir_def(f, now);
	return op != NULL && op->code == OP_group && !ir_is_state_slice(f, now);
}

void group_carry_inits(struct grouper *g, const struct ir_op *op, struct ir_value *out)
{
	const struct ir_region *here = op->n_results > 0 ? ir_value_info(g->f, op->results[0])->region : NULL;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		bool direct = own_buffer(g, v) && g->formed.uses[v.id] == 1 &&
		              ir_value_info(g->f, v)->region == here;
		out[i] = direct || !is_tensor(g, v) ? g->map[v.id] : group_copy(g, g->map[v.id], op->loc);
	}
}

/* ---- who reads the old carry ---- */

struct reading {
	const struct grouper *g;
	struct ir_value carry, yielded;
	size_t at;  /* position in the body of the op that is looked at */
	bool reads; /* it reads the old carry, and not only at the element that it writes */
};

/* Position at which op, or the group it is in, runs. */
static size_t runs_at(const struct reading *s, const struct ir_op *op, const struct ir_region *body)
{
	const struct cluster *c = op->n_results > 0 ? formed_cluster(&s->g->formed, op) : NULL;
	size_t from = c != NULL && c->n_ends > 0 ? 0 : s->at; /* parts run with their root */
	for (size_t i = from; c != NULL && i < body->n_ops; i++)
		if (body->ops[i] == c->at)
			return i;
	return s->at;
}

/* The group of op reads and writes the same element only, one after the other: elementwise ops alone, or
 * after a linear. */
static bool is_elementwise_group(const struct reading *s, const struct ir_op *op)
{
	const struct formed *d = &s->g->formed;
	const struct cluster *c = formed_cluster(d, op);
	bool behind = c != NULL && c->kind == GROUP_linear && d->role_of[formed_index(d, op)] == MEMBER_POST;
	if (c == NULL || (c->kind != GROUP_loops && !behind) ||
	    !ir_same_value(c->last->results[0], s->yielded))
		return false;
	size_t number = d->cluster_of[formed_index(d, op)];
	for (size_t i = d->first_of[number - 1]; i < d->n_ops; i = d->next_of[i])
		if (!ir_op_has(d->ops[i]->code, TRAIT_ELEMENTWISE) &&
		    (!behind || d->role_of[i] == MEMBER_POST))
			return false;
	return true;
}

/* What op reads as operand i: of rows that it rounds, or normalizes, for itself those before. */
static struct ir_value read_by(const struct reading *s, const struct ir_op *op, size_t i)
{
	const struct ir_op *def = ir_def(s->g->f, op->operands[i]);
	bool is_inside = def != NULL && (def->code == OP_round_rows || ir_is_norm(def->code)) &&
	                 formed_cluster(&s->g->formed, def) == NULL;
	return is_inside ? read_by(s, def, 0) : op->operands[i];
}

static void look_at(struct reading *s, const struct ir_op *op)
{
	if (ir_op_has(op->code, TRAIT_VIEW) && formed_cluster(&s->g->formed, op) == NULL)
		return;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = read_by(s, op, i);
		if (v.id == 0 || !ir_same_value(ir_view_base(s->g->f, v), s->carry))
			continue;
		bool same_element = ir_same_value(v, s->carry) &&
		                    ir_type_of(s->g->f, v) == ir_type_of(s->g->f, s->yielded);
		bool in_place = same_element && op->n_results > 0 && op->region == NULL &&
		                is_elementwise_group(s, op);
		s->reads = s->reads || !in_place;
	}
}

/* Every reader of the old carry has run when the group that computes the yielded value writes. */
static bool may_overwrite(struct grouper *g, const struct ir_op *op, size_t i)
{
	const struct ir_region *body = op->region;
	const struct ir_op *yield = body->ops[body->n_ops - 1];
	struct reading s = {.g = g, .carry = body->args[i + 1], .yielded = yield->operands[i]};
	size_t written = 0, last = 0;

	for (size_t k = 0; k + 1 < body->n_ops; k++) {
		const struct ir_op *at = body->ops[k];
		s.at = k;
		s.reads = false;
		look_at(&s, at);
		if (at->region != NULL)
			for (struct ir_iter it = ir_iter_begin(at->region); it.op != NULL; ir_iter_next(&it))
				look_at(&s, it.op);
		size_t runs = s.reads ? runs_at(&s, at, body) + 1 : 0;
		last = runs > last ? runs : last;
		for (size_t n = 0; n < at->n_results; n++)
			if (ir_same_value(at->results[n], s.yielded))
				written = runs_at(&s, at, body) + 1;
	}
	for (size_t k = 0; k < yield->n_operands; k++)
		if (k != i && ir_same_value(ir_view_base(g->f, yield->operands[k]), s.carry))
			return false;
	return written > last;
}

/* ---- yields ---- */

static bool yielded_once(const struct ir_op *yield, struct ir_value v)
{
	size_t n = 0;
	for (size_t i = 0; i < yield->n_operands; i++)
		n += ir_same_value(yield->operands[i], v);
	return n == 1;
}

static bool is_carry(const struct ir_op *op, struct ir_value v)
{
	for (size_t i = 1; i < op->region->n_args; i++)
		if (ir_same_value(op->region->args[i], v))
			return true;
	return false;
}

static bool direct_yield(struct grouper *g, const struct ir_op *op, size_t i)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	struct ir_value v = yield->operands[i];
	if (!is_tensor(g, v) || ir_same_value(v, op->region->args[i + 1]))
		return true;
	return own_buffer(g, v) && ir_value_info(g->f, v)->region == op->region && yielded_once(yield, v) &&
	       !is_carry(op, ir_view_base(g->f, v)) && may_overwrite(g, op, i);
}

/*
 * Values that cannot be written over their carry are copied there at the end of the body; those that lie in
 * carries themselves are copied aside first, since the copies before may overwrite them.
 */
void group_carry_yields(struct grouper *g, const struct ir_op *op, struct ir_value *out)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	bool *direct = ARENA_ARRAY(g->p->arena, bool, op->n_operands + 1);

	for (size_t i = 0; i < yield->n_operands; i++)
		out[i] = g->map[yield->operands[i].id];
	for (size_t i = 0; direct != NULL && i < yield->n_operands; i++) {
		direct[i] = direct_yield(g, op, i);
		if (!direct[i] && is_carry(op, ir_view_base(g->f, yield->operands[i])))
			out[i] = group_copy(g, out[i], op->loc);
	}
	for (size_t i = 0; direct != NULL && i < yield->n_operands; i++)
		if (!direct[i])
			out[i] = group_copy(g, out[i], op->loc);
}

/* ---- results of the function ---- */

void group_results(struct grouper *g, const struct ir_op *ret, struct ir_value *out)
{
	for (size_t i = 0; i < ret->n_operands; i++) {
		struct ir_value v = ret->operands[i];
		bool direct = own_buffer(g, v) && g->formed.uses[v.id] == 1 &&
		              ir_value_info(g->f, v)->region == g->f->body;
		out[i] = direct || !is_tensor(g, v) ? g->map[v.id] : group_copy(g, g->map[v.id], ret->loc);
	}
}
