/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which groups wait for which: what a group reads and writes, as areas of memory
 * (buffers by planned offsets, states, outputs), and whether two groups may run
 * at the same time. Two groups that touch the same memory need a barrier, unless
 * every worker reads only what it has written itself: the new queries, keys and
 * values of its heads, when linear and attention divide the heads alike.
 */
#include "backends/plan/touch.h"

#include "ir/analysis/cost.h"
#include "ir/support/checked.h"
#include "ir/target/tile.h"

static bool ends_before(const struct object *o, const struct function *f, const struct touch *a,
                        const struct touch *b)
{
	struct ir_dims *dims = o->module->dims;
	const struct ir_dim *bytes = ir_value_bytes(o->module, f->func, a->base);
	const struct ir_dim *from = f->places[a->base.id].at, *to = f->places[b->base.id].at;
	return ir_dim_lo(dims, ir_dim_sub(dims, to, ir_dim_add(dims, from, bytes))) >= 0;
}

/* Both touch the same memory, and one of them writes it. Nobody writes weights and inputs while a call runs. */
static bool meet(const struct object *o, const struct function *f, const struct touch *a,
                 const struct touch *b)
{
	const struct place *x = &f->places[a->base.id], *y = &f->places[b->base.id];
	if ((!a->is_written && !b->is_written) || !a->is_outer || !b->is_outer)
		return false;
	if (!a->base.id || !b->base.id)
		return a->slice.state == b->slice.state;
	if (x->kind != y->kind)
		return false;
	if (x->kind == PLACE_PLAN)
		return !x->at || !y->at || (!ends_before(o, f, a, b) && !ends_before(o, f, b, a));
	return x->kind == PLACE_OUTPUT && x->number == y->number;
}

/* ---- heads ---- */

static const struct ir_op *root_of(const struct ir_op *group)
{
	const struct attrs_group *attrs = group->attrs;
	bool has_root = attrs->root >= 0 && (size_t)attrs->root < group->region->n_ops;
	return has_root ? group->region->ops[attrs->root] : NULL;
}

/* The result of the group whose memory v is. */
static bool is_result(const struct ir_func *f, const struct ir_op *group, struct ir_value v)
{
	struct ir_value base = ir_view_base(f, v);
	for (size_t i = 0; i < group->n_results; i++)
		if (ir_same(group->results[i], base))
			return true;
	return false;
}

/* Most parts of equal heads of keys that are whole panels of weights; 1: none. */
static int64_t parts_of_heads(int64_t heads, int64_t size)
{
	int64_t whole = TILE_PANEL / gcd_i64(size, TILE_PANEL); /* heads */
	for (int64_t n = heads; n > 1; n--)
		if (heads % n == 0 && heads / n % whole == 0)
			return n;
	return 1;
}

/* Attention over one new token, which the linear before it computes with queries, keys and values by heads.
 */
static int64_t parts_of(const struct ir_func *f, const struct ir_op *linear, const struct ir_op *attention)
{
	const struct ir_op *first = root_of(linear), *second = root_of(attention);
	int64_t heads, size, size_v, rows;
	if (ir_info(f, linear->results[0])->region != ir_info(f, attention->results[0])->region)
		return 1;
	if (!first || !second || first->code != OP_linear || second->code != OP_attention)
		return 1;
	if (((const struct attrs_group *)linear->attrs)->kind != GROUP_linear ||
	    ((const struct attrs_group *)attention->attrs)->kind != GROUP_attention)
		return 1;
	const struct ir_type *q = ir_type_of(f, second->operands[0]), *k = ir_type_of(f, second->operands[1]);
	const struct ir_type *v = ir_type_of(f, second->operands[2]);
	bool is_plain = q->rank == 4 && k->rank == 4 && v->rank == 4 && ir_dim_is_const(q->dims[2], &rows) &&
	                ir_dim_is_const(k->dims[1], &heads) && ir_dim_is_const(q->dims[3], &size) &&
	                ir_dim_is_const(v->dims[3], &size_v);
	if (!is_plain || rows != 1 || heads < 2 || size < 1 || size_v != size)
		return 1;
	for (size_t i = 0; i < 3; i++)
		if (!is_result(f, linear, second->operands[i]))
			return 1;
	return parts_of_heads(heads, size);
}

/* Memory that both touch, but every worker only where its own heads are: what the linear gives attention, and
 * the queries, in whose place attention leaves its result. */
static bool is_own(const struct object *o, const struct function *f, const struct ir_op *attention,
                   const struct touch *x, const struct touch *y)
{
	const struct ir_op *root = root_of(attention);
	for (size_t i = 0; i < 3; i++)
		if (ir_same(y->value, root->operands[i]))
			return x->is_written;
	struct ir_value queries = ir_view_base(f->func, root->operands[0]);
	const struct ir_type *q = ir_type_of(f->func, queries);
	const struct ir_type *out = ir_type_of(f->func, attention->results[0]);
	return x->is_written && y->is_written && f->places[x->base.id].kind == PLACE_PLAN &&
	       f->places[x->base.id].at == f->places[y->base.id].at && ir_same(x->value, queries) &&
	       ir_type_count(o->module->dims, q) == ir_type_count(o->module->dims, out);
}

/* Nothing that both touch makes them wait; `attention`: what is its workers' own does not. NULL: everything. */
static bool is_free(const struct object *o, const struct function *f, const struct ir_op *before,
                    const struct ir_op *group, const struct ir_op *attention)
{
	struct touches x = {0}, y = {0};
	if (!touch_group(o, f, before, &x) || !touch_group(o, f, group, &y))
		return false;
	for (size_t i = 0; i < x.n; i++)
		for (size_t k = 0; k < y.n; k++)
			if (meet(o, f, &x.items[i], &y.items[k]) &&
			    !(attention && is_own(o, f, attention, &x.items[i], &y.items[k])))
				return false;
	return true;
}

int64_t order_parts(const struct object *o, const struct function *f, const struct ir_op *before,
                    const struct ir_op *group)
{
	int64_t parts = parts_of(f->func, before, group);
	return parts > 1 && is_free(o, f, before, group, group) ? parts : 1;
}

bool order_is_free(const struct object *o, const struct function *f, const struct ir_op *before,
                   const struct ir_op *group)
{
	return is_free(o, f, before, group, NULL);
}
