/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory areas of groups: the buffers, weights, inputs, outputs and state slices that a group reads and
 * writes, as byte ranges with symbolic offsets. Barriers (commands.c), fused launches and the addresses that
 * kernels get are derived from them.
 */
#include "backends/plan/emit.h"

#include <string.h>

#include "ir/core/cost.h"

/* ---- areas of values and slices ---- */

static struct ir_dims *dims_of(const struct emit *e)
{
	return e->object->module->dims;
}

/* Adds v * bytes to the offset of an area; the index of a repeat adds to its stride. False: v is computed, it is no
 * index of a repeat, constant or dim. */
static bool add_index(const struct emit *e, struct ir_value v, int64_t bytes, struct area *a)
{
	struct ir_dims *t = dims_of(e);
	const struct ir_op *op = ir_def(e->function->func, v);
	const struct ir_dim *at;
	for (size_t i = 0; i < e->n_repeats; i++)
		if (ir_same_value(e->repeat_index[i], v)) {
			a->stride[i] += bytes;
			return true;
		}
	if (op && op->code == OP_full)
		at = ir_dim_const(t, (int64_t)((const struct attrs_full *)op->attrs)->value);
	else if (op && op->code == OP_dim_value)
		at = ((const struct attrs_dim_value *)op->attrs)->dim;
	else
		return false;
	a->offset = ir_dim_add(t, a->offset, ir_dim_mul(t, at, ir_dim_const(t, bytes)));
	return true;
}

/* State memory has a block per sequence, with the slices of all states. The area reaches from the slice of
 * the first sequence to the end of that of the last: an upper bound, since slices of other states lie between. */
bool area_of_slice(const struct emit *e, const struct state_slice_ref *s, struct area *out)
{
	struct ir_dims *t = dims_of(e);
	const struct object *o = e->object;
	const struct ir_state_decl *d = s->state->decl;
	int64_t unit = ir_dtype_bytes(d->type->dtype), n = layout_state_count(d, 1);
	*out = (struct area){.name = d->name,
	                     .memory = AREA_STATE,
	                     .offset = ir_dim_const(t, o->states.fixed_bytes + s->state->offset),
	                     .state = s->state,
	                     .is_source = !s->state->grows && function_has_source(o, e->function)};
	for (size_t i = 0; i < s->n_at; i++) {
		n = layout_state_count(d, 2 + (int)i);
		if (!add_index(e, s->at[i], n * unit, out))
			return false;
	}
	const struct ir_dim *before = ir_dim_add(t, d->type->dims[0], ir_dim_const(t, -1));
	const struct ir_dim *far = ir_dim_mul(t, before, ir_dim_const(t, o->states.batch_bytes));
	out->bytes = ir_dim_add(t, far, ir_dim_const(t, n * unit));
	return true;
}

/* Indexed weights select a matrix. Packed panels have no element strides, but their matrices have a constant distance.
 * False: the object does not contain the weight, it is empty, or an index is computed. */
static bool area_of_weight(const struct emit *e, const struct ir_op *op, struct area *out)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	const struct weight_layout *p = object_weight(e->object, w);
	*out = (struct area){.name = w->name, .memory = AREA_WEIGHTS};
	if (!p || p->rows == 0 || p->columns == 0)
		return false;
	int64_t bytes = p->bytes, n;
	out->offset = ir_dim_const(dims_of(e), p->offset);
	for (size_t i = 0; i < op->n_operands; i++) {
		bytes = ir_dim_is_const(w->type->dims[i], &n) && n > 0 ? bytes / n : 0;
		if (!add_index(e, op->operands[i], bytes, out))
			return false;
	}
	out->bytes = ir_dim_const(dims_of(e), bytes);
	return true;
}

bool area_of_value(const struct emit *e, struct ir_value v, struct area *out)
{
	struct ir_dims *t = dims_of(e);
	const struct ir_func *f = e->function->func;
	struct ir_value base = ir_view_base(f, v);
	const struct storage *p = e->function->storage[base.id];
	struct state_slice_ref slice;
	*out = (struct area){.number = p->number,
	                     .offset = ir_dim_const(t, 0),
	                     .bytes = ir_value_bytes(e->object->module, f, base)};
	switch (p->kind) {
	case STORAGE_NONE:
	case STORAGE_STATE:
		return find_state_slice(e->object, f, ir_state_slice_op(f, base), &slice) &&
		       area_of_slice(e, &slice, out);
	case STORAGE_WEIGHT: return area_of_weight(e, ir_def(f, base), out);
	case STORAGE_ARENA:
		out->memory = AREA_ARENA;
		out->offset = p->at;
		out->number = 0;
		out->name = ir_value_info(f, base)->name;
		return p->at != NULL;
	case STORAGE_INPUT:
		out->memory = AREA_INPUT;
		out->name = f->params[p->number].name;
		return true;
	case STORAGE_LENGTHS:
		out->memory = AREA_STATE;
		out->offset = ir_dim_const(t, STATE_PAST);
		out->number = 0;
		out->name = "past";
		return true;
	case STORAGE_OUTPUT:
		out->memory = AREA_OUTPUT;
		out->name = f->results[p->number].name;
		out->spare = p->at;
		return true;
	}
	return false;
}

/* ---- the areas of a group ---- */

static bool area_is_same(const struct area *a, const struct area *b)
{
	return a->memory == b->memory && a->number == b->number && a->offset == b->offset &&
	       a->bytes == b->bytes && memcmp(a->stride, b->stride, sizeof(a->stride)) == 0;
}

/* Provably for all dims. */
static bool ends_before(struct ir_dims *t, const struct area *a, const struct area *b)
{
	return ir_dim_le(t, ir_dim_add(t, a->offset, a->bytes), b->offset);
}

/* Only arena, state and outputs are written during a call. Slices of one state are taken as overlapping. */
static bool area_conflicts(struct ir_dims *t, const struct area *a, const struct area *b)
{
	if ((!a->is_written && !b->is_written) || a->memory != b->memory)
		return false;
	switch (a->memory) {
	case AREA_ARENA: return !ends_before(t, a, b) && !ends_before(t, b, a);
	case AREA_STATE: return a->state && a->state == b->state;
	case AREA_OUTPUT: return a->number == b->number;
	case AREA_WEIGHTS:
	case AREA_INPUT:
	case AREA_SCRATCH: break;
	}
	return false;
}

bool areas_conflict(struct ir_dims *t, const struct area_list *a, const struct area_list *b,
                    const struct area *except)
{
	for (size_t i = 0; i < a->n; i++)
		for (size_t k = 0; k < b->n; k++)
			if (area_conflicts(t, &a->items[i], &b->items[k]) &&
			    !(except && area_is_same(&a->items[i], except) &&
			      area_is_same(&b->items[k], except)))
				return true;
	return false;
}

static struct area *find_area(const struct area_list *l, const struct area *a)
{
	for (size_t i = 0; i < l->n; i++)
		if (area_is_same(&l->items[i], a))
			return &l->items[i];
	return NULL;
}

static bool is_name_taken(const struct area_list *l, size_t before, const char *name)
{
	for (size_t i = 0; i < before; i++)
		if (!strcmp(l->items[i].name, name))
			return true;
	return false;
}

/* Gives each area a unique short identifier; kernels use it as the parameter's name. */
static void name_areas(struct arena *a, struct area_list *l)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct area *p = &l->items[i];
		const char *name = emit_short_name(a, p->name ? p->name : p->is_written ? "y" : "x");
		const char *unique = name;
		for (int n = 2; is_name_taken(l, i, unique); n++)
			unique = arena_printf(a, "%s_%d", name, n);
		l->items[i].name = unique;
	}
}

/* Adds an area, or merges it with an equal one. */
static void add_area(const struct emit *e, struct area_list *l, const struct area *a, bool is_written)
{
	struct area *slot = find_area(l, a);
	if (!slot) {
		slot = ARENA_PUSH(e->object->arena, l);
		if (!slot)
			return; /* arena_failed reports it */
		*slot = *a;
	}
	slot->is_written |= is_written;
}

/* A value that is computed inside the group and yielded has no memory but the group's result, which
 * add_group_areas adds. */
static void add_operand_areas(const struct emit *e, const struct ir_op *op, struct area_list *l)
{
	const struct ir_func *f = e->function->func;
	for (size_t k = 0; k < op->n_operands; k++) {
		struct ir_value v = op->operands[k];
		struct state_slice_ref slice;
		struct area a;
		bool is_inner = v.id && ir_value_info(f, v)->region == e->group->region;
		if (!v.id || (is_inner && ir_op_has(op->code, TRAIT_TERMINATOR)))
			continue;
		if (ir_type_of(f, v)->kind == IR_TENSOR) {
			if (area_of_value(e, v, &a))
				add_area(e, l, &a, false);
		} else if (find_state_slice(e->object, f, op, &slice) && area_of_slice(e, &slice, &a)) {
			add_area(e, l, &a, op->code != OP_state_read);
		}
	}
}

static void add_group_areas(const struct emit *e, struct area_list *l)
{
	const struct ir_func *f = e->function->func;
	struct area a;
	for (size_t i = 0; i < e->group->region->n_ops; i++)
		add_operand_areas(e, e->group->region->ops[i], l);
	for (size_t i = 0; i < e->group->n_results; i++) {
		struct ir_value v = e->group->results[i];
		bool is_tensor = ir_type_of(f, v)->kind == IR_TENSOR && !ir_is_state_slice(f, v);
		if (is_tensor && area_of_value(e, v, &a))
			add_area(e, l, &a, true);
	}
}

struct area_list group_areas(const struct object *o, const struct function *f,
                             const struct ir_op *const *groups, size_t n)
{
	struct area_list l = {0};
	for (size_t i = 0; i < n; i++) {
		const struct emit e = emit_for_group(o, f, groups[i]);
		add_group_areas(&e, &l);
	}
	name_areas(o->arena, &l);
	return l;
}

/* ---- addresses in an object ---- */

/* The caller's buffer in the slot, or the arena at `spare` if that is null (NULL: the slot alone). */
static struct kb_val caller_buffer_or(struct emit *e, size_t slot, const struct ir_dim *spare)
{
	struct kb_val ptr = emit_load_arg(e, KB_PTR, slot);
	if (!spare)
		return ptr;
	struct kb_val is_null = kb_cmp(e->k, KB_EQ, ptr, kb_null(e->k));
	struct kb_val instead = kb_ptr_add(e->k, e->buffers, emit_dim(e, spare), 0);
	return kb_select(e->k, is_null, instead, ptr);
}

struct kb_val area_address(struct emit *e, const struct area *a)
{
	struct kb *k = e->k;
	const struct function *f = e->function;
	struct kb_val base = e->buffers, bytes = kb_index(k, 0);
	int64_t disp = 0;
	for (size_t i = 0; i < e->n_repeats; i++)
		if (a->stride[i])
			bytes = kb_add(k, bytes, kb_mul_const(k, e->index[i], a->stride[i]));
	if (!ir_dim_is_const(a->offset, &disp))
		bytes = kb_add(k, bytes, emit_dim(e, a->offset));
	switch (a->memory) {
	case AREA_ARENA:
	case AREA_SCRATCH: break;
	case AREA_WEIGHTS: base = e->weights; break;
	case AREA_INPUT:
		base = caller_buffer_or(e, f->param_slot[a->number], f->default_at[a->number]);
		break;
	case AREA_OUTPUT: base = caller_buffer_or(e, f->result_slot[a->number], a->spare); break;
	case AREA_STATE: /* e->past, e->blocks and e->sources already point to row 0 of the call */
		base = !a->state ? e->past : a->is_source ? e->sources : e->blocks;
		disp -= a->state ? e->object->states.fixed_bytes : STATE_PAST;
		break;
	}
	return kb_ptr_add(k, base, bytes, disp);
}

bool area_pointer(struct emit *e, const struct area *a, struct kb_val *out)
{
	const struct area *found = find_area(&e->areas, a);
	if (found)
		*out = e->pointers[found - e->areas.items];
	return found;
}
