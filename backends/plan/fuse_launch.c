/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fused launches: consecutive groups that one device kernel computes one after the other, which saves
 * launches. There is no barrier between work-groups, so a group may read results of an earlier one only where
 * the same worker wrote them. That holds if both kernels divide the same work in the same way: two linears of
 * one input with weights of one shape (up, then gate, which reads it), or row-wise groups (topk, then ops on
 * its values and indices).
 */
#include "backends/plan/emit.h"

#include "backends/kernels/generator.h"
#include "ir/core/view.h"

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

/* Both are linears of the same input with equal tiles, formats and shapes. */
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

/* Leading axes of the rows that a worker computes entirely; 0: workers do not own full rows. */
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

/* v, a view of the earlier result, shows at each row only elements of that row. */
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

/* All ops that read the earlier result read it at their own element, or row (by_rows). */
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
static bool reads_own_part_only(const struct pair *p)
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

/* Whether group n can run in the launch of groups [0, n). Sets bit n of *reversed: groups that depend on
 * each other number their workers in the same direction; independent neighbors alternate, so that workers
 * without a task in one group are the first of the next. */
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
		if (!reads_own_part_only(&p) || (is_bound && is_reversed != is_before_reversed))
			return false;
		is_bound = true;
		is_reversed = is_before_reversed;
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
		if (ir_value_info(f->func, groups[n]->results[0])->region != r ||
		    group_is_optional(f, groups[n]) ||
		    kernel_has_combine(o->module, f->func, groups[n], o->target, &heads) ||
		    !can_fuse(o, f, groups, n, reversed))
			break;
	return n > 1 ? n : 1;
}
