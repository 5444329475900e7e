/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds the size of a cache directory by removing the least recently used files (atime, which a cache sets when it
 * uses a file). The cache of program binaries here and the command's cache of code and weights share it.
 */
#ifndef TFMC_RUNTIME_OPENCL_LRU_H
#define TFMC_RUNTIME_OPENCL_LRU_H

#include <stdbool.h>
#include <stdint.h>

enum cl_lru_kind {
	CL_LRU_FOREIGN,  /* not a file of the cache: never touched */
	CL_LRU_COMPLETE, /* may be removed to free space */
	/* Being written: its writer holds a lock (flock). Without one the writer has ended, and it is removed. */
	CL_LRU_TEMPORARY
};

/* Classifies a file by its name. */
typedef enum cl_lru_kind cl_lru_classify(const char *name);

/*
 * Removes the least recently used complete files of an open directory until the remaining ones occupy at most `limit`
 * bytes of disk; `except` is not removed. count_temporary: the limit includes temporary files. Failures are ignored.
 */
void cl_lru_trim(int dir, const char *except, uint64_t limit, bool count_temporary,
                 cl_lru_classify *classify);

#endif
