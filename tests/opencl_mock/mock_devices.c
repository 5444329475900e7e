/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Platforms and devices of the mock library, and answers, usual and odd.
 */
#include "tests/opencl_mock/mock_internal.h"

#include <stdbool.h>
#include <string.h>

/* ---- answers ---- */

static cl_int return_bytes(const void *answer, size_t n, size_t size, void *value, size_t *needed)
{
	if (value && size < n)
		return misuse(CL_INVALID_VALUE);
	if (value)
		memcpy(value, answer, n);
	if (needed)
		*needed = n;
	return CL_SUCCESS;
}

cl_int return_text(const char *text, size_t size, void *value, size_t *needed)
{
	static const char controls[] = "  \x1b[31m\nred\x7f\xff\xfe \t";
	static char many[60000];
	size_t huge = (size_t)1 << 40;
	switch ((enum mock_odd)mock.odd) {
	case MOCK_NO_END: return return_bytes(text, strlen(text), size, value, needed);
	case MOCK_CONTROLS: return return_bytes(controls, sizeof(controls), size, value, needed);
	case MOCK_EMPTY: return return_bytes(text, 0, size, value, needed);
	case MOCK_HUGE: return value ? misuse(CL_INVALID_VALUE) : return_bytes(NULL, huge, 0, NULL, needed);
	case MOCK_LONG:
		memset(many, 'x', sizeof(many) - 1);
		memcpy(many, text, strlen(text));
		return return_bytes(many, sizeof(many), size, value, needed);
	default: return return_bytes(text, strlen(text) + 1, size, value, needed);
	}
}

cl_int return_number(uint64_t number, size_t width, size_t size, void *value, size_t *needed)
{
	uint32_t narrow = (uint32_t)number;
	if (mock.odd == MOCK_SHORT_VALUES)
		width = 1;
	else if (mock.odd == MOCK_TINY)
		narrow = (uint32_t)(number = 1);
	return width == sizeof(number) ? return_bytes(&number, width, size, value, needed)
	                               : return_bytes(&narrow, width, size, value, needed);
}

/* ---- platforms and devices ---- */

cl_int clGetPlatformIDs(cl_uint cap, cl_platform_id *ids, cl_uint *n)
{
	cl_int code = begin("clGetPlatformIDs");
	if (code != CL_SUCCESS)
		return code;
	cl_uint count = (cl_uint)mock.platforms;
	for (cl_uint i = 0; ids && i < count && i < cap; i++)
		ids[i] = mock.odd == MOCK_NULL_IDS ? NULL : &platforms[i];
	if (n)
		*n = mock.odd == MOCK_MANY ? UINT32_MAX : count;
	return CL_SUCCESS;
}

cl_int clGetPlatformInfo(cl_platform_id platform, cl_uint what, size_t size, void *value, size_t *needed)
{
	cl_int code = begin("clGetPlatformInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!platform)
		return misuse(CL_INVALID_PLATFORM);
	switch (what) {
	case CL_PLATFORM_NAME:
		return return_text(mock.odd == MOCK_POCL ? "Portable Computing Language"
		                   : platform->number    ? "Mock Two"
		                                         : "Mock One",
		                   size, value, needed);
	case CL_PLATFORM_VERSION: return return_text("OpenCL 3.0 mock", size, value, needed);
	default: return misuse(CL_INVALID_VALUE);
	}
}

cl_int clGetDeviceIDs(cl_platform_id platform, cl_ulong type, cl_uint cap, cl_device_id *ids, cl_uint *n)
{
	cl_int code = begin("clGetDeviceIDs");
	if (code != CL_SUCCESS)
		return code;
	if (!platform || type != CL_DEVICE_TYPE_ALL)
		return misuse(CL_INVALID_VALUE);
	cl_uint first = platform->number, count = platform->number ? 2 : 1;
	for (cl_uint i = 0; ids && i < count && i < cap; i++)
		ids[i] = mock.odd == MOCK_NULL_DEVICES ? NULL : &devices[first + i];
	if (n)
		*n = mock.odd == MOCK_NO_DEVICES ? 0 : count;
	return CL_SUCCESS;
}

static cl_int device_text(cl_device_id device, cl_uint what, size_t size, void *value, size_t *needed)
{
	static const char *const names[MOCK_DEVICES] = {"Mock Processor", "Mock GPU small", "Mock GPU large"};
	switch (what) {
	case CL_DEVICE_NAME: return return_text(names[device->number], size, value, needed);
	case CL_DEVICE_VENDOR: return return_text("Nobody", size, value, needed);
	case CL_DRIVER_VERSION: return return_text("7.5", size, value, needed);
	case CL_DEVICE_VERSION:
		return return_text(mock.odd == MOCK_OLD ? "OpenCL 1.1 mock" : "OpenCL 3.0 mock", size, value,
		                   needed);
	case CL_DEVICE_OPENCL_C_VERSION: return return_text("OpenCL C 1.2 mock", size, value, needed);
	case CL_DEVICE_EXTENSIONS:
		return return_text(device->number == 2 && mock.dot != MOCK_NO_DOT
		                           ? "cl_khr_integer_dot_product"
		                   : device->number == 2 ? "cl_khr_fp16 cl_khr_subgroups_not cl_khr_fp64"
		                                         : "cl_khr_integer_dot_product cl_intel_subgroups",
		                   size, value, needed);
	default: return misuse(CL_INVALID_VALUE);
	}
}

/* Of the first version of the extension: no such question. */
static cl_int dot_speed(size_t size, void *value, size_t *needed)
{
	const struct cl_dot_speed speed = {.is_fast_signed = mock.dot != MOCK_DOT_SLOW};
	return mock.dot == MOCK_DOT_OLD ? CL_INVALID_VALUE
	                                : return_bytes(&speed, sizeof(speed), size, value, needed);
}

cl_int clGetDeviceInfo(cl_device_id device, cl_uint what, size_t size, void *value, size_t *needed)
{
	bool is_dot = what == CL_DEVICE_INTEGER_DOT_PRODUCT_SPEED;
	cl_int code = begin(is_dot ? "clGetDeviceInfo of dot products" : "clGetDeviceInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!device)
		return misuse(CL_INVALID_DEVICE);
	unsigned number = device->number;
	bool is_gpu = number > 0;
	size_t word = sizeof(cl_uint), wide = sizeof(cl_ulong);
	switch (what) {
	case CL_DEVICE_TYPE:
		return return_number(is_gpu ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU, wide, size, value,
		                     needed);
	case CL_DEVICE_MAX_COMPUTE_UNITS: return return_number(8u << number, word, size, value, needed);
	case CL_DEVICE_MAX_CLOCK_FREQUENCY: return return_number(1500, word, size, value, needed);
	case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
		return return_number(is_gpu ? 1 : 16, word, size, value, needed);
	case CL_DEVICE_GLOBAL_MEM_SIZE: return return_number(1 << 20, wide, size, value, needed);
	case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
		return return_number(mock.largest ? (uint64_t)mock.largest : 1 << 18, wide, size, value,
		                     needed);
	case CL_DEVICE_LOCAL_MEM_SIZE: return return_number(1 << 14, wide, size, value, needed);
	case CL_DEVICE_LOCAL_MEM_TYPE:
		return return_number(is_gpu ? CL_LOCAL : CL_GLOBAL, word, size, value, needed);
	case CL_DEVICE_MAX_WORK_GROUP_SIZE: return return_number(256, sizeof(size_t), size, value, needed);
	case CL_DEVICE_HOST_UNIFIED_MEMORY: return return_number(!is_gpu, word, size, value, needed);
	case CL_DEVICE_COMPILER_AVAILABLE:
		return return_number(mock.odd != MOCK_NO_COMPILER, word, size, value, needed);
	case CL_DEVICE_INTEGER_DOT_PRODUCT_SPEED: return dot_speed(size, value, needed);
	case CL_DEVICE_AVAILABLE:
	case CL_DEVICE_ENDIAN_LITTLE: return return_number(1, word, size, value, needed);
	default: return device_text(device, what, size, value, needed);
	}
}
