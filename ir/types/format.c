/* SPDX-License-Identifier: Apache-2.0 */
/* The table of storage formats and their codebooks. */
#include "ir/types/format.h"

#include <string.h>

/* GGUF's IQ4_NL: 16 values, denser around zero. */
static const int8_t codebook_IQ4_NL[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};
/* E2M1 (OCP Microscaling Formats 1.0, 5.3.3) times two, so that values are integers: 0, 0.5, 1, 1.5, 2, 3, 4, 6, +-. */
static const int8_t codebook_E2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/* 7-bit values found by Lloyd's algorithm: least squared error for normally distributed blocks of 32 whose scale,
 * sign of the scale and shift are fitted. */
static const int8_t codebook_BELL[16] = {-63, -52, -42, -34, -27, -20, -13, -7, 0, 6, 13, 20, 28, 36, 46, 64};
#define codebook_NONE NULL

static const struct ir_format_desc formats[] = {
#define FLOATS(NAME, name, dtype) [FORMAT_##NAME] = {#name, dtype, 0, 0, 1, 0, dtype, false, 0, 0, NULL},
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) \
	[FORMAT_##NAME] = {                                                               \
	        #name, DT_F32, bits, block, super, sub, scale, offset, zero, shift, codebook_##codebook},
#include "ir/types/formats.def"
};

const struct ir_format_desc *ir_format(enum ir_format f)
{
	return &formats[f];
}

/* The negated lowest value: of integer quants it is -zero, of codebooks one of the 16. */
int ir_format_u8_zero_point(enum ir_format f)
{
	const struct ir_format_desc *d = &formats[f];
	int lowest = -d->zero;
	for (int i = 0; d->codebook && i < 16; i++)
		lowest = d->codebook[i] < lowest ? d->codebook[i] : lowest;
	return -lowest;
}

/* All bits set for integer quants; of codebooks the largest value plus the zero point. */
int ir_format_u8_max(enum ir_format f)
{
	const struct ir_format_desc *d = &formats[f];
	int most = d->codebook ? 0 : (1 << d->bits) - 1, zero = ir_format_u8_zero_point(f);
	for (int i = 0; d->codebook && i < 16; i++)
		most = d->codebook[i] + zero > most ? d->codebook[i] + zero : most;
	return most;
}

enum ir_format ir_format_from_dtype(enum ir_dtype t)
{
	return t == DT_BF16 ? FORMAT_BF16 : t == DT_F16 ? FORMAT_F16 : FORMAT_PLAIN;
}

int64_t ir_format_blocks(enum ir_format f, int64_t k)
{
	int64_t block = formats[f].block;
	return block ? ceil_div(k, block) : k > 0;
}

int64_t ir_format_super_blocks(enum ir_format f, int64_t k)
{
	int64_t super = formats[f].super;
	return super > 1 ? ceil_div(ir_format_blocks(f, k), super) : 0;
}

/* Quants, then scales (and offsets) of blocks, of sub bits in formats with super-blocks, then the factors of
 * super-blocks. k is divided before it is multiplied by bits, so that it cannot overflow. */
int64_t ir_format_row_bytes(enum ir_format f, int64_t k)
{
	const struct ir_format_desc *d = &formats[f];
	int64_t levels = 1 + d->has_offset, scale = ir_dtype_bytes(d->scale);
	if (d->bits == 0)
		return k * ir_dtype_bytes(d->dtype);
	return k / 8 * d->bits + ceil_div(k % 8 * d->bits, 8) +
	       ceil_div(levels * ir_format_blocks(f, k) * (d->super > 1 ? d->sub : 8 * scale), 8) +
	       levels * ir_format_super_blocks(f, k) * scale;
}

bool ir_format_parse(const char *s, size_t n, enum ir_format *out)
{
	for (int i = 0; i < IR_N_FORMATS; i++)
		if (strlen(formats[i].name) == n && !memcmp(formats[i].name, s, n)) {
			*out = (enum ir_format)i;
			return true;
		}
	return false;
}

static const struct {
	const char *word;
	enum ir_format format;
} words[] = {
#define SYNONYM(word, NAME) {#word, FORMAT_##NAME},
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) \
	{#name, FORMAT_##NAME},
#include "ir/types/formats.def"
};

/* Names and synonyms of formats.def; `keep` among them is PLAIN. *out is set in any case. */
bool ir_format_from_option(const char *word, enum ir_format *out)
{
	size_t i = 0;
	while (i < TFMC_COUNT(words) && strcmp(words[i].word, word) != 0)
		i++;
	*out = i < TFMC_COUNT(words) ? words[i].format : FORMAT_PLAIN;
	return i < TFMC_COUNT(words);
}

const char *const *ir_format_options(size_t *n)
{
	static const char *const list[] = {
#define SYNONYM(word, NAME)                                                               #word,
#define FORMAT(NAME, name, bits, block, super, sub, scale, offset, zero, shift, codebook) #name,
#include "ir/types/formats.def"
	};
	*n = TFMC_COUNT(list);
	return list;
}
