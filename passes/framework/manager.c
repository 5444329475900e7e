/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs pipelines: makes the next module, verifies it, shows it to the sink.
 * Holds at most two modules at a time.
 */
#include "passes/framework/manager.h"

#include <stdarg.h>
#include <string.h>

#include "ir/support/memory.h"
#include "ir/verify/verify.h"
#include "passes/framework/rebuild.h"

static pass_run *const runs[] = {
#define PASS(id, name, from, to, summary) [PASS_##id] = pass_##id,
#include "passes/framework/passes.def"
};

/* ---- what passes use ---- */

void pass_count(struct pass_context *p, const char *name, int64_t n)
{
	const char *pass = p->step->pass->name;
	for (size_t i = 0; i < p->report->counters.n; i++) {
		struct pass_counter *c = &p->report->counters.items[i];
		if (strcmp(c->pass, pass) == 0 && strcmp(c->name, name) == 0) {
			c->value += n;
			return;
		}
	}
	ARENA_ADD(&p->report->arena, &p->report->counters, (struct pass_counter){pass, name, n});
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool same_remark(const struct said_remark *a, const struct said_remark *b)
{
	return a->at.source == b->at.source && a->at.line == b->at.line && a->at.col == b->at.col &&
	       a->about.is_missed == b->about.is_missed && same_text(a->about.function, b->about.function) &&
	       same_text(a->about.path, b->about.path) && same_text(a->about.text, b->about.text);
}

/* Counts a remark that was made before. */
static void remark(struct pass_context *p, struct ir_loc loc, bool is_missed, const char *text)
{
	struct said_remark r = {loc.at,
	                        {.pass = p->step->pass->name,
	                         .function = p->function != NULL ? arena_strdup(p->arena, p->function) : NULL,
	                         .path = loc.path != NULL ? arena_strdup(p->arena, loc.path) : NULL,
	                         .text = text,
	                         .count = 1,
	                         .is_missed = is_missed}};
	for (size_t i = 0; i < p->remarks.n; i++) {
		if (same_remark(&p->remarks.items[i], &r)) {
			p->remarks.items[i].about.count++;
			return;
		}
	}
	ARENA_ADD(p->arena, &p->remarks, r);
}

static void tell_remarks(const struct pass_context *p)
{
	for (size_t i = 0; i < p->remarks.n; i++)
		diag_remark_about(p->cx, p->remarks.items[i].at, &p->remarks.items[i].about);
}

void pass_remark(struct pass_context *p, struct ir_loc loc, const char *fmt, ...)
{
	if (!p->options->remarks)
		return;
	va_list ap;
	va_start(ap, fmt);
	remark(p, loc, false, arena_vprintf(p->arena, fmt, ap));
	va_end(ap);
}

void pass_missed(struct pass_context *p, struct ir_loc loc, const char *fmt, ...)
{
	if (!p->options->remarks)
		return;
	va_list ap;
	va_start(ap, fmt);
	remark(p, loc, true, arena_vprintf(p->arena, fmt, ap));
	va_end(ap);
}

int64_t pass_take_fuel(struct pass_context *p)
{
	if (p->fuel <= 0)
		return 0;
	p->fuel--;
	return ++p->applied;
}

void pass_applied(struct pass_context *p, int64_t number, const char *what, struct ir_loc loc)
{
	const struct pass_sink *s = &p->options->sink;
	if (s->applied != NULL)
		s->applied(s->user, p->step->pass->name, number, what, loc);
}

bool pass_requires(const struct pass_context *p, const char *kind)
{
	return pass_words_have(&p->options->require_fusion, kind);
}

enum tfmc_status pass_internal(struct pass_context *p, struct ir_loc loc, const char *what)
{
	diag_error(p->cx, loc.at, DIAG_INTERNAL, "%s: %s", p->step->pass->name, what);
	return TFMC_INTERNAL;
}

/* ---- running ---- */

static double now(const struct manager *g)
{
	return g->options->sink.clock != NULL ? g->options->sink.clock(g->options->sink.user) : 0;
}

static enum tfmc_status run_step(struct manager *g, const struct pipeline_step *step,
                                 const struct ir_module *in, struct ir_module *out)
{
	struct arena arena;
	int fuel = pass_setting_find(step->pass, "fuel");
	struct pass_context p = {.cx = g->cx,
	                         .arena = &arena,
	                         .options = g->options,
	                         .report = g->report,
	                         .step = step,
	                         .fuel = INT64_MAX};
	double begin = now(g);

	memory_stage("running the pass", step->pass->name);
	if (fuel >= 0)
		p.fuel = step->settings[fuel];
	if (in->stage != step->pass->from)
		return pass_internal(&p, (struct ir_loc){0},
		                     "the module is not at the stage that this pass reads");
	arena_init(&arena);
	enum tfmc_status st = runs[step->pass->id](&p, in, out);
	if (st == TFMC_OK && arena_failed(&arena))
		st = TFMC_NO_MEMORY;
	tell_remarks(&p);
	arena_destroy(&arena);
	double end = now(g);
	if (st == TFMC_OK) {
		out->stage = step->pass->to;
		st = ir_verify(out, g->cx);
		st = st == TFMC_INVALID ? TFMC_INTERNAL : st;
	}
	ARENA_ADD(&g->report->arena, &g->report->times,
	          (struct pass_time){step->pass->name, end - begin, now(g) - end});
	return st;
}

static bool accepted(const struct manager *g, const char *pass, const struct ir_module *m)
{
	return g->options->sink.after == NULL || g->options->sink.after(g->options->sink.user, pass, m);
}

static enum tfmc_status wrong_stage(struct manager *g, const struct pass_desc *pass,
                                    const struct ir_module *m)
{
	static const char *const stages[] = {
	        [STAGE_GRAPH] = "graph", [STAGE_GROUPS] = "groups", [STAGE_PLAN] = "plan"};
	diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
	           "the pass %s works on the stage %s, here the IR is at stage %s", pass->name,
	           stages[pass->from], stages[m->stage]);
	return TFMC_INVALID;
}

/* One step. On success the old module is gone (unless it is the input) and *m is the new one. */
static enum tfmc_status advance(struct manager *g, size_t i, const struct ir_module *input,
                                struct ir_module **m)
{
	const struct pipeline_step *step = &g->pipeline->items[i];
	const struct ir_module *before = *m != NULL ? *m : input;

	if (before->stage != step->pass->from)
		return wrong_stage(g, step->pass, before);
	struct ir_module *after = ir_module_create_like(before);
	if (after == NULL)
		return TFMC_NO_MEMORY;
	manager_show_before(g, step->pass->name, before);
	enum tfmc_status st = run_step(g, step, before, after);
	if (st != TFMC_OK) {
		if (st == TFMC_INTERNAL && !g->options->reproduce)
			manager_reproduce(g, i, before);
		ir_module_destroy(after);
		return st;
	}
	manager_show_after(g, step->pass->name, before, after);
	manager_dump(g, step->pass->name, after);
	progress_report(g->options->sink.progress, "passes", "passes", i + 1, g->pipeline->n);
	if (*m != NULL)
		ir_module_destroy(*m);
	*m = after;
	return accepted(g, step->pass->name, after) ? TFMC_OK : TFMC_INVALID;
}

static enum tfmc_status copy(struct manager *g, const struct ir_module *in, struct ir_module **out)
{
	struct arena arena;
	const struct pipeline_step step = {.pass = pass_at(0)};
	struct pass_context p = {.cx = g->cx,
	                         .arena = &arena,
	                         .options = g->options,
	                         .report = g->report,
	                         .step = &step,
	                         .fuel = INT64_MAX};

	*out = ir_module_create_like(in);
	if (*out == NULL)
		return TFMC_NO_MEMORY;
	arena_init(&arena);
	enum tfmc_status st = rebuild_module(&p, in, *out, NULL, NULL);
	arena_destroy(&arena);
	return st;
}

static bool check_words(const struct manager *g, const struct pass_words *w, const char *more,
                        const char *what)
{
	for (size_t i = 0; i < w->n; i++) {
		bool known = pass_find(w->items[i]) != NULL || strcmp(w->items[i], "all") == 0;
		if (known || strcmp(w->items[i], more) == 0)
			continue;
		struct buf by;
		buf_init(&by);
		buf_printf(&by, "%s: ", what);
		pass_unknown(g->cx, by.data, w->items[i]);
		buf_destroy(&by);
		return false;
	}
	return true;
}

static bool has_pass(const struct manager *g, const char *name)
{
	for (size_t i = 0; i < g->pipeline->n; i++)
		if (strcmp(g->pipeline->items[i].pass->name, name) == 0)
			return true;
	return false;
}

/* A fusion is required of the pass that forms it; a pipeline without that pass would never say no. */
static bool check_required(const struct manager *g, const char *kind)
{
	const char *pass = strcmp(kind, "attention") == 0 ? "fuse-attention"
	                   : strcmp(kind, "softmax") == 0 ? "fuse-softmax"
	                                                  : NULL;
	if (pass != NULL && has_pass(g, pass))
		return true;
	if (pass != NULL)
		diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
		           "the fusion '%s' is required, but the pipeline does not have the pass %s", kind,
		           pass);
	else
		diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
		           "'%s' is no fusion that can be required; there are attention and softmax", kind);
	return false;
}

static bool check_options(const struct manager *g)
{
	const struct pass_options *o = g->options;
	if (!check_words(g, &o->print_before, "all", "print before") ||
	    !check_words(g, &o->print_after, "changed", "print after") ||
	    !check_words(g, &o->diff, "all", "diff"))
		return false;
	if (o->stop_after != NULL && !has_pass(g, o->stop_after)) {
		if (pass_find(o->stop_after) == NULL)
			pass_unknown(g->cx, "stop after: ", o->stop_after);
		else
			diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
			           "stop after: the pipeline does not have the pass '%s'", o->stop_after);
		return false;
	}
	for (size_t i = 0; i < o->require_fusion.n; i++)
		if (!check_required(g, o->require_fusion.items[i]))
			return false;
	return true;
}

enum tfmc_status passes_run(struct diag_context *cx, const struct pipeline *p,
                            const struct pass_options *options, const struct ir_module *in,
                            struct ir_module **out, struct pass_report *report)
{
	struct pass_report own;
	struct manager g = {cx, p, options, report, options->first_number > 0 ? options->first_number : 1};
	enum tfmc_status st = check_options(&g) ? TFMC_OK : TFMC_INVALID;

	pass_report_init(&own);
	if (report == NULL)
		g.report = &own;
	*out = NULL;
	if (st == TFMC_OK && options->reproduce)
		manager_reproduce(&g, 0, in);
	for (size_t i = 0; i < p->n && st == TFMC_OK; i++) {
		st = advance(&g, i, in, out);
		if (options->stop_after != NULL && strcmp(p->items[i].pass->name, options->stop_after) == 0)
			break;
	}
	if (st == TFMC_OK && *out == NULL)
		st = copy(&g, in, out);
	if (st != TFMC_OK && *out != NULL) {
		ir_module_destroy(*out);
		*out = NULL;
	}
	pass_report_destroy(&own);
	return st;
}
