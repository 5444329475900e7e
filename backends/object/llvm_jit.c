/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads an object file into this process with ORC LLJIT, unchanged: the code that runs is the code that is shipped.
 * External functions are the given ones (libtfmccl) or found in the process (memcpy, memset).
 */
#include "backends/backend.h"
#include "backends/object/llvm_guard.h"

#include <llvm-c/Error.h>
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Target.h>
#include <llvm/Config/llvm-config.h>

#include <stdio.h>
#include <string.h>

#include "ir/support/memory.h"

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
static enum tfmc_status report(struct diag_context *cx, const char *text)
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

static LLVMErrorRef add_process_symbols(LLVMOrcLLJITRef jit)
{
	LLVMOrcDefinitionGeneratorRef generator = NULL;
	LLVMErrorRef error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
	        &generator, LLVMOrcLLJITGetGlobalPrefix(jit), NULL, NULL);
	if (!error)
		LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit), generator);
	return error;
}

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
		status = report(cx, text);
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

void *backend_jit_symbol(struct backend_jit *jit, const char *symbol)
{
	struct call c = {.jit = jit, .symbol = symbol};
	if (llvm_guard(NULL, look_up, &c) != TFMC_OK)
		return NULL;
	LLVMConsumeError(c.error);
	if (*jit->why && !c.at)
		(void)report(jit->cx, jit->why);
	return (void *)(uintptr_t)c.at;
}

/* Stores the address of symbol NAME_SUFFIX in the pointer at `out`. False if there is none. */
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
