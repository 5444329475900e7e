/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validation of a pipeline (validate.h): compares the results of a trial after each pass, and finds the first wrong
 * application by bisection. A stage is a module and the results of the trial on it, `rounded` as the IR defines them
 * and in f64 without rounding; at most three exist at a time. A class is how far results may change (bits, round,
 * reassociate, approximate), with its bounds for both. A stage is broken if the pass failed or its module cannot be
 * executed.
 */
#include "passes/pipeline/run.h"
#include "passes/pipeline/validate.h"

#include <string.h>

#include "passes/graph/rule.h"
#include "passes/pipeline/trial.h"

#define F64_BOUND       1e-9 /* f64 through some dozens of ops */
#define SUM_BOUND       2e-5 /* f32, sums in another order through some layers */
#define ROUND_BOUND     4e-6 /* f32, some values rounded once more or less */
#define NEAR_FACTOR     64.0 /* growth of an approximation error through layers */
#define ROUNDING_FACTOR 8.0  /* allowed multiple of the error that rounding causes in a result */
#define ROUNDING_MAX    1e-2 /* an f32 result with a larger rounding error proves nothing about a pass */

struct class
{
	const char *name;
	double bound, f64_bound;
};

struct stage {
	struct arena arena;
	struct ir_module *module; /* NULL: the caller's */
	const struct ir_module *m;
	struct trial_outputs rounded, f64;
	bool is_broken; /* the pass failed, or its module cannot be executed (after a diagnostic) */
};

/* State of the `applied` callback. */
struct applications {
	struct arena *arena;
	int64_t wanted, last;
	const char *what;
	struct ir_loc loc;
	bool seen;
};

struct validation {
	const struct validate *v;
	struct diag_context *cx; /* that of v, or one without output */
	const struct trial *t;
	struct rule_set rules;
};

/* ---- the first value that a pass changes ---- */

/*
 * Traces one call on two modules and searches the second trace for the first value that the first trace does not
 * contain. Values correspond if name, location and shape are equal, since a pass preserves those of the ops that
 * it keeps; of several candidates any equal value will do.
 */

struct changed {
	const char *op, *value; /* NULL: no corresponding values differ */
	struct ir_loc loc;
};

#define TRACE_ELEMENTS_MAX ((int64_t)1 << 24) /* of all values of a trace */

struct traced {
	const char *name; /* hint, may be NULL */
	enum ir_opcode code;
	struct ir_loc loc;
	struct interp_tensor value;
};
struct trace {
	struct arena *arena;
	int64_t elements;
	struct traced *items;
	size_t n, cap;
};

/* Trace callback: copies the results of op, up to TRACE_ELEMENTS_MAX in all; larger values are skipped. Ops with a
 * region are skipped: their results were recorded inside it. */
static void record_op(void *user, const struct ir_func *f, const struct ir_op *op,
                      const struct interp_tensor *const *results)
{
	struct trace *t = user;
	for (size_t i = 0; i < op->n_results && op->region == NULL; i++) {
		const struct interp_tensor *v = results[i];
		int64_t n = v->data != NULL ? interp_count(v) : 0;
		if (n <= 0 || t->elements + n > TRACE_ELEMENTS_MAX)
			continue;
		struct traced *slot = ARENA_PUSH(t->arena, t);
		struct interp_tensor copy;
		if (slot == NULL || !interp_tensor_copy(t->arena, v, &copy))
			return;
		t->elements += n;
		*slot = (struct traced){ir_value_info(f, op->results[i])->name, op->code, op->loc, copy};
	}
}

/* Named values correspond by name, others by opcode; both by location and shape. */
static bool corresponds(const struct traced *a, const struct traced *b)
{
	bool same = same_string(a->name, b->name) && (a->name != NULL || a->code == b->code) &&
	            a->loc.at.source == b->loc.at.source && a->loc.at.line == b->loc.at.line &&
	            a->loc.at.col == b->loc.at.col && same_string(a->loc.path, b->loc.path) &&
	            a->value.rank == b->value.rank;
	for (int i = 0; same && i < a->value.rank; i++)
		same = a->value.dims[i] == b->value.dims[i];
	return same;
}

/* v has corresponding values in the first trace, and all of them differ. */
static bool is_changed(const struct trace *before, const struct traced *v, double bound)
{
	bool known = false;
	for (size_t i = 0; i < before->n; i++) {
		if (!corresponds(&before->items[i], v))
			continue;
		if (trial_tensor_difference(&v->value, &before->items[i].value) <= bound)
			return false;
		known = true;
	}
	return known;
}

/* *out: the first value of `after` that is_changed; unchanged if there is none. Strings are copied, since the
 * traces end before they are read. */
static void find_first_changed(const struct trace *before, const struct trace *after, double bound,
                               struct arena *arena, struct changed *out)
{
	for (size_t i = 0; i < after->n; i++) {
		const struct traced *v = &after->items[i];
		if (!is_changed(before, v, bound))
			continue;
		out->op = ir_op_desc(v->code)->name;
		out->value = v->name != NULL ? arena_strdup(arena, v->name) : "";
		out->loc = (struct ir_loc){v->loc.at,
		                           v->loc.path != NULL ? arena_strdup(arena, v->loc.path) : NULL};
		return;
	}
}

/*
 * Runs call `call` of the trial on both modules in f64; differences up to `bound` do not count. Strings are in
 * `arena`.
 */
static enum tfmc_status find_changed_value(const struct trial *t, struct diag_context *cx,
                                           const struct ir_module *before, const struct ir_module *after,
                                           size_t call, double bound, struct arena *arena,
                                           struct changed *out)
{
	struct arena scratch;
	struct trial_outputs results;
	*out = (struct changed){0};
	arena_init(&scratch);
	struct trace a = {.arena = &scratch}, b = {.arena = &scratch};
	struct trial_mode mode = {.wide = true, .trace = record_op, .trace_user = &a, .trace_call = call};
	enum tfmc_status st = trial_execute(t, cx, before, &mode, &scratch, &results);
	mode.trace_user = &b;
	if (st == TFMC_OK)
		st = trial_execute(t, cx, after, &mode, &scratch, &results);
	if (st == TFMC_OK)
		find_first_changed(&a, &b, bound, arena, out);
	arena_destroy(&scratch);
	return st;
}

/* ---- stages ---- */

/* Destroys the module and the results; the stage may be used, or ended, again. */
static void stage_end(struct stage *s)
{
	ir_module_destroy(s->module);
	arena_destroy(&s->arena);
	*s = (struct stage){0};
	arena_init(&s->arena);
}

static enum tfmc_status stage_execute(const struct validation *s, struct stage *g)
{
	struct trial_mode mode = {0};
	TFMC_TRY(trial_execute(s->t, s->cx, g->m, &mode, &g->arena, &g->rounded));
	mode.wide = true;
	return trial_execute(s->t, s->cx, g->m, &mode, &g->arena, &g->f64);
}

/* sink.applied: records the number of the last application, and the one that is wanted. */
static void note_application(void *user, const char *pass, int64_t number, const char *what,
                             struct ir_loc loc)
{
	struct applications *a = user;
	(void)pass;
	a->last = number > a->last ? number : a->last;
	if (number != a->wanted || a->seen)
		return;
	a->seen = true;
	a->what = what != NULL ? arena_strdup(a->arena, what) : NULL;
	a->loc = (struct ir_loc){loc.at, loc.path != NULL ? arena_strdup(a->arena, loc.path) : NULL};
}

/* Runs a pipeline on m and executes the trial on the result. Options are the caller's without output. seen (may be
 * NULL): counts applications. A failure of a pass is a finding, not an error: the stage is broken, and TFMC_OK
 * returned; so is a module that the interpreter rejects. */
static enum tfmc_status stage_make(const struct validation *s, const struct pipeline *p,
                                   const struct ir_module *m, struct applications *seen,
                                   struct pass_report *report, struct stage *out)
{
	struct pass_options o = *s->v->options;
	o.remarks = false;
	o.sink = (struct pass_sink){0};
	if (seen != NULL) {
		o.sink.applied = note_application;
		o.sink.user = seen;
	}
	arena_init(&out->arena);
	enum tfmc_status st = passes_run(s->cx, p, &o, m, &out->module, report);
	out->is_broken = st == TFMC_INTERNAL;
	out->m = out->module;
	if (st == TFMC_OK) {
		st = stage_execute(s, out);
		out->is_broken = st == TFMC_INTERNAL || st == TFMC_INVALID;
	}
	return out->is_broken ? TFMC_OK : st;
}

/* ---- exactness ---- */

/* The weakest class of the rules that were applied, from the counters `rule NAME` of canonicalize; adds the
 * tolerances of approximations, each as often as it was applied and NEAR_FACTOR larger, since later layers amplify
 * it. */
static enum rule_class class_of_rules(const struct validation *s, const struct pass_report *r,
                                      double *tolerance)
{
	enum rule_class most = RULE_BITS;
	for (size_t i = 0; i < r->counters.n; i++) {
		const struct pass_counter *c = &r->counters.items[i];
		const struct rule *rule =
		        strncmp(c->name, "rule ", 5) == 0 ? rule_set_find(&s->rules, c->name + 5) : NULL;
		if (rule == NULL || c->value == 0)
			continue;
		most = rule->class > most ? rule->class : most;
		if (rule->class == RULE_APPROXIMATE)
			*tolerance += rule->tolerance * (double)c->value * NEAR_FACTOR;
	}
	return most;
}

/* Bounds for the results of a pipeline: the weakest class of its passes and of the rules that were applied. */
static struct class class_of(const struct validation *s, const struct pipeline *p,
                             const struct pass_report *r)
{
	double tolerance = 0;
	enum rule_class most = class_of_rules(s, r, &tolerance);
	for (size_t i = 0; i < p->n; i++) {
		static const enum rule_class classes[] = {[EXACT_REASSOCIATE] = RULE_REASSOCIATE,
		                                          [EXACT_ROUND] = RULE_ROUND,
		                                          [EXACT_BITS] = RULE_BITS};
		enum rule_class c = classes[pass_exactness(p->items[i].pass)];
		most = c > most ? c : most;
	}
	double bound = most == RULE_BITS ? 0 : most == RULE_ROUND ? ROUND_BOUND : SUM_BOUND;
	return (struct class){rule_class_name(most), bound + tolerance, F64_BOUND + tolerance};
}

/* ---- comparison ---- */

/*
 * A result in which rounding alone causes a large error (a norm of nearly cancelling values, 8-bit values) may
 * change as much if a pass rounds differently; in f64 it still has to agree to 1e-9.
 */
static double bound_of_result(const struct class *class, bool uses_lowp, const struct trial_output *rounded,
                              const struct trial_output *f64)
{
	double rounding_error = ROUNDING_FACTOR * trial_tensor_difference(&rounded->value, &f64->value);
	bool counts = class->bound > 0 && rounding_error > class->bound &&
	              (uses_lowp || rounding_error <= ROUNDING_MAX);
	return counts ? rounding_error : class->bound;
}

/* Compares the results of function func (NULL: of all). *worst (may be NULL): index of the result beyond its
 * bound whose f64 results differ most: those do not depend on rounding. */
static void compare(const struct stage *a, const struct stage *b, const struct class *class, const char *func,
                    struct validate_line *line, size_t *worst)
{
	double most = -1;
	bool is_near = true, uses_lowp = trial_uses_lowp(a->m);
	*line = (struct validate_line){
	        .class = class->name, .bound = class->bound, .f64_bound = class->f64_bound};
	line->ok = a->rounded.n == b->rounded.n;
	for (size_t i = 0; i < a->rounded.n && line->ok; i++) {
		if (func != NULL && strcmp(a->rounded.items[i].func, func) != 0)
			continue;
		double x = trial_tensor_difference(&b->rounded.items[i].value, &a->rounded.items[i].value);
		double y = trial_tensor_difference(&b->f64.items[i].value, &a->f64.items[i].value);
		double bound = bound_of_result(class, uses_lowp, &a->rounded.items[i], &a->f64.items[i]);
		bool beyond = x > bound || y > class->f64_bound;
		line->error = x > line->error ? x : line->error;
		line->bound = bound > line->bound ? bound : line->bound;
		line->f64_error = y > line->f64_error ? y : line->f64_error;
		is_near = is_near && !beyond;
		if (beyond && y > most && worst != NULL) {
			*worst = i;
			most = y;
		}
	}
	line->ok = line->ok && is_near;
}

static bool agrees(const struct stage *a, const struct stage *b, const struct class *class)
{
	struct validate_line line;
	compare(a, b, class, NULL, &line, NULL);
	return line.ok && !b->is_broken;
}

/* Compares function by function and reports each line. True: all agree. Cases have no line: the calls of their base
 * execute them. */
static bool show_functions(const struct validation *s, const char *pass, const struct stage *a,
                           const struct stage *b, const struct class *class)
{
	bool ok = !b->is_broken;
	for (size_t i = 0; i < a->m->funcs.n && !b->is_broken; i++) {
		struct validate_line line;
		if (a->m->funcs.items[i]->when != NULL)
			continue;
		compare(a, b, class, a->m->funcs.items[i]->name, &line, NULL);
		line.pass = pass;
		line.func = a->m->funcs.items[i]->name;
		ok = ok && line.ok;
		if (s->v->line != NULL)
			s->v->line(s->v->user, &line);
	}
	return ok;
}

/* ---- bisection over applications ---- */

/* Runs the step with this fuel on `before`. *class: its bounds, by the rules applied within the fuel. seen (may be
 * NULL): counts its applications. */
static enum tfmc_status make_with_fuel(const struct validation *s, const struct stage *before,
                                       struct pipeline_step step, int64_t fuel, struct applications *seen,
                                       struct class *class, struct stage *after)
{
	struct pass_report report;
	step.settings[pass_setting_find(step.pass, "fuel")] = fuel;
	const struct pipeline one = {&step, 1, 1};
	pass_report_init(&report);
	enum tfmc_status st = stage_make(s, &one, before->m, seen, &report, after);
	*class = class_of(s, &one, &report);
	pass_report_destroy(&report);
	return st;
}

/* *ok: the step with this fuel preserves the results. */
static enum tfmc_status try_fuel(const struct validation *s, const struct stage *before,
                                 const struct pipeline_step *step, int64_t fuel, struct applications *seen,
                                 bool *ok)
{
	struct stage after = {0};
	struct class class;
	enum tfmc_status st = make_with_fuel(s, before, *step, fuel, seen, &class, &after);
	if (st == TFMC_OK)
		*ok = agrees(before, &after, &class);
	stage_end(&after);
	return st;
}

/* Bisection over the fuel of a step that is wrong with its own (usually unlimited): lo applications are right, hi
 * wrong. The number stays 0 if the step has no fuel, or is wrong without any application. The first run counts the
 * applications, the last one records rule and location of number hi. */
static enum tfmc_status bisect_fuel(const struct validation *s, const struct stage *before,
                                    const struct pipeline_step *step, struct validate_culprit *c)
{
	int setting = pass_setting_find(step->pass, "fuel");
	struct applications seen = {.arena = s->v->arena, .wanted = -1};
	int64_t lo = 0;
	bool ok;
	if (setting < 0)
		return TFMC_OK;
	TFMC_TRY(try_fuel(s, before, step, step->settings[setting], &seen, &ok));
	int64_t hi = seen.last;
	TFMC_TRY(try_fuel(s, before, step, 0, NULL, &ok));
	if (!ok || hi == 0)
		return TFMC_OK;
	while (hi - lo > 1) {
		int64_t middle = lo + (hi - lo) / 2;
		TFMC_TRY(try_fuel(s, before, step, middle, NULL, &ok));
		lo = ok ? middle : lo;
		hi = ok ? hi : middle;
	}
	seen = (struct applications){.arena = s->v->arena, .wanted = hi};
	TFMC_TRY(try_fuel(s, before, step, hi, &seen, &ok));
	c->number = hi;
	c->what = seen.what;
	c->loc = seen.loc;
	return TFMC_OK;
}

/* Finds the application of the culprit by bisection. Diagnostics are muted: they were emitted before. */
static enum tfmc_status find_application(const struct validation *s, const struct stage *before,
                                         const struct pipeline_step *step, struct validate_culprit *c)
{
	struct diag_context mute;
	struct validation quiet = *s;
	diag_init(&mute, NULL, NULL);
	quiet.cx = &mute;
	enum tfmc_status st = bisect_fuel(&quiet, before, step, c);
	diag_destroy(&mute);
	return st;
}

/* Finds the first value that differs between two stages, in the call that differs most. A broken stage has no
 * values. c->func stays NULL if no result is beyond its bound. */
static enum tfmc_status find_value(const struct validation *s, const struct stage *before,
                                   const struct stage *after, const struct class *class,
                                   struct validate_culprit *c)
{
	struct validate_line line;
	struct changed changed;
	size_t worst = before->f64.n;
	if (after->is_broken)
		return TFMC_OK;
	compare(before, after, class, NULL, &line, &worst);
	if (worst == before->f64.n)
		return TFMC_OK;
	c->func = arena_strdup(s->v->arena, before->f64.items[worst].func);
	c->output = arena_strdup(s->v->arena, before->f64.items[worst].name);
	TFMC_TRY(find_changed_value(s->t, s->cx, before->m, after->m, before->f64.items[worst].call,
	                            class->f64_bound, s->v->arena, &changed));
	c->op = changed.op;
	c->value = changed.value;
	c->op_loc = changed.loc;
	return TFMC_OK;
}

/* Fills the culprit. With fuel limited to the wrong application, the first changed value is the one it computes. */
static enum tfmc_status find_culprit(const struct validation *s, size_t step, const struct stage *before,
                                     const struct stage *after, const struct class *class,
                                     struct validate_culprit *c)
{
	const struct pipeline_step *p = &s->v->pipeline->items[step];
	struct stage alone = {0};
	struct class its_class;
	*c = (struct validate_culprit){.step = step, .pass = p->pass->name, .fails = after->is_broken};
	TFMC_TRY(find_application(s, before, p, c));
	if (c->number == 0)
		return find_value(s, before, after, class, c);
	struct validation quiet = *s;
	struct diag_context mute;
	diag_init(&mute, NULL, NULL);
	quiet.cx = &mute;
	enum tfmc_status st = make_with_fuel(&quiet, before, *p, c->number, NULL, &its_class, &alone);
	if (st == TFMC_OK)
		st = find_value(&quiet, before, &alone, &its_class, c);
	diag_destroy(&mute);
	stage_end(&alone);
	return st;
}

/* ---- pass by pass ---- */

/* Runs one pass; *found: it changed results, with the culprit. */
static enum tfmc_status validate_pass(const struct validation *s, size_t i, const struct stage *before,
                                      struct stage *after, bool *found, struct validate_culprit *culprit)
{
	struct pass_report report;
	const struct pipeline one = {&s->v->pipeline->items[i], 1, 1};
	pass_report_init(&report);
	enum tfmc_status st = stage_make(s, &one, before->m, NULL, &report, after);
	if (st == TFMC_OK) {
		struct class class = class_of(s, &one, &report);
		*found = !show_functions(s, one.items[0].pass->name, before, after, &class);
		if (*found)
			st = find_culprit(s, i, before, after, &class, culprit);
	}
	pass_report_destroy(&report);
	return st;
}

/* Runs and compares pass by pass, up to the first that changes results. The stage after a pass is the one before the
 * next. */
static enum tfmc_status validate_each(const struct validation *s, const struct ir_module *m, bool *found,
                                      struct validate_culprit *culprit)
{
	struct stage before = {.m = m};
	arena_init(&before.arena);
	enum tfmc_status st = stage_execute(s, &before);
	for (size_t i = 0; st == TFMC_OK && i < s->v->pipeline->n && !*found; i++) {
		struct stage after = {0};
		st = validate_pass(s, i, &before, &after, found, culprit);
		stage_end(&before);
		before = after;
	}
	stage_end(&before);
	return st;
}

/* ---- bisection over the pipeline ---- */

/* Runs the first n passes; *ok: the results agree with those of the input, within the bounds of all n passes
 * together. *out is replaced. */
static enum tfmc_status try_prefix(const struct validation *s, const struct stage *first, size_t n,
                                   struct stage *out, struct class *class, bool *ok)
{
	const struct pipeline p = {s->v->pipeline->items, n, n};
	struct pass_report report;
	pass_report_init(&report);
	stage_end(out);
	enum tfmc_status st = stage_make(s, &p, first->m, NULL, &report, out);
	if (st == TFMC_OK) {
		*class = class_of(s, &p, &report);
		*ok = agrees(first, out, class);
	}
	pass_report_destroy(&report);
	return st;
}

/* *lo: a pipeline length that is right, *hi: one that is wrong; at the end *hi = *lo + 1. Diagnostics are muted: the
 * caller runs the two lengths that it finds again. */
static enum tfmc_status bisect_pipeline(const struct validation *s, const struct stage *first, size_t *lo,
                                        size_t *hi)
{
	struct diag_context mute;
	struct validation quiet = *s;
	struct stage now = {0};
	struct class class;
	enum tfmc_status st = TFMC_OK;
	bool ok;
	diag_init(&mute, NULL, NULL);
	quiet.cx = &mute;
	arena_init(&now.arena);
	while (*hi - *lo > 1 && st == TFMC_OK) {
		size_t middle = *lo + (*hi - *lo) / 2;
		st = try_prefix(&quiet, first, middle, &now, &class, &ok);
		*lo = st == TFMC_OK && ok ? middle : *lo;
		*hi = st == TFMC_OK && !ok ? middle : *hi;
	}
	stage_end(&now);
	diag_destroy(&mute);
	return st;
}

/* Bisection over the length of the pipeline: the whole one first, which decides *found; then the two neighbouring
 * lengths again, as stages for find_culprit. */
static enum tfmc_status bisect(const struct validation *s, const struct stage *first, struct stage *good,
                               struct stage *bad, bool *found, struct validate_culprit *culprit)
{
	struct class class, ignored;
	size_t lo = 0, hi = s->v->pipeline->n;
	bool ok;
	TFMC_TRY(try_prefix(s, first, hi, bad, &class, &ok));
	*found = !ok;
	if (!*found)
		return TFMC_OK;
	TFMC_TRY(bisect_pipeline(s, first, &lo, &hi));
	TFMC_TRY(try_prefix(s, first, lo, good, &ignored, &ok));
	TFMC_TRY(try_prefix(s, first, hi, bad, &class, &ok));
	return find_culprit(s, hi - 1, good, bad, &class, culprit);
}

/* ---- entry points ---- */

/* Creates the trial and loads the rules; then pass by pass, or by bisection. */
static enum tfmc_status run_validation(const struct validate *v, const struct ir_module *m, bool by_bisection,
                                       bool *found, struct validate_culprit *culprit)
{
	struct arena arena;
	struct trial t;
	struct validation s = {.v = v, .cx = v->cx, .t = &t};
	struct stage first = {.m = m}, good = {0}, bad = {0};
	*found = false;
	arena_init(&arena);
	arena_init(&first.arena);
	arena_init(&good.arena);
	arena_init(&bad.arena);
	rule_set_init(&s.rules);
	enum tfmc_status st = trial_make(&t, &arena, v->weights, m);
	if (st == TFMC_OK)
		st = rule_set_load(&s.rules, v->cx, v->options);
	if (st == TFMC_OK && !by_bisection)
		st = validate_each(&s, m, found, culprit);
	if (st == TFMC_OK && by_bisection)
		st = stage_execute(&s, &first);
	if (st == TFMC_OK && by_bisection)
		st = bisect(&s, &first, &good, &bad, found, culprit);
	stage_end(&bad);
	stage_end(&good);
	stage_end(&first);
	rule_set_destroy(&s.rules);
	arena_destroy(&arena);
	return st;
}

enum tfmc_status validate_after_each(const struct validate *v, const struct ir_module *m, bool *found,
                                     struct validate_culprit *culprit)
{
	return run_validation(v, m, false, found, culprit);
}

enum tfmc_status validate_bisect(const struct validate *v, const struct ir_module *m, bool *found,
                                 struct validate_culprit *culprit)
{
	return run_validation(v, m, true, found, culprit);
}
