/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect of models. Sizes are those of `tfmc plan` at the largest dims.
 */
#include "frontend/driver/commands/inspect.h"
#include "frontend/driver/commands/tensors.h"

#include <string.h>

#include "ir/support/checked.h"

static void report_type(struct report *out, const struct ir_dims *dims, const struct ir_type *type)
{
	struct buf text;
	buf_init(&text);
	ir_type_print(&text, dims, type);
	report_text(out, "type", "%s", text.data);
	buf_destroy(&text);
}

static void report_interface(struct report *out, const struct ir_module *m, const struct ir_func *f)
{
	report_open(out, "inputs");
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		if (p->role != ROLE_INPUT || ir_type_of(f, p->value)->kind != IR_TENSOR)
			continue;
		report_row(out, p->name);
		report_type(out, m->dims, ir_type_of(f, p->value));
		report_flag(out, "optional", p->has_default);
		report_close(out);
	}
	report_close(out);
	const struct ir_op *end = f->body->ops[f->body->n_ops - 1];
	report_open(out, "outputs");
	for (size_t i = 0; i < f->n_results; i++) {
		if (!f->results[i].name)
			continue;
		report_row(out, f->results[i].name);
		report_type(out, m->dims, ir_type_of(f, end->operands[i]));
		report_close(out);
	}
	report_close(out);
}

/* Whether a weight has values from a file, unlike a computed table. */
static bool is_stored(const struct ir_wexpr *e)
{
	for (size_t i = 0; e && i < e->n_args; i++)
		if (is_stored(e->args[i]))
			return true;
	return e && e->kind == WX_TENSOR;
}

/* False: the weight does not come from a file. */
static bool count_elements(const struct ir_weight *w, int64_t *elements)
{
	*elements = 1;
	for (int k = 0; k < w->type->rank; k++) {
		int64_t size;
		if (!ir_dim_is_const(w->type->dims[k], &size) || !checked_mul_i64(*elements, size, elements))
			return false;
	}
	return is_stored(w->init);
}

/* Bytes of n elements in the weight's format. */
static uint64_t parameter_bytes(const struct ir_weight *w, int64_t n)
{
	int64_t k = 0;
	if (w->format == FORMAT_PLAIN)
		return (uint64_t)n * (uint64_t)ir_dtype_bytes(w->type->dtype);
	if (w->type->rank < 1 || !ir_dim_is_const(w->type->dims[w->type->rank - 1], &k) || k == 0)
		return 0;
	return (uint64_t)(n / k) * (uint64_t)ir_format_row_bytes(w->format, k);
}

/* Parameters from files, with their bytes in memory. The layers of a loop are stacked into one. */
static void report_parameters(struct report *out, const struct loaded *l)
{
	const struct ir_module *m = l->module;
	uint64_t elements = 0, bytes = 0;
	int64_t n;
	report_open(out, "parameters");
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_weight *w = m->weights.items[i];
		if (!count_elements(w, &n))
			continue;
		report_row(out, w->name);
		report_type(out, m->dims, w->type);
		if (w->format != FORMAT_PLAIN)
			report_text(out, "stored", "%s", ir_format(w->format)->name);
		if (l->model && frontend_unquantized_reason(l->model, w->name))
			report_text(out, "not_quantized", "%s",
			            frontend_unquantized_reason(l->model, w->name));
		report_close(out);
		elements += (uint64_t)n;
		bytes += parameter_bytes(w, n);
	}
	report_close(out);
	report_number(out, "parameter_count", elements);
	report_number(out, "parameter_bytes", bytes);
}

/* Names and shapes of a model without weight files. False: it has weights. */
static bool report_shapes(struct driver *d, struct report *out, const struct frontend_model *m)
{
	int rank;
	const int64_t *dims;
	const char *path = frontend_parameter(m, 0, &rank, &dims);
	if (!path)
		return false;
	report_text(out, "weights", "none yet: parameters have names and shapes alone");
	report_open(out, "parameters");
	for (size_t i = 0; (path = frontend_parameter(m, i, &rank, &dims)) != NULL; i++) {
		const char *shape = "";
		for (int k = 0; k < rank; k++)
			shape = arena_printf(&d->arena, "%s%s%lld", shape, k > 0 ? ", " : "",
			                     (long long)dims[k]);
		report_text(out, path, "[%s]", shape);
	}
	report_close(out);
	return true;
}

static enum tfmc_status measure_sizes(struct driver *d, const struct ir_module *in,
                                      struct ir_module **planned, struct backend_sizes *sizes)
{
	struct pass_report report;
	const struct target *target = driver_best_target(d, NULL);
	if (!target)
		return TFMC_INVALID;
	pass_report_init(&report);
	enum tfmc_status st = driver_run_pipeline(d, in, driver_pipeline(d), target, planned, &report);
	pass_report_destroy(&report);
	return st == TFMC_OK ? backend_measure(&d->diag, *planned, target, &d->arena, sizes) : st;
}

static void report_arena(struct driver *d, struct report *out, const struct ir_module *m,
                         const struct ir_dim *bytes)
{
	size_t n = ir_dims_count(m->dims);
	int64_t *dims = ARENA_ARRAY(&d->arena, int64_t, n + 1), v;
	for (size_t i = 0; dims && i < n; i++)
		dims[i] = ir_dims_sym(m->dims, i)->hi;
	if (dims && ir_dim_eval(bytes, dims, &v))
		report_number(out, "arena_bytes", (uint64_t)v);
}

/* Entries by their function. Cases for special sizes are internal to the compiler, so not listed. */
static enum tfmc_status report_sizes(struct driver *d, struct report *out, const struct ir_module *in)
{
	static const char *const entries[] = {"run", "encode", "prefill", "step"};
	struct ir_module *m = NULL;
	struct backend_sizes sizes = {0};
	enum tfmc_status st = measure_sizes(d, in, &m, &sizes);
	report_open(out, "entries");
	for (size_t i = 0; st == TFMC_OK && i < TFMC_COUNT(entries); i++) {
		for (size_t k = 0; k < sizes.n_functions; k++) {
			if (strcmp(sizes.functions[k].func->name, entry_function(entries[i])))
				continue;
			report_row(out, entries[i]);
			report_arena(d, out, m, sizes.functions[k].arena);
			report_close(out);
		}
	}
	report_close(out);
	if (st == TFMC_OK) {
		report_number(out, "arena_bytes_for_each_worker", sizes.scratch);
		report_number(out, "packed_bytes", sizes.weights);
		report_number(out, "state_bytes", sizes.state_fixed);
		report_number(out, "state_bytes_for_each_sequence", sizes.state_batch);
	}
	ir_module_destroy(m);
	return st;
}

static void report_generation(struct report *out, const struct frontend_model *m)
{
	const struct frontend_generate *g = frontend_generate(m);
	const struct frontend_tokenizer *t = frontend_tokenizer_head(m);
	if (g->kind != GENERATE_NONE) {
		report_text(out, "generates",
		            g->kind == GENERATE_SEQ2SEQ ? "from a source" : "after a prompt");
		report_number(out, "tokens_max", (uint64_t)g->max_len);
	}
	report_text(out, "tokenizer",
	            !t->given                    ? "none"
	            : t->kind == TOKENIZER_CHARS ? "of characters"
	                                         : "yes");
}

static enum tfmc_status report_model(struct driver *d, struct report *out, const struct loaded *l)
{
	const struct ir_dims *dims = l->module->dims;
	report_text(out, "kind", l->model ? "model" : "IR text");
	report_text(out, "name", "%s", l->module->name);
	if (l->model && frontend_preset(l->model))
		report_text(out, "family", "%s", frontend_preset(l->model));
	report_open(out, "dims");
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		report_text(out, s->name, "%lld..%lld", (long long)s->lo, (long long)s->hi);
	}
	report_close(out);
	if (ir_find_func(l->module, "run"))
		report_interface(out, l->module, ir_find_func(l->module, "run"));
	if (l->model && report_shapes(d, out, l->model)) {
		report_generation(out, l->model);
		return TFMC_OK;
	}
	report_parameters(out, l);
	if (!l->model)
		return TFMC_OK;
	report_generation(out, l->model);
	return report_sizes(d, out, l->module);
}

enum tfmc_status inspect_model(struct driver *d, struct report *out)
{
	struct loaded l;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = report_model(d, out, &l);
	loaded_destroy(&l);
	return st;
}
