/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which op of a module first has another value than the same op of the module
 * before a pass. "The same" is found by name, place and shape, since a pass
 * keeps those of what it keeps; of several with equal keys any equal value will
 * do.
 */
#ifndef TFMC_PASSES_VALIDATE_CHANGED_H
#define TFMC_PASSES_VALIDATE_CHANGED_H

#include "passes/validate/trial.h"

struct changed {
	const char *op, *value; /* NULL: no op that both modules have differs */
	struct ir_loc loc;
};

/* Call `call` of the trial on both, wide; differences up to `bound` are none. Texts live in `arena`. */
TFMC_MUST_USE enum tfmc_status changed_find(const struct trial *t, struct diag_context *cx,
                                            const struct ir_module *before, const struct ir_module *after,
                                            size_t call, double bound, struct arena *arena,
                                            struct changed *out);

#endif
