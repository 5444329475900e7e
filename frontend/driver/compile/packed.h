/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights of a model that runs in this process: written while they are
 * packed, then mapped. They lie in a file of the cache, or where it takes none
 * in pages of their own without a name.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_PACKED_H
#define TFMC_FRONTEND_DRIVER_COMPILE_PACKED_H

#include "frontend/driver/compile/cache.h"
#include "frontend/weights/files.h"
#include "runtime/tfmc_rt.h"

struct packed {
	struct diag_context *cx;
	struct cache *cache;
	const struct weight_files *read; /* what they are packed from; NULL: none */
	struct cache_file file;          /* fd -1: nothing was written yet; path NULL: in memory */
	struct arena *arena;             /* of the path */
	uint64_t since;                  /* bytes written since pages of `read` were given back */
	struct tfmc_mapping map;
};

/* For struct backend_sink; cx, cache, read, arena are given, file.fd is -1. False after a diagnostic. */
bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n);
/* The same for a file of the cache that is a copy, begun by cache_create: it is dropped when the cache takes no more. */
bool packed_write_copy(void *packed, uint64_t offset, const void *bytes, size_t n);
/* Maps what was written, a weights file, to `map`. Nothing was written: all zero. */
TFMC_MUST_USE enum tfmc_status packed_map(struct packed *p);
/* The file stays in the cache under this name. False: it does not. */
bool packed_commit(struct packed *p, const char *name);
void packed_close(struct packed *p);

#endif
