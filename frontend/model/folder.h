/* SPDX-License-Identifier: Apache-2.0 */
/* Hub folders and GGUF files as models: a directory with config.json and weights, or one file, in place of
 * a model file. */
#ifndef TFMC_FRONTEND_MODEL_FOLDER_H
#define TFMC_FRONTEND_MODEL_FOLDER_H

#include "frontend/weights/files.h"
#include "ir/support/arena.h"
#include "ir/support/diag.h"
#include "ir/support/compiler.h"

bool path_is_directory(const char *path);
/* True: the directory has a file, or a link to one, of that name. */
bool directory_has_file(struct arena *a, const char *dir, const char *name);
/*
 * Writes the text of a model file for a hub folder; NULL after a diagnostic, with *st TFMC_IO or
 * TFMC_INVALID. `name` NULL: that of the directory, in a hub cache of the repository. `at`: path of the
 * folder relative to the model file, "": the same directory; adapters: further keys of `weights`, after a comma, or "".
 */
const char *hub_dir_model(struct parsed_files *f, const char *path, const char *name, const char *at,
                          const char *adapters, enum tfmc_status *st);

/*
 * Text for generation_config.json: the section `generate`, and a comment on sampling; NULL after a
 * diagnostic. Ids that neither it nor config.json has are those of the tokenizer's tokens: end of text,
 * target language.
 */
const char *hub_dir_generation(struct parsed_files *f, const char *dir, const struct json_node *config);

/* Reads a JSON file of the folder that must be an object; NULL after a diagnostic. */
const struct json_node *hub_dir_json(struct parsed_files *f, const char *dir, const char *file);
/* String of a special token by its key in tokenizer_config.json or special_tokens_map.json, NULL: none;
 * false after a diagnostic. */
bool hub_dir_token_of(struct parsed_files *f, const char *dir, const char *key, const char **text);
/* Id of a string in the tokenizer files, -1: none; false after a diagnostic. */
bool hub_dir_token_id(struct parsed_files *f, const char *dir, const char *text, int64_t *id);

/* True: a GGUF file, by its magic. */
bool is_gguf_file(struct diag_context *cx, const char *path);
/* Number of parts of a split file by its name (NAME-00001-of-0000N.gguf), 1 for other names; name of part
 * i, from 1. */
int gguf_part_count(const char *path);
/* Name of part i, from 1, of a split file. */
const char *gguf_part_name(struct arena *a, const char *path, int i);
/* Writes the text of a model file for a GGUF file, with all parts of a split file and the tokenizer in the
 * metadata; NULL after a diagnostic. `at`: as for a folder. `name` NULL: that of the file. */
const char *gguf_model(struct parsed_files *f, const char *path, const char *name, const char *at);

#endif
