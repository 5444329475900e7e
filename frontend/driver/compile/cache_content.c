/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes that names in the cache are made of: content of input files, which is cached while they are unchanged, and
 * the identity of the program.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "frontend/driver/compile/cache.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/support/memory.h"
#include "runtime/tfmc_rt.h"

#define LARGE (1 << 20) /* bytes; smaller files are hashed each time */

/* ---- files ---- */

/* Device numbers, and data that is not on the disk yet, are valid until the machine restarts. */
static void hash_boot_id(struct blake2b *b)
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
	if (fd >= 0)
		close(fd);
	blake2b_item(b, text, n > 0 ? (size_t)n : 0);
}

/* The name under which facts about a file are cached. with_changes: includes the change time (ctime). */
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

static bool read_fully(int fd, unsigned char *to, size_t n, uint64_t at)
{
	while (n > 0) {
		ssize_t done = pread(fd, to, n, (off_t)at);
		if (done == 0 || (done < 0 && errno != EINTR))
			return false;
		size_t some = done > 0 ? (size_t)done : 0;
		to += some;
		at += some;
		n -= some;
	}
	return true;
}

static bool hash_one_group(struct hash_tree *t, uint64_t group, unsigned char *bytes)
{
	unsigned char chunks[BLAKE2B_LANES][BLAKE2B_BYTES];
	struct blake2b b;
	if (!read_fully(t->fd, bytes, GROUP, group * GROUP))
		return false;
	blake2b_chunks(bytes, CHUNK, chunks);
	blake2b_begin(&b);
	blake2b_add(&b, chunks, sizeof(chunks));
	blake2b_end(&b, t->hashes[group]);
	return true;
}

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

static bool hash_tail(struct blake2b *b, int fd, uint64_t at, uint64_t size)
{
	unsigned char block[65536];
	while (at < size) {
		size_t n = size - at < sizeof(block) ? (size_t)(size - at) : sizeof(block);
		if (!read_fully(fd, block, n, at))
			return false;
		blake2b_add(b, block, n);
		at += n;
	}
	return true;
}

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
		(void)tfmc_pool_create_spinning(c->workers, 0, &pool);
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

/* The GNU build id, a hash of all linked bytes. False: the notes have none. */
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

/* A callback of dl_iterate_phdr. Without a build id the file's identity counts (device, inode, size, times). */
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
