/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of constants, arithmetic, vectors and conversions. min and max are compare and select, whose NaN rule is
 * the IR's and which x86 selects as one minps. No fast-math flags: every schedule gives the same bits. Conversions
 * that the machine lacks have been legalized; LLVM would call its runtime library for them.
 */
#include "backends/object/llvm_emit.h"

#include <string.h>

LLVMValueRef llvm_splat(struct llvm_func *r, LLVMValueRef scalar, int lanes)
{
	if (lanes == 1)
		return scalar;
	LLVMTypeRef i32 = llvm_scalar_type(r->module, KB_I32);
	LLVMValueRef none = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes));
	LLVMValueRef one = LLVMBuildInsertElement(r->builder, none, scalar, LLVMConstNull(i32), "");
	LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(i32, (unsigned)lanes));
	return LLVMBuildShuffleVector(r->builder, one, none, zeros, "");
}

static LLVMValueRef const_splat(LLVMValueRef scalar, int lanes)
{
	LLVMValueRef all[KB_LANES_MAX];
	if (lanes == 1)
		return scalar;
	for (int i = 0; i < lanes; i++)
		all[i] = scalar;
	return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef llvm_int(const struct llvm_module *m, struct kb_type t, int64_t v)
{
	return const_splat(LLVMConstInt(llvm_scalar_type(m, t.scalar), (unsigned long long)v, 1), t.lanes);
}

LLVMValueRef llvm_emit_lane_ids(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef ids[KB_LANES_MAX];
	for (int k = 0; k < i->type.lanes; k++)
		ids[k] = llvm_int(r->module, KB_I32_T, k);
	return i->type.lanes == 1 ? ids[0] : LLVMConstVector(ids, (unsigned)i->type.lanes);
}

LLVMValueRef llvm_emit_const_int(struct llvm_func *r, const struct kb_inst *i)
{
	return kb_is_float(i->type.scalar) ? llvm_emit_null(r, i) : llvm_int(r->module, i->type, i->imm);
}

LLVMValueRef llvm_emit_const_float(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMConstReal(llvm_type(r->module, i->type), i->fimm);
}

LLVMValueRef llvm_emit_null(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMConstNull(llvm_type(r->module, i->type));
}

/* ---- two operands ---- */

static LLVMRealPredicate float_predicate(enum kb_cmp op)
{
	switch (op) {
	case KB_LT: return LLVMRealOLT;
	case KB_LE: return LLVMRealOLE;
	case KB_GT: return LLVMRealOGT;
	case KB_GE: return LLVMRealOGE;
	case KB_EQ: return LLVMRealOEQ;
	case KB_NE: return LLVMRealUNE;
	}
	return LLVMRealPredicateFalse;
}

static LLVMIntPredicate int_predicate(enum kb_cmp op, bool is_unsigned)
{
	switch (op) {
	case KB_LT: return is_unsigned ? LLVMIntULT : LLVMIntSLT;
	case KB_LE: return is_unsigned ? LLVMIntULE : LLVMIntSLE;
	case KB_GT: return is_unsigned ? LLVMIntUGT : LLVMIntSGT;
	case KB_GE: return is_unsigned ? LLVMIntUGE : LLVMIntSGE;
	case KB_EQ: return LLVMIntEQ;
	case KB_NE: return LLVMIntNE;
	}
	return LLVMIntEQ;
}

static LLVMValueRef compare(struct llvm_func *r, enum kb_scalar s, enum kb_cmp op, LLVMValueRef a,
                            LLVMValueRef b)
{
	if (kb_is_float(s))
		return LLVMBuildFCmp(r->builder, float_predicate(op), a, b, "");
	return LLVMBuildICmp(r->builder, int_predicate(op, s == KB_U8 || s == KB_U16 || s == KB_PTR), a, b,
	                     "");
}

/* a op b ? a : b */
static LLVMValueRef pick(struct llvm_func *r, enum kb_scalar s, enum kb_cmp op, LLVMValueRef a,
                         LLVMValueRef b)
{
	return LLVMBuildSelect(r->builder, compare(r, s, op, a, b), a, b, "");
}

static LLVMValueRef emit_bin(struct llvm_func *r, enum kb_scalar s, enum kb_bin op, LLVMValueRef a,
                             LLVMValueRef b)
{
	LLVMBuilderRef build = r->builder;
	bool is_float = kb_is_float(s);
	switch (op) {
	case KB_ADD: return is_float ? LLVMBuildFAdd(build, a, b, "") : LLVMBuildAdd(build, a, b, "");
	case KB_SUB: return is_float ? LLVMBuildFSub(build, a, b, "") : LLVMBuildSub(build, a, b, "");
	case KB_MUL: return is_float ? LLVMBuildFMul(build, a, b, "") : LLVMBuildMul(build, a, b, "");
	case KB_DIV: return is_float ? LLVMBuildFDiv(build, a, b, "") : LLVMBuildSDiv(build, a, b, "");
	case KB_REM: return LLVMBuildSRem(build, a, b, "");
	case KB_MIN: return pick(r, s, KB_LT, a, b);
	case KB_MAX: return pick(r, s, KB_GT, a, b);
	case KB_AND: return LLVMBuildAnd(build, a, b, "");
	case KB_OR: return LLVMBuildOr(build, a, b, "");
	case KB_XOR: return LLVMBuildXor(build, a, b, "");
	case KB_SHL: return LLVMBuildShl(build, a, b, "");
	case KB_SHR: return LLVMBuildLShr(build, a, b, "");
	case KB_SAR: return LLVMBuildAShr(build, a, b, "");
	}
	return NULL;
}

LLVMValueRef llvm_emit_bin(struct llvm_func *r, const struct kb_inst *i)
{
	return emit_bin(r, i->type.scalar, i->bin, llvm_operand(r, i, 0), llvm_operand(r, i, 1));
}

LLVMValueRef llvm_emit_cmp(struct llvm_func *r, const struct kb_inst *i)
{
	return compare(r, llvm_operand_type(r, i, 0).scalar, i->cmp, llvm_operand(r, i, 0),
	               llvm_operand(r, i, 1));
}

LLVMValueRef llvm_emit_select(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildSelect(r->builder, llvm_operand(r, i, 0), llvm_operand(r, i, 1),
	                       llvm_operand(r, i, 2), "");
}

static LLVMValueRef un_intrinsic(struct llvm_func *r, const char *name, LLVMValueRef a)
{
	LLVMTypeRef type = LLVMTypeOf(a);
	return llvm_intrinsic(r, name, &type, 1, &a, 1);
}

LLVMValueRef llvm_emit_un(struct llvm_func *r, const struct kb_inst *i)
{
	enum kb_scalar s = i->type.scalar;
	LLVMValueRef a = llvm_operand(r, i, 0);
	bool is_float = kb_is_float(s);
	switch (i->un) {
	case KB_NEG: return is_float ? LLVMBuildFNeg(r->builder, a, "") : LLVMBuildNeg(r->builder, a, "");
	case KB_ABS:
		if (is_float)
			return un_intrinsic(r, "llvm.fabs", a);
		return pick(r, s, KB_GT, a, LLVMBuildNeg(r->builder, a, ""));
	case KB_SQRT: return un_intrinsic(r, "llvm.sqrt", a);
	case KB_FLOOR: return un_intrinsic(r, "llvm.floor", a);
	case KB_CEIL: return un_intrinsic(r, "llvm.ceil", a);
	case KB_NOT: return LLVMBuildNot(r->builder, a, "");
	}
	return NULL;
}

/* Without the instruction llvm.fma would become a library call, llvm.fmuladd a multiplication and an addition. */
LLVMValueRef llvm_emit_fma(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef type = llvm_type(r->module, i->type);
	LLVMValueRef args[] = {llvm_operand(r, i, 0), llvm_operand(r, i, 1), llvm_operand(r, i, 2)};
	const char *name = r->target->has_fma ? "llvm.fma" : "llvm.fmuladd";
	return llvm_intrinsic(r, name, &type, 1, args, 3);
}

/* ---- vectors ---- */

LLVMValueRef llvm_emit_shuffle(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef mask[KB_LANES_MAX];
	LLVMValueRef a = llvm_operand(r, i, 0);
	LLVMValueRef b = i->n_args > 1 ? llvm_operand(r, i, 1) : LLVMGetPoison(LLVMTypeOf(a));
	int from = llvm_operand_type(r, i, 0).lanes;
	for (int k = 0; k < i->type.lanes; k++)
		mask[k] = llvm_int(r->module, KB_I32_T, i->lanes[k]);
	if (i->type.lanes == 1) {
		LLVMValueRef source = i->lanes[0] < from ? a : b;
		LLVMValueRef lane = llvm_int(r->module, KB_I32_T, i->lanes[0] % from);
		return from == 1 ? source : LLVMBuildExtractElement(r->builder, source, lane, "");
	}
	if (from == 1)
		return llvm_splat(r, a, i->type.lanes);
	return LLVMBuildShuffleVector(r->builder, a, b, LLVMConstVector(mask, (unsigned)i->type.lanes), "");
}

LLVMValueRef llvm_lanes(struct llvm_func *r, LLVMValueRef v, int from, int n)
{
	LLVMValueRef mask[KB_LANES_MAX];
	for (int k = 0; k < n; k++)
		mask[k] = llvm_int(r->module, KB_I32_T, from + k);
	if (n == 1)
		return LLVMBuildExtractElement(r->builder, v, mask[0], "");
	LLVMValueRef none = LLVMGetPoison(LLVMTypeOf(v));
	return LLVMBuildShuffleVector(r->builder, v, none, LLVMConstVector(mask, (unsigned)n), "");
}

/* The reduction tree of kb_reduce: lower half op upper half, until one lane is left. */
LLVMValueRef llvm_emit_reduce(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef v = llvm_operand(r, i, 0);
	int lanes = llvm_operand_type(r, i, 0).lanes;
	for (int n = lanes / 2; n >= 1; n /= 2)
		v = emit_bin(r, i->type.scalar, i->bin, llvm_lanes(r, v, 0, n), llvm_lanes(r, v, n, n));
	return v;
}

LLVMValueRef llvm_emit_splat(struct llvm_func *r, const struct kb_inst *i)
{
	return llvm_splat(r, llvm_operand(r, i, 0), i->type.lanes);
}

LLVMValueRef llvm_emit_lane(struct llvm_func *r, const struct kb_inst *i)
{
	return llvm_lanes(r, llvm_operand(r, i, 0), i->lane, 1);
}

LLVMValueRef llvm_emit_bitcast(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildBitCast(r->builder, llvm_operand(r, i, 0), llvm_type(r->module, i->type), "");
}

/* ---- the machine ---- */

LLVMValueRef llvm_emit_pause(struct llvm_func *r, const struct kb_inst *i)
{
	(void)i;
	LLVMValueRef yield = llvm_int(r->module, KB_I32_T, 1);
	switch (r->target->arch) {
	case ARCH_X86_64: return llvm_intrinsic(r, "llvm.x86.sse2.pause", NULL, 0, NULL, 0);
	case ARCH_AARCH64: return llvm_intrinsic(r, "llvm.aarch64.hint", NULL, 0, &yield, 1);
	case ARCH_OPENCL: return NULL;
	}
	return NULL;
}

static LLVMValueRef assembly(struct llvm_func *r, const char *text, const char *constraints,
                             LLVMTypeRef result, LLVMValueRef *args, unsigned n)
{
	LLVMTypeRef types[4];
	for (unsigned i = 0; i < n; i++)
		types[i] = LLVMTypeOf(args[i]);
	LLVMTypeRef type = LLVMFunctionType(result, types, n, 0);
	LLVMValueRef code = LLVMGetInlineAsm(type, text, strlen(text), constraints, strlen(constraints), 1, 0,
	                                     LLVMInlineAsmDialectATT, 0);
	return LLVMBuildCall2(r->builder, type, code, args, n, "");
}

LLVMValueRef llvm_emit_cpuid(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef i32 = llvm_scalar_type(r->module, KB_I32);
	LLVMTypeRef four[] = {i32, i32, i32, i32};
	LLVMTypeRef result = LLVMStructTypeInContext(r->module->context, four, 4, 0);
	LLVMValueRef args[] = {llvm_int(r->module, KB_I32_T, i->imm),
	                       llvm_int(r->module, KB_I32_T, i->cpuid.subleaf)};
	LLVMValueRef all = assembly(
	        r, "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}", result, args, 2);
	return LLVMBuildExtractValue(r->builder, all, (unsigned)i->cpuid.reg, "");
}

/* As bytes, because the assembler accepts the mnemonic only with the xsave feature, which baseline code lacks. */
LLVMValueRef llvm_emit_xgetbv(struct llvm_func *r, const struct kb_inst *i)
{
	(void)i;
	LLVMTypeRef i32 = llvm_scalar_type(r->module, KB_I32);
	LLVMTypeRef two[] = {i32, i32};
	LLVMTypeRef result = LLVMStructTypeInContext(r->module->context, two, 2, 0);
	LLVMValueRef zero = llvm_int(r->module, KB_I32_T, 0);
	LLVMValueRef all = assembly(r, ".byte 0x0f, 0x01, 0xd0",
	                            "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}", result, &zero, 1);
	return LLVMBuildExtractValue(r->builder, all, 0, "");
}

/* ---- conversions ---- */

static int width(enum kb_scalar s)
{
	return s == KB_BOOL ? 1 : 8 * kb_scalar_bytes(s);
}

static bool is_unsigned(enum kb_scalar s)
{
	return s == KB_U8 || s == KB_U16 || s == KB_BOOL;
}

/* Truncates, saturates; NaN gives 0. */
static LLVMValueRef float_to_int(struct llvm_func *r, LLVMValueRef v, enum kb_scalar to, LLVMTypeRef type)
{
	LLVMTypeRef types[] = {type, LLVMTypeOf(v)};
	return llvm_intrinsic(r, is_unsigned(to) ? "llvm.fptoui.sat" : "llvm.fptosi.sat", types, 2, &v, 1);
}

LLVMValueRef llvm_emit_cvt(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef v = llvm_operand(r, i, 0);
	struct kb_type from = llvm_operand_type(r, i, 0), to = i->type;
	LLVMBuilderRef b = r->builder;
	LLVMTypeRef type = llvm_type(r->module, to);
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
