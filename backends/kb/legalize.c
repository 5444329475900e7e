/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legalization: rewrites a kernel function so that it uses only operations that a target has, as LLVM's legalizer
 * does. f16 and bf16 conversions, round-to-nearest conversions and dot products that are missing become plain
 * arithmetic. The reasons: an object calls no runtime library (LLVM would call __truncsfhf2), and C and OpenCL C have
 * no such types.
 *
 * Conversions to f16 and bf16 round once, to nearest even; NaN keeps its sign and becomes quiet. A source wider than
 * f32 first becomes an f32 that is rounded to odd (truncated, with the last bit set if bits were lost), so that the
 * second rounding sees whether the value was a tie.
 *
 * Expanding an instruction can append instructions that are not legal themselves: expand_ functions call each other
 * until all are. Floats are taken apart as i32 lanes of bits; hexadecimal constants are bit patterns of f32, f16 and
 * bf16. The operands `args` of a dot product are its accumulator, a and b, whose i32 lanes pack elements along K.
 */
#include "backends/kb/internal.h"

#include "ir/support/compiler.h"

static bool is_half(enum kb_scalar s)
{
	return s == KB_F16 || s == KB_BF16;
}

/* c as i32 in the lanes of `like`. */
static struct kb_val const_i32(struct kb *k, struct kb_val like, int32_t c)
{
	return kb_splat(k, kb_i32(k, c), kb_type_of(k, like).lanes);
}

/* a op c; a is of any integer type, to which the constant is converted. */
static struct kb_val bin_const(struct kb *k, enum kb_bin op, struct kb_val a, int32_t c)
{
	struct kb_type type = kb_type_of(k, a);
	return kb_bin(k, op, a, kb_splat(k, kb_cvt(k, kb_i32(k, c), type.scalar), type.lanes));
}

static struct kb_val cmp_const(struct kb *k, enum kb_cmp op, struct kb_val a, int32_t c)
{
	return kb_cmp(k, op, a, const_i32(k, a, c));
}

static struct kb_val select_const(struct kb *k, struct kb_val cond, int32_t a, int32_t b)
{
	struct kb_val first = const_i32(k, cond, a);
	return kb_select(k, cond, first, const_i32(k, cond, b));
}

/* The bits of an f16 or bf16, zero-extended to i32. */
static struct kb_val bits_of_half(struct kb *k, struct kb_val v)
{
	return kb_cvt(k, kb_bitcast(k, v, KB_U16), KB_I32);
}

static struct kb_val half_from_bits(struct kb *k, struct kb_val bits, enum kb_scalar to)
{
	return kb_bitcast(k, kb_cvt(k, bits, KB_U16), to);
}

/* Round to nearest even: adds half a unit of the last kept bit, less one where that bit is even, and truncates. NaN
 * gets the quiet bit (0x40 of its upper half) and is not rounded, since rounding could make it infinity. */
static struct kb_val f32_to_bf16(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, v, KB_I32);
	struct kb_val high = bin_const(k, KB_SHR, bits, 16);
	struct kb_val sum = kb_add(k, bits, bin_const(k, KB_AND, high, 1));
	struct kb_val rounded = bin_const(k, KB_SHR, bin_const(k, KB_ADD, sum, 0x7fff), 16);
	struct kb_val is_nan = kb_cmp(k, KB_NE, v, v);
	struct kb_val nan = bin_const(k, KB_OR, high, 0x40);
	return half_from_bits(k, kb_select(k, is_nan, nan, rounded), KB_BF16);
}

/* Shifts sign, exponent and fraction to their f32 positions (arithmetic shift by 3; the mask clears the copies of
 * the sign) and multiplies by 2^112 = 2^(127 - 15), which is exact and normalizes denormals. Infinity and NaN (the
 * largest exponent) get the largest exponent of f32. */
static struct kb_val f16_to_f32(struct kb *k, struct kb_val v)
{
	struct kb_val high = bin_const(k, KB_SHL, bits_of_half(k, v), 16);
	struct kb_val moved = bin_const(k, KB_AND, bin_const(k, KB_SAR, high, 3), -0x70002000);
	struct kb_val scale = kb_splat(k, kb_f32(k, 0x1p112f), kb_type_of(k, v).lanes);
	struct kb_val finite = kb_bitcast(k, kb_mul(k, kb_bitcast(k, moved, KB_F32), scale), KB_I32);
	struct kb_val is_special = cmp_const(k, KB_EQ, bin_const(k, KB_AND, moved, 0x0f800000), 0x0f800000);
	struct kb_val special = select_const(k, is_special, 0x7f800000, 0);
	return kb_bitcast(k, kb_bin(k, KB_OR, finite, special), KB_F32);
}

/* f32 magnitudes below 2^-14, denormal as f16: adding 0.5, whose f32 ulp 2^-24 is that of a denormal f16, rounds; the
 * bits above those of 0.5 are the result. */
static struct kb_val denormal_to_f16(struct kb *k, struct kb_val magnitude)
{
	struct kb_val half = kb_splat(k, kb_f32(k, 0.5f), kb_type_of(k, magnitude).lanes);
	struct kb_val sum = kb_add(k, kb_bitcast(k, magnitude, KB_F32), half);
	return bin_const(k, KB_SUB, kb_bitcast(k, sum, KB_I32), 0x3f000000);
}

/* Rounds to nearest even: magnitudes from 2^16 (0x47800000) on become infinity, NaN a quiet one, magnitudes below
 * 2^-14 (0x38800000) denormal; from 65520 on rounding carries into the exponent of infinity. The sign is added at
 * the end. */
static struct kb_val f32_to_f16(struct kb *k, struct kb_val v)
{
	struct kb_val bits = kb_bitcast(k, v, KB_I32);
	struct kb_val sign = bin_const(k, KB_AND, bin_const(k, KB_SHR, bits, 16), 0x8000);
	struct kb_val magnitude = bin_const(k, KB_AND, bits, 0x7fffffff);
	struct kb_val odd = bin_const(k, KB_AND, bin_const(k, KB_SHR, magnitude, 13), 1);
	/* exponent bias 127 becomes 15; then the rounding of f32_to_bf16 */
	struct kb_val moved = bin_const(k, KB_ADD, magnitude, -(112 << 23) + 0xfff);
	struct kb_val normal = bin_const(k, KB_SHR, kb_add(k, moved, odd), 13);
	struct kb_val is_small = cmp_const(k, KB_LT, magnitude, 0x38800000);
	struct kb_val finite = kb_select(k, is_small, denormal_to_f16(k, magnitude), normal);
	struct kb_val is_nan = cmp_const(k, KB_GT, magnitude, 0x7f800000);
	struct kb_val special = select_const(k, is_nan, 0x7e00, 0x7c00);
	struct kb_val is_large = cmp_const(k, KB_GE, magnitude, 0x47800000);
	struct kb_val all = kb_select(k, is_large, special, finite);
	return half_from_bits(k, kb_bin(k, KB_OR, sign, all), KB_F16);
}

/* v (f64 or an integer) as f32, rounded to odd: the nearest f32, one ulp toward zero where it is larger in magnitude
 * than v (its bits less 1); the last bit is set where they differ. */
static struct kb_val to_odd_f32(struct kb *k, struct kb_val v)
{
	struct kb_type type = kb_type_of(k, v);
	struct kb_val near = kb_cvt(k, v, KB_F32);
	struct kb_val back = kb_cvt(k, near, type.scalar);
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, 0), type.scalar), type.lanes);
	struct kb_val less = kb_cmp(k, KB_LT, back, v), more = kb_cmp(k, KB_GT, back, v);
	struct kb_val away = kb_select(k, kb_cmp(k, KB_LT, v, zero), less, more);
	struct kb_val lost = kb_cvt(k, kb_bin(k, KB_OR, less, more), KB_I32);
	struct kb_val bits = kb_bitcast(k, near, KB_I32);
	struct kb_val toward = kb_sub(k, bits, kb_cvt(k, away, KB_I32));
	return kb_bitcast(k, kb_bin(k, KB_OR, toward, lost), KB_F32);
}

/* Whether the rounding to f32 on the way to f16 or bf16 could be seen. Integers that f32 cannot hold exactly are
 * beyond the range of f16, so they become infinite either way. */
static bool needs_odd(enum kb_scalar from, enum kb_scalar to)
{
	bool is_wide_int = from == KB_I32 || from == KB_I64 || from == KB_INDEX;
	return from == KB_F64 || (to == KB_BF16 && is_wide_int);
}

/* A conversion from or to f16 or bf16 in legal operations, by way of f32. has_f16: the target converts between f16
 * and f32. KB_FTZ only permits flushing, so it needs no case of its own. */
static struct kb_val expand_cvt(struct kb *k, struct kb_val v, enum kb_scalar to, bool has_f16)
{
	enum kb_scalar from = kb_type_of(k, v).scalar;
	if (from == KB_BF16)
		v = kb_bitcast(k, bin_const(k, KB_SHL, bits_of_half(k, v), 16), KB_F32);
	else if (from == KB_F16)
		v = has_f16 ? kb_cvt(k, v, KB_F32) : f16_to_f32(k, v);
	if (!is_half(to))
		return kb_cvt(k, v, to);
	v = needs_odd(from, to) ? to_odd_f32(k, v) : kb_cvt(k, v, KB_F32);
	if (to == KB_BF16)
		return f32_to_bf16(k, v);
	return has_f16 ? kb_cvt(k, v, KB_F16) : f32_to_f16(k, v);
}

/* ---- integer dot products ---- */

static struct kb_val expand_dot(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                                const struct kb_caps *has);

/* Element `at` of `bits` bits of each 32-bit lane, extended to i32: shifted to the top, and back with or without
 * sign. */
static struct kb_val packed_element(struct kb *k, struct kb_val packed, int at, int bits, bool is_signed)
{
	struct kb_val high = bin_const(k, KB_SHL, packed, 32 - bits * (at + 1));
	return bin_const(k, is_signed ? KB_SAR : KB_SHR, high, 32 - bits);
}

/* One i32 multiply and add for each of the 32 / bits packed elements. args: accumulator, a, b (so everywhere below);
 * is_signed concerns a, b is always signed. */
static struct kb_val dot_by_elements(struct kb *k, const struct kb_val *args, int bits, bool is_signed)
{
	struct kb_val sum = args[0];
	for (int at = 0; at < 32 / bits; at++) {
		struct kb_val a = packed_element(k, args[1], at, bits, is_signed);
		struct kb_val b = packed_element(k, args[2], at, bits, true);
		sum = kb_add(k, sum, kb_mul(k, a, b));
	}
	return sum;
}

/* Bytes 0 and 2 (odd: 1 and 3) of each 32-bit lane, extended to two i16: even bytes are shifted up first, then all
 * down, with or without sign. */
static struct kb_val bytes_to_i16(struct kb *k, struct kb_val packed, int odd, bool is_signed)
{
	enum kb_bin right = is_signed ? KB_SAR : KB_SHR;
	struct kb_val both = kb_bitcast(k, packed, KB_I16);
	return kb_bitcast(k, bin_const(k, right, odd ? both : bin_const(k, KB_SHL, both, 8), 8), KB_I32);
}

/* Two s16 dot products (vpmaddwd), of the even and of the odd bytes. vpmaddubsw would not do: it saturates sums of two
 * u8 * s8 at 16 bits. */
static struct kb_val dot_by_s16(struct kb *k, const struct kb_val *args, bool is_signed)
{
	struct kb_val sum = args[0];
	for (int odd = 0; odd < 2; odd++) {
		struct kb_val a = bytes_to_i16(k, args[1], odd, is_signed);
		sum = kb_dot_s16s16(k, sum, a, bytes_to_i16(k, args[2], odd, true));
	}
	return sum;
}

/* a[2h] * b[2h] + a[2h + 1] * b[2h + 1] of the bytes of each lane, as i32; h: half. */
static struct kb_val dot_of_half(struct kb *k, const struct kb_val *args, int half)
{
	struct kb_val sum = {0};
	for (int at = 2 * half; at < 2 * half + 2; at++) {
		struct kb_val a = packed_element(k, args[1], at, 8, false);
		struct kb_val b = packed_element(k, args[2], at, 8, true);
		sum = sum.id ? kb_add(k, sum, kb_mul(k, a, b)) : kb_mul(k, a, b);
	}
	return sum;
}

/* DOT_U7S8_I16: two i16 accumulators in each lane, which wrap; each gets two of the four products. The low one is
 * masked, so that its carry does not reach the high one. */
static struct kb_val dot_i16_acc(struct kb *k, const struct kb_val *args)
{
	struct kb_val low = bin_const(k, KB_AND, kb_add(k, args[0], dot_of_half(k, args, 0)), 0xffff);
	struct kb_val high = bin_const(k, KB_AND, args[0], -0x10000);
	high = kb_add(k, high, bin_const(k, KB_SHL, dot_of_half(k, args, 1), 16));
	return kb_bin(k, KB_OR, low, high);
}

/* The dot product by the one whose a has the other signedness. Flipping the sign bit of a byte changes its value
 * by +128 or -128 when it is read so; the surplus, +-128 * sum(b), is the same dot product of bytes 0x80 with b. */
static struct kb_val dot_by_other_sign(struct kb *k, enum kb_dot other, const struct kb_val *args,
                                       const struct kb_caps *has)
{
	int lanes = kb_type_of(k, args[0]).lanes;
	struct kb_val signs = kb_splat(k, kb_i32(k, KB_SIGN_BITS), lanes);
	struct kb_val flipped[] = {args[0], kb_bin(k, KB_XOR, args[1], signs), args[2]};
	struct kb_val correction[] = {kb_splat(k, kb_i32(k, 0), lanes), signs, args[2]};
	struct kb_val sum = expand_dot(k, other, flipped, has);
	return kb_sub(k, sum, expand_dot(k, other, correction, has));
}

/* Known bits: an upper bound of the bits that can be 1, from `and` with constants, with which generators unpack
 * quants. All bits if nothing is known. */
static uint32_t possible_bits(const struct kb *k, struct kb_val packed)
{
	if (packed.id == 0) /* no memory for the value: defs may be empty */
		return UINT32_MAX;
	const struct kb_inst *i = &k->insts.items[k->defs.items[packed.id]];
	if (i->op == KBO_CONST_INT)
		return (uint32_t)(uint64_t)i->imm;
	if (i->op == KBO_SPLAT)
		return possible_bits(k, i->args[0]);
	if (i->op == KBO_BIN && i->bin == KB_AND)
		return possible_bits(k, i->args[0]) & possible_bits(k, i->args[1]);
	return UINT32_MAX;
}

/* DOT_S8S8 (is_signed) or DOT_U8S8, by the cheapest that there is: a dot product of the same operands, the one of
 * the other sign with a correction, products of i16, at last of single bytes. If all bytes of a are known to be
 * below 128, the signedness of a does not matter. */
static struct kb_val expand_byte_dot(struct kb *k, const struct kb_val *args, bool is_signed,
                                     const struct kb_caps *has)
{
	enum kb_dot other = is_signed ? KB_DOT_U8S8 : KB_DOT_S8S8;
	bool is_small = !is_signed && (possible_bits(k, args[1]) & 0x80808080u) == 0;
	if (is_small && kb_has_dot(has, KB_DOT_U7S8))
		return expand_dot(k, KB_DOT_U7S8, args, has);
	if (is_small && has->has_dot_s8s8)
		return expand_dot(k, KB_DOT_S8S8, args, has);
	if (kb_has_dot(has, other))
		return dot_by_other_sign(k, other, args, has);
	return has->has_dot_s16s16 ? dot_by_s16(k, args, is_signed) : dot_by_elements(k, args, 8, is_signed);
}

/* ---- bf16 dot products ---- */

/* Flush to zero: denormals become a zero of their sign. */
static struct kb_val flush(struct kb *k, struct kb_val v)
{
	int lanes = kb_type_of(k, v).lanes;
	struct kb_val least = kb_splat(k, kb_f32(k, 0x1p-126f), lanes);
	struct kb_val is_less = kb_cmp(k, KB_LT, kb_un(k, KB_ABS, v), least);
	struct kb_val zero = kb_bitcast(k, bin_const(k, KB_AND, kb_bitcast(k, v, KB_I32), INT32_MIN), KB_F32);
	return kb_select(k, is_less, zero, v);
}

/* bf16 `at` (0 or 1) of each 32-bit lane as f32. */
static struct kb_val packed_bf16(struct kb *k, struct kb_val packed, int at)
{
	struct kb_val high = at ? bin_const(k, KB_AND, packed, -0x10000) : bin_const(k, KB_SHL, packed, 16);
	return flush(k, kb_bitcast(k, high, KB_F32));
}

/* Expands DOT_BF16 to two fma, element 1 of the pairs first, as vdpbf16ps; flushes accumulator and sums (packed_bf16
 * flushes the elements), since the instruction takes denormals for zero. */
static struct kb_val dot_bf16_fma(struct kb *k, const struct kb_val *args)
{
	struct kb_val sum = flush(k, args[0]), x[2][2]; /* [operand][element of the pair] */
	for (int i = 0; i < 2; i++)
		for (int at = 0; at < 2; at++)
			x[i][at] = packed_bf16(k, args[1 + i], at);
	for (int at = 1; at >= 0; at--)
		sum = flush(k, kb_fma(k, x[0][at], x[1][at], sum));
	return sum;
}

/* a + b rounded to odd. Knuth's TwoSum gives the rounding error of the nearest f32 exactly. Where error and sum
 * differ in sign, the sum is larger in magnitude than the exact value: it is lowered by one ulp before the last bit
 * is set. */
static struct kb_val add_round_to_odd(struct kb *k, struct kb_val a, struct kb_val b)
{
	struct kb_val sum = kb_add(k, a, b), part = kb_sub(k, sum, a);
	struct kb_val from_a = kb_sub(k, a, kb_sub(k, sum, part)), from_b = kb_sub(k, b, part);
	struct kb_val lost = kb_add(k, from_a, from_b);
	struct kb_val zero = kb_splat(k, kb_f32(k, 0), kb_type_of(k, a).lanes);
	struct kb_val inexact = kb_cvt(k, kb_cmp(k, KB_GT, kb_un(k, KB_ABS, lost), zero), KB_I32);
	struct kb_val bits = kb_bitcast(k, sum, KB_I32);
	struct kb_val is_away =
	        bin_const(k, KB_SHR, kb_bin(k, KB_XOR, bits, kb_bitcast(k, lost, KB_I32)), 31);
	bits = kb_sub(k, bits, kb_bin(k, KB_AND, is_away, inexact));
	return flush(k, kb_bitcast(k, kb_bin(k, KB_OR, bits, inexact), KB_F32));
}

/* DOT_BF16_ODD, as bfdot: products and sums rounded to odd, denormals flushed. A product of two bf16 is exact in
 * f32, so only the sums lose bits. */
static struct kb_val dot_bf16_odd(struct kb *k, const struct kb_val *args)
{
	struct kb_val product[2];
	for (int at = 0; at < 2; at++) {
		struct kb_val a = packed_bf16(k, args[1], at);
		product[at] = flush(k, kb_mul(k, a, packed_bf16(k, args[2], at)));
	}
	struct kb_val both = add_round_to_odd(k, product[0], product[1]);
	return add_round_to_odd(k, flush(k, args[0]), both);
}

/* ---- 2 x 2 matrix dot products ---- */

/* Each four lanes of x are a 2 x 2 matrix [row][word along K]. Lane (r, c) of the result gets word `at` of row r of
 * x, or, with is_row false, of row c: b is stored with a row for each column of the result. */
static struct kb_val broadcast_2x2(struct kb *k, struct kb_val x, int at, bool is_row)
{
	int lanes[KB_LANES_MAX], n = kb_type_of(k, x).lanes;
	for (int i = 0; i < n; i++)
		lanes[i] = i / 4 * 4 + (is_row ? i % 4 / 2 : i % 2) * 2 + at;
	return kb_shuffle(k, x, (struct kb_val){0}, lanes, n);
}

/* A 2x2 dot product as two of `dot`, one for each of the two 32-bit words along K. */
static struct kb_val expand_dot_2x2(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                                    const struct kb_caps *has)
{
	struct kb_val sum = args[0];
	for (int at = 0; at < 2; at++) {
		struct kb_val row = broadcast_2x2(k, args[1], at, true);
		struct kb_val operands[] = {sum, row, broadcast_2x2(k, args[2], at, false)};
		sum = expand_dot(k, dot, operands, has);
	}
	return sum;
}

/* The dot product (kinds: kb_ops.def) by the best operations that `has` allows. u7_as_signed: bytes below 128 are equal
 * as signed ones, and the target has only the signed dot product. Where it has DOT_U8S8, kb_has_dot() denies the U7
 * kinds. The return at the end is for values outside of the enum. */
static struct kb_val expand_dot(struct kb *k, enum kb_dot dot, const struct kb_val *args,
                                const struct kb_caps *has)
{
	bool u7_as_signed = has->has_dot_s8s8 && !has->has_dot_u8s8;
	if (kb_has_dot(has, dot)) {
		struct kb_inst inst = {.op = KBO_DOT, .type = kb_type_of(k, args[0]), .dot = dot};
		return kb_emit(k, inst, args, 3, true);
	}
	switch (dot) {
	case KB_DOT_U8S8: return expand_byte_dot(k, args, false, has);
	case KB_DOT_U7S8: return expand_dot(k, u7_as_signed ? KB_DOT_S8S8 : KB_DOT_U8S8, args, has);
	case KB_DOT_S8S8: return expand_byte_dot(k, args, true, has);
	case KB_DOT_S16S16: return dot_by_elements(k, args, 16, true);
	case KB_DOT_U7S8_I16: return dot_i16_acc(k, args);
	case KB_DOT_BF16: return dot_bf16_fma(k, args);
	case KB_DOT_BF16_ODD: return dot_bf16_odd(k, args);
	case KB_DOT_U8S8_2X2: return expand_dot_2x2(k, KB_DOT_U8S8, args, has);
	case KB_DOT_S8S8_2X2: return expand_dot_2x2(k, KB_DOT_S8S8, args, has);
	case KB_DOT_BF16_ODD_2X2: return expand_dot_2x2(k, KB_DOT_BF16_ODD, args, has);
	}
	return args[0];
}

/* ---- conversion to the nearest integer ---- */

/* f32 to the nearest i32, |v| <= 2^22: an f32 in [2^23, 2^24) has ulp 1, so adding 1.5 * 2^23 rounds to an
 * integer, which is then in the low mantissa bits. */
static struct kb_val expand_nearest(struct kb *k, struct kb_val v)
{
	struct kb_val bias = kb_splat(k, kb_f32(k, 0x1.8p23f), kb_type_of(k, v).lanes);
	return bin_const(k, KB_SUB, kb_bitcast(k, kb_add(k, v, bias), KB_I32), 0x4b400000);
}

/* ---- the function ---- */

static bool has_conversion(enum kb_scalar from, enum kb_scalar to, bool has_f16)
{
	bool native = (from == KB_F16 && to == KB_F32) || (from == KB_F32 && to == KB_F16);
	return !(is_half(from) || is_half(to)) || (has_f16 && native);
}

/* The target has the instruction. On fewer than 4 lanes it is expanded, since every vector instruction concerned has
 * 4 lanes or more. has_dot_bf16 (AVX512-BF16) also stands for vcvtneps2bf16, for conversions that may flush. */
static bool is_legal(const struct kb_func *f, const struct kb_inst *i, const struct kb_caps *has)
{
	switch (i->op) {
	case KBO_CVT:
		if (i->flags & KB_FTZ)
			return has->has_dot_bf16 && i->type.lanes >= 4;
		return has_conversion(f->types[i->args[0].id].scalar, i->type.scalar, has->has_f16);
	case KBO_NEAREST: return has->has_nearest && i->type.lanes >= 4;
	case KBO_DOT: return kb_has_dot(has, i->dot) && i->type.lanes >= 4;
	default: return true;
	}
}

/* The value of an illegal instruction in legal ones. args: its operands, by ids of the new function. Dot products of
 * less than 4 lanes are expanded as if the target had none. */
static struct kb_val expand(struct kb *k, const struct kb_inst *i, const struct kb_val *args,
                            const struct kb_caps *has)
{
	static const struct kb_caps none;
	if (i->op == KBO_NEAREST)
		return expand_nearest(k, args[0]);
	if (i->op == KBO_DOT)
		return expand_dot(k, i->dot, args, i->type.lanes >= 4 ? has : &none);
	return expand_cvt(k, args[0], i->type.scalar, has->has_f16);
}

/* Declares the value ids of f in the new function, so that values of f keep their ids. False without memory. */
static bool reserve_values(struct kb *k, const struct kb_func *f)
{
	for (size_t i = 0; i < f->n_values; i++) {
		struct kb_type *type = ARENA_PUSH(k->module->arena, &k->types);
		if (!type || !ARENA_PUSH(k->module->arena, &k->defs))
			return false;
		*type = f->types[i];
	}
	return true;
}

/* Appends a legal instruction with its operands replaced. now: by value id of f, the id that replaces it. Its own id
 * stays and defs follows; the result of KBO_VAR is the id of a variable, no value. */
static void copy_inst(struct kb *k, const struct kb_inst *i, const uint32_t *now)
{
	struct kb_inst *to = ARENA_PUSH(k->module->arena, &k->insts);
	struct kb_val *args = ARENA_ARRAY(k->module->arena, struct kb_val, i->n_args + 1);
	if (!to || !args)
		return;
	for (size_t a = 0; a < i->n_args; a++)
		args[a].id = now[i->args[a].id];
	*to = *i;
	to->args = args;
	if (i->result && i->op != KBO_VAR)
		k->defs.items[i->result] = (uint32_t)(k->insts.n - 1);
}

/* Legal instructions keep the ids of their values and variables, so types and var_types of f still hold; values of
 * expansions get ids after those of f, and `now` leads from an expanded value to its replacement. `module` stands in
 * for the arena that kb_emit needs. */
const struct kb_func *kb_legalize(const struct kb_func *f, struct arena *arena, const struct kb_caps *has)
{
	size_t first = 0;
	while (first < f->n_insts && is_legal(f, &f->insts[first], has))
		first++;
	if (first == f->n_insts)
		return f;
	struct kb_module module = {.arena = arena};
	struct kb k = {.module = &module, .func = ARENA_NEW(arena, struct kb_func)};
	uint32_t *now = ARENA_ARRAY(arena, uint32_t, f->n_values); /* by id in f: the id that replaces it */
	if (!k.func || !now || !reserve_values(&k, f))
		return f;
	*k.func = *f;
	for (uint32_t id = 0; id < f->n_values; id++)
		now[id] = id;
	for (size_t at = 0; at < f->n_insts; at++) {
		const struct kb_inst *i = &f->insts[at];
		struct kb_val args[3] = {{0}};
		if (is_legal(f, i, has)) {
			copy_inst(&k, i, now);
			continue;
		}
		for (size_t a = 0; a < i->n_args && a < TFMC_COUNT(args); a++)
			args[a].id = now[i->args[a].id];
		k.loc = i->loc;
		now[i->result] = expand(&k, i, args, has).id;
	}
	k.func->insts = k.insts.items;
	k.func->n_insts = k.insts.n;
	k.func->types = k.types.items;
	k.func->n_values = k.types.n;
	return k.func;
}
