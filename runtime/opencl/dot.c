/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test of the device's integer dot products (cl_khr_integer_dot_product). Kernels use them if the device has
 * the extension and a small kernel computes the expected values. If anything fails here, they do without.
 */
#include <string.h>

#include "runtime/opencl/model_internal.h"

#define VECTORS 8

/* Vectors of four i8: -128, 127, -1, 0 and 1 in every position, against each other. */
static const uint32_t x[VECTORS] = {0x80808080, 0x7f7f7f7f, 0x80808080, 0x01ff7f80,
                                    0x00ff807f, 0xffffffff, 0x04030201, 0xfb8007fd};
static const uint32_t y[VECTORS] = {0x80808080, 0x80808080, 0x7f7f7f7f, 0x807f01ff,
                                    0x7f80ff01, 0x01010101, 0xfefdfcfb, 0x80fe7f03};
static const char test_source[] =
        "__kernel __attribute__((reqd_work_group_size(8, 1, 1)))\n"
        "void dots(__global const uint *x, __global const uint *y, __global int *out)\n"
        "{\n"
        "\tsize_t i = get_global_id(0);\n"
        "\tout[i] = dot_4x8packed_ss_int(x[i], y[i]);\n"
        "}\n";

static int32_t signed_byte(uint32_t vector, int at)
{
	int32_t byte = (int32_t)(vector >> 8 * at & 0xff);
	return byte < 128 ? byte : byte - 256;
}

static bool are_correct(const int32_t *dots)
{
	for (int i = 0; i < VECTORS; i++) {
		int32_t sum = 0;
		for (int at = 0; at < 4; at++)
			sum += signed_byte(x[i], at) * signed_byte(y[i], at);
		if (dots[i] != sum)
			return false;
	}
	return true;
}

/* Objects of the test; each may be NULL. */
struct dot_test {
	struct tfmc_cl_program *program;
	struct tfmc_cl_kernel *kernel;
	struct tfmc_cl_buffer *buffer[3]; /* x, y, out */
};

static int run_test(const struct tfmc_cl_model *m, struct dot_test *p, int32_t *dots)
{
	static const uint64_t one[2] = {1, 1}, items[2] = {VECTORS, 1};
	const struct tfmc_cl_source source = {test_source, sizeof(test_source) - 1, MODEL_LANGUAGE,
	                                      m->device.cache};
	const void *in[] = {x, y, dots};
	TRY(tfmc_cl_program_build(m->context, &source, &p->program, NULL));
	TRY(tfmc_cl_kernel_create(p->program, "dots", &p->kernel, NULL));
	for (uint32_t i = 0; i < 3; i++) {
		TRY(tfmc_cl_buffer_create(m->context, sizeof(x), &p->buffer[i], NULL));
		TRY(tfmc_cl_upload(p->buffer[i], 0, in[i], sizeof(x), NULL));
		TRY(tfmc_cl_kernel_set_buffer(p->kernel, i, p->buffer[i], NULL));
	}
	TRY(tfmc_cl_launch(p->kernel, one, items, NULL));
	return tfmc_cl_download(p->buffer[2], 0, dots, sizeof(x), NULL);
}

static bool source_uses_dot(const struct tfmc_cl_code *code)
{
	static const char macro[] = "TFMC_DOT";
	const char *at = code->source, *end = at + code->source_bytes;
	while ((at = memchr(at, macro[0], (size_t)(end - at))) != NULL) {
		if ((size_t)(end - at) >= sizeof(macro) - 1 && memcmp(at, macro, sizeof(macro) - 1) == 0)
			return true;
		at++;
	}
	return false;
}

bool model_has_dot(const struct tfmc_cl_model *m)
{
	struct dot_test p = {0};
	int32_t dots[VECTORS] = {0};
	if (!m->chosen->has_integer_dot || !source_uses_dot(&m->code))
		return false;
	bool is_right = run_test(m, &p, dots) == TFMC_CL_OK && are_correct(dots);
	for (int i = 0; i < 3; i++)
		tfmc_cl_buffer_free(p.buffer[i]);
	tfmc_cl_kernel_free(p.kernel);
	tfmc_cl_program_free(p.program);
	return is_right;
}
