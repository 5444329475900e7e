/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage of every value of a planned function. The memory planner gives one buffer to a carry of a repeat,
 * its initial value, the yielded value and the repeat's result: they form one set, whose storage is that of
 * the group result or parameter in it.
 */
#include "backends/plan/object.h"

struct assigner {
	struct object *object;
	struct function *f;
	const uint32_t *carry; /* from ir_lifetimes */
	struct storage *sets;  /* [n_values]: storage of each set, at its representative */
	enum tfmc_status status;
};

static enum tfmc_status plan_error(const struct assigner *w, struct ir_loc loc, const char *what)
{
	diag_error(w->object->cx, loc.at, DIAG_INTERNAL, "memory plan of '%s': %s", w->f->func->name, what);
	return TFMC_INTERNAL;
}

/* The value that owns v's buffer. Reports an error unless v shows the entire buffer in row-major order. */
static uint32_t full_view_base(struct assigner *w, struct ir_value v, struct ir_loc loc)
{
	struct ir_view view;
	const struct ir_func *f = w->f->func;
	struct ir_value base = ir_view_base(f, v);
	bool is_full = base.id == v.id;
	if (!is_full && ir_view_resolve(w->object->module, f, v, &view)) {
		const struct ir_dim *stride = ir_dim_const(w->object->module->dims, 1);
		is_full = ir_dim_equals(view.offset, 0) && !view.is_state;
		for (int i = view.rank - 1; i >= 0; i--) {
			is_full = is_full && (view.stride[i] == stride || ir_dim_equals(view.size[i], 1));
			stride = ir_dim_mul(w->object->module->dims, stride, view.size[i]);
		}
	}
	if (!is_full && w->status == TFMC_OK)
		w->status = plan_error(w, loc, "a carried or returned value is only a part of its buffer");
	return base.id;
}

static bool is_tensor(const struct assigner *w, struct ir_value v)
{
	return ir_type_of(w->f->func, v)->kind == IR_TENSOR;
}

static void check_carries(struct assigner *w, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++)
		if (is_tensor(w, op->operands[i])) {
			(void)full_view_base(w, op->operands[i], op->loc);
			(void)full_view_base(w, yield->operands[i], op->loc);
		}
}

/* ---- storage of the sets ---- */

static struct storage *storage_of(struct assigner *w, uint32_t v)
{
	return &w->sets[w->carry[v]];
}

/* Group results: state slices, or planned buffers. A negative offset means an output buffer of the caller. */
static void assign_group_results(struct assigner *w, const struct ir_op *op)
{
	int64_t c;
	const struct ir_dim_list *at = &((const struct attrs_group *)op->attrs)->at;
	for (size_t i = 0; i < op->n_results; i++) {
		struct ir_value v = op->results[i];
		if (!is_tensor(w, v))
			continue;
		struct storage *p = storage_of(w, v.id);
		if (ir_is_state_slice(w->f->func, v)) {
			p->kind = STORAGE_STATE;
		} else if (i >= at->n) {
			w->status = plan_error(w, op->loc, "a group's result has no offset");
		} else if (!ir_dim_is_const(at->items[i], &c) || c >= 0) {
			if (p->kind == STORAGE_ARENA && p->at != at->items[i])
				w->status = plan_error(w, op->loc, "one buffer has two offsets");
			*p = (struct storage){.kind = STORAGE_ARENA, .at = at->items[i]};
		}
	}
}

/* Returned buffers without a planned offset are the caller's output buffers. New sequence lengths are not
 * passed by the caller: they get a spare buffer. */
static void assign_outputs(struct assigner *w)
{
	const struct ir_func *f = w->f->func;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < f->n_results; i++) {
		if (!is_tensor(w, ret->operands[i]))
			continue;
		struct storage *p = storage_of(w, full_view_base(w, ret->operands[i], ret->loc));
		bool is_past = f->results[i].role == ROLE_PAST;
		if (p->kind == STORAGE_NONE && is_past) {
			p->kind = STORAGE_ARENA;
		} else if (p->kind == STORAGE_NONE) {
			p->kind = STORAGE_OUTPUT;
			p->number = i;
		} else if (!is_past) {
			w->status =
			        plan_error(w, ret->loc, "an output is not written to the caller's buffer");
			return;
		}
	}
}

enum tfmc_status assign_storage(struct object *o, struct function *f, const uint32_t *carry)
{
	struct assigner w = {.object = o, .f = f, .carry = carry};
	size_t n = f->func->n_values;
	w.sets = ARENA_ARRAY(o->arena, struct storage, n);
	f->storage = ARENA_ARRAY(o->arena, struct storage *, n);
	if (!w.sets || !f->storage)
		return TFMC_NO_MEMORY;
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it))
		if (it.op->code == OP_repeat)
			check_carries(&w, it.op);
	for (size_t i = 0; i < f->func->n_params; i++) {
		const struct ir_param *param = &f->func->params[i];
		if (is_tensor(&w, param->value))
			*storage_of(&w, param->value.id) = (struct storage){
			        .kind = param->role == ROLE_PAST ? STORAGE_LENGTHS : STORAGE_INPUT,
			        .number = i};
	}
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it)) {
		if (it.op->code == OP_weight)
			storage_of(&w, it.op->results[0].id)->kind = STORAGE_WEIGHT;
		if (it.op->code == OP_group)
			assign_group_results(&w, it.op);
	}
	if (w.status == TFMC_OK)
		assign_outputs(&w);
	for (size_t i = 0; i < f->n_groups; i++)
		for (size_t k = 0; k < f->groups[i]->n_results; k++) {
			struct ir_value v = f->groups[i]->results[k];
			enum storage_kind kind = storage_of(&w, v.id)->kind;
			if (is_tensor(&w, v) && kind != STORAGE_ARENA && kind != STORAGE_OUTPUT &&
			    kind != STORAGE_STATE && w.status == TFMC_OK)
				w.status = plan_error(&w, f->groups[i]->loc,
				                      "a group's result is in no memory of this call");
		}
	for (uint32_t v = 0; v < n; v++)
		f->storage[v] = storage_of(&w, v);
	return w.status;
}
