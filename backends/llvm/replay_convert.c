/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of conversions that the machine has: kb_legalize has written out the others, for which LLVM would call
 * its runtime library.
 */
#include "backends/llvm/replay.h"

static int width(enum kb_scalar s)
{
	return s == KB_BOOL ? 1 : 8 * kb_scalar_bytes(s);
}

static bool is_unsigned(enum kb_scalar s)
{
	return s == KB_U8 || s == KB_U16 || s == KB_BOOL;
}

/* Toward zero, saturating, NaN gives 0. */
static LLVMValueRef float_to_int(struct replay *r, LLVMValueRef v, enum kb_scalar to, LLVMTypeRef type)
{
	LLVMTypeRef types[] = {type, LLVMTypeOf(v)};
	return replay_intrinsic(r, is_unsigned(to) ? "llvm.fptoui.sat" : "llvm.fptosi.sat", types, 2, &v, 1);
}

LLVMValueRef replay_cvt(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef v = replay_arg(r, i, 0);
	struct kb_type from = replay_arg_type(r, i, 0), to = i->type;
	LLVMBuilderRef b = r->builder;
	LLVMTypeRef type = replay_type(r->module, to);
	int before = width(from.scalar), after = width(to.scalar);
	bool float_from = kb_is_float(from.scalar), float_to = kb_is_float(to.scalar);
	if (float_from && !float_to)
		return float_to_int(r, v, to.scalar, type);
	if (float_to && !float_from)
		return is_unsigned(from.scalar) ? LLVMBuildUIToFP(b, v, type, "")
		                                : LLVMBuildSIToFP(b, v, type, "");
	if (after == before)
		return v;
	if (after < before)
		return float_to ? LLVMBuildFPTrunc(b, v, type, "") : LLVMBuildTrunc(b, v, type, "");
	if (float_to)
		return LLVMBuildFPExt(b, v, type, "");
	return is_unsigned(from.scalar) ? LLVMBuildZExt(b, v, type, "") : LLVMBuildSExt(b, v, type, "");
}
