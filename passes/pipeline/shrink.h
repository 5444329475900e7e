/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shrinks a module: a copy with the same structure and tiny sizes (two layers, few heads, short rows, a small
 * vocabulary), for validation without weight files. Constant sizes that the ops make equal stay equal; the
 * products and sums that reshapes, slices and concatenations require still hold. Mathematical constants (scales,
 * eps) are unchanged; weights are random, with magnitudes according to their use.
 */
#ifndef TFMC_PASSES_PIPELINE_SHRINK_H
#define TFMC_PASSES_PIPELINE_SHRINK_H

#include "ir/core/module.h"

struct shrunk {
	struct ir_module *module;     /* NULL: cannot be shrunk, see why. The caller destroys it */
	struct weight_source weights; /* of the new weights; in the arena */
	const char *why;              /* reason, in the arena */
};

/* TFMC_NO_MEMORY is the only failure. */
TFMC_MUST_USE enum tfmc_status module_shrink(const struct ir_module *m, struct arena *arena,
                                             struct shrunk *out);

#endif
