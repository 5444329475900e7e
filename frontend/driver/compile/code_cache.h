/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in this process out of the cache: its code under a name made of all
 * it was compiled from, its packed weights under their own content.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_CODE_CACHE_H
#define TFMC_FRONTEND_DRIVER_COMPILE_CODE_CACHE_H

#include "frontend/driver/compile/jit.h"

/* What is compiled, beside what *d says. */
struct code_request {
	const struct loaded *loaded;
	const struct variant_set *variants;
	struct entry_names entries;
	const char *pipeline;
	const struct backend_facts *facts;
	int opt_level; /* of backend_options */
};

/* Opens d->cache as the options want it. TFMC_INVALID when one of them is no number. */
TFMC_MUST_USE enum tfmc_status code_cache_open(struct driver *d);
/* Name of the code, in the arena; NULL: it is not cached. */
const char *code_cache_name(struct driver *d, const struct code_request *q);
/*
 * Packed weights have a name of their own, made of what they are packed from and how, so that whoever packed them serves all:
 * commands that run a model, and `-o`.
 */
struct cached_weights {
	const char *name;        /* of the entry that says which file; NULL: they are not cached */
	struct tfmc_mapping map; /* base NULL: the cache has none */
	struct backend_packed packed;
};
/* After code_cache_name. */
void code_cache_find_packed(struct driver *d, const struct ir_module *planned, struct cached_weights *out);
/* The same after code_cache_open, without a name of code, for weights that are quantized; for others nothing: to pack
 * them takes no longer than to copy. */
void code_cache_find_quantized(struct driver *d, const struct ir_module *planned, struct cached_weights *out);
/* The file is that of the name. False: it is not kept. */
bool code_cache_store_packed(struct driver *d, const char *name, struct packed *weights);
/* Gives *out object and weights. False: the cache does not have both. */
bool code_cache_load(struct driver *d, const char *name, struct compiled *out);
/* Of a model that was compiled and loaded. False: it is not kept. */
bool code_cache_store(struct driver *d, const char *name, struct compiled *c);

#endif
