/* SPDX-License-Identifier: Apache-2.0 */
/* BLAKE2b of RFC 7693 without key, and a SIMD version for chunks. */
#include "ir/support/blake2b.h"

#include <stdbool.h>
#include <string.h>

#include "ir/support/compiler.h"

static const uint64_t start[8] = {0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu,
                                  0xa54ff53a5f1d36f1u, 0x510e527fade682d1u, 0x9b05688c2b3e6c1fu,
                                  0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};

/* Message schedule SIGMA: u64 of the block for each round. */
static const unsigned char order[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t rotate_right(uint64_t x, int n)
{
	return x >> n | x << (64 - n);
}

/* The function G of RFC 7693, 3.1: mixes u64 x and y of the message into four of the 16 working variables. */
static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate_right(v[d] ^ v[a], 32);
	v[c] += v[d];
	v[b] = rotate_right(v[b] ^ v[c], 24);
	v[a] += v[b] + y;
	v[d] = rotate_right(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate_right(v[b] ^ v[c], 63);
}

/* The function F of RFC 7693, 3.2: updates the state with one block, which b->bytes counts already (of the 128-bit
 * count the upper half is 0). is_last: the finalization flag inverts v[14]. */
static void compress(struct blake2b *b, const unsigned char *block, int is_last)
{
	uint64_t m[16], v[16];
	memcpy(m, block, sizeof(m)); /* little-endian, as everything here */
	for (int i = 0; i < 8; i++) {
		v[i] = b->h[i];
		v[i + 8] = start[i];
	}
	v[12] ^= b->bytes;
	if (is_last)
		v[14] = ~v[14];
	for (int round = 0; round < 12; round++) {
		const unsigned char *s = order[round % 10];
		mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
		mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
		mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
		mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
		mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
		mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
		mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
		mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
	}
	for (int i = 0; i < 8; i++)
		b->h[i] ^= v[i] ^ v[i + 8];
}

/* Only the first word of the parameter block is not 0: digest length, no key, fanout and depth 1. */
void blake2b_begin(struct blake2b *b)
{
	*b = (struct blake2b){0};
	memcpy(b->h, start, sizeof(start));
	b->h[0] ^= 0x01010000u ^ BLAKE2B_BYTES;
}

/* The last block is compressed differently, so a full block is buffered until more bytes follow; others are
 * compressed where they are. */
void blake2b_add(struct blake2b *b, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	while (n > 0) {
		if (b->n == BLAKE2B_BLOCK) {
			b->bytes += BLAKE2B_BLOCK;
			compress(b, b->block, 0);
			b->n = 0;
		}
		for (; b->n == 0 && n > BLAKE2B_BLOCK; p += BLAKE2B_BLOCK, n -= BLAKE2B_BLOCK) {
			b->bytes += BLAKE2B_BLOCK;
			compress(b, p, 0);
		}
		size_t space = BLAKE2B_BLOCK - b->n, some = n < space ? n : space;
		memcpy(b->block + b->n, p, some);
		b->n += some;
		p += some;
		n -= some;
	}
}

void blake2b_i64(struct blake2b *b, int64_t v)
{
	unsigned char bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)((uint64_t)v >> (8 * i));
	blake2b_add(b, bytes, sizeof(bytes));
}

void blake2b_item(struct blake2b *b, const void *bytes, size_t n)
{
	blake2b_i64(b, (int64_t)n);
	blake2b_add(b, bytes, n);
}

void blake2b_string(struct blake2b *b, const char *text)
{
	if (text)
		blake2b_item(b, text, strlen(text));
	else
		blake2b_i64(b, -1);
}

void blake2b_end(struct blake2b *b, unsigned char out[BLAKE2B_BYTES])
{
	b->bytes += b->n;
	memset(b->block + b->n, 0, BLAKE2B_BLOCK - b->n);
	compress(b, b->block, 1);
	for (int i = 0; i < BLAKE2B_BYTES; i++)
		out[i] = (unsigned char)(b->h[i / 8] >> (8 * (i % 8)));
}

/* ---- chunks, one per SIMD lane ---- */

/* One u64 of each lane. */
typedef uint64_t lanes __attribute__((vector_size(8 * BLAKE2B_LANES)));

#define ROTATE_RIGHT(x, n) ((x) >> (n) | (x) << (64 - (n)))
#define MIX_LANES(a, b, c, d, x, y)            \
	do {                                   \
		v[a] += v[b] + (x);            \
		v[d] ^= v[a];                  \
		v[d] = ROTATE_RIGHT(v[d], 32); \
		v[c] += v[d];                  \
		v[b] ^= v[c];                  \
		v[b] = ROTATE_RIGHT(v[b], 24); \
		v[a] += v[b] + (y);            \
		v[d] ^= v[a];                  \
		v[d] = ROTATE_RIGHT(v[d], 16); \
		v[c] += v[d];                  \
		v[b] ^= v[c];                  \
		v[b] = ROTATE_RIGHT(v[b], 63); \
	} while (0)

/* compress() in all lanes. bytes: number of bytes including this block. */
static inline __attribute__((always_inline)) void compress_lanes(lanes *h, const lanes *m, uint64_t bytes,
                                                                 bool is_last)
{
	lanes v[16];
	for (int i = 0; i < 8; i++) {
		v[i] = h[i];
		v[i + 8] = (lanes){0} + start[i];
	}
	v[12] ^= bytes;
	if (is_last)
		v[14] = ~v[14];
	for (int round = 0; round < 12; round++) {
		const unsigned char *s = order[round % 10];
		MIX_LANES(0, 4, 8, 12, m[s[0]], m[s[1]]);
		MIX_LANES(1, 5, 9, 13, m[s[2]], m[s[3]]);
		MIX_LANES(2, 6, 10, 14, m[s[4]], m[s[5]]);
		MIX_LANES(3, 7, 11, 15, m[s[6]], m[s[7]]);
		MIX_LANES(0, 5, 10, 15, m[s[8]], m[s[9]]);
		MIX_LANES(1, 6, 11, 12, m[s[10]], m[s[11]]);
		MIX_LANES(2, 7, 8, 13, m[s[12]], m[s[13]]);
		MIX_LANES(3, 4, 9, 14, m[s[14]], m[s[15]]);
	}
	for (int i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[i + 8];
}

/* Lane l hashes chunk l: the message words of all chunks are gathered into vectors, 16 of each block. */
TFMC_MULTIVERSION void blake2b_chunks(const void *bytes, size_t n,
                                      unsigned char out[BLAKE2B_LANES][BLAKE2B_BYTES])
{
	lanes h[8], m[16];
	for (int i = 0; i < 8; i++)
		/* as blake2b_begin */
		h[i] = (lanes){0} + (i == 0 ? start[0] ^ 0x01010000u ^ BLAKE2B_BYTES : start[i]);
	for (size_t at = 0; at < n; at += BLAKE2B_BLOCK) {
		for (size_t l = 0; l < BLAKE2B_LANES; l++) {
			const char *from = (const char *)bytes + l * n + at;
			for (size_t i = 0; i < 16; i++)
				memcpy((char *)&m[i] + 8 * l, from + 8 * i, 8);
		}
		compress_lanes(h, m, at + BLAKE2B_BLOCK, at + BLAKE2B_BLOCK == n);
	}
	for (int l = 0; l < BLAKE2B_LANES; l++)
		for (int i = 0; i < BLAKE2B_BYTES; i++)
			out[l][i] = (unsigned char)(h[i / 8][l] >> (8 * (i % 8)));
}
