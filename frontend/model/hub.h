/* SPDX-License-Identifier: Apache-2.0 */
/* Internal: a hub configuration as a JSON tree, from config.json or GGUF metadata. */
#ifndef TFMC_FRONTEND_IMPORT_HUB_H
#define TFMC_FRONTEND_IMPORT_HUB_H

#include "frontend/model/compose.h"
#include "frontend/weights/gguf.h"
#include "frontend/syntax/json.h"

/* A hub configuration. */
struct hub_config {
	const struct json_node *root;
	const char *name; /* name in messages */
	const char *type; /* `model_type`, "gguf:ARCHITECTURE", or NULL */
	struct loc loc;   /* location of the reference */
	const struct gguf *gguf;
	/* JSON: its text, to locate keys */
	const char *text;
	size_t len;
	uint32_t source; /* 0: none */
};

/* Location of a key (dots enter objects) in config.json; of GGUF files, of the reference to the file. */
struct loc hub_key_loc(const struct hub_config *c, const char *key);

/*
 * The metadata of a GGUF file as a tree: keys without the prefix of the architecture; a list of equal numbers
 * is one number; a list longer than HUB_LIST_MAX is a string with its length. NULL after a diagnostic.
 */
#define HUB_LIST_MAX 4096
const struct json_node *hub_gguf_tree(struct model_document *d, const struct gguf *g, const char **type);

/* The values of a stored tensor as a list; NULL: not readable, or more than HUB_LIST_MAX. */
const struct json_node *hub_gguf_values(struct model_document *d, const struct stored_tensor *t);

#endif
