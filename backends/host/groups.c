/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two internal functions for each group: the kernel, whose body comes from the
 * templates and which gets addresses, dims and its worker as parameters; and
 * the group itself, (context, args, l0, l1, ..., worker, n_workers), which looks
 * all of that up and calls it (l0, l1, ...: indices of the repeats around it, in
 * all groups as many as the deepest has). Groups with equal kernels, in whatever
 * function, share one.
 */
#include "backends/kb/record.h"
#include "backends/host/host.h"
#include "backends/plan/touch.h"

#include <string.h>

const char *group_symbol(const struct object *o, const struct function *f, size_t group)
{
	const struct attrs_group *a = f->groups[group]->attrs;
	return arena_printf(o->arena, "%s.%zu.%s", f->symbol, group, ir_word(WORDS_GROUP, a->kind));
}

const char *group_join_symbol(const struct object *o, const struct function *f, size_t group)
{
	return arena_printf(o->arena, "%s.join", group_symbol(o, f, group));
}

static const char *group_kernel_symbol(const struct object *o, const struct function *f, size_t group)
{
	return arena_printf(o->arena, "%s.kernel", group_symbol(o, f, group));
}

/* This worker's part of the scratch at the beginning of the arena. */
static struct kb_val scratch(struct emit *e, struct kb_val worker)
{
	struct kb_val arena = emit_context(e, KB_PTR, CONTEXT_ARENA);
	struct kb_val offset = kb_mul(e->k, worker, kb_index(e->k, e->object->scratch));
	return kb_ptr_add(e->k, arena, offset, 0);
}

struct group {
	struct object *object;
	const struct function *function;
	size_t number;
	struct emit e;
	struct ir_value repeats[OBJECT_REPEAT_MAX];
	struct kb_val worker, n_workers, scratch;
	bool is_join; /* the second step of an attention */
	bool is_divided;
};

/* ---- recording ---- */

/* Of heads: together with the group before or the one after. */
static int64_t parts_of(const struct function *f, size_t group)
{
	return group > 0 && f->parts[group - 1] > 1 ? f->parts[group - 1] : f->parts[group];
}

static enum tfmc_status record_template(struct group *g)
{
	struct kernel_job job = {.worker = g->worker,
	                         .n_workers = g->n_workers,
	                         .scratch = g->scratch,
	                         .scratch_step = g->object->scratch,
	                         .is_join = g->is_join,
	                         .parts = parts_of(g->function, g->number),
	                         .is_divided = &g->is_divided};
	TFMC_TRY(emit_template(&g->e, job));
	kb_end(g->e.k);
	return TFMC_OK;
}

/* Begins a function of a group: (context, args, l0, l1, ..., worker, n_workers). */
static enum tfmc_status begin(struct group *g, const char *name)
{
	struct emit *e = &g->e;
	if (!emit_begin(e, name, KB_INTERNAL, KB_VOID))
		return TFMC_NO_MEMORY;
	struct kb *k = e->k;
	for (size_t i = 0; i < g->object->n_indices; i++)
		e->index[i] = kb_param(k, arena_printf(g->object->arena, "l%zu", i), KB_INDEX_T, 0);
	g->worker = kb_param(k, "worker", KB_INDEX_T, 0);
	g->n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	emit_group_comment(e);
	emit_load_dims(e);
	emit_load_bases(e);
	return TFMC_OK;
}

/* It reads what encode has left. */
static bool has_source(const struct group *g)
{
	const struct function *f = g->function;
	for (size_t i = 0; i < g->e.areas.n; i++) {
		const struct state_place *state = g->e.areas.items[i].state;
		if (state && !state->grows && g->object->states.encoded_at && !function_is_encode(f))
			return true;
	}
	return false;
}

/* Pointers to all areas, scratch, dims, indices of repeats, the worker, the step of sources. */
static enum tfmc_status begin_kernel(struct group *g, const char *name)
{
	struct object *o = g->object;
	size_t n_dims = ir_dims_count(o->module->dims);
	struct kb_val *dims = ARENA_ARRAY(o->arena, struct kb_val, n_dims + 1);
	struct kb *k = g->e.k = kb_begin(o->kb, name, KB_INTERNAL, KB_VOID);
	g->e.pointers = ARENA_ARRAY(o->arena, struct kb_val, g->e.areas.n + 1);
	if (!k || !dims || !g->e.pointers)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < g->e.areas.n; i++)
		g->e.pointers[i] = kb_param(k, g->e.areas.items[i].name, KB_PTR_T, 0);
	g->scratch = kb_param(k, "scratch", KB_PTR_T, 0);
	for (size_t i = 0; i < n_dims; i++)
		if (g->function->has_dim[i])
			dims[i] = kb_param(k, ir_dims_sym(o->module->dims, i)->name, KB_INDEX_T, 0);
	for (size_t i = 0; i < g->e.n_repeats; i++)
		g->e.index[i] = kb_param(k, arena_printf(o->arena, "l%zu", i), KB_INDEX_T, 0);
	g->worker = kb_param(k, "worker", KB_INDEX_T, 0);
	g->n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	g->e.source_step = (struct kb_val){0};
	if (has_source(g))
		g->e.source_step = kb_param(k, "source_step", KB_INDEX_T, 0);
	g->e.dims = dims;
	emit_group_comment(&g->e);
	return TFMC_OK;
}

/* Which of begin_kernel's parameters are left; they are named by value ids from 1 on. */
static void find_used(const struct kb_func *f, bool *used)
{
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++)
		used[f->insts[i].result - 1] = true;
}

static const char *kernel_symbol(const struct group *g)
{
	const char *name = group_kernel_symbol(g->object, g->function, g->number);
	return g->is_join ? arena_printf(g->object->arena, "%s.join", name) : name;
}

static enum tfmc_status record_kernel(struct group *g, const char **name, bool *used)
{
	struct object *o = g->object;
	TFMC_TRY(begin_kernel(g, kernel_symbol(g)));
	TFMC_TRY(record_template(g));
	if (kb_module_failed(o->kb))
		return kb_verify(o->kb, o->cx);
	kb_prune(g->e.k);
	find_used(kb_func_at(o->kb, kb_func_count(o->kb) - 1), used);
	*name = kb_share_last(o->kb)->name;
	return TFMC_OK;
}

/* The values of begin_kernel's parameters that are used, in the function that calls it. */
static void make_args(struct group *g, const bool *used, struct kb_val *out, size_t *n)
{
	size_t n_dims = ir_dims_count(g->object->module->dims);
	for (size_t i = 0; i < g->e.areas.n; i++)
		if (*used++)
			out[(*n)++] = area_address(&g->e, &g->e.areas.items[i]);
	if (*used++)
		out[(*n)++] = scratch(&g->e, g->worker);
	for (size_t i = 0; i < n_dims; i++)
		if (g->function->has_dim[i] && *used++)
			out[(*n)++] = g->e.dims[i];
	for (size_t i = 0; i < g->e.n_repeats; i++)
		if (*used++)
			out[(*n)++] = g->e.index[i];
	if (*used++)
		out[(*n)++] = g->worker;
	if (*used++)
		out[(*n)++] = g->n_workers;
	if (*used)
		out[(*n)++] = g->e.source_step;
}

static enum tfmc_status emit_group(struct object *o, struct function *f, size_t number, bool is_join)
{
	struct group g = {.object = o, .function = f, .number = number, .is_join = is_join};
	const char *kernel = NULL;
	g.e = (struct emit){.object = o, .function = f, .group = f->groups[number]};
	TFMC_TRY(emit_find_repeats(&g.e, g.repeats));
	TFMC_TRY(areas_collect(&g.e));
	size_t most = g.e.areas.n + ir_dims_count(o->module->dims) + OBJECT_REPEAT_MAX + 5, n = 0;
	bool *used = ARENA_ARRAY(o->arena, bool, most);
	struct kb_val *args = ARENA_ARRAY(o->arena, struct kb_val, most);
	if (!used || !args)
		return TFMC_NO_MEMORY;
	TFMC_TRY(record_kernel(&g, &kernel, used));
	TFMC_TRY(begin(&g, is_join ? group_join_symbol(o, f, number) : group_symbol(o, f, number)));
	make_args(&g, used, args, &n);
	kb_call(g.e.k, kernel, KB_VOID, args, n);
	kb_end(g.e.k);
	f->is_divided[number] = f->is_divided[number] || g.is_divided;
	return TFMC_OK;
}

enum tfmc_status emit_groups(struct object *o, struct function *f)
{
	for (size_t i = 0; i < f->n_groups; i++)
		f->parts[i] = i + 1 < f->n_groups ? order_parts(o, f, f->groups[i], f->groups[i + 1]) : 1;
	for (size_t i = 0; i < f->n_groups; i++) {
		TFMC_TRY(emit_group(o, f, i, false));
		progress_tell(o->options->progress, "kernels", "groups", i + 1, f->n_groups);
		TFMC_TRY(budget_code(o, f->groups[i]));
	}
	for (size_t i = 0; i < f->n_groups; i++) {
		const struct ir_dim *heads;
		if (kernel_has_join(o->module, f->func, f->groups[i], &heads))
			TFMC_TRY(emit_group(o, f, i, true));
	}
	return TFMC_OK;
}
