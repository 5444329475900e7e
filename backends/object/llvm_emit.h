/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of kernel IR as LLVM IR, internal interface: the module, and the function under construction, whose
 * values, variables and scopes are looked up by their ids in the kernel IR.
 */
#ifndef TFMC_BACKENDS_OBJECT_LLVM_EMIT_H
#define TFMC_BACKENDS_OBJECT_LLVM_EMIT_H

#include <llvm-c/Core.h>

#include "backends/object/llvm.h"

struct llvm_module {
	const struct kb_module *kernels;
	const struct llvm_options *options;
	LLVMContextRef context;
	LLVMModuleRef module;
	struct arena *arena;      /* freed after the emission */
	struct llvm_debug *debug; /* NULL: no debug information */
	const char *error;        /* the first error, NULL: none */
};

/* An open LOOP, FOREVER or IF. */
struct llvm_scope {
	LLVMBasicBlockRef body; /* loops: the body, target of the back edge */
	LLVMBasicBlockRef exit; /* loops: the block after; IF: the else block, from ELSE on the block after */
	LLVMValueRef index, hi; /* LOOP */
	int64_t step;
};

struct llvm_func {
	struct llvm_module *module;
	const struct target *target; /* of the function's variant */
	const struct kb_func *ir;
	LLVMValueRef function;
	LLVMBuilderRef builder;    /* at the current end */
	LLVMBuilderRef entry;      /* before the terminator of the entry block: allocas */
	LLVMValueRef *values;      /* [n_values] */
	LLVMValueRef *vars;        /* [n_vars]: allocas */
	LLVMValueRef bf16_mask;    /* opaque_bf16_mask; NULL: not emitted yet */
	unsigned n_params;         /* emitted so far */
	struct llvm_scope *scopes; /* [n_scopes] */
	size_t n_scopes;
	LLVMMetadataRef scope;   /* the function in the debug information; NULL: it has none */
	uint32_t first_loc, loc; /* numbers for kb_loc_at: of the function, of the next instruction */
};

LLVMTypeRef llvm_type(const struct llvm_module *m, struct kb_type t);
/* The integer constant v in all lanes of t, an integer type. */
LLVMValueRef llvm_int(const struct llvm_module *m, struct kb_type t, int64_t v);
/* A call of the intrinsic `name`, overloaded on n_types types. */
LLVMValueRef llvm_intrinsic(struct llvm_func *r, const char *name, LLVMTypeRef *types, size_t n_types,
                            LLVMValueRef *args, unsigned n_args);
/* Lanes [from, from + n) of a vector; a scalar for n = 1. */
LLVMValueRef llvm_lanes(struct llvm_func *r, LLVMValueRef v, int from, int n);
/* Operand n of an instruction. */
static inline LLVMValueRef llvm_operand(const struct llvm_func *r, const struct kb_inst *i, size_t n)
{
	return r->values[i->args[n].id];
}
static inline struct kb_type llvm_operand_type(const struct llvm_func *r, const struct kb_inst *i, size_t n)
{
	return r->ir->types[i->args[n].id];
}

/* Sets the module's error, unless one is set; the emission of the function goes on with undefined values. */
void llvm_emit_fail(struct llvm_module *m, const char *what);

/* Emits one instruction. Returns its value; ignored if the operation has none. */
typedef LLVMValueRef llvm_emit_op(struct llvm_func *r, const struct kb_inst *i);
#define KB_OP(op, name, effect) llvm_emit_op llvm_emit_##name;
#include "backends/kb/kb_ops.def"

/* Debug information of the module: begun before the functions if instructions have locations, and ended after them. */
void llvm_debug_begin(struct llvm_module *m);
void llvm_debug_end(struct llvm_module *m);
/* Describes the function if its instructions have locations; at the start of its code. */
void llvm_debug_function(struct llvm_func *r);
/* Sets the location of the next instructions. */
void llvm_debug_loc(struct llvm_func *r, uint32_t number);

/* Fills the LLVM module: data, declarations, bodies. False after an error. */
bool llvm_emit_module(struct llvm_module *m);

#endif
