/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of groups of kind attention: softmax(mask(softcap(q k^T scale + bias))) v
 * with an online softmax over blocks of keys, so that no row of scores is ever
 * whole in memory.
 */
#ifndef TFMC_BACKENDS_ATTENTION_ATTENTION_H
#define TFMC_BACKENDS_ATTENTION_ATTENTION_H

#include "backends/kernel/group.h"

/*
 * q [B,H,S,E], k [B,K,T,E], v [B,K,T,V]; E and V are constants. The root's result goes through transposes and
 * reshapes to the group's only yield. Keys and values at or beyond the last visible key are never read. A row
 * has the same bits in every tile, chunk of queries, batch and number of workers.
 *
 * The worker's scratch is that of target_attention_scratch.
 */
TFMC_MUST_USE enum tfmc_status kernel_attention(const struct kernel_job *job);

/* Rows of a task when the items of a work-group share it; 0: they cannot, the head is too large for their memory. */
int64_t attention_shared_rows(const struct target *t, int64_t size, int64_t value_size);

#define ATTENTION_TASK_ROWS 32 /* that a worker takes at once, for counting tasks */

#endif
