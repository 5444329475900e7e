/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF quantization blocks, after the layouts of ggml (ggml-common.h, ggml-quants.c). Each unpack_NAME
 * decodes one stored block: quants, a scale (and an offset) for each block of the format, and for
 * super-blocks the factors of the scales and offsets.
 */
#include "frontend/weights/gguf_blocks.h"

#include <math.h>
#include <string.h>

#define ELEMENTS_MAX 256 /* elements of a stored block */
#define SCALES_MAX   16

/* Reads an f16 scale. An infinite one (damaged file) becomes NaN: then all elements of the block are NaN,
 * whatever the order of multiplications. */
static float read_f16_scale(const unsigned char *p)
{
	float v = (float)f16_to_f64((uint16_t)(p[0] | p[1] << 8));
	return isfinite(v) ? v : NAN;
}

static uint32_t read_u32(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
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
	uint32_t bits = read_u32(p);
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

/* Unpacks 32 indices and looks up their values. */
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

static void unpack_Q4_K(const unsigned char *p, const struct weight_quants *to)
{
	to->super_scales[0] = read_f16_scale(p);
	to->super_offsets[0] = -read_f16_scale(p + 2);
	unpack_6bit_scales(p + 4, to->scales, to->offsets);
	for (int i = 0; i < 4; i++)
		unpack_nibbles(p + 16 + 32 * i, 32, to->quants + 64 * i);
}

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

/* Unpacks n rows, which are contiguous blocks. */
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

/* Dequantizes elements [begin, begin + n), block by block. */
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
