/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tfmc command: parses options, dispatches to one command, and ends the process with its exit code. The last
 * diagnostic of a process that runs out of memory, or whose input is truncated while it is mapped, is written here.
 */
#define _GNU_SOURCE /* siginfo_t */
#include "frontend/driver/compile/compile.h"
#include "frontend/driver/compile/job.h"
#include "frontend/driver/commands/prompts.h"
#include "frontend/syntax/expr.h"
#include "ir/support/number.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/support/memory.h"

static void write_stderr(void *user, const char *text, size_t n)
{
	(void)user;
	fwrite(text, 1, n, stderr);
}

/* Shows progress on stderr in the form of --progress; never with JSON or SARIF diagnostics, which own stderr. */
static void init_progress(struct driver *d)
{
	struct progress_view *v = &d->progress_view;
	v->form = diagnostics_is_data(&d->diagnostics)
	                  ? PROGRESS_NEVER
	                  : progress_form_of(d->options.progress, isatty(STDERR_FILENO));
	v->clock = driver_clock;
	v->write = write_stderr;
	d->progress = (struct progress){progress_show, v};
}

/* The sink of d->diag. */
static void write_diagnostic(void *user, const struct diag_context *cx, const struct diag *m)
{
	struct driver *d = user;
	d->is_reporting = true;
	diagnostics_add(&d->diagnostics, cx, m, &d->log);
	d->is_reporting = false;
	driver_flush_log(d);
}

/* Drops a diagnostic that was being written when the failure happened, and lifts the limit on errors. */
static void begin_fatal_diagnostic(struct driver *d)
{
	if (d->is_reporting) {
		buf_clear(&d->log);
		diagnostics_restart(&d->diagnostics);
	}
	d->diag.max_errors = 0;
}

/* Ends the process without cleaning up, which could need memory, or read damaged data. */
static _Noreturn void exit_environment(struct driver *d)
{
	outputs_remove_temporaries();
	diagnostics_finish(&d->diagnostics, (int)EXIT_ENVIRONMENT, DRIVER_VERSION, &d->log);
	driver_flush_log(d);
	_exit((int)EXIT_ENVIRONMENT);
}

/* Called by ir/support/memory.h for every refused allocation. bytes 0: unknown. */
static void handle_out_of_memory(void *user, const char *stage, size_t bytes)
{
	struct driver *d = user;
	begin_fatal_diagnostic(d);
	if (bytes)
		diag_error(&d->diag, LOC_NONE, DIAG_MEMORY, "out of memory while %s (%zu bytes requested)",
		           stage, bytes);
	else
		diag_error(&d->diag, LOC_NONE, DIAG_MEMORY, "out of memory while %s", stage);
	exit_environment(d);
}

/* ---- SIGBUS ---- */

/* For the signal handler. */
static struct {
	struct driver *driver;
	_Atomic(const char *) owner; /* this_thread of the thread that reports; NULL: none yet */
} sigbus;

static _Thread_local const char this_thread; /* its address identifies the thread */

/* Reads the path of a line of /proc/self/maps, "7f0000000000-7f0000200000 r--p 00000000 fe:01 1234 /path", if it
 * covers the address. False: it does not, or it is anonymous memory. */
static bool parse_maps_line(const char *line, uintptr_t at, char path[PATH_MAX])
{
	unsigned long long begin, end;
	int length = 0;
	if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %n", &begin, &end, &length) != 2 || at < begin ||
	    at >= end || length == 0 || line[length] != '/')
		return false;
	size_t n = strcspn(line + length, "\n");
	n = n < PATH_MAX ? n : PATH_MAX - 1;
	memcpy(path, line + length, n);
	path[n] = 0;
	return true;
}

/* Finds the path of the file that is mapped at an address. False: none is, or /proc cannot be read. */
static bool find_mapped_file(uintptr_t at, char path[PATH_MAX])
{
	char line[PATH_MAX + 256];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = parse_maps_line(line, at, path);
	if (f)
		fclose(f);
	return found;
}

/*
 * SIGBUS: a mapped file was truncated while it was read, so that a page beyond its new end is accessed, in any thread,
 * which therefore holds no lock of the C library; other threads may go on until the process ends. Only the command has
 * a handler; objects and the runtime libraries install none. The first thread reports. Others that read the file wait
 * for the end: with the default action they would end the process before the report. Bus errors outside of mapped
 * files, and in the handler, keep the default action: after a return the read is repeated with it.
 */
static void handle_sigbus(int number, siginfo_t *info, void *context)
{
	struct driver *d = sigbus.driver;
	char path[PATH_MAX];
	const char *first = NULL;
	(void)context;
	bool reports = atomic_compare_exchange_strong(&sigbus.owner, &first, &this_thread);
	while (!reports && first != &this_thread)
		pause();
	if (!reports || info->si_code != BUS_ADRERR || !find_mapped_file((uintptr_t)info->si_addr, path)) {
		(void)signal(number, SIG_DFL);
		return;
	}
	begin_fatal_diagnostic(d);
	diag_error(&d->diag, LOC_NONE, DIAG_FILE,
	           "cannot read '%.400s': it became shorter while it was read, or its disk fails", path);
	exit_environment(d);
}

static void catch_sigbus(struct driver *d)
{
	struct sigaction act = {.sa_sigaction = handle_sigbus, .sa_flags = (int)(SA_SIGINFO | SA_NODEFER)};
	sigbus.driver = d;
	sigaction(SIGBUS, &act, NULL);
}

/* ---- options ---- */

/* An option whose text on stderr would be mixed with diagnostics in JSON or SARIF; NULL: none is given. */
static const char *option_printing_to_stderr(const struct driver_options *o)
{
	return o->print_ir_before.n  ? "--print-ir-before"
	       : o->print_ir_after.n ? "--print-ir-after"
	       : o->diff.n           ? "--diff"
	       : o->time_passes      ? "--time-passes"
	       : o->stats            ? "--stats"
	                             : NULL;
}

/* Usage errors of the options that change element types (--quantize, --profile, --dtype): given for IR text,
 * or a format that does not exist. */
static enum exit_code check_rounding_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	enum ir_format format;
	size_t n;
	const char *const *words = ir_format_options(&n);
	const char *of_models = driver_rounding_option(d);
	if (of_models && o->input && file_ends_with(o->input, ".tir"))
		return driver_usage_error(d, "--%s is for models; the values of IR text have their types",
		                          of_models);
	if (!o->quantize || ir_format_from_option(o->quantize, &format))
		return EXIT_OK;
	return driver_usage_error(d, "--quantize: no format is called '%.60s'%s", o->quantize,
	                          did_you_mean_or_known(&d->arena, o->quantize, words, n));
}

/* The first option that is for one process; NULL: none is given. */
static const char *option_of_one_process(const struct driver_options *o)
{
	return o->device                       ? "--device"
	       : o->probe.n > 0                ? "--probe"
	       : o->backend == RUN_INTERPRETED ? "--backend=interp"
	       : o->after_each                 ? "--after-each"
	       : o->bisect                     ? "--bisect"
	       : o->poison                     ? "--poison"
	                                       : NULL;
}

/* The first option that says something about ranks; NULL: none is given. */
static const char *option_of_ranks(const struct driver_options *o)
{
	return o->rank          ? "--rank"
	       : o->one_rank    ? "--one-rank"
	       : o->latency     ? "--latency"
	       : o->link_rate   ? "--link-rate"
	       : o->memory_rate ? "--memory-rate"
	                        : NULL;
}

/* The first option that asks for times of groups, which one rank alone has; NULL: none is given. */
static const char *option_of_groups(const struct driver_options *o)
{
	return o->groups                               ? "--groups"
	       : o->trace                              ? "--trace"
	       : o->html && o->command & COMMAND_BENCH ? "--html"
	                                               : NULL;
}

#define LATENCY_MAX   1e6  /* microseconds */
#define LINK_RATE_MIN 1e-6 /* gigabytes a second */
#define LINK_RATE_MAX 1e6

/* The bounds of --latency and --link-rate, which describe the simulated link between ranks. */
static enum exit_code check_link(struct driver *d)
{
	const struct driver_options *o = &d->options;
	double rate = option_real(o->link_rate, 1);
	if (option_real(o->latency, 0) > LATENCY_MAX)
		return driver_usage_error(d, "--latency: at most %g microseconds", LATENCY_MAX);
	if (rate < LINK_RATE_MIN || rate > LINK_RATE_MAX)
		return driver_usage_error(d, "--link-rate: %g to %g gigabytes a second", LINK_RATE_MIN,
		                          LINK_RATE_MAX);
	return EXIT_OK;
}

/* N or NxP. */
static bool parse_shards(struct driver *d, const char *text)
{
	const char *x = strchr(text, 'x');
	size_t n = x ? (size_t)(x - text) : strlen(text);
	return number_parse_i64(text, n, &d->ranks) && d->ranks >= 1 &&
	       (!x || (number_parse_i64(x + 1, strlen(x + 1), &d->stages) && d->stages >= 1));
}

/* Sets d->ranks and d->stages from --shards. A process in an MPI job has them from driver_join_job(), which
 * runs between the two calls of check_ranks(). */
static enum exit_code read_shards(struct driver *d)
{
	const char *text = d->options.shards;
	if (d->job)
		return EXIT_OK;
	d->ranks = d->stages = 1;
	if (text && !parse_shards(d, text))
		return driver_usage_error(d, "--shards is N or NxP, numbers from 1, not %s", text);
	if (d->ranks > IR_RANKS_MAX / d->stages)
		return driver_usage_error(d, "--shards=%s: at most %d ranks", text, IR_RANKS_MAX);
	return EXIT_OK;
}

/* Reads --shards, and rejects options about ranks without ranks, and those that are for one process with them. */
static enum exit_code check_ranks(struct driver *d)
{
	const struct driver_options *o = &d->options;
	const char *one = option_of_one_process(o), *ranks = option_of_ranks(o),
	           *groups = option_of_groups(o);
	enum exit_code code = read_shards(d);
	if (code != EXIT_OK)
		return code;
	int64_t n = driver_ranks(d);
	if (ranks && n == 1 && !d->job)
		return driver_usage_error(d, "%s requires --shards=N, 2 or more", ranks);
	if (o->one_rank && d->stages > 1)
		return driver_usage_error(d, "--one-rank is for one stage, not for --shards=%s", o->shards);
	if (groups && n > 1 && !o->one_rank)
		return driver_usage_error(d, "%s with --shards requires --one-rank", groups);
	if (o->rank && option_int(o->rank, 0) >= n)
		return driver_usage_error(d, "--rank=%lld: ranks are 0 to %lld",
		                          (long long)option_int(o->rank, 0), (long long)n - 1);
	if (d->job &&
	    (o->one_rank || o->latency || o->link_rate || groups)) /* it has its own link, and all ranks */
		return driver_usage_error(d,
		                          "%s, --one-rank, --latency and --link-rate are not for an MPI job",
		                          groups ? groups : "--groups");
	if (n > 1 && one)
		return driver_usage_error(d, "%s is for one process, not for --shards or an MPI job", one);
	return check_link(d);
}

/* Rejects options that exclude each other, and sets what depends on options alone: format of messages,
 * progress, limits, ranks. */
static enum exit_code check_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	d->diagnostics.format = o->diagnostics;
	if (diagnostics_is_data(&d->diagnostics) && option_printing_to_stderr(o))
		return driver_usage_error(
		        d, "%s writes text to stderr, which --diagnostics=%s has for itself",
		        option_printing_to_stderr(o), o->diagnostics == DIAGNOSTICS_JSON ? "json" : "sarif");
	if (o->opt0 + o->opt1 + o->opt2 > 1)
		return driver_usage_error(d, "only one of -O0, -O1, -O2");
	if (o->name && !expr_is_name(o->name))
		return driver_usage_error(d, "--name is a name (letters, digits, _; at most 63), not %s",
		                          o->name);
	init_progress(d);
	d->limits = limits_of(o);
	enum exit_code code = check_ranks(d);
	return code == EXIT_OK ? check_rounding_options(d) : code;
}

/* --color; by default only on a terminal, and not if NO_COLOR is set (no-color.org) or TERM is dumb. */
static bool use_color(const struct driver_options *o)
{
	if (o->color != WHEN_AUTO)
		return o->color == WHEN_ALWAYS;
	const char *term = getenv("TERM");
	const char *no_color = getenv("NO_COLOR");
	return isatty(STDERR_FILENO) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

static enum exit_code dispatch(struct driver *d)
{
	static driver_command_fn *const functions[] = {
#define COMMAND(id, name, input, synopsis, line, example, text) command_##name,
#include "frontend/driver/options/commands.def"
	};
	return functions[options_command(d->options.command) - command_rows](d);
}

/* Prints the help of a command; NULL: the list of commands. EXIT_USAGE: there is no such command. */
static enum exit_code print_help(struct driver *d, const char *command)
{
	struct buf error;
	buf_init(&error);
	bool ok = options_help(&d->out, command, &error);
	enum exit_code code = ok ? EXIT_OK : driver_usage_error(d, "%s", error.data);
	buf_destroy(&error);
	return code;
}

enum exit_code command_help(struct driver *d)
{
	if (d->options.format != HELP_FORMAT_TEXT && d->options.input)
		return driver_usage_error(d, "--format describes all commands");
	if (d->options.format != HELP_FORMAT_TEXT) {
		options_page(&d->out, d->options.format, DRIVER_VERSION);
		return EXIT_OK;
	}
	return print_help(d, d->options.input);
}

/* Checks the options, then runs the command, or prints version or help. A rank of an MPI job other than 0 serves
 * rank 0 instead; prompts, which may come from stdin, are read on rank 0 alone. */
static enum exit_code run_command(struct driver *d)
{
	const struct driver_options *o = &d->options;
	enum exit_code code = check_options(d);
	if (code != EXIT_OK)
		return code;
	d->diagnostics.color = use_color(o);
	d->diagnostics.on_terminal = isatty(STDERR_FILENO);
	d->diag.warnings_are_errors = o->werror;
	if (o->version) {
		buf_printf(&d->out, "tfmc %s (LLVM %s)\n", DRIVER_VERSION, backend_llvm_version());
		return EXIT_OK;
	}
	if (o->help)
		return print_help(d, o->command_named || o->input ? options_command(o->command)->name : NULL);
	enum command_input input = options_command(o->command)->input;
	if (input == COMMAND_NO_INPUT && o->input)
		return driver_usage_error(d, "this command takes no file, '%s' was given", o->input);
	if (input == COMMAND_INPUT && !o->input)
		return driver_usage_error(d, "no file is given");
	memory_stage("reading options", NULL);
	enum tfmc_status st = driver_read_rules(d);
	if (st == TFMC_OK)
		st = driver_join_job(d);
	if (st != TFMC_OK)
		return exit_code_of(st);
	if (d->job && (code = check_ranks(d)) != EXIT_OK) /* again: joining has set the number of ranks */
		return code;
	if (d->job && job_ranks(d->job)->rank > 0)
		return driver_follow_job(d);
	st = driver_read_prompt_option(d);
	return st == TFMC_OK ? dispatch(d) : exit_code_of(st);
}

/* Every failure has a diagnostic: one that a stage forgot to report gets it here. */
static void ensure_reason(struct driver *d, enum exit_code code)
{
	if (d->diag.n_errors)
		return;
	if (code == EXIT_ENVIRONMENT)
		memory_failed(0); /* reports and ends the process: stages leave refused memory to it */
	else if (code == EXIT_INPUT || code == EXIT_INTERNAL)
		diag_error(&d->diag, LOC_NONE, DIAG_INTERNAL, "the reason for exit code %d was not reported",
		           (int)code);
}

/* Notes how many errors were not printed because of the limit on printed ones. */
static void note_suppressed_errors(struct diag_context *cx)
{
	size_t told = cx->n_errors - cx->n_repeated;
	size_t hidden = cx->max_errors && told > cx->max_errors ? told - cx->max_errors : 0;
	cx->drop_notes = false; /* of the last error, which was beyond the limit */
	if (hidden)
		diag_note(cx, LOC_NONE, "%zu further error%s not shown", hidden,
		          hidden == 1 ? " is" : "s are");
}

/* Ends the command: final messages, then all outputs appear, or none. Returns the exit code of the process. */
static enum exit_code finish_command(struct driver *d, enum exit_code code)
{
	ensure_reason(d, code);
	/* the stages in between may have turned it into TFMC_INVALID */
	if (code == EXIT_INPUT && d->diag.n_environment)
		code = EXIT_ENVIRONMENT;
	note_suppressed_errors(&d->diag);
	/* a failed verification has outputs, too */
	if ((code == EXIT_OK || code == EXIT_VERIFY) && outputs_commit(&d->outputs) != TFMC_OK)
		code = EXIT_ENVIRONMENT;
	outputs_discard(&d->outputs);
	driver_flush_log(d);
	if (!driver_flush_out(d) && code == EXIT_OK)
		code = EXIT_ENVIRONMENT;
	diagnostics_finish(&d->diagnostics, (int)code, DRIVER_VERSION, &d->log);
	driver_flush_log(d);
	return code;
}

/* Opens closed standard streams on /dev/null, read-only: writes to them fail, and no output file gets their
 * descriptors. */
static void reserve_standard_files(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDONLY);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Handlers are installed before the options are read, which takes memory already. An error of the command line has
 * the format of --diagnostics, too. A job is left last: where MPI does not return, driver_leave_job() ends the
 * process. */
int main(int argc, char **argv)
{
	struct driver d = {0};
	reserve_standard_files();
	arena_init(&d.arena);
	buf_init(&d.out);
	buf_init(&d.log);
	diag_init(&d.diag, write_diagnostic, &d);
	diagnostics_init(&d.diagnostics, &d.arena);
	outputs_init(&d.outputs, &d.arena, &d.diag);
	outputs_handle_signals();
	memory_set_handler(handle_out_of_memory, &d);
	catch_sigbus(&d);

	struct buf error;
	buf_init(&error);
	enum exit_code code;
	if (options_parse(&d.arena, argc, argv, &d.options, &error)) {
		code = run_command(&d);
	} else {
		d.diagnostics.format = options_guess_diagnostics_format(argc, argv);
		code = driver_usage_error(&d, "%s", error.data);
	}
	code = finish_command(&d, code);
	driver_leave_job(&d, code);
	buf_destroy(&error);

	diag_destroy(&d.diag);
	diagnostics_destroy(&d.diagnostics);
	buf_destroy(&d.log);
	buf_destroy(&d.out);
	tfmc_tokenizer_close(d.tokenizer);
	tfmc_tokenizer_close(d.target_tokenizer);
	cache_close(&d.cache);
	arena_destroy(&d.arena);
	return (int)code;
}
