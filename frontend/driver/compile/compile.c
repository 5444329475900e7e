/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a model file or IR text to a verified module, the choice of the target, and the facts of the object's record.
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/driver/compile/compile.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/files.h"
#include "frontend/weights/files.h"
#include "ir/support/memory.h"
#include "ir/support/number.h"
#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "ir/support/strmap.h"

#define TIR_LIMIT ((size_t)64 << 20)

/* ---- loading ---- */
/* Weight files of IR text are opened on first use, relative to one directory. */
struct tir_weights {
	struct weight_files *files;
	const char *dir;
};

/* weight_source.read of IR text: finds a tensor, opening its file on first use. TFMC_INVALID after a diagnostic. */
static enum tfmc_status read_tir_weight(void *user, struct diag_context *cx, const char *file,
                                        const char *tensor, struct weight_bytes *out)
{
	struct tir_weights *w = user;
	const struct stored_tensor *t = weight_files_find(w->files, tensor);
	if (!t || strcmp(t->file, file)) {
		TFMC_TRY(weight_files_open(w->files, w->dir, file, LOC_NONE));
		t = weight_files_find(w->files, tensor);
	}
	if (!t || !t->readable) {
		diag_error(cx, LOC_NONE, DIAG_MISSING_TENSOR, "%s has no readable tensor %s", file, tensor);
		return TFMC_INVALID;
	}
	weight_tensor_data(t, out);
	return TFMC_OK;
}

/* Registers the files that a weight expression reads as inputs. *last: the last one, to skip repetitions. */
static void register_weight_files(struct driver *d, const char *dir, const struct ir_wexpr *e,
                                  const char **last)
{
	for (size_t i = 0; i < e->n_args; i++)
		register_weight_files(d, dir, e->args[i], last);
	if (e->kind != WX_TENSOR || (*last && !strcmp(*last, e->file)))
		return;
	*last = e->file;
	outputs_add_input(&d->outputs, file_join(&d->arena, dir, e->file));
}

/* frontend_options.file_read: registers a file of a model as an input. */
static void register_read_file(void *outputs, const char *path)
{
	outputs_add_input(outputs, path);
}

/* Whether a name may be in a header; NULL is. False after a diagnostic. */
static bool check_name(struct driver *d, struct loc loc, const char *name)
{
	if (name == NULL || expr_is_name(name))
		return true;
	diag_error(&d->diag, loc, DIAG_NAME, "'%.63s' is not a name (letters, digits, _; at most 63)", name);
	return false;
}

/*
 * False after a diagnostic: names that a header declares must be C identifiers; those of IR text may be any string.
 */
static bool check_names(struct driver *d, const struct ir_module *m)
{
	bool ok = check_name(d, LOC_NONE, m->name);
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		ok = check_name(d, f->loc.at, f->when != NULL ? NULL : f->name) &&
		     ok; /* cases are internal */
		for (size_t k = 0; k < f->n_params; k++)
			ok = check_name(d, f->params[k].loc.at, f->params[k].name) && ok;
		for (size_t k = 0; k < f->n_results; k++)
			ok = check_name(d, f->loc.at, f->results[k].name) && ok;
	}
	return ok;
}

/* False after a diagnostic: a result that is an output, but has no name by which a caller gets it. */
static bool check_outputs(struct driver *d, const struct ir_module *m)
{
	bool ok = true;
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		const struct ir_op *end = f->body->ops[f->body->n_ops - 1];
		for (size_t k = 0; k < f->n_results; k++) {
			const struct ir_result *r = &f->results[k];
			if (r->name || r->role != ROLE_INPUT ||
			    ir_type_of(f, end->operands[k])->kind != IR_TENSOR)
				continue;
			diag_error(&d->diag, f->loc.at, DIAG_NAME, "result %zu of @%s has no name", k,
			           f->name);
			ok = false;
		}
	}
	return ok;
}

/* Reads IR text and opens its weight files on first use. Options that need a model are rejected; names are checked
 * where a header is made, and that outputs have some where the text is compiled or run. Every file that a weight
 * expression names is an input. */
static enum tfmc_status load_tir(struct driver *d, struct loaded *out)
{
	const char *path = d->options.input, *text;
	size_t len;
	if (d->options.context || d->options.adapter.n > 0) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s",
		           d->options.context
		                   ? "--context is for model files; IR text has its bounds in `dim`"
		                   : "--adapter is for models; IR text names every tensor");
		return TFMC_INVALID;
	}
	TFMC_TRY(file_read(&d->arena, &d->diag, path, TIR_LIMIT, LOC_NONE, &text, &len));
	out->text = text;
	out->text_len = len;
	TFMC_TRY(ir_parse(&d->diag, path, text, len, &out->module));
	if (d->options.name)
		out->module->name = d->options.name;
	TFMC_TRY(ir_verify(out->module, &d->diag));
	TFMC_TRY(driver_check_dim_options(d));
	bool ok = d->options.command != COMMAND_COMPILE || check_names(d, out->module);
	if (!(d->options.command &
	      (COMMAND_OPT | COMMAND_REDUCE | COMMAND_PLAN | COMMAND_INSPECT | COMMAND_GRAPH)))
		ok = check_outputs(d, out->module) && ok;
	if (!ok)
		return TFMC_INVALID;
	struct tir_weights *w = ARENA_NEW(&d->arena, struct tir_weights);
	out->files = weight_files_create(&d->arena, &d->diag, NULL);
	if (!w || !out->files)
		return TFMC_NO_MEMORY;
	w->dir = d->options.weights_dir ? d->options.weights_dir : file_dir(&d->arena, path);
	w->files = out->files;
	out->weights = (struct weight_source){.read = read_tir_weight, .user = w};
	const char *last = NULL;
	for (size_t i = 0; i < out->module->weights.n; i++)
		if (out->module->weights.items[i]->init)
			register_weight_files(d, w->dir, out->module->weights.items[i]->init, &last);
	return TFMC_OK;
}

/* The options of the command line that the front end reads: --set, --context, --quantize, .. is_unrounded leaves out
 * those that round. inspect and graph need no values, so that missing weight files are no error for them (shapes). */
static struct frontend_options driver_frontend_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct option_list bounds = {0}, values = {0};
	driver_split_dims(d, &bounds, &values);
	return (struct frontend_options){.sets = o->set.items,
	                                 .n_sets = o->set.n,
	                                 .ignored = o->ignore_key.items,
	                                 .n_ignored = o->ignore_key.n,
	                                 .dims = bounds.items,
	                                 .n_dims = bounds.n,
	                                 .adapters = o->adapter.items,
	                                 .n_adapters = o->adapter.n,
	                                 .allow_unused = o->allow_unused,
	                                 .shapes =
	                                         o->command == COMMAND_INSPECT || o->command == COMMAND_GRAPH,
	                                 .name = o->name,
	                                 .file_read = register_read_file,
	                                 .file_user = &d->outputs,
	                                 .context = option_int(o->context, 0),
	                                 .unrounded = d->is_unrounded,
	                                 .quantize = d->is_unrounded ? NULL : o->quantize,
	                                 .dtype = d->is_unrounded ? NULL : o->dtype,
	                                 .profile = d->is_unrounded ? NULL : o->profile};
}

const char *driver_rounding_option(const struct driver *d)
{
	const struct driver_options *o = &d->options;
	return o->quantize ? "quantize" : o->profile ? "profile" : o->dtype ? "dtype" : NULL;
}

/* Whether a command or option requests the entry `score`. It is built only then, since it computes all rows of
 * logits. */
static bool needs_score(struct driver *d)
{
	struct option_list entries = {0};
	driver_split_list(d, d->options.entries, &entries);
	for (size_t i = 0; i < entries.n; i++)
		if (!strcmp(entries.items[i], "score"))
			return true;
	bool is_named = d->options.entry && !strcmp(d->options.entry, "score");
	return is_named || d->options.command == COMMAND_SCORE;
}

/* With -v prints the opened files with their sizes. */
static void report_read_files(struct driver *d)
{
	char bytes[NUMBER_TEXT_MAX];
	struct stat info;
	for (size_t i = 0; d->options.verbose && i < d->outputs.inputs.n; i++) {
		const char *path = d->outputs.inputs.items[i];
		if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
			continue;
		number_print_bytes(bytes, (uint64_t)info.st_size);
		buf_printf(&d->log, "read %s (%s)\n", path, bytes);
	}
	driver_flush_log(d);
}

/* ---- formats of weights ---- */

/* Why the front end left a weight unquantized; NULL: it did not, or IR text. */
static const char *why_unquantized(const struct loaded *l, const struct ir_weight *w)
{
	return l->model ? frontend_unquantized_reason(l->model, w->name) : NULL;
}

/* Bytes of a weight in format f; FORMAT_PLAIN counts as f32, for comparison. */
static double format_bytes(const struct ir_weight *w, enum ir_format f)
{
	const struct ir_wexpr *e = w->init;
	int64_t k = e->dims[e->rank - 1], n = wexpr_count(e);
	return f == FORMAT_PLAIN ? 4.0 * (double)n : (double)(n / (k ? k : 1) * ir_format_row_bytes(f, k));
}

/* sqrt(sum of squared errors / sum of squares); 0 for weights that are all zero. */
static double relative_rms(double error, double of)
{
	return of > 0 ? sqrt(error / of) : 0;
}

/* Prints the line of a weight. with_errors: quantizes it to measure the error of its elements and, with a profile,
 * of its products. */
static enum tfmc_status print_format(struct driver *d, const struct loaded *l, const struct ir_weight *w,
                                     bool with_errors, struct buf *out)
{
	struct wexpr_quant_errors e = {0};
	buf_printf(out, "%-44s %-7s %12.0f %12.0f", w->name, ir_format(w->format)->name,
	           format_bytes(w, FORMAT_PLAIN), format_bytes(w, w->format));
	if (with_errors)
		TFMC_TRY(wexpr_add_quant_errors(&d->diag, w->init, &l->weights, &e));
	if (e.of_elements > 0)
		buf_printf(out, " %10.4f", relative_rms(e.elements, e.of_elements));
	if (e.of_products > 0)
		buf_printf(out, " %10.4f", relative_rms(e.products, e.of_products));
	buf_char(out, '\n');
	return TFMC_OK;
}

/* Whether formats of weights differ, bf16 or f16 among them: only then these are listed, too. */
static bool has_mixed_float_formats(const struct loaded *l)
{
	const struct ir_module *m = l->module;
	enum ir_format f = FORMAT_PLAIN;
	bool differ = false, floats = false;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_weight *w = m->weights.items[i];
		differ = differ || why_unquantized(l, w);
		if (w->format == FORMAT_PLAIN)
			continue;
		differ = differ || (f != FORMAT_PLAIN && w->format != f);
		floats = floats || !ir_format_is_quantized(w->format);
		f = w->format;
	}
	return floats && differ;
}

/* Whether the tables list the format of a weight. differ: has_mixed_float_formats(). */
static bool is_listed_format(const struct ir_weight *w, bool differ)
{
	return ir_format_is_quantized(w->format) || (differ && w->format != FORMAT_PLAIN);
}

enum tfmc_status driver_print_formats(struct driver *d, const struct loaded *l, bool with_errors,
                                      struct buf *out)
{
	const struct ir_module *m = l->module;
	bool differ = has_mixed_float_formats(l);
	double before = 0, after = 0;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_weight *w = m->weights.items[i];
		if (!w->init || !is_listed_format(w, differ))
			continue;
		if (after == 0)
			buf_printf(out, "%-44s %-7s %12s %12s%s\n", differ ? "weights" : "quantized weights",
			           "format", "bytes of f32", "bytes",
			           with_errors ? "  RMS error  of products" : "");
		TFMC_TRY(print_format(d, l, w, with_errors, out));
		before += format_bytes(w, FORMAT_PLAIN);
		after += format_bytes(w, w->format);
	}
	if (after > 0)
		buf_printf(out, "%-44s %-7s %12.0f %12.0f\n", "all of them", "", before, after);
	for (size_t i = 0; i < m->weights.n; i++)
		if (why_unquantized(l, m->weights.items[i]))
			buf_printf(out, "%-44s %s: %s\n", m->weights.items[i]->name,
			           m->weights.items[i]->format == FORMAT_PLAIN
			                   ? "f32"
			                   : ir_format(m->weights.items[i]->format)->name,
			           why_unquantized(l, m->weights.items[i]));
	return TFMC_OK;
}

/* --remarks: a remark for each weight that the tables list, at the step of the model that it belongs to. */
static void remark_formats(struct driver *d, const struct loaded *l)
{
	bool differ = has_mixed_float_formats(l);
	for (size_t i = 0; i < l->module->weights.n; i++) {
		const struct ir_weight *w = l->module->weights.items[i];
		const char *why = why_unquantized(l, w), *name = ir_format(w->format)->name;
		bool is_quantized = ir_format_is_quantized(w->format);
		const struct diag_remark about = {
		        .pass = "quantize",
		        .path = w->loc.path,
		        .text = !why ? arena_printf(&d->arena, "%s is %s", w->name, name)
		                : is_quantized
		                        ? arena_printf(&d->arena, "%s is %s: %s", w->name, name, why)
		                        : arena_printf(&d->arena, "%s is not quantized: %s", w->name, why),
		        .is_missed = why != NULL};
		if (why || is_listed_format(w, differ))
			diag_remark_about(&d->diag, w->loc.at, &about);
	}
}

/* After a failure: for --set of a name that is an option, a hint at the option. */
static void note_options_in_set(struct driver *d)
{
	for (size_t i = 0; i < d->options.set.n; i++) {
		const char *set = d->options.set.items[i];
		const char *name = arena_strndup(&d->arena, set, strcspn(set, "="));
		const char *meant = option_by_any_name(&d->arena, name);
		if (meant != NULL)
			diag_note(&d->diag, LOC_NONE, "for '%s' there is the option %s%s", name,
			          option_dashes(meant), meant);
	}
}

enum tfmc_status driver_read_model(struct driver *d, struct frontend_model **out)
{
	struct frontend_options o = driver_frontend_options(d);
	outputs_add_input(&d->outputs, d->options.input);
	TFMC_TRY(frontend_load(&d->diag, d->options.input, &o, out));
	return driver_check_dim_options(d);
}

/* driver_load() without its reports: IR text or a model, lowered and verified. cache_begin() comes before any file
 * is read: content that changes later is not cached. */
static enum tfmc_status load_input(struct driver *d, struct loaded *out)
{
	*out = (struct loaded){0};
	cache_begin(&d->cache);
	memory_stage("reading", d->options.input);
	driver_end_stage(d, NULL);
	outputs_add_input(&d->outputs, d->options.input);
	if (d->options.rules)
		outputs_add_input(&d->outputs, d->options.rules);
	if (file_ends_with(d->options.input, ".tir"))
		return load_tir(d, out);
	struct frontend_options o = driver_frontend_options(d);
	o.score = needs_score(d);
	TFMC_TRY(frontend_load(&d->diag, d->options.input, &o, &out->model));
	TFMC_TRY(driver_check_dim_options(d));
	TFMC_TRY(driver_apply_model_target(d, frontend_target(out->model)));
	TFMC_TRY(frontend_lower(out->model, &out->module));
	TFMC_TRY(ir_verify(out->module, &d->diag));
	out->weights = frontend_weights(out->model);
	driver_end_stage(d, "frontend");
	return TFMC_OK;
}

enum tfmc_status driver_load(struct driver *d, struct loaded *out)
{
	enum tfmc_status st = load_input(d, out);
	if (st != TFMC_OK)
		note_options_in_set(d);
	if (st == TFMC_OK && d->options.remarks)
		remark_formats(d, out);
	report_read_files(d);
	return st;
}

void loaded_destroy(struct loaded *l)
{
	if (l->module)
		ir_module_destroy(l->module);
	if (l->plain)
		ir_module_destroy(l->plain);
	if (l->files)
		weight_files_destroy(l->files);
	frontend_destroy(l->model);
	*l = (struct loaded){0};
}

/* The header of an object declares the results by the paths of their values; other commands find them in l->probes. */
enum tfmc_status driver_insert_probes(struct driver *d, struct loaded *l, const struct option_list *patterns,
                                      const struct option_list *functions)
{
	struct probe_request q = {.cx = &d->diag,
	                          .arena = &d->arena,
	                          .patterns = patterns->items,
	                          .n_patterns = patterns->n,
	                          .functions = functions->items,
	                          .n_functions = functions->n,
	                          .by_path = d->options.command == COMMAND_COMPILE,
	                          .mode = d->options.probe_barrier ? PROBE_BARRIER : PROBE_RECOMPUTE};
	struct ir_module *probed;
	if (!patterns->n)
		return TFMC_OK;
	TFMC_TRY(probe_insert(&q, l->module, &probed, &l->probes));
	l->plain = l->module;
	l->module = probed;
	return TFMC_OK;
}

/* ---- target, pipeline ---- */
/* ": did you mean X?" when a word of the list `known` ("a, b, c") is similar to the name, else the list. */
static const char *suggest_or_list(struct driver *d, const char *name, const char *known)
{
	struct option_list words = {0};
	driver_split_list(d, known, &words);
	for (size_t i = 0; i < words.n; i++)
		words.items[i] += words.items[i][0] == ' '; /* the blank after a comma */
	return did_you_mean_or_known(&d->arena, name, words.items, words.n);
}

bool driver_reports_removed_target(struct driver *d, struct loc loc, const char *name)
{
	const char *hint = name ? target_replacement(name) : NULL;
	if (hint)
		diag_error(&d->diag, loc, DIAG_TARGET, "there is no target %s any more; %s", name, hint);
	return hint != NULL;
}

/* Reports why target_choose() found no target. triple, mcpu: as given, or NULL. */
static void report_unknown_target(struct driver *d, enum target_choice choice, const char *triple,
                                  const char *mcpu)
{
	struct buf known;
	if (driver_reports_removed_target(d, LOC_NONE, choice == TARGET_NO_TRIPLE ? triple : mcpu))
		return;
	buf_init(&known);
	if (choice == TARGET_NO_TRIPLE) {
		target_print_triples(&known);
		diag_error(&d->diag, LOC_NONE, DIAG_TARGET, "unknown target %s%s", triple,
		           suggest_or_list(d, triple, known.data));
	} else if (choice == TARGET_NO_NATIVE) {
		target_print_cpus(&known, NULL);
		diag_error(&d->diag, LOC_NONE, DIAG_TARGET,
		           "no target fits the machine tfmc runs on; -mcpu names one of %s", known.data);
	} else {
		target_print_cpus(&known, triple);
		diag_error(&d->diag, LOC_NONE, DIAG_TARGET, "unknown processor %s%s%s%s", mcpu,
		           triple ? " of target " : "", triple ? triple : "",
		           suggest_or_list(d, mcpu ? mcpu : "", known.data));
	}
	buf_destroy(&known);
}

/* The first element of --target; those after it add kernels for devices (add_opencl). */
const struct target *driver_find_target(struct driver *d, const char *mcpu)
{
	const struct target *t;
	const char *first = d->options.target, *end = first ? strchr(first, ',') : NULL;
	if (end)
		first = arena_strndup(&d->arena, first, (size_t)(end - first));
	enum target_choice choice = target_choose(first, mcpu, &t);
	if (choice != TARGET_CHOSEN)
		report_unknown_target(d, choice, first, mcpu);
	return t;
}

const struct target *driver_best_target(struct driver *d, const char *mcpu)
{
	struct variant_set set;
	if (!d->options.variants)
		return driver_find_target(d, mcpu);
	return driver_find_variants(d, &set) == TFMC_OK ? set.items[set.n - 1].target : NULL;
}

int64_t driver_ranks(const struct driver *d)
{
	return d->ranks * d->stages;
}

const char *driver_pipeline(struct driver *d)
{
	const char *name = d->options.passes ? d->options.passes
	                   : d->options.opt0 ? "O0"
	                   : d->options.opt1 ? "O1"
	                                     : "O2";
	return driver_ranks(d) > 1 && pipeline_named(name)
	               ? pipeline_of_ranks(&d->arena, name, d->ranks, d->stages)
	               : name;
}

/* ---- facts ---- */
/* Returns the tokens as lines, as the record stores them; NULL if there are none. */
static const char *join_vocabulary(struct driver *d, const struct frontend_vocab *v)
{
	struct buf text;
	if (!v->n)
		return NULL;
	buf_init(&text);
	for (size_t i = 0; i < v->n; i++) {
		buf_str(&text, v->tokens[i]);
		buf_char(&text, '\n');
	}
	const char *result = arena_strdup(&d->arena, text.data);
	buf_destroy(&text);
	return result;
}

/* Adds the packed tokenizer or the vocabulary of characters; nothing if the model has none, or `compile` must not embed
 * it. Other commands tokenize with d->tokenizer, and need only the vocabulary, which generation reads in the record. */
static enum tfmc_status add_vocabulary(struct driver *d, struct frontend_model *m, struct backend_facts *out)
{
	const struct frontend_tokenizer *t;
	bool compiles = d->options.command == COMMAND_COMPILE;
	const struct frontend_tokenizer *head = frontend_tokenizer_head(m);
	if (!head->given || (compiles && !head->embed))
		return TFMC_OK;
	if (!compiles && head->kind != TOKENIZER_CHARS)
		return TFMC_OK;
	TFMC_TRY(frontend_tokenizer(m, false, &t));
	out->tokenizer = t->packed.data;
	out->tokenizer_bytes = t->packed.bytes;
	out->vocabulary = join_vocabulary(d, &t->target);
	out->source_vocabulary = join_vocabulary(d, &t->source);
	if (t->source.unknown >= 0 && (size_t)t->source.unknown < t->source.n)
		out->unknown_token = t->source.tokens[t->source.unknown];
	return TFMC_OK;
}

enum tfmc_status driver_collect_facts(struct driver *d, struct frontend_model *m, struct backend_facts *out)
{
	const struct frontend_generate *g = frontend_generate(m);
	*out = (struct backend_facts){.generate_kind = (int64_t)g->kind, .pad = -1};
	/* Encoders tokenize texts, too, but only generation reads a vocabulary of characters. */
	if (g->kind == GENERATE_NONE)
		return frontend_tokenizer_head(m)->kind == TOKENIZER_CHARS ? TFMC_OK
		                                                           : add_vocabulary(d, m, out);
	out->start = (struct backend_ids){g->start.items, g->start.n};
	out->stop = (struct backend_ids){g->stop.items, g->stop.n};
	out->suppress = (struct backend_ids){g->suppress.items, g->suppress.n};
	out->suppress_first = (struct backend_ids){g->suppress_first.items, g->suppress_first.n};
	out->pad = g->pad;
	out->max_len = g->max_len;
	out->prefix = g->prefix;
	out->long_from = g->long_from;
	out->reread = g->reread;
	out->tokens = g->tokens;
	out->source = g->source;
	out->logits = g->logits;
	return add_vocabulary(d, m, out);
}
