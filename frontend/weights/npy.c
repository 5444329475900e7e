/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy: magic, version, header length, header, data. The header is a Python literal with three keys; a strict
 * parser accepts exactly that and no other Python; its functions return false after a diagnostic.
 *
 * .npz: a zip archive of .npy files. Compressed entries (numpy.savez_compressed) are inflated into memory. An array of
 * no elements has no data (NULL); lists have one item more than needed, as an arena returns NULL for none.
 */
#include "frontend/weights/npy.h"

#include <string.h>

#include "frontend/weights/stored.h"
#include "frontend/weights/zip.h"
#include "ir/support/checked.h"
#include "ir/support/memory.h"

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

/* Skips spaces and consumes `text` if it is next; false, without a diagnostic: it is not. */
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

/* The value of 'descr': one of the supported types. */
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

/* An integer of the shape. Spaces before it are skipped already: read_shape has looked for ')'. */
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

/* The value of 'shape', a tuple: (), (3,), (3, 4). */
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

/* One of the three keys, each once, with its value. The reader of a value notes that its key was there; keys may be in
 * any order. */
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

/* The whole header: a dict with the three keys; spaces and a newline, which align the data, end it. */
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

/* Byte range of the header; false after a diagnostic. Its length has 2 bytes in version 1, 4 in versions 2 and 3. */
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
	t->reversed = t->reversed && t->rank > 1; /* vectors have one order */
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

#define INFLATED_MAX (UINT64_C(4) << 30) /* of an archive: inflated entries are in memory */

/* Checks that an entry is a .npy array with a supported method. */
static bool check_entry(const struct zip *z, const struct zip_entry *e)
{
	size_t n = strlen(e->name);
	if (n <= 4 || strcmp(e->name + n - 4, ".npy") != 0)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "not supported: it is not a .npy array (a program of torch.jit.save? "
		        "torch.save(module.state_dict(), FILE) writes its weights)");
	return zip_check_method(z, e);
}

/* Inflates an entry; its data begin at byte `data`, after the header. *inflated: size of all inflated entries so far,
 * which stay in memory and are limited. */
static bool inflate_array(const struct zip *z, const struct zip_entry *e, size_t data, uint64_t *inflated,
                          struct stored_tensor *t)
{
	if (e->size > INFLATED_MAX - *inflated)
		return weight_file_error_in(
		        z->s, "entry", e->name,
		        "with it more than 4 GiB of the archive are compressed, which would be held in "
		        "memory; "
		        "numpy.savez stores arrays as they are");
	*inflated += e->size;
	const unsigned char *bytes = zip_inflate(z, e);
	t->data = bytes != NULL && t->bytes > 0 ? bytes + data : NULL;
	return bytes != NULL;
}

/* Reads an array: a stored one in place. The header of a compressed one is parsed before memory for its data is
 * allocated, so that a wrong size is an error and not an allocation; with headers_only its data stay NULL. */
static bool read_array(const struct zip *z, const struct zip_entry *e, uint64_t *inflated,
                       struct stored_tensor *t)
{
	const unsigned char *from = z->bytes + e->begin;
	unsigned char *head;
	size_t data, have = e->size < NPY_HEAD_MAX ? (size_t)e->size : NPY_HEAD_MAX;
	if (e->method == ZIP_STORED) {
		if (!npy_parse_header(z->s, from, (size_t)e->size, (size_t)e->size, t, &data))
			return false;
		t->data = t->bytes > 0 ? from + data : NULL;
		return true;
	}
	head = memory_alloc(have);
	if (head == NULL)
		return false;
	bool ok = zip_inflate_head(z, e, head, have) == have;
	if (!ok)
		weight_file_error_in(z->s, "entry", e->name, "its compressed data are damaged");
	ok = ok && npy_parse_header(z->s, head, have, (size_t)e->size, t, &data);
	memory_free(head);
	return ok && (z->s->headers_only || inflate_array(z, e, data, inflated, t));
}

/* Reads all arrays, in data order. */
static bool read_arrays(const struct zip *z, struct stored_tensors *out)
{
	struct arena *a = z->s->arena;
	struct stored_tensor *items = ARENA_ARRAY(a, struct stored_tensor, z->n + 1);
	uint64_t inflated = 0;
	if (items == NULL || arena_failed(a))
		return false;
	for (size_t i = 0; i < z->n; i++) {
		const struct zip_entry *e = &z->entries[i];
		if (!check_entry(z, e))
			return false;
		items[i].name = arena_strndup(a, e->name, strlen(e->name) - 4);
		if (!read_array(z, e, &inflated, &items[i]))
			return false;
	}
	*out = (struct stored_tensors){items, (size_t)z->n};
	return true;
}

enum tfmc_status npz_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct zip z;
	*out = (struct stored_tensors){NULL, 0};
	bool ok = zip_read(s, &z) && read_arrays(&z, out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}
