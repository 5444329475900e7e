/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that a model names: paths that stay beneath the directory of the file
 * that contains them, whole files into memory, and read-only mappings. Only
 * regular files are opened, and never blocking.
 */
#ifndef TFMC_FRONTEND_TEXT_FILES_H
#define TFMC_FRONTEND_TEXT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/diag/diag.h"

/* The part before the last '/', or "" . */
const char *file_dir(struct arena *a, const char *path);
bool file_ends_with(const char *path, const char *ending);
/* dir/name; name alone when it is absolute or dir is empty. */
const char *file_join(struct arena *a, const char *dir, const char *name);
/*
 * The path of `name` beneath `dir`; NULL with a diagnostic (FILE) at loc when
 * it is empty, absolute, or has `.` or `..` parts. Symbolic links are followed
 * when it is opened.
 */
const char *file_path_inside(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                             struct loc loc);
/*
 * The same for a name that somebody wrote in a file of his own, for which any path will do; names in what is
 * downloaded (folders, indices of shards) go through file_path_inside.
 */
const char *file_path_any(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                          struct loc loc);

/*
 * The first bytes of a regular file, at most n; how many, 0 also when it cannot be read. When the system fails, not
 * the name, that is an error: the kind of the file is not known.
 */
size_t file_head(struct diag_context *cx, const char *path, char *out, size_t n);
/* A regular file that begins with these bytes; false as above. */
bool file_begins_with(struct diag_context *cx, const char *path, const char *magic, size_t n);
/* Whether a regular file has the name. One that the system cannot look at counts, so that reading it says why. */
bool file_exists(const char *path);

/* The bytes, followed by a zero byte that is not counted. TFMC_IO, or TFMC_INVALID over the limit; reported
 * at loc. */
TFMC_MUST_USE enum tfmc_status file_read(struct arena *a, struct diag_context *cx, const char *path,
                                         size_t limit, struct loc loc, const char **text, size_t *len);

struct file_map {
	const unsigned char
	        *data; /* never NULL after success; a zero-length file has one readable zero byte */
	size_t len;
	void *mapped; /* NULL: nothing to unmap */
	/* As it was opened. */
	uint64_t device, inode;
	struct timespec changed;
};
TFMC_MUST_USE enum tfmc_status file_map_open(struct diag_context *cx, const char *path, struct loc loc,
                                             struct file_map *out);
void file_map_close(struct file_map *m);
/* Whether the bytes are still those that were mapped: nobody wrote to the file `path`, or cut it off. True of one that
 * another took the place of. */
bool file_map_is_same(const struct file_map *m, const char *path);
/* Gives the pages back to the system: those that are read again are mapped again. */
void file_map_release_pages(const struct file_map *m);

#endif
