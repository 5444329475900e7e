/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed entries of a zip archive: the method "deflate" (RFC 1951), by zlib. */
#ifndef TFMC_FRONTEND_FORMATS_ZIP_INFLATE_H
#define TFMC_FRONTEND_FORMATS_ZIP_INFLATE_H

#include <stdint.h>

#include "ir/support/arena.h"

#define ZIP_DEFLATE 8
/* Bytes that the compressed entries of an archive may become, all together: they are held in memory. */
#define ZIP_INFLATED_MAX (UINT64_C(4) << 30)

/* Could `packed` bytes become `size`? A byte becomes at most 1032 (a run of 258 takes two bits). */
bool zip_inflate_can(uint64_t packed, uint64_t size);

/* The first bytes of what was compressed, at most `size`, to `to`; how many. Fewer: it ended, or is damaged. */
size_t zip_inflate_head(const unsigned char *from, size_t packed, unsigned char *to, size_t size);

/*
 * What was compressed to the `packed` bytes at `from`, in the arena: exactly `size` bytes with this CRC-32.
 * NULL: *why says what is wrong, or is NULL when memory ran out.
 */
unsigned char *zip_inflate(struct arena *a, const unsigned char *from, size_t packed, size_t size,
                           uint32_t crc, const char **why);

#endif
