/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of files that are given in place of a model file but cannot be one. */
#ifndef TFMC_FRONTEND_IMPORT_FILE_KIND_H
#define TFMC_FRONTEND_IMPORT_FILE_KIND_H

#include <stdbool.h>

#include "ir/support/arena.h"
#include "ir/support/diag.h"

/*
 * False after a diagnostic that names the kind of the file and what to give instead: objects, weights,
 * pickles, JSON of a hub folder. True otherwise, also for unreadable files.
 */
bool file_kind_may_be_model(struct arena *a, struct diag_context *cx, const char *path);

#endif
