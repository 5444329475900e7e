/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenCL for tests, through libtfmccl. Everything is released with the device; buffers are released before.
 */
#include "tests/support/opencl/opencl_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/tfmc_cl.h"

#define KERNELS_MAX 512
#define NAME_BYTES  512 /* of a kernel */

struct opencl_device {
	struct tfmc_cl *cl;
	struct tfmc_cl_context *context;
	struct tfmc_cl_program *program;
	struct {
		struct tfmc_cl_kernel *kernel;
		char name[NAME_BYTES];
	} kernels[KERNELS_MAX]; /* of the program, asked for so far */
	size_t n_kernels;
	const char *name;
	bool failed;
	struct tfmc_cl_error error; /* the first one */
};

/* ---- finding one ---- */

/* The number of the first device of a platform; that behind the last one: there is none. */
static size_t find(const struct tfmc_cl *cl, const char *platform)
{
	size_t i = 0;
	while (i < tfmc_cl_count(cl) && platform && !strstr(tfmc_cl_device(cl, i)->platform, platform))
		i++;
	return i;
}

static bool open_device(struct opencl_device *d, const char *platform)
{
	if (tfmc_cl_open(NULL, &d->cl, &d->error) != TFMC_CL_OK)
		return false;
	size_t number = find(d->cl, platform);
	if (tfmc_cl_context_open(d->cl, number, 0, &d->context, &d->error) != TFMC_CL_OK)
		return false;
	d->name = tfmc_cl_device(d->cl, number)->name;
	return true;
}

struct opencl_device *opencl_device_open(const char *platform)
{
	struct opencl_device *d = calloc(1, sizeof *d);
	if (d && open_device(d, platform))
		return d;
	(void)fprintf(stderr, "SKIPPED: tests on %s: %s\n", platform ? platform : "an OpenCL device",
	              d ? d->error.text : "no memory");
	opencl_device_close(d);
	return NULL;
}

static void drop_program(struct opencl_device *d)
{
	for (size_t i = 0; i < d->n_kernels; i++)
		tfmc_cl_kernel_free(d->kernels[i].kernel);
	d->n_kernels = 0;
	tfmc_cl_program_free(d->program);
	d->program = NULL;
}

void opencl_device_close(struct opencl_device *d)
{
	if (!d)
		return;
	drop_program(d);
	tfmc_cl_context_close(d->context);
	tfmc_cl_close(d->cl);
	free(d);
}

const char *opencl_device_name(const struct opencl_device *d)
{
	return d->name;
}

const char *opencl_device_error(const struct opencl_device *d)
{
	return d->failed ? d->error.text : "";
}

/* Of a call, which was not made when an earlier one failed. */
static bool passed(struct opencl_device *d, int status)
{
	d->failed = d->failed || status != TFMC_CL_OK;
	return !d->failed;
}

/* ---- programs ---- */

bool opencl_device_build(struct opencl_device *d, const char *source, size_t n, const char *options)
{
	if (d->failed)
		return false;
	drop_program(d);
	return passed(d, tfmc_cl_program_build(d->context, &(struct tfmc_cl_source){source, n, options, NULL},
	                                       &d->program, &d->error));
}

static struct tfmc_cl_kernel *find_kernel(struct opencl_device *d, const char *wanted)
{
	size_t i = 0;
	while (i < d->n_kernels && strcmp(d->kernels[i].name, wanted) != 0)
		i++;
	if (i < d->n_kernels)
		return d->kernels[i].kernel;
	if (i == KERNELS_MAX || strlen(wanted) >= NAME_BYTES) {
		(void)snprintf(d->error.text, sizeof d->error.text, "too many kernels at %.500s", wanted);
		d->failed = true;
		return NULL;
	}
	if (!passed(d, tfmc_cl_kernel_create(d->program, wanted, &d->kernels[i].kernel, &d->error)))
		return NULL;
	(void)snprintf(d->kernels[i].name, NAME_BYTES, "%s", wanted);
	d->n_kernels++;
	return d->kernels[i].kernel;
}

/* ---- memory ---- */

struct opencl_device_buffer opencl_device_alloc(struct opencl_device *d, size_t bytes, const void *init)
{
	struct opencl_device_buffer b = {NULL, bytes ? bytes : 1};
	if (!d->failed && passed(d, tfmc_cl_buffer_create(d->context, b.bytes, &b.memory, &d->error)) && init)
		opencl_device_write(d, &b, 0, init, bytes);
	return b;
}

void opencl_device_free(struct opencl_device *d, struct opencl_device_buffer *b)
{
	(void)d;
	tfmc_cl_buffer_free(b->memory);
	b->memory = NULL;
}

bool opencl_device_write(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                         const void *from, size_t bytes)
{
	return !d->failed && passed(d, tfmc_cl_upload(b->memory, offset, from, bytes, &d->error));
}

bool opencl_device_read(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                        void *to, size_t bytes)
{
	return !d->failed && passed(d, tfmc_cl_download(b->memory, offset, to, bytes, &d->error));
}

/* ---- launches ---- */

static int set_arg(struct tfmc_cl_kernel *k, uint32_t i, const struct opencl_device_arg *a,
                   struct tfmc_cl_error *error)
{
	int32_t narrow = (int32_t)a->number;
	switch (a->kind) {
	case OPENCL_DEVICE_BUFFER: return tfmc_cl_kernel_set_buffer(k, i, a->buffer->memory, error);
	case OPENCL_DEVICE_INT: return tfmc_cl_kernel_set(k, i, &narrow, sizeof narrow, error);
	case OPENCL_DEVICE_LONG: return tfmc_cl_kernel_set(k, i, &a->number, sizeof a->number, error);
	case OPENCL_DEVICE_FLOAT: return tfmc_cl_kernel_set(k, i, &a->real, sizeof a->real, error);
	}
	return TFMC_CL_E_RANGE;
}

bool opencl_device_launch(struct opencl_device *d, const char *kernel, const struct opencl_device_arg *args,
                          size_t n_args, int64_t groups, int64_t items)
{
	const uint64_t all_groups[2] = {(uint64_t)groups, 1}, all_items[2] = {(uint64_t)items, 1};
	struct tfmc_cl_kernel *k = d->failed ? NULL : find_kernel(d, kernel);
	for (size_t i = 0; k && i < n_args; i++)
		if (!passed(d, set_arg(k, (uint32_t)i, &args[i], &d->error)))
			return false;
	return k && passed(d, tfmc_cl_launch(k, all_groups, all_items, &d->error));
}

bool opencl_device_finish(struct opencl_device *d)
{
	return !d->failed && passed(d, tfmc_cl_finish(d->context, &d->error));
}
