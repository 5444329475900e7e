/* SPDX-License-Identifier: Apache-2.0 */
/* Register pressure of kernel IR. */
#ifndef TFMC_TESTS_KB_INTERP_LIVE_H
#define TFMC_TESTS_KB_INTERP_LIVE_H

#include "backends/kb/kernel_ir.h"

/* The maximum number of simultaneously live vectors of a function, in native vector registers. 0 if there is none. */
int kb_max_live_vectors(const struct kb_module *m, const char *name);

#endif
