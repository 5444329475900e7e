/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executes the commands of a plan.
 *
 *   NAME.func.N.kind(task, worker, n)   loads the arguments of kernel N and calls it. `task`: enum task_slot; it has the
 *                 signature of a parallel_for task, so the caller's parallel_for can run it
 *   NAME.func.body(context, args, worker, n) -> i32   run by every worker, with a barrier where the plan has one and
 *                 none at the end; nonzero: cancelled. worker -1: one thread runs it and passes each kernel to the
 *                 caller's parallel_for
 *
 * Before the first command worker 0 or -1 fills omitted inputs with their defaults.
 */
#include "backends/plan/host.h"
#include "backends/kernels/eval.h"

struct body {
	struct emit e;
	struct kb_val worker, n_workers;
	struct kb_val has_pool;   /* parallel_for runs the kernels */
	struct kb_val is_several; /* several workers run this function */
	struct kb_val task;       /* [TASK_SLOTS] */
	size_t depth;
};

/* ---- kernels ---- */

/* The value of a kernel argument in the kernel's calling function. */
static struct kb_val kernel_argument(struct emit *e, const struct plan_kernel *kernel,
                                     const struct plan_arg *arg, struct kb_val worker,
                                     struct kb_val n_workers)
{
	const struct area *area = arg->kind == PLAN_BUFFER ? &kernel->areas.items[arg->number] : NULL;
	switch (arg->kind) {
	case PLAN_BUFFER:
		if (area->memory != AREA_SCRATCH)
			return area_address(e, area);
		/* The scratch of all workers is at the beginning of the arena. */
		struct kb_val arena = emit_load_context(e, KB_PTR, CONTEXT_ARENA);
		return kb_ptr_add(e->k, arena, kb_mul_const(e->k, worker, e->object->scratch), 0);
	case PLAN_OFFSET: break;
	case PLAN_DIM: return e->dims[arg->number];
	case PLAN_INDEX: return e->index[arg->number];
	case PLAN_WORKER: return worker;
	case PLAN_WORKERS: return n_workers;
	case PLAN_SOURCE_STEP: return e->source_step;
	}
	return (struct kb_val){0};
}

/* Emits NAME.func.N.kind. */
static enum tfmc_status emit_kernel_caller(struct object *o, const struct function *f,
                                           const struct plan_kernel *kernel)
{
	struct emit e = emit_for_group(o, f, kernel->groups[0]);
	struct kb_val *args = ARENA_ARRAY(o->arena, struct kb_val, kernel->n_args + 1);
	e.k = kb_begin(o->kb, kernel_symbol(o, f, kernel), KB_INTERNAL, KB_VOID);
	if (!args)
		return TFMC_NO_MEMORY;
	struct kb_val task = kb_param(e.k, "task", KB_PTR_T, KB_READONLY);
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	struct kb_val n_workers = kb_param(e.k, "n_workers", KB_INDEX_T, 0);
	emit_group_comment(&e);
	e.context = emit_load(e.k, KB_PTR, task, 8 * TASK_CONTEXT);
	e.args = emit_load(e.k, KB_PTR, task, 8 * TASK_ARGS);
	for (size_t i = 0; i < e.n_repeats; i++)
		e.index[i] = emit_load(e.k, KB_INDEX, task, 8 * (TASK_INDEX + (int64_t)i));
	emit_load_call(&e);
	for (size_t i = 0; i < kernel->n_args; i++)
		args[i] = kernel_argument(&e, kernel, &kernel->args[i], worker, n_workers);
	kb_call(e.k, kernel->name, KB_VOID, args, kernel->n_args);
	kb_end(e.k);
	return TFMC_OK;
}

/* ---- omitted inputs ---- */

/* If the input is omitted: sets `any`, and the first worker fills its default buffer. */
static void fill_default(struct emit *e, size_t param, struct kb_val is_first, struct kb_var any)
{
	struct kb *k = e->k;
	const struct ir_param *p = &e->function->func->params[param];
	const struct ir_type *t = ir_type_of(e->function->func, p->value);
	struct kb_val ptr = emit_load_arg(e, KB_PTR, e->function->param_slot[param]);
	kb_if(k, kb_cmp(k, KB_EQ, ptr, kb_null(k)));
	kb_set(k, any, kb_i32(k, 1));
	struct kb_val at = kb_ptr_add(k, e->buffers, emit_dim(e, e->function->default_at[param]), 0);
	struct kb_val v = p->default_value      ? emit_dim(e, p->default_value)
	                  : t->dtype == DT_BOOL ? kb_i32(k, (int32_t)p->fill)
	                                        : kb_f64(k, p->fill);
	struct kb_val element = kb_cvt(k, v, eval_stored_scalar(t->dtype));
	struct kb_val n = emit_dim(e, ir_type_count(e->object->module->dims, t));
	struct kb_val end = kb_select(k, is_first, n, kb_index(k, 0));
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), end, 1, 0);
	kb_store(k, element, at, i, 0, 0);
	kb_end_loop(k);
	kb_end_if(k);
}

struct kb_val emit_defaults(struct emit *e, struct kb_val worker)
{
	struct kb *k = e->k;
	struct kb_val is_first = kb_cmp(k, KB_LE, worker, kb_index(k, 0));
	struct kb_var any = kb_var(k, "any", KB_I32_T, kb_i32(k, 0));
	for (size_t i = 0; i < e->function->func->n_params; i++)
		if (e->function->default_at[i])
			fill_default(e, i, is_first, any);
	return kb_cmp(k, KB_NE, kb_get(k, any), kb_i32(k, 0));
}

/* ---- commands ---- */

static void emit_barrier_call(struct body *s)
{
	struct kb *k = s->e.k;
	struct kb_val args[] = {s->e.context, s->worker, s->n_workers};
	kb_if(k, s->is_several);
	struct kb_val stop = kb_call(k, emit_variant_symbol(s->e.object, "barrier"), KB_I32, args, 3);
	emit_return_if(&s->e, kb_cmp(k, KB_NE, stop, kb_i32(k, 0)), TFMC_RT_E_CANCELLED);
	kb_end_if(k);
}

/* Whether the caller passes a buffer for any of the outputs. */
static struct kb_val is_wanted(struct body *s, const struct plan_command *command)
{
	struct kb_val any = {0};
	for (size_t i = 0; i < command->n_outputs; i++) {
		struct kb_val wanted = emit_has_arg(&s->e, s->e.function->result_slot[command->outputs[i]]);
		any = any.id ? kb_bin(s->e.k, KB_OR, any, wanted) : wanted;
	}
	return any;
}

/* Runs the kernel in this worker, or gives it to the caller's parallel_for. */
static void emit_dispatch(struct body *s, const struct plan_kernel *kernel)
{
	struct kb *k = s->e.k;
	const char *symbol = kernel_symbol(s->e.object, s->e.function, kernel);
	struct kb_val here[] = {s->task, s->worker, s->n_workers};
	kb_if(k, s->has_pool);
	struct kb_val user = emit_load_context(&s->e, KB_PTR, CONTEXT_USER);
	struct kb_val pool[] = {user, s->n_workers, kb_func_addr(k, symbol), s->task};
	kb_call_ptr(k, emit_load_context(&s->e, KB_PTR, CONTEXT_PARALLEL_FOR), KB_VOID, pool, 4);
	kb_else(k);
	kb_call(k, symbol, KB_VOID, here, 3);
	kb_end_if(k);
}

/* Emits commands from `at` up to the end of the open block; returns the index after it. */
static size_t emit_commands(struct body *s, size_t at)
{
	struct kb *k = s->e.k;
	const struct plan *p = s->e.function->plan;
	struct kb_val index;
	while (at < p->n) {
		const struct plan_command *command = &p->items[at++];
		switch (command->kind) {
		case PLAN_DISPATCH: emit_dispatch(s, command->kernel); break;
		case PLAN_REPEAT:
			index = kb_loop(k, "l", kb_index(k, 0), kb_index(k, command->count), 1,
			                command->count > 0 ? KB_NONEMPTY : 0);
			emit_store(k, index, s->task, 8 * (TASK_INDEX + (int64_t)s->depth++));
			at = emit_commands(s, at);
			s->depth--;
			kb_end_loop(k);
			break;
		case PLAN_IF_WANTED:
			kb_if(k, is_wanted(s, command));
			at = emit_commands(s, at);
			kb_end_if(k);
			break;
		case PLAN_IF_SPLIT:
			kb_if(k, kernel_is_split(k, emit_dim(&s->e, command->heads), s->n_workers));
			at = emit_commands(s, at);
			kb_end_if(k);
			break;
		case PLAN_END: return at;
		case PLAN_BARRIER: emit_barrier_call(s); break;
		case PLAN_LENGTHS: break;
		}
	}
	return at;
}

/* ---- the body ---- */

enum tfmc_status emit_body(struct object *o, struct function *f)
{
	struct body s = {0};
	TFMC_TRY(plan_make(o, f));
	for (size_t i = 0; i < f->plan->n; i++)
		if (f->plan->items[i].kind == PLAN_DISPATCH)
			TFMC_TRY(emit_kernel_caller(o, f, f->plan->items[i].kernel));
	s.e = emit_begin(o, f, emit_function_symbol(o, f, "body"), KB_INTERNAL);
	struct kb *k = s.e.k;
	s.worker = kb_param(k, "worker", KB_INDEX_T, 0);
	s.n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	s.task = kb_local(k, "task", KB_INDEX, TASK_SLOTS);
	s.has_pool = kb_cmp(k, KB_LT, s.worker, kb_index(k, 0));
	struct kb_val several = kb_cmp(k, KB_GT, s.n_workers, kb_index(k, 1));
	s.is_several = kb_bin(k, KB_AND, several, kb_un(k, KB_NOT, s.has_pool));
	emit_store(k, s.e.context, s.task, 8 * TASK_CONTEXT);
	emit_store(k, s.e.args, s.task, 8 * TASK_ARGS);
	emit_load_call(&s.e);
	if (f->has_defaults) { /* all workers see the same arguments, so all decide alike whether to wait */
		kb_if(k, emit_defaults(&s.e, s.worker));
		emit_barrier_call(&s);
		kb_end_if(k);
	}
	(void)emit_commands(&s, 0);
	emit_end(&s.e, TFMC_RT_OK);
	return TFMC_OK;
}
