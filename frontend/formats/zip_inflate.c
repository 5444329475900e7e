/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/formats/zip_inflate.h"

#include <zlib.h>

#include "ir/support/memory.h"

#define RATIO_MAX 1032
#define PIECE     ((size_t)1 << 30) /* zlib counts bytes in 32 bits */

bool zip_inflate_can(uint64_t packed, uint64_t size)
{
	return size / RATIO_MAX <= packed;
}

static unsigned next_piece(size_t left)
{
	return (unsigned)(left < PIECE ? left : PIECE);
}

/* Fills to[0, size) from the stream; true: it ended exactly there, and with the last byte. */
static bool inflate_all(z_stream *z, const unsigned char *from, size_t packed, unsigned char *to, size_t size)
{
	size_t in = packed, out = size;
	int st = Z_OK;
	z->next_in = (z_const Bytef *)from;
	z->next_out = to;
	while (st == Z_OK) {
		unsigned give = next_piece(in), take = next_piece(out);
		z->avail_in = give;
		z->avail_out = take;
		st = inflate(z, Z_NO_FLUSH);
		in -= give - z->avail_in;
		out -= take - z->avail_out;
	}
	return st == Z_STREAM_END && in == 0 && out == 0;
}

static uint32_t checksum(const unsigned char *bytes, size_t n)
{
	uLong crc = crc32(0, Z_NULL, 0);
	for (size_t at = 0; at < n;) {
		unsigned piece = next_piece(n - at);
		crc = crc32(crc, bytes + at, piece);
		at += piece;
	}
	return (uint32_t)crc;
}

size_t zip_inflate_head(const unsigned char *from, size_t packed, unsigned char *to, size_t size)
{
	z_stream z = {.next_in = (z_const Bytef *)from,
	              .avail_in = next_piece(packed),
	              .next_out = to,
	              .avail_out = next_piece(size)};
	const unsigned room = z.avail_out;
	if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
		memory_failed(0);
		return 0;
	}
	(void)inflate(&z, Z_SYNC_FLUSH);
	(void)inflateEnd(&z);
	return room - z.avail_out;
}

unsigned char *zip_inflate(struct arena *a, const unsigned char *from, size_t packed, size_t size,
                           uint32_t crc, const char **why)
{
	z_stream z = {0};
	*why = NULL;
	unsigned char *to = arena_alloc(a, size + 1); /* never of no bytes */
	if (to == NULL)
		return NULL;
	if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
		memory_failed(0);
		return NULL;
	}
	bool whole = inflate_all(&z, from, packed, to, size);
	(void)inflateEnd(&z);
	if (!whole)
		*why = "its compressed data are damaged";
	else if (checksum(to, size) != crc)
		*why = "its data do not have the checksum that the directory names";
	return *why == NULL ? to : NULL;
}
