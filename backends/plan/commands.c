/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the launch plan of a function: its kernels in order, the repeats and conditions around them, and
 * barriers. A barrier goes before a kernel that has a data hazard (read after write, write after read, write
 * after write) with a kernel since the last barrier.
 *
 * An area is a byte range of one memory (weights, arena, state, a parameter, a result) with an offset that is a
 * formula of the dims and a stride for the index of each open repeat. A group is what one kernel computes; `before` is
 * an earlier group or kernel. A slice of a state is the part that an op accesses at its indices (layer). On devices up
 * to four consecutive groups share a launch (fused): there is no barrier between work-groups, so a group may read
 * results of an earlier one only where the same worker wrote them.
 */
#include "backends/kernels/generator.h"
#include "backends/kernels/group.h"
#include "backends/kernels/rowwise_nest.h"
#include "backends/plan/emit.h"
#include "backends/plan/plan.h"
#include "ir/core/cost.h"
#include "ir/core/view.h"

#include <inttypes.h>
#include <string.h>

/* ---- memory areas ---- */

/*
 * Memory areas of groups: the buffers, weights, inputs, outputs and state slices that a group reads and
 * writes, as byte ranges with symbolic offsets. Barriers (commands.c), fused launches and the addresses that
 * kernels get are derived from them.
 */

/* ---- areas of values and slices ---- */

static struct ir_dims *dims_of(const struct emit *e)
{
	return e->object->module->dims;
}

/* Adds v * bytes to the offset of an area: a constant or dim to the offset, the index of a repeat to its stride.
 * False: v is computed, so the address is not known to the plan. */
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

/* The area of the memory that v is stored in, or of the memory that it is a view of. False: it has none that the
 * plan can express (a constant, a computed index). The number counts for inputs and outputs only. */
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

/* Whether the areas overlap and one of them is written. Only arena, state and outputs are written during a call;
 * slices of one state are taken as overlapping, since their blocks interleave, and the lengths (no state) are
 * written when all kernels are done. */
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

/* Whether the lists have a data hazard: two areas overlap and one of them is written. Both may contain `except` (NULL:
 * none), a result that the caller has checked otherwise. */
static bool areas_conflict(struct ir_dims *t, const struct area_list *a, const struct area_list *b,
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

/* Gives each area a unique short identifier; kernels use it as the parameter's name. Only the names of areas before
 * it are taken, so the first of several keeps its name. */
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

/* Adds the areas of an op's operands. A value that is computed inside the group and yielded has no memory but the
 * group's result, which add_group_areas adds. State ops write their slice, but for state_read. */
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

/* Adds the memory that the ops of e->group access, the lengths by which its kernel skips padding, then its results. */
static void add_group_areas(const struct emit *e, struct area_list *l)
{
	const struct ir_func *f = e->function->func;
	struct area a;
	struct ir_value lengths = emit_group_lengths(e);
	for (size_t i = 0; i < e->group->region->n_ops; i++)
		add_operand_areas(e, e->group->region->ops[i], l);
	if (lengths.id && area_of_value(e, lengths, &a))
		add_area(e, l, &a, false);
	for (size_t i = 0; i < e->group->n_results; i++) {
		struct ir_value v = e->group->results[i];
		bool is_tensor = ir_type_of(f, v)->kind == IR_TENSOR && !ir_is_state_slice(f, v);
		if (is_tensor && area_of_value(e, v, &a))
			add_area(e, l, &a, true);
	}
}

/* The areas that n groups access, in order of their operands, results last, without duplicates. Accesses that
 * area_of_value cannot express are missing. A kernel that needs one of these fails when it binds the value
 * (bind_base). */
static struct area_list group_areas(const struct object *o, const struct function *f,
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

/* The caller's buffer in the slot, or the arena at `spare` (the default of an input, memory for an unrequested output)
 * if that is null; spare NULL: the slot alone, as the call was checked or the kernel does not run. */
static struct kb_val caller_buffer_or(struct emit *e, size_t slot, const struct ir_dim *spare)
{
	struct kb_val ptr = emit_load_arg(e, KB_PTR, slot);
	if (!spare)
		return ptr;
	struct kb_val is_null = kb_cmp(e->k, KB_EQ, ptr, kb_null(e->k));
	struct kb_val instead = kb_ptr_add(e->k, e->buffers, emit_dim(e, spare), 0);
	return kb_select(e->k, is_null, instead, ptr);
}

/* Address of an area in a call: base of its memory + offset + strides times indices. A constant offset is a
 * displacement, which addressing modes have for free. */
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

/* ---- fused launches ---- */

/*
 * Fused launches: consecutive groups that one device kernel computes one after the other, which saves
 * launches. There is no barrier between work-groups, so a group may read results of an earlier one only where
 * the same worker wrote them. That holds if both kernels divide the same work in the same way: two linears of
 * one input with weights of one shape (up, then gate, which reads it), or row-wise groups (topk, then ops on
 * its values and indices).
 */

#define FUSED_MAX 4 /* groups of a kernel: devices guarantee only 1024 bytes of kernel arguments */

struct pair {
	const struct object *object;
	const struct function *function;
	const struct ir_op *before, *group;
	struct area_list before_areas, own_areas; /* areas of `before`, of `group` */
};

static const struct ir_type *type_of(const struct pair *p, struct ir_value v)
{
	return ir_type_of(p->function->func, v);
}

/* All ops but the root are elementwise: epilogues that are computed where their element is stored. */
static bool is_elementwise(const struct ir_op *group)
{
	const struct ir_region *r = group->region;
	bool all = group->n_results == 1;
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		all = all && (r->ops[i] == ir_group_root(group) || ir_op_has(r->ops[i]->code, TRAIT_CONST) ||
		              ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE));
	return all;
}

/* ---- equal division of the work ---- */

/* Both are linears of the same input with equal tiles, formats and shapes, so that both kernels give a worker the same
 * tiles. */
static bool same_linear_tiling(const struct pair *p)
{
	const struct attrs_group *a = p->before->attrs, *b = p->group->attrs;
	const struct ir_op *x = ir_group_root(p->before), *y = ir_group_root(p->group);
	bool is_product = a->kind == GROUP_linear && (x->code == OP_linear || x->code == OP_expert_linear);
	bool is_same = a->kind == b->kind && x->code == y->code && a->mr == b->mr && a->nr == b->nr &&
	               a->kc == b->kc && a->br == b->br && a->lanes == b->lanes && a->scratch == b->scratch;
	if (!is_product || !is_same || !ir_same_value(x->operands[0], y->operands[0]) ||
	    (x->code == OP_expert_linear && !ir_same_value(x->operands[2], y->operands[2])))
		return false;
	const struct ir_weight *v = ir_weight_of(p->function->func, x->operands[1]),
	                       *w = ir_weight_of(p->function->func, y->operands[1]);
	return v && w && v->format == w->format && v->encoding == w->encoding &&
	       type_of(p, x->operands[1]) == type_of(p, y->operands[1]) &&
	       type_of(p, p->before->results[0]) == type_of(p, p->group->results[0]);
}

/* Leading axes of the rows that a worker computes entirely; 0: workers do not own full rows. Elementwise loops own
 * rows that are not longer than a block, topk rows of its input (results have one axis more). */
static int row_axes(const struct pair *p, const struct ir_op *group)
{
	const struct attrs_group *a = group->attrs;
	const struct ir_op *root = ir_group_root(group);
	const struct ir_type *y = type_of(p, group->results[0]);
	int64_t width;
	if (root->code == OP_topk)
		return y->rank - 2;
	if (a->kind == GROUP_rowwise)
		return y->rank - 1;
	bool is_short = y->rank > 0 && ir_dim_is_const(y->dims[y->rank - 1], &width) &&
	                loops_is_one_piece(p->object->target, width);
	return a->kind == GROUP_loops && ir_op_has(root->code, TRAIT_ELEMENTWISE) && is_short ? y->rank - 1
	                                                                                      : 0;
}

/* Workers own full rows in both groups, and number equal rows alike: as many rows, and as many work-items on each. */
static bool same_row_split(const struct pair *p)
{
	const struct object *o = p->object;
	const struct ir_type *x = type_of(p, p->before->results[0]), *y = type_of(p, p->group->results[0]);
	int n = row_axes(p, p->before);
	bool is_same = n > 0 && n == row_axes(p, p->group) &&
	               kernel_items(o->module, p->function->func, p->before, o->target) ==
	                       kernel_items(o->module, p->function->func, p->group, o->target);
	for (int i = 0; is_same && i < n; i++)
		is_same = x->dims[i] == y->dims[i];
	return is_same;
}

/* ---- reads of the earlier result ---- */

/* v, a view of the earlier result, shows at each row only elements of that row. Equal sizes and strides of the row
 * axes: row i of the view is in row i of the result. */
static bool view_keeps_rows(const struct pair *p, struct ir_value v)
{
	struct ir_view view, full;
	struct ir_value result = p->before->results[0];
	const struct ir_func *f = p->function->func;
	bool is_same = ir_view_resolve(p->object->module, f, v, &view) &&
	               ir_view_resolve(p->object->module, f, result, &full);
	int n = row_axes(p, p->before);
	is_same = is_same && view.rank == type_of(p, p->group->results[0])->rank;
	for (int i = 0; is_same && i < n; i++)
		is_same = view.size[i] == full.size[i] && view.stride[i] == full.stride[i];
	return is_same;
}

/* All ops of the group that read the earlier result read it at their own element, or, with by_rows, at their row: a
 * worker reads what it has written itself. A linear's root reads its whole input, so it may not. */
static bool reads_own_elements(const struct pair *p, bool by_rows)
{
	const struct ir_region *r = p->group->region;
	const struct ir_op *root = ir_group_root(p->group);
	struct ir_value result = p->before->results[0];
	bool all = true;
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_operands; k++) {
			struct ir_value v = r->ops[i]->operands[k];
			if (v.id == 0 || !ir_same_value(ir_view_base(p->function->func, v), result))
				continue;
			all = all && (by_rows ? view_keeps_rows(p, v)
			                      : r->ops[i] != root && ir_same_value(v, result) &&
			                                type_of(p, v) == type_of(p, r->ops[i]->results[0]));
		}
	return all;
}

/* The groups have no hazard but on the result of `before`, and each worker reads only its own part of that. */
static bool reads_own_range_only(const struct pair *p)
{
	struct area result;
	const struct emit e = emit_for_group(p->object, p->function, p->before);
	if (!ir_group_root(p->before) || !ir_group_root(p->group) || !is_elementwise(p->before) ||
	    !is_elementwise(p->group) || !area_of_value(&e, p->before->results[0], &result) ||
	    areas_conflict(p->object->module->dims, &p->before_areas, &p->own_areas, &result))
		return false;
	return (same_linear_tiling(p) && reads_own_elements(p, false)) ||
	       (same_row_split(p) && reads_own_elements(p, true));
}

/* ---- sequences of groups ---- */

/* Whether group n can run in the launch of groups [0, n). Sets bit n of *reversed: groups that depend on each other
 * number their workers in the same direction; independent neighbors alternate, so that workers without a task in one
 * group are the first of the next. A group that depends on two of different directions cannot. */
static bool can_fuse(const struct object *o, const struct function *f, const struct ir_op *const *groups,
                     size_t n, unsigned *reversed)
{
	bool is_bound = false, is_reversed = n > 0 && !(*reversed >> (n - 1) & 1);
	const struct area_list own_areas = group_areas(o, f, &groups[n], 1);
	for (size_t i = 0; i < n; i++) {
		const struct pair p = {o,        f, groups[i], groups[n], group_areas(o, f, &groups[i], 1),
		                       own_areas};
		bool is_before_reversed = *reversed >> i & 1;
		if (!areas_conflict(o->module->dims, &p.before_areas, &p.own_areas, NULL))
			continue;
		if (!reads_own_range_only(&p) || (is_bound && is_reversed != is_before_reversed))
			return false;
		is_bound = true;
		is_reversed = is_before_reversed;
	}
	*reversed |= (unsigned)is_reversed << n;
	return true;
}

/* The number of groups from `first` on that one device launch computes (1: no fusion): of one region, always executed,
 * without a second kernel. *reversed: bit i is set if group i numbers its workers from the last one down. */
static size_t plan_fused_launch(const struct object *o, const struct function *f, size_t first,
                                unsigned *reversed)
{
	const struct ir_op *const *groups = &f->groups[first];
	const struct ir_region *r = ir_value_info(f->func, groups[0]->results[0])->region;
	const struct ir_dim *heads;
	size_t n = 0;
	*reversed = 0;
	for (; object_is_device(o) && first + n < f->n_groups && n < FUSED_MAX; n++)
		if (ir_value_info(f->func, groups[n]->results[0])->region != r ||
		    group_is_optional(f, groups[n]) ||
		    kernel_has_combine(o->module, f->func, groups[n], o->target, &heads) ||
		    !can_fuse(o, f, groups, n, reversed))
			break;
	return n > 1 ? n : 1;
}

/* ---- commands ---- */

struct plan_builder {
	struct object *object;
	const struct function *function;
	struct plan *plan;
	size_t group;                             /* number of the next group */
	int64_t repeat_counts[OBJECT_REPEAT_MAX]; /* counts of the open repeats */
	size_t depth;
	int conditions; /* open conditions: a barrier inside one may not be executed */
	/* Kernels since the last unconditional barrier. */
	struct {
		const struct plan_kernel **items;
		size_t n, cap;
	} pending;
};

static void add_command(struct plan_builder *b, struct plan_command command)
{
	ARENA_ADD(b->object->arena, b->plan, command);
}

/* ---- barriers ---- */

/* All kernels before a barrier are done after it, unless it is inside a condition that may not hold. */
static void add_barrier(struct plan_builder *b)
{
	add_command(b, (struct plan_command){.kind = PLAN_BARRIER});
	if (b->conditions == 0)
		b->pending.n = 0;
}

/* Whether the kernel has a hazard with one since the last barrier. A combining kernel reads the scratch of all workers,
 * which no area describes. */
static bool needs_barrier(const struct plan_builder *b, const struct plan_kernel *kernel)
{
	bool waits = false;
	for (size_t i = 0; i < b->pending.n && !waits; i++) {
		const struct plan_kernel *before = b->pending.items[i];
		waits = (before->is_combine && kernel->scratch > 0) ||
		        (kernel->is_combine && before->scratch > 0) ||
		        areas_conflict(b->object->module->dims, &before->areas, &kernel->areas, NULL);
	}
	return waits;
}

static void open_condition(struct plan_builder *b, struct plan_command command)
{
	add_command(b, command);
	b->conditions++;
}

static void close_condition(struct plan_builder *b)
{
	add_command(b, (struct plan_command){.kind = PLAN_END});
	b->conditions--;
}

/* ---- groups ---- */

/* The row count (M) that selects between a skinny and a general kernel: that of the first group which has
 * two kernels; NULL: one kernel serves all calls. */
static const struct ir_dim *skinny_rows(const struct object *o, const struct ir_func *f,
                                        const struct plan_kernel *k)
{
	const struct ir_dim *rows = NULL;
	for (size_t i = 0; object_is_device(o) && !k->is_combine && i < k->n_groups && !rows; i++)
		rows = kernel_few_rows(o->module, f, k->groups[i], o->target);
	return rows;
}

/* Emits the kernel of group `number`, or a skinny one and a general one, of which a call launches one: both
 * are added after one barrier, and neither waits for the other. */
static enum tfmc_status add_kernel(struct plan_builder *b, size_t number, bool is_combine)
{
	const struct function *f = b->function;
	struct plan_kernel *k = ARENA_ARRAY(b->object->arena, struct plan_kernel, 2);
	if (!k)
		return TFMC_NO_MEMORY;
	k[0] = (struct plan_kernel){
	        .groups = &f->groups[number], .n_groups = 1, .number = number, .is_combine = is_combine};
	if (!is_combine)
		k[0].n_groups = plan_fused_launch(b->object, f, number, &k[0].reversed);
	b->group = number + k[0].n_groups;
	k[0].areas = group_areas(b->object, f, k[0].groups, k[0].n_groups);
	memcpy(k[0].repeat_counts, b->repeat_counts, sizeof(k[0].repeat_counts));
	k[0].rows = skinny_rows(b->object, f->func, &k[0]);
	k[1] = k[0];
	k[0].is_skinny = k[0].rows != NULL;
	size_t n = k[0].rows ? 2 : 1;
	bool waits = false;
	for (size_t i = 0; i < n; i++) {
		TFMC_TRY(emit_plan_kernel(b->object, f, &k[i]));
		waits = waits || needs_barrier(b, &k[i]);
	}
	if (waits)
		add_barrier(b);
	for (size_t i = 0; i < n; i++) {
		ARENA_ADD(b->object->arena, &b->pending, &k[i]);
		add_command(b, (struct plan_command){.kind = PLAN_DISPATCH, .kernel = &k[i]});
	}
	return TFMC_OK;
}

/* Adds the kernel that combines the partial results of a split attention, after the group's kernel; it writes the
 * group's results. In an object it runs only when the number of workers makes the attention split; a device always
 * splits. */
static enum tfmc_status add_combine_kernel(struct plan_builder *b, size_t number)
{
	const struct function *f = b->function;
	const struct ir_dim *heads;
	if (!kernel_has_combine(b->object->module, f->func, f->groups[number], b->object->target, &heads))
		return TFMC_OK;
	if (object_is_device(b->object))
		return add_kernel(b, number, true);
	open_condition(b, (struct plan_command){.kind = PLAN_IF_SPLIT, .heads = heads});
	TFMC_TRY(add_kernel(b, number, true));
	close_condition(b);
	return TFMC_OK;
}

/* Adds the kernels of a group, or of a fused launch that begins with it; inside a condition if the group is optional:
 * it computes only outputs, which a caller may not request. */
static enum tfmc_status add_group(struct plan_builder *b, const struct ir_op *group)
{
	size_t number = b->group;
	bool is_optional = group_is_optional(b->function, group);
	if (is_optional) {
		size_t *outputs = ARENA_ARRAY(b->object->arena, size_t, group->n_results);
		for (size_t i = 0; outputs && i < group->n_results; i++)
			outputs[i] = b->function->storage[group->results[i].id]->number;
		open_condition(b, (struct plan_command){.kind = PLAN_IF_REQUESTED,
		                                        .outputs = outputs,
		                                        .n_outputs = group->n_results});
	}
	TFMC_TRY(add_kernel(b, number, false));
	TFMC_TRY(add_combine_kernel(b, number));
	progress_report(b->object->options->progress, "kernels", "groups", b->group, b->function->n_groups);
	TFMC_TRY(check_code_limit(b->object, group));
	if (is_optional)
		close_condition(b);
	return TFMC_OK;
}

static enum tfmc_status add_region(struct plan_builder *b, const struct ir_region *r);

/* Barriers before and after the loop body: the next iteration may start with a hazard to any pending kernel, which the
 * plan would have to know for all iterations. */
static enum tfmc_status add_repeat(struct plan_builder *b, const struct ir_op *op)
{
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	if (b->depth == OBJECT_REPEAT_MAX) {
		diag_error(b->object->cx, op->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: repeats more than %d deep", OBJECT_REPEAT_MAX);
		return TFMC_INVALID;
	}
	if (b->pending.n > 0)
		add_barrier(b);
	add_command(b, (struct plan_command){.kind = PLAN_REPEAT, .count = count});
	b->repeat_counts[b->depth++] = count;
	TFMC_TRY(add_region(b, op->region));
	b->repeat_counts[--b->depth] = 0;
	if (b->pending.n > 0)
		add_barrier(b);
	add_command(b, (struct plan_command){.kind = PLAN_END});
	return TFMC_OK;
}

/* Adds the groups and repeats of a region in order; its other ops (weights, views, constants) need no kernel. */
static enum tfmc_status add_region(struct plan_builder *b, const struct ir_region *r)
{
	const struct function *f = b->function;
	for (size_t i = 0; i < r->n_ops; i++) {
		if (b->group < f->n_groups && r->ops[i] == f->groups[b->group])
			TFMC_TRY(add_group(b, r->ops[i]));
		else if (r->ops[i]->code == OP_repeat)
			TFMC_TRY(add_repeat(b, r->ops[i]));
	}
	return TFMC_OK;
}

/* Sets f->plan: all commands, with their kernels emitted. New sequence lengths are stored by the last command, when
 * all kernels are done. */
enum tfmc_status plan_make(struct object *o, struct function *f)
{
	struct plan *p = ARENA_NEW(o->arena, struct plan);
	struct plan_builder b = {.object = o, .function = f, .plan = p};
	const struct emit e = {.object = o, .function = f};
	if (!p)
		return TFMC_NO_MEMORY;
	p->func = f->func;
	p->arena_bytes = f->arena;
	f->plan = p;
	TFMC_TRY(add_region(&b, f->func->body));
	if (f->past_result >= 0) { /* new sequence lengths: stored at the end of the call */
		struct area *lengths = ARENA_NEW(o->arena, struct area);
		if (!lengths)
			return TFMC_NO_MEMORY;
		if (!area_of_value(&e, func_result(f->func, (size_t)f->past_result), lengths)) {
			diag_error(o->cx, f->func->loc.at, DIAG_INTERNAL,
			           "the lengths that '%s' returns lie in no memory", f->func->name);
			return TFMC_INTERNAL;
		}
		lengths->is_written = true;
		p->lengths = lengths;
		add_command(&b, (struct plan_command){.kind = PLAN_LENGTHS});
	}
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- text ---- */

/*
 * Prints launch plans. A kernel's line lists its areas in the order of its parameters and, for OpenCL, the
 * number of work-groups.
 */

static const char *const memory_names[] = {
        [AREA_WEIGHTS] = "weights", [AREA_ARENA] = "arena",   [AREA_STATE] = "state",
        [AREA_INPUT] = "input",     [AREA_OUTPUT] = "output", [AREA_SCRATCH] = "scratch",
};

static void print_dim(struct buf *out, const struct ir_module *m, const struct ir_dim *d)
{
	ir_dim_print(out, m->dims, d, false);
}

/* memory + offset + strides [bytes] */
static void print_area(struct buf *out, const struct ir_module *m, const struct area *p)
{
	if (p->name)
		buf_printf(out, "%s = ", p->name);
	buf_str(out, memory_names[p->memory]);
	if (p->memory == AREA_INPUT || p->memory == AREA_OUTPUT)
		buf_printf(out, " %zu", p->number);
	if (!ir_dim_equals(p->offset, 0)) {
		buf_str(out, " + ");
		print_dim(out, m, p->offset);
	}
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		if (p->stride[i])
			buf_printf(out, " + %" PRId64 "*index%d", p->stride[i], i);
	buf_str(out, " [");
	print_dim(out, m, p->bytes);
	buf_str(out, p->memory == AREA_SCRATCH ? " for each worker]" : "]");
}

/* Prints a launch: name, arguments and, for OpenCL, the number of work-groups and the row counts it is for. */
static void print_kernel(struct buf *out, const struct ir_module *m, const struct plan_kernel *k)
{
	const char *separator = "";
	buf_printf(out, "%s(", k->name);
	for (size_t i = 0; i < k->n_args; i++) {
		size_t number = k->args[i].number;
		if (k->args[i].kind == PLAN_OFFSET) /* printed with the buffer */
			continue;
		buf_str(out, separator);
		switch (k->args[i].kind) {
		case PLAN_BUFFER: print_area(out, m, &k->areas.items[number]); break;
		case PLAN_OFFSET: break;
		case PLAN_DIM: buf_str(out, ir_dims_sym(m->dims, number)->name); break;
		case PLAN_INDEX: buf_printf(out, "index%zu", number); break;
		case PLAN_WORKER: buf_str(out, "worker"); break;
		case PLAN_WORKERS: buf_str(out, "workers"); break;
		case PLAN_SOURCE_STEP: buf_str(out, "source step"); break;
		case PLAN_RANKS: buf_str(out, "ranks"); break;
		}
		separator = ", ";
	}
	buf_char(out, ')');
	if (!k->tasks)
		return;
	buf_str(out, " in ");
	print_dim(out, m, k->tasks);
	buf_printf(out, " groups of %" PRId64 "%s", k->items,
	           k->items > 1 && k->workers == 1 ? " together" : "");
	if (!k->rows)
		return;
	buf_str(out, " when ");
	print_dim(out, m, k->rows);
	buf_printf(out, " %s %d", k->is_skinny ? "<=" : ">", KERNEL_FEW_ROWS_MAX);
}

/* repeats: number of open repeats, the index number of a new one. */
static void print_command(struct buf *out, const struct ir_module *m, const struct plan *p,
                          const struct plan_command *c, size_t repeats)
{
	switch (c->kind) {
	case PLAN_DISPATCH: print_kernel(out, m, c->kernel); break;
	case PLAN_REPEAT: buf_printf(out, "repeat %" PRId64 " as index%zu", c->count, repeats); break;
	case PLAN_IF_REQUESTED:
		buf_str(out, "for output");
		for (size_t i = 0; i < c->n_outputs; i++)
			buf_printf(out, " %s", p->func->results[c->outputs[i]].name);
		break;
	case PLAN_IF_SPLIT:
		buf_str(out, "when workers divide the blocks of ");
		print_dim(out, m, c->heads);
		buf_str(out, " heads");
		break;
	case PLAN_END: break;
	case PLAN_BARRIER: buf_str(out, "barrier"); break;
	case PLAN_LENGTHS:
		buf_str(out, "new lengths: ");
		print_area(out, m, p->lengths);
		break;
	}
	buf_char(out, '\n');
}

/* `open`: kinds of the open repeats and conditions, innermost last, so that an end closes the right one; conditions
 * nest at most two deep in the repeats. */
void plan_print(const struct plan *p, const struct ir_module *planned, struct buf *out)
{
	enum plan_command_kind open[OBJECT_REPEAT_MAX + 2] = {0};
	size_t depth = 0, repeats = 0;
	buf_printf(out, "launches of %s: arena ", p->func->name);
	print_dim(out, planned, p->arena_bytes);
	buf_str(out, " bytes\n");
	for (size_t i = 0; i < p->n; i++) {
		const struct plan_command *c = &p->items[i];
		if (c->kind == PLAN_END) {
			repeats -= open[--depth] == PLAN_REPEAT;
			continue;
		}
		buf_fill(out, ' ', 2 * (depth + 1));
		print_command(out, planned, p, c, repeats);
		if (c->kind == PLAN_REPEAT || c->kind == PLAN_IF_REQUESTED || c->kind == PLAN_IF_SPLIT)
			open[depth++] = c->kind;
		repeats += c->kind == PLAN_REPEAT;
	}
}
