/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, reading and mapping files named by a model. Names are checked before they are joined to a directory;
 * only regular files are opened, and open() never blocks.
 */
#define _DEFAULT_SOURCE /* madvise */

#include "frontend/syntax/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char empty_file[1] = {0};

bool file_ends_with(const char *path, const char *ending)
{
	size_t n = strlen(path), k = strlen(ending);
	return n >= k && strcmp(path + n - k, ending) == 0;
}

const char *file_dir(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	if (slash == NULL)
		return "";
	return slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
}

const char *file_join(struct arena *a, const char *dir, const char *name)
{
	size_t n = strlen(dir);
	if (n == 0 || name[0] == '/')
		return name;
	return arena_printf(a, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
}

/* Returns why a name may leave the directory (or names nothing in it); NULL: it is a relative path without '.',
 * '..' and empty components. Symbolic links inside are followed. */
static const char *path_fault(const char *name)
{
	if (name[0] == '\0')
		return "is empty";
	if (name[0] == '/')
		return "is absolute; names are relative to the directory of the file that contains them";
	for (const char *p = name; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		size_t n = strcspn(p, "/");
		if (n == 0)
			return "has an empty part";
		if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return "must stay inside the directory of the file that contains it, without '.' or "
			       "'..'";
	}
	return NULL;
}

const char *file_path_inside(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                             struct loc loc)
{
	const char *fault = path_fault(name);
	if (fault != NULL) {
		diag_error(cx, loc, DIAG_FILE, "the file name '%.200s' %s", name, fault);
		return NULL;
	}
	return file_join(a, dir, name);
}

const char *file_path_any(struct arena *a, struct diag_context *cx, const char *dir, const char *name,
                          struct loc loc)
{
	if (name[0] != '\0')
		return file_join(a, dir, name);
	diag_error(cx, loc, DIAG_FILE, "the file name is empty");
	return NULL;
}

/* Messages of common errors do not depend on the C library. */
static const char *errno_message(int e)
{
	switch (e) {
	case ENOENT: return "there is no such file";
	case EACCES: return "permission denied";
	case EISDIR: return "it is a directory";
	case ENOTDIR: return "a part of its path is not a directory";
	case ELOOP: return "too many symbolic links";
	case ENAMETOOLONG: return "the name is too long";
	case EMFILE:
	case ENFILE: return "too many open files";
	case ENOMEM: return "no memory";
	case EIO: return "input error";
	default: return strerror(e);
	}
}

/* Always TFMC_IO. */
static enum tfmc_status report_io_error(struct diag_context *cx, struct loc loc, const char *path,
                                        const char *why)
{
	diag_environment_error(cx, loc, DIAG_FILE, "cannot read '%.400s': %s", path, why);
	return TFMC_IO;
}

/* Returns a descriptor of a regular file and its status, or -1 after a diagnostic. O_NONBLOCK keeps open() from
 * waiting for a writer of a FIFO. Sizes up to SIZE_MAX / 2 leave room for a terminating byte. */
static int open_regular(struct diag_context *cx, const char *path, struct loc loc, struct stat *out)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		report_io_error(cx, loc, path, errno_message(errno));
		return -1;
	}
	const char *why = NULL;
	if (fstat(fd, &st) != 0)
		why = errno_message(errno);
	else if (!S_ISREG(st.st_mode))
		why = S_ISDIR(st.st_mode) ? "it is a directory" : "it is not a regular file";
	else if (st.st_size < 0 || (uintmax_t)st.st_size > SIZE_MAX / 2)
		why = "it is too large";
	if (why != NULL) {
		report_io_error(cx, loc, path, why);
		close(fd);
		return -1;
	}
	*out = st;
	return fd;
}

/* pread() may return fewer bytes than it was asked for, or be interrupted by a signal. */
size_t file_read_at(int fd, void *to, size_t n, uint64_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return SIZE_MAX;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return done;
}

/* Writes on after a signal or a short write; a write of 0 bytes is tried again. */
bool file_write_at(int fd, const void *bytes, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t some = pwrite(fd, (const char *)bytes + done, n - done, (off_t)(at + done));
		if (some < 0 && errno != EINTR)
			return false;
		done += some > 0 ? (size_t)some : 0;
	}
	return true;
}

/* Whether an error is caused by the path itself: the later open of the file reports those. */
static bool is_path_error(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EACCES || error == ELOOP || error == ENXIO ||
	       error == ENAMETOOLONG || error == ENODEV;
}

/* A file is asked for its kind before it is opened in earnest: errors of the path are left to that, others are
 * reported once (n_environment). */
size_t file_head(struct diag_context *cx, const char *path, char *out, size_t n)
{
	struct stat st;
	size_t got = SIZE_MAX;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && fstat(fd, &st) == 0)
		got = S_ISREG(st.st_mode) ? file_read_at(fd, out, n, 0) : 0;
	int error = errno;
	if (fd >= 0)
		close(fd);
	if (got != SIZE_MAX)
		return got;
	if (!is_path_error(error) && cx->n_environment == 0)
		report_io_error(cx, LOC_NONE, path, errno_message(error));
	return 0;
}

bool file_begins_with(struct diag_context *cx, const char *path, const char *magic, size_t n)
{
	char bytes[16];
	return n <= sizeof(bytes) && file_head(cx, path, bytes, n) == n && memcmp(bytes, magic, n) == 0;
}

bool file_exists(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 ? S_ISREG(st.st_mode) : errno != ENOENT && errno != ENOTDIR;
}

/* The size is that of open time: a file that shrinks meanwhile is an error, one that grows is read up to it. */
enum tfmc_status file_read(struct arena *a, struct diag_context *cx, const char *path, size_t limit,
                           struct loc loc, const char **text, size_t *len)
{
	enum tfmc_status st = TFMC_OK;
	struct stat info;
	int fd = open_regular(cx, path, loc, &info);
	if (fd < 0)
		return TFMC_IO;
	size_t size = (size_t)info.st_size;
	if (size > limit) {
		diag_error(cx, loc, DIAG_LIMIT, "'%.400s' has %zu bytes, the limit is %zu", path, size,
		           limit);
		close(fd);
		return TFMC_INVALID;
	}
	char *data = arena_alloc(a, size + 1);
	if (data == NULL || arena_failed(a)) {
		st = TFMC_NO_MEMORY;
	} else {
		size_t got = file_read_at(fd, data, size, 0);
		if (got == SIZE_MAX)
			st = report_io_error(cx, loc, path, errno_message(errno));
		else if (got < size)
			st = report_io_error(cx, loc, path, "it became shorter while it was read");
		*len = got;
		*text = data;
	}
	close(fd);
	return st;
}

/* mmap() rejects a length of 0, so that an empty file is one static byte. The descriptor is not needed after mapping.
 */
enum tfmc_status file_map_open(struct diag_context *cx, const char *path, struct loc loc,
                               struct file_map *out)
{
	struct stat info;
	*out = (struct file_map){.data = empty_file};
	int fd = open_regular(cx, path, loc, &info);
	if (fd < 0)
		return TFMC_IO;
	size_t size = (size_t)info.st_size;
	void *p = size == 0 ? NULL : mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	int error = errno;
	close(fd);
	if (p == MAP_FAILED)
		return report_io_error(cx, loc, path, errno_message(error));
	if (p != NULL)
		*out = (struct file_map){.data = p,
		                         .len = size,
		                         .mapped = p,
		                         .device = (uint64_t)info.st_dev,
		                         .inode = (uint64_t)info.st_ino,
		                         .changed = info.st_mtim};
	return TFMC_OK;
}

/* Compares size and mtime, as a file truncated within its last page raises no SIGBUS but reads as zeros there. A path
 * that cannot be examined counts as the same: the mapping still shows the file. */
bool file_map_is_same(const struct file_map *m, const char *path)
{
	struct stat st;
	if (m->mapped == NULL || stat(path, &st) != 0 || (uint64_t)st.st_dev != m->device ||
	    (uint64_t)st.st_ino != m->inode)
		return true;
	return (uintmax_t)st.st_size == m->len && st.st_mtim.tv_sec == m->changed.tv_sec &&
	       st.st_mtim.tv_nsec == m->changed.tv_nsec;
}

void file_map_close(struct file_map *m)
{
	if (m->mapped != NULL)
		munmap(m->mapped, m->len);
	*m = (struct file_map){.data = empty_file};
}

void file_map_release_pages(const struct file_map *m)
{
	if (m->mapped != NULL)
		(void)madvise(m->mapped, m->len, MADV_DONTNEED); /* only a hint */
}
