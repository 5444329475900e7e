/* SPDX-License-Identifier: Apache-2.0 */
/* Private to hub.c and hub_gguf.c: a configuration as a tree of JSON, wherever it comes from. */
#ifndef TFMC_FRONTEND_IMPORT_HUB_H
#define TFMC_FRONTEND_IMPORT_HUB_H

#include "frontend/import/compose.h"
#include "frontend/formats/gguf.h"
#include "frontend/text/json.h"

struct hub_config {
	const struct json_node *root;
	const char *name; /* as shown */
	const char *type; /* `model_type`, "gguf:ARCHITECTURE", or NULL */
	struct loc loc;   /* who asked for it */
	const struct gguf *gguf;
	/* JSON: its text, for places of keys */
	const char *text;
	size_t len;
	uint32_t source; /* 0: none */
};

/* Where a key (dots go into objects) is in config.json; of GGUF files, who asked for the file. */
struct loc hub_place(const struct hub_config *c, const char *key);

/*
 * The metadata of a GGUF file: keys without the prefix of its architecture. Lists of equal
 * numbers are that number; longer ones than HUB_LIST_MAX are a text about their length. NULL after a
 * diagnostic.
 */
#define HUB_LIST_MAX 4096
const struct json_node *hub_gguf_tree(struct model_document *d, const struct gguf *g, const char **type);

/* The values of a stored tensor as a list of numbers; NULL when it is not readable or has more than
 * HUB_LIST_MAX. */
const struct json_node *hub_gguf_values(struct model_document *d, const struct stored_tensor *t);

#endif
