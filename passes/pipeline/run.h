/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pass manager. It refers to every pass, so it is a module after all of them; passes see passes/framework only.
 */
#ifndef TFMC_PASSES_PIPELINE_RUN_H
#define TFMC_PASSES_PIPELINE_RUN_H

#include "passes/framework/pass.h"

/*
 * Runs the pipeline on `in`, which is not modified. *out: a new module (for an empty pipeline, a copy), which the
 * caller destroys. report may be NULL. On failure *out is NULL and a diagnostic was emitted.
 */
TFMC_MUST_USE enum tfmc_status passes_run(struct diag_context *cx, const struct pipeline *p,
                                          const struct pass_options *options, const struct ir_module *in,
                                          struct ir_module **out, struct pass_report *report);

#endif
