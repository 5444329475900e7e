/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect: tells the kind of a file or directory, and describes models, objects, files of weights, GGUF files and
 * packed tokenizers.
 *
 * The record of an object is found by its magic number in the bytes, since the object may be for another machine. The
 * record is untrusted: every offset is checked.
 * It lists entries, dims and sizes (tfmc_rt.h).
 */
#include <string.h>

#include "frontend/driver/commands/report.h"
#include "frontend/driver/commands/tensors.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/syntax/files.h"
#include "frontend/weights/files.h"
#include "frontend/weights/gguf.h"
#include "ir/support/checked.h"
#include "ir/support/glob.h"
#include "ir/support/number.h"
#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* ---- objects ---- */

/* A damaged record may refer to the same bytes many times: output is truncated. */
#define REPORT_BYTES_MAX (4 << 20)
#define TYPE_BYTES_MAX   1024

/* Finds the record at any multiple of 8 bytes, its alignment; NULL: none that fits the file. Its fields are not
 * checked. */
static const struct tfmc_record *find_record(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i + sizeof(struct tfmc_record) <= n; i += 8) {
		const struct tfmc_record *r = (const void *)(bytes + i);
		if (r->magic == TFMC_RECORD_MAGIC && r->abi_version == TFMC_ABI_VERSION &&
		    r->bytes <= n - i && r->bytes >= sizeof(*r))
			return r;
	}
	return NULL;
}

/* `n` structs of `size` bytes at an offset of the record; NULL: out of its bounds. */
static const void *record_array(const struct tfmc_record *r, uint64_t at, uint64_t n, size_t size)
{
	bool fits = at % 8 == 0 && at <= r->bytes && n <= (r->bytes - at) / size;
	return fits ? (const char *)r + at : NULL;
}

/* Copies a string of the record, at most 256 bytes: in a damaged record it may lack its terminator. */
static const char *record_text(struct arena *a, const struct tfmc_record *r, uint64_t at)
{
	uint64_t n = at < r->bytes ? r->bytes - at : 0;
	return arena_printf(a, "%.*s", n < 256 ? (int)n : 256, n ? (const char *)r + at : "");
}

/* Prints the size of an axis, a polynomial in the dims: "2*B+1". The record stores the number of terms, then for
 * each its scale, number of factors and their dims, 8 bytes each. */
static void print_size(struct buf *out, struct arena *a, const struct tfmc_record *r, uint64_t at)
{
	const struct tfmc_record_dim *dims = record_array(r, r->dims, r->n_dims, sizeof(*dims));
	const uint64_t *head = record_array(r, at, 1, sizeof(*head));
	uint64_t terms = head ? *head : 0;
	buf_str(out, terms ? "" : "0");
	for (uint64_t t = 0; t < terms && out->len < TYPE_BYTES_MAX; t++) {
		const uint64_t *term = record_array(r, at += 8, 2, sizeof(*term));
		const uint64_t *factors = term ? record_array(r, at + 16, term[1], sizeof(*factors)) : NULL;
		if (!factors)
			return;
		int64_t scale = (int64_t)term[0];
		bool shows = scale != 1 || !term[1];
		buf_str(out, t ? "+" : "");
		if (shows)
			buf_printf(out, "%lld", (long long)scale);
		for (uint64_t k = 0; k < term[1] && out->len < TYPE_BYTES_MAX; k++)
			buf_printf(out, "%s%s", shows || k ? "*" : "",
			           dims && factors[k] < r->n_dims ? record_text(a, r, dims[factors[k]].name)
			                                          : "?");
		at += 8 + 8 * term[1];
	}
}

/* Reports n tensors of the record, at an offset, under `key`. */
static void report_record_tensors(struct report *out, struct arena *a, const struct tfmc_record *r,
                                  const char *key, uint64_t at, uint64_t n)
{
	const struct tfmc_record_tensor *items = record_array(r, at, n, sizeof(*items));
	struct buf type;
	buf_init(&type);
	report_open(out, key);
	for (uint64_t i = 0; items && i < n && out->out->len < REPORT_BYTES_MAX; i++) {
		const struct tfmc_record_tensor *t = &items[i];
		buf_clear(&type);
		buf_printf(&type, "%s[",
		           t->dtype < IR_N_DTYPES ? ir_dtype_name((enum ir_dtype)t->dtype) : "?");
		for (uint64_t k = 0; k < t->rank && k < TFMC_COUNT(t->sizes); k++) {
			buf_str(&type, k ? "," : "");
			print_size(&type, a, r, t->sizes[k]);
		}
		buf_char(&type, ']');
		report_row(out, record_text(a, r, t->name));
		report_text(out, "type", "%s", type.data);
		report_flag(out, "optional", t->has_default == 1);
		report_close(out);
	}
	report_close(out);
	buf_destroy(&type);
}

static void report_entries(struct report *out, struct arena *a, const struct tfmc_record *r)
{
	const struct tfmc_record_entry *items = record_array(r, r->entries, r->n_entries, sizeof(*items));
	report_open(out, "entries");
	for (uint64_t i = 0; items && i < r->n_entries && out->out->len < REPORT_BYTES_MAX; i++) {
		report_open(out, record_text(a, r, items[i].name));
		report_record_tensors(out, a, r, "inputs", items[i].inputs, items[i].n_inputs);
		report_record_tensors(out, a, r, "outputs", items[i].outputs, items[i].n_outputs);
		report_close(out);
	}
	report_close(out);
}

static void report_dims(struct report *out, struct arena *a, const struct tfmc_record *r)
{
	const struct tfmc_record_dim *dims = record_array(r, r->dims, r->n_dims, sizeof(*dims));
	report_open(out, "dims");
	for (uint64_t i = 0; dims && i < r->n_dims && out->out->len < REPORT_BYTES_MAX; i++)
		report_text(out, record_text(a, r, dims[i].name), "%lld..%lld", (long long)dims[i].lo,
		            (long long)dims[i].hi);
	report_close(out);
}

/* Reports the bytes of code of each variant, which their symbols tell, and of the interface that they share. */
static void report_code(struct report *out, struct driver *d, const struct file_map *map,
                        const struct tfmc_record *r)
{
	const char *targets[BACKEND_VARIANTS_MAX];
	uint64_t code[BACKEND_VARIANTS_MAX];
	struct code_names names = {.model = record_text(&d->arena, r, r->name), .targets = targets};
	const uint64_t *items = record_array(r, r->variants, r->n_variants, sizeof(*items));
	if (!items || r->n_variants > BACKEND_VARIANTS_MAX)
		return;
	for (; names.n < r->n_variants; names.n++)
		targets[names.n] = record_text(&d->arena, r, items[names.n]);
	uint64_t remaining = driver_code_bytes(d, &names, map->data, map->len, code);
	report_open(out, "code_bytes");
	for (size_t i = 0; i < names.n; i++)
		report_number(out, targets[i], code[i]);
	report_number(out, "interface", remaining);
	report_close(out);
}

/* Reports the record of an object: names, entries, and the sizes of memory that a caller provides. */
static enum tfmc_status inspect_object(struct driver *d, struct report *out, const struct file_map *map)
{
	const struct tfmc_record *r = find_record(map->data, map->len);
	struct arena *a = &d->arena;
	if (!r) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s is an object without a tfmc record",
		           d->options.input);
		return TFMC_INVALID;
	}
	report_text(out, "kind", "tfmc object");
	report_text(out, "name", "%s", record_text(a, r, r->name));
	report_text(out, "target", "%s", record_text(a, r, r->target));
	report_number(out, "interface_version", r->abi_version);
	report_text(out, "structure", "%016llx", (unsigned long long)r->structure_hash);
	if (r->ranks > 1)
		report_number(out, "ranks", (uint64_t)r->ranks);
	report_row(out, "weights");
	report_text(out, "type", "%016llx", (unsigned long long)r->weights_hash);
	report_number(out, "bytes", r->weights_bytes);
	report_flag(out, r->weights_embedded ? "embedded" : "in_a_file", true);
	report_close(out);
	report_dims(out, a, r);
	report_entries(out, a, r);
	report_code(out, d, map, r);
	report_number(out, "arena_bytes_max", r->arena_bytes_max);
	report_number(out, "arena_bytes_for_each_worker", r->scratch_bytes);
	report_number(out, "state_bytes", r->state_fixed_bytes);
	report_number(out, "state_bytes_for_each_sequence", r->state_batch_bytes);
	return TFMC_OK;
}

/* ---- models ---- */

static void report_type(struct report *out, const struct ir_dims *dims, const struct ir_type *type)
{
	struct buf text;
	buf_init(&text);
	ir_type_print(&text, dims, type);
	report_text(out, "type", "%s", text.data);
	buf_destroy(&text);
}

/* Reports the tensors that a caller of the function passes and receives; states and past lengths are internal. */
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

/* Counts the elements of a weight. False: it does not come from a file, or has a size that is not constant or
 * overflows. */
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

/* Bytes of n elements in the weight's format, whose blocks divide its rows; 0: unknown. */
static uint64_t parameter_bytes(const struct ir_weight *w, int64_t n)
{
	int64_t k = 0;
	if (w->format == FORMAT_PLAIN)
		return (uint64_t)n * (uint64_t)ir_dtype_bytes(w->type->dtype);
	if (w->type->rank < 1 || !ir_dim_is_const(w->type->dims[w->type->rank - 1], &k) || k == 0)
		return 0;
	return (uint64_t)(n / k) * (uint64_t)ir_format_row_bytes(w->format, k);
}

/* Reports the parameters that come from files, with their bytes in memory. The layers of a loop are stacked into
 * one. */
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

/* Reports names and shapes of the parameters of a model without weight files, for those who write them. False: it has
 * weights or no parameters: frontend_parameter() lists those of a model that was loaded for shapes alone. */
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

/* Plans a module for the target of the options, and measures the layout of its object, without code. */
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

/* Reports a number of bytes at the largest dims; nothing where it overflows. */
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

/* Reports the sizes of each entry, those of its function. Cases for special sizes are internal, so not listed. */
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

/* ---- settings of generation ---- */

/* Reports a setting only if it changes something: 0 and `neutral` do not. */
static void report_real(struct report *out, const char *key, double value, double neutral)
{
	if (value != 0 && value != neutral)
		report_text(out, key, "%.17g", value);
}

/* Reports a setting only if it is given. */
static void report_count(struct report *out, const char *key, int64_t n)
{
	if (n > 0)
		report_number(out, key, (uint64_t)n);
}

static void write_ids(struct buf *out, const struct frontend_ids *ids)
{
	for (size_t i = 0; i < ids->n; i++)
		buf_printf(out, "%s%lld", i ? "," : "", (long long)ids->items[i]);
}

/* Reports sequences of ids as "1,2;3"; with_bias: as "0.5:1,2;-1:3". Nothing for none. */
static void report_sequences(struct report *out, const char *key, const struct frontend_sequences *s,
                             bool with_bias)
{
	struct buf text = {0};
	for (size_t i = 0; i < s->n; i++) {
		buf_str(&text, i ? ";" : "");
		if (with_bias)
			buf_printf(&text, "%.17g:", s->items[i].by);
		write_ids(&text, &s->items[i].ids);
	}
	if (s->n && !buf_failed(&text))
		report_text(out, key, "%.*s", (int)text.len, text.data);
	buf_destroy(&text);
}

/* Reports the settings of the beam search, by their names in transformers; early stopping as tfmc generate applies
 * it. */
static void report_search(struct report *out, const struct frontend_search *s)
{
	static const char *const early[] = {[EARLY_NONE] = "true",
	                                    [EARLY_TRUE] = "true",
	                                    [EARLY_FALSE] = "false",
	                                    [EARLY_NEVER] = "never"};
	if (!s->given)
		return;
	report_number(out, "beam", (uint64_t)s->beam);
	report_text(out, "length_penalty", "%.17g", s->length_penalty);
	report_flag(out, "gnmt", s->penalty == PENALTY_GNMT);
	report_text(out, "early_stopping", "%s", early[s->early_stopping]);
}

static void report_sample(struct report *out, const struct frontend_sample *s)
{
	if (!s->given)
		return;
	report_text(out, "temperature", "%.17g", s->temperature);
	report_text(out, "top_p", "%.17g", s->top_p);
	report_text(out, "min_p", "%.17g", s->min_p);
	report_number(out, "top_k", (uint64_t)s->top_k);
	report_number(out, "seed", (uint64_t)s->seed);
}

/* Reports settings of the section `generate` that no object contains, for callers that follow them
 * (runtime/python). */
static void report_settings(struct report *out, const struct frontend_generate *g)
{
	report_open(out, "generation");
	report_count(out, "max_tokens", g->max_new);
	report_count(out, "max_total", g->max_total);
	report_count(out, "min_tokens", g->min_new);
	report_count(out, "min_total", g->min_total);
	report_real(out, "repetition_penalty", g->repetition_penalty, 1);
	report_real(out, "source_repetition_penalty", g->source_repetition_penalty, 1);
	report_count(out, "no_repeat_ngram", g->no_repeat_ngram);
	report_count(out, "source_no_repeat_ngram", g->source_no_repeat_ngram);
	report_count(out, "decay_after", g->decay.after);
	report_real(out, "decay", g->decay.factor, 0);
	report_flag(out, "renormalize", g->renormalize);
	report_count(out, "counted", g->forced);
	const struct frontend_sequence last = {.ids = g->forced_last};
	report_sequences(out, "forced_last", &(struct frontend_sequences){&last, last.ids.n > 0}, false);
	report_sequences(out, "banned", &g->banned, false);
	report_sequences(out, "bias", &g->bias, true);
	report_sample(out, &g->sample);
	report_search(out, &g->search);
	if (g->unsupported)
		report_text(out, "unsupported", "%s", g->unsupported);
	report_close(out);
}

/* Reports whether the model generates, and its tokenizer. Settings are for programs, so in JSON only. */
static void report_generation(struct report *out, const struct frontend_model *m)
{
	const struct frontend_generate *g = frontend_generate(m);
	const struct frontend_tokenizer *t = frontend_tokenizer_head(m);
	if (g->kind != GENERATE_NONE) {
		report_text(out, "generates",
		            g->kind == GENERATE_SEQ2SEQ ? "from a source" : "after a prompt");
		report_number(out, "tokens_max", (uint64_t)g->max_len);
		if (out->is_json)
			report_settings(out, g);
	}
	report_text(out, "tokenizer",
	            !t->given                    ? "none"
	            : t->kind == TOKENIZER_CHARS ? "of characters"
	                                         : "yes");
}

/* Reports a loaded model: dims, interface, parameters, generation, and the sizes of its object. */
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

/* Reports a model file, a hub directory, a GGUF file, or IR text. Sizes are those of `tfmc plan` at the largest
 * dims. */
static enum tfmc_status inspect_model(struct driver *d, struct report *out)
{
	struct loaded l;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = report_model(d, out, &l);
	loaded_destroy(&l);
	return st;
}

/* ---- files ---- */

/* Reports the tensors that a file of weights stores, in its order. */
static void report_tensors(struct report *out, const struct stored_tensors *s)
{
	uint64_t elements = 0, bytes = 0;
	struct buf type;
	buf_init(&type);
	report_open(out, "tensors");
	for (size_t i = 0; i < s->n; i++) {
		const struct stored_tensor *t = &s->items[i];
		uint64_t n = 1;
		buf_clear(&type);
		buf_printf(&type, "%s[", t->type_name);
		for (int k = 0; k < t->rank; k++) {
			buf_printf(&type, "%s%lld", k ? "," : "", (long long)t->dims[k]);
			n *= (uint64_t)t->dims[k];
		}
		buf_char(&type, ']');
		report_row(out, t->name);
		report_text(out, "type", "%s", type.data);
		report_number(out, "bytes", t->bytes);
		report_close(out);
		elements += n;
		bytes += t->bytes;
	}
	report_close(out);
	report_number(out, "tensor_count", s->n);
	report_number(out, "element_count", elements);
	report_number(out, "tensor_bytes", bytes);
	buf_destroy(&type);
}

#define SHOWN 200 /* bytes of a string, at most */

/* Reports an entry of GGUF metadata; of strings the beginning, of arrays length and type. */
static void report_value(struct report *out, const char *key, const struct gguf_value *v)
{
	char number[NUMBER_TEXT_MAX];
	switch (v->type) {
	case GGUF_STRING: {
		int n = v->len < SHOWN ? (int)v->len : SHOWN;
		while (n > 0 && (size_t)n < v->len && ((unsigned char)v->text[n] & 0xc0) == 0x80)
			n--; /* cuts between characters */
		report_text(out, key, "%.*s", n, v->text);
		return;
	}
	case GGUF_ARRAY: report_text(out, key, "%zu of %s", v->n, gguf_type_name(v->element)); return;
	case GGUF_BOOL: report_text(out, key, v->i ? "true" : "false"); return;
	case GGUF_F32:
	case GGUF_F64: report_text(out, key, "%.*s", (int)number_print_f64(number, v->f), number); return;
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_U16:
	case GGUF_I16:
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_U64:
	case GGUF_I64: report_text(out, key, "%lld", (long long)v->i); return;
	}
}

/* Reports the content of the file, then the model, which may fail: a file that is not a complete model is described
 * first. */
static enum tfmc_status inspect_gguf(struct driver *d, struct report *out, const struct file_map *map)
{
	struct gguf g;
	bool is_readable = true;
	const struct stored_source src = {&d->arena, &d->diag, d->options.input, LOC_NONE, map->data,
	                                  map->len,  false};
	TFMC_TRY(gguf_read(&src, &g));
	report_text(out, "format", "GGUF, version %u", g.version);
	report_open(out, "metadata");
	for (size_t i = 0; i < g.n_entries; i++)
		report_value(out, g.entries[i].key, &g.entries[i].value);
	report_close(out);
	report_tensors(out, &g.tensors);
	for (size_t i = 0; i < g.tensors.n; i++)
		is_readable = is_readable && g.tensors.items[i].readable;
	if (is_readable && g.tensors.n > 0)
		return inspect_model(d, out);
	report_text(out, "kind",
	            is_readable ? "metadata alone" : "of quantized types that tfmc does not read");
	return TFMC_OK;
}

/* Reports the header of a weights file; its hash ties it to an object. */
static enum tfmc_status inspect_weights(struct report *out, const struct file_map *map)
{
	struct tfmc_weights_header h;
	memcpy(&h, map->data, sizeof(h));
	report_text(out, "kind", "tfmc weights");
	report_text(out, "structure", "%016llx", (unsigned long long)h.structure_hash);
	report_text(out, "weights", "%016llx", (unsigned long long)h.weights_hash);
	if (h.ranks > 1)
		report_text(out, "rank", "%lld of %lld", (long long)h.rank, (long long)h.ranks);
	report_number(out, "bytes", h.bytes);
	return TFMC_OK;
}

/* Reports the first of the packed tokenizers in a file; a second one is the target's. */
static enum tfmc_status inspect_tokenizer(struct driver *d, struct report *out, const struct file_map *map)
{
	static const char *const models[] = {[TFMC_TOK_BPE] = "bpe",
	                                     [TFMC_TOK_UNIGRAM] = "unigram",
	                                     [TFMC_TOK_WORDPIECE] = "wordpiece",
	                                     [TFMC_TOK_WORDLEVEL] = "words"};
	struct tfmc_tokenizer *t;
	const struct tfmc_tok_header *h = (const void *)map->data;
	int status = tfmc_tokenizer_open(map->data, map->len, &t);
	if (status != TFMC_TOKENIZER_OK) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s: %s", d->options.input,
		           tfmc_tokenizer_status_text(status));
		return status == TFMC_TOKENIZER_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
	}
	report_text(out, "kind", "packed tokenizer");
	report_text(out, "model", "%s", h->model < TFMC_COUNT(models) ? models[h->model] : "?");
	report_number(out, "tokens", (uint64_t)tfmc_tokenizer_size(t));
	report_number(out, "bytes", h->bytes);
	report_flag(out, "second_tokenizer", h->bytes < map->len);
	tfmc_tokenizer_close(t);
	return TFMC_OK;
}

enum kind { KIND_MODEL, KIND_OBJECT, KIND_GGUF, KIND_WEIGHTS, KIND_TOKENIZER, KIND_TENSORS };

/* Returns the kind by the file's first bytes, safetensors by its name. Everything else is read as a model, whose
 * errors tell what it is not. */
static enum kind detect_kind(struct diag_context *cx, const char *path)
{
	static const struct {
		enum kind kind;
		const char *magic;
		size_t n;
	} kinds[] = {{KIND_OBJECT, "\177ELF", 4},
	             {KIND_GGUF, "GGUF", 4},
	             {KIND_WEIGHTS, "WIGHTS1", 8},
	             {KIND_TOKENIZER, "TFMCTOK1", 8}};
	char head[16];
	size_t n = file_head(cx, path, head, sizeof(head));
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++)
		if (n >= kinds[i].n && !memcmp(head, kinds[i].magic, kinds[i].n))
			return kinds[i].kind;
	bool tensors = weight_file_format((const unsigned char *)head, n) != NULL;
	return tensors || file_ends_with(path, ".safetensors") ? KIND_TENSORS : KIND_MODEL;
}

/* Reports a file of weights by its headers; no values are read. */
static enum tfmc_status inspect_tensors(struct driver *d, struct report *out, const struct file_map *map)
{
	const char *format = weight_file_format(map->data, map->len);
	struct stored_tensors s;
	const struct stored_source src = {&d->arena, &d->diag, d->options.input,    LOC_NONE,
	                                  map->data, map->len, .headers_only = true};
	TFMC_TRY(weight_file_read(&src, &s));
	report_text(out, "kind", "%s", format != NULL ? format : "safetensors");
	report_tensors(out, &s);
	return TFMC_OK;
}

/* Reports a mapped file. TFMC_INVALID after a diagnostic also when it is shorter than its header. */
static enum tfmc_status inspect_file(struct driver *d, struct report *out, enum kind kind,
                                     const struct file_map *map)
{
	switch (kind) {
	case KIND_MODEL: break;
	case KIND_OBJECT: return inspect_object(d, out, map);
	case KIND_GGUF: return inspect_gguf(d, out, map);
	case KIND_WEIGHTS:
		if (map->len >= sizeof(struct tfmc_weights_header))
			return inspect_weights(out, map);
		break;
	case KIND_TOKENIZER: return inspect_tokenizer(d, out, map);
	case KIND_TENSORS: return inspect_tensors(d, out, map);
	}
	diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s ends too early", d->options.input);
	return TFMC_INVALID;
}

/* ---- probed values ---- */

/* Prints name, type and line of a value that can be probed. */
static void print_probe(struct driver *d, const struct ir_module *m, const struct ir_func *f,
                        const struct probe_site *site, const char *name)
{
	const struct ir_type *t = ir_type_of(f, site->op->results[site->result]);
	const struct loc at = site->op->loc.at;
	buf_printf(&d->out, "%-48s %s[", name, ir_dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++) {
		bool is_keys = site->part == PROBE_PROBABILITIES &&
		               i == 3; /* attention weights are [B, H, S, T], not [B, H, S, E] */
		buf_str(&d->out, i ? "," : "");
		ir_dim_print(&d->out, m->dims,
		             is_keys ? ir_type_of(f, site->op->operands[1])->dims[2] : t->dims[i], false);
	}
	buf_char(&d->out, ']');
	if (at.source)
		buf_printf(&d->out, "  %s:%u", diag_source_name(&d->diag, at.source), at.line);
	buf_char(&d->out, '\n');
}

/* Prints the probe names of a function that match an option --probe, and sets matched[i] for each option i that
 * matches a name. Nothing for a function that the model does not have. */
static enum tfmc_status print_names(struct driver *d, const struct ir_module *m, const char *function,
                                    bool *matched)
{
	const struct ir_func *f = ir_find_func(m, function);
	struct probe_request q = {.cx = &d->diag, .arena = &d->arena};
	struct probe_sites sites = {0};
	struct probe_names names = {0};
	if (!f)
		return TFMC_OK;
	TFMC_TRY(probe_list(&q, f, &sites, &names));
	buf_printf(&d->out, "%s:\n", function);
	for (size_t i = 0; i < names.n; i++) {
		bool found = false;
		for (size_t k = 0; k < d->options.probe.n; k++) {
			bool fits = glob_match(d->options.probe.items[k], names.items[i].name);
			matched[k] = matched[k] || fits;
			found = found || fits;
		}
		if (found)
			print_probe(d, m, f, &sites.items[names.items[i].site], names.items[i].name);
	}
	return TFMC_OK;
}

/* Prints names, types and locations of the values of run and encode that match --probe. */
static enum exit_code inspect_probes(struct driver *d)
{
	struct loaded l;
	bool *matched = ARENA_ARRAY(&d->arena, bool, d->options.probe.n + 1);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !matched)
		st = TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = print_names(d, l.module, "run", matched);
	if (st == TFMC_OK)
		st = print_names(d, l.module, "encode", matched);
	for (size_t k = 0; st == TFMC_OK && k < d->options.probe.n; k++) {
		if (matched[k])
			continue;
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "no value of the model matches '%s'",
		           d->options.probe.items[k]);
		st = TFMC_INVALID;
	}
	loaded_destroy(&l);
	return exit_code_of(st);
}

/* Files are described by their headers, without a model; anything unknown is loaded as a model. */
enum exit_code command_inspect(struct driver *d)
{
	const char *path = d->options.input;
	struct file_map map = {0};
	struct report report;
	enum tfmc_status st;
	if (d->options.probe.n)
		return inspect_probes(d);
	enum kind kind = detect_kind(&d->diag, path);
	report_begin(&report, &d->out, d->options.json);
	if (kind == KIND_MODEL) {
		st = inspect_model(d, &report);
	} else {
		st = file_map_open(&d->diag, path, LOC_NONE, &map);
		if (st == TFMC_OK)
			st = inspect_file(d, &report, kind, &map);
		file_map_close(&map);
	}
	report_end(&report);
	/* not half an object; inspect_gguf's is complete */
	if (st != TFMC_OK && d->options.json && kind != KIND_GGUF)
		buf_clear(&d->out);
	return exit_code_of(st);
}
