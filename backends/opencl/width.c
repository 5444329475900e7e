/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How wide index arguments must be. Inside a kernel there are byte offsets from
 * a place, numbers of elements, and in the division of work products of tasks
 * and workers; when any of them may reach 2^31 the whole program has 64 bits.
 */
#include "backends/opencl/internal.h"

#include "ir/support/checked.h"

#define LIMIT ((int64_t)1 << 31)

/* Products are largest for as many workers as there are tasks; a template may make some times more. */
#define TASKS_MORE 4
#define ROW_PIECE  1024

static bool fits(int64_t a)
{
	return a >= 0 && a < LIMIT;
}

static bool sum_fits(int64_t a, int64_t b)
{
	int64_t sum;
	return checked_add_i64(a, b, &sum) && fits(sum);
}

static bool product_fits(int64_t a, int64_t b)
{
	int64_t product;
	return checked_mul_i64(a, b, &product) && fits(product);
}

/* Rows and pieces of long rows of the results. */
static int64_t most_tasks(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	const struct ir_dims *t = o->module->dims;
	int64_t most = ir_dim_hi(t, l->tasks) < LIMIT ? ir_dim_hi(t, l->tasks) * l->workers : LIMIT;
	for (size_t i = 0; i < l->group->n_results; i++) {
		const struct ir_type *type = ir_type_of(f, l->group->results[i]);
		if (type->kind != IR_TENSOR || type->rank == 0)
			continue;
		struct ir_dims *dims = o->module->dims;
		int64_t rows = ir_dim_hi(t, ir_type_count_range(dims, type, 0, type->rank - 1));
		int64_t pieces = ir_dim_hi(t, ir_type_count(dims, type)) / ROW_PIECE;
		if (!sum_fits(rows, pieces))
			return LIMIT;
		most = rows + pieces > most ? rows + pieces : most;
	}
	return most;
}

static bool launch_fits(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	const struct ir_dims *t = o->module->dims;
	int64_t workers = ir_dim_hi(t, l->tasks);
	if (!product_fits(workers, l->workers))
		return false;
	workers = workers * l->workers + 1;
	if (!product_fits(most_tasks(o, f, l), workers) || !product_fits(workers, TASKS_MORE * l->workers) ||
	    !product_fits(workers, l->scratch))
		return false;
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct area *p = &l->areas.items[i];
		int64_t end = ir_dim_hi(t, p->offset);
		for (int d = 0; d < OBJECT_REPEAT_MAX; d++) {
			int64_t turns = l->rounds[d] > 0 ? l->rounds[d] - 1 : 0;
			if (!product_fits(turns, p->step[d]) || !sum_fits(end, turns * p->step[d]))
				return false;
			end += turns * p->step[d];
		}
		if (!sum_fits(end, ir_dim_hi(t, p->bytes)))
			return false;
	}
	return true;
}

static bool function_fits(const struct object *o, const struct plan *p)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->items[i].kind == PLAN_KERNEL && !launch_fits(o, p->func, p->items[i].kernel))
			return false;
	return fits(ir_dim_hi(o->module->dims, p->arena_bytes));
}

int width_choose(const struct object *o, const struct opencl_program *p)
{
	bool all = fits(o->weights.bytes) && product_fits(o->states.batch_bytes, o->states.batch_max) &&
	           sum_fits(o->states.fixed_bytes, o->states.batch_bytes * o->states.batch_max);
	for (size_t i = 0; all && i < p->n_functions; i++)
		all = function_fits(o, p->functions[i]);
	return all ? 32 : 64;
}
