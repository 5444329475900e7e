/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the operands and results of a group lie, as formulas: memory, an offset
 * over the dims, and bytes for each round of the repeats around it. What depends
 * on views stays in the kernel, so that a place is the whole buffer of a value.
 */
#include "backends/opencl/internal.h"
#include "backends/plan/touch.h"

#include <string.h>

static struct ir_dims *dims_of(const struct group *g)
{
	return g->b->object.module->dims;
}

static const struct ir_dim *plus(const struct group *g, const struct ir_dim *a, const struct ir_dim *b)
{
	return ir_dim_add(dims_of(g), a, b);
}

static const struct ir_dim *times(const struct group *g, const struct ir_dim *a, int64_t by)
{
	return ir_dim_mul(dims_of(g), a, ir_dim_const(dims_of(g), by));
}

/* ---- addresses ---- */

/* Adds index v times `bytes` to the offset: a repeat's index, a constant or a dim. */
static bool add_index(const struct group *g, struct ir_value v, int64_t bytes, struct opencl_place *p)
{
	const struct ir_op *op = ir_def(g->function->func, v);
	for (size_t i = 0; i < g->e.n_repeats; i++)
		if (ir_same(g->repeats[i], v)) {
			p->step[i] += bytes;
			return true;
		}
	if (op && op->code == OP_full) {
		const struct ir_dim *at =
		        ir_dim_const(dims_of(g), (int64_t)((const struct attrs_full *)op->attrs)->value);
		p->offset = plus(g, p->offset, times(g, at, bytes));
		return true;
	}
	if (op && op->code == OP_dim_value) {
		const struct ir_dim *at = ((const struct attrs_dim_value *)op->attrs)->dim;
		p->offset = plus(g, p->offset, times(g, at, bytes));
		return true;
	}
	return false;
}

/* The offset, and what lies after all n indices as the size. */
static bool add_indices(const struct group *g, const struct binding_indexed *x, const struct ir_value *at,
                        size_t n, struct opencl_place *p)
{
	p->offset = ir_dim_const(dims_of(g), x->offset);
	for (size_t i = 0; i < n; i++)
		if (!add_index(g, at[i], binding_units(x, i + 1) * x->unit_bytes, p))
			return false;
	p->bytes = ir_dim_const(dims_of(g), binding_units(x, n) * x->unit_bytes);
	return true;
}

bool place_of_slice(const struct group *g, const struct binding_slice *s, struct opencl_place *out)
{
	const struct object *o = &g->b->object;
	struct binding_indexed x = binding_slice_axes(o, s);
	*out = (struct opencl_place){.name = s->state->decl->name, .memory = OPENCL_STATE};
	if (!add_indices(g, &x, s->at, s->n_at, out))
		return false;
	/* From the first sequence's slice to the end of the last one's. */
	const struct ir_dim *before = plus(g, x.type->dims[0], ir_dim_const(dims_of(g), -1));
	out->bytes = plus(g, times(g, before, o->states.batch_bytes), out->bytes);
	return true;
}

static bool place_of_weight(const struct group *g, const struct ir_op *op, struct opencl_place *out)
{
	struct binding_indexed x;
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	*out = (struct opencl_place){.name = w->name, .memory = OPENCL_WEIGHTS};
	return binding_weight_axes(&g->b->object, op, &x) &&
	       add_indices(g, &x, op->operands, op->n_operands, out);
}

bool place_of_value(const struct group *g, struct ir_value base, struct opencl_place *out)
{
	const struct ir_func *f = g->function->func;
	const struct place *p = &g->function->places[base.id];
	const struct ir_type *t = ir_type_of(f, base);
	const struct ir_dim *bytes = times(g, ir_type_count(dims_of(g), t), ir_dtype_bytes(t->dtype));
	const struct ir_dim *zero = ir_dim_const(dims_of(g), 0);
	*out = (struct opencl_place){.number = p->number, .offset = zero, .bytes = bytes};
	switch (p->kind) {
	case PLACE_NONE:
	case PLACE_SLICE: return false;
	case PLACE_WEIGHT: return place_of_weight(g, ir_def(f, base), out);
	case PLACE_PLAN:
		out->memory = OPENCL_ARENA;
		out->offset = p->at;
		out->number = 0;
		out->name = ir_info(f, base)->name;
		return p->at != NULL;
	case PLACE_INPUT:
		out->memory = OPENCL_INPUT;
		out->name = f->params[p->number].name;
		return true;
	case PLACE_PAST:
		out->memory = OPENCL_STATE;
		out->offset = ir_dim_const(dims_of(g), STATE_PAST);
		out->number = 0;
		out->name = "past";
		return true;
	case PLACE_OUTPUT:
		out->memory = OPENCL_OUTPUT;
		out->name = f->results[p->number].name;
		return true;
	}
	return false;
}

/* ---- what a group touches ---- */

static bool same_memory(const struct opencl_place *a, const struct opencl_place *b)
{
	return a->memory == b->memory && a->number == b->number && a->offset == b->offset &&
	       a->bytes == b->bytes && memcmp(a->step, b->step, sizeof(a->step)) == 0;
}

int place_find(const struct group *g, const struct opencl_place *p)
{
	for (size_t i = 0; i < g->places.n; i++)
		if (same_memory(&g->places.items[i], p))
			return (int)i;
	return -1;
}

static enum tfmc_status add_place(struct group *g, struct opencl_place p, bool is_written)
{
	int at = place_find(g, &p);
	if (at < 0) {
		struct opencl_place *slot = ARENA_PUSH(g->b->object.arena, &g->places);
		if (!slot)
			return TFMC_NO_MEMORY;
		*slot = p;
		at = (int)g->places.n - 1;
	}
	g->places.items[at].is_written |= is_written;
	g->places.items[at].is_read |= !is_written;
	return TFMC_OK;
}

enum tfmc_status place_collect(struct group *g)
{
	struct touches all = {0};
	if (!touch_group(&g->b->object, g->function, g->e.group, &all))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < all.n; i++) {
		const struct touch *t = &all.items[i];
		struct opencl_place p;
		if (t->base.id ? place_of_value(g, t->base, &p) : place_of_slice(g, &t->slice, &p))
			TFMC_TRY(add_place(g, p, t->is_written));
	}
	return TFMC_OK;
}
