/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of conversions. Without hardware LLVM would call its runtime library
 * for f16 and bf16; an object may not, so these are integer code here: bf16
 * always, f16 on machines without conversion instructions. f64 goes to the
 * small types through f32 rounded to odd, so that there is one rounding.
 */
#include "backends/llvm/replay.h"

#include <string.h>

struct conversion {
	struct replay *r;
	int lanes;
};

static struct kb_type with(const struct conversion *c, enum kb_scalar s)
{
	return KB_TYPE(s, c->lanes);
}

static LLVMValueRef num(const struct conversion *c, int64_t v)
{
	return replay_int(c->r->module, with(c, KB_I32), v);
}

static LLVMTypeRef type(const struct conversion *c, enum kb_scalar s)
{
	return replay_type(c->r->module, with(c, s));
}

static LLVMValueRef bits_of(const struct conversion *c, LLVMValueRef f32)
{
	return LLVMBuildBitCast(c->r->builder, f32, type(c, KB_I32), "");
}

static LLVMValueRef float_of(const struct conversion *c, LLVMValueRef bits)
{
	return LLVMBuildBitCast(c->r->builder, bits, type(c, KB_F32), "");
}

/* 16 stored bits of a small float as i32. */
static LLVMValueRef wide_bits(const struct conversion *c, LLVMValueRef v)
{
	LLVMValueRef bits = LLVMBuildBitCast(c->r->builder, v, type(c, KB_I16), "");
	return LLVMBuildZExt(c->r->builder, bits, type(c, KB_I32), "");
}

static LLVMValueRef narrow_bits(const struct conversion *c, LLVMValueRef bits, enum kb_scalar to)
{
	LLVMValueRef v = LLVMBuildTrunc(c->r->builder, bits, type(c, KB_I16), "");
	return LLVMBuildBitCast(c->r->builder, v, type(c, to), "");
}

static LLVMValueRef bf16_to_f32(const struct conversion *c, LLVMValueRef v)
{
	return float_of(c, LLVMBuildShl(c->r->builder, wide_bits(c, v), num(c, 16), ""));
}

/* Adds half of the last kept bit, minus one when that bit is even; NaN keeps its sign and becomes quiet. */
static LLVMValueRef f32_to_bf16(const struct conversion *c, LLVMValueRef v)
{
	LLVMBuilderRef b = c->r->builder;
	LLVMValueRef bits = bits_of(c, v);
	LLVMValueRef high = LLVMBuildLShr(b, bits, num(c, 16), "");
	LLVMValueRef odd = LLVMBuildAnd(b, high, num(c, 1), "");
	LLVMValueRef sum = LLVMBuildAdd(b, LLVMBuildAdd(b, bits, odd, ""), num(c, 0x7fff), "");
	LLVMValueRef rounded = LLVMBuildLShr(b, sum, num(c, 16), "");
	LLVMValueRef is_nan = LLVMBuildFCmp(b, LLVMRealUNO, v, v, "");
	LLVMValueRef nan = LLVMBuildOr(b, high, num(c, 0x40), "");
	return narrow_bits(c, LLVMBuildSelect(b, is_nan, nan, rounded, ""), KB_BF16);
}

/* Moves sign, exponent and fraction to their f32 places and multiplies by 2^112, which is exact, denormals
 * included; what has the largest exponent gets that of f32. */
static LLVMValueRef f16_to_f32(const struct conversion *c, LLVMValueRef v)
{
	LLVMBuilderRef b = c->r->builder;
	LLVMValueRef high = LLVMBuildShl(b, wide_bits(c, v), num(c, 16), "");
	LLVMValueRef moved = LLVMBuildAnd(b, LLVMBuildAShr(b, high, num(c, 3), ""), num(c, -0x70002000), "");
	LLVMValueRef scale = float_of(c, num(c, 0x77800000)), largest = num(c, 0x0f800000);
	LLVMValueRef finite = bits_of(c, LLVMBuildFMul(b, float_of(c, moved), scale, ""));
	LLVMValueRef exponent = LLVMBuildAnd(b, moved, largest, "");
	LLVMValueRef is_special = LLVMBuildICmp(b, LLVMIntEQ, exponent, largest, "");
	LLVMValueRef special = LLVMBuildSelect(b, is_special, num(c, 0x7f800000), num(c, 0), "");
	return float_of(c, LLVMBuildOr(b, finite, special, ""));
}

/* Magnitudes below 2^-14 round in a float addition whose last bit is the last bit of a denormal f16. */
static LLVMValueRef small_to_f16(const struct conversion *c, LLVMValueRef magnitude)
{
	LLVMBuilderRef b = c->r->builder;
	LLVMValueRef magic = num(c, 0x3f000000); /* 0.5: its last bit is 2^-24 */
	LLVMValueRef sum = LLVMBuildFAdd(b, float_of(c, magnitude), float_of(c, magic), "");
	return LLVMBuildSub(b, bits_of(c, sum), magic, "");
}

static LLVMValueRef f32_to_f16(const struct conversion *c, LLVMValueRef v)
{
	LLVMBuilderRef b = c->r->builder;
	LLVMValueRef bits = bits_of(c, v);
	LLVMValueRef sign = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, num(c, 16), ""), num(c, 0x8000), "");
	LLVMValueRef magnitude = LLVMBuildAnd(b, bits, num(c, 0x7fffffff), "");
	LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, magnitude, num(c, 13), ""), num(c, 1), "");
	/* exponent bias 127 becomes 15, then half of the last kept bit, minus one when that bit is even */
	LLVMValueRef moved = LLVMBuildAdd(b, magnitude, num(c, -(112 << 23) + 0xfff), "");
	LLVMValueRef normal = LLVMBuildLShr(b, LLVMBuildAdd(b, moved, odd, ""), num(c, 13), "");
	LLVMValueRef is_small = LLVMBuildICmp(b, LLVMIntULT, magnitude, num(c, 0x38800000), "");
	LLVMValueRef finite = LLVMBuildSelect(b, is_small, small_to_f16(c, magnitude), normal, "");
	LLVMValueRef is_nan = LLVMBuildICmp(b, LLVMIntUGT, magnitude, num(c, 0x7f800000), "");
	LLVMValueRef special = LLVMBuildSelect(b, is_nan, num(c, 0x7e00), num(c, 0x7c00), "");
	LLVMValueRef is_large = LLVMBuildICmp(b, LLVMIntUGE, magnitude, num(c, 0x47800000), "");
	LLVMValueRef all = LLVMBuildSelect(b, is_large, special, finite, "");
	return narrow_bits(c, LLVMBuildOr(b, sign, all, ""), KB_F16);
}

static LLVMValueRef absolute(const struct conversion *c, LLVMValueRef v)
{
	LLVMTypeRef t = LLVMTypeOf(v);
	return replay_intrinsic(c->r, "llvm.fabs", &t, 1, &v, 1);
}

/* Toward zero, and the last bit set when anything was lost: a later rounding then sees what was there. */
static LLVMValueRef f64_to_odd_f32(const struct conversion *c, LLVMValueRef v)
{
	LLVMBuilderRef b = c->r->builder;
	LLVMValueRef near = LLVMBuildFPTrunc(b, v, type(c, KB_F32), "");
	LLVMValueRef back = LLVMBuildFPExt(b, near, type(c, KB_F64), "");
	LLVMValueRef away = LLVMBuildFCmp(b, LLVMRealOGT, absolute(c, back), absolute(c, v), "");
	LLVMValueRef lost = LLVMBuildFCmp(b, LLVMRealONE, back, v, "");
	LLVMValueRef less = LLVMBuildZExt(b, away, type(c, KB_I32), "");
	LLVMValueRef toward = LLVMBuildSub(b, bits_of(c, near), less, "");
	return float_of(c, LLVMBuildOr(b, toward, LLVMBuildZExt(b, lost, type(c, KB_I32), ""), ""));
}

static bool has_f16(const struct conversion *c)
{
	/* F16C came with AVX2 and FMA: every target with fma has it. */
	return c->r->target->has_fma;
}

static LLVMValueRef to_f32(const struct conversion *c, LLVMValueRef v, enum kb_scalar from)
{
	if (from == KB_F32)
		return v;
	if (from == KB_BF16)
		return bf16_to_f32(c, v);
	if (from == KB_F16 && !has_f16(c))
		return f16_to_f32(c, v);
	if (from == KB_F64)
		return LLVMBuildFPTrunc(c->r->builder, v, type(c, KB_F32), "");
	return LLVMBuildFPExt(c->r->builder, v, type(c, KB_F32), "");
}

static LLVMValueRef float_to_float(const struct conversion *c, LLVMValueRef v, enum kb_scalar from,
                                   enum kb_scalar to)
{
	if (to == KB_F32)
		return to_f32(c, v, from);
	if (to == KB_F64)
		return LLVMBuildFPExt(c->r->builder, to_f32(c, v, from), type(c, KB_F64), "");
	LLVMValueRef single = from == KB_F64 ? f64_to_odd_f32(c, v) : to_f32(c, v, from);
	if (to == KB_BF16)
		return f32_to_bf16(c, single);
	if (!has_f16(c))
		return f32_to_f16(c, single);
	return LLVMBuildFPTrunc(c->r->builder, single, type(c, KB_F16), "");
}

/* Toward zero, saturating, NaN gives 0. */
static LLVMValueRef float_to_int(const struct conversion *c, LLVMValueRef v, enum kb_scalar from,
                                 enum kb_scalar to)
{
	LLVMValueRef x = from == KB_F64 ? v : to_f32(c, v, from);
	LLVMTypeRef types[] = {type(c, to), LLVMTypeOf(x)};
	const char *name = to == KB_U8 ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
	return replay_intrinsic(c->r, name, types, 2, &x, 1);
}

static int width(enum kb_scalar s)
{
	switch (s) {
	case KB_BOOL: return 1;
	case KB_I8:
	case KB_U8: return 8;
	case KB_I16:
	case KB_F16:
	case KB_BF16: return 16;
	case KB_I32:
	case KB_F32: return 32;
	case KB_I64:
	case KB_INDEX:
	case KB_F64:
	case KB_PTR: return 64;
	case KB_VOID: return 0;
	}
	return 0;
}

static LLVMValueRef int_to_float(const struct conversion *c, LLVMValueRef v, enum kb_scalar from,
                                 enum kb_scalar to)
{
	LLVMBuilderRef b = c->r->builder;
	enum kb_scalar via = to == KB_F64 || (to != KB_F32 && (width(from) >= 32)) ? KB_F64 : KB_F32;
	bool is_unsigned = from == KB_U8 || from == KB_BOOL;
	LLVMValueRef x = is_unsigned ? LLVMBuildUIToFP(b, v, type(c, via), "")
	                             : LLVMBuildSIToFP(b, v, type(c, via), "");
	return via == to ? x : float_to_float(c, x, via, to);
}

static LLVMValueRef int_to_int(const struct conversion *c, LLVMValueRef v, enum kb_scalar from,
                               enum kb_scalar to)
{
	LLVMBuilderRef b = c->r->builder;
	if (width(to) == width(from))
		return v;
	if (width(to) < width(from))
		return LLVMBuildTrunc(b, v, type(c, to), "");
	if (from == KB_U8 || from == KB_BOOL)
		return LLVMBuildZExt(b, v, type(c, to), "");
	return LLVMBuildSExt(b, v, type(c, to), "");
}

LLVMValueRef replay_convert(struct replay *r, LLVMValueRef v, struct kb_type from, struct kb_type to)
{
	struct conversion c = {r, to.lanes};
	bool float_from = kb_is_float(from.scalar), float_to = kb_is_float(to.scalar);
	if (to.scalar == KB_BOOL && float_from)
		return LLVMBuildFCmp(r->builder, LLVMRealUNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
	if (to.scalar == KB_BOOL)
		return LLVMBuildICmp(r->builder, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
	if (float_from && float_to)
		return float_to_float(&c, v, from.scalar, to.scalar);
	if (float_from)
		return float_to_int(&c, v, from.scalar, to.scalar);
	if (float_to)
		return int_to_float(&c, v, from.scalar, to.scalar);
	return int_to_int(&c, v, from.scalar, to.scalar);
}
