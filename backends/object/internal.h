/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of an object file: packed weights, their ELF section, the record; and the C header that goes with it.
 */
#ifndef TFMC_BACKENDS_OBJECT_INTERNAL_H
#define TFMC_BACKENDS_OBJECT_INTERNAL_H

#include "backends/plan/object.h"

/* Packs the weights in bounded memory and writes them to `sink` (NULL: nowhere) from position `base`. Sets
 * weights_hash, and set_hash of the weights that all ranks have. */
TFMC_MUST_USE enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                                            const struct backend_sink *sink, uint64_t base);
/* Whether options.packed holds weights packed for this layout. */
bool pack_is_done(const struct object *o);
/* Writes those of options.packed to `sink` (NULL: nowhere) and sets weights_hash and set_hash, which are equal: weights
 * of several ranks are never copied. */
TFMC_MUST_USE enum tfmc_status pack_copy(struct object *o, const struct backend_sink *sink, uint64_t base);
/* The header of a weights file, after the weights are packed. */
TFMC_MUST_USE enum tfmc_status pack_header(struct object *o, const struct backend_sink *sink, int64_t rank);
/* Bytes of the arena without scratch at the upper bounds of all dims, largest of all variants. */
int64_t object_arena_max(const struct object *o);
/* Appends the bytes of NAME_record. */
TFMC_MUST_USE enum tfmc_status record_build(struct object *o, struct buf *out);
/* Prints NAME.h. */
void header_build(const struct object *o, struct buf *out);
/* Prepares an ELF object for a read-only section of `size` bytes of weights, with the symbol at its
 * beginning. The final file is object[0, EMBED_AT), the weights padded to embed_bytes(size),
 * object[EMBED_AT, len). */
#define EMBED_AT 64
uint64_t embed_bytes(uint64_t size);
/* Adds the section and the symbol to `object`. TFMC_INTERNAL after a diagnostic: it is not an object as LLVM writes. */
TFMC_MUST_USE enum tfmc_status embed_section(struct diag_context *cx, struct buf *object, const char *symbol,
                                             uint64_t size);

#endif
