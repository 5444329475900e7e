/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the library: memory of a session. Large blocks come from the system as
 * they are touched, on large pages where it has them: a context that is never
 * used up costs no memory, and streams of keys and values miss few translations.
 */
#ifndef TFMC_RUNTIME_MEMORY_H
#define TFMC_RUNTIME_MEMORY_H

#include <stdint.h>

struct memory_block {
	void *data;      /* zeroed, aligned to 64 bytes; NULL for 0 bytes */
	uint64_t mapped; /* bytes of the mapping; 0: from the heap */
};
/* TFMC_RT_E_MEMORY when there is not so much. */
int memory_take(struct memory_block *block, uint64_t bytes);
/* Gives it back; a block of zeros is left alone. */
void memory_give(struct memory_block *block);

#endif
