/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF: magic, version, counts, metadata, tensor infos, padding, data. A cursor reads the bytes with bounds
 * checks and reports the first error with its byte offset; its readers return false after that report.
 *
 * Quantization blocks are dequantized after the layouts of ggml (ggml-common.h, ggml-quants.c). Each unpack_NAME
 * decodes one stored block: quants with the zero point subtracted, a scale (and an offset) for each block of the
 * format, and for super-blocks the factors of the scales and offsets. A value is scale * quant + offset; the K types of
 * ggml subtract a minimum instead, so the factor of their offsets is negated.
 *
 * Names of keys and tensors are unique, and counts are compared with the bytes that remain before memory is allocated
 * for them.
 */
#include "frontend/weights/gguf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/weights/stored.h"
#include "ir/support/checked.h"
#include "ir/support/strmap.h"

/* ---- blocks ---- */

#define ELEMENTS_MAX 256 /* elements of a stored block */
#define SCALES_MAX   16

/* Reads an f16 scale. An infinite one (damaged file) becomes NaN: then all elements of the block are NaN,
 * whatever the order of multiplications. */
static float read_f16_scale(const unsigned char *p)
{
	float v = (float)f16_to_f64((uint16_t)(p[0] | p[1] << 8));
	return isfinite(v) ? v : NAN;
}

/* ---- blocks of 32 ---- */

/* Unpacks n bytes to the n low nibbles, then the n high nibbles. */
static void unpack_nibbles(const unsigned char *p, int n, int8_t *out)
{
	for (int i = 0; i < n; i++) {
		out[i] = (int8_t)(p[i] & 15);
		out[n + i] = (int8_t)(p[i] >> 4);
	}
}

static void add_to_quants(int8_t *quants, int n, int addend)
{
	for (int i = 0; i < n; i++)
		quants[i] = (int8_t)(quants[i] + addend);
}

/* Adds bit 4 of 32 quants from a u32. */
static void unpack_bit_4(const unsigned char *p, int8_t *quants)
{
	uint32_t bits = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	for (int i = 0; i < 32; i++)
		quants[i] = (int8_t)(quants[i] | (int)(bits >> i & 1) << 4);
}

static void unpack_Q8_0(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	memcpy(to->quants, p + 2, 32);
}

static void unpack_Q4_0(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	unpack_nibbles(p + 2, 16, to->quants);
	add_to_quants(to->quants, 32, -8);
}

static void unpack_Q4_1(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	to->offsets[0] = read_f16_scale(p + 2);
	unpack_nibbles(p + 4, 16, to->quants);
}

static void unpack_Q5_0(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	unpack_nibbles(p + 6, 16, to->quants);
	unpack_bit_4(p + 2, to->quants);
	add_to_quants(to->quants, 32, -16);
}

static void unpack_Q5_1(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	to->offsets[0] = read_f16_scale(p + 2);
	unpack_nibbles(p + 8, 16, to->quants);
	unpack_bit_4(p + 4, to->quants);
}

/* Unpacks 32 indices of 4 bits and looks up their values in the codebook of the format. */
static void unpack_codebook(enum ir_format format, const unsigned char *p, int8_t *quants)
{
	unpack_nibbles(p, 16, quants);
	for (int i = 0; i < 32; i++)
		quants[i] = ir_format(format)->codebook[quants[i]];
}

static void unpack_IQ4_NL(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = read_f16_scale(p);
	unpack_codebook(FORMAT_IQ4_NL, p + 2, to->quants);
}

/* Quants are twice the E2M1 values, so the scale is half of 2^(e - 127). */
static void unpack_MXFP4(const unsigned char *p, const struct weight_quants *to)
{
	to->scales[0] = (float)ldexp(1.0, p[0] - 128);
	unpack_codebook(FORMAT_MXFP4, p + 1, to->quants);
}

/* ---- super-blocks of 256 ---- */

/* Eight 6-bit scales and eight 6-bit offsets in 12 bytes: four of each in one byte, the other four split
 * into 4 and 2 bits. */
static void unpack_6bit_scales(const unsigned char *p, float *scales, float *offsets)
{
	for (int i = 0; i < 4; i++) {
		scales[i] = (float)(p[i] & 63);
		offsets[i] = (float)(p[4 + i] & 63);
		scales[4 + i] = (float)((p[8 + i] & 15) | p[i] >> 6 << 4);
		offsets[4 + i] = (float)(p[8 + i] >> 4 | p[4 + i] >> 6 << 4);
	}
}

/* f16 scale and offset, 12 bytes of 6-bit scales, nibbles of 256 quants: 32 bytes have the low nibbles of 32 quants and
 * the high ones of the next 32. */
static void unpack_Q4_K(const unsigned char *p, const struct weight_quants *to)
{
	to->super_scales[0] = read_f16_scale(p);
	to->super_offsets[0] = -read_f16_scale(p + 2);
	unpack_6bit_scales(p + 4, to->scales, to->offsets);
	for (int i = 0; i < 4; i++)
		unpack_nibbles(p + 16 + 32 * i, 32, to->quants + 64 * i);
}

/* f16 scale and offset, 12 bytes of 6-bit scales, bit 4 of 256 quants (bit i / 32 of byte i % 32), their nibbles. */
static void unpack_Q5_K(const unsigned char *p, const struct weight_quants *to)
{
	const unsigned char *high = p + 16, *low = p + 48;
	to->super_scales[0] = read_f16_scale(p);
	to->super_offsets[0] = -read_f16_scale(p + 2);
	unpack_6bit_scales(p + 4, to->scales, to->offsets);
	for (int i = 0; i < 4; i++)
		unpack_nibbles(low + 32 * i, 32, to->quants + 64 * i);
	for (int i = 0; i < 256; i++)
		to->quants[i] = (int8_t)(to->quants[i] | (high[i % 32] >> (i / 32) & 1) << 4);
}

/* The 2-bit value i of 128 values in 32 bytes: bits 2j and 2j + 1 of the bytes are values 32 j .. 32 j +
 * 31. */
static int two_bit_value(const unsigned char *p, int i)
{
	return p[i % 32] >> (2 * (i / 32)) & 3;
}

/* Nibbles of 256 quants, their upper 2 bits, 16 scales i8, f16 scale; 32 is the zero point. */
static void unpack_Q6_K(const unsigned char *p, const struct weight_quants *to)
{
	const unsigned char *high = p + 128, *scales = p + 192;
	to->super_scales[0] = read_f16_scale(p + 208);
	for (int i = 0; i < 16; i++)
		to->scales[i] = (float)(int8_t)scales[i];
	for (int i = 0; i < 2; i++)
		unpack_nibbles(p + 64 * i, 64, to->quants + 128 * i);
	for (int i = 0; i < 256; i++)
		to->quants[i] =
		        (int8_t)((to->quants[i] | two_bit_value(high + i / 128 * 32, i % 128) << 4) - 32);
}

/* Bit 2 of 256 quants (bit i / 32 of byte i % 32), their lower 2 bits, 16 scales of 6 bits (nibbles, then upper 2
 * bits), f16 scale. Zero points are 4 and, of the scales, 32. */
static void unpack_Q3_K(const unsigned char *p, const struct weight_quants *to)
{
	const unsigned char *high = p, *low = p + 32, *scales = p + 96;
	to->super_scales[0] = read_f16_scale(p + 108);
	for (int i = 0; i < 16; i++) {
		int four = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
		to->scales[i] = (float)((four | (scales[8 + i % 4] >> (2 * (i / 4)) & 3) << 4) - 32);
	}
	for (int i = 0; i < 256; i++) {
		int third = high[i % 32] >> (i / 32) & 1;
		to->quants[i] = (int8_t)(two_bit_value(low + i / 128 * 32, i % 128) + 4 * third - 4);
	}
}

/* 16 scales and offsets of 4 bits each in a byte, 256 quants of 2 bits, f16 scale and offset. */
static void unpack_Q2_K(const unsigned char *p, const struct weight_quants *to)
{
	to->super_scales[0] = read_f16_scale(p + 80);
	to->super_offsets[0] = -read_f16_scale(p + 82);
	for (int i = 0; i < 16; i++) {
		to->scales[i] = (float)(p[i] & 15);
		to->offsets[i] = (float)(p[i] >> 4);
	}
	for (int i = 0; i < 256; i++)
		to->quants[i] = (int8_t)two_bit_value(p + 16 + i / 128 * 32, i % 128);
}

/* f16 scale, upper 2 bits of 8 scales, their nibbles, 256 indices of the codebook; the zero point of the scales is
 * 32. */
static void unpack_IQ4_XS(const unsigned char *p, const struct weight_quants *to)
{
	int high = p[2] | p[3] << 8;
	to->super_scales[0] = read_f16_scale(p);
	for (int i = 0; i < 8; i++) {
		int low = p[4 + i / 2] >> (i % 2 * 4) & 15;
		to->scales[i] = (float)((low | (high >> (2 * i) & 3) << 4) - 32);
		unpack_codebook(FORMAT_IQ4_XS, p + 8 + 16 * i, to->quants + 32 * i);
	}
}

/* ---- rows and elements ---- */

/* A block format of GGUF. */
struct stored_block {
	int64_t elements, bytes;
	enum ir_format format;
	void (*unpack)(const unsigned char *p, const struct weight_quants *to);
};

/* weight_rows: unpacks n rows from `row` on, which are contiguous stored blocks. A stored block has b.elements quants,
 * `scales` blocks of the format and, if that has super-blocks, is one of these. */
static void unpack_rows(struct stored_block b, const void *data, int64_t row, int64_t n,
                        const struct weight_quants *out)
{
	int64_t blocks = out->k / b.elements, scales = ir_format_blocks(b.format, b.elements);
	const unsigned char *p = (const unsigned char *)data + row * blocks * b.bytes;
	struct weight_quants to = *out;
	for (int64_t i = 0; i < n * blocks; i++, p += b.bytes) {
		b.unpack(p, &to);
		to.quants += b.elements;
		to.scales += scales;
		if (to.offsets)
			to.offsets += scales;
		if (to.super_scales)
			to.super_scales++;
		if (to.super_offsets)
			to.super_offsets++;
	}
}

/* weight_elements: dequantizes elements [begin, begin + n), block by block; a range may begin and end inside of one. */
static void unpack_elements(struct stored_block b, const void *data, int64_t begin, int64_t n, double *out)
{
	const struct ir_format_desc *d = ir_format(b.format);
	int8_t quants[ELEMENTS_MAX];
	float scales[SCALES_MAX], offsets[SCALES_MAX], super_scale, super_offset;
	double values[ELEMENTS_MAX];
	const struct weight_quants to = {b.format,
	                                 b.elements,
	                                 quants,
	                                 scales,
	                                 d->has_offset ? offsets : NULL,
	                                 d->super > 1 ? &super_scale : NULL,
	                                 d->super > 1 && d->has_offset ? &super_offset : NULL};
	while (n > 0) {
		int64_t in = begin % b.elements, count = n < b.elements - in ? n : b.elements - in;
		b.unpack((const unsigned char *)data + begin / b.elements * b.bytes, &to);
		weight_dequantize(&to, 1, values);
		memcpy(out, values + in, (size_t)count * sizeof(*out));
		begin += count;
		out += count;
		n -= count;
	}
}

#define QUANTS(number, name, block, bytes, format)                                                       \
	static const struct stored_block block_##name = {block, bytes, FORMAT_##format, unpack_##name};  \
	void gguf_elements_##name(const void *data, int64_t begin, int64_t n, double *out)               \
	{                                                                                                \
		unpack_elements(block_##name, data, begin, n, out);                                      \
	}                                                                                                \
	void gguf_rows_##name(const void *data, int64_t row, int64_t n, const struct weight_quants *out) \
	{                                                                                                \
		unpack_rows(block_##name, data, row, n, out);                                            \
	}
#include "frontend/weights/gguf_types.def"

/* ---- the file ---- */

#define ALIGNMENT_MAX (1u << 30)

/* Position in the file. */
struct cursor {
	const struct stored_source *s;
	struct arena *arena;
	const unsigned char *bytes;
	size_t len, at;
};

/* Element type of tensors, a row of gguf_types.def. */
static const struct element_type {
	uint32_t number;
	const char *name;
	size_t block, bytes; /* elements and bytes of a quantization block */
	bool readable;
	enum ir_dtype dtype;
	weight_elements *read;
	enum ir_format format;
	weight_rows *read_quants;
} element_types[] = {
#define PLAIN(number, name, bytes, dtype) {number, #name, 1, bytes, true, dtype, NULL, FORMAT_PLAIN, NULL},
#define QUANTS(number, name, block, bytes, format) \
	{number, #name, block, bytes, true, DT_F32, gguf_elements_##name, FORMAT_##format, gguf_rows_##name},
#define UNSUPPORTED(number, name, block, bytes) \
	{number, #name, block, bytes, false, DT_F32, NULL, FORMAT_PLAIN, NULL},
#include "frontend/weights/gguf_types.def"
};

/* Type of metadata values. */
static const struct value_type {
	const char *name;
	size_t bytes; /* 0: variable size */
} value_types[] = {
        [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
        [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
        [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
        [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
        [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type)
{
	return value_types[type].name;
}

bool gguf_is_integer_type(enum gguf_type type)
{
	return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING &&
	       type != GGUF_ARRAY;
}

/* ---- integers and strings ---- */

/* True if n bytes are left, else an error. */
static bool require_bytes(const struct cursor *c, uint64_t n)
{
	return n <= c->len - c->at ? true : weight_file_error_at(c->s, c->at, "the file ends too early");
}

static bool read_u32(struct cursor *c, uint32_t *out)
{
	if (!require_bytes(c, 4))
		return false;
	*out = (uint32_t)read_little_endian(c->bytes + c->at, 4);
	c->at += 4;
	return true;
}

static bool read_u64(struct cursor *c, uint64_t *out)
{
	if (!require_bytes(c, 8))
		return false;
	*out = read_little_endian(c->bytes + c->at, 8);
	c->at += 8;
	return true;
}

/* Reads a length and that number of bytes; *text points into the file. */
static bool read_string(struct cursor *c, const char **text, size_t *len)
{
	uint64_t n;
	if (!read_u64(c, &n) || !require_bytes(c, n))
		return false;
	*text = (const char *)c->bytes + c->at;
	*len = (size_t)n;
	c->at += (size_t)n;
	return true;
}

/* Reads a name: 1 to `limit` printable ASCII characters. Returns a terminated copy, or NULL after a
 * diagnostic. */
static const char *read_name(struct cursor *c, size_t limit, const char *what)
{
	const char *text;
	size_t len, begin = c->at;
	if (!read_string(c, &text, &len))
		return NULL;
	bool ok = len > 0 && len <= limit;
	for (size_t i = 0; ok && i < len; i++)
		ok = text[i] >= 0x20 && text[i] < 0x7f;
	if (ok)
		return arena_strndup(c->arena, text, len);
	c->at = begin;
	weight_file_error_at(c->s, c->at, "%s must be 1 to %zu printable characters of ASCII", what, limit);
	return NULL;
}

/* Reads the type of a value; an unknown one is an error at the byte of the type, where the cursor is then. */
static bool read_value_type(struct cursor *c, enum gguf_type *out)
{
	uint32_t type;
	if (!read_u32(c, &type))
		return false;
	if (type >= TFMC_COUNT(value_types)) {
		c->at -= 4;
		return weight_file_error_at(c->s, c->at, "the type %u of a value is unknown", type);
	}
	*out = (enum gguf_type)type;
	return true;
}

/* ---- values ---- */

/* Decodes a value of fixed size; the caller has checked that the file has its bytes. Returns NULL, or the error, which
 * the caller reports with the byte. */
static const char *decode_scalar(enum gguf_type type, const unsigned char *p, struct gguf_value *out)
{
	uint64_t v = read_little_endian(p, value_types[type].bytes);
	*out = (struct gguf_value){.type = type};
	switch (type) {
	case GGUF_U8:
	case GGUF_U16:
	case GGUF_U32: out->i = (int64_t)v; return NULL;
	case GGUF_I8: out->i = (int8_t)v; return NULL;
	case GGUF_I16: out->i = (int16_t)v; return NULL;
	case GGUF_I32: out->i = (int32_t)v; return NULL;
	case GGUF_I64: out->i = (int64_t)v; return NULL;
	case GGUF_F32: out->f = f32_from_bits(v); return NULL;
	case GGUF_F64: out->f = f64_from_bits(v); return NULL;
	case GGUF_BOOL: out->i = (int64_t)v; return v > 1 ? "a bool is neither 0 nor 1" : NULL;
	case GGUF_U64: out->i = (int64_t)v; return v > INT64_MAX ? "a number is larger than 2^63 - 1" : NULL;
	case GGUF_STRING:
	case GGUF_ARRAY: break;
	}
	return NULL;
}

/* Reads an array and validates its elements, which stay encoded: gguf_next_element decodes them without checks. Its
 * size is compared with the file first, so only strings, which vary, are checked one by one. */
static bool read_array(struct cursor *c, struct gguf_value *out)
{
	uint64_t n;
	enum gguf_type element = GGUF_U8;
	if (!read_value_type(c, &element) || !read_u64(c, &n))
		return false;
	size_t each = value_types[element].bytes;
	if (element == GGUF_ARRAY)
		return weight_file_error_at(c->s, c->at, "not supported: an array of arrays");
	if (n > (c->len - c->at) / (each == 0 ? 8 : each)) /* a string has 8 bytes at least */
		return weight_file_error_at(c->s, c->at,
		                            "an array of %llu elements does not fit into the file",
		                            (unsigned long long)n);
	*out = (struct gguf_value){
	        .type = GGUF_ARRAY, .element = element, .n = (size_t)n, .bytes = c->bytes + c->at};
	for (uint64_t i = 0; i < n; i++) {
		struct gguf_value v;
		const char *text, *error;
		size_t len;
		if (element == GGUF_STRING) {
			if (!read_string(c, &text, &len))
				return false;
			continue;
		}
		error = decode_scalar(element, c->bytes + c->at, &v);
		if (error != NULL)
			return weight_file_error_at(c->s, c->at, "%s", error);
		c->at += each;
	}
	out->n_bytes = (size_t)(c->bytes + c->at - out->bytes);
	return true;
}

/* Reads a typed value. */
static bool read_value(struct cursor *c, struct gguf_value *out)
{
	enum gguf_type type = GGUF_U8;
	const char *error;
	if (!read_value_type(c, &type))
		return false;
	if (type == GGUF_ARRAY)
		return read_array(c, out);
	if (type == GGUF_STRING) {
		*out = (struct gguf_value){.type = type};
		return read_string(c, &out->text, &out->len);
	}
	if (!require_bytes(c, value_types[type].bytes))
		return false;
	error = decode_scalar(type, c->bytes + c->at, out);
	if (error != NULL)
		return weight_file_error_at(c->s, c->at, "%s", error);
	c->at += value_types[type].bytes;
	return true;
}

/* read_array has validated the elements. */
bool gguf_next_element(const struct gguf_value *array, size_t *at, struct gguf_value *out)
{
	if (*at >= array->n_bytes)
		return false;
	const unsigned char *p = array->bytes + *at;
	if (array->element != GGUF_STRING) {
		decode_scalar(array->element, p, out);
		*at += value_types[array->element].bytes;
		return true;
	}
	size_t len = (size_t)read_little_endian(p, 8);
	*out = (struct gguf_value){.type = GGUF_STRING, .text = (const char *)p + 8, .len = len};
	*at += 8 + len;
	return true;
}

/* ---- metadata ---- */

/* Reads n metadata entries with unique keys. n + 1 are allocated, since none would be NULL. */
static bool read_metadata(struct cursor *c, uint64_t n, struct gguf *out)
{
	struct strmap keys;
	struct gguf_entry *entries = ARENA_ARRAY(c->arena, struct gguf_entry, n + 1);
	if (entries == NULL || arena_failed(c->arena))
		return false;
	strmap_init(&keys, c->arena);
	for (size_t i = 0; i < n; i++) {
		struct gguf_entry *e = &entries[i];
		e->key = read_name(c, 65535, "a key");
		if (e->key == NULL || !read_value(c, &e->value))
			return false;
		if (strmap_has(&keys, e->key))
			return weight_file_error_in(c->s, "the key", e->key, "is given twice");
		strmap_set(&keys, e->key, e);
	}
	out->entries = entries;
	out->n_entries = (size_t)n;
	return true;
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key)
{
	for (size_t i = 0; i < g->n_entries; i++) {
		if (strcmp(g->entries[i].key, key) == 0)
			return &g->entries[i].value;
	}
	return NULL;
}

/* Alignment of tensor data: general.alignment, default 32; a power of two, as align_up() masks by it. */
static bool read_alignment(struct cursor *c, const struct gguf *g, size_t *out)
{
	const struct gguf_value *v = gguf_find(g, "general.alignment");
	*out = 32;
	if (v == NULL)
		return true;
	bool is_integer = v->type == GGUF_U32 || v->type == GGUF_U64;
	if (!is_integer || v->i < 1 || v->i > ALIGNMENT_MAX || (v->i & (v->i - 1)) != 0)
		return weight_file_error_in(c->s, "the key", "general.alignment",
		                            "must be an unsigned power of two, at most 2^30");
	*out = (size_t)v->i;
	return true;
}

/* ---- tensors ---- */

static const struct element_type *find_element_type(uint32_t number)
{
	for (size_t i = 0; i < TFMC_COUNT(element_types); i++) {
		if (element_types[i].number == number)
			return &element_types[i];
	}
	return NULL;
}

/* Reads rank and dims and reverses the dims. */
static bool read_shape(struct cursor *c, struct stored_tensor *t)
{
	uint32_t rank;
	if (!read_u32(c, &rank))
		return false;
	if (rank > GGUF_RANK_MAX)
		return weight_file_error_in(c->s, "tensor", t->name, "rank %u, the limit is %d", rank,
		                            GGUF_RANK_MAX);
	t->rank = (int)rank;
	for (uint32_t i = 0; i < rank; i++) {
		uint64_t n;
		if (!read_u64(c, &n))
			return false;
		if (n > INT64_MAX)
			return weight_file_error_in(c->s, "tensor", t->name, "a dim is larger than 2^63 - 1");
		t->dims[rank - 1 - i] = (int64_t)n;
	}
	return true;
}

/* Sets the bytes of a tensor from its shape and block format. */
static bool compute_size(struct cursor *c, const struct element_type *type, struct stored_tensor *t)
{
	int64_t count, bytes;
	int64_t row = t->rank == 0 ? 1 : t->dims[t->rank - 1];
	if (row % (int64_t)type->block != 0)
		return weight_file_error_in(c->s, "tensor", t->name,
		                            "rows of %lld elements are not whole blocks of %s",
		                            (long long)row, type->name);
	if (!checked_product_i64(t->dims, (size_t)t->rank, &count) ||
	    !checked_mul_i64(count / (int64_t)type->block, (int64_t)type->bytes, &bytes))
		return weight_file_error_in(c->s, "tensor", t->name,
		                            "the size of its shape is not a possible number of bytes");
	t->bytes = (size_t)bytes;
	return true;
}

/* Reads name, shape, type and offset of a tensor. Only matrices keep their quantized format; a quantized vector is
 * read as dequantized elements. */
static bool read_tensor_info(struct cursor *c, struct stored_tensor *t, uint64_t *offset)
{
	uint32_t number;
	t->name = read_name(c, GGUF_NAME_MAX, "the name of a tensor");
	if (t->name == NULL || !read_shape(c, t) || !read_u32(c, &number) || !read_u64(c, offset))
		return false;
	const struct element_type *type = find_element_type(number);
	if (type == NULL)
		return weight_file_error_in(c->s, "tensor", t->name,
		                            "its type has the number %u, which is unknown", number);
	t->type_name = type->name;
	t->readable = type->readable;
	t->dtype = type->dtype;
	t->read = type->read;
	if (t->rank >= 2) {
		t->format = type->format;
		t->read_quants = type->read_quants;
	} else if (t->read != NULL) {
		t->dtype = DT_F64; /* of converted elements: f32 with a reader means quants (weight_bytes) */
	}
	return compute_size(c, type, t);
}

/* `end` rounded up to the alignment; SIZE_MAX on overflow. */
static size_t align_up(size_t end, size_t alignment)
{
	size_t sum;
	return checked_add_size(end, alignment - 1, &sum) ? sum & ~(alignment - 1) : SIZE_MAX;
}

/* Checks that each tensor begins at the aligned end of the one before it, and sets the data pointers. Only padding may
 * follow the last one: other bytes would be hidden contents, or a tensor that the infos lack. */
static bool locate_data(struct cursor *c, struct stored_tensor *items, const uint64_t *offsets, size_t n,
                        size_t alignment)
{
	size_t begin = align_up(c->at, alignment), at = 0;
	size_t available = begin <= c->len ? c->len - begin : 0;
	for (size_t i = 0; i < n; i++) {
		if (offsets[i] != at)
			return weight_file_error_in(c->s, "tensor", items[i].name,
			                            "its data begin at %llu, those before it end at %zu",
			                            (unsigned long long)offsets[i], at);
		if (at > available || items[i].bytes > available - at)
			return weight_file_error_in(c->s, "tensor", items[i].name,
			                            "its %zu bytes at %zu reach beyond the %zu bytes of data",
			                            items[i].bytes, at, available);
		items[i].data = items[i].bytes == 0 ? NULL : c->bytes + begin + at;
		at = align_up(at + items[i].bytes, alignment);
	}
	if (n == 0 || available <= at)
		return true;
	c->at = begin + at;
	return weight_file_error_at(c->s, c->at, "bytes from here on belong to no tensor");
}

/*
 * Reads the n tensor infos, whose names must differ, then locates the data of all: the data section begins at the
 * aligned end of the last info, and the offset of a tensor counts from there. read_file() has checked n against
 * GGUF_TENSORS_MAX and the size of the file, so n + 1 does not overflow, and the arrays stay in proportion to the
 * file.
 */
static bool read_tensor_infos(struct cursor *c, uint64_t n, struct gguf *out)
{
	struct strmap names;
	size_t alignment;
	struct stored_tensor *items = ARENA_ARRAY(c->arena, struct stored_tensor, n + 1);
	uint64_t *offsets = ARENA_ARRAY(c->arena, uint64_t, n + 1);
	if (items == NULL || offsets == NULL || arena_failed(c->arena) || !read_alignment(c, out, &alignment))
		return false;
	strmap_init(&names, c->arena);
	for (size_t i = 0; i < n; i++) {
		if (!read_tensor_info(c, &items[i], &offsets[i]))
			return false;
		if (strmap_has(&names, items[i].name))
			return weight_file_error_in(c->s, "tensor", items[i].name, "is there twice");
		strmap_set(&names, items[i].name, &items[i]);
	}
	out->tensors = (struct stored_tensors){items, (size_t)n};
	return locate_data(c, items, offsets, (size_t)n, alignment);
}

/* ---- the file ---- */

bool gguf_has_magic(const unsigned char *bytes, size_t len)
{
	return len >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

/* Reads the version, which must be 2 or 3. */
static bool read_version(struct cursor *c, uint32_t *out)
{
	c->at = 4;
	if (!read_u32(c, out))
		return false;
	if (*out == 2 || *out == 3)
		return true;
	c->at = 4;
	if ((*out & 0xffff) == 0) /* its bytes are in the other order */
		return weight_file_error_at(c->s, c->at, "not supported yet: a big-endian GGUF file");
	return weight_file_error_at(c->s, c->at, "not supported: version %u of GGUF (2 and 3 are)", *out);
}

/* Reads the header, the metadata and the tensor infos. The counts are checked against the size of the file before
 * arrays of these counts are allocated. */
static bool read_file(struct cursor *c, struct gguf *out)
{
	uint64_t tensors, entries;
	if (!gguf_has_magic(c->bytes, c->len))
		return weight_file_error_at(c->s, c->at, "this is not a GGUF file");
	if (!read_version(c, &out->version) || !read_u64(c, &tensors) || !read_u64(c, &entries))
		return false;
	if (tensors > GGUF_TENSORS_MAX || entries > GGUF_ENTRIES_MAX)
		return weight_file_error_at(
		        c->s, c->at, "%llu tensors and %llu entries of metadata; the limits are %d and %d",
		        (unsigned long long)tensors, (unsigned long long)entries, GGUF_TENSORS_MAX,
		        GGUF_ENTRIES_MAX);
	/* The smallest metadata entry has 13 bytes, the smallest tensor info 24. */
	if (entries > (c->len - c->at) / 13 || tensors > (c->len - c->at) / 24)
		return weight_file_error_at(c->s, c->at, "the file is too short for its counts");
	return read_metadata(c, entries, out) && read_tensor_infos(c, tensors, out);
}

/* Without success *out is empty: it may be filled in part by then. */
enum tfmc_status gguf_read(const struct stored_source *s, struct gguf *out)
{
	struct cursor c = {.s = s, .arena = s->arena, .bytes = s->bytes, .len = s->len};
	*out = (struct gguf){0};
	bool ok = read_file(&c, out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	if (!ok)
		*out = (struct gguf){0};
	return ok ? TFMC_OK : TFMC_INVALID;
}
