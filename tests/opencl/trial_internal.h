/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kinds of trials share.
 */
#ifndef TFMC_TESTS_OPENCL_TRIAL_INTERNAL_H
#define TFMC_TESTS_OPENCL_TRIAL_INTERNAL_H

#include "tests/opencl/trial.h"

#define TRIAL_TOLERANCE 2e-4

/* The trial's pipeline on a graph. */
enum tfmc_status trial_plan(struct trial *t, const struct ir_module *graph, struct ir_module **out);
/* A verified module from text, or NULL after a diagnostic. */
struct ir_module *trial_read(struct trial *t, const char *name, const char *text);
/* Appends a module to the log; NULL is fine. */
void trial_show(struct trial *t, const struct ir_module *m);
/* After a program was refused: nothing to try when it is not supported yet. */
enum trial_result trial_refused(const struct trial *t);

bool trial_same_bits(const struct interp_tensor *a, const struct interp_tensor *b, size_t n);
/* Outputs of a function of m. False with a line in the log. */
bool trial_outputs_agree(struct trial *t, const struct ir_module *m, const char *what,
                         const struct interp_tensor *have, const struct interp_tensor *want, size_t n);

#endif
