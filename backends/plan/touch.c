/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over a group's operands and results.
 */
#include "backends/plan/touch.h"

static bool add(const struct object *o, struct touches *out, struct touch t)
{
	struct touch *slot = ARENA_PUSH(o->arena, out);
	if (slot)
		*slot = t;
	return slot;
}

static bool add_value(const struct object *o, const struct function *f, struct touch t, struct touches *out)
{
	struct ir_value base = ir_view_base(f->func, t.value);
	enum place_kind kind = f->places[base.id].kind;
	if (kind != PLACE_NONE && kind != PLACE_SLICE)
		t.base = base;
	else if (!binding_find_slice(o, f->func, base, &t.slice))
		return true;
	return add(o, out, t);
}

bool touch_group(const struct object *o, const struct function *f, const struct ir_op *group,
                 struct touches *out)
{
	const struct ir_region *r = group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_operands; k++) {
			const struct ir_op *op = r->ops[i];
			struct ir_value v = op->operands[k];
			struct touch t = {.value = v};
			if (!v.id)
				continue;
			t.is_outer = ir_info(f->func, v)->region != r;
			if (ir_op_has(op->code, TRAIT_TERMINATOR) && !t.is_outer)
				continue;
			if (ir_type_of(f->func, v)->kind == IR_TENSOR) {
				if (!add_value(o, f, t, out))
					return false;
			} else if (binding_state_slice(o, f->func, op, &t.slice)) {
				t.value = (struct ir_value){0};
				t.is_written = op->code != OP_state_read;
				if (!add(o, out, t))
					return false;
			}
		}
	for (size_t i = 0; i < group->n_results; i++) {
		struct touch t = {.value = group->results[i], .is_outer = true, .is_written = true};
		bool is_tensor = ir_type_of(f->func, t.value)->kind == IR_TENSOR;
		if (is_tensor && !ir_is_state_slice(f->func, t.value) && !add_value(o, f, t, out))
			return false;
	}
	return true;
}

bool touch_same_memory(const struct touch *a, const struct touch *b)
{
	bool same = ir_same(a->base, b->base) && a->slice.state == b->slice.state &&
	            a->slice.n_at == b->slice.n_at;
	for (size_t i = 0; same && i < a->slice.n_at; i++)
		same = ir_same(a->slice.at[i], b->slice.at[i]);
	return same;
}
