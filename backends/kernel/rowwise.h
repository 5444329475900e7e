/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Template of groups of kind `rowwise`: an op on rows of the last axis (softmax,
 * log_softmax, masked_softmax, mask, layer_norm, rms_norm) with the elementwise
 * ops before and after it. A row is read once, kept in registers, in the row of
 * the result or in scratch, and every row is computed by one worker.
 */
#ifndef TFMC_BACKENDS_KERNEL_ROWWISE_H
#define TFMC_BACKENDS_KERNEL_ROWWISE_H

#include "backends/kernel/group.h"

/*
 * Emits the body for job->group. Scratch of a worker: 4 bytes for each element of
 * a row. Less is enough when the result is f32 and its rows are dense; else rows
 * are computed again in every walk. f64 is refused.
 */
TFMC_MUST_USE enum tfmc_status rowwise_emit(const struct kernel_job *job);

#endif
