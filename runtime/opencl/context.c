/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device in use: context, one in-order queue, buffers and transfers; programs (built from source or from a cached
 * binary), kernels and their launches.
 *
 * A buffer is device memory, or shares the process's (is_shared: read only; pages: zero pages mapped for it). Messages
 * say which OpenCL function failed with which code.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include "runtime/opencl/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096

/* ---- context and queue ---- */

/* Opens device `number` with one in-order queue: launches and transfers need no events to be ordered. `piece`: most
 * bytes of one transfer call. */
int tfmc_cl_context_open(const struct tfmc_cl *cl, size_t number, uint64_t piece,
                         struct tfmc_cl_context **out, struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!cl)
		return cl_fail(error, TFMC_CL_E_NULL, "the list of devices is null");
	if (number >= cl->n)
		return cl_fail(error, TFMC_CL_E_DEVICE, "there is no OpenCL device %zu of %zu", number,
		               cl->n);
	struct tfmc_cl_context *c = calloc(1, sizeof(*c));
	if (!c)
		return cl_no_memory(error);
	const struct cl_entry *e = &cl->entries[number];
	intptr_t properties[] = {CL_CONTEXT_PLATFORM, (intptr_t)cl->platforms[e->platform].id, 0};
	cl_int code = CL_SUCCESS;
	*c = (struct tfmc_cl_context){cl, &cl->calls, e, NULL, NULL, piece ? piece : TFMC_CL_PIECE, false};
	c->context = c->calls->clCreateContext(properties, 1, &e->id, NULL, NULL, &code);
	int status = cl_check_created(c->context, code, "clCreateContext", error);
	if (status == TFMC_CL_OK) {
		c->queue = c->calls->clCreateCommandQueue(c->context, e->id, 0, &code);
		status = cl_check_created(c->queue, code, "clCreateCommandQueue", error);
	}
	if (status == TFMC_CL_OK)
		*out = c;
	else
		tfmc_cl_context_close(c);
	return status;
}

void tfmc_cl_context_close(struct tfmc_cl_context *c)
{
	if (!c)
		return;
	if (c->queue) {
		(void)c->calls->clFinish(c->queue);
		(void)c->calls->clReleaseCommandQueue(c->queue);
	}
	if (c->context)
		(void)c->calls->clReleaseContext(c->context);
	free(c);
}

int tfmc_cl_flush(struct tfmc_cl_context *c, struct tfmc_cl_error *error)
{
	if (!c)
		return cl_fail(error, TFMC_CL_E_NULL, "the context is null");
	return CL_CALL(c->calls, clFlush, error, c->queue);
}

int tfmc_cl_finish(struct tfmc_cl_context *c, struct tfmc_cl_error *error)
{
	if (!c)
		return cl_fail(error, TFMC_CL_E_NULL, "the context is null");
	return CL_CALL(c->calls, clFinish, error, c->queue);
}

/* ---- buffers ---- */

/* host: memory of the process that contains the buffer; NULL: device memory. access: CL_MEM_READ_ONLY or
 * READ_WRITE. */
static int create_buffer(struct tfmc_cl_context *c, uint64_t bytes, void *host, cl_ulong access,
                         struct tfmc_cl_buffer **out, struct tfmc_cl_error *error)
{
	uint64_t largest = c->entry->device.largest;
	if (bytes > largest || bytes > SIZE_MAX)
		return cl_fail(error, TFMC_CL_E_RANGE,
		               "a buffer of %" PRIu64 " bytes, the device gives at most %" PRIu64, bytes,
		               largest);
	struct tfmc_cl_buffer *b = calloc(1, sizeof(*b));
	if (!b)
		return cl_no_memory(error);
	cl_ulong flags = access | (host ? (cl_ulong)CL_MEM_USE_HOST_PTR : 0);
	cl_int code = CL_SUCCESS;
	*b = (struct tfmc_cl_buffer){
	        .context = c, .bytes = bytes, .is_shared = host != NULL && access == CL_MEM_READ_ONLY};
	/* OpenCL rejects buffers of 0 bytes */
	b->memory = c->calls->clCreateBuffer(c->context, flags, bytes ? (size_t)bytes : 1, host, &code);
	int status = cl_check_created(b->memory, code, "clCreateBuffer", error);
	if (status == TFMC_CL_OK)
		*out = b;
	else
		free(b);
	return status;
}

int tfmc_cl_buffer_create(struct tfmc_cl_context *c, uint64_t bytes, struct tfmc_cl_buffer **out,
                          struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!c)
		return cl_fail(error, TFMC_CL_E_NULL, "the context is null");
	return create_buffer(c, bytes, NULL, CL_MEM_READ_WRITE, out, error);
}

/* True: *out is in pages that the system maps when they are written, so that a large state costs what is used of it.
 * Only where the device is a CPU, which uses host memory as it is; elsewhere buffers are device memory. */
static bool create_in_pages(struct tfmc_cl_context *c, uint64_t bytes, struct tfmc_cl_buffer **out)
{
	const struct tfmc_cl_device *d = &c->entry->device;
	if (d->type != TFMC_CL_CPU || !d->is_unified || bytes < PAGE || bytes > d->largest)
		return false;
	void *pages = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (pages == MAP_FAILED)
		return false;
	if (create_buffer(c, bytes, pages, CL_MEM_READ_WRITE, out, NULL) != TFMC_CL_OK) {
		munmap(pages, (size_t)bytes);
		return false;
	}
	(*out)->pages = pages;
	return true;
}

/* Anonymous pages are zero already; device memory is cleared. */
int tfmc_cl_buffer_zeroed(struct tfmc_cl_context *c, uint64_t bytes, struct tfmc_cl_buffer **out,
                          struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!c)
		return cl_fail(error, TFMC_CL_E_NULL, "the context is null");
	if (create_in_pages(c, bytes, out))
		return TFMC_CL_OK;
	int status = create_buffer(c, bytes, NULL, CL_MEM_READ_WRITE, out, error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_clear(*out, 0, bytes, error);
	if (status != TFMC_CL_OK) {
		tfmc_cl_buffer_free(*out);
		*out = NULL;
	}
	return status;
}

/* Uses the process's memory in place where the device shares it and the data begin at a page, else copies them. A
 * driver that does not accept the memory is no failure. */
int tfmc_cl_buffer_share(struct tfmc_cl_context *c, const void *data, uint64_t bytes,
                         struct tfmc_cl_buffer **out, struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!c || (!data && bytes))
		return cl_fail(error, TFMC_CL_E_NULL, "the context or the data pointer is null");
	bool may_share = c->entry->device.is_unified && bytes && (uintptr_t)data % PAGE == 0;
	if (may_share &&
	    create_buffer(c, bytes, (void *)(uintptr_t)data, CL_MEM_READ_ONLY, out, error) == TFMC_CL_OK)
		return TFMC_CL_OK;
	int status = create_buffer(c, bytes, NULL, CL_MEM_READ_WRITE, out, error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_upload(*out, 0, data, bytes, error);
	if (status != TFMC_CL_OK) {
		tfmc_cl_buffer_free(*out);
		*out = NULL;
	}
	return status;
}

void tfmc_cl_buffer_free(struct tfmc_cl_buffer *b)
{
	if (!b)
		return;
	if (b->pages) /* commands of the queue may still use them */
		(void)b->context->calls->clFinish(b->context->queue);
	(void)b->context->calls->clReleaseMemObject(b->memory);
	if (b->pages)
		munmap(b->pages, (size_t)b->bytes);
	free(b);
}

uint64_t tfmc_cl_buffer_bytes(const struct tfmc_cl_buffer *b)
{
	return b ? b->bytes : 0;
}

int tfmc_cl_buffer_is_shared(const struct tfmc_cl_buffer *b)
{
	return b && b->is_shared;
}

/* ---- copies ---- */

/* TFMC_CL_OK if the bytes are inside of the buffer. */
static int check_range(const struct tfmc_cl_buffer *b, uint64_t offset, uint64_t bytes,
                       struct tfmc_cl_error *error)
{
	if (!b)
		return cl_fail(error, TFMC_CL_E_NULL, "the buffer is null");
	if (offset > b->bytes || bytes > b->bytes - offset)
		return cl_fail(error, TFMC_CL_E_RANGE,
		               "%" PRIu64 " bytes from byte %" PRIu64 " of a buffer of %" PRIu64, bytes,
		               offset, b->bytes);
	return TFMC_CL_OK;
}

static int check_writable(const struct tfmc_cl_buffer *b, uint64_t offset, uint64_t bytes,
                          struct tfmc_cl_error *error)
{
	if (b && b->is_shared)
		return cl_fail(error, TFMC_CL_E_RANGE,
		               "the buffer is memory of the process, which is only read");
	return check_range(b, offset, bytes, error);
}

/* Transfers bytes in pieces of at most c->piece: from `from` to the buffer, or, if that is NULL, from the buffer to
 * `to`. */
static int transfer(const struct tfmc_cl_buffer *b, uint64_t offset, const char *from, char *to,
                    uint64_t bytes, cl_uint blocking, struct tfmc_cl_error *error)
{
	const struct tfmc_cl_context *c = b->context;
	for (uint64_t at = 0, n; at < bytes; at += n) {
		size_t position = (size_t)(offset + at);
		n = bytes - at < c->piece ? bytes - at : c->piece;
		if (from)
			TRY(CL_CALL(c->calls, clEnqueueWriteBuffer, error, c->queue, b->memory, blocking,
			            position, (size_t)n, from + at, 0, NULL, NULL));
		else
			TRY(CL_CALL(c->calls, clEnqueueReadBuffer, error, c->queue, b->memory, blocking,
			            position, (size_t)n, to + at, 0, NULL, NULL));
	}
	return TFMC_CL_OK;
}

static int upload(struct tfmc_cl_buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                  cl_uint blocking, struct tfmc_cl_error *error)
{
	TRY(check_writable(b, offset, bytes, error));
	if (!from && bytes)
		return cl_fail(error, TFMC_CL_E_NULL, "the data pointer is null");
	return transfer(b, offset, from, NULL, bytes, blocking, error);
}

static int download(const struct tfmc_cl_buffer *b, uint64_t offset, void *to, uint64_t bytes,
                    cl_uint blocking, struct tfmc_cl_error *error)
{
	TRY(check_range(b, offset, bytes, error));
	if (!to && bytes)
		return cl_fail(error, TFMC_CL_E_NULL, "the destination is null");
	return transfer(b, offset, NULL, to, bytes, blocking, error);
}

int tfmc_cl_upload(struct tfmc_cl_buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                   struct tfmc_cl_error *error)
{
	return upload(b, offset, from, bytes, CL_TRUE, error);
}

int tfmc_cl_download(const struct tfmc_cl_buffer *b, uint64_t offset, void *to, uint64_t bytes,
                     struct tfmc_cl_error *error)
{
	return download(b, offset, to, bytes, CL_TRUE, error);
}

int tfmc_cl_upload_async(struct tfmc_cl_buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                         struct tfmc_cl_error *error)
{
	return upload(b, offset, from, bytes, CL_FALSE, error);
}

int tfmc_cl_download_async(const struct tfmc_cl_buffer *b, uint64_t offset, void *to, uint64_t bytes,
                           struct tfmc_cl_error *error)
{
	return download(b, offset, to, bytes, CL_FALSE, error);
}

/* OpenCL does not define copies whose ranges overlap: they are rejected here. */
int tfmc_cl_copy(const struct tfmc_cl_buffer *from, uint64_t from_offset, struct tfmc_cl_buffer *to,
                 uint64_t to_offset, uint64_t bytes, struct tfmc_cl_error *error)
{
	TRY(check_range(from, from_offset, bytes, error));
	TRY(check_writable(to, to_offset, bytes, error));
	if (bytes == 0)
		return TFMC_CL_OK;
	const struct tfmc_cl_context *c = to->context;
	uint64_t distance = from_offset < to_offset ? to_offset - from_offset : from_offset - to_offset;
	if (from->context != c)
		return cl_fail(error, TFMC_CL_E_RANGE, "the buffers are of two contexts");
	if (from == to && distance < bytes)
		return cl_fail(error, TFMC_CL_E_RANGE,
		               "a copy of %" PRIu64 " bytes over a distance of %" PRIu64 " overlaps", bytes,
		               distance);
	return CL_CALL(c->calls, clEnqueueCopyBuffer, error, c->queue, from->memory, to->memory,
	               (size_t)from_offset, (size_t)to_offset, (size_t)bytes, 0, NULL, NULL);
}

int tfmc_cl_clear(struct tfmc_cl_buffer *b, uint64_t offset, uint64_t bytes, struct tfmc_cl_error *error)
{
	static const char zero = 0;
	TRY(check_writable(b, offset, bytes, error));
	if (bytes == 0)
		return TFMC_CL_OK;
	const struct tfmc_cl_context *c = b->context;
	return CL_CALL(c->calls, clEnqueueFillBuffer, error, c->queue, b->memory, &zero, sizeof(zero),
	               (size_t)offset, (size_t)bytes, 0, NULL, NULL);
}

/* ---- programs, kernels, launches ---- */

#define LOG_MAX    ((size_t)16 << 20)
#define BINARY_MAX ((size_t)1 << 30)
#define NAME_MAX   200 /* bytes of a kernel's name in messages */

/* ---- building ---- */

/* The log from the line with the first error on, if the log is longer than a message has room for after its 100
 * bytes about the call: a compiler prints warnings first. */
static const char *first_error(const char *log)
{
	const char *at = strlen(log) < TFMC_CL_TEXT - 100 ? NULL : strstr(log, "error");
	while (at && at > log && at[-1] != '\n')
		at--;
	return at ? at : log;
}

/* Reports a failed clBuildProgram with the log of the compiler, if there is one. Returns the status. */
static int report_build_failure(struct tfmc_cl_program *p, cl_int code, struct tfmc_cl_error *error)
{
	static const char call[] = "clBuildProgram";
	struct tfmc_cl_error failure, why;
	struct cl_query q = {p->context->calls,    CL_QUERY_BUILD,
	                     p->program,           p->context->entry->id,
	                     CL_PROGRAM_BUILD_LOG, "clGetProgramBuildInfo(CL_PROGRAM_BUILD_LOG)"};
	char *log = NULL;
	if (code != CL_BUILD_PROGRAM_FAILURE)
		return cl_call_failed(error, call, code);
	(void)cl_call_failed(&failure, call, code);
	int has_log = cl_query_string(&q, LOG_MAX, false, &log, &why) == TFMC_CL_OK && *log;
	if (has_log)
		cl_fail(error, TFMC_CL_E_BUILD, "%.100s\n%s", failure.text, first_error(log));
	else
		cl_fail(error, TFMC_CL_E_BUILD, "%.100s, and no messages of the compiler%s%.200s",
		        failure.text, log ? "" : ": ", log ? "" : why.text);
	if (error)
		error->code = code;
	free(log);
	return TFMC_CL_E_BUILD;
}

/* Builds the program from source. */
static int build_source(struct tfmc_cl_program *p, const struct tfmc_cl_source *source,
                        struct tfmc_cl_error *error)
{
	const struct tfmc_cl_context *c = p->context;
	size_t bytes = (size_t)source->bytes;
	const char *text = source->text;
	cl_int code = CL_SUCCESS;
	p->program = c->calls->clCreateProgramWithSource(c->context, 1, &text, &bytes, &code);
	int status = cl_check_created(p->program, code, "clCreateProgramWithSource", error);
	if (status != TFMC_CL_OK)
		return status;
	code = c->calls->clBuildProgram(p->program, 1, &c->entry->id, source->options, NULL, NULL);
	return code == CL_SUCCESS ? TFMC_CL_OK : report_build_failure(p, code, error);
}

/* ---- cached binaries ---- */

/* Builds the program from a cached binary. False: the driver rejects it, as after an update of which its version does
 * not tell; the caller then builds from source. */
static bool build_binary(struct tfmc_cl_program *p, const unsigned char *binary, size_t n,
                         const char *options)
{
	const struct tfmc_cl_context *c = p->context;
	cl_int code = CL_SUCCESS, device_status = CL_SUCCESS;
	cl_program built = c->calls->clCreateProgramWithBinary(c->context, 1, &c->entry->id, &n, &binary,
	                                                       &device_status, &code);
	bool ok = built && code == CL_SUCCESS && device_status == CL_SUCCESS &&
	          c->calls->clBuildProgram(built, 1, &c->entry->id, options, NULL, NULL) == CL_SUCCESS;
	if (ok)
		p->program = built;
	else if (built)
		(void)c->calls->clReleaseProgram(built);
	return ok;
}

static bool build_cached(struct tfmc_cl_program *p, const struct tfmc_cl_source *source,
                         const struct cl_cache_key *key)
{
	size_t at, n;
	unsigned char *file = cl_cache_read(source->cache, key, &at, &n);
	bool ok = file && build_binary(p, file + at, n - at, source->options);
	free(file);
	return ok;
}

/* Writes the program's binary to the cache. CL_PROGRAM_BINARIES takes an array of pointers, one for each device:
 * here one. Failures are ignored: the next process builds from source again. */
static void cache_binary(const struct tfmc_cl_program *p, const char *directory,
                         const struct cl_cache_key *key)
{
	const struct cl_calls *calls = p->context->calls;
	struct cl_query q = {calls, CL_QUERY_PROGRAM,        p->program,
	                     NULL,  CL_PROGRAM_BINARY_SIZES, "clGetProgramInfo"};
	size_t n = 0;
	bool has_size = cl_query_value(&q, &n, sizeof(n), NULL) == TFMC_CL_OK && n > 0 && n <= BINARY_MAX;
	unsigned char *binary = has_size ? malloc(n) : NULL;
	if (!binary)
		return;
	unsigned char *to = binary;
	if (calls->clGetProgramInfo(p->program, CL_PROGRAM_BINARIES, sizeof(to), &to, NULL) == CL_SUCCESS)
		cl_cache_write(directory, key, binary, n);
	free(binary);
}

/* Builds from a cached binary, or else from source, whose binary is then cached. */
static int build_program(struct tfmc_cl_program *p, const struct tfmc_cl_source *source,
                         struct tfmc_cl_error *error)
{
	struct cl_cache_key key = {0};
	bool may_cache = source->cache && !(p->context->entry->quirks & CL_NO_BINARIES);
	bool has_key = may_cache && cl_cache_key_make(p->context, source, &key);
	int status = TFMC_CL_OK;
	p->is_cached = has_key && build_cached(p, source, &key);
	if (!p->is_cached)
		status = build_source(p, source, error);
	if (status == TFMC_CL_OK && has_key && !p->is_cached)
		cache_binary(p, source->cache, &key);
	free(key.bytes);
	return status;
}

int tfmc_cl_program_build(struct tfmc_cl_context *c, const struct tfmc_cl_source *source,
                          struct tfmc_cl_program **out, struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!c || !source || !source->text)
		return cl_fail(error, TFMC_CL_E_NULL, "the context or the source is null");
	if (source->bytes == 0 || source->bytes > SIZE_MAX)
		return cl_fail(error, TFMC_CL_E_RANGE, "a source of %" PRIu64 " bytes", source->bytes);
	struct tfmc_cl_program *p = calloc(1, sizeof(*p));
	if (!p)
		return cl_no_memory(error);
	p->context = c;
	int status = build_program(p, source, error);
	if (status == TFMC_CL_OK)
		*out = p;
	else
		tfmc_cl_program_free(p);
	return status;
}

void tfmc_cl_program_free(struct tfmc_cl_program *p)
{
	if (!p)
		return;
	if (p->program)
		(void)p->context->calls->clReleaseProgram(p->program);
	free(p);
}

int tfmc_cl_program_is_cached(const struct tfmc_cl_program *p)
{
	return p && p->is_cached;
}

/* ---- kernels ---- */

/* Creates the kernel of that name. The name is copied, for messages about later calls. */
int tfmc_cl_kernel_create(struct tfmc_cl_program *p, const char *name, struct tfmc_cl_kernel **out,
                          struct tfmc_cl_error *error)
{
	char call[NAME_MAX + 32];
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!p || !name)
		return cl_fail(error, TFMC_CL_E_NULL, "the program or the name is null");
	size_t n = strlen(name) + 1;
	struct tfmc_cl_kernel *k = calloc(1, sizeof(*k));
	char *copy = malloc(n);
	if (!k || !copy) {
		free(k);
		free(copy);
		return cl_no_memory(error);
	}
	memcpy(copy, name, n);
	cl_int code = CL_SUCCESS;
	*k = (struct tfmc_cl_kernel){p->context, p->context->calls->clCreateKernel(p->program, name, &code),
	                             copy};
	(void)snprintf(call, sizeof(call), "clCreateKernel(%.*s)", NAME_MAX, name);
	int status = cl_check_created(k->kernel, code, call, error);
	if (status == TFMC_CL_OK)
		*out = k;
	else
		tfmc_cl_kernel_free(k);
	return status;
}

void tfmc_cl_kernel_free(struct tfmc_cl_kernel *k)
{
	if (!k)
		return;
	if (k->kernel)
		(void)k->context->calls->clReleaseKernel(k->kernel);
	free(k->name);
	free(k);
}

int tfmc_cl_kernel_items(const struct tfmc_cl_kernel *k, uint64_t *items, struct tfmc_cl_error *error)
{
	size_t n = 0;
	if (!k || !items)
		return cl_fail(error, TFMC_CL_E_NULL, "the kernel or the result pointer is null");
	struct cl_query q = {k->context->calls,
	                     CL_QUERY_KERNEL,
	                     k->kernel,
	                     k->context->entry->id,
	                     CL_KERNEL_WORK_GROUP_SIZE,
	                     "clGetKernelWorkGroupInfo(CL_KERNEL_WORK_GROUP_SIZE)"};
	int status = cl_query_value(&q, &n, sizeof(n), error);
	*items = status == TFMC_CL_OK ? n : 0;
	return status;
}

int tfmc_cl_kernel_set(struct tfmc_cl_kernel *k, uint32_t index, const void *value, size_t bytes,
                       struct tfmc_cl_error *error)
{
	char call[NAME_MAX + 64];
	if (!k || !value)
		return cl_fail(error, TFMC_CL_E_NULL, "the kernel or the value is null");
	cl_int code = k->context->calls->clSetKernelArg(k->kernel, index, bytes, value);
	if (code == CL_SUCCESS)
		return TFMC_CL_OK;
	(void)snprintf(call, sizeof(call), "clSetKernelArg(%.*s, %" PRIu32 ")", NAME_MAX, k->name, index);
	return cl_call_failed(error, call, code);
}

int tfmc_cl_kernel_set_buffer(struct tfmc_cl_kernel *k, uint32_t index, const struct tfmc_cl_buffer *b,
                              struct tfmc_cl_error *error)
{
	if (!b)
		return cl_fail(error, TFMC_CL_E_NULL, "the buffer is null");
	return tfmc_cl_kernel_set(k, index, &b->memory, sizeof(b->memory), error);
}

/* Reports a failed launch with its sizes; code CL_SUCCESS: the sizes are impossible (0, or an overflow), and nothing
 * was called. Returns the status. */
static int report_launch_failure(const struct tfmc_cl_kernel *k, const uint64_t groups[2],
                                 const uint64_t items[2], cl_int code, struct tfmc_cl_error *error)
{
	char call[NAME_MAX + 160];
	(void)snprintf(call, sizeof(call),
	               "clEnqueueNDRangeKernel(%.*s, %" PRIu64 " x %" PRIu64 " groups of %" PRIu64
	               " x %" PRIu64 ")",
	               NAME_MAX, k->name, groups[0], groups[1], items[0], items[1]);
	return code == CL_SUCCESS ? cl_fail(error, TFMC_CL_E_RANGE, "%s: a size that cannot be", call)
	                          : cl_call_failed(error, call, code);
}

/* Impossible sizes are reported before the call. Launches whose second dimension is 1 have one dimension. */
int cl_launch(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2], cl_event *event,
              struct tfmc_cl_error *error)
{
	size_t local[2], global[2];
	if (!k || !groups || !items)
		return cl_fail(error, TFMC_CL_E_NULL, "the kernel or a size array is null");
	for (size_t i = 0; i < 2; i++) {
		if (groups[i] < 1 || items[i] < 1 || groups[i] > SIZE_MAX / items[i])
			return report_launch_failure(k, groups, items, CL_SUCCESS, error);
		local[i] = (size_t)items[i];
		global[i] = (size_t)(groups[i] * items[i]);
	}
	cl_uint dims = global[1] == 1 ? 1 : 2;
	cl_int code = k->context->calls->clEnqueueNDRangeKernel(k->context->queue, k->kernel, dims, NULL,
	                                                        global, local, 0, NULL, event);
	if (code != CL_SUCCESS)
		return report_launch_failure(k, groups, items, code, error);
	return event ? cl_check_created(*event, code, "clEnqueueNDRangeKernel", error) : TFMC_CL_OK;
}

int tfmc_cl_launch(struct tfmc_cl_kernel *k, const uint64_t groups[2], const uint64_t items[2],
                   struct tfmc_cl_error *error)
{
	return cl_launch(k, groups, items, NULL, error);
}
