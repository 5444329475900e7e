/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of commands that run a model: compiled code and packed weights in
 * files under names made of what they depend on, in $XDG_CACHE_HOME/tfmc, else
 * ~/.cache/tfmc. Whatever goes wrong with it (no directory, no permission, a
 * full disk, a damaged file) is as if a file were not there.
 *
 * The directory is the cache's own: it made it, or found it empty, and left a
 * mark there. Others are not used, nor is a symbolic link. In it, only regular
 * files whose whole name has the form of one of its own are ever removed.
 *
 * INVARIANT: a file has its name when it is complete (written to another one,
 * renamed), and is not changed afterwards; who maps it may go on reading when
 * it is removed. So processes need no lock.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_CACHE_H
#define TFMC_FRONTEND_DRIVER_COMPILE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "ir/support/arena.h"
#include "ir/algorithms/blake2b.h"
#include "ir/support/buf.h"
#include "ir/diag/progress.h"

#define CACHE_LIMIT (8ull << 30) /* bytes, unless it is said */

struct cache_key {
	unsigned char bytes[BLAKE2B_BYTES];
};

enum cache_kind {
	CACHE_CODE,
	CACHE_WEIGHTS,
	CACHE_PACKED, /* which packed weights some weights became */
	CACHE_SEEN,   /* the content of a file elsewhere, or that a file here was found whole */
};

struct cache {
	const char *dir;                 /* NULL: not used */
	int fd;                          /* of it, open while dir is not NULL */
	const char *why;                 /* it is not used */
	uint64_t limit;                  /* bytes of all files */
	int64_t workers;                 /* that read and hash large files; at least 1, 0 as 1 */
	struct cache_key files;          /* content of all that were read, of who uses the cache */
	struct timespec start;           /* files that changed since may have changed while they were read */
	const struct progress *progress; /* told while content is read; NULL: nobody */
};

/* A file that is being written, without its name yet. */
struct cache_file {
	int fd;           /* -1: none */
	int dir;          /* of the cache */
	const char *name; /* there; NULL: the file is elsewhere */
};

/* Before files are read whose content is asked for. */
void cache_begin(struct cache *c);
/* The directory, which is made where it is absent. */
void cache_open(struct cache *c, struct arena *a, uint64_t limit);
/* Also of one that was not opened. */
void cache_close(struct cache *c);

/* The bytes under a name, checked against what cache_write was given. False: there are none. */
bool cache_read(struct cache *c, const char *name, struct buf *out);
/* False: they are not kept. */
bool cache_write(struct cache *c, const char *name, const void *bytes, size_t n);

/* fd -1: it cannot be written. */
struct cache_file cache_create(struct cache *c, struct arena *a);
/* Gives the file its name, and removes what was not used for longest where all exceed the limit. False: it
 * has none. */
bool cache_commit(struct cache *c, struct cache_file *f, const char *name);
void cache_discard(struct cache_file *f);
/* KIND-HEX, in the arena. */
const char *cache_entry_name(struct arena *a, enum cache_kind kind, const struct cache_key *key);
/* DIR/NAME, in the arena. */
const char *cache_path(const struct cache *c, struct arena *a, const char *name);
/* Names below are those of files of the cache. False: there is none, or something else has the name. */
bool cache_stat(const struct cache *c, const char *name, struct stat *out);
/* It was of use. */
void cache_touch(const struct cache *c, const char *name);
/* Whether the file, which nobody changes in place, was found whole since the machine was started; and that it
 * was. */
bool cache_is_verified(struct cache *c, const char *name);
void cache_mark_verified(struct cache *c, const char *name);

/*
 * The content of a file: remembered for one that is as it was (device, inode, size, times), so that large
 * ones are read once. False: it cannot be read, or changed since cache_begin.
 */
bool cache_content_key(struct cache *c, const char *path, struct cache_key *out);
bool cache_is_directory(const char *path);
/* Whether the file has not changed since cache_begin. */
bool cache_is_unchanged(const struct cache *c, const char *path);
/* The program and its libraries. */
void cache_hash_build(struct blake2b *b);

#endif
