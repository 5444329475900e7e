/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats of weights: floats of a type, or codes. A matrix of codes [N, K] has in every row ceil(K / block) blocks;
 *
 *   element = scale code + offset                     with the scale and offset of its block, or
 *   element = (S scale) code + (O offset)             with those of its super block, too,
 *
 * rounded once to f32. A code is an integer of 8 bits. formats.def has them all. A format changes no value: the
 * expression of the weight gives numbers that the format holds.
 */
#ifndef TFMC_IR_TYPES_FORMAT_H
#define TFMC_IR_TYPES_FORMAT_H

#include "ir/types/type.h"

enum ir_format {
#define FLOATS(NAME, name, dtype)                                                    FORMAT_##NAME,
#define FORMAT(NAME, name, bits, block, super, scale, offset, zero, shift, codebook) FORMAT_##NAME,
#include "ir/types/formats.def"
};
#define FLOATS(NAME, name, dtype)                                                    +1
#define FORMAT(NAME, name, bits, block, super, scale, offset, zero, shift, codebook) +1
enum {
	IR_N_FORMATS = 0
#include "ir/types/formats.def"
};

struct ir_format_desc {
	const char *name;
	enum ir_dtype dtype; /* of the floats */
	int bits;            /* of what is stored of a code, 4 or 8; 0: floats */
	int block, super;    /* elements; blocks. 0: the whole row; 1: no super blocks */
	enum ir_dtype scale; /* type of scales and offsets, or of those of super blocks */
	bool has_offset;
	int zero;  /* of codes that are stored as code + zero */
	int shift; /* bits of a scale that say what is added to the codes of a block; 0: nothing is */
	const int8_t *codebook; /* [16], NULL: none */
};
/* Scales with a shift are stored multiplied by it: those of small weights are normal numbers, too. */
#define FORMAT_SHIFT_SCALE 256
/* What the lowest bits of a stored scale of shift 0 are. */
static inline int ir_format_shift_bias(const struct ir_format_desc *d)
{
	return d->shift > 0 ? 1 << (d->shift - 1) : 0;
}
/* What is added to codes so that they are unsigned bytes, the lowest of a codebook 0; the largest of these bytes. */
int ir_format_u8_zero_point(enum ir_format f);
int ir_format_u8_max(enum ir_format f);

const struct ir_format_desc *ir_format(enum ir_format f);
static inline bool ir_format_is_quantized(enum ir_format f)
{
	return ir_format(f)->bits != 0;
}
/* The floats of a dtype; FORMAT_PLAIN for others than bf16 and f16. */
enum ir_format ir_format_from_dtype(enum ir_dtype t);
/* Blocks and super blocks of a row of k elements; 0 of super blocks where there are none. */
int64_t ir_format_blocks(enum ir_format f, int64_t k);
int64_t ir_format_super_blocks(enum ir_format f, int64_t k);
/* Bytes of a row of k elements of a format other than PLAIN, with its scales and offsets; rounded up. */
int64_t ir_format_row_bytes(enum ir_format f, int64_t k);
/* By its name. */
bool ir_format_parse(const char *s, size_t n, enum ir_format *out);
/* What users call formats of codes: names and synonyms; "keep" is PLAIN. */
bool ir_format_from_option(const char *word, enum ir_format *out);
/* All of these words. */
const char *const *ir_format_options(size_t *n);

#endif
