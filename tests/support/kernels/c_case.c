/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs kernels through C compilers and through the kernel interpreter, see
 * c_case.h. A compiler that is not installed is left out; one must be there.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, P_tmpdir */
#include "tests/support/effort.h"
#include "tests/support/kernels/c_case.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/print/cfamily.h"
#include "tests/kb_interp/interp.h"
#include "ir/target/target.h"

#define DATA_MAX 4

typedef void case_fn(const void *in, void *out);

struct build {
	const char *compiler;
	const char *flags;
	const char *target; /* that must run here */
};

static const struct build builds[] = {
        {"gcc", "-std=c17", "x86-64-v2"},
        {"gcc", "-std=gnu17 -march=x86-64-v3", "x86-64-v3"},
        {"clang-19", "-std=c17", "x86-64-v2"},
        {"gcc", "-std=gnu17 -march=x86-64-v4 -mavx512vnni", "x86-64-v4-vnni"},
        {"clang-19", "-std=gnu17 -march=x86-64-v4 -mavx512vnni", "x86-64-v4-vnni"},
};

struct suite_of_cases {
	const struct llvm_case *cases;
	size_t n;
	struct kb_module *m;
	struct buf text;
	char folder[64];
	char source[96], library[96];
};

static void record(struct suite_of_cases *s, struct arena *a)
{
	struct kb_caps caps = {.lanes = 8, .registers = 16, .has_fma = true};
	s->m = kb_module_create(a, &caps);
	for (size_t i = 0; i < s->n; i++) {
		char name[32];
		(void)snprintf(name, sizeof(name), "case_%zu", i);
		if (s->cases[i].functions)
			s->cases[i].functions(s->m);
		struct kb *k = kb_begin(s->m, name, KB_EXPORTED, KB_VOID);
		struct kb_val in = kb_param(k, "in", KB_PTR_T, KB_READONLY);
		struct kb_val out = kb_param(k, "out", KB_PTR_T, 0);
		s->cases[i].body(k, in, out);
		kb_end(k);
	}
}

static void interpret(const struct suite_of_cases *s, size_t number, void *out)
{
	const struct llvm_case *c = &s->cases[number];
	char name[32];
	void *in = malloc(c->in_bytes + 1);
	ck_assert_ptr_nonnull(in);
	memcpy(in, c->in, c->in_bytes);
	struct kb_range ranges[2 + DATA_MAX] = {{in, c->in_bytes, false}, {out, c->out_bytes, true}};
	struct kb_interp interp = {.module = s->m, .ranges = ranges, .n_ranges = 2};
	for (size_t i = 0; i < kb_data_count(s->m) && i < DATA_MAX; i++) {
		const struct kb_data_item *d = kb_data_at(s->m, i);
		ranges[interp.n_ranges++] = (struct kb_range){(void *)(uintptr_t)d->bytes, d->n, false};
	}
	union kb_cell args[] = {{.p = in}, {.p = out}};
	(void)snprintf(name, sizeof(name), "case_%zu", number);
	bool ok = kb_interp_call(&interp, name, args, 2, NULL);
	ck_assert_msg(ok, "interpreter: case %zu: %s", number, interp.error);
	free(in);
}

static void compare(const struct suite_of_cases *s, const struct build *b, void *library)
{
	for (size_t i = 0; i < s->n; i++) {
		size_t n = s->cases[i].out_bytes;
		unsigned char *machine = calloc(1, n), *wanted = calloc(1, n);
		char name[32];
		case_fn *fn;
		ck_assert(machine && wanted);
		(void)snprintf(name, sizeof(name), "case_%zu", i);
		void *at = dlsym(library, name);
		ck_assert_ptr_nonnull(at);
		memcpy(&fn, &at, sizeof(fn));
		fn(s->cases[i].in, machine);
		interpret(s, i, wanted);
		for (size_t k = 0; k < n; k++)
			ck_assert_msg(machine[k] == wanted[k],
			              "%s %s: case %zu: byte %zu is %02x, the interpreter says %02x",
			              b->compiler, b->flags, i, k, machine[k], wanted[k]);
		free(machine);
		free(wanted);
	}
}

static bool has_compiler(const char *name)
{
	char command[96];
	(void)snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", name);
	return system(command) == 0; /* NOLINT: a fixed list of names */
}

static bool check_build(const struct suite_of_cases *s, const struct build *b)
{
	char command[512];
	const struct target *t = target_find(b->target);
	if (!t || !target_runs_on_host(t) || !has_compiler(b->compiler))
		return false;
	(void)snprintf(command, sizeof(command),
	               "%s %s -O%d -Wall -Wextra -Werror -Wno-psabi -shared -fPIC -nostdlib -o %s %s",
	               b->compiler, b->flags, effort_is_all() ? 2 : 1, s->library, s->source);
	ck_assert_msg(system(command) == 0, "%s\n%s", command, s->text.data); /* NOLINT */
	void *library = dlopen(s->library, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(library != NULL, "%s", dlerror());
	compare(s, b, library);
	dlclose(library);
	unlink(s->library);
	return true;
}

static void write_source(struct suite_of_cases *s)
{
	(void)snprintf(s->folder, sizeof(s->folder), "%s/tfmc-c-XXXXXX", P_tmpdir);
	ck_assert_ptr_nonnull(mkdtemp(s->folder));
	(void)snprintf(s->source, sizeof(s->source), "%s/cases.c", s->folder);
	(void)snprintf(s->library, sizeof(s->library), "%s/cases.so", s->folder);
	FILE *f = fopen(s->source, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert(fwrite(s->text.data, 1, s->text.len, f) == s->text.len);
	ck_assert_int_eq(fclose(f), 0);
}

void c_case_check(const struct llvm_case *cases, size_t n)
{
	struct arena a;
	struct buf log;
	struct diag_context cx;
	struct suite_of_cases s = {.cases = cases, .n = n};
	struct cfamily_options options = {.dialect = CFAMILY_C, .index_bits = 64, .title = "cases"};
	size_t built = 0;
	arena_init(&a);
	buf_init(&log);
	buf_init(&s.text);
	diag_init(&cx, diag_render_text, &log);
	record(&s, &a);
	enum tfmc_status status = kb_verify(s.m, &cx);
	ck_assert_msg(status == TFMC_OK, "%s", log.data);
	status = cfamily_print(&cx, s.m, &options, &s.text);
	ck_assert_msg(status == TFMC_OK, "%s", log.data);
	write_source(&s);
	for (size_t i = 0; i < TFMC_COUNT(builds); i++)
		built += check_build(&s, &builds[i]);
	ck_assert_msg(built > 0, "no C compiler was found");
	unlink(s.source);
	rmdir(s.folder);
	diag_destroy(&cx);
	buf_destroy(&s.text);
	buf_destroy(&log);
	arena_destroy(&a);
}
