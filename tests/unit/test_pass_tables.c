/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modules of the text tests of fold-tables, fold-scale and rope-style mean the same before and after
 * their pass, in every function, and so they do behind the whole pipeline.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "passes/framework/pass.h"
#include "tests/support/random_ir.h"
#include "tests/support/tir.h"

#define TOLERANCE 2e-5
#define TEXT_MAX  (64 * 1024)

static const char *const folders[] = {"fold-tables", "fold-scale", "rope-style"};

struct fixture {
	struct arena arena;
	struct tir t;
	struct pass_report report;
	struct ir_module *after;
};

static char *read_text(struct arena *a, const char *path)
{
	char *text = ARENA_ARRAY(a, char, TEXT_MAX);
	FILE *f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "%s", path);
	size_t n = fread(text, 1, TEXT_MAX - 1, f);
	fclose(f);
	ck_assert_uint_lt(n, TEXT_MAX - 1);
	return text;
}

static void run_pass(struct fixture *x, const char *pipeline)
{
	const struct pass_options options = {.target = target_find("x86-64-v3")};
	struct pipeline p;
	ck_assert_int_eq(pipeline_parse(&x->arena, &x->t.cx, pipeline, &p), TFMC_OK);
	enum tfmc_status st = passes_run(&x->t.cx, &p, &options, x->t.m, &x->after, &x->report);
	ck_assert_msg(st == TFMC_OK, "%s", x->t.log.data);
}

static void compare_function(struct fixture *x, const char *file, const struct ir_func *f, uint64_t seed)
{
	struct random_call a, b;
	const struct ir_func *g = ir_find_func(x->after, f->name);
	ck_assert(random_call_make(&x->arena, x->t.m, f, seed, &a));
	ck_assert_msg(random_call_run(&x->t.cx, x->t.m, f, &x->arena, &a) == TFMC_OK, "%s: %s", file,
	              x->t.log.data);
	b = a;
	ck_assert_msg(random_call_run(&x->t.cx, x->after, g, &x->arena, &b) == TFMC_OK, "%s: %s", file,
	              x->t.log.data);
	for (size_t i = 0; i < a.n_outputs; i++) {
		const char *why = random_compare(&x->arena, &b.outputs[i], &a.outputs[i], TOLERANCE);
		ck_assert_msg(why == NULL, "%s @%s, result %zu: %s", file, f->name, i,
		              why != NULL ? why : "");
	}
}

static void check_module(const char *folder, const char *path)
{
	const char *pipelines[] = {folder, "O2"};
	struct fixture x = {0};
	arena_init(&x.arena);
	tir_init(&x.t);
	pass_report_init(&x.report);
	const char *text = read_text(&x.arena, path);
	bool needs_files = strstr(text, " = tensor \"") != NULL; /* weights that nothing here can read */
	tir_load(&x.t, text);
	for (size_t p = 0; !needs_files && p < TFMC_COUNT(pipelines); p++) {
		run_pass(&x, pipelines[p]);
		for (size_t i = 0; i < x.t.m->funcs.n; i++)
			for (uint64_t seed = 1; seed <= 3; seed++)
				compare_function(&x, path, x.t.m->funcs.items[i], seed);
		ir_module_destroy(x.after);
		x.after = NULL;
	}
	pass_report_destroy(&x.report);
	tir_destroy(&x.t);
	arena_destroy(&x.arena);
}

START_TEST(means_the_same)
{
	const char *root = getenv("TFMC_SOURCE"), *folder = folders[_i];
	char path[4096], file[8192];
	size_t n = 0;
	ck_assert_ptr_nonnull(root);
	snprintf(path, sizeof path, "%s/tests/text/passes/%s", root, folder);
	DIR *dir = opendir(path);
	ck_assert_msg(dir != NULL, "%s", path);
	for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
		const char *dot = strrchr(e->d_name, '.');
		if (dot == NULL || strcmp(dot, ".tir") != 0)
			continue;
		snprintf(file, sizeof file, "%s/%s", path, e->d_name);
		check_module(folder, file);
		n++;
	}
	closedir(dir);
	ck_assert_uint_gt(n, 4);
}
END_TEST

Suite *suite_pass_tables(void)
{
	Suite *s = suite_create("pass_tables");
	TCase *tc = tcase_create("text");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, means_the_same, 0, (int)TFMC_COUNT(folders));
	suite_add_tcase(s, tc);
	return s;
}
