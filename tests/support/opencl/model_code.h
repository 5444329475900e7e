/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's code for OpenCL devices, for tests of libtfmccl.
 */
#ifndef TFMC_TESTS_SUPPORT_OPENCL_MODEL_CODE_H
#define TFMC_TESTS_SUPPORT_OPENCL_MODEL_CODE_H

#include "tests/support/opencl/device_code.h"
#include "tests/support/tir.h"

struct model_code {
	struct arena arena;
	struct tir graph;
	struct ir_module *planned;
	struct device_code device;
};

/* Of a module as text, for a target ("opencl-gpu") and a pipeline ("O2"). Fails the test when it does not compile. */
void model_code_make(struct model_code *m, const char *text, const char *family, const char *level,
                     uint64_t batch);
void model_code_destroy(struct model_code *m);
/* Row of the function; fails the test when there is none. */
size_t model_code_function(const struct model_code *m, const char *name);

#endif
