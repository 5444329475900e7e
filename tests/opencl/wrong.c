/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrong kernels, and their launches: 2 work-groups of 4 items on a buffer of
 * 8 floats, of which the first 4 are written by the host.
 */
#include "tests/opencl/wrong.h"

#include <stddef.h>
#include <string.h>

#define FLOATS 8

struct wrong {
	const char *kind, *source;
};

static const struct wrong table[] = {
        {"race", "__kernel void wrong(__global float *x) { x[0] = (float)get_global_id(0); }\n"},
        {"local-race", "__kernel void wrong(__global float *x)\n"
                       "{\n"
                       "	__local float shared[4];\n"
                       "	shared[get_local_id(0)] = (float)get_global_id(0);\n"
                       "	x[get_global_id(0)] = shared[3 - get_local_id(0)];\n" /* no barrier */
                       "}\n"},
        {"bounds", "__kernel void wrong(__global float *x) { x[get_global_id(0) + 1] = 1.0f; }\n"},
        {"read-bounds", "__kernel void wrong(__global float *x)\n"
                        "{\n"
                        "	float y = x[get_global_id(0) + 8];\n"
                        "	x[get_global_id(0)] = y;\n"
                        "}\n"},
        {"unset", "__kernel void wrong(__global float *x)\n"
                  "{\n"
                  "	if (get_global_id(0) == 0)\n"
                  "		x[1] = x[6] > 0.0f ? 1.0f : 2.0f;\n"
                  "}\n"},
};

static bool launch(struct opencl_device *d, const char *source)
{
	static const float first[FLOATS / 2] = {1, 2, 3, 4};
	float back[FLOATS];
	if (!opencl_device_build(d, source, strlen(source), "-cl-std=CL1.2"))
		return false;
	struct opencl_device_buffer x = opencl_device_alloc(d, sizeof(back), NULL);
	const struct opencl_device_arg arg = {.kind = OPENCL_DEVICE_BUFFER, .buffer = &x};
	bool ok = opencl_device_write(d, &x, 0, first, sizeof(first)) &&
	          opencl_device_launch(d, "wrong", &arg, 1, 2, 4) && opencl_device_finish(d) &&
	          opencl_device_read(d, &x, 0, back, sizeof(back));
	opencl_device_free(d, &x);
	return ok;
}

bool wrong_run(struct opencl_device *d, const char *kind)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(table[i].kind, kind) == 0)
			return launch(d, table[i].source);
	return false;
}
