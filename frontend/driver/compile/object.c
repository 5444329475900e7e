/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc MODEL -o model.o: from planned IR to object, header, weights and other outputs. In this process instead: jit.c.
 *
 * The dependency file of -MD is one rule for make (Ninja reads it, too). Targets are the outputs, prerequisites the
 * files that were read, in the order of reading. It is an output like the others and renamed before them, so that a
 * new object never stands next to an old rule.
 */
#include "frontend/driver/compile/code_cache.h"

#include <stdlib.h>
#include <string.h>

#include "ir/support/number.h"
#include "ir/text/text.h"

/* ---- the dependency file ---- */

/* Prints a name as make reads it. make unescapes backslashes only before a character that needs one: those are
 * doubled. */
static void print_escaped_name(struct buf *out, const char *name)
{
	size_t slashes = 0;
	for (const char *p = name; *p; p++) {
		if (*p == ' ' || *p == '\t' || *p == '#' || *p == ':')
			buf_fill(out, '\\', slashes + 1);
		else if (*p == '$')
			buf_char(out, '$');
		slashes = *p == '\\' ? slashes + 1 : 0;
		buf_char(out, *p);
	}
	buf_fill(out, '\\', slashes); /* a blank or a colon follows */
}

/* False after a diagnostic: a newline ends a rule, and make has no escape for it. */
static bool check_newline(struct driver *d, const char *name)
{
	if (!strpbrk(name, "\n\r"))
		return true;
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make has no way to write the name '%s'", name);
	return false;
}

/* Warns about characters that have a meaning for make; Ninja takes such names literally. False with -Werror. */
static bool check_pattern(struct driver *d, const char *name)
{
	if (!strpbrk(name, "%="))
		return true;
	diag_warning(&d->diag, LOC_NONE, DIAG_OPTION, "-MD: make takes '%s' for a pattern or a variable",
	             name);
	return !d->diag.warnings_are_errors;
}

/* Prints the rule: all outputs so far depend on all inputs. False after a diagnostic. */
static bool print_rule(struct driver *d, struct buf *out)
{
	const struct outputs *o = &d->outputs;
	bool ok = true;
	for (size_t i = 0; i < o->n; i++) {
		ok = check_newline(d, o->items[i]->path) && check_pattern(d, o->items[i]->path) && ok;
		buf_str(out, i ? " " : "");
		print_escaped_name(out, o->items[i]->path);
	}
	buf_char(out, ':');
	for (size_t i = 0; i < o->inputs.n; i++) {
		ok = check_newline(d, o->inputs.items[i]) && ok;
		buf_str(out, " \\\n ");
		print_escaped_name(out, o->inputs.items[i]);
	}
	buf_char(out, '\n');
	return ok;
}

/*
 * Adds a dependency file for make: the outputs so far depend on every file that was read. It gets its name before
 * them. TFMC_INVALID for a name that make cannot express.
 */
static enum tfmc_status driver_add_depfile(struct driver *d, const char *path)
{
	struct buf rule;
	struct output_file *f = NULL;
	if (!d->outputs.n) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "-MD requires an output that is a file");
		return TFMC_INVALID;
	}
	buf_init(&rule);
	bool ok = print_rule(d, &rule);
	if (ok)
		f = outputs_add(&d->outputs, path, d->options.input);
	if (f) {
		(void)output_write_text(f, &rule);
		outputs_move_first(&d->outputs);
	}
	buf_destroy(&rule);
	return !ok ? TFMC_INVALID : f ? TFMC_OK : TFMC_IO;
}

/* ---- to files ---- */
enum emit_kind { EMIT_TIR, EMIT_LLVM, EMIT_ASM, EMIT_OBJ, EMIT_HEADER, EMIT_OPENCL, EMIT_C, N_EMIT };

static const char *const emit_names[N_EMIT] = {"tir", "llvm", "asm", "obj", "header", "opencl", "c"};
static const char *const emit_endings[N_EMIT] = {".tir", ".ll", ".s", ".o", ".h", ".cl", ".c"};

struct emit_request {
	struct driver *d;
	struct loaded *l;
	bool requested[N_EMIT];
	const char *files[N_EMIT];      /* FILE of --emit=KIND=FILE; NULL: not given */
	const char *stem;               /* output path without its extension */
	struct weights_output *weights; /* [ranks] */
	struct output_file *object;
	struct buf tir;
};

/* The weights file of one rank, opened with its first bytes. */
struct weights_output {
	struct emit_request *e;
	int64_t rank;
	struct output_file *file;
};

/* Parses one KIND[=FILE] of --emit, n bytes. False: there is no such kind. */
static bool parse_emit_kind(struct emit_request *e, const char *text, size_t n)
{
	size_t name = strcspn(text, "=");
	name = name < n ? name : n;
	for (int k = 0; k < N_EMIT; k++) {
		if (strlen(emit_names[k]) != name || memcmp(emit_names[k], text, name))
			continue;
		e->requested[k] = true;
		e->files[k] = name < n ? arena_strndup(&e->d->arena, text + name + 1, n - name - 1) : NULL;
		return true;
	}
	return false;
}

/* Parses all of --emit; by default object and header. False after a usage message. */
static bool parse_emit(struct emit_request *e)
{
	const struct option_list *list = &e->d->options.emit;
	for (size_t i = 0; i < list->n; i++) {
		for (const char *s = list->items[i]; *s;) {
			size_t n = strcspn(s, ",");
			if (!parse_emit_kind(e, s, n)) {
				(void)driver_usage_error(
				        e->d, "--emit=%.*s: kinds are tir, llvm, asm, obj, header, opencl, c",
				        (int)n, s);
				return false;
			}
			s += n + (s[n] != 0);
		}
	}
	if (!list->n)
		e->requested[EMIT_OBJ] = e->requested[EMIT_HEADER] = true;
	return true;
}

/* The path without the ending of its last component, in the arena. */
static const char *strip_extension(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *dot = strrchr(slash ? slash : path, '.');
	return dot ? arena_strndup(a, path, (size_t)(dot - path)) : path;
}

/* Returns the path of -o, or the input's name, without extension: outputs without a name of their own are called
 * after it. */
static const char *output_stem(struct driver *d)
{
	const char *path = d->options.output;
	if (!path) {
		const char *slash = strrchr(d->options.input, '/');
		path = slash ? slash + 1 : d->options.input;
	}
	return strip_extension(&d->arena, path);
}

/* The path of an output, the first that applies: --header or the FILE of --emit; -o for the object, or for the only
 * kind; stdout for an only kind that is text; else the object's path with another ending. */
static const char *output_path(const struct emit_request *e, enum emit_kind kind)
{
	const struct driver_options *o = &e->d->options;
	bool is_main = kind == EMIT_OBJ;
	int n = 0;
	for (int k = 0; k < N_EMIT; k++)
		n += e->requested[k];
	if (kind == EMIT_HEADER && o->header)
		return o->header;
	if (e->files[kind])
		return e->files[kind];
	if (o->output && (is_main || n == 1))
		return o->output;
	if (!o->output && n == 1 && !is_main)
		return "-";
	return arena_printf(&e->d->arena, "%s%s", e->stem, emit_endings[kind]);
}

/* Writes a text output if it was requested. */
static enum tfmc_status write_kind(struct emit_request *e, enum emit_kind kind, const struct buf *text)
{
	if (!e->requested[kind])
		return TFMC_OK;
	return driver_write_output(e->d, output_path(e, kind), text);
}

/* STEM.weights, of several ranks STEM.RANK.weights; --weights-out names the file, of several ranks without the rank. */
static const char *weights_path(const struct emit_request *e, int64_t rank)
{
	struct arena *a = &e->d->arena;
	const char *path = e->d->options.weights_out;
	if (driver_ranks(e->d) == 1)
		return path ? path : arena_printf(a, "%s.weights", e->stem);
	return arena_printf(a, "%s.%lld.weights", path ? strip_extension(a, path) : e->stem, (long long)rank);
}

/* backend_sink.write_at of the weights of one rank, whose file is opened with its first bytes. */
static bool sink_weights(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct weights_output *w = user;
	struct driver *d = w->e->d;
	if (!w->file)
		w->file = outputs_add(&d->outputs, weights_path(w->e, w->rank), d->options.input);
	return w->file && output_write_at(w->file, offset, bytes, n);
}

/* Sinks of the weights of all ranks, or of --rank alone; NULL without memory. */
static const struct backend_sink *weights_sinks(struct emit_request *e)
{
	int64_t n = driver_ranks(e->d), one = option_int(e->d->options.rank, -1);
	struct backend_sink *sinks = ARENA_ARRAY(&e->d->arena, struct backend_sink, (size_t)n);
	e->weights = ARENA_ARRAY(&e->d->arena, struct weights_output, (size_t)n);
	if (!sinks || !e->weights)
		return NULL;
	for (int64_t i = 0; i < n; i++) {
		e->weights[i] = (struct weights_output){.e = e, .rank = i};
		if (one < 0 || i == one)
			sinks[i] = (struct backend_sink){sink_weights, &e->weights[i]};
	}
	return sinks;
}

/* backend_sink.write_at of the object. */
static bool sink_object(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct emit_request *e = user;
	if (!e->object)
		e->object = outputs_add(&e->d->outputs, output_path(e, EMIT_OBJ), e->d->options.input);
	return e->object && output_write_at(e->object, offset, bytes, n);
}

static enum backend_weights placement_of(enum weights_placement_word placement)
{
	switch (placement) {
	case WEIGHTS_AUTO: return BACKEND_WEIGHTS_AUTO;
	case WEIGHTS_EMBED: return BACKEND_WEIGHTS_EMBED;
	case WEIGHTS_FILE: return BACKEND_WEIGHTS_FILE;
	}
	return BACKEND_WEIGHTS_AUTO;
}

/* --stats and --remarks: bytes of code of each variant, and what more variants would add. */
static void report_code_size(struct emit_request *e, const struct variant_set *set, const struct buf *object)
{
	const char *targets[BACKEND_VARIANTS_MAX];
	const struct code_names names = {set->items[0].planned->name, targets, set->n};
	for (size_t i = 0; i < set->n; i++)
		targets[i] = set->items[i].target->name;
	if (e->d->options.stats && object->len > 0) {
		uint64_t code[BACKEND_VARIANTS_MAX],
		        remaining = driver_code_bytes(e->d, &names, object->data, object->len, code);
		for (size_t i = 0; i < set->n; i++)
			buf_printf(&e->d->log, "variant %-16s %9llu bytes of code\n", targets[i],
			           (unsigned long long)code[i]);
		buf_printf(&e->d->log, "interface                %9llu bytes of code\n",
		           (unsigned long long)remaining);
	}
	driver_flush_log(e->d);
	if (object->len > 0)
		driver_remark_variants(e->d, set, object);
}

/* driver_generate_code() that takes quantized weights from the cache, or stores a copy there while they are packed.
 * Packing those takes long; packing with warnings is repeated, so that they are, too. */
static enum tfmc_status generate_with_cache(struct emit_request *e, const struct variant_set *set,
                                            struct backend_options o, struct backend_output *object)
{
	struct driver *d = e->d;
	struct cached_weights before = {0};
	struct packed copy = {.cx = &d->diag, .cache = &d->cache, .file.fd = -1, .arena = &d->arena};
	struct backend_sink to_cache = {packed_write_copy, &copy};
	if (o.weights_sink && driver_ranks(d) == 1) {
		TFMC_TRY(code_cache_open(d));
		code_cache_find_quantized(d, set->items[0].planned, &before);
	}
	if (before.map.base)
		o.packed = &before.packed;
	else if (before.name)
		copy.file = cache_create(&d->cache, &d->arena);
	o.packed_sink = copy.file.fd >= 0 ? &to_cache : NULL;
	size_t warnings_before = d->diag.n_warnings;
	enum tfmc_status st = driver_generate_code(d, set, e->l, &o, object);
	if (st == TFMC_OK && warnings_before == d->diag.n_warnings && before.name && !object->packed_taken)
		(void)code_cache_store_packed(d, before.name, &copy);
	packed_close(&copy);
	tfmc_weights_unmap(&before.map);
	return st;
}

/* Generates the object and the texts made with it, and writes those requested. Object and weights go to their files
 * while they are made (sinks): weights where an object or C text needs them. The object gets its name last, after
 * all that belongs to it. */
static enum tfmc_status emit_code(struct emit_request *e, const struct variant_set *set,
                                  struct backend_output *object)
{
	struct driver *d = e->d;
	struct backend_facts facts = {.pad = -1};
	struct backend_sink object_sink = {sink_object, e};
	struct option_list entries = {0};
	driver_split_list(d, d->options.entries, &entries);
	struct backend_options o = {.entries = entries.items,
	                            .n_entries = entries.n,
	                            .facts = &facts,
	                            .remarks = d->options.remarks};
	o.needs_llvm = e->requested[EMIT_LLVM];
	o.needs_assembly = e->requested[EMIT_ASM];
	o.needs_c = e->requested[EMIT_C];
	o.no_object = !(e->requested[EMIT_OBJ] || e->requested[EMIT_LLVM] || e->requested[EMIT_ASM]);
	o.clock = driver_clock;
	o.progress = &d->progress;
	o.weights_limit = d->limits.weights;
	o.code_limit = d->limits.code;
	o.opt_level = d->options.opt0 ? 0 : d->options.opt1 ? 1 : 2;
	o.debug = d->options.debug;
	o.labels = d->options.labels;
	o.object_sink = e->requested[EMIT_OBJ] ? &object_sink : NULL;
	if (e->requested[EMIT_OBJ] || e->requested[EMIT_C]) {
		o.weights_sink = weights_sinks(e);
		if (!o.weights_sink)
			return TFMC_NO_MEMORY;
	}
	if (driver_ranks(d) > 1 && !code_cache_program_hash(set, &o))
		return TFMC_NO_MEMORY;
	o.weights = placement_of(d->options.weights);
	if (o.object_sink && !strcmp(output_path(e, EMIT_OBJ), "-")) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "an object is not written to stdout");
		return TFMC_INVALID;
	}
	if (e->l->model)
		TFMC_TRY(driver_collect_facts(d, e->l->model, &facts));
	TFMC_TRY(generate_with_cache(e, set, o, object));
	driver_end_stage(d, "code generation");
	driver_report_time(d, "weight packing", object->pack_seconds);
	report_code_size(e, set, &object->object);
	TFMC_TRY(write_kind(e, EMIT_LLVM, &object->llvm));
	TFMC_TRY(write_kind(e, EMIT_ASM, &object->assembly));
	TFMC_TRY(write_kind(e, EMIT_HEADER, &object->header));
	TFMC_TRY(write_kind(e, EMIT_C, &object->c));
	outputs_move_last(&d->outputs, e->object);
	return TFMC_OK;
}

/* Whether an output requires code generation. C and header come from it, too. */
static bool needs_object(const struct emit_request *e)
{
	return e->requested[EMIT_LLVM] || e->requested[EMIT_ASM] || e->requested[EMIT_OBJ] ||
	       e->requested[EMIT_HEADER] || e->requested[EMIT_C];
}

/* TFMC_INVALID after a diagnostic: several variants are of objects only, and OpenCL C alone requires a target of
 * OpenCL. */
static enum tfmc_status check_target_kinds(struct emit_request *e, const struct variant_set *set)
{
	struct diag_context *cx = &e->d->diag;
	const struct target *t = set->items[0].target;
	if ((e->d->options.variants || set->n > 1) &&
	    (e->requested[EMIT_C] || e->requested[EMIT_TIR] || e->requested[EMIT_OPENCL])) {
		diag_error(cx, LOC_NONE, DIAG_OPTION,
		           "several variants are of objects: IR, C and OpenCL are texts for one target");
		diag_note(cx, LOC_NONE, "--dump-dir writes the IR of every variant");
		return TFMC_INVALID;
	}
	if (t->arch != ARCH_OPENCL && e->requested[EMIT_OPENCL] && !needs_object(e)) {
		diag_error(cx, LOC_NONE, DIAG_TARGET, "no kernels of OpenCL are made for %s", t->name);
		diag_note(cx, LOC_NONE, "use --target=opencl");
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* Plans the module for OpenCL in addition to the processor. Dumps have the target in their names. */
static enum tfmc_status plan_for_opencl(struct emit_request *e, const struct target *opencl,
                                        struct ir_module **out)
{
	struct driver *d = e->d;
	struct pass_options options = driver_pass_options(d, opencl);
	struct pipeline p = {0};
	options.variant = opencl->name;
	options.require_fusion = (struct name_list){0}; /* the processor's plan was checked */
	TFMC_TRY(pipeline_parse(&d->arena, &d->diag, driver_pipeline(d), &p));
	TFMC_TRY(driver_run_steps(d, &p, &options, e->l->module, out));
	return driver_check_planned(d, *out);
}

/* Writes the OpenCL kernels if requested; a module that was planned for a processor is planned again for OpenCL. */
static enum tfmc_status emit_opencl(struct emit_request *e, const struct ir_module *planned,
                                    const struct target *target)
{
	struct buf text;
	struct ir_module *device_plan = NULL;
	enum tfmc_status st = TFMC_OK;
	if (!e->requested[EMIT_OPENCL])
		return TFMC_OK;
	buf_init(&text);
	if (target->arch != ARCH_OPENCL && target_choose("opencl", NULL, &target) == TARGET_CHOSEN)
		st = plan_for_opencl(e, target, &device_plan);
	if (st == TFMC_OK)
		st = backend_opencl(&e->d->diag, device_plan ? device_plan : planned, target,
		                    e->d->options.remarks, &text);
	if (st == TFMC_OK)
		st = write_kind(e, EMIT_OPENCL, &text);
	buf_destroy(&text);
	if (device_plan)
		ir_module_destroy(device_plan);
	driver_end_stage(e->d, "code generation");
	return st;
}

/* Returns the path of the dependency file: -MF, else the object's name or the stem with .d. */
static const char *depfile_path(const struct emit_request *e)
{
	struct arena *a = &e->d->arena;
	if (e->d->options.dependencies_out)
		return e->d->options.dependencies_out;
	const char *path = e->files[EMIT_OBJ];
	const char *stem = path ? strip_extension(a, path) : e->stem;
	return arena_printf(a, "%s.d", stem);
}

/* Whether the file has the weights of a rank other than 0. */
static bool is_of_later_rank(const struct emit_request *e, const struct output_file *f)
{
	bool is = false;
	for (int64_t i = 1; e->weights && i < driver_ranks(e->d) && !is; i++)
		is = e->weights[i].file == f;
	return is;
}

/* Commits all outputs and reports them in one line, the object first: "wrote model.o (1.2 MB), model.h (9.0
 * kB)". The weights of several ranks, which have one size, are reported with those of rank 0, unless --rank is
 * given. */
static enum tfmc_status commit_and_report(struct emit_request *e)
{
	struct driver *d = e->d;
	struct buf line;
	char size[NUMBER_TEXT_MAX];
	buf_init(&line);
	for (size_t i = d->outputs.n; i-- > 0;) {
		struct output_file *f = d->outputs.items[i];
		if (is_of_later_rank(e, f) && e->weights[0].file)
			continue;
		number_print_bytes(size, f->bytes);
		buf_printf(&line, "%s%s", line.len ? ", " : "wrote ", f->path);
		const struct output_file *last = e->weights ? e->weights[driver_ranks(d) - 1].file : NULL;
		if (last && last != f && e->weights[0].file == f) /* not with --rank=0 */
			buf_printf(&line, " to %s", last->path);
		buf_printf(&line, " (%s)", size);
	}
	if (line.len && e->weights && e->weights[0].file && driver_ranks(d) == 1)
		buf_printf(&line, "; programs read %s when they run", e->weights[0].file->path);
	else if (line.len && driver_ranks(d) > 1)
		buf_str(&line, "; each rank reads its own weights when it runs");
	enum tfmc_status st = outputs_commit(&d->outputs);
	if (st == TFMC_OK && line.len && !d->options.quiet && !diagnostics_is_data(&d->diagnostics))
		buf_printf(&d->log, "%s\n", line.data);
	buf_destroy(&line);
	return st;
}

/* Plans the module and makes all requested outputs, which appear together at the end. IR text is written before the
 * plan is checked: --stop-after may end the pipeline early. The dependency file comes last, since it lists the
 * outputs. */
static enum tfmc_status emit_all(struct emit_request *e)
{
	struct driver *d = e->d;
	struct variant_set set;
	struct backend_output object;
	if (driver_find_variants(d, &set) != TFMC_OK || check_target_kinds(e, &set) != TFMC_OK)
		return TFMC_INVALID;
	backend_output_init(&object);
	enum tfmc_status st = driver_plan_variants(d, e->l->module, driver_pipeline(d), &set);
	const struct ir_module *planned = set.items[0].planned;
	if (st == TFMC_OK && e->requested[EMIT_TIR]) {
		ir_print(&e->tir, d->options.no_locations ? NULL : &d->diag, planned);
		st = write_kind(e, EMIT_TIR, &e->tir);
	}
	if (st == TFMC_OK && (needs_object(e) || e->requested[EMIT_OPENCL]))
		st = driver_check_planned(d, planned);
	if (st == TFMC_OK && needs_object(e))
		st = emit_code(e, &set, &object);
	if (st == TFMC_OK)
		st = emit_opencl(e, planned, set.items[0].target);
	if (st == TFMC_OK && d->options.dependencies)
		st = driver_add_depfile(d, depfile_path(e));
	if (st == TFMC_OK)
		st = commit_and_report(e);
	driver_end_stage(d, "writing");
	backend_output_destroy(&object);
	variant_set_destroy(&set);
	return st;
}

/* Whether kind is requested, and of others at most `also` and tir. */
static bool emits_only(const struct emit_request *e, enum emit_kind kind, enum emit_kind also)
{
	bool only = e->requested[kind];
	for (int k = 0; k < N_EMIT; k++)
		only = only && (k == (int)kind || k == (int)also || k == EMIT_TIR || !e->requested[k]);
	return only;
}

/*
 * Sets defaults of --target and -mcpu that depend on the outputs. OpenCL source alone: opencl. C alone: the least
 * level of the architecture, whose vectors a C compiler has without -march (splitting wider ones takes it ten times
 * as long and gives slower code), and no matrix tiles.
 */
static void choose_target(struct emit_request *e)
{
	struct driver_options *o = &e->d->options;
	const struct target *t;
	bool c_alone = emits_only(e, EMIT_C, EMIT_HEADER) && !o->variants &&
	               target_choose(o->target, o->mcpu, &t) == TARGET_CHOSEN && t->arch != ARCH_OPENCL;
	if (o->mcpu && c_alone)
		o->mcpu = target_without_amx(t)->name;
	if (o->mcpu)
		return;
	if (emits_only(e, EMIT_OPENCL, EMIT_OPENCL) && !o->target)
		o->target = "opencl";
	else if (c_alone)
		o->mcpu = target_baseline(t->arch)->name;
}

/* Lists the IR functions to probe: those of the compiled entries, of which prefill and step are both decode.
 * Duplicates and functions that the module lacks do no harm, since probe_insert() only searches the list. */
static struct option_list entry_functions(struct driver *d)
{
	const char *entries = d->options.entries ? d->options.entries : "run,encode,prefill,step";
	struct option_list functions = {0};
	driver_split_list(d, entries, &functions);
	for (size_t i = 0; i < functions.n; i++)
		if (!strcmp(functions.items[i], "prefill") || !strcmp(functions.items[i], "step"))
			functions.items[i] = "decode";
	return functions;
}

enum exit_code command_compile(struct driver *d)
{
	struct loaded l;
	struct emit_request e = {.d = d, .l = &l};
	if (!parse_emit(&e))
		return EXIT_USAGE;
	if (e.requested[EMIT_OBJ] && !d->options.output && !e.files[EMIT_OBJ])
		return driver_usage_error(d, "compiling requires -o FILE.o");
	if (d->options.dependencies_out && !d->options.dependencies)
		return driver_usage_error(d, "-MF FILE requires -MD");
	if (d->options.debug && !e.requested[EMIT_OBJ] && !e.requested[EMIT_LLVM] && !e.requested[EMIT_ASM])
		return driver_usage_error(d, "-g is of objects (and --emit=llvm, asm)");
	choose_target(&e);
	e.stem = output_stem(d);
	buf_init(&e.tir);
	enum tfmc_status st = driver_load(d, &l);
	const struct option_list functions = entry_functions(d);
	if (st == TFMC_OK)
		st = driver_insert_probes(d, &l, &d->options.probe, &functions);
	if (st == TFMC_OK && d->options.stats)
		st = driver_print_formats(d, &l, true, &d->log);
	if (st == TFMC_OK)
		st = emit_all(&e);
	buf_destroy(&e.tir);
	loaded_destroy(&l);
	return exit_code_of(st);
}
