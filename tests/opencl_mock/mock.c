/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mock OpenCL library: the functions of runtime/opencl/calls.def.
 */
#define _POSIX_C_SOURCE 200809L /* strdup */
#include "tests/opencl_mock/mock.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/calls.h"

#define CALL(result, name, parameters) result name parameters;
#include "runtime/opencl/calls.def"

struct mock mock = {.platforms = MOCK_PLATFORMS};

struct cl_platform_object {
	unsigned number;
};

struct cl_device_object {
	unsigned number;
};

static struct cl_platform_object platforms[MOCK_PLATFORMS] = {{0}, {1}};
static struct cl_device_object devices[MOCK_DEVICES] = {{0}, {1}, {2}};

static void read_script(void) __attribute__((constructor));

static void read_script(void)
{
	const struct {
		const char *name;
		int64_t *value;
	} fields[] = {{"platforms=", &mock.platforms},
	              {"fail_at=", &mock.fail_at},
	              {"code=", &mock.code},
	              {"odd=", &mock.odd}};
	const char *text = getenv("MOCK_OPENCL");
	for (size_t i = 0; text && i < sizeof(fields) / sizeof(fields[0]); i++) {
		const char *at = strstr(text, fields[i].name);
		if (at)
			*fields[i].value = strtoll(at + strlen(fields[i].name), NULL, 10);
	}
}

/* Counts and records the call. */
static cl_int begin(const char *name)
{
	if (mock.calls < MOCK_CALLS)
		mock.log[mock.calls] = name;
	return ++mock.calls == mock.fail_at ? (cl_int)mock.code : CL_SUCCESS;
}

static cl_int misuse(cl_int code)
{
	mock.misuse++;
	return code;
}

/* ---- answers ---- */

static cl_int give(const void *answer, size_t n, size_t size, void *value, size_t *needed)
{
	if (value && size < n)
		return misuse(CL_INVALID_VALUE);
	if (value)
		memcpy(value, answer, n);
	if (needed)
		*needed = n;
	return CL_SUCCESS;
}

static cl_int give_text(const char *text, size_t size, void *value, size_t *needed)
{
	static const char controls[] = "  \x1b[31m\nred\x7f\xff\xfe \t";
	static char many[60000];
	size_t huge = (size_t)1 << 40;
	switch ((enum mock_odd)mock.odd) {
	case MOCK_NO_END: return give(text, strlen(text), size, value, needed);
	case MOCK_CONTROLS: return give(controls, sizeof(controls), size, value, needed);
	case MOCK_EMPTY: return give(text, 0, size, value, needed);
	case MOCK_HUGE: return value ? misuse(CL_INVALID_VALUE) : give(NULL, huge, 0, NULL, needed);
	case MOCK_LONG:
		memset(many, 'x', sizeof(many) - 1);
		memcpy(many, text, strlen(text));
		return give(many, sizeof(many), size, value, needed);
	default: return give(text, strlen(text) + 1, size, value, needed);
	}
}

static cl_int give_number(uint64_t number, size_t width, size_t size, void *value, size_t *needed)
{
	uint32_t narrow = (uint32_t)number;
	if (mock.odd == MOCK_SHORT_VALUES)
		width = 1;
	else if (mock.odd == MOCK_TINY)
		narrow = (uint32_t)(number = 1);
	return width == sizeof(number) ? give(&number, width, size, value, needed)
	                               : give(&narrow, width, size, value, needed);
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
		return give_text(mock.odd == MOCK_POCL ? "Portable Computing Language"
		                 : platform->number    ? "Mock Two"
		                                       : "Mock One",
		                 size, value, needed);
	case CL_PLATFORM_VERSION: return give_text("OpenCL 3.0 mock", size, value, needed);
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
	case CL_DEVICE_NAME: return give_text(names[device->number], size, value, needed);
	case CL_DEVICE_VENDOR: return give_text("Nobody", size, value, needed);
	case CL_DRIVER_VERSION: return give_text("7.5", size, value, needed);
	case CL_DEVICE_VERSION:
		return give_text(mock.odd == MOCK_OLD ? "OpenCL 1.1 mock" : "OpenCL 3.0 mock", size, value,
		                 needed);
	case CL_DEVICE_OPENCL_C_VERSION: return give_text("OpenCL C 1.2 mock", size, value, needed);
	case CL_DEVICE_EXTENSIONS:
		return give_text(device->number == 2 ? "cl_khr_fp16 cl_khr_subgroups_not cl_khr_fp64"
		                                     : "cl_khr_integer_dot_product cl_intel_subgroups",
		                 size, value, needed);
	default: return misuse(CL_INVALID_VALUE);
	}
}

cl_int clGetDeviceInfo(cl_device_id device, cl_uint what, size_t size, void *value, size_t *needed)
{
	cl_int code = begin("clGetDeviceInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!device)
		return misuse(CL_INVALID_DEVICE);
	unsigned number = device->number;
	bool is_gpu = number > 0;
	size_t word = sizeof(cl_uint), wide = sizeof(cl_ulong);
	switch (what) {
	case CL_DEVICE_TYPE:
		return give_number(is_gpu ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU, wide, size, value,
		                   needed);
	case CL_DEVICE_MAX_COMPUTE_UNITS: return give_number(8u << number, word, size, value, needed);
	case CL_DEVICE_MAX_CLOCK_FREQUENCY: return give_number(1500, word, size, value, needed);
	case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
		return give_number(is_gpu ? 1 : 8, word, size, value, needed);
	case CL_DEVICE_GLOBAL_MEM_SIZE: return give_number(1 << 20, wide, size, value, needed);
	case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
		return give_number(mock.largest ? (uint64_t)mock.largest : 1 << 18, wide, size, value,
		                   needed);
	case CL_DEVICE_LOCAL_MEM_SIZE: return give_number(1 << 14, wide, size, value, needed);
	case CL_DEVICE_LOCAL_MEM_TYPE:
		return give_number(is_gpu ? CL_LOCAL : CL_GLOBAL, word, size, value, needed);
	case CL_DEVICE_MAX_WORK_GROUP_SIZE: return give_number(256, sizeof(size_t), size, value, needed);
	case CL_DEVICE_HOST_UNIFIED_MEMORY: return give_number(!is_gpu, word, size, value, needed);
	case CL_DEVICE_COMPILER_AVAILABLE:
		return give_number(mock.odd != MOCK_NO_COMPILER, word, size, value, needed);
	case CL_DEVICE_AVAILABLE:
	case CL_DEVICE_ENDIAN_LITTLE: return give_number(1, word, size, value, needed);
	default: return device_text(device, what, size, value, needed);
	}
}

/* ---- objects ---- */

enum object_kind { FREED, CONTEXT, QUEUE, MEMORY, PROGRAM, KERNEL };
struct object {
	enum object_kind kind;
	char *bytes; /* of memory; the source of a program */
	size_t n;
	bool is_host; /* the bytes are the caller's */
	bool is_built;
	struct mock_arg args[MOCK_ARGS]; /* of a kernel; its bytes are the name */
	struct object *next;             /* memory */
};

static struct object *memories; /* all that are not released */

static bool is_object(const void *p, enum object_kind kind)
{
	const struct object *o = p;
	return o && o->kind == kind;
}

static void *create(enum object_kind kind, cl_int *code)
{
	*code = CL_SUCCESS;
	if (mock.odd == MOCK_NULL_OBJECTS)
		return NULL;
	struct object *o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	o->kind = kind;
	mock.live++;
	return o;
}

/* Also when it says that it fails: nobody can try again. */
static cl_int release(const char *name, void *p, enum object_kind kind)
{
	cl_int code = begin(name);
	struct object *o = p;
	if (!is_object(p, kind))
		return misuse(CL_INVALID_VALUE);
	for (struct object **at = &memories; *at; at = &(*at)->next)
		if (*at == o) {
			*at = o->next;
			break;
		}
	if (!o->is_host)
		free(o->bytes);
	free(o);
	mock.live--;
	return code;
}

cl_context clCreateContext(const intptr_t *properties, cl_uint n, const cl_device_id *ids, cl_notify *notify,
                           void *user, cl_int *code)
{
	(void)user;
	if ((*code = begin("clCreateContext")) != CL_SUCCESS)
		return NULL;
	if (n != 1 || !ids[0] || notify || properties[0] != CL_CONTEXT_PLATFORM || properties[2] != 0 ||
	    properties[1] != (intptr_t)&platforms[ids[0]->number > 0]) {
		*code = misuse(CL_INVALID_VALUE);
		return NULL;
	}
	return create(CONTEXT, code);
}

cl_int clReleaseContext(cl_context context)
{
	return release("clReleaseContext", context, CONTEXT);
}

cl_command_queue clCreateCommandQueue(cl_context context, cl_device_id device, cl_ulong properties,
                                      cl_int *code)
{
	if ((*code = begin("clCreateCommandQueue")) != CL_SUCCESS)
		return NULL;
	if (is_object(context, CONTEXT) && device && properties == 0)
		return create(QUEUE, code);
	*code = misuse(CL_INVALID_VALUE);
	return NULL;
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
	return release("clReleaseCommandQueue", queue, QUEUE);
}

cl_int clFinish(cl_command_queue queue)
{
	cl_int code = begin("clFinish");
	mock.later = 0;
	return is_object(queue, QUEUE) ? code : misuse(CL_INVALID_COMMAND_QUEUE);
}

/* ---- memory ---- */

cl_mem clCreateBuffer(cl_context context, cl_ulong flags, size_t size, void *host, cl_int *code)
{
	if ((*code = begin("clCreateBuffer")) != CL_SUCCESS)
		return NULL;
	if (!is_object(context, CONTEXT) || size == 0 || !host != !(flags & CL_MEM_USE_HOST_PTR)) {
		*code = misuse(CL_INVALID_VALUE);
		return NULL;
	}
	struct object *o = create(MEMORY, code);
	if (o) {
		o->n = size;
		o->is_host = host != NULL;
		o->bytes = host ? host : calloc(1, size);
		o->next = memories;
		memories = o;
		mock.shared += o->is_host;
	}
	return (cl_mem)o;
}

cl_int clReleaseMemObject(cl_mem memory)
{
	return release("clReleaseMemObject", memory, MEMORY);
}

/* Where a copy goes to or comes from; NULL: it may not. */
static char *place(cl_command_queue queue, cl_mem memory, size_t offset, size_t size)
{
	const struct object *o = (const void *)memory;
	bool is_fine = is_object(queue, QUEUE) && is_object(memory, MEMORY) && size > 0 && offset <= o->n &&
	               size <= o->n - offset;
	return is_fine ? o->bytes + offset : NULL;
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset,
                            size_t size, const void *from, cl_uint n_events, const cl_event *events,
                            cl_event *event)
{
	cl_int code = begin("clEnqueueWriteBuffer");
	char *at = place(queue, memory, offset, size);
	if (!at || n_events || events || event)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	mock.later = blocking ? 0 : mock.later + 1;
	memcpy(at, from, size);
	return code;
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_uint blocking, size_t offset,
                           size_t size, void *to, cl_uint n_events, const cl_event *events, cl_event *event)
{
	cl_int code = begin("clEnqueueReadBuffer");
	const char *at = place(queue, memory, offset, size);
	if (!at || n_events || events || event)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	mock.later = blocking ? 0 : mock.later + 1;
	memcpy(to, at, size);
	return code;
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t size, cl_uint n_events, const cl_event *events,
                           cl_event *event)
{
	cl_int code = begin("clEnqueueCopyBuffer");
	const char *source = place(queue, from, from_offset, size);
	char *at = place(queue, to, to_offset, size);
	if (!source || !at || n_events || events || event || (source < at + size && at < source + size))
		return misuse(CL_INVALID_VALUE);
	if (code == CL_SUCCESS)
		memcpy(at, source, size);
	return code;
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem memory, const void *pattern, size_t pattern_size,
                           size_t offset, size_t size, cl_uint n_events, const cl_event *events,
                           cl_event *event)
{
	cl_int code = begin("clEnqueueFillBuffer");
	char *at = place(queue, memory, offset, size);
	if (!at || pattern_size != 1 || n_events || events || event)
		return misuse(CL_INVALID_VALUE);
	if (code == CL_SUCCESS)
		memset(at, *(const char *)pattern, size);
	return code;
}

#define BINARY_BEGIN 6

/* ---- programs ---- */

static void *program_of(const void *bytes, size_t n, cl_int *code)
{
	struct object *o = create(PROGRAM, code);
	if (o) {
		o->bytes = calloc(1, n + 1);
		if (!o->bytes)
			abort();
		memcpy(o->bytes, bytes, n);
		o->n = n;
	}
	return o;
}

cl_program clCreateProgramWithSource(cl_context context, cl_uint n, const char **texts, const size_t *lengths,
                                     cl_int *code)
{
	if ((*code = begin("clCreateProgramWithSource")) != CL_SUCCESS)
		return NULL;
	if (is_object(context, CONTEXT) && n == 1 && lengths[0] > 0)
		return program_of(texts[0], lengths[0], code);
	*code = misuse(CL_INVALID_VALUE);
	return NULL;
}

/* A binary is the word BINARY and the source. */
cl_program clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id *ids,
                                     const size_t *lengths, const unsigned char **binaries, cl_int *statuses,
                                     cl_int *code)
{
	if ((*code = begin("clCreateProgramWithBinary")) != CL_SUCCESS)
		return NULL;
	if (!is_object(context, CONTEXT) || n != 1 || !ids[0] || lengths[0] == 0) {
		*code = misuse(CL_INVALID_VALUE);
		return NULL;
	}
	if (lengths[0] <= BINARY_BEGIN || memcmp(binaries[0], "BINARY", BINARY_BEGIN) != 0) {
		*code = statuses[0] = CL_INVALID_BINARY;
		return NULL;
	}
	return program_of(binaries[0] + BINARY_BEGIN, lengths[0] - BINARY_BEGIN, code);
}

cl_int clGetProgramInfo(cl_program program, cl_uint what, size_t size, void *value, size_t *needed)
{
	const struct object *o = (const void *)program;
	cl_int code = begin("clGetProgramInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!is_object(program, PROGRAM) || !o->is_built || !value || size != sizeof(size_t))
		return misuse(CL_INVALID_VALUE);
	if (what == CL_PROGRAM_BINARY_SIZES)
		return give_number(mock.odd == MOCK_EMPTY  ? 0
		                   : mock.odd == MOCK_HUGE ? (uint64_t)1 << 40
		                                           : BINARY_BEGIN + o->n,
		                   sizeof(size_t), size, value, needed);
	if (what != CL_PROGRAM_BINARIES)
		return misuse(CL_INVALID_VALUE);
	char *to;
	memcpy(&to, value, sizeof(to));
	if (mock.odd == MOCK_TINY) {
		*to = 'B';
		return CL_SUCCESS;
	}
	memcpy(to, "BINARY", BINARY_BEGIN);
	memcpy(to + BINARY_BEGIN, o->bytes, o->n);
	return CL_SUCCESS;
}

cl_int clReleaseProgram(cl_program program)
{
	return release("clReleaseProgram", program, PROGRAM);
}

cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *ids, const char *options,
                      cl_build_notify *notify, void *user)
{
	cl_int code = begin("clBuildProgram");
	struct object *o = (void *)program;
	(void)options, (void)user;
	if (!is_object(program, PROGRAM) || n != 1 || !ids[0] || notify)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	o->is_built = !strstr(o->bytes, "WRONG");
	return o->is_built ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_uint what, size_t size, void *value,
                             size_t *needed)
{
	cl_int code = begin("clGetProgramBuildInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!is_object(program, PROGRAM) || !device || what != CL_PROGRAM_BUILD_LOG)
		return misuse(CL_INVALID_VALUE);
	return give_text("source:1: note: a long way\nsource:2:5: error: WRONG is no word\n", size, value,
	                 needed);
}

cl_kernel clCreateKernel(cl_program program, const char *name, cl_int *code)
{
	const struct object *of = (const void *)program;
	if ((*code = begin("clCreateKernel")) != CL_SUCCESS)
		return NULL;
	if (!is_object(program, PROGRAM) || !of->is_built) {
		*code = misuse(CL_INVALID_PROGRAM_EXECUTABLE);
		return NULL;
	}
	*code = CL_INVALID_KERNEL_NAME;
	struct object *o = strstr(of->bytes, name) ? create(KERNEL, code) : NULL;
	if (o)
		o->bytes = strdup(name);
	return (cl_kernel)o;
}

cl_int clReleaseKernel(cl_kernel kernel)
{
	return release("clReleaseKernel", kernel, KERNEL);
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
	cl_int code = begin("clSetKernelArg");
	struct object *o = (void *)kernel;
	if (!is_object(kernel, KERNEL) || size == 0 || size > sizeof(o->args[0].value) || !value)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS || index >= MOCK_ARGS)
		return code != CL_SUCCESS ? code : CL_INVALID_ARG_INDEX;
	o->args[index].size = size;
	memcpy(o->args[index].value, value, size);
	return CL_SUCCESS;
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, cl_uint what, size_t size, void *value,
                                size_t *needed)
{
	cl_int code = begin("clGetKernelWorkGroupInfo");
	if (code != CL_SUCCESS)
		return code;
	if (!is_object(kernel, KERNEL) || !device || what != CL_KERNEL_WORK_GROUP_SIZE)
		return misuse(CL_INVALID_VALUE);
	return give_number(128, sizeof(size_t), size, value, needed);
}

/* Arguments that are memory get its bytes: a handle is told from a number by what exists. */
static void tell(struct object *kernel)
{
	for (size_t i = 0; i < MOCK_ARGS; i++) {
		struct mock_arg *a = &kernel->args[i];
		const struct object *o = memories;
		while (o && (a->size != sizeof(o) || memcmp(a->value, &o, sizeof(o)) != 0))
			o = o->next;
		a->bytes = o ? o->bytes : NULL;
		a->n = o ? o->n : 0;
	}
	mock.launched(mock.user, kernel->bytes, kernel->args);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *first,
                              const size_t *global, const size_t *local, cl_uint n_events,
                              const cl_event *events, cl_event *event)
{
	cl_int code = begin("clEnqueueNDRangeKernel");
	if (!is_object(queue, QUEUE) || !is_object(kernel, KERNEL) || dims < 1 || dims > 2 || first ||
	    n_events || events || event)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	size_t items = 1;
	for (cl_uint i = 0; i < 2; i++) {
		mock.items[i] = i < dims ? (int64_t)local[i] : 1;
		mock.groups[i] = i < dims ? (int64_t)(global[i] / local[i]) : 1;
		if (i < dims && global[i] % local[i])
			return misuse(CL_INVALID_WORK_GROUP_SIZE);
		items *= (size_t)mock.items[i];
	}
	if (items > 128)
		return CL_INVALID_WORK_GROUP_SIZE;
	if (mock.launched)
		tell((void *)kernel);
	return CL_SUCCESS;
}
