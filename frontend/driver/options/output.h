/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output files. Each is written to an unnamed file in its directory and flushed to the disk; at the end all are
 * renamed together, in the order in which they were added. After a failure or a signal the old files are untouched
 * and no new ones are left: when one rename fails, earlier ones are undone. A process killed in the microseconds
 * between two renames leaves some new and some old files, each of them complete: POSIX renames one file at a time.
 *
 * A path that is a symbolic link stays one: the file it points to is written.
 *
 * Where the system has no unnamed files (O_TMPFILE), they are named .NAME.tfmc-NNNNNN; signals remove them, and each
 * is locked while its process lives: the next process that writes the same path removes those that a killed one left.
 *
 * The first failed call on a file is a diagnostic with its path and the reason.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_OUTPUT_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/diag.h"
#include "ir/support/strmap.h"

struct output_file {
	struct diag_context *cx;
	const char *path;      /* as given */
	const char *target;    /* the path with symbolic links resolved */
	const char *temporary; /* NULL: the file is unnamed */
	const char *old;       /* second name of the replaced file, to undo the rename; NULL: it has none */
	bool was_there;        /* a file of that name existed */
	FILE *stream;
	uint64_t at;    /* position of the next byte */
	uint64_t bytes; /* size */
	bool failed;    /* a diagnostic was reported */
	struct output_file *volatile next_named;
};

struct outputs {
	struct arena *arena;
	struct diag_context *cx;
	struct output_file **items;
	size_t n, cap;
	struct {
		const char **items;
		size_t n, cap;
	} inputs;            /* files that were read, each once: no output may be one of them */
	struct strmap known; /* the inputs */
	struct {
		const char **items;
		size_t n, cap;
	} written; /* outputs committed on their own (dumps, reproducers) */
};

/* Process-wide: SIGINT, SIGTERM, SIGHUP and SIGPIPE remove named temporary files before they end the process, and
 * exceeding the file size limit is a failed call instead of SIGXFSZ. */
void outputs_handle_signals(void);
/* Removes all named temporary files, before the process ends without outputs_discard. */
void outputs_remove_temporaries(void);

/* Registers a scratch file of the command, which outputs_remove_temporary, or a signal, removes. */
void outputs_track_temporary(struct output_file *f, const char *path);
void outputs_remove_temporary(struct output_file *f);
/* Makes a directory and registers it in the same way; it is removed only if it is empty. False with errno. */
bool outputs_make_directory(struct output_file *f, const char *path);

void outputs_init(struct outputs *o, struct arena *arena, struct diag_context *cx);
/* Registers an input file: no output may be the same file. */
void outputs_add_input(struct outputs *o, const char *path);
/* Registers an output that was written on its own: no other output may be the same file. */
void outputs_note_written(struct outputs *o, const char *path);
/* Opens an output. NULL after a diagnostic: cannot be opened, not a regular file, the same as another output, as a
 * registered input, or as `input` (may be NULL). */
struct output_file *outputs_add(struct outputs *o, const char *path, const char *input);
/* Appends bytes. False after a diagnostic, of this or an earlier call. */
bool output_write(struct output_file *f, const void *bytes, size_t n);
/* The same at a byte offset. */
bool output_write_at(struct output_file *f, uint64_t offset, const void *bytes, size_t n);
/* Appends a text; fails when building the text failed (no memory). */
bool output_write_text(struct output_file *f, const struct buf *text);
/* Makes the last added file the first to be renamed. */
void outputs_move_first(struct outputs *o);
/* Makes f the last file to be renamed. */
void outputs_move_last(struct outputs *o, struct output_file *f);
/* Closes and renames all files, or after a diagnostic none. */
TFMC_MUST_USE enum tfmc_status outputs_commit(struct outputs *o);
/* Drops all files that were not committed. */
void outputs_discard(struct outputs *o);

#endif
