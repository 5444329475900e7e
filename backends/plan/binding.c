/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_binding: gives kernel generators the address, shape and strides of the tensors and state slices of a
 * group while its kernel is emitted. Views are resolved to offsets and strides on the memory they show.
 */
#include "backends/plan/emit.h"
#include "ir/target/tile.h"

/* ---- state ---- */

static int64_t sequence_elements(const struct emit *e, enum ir_dtype t)
{
	return e->object->states.batch_bytes / ir_dtype_bytes(t);
}

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

/* Shape and strides of a state slice after n indices. Rows inside packed panels have no stride (0). */
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

/* Type, format and pointer of the memory that a view shows. False: the kernel has no pointer to it. */
static bool bind_base(struct emit *e, struct ir_value base, struct kb_val *ptr, struct kb_tensor *out)
{
	const struct ir_func *f = e->function->func;
	struct area a;
	out->dtype = ir_type_of(f, base)->dtype;
	const struct ir_weight *w = ir_weight_of(f, base);
	if (w) { /* the packed format decides, not the type */
		out->encoding = w->encoding;
		out->format = ir_weight_stored_format(w);
		out->dtype = ir_dtype_class(w->type->dtype) == DTCLASS_FLOAT ? ir_format(out->format)->dtype
		                                                             : DT_I32;
	}
	return area_of_value(e, base, &a) && area_pointer(e, &a, ptr);
}

/* Only these kernel generators compute position % capacity. */
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

/* Strides between the matrices of a packed weight: whole panels. */
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

/* kernel_binding.tensor. False: the value is not in memory, or its kernel cannot address it. */
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

enum tfmc_status emit_group_kernel(struct emit *e, struct kernel_job job)
{
	const struct object *o = e->object;
	struct kernel_binding bind = {
	        .tensor = bind_tensor, .state = bind_state, .dim = bind_dim, .index = bind_index, .user = e};
	struct arena temporary;
	arena_init(&temporary);
	job.k = e->k;
	job.module = o->module;
	job.func = e->function->func;
	job.group = e->group;
	job.target = o->target;
	job.bind = &bind;
	job.cx = o->cx;
	job.arena = &temporary;
	enum tfmc_status status = kernel_emit_group(&job);
	if (status == TFMC_OK && arena_failed(&temporary))
		status = TFMC_NO_MEMORY;
	arena_destroy(&temporary);
	return status;
}
