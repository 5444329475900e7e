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
static int64_t most_tasks(const struct builder *b, const struct ir_func *f, const struct opencl_launch *l)
{
	const struct ir_dims *t = b->object.module->dims;
	int64_t most = ir_dim_hi(t, l->tasks) < LIMIT ? ir_dim_hi(t, l->tasks) * l->workers : LIMIT;
	for (size_t i = 0; i < l->group->n_results; i++) {
		const struct ir_type *type = ir_type_of(f, l->group->results[i]);
		if (type->kind != IR_TENSOR || type->rank == 0)
			continue;
		struct ir_dims *dims = b->object.module->dims;
		int64_t rows = ir_dim_hi(t, ir_type_count_range(dims, type, 0, type->rank - 1));
		int64_t pieces = ir_dim_hi(t, ir_type_count(dims, type)) / ROW_PIECE;
		if (!sum_fits(rows, pieces))
			return LIMIT;
		most = rows + pieces > most ? rows + pieces : most;
	}
	return most;
}

static bool launch_fits(const struct builder *b, const struct ir_func *f, const struct opencl_launch *l,
                        const int64_t *rounds)
{
	const struct ir_dims *t = b->object.module->dims;
	int64_t workers = ir_dim_hi(t, l->tasks);
	if (!product_fits(workers, l->workers))
		return false;
	workers = workers * l->workers + 1;
	if (!product_fits(most_tasks(b, f, l), workers) || !product_fits(workers, TASKS_MORE * l->workers) ||
	    !product_fits(workers, l->scratch))
		return false;
	for (size_t i = 0; i < l->n_places; i++) {
		const struct area *p = &l->places[i];
		int64_t end = ir_dim_hi(t, p->offset);
		for (int d = 0; d < OBJECT_REPEAT_MAX; d++) {
			if (!product_fits(rounds[d], p->step[d]) || !sum_fits(end, rounds[d] * p->step[d]))
				return false;
			end += rounds[d] * p->step[d];
		}
		if (!sum_fits(end, ir_dim_hi(t, p->bytes)))
			return false;
	}
	return true;
}

static bool function_fits(const struct builder *b, const struct opencl_function *f)
{
	int64_t rounds[OBJECT_REPEAT_MAX] = {0};
	size_t depth = 0;
	for (size_t i = 0; i < f->n_steps; i++) {
		const struct opencl_step *s = &f->steps[i];
		switch (s->kind) {
		case OPENCL_LAUNCH:
			if (!launch_fits(b, f->func, &s->launch, rounds))
				return false;
			break;
		case OPENCL_REPEAT:
			if (depth < OBJECT_REPEAT_MAX)
				rounds[depth] = s->count > 0 ? s->count - 1 : 0;
			depth++;
			break;
		case OPENCL_END_REPEAT:
			if (--depth < OBJECT_REPEAT_MAX)
				rounds[depth] = 0;
			break;
		}
	}
	return fits(ir_dim_hi(b->object.module->dims, f->arena_bytes));
}

int width_choose(const struct builder *b, const struct opencl_program *p)
{
	const struct object *o = &b->object;
	bool all = fits(o->weights.bytes) && product_fits(o->states.batch_bytes, o->states.batch_max) &&
	           sum_fits(o->states.fixed_bytes, o->states.batch_bytes * o->states.batch_max);
	for (size_t i = 0; all && i < p->n_functions; i++)
		all = function_fits(b, &p->functions[i]);
	return all ? 32 : 64;
}
