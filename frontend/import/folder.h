/* SPDX-License-Identifier: Apache-2.0 */
/* Hub folders and GGUF files: a directory with config.json and weights, or one file, stands for a model file.
 */
#ifndef TFMC_FRONTEND_IMPORT_FOLDER_H
#define TFMC_FRONTEND_IMPORT_FOLDER_H

#include "frontend/formats/parsed.h"
#include "ir/support/arena.h"
#include "ir/diag/diag.h"
#include "ir/support/compiler.h"

bool folder_is(const char *path);
/* Whether a folder has a file, or a link to one, of that name. */
bool folder_has(struct arena *a, const char *dir, const char *name);
/*
 * The text of a model file; NULL after a diagnostic, with TFMC_IO or TFMC_INVALID. `name` NULL: that of the
 * folder, in a hub cache that of the repository. `at`: the folder as seen from where the file will lie, ""
 * for in it.
 */
const char *folder_model(struct parsed_files *f, const char *path, const char *name, const char *at,
                         enum tfmc_status *st);
/* A string as a scalar of YAML. */
const char *folder_scalar(struct arena *a, const char *text);
/* A file of the folder as a word of that text. */
const char *folder_file(struct arena *a, const char *at, const char *name);
/*
 * What modules.json of a sentence embedder adds to that text: parameters and an output, nothing when it pools
 * nothing; NULL after a diagnostic. `weights`: the file of a projection after the pooling, NULL without one.
 */
const char *folder_sentence(struct parsed_files *f, const char *dir, const char **weights);

/*
 * What generation_config.json adds to that text: ids as parameters, and a comment on how the library would
 * choose; NULL after a diagnostic. Ids that neither it nor config.json has are those of the tokenizer's
 * tokens: the one that ends a text, the language to write.
 */
const char *folder_generation(struct parsed_files *f, const char *dir, const struct json_node *config);

/* The section tokenizer for the files of the folder, "" without any. */
const char *folder_tokenizer(struct arena *a, const char *dir, const char *at,
                             const struct json_node *config);
/* A file of the folder that is one object; NULL after a diagnostic. */
const struct json_node *folder_json(struct parsed_files *f, const char *dir, const char *file);
/* The text of a token by its key in tokenizer_config.json or special_tokens_map.json, NULL without one; false
 * after a diagnostic. */
bool folder_token_of(struct parsed_files *f, const char *dir, const char *key, const char **text);
/* The id that the files of the tokenizer give a text, -1 without one; false after a diagnostic. */
bool folder_token_id(struct parsed_files *f, const char *dir, const char *text, int64_t *id);

/* How a model of ONNX becomes one of tfmc. */
#define ONNX_ADVICE                                                                                 \
	"tfmc reads no ONNX: a folder of the same model in the form of transformers (config.json, " \
	"safetensors) is "                                                                          \
	"read; else write the model as a model file and its initializers with safetensors.numpy.save_file"

/* A GGUF file, by its first bytes. */
bool gguf_model_is(struct diag_context *cx, const char *path);
/* How many parts a file has by its name (NAME-00001-of-0000N.gguf), 1 for other names; the name of part i
 * from 1. */
int gguf_parts(const char *path);
const char *gguf_part(struct arena *a, const char *path, int i);
/* The text of a model file, `at` as for a folder the one with the file in it; NULL after a diagnostic. Of a
 * split file all parts are named. A tokenizer in the metadata is the model's. `name` NULL: that of the file.
 */
const char *gguf_model(struct parsed_files *f, const char *path, const char *name, const char *at);

#endif
