/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of the command: what cache_write stores, cache_read returns. */
#define _XOPEN_SOURCE 700 /* setenv, getcwd */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/driver/compile/cache.h"
#include "tests/support/reading.h"

Suite *suite_cache(void);

static struct reading r;
static struct cache c;
static const char *name;

static void setup(void)
{
	static const struct cache_key key = {{1, 2, 3}};
	char dir[400];
	reading_init(&r);
	reading_write(&r, "home", "", 0);
	ck_assert_ptr_nonnull(getcwd(dir, sizeof(dir) - sizeof(r.dir) - 1));
	strcat(strcat(dir, "/"), r.dir);
	ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
	cache_begin(&c);
	cache_open(&c, &r.arena, CACHE_LIMIT);
	ck_assert_ptr_nonnull(c.dir);
	name = cache_entry_name(&r.arena, CACHE_CODE, &key);
}

static void teardown(void)
{
	unlink(cache_path(&c, &r.arena, name));
	unlink(cache_path(&c, &r.arena, "CACHEDIR.TAG"));
	rmdir(c.dir);
	cache_close(&c);
	reading_destroy(&r);
}

START_TEST(returns_what_it_stores)
{
	struct buf out;
	buf_init(&out);
	ck_assert(!cache_read(&c, name, &out));
	ck_assert(cache_write(&c, name, "abc", 3));
	ck_assert(cache_read(&c, name, &out));
	ck_assert_uint_eq(out.len, 3);
	ck_assert_mem_eq(out.data, "abc", 3);
	buf_destroy(&out);
}
END_TEST

/* A file of that content would be larger than cache_read reads. */
START_TEST(stores_nothing_that_is_not_read)
{
	struct stat st;
	void *zeros = calloc(1, CACHE_ENTRY_MAX);
	ck_assert_ptr_nonnull(zeros);
	ck_assert(!cache_write(&c, name, zeros, CACHE_ENTRY_MAX));
	ck_assert(!cache_stat(&c, name, &st));
	free(zeros);
}
END_TEST

Suite *suite_cache(void)
{
	Suite *s = suite_create("cache");
	TCase *entries = tcase_create("entries");
	tcase_add_checked_fixture(entries, setup, teardown);
	tcase_add_test(entries, returns_what_it_stores);
	tcase_add_test(entries, stores_nothing_that_is_not_read);
	suite_add_tcase(s, entries);
	return s;
}
