/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights of a model in this process. They are written while they are packed, to a file of the cache or, where
 * there is no cache, to anonymous memory (memfd), and then mapped.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_PACKED_H
#define TFMC_FRONTEND_DRIVER_COMPILE_PACKED_H

#include "frontend/driver/compile/cache.h"
#include "frontend/weights/files.h"
#include "runtime/tfmc_rt.h"

struct packed {
	struct diag_context *cx;
	struct cache *cache;
	const struct weight_files *read; /* source of the weights; NULL: none */
	struct cache_file file;          /* fd -1: nothing was written yet; name NULL: in memory */
	struct arena *arena;             /* of file.name */
	uint64_t since;                  /* bytes written since pages of `read` were released */
	struct tfmc_mapping map;
};

/* A struct backend_sink. cx, cache, read and arena are set, file.fd is -1. False after a diagnostic. */
bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n);
/* The same for a copy that only the cache needs, begun by cache_create: when writing fails it is dropped.
 * Always true. */
bool packed_write_copy(void *packed, uint64_t offset, const void *bytes, size_t n);
/* Maps the written weights file to p->map; all zero when nothing was written. */
TFMC_MUST_USE enum tfmc_status packed_map(struct packed *p);
/* Gives the file its name in the cache. False: it is not in the cache, or could not be kept. */
bool packed_commit(struct packed *p, const char *name);
void packed_close(struct packed *p);

#endif
