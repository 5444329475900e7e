/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verify --reference: values that another framework computed, by layer path, against those of compiled code, in the
 * order of computation. The first that differs is reported.
 *
 * Bound: relative L2 error of 2e-5. Compiled code stays within 1e-5 of exact evaluation (differential.c), and so does
 * another framework that computes in f32. Files in f16 and bf16 hold rounded values: 2^-10 and 2^-7. Rows beyond the
 * length of their sequence are not compared: frameworks differ in their content.
 */
#include <math.h>
#include <string.h>

#include "frontend/driver/commands/tensors.h"
#include "frontend/driver/commands/verify.h"
#include "ir/support/strmap.h"

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

static double error_bound(enum ir_dtype t)
{
	return t == DT_F16 ? 0x1p-10 : t == DT_BF16 ? 0x1p-7 : 2e-5;
}

/* ---- the tensors of the file ---- */

static bool is_output(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; i < f->n_results; i++)
		if (f->results[i].name && !strcmp(f->results[i].name, name))
			return true;
	return false;
}

/* Converts to the type of the model: frameworks store ids as i64. */
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

static void warn_unknown_name(struct reference_run *r, const struct probe_names *names, const char *name)
{
	const char **all = ARENA_ARRAY(&r->d->arena, const char *, names->n + 1);
	for (size_t i = 0; all && i < names->n; i++)
		all[i] = names->items[i].name;
	diag_warning(&r->d->diag, LOC_NONE, DIAG_INPUT, "no value of the model is called '%s'%s", name,
	             did_you_mean(&r->d->arena, name, all, all ? names->n : 0));
}

/* Sorts the tensors into inputs, values to probe, outputs, and unknown names (a warning). */
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
		n_compared += known || is_output(r->f, t->name);
		if (!known && !is_output(r->f, t->name))
			warn_unknown_name(r, &names, t->name);
		if (!known)
			continue;
		if (!ARENA_ADDED(&r->d->arena, &r->names, t->name))
			return TFMC_NO_MEMORY;
	}
	if (n_compared)
		return TFMC_OK;
	diag_error(&r->d->diag, LOC_NONE, DIAG_INPUT, "%s has no value of the model",
	           r->d->options.reference);
	return TFMC_INVALID;
}

/* ---- padding ---- */

/* The lengths of rows along a dim: of an input that has it as axis 1; NULL: none. */
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

/* The type of a value in the model; NULL: not a value of it. */
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

/* Sets rows beyond a length to the expected values, so that they do not count. */
static void copy_padding(const struct reference_run *r, const struct named_tensor *expected,
                         struct named_tensor *got)
{
	const struct ir_type *type = value_type(r, got);
	int64_t inner = expected->count ? expected->count : 1;
	for (int k = 0; type && type->rank == got->rank && k < got->rank; k++) {
		const struct named_tensor *lengths = k ? dim_lengths(r, type->dims[k]) : NULL;
		inner = got->dims[k] ? inner / got->dims[k] : 1;
		int64_t batch = got->dims[0] && lengths ? expected->count / got->dims[0] : 0;
		for (int64_t i = 0; batch && lengths->count == got->dims[0] && i < expected->count; i++)
			if (i / inner % got->dims[k] >= (int64_t)tensor_value(lengths, i / batch))
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

static void report_difference(struct reference_run *r, const struct named_tensor *expected,
                              const struct named_tensor *got)
{
	struct loc at = got->probe ? got->probe->op->loc.at : LOC_NONE;
	const char *why =
	        same_shape(expected, got) ? tensor_difference(r->d, got, expected) : "it has another shape";
	if (!r->first)
		diag_error(&r->d->diag, at, DIAG_CHECK_FAILED, "the first step that differs is %s: %s",
		           got->name, why);
	r->first = r->first ? r->first : got->name;
}

static void compare_value(struct reference_run *r, struct named_tensor *got)
{
	const struct named_tensor *expected = tensors_find(&r->file, got->name);
	if (!expected)
		return;
	bool fits = same_shape(expected, got);
	double bound = error_bound(expected->dtype), error = INFINITY;
	if (fits && got->dtype == DT_F32)
		copy_padding(r, expected, got);
	if (fits)
		error = tensor_relative_l2(got, expected);
	verify_print_line(r->d, arena_printf(&r->d->arena, "%s, against reference", got->name), error, bound,
	                  error <= bound);
	if (!(error <= bound))
		report_difference(r, expected, got);
}

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

enum tfmc_status verify_reference(struct driver *d, struct loaded *l, bool *failed)
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
