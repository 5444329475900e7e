/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The context of one invocation of tfmc, and the helpers of every command: exit codes, buffered stdout and stderr,
 * output files, stage times, errors. Loading and compiling a model: compile.h. A model in this process: jit.h.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_DRIVER_H
#define TFMC_FRONTEND_DRIVER_COMPILE_DRIVER_H

#include "frontend/driver/compile/cache.h"
#include "frontend/driver/options/diagnostics.h"
#include "frontend/driver/options/options.h"
#include "frontend/driver/options/output.h"
#include "frontend/driver/options/progress.h"

#define DRIVER_VERSION "0.1.0"

/* Exit codes of the command; README.md lists them. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_INPUT = 1, /* the input is rejected, diagnostics are printed */
	EXIT_USAGE = 2,
	EXIT_ENVIRONMENT = 3, /* I/O, memory, device */
	EXIT_VERIFY = 4,      /* verification failed */
	EXIT_INTERNAL = 70,
};
enum exit_code exit_code_of(enum tfmc_status status);

/* Resource limits of one run of the command: the options --limit-*, or their defaults. frontend/driver/README.md,
 * section "Limits", lists them. */
struct limits {
	uint64_t
	        weights; /* packed bytes beyond BACKEND_WEIGHTS_FACTOR times the stored tensors that are read */
	uint64_t code;   /* bytes of machine code; 8 bytes for each instruction of the kernel IR */
	uint64_t memory; /* bytes of a session's arena and state */
};

struct tfmc_tokenizer;
struct driver {
	struct arena arena; /* everything that lives as long as the command */
	struct driver_options options;
	struct diag_context diag;       /* its sink writes to `diagnostics`, then to stderr */
	struct diagnostics diagnostics; /* messages in the format of --diagnostics */
	struct limits limits;
	int64_t ranks, stages; /* of --shards: processes of a pipeline stage, stages; 1 and 1: one process */
	struct progress progress;           /* long-running stages report here .. */
	struct progress_view progress_view; /* .. and this draws the bar or the lines */
	struct outputs outputs;
	struct cache cache;     /* compiled code and packed weights, of commands that run a model */
	struct buf out;         /* stdout, written by driver_flush_out */
	struct buf log;         /* stderr, written by driver_flush_log */
	double clock;           /* driver_clock() at the end of the last timed stage */
	const char *rules_text; /* content of --rules; NULL: not given */
	size_t rules_len;
	struct tfmc_tokenizer *tokenizer; /* of prompts and sources, opened by driver_open_tokenizer; NULL:
	                                            the model has none, or one token for each character */
	struct tfmc_tokenizer
	        *target_tokenizer; /* of generated text: the same, or that of the target language */
	struct job *job;           /* the MPI job that this process is a rank of (job.h); NULL: none */
	bool is_reporting;         /* inside the diagnostic sink: an error there must not be reported by it */
	bool out_failed;           /* writing stdout failed, which is reported once */
	bool is_unrounded; /* load weights as stored, with f32 caches: ignore `quantize`, `dtype` and their options */
	bool state_at_once; /* --device: the whole state takes memory when a session opens, not as tokens come */
	int64_t session_tokens; /* context of the last session where --limit-memory shortened it; 0: the model's */
	bool texts_failed;      /* writing an IR dump or a reproducer failed: the pipeline fails */
};

/* A command: its exit code; text for stdout is in d->out. */
typedef enum exit_code driver_command_fn(struct driver *d);
#define COMMAND(id, name, input, synopsis, line, example, text) driver_command_fn command_##name;
#include "frontend/driver/options/commands.def"

/* ---- times ---- */
/* Seconds of a monotonic clock. `user` is not used: struct progress_view and back ends take it as a callback. */
double driver_clock(void *user);
/* Ends a timed stage: with --time-passes or -v its seconds go to stderr. stage NULL: only starts the next one. */
void driver_end_stage(struct driver *d, const char *stage);
/* Reports the seconds of a part of the last stage, indented; the caller has measured them. */
void driver_report_time(struct driver *d, const char *part, double seconds);

/* ---- streams and files ---- */
/* Writes d->log to stderr and empties it. */
void driver_flush_log(struct driver *d);
/* Writes d->out to stdout and empties it. False when stdout failed, now (after a diagnostic) or before. */
bool driver_flush_out(struct driver *d);
/* Writes one file, atomically and at once, outside of d->outputs. False after a diagnostic. */
bool driver_write_file(struct driver *d, const char *path, const struct buf *text);
/* Adds a text output, committed with the others when the command succeeds; "-" appends to stdout. */
TFMC_MUST_USE enum tfmc_status driver_write_output(struct driver *d, const char *path,
                                                   const struct buf *text);
/* Writes the main text output, to -o FILE or stdout, and commits all outputs. */
TFMC_MUST_USE enum tfmc_status driver_write_main_output(struct driver *d, const struct buf *text);
/* Appends the elements of a comma-separated list (NULL: none) to *out, in the arena. */
void driver_split_list(struct driver *d, const char *text, struct option_list *out);

/* ---- resource limits ---- */
struct limits limits_of(const struct driver_options *o);
/* Processors that this process may use: its CPU affinity, within the quota of its control group; at least 1. */
int64_t limits_processors(void);
/* TFMC_INVALID after a diagnostic when arena + state of a session exceed the memory limit. Both in bytes. */
TFMC_MUST_USE enum tfmc_status limits_session(const struct limits *l, struct diag_context *cx, uint64_t arena,
                                              uint64_t state);

/* ---- errors ---- */
/* Reports a mistake on the command line. Always EXIT_USAGE. */
enum exit_code driver_usage_error(struct driver *d, const char *fmt, ...) TFMC_PRINTF(2, 3);
/*
 * Reports a failed call of the runtime library (status: TFMC_RT_E_..) with the given message. Failures of memory,
 * threads, files and devices become environment errors (TFMC_IO); others get `code` and are TFMC_INVALID.
 */
enum tfmc_status driver_runtime_error(struct driver *d, struct loc loc, enum diag_code code, int status,
                                      const char *fmt, ...) TFMC_PRINTF(5, 6);

#endif
