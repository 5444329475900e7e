/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy: magic, version, header length, header, data. The header is a Python literal with three keys; a strict
 * parser accepts exactly that and no other Python.
 *
 * .npz: a zip archive of .npy files, read through the central directory; each local header must agree with
 * it. Supports zip64, which numpy writes for large arrays. Compressed entries (numpy.savez_compressed) are
 * inflated into memory.
 */
#include "frontend/weights/npy.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "frontend/weights/stored.h"
#include "ir/support/checked.h"
#include "ir/support/memory.h"
#include "ir/support/strmap.h"

/* Maximum size of magic, version, header length and header. */
#define NPY_HEAD_MAX (12 + NPY_HEADER_MAX)

#define MAGIC "\x93NUMPY"

/* Supported values of `descr`, with the bytes of an element; >: big-endian, |: byte order irrelevant. */
static const struct npy_type {
	const char *descr;
	size_t bytes;
	enum ir_dtype dtype;
	weight_elements *read;
} types[] = {
        {"<f4", 4, DT_F32, NULL},
        {"<f2", 2, DT_F16, NULL},
        {"<f8", 8, DT_F64, NULL},
        {"|V2", 2, DT_BF16, NULL}, /* bfloat16 as ml_dtypes writes it */
        {"|i1", 1, DT_I8, NULL},
        {"|u1", 1, DT_U8, NULL},
        {"|b1", 1, DT_BOOL, NULL},
        {"<i2", 2, DT_I16, NULL},
        {"<u2", 2, DT_F64, stored_read_u16},
        {"<i4", 4, DT_I32, NULL},
        {"<u4", 4, DT_F64, stored_read_u32},
        {"<i8", 8, DT_I64, NULL},
        {"<u8", 8, DT_F64, stored_read_u64},
        {">f2", 2, DT_F16, stored_read_be_f16},
        {">f4", 4, DT_F64, stored_read_be_f32},
        {">f8", 8, DT_F64, stored_read_be_f64},
        {">i2", 2, DT_I16, stored_read_be_i16},
        {">u2", 2, DT_F64, stored_read_be_u16},
        {">i4", 4, DT_I32, stored_read_be_i32},
        {">u4", 4, DT_F64, stored_read_be_u32},
        {">i8", 8, DT_I64, stored_read_be_i64},
        {">u8", 8, DT_F64, stored_read_be_u64},
};

/* Parser of the header literal; fills t. */
struct header_parser {
	const struct stored_source *src;
	const char *tensor;
	const char *p, *end;
	struct stored_tensor *t;
	const struct npy_type *type;
	bool has_descr, has_order, has_shape;
};

/* ---- the literal ---- */

static void skip_spaces(struct header_parser *h)
{
	while (h->p < h->end && *h->p == ' ')
		h->p++;
}

static bool match_token(struct header_parser *h, const char *text)
{
	size_t n = strlen(text);
	skip_spaces(h);
	if ((size_t)(h->end - h->p) < n || memcmp(h->p, text, n) != 0)
		return false;
	h->p += n;
	return true;
}

/* Parses a quoted string without escapes; NULL: none. */
static const char *read_quoted(struct header_parser *h)
{
	skip_spaces(h);
	if (h->p == h->end || (*h->p != '\'' && *h->p != '"'))
		return NULL;
	char quote = *h->p++;
	const char *begin = h->p;
	while (h->p < h->end && *h->p != quote && *h->p != '\\' && *h->p != '\n')
		h->p++;
	if (h->p == h->end || *h->p != quote)
		return NULL;
	return arena_strndup(h->src->arena, begin, (size_t)(h->p++ - begin));
}

static bool read_descr(struct header_parser *h)
{
	const char *descr = read_quoted(h);
	h->has_descr = true;
	if (descr == NULL)
		return weight_file_error_in(h->src, "array", h->tensor,
		                            "not supported: 'descr' is not a simple type");
	for (size_t i = 0; i < TFMC_COUNT(types); i++) {
		if (strcmp(types[i].descr, descr) == 0)
			h->type = &types[i];
	}
	h->t->type_name = descr;
	return h->type != NULL ||
	       weight_file_error_in(h->src, "array", h->tensor,
	                            "not supported: the type '%.40s' of its elements", descr);
}

static bool read_dim(struct header_parser *h)
{
	int64_t n = 0;
	const char *begin = h->p;
	for (; h->p < h->end && *h->p >= '0' && *h->p <= '9'; h->p++) {
		if (!checked_mul_i64(n, 10, &n) || !checked_add_i64(n, *h->p - '0', &n))
			return weight_file_error_in(h->src, "array", h->tensor,
			                            "a dim of 'shape' is too large");
	}
	if (h->p == begin)
		return weight_file_error_in(h->src, "array", h->tensor,
		                            "'shape' must hold non-negative integers");
	if (h->t->rank == IR_RANK_MAX)
		return weight_file_error_in(h->src, "array", h->tensor, "'shape' has more than 8 dims");
	h->t->dims[h->t->rank++] = n;
	return true;
}

/* (), (3,), (3, 4) */
static bool read_shape(struct header_parser *h)
{
	h->has_shape = true;
	if (!match_token(h, "("))
		return weight_file_error_in(h->src, "array", h->tensor, "'shape' is not a tuple");
	while (!match_token(h, ")")) {
		if (!read_dim(h))
			return false;
		bool comma = match_token(h, ",");
		skip_spaces(h);
		if (!comma && (h->p == h->end || *h->p != ')'))
			return weight_file_error_in(h->src, "array", h->tensor,
			                            "'shape' is not a tuple of integers");
	}
	return true;
}

static bool read_key(struct header_parser *h)
{
	const char *key = read_quoted(h);
	if (key == NULL || !match_token(h, ":"))
		return weight_file_error_in(
		        h->src, "array", h->tensor,
		        "its header is not a literal of 'descr', 'fortran_order' and 'shape'");
	if (strcmp(key, "descr") == 0 && !h->has_descr)
		return read_descr(h);
	if (strcmp(key, "fortran_order") == 0 && !h->has_order) {
		h->has_order = true;
		h->t->reversed = match_token(h, "True");
		return h->t->reversed || match_token(h, "False") ||
		       weight_file_error_in(h->src, "array", h->tensor,
		                            "'fortran_order' is neither True nor False");
	}
	if (strcmp(key, "shape") == 0 && !h->has_shape)
		return read_shape(h);
	return weight_file_error_in(h->src, "array", h->tensor,
	                            "the key '%.40s' of its header is unknown or there twice", key);
}

static bool read_literal(struct header_parser *h)
{
	if (!match_token(h, "{"))
		return weight_file_error_in(
		        h->src, "array", h->tensor,
		        "its header is not a literal of 'descr', 'fortran_order' and 'shape'");
	while (!match_token(h, "}")) {
		if (!read_key(h))
			return false;
		bool comma = match_token(h, ",");
		skip_spaces(h);
		if (!comma && (h->p == h->end || *h->p != '}'))
			return weight_file_error_in(
			        h->src, "array", h->tensor,
			        "its header is not a literal of 'descr', 'fortran_order' and 'shape'");
	}
	skip_spaces(h);
	if (h->p < h->end && *h->p == '\n')
		h->p++;
	if (h->p != h->end)
		return weight_file_error_in(h->src, "array", h->tensor,
		                            "there is text after the literal of its header");
	return (h->has_descr && h->has_order && h->has_shape) ||
	       weight_file_error_in(h->src, "array", h->tensor,
	                            "its header lacks 'descr', 'fortran_order' or 'shape'");
}

/* ---- the array ---- */

/* Byte range of the header; false after a diagnostic. */
static bool header_range(const struct stored_source *src, const char *tensor, const unsigned char *bytes,
                         size_t len, size_t *begin, size_t *end)
{
	*begin = *end = 0;
	if (len < 10 || !npy_has_magic(bytes, len))
		return weight_file_error_in(src, "array", tensor, "this is not an array in NumPy's format");
	if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
		return weight_file_error_in(src, "array", tensor,
		                            "not supported: version %u.%u of the format", bytes[6], bytes[7]);
	size_t width = bytes[6] == 1 ? 2 : 4;
	if (len < 8 + width)
		return weight_file_error_in(src, "array", tensor, "it is cut off");
	size_t n = (size_t)read_little_endian(bytes + 8, width);
	*begin = 8 + width;
	if (n > NPY_HEADER_MAX || n > len - *begin)
		return weight_file_error_in(src, "array", tensor, "a header of %zu bytes cannot be", n);
	*end = *begin + n;
	return true;
}

/* Parses the header of an array of `len` bytes, of which the first `have`, at least the whole header, are
 * at `bytes`. Fills *t, whose name is set, except for t->data; *data: offset of the data. False after a
 * diagnostic. */
static bool npy_parse_header(const struct stored_source *src, const unsigned char *bytes, size_t have,
                             size_t len, struct stored_tensor *t, size_t *data)
{
	size_t begin, end;
	int64_t count, size;
	if (!header_range(src, t->name, bytes, have, &begin, &end))
		return false;
	struct header_parser h = {.src = src,
	                          .tensor = t->name,
	                          .p = (const char *)bytes + begin,
	                          .end = (const char *)bytes + end,
	                          .t = t};
	if (!read_literal(&h))
		return false;
	if (!checked_product_i64(t->dims, (size_t)t->rank, &count) ||
	    !checked_mul_i64(count, (int64_t)h.type->bytes, &size))
		return weight_file_error_in(src, "array", t->name,
		                            "the size of its shape is not a possible number of bytes");
	if ((uint64_t)size != len - end)
		return weight_file_error_in(src, "array", t->name,
		                            "its shape needs %lld bytes, there are %zu", (long long)size,
		                            len - end);
	t->readable = true;
	t->dtype = h.type->dtype;
	t->read = h.type->read;
	t->reversed = t->reversed && t->rank > 1;
	t->bytes = (size_t)size;
	*data = end;
	return true;
}

bool npy_has_magic(const unsigned char *bytes, size_t len)
{
	return len >= 6 && memcmp(bytes, MAGIC, 6) == 0;
}

/* File name of a path without `.npy`. */
static const char *array_name(struct arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash == NULL ? path : slash + 1;
	size_t n = strlen(base);
	return n > 4 && strcmp(base + n - 4, ".npy") == 0 ? arena_strndup(a, base, n - 4) : base;
}

enum tfmc_status npy_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct stored_tensor *t = ARENA_NEW(s->arena, struct stored_tensor);
	*out = (struct stored_tensors){NULL, 0};
	if (t == NULL || arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	t->name = array_name(s->arena, s->name);
	size_t data;
	bool ok = npy_parse_header(s, s->bytes, s->len, s->len, t, &data);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	if (ok && t->bytes > 0)
		t->data = s->bytes + data;
	if (ok)
		*out = (struct stored_tensors){t, 1};
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* ---- .npz ---- */

#define LOCAL_BYTES    30
#define CENTRAL_BYTES  46
#define END_BYTES      22
#define END64_BYTES    56
#define LOCATOR_BYTES  20
#define COMMENT_MAX    65535
#define ENTRY_NAME_MAX 1024                /* bytes of an entry name */
#define DEFLATE        8                   /* method of RFC 1951 */
#define RATIO_MAX      1032                /* bytes from one byte of deflate: a run of 258 takes two bits */
#define INFLATED_MAX   (UINT64_C(4) << 30) /* of an archive: inflated entries are in memory */
#define PIECE          ((size_t)1 << 30)   /* zlib counts bytes in 32 bits */

/* An archive, as described by its end record. */
struct zip {
	const struct stored_source *s;
	const unsigned char *bytes;
	size_t len;
	uint64_t entries, directory, directory_bytes; /* directory: file offset */
	uint64_t inflated;                            /* total size of inflated entries */
};

/* An entry of the central directory. */
struct zip_entry {
	const char *name;
	uint64_t size, packed, local; /* bytes, bytes as stored, offset of the local header */
	unsigned flags, method;
	uint32_t crc;        /* CRC-32 of the uncompressed data */
	size_t begin, index; /* begin: offset of the data; index: in the directory */
};

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

/* Inflates to to[0, size). True: the stream ends exactly there and uses all input. */
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

/* Inflates the first bytes of an entry, at most `size`; returns how many. Fewer: the data end or are
 * damaged. */
static size_t zip_inflate_head(const unsigned char *from, size_t packed, unsigned char *to, size_t size)
{
	z_stream z = {.next_in = (z_const Bytef *)from,
	              .avail_in = next_piece(packed),
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

/* Inflates an entry into the arena: exactly `size` bytes with this CRC-32. NULL: *why is the error, or
 * NULL: no memory. */
static unsigned char *zip_inflate(struct arena *a, const unsigned char *from, size_t packed, size_t size,
                                  uint32_t crc, const char **why)
{
	z_stream z = {0};
	*why = NULL;
	unsigned char *to = arena_alloc(a, size + 1); /* at least one byte */
	if (to == NULL)
		return NULL;
	if (inflateInit2(&z, -MAX_WBITS) != Z_OK) {
		memory_failed(0);
		return NULL;
	}
	bool is_complete = inflate_all(&z, from, packed, to, size);
	(void)inflateEnd(&z);
	if (!is_complete)
		*why = "its compressed data are damaged";
	else if (checksum(to, size) != crc)
		*why = "its data do not have the checksum that the directory names";
	return *why == NULL ? to : NULL;
}

/* ---- the end of the archive ---- */

/* Finds the end-of-central-directory record, which only its comment follows. */
static bool find_end_record(const struct zip *z, size_t *at)
{
	for (size_t comment = 0; comment <= COMMENT_MAX && comment + END_BYTES <= z->len; comment++) {
		*at = z->len - END_BYTES - comment;
		if (has_signature(z, *at, "PK\5\6") && read_int(z, *at + 20, 2) == comment)
			return true;
	}
	return weight_file_error(z->s, "the archive has no end record: cut off, or no archive");
}

/* Reads the zip64 end record, if its locator precedes the end record. */
static bool read_zip64_end_record(struct zip *z, size_t end)
{
	if (end < LOCATOR_BYTES || !has_signature(z, end - LOCATOR_BYTES, "PK\6\7"))
		return true;
	uint64_t at = read_int(z, end - LOCATOR_BYTES + 8, 8);
	if (at > z->len || z->len - at < END64_BYTES || !has_signature(z, (size_t)at, "PK\6\6"))
		return weight_file_error(z->s, "the 64-bit end record is not where it should be");
	z->entries = read_int(z, (size_t)at + 32, 8);
	z->directory_bytes = read_int(z, (size_t)at + 40, 8);
	z->directory = read_int(z, (size_t)at + 48, 8);
	return true;
}

/* Finds number of entries, offset and size of the directory. */
static bool read_end_record(struct zip *z)
{
	size_t end = 0;
	if (!find_end_record(z, &end))
		return false;
	if (read_int(z, end + 4, 2) != 0 || read_int(z, end + 6, 2) != 0)
		return weight_file_error(z->s, "not supported: an archive in several files");
	z->entries = read_int(z, end + 10, 2);
	z->directory_bytes = read_int(z, end + 12, 4);
	z->directory = read_int(z, end + 16, 4);
	if (!read_zip64_end_record(z, end))
		return false;
	if (z->entries > NPZ_ENTRIES_MAX)
		return weight_file_error(z->s, "it has more than 65535 entries");
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

/* Parses the directory entry at *at and advances *at. */
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

/* Checks that an entry is a supported array: .npy, not encrypted, stored or deflated, with a possible
 * size. */
static bool check_method(const struct zip *z, const struct zip_entry *e)
{
	size_t n = strlen(e->name);
	if (n <= 4 || strcmp(e->name + n - 4, ".npy") != 0)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "not supported: it is not a .npy array (a checkpoint of PyTorch? convert it to "
		        "safetensors)");
	if (e->flags & 1)
		return weight_file_error_in(z->s, "entry", e->name, "not supported: it is encrypted");
	if (e->method != 0 && e->method != DEFLATE)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "not supported: it is compressed by another method than deflate, which "
		        "numpy.savez_compressed uses");
	if (e->method == 0 ? e->packed != e->size : e->size / RATIO_MAX > e->packed)
		return weight_file_error_in(z->s, "entry", e->name,
		                            "it cannot have the size that the directory names");
	return true;
}

/* Inflates an array; its data begin `data` bytes after the header. */
static bool inflate_array(struct zip *z, const struct zip_entry *e, size_t data, struct stored_tensor *t)
{
	const char *why;
	if (e->size > INFLATED_MAX - z->inflated)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "with it more than 4 GiB of the archive are compressed, which would be held in "
		        "memory; "
		        "numpy.savez stores arrays as they are");
	z->inflated += e->size;
	const unsigned char *bytes = zip_inflate(z->s->arena, z->bytes + e->begin, (size_t)e->packed,
	                                         (size_t)e->size, e->crc, &why);
	if (bytes == NULL && why != NULL)
		return weight_file_error_in(z->s, "entry", e->name, "%s", why);
	t->data = bytes != NULL && t->bytes > 0 ? bytes + data : NULL;
	return bytes != NULL;
}

/* Reads an array. The header of a compressed one is parsed before memory for its data is allocated. */
static bool read_array(struct zip *z, const struct zip_entry *e, struct stored_tensor *t)
{
	const unsigned char *from = z->bytes + e->begin;
	unsigned char *head;
	size_t data, have = e->size < NPY_HEAD_MAX ? (size_t)e->size : NPY_HEAD_MAX;
	if (e->method == 0) {
		if (!npy_parse_header(z->s, from, (size_t)e->size, (size_t)e->size, t, &data))
			return false;
		t->data = t->bytes > 0 ? from + data : NULL;
		return true;
	}
	head = memory_alloc(have);
	if (head == NULL)
		return false;
	bool ok = zip_inflate_head(from, (size_t)e->packed, head, have) == have;
	if (!ok)
		weight_file_error_in(z->s, "entry", e->name, "its compressed data are damaged");
	ok = ok && npy_parse_header(z->s, head, have, (size_t)e->size, t, &data);
	memory_free(head);
	return ok && (z->s->headers_only || inflate_array(z, e, data, t));
}

static int compare_begin(const void *a, const void *b)
{
	const struct zip_entry *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Makes tensors in data order; data must not overlap. */
static bool make_tensors(struct zip *z, struct zip_entry *entries, size_t n, struct stored_tensors *out)
{
	struct stored_tensor *items = ARENA_ARRAY(z->s->arena, struct stored_tensor, n + 1);
	struct strmap names;
	if (items == NULL || arena_failed(z->s->arena))
		return false;
	qsort(entries, n, sizeof(*entries), compare_begin);
	strmap_init(&names, z->s->arena);
	for (size_t i = 0; i < n; i++) {
		const struct zip_entry *e = &entries[i];
		if (i > 0 && e->local < entries[i - 1].begin + entries[i - 1].packed)
			return weight_file_error_in(z->s, "entry", e->name,
			                            "its data lie in those of another entry");
		if (strmap_has(&names, e->name))
			return weight_file_error_in(z->s, "entry", e->name, "is there twice");
		strmap_set(&names, e->name, &items[i]);
		items[i].name = arena_strndup(z->s->arena, e->name, strlen(e->name) - 4);
		if (!read_array(z, e, &items[i]))
			return false;
	}
	*out = (struct stored_tensors){items, n};
	return true;
}

/* Reads all entries of the directory and makes tensors. */
static bool read_archive(struct zip *z, struct stored_tensors *out)
{
	if (!read_end_record(z))
		return false;
	size_t n = (size_t)z->entries, at = (size_t)z->directory;
	struct zip_entry *entries = ARENA_ARRAY(z->s->arena, struct zip_entry, n + 1);
	if (entries == NULL || arena_failed(z->s->arena))
		return false;
	for (size_t i = 0; i < n; i++) {
		entries[i].index = i;
		if (!read_directory_entry(z, &at, &entries[i]) || !check_method(z, &entries[i]) ||
		    !read_local_header(z, &entries[i]))
			return false;
	}
	if (at != z->directory + z->directory_bytes)
		return weight_file_error(z->s, "its directory is damaged");
	return make_tensors(z, entries, n, out);
}

bool npz_has_magic(const unsigned char *bytes, size_t len)
{
	return len >= 4 && (memcmp(bytes, "PK\3\4", 4) == 0 || memcmp(bytes, "PK\5\6", 4) == 0);
}

enum tfmc_status npz_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct zip z = {.s = s, .bytes = s->bytes, .len = s->len};
	*out = (struct stored_tensors){NULL, 0};
	bool ok = read_archive(&z, out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}
