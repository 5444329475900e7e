/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmccl: OpenCL devices for compiled models. The OpenCL library is looked for when a program runs, so nothing
 * of OpenCL is needed to build or link one. Depends on libc only.
 *
 * 	#include <tfmc_cl.h>
 * 	struct tfmc_cl_error error;
 * 	struct tfmc_cl *cl;
 * 	size_t number;
 * 	if (tfmc_cl_open(NULL, &cl, &error) || tfmc_cl_choose(cl, "radeon", &number, &error))
 * 		fprintf(stderr, "%s\n", error.text);
 *
 * Functions that may fail return a status, 0 when they succeed, and describe a failure in *error, which may be
 * NULL and says nothing after success. After a failure *out is NULL. Nothing is printed, nothing ends the process, there is no global state. A
 * missing pointer is TFMC_CL_E_NULL; functions that return pointers or counts give NULL or 0.
 *
 * Threads: an opened library does not change, so any number of threads may look at it.
 */
#ifndef TFMC_CL_H
#define TFMC_CL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Beside those of abi.h and tfmc_rt.h. */
enum tfmc_cl_status {
	TFMC_CL_OK = 0,
	TFMC_CL_E_NULL = 200, /* a pointer is missing */
	TFMC_CL_E_MEMORY,     /* memory of the process could not be allocated */
	TFMC_CL_E_LIBRARY,    /* there is no OpenCL library, or it lacks a function */
	TFMC_CL_E_DEVICE,     /* there is no such device */
	TFMC_CL_E_CALL,       /* a call failed: the text names it and its code */
	TFMC_CL_E_ANSWER      /* a call succeeded with an answer that cannot be */
};

#define TFMC_CL_TEXT 4096
struct tfmc_cl_error {
	int code; /* of OpenCL, below 0; 0: it was no call that failed */
	char text
	        [TFMC_CL_TEXT]; /* "clGetPlatformIDs: CL_OUT_OF_HOST_MEMORY (-6)"; any bytes of a driver may be in
	                            it, longer ones are cut off */
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
	uint32_t clock;        /* MHz */
	uint32_t vector_width; /* floats of a native vector */
	uint64_t memory;       /* bytes */
	uint64_t largest;      /* bytes of one buffer */
	uint64_t local_memory; /* bytes of a work-group */
	uint64_t group_items;  /* work-items of a work-group */
	int has_own_local;     /* local memory is faster than global memory */
	int is_unified;        /* memory of the device is memory of the process */
	int has_fp16, has_fp64, has_subgroups, has_integer_dot; /* extensions */
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
 * lower or upper case; NULL or "": any. Of several the best: a GPU, else an accelerator, else a processor, of most
 * compute units times clock. TFMC_CL_E_DEVICE: there is none.
 */
int tfmc_cl_choose(const struct tfmc_cl *cl, const char *wanted, size_t *number, struct tfmc_cl_error *error);

#ifdef __cplusplus
}
#endif

#endif
