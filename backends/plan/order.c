/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which groups wait for which: what a group reads and writes, as areas of memory
 * (buffers by planned offsets, states, outputs), and whether two groups may run
 * at the same time. Two groups that touch the same memory need a barrier, unless
 * every worker reads only what it has written itself: the new queries, keys and
 * values of its heads, when linear and attention divide the heads alike.
 */
#include "backends/plan/order.h"

#include "ir/analysis/cost.h"
#include "ir/support/checked.h"
#include "ir/target/tile.h"

enum area_kind { AREA_PLAN, AREA_OUTPUT, AREA_STATE };

struct area {
	enum area_kind kind;
	bool is_written;
	size_t number;                     /* of an output */
	const struct ir_dim *from, *bytes; /* of a buffer */
	const struct state_place *state;
	struct ir_value value; /* as the group names it */
};

struct areas {
	const struct object *object;
	const struct function *f;
	struct {
		struct area *items;
		size_t n, cap;
	} list;
};

/* ---- what a group touches ---- */

static void add_area(struct areas *a, struct area area)
{
	struct area *slot = ARENA_PUSH(a->object->arena, &a->list);
	if (slot)
		*slot = area;
}

static void touch(struct areas *a, struct ir_value v, bool is_written)
{
	const struct ir_func *f = a->f->func;
	const struct ir_type *t = ir_type_of(f, v);
	struct area area = {.is_written = is_written, .value = v};
	struct binding_slice slice;
	if (t->kind == IR_STATE) {
		area.kind = AREA_STATE;
		area.state = object_state(a->object, t->state);
		add_area(a, area);
		return;
	}
	struct ir_value base = ir_view_base(f, v);
	const struct place *p = &a->f->places[base.id];
	area.bytes = ir_type_bytes(a->object->module, ir_type_of(f, base));
	area.from = p->at;
	area.number = p->number;
	switch (p->kind) {
	case PLACE_NONE:
	case PLACE_SLICE:
		if (!binding_find_slice(a->object, f, base, &slice))
			return;
		area.kind = AREA_STATE;
		area.state = slice.state;
		break;
	case PLACE_PLAN: area.kind = AREA_PLAN; break;
	case PLACE_OUTPUT: area.kind = AREA_OUTPUT; break;
	case PLACE_INPUT:
	case PLACE_PAST:
	case PLACE_WEIGHT: return; /* nobody writes these while a call runs */
	}
	add_area(a, area);
}

static bool is_write(const struct ir_op *op, size_t operand)
{
	return operand == 0 && (op->code == OP_state_append || op->code == OP_state_write);
}

static void touch_group(struct areas *a, const struct ir_op *group)
{
	const struct ir_func *f = a->f->func;
	for (size_t i = 0; i < group->n_results; i++)
		touch(a, group->results[i], true);
	for (size_t i = 0; i < group->region->n_ops; i++) {
		const struct ir_op *op = group->region->ops[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].id && ir_info(f, op->operands[k])->region != group->region)
				touch(a, op->operands[k], is_write(op, k));
	}
}

/* ---- whether areas meet ---- */

static bool ends_before(const struct object *o, const struct area *a, const struct area *b)
{
	struct ir_dims *dims = o->module->dims;
	const struct ir_dim *gap = ir_dim_sub(dims, b->from, ir_dim_add(dims, a->from, a->bytes));
	return ir_dim_lo(dims, gap) >= 0;
}

static bool meet(const struct object *o, const struct area *a, const struct area *b)
{
	if (a->kind != b->kind || (!a->is_written && !b->is_written))
		return false;
	switch (a->kind) {
	case AREA_STATE: return a->state == b->state;
	case AREA_OUTPUT: return a->number == b->number;
	case AREA_PLAN: break;
	}
	return !a->from || !b->from || (!ends_before(o, a, b) && !ends_before(o, b, a));
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
static int64_t parts_of(const struct areas *a, const struct ir_op *linear, const struct ir_op *attention)
{
	const struct ir_func *f = a->f->func;
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
static bool is_own(const struct areas *a, const struct ir_op *attention, const struct area *x,
                   const struct area *y)
{
	const struct ir_op *root = root_of(attention);
	const struct ir_func *f = a->f->func;
	for (size_t i = 0; i < 3; i++)
		if (ir_same(y->value, root->operands[i]))
			return x->is_written;
	const struct ir_type *q = ir_type_of(f, ir_view_base(f, root->operands[0]));
	const struct ir_type *out = ir_type_of(f, attention->results[0]);
	return x->is_written && y->is_written && x->kind == AREA_PLAN && x->from == y->from &&
	       ir_same(x->value, ir_view_base(f, root->operands[0])) &&
	       ir_type_count(a->object->module->dims, q) == ir_type_count(a->object->module->dims, out);
}

int64_t order_parts(const struct object *o, const struct function *f, const struct ir_op *before,
                    const struct ir_op *group)
{
	struct areas x = {.object = o, .f = f}, y = x;
	int64_t parts = parts_of(&x, before, group);
	if (parts < 2)
		return 1;
	touch_group(&x, before);
	touch_group(&y, group);
	for (size_t i = 0; i < x.list.n; i++)
		for (size_t k = 0; k < y.list.n; k++)
			if (meet(o, &x.list.items[i], &y.list.items[k]) &&
			    !is_own(&x, group, &x.list.items[i], &y.list.items[k]))
				return 1;
	return parts;
}

bool order_is_free(const struct object *o, const struct function *f, const struct ir_op *before,
                   const struct ir_op *group)
{
	struct areas x = {.object = o, .f = f}, y = x;
	touch_group(&x, before);
	touch_group(&y, group);
	for (size_t i = 0; i < x.list.n; i++)
		for (size_t k = 0; k < y.list.n; k++)
			if (meet(o, &x.list.items[i], &y.list.items[k]))
				return false;
	return true;
}
