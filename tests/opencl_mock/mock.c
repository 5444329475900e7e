/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mock OpenCL library: the functions of runtime/opencl/calls.def.
 */
#include "tests/opencl_mock/mock_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct mock mock = {.platforms = MOCK_PLATFORMS};

struct cl_platform_object platforms[MOCK_PLATFORMS] = {{0}, {1}};
struct cl_device_object devices[MOCK_DEVICES] = {{0}, {1}, {2}};

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

cl_int begin(const char *name)
{
	if (mock.calls < MOCK_CALLS)
		mock.log[mock.calls] = name;
	return ++mock.calls == mock.fail_at ? (cl_int)mock.code : CL_SUCCESS;
}

cl_int misuse(cl_int code)
{
	mock.misuse++;
	return code;
}

/* ---- objects ---- */

enum object_kind { FREED, CONTEXT, QUEUE, MEMORY, PROGRAM, KERNEL, EVENT };
struct object {
	enum object_kind kind;
	char *bytes; /* of memory; the source of a program */
	size_t n;
	bool is_host; /* the bytes are the caller's */
	bool is_built;
	bool is_timed;                   /* a queue; an event that was waited for */
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
	if (!o) {
		*code = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	o->kind = kind;
	mock.live++;
	return o;
}

/* Also when it says that it fails: the caller cannot try again. */
/* The same with n zero bytes of its own. */
static void *create_with_bytes(enum object_kind kind, size_t n, cl_int *code)
{
	struct object *o = create(kind, code);
	if (!o || (o->bytes = calloc(1, n)))
		return o;
	free(o);
	mock.live--;
	*code = CL_OUT_OF_HOST_MEMORY;
	return NULL;
}

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
	if (!is_object(context, CONTEXT) || !device || (properties & ~(cl_ulong)CL_QUEUE_PROFILING_ENABLE)) {
		*code = misuse(CL_INVALID_VALUE);
		return NULL;
	}
	struct object *o = create(QUEUE, code);
	if (o)
		o->is_timed = properties != 0;
	return (cl_command_queue)o;
}

cl_int clReleaseCommandQueue(cl_command_queue queue)
{
	return release("clReleaseCommandQueue", queue, QUEUE);
}

cl_int clFlush(cl_command_queue queue)
{
	cl_int code = begin("clFlush");
	return is_object(queue, QUEUE) ? code : misuse(CL_INVALID_COMMAND_QUEUE);
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
	struct object *o = host ? create(MEMORY, code) : create_with_bytes(MEMORY, size, code);
	if (o) {
		o->n = size;
		o->is_host = host != NULL;
		o->bytes = host ? host : o->bytes;
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
	struct object *o = create_with_bytes(PROGRAM, n + 1, code);
	if (o) {
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
		return return_number(mock.odd == MOCK_EMPTY  ? 0
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

/* Where the source declares a kernel; NULL: nowhere. */
static char *find_kernel(const struct object *program, const char *name, size_t n)
{
	char *at = program->bytes;
	while ((at = strstr(at, "void ")) != NULL) {
		at += strlen("void ");
		if (!strncmp(at, name, n) && at[n] == '(')
			return at;
	}
	return NULL;
}

/* Kernels of macros WITHOUT_NAME are not in the program. */
static void leave_out(struct object *program, const char *options)
{
	static const char macro[] = "-DWITHOUT_";
	while (options && (options = strstr(options, macro)) != NULL) {
		options += strlen(macro);
		char *at = find_kernel(program, options, strcspn(options, " "));
		if (at)
			*at = '-';
	}
}

cl_int clBuildProgram(cl_program program, cl_uint n, const cl_device_id *ids, const char *options,
                      cl_build_notify *notify, void *user)
{
	cl_int code = begin("clBuildProgram");
	struct object *o = (void *)program;
	(void)user;
	if (!is_object(program, PROGRAM) || n != 1 || !ids[0] || notify)
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	o->is_built = !strstr(o->bytes, "WRONG");
	mock.dots += options && strstr(options, " -DTFMC_DOT=1");
	leave_out(o, options);
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
	return return_text("source:1: note: a long way\nsource:2:5: error: WRONG is no word\n", size, value,
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
	size_t n = strlen(name);
	struct object *o = find_kernel(of, name, n) ? create_with_bytes(KERNEL, n + 1, code) : NULL;
	if (o)
		memcpy(o->bytes, name, n);
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
	return return_number(128, sizeof(size_t), size, value, needed);
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
	const struct object *q = (const void *)queue;
	if (!is_object(queue, QUEUE) || !is_object(kernel, KERNEL) || dims < 1 || dims > 2 || first ||
	    n_events || events || (event && !q->is_timed))
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
	if (event)
		*event = create(EVENT, &code);
	return code;
}

/* ---- events ---- */

cl_int clWaitForEvents(cl_uint n, const cl_event *events)
{
	cl_int code = begin("clWaitForEvents");
	struct object *o = n == 1 ? (void *)events[0] : NULL;
	if (!is_object(o, EVENT))
		return misuse(CL_INVALID_VALUE);
	o->is_timed = code == CL_SUCCESS;
	return code;
}

cl_int clGetEventProfilingInfo(cl_event event, cl_uint what, size_t size, void *value, size_t *needed)
{
	cl_int code = begin("clGetEventProfilingInfo");
	const struct object *o = (const void *)event;
	uint64_t begin_at = mock.odd == MOCK_BACKWARDS ? INT32_MAX : 1000;
	if (!is_object(event, EVENT) || !o->is_timed ||
	    (what != CL_PROFILING_COMMAND_START && what != CL_PROFILING_COMMAND_END))
		return misuse(CL_INVALID_VALUE);
	if (code != CL_SUCCESS)
		return code;
	return return_number(what == CL_PROFILING_COMMAND_START ? begin_at
	                                                        : 1000 + (uint64_t)mock.nanoseconds,
	                     sizeof(cl_ulong), size, value, needed);
}

cl_int clReleaseEvent(cl_event event)
{
	return release("clReleaseEvent", event, EVENT);
}
