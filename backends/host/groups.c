/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function for each kernel of a plan, (task, worker, n_workers), which looks the kernel's arguments up and calls it.
 * `task` is enum task_word; the caller's parallel_for runs it as it is.
 */
#include "backends/host/host.h"

/* This worker's part of the scratch at the beginning of the arena. */
static struct kb_val scratch(struct emit *e, struct kb_val worker)
{
	struct kb_val arena = emit_context(e, KB_PTR, CONTEXT_ARENA);
	struct kb_val offset = kb_mul(e->k, worker, kb_index(e->k, e->object->scratch));
	return kb_ptr_add(e->k, arena, offset, 0);
}

static struct kb_val argument(struct emit *e, const struct plan_kernel *kernel, const struct plan_arg *arg,
                              struct kb_val worker, struct kb_val n_workers)
{
	const struct area *area = arg->kind == PLAN_BUFFER ? &kernel->areas.items[arg->number] : NULL;
	switch (arg->kind) {
	case PLAN_BUFFER: return area->memory == AREA_SCRATCH ? scratch(e, worker) : area_address(e, area);
	case PLAN_OFFSET: break;
	case PLAN_DIM: return e->dims[arg->number];
	case PLAN_INDEX: return e->index[arg->number];
	case PLAN_WORKER: return worker;
	case PLAN_WORKERS: return n_workers;
	case PLAN_SOURCE_STEP: return e->source_step;
	}
	return (struct kb_val){0};
}

static enum tfmc_status emit_kernel_call(struct object *o, const struct function *f,
                                         const struct plan_kernel *kernel)
{
	struct emit e = emit_of_group(o, f, kernel->group);
	struct kb_val *args = ARENA_ARRAY(o->arena, struct kb_val, kernel->n_args + 1);
	e.k = kb_begin(o->kb, kernel_symbol(o, f, kernel), KB_INTERNAL, KB_VOID);
	if (!args || !e.k)
		return TFMC_NO_MEMORY;
	struct kb_val task = kb_param(e.k, "task", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	struct kb_val n_workers = kb_param(e.k, "n_workers", KB_INDEX_T, 0);
	emit_group_comment(&e);
	e.context = emit_load(e.k, KB_PTR, task, 8 * TASK_CONTEXT);
	e.args = emit_load(e.k, KB_PTR, task, 8 * TASK_ARGS);
	for (size_t i = 0; i < e.n_repeats; i++)
		e.index[i] = emit_load(e.k, KB_INDEX, task, 8 * (TASK_INDEX + (int64_t)i));
	emit_load_dims(&e);
	emit_load_bases(&e);
	for (size_t i = 0; i < kernel->n_args; i++)
		args[i] = argument(&e, kernel, &kernel->args[i], worker, n_workers);
	kb_call(e.k, kernel->name, KB_VOID, args, kernel->n_args);
	kb_end(e.k);
	return TFMC_OK;
}

enum tfmc_status emit_groups(struct object *o, struct function *f)
{
	TFMC_TRY(plan_make(o, f));
	for (size_t i = 0; i < f->plan->n; i++)
		if (f->plan->items[i].kind == PLAN_KERNEL)
			TFMC_TRY(emit_kernel_call(o, f, f->plan->items[i].kernel));
	return TFMC_OK;
}
