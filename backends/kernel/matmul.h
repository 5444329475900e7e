/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of groups of kind linear: x w^T + b and the elementwise operations
 * that follow it, as register tiles over packed weights.
 */
#ifndef TFMC_BACKENDS_KERNEL_MATMUL_H
#define TFMC_BACKENDS_KERNEL_MATMUL_H

#include "backends/kernel/group.h"

/*
 * x [..,K], w [N,K] in f32 (PANEL16 or strided), b [N]. Every element of the product is one chain of fused
 * multiply-adds in increasing k, whatever the tile, the rows beside it and the number of workers: its bits
 * depend on its row of x and its row of w only.
 */
TFMC_MUST_USE enum tfmc_status kernel_linear(const struct kernel_job *job);

#endif
