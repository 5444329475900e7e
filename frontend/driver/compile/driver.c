/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of every command: exit codes, stage times, buffered stdout and stderr, output files, resource limits, and
 * errors of the command line and of the runtime library.
 */
#define _GNU_SOURCE /* _SC_PHYS_PAGES, sched_getaffinity */

#include "frontend/driver/compile/driver.h"
#include "frontend/driver/compile/job.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ir/support/number.h"
#include "runtime/tfmc_rt.h"

enum exit_code exit_code_of(enum tfmc_status status)
{
	switch (status) {
	case TFMC_OK: return EXIT_OK;
	case TFMC_INVALID: return EXIT_INPUT;
	case TFMC_NO_MEMORY:
	case TFMC_IO: return EXIT_ENVIRONMENT;
	case TFMC_INTERNAL: return EXIT_INTERNAL;
	}
	return EXIT_INTERNAL;
}

double driver_clock(void *user)
{
	struct timespec now;
	(void)user;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void driver_end_stage(struct driver *d, const char *stage)
{
	double seconds = driver_clock(NULL);
	if ((d->options.time_passes || d->options.verbose) && stage)
		buf_printf(&d->log, "%-32s %9.4f s\n", stage, seconds - d->clock);
	if (stage)
		driver_flush_log(d);
	d->clock = seconds;
}

void driver_report_time(struct driver *d, const char *part, double seconds)
{
	if (d->options.time_passes || d->options.verbose)
		buf_printf(&d->log, "  %-30s %9.4f s\n", part, seconds);
	driver_flush_log(d);
}

void driver_split_list(struct driver *d, const char *text, struct option_list *out)
{
	for (const char *s = text; s && *s;) {
		size_t n = strcspn(s, ",");
		const char **slot = n ? ARENA_PUSH(&d->arena, out) : NULL;
		if (slot)
			*slot = arena_strndup(&d->arena, s, n);
		s += n + (s[n] != 0);
	}
}

/* ---- streams and files ---- */

void driver_flush_log(struct driver *d)
{
	if (d->log.len > 0)
		progress_hide(&d->progress_view);
	fwrite(d->log.data, 1, d->log.len, stderr);
	buf_clear(&d->log);
}

/* A failure is reported once; output after it is dropped. The progress bar is erased first, since both may be on one
 * terminal. */
bool driver_flush_out(struct driver *d)
{
	if (d->out_failed)
		return false;
	if (d->out.len > 0)
		progress_hide(&d->progress_view);
	if (buf_failed(&d->out))
		errno = ENOMEM;
	else if (fwrite(d->out.data, 1, d->out.len, stdout) == d->out.len && !fflush(stdout))
		errno = 0; /* else it has the reason */
	d->out_failed = errno != 0;
	if (d->out_failed)
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "cannot write to stdout: %s",
		                       strerror(errno));
	buf_clear(&d->out);
	return !d->out_failed;
}

bool driver_write_file(struct driver *d, const char *path, const struct buf *text)
{
	struct outputs o;
	outputs_init(&o, &d->arena, &d->diag);
	/* A list of its own commits at once, but may not be a file that the command read or wrote. */
	o.inputs = d->outputs.inputs;
	o.written = d->outputs.written;
	struct output_file *f = outputs_add(&o, path, d->options.input);
	if (f)
		(void)output_write_text(f, text);
	return f && outputs_commit(&o) == TFMC_OK;
}

enum tfmc_status driver_write_output(struct driver *d, const char *path, const struct buf *text)
{
	if (!strcmp(path, "-")) {
		buf_append(&d->out, text);
		return TFMC_OK;
	}
	struct output_file *f = outputs_add(&d->outputs, path, d->options.input);
	return f && output_write_text(f, text) ? TFMC_OK : TFMC_IO;
}

enum tfmc_status driver_write_main_output(struct driver *d, const struct buf *text)
{
	TFMC_TRY(driver_write_output(d, d->options.output ? d->options.output : "-", text));
	return outputs_commit(&d->outputs);
}

/* ---- errors ---- */

/* Reports a mistake on the command line with the page of help to read, of the command if it was named: text, or a
 * diagnostic where stderr has data. Always EXIT_USAGE. */
enum exit_code driver_usage_error(struct driver *d, const char *fmt, ...)
{
	struct buf text;
	BUF_FROM_ARGS(&text, fmt);
	bool one = d->options.command_named && d->options.command != COMMAND_HELP;
	const char *space = one ? " " : "", *command = one ? options_command(d->options.command)->name : "";
	if (diagnostics_is_data(&d->diagnostics)) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "%s", text.data);
		diag_note(&d->diag, LOC_NONE, "see tfmc help%s%s", space, command);
	} else {
		buf_printf(&d->log, "tfmc: %s (see tfmc help%s%s)\n", text.data, space, command);
	}
	buf_destroy(&text);
	driver_flush_log(d);
	return EXIT_USAGE;
}

enum tfmc_status driver_runtime_error(struct driver *d, struct loc loc, enum diag_code code, int status,
                                      const char *fmt, ...)
{
	struct buf text;
	BUF_FROM_ARGS(&text, fmt);
	/* Not the input's fault: exit code 3. */
	bool is_system = status == TFMC_RT_E_MEMORY || status == TFMC_RT_E_THREAD ||
	                 status == TFMC_RT_E_FILE || status == TFMC_RT_E_DEVICE || status == TFMC_RT_E_RANK;
	if (is_system)
		diag_environment_error(&d->diag, loc, status == TFMC_RT_E_MEMORY ? DIAG_MEMORY : DIAG_TARGET,
		                       "%s", text.data);
	else
		diag_error(&d->diag, loc, code, "%s", text.data);
	if (status == TFMC_RT_E_RANK && *job_error(d->job))
		diag_note(&d->diag, LOC_NONE, "%s", job_error(d->job));
	buf_destroy(&text);
	return is_system ? TFMC_IO : TFMC_INVALID;
}

/* ---- resource limits ---- */

#define DEFAULT_WEIGHTS UINT64_C(1000000000)
#define DEFAULT_CODE    UINT64_C(64000000)

int64_t limits_processors(void)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	int64_t n = online > 0 ? online : 1;
#ifdef __linux__
	cpu_set_t allowed;
	if (!sched_getaffinity(0, sizeof(allowed), &allowed) && CPU_COUNT(&allowed) > 0)
		n = CPU_COUNT(&allowed);
#endif
	/* The CPU quota of a container (cgroup v2), rounded up. */
	long long quota, period;
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
	bool is_given = f && fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0;
	if (f)
		fclose(f);
	int64_t allotted = is_given ? (quota + period - 1) / period : n;
	return allotted < n ? allotted : n;
}

struct limits limits_of(const struct driver_options *o)
{
	long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
	uint64_t machine = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes : UINT64_MAX;
	return (struct limits){.weights = o->limit_weights ? *o->limit_weights : DEFAULT_WEIGHTS,
	                       .code = o->limit_code ? *o->limit_code : DEFAULT_CODE,
	                       .memory = o->limit_memory ? *o->limit_memory : machine};
}

enum tfmc_status limits_session(const struct limits *l, struct diag_context *cx, uint64_t arena,
                                uint64_t state)
{
	char values[NUMBER_TEXT_MAX], states[NUMBER_TEXT_MAX], limit[NUMBER_TEXT_MAX];
	uint64_t sum = arena > UINT64_MAX - state ? UINT64_MAX : arena + state;
	if (sum <= l->memory)
		return TFMC_OK;
	number_print_bytes(values, arena);
	number_print_bytes(states, state);
	number_print_bytes(limit, l->memory);
	diag_error(cx, LOC_NONE, DIAG_LIMIT,
	           "a session takes %s for intermediate values at the largest dims and %s for state, the "
	           "limit is %s",
	           values, states, limit);
	diag_note(cx, LOC_NONE,
	          "--context=N (tokens of a sequence) or smaller bounds in `dims` of a model file make it "
	          "smaller, "
	          "--limit-memory=%llu raises the limit",
	          (unsigned long long)sum);
	return TFMC_INVALID;
}
