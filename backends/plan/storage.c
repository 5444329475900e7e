/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where every value of a planned function lies. A carry of a repeat, its first
 * value, what the body yields for it and the repeat's result are one buffer
 * (the planner made it so), whose place is that of its group results, or of the
 * parameter it began with.
 */
#include "backends/plan/object.h"

struct finder {
	struct object *object;
	struct function *f;
	const uint32_t *carry; /* of the lifetimes */
	struct place *sets;    /* [n_values]: of each representative */
	enum tfmc_status status;
};

static enum tfmc_status fail(const struct finder *w, struct ir_loc loc, const char *what)
{
	diag_error(w->object->cx, loc.at, DIAG_INTERNAL, "memory plan of '%s': %s", w->f->func->name, what);
	return TFMC_INTERNAL;
}

/* The value whose buffer v is; v is the whole of it in the same order. */
static uint32_t whole_base(struct finder *w, struct ir_value v, struct ir_loc loc)
{
	struct ir_view view;
	const struct ir_func *f = w->f->func;
	struct ir_value base = ir_view_base(f, v);
	bool whole = base.id == v.id;
	if (!whole && ir_view_resolve(w->object->module, f, v, &view)) {
		const struct ir_dim *step = ir_dim_const(w->object->module->dims, 1);
		whole = ir_dim_equals(view.offset, 0) && !view.is_state;
		for (int i = view.rank - 1; i >= 0; i--) {
			whole = whole && (view.stride[i] == step || ir_dim_equals(view.size[i], 1));
			step = ir_dim_mul(w->object->module->dims, step, view.size[i]);
		}
	}
	if (!whole && w->status == TFMC_OK)
		w->status = fail(w, loc, "a carried or returned value is only a part of its buffer");
	return base.id;
}

static bool is_tensor(const struct finder *w, struct ir_value v)
{
	return ir_type_of(w->f->func, v)->kind == IR_TENSOR;
}

static void check_carries(struct finder *w, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++)
		if (is_tensor(w, op->operands[i])) {
			(void)whole_base(w, op->operands[i], op->loc);
			(void)whole_base(w, yield->operands[i], op->loc);
		}
}

/* ---- places of the sets ---- */

static struct place *place_of(struct finder *w, uint32_t v)
{
	return &w->sets[w->carry[v]];
}

/* Results with a planned offset. */
static void place_group(struct finder *w, const struct ir_op *op)
{
	int64_t c;
	const struct ir_dim_list *at = &((const struct attrs_group *)op->attrs)->at;
	for (size_t i = 0; i < op->n_results; i++) {
		struct ir_value v = op->results[i];
		if (!is_tensor(w, v))
			continue;
		struct place *p = place_of(w, v.id);
		if (ir_is_state_slice(w->f->func, v)) {
			p->kind = STORAGE_STATE;
		} else if (i >= at->n) {
			w->status = fail(w, op->loc, "a group's result has no offset");
		} else if (!ir_dim_is_const(at->items[i], &c) || c >= 0) {
			if (p->kind == STORAGE_ARENA && p->at != at->items[i])
				w->status = fail(w, op->loc, "one buffer has two offsets");
			*p = (struct place){.kind = STORAGE_ARENA, .at = at->items[i]};
		}
	}
}

/* Buffers without offset are those of the caller; they get spare memory for when the caller gives none. */
static void place_results(struct finder *w)
{
	const struct ir_func *f = w->f->func;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < f->n_results; i++) {
		if (!is_tensor(w, ret->operands[i]))
			continue;
		struct place *p = place_of(w, whole_base(w, ret->operands[i], ret->loc));
		bool is_past = f->results[i].role == ROLE_PAST;
		if (p->kind == STORAGE_NONE && is_past) {
			p->kind = STORAGE_ARENA;
		} else if (p->kind == STORAGE_NONE) {
			p->kind = STORAGE_OUTPUT;
			p->number = i;
		} else if (!is_past) {
			w->status = fail(w, ret->loc, "an output is not written to the caller's buffer");
			return;
		}
	}
}

enum tfmc_status assign_storage(struct object *o, struct function *f, const uint32_t *carry)
{
	struct finder w = {.object = o, .f = f, .carry = carry};
	size_t n = f->func->n_values;
	w.sets = ARENA_ARRAY(o->arena, struct place, n);
	f->places = ARENA_ARRAY(o->arena, struct place *, n);
	if (!w.sets || !f->places)
		return TFMC_NO_MEMORY;
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it))
		if (it.op->code == OP_repeat)
			check_carries(&w, it.op);
	for (size_t i = 0; i < f->func->n_params; i++) {
		const struct ir_param *param = &f->func->params[i];
		if (is_tensor(&w, param->value))
			*place_of(&w, param->value.id) = (struct place){
			        .kind = param->role == ROLE_PAST ? STORAGE_LENGTHS : STORAGE_INPUT,
			        .number = i};
	}
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it)) {
		if (it.op->code == OP_weight)
			place_of(&w, it.op->results[0].id)->kind = STORAGE_WEIGHT;
		if (it.op->code == OP_group)
			place_group(&w, it.op);
	}
	if (w.status == TFMC_OK)
		place_results(&w);
	for (size_t i = 0; i < f->n_groups; i++)
		for (size_t k = 0; k < f->groups[i]->n_results; k++) {
			struct ir_value v = f->groups[i]->results[k];
			enum storage_kind kind = place_of(&w, v.id)->kind;
			if (is_tensor(&w, v) && kind != STORAGE_ARENA && kind != STORAGE_OUTPUT &&
			    kind != STORAGE_STATE && w.status == TFMC_OK)
				w.status = fail(&w, f->groups[i]->loc,
				                "a group's result lies in no memory of this call");
		}
	for (uint32_t v = 0; v < n; v++)
		f->places[v] = place_of(&w, v);
	return w.status;
}
