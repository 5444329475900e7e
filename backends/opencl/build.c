/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without its source: the object's layout, one launch for each group
 * with the repeats around them, recorded kernels, the width of index arguments.
 */
#include "backends/opencl/internal.h"

#include <string.h>

/* ---- steps ---- */

static enum tfmc_status add_step(struct builder *b, struct opencl_step step)
{
	struct opencl_step *slot = ARENA_PUSH(b->object.arena, &b->steps);
	if (!slot)
		return TFMC_NO_MEMORY;
	*slot = step;
	return TFMC_OK;
}

static enum tfmc_status add_region(struct builder *b, const struct function *f, const struct ir_region *r);

static enum tfmc_status add_repeat(struct builder *b, const struct function *f, const struct ir_op *op)
{
	int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
	TFMC_TRY(add_step(b, (struct opencl_step){.kind = OPENCL_REPEAT, .count = count}));
	TFMC_TRY(add_region(b, f, op->region));
	return add_step(b, (struct opencl_step){.kind = OPENCL_END_REPEAT});
}

static enum tfmc_status add_group(struct builder *b, const struct function *f, const struct ir_op *op)
{
	struct opencl_step step = {.kind = OPENCL_LAUNCH};
	TFMC_TRY(kernel_record(b, f, op, &step.launch));
	return add_step(b, step);
}

static enum tfmc_status add_region(struct builder *b, const struct function *f, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_ops; i++) {
		if (r->ops[i]->code == OP_group)
			TFMC_TRY(add_group(b, f, r->ops[i]));
		else if (r->ops[i]->code == OP_repeat)
			TFMC_TRY(add_repeat(b, f, r->ops[i]));
	}
	return TFMC_OK;
}

/* ---- functions ---- */

static enum tfmc_status find_past_result(struct builder *b, const struct function *f,
                                         struct opencl_function *out)
{
	struct emit e = {.object = &b->object, .function = f};
	if (f->past_result < 0)
		return TFMC_OK;
	struct area *p = ARENA_NEW(b->object.arena, struct area);
	struct ir_value v = func_result(f->func, (size_t)f->past_result);
	if (!p)
		return TFMC_NO_MEMORY;
	if (!area_of(&e, &(struct touch){.base = ir_view_base(f->func, v)}, p)) {
		diag_error(b->object.cx, f->func->loc.at, DIAG_INTERNAL,
		           "the lengths that '%s' returns lie in no memory", f->func->name);
		return TFMC_INTERNAL;
	}
	p->is_written = true;
	out->past_result = p;
	return TFMC_OK;
}

static enum tfmc_status add_function(struct builder *b, const struct function *f, struct opencl_function *out)
{
	memset(&b->steps, 0, sizeof(b->steps));
	TFMC_TRY(add_region(b, f, f->func->body));
	out->func = f->func;
	out->steps = b->steps.items;
	out->n_steps = b->steps.n;
	out->arena_bytes = f->arena;
	return find_past_result(b, f, out);
}

static enum tfmc_status add_functions(struct builder *b, struct opencl_program *out)
{
	size_t n = b->object.functions.n;
	struct opencl_function *functions = ARENA_ARRAY(b->object.arena, struct opencl_function, n + 1);
	if (!functions)
		return TFMC_NO_MEMORY;
	out->functions = functions;
	for (size_t i = 0; i < n; i++) {
		const struct function *f = &b->object.functions.items[i];
		if (!f->func->when) /* hosts call functions by name: cases stay out */
			TFMC_TRY(add_function(b, f, &functions[out->n_functions++]));
	}
	return TFMC_OK;
}

/* ---- the whole ---- */

/* Hosts of the tables append where a sequence ends, and nowhere else. */
static enum tfmc_status refuse_rings(const struct object *o)
{
	for (size_t i = 0; i < o->states.n; i++) {
		const struct state_place *p = &o->states.items[i];
		if (p->window == 0)
			continue;
		diag_error(o->cx, p->decl->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: a cache shorter than max_len in OpenCL");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

static enum tfmc_status lay_out(struct object *o)
{
	TFMC_TRY(layout_weights(o));
	TFMC_TRY(layout_state(o));
	TFMC_TRY(refuse_rings(o));
	return layout_functions(o);
}

enum tfmc_status program_record(struct builder *b, struct opencl_program *out)
{
	struct object *o = &b->object;
	struct kb_caps caps = kb_caps_of(o->target);
	TFMC_TRY(lay_out(o));
	b->kb = kb_module_create(o->arena, &caps);
	if (!b->kb)
		return TFMC_NO_MEMORY;
	TFMC_TRY(add_functions(b, out));
	out->weights_bytes = (uint64_t)o->weights.bytes;
	out->state_fixed_bytes = o->states.fixed_bytes;
	out->state_batch_bytes = o->states.batch_bytes;
	out->index_bits = width_choose(b, out);
	if (ir_dims_failed(o->module->dims) || arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	return kb_verify(b->kb, o->cx);
}
