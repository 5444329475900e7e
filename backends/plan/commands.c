/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the launch plan of a function: its kernels in order, the repeats and conditions around them, and
 * barriers. A barrier goes before a kernel that has a data hazard (read after write, write after read, write
 * after write) with a kernel since the last barrier.
 */
#include "backends/plan/emit.h"

#include <string.h>

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

/* The kernel that combines the partial results of a split attention, after the group's kernel; it writes
 * the group's results. In an object it runs only when the number of workers makes the attention split. */
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

/* The kernels of a group, or of a fused launch that begins with it; inside a condition if the group is
 * optional. */
static enum tfmc_status add_group(struct plan_builder *b, const struct ir_op *group)
{
	size_t number = b->group;
	bool is_optional = group_is_optional(b->function, group);
	if (is_optional) {
		size_t *outputs = ARENA_ARRAY(b->object->arena, size_t, group->n_results);
		for (size_t i = 0; outputs && i < group->n_results; i++)
			outputs[i] = b->function->storage[group->results[i].id]->number;
		open_condition(b, (struct plan_command){.kind = PLAN_IF_WANTED,
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

/* Barriers before and after the loop body: the next iteration may start with a hazard to any pending
 * kernel. */
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
		add_command(&b, (struct plan_command){.kind = PLAN_LENGTHS});
	}
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
