/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of memory: variables and local arrays as allocas of the entry block,
 * loads and stores. The constant displacement stays a second address step, so
 * that instruction selection folds it into the instruction. No address is
 * `inbounds`: prefetches and panel walks may point after their tensor.
 */
#include "backends/llvm/replay.h"

#include <string.h>

static LLVMValueRef step(struct replay *r, LLVMTypeRef element, LLVMValueRef ptr, LLVMValueRef index)
{
	if (LLVMIsConstant(index) && LLVMIsNull(index))
		return ptr;
	return LLVMBuildGEP2(r->builder, element, ptr, &index, 1, "");
}

/* ptr + (index + disp) elements. */
static LLVMValueRef address(struct replay *r, enum kb_scalar s, LLVMValueRef ptr, LLVMValueRef index,
                            int64_t disp)
{
	LLVMTypeRef element = replay_scalar(r->module, s);
	LLVMValueRef base = step(r, element, ptr, index);
	return step(r, element, base, replay_int(r->module, KB_INDEX_T, disp));
}

static LLVMValueRef build_load(struct replay *r, const struct kb_inst *i, struct kb_type type)
{
	LLVMValueRef at = address(r, type.scalar, replay_arg(r, i, 0), replay_arg(r, i, 1), i->imm);
	LLVMValueRef v = LLVMBuildLoad2(r->builder, replay_type(r->module, type), at, "");
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

LLVMValueRef replay_load(struct replay *r, const struct kb_inst *i)
{
	return build_load(r, i, i->type);
}

LLVMValueRef replay_load_splat(struct replay *r, const struct kb_inst *i)
{
	return replay_splat_value(r, build_load(r, i, KB_TYPE(i->type.scalar, 1)), i->type.lanes);
}

LLVMValueRef replay_store(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef at = address(r, i->type.scalar, replay_arg(r, i, 1), replay_arg(r, i, 2), i->imm);
	LLVMValueRef v = LLVMBuildStore(r->builder, replay_arg(r, i, 0), at);
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

/* The first n of `lanes` lanes. */
static LLVMValueRef first_lanes(struct replay *r, int n, int lanes)
{
	LLVMValueRef bits[KB_LANES_MAX];
	LLVMTypeRef type = replay_scalar(r->module, KB_BOOL);
	for (int k = 0; k < lanes; k++)
		bits[k] = LLVMConstInt(type, k < n, 0);
	return LLVMConstVector(bits, (unsigned)lanes);
}

LLVMValueRef replay_load_part(struct replay *r, const struct kb_inst *i)
{
	LLVMTypeRef type = replay_type(r->module, i->type);
	LLVMTypeRef types[] = {type, replay_scalar(r->module, KB_PTR)};
	LLVMValueRef args[] = {
	        address(r, i->type.scalar, replay_arg(r, i, 0), replay_arg(r, i, 1), i->imm),
	        replay_int(r->module, KB_I32_T, i->align),
	        first_lanes(r, i->n_lanes, i->type.lanes),
	        LLVMConstNull(type),
	};
	return replay_intrinsic(r, "llvm.masked.load", types, 2, args, 4);
}

LLVMValueRef replay_store_part(struct replay *r, const struct kb_inst *i)
{
	LLVMTypeRef types[] = {replay_type(r->module, i->type), replay_scalar(r->module, KB_PTR)};
	LLVMValueRef args[] = {
	        replay_arg(r, i, 0),
	        address(r, i->type.scalar, replay_arg(r, i, 1), replay_arg(r, i, 2), i->imm),
	        replay_int(r->module, KB_I32_T, i->align),
	        first_lanes(r, i->n_lanes, i->type.lanes),
	};
	return replay_intrinsic(r, "llvm.masked.store", types, 2, args, 4);
}

LLVMValueRef replay_prefetch(struct replay *r, const struct kb_inst *i)
{
	LLVMTypeRef ptr = replay_scalar(r->module, KB_PTR);
	int locality = i->flags & KB_L2 ? 2 : 3; /* from the second level on, or in all */
	LLVMValueRef args[] = {
	        address(r, KB_I8, replay_arg(r, i, 0), replay_arg(r, i, 1), i->imm),
	        replay_int(r->module, KB_I32_T, 0),                                            /* read */
	        replay_int(r->module, KB_I32_T, locality), replay_int(r->module, KB_I32_T, 1), /* data */
	};
	return replay_intrinsic(r, "llvm.prefetch", &ptr, 1, args, 4);
}

/* ---- variables ---- */

LLVMValueRef replay_var(struct replay *r, const struct kb_inst *i)
{
	r->vars[i->result] = LLVMBuildAlloca(r->entry, replay_type(r->module, i->type), i->name);
	if (i->n_args)
		LLVMBuildStore(r->builder, replay_arg(r, i, 0), r->vars[i->result]);
	return NULL;
}

LLVMValueRef replay_get(struct replay *r, const struct kb_inst *i)
{
	return LLVMBuildLoad2(r->builder, replay_type(r->module, i->type), r->vars[i->imm], "");
}

LLVMValueRef replay_set(struct replay *r, const struct kb_inst *i)
{
	return LLVMBuildStore(r->builder, replay_arg(r, i, 0), r->vars[i->imm]);
}

LLVMValueRef replay_local(struct replay *r, const struct kb_inst *i)
{
	LLVMTypeRef element = replay_scalar(r->module, i->element);
	LLVMValueRef v = LLVMBuildAlloca(r->entry, LLVMArrayType2(element, (uint64_t)i->imm), i->name);
	LLVMSetAlignment(v, (unsigned)i->align);
	return v;
}

/* ---- names ---- */

/* Data of the record, or data that is added to the object later: hidden, so that its address needs no table.
 */
LLVMValueRef replay_symbol(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef g = LLVMGetNamedGlobal(r->module->module, i->name);
	if (g)
		return g;
	g = LLVMAddGlobal(r->module->module, replay_scalar(r->module, KB_I8), i->name);
	LLVMSetGlobalConstant(g, 1);
	LLVMSetVisibility(g, LLVMHiddenVisibility);
	return g;
}

LLVMValueRef replay_func_addr(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef fn = LLVMGetNamedFunction(r->module->module, i->name);
	if (!fn)
		replay_fail(r->module, "the address of a function that is not defined");
	return fn;
}

LLVMValueRef replay_string(struct replay *r, const struct kb_inst *i)
{
	return LLVMBuildGlobalStringPtr(r->builder, i->name, "text");
}

/* ---- atomics ---- */

/* The i32 that operand k points to. */
static LLVMValueRef atomic(struct replay *r, const struct kb_inst *i, size_t k)
{
	return address(r, KB_I32, replay_arg(r, i, k), replay_int(r->module, KB_INDEX_T, 0), i->imm);
}

LLVMValueRef replay_atomic_load(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef v = LLVMBuildLoad2(r->builder, replay_scalar(r->module, KB_I32), atomic(r, i, 0), "");
	LLVMSetOrdering(v, LLVMAtomicOrderingAcquire);
	LLVMSetAlignment(v, 4);
	return v;
}

LLVMValueRef replay_atomic_store(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef v = LLVMBuildStore(r->builder, replay_arg(r, i, 0), atomic(r, i, 1));
	LLVMSetOrdering(v, LLVMAtomicOrderingRelease);
	LLVMSetAlignment(v, 4);
	return v;
}

LLVMValueRef replay_atomic_add(struct replay *r, const struct kb_inst *i)
{
	return LLVMBuildAtomicRMW(r->builder, LLVMAtomicRMWBinOpAdd, atomic(r, i, 1), replay_arg(r, i, 0),
	                          LLVMAtomicOrderingAcquireRelease, 0);
}

/* ---- addresses ---- */

LLVMValueRef replay_ptr_add(struct replay *r, const struct kb_inst *i)
{
	return address(r, KB_I8, replay_arg(r, i, 0), replay_arg(r, i, 1), i->imm);
}

/* Through an empty instruction. */
LLVMValueRef replay_ptr_apart(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef ptr = replay_arg(r, i, 0);
	LLVMTypeRef ptr_type = LLVMTypeOf(ptr), type = LLVMFunctionType(ptr_type, &ptr_type, 1, 0);
	const char *same = "=r,0";
	LLVMValueRef code =
	        LLVMGetInlineAsm(type, "", 0, same, strlen(same), 0, 0, LLVMInlineAsmDialectATT, 0);
	return LLVMBuildCall2(r->builder, type, code, &ptr, 1, "");
}
