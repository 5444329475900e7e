/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight files of Marian: the version, the number of tensors, a header for each, their names, their shapes, padding,
 * their data. A header is four numbers: bytes of the name with its zero byte, type, number of axes, bytes of the data.
 * Numbers have 8 bytes, sizes in shapes 4. The data of a tensor may be longer than its shape says, up to where the next
 * is aligned.
 */
#include "frontend/weights/marian.h"

#include <string.h>

#include "ir/support/checked.h"
#include "ir/support/utf8.h"

#define VERSION      1
#define COUNT_AT     8  /* the number of tensors */
#define HEADERS_AT   16 /* the first header */
#define HEADER_BYTES 32
#define NAME_MAX     4096
#define TYPE_MAX     0xfffff

/* The low byte of a type is the bytes of an element, the rest its class. */
static const struct marian_type {
	uint64_t type;
	const char *name;
	enum ir_dtype dtype;
	weight_elements *read;
} types[] = {
        {0x101, "int8", DT_I8, NULL},
        {0x102, "int16", DT_I16, NULL},
        {0x104, "int32", DT_I32, NULL},
        {0x108, "int64", DT_I64, NULL},
        {0x201, "uint8", DT_U8, NULL},
        {0x202, "uint16", DT_F64, stored_read_u16},
        {0x204, "uint32", DT_F64, stored_read_u32},
        {0x208, "uint64", DT_F64, stored_read_u64},
        {0x402, "float16", DT_F16, NULL},
        {0x404, "float32", DT_F32, NULL},
        {0x408, "float64", DT_F64, NULL},
};

/* The file, and the byte that is read next. */
struct cursor {
	const struct stored_source *s;
	size_t at;
};

/* The next n bytes; NULL after a diagnostic: the file ends before them. */
static const unsigned char *take(struct cursor *c, uint64_t n, const char *what)
{
	const unsigned char *p = c->s->bytes + c->at;
	if (n > c->s->len - c->at) {
		weight_file_error_at(c->s, c->at, "%s: %llu bytes, of which the file has %zu", what,
		                     (unsigned long long)n, c->s->len - c->at);
		return NULL;
	}
	c->at += (size_t)n;
	return p;
}

/* Number i of a header. */
static uint64_t header_number(const unsigned char *header, size_t i)
{
	return read_little_endian(header + 8 * i, 8);
}

/* The format has no magic but its version, 1: the number of tensors (0 - 1 wraps and fails), and length of the name,
 * type and rank of the first one must be plausible, too. */
bool marian_has_magic(const unsigned char *bytes, size_t len)
{
	const unsigned char *header = bytes + HEADERS_AT;
	return len >= HEADERS_AT + HEADER_BYTES && read_little_endian(bytes, 8) == VERSION &&
	       read_little_endian(bytes + COUNT_AT, 8) - 1 < UINT32_MAX &&
	       header_number(header, 0) - 2 < NAME_MAX && header_number(header, 1) <= TYPE_MAX &&
	       header_number(header, 2) <= IR_RANK_MAX;
}

/* The next name, of n bytes. */
static bool read_name(struct cursor *c, uint64_t n, struct stored_tensor *t)
{
	size_t at = c->at;
	const char *name = (const char *)take(c, n, "a name");
	if (name == NULL)
		return false;
	if (n < 2 || n > NAME_MAX + 1 || memchr(name, '\0', (size_t)n) != name + n - 1 ||
	    utf8_check(name, (size_t)n - 1) != n - 1)
		return weight_file_error_at(c->s, at, "%llu bytes are no name of a tensor",
		                            (unsigned long long)n);
	t->name = name;
	return true;
}

/* The next shape, of `rank` axes, and the type. An unknown type (matrices packed for intgemm or FBGEMM) is no error:
 * the tensor is not readable. */
static bool read_shape(struct cursor *c, uint64_t type, uint64_t rank, struct stored_tensor *t)
{
	const struct marian_type *found = NULL;
	for (size_t i = 0; i < TFMC_COUNT(types); i++)
		found = types[i].type == type ? &types[i] : found;
	t->readable = found != NULL;
	t->type_name = found != NULL
	                       ? found->name
	                       : arena_printf(c->s->arena, "type 0x%llx of Marian", (unsigned long long)type);
	t->dtype = found != NULL ? found->dtype : DT_F32;
	t->read = found != NULL ? found->read : NULL;
	if (rank > IR_RANK_MAX)
		return weight_file_error_in(c->s, "tensor", t->name, "rank %llu, the limit is %d",
		                            (unsigned long long)rank, IR_RANK_MAX);
	const unsigned char *sizes = take(c, rank * 4, "a shape");
	t->rank = (int)rank;
	for (int i = 0; sizes != NULL && i < t->rank; i++) {
		t->dims[i] = (int32_t)read_little_endian(sizes + 4 * i, 4);
		if (t->dims[i] < 0)
			return weight_file_error_in(c->s, "tensor", t->name, "a negative size");
	}
	return sizes != NULL;
}

/* The next data, n bytes, of which the first ones, as many as the shape has, are the tensor's, and the remainder is
 * padding. Of a type that is not supported all are: their layout is unknown. */
static bool read_data(struct cursor *c, uint64_t type, uint64_t n, struct stored_tensor *t)
{
	int64_t bytes;
	const unsigned char *data = take(c, n, t->name);
	if (data == NULL)
		return false;
	if (!checked_product_i64(t->dims, (size_t)t->rank, &bytes) ||
	    !checked_mul_i64(bytes, (int64_t)(type & 0xff), &bytes))
		return weight_file_error_in(c->s, "tensor", t->name, "its shape is too large");
	if (t->readable && (uint64_t)bytes > n)
		return weight_file_error_in(c->s, "tensor", t->name, "it has %llu bytes, its shape %lld",
		                            (unsigned long long)n, (long long)bytes);
	t->bytes = t->readable ? (size_t)bytes : (size_t)n;
	t->data = t->bytes == 0 ? NULL : data;
	return true;
}

/* Headers, names, shapes and data are four arrays in this order, so each is read in a loop of its own. take() compares
 * n headers with the file before n tensors are allocated. */
enum tfmc_status marian_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct cursor c = {s, HEADERS_AT};
	*out = (struct stored_tensors){NULL, 0};
	if (!marian_has_magic(s->bytes, s->len)) {
		weight_file_error(s, "it does not begin as a file of Marian");
		return TFMC_INVALID;
	}
	uint64_t n = read_little_endian(s->bytes + COUNT_AT, 8); /* below 2^32 */
	const unsigned char *headers = take(&c, n * HEADER_BYTES, "headers"), *padding = NULL;
	struct stored_tensor *items =
	        headers != NULL ? ARENA_ARRAY(s->arena, struct stored_tensor, (size_t)n + 1) : NULL;
	bool ok = items != NULL;
	for (size_t i = 0; ok && i < n; i++)
		ok = read_name(&c, header_number(headers + HEADER_BYTES * i, 0), &items[i]);
	for (size_t i = 0; ok && i < n; i++) {
		const unsigned char *header = headers + HEADER_BYTES * i;
		ok = read_shape(&c, header_number(header, 1), header_number(header, 2), &items[i]);
	}
	if (ok)
		padding = take(&c, 8, "the length of the padding");
	ok = padding != NULL && take(&c, read_little_endian(padding, 8), "padding") != NULL;
	for (size_t i = 0; ok && i < n; i++) {
		const unsigned char *header = headers + HEADER_BYTES * i;
		ok = read_data(&c, header_number(header, 1), header_number(header, 3), &items[i]);
	}
	if (ok && c.at != s->len)
		ok = weight_file_error(s, "%zu bytes from byte %zu on belong to no tensor", s->len - c.at,
		                       c.at);
	if (ok)
		*out = (struct stored_tensors){items, (size_t)n};
	return arena_failed(s->arena) ? TFMC_NO_MEMORY : ok ? TFMC_OK : TFMC_INVALID;
}
