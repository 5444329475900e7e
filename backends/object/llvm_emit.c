/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emits a module of kernel IR as an LLVM module: data, functions with their attributes, instructions, control flow.
 * All functions are declared before the first body, so that calls may go to later ones.
 * llvm_emit_OPERATION, the rows of `ops`, append the LLVM instructions of one kernel instruction and return its value.
 *
 * Loops are emitted in rotated form (test at the end), with a guard only if they may be empty, since no pass rotates
 * them later. Code after a return goes to a block without predecessors.
 *
 * A kernel instruction (struct kb_inst) has operands by number, a type, and immediates (imm, lanes, n_lanes). r->entry
 * appends to the entry block, r->builder to the present one. Partial loads and stores (`part`) are of the first n_lanes
 * lanes, at the end of a row.
 */
#include "backends/object/llvm_emit.h"

#include <string.h>

/* ---- memory ---- */

/*
 * Emission of memory operations: variables and local arrays as allocas of the entry block, loads, stores, atomics.
 * The constant displacement is a second GEP, so that instruction selection folds it into the addressing mode. No GEP
 * is `inbounds`: prefetches and panel pointers may point past their tensor.
 */

/* ptr + index elements; no instruction for a constant 0. */
static LLVMValueRef gep(struct llvm_func *r, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index)
{
	if (LLVMIsConstant(index) && LLVMIsNull(index))
		return ptr;
	return LLVMBuildGEP2(r->builder, element, ptr, &index, 1, "");
}

/* LLVM's integers have no sign, so I8 and U8 share a type: the operations tell them apart. */
static LLVMTypeRef llvm_scalar_type(const struct llvm_module *m, enum kb_scalar s)
{
	switch (s) {
	case KB_VOID: return LLVMVoidTypeInContext(m->context);
	case KB_BOOL: return LLVMInt1TypeInContext(m->context);
	case KB_I8:
	case KB_U8: return LLVMInt8TypeInContext(m->context);
	case KB_I16:
	case KB_U16: return LLVMInt16TypeInContext(m->context);
	case KB_I32: return LLVMInt32TypeInContext(m->context);
	case KB_I64:
	case KB_INDEX: return LLVMInt64TypeInContext(m->context);
	case KB_F16: return LLVMHalfTypeInContext(m->context);
	case KB_BF16: return LLVMBFloatTypeInContext(m->context);
	case KB_F32: return LLVMFloatTypeInContext(m->context);
	case KB_F64: return LLVMDoubleTypeInContext(m->context);
	case KB_PTR: return LLVMPointerTypeInContext(m->context, 0);
	}
	return NULL;
}

/* ptr + (index + disp) elements. */
static LLVMValueRef address(struct llvm_func *r, enum kb_scalar s, LLVMValueRef ptr, LLVMValueRef index,
                            int64_t disp)
{
	LLVMTypeRef element = llvm_scalar_type(r->module, s);
	LLVMValueRef base = gep(r, element, ptr, index);
	return gep(r, element, base, llvm_int(r->module, KB_INDEX_T, disp));
}

static LLVMValueRef build_load(struct llvm_func *r, const struct kb_inst *i, struct kb_type type)
{
	LLVMValueRef at = address(r, type.scalar, llvm_operand(r, i, 0), llvm_operand(r, i, 1), i->imm);
	LLVMValueRef v = LLVMBuildLoad2(r->builder, llvm_type(r->module, type), at, "");
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

LLVMValueRef llvm_emit_load(struct llvm_func *r, const struct kb_inst *i)
{
	return build_load(r, i, i->type);
}

/* A vector with the scalar in all lanes; the scalar itself for one lane. Insert and shuffle is the form that LLVM
 * selects as a broadcast. */
static LLVMValueRef llvm_splat(struct llvm_func *r, LLVMValueRef scalar, int lanes)
{
	if (lanes == 1)
		return scalar;
	LLVMTypeRef i32 = llvm_scalar_type(r->module, KB_I32);
	LLVMValueRef none = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes));
	LLVMValueRef one = LLVMBuildInsertElement(r->builder, none, scalar, LLVMConstNull(i32), "");
	LLVMValueRef zeros = LLVMConstNull(LLVMVectorType(i32, (unsigned)lanes));
	return LLVMBuildShuffleVector(r->builder, one, none, zeros, "");
}

LLVMValueRef llvm_emit_load_splat(struct llvm_func *r, const struct kb_inst *i)
{
	return llvm_splat(r, build_load(r, i, KB_TYPE(i->type.scalar, 1)), i->type.lanes);
}

LLVMValueRef llvm_emit_store(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef at = address(r, i->type.scalar, llvm_operand(r, i, 1), llvm_operand(r, i, 2), i->imm);
	LLVMValueRef v = LLVMBuildStore(r->builder, llvm_operand(r, i, 0), at);
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

/* A mask of the first n of `lanes` lanes. */
static LLVMValueRef first_lanes(struct llvm_func *r, int n, int lanes)
{
	LLVMValueRef bits[KB_LANES_MAX];
	LLVMTypeRef type = llvm_scalar_type(r->module, KB_BOOL);
	for (int k = 0; k < lanes; k++)
		bits[k] = LLVMConstInt(type, k < n, 0);
	return LLVMConstVector(bits, (unsigned)lanes);
}

/* Loads the first n_lanes lanes; the others are 0 and their memory is not touched, so that a row's remainder may end
 * at the end of memory. */
LLVMValueRef llvm_emit_load_part(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef type = llvm_type(r->module, i->type);
	LLVMTypeRef types[] = {type, llvm_scalar_type(r->module, KB_PTR)};
	LLVMValueRef args[] = {
	        address(r, i->type.scalar, llvm_operand(r, i, 0), llvm_operand(r, i, 1), i->imm),
	        llvm_int(r->module, KB_I32_T, i->align),
	        first_lanes(r, i->n_lanes, i->type.lanes),
	        LLVMConstNull(type),
	};
	return llvm_intrinsic(r, "llvm.masked.load", types, 2, args, 4);
}

/* Stores the first n_lanes lanes; memory of the others is not touched. */
LLVMValueRef llvm_emit_store_part(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef types[] = {llvm_type(r->module, i->type), llvm_scalar_type(r->module, KB_PTR)};
	LLVMValueRef args[] = {
	        llvm_operand(r, i, 0),
	        address(r, i->type.scalar, llvm_operand(r, i, 1), llvm_operand(r, i, 2), i->imm),
	        llvm_int(r->module, KB_I32_T, i->align),
	        first_lanes(r, i->n_lanes, i->type.lanes),
	};
	return llvm_intrinsic(r, "llvm.masked.store", types, 2, args, 4);
}

/* A hint to read; the address may be outside of the tensor. KB_L2 leaves the line out of L1. */
LLVMValueRef llvm_emit_prefetch(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef ptr = llvm_scalar_type(r->module, KB_PTR);
	int locality = i->flags & KB_L2 ? 2 : 3; /* L2 and outer levels, or all levels */
	LLVMValueRef args[] = {
	        address(r, KB_I8, llvm_operand(r, i, 0), llvm_operand(r, i, 1), i->imm),
	        llvm_int(r->module, KB_I32_T, 0),                                          /* read */
	        llvm_int(r->module, KB_I32_T, locality), llvm_int(r->module, KB_I32_T, 1), /* data */
	};
	return llvm_intrinsic(r, "llvm.prefetch", &ptr, 1, args, 4);
}

/* ---- variables ---- */

/* Variables are allocas in the entry block, which mem2reg turns into values. */
LLVMValueRef llvm_emit_var(struct llvm_func *r, const struct kb_inst *i)
{
	r->vars[i->result] = LLVMBuildAlloca(r->entry, llvm_type(r->module, i->type), i->name);
	if (i->n_args)
		LLVMBuildStore(r->builder, llvm_operand(r, i, 0), r->vars[i->result]);
	return NULL;
}

LLVMValueRef llvm_emit_get(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildLoad2(r->builder, llvm_type(r->module, i->type), r->vars[i->imm], "");
}

LLVMValueRef llvm_emit_set(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildStore(r->builder, llvm_operand(r, i, 0), r->vars[i->imm]);
}

/* An array on the stack, allocated in the entry block so that a loop does not allocate it again. */
LLVMValueRef llvm_emit_local(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef element = llvm_scalar_type(r->module, i->element);
	LLVMValueRef v = LLVMBuildAlloca(r->entry, LLVMArrayType2(element, (uint64_t)i->imm), i->name);
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

/* ---- names ---- */

/* Data of the module, or of the object, to which it is added after code generation: hidden visibility, so that its
 * address is PC-relative and needs no GOT entry. */
LLVMValueRef llvm_emit_symbol(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef g = LLVMGetNamedGlobal(r->module->module, i->name);
	if (g)
		return g;
	g = LLVMAddGlobal(r->module->module, llvm_scalar_type(r->module, KB_I8), i->name);
	LLVMSetGlobalConstant(g, 1);
	LLVMSetVisibility(g, LLVMHiddenVisibility);
	return g;
}

LLVMValueRef llvm_emit_func_addr(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef fn = LLVMGetNamedFunction(r->module->module, i->name);
	if (!fn)
		llvm_emit_fail(r->module, "the address of a function that is not defined");
	return fn;
}

LLVMValueRef llvm_emit_string(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildGlobalStringPtr(r->builder, i->name, "text");
}

/* ---- atomics ---- */

/* Address of the i32 at operand k plus displacement. */
static LLVMValueRef atomic_address(struct llvm_func *r, const struct kb_inst *i, size_t k)
{
	return address(r, KB_I32, llvm_operand(r, i, k), llvm_int(r->module, KB_INDEX_T, 0), i->imm);
}

LLVMValueRef llvm_emit_atomic_load(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef v =
	        LLVMBuildLoad2(r->builder, llvm_scalar_type(r->module, KB_I32), atomic_address(r, i, 0), "");
	LLVMSetOrdering(v, LLVMAtomicOrderingAcquire);
	LLVMSetAlignment(v, 4);
	return v;
}

LLVMValueRef llvm_emit_atomic_store(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef v = LLVMBuildStore(r->builder, llvm_operand(r, i, 0), atomic_address(r, i, 1));
	LLVMSetOrdering(v, LLVMAtomicOrderingRelease);
	LLVMSetAlignment(v, 4);
	return v;
}

LLVMValueRef llvm_emit_atomic_add(struct llvm_func *r, const struct kb_inst *i)
{
	return LLVMBuildAtomicRMW(r->builder, LLVMAtomicRMWBinOpAdd, atomic_address(r, i, 1),
	                          llvm_operand(r, i, 0), LLVMAtomicOrderingAcquireRelease, 0);
}

/* ---- addresses ---- */

LLVMValueRef llvm_emit_ptr_add(struct llvm_func *r, const struct kb_inst *i)
{
	return address(r, KB_I8, llvm_operand(r, i, 0), llvm_operand(r, i, 1), i->imm);
}

/* The pointer, of which LLVM can no longer know that it equals its operand: loads through it are not merged with
 * earlier ones. Empty inline assembly with the pointer as input and output. */
LLVMValueRef llvm_emit_ptr_opaque(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef ptr = llvm_operand(r, i, 0);
	LLVMTypeRef ptr_type = LLVMTypeOf(ptr), type = LLVMFunctionType(ptr_type, &ptr_type, 1, 0);
	const char *same = "=r,0";
	LLVMValueRef code =
	        LLVMGetInlineAsm(type, "", 0, same, strlen(same), 0, 0, LLVMInlineAsmDialectATT, 0);
	return LLVMBuildCall2(r->builder, type, code, &ptr, 1, "");
}

/* ---- values ---- */

/*
 * Emission of constants, arithmetic, vectors and conversions. min and max are compare and select, whose NaN rule is
 * the IR's and which x86 selects as one minps. No fast-math flags: every schedule gives the same bits. Conversions
 * that the machine lacks have been legalized; LLVM would call its runtime library for them.
 */

/* The constant in all lanes. */
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

/* A comparison with NaN is false, except NE: ordered predicates but for NE. */
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

/* The integer comparison; LLVM has one for each sign. */
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

/* Compares lane by lane; the result is i1 lanes. Pointers compare as unsigned integers. */
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

/* a op b, lane by lane. Integers divide, compare and shift right as signed numbers, but KB_SHR shifts zeros in. */
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

/* An opaque copy of the mask, once in a function, by empty inline assembly: LLVM makes of an AND that clears the low 16
 * bits of words a blend with zero, which takes the ports of multiply-adds (Zen) or has but one (Intel before Ice Lake);
 * an AND has every vector port. bf16 pairs become f32 so. SSE, whose AND overwrites its operand, would need another
 * register. */
static LLVMValueRef opaque_bf16_mask(struct llvm_func *r, LLVMValueRef mask)
{
	LLVMTypeRef mask_type = LLVMTypeOf(mask), type = LLVMFunctionType(mask_type, &mask_type, 1, 0);
	const char *same = "=x,0";
	if (!r->bf16_mask) {
		LLVMValueRef code =
		        LLVMGetInlineAsm(type, "", 0, same, strlen(same), 0, 0, LLVMInlineAsmDialectATT, 0);
		r->bf16_mask = LLVMBuildCall2(r->entry, type, code, &mask, 1, "bf16_mask");
	}
	return r->bf16_mask;
}

#define AVX2_WORDS 8

LLVMValueRef llvm_emit_bin(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef a = llvm_operand(r, i, 0), b = llvm_operand(r, i, 1);
	bool is_avx2 = r->target->arch == ARCH_X86_64 && r->target->lanes >= AVX2_WORDS &&
	               i->type.scalar == KB_I32 && i->type.lanes == AVX2_WORDS;
	if (is_avx2 && i->bin == KB_AND && b == llvm_int(r->module, i->type, -0x10000))
		b = opaque_bf16_mask(r, b);
	return emit_bin(r, i->type.scalar, i->bin, a, b);
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

/* Math functions go to intrinsics that are single instructions; an integer's absolute value is max(a, -a). */
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

/* a * b + c, rounded once where the processor has the instruction. Where it lacks it, llvm.fma would become a
 * library call; llvm.fmuladd becomes a multiplication and an addition. */
LLVMValueRef llvm_emit_fma(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMTypeRef type = llvm_type(r->module, i->type);
	LLVMValueRef args[] = {llvm_operand(r, i, 0), llvm_operand(r, i, 1), llvm_operand(r, i, 2)};
	const char *name = r->target->has_fma ? "llvm.fma" : "llvm.fmuladd";
	return llvm_intrinsic(r, name, &type, 1, args, 3);
}

/* ---- vectors ---- */

/* Lanes chosen from the one or two operands, counted through both; a result with fewer or more lanes is allowed. One
 * lane is a scalar in LLVM, so it is extracted, and a scalar operand is spread. */
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

/* Lanes [from, from + n) of v; one lane is a scalar. */
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

/* Tells the processor that this thread spins: x86 pause, aarch64 yield. */
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

/* Calls inline assembly of AT&T syntax with n <= 4 arguments; it counts as having side effects, so LLVM keeps
 * it. */
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

/* One of the four registers that cpuid returns for leaf imm. Assembly, since LLVM has no intrinsic for it. */
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

/* Bits of a lane as LLVM counts them: a bool is i1. */
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

/* Converts lane by lane: float to integer saturates, wider integers extend by the sign of the source type. Types
 * of equal width differ only in sign, which LLVM's values lack. */
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

/* ---- functions and control flow ---- */

void llvm_emit_fail(struct llvm_module *m, const char *what)
{
	if (!m->error)
		m->error = what;
}

LLVMTypeRef llvm_type(const struct llvm_module *m, struct kb_type t)
{
	LLVMTypeRef s = llvm_scalar_type(m, t.scalar);
	return t.lanes > 1 ? LLVMVectorType(s, (unsigned)t.lanes) : s;
}

LLVMValueRef llvm_intrinsic(struct llvm_func *r, const char *name, LLVMTypeRef *types, size_t n_types,
                            LLVMValueRef *args, unsigned n_args)
{
	struct llvm_module *m = r->module;
	unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
	LLVMValueRef fn = LLVMGetIntrinsicDeclaration(m->module, id, types, n_types);
	LLVMTypeRef type = LLVMIntrinsicGetType(m->context, id, types, n_types);
	return LLVMBuildCall2(r->builder, type, fn, args, n_args, "");
}

/* ---- attributes ---- */

static void enum_attribute(const struct llvm_module *m, LLVMValueRef fn, LLVMAttributeIndex at,
                           const char *name, uint64_t value)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
	LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(m->context, kind, value));
}

static void string_attribute(const struct llvm_module *m, LLVMValueRef fn, const char *key, const char *value)
{
	LLVMAttributeRef a = LLVMCreateStringAttribute(m->context, key, (unsigned)strlen(key), value,
	                                               (unsigned)strlen(value));
	LLVMAddAttributeAtIndex(fn, (LLVMAttributeIndex)LLVMAttributeFunctionIndex, a);
}

/* The oldest processor of the architecture: code that chooses a variant must run on every one. */
static const char *baseline_cpu(enum target_arch arch)
{
	switch (arch) {
	case ARCH_X86_64: return "x86-64";
	case ARCH_AARCH64: return "generic";
	case ARCH_OPENCL: return "";
	}
	return "";
}

/* The target of the function's variant; the module's own for code of the baseline and without variants. */
static const struct target *target_of(const struct llvm_module *m, const struct kb_func *f)
{
	bool is_one = m->options->variants && f->variant != KB_BASELINE;
	return is_one ? m->options->variants[f->variant] : m->options->target;
}

/* All functions of a variant get equal strings: LLVM does not inline across different features and would split
 * vectors. Code of the baseline, which chooses the variant, has only what every processor has. */
static void function_attributes(const struct llvm_module *m, LLVMValueRef fn, const struct kb_func *f)
{
	const struct target *t = target_of(m, f);
	LLVMAttributeIndex at = (LLVMAttributeIndex)LLVMAttributeFunctionIndex;
	bool baseline = f->variant == KB_BASELINE;
	enum_attribute(m, fn, at, "nounwind", 0);
	enum_attribute(m, fn, at, "uwtable", 2); /* .eh_frame, for debuggers and C++ callers */
	string_attribute(m, fn, "frame-pointer", "none");
	string_attribute(m, fn, "no-builtins", "");        /* do not turn copy loops into memcpy calls */
	string_attribute(m, fn, "no-jump-tables", "true"); /* jump tables need relocations at load time */
	string_attribute(m, fn, "target-cpu", baseline ? baseline_cpu(t->arch) : t->llvm_cpu);
	if (baseline)
		return;
	char features[TARGET_FEATURES_BYTES];
	target_features_string(t, features);
	if (features[0])
		string_attribute(m, fn, "target-features", features);
	if (t->lanes == 16) {
		string_attribute(m, fn, "min-legal-vector-width", "512");
		string_attribute(m, fn, "prefer-vector-width", "512");
	}
}

/* ---- module level ---- */

/* Adds the function with its type, linkage and attributes, without a body. Parameters are its first
 * instructions. */
static void declare(struct llvm_module *m, const struct kb_func *f)
{
	LLVMTypeRef *types = ARENA_ARRAY(m->arena, LLVMTypeRef, f->n_insts + 1);
	unsigned n = 0;
	if (!types)
		return;
	while (n < f->n_insts && f->insts[n].op == KBO_PARAM) {
		types[n] = llvm_type(m, f->insts[n].type);
		n++;
	}
	LLVMTypeRef type = LLVMFunctionType(llvm_scalar_type(m, f->result), types, n, 0);
	LLVMValueRef fn = LLVMAddFunction(m->module, f->name, type);
	if (f->linkage == KB_INTERNAL)
		LLVMSetLinkage(fn, LLVMInternalLinkage);
	function_attributes(m, fn, f);
	for (unsigned i = 0; i < n; i++) {
		LLVMValueRef p = LLVMGetParam(fn, i);
		LLVMSetValueName2(p, f->insts[i].name, strlen(f->insts[i].name));
		enum_attribute(m, fn, i + 1, "noundef",
		               0); /* attribute indices count from 1, 0 is the result */
		if (f->insts[i].flags & KB_NOALIAS)
			enum_attribute(m, fn, i + 1, "noalias", 0);
		if (f->insts[i].flags & KB_READONLY)
			enum_attribute(m, fn, i + 1, "readonly", 0);
	}
}

/* Adds constant bytes as a global variable. */
static void define_data(struct llvm_module *m, const struct kb_data_item *d)
{
	LLVMValueRef bytes = LLVMConstStringInContext2(m->context, d->bytes, d->n, 1);
	LLVMValueRef g = LLVMAddGlobal(m->module, LLVMTypeOf(bytes), d->name);
	LLVMSetInitializer(g, bytes);
	LLVMSetGlobalConstant(g, 1);
	LLVMSetAlignment(g, (unsigned)d->align);
	if (d->linkage == KB_INTERNAL)
		LLVMSetLinkage(g, LLVMInternalLinkage);
}

/* ---- functions ---- */

/* The row of `ops` for operations of OpenCL kernels, which are printed as text and never compiled by LLVM. */
static LLVMValueRef fail_work_group(struct llvm_func *r, const struct kb_inst *i)
{
	(void)i;
	llvm_emit_fail(r->module, "machine code has no work-groups");
	return NULL;
}
#define llvm_emit_shared      fail_work_group
#define llvm_emit_group_id    fail_work_group
#define llvm_emit_group_count fail_work_group
#define llvm_emit_item_id     fail_work_group
#define llvm_emit_device_dot  fail_work_group
#define llvm_emit_barrier     fail_work_group

static llvm_emit_op *const ops[] = {
#define KB_OP(op, name, effect) [KBO_##op] = llvm_emit_##name,
#include "backends/kb/kb_ops.def"
};

/* Emits the instructions in order, by the table of operations, and records their values. The last block, if still
 * open, returns from a function without result; in others it follows a return and cannot be reached. */
static void emit_body(struct llvm_func *r)
{
	const struct kb_func *f = r->ir;
	for (size_t i = 0; i < f->n_insts; i++) {
		const struct kb_inst *inst = &f->insts[i];
		llvm_debug_loc(r, inst->loc);
		LLVMValueRef v = ops[inst->op](r, inst);
		if (inst->result && inst->op != KBO_VAR)
			r->values[inst->result] = v;
	}
	LLVMBasicBlockRef last = LLVMGetInsertBlock(r->builder);
	if (LLVMGetBasicBlockTerminator(last))
		return;
	if (f->result == KB_VOID)
		LLVMBuildRetVoid(r->builder);
	else
		LLVMBuildUnreachable(r->builder);
}

/* Emits a function in operations that its target has (kb_legalize). Two entry blocks: allocas go to `entry`, where
 * mem2reg looks for them, code begins in `start`. */
static void emit_function(struct llvm_module *m, const struct kb_func *f)
{
	const struct target *target = target_of(m, f);
	f = kb_legalize(f, m->arena, &f->caps);
	struct llvm_func r = {.module = m, .target = target, .ir = f};
	r.function = LLVMGetNamedFunction(m->module, f->name);
	r.values = ARENA_ARRAY(m->arena, LLVMValueRef, f->n_values + 1);
	r.vars = ARENA_ARRAY(m->arena, LLVMValueRef, f->n_vars + 1);
	r.scopes = ARENA_ARRAY(m->arena, struct llvm_scope, f->n_insts + 1);
	if (!r.function || !r.values || !r.vars || !r.scopes) {
		llvm_emit_fail(m, "a function was not declared");
		return;
	}
	LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(m->context, r.function, "entry");
	LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(m->context, r.function, "start");
	r.entry = LLVMCreateBuilderInContext(m->context);
	r.builder = LLVMCreateBuilderInContext(m->context);
	LLVMPositionBuilderAtEnd(r.entry, entry);
	LLVMPositionBuilderBefore(r.entry, LLVMBuildBr(r.entry, start));
	LLVMPositionBuilderAtEnd(r.builder, start);
	llvm_debug_function(&r);
	emit_body(&r);
	LLVMDisposeBuilder(r.builder);
	LLVMDisposeBuilder(r.entry);
}

bool llvm_emit_module(struct llvm_module *m)
{
	for (size_t i = 0; i < kb_data_count(m->kernels); i++)
		define_data(m, kb_data_at(m->kernels, i));
	for (size_t i = 0; i < kb_func_count(m->kernels); i++)
		declare(m, kb_func_at(m->kernels, i));
	llvm_debug_begin(m);
	for (size_t i = 0; i < kb_func_count(m->kernels) && !m->error; i++)
		emit_function(m, kb_func_at(m->kernels, i));
	llvm_debug_end(m);
	if (arena_failed(m->arena))
		llvm_emit_fail(m, "no memory");
	return m->error == NULL;
}

/* ---- control flow ---- */

static LLVMBasicBlockRef new_block(struct llvm_func *r, const char *name)
{
	return LLVMAppendBasicBlockInContext(r->module->context, r->function, name);
}

/* Continues in a block, moved to the end of the function so that the text is in order of execution. Returns NULL. */
static LLVMValueRef continue_in(struct llvm_func *r, LLVMBasicBlockRef block)
{
	if (block != LLVMGetLastBasicBlock(r->function))
		LLVMMoveBasicBlockAfter(block, LLVMGetLastBasicBlock(r->function));
	LLVMPositionBuilderAtEnd(r->builder, block);
	return NULL;
}

/* A new innermost scope: loop or condition, until its end operation pops it. */
static struct llvm_scope *push_scope(struct llvm_func *r)
{
	struct llvm_scope *s = &r->scopes[r->n_scopes++];
	*s = (struct llvm_scope){0};
	return s;
}

/* ---- loops ---- */

/* Opens the body: branches into it, with a test for an empty range before unless the loop is marked nonempty. The
 * phi's second value is added by end_loop. Returns the index. Rotated: one branch for each iteration. */
LLVMValueRef llvm_emit_loop(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = push_scope(r);
	LLVMValueRef lo = llvm_operand(r, i, 0);
	s->hi = llvm_operand(r, i, 1);
	s->step = i->imm;
	s->body = new_block(r, i->name);
	s->exit = new_block(r, "end");
	LLVMBasicBlockRef before = LLVMGetInsertBlock(r->builder);
	if (i->flags & KB_NONEMPTY) {
		LLVMBuildBr(r->builder, s->body);
	} else {
		LLVMValueRef some = LLVMBuildICmp(r->builder, LLVMIntSLT, lo, s->hi, "");
		LLVMBuildCondBr(r->builder, some, s->body, s->exit);
	}
	continue_in(r, s->body);
	s->index = LLVMBuildPhi(r->builder, llvm_type(r->module, i->type), i->name);
	LLVMAddIncoming(s->index, &lo, &before, 1);
	return s->index;
}

/* Steps the index, tests at the end of the body and closes the loop. NSW: no range comes near the limit of an
 * index. */
LLVMValueRef llvm_emit_end_loop(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = &r->scopes[--r->n_scopes];
	LLVMValueRef step = llvm_int(r->module, KB_INDEX_T, s->step);
	LLVMValueRef next = LLVMBuildNSWAdd(r->builder, s->index, step, "");
	LLVMValueRef more = LLVMBuildICmp(r->builder, LLVMIntSLT, next, s->hi, "");
	LLVMBasicBlockRef latch = LLVMGetInsertBlock(r->builder);
	LLVMBuildCondBr(r->builder, more, s->body, s->exit);
	LLVMAddIncoming(s->index, &next, &latch, 1);
	(void)i;
	return continue_in(r, s->exit);
}

/* A loop without test, left by break_if. */
LLVMValueRef llvm_emit_forever(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = push_scope(r);
	s->body = new_block(r, "forever");
	s->exit = new_block(r, "end");
	LLVMBuildBr(r->builder, s->body);
	(void)i;
	return continue_in(r, s->body);
}

/* Leaves the innermost forever; the code after continues in a new block. */
LLVMValueRef llvm_emit_break_if(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMBasicBlockRef on = new_block(r, "on");
	LLVMBuildCondBr(r->builder, llvm_operand(r, i, 0), r->scopes[r->n_scopes - 1].exit, on);
	return continue_in(r, on);
}

LLVMValueRef llvm_emit_end_forever(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = &r->scopes[--r->n_scopes];
	(void)i;
	LLVMBuildBr(r->builder, s->body);
	return continue_in(r, s->exit);
}

/* ---- conditions ---- */

/* The scope's exit is the block for a false condition until `else` changes it to the block after both. */
LLVMValueRef llvm_emit_if(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = push_scope(r);
	LLVMBasicBlockRef then = new_block(r, "then");
	s->exit = new_block(r, "else");
	LLVMBuildCondBr(r->builder, llvm_operand(r, i, 0), then, s->exit);
	return continue_in(r, then);
}

/* Ends the first branch and continues in the second. */
LLVMValueRef llvm_emit_else(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = &r->scopes[r->n_scopes - 1];
	LLVMBasicBlockRef otherwise = s->exit;
	(void)i;
	s->exit = new_block(r, "endif");
	LLVMBuildBr(r->builder, s->exit);
	return continue_in(r, otherwise);
}

LLVMValueRef llvm_emit_end_if(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = &r->scopes[--r->n_scopes];
	(void)i;
	LLVMBuildBr(r->builder, s->exit);
	return continue_in(r, s->exit);
}

/* ---- calls ---- */

/* Returns; code that follows goes to a block without predecessors, because a block ends at its return. */
LLVMValueRef llvm_emit_return(struct llvm_func *r, const struct kb_inst *i)
{
	if (i->n_args)
		LLVMBuildRet(r->builder, llvm_operand(r, i, 0));
	else
		LLVMBuildRetVoid(r->builder);
	return continue_in(r, new_block(r, "after"));
}

/* A call with operands from `first` on. fn NULL: an external function, which is declared here by the types of the
 * arguments. */
static LLVMValueRef emit_call(struct llvm_func *r, LLVMValueRef fn, const struct kb_inst *i, size_t first)
{
	size_t n = i->n_args - first;
	LLVMTypeRef *types = ARENA_ARRAY(r->module->arena, LLVMTypeRef, n + 1);
	LLVMValueRef *args = ARENA_ARRAY(r->module->arena, LLVMValueRef, n + 1);
	if (!types || !args)
		return NULL;
	for (size_t k = 0; k < n; k++) {
		args[k] = llvm_operand(r, i, first + k);
		types[k] = LLVMTypeOf(args[k]);
	}
	LLVMTypeRef type =
	        LLVMFunctionType(llvm_scalar_type(r->module, i->type.scalar), types, (unsigned)n, 0);
	if (!fn)
		fn = LLVMAddFunction(r->module->module, i->name, type);
	return LLVMBuildCall2(r->builder, type, fn, args, (unsigned)n, "");
}

/* Functions of the module have been declared before all bodies; an external one is declared at its first call. */
LLVMValueRef llvm_emit_call(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef fn = LLVMGetNamedFunction(r->module->module, i->name);
	if (!fn && !(i->flags & KB_EXTERNAL)) {
		llvm_emit_fail(r->module, "a call of a function that is not defined");
		return NULL;
	}
	return emit_call(r, fn, i, 0);
}

LLVMValueRef llvm_emit_call_ptr(struct llvm_func *r, const struct kb_inst *i)
{
	return emit_call(r, llvm_operand(r, i, 0), i, 1);
}

LLVMValueRef llvm_emit_param(struct llvm_func *r, const struct kb_inst *i)
{
	(void)i;
	return LLVMGetParam(r->function, r->n_params++);
}

LLVMValueRef llvm_emit_comment(struct llvm_func *r, const struct kb_inst *i)
{
	(void)r;
	(void)i;
	return NULL;
}
