/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a function: its kernels in order, the repeats and conditions around them, and barriers where one
 * kernel touches memory that another one since the last barrier has touched and one of them writes it. There is
 * none when every worker reads only what it has written itself: the new queries, keys and values of its heads,
 * when linear and attention divide the heads alike.
 */
#include "backends/plan/emit.h"

#include <string.h>

#include "ir/support/checked.h"
#include "ir/target/tile.h"

struct maker {
	struct object *object;
	const struct function *function;
	struct plan *plan;
	size_t group;                     /* number of the next one */
	const struct plan_kernel *before; /* that of the last group */
	int64_t parts
	        [2]; /* of heads, that a group divides like the one before it, like the next one; 1: none */
	int64_t rounds[OBJECT_REPEAT_MAX]; /* of the repeats that are open */
	size_t depth;
	int conditions; /* that are open since the last repeat: what is inside may not run */
	/* Kernels since the last barrier. */
	struct {
		const struct plan_kernel **items;
		size_t n, cap;
	} open;
};

static void add(struct maker *m, struct plan_step step)
{
	ARENA_ADD(m->object->arena, m->plan, step);
}

/* ---- hazards ---- */

/* A join reads the scratch of all workers. */
static bool is_free(struct ir_dims *t, const struct plan_kernel *before, const struct plan_kernel *kernel)
{
	if ((before->is_join && kernel->scratch > 0) || (kernel->is_join && before->scratch > 0))
		return false;
	for (size_t i = 0; i < before->areas.n; i++)
		for (size_t k = 0; k < kernel->areas.n; k++)
			if (area_meets(t, &before->areas.items[i], &kernel->areas.items[k]))
				return false;
	return true;
}

/* ---- heads ---- */

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

/* What the linear gives attention is its queries, keys and values, as a whole and nothing else. */
static bool gives_heads(const struct ir_func *f, const struct ir_op *linear, const struct ir_op *attention)
{
	const struct ir_op *root = ir_group_root(attention);
	const struct ir_region *r = attention->region;
	for (size_t i = 0; i < 3; i++)
		if (!is_result(f, linear, root->operands[i]))
			return false;
	for (size_t i = 0; i < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_operands; k++) {
			struct ir_value v = r->ops[i]->operands[k];
			bool is_head = ir_same(v, root->operands[0]) || ir_same(v, root->operands[1]) ||
			               ir_same(v, root->operands[2]);
			if (v.id && !is_head && ir_info(f, v)->region != r && is_result(f, linear, v))
				return false;
		}
	return true;
}

/* Attention over one new token, which the linear before it computes with queries, keys and values by heads. */
static int64_t heads_of(const struct ir_func *f, const struct ir_op *linear, const struct ir_op *attention)
{
	const struct ir_op *first = ir_group_root(linear), *second = ir_group_root(attention);
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
	return gives_heads(f, linear, attention) ? parts_of_heads(heads, size) : 1;
}

/* Memory that both touch, but every worker only where its own heads are: what the linear gives attention, and
 * the queries, in whose place attention leaves its result. */
static bool is_own(const struct emit *e, const struct area *x, const struct area *y)
{
	const struct ir_op *root = ir_group_root(e->group);
	struct area a;
	for (size_t i = 0; i < 3; i++)
		if (area_of_value(e, root->operands[i], &a) && area_is_same(&a, x) && area_is_same(&a, y))
			return i == 0 || !y->is_written;
	return false;
}

/*
 * Parts of equal heads such that a worker that computes the columns of group i, a linear, and whole parts of the
 * next one, attention, needs nothing of another worker. 1: there are none, or the two share other memory, or
 * kernels are launched one after the other.
 */
static int64_t find_parts(const struct maker *m, size_t i)
{
	const struct function *f = m->function;
	if (i + 1 >= f->n_groups || object_is_device(m->object))
		return 1;
	const struct emit e = emit_of_group(m->object, f, f->groups[i + 1]);
	const struct area_list x = group_areas(m->object, f, &f->groups[i], 1);
	const struct area_list y = group_areas(m->object, f, &f->groups[i + 1], 1);
	int64_t parts = heads_of(f->func, f->groups[i], f->groups[i + 1]);
	for (size_t k = 0; k < x.n && parts > 1; k++)
		for (size_t n = 0; n < y.n; n++)
			if (area_meets(m->object->module->dims, &x.items[k], &y.items[n]) &&
			    !is_own(&e, &x.items[k], &y.items[n]))
				parts = 1;
	return parts;
}

/* ---- barriers ---- */

/* All that runs is through. */
static void close_open(struct maker *m)
{
	if (m->open.n > 0)
		add(m, (struct plan_step){.kind = PLAN_BARRIER, .parts = 1});
	m->open.n = 0;
}

static void wait_for_open(struct maker *m, const struct plan_kernel *kernel)
{
	bool is_divided = m->before && m->before->is_divided && kernel->is_divided && !kernel->is_join;
	int64_t parts = is_divided ? m->parts[0] : 1;
	bool is_waiting = false;
	for (size_t i = 0; i < m->open.n; i++) {
		if (is_free(m->object->module->dims, m->open.items[i], kernel))
			continue;
		is_waiting = true;
		if (m->open.items[i] != m->before)
			parts = 1;
	}
	if (is_waiting)
		add(m, (struct plan_step){.kind = PLAN_BARRIER, .parts = parts});
	if (is_waiting && parts == 1 && m->conditions == 0)
		m->open.n = 0;
	ARENA_ADD(m->object->arena, &m->open, kernel);
}

/* ---- groups ---- */

static enum tfmc_status add_kernel(struct maker *m, size_t number, bool is_join)
{
	const struct function *f = m->function;
	struct plan_kernel *k = ARENA_NEW(m->object->arena, struct plan_kernel);
	if (!k)
		return TFMC_NO_MEMORY;
	*k = (struct plan_kernel){
	        .groups = &f->groups[number], .n_groups = 1, .number = number, .is_join = is_join};
	if (!is_join)
		k->n_groups = plan_together(m->object, f, number, &k->reversed);
	m->group = number + k->n_groups;
	k->areas = group_areas(m->object, f, k->groups, k->n_groups);
	memcpy(k->rounds, m->rounds, sizeof(k->rounds));
	TFMC_TRY(kernel_record(m->object, f, m->parts[0] > 1 ? m->parts[0] : m->parts[1], k));
	wait_for_open(m, k);
	m->before = is_join ? m->before : k;
	add(m, (struct plan_step){.kind = PLAN_KERNEL, .kernel = k});
	return TFMC_OK;
}

/* The second step of an attention whose blocks were divided; what it writes is what the group writes. */
static enum tfmc_status add_join(struct maker *m, size_t number)
{
	const struct function *f = m->function;
	const struct ir_dim *heads;
	if (!kernel_has_join(m->object->module, f->func, f->groups[number], m->object->target, &heads))
		return TFMC_OK;
	if (object_is_device(m->object))
		return add_kernel(m, number, true);
	m->conditions++;
	add(m, (struct plan_step){.kind = PLAN_SPLIT, .heads = heads});
	TFMC_TRY(add_kernel(m, number, true));
	add(m, (struct plan_step){.kind = PLAN_END});
	m->conditions--;
	return TFMC_OK;
}

static enum tfmc_status add_group(struct maker *m, const struct ir_op *group)
{
	size_t number = m->group;
	bool is_optional = group_is_optional(m->function, group);
	m->parts[0] = m->parts[1];
	m->parts[1] = find_parts(m, number);
	if (is_optional) {
		size_t *outputs = ARENA_ARRAY(m->object->arena, size_t, group->n_results);
		for (size_t i = 0; outputs && i < group->n_results; i++)
			outputs[i] = m->function->places[group->results[i].id]->number;
		m->conditions++;
		add(m, (struct plan_step){
		               .kind = PLAN_WANTED, .outputs = outputs, .n_outputs = group->n_results});
	}
	TFMC_TRY(add_kernel(m, number, false));
	TFMC_TRY(add_join(m, number));
	progress_tell(m->object->options->progress, "kernels", "groups", m->group, m->function->n_groups);
	TFMC_TRY(budget_code(m->object, group));
	if (is_optional) {
		add(m, (struct plan_step){.kind = PLAN_END});
		m->conditions--;
	}
	return TFMC_OK;
}

static enum tfmc_status add_region(struct maker *m, const struct ir_region *r);

/* The next turn begins with any of the kernels. */
static enum tfmc_status add_repeat(struct maker *m, const struct ir_op *op)
{
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	if (m->depth == OBJECT_REPEAT_MAX) {
		diag_error(m->object->cx, op->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: repeats more than %d deep", OBJECT_REPEAT_MAX);
		return TFMC_INVALID;
	}
	close_open(m);
	add(m, (struct plan_step){.kind = PLAN_REPEAT, .count = count});
	m->rounds[m->depth++] = count;
	TFMC_TRY(add_region(m, op->region));
	m->rounds[--m->depth] = 0;
	close_open(m);
	add(m, (struct plan_step){.kind = PLAN_END});
	return TFMC_OK;
}

static enum tfmc_status add_region(struct maker *m, const struct ir_region *r)
{
	const struct function *f = m->function;
	for (size_t i = 0; i < r->n_ops; i++) {
		if (m->group < f->n_groups && r->ops[i] == f->groups[m->group])
			TFMC_TRY(add_group(m, r->ops[i]));
		else if (r->ops[i]->code == OP_repeat)
			TFMC_TRY(add_repeat(m, r->ops[i]));
	}
	return TFMC_OK;
}

/* ---- the whole ---- */

enum tfmc_status plan_make(struct object *o, struct function *f)
{
	struct plan *p = ARENA_NEW(o->arena, struct plan);
	struct maker m = {.object = o, .function = f, .plan = p, .parts = {1, 1}};
	const struct emit e = {.object = o, .function = f};
	if (!p)
		return TFMC_NO_MEMORY;
	p->func = f->func;
	p->arena_bytes = f->arena;
	f->plan = p;
	TFMC_TRY(add_region(&m, f->func->body));
	if (f->past_result >= 0) {
		struct area *lengths = ARENA_NEW(o->arena, struct area);
		if (!lengths)
			return TFMC_NO_MEMORY;
		if (!area_of_value(&e, func_result(f->func, (size_t)f->past_result), lengths)) {
			diag_error(o->cx, f->func->loc.at, DIAG_INTERNAL,
			           "the lengths that '%s' returns lie in no memory", f->func->name);
			return TFMC_INTERNAL;
		}
		lengths->is_written = true;
		add(&m, (struct plan_step){.kind = PLAN_LENGTHS, .lengths = lengths});
	}
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

const struct plan_step *plan_find(const struct plan *p, enum plan_step_kind kind)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].kind == kind)
			return &p->items[i];
	return NULL;
}
