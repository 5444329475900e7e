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

static struct kb_val of_bf16(struct kb *k, const struct kb_val *args)
{
	struct kb_val sum = flush(k, args[0]), x[2][2]; /* operand, which of the pair */
	for (int i = 0; i < 2; i++) {
		x[i][0] = flush(k, kb_bitcast(k, with(k, KB_SHL, args[1 + i], 16), KB_F32));
		x[i][1] = flush(k, kb_bitcast(k, with(k, KB_AND, args[1 + i], -0x10000), KB_F32));
	}
	for (int at = 1; at >= 0; at--)
		sum = flush(k, kb_fma(k, x[0][at], x[1][at], sum));
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
	case KB_DOT_BF16: return of_bf16(k, args);
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
