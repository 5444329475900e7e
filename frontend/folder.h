/* SPDX-License-Identifier: Apache-2.0 */
/* Hub folders and GGUF files: a directory with config.json and weights, or one file, stands for a model file.
 */
#ifndef TFMC_FRONTEND_FOLDER_H
#define TFMC_FRONTEND_FOLDER_H

#include "ir/support/arena.h"
#include "ir/support/diag.h"
#include "ir/support/compiler.h"

bool folder_is(const char *path);
/* Whether a folder has a file, or a link to one, of that name. */
bool folder_has(struct arena *a, const char *dir, const char *name);
/*
 * The text of a model file that lies in the folder; NULL after a diagnostic, with TFMC_IO or TFMC_INVALID.
 * `name` NULL: that of the folder, in a hub cache that of the repository.
 */
const char *folder_model(struct arena *a, struct diag_context *cx, const char *path, const char *name,
                         enum tfmc_status *st);
/*
 * What modules.json of a sentence embedder adds to that text: parameters and an output, nothing when it pools
 * nothing; NULL after a diagnostic. `weights`: the file of a projection behind the pooling, NULL without one.
 */
const char *folder_sentence(struct arena *a, struct diag_context *cx, const char *dir, const char **weights);

/*
 * What generation_config.json adds to that text: ids as parameters, and a comment on how the library would
 * choose; NULL after a diagnostic.
 */
const char *folder_generation(struct arena *a, struct diag_context *cx, const char *dir);

/* A GGUF file, by its first bytes. */
bool gguf_model_is(const char *path);
/* How many parts a file has by its name (NAME-00001-of-0000N.gguf), 1 for other names; the name of part i
 * from 1. */
int gguf_parts(const char *path);
const char *gguf_part(struct arena *a, const char *path, int i);
/* The text of a model file that lies beside it; NULL after a diagnostic. Of a split file all parts are named.
 * A tokenizer in the metadata is the model's. `name` NULL: that of the file. */
const char *gguf_model(struct arena *a, struct diag_context *cx, const char *path, const char *name);

#endif
