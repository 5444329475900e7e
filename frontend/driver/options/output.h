/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output files: each is written to a file without a name in its directory, is
 * on the disk, and all get their names together at the end, in the order they
 * were added. A failure or a signal leaves old files untouched and no other
 * files: where one name cannot be given, the others are taken back. A process
 * that is killed in the microseconds between two renames leaves some new files
 * and some old ones, each of them complete: POSIX renames one file at a time.
 *
 * A path that is a symbolic link stays one: the file it leads to is written.
 *
 * Where the system has no files without names they are called .NAME.tfmc-NNNNNN;
 * signals remove them, and each is locked while its process lives: what a killed
 * process left is removed by the next one that writes the same path.
 *
 * The first failed call of a file is a diagnostic with its path and the reason.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_OUTPUT_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/diag/diag.h"
#include "ir/support/strmap.h"

struct output_file {
	struct diag_context *cx;
	const char *path;      /* as it was given */
	const char *target;    /* the same behind symbolic links */
	const char *temporary; /* NULL: the file has no name */
	const char *old;       /* a second name of the file that was there; NULL: it has none */
	bool was_there;        /* such a file */
	FILE *stream;
	uint64_t at;    /* position of the next byte */
	uint64_t bytes; /* after the last one */
	bool failed;    /* a diagnostic was emitted */
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
	} inputs;            /* files that were read: must not be written; each once */
	struct strmap known; /* the inputs */
	struct {
		const char **items;
		size_t n, cap;
	} taken; /* outputs that are written already */
};

/*
 * For the whole process: SIGINT, SIGTERM, SIGHUP and SIGPIPE remove named temporary files before they end it,
 * and a file beyond the limit on its size is a failed call, not a signal.
 */
void outputs_handle_signals(void);
/* Removes the named temporary files of the process, which is about to end. */
void outputs_remove_temporaries(void);

/* A file of the command itself that no output comes from: it is removed by `outputs_remove_temporary`, and by signals.
 */
void outputs_track_temporary(struct output_file *f, const char *path);
void outputs_remove_temporary(struct output_file *f);
/* Makes a folder, which is removed in the same way if it is empty then. False with errno. */
bool outputs_make_directory(struct output_file *f, const char *path);

void outputs_init(struct outputs *o, struct arena *arena, struct diag_context *cx);
/* `path` is an input: no output may be the same file. */
void outputs_add_input(struct outputs *o, const char *path);
/* An output that was written by itself: no other may be the same. */
void outputs_note_written(struct outputs *o, const char *path);
/* Opens what becomes the file `path`. NULL after a diagnostic. The path `input` (may be NULL) must be another
 * file. */
struct output_file *outputs_add(struct outputs *o, const char *path, const char *input);
/* False after a diagnostic, here or in an earlier call. */
bool output_write(struct output_file *f, const void *bytes, size_t n);
/* The same, at a position from the beginning. */
bool output_write_at(struct output_file *f, uint64_t offset, const void *bytes, size_t n);
/* The same with a text, which is refused when it failed. */
bool output_write_text(struct output_file *f, const struct buf *text);
/* The file that was added last is renamed before all others. */
void outputs_move_first(struct outputs *o);
/* The file is renamed after all others. */
void outputs_move_last(struct outputs *o, struct output_file *f);
/* Closes and renames all. On failure a diagnostic, and all is as it was. */
TFMC_MUST_USE enum tfmc_status outputs_commit(struct outputs *o);
/* Drops the files that were not committed. */
void outputs_discard(struct outputs *o);

#endif
