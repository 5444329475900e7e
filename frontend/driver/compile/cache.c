/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the cache: small ones with a hash, large ones that are mapped, and removal of the least recently used. And
 * the hashes that their names are made of: content of input files, which is cached while they are unchanged, and the
 * identity of the program.
 * A file of kind CACHE_SEEN notes a fact about another file: the hash of its content, or that it was verified.
 * Where the cache is not used, c->dir is NULL and c->why the reason; every failure counts as a miss.
 */
#define _GNU_SOURCE /* O_TMPFILE, dl_iterate_phdr */

#include "frontend/driver/compile/cache.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/syntax/files.h"
#include "ir/support/memory.h"
#include "runtime/opencl/lru.h"
#include "runtime/tfmc_rt.h"

#define HEX        ((size_t)2 * BLAKE2B_BYTES)
#define TEMPORARY  "new-"   /* + hex: a file until it is complete */
#define BINARY     ".clbin" /* after hex: a program of libtfmccl, which writes these itself */
#define BINARY_END 7        /* '.' and six characters after it: an incomplete one */

/* The Cache Directory Tagging Specification: backup programs skip directories with this file. Its text marks the
 * directory as this cache. */
#define TAG "CACHEDIR.TAG"
static const char tag[] =
        "Signature: 8a477f597d28d172789f06886806bc55\n"
        "# Cache of tfmc: files named KIND-HASH and HASH.clbin are removed when it is full.\n";

static const char *const kinds[] = {[CACHE_CODE] = "code-",
                                    [CACHE_WEIGHTS] = "weights-",
                                    [CACHE_PACKED] = "packed-",
                                    [CACHE_SEEN] = "seen-"};

/* ---- names ---- */

/* Whether a string begins with as many hex digits as a hash has. */
static bool is_hex(const char *s)
{
	return strspn(s, "0123456789abcdef") >= HEX;
}

/* Classifies a name in the directory (cl_lru_trim removes complete and temporary ones). The full name counts:
 * `new-features.md` is not a file of the cache. */
static enum cl_lru_kind classify_name(const char *name)
{
	if (is_hex(name) && !strncmp(name + HEX, BINARY, strlen(BINARY))) {
		const char *end = name + HEX + strlen(BINARY);
		bool is_incomplete = *end == '.' && strlen(end) == BINARY_END;
		return !*end ? CL_LRU_COMPLETE : is_incomplete ? CL_LRU_TEMPORARY : CL_LRU_FOREIGN;
	}
	const char *dash = strchr(name, '-');
	if (!dash || strlen(dash + 1) != HEX || !is_hex(dash + 1))
		return CL_LRU_FOREIGN;
	size_t n = (size_t)(dash - name) + 1;
	if (n == strlen(TEMPORARY) && !memcmp(name, TEMPORARY, n))
		return CL_LRU_TEMPORARY;
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++)
		if (n == strlen(kinds[i]) && !memcmp(name, kinds[i], n))
			return CL_LRU_COMPLETE;
	return CL_LRU_FOREIGN;
}

/* prefix and the hash as hex digits, in the arena. */
static const char *hex_name(struct arena *a, const char *prefix, const unsigned char bytes[BLAKE2B_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	char hex[HEX + 1] = {0};
	for (int i = 0; i < BLAKE2B_BYTES; i++) {
		hex[2 * i] = digits[bytes[i] >> 4];
		hex[2 * i + 1] = digits[bytes[i] & 15];
	}
	return arena_printf(a, "%s%s", prefix, hex);
}

const char *cache_entry_name(struct arena *a, enum cache_kind kind, const struct cache_key *key)
{
	return hex_name(a, kinds[kind], key->bytes);
}

const char *cache_path(const struct cache *c, struct arena *a, const char *name)
{
	return arena_printf(a, "%s/%s", c->dir, name);
}

/* ---- the directory ---- */

/* Creates each directory of the path, as mkdir -p. False, with errno set, if one cannot be created. */
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

/* Opens a regular file for reading, never through a symbolic link, and never waits for a pipe. -1: it cannot. */
static int open_regular(int dir, const char *name)
{
	struct stat st;
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Whether the directory has the tag file with exactly this text: that of another program marks a directory of its
 * own. */
static bool has_tag(int dir)
{
	char text[sizeof(tag)];
	int fd = open_regular(dir, TAG);
	bool ok = fd >= 0 && read(fd, text, sizeof(text)) == (ssize_t)strlen(tag) &&
	          !memcmp(text, tag, strlen(tag));
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Writes the tag as an unnamed file that is linked when complete (O_TMPFILE), so that no process sees a part of it;
 * without O_TMPFILE, under its name. False: it is not written. */
static bool write_tag(int dir)
{
	char path[64];
	int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	bool ok = fd >= 0 && file_write_at(fd, tag, strlen(tag), 0) &&
	          !linkat(AT_FDCWD, path, dir, TAG, AT_SYMLINK_FOLLOW);
	if (fd >= 0)
		close(fd);
	if (ok)
		return true;
	fd = openat(dir, TAG, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ok = fd >= 0 && file_write_at(fd, tag, strlen(tag), 0);
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && !ok)
		(void)unlinkat(dir, TAG, 0);
	return ok;
}

/* True if the directory is empty, or (from before there were tags) has only files with names of the cache, and the
 * hash of one of them is right. */
static bool may_tag(struct cache *c)
{
	bool is_own = true, is_empty = true, is_proved = false;
	int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return false;
	errno = 0;
	for (const struct dirent *e; is_own && (e = readdir(d)); errno = 0) {
		struct buf text;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		is_empty = false;
		is_own = classify_name(e->d_name) == CL_LRU_COMPLETE;
		buf_init(&text);
		is_proved = is_proved || (is_own && cache_read(c, e->d_name, &text));
		buf_destroy(&text);
	}
	bool is_read = errno == 0; /* else some files were not seen, which may be anybody's */
	closedir(d);
	return is_read && (is_empty || (is_own && is_proved));
}

/* Checks owner and tag of the directory: its code is executed, so no other user may write there; its files are removed,
 * so all must be the cache's. NULL: it may be used; else the reason why not. */
static const char *check_directory(struct cache *c)
{
	struct stat st;
	if (fstat(c->fd, &st))
		return strerror(errno);
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return "others may write there";
	if (faccessat(c->fd, ".", R_OK | W_OK | X_OK, 0))
		return strerror(errno);
	/* The last has_tag: another process wrote it meanwhile, so that write_tag failed. */
	if (has_tag(c->fd) || (may_tag(c) && write_tag(c->fd)) || has_tag(c->fd))
		return NULL;
	return "files are there, and no " TAG " that says they are tfmc's";
}

/* Opens the directory of the cache. NULL: c->dir and c->fd are set; else the reason why it is not used. */
static const char *open_directory(struct cache *c, char *path)
{
	struct stat st;
	if (!make_path(path) || lstat(path, &st))
		return strerror(errno);
	if (S_ISLNK(st.st_mode)) /* it may lead to files of anybody */
		return "it is a symbolic link";
	c->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (c->fd < 0)
		return strerror(errno);
	c->dir = path;
	const char *reason = check_directory(c);
	if (reason)
		cache_close(c);
	return reason;
}

void cache_begin(struct cache *c)
{
	*c = (struct cache){.why = "it was not opened"};
	(void)clock_gettime(CLOCK_REALTIME_COARSE, &c->start);
}

/* c->why is the reason where c->dir stays NULL. As the XDG specification demands, relative paths count as not set. */
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
	const char *reason = open_directory(c, path);
	c->why = reason ? arena_printf(a, "%s: %s", path, reason) : NULL;
}

void cache_close(struct cache *c)
{
	if (c->dir)
		close(c->fd);
	c->dir = NULL;
}

/* The modification time stays: cache_is_verified depends on it. */
void cache_touch(const struct cache *c, const char *name)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	(void)utimensat(c->fd, name, times, AT_SYMLINK_NOFOLLOW);
}

bool cache_stat(const struct cache *c, const char *name, struct stat *out)
{
	return c->dir && name && !fstatat(c->fd, name, out, AT_SYMLINK_NOFOLLOW) && S_ISREG(out->st_mode);
}

/* ---- files that are written ---- */

/* The lock tells other processes that the file has a writer, so that they do not remove it as abandoned. */
struct cache_file cache_create(struct cache *c, struct arena *a)
{
	struct cache_file f = {.fd = -1, .dir = c->fd};
	unsigned char random[BLAKE2B_BYTES];
	if (!c->dir || getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return f;
	f.name = hex_name(a, TEMPORARY, random);
	f.fd = f.name ? openat(f.dir, f.name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
	if (f.fd >= 0 && flock(f.fd, LOCK_EX | LOCK_NB))
		cache_discard(&f);
	return f;
}

void cache_discard(struct cache_file *f)
{
	if (f->fd < 0)
		return;
	if (f->name)
		(void)unlinkat(f->dir, f->name, 0);
	close(f->fd);
	f->fd = -1;
}

/* A file larger than the limit is dropped: trimming would remove all others for it, and the cache would still be too
 * large. The new file is not trimmed. */
bool cache_commit(struct cache *c, struct cache_file *f, const char *name)
{
	struct stat st;
	if (f->fd < 0)
		return false;
	bool ok = !fstat(f->fd, &st) && (uint64_t)st.st_size <= c->limit &&
	          !renameat(f->dir, f->name, c->fd, name);
	if (ok)
		close(f->fd);
	else
		cache_discard(f);
	f->fd = -1;
	if (ok)
		cl_lru_trim(c->fd, name, c->limit, true, classify_name);
	return ok;
}

/* ---- small files ---- */

/* Hashes name and content of a small file. The hash is stored before the content, so that a damaged or renamed file is
 * not used. */
static void hash_entry(const char *name, const void *bytes, size_t n, unsigned char out[BLAKE2B_BYTES])
{
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_string(&b, name);
	blake2b_item(&b, bytes, n);
	blake2b_end(&b, out);
}

/* Appends a file, whose content after the hash is less than CACHE_ENTRY_MAX bytes. False: it is absent, larger, or
 * cannot be read. */
static bool read_file(const struct cache *c, const char *name, struct buf *out)
{
	char block[65536];
	ssize_t n = 1;
	int fd = open_regular(c->fd, name);
	if (fd < 0)
		return false;
	while (n != 0 && out->len < CACHE_ENTRY_MAX + BLAKE2B_BYTES) {
		n = read(fd, block, sizeof(block));
		if (n < 0 && errno != EINTR)
			break;
		buf_bytes(out, block, n > 0 ? (size_t)n : 0);
	}
	close(fd);
	return n == 0 && !buf_failed(out);
}

/* The stored hash is the first bytes of the file and is removed again, so *out has to be empty. */
bool cache_read(struct cache *c, const char *name, struct buf *out)
{
	unsigned char check[BLAKE2B_BYTES];
	if (!c->dir)
		return false;
	bool ok = read_file(c, name, out) && out->len >= sizeof(check);
	if (ok) {
		hash_entry(name, out->data + sizeof(check), out->len - sizeof(check), check);
		ok = !memcmp(check, out->data, sizeof(check));
	}
	if (ok) {
		memmove(out->data, out->data + sizeof(check), out->len - sizeof(check));
		out->len -= sizeof(check);
		cache_touch(c, name);
	} else {
		buf_clear(out);
	}
	return ok;
}

/* cache_discard() has no effect after the commit. */
bool cache_write(struct cache *c, const char *name, const void *bytes, size_t n)
{
	struct arena a;
	unsigned char check[BLAKE2B_BYTES];
	if (n >= CACHE_ENTRY_MAX)
		return false;
	arena_init(&a);
	struct cache_file f = cache_create(c, &a);
	hash_entry(name, bytes, n, check);
	bool ok = f.fd >= 0 && file_write_at(f.fd, check, sizeof(check), 0) &&
	          file_write_at(f.fd, bytes, n, sizeof(check)) && cache_commit(c, &f, name);
	cache_discard(&f);
	arena_destroy(&a);
	return ok;
}

#define LARGE (1 << 20) /* bytes; smaller files are hashed each time */

/* ---- content of files ---- */

/* Adds the id of the running boot: device numbers, and data that is not on the disk yet, are valid until the
 * machine restarts. */
static void hash_boot_id(struct blake2b *b)
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (fd >= 0)
		close(fd);
	blake2b_item(b, text, n > 0 ? (size_t)n : 0);
}

/* The name under which facts about a file's content are cached; it changes with whatever tells that the content may
 * have changed. with_changes: includes the change time (ctime), which a writer cannot set back. */
static const char *seen_name(struct arena *a, const struct stat *st, bool with_changes)
{
	struct cache_key key;
	struct blake2b b;
	blake2b_begin(&b);
	hash_boot_id(&b);
	blake2b_i64(&b, (int64_t)st->st_dev);
	blake2b_i64(&b, (int64_t)st->st_ino);
	blake2b_i64(&b, (int64_t)st->st_size);
	blake2b_i64(&b, (int64_t)st->st_mtim.tv_sec);
	blake2b_i64(&b, (int64_t)st->st_mtim.tv_nsec);
	blake2b_i64(&b, with_changes ? (int64_t)st->st_ctim.tv_sec : -1);
	blake2b_i64(&b, with_changes ? (int64_t)st->st_ctim.tv_nsec : -1);
	blake2b_end(&b, key.bytes);
	return cache_entry_name(a, CACHE_SEEN, &key);
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/*
 * Tree hash. A group is BLAKE2B_LANES chunks, which vector lanes hash in parallel; workers share the groups. The root
 * hashes the size, the hashes of all groups, and the remainder after the last group. So all processors read and hash a
 * file at the same time.
 */
#define CHUNK ((size_t)128 << 10)
#define GROUP (BLAKE2B_LANES * CHUNK)

struct hash_tree {
	const struct cache *cache;
	int fd;
	uint64_t size;
	unsigned char (*hashes)[BLAKE2B_BYTES]; /* [groups] */
	_Atomic bool has_failed;
};

/* Hashes group number `group` of the file into t->hashes; bytes: room for it. False: it cannot be read. */
static bool hash_one_group(struct hash_tree *t, uint64_t group, unsigned char *bytes)
{
	unsigned char chunks[BLAKE2B_LANES][BLAKE2B_BYTES];
	struct blake2b b;
	if (file_read_at(t->fd, bytes, GROUP, group * GROUP) != GROUP)
		return false;
	blake2b_chunks(bytes, CHUNK, chunks);
	blake2b_begin(&b);
	blake2b_add(&b, chunks, sizeof(chunks));
	blake2b_end(&b, t->hashes[group]);
	return true;
}

/* tfmc_task_fn: hashes every n_workers-th group. A failure of one worker ends all. */
static void hash_groups(void *user, int64_t worker, int64_t n_workers)
{
	struct hash_tree *t = user;
	unsigned char *bytes = memory_alloc(GROUP);
	t->has_failed |= bytes == NULL;
	for (uint64_t i = (uint64_t)worker; i < t->size / GROUP && !t->has_failed; i += (uint64_t)n_workers) {
		if (!hash_one_group(t, i, bytes))
			t->has_failed = true;
		if (worker == 0)
			progress_report(t->cache->progress, "checking content", NULL, i * GROUP, t->size);
	}
	memory_free(bytes);
}

/* Adds the bytes after the last full group. False: they cannot be read. */
static bool hash_tail(struct blake2b *b, int fd, uint64_t at, uint64_t size)
{
	unsigned char block[65536];
	while (at < size) {
		size_t n = size - at < sizeof(block) ? (size_t)(size - at) : sizeof(block);
		if (file_read_at(fd, block, n, at) != n)
			return false;
		blake2b_add(b, block, n);
		at += n;
	}
	return true;
}

/* Computes the tree hash of a file of `size` bytes. False: it cannot be read to that size, or no memory. */
static bool hash_file(const struct cache *c, int fd, uint64_t size, struct cache_key *out)
{
	const uint64_t groups = size / GROUP;
	struct hash_tree t = {.cache = c, .fd = fd, .size = size};
	struct tfmc_pool *pool = NULL; /* NULL, where there are no threads: the caller alone */
	struct blake2b b;
	t.hashes = memory_alloc((size_t)groups * sizeof(*t.hashes) + 1);
	if (t.hashes == NULL)
		return false;
	if (groups > 1 && c->workers > 1)
		(void)tfmc_pool_create_spinning(c->workers, 0, &pool); /* 0: waiting workers block at once */
	tfmc_pool_run(pool, hash_groups, &t);
	tfmc_pool_destroy(pool);
	blake2b_begin(&b);
	blake2b_i64(&b, (int64_t)size);
	blake2b_add(&b, t.hashes, (size_t)groups * sizeof(*t.hashes));
	bool ok = !t.has_failed && hash_tail(&b, fd, groups * GROUP, size);
	blake2b_end(&b, out->bytes);
	memory_free(t.hashes);
	return ok;
}

/* Reads a hash that was cached under `name`. False: there is none. */
static bool read_seen(struct cache *c, const char *name, struct cache_key *out)
{
	struct buf text;
	buf_init(&text);
	bool ok = cache_read(c, name, &text) && text.len == sizeof(out->bytes);
	if (ok)
		memcpy(out->bytes, text.data, sizeof(out->bytes));
	buf_destroy(&text);
	return ok;
}

bool cache_is_directory(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

bool cache_is_unchanged(const struct cache *c, const char *path)
{
	struct stat st;
	return !stat(path, &st) && is_before(&st.st_ctim, &c->start);
}

/* Computes the key of an open file, or reads that of a large one from the cache. False: not a regular file, or
 * changed since cache_begin, so that it may have had other content when it was read. */
static bool hash_content(struct cache *c, int fd, struct cache_key *out)
{
	struct stat st;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !is_before(&st.st_ctim, &c->start))
		return false;
	if (st.st_size < LARGE)
		return hash_file(c, fd, (uint64_t)st.st_size, out);
	struct arena a;
	arena_init(&a);
	const char *name = seen_name(&a, &st, true);
	bool ok = read_seen(c, name, out);
	if (!ok) {
		ok = hash_file(c, fd, (uint64_t)st.st_size, out);
		if (ok)
			(void)cache_write(c, name, out->bytes, sizeof(out->bytes));
	}
	arena_destroy(&a);
	return ok;
}

/* O_NONBLOCK: a FIFO is opened without waiting, and rejected by hash_content(). */
bool cache_content_key(struct cache *c, const char *path, struct cache_key *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return false;
	bool ok = hash_content(c, fd, out);
	close(fd);
	return ok;
}

/* Without the change time: cache_touch changes it. */
bool cache_is_verified(struct cache *c, const char *name)
{
	struct stat st;
	struct cache_key key;
	struct arena a;
	if (!cache_stat(c, name, &st) || st.st_size < LARGE)
		return false;
	arena_init(&a);
	bool ok = read_seen(c, seen_name(&a, &st, false), &key);
	arena_destroy(&a);
	return ok;
}

/* Notes that the content of a large file was verified. The mark is an entry under the identity of the file; its
 * content, zeros, has no meaning. Small files have none: they are verified each time. */
void cache_mark_verified(struct cache *c, const char *name)
{
	struct stat st;
	static const struct cache_key none;
	struct arena a;
	if (!cache_stat(c, name, &st) || st.st_size < LARGE)
		return;
	arena_init(&a);
	(void)cache_write(c, seen_name(&a, &st, false), none.bytes, sizeof(none.bytes));
	arena_destroy(&a);
}

/* ---- the program ---- */

/* Adds the GNU build id, a hash of all linked bytes, from n bytes of notes. False: there is none. */
static bool hash_build_id(struct blake2b *b, const char *p, size_t n)
{
	bool found = false;
	ElfW(Nhdr) h;
	for (size_t at = 0; at + sizeof(h) <= n;) {
		memcpy(&h, p + at, sizeof(h));
		size_t name = (h.n_namesz + 3u) & ~3u, bytes = (h.n_descsz + 3u) & ~3u;
		at += sizeof(h);
		if (name > n - at || bytes > n - at - name)
			break;
		if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(p + at, "GNU", 4)) {
			blake2b_item(b, p + at + name, h.n_descsz);
			found = true;
		}
		at += name + bytes;
	}
	return found;
}

/* Callback of dl_iterate_phdr: adds the build id of the program or of one library; without one the identity of its
 * file (device, inode, size, times). */
static int hash_program(struct dl_phdr_info *info, size_t size, void *user)
{
	struct blake2b *b = user;
	struct stat st;
	bool found = false;
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_NOTE)
			found |= hash_build_id(b, (const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
	}
	if (!found && !stat(*info->dlpi_name ? info->dlpi_name : "/proc/self/exe", &st)) {
		struct arena a;
		arena_init(&a);
		blake2b_string(b, seen_name(&a, &st, true));
		arena_destroy(&a);
	}
	return 0;
}

void cache_hash_build(struct blake2b *b)
{
	(void)dl_iterate_phdr(hash_program, b);
}
