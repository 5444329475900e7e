/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc reduce: delta debugging. Finds the smallest IR text on which a command still ends with a given status. The
 * command gets the name of a candidate file next to the input, so that weight files are found; it is removed at the
 * end, and locked while this process lives. A candidate that a killed process left, known by its first line, is
 * reused.
 */
#define _DEFAULT_SOURCE /* flock */
#include "frontend/driver/compile/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/syntax/files.h"
#include "ir/text/text.h"
#include "passes/pipeline/reduce.h"

#define STATUS_NONE 126 /* 126, 127: the shell cannot run the command; above 128: a signal ended it */

static const char mark[] = "; a candidate of tfmc reduce\n";

extern char **environ;

struct test {
	struct driver *d;
	const char *command, *candidate;
	int fd; /* of the candidate, locked */
	int64_t expected_status;
	enum tfmc_status status; /* of writing candidates and running the command */
};

/* Runs `command FILE`; *status is its exit status, 128 + n for signal n. The shell gets the name as $0, so that no
 * character of it needs quoting. False: there is no shell. */
static bool run_command(const struct test *t, int *status)
{
	const char *script = arena_printf(&t->d->arena, "%s \"$0\"", t->command);
	char shell[] = "sh", flag[] = "-c";
	char *argv[] = {shell, flag, (char *)(uintptr_t)script, (char *)(uintptr_t)t->candidate, NULL};
	posix_spawn_file_actions_t quiet;
	pid_t pid;
	int word = 0;
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	bool ok = script && !posix_spawn(&pid, "/bin/sh", &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	while (ok && waitpid(pid, &word, 0) < 0)
		ok = errno == EINTR;
	*status = WIFEXITED(word) ? WEXITSTATUS(word) : 128 + WTERMSIG(word);
	return ok;
}

static bool candidate_error(const struct test *t, const char *why)
{
	diag_environment_error(&t->d->diag, LOC_NONE, DIAG_FILE, "cannot write the candidate %s: %s",
	                       t->candidate, why);
	return false;
}

/* Opens and locks the candidate file. An existing file is not touched unless it is a candidate, by its first line
 * (or empty). False after a diagnostic. */
static bool open_candidate(struct test *t)
{
	char text[sizeof(mark)] = "";
	struct stat st;
	int fd = open(t->candidate, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	bool is_new = fd >= 0;
	if (!is_new && errno == EEXIST)
		fd = open(t->candidate, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	t->fd = fd;
	if (fd < 0)
		return candidate_error(t, errno == ELOOP ? "it exists" : strerror(errno));
	if (flock(fd, LOCK_EX | LOCK_NB))
		return candidate_error(t, errno == EWOULDBLOCK ? "another tfmc reduce uses it"
		                                               : strerror(errno));
	bool is_left = !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	               (st.st_size == 0 ||
	                (pread(fd, text, strlen(mark), 0) == (ssize_t)strlen(mark) && !strcmp(text, mark)));
	return is_new || is_left || candidate_error(t, "it exists, and is not a candidate of tfmc reduce");
}

/* Replaces the content of the candidate; its name and lock stay. False after a diagnostic. */
static bool write_candidate(const struct test *t, const struct buf *text)
{
	bool ok = !buf_failed(text) && !ftruncate(t->fd, 0) && file_write_at(t->fd, text->data, text->len, 0);
	return ok || candidate_error(t, strerror(errno));
}

/* The predicate of module_reduce: the command still ends with the expected status on m. */
static bool is_failing(void *user, const struct ir_module *m)
{
	struct test *t = user;
	struct buf text;
	int status = 0;
	if (t->status != TFMC_OK)
		return false;
	buf_init(&text);
	buf_str(&text, mark);
	ir_print(&text, &t->d->diag, m);
	bool ok = write_candidate(t, &text);
	buf_destroy(&text);
	if (!ok || !run_command(t, &status))
		t->status = TFMC_IO;
	return t->status == TFMC_OK && status == t->expected_status;
}

/* TFMC_INVALID after a diagnostic: the command does not fail on the full text, so there is nothing to reduce; it is
 * run once more for the status to report. */
static enum tfmc_status check_full_text(struct test *t, const struct ir_module *m)
{
	int status = 0;
	if (is_failing(t, m))
		return TFMC_OK;
	if (t->status != TFMC_OK && t->d->diag.n_environment)
		return t->status;
	if (t->status != TFMC_OK || !run_command(t, &status)) {
		diag_environment_error(&t->d->diag, LOC_NONE, DIAG_FILE,
		                       "the command of --test cannot be started");
		return TFMC_IO;
	}
	diag_error(&t->d->diag, LOC_NONE, DIAG_OPTION,
	           "the command of --test ends with %d, not %lld, on the whole text%s", status,
	           (long long)t->expected_status,
	           status >= STATUS_NONE ? ": it could not run to its end" : "");
	return TFMC_INVALID;
}

/* Checks that the command fails on the given text, reduces it, and writes the smallest that still fails to -o. */
static enum tfmc_status reduce(struct driver *d, const struct loaded *l, struct test *t)
{
	struct reduce_report report;
	struct ir_module *small = NULL;
	struct buf text;
	TFMC_TRY(check_full_text(t, l->module));
	TFMC_TRY(module_reduce(l->module, is_failing, t, &small, &report));
	buf_init(&text);
	ir_print(&text, &d->diag, small);
	enum tfmc_status st = t->status == TFMC_OK ? driver_write_main_output(d, &text) : t->status;
	if (st == TFMC_OK)
		buf_printf(&d->log, "accepted %zu of %zu changes, %zu bytes of %zu are left\n", report.kept,
		           report.tried, text.len, l->text_len);
	driver_flush_log(d);
	buf_destroy(&text);
	ir_module_destroy(small);
	return st;
}

/* The candidate is tracked as a temporary file, so that a signal removes it. Status 0, the default, is that of a
 * test which ends well while the text still shows the failure. */
enum exit_code command_reduce(struct driver *d)
{
	const struct driver_options *o = &d->options;
	struct test t = {.d = d, .command = o->test, .expected_status = option_int(o->status, 0), .fd = -1};
	struct loaded l = {0};
	struct output_file candidate;
	if (!o->test)
		return driver_usage_error(d, "reduce requires --test=COMMAND");
	if (t.expected_status > 255)
		return driver_usage_error(d, "--status is a number from 0 to 255, not %lld",
		                          (long long)t.expected_status);
	if (!file_ends_with(o->input, ".tir"))
		return driver_usage_error(
		        d, "reduce requires IR text; `tfmc MODEL --emit=tir --stop-after=PASS` writes one");
	enum tfmc_status st = driver_load(d, &l);
	t.candidate = arena_printf(&d->arena, "%s.candidate.tir", o->input);
	if (st == TFMC_OK && open_candidate(&t)) {
		outputs_track_temporary(&candidate, t.candidate);
		st = reduce(d, &l, &t);
		outputs_remove_temporary(&candidate);
	} else if (st == TFMC_OK) {
		st = TFMC_IO;
	}
	if (t.fd >= 0)
		close(t.fd);
	loaded_destroy(&l);
	return exit_code_of(st);
}
