/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials of one function without state: passes, program, device, and the
 * interpreter on the graph the program came from.
 */
#include "tests/opencl/trial.h"

#include <string.h>

#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/random/random_transformer.h"

#define TRIAL_TOLERANCE 2e-4

void trial_init(struct trial *t, struct opencl_device *device, const char *target, const char *pipeline)
{
	*t = (struct trial){.device = device, .target = target_find(target), .pipeline = pipeline};
	arena_init(&t->arena);
	buf_init(&t->log);
	diag_init(&t->cx, diag_render_text, &t->log);
}

void trial_destroy(struct trial *t)
{
	diag_destroy(&t->cx);
	buf_destroy(&t->log);
	arena_destroy(&t->arena);
}

/* NULL is fine. */
static void show(struct trial *t, const struct ir_module *m)
{
	if (!m)
		return;
	buf_printf(&t->log, "\n--- %s at %s\n", t->target ? t->target->name : "no target", t->pipeline);
	ir_print(&t->log, &t->cx, m);
}

static enum tfmc_status plan(struct trial *t, const struct ir_module *graph, struct ir_module **out)
{
	struct pipeline p;
	const struct pass_options options = {.target = t->target};
	*out = NULL;
	TFMC_TRY(pipeline_parse(&t->arena, &t->cx, t->pipeline, &p));
	return passes_run(&t->cx, &p, &options, graph, out, NULL);
}

/* After a program was refused: nothing to try when it is not supported yet. */
static enum trial_result refused(const struct trial *t)
{
	bool known = t->log.data && strstr(t->log.data, "not supported yet");
	return known ? TRIAL_NOTHING : TRIAL_FAILED;
}

static bool same_bits(const struct interp_tensor *a, const struct interp_tensor *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(a[i].data, b[i].data, (size_t)interp_count(&a[i]) * sizeof(double)) != 0)
			return false;
	return true;
}

/* ---- one function ---- */

struct one {
	struct trial *t;
	const struct ir_module *graph;
	struct opencl_host *host;
	const struct ir_func *f;
	struct random_call call; /* with the interpreter's results on the graph */
};

static bool run_on(struct one *o, int64_t cap, struct interp_tensor *outputs)
{
	const struct opencl_call call = {.function = o->f->name,
	                                 .dims = o->call.dims,
	                                 .inputs = o->call.inputs,
	                                 .outputs = outputs,
	                                 .arena = &o->t->arena,
	                                 .cap = cap,
	                                 .tolerance = o->t->tolerance};
	return opencl_run_function(o->host, &call) == TFMC_OK;
}

/* False with a line in the log. */
static bool agree(struct one *o, const char *what, const struct interp_tensor *have)
{
	struct trial *t = o->t;
	for (size_t i = 0; i < o->call.n_outputs; i++) {
		const struct interp_tensor *want = &o->call.outputs[i];
		const char *why = random_compare(&t->arena, &have[i], want,
		                                 opencl_tolerance(want->dtype, TRIAL_TOLERANCE));
		if (!why)
			continue;
		buf_printf(&t->log, "%s: result %zu: %s\n", what, i, why);
		return false;
	}
	return true;
}

static bool run_all(struct one *o)
{
	static const int64_t caps[] = {1, 2, 7, 64};
	struct trial *t = o->t;
	size_t n = o->call.n_outputs;
	struct interp_tensor *first = ARENA_ARRAY(&t->arena, struct interp_tensor, n + 1);
	struct interp_tensor *again = ARENA_ARRAY(&t->arena, struct interp_tensor, n + 1);
	if (!first || !again || !run_on(o, t->cap, first) || !agree(o, "launch by launch", first))
		return false;
	for (size_t i = 0; !t->once && i < TFMC_COUNT(caps); i++) {
		if (!run_on(o, caps[i], again))
			return false;
		if (same_bits(first, again, n))
			continue;
		buf_printf(&t->log, "other bits from %d work-groups than from %d\n", (int)caps[i],
		           (int)t->cap);
		(void)agree(o, "other work-groups", again);
		return false;
	}
	return true;
}

static enum trial_result run_one(struct trial *t, const struct ir_module *graph,
                                 const struct ir_module *planned, uint64_t seed)
{
	struct one o = {.t = t, .graph = graph, .f = graph->funcs.items[0]};
	if (!random_call_make(&t->arena, graph, o.f, seed, &o.call) ||
	    random_call_run(&t->cx, graph, o.f, &t->arena, &o.call) != TFMC_OK)
		return TRIAL_FAILED;
	o.host = opencl_host_open(&t->cx, t->device, planned, t->target);
	if (!o.host)
		return refused(t);
	enum trial_result result = run_all(&o) ? TRIAL_PASSED : TRIAL_FAILED;
	if (result == TRIAL_FAILED)
		buf_str(&t->log, opencl_host_source(o.host));
	opencl_host_close(o.host);
	return result;
}

enum trial_result trial_module(struct trial *t, struct ir_module *graph, uint64_t seed)
{
	struct ir_module *planned = NULL;
	enum trial_result result = TRIAL_FAILED;
	if (plan(t, graph, &planned) == TFMC_OK)
		result = run_one(t, graph, planned, seed);
	if (result == TRIAL_FAILED) {
		show(t, graph);
		show(t, planned);
	}
	ir_module_destroy(planned);
	ir_module_destroy(graph);
	return result;
}

/* ---- where modules come from ---- */

/* State belongs to whole models. */
static bool has_no_trial(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_STATEFUL) || code == OP_weight;
}

enum trial_result trial_op(struct trial *t, enum ir_opcode code, uint64_t seed, bool all_dtypes)
{
	const struct random_options options = {.all_dtypes = all_dtypes};
	struct ir_module *m = has_no_trial(code) ? NULL : random_module_for_op(&t->cx, code, seed, &options);
	return m ? trial_module(t, m, seed) : TRIAL_NOTHING;
}

enum trial_result trial_program(struct trial *t, uint64_t seed, size_t n_ops)
{
	const struct random_options options = {.n_ops = n_ops, .smooth = true};
	struct ir_module *m = random_module(&t->cx, seed, &options);
	return m ? trial_module(t, m, seed) : TRIAL_FAILED;
}

enum trial_result trial_transformer(struct trial *t, uint64_t seed)
{
	struct buf text;
	buf_init(&text);
	random_transformer(&text, seed, false);
	enum trial_result result = trial_text(t, "random.tir", text.data, seed);
	buf_destroy(&text);
	return result;
}

enum trial_result trial_text(struct trial *t, const char *name, const char *text, uint64_t seed)
{
	struct ir_module *m = NULL;
	if (ir_parse(&t->cx, name, text, strlen(text), &m) == TFMC_OK && ir_verify(m, &t->cx) == TFMC_OK)
		return trial_module(t, m, seed);
	ir_module_destroy(m);
	return TRIAL_FAILED;
}
