/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal of the least recently used files of a cache directory.
 */
#define _GNU_SOURCE /* st_atim, flock */
#include "runtime/opencl/lru.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct cached_file {
	char name[NAME_MAX + 1];
	enum cl_lru_kind kind;
	struct timespec last_use;
	uint64_t bytes; /* on disk */
};

static int compare_last_use(const void *a, const void *b)
{
	const struct timespec *x = &((const struct cached_file *)a)->last_use,
	                      *y = &((const struct cached_file *)b)->last_use;
	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec ? -1 : 1;
	return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* Removes the user's regular file unless its writer still holds the lock. O_NONBLOCK: does not wait at a FIFO. */
static void remove_abandoned(int dir, const char *name)
{
	struct stat st;
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return;
	bool is_own = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
	if (is_own && flock(fd, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(dir, name, 0);
	close(fd);
}

/* Lists the files of the cache (the caller frees them), and removes abandoned ones. NULL: none, or no memory; with too
 * little memory the list is shorter, and less is removed. Sizes are those on disk (blocks of 512 bytes). */
static struct cached_file *list_files(DIR *d, cl_lru_classify *classify, size_t *n)
{
	struct cached_file *files = NULL;
	size_t cap = 0;
	*n = 0;
	for (const struct dirent *e; (e = readdir(d)) != NULL;) {
		struct stat st;
		enum cl_lru_kind kind = classify(e->d_name);
		if (kind == CL_LRU_TEMPORARY)
			remove_abandoned(dirfd(d), e->d_name);
		if (kind == CL_LRU_FOREIGN || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (*n == cap) {
			cap = cap ? 2 * cap : 64;
			struct cached_file *more = realloc(files, cap * sizeof(*files));
			if (!more)
				break;
			files = more;
		}
		struct cached_file *f = &files[(*n)++];
		*f = (struct cached_file){
		        .kind = kind, .last_use = st.st_atim, .bytes = (uint64_t)st.st_blocks * 512};
		memcpy(f->name, e->d_name, strlen(e->d_name) + 1);
	}
	return files;
}

/* Oldest first until the limit is met. Only complete files are removed, never `except`, which was just written;
 * temporary ones count where count_temporary is set, since they will be complete soon. The directory is opened again:
 * readdir moves the offset of its descriptor. */
void cl_lru_trim(int dir, const char *except, uint64_t limit, bool count_temporary, cl_lru_classify *classify)
{
	size_t n;
	uint64_t bytes = 0;
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		if (fd >= 0)
			close(fd);
		return;
	}
	struct cached_file *files = list_files(d, classify, &n);
	if (files)
		qsort(files, n, sizeof(*files), compare_last_use);
	for (size_t i = 0; i < n; i++)
		bytes += count_temporary || files[i].kind == CL_LRU_COMPLETE ? files[i].bytes : 0;
	for (size_t i = 0; i < n && bytes > limit; i++)
		if (files[i].kind == CL_LRU_COMPLETE && strcmp(files[i].name, except) != 0 &&
		    unlinkat(dir, files[i].name, 0) == 0)
			bytes -= files[i].bytes;
	free(files);
	closedir(d);
}
