/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zip archives, read through the central directory, with which each local header must agree. Supports zip64, which
 * numpy and PyTorch write for large arrays. Deflate by zlib. Readers return false after a diagnostic.
 */
#include "frontend/weights/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "ir/support/memory.h"

#define LOCAL_BYTES    30
#define CENTRAL_BYTES  46
#define END_BYTES      22
#define END64_BYTES    56
#define LOCATOR_BYTES  20
#define COMMENT_MAX    65535
#define ENTRY_NAME_MAX 1024              /* bytes of an entry name */
#define RATIO_MAX      1032              /* bytes from one byte of deflate: a run of 258 takes two bits */
#define PIECE          ((size_t)1 << 30) /* zlib counts bytes in 32 bits */

static uint64_t read_int(const struct zip *z, size_t at, size_t n)
{
	return read_little_endian(z->bytes + at, n);
}

static bool has_signature(const struct zip *z, size_t at, const char *magic)
{
	return memcmp(z->bytes + at, magic, 4) == 0;
}

/* ---- deflate, by zlib ---- */

/* Bytes for the next call of zlib. */
static unsigned next_piece(size_t left)
{
	return (unsigned)(left < PIECE ? left : PIECE);
}

/* Inflates to to[0, size). True: the stream ends exactly there and uses all input. Damaged or short data end the loop:
 * zlib returns another status than Z_OK, Z_BUF_ERROR where it cannot go on. */
static bool inflate_all(z_stream *z, const unsigned char *from, size_t packed, unsigned char *to, size_t size)
{
	size_t in = packed, out = size;
	int st = Z_OK;
	z->next_in = (z_const Bytef *)from;
	z->next_out = to;
	while (st == Z_OK) {
		unsigned n_in = next_piece(in), n_out = next_piece(out);
		z->avail_in = n_in;
		z->avail_out = n_out;
		st = inflate(z, Z_NO_FLUSH);
		in -= n_in - z->avail_in;
		out -= n_out - z->avail_out;
	}
	return st == Z_STREAM_END && in == 0 && out == 0;
}

/* CRC-32 of n bytes. */
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

/* The status of zlib is not needed: fewer bytes than asked for are damage, which the caller reports. */
size_t zip_inflate_head(const struct zip *zip, const struct zip_entry *e, unsigned char *to, size_t size)
{
	z_stream z = {.next_in = (z_const Bytef *)(zip->bytes + e->begin),
	              .avail_in = next_piece((size_t)e->packed),
	              .next_out = to,
	              .avail_out = next_piece(size)};
	const unsigned available = z.avail_out;
	if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
		memory_failed(0);
		return 0;
	}
	(void)inflate(&z, Z_SYNC_FLUSH);
	(void)inflateEnd(&z);
	return available - z.avail_out;
}

/* Raw deflate: entries have no zlib header (-MAX_WBITS). zip_check_method() has limited the size. */
unsigned char *zip_inflate(const struct zip *zip, const struct zip_entry *e)
{
	z_stream z = {0};
	const char *why = NULL;
	unsigned char *to = arena_alloc(zip->s->arena, (size_t)e->size + 1); /* at least one byte */
	if (to == NULL)
		return NULL;
	if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
		memory_failed(0);
		return NULL;
	}
	bool is_complete = inflate_all(&z, zip->bytes + e->begin, (size_t)e->packed, to, (size_t)e->size);
	(void)inflateEnd(&z);
	if (!is_complete)
		why = "its compressed data are damaged";
	else if (checksum(to, (size_t)e->size) != e->crc)
		why = "its data do not have the checksum that the directory names";
	if (why != NULL)
		weight_file_error_in(zip->s, "entry", e->name, "%s", why);
	return why == NULL ? to : NULL;
}

/* ---- the end of the archive ---- */

/* Finds the end-of-central-directory record, which only its comment follows. Searched backwards; the signature may also
 * occur in a comment or in data, so the stored length of the comment must be that of the bytes after it. */
static bool find_end_record(const struct zip *z, size_t *at)
{
	for (size_t comment = 0; comment <= COMMENT_MAX && comment + END_BYTES <= z->len; comment++) {
		*at = z->len - END_BYTES - comment;
		if (has_signature(z, *at, "PK\5\6") && read_int(z, *at + 20, 2) == comment)
			return true;
	}
	return weight_file_error(z->s, "the archive has no end record: cut off, or no archive");
}

/* Reads the zip64 end record, if its locator precedes the end record; its 64-bit fields replace the short ones. */
static bool read_zip64_end_record(struct zip *z, size_t end)
{
	if (end < LOCATOR_BYTES || !has_signature(z, end - LOCATOR_BYTES, "PK\6\7"))
		return true;
	uint64_t at = read_int(z, end - LOCATOR_BYTES + 8, 8);
	if (at > z->len || z->len - at < END64_BYTES || !has_signature(z, (size_t)at, "PK\6\6"))
		return weight_file_error(z->s, "the 64-bit end record is not where it should be");
	z->n = read_int(z, (size_t)at + 32, 8);
	z->directory_bytes = read_int(z, (size_t)at + 40, 8);
	z->directory = read_int(z, (size_t)at + 48, 8);
	return true;
}

/* Finds number of entries, offset and size of the directory, which must end before the end record: later sums of its
 * offset and size cannot overflow. */
static bool read_end_record(struct zip *z)
{
	size_t end = 0;
	if (!find_end_record(z, &end))
		return false;
	if (read_int(z, end + 4, 2) != 0 || read_int(z, end + 6, 2) != 0)
		return weight_file_error(z->s, "not supported: an archive in several files");
	z->n = read_int(z, end + 10, 2);
	z->directory_bytes = read_int(z, end + 12, 4);
	z->directory = read_int(z, end + 16, 4);
	if (!read_zip64_end_record(z, end))
		return false;
	if (z->n > ZIP_ENTRIES_MAX)
		return weight_file_error(z->s, "it has more than %d entries", ZIP_ENTRIES_MAX);
	if (z->directory > end || z->directory_bytes > end - z->directory)
		return weight_file_error(z->s, "its directory is outside of the file");
	return true;
}

/* ---- entries ---- */

/* Reads 64-bit sizes from zip64 extra field 1: those that are 0xffffffff in the directory, in this order. */
static bool read_zip64_extra(const struct zip *z, struct zip_entry *e, size_t at, size_t len)
{
	uint64_t *const fields[] = {&e->size, &e->packed, &e->local};
	while (len >= 4) {
		uint64_t id = read_int(z, at, 2), n = read_int(z, at + 2, 2);
		if (n > len - 4)
			return weight_file_error_in(z->s, "entry", e->name, "its extra field is damaged");
		size_t p = at + 4, left = (size_t)n;
		for (size_t i = 0; id == 1 && i < 3; i++) {
			if (*fields[i] != UINT32_MAX)
				continue;
			if (left < 8)
				return weight_file_error_in(z->s, "entry", e->name,
				                            "its extra field is damaged");
			*fields[i] = read_int(z, p, 8);
			p += 8;
			left -= 8;
		}
		at += 4 + (size_t)n;
		len -= 4 + (size_t)n;
	}
	return true;
}

/* Parses the directory entry at *at and advances *at, which stays within the directory. */
static bool read_directory_entry(const struct zip *z, size_t *at, struct zip_entry *e)
{
	size_t end = (size_t)(z->directory + z->directory_bytes);
	if (end - *at < CENTRAL_BYTES || !has_signature(z, *at, "PK\1\2"))
		return weight_file_error(z->s, "its directory is damaged");
	size_t name = (size_t)read_int(z, *at + 28, 2), extra = (size_t)read_int(z, *at + 30, 2),
	       comment = (size_t)read_int(z, *at + 32, 2);
	if (name + extra + comment > end - *at - CENTRAL_BYTES)
		return weight_file_error(z->s, "its directory is damaged");
	const char *text = (const char *)z->bytes + *at + CENTRAL_BYTES;
	if (name == 0 || name > ENTRY_NAME_MAX || memchr(text, '\0', name) != NULL)
		return weight_file_error(z->s,
		                         "the name of an entry is empty, too long, or has a zero character");
	e->name = arena_strndup(z->s->arena, text, name);
	e->flags = (unsigned)read_int(z, *at + 8, 2);
	e->method = (unsigned)read_int(z, *at + 10, 2);
	e->crc = (uint32_t)read_int(z, *at + 16, 4);
	e->packed = read_int(z, *at + 20, 4);
	e->size = read_int(z, *at + 24, 4);
	e->local = read_int(z, *at + 42, 4);
	if (!read_zip64_extra(z, e, *at + CENTRAL_BYTES + name, extra))
		return false;
	*at += CENTRAL_BYTES + name + extra + comment;
	return true;
}

/* Finds the data after the local header, which must have the same name and method as the directory, before
 * the directory. */
static bool read_local_header(const struct zip *z, struct zip_entry *e)
{
	if (e->local > z->directory || z->directory - e->local < LOCAL_BYTES ||
	    !has_signature(z, (size_t)e->local, "PK\3\4"))
		return weight_file_error_in(z->s, "entry", e->name,
		                            "its data are not where the directory says");
	size_t at = (size_t)e->local, available = (size_t)z->directory - at - LOCAL_BYTES;
	size_t name = (size_t)read_int(z, at + 26, 2), extra = (size_t)read_int(z, at + 28, 2);
	if (name + extra > available || name != strlen(e->name) ||
	    memcmp(z->bytes + at + LOCAL_BYTES, e->name, name) != 0 || read_int(z, at + 8, 2) != e->method)
		return weight_file_error_in(z->s, "entry", e->name,
		                            "its data and the directory do not agree");
	e->begin = at + LOCAL_BYTES + name + extra;
	if (e->packed > available - name - extra)
		return weight_file_error_in(z->s, "entry", e->name, "its data reach beyond the directory");
	return true;
}

bool zip_check_method(const struct zip *z, const struct zip_entry *e)
{
	if (e->flags & 1)
		return weight_file_error_in(z->s, "entry", e->name, "not supported: it is encrypted");
	if (e->method != ZIP_STORED && e->method != ZIP_DEFLATED)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "not supported: it is compressed by another method than deflate, which "
		        "numpy.savez_compressed uses");
	/* a size that deflate cannot reach would allocate memory that the file does not justify */
	if (e->method == ZIP_STORED ? e->packed != e->size : e->size / RATIO_MAX > e->packed)
		return weight_file_error_in(z->s, "entry", e->name,
		                            "it cannot have the size that the directory names");
	return true;
}

/* Order by data, for the check of overlaps and reading in order; qsort is not stable, so the index decides between
   entries of no bytes. */
static int compare_begin(const void *a, const void *b)
{
	const struct zip_entry *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the entries by data; a local header must not begin before the end of the previous entry's data (overlapping
 * entries are how zip bombs repeat one piece of data), and names must differ. */
static bool index_entries(struct zip *z)
{
	qsort(z->entries, z->n, sizeof(*z->entries), compare_begin);
	strmap_init(&z->by_name, z->s->arena);
	for (size_t i = 0; i < z->n; i++) {
		struct zip_entry *e = &z->entries[i];
		if (i > 0 && e->local < z->entries[i - 1].begin + z->entries[i - 1].packed)
			return weight_file_error_in(z->s, "entry", e->name,
			                            "its data lie in those of another entry");
		if (strmap_has(&z->by_name, e->name))
			return weight_file_error_in(z->s, "entry", e->name, "is there twice");
		strmap_set(&z->by_name, e->name, e);
	}
	return true;
}

bool zip_has_magic(const unsigned char *bytes, size_t len)
{
	return len >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

/* The directory is authoritative: archives may have other bytes before and between entries. n + 1 entries are
 * allocated, since none would be NULL. */
bool zip_read(const struct stored_source *s, struct zip *z)
{
	*z = (struct zip){.s = s, .bytes = s->bytes, .len = s->len};
	if (!read_end_record(z))
		return false;
	size_t at = (size_t)z->directory;
	z->entries = ARENA_ARRAY(s->arena, struct zip_entry, z->n + 1);
	if (z->entries == NULL || arena_failed(s->arena))
		return false;
	for (size_t i = 0; i < z->n; i++) {
		z->entries[i].index = i;
		if (!read_directory_entry(z, &at, &z->entries[i]) || !read_local_header(z, &z->entries[i]))
			return false;
	}
	if (at != z->directory + z->directory_bytes) /* bytes that no entry accounts for */
		return weight_file_error(s, "its directory is damaged");
	return index_entries(z);
}
