/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay of a record as LLVM IR: what its files share. One struct per
 * function under construction; values, variables and open constructs are
 * looked up by the record's numbers.
 */
#ifndef TFMC_BACKENDS_LLVM_EMIT_H
#define TFMC_BACKENDS_LLVM_EMIT_H

#include <llvm-c/Core.h>

#include "backends/llvm/llvm.h"

struct llvm_module {
	const struct kb_module *kernels;
	const struct llvm_options *options;
	LLVMContextRef context;
	LLVMModuleRef module;
	struct arena *arena; /* for the time of the replay */
	const char *error;   /* the first thing that does not fit, NULL: none */
};

/* A loop, forever or if that is open. */
struct llvm_scope {
	LLVMBasicBlockRef body; /* loops: where to go on */
	LLVMBasicBlockRef exit; /* loops: after; if: the else block, then the block after */
	LLVMValueRef index, hi; /* LOOP */
	int64_t step;
};

struct llvm_func {
	struct llvm_module *module;
	const struct target *target; /* what the function is for */
	const struct kb_func *ir;
	LLVMValueRef function;
	LLVMBuilderRef builder;    /* at the current end */
	LLVMBuilderRef entry;      /* before the terminator of the entry block: allocas */
	LLVMValueRef *values;      /* [n_values] */
	LLVMValueRef *vars;        /* [n_vars]: allocas */
	unsigned n_params;         /* met so far */
	struct llvm_scope *scopes; /* [n_scopes] */
	size_t n_scopes;
};

LLVMTypeRef llvm_scalar_type(const struct llvm_module *m, enum kb_scalar s);
LLVMTypeRef llvm_type(const struct llvm_module *m, struct kb_type t);
/* Integer constant, splat over the lanes of t (f32 and f16 kinds of the same width: as integers). */
LLVMValueRef llvm_int(const struct llvm_module *m, struct kb_type t, int64_t v);
/* Call of the intrinsic `name`, overloaded on `n_types` types. */
LLVMValueRef llvm_intrinsic(struct llvm_func *r, const char *name, LLVMTypeRef *types, size_t n_types,
                            LLVMValueRef *args, unsigned n_args);
LLVMValueRef llvm_splat(struct llvm_func *r, LLVMValueRef scalar, int lanes);
/* Lanes [from, from + n) of a vector. */
LLVMValueRef llvm_lanes(struct llvm_func *r, LLVMValueRef v, int from, int n);
static inline LLVMValueRef llvm_operand(const struct llvm_func *r, const struct kb_inst *i, size_t n)
{
	return r->values[i->args[n].id];
}
static inline struct kb_type llvm_operand_type(const struct llvm_func *r, const struct kb_inst *i, size_t n)
{
	return r->ir->types[i->args[n].id];
}

/* Remembers what does not fit; the replay goes on with undefined values. */
void llvm_emit_fail(struct llvm_module *m, const char *what);

/* Replays one operation: its value; anything when it gives none. */
typedef LLVMValueRef llvm_emit_op(struct llvm_func *r, const struct kb_inst *i);
#define KB_OP(op, name, effect) llvm_emit_op llvm_emit_##name;
#include "backends/kb/kb_ops.def"

/* Fills the module: data, declarations, bodies. False after llvm_emit_fail. */
bool llvm_emit_module(struct llvm_module *m);

#endif
