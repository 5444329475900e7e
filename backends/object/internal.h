/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an object's file, and the header beside it.
 */
#ifndef TFMC_BACKENDS_OBJECT_INTERNAL_H
#define TFMC_BACKENDS_OBJECT_INTERNAL_H

#include "backends/plan/object.h"

/* Streams the packed weights; each piece goes to `sink` (may be NULL) at `base` + its offset. Sets
 * weights_hash. */
TFMC_MUST_USE enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                                            const struct backend_sink *sink, uint64_t base);
/* Whether options.packed are the weights of this layout; those to `sink` (NULL: nowhere) instead, which sets weights_hash, too. */
bool pack_is_done(const struct object *o);
TFMC_MUST_USE enum tfmc_status pack_copy(struct object *o, const struct backend_sink *sink, uint64_t base);
TFMC_MUST_USE enum tfmc_status pack_header(struct object *o, const struct backend_sink *sink);
/* The arena at the bounds of all dims, beside the scratch: the largest of all variants. */
int64_t object_arena_max(const struct object *o);
/* The constant data NAME_record. */
TFMC_MUST_USE enum tfmc_status record_build(struct object *o, struct buf *out);
void header_build(const struct object *o, struct buf *out);
/*
 * Prepares an ELF object for `size` bytes of weights in a read-only section, with the symbol at its
 * beginning. The file then consists of object[0, EMBED_AT), the weights filled up to embed_gap(size) bytes,
 * object[EMBED_AT, len).
 */
#define EMBED_AT 64
uint64_t embed_gap(uint64_t size);
TFMC_MUST_USE enum tfmc_status embed_room(struct diag_context *cx, struct buf *object, const char *symbol,
                                          uint64_t size);

#endif
