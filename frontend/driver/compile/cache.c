/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the cache: checked small ones, large ones that are mapped, and which
 * of them are removed.
 */
#define _GNU_SOURCE /* mkostemp */
#include "frontend/driver/compile/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY_MAX (256u << 20) /* bytes of a file that is read */
#define TEMPORARY "new-"       /* what files are called until they are complete */

/* ---- the directory ---- */

/* Each directory of the path, as mkdir -p. */
static bool make_path(char *path)
{
	for (char *s = path + 1; *s; s++) {
		if (*s != '/')
			continue;
		*s = 0;
		bool ok = !mkdir(path, 0700) || errno == EEXIST;
		*s = '/';
		if (!ok)
			return false;
	}
	return !mkdir(path, 0700) || errno == EEXIST;
}

/* Code of this directory is run: nobody else may write there. */
static const char *fault_of(const char *path)
{
	struct stat st;
	if (stat(path, &st))
		return strerror(errno);
	if (!S_ISDIR(st.st_mode))
		return "it is not a directory";
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return "others may write there";
	return access(path, R_OK | W_OK | X_OK) ? strerror(errno) : NULL;
}

void cache_begin(struct cache *c)
{
	*c = (struct cache){.why = "it was not opened"};
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &c->start);
}

void cache_open(struct cache *c, struct arena *a, uint64_t limit)
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	c->limit = limit;
	c->why = "neither XDG_CACHE_HOME nor HOME is set";
	if (base && *base == '/')
		base = arena_printf(a, "%s/tfmc", base);
	else if (home && *home == '/')
		base = arena_printf(a, "%s/.cache/tfmc", home);
	else
		return;
	char *path = (char *)(uintptr_t)arena_strdup(a, base);
	c->why = "out of memory";
	if (arena_failed(a))
		return;
	const char *fault = make_path(path) ? fault_of(path) : strerror(errno);
	c->why = fault ? arena_printf(a, "%s: %s", path, fault) : NULL;
	c->dir = fault ? NULL : path;
}

const char *cache_entry(struct arena *a, const char *kind, const struct cache_key *key)
{
	static const char digits[] = "0123456789abcdef";
	char hex[2 * BLAKE2B_BYTES + 1] = {0};
	for (int i = 0; i < BLAKE2B_BYTES; i++) {
		hex[2 * i] = digits[key->bytes[i] >> 4];
		hex[2 * i + 1] = digits[key->bytes[i] & 15];
	}
	return arena_printf(a, "%s-%s", kind, hex);
}

const char *cache_path(const struct cache *c, struct arena *a, const char *name)
{
	return arena_printf(a, "%s/%s", c->dir, name);
}

/* The file's times stay what they are: they tell whether it is the one that was checked. */
void cache_touch(const char *path)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	(void)utimensat(AT_FDCWD, path, times, 0);
}

/* ---- files that are written ---- */

/* Its lock tells others that somebody still writes it. */
struct cache_file cache_create(struct cache *c, struct arena *a)
{
	struct cache_file f = {.fd = -1};
	if (!c->dir)
		return f;
	f.path = (char *)(uintptr_t)cache_path(c, a, TEMPORARY "XXXXXX");
	f.fd = f.path ? mkostemp(f.path, O_CLOEXEC) : -1;
	if (f.fd >= 0 && flock(f.fd, LOCK_EX | LOCK_NB))
		cache_drop(&f);
	return f;
}

void cache_drop(struct cache_file *f)
{
	if (f->fd < 0)
		return;
	unlink(f->path);
	close(f->fd);
	f->fd = -1;
}

struct old_file {
	char name[NAME_MAX + 1];
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

/* A file whose writer is gone. */
static void remove_left(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	if (!flock(fd, LOCK_EX | LOCK_NB))
		(void)unlinkat(dir, name, 0);
	close(fd);
}

static bool list(DIR *d, struct arena *a, struct old_file **out, size_t *n)
{
	struct {
		struct old_file *items;
		size_t n, cap;
	} all = {0};
	for (const struct dirent *e; (e = readdir(d));) {
		struct stat st;
		if (!strncmp(e->d_name, TEMPORARY, strlen(TEMPORARY)))
			remove_left(dirfd(d), e->d_name);
		if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
			continue;
		struct old_file *f = ARENA_PUSH(a, &all);
		if (!f)
			return false;
		*f = (struct old_file){.used = st.st_atim, .bytes = (uint64_t)st.st_blocks * 512};
		memcpy(f->name, e->d_name, strlen(e->d_name) + 1);
	}
	*out = all.items;
	*n = all.n;
	return true;
}

/* Down to the limit, those that were not used for longest first; never the one that was just made. */
static void remove_old(const struct cache *c, const char *kept)
{
	struct arena a;
	struct old_file *files = NULL;
	size_t n = 0;
	uint64_t bytes = 0;
	DIR *d = opendir(c->dir);
	if (!d)
		return;
	arena_init(&a);
	if (!list(d, &a, &files, &n))
		n = 0;
	if (n > 0)
		qsort(files, n, sizeof(*files), by_use);
	for (size_t i = 0; i < n; i++)
		bytes += files[i].bytes;
	for (size_t i = 0; i < n && bytes > c->limit; i++) {
		if (!strcmp(files[i].name, kept) || !strncmp(files[i].name, TEMPORARY, strlen(TEMPORARY)))
			continue;
		if (!unlinkat(dirfd(d), files[i].name, 0))
			bytes -= files[i].bytes;
	}
	arena_destroy(&a);
	closedir(d);
}

bool cache_keep(struct cache *c, struct cache_file *f, const char *name)
{
	struct arena a;
	struct stat st;
	if (f->fd < 0)
		return false;
	arena_init(&a);
	bool ok = !fstat(f->fd, &st) && (uint64_t)st.st_size <= c->limit &&
	          !rename(f->path, cache_path(c, &a, name));
	if (ok)
		close(f->fd);
	else
		cache_drop(f);
	f->fd = -1;
	if (ok)
		remove_old(c, name);
	arena_destroy(&a);
	return ok;
}

/* ---- small files ---- */

/* Before the bytes: their hash together with the name. */
static void check_of(const char *name, const void *bytes, size_t n, unsigned char out[BLAKE2B_BYTES])
{
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_text(&b, name);
	blake2b_item(&b, bytes, n);
	blake2b_end(&b, out);
}

static bool read_file(const char *path, struct buf *out)
{
	char block[65536];
	FILE *f = fopen(path, "rbe");
	if (!f)
		return false;
	for (size_t n; (n = fread(block, 1, sizeof(block), f)) > 0 && out->len < ENTRY_MAX;)
		buf_bytes(out, block, n);
	bool ok = !ferror(f) && out->len < ENTRY_MAX && !buf_failed(out);
	fclose(f);
	return ok;
}

bool cache_read(struct cache *c, const char *name, struct buf *out)
{
	struct arena a;
	unsigned char check[BLAKE2B_BYTES];
	if (!c->dir)
		return false;
	arena_init(&a);
	const char *path = cache_path(c, &a, name);
	bool ok = read_file(path, out) && out->len >= sizeof(check);
	if (ok) {
		check_of(name, out->data + sizeof(check), out->len - sizeof(check), check);
		ok = !memcmp(check, out->data, sizeof(check));
	}
	if (ok) {
		memmove(out->data, out->data + sizeof(check), out->len - sizeof(check));
		out->len -= sizeof(check);
		cache_touch(path);
	} else {
		buf_clear(out);
	}
	arena_destroy(&a);
	return ok;
}

static bool write_all(int fd, const void *bytes, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t done = write(fd, (const char *)bytes + at, n - at);
		if (done < 0 && errno != EINTR)
			return false;
		at += done > 0 ? (size_t)done : 0;
	}
	return true;
}

bool cache_write(struct cache *c, const char *name, const void *bytes, size_t n)
{
	struct arena a;
	unsigned char check[BLAKE2B_BYTES];
	arena_init(&a);
	struct cache_file f = cache_create(c, &a);
	check_of(name, bytes, n, check);
	bool ok = f.fd >= 0 && n < ENTRY_MAX && write_all(f.fd, check, sizeof(check)) &&
	          write_all(f.fd, bytes, n) && cache_keep(c, &f, name);
	cache_drop(&f);
	arena_destroy(&a);
	return ok;
}
