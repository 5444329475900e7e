/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One internal function for each group: (context, args, l0, l1, worker,
 * n_workers), where l0 and l1 are the indices of the repeats around it. The
 * body comes from the kernel templates.
 */
#include "backends/object/object.h"

const char *group_symbol(const struct object *o, const struct function *f, size_t group)
{
	const struct attrs_group *a = f->groups[group]->attrs;
	return arena_printf(o->arena, "%s.%zu.%s", f->symbol, group, ir_word(WORDS_GROUP, a->kind));
}

enum tfmc_status emit_find_repeats(struct emit *e, struct ir_value *index)
{
	const struct ir_func *f = e->function->func;
	const struct ir_region *r = ir_info(f, e->group->results[0])->region;
	struct ir_value inner[OBJECT_REPEAT_MAX];
	size_t n = 0;
	for (; r->owner; r = ir_info(f, r->owner->results[0])->region) {
		if (r->owner->code != OP_repeat)
			continue;
		if (n == OBJECT_REPEAT_MAX) {
			diag_error(e->object->cx, e->group->loc.at, DIAG_UNSUPPORTED,
			           "not supported yet: repeats more than %d deep", OBJECT_REPEAT_MAX);
			return TFMC_INVALID;
		}
		inner[n++] = r->args[REPEAT_INDEX];
	}
	for (size_t i = 0; i < n; i++)
		index[i] = inner[n - 1 - i];
	e->n_repeats = n;
	e->repeat_index = index;
	return TFMC_OK;
}

void emit_group_comment(struct emit *e)
{
	const struct object *o = e->object;
	struct ir_loc loc = e->group->loc;
	const char *file = loc.at.source ? diag_source_name(o->cx, loc.at.source) : "";
	bool has_path = loc.path && *loc.path;
	kb_comment(e->k, "%s:%u:%u%s%s", file, loc.at.line, loc.at.col, has_path ? " " : "",
	           has_path ? loc.path : "");
}

/* This worker's part of the scratch at the beginning of the arena. */
static struct kb_val scratch(struct emit *e, struct kb_val worker)
{
	struct kb_val arena = emit_context(e, KB_PTR, CONTEXT_ARENA);
	struct kb_val offset = kb_mul(e->k, worker, kb_index(e->k, e->object->scratch));
	return kb_ptr_add(e->k, arena, offset, 0);
}

static enum tfmc_status emit_group(struct object *o, const struct function *f, size_t number)
{
	struct ir_value repeats[OBJECT_REPEAT_MAX];
	struct emit e = {.object = o, .function = f, .group = f->groups[number]};
	TFMC_TRY(emit_find_repeats(&e, repeats));
	e.k = kb_begin(o->kb, group_symbol(o, f, number), KB_INTERNAL, KB_VOID);
	if (!e.k)
		return TFMC_NO_MEMORY;
	e.context = kb_param(e.k, "context", KB_PTR_T, 0);
	e.args = kb_param(e.k, "args", KB_PTR_T, KB_READONLY);
	e.index[0] = kb_param(e.k, "l0", KB_INDEX_T, 0);
	e.index[1] = kb_param(e.k, "l1", KB_INDEX_T, 0);
	struct kb_val worker = kb_param(e.k, "worker", KB_INDEX_T, 0);
	struct kb_val n_workers = kb_param(e.k, "n_workers", KB_INDEX_T, 0);
	emit_group_comment(&e);
	emit_load_dims(&e);
	emit_load_bases(&e);
	struct kernel_binding bind = binding_of(&e);
	struct kernel_job job = {.k = e.k,
	                         .module = o->module,
	                         .func = f->func,
	                         .group = e.group,
	                         .target = o->target,
	                         .bind = &bind,
	                         .worker = worker,
	                         .n_workers = n_workers,
	                         .scratch = scratch(&e, worker),
	                         .cx = o->cx,
	                         .arena = o->arena};
	TFMC_TRY(kernel_emit_group(&job));
	kb_end(e.k);
	return TFMC_OK;
}

enum tfmc_status emit_groups(struct object *o, const struct function *f)
{
	for (size_t i = 0; i < f->n_groups; i++)
		TFMC_TRY(emit_group(o, f, i));
	return TFMC_OK;
}
