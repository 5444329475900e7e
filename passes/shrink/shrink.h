/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a graph with the same structure and tiny sizes: two layers, few
 * heads, short rows, a small vocabulary. Constant sizes that the ops make equal
 * stay equal, products and sums that reshapes, slices and concatenations need
 * still hold. Constants of the mathematics (scales, eps) stay as they are;
 * weights get seeded numbers of the magnitude that their use wants.
 */
#ifndef TFMC_PASSES_SHRINK_SHRINK_H
#define TFMC_PASSES_SHRINK_SHRINK_H

#include "ir/core/module.h"

struct shrunk {
	struct ir_module *module;     /* NULL: cannot be shrunk, see why; the caller destroys it */
	struct weight_source weights; /* of the new weights; lives in the arena */
	const char *why;              /* text in the arena */
};

/* TFMC_NO_MEMORY is the only failure. */
TFMC_MUST_USE enum tfmc_status module_shrink(const struct ir_module *m, struct arena *arena,
                                             struct shrunk *out);

#endif
