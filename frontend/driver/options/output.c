/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output files: unnamed until they are complete, then renamed together.
 * An unnamed file vanishes with its process; where there are none, a temporary name is registered, which signals and
 * failures remove. The list of registered names changes while signals are blocked, since their handler reads it.
 * target: the path with links resolved; temporary: the name of an incomplete file, NULL for an unnamed one; old: a
 * second name of the file that is replaced, to undo that.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "frontend/driver/options/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SUFFIX_DIGITS 6
#define ATTEMPTS      100
#define LINKS_MAX     40

/* ---- signals ---- */

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

/* A global list, for the signal handler. Changed only while signals are blocked. */
static struct output_file *volatile named_files;

/* Blocks the signals that remove named files, as long as the list changes. *before: the mask to be restored. */
static void block_signals(sigset_t *before)
{
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < TFMC_COUNT(fatal_signals); i++)
		sigaddset(&set, fatal_signals[i]);
	sigprocmask(SIG_BLOCK, &set, before);
}

/* A file, or an empty directory. */
static void remove_named(const char *path)
{
	if (unlink(path))
		(void)rmdir(path);
}

void outputs_remove_temporaries(void)
{
	for (const struct output_file *f = named_files; f; f = f->next_named)
		remove_named(f->temporary);
}

/* SA_RESETHAND has restored the default action. */
static void handle_fatal_signal(int number)
{
	outputs_remove_temporaries();
	raise(number);
}

static void ignore_signal(int number)
{
	(void)number;
}

/* Signals that the parent process ignores stay ignored, as with nohup. */
void outputs_handle_signals(void)
{
	struct sigaction end = {.sa_handler = handle_fatal_signal,
	                        .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
	struct sigaction go_on = {.sa_handler = ignore_signal, .sa_flags = SA_RESTART}, old;
	for (size_t i = 0; i < TFMC_COUNT(fatal_signals); i++)
		if (!sigaction(fatal_signals[i], NULL, &old) && old.sa_handler == SIG_DFL)
			sigaction(fatal_signals[i], &end, NULL);
	sigaction(SIGXFSZ, &go_on, NULL);
}

/* ---- names ---- */

void outputs_init(struct outputs *o, struct arena *arena, struct diag_context *cx)
{
	*o = (struct outputs){.arena = arena, .cx = cx};
	strmap_init(&o->known, arena);
}

static bool same_file(const char *a, const char *b)
{
	struct stat sa, sb;
	return a && b && !stat(a, &sa) && !stat(b, &sb) && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

/* Registers a path once, however often it is read: `known` finds it. */
void outputs_add_input(struct outputs *o, const char *path)
{
	const char *kept = strmap_has(&o->known, path) ? NULL : arena_strdup(o->arena, path);
	const char **slot = kept ? ARENA_PUSH(o->arena, &o->inputs) : NULL;
	if (!slot)
		return;
	*slot = kept;
	strmap_set(&o->known, kept, o);
}

/* Whether a path is one of the input files, by device and inode; `input` may be NULL. */
static bool is_input(const struct outputs *o, const char *path, const char *input)
{
	bool found = same_file(path, input);
	for (size_t i = 0; !found && i < o->inputs.n; i++)
		found = same_file(path, o->inputs.items[i]);
	return found;
}

/* Length of the path's directory with its slash. */
static int directory_length(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? (int)(slash - path) + 1 : 0;
}

static const char *directory_of(struct arena *a, const char *path)
{
	return arena_printf(a, "%.*s.", directory_length(path), path);
}

/* Resolves symbolic links as open does; the target need not exist. NULL: too many links (errno). */
static const char *resolve_links(struct arena *a, const char *path)
{
	char to[PATH_MAX];
	for (int i = 0; i < LINKS_MAX; i++) {
		struct stat st;
		if (lstat(path, &st) || !S_ISLNK(st.st_mode))
			return path;
		ssize_t n = readlink(path, to, sizeof(to));
		if (n < 0 || n == (ssize_t)sizeof(to))
			return NULL;
		int directory = to[0] == '/' ? 0 : directory_length(path);
		path = arena_printf(a, "%.*s%.*s", directory, path, (int)n, to);
	}
	errno = ELOOP;
	return NULL;
}

/* directory/.name.tfmc-NNNNNN, different for each attempt. */
static const char *temporary_name(struct arena *a, const char *path, int attempt)
{
	int n = directory_length(path);
	unsigned number = ((unsigned)getpid() * ATTEMPTS + (unsigned)attempt) & 0xffffffu;
	return arena_printf(a, "%.*s.%s.tfmc-%0*x", n, path, path + n, SUFFIX_DIGITS, number);
}

/* ---- temporary files ---- */

/* The reason is in errno. */
static void report_write_error(struct output_file *f)
{
	f->failed = true;
	diag_environment_error(f->cx, LOC_NONE, DIAG_FILE, "cannot write %s: %s", f->path, strerror(errno));
}

/* Removes temporary files of a path that are not locked: the processes that wrote them were killed. */
static void remove_abandoned(struct arena *a, const char *path)
{
	const char *name = temporary_name(a, path, 0) + directory_length(path);
	size_t n = strlen(name);
	DIR *directory = opendir(directory_of(a, path));
	if (!directory)
		return;
	for (const struct dirent *e; (e = readdir(directory));) {
		struct stat st;
		if (strlen(e->d_name) != n || memcmp(e->d_name, name, n - SUFFIX_DIGITS) != 0)
			continue;
		int fd = openat(dirfd(directory), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !flock(fd, LOCK_EX | LOCK_NB))
			(void)unlinkat(dirfd(directory), e->d_name, 0);
		close(fd);
	}
	closedir(directory);
}

/* Opens an unnamed file in the path's directory; -1: not supported here, or not writable. */
static int open_unnamed_file(struct arena *a, const char *path)
{
	if (access("/proc/self/fd", X_OK))
		return -1;
	int fd = open(directory_of(a, path), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	if (fd >= 0)
		(void)flock(fd, LOCK_EX); /* it gets a temporary name before the rename */
	return fd;
}

/* Creates a file and locks it. -1 with errno; EEXIST also when, between open and flock, another process took the
 * file for abandoned and removed it. */
static int open_locked(const char *name)
{
	struct stat st;
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return -1;
	(void)flock(fd, LOCK_EX);
	if (!fstat(fd, &st) && st.st_nlink > 0)
		return fd;
	close(fd);
	errno = EEXIST;
	return -1;
}

/* Opens a temporary file with the first free name and registers it for removal. -1 with errno, and no name. */
static int open_named_file(struct arena *a, struct output_file *f)
{
	int fd = -1;
	sigset_t before;
	errno = EEXIST;
	for (int i = 0; i < ATTEMPTS && fd < 0 && errno == EEXIST; i++) {
		f->temporary = temporary_name(a, f->target, i);
		block_signals(&before);
		fd = open_locked(f->temporary);
		if (fd >= 0) {
			f->next_named = named_files;
			named_files = f;
		}
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
	if (fd < 0)
		f->temporary = NULL;
	return fd;
}

/* Removes the temporary file if it still has that name, and unregisters it. */
void outputs_remove_temporary(struct output_file *f)
{
	struct output_file *volatile *at = &named_files;
	sigset_t before;
	block_signals(&before);
	if (f->temporary)
		remove_named(f->temporary);
	f->temporary = NULL;
	while (*at && *at != f)
		at = &(*at)->next_named;
	if (*at)
		*at = f->next_named;
	sigprocmask(SIG_SETMASK, &before, NULL);
}

void outputs_track_temporary(struct output_file *f, const char *path)
{
	sigset_t before;
	block_signals(&before);
	*f = (struct output_file){.temporary = path, .next_named = named_files};
	named_files = f;
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Signals are blocked until the directory is registered, so that none leaves it behind; errno is that of mkdir. */
bool outputs_make_directory(struct output_file *f, const char *path)
{
	sigset_t before;
	block_signals(&before);
	bool made = !mkdir(path, 0777);
	int why = errno;
	if (made)
		outputs_track_temporary(f, path);
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = why;
	return made;
}

/* ---- one file ---- */

/* Opens the stream of an output, unnamed where possible. False after a diagnostic. */
static bool open_file(struct arena *a, struct output_file *f)
{
	remove_abandoned(a, f->target);
	int fd = open_unnamed_file(a, f->target);
	if (fd < 0)
		fd = open_named_file(a, f);
	f->stream = fd < 0 ? NULL : fdopen(fd, "wb");
	if (f->stream)
		return true;
	report_write_error(f);
	if (fd >= 0)
		close(fd);
	outputs_remove_temporary(f);
	return false;
}

void outputs_note_written(struct outputs *o, const char *path)
{
	const char *target = resolve_links(o->arena, path);
	ARENA_ADD(o->arena, &o->written, target ? target : path);
}

/* Whether two paths are the same name in the same directory; the files need not exist. */
static bool is_same_name(struct arena *a, const char *x, const char *y)
{
	return !strcmp(x + directory_length(x), y + directory_length(y)) &&
	       same_file(directory_of(a, x), directory_of(a, y));
}

/* Whether a path is an output already, of this list or one that was committed before. */
static bool is_output(const struct outputs *o, const char *path)
{
	bool found = false;
	for (size_t i = 0; !found && i < o->n; i++)
		found = is_same_name(o->arena, path, o->items[i]->target);
	for (size_t i = 0; !found && i < o->written.n; i++)
		found = is_same_name(o->arena, path, o->written.items[i]);
	return found;
}

/* Symbolic links are resolved first: two paths may lead to one file. Only regular files are replaced: rename would
 * put a file in the place of a device. */
struct output_file *outputs_add(struct outputs *o, const char *path, const char *input)
{
	const char *target = resolve_links(o->arena, path);
	if (!target) {
		diag_environment_error(o->cx, LOC_NONE, DIAG_FILE, "cannot write %s: %s", path,
		                       strerror(errno));
		return NULL;
	}
	if (is_output(o, target)) {
		diag_error(o->cx, LOC_NONE, DIAG_FILE, "two outputs are the file %s", path);
		return NULL;
	}
	if (is_input(o, path, input)) {
		diag_error(o->cx, LOC_NONE, DIAG_FILE, "the output %s is an input file", path);
		return NULL;
	}
	struct stat st;
	if (!stat(path, &st) && !S_ISREG(st.st_mode)) {
		diag_error(o->cx, LOC_NONE, DIAG_FILE, "the output %s exists and is not a regular file",
		           path);
		return NULL;
	}
	struct output_file *f = ARENA_NEW(o->arena, struct output_file);
	struct output_file **slot = f ? ARENA_PUSH(o->arena, o) : NULL;
	if (!slot)
		return NULL;
	*slot = f;
	*f = (struct output_file){.cx = o->cx, .path = path, .target = target};
	if (open_file(o->arena, f))
		return f;
	o->n--;
	return NULL;
}

bool output_write(struct output_file *f, const void *bytes, size_t n)
{
	if (!f->failed && n && fwrite(bytes, 1, n, f->stream) != n)
		report_write_error(f);
	f->at += n;
	f->bytes = f->at > f->bytes ? f->at : f->bytes;
	return !f->failed;
}

bool output_write_at(struct output_file *f, uint64_t offset, const void *bytes, size_t n)
{
	if (!f->failed && f->at != offset && fseeko(f->stream, (off_t)offset, SEEK_SET))
		report_write_error(f);
	f->at = offset;
	return output_write(f, bytes, n);
}

bool output_write_text(struct output_file *f, const struct buf *text)
{
	if (!f->failed && buf_failed(text)) {
		errno = ENOMEM;
		report_write_error(f);
	}
	return output_write(f, text->data, text->len);
}

/* ---- all files ---- */

void outputs_move_first(struct outputs *o)
{
	struct output_file *last = o->items[o->n - 1];
	memmove(o->items + 1, o->items, (o->n - 1) * sizeof(struct output_file *));
	o->items[0] = last;
}

/* f NULL, or not in the list: the order stays. */
void outputs_move_last(struct outputs *o, struct output_file *f)
{
	size_t n = 0;
	for (size_t i = 0; i < o->n; i++)
		if (o->items[i] != f)
			o->items[n++] = o->items[i];
	if (n < o->n)
		o->items[n] = f;
}

/* Flushes a file to the disk, so that delayed write errors are found before any rename. False after a diagnostic. */
static bool sync_file(struct output_file *f)
{
	if (!f->failed && (fflush(f->stream) || fsync(fileno(f->stream))))
		report_write_error(f);
	return !f->failed;
}

/* Gives an unnamed file a temporary name: it can be linked, but only a named file can replace another by rename.
 * False after a diagnostic. */
static bool name_temporary(struct arena *a, struct output_file *f)
{
	char from[64];
	(void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fileno(f->stream));
	for (int i = 0; i < ATTEMPTS && !f->temporary; i++) {
		const char *to = temporary_name(a, f->target, i);
		if (!linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW))
			f->temporary = to;
		else if (errno != EEXIST)
			break;
	}
	if (!f->temporary)
		report_write_error(f);
	return f->temporary != NULL;
}

/* Gives an existing file a second name, to undo the rename; none without a file, or without hard links. */
static void link_old(struct arena *a, struct output_file *f)
{
	for (int i = 0; i < ATTEMPTS && !f->old; i++) {
		const char *to = temporary_name(a, f->target, i);
		if (!linkat(AT_FDCWD, f->target, AT_FDCWD, to, 0))
			f->old = to;
		else if (errno != EEXIST)
			break;
	}
	f->was_there = f->old || !access(f->target, F_OK);
}

/* Gives a file its name, replacing an existing one. False after a diagnostic. */
static bool rename_into_place(struct output_file *f)
{
	if (rename(f->temporary, f->target)) {
		report_write_error(f);
		return false;
	}
	f->temporary = NULL;
	return true;
}

/* Puts the file of before back, or removes the new one where there was none; otherwise notes that it is lost. */
static void undo_rename(struct output_file *f)
{
	bool done = f->old ? !rename(f->old, f->target) : !f->was_there && !unlink(f->target);
	if (done)
		f->old = NULL;
	else
		diag_note(f->cx, LOC_NONE, "%s is new: the file of before could not be put back", f->path);
}

/* All names or none. Whatever can fail for lack of space or of a directory is done before the first rename;
 * after a failed rename earlier ones are undone. Signals are blocked from the first to the last. */
enum tfmc_status outputs_commit(struct outputs *o)
{
	bool ok = true;
	size_t n = 0;
	sigset_t before;
	for (size_t i = 0; i < o->n; i++)
		ok = sync_file(o->items[i]) && ok;
	block_signals(&before);
	for (size_t i = 0; ok && i < o->n; i++)
		ok = o->items[i]->temporary || name_temporary(o->arena, o->items[i]);
	for (size_t i = 0; ok && o->n > 1 && i < o->n; i++) /* one rename alone is never undone */
		link_old(o->arena, o->items[i]);
	while (ok && n < o->n) {
		ok = rename_into_place(o->items[n]);
		n += ok;
	}
	while (!ok && n > 0)
		undo_rename(o->items[--n]);
	outputs_discard(o);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return ok ? TFMC_OK : TFMC_IO;
}

/* Also after a commit: its files have lost their temporary names, and only the second names of replaced files are
 * removed. */
void outputs_discard(struct outputs *o)
{
	for (size_t i = 0; i < o->n; i++) {
		fclose(o->items[i]->stream);
		if (o->items[i]->old)
			(void)unlink(o->items[i]->old);
		outputs_remove_temporary(o->items[i]);
	}
	o->n = 0;
}
