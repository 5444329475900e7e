/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: refuses what the system is asked for.
 *   REFUSE_ALLOCATION=N   the Nth allocation fails, with REFUSE_REST=1 all later ones too
 *   REFUSE_UNNAMED=1      there are no files without a name
 *   REFUSE_SYNC=ERRNO     fsync fails; 0: it waits for a signal
 *   REFUSE_FOLDERS=ERRNO  no folder can be read
 *   REFUSE_CALL=NAME      call REFUSE_AT (from 1) of open, openat, read, write, readdir, fstat, stat, mmap, rename or
 *                         linkat fails with REFUSE_ERRNO; with REFUSE_COUNT=1 their numbers are printed
 *   REFUSE_SHRINK=FILE    is cut to REFUSE_BYTES as soon as it was mapped; with REFUSE_READERS=1 four threads then read
 *                         its first byte at once
 *   REFUSE_PASSES=N       LLVM's passes end by signal N, or by a fatal error when N is 0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);

enum call {
	CALL_open,
	CALL_openat,
	CALL_read,
	CALL_write,
	CALL_readdir,
	CALL_fstat,
	CALL_stat,
	CALL_mmap,
	CALL_rename,
	CALL_linkat,
	N_CALLS
};

static const char *const call_names[N_CALLS] = {"open",  "openat", "read", "write",  "readdir",
                                                "fstat", "stat",   "mmap", "rename", "linkat"};
static atomic_long calls[N_CALLS];

/* Whether this call is the one that fails. */
static int fails(enum call call)
{
	const char *name = getenv("REFUSE_CALL"), *at = getenv("REFUSE_AT"), *error = getenv("REFUSE_ERRNO");
	long n = atomic_fetch_add(&calls[call], 1) + 1;
	if (!name || !at || !error || strcmp(name, call_names[call]) || n != atol(at))
		return 0;
	errno = atoi(error);
	return 1;
}

#define NEXT(pointer, name)                           \
	void *found_##name = dlsym(RTLD_NEXT, #name); \
	memcpy(&pointer, &found_##name, sizeof(pointer))

static atomic_long asked;
static long refused = -1;
static int all_later;

__attribute__((constructor)) static void begin(void)
{
	const char *n = getenv("REFUSE_ALLOCATION"), *remaining = getenv("REFUSE_REST");
	all_later = remaining != NULL;
	asked = 0;
	refused = n ? atol(n) : -1;
}

__attribute__((destructor)) static void end(void)
{
	if (getenv("REFUSE_COUNT"))
		dprintf(STDERR_FILENO, "allocations: %ld\n", (long)asked);
	for (int i = 0; getenv("REFUSE_COUNT") && i < N_CALLS; i++)
		dprintf(STDERR_FILENO, "calls of %s: %ld\n", call_names[i], (long)calls[i]);
}

static int is_refused(void)
{
	long n = atomic_fetch_add(&asked, 1);
	if (refused < 0 || (all_later ? n < refused : n != refused))
		return 0;
	errno = ENOMEM;
	return 1;
}

void *malloc(size_t n)
{
	return is_refused() ? NULL : __libc_malloc(n);
}

void *calloc(size_t count, size_t size)
{
	return is_refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *p, size_t n)
{
	return is_refused() ? NULL : __libc_realloc(p, n);
}

int open(const char *path, int flags, ...)
{
	int (*next)(const char *, int, ...);
	void *at = dlsym(RTLD_NEXT, "open");
	va_list ap;
	memcpy(&next, &at, sizeof(next));
	va_start(ap, flags);
	int mode = va_arg(ap, int);
	va_end(ap);
	if (fails(CALL_open))
		return -1;
	if ((flags & O_TMPFILE) == O_TMPFILE && getenv("REFUSE_UNNAMED")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return next(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...)
{
	int (*next)(int, const char *, int, ...);
	va_list ap;
	NEXT(next, openat);
	va_start(ap, flags);
	int mode = va_arg(ap, int);
	va_end(ap);
	return fails(CALL_openat) ? -1 : next(dir, path, flags, mode);
}

ssize_t read(int fd, void *bytes, size_t n)
{
	ssize_t (*next)(int, void *, size_t);
	NEXT(next, read);
	return fails(CALL_read) ? -1 : next(fd, bytes, n);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
	ssize_t (*next)(int, const void *, size_t);
	NEXT(next, write);
	return fd > STDERR_FILENO && fails(CALL_write) ? -1 : next(fd, bytes, n);
}

struct dirent *readdir(DIR *d)
{
	struct dirent *(*next)(DIR *);
	NEXT(next, readdir);
	return fails(CALL_readdir) ? NULL : next(d);
}

int fstat(int fd, struct stat *out)
{
	int (*next)(int, struct stat *);
	NEXT(next, fstat);
	return fails(CALL_fstat) ? -1 : next(fd, out);
}

int stat(const char *path, struct stat *out)
{
	int (*next)(const char *, struct stat *);
	NEXT(next, stat);
	return fails(CALL_stat) ? -1 : next(path, out);
}

int rename(const char *from, const char *to)
{
	int (*next)(const char *, const char *);
	NEXT(next, rename);
	return fails(CALL_rename) ? -1 : next(from, to);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	int (*next)(int, const char *, int, const char *, int);
	NEXT(next, linkat);
	return fails(CALL_linkat) ? -1 : next(from_dir, from, to_dir, to, flags);
}

#define READERS 4

static pthread_barrier_t readers;

static void *read_first(void *at)
{
	pthread_barrier_wait(&readers);
	return (void *)(size_t) * (volatile char *)at;
}

/* They end with the process, or with the first byte. */
static void read_at_once(void *at)
{
	pthread_t threads[READERS];
	pthread_barrier_init(&readers, NULL, READERS);
	for (int i = 0; i < READERS; i++)
		if (pthread_create(&threads[i], NULL, read_first, at))
			abort();
	for (int i = 0; i < READERS; i++)
		pthread_join(threads[i], NULL);
}

static int is_shrinking(int fd, const char *path)
{
	struct stat a, b;
	int (*of_fd)(int, struct stat *), (*of_path)(const char *, struct stat *);
	NEXT(of_fd, fstat);
	NEXT(of_path, stat);
	return path && fd >= 0 && !of_fd(fd, &a) && !of_path(path, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	void *(*next)(void *, size_t, int, int, int, off_t);
	const char *path = getenv("REFUSE_SHRINK"), *bytes = getenv("REFUSE_BYTES");
	NEXT(next, mmap);
	if (fails(CALL_mmap))
		return MAP_FAILED;
	void *p = next(at, n, protection, flags, fd, offset);
	if (p != MAP_FAILED && is_shrinking(fd, path) && truncate(path, atol(bytes)))
		abort();
	if (p != MAP_FAILED && getenv("REFUSE_READERS") && is_shrinking(fd, path))
		read_at_once(p);
	return p;
}

DIR *opendir(const char *path)
{
	DIR *(*next)(const char *);
	const char *error = getenv("REFUSE_FOLDERS");
	void *at = dlsym(RTLD_NEXT, "opendir");
	memcpy(&next, &at, sizeof(next));
	if (error)
		errno = atoi(error);
	return error ? NULL : next(path);
}

int fsync(int fd)
{
	const char *error = getenv("REFUSE_SYNC");
	(void)fd;
	while (error && !atoi(error))
		pause();
	errno = error ? atoi(error) : 0;
	return error ? -1 : 0;
}

/* The functions of LLVM that come into question, without its headers. */
void *LLVMRunPasses(void *module, const char *passes, void *machine, void *options)
{
	void *(*next)(void *, const char *, void *, void *);
	const char *how = getenv("REFUSE_PASSES");
	void *at = dlsym(RTLD_NEXT, "LLVMRunPasses");
	memcpy(&next, &at, sizeof(next));
	if (how && atoi(how))
		raise(atoi(how));
	if (how) {
		void (*fatal)(const char *, int);
		at = dlsym(RTLD_NEXT, "_ZN4llvm18report_fatal_errorEPKcb");
		memcpy(&fatal, &at, sizeof(fatal));
		fatal("a test", 1);
	}
	return next(module, passes, machine, options);
}
