/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the program: plans with their kernels, the width of index arguments, the OpenCL C source; and prints
 * source and plans as one file (--emit=opencl).
 */
#include "backends/plan/opencl.h"

#include <inttypes.h>

#include "backends/print/cfamily.h"

/* ---- plans ---- */

/* Plans of the functions that entries of an object reach. Without entries hosts call functions by name: all
 * functions but cases. */
static enum tfmc_status make_plans(struct object *o, struct opencl_program *out)
{
	out->functions = ARENA_ARRAY(o->arena, const struct plan *, o->functions.n + 1);
	if (!out->functions)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < o->functions.n; i++) {
		struct function *f = &o->functions.items[i];
		if (o->entries.n > 0 ? !f->reached : f->func->when != NULL)
			continue;
		TFMC_TRY(plan_make(o, f));
		f->row = out->n_functions;
		out->functions[out->n_functions++] = f->plan;
	}
	return TFMC_OK;
}

/* ---- index width ---- */

/* Index arguments have 64 bits if any intermediate value of a kernel may reach 2^31: byte offsets into
 * buffers, element numbers, and products of tasks and workers in the division of work. */

/* Bounds that kernel generators keep: tasks per worker, and elements of a piece of a long row. */
#define TASK_FACTOR 4
#define ROW_PIECE   1024

/* In double: no overflow, and exact below 2^53. */
static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double upper_bound(const struct object *o, const struct ir_dim *d)
{
	return (double)ir_dim_hi(o->module->dims, d);
}

static double largest_index(const struct object *o, const struct ir_func *f, const struct plan_kernel *l)
{
	struct ir_dims *dims = o->module->dims;
	double tasks = upper_bound(o, l->tasks) * (double)l->workers, each = tasks;
	for (size_t n = 0; n < l->n_groups; n++)
		/* tasks may be rows, or pieces of long rows */
		for (size_t i = 0; i < l->groups[n]->n_results; i++) {
			const struct ir_type *type = ir_type_of(f, l->groups[n]->results[i]);
			if (type->kind != IR_TENSOR || type->rank == 0)
				continue;
			double rows = upper_bound(o, ir_type_count_range(dims, type, 0, type->rank - 1));
			each = larger(each, rows + upper_bound(o, ir_type_count(dims, type)) / ROW_PIECE);
		}
	each = larger(each, larger((double)(TASK_FACTOR * l->workers), (double)l->scratch));
	double number = (tasks + 1) * each;
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct area *p = &l->areas.items[i];
		double end = upper_bound(o, p->offset) + upper_bound(o, p->bytes);
		for (int d = 0; d < OBJECT_REPEAT_MAX && l->repeat_counts[d] > 0; d++)
			end += (double)(l->repeat_counts[d] - 1) * (double)p->stride[d];
		number = larger(number, end);
	}
	return number;
}

static int choose_index_bits(const struct object *o, const struct opencl_program *p)
{
	double state = (double)o->states.batch_bytes * (double)o->states.batch_max;
	double number = larger((double)o->weights.bytes, state + (double)o->states.fixed_bytes);
	for (size_t i = 0; i < p->n_functions; i++) {
		const struct plan *f = p->functions[i];
		number = larger(number, upper_bound(o, f->arena_bytes));
		for (size_t k = 0; k < f->n; k++)
			if (f->items[k].kind == PLAN_DISPATCH)
				number = larger(number, largest_index(o, f->func, f->items[k].kernel));
	}
	return number < 0x1p31 ? 32 : 64;
}

/* ---- the program ---- */

/* Emits all plans and kernels of an object that is laid out, and prints the source. */
static enum tfmc_status build_program(struct object *o, struct opencl_program *out)
{
	struct kb_caps caps = kb_caps_of(o->target);
	struct cfamily_options options = {.dialect = CFAMILY_OPENCL};
	out->object = o;
	o->kb = kb_module_create(o->arena, &caps);
	if (!o->kb)
		return TFMC_NO_MEMORY;
	TFMC_TRY(make_plans(o, out));
	out->index_bits = options.index_bits = choose_index_bits(o, out);
	options.title = arena_printf(o->arena, "%s for %s", o->name, o->target->name);
	if (ir_dims_failed(o->module->dims) || arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	TFMC_TRY(kb_verify(o->kb, o->cx));
	TFMC_TRY(cfamily_print(o->cx, o->kb, &options, &out->source));
	return buf_failed(&out->source) ? TFMC_NO_MEMORY : TFMC_OK;
}

enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                              const struct target *target, struct arena *arena, struct opencl_program *out)
{
	static const struct backend_options none;
	struct object *o = ARENA_NEW(arena, struct object);
	*out = (struct opencl_program){0};
	buf_init(&out->source);
	if (planned->stage != STAGE_PLAN || target->arch != ARCH_OPENCL) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL,
		           planned->stage == STAGE_PLAN ? "the target is none of OpenCL"
		                                        : "the module is not of stage plan");
		return TFMC_INTERNAL;
	}
	if (!o)
		return TFMC_NO_MEMORY;
	object_init(o, cx, arena, planned, target, &none);
	TFMC_TRY(layout_weights(o));
	TFMC_TRY(layout_state(o));
	TFMC_TRY(layout_functions(o));
	return build_program(o, out);
}

enum tfmc_status opencl_compile(struct object *o, struct opencl_program *out, struct buf *plan)
{
	struct kb_module *host_module = o->kb;
	*out = (struct opencl_program){0};
	buf_init(&out->source);
	enum tfmc_status status = build_program(o, out);
	o->kb = host_module;
	return status == TFMC_OK ? opencl_write_plan(out, plan) : status;
}

void opencl_print_plans(const struct opencl_program *p, struct buf *out)
{
	const struct object *o = p->object;
	const struct ir_module *planned = o->module;
	buf_printf(out, "weights %" PRId64 " bytes; indices of %d bits\n", o->weights.bytes, p->index_bits);
	if (o->states.fixed_bytes)
		buf_printf(out, "state %" PRId64 " bytes and %" PRId64 " for each sequence\n",
		           o->states.fixed_bytes, o->states.batch_bytes);
	for (size_t i = 0; i < ir_dims_count(planned->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(planned->dims, i);
		buf_printf(out, "%s in [%" PRId64 ", %" PRId64 "]\n", s->name, s->lo, s->hi);
	}
	for (size_t i = 0; i < p->n_functions; i++)
		plan_print(p->functions[i], planned, out);
}

void opencl_program_destroy(struct opencl_program *p)
{
	buf_destroy(&p->source);
	*p = (struct opencl_program){0};
}

enum tfmc_status backend_opencl(struct diag_context *cx, const struct ir_module *planned,
                                const struct target *target, struct buf *out)
{
	struct arena arena;
	struct opencl_program p;
	arena_init(&arena);
	enum tfmc_status status = opencl_build(cx, planned, target, &arena, &p);
	if (status == TFMC_OK) {
		buf_append(out, &p.source);
		buf_str(out, "\n/*\n");
		opencl_print_plans(&p, out);
		buf_str(out, "*/\n");
	}
	opencl_program_destroy(&p);
	arena_destroy(&arena);
	return status == TFMC_OK && buf_failed(out) ? TFMC_NO_MEMORY : status;
}
