/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storage formats of weights: plain floats, or block quantization as in GGUF. A quantized matrix [N, K] has
 * ceil(K / block) blocks in every row; a quant is an int8 and stands for
 *
 *   scale * quant + offset                   with scale and offset (negated minimum) of its block, or
 *   (S * scale) * quant + (O * offset)       with super-block factors S and O over integer scales and offsets
 *   (K-quants),
 *
 * rounded once to f32. formats.def lists all formats. Choosing a format never changes values: the expression of the
 * weight must yield values that the format represents exactly (wexpr_fits_format).
 */
#ifndef TFMC_IR_TYPES_FORMAT_H
#define TFMC_IR_TYPES_FORMAT_H

#include "ir/types/type.h"

enum ir_format {
#define FLOATS(NAME, name, dtype)                                                         FORMAT_##NAME,
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) FORMAT_##NAME,
#include "ir/types/formats.def"
};
#define FLOATS(NAME, name, dtype)                                                         +1
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) +1
enum {
	IR_N_FORMATS = 0
#include "ir/types/formats.def"
};

struct ir_format_desc {
	const char *name;
	enum ir_dtype dtype; /* of plain floats; f32 for quantized formats */
	int bits;            /* stored bits of a quant, 2 to 6 or 8; 0: plain floats */
	int block;           /* elements of a block; 0: the whole row */
	int super;           /* blocks of a super-block; 1: no super-blocks */
	int sub;             /* bits of the scales and offsets of its blocks: 8 or 4; 0: no super-blocks */
	enum ir_dtype scale; /* type of scales and offsets, or of the super-block factors */
	bool has_offset;     /* blocks have an offset in addition to the scale */
	int zero;            /* zero point: quant + zero is stored, unsigned */
	int shift; /* low bits of a block's scale that encode a shift added to its quants; 0: none */
	const int8_t *codebook; /* [16] values of 4-bit indices; NULL: quants are integers */
};
/* Scales that encode a shift are stored times this factor, so that scales of small weights are normal f16 too. */
#define FORMAT_SHIFT_SCALE 256
/* The low bits of a scale whose shift is 0: shifts are stored biased. */
static inline int ir_format_shift_bias(const struct ir_format_desc *d)
{
	return d->shift > 0 ? 1 << (d->shift - 1) : 0;
}
/* n / by rounded up, of n >= 0 and by > 0; n + by may exceed int64_t. */
static inline int64_t ceil_div(int64_t n, int64_t by)
{
	return n / by + (n % by != 0);
}
static inline int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}
/* The least and the largest integer quant that quantization uses: all that are stored, but symmetric in 8 bits. */
static inline int ir_format_quant_min(const struct ir_format_desc *d)
{
	return d->bits == 8 ? -127 : -d->zero;
}
static inline int ir_format_quant_max(const struct ir_format_desc *d)
{
	return d->bits == 8 ? 127 : (1 << d->bits) - 1 - d->zero;
}
/* Zero point that makes all quants unsigned bytes (the lowest value of a codebook becomes 0), and the largest such
 * byte. */
int ir_format_u8_zero_point(enum ir_format f);
int ir_format_u8_max(enum ir_format f);

const struct ir_format_desc *ir_format(enum ir_format f);
static inline bool ir_format_is_quantized(enum ir_format f)
{
	return ir_format(f)->bits != 0;
}
/* FORMAT_BF16 or FORMAT_F16 for these types, else FORMAT_PLAIN. */
enum ir_format ir_format_from_dtype(enum ir_dtype t);
/* Number of blocks and of super-blocks of a row of k elements; the latter 0 in formats without. */
int64_t ir_format_blocks(enum ir_format f, int64_t k);
int64_t ir_format_super_blocks(enum ir_format f, int64_t k);
/* Bytes of a row of k elements with its scales and offsets, rounded up; not for PLAIN. */
int64_t ir_format_row_bytes(enum ir_format f, int64_t k);
/* The format of that name (formats.def); false if there is none. */
bool ir_format_parse(const char *s, size_t n, enum ir_format *out);
/* The quantized format an option value names: a name or synonym of formats.def; "keep" is PLAIN. False if unknown. */
bool ir_format_from_option(const char *word, enum ir_format *out);
/* All values that ir_format_from_option accepts. */
const char *const *ir_format_options(size_t *n);

#endif
