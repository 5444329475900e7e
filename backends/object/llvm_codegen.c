/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code generation: LLVM module, verifier, passes, machine code, and its loading into this process. The only pass is
 * mem2reg (variables are emitted as allocas): kernel generators already schedule, unroll and vectorize; other pass
 * lists cost compile time and gained nothing.
 *
 * LLVM calls back and crashes rather than fails: everything that calls it runs under llvm_guard, which turns crashes,
 * fatal errors and lack of memory into a status: handlers (LLVM's fatal errors, the C++ new handler, signals)
 * siglongjmp out of LLVM; they and the jump target are process-wide. LLVM reports lack of memory as text, as an
 * exception that aborts, or by a crash, as it does not check allocations. The C API lacks some C++ functions: they are
 * looked up by mangled name, and skipped if absent.
 *
 * Code that is run in this process (JIT) is linked from the same object file; linking happens at the first look-up of a
 * symbol.
 */
#define _GNU_SOURCE /* RTLD_DEFAULT, dl_iterate_phdr */

#include "backends/backend.h"
#include "backends/object/llvm_emit.h"
#include "ir/support/diag.h"
#include "ir/support/memory.h"

#include <dlfcn.h>
#include <link.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/ErrorHandling.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <llvm/Config/llvm-config.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- crash recovery ---- */

#define PROBE_BYTES ((size_t)16 << 20) /* if so much cannot be mapped, a crash is taken for out of memory */
#define STACK_BYTES ((size_t)64 << 10) /* alternate signal stack, to survive stack overflow */

static const int crash_signals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE};

enum outcome { OUTCOME_OK, OUTCOME_FATAL, OUTCOME_CRASH, OUTCOME_MEMORY };

static struct {
	sigjmp_buf back;
	bool is_active;
	char why[256];
} guard;

static _Noreturn void jump_back(enum outcome how, const char *why)
{
	(void)snprintf(guard.why, sizeof(guard.why), "%s", why);
	siglongjmp(guard.back, (int)how);
}

/* True if a message of LLVM reports that memory ran out: there is no other sign of it. */
static bool llvm_is_memory_message(const char *text)
{
	static const char *const phrases[] = {"allocate memory",   "out of memory",
	                                      "Allocation failed", "allocate section memory",
	                                      "not enough memory", "bad alloc"};
	bool found = false;
	for (size_t i = 0; i < TFMC_COUNT(phrases); i++)
		found = found || strstr(text, phrases[i]);
	return found;
}

static void on_fatal(const char *why)
{
	jump_back(llvm_is_memory_message(why) ? OUTCOME_MEMORY : OUTCOME_FATAL, why);
}

static bool is_out_of_memory(void)
{
	void *p = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		munmap(p, PROBE_BYTES);
	return p == MAP_FAILED;
}

/* LLVM dereferences allocations unchecked, and uncaught C++ exceptions abort: both also happen when memory runs
 * out. */
static void on_crash(int number)
{
	jump_back(is_out_of_memory() ? OUTCOME_MEMORY : OUTCOME_CRASH,
	          number == SIGABRT ? "LLVM gave up" : "LLVM crashed");
}

typedef void (*new_handler)(void);

/* std::set_new_handler, by its mangled name, which the C API lacks. memcpy, since ISO C does not convert data pointers
 * to functions. */
static void set_new_handler(new_handler handler)
{
	new_handler (*set)(new_handler);
	void *at = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
	memcpy(&set, &at, sizeof(at));
	if (at)
		set(handler);
}

/* Called when a C++ allocation fails. Outside of the guard, too: LLVM allocates when its objects are destroyed, and an
 * exception would end the process without a message. Where memory_failed returns, the allocation is tried again,
 * without a handler. */
static void on_new(void)
{
	if (guard.is_active)
		jump_back(OUTCOME_MEMORY, "");
	memory_failed(0);
	set_new_handler(NULL);
}

static void on_bad_alloc(void *user, const char *why, bool is_crash_requested)
{
	(void)user;
	(void)why;
	(void)is_crash_requested;
	on_new();
}

/* Sets both handlers of failed allocations: of C++ (again, as on_new may have removed it) and of LLVM's own containers.
 * llvm::install_bad_alloc_error_handler is called only once: LLVM asserts that there is none yet. */
static void set_memory_handlers(void)
{
	static bool is_installed;
	void (*install)(void (*)(void *, const char *, bool), void *);
	void *at = dlsym(RTLD_DEFAULT, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
	memcpy(&install, &at, sizeof(at));
	set_new_handler(on_new);
	if (at && !is_installed)
		install(on_bad_alloc, NULL);
	is_installed = true;
}

/* The status for the outcome, with a diagnostic; cx NULL: without. Lack of memory is reported by memory_failed, whose
 * handler may not return. */
static enum tfmc_status report(struct diag_context *cx, enum outcome how)
{
	if (!cx && (how == OUTCOME_FATAL || how == OUTCOME_CRASH))
		return TFMC_INTERNAL;
	switch (how) {
	case OUTCOME_OK: return TFMC_OK;
	case OUTCOME_MEMORY: memory_failed(0); return TFMC_NO_MEMORY;
	case OUTCOME_FATAL: diag_error(cx, LOC_NONE, DIAG_INTERNAL, "LLVM: %s", guard.why); break;
	case OUTCOME_CRASH:
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "%s while code was generated", guard.why);
		break;
	}
	return TFMC_INTERNAL;
}

/*
 * Runs work(user). Returns TFMC_INTERNAL after a diagnostic (none if cx is NULL) if LLVM crashed, TFMC_NO_MEMORY if
 * its memory ran out (memory.h may have a handler that does not return). Installs process-wide handlers, of which those
 * for C++ allocations stay: not reentrant, one thread at a time. Handlers jump back to sigsetjmp, which returns
 * OUTCOME_OK (0) at first, then the outcome. Signals have their own stack: a crash may be an overflow of the stack.
 */
static enum tfmc_status llvm_guard(struct diag_context *cx, void (*work)(void *user), void *user)
{
	struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)(SA_ONSTACK | SA_NODEFER)};
	struct sigaction before[TFMC_COUNT(crash_signals)];
	static _Alignas(16) unsigned char stack[STACK_BYTES];
	stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)}, stack_before;
	sigaltstack(&other, &stack_before);
	for (size_t i = 0; i < TFMC_COUNT(crash_signals); i++)
		sigaction(crash_signals[i], &crash, &before[i]);
	LLVMInstallFatalErrorHandler(on_fatal);
	set_memory_handlers();
	guard.is_active = true;
	enum outcome how = (enum outcome)sigsetjmp(guard.back, 1);
	if (how == OUTCOME_OK)
		work(user);
	guard.is_active = false;
	LLVMResetFatalErrorHandler();
	for (size_t i = 0; i < TFMC_COUNT(crash_signals); i++)
		sigaction(crash_signals[i], &before[i], NULL);
	sigaltstack(&stack_before, NULL);
	return report(cx, how);
}

/* ---- resident pages ---- */

/* Drops the read-only pages of one shared library, if it is LLVM's; they are read from the file again on access.
 * Returns 0: the iteration over libraries goes on. */
static int release_module(struct dl_phdr_info *m, size_t size, void *user)
{
	const char *base = m->dlpi_name ? strrchr(m->dlpi_name, '/') : NULL;
	uintptr_t page = *(const uintptr_t *)user;
	(void)size;
	if (!base || strncmp(base, "/libLLVM", strlen("/libLLVM")) != 0)
		return 0;
	for (int i = 0; i < m->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &m->dlpi_phdr[i];
		uintptr_t begin = (m->dlpi_addr + p->p_vaddr + page - 1) / page * page,
		          end = (m->dlpi_addr + p->p_vaddr + p->p_memsz) / page * page;
		if (p->p_type == PT_LOAD && !(p->p_flags & PF_W) && begin < end)
			(void)madvise((void *)begin, end - begin,
			              MADV_DONTNEED); /* a hint: failure is harmless */
	}
	return 0;
}

/* Lowers the resident size of a process that is done with LLVM: the dynamic linker's relocations, with read-ahead,
 * leave 37 MB of clean pages of libLLVM resident. */
void backend_llvm_release(void)
{
	long size = sysconf(_SC_PAGESIZE);
	uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
	(void)dl_iterate_phdr(release_module, &page);
}

/* ---- code generation ---- */

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

/* Registers the LLVM back end of the architecture. OpenCL has none: its kernels are printed. */
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

/* Creates g->machine from the target and the level of optimization; fails if LLVM rejects them. Level 1 and 2 are
 * LLVM's default, which takes little longer than less. Position-independent code, as any program may link the
 * object. */
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

/* Adds a flag of 32 bits, which linking with other modules would override. */
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

/* Verifies before the passes, which may crash on invalid IR. */
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

/* Emits machine code or assembly into `out`. It modifies the module. on_diagnostic counts finished functions from 0 for
 * the progress of this phase. */
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

/* Emits the requested outputs: IR as text, assembly, the object; the object last, since it modifies the module. */
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

/* Makes all outputs; runs under llvm_guard, which jumps out of here after a crash: then nothing is disposed, since
 * LLVM's objects may be inconsistent. The module before the context that owns it. */
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

/* The buffers keep the first failure; they are looked at once, at the end. */
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

/* ---- loading into this process ---- */

/*
 * Loads an object file into this process with ORC LLJIT, unchanged: the code that runs is the code that is shipped.
 * External functions are the given ones (libtfmccl) or found in the process (memcpy, memset).
 */

#define FUNCTIONS_MAX 16

struct backend_jit {
	LLVMOrcLLJITRef jit;
	struct diag_context *cx;
	char why[256]; /* error of linking, which happens at the first look-up; "": none */
};

/* Arguments and results of a call under llvm_guard. */
struct call {
	struct backend_jit *jit;
	const struct buf *object;
	const struct backend_function *functions;
	size_t n_functions;
	const char *symbol;
	LLVMOrcExecutorAddress at;
	LLVMErrorRef error;
	LLVMOrcLLJITRef opened;
};

/* The object is valid, being ours: loading fails only for lack of memory or of permission to map code. */
static enum tfmc_status report_llvm(struct diag_context *cx, const char *text)
{
	if (llvm_is_memory_message(text)) {
		memory_failed(0);
		return TFMC_NO_MEMORY;
	}
	diag_environment_error(cx, LOC_NONE, DIAG_TARGET, "the code cannot be loaded into memory: %s", text);
	return TFMC_IO;
}

/* Errors during a look-up; the first one is the cause. */
static void on_session_error(void *user, LLVMErrorRef error)
{
	struct backend_jit *jit = user;
	char *text = LLVMGetErrorMessage(error);
	if (!*jit->why)
		(void)snprintf(jit->why, sizeof(jit->why), "%s", text);
	LLVMDisposeErrorMessage(text);
}

/* Lets loaded code call functions of this process, such as memcpy. Returns the error, NULL: none. */
static LLVMErrorRef add_process_symbols(LLVMOrcLLJITRef jit)
{
	LLVMOrcDefinitionGeneratorRef generator = NULL;
	LLVMErrorRef error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
	        &generator, LLVMOrcLLJITGetGlobalPrefix(jit), NULL, NULL);
	if (!error)
		LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit), generator);
	return error;
}

/* Defines the caller's functions by address, so that loaded code may call them. Returns the error, NULL: none. */
static LLVMErrorRef add_functions(LLVMOrcLLJITRef jit, const struct backend_function *functions, size_t n)
{
	LLVMOrcCSymbolMapPair pairs[FUNCTIONS_MAX];
	const LLVMJITSymbolFlags flags = {
	        LLVMJITSymbolGenericFlagsExported | LLVMJITSymbolGenericFlagsCallable, 0};
	for (size_t i = 0; i < n; i++)
		pairs[i] = (LLVMOrcCSymbolMapPair){LLVMOrcLLJITMangleAndIntern(jit, functions[i].name),
		                                   {functions[i].address, flags}};
	return LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit), LLVMOrcAbsoluteSymbols(pairs, n));
}

/* Creates the loader with the symbols that the object needs and adds the object. *jit is set even after an
 * error, if the loader itself was created, and is destroyed by the caller. */
static LLVMErrorRef open(LLVMOrcLLJITRef *jit, const struct call *c)
{
	LLVMInitializeNativeTarget();
	LLVMInitializeNativeAsmPrinter();
	LLVMErrorRef error = LLVMOrcCreateLLJIT(jit, NULL);
	if (error)
		return error;
	LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(*jit), on_session_error,
	                                        c->jit);
	error = add_process_symbols(*jit);
	if (!error && c->n_functions > 0)
		error = add_functions(*jit, c->functions, c->n_functions);
	if (error)
		return error;
	LLVMMemoryBufferRef bytes =
	        LLVMCreateMemoryBufferWithMemoryRangeCopy(c->object->data, c->object->len, "object");
	return LLVMOrcLLJITAddObjectFile(*jit, LLVMOrcLLJITGetMainJITDylib(*jit), bytes);
}

static void load(void *user)
{
	struct call *c = user;
	c->error = open(&c->opened, c);
}

/* The address is 0 on error. */
static void look_up(void *user)
{
	struct call *c = user;
	c->error = LLVMOrcLLJITLookup(c->jit->jit, &c->at, c->symbol);
}

enum tfmc_status backend_jit_load(struct diag_context *cx, const struct buf *object, struct backend_jit **out)
{
	return backend_jit_link(cx, object, NULL, 0, out);
}

enum tfmc_status backend_jit_link(struct diag_context *cx, const struct buf *object,
                                  const struct backend_function *functions, size_t n_functions,
                                  struct backend_jit **out)
{
	*out = NULL;
	if (n_functions > FUNCTIONS_MAX)
		return TFMC_INTERNAL;
	struct backend_jit *j = memory_zeroed(1, sizeof(*j));
	if (!j)
		return TFMC_NO_MEMORY;
	j->cx = cx;
	memory_stage("loading the code", NULL);
	struct call c = {.jit = j, .object = object, .functions = functions, .n_functions = n_functions};
	enum tfmc_status status = llvm_guard(cx, load, &c);
	if (status != TFMC_OK) {
		memory_free(j);
		return status;
	}
	j->jit = c.opened;
	if (c.error) {
		char *text = LLVMGetErrorMessage(c.error);
		backend_jit_destroy(j);
		status = report_llvm(cx, text);
		LLVMDisposeErrorMessage(text);
		return status;
	}
	*out = j;
	return TFMC_OK;
}

void backend_jit_destroy(struct backend_jit *jit)
{
	if (!jit)
		return;
	if (jit->jit)
		LLVMConsumeError(LLVMOrcDisposeLLJIT(jit->jit));
	memory_free(jit);
}

/* NULL if there is no such symbol, which is no error, or after a diagnostic, if the code could not be linked (which
 * the first look-up does). */
void *backend_jit_symbol(struct backend_jit *jit, const char *symbol)
{
	struct call c = {.jit = jit, .symbol = symbol};
	if (llvm_guard(NULL, look_up, &c) != TFMC_OK)
		return NULL;
	LLVMConsumeError(c.error);
	if (*jit->why && !c.at)
		(void)report_llvm(jit->cx, jit->why);
	return (void *)(uintptr_t)c.at;
}

/* Stores the address of symbol NAME_SUFFIX in the pointer at `out`, by bytes, since ISO C does not convert data
 * pointers to functions. False if there is none, or no memory for its name. */
static bool find_symbol(struct backend_jit *jit, const char *name, const char *suffix, void *out)
{
	struct buf symbol;
	buf_init(&symbol);
	buf_printf(&symbol, "%s_%s", name, suffix);
	void *at = buf_failed(&symbol) ? NULL : backend_jit_symbol(jit, symbol.data);
	buf_destroy(&symbol);
	memcpy(out, &at, sizeof(at));
	return at != NULL;
}

bool backend_jit_model(struct backend_jit *jit, const char *name, struct tfmc_model *out)
{
	memset(out, 0, sizeof(*out));
	bool found = find_symbol(jit, name, "record", &out->record);
#define MODEL(field, name_, result, parameters, comment) \
	found = found && find_symbol(jit, name, #name_, &out->field);
#define OTHER(name_, result, parameters, comment)
#include "backends/interface.def"
	return found;
}

const char *backend_llvm_version(void)
{
	return LLVM_VERSION_STRING;
}
