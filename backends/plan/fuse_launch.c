/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which groups one launch of a device may compute, one after the other: those that need nothing of each other, or of an
 * earlier one only what the same worker has written in it. Workers find their own again where both templates divide the
 * same work in the same way: two products of one input with matrices of one shape (up, then gate, which reads it), or
 * whole rows (topk, then what is made of its values and indices).
 */
#include "backends/plan/emit.h"

#include "backends/kernel/generator.h"
#include "ir/core/view.h"

#define FUSED_MAX 4 /* groups of a kernel: there may be no more than 1024 bytes of arguments */

struct pair {
	const struct object *object;
	const struct function *function;
	const struct ir_op *before, *group;
	struct area_list given, taken; /* areas of the one, of the other */
};

static const struct ir_type *type_of(const struct pair *p, struct ir_value v)
{
	return ir_type_of(p->function->func, v);
}

/* Everything but the root is computed at the element that is stored. */
static bool is_elementwise(const struct ir_op *group)
{
	const struct ir_region *r = group->region;
	bool all = group->n_results == 1;
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		all = all && (r->ops[i] == ir_group_root(group) || ir_op_has(r->ops[i]->code, TRAIT_CONST) ||
		              ir_op_has(r->ops[i]->code, TRAIT_ELEMENTWISE));
	return all;
}

/* ---- the same division ---- */

static bool divide_products_alike(const struct pair *p)
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

/* Axes in front that are rows of which a worker has whole ones; 0: it has other things. */
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
	                width <= kernel_loops_block(p->object->target);
	return a->kind == GROUP_loops && ir_op_has(root->code, TRAIT_ELEMENTWISE) && is_short ? y->rank - 1
	                                                                                      : 0;
}

static bool divide_rows_alike(const struct pair *p)
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

/* ---- what is read ---- */

/* v, made of the result before by views, at a row shows elements of the same row. */
static bool keeps_rows(const struct pair *p, struct ir_value v)
{
	struct ir_view here, whole;
	struct ir_value result = p->before->results[0];
	const struct ir_func *f = p->function->func;
	bool is_same = ir_view_resolve(p->object->module, f, v, &here) &&
	               ir_view_resolve(p->object->module, f, result, &whole);
	int n = row_axes(p, p->before);
	is_same = is_same && here.rank == type_of(p, p->group->results[0])->rank;
	for (int i = 0; is_same && i < n; i++)
		is_same = here.size[i] == whole.size[i] && here.stride[i] == whole.stride[i];
	return is_same;
}

/* Every op that reads what is made of the result before does so at its own element, or row. */
static bool reads_own(const struct pair *p, bool by_rows)
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
			all = all && (by_rows ? keeps_rows(p, v)
			                      : r->ops[i] != root && ir_same_value(v, result) &&
			                                type_of(p, v) == type_of(p, r->ops[i]->results[0]));
		}
	return all;
}

/* The groups share no other memory that one of them writes. */
static bool shares_result_only(const struct pair *p)
{
	const struct emit e = emit_for_group(p->object, p->function, p->before);
	struct area own;
	return area_of_value(&e, p->before->results[0], &own) &&
	       !areas_conflict(p->object->module->dims, &p->given, &p->taken, &own);
}

static bool needs_own_only(const struct pair *p)
{
	if (!ir_group_root(p->before) || !ir_group_root(p->group) || !is_elementwise(p->before) ||
	    !is_elementwise(p->group) || !shares_result_only(p))
		return false;
	return (divide_products_alike(p) && reads_own(p, false)) ||
	       (divide_rows_alike(p) && reads_own(p, true));
}

/* ---- a run of groups ---- */

/* Group number n may follow those before it; sets its bit of *reversed. */
static bool may_follow(const struct object *o, const struct function *f, const struct ir_op *const *groups,
                       size_t n, unsigned *reversed)
{
	bool is_bound = false, is_reversed = n > 0 && !(*reversed >> (n - 1) & 1);
	const struct area_list taken = group_areas(o, f, &groups[n], 1);
	for (size_t i = 0; i < n; i++) {
		const struct pair p = {o, f, groups[i], groups[n], group_areas(o, f, &groups[i], 1), taken};
		bool here = *reversed >> i & 1;
		if (!areas_conflict(o->module->dims, &p.given, &p.taken, NULL))
			continue;
		if (!needs_own_only(&p) || (is_bound && is_reversed != here))
			return false;
		is_bound = true;
		is_reversed = here;
	}
	*reversed |= (unsigned)is_reversed << n;
	return true;
}

size_t plan_fused_launch(const struct object *o, const struct function *f, size_t first, unsigned *reversed)
{
	const struct ir_op *const *groups = &f->groups[first];
	const struct ir_region *r = ir_value_info(f->func, groups[0]->results[0])->region;
	const struct ir_dim *heads;
	size_t n = 0;
	*reversed = 0;
	for (; object_is_device(o) && first + n < f->n_groups && n < FUSED_MAX; n++)
		if (ir_value_info(f->func, groups[n]->results[0])->region != r || group_is_optional(f, groups[n]) ||
		    kernel_has_combine(o->module, f->func, groups[n], o->target, &heads) ||
		    !may_follow(o, f, groups, n, reversed))
			break;
	return n > 1 ? n : 1;
}
