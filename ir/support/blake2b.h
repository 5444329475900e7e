/* SPDX-License-Identifier: Apache-2.0 */
/* BLAKE2b (RFC 7693) with 32-byte digests: cryptographic identities of content, for caches. About 1 GB/s. */
#ifndef TFMC_IR_SUPPORT_BLAKE2B_H
#define TFMC_IR_SUPPORT_BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE2B_BYTES 32
#define BLAKE2B_BLOCK 128

struct blake2b {
	uint64_t h[8];
	uint64_t bytes;                     /* hashed so far, without the block */
	unsigned char block[BLAKE2B_BLOCK]; /* buffered bytes */
	size_t n;                           /* their number */
};

void blake2b_begin(struct blake2b *b);
void blake2b_add(struct blake2b *b, const void *bytes, size_t n);
/* Bytes prefixed by their length, so that a sequence of items has only one parse. */
void blake2b_item(struct blake2b *b, const void *bytes, size_t n);
void blake2b_string(struct blake2b *b, const char *text); /* as an item; NULL differs from "" */
void blake2b_i64(struct blake2b *b, int64_t v);
void blake2b_end(struct blake2b *b, unsigned char out[BLAKE2B_BYTES]);

/* Chunks of a longer content, hashed side by side in the lanes of vectors: several times as fast as one after the
 * other. */
#define BLAKE2B_LANES 8
/* out[i]: the hash of bytes [i n, i n + n); n is a multiple of BLAKE2B_BLOCK and not 0. */
void blake2b_chunks(const void *bytes, size_t n, unsigned char out[BLAKE2B_LANES][BLAKE2B_BYTES]);

#endif
