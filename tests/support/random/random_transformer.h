/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random small Transformers as IR text, in many of the spellings that people
 * write: what the fusions and folds look for, and what they must leave alone.
 * A seed gives the same text everywhere. Functions: `run` (ids and lengths to
 * every row) and, if it decodes, `decode` (with a cache and the last row). Weights are tables, no
 * file is needed.
 */
#ifndef TFMC_TESTS_SUPPORT_RANDOM_RANDOM_TRANSFORMER_H
#define TFMC_TESTS_SUPPORT_RANDOM_RANDOM_TRANSFORMER_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/support/buf.h"

/* Rows of the cache, and the largest S. */
#define RANDOM_TRANSFORMER_ROWS 12

void random_transformer(struct buf *out, uint64_t seed, bool decodes);

#endif
