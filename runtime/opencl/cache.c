/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binaries of programs as files: a header, the key, the binary. The key is everything that a binary depends on,
 * source included, and is compared as a whole: the hash in a file's name only finds it. The checksum is against
 * accidents, so nothing has to wait for the disk. Drivers run what they are given: a directory into which others
 * may write is not used, nor is a file that is not the user's own.
 *
 * All complete files have at most CACHE_MAX bytes together, the least recently used go first; only regular files are
 * removed whose whole name is HASH.clbin, or that with six characters of mkostemp behind it.
 */
#define _GNU_SOURCE /* mkostemp */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/algorithms/blake2b.h"
#include "runtime/opencl/internal.h"

#define MAGIC     0x31424c434d465400ull /* "\0TFMCLB1", in this machine's order of bytes */
#define VERSION   2
#define FILE_MAX  ((uint64_t)1 << 30)
#define CACHE_MAX FILE_MAX
#define HEX       ((size_t)2 * BLAKE2B_BYTES)
#define ENDING    ".clbin"
#define RANDOM    ".XXXXXX" /* behind it until the file is complete */

struct header {
	uint64_t magic, version, key_bytes, binary_bytes;
	unsigned char checksum[BLAKE2B_BYTES]; /* of all bytes of the file, with zeros here */
};

static void hash(const void *bytes, size_t n, unsigned char out[BLAKE2B_BYTES])
{
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_add(&b, bytes, n);
	blake2b_end(&b, out);
}

bool cl_cache_key_make(const struct tfmc_cl_context *c, const struct tfmc_cl_source *source,
                       struct cl_cache_key *out)
{
	const struct tfmc_cl_device *d = &c->entry->device;
	const char *texts[] = {
	        d->platform, d->platform_version, d->name,      d->vendor,
	        d->driver,   d->version,          d->c_version, source->options ? source->options : ""};
	size_t n = 0, count = sizeof(texts) / sizeof(texts[0]);
	for (size_t i = 0; i < count; i++)
		n += strlen(texts[i]) + 1;
	*out = (struct cl_cache_key){0};
	if (source->bytes > FILE_MAX)
		return false;
	out->bytes = malloc(n + (size_t)source->bytes);
	for (size_t i = 0; out->bytes && i < count; i++) {
		size_t length = strlen(texts[i]) + 1; /* the end keeps neighbours apart */
		memcpy(out->bytes + out->n, texts[i], length);
		out->n += length;
	}
	if (out->bytes)
		memcpy(out->bytes + out->n, source->text, (size_t)source->bytes);
	out->n += (size_t)source->bytes;
	return out->bytes != NULL;
}

/* ---- names ---- */

/* HASH.clbin */
static void name_of(const struct cl_cache_key *key, char name[HEX + sizeof(ENDING)])
{
	static const char digits[] = "0123456789abcdef";
	unsigned char bytes[BLAKE2B_BYTES];
	hash(key->bytes, key->n, bytes);
	for (size_t i = 0; i < BLAKE2B_BYTES; i++) {
		name[2 * i] = digits[bytes[i] >> 4];
		name[2 * i + 1] = digits[bytes[i] & 15];
	}
	memcpy(name + HEX, ENDING, sizeof(ENDING));
}

/* Length of what is behind HASH.clbin; -1: the file is none of ours. */
static int ending_of(const char *name)
{
	size_t n = HEX + strlen(ENDING);
	if (strspn(name, "0123456789abcdef") != HEX || strncmp(name + HEX, ENDING, strlen(ENDING)))
		return -1;
	size_t rest = strlen(name + n);
	return rest == 0 ? 0 : rest == strlen(RANDOM) && name[n] == '.' ? (int)rest : -1;
}

/* The directory, if nobody else may write there; else -1. */
static int open_folder(const char *folder)
{
	struct stat st;
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		return fd;
	close(fd);
	return -1;
}

/* A regular file of the user, not behind a link; else -1. A FIFO is not waited for. */
static int open_own(int folder, const char *name, struct stat *st)
{
	int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_uid == geteuid())
		return fd;
	close(fd);
	return -1;
}

/* ---- reading ---- */

/* All bytes of a file; NULL: it cannot be read. */
static unsigned char *read_file(int fd, const struct stat *st, size_t *n)
{
	bool fits = st->st_size >= (off_t)sizeof(struct header) && (uint64_t)st->st_size <= FILE_MAX;
	unsigned char *bytes = fits ? malloc((size_t)st->st_size) : NULL;
	size_t got = 0;
	ssize_t step = 1;
	while (bytes && step > 0) {
		step = read(fd, bytes + got, (size_t)st->st_size - got);
		got += step > 0 ? (size_t)step : 0;
	}
	*n = got;
	return bytes;
}

/* Where the binary begins in the bytes of a file; 0: the file is damaged, or is of another key. */
static size_t find_binary(unsigned char *bytes, size_t n, const struct cl_cache_key *key)
{
	struct header h;
	if (n < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	uint64_t rest = n - sizeof(h);
	if (h.magic != MAGIC || h.version != VERSION || h.key_bytes != key->n || h.key_bytes > rest ||
	    h.binary_bytes != rest - h.key_bytes || h.binary_bytes == 0)
		return 0;
	unsigned char checksum[BLAKE2B_BYTES];
	memset(bytes + offsetof(struct header, checksum), 0, sizeof(h.checksum));
	hash(bytes, n, checksum);
	bool is_right = memcmp(checksum, h.checksum, sizeof(checksum)) == 0 &&
	                memcmp(bytes + sizeof(h), key->bytes, key->n) == 0;
	return is_right ? sizeof(h) + key->n : 0;
}

unsigned char *cl_cache_read(const char *folder, const struct cl_cache_key *key, size_t *at, size_t *n)
{
	static const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	char name[HEX + sizeof(ENDING)];
	struct stat st;
	int dir = open_folder(folder);
	name_of(key, name);
	int fd = dir >= 0 ? open_own(dir, name, &st) : -1;
	unsigned char *bytes = fd >= 0 ? read_file(fd, &st, n) : NULL;
	*at = bytes ? find_binary(bytes, *n, key) : 0;
	if (*at)
		(void)utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW); /* it was of use */
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

static bool write_all(int fd, const unsigned char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t step = write(fd, bytes, n);
		if (step <= 0)
			return false;
		bytes += step;
		n -= (size_t)step;
	}
	return true;
}

struct old_file {
	char name[HEX + sizeof(ENDING)];
	struct timespec used;
	uint64_t bytes;
};

static int by_use(const void *a, const void *b)
{
	const struct timespec *x = &((const struct old_file *)a)->used,
	                      *y = &((const struct old_file *)b)->used;
	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec ? -1 : 1;
	return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* What a process that is gone did not complete. */
static void remove_left(int dir, const char *name)
{
	struct stat st;
	int fd = open_own(dir, name, &st);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(dir, name, 0);
	if (fd >= 0)
		close(fd);
}

/* The complete files; the caller frees them. NULL: there are none, or no memory. */
static struct old_file *list_files(DIR *d, size_t *n, uint64_t *bytes)
{
	struct old_file *files = NULL;
	struct stat st;
	*n = 0;
	*bytes = 0;
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		int ending = ending_of(e->d_name);
		if (ending > 0)
			remove_left(dirfd(d), e->d_name);
		if (ending != 0 || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		struct old_file *more = realloc(files, (*n + 1) * sizeof(*files));
		if (!more)
			break;
		files = more;
		struct old_file *f = &files[(*n)++];
		f->used = st.st_atim;
		f->bytes = (uint64_t)st.st_blocks * 512;
		*bytes += f->bytes;
		memcpy(f->name, e->d_name, sizeof(f->name));
	}
	return files;
}

void cl_cache_trim(int dir, const char *kept, uint64_t limit)
{
	size_t n;
	uint64_t bytes;
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	struct old_file *files = list_files(d, &n, &bytes);
	if (files)
		qsort(files, n, sizeof(*files), by_use);
	for (size_t i = 0; i < n && bytes > limit; i++)
		if (strcmp(files[i].name, kept) != 0 && unlinkat(dir, files[i].name, 0) == 0)
			bytes -= files[i].bytes;
	free(files);
	closedir(d);
}

/* Under another name first, locked: who reads sees the whole file, or that before. */
static bool write_file(const char *folder, int dir, const char *name, const unsigned char *bytes, size_t n)
{
	size_t length = strlen(folder), end = strlen(name);
	char *beside = malloc(length + 1 + end + sizeof(RANDOM));
	bool ok = false;
	if (!beside)
		return false;
	memcpy(beside, folder, length);
	beside[length] = '/';
	memcpy(beside + length + 1, name, end);
	memcpy(beside + length + 1 + end, RANDOM, sizeof(RANDOM));
	int fd = mkostemp(beside, O_CLOEXEC);
	if (fd >= 0) {
		(void)flock(fd, LOCK_EX | LOCK_NB);
		ok = write_all(fd, bytes, n) && renameat(AT_FDCWD, beside, dir, name) == 0;
		close(fd);
		if (!ok)
			(void)unlink(beside);
	}
	free(beside);
	return ok;
}

void cl_cache_write(const char *folder, const struct cl_cache_key *key, const unsigned char *binary, size_t n)
{
	struct header h = {MAGIC, VERSION, key->n, n, {0}};
	char name[HEX + sizeof(ENDING)];
	if (n > FILE_MAX - sizeof(h) || key->n > FILE_MAX - sizeof(h) - n)
		return;
	size_t all = sizeof(h) + key->n + n;
	int dir = open_folder(folder);
	unsigned char *bytes = dir >= 0 ? malloc(all) : NULL;
	name_of(key, name);
	if (bytes) {
		memcpy(bytes, &h, sizeof(h));
		memcpy(bytes + sizeof(h), key->bytes, key->n);
		memcpy(bytes + sizeof(h) + key->n, binary, n);
		hash(bytes, all, h.checksum);
		memcpy(bytes, &h, sizeof(h));
		if (write_file(folder, dir, name, bytes, all))
			cl_cache_trim(dir, name, CACHE_MAX);
	}
	free(bytes);
	if (dir >= 0)
		close(dir);
}
