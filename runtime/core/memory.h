/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: memory of a session. Large blocks come from the system as
 * they are touched: a context that is never used up costs no memory.
 */
#ifndef TFMC_RUNTIME_CORE_MEMORY_H
#define TFMC_RUNTIME_CORE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct memory_block {
	void *data;      /* zeroed, aligned to 64 bytes; NULL for 0 bytes */
	uint64_t mapped; /* bytes of the mapping; 0: from the heap */
};
/* Large pages suit what is used as a whole (the arena), small ones what fills slowly (the state). */
enum memory_pages { MEMORY_SMALL_PAGES, MEMORY_LARGE_PAGES };
/* TFMC_RT_E_MEMORY when there is not so much. */
int memory_take(struct memory_block *block, uint64_t bytes, enum memory_pages pages);
/* Gives the pages of a large block back to the system: it is zeros again and takes no memory until it is
 * written. False, and nothing changed, when that is not possible or the block is small. */
bool memory_clear(struct memory_block *block);
/* Gives it back; a block of zeros is left alone. */
void memory_give(struct memory_block *block);

#endif
