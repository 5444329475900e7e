/* SPDX-License-Identifier: Apache-2.0 */
/* Hub folders: a directory with config.json and weights stands for a model file. */
#ifndef TFMC_FRONTEND_FOLDER_H
#define TFMC_FRONTEND_FOLDER_H

#include "ir/support/arena.h"
#include "ir/support/diag.h"
#include "ir/support/compiler.h"

bool folder_is(const char *path);
/* The text of a model file that lies in the folder; NULL after a diagnostic, with TFMC_IO or TFMC_INVALID. */
const char *folder_model(struct arena *a, struct diag_context *cx, const char *path, enum tfmc_status *st);
/*
 * What modules.json of a sentence embedder adds to that text: parameters and an output, nothing when it pools
 * nothing; NULL after a diagnostic.
 */
const char *folder_sentence(struct arena *a, struct diag_context *cx, const char *dir);

#endif
