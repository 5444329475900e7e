/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are given in the place of a model file and cannot be one. */
#ifndef TFMC_FRONTEND_IMPORT_FILE_KIND_H
#define TFMC_FRONTEND_IMPORT_FILE_KIND_H

#include <stdbool.h>

#include "ir/support/arena.h"
#include "ir/diag/diag.h"

/*
 * False after a diagnostic that says what the file is and what to give instead: objects, weights, pickles,
 * JSON of a hub folder. True for everything else, also for what cannot be read.
 */
bool file_kind_may_be_model(struct arena *a, struct diag_context *cx, const char *path);

#endif
