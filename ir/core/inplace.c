/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a group may write its result over an operand (inplace.h). Element i of the result is at position i of a
 * row-major buffer, so an operand may be overwritten only if it is all of `base`, the value in the buffer, in the same
 * order. Every conflict is a reason as a phrase; NULL is none. Workers run tiles of one group in any order, so an
 * element may be read only where it is written.
 */
#include "ir/core/inplace.h"

#include "ir/core/view.h"

struct inplace {
	const struct ir_module *m;
	const struct ir_func *f;
	const struct ir_op *group, *root;
	const struct attrs_group *attrs;
	struct ir_value base;
	struct ir_value out; /* the stored value, before reshapes at the end */
};

/* True if operand i of op is base or a view of it. */
static bool reads(const struct inplace *q, const struct ir_op *op, size_t i)
{
	return op->operands[i].id != 0 && ir_same_value(ir_view_base(q->f, op->operands[i]), q->base);
}

bool ir_group_reads(const struct ir_func *f, const struct ir_op *group, struct ir_value base)
{
	const struct inplace q = {.f = f, .base = base};
	for (size_t k = 0; k < group->region->n_ops; k++)
		for (size_t i = 0; i < group->region->ops[k]->n_operands; i++)
			if (reads(&q, group->region->ops[k], i))
				return true;
	return false;
}

/* True if an op of the group's region defines v. */
static bool is_inside(const struct inplace *q, struct ir_value v)
{
	const struct ir_op *op = ir_def(q->f, v);
	return op != NULL && ir_value_info(q->f, v)->region == q->group->region;
}

static bool same_dims(const struct inplace *q, struct ir_value a, struct ir_value b)
{
	return ir_same_dims(ir_type_of(q->f, a), ir_type_of(q->f, b));
}

/* True if v is all of base in the same order: row-major, without offset, with all of its elements (an axis of size 1
 * may have any stride). A slice of a state is not: the distance between its sequences is known only at run time
 * (view.h). Dims are interned: pointers are compared. */
static bool is_all_of_base(const struct inplace *q, struct ir_value v)
{
	struct ir_view view;
	const struct ir_type *t = ir_type_of(q->f, q->base);
	const struct ir_dim *step = ir_dim_const(q->m->dims, 1);
	bool whole = ir_view_resolve(q->m, q->f, v, &view) && ir_same_value(view.base, q->base) &&
	             !view.is_state && ir_dim_equals(view.offset, 0);
	for (int i = whole ? view.rank - 1 : -1; i >= 0; i--) {
		whole = whole && (view.stride[i] == step || ir_dim_equals(view.size[i], 1));
		step = ir_dim_mul(q->m->dims, step, view.size[i]);
	}
	return whole && step == ir_type_count(q->m->dims, t);
}

/* ---- the element that is written ---- */

/* True if op is a norm fused after a linear (from its root on), whose input is stored in the result's buffer until
 * the row is complete. */
static bool is_fused_norm(const struct inplace *q, const struct ir_op *op)
{
	const struct ir_region *r = q->group->region;
	size_t k = (size_t)q->attrs->root;
	while (k < r->n_ops && r->ops[k] != op)
		k++;
	return ir_is_norm(op->code) && q->attrs->kind == GROUP_linear && k < r->n_ops;
}

/* True if op reads operand i only at the element that it computes. The input (operand 0) of a row op counts as such:
 * the whole row is kept, in scratch or in the result's buffer, before its first result is written. Weight and bias
 * of a norm are read by every row. */
static bool is_read_at_element(const struct inplace *q, const struct ir_op *op, size_t i)
{
	if (is_fused_norm(q, op))
		return i == 0 && same_dims(q, op->operands[0], op->results[0]);
	if (op == q->root && q->attrs->kind == GROUP_rowwise)
		return i == 0 && same_dims(q, op->operands[0], op->results[0]);
	return ir_op_has(op->code, TRAIT_ELEMENTWISE) && same_dims(q, op->operands[i], op->results[0]);
}

/* Values of a group that the sweep below can mark; the pass `group` makes far fewer. */
#define VALUES_MAX 1024

/* True if every op of the group that depends on `from` reads what it depends on at the element that it computes, up to
 * the stored value: then element i of from's result reaches element i of the stored value only. One sweep marks the
 * values that depend on it, numbered from the first value of the group, since the number of paths is exponential in
 * chains that split and merge. A group of more values: false. */
static bool reaches_result_elementwise(const struct inplace *q, const struct ir_op *from)
{
	const struct ir_region *r = q->group->region;
	bool depends[VALUES_MAX] = {false};
	uint32_t first = r->ops[0]->results[0].id, at = from->results[0].id - first;
	if (at >= VALUES_MAX)
		return false;
	depends[at] = true;
	for (size_t k = 0; k < r->n_ops; k++) {
		const struct ir_op *op = r->ops[k];
		for (size_t i = 0; i < op->n_operands; i++) {
			struct ir_value v = op->operands[i];
			if (v.id - first >= VALUES_MAX || !depends[v.id - first] || ir_same_value(v, q->out))
				continue;
			if (op->n_results != 1 || !is_read_at_element(q, op, i) ||
			    op->results[0].id - first >= VALUES_MAX)
				return false;
			depends[op->results[0].id - first] = true;
		}
	}
	return true;
}

/* Returns the reason why op rules out writing in place, as a phrase; never NULL. */
static const char *reader_conflict(const struct inplace *q, const struct ir_op *op)
{
	if (op == q->root && q->attrs->kind == GROUP_linear)
		return "every element of the result reads whole rows of it";
	if (op->code == OP_gather || op->code == OP_select_rows)
		return "it is read through a gather";
	if (ir_op_has(op->code, TRAIT_REDUCE))
		return "it is read by a reduction";
	if (op == q->root)
		return "it is read at other elements than the one that is written";
	return "it is read at another element than the one that is written";
}

/* Checks groups of elementwise ops with at most one row op: each reader of base, but for the yield and views, whose
 * readers are checked themselves. NULL: the result may overwrite base; else the reason. */
static const char *elementwise_conflict(const struct inplace *q)
{
	const struct ir_region *r = q->group->region;
	const struct ir_op *yield = r->ops[r->n_ops - 1];
	if (!is_inside(q, q->out) && !is_all_of_base(q, q->out)) /* a copy */
		return "it is copied in another order";
	bool after_norm = false;
	for (size_t k = 0; k < r->n_ops; k++) {
		const struct ir_op *op = r->ops[k];
		after_norm = after_norm || is_fused_norm(q, op);
		for (size_t i = 0; i < op->n_operands; i++) {
			if (!reads(q, op, i) || op == yield || ir_op_has(op->code, TRAIT_VIEW))
				continue;
			if (after_norm)
				return "it is read after a norm whose rows are kept in the result";
			if (op->n_results != 1 || !is_read_at_element(q, op, i) ||
			    !reaches_result_elementwise(q, op))
				return reader_conflict(q, op);
			if (!is_all_of_base(q, op->operands[i]))
				return "only a part of it is read, or in another order";
		}
	}
	return NULL;
}

/* Returns the value that v reshapes: reshapes at the end of the group move no bytes. */
static struct ir_value skip_reshapes(const struct inplace *q, struct ir_value v)
{
	const struct ir_op *op = ir_def(q->f, v);
	while (op != NULL && op->code == OP_reshape && is_inside(q, v)) {
		v = op->operands[0];
		op = ir_def(q->f, v);
	}
	return v;
}

/* True if the scratch of the group (bytes of a worker) holds a whole row of f32: then the kernel keeps a row there
 * between its passes over it, else in its result. The row may be of a dim: its upper bound counts. */
static bool has_row_scratch(const struct inplace *q)
{
	const struct ir_type *t = ir_type_of(q->f, q->root->operands[0]);
	int64_t longest = t->rank > 0 ? ir_dim_hi(q->m->dims, t->dims[t->rank - 1]) : 1;
	return q->attrs->scratch / 4 >= longest;
}

/* ---- attention ---- */

/* Checks an attention group: a task may overwrite q where it alone reads it. NULL: the group reads base only as q,
 * and q, through the views before the root, has the strides that the result has through those after it; else the
 * reason. Strides of axes of size 1 do not matter. */
static const char *attention_conflict(const struct inplace *q)
{
	const struct ir_region *r = q->group->region;
	const struct ir_op *yield = r->ops[r->n_ops - 1], *root = q->root;
	struct ir_view from, to;

	for (size_t k = 0; k < r->n_ops; k++)
		for (size_t i = 0; i < r->ops[k]->n_operands; i++)
			if (reads(q, r->ops[k], i) && !(r->ops[k] == root && i == OPERAND(attention, q)))
				return "other tasks read it";
	if (!ir_view_resolve(q->m, q->f, root->operands[OPERAND(attention, q)], &from) ||
	    !ir_same_value(from.base, q->base) || !ir_view_inverse(q->m, q->f, yield->operands[0], 0, &to) ||
	    !ir_same_value(to.base, root->results[0]) || from.rank != to.rank || from.is_state ||
	    !ir_dim_equals(from.offset, 0))
		return "q is only a part of it";
	for (int i = 0; i < from.rank; i++)
		if (from.size[i] != to.size[i] ||
		    (from.stride[i] != to.stride[i] && !ir_dim_equals(from.size[i], 1)))
			return "q and the result are stored in different orders";
	return NULL;
}

/* ---- all ---- */

/* First what no kernel can do (several results, other sizes, padded rows), then by the kind of the group. Elements
 * of equal size may have another type: element i has the same bytes. */
const char *ir_inplace_conflict(const struct ir_module *m, const struct ir_func *f, const struct ir_op *group,
                                struct ir_value base)
{
	const struct ir_region *r = group->region;
	const struct ir_op *yield = r->ops[r->n_ops - 1];
	struct inplace q = {.m = m, .f = f, .group = group, .attrs = group->attrs, .base = base};

	if (group->n_results != 1 || q.attrs->root < 0 || (size_t)q.attrs->root >= r->n_ops)
		return "the group has more than one result";
	q.root = r->ops[q.attrs->root];
	q.out = skip_reshapes(&q, yield->operands[0]);
	const struct ir_type *from = ir_type_of(f, base), *to = ir_type_of(f, group->results[0]);
	if (from->kind != IR_TENSOR || ir_dtype_bytes(from->dtype) != ir_dtype_bytes(to->dtype))
		return "its elements have another size";
	if (ir_type_count(m->dims, from) != ir_type_count(m->dims, to))
		return "it has another number of elements";
	if (q.attrs->pad != 0 || ir_row_pad(f, base) != 0)
		return "rows are padded";
	switch ((enum ir_keyword_group)q.attrs->kind) {
	case GROUP_attention:
		return q.root->code == OP_attention ? attention_conflict(&q) : "other tasks read it";
	case GROUP_rowwise:
		if (!has_row_scratch(&q))
			return "the kernel keeps rows in its result";
		return elementwise_conflict(&q);
	case GROUP_exchange: return "other ranks read it";
	case GROUP_linear:
	case GROUP_loops: return elementwise_conflict(&q);
	}
	return "its kernel is not known";
}
