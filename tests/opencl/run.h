/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the functions of a planned module without state on an OpenCL device, for
 * tests: every launch alone, every place of it in memory of exactly its size, and
 * its results against the interpreter's values of the same group.
 *
 *   struct opencl_device *d = opencl_device_open(NULL);
 *   struct opencl_host *h = opencl_host_open(&cx, d, planned, target);
 *   struct opencl_call call = {.function = "run", .dims = dims, .inputs = in, .outputs = out, .arena = &a};
 *   status = opencl_run_function(h, &call);
 */
#ifndef TFMC_TESTS_OPENCL_RUN_H
#define TFMC_TESTS_OPENCL_RUN_H

#include "ir/interp/interp.h"
#include "ir/target/target.h"
#include "tests/support/opencl/opencl_device.h"

struct opencl_host; /* a program on a device, its packed weights */

struct opencl_call {
	const char *function;
	const int64_t *dims; /* value of every dim symbol of the module, in their order */
	const struct interp_tensor
	        *inputs; /* [tensor params], as interp_run takes them: data NULL is the default */
	struct interp_tensor *outputs; /* [tensor results], filled */
	struct arena *arena;           /* for results and what the call needs */
	int64_t cap;                   /* most work-groups of a launch; 0: 64. All give the same bits */
	double tolerance;              /* opencl_tolerance's argument; 0: 2e-4 */
};

/*
 * Builds the program and compiles it on the device, which must outlive the host and serves one host at a
 * time; packs the weights, none of which has a stored tensor. NULL after a diagnostic. `planned` and `cx`
 * outlive the host.
 */
struct opencl_host *opencl_host_open(struct diag_context *cx, struct opencl_device *device,
                                     const struct ir_module *planned, const struct target *target);
void opencl_host_close(struct opencl_host *h); /* NULL is fine */
/* The kernels' source, for messages. */
const char *opencl_host_source(const struct opencl_host *h);

/*
 * One call. TFMC_INVALID after a diagnostic: the device failed, a place lies outside its memory, or a group
 * differs or wrote what it may only read.
 */
TFMC_MUST_USE enum tfmc_status opencl_run_function(struct opencl_host *h, const struct opencl_call *call);

/* Tolerance of random_compare: `base` for f32, more for types with fewer bits. */
double opencl_tolerance(enum ir_dtype t, double base);

#endif
