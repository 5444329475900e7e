/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group becomes one kernel, or a few that one launch may compute do, one after the other. Parameters are declared
 * for all that the groups may need and dropped again when their templates did not use them; the plan lists what is left.
 * A kernel that equals an earlier one, in whatever function, is not kept.
 *
 *   object   addresses of areas, this worker's scratch, dims, indices of repeats, source_step, worker, n_workers
 *   OpenCL   a buffer and an offset in it for each area, the scratch of all workers, dims, indices of repeats,
 *            source_step
 */
#include "backends/plan/emit.h"

#include "backends/kb/kernel_ir.h"

#define DEVICE_ALIGN \
	64 /* bytes: where buffers of a device begin (backends/opencl/README.md, "The launch contract") */

struct recording {
	struct object *object;
	struct plan_kernel *kernel;
	struct emit e;
	struct kernel_job job;
	size_t sums; /* 1 + area; 0: none */
	/* As they were declared: value ids count from 1 in their order. */
	struct {
		struct plan_arg *items;
		size_t n, cap;
	} args;
};

/* What groups leave for the join, then scratch. */
static void add_areas(struct recording *r)
{
	const struct object *o = r->object;
	struct ir_dims *t = o->module->dims;
	int64_t scratch = groups_scratch(r->kernel->groups, r->kernel->n_groups);
	const struct ir_dim *sums =
	        kernel_combine_bytes(o->module, r->e.function->func, r->e.group, o->target);
	if (sums)
		ARENA_ADD(o->arena, &r->e.areas,
		          (struct area){.name = "sums",
		                        .memory = AREA_ARENA,
		                        .offset = r->e.function->sums_at,
		                        .bytes = sums,
		                        .is_written = !r->kernel->is_combine});
	r->sums = sums ? r->e.areas.n : 0;
	if (scratch > 0)
		ARENA_ADD(o->arena, &r->e.areas,
		          (struct area){.name = "scratch",
		                        .memory = AREA_SCRATCH,
		                        .offset = ir_dim_const(t, 0),
		                        .bytes = ir_dim_const(t, scratch),
		                        .is_written = true});
}

/* ---- parameters ---- */

/* Bytes that an offset is a multiple of in every launch, a power of two: those that all its terms are. */
static int offset_align(const struct area *area)
{
	uint64_t all = DEVICE_ALIGN;
	for (size_t i = 0; i < area->offset->n_terms; i++)
		all |= (uint64_t)area->offset->terms[i].coeff;
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		all |= (uint64_t)area->step[i];
	return (int)(all & -all);
}

static struct kb_val declare(struct recording *r, const char *name, enum plan_arg_kind kind, size_t number)
{
	ARENA_ADD(r->object->arena, &r->args, (struct plan_arg){kind, number});
	bool is_constant =
	        object_is_device(r->object) && kind == PLAN_BUFFER && !r->e.areas.items[number].is_written;
	return kb_param(r->e.k, name, kind == PLAN_BUFFER ? KB_PTR_T : KB_INDEX_T,
	                is_constant ? KB_READONLY : 0);
}

/* offsets, dims: room for those of each area, of each dim of the module. */
static void declare_all(struct recording *r, struct kb_val *offsets, struct kb_val *dims)
{
	struct arena *a = r->object->arena;
	const struct ir_dims *t = r->object->module->dims;
	bool is_device = object_is_device(r->object), has_source = false;
	for (size_t i = 0; i < r->e.areas.n; i++) {
		const char *name = r->e.areas.items[i].name;
		has_source |= r->e.areas.items[i].is_source;
		r->e.pointers[i] = declare(r, name, PLAN_BUFFER, i);
		if (!is_device)
			continue;
		kb_assume_multiple(r->e.k, r->e.pointers[i], DEVICE_ALIGN);
		offsets[i] = declare(r, arena_printf(a, "%s_at", name), PLAN_OFFSET, i);
		kb_assume_multiple(r->e.k, offsets[i], offset_align(&r->e.areas.items[i]));
	}
	for (size_t i = 0; i < ir_dims_count(t); i++)
		if (r->e.function->has_dim[i])
			dims[i] = declare(r, emit_short_name(a, ir_dims_sym(t, i)->name), PLAN_DIM, i);
	r->e.dims = dims;
	for (size_t i = 0; i < r->e.n_repeats; i++)
		r->e.index[i] =
		        declare(r, arena_printf(a, is_device ? "index%zu" : "l%zu", i), PLAN_INDEX, i);
	if (has_source)
		r->e.source_step = declare(r, "source_step", PLAN_SOURCE_STEP, 0);
	if (is_device)
		return;
	r->job.worker = declare(r, "worker", PLAN_WORKER, 0);
	r->job.n_workers = declare(r, "n_workers", PLAN_WORKERS, 0);
}

static enum tfmc_status begin(struct recording *r)
{
	struct object *o = r->object;
	size_t n_dims = ir_dims_count(o->module->dims);
	struct kb_val *offsets = ARENA_ARRAY(o->arena, struct kb_val, r->e.areas.n + 1);
	struct kb_val *dims = ARENA_ARRAY(o->arena, struct kb_val, n_dims + 1);
	r->e.pointers = ARENA_ARRAY(o->arena, struct kb_val, r->e.areas.n + 1);
	r->e.k = kb_begin(o->kb, r->kernel->name, object_is_device(o) ? KB_KERNEL : KB_INTERNAL, KB_VOID);
	if (arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	declare_all(r, offsets, dims);
	if (object_is_device(o) && o->target->group_size > 1)
		kb_group_size(r->e.k, o->target->group_size);
	emit_group_comment(&r->e);
	for (size_t i = 0; object_is_device(o) && i < r->e.areas.n; i++)
		r->e.pointers[i] = kb_ptr_add(r->e.k, r->e.pointers[i], offsets[i], 0);
	return TFMC_OK;
}

/* ---- groups ---- */

static int64_t items_of(const struct recording *r, const struct ir_op *group)
{
	const struct object *o = r->object;
	return object_is_device(o) ? kernel_items(o->module, r->e.function->func, group, o->target) : 0;
}

/* Work-items that are workers of their own in one of the groups. */
static int64_t workers_of(const struct recording *r, const struct ir_op *group)
{
	return items_of(r, group) > 1 || r->object->target->group_size <= 1 ? 1
	                                                                    : r->object->target->group_size;
}

/* Each item is a worker of its own, or all of them are one together; gives its number among those that have scratch. Of
 * two groups the workers that have nothing to do in the first are the first ones in the second. */
static struct kb_val find_worker(struct recording *r, size_t i)
{
	struct kb *k = r->e.k;
	struct kb_val number = kb_group_id(k), most = kb_index(k, r->kernel->workers);
	struct kb_val slot = kb_mul(k, number, most);
	r->job.n_workers = kb_group_count(k);
	if (workers_of(r, r->e.group) > 1) {
		number = slot = kb_add(k, slot, kb_item_id(k));
		r->job.n_workers = kb_mul(k, r->job.n_workers, most);
	}
	if (r->kernel->reversed >> i & 1) {
		struct kb_val last = kb_add_const(k, r->job.n_workers, -1);
		number = kb_sub(k, last, number);
	}
	r->job.worker = number;
	return slot;
}

/* The rows that group i is recorded for: those of the kernel, where its calls are the kernel's. */
static enum kernel_rows rows_of(const struct recording *r, const struct ir_op *group)
{
	const struct object *o = r->object;
	const struct plan_kernel *k = r->kernel;
	if (!k->rows || kernel_few_rows(o->module, r->e.function->func, group, o->target) != k->rows)
		return KERNEL_ANY_ROWS;
	return k->is_skinny ? KERNEL_FEW_ROWS : KERNEL_MANY_ROWS;
}

static enum tfmc_status record_group(struct recording *r, size_t i)
{
	const struct object *o = r->object;
	struct kb *k = r->e.k;
	int64_t scratch = groups_scratch(r->kernel->groups, r->kernel->n_groups);
	struct kb_val slot = {0};
	r->e.group = r->kernel->groups[i];
	r->job.items = items_of(r, r->e.group);
	r->job.rows = rows_of(r, r->e.group);
	if (i > 0 && o->target->group_size > 1)
		kb_reuse_shared(k);
	if (i > 0)
		emit_group_comment(&r->e);
	if (object_is_device(o))
		slot = find_worker(r, i);
	r->job.scratch = scratch > 0 ? r->e.pointers[r->e.areas.n - 1] : kb_null(k);
	if (scratch > 0 && object_is_device(o)) /* of all workers */
		r->job.scratch = kb_ptr_add(k, r->job.scratch, kb_mul_const(k, slot, scratch), 0);
	return emit_group_kernel(&r->e, r->job);
}

/* ---- what is left ---- */

static bool has_f64(const struct ir_func *f, const struct ir_op *group)
{
	bool any = false;
	for (struct ir_iter it = ir_iter_begin(group->region); it.op != NULL; ir_iter_next(&it)) {
		for (size_t i = 0; i < it.op->n_operands; i++)
			any = any ||
			      (it.op->operands[i].id && ir_type_of(f, it.op->operands[i])->dtype == DT_F64);
		for (size_t i = 0; i < it.op->n_results; i++)
			any = any || ir_type_of(f, it.op->results[i])->dtype == DT_F64;
	}
	return any;
}

/* OpenCL C 1.2 has no f64 without an extension. */
static enum tfmc_status check_types(const struct recording *r, const struct kb_func *f)
{
	for (size_t i = 0; object_is_device(r->object) && i < f->n_insts; i++) {
		if (f->insts[i].type.scalar != KB_F64)
			continue;
		size_t n = 0;
		while (n + 1 < r->kernel->n_groups && !has_f64(r->e.function->func, r->kernel->groups[n]))
			n++;
		struct loc at = r->kernel->groups[n]->loc.at;
		diag_error(r->object->cx, at, DIAG_UNSUPPORTED,
		           "not supported yet: f64 values in OpenCL kernels");
		diag_note(r->object->cx, at, "cast them to f32");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* The parameters that are left, and the areas they name. */
static enum tfmc_status take_args(struct recording *r, const struct kb_func *f)
{
	struct plan_kernel *out = r->kernel;
	struct arena *a = r->object->arena;
	struct plan_arg *args = ARENA_ARRAY(a, struct plan_arg, r->args.n + 1);
	size_t *number = ARENA_ARRAY(a, size_t, r->e.areas.n + 1); /* 0: not used, else 1 + its new number */
	if (!args || !number)
		return TFMC_NO_MEMORY;
	out->areas = (struct area_list){0};
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++) {
		struct plan_arg arg = r->args.items[f->insts[i].result - 1];
		if (arg.kind == PLAN_BUFFER || arg.kind == PLAN_OFFSET) {
			const struct area *area = &r->e.areas.items[arg.number];
			if (!number[arg.number]) {
				ARENA_ADD(a, &out->areas, *area);
				number[arg.number] = out->areas.n;
			}
			arg.number = number[arg.number] - 1;
			if (area->memory == AREA_SCRATCH)
				out->scratch = groups_scratch(out->groups, out->n_groups);
		}
		args[out->n_args++] = arg;
	}
	out->args = args;
	return arena_failed(a) ? TFMC_NO_MEMORY : TFMC_OK;
}

static void count_work(const struct recording *r)
{
	const struct object *o = r->object;
	struct plan_kernel *out = r->kernel;
	struct ir_dims *t = o->module->dims;
	const struct ir_func *f = r->e.function->func;
	out->items = out->workers = 1;
	if (!object_is_device(o))
		return;
	out->items = o->target->group_size > 1 ? o->target->group_size : 1;
	out->tasks = ir_dim_const(t, 0);
	for (size_t i = 0; i < out->n_groups; i++) {
		const struct ir_op *group = out->groups[i];
		int64_t workers = workers_of(r, group);
		const struct ir_dim *tasks =
		        out->is_combine ? kernel_combine_tasks(o->module, f, group)
		                        : kernel_tasks(o->module, f, group, o->target, rows_of(r, group));
		tasks = ir_dim_add(t, tasks, ir_dim_const(t, workers - 1));
		out->tasks = ir_dim_add(t, out->tasks, ir_dim_floordiv(t, tasks, workers));
		out->workers = workers > out->workers ? workers : out->workers;
	}
}

/* ---- the whole ---- */

const char *kernel_symbol(const struct object *o, const struct function *f, const struct plan_kernel *k)
{
	const struct attrs_group *a = k->groups[0]->attrs;
	return arena_printf(o->arena, "%s.%zu.%s%s", f->symbol, k->number,
	                    ir_keyword(KEYWORDS_GROUP, a->kind), k->is_combine ? ".join" : "");
}

/* The ops of the groups, and a number. */
static const char *name_of(const struct object *o, const struct plan_kernel *k)
{
	const char *name = "";
	for (size_t i = 0; i < k->n_groups; i++) {
		const struct ir_op *root = ir_group_root(k->groups[i]);
		name = arena_printf(o->arena, "%s%s_", name, ir_op_desc(root ? root->code : OP_group)->name);
	}
	return arena_printf(o->arena, "%s%s%zu", name, k->is_combine ? "join_" : "", kb_func_count(o->kb));
}

enum tfmc_status emit_plan_kernel(struct object *o, const struct function *f, struct plan_kernel *k)
{
	struct recording r = {.object = o, .kernel = k, .e = emit_for_group(o, f, k->groups[0])};
	r.e.areas = k->areas;
	k->name = object_is_device(o) ? name_of(o, k)
	                              : arena_printf(o->arena, "%s.kernel", kernel_symbol(o, f, k));
	add_areas(&r);
	count_work(&r);
	TFMC_TRY(begin(&r));
	r.job.scratch_stride = o->scratch;
	if (r.sums)
		r.job.sums = r.e.pointers[r.sums - 1];
	r.job.is_combine = k->is_combine;
	for (size_t i = 0; i < k->n_groups; i++)
		TFMC_TRY(record_group(&r, i));
	kb_end(r.e.k);
	if (kb_module_failed(o->kb))
		return kb_verify(o->kb, o->cx);
	kb_dce(r.e.k);
	const struct kb_func *recorded = kb_func_at(o->kb, kb_func_count(o->kb) - 1);
	TFMC_TRY(check_types(&r, recorded));
	TFMC_TRY(take_args(&r, recorded));
	k->name = kb_dedup_last(o->kb)->name;
	return TFMC_OK;
}
