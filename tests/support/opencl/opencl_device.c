/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenCL for tests, through the loader that is found at build time. Everything
 * is released with the device; buffers may be released before.
 */
#include "tests/support/opencl/opencl_device.h"

#include <stdio.h>

#ifdef TFMC_HAVE_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ir/support/compiler.h"

#define PLATFORMS_MAX 16
#define KERNELS_MAX   512

struct opencl_device {
	cl_device_id device;
	cl_context context;
	cl_command_queue queue;
	cl_program program;
	cl_kernel kernels[KERNELS_MAX]; /* of the program, asked for so far */
	size_t n_kernels;
	bool unoptimized;
	char name[256];
	char error[8192];
};

static bool fail(struct opencl_device *d, const char *fmt, ...) TFMC_PRINTF(2, 3);

static bool fail(struct opencl_device *d, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (!d->error[0])
		(void)vsnprintf(d->error, sizeof d->error, fmt, ap);
	va_end(ap);
	return false;
}

static bool check(struct opencl_device *d, cl_int code, const char *what)
{
	return code == CL_SUCCESS || fail(d, "%s: code %d", what, (int)code);
}

/* ---- finding one ---- */

static cl_platform_id find_platform(const char *wanted)
{
	cl_platform_id all[PLATFORMS_MAX];
	cl_uint n = 0;
	if (clGetPlatformIDs(PLATFORMS_MAX, all, &n) != CL_SUCCESS)
		return NULL;
	for (cl_uint i = 0; i < n && i < PLATFORMS_MAX; i++) {
		char name[256] = "";
		(void)clGetPlatformInfo(all[i], CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
		if (!wanted || strstr(name, wanted))
			return all[i];
	}
	return NULL;
}

static bool open_on(struct opencl_device *d, cl_platform_id platform)
{
	cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &d->device, NULL);
	if (!check(d, code, "clGetDeviceIDs"))
		return false;
	(void)clGetDeviceInfo(d->device, CL_DEVICE_NAME, sizeof d->name - 1, d->name, NULL);
	cl_context_properties of_platform[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
	d->context = clCreateContext(of_platform, 1, &d->device, NULL, NULL, &code);
	if (!check(d, code, "clCreateContext"))
		return false;
	d->queue = clCreateCommandQueue(d->context, d->device, 0, &code);
	return check(d, code, "clCreateCommandQueue");
}

struct opencl_device *opencl_device_open(const char *platform)
{
	cl_platform_id found = find_platform(platform);
	if (!found) {
		(void)fprintf(stderr, "no OpenCL platform%s%s: tests on it are skipped\n",
		              platform ? " named " : "", platform ? platform : "");
		return NULL;
	}
	struct opencl_device *d = calloc(1, sizeof *d);
	if (d && !open_on(d, found)) {
		(void)fprintf(stderr, "no OpenCL device: %s; tests on it are skipped\n", d->error);
		opencl_device_close(d);
		d = NULL;
	}
	return d;
}

static void drop_program(struct opencl_device *d)
{
	for (size_t i = 0; i < d->n_kernels; i++)
		(void)clReleaseKernel(d->kernels[i]);
	d->n_kernels = 0;
	if (d->program)
		(void)clReleaseProgram(d->program);
	d->program = NULL;
}

void opencl_device_close(struct opencl_device *d)
{
	if (!d)
		return;
	if (d->queue)
		(void)clFinish(d->queue);
	drop_program(d);
	if (d->queue)
		(void)clReleaseCommandQueue(d->queue);
	if (d->context)
		(void)clReleaseContext(d->context);
	free(d);
}

const char *opencl_device_name(const struct opencl_device *d)
{
	return d->name;
}

const char *opencl_device_error(const struct opencl_device *d)
{
	return d->error;
}

/* ---- programs ---- */

static bool build_failed(struct opencl_device *d, cl_int code)
{
	char log[sizeof d->error - 64] = "";
	(void)clGetProgramBuildInfo(d->program, d->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
	return fail(d, "clBuildProgram: code %d\n%s", (int)code, log);
}

void opencl_device_unoptimized(struct opencl_device *d)
{
	d->unoptimized = true;
}

bool opencl_device_build(struct opencl_device *d, const char *source, size_t n, const char *options)
{
	char all[256];
	cl_int code;
	if (d->error[0])
		return false;
	(void)snprintf(all, sizeof all, "%s%s", options ? options : "",
	               d->unoptimized ? " -cl-opt-disable" : "");
	drop_program(d);
	d->program = clCreateProgramWithSource(d->context, 1, &source, &n, &code);
	if (!check(d, code, "clCreateProgramWithSource"))
		return false;
	code = clBuildProgram(d->program, 1, &d->device, all, NULL, NULL);
	return code == CL_SUCCESS || build_failed(d, code);
}

static cl_kernel find_kernel(struct opencl_device *d, const char *wanted)
{
	for (size_t i = 0; i < d->n_kernels; i++) {
		char name[512] = "";
		(void)clGetKernelInfo(d->kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name - 1, name, NULL);
		if (strcmp(name, wanted) == 0)
			return d->kernels[i];
	}
	cl_int code;
	cl_kernel k = clCreateKernel(d->program, wanted, &code);
	if (code != CL_SUCCESS || d->n_kernels == KERNELS_MAX) {
		fail(d, "clCreateKernel(%s): code %d", wanted, (int)code);
		return NULL;
	}
	d->kernels[d->n_kernels++] = k;
	return k;
}

/* ---- memory ---- */

struct opencl_device_buffer opencl_device_alloc(struct opencl_device *d, size_t bytes, const void *init)
{
	struct opencl_device_buffer b = {NULL, bytes ? bytes : 1};
	cl_int code;
	if (d->error[0])
		return b;
	b.mem = clCreateBuffer(d->context, CL_MEM_READ_WRITE, b.bytes, NULL, &code);
	if (!check(d, code, "clCreateBuffer"))
		b.mem = NULL;
	else if (init && bytes)
		opencl_device_write(d, &b, 0, init, bytes);
	return b;
}

void opencl_device_free(struct opencl_device *d, struct opencl_device_buffer *b)
{
	if (b->mem)
		check(d, clReleaseMemObject(b->mem), "clReleaseMemObject");
	b->mem = NULL;
}

bool opencl_device_write(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                         const void *from, size_t bytes)
{
	if (d->error[0] || bytes == 0)
		return !d->error[0];
	return check(d, clEnqueueWriteBuffer(d->queue, b->mem, CL_TRUE, offset, bytes, from, 0, NULL, NULL),
	             "clEnqueueWriteBuffer");
}

bool opencl_device_read(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                        void *to, size_t bytes)
{
	if (d->error[0] || bytes == 0)
		return !d->error[0];
	return check(d, clEnqueueReadBuffer(d->queue, b->mem, CL_TRUE, offset, bytes, to, 0, NULL, NULL),
	             "clEnqueueReadBuffer");
}

/* ---- launches ---- */

static cl_int set_arg(cl_kernel k, cl_uint i, const struct opencl_device_arg *a)
{
	cl_int narrow = (cl_int)a->number;
	cl_long wide = a->number;
	cl_float real = a->real;
	switch (a->kind) {
	case OPENCL_DEVICE_BUFFER: return clSetKernelArg(k, i, sizeof(cl_mem), &a->buffer->mem);
	case OPENCL_DEVICE_INT: return clSetKernelArg(k, i, sizeof narrow, &narrow);
	case OPENCL_DEVICE_LONG: return clSetKernelArg(k, i, sizeof wide, &wide);
	case OPENCL_DEVICE_FLOAT: return clSetKernelArg(k, i, sizeof real, &real);
	}
	return CL_INVALID_ARG_VALUE;
}

bool opencl_device_launch(struct opencl_device *d, const char *kernel, const struct opencl_device_arg *args,
                          size_t n_args, int64_t groups, int64_t items)
{
	cl_kernel k = d->error[0] ? NULL : find_kernel(d, kernel);
	size_t local = (size_t)items, global = (size_t)(groups * items);
	if (!k)
		return false;
	for (size_t i = 0; i < n_args; i++) {
		cl_int code = set_arg(k, (cl_uint)i, &args[i]);
		if (code != CL_SUCCESS)
			return fail(d, "%s: argument %zu: code %d", kernel, i, (int)code);
	}
	cl_int code = clEnqueueNDRangeKernel(d->queue, k, 1, NULL, &global, &local, 0, NULL, NULL);
	return code == CL_SUCCESS || fail(d, "%s: clEnqueueNDRangeKernel: code %d", kernel, (int)code);
}

bool opencl_device_finish(struct opencl_device *d)
{
	return !d->error[0] && check(d, clFinish(d->queue), "clFinish");
}

#else

struct opencl_device {
	int none;
};

struct opencl_device *opencl_device_open(const char *platform)
{
	(void)platform;
	(void)fprintf(stderr, "built without an OpenCL loader: tests on OpenCL devices are skipped\n");
	return NULL;
}

void opencl_device_close(struct opencl_device *d)
{
	(void)d;
}

const char *opencl_device_name(const struct opencl_device *d)
{
	(void)d;
	return "";
}

const char *opencl_device_error(const struct opencl_device *d)
{
	(void)d;
	return "built without an OpenCL loader";
}

void opencl_device_unoptimized(struct opencl_device *d)
{
	(void)d;
}

bool opencl_device_build(struct opencl_device *d, const char *source, size_t n, const char *options)
{
	(void)d, (void)source, (void)n, (void)options;
	return false;
}

struct opencl_device_buffer opencl_device_alloc(struct opencl_device *d, size_t bytes, const void *init)
{
	(void)d, (void)init;
	return (struct opencl_device_buffer){NULL, bytes};
}

void opencl_device_free(struct opencl_device *d, struct opencl_device_buffer *b)
{
	(void)d, (void)b;
}

bool opencl_device_write(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                         const void *from, size_t bytes)
{
	(void)d, (void)b, (void)offset, (void)from, (void)bytes;
	return false;
}

bool opencl_device_read(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                        void *to, size_t bytes)
{
	(void)d, (void)b, (void)offset, (void)to, (void)bytes;
	return false;
}

bool opencl_device_launch(struct opencl_device *d, const char *kernel, const struct opencl_device_arg *args,
                          size_t n_args, int64_t groups, int64_t items)
{
	(void)d, (void)kernel, (void)args, (void)n_args, (void)groups, (void)items;
	return false;
}

bool opencl_device_finish(struct opencl_device *d)
{
	(void)d;
	return false;
}

#endif
