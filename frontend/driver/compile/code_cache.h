/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of compiled models. Code is stored under a hash of everything it was compiled from; packed weights under
 * a hash of their source and their layout, so that `generate` and `-o` share them.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_CODE_CACHE_H
#define TFMC_FRONTEND_DRIVER_COMPILE_CODE_CACHE_H

#include "frontend/driver/compile/jit.h"

/* The input of a compilation, in addition to the options of *d. */
struct code_request {
	const struct loaded *loaded;
	const struct variant_set *variants;
	struct entry_names entries;
	const char *pipeline;
	const struct backend_facts *facts;
	int opt_level; /* of backend_options */
};

/* Opens d->cache unless an option forbids it. TFMC_INVALID when the size limit is not a number. */
TFMC_MUST_USE enum tfmc_status code_cache_open(struct driver *d);
/* Sets o->program_hash to a hash of what the code of the planned variants computes and of the compiler. False without
 * memory. */
bool code_cache_program_hash(const struct variant_set *set, struct backend_options *o);
/* The name of the code's file, in the arena; NULL: it is not cached. */
const char *code_cache_name(struct driver *d, const struct code_request *q);
/* Packed weights found in the cache. */
struct cached_weights {
	const char *name;        /* of the entry that refers to their file; NULL: they are not cached */
	struct tfmc_mapping map; /* base NULL: not found */
	struct backend_packed packed;
};
/* Call after code_cache_name, which hashes the files. */
void code_cache_find_packed(struct driver *d, const struct ir_module *planned, struct cached_weights *out);
/* For -o: call after code_cache_open. Finds only weights that tfmc quantizes: packing others takes no longer
 * than copying. */
void code_cache_find_quantized(struct driver *d, const struct ir_module *planned, struct cached_weights *out);
/* Stores packed weights under `name`. False: they are not stored. */
bool code_cache_store_packed(struct driver *d, const char *name, struct packed *weights);
/* Sets object and weights of *out. False: one of them is not in the cache. */
bool code_cache_load(struct driver *d, const char *name, struct compiled *out);
/* Stores a model that was compiled and loaded. False: it is not stored. */
bool code_cache_store(struct driver *d, const char *name, struct compiled *c);

#endif
