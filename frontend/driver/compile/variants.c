/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variants. --variants: one object for several levels of a processor; --target=A,opencl: also with kernels for OpenCL
 * devices. Passes run once up to the layout of weights, then once for each variant: all variants read the same packed
 * weights.
 */
#include "frontend/driver/compile/compile.h"

#include <string.h>

/* ---- which ---- */

/* The target of an architecture by its name or its level (v3); NULL: none. */
static const struct target *find_level(enum target_arch arch, const char *name)
{
	for (size_t i = 0; target_level_at(i); i++) {
		const struct target *t = target_level_at(i);
		if (t->arch == arch && (!strcmp(t->name, name) || !strcmp(target_level_name(t), name)))
			return t;
	}
	return NULL;
}

/* "v2, v3, v4": all levels of an architecture, for messages. */
static const char *list_levels(struct driver *d, enum target_arch arch)
{
	const char *known = "";
	for (size_t i = 0; target_level_at(i); i++)
		if (target_level_at(i)->arch == arch)
			known = arena_printf(&d->arena, "%s%s%s", known, *known ? ", " : "",
			                     target_level_name(target_level_at(i)));
	return known;
}

/* TFMC_INVALID after a diagnostic: an option needs a single target, or kernels for devices have no levels. */
static enum tfmc_status check_variant_options(struct driver *d, const struct target *t)
{
	const struct driver_options *o = &d->options;
	const char *what = o->mcpu         ? "-mcpu names one processor, --variants several"
	                   : o->stop_after ? "--stop-after ends in front of an object; choose -mcpu"
	                   : o->reproducer ? "--reproducer writes one module; choose -mcpu"
	                                   : NULL;
	if (what) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--variants=%s: %s", o->variants, what);
		return TFMC_INVALID;
	}
	if (t->arch != ARCH_OPENCL)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_TARGET, "--variants=%s: kernels for %s have no variants",
	           o->variants, t->name);
	return TFMC_INVALID;
}

/* Inserts a target in the order of the target table, from the least to the most demanding of one architecture.
 * TFMC_INVALID after a diagnostic: it is given twice. */
static enum tfmc_status insert_variant(struct driver *d, struct variant_set *set, const struct target *t)
{
	size_t at = set->n;
	for (size_t i = 0; i < set->n; i++)
		if (set->items[i].target == t) {
			diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s is given twice",
			           target_level_name(t));
			return TFMC_INVALID;
		}
	for (; at > 0 && t->arch == set->items[0].target->arch && set->items[at - 1].target > t; at--)
		set->items[at] = set->items[at - 1];
	set->items[at] = (struct backend_variant){.target = t};
	set->n++;
	return TFMC_OK;
}

/* Adds the elements of --target after the first one: kernels for OpenCL devices, in addition to the processor's.
 * TFMC_INVALID after a diagnostic: another target. */
static enum tfmc_status add_opencl(struct driver *d, struct variant_set *set)
{
	struct option_list names = {0};
	driver_split_list(d, d->options.target, &names);
	for (size_t i = 1; i < names.n; i++) {
		const struct target *t;
		if (target_choose(names.items[i], NULL, &t) == TARGET_CHOSEN && t->arch == ARCH_OPENCL) {
			TFMC_TRY(insert_variant(d, set, t));
			continue;
		}
		if (!driver_reports_removed_target(d, LOC_NONE, names.items[i]))
			diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
			           "--target=%s: after the first target only opencl may follow, not '%s'",
			           d->options.target, names.items[i]);
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* Sets *out to the processor's variants: the levels of --variants, or the one target of the options. */
static enum tfmc_status find_cpu_variants(struct driver *d, struct variant_set *out)
{
	struct option_list names = {0};
	const struct target *base;
	if (!d->options.variants) {
		base = driver_best_target(d, d->options.mcpu);
		*out = (struct variant_set){.n = 1, .items = {{.target = base}}};
		return base ? TFMC_OK : TFMC_INVALID;
	}
	if (!(base = driver_find_target(d, NULL)))
		return TFMC_INVALID;
	TFMC_TRY(check_variant_options(d, base));
	driver_split_list(d, d->options.variants, &names);
	for (size_t i = 0; i < names.n; i++) {
		const struct target *t = find_level(base->arch, names.items[i]);
		if (!t) {
			diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
			           "--variants: there is no level %s; known are %s", names.items[i],
			           list_levels(d, base->arch));
			return TFMC_INVALID;
		}
		if (out->n == BACKEND_VARIANTS_MAX) /* no architecture has more levels */
			break;
		TFMC_TRY(insert_variant(d, out, t));
	}
	if (out->n > 0)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--variants requires levels, such as v2,v3,v4");
	return TFMC_INVALID;
}

enum tfmc_status driver_find_variants(struct driver *d, struct variant_set *out)
{
	*out = (struct variant_set){0};
	TFMC_TRY(find_cpu_variants(d, out));
	return add_opencl(d, out);
}

/* ---- the section `target` of a model file ---- */

/* Whether the outputs of a command may have variants: objects may; IR, C and reproducers are for one target. */
static bool takes_variants(const struct driver_options *o)
{
	const unsigned with = COMMAND_COMPILE | COMMAND_RUN | COMMAND_GENERATE | COMMAND_SCORE |
	                      COMMAND_VERIFY | COMMAND_BENCH;
	return (with & (unsigned)o->command) != 0 && o->emit.n == 0 && !o->stop_after && !o->reproducer;
}

/* Checks the variants of the model's section `target` and, for commands that have some, sets --variants. */
static enum tfmc_status apply_model_variants(struct driver *d, const struct frontend_target *t)
{
	const char *list = "";
	const struct target *base;
	if (target_choose(t->triple, NULL, &base) != TARGET_CHOSEN)
		base = target_level_at(
		        0); /* no target fits this machine: any architecture serves the check */
	for (size_t i = 0; i < t->n_variants; i++) {
		if (!find_level(base->arch, t->variants[i])) {
			diag_error(&d->diag, t->variants_loc, DIAG_TARGET,
			           "target: there is no level '%s'; known are %s", t->variants[i],
			           list_levels(d, base->arch));
			return TFMC_INVALID;
		}
		list = arena_printf(&d->arena, "%s%s%s", list, i > 0 ? "," : "", t->variants[i]);
	}
	if (takes_variants(&d->options))
		d->options.variants = list;
	return TFMC_OK;
}

enum tfmc_status driver_apply_model_target(struct driver *d, const struct frontend_target *t)
{
	struct driver_options *o = &d->options;
	const struct target *row;
	if (t->loc.line == 0)
		return TFMC_OK;
	if (!o->opt0 && !o->opt1 && !o->opt2 && !o->passes) {
		o->opt0 = t->opt == 0;
		o->opt1 = t->opt == 1;
	}
	if (o->target || o->mcpu || o->variants) /* the three belong together: one given replaces all */
		return TFMC_OK;
	if ((t->triple || t->cpu) && target_choose(t->triple, t->cpu, &row) != TARGET_CHOSEN) {
		if (driver_reports_removed_target(d, t->loc, t->triple) ||
		    driver_reports_removed_target(d, t->loc, t->cpu))
			return TFMC_INVALID;
		diag_error(&d->diag, t->loc, DIAG_TARGET, "target: there is no %s%s%s",
		           t->triple ? t->triple : "", t->triple && t->cpu ? " with processor " : "",
		           t->cpu ? t->cpu : "");
		return TFMC_INVALID;
	}
	o->target = t->triple;
	o->mcpu = t->cpu;
	return t->n_variants > 0 ? apply_model_variants(d, t) : TFMC_OK;
}

/* ---- passes ---- */

/* The number of passes that all variants share: those up to `encode`, which fixes the layout of weights, or those
 * before `group` in a pipeline without it: groups depend on the target. */
static size_t count_shared_steps(const struct pipeline *p)
{
	size_t n = p->n;
	for (size_t i = p->n; i-- > 0;) {
		if (p->items[i].pass->id == PASS_encode)
			return i + 1;
		if (p->items[i].pass->id == PASS_group)
			n = i;
	}
	return n;
}

/* Runs the first `shared` passes once, then the remaining ones for each variant. No pass up to `encode` of a standard
 * pipeline reads the target, so that the first one's serves. Checks of --require-fusion were made in the shared
 * ones. */
static enum tfmc_status plan_each_variant(struct driver *d, const struct pipeline *p, struct variant_set *set,
                                          const struct ir_module *in, size_t shared)
{
	const struct pipeline head = {p->items, shared, 0};
	const struct pipeline remaining = {p->items + shared, p->n - shared, 0};
	struct pass_options options = driver_pass_options(d, set->items[0].target);
	struct ir_module *common = NULL;
	TFMC_TRY(driver_run_steps(d, &head, &options, in, &common));
	enum tfmc_status st = TFMC_OK;
	options.require_fusion = (struct name_list){0};
	/* dumps of passes are numbered through */
	options.first_number = shared + 1;
	for (size_t i = 0; i < set->n && st == TFMC_OK; i++) {
		struct ir_module *planned = NULL;
		options.target = set->items[i].target;
		options.variant = target_level_name(options.target);
		st = driver_run_steps(d, &remaining, &options, common, &planned);
		set->items[i].planned = planned;
	}
	ir_module_destroy(common);
	return st;
}

/* One target runs the whole pipeline at once, without a variant in the names of its dumps and reports. */
enum tfmc_status driver_plan_variants(struct driver *d, const struct ir_module *in, const char *pipeline,
                                      struct variant_set *set)
{
	struct pipeline p = {0};
	if (set->n == 1 && !d->options.variants) {
		struct ir_module *planned = NULL;
		enum tfmc_status st = driver_run_passes(d, in, pipeline, set->items[0].target, &planned);
		set->items[0].planned = planned;
		return st;
	}
	TFMC_TRY(pipeline_parse(&d->arena, &d->diag, pipeline, &p));
	enum tfmc_status st = plan_each_variant(d, &p, set, in, count_shared_steps(&p));
	driver_end_stage(d, "passes");
	return st;
}

void variant_set_destroy(struct variant_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->items[i].planned)
			ir_module_destroy((struct ir_module *)(uintptr_t)set->items[i].planned);
	*set = (struct variant_set){0};
}

/* ---- code size ---- */

uint64_t driver_code_bytes(struct driver *d, const struct code_names *names, const void *object, size_t bytes,
                           uint64_t *variants)
{
	struct arena *a = &d->arena;
	/* symbols: MODEL_.. of the interface, MODEL... inside, of several variants MODEL.LEVEL... */
	uint64_t remaining = backend_code_bytes(object, bytes, arena_printf(a, "%s_", names->model)) +
	                     backend_code_bytes(object, bytes, arena_printf(a, "%s.", names->model));
	for (size_t i = 0; i < names->n; i++) {
		const struct target *t = target_find(names->targets[i]);
		const char *level = t ? target_level_name(t) : names->targets[i];
		const char *prefix = names->n > 1 ? arena_printf(a, "%s.%s.", names->model, level)
		                                  : arena_printf(a, "%s.", names->model);
		variants[i] = backend_code_bytes(object, bytes, prefix);
		remaining -= variants[i];
	}
	return remaining;
}

/* The first target of the architecture with more vector lanes than t; NULL: none. */
static const struct target *next_wider(const struct target *t)
{
	for (size_t i = 0; target_level_at(i); i++)
		if (target_level_at(i)->arch == t->arch && target_level_at(i)->lanes > t->lanes)
			return target_level_at(i);
	return NULL;
}

void driver_remark_variants(struct driver *d, const struct variant_set *set, const struct buf *object)
{
	const struct target *t = set->items[0].target, *best = t;
	const char *levels = target_level_name(t);
	uint64_t more = 0, code;
	if (!d->options.remarks || set->n > 1 || !next_wider(t))
		return;
	code = backend_code_bytes(object->data, object->len,
	                          arena_printf(&d->arena, "%s.", set->items[0].planned->name));
	for (const struct target *u; (u = next_wider(best)) != NULL; best = u) {
		levels = arena_printf(&d->arena, "%s,%s", levels, target_level_name(u));
		/* an estimate: as much code as this one has */
		more += code;
	}
	const struct diag_remark about = {
	        .pass = "variants",
	        .text = arena_printf(
	                &d->arena,
	                "%s has %d times the lanes of %s; --variants=%s would add about %llu KB of code",
	                best->name, best->lanes / t->lanes, t->name, levels,
	                (unsigned long long)((more + 1023) / 1024)),
	        .is_missed = true};
	diag_remark_about(&d->diag, LOC_NONE, &about);
}
