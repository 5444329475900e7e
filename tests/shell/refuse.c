/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the command: refuses what the system is asked for.
 *   REFUSE_ALLOCATION=N   the Nth allocation fails, with REFUSE_REST=1 all later ones too
 *   REFUSE_UNNAMED=1      there are no files without a name
 *   REFUSE_SYNC=ERRNO     fsync fails; 0: it waits for a signal
 *   REFUSE_FOLDERS=ERRNO  no folder can be read
 *   REFUSE_PASSES=N       LLVM's passes end by signal N, or by a fatal error when N is 0
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);

static atomic_long asked;
static long refused = -1;
static int all_later;

__attribute__((constructor)) static void begin(void)
{
	const char *n = getenv("REFUSE_ALLOCATION"), *rest = getenv("REFUSE_REST");
	all_later = rest != NULL;
	asked = 0;
	refused = n ? atol(n) : -1;
}

__attribute__((destructor)) static void end(void)
{
	if (getenv("REFUSE_COUNT"))
		dprintf(STDERR_FILENO, "allocations: %ld\n", (long)asked);
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
	if ((flags & O_TMPFILE) == O_TMPFILE && getenv("REFUSE_UNNAMED")) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return next(path, flags, mode);
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
