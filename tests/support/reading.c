/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixture of the readers' tests. Files go to a fresh directory below the
 * working directory, which is removed with its files at the end.
 */
#define _XOPEN_SOURCE 700

#include "tests/support/reading.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void reading_init(struct reading *r)
{
	arena_init(&r->arena);
	buf_init(&r->log);
	diag_init(&r->cx, diag_render_text, &r->log);
	r->dir[0] = '\0';
}

static void remove_files(const char *dir)
{
	char path[400];
	DIR *d = opendir(dir);
	if (d == NULL)
		return;
	for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	closedir(d);
	rmdir(dir);
}

void reading_destroy(struct reading *r)
{
	if (r->dir[0] != '\0')
		remove_files(r->dir);
	diag_destroy(&r->cx);
	buf_destroy(&r->log);
	arena_destroy(&r->arena);
}

void reading_clear(struct reading *r)
{
	buf_clear(&r->log);
	r->cx.n_errors = 0;
	r->cx.n_warnings = 0;
}

const struct yaml_node *reading_yaml(struct reading *r, const char *text)
{
	const struct yaml_node *node;
	enum tfmc_status st = yaml_parse(&r->arena, &r->cx, "t.yaml", text, strlen(text), true, &node);
	ck_assert((st == TFMC_OK) == (node != NULL));
	return node;
}

void reading_write(struct reading *r, const char *name, const void *bytes, size_t n)
{
	char path[400];
	if (r->dir[0] == '\0') {
		snprintf(r->dir, sizeof(r->dir), "unit-files-XXXXXX");
		ck_assert_ptr_nonnull(mkdtemp(r->dir));
	}
	snprintf(path, sizeof(path), "%s/%s", r->dir, name);
	FILE *f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

bool reading_says(const struct reading *r, const char *text)
{
	return strstr(r->log.data, text) != NULL;
}
