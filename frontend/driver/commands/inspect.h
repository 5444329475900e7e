/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect: describes a file or directory, one function for each kind.
 */
#ifndef TFMC_FRONTEND_DRIVER_CHECK_INSPECT_H
#define TFMC_FRONTEND_DRIVER_CHECK_INSPECT_H

#include "frontend/driver/commands/report.h"
#include "frontend/driver/compile/compile.h"
#include "frontend/syntax/files.h"

/* A model file, a hub directory, a GGUF file, or IR text. */
TFMC_MUST_USE enum tfmc_status inspect_model(struct driver *d, struct report *out);
TFMC_MUST_USE enum tfmc_status inspect_object(struct driver *d, struct report *out,
                                              const struct file_map *map);

#endif
