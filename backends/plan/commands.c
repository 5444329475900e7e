/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a function: its kernels in order, the repeats and conditions around them, and barriers where one
 * kernel touches memory that another one since the last barrier has touched and one of them writes it.
 */
#include "backends/plan/emit.h"

#include <string.h>

struct maker {
	struct object *object;
	const struct function *function;
	struct plan *plan;
	size_t group;                             /* number of the next one */
	int64_t repeat_counts[OBJECT_REPEAT_MAX]; /* of the repeats that are open */
	size_t depth;
	int conditions; /* that are open since the last repeat: what is inside may not run */
	/* Kernels since the last barrier. */
	struct {
		const struct plan_kernel **items;
		size_t n, cap;
	} open;
};

static void add(struct maker *m, struct plan_command step)
{
	ARENA_ADD(m->object->arena, m->plan, step);
}

/* ---- hazards ---- */

/* A join reads the scratch of all workers. */
static bool is_free(struct ir_dims *t, const struct plan_kernel *before, const struct plan_kernel *kernel)
{
	if ((before->is_combine && kernel->scratch > 0) || (kernel->is_combine && before->scratch > 0))
		return false;
	return !areas_conflict(t, &before->areas, &kernel->areas, NULL);
}

/* ---- barriers ---- */

/* Everything before it is through, but for what is inside a condition. */
static void add_barrier(struct maker *m)
{
	add(m, (struct plan_command){.kind = PLAN_BARRIER});
	if (m->conditions == 0)
		m->open.n = 0;
}

static bool must_wait(const struct maker *m, const struct plan_kernel *kernel)
{
	bool waits = false;
	for (size_t i = 0; i < m->open.n && !waits; i++)
		waits = !is_free(m->object->module->dims, m->open.items[i], kernel);
	return waits;
}

static void open_condition(struct maker *m, struct plan_command step)
{
	add(m, step);
	m->conditions++;
}

static void close_condition(struct maker *m)
{
	add(m, (struct plan_command){.kind = PLAN_END});
	m->conditions--;
}

/* ---- groups ---- */

/* The first of the kernel's groups whose calls of few rows have a kernel of their own decides. */
static const struct ir_dim *few_rows(const struct object *o, const struct ir_func *f,
                                     const struct plan_kernel *k)
{
	const struct ir_dim *rows = NULL;
	for (size_t i = 0; object_is_device(o) && !k->is_combine && i < k->n_groups && !rows; i++)
		rows = kernel_few_rows(o->module, f, k->groups[i], o->target);
	return rows;
}

/* The kernel for all calls, or one for calls of few rows and one for the others: of these a call launches one, so that
 * neither waits for the other. */
static enum tfmc_status add_kernel(struct maker *m, size_t number, bool is_combine)
{
	const struct function *f = m->function;
	struct plan_kernel *k = ARENA_ARRAY(m->object->arena, struct plan_kernel, 2);
	if (!k)
		return TFMC_NO_MEMORY;
	k[0] = (struct plan_kernel){
	        .groups = &f->groups[number], .n_groups = 1, .number = number, .is_combine = is_combine};
	if (!is_combine)
		k[0].n_groups = plan_fused_launch(m->object, f, number, &k[0].reversed);
	m->group = number + k[0].n_groups;
	k[0].areas = group_areas(m->object, f, k[0].groups, k[0].n_groups);
	memcpy(k[0].repeat_counts, m->repeat_counts, sizeof(k[0].repeat_counts));
	k[0].rows = few_rows(m->object, f->func, &k[0]);
	k[1] = k[0];
	k[0].is_skinny = k[0].rows != NULL;
	size_t n = k[0].rows ? 2 : 1;
	bool waits = false;
	for (size_t i = 0; i < n; i++) {
		TFMC_TRY(emit_plan_kernel(m->object, f, &k[i]));
		waits = waits || must_wait(m, &k[i]);
	}
	if (waits)
		add_barrier(m);
	for (size_t i = 0; i < n; i++) {
		ARENA_ADD(m->object->arena, &m->open, &k[i]);
		add(m, (struct plan_command){.kind = PLAN_DISPATCH, .kernel = &k[i]});
	}
	return TFMC_OK;
}

/* The second step of an attention whose blocks were divided; what it writes is what the group writes. */
static enum tfmc_status add_join(struct maker *m, size_t number)
{
	const struct function *f = m->function;
	const struct ir_dim *heads;
	if (!kernel_has_combine(m->object->module, f->func, f->groups[number], m->object->target, &heads))
		return TFMC_OK;
	if (object_is_device(m->object))
		return add_kernel(m, number, true);
	open_condition(m, (struct plan_command){.kind = PLAN_IF_SPLIT, .heads = heads});
	TFMC_TRY(add_kernel(m, number, true));
	close_condition(m);
	return TFMC_OK;
}

static enum tfmc_status add_group(struct maker *m, const struct ir_op *group)
{
	size_t number = m->group;
	bool is_optional = group_is_optional(m->function, group);
	if (is_optional) {
		size_t *outputs = ARENA_ARRAY(m->object->arena, size_t, group->n_results);
		for (size_t i = 0; outputs && i < group->n_results; i++)
			outputs[i] = m->function->places[group->results[i].id]->number;
		open_condition(m, (struct plan_command){.kind = PLAN_IF_WANTED,
		                                        .outputs = outputs,
		                                        .n_outputs = group->n_results});
	}
	TFMC_TRY(add_kernel(m, number, false));
	TFMC_TRY(add_join(m, number));
	progress_report(m->object->options->progress, "kernels", "groups", m->group, m->function->n_groups);
	TFMC_TRY(check_code_limit(m->object, group));
	if (is_optional)
		close_condition(m);
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
	if (m->open.n > 0)
		add_barrier(m);
	add(m, (struct plan_command){.kind = PLAN_REPEAT, .count = count});
	m->repeat_counts[m->depth++] = count;
	TFMC_TRY(add_region(m, op->region));
	m->repeat_counts[--m->depth] = 0;
	if (m->open.n > 0)
		add_barrier(m);
	add(m, (struct plan_command){.kind = PLAN_END});
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
	struct maker m = {.object = o, .function = f, .plan = p};
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
		p->lengths = lengths;
		add(&m, (struct plan_command){.kind = PLAN_LENGTHS});
	}
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
