/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel generator of attention groups: softmax(mask(softcap(q k^T scale + bias))) v with an online softmax
 * over blocks of keys (FlashAttention), so that no row of scores is ever complete in memory. */
#ifndef TFMC_BACKENDS_KERNELS_ATTENTION_H
#define TFMC_BACKENDS_KERNELS_ATTENTION_H

#include "backends/kernels/group.h"

/*
 * Emits the body of job->group. q [B,H,S,E], k [B,K,T,E], v [B,K,T,V]; E and V are constants. The root's
 * result reaches the group's one yield through transposes and reshapes. Keys and values at or beyond the last
 * visible key are never read. A row has the same bits in every tile, chunk of queries, batch and number of
 * workers. Scratch of a worker: target_attention_scratch.
 */
TFMC_MUST_USE enum tfmc_status kernel_attention(const struct kernel_job *job);

/* Returns the rows of a task that the items of a work-group share; 0: the group has no root attention with constant
 * sizes of a head, or work-groups cannot compute it (gpu_attention_choose), so that each work-item takes tasks of its
 * own. */
int64_t attention_group_rows(const struct ir_func *f, const struct ir_op *group, const struct target *t);

#define ATTENTION_TASK_ROWS 32 /* rows of a worker's task, for counting tasks */

#endif
