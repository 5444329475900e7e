/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device in use: context, one in-order queue, buffers and transfers.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/opencl/internal.h"

#define PAGE 4096

/* ---- context and queue ---- */

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

/* host: memory of the process that the buffer shares read-only; NULL: device memory. */
static int create_buffer(struct tfmc_cl_context *c, uint64_t bytes, void *host, struct tfmc_cl_buffer **out,
                         struct tfmc_cl_error *error)
{
	uint64_t largest = c->entry->device.largest;
	if (bytes > largest || bytes > SIZE_MAX)
		return cl_fail(error, TFMC_CL_E_RANGE,
		               "a buffer of %" PRIu64 " bytes, the device gives at most %" PRIu64, bytes,
		               largest);
	struct tfmc_cl_buffer *b = calloc(1, sizeof(*b));
	if (!b)
		return cl_no_memory(error);
	cl_ulong flags = host ? CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR : CL_MEM_READ_WRITE;
	cl_int code = CL_SUCCESS;
	*b = (struct tfmc_cl_buffer){c, NULL, bytes, host != NULL};
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
	return create_buffer(c, bytes, NULL, out, error);
}

int tfmc_cl_buffer_share(struct tfmc_cl_context *c, const void *data, uint64_t bytes,
                         struct tfmc_cl_buffer **out, struct tfmc_cl_error *error)
{
	if (!out)
		return cl_fail(error, TFMC_CL_E_NULL, "the result pointer is null");
	*out = NULL;
	if (!c || (!data && bytes))
		return cl_fail(error, TFMC_CL_E_NULL, "the context or the data pointer is null");
	bool may_share = c->entry->device.is_unified && bytes && (uintptr_t)data % PAGE == 0;
	if (may_share && create_buffer(c, bytes, (void *)(uintptr_t)data, out, error) == TFMC_CL_OK)
		return TFMC_CL_OK;
	int status = create_buffer(c, bytes, NULL, out, error);
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
	(void)b->context->calls->clReleaseMemObject(b->memory);
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

/* Transfers bytes in pieces: from `from` to the buffer, or, if that is NULL, from the buffer to `to`. */
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
