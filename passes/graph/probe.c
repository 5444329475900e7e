/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inserting probes: patterns to sites, and a copy of the module with additional results. Functions that are not
 * probed are copied unchanged.
 */
#include "passes/graph/probe.h"

#include <ctype.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/support/glob.h"
#include "ir/support/strmap.h"

/* The interface of an object has at most 128 tensors for an entry. */
#define MAX_SITES 96
#define NEAR_MAX  4096 /* names that are considered for suggestions */

struct probe_inserter {
	const struct probe_request *q;
	struct ir_module *out;
	struct probe_values *values;
	bool *matched; /* [n_patterns] */
	struct {
		const char **items;
		size_t n, cap;
	} all_names; /* names, for suggestions */
	size_t n_results;
};

/* A pattern matches the name. All matching patterns are marked, so that all_matched() reports the others. */
static bool is_wanted(struct probe_inserter *p, const char *name)
{
	bool found = false;
	for (size_t i = 0; i < p->q->n_patterns; i++) {
		if (!glob_match(p->q->patterns[i], name))
			continue;
		p->matched[i] = true;
		found = true;
	}
	return found;
}

/* A result of f, or of a site that is wanted already, has that name. */
static bool has_result(const struct ir_func *f, const struct probe_sites *sites, const char *name)
{
	for (size_t i = 0; i < f->n_results; i++)
		if (f->results[i].name && !strcmp(f->results[i].name, name))
			return true;
	for (size_t i = 0; i < sites->n; i++)
		if (sites->items[i].wanted && !strcmp(sites->items[i].result_name, name))
			return true;
	return false;
}

/* Result name for a value: "layers_self_attention_weights" for layers.2.self.attention.weights; a second one ends
 * in _2. Parts that are numbers (iterations) are left out: one result holds all iterations. */
static const char *name_result(struct probe_inserter *p, const struct ir_func *f,
                               const struct probe_sites *sites, const char *value)
{
	struct buf name;
	buf_init(&name);
	for (const char *part = value; *part; part += strcspn(part, "."), part += *part == '.') {
		size_t n = strcspn(part, ".");
		if (strspn(part, "0123456789") == n)
			continue;
		buf_str(&name, name.len ? "_" : "");
		for (size_t i = 0; i < n; i++)
			buf_char(&name, isalnum((unsigned char)part[i]) ? part[i] : '_');
	}
	const char *base = arena_strdup(p->q->arena, name.data), *text = base;
	for (size_t i = 2; has_result(f, sites, text) && i <= sites->n + f->n_results + 2; i++)
		text = arena_printf(p->q->arena, "%s_%zu", base, i);
	buf_destroy(&name);
	return text;
}

/* Marks a site as wanted in the iteration of n, and names its result at the first request. All iterations
 * between the first and the last requested one are stored. */
static void request_site(struct probe_inserter *p, const struct ir_func *f, const struct probe_sites *sites,
                         struct probe_site *s, const struct probe_name *n)
{
	int64_t iteration = n->iteration;
	if (!s->wanted) {
		s->result_name = p->q->by_path ? name_result(p, f, sites, n->name)
		                               : arena_printf(p->q->arena, "probe_%zu", p->n_results);
		p->n_results++;
	}
	s->first = s->wanted && s->first < iteration ? s->first : iteration;
	s->last = s->wanted && s->last > iteration ? s->last : iteration;
	s->wanted = true;
}

static void drop_unwanted(struct probe_sites *sites)
{
	size_t n = 0;
	for (size_t i = 0; i < sites->n; i++)
		if (sites->items[i].wanted)
			sites->items[n++] = sites->items[i];
	sites->n = n;
}

/* Marks the requested sites of a function and lists their values. A value's slot holds its iteration until the range
 * of iterations is known, then its position in the range; -1 outside of repeats. At most MAX_SITES, since an entry
 * of an object has at most 128 tensors. */
static enum tfmc_status select_sites(struct probe_inserter *p, const struct ir_func *f,
                                     struct probe_sites *sites)
{
	struct probe_names names = {0};
	size_t from = p->values->n, before = p->n_results;
	TFMC_TRY(probe_list(p->q, f, sites, &names));
	for (size_t i = 0; i < names.n; i++) {
		const struct probe_name *n = &names.items[i];
		struct probe_site *s = &sites->items[n->site];
		const char **near = p->all_names.n < NEAR_MAX ? ARENA_PUSH(p->q->arena, &p->all_names) : NULL;
		if (near)
			*near = n->name;
		if (p->q->attentions ? p->q->taken && !p->q->taken[i] : !is_wanted(p, n->name))
			continue;
		request_site(p, f, sites, s, n);
		struct probe_value *v = ARENA_PUSH(p->q->arena, p->values);
		if (!v)
			return TFMC_NO_MEMORY;
		*v = (struct probe_value){.name = n->name, .function = f->name, .f = f, .op = s->op};
		v->result = s->result_name;
		v->site = n->site;
		v->slot = n->iteration;
	}
	for (size_t i = from; i < p->values->n; i++) {
		struct probe_value *v = &p->values->items[i];
		const struct probe_site *s = &sites->items[v->site];
		v->slot = s->depth ? v->slot - s->first : -1;
	}
	drop_unwanted(sites);
	if (p->n_results - before <= MAX_SITES)
		return arena_failed(p->q->arena) ? TFMC_NO_MEMORY : TFMC_OK;
	diag_error(p->q->cx, f->loc.at, DIAG_OPTION,
	           "the patterns match %zu values of %s, at most %d at a time", p->n_results - before,
	           f->name, MAX_SITES);
	diag_note(p->q->cx, LOC_NONE, "rounds of a repeat count once");
	return TFMC_INVALID;
}

static bool is_requested(const struct probe_request *q, const char *function)
{
	for (size_t i = 0; i < q->n_functions; i++)
		if (!strcmp(q->functions[i], function))
			return true;
	return false;
}

/* Copies all functions; those requested get their probes as results. All weights are added first, in their order,
 * whether or not an op reads them, as rebuild_module() does for a literal copy. */
static enum tfmc_status insert_all(struct probe_inserter *p, const struct ir_module *in)
{
	for (size_t i = 0; i < in->weights.n; i++)
		if (!ir_add_weight(p->out, in->weights.items[i]))
			return TFMC_NO_MEMORY;
	for (size_t i = 0; i < in->funcs.n; i++) {
		const struct ir_func *f = in->funcs.items[i];
		struct probe_sites sites = {0};
		if (!is_requested(p->q, f->name)) {
			TFMC_TRY(probe_write(p->q, f, p->out, &sites)); /* without sites: an unchanged copy */
			continue;
		}
		TFMC_TRY(select_sites(p, f, &sites));
		TFMC_TRY(probe_write(p->q, f, p->out, &sites));
	}
	return TFMC_OK;
}

/* False after an error for each pattern that matches nothing. */
static bool all_matched(struct probe_inserter *p)
{
	bool ok = true;
	for (size_t i = 0; i < p->q->n_patterns; i++) {
		const char *pattern = p->q->patterns[i];
		if (p->matched[i])
			continue;
		const char *near = did_you_mean(p->q->arena, pattern, p->all_names.items, p->all_names.n);
		diag_error(p->q->cx, LOC_NONE, DIAG_OPTION, "no value of the model is called '%s'%s", pattern,
		           near);
		if (near[0] == '\0' && p->all_names.n > 0)
			diag_note(p->q->cx, LOC_NONE, "names are such as '%s' and '%s'",
			          p->all_names.items[0], p->all_names.items[p->all_names.n / 2]);
		ok = false;
	}
	return ok;
}

/* Patterns that match nothing are reported after all functions: a pattern needs to match in one of them. */
enum tfmc_status probe_insert(const struct probe_request *q, const struct ir_module *in,
                              struct ir_module **out, struct probe_values *values)
{
	struct probe_inserter p = {.q = q, .values = values};
	*out = NULL;
	if (in->stage != STAGE_GRAPH) {
		diag_error(q->cx, LOC_NONE, DIAG_UNSUPPORTED,
		           "not supported yet: probes of a module whose kernels are formed already");
		return TFMC_INVALID;
	}
	p.matched = ARENA_ARRAY(q->arena, bool, q->n_patterns + 1);
	p.out = p.matched ? ir_module_create_like(in) : NULL;
	if (!p.out)
		return TFMC_NO_MEMORY;
	p.out->stage = in->stage;
	enum tfmc_status st = insert_all(&p, in);
	if (st == TFMC_OK && !all_matched(&p))
		st = TFMC_INVALID;
	if (st == TFMC_OK)
		*out = p.out;
	else
		ir_module_destroy(p.out);
	return st;
}
