/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk cache of libtfmccl on the mock library: what is kept for whom, and that any fault of the folder, of a
 * file in it or of a call is a program compiled anew.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/opencl/calls.h"
#include "runtime/opencl/internal.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/opencl/mocked.h"

#define BYTES_MAX 4096

static struct mock *mock;
static struct tfmc_cl *cl;
static struct tfmc_cl_context *context;
static struct tfmc_cl_error error;
static char folder[64];
static const char text[] = "__kernel void first() {}";

static struct tfmc_cl_source source(void)
{
	return (struct tfmc_cl_source){text, sizeof(text) - 1, "-O", folder};
}

static void script(struct mock s)
{
	s.platforms = MOCK_PLATFORMS;
	s.live = mock->live;
	*mock = s;
}

static void open_device(size_t number)
{
	tfmc_cl_context_close(context);
	ck_assert_int_eq(tfmc_cl_context_open(cl, number, 0, &context, &error), TFMC_CL_OK);
}

static void begin(void)
{
	mock = mocked();
	(void)snprintf(folder, sizeof(folder), "/tmp/tfmc-binaries-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(tfmc_cl_open(mocked_path(), &cl, &error), TFMC_CL_OK);
	open_device(2);
	script((struct mock){0});
}

/* Files of the folder, and the path of the last one. */
static size_t files(char path[512], bool removes)
{
	size_t n = 0;
	DIR *dir = opendir(folder);
	ck_assert_ptr_nonnull(dir);
	for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
		if (e->d_name[0] == '.')
			continue;
		(void)snprintf(path, 512, "%s/%s", folder, e->d_name);
		if (removes)
			ck_assert_int_eq(remove(path), 0);
		n++;
	}
	closedir(dir);
	return n;
}

static void end(void)
{
	char path[512];
	tfmc_cl_context_close(context);
	tfmc_cl_close(cl);
	ck_assert_int_eq(mock->live, 0);
	ck_assert_int_eq(mock->misuse, 0);
	(void)files(path, true);
	ck_assert_int_eq(rmdir(folder), 0);
}

/* Builds; whether it was cached. A program can be used either way. */
static bool build(struct tfmc_cl_source s)
{
	struct tfmc_cl_program *p;
	struct tfmc_cl_kernel *k;
	ck_assert_msg(tfmc_cl_program_build(context, &s, &p, &error) == TFMC_CL_OK, "%s", error.text);
	ck_assert_msg(tfmc_cl_kernel_create(p, "first", &k, &error) == TFMC_CL_OK, "%s", error.text);
	bool is_cached = tfmc_cl_program_is_cached(p);
	tfmc_cl_kernel_free(k);
	tfmc_cl_program_free(p);
	return is_cached;
}

static size_t read_file(const char *path, char bytes[BYTES_MAX])
{
	FILE *f = fopen(path, "rb");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(bytes, 1, BYTES_MAX, f);
	ck_assert(fclose(f) == 0 && n < BYTES_MAX);
	return n;
}

static void write_file(const char *path, const char *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

/* ---- for whom ---- */

START_TEST(keeps)
{
	char path[512];
	struct tfmc_cl_source s = source();
	ck_assert(!build(s));
	ck_assert_uint_eq(files(path, false), 1);
	script((struct mock){0});
	ck_assert(build(s));
	ck_assert_str_eq(mock->log[0], "clCreateProgramWithBinary");
	s.options = NULL;
	ck_assert_msg(!build(s) && build(s), "other options");
	s.options = "";
	ck_assert_msg(build(s), "no options are empty ones");
	s.bytes--;
	ck_assert_msg(!build(s) && build(s), "another source");
	s = source();
	open_device(1);
	ck_assert_msg(!build(s) && build(s), "another device");
	ck_assert_uint_eq(files(path, false), 4);
	s.cache = NULL;
	ck_assert_msg(!build(s), "no cache");
}
END_TEST

START_TEST(not_of_pocl)
{
	char path[512];
	tfmc_cl_context_close(context);
	context = NULL;
	tfmc_cl_close(cl);
	mock->odd = MOCK_POCL;
	ck_assert_int_eq(tfmc_cl_open(mocked_path(), &cl, &error), TFMC_CL_OK);
	open_device(0);
	ck_assert(!build(source()) && !build(source()));
	ck_assert_uint_eq(files(path, false), 0);
}
END_TEST

START_TEST(other_key_in_the_file)
{
	char path[512], bytes[BYTES_MAX];
	struct tfmc_cl_source other = source();
	other.options = "-x";
	ck_assert(!build(other));
	ck_assert_uint_eq(files(path, false), 1);
	size_t n = read_file(path, bytes);
	ck_assert_int_eq(remove(path), 0);
	ck_assert(!build(source()));
	ck_assert_uint_eq(files(path, false), 1);
	write_file(path, bytes, n);
	ck_assert_msg(!build(source()), "a file of equal hash and other key is taken");
	ck_assert(build(source()));
}
END_TEST

/* ---- faults of files ---- */

START_TEST(damaged_files)
{
	char path[512], bytes[BYTES_MAX], damaged[BYTES_MAX];
	ck_assert(!build(source()));
	ck_assert_uint_eq(files(path, false), 1);
	size_t n = read_file(path, bytes);
	ck_assert(n > sizeof(text));
	for (size_t i = 0; i < n; i++) {
		memcpy(damaged, bytes, n);
		damaged[i] ^= 0x10;
		write_file(path, damaged, n);
		ck_assert_msg(!build(source()), "byte %zu of %zu is wrong", i, n);
		ck_assert_msg(read_file(path, damaged) == n && !memcmp(damaged, bytes, n),
		              "not written again");
		write_file(path, bytes, i);
		ck_assert_msg(!build(source()), "%zu bytes of %zu", i, n);
	}
	memcpy(damaged, bytes, n);
	damaged[n] = 0;
	write_file(path, damaged, n + 1);
	ck_assert_msg(!build(source()), "a byte too many");
	ck_assert(build(source()));
	ck_assert_uint_eq(files(path, false), 1);
}
END_TEST

START_TEST(no_files)
{
	char path[512];
	struct tfmc_cl_source s = source();
	s.cache = "/nowhere/at/all";
	ck_assert(!build(s) && !build(s));
	s.cache = "/dev/null";
	ck_assert(!build(s) && !build(s));
	ck_assert(!build(source()));
	ck_assert_uint_eq(files(path, false), 1);
	ck_assert(remove(path) == 0 && mkdir(path, 0700) == 0);
	ck_assert_msg(!build(source()) && !build(source()), "a folder where the file should be");
	ck_assert_uint_eq(files(path, false), 1);
	ck_assert(remove(path) == 0 && mkfifo(path, 0600) == 0);
	ck_assert_msg(!build(source()), "a FIFO is not waited for");
	ck_assert(build(source()));
	ck_assert_uint_eq(files(path, false), 1);
}
END_TEST

START_TEST(folders_of_others)
{
	char path[512];
	ck_assert(!build(source()) && build(source()));
	for (mode_t bits = S_IWOTH; bits <= S_IWGRP; bits <<= 3) {
		ck_assert_int_eq(chmod(folder, 0700 | bits), 0);
		ck_assert_msg(!build(source()) && !build(source()), "a folder into which others may write");
	}
	ck_assert_int_eq(chmod(folder, 0755), 0);
	ck_assert(build(source()));
	ck_assert_uint_eq(files(path, false), 1);
	char elsewhere[600];
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", folder);
	ck_assert(rename(path, elsewhere) == 0 && symlink(elsewhere, path) == 0);
	ck_assert_msg(!build(source()), "a link in place of the file");
	ck_assert(build(source()));
}
END_TEST

/* Files of other names stay; of those of the cache the one that was just made and those that fit. */
START_TEST(limit)
{
	static const char *const foreign[] = {"notes.clbin", "0123456789abcdef.clbin", "x.clbin.abcdef"};
	char path[512], kept[512], left[600];
	struct tfmc_cl_source s = source();
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder, foreign[i]);
		write_file(path, "mine", 4);
	}
	ck_assert(!build(s));
	s.bytes--;
	ck_assert(!build(s));
	s.bytes--;
	ck_assert(!build(s));
	ck_assert_uint_eq(files(path, false), 6);
	int dir = open(folder, O_RDONLY | O_DIRECTORY);
	cl_cache_trim(dir, "", (uint64_t)1 << 20);
	ck_assert_uint_eq(files(path, false), 6);
	DIR *d = opendir(folder);
	for (struct dirent *e = readdir(d); e; e = readdir(d))
		if (strlen(e->d_name) > 64)
			(void)snprintf(kept, sizeof(kept), "%s", e->d_name);
	closedir(d);
	(void)snprintf(left, sizeof(left), "%s/%s.abcdef", folder, kept);
	write_file(left, "cut", 3);
	cl_cache_trim(dir, kept, 1);
	ck_assert_uint_eq(files(path, false), 4);
	ck_assert_int_eq(faccessat(dir, kept, F_OK, 0), 0);
	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		ck_assert_int_eq(faccessat(dir, foreign[i], F_OK, 0), 0);
	ck_assert_int_eq(close(dir), 0);
}
END_TEST

/* ---- faults of calls ---- */

START_TEST(every_call_fails)
{
	static const char *const fresh[] = {"clCreateProgramWithSource", "clBuildProgram", "clGetProgramInfo",
	                                    "clGetProgramInfo"};
	static const char *const cached[] = {"clCreateProgramWithBinary", "clBuildProgram"};
	char path[512];
	for (size_t c = 0; c < mocked_codes_n; c++) {
		for (size_t at = 0; at < 4; at++) {
			struct tfmc_cl_program *p;
			struct tfmc_cl_source s = source();
			(void)files(path, true);
			script((struct mock){.fail_at = (int64_t)at + 1, .code = mocked_codes[c].code});
			int status = tfmc_cl_program_build(context, &s, &p, &error);
			ck_assert_str_eq(mock->log[at], fresh[at]);
			ck_assert_int_eq(status == TFMC_CL_OK, at >= 2);
			ck_assert(at >= 2 || mocked_tells(error.text, fresh[at], &mocked_codes[c]));
			tfmc_cl_program_free(p);
			ck_assert_uint_eq(files(path, false), 0);
		}
		ck_assert(!build(source()));
		for (size_t at = 0; at < 2; at++) {
			script((struct mock){.fail_at = (int64_t)at + 1, .code = mocked_codes[c].code});
			ck_assert_msg(!build(source()), "%s failed with %s", cached[at],
			              mocked_codes[c].name);
			ck_assert_str_eq(mock->log[at], cached[at]);
			script((struct mock){0});
			ck_assert(build(source()));
		}
	}
}
END_TEST

START_TEST(odd_binaries)
{
	static const enum mock_odd none[] = {MOCK_EMPTY, MOCK_HUGE, MOCK_SHORT_VALUES};
	char path[512];
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		script((struct mock){.odd = none[i]});
		ck_assert(!build(source()));
		ck_assert_uint_eq(files(path, false), 0);
	}
	script((struct mock){.odd = MOCK_TINY});
	ck_assert(!build(source()));
	ck_assert_uint_eq(files(path, false), 1);
	ck_assert_msg(!build(source()), "the driver refuses its binary");
}
END_TEST

Suite *suite_binaries(void);
Suite *suite_binaries(void)
{
	Suite *s = suite_create("binaries");
	TCase *c = tcase_create("binaries");
	tcase_set_timeout(c, 120);
	tcase_add_checked_fixture(c, begin, end);
	tcase_add_test(c, keeps);
	tcase_add_test(c, not_of_pocl);
	tcase_add_test(c, other_key_in_the_file);
	tcase_add_test(c, damaged_files);
	tcase_add_test(c, no_files);
	tcase_add_test(c, folders_of_others);
	tcase_add_test(c, limit);
	tcase_add_test(c, every_call_fails);
	tcase_add_test(c, odd_binaries);
	suite_add_tcase(s, c);
	return s;
}
