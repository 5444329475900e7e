/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one run of the command may take: the options --limit-*, or what they
 * are by default. frontend/driver/README.md, section "Limits", lists them.
 */
#ifndef TFMC_FRONTEND_DRIVER_OPTIONS_LIMITS_H
#define TFMC_FRONTEND_DRIVER_OPTIONS_LIMITS_H

#include "ir/diag/diag.h"

struct driver_options;
struct limits {
	uint64_t weights; /* bytes beyond BACKEND_WEIGHTS_FACTOR times the tensors that are read */
	uint64_t code;    /* bytes of machine code, about */
	uint64_t memory;  /* bytes of a session's arena and state */
};
struct limits limits_of(const struct driver_options *o);
/* Processors that this process may use: its affinity, within the quota of its control group; at least 1. */
int64_t limits_processors(void);
/* TFMC_INVALID after a message when a session of so many bytes is too large. */
TFMC_MUST_USE enum tfmc_status limits_session(const struct limits *l, struct diag_context *cx, uint64_t arena,
                                              uint64_t state);

#endif
