/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass pipelines of the commands: prints, dumps, reproducers, statistics and times go where the options say. Also
 * tfmc opt, which runs a pipeline on IR text.
 */
#include "frontend/driver/compile/jit.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/syntax/files.h"
#include "ir/support/number.h"
#include "frontend/weights/files.h"
#include "ir/text/text.h"
#include "passes/framework/reproducer.h"
#include "passes/pipeline/run.h"

#define REPRODUCER "tfmc-reproducer.tir"
#define TEXT_LIMIT (1u << 20) /* bytes of a file of rules */

static const char *list_dims(struct driver *d, const struct ir_dims *dims)
{
	const char *list = "";
	for (size_t i = 0; i < ir_dims_count(dims); i++)
		list = arena_printf(&d->arena, "%s%s%s", list, i ? ", " : "", ir_dims_sym(dims, i)->name);
	return list;
}

/* Sets values[index of NAME] for one NAME=VALUE of --dim. TFMC_INVALID after a diagnostic. */
static enum tfmc_status set_dim(struct driver *d, const struct ir_dims *dims, const char *text,
                                int64_t *values)
{
	size_t n = strcspn(text, "=");
	const char *name = arena_strndup(&d->arena, text, n);
	int number = name ? ir_dims_find(dims, name) : -1;
	const struct ir_dim_sym *s = number < 0 ? NULL : ir_dims_sym(dims, (size_t)number);
	int64_t v;
	if (!text[n])
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--dim is NAME=VALUE, not %s", text);
	else if (!s)
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--dim=%s: the model has no dim %s; dims are %s",
		           text, name, list_dims(d, dims));
	else if (!number_parse_i64(text + n + 1, strlen(text + n + 1), &v) || v < s->lo || v > s->hi)
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--dim=%s: %s is a number from %lld to %lld",
		           text, name, (long long)s->lo, (long long)s->hi);
	else {
		values[number] = v;
		return TFMC_OK;
	}
	return TFMC_INVALID;
}

/* Whether the list has an element NAME=.. of the same name as the word. */
static bool has_bounds(const struct option_list *bounds, const char *word)
{
	size_t n = strcspn(word, "=") + 1;
	for (size_t i = 0; i < bounds->n; i++)
		if (strncmp(bounds->items[i], word, n) == 0)
			return true;
	return false;
}

/* Whether the command computes numbers, at the values of dims. */
static bool takes_values(const struct driver *d)
{
	return (d->options.command & (COMMAND_PLAN | COMMAND_GRAPH | COMMAND_BENCH)) != 0;
}

enum tfmc_status driver_check_dim_options(struct driver *d)
{
	const struct option_list *given = &d->options.dim;
	if (given->n == 0 || takes_values(d) || frontend_is_onnx(&d->diag, d->options.input))
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
	           "--dim=%s: only the sizes of ONNX files have their bounds there; '%s' has its own",
	           given->items[0], d->options.input);
	diag_note(&d->diag, LOC_NONE,
	          "model files have `dims`, IR text `dim`; --context bounds the tokens of a sequence");
	return TFMC_INVALID;
}

/* Of an ONNX model the first number for a size bounds it, a second one is its value, where the command computes at
 * values. */
void driver_split_dims(struct driver *d, struct option_list *bounds, struct option_list *values)
{
	bool computes = takes_values(d);
	bool is_onnx = d->options.dim.n > 0 && frontend_is_onnx(&d->diag, d->options.input);
	struct option_list words = {0};
	for (size_t i = 0; i < d->options.dim.n; i++)
		driver_split_list(d, d->options.dim.items[i], &words);
	for (size_t i = 0; i < words.n; i++) {
		bool is_value = !is_onnx || (computes && has_bounds(bounds, words.items[i]));
		(void)ARENA_ADDED(&d->arena, is_value ? values : bounds, words.items[i]);
	}
}

enum tfmc_status driver_apply_dim_options(struct driver *d, const struct ir_dims *dims, int64_t *values)
{
	struct option_list bounds = {0}, words = {0};
	driver_split_dims(d, &bounds, &words);
	for (size_t i = 0; i < words.n; i++)
		TFMC_TRY(set_dim(d, dims, words.items[i], values));
	return TFMC_OK;
}

/* The elements of repeated, comma-separated options. */
static struct name_list split_word_lists(struct driver *d, const struct option_list *list)
{
	struct option_list words = {0};
	for (size_t i = 0; i < list->n; i++)
		driver_split_list(d, list->items[i], &words);
	return (struct name_list){words.items, words.n};
}

/* pass_sink.print: prints go to stderr. */
static void print_ir_to_log(void *user, const char *title, const struct buf *text)
{
	struct driver *d = user;
	buf_printf(&d->log, "; --- %s\n", title);
	buf_append(&d->log, text);
	driver_flush_log(d);
}

/*
 * pass_sink.dump: writes a file of --dump-dir. After a failure d->texts_failed is set, and nothing more is written.
 */
static void write_dump(void *user, const char *file_name, const struct buf *text)
{
	struct driver *d = user;
	const char *dir = d->options.dump_dir;
	bool ok = false;
	if (d->texts_failed)
		return;
	if (mkdir(dir, 0777) && errno != EEXIST)
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "cannot create the folder '%s': %s",
		                       dir, strerror(errno));
	else
		ok = driver_write_file(d, arena_printf(&d->arena, "%s/%s", dir, file_name), text);
	d->texts_failed = !ok;
}

/* The reproducer's path without --reproducer: in --dump-dir, or here. */
static const char *reproducer_path(struct driver *d)
{
	const char *dir = d->options.dump_dir ? d->options.dump_dir : ".";
	return arena_printf(&d->arena, "%s/%s", dir, REPRODUCER);
}

/* pass_sink.reproducer: writes it to --reproducer, where a failure fails the command; or after a pass that failed,
 * where it is only a help. */
static void write_reproducer(void *user, const struct buf *text)
{
	struct driver *d = user;
	const char *path = d->options.reproducer ? d->options.reproducer : reproducer_path(d);
	bool ok = driver_write_file(d, path, text);
	if (!ok && d->options.reproducer)
		d->texts_failed = true;
	if (ok && d->options.reproducer)
		outputs_note_written(&d->outputs, path);
	if (ok && !d->options.reproducer)
		diag_note(&d->diag, LOC_NONE, "`tfmc opt %s` runs the failing pass again", path);
}

struct weight_files *driver_weight_files(const struct loaded *l)
{
	return l->model ? frontend_weight_files(l->model) : l->files;
}

/* Packs weights with a thread pool; by one worker where the system has no threads left. */
static enum tfmc_status compile_with_workers(struct driver *d, const struct variant_set *set,
                                             const struct loaded *l, struct backend_options o,
                                             struct backend_output *out)
{
	struct tfmc_pool *pool = NULL;
	o.workers = driver_pack_workers(d);
	if (o.workers > 1 && tfmc_pool_create_spinning(o.workers, 0, &pool) == TFMC_RT_OK) {
		o.parallel_for = tfmc_pool_parallel_for;
		o.parallel_user = pool;
	}
	enum tfmc_status st = backend_compile(&d->diag, set->items, set->n, &l->weights, &o, out);
	tfmc_pool_destroy(pool);
	return st;
}

/* Weight files are checked after packing: a file that changed meanwhile makes the object wrong. Only internal errors
 * leave a reproducer: the planned IR of the first variant, from which code generation alone runs again. */
enum tfmc_status driver_generate_code(struct driver *d, const struct variant_set *set, const struct loaded *l,
                                      const struct backend_options *o, struct backend_output *out)
{
	const struct backend_variant *first = &set->items[0];
	const char *path = reproducer_path(d);
	struct buf text;
	enum tfmc_status st = compile_with_workers(d, set, l, *o, out);
	if (st == TFMC_OK && driver_weight_files(l))
		st = weight_files_check(driver_weight_files(l));
	if (st != TFMC_INTERNAL)
		return st;
	buf_init(&text);
	ir_print(&text, &d->diag, first->planned);
	if (driver_write_file(d, path, &text))
		diag_note(
		        &d->diag, LOC_NONE,
		        "`tfmc %s --passes= -mcpu=%s -o FILE.o` next to the weights generates the code again",
		        path, first->target->name);
	buf_destroy(&text);
	return st;
}

enum tfmc_status driver_read_rules(struct driver *d)
{
	const char *path = d->options.rules;
	return path ? file_read(&d->arena, &d->diag, path, TEXT_LIMIT, LOC_NONE, &d->rules_text,
	                        &d->rules_len)
	            : TFMC_OK;
}

struct pass_options driver_pass_options(struct driver *d, const struct target *target)
{
	const struct driver_options *o = &d->options;
	struct pass_options p = {.target = target, .stop_after = o->stop_after, .remarks = o->remarks};
	p.no_locations = o->no_locations;
	p.print_before = split_word_lists(d, &o->print_ir_before);
	p.print_after = split_word_lists(d, &o->print_ir_after);
	p.diff = split_word_lists(d, &o->diff);
	p.reproduce = o->reproducer != NULL; /* else only of a pass that fails */
	p.require_fusion = split_word_lists(d, &o->require_fusion);
	p.disable_rules = split_word_lists(d, &o->disable_rule);
	p.rules_name = o->rules;
	p.rules_text = d->rules_text;
	p.rules_len = d->rules_len;
	p.sink = (struct pass_sink){.print = print_ir_to_log,
	                            .reproducer = write_reproducer,
	                            .clock = driver_clock,
	                            .user = d,
	                            .progress = &d->progress};
	if (o->dump_dir)
		p.sink.dump = write_dump;
	return p;
}

/* Runs the passes; a dump or reproducer that could not be written fails them. On failure *out is NULL. */
static enum tfmc_status run_checked(struct driver *d, const struct pipeline *p,
                                    const struct pass_options *options, const struct ir_module *in,
                                    struct ir_module **out, struct pass_report *report)
{
	*out = NULL;
	TFMC_TRY(passes_run(&d->diag, p, options, in, out, report));
	if (!d->texts_failed)
		return TFMC_OK;
	ir_module_destroy(*out);
	*out = NULL;
	return TFMC_IO;
}

/* Prints what --time-passes and --stats request. After a failure there are no statistics. */
static void print_report(struct driver *d, enum tfmc_status st, const struct pass_report *report)
{
	for (size_t i = 0; d->options.time_passes && i < report->times.n; i++)
		buf_printf(&d->log, "  %-30s %9.4f s  verify %9.4f s\n", report->times.items[i].pass,
		           report->times.items[i].pass_seconds, report->times.items[i].verify_seconds);
	if (st == TFMC_OK && d->options.stats)
		pass_report_print(&d->log, report);
	driver_flush_log(d);
}

enum tfmc_status driver_run_pipeline(struct driver *d, const struct ir_module *in, const char *pipeline,
                                     const struct target *target, struct ir_module **out,
                                     struct pass_report *report)
{
	struct pipeline p = {0};
	struct pass_options options = driver_pass_options(d, target);
	*out = NULL;
	TFMC_TRY(pipeline_parse(&d->arena, &d->diag, pipeline, &p));
	return run_checked(d, &p, &options, in, out, report);
}

/* Ranks of a stage and stages that exchange values; 1: there are none, 0: not of equal numbers. */
struct exchanging {
	long long ranks, stages;
};

/* Combines the number that one exchange is for with that of earlier ones; 1: there were none. */
static long long same_or_none(long long before, int64_t now)
{
	return before == 1 || before == now ? now : 0;
}

/* Finds for how many ranks and stages the exchanges of a module are. */
static struct exchanging count_exchanging(const struct ir_module *m)
{
	struct exchanging n = {1, 1};
	for (size_t i = 0; i < m->funcs.n; i++)
		for (struct ir_iter it = ir_iter_begin(m->funcs.items[i]->body); it.op != NULL;
		     ir_iter_next(&it)) {
			const struct attrs_send *a = it.op->attrs;
			if (it.op->code == OP_send || it.op->code == OP_receive)
				n.stages = same_or_none(n.stages, a->stages);
			else if (ir_op_has(it.op->code, TRAIT_EXCHANGE))
				n.ranks = same_or_none(n.ranks, a->ranks);
		}
	return n;
}

/* TFMC_INVALID after a diagnostic: the exchanges of the module are not for the ranks and stages of --shards. Of
 * another number: IR text for other ranks; none at all: no matrix could be divided. */
static enum tfmc_status check_exchanges(struct driver *d, const struct ir_module *m)
{
	const struct exchanging n = count_exchanging(m);
	if (n.ranks == d->ranks && n.stages == d->stages)
		return TFMC_OK;
	if (n.ranks != 1 || n.stages != d->stages) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "the module has exchanges of other ranks than the %lld of --shards",
		           (long long)driver_ranks(d));
		return TFMC_INVALID;
	}
	diag_error(&d->diag, LOC_NONE, DIAG_UNSUPPORTED,
	           "--shards=%lld: no matrix of the model can be divided among the ranks",
	           (long long)d->ranks);
	diag_note(&d->diag, LOC_NONE, "--remarks gives the reason for each matrix");
	return TFMC_INVALID;
}

enum tfmc_status driver_check_planned(struct driver *d, const struct ir_module *m)
{
	TFMC_TRY(check_exchanges(d, m));
	if (m->stage == STAGE_PLAN)
		return TFMC_OK;
	diag_error(&d->diag, LOC_NONE, DIAG_PIPELINE,
	           "the pipeline ends before plan-memory: buffers have no offsets yet");
	diag_note(&d->diag, LOC_NONE, "--emit=tir writes what the passes made");
	return TFMC_INVALID;
}

enum tfmc_status driver_run_steps(struct driver *d, const struct pipeline *p,
                                  const struct pass_options *options, const struct ir_module *in,
                                  struct ir_module **out)
{
	struct pass_report report;
	pass_report_init(&report);
	enum tfmc_status st = run_checked(d, p, options, in, out, &report);
	if (d->options.time_passes || d->options.stats)
		buf_printf(&d->log, "%s:\n", options->variant ? options->variant : "passes of all variants");
	print_report(d, st, &report);
	pass_report_destroy(&report);
	return st;
}

enum tfmc_status driver_run_passes(struct driver *d, const struct ir_module *in, const char *pipeline,
                                   const struct target *target, struct ir_module **out)
{
	struct pass_report report;
	pass_report_init(&report);
	enum tfmc_status st = driver_run_pipeline(d, in, pipeline, target, out, &report);
	driver_end_stage(d, "passes");
	print_report(d, st, &report);
	pass_report_destroy(&report);
	return st;
}

enum exit_code command_passes(struct driver *d)
{
	for (size_t i = 0; pass_at(i); i++)
		buf_printf(&d->out, "%-16s %s\n", pass_at(i)->name, pass_at(i)->summary);
	static const char *const names[] = {"O0", "O1", "O2"};
	for (size_t i = 0; i < TFMC_COUNT(names); i++)
		buf_printf(&d->out, "%-16s %s\n", names[i], pipeline_named(names[i]));
	return EXIT_OK;
}

/* ---- tfmc opt ---- */

/* Writes a module as IR text to -o. Parsing and printing change nothing, so without passes it is the input. */
static enum tfmc_status write_ir(struct driver *d, const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	ir_print(&text, d->options.no_locations ? NULL : &d->diag, m);
	enum tfmc_status st = driver_write_main_output(d, &text);
	buf_destroy(&text);
	return st;
}

/* Takes pipeline and options from the head of a reproducer, unless --passes replaces the pipeline. -mcpu and --rules
 * of the command line go before those of the head. */
static enum tfmc_status apply_reproducer_head(struct driver *d, const struct loaded *l)
{
	struct driver_options *o = &d->options;
	struct reproducer head;
	enum tfmc_status st = TFMC_OK;
	if (!l->text || o->passes || !reproducer_read(&d->arena, &d->diag, l->text, l->text_len, &head, &st))
		return st;
	TFMC_TRY(st);
	o->passes = head.passes;
	o->mcpu = o->mcpu ? o->mcpu : head.mcpu;
	for (size_t i = 0; i < head.n_disable_rules; i++) {
		if (!ARENA_ADDED(&d->arena, &o->disable_rule, head.disable_rules[i]))
			return TFMC_NO_MEMORY;
	}
	if (head.rules && !d->rules_text) {
		o->rules = arena_printf(&d->arena, "%s (its rules)", o->input);
		d->rules_text = head.rules;
		d->rules_len = head.rules_len;
	}
	return TFMC_OK;
}

/* The head of a reproducer supplies passes and options that are not given. Without passes the text is verified and
 * printed. */
enum exit_code command_opt(struct driver *d)
{
	struct loaded l;
	struct ir_module *result = NULL;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = apply_reproducer_head(d, &l);
	const char *passes = d->options.passes;
	const struct target *target = st == TFMC_OK ? driver_best_target(d, d->options.mcpu) : NULL;
	if (st == TFMC_OK && !target)
		st = TFMC_INVALID;
	if (st == TFMC_OK && passes)
		st = driver_run_passes(d, l.module, passes, target, &result);
	if (st == TFMC_OK)
		st = write_ir(d, passes ? result : l.module);
	if (result)
		ir_module_destroy(result);
	loaded_destroy(&l);
	return exit_code_of(st);
}
