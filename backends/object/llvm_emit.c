/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emits a module of kernel IR as an LLVM module: data, functions with their attributes, instructions, control flow.
 * All functions are declared before the first body, so that calls may go to later ones.
 *
 * Loops are emitted in rotated form (test at the end), with a guard only if they may be empty, since no pass rotates
 * them later. Code after a return goes to a block without predecessors.
 */
#include "backends/object/llvm_emit.h"

#include <string.h>

void llvm_emit_fail(struct llvm_module *m, const char *what)
{
	if (!m->error)
		m->error = what;
}

LLVMTypeRef llvm_scalar_type(const struct llvm_module *m, enum kb_scalar s)
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

static const char *baseline_cpu(enum target_arch arch)
{
	switch (arch) {
	case ARCH_X86_64: return "x86-64";
	case ARCH_AARCH64: return "generic";
	case ARCH_OPENCL: return "";
	}
	return "";
}

static const struct target *target_of(const struct llvm_module *m, const struct kb_func *f)
{
	bool is_one = m->options->variants && f->variant != KB_BASELINE;
	return is_one ? m->options->variants[f->variant] : m->options->target;
}

/* All functions of a variant get equal strings: LLVM does not inline across different features and would split
 * vectors. */
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

static void emit_body(struct llvm_func *r)
{
	const struct kb_func *f = r->ir;
	for (size_t i = 0; i < f->n_insts; i++) {
		const struct kb_inst *inst = &f->insts[i];
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

/* Two entry blocks: allocas go to `entry`, code begins in `start`. */
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
	for (size_t i = 0; i < kb_func_count(m->kernels) && !m->error; i++)
		emit_function(m, kb_func_at(m->kernels, i));
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

static struct llvm_scope *push_scope(struct llvm_func *r)
{
	struct llvm_scope *s = &r->scopes[r->n_scopes++];
	*s = (struct llvm_scope){0};
	return s;
}

/* ---- loops ---- */

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

LLVMValueRef llvm_emit_forever(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = push_scope(r);
	s->body = new_block(r, "forever");
	s->exit = new_block(r, "end");
	LLVMBuildBr(r->builder, s->body);
	(void)i;
	return continue_in(r, s->body);
}

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

LLVMValueRef llvm_emit_if(struct llvm_func *r, const struct kb_inst *i)
{
	struct llvm_scope *s = push_scope(r);
	LLVMBasicBlockRef then = new_block(r, "then");
	s->exit = new_block(r, "else");
	LLVMBuildCondBr(r->builder, llvm_operand(r, i, 0), then, s->exit);
	return continue_in(r, then);
}

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
