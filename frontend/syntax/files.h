/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files named by a model: path checks, reading a file into memory, read-only mappings. Only regular files are
 * opened, with O_NONBLOCK, so that a FIFO in place of a file cannot hang the compiler.
 */
#ifndef TFMC_FRONTEND_SYNTAX_FILES_H
#define TFMC_FRONTEND_SYNTAX_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"

/* The directory part of a path, "" if there is none. */
const char *file_dir(struct arena *a, const char *path);
bool file_ends_with(const char *path, const char *ending);
/* dir/name; only name when it is absolute or dir is empty. */
const char *file_join(struct arena *a, const char *dir, const char *name);
/*
 * dir/name for names that come from downloaded data (hub directories, shard indices) and must not escape `dir`.
 * NULL after a FILE diagnostic at loc when name is empty, absolute, or has `.` or `..` components. Symbolic
 * links are followed when the file is opened.
 */
const char *file_path_inside(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                             struct loc loc);
/* dir/name for names in the user's own model file, where any path is allowed. NULL after a diagnostic when name
 * is empty. */
const char *file_path_any(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                          struct loc loc);

/*
 * Reads up to n leading bytes of a regular file; returns their number, 0 also when there is no such file.
 * Errors that are not about the path (EIO, ENOMEM, too many open files) are reported, since the kind of the
 * file is then unknown.
 */
size_t file_head(struct diag_context *cx, const char *path, char *out, size_t n);
/* True if a regular file begins with these n <= 16 bytes; false on errors, reported as in file_head. */
bool file_begins_with(struct diag_context *cx, const char *path, const char *magic, size_t n);
/* True if the path is a regular file. A path that stat cannot examine counts as existing, so that opening it
 * reports the reason. */
bool file_exists(const char *path);

/* Reads a whole file into the arena; a terminating zero byte is not counted in *len. Returns TFMC_IO, or
 * TFMC_INVALID above the limit; both reported at loc. */
TFMC_MUST_USE enum tfmc_status file_read(struct arena *a, struct diag_context *cx, const char *path,
                                         size_t limit, struct loc loc, const char **text, size_t *len);

/* Reads up to n bytes from offset `at`, retrying short reads. Returns their number, fewer than n only at the end of the
 * file; SIZE_MAX: an error. */
size_t file_read_at(int fd, void *to, size_t n, uint64_t at);
/* Writes all n bytes at offset `at`, retrying short writes. False with errno set. */
bool file_write_at(int fd, const void *bytes, size_t n, uint64_t at);

struct file_map {
	const unsigned char *data; /* never NULL after success; an empty file has one readable zero byte */
	size_t len;
	void *mapped; /* NULL: nothing to unmap */
	/* identity and mtime when it was opened, for file_map_is_same */
	uint64_t device, inode;
	struct timespec changed;
};
/* Maps a whole file read-only. TFMC_IO after a diagnostic at loc; *out is then an empty file. */
TFMC_MUST_USE enum tfmc_status file_map_open(struct diag_context *cx, const char *path, struct loc loc,
                                             struct file_map *out);
void file_map_close(struct file_map *m);
/* False if the mapped file was modified or truncated since it was opened. A file that was replaced by another
 * (new inode) counts as the same: the mapping still shows the old one. */
bool file_map_is_same(const struct file_map *m, const char *path);
/* Drops the resident pages of the mapping (MADV_DONTNEED); they are read again on access. */
void file_map_release_pages(const struct file_map *m);

#endif
