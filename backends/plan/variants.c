/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several variants in one object: they share weights, state, arena and interface, so
 * their layouts must say the same. The modules came from one module after `encode`;
 * where they differ all the same, no object is made.
 */
#include "backends/plan/object.h"

#include <string.h>

static bool same_states(const struct object *a, const struct object *b)
{
	bool same = a->states.n == b->states.n && a->states.fixed_bytes == b->states.fixed_bytes &&
	            a->states.batch_bytes == b->states.batch_bytes &&
	            a->states.context_limit == b->states.context_limit &&
	            a->states.batch_dim == b->states.batch_dim;
	for (size_t i = 0; same && i < a->states.n; i++) {
		const struct state_place *x = &a->states.items[i], *y = &b->states.items[i];
		same = x->offset == y->offset && x->bytes == y->bytes &&
		       !strcmp(x->decl->name, y->decl->name);
	}
	return same;
}

/* Code of the interface reads the dims of any variant by the numbers of the first one. */
static bool same_dims(const struct ir_dims *a, const struct ir_dims *b)
{
	bool same = ir_dims_count(a) == ir_dims_count(b);
	for (size_t i = 0; same && i < ir_dims_count(a); i++) {
		const struct ir_dim_sym *x = ir_dims_sym(a, i), *y = ir_dims_sym(b, i);
		same = x->lo == y->lo && x->hi == y->hi && !strcmp(x->name, y->name);
	}
	return same;
}

static bool same_words(const struct object *a, const struct function *f, const struct function *g)
{
	bool same = f->n_dims == g->n_dims && f->n_inputs == g->n_inputs && f->n_outputs == g->n_outputs;
	for (size_t i = 0; same && i < ir_dims_count(a->module->dims); i++)
		same = f->has_dim[i] == g->has_dim[i] && f->dim_word[i] == g->dim_word[i];
	return same;
}

static bool same_entries(const struct object *a, const struct object *b)
{
	bool same = a->entries.n == b->entries.n;
	for (size_t i = 0; same && i < a->entries.n; i++) {
		const struct entry *x = &a->entries.items[i], *y = &b->entries.items[i];
		same = !strcmp(x->name, y->name) && x->fixed_dim == y->fixed_dim &&
		       same_words(a, &a->functions.items[x->function], &b->functions.items[y->function]);
	}
	return same;
}

enum tfmc_status layout_variants(struct object *o)
{
	int64_t scratch = 0;
	for (size_t i = 0; i < o->n_all; i++) {
		const struct object *v = &o->all[i];
		const char *what = !same_dims(o->module->dims, v->module->dims) ? "dims"
		                   : !same_states(o, v)                         ? "state"
		                   : !same_entries(o, v)                        ? "entries"
		                                                                : NULL;
		if (what) {
			diag_error(o->cx, LOC_NONE, DIAG_INTERNAL,
			           "the variants %s and %s differ in their %s", o->target->name,
			           v->target->name, what);
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
