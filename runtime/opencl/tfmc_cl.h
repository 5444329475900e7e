/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmccl: OpenCL devices for compiled models. The OpenCL library is looked for when a program runs, so nothing
 * of OpenCL is needed to build or link one. Depends on libc only.
 *
 * 	#include <tfmc_cl.h>
 * 	struct tfmc_cl_error error;
 * 	struct tfmc_cl *cl;
 * 	size_t number;
 * 	if (tfmc_cl_open(NULL, &cl, &error) || tfmc_cl_choose(cl, 0, "radeon", &number, &error))
 * 		fprintf(stderr, "%s\n", error.text);
 *
 * Functions that may fail return a status, 0 when they succeed, and describe a failure in *error, which may be
 * NULL and says nothing after success. After a failure *out is NULL. Nothing is printed,
 * nothing ends the process, there is no global state. A missing pointer is TFMC_CL_E_NULL; functions that return
 * pointers or counts give NULL or 0.
 *
 * Threads: an opened library does not change, so any number of threads may look at it. A context, with what was
 * made of it, is used by one thread at a time. What was made of something is freed before it.
 */
#ifndef TFMC_CL_H
#define TFMC_CL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Beside those of abi.h and tfmc_rt.h. libtfmctok has the same numbers for others. */
enum tfmc_cl_status {
	TFMC_CL_OK = 0,
	TFMC_CL_E_NULL = 200, /* a pointer is missing */
	TFMC_CL_E_MEMORY,     /* memory of the process could not be allocated */
	TFMC_CL_E_LIBRARY,    /* there is no OpenCL library, or it lacks a function */
	TFMC_CL_E_DEVICE,     /* there is no such device */
	TFMC_CL_E_CALL,       /* a call failed: the text names it and its code */
	TFMC_CL_E_ANSWER,     /* a call succeeded with an answer that cannot be */
	TFMC_CL_E_RANGE,      /* bytes outside of a buffer, or a size that the device does not take */
	TFMC_CL_E_BUILD       /* a program does not compile: the text has the compiler's messages */
};

#define TFMC_CL_TEXT 4096
struct tfmc_cl_error {
	int code; /* of OpenCL, below 0; 0: it was no call that failed */
	/* "clGetPlatformIDs: CL_OUT_OF_HOST_MEMORY (-6)"; any bytes of a driver may be in it, longer ones
	 * are cut off */
	char text[TFMC_CL_TEXT];
};

enum tfmc_cl_type { TFMC_CL_OTHER, TFMC_CL_CPU, TFMC_CL_ACCELERATOR, TFMC_CL_GPU };
/* Texts are what the driver says, with blanks in place of control characters. Flags are 0 or 1. */
struct tfmc_cl_device {
	const char *platform, *platform_version; /* "Portable Computing Language" */
	const char *name, *vendor, *driver;      /* driver: its version */
	const char *version, *c_version;         /* "OpenCL 3.0 ..", "OpenCL C 1.2 .." */
	const char *extensions;
	enum tfmc_cl_type type;
	uint32_t compute_units;
	uint32_t clock;                        /* MHz */
	uint32_t vector_width;                 /* floats of a native vector */
	uint64_t memory;                       /* bytes */
	uint64_t largest;                      /* bytes of one buffer */
	uint64_t local_memory;                 /* bytes of a work-group */
	uint64_t group_items;                  /* work-items of a work-group */
	int has_own_local;                     /* local memory is faster than global memory */
	int is_unified;                        /* memory of the device is memory of the process */
	int has_fp16, has_fp64, has_subgroups; /* extensions */
	int has_integer_dot; /* the extension, of which the device does not say that it is slow */
};

/* ---- what there is ---- */
struct tfmc_cl;
/*
 * Opens an OpenCL library and lists its devices of OpenCL 1.2 or newer that have a compiler and are little-endian.
 * `library` is the path of one; NULL: one that the process has loaded already, else libOpenCL.so.1, else
 * libOpenCL.so. It stays loaded when it is closed. No device is no failure; a device or platform whose driver
 * fails is left out, and tfmc_cl_fault says so.
 */
int tfmc_cl_open(const char *library, struct tfmc_cl **out, struct tfmc_cl_error *error);
void tfmc_cl_close(struct tfmc_cl *cl); /* NULL is allowed */
size_t tfmc_cl_count(const struct tfmc_cl *cl);
/* Device `number`, from 0; NULL: there are fewer. Valid until the library is closed. */
const struct tfmc_cl_device *tfmc_cl_device(const struct tfmc_cl *cl, size_t number);
/* Why a platform or device was left out, the one `number`, from 0; NULL: there are fewer. */
const char *tfmc_cl_fault(const struct tfmc_cl *cl, size_t number);
/*
 * The device that `wanted` names: its number, or a part of its name or of its platform's or vendor's, in
 * lower or upper case; NULL or "": any. `devices` is an enum tfmc_cl_for of abi.h, 0: all. Of several of these the
 * best: a GPU, else an accelerator, else a processor, of most compute units times clock. TFMC_CL_E_DEVICE: there is
 * none, or it is none of `devices`.
 */
int tfmc_cl_choose(const struct tfmc_cl *cl, int devices, const char *wanted, size_t *number,
                   struct tfmc_cl_error *error);

/* ---- a device in use ---- */
struct tfmc_cl_context; /* with one queue: what is asked for happens in order */
/* Uploads and downloads are made of calls of at most so many bytes; 0: TFMC_CL_PIECE. */
#define TFMC_CL_PIECE ((uint64_t)64 << 20)
int tfmc_cl_context_open(const struct tfmc_cl *cl, size_t number, uint64_t piece,
                         struct tfmc_cl_context **out, struct tfmc_cl_error *error);
/* Waits for what is under way. NULL is allowed, here and where something is freed. */
void tfmc_cl_context_close(struct tfmc_cl_context *context);
/* Submits what was enqueued so far to the device, and does not wait. */
int tfmc_cl_flush(struct tfmc_cl_context *context, struct tfmc_cl_error *error);
/* Waits until everything is done. Faults of kernels may show here, and at a download. */
int tfmc_cl_finish(struct tfmc_cl_context *context, struct tfmc_cl_error *error);

/* ---- memory ---- */
struct tfmc_cl_buffer;
/* What it holds is not defined. TFMC_CL_E_RANGE: more than the device gives in one buffer. 0 bytes are allowed. */
int tfmc_cl_buffer_create(struct tfmc_cl_context *context, uint64_t bytes, struct tfmc_cl_buffer **out,
                          struct tfmc_cl_error *error);
/*
 * A buffer that kernels only read. On a device that shares the memory of the process, and with `data` at the beginning
 * of a page (4096 bytes), it is the data itself, which must stay as it is until the buffer is freed. Elsewhere, or
 * when the driver refuses, it is a copy.
 */
int tfmc_cl_buffer_share(struct tfmc_cl_context *context, const void *data, uint64_t bytes,
                         struct tfmc_cl_buffer **out, struct tfmc_cl_error *error);
void tfmc_cl_buffer_free(struct tfmc_cl_buffer *buffer);
uint64_t tfmc_cl_buffer_bytes(const struct tfmc_cl_buffer *buffer);
/* 1: the data of the process, not a copy. */
int tfmc_cl_buffer_is_shared(const struct tfmc_cl_buffer *buffer);
/* Both return when the bytes are copied, after everything that was asked for before. */
int tfmc_cl_upload(struct tfmc_cl_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes,
                   struct tfmc_cl_error *error);
int tfmc_cl_download(const struct tfmc_cl_buffer *buffer, uint64_t offset, void *to, uint64_t bytes,
                     struct tfmc_cl_error *error);
/* The same, but they do not wait: the bytes in memory of the process are in use until tfmc_cl_finish returns. */
int tfmc_cl_upload_async(struct tfmc_cl_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes,
                         struct tfmc_cl_error *error);
int tfmc_cl_download_async(const struct tfmc_cl_buffer *buffer, uint64_t offset, void *to, uint64_t bytes,
                           struct tfmc_cl_error *error);
/* Asks for a copy on the device, between places that do not overlap; does not wait. */
int tfmc_cl_copy(const struct tfmc_cl_buffer *from, uint64_t from_offset, struct tfmc_cl_buffer *to,
                 uint64_t to_offset, uint64_t bytes, struct tfmc_cl_error *error);
/* Asks for zeros; does not wait. */
int tfmc_cl_clear(struct tfmc_cl_buffer *buffer, uint64_t offset, uint64_t bytes,
                  struct tfmc_cl_error *error);

/* ---- programs ---- */
struct tfmc_cl_program;
struct tfmc_cl_source {
	const char *text; /* OpenCL C [bytes] */
	uint64_t bytes;
	const char *options; /* of clBuildProgram; NULL: none */
	/* a folder of the user that exists, into which nobody else may write; NULL: none */
	const char *cache;
};
/*
 * TFMC_CL_E_BUILD: the compiler refuses it. With a cache the binary is kept there for equal sources, options, devices
 * and drivers. What is wrong with the folder or a file in it is no failure: the program is compiled.
 */
int tfmc_cl_program_build(struct tfmc_cl_context *context, const struct tfmc_cl_source *source,
                          struct tfmc_cl_program **out, struct tfmc_cl_error *error);
void tfmc_cl_program_free(struct tfmc_cl_program *program);
/* 1: made of a binary of the cache. */
int tfmc_cl_program_is_cached(const struct tfmc_cl_program *program);

struct tfmc_cl_kernel;
int tfmc_cl_kernel_create(struct tfmc_cl_program *program, const char *name, struct tfmc_cl_kernel **out,
                          struct tfmc_cl_error *error);
void tfmc_cl_kernel_free(struct tfmc_cl_kernel *kernel);
/* Most work-items of a work-group of this kernel. */
int tfmc_cl_kernel_items(const struct tfmc_cl_kernel *kernel, uint64_t *items, struct tfmc_cl_error *error);
/* Arguments keep their values from launch to launch. `value` [bytes] is copied. */
int tfmc_cl_kernel_set(struct tfmc_cl_kernel *kernel, uint32_t index, const void *value, size_t bytes,
                       struct tfmc_cl_error *error);
int tfmc_cl_kernel_set_buffer(struct tfmc_cl_kernel *kernel, uint32_t index,
                              const struct tfmc_cl_buffer *buffer, struct tfmc_cl_error *error);
/* Asks for groups[0] x groups[1] work-groups of items[0] x items[1] work-items each, all from 1; does not wait. */
int tfmc_cl_launch(struct tfmc_cl_kernel *kernel, const uint64_t groups[2], const uint64_t items[2],
                   struct tfmc_cl_error *error);
/*
 * The same, and *out tells how long the kernel ran. The first one waits until everything before it is done; from then on
 * the queue keeps times.
 */
struct tfmc_cl_event;
int tfmc_cl_launch_timed(struct tfmc_cl_kernel *kernel, const uint64_t groups[2], const uint64_t items[2],
                         struct tfmc_cl_event **out, struct tfmc_cl_error *error);
/* Waits for that launch of this context; *nanoseconds as the device says. The event is freed, also after a failure. */
int tfmc_cl_event_wait(const struct tfmc_cl_context *context, struct tfmc_cl_event *event,
                       uint64_t *nanoseconds, struct tfmc_cl_error *error);

/* ---- roofs ---- */
/* What a device can do in a second, measured. 0: it says no times; `bytes` also: there are too few. */
struct tfmc_cl_peaks {
	double f32; /* operations of fused multiply-adds of f32, two each */
	double int8; /* of dot products of bytes in the arithmetic that all devices have, two for each pair of bytes */
	double bytes; /* read, again and again, from a buffer of so many as the caller says */
};
/* On a device of the list, for about a second. `bytes` beyond one buffer, or 512 MiB, are as many. */
int tfmc_cl_peaks(const struct tfmc_cl *cl, size_t number, uint64_t bytes, struct tfmc_cl_peaks *out,
                  struct tfmc_cl_error *error);

#ifdef __cplusplus
}
#endif

#endif
