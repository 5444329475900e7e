/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output files through temporary files and rename.
 */
#define _GNU_SOURCE /* mkostemp */
#include "frontend/driver/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* dir/.name.tfmc-XXXXXX */
static char *temporary_name(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	int dir = slash ? (int)(slash - path) + 1 : 0;
	return (char *)(uintptr_t)arena_printf(a, "%.*s.%s.tfmc-XXXXXX", dir, path, path + dir);
}

/* The permissions an ordinary open would give. */
static void apply_umask(int fd)
{
	mode_t mask = umask(0);
	umask(mask);
	(void)fchmod(fd, 0666 & ~mask);
}

void outputs_protect(struct outputs *o, const char *path)
{
	const char *kept = strmap_has(&o->known, path) ? NULL : arena_strdup(o->arena, path);
	const char **slot = kept ? ARENA_PUSH(o->arena, &o->inputs) : NULL;
	if (!slot)
		return;
	*slot = kept;
	strmap_set(&o->known, kept, o);
}

static bool is_input(const struct outputs *o, const char *path, const char *input)
{
	bool found = same_file(path, input);
	for (size_t i = 0; !found && i < o->inputs.n; i++)
		found = same_file(path, o->inputs.items[i]);
	return found;
}

struct output_file *outputs_add(struct outputs *o, const char *path, const char *input)
{
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
	char *temporary = temporary_name(o->arena, path);
	int fd = mkostemp(temporary, O_CLOEXEC);
	FILE *stream = fd < 0 ? NULL : fdopen(fd, "wb");
	struct output_file *f = stream ? ARENA_NEW(o->arena, struct output_file) : NULL;
	struct output_file **slot = f ? ARENA_PUSH(o->arena, o) : NULL;
	if (!slot) {
		diag_error(o->cx, LOC_NONE, DIAG_FILE, "cannot write %s: %s", path, strerror(errno));
		if (stream)
			fclose(stream);
		if (fd >= 0)
			unlink(temporary);
		return NULL;
	}
	apply_umask(fd);
	*slot = f;
	*f = (struct output_file){.path = path, .temporary = temporary, .stream = stream};
	return f;
}

bool output_write(struct output_file *f, const void *bytes, size_t n)
{
	if (n && fwrite(bytes, 1, n, f->stream) != n)
		f->failed = true;
	f->at += n;
	return !f->failed;
}

bool output_write_at(struct output_file *f, uint64_t offset, const void *bytes, size_t n)
{
	if (f->at != offset && fseeko(f->stream, (off_t)offset, SEEK_SET))
		f->failed = true;
	f->at = offset;
	return output_write(f, bytes, n);
}

void outputs_move_first(struct outputs *o)
{
	struct output_file *last = o->items[o->n - 1];
	memmove(o->items + 1, o->items, (o->n - 1) * sizeof(struct output_file *));
	o->items[0] = last;
}

void outputs_move_last(struct outputs *o, struct output_file *f)
{
	size_t n = 0;
	for (size_t i = 0; i < o->n; i++)
		if (o->items[i] != f)
			o->items[n++] = o->items[i];
	if (n < o->n)
		o->items[n] = f;
}

static bool close_one(struct outputs *o, struct output_file *f)
{
	bool bad = f->failed || fflush(f->stream) || fsync(fileno(f->stream));
	bad = fclose(f->stream) || bad;
	f->stream = NULL;
	if (bad)
		diag_error(o->cx, LOC_NONE, DIAG_FILE, "cannot write %s: %s", f->path, strerror(errno));
	return !bad;
}

enum tfmc_status outputs_commit(struct outputs *o)
{
	bool ok = true;
	for (size_t i = 0; i < o->n; i++)
		ok = close_one(o, o->items[i]) && ok;
	for (size_t i = 0; ok && i < o->n; i++) {
		ok = !rename(o->items[i]->temporary, o->items[i]->path);
		if (ok)
			o->items[i]->temporary = NULL;
		else
			diag_error(o->cx, LOC_NONE, DIAG_FILE, "cannot write %s: %s", o->items[i]->path,
			           strerror(errno));
	}
	outputs_discard(o);
	return ok ? TFMC_OK : TFMC_IO;
}

void outputs_discard(struct outputs *o)
{
	for (size_t i = 0; i < o->n; i++) {
		if (o->items[i]->stream)
			fclose(o->items[i]->stream);
		if (o->items[i]->temporary)
			unlink(o->items[i]->temporary);
	}
	o->n = 0;
}
