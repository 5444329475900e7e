/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products and conversions to the nearest integer in plain arithmetic, for machines that lack the instruction:
 * with the dot product of other signs, with that of pairs of 16 bits, or product by product.
 */
#include "backends/kb/internal.h"

static struct kb_val with(struct kb *k, enum kb_bin op, struct kb_val a, int32_t c)
{
	struct kb_type type = kb_typeof(k, a);
	return kb_bin(k, op, a, kb_splat(k, kb_cvt(k, kb_i32(k, c), type.scalar), type.lanes));
}

/* ---- integers ---- */

/* Number `at` of the parts of that many bits in each word. */
static struct kb_val part_of(struct kb *k, struct kb_val words, int at, int bits, bool is_signed)
{
	struct kb_val high = with(k, KB_SHL, words, 32 - bits * (at + 1));
	return with(k, is_signed ? KB_SAR : KB_SHR, high, 32 - bits);
}

static struct kb_val by_products(struct kb *k, const struct kb_val *args, int bits, bool is_signed)
{
	struct kb_val sum = args[0];
	for (int at = 0; at < 32 / bits; at++) {
		struct kb_val a = part_of(k, args[1], at, bits, is_signed);
		struct kb_val b = part_of(k, args[2], at, bits, true);
		sum = kb_add(k, sum, kb_mul(k, a, b));
	}
	return sum;
}

/* Bytes 0 and 2 of each word, or 1 and 3, as two halves. */
static struct kb_val halves(struct kb *k, struct kb_val words, int odd, bool is_signed)
{
	enum kb_bin right = is_signed ? KB_SAR : KB_SHR;
	struct kb_val both = kb_bitcast(k, words, KB_I16);
	return kb_bitcast(k, with(k, right, odd ? both : with(k, KB_SHL, both, 8), 8), KB_I32);
}

/* No sum of two products leaves 32 bits, though it may leave 16, where pmaddubsw saturates. */
static struct kb_val by_halves(struct kb *k, const struct kb_val *args, bool is_signed)
{
	struct kb_val sum = args[0];
	for (int odd = 0; odd < 2; odd++) {
		struct kb_val a = halves(k, args[1], odd, is_signed);
		sum = kb_dot_s16s16(k, sum, a, halves(k, args[2], odd, true));
	}
	return sum;
}

/* Of a half of the words: the sum of its two products, in the low bits. */
static struct kb_val pair_of(struct kb *k, const struct kb_val *args, int half)
{
	struct kb_val sum = {0};
	for (int at = 2 * half; at < 2 * half + 2; at++) {
		struct kb_val a = part_of(k, args[1], at, 8, false), b = part_of(k, args[2], at, 8, true);
		sum = sum.id ? kb_add(k, sum, kb_mul(k, a, b)) : kb_mul(k, a, b);
	}
	return sum;
}

static struct kb_val of_halves(struct kb *k, const struct kb_val *args)
{
	struct kb_val low = with(k, KB_AND, kb_add(k, args[0], pair_of(k, args, 0)), 0xffff);
	struct kb_val high = with(k, KB_AND, args[0], -0x10000);
	high = kb_add(k, high, with(k, KB_SHL, pair_of(k, args, 1), 16));
	return kb_bin(k, KB_OR, low, high);
}

/* With the other sign of a: bytes with their highest bit turned are 128 more or less, so that 128 b is too much. */
static struct kb_val by_other_sign(struct kb *k, enum kb_dot other, const struct kb_val *args,
                                   const struct kb_caps *has)
{
	int lanes = kb_typeof(k, args[0]).lanes;
	struct kb_val turn = kb_splat(k, kb_i32(k, -0x7f7f7f80), lanes); /* 0x80808080 */
	struct kb_val moved[] = {args[0], kb_bin(k, KB_XOR, args[1], turn), args[2]};
	struct kb_val surplus[] = {kb_splat(k, kb_i32(k, 0), lanes), turn, args[2]};
	struct kb_val sum = kb_write_dot(k, other, moved, has);
	return kb_sub(k, sum, kb_write_dot(k, other, surplus, has));
}

/* The bits of the words that may be 1, as far as constants tell. */
static uint32_t possible_bits(const struct kb *k, struct kb_val words)
{
	const struct kb_inst *i = &k->insts.items[k->defs.items[words.id]];
	if (i->op == KBO_CONST_INT)
		return (uint32_t)(uint64_t)i->imm;
	if (i->op == KBO_SPLAT)
		return possible_bits(k, i->args[0]);
	if (i->op == KBO_BIN && i->bin == KB_AND)
		return possible_bits(k, i->args[0]) & possible_bits(k, i->args[1]);
	return UINT32_MAX;
}

static struct kb_val of_small_bytes(struct kb *k, const struct kb_val *args, const struct kb_caps *has)
{
	bool as_signed = has->has_dot_s8s8 && !has->has_dot_u8s8;
	return kb_write_dot(k, as_signed ? KB_DOT_S8S8 : KB_DOT_U8S8, args, has);
}

static struct kb_val of_bytes(struct kb *k, const struct kb_val *args, bool is_signed,
                              const struct kb_caps *has)
{
	enum kb_dot other = is_signed ? KB_DOT_U8S8 : KB_DOT_S8S8;
	bool is_small = !is_signed && (possible_bits(k, args[1]) & 0x80808080u) == 0;
	if (is_small && kb_has_dot(has, KB_DOT_U7S8))
		return kb_write_dot(k, KB_DOT_U7S8, args, has);
	if (is_small && has->has_dot_s8s8)
		return kb_write_dot(k, KB_DOT_S8S8, args, has);
	if (kb_has_dot(has, other))
		return by_other_sign(k, other, args, has);
	return has->has_dot_s16s16 ? by_halves(k, args, is_signed) : by_products(k, args, 8, is_signed);
}

/* ---- bf16 ---- */

/* What is below the normal numbers becomes a zero of its sign. */
static struct kb_val flush(struct kb *k, struct kb_val v)
{
	int lanes = kb_typeof(k, v).lanes;
	struct kb_val least = kb_splat(k, kb_f32(k, 0x1p-126f), lanes);
	struct kb_val is_less = kb_cmp(k, KB_LT, kb_un(k, KB_ABS, v), least);
	struct kb_val zero = kb_bitcast(k, with(k, KB_AND, kb_bitcast(k, v, KB_I32), INT32_MIN), KB_F32);
	return kb_select(k, is_less, zero, v);
}

static struct kb_val bf16_of(struct kb *k, struct kb_val words, int at)
{
	struct kb_val high = at ? with(k, KB_AND, words, -0x10000) : with(k, KB_SHL, words, 16);
	return flush(k, kb_bitcast(k, high, KB_F32));
}

static struct kb_val of_bf16(struct kb *k, const struct kb_val *args)
{
	struct kb_val sum = flush(k, args[0]), x[2][2]; /* operand, which of the pair */
	for (int i = 0; i < 2; i++)
		for (int at = 0; at < 2; at++)
			x[i][at] = bf16_of(k, args[1 + i], at);
	for (int at = 1; at >= 0; at--)
		sum = flush(k, kb_fma(k, x[0][at], x[1][at], sum));
	return sum;
}

/* Rounded to odd: what the nearest f32 has lost is a number itself (Knuth's two sums). */
static struct kb_val odd_sum(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val sum = kb_add(k, a, b), part = kb_sub(k, sum, a);
	struct kb_val from_a = kb_sub(k, a, kb_sub(k, sum, part)), from_b = kb_sub(k, b, part);
	struct kb_val lost = kb_add(k, from_a, from_b);
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), kb_typeof(k, a).lanes);
	struct kb_val inexact = kb_cvt(k, kb_cmp(k, KB_GT, kb_un(k, KB_ABS, lost), zero), KB_I32);
	struct kb_val bits = kb_bitcast(k, sum, KB_I32);
	struct kb_val is_away = with(k, KB_SHR, kb_bin(k, KB_XOR, bits, kb_bitcast(k, lost, KB_I32)), 31);
	bits = kb_sub(k, bits, kb_bin(k, KB_AND, is_away, inexact));
	return flush(k, kb_bitcast(k, kb_bin(k, KB_OR, bits, inexact), KB_F32));
}

static struct kb_val of_bf16_odd(struct kb *k, const struct kb_val *args)
{
	struct kb_val product[2];
	for (int at = 0; at < 2; at++) {
		struct kb_val a = bf16_of(k, args[1], at);
		product[at] = flush(k, kb_mul(k, a, bf16_of(k, args[2], at)));
	}
	struct kb_val both = odd_sum(k, product[0], product[1]);
	return odd_sum(k, flush(k, args[0]), both);
}

/* ---- matrices ---- */

/* Words x[i][at], i being the row or the column of the sum. */
static struct kb_val words_2x2(struct kb *k, struct kb_val x, int at, bool is_row)
{
	int lanes[KB_LANES_MAX], n = kb_typeof(k, x).lanes;
	for (int i = 0; i < n; i++)
		lanes[i] = i / 4 * 4 + (is_row ? i % 4 / 2 : i % 2) * 2 + at;
	return kb_shuffle(k, x, (struct kb_val){0}, lanes, n);
}

static struct kb_val of_2x2(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                            const struct kb_caps *has)
{
	struct kb_val sum = args[0];
	for (int at = 0; at < 2; at++) {
		struct kb_val row = words_2x2(k, args[1], at, true);
		struct kb_val words[] = {sum, row, words_2x2(k, args[2], at, false)};
		sum = kb_write_dot(k, dot, words, has);
	}
	return sum;
}

struct kb_val kb_write_dot(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                           const struct kb_caps *has)
{
	if (kb_has_dot(has, dot)) {
		struct kb_inst inst = {.op = KBO_DOT, .type = kb_typeof(k, args[0]), .dot = dot};
		return kb_emit(k, inst, args, 3, true);
	}
	switch (dot) {
	case KB_DOT_U8S8: return of_bytes(k, args, false, has);
	case KB_DOT_U7S8: return of_small_bytes(k, args, has);
	case KB_DOT_S8S8: return of_bytes(k, args, true, has);
	case KB_DOT_S16S16: return by_products(k, args, 16, true);
	case KB_DOT_U7S8_HALVES: return of_halves(k, args);
	case KB_DOT_BF16: return of_bf16(k, args);
	case KB_DOT_BF16_ODD: return of_bf16_odd(k, args);
	case KB_DOT_U8S8_2X2: return of_2x2(k, KB_DOT_U8S8, args, has);
	case KB_DOT_S8S8_2X2: return of_2x2(k, KB_DOT_S8S8, args, has);
	case KB_DOT_BF16_ODD_2X2: return of_2x2(k, KB_DOT_BF16_ODD, args, has);
	}
	return args[0];
}

/* ---- to the nearest ---- */

/* Between 2^23 and 2^24 the last bit of an f32 is 1: the sum has rounded. */
struct kb_val kb_write_nearest(struct kb *k, struct kb_val v)
{
	struct kb_val bias = kb_splat(k, kb_f32(k, 0x1.8p23f), kb_typeof(k, v).lanes);
	return with(k, KB_SUB, kb_bitcast(k, kb_add(k, v, bias), KB_I32), 0x4b400000);
}
