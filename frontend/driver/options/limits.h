/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource limits of one run of the command: the options --limit-*, or their defaults. frontend/driver/README.md,
 * section "Limits", lists them.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_LIMITS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_LIMITS_H

#include "ir/support/diag.h"

struct driver_options;
struct limits {
	uint64_t
	        weights; /* packed bytes beyond BACKEND_WEIGHTS_FACTOR times the stored tensors that are read */
	uint64_t code;   /* bytes of machine code; 8 bytes for each instruction of the kernel IR */
	uint64_t memory; /* bytes of a session's arena and state */
};
struct limits limits_of(const struct driver_options *o);
/* Processors that this process may use: its CPU affinity, within the quota of its control group; at least 1. */
int64_t limits_processors(void);
/* TFMC_INVALID after a diagnostic when arena + state of a session exceed the memory limit. Both in bytes. */
TFMC_MUST_USE enum tfmc_status limits_session(const struct limits *l, struct diag_context *cx, uint64_t arena,
                                              uint64_t state);

#endif
