/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc verify --after-each and --bisect: runs passes/pipeline on the module of the front end and reports the
 * findings. And --reduced-model.
 */
#include "frontend/driver/commands/verify.h"
#include "ir/text/text.h"
#include "passes/pipeline/shrink.h"
#include "passes/pipeline/validate.h"

static void print_validation(void *user, const struct validate_line *l)
{
	struct driver *d = user;
	const char *what = arena_printf(&d->arena, "%s after %s (%s)", l->func, l->pass, l->class);
	buf_printf(&d->out, "%-52s %12.3g %12.3g  %s  not rounded %.3g\n", what, l->error, l->bound,
	           l->ok ? "ok" : "FAILED", l->f64_error);
	(void)driver_flush_out(d);
}

/* " in encoder.layers.self", or nothing. */
static const char *describe_path(struct driver *d, struct ir_loc loc)
{
	return loc.path && loc.path[0] ? arena_printf(&d->arena, ", in %s", loc.path) : "";
}

/* The first pass that fails or changes results, its application, and the first value that changes. */
static void report_culprit(struct driver *d, const struct validate_culprit *c)
{
	const char *func = c->func ? c->func : "the module";
	if (c->fails)
		diag_error(&d->diag, LOC_NONE, DIAG_CHECK_FAILED, "%s is the first pass that fails", c->pass);
	else
		diag_error(&d->diag, LOC_NONE, DIAG_CHECK_FAILED, "%s is the first pass that changes %s%s%s",
		           c->pass, func, c->output ? ": its result " : "", c->output ? c->output : "");
	if (c->number)
		diag_note(&d->diag, c->loc.at, "application %lld of %s%s%s%s", (long long)c->number, c->pass,
		          c->what ? ": " : "", c->what ? c->what : "", describe_path(d, c->loc));
	if (c->op)
		diag_note(&d->diag, c->op_loc.at, "the first value that changes is %s%s%s%s",
		          c->value[0] ? "%" : "that of ", c->value[0] ? c->value : c->op,
		          c->value[0] ? arena_printf(&d->arena, " (%s)", c->op) : "",
		          describe_path(d, c->op_loc));
	buf_printf(&d->out, "bisect: step %zu of the pipeline, %s", c->step + 1, c->pass);
	if (c->number)
		buf_printf(&d->out, "{fuel=%lld}%s%s", (long long)c->number, c->what ? ", " : "",
		           c->what ? c->what : "");
	buf_char(&d->out, '\n');
}

static enum tfmc_status validate_module(struct driver *d, const struct ir_module *m,
                                        const struct weight_source *weights, bool *failed)
{
	const struct target *target = driver_best_target(d, d->options.mcpu);
	struct pass_options options = driver_pass_options(d, target);
	struct validate_culprit culprit;
	struct pipeline p = {0};
	bool found;
	if (!target)
		return TFMC_INVALID;
	TFMC_TRY(pipeline_parse(&d->arena, &d->diag, driver_pipeline(d), &p));
	struct validate v = {.cx = &d->diag,
	                     .arena = &d->arena,
	                     .pipeline = &p,
	                     .options = &options,
	                     .weights = weights,
	                     .line = print_validation,
	                     .user = d};
	TFMC_TRY(d->options.bisect ? validate_bisect(&v, m, &found, &culprit)
	                           : validate_after_each(&v, m, &found, &culprit));
	if (found)
		report_culprit(d, &culprit);
	else if (d->options.bisect)
		buf_str(&d->out, "bisect: the pipeline changes nothing\n");
	*failed = *failed || found;
	return TFMC_OK;
}

enum tfmc_status verify_passes(struct driver *d, struct loaded *l, bool *failed)
{
	struct shrunk small;
	if (d->options.exhaustive)
		return validate_module(d, l->module, &l->weights, failed);
	TFMC_TRY(module_shrink(l->module, &d->arena, &small));
	if (!small.module) {
		diag_warning(&d->diag, LOC_NONE, DIAG_CHECK_CASE, "the model is not shrunk: %s", small.why);
		return validate_module(d, l->module, &l->weights, failed);
	}
	if (d->options.verbose) {
		ir_print(&d->log, &d->diag, small.module);
		driver_flush_log(d);
	}
	enum tfmc_status st = validate_module(d, small.module, &small.weights, failed);
	ir_module_destroy(small.module);
	return st;
}

enum tfmc_status verify_reduced_model(struct driver *d, struct loaded *l, bool *failed)
{
	struct shrunk small;
	struct compiled c = {.all_workers = true};
	TFMC_TRY(module_shrink(l->module, &d->arena, &small));
	if (!small.module) {
		diag_error(&d->diag, LOC_NONE, DIAG_CHECK_CASE, "the model cannot be shrunk: %s", small.why);
		return TFMC_INVALID;
	}
	struct loaded copy = {.model = l->model, .module = small.module, .weights = small.weights};
	enum tfmc_status st = driver_compile_jit(d, &copy, (struct entry_names){0}, &c);
	if (st == TFMC_OK)
		st = verify_differential(d, &copy, &c, failed);
	compiled_destroy(&c);
	ir_module_destroy(small.module);
	return st;
}
