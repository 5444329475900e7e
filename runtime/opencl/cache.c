/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disk cache of program binaries. A file is a header, the key and the binary. The key is everything that a
 * binary depends on, source included, and is compared in full; its hash in the file name only locates the
 * file. A checksum detects damaged files, so writes need no fsync. Drivers execute what they are given, so a
 * directory that others can write to is not used, nor is a file that belongs to another user.
 *
 * All complete files together have at most CACHE_MAX bytes; the least recently used go first (lru.c). Only
 * regular files named HASH.clbin, or that with the six characters of mkostemp, are removed.
 */
#define _GNU_SOURCE /* mkostemp */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/support/blake2b.h"
#include "runtime/opencl/internal.h"
#include "runtime/opencl/lru.h"

#define MAGIC       0x31424c434d465400ull /* "\0TFMCLB1", in native byte order */
#define VERSION     2
#define FILE_MAX    ((uint64_t)1 << 30)
#define CACHE_MAX   FILE_MAX
#define HEX         ((size_t)2 * BLAKE2B_BYTES)
#define EXTENSION   ".clbin"
#define TEMP_SUFFIX ".XXXXXX" /* suffix until the file is complete */

struct header {
	uint64_t magic, version, key_bytes, binary_bytes;
	unsigned char checksum[BLAKE2B_BYTES]; /* of the file, with this field zero */
};

static void hash_bytes(const void *bytes, size_t n, unsigned char out[BLAKE2B_BYTES])
{
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_add(&b, bytes, n);
	blake2b_end(&b, out);
}

/* All that a binary depends on: strings of device and driver, options, source. False: no memory, or a source larger
 * than a file may be; then nothing is cached. */
bool cl_cache_key_make(const struct tfmc_cl_context *c, const struct tfmc_cl_source *source,
                       struct cl_cache_key *out)
{
	const struct tfmc_cl_device *d = &c->entry->device;
	const char *strings[] = {
	        d->platform, d->platform_version, d->name,      d->vendor,
	        d->driver,   d->version,          d->c_version, source->options ? source->options : ""};
	size_t n = 0, count = sizeof(strings) / sizeof(strings[0]);
	for (size_t i = 0; i < count; i++)
		n += strlen(strings[i]) + 1;
	*out = (struct cl_cache_key){0};
	if (source->bytes > FILE_MAX)
		return false;
	out->bytes = malloc(n + (size_t)source->bytes);
	for (size_t i = 0; out->bytes && i < count; i++) {
		/* with its zero, so that strings cannot run together */
		size_t length = strlen(strings[i]) + 1;
		memcpy(out->bytes + out->n, strings[i], length);
		out->n += length;
	}
	if (out->bytes)
		memcpy(out->bytes + out->n, source->text, (size_t)source->bytes);
	out->n += (size_t)source->bytes;
	return out->bytes != NULL;
}

/* ---- names ---- */

/* HASH.clbin of the key. */
static void cache_file_name(const struct cl_cache_key *key, char name[HEX + sizeof(EXTENSION)])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[BLAKE2B_BYTES];
	hash_bytes(key->bytes, key->n, bytes);
	for (size_t i = 0; i < BLAKE2B_BYTES; i++) {
		name[2 * i] = digits[bytes[i] >> 4];
		name[2 * i + 1] = digits[bytes[i] & 15];
	}
	memcpy(name + HEX, EXTENSION, sizeof(EXTENSION));
}

/* HASH.clbin is complete; with the suffix of mkostemp it is being written. */
static enum cl_lru_kind classify(const char *name)
{
	size_t n = HEX + strlen(EXTENSION);
	if (strspn(name, "0123456789abcdef") != HEX || strncmp(name + HEX, EXTENSION, strlen(EXTENSION)))
		return CL_LRU_FOREIGN;
	if (!name[n])
		return CL_LRU_COMPLETE;
	return name[n] == '.' && strlen(name + n) == strlen(TEMP_SUFFIX) ? CL_LRU_TEMPORARY : CL_LRU_FOREIGN;
}

/* Opens the directory if it is the user's and only the user can write to it; else -1. */
static int open_private_directory(const char *directory)
{
	struct stat st;
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return fd;
	close(fd);
	return -1;
}

/* Opens a regular file of the user, not through a link; else -1. A file of another user could contain a binary that
 * the driver would execute. O_NONBLOCK: does not wait at a FIFO. */
static int open_own_file(int directory, const char *name, struct stat *st)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid())
		return fd;
	close(fd);
	return -1;
}

/* ---- reading ---- */

/* Reads a file of plausible size; NULL on failure. *n: bytes read, fewer where the file shrinks meanwhile; find_binary
 * compares them with the header. */
static unsigned char *read_file(int fd, const struct stat *st, size_t *n)
{
	bool fits = st->st_size >= (off_t)sizeof(struct header) && (uint64_t)st->st_size <= FILE_MAX;
	unsigned char *bytes = fits ? malloc((size_t)st->st_size) : NULL;
	size_t got = 0;
	ssize_t n_done = 1;
	while (bytes && (n_done > 0 || (n_done < 0 && errno == EINTR))) {
		n_done = read(fd, bytes + got, (size_t)st->st_size - got);
		got += n_done > 0 ? (size_t)n_done : 0;
	}
	*n = got;
	return bytes;
}

/* Offset of the binary in a file; 0: the file is damaged, or of another key. */
static size_t find_binary(unsigned char *bytes, size_t n, const struct cl_cache_key *key)
{
	struct header h;
	if (n < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	uint64_t remaining = n - sizeof(h);
	if (h.magic != MAGIC || h.version != VERSION || h.key_bytes != key->n || h.key_bytes > remaining ||
	    h.binary_bytes != remaining - h.key_bytes || h.binary_bytes == 0)
		return 0;
	unsigned char checksum[BLAKE2B_BYTES];
	memset(bytes + offsetof(struct header, checksum), 0, sizeof(h.checksum));
	hash_bytes(bytes, n, checksum);
	bool is_right = memcmp(checksum, h.checksum, sizeof(checksum)) == 0 &&
	                memcmp(bytes + sizeof(h), key->bytes, key->n) == 0;
	return is_right ? sizeof(h) + key->n : 0;
}

/* Returns the file, whose binary begins at *at; the caller frees. NULL: none, or not of this key. */
unsigned char *cl_cache_read(const char *directory, const struct cl_cache_key *key, size_t *at, size_t *n)
{
	static const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	char name[HEX + sizeof(EXTENSION)];
	struct stat st;
	int dir = open_private_directory(directory);
	cache_file_name(key, name);
	int fd = dir >= 0 ? open_own_file(dir, name, &st) : -1;
	unsigned char *bytes = fd >= 0 ? read_file(fd, &st, n) : NULL;
	*at = bytes ? find_binary(bytes, *n, key) : 0;
	if (*at)
		/* mark it as used; atime updates may be off (noatime) */
		(void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW);
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
	if (*at)
		return bytes;
	free(bytes);
	return NULL;
}

/* ---- writing ---- */

/* Writes n bytes; continues after partial writes and signals. False: an error, or nothing can be written. */
static bool write_all(int fd, const unsigned char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t n_done = write(fd, bytes, n);
		if (n_done == 0 || (n_done < 0 && errno != EINTR))
			return false;
		bytes += n_done > 0 ? n_done : 0;
		n -= n_done > 0 ? (size_t)n_done : 0;
	}
	return true;
}

/* Writes a temporary file, locked so that it does not look abandoned, and renames it: readers see the old
 * or the new file. */
static bool replace_file(const char *directory, int dir, const char *name, const unsigned char *bytes,
                         size_t n)
{
	size_t length = strlen(directory), name_length = strlen(name);
	char *temporary = malloc(length + 1 + name_length + sizeof(TEMP_SUFFIX));
	bool ok = false;
	if (!temporary)
		return false;
	memcpy(temporary, directory, length);
	temporary[length] = '/';
	memcpy(temporary + length + 1, name, name_length);
	memcpy(temporary + length + 1 + name_length, TEMP_SUFFIX, sizeof(TEMP_SUFFIX));
	int fd = mkostemp(temporary, O_CLOEXEC);
	if (fd >= 0) {
		(void)flock(fd, LOCK_EX | LOCK_NB);
		ok = write_all(fd, bytes, n) && renameat(AT_FDCWD, temporary, dir, name) == 0;
		close(fd);
		if (!ok)
			(void)unlink(temporary);
	}
	free(temporary);
	return ok;
}

void cl_cache_trim(int dir, const char *except, uint64_t limit)
{
	cl_lru_trim(dir, except, limit, false, classify);
}

/* The checksum covers the whole file, with the checksum field zero. All failures are ignored: a cache may be
 * missing. */
void cl_cache_write(const char *directory, const struct cl_cache_key *key, const unsigned char *binary,
                    size_t n)
{
	struct header h = {MAGIC, VERSION, key->n, n, {0}};
	char name[HEX + sizeof(EXTENSION)];
	if (n > FILE_MAX - sizeof(h) || key->n > FILE_MAX - sizeof(h) - n)
		return;
	size_t all = sizeof(h) + key->n + n;
	int dir = open_private_directory(directory);
	unsigned char *bytes = dir >= 0 ? malloc(all) : NULL;
	cache_file_name(key, name);
	if (bytes) {
		memcpy(bytes, &h, sizeof(h));
		memcpy(bytes + sizeof(h), key->bytes, key->n);
		memcpy(bytes + sizeof(h) + key->n, binary, n);
		hash_bytes(bytes, all, h.checksum);
		memcpy(bytes, &h, sizeof(h));
		if (replace_file(directory, dir, name, bytes, all))
			cl_cache_trim(dir, name, CACHE_MAX);
	}
	free(bytes);
	if (dir >= 0)
		close(dir);
}
