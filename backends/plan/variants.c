/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several variants in one object: they share weights, state, arena and interface, so
 * their layouts must say the same. The modules came from one module after `encode`;
 * where they differ all the same, no object is made.
 */
#include "backends/plan/object.h"

#include "ir/support/strmap.h"

static uint64_t hash_states(uint64_t h, const struct state_list *l)
{
	const int64_t numbers[] = {l->fixed_bytes, l->batch_bytes, l->context_limit, l->batch_dim};
	for (size_t i = 0; i < TFMC_COUNT(numbers); i++)
		h = object_hash_number(h, numbers[i]);
	for (size_t i = 0; i < l->n; i++) {
		h = object_hash_text(h, l->items[i].decl->name);
		h = object_hash_number(object_hash_number(h, l->items[i].offset), l->items[i].bytes);
	}
	return h;
}

static uint64_t hash_entry(uint64_t h, const struct object *o, const struct entry *e)
{
	const struct function *f = &o->functions.items[e->function];
	h = object_hash_number(object_hash_text(h, e->name), e->fixed_dim);
	h = object_hash_number(object_hash_number(h, (int64_t)f->n_inputs), (int64_t)f->n_outputs);
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		h = object_hash_number(h, f->has_dim[i]);
	return h;
}

/* Of what the interface, made from the first variant, knows of all. It reads dims by their numbers. */
static uint64_t hash_interface(const struct object *o)
{
	uint64_t h = hash_states(HASH64_SEED, &o->states);
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(o->module->dims, i);
		h = object_hash_number(object_hash_number(object_hash_text(h, s->name), s->lo), s->hi);
	}
	for (size_t i = 0; i < o->entries.n; i++)
		h = hash_entry(h, o, &o->entries.items[i]);
	return h;
}

enum tfmc_status layout_variants(struct object *o)
{
	int64_t scratch = 0;
	uint64_t interface = hash_interface(o);
	for (size_t i = 0; i < o->n_all; i++) {
		const struct object *v = &o->all[i];
		if (hash_interface(v) != interface) {
			diag_error(o->cx, LOC_NONE, DIAG_INTERNAL,
			           "the variants %s and %s differ in their dims, state or entries",
			           o->target->name, v->target->name);
			return TFMC_INTERNAL;
		}
		scratch = v->scratch > scratch ? v->scratch : scratch;
	}
	for (size_t i = 0; i < o->n_all; i++)
		o->all[i].scratch = scratch;
	return TFMC_OK;
}

const char *object_targets(const struct object *o, const char *separator)
{
	const char *names = o->target->name;
	for (size_t i = 1; i < o->n_all; i++)
		names = arena_printf(o->arena, "%s%s%s", names, separator, o->all[i].target->name);
	return names;
}
