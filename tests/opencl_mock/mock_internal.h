/* SPDX-License-Identifier: Apache-2.0 */
/*
* Internal declarations of the mock library.
 */
#ifndef TFMC_TESTS_OPENCL_MOCK_MOCK_INTERNAL_H
#define TFMC_TESTS_OPENCL_MOCK_MOCK_INTERNAL_H

#include "runtime/opencl/calls.h"
#include "tests/opencl_mock/mock.h"

struct cl_platform_object {
	unsigned number;
};

struct cl_device_object {
	unsigned number;
};

extern struct mock mock;
extern struct cl_platform_object platforms[MOCK_PLATFORMS];
extern struct cl_device_object devices[MOCK_DEVICES];

#define CALL(result, name, parameters) result name parameters;
#include "runtime/opencl/calls.def"

/* Counts and records the call. */
cl_int begin(const char *name);
/* The same code. */
cl_int misuse(cl_int code);

/* Answers of queries as the script has them. */
cl_int return_text(const char *text, size_t size, void *value, size_t *needed);
cl_int return_number(uint64_t number, size_t width, size_t size, void *value, size_t *needed);

#endif
