/* SPDX-License-Identifier: Apache-2.0 */
/* Hub folders: a directory with config.json and weights stands for a model file. */
#ifndef TFMC_FRONTEND_FOLDER_H
#define TFMC_FRONTEND_FOLDER_H

#include "ir/support/arena.h"
#include "ir/support/diag.h"

bool folder_is(const char *path);
/* The text of a model file that lies in the folder; NULL after a diagnostic. */
const char *folder_model(struct arena *a, struct diag_context *cx, const char *path);

#endif
