/* SPDX-License-Identifier: Apache-2.0 */
/* How many vector registers a recorded function wants at once. */
#ifndef TFMC_TESTS_KB_INTERP_LIVE_H
#define TFMC_TESTS_KB_INTERP_LIVE_H

#include "backends/kb/kernel_ir.h"

/* Largest number of vector values alive at once in a function, in units of native registers. */
int kb_max_live_vectors(const struct kb_module *m, const char *name);

#endif
