/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are wrong on purpose: what watches the device must report each,
 * or the zero reports of the right ones mean nothing.
 */
#ifndef TFMC_TESTS_OPENCL_WRONG_H
#define TFMC_TESTS_OPENCL_WRONG_H

#include <stdbool.h>

#include "tests/support/opencl/opencl_device.h"

/* Runs "race", "local-race", "bounds", "read-bounds" or "unset". False when there is no such kernel or the
 * device refuses it. */
bool wrong_run(struct opencl_device *d, const char *kind);

#endif
