/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a kernel builder's record as an LLVM module: data, functions with
 * their attributes, and one instruction after another. All functions are
 * declared before the first body, so that calls need no order.
 */
#include "backends/llvm/replay.h"

#include <string.h>

void replay_fail(struct replay_module *m, const char *what)
{
	if (!m->error)
		m->error = what;
}

LLVMTypeRef replay_scalar(const struct replay_module *m, enum kb_scalar s)
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

LLVMTypeRef replay_type(const struct replay_module *m, struct kb_type t)
{
	LLVMTypeRef s = replay_scalar(m, t.scalar);
	return t.lanes > 1 ? LLVMVectorType(s, (unsigned)t.lanes) : s;
}

LLVMValueRef replay_intrinsic(struct replay *r, const char *name, LLVMTypeRef *types, size_t n_types,
                              LLVMValueRef *args, unsigned n_args)
{
	struct replay_module *m = r->module;
	unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
	LLVMValueRef fn = LLVMGetIntrinsicDeclaration(m->module, id, types, n_types);
	LLVMTypeRef type = LLVMIntrinsicGetType(m->context, id, types, n_types);
	return LLVMBuildCall2(r->builder, type, fn, args, n_args, "");
}

/* ---- attributes ---- */

static void enum_attribute(const struct replay_module *m, LLVMValueRef fn, LLVMAttributeIndex at,
                           const char *name, uint64_t value)
{
	unsigned kind = LLVMGetEnumAttributeKindForName(name, strlen(name));
	LLVMAddAttributeAtIndex(fn, at, LLVMCreateEnumAttribute(m->context, kind, value));
}

static void text_attribute(const struct replay_module *m, LLVMValueRef fn, const char *key, const char *value)
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

static const struct target *target_of(const struct replay_module *m, const struct kb_func *f)
{
	bool is_one = m->options->variants && f->variant != KB_BASELINE;
	return is_one ? m->options->variants[f->variant] : m->options->target;
}

static void features_attribute(const struct replay_module *m, LLVMValueRef fn, const struct target *t)
{
	char features[TARGET_FEATURES_BYTES];
	target_features_string(t, features);
	if (features[0])
		text_attribute(m, fn, "target-features", features);
}

/* Equal strings on all functions of a variant, or LLVM would refuse to inline and split vectors. */
static void function_attributes(const struct replay_module *m, LLVMValueRef fn, const struct kb_func *f)
{
	const struct target *t = target_of(m, f);
	LLVMAttributeIndex at = (LLVMAttributeIndex)LLVMAttributeFunctionIndex;
	bool baseline = f->variant == KB_BASELINE;
	enum_attribute(m, fn, at, "nounwind", 0);
	enum_attribute(m, fn, at, "uwtable", 2); /* an .eh_frame for debuggers and C++ callers */
	text_attribute(m, fn, "frame-pointer", "none");
	text_attribute(m, fn, "no-builtins", "");        /* loops that copy stay loops */
	text_attribute(m, fn, "no-jump-tables", "true"); /* tables of addresses need relocations at load */
	text_attribute(m, fn, "target-cpu", baseline ? baseline_cpu(t->arch) : t->llvm_cpu);
	if (!baseline)
		features_attribute(m, fn, t);
	if (!baseline && t->lanes == 16) {
		text_attribute(m, fn, "min-legal-vector-width", "512");
		text_attribute(m, fn, "prefer-vector-width", "512");
	}
}

static void param_attributes(const struct replay_module *m, LLVMValueRef fn, unsigned number, unsigned flags)
{
	enum_attribute(m, fn, number + 1, "noundef", 0);
	if (flags & KB_NOALIAS)
		enum_attribute(m, fn, number + 1, "noalias", 0);
	if (flags & KB_READONLY)
		enum_attribute(m, fn, number + 1, "readonly", 0);
}

/* ---- module level ---- */

static void declare(struct replay_module *m, const struct kb_func *f)
{
	LLVMTypeRef *types = ARENA_ARRAY(m->arena, LLVMTypeRef, f->n_insts + 1);
	unsigned n = 0;
	if (!types)
		return;
	while (n < f->n_insts && f->insts[n].op == KBO_PARAM) {
		types[n] = replay_type(m, f->insts[n].type);
		n++;
	}
	LLVMTypeRef type = LLVMFunctionType(replay_scalar(m, f->result), types, n, 0);
	LLVMValueRef fn = LLVMAddFunction(m->module, f->name, type);
	if (f->linkage == KB_INTERNAL)
		LLVMSetLinkage(fn, LLVMInternalLinkage);
	function_attributes(m, fn, f);
	for (unsigned i = 0; i < n; i++) {
		LLVMValueRef p = LLVMGetParam(fn, i);
		LLVMSetValueName2(p, f->insts[i].name, strlen(f->insts[i].name));
		param_attributes(m, fn, i, f->insts[i].flags);
	}
}

static void define_data(struct replay_module *m, const struct kb_data_item *d)
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

static LLVMValueRef refuse_groups(struct replay *r, const struct kb_inst *i)
{
	(void)i;
	replay_fail(r->module, "machine code has no work-groups");
	return NULL;
}
#define replay_shared      refuse_groups
#define replay_group_id    refuse_groups
#define replay_group_count refuse_groups
#define replay_item_id     refuse_groups
#define replay_device_dot  refuse_groups
#define replay_barrier     refuse_groups

static replay_op *const ops[] = {
#define KB_OP(op, name, effect) [KBO_##op] = replay_##name,
#include "backends/kb/kb_ops.def"
};

static bool has_result(const struct kb_inst *i)
{
	return i->result && i->op != KBO_VAR;
}

static void replay_body(struct replay *r)
{
	const struct kb_func *f = r->record;
	for (size_t i = 0; i < f->n_insts; i++) {
		const struct kb_inst *inst = &f->insts[i];
		LLVMValueRef v = ops[inst->op](r, inst);
		if (has_result(inst))
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

static void replay_function(struct replay_module *m, const struct kb_func *f)
{
	const struct target *target = target_of(m, f);
	f = kb_legalize(f, m->arena, &f->caps);
	struct replay r = {.module = m, .target = target, .record = f};
	r.function = LLVMGetNamedFunction(m->module, f->name);
	r.values = ARENA_ARRAY(m->arena, LLVMValueRef, f->n_values + 1);
	r.vars = ARENA_ARRAY(m->arena, LLVMValueRef, f->n_vars + 1);
	r.scopes = ARENA_ARRAY(m->arena, struct replay_scope, f->n_insts + 1);
	if (!r.function || !r.values || !r.vars || !r.scopes) {
		replay_fail(m, "a function was not declared");
		return;
	}
	LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(m->context, r.function, "entry");
	LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(m->context, r.function, "start");
	r.entry = LLVMCreateBuilderInContext(m->context);
	r.builder = LLVMCreateBuilderInContext(m->context);
	LLVMPositionBuilderAtEnd(r.entry, entry);
	LLVMPositionBuilderBefore(r.entry, LLVMBuildBr(r.entry, start));
	LLVMPositionBuilderAtEnd(r.builder, start);
	replay_body(&r);
	LLVMDisposeBuilder(r.builder);
	LLVMDisposeBuilder(r.entry);
}

bool replay_all(struct replay_module *m)
{
	for (size_t i = 0; i < kb_data_count(m->record); i++)
		define_data(m, kb_data_at(m->record, i));
	for (size_t i = 0; i < kb_func_count(m->record); i++)
		declare(m, kb_func_at(m->record, i));
	for (size_t i = 0; i < kb_func_count(m->record) && !m->error; i++)
		replay_function(m, kb_func_at(m->record, i));
	if (arena_failed(m->arena))
		replay_fail(m, "no memory");
	return m->error == NULL;
}
