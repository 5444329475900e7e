/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rebuilds a function op by op (rebuild.h): a backward walk matches, a forward one emits. Invariant of the backward
 * walk: when an op is visited, all readers of its results have been visited. r->replaced [value id of the first
 * result]: 0: op is copied; else it is replaced, by the application of this number (fuel), -1: without one.
 */
#include "passes/framework/rebuild.h"

void rebuild_need(struct rebuild *r, struct ir_value old)
{
	r->needed[old.id] = old.id != 0;
}

void rebuild_need_operands(struct rebuild *r, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		rebuild_need(r, op->operands[i]);
}

struct ir_value rebuild_get(struct rebuild *r, struct ir_value old)
{
	return r->map[old.id];
}

void rebuild_set(struct rebuild *r, struct ir_value old, struct ir_value new_value)
{
	const struct ir_type *type = irb_type(r->b, new_value);
	/* No type: the builder has failed before, which irb_finish returns. */
	if (type != NULL && type != ir_import_type(r->out, ir_type_of(r->f, old)))
		diag_error(r->p->cx, r->f->loc.at, DIAG_INTERNAL,
		           "a replacement has another type than the value that it replaces");
	r->map[old.id] = new_value;
	irb_name(r->b, new_value, ir_value_info(r->f, old)->name);
}

bool rebuild_has_one_use(const struct rebuild *r, struct ir_value v)
{
	return r->uses[v.id] == 1;
}

/* ---- backward ---- */

/* op must be visited: it has effects, or a result is needed. Without a rewrite the module is copied, so every op
 * is. */
static bool is_needed(const struct rebuild *r, const struct ir_op *op)
{
	if (r->rewrite == NULL || ir_op_has(op->code, TRAIT_TERMINATOR) ||
	    ir_op_has(op->code, TRAIT_STATEFUL))
		return true;
	for (size_t i = 0; i < op->n_results; i++)
		if (r->needed[op->results[i].id])
			return true;
	return false;
}

/* Calls match of the pass if there is fuel, and stores the number of the application under the first result of op. A
 * pass with is_numbered consumes fuel itself, in match. */
static bool try_match(struct rebuild *r, const struct ir_op *op)
{
	const struct rewrite *rewrite = r->rewrite;
	if (rewrite == NULL || rewrite->match == NULL || (!rewrite->is_numbered && r->p->fuel <= 0) ||
	    !rewrite->match(r, op))
		return false;
	int64_t number = rewrite->is_numbered ? r->number : pass_consume_fuel(r->p);
	r->replaced[op->results[0].id] = number > 0 ? number : -1;
	return true;
}

/* Emits the replacement of op, counts it and reports the application; a pass with is_numbered reports it itself,
 * since it may name a rule. */
static void emit_replacement(struct rebuild *r, const struct ir_op *op)
{
	int64_t number = r->replaced[op->results[0].id];
	r->rewrite->emit(r, op);
	r->changes++;
	if (number > 0 && !r->rewrite->is_numbered)
		pass_applied(r->p, number, NULL, op->loc);
}

/* Visits ops in reverse, so that all readers come before an op (the invariant of the head). A matched op marks only
 * what its replacement reads, and its region is left to match. Terminators are always needed; a `result` hook may
 * return other values than the function did. */
void rebuild_need_region(struct rebuild *r, const struct ir_region *region, size_t n)
{
	for (size_t i = n; i-- > 0;) {
		const struct ir_op *op = region->ops[i];
		if (!is_needed(r, op))
			continue;
		if (op->n_results > 0 && try_match(r, op))
			continue;
		if (op->code == OP_return && r->rewrite != NULL && r->rewrite->result != NULL)
			for (size_t k = 0; k < op->n_operands; k++)
				rebuild_need(r, r->rewrite->result(r, k));
		else
			rebuild_need_operands(r, op);
		if (op->region != NULL)
			rebuild_need_region(r, op->region, op->region->n_ops);
	}
}

/* ---- forward ---- */

/* Hook of ir_copy_region: drops an op that is not needed, emits the replacement of a matched one; false: op is
 * cloned. */
static bool copy_op(struct ir_copy *c, const struct ir_op *op)
{
	struct rebuild *r = c->user;
	if (!is_needed(r, op))
		return true;
	if (op->n_results == 0 || r->replaced[op->results[0].id] == 0)
		return false;
	emit_replacement(r, op);
	return true;
}

void rebuild_need_group(struct rebuild *r, const struct ir_op *group)
{
	for (size_t i = 0; i < group->region->n_ops; i++)
		rebuild_need_operands(r, group->region->ops[i]);
}

void rebuild_group(struct rebuild *r, const struct ir_op *group, const struct attrs_group *attrs)
{
	ir_copy_group(&(struct ir_copy){.b = r->b, .from = r->f, .map = r->map}, group, attrs);
}

/* ---- functions ---- */

/* Both walks over the function r->f. The backward one is first, since params, copy_op and emit read r->needed and
 * r->replaced. A literal copy (no rewrite) is built without folding and value numbering. */
static enum tfmc_status rebuild_func(struct rebuild *r)
{
	const struct ir_func *f = r->f;
	r->uses = ir_count_uses(r->p->arena, f);
	r->needed = ARENA_ARRAY(r->p->arena, bool, f->n_values);
	r->replaced = ARENA_ARRAY(r->p->arena, int64_t, f->n_values);
	r->map = ARENA_ARRAY(r->p->arena, struct ir_value, f->n_values);
	r->b = irb_begin(r->out, r->p->cx, f->name, f->loc);
	if (arena_failed(r->p->arena) || r->b == NULL || r->uses == NULL)
		return TFMC_NO_MEMORY;
	irb_set_literal(r->b, r->rewrite == NULL);
	r->copy = (struct ir_copy){r->b, f, r->map, copy_op, r};
	rebuild_need_region(r, f->body, f->body->n_ops);
	if (r->rewrite != NULL && r->rewrite->params != NULL)
		r->rewrite->params(r);
	else
		irb_clone_params(r->b, f, r->map);
	ir_copy_region(&r->copy, f->body);
	if (r->rewrite != NULL && r->rewrite->finish != NULL)
		return r->rewrite->finish(r);
	return ir_copy_finish(&r->copy, ir_import_dim(r->out, f->arena));
}

enum tfmc_status rebuild_module(struct pass_context *p, const struct ir_module *in, struct ir_module *out,
                                const struct rewrite *rewrite, int64_t *changes)
{
	struct rebuild r = {.p = p, .in = in, .out = out, .rewrite = rewrite};

	out->stage = in->stage;
	/* A literal copy has all weights; otherwise the builder adds those that copied ops refer to. */
	for (size_t i = 0; rewrite == NULL && i < in->weights.n; i++)
		if (ir_add_weight(out, in->weights.items[i]) == NULL)
			return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++) {
		r.f = in->funcs.items[i];
		p->function = r.f->name;
		TFMC_TRY(rebuild_func(&r));
	}
	p->function = NULL;
	if (changes != NULL)
		*changes = r.changes;
	return TFMC_OK;
}
