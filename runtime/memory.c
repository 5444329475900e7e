/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a session: small blocks from the heap, large ones as mappings of their own. Zeroed either way.
 */
#define _DEFAULT_SOURCE
#include "runtime/memory.h"

#include "tfmc_rt.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE_PAGE ((uint64_t)2 << 20)
#define ZERO_MIN   (8 * LARGE_PAGE) /* below this, writing zeros costs less than page faults */

/* Huge pages are a preference, small pages a requirement: where the system makes all pages huge, one token
 * of a long context would commit 2 MiB in each head of each layer. */
static void advise_pages(const struct memory_block *block, enum memory_pages pages)
{
#ifdef MADV_HUGEPAGE
	int advice = pages == MEMORY_LARGE_PAGES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
	(void)madvise(block->data, (size_t)block->mapped, advice);
#else
	(void)block;
	(void)pages;
#endif
}

/* A mapping aligned to LARGE_PAGE: reserves one page more and unmaps both ends. MAP_NORESERVE: the state
 * is as large as all tokens that could come, only touched pages count. */
static int alloc_mapping(struct memory_block *block, uint64_t bytes, enum memory_pages pages)
{
	if (bytes > SIZE_MAX / 2)
		return TFMC_RT_E_MEMORY;
	uint64_t size = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE, reserved = size + LARGE_PAGE;
	char *base = mmap(NULL, (size_t)reserved, PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return TFMC_RT_E_MEMORY;
	uint64_t lead = -(uint64_t)(uintptr_t)base & (LARGE_PAGE - 1);
	if (lead)
		munmap(base, (size_t)lead);
	munmap(base + lead + size, (size_t)(LARGE_PAGE - lead));
	block->data = base + lead;
	block->mapped = size;
	advise_pages(block, pages);
	return TFMC_RT_OK;
}

int memory_block_alloc(struct memory_block *block, uint64_t bytes, enum memory_pages pages)
{
	*block = (struct memory_block){0};
	if (bytes == 0)
		return TFMC_RT_OK;
	/* Heap blocks are zeroed by touching all their pages, so the state is mapped from a smaller size on. */
	if (bytes >= (pages == MEMORY_LARGE_PAGES ? 2 * LARGE_PAGE : LARGE_PAGE / 16))
		return alloc_mapping(block, bytes, pages);
	void *p = NULL;
	if (posix_memalign(&p, 64, (size_t)bytes))
		return TFMC_RT_E_MEMORY;
	block->data = memset(p, 0, (size_t)bytes);
	return TFMC_RT_OK;
}

/* MADV_DONTNEED on Linux: the next access of a page maps a zero page. Small blocks are left to the caller's memset,
 * which costs less than their page faults. */
bool memory_block_zero(struct memory_block *block)
{
#ifdef __linux__
	return block->mapped >= ZERO_MIN && !madvise(block->data, (size_t)block->mapped, MADV_DONTNEED);
#else
	(void)block;
	return false; /* elsewhere MADV_DONTNEED may keep the bytes */
#endif
}

void memory_block_free(struct memory_block *block)
{
	if (block->mapped)
		munmap(block->data, (size_t)block->mapped);
	else
		free(block->data);
	*block = (struct memory_block){0};
}
