/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of memory operations: variables and local arrays as allocas of the entry block, loads, stores, atomics.
 * The constant displacement is a second GEP, so that instruction selection folds it into the addressing mode. No GEP
 * is `inbounds`: prefetches and panel pointers may point past their tensor.
 */
#include "backends/object/llvm_emit.h"

#include <string.h>

/* ptr + index elements; no instruction for a constant 0. */
static LLVMValueRef gep(struct llvm_func *r, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index)
{
	if (LLVMIsConstant(index) && LLVMIsNull(index))
		return ptr;
	return LLVMBuildGEP2(r->builder, element, ptr, &index, 1, "");
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

/* Empty inline assembly with the pointer as input and output. */
LLVMValueRef llvm_emit_ptr_opaque(struct llvm_func *r, const struct kb_inst *i)
{
	LLVMValueRef ptr = llvm_operand(r, i, 0);
	LLVMTypeRef ptr_type = LLVMTypeOf(ptr), type = LLVMFunctionType(ptr_type, &ptr_type, 1, 0);
	const char *same = "=r,0";
	LLVMValueRef code =
	        LLVMGetInlineAsm(type, "", 0, same, strlen(same), 0, 0, LLVMInlineAsmDialectATT, 0);
	return LLVMBuildCall2(r->builder, type, code, &ptr, 1, "");
}
