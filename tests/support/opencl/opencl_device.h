/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One OpenCL device for tests: context, in-order queue, a program from source,
 * buffers and launches. Errors are sticky: the first one stays in the text that
 * opencl_device_error gives, later calls do nothing and return false.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_OPENCL_DEVICE_H
#define TFMC_TESTS_SUPPORT_OPENCL_OPENCL_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct opencl_device;

/* Memory of a device; freed before the device is closed. */
struct opencl_device_buffer {
	struct tfmc_cl_buffer *memory;
	size_t bytes;
};

enum opencl_device_arg_kind {
	OPENCL_DEVICE_BUFFER,
	OPENCL_DEVICE_INT,
	OPENCL_DEVICE_LONG,
	OPENCL_DEVICE_FLOAT
};

struct opencl_device_arg {
	enum opencl_device_arg_kind kind;
	const struct opencl_device_buffer *buffer;
	int64_t number; /* INT, LONG */
	float real;     /* FLOAT */
};

/*
 * The first device of the first platform whose name contains `platform` ("Portable Computing Language",
 * "Oclgrind"; NULL: any). NULL where there is none: then a test is skipped, and a line on stderr says why.
 */
struct opencl_device *opencl_device_open(const char *platform);
void opencl_device_close(struct opencl_device *d); /* NULL is fine */
const char *opencl_device_name(const struct opencl_device *d);
const char *opencl_device_error(const struct opencl_device *d); /* "": none */

/* Compiles `n` bytes of source instead of the program before; the build log is part of the error. */
bool opencl_device_build(struct opencl_device *d, const char *source, size_t n, const char *options);

/* A buffer of max(1, bytes) bytes; filled from `init` unless NULL. memory is NULL after an error. */
struct opencl_device_buffer opencl_device_alloc(struct opencl_device *d, size_t bytes, const void *init);
void opencl_device_free(struct opencl_device *d, struct opencl_device_buffer *b);
bool opencl_device_write(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                         const void *from, size_t bytes);
/* Waits for everything before. */
bool opencl_device_read(struct opencl_device *d, const struct opencl_device_buffer *b, size_t offset,
                        void *to, size_t bytes);

/* Enqueues `groups` work-groups of `items` work-items; does not wait. */
bool opencl_device_launch(struct opencl_device *d, const char *kernel, const struct opencl_device_arg *args,
                          size_t n_args, int64_t groups, int64_t items);
bool opencl_device_finish(struct opencl_device *d);

#endif
