/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache of the JSON and GGUF files of one model: each is read and parsed once, although several parts of the
 * frontend need them. Results live as long as the cache; GGUF files stay mapped.
 */
#ifndef TFMC_FRONTEND_FORMATS_PARSED_H
#define TFMC_FRONTEND_FORMATS_PARSED_H

#include "frontend/weights/gguf.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/json.h"

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
/* The file if it has been read before, else NULL. */
const struct parsed_file *parsed_find(const struct parsed_files *f, const char *path);

#endif
