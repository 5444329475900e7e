/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: zeroed memory of a session. Large blocks are lazily committed mappings: a context that is never
 * filled takes no memory.
 */
#ifndef TFMC_RUNTIME_MEMORY_H
#define TFMC_RUNTIME_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* A block of zeroed memory; zeros: none. */
struct memory_block {
	void *data;      /* zeroed, 64-byte aligned; NULL for 0 bytes */
	uint64_t mapped; /* bytes of the mapping; 0: a heap block */
};
/* Huge pages (2 MiB) suit memory that is used as a whole (the arena), small pages memory that fills slowly
 * (the state). */
enum memory_pages { MEMORY_SMALL_PAGES, MEMORY_LARGE_PAGES };
/* Allocates `bytes` zero bytes. TFMC_RT_E_MEMORY: not available. */
int memory_block_alloc(struct memory_block *block, uint64_t bytes, enum memory_pages pages);
/* Zeroes a large block by returning its pages to the system; it takes no memory until it is written.
 * False: small block, or not supported; then nothing has changed. */
bool memory_block_zero(struct memory_block *block);
/* Releases the block; a zero struct is allowed. */
void memory_block_free(struct memory_block *block);

#endif
