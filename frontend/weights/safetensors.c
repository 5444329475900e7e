/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: u64 header length, JSON header, data. Every length is compared with the file before it is
 * used, and the tensors must cover the data section without holes or overlaps (a hole could hide other
 * content). Readers return false after a diagnostic. Lists have one item more than needed, as an arena returns NULL for
 * none.
 */
#include "frontend/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/syntax/json.h"
#include "frontend/weights/stored.h"
#include "ir/support/checked.h"

#define LENGTH_BYTES 8

/*
 * Element types of the format. A type that the IR lacks has `read`; dtype `holds` represents all its values.
 */
static const struct stored_type {
	const char *name;
	int64_t bits;
	enum ir_dtype holds;
	weight_elements *read;
} stored_types[] = {
        {"BOOL", 8, DT_BOOL, NULL},
        {"U8", 8, DT_U8, NULL},
        {"I8", 8, DT_I8, NULL},
        {"F8_E5M2", 8, DT_F16, stored_read_f8_e5m2},
        {"F8_E4M3", 8, DT_F16, stored_read_f8_e4m3},
        {"F8_E8M0", 8, DT_BF16, stored_read_f8_e8m0},
        {"F8_E4M3FNUZ", 8, DT_F16, stored_read_f8_e4m3fnuz},
        {"F8_E5M2FNUZ", 8, DT_F16, stored_read_f8_e5m2fnuz},
        {"F4", 4, DT_F32, NULL},
        {"F6_E2M3", 6, DT_F32, NULL},
        {"F6_E3M2", 6, DT_F32, NULL},
        {"I16", 16, DT_I16, NULL},
        {"U16", 16, DT_F64, stored_read_u16},
        {"F16", 16, DT_F16, NULL},
        {"BF16", 16, DT_BF16, NULL},
        {"I32", 32, DT_I32, NULL},
        {"U32", 32, DT_F64, stored_read_u32},
        {"F32", 32, DT_F32, NULL},
        {"F64", 64, DT_F64, NULL},
        {"I64", 64, DT_I64, NULL},
        {"U64", 64, DT_F64, stored_read_u64},
        {"C64", 64, DT_F32, NULL},
};

/* The file and its data section. */
struct reader {
	const struct stored_source *s;
	const unsigned char *data; /* the data section */
	size_t data_len, data_at;  /* data_at: file offset of the data section */
};

/* A tensor before sorting by offset. */
struct entry {
	struct stored_tensor t;
	size_t begin, end, index;
};

static const struct stored_type *find_element_type(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(stored_types); i++) {
		if (strcmp(stored_types[i].name, name) == 0)
			return &stored_types[i];
	}
	return NULL;
}

/* Reads dtype: the type in the IR, its reader, and bits of an element. A type of the format that the IR has by the same
 * name needs no reader; one without either (F4, C64) is not readable, an error only if a parameter needs it. */
static bool read_type(const struct reader *r, const struct json_node *json, struct stored_tensor *t,
                      int64_t *bits)
{
	const struct json_node *type = json_find(json, "dtype");
	if (type == NULL || type->kind != JSON_NODE_STRING)
		return weight_file_error_in(r->s, "tensor", t->name, "'dtype' is missing or not a string");
	const struct stored_type *element_type = find_element_type(type->text);
	if (element_type == NULL)
		return weight_file_error_in(r->s, "tensor", t->name,
		                            "the type '%.40s' is not one of the format", type->text);
	t->type_name = element_type->name;
	t->readable = element_type->read != NULL ||
	              ir_dtype_parse(element_type->name, strlen(element_type->name), &t->dtype);
	t->read = element_type->read;
	if (element_type->read != NULL)
		t->dtype = element_type->holds;
	*bits = element_type->bits;
	return true;
}

/* Reads shape: at most IR_RANK_MAX sizes. */
static bool read_shape(const struct reader *r, const struct json_node *json, struct stored_tensor *t)
{
	const struct json_node *shape = json_find(json, "shape");
	if (shape == NULL || shape->kind != JSON_NODE_ARRAY)
		return weight_file_error_in(r->s, "tensor", t->name, "'shape' is missing or not a list");
	if (shape->n > IR_RANK_MAX)
		return weight_file_error_in(r->s, "tensor", t->name, "rank %zu, the limit is %d", shape->n,
		                            IR_RANK_MAX);
	t->rank = (int)shape->n;
	for (size_t i = 0; i < shape->n; i++) {
		if (shape->items[i].kind != JSON_NODE_INT || shape->items[i].i < 0)
			return weight_file_error_in(r->s, "tensor", t->name,
			                            "'shape' must hold non-negative integers");
		t->dims[i] = shape->items[i].i;
	}
	return true;
}

/* Reads data_offsets, [begin, end) within the data section. */
static bool read_offsets(const struct reader *r, const struct json_node *json, struct entry *e)
{
	const struct json_node *offsets = json_find(json, "data_offsets");
	bool two = offsets != NULL && offsets->kind == JSON_NODE_ARRAY && offsets->n == 2;
	for (size_t i = 0; two && i < 2; i++)
		two = offsets->items[i].kind == JSON_NODE_INT && offsets->items[i].i >= 0;
	if (!two)
		return weight_file_error_in(r->s, "tensor", e->t.name,
		                            "'data_offsets' must be two non-negative integers");
	uint64_t begin = (uint64_t)offsets->items[0].i, end = (uint64_t)offsets->items[1].i;
	if (begin > end || end > r->data_len)
		return weight_file_error_in(
		        r->s, "tensor", e->t.name,
		        "data_offsets [%llu, %llu] are outside of the data section of %zu bytes",
		        (unsigned long long)begin, (unsigned long long)end, r->data_len);
	e->begin = (size_t)begin;
	e->end = (size_t)end;
	return true;
}

/* Checks that shape x dtype is the span of the offsets; in bits, as F4 and F6 have no whole bytes. */
static bool check_extent(const struct reader *r, const struct entry *e, int64_t bits)
{
	int64_t count, total_bits;
	if (!checked_product_i64(e->t.dims, (size_t)e->t.rank, &count) ||
	    !checked_mul_i64(count, bits, &total_bits) || total_bits % 8 != 0)
		return weight_file_error_in(r->s, "tensor", e->t.name,
		                            "the size of its shape is not a possible number of bytes");
	if ((uint64_t)(total_bits / 8) != (uint64_t)(e->end - e->begin))
		return weight_file_error_in(r->s, "tensor", e->t.name,
		                            "its shape needs %lld bytes, its data_offsets span %zu",
		                            (long long)(total_bits / 8), e->end - e->begin);
	return true;
}

/* Reads and checks the entry of one tensor. A key that the format does not have may change the meaning of the others:
 * it is an error. */
static bool read_entry(const struct reader *r, const char *name, const struct json_node *json,
                       struct entry *e)
{
	int64_t bits = 0;
	e->t.name = name;
	if (json->kind != JSON_NODE_OBJECT)
		return weight_file_error_in(r->s, "tensor", name, "its entry is not an object");
	if (name[0] == '\0')
		return weight_file_error_in(r->s, "tensor", name, "a tensor needs a name");
	for (size_t i = 0; i < json->n; i++) {
		const char *key = json->keys[i];
		if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
		    strcmp(key, "data_offsets") != 0)
			return weight_file_error_in(r->s, "tensor", name,
			                            "the key '%.40s' is not one of the format", key);
	}
	if (!read_type(r, json, &e->t, &bits) || !read_shape(r, json, &e->t) || !read_offsets(r, json, e) ||
	    !check_extent(r, e, bits))
		return false;
	e->t.bytes = e->end - e->begin;
	e->t.data = e->t.bytes == 0 ? NULL : r->data + e->begin;
	return true;
}

/* __metadata__ is checked as the format defines it, and not read. */
static bool check_metadata(const struct reader *r, const struct json_node *json)
{
	bool ok = json->kind == JSON_NODE_OBJECT;
	for (size_t i = 0; ok && i < json->n; i++)
		ok = json->items[i].kind == JSON_NODE_STRING;
	return ok || weight_file_error(r->s, "'__metadata__' must map strings to strings");
}

/* Order by data offset; the index makes it the same everywhere (qsort is not stable). */
static int compare_begin(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->end != y->end)
		return x->end < y->end ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorted entries must cover [0, data_len) exactly; empty tensors are between others. */
static bool check_tiling(const struct reader *r, const struct entry *e, size_t n)
{
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		if (e[i].begin != at)
			return weight_file_error_in(
			        r->s, "tensor", e[i].t.name,
			        "its data begins at byte %zu of the file, %s the end of the "
			        "data before it at %zu",
			        r->data_at + e[i].begin, e[i].begin < at ? "before" : "after",
			        r->data_at + at);
		at = e[i].end;
	}
	return at == r->data_len || weight_file_error(r->s, "%zu bytes from byte %zu on belong to no tensor",
	                                              r->data_len - at, r->data_at + at);
}

/* Reads all entries; tensors are sorted by offset, so that readers go through the file in order. */
static bool read_entries(const struct reader *r, const struct json_node *root, struct stored_tensors *out)
{
	struct entry *entries = ARENA_ARRAY(r->s->arena, struct entry, root->n + 1);
	size_t n = 0;
	if (entries == NULL || arena_failed(r->s->arena))
		return false;
	for (size_t i = 0; i < root->n; i++) {
		if (strcmp(root->keys[i], "__metadata__") == 0) {
			if (!check_metadata(r, &root->items[i]))
				return false;
			continue;
		}
		entries[n].index = n;
		if (!read_entry(r, root->keys[i], &root->items[i], &entries[n]))
			return false;
		n++;
	}
	qsort(entries, n, sizeof(*entries), compare_begin);
	if (!check_tiling(r, entries, n))
		return false;
	struct stored_tensor *items = ARENA_ARRAY(r->s->arena, struct stored_tensor, n + 1);
	if (items == NULL || arena_failed(r->s->arena))
		return false;
	for (size_t i = 0; i < n; i++)
		items[i] = entries[i].t;
	*out = (struct stored_tensors){items, n};
	return true;
}

/* Reads the header length, at least two bytes ("{}"), to *n. */
static bool header_length(const struct stored_source *s, size_t *n)
{
	if (s->len < LENGTH_BYTES)
		return weight_file_error(
		        s, "it has %zu bytes; a safetensors file begins with 8 bytes of header length",
		        s->len);
	uint64_t length = read_little_endian(s->bytes, LENGTH_BYTES);
	if (length > SAFETENSORS_HEADER_MAX || length > s->len - LENGTH_BYTES)
		return weight_file_error(
		        s,
		        "a header of %llu bytes cannot be (the file has %zu, the limit is %zu); not a "
		        "safetensors file, or cut off",
		        (unsigned long long)length, s->len, SAFETENSORS_HEADER_MAX);
	*n = (size_t)length;
	return (length >= 2 && s->bytes[LENGTH_BYTES] == '{') ||
	       weight_file_error(s, "the header at byte 8 is not a JSON object");
}

enum tfmc_status safetensors_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct json_source src = {s->name, s->loc, DIAG_WEIGHT_FILE, LENGTH_BYTES};
	size_t n = 0;
	*out = (struct stored_tensors){NULL, 0};
	if (!header_length(s, &n))
		return TFMC_INVALID;
	size_t at = LENGTH_BYTES + n;
	struct reader r = {.s = s, .data = s->bytes + at, .data_len = s->len - at, .data_at = at};
	const struct json_node *root =
	        json_parse(s->arena, s->cx, &src, (const char *)s->bytes + LENGTH_BYTES, n);
	bool ok = root != NULL && read_entries(&r, root, out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* ---- writer ---- */

/* Appends one header entry; *at advances by the tensor's bytes. False: they differ from shape x dtype. */
static bool write_entry(struct buf *out, const struct stored_tensor *t, size_t *at)
{
	int64_t bytes;
	size_t end;
	if (!checked_product_i64(t->dims, (size_t)t->rank, &bytes) ||
	    !checked_mul_i64(bytes, ir_dtype_bytes(t->dtype), &bytes) || (uint64_t)bytes != t->bytes ||
	    !checked_add_size(*at, t->bytes, &end))
		return false;
	buf_json(out, t->name);
	buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", ir_dtype_safetensors(t->dtype));
	for (int i = 0; i < t->rank; i++)
		buf_printf(out, "%s%lld", i == 0 ? "" : ",", (long long)t->dims[i]);
	buf_printf(out, "],\"data_offsets\":[%zu,%zu]}", *at, end);
	*at = end;
	return true;
}

/* Writes the JSON header, padded to 8 bytes, in the order in which safetensors_write writes the data. Tensors with
   larger elements come first, so that all are aligned to their elements: 8 bytes, 4, 2, 1. */
static bool write_header(struct buf *header, const struct stored_tensor *items, size_t n)
{
	size_t at = 0;
	const char *separator = "";
	buf_char(header, '{');
	for (int64_t size = 8; size > 0; size /= 2) {
		for (size_t i = 0; i < n; i++) {
			if (ir_dtype_bytes(items[i].dtype) != size)
				continue;
			buf_str(header, separator);
			if (!write_entry(header, &items[i], &at))
				return false;
			separator = ",";
		}
	}
	buf_char(header, '}');
	buf_fill(header, ' ', (8 - header->len % 8) % 8);
	return header->len <= SAFETENSORS_HEADER_MAX;
}

bool safetensors_write(struct buf *out, const struct stored_tensor *items, size_t n)
{
	struct buf header;
	buf_init(&header);
	bool ok = write_header(&header, items, n);
	if (ok) {
		buf_u64le(out, header.len);
		buf_append(out, &header);
	}
	for (int64_t size = 8; ok && size > 0; size /= 2) {
		for (size_t i = 0; i < n; i++) {
			if (ir_dtype_bytes(items[i].dtype) == size)
				buf_bytes(out, items[i].data, items[i].bytes);
		}
	}
	ok = ok && !buf_failed(&header) && !buf_failed(out);
	buf_destroy(&header);
	return ok;
}
