/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How wide index arguments must be. Inside a kernel there are byte offsets from
 * a place, numbers of elements, and in the division of work products of tasks
 * and workers; when any of them may reach 2^31 the whole program has 64 bits.
 */
#include "backends/opencl/internal.h"

/* Products are largest for as many workers as there are tasks; a template may make some times more. */
#define TASKS_MORE 4
#define ROW_PIECE  1024

/* Numbers are doubles: they do not overflow, and are exact as far as 32 bits go. */
static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double most(const struct object *o, const struct ir_dim *d)
{
	return (double)ir_dim_hi(o->module->dims, d);
}

/* Rows and pieces of long rows of the results. */
static double most_tasks(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	struct ir_dims *dims = o->module->dims;
	double tasks = most(o, l->tasks) * (double)l->workers;
	for (size_t i = 0; i < l->group->n_results; i++) {
		const struct ir_type *type = ir_type_of(f, l->group->results[i]);
		if (type->kind != IR_TENSOR || type->rank == 0)
			continue;
		double rows = most(o, ir_type_count_range(dims, type, 0, type->rank - 1));
		tasks = larger(tasks, rows + most(o, ir_type_count(dims, type)) / ROW_PIECE);
	}
	return tasks;
}

static double most_in_kernel(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	double workers = most(o, l->tasks) * (double)l->workers + 1;
	double each = larger(most_tasks(o, f, l), (double)(TASKS_MORE * l->workers));
	double number = workers * larger(each, (double)l->scratch);
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct area *p = &l->areas.items[i];
		double end = most(o, p->offset) + most(o, p->bytes);
		for (int d = 0; d < OBJECT_REPEAT_MAX && l->rounds[d] > 0; d++)
			end += (double)(l->rounds[d] - 1) * (double)p->step[d];
		number = larger(number, end);
	}
	return number;
}

static double most_in_function(const struct object *o, const struct plan *p)
{
	double number = most(o, p->arena_bytes);
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].kind == PLAN_KERNEL)
			number = larger(number, most_in_kernel(o, p->func, p->items[i].kernel));
	return number;
}

int width_choose(const struct object *o, const struct opencl_program *p)
{
	double state = (double)o->states.batch_bytes * (double)o->states.batch_max;
	double number = larger((double)o->weights.bytes, state + (double)o->states.fixed_bytes);
	for (size_t i = 0; i < p->n_functions; i++)
		number = larger(number, most_in_function(o, p->functions[i]));
	return number < 0x1p31 ? 32 : 64;
}
