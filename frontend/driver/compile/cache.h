/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of files named by a hash of their inputs, in $XDG_CACHE_HOME/tfmc, else ~/.cache/tfmc: compiled
 * code and packed weights. Any failure (no directory, no permission, full disk, damaged file) counts as a miss.
 *
 * The directory belongs to the cache: it was created or found empty, and tagged (CACHEDIR.TAG). Other directories and
 * symbolic links are not used. Only regular files whose full name has a form of the cache are ever removed.
 *
 * INVARIANT: a file is written under a temporary name, renamed when complete, and never changed. A process that has
 * it mapped may go on reading after it was removed, so processes need no lock.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_CACHE_H
#define TFMC_FRONTEND_DRIVER_COMPILE_CACHE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "ir/support/arena.h"
#include "ir/support/blake2b.h"
#include "ir/support/buf.h"
#include "ir/support/progress.h"

#define CACHE_LIMIT     (8ull << 30)                   /* bytes, the default */
#define CACHE_ENTRY_MAX ((256u << 20) - BLAKE2B_BYTES) /* bytes that cache_write refuses */

struct cache_key {
	unsigned char bytes[BLAKE2B_BYTES];
};

enum cache_kind {
	CACHE_CODE,
	CACHE_WEIGHTS,
	CACHE_PACKED, /* refers to the packed weights of given source weights */
	CACHE_SEEN,   /* hash of a file outside of the cache, or mark of a verified file in it */
};

struct cache {
	const char *dir;                 /* NULL: not used */
	int fd;                          /* of dir, open while dir is not NULL */
	const char *why;                 /* reason why the cache is not used */
	uint64_t limit;                  /* bytes of all files */
	int64_t workers;                 /* for reading and hashing large files; 0 as 1 */
	struct cache_key files;          /* content of all input files, set by the user of the cache */
	struct timespec start;           /* a file that changed later may have changed while it was read */
	const struct progress *progress; /* of hashing; NULL: none */
};

/* A file being written, under its temporary name. */
struct cache_file {
	int fd;           /* -1: none */
	int dir;          /* of the cache */
	const char *name; /* temporary name in the cache; NULL: a memory file (memfd) */
};

/* Call before reading files whose content is hashed later. */
void cache_begin(struct cache *c);
/* Opens the directory, creating it when absent. On failure c->dir stays NULL. */
void cache_open(struct cache *c, struct arena *a, uint64_t limit);
/* Also for a cache that was not opened. */
void cache_close(struct cache *c);

/* Reads the content of a file into *out, which is empty, after checking its hash. False: missing or damaged. */
bool cache_read(struct cache *c, const char *name, struct buf *out);
/* Stores a file of less than CACHE_ENTRY_MAX bytes with its hash. False: it is not stored. */
bool cache_write(struct cache *c, const char *name, const void *bytes, size_t n);

/* Begins a file of any size. fd -1: it cannot be written. */
struct cache_file cache_create(struct cache *c, struct arena *a);
/* Gives the file its name, then removes the least recently used files beyond the limit. False: it is dropped. */
bool cache_commit(struct cache *c, struct cache_file *f, const char *name);
/* Closes the file and removes its temporary name, if any. No effect for fd -1, thus after cache_commit. */
void cache_discard(struct cache_file *f);
/* KIND-HEX, in the arena. */
const char *cache_entry_name(struct arena *a, enum cache_kind kind, const struct cache_key *key);
/* DIR/NAME, in the arena. */
const char *cache_path(const struct cache *c, struct arena *a, const char *name);
/* Names here and below are those of files in the cache. False: not a regular file. */
bool cache_stat(const struct cache *c, const char *name, struct stat *out);
/* Marks the file as used now (access time). */
void cache_touch(const struct cache *c, const char *name);
/* Whether the content of a large file was verified since the machine was started, and that it was. Files never
 * change in place, so once is enough. */
bool cache_is_verified(struct cache *c, const char *name);
void cache_mark_verified(struct cache *c, const char *name);

/*
 * The hash of a file's content. For a large file it is cached by device, inode, size and times, so that it is read
 * once. False: the file cannot be read, or changed since cache_begin.
 */
bool cache_content_key(struct cache *c, const char *path, struct cache_key *out);
bool cache_is_directory(const char *path);
/* Since cache_begin. */
bool cache_is_unchanged(const struct cache *c, const char *path);
/* Adds the identity of this program and its shared libraries. */
void cache_hash_build(struct blake2b *b);

#endif
