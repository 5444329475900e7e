/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints, lints and runs a kernel, see opencl_case.h.
 */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "tests/support/opencl/opencl_case.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/print/cfamily.h"
#include "tests/kb_interp/interp.h"
#include "tests/support/opencl/opencl_device.h"

#define DATA_MAX 4

struct recorded {
	struct arena arena;
	struct buf log, text;
	struct diag_context cx;
	struct kb_module *module;
};

static void record(struct recorded *r, const struct opencl_case *c)
{
	struct kb_caps caps = {.lanes = 8, .registers = 16, .has_fma = true, .shared_bytes = 32768};
	arena_init(&r->arena);
	buf_init(&r->log);
	buf_init(&r->text);
	diag_init(&r->cx, diag_render_text, &r->log);
	r->module = kb_module_create(&r->arena, &caps);
	if (c->functions)
		c->functions(r->module);
	struct kb *k = kb_begin(r->module, "case_kernel", KB_KERNEL, KB_VOID);
	struct kb_val in = kb_param(k, "in", KB_PTR_T, KB_NOALIAS | KB_READONLY);
	struct kb_val out = kb_param(k, "out", KB_PTR_T, KB_NOALIAS);
	if (c->items)
		kb_group_size(k, c->items);
	c->body(k, in, out);
	kb_end(k);
	enum tfmc_status verified = kb_verify(r->module, &r->cx);
	ck_assert_msg(verified == TFMC_OK, "%s", r->log.data);
}

static void forget(struct recorded *r)
{
	diag_destroy(&r->cx);
	buf_destroy(&r->log);
	buf_destroy(&r->text);
	arena_destroy(&r->arena);
}

static enum tfmc_status print(struct recorded *r, int index_bits)
{
	struct cfamily_options options = {.dialect = CFAMILY_OPENCL, .index_bits = index_bits};
	return cfamily_print(&r->cx, r->module, &options, &r->text);
}

/* ---- lint ---- */

static bool has_clang(void)
{
	static const char *const command = "clang-19 --version >/dev/null 2>&1";
	if (system(command) == 0)
		return true;
	(void)fprintf(stderr, "no clang-19: OpenCL C is not linted\n");
	return false;
}

static void lint(const struct buf *text, const char *target)
{
	char path[] = "/tmp/tfmc-lint-XXXXXX", command[1024];
	if (!has_clang())
		return;
	int fd = mkstemp(path);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text->data, 1, text->len, f), text->len);
	ck_assert_int_eq(fclose(f), 0);
	(void)snprintf(command, sizeof command,
	               "clang-19 -target %s -x cl -cl-std=CL1.2 -Xclang -cl-ext=-all -Xclang "
	               "-finclude-default-header -Wall -Wextra -Wdouble-promotion -Werror -fsyntax-only "
	               "'%s'",
	               target, path);
	ck_assert_msg(system(command) == 0, "clang refuses the text for %s, see above", target);
	(void)remove(path);
}

/* ---- running ---- */

static void run_interpreter(const struct kb_module *m, const struct opencl_case *c, void *out)
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
	bool ok = kb_interp_launch(&interp, "case_kernel", args, 2, c->groups ? c->groups : 1);
	ck_assert_msg(ok, "interpreter: %s", interp.error);
	free(in);
}

static void run_device(struct opencl_device *d, const struct buf *text, const struct opencl_case *c,
                       void *out)
{
	struct opencl_device_buffer in_buffer = opencl_device_alloc(d, c->in_bytes, c->in);
	struct opencl_device_buffer out_buffer = opencl_device_alloc(d, c->out_bytes, out);
	struct opencl_device_arg args[] = {{.kind = OPENCL_DEVICE_BUFFER, .buffer = &in_buffer},
	                                   {.kind = OPENCL_DEVICE_BUFFER, .buffer = &out_buffer}};
	bool ok = opencl_device_build(d, text->data, text->len, "-cl-std=CL1.2") &&
	          opencl_device_launch(d, "case_kernel", args, 2, c->groups ? c->groups : 1,
	                               c->items ? c->items : 1) &&
	          opencl_device_read(d, &out_buffer, 0, out, c->out_bytes);
	if (!ok)
		(void)fprintf(stderr, "%s\n%s\n", text->data, opencl_device_error(d));
	ck_assert_msg(ok, "the device fails, see above");
	opencl_device_free(d, &in_buffer);
	opencl_device_free(d, &out_buffer);
}

static void compare(const struct buf *text, const unsigned char *device, const unsigned char *expected,
                    size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (device[i] == expected[i])
			continue;
		(void)fprintf(stderr, "%s", text->data); /* too long for a message of Check */
		ck_abort_msg("byte %zu is %02x, not %02x (4-byte element %zu)", i, device[i], expected[i],
		             i / 4);
	}
}

static void check_width(const struct opencl_case *c, struct opencl_device *d, int index_bits)
{
	struct recorded r;
	record(&r, c);
	enum tfmc_status printed = print(&r, index_bits);
	ck_assert_msg(printed == TFMC_OK, "%s", r.log.data);
	lint(&r.text, index_bits == 32 ? "spir" : "spir64");
	unsigned char *device = calloc(1, c->out_bytes), *expected = calloc(1, c->out_bytes);
	ck_assert(device && expected);
	if (c->expected)
		memcpy(expected, c->expected, c->out_bytes);
	else
		run_interpreter(r.module, c, expected);
	if (d) {
		run_device(d, &r.text, c, device);
		compare(&r.text, device, expected, c->out_bytes);
	}
	free(device);
	free(expected);
	forget(&r);
}

void opencl_case_check(const struct opencl_case *c)
{
	struct opencl_device *d = opencl_device_open("Portable Computing Language");
	check_width(c, d, 32);
	check_width(c, d, 64);
	opencl_device_close(d);
}

void opencl_case_print(const struct opencl_case *c, struct buf *out)
{
	struct recorded r;
	record(&r, c);
	enum tfmc_status printed = print(&r, 32);
	ck_assert_msg(printed == TFMC_OK, "%s", r.log.data);
	buf_init(out);
	buf_bytes(out, r.text.data, r.text.len);
	forget(&r);
}

void opencl_case_refused(const struct opencl_case *c, const char *message)
{
	struct recorded r;
	record(&r, c);
	ck_assert_int_eq(print(&r, 32), TFMC_INVALID);
	ck_assert_msg(strstr(r.log.data, message), "%s", r.log.data);
	forget(&r);
}
