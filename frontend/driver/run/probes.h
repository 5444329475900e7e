/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes of the commands run and verify (probes.c), and comparison with values that
 * another framework wrote (frontend/driver/check/reference.c).
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_PROBES_H
#define TFMC_FRONTEND_DRIVER_RUN_PROBES_H

#include "frontend/driver/run/tensors.h"

/* inspect --probe: names, types and places of the values that match, of run and of encode. */
enum exit_code inspect_probes(struct driver *d);
/* In place of the results of a function that hold probes: one tensor for each value, in order. */
TFMC_MUST_USE enum tfmc_status probes_split(struct driver *d, const struct probe_values *values,
                                            const char *function, struct named_tensors *t);
/* The function of the IR that serves an entry: decode of prefill and step. */
const char *entry_function(const char *entry);

#endif
