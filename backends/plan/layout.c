/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout of the memory that outlives a call: packed weights in order of their first use, and the state block
 * of a sequence. Offsets are multiples of 64 bytes. A hash of the weight layout (structure_hash) is stored in
 * weights files and checked against the object.
 * The variants of an object share weights, state, arena and interface. Their modules come from one module
 * after `encode`, so their layouts should agree; an object is rejected where they do not.
 */
#include "backends/plan/object.h"

#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/strmap.h"
#include "ir/target/tile.h"

#define PANEL         PANEL_COLUMNS
#define PRODUCERS_MAX 64

bool object_is_device(const struct object *o)
{
	return o->target && o->target->arch == ARCH_OPENCL;
}

bool object_has_device(const struct object *o)
{
	for (size_t i = 0; i < o->n_all; i++)
		if (object_is_device(&o->all[i]))
			return true;
	return false;
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
	                     .n_all = 1};
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

/* Sets rows, columns, matrices and sizes. Panels hold 16 rows each. False: a dim is not constant, or
 * overflow. */
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
		    (in_panels && !checked_round_up_i64(dims[i], PANEL, &dims[i])))
			return -1;
	}
	return checked_product_i64(dims + from, (size_t)(t->rank - from), &count) ? count : -1;
}

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

/* Marks the state as a KV cache; the smallest constant capacity of all bounds a sequence. */
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

/* Hashes the ops from v back to the linear or matmul that produces it, through groups; views are skipped. */
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

/* Hashes a state's declaration and how the first op that writes it computes the value; the other writers do
 * the same. */
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
		o->states.encoded_at = bytes;
		bytes += 4 * o->states.batch_max;
	}
	for (size_t i = 0; i < o->states.n && !o->states.floor_at; i++) {
		if (o->states.items[i].window == 0)
			continue;
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
