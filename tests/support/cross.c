/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects for aarch64 on another machine, see cross.h. Everything lies in a
 * folder of its own, which is removed at the end.
 */
#define _POSIX_C_SOURCE 200809L
#include "tests/support/cross.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COMPILER "aarch64-linux-gnu-gcc"
#define EMULATOR "qemu-aarch64-static"

/* The buffers lie on addresses that are multiples of 64. */
static const char program[] = "#include <stdio.h>\n"
                              "void SYMBOL(const void *in, void *out);\n"
                              "static _Alignas(64) char in[IN_BYTES], out[OUT_BYTES];\n"
                              "int main(int argc, char **argv)\n"
                              "{\n"
                              "	FILE *f = argc == 3 ? fopen(argv[1], \"rb\") : NULL;\n"
                              "	if (!f || fread(in, 1, sizeof(in), f) > sizeof(in))\n"
                              "		return 1;\n"
                              "	fclose(f);\n"
                              "	SYMBOL(in, out);\n"
                              "	f = fopen(argv[2], \"wb\");\n"
                              "	return !f || fwrite(out, 1, sizeof(out), f) != sizeof(out) || fclose(f);\n"
                              "}\n";
static const char *const files[] = {"main.c", "case.o", "in", "out", "program"};

bool cross_has_tools(void)
{
	return !system("command -v " COMPILER " >/dev/null && command -v " EMULATOR " >/dev/null");
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

static void read_file(const char *folder, const char *name, void *bytes, size_t n)
{
	char path[256];
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	FILE *f = fopen(path, "rb");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fread(bytes, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

static void remove_all(const char *folder)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[256];
		(void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		(void)remove(path);
	}
	(void)rmdir(folder);
}

void cross_call(const struct buf *object, const char *symbol, const void *in, size_t in_bytes, void *out,
                size_t out_bytes)
{
	char folder[] = "/tmp/tfmc-cross-XXXXXX", command[1024];
	ck_assert_ptr_nonnull(mkdtemp(folder));
	write_file(folder, "main.c", program, sizeof(program) - 1);
	write_file(folder, "case.o", object->data, object->len);
	write_file(folder, "in", in, in_bytes);
	(void)snprintf(command, sizeof(command),
	               "cd %s && " COMPILER
	               " -static -DSYMBOL='%s' -DIN_BYTES=%zu -DOUT_BYTES=%zu main.c case.o "
	               "-o program && " EMULATOR " ./program in out",
	               folder, symbol, in_bytes + 1, out_bytes);
	int status = system(command);
	if (!status)
		read_file(folder, "out", out, out_bytes);
	remove_all(folder);
	ck_assert_msg(!status, "the program for aarch64 ended with %d", status);
}
