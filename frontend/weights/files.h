/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight files of a model (also the files of `checks`): opened inside the directory of the file that
 * names them, mapped read-only, validated, and indexed by tensor name. Formats, detected by content:
 * safetensors, an index of shards, GGUF, npy, npz, ONNX, files of torch.save.
 *
 * INVARIANT: names are unique over all files, before and after stripping. Tensor data may be unaligned: read
 * it through memcpy; it is valid until weight_files_destroy.
 *
 * Also the cache of the JSON and GGUF files of one model: each is read and parsed once, although several parts of the
 * front end need them. Results live as long as the cache; GGUF files stay mapped.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_FILES_H
#define TFMC_FRONTEND_WEIGHTS_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/weights/gguf.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"
#include "frontend/weights/stored.h"
#include "frontend/syntax/yaml_tree.h"
#include "ir/support/arena.h"
#include "ir/support/compiler.h"
#include "ir/support/diag.h"
#include "ir/weights/weight.h"

/* ---- parsed files ---- */
/* A parsed JSON or GGUF file. */
struct parsed_file {
	const char *path;
	const struct json_node *root; /* JSON, else NULL */
	const char *text;             /* JSON text, zero-terminated */
	size_t len;
	struct file_map map; /* GGUF */
	struct gguf gguf;
};

struct parsed_files {
	struct arena *arena;
	struct diag_context *cx;
	struct parsed_file **items;
	size_t n, cap;
};

/* arena and cx must outlive the cache. */
void parsed_files_init(struct parsed_files *f, struct arena *arena, struct diag_context *cx);
void parsed_files_destroy(struct parsed_files *f);

/* Diagnostics are reported at loc. shorten: integers beyond int64 are accepted (json_truncate_long_ints). */
TFMC_MUST_USE enum tfmc_status parsed_json(struct parsed_files *f, const char *path, struct loc loc,
                                           bool shorten, const struct parsed_file **out);
TFMC_MUST_USE enum tfmc_status parsed_gguf(struct parsed_files *f, const char *path, struct loc loc,
                                           const struct parsed_file **out);

/* ---- weight files ---- */
struct weight_files;

/* Allocated in the arena, but owns mappings: call weight_files_destroy. Files in `parsed` (NULL: none) are
 * not read again. NULL: no memory. */
struct weight_files *weight_files_create(struct arena *a, struct diag_context *cx,
                                         const struct parsed_files *parsed);
void weight_files_destroy(struct weight_files *wf);
/* Returns resident pages of the files to the system; they stay readable. */
void weight_files_release_pages(const struct weight_files *wf);

/* TFMC_IO after a diagnostic if a file was modified since it was opened. */
TFMC_MUST_USE enum tfmc_status weight_files_check(const struct weight_files *wf);

/*
 * Opens one file. `dir`: directory of the YAML file ("" = current), to which `name` is relative; NULL: `name`
 * comes from the command line and is used as given. Errors are reported at loc.
 */
TFMC_MUST_USE enum tfmc_status weight_files_open(struct weight_files *wf, const char *dir, const char *name,
                                                 struct loc loc);
/* weights.files: a list of names or one name. */
TFMC_MUST_USE enum tfmc_status weight_files_open_all(struct weight_files *wf, const char *dir,
                                                     const struct yaml_node *files);
/* weights.packed (NULL: none): combines the parts of packed matrices into one tensor X.weight; after all
 * files are open. */
TFMC_MUST_USE enum tfmc_status weight_files_unpack(struct weight_files *wf, struct arena *a,
                                                   struct diag_context *cx, const struct yaml_node *packing);
/* Adds a tensor with its name, file and loc; false after a diagnostic: the name exists. */
TFMC_MUST_USE bool weight_files_add(struct weight_files *wf, struct stored_tensor *t);
/* Adds a tensor of attached files under the name of a tensor of the model that wf has not. */
TFMC_MUST_USE bool weight_files_add_as(struct weight_files *wf, struct stored_tensor *t, const char *key);
/* Further files, whose tensors are no parameters of the model: names need to be unique among them only. Expressions
 * over their tensors are read through wf, which owns them. NULL: no memory. */
struct weight_files *weight_files_attach(struct weight_files *wf);
/* Adds the path of another file that was read to those of weight_files_paths. */
void weight_files_record(struct weight_files *wf, const char *path);
/* weights.unwrap, weights.strip_prefix and weights.ignore (NULL: absent), in this order after all files
 * are open. unwrap removes each prefix from the names that begin with it; strip_prefix removes the first
 * prefix that some name has. */
TFMC_MUST_USE enum tfmc_status weight_files_unwrap(struct weight_files *wf, const struct yaml_node *prefixes);
TFMC_MUST_USE enum tfmc_status weight_files_strip(struct weight_files *wf, const struct yaml_node *prefixes);
TFMC_MUST_USE enum tfmc_status weight_files_ignore(struct weight_files *wf, const struct yaml_node *globs);

/* Paths of the opened files, in order; an index before its shards. */
const char *const *weight_files_paths(const struct weight_files *wf, size_t *n);

size_t weight_files_count(const struct weight_files *wf);
/* Tensors in the order of files, and within a file by data offset. */
struct stored_tensor *weight_files_at(const struct weight_files *wf, size_t index);
/* Tensor by its stripped name, or NULL. */
struct stored_tensor *weight_files_find(const struct weight_files *wf, const char *name);
/* Tensor by its name in the file, or NULL. */
struct stored_tensor *weight_files_find_stored(const struct weight_files *wf, const char *name);
/* Tensor that a WX_TENSOR leaf names, or NULL. */
const struct stored_tensor *weight_files_stored(const struct weight_files *wf, const char *file,
                                                const char *tensor);
/* "a, b, c": the tensor names most similar to `name`, by common parts and edit distance; "": none. */
const char *weight_files_nearest(struct weight_files *wf, const char *name);

/* Format by the first 16 bytes of a file, such as "npy array", or NULL. */
const char *weight_file_format(const unsigned char *bytes, size_t len);
/* Reads a file in the detected format, else as safetensors. */
TFMC_MUST_USE stored_reader weight_file_read;

/* Data, type and stored shape of a tensor, for a WX_TENSOR leaf. */
void weight_tensor_data(const struct stored_tensor *t, struct weight_bytes *out);

/* Similarity of two names: bytes of the common beginning and end. */
size_t weight_name_similarity(const char *a, const char *b);

/* Weight source that resolves WX_TENSOR leaves. */
struct weight_source weight_files_source(struct weight_files *wf);

#endif
