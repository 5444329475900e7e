/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmccl: OpenCL devices for compiled models. The OpenCL library is loaded when a program runs, so neither
 * building nor linking needs OpenCL. Depends on libc only.
 *
 * 	#include <tfmc_cl.h>
 * 	struct tfmc_cl_error error;
 * 	struct tfmc_cl *cl;
 * 	size_t number;
 * 	if (tfmc_cl_open(NULL, &cl, &error) || tfmc_cl_choose(cl, 0, "radeon", &number, &error))
 * 		fprintf(stderr, "%s\n", error.text);
 *
 * Functions that can fail return a status, 0 on success, and describe a failure in *error, which may be NULL
 * and is undefined after success. After a failure *out is NULL. Nothing is printed, nothing ends the process,
 * there is no global state. A missing pointer is TFMC_CL_E_NULL; functions that return pointers or counts
 * return NULL or 0.
 *
 * Threads: an opened library does not change and may be read by any number of threads. A context and the
 * objects created from it are used by one thread at a time. Objects are freed before the object they were
 * created from.
 */
#ifndef TFMC_RUNTIME_OPENCL_TFMC_CL_H
#define TFMC_RUNTIME_OPENCL_TFMC_CL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Distinct from the codes of abi.h and tfmc_rt.h. libtfmctok uses the same numbers for other errors. */
enum tfmc_cl_status {
	TFMC_CL_OK = 0,
	TFMC_CL_E_NULL = 200, /* a pointer is missing */
	TFMC_CL_E_MEMORY,     /* memory of the process could not be allocated */
	TFMC_CL_E_LIBRARY,    /* there is no OpenCL library, or it lacks a function */
	TFMC_CL_E_DEVICE,     /* there is no such device */
	TFMC_CL_E_CALL,       /* a call failed: the text names it and its code */
	TFMC_CL_E_ANSWER,     /* a call succeeded with an impossible result */
	TFMC_CL_E_RANGE,      /* bytes outside of a buffer, or a size that the device does not support */
	TFMC_CL_E_BUILD       /* a program does not compile: the text has the compiler's messages */
};

#define TFMC_CL_TEXT 4096
struct tfmc_cl_error {
	int code; /* OpenCL error code, below 0; 0: no OpenCL call failed */
	/* "clGetPlatformIDs: CL_OUT_OF_HOST_MEMORY (-6)"; truncated; may contain any bytes of a driver's message. */
	char text[TFMC_CL_TEXT];
};

enum tfmc_cl_type { TFMC_CL_OTHER, TFMC_CL_CPU, TFMC_CL_ACCELERATOR, TFMC_CL_GPU };
/* Strings are the driver's, with blanks in place of control characters. Flags are 0 or 1. */
struct tfmc_cl_device {
	const char *platform, *platform_version; /* "Portable Computing Language" */
	const char *name, *vendor, *driver;      /* driver: its version */
	const char *version, *c_version;         /* "OpenCL 3.0 ..", "OpenCL C 1.2 .." */
	const char *extensions;
	enum tfmc_cl_type type;
	uint32_t compute_units;
	uint32_t clock;                        /* MHz */
	uint32_t vector_width;                 /* floats in a native vector */
	uint64_t memory;                       /* bytes */
	uint64_t largest;                      /* most bytes of one buffer */
	uint64_t local_memory;                 /* local memory of a work-group, bytes */
	uint64_t group_items;                  /* most work-items of a work-group */
	int has_own_local;                     /* local memory is dedicated, not in global memory */
	int is_unified;                        /* device and process share memory */
	int has_fp16, has_fp64, has_subgroups; /* extensions */
	int has_integer_dot; /* cl_khr_integer_dot_product, unless the device reports that it is slow */
};

/* ---- devices ---- */
struct tfmc_cl;
/* Opens an OpenCL library and lists its devices of OpenCL 1.2 or newer that are little-endian and have a
 * compiler. `library`: its path; NULL: one that the process has loaded already, else libOpenCL.so.1, else
 * libOpenCL.so. It stays loaded after tfmc_cl_close. A list without devices is a success; a device or
 * platform whose driver fails is left out and reported by tfmc_cl_fault. */
int tfmc_cl_open(const char *library, struct tfmc_cl **out, struct tfmc_cl_error *error);
void tfmc_cl_close(struct tfmc_cl *cl); /* NULL is allowed */
size_t tfmc_cl_count(const struct tfmc_cl *cl);
/* Device `number`, from 0; NULL: there are fewer. Valid until the library is closed. */
const struct tfmc_cl_device *tfmc_cl_device(const struct tfmc_cl *cl, size_t number);
/* Why platform or device `number` was left out, from 0; NULL: there are fewer. */
const char *tfmc_cl_fault(const struct tfmc_cl *cl, size_t number);
/* Chooses the device that `wanted` names: its number, or a part of its name, vendor or platform in any
 * case; NULL or "": any. `devices`: an enum tfmc_cl_for of abi.h, 0: all. Among several the best: GPUs
 * before accelerators before CPUs, then by compute units x clock. TFMC_CL_E_DEVICE: there is none, or it is
 * not one of `devices`. */
int tfmc_cl_choose(const struct tfmc_cl *cl, int devices, const char *wanted, size_t *number,
                   struct tfmc_cl_error *error);

/* ---- a device in use ---- */
struct tfmc_cl_context; /* with one in-order queue */
/* `piece`: most bytes of one transfer call; 0: TFMC_CL_PIECE. */
#define TFMC_CL_PIECE ((uint64_t)64 << 20)
int tfmc_cl_context_open(const struct tfmc_cl *cl, size_t number, uint64_t piece,
                         struct tfmc_cl_context **out, struct tfmc_cl_error *error);
/* Waits for pending work. NULL is allowed, as in all functions that free. */
void tfmc_cl_context_close(struct tfmc_cl_context *context);
/* Submits enqueued work to the device; does not wait. */
int tfmc_cl_flush(struct tfmc_cl_context *context, struct tfmc_cl_error *error);
/* Waits until all work is done. Errors of kernels may be reported here, and by downloads. */
int tfmc_cl_finish(struct tfmc_cl_context *context, struct tfmc_cl_error *error);

/* ---- memory ---- */
struct tfmc_cl_buffer;
/* The contents are uninitialized. TFMC_CL_E_RANGE: larger than the device's limit. 0 bytes are allowed. */
int tfmc_cl_buffer_create(struct tfmc_cl_context *context, uint64_t bytes, struct tfmc_cl_buffer **out,
                          struct tfmc_cl_error *error);
/* A buffer of zeros. On a processor it is stored in pages of the process, which take memory when they are first
 * written; other devices, and drivers that decline such pages, have all of its memory at once. */
int tfmc_cl_buffer_zeroed(struct tfmc_cl_context *context, uint64_t bytes, struct tfmc_cl_buffer **out,
                          struct tfmc_cl_error *error);
/* A buffer that kernels only read. If the device shares memory with the process and `data` begins at a page
 * (4096 bytes), the buffer is `data` itself, which must not change until the buffer is freed. Otherwise, or
 * if the driver declines, it is a copy. */
int tfmc_cl_buffer_share(struct tfmc_cl_context *context, const void *data, uint64_t bytes,
                         struct tfmc_cl_buffer **out, struct tfmc_cl_error *error);
void tfmc_cl_buffer_free(struct tfmc_cl_buffer *buffer);
uint64_t tfmc_cl_buffer_bytes(const struct tfmc_cl_buffer *buffer);
/* 1: memory of the process, not a copy. */
int tfmc_cl_buffer_is_shared(const struct tfmc_cl_buffer *buffer);
/* Synchronous transfers, after all work enqueued before. */
int tfmc_cl_upload(struct tfmc_cl_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes,
                   struct tfmc_cl_error *error);
int tfmc_cl_download(const struct tfmc_cl_buffer *buffer, uint64_t offset, void *to, uint64_t bytes,
                     struct tfmc_cl_error *error);
/* Asynchronous transfers: the caller's memory is in use until tfmc_cl_finish returns. */
int tfmc_cl_upload_async(struct tfmc_cl_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes,
                         struct tfmc_cl_error *error);
int tfmc_cl_download_async(const struct tfmc_cl_buffer *buffer, uint64_t offset, void *to, uint64_t bytes,
                           struct tfmc_cl_error *error);
/* Enqueues a copy on the device, between ranges that do not overlap; does not wait. */
int tfmc_cl_copy(const struct tfmc_cl_buffer *from, uint64_t from_offset, struct tfmc_cl_buffer *to,
                 uint64_t to_offset, uint64_t bytes, struct tfmc_cl_error *error);
/* Enqueues zeroing; does not wait. */
int tfmc_cl_clear(struct tfmc_cl_buffer *buffer, uint64_t offset, uint64_t bytes,
                  struct tfmc_cl_error *error);

/* ---- programs ---- */
struct tfmc_cl_program;
struct tfmc_cl_source {
	const char *text; /* OpenCL C [bytes] */
	uint64_t bytes;
	const char *options; /* of clBuildProgram; NULL: none */
	/* An existing directory of the user that no other user can write to; NULL: no cache. */
	const char *cache;
};
/* TFMC_CL_E_BUILD: the compiler rejects it. With a cache the binary is stored there and reused for equal
 * source, options, device and driver. Problems of the directory or its files are no failure: the program is
 * compiled. */
int tfmc_cl_program_build(struct tfmc_cl_context *context, const struct tfmc_cl_source *source,
                          struct tfmc_cl_program **out, struct tfmc_cl_error *error);
void tfmc_cl_program_free(struct tfmc_cl_program *program);
/* 1: created from a cached binary. */
int tfmc_cl_program_is_cached(const struct tfmc_cl_program *program);

struct tfmc_cl_kernel;
int tfmc_cl_kernel_create(struct tfmc_cl_program *program, const char *name, struct tfmc_cl_kernel **out,
                          struct tfmc_cl_error *error);
void tfmc_cl_kernel_free(struct tfmc_cl_kernel *kernel);
/* Most work-items of a work-group for this kernel. */
int tfmc_cl_kernel_items(const struct tfmc_cl_kernel *kernel, uint64_t *items, struct tfmc_cl_error *error);
/* Arguments persist across launches. `value` [bytes] is copied. */
int tfmc_cl_kernel_set(struct tfmc_cl_kernel *kernel, uint32_t index, const void *value, size_t bytes,
                       struct tfmc_cl_error *error);
int tfmc_cl_kernel_set_buffer(struct tfmc_cl_kernel *kernel, uint32_t index,
                              const struct tfmc_cl_buffer *buffer, struct tfmc_cl_error *error);
/* Enqueues groups[0] x groups[1] work-groups of items[0] x items[1] work-items, each >= 1; does not wait. */
int tfmc_cl_launch(struct tfmc_cl_kernel *kernel, const uint64_t groups[2], const uint64_t items[2],
                   struct tfmc_cl_error *error);
/* The same, with an event that records the kernel's time. The first timed launch waits for all earlier
 * work, since profiling needs another queue. */
struct tfmc_cl_event;
int tfmc_cl_launch_timed(struct tfmc_cl_kernel *kernel, const uint64_t groups[2], const uint64_t items[2],
                         struct tfmc_cl_event **out, struct tfmc_cl_error *error);
/* Waits for a timed launch of this context. *nanoseconds: as the device reports. Frees the event, after a
 * failure, too. */
int tfmc_cl_event_wait(const struct tfmc_cl_context *context, struct tfmc_cl_event *event,
                       uint64_t *nanoseconds, struct tfmc_cl_error *error);

/* ---- peaks ---- */
/* Measured peaks per second, for the roofline model. 0: the device reports no times; `bytes`: or too few
 * bytes were given. */
struct tfmc_cl_peaks {
	double f32;   /* f32 operations, two per multiply-add */
	double int8;  /* i8 operations, two per multiply-add, of dot products in plain integer arithmetic */
	double bytes; /* bytes read repeatedly from a buffer of the given size */
};
/* Measures for about a second. `bytes`: size of the buffer that is read, at most one buffer's limit and 512
 * MiB. */
int tfmc_cl_peaks(const struct tfmc_cl *cl, size_t number, uint64_t bytes, struct tfmc_cl_peaks *out,
                  struct tfmc_cl_error *error);

#ifdef __cplusplus
}
#endif

#endif
