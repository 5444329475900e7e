/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code generation: LLVM module, verifier, passes, machine code. The only pass is mem2reg (variables are emitted as
 * allocas): kernel generators already schedule, unroll and vectorize; other pass lists cost compile time and gained
 * nothing.
 */
#include "backends/object/llvm_guard.h"
#include "backends/object/llvm_emit.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <string.h>

#include "ir/support/memory.h"

#define PASSES "function(mem2reg)"

struct codegen {
	struct diag_context *cx;
	const char *name;
	const struct llvm_output *out;
	struct llvm_module llvm;
	LLVMTargetMachineRef machine;
	const char *phase; /* name for the progress display */
	uint64_t n_done;   /* functions finished in that phase */
	bool failed;
};

static void fail(struct codegen *g, const char *what, const char *detail)
{
	diag_error(g->cx, LOC_NONE, DIAG_INTERNAL, "%s: %s", what, detail ? detail : "");
	g->failed = true;
}

/* LLVM's AsmPrinter emits one optimization remark for each function, which is used to report progress. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *user)
{
	struct codegen *g = user;
	if (LLVMGetDiagInfoSeverity(info) == LLVMDSRemark)
		progress_report(g->llvm.options->progress, g->phase, "functions", ++g->n_done,
		                kb_func_count(g->llvm.kernels));
	if (LLVMGetDiagInfoSeverity(info) != LLVMDSError)
		return;
	char *text = LLVMGetDiagInfoDescription(info);
	fail(g, "LLVM", text);
	LLVMDisposeMessage(text);
}

/* Returns the target triple. No module has that of OpenCL: llvm_compile rejects the target, as its kernels are emitted
 * as OpenCL C. */
static const char *triple_of(enum target_arch arch)
{
	switch (arch) {
	case ARCH_X86_64: return "x86_64-unknown-linux-gnu";
	case ARCH_AARCH64: return "aarch64-unknown-linux-gnu";
	case ARCH_OPENCL: return "spir64";
	}
	return "";
}

static void initialise(enum target_arch arch)
{
	switch (arch) {
	case ARCH_X86_64:
		LLVMInitializeX86TargetInfo();
		LLVMInitializeX86Target();
		LLVMInitializeX86TargetMC();
		LLVMInitializeX86AsmPrinter();
		LLVMInitializeX86AsmParser();
		return;
	case ARCH_AARCH64:
		LLVMInitializeAArch64TargetInfo();
		LLVMInitializeAArch64Target();
		LLVMInitializeAArch64TargetMC();
		LLVMInitializeAArch64AsmPrinter();
		LLVMInitializeAArch64AsmParser();
		return;
	case ARCH_OPENCL: return;
	}
}

static void create_machine(struct codegen *g)
{
	static const LLVMCodeGenOptLevel levels[] = {LLVMCodeGenLevelNone, LLVMCodeGenLevelDefault,
	                                             LLVMCodeGenLevelDefault};
	const struct llvm_options *o = g->llvm.options;
	const char *triple = triple_of(o->target->arch);
	LLVMTargetRef target = NULL;
	char *error = NULL;
	initialise(o->target->arch);
	if (LLVMGetTargetFromTriple(triple, &target, &error)) {
		fail(g, "LLVM has no such target", error);
		LLVMDisposeMessage(error);
		return;
	}
	int level = o->opt_level < 0 ? 0 : o->opt_level > 2 ? 2 : o->opt_level;
	/* LLVM 19 at -O0 cannot select some bf16 stores on aarch64. */
	LLVMCodeGenOptLevel effort =
	        level == 0 && o->target->arch == ARCH_AARCH64 ? LLVMCodeGenLevelLess : levels[level];
	char features[TARGET_FEATURES_BYTES];
	target_features_string(o->target, features);
	g->machine = LLVMCreateTargetMachine(target, triple, o->target->llvm_cpu, features, effort,
	                                     LLVMRelocPIC, LLVMCodeModelSmall);
	if (!g->machine)
		fail(g, "LLVM", "no target machine");
}

static void add_module_flag(struct codegen *g, const char *name, uint64_t value)
{
	LLVMTypeRef i32 = LLVMInt32TypeInContext(g->llvm.context);
	LLVMMetadataRef v = LLVMValueAsMetadata(LLVMConstInt(i32, value, 0));
	LLVMAddModuleFlag(g->llvm.module, LLVMModuleFlagBehaviorOverride, name, strlen(name), v);
}

/* Creates the context and the empty module. The flags mark the object as compatible with control-flow protection
 * (CET, BTI): the linker disables it for the whole program if one object lacks the mark. */
static void create_module(struct codegen *g)
{
	enum target_arch arch = g->llvm.options->target->arch;
	g->llvm.context = LLVMContextCreate();
	LLVMContextSetDiagnosticHandler(g->llvm.context, on_diagnostic, g);
	g->llvm.module = LLVMModuleCreateWithNameInContext(g->name, g->llvm.context);
	LLVMSetTarget(g->llvm.module, triple_of(arch));
	LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(g->machine);
	LLVMSetModuleDataLayout(g->llvm.module, layout);
	LLVMDisposeTargetData(layout);
	add_module_flag(g, "PIC Level", 2);
	if (arch == ARCH_X86_64) {
		add_module_flag(g, "cf-protection-branch", 1);
		add_module_flag(g, "cf-protection-return", 1);
	} else if (arch == ARCH_AARCH64) {
		add_module_flag(g, "branch-target-enforcement", 1);
	}
}

static void verify_and_optimize(struct codegen *g)
{
	char *error = NULL;
	if (LLVMVerifyModule(g->llvm.module, LLVMReturnStatusAction, &error))
		fail(g, "LLVM's verifier", error);
	LLVMDisposeMessage(error);
	if (g->failed)
		return;
	LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
	LLVMErrorRef failure = LLVMRunPasses(g->llvm.module, PASSES, g->machine, options);
	LLVMDisposePassBuilderOptions(options);
	if (!failure)
		return;
	char *text = LLVMGetErrorMessage(failure);
	fail(g, "LLVM's passes", text);
	LLVMDisposeErrorMessage(text);
}

/* Emits machine code or assembly into `out`. It modifies the module. */
static void emit(struct codegen *g, LLVMModuleRef module, LLVMCodeGenFileType kind, struct buf *out)
{
	LLVMMemoryBufferRef bytes = NULL;
	char *error = NULL;
	g->phase = kind == LLVMObjectFile ? "machine code" : "assembly";
	g->n_done = 0;
	if (LLVMTargetMachineEmitToMemoryBuffer(g->machine, module, kind, &error, &bytes)) {
		fail(g, "LLVM's code generation", error);
		LLVMDisposeMessage(error);
		return;
	}
	buf_bytes(out, LLVMGetBufferStart(bytes), LLVMGetBufferSize(bytes));
	LLVMDisposeMemoryBuffer(bytes);
}

static void emit_outputs(struct codegen *g)
{
	const struct llvm_output *out = g->out;
	if (out->text) {
		char *text = LLVMPrintModuleToString(g->llvm.module);
		buf_str(out->text, text);
		LLVMDisposeMessage(text);
	}
	if (out->assembly) { /* on a copy, because the object needs the unmodified module */
		LLVMModuleRef copy = LLVMCloneModule(g->llvm.module);
		LLVMSetTargetMachineAsmVerbosity(g->machine, 1);
		emit(g, copy, LLVMAssemblyFile, out->assembly);
		LLVMDisposeModule(copy);
	}
	if (out->object && !g->failed)
		emit(g, g->llvm.module, LLVMObjectFile, out->object);
}

/* Runs under llvm_guard. */
static void compile(void *user)
{
	struct codegen *g = user;
	create_machine(g);
	if (!g->failed) {
		create_module(g);
		if (!llvm_emit_module(&g->llvm))
			fail(g, "LLVM IR", g->llvm.error);
	}
	if (!g->failed)
		verify_and_optimize(g);
	if (!g->failed)
		emit_outputs(g);
	if (g->llvm.module)
		LLVMDisposeModule(g->llvm.module);
	if (g->llvm.context)
		LLVMContextDispose(g->llvm.context);
	if (g->machine)
		LLVMDisposeTargetMachine(g->machine);
}

enum tfmc_status llvm_compile(struct diag_context *cx, const struct kb_module *m, const char *name,
                              const struct llvm_options *options, const struct llvm_output *out)
{
	struct arena arena;
	if (options->target->arch == ARCH_OPENCL) {
		diag_error(cx, LOC_NONE, DIAG_TARGET,
		           "target %s has no machine code; its kernels are source text",
		           options->target->name);
		return TFMC_INVALID;
	}
	arena_init(&arena);
	struct codegen g = {.cx = cx,
	                    .name = name,
	                    .out = out,
	                    .phase = "machine code",
	                    .llvm = {.kernels = m, .options = options, .arena = &arena}};
	memory_stage("generating code", NULL);
	enum tfmc_status status = llvm_guard(cx, compile, &g);
	arena_destroy(&arena);
	if (status != TFMC_OK || g.failed)
		return status != TFMC_OK ? status : TFMC_INTERNAL;
	bool failed = (out->object && buf_failed(out->object)) || (out->text && buf_failed(out->text)) ||
	              (out->assembly && buf_failed(out->assembly));
	return failed ? TFMC_NO_MEMORY : TFMC_OK;
}
