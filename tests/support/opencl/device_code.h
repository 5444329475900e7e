/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code for OpenCL devices, as an object holds it, of a planned module: what libtfmccl opens.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_DEVICE_CODE_H
#define TFMC_TESTS_SUPPORT_OPENCL_DEVICE_CODE_H

#include "backends/plan/opencl.h"
#include "ir/weights/weight.h"
#include "runtime/abi.h"

struct device_code {
	struct arena arena;
	struct opencl_program program;
	struct buf plan;
	char *weights; /* begin at a page */
	struct tfmc_cl_code code;
};

/* `weights` may be NULL when no weight has a stored tensor. TFMC_INVALID after a diagnostic; it is destroyed in any
 * case. */
TFMC_MUST_USE enum tfmc_status device_code_make(struct device_code *d, struct diag_context *cx,
                                                const struct ir_module *planned, const struct target *target,
                                                const struct weight_source *weights, uint64_t batch);
void device_code_destroy(struct device_code *d); /* one of zeros is allowed */
/* Row of the function, or SIZE_MAX. */
size_t device_code_function(const struct device_code *d, const char *name);

#endif
