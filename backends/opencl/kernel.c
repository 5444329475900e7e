/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group becomes one kernel and one launch. Parameters are declared for all
 * the group may need and dropped again when its template did not use them; the
 * launch lists what is left. A kernel that equals an earlier one is not kept.
 */
#include "backends/opencl/internal.h"

#include <string.h>

/* Parameters while they are recorded: value ids count from 1 in their order. */
struct params {
	struct opencl_arg *args;
	size_t n, cap;
	struct arena *arena;
	bool failed;
};

/* ---- parameters ---- */

static struct kb_val add_param(struct group *g, struct params *p, const char *name, struct kb_type type,
                               struct opencl_arg arg)
{
	bool is_read_only = arg.kind == OPENCL_ARG_BUFFER && !g->e.areas.items[arg.number].is_written;
	struct opencl_arg *slot = arena_list_push(p->arena, (void **)&p->args, &p->n, &p->cap, sizeof(*slot));
	if (!slot) {
		p->failed = true;
		return (struct kb_val){0};
	}
	*slot = arg;
	return kb_param(g->e.k, name, type, is_read_only ? KB_READONLY : 0);
}

/* Buffers with their offsets, dims, repeats; gives the pointers' parts until addresses can be made. */
static bool add_params(struct group *g, struct params *p, struct kb_val *buffers, struct kb_val *offsets,
                       struct kb_val *dims)
{
	const struct object *o = &g->b->object;
	for (size_t i = 0; i < g->e.areas.n; i++) {
		const char *name = g->e.areas.items[i].name, *at = arena_printf(o->arena, "%s_at", name);
		buffers[i] = add_param(g, p, name, KB_PTR_T, (struct opencl_arg){OPENCL_ARG_BUFFER, i});
		offsets[i] = add_param(g, p, at, KB_INDEX_T, (struct opencl_arg){OPENCL_ARG_OFFSET, i});
	}
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		if (g->function->has_dim[i])
			dims[i] = add_param(g, p,
			                    emit_short_name(o->arena, ir_dims_sym(o->module->dims, i)->name),
			                    KB_INDEX_T, (struct opencl_arg){OPENCL_ARG_DIM, i});
	for (size_t i = 0; i < g->e.n_repeats; i++)
		g->e.index[i] = add_param(g, p, arena_printf(o->arena, "index%zu", i), KB_INDEX_T,
		                          (struct opencl_arg){OPENCL_ARG_REPEAT, i});
	return !p->failed;
}

static enum tfmc_status make_params(struct group *g, struct params *p)
{
	struct arena *a = g->b->object.arena;
	struct kb_val *buffers = ARENA_ARRAY(a, struct kb_val, g->e.areas.n + 1);
	struct kb_val *offsets = ARENA_ARRAY(a, struct kb_val, g->e.areas.n + 1);
	struct kb_val *dims = ARENA_ARRAY(a, struct kb_val, ir_dims_count(g->b->object.module->dims) + 1);
	g->e.pointers = ARENA_ARRAY(a, struct kb_val, g->e.areas.n + 1);
	if (!buffers || !offsets || !dims || !g->e.pointers || !add_params(g, p, buffers, offsets, dims))
		return TFMC_NO_MEMORY;
	g->e.dims = dims;
	const struct target *t = g->b->object.target;
	if (t->group_size > 1)
		kb_group_size(g->e.k, t->group_size);
	emit_group_comment(&g->e);
	for (size_t i = 0; i < g->e.areas.n; i++)
		g->e.pointers[i] = kb_ptr_add(g->e.k, buffers[i], offsets[i], 0);
	return TFMC_OK;
}

/* ---- recording ---- */

static int64_t scratch_bytes(const struct ir_op *group)
{
	int64_t bytes = ((const struct attrs_group *)group->attrs)->scratch;
	return (bytes + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

/* The scratch of all workers is the last place. */
static enum tfmc_status add_scratch(struct group *g)
{
	struct ir_dims *t = g->b->object.module->dims;
	int64_t bytes = scratch_bytes(g->e.group);
	if (bytes <= 0)
		return TFMC_OK;
	struct area *p = ARENA_PUSH(g->b->object.arena, &g->e.areas);
	if (!p)
		return TFMC_NO_MEMORY;
	*p = (struct area){.name = "scratch",
	                   .memory = AREA_SCRATCH,
	                   .offset = ir_dim_const(t, 0),
	                   .bytes = ir_dim_const(t, bytes),
	                   .is_written = true,
	                   .is_read = true};
	return TFMC_OK;
}

static struct kb_val scratch_of(const struct group *g, struct kb_val worker)
{
	struct kb *k = g->e.k;
	int64_t bytes = scratch_bytes(g->e.group);
	if (bytes <= 0)
		return kb_null(k);
	return kb_ptr_add(k, g->e.pointers[g->e.areas.n - 1], kb_mul(k, worker, kb_index(k, bytes)), 0);
}

/* items > 1: they are one worker together; else each is one of its own. */
static enum tfmc_status record_template(struct group *g, int64_t items)
{
	struct kb *k = g->e.k;
	const struct target *t = g->b->object.target;
	struct kernel_job job = {.items = items};
	job.worker = kb_group_id(k);
	job.n_workers = kb_group_count(k);
	if (items <= 1 && t->group_size > 1) {
		struct kb_val size = kb_index(k, t->group_size);
		struct kb_val item = kb_item_id(k);
		job.worker = kb_add(k, kb_mul(k, job.worker, size), item);
		job.n_workers = kb_mul(k, job.n_workers, size);
	}
	job.scratch = scratch_of(g, job.worker);
	return emit_template(&g->e, job);
}

/* OpenCL C 1.2 has no f64 without an extension. */
static enum tfmc_status check_types(const struct group *g, const struct kb_func *f)
{
	for (size_t i = 0; i < f->n_insts; i++) {
		if (f->insts[i].type.scalar != KB_F64)
			continue;
		diag_error(g->b->object.cx, g->e.group->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: f64 values in OpenCL kernels");
		diag_note(g->b->object.cx, g->e.group->loc.at, "cast them to f32");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* ---- the launch ---- */

/* The parameters that are left, and the places they name. */
static enum tfmc_status take_args(struct group *g, const struct params *p, const struct kb_func *f,
                                  struct opencl_launch *out)
{
	struct arena *a = g->b->object.arena;
	struct opencl_arg *args = ARENA_ARRAY(a, struct opencl_arg, p->n + 1);
	struct area *places = ARENA_ARRAY(a, struct area, g->e.areas.n + 1);
	size_t *number = ARENA_ARRAY(a, size_t, g->e.areas.n + 1); /* 0: not used, else 1 + its new number */
	if (!args || !places || !number)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++) {
		struct opencl_arg arg = p->args[f->insts[i].result - 1];
		if (arg.kind == OPENCL_ARG_BUFFER || arg.kind == OPENCL_ARG_OFFSET) {
			if (!number[arg.number]) {
				places[out->n_places++] = g->e.areas.items[arg.number];
				number[arg.number] = out->n_places;
			}
			arg.number = number[arg.number] - 1;
		}
		args[out->n_args++] = arg;
	}
	out->args = args;
	out->places = places;
	return TFMC_OK;
}

static void count_work(const struct group *g, int64_t items, struct opencl_launch *out)
{
	const struct object *o = &g->b->object;
	struct ir_dims *t = o->module->dims;
	int64_t size = o->target->group_size > 1 ? o->target->group_size : 1;
	out->items = size;
	out->workers = items > 1 ? 1 : size;
	out->tasks = kernel_tasks(o->module, g->function->func, g->e.group, o->target);
	const struct ir_dim *up = ir_dim_add(t, out->tasks, ir_dim_const(t, out->workers - 1));
	out->tasks = ir_dim_floordiv(t, up, out->workers);
	for (size_t i = 0; i < out->n_places; i++)
		if (out->places[i].memory == AREA_SCRATCH)
			out->scratch = scratch_bytes(g->e.group);
}

static enum tfmc_status record(struct group *g, struct opencl_launch *out)
{
	const struct object *o = &g->b->object;
	struct params p = {.arena = o->arena};
	int64_t items = kernel_items(o->module, g->function->func, g->e.group, o->target);
	TFMC_TRY(make_params(g, &p));
	TFMC_TRY(record_template(g, items));
	kb_end(g->e.k);
	kb_prune(g->e.k);
	if (kb_module_failed(g->b->kb))
		return kb_verify(g->b->kb, o->cx);
	const struct kb_func *f = kb_func_at(g->b->kb, kb_func_count(g->b->kb) - 1);
	TFMC_TRY(check_types(g, f));
	TFMC_TRY(take_args(g, &p, f, out));
	count_work(g, items, out);
	out->group = g->e.group;
	out->kernel = kb_share_last(g->b->kb)->name;
	return TFMC_OK;
}

/* The root op and the number of kernels before. */
static const char *kernel_name(const struct builder *b, const struct ir_op *group)
{
	const struct attrs_group *a = group->attrs;
	const struct ir_region *r = group->region;
	bool has_root = a->root >= 0 && (size_t)a->root < r->n_ops;
	const char *op = ir_op_desc(has_root ? r->ops[a->root]->code : OP_group)->name;
	return arena_printf(b->object.arena, "%s_%zu", op, kb_func_count(b->kb));
}

enum tfmc_status kernel_record(struct builder *b, const struct function *f, const struct ir_op *op,
                               struct opencl_launch *out)
{
	struct group g = {.b = b, .function = f};
	*out = (struct opencl_launch){0};
	g.e = (struct emit){.object = &b->object, .function = f, .group = op};
	TFMC_TRY(emit_find_repeats(&g.e, g.repeats));
	TFMC_TRY(areas_collect(&g.e));
	TFMC_TRY(add_scratch(&g));
	g.e.k = kb_begin(b->kb, kernel_name(b, op), KB_KERNEL, KB_VOID);
	if (!g.e.k)
		return TFMC_NO_MEMORY;
	return record(&g, out);
}
