/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a kernel through LLVM and through the kernel interpreter, see llvm_case.h:
 * on every target of this machine, and on aarch64 where it can be emulated.
 */
#include "tests/support/kernels/llvm_case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "tests/kb_interp/interp.h"
#include "backends/object/llvm.h"
#include "tests/support/cross.h"

#define DATA_MAX 4
#define FUNCTION "test_case"

typedef void case_fn(const void *in, void *out);

static struct kb_module *record(struct arena *a, const struct llvm_case *c, const struct kb_caps *caps)
{
	struct kb_module *m = kb_module_create(a, caps);
	if (c->functions)
		c->functions(m);
	struct kb *k = kb_begin(m, FUNCTION, KB_EXPORTED, KB_VOID);
	struct kb_val in = kb_param(k, "in", KB_PTR_T, KB_READONLY);
	struct kb_val out = kb_param(k, "out", KB_PTR_T, 0);
	c->body(k, in, out);
	kb_end(k);
	return m;
}

static void run_object(struct diag_context *cx, const struct buf *object, const struct llvm_case *c,
                       void *out)
{
	struct backend_jit *jit;
	case_fn *fn;
	ck_assert_int_eq(backend_jit_load(cx, object, &jit), TFMC_OK);
	void *at = backend_jit_symbol(jit, FUNCTION);
	ck_assert_ptr_nonnull(at);
	memcpy(&fn, &at, sizeof(fn));
	fn(c->in, out);
	backend_jit_destroy(jit);
}

static void run_machine(struct diag_context *cx, const struct kb_module *m, const struct target *t,
                        const struct llvm_case *c, void *out)
{
	struct buf object;
	buf_init(&object);
	struct llvm_options options = {.target = t, .opt_level = 2};
	struct llvm_output result = {.object = &object};
	ck_assert_int_eq(llvm_compile(cx, m, FUNCTION, &options, &result), TFMC_OK);
	if (target_runs_on_host(t))
		run_object(cx, &object, c, out);
	else
		cross_call(&object, FUNCTION, c->in, c->in_bytes, out, c->out_bytes);
	buf_destroy(&object);
}

static void run_interpreter(const struct kb_module *m, const struct llvm_case *c, void *out)
{
	void *in = malloc(c->in_bytes + 1);
	ck_assert_ptr_nonnull(in);
	memcpy(in, c->in, c->in_bytes);
	struct kb_range ranges[2 + DATA_MAX] = {{in, c->in_bytes, false}, {out, c->out_bytes, true}};
	struct kb_interp interp = {.module = m, .ranges = ranges, .n_ranges = 2};
	for (size_t i = 0; i < kb_data_count(m) && i < DATA_MAX; i++) {
		const struct kb_data_item *d = kb_data_at(m, i);
		ranges[interp.n_ranges++] = (struct kb_range){(void *)(uintptr_t)d->bytes, d->n, false};
	}
	union kb_cell args[] = {{.p = in}, {.p = out}};
	bool ok = kb_interp_call(&interp, FUNCTION, args, 2, NULL);
	ck_assert_msg(ok, "interpreter: %s", interp.error);
	free(in);
}

static void compare(const struct target *t, const unsigned char *machine, const unsigned char *interpreter,
                    size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(machine[i] == interpreter[i], "%s: byte %zu is %02x, the interpreter says %02x",
		              t->name, i, machine[i], interpreter[i]);
}

void llvm_case_check_on(const struct llvm_case *c, const struct target *t, const struct kb_caps *caps)
{
	struct arena a;
	struct buf log;
	struct diag_context cx;
	unsigned char *machine = calloc(1, c->out_bytes), *interpreter = calloc(1, c->out_bytes);
	arena_init(&a);
	buf_init(&log);
	diag_init(&cx, diag_render_text, &log);
	struct kb_module *m = record(&a, c, caps);
	enum tfmc_status verified = kb_verify(m, &cx);
	ck_assert_msg(verified == TFMC_OK, "%s", log.data);
	run_machine(&cx, m, t, c, machine);
	run_interpreter(m, c, interpreter);
	compare(t, machine, interpreter, c->out_bytes);
	free(machine);
	free(interpreter);
	diag_destroy(&cx);
	buf_destroy(&log);
	arena_destroy(&a);
}

void llvm_case_check(const struct llvm_case *c)
{
	for (size_t i = 0; target_level_at(i); i++) {
		const struct target *t = target_level_at(i);
		bool runs = target_runs_on_host(t);
		struct kb_caps caps = kb_caps_of(t);
		if (runs || (t->arch == ARCH_AARCH64 && cross_has_tools()))
			llvm_case_check_on(c, t, &caps);
	}
}
