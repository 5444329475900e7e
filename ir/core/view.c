/* SPDX-License-Identifier: Apache-2.0 */
/*
 * View chains to strides, see view.h. Each op of the chain transforms a struct ir_view in place. Reshape matches
 * groups of old and new axes with equal products, from the last axis to the first; the old axes of a group must be
 * contiguous. An axis with state_axis is the batch of a state, whose sequences are stored at a distance that is known
 * at run time only: its stride counts sequences. Dims are interned, so equal ones have equal pointers.
 */
#include "ir/core/view.h"

#include <assert.h>

static bool is_view(const struct ir_op *op)
{
	return op != NULL && ir_op_has(op->code, TRAIT_VIEW);
}

struct ir_value ir_view_base(const struct ir_func *f, struct ir_value v)
{
	for (const struct ir_op *op = ir_def(f, v); is_view(op); op = ir_def(f, v))
		v = op->operands[0];
	return v;
}

/* A group yields what its op inside defines: result i is operand i of its terminator. Result 0 of a state op is the
 * slice, the last one the new state. */
const struct ir_op *ir_state_slice_op(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def(f, v);
	while (op != NULL && op->code == OP_group) {
		/* result i of a group is operand i of its terminator */
		const struct ir_region *r = op->region;
		if (r == NULL || r->n_ops == 0 ||
		    ir_value_info(f, v)->index >= r->ops[r->n_ops - 1]->n_operands)
			return NULL;
		v = r->ops[r->n_ops - 1]->operands[ir_value_info(f, v)->index];
		op = ir_def(f, v);
	}
	if (op == NULL || ir_value_info(f, v)->index != 0)
		return NULL;
	return op->code == OP_state_append || op->code == OP_state_read ? op : NULL;
}

bool ir_is_state_slice(const struct ir_func *f, struct ir_value v)
{
	return ir_state_slice_op(f, v) != NULL;
}

/* *capacity is T, the axis before the last of the state; 0 if v is no such slice. */
bool ir_is_ring_slice(const struct ir_func *f, struct ir_value v, int64_t *capacity)
{
	const struct ir_op *op = ir_state_slice_op(f, v);
	*capacity = 0;
	if (op == NULL || op->code != OP_state_append ||
	    ((const struct attrs_state_append *)op->attrs)->rows == 0)
		return false;
	const struct ir_type *t = ir_type_of(f, op->operands[0])->state->type;
	return ir_dim_is_const(t->dims[t->rank - 2], capacity);
}

int64_t ir_row_pad(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = ir_def(f, v);
	return op != NULL && op->code == OP_group ? ((const struct attrs_group *)op->attrs)->pad : 0;
}

/* The padding of a row counts once for each row: it is added to the last axis. */
const struct ir_dim *ir_value_bytes(const struct ir_module *m, const struct ir_func *f, struct ir_value v)
{
	const struct ir_type *t = ir_type_of(f, v);
	const struct ir_dim *n = ir_dim_const(m->dims, ir_dtype_bytes(t->dtype));
	int64_t pad = ir_row_pad(f, v);

	for (int i = t->rank - 1; i >= 0; i--) {
		const struct ir_dim *padding = ir_dim_const(m->dims, i == t->rank - 1 ? pad : 0);
		n = ir_dim_mul(m->dims, n, ir_dim_add(m->dims, t->dims[i], padding));
	}
	return n;
}

/* Row-major strides of v in its own shape, with `pad` elements after each row: the stride of the axis before the
 * last, and so of all before it, includes them. */
static void row_major_view(const struct ir_module *m, const struct ir_func *f, struct ir_value v, int64_t pad,
                           struct ir_view *out)
{
	const struct ir_type *t = ir_type_of(f, v);
	const struct ir_dim *zero = ir_dim_const(m->dims, 0);
	const struct ir_dim *step = ir_dim_const(m->dims, 1);

	*out = (struct ir_view){.base = v, .offset = zero, .state_offset = zero, .rank = t->rank};
	for (int i = t->rank - 1; i >= 0; i--) {
		out->size[i] = t->dims[i];
		out->stride[i] = step;
		step = ir_dim_mul(m->dims, step, t->dims[i]);
		if (i == t->rank - 1)
			step = ir_dim_add(m->dims, step, ir_dim_const(m->dims, pad));
	}
}

/* Axis i of the transposed view is axis perm[i] of the old one; inverse: the view of the result becomes that of the
 * operand. */
static void apply_transpose(struct ir_view *v, const struct ir_int_list *perm, bool inverse)
{
	struct ir_view old = *v;
	for (int i = 0; i < v->rank; i++) {
		int from = inverse ? i : (int)perm->items[i];
		int to = inverse ? (int)perm->items[i] : i;
		v->size[to] = old.size[from];
		v->stride[to] = old.stride[from];
		v->state_axis[to] = old.state_axis[from];
	}
}

/* Added axes (aligned at the last one) and repeated ones get stride 0: all their elements are one. */
static void apply_broadcast(const struct ir_module *m, struct ir_view *v, const struct ir_type *type)
{
	struct ir_view old = *v;
	int added = type->rank - old.rank;
	const struct ir_dim *zero = ir_dim_const(m->dims, 0);

	assert(added >= 0);
	v->rank = type->rank;
	for (int i = 0; i < v->rank; i++) {
		bool repeated = i < added || old.size[i - added] != type->dims[i];
		v->size[i] = type->dims[i];
		v->stride[i] = repeated ? zero : old.stride[i - added];
		v->state_axis[i] = !repeated && old.state_axis[i - added];
	}
}

/* Adds `begin` strides to the offset. In the batch axis of a state they are counted in state_offset: each
 * sequence has its state elsewhere. */
static void apply_slice(const struct ir_module *m, struct ir_view *v, const struct attrs_slice *a)
{
	int axis = (int)a->axis;
	const struct ir_dim *skip = ir_dim_mul(m->dims, a->begin, v->stride[axis]);

	if (v->state_axis[axis])
		v->state_offset = ir_dim_add(m->dims, v->state_offset, skip);
	else
		v->offset = ir_dim_add(m->dims, v->offset, skip);
	v->size[axis] = a->size;
}

/* Old axes [i0, i1) and new axes [j0, j1) have the same number of elements. */
struct axis_group {
	int i0, i1, j0, j1;
};

/* Grows the group toward axis 0, by at least one axis, until both sides have the same number of elements: on the
 * side whose product divides the other, which has fewer elements. False if the axes are used up before. */
static bool grow_group(const struct ir_module *m, const struct ir_view *v, const struct ir_type *type,
                       struct axis_group *g)
{
	const struct ir_dim *old = ir_dim_const(m->dims, 1), *new = old;

	g->i0 = g->i1;
	g->j0 = g->j1;
	do {
		bool old_is_smaller =
		        ir_dim_divide(m->dims, new, old) != NULL || ir_dim_divide(m->dims, old, new) == NULL;
		if (g->i0 > 0 && (old_is_smaller || g->j0 == 0))
			old = ir_dim_mul(m->dims, old, v->size[--g->i0]);
		else if (g->j0 > 0)
			new = ir_dim_mul(m->dims, new, type->dims[--g->j0]);
		else
			return false;
	} while (old != new);
	return true;
}

/* Strides of the new axes of a group; false if the old axes are not contiguous: except those of size 1, each must
 * have the stride of the one after it times its size. An axis of sequences cannot be merged with others. */
static bool merge_group(const struct ir_module *m, const struct ir_view *old, const struct axis_group *g,
                        struct ir_view *out)
{
	const struct ir_dim *step = ir_dim_const(m->dims, 0), *expected = NULL;
	bool is_state = false;

	for (int i = g->i1 - 1; i >= g->i0; i--) {
		if (ir_dim_equals(old->size[i], 1))
			continue;
		if (expected == NULL) {
			step = old->stride[i];
			is_state = old->state_axis[i];
		} else if (old->stride[i] != expected || old->state_axis[i] != is_state) {
			return false;
		}
		expected = ir_dim_mul(m->dims, old->stride[i], old->size[i]);
	}
	for (int j = g->j1 - 1; j >= g->j0; j--) {
		out->stride[j] = step;
		out->state_axis[j] = is_state;
		step = ir_dim_mul(m->dims, step, out->size[j]);
	}
	return true;
}

static bool has_zero(const struct ir_type *type)
{
	for (int i = 0; i < type->rank; i++)
		if (ir_dim_equals(type->dims[i], 0))
			return true;
	return false;
}

/* Strides for the shape of `type`, group by group from the last axis; false if they do not exist. A tensor without
 * elements has any: its products would match nothing. */
static bool apply_reshape(const struct ir_module *m, struct ir_view *v, const struct ir_type *type)
{
	struct ir_view old = *v;
	struct axis_group g = {.i1 = old.rank, .j1 = type->rank};

	v->rank = type->rank;
	for (int j = 0; j < type->rank; j++) {
		v->size[j] = type->dims[j];
		v->stride[j] = ir_dim_const(m->dims, 0);
		v->state_axis[j] = false;
	}
	if (has_zero(type))
		return true;
	while (g.i1 > 0 || g.j1 > 0) {
		if (!grow_group(m, &old, type, &g) || !merge_group(m, &old, &g, v))
			return false;
		g.i1 = g.i0;
		g.j1 = g.j0;
	}
	return true;
}

/* Transforms *v by one view op; false if the result has no strides, which only a reshape may lack. */
static bool apply_view(const struct ir_module *m, const struct ir_func *f, const struct ir_op *op,
                       struct ir_view *v)
{
	const struct ir_type *type = ir_type_of(f, op->results[0]);

	if (op->code == OP_transpose) {
		apply_transpose(v, &((const struct attrs_transpose *)op->attrs)->perm, false);
		return true;
	}
	if (op->code == OP_broadcast) {
		apply_broadcast(m, v, type);
		return true;
	}
	if (op->code == OP_slice) {
		apply_slice(m, v, op->attrs);
		return true;
	}
	return op->code == OP_reshape && apply_reshape(m, v, type);
}

/* The chain is collected from v to its base, then applied from the base on. Ops on a ring buffer would need
 * positions modulo its capacity: only the slice itself resolves. */
bool ir_view_resolve(const struct ir_module *m, const struct ir_func *f, struct ir_value v,
                     struct ir_view *out)
{
	const struct ir_op *chain[IR_VIEW_CHAIN_MAX];
	size_t n = 0;

	for (const struct ir_op *op = ir_def(f, v); is_view(op); op = ir_def(f, v)) {
		if (n == IR_VIEW_CHAIN_MAX)
			return false;
		chain[n++] = op;
		v = op->operands[0];
	}
	int64_t capacity;
	bool is_ring = ir_is_ring_slice(f, v, &capacity);
	if (is_ring && n > 0)
		return false;
	row_major_view(m, f, v, ir_row_pad(f, v), out);
	out->is_state = ir_is_state_slice(f, v);
	if (is_ring) /* heads are stored at the capacity of the ring, not at its logical rows */
		out->stride[1] = ir_dim_const(m->dims, capacity * ir_dim_hi(m->dims, out->size[3]));
	if (out->is_state && out->rank > 0) {
		out->stride[0] = ir_dim_const(m->dims, 1);
		out->state_axis[0] = true;
	}
	while (n > 0)
		if (!apply_view(m, f, chain[--n], out))
			return false;
	return !ir_dims_failed(m->dims);
}

/* Starts at the row-major buffer of v and undoes each view on the way to the base. Elements of a broadcast have
 * several places, those that a slice omits none: false. */
bool ir_view_inverse(const struct ir_module *m, const struct ir_func *f, struct ir_value v, int64_t pad,
                     struct ir_view *out)
{
	size_t n = 0;

	row_major_view(m, f, v, pad, out);
	for (const struct ir_op *op = ir_def(f, v); is_view(op); op = ir_def(f, v)) {
		if (n++ == IR_VIEW_CHAIN_MAX)
			return false;
		if (op->code == OP_transpose)
			apply_transpose(out, &((const struct attrs_transpose *)op->attrs)->perm, true);
		else if (op->code != OP_reshape || !apply_reshape(m, out, ir_type_of(f, op->operands[0])))
			return false;
		v = op->operands[0];
	}
	out->base = v;
	return !ir_dims_failed(m->dims);
}

/* `to` is `from` with its last axis split, and the heads at `axis`. The axes that the heads have crossed to get
 * there must have size 1, or H is 1: then the order of elements is the same. */
static bool has_heads_at(const struct ir_type *from, const struct ir_type *to, int axis)
{
	int64_t heads = 0, one;
	if (!ir_dim_is_const(to->dims[axis], &heads) || heads < 1)
		return false;
	for (int i = 0; i + 1 < from->rank; i++) {
		const struct ir_dim *d = from->dims[i];
		bool crossed = i >= axis && heads != 1 && !(ir_dim_is_const(d, &one) && one == 1);
		if (crossed || d != to->dims[i < axis ? i : i + 1])
			return false;
	}
	return true;
}

/* The place of the heads nearest to the end counts. */
bool ir_view_splits_heads(const struct ir_type *from, const struct ir_type *to, int *axis, int64_t *width)
{
	if (from->rank < 1 || to->rank != from->rank + 1 || !ir_dim_is_const(to->dims[to->rank - 1], width) ||
	    *width < 1)
		return false;
	for (*axis = to->rank - 2; *axis >= 0; --*axis)
		if (has_heads_at(from, to, *axis))
			return true;
	return false;
}

/* Reshapes of an array without padding keep it one; other views have strides of their own. */
bool ir_is_one_array(const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *def = ir_def(f, v);
	while (def != NULL && def->code == OP_reshape) {
		v = def->operands[0];
		def = ir_def(f, v);
	}
	return (def == NULL || !ir_op_has(def->code, TRAIT_VIEW)) && ir_row_pad(f, v) == 0;
}
