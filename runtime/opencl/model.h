/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models on a device: what the code of objects calls (struct tfmc_cl_code, tfmc_cl_call in runtime/abi.h). A model has
 * memory for weights, state, arena, scratch, and the tensors of calls; it runs the steps of a plan by one queue in order.
 *
 * All functions return TFMC_RT_OK, or TFMC_RT_E_DEVICE after a message to tfmc_device.message, which names the step of
 * the plan, the call of OpenCL and its code. What a failed call has written of the state and of outputs is undefined, the
 * lengths of the sequences are as before.
 */
#ifndef TFMC_RUNTIME_OPENCL_MODEL_H
#define TFMC_RUNTIME_OPENCL_MODEL_H

#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tfmc_cl_model;

/*
 * Chooses a device, builds the program of the largest function, allocates weights and state (zeros). Other functions are
 * built when they are called first. `code`: plan, source and weights are read as long as the model lives. `device` may be
 * NULL; its memory for messages is used until the model is closed.
 */
int32_t tfmc_cl_model_open(const struct tfmc_cl_code *code, const struct tfmc_device *device,
                           struct tfmc_cl_model **out);
void tfmc_cl_model_close(struct tfmc_cl_model *model); /* NULL is allowed */

/* Runs a function; its results are in the caller's memory when this returns. */
int32_t tfmc_cl_model_call(struct tfmc_cl_model *model, const struct tfmc_cl_call *call);

/* ---- bytes of the state, counted from its beginning: a fixed part, then a block for each sequence ---- */
/* Places do not overlap. */
int32_t tfmc_cl_model_copy(struct tfmc_cl_model *model, int64_t from, int64_t to, int64_t bytes);
/* Bytes [at, at + bytes) of block i become what those of block from[i] were, for all i below n. */
int32_t tfmc_cl_model_permute(struct tfmc_cl_model *model, const int64_t *from, int64_t n, int64_t at,
                              int64_t bytes);
int32_t tfmc_cl_model_fetch(struct tfmc_cl_model *model, int64_t at, void *to, int64_t bytes);
int32_t tfmc_cl_model_store(struct tfmc_cl_model *model, int64_t at, const void *from, int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
