/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass manager: runs the steps of a pipeline on a module. For each step it checks the stage of the module, runs
 * the pass into a new module and verifies that; IR text, diffs, dumps, remarks and reproducers go to struct
 * pass_sink. At most two modules exist at a time.
 */
#include <string.h>

#include "ir/support/diff.h"
#include "ir/text/text.h"
#include "ir/support/memory.h"
#include "ir/core/verify.h"
#include "passes/framework/pass_impl.h"
#include "passes/framework/rebuild.h"
#include "passes/framework/reproducer.h"
#include "passes/pipeline/run.h"

struct manager {
	struct diag_context *cx;
	const struct pipeline *pipeline;
	const struct pass_options *options;
	struct pass_report *report;
	size_t dump_number; /* of the next dump file, from 1 */
};

static pass_run *const pass_functions[] = {
#define PASS(id, name, from, to, summary) [PASS_##id] = pass_##id,
#include "passes/framework/passes.def"
};

/* ---- printing, dumps and reproducers ---- */

static void print_titled(const struct manager *g, const char *when, const char *pass, const struct buf *text)
{
	struct buf title;
	buf_init(&title);
	buf_printf(&title, "%s %s", when, pass);
	g->options->sink.print(g->options->sink.user, title.data, text);
	buf_destroy(&title);
}

static void print_module(const struct manager *g, struct buf *out, const struct ir_module *m)
{
	ir_print(out, g->options->no_locations ? NULL : g->cx, m);
}

static void print_module_titled(const struct manager *g, const char *when, const char *pass,
                                const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	print_module(g, &text, m);
	print_titled(g, when, pass, &text);
	buf_destroy(&text);
}

/* Unified diff of the IR text. Printed without locations: a moved op would differ by its location alone. */
static void print_diff(const struct manager *g, const char *pass, const struct ir_module *before,
                       const struct ir_module *after)
{
	struct buf a, b, text;
	buf_init(&a);
	buf_init(&b);
	buf_init(&text);
	ir_print(&a, NULL, before);
	ir_print(&b, NULL, after);
	const struct diff_text old = {"before", a.data, a.len}, new = {pass, b.data, b.len};
	if (diff_unified(&text, &old, &new))
		print_titled(g, "diff of", pass, &text);
	buf_destroy(&a);
	buf_destroy(&b);
	buf_destroy(&text);
}

/* --print-ir-before */
static void print_before(const struct manager *g, const char *pass, const struct ir_module *m)
{
	const struct name_list *w = &g->options->print_before;
	if (g->options->sink.print != NULL && (name_list_has(w, "all") || name_list_has(w, pass)))
		print_module_titled(g, "before", pass, m);
}

/* --print-ir-after (`changed` compares structure, not names or locations) and --diff */
static void print_after(const struct manager *g, const char *pass, const struct ir_module *before,
                        const struct ir_module *after)
{
	const struct name_list *print = &g->options->print_after, *diff = &g->options->diff;
	bool is_wanted = name_list_has(print, "all") || name_list_has(print, pass);
	bool is_diff = name_list_has(diff, "all") || name_list_has(diff, pass);
	bool is_changed = name_list_has(print, "changed") || is_diff;

	if (g->options->sink.print == NULL)
		return;
	is_changed = is_changed && ir_structure_hash(before) != ir_structure_hash(after);
	if (is_wanted || (is_changed && name_list_has(print, "changed")))
		print_module_titled(g, "after", pass, after);
	if (is_changed && is_diff)
		print_diff(g, pass, before, after);
}

/* --dump-dir: file NN-pass[.variant].tir */
static void dump_after(struct manager *g, const char *pass, const struct ir_module *m)
{
	struct buf text, name;
	size_t number = g->dump_number++;
	if (g->options->sink.dump == NULL)
		return;
	buf_init(&text);
	buf_init(&name);
	const char *variant = g->options->variant;
	buf_printf(&name, "%02zu-%s%s%s.tir", number, pass, variant != NULL ? "." : "",
	           variant != NULL ? variant : "");
	print_module(g, &text, m);
	g->options->sink.dump(g->options->sink.user, name.data, &text);
	buf_destroy(&name);
	buf_destroy(&text);
}

/* The IR before step `step` with the head (reproducer.h) that lets `tfmc opt` run the remaining steps again. */
static void write_reproducer(const struct manager *g, size_t step, const struct ir_module *m)
{
	const struct pipeline remaining = {g->pipeline->items + step, g->pipeline->n - step, 0};
	struct buf text;
	if (g->options->sink.reproducer == NULL)
		return;
	buf_init(&text);
	reproducer_print(&text, &remaining, g->options);
	ir_print(&text, g->cx, m);
	g->options->sink.reproducer(g->options->sink.user, &text);
	buf_destroy(&text);
}

/* ---- running ---- */

static double read_clock(const struct manager *g)
{
	return g->options->sink.clock != NULL ? g->options->sink.clock(g->options->sink.user) : 0;
}

/* The context of one step; fuel is unlimited for a pass without that setting. */
static struct pass_context pass_context_of(const struct manager *g, const struct pipeline_step *step,
                                           struct arena *arena)
{
	int fuel = pass_setting_find(step->pass, "fuel");
	return (struct pass_context){.cx = g->cx,
	                             .arena = arena,
	                             .options = g->options,
	                             .report = g->report,
	                             .step = step,
	                             .fuel = fuel >= 0 ? step->settings[fuel] : INT64_MAX};
}

/* Runs one pass into the empty module `out` and verifies it, with both times in the report. A result that does not
 * verify is a fault of the pass, TFMC_INTERNAL. Remarks are emitted also after a failure, while the arena with their
 * strings exists. memory_stage: named in the message if memory runs out. */
static enum tfmc_status run_pass(struct manager *g, const struct pipeline_step *step,
                                 const struct ir_module *in, struct ir_module *out)
{
	struct arena arena;
	struct pass_context p = pass_context_of(g, step, &arena);
	double begin = read_clock(g);

	memory_stage("running the pass", step->pass->name);
	if (in->stage != step->pass->from)
		return pass_internal_error(&p, (struct ir_loc){0},
		                           "the module is not at the stage that this pass reads");
	arena_init(&arena);
	enum tfmc_status st = pass_functions[step->pass->id](&p, in, out);
	if (st == TFMC_OK && arena_failed(&arena))
		st = TFMC_NO_MEMORY;
	pass_emit_remarks(&p);
	arena_destroy(&arena);
	double end = read_clock(g);
	if (st == TFMC_OK) {
		out->stage = step->pass->to;
		st = ir_verify(out, g->cx);
		st = st == TFMC_INVALID ? TFMC_INTERNAL : st;
	}
	ARENA_ADD(&g->report->arena, &g->report->times,
	          (struct pass_time){step->pass->name, end - begin, read_clock(g) - end});
	return st;
}

/* Reports that the pass reads another stage than that of m. Returns TFMC_INVALID, since the user wrote the
 * pipeline. */
static enum tfmc_status report_wrong_stage(struct manager *g, const struct pass_desc *pass,
                                           const struct ir_module *m)
{
	static const char *const stages[] = {
	        [STAGE_GRAPH] = "graph", [STAGE_GROUPS] = "groups", [STAGE_PLAN] = "plan"};
	diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
	           "the pass %s works on the stage %s, here the IR is at stage %s", pass->name,
	           stages[pass->from], stages[m->stage]);
	return TFMC_INVALID;
}

/* Runs step i on *m, or on `input` while *m is NULL. On success *m is the new module and the old *m is destroyed;
 * on failure *m is unchanged. `after` of the sink sees the result when *m is set, so passes_run destroys it if the
 * sink rejects it. */
static enum tfmc_status run_step(struct manager *g, size_t i, const struct ir_module *input,
                                 struct ir_module **m)
{
	const struct pipeline_step *step = &g->pipeline->items[i];
	const struct ir_module *before = *m != NULL ? *m : input;

	if (before->stage != step->pass->from)
		return report_wrong_stage(g, step->pass, before);
	struct ir_module *after = ir_module_create_like(before);
	if (after == NULL)
		return TFMC_NO_MEMORY;
	print_before(g, step->pass->name, before);
	enum tfmc_status st = run_pass(g, step, before, after);
	if (st != TFMC_OK) {
		/* Other failures are of the input or of memory; with `reproduce` one of the whole run exists. */
		if (st == TFMC_INTERNAL && !g->options->reproduce)
			write_reproducer(g, i, before);
		ir_module_destroy(after);
		return st;
	}
	print_after(g, step->pass->name, before, after);
	dump_after(g, step->pass->name, after);
	progress_report(g->options->sink.progress, "passes", "passes", i + 1, g->pipeline->n);
	if (*m != NULL)
		ir_module_destroy(*m);
	*m = after;
	const struct pass_sink *sink = &g->options->sink;
	bool accepted = sink->after == NULL || sink->after(sink->user, step->pass->name, after);
	return accepted ? TFMC_OK : TFMC_INVALID;
}

/* The result of an empty pipeline: a copy, which the caller destroys like any other result. No pass runs: pass
 * 0 only completes the context that rebuild_module needs. */
static enum tfmc_status copy_module(struct manager *g, const struct ir_module *in, struct ir_module **out)
{
	struct arena arena;
	const struct pipeline_step step = {.pass = pass_at(0)};
	struct pass_context p = pass_context_of(g, &step, &arena);

	*out = ir_module_create_like(in);
	if (*out == NULL)
		return TFMC_NO_MEMORY;
	arena_init(&arena);
	enum tfmc_status st = rebuild_module(&p, in, *out, NULL, NULL);
	arena_destroy(&arena);
	return st;
}

/* Every word must be the name of a pass, `all` or `more` (`all` again if there is no third); else a diagnostic
 * that begins with `what`, and false. */
static bool check_pass_names(const struct manager *g, const struct name_list *w, const char *more,
                             const char *what)
{
	for (size_t i = 0; i < w->n; i++) {
		bool known = pass_find(w->items[i]) != NULL || strcmp(w->items[i], "all") == 0;
		if (known || strcmp(w->items[i], more) == 0)
			continue;
		struct buf by;
		buf_init(&by);
		buf_printf(&by, "%s: ", what);
		pass_report_unknown(g->cx, by.data, w->items[i]);
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

/*
 * --require-fusion is checked by the pass that performs the fusion; a pipeline without that pass would silently
 * accept.
 */
static bool check_required_fusion(const struct manager *g, const char *kind)
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
		           "'%s' is not a fusion that can be required; attention and softmax are", kind);
	return false;
}

/* Checks the names in the options before anything runs. False after a diagnostic. */
static bool check_options(const struct manager *g)
{
	const struct pass_options *o = g->options;
	if (!check_pass_names(g, &o->print_before, "all", "print before") ||
	    !check_pass_names(g, &o->print_after, "changed", "print after") ||
	    !check_pass_names(g, &o->diff, "all", "diff"))
		return false;
	if (o->stop_after != NULL && !has_pass(g, o->stop_after)) {
		if (pass_find(o->stop_after) == NULL)
			pass_report_unknown(g->cx, "stop after: ", o->stop_after);
		else
			diag_error(g->cx, LOC_NONE, DIAG_PIPELINE,
			           "stop after: the pipeline does not have the pass '%s'", o->stop_after);
		return false;
	}
	for (size_t i = 0; i < o->require_fusion.n; i++)
		if (!check_required_fusion(g, o->require_fusion.items[i]))
			return false;
	return true;
}

/* Options are checked before anything runs. stop_after ends the pipeline after the first pass of that name. */
enum tfmc_status passes_run(struct diag_context *cx, const struct pipeline *p,
                            const struct pass_options *options, const struct ir_module *in,
                            struct ir_module **out, struct pass_report *report)
{
	struct pass_report local;
	struct manager g = {cx, p, options, report, options->first_number > 0 ? options->first_number : 1};
	enum tfmc_status st = check_options(&g) ? TFMC_OK : TFMC_INVALID;

	pass_report_init(&local);
	if (report == NULL)
		g.report = &local;
	*out = NULL;
	if (st == TFMC_OK && options->reproduce)
		write_reproducer(&g, 0, in);
	for (size_t i = 0; i < p->n && st == TFMC_OK; i++) {
		st = run_step(&g, i, in, out);
		if (options->stop_after != NULL && strcmp(p->items[i].pass->name, options->stop_after) == 0)
			break;
	}
	if (st == TFMC_OK && *out == NULL)
		st = copy_module(&g, in, out);
	if (st != TFMC_OK && *out != NULL) {
		ir_module_destroy(*out);
		*out = NULL;
	}
	pass_report_destroy(&local);
	return st;
}
