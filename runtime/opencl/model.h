/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models on a device, as the code of objects calls them (struct tfmc_cl_code and tfmc_cl_call of
 * runtime/abi.h). A model owns device memory for weights, state, arena, scratch and the tensors of calls, and
 * executes launch plans on one in-order queue.
 *
 * All functions return TFMC_RT_OK, or TFMC_RT_E_DEVICE after a message to tfmc_device.message, which names
 * the kernel, the OpenCL call and its error code. After a failed call the state it wrote and its outputs are
 * undefined; the lengths of the sequences are unchanged.
 */
#ifndef TFMC_RUNTIME_OPENCL_MODEL_H
#define TFMC_RUNTIME_OPENCL_MODEL_H

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tfmc_cl_model;

/* Chooses a device, builds the program of the largest function, and allocates weights and state (zeroed).
 * Programs of other functions are built at their first call. Plan, source and weights of `code` must
 * outlive the model. `device` may be NULL; its message buffer is used until the model is closed. */
int32_t tfmc_cl_model_open(const struct tfmc_cl_code *code, const struct tfmc_device *device,
                           struct tfmc_cl_model **out);
void tfmc_cl_model_close(struct tfmc_cl_model *model); /* NULL is allowed */

/* Runs a function and waits: its results are in the caller's memory afterwards. */
int32_t tfmc_cl_model_call(struct tfmc_cl_model *model, const struct tfmc_cl_call *call);

/* ---- state: a fixed part, then one block per sequence; offsets from its beginning ---- */
/* The ranges must not overlap. */
int32_t tfmc_cl_model_copy(struct tfmc_cl_model *model, int64_t from, int64_t to, int64_t bytes);
/* Bytes [at, at + bytes) of block i become those of block from[i], for all i < n at once. */
int32_t tfmc_cl_model_permute(struct tfmc_cl_model *model, const int64_t *from, int64_t n, int64_t at,
                              int64_t bytes);
int32_t tfmc_cl_model_fetch(struct tfmc_cl_model *model, int64_t at, void *to, int64_t bytes);
int32_t tfmc_cl_model_store(struct tfmc_cl_model *model, int64_t at, const void *from, int64_t bytes);

/* Those functions, which objects with code for devices call: a loader of objects needs their addresses. */
#define TFMC_CL_MODEL_FUNCTIONS(X) \
	X(tfmc_cl_model_open)      \
	X(tfmc_cl_model_close)     \
	X(tfmc_cl_model_call)      \
	X(tfmc_cl_model_copy)      \
	X(tfmc_cl_model_permute)   \
	X(tfmc_cl_model_fetch)     \
	X(tfmc_cl_model_store)

#ifdef __cplusplus
}
#endif

#endif
