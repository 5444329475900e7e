/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probed values of a model (--probe): listed by inspect, or split from the results of an entry (passes/probe).
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_PROBES_H
#define TFMC_FRONTEND_DRIVER_RUN_PROBES_H

#include "frontend/driver/run/tensors.h"

/* inspect --probe: names, types and locations of the values of run and encode that match. */
enum exit_code inspect_probes(struct driver *d);
/* Replaces the results of a function that hold probed values by one tensor for each value, in order of
 * computation. */
TFMC_MUST_USE enum tfmc_status probes_split(struct driver *d, const struct probe_values *values,
                                            const char *function, struct named_tensors *t);
/* The IR function that implements an entry: decode for prefill and step. */
const char *entry_function(const char *entry);

#endif
