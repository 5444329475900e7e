/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc watch: compiles and verifies a model again whenever it, or a file that was read for it, is saved.
 *
 * Each compilation is a child process, forked before anything is read: memory, limits and crashes are its own, and its
 * messages are those of `tfmc compile` and `tfmc verify`. It reports the files that it read, and sizes, through a pipe.
 * The parent polls the files (stat): a path that an editor renames another file to stays watched, on every file system.
 */
#define _GNU_SOURCE /* pipe2 */
#include "frontend/driver/compile/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ir/support/number.h"

#define POLL_MS     100
#define SETTLE_MAX  20 /* polls that a save may take: until two are equal and the model is there */
#define CLOCK_BYTES sizeof("23:59:59")

/* ^C, in the parent. */
static volatile sig_atomic_t interrupted;

static void handle_interrupt(int number)
{
	interrupted = number;
}

/* ---- the child: one compilation ---- */

/* Sizes of the planned module. */
struct sizes {
	bool known;
	uint64_t groups;  /* of all functions */
	uint64_t weights; /* packed bytes */
	uint64_t arena;   /* bytes, of the function that needs most, at the largest dims */
};

/* The child writes this to the pipe, then the paths of the files that it read, each with its zero byte. */
struct report {
	uint64_t errors;
	struct sizes sizes;
};

/* A sink of diagnostics that passes errors and their notes on: warnings were reported by the stage before. */
struct errors_only {
	diag_sink *sink;
	void *user;
	bool is_error;
};

static void report_errors_only(void *user, const struct diag_context *cx, const struct diag *m)
{
	struct errors_only *e = user;
	if (m->severity != DIAG_NOTE)
		e->is_error = m->severity == DIAG_ERROR;
	if (e->is_error)
		e->sink(e->user, cx, m);
}

/* Lets later stages of the child print nothing that the first one has printed or written. */
static void report_once(struct driver *d, struct errors_only *e)
{
	struct driver_options *o = &d->options;
	*e = (struct errors_only){d->diag.sink, d->diag.user, false};
	d->diag.sink = report_errors_only;
	d->diag.user = e;
	o->print_ir_before.n = o->print_ir_after.n = o->diff.n = 0;
	o->remarks = o->stats = o->time_passes = false;
	o->dump_dir = o->reproducer = NULL;
}

static void count_group(void *user, const struct ir_op *op)
{
	uint64_t *n = user;
	*n += op->code == OP_group;
}

/* Bytes of the arena of a function at the largest dims; 0: more than 64 bits. */
static uint64_t largest_arena(struct driver *d, const struct ir_dims *dims, const struct ir_dim *arena)
{
	size_t n = ir_dims_count(dims);
	int64_t bytes, *values = ARENA_ARRAY(&d->arena, int64_t, n + 1);
	for (size_t i = 0; values && i < n; i++)
		values[i] = ir_dims_sym(dims, i)->hi;
	return values && ir_dim_eval(arena, values, &bytes) ? (uint64_t)bytes : 0;
}

/* Plans the model for the most demanding target, without code, and measures: groups of all functions, packed
 * weights, and the arena of the function that needs most. */
static enum tfmc_status measure(struct driver *d, struct sizes *out)
{
	struct loaded l;
	struct pass_report passes;
	struct backend_sizes sizes;
	struct ir_module *planned = NULL;
	const struct target *target = NULL;
	pass_report_init(&passes);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !(target = driver_best_target(d, d->options.mcpu)))
		st = TFMC_INVALID;
	if (st == TFMC_OK)
		st = driver_run_pipeline(d, l.module, driver_pipeline(d), target, &planned, &passes);
	if (st == TFMC_OK)
		st = driver_check_planned(d, planned);
	if (st == TFMC_OK)
		st = backend_measure(&d->diag, planned, target, &d->arena, &sizes);
	if (st == TFMC_OK)
		*out = (struct sizes){.known = true, .weights = sizes.weights};
	for (size_t i = 0; st == TFMC_OK && i < sizes.n_functions; i++) {
		uint64_t arena = largest_arena(d, planned->dims, sizes.functions[i].arena);
		out->arena = arena > out->arena ? arena : out->arena;
		ir_visit_ops(sizes.functions[i].func->body, count_group, &out->groups);
	}
	ir_module_destroy(planned);
	loaded_destroy(&l);
	pass_report_destroy(&passes);
	return st;
}

/* Whether this machine runs code for one of the variants. */
static bool runs_here(struct driver *d)
{
	struct variant_set set;
	bool runs = false;
	if (driver_find_variants(d, &set) != TFMC_OK)
		return false;
	for (size_t i = 0; i < set.n; i++)
		runs = runs ||
		       (set.items[i].target->arch != ARCH_OPENCL && target_runs_on_host(set.items[i].target));
	return runs;
}

/* The report of `tfmc verify` goes to /dev/null, but with -v: errors say what failed. */
static void discard_stdout(struct driver *d)
{
	(void)driver_flush_out(d);
	int nowhere = d->options.verbose ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (nowhere < 0)
		return;
	(void)dup2(nowhere, STDOUT_FILENO);
	close(nowhere);
}

/* `tfmc compile` if an output is given, `tfmc verify` where the code runs on this machine, and the sizes. Each loads
 * the model again; warnings and dumps come from the first alone (report_once). */
static enum exit_code compile_and_verify(struct driver *d, struct sizes *sizes)
{
	struct driver_options *o = &d->options;
	struct errors_only errors;
	bool writes = o->output || o->emit.n > 0;
	enum exit_code code = EXIT_OK;
	o->quiet = o->quiet || !o->verbose;
	o->command = COMMAND_COMPILE;
	if (writes)
		code = command_compile(d);
	if (code != EXIT_OK || o->stop_after)
		return code;
	if (writes)
		report_once(d, &errors);
	bool verifies = runs_here(d);
	if (verifies) {
		o->command = COMMAND_VERIFY;
		discard_stdout(d);
		code = command_verify(d);
	}
	if (code != EXIT_OK)
		return code;
	if (verifies && !writes)
		report_once(d, &errors);
	return exit_code_of(measure(d, sizes));
}

/* Writes all bytes to the pipe; a parent that has ended needs none. */
static void send_bytes(int fd, const void *bytes, size_t n)
{
	for (ssize_t k; n > 0; bytes = (const char *)bytes + k, n -= (size_t)k)
		if ((k = write(fd, bytes, n)) <= 0)
			return;
}

/* Everything the child does. Returns the exit code of the process. ^C has its default action again, unless the
 * caller of tfmc ignores it, and a child does not outlive its parent. Errors that were reported before do not count. */
static enum exit_code compile_once(struct driver *d, int fd)
{
	struct report r = {0};
	struct sigaction now;
	if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == handle_interrupt)
		(void)signal(SIGINT, SIG_DFL);
	outputs_handle_signals();
	(void)prctl(PR_SET_PDEATHSIG, SIGTERM);
	enum exit_code code = compile_and_verify(d, &r.sizes);
	r.errors = d->diag.n_errors - d->diag.n_repeated;
	send_bytes(fd, &r, sizeof(r));
	for (size_t i = 0; i < d->outputs.inputs.n; i++)
		send_bytes(fd, d->outputs.inputs.items[i], strlen(d->outputs.inputs.items[i]) + 1);
	close(fd);
	return code;
}

/* ---- the parent: files ---- */

/* A file, and its state when it was compiled last. */
struct watched {
	const char *path;
	struct stat info; /* all zero: there is no file */
};

struct watch {
	struct driver *d;
	struct arena arena; /* of the lists */
	struct {
		struct watched *items;
		size_t n, cap;
	} files;           /* the first one is the model */
	struct sizes last; /* of the last compilation without errors */
};

static struct stat file_info(const char *path)
{
	struct stat info;
	return stat(path, &info) == 0 ? info : (struct stat){0};
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Sets the states of all files to those of now. True if one has changed. */
static bool update_files(struct watch *w)
{
	bool changed = false;
	for (size_t i = 0; i < w->files.n; i++) {
		const struct stat now = file_info(w->files.items[i].path);
		changed = changed || !is_same_file(&now, &w->files.items[i].info);
		w->files.items[i].info = now;
	}
	return changed;
}

static void wait_poll(void)
{
	const struct timespec interval = {0, POLL_MS * 1000000L};
	(void)nanosleep(&interval, NULL);
}

/* Returns when a file was saved and the saving is over, or after ^C. Between removing the old file and renaming the new
 * one there is no model. */
static void wait_for_save(struct watch *w)
{
	while (!interrupted && !update_files(w))
		wait_poll();
	for (int i = 0; i < SETTLE_MAX && !interrupted; i++) {
		wait_poll();
		if (!update_files(w) && w->files.items[0].info.st_ino != 0)
			return;
	}
}

/* Watches a file. It may have been read when it had changed after `begin`, the start of the compilation: then its
 * state is unknown (size -1, which no file has), and it is compiled again. */
static void add_file(struct watch *w, const char *path, const struct timespec *begin)
{
	for (size_t i = 0; i < w->files.n; i++)
		if (!strcmp(w->files.items[i].path, path))
			return;
	struct stat info = file_info(path);
	if (info.st_mtim.tv_sec > begin->tv_sec ||
	    (info.st_mtim.tv_sec == begin->tv_sec && info.st_mtim.tv_nsec > begin->tv_nsec))
		info.st_size = -1;
	const char *copy = arena_strdup(&w->arena, path);
	ARENA_ADD(&w->arena, &w->files, (struct watched){copy, info});
}

/* ---- the line of a result ---- */

static void print_count(struct buf *out, uint64_t n)
{
	buf_printf(out, "%llu", (unsigned long long)n);
}

static void print_amount(struct buf *out, uint64_t n)
{
	char text[NUMBER_TEXT_MAX];
	number_print_bytes(text, n);
	buf_str(out, text);
}

/* "27 groups (+1)", "2.1 MB of weights (-1.2 kB)". before NULL: nothing to compare with. */
static void print_size(struct buf *out, const char *what, void (*print)(struct buf *, uint64_t), uint64_t now,
                       const uint64_t *before)
{
	print(out, now);
	buf_printf(out, " %s", what);
	if (!before || *before == now)
		return;
	buf_str(out, now > *before ? " (+" : " (-");
	print(out, now > *before ? now - *before : *before - now);
	buf_char(out, ')');
}

/* "ok, 0.8 s: 27 groups (+1), 2.1 MB of weights, 1.3 MB of arena" */
static void print_sizes(struct watch *w, const struct sizes *s)
{
	struct buf *out = &w->d->out;
	const struct sizes *last = w->last.known ? &w->last : NULL;
	if (!s->known)
		return;
	buf_str(out, ": ");
	print_size(out, "groups", print_count, s->groups, last ? &last->groups : NULL);
	buf_str(out, ", ");
	print_size(out, "of weights", print_amount, s->weights, last ? &last->weights : NULL);
	buf_str(out, ", ");
	print_size(out, "of arena", print_amount, s->arena, last ? &last->arena : NULL);
	w->last = *s;
}

/* Prints the line of a compilation: time of day, result, seconds, sizes. */
static void print_result(struct watch *w, int status, const struct report *r, double seconds)
{
	struct buf *out = &w->d->out;
	char clock[CLOCK_BYTES] = "";
	const time_t now = time(NULL);
	struct tm local;
	if (localtime_r(&now, &local))
		(void)strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	buf_printf(out, "%s ", clock);
	if (WIFSIGNALED(status))
		buf_printf(out, "failed, signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) == EXIT_OK)
		buf_str(out, "ok");
	else if (r)
		buf_printf(out, "failed, %llu error%s", (unsigned long long)r->errors,
		           r->errors == 1 ? "" : "s");
	else
		buf_printf(out, "failed, exit code %d", WEXITSTATUS(status));
	buf_printf(out, ", %.1f s", seconds);
	if (r && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OK)
		print_sizes(w, &r->sizes);
	buf_char(out, '\n');
}

/* ---- the parent: compilations ---- */

/* Reads the report of the child up to the end of the pipe, which comes when it ends. Each POLL_MS at the latest ^C
 * is noticed, and passed on. */
static void read_report(int fd, pid_t child, struct buf *out)
{
	char block[4096];
	ssize_t n = 1;
	while (n > 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		if (interrupted)
			(void)kill(child, SIGINT);
		if (poll(&p, 1, POLL_MS) <= 0)
			continue;
		n = read(fd, block, sizeof(block));
		if (n > 0)
			buf_bytes(out, block, (size_t)n);
	}
}

/* Takes the files of a report over. Without errors they and the model are all that is watched; after errors they are
 * added, since the compilation may have ended before it read the others. */
static void follow_files(struct watch *w, bool is_ok, const char *paths, size_t n,
                         const struct timespec *begin)
{
	struct watch next = *w;
	if (is_ok) { /* the new list has the old states of files that stay */
		arena_init(&next.arena);
		next.files.items = NULL;
		next.files.n = next.files.cap = 0;
	}
	for (size_t i = 0; is_ok && i < w->files.n; i++) {
		const struct watched *f = &w->files.items[i];
		bool stays = i == 0;
		for (size_t at = 0; at < n && !stays; at += strlen(paths + at) + 1)
			stays = !strcmp(paths + at, f->path);
		const char *copy = stays ? arena_strdup(&next.arena, f->path) : NULL;
		if (copy)
			ARENA_ADD(&next.arena, &next.files, (struct watched){copy, f->info});
	}
	for (size_t at = 0; at < n; at += strlen(paths + at) + 1)
		add_file(&next, paths + at, begin);
	if (is_ok)
		arena_destroy(&w->arena);
	*w = next;
}

/* Waits for the child and prints its line. Returns its status. */
static int finish_compilation(struct watch *w, int fd, pid_t child, const struct timespec *begin)
{
	double start = driver_clock(NULL);
	int status = 0;
	struct report r;
	struct buf text;
	buf_init(&text);
	read_report(fd, child, &text);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	bool is_complete = text.len >= sizeof(r) && !buf_failed(&text);
	if (is_complete) {
		memcpy(&r, text.data, sizeof(r));
		follow_files(w, WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OK, text.data + sizeof(r),
		             text.len - sizeof(r), begin);
	}
	if (!interrupted)
		print_result(w, status, is_complete ? &r : NULL, driver_clock(NULL) - start);
	buf_destroy(&text);
	return status;
}

/* Whether another compilation cannot be better: the command line is wrong, or the model could not be read at first. */
static bool is_hopeless(int status, bool is_first)
{
	return WIFEXITED(status) &&
	       (WEXITSTATUS(status) == EXIT_USAGE || (is_first && WEXITSTATUS(status) == EXIT_ENVIRONMENT));
}

/* EXIT_ENVIRONMENT after a diagnostic with the reason in errno. */
static enum exit_code report_system_error(struct driver *d, const char *what)
{
	diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "%s: %s", what, strerror(errno));
	return EXIT_ENVIRONMENT;
}

/* The model is watched from the start as it is now: with `begin` in the next second no present state counts as
 * unknown (add_file). The child returns to main(), as any command does; the parent loops until ^C or a failure that
 * no save can mend. */
enum exit_code command_watch(struct driver *d)
{
	struct watch w = {.d = d};
	struct sigaction now, ours = {.sa_handler = handle_interrupt};
	enum exit_code code = EXIT_OK;
	arena_init(&w.arena);
	if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
		(void)sigaction(SIGINT, &ours, NULL);
	add_file(&w, d->options.input, &(struct timespec){.tv_sec = time(NULL) + 1});
	for (bool is_first = true; code == EXIT_OK; is_first = false) {
		struct timespec begin;
		int ends[2];
		clock_gettime(CLOCK_REALTIME, &begin);
		if (pipe2(ends, O_CLOEXEC)) {
			code = report_system_error(d, "no pipe");
			break;
		}
		pid_t child = fork();
		if (child == 0) {
			close(ends[0]);
			return compile_once(d, ends[1]);
		}
		close(ends[1]);
		int status = child > 0 ? finish_compilation(&w, ends[0], child, &begin) : 0;
		close(ends[0]);
		if (child < 0)
			code = report_system_error(d, "no process");
		else if (is_hopeless(status, is_first))
			code = (enum exit_code)WEXITSTATUS(status);
		else if (!driver_flush_out(d))
			code = EXIT_ENVIRONMENT;
		if (code == EXIT_OK && !interrupted)
			wait_for_save(&w);
		if (interrupted)
			break;
	}
	arena_destroy(&w.arena);
	return code;
}
