/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight files of a model (also usable for the files of `checks`): opened
 * beneath the directory of the file that names them, mapped read-only, read
 * strictly, and looked up by tensor name. Formats, told by the bytes of the
 * file: safetensors, an index of shards, GGUF, npy, npz.
 *
 * INVARIANT: names are unique over all files, before and after stripping.
 * Tensor data may be unaligned: read it through memcpy; they are valid until weight_files_destroy.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_FILES_H
#define TFMC_FRONTEND_WEIGHTS_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/formats/parsed.h"
#include "frontend/formats/stored.h"
#include "frontend/text/yaml_tree.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/diag/diag.h"
#include "ir/weights/weight.h"

struct weight_files;

/* Lives in the arena, but holds mappings: destroy it. Files that are among `parsed` (NULL: none) are not read
 * again. NULL when memory ran out. */
struct weight_files *weight_files_create(struct arena *a, struct diag_context *cx,
                                         const struct parsed_files *parsed);
void weight_files_destroy(struct weight_files *wf);
/* Memory that holds what was read of the files goes back to the system; they stay readable. */
void weight_files_give_back(const struct weight_files *wf);

/* TFMC_IO after a diagnostic when one of the files was written to since it was opened. */
TFMC_MUST_USE enum tfmc_status weight_files_check(const struct weight_files *wf);

/*
 * Opens one file. `dir` is the directory of the YAML file ("" = current);
 * `name` is any path as seen from there. dir NULL: `name` comes from the
 * command line and is taken as it is. Errors are reported at loc.
 */
TFMC_MUST_USE enum tfmc_status weight_files_open(struct weight_files *wf, const char *dir, const char *name,
                                                 struct loc loc);
/* weights.files: a list of names or one name. */
TFMC_MUST_USE enum tfmc_status weight_files_open_all(struct weight_files *wf, const char *dir,
                                                     const struct yaml_node *files);
/* weights.packed (NULL: none): matrices that are stored in parts become one tensor, X.weight; after all files are
 * open. */
TFMC_MUST_USE enum tfmc_status weight_files_unpack(struct weight_files *wf, struct arena *a,
                                                   struct diag_context *cx, const struct yaml_node *word);
/* A further tensor with its name, file and place; false after a diagnostic when there is one of the name. */
TFMC_MUST_USE bool weight_files_add(struct weight_files *wf, struct stored_tensor *t);
/* weights.unwrap, weights.strip_prefix and weights.ignore (NULL: absent), in this order after all files are open. Of the
 * prefixes of unwrap each one is taken from the names that begin with it; of strip_prefix the first that fits a name. */
TFMC_MUST_USE enum tfmc_status weight_files_unwrap(struct weight_files *wf, const struct yaml_node *prefixes);
TFMC_MUST_USE enum tfmc_status weight_files_strip(struct weight_files *wf, const struct yaml_node *prefixes);
TFMC_MUST_USE enum tfmc_status weight_files_ignore(struct weight_files *wf, const struct yaml_node *globs);

/* Paths of the files that were opened, in that order; an index before its shards. */
const char *const *weight_files_paths(const struct weight_files *wf, size_t *n);

size_t weight_files_count(const struct weight_files *wf);
/* In the order of files and of their tensors by data offset. */
struct stored_tensor *weight_files_at(const struct weight_files *wf, size_t index);
/* By the stripped name, or NULL. */
struct stored_tensor *weight_files_find(const struct weight_files *wf, const char *name);
/* The tensor that a WX_TENSOR leaf of a file reads, or NULL. */
const struct stored_tensor *weight_files_stored(const struct weight_files *wf, const char *file,
                                                const char *tensor);
/* "a, b, c": the few tensor names most like `name`, by common parts and edit distance; "" when there are
 * none. */
const char *weight_files_nearest(struct weight_files *wf, const char *name);

/* "npy array": the format that the first 16 bytes of a file show, or NULL. */
const char *weight_file_format(const unsigned char *bytes, size_t len);
/* The tensors by the format that is shown, else of safetensors. */
TFMC_MUST_USE stored_reader weight_file_read;

/* What a WX_TENSOR leaf of the tensor reads. */
void weight_tensor_bytes(const struct stored_tensor *t, struct weight_bytes *out);

/* Length of the common beginning and end of two names: how alike names of weights are. */
size_t weight_name_likeness(const char *a, const char *b);

/* The numbers of WX_TENSOR leaves. */
struct weight_source weight_files_source(struct weight_files *wf);

#endif
