/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights of a shrunk module: seeded numbers under the names of the weights,
 * tables by their formula.
 */
#ifndef TFMC_PASSES_SHRINK_SHRINK_WEIGHTS_H
#define TFMC_PASSES_SHRINK_SHRINK_WEIGHTS_H

#include "passes/shrink/shrink_shapes.h"

/* Adds the weights of s->m to s->out in their new sizes. False when memory ran out or a table cannot be made.
 */
bool shrink_weights(struct shapes *s, struct arena *arena, struct weight_source *source);

#endif
