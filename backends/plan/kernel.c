/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel of a group, or of the groups of a fused launch. All parameters that the groups may need are
 * declared first; those that the generators did not use are pruned, and the plan lists the remaining ones. A
 * kernel that equals an earlier one of the module is shared.
 *
 *   object   area addresses, this worker's scratch, dims, repeat indices, source_step, worker, n_workers
 *   OpenCL   a buffer and a byte offset for each area, scratch of all workers, dims, repeat indices, source_step
 *
 * A kernel generator gets tensors by a binding: address, sizes and strides, with views resolved. Scratch is private
 * memory of a worker, `job` what a generator gets. Rows: how many of M a kernel is for (few: skinny). On devices a
 * launch has work-groups of target->group_size work-items, which share the tasks of one worker or are workers
 * themselves.
 */
#include "backends/kb/kernel_ir.h"
#include "backends/plan/emit.h"
#include "ir/target/tile.h"

/* ---- the binding ---- */

/*
 * kernel_binding: gives kernel generators the address, shape and strides of the tensors and state slices of a
 * group while its kernel is emitted. Views are resolved to offsets and strides on the memory they show.
 */

/* ---- state ---- */

static int64_t sequence_elements(const struct emit *e, enum ir_dtype t)
{
	return e->object->states.batch_bytes / ir_dtype_bytes(t);
}

/* The state that a state op accesses and its indices (the operands after state, value and length); false: another
 * op. */
bool find_state_slice(const struct object *o, const struct ir_func *f, const struct ir_op *op,
                      struct state_slice_ref *out)
{
	if (!op || (op->code != OP_state_append && op->code != OP_state_read && op->code != OP_state_write))
		return false;
	size_t first = op->code == OP_state_append ? 3 : op->code == OP_state_write ? 2 : 1;
	out->state = object_state(o, ir_type_of(f, op->operands[0])->state);
	out->at = op->operands + first;
	out->n_at = op->n_operands - first;
	return out->state != NULL;
}

/* The stride from one row of a call to the next. Encoder output is read through source_step, since rows may
 * share one source. */
static struct kb_size row_stride(struct emit *e, const struct state_layout *p, struct kb_size stride)
{
	if (p->grows || !e->source_step.id)
		return stride;
	return (struct kb_size){.v = kb_mul(e->k, stride.v, e->source_step)};
}

/* Shape and strides of a state slice after n indices, which select from axes 1 to n: axis 0 is the batch, whose step
 * is the block of a sequence with all its states. In panels a K element is PANEL_COLUMNS from the next, and a row has
 * no single stride (0 stands for it). */
static void slice_strides(struct emit *e, const struct state_layout *p, size_t n, struct kb_tensor *out)
{
	const struct ir_state_decl *d = p->decl;
	const struct ir_type *t = d->type;
	out->dtype = t->dtype;
	out->encoding = d->encoding;
	out->rank = t->rank - (int)n;
	for (int i = 0; i < out->rank; i++) {
		int axis = i == 0 ? 0 : i + (int)n;
		int64_t stride = i == 0 ? sequence_elements(e, t->dtype) : layout_state_count(d, axis + 1);
		if (d->encoding == ENC_PANEL16 && axis >= t->rank - 2)
			stride = axis == t->rank - 1 ? PANEL_COLUMNS : 0;
		out->size[i] = emit_size(e, t->dims[axis]);
		out->stride[i] = (struct kb_size){true, stride, kb_index(e->k, stride)};
	}
	if (out->rank > 0)
		out->stride[0] = row_stride(e, p, out->stride[0]);
}

/* kernel_binding.state: the slice that a state op accesses. False: op has none, or the kernel cannot address it. */
static bool bind_state(void *user, struct kb *k, const struct ir_op *op, struct kb_tensor *out)
{
	struct emit *e = user;
	struct state_slice_ref slice;
	struct area a;
	(void)k;
	*out = (struct kb_tensor){0};
	if (!find_state_slice(e->object, e->function->func, op, &slice) || !area_of_slice(e, &slice, &a) ||
	    !area_pointer(e, &a, &out->ptr))
		return false;
	slice_strides(e, slice.state, slice.n_at, out);
	return true;
}

/* ---- tensors ---- */

/* Type, format and pointer of the memory that a view shows. False: the kernel has no pointer to it. Weights have the
 * stored type, which may differ from the value's. */
static bool bind_base(struct emit *e, struct ir_value base, struct kb_val *ptr, struct kb_tensor *out)
{
	const struct ir_func *f = e->function->func;
	struct area a;
	out->dtype = ir_type_of(f, base)->dtype;
	const struct ir_weight *w = ir_weight_of(f, base);
	const struct weight_layout *layout = w ? object_weight(e->object, w) : NULL;
	if (layout)
		out->bytes_after = e->object->weights.bytes - layout->offset - layout->bytes;
	if (w) { /* the packed format decides, not the type */
		out->encoding = w->encoding;
		out->format = ir_weight_stored_format(w);
		out->dtype = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT ? ir_format(out->format)->dtype
		                                                             : DT_I32;
	}
	return area_of_value(e, base, &a) && area_pointer(e, &a, ptr);
}

/* Whether the group's kernel generator computes position % capacity; only these do. */
static bool supports_rings(const struct emit *e)
{
	const struct attrs_group *a = e->group ? e->group->attrs : NULL;
	return !a || a->kind == GROUP_attention || a->kind == GROUP_loops;
}

static struct kb_size scaled_size(struct emit *e, const struct ir_dim *d, int64_t by)
{
	struct ir_dims *t = e->object->module->dims;
	return emit_size(e, ir_dim_mul(t, d, ir_dim_const(t, by)));
}

/* Strides between the matrices of a packed weight (experts, layers): whole panels, which the view's strides do not
 * know. */
static void matrix_strides(struct emit *e, struct ir_value base, struct kb_tensor *out)
{
	const struct storage *p = e->function->storage[base.id];
	if (p->kind != STORAGE_WEIGHT || out->encoding != ENC_PANEL16 || out->rank < 3)
		return;
	const struct weight_layout *w = object_weight(e->object, ir_weight_of(e->function->func, base));
	int64_t stride = w != NULL ? w->matrix_bytes / ir_dtype_bytes(out->dtype) : 0;
	for (int i = out->rank - 3; i >= 0; i--) {
		int64_t size = out->size[i].is_const ? out->size[i].c : 0;
		out->stride[i] = (struct kb_size){true, stride, kb_index(e->k, stride)};
		stride *= size;
	}
}

/* kernel_binding.tensor: resolves the value's view to address, sizes and strides. False: the value is not in memory,
 * or its kernel cannot address it (a part of panels, a ring). Along the batch axis of a state one step is a sequence's
 * block. */
static bool bind_tensor(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out)
{
	struct emit *e = user;
	struct ir_dims *t = e->object->module->dims;
	struct ir_view view;
	struct kb_val ptr;
	(void)k;
	*out = (struct kb_tensor){0};
	if (!ir_view_resolve(e->object->module, e->function->func, v, &view) ||
	    !bind_base(e, view.base, &ptr, out))
		return false;
	out->ptr = ptr;
	struct state_slice_ref slice = {0}; /* the slice that v is a view of, if any */
	(void)find_state_slice(e->object, e->function->func, ir_state_slice_op(e->function->func, view.base),
	                       &slice);
	if (ir_is_ring_slice(e->function->func, view.base, &out->ring) && !supports_rings(e))
		return false;
	if (slice.state && slice.state->decl->encoding == ENC_PANEL16) {
		/* panels are bound without views: only a full slice has a layout */
		slice_strides(e, slice.state, slice.n_at, out);
		for (int i = 0; i < out->rank && i < view.rank; i++)
			out->size[i] = emit_size(e, view.size[i]);
		return view.rank == out->rank && ir_same_value(view.base, v);
	}
	const struct state_layout *state = slice.state;
	const struct ir_dim *bytes = ir_dim_mul(t, view.offset, ir_dim_const(t, ir_dtype_bytes(out->dtype)));
	out->ptr = kb_ptr_add(e->k, ptr, emit_dim(e, bytes), 0);
	if (state) {
		struct kb_size far = scaled_size(e, view.state_offset, e->object->states.batch_bytes);
		out->ptr = kb_ptr_add(e->k, out->ptr, row_stride(e, state, far).v, 0);
	}
	out->rank = view.rank;
	for (int i = 0; i < view.rank; i++) {
		int64_t far = view.state_axis[i] ? sequence_elements(e, out->dtype) : 1;
		out->size[i] = emit_size(e, view.size[i]);
		out->stride[i] = scaled_size(e, view.stride[i], far);
		if (view.state_axis[i] && state)
			out->stride[i] = row_stride(e, state, out->stride[i]);
	}
	matrix_strides(e, view.base, out);
	return true;
}

static struct kb_size bind_dim(void *user, struct kb *k, const struct ir_dim *d)
{
	(void)k;
	return emit_size(user, d);
}

/* kernel_binding.index: the index of an enclosing repeat; id 0: v is none. */
static struct kb_val bind_index(void *user, struct kb *k, struct ir_value v)
{
	struct emit *e = user;
	(void)k;
	for (size_t i = 0; i < e->n_repeats; i++)
		if (ir_same_value(e->repeat_index[i], v))
			return e->index[i];
	return (struct kb_val){0};
}

/* ---- kernels ---- */

/* Bytes: alignment of device buffers (backends/plan/README.md, "The launch contract"). */
#define DEVICE_ALIGN 64

struct kernel_emission {
	struct object *object;
	struct plan_kernel *kernel;
	struct emit e;
	struct kernel_job job;
	size_t partials; /* 1 + the area of the partial results; 0: none */
	/* In order of declaration: parameter i has value id i + 1. */
	struct {
		struct plan_arg *items;
		size_t n, cap;
	} args;
};

/* Adds the areas that no operand shows: partial results of split attention, and scratch, which is last. */
static void add_areas(struct kernel_emission *r)
{
	const struct object *o = r->object;
	struct ir_dims *t = o->module->dims;
	int64_t scratch = groups_scratch(r->kernel->groups, r->kernel->n_groups);
	const struct ir_dim *partials =
	        kernel_combine_bytes(o->module, r->e.function->func, r->e.group, o->target);
	if (partials)
		ARENA_ADD(o->arena, &r->e.areas,
		          (struct area){.name = "partials",
		                        .memory = AREA_ARENA,
		                        .offset = r->e.function->partials_at,
		                        .bytes = partials,
		                        .is_written = !r->kernel->is_combine});
	r->partials = partials ? r->e.areas.n : 0;
	if (scratch > 0)
		ARENA_ADD(o->arena, &r->e.areas,
		          (struct area){.name = "scratch",
		                        .memory = AREA_SCRATCH,
		                        .offset = ir_dim_const(t, 0),
		                        .bytes = ir_dim_const(t, scratch),
		                        .is_written = true});
}

/* ---- parameters ---- */

/* Alignment in bytes of an area's offset in every launch: the largest power of two that divides DEVICE_ALIGN and all
 * terms (the lowest bit that is set in any), for vector loads. */
static int offset_align(const struct area *area)
{
	uint64_t all = DEVICE_ALIGN;
	for (size_t i = 0; i < area->offset->n_terms; i++)
		all |= (uint64_t)area->offset->terms[i].coeff;
	for (int i = 0; i < OBJECT_REPEAT_MAX; i++)
		all |= (uint64_t)area->stride[i];
	return (int)(all & -all);
}

static struct kb_val declare_param(struct kernel_emission *r, const char *name, enum plan_arg_kind kind,
                                   size_t number)
{
	ARENA_ADD(r->object->arena, &r->args, (struct plan_arg){kind, number});
	bool is_constant =
	        object_is_device(r->object) && kind == PLAN_BUFFER && !r->e.areas.items[number].is_written;
	return kb_param(r->e.k, name, kind == PLAN_BUFFER || kind == PLAN_RANKS ? KB_PTR_T : KB_INDEX_T,
	                is_constant ? KB_READONLY : 0);
}

/* Declares all that the groups may need, in the order of the plan; keep_used_args drops the rest. Fills offsets
 * [areas] (devices only) and dims [dims of the module], and sets all other parameters of r->e and r->job. */
static void declare_params(struct kernel_emission *r, struct kb_val *offsets, struct kb_val *dims)
{
	struct arena *a = r->object->arena;
	const struct ir_dims *t = r->object->module->dims;
	bool is_device = object_is_device(r->object), has_source = false;
	for (size_t i = 0; i < r->e.areas.n; i++) {
		const char *name = r->e.areas.items[i].name;
		has_source |= r->e.areas.items[i].is_source;
		r->e.pointers[i] = declare_param(r, name, PLAN_BUFFER, i);
		if (!is_device)
			continue;
		kb_assume_multiple(r->e.k, r->e.pointers[i], DEVICE_ALIGN);
		offsets[i] = declare_param(r, arena_printf(a, "%s_at", name), PLAN_OFFSET, i);
		kb_assume_multiple(r->e.k, offsets[i], offset_align(&r->e.areas.items[i]));
	}
	for (size_t i = 0; i < ir_dims_count(t); i++)
		if (r->e.function->has_dim[i])
			dims[i] = declare_param(r, emit_short_name(a, ir_dims_sym(t, i)->name), PLAN_DIM, i);
	r->e.dims = dims;
	for (size_t i = 0; i < r->e.n_repeats; i++)
		r->e.index[i] =
		        declare_param(r, arena_printf(a, is_device ? "index%zu" : "l%zu", i), PLAN_INDEX, i);
	if (has_source)
		r->e.source_step = declare_param(r, "source_step", PLAN_SOURCE_STEP, 0);
	if (is_device)
		return;
	r->job.worker = declare_param(r, "worker", PLAN_WORKER, 0);
	r->job.n_workers = declare_param(r, "n_workers", PLAN_WORKERS, 0);
	if (((const struct attrs_group *)r->e.group->attrs)->kind == GROUP_exchange)
		r->job.ranks = declare_param(r, "ranks", PLAN_RANKS, 0);
}

/* Begins the kernel's function and declares its parameters. A device gets the start of a buffer and a byte
 * offset for each area: their sum is the pointer that generators use. */
static enum tfmc_status begin_kernel(struct kernel_emission *r)
{
	struct object *o = r->object;
	size_t n_dims = ir_dims_count(o->module->dims);
	struct kb_val *offsets = ARENA_ARRAY(o->arena, struct kb_val, r->e.areas.n + 1);
	struct kb_val *dims = ARENA_ARRAY(o->arena, struct kb_val, n_dims + 1);
	r->e.pointers = ARENA_ARRAY(o->arena, struct kb_val, r->e.areas.n + 1);
	r->e.k = r->job.k =
	        kb_begin(o->kb, r->kernel->name, object_is_device(o) ? KB_KERNEL : KB_INTERNAL, KB_VOID);
	if (arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	declare_params(r, offsets, dims);
	if (object_is_device(o))
		kb_group_size(r->e.k, o->target->group_size);
	emit_group_comment(&r->e);
	for (size_t i = 0; object_is_device(o) && i < r->e.areas.n; i++)
		r->e.pointers[i] = kb_ptr_add(r->e.k, r->e.pointers[i], offsets[i], 0);
	return TFMC_OK;
}

/* ---- groups ---- */

/* Work-items that the group's kernel generator uses as one worker; 0: an object, which has none. */
static int64_t group_items(const struct kernel_emission *r, const struct ir_op *group)
{
	const struct object *o = r->object;
	return object_is_device(o) ? kernel_items(o->module, r->e.function->func, group, o->target) : 0;
}

/* Workers of a work-group while it computes the group: 1 if its work-items share tasks, else one per
 * work-item. */
static int64_t workers_per_work_group(const struct kernel_emission *r, const struct ir_op *group)
{
	return group_items(r, group) > 1 ? 1 : r->object->target->group_size;
}

/* Sets the worker number and count of group i from the launch; returns the worker's scratch slot. Reversed
 * groups number the workers from the last one down, which balances two groups that do not fill the launch. */
static struct kb_val set_worker(struct kernel_emission *r, size_t i)
{
	struct kb *k = r->e.k;
	struct kb_val number = kb_group_id(k), most = kb_index(k, r->kernel->workers);
	struct kb_val slot = kb_mul(k, number, most);
	r->job.n_workers = kb_group_count(k);
	if (workers_per_work_group(r, r->e.group) > 1) {
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

/* The row counts that the code of a group serves: restricted to few or many if the launch condition of the
 * kernel is this group's. */
static enum kernel_rows group_rows(const struct kernel_emission *r, const struct ir_op *group)
{
	const struct object *o = r->object;
	const struct plan_kernel *k = r->kernel;
	if (!k->rows || kernel_few_rows(o->module, r->e.function->func, group, o->target) != k->rows)
		return KERNEL_ANY_ROWS;
	return k->is_skinny ? KERNEL_FEW_ROWS : KERNEL_MANY_ROWS;
}

/* Emits group i of the launch into the kernel, with the worker numbers and the scratch that it uses. Groups of a
 * launch run one after the other, so they share scratch and local memory. The kernel generator's temporary memory is
 * freed afterwards. */
static enum tfmc_status emit_group(struct kernel_emission *r, size_t i)
{
	const struct object *o = r->object;
	struct kb *k = r->e.k;
	int64_t scratch = groups_scratch(r->kernel->groups, r->kernel->n_groups);
	struct kb_val slot = {0};
	struct arena temporary;
	r->e.group = r->job.group = r->kernel->groups[i];
	r->job.items = group_items(r, r->e.group);
	r->job.rows = group_rows(r, r->e.group);
	if (i > 0 && object_is_device(o))
		kb_reuse_shared(k); /* groups run one after the other */
	if (i > 0)
		emit_group_comment(&r->e);
	(void)kernel_set_loc(k, o->cx, r->e.group->loc);
	if (object_is_device(o))
		slot = set_worker(r, i);
	r->job.scratch = scratch > 0 ? r->e.pointers[r->e.areas.n - 1] : kb_null(k);
	if (scratch > 0 && object_is_device(o)) /* the area has a slot for each worker */
		r->job.scratch = kb_ptr_add(k, r->job.scratch, kb_mul_const(k, slot, scratch), 0);
	r->job.lengths = emit_group_lengths(&r->e);
	arena_init(&temporary);
	r->job.arena = &temporary;
	enum tfmc_status status = kernel_emit_group(&r->job);
	if (status == TFMC_OK && arena_failed(&temporary))
		status = TFMC_NO_MEMORY;
	arena_destroy(&temporary);
	return status;
}

/* ---- arguments and launch size ---- */

/* Whether an op of the group reads or computes f64. */
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

/* OpenCL C 1.2 has f64 only as an extension; reported at the first group that has such a value. */
static enum tfmc_status reject_f64(const struct kernel_emission *r, const struct kb_func *f)
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

/* Lists the parameters that survived pruning and the areas they use, renumbered: the launch's arguments. Parameter i
 * has value id i + 1. */
static enum tfmc_status keep_used_args(struct kernel_emission *r, const struct kb_func *f)
{
	struct plan_kernel *out = r->kernel;
	struct arena *a = r->object->arena;
	struct plan_arg *args = ARENA_ARRAY(a, struct plan_arg, r->args.n + 1);
	size_t *number = ARENA_ARRAY(a, size_t, r->e.areas.n + 1); /* 0: unused, else 1 + the new number */
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

/* Work-group size and the number of work-groups that get tasks, the sum over all groups, as each begins where the last
 * one's workers end. */
static void set_launch_size(const struct kernel_emission *r)
{
	const struct object *o = r->object;
	struct plan_kernel *out = r->kernel;
	struct ir_dims *t = o->module->dims;
	const struct ir_func *f = r->e.function->func;
	out->items = out->workers = 1;
	if (!object_is_device(o))
		return;
	out->items = o->target->group_size;
	out->tasks = ir_dim_const(t, 0);
	for (size_t i = 0; i < out->n_groups; i++) {
		const struct ir_op *group = out->groups[i];
		int64_t workers = workers_per_work_group(r, group);
		const struct ir_dim *tasks =
		        out->is_combine ? kernel_combine_tasks(o->module, f, group)
		                        : kernel_tasks(o->module, f, group, o->target, group_rows(r, group));
		tasks = ir_dim_add(t, tasks, ir_dim_const(t, workers - 1));
		out->tasks = ir_dim_add(t, out->tasks, ir_dim_floordiv(t, tasks, workers));
		out->workers = workers > out->workers ? workers : out->workers;
	}
}

/* ---- kernels ---- */

/* Name of a kernel's caller: function, number, with -g the step's path, kind. */
const char *kernel_symbol(const struct object *o, const struct function *f, const struct plan_kernel *k)
{
	const struct attrs_group *a = k->groups[0]->attrs;
	const char *path = k->groups[0]->loc.path;
	const char *step = object_has_locs(o) && path && *path ? arena_printf(o->arena, ".%s", path) : "";
	return arena_printf(o->arena, "%s.%zu%s.%s%s", f->symbol, k->number, step,
	                    ir_keyword(KEYWORDS_GROUP, a->kind), k->is_combine ? ".join" : "");
}

/* Root ops of the groups and a number, such as linear_3. The number is that of functions so far, so that names are
 * unique. */
static const char *device_kernel_name(const struct object *o, const struct plan_kernel *k)
{
	const char *name = "";
	for (size_t i = 0; i < k->n_groups; i++) {
		const struct ir_op *root = ir_group_root(k->groups[i]);
		name = arena_printf(o->arena, "%s%s_", name, ir_op_desc(root ? root->code : OP_group)->name);
	}
	return arena_printf(o->arena, "%s%s%zu", name, k->is_combine ? "join_" : "", kb_func_count(o->kb));
}

/* Emits the kernel of k: areas, parameters, the code of each group, without what is unused, and shares an equal
 * earlier one. */
enum tfmc_status emit_plan_kernel(struct object *o, const struct function *f, struct plan_kernel *k)
{
	struct kernel_emission r = {.object = o, .kernel = k, .e = emit_for_group(o, f, k->groups[0])};
	const struct kernel_binding bind = {.tensor = bind_tensor,
	                                    .state = bind_state,
	                                    .dim = bind_dim,
	                                    .index = bind_index,
	                                    .user = &r.e};
	r.job = (struct kernel_job){.module = o->module,
	                            .func = f->func,
	                            .target = o->target,
	                            .bind = &bind,
	                            .cx = o->cx,
	                            .remarks = o->options->remarks,
	                            .weight_bytes = o->weight_bytes,
	                            .scratch_stride = o->scratch,
	                            .is_combine = k->is_combine};
	r.e.areas = k->areas;
	k->name = object_is_device(o) ? device_kernel_name(o, k)
	                              : arena_printf(o->arena, "%s.kernel", kernel_symbol(o, f, k));
	add_areas(&r);
	set_launch_size(&r);
	TFMC_TRY(begin_kernel(&r));
	if (r.partials)
		r.job.partials = r.e.pointers[r.partials - 1];
	for (size_t i = 0; i < k->n_groups; i++)
		TFMC_TRY(emit_group(&r, i));
	kb_end(r.e.k);
	if (kb_module_failed(o->kb))
		return kb_verify(o->kb, o->cx);
	kb_dce(r.e.k);
	const struct kb_func *recorded = kb_func_at(o->kb, kb_func_count(o->kb) - 1);
	TFMC_TRY(reject_f64(&r, recorded));
	TFMC_TRY(keep_used_args(&r, recorded));
	k->name = kb_dedup_last(o->kb)->name;
	return TFMC_OK;
}
