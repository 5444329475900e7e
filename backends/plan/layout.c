/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of the memory that outlives a call: packed weights in order of their first use, and the state block
 * of a sequence. Offsets are multiples of 64 bytes. A hash of the weight layout (structure_hash) is stored in
 * weights files and checked against the object.
 * The variants of an object share weights, state, arena and interface. Their modules come from one module
 * after `encode`, so their layouts should agree; an object is rejected where they do not.
 *
 * Also the layout of the memory of a call: storage of every value, argument slots, the arena.
 *
 * A case is a second form of a function for some dims (when); a call chooses it. `base` is the function it is a case
 * of. A carry is a value that a repeat hands to its next iteration; carries with their initial and final values form a
 * set that has one buffer. Storage says where a value is: arena (planned offset), input or output of the caller,
 * state, weights. A spare buffer stands in for one that the caller omits.
 */
#include "backends/kernels/group.h"
#include "backends/plan/object.h"
#include "ir/core/cost.h"
#include "ir/core/lifetime.h"
#include "ir/support/checked.h"
#include "ir/support/strmap.h"
#include "ir/target/tile.h"

#include <string.h>

#define PRODUCERS_MAX 64

bool object_is_device(const struct object *o)
{
	return o->target && o->target->arch == ARCH_OPENCL;
}

bool object_has_locs(const struct object *o)
{
	return o->options && o->options->debug && !o->emits_c && !object_is_device(o);
}

bool object_has_device(const struct object *o)
{
	for (size_t i = 0; i < o->n_all; i++)
		if (object_is_device(&o->all[i]))
			return true;
	return false;
}

/* Processes that run the module, as its exchanges say: those of a stage, times the stages, which only send and
 * receive know. 1: no exchange. The attributes of all exchanges begin with `ranks`, as those of send. */
static int64_t ranks_of(const struct ir_module *m)
{
	int64_t ranks = 1;
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it)) {
			const struct attrs_send *a = it.op->attrs;
			if (it.op->code == OP_send || it.op->code == OP_receive)
				return a->ranks * a->stages;
			if (ir_op_has(it.op->code, TRAIT_EXCHANGE))
				ranks = a->ranks;
		}
	return ranks;
}

/* Saturates. */
static int64_t module_weight_bytes(const struct ir_module *m)
{
	double bytes = 0;
	for (size_t i = 0; i < m->weights.n; i++)
		bytes += ir_weight_bytes(m->weights.items[i]);
	return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}

void object_init(struct object *o, struct diag_context *cx, struct arena *arena,
                 const struct ir_module *planned, const struct target *target,
                 const struct backend_options *options)
{
	const struct target *here = target_native();
	*o = (struct object){.cx = cx,
	                     .arena = arena,
	                     .module = planned,
	                     .target = target,
	                     .driver = target,
	                     .options = options,
	                     .name = planned->name,
	                     .prefix = planned->name,
	                     .all = o,
	                     .n_all = 1,
	                     .weight_bytes = module_weight_bytes(planned),
	                     .ranks = ranks_of(planned)};
	if (object_is_device(o))
		o->driver = target_baseline(here ? here->arch : ARCH_X86_64);
}

const struct weight_layout *object_weight(const struct object *o, const struct ir_weight *w)
{
	for (size_t i = 0; i < o->weights.n; i++)
		if (!strcmp(o->weights.items[i].weight->name, w->name))
			return &o->weights.items[i];
	return NULL;
}

struct state_layout *object_state(const struct object *o, const struct ir_state_decl *d)
{
	for (size_t i = 0; i < o->states.n; i++)
		if (!strcmp(o->states.items[i].decl->name, d->name))
			return &o->states.items[i];
	return NULL;
}

/* ---- hashes ---- */

/* FNV-1a continued with a string and its final zero, with the 8 bytes of a number. */
static uint64_t hash_string(uint64_t h, const char *s)
{
	return hash_bytes64(h, s, strlen(s) + 1);
}

static uint64_t hash_i64(uint64_t h, int64_t v)
{
	unsigned char bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
	return hash_bytes64(h, bytes, sizeof(bytes));
}

/* ---- weights ---- */

static enum tfmc_status too_large(struct object *o, struct ir_loc loc, const char *what, const char *name)
{
	diag_error(o->cx, loc.at, DIAG_LIMIT, "the %s '%s' is too large", what, name);
	return TFMC_INVALID;
}

/* Bytes of the stored float type; everything else is stored as f32 or i32. */
int64_t weight_element_bytes(const struct ir_weight *w)
{
	enum ir_format kept = ir_weight_stored_format(w);
	return kept != FORMAT_PLAIN ? ir_dtype_bytes(ir_format(kept)->dtype) : 4;
}

/* Sets rows, columns, matrices and sizes. Panels hold 16 rows each; a weight in row order is one row. False: a dim is
 * not constant, or overflow. */
static bool weight_sizes(struct weight_layout *p)
{
	const struct ir_type *t = p->weight->type;
	int leading = p->weight->encoding == ENC_PANEL16 ? t->rank - 2 : 0;
	int64_t dims[IR_RANK_MAX] = {0}, count, each = weight_element_bytes(p->weight);
	for (int i = 0; i < t->rank; i++)
		if (!ir_dim_is_const(t->dims[i], &dims[i]))
			return false;
	if (leading < 0 || !checked_product_i64(dims, (size_t)leading, &p->matrices))
		return false;
	if (p->weight->encoding == ENC_ROW) {
		p->rows = 1;
		if (!checked_product_i64(dims, (size_t)t->rank, &p->columns))
			return false;
		count = p->columns;
	} else {
		p->rows = dims[t->rank - 2];
		p->columns = dims[t->rank - 1];
		if (!checked_round_up_i64(p->rows, PANEL_COLUMNS, &count) ||
		    !panel_bytes(p->weight->format, p->columns, &each))
			return false;
		count /= PANEL_COLUMNS;
	}
	return checked_mul_i64(count, each, &p->matrix_bytes) &&
	       checked_mul_i64(p->matrix_bytes, p->matrices, &p->bytes);
}

/* Appends a weight, unless another function or variant has it already. Its bytes are stored once, so all must
 * agree on the packed layout. */
static enum tfmc_status add_weight(struct object *o, const struct ir_weight *w)
{
	struct weight_layout p = {.weight = w, .offset = o->weights.bytes};
	int64_t end;
	const struct weight_layout *known = object_weight(o, w);
	if (known && known->weight->encoding == w->encoding && known->weight->format == w->format)
		return TFMC_OK;
	if (known) {
		diag_error(o->cx, w->loc.at, DIAG_INTERNAL, "the variants want '%s' in two layouts", w->name);
		return TFMC_INTERNAL;
	}
	if (!weight_sizes(&p) || !checked_add_i64(p.offset, p.bytes, &end) ||
	    !checked_round_up_i64(end, OBJECT_ALIGN, &o->weights.bytes))
		return too_large(o, w->loc, "weight", w->name);
	ARENA_ADD(o->arena, &o->weights, p);
	return TFMC_OK;
}

/* structure_hash: of the names, types and places of all weights, in order. */
static uint64_t hash_layout(const struct object *o)
{
	uint64_t h = hash_string(hash_i64(HASH64_SEED, TFMC_ABI_VERSION), o->name);
	for (size_t i = 0; i < o->weights.n; i++) {
		const struct weight_layout *p = &o->weights.items[i];
		h = hash_string(h, p->weight->name);
		h = hash_string(h, ir_encoding_name(p->weight->encoding));
		h = hash_i64(h, (int64_t)p->weight->type->dtype);
		h = hash_i64(h, (int64_t)p->weight->format);
		h = hash_i64(h, p->offset);
		h = hash_i64(h, p->rows);
		h = hash_i64(h, p->columns);
		h = hash_i64(h, p->matrices);
	}
	return h;
}

enum tfmc_status layout_weights(struct object *o)
{
	for (size_t v = 0; v < o->n_all; v++) {
		const struct ir_module *m = o->all[v].module;
		for (size_t i = 0; i < m->funcs.n; i++)
			for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op;
			     ir_iter_next(&it))
				if (it.op->code == OP_weight)
					TFMC_TRY(add_weight(
					        o, ((const struct attrs_weight *)it.op->attrs)->weight));
	}
	o->structure_hash = hash_layout(o);
	for (size_t v = 0; v < o->n_all; v++) {
		o->all[v].weights = o->weights;
		o->all[v].structure_hash = o->structure_hash;
	}
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- state ---- */

int64_t layout_state_count(const struct ir_state_decl *d, int from)
{
	const struct ir_type *t = d->type;
	int64_t dims[IR_RANK_MAX] = {0}, count;
	for (int i = from; i < t->rank; i++) {
		bool in_panels = d->encoding == ENC_PANEL16 && i == t->rank - 2;
		if (!ir_dim_is_const(t->dims[i], &dims[i]) ||
		    (in_panels && !checked_round_up_i64(dims[i], PANEL_COLUMNS, &dims[i])))
			return -1;
	}
	return checked_product_i64(dims + from, (size_t)(t->rank - from), &count) ? count : -1;
}

/* Appends a state to the block of a sequence. All begin with one batch dim, that of the blocks. */
static enum tfmc_status add_state(struct object *o, const struct ir_state_decl *d)
{
	struct state_layout p = {.decl = d, .offset = o->states.batch_bytes};
	int64_t end, count = layout_state_count(d, 1), element = ir_dtype_bytes(d->type->dtype);
	int batch = d->type->rank > 0 ? ir_dim_as_symbol(d->type->dims[0]) : -1;
	if (batch < 0 || (o->states.batch_dim >= 0 && batch != o->states.batch_dim)) {
		diag_error(o->cx, d->loc.at, DIAG_INTERNAL, "state '%s' does not begin with the batch dim",
		           d->name);
		return TFMC_INTERNAL;
	}
	o->states.batch_dim = batch;
	if (count < 0 || !checked_mul_i64(count, element, &p.bytes) ||
	    !checked_add_i64(p.offset, p.bytes, &end) ||
	    !checked_round_up_i64(end, OBJECT_ALIGN, &o->states.batch_bytes))
		return too_large(o, d->loc, "state", d->name);
	ARENA_ADD(o->arena, &o->states, p);
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* Marks the state that is appended to as a KV cache (with its window); the smallest constant capacity of all bounds a
 * sequence. */
static void limit_context(struct object *o, const struct ir_func *f, const struct ir_op *append)
{
	int64_t capacity;
	const struct attrs_state_append *a = append->attrs;
	struct state_layout *p = object_state(o, ir_type_of(f, append->operands[0])->state);
	if (p) {
		p->grows = true;
		p->window = a->window > p->window ? a->window : p->window;
	}
	const struct ir_type *t = ir_type_of(f, append->results[0]);
	if (!ir_dim_is_const(t->dims[t->rank - 2], &capacity))
		return;
	if (o->states.context_limit == 0 || capacity < o->states.context_limit)
		o->states.context_limit = capacity;
}

/* Hashes the ops from v back to the linear or matmul that produces it, through groups; views are skipped. The
 * weights before it have a hash of their own. */
static uint64_t hash_producers(uint64_t h, const struct ir_func *f, struct ir_value v)
{
	for (int n = 0; n < PRODUCERS_MAX; n++) {
		const struct ir_op *op = ir_def(f, v);
		if (!op)
			break;
		if (op->code == OP_group) {
			v = op->region->ops[op->region->n_ops - 1]->operands[ir_value_info(f, v)->index];
			continue;
		}
		if (!ir_op_has(op->code, TRAIT_VIEW))
			h = hash_string(h, ir_op_desc(op->code)->name);
		if (op->code == OP_linear || op->code == OP_matmul || op->n_operands == 0)
			break;
		v = op->operands[0];
	}
	return h;
}

/* Hashes a state's declaration and how the first op that writes it computes the value; the other writers do the
 * same. Capacities do not count: a saved sequence may be restored into a state of another one. */
static uint64_t hash_state(uint64_t h, const struct object *o, const struct state_layout *p)
{
	const struct ir_type *t = p->decl->type;
	h = hash_string(h, p->decl->name);
	h = hash_i64(h, (int64_t)t->dtype);
	h = hash_i64(h, t->rank);
	for (int i = 1; i < t->rank; i++) {
		int64_t d = 0;
		bool is_capacity = p->grows && i == t->rank - 2;
		h = hash_i64(h, !is_capacity && ir_dim_is_const(t->dims[i], &d) ? d : 0);
	}
	if (p->window > 0)
		h = hash_i64(h, p->window);
	for (size_t i = 0; i < o->module->funcs.n; i++) {
		const struct ir_func *f = o->module->funcs.items[i];
		for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it))
			if ((it.op->code == OP_state_append || it.op->code == OP_state_write) &&
			    !strcmp(ir_type_of(f, it.op->operands[0])->state->name, p->decl->name))
				return hash_producers(h, f, it.op->operands[1]);
	}
	return h;
}

/* Identifies the contents of saved states: names, types, sizes other than capacities, windows, and the ops
 * between the projection and the cache (rope, a bias that passes moved after attention). Saved sequences
 * carry it with the hash of the weights. Offsets are not hashed: a state may be restored into another
 * layout. */
static uint64_t hash_states(const struct object *o)
{
	uint64_t h = HASH64_SEED;
	for (size_t i = 0; i < o->states.n; i++)
		h = hash_state(h, o, &o->states.items[i]);
	return h;
}

/* The fixed part: STATE_PAST bytes, lengths, encode marks if there is `encode`, floors if there are rings, which
 * limit_context finds first. All sizes are checked at the maximum of the batch, so that host code cannot overflow. */
enum tfmc_status layout_state(struct object *o)
{
	o->states.batch_dim = -1;
	for (size_t i = 0; i < o->module->states.n; i++)
		TFMC_TRY(add_state(o, o->module->states.items[i]));
	for (size_t i = 0; i < o->module->funcs.n; i++) {
		const struct ir_func *f = o->module->funcs.items[i];
		for (struct ir_iter it = ir_iter_begin(f->body); it.op; ir_iter_next(&it))
			if (it.op->code == OP_state_append)
				limit_context(o, f, it.op);
	}
	if (o->states.batch_dim < 0)
		return TFMC_OK;
	o->states.batch_max = ir_dims_sym(o->module->dims, (size_t)o->states.batch_dim)->hi;
	int64_t bytes = STATE_PAST + 4 * o->states.batch_max, all;
	if (ir_find_func(o->module, "encode")) {
		/* a mark for each sequence: its source is encoded */
		o->states.encoded_at = bytes;
		bytes += 4 * o->states.batch_max;
	}
	for (size_t i = 0; i < o->states.n && !o->states.floor_at; i++) {
		if (o->states.items[i].window == 0)
			continue;
		/* rings: the least length of each sequence that trim may restore */
		o->states.floor_at = bytes;
		bytes += 4 * o->states.batch_max;
	}
	o->states.hash = hash_states(o);
	if (!checked_round_up_i64(bytes, OBJECT_ALIGN, &o->states.fixed_bytes) ||
	    !checked_mul_i64(o->states.batch_bytes, o->states.batch_max, &all))
		return too_large(o, (struct ir_loc){0}, "state of", o->name);
	return TFMC_OK;
}

/* ---- variants ---- */

/* The parts of a layout that code of the interface, emitted for all[0] only, assumes of every variant. It
 * uses dims by number. */
enum { HASH_DIMS, HASH_STATE, HASH_ENTRIES, HASHES };

/* Fills h with a hash of each part of the interface, so that an error can name the part in which two variants
 * differ. */
static void hash_interface(const struct object *o, uint64_t h[HASHES])
{
	const struct state_list *l = &o->states;
	const int64_t numbers[] = {l->fixed_bytes, l->batch_bytes, l->context_limit, l->batch_dim};
	size_t n_dims = ir_dims_count(o->module->dims);
	h[HASH_DIMS] = h[HASH_STATE] = h[HASH_ENTRIES] = HASH64_SEED;
	for (size_t i = 0; i < n_dims; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(o->module->dims, i);
		h[HASH_DIMS] = hash_i64(hash_string(h[HASH_DIMS], s->name), s->lo);
		h[HASH_DIMS] = hash_i64(h[HASH_DIMS], s->hi);
	}
	for (size_t i = 0; i < TFMC_COUNT(numbers); i++)
		h[HASH_STATE] = hash_i64(h[HASH_STATE], numbers[i]);
	for (size_t i = 0; i < l->n; i++) {
		h[HASH_STATE] = hash_string(h[HASH_STATE], l->items[i].decl->name);
		h[HASH_STATE] = hash_i64(h[HASH_STATE], l->items[i].offset);
		h[HASH_STATE] = hash_i64(h[HASH_STATE], l->items[i].bytes);
	}
	for (size_t i = 0; i < o->entries.n; i++) {
		const struct entry *e = &o->entries.items[i];
		const struct function *f = &o->functions.items[e->function];
		const int64_t of_entry[] = {e->fixed_dim, (int64_t)f->n_inputs, (int64_t)f->n_outputs};
		h[HASH_ENTRIES] = hash_string(h[HASH_ENTRIES], e->name);
		for (size_t k = 0; k < TFMC_COUNT(of_entry); k++)
			h[HASH_ENTRIES] = hash_i64(h[HASH_ENTRIES], of_entry[k]);
		for (size_t k = 0; k < n_dims; k++)
			h[HASH_ENTRIES] = hash_i64(h[HASH_ENTRIES], f->has_dim[k]);
	}
}

/* The code of the interface is emitted once, for all[0], and works on the state and entries of any variant; scratch
 * may differ, so the largest is reserved. */
enum tfmc_status layout_variants(struct object *o)
{
	static const char *const what[HASHES] = {"dims", "state", "entries"};
	uint64_t first[HASHES], other[HASHES];
	int64_t scratch = 0;
	hash_interface(o, first);
	for (size_t i = 0; i < o->n_all; i++) {
		const struct object *v = &o->all[i];
		hash_interface(v, other);
		for (int k = 0; k < HASHES; k++)
			if (first[k] != other[k]) {
				diag_error(o->cx, LOC_NONE, DIAG_INTERNAL,
				           "the variants %s and %s differ in their %s", o->target->name,
				           v->target->name, what[k]);
				return TFMC_INTERNAL;
			}
		scratch = v->scratch > scratch ? v->scratch : scratch;
	}
	for (size_t i = 0; i < o->n_all; i++)
		o->all[i].scratch = scratch;
	return TFMC_OK;
}

const char *object_target_names(const struct object *o, const char *separator)
{
	const char *names = o->target->name;
	for (size_t i = 1; i < o->n_all; i++)
		names = arena_printf(o->arena, "%s%s%s", names, separator, o->all[i].target->name);
	return names;
}

/* ---- storage of values ---- */

/*
 * Storage of every value of a planned function. The memory planner gives one buffer to a carry of a repeat,
 * its initial value, the yielded value and the repeat's result: they form one set, whose storage is that of
 * the group result or parameter in it.
 */

struct assigner {
	struct object *object;
	struct function *f;
	const uint32_t *carry; /* from ir_lifetimes */
	struct storage *sets;  /* [n_values]: storage of each set, at its representative */
	enum tfmc_status status;
};

static enum tfmc_status plan_error(const struct assigner *w, struct ir_loc loc, const char *what)
{
	diag_error(w->object->cx, loc.at, DIAG_INTERNAL, "memory plan of '%s': %s", w->f->func->name, what);
	return TFMC_INTERNAL;
}

/* The value that owns v's buffer. Reports an error unless v shows the entire buffer in row-major order. */
static uint32_t full_view_base(struct assigner *w, struct ir_value v, struct ir_loc loc)
{
	struct ir_view view;
	const struct ir_func *f = w->f->func;
	struct ir_value base = ir_view_base(f, v);
	bool is_full = base.id == v.id;
	if (!is_full && ir_view_resolve(w->object->module, f, v, &view)) {
		const struct ir_dim *stride = ir_dim_const(w->object->module->dims, 1);
		is_full = ir_dim_equals(view.offset, 0) && !view.is_state;
		for (int i = view.rank - 1; i >= 0; i--) {
			is_full = is_full && (view.stride[i] == stride || ir_dim_equals(view.size[i], 1));
			stride = ir_dim_mul(w->object->module->dims, stride, view.size[i]);
		}
	}
	if (!is_full && w->status == TFMC_OK)
		w->status = plan_error(w, loc, "a carried or returned value is only a part of its buffer");
	return base.id;
}

/* A repeat's carries keep one buffer over all iterations, so the initial and the yielded values fill it
 * entirely. */
static void check_carries(struct assigner *w, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++)
		if (ir_is_tensor(w->f->func, op->operands[i])) {
			(void)full_view_base(w, op->operands[i], op->loc);
			(void)full_view_base(w, yield->operands[i], op->loc);
		}
}

/* ---- storage of the sets ---- */

static struct storage *storage_of(struct assigner *w, uint32_t v)
{
	return &w->sets[w->carry[v]];
}

/* Sets the storage of a group's results: state slices, or planned buffers. A negative offset means an output buffer of
 * the caller, which assign_outputs sets. */
static void assign_group_results(struct assigner *w, const struct ir_op *op)
{
	int64_t c;
	const struct ir_dim_list *at = &((const struct attrs_group *)op->attrs)->at;
	for (size_t i = 0; i < op->n_results; i++) {
		struct ir_value v = op->results[i];
		if (!ir_is_tensor(w->f->func, v))
			continue;
		struct storage *p = storage_of(w, v.id);
		if (ir_is_state_slice(w->f->func, v)) {
			p->kind = STORAGE_STATE;
		} else if (i >= at->n) {
			w->status = plan_error(w, op->loc, "a group's result has no offset");
		} else if (!ir_dim_is_const(at->items[i], &c) || c >= 0) {
			if (p->kind == STORAGE_ARENA && p->at != at->items[i])
				w->status = plan_error(w, op->loc, "one buffer has two offsets");
			*p = (struct storage){.kind = STORAGE_ARENA, .at = at->items[i]};
		}
	}
}

/* Returned buffers without a planned offset are the caller's output buffers. The caller passes none for new
 * sequence lengths: they get a spare buffer. */
static void assign_outputs(struct assigner *w)
{
	const struct ir_func *f = w->f->func;
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < f->n_results; i++) {
		if (!ir_is_tensor(w->f->func, ret->operands[i]))
			continue;
		struct storage *p = storage_of(w, full_view_base(w, ret->operands[i], ret->loc));
		bool is_past = f->results[i].role == ROLE_PAST;
		if (p->kind == STORAGE_NONE && is_past) {
			p->kind = STORAGE_ARENA;
		} else if (p->kind == STORAGE_NONE) {
			p->kind = STORAGE_OUTPUT;
			p->number = i;
		} else if (!is_past) {
			w->status =
			        plan_error(w, ret->loc, "an output is not written to the caller's buffer");
			return;
		}
	}
}

/* Sets f->storage: parameters first, then weights and groups, then outputs, which take what has no storage yet. carry:
 * representative of each value's set, from ir_lifetimes. */
static enum tfmc_status assign_storage(struct object *o, struct function *f, const uint32_t *carry)
{
	struct assigner w = {.object = o, .f = f, .carry = carry};
	size_t n = f->func->n_values;
	w.sets = ARENA_ARRAY(o->arena, struct storage, n);
	f->storage = ARENA_ARRAY(o->arena, struct storage *, n);
	if (!w.sets || !f->storage)
		return TFMC_NO_MEMORY;
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it))
		if (it.op->code == OP_repeat)
			check_carries(&w, it.op);
	for (size_t i = 0; i < f->func->n_params; i++) {
		const struct ir_param *param = &f->func->params[i];
		if (ir_is_tensor(w.f->func, param->value))
			*storage_of(&w, param->value.id) = (struct storage){
			        .kind = param->role == ROLE_PAST ? STORAGE_LENGTHS : STORAGE_INPUT,
			        .number = i};
	}
	for (struct ir_iter it = ir_iter_begin(f->func->body); it.op; ir_iter_next(&it)) {
		if (it.op->code == OP_weight)
			storage_of(&w, it.op->results[0].id)->kind = STORAGE_WEIGHT;
		if (it.op->code == OP_group)
			assign_group_results(&w, it.op);
	}
	if (w.status == TFMC_OK)
		assign_outputs(&w);
	for (size_t i = 0; i < f->n_groups; i++)
		for (size_t k = 0; k < f->groups[i]->n_results; k++) {
			struct ir_value v = f->groups[i]->results[k];
			enum storage_kind kind = storage_of(&w, v.id)->kind;
			if (ir_is_tensor(w.f->func, v) && kind != STORAGE_ARENA && kind != STORAGE_OUTPUT &&
			    kind != STORAGE_STATE && w.status == TFMC_OK)
				w.status = plan_error(&w, f->groups[i]->loc,
				                      "a group's result is in no memory of this call");
		}
	for (uint32_t v = 0; v < n; v++)
		f->storage[v] = storage_of(&w, v);
	return w.status;
}

/* ---- functions and entries ---- */

/*
 * Layout of functions and entries: argument slots of dims and tensors, the groups in execution order, and the
 * arena: the buffers of the memory planner, then spare buffers for omitted inputs and outputs, then partial
 * results of split attention.
 */

bool param_is_input(const struct ir_func *f, size_t i)
{
	return f->params[i].role == ROLE_INPUT && ir_type_of(f, f->params[i].value)->kind == IR_TENSOR;
}

struct ir_value func_result(const struct ir_func *f, size_t i)
{
	return f->body->ops[f->body->n_ops - 1]->operands[i];
}

bool result_is_output(const struct ir_func *f, size_t i)
{
	return f->results[i].role == ROLE_INPUT && ir_type_of(f, func_result(f, i))->kind == IR_TENSOR;
}

/* x rounded up to a multiple of OBJECT_ALIGN. */
static const struct ir_dim *round_up(const struct object *o, const struct ir_dim *x)
{
	struct ir_dims *t = o->module->dims;
	const struct ir_dim *up = ir_dim_add(t, x, ir_dim_const(t, OBJECT_ALIGN - 1));
	return ir_dim_mul(t, ir_dim_floordiv(t, up, OBJECT_ALIGN), ir_dim_const(t, OBJECT_ALIGN));
}

/* ---- argument slots ---- */

/* Numbers the argument slots: one for each dim, then two (pointer, elements) for each input and each output (abi.h).
 * Finds past lengths. */
static void assign_slots(struct object *o, struct function *f)
{
	const struct ir_func *func = f->func;
	f->past_param = f->past_result = -1;
	for (size_t i = 0; i < func->n_params; i++) {
		f->has_state = f->has_state || ir_type_of(func, func->params[i].value)->kind == IR_STATE;
		if (func->params[i].role == ROLE_PAST)
			f->past_param = (int)i;
	}
	for (size_t i = 0; i < func->n_results; i++)
		if (func->results[i].role == ROLE_PAST)
			f->past_result = (int)i;
	f->has_state = f->has_state || f->past_param >= 0 || f->past_result >= 0;
	/* Every dim of any value, so that emission can load each dim it needs; the same set for a function
	 * and all of its cases, so that a call passes equal slots to all. */
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++) {
		f->has_dim[i] = f->has_state && (int)i == o->states.batch_dim;
		for (size_t k = 0; k < o->module->funcs.n && !f->has_dim[i]; k++)
			f->has_dim[i] = ir_case_base(o->module, o->module->funcs.items[k]) == f->base &&
			                ir_func_has_symbol(o->module->funcs.items[k], (int)i);
		if (f->has_dim[i])
			f->dim_slot[i] = f->n_dims++;
	}
	for (size_t i = 0; i < func->n_params; i++)
		if (param_is_input(func, i))
			f->param_slot[i] = f->n_dims + 2 * f->n_inputs++;
	for (size_t i = 0; i < func->n_results; i++)
		if (result_is_output(func, i))
			f->result_slot[i] = f->n_dims + 2 * (f->n_inputs + f->n_outputs++);
}

/* ---- groups and arena ---- */

/* The largest, not the sum: groups run one after the other in the same scratch. */
int64_t groups_scratch(const struct ir_op *const *groups, size_t n)
{
	int64_t most = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t bytes = ((const struct attrs_group *)groups[i]->attrs)->scratch;
		most = bytes > most ? bytes : most;
	}
	return (most + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
}

/* Appends a buffer for a tensor of type t to the arena; returns its offset. */
static const struct ir_dim *append_buffer(struct object *o, struct function *f, const struct ir_type *t)
{
	struct ir_dims *dims = o->module->dims;
	const struct ir_dim *at = f->arena, *each = ir_dim_const(dims, ir_dtype_bytes(t->dtype));
	f->arena = ir_dim_add(dims, at, round_up(o, ir_dim_mul(dims, ir_type_count(dims, t), each)));
	return at;
}

/* Only the return op reads output v, directly or through views: without the output it need not be computed. Walks back
 * from the result. */
static bool only_returned(const struct function *f, struct ir_value v)
{
	struct ir_value r = func_result(f->func, f->storage[v.id]->number);
	for (; f->uses[r.id] == 1; r = ir_def(f->func, r)->operands[0]) {
		if (ir_same_value(r, v))
			return true;
		if (!ir_def(f->func, r) || !ir_op_has(ir_def(f->func, r)->code, TRAIT_VIEW))
			return false;
	}
	return false;
}

/* Whether the group computes only outputs, so that it can be left out if none is requested. Never an exchange: ranks
 * need not request the same outputs, and it runs on all of them or they wait for each other. */
bool group_is_optional(const struct function *f, const struct ir_op *group)
{
	if (((const struct attrs_group *)group->attrs)->kind == GROUP_exchange)
		return false;
	for (size_t i = 0; i < group->n_results; i++)
		if (f->storage[group->results[i].id]->kind != STORAGE_OUTPUT ||
		    !only_returned(f, group->results[i]))
			return false;
	return group->n_results > 0;
}

/* Whether v is an output that is computed even if the caller passes no buffer for it, or new lengths, for which
 * callers pass none (STORAGE_ARENA without offset). An optional group with several outputs runs if any is requested,
 * so it needs memory for the others. */
static bool needs_spare_buffer(const struct function *f, uint32_t v)
{
	const struct storage *p = f->storage[v];
	const struct ir_op *op = ir_def(f->func, (struct ir_value){v});
	if (p->at || ir_type_of(f->func, (struct ir_value){v})->kind != IR_TENSOR)
		return false;
	if (p->kind == STORAGE_ARENA)
		return true;
	if (p->kind != STORAGE_OUTPUT)
		return false;
	return !(op && op->code == OP_group && op->n_results == 1 && group_is_optional(f, op));
}

/* Appends buffers after the planned ones: defaults of inputs, outputs that are computed even if they are not
 * requested, partial results. */
static void append_spare_buffers(struct object *o, struct function *f)
{
	const struct ir_func *func = f->func;
	struct ir_dims *t = o->module->dims;
	const struct ir_dim *partials = ir_dim_const(t, 0);
	f->arena = round_up(o, func->arena ? func->arena : partials);
	for (size_t i = 0; i < func->n_params; i++)
		if (param_is_input(func, i) && func->params[i].has_default) {
			f->default_at[i] = append_buffer(o, f, ir_type_of(func, func->params[i].value));
			f->has_defaults = true;
		}
	for (uint32_t v = 1; v < func->n_values; v++)
		if (needs_spare_buffer(f, v))
			f->storage[v]->at = append_buffer(o, f, ir_type_of(func, (struct ir_value){v}));
	/* One buffer for all split attentions: each one's partial results are combined before the next one
	 * starts. */
	for (size_t i = 0; i < f->n_groups; i++) {
		const struct ir_dim *bytes = kernel_combine_bytes(o->module, func, f->groups[i], o->target);
		partials = bytes ? ir_dim_max(t, partials, bytes) : partials;
	}
	f->partials_at = f->arena;
	f->arena = round_up(o, ir_dim_add(t, f->arena, partials));
}

/* Appends a function with its slots, the storage of its values and its arena. The limit leaves headroom for the
 * scratch of all workers, which calls add to the arena. */
static enum tfmc_status add_function(struct object *o, const struct ir_func *func)
{
	size_t n_dims = ir_dims_count(o->module->dims);
	struct function *f = ARENA_PUSH(o->arena, &o->functions);
	if (!f)
		return TFMC_NO_MEMORY;
	f->func = func;
	f->base = ir_case_base(o->module, func);
	f->symbol = arena_printf(o->arena, "%s.%s", o->prefix, func->name);
	f->has_dim = ARENA_ARRAY(o->arena, bool, n_dims + 1);
	f->dim_slot = ARENA_ARRAY(o->arena, size_t, n_dims + 1);
	f->param_slot = ARENA_ARRAY(o->arena, size_t, func->n_params + 1);
	f->result_slot = ARENA_ARRAY(o->arena, size_t, func->n_results + 1);
	f->default_at = ARENA_ARRAY(o->arena, const struct ir_dim *, func->n_params + 1);
	f->uses = ir_count_uses(o->arena, func);
	f->real_rows = ir_real_rows(o->arena, o->module, func);
	struct ir_lifetimes life;
	if (arena_failed(o->arena) || !f->real_rows || !ir_lifetimes(o->arena, func, &life))
		return TFMC_NO_MEMORY;
	assign_slots(o, f);
	f->groups = life.groups;
	f->n_groups = life.n_times;
	f->scratch = groups_scratch(f->groups, f->n_groups);
	TFMC_TRY(assign_storage(o, f, life.carry));
	append_spare_buffers(o, f);
	o->scratch = f->scratch > o->scratch ? f->scratch : o->scratch;
	if (!ir_dims_failed(o->module->dims) && ir_dim_hi(o->module->dims, f->arena) < INT64_MAX / 4)
		return TFMC_OK;
	diag_error(o->cx, func->loc.at, DIAG_LIMIT, "function '%s' needs more memory than can be addressed",
	           func->name);
	return TFMC_INVALID;
}

bool function_is_encode(const struct function *f)
{
	return !strcmp(f->base->name, "encode");
}

bool function_has_source(const struct object *o, const struct function *f)
{
	return o->states.encoded_at && !function_is_encode(f);
}

size_t function_arg_slots(const struct function *f)
{
	return f->n_dims + 2 * (f->n_inputs + f->n_outputs);
}

enum tfmc_status layout_functions(struct object *o)
{
	for (size_t i = 0; i < o->module->funcs.n; i++)
		TFMC_TRY(add_function(o, o->module->funcs.items[i]));
	return TFMC_OK;
}

/* ---- entries ---- */

const struct ir_dim *entry_dim(const struct object *o, const struct entry *e, const struct ir_dim *d)
{
	if (e->fixed_dim < 0)
		return d;
	return ir_dim_substitute(o->module->dims, d, e->fixed_dim, ir_dim_const(o->module->dims, 1));
}

size_t entry_dims(const struct object *o, const struct entry *e, uint64_t *out)
{
	size_t n = 0;
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		if (o->functions.items[e->function].has_dim[i] && (int)i != e->fixed_dim)
			out[n++] = i;
	return n;
}

/* Appends an entry, unless the options request only others. */
static enum tfmc_status add_entry(struct object *o, const char *name, enum tfmc_entry_kind kind,
                                  size_t function, int fixed_dim)
{
	const struct backend_options *b = o->options;
	bool is_wanted = b->n_entries == 0;
	for (size_t i = 0; i < b->n_entries; i++)
		is_wanted |= !strcmp(b->entries[i], name);
	if (is_wanted)
		ARENA_ADD(o->arena, &o->entries,
		          (struct entry){
		                  .name = name, .kind = kind, .function = function, .fixed_dim = fixed_dim});
	return arena_failed(o->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* The IR function decode has two entries: prefill, and step with its token dim fixed to 1. */
static enum tfmc_status add_decode(struct object *o, size_t function)
{
	const struct ir_func *f = o->functions.items[function].func;
	int tokens = ir_func_token_dim(f);
	TFMC_TRY(add_entry(o, "prefill", TFMC_ENTRY_PREFILL, function, -1));
	if (tokens < 0) {
		diag_error(o->cx, f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: entry 'step' of a function that appends to no state");
		return TFMC_INVALID;
	}
	return add_entry(o, "step", TFMC_ENTRY_STEP, function, tokens);
}

/* How a case f relates to an entry: CASE_NEVER (another function's, or its conditions fail for all dims of the entry),
 * CASE_SOMETIMES, CASE_ALWAYS. Bounds of the dims decide. */
enum case_use entry_case(const struct object *o, const struct entry *e, const struct function *f)
{
	const struct ir_case *c = f->func->when;
	enum case_use use = CASE_ALWAYS;
	if (!c || f->base != o->functions.items[e->function].func)
		return CASE_NEVER;
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		const struct ir_dim *d = entry_dim(o, e, x->dim);
		int64_t lo = ir_dim_lo(o->module->dims, d), hi = ir_dim_hi(o->module->dims, d);
		bool equal = x->relation == IR_EQUAL;
		if (lo > x->value || (equal && hi < x->value))
			return CASE_NEVER;
		if (hi > x->value || (equal && lo < x->value))
			use = CASE_SOMETIMES;
	}
	return use;
}

/* The module has no requested entry: names those it has. */
static enum tfmc_status report_no_entry(const struct object *o)
{
	struct buf names;
	buf_init(&names);
	for (size_t i = 0; i < o->functions.n; i++) {
		const char *name = o->functions.items[i].func->name;
		if (!o->functions.items[i].func->when)
			buf_printf(&names, "%s%s", names.len > 0 ? ", " : "",
			           !strcmp(name, "decode") ? "prefill, step" : name);
	}
	diag_error(o->cx, LOC_NONE, DIAG_OPTION, "the model has none of the requested entries; it has %s",
	           names.data);
	buf_destroy(&names);
	return TFMC_INVALID;
}

/* Adds an entry for each function (two for decode), and marks the functions and cases that calls can reach: only
 * these are emitted. Scratch is that of these functions only. */
enum tfmc_status layout_entries(struct object *o)
{
	for (size_t i = 0; i < o->functions.n; i++) {
		const char *name = o->functions.items[i].func->name;
		if (o->functions.items[i].func->when)
			continue;
		enum tfmc_entry_kind kind = !strcmp(name, "encode")  ? TFMC_ENTRY_ENCODE
		                            : !strcmp(name, "score") ? TFMC_ENTRY_SCORE
		                                                     : TFMC_ENTRY_RUN;
		TFMC_TRY(!strcmp(name, "decode") ? add_decode(o, i) : add_entry(o, name, kind, i, -1));
	}
	for (size_t k = 0; k < o->entries.n; k++) { /* mark the functions and cases that calls can reach */
		enum case_use use = CASE_NEVER;
		for (size_t i = 0; i < o->functions.n && use != CASE_ALWAYS; i++) {
			use = entry_case(o, &o->entries.items[k], &o->functions.items[i]);
			o->functions.items[i].reached |= use != CASE_NEVER;
		}
		if (use != CASE_ALWAYS)
			o->functions.items[o->entries.items[k].function].reached = true;
	}
	o->scratch = 0;
	for (size_t i = 0; i < o->functions.n; i++)
		if (o->functions.items[i].reached && o->functions.items[i].scratch > o->scratch)
			o->scratch = o->functions.items[i].scratch;
	return o->entries.n > 0 ? TFMC_OK : report_no_entry(o);
}
