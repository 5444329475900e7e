/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms that kernels of linears compute: before the one linear that reads
 * them, or after a small one.
 */
#ifndef TFMC_PASSES_GROUP_NORMS_H
#define TFMC_PASSES_GROUP_NORMS_H

#include "passes/group/parts.h"

/* op is a norm of whole rows that the linear of c may compute after everything it computes so far. */
bool group_norm_can_follow(const struct former *s, const struct cluster *c, const struct ir_op *op);
/* The one linear that reads this norm, as its input, when its kernel may compute the norm's rows. */
const struct ir_op *group_linear_behind(struct former *s, const struct ir_op *norm);
/* A device: `linear` computes the rows of this norm, its input, though others read them, too. */
bool group_repeats_norm(const struct former *s, const struct ir_op *linear, const struct ir_op *norm);
/* Gives the linear that begins `cluster` the norm before it, when it may. */
void group_take_norm(struct former *s, size_t cluster);

#endif
