/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc verify: the checks of a model file through compiled code, then the comparison with the interpreter on seeded
 * inputs (differential.c). A line for each comparison: name, largest error, bound, ok or FAILED.
 *
 * --reference: values that another framework computed, by layer path, against those of compiled code, in the order of
 * computation. The first that differs is reported. Bound: relative L2 error of 2e-5. Compiled code stays within 1e-5 of
 * exact evaluation (differential.c), and so does another framework that computes in f32. Files in f16 and bf16 hold
 * rounded values: 2^-10 and 2^-7. Rows beyond the length of their sequence are not compared: frameworks differ in their
 * content.
 *
 * --after-each and --bisect run passes/pipeline on the module of the front end and report the findings.
 */
#include "frontend/driver/commands/verify.h"

#include <math.h>
#include <string.h>

#include "frontend/driver/commands/generation_config.h"
#include "frontend/driver/commands/tensors.h"
#include "ir/support/strmap.h"
#include "ir/text/text.h"
#include "passes/pipeline/shrink.h"
#include "passes/pipeline/validate.h"

/* ---- the passes, and a reduced model ---- */

/* Prints a line for one function after one pass, with the interpreter's error without rounding. */
static void print_validation(void *user, const struct validate_line *l)
{
	struct driver *d = user;
	const char *what = arena_printf(&d->arena, "%s after %s (%s)", l->func, l->pass, l->class);
	buf_printf(&d->out, "%-52s %12.3g %12.3g  %s  not rounded %.3g\n", what, l->error, l->bound,
	           l->ok ? "ok" : "FAILED", l->f64_error);
	(void)driver_flush_out(d);
}

/* ", in encoder.layers.self": the step of a location; "": it has none. */
static const char *describe_path(struct driver *d, struct ir_loc loc)
{
	return loc.path && loc.path[0] ? arena_printf(&d->arena, ", in %s", loc.path) : "";
}

/* Reports the first pass that fails or changes results, its application, and the first value that changes.
 * `bisect:` is for programs: the pass with the fuel that stops at this application. */
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

/* Validates the pipeline of the options on a module: after each pass, or by bisection. *failed is set when a pass
 * changes results. */
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

/* Runs --after-each or --bisect: the interpreter before and after each pass (passes/pipeline), a line for each, on
 * a reduced model if it can be reduced and --exhaustive is not given. Compiles nothing. */
static enum tfmc_status verify_passes(struct driver *d, struct loaded *l, bool *failed)
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

/* Runs --reduced-model: compiled code of a reduced copy (passes/pipeline) against the interpreter. */
static enum tfmc_status verify_reduced_model(struct driver *d, struct loaded *l, bool *failed)
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

/* ---- --reference: values of another framework ---- */

struct reference_run {
	struct driver *d;
	struct loaded *l;
	const struct ir_func *f;   /* run, as loaded */
	struct named_tensors file; /* all tensors of the file */
	struct named_tensors in;   /* those that are inputs, converted */
	struct named_tensors out;  /* of the compiled code */
	struct option_list names;  /* values to probe */
	const char *first;         /* the first value that differs; NULL: none */
};

/* ---- the tensors of the file ---- */

static bool is_output(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; i < f->n_results; i++)
		if (f->results[i].name && !strcmp(f->results[i].name, name))
			return true;
	return false;
}

/* Adds an input in the type of the model: frameworks store ids as i64. */
static enum tfmc_status convert_input(struct reference_run *r, const struct ir_param *p,
                                      const struct named_tensor *t)
{
	const struct ir_type *type = ir_type_of(r->f, p->value);
	struct named_tensor *in = tensors_add(r->d, &r->in, t->name, type->dtype, t->rank, t->dims);
	double *values = ARENA_ARRAY(&r->d->arena, double, t->count + 1);
	if (!in || !values)
		return TFMC_NO_MEMORY;
	for (int64_t i = 0; i < t->count; i++)
		values[i] = ir_round(type->dtype, tensor_value(t, i));
	tensor_set_values(in, values);
	return TFMC_OK;
}

static bool is_probe_name(const struct probe_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (!strcmp(names->items[i].name, name))
			return true;
	return false;
}

/* Sorts the tensors of the file into inputs, values to probe, outputs, and unknown names (a warning). Names to probe
 * become patterns, so that one with * or ? is unknown. TFMC_INVALID after a diagnostic: none can be compared. */
static enum tfmc_status classify_tensors(struct reference_run *r)
{
	struct probe_sites sites = {0};
	struct probe_names names = {0};
	struct probe_request q = {.cx = &r->d->diag, .arena = &r->d->arena};
	size_t n_compared = 0;
	TFMC_TRY(probe_list(&q, r->f, &sites, &names));
	for (size_t i = 0; i < r->file.n; i++) {
		const struct named_tensor *t = &r->file.items[i];
		const struct ir_param *p = verify_find_param(r->f, t->name);
		if (p) {
			TFMC_TRY(convert_input(r, p, t));
			continue;
		}
		bool known = is_probe_name(&names, t->name) && !strpbrk(t->name, "*?");
		if (known && !ARENA_ADDED(&r->d->arena, &r->names, t->name))
			return TFMC_NO_MEMORY;
		n_compared += known || is_output(r->f, t->name);
		if (known || is_output(r->f, t->name))
			continue;
		const char **all = ARENA_ARRAY(&r->d->arena, const char *, names.n + 1);
		for (size_t k = 0; all && k < names.n; k++)
			all[k] = names.items[k].name;
		diag_warning(&r->d->diag, LOC_NONE, DIAG_INPUT, "no value of the model is called '%s'%s",
		             t->name, did_you_mean(&r->d->arena, t->name, all, all ? names.n : 0));
	}
	if (n_compared)
		return TFMC_OK;
	diag_error(&r->d->diag, LOC_NONE, DIAG_INPUT, "%s has no value of the model",
	           r->d->options.reference);
	return TFMC_INVALID;
}

/* ---- padding ---- */

/* Returns the lengths of the rows along a dim, which belong to an input that has it as axis 1; NULL: all rows are
 * full. */
static const struct named_tensor *dim_lengths(const struct reference_run *r, const struct ir_dim *dim)
{
	for (size_t i = 0; i < r->f->n_params; i++) {
		const struct ir_param *p = &r->f->params[i];
		const struct ir_type *t = ir_type_of(r->f, p->value);
		if (p->lengths >= 0 && t->kind == IR_TENSOR && t->rank >= 2 && t->dims[1] == dim)
			return tensors_find(&r->in, r->f->params[p->lengths].name);
	}
	return NULL;
}

/* Returns the type of a value in the model; NULL: not a value of it. */
static const struct ir_type *value_type(const struct reference_run *r, const struct named_tensor *got)
{
	if (got->probe)
		return ir_type_of(r->f, got->probe->op->results[0]);
	const struct ir_op *ret = r->f->body->ops[r->f->body->n_ops - 1];
	for (size_t i = 0; i < r->f->n_results; i++)
		if (r->f->results[i].name && !strcmp(r->f->results[i].name, got->name))
			return ir_type_of(r->f, ret->operands[i]);
	return NULL;
}

/* Sets elements beyond a length to the expected values, so that they do not count: along each axis k > 0 whose dim
 * has lengths [B]. inner: elements of one index of axis k; sequence: elements of one index of axis 0; so element i
 * has index i / inner mod dims[k] in sequence i / sequence. */
static void copy_padding(const struct reference_run *r, const struct named_tensor *expected,
                         struct named_tensor *got)
{
	const struct ir_type *type = value_type(r, got);
	int64_t inner = expected->count ? expected->count : 1;
	for (int k = 0; type && type->rank == got->rank && k < got->rank; k++) {
		const struct named_tensor *lengths = k ? dim_lengths(r, type->dims[k]) : NULL;
		inner = got->dims[k] ? inner / got->dims[k] : 1;
		int64_t sequence = got->dims[0] && lengths ? expected->count / got->dims[0] : 0;
		for (int64_t i = 0; sequence && lengths->count == got->dims[0] && i < expected->count; i++)
			if (i / inner % got->dims[k] >= (int64_t)tensor_value(lengths, i / sequence))
				((float *)got->data)[i] = (float)tensor_value(expected, i);
	}
}

static bool same_shape(const struct named_tensor *a, const struct named_tensor *b)
{
	bool same = a->rank == b->rank;
	for (int k = 0; same && k < a->rank; k++)
		same = a->dims[k] == b->dims[k];
	return same;
}

/* ---- comparison ---- */

/* Compares a result with the tensor of the file that has its name, if there is one, within the bound for the file's
 * type; the first that differs is an error. */
static void compare_value(struct reference_run *r, struct named_tensor *got)
{
	const struct named_tensor *expected = tensors_find(&r->file, got->name);
	if (!expected)
		return;
	bool fits = same_shape(expected, got);
	double error = INFINITY, bound = expected->dtype == DT_F16    ? 0x1p-10
	                                 : expected->dtype == DT_BF16 ? 0x1p-7
	                                                              : 2e-5;
	if (fits && got->dtype == DT_F32)
		copy_padding(r, expected, got);
	if (fits)
		error = tensor_relative_l2(got, expected);
	verify_print_line(r->d, arena_printf(&r->d->arena, "%s, against reference", got->name), error, bound,
	                  error <= bound);
	if (error <= bound || r->first)
		return;
	r->first = got->name;
	diag_error(&r->d->diag, got->probe ? got->probe->op->loc.at : LOC_NONE, DIAG_CHECK_FAILED,
	           "the first step that differs is %s: %s", got->name,
	           fits ? tensor_difference(r->d, got, expected) : "it has another shape");
}

/* Compiles `run` and calls it on the inputs of the file: r->out. */
static enum tfmc_status run_object(struct reference_run *r)
{
	static const char *const entries[] = {"run"};
	struct compiled c = {.all_workers = true};
	enum tfmc_status st =
	        driver_compile_jit(r->d, r->l, (struct entry_names){entries, r->l->model ? 1 : 0}, &c);
	if (st == TFMC_OK)
		st = caller_open_session(r->d, &c, "run", &r->in);
	if (st == TFMC_OK) {
		struct caller caller = {
		        .d = r->d, .session = c.session, .record = c.model.record, .probes = &r->l->probes};
		st = caller_run(&caller, "run", &r->in, &r->out);
	}
	compiled_destroy(&c);
	return st;
}

/* Runs --reference: values of another framework in a file of tensors named by layer path, against those of the
 * compiled code. Probed values are compared in the order of computation, then the outputs, so that the first that
 * differs is the earliest. The file also has the inputs of `run`. */
static enum tfmc_status verify_reference(struct driver *d, struct loaded *l, bool *failed)
{
	static const char *function[] = {"run"};
	struct reference_run r = {.d = d, .l = l, .f = ir_find_func(l->module, "run")};
	if (!r.f) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "verify --reference requires a function run");
		return TFMC_INVALID;
	}
	TFMC_TRY(tensors_read(d, d->options.reference, NULL, &r.file));
	TFMC_TRY(classify_tensors(&r));
	TFMC_TRY(driver_insert_probes(d, l, &r.names, &(struct option_list){function, 1, 1}));
	TFMC_TRY(run_object(&r));
	buf_printf(&d->out, "%-52s %12s %12s\n", "comparison", "error", "bound");
	for (size_t i = 0; i < r.out.n; i++)
		if (r.out.items[i].probe)
			compare_value(&r, &r.out.items[i]);
	for (size_t i = 0; i < r.out.n; i++)
		if (!r.out.items[i].probe)
			compare_value(&r, &r.out.items[i]);
	*failed = *failed || r.first;
	return TFMC_OK;
}

/* ---- checks of the model file ---- */

void verify_print_line(struct driver *d, const char *what, double error, double bound, bool ok)
{
	buf_printf(&d->out, "%-52s %12.3g %12.3g  %s\n", what, error, bound, ok ? "ok" : "FAILED");
	(void)driver_flush_out(d);
}

/* ---- tensors of a check ---- */
struct check_run {
	struct driver *d;
	struct frontend_model *m;
	const struct frontend_check *check;
	struct caller *caller;
	double worst, bound;                        /* of the comparison with the largest ratio */
	const char *expected_tokens, *found_tokens; /* tokens that differ */
	bool ok;
};

/* Adds the tensor `name` of `from`: given inline, or in the file, under the first of its other names in the check's
 * `rename`. Both: the inline one comes first, and tensors_find() returns that. A missing one is not an error here. */
static enum tfmc_status add_given(struct check_run *r, const struct frontend_tensors *from, const char *name,
                                  enum ir_dtype dtype, struct named_tensors *out)
{
	const char *stored = name;
	for (size_t i = 0; i < from->n; i++) {
		const struct frontend_tensor *l = &from->items[i];
		if (strcmp(l->name, name))
			continue;
		struct named_tensor *t = tensors_add(r->d, out, name, dtype, l->rank, l->dims);
		if (!t)
			return TFMC_NO_MEMORY;
		tensor_set_values(t, l->values);
	}
	if (!from->file)
		return TFMC_OK;
	for (size_t i = r->check->n_rename; i-- > 0;)
		if (!strcmp(r->check->rename[i].from, name))
			stored = r->check->rename[i].to;
	const char *full = arena_printf(&r->d->arena, "%s%s", from->prefix ? from->prefix : "", stored);
	const struct stored_tensor *w;
	TFMC_TRY(frontend_check_tensor(r->m, from->file, from->loc, full, &w));
	if (!w)
		return TFMC_OK;
	struct named_tensor *t = tensors_add(r->d, out, name, w->dtype, w->rank, w->dims);
	if (t && w->bytes)
		memcpy(t->data, w->data, w->bytes);
	return t ? TFMC_OK : TFMC_NO_MEMORY;
}

/* ---- comparison ---- */
/* Returns the index in the result of element i of the expected tensor, whose rows are those of the check's `rows`;
 * -1: padding, not compared. */
static int64_t result_index(const struct check_run *r, const struct named_tensor *expected,
                            const struct named_tensor *got, const struct named_tensor *lengths, int64_t i)
{
	if (expected->rank < 2)
		return i;
	int64_t inner = 1;
	for (int k = 2; k < expected->rank; k++)
		inner *= expected->dims[k];
	int64_t b = i / (expected->dims[1] * inner), row = i / inner % expected->dims[1];
	int64_t at = r->check->rows.items ? r->check->rows.items[row] : row;
	if (lengths && at >= (int64_t)tensor_value(lengths, b))
		return -1;
	return (b * got->dims[1] + at) * inner + i % inner;
}

/* Whether the expected tensor has the shape of the result; a check with `rows` expects these rows of axis 1 alone. */
static bool shapes_match(const struct check_run *r, const struct named_tensor *expected,
                         const struct named_tensor *got)
{
	bool ok = expected->rank == got->rank;
	for (int k = 0; ok && k < expected->rank; k++) {
		bool by_rows = k == 1 && r->check->rows.items;
		ok = by_rows ? expected->dims[k] == (int64_t)r->check->rows.n
		             : expected->dims[k] == got->dims[k];
	}
	for (size_t i = 0; ok && r->check->rows.items && i < r->check->rows.n; i++)
		ok = r->check->rows.items[i] >= 0 && r->check->rows.items[i] < got->dims[1];
	return ok;
}

/* Compares an output with its expected values by atol + rtol * |expected|, and records the largest ratio of error
 * to bound. Rows of padding do not count. */
static void compare_tensors(struct check_run *r, const struct named_tensor *expected,
                            const struct named_tensor *got, const struct named_tensor *lengths)
{
	if (!shapes_match(r, expected, got)) {
		diag_error(&r->d->diag, r->check->loc, DIAG_CHECK_CASE,
		           "check %s: %s has another shape than expected", r->check->name, expected->name);
		r->ok = false;
		return;
	}
	for (int64_t i = 0; i < expected->count; i++) {
		int64_t at = result_index(r, expected, got, lengths, i);
		if (at < 0)
			continue;
		double w = tensor_value(expected, i), g = tensor_value(got, at);
		double error = g == w ? 0 : fabs(g - w), bound = r->check->atol + r->check->rtol * fabs(w);
		if (isnan(error) ? !(isnan(w) && isnan(g)) : error > bound)
			r->ok = false;
		if (!(error * r->bound <= r->worst * bound)) {
			r->worst = error;
			r->bound = bound;
		}
	}
}

/* Returns the lengths of an output of an entry: those of the input it follows; NULL: none. */
static const struct named_tensor *output_lengths(const struct check_run *r, int64_t entry, const char *output,
                                                 const struct named_tensors *in)
{
	const struct tfmc_record *rec = r->caller->record;
	const struct tfmc_record_entry *e = tfmc_entry_at(rec, entry);
	for (uint64_t i = 0; i < e->n_outputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_output(rec, entry, i);
		if (strcmp(tfmc_record_text(rec, t->name), output) || t->lengths < 0)
			continue;
		const struct tfmc_record_tensor *l = tfmc_entry_input(rec, entry, (uint64_t)t->lengths);
		return l ? tensors_find(in, tfmc_record_text(rec, l->name)) : NULL;
	}
	return NULL;
}

/* Collects the inputs of an entry that the check gives. TFMC_INVALID after a diagnostic: one without a default is
 * missing. */
static enum tfmc_status gather_inputs(struct check_run *r, int64_t entry, struct named_tensors *in)
{
	const struct tfmc_record *rec = r->caller->record;
	const struct tfmc_record_entry *e = tfmc_entry_at(rec, entry);
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(rec, entry, i);
		const char *name = tfmc_record_text(rec, t->name);
		TFMC_TRY(add_given(r, &r->check->with, name, (enum ir_dtype)t->dtype, in));
		if (tensors_find(in, name) || t->has_default)
			continue;
		diag_error(&r->d->diag, r->check->loc, DIAG_CHECK_CASE, "check %s: input %s is not given",
		           r->check->name, name);
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* Compares the outputs that the check expects. TFMC_INVALID after a diagnostic: it expects none that exists. */
static enum tfmc_status compare_outputs(struct check_run *r, int64_t entry, const struct named_tensors *in,
                                        const struct named_tensors *out)
{
	size_t n = 0;
	for (size_t i = 0; i < out->n; i++) {
		const struct named_tensor *got = &out->items[i];
		struct named_tensors expected = {0};
		if (r->check->only_output && strcmp(r->check->only_output, got->name))
			continue;
		TFMC_TRY(add_given(r, &r->check->expect, got->name, got->dtype, &expected));
		if (!expected.n)
			continue;
		n++;
		compare_tensors(r, &expected.items[0], got, output_lengths(r, entry, got->name, in));
	}
	if (n)
		return TFMC_OK;
	diag_error(&r->d->diag, r->check->loc, DIAG_CHECK_CASE, "check %s: no expected output was found",
	           r->check->name);
	return TFMC_INVALID;
}

/* Runs a check that calls an entry on tensors. TFMC_INVALID after a diagnostic: the check does not fit the model. */
static enum tfmc_status check_entry(struct check_run *r)
{
	struct named_tensors in = {0}, out = {0};
	int64_t entry = tfmc_entry_find(r->caller->record, r->check->call);
	if (entry < 0) {
		diag_error(&r->d->diag, r->check->loc, DIAG_CHECK_CASE,
		           "check %s calls %s, the model has no such entry", r->check->name, r->check->call);
		return TFMC_INVALID;
	}
	TFMC_TRY(gather_inputs(r, entry, &in));
	TFMC_TRY(caller_run(r->caller, r->check->call, &in, &out));
	return compare_outputs(r, entry, &in, &out);
}

/* ---- generate ---- */
static int32_t *tensor_to_ids(struct driver *d, const struct named_tensors *t)
{
	int64_t n = t->n ? t->items[0].count : 0;
	int32_t *ids = ARENA_ARRAY(&d->arena, int32_t, n + 1);
	for (int64_t i = 0; ids && i < n; i++)
		ids[i] = (int32_t)tensor_value(&t->items[0], i);
	return ids;
}

#define TOKENS_LISTED 32

/* Returns ids, and their text where the model has a vocabulary: "7 12 3: 'text'". */
static const char *format_tokens(struct check_run *r, const int32_t *ids, uint64_t n)
{
	struct buf out;
	uint64_t bytes = 0;
	buf_init(&out);
	for (uint64_t i = 0; i < n && i < TOKENS_LISTED; i++)
		buf_printf(&out, "%s%d", i > 0 ? " " : "", ids[i]);
	if (n > TOKENS_LISTED)
		buf_printf(&out, " .. (%llu)", (unsigned long long)n);
	if (tfmc_text_decode(r->caller->record, ids, n, NULL, 0, &bytes) == TFMC_RT_OK && bytes > 0) {
		char *text = arena_alloc(&r->d->arena, (size_t)bytes + 1);
		if (text &&
		    tfmc_text_decode(r->caller->record, ids, n, text, bytes + 1, &bytes) == TFMC_RT_OK)
			buf_printf(&out, ": '%.200s'", text);
	}
	const char *text = arena_strdup(&r->d->arena, n > 0 ? out.data : "nothing");
	buf_destroy(&out);
	return text;
}

/* Compares generated ids. skip: ids at the start of `expected` that were given (0 for new_tokens). A difference
 * counts as an error of 1 with bound 0. */
static void compare_ids(struct check_run *r, const struct named_tensor *expected, const int32_t *got,
                        uint64_t n, uint64_t skip)
{
	r->bound = 0;
	r->ok = r->ok && (uint64_t)expected->count == n + skip;
	for (uint64_t i = 0; r->ok && i < n; i++)
		r->ok = tensor_value(expected, (int64_t)(i + skip)) == (double)got[i];
	if (!r->ok)
		r->worst = 1;
	if (r->ok)
		return;
	int32_t *expected_tokens = ARENA_ARRAY(&r->d->arena, int32_t, (uint64_t)expected->count + 1);
	uint64_t n_expected = (uint64_t)expected->count > skip ? (uint64_t)expected->count - skip : 0;
	for (uint64_t i = 0; expected_tokens && i < n_expected; i++)
		expected_tokens[i] = (int32_t)tensor_value(expected, (int64_t)(i + skip));
	r->expected_tokens = format_tokens(r, expected_tokens, expected_tokens ? n_expected : 0);
	r->found_tokens = format_tokens(r, got, n);
}

struct id_list {
	int32_t *items;
	uint64_t n;
};

/* Generates by the model's beam search, or greedily if it has none or the check says so. in: prompt and target.
 * result->n: capacity, then the number of generated ids. A status of tfmc_rt.h. */
static int generate_for_check(struct check_run *r, const struct tfmc_generate_options *o,
                              const struct id_list in[2], struct id_list *result)
{
	struct tfmc_session *s = r->caller->session;
	struct tfmc_beam_options beam = generation_beam(frontend_generate(r->m));
	uint64_t cap = result->n, found_tokens;
	if (beam.beam == 1 || r->check->search == CHECK_SEARCH_GREEDY)
		return tfmc_generate(s, o, in[0].items, in[0].n, in[1].items, in[1].n, result->items, cap,
		                     &result->n);
	struct tfmc_hypothesis best = {.tokens = result->items, .cap = cap};
	beam.max_new_tokens = o->max_new_tokens;
	beam.constraints = o->constraints;
	int status = tfmc_beam_search(s, &beam, in[0].items, in[0].n, in[1].items, in[1].n, &best, 1,
	                              &found_tokens);
	result->n = best.n < cap ? best.n : cap;
	return status;
}

/* Returns the type of the encoder input, i32 for causal models. */
static enum ir_dtype source_type(const struct check_run *r)
{
	const struct frontend_generate *g = frontend_generate(r->m);
	const struct frontend_input *in =
	        g->kind == GENERATE_CAUSAL ? NULL : frontend_find_input(r->m, g->source);
	return in ? in->dtype : DT_I32;
}

/* If the encoder input is features rather than ids, passes it with tfmc_session_set_source() and clears the
 * prompt. */
static enum tfmc_status set_feature_source(struct check_run *r, struct named_tensors *prompt)
{
	if (source_type(r) == DT_I32 || !prompt->n)
		return TFMC_OK;
	const struct named_tensor *t = &prompt->items[0];
	int status = tfmc_session_set_source(r->caller->session, t->data, t->dims, (uint64_t)t->rank);
	prompt->n = 0;
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	return driver_runtime_error(r->d, r->check->loc, DIAG_CHECK_FAILED, status, "check %s: %s",
	                            r->check->name, tfmc_session_status_text(r->caller->session, status));
}

/* Runs a check of generated ids: `new_tokens`, or `tokens`, which begin with those given (n_start: a causal prompt,
 * a target, or the model's start ids). As many ids are generated as are expected, or `steps`; then they must be
 * equal. Features set as the source are removed for the next check. */
static enum tfmc_status check_generate(struct check_run *r)
{
	const struct frontend_generate *g = frontend_generate(r->m);
	bool is_causal = g->kind == GENERATE_CAUSAL;
	struct named_tensors prompt = {0}, target = {0}, new_tokens = {0}, all_tokens = {0};
	TFMC_TRY(add_given(r, &r->check->with, is_causal ? g->tokens : g->source, source_type(r), &prompt));
	TFMC_TRY(set_feature_source(r, &prompt));
	if (!is_causal)
		TFMC_TRY(add_given(r, &r->check->with, g->tokens, DT_I32, &target));
	TFMC_TRY(add_given(r, &r->check->expect, "new_tokens", DT_I32, &new_tokens));
	if (!new_tokens.n)
		TFMC_TRY(add_given(r, &r->check->expect, "tokens", DT_I32, &all_tokens));
	if (!new_tokens.n && !all_tokens.n) {
		diag_error(&r->d->diag, r->check->loc, DIAG_CHECK_CASE,
		           "check %s: no expected tokens were found", r->check->name);
		return TFMC_INVALID;
	}
	const struct named_tensor *expected = new_tokens.n ? &new_tokens.items[0] : &all_tokens.items[0];
	uint64_t n_prompt = prompt.n ? (uint64_t)prompt.items[0].count : 0;
	uint64_t n_target = target.n ? (uint64_t)target.items[0].count : 0;
	uint64_t n_start = is_causal ? n_prompt : n_target ? n_target : g->start.n;
	int64_t n_new = expected->count - (new_tokens.n ? 0 : (int64_t)n_start);
	struct tfmc_constraints constraints;
	if (!generation_constraints(r->d, g, r->caller->record, &constraints))
		return TFMC_INVALID;
	constraints.max_tokens = 0; /* the check sets the number */
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .ignore_stop = r->check->ignore_stop, .constraints = &constraints};
	o.max_new_tokens = r->check->steps >= 0 ? r->check->steps : n_new;
	uint64_t n, cap = (uint64_t)g->max_len;
	int32_t *out = ARENA_ARRAY(&r->d->arena, int32_t, cap + 1);
	if (!out)
		return TFMC_NO_MEMORY;
	struct id_list lists[] = {{tensor_to_ids(r->d, &prompt), n_prompt},
	                          {tensor_to_ids(r->d, &target), n_target}};
	struct id_list result = {out, cap};
	int status = generate_for_check(r, &o, lists, &result);
	tfmc_session_set_source(r->caller->session, NULL, NULL, 0);
	n = result.n;
	if (status != TFMC_RT_OK)
		return driver_runtime_error(r->d, r->check->loc, DIAG_CHECK_FAILED, status, "check %s: %s",
		                            r->check->name,
		                            tfmc_session_status_text(r->caller->session, status));
	compare_ids(r, expected, out, n, new_tokens.n ? 0 : n_start);
	return TFMC_OK;
}

/* ---- all checks ---- */

/* Runs one check of the model file and prints its line; *failed is set when it does not hold. A beam search has no
 * option to ignore stop ids: such a check is an error. */
static enum tfmc_status run_check(struct driver *d, struct frontend_model *m, struct caller *caller,
                                  const struct frontend_check *check, bool *failed)
{
	struct check_run r = {.d = d, .m = m, .check = check, .caller = caller, .ok = true, .bound = 1};
	bool generates = !strcmp(check->call, "generate");
	bool searches =
	        generation_beam(frontend_generate(m)).beam > 1 && check->search != CHECK_SEARCH_GREEDY;
	if (generates && searches && check->ignore_stop) {
		diag_error(&d->diag, check->loc, DIAG_CHECK_CASE,
		           "check %s: ignore_stop requires `search: greedy`", check->name);
		return TFMC_INVALID;
	}
	TFMC_TRY(generates ? check_generate(&r) : check_entry(&r));
	const char *what = arena_printf(&d->arena, "%s %s", check->call, check->name);
	verify_print_line(d, what, r.worst, r.bound, r.ok);
	if (!r.ok && r.expected_tokens) {
		diag_error(&d->diag, check->loc, DIAG_CHECK_FAILED, "check %s: other tokens", check->name);
		diag_note(&d->diag, LOC_NONE, "expected %s", r.expected_tokens);
		diag_note(&d->diag, LOC_NONE, "found    %s", r.found_tokens);
	} else if (!r.ok)
		diag_error(&d->diag, check->loc, DIAG_CHECK_FAILED, "check %s: largest error %g, allowed %g",
		           check->name, r.worst, r.bound);
	*failed = *failed || !r.ok;
	return TFMC_OK;
}

/* Runs the checks of the model file. With options that change numerics (--quantize, ..) they are skipped unless
 * --checks-only requests them. */
static enum tfmc_status run_checks(struct driver *d, struct loaded *l, struct compiled *c, bool *failed)
{
	size_t n;
	const struct frontend_check *checks = frontend_checks(l->model, &n);
	TFMC_TRY(driver_open_session(d, c, 0));
	const char *other = driver_rounding_option(d);
	if (n > 0 && other && !d->options.checks_only) {
		buf_printf(&d->out, "checks of the file: %zu, not run: --%s changes the numerics\n", n,
		           other);
		return TFMC_OK;
	}
	struct caller caller = {
	        .d = d, .session = c->session, .record = c->model.record, .probes = &l->probes};
	enum tfmc_status st = TFMC_OK;
	for (size_t i = 0; st == TFMC_OK && i < n; i++) {
		progress_report(&d->progress, "checks", "checks", i, n);
		st = run_check(d, l->model, &caller, &checks[i], failed);
	}
	return st;
}

struct verification {
	struct driver *d;
	struct loaded *l;
	bool failed;
};

/* variant_fn: all comparisons of one variant. */
static enum tfmc_status verify_variant(void *user, struct compiled *c, const struct target *target)
{
	struct verification *v = user;
	struct driver *d = v->d;
	if (d->options.variants)
		buf_printf(&d->out, "variant %s\n", target->name);
	if (v->l->model)
		TFMC_TRY(run_checks(d, v->l, c, &v->failed));
	if (!d->options.checks_only)
		TFMC_TRY(verify_differential(d, v->l, c, &v->failed));
	return d->options.poison ? verify_poison(d, v->l, c, &v->failed) : TFMC_OK;
}

/* Compares all variants that this machine runs, with values of --probe as further results. */
static enum tfmc_status verify_model(struct verification *v)
{
	static const char *probed[] = {"run", "encode"};
	struct driver *d = v->d;
	struct compiled c = {.all_workers = true};
	TFMC_TRY(driver_insert_probes(d, v->l, &d->options.probe, &(struct option_list){probed, 2, 2}));
	enum tfmc_status st = driver_compile_jit(d, v->l, (struct entry_names){0}, &c);
	if (st == TFMC_OK) {
		buf_printf(&d->out, "%-52s %12s %12s\n", "comparison", "error", "bound");
		st = driver_for_each_variant(d, &c, verify_variant, v);
	}
	compiled_destroy(&c);
	return st;
}

enum exit_code command_verify(struct driver *d)
{
	struct loaded l;
	struct verification v = {.d = d, .l = &l};
	bool passes_only = d->options.after_each || d->options.bisect;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = passes_only                ? verify_passes(d, &l, &v.failed)
		     : d->options.reduced_model ? verify_reduced_model(d, &l, &v.failed)
		     : d->options.reference     ? verify_reference(d, &l, &v.failed)
		                                : verify_model(&v);
	loaded_destroy(&l);
	return st != TFMC_OK ? exit_code_of(st) : v.failed ? EXIT_VERIFY : EXIT_OK;
}
