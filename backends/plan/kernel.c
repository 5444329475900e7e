/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group becomes one kernel. Parameters are declared for all that the group may need and dropped again when its
 * template did not use them; the plan lists what is left. A kernel that equals an earlier one, in whatever function,
 * is not kept.
 *
 *   object   addresses of areas, this worker's scratch, dims, indices of repeats, source_step, worker, n_workers
 *   OpenCL   a buffer and an offset in it for each area, the scratch of all workers, dims, indices of repeats,
 *            source_step
 */
#include "backends/plan/emit.h"

#include "backends/kb/record.h"

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

/* ---- scratch ---- */

static int64_t scratch_bytes(const struct ir_op *group)
{
	int64_t bytes = ((const struct attrs_group *)group->attrs)->scratch;
	return (bytes + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

/* What groups leave for the join, then scratch. */
static void add_areas(struct recording *r)
{
	const struct object *o = r->object;
	struct ir_dims *t = o->module->dims;
	int64_t scratch = scratch_bytes(r->e.group);
	const struct ir_dim *sums = kernel_join_bytes(o->module, r->e.function->func, r->e.group, o->target);
	if (sums)
		ARENA_ADD(o->arena, &r->e.areas,
		          (struct area){.name = "sums",
		                        .memory = AREA_ARENA,
		                        .offset = r->e.function->sums_at,
		                        .bytes = sums,
		                        .is_written = !r->kernel->is_join});
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
		if (is_device)
			offsets[i] = declare(r, arena_printf(a, "%s_at", name), PLAN_OFFSET, i);
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
	if (!object_is_device(o)) {
		emit_group_comment(&r->e);
		return TFMC_OK;
	}
	if (o->target->group_size > 1)
		kb_group_size(r->e.k, o->target->group_size);
	emit_group_comment(&r->e);
	for (size_t i = 0; i < r->e.areas.n; i++)
		r->e.pointers[i] = kb_ptr_add(r->e.k, r->e.pointers[i], offsets[i], 0);
	struct kb *k = r->e.k;
	r->job.worker = kb_group_id(k);
	r->job.n_workers = kb_group_count(k);
	if (r->job.items > 1 || o->target->group_size <= 1)
		return TFMC_OK;
	/* Each item is a worker of its own; else all of them are one together. */
	struct kb_val item = kb_item_id(k), size = kb_index(k, o->target->group_size);
	r->job.worker = kb_add(k, kb_mul(k, r->job.worker, size), item);
	r->job.n_workers = kb_mul(k, r->job.n_workers, size);
	return TFMC_OK;
}

/* ---- what is left ---- */

/* OpenCL C 1.2 has no f64 without an extension. */
static enum tfmc_status check_types(const struct recording *r, const struct kb_func *f)
{
	for (size_t i = 0; object_is_device(r->object) && i < f->n_insts; i++) {
		if (f->insts[i].type.scalar != KB_F64)
			continue;
		diag_error(r->object->cx, r->e.group->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: f64 values in OpenCL kernels");
		diag_note(r->object->cx, r->e.group->loc.at, "cast them to f32");
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
			out->scratch =
			        area->memory == AREA_SCRATCH ? scratch_bytes(out->group) : out->scratch;
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
	out->items = out->workers = 1;
	if (!object_is_device(o))
		return;
	out->items = o->target->group_size > 1 ? o->target->group_size : 1;
	out->workers = r->job.items > 1 ? 1 : out->items;
	const struct ir_func *f = r->e.function->func;
	const struct ir_dim *tasks = out->is_join ? kernel_join_tasks(o->module, f, out->group)
	                                          : kernel_tasks(o->module, f, out->group, o->target);
	tasks = ir_dim_add(t, tasks, ir_dim_const(t, out->workers - 1));
	out->tasks = ir_dim_floordiv(t, tasks, out->workers);
}

/* ---- the whole ---- */

const char *kernel_symbol(const struct object *o, const struct function *f, const struct plan_kernel *k)
{
	const struct attrs_group *a = k->group->attrs;
	return arena_printf(o->arena, "%s.%zu.%s%s", f->symbol, k->number, ir_word(WORDS_GROUP, a->kind),
	                    k->is_join ? ".join" : "");
}

enum tfmc_status kernel_record(struct object *o, const struct function *f, int64_t parts,
                               struct plan_kernel *k)
{
	struct recording r = {.object = o, .kernel = k, .e = emit_of_group(o, f, k->group)};
	const struct ir_op *root = ir_group_root(k->group);
	const char *op = ir_op_desc(root ? root->code : OP_group)->name;
	r.e.areas = k->areas;
	k->name = object_is_device(o) ? arena_printf(o->arena, "%s%s_%zu", op, k->is_join ? "_join" : "",
	                                             kb_func_count(o->kb))
	                              : arena_printf(o->arena, "%s.kernel", kernel_symbol(o, f, k));
	add_areas(&r);
	r.job.items = object_is_device(o) ? kernel_items(o->module, f->func, k->group, o->target) : 0;
	TFMC_TRY(begin(&r));
	int64_t scratch = scratch_bytes(k->group);
	r.job.scratch = scratch > 0 ? r.e.pointers[r.e.areas.n - 1] : kb_null(r.e.k);
	if (scratch > 0 && object_is_device(o)) /* of all workers */
		r.job.scratch = kb_ptr_add(r.e.k, r.job.scratch,
		                           kb_mul(r.e.k, r.job.worker, kb_index(r.e.k, scratch)), 0);
	r.job.scratch_step = o->scratch;
	if (r.sums)
		r.job.sums = r.e.pointers[r.sums - 1];
	r.job.parts = parts;
	r.job.is_join = k->is_join;
	r.job.is_divided = &k->is_divided;
	TFMC_TRY(emit_template(&r.e, r.job));
	kb_end(r.e.k);
	if (kb_module_failed(o->kb))
		return kb_verify(o->kb, o->cx);
	kb_prune(r.e.k);
	const struct kb_func *recorded = kb_func_at(o->kb, kb_func_count(o->kb) - 1);
	TFMC_TRY(check_types(&r, recorded));
	TFMC_TRY(take_args(&r, recorded));
	count_work(&r);
	k->name = kb_share_last(o->kb)->name;
	return TFMC_OK;
}
