/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --probe: the results that passes/probe added to a module become tensors with the names of the probed values again.
 */
#include "frontend/driver/run/probes.h"

#include <string.h>

#include "ir/algorithms/glob.h"

/* Adds slot v->slot of a result that collects the iterations of a repeat, or (slot < 0) all of it. A slot that
 * this call did not fill is skipped. */
static bool add_probed_value(struct driver *d, const struct probe_value *v, const struct named_tensor *all,
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

static bool is_probe_result(const struct probe_values *values, const char *function, const char *name)
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
		if (is_probe_result(values, function, t->items[i].name))
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
		    !add_probed_value(d, v, all, &out))
			return TFMC_NO_MEMORY;
	}
	*t = out;
	return TFMC_OK;
}

const char *entry_function(const char *entry)
{
	return !strcmp(entry, "prefill") || !strcmp(entry, "step") ? "decode" : entry;
}

static void print_probe(struct driver *d, const struct ir_module *m, const struct ir_func *f,
                        const struct probe_site *site, const char *name)
{
	const struct ir_type *t = ir_type_of(f, site->op->results[site->result]);
	const struct loc at = site->op->loc.at;
	buf_printf(&d->out, "%-48s %s[", name, ir_dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++) {
		bool is_keys = site->part == PROBE_PROBABILITIES &&
		               i == 3; /* attention weights are [B, H, S, T], not [B, H, S, E] */
		buf_str(&d->out, i ? "," : "");
		ir_dim_print(&d->out, m->dims,
		             is_keys ? ir_type_of(f, site->op->operands[1])->dims[2] : t->dims[i], false);
	}
	buf_char(&d->out, ']');
	if (at.source)
		buf_printf(&d->out, "  %s:%u", diag_source_name(&d->diag, at.source), at.line);
	buf_char(&d->out, '\n');
}

/* matched[patterns]: set for those that a name matches. */
static enum tfmc_status print_names(struct driver *d, const struct ir_module *m, const char *function,
                                    bool *matched)
{
	const struct ir_func *f = ir_find_func(m, function);
	struct probe_request q = {.cx = &d->diag, .arena = &d->arena};
	struct probe_sites sites = {0};
	struct probe_names names = {0};
	if (!f)
		return TFMC_OK;
	TFMC_TRY(probe_list(&q, f, &sites, &names));
	buf_printf(&d->out, "%s:\n", function);
	for (size_t i = 0; i < names.n; i++) {
		bool found = false;
		for (size_t k = 0; k < d->options.probe.n; k++) {
			bool fits = glob_match(d->options.probe.items[k], names.items[i].name);
			matched[k] = matched[k] || fits;
			found = found || fits;
		}
		if (found)
			print_probe(d, m, f, &sites.items[names.items[i].site], names.items[i].name);
	}
	return TFMC_OK;
}

enum exit_code inspect_probes(struct driver *d)
{
	struct loaded l;
	bool *matched = ARENA_ARRAY(&d->arena, bool, d->options.probe.n + 1);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !matched)
		st = TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = print_names(d, l.module, "run", matched);
	if (st == TFMC_OK)
		st = print_names(d, l.module, "encode", matched);
	for (size_t k = 0; st == TFMC_OK && k < d->options.probe.n; k++) {
		if (matched[k])
			continue;
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "no value of the model matches '%s'",
		           d->options.probe.items[k]);
		st = TFMC_INVALID;
	}
	loaded_destroy(&l);
	return exit_code_of(st);
}
