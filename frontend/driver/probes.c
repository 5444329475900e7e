/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --probe: a loaded module becomes one with further results (passes/probe), and what
 * these results hold becomes tensors with the names of the values again.
 */
#include "frontend/driver/probes.h"

#include <string.h>

enum tfmc_status driver_probe(struct driver *d, struct loaded *l, const struct option_list *patterns,
                              const struct option_list *functions)
{
	struct probe_request q = {.cx = &d->diag,
	                          .arena = &d->arena,
	                          .patterns = patterns->items,
	                          .n_patterns = patterns->n,
	                          .functions = functions->items,
	                          .n_functions = functions->n,
	                          .mode = d->options.probe_barrier ? PROBE_BARRIER : PROBE_RECOMPUTE};
	struct ir_module *probed;
	if (!patterns->n)
		return TFMC_OK;
	TFMC_TRY(probe_insert(&q, l->module, &probed, &l->probes));
	l->plain = l->module;
	l->module = probed;
	return TFMC_OK;
}

/* A slot of a result, or all of it. */
static bool add_value(struct driver *d, const struct probe_value *v, const struct named_tensor *all,
                      struct named_tensors *out)
{
	bool is_all = v->slot < 0;
	if (!is_all && (all->rank < 1 || v->slot >= all->dims[0]))
		return true;
	struct named_tensor *t = tensors_add(d, out, v->name, all->dtype, is_all ? all->rank : all->rank - 1,
	                                     is_all ? all->dims : all->dims + 1);
	if (!t)
		return false;
	size_t bytes = (size_t)t->count * (size_t)ir_dtype_bytes(t->dtype);
	if (bytes)
		memcpy(t->data, (const char *)all->data + (is_all ? 0 : (size_t)v->slot * bytes), bytes);
	t->probe = v;
	return true;
}

static bool is_result(const struct probe_values *values, const char *function, const char *name)
{
	for (size_t i = 0; i < values->n; i++)
		if (!strcmp(values->items[i].result, name) && !strcmp(values->items[i].function, function))
			return true;
	return false;
}

enum tfmc_status probes_split(struct driver *d, const struct probe_values *values, const char *function,
                              struct named_tensors *t)
{
	struct named_tensors out = {0};
	for (size_t i = 0; i < t->n; i++) {
		struct named_tensor *slot = NULL;
		if (is_result(values, function, t->items[i].name))
			continue;
		slot = ARENA_PUSH(&d->arena, &out);
		if (!slot)
			return TFMC_NO_MEMORY;
		*slot = t->items[i];
	}
	for (size_t i = 0; i < values->n; i++) {
		const struct probe_value *v = &values->items[i];
		const struct named_tensor *all = tensors_find(t, v->result);
		if (all && !strcmp(v->function, function) && !tensors_find(&out, v->name) &&
		    !add_value(d, v, all, &out))
			return TFMC_NO_MEMORY;
	}
	*t = out;
	return TFMC_OK;
}

const char *entry_function(const char *entry)
{
	return !strcmp(entry, "prefill") || !strcmp(entry, "step") ? "decode" : entry;
}
