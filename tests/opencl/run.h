/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the functions of a planned module on an OpenCL device, for tests: what
 * backends/opencl/opencl.h asks of a host and no more. Either as a product would
 * (few buffers, all launches in order), or checked: every launch alone, every
 * place of it in memory of exactly its size, and its results against the
 * interpreter's values of the same group.
 *
 *   struct opencl_device *d = opencl_device_open(NULL);
 *   struct opencl_host *h = opencl_host_open(&cx, d, planned, target, NULL, batch);
 *   struct opencl_call call = {.function = "run", .dims = dims, .inputs = in, .outputs = out, .arena = &a};
 *   status = opencl_run_function(h, &call);
 */
#ifndef TFMC_TESTS_OPENCL_RUN_H
#define TFMC_TESTS_OPENCL_RUN_H

#include "ir/interp/interp.h"
#include "ir/target/target.h"
#include "tests/support/opencl/opencl_device.h"

struct opencl_host; /* a program on a device, its packed weights, its state */

enum opencl_mode {
	OPENCL_WHOLE,  /* one buffer for each kind of memory, read at the end; arena and outputs begin as NaN
	                */
	OPENCL_CHECKED /* launch by launch; the first group that differs is named in a diagnostic at it */
};

struct opencl_call {
	const char *function;
	const int64_t *dims; /* value of every dim symbol of the module, in their order */
	const struct interp_tensor
	        *inputs; /* [tensor params], as interp_run takes them: data NULL is the default */
	struct interp_tensor *outputs; /* [tensor results], filled; ROLE_PAST results included */
	struct arena *arena;           /* for results and what the call needs */
	enum opencl_mode mode;
	int64_t cap; /* most work-groups of a launch; 0: 64. All give the same bits */
	struct interp_state
	        *state;   /* CHECKED: the interpreter's, after the same calls; NULL without states */
	double tolerance; /* CHECKED: opencl_tolerance's argument; 0: 2e-4 */
};

/*
 * Builds the program and compiles it on the device, which must outlive the host and serves one host at a
 * time; packs the weights. `weights` may be NULL when no weight has a stored tensor; the state is zeros for
 * `batch` sequences. NULL after a diagnostic. `planned` and `cx` outlive the host.
 */
struct opencl_host *opencl_host_open(struct diag_context *cx, struct opencl_device *device,
                                     const struct ir_module *planned, const struct target *target,
                                     const struct weight_source *weights, int64_t batch);
void opencl_host_close(struct opencl_host *h); /* NULL is fine */
/* Zeros, no tokens. */
void opencl_host_reset(struct opencl_host *h);
/* The kernels' source, for messages. */
const char *opencl_host_source(const struct opencl_host *h);

/*
 * One call. Lengths (ROLE_PAST) are taken from the inputs and kept in the state afterwards. TFMC_INVALID
 * after a diagnostic: the device failed, a place lies outside its memory, or (CHECKED) a group differs or
 * wrote what it may only read.
 */
TFMC_MUST_USE enum tfmc_status opencl_run_function(struct opencl_host *h, const struct opencl_call *call);

/* What random_compare may allow: `base` for f32, more for types with fewer bits. */
double opencl_tolerance(enum ir_dtype t, double base);
/* The same for results of a module: what its states hold may be rounded to a neighbour. */
double opencl_state_tolerance(const struct ir_module *m, enum ir_dtype t, double base);

#endif
